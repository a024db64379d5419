"""What a call left behind: what was seen of it, and the path it took, or why that can't be known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast import style
from steadycast.core import core
from steadycast.errors import UserError, reason
from steadycast.files import folder, write_text
from steadycast.folder import Json, write_json
from steadycast.record import middle
from steadycast.report import canvas, say
from steadycast.report.markup import element, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BIN_S = 0.5
"""The length of the parts in which a call is told."""
WORST_S = 10.0
_LOST_MS = 1000.0
"""How late a lost packet counts as where the worst seconds are looked for."""
_HELD_BINS = 4
"""How many unknown bins may follow each other for their rate to be taken for one between those on either side."""
_STEP = 0.05
"""Steps of the capacity that are smaller are left out of a scenario."""
_UNKNOWN_DELAY_MS = 20.0
_LONGEST_QUEUE_S = 0.5


def read(file: Path | str, stream: int | None = None) -> Json:
    """Read a call: an RTC event log (version 2) of libwebrtc's, or a capture.

    Args:
        file: its path.
        stream: the SSRC of one of the call's streams, where a capture holds several calls.

    Returns:
        ``file``, ``seen`` (rates in bit/s, delays in ms above that of an empty queue, shares of one), ``path`` (its
        verdict, what is known, and ``refusals``: why it is not), and ``bins``, one for each half second.

    Raises:
        UserError: it can't be read, or says nothing of arrivals.

    """
    try:
        raw = json.loads(core.call(Path(file), stream))
    except OSError as error:
        raise UserError(str(file), reason(error), "name an event log or a capture") from error
    bins = raw.pop("bins")
    seen = {
        key: raw.pop(key) for key in ("source", "notes", "packets", "reports", "round_trip_ms", "estimates")
    }
    seen |= _seen(bins, raw.pop("frames"))
    return {
        "file": Path(file).name,
        "bin_s": BIN_S,
        "seen": seen,
        "path": raw | _capacity(bins),
        "bins": bins,
    }


def _seen(bins: list[Json], frames: list[list[float | None]]) -> Json:
    active = [each for each in bins if each["packets"]]
    packets, lost = (sum(each[key] for each in bins) for key in ("packets", "lost"))
    told = [
        (each["delay_ms"], each["packets"] - each["lost"]) for each in active if each["delay_ms"] is not None
    ]
    weight = sum(n for _, n in told)
    return {
        "length_s": len(bins) * BIN_S,
        "sent_bps": middle(each["sent_bps"] for each in active),
        "sent_max_bps": max((each["sent_bps"] for each in active), default=None),
        "arrived_bps": middle(each["arrived_bps"] for each in active),
        "lost_frac": lost / packets if packets else None,
        "delay_mean_ms": sum(delay * n for delay, n in told) / weight if weight else None,
        "delay_max_ms": max(
            (each["delay_max_ms"] for each in active if each["delay_max_ms"] is not None), default=None
        ),
        "worst": _worst(bins),
        "frames": _frames(frames),
    }


def _worst(bins: list[Json]) -> Json | None:
    """Find the ten seconds with the longest delays, where each lost packet counts as a second late."""
    n = int(WORST_S / BIN_S)
    if len(bins) <= n:
        return None

    def bad(each: Json) -> float:
        return (each["delay_ms"] or 0.0) + _LOST_MS * (
            each["lost"] / each["packets"] if each["packets"] else 0.0
        )

    marks = [bad(each) for each in bins]
    first = max(range(len(bins) - n + 1), key=lambda i: sum(marks[i : i + n]))
    part = [each for each in bins[first : first + n] if each["packets"]]
    packets = sum(each["packets"] for each in part)
    return {
        "from_s": first * BIN_S,
        "to_s": first * BIN_S + WORST_S,
        "sent_bps": middle(each["sent_bps"] for each in part),
        "delay_mean_ms": middle(each["delay_ms"] for each in part if each["delay_ms"] is not None),
        "lost_frac": sum(each["lost"] for each in part) / packets if packets else None,
    }


def _frames(frames: list[list[float | None]]) -> Json | None:
    """Count frames, those that came whole at first, and the pauses between: no more is known without a decoder."""
    came = sorted(at for _, at in frames if at is not None)
    if len(came) < 2:
        return None
    gaps = [b - a for a, b in pairwise(came)]
    usual = middle(gaps) or 0.0
    least = max(3 * usual, usual + 0.15)
    pauses = [gap for gap in gaps if gap > least]
    return {
        "all": len(frames),
        "whole": len(came),
        "per_s": 1 / usual if usual else None,
        "pause_s": least,
        "pauses": len(pauses),
        "paused_s": sum(pauses),
    }


def _capacity(bins: list[Json]) -> Json:
    known = [each["capacity_bps"] for each in bins if each["capacity_bps"]]
    rates = [each["rate"] for each in known]
    wide = [(each["high"] - each["low"]) / 2 / each["rate"] for each in known]
    if not known:
        return {"capacity_bps": None}
    return {
        "capacity_bps": {"median": middle(rates), "min": min(rates), "max": max(rates)},
        "band_frac": middle(wide),
    }


# ---------------------------------------------------------------- in words


def sentences(call: Json) -> list[str]:
    """Say what was seen, and what the path was or why that can't be known."""
    seen, path = call["seen"], call["path"]
    said = [
        f"{call['file']}: {seen['source']}, {say.seconds(seen['length_s'])}, {say.count(seen['packets'])} packets, "
        f"{say.count(seen['reports'])} reports.",
        f"Seen: {say.rate(seen['sent_bps'])} sent ({say.rate(seen['sent_max_bps'])} at most), "
        f"{say.frac(seen['lost_frac'])} of the packets lost, {say.ms(seen['delay_mean_ms'])} of delay above an empty "
        f"queue's as a mean, {say.ms(seen['delay_max_ms'])} at most.",
    ]
    if estimates := seen["estimates"]:
        said.append(
            f"Its sender's estimate went from {say.rate(min(rate for _, rate in estimates))} to "
            f"{say.rate(max(rate for _, rate in estimates))}."
        )
    if frames := seen["frames"]:
        said.append(
            f"Pictures: {say.count(frames['whole'])} of {say.count(frames['all'])} came whole at first; for more than "
            f"{say.seconds(frames['pause_s'])} no whole one came {say.count(frames['pauses'])} times, "
            f"{say.seconds(frames['paused_s'])} in all. What a repair brought later is not known."
        )
    if worst := seen["worst"]:
        said.append(
            f"Worst from {say.seconds(worst['from_s'])} to {say.seconds(worst['to_s'])}: {say.rate(worst['sent_bps'])} "
            f"sent, {say.ms(worst['delay_mean_ms'])} of delay, {say.frac(worst['lost_frac'])} lost."
        )
    return said + _path_said(path) + [f"Note: {note}." for note in seen["notes"]]


def _path_said(path: Json) -> list[str]:
    if path["refusals"]:
        said = [f"The call does not show its path: {why}." for why in path["refusals"]]
        if shared := path["shared"]:
            said.append(
                f"Where packets of its own followed each other, the capacity was about "
                f"{say.rate(shared['capacity_bps'])}, of which it had {say.rate(shared['own_bps'])}."
            )
        return said
    capacity, queue = path["capacity_bps"], path["queue"]
    jitter = ", with delays that vary behind the queue" if path["verdict"] == "jittered" else ""
    held = f"{say.count(queue['bytes'])} bytes"
    said = [
        f"Path: {say.rate(capacity['median'])} as a median, {say.rate(capacity['min'])} to "
        f"{say.rate(capacity['max'])}, each to about ±{say.frac(path['band_frac'])}, known in "
        f"{say.frac(path['known_frac'])} of the half seconds; nobody else was in the queue{jitter}.",
        f"Its queue holds {held}: losses show that it was full."
        if queue["full"]
        else f"Its queue holds at least {held}; no loss shows how much more.",
    ]
    if path["chance_loss_frac"] > 0:
        said.append(
            f"{say.frac(path['chance_loss_frac'])} of the packets were lost without a queue, "
            f"{say.plain(path['loss_run_packets'])} in a row as a mean."
        )
    if path["route_changes_s"]:
        said.append(
            f"The route changed near {say.listed([say.seconds(at) for at in path['route_changes_s']])}."
        )
    return said


# ---------------------------------------------------------------- as a scenario


def rates(call: Json) -> list[float]:
    """Return a capacity for each bin, in bit/s: the known ones, and the middle of what others can have been.

    A short gap lies between its sides. In others the rate may have gone as high as three times the highest seen: the
    geometric mean of that and of what went through is taken. To hold the last value would punish whatever fills a link
    sooner than the recorded sender did.
    """
    bins = call["bins"]
    known = [each["capacity_bps"]["rate"] if each["capacity_bps"] else None for each in bins]
    most = 3 * max(rate for rate in known if rate is not None)
    found: list[float] = []
    i = 0
    while i < len(bins):
        if (rate := known[i]) is not None:
            found.append(rate)
            i += 1
            continue
        end = next((j for j in range(i, len(bins)) if known[j] is not None), len(bins))
        sides = [
            rate for rate in (known[i - 1] if i else None, known[end] if end < len(bins) else None) if rate
        ]
        if end - i <= _HELD_BINS:
            held = math.sqrt(sides[0] * sides[-1])
        else:
            went = max(max(each["at_least_bps"] or 0.0, each["arrived_bps"]) for each in bins[i:end])
            held = math.sqrt(min(max(went, min(sides) / 10), most) * most)
        found += [held] * (end - i)
        i = end
    return found


def scenario(call: Json) -> Json:
    """Return a scenario of the path, with a video on it; the call must show its path."""
    path, seen = call["path"], call["seen"]
    steps: list[tuple[float, float]] = []
    for i, rate in enumerate(rates(call)):
        if not steps or abs(rate / steps[-1][1] - 1) > _STEP:
            steps.append((i * BIN_S, rate))
    trip = seen["round_trip_ms"]
    delay = max(1.0, (trip / 2 if trip is not None else _UNKNOWN_DELAY_MS) - 2.0)
    held = max(path["queue"]["bytes"], 3000)
    if not path["queue"]["full"]:
        held = max(held, math.sqrt(held * path["capacity_bps"]["median"] / 8 * _LONGEST_QUEUE_S))
    bottleneck: Json = {
        "rate": _bps(steps[0][1]),
        "delay": f"{delay:.1f}ms",
        "queue": {"kind": "droptail", "limit": f"{held:.0f}B"},
    }
    if (loss := path["chance_loss_frac"]) > 0:
        good = 1 / max(path["loss_run_packets"], 1.0)
        bottleneck["loss"] = {"kind": "gilbert", "p_good": good, "p_bad": min(loss * good / (1 - loss), 1.0)}
    video: Json = {"name": "video", "kind": "video", "controller": "gcc", "media": "rfc8593"}
    cap = max(seen["sent_max_bps"], 200e3)
    video |= {"cap": _bps(cap), "rfc8593": {"r_max": _bps(cap)}}
    if (per_s := (seen["frames"] or {}).get("per_s")) is not None:
        video["encode"] = {"fps": min(max(round(per_s), 1), 60)}
    made: Json = {
        "format": 1,
        "name": "path",
        "duration": f"{max(seen['length_s'], 1.0):g}s",
        "topology": {
            "shape": "dumbbell",
            "bottleneck": bottleneck,
            "access": {"rate": "1Gbps", "delay": "1ms"},
        },
        "flow": [video],
    }
    events = [{"at": f"{at:g}s", "set": {"link": "bottleneck", "rate": _bps(rate)}} for at, rate in steps[1:]]
    return made | ({"event": events} if events else {})


def _bps(rate: float) -> str:
    return f"{rate / 1000:.0f}kbps"


# ---------------------------------------------------------------- as a folder


def write(call: Json, place: Path) -> Path:
    """Write path.json, path.toml where the path is known, and report.html, whose path is returned."""
    from steadycast.loading import load
    from steadycast.toml import document

    folder(place)
    write_json(place / "path.json", call)
    text = None
    if call["path"]["refusals"]:
        (place / "path.toml").unlink(missing_ok=True)
    else:
        text = "# The path of a call, as its packets showed it; unknown parts are the middle of what they can be.\n"
        text += document(scenario(call))
        load(str(place / "path.toml"), text=text)
        write_text(place / "path.toml", text)
    report = place / "report.html"
    write_text(report, _page(call, place, text))
    return report


def _page(call: Json, place: Path, scenario_text: str | None) -> str:
    from steadycast.report import page

    said = sentences(call)
    parts = [element("h1", f"{call['file']} · a call"), element("p", page.prose(said[0]), class_="answer")]
    parts += [element("p", page.prose(each), class_="more") for each in said[1:]]
    drawing = canvas.in_style(lambda: _draw(call), "call")
    caption = (
        "The capacity with its band (5 to 95 %) where packets waited for each other; grey where they did not: there it "
        "may have been anything above what was sent. Delays are above an empty queue's."
    )
    parts.append(
        page.section(
            "Over time", page.figure(drawing or "", caption, f"steadycast call {call['file']}", "call")
        )
    )
    if scenario_text is not None:
        shown = page.folded("path.toml, a scenario that runs", element("pre", scenario_text))
        parts.append(page.section(f"To run it: steadycast run {place / 'path.toml'}", shown))
    return page.wrap(f"{call['file']} · Steadycast", joined(parts, "\n"))


def _draw(call: Json) -> Figure:
    bins: Sequence[Json] = call["bins"]
    at = [i * BIN_S for i in range(len(bins))]
    middles = [t + BIN_S / 2 for t in at]
    figure, (top, middle_axes, low) = canvas.canvas(3, height=6.0, ratios=[2, 1, 1])
    highest = max(
        [each["sent_bps"] for each in bins]
        + [each["capacity_bps"]["rate"] * 1.1 for each in bins if each["capacity_bps"]]
        + [rate for _, rate in call["seen"]["estimates"]]
    )
    scale, unit = canvas.scale_of(highest)
    for t, each in zip(at, bins, strict=True):
        band = each["capacity_bps"]
        if band is None:
            floor = max(each["at_least_bps"] or 0.0, each["arrived_bps"])
            span = (floor / scale, highest / scale)
            top.fill_between([t, t + BIN_S], *span, color=style.GRID, linewidth=0)
        else:
            span = (band["low"] / scale, band["high"] / scale)
            top.fill_between([t, t + BIN_S], *span, color=style.SPARE[2], alpha=0.35, linewidth=0)
    capacity = [each["capacity_bps"]["rate"] / scale if each["capacity_bps"] else math.nan for each in bins]
    sent = [each["sent_bps"] / scale for each in bins]
    top.plot(middles, capacity, color=style.SPARE[2])
    top.plot(middles, sent, color=style.SPARE[0])
    labels = [canvas.Label(sent[-1], "sent", style.SPARE[0])]
    if shown := [rate for rate in capacity if not math.isnan(rate)]:
        labels.append(canvas.Label(shown[-1], "capacity", style.SPARE[2]))
    if estimates := call["seen"]["estimates"]:
        times, values = [t for t, _ in estimates], [rate / scale for _, rate in estimates]
        top.step(
            [*times, at[-1] + BIN_S], [*values, values[-1]], where="post", color=style.SPARE[1], linewidth=1.0
        )
        labels.append(canvas.Label(values[-1], "estimate", style.SPARE[1]))
    top.set_title(f"rates ({unit})")
    canvas.from_zero(top, highest * 1.05 / scale)
    delays = [math.nan if each["delay_ms"] is None else each["delay_ms"] for each in bins]
    longest = [math.nan if each["delay_max_ms"] is None else each["delay_max_ms"] for each in bins]
    middle_axes.plot(middles, longest, color=style.GRID)
    middle_axes.plot(middles, delays, color=style.INK)
    middle_axes.set_title("delay above an empty queue's (ms): mean, and the longest in grey")
    canvas.from_zero(middle_axes, max((d for d in longest if not math.isnan(d)), default=0.0) * 1.05)
    lost = [100 * each["lost"] / each["packets"] if each["packets"] else 0.0 for each in bins]
    low.bar(middles, lost, width=BIN_S, color=style.FATE["lost"])
    low.set_title("lost (%)")
    canvas.from_zero(low, max(lost) * 1.05)
    low.set_xlabel("time (s)", loc="right")
    low.set_xlim(0, len(bins) * BIN_S)
    canvas.label_ends(top, labels)
    return figure
