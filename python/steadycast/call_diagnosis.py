"""Describes in one sentence the probable cause of the worst ten seconds of a call."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, takewhile

from steadycast.folder import Json
from steadycast.record import middle
from steadycast.report import say

FELL = 0.8
"""A rate counts as lower than another rate if it is below this fraction of the other rate.

The rates are the sent rate, the capacity now and before, and the sender's bandwidth estimate.
"""
LOSSY = 0.01
"""The fraction of lost packets from which viewers see losses in the pictures."""
LOSSY_STREAM = 0.03
"""The fraction of lost packets from which the losses of one of several streams are named.

It is above `LOSSY`, because the worst ten seconds of the worst stream have more losses than those of all streams.
"""
UNCOUNTED = 0.1
"""The network can be excluded as the cause only if losses are unknown for at most this fraction of the call."""
BY_CHANCE = 0.5
"""Random loss is the cause if at least this fraction of the losses occurs while the queue is not full."""
LIMITED = 0.1
"""A limit of the encoder counts as a cause if it applied for at least this fraction of the call."""
LIMITED_AT_WORST = 0.5
"""A limit of the encoder also counts as a cause if it applied for at least this fraction of the worst ten seconds."""
START_S = 20.0
"""The longest start of a call in which bandwidth limits every encoder, in seconds.

The bandwidth estimate of browsers begins at 300 kb/s. If it grows by 8 % per second (draft-ietf-rmcat-gcc, section
5.5), it is 1.4 Mb/s after this time.
"""
SLOW_MS = 50.0
"""The queueing delay from which viewers notice the delay, in milliseconds."""
STALL_MS = 150.0
"""The queueing delay of a single packet from which the picture may freeze, in milliseconds.

A frame that is this late is a freeze in WebRTC statistics (`freezeCount`).
"""
STALLED = 0.02
"""The network can be excluded as the cause only if less than this fraction of the bins has a delay of `STALL_MS`."""
LONGEST_QUEUE_MS = 1000.0
"""A larger step of the delay is a step of a clock, because queues seldom hold more than this, in milliseconds."""
INTERRUPTED_S = 1.0
"""If all packets are lost for at least this time, the path was interrupted, in seconds."""
FROZEN = 0.05
"""A freeze has to be explained if it takes at least this fraction of the worst ten seconds."""


def losses(bins: Sequence[Json]) -> int | None:
    """Return the number of packets lost in these bins. Return `None` if no bin has a count of losses."""
    counted = [each["lost"] for each in bins if each["lost"] is not None]
    return sum(counted) if counted else None


def lost_by_chance(bins: Sequence[Json]) -> int:
    """Return the number of packets lost while the queue was not full, in the bins that count losses."""
    return sum(each["lost_by_chance"] for each in bins if each["lost"] is not None)


def lost_share(bins: Sequence[Json]) -> float | None:
    """Return the fraction of packets lost in the bins that count losses. Return `None` if these have no packets."""
    counted = [each for each in bins if each["lost"] is not None]
    packets = sum(each["packets"] for each in counted)
    return sum(each["lost"] for each in counted) / packets if packets else None


def _uncounted(bins: Sequence[Json]) -> float:
    return sum(each["lost"] is None for each in bins) / len(bins) if bins else 1.0


def sentence(call: Json) -> str:
    """Describe the cause of the worst ten seconds, or say that the network was not the cause."""
    seen, bins, bin_s = call["seen"], call["bins"], call["bin_s"]
    worst = seen["worst"] or {"from_s": 0.0, "to_s": seen["length_s"]}
    first, last = round(worst["from_s"] / bin_s), round(worst["to_s"] / bin_s)
    # If no packet was sent, the round trip may still be known.
    part = [each for each in bins[first:last] if each["packets"]] or bins[first:last]
    lost, weighed = lost_share(part), [each for each in part if each["delay_ms"] is not None]
    # Weight each bin by its number of packets.
    weights = [each["packets"] or 1 for each in weighed]
    delays = (each["delay_ms"] * weight for each, weight in zip(weighed, weights, strict=True))
    delay = sum(delays) / sum(weights) if weighed else None
    where = f"{say.seconds(worst['from_s'])} to {say.seconds(worst['to_s'])}"
    # Only files of averages (a browser's dump or a run's tables) have the key `limited`.
    if "limited" in seen:
        least = min((each["delay_ms"] for each in bins if each["delay_ms"] is not None), default=None)
        return _averaged(call, slice(first, last), where, lost, delay, least)
    gone = "losses are unknown" if lost is None else f"{say.frac(lost)} lost"
    if delay is None:
        return f"Cause: unknown, as no packet of the worst seconds ({where}) has a known delay; {gone}."
    if (lost or 0.0) < LOSSY and delay < SLOW_MS:
        unknown = (
            f"for {say.frac(_uncounted(bins))} of the call whether packets were lost is not known"
            if _uncounted(bins)
            else ""
        )
        if lost is None or _uncounted(bins) > UNCOUNTED:
            return f"Cause: unknown: at worst ({where}) {say.ms(delay)} of delay were added, and {unknown}."
        if delay + (error := _delay_error(call["path"])) >= SLOW_MS:
            return (
                f"Cause: unknown: at worst ({where}) at least {say.ms(delay)} of delay were added. The delay stepped "
                f"by {say.ms(error)} in total, because other traffic came into the queue or left it, the route "
                "changed, or a clock was set; this file does not show which."
            )
        added = f"at worst ({where}) {say.ms(delay)} of delay and {say.frac(lost)} of loss were added{_unsent(seen)}"
        as_recorded = f" as far as it was recorded, and {unknown}" if unknown else ""
        return f"Cause: {_quiet(call, first, last)}{as_recorded}, where {added}{_less(call, first, last)}."
    why = _why(call, first, last, delay)
    return f"Cause: {why}. Worst from {where}: {at_least(call['path'])}{say.ms(delay)} of delay, {gone}."


def at_least(path: Json) -> str:
    """Return "at least " for delays that may be too short, because the queue may never have been empty.

    Delays count from the minimum delay, which is the delay of an empty queue only if the queue was empty at times.
    """
    return "at least " if path.get("verdict") in ("shared", "changing") or _delay_error(path) else ""


def _delay_error(path: Json) -> float:
    """Return how much too short the delays may be, in ms: the sum of the steps that were removed from them."""
    if path.get("verdict") in ("alone", "jittered"):
        return 0.0
    steps: list[float] = path.get("removed_steps_ms", [])
    return sum(step for step in steps if step < LONGEST_QUEUE_MS)


def _is_alone(path: Json, bins: Sequence[Json]) -> bool:
    """Whether the queue contained only packets of the call during these bins."""
    if path.get("drift_ppm") is None or path.get("verdict") not in ("alone", "jittered"):
        return False
    return not any(each.get("shared") for each in bins)


def _quiet(call: Json, first: int, last: int) -> str:
    """Describe what limited the rate of a call that had neither long delays nor losses."""
    part = [each for each in call["bins"][first:last] if each["packets"]]
    sent: float | None = middle(each["sent_bps"] for each in part)
    capacity = _capacity(part) if _is_alone(call["path"], part) else None
    estimate = _estimate(call, first, last)
    earlier = [each for each in call["bins"][:first] if each["packets"]]
    before = _capacity(earlier) if _is_alone(call["path"], earlier) else None
    # A sender that follows the link's rate in time has neither long delays nor losses, but has to send less.
    needed = max((each["sent_bps"] for each in earlier), default=0.0)
    after = _capacity(_slowest(part)) if capacity else None
    if before and after and after < FELL * before and after < needed:
        return f"the link fell from {say.rate(before)} to {say.rate(after)}, and the sender followed it"
    is_below_estimate = bool(sent and estimate and sent < FELL * estimate)
    if sent and capacity and sent >= FELL * capacity and not is_below_estimate:
        return (
            f"the link's {say.rate(capacity)} limited the rate ({say.rate(sent)} were sent), unless the application's "
            "own limit is close to it"
        )
    if sent and estimate and sent >= FELL * estimate:
        return f"the sender's bandwidth estimate of {say.rate(estimate)} limited the rate ({say.rate(sent)} were sent)"
    carried: float | None = middle(each["at_least_bps"] for each in part if each["at_least_bps"])
    if stalls := _stalls(call):
        return stalls
    if capacity or estimate or (sent and carried and sent < FELL * carried):
        return "none in the network"
    return (
        "unknown: neither delays nor losses show one, and the file does not show whether the link or the application "
        "limited the rate"
    )


def _stalls(call: Json) -> str | None:
    """Describe long delays that are too short to increase the mean. Return `None` if they are rare or unknown."""
    delays = [each["delay_max_ms"] for each in call["bins"] if each.get("delay_max_ms") is not None]
    late = [delay for delay in delays if delay >= STALL_MS]
    if not late or len(late) < STALLED * len(delays):
        return None
    return (
        f"unknown: packets were delayed by up to {say.ms(max(late))} for short times, because the link stalled, or a "
        "burst of other traffic or of the call's own packets filled the queue; this file does not show which"
    )


def _estimate(call: Json, first: int, last: int) -> float | None:
    """Return the median of the sender's bandwidth estimate over the time of these bins. Return `None` if it is unknown.

    An estimate holds until the next one. So the median weighs times, and not records: logs record changes.
    """
    estimates, bin_s = call["seen"]["estimates"], call["bin_s"]
    places = (bisect_right(estimates, (k + 1) * bin_s, key=lambda one: one[0]) for k in range(first, last))
    found: float | None = middle(estimates[place - 1][1] for place in places if place)
    return found


def _why(call: Json, first: int, last: int, delay: float) -> str:
    path, bins = call["path"], call["bins"]
    part = bins[first:last]
    is_alone = _is_alone(path, part)
    slowest = _slowest(part)
    after = _capacity(slowest) if is_alone or path.get("beside") else None
    earlier = bins[max(first - (last - first), 0) : first]
    before = _capacity(earlier)
    if after and before and after < FELL * before:
        return f"the link fell from {say.rate(before)} to {say.rate(after)}"
    carried = _carried([*earlier, *part[: next((k for k, each in enumerate(part) if each in slowest), 0)]])
    if after and not before and after < FELL * carried:
        return f"the link fell from at least {say.rate(carried)} to {say.rate(after)}"
    # If the delay is long, random losses do not count as the cause. A short delay does not prove random losses, because
    # a short queue adds little delay even when it is full.
    if delay < SLOW_MS and lost_by_chance(part) >= BY_CHANCE * (losses(part) or 0):
        return f"packets were lost while the queue was not full{_interruption(call, first, last)}"
    is_own_queue_unknown = path["verdict"] != "shared" and not path["queue"]["full"]
    is_path_unknown = path["verdict"] in ("changing", "unseen") or path["drift_ppm"] is None
    if delay < SLOW_MS and (is_path_unknown or is_own_queue_unknown):
        return (
            "unknown: packets were lost although the delays were short, because of random losses, a policer, or a "
            "short queue that was full; this file does not show which"
        )
    if path["verdict"] == "changing":
        return (
            "unknown: the link slowed down, other traffic filled the queue, the route changed, or a clock was set; "
            "this file does not show which"
        )
    # If the delays have a slope, other traffic may have filled the queue, unless the call alone overfilled it.
    overfilled = _overfilled(path, part)
    if path["drift_ppm"] is None and path["verdict"] != "shared" and not overfilled:
        return (
            "unknown: the least delay grew or fell during the call, because of other traffic in the queue, a queue "
            "that did not drain, a link that slowed down, changes of the route, or clocks that drift or were set; this "
            "file does not show which"
        )
    if shared := path["shared"] or _shared(part):
        share = f"{say.rate(shared['own_bps'])} of about {say.rate(shared['capacity_bps'])}"
        return f"other traffic filled the queue, or the link changes all the time: the call had {share}"
    if path["verdict"] == "shared":
        return "other traffic filled the queue, or the link's rate or the delay after it changes all the time"
    sent = middle(each["sent_bps"] for each in part)
    # If no train shows the capacity, nothing shows that the queue had only packets of the call.
    is_own_unknown = path["verdict"] == "jittered" and path.get("known_frac") == 0 and not overfilled
    if path["verdict"] == "unseen" or is_own_unknown:
        return (
            f"there was a standing queue, and it is unknown whether the call's {say.rate(sent)} or other traffic "
            "filled it"
        )
    rate = after or overfilled
    link = f" on a link of {say.rate(rate)}" if rate else ""
    # Give the highest sent rate, because the queue grew before the delays were longest.
    most = max(each["sent_bps"] for each in part)
    return f"the call's own packets, up to {say.rate(most)}, filled the queue{link}"


def _interruption(call: Json, first: int, last: int) -> str:
    """Say that all packets of a part of these bins were lost. Return an empty text if most losses are elsewhere."""
    runs = [
        [k for k, _ in run]
        for is_lost, run in groupby(
            ((k, call["bins"][k]) for k in range(first, min(last, len(call["bins"])))),
            key=lambda one: one[1]["packets"] > 0 and one[1]["lost"] == one[1]["packets"],
        )
        if is_lost
    ]
    longest = max(runs, key=len, default=[])
    lost = sum(call["bins"][k]["lost"] for k in longest)
    if len(longest) * call["bin_s"] < INTERRUPTED_S or 2 * lost < (losses(call["bins"][first:last]) or 0):
        return ""
    begin, end = longest[0] * call["bin_s"], (longest[-1] + 1) * call["bin_s"]
    return f": the path was interrupted from {say.seconds(begin)} to {say.seconds(end)}, when all packets were lost"


def _overfilled(path: Json, bins: Sequence[Json]) -> float | None:
    """Return the capacity of a queue that was full of the call's packets, which were sent faster than the capacity.

    Return `None` if the bins do not show this.
    """
    capacity, sent = _capacity(bins), middle(each["sent_bps"] for each in bins)
    is_own = path["verdict"] in ("alone", "jittered") and path["queue"]["full"]
    if not is_own or any(each.get("shared") for each in bins):
        return None
    return capacity if capacity and sent and sent > capacity and losses(bins) else None


def _shared(bins: Sequence[Json]) -> Json | None:
    """Return the median capacity and the median own rate of the call, over the bins that show other traffic."""
    found = [each["shared"] for each in bins if each.get("shared")]
    return {key: middle(each[key] for each in found) for key in found[0]} if found else None


def _capacity(bins: Sequence[Json]) -> float | None:
    found: float | None = middle(each["capacity_bps"]["rate"] for each in bins if each["capacity_bps"])
    return found


def _carried(bins: Sequence[Json]) -> float:
    """Return the highest rate that arrived while the queue was short. The capacity is at least this rate."""
    delays = ((each.get("delay_max_ms"), each["arrived_bps"]) for each in bins)
    quick = [arrived for delay, arrived in delays if delay is not None and delay < SLOW_MS]
    return max(quick, default=0.0)


def _slowest(bins: Sequence[Json]) -> list[Json]:
    """Return the half of the bins that has the longest delays. If the capacity fell, it was low in these bins."""
    known = [each for each in bins if each["capacity_bps"] and each["delay_ms"] is not None]
    return sorted(known, key=lambda each: float(each["delay_ms"]))[len(known) // 2 :]


def _less(call: Json, first: int, last: int) -> str:
    """Say that the call sent less than the bandwidth estimate. Return an empty text if no log shows it."""
    estimate = _estimate(call, first, last)
    sent: float | None = middle(each["sent_bps"] for each in call["bins"][first:last])
    if estimate is None or sent is None or sent >= FELL * estimate:
        return ""
    return f"; {say.rate(sent)} of an estimated {say.rate(estimate)} were sent: the application may limit the rate"


def _unsent(seen: Json) -> str:
    """Say how long the picture paused, and whether the sender sent no pictures. Return an empty text for short pauses.

    A short pause is mentioned only if the sender sent no pictures in it.
    """
    frames = seen.get("frames") or {}
    paused, unsent = (frames.get(key, 0.0) for key in ("paused_s", "unsent_s"))
    said = f"; the picture paused for {say.seconds(paused)} in total"
    if paused and 2 * unsent > paused:
        return f"{said}, of which the sender sent no picture for {say.seconds(min(unsent, paused))}"
    return f"{said}, and nothing recorded shows why" if paused - unsent >= INTERRUPTED_S else ""


def _averaged(
    call: Json, part: slice, where: str, lost: float | None, delay: float | None, least: float | None
) -> str:
    """Describe the causes as far as averages show them.

    ``part`` is the place of the worst ten seconds in the bins. ``least`` is the shortest delay in ms.
    """
    seen = call["seen"]
    audio = (seen.get("audio") or {}).get("worst_lost_frac") or 0.0
    shown = []
    stream = seen.get("worst_stream_lost_frac") or 0.0
    if (lost or 0.0) >= LOSSY:
        shown.append("packets were lost")
    elif stream >= LOSSY_STREAM:
        shown.append(f"packets of one of the streams were lost ({say.frac(stream)} in its worst ten seconds)")
    if audio >= LOSSY:
        shown.append(f"audio packets were lost ({say.frac(audio)} in their worst ten seconds)")
    if delay is not None and least is not None and delay - least >= SLOW_MS:
        grew = f"the {seen['delay_is']} grew from {say.ms(least)} to {say.ms(delay)}"
        shown.append(f"{grew}: there was a standing queue or another route, and averages do not show which")
    limits = _without_start(call)
    # If all parts of the call are alike, no part is the worst.
    at_worst = _limits(limits[part], LIMITED_AT_WORST) if shown else []
    at_times = [each for each in _limits(limits, LIMITED) if each not in at_worst]
    # A limit of the worst ten seconds comes first, because it may explain the losses and the delays there.
    causes = [_limited(seen, each) for each in at_worst] + shown + [_limited(seen, each) for each in at_times]
    # The browser names a limit that its own estimate contradicts. That shows a cause only if nothing else does.
    known = [each for each in causes if not each.startswith("unknown")]
    why = "; ".join(known or causes)
    if not why and lost is None:
        why = _without_losses(call, part)
    frozen = sum(each.get("frozen_s", 0.0) for each in call["bins"][part])
    if not why and frozen >= FROZEN * (part.stop - part.start) * call["bin_s"]:
        why = f"unknown: the picture froze for {say.seconds(frozen)}, and the averages do not show why"
    why = why or "none that the averages show"
    trip = f"no {seen['delay_is']} is known" if delay is None else f"{say.ms(delay)} of {seen['delay_is']}"
    of_video = " of the video" if seen.get("audio") else ""
    gone = f"losses{of_video} are unknown" if lost is None else f"{say.frac(lost)}{of_video} lost"
    return f"Cause: {why}. Worst from {where}: {trip}, {gone}."


def _without_losses(call: Json, part: slice) -> str:
    """Describe the cause in a part of the bins in which losses are unknown."""
    bins = call["bins"]
    if losses(bins) is None:
        return "unknown, because the file has no count of losses"
    if any(each["packets"] for each in bins[part]):
        return "unknown, because the file has no count of losses for these seconds"
    if call["seen"].get("side") == "sender":
        return "the sender paused: it sent no packet in these seconds"
    # A receiver notices losses by a gap in the sequence numbers when later packets arrive.
    missing = next((each["lost"] for each in bins[part.stop :] if each["packets"]), None)
    if missing is None:
        return "unknown: no packet arrived in these seconds, because the sender paused or the path was interrupted"
    if missing:
        return (
            "the path was interrupted: no packet arrived in these seconds, and packets are missing after them"
        )
    return "the sender paused: no packet arrived in these seconds, and none is missing after them"


def _limits(bins: Sequence[list[str] | None], least: float) -> list[str]:
    """Return the limits of the encoder in at least this fraction of the bins, the most frequent one first.

    A bin is a list of limits, or `None` if they are unknown.
    """
    known = [reasons for reasons in bins if reasons is not None]
    counted = Counter(reason for reasons in known for reason in reasons)
    return [reason for reason, count in counted.most_common() if count >= least * len(known)]


def _without_start(call: Json) -> list[list[str] | None]:
    """Return the limits of the encoder in each bin, without the limit by bandwidth in a short start of the call."""
    limits: list[list[str] | None] = [each["limited"] for each in call["bins"]]
    start = list(takewhile(lambda reasons: reasons is None or "bandwidth" in reasons, limits))
    if len(start) * call["bin_s"] > START_S:
        return limits
    return [reasons and [each for each in reasons if each != "bandwidth"] for reasons in start] + limits[
        len(start) :
    ]


def _limited(seen: Json, reason: str) -> str:
    """Describe a limit of the encoder."""
    time = f"for {say.frac(seen['limited'][reason])} of the time"
    if reason == "bandwidth" and (unused := seen.get("unused_bandwidth")):
        return (
            f"unknown: the browser says that bandwidth limited the encoder {time}, but then "
            f"{say.rate(unused['sent_bps'])} of an estimated {say.rate(unused['estimate_bps'])} were sent; the "
            "application may limit the rate"
        )
    held = {
        "bandwidth": "the network limited the encoder",
        "cpu": "the sender's computer was too slow to encode",
    }
    return f"{held.get(reason, f'{reason} limited the encoder')} {time}"
