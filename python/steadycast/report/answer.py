"""The first sentences of a report: each flow's share, the picture quality, and whether flows competed at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadycast.controllers import registry
from steadycast.folder import Json, number
from steadycast.record import of_flow, reach
from steadycast.report import say
from steadycast.report.choice import CONVERSATION_MS, delay_ms
from steadycast.report.rank import alike, ranked_receivers

MOSTLY = 0.5
"""A comparison is meaningless if something other than the network limits a flow for more than this fraction of time."""
_MUCH_LATE = 0.05
"""`_waited` explains late pictures if at least this fraction of the pictures is late."""
_LONG_BACKLOG_MS = 100.0
"""The wait at the sender counts as the cause of late pictures if its 95th percentile is at least this, in ms."""
_LEAST_SHARE_GAP = 0.02
"""`partly_competing` mentions a flow if its two shares differ by at least this.

One is the share while the flow competes, the other is the share in the whole run. Averaging alone may cause a smaller
difference.
"""
_GRADES = ((4.5, "excellent"), (3.5, "good"), (2.5, "fair"), (1.5, "poor"), (0.0, "bad"))


def answer(summary: Mapping[str, Any]) -> list[str]:
    """Return the sentences that begin a report. The most important sentence is the first."""
    flows = summary["flows"]
    sentences = []
    if summary.get("complete") is False:
        sentences.append("This run was interrupted. The report covers only its beginning.")
    sentences += uncompared(summary)
    measured = [f for f in flows if number(f.get("throughput_bps")) is not None]
    # Prefer flows that adapt their rate. Background traffic has a fixed rate, so mention it only if there is nothing
    # else.
    told = [got(f) for f in measured if f.get("kind") in ("video", "tcp")] or [got(f) for f in measured]
    if len(told) > 4:
        told = [*told[:3], f"and {len(told) - 3} more flows, in the table"]
    if told:
        sentences.append("; ".join(told) + ".")
    sentences += [s for each in summary.get("simulcasts") or [] if (s := _simulcast(each))]
    sentences += [s for f in flows if (s := _seen(f))]
    failed = [e for e in summary.get("expect") or [] if not e.get("ok")]
    if failed:
        n = len(failed)
        sentences.append(f"{n} expectation{'s' if n > 1 else ''} of the scenario failed.")
    return sentences


def uncompared(summary: Mapping[str, Any]) -> list[str]:
    """Return a warning for each video whose rate the network did not limit. Returns nothing for live sessions."""
    if summary.get("world") == "live":
        return []
    return [said for flow in summary["flows"] if (said := nothing_compared(flow))]


def nothing_compared(flow: Mapping[str, Any]) -> str | None:
    """Return a warning if something other than the network limited this flow for most of the time.

    Returns `None` for flows that are not videos.
    """
    if flow.get("kind") != "video":
        return None
    shares = {k: number(v) or 0.0 for k, v in (flow.get("limited_by_frac") or {}).items()}
    encoder, start, cap = shares.get("encoder", 0.0), shares.get("start", 0.0), shares.get("cap", 0.0)
    name = f"{flow['name']} ({flow.get('controller')})"
    if any(c.name == flow.get("controller") and c.feedback == "none" for c in registry()):
        if not number(flow.get("throughput_bps")):
            return None
        what = "sent at the rate of its encoder's best quality" if encoder > MOSTLY else "ran at a fixed rate"
        return f"{flow['name']} {what}: it did not react to the network."
    if encoder > MOSTLY:
        return (
            f"This run does not compare controllers: for {say.frac(encoder)} of the time {name} was limited by its "
            f"encoder's best quality, not by the network. Use a slower link, or a clip that needs a higher rate."
            f"{_waited(flow)}"
        )
    if start > MOSTLY and (broken := _broken_path(flow)):
        return f"This run does not compare controllers: {broken}"
    if start > MOSTLY:
        return (
            f"This run does not compare controllers: {name} was still in its start phase for {say.frac(start)} of "
            f"the time. Make the run longer, or set a warmup."
        )
    if encoder + start > MOSTLY:
        return (
            f"This run does not compare controllers: {name} was limited by its encoder for {say.frac(encoder)} of "
            f"the time, and was in its start phase for {say.frac(start)}; the network limited it for only "
            f"{say.frac(shares.get('network', 0.0))}."
        )
    if cap > MOSTLY:
        return f"{name} was at its cap for {say.frac(cap)} of the time: the cap limited it, not the network."
    return None


def _broken_path(flow: Mapping[str, Any]) -> str | None:
    """Return a sentence if all packets of this video were lost, or all reports about them. Otherwise return `None`."""
    receivers = flow.get("receivers") or []
    if receivers and all(number(receiver.get("loss_frac")) == 1 for receiver in receivers):
        return (
            f"no packet of {title(flow)} arrived. Check the rate and the loss of the links from its sender to its "
            f"{'receivers' if len(receivers) > 1 else 'receiver'}."
        )
    if number(flow.get("feedback_packets")) == 0:
        return (
            f"no report reached the sender of {title(flow)}. Make the run longer, or check the rate, the loss and the "
            "delay of the links back to the sender."
        )
    return None


def _waited(flow: Mapping[str, Any]) -> str:
    """Return a sentence if pictures were late because they waited at the sender. Otherwise return an empty text.

    ``flow`` is a video whose rate is limited by its encoder.
    """
    counts = [receiver.get("frames") or {} for receiver in flow.get("receivers") or []]
    late = max(((number(c.get("late")) or 0) / (number(c.get("sent")) or 1) for c in counts), default=0.0)
    waited = number(reach(flow, "backlog_ms", "p95")) or 0.0
    if late < _MUCH_LATE or waited < _LONG_BACKLOG_MS:
        return ""
    return (
        f" {say.frac(late)} of the pictures were late. At the sender 5 % of the packets waited for {say.ms(waited)} or "
        "more: a picture is sent at the film's mean rate if this limits the encoder. Where the codec permits it, "
        'vbr = "frame" sends pictures faster.'
    )


def title(flow: Mapping[str, Any]) -> str:
    """Return the name of a flow, followed by its controller."""
    how = flow.get("controller") or (flow.get("congestion") if flow.get("kind") == "tcp" else None)
    return f"{flow['name']} ({how})" if how and how != flow["name"] else str(flow["name"])


def counted(flow: Mapping[str, Any]) -> str:
    """Return the `title` of a flow. If it has several receivers, add their number."""
    n = len(flow.get("receivers") or [])
    return title(flow) + (f" → {n}" if n > 1 else "")


def grade(score: float) -> str:
    """Return the word for a mean opinion score, for example "good" from 3.5 to below 4.5."""
    return next(word for least, word in _GRADES if score >= least)


def a(word: str) -> str:
    """Return a word with the indefinite article in front of it."""
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def got(flow: Json) -> str:
    """Return a phrase about the throughput of a flow, and its ratio to the flow's fair share."""
    share = flow.get("share_of_fair")
    if number(flow.get("throughput_bps")) is None:
        return f"{title(flow)} was not active after the warm-up"
    text = f"{title(flow)} got {say.rate(flow.get('throughput_bps'))}"
    if number(share) is not None:
        text += f", {say.frac(share)} of its fair share"
    elif never_competes(flow):
        text += " and shared no full link with another flow"
    if number(flow.get("active_frac")) is None:
        return text
    text += " while it was active"
    count, mean = number(flow.get("transfers_count")), flow.get("transfer_mean_ms")
    return f"{text} ({say.count(count)} transfers, {say.ms(mean)} each)" if number(mean) is not None else text


def _simulcast(simulcast: Mapping[str, Any]) -> str | None:
    """Return a sentence about the shares of a simulcast's receivers. Return `None` if the shares are unknown."""
    all_ = simulcast.get("utilisation_frac")
    shares = {r["name"]: r.get("share_of_fair") for r in simulcast.get("receivers") or []}
    known = {name: share for name, value in shares.items() if (share := number(value)) is not None}
    if number(all_) is None or not known:
        return None
    least = min(known, key=lambda name: known[name])
    return (
        f"The receivers of the simulcast {simulcast['name']} got {say.frac(all_)} of their fair shares together; "
        f"{least} got the least, {say.frac(shares[least])} of its own."
    )


def never_competes(flow: Mapping[str, Any]) -> bool:
    """Whether the flow never competed with another flow. Its fraction of the fair share is then not known."""
    return flow.get("share_of_fair") is None and number(flow.get("competing_s")) == 0


def partly_competing(summary: Mapping[str, Any]) -> str | None:
    """Return a sentence about flows that competed for only a part of the time.

    It contains each flow's rate while it competed, if this rate differs from the flow's mean rate.
    """
    said = []
    for flow in summary["flows"]:
        share, fair = number(flow.get("share_of_fair")), number(flow.get("fair_share_bps"))
        mean, competing = number(flow.get("throughput_bps")), number(flow.get("competing_s"))
        if share is None or not fair or mean is None or competing is None:
            continue
        if say.frac(share) != say.frac(mean / fair) and abs(share - mean / fair) >= _LEAST_SHARE_GAP:
            said.append(
                f"{flow['name']} had {say.rate(share * fair)} of {say.rate(fair)} in its {say.seconds(competing)}"
            )
    if not said:
        return None
    return f"Shares count the time in which a flow competes: {say.listed(said)}."


def _seen(flow: Json) -> str | None:
    """Return a sentence about what the viewers saw: the score, what it is based on, and the missing frames."""
    receivers = ranked_receivers(flow) if flow.get("kind") == "video" else []
    if not receivers:
        return None
    n, worst = len(receivers), receivers[0]
    by = "rate_score" if of_flow(flow, "picture_score") is None else "picture_score"
    score = of_flow(flow, by)
    if score is None:
        ok, sent = number(reach(worst, "frames", "ok")), number(reach(worst, "frames", "sent"))
        if ok is None or not sent:
            return None
        which = (
            f"The worst viewer of {flow['name']}, {worst['name']}," if n > 1 else f"{flow['name']}'s viewer"
        )
        return f"{which} missed {say.frac(1 - ok / sent)} of the frames (its pictures were not measured)."
    same = alike(receivers)
    who = f"All {n} viewers of {flow['name']}" if same else f"The median of {flow['name']}'s {n} viewers"
    who = who if n > 1 else f"{flow['name']}'s viewer"
    text = f"{who} saw {a(grade(score))} picture ({by.replace('_', ' ')} {say.score(score)} of 5{_built_on(flow, by)})"
    least = number(worst.get(by))
    if not same and least is not None:
        text += f", the worst, {worst['name']}, {a(grade(least))} one ({say.score(least)})"
    return text + _missed(worst, several=n > 1) + _late(flow) + "."


def _built_on(flow: Json, by: str) -> str:
    psnr = of_flow(flow, "psnr_db.raw.y")
    if by == "rate_score":
        return "; its pictures were not measured"
    return "" if psnr is None else f", {say.db(psnr)}"


def _late(flow: Json) -> str:
    """Return a phrase about the delay if it is too long for a conversation.

    The phrase is empty for flows with several receivers.
    """
    delay = number(delay_ms(flow)) if len(flow["receivers"]) == 1 else None
    if delay is None or delay <= CONVERSATION_MS:
        return ""
    what = "it was shown" if of_flow(flow, "playout_ms.p95") is not None else "its packets arrived"
    return (
        f"; {what} {say.ms(delay)} late, too late for a call (at most {say.ms(CONVERSATION_MS)}, ITU-T G.114)"
    )


def _missed(receiver: Mapping[str, Any], *, several: bool) -> str:
    """Return a phrase about frames that a viewer did not see whole and in time.

    It also mentions frozen pictures. It mentions late frames if most of these frames arrived late.
    """
    ok, sent = number(reach(receiver, "frames", "ok")), number(reach(receiver, "frames", "sent"))
    if ok is None or not sent or ok >= sent:
        return ""
    share = say.frac((sent - ok) / sent)
    text = f"; {share} of the frames were not shown whole and in time"
    if several:
        text = f"; the worst missed {share} of the frames"
    frozen = number(receiver.get("frozen_frac"))
    if frozen:
        text += f", and the picture was frozen for {say.frac(frozen)} of the time"
    late, needed = number(reach(receiver, "frames", "late")), number(receiver.get("playout_needed_ms"))
    if late and needed is not None and late > (sent - ok) / 2:
        text += f" (most arrived late: a play-out delay of {say.ms(needed)} would have been enough)"
    return text
