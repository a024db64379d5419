"""Analyses a recorded call. Measures its quality and the network path, or explains why the path is unknown."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast import call_diagnosis, dumps, openloop, replay, style
from steadycast.controllers import find, registry
from steadycast.core import core
from steadycast.errors import UserError, reason
from steadycast.files import contents, folder, write_text
from steadycast.folder import Json, write_json
from steadycast.live.session import read_key
from steadycast.record import middle
from steadycast.report import canvas, say
from steadycast.report.markup import Html, element, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BIN_S = 0.5
"""Length of a time bin, in seconds."""
WORST_S = 10.0
START_BPS = 300e3
"""The assumed start rate of the recorded controller, in bit/s. Browsers and Steadycast's `gcc` start at it."""
_AROUND = 12
"""A frame's size is compared with the mean of this many frames before and after it."""
_APART = 1.5
"""The encoder is assumed to follow its target rate if the two rates differ by at most this factor."""
_SEEN = ["source", "notes", "packets", "reports", "begins", "round_trip_ms", "estimates", "delay_p95_ms"]
"""Keys of the core's result that describe the whole call."""
_MOST_BYTES = 1 << 30
"""Largest size of a decompressed file, in bytes."""
_MOST_OF_CALL = 0.9
"""The report gives the largest video stream's time interval if it is shorter than this fraction of the call."""
_NEAR_ROUTE_CHANGE_S = 10.0
"""The delay of an empty queue changes at most this long after the capacity, in seconds. A queue drains before."""
_MOST_NAMED = 3
"""The report gives the causes for at most this number of other directions and connections of a dump."""
_LOST_MS = 1000.0
"""In the search for the worst ten seconds, a lost packet counts like a packet with this delay, in ms."""


def read(
    file: Path | str,
    stream: int | None = None,
    side: str | None = None,
    other: Path | None = None,
    controllers: Sequence[str] = replay.CONTROLLERS,
    beside: str | None = None,
    key_file: Path | None = None,
    send_time_id: int | None = None,
) -> Json:
    """Read a recorded call: an event log of libwebrtc, a capture, a dump of statistics, or a run folder.

    Args:
        file: the path of the file or of the run folder. In a run folder, the capture is read if there is one, and the
            tables otherwise.
        stream: the SSRC of a stream of the call, if a capture contains several calls.
        side: ``sender`` or ``receiver``. For a log or dump, this is the direction to read. The default is the direction
            with more data. For a capture, this is the host on which it was made. The default is the host that fits the
            file best.
        other: the receiver's log or capture of the same call. Then ``file`` must come from the sender.
        controllers: the names of controllers. Their decisions on the recorded reports are computed.
        beside: the competing flows in the queue, if there are any, in the form that `replay.others` parses.
        key_file: the key with which `steadycast send` encrypted a captured session.
        send_time_id: the id of the header extension abs-send-time. A session description gives it as a=extmap.

    Returns:
        An object that has these keys. ``seen`` has rates in bit/s, delays in ms above the delay with an empty queue,
        and fractions from 0 to 1. ``path`` describes the network path: the known properties, the verdict on the traffic
        in the queue, and ``refusals``, the reasons why other properties are unknown. ``bins`` has an entry for each
        interval of ``bin_s``. ``file`` is the file's name.

    Raises:
        UserError: the file can't be read or has no arrival times, or ``beside`` is no known kind of traffic.

    """
    file = Path(file)
    if side not in (None, "sender", "receiver"):
        raise UserError("--side", f'"{side}" is not one of its values', "choose from: sender, receiver")
    names = [find(name).name for name in dict.fromkeys([*controllers, replay.RECORDED])]
    asked: Json = {
        "stream": stream,
        "send_time_id": send_time_id,
        "beside": bool(replay.others(beside)),
        "key": read_key(key_file),
    }

    # These options apply only to packets.
    given = {"--stream": stream, "--beside": beside, "--key-file": key_file, "--send-time-id": send_time_id}
    unused = [name for name, value in given.items() if value is not None]
    try:
        if file.is_dir():
            capture = dumps.capture_of(file)
            if capture is None:
                return _averaged(dumps.of_run(file), unused)
            captured = read(capture, stream, side, other, controllers, beside, key_file, send_time_id)
            return captured | {"file": file.resolve().name}
        data = contents(file, _MOST_BYTES)
        if other is None and dumps.is_dump(data):
            return _averaged(dumps.read(file, data, side), unused)
        place = str(file) if other is None else f"{file} and {other}"
        asked["other"] = None if other is None else contents(other, _MOST_BYTES)
        if other is not None and (
            averages := [each for each in (data, asked["other"]) if dumps.is_dump(each)]
        ):
            which = str(file if averages[0] is data else other)
            remedy = "give logs or captures of both ends, or a dump without --other-end"
            raise UserError(which, "it is a dump, whose averages can't be joined with another file", remedy)
        # If there is `other`, `file` is the sender's. Otherwise, the core decides unless the caller gave a side.
        asked["sender"] = None if side is None or other is not None else side == "sender"
        return _packets(file, json.loads(core.call(place, data, names, asked)), beside)
    except OSError as error:
        place = str(error.filename or file)
        raise UserError(place, reason(error), "name an event log, a capture or a dump") from error


def _packets(file: Path, raw: Json, beside: str | None) -> Json:
    bins = raw.pop("bins")
    seen = {key: raw.pop(key) for key in _SEEN}
    opened = raw.pop("open")
    seen |= _seen(bins, BIN_S)
    asked = Asked.of(seen, opened, replay.sustained(bins))
    seen["frames"] = _frames(raw.pop("frames"), asked, raw.pop("frame_gaps"))
    is_shared = raw["verdict"] == "shared"
    if beside and not is_shared:
        seen["notes"].append("no other traffic was detected in the call's queue, so --beside was ignored")
    shared_s = BIN_S * sum(each["shared"] is not None for each in bins)
    path = raw | _capacity(bins) | {"shared_s": shared_s, "beside": beside if is_shared else None}
    return {"file": file.name, "bin_s": BIN_S, "seen": seen, "path": path, "bins": bins, "open": opened}


def _averaged(found: Json, unused: list[str]) -> Json:
    """Complete the analysis of a file that contains only averages. The network path remains unknown.

    ``unused`` has the names of the given options that apply only to packets.
    """
    if unused:
        options = say.listed(unused)
        verb = "was" if len(unused) == 1 else "were"
        found["seen"]["notes"].append(f"a file of averages has no packets, so {options} {verb} ignored")
    others = [_completed(each) for each in found.pop("others", [])]
    called = _completed(found)
    # Add the causes for other directions and connections as notes, so that the reader sees that the cause applies to
    # one direction of one connection.
    for other in others[:_MOST_NAMED]:
        is_here = other["seen"]["side"] == called["seen"]["side"]
        how = "" if is_here else f" (--side {other['seen']['side']})"
        what = "another connection" if is_here else f"the {other['seen']['side']}'s direction"
        called["seen"]["notes"].append(
            f"the dump also has {what}{how} of {say.rate(other['seen']['sent_bps'])}. "
            f"{call_diagnosis.sentence(other).removesuffix('.')}"
        )
    if len(others) > _MOST_NAMED:
        called["seen"]["notes"].append(
            f"the dump has {len(others) - _MOST_NAMED} more directions or connections"
        )
    return called


def _completed(found: Json) -> Json:
    packets = sum(each["packets"] for each in found["bins"])
    nothing = {"round_trip_ms": None, "delay_p95_ms": None, "frames": None, "packets": packets, "audio": None}
    path = {"verdict": None, "shared": None, "known_frac": 0.0, "capacity_bps": None}
    seen = nothing | found["seen"] | _seen(found["bins"], found["bin_s"])
    return found | {"seen": seen, "path": path | found["path"]}


def _seen(bins: list[Json], bin_s: float) -> Json:
    # A bin is active if it has packets. If the numbers of packets are unknown, it is active if it has sent bytes.
    active = [each for each in bins if each["packets"]] or [each for each in bins if each["sent_bps"]]
    delays = [
        (each["delay_ms"], each["packets"] - (each["lost"] or 0))
        for each in active
        if each["delay_ms"] is not None
    ]
    weight = sum(n for _, n in delays)
    return {
        "length_s": len(bins) * bin_s,
        "sent_bps": middle(each["sent_bps"] for each in active),
        "sent_max_bps": max((each["sent_bps"] for each in active), default=None),
        "arrived_bps": middle(each["arrived_bps"] for each in active),
        "lost_frac": call_diagnosis.lost_share(bins),
        "delay_mean_ms": sum(delay * n for delay, n in delays) / weight if weight else None,
        "delay_max_ms": max(
            (each["delay_max_ms"] for each in active if each["delay_max_ms"] is not None), default=None
        ),
        "worst": _worst(bins, bin_s),
    }


def _worst(bins: list[Json], bin_s: float) -> Json | None:
    """Find the ten seconds with the longest delays. Lost packets and frozen pictures count as a delay of 1 s."""
    n = round(WORST_S / bin_s)
    if len(bins) <= n:
        return None

    def bad(each: Json) -> float:
        lost = (each["lost"] or 0) / each["packets"] if each["packets"] else 0.0
        return float((each["delay_ms"] or 0.0) + _LOST_MS * (lost + each.get("frozen_s", 0.0) / bin_s))

    marks = [bad(each) for each in bins]
    first = max(range(len(bins) - n + 1), key=lambda i: sum(marks[i : i + n]))
    part = [each for each in bins[first : first + n] if each["packets"]]
    return {
        "from_s": first * bin_s,
        "to_s": first * bin_s + WORST_S,
        "sent_bps": middle(each["sent_bps"] for each in part),
        "delay_mean_ms": middle(each["delay_ms"] for each in part if each["delay_ms"] is not None),
        "lost_frac": call_diagnosis.lost_share(part),
    }


@dataclass(frozen=True)
class Asked:
    """An encoder's target rate over time."""

    rates: Sequence[tuple[float, float]]
    """Target rates in bit/s, each with the time in seconds from which it applies."""
    most_bps: float = math.inf
    """The highest rate that the encoder can sustain, in bit/s."""
    begun_s: float = 0.0
    """When the first report arrived, in seconds. Until then, the encoder uses the start rate."""
    apart: float = math.inf
    """The largest plausible ratio of the target rate to the output rate."""

    @classmethod
    def of(cls, seen: Json, opened: Json, most_bps: float) -> Asked:
        """Return the targets in the log. Without logged targets, return the targets of the assumed controller.

        For logged targets, `apart` has no limit, because an encoder may produce much less than a logged target.
        """
        begun = (seen["round_trip_ms"] or 0.0) / 1000 if seen["begins"] else 0.0
        if logged := seen["estimates"]:
            return cls(logged, most_bps, begun)
        return cls([(at, rate) for at, rate, _ in opened[replay.RECORDED]], most_bps, begun, _APART)

    def at(self, time: float) -> float | None:
        """Return the target rate at a time, in bit/s. Return `None` before the first target."""
        k = bisect_right(self.rates, time, key=lambda one: one[0])
        return self.rates[k - 1][1] if k else None


def _frames(
    frames: list[list[float | None]], asked: Asked, missing: Sequence[tuple[int, int, int]] = ()
) -> Json | None:
    """Count all frames, the frames that are complete without retransmission, and the gaps between arrivals.

    Args:
        frames: for each frame, the sending and arrival time in s, the size in bytes, and the RTP time stamp in ticks.
        asked: the encoder's target rate.
        missing: for each frame before which packets are missing in the recording, the frame's index, the number of
            these packets, and how many of them were lost.

    """
    came = sorted(at for _, at, _, _ in frames if at is not None)
    if len(came) < 2:
        return None
    gaps = [b - a for a, b in pairwise(came)]
    usual = middle(gaps) or 0.0
    # This is the threshold of `freezeCount` in WebRTC statistics.
    least = max(3 * usual, usual + 0.15)
    pauses = [gap for gap in gaps if gap > least]
    left, ticks = ([each[k] or 0.0 for each in frames] for k in (0, 3))
    sizes = [each[2] or 1.0 for each in frames]
    made = [b - a for a, b in pairwise(ticks)]
    longest = 3 * (middle(made) or 0.0)
    steady = [gap for gap in made if 0 < gap <= longest]
    # Measure the ticks per second of the RTP clock, because it need not have 90,000.
    second = (ticks[-1] - ticks[0]) / (left[-1] - left[0]) if left[-1] > left[0] else 0.0
    per_s = len(steady) * second / sum(steady) if sum(steady) > 0 else None
    early = sum(at < left[0] + asked.begun_s for at in left) if per_s else 0
    rates: list[float | None] = [START_BPS] * early
    rates += [asked.at(left[0] + (tick - ticks[0]) / (second or 1.0)) for tick in ticks[early:]]
    # Frames whose packets are all missing show only in the RTP time stamps. The sender sent at most one such frame for
    # each missing packet.
    step = middle(gap for gap in made if gap > 0) or math.inf
    absent = [max(round(gap / step) - 1, 0) for gap in made]
    unsent = [1.0] * len(made)
    lost = 0
    for place, packets, lost_packets in missing:
        if absent[place - 1]:
            unsent[place - 1] = max(1 - packets / absent[place - 1], 0.0)
            lost += absent[place - 1] if lost_packets >= absent[place - 1] else 0
    waits = [b - a for a, b in pairwise(left)]
    return {
        "all": len(frames) + lost,
        "whole": len(came),
        "per_s": per_s,
        "sizes": _relative(sizes, rates, early, per_s or 1.0, asked),
        "from_s": min(left),
        "to_s": max(left),
        "pause_s": least,
        "pauses": len(pauses),
        "paused_s": sum(pauses),
        "unsent_s": sum(wait * part for wait, part in zip(waits, unsent, strict=True) if wait > least),
    }


def _relative(
    sizes: list[float], rates: list[float | None], early: int, per_s: float, asked: Asked
) -> list[float]:
    """Return each frame's size relative to its target size.

    The target size is clamped between ``1 / _APART`` and ``asked.apart`` times the mean size of the surrounding frames.
    The first ``early`` frames are not clamped, because bandwidth probes distort their mean.
    """
    shares = []
    for k, (size, rate) in enumerate(zip(sizes, rates, strict=True)):
        near = sizes[max(k - _AROUND, early) : k + _AROUND + 1]
        mean = sum(near) / len(near) if near else size
        due = mean if rate is None else rate / 8 / per_s
        if k >= early:
            due = min(due, max(asked.most_bps / 8 / per_s, mean), mean * asked.apart)
            due = max(due, mean / _APART)
        shares.append(size / due)
    return [round(share, 3) for share in shares]


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
    """Describe a call: its problems and their cause, what other controllers would have done, and the path."""
    seen = call["seen"]
    said = [call_diagnosis.sentence(call), *([replay.answer(call)] if "replay" in call else [])]
    packets = "an unknown number of" if seen["packets"] is None else say.count(seen["packets"])
    said += [
        f"{call['file']}: {seen['source']}, {say.seconds(seen['length_s'])}, {packets} packets, "
        f"{say.count(seen['reports'])} reports.",
    ]
    said += dumps.sentences(seen) if "limited" in seen else [_packets_said(call)]
    if estimates := seen["estimates"]:
        said.append(
            f"The sender's bandwidth estimate was between {say.rate(min(rate for _, rate in estimates))} and "
            f"{say.rate(max(rate for _, rate in estimates))}."
        )
    if frames := seen["frames"]:
        said.append(
            f"{_pictures_of(frames, seen)}: {say.count(frames['whole'])} of {say.count(frames['all'])} were complete "
            "without "
            f"retransmissions. Between these there were {say.count(frames['pauses'])} pauses of more than "
            f"{say.seconds(frames['pause_s'])}, {say.seconds(frames['paused_s'])} in total. Whether "
            "retransmissions completed the others is unknown."
        )
    return said + _path_said(call) + [f"Note: {note}." for note in seen["notes"]]


def _pictures_of(frames: Json, seen: Json) -> str:
    """Return "Pictures", with a time interval if the largest video stream lasts for only a part of the call.

    A call has several video streams if the SSRC changed, or if a server forwards several senders. Only the largest
    stream is examined.
    """
    if frames["to_s"] - frames["from_s"] >= _MOST_OF_CALL * seen["length_s"]:
        return "Pictures"
    return f"Pictures of the largest video stream ({say.seconds(frames['from_s'])} to {say.seconds(frames['to_s'])})"


def _packets_said(call: Json) -> str:
    seen = call["seen"]
    at_least = "" if seen["delay_mean_ms"] is None else call_diagnosis.at_least(call["path"])
    return (
        f"Measured: {say.rate(seen['sent_bps'])} sent as a median ({say.rate(seen['sent_max_bps'])} at most), "
        f"{say.frac(seen['lost_frac'])} of the packets lost, and a queueing delay of {at_least}"
        f"{say.ms(seen['delay_mean_ms'])} on average and {say.ms(seen['delay_max_ms'])} at most."
    )


def _path_said(call: Json) -> list[str]:
    path = call["path"]
    if path["refusals"]:
        said = [f"The path of the call can't be determined: {why}." for why in path["refusals"]]
        if shared := path["shared"]:
            said.append(
                f"Where packets of the call followed each other directly, the capacity was about "
                f"{say.rate(shared['capacity_bps'])}, of which the call had {say.rate(shared['own_bps'])}."
            )
        return said
    capacity, queue = path["capacity_bps"], path["queue"]
    jitter = ", with jitter after the queue" if path["verdict"] == "jittered" else ""
    held = f"{say.count(queue['bytes'])} bytes"
    others = (
        f"with {path['beside']} in the same queue (--beside)"
        if path.get("beside")
        else "no other traffic in the queue"
    )
    if path.get("shared_s"):
        others = (
            f"in {say.seconds(path['shared_s'])} of the call other traffic was in the queue, or the link changed all "
            "the time, and the capacity is unknown"
        )
    said = [
        f"Path: a capacity of {say.rate(capacity['median'])} (median), between {say.rate(capacity['min'])} and "
        f"{say.rate(capacity['max'])}, to about ±{say.frac(path['band_frac'])}, known in "
        f"{say.frac(path['known_frac'])} of the half seconds; {others}{jitter}.",
        f"The queue is assumed to hold {held}, its largest length, because a TCP fills it."
        if path.get("beside")
        else f"The queue holds {held}: losses show that it was full."
        if queue["full"]
        else f"The queue holds at least {held}; no loss shows that it was full, so its size is unknown.",
    ]
    if path["chance_loss_frac"] > 0:
        said.append(
            f"{say.frac(path['chance_loss_frac'])} of the packets were lost while the queue was not full, "
            f"{say.plain(path['loss_run_packets'])} in a row on average."
        )
    if not queue["full"] and (unexplained := _unexplained(call["bins"])):
        said.append(
            f"{say.frac(unexplained)} of the packets were lost at the longest queue, and nothing shows that it was "
            "full: the replay's paths do not have these losses."
        )
    if path["route_changes_s"]:
        times = say.listed([say.seconds(at) for at in path["route_changes_s"]])
        is_slower = any(_may_have_changed(call, at) for at in path["route_changes_s"])
        rate = ", or the link's rate, with which each packet takes another time to send" if is_slower else ""
        said.append(
            f"The delay without queueing changed at about {times}: the route changed, or a clock was set{rate}."
        )
    return said


def _unexplained(bins: Sequence[Json]) -> float:
    """Return the fraction of packets whose loss is neither random nor explained by a queue that is known to be full."""
    counted = [each for each in bins if each["lost"] is not None]
    packets = sum(each["packets"] for each in counted)
    lost = (call_diagnosis.losses(counted) or 0) - call_diagnosis.lost_by_chance(counted)
    return lost / packets if packets else 0.0


def _may_have_changed(call: Json, at_s: float) -> bool:
    """Whether the capacity may have changed near a time, because it is unknown before or after, or differs."""
    place, near = round(at_s / call["bin_s"]), round(_NEAR_ROUTE_CHANGE_S / call["bin_s"])
    bins = call["bins"]
    before, after = bins[max(place - near, 0) : place], bins[place : place + near]
    rates: list[list[float]] = [
        [each["capacity_bps"]["rate"] for each in part if each["capacity_bps"]] for part in (before, after)
    ]
    # A rate that is mostly unknown may have been another one.
    if any(2 * len(known) <= len(part) for known, part in zip(rates, (before, after), strict=True)):
        return True
    return min(map(min, rates)) < call_diagnosis.FELL * max(map(max, rates))


# ---------------------------------------------------------------- as a folder


def write(call: Json, place: Path) -> Path:
    """Write report.html, path.json, the replayed paths, and, if the call's path is known, path.toml.

    Returns: the path of report.html.
    """
    from steadycast.loading import load
    from steadycast.toml import document

    folder(place)
    write_json(place / "path.json", call)
    text = None
    if call["path"]["refusals"]:
        # Remove the file, because it may be left from an earlier analysis.
        (place / "path.toml").unlink(missing_ok=True)
    else:
        text = "# The path of a call, measured by its packets. An unknown value is the middle of its possible range.\n"
        text += document(replay.scenario(call, replay.middle_path(call), replay.FRAMES))
        write_text(place / replay.FRAMES, replay.frames_csv(call))
        load(str(place / "path.toml"), text=text)
        write_text(place / "path.toml", text)
    if "paths" in (found := call.get("replay", {})):
        folder(place / "paths")
        for k, path in enumerate(replay.drawn(call, found["paths"], found["seed"]), 1):
            made = replay.scenario(call, path, f"../{replay.FRAMES}")
            write_text(place / "paths" / f"{k:02}.toml", document(made))
    report = place / "report.html"
    write_text(report, _page(call, place, text))
    return report


def _page(call: Json, place: Path, scenario_text: str | None) -> str:
    from steadycast.report import page

    said = sentences(call)
    parts = [element("h1", f"{call['file']} · a call"), element("p", page.prose(said[0]), class_="answer")]
    parts += [element("p", page.prose(each), class_="more") for each in said[1:]]
    if replay.is_compared(call):
        parts += _replayed(call)
    if "open" in call and openloop.recorded(call)[1]:
        parts += _opened(call)
    drawing = canvas.in_style(lambda: _draw(call), "call")
    caption = "Averages do not show the capacity: in the grey areas it had any value above the sent rate."
    if "limited" not in call["seen"]:
        caption = (
            "Capacity: with its band (5 to 95 %) where packets queued; in the grey areas no packets queued, and it had "
            "any value above the sent rate. Delay: the mean, and in grey the maximum."
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


def _replayed(call: Json) -> list[Html]:
    from steadycast.report import page

    found = call["replay"]
    drawing = canvas.in_style(lambda: _draw_replay(call), "replay")
    caption = (
        f"The median over {found['paths']} paths that fit the record, with a band for 90 % of them. The dark line is "
        "the recorded call. Delays are above the delay without queueing."
    )
    return [
        element("h2", "What other controllers would have done"),
        page.table(*replay.table(call)),
        page.figure(drawing or "", caption, f"steadycast call {call['file']}", "replay"),
        element(
            "p",
            f"The number of paths, of {found['paths']}, on which a score is better; equal scores count by half:",
        ),
        page.table(*replay.matrix(call)),
        element("p", replay.LOOPS),
    ]


def _opened(call: Json) -> list[Html]:
    from steadycast.report import page

    drawing = canvas.in_style(lambda: openloop.draw(call), "open")
    caption = (
        "The target rate that each controller would have set on the recorded reports. The recorded packets do not "
        "follow these rates. The figure therefore shows how each controller reacts to the same reports, and not which "
        "one is better."
    )
    return [
        element("h2", "What each would have decided on the same reports"),
        page.figure(drawing or "", caption, f"steadycast call {call['file']}", "open"),
        page.table(*openloop.table(call)),
    ]


def _draw_replay(call: Json) -> Figure:
    from matplotlib.figure import Figure

    found, names = call["replay"], list(call["replay"]["controllers"])
    colours = {each.name: each.colour for each in registry()}
    figure = Figure(figsize=(canvas.WIDTH, 0.9 + 0.26 * len(names)))
    figure.subplots_adjust(left=0.12, right=0.98, bottom=0.2, top=0.86, wspace=0.12)
    for axes, (key, (head, *_)) in zip(
        figure.subplots(1, 4, sharey=True), replay.FIGURES.items(), strict=True
    ):
        spreads = [found["controllers"][name][key] for name in names]
        was = found["recorded"][key]
        scale, unit = _unit(key, max([spread["p95"] for spread in spreads] + [was or 0.0]))
        for k, (name, spread) in enumerate(zip(names, spreads, strict=True)):
            axes.plot(
                [spread["p05"] / scale, spread["p95"] / scale], [k, k], color=colours[name], linewidth=3
            )
            axes.plot([spread["p50"] / scale], [k], "o", color=colours[name], markersize=5)
        if was is not None:
            axes.axvline(was / scale, color=style.INK, linewidth=1.0)
        axes.set_title(f"{head} ({unit})" if unit else head)
        axes.set_yticks(range(len(names)), names)
        axes.locator_params(axis="x", nbins=3)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=1.0 if key == "score" else 0.0)
        if key == "frozen_frac":
            axes.set_xlim(right=max(axes.get_xlim()[1], 1.0))
    return figure


def _unit(key: str, top: float) -> tuple[float, str]:
    return {"rate_bps": canvas.scale_of(top), "frozen_frac": (0.01, "%"), "delay_p95_ms": (1.0, "ms")}.get(
        key, (1.0, "")
    )


def _draw(call: Json) -> Figure:
    bins: Sequence[Json] = call["bins"]
    bin_s = call["bin_s"]
    at = [i * bin_s for i in range(len(bins))]
    middles = [t + bin_s / 2 for t in at]
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
            top.fill_between([t, t + bin_s], *span, color=style.GRID, linewidth=0)
        else:
            span = (band["low"] / scale, band["high"] / scale)
            top.fill_between([t, t + bin_s], *span, color=style.SPARE[2], alpha=0.35, linewidth=0)
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
            [*times, at[-1] + bin_s], [*values, values[-1]], where="post", color=style.SPARE[1], linewidth=1.0
        )
        labels.append(canvas.Label(values[-1], "estimate", style.SPARE[1]))
    top.set_title(f"rates ({unit})")
    canvas.from_zero(top, highest * 1.05 / scale)
    delays = [math.nan if each["delay_ms"] is None else each["delay_ms"] for each in bins]
    longest = [math.nan if each["delay_max_ms"] is None else each["delay_max_ms"] for each in bins]
    middle_axes.plot(middles, longest, color=style.GRID)
    middle_axes.plot(middles, delays, color=style.INK)
    what = call["seen"].get("delay_is", "delay above an empty queue's")
    middle_axes.set_title(f"{what} (ms)")
    known = [delay for delay in (*longest, *delays) if not math.isnan(delay)]
    canvas.from_zero(middle_axes, max(known, default=0.0) * 1.05)
    lost = [100 * (each["lost"] or 0) / each["packets"] if each["packets"] else 0.0 for each in bins]
    low.bar(middles, lost, width=bin_s, color=style.FATE["lost"])
    low.set_title("lost (%)" if call_diagnosis.losses(bins) is not None else "lost: unknown")
    canvas.from_zero(low, max(lost) * 1.05)
    low.set_xlabel("time (s)", loc="right")
    low.set_xlim(0, len(bins) * bin_s)
    canvas.label_ends(top, labels)
    return figure
