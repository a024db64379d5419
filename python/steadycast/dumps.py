"""Reads the averages of a call from a dump of chrome://webrtc-internals, a series of getStats, or a run's tables."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from steadycast.errors import UserError
from steadycast.folder import Folder, Json
from steadycast.record import middle
from steadycast.report import say

BIN_S = 1.0
_MOST_BYTES = 1 << 28
_MOST_S = 86_400.0
"""The longest call that is accepted, in seconds."""
_AVERAGES = (
    "one value a second does not say which packets waited for each other (an event log does: "
    "chrome://webrtc-internals, Enable diagnostic packet and event recording)"
)
_TABLES = (
    "a run's tables have one value a second; with record = { pcap = [LINK] } its packets are kept and read"
)
_REMEDY = (
    "give an event log, a capture (.pcap, .pcapng), a dump of chrome://webrtc-internals (Create a WebRTC-Internals "
    "dump) or a series of getStats"
)
_NO_LOSSES = {
    "sender": "no packetsLost of a remote-inbound-rtp is in it: losses are unknown",
    "receiver": "no packetsLost of an inbound-rtp is in it: losses are unknown",
}
_WAYS = {"sender": ("outbound-rtp", "bytesSent"), "receiver": ("inbound-rtp", "bytesReceived")}
"""For each side, the type of its streams and the name of their byte counter."""
_PACKETS = {"sender": "packetsSent", "receiver": "packetsReceived"}
_PREFIXES = {
    "RTCOutboundRTP": "outbound-rtp",
    "RTCInboundRTP": "inbound-rtp",
    "RTCRemoteInboundRtp": "remote-inbound-rtp",
    "RTCRemoteOutboundRtp": "remote-outbound-rtp",
    "RTCIceCandidatePair": "candidate-pair",
    "RTCTransport": "transport",
}
"""Types of statistics by the beginning of their ids. Older browsers do not write the type as `statsType`."""
_RTP = {"outbound-rtp", "inbound-rtp", "remote-inbound-rtp", "remote-outbound-rtp"}
_LEAST_GAP_S = 10.0
"""Minimum length in seconds of a gap without reports that is noted."""
_GAP_INTERVALS = 5
"""Minimum length of a gap that is noted, as a multiple of the usual interval between reports."""
_LEAST_PAUSE_S = 5.0
"""Minimum length in seconds of a time without packets that is noted."""
_MOST_COUNT = 2.0**64
"""Numbers from this size on are ignored, because WebRTC's counters have at most 64 bits."""
_REPORT_S = 5.0
"""How long a receiver's report remains valid, in seconds: RTCP's minimum interval (RFC 3550, section 6.2)."""
_LEAST_OTHER = 0.05
"""A direction is not mentioned if it has less than this fraction of the bytes of the main direction."""
_USED = 0.5
"""If an encoder uses less than this fraction of the bandwidth estimate, the network does not limit it."""
_APART_S = 0.05
"""Minimum time between two reports of one connection, in seconds. Closer reports belong to different connections."""
_WORST_S = 10.0
"""The length of the window in which the losses of audio, or of one stream, are averaged, in seconds."""
_MIN_PACKETS = 200
"""Windows with fewer packets of a stream are ignored, because a single loss would be a high loss rate.

Such windows occur in silence, because a sender need not send silence, and if a video is paused.
"""
_HEADER_LINES = 5
"""A log of rtcstats has an event in this number of lines."""
_MOST_DEPTH = 8
"""The deepest nesting of objects in which statistics are found."""
_UNSHOWN: Json = {
    "delay_max_ms": None,
    "capacity_bps": None,
    "at_least_bps": None,
    "frozen_s": 0.0,
    "limited": None,
}
"""Default values for some keys of a bin. A source that contains only averages has no values for most of these keys."""

Points = list[tuple[float, Any]]
"""Pairs of a time in seconds and a value."""


@dataclass
class Stats:
    """The statistics of one call as series over time."""

    kinds: dict[str, str] = field(default_factory=dict)
    """The type of the statistics with each id: outbound-rtp, inbound-rtp, and so on."""
    series: dict[tuple[str, str], Points] = field(default_factory=dict)
    """The series of each id and metric."""
    untimed: int = 0
    """Number of values whose time is missing or unreadable."""

    def of(self, kind: str, metric: str, only: Iterable[str] | None = None) -> list[Points]:
        """Return a metric's series for the ids of a type. With ``only``, other ids are left out."""
        ids = [each for each, of in self.kinds.items() if of == kind and (only is None or each in only)]
        return [self.series[each, metric] for each in ids if (each, metric) in self.series]

    def of_id(self, owner: str) -> list[Points]:
        """Return all series of an id."""
        return [points for (each, _), points in self.series.items() if each == owner]

    def media(self, kind: str, media: str) -> list[str]:
        """Return the ids of a type's streams that carry ``media``, which is "audio" or "video"."""

        def of(each: str) -> object:
            points = self.series.get((each, "kind")) or self.series.get((each, "mediaType")) or [(0.0, "")]
            return points[0][1]

        return [each for each, of_kind in self.kinds.items() if of_kind == kind and of(each) == media]

    def video(self, kind: str) -> list[str]:
        """Return the ids of a type's video streams. Return the ids of all its streams if none is video."""
        return self.media(kind, "video") or [each for each, of in self.kinds.items() if of == kind]

    def on_pair_in_use(self, metric: str, streams: Iterable[str]) -> Points:
        """Return a metric of the candidate pair that carried ``streams`` at each time.

        Other pairs are ignored, because they may have a longer round trip. The pair in use changes at an ICE restart.

        The pair in use is the one that the transport selects. If the transport selects none, it is a pair that is
        marked as selected (Firefox) or nominated. If several pairs are marked, the one that carried most is used.
        """
        transports = {
            str(value) for each in streams for _, value in self.series.get((each, "transportId"), [])
        }
        named = sorted(
            (at, str(value))
            for owner, kind in self.kinds.items()
            if kind == "transport" and (not transports or owner in transports)
            for at, value in self.series.get((owner, "selectedCandidatePairId"), [])
            if value
        )
        pairs = [each for each, kind in self.kinds.items() if kind == "candidate-pair"]
        marks: dict[str, list[tuple[float, bool]]] = {}
        for mark in ("selected", "nominated"):
            if any((each, mark) in self.series for each in pairs):
                marks = {
                    each: sorted((at, value is True) for at, value in self.series.get((each, mark), []))
                    for each in pairs
                }
                break

        def is_in_use(pair: str, at: float) -> bool:
            if named:
                return bool(_held(named, at) == pair)
            return not marks or bool(_held(marks[pair], at))

        def carried(pair: str) -> float:
            counters = (
                _numbers(self.series.get((pair, name), [])) for name in ("bytesSent", "bytesReceived")
            )
            return sum(_rising(points)[-1][1] for points in counters if points)

        found: dict[float, Any] = {}
        for pair in sorted(pairs, key=carried):
            found |= {at: value for at, value in self.series.get((pair, metric), []) if is_in_use(pair, at)}
        return sorted(found.items(), key=lambda one: one[0])

    def reports_on(self, streams: Iterable[str]) -> list[str]:
        """Return the ids of a receiver's reports on streams, found by localId or SSRC, or else by the kind of media."""
        reports = [each for each, of in self.kinds.items() if of == "remote-inbound-rtp"]

        def said(owners: Iterable[str], *metrics: str) -> set[str]:
            series = [self.series.get((owner, metric), []) for owner in owners for metric in metrics]
            return {str(value) for points in series for _, value in points if value is not None}

        local = set(streams)
        if not said(reports, "localId", "ssrc"):
            media = said(local, "kind", "mediaType")
            of = {each: said([each], "kind", "mediaType") for each in reports}
            return [each for each in reports if not media or not of[each] or of[each] & media]
        sources = said(local, "ssrc")
        return [each for each in reports if said([each], "localId") & local or said([each], "ssrc") & sources]


class _SeriesError(Exception):
    """A series of a dump of chrome://webrtc-internals can't be read."""


def is_dump(data: bytes) -> bool:
    """Whether the bytes begin like JSON."""
    head = data[:64].decode(json.detect_encoding(data), errors="replace")
    return head.lstrip("\ufeff \t\r\n").startswith(("{", "["))


def read(file: Path, data: bytes, side: str | None = None) -> Json:
    """Read a dump into the form of `call.read`, with bins of 1 s.

    Args:
        file: the name of the dump, for errors.
        data: the content of the dump, which is JSON.
        side: ``sender`` or ``receiver``. By default, it is the direction with more bytes.

    Returns:
        The analysis of the direction that has most bytes. Its key ``others`` contains the other directions.

    Raises:
        UserError: the dump can't be read, or has no statistics of a call.

    """
    if len(data) > _MOST_BYTES:
        raise UserError(str(file), "it has more than 256 MiB", "cut it into parts")
    dump = _parsed(file, data)
    try:
        calls = _calls(dump)
        both = [(stats, each) for stats in calls for each in ([side] if side else _WAYS)]
        of_both = [(stats, _summary(stats, each)) for stats, each in both if _carried_by(stats, each)]
        found = [(stats, summary) for stats, summary in of_both if summary["bins"]]
    except _SeriesError as error:
        raise UserError(str(file), str(error), _REMEDY) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(
            str(file), f"this dump can't be read ({type(error).__name__}: {str(error)[:100]})", _REMEDY
        ) from error
    if not found:
        other = next(each for each in _WAYS if each != side)
        carried = {way for way in _WAYS if any(_carried_by(stats, way) for stats in calls)}
        if side and carried == {other}:
            what = f"it has no data of the {side}'s direction ({_WAYS[side][0]}), but of the {other}'s"
            raise UserError(str(file), what, f"leave --side out, or give --side {other}")
        raise UserError(str(file), _foreign(dump) or _nothing(calls), _REMEDY)
    summaries = sorted((summary for _, summary in found), key=_carried, reverse=True)
    most, *others = summaries
    if (connections := len({id(stats) for stats, _ in found})) > 1:
        most["seen"]["notes"].append(
            f"the dump has {connections} connections with RTP: this is the one that carried most"
        )
    least = _LEAST_OTHER * _carried(most)
    return {"file": file.name, "others": [each for each in others if _carried(each) >= least]} | most


def _parsed(file: Path, data: bytes) -> Any:
    """Parse a JSON value, or a sequence of JSON values. The last value of a sequence may be truncated."""
    decoder = json.JSONDecoder()
    values: list[Any] = []
    try:
        text = data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
        at = _begin(text, 0)
        while at < len(text):
            try:
                value, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                # Accept an error only in the last value, which may be truncated. Another value follows if a later line
                # begins with the first character of an object or an array.
                is_last = text[at] in "{[" and not any(f"\n{begin}" in text[at + 1 :] for begin in "{[")
                if len(values) < 2 or not is_last:
                    raise
                break
            values.append(value)
            at = _begin(text, at)
    except (ValueError, RecursionError) as error:
        remedy = "remove what is not JSON" if len(values) > 1 else _REMEDY
        raise UserError(str(file), f"it is not whole JSON ({str(error)[:100]})", remedy) from error
    return values[0] if len(values) == 1 else values


def _begin(text: str, at: int) -> int:
    """Return the position of the next JSON value. Skip the record separators that RFC 7464 puts before each value."""
    while at < len(text) and text[at] in " \t\r\n\x1e":
        at += 1
    return at


def _nothing(calls: Sequence[Stats]) -> str:
    """Return the reason why a dump has no statistics of a call."""
    kinds = {kind for stats in calls for kind in stats.kinds.values()}
    # Chrome still writes some goog metrics in today's statistics, for example googTimingFrameInfo in an inbound-rtp.
    is_old = any(
        metric.startswith("goog") and stats.kinds.get(owner) not in _RTP
        for stats in calls
        for owner, metric in stats.series
    )
    if kinds & {"ssrc", "googCandidatePair"} or is_old:
        return "it has the statistics that browsers had before 2023 (goog…), which are not read"
    lengths = [
        _length(points)
        for stats in calls
        for kind, counter in _WAYS.values()
        for points in stats.of(kind, counter)
    ]
    if lengths and not max(lengths):
        return "the statistics of its RTP streams are of one moment, which shows no rate: at least two seconds are read"
    if lengths and not any(2 <= length <= _MOST_S for length in lengths):
        return (
            f"the statistics of its RTP streams cover {say.seconds(max(lengths))} by their times, which count as "
            "milliseconds; two seconds to a day are read"
        )
    if lengths:
        return "its RTP streams carried nothing"
    if any(stats.untimed for stats in calls):
        return "its statistics have no times (timestamp), so that no rate is known"
    if not kinds:
        return "it has no statistics in the form of getStats, each with an id, a type and a timestamp"
    counters = {counter for _, counter in _WAYS.values()}
    foreign = sorted(
        metric
        for stats in calls
        for _, metric in stats.series
        if metric not in counters and metric.replace("_", "").lower() in {each.lower() for each in counters}
    )
    if foreign:
        return (
            f"its counters have other names than those of getStats, for example {foreign[0]}: it is not read"
        )
    if listed := ", ".join(sorted(kinds - {""})[:6]):
        return f"it has no statistics of RTP streams over two seconds or more (it has {listed})"
    return "it has no statistics of RTP streams over two seconds or more"


def _foreign(dump: Any) -> str | None:
    """Return the reason why a known file of another program can't be read. Return `None` for unknown files."""
    first = dump[0] if isinstance(dump, list) and dump else None
    nested = first[0] if isinstance(first, list) and first else first
    if isinstance(nested, dict) and nested.get("type") in _RTP and "id" not in nested:
        return "its statistics have no id, as those of a server (mediasoup) that are not getStats's, and are not read"
    # rtcstats writes events as [name, connection, data, time], after a header in newer versions. Servers write objects
    # that contain the id of a session.
    begin = dump[:_HEADER_LINES] if isinstance(dump, list) else []
    has_event = any(isinstance(each, list) and len(each) > 2 and isinstance(each[0], str) for each in begin)
    if has_event or (isinstance(first, dict) and "statsSessionId" in first):
        return "it is a log of rtcstats, which is not read"
    if isinstance(first, dict) and {"_index", "_source"} <= first.keys():
        return "it is a list of packets by tshark, which is not read"
    return None


def _span(times: Iterable[float]) -> float:
    """Return the time from the first to the last of these times, in seconds."""
    known = list(times)
    return max(known) - min(known) if known else 0.0


def _length(points: Points) -> float:
    return _span(at for at, _ in points)


def _calls(dump: Any) -> list[Stats]:
    if isinstance(dump, dict) and isinstance(dump.get("PeerConnections"), dict):
        return [_old(each) for each in _connections(dump)]
    return _new(dump)


def _carried(summary: Json) -> float:
    return sum(float(each["sent_bps"]) for each in summary["bins"])


def _connections(dump: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each.get("stats") or {} for each in dump["PeerConnections"].values()]


def _time(value: object) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        if math.isfinite(at := _seconds(value)):
            return at
    return None


def _seconds(value: object) -> float:
    """Convert a time from ISO 8601 or milliseconds to seconds."""
    if isinstance(value, str):
        number = _number(value)
        if number is None:
            return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        value = number
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]} is no time")
    # Native programs write microseconds. Milliseconds above 1e14 would be beyond the year 5000.
    return value / (1e6 if value > 1e14 else 1e3)


def _old(stats: Mapping[str, Any]) -> Stats:
    """Read a webrtc-internals dump, which has a series ``ID-METRIC`` for each id and metric."""
    found = Stats()
    values: dict[tuple[str, str], list[Any]] = {}
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for name, each in stats.items():
        owner, _, metric = name.rpartition("-")
        # Skip a series without values. It is an empty object.
        if not each:
            continue
        key = owner, metric
        try:
            points = each["values"]
            values[key] = json.loads(points) if isinstance(points, str) else list(points)
            spans[key] = _seconds(each["startTime"]), _seconds(each["endTime"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what = "is not written as a browser does, with startTime, endTime and values"
            raise _SeriesError(f"its series {name[:100]} {what}") from error
        known_by_id = (kind for prefix, kind in _PREFIXES.items() if owner.startswith(prefix))
        found.kinds[owner] = str(each.get("statsType") or next(known_by_id, ""))
    for (owner, metric), points in values.items():
        times = values.get((owner, "timestamp"), [])
        begin, end = spans[owner, metric]
        # There may be more times than values. Then the values belong to the last times.
        at = (
            [_time(time) for time in times[len(times) - len(points) :]]
            if len(times) >= len(points)
            else [begin + (end - begin) * k / max(len(points) - 1, 1) for k in range(len(points))]
        )
        known = [(time, value) for time, value in zip(at, points, strict=True) if time is not None]
        found.untimed += len(points) - len(known)
        found.series[owner, metric] = known
    return found


def _new(dump: Any) -> list[Stats]:
    """Read a series of reports by getStats. Return one `Stats` for each connection.

    A report is an array of statistics, an object with the ids as keys, or a JavaScript Map as an array of keys and
    values. The outermost object may have a key for each connection, or for each time.

    If an id occurs at the same time under several keys, or twice in a report, each occurrence belongs to a different
    connection.
    """
    dump = _unwrapped(dump)
    found: list[tuple[str, str, dict[str, Any]]] = []
    keyed = isinstance(dump, dict) and not _is_statistic(dump)
    outermost = dump.items() if keyed else [("", dump)]
    latest: dict[tuple[str, str], list[float]] = {}
    listed = [
        (key, report)
        for key, reports in outermost
        for report in (reports if isinstance(reports, list) else [reports])
    ]
    has_parts = any(_has_connections(_parts(report)) for _, report in listed)
    for key, whole in listed:
        for part, report in (_parts(whole) if has_parts else {"": whole}).items():
            statistics = list(_statistics(report, 0))
            numbers = _advancing(str(key), statistics, latest) or _occurrences(statistics)
            for number, statistic in zip(numbers, statistics, strict=True):
                found.append((str(key), f"{part} {number}" if number else part, statistic))
    is_split = _is_split(found)
    calls: dict[str, Stats] = {}
    for key, again, statistic in found:
        stats = calls.setdefault((key if is_split else "") + again, Stats())
        owner = str(statistic["id"])
        stats.kinds[owner] = str(statistic["type"])
        at = _time(statistic.get("timestamp"))
        if at is None:
            stats.untimed += 1
            continue
        for metric, value in statistic.items():
            stats.series.setdefault((owner, metric), []).append((at, value))
    return list(calls.values())


def _parts(report: Any) -> dict[str, Any]:
    """Return the parts of a report that is an object with several arrays or objects of statistics, by their keys."""
    if not isinstance(report, dict) or _is_statistic(report):
        return {"": report}
    parts = {
        str(key): value
        for key, value in report.items()
        if isinstance(value, dict | list) and not _is_statistic(value) and any(_statistics(value, 1))
    }
    return parts or {"": report}


def _has_connections(parts: Mapping[str, Any]) -> bool:
    """Whether the parts of a report belong to different connections: an id occurs in two of them at the same time."""
    times: dict[str, list[float | None]] = {}
    for part in parts.values():
        of_part = {str(each["id"]): _time(each.get("timestamp")) for each in _statistics(part, 1)}
        for owner, at in of_part.items():
            times.setdefault(owner, []).append(at)
    return any(len(each) > 1 and _moments(each) < 2 for each in times.values())


def _occurrences(statistics: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return for each statistic how often its id occurred earlier in the list."""
    seen: Counter[str] = Counter()
    numbers = []
    for statistic in statistics:
        owner = str(statistic["id"])
        numbers.append(seen[owner])
        seen[owner] += 1
    return numbers


def _moments(times: Iterable[float | None]) -> int:
    """Return how many different times there are. Times that differ by at most `_APART_S` count as equal."""
    ordered = sorted(at for at in times if at is not None)
    return bool(ordered) + sum(later - at > _APART_S for at, later in pairwise(ordered))


def _advancing(
    key: str, statistics: Sequence[Mapping[str, Any]], latest: dict[tuple[str, str], list[float]]
) -> list[int] | None:
    """Return the index of the connection to which each statistic belongs, if there are several reports.

    Return `None` for a single report. The times of an id increase within a connection, so an earlier time belongs to
    another connection. ``latest`` contains the last time of each id in each connection.
    """
    times: dict[str, list[float | None]] = {}
    for statistic in statistics:
        times.setdefault(str(statistic["id"]), []).append(_time(statistic.get("timestamp")))
    if all(_moments(each) < 2 for each in times.values()):
        return None
    numbers = []
    for statistic in statistics:
        at = _time(statistic.get("timestamp"))
        ends = latest.setdefault((key, str(statistic["id"])), [])
        number = next((k for k, end in enumerate(ends) if at is None or at - end > _APART_S), len(ends))
        if at is not None:
            ends[number : number + 1] = [at]
        numbers.append(number)
    return numbers


def _is_split(found: Iterable[tuple[str, str, Mapping[str, Any]]]) -> bool:
    """Whether the outermost keys distinguish connections. Otherwise, they are times."""
    times: dict[str, dict[str, list[float | None]]] = {}
    for key, _, statistic in found:
        keys = times.setdefault(str(statistic["id"]), {})
        keys.setdefault(key, []).append(_time(statistic.get("timestamp")))
    shared = [keys for keys in times.values() if len(keys) > 1]
    is_by_time = any(
        _moments(at for each in keys.values() for at in each) == len(keys) for keys in shared
    ) and all(_moments(each) < 2 for keys in shared for each in keys.values())
    return bool(shared) and not is_by_time


def _unwrapped(dump: Any) -> Any:
    """Remove outer objects that only contain another object."""
    while isinstance(dump, dict) and not _is_statistic(dump):
        inner = [value for value in dump.values() if isinstance(value, dict | list)]
        if len(inner) != 1 or not isinstance(inner[0], dict) or _is_statistic(inner[0]):
            break
        dump = inner[0]
    return dump


def _is_statistic(value: Any) -> bool:
    if not isinstance(value, dict) or not {"id", "type"} <= value.keys():
        return False
    return "timestamp" in value or value["type"] in _RTP


def _statistics(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the statistics inside a value, to a depth of `_MOST_DEPTH` objects."""
    if _is_statistic(value):
        yield value
    elif depth < _MOST_DEPTH and isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _statistics(each, depth + 1)


def _number(value: object) -> float | None:
    """Return a value as a number, or `None` if it is not a finite number. Some programs write numbers as text."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST_COUNT:
        return None
    return float(value)


def _numbers(points: Points) -> list[tuple[float, float]]:
    numbers = ((at, _number(value)) for at, value in points)
    return sorted((at, value) for at, value in numbers if value is not None and math.isfinite(at))


def _set_back(counters: list[Points]) -> float:
    """Return how far the clock was set back, in seconds.

    Counters never decrease. If the clock was set back, a counter decreases when it is sorted by time, but not in the
    order of the file.
    """
    if not any(_restarts([points]) for points in counters):
        return 0.0
    back = 0.0
    for points in counters:
        numbers = [number for _, value in points if (number := _number(value)) is not None]
        if any(later < before for before, later in pairwise(numbers)):
            return 0.0
        back = max(back, _onward(points)[-1][0] - points[-1][0])
    return back


def _onward(points: Points) -> Points:
    """Make all times increase. Where the clock was set back, the time continues with the median step."""
    steps = sorted(later - before for (before, _), (later, _) in pairwise(points) if later > before)
    usual = steps[len(steps) // 2] if steps else BIN_S
    found: Points = []
    ahead = 0.0
    for k, (at, value) in enumerate(points):
        if k and at < points[k - 1][0]:
            ahead += points[k - 1][0] - at + usual
        found.append((at + ahead, value))
    return found


def _grown(all_of: list[Points], edges: Sequence[float]) -> list[float]:
    """Return the growth of counters from each edge to the next edge. A counter that decreases counts as reset."""
    return _summed([_rising(_numbers(points)) for points in all_of], edges)


def _rising(counted: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a counter's growth since its first value. After a reset, the growth continues with the new value."""
    rising = [(at, 0.0) for at, _ in counted[:1]]
    for (_, before), (at, value) in pairwise(counted):
        rising.append((at, rising[-1][1] + (value - before if value >= before else value)))
    return rising


def _restarts(all_of: list[Points]) -> list[float]:
    """Return the times at which the counters were reset. A counter was reset if it decreases."""
    return sorted(
        at for points in all_of for (_, before), (at, value) in pairwise(_numbers(points)) if value < before
    )


def _lost(
    all_of: list[Points], restarts: Sequence[float], edges: Sequence[float]
) -> list[float | None] | None:
    """Return the number of losses from each edge to the next edge. It is `None` where it is unknown.

    Return `None` if nothing counts losses.

    ``packetsLost`` decreases when a packet that counted as lost arrives late, or when a packet arrives twice (RFC 3550,
    section 6.4.1 and appendix A.3). The decrease is subtracted from the interval in which the loss was counted.

    If the stream's other counters decrease at the same time, the counters were reset. ``packetsLost`` then counts from
    0.
    """
    grown, begins = [], []
    for points in all_of:
        counted = _numbers(points)
        if not counted:
            continue
        # A first count of 0 shows that nothing was lost before. When the losses of a larger first count occurred is
        # unknown.
        begins.append(counted[0][0] - (_REPORT_S if counted[0][1] <= 0 else 0.0))
        total = [(counted[0][0], 0.0)]
        for (then, before), (at, value) in pairwise(counted):
            anew = value < before and any(then - BIN_S < restart <= at + BIN_S for restart in restarts)
            total.append((at, total[-1][1] + (max(value, 0.0) if anew else value - before)))
        least = math.inf
        kept = []
        # If the counter decreases later, limit the earlier values to the later value.
        for at, value in reversed(total):
            least = min(least, value)
            kept.append((at, max(least, 0.0)))
        grown.append(kept[::-1])
    if not grown:
        return None
    spans = [(since, counted[-1][0] + _REPORT_S) for since, counted in zip(begins, grown, strict=True)]
    return [
        lost if any(first <= begin and end <= last for first, last in spans) else None
        for lost, (begin, end) in zip(_summed(grown, edges), pairwise(edges), strict=True)
    ]


def _losses_of(
    stats: Stats, side: str, ids: Sequence[str], edges: Sequence[float], packets: Sequence[float]
) -> list[float | None] | None:
    """Return the number of losses of streams in each bin, or `None` as `_lost` does."""
    kind, counter = _WAYS[side]
    restarts = _restarts(stats.of(kind, counter, ids) + stats.of(kind, _PACKETS[side], ids))
    if side == "receiver":
        return _lost(stats.of(kind, "packetsLost", ids), restarts, edges)
    lost = _lost(stats.of("remote-inbound-rtp", "packetsLost", stats.reports_on(ids)), restarts, edges)
    # Without a count of packets, nothing shows when the lost packets were sent.
    return _when_sent(lost, packets) if lost and sum(packets) else lost


def _when_sent(lost: Sequence[float | None], packets: Sequence[float]) -> list[float | None]:
    """Move losses to earlier bins where they exceed the packets that were sent.

    A report counts packets that were sent before it. After an interruption, the first report counts all losses of the
    interruption, but the sender has reduced its rate.
    """
    excess = 0.0
    found: list[float | None] = []
    for each, sent in zip(reversed(lost), reversed(packets), strict=True):
        if each is None:
            found.append(None)
            continue
        found.append(min(each + excess, sent))
        excess += each - (found[-1] or 0.0)
    return found[::-1]


def _summed(rising: list[list[tuple[float, float]]], edges: Sequence[float]) -> list[float]:
    total = [0.0] * (len(edges) - 1)
    for points in rising:
        if len(points) < 2:
            continue
        reached = [_between(points, edge) for edge in edges]
        total = [sum_of + b - a for sum_of, (a, b) in zip(total, pairwise(reached), strict=True)]
    return total


def _integers(values: Sequence[float | None], most: Sequence[int] | None = None) -> list[int | None]:
    """Round values so that their sum remains. Each value is at most the value in ``most``.

    Without the sum, a few losses in a long interval between two reports would be less than half a loss in each bin.
    """
    remainder = 0.0
    found: list[int | None] = []
    for k, value in enumerate(values):
        if value is None:
            found.append(None)
            continue
        remainder += value
        integer = round(remainder) if most is None else min(round(remainder), most[k])
        remainder -= integer
        found.append(integer)
    return found


def _before_end(frozen: Sequence[float]) -> list[float]:
    """Return how long the picture was frozen in each bin. Browsers count a whole freeze at the time of its end."""
    remaining = 0.0
    found = []
    for counted in reversed(frozen):
        remaining += counted
        found.append(min(remaining, BIN_S))
        remaining -= found[-1]
    return found[::-1]


def _held(points: Sequence[tuple[float, Any]], at: float) -> Any:
    """Return the last value at or before a time, or else the first value. Return `None` if there are no values."""
    return points[max(bisect_right(points, at, key=lambda one: one[0]) - 1, 0)][1] if points else None


def _between(points: list[tuple[float, float]], at: float) -> float:
    k = bisect_right(points, (at, math.inf))
    if k == 0 or k == len(points):
        return points[min(k, len(points) - 1)][1]
    (a, low), (b, high) = points[k - 1], points[k]
    return low + (high - low) * (at - a) / (b - a) if b > a else high


def _audio(stats: Stats, side: str, ids: Iterable[str], edges: Sequence[float]) -> Json | None:
    """Return the number of audio packets and their losses. Return `None` if there is no audio beside the video."""
    audio = stats.media(_WAYS[side][0], "audio")
    if not audio or set(audio) & set(ids):
        return None
    return _losses(stats, side, audio, edges)


def _worst_stream(stats: Stats, side: str, ids: Sequence[str], edges: Sequence[float]) -> float | None:
    """Return the largest loss rate of a single stream in ten seconds. Return `None` if there are not several streams.

    The sum of many streams hides the losses of one of them, for example of one participant behind a server.
    """
    if len(ids) < 2:
        return None
    worst = (_losses(stats, side, [each], edges)["worst_lost_frac"] for each in ids)
    return max((each for each in worst if each is not None), default=None)


def _losses(stats: Stats, side: str, ids: Sequence[str], edges: Sequence[float]) -> Json:
    """Return the number of packets of these streams, and their losses in the call and in its worst ten seconds."""
    came = side == "receiver"
    packets = _grown(stats.of(_WAYS[side][0], _PACKETS[side], ids), edges)
    lost = _losses_of(stats, side, ids, edges, packets)
    if lost is None or not sum(packets):
        return {"packets": round(sum(packets)), "lost_frac": None, "worst_lost_frac": None}
    # Where losses are unknown, neither losses nor packets count.
    known = [
        None if gone is None else (gone, n + (gone if came else 0.0))
        for gone, n in zip(lost, packets, strict=True)
    ]

    def share(first: int, last: int, least: float) -> float | None:
        part = [each for each in known[first:last] if each is not None]
        of = sum(n for _, n in part)
        return min(sum(gone for gone, _ in part) / of, 1.0) if of >= max(least, 1.0) else None

    n = round(_WORST_S / BIN_S)
    # Ignore windows with few packets. Reports are late, so such a window may contain the losses of a stream that has
    # just stopped.
    windows = (share(k, k + n, _MIN_PACKETS) for k in range(max(len(known) - n, 0) + 1))
    return {
        "packets": round(sum(packets) + (sum(each or 0.0 for each in lost) if came else 0.0)),
        "lost_frac": share(0, len(known), 1.0),
        "worst_lost_frac": max((each for each in windows if each is not None), default=None),
    }


def _carried_by(stats: Stats, side: str) -> float:
    kind, counter = _WAYS[side]
    counted = map(_numbers, stats.of(kind, counter, stats.video(kind)))
    return sum(_rising(points)[-1][1] for points in counted if points)


def _summary(stats: Stats, side: str) -> Json:
    """Summarize one direction of a connection in bins of 1 s."""
    kind, counter = _WAYS[side]
    ids = stats.video(kind)
    set_back = _set_back(stats.of(kind, counter, ids))
    if set_back:
        moved = {key: _onward(points) for key, points in stats.series.items()}
        stats = Stats(stats.kinds, moved, stats.untimed)
    streams = stats.of(kind, counter, ids)
    times = [at for points in streams for at, _ in points]
    if not times or not 2 <= max(times) - min(times) <= _MOST_S or not _carried_by(stats, side):
        return {"bins": []}
    begin = min(times)
    edges = [begin + k * BIN_S for k in range(math.ceil(max(times) - begin) + 1)]

    def grown(metric: str, of: str = kind, only: Iterable[str] | None = ids) -> list[float]:
        return _grown(stats.of(of, metric, only), edges)

    came = side == "receiver"
    size, packets = grown(counter), grown(_PACKETS[side])
    reports = "remote-inbound-rtp"
    lost = _losses_of(stats, side, ids, edges, packets)
    gone_of = lost or [None] * len(size)
    notes = [] if lost is not None else [_NO_LOSSES[side]]
    if set_back:
        notes.append(f"its clock was set back by {say.seconds(set_back)} during the call: this is taken out")
    if lost is not None and (uncounted := sum(each is None for each in lost)):
        notes.append(
            f"for {say.seconds(uncounted * BIN_S)} nothing in it counts losses: there they are unknown"
        )
    sending = [each for each in ids if sum(grown(counter, only=[each]))]
    unreported = [each for each in sending if not came and not stats.reports_on([each])]
    if lost is not None and unreported:
        notes.append(
            f"for {say.count(len(unreported))} of its {say.count(len(sending))} streams nothing in it counts losses: "
            "more packets may have been lost"
        )
    if lost is not None and not stats.of(kind, _PACKETS[side], ids):
        notes.append(f"no {_PACKETS[side]} of an {kind} is in it: the share of lost packets is unknown")
    if unreadable := sum(_number(value) is None for points in streams for _, value in points):
        notes.append(f"{say.count(unreadable)} of its values of {counter} are no numbers, and are left out")
    whole = _span(at for each in ids for points in stats.of_id(each) for at, _ in points)
    if whole - _span(times) >= _LEAST_GAP_S:
        notes.append(
            f"{counter} covers only {say.seconds(_span(times))} of the {say.seconds(whole)} of its streams: the other "
            "time is left out"
        )
    if stats.untimed:
        notes.append(f"{say.count(stats.untimed)} of its values have no time, and are left out")
    notes += [
        f"no report is in it from {say.seconds(at - begin)} to {say.seconds(later - begin)}: what is said of this "
        "time is an average"
        for at, later in _gaps(times)
    ]
    packet = "video packet" if stats.media(kind, "video") else "packet"
    notes += [
        f"no {packet} {'arrived' if came else 'was sent'} from {say.seconds(first * BIN_S)} to "
        f"{say.seconds(last * BIN_S)}"
        for first, last in _pauses(size)
    ]
    frozen = grown("totalFreezesDuration")
    trips = _latest(
        _merged(stats.of(reports, "roundTripTime", stats.reports_on(ids)))
        or _merged(stats.of(reports, "roundTripTime"))
        or _numbers(stats.on_pair_in_use("currentRoundTripTime", ids)),
        edges,
    )
    limits = _limits(stats, ids)
    by_duration = _limits_by_duration(stats, ids, edges)
    # Add the losses on the receiver's side, because a receiver counts only packets that arrived.
    all_packets = [n + ((gone or 0.0) if came else 0.0) for n, gone in zip(packets, gone_of, strict=True)]
    whole_packets = [n or 0 for n in _integers(all_packets)]
    bins = [
        _UNSHOWN
        | {
            "sent_bps": 8 * all_of / BIN_S,
            "arrived_bps": 8 * all_of / BIN_S * (1 if came else 1 - min((gone or 0.0) / max(n, 1), 1)),
            "packets": n,
            "lost": gone,
            "delay_ms": None if trip is None else 1000 * trip,
            "frozen_s": stood,
            "limited": held,
        }
        for all_of, n, gone, stood, trip, held in zip(
            size,
            whole_packets,
            _integers(gone_of, whole_packets),
            _before_end(frozen),
            trips,
            by_duration or _limits_of_bins(limits, edges),
            strict=True,
        )
    ]
    estimates = _numbers(stats.on_pair_in_use("availableOutgoingBitrate", ids))
    if (audio := _audio(stats, side, ids, edges)) and audio["packets"]:
        gone = "an unknown share" if audio["lost_frac"] is None else say.frac(audio["lost_frac"])
        notes.append(
            f"rates, losses and the number of packets are those of the video; of the {say.count(audio['packets'])} "
            f"audio packets {gone} was lost"
        )
    return {
        "bin_s": BIN_S,
        "seen": {
            "source": f"a dump of its statistics, the {side}'s",
            "side": side,
            "delay_is": "round trip",
            "frozen_s": sum(frozen),
            "notes": notes,
            "audio": audio,
            "worst_stream_lost_frac": _worst_stream(stats, side, ids, edges),
            "reports": _moments(times),
            # Add the exact numbers, because the numbers in the bins are rounded.
            "packets": round(sum(all_packets)) if stats.of(kind, _PACKETS[side], ids) else None,
            "estimates": [] if came else [[at - begin, rate] for at, rate in estimates if rate > 0],
            "freezes": _counted(stats.of(kind, "freezeCount", ids)),
            "limited": _shares(by_duration or [sorted(each - {"none"}) for each in limits.values()]),
            "unused_bandwidth": None if came else _unused(stats, kind, limits, estimates, edges),
        },
        "path": {"refusals": [_AVERAGES]},
        "bins": bins,
    }


def _gaps(times: Iterable[float]) -> list[tuple[float, float]]:
    ordered = sorted(set(times))
    steps = sorted(later - at for at, later in pairwise(ordered))
    least = max(_LEAST_GAP_S, _GAP_INTERVALS * steps[len(steps) // 2]) if steps else 0.0
    return [(at, later) for at, later in pairwise(ordered) if later - at >= least][:5]


def _pauses(size: Sequence[float]) -> list[tuple[int, int]]:
    """Return the first bin and the end of the first five long runs of bins without bytes, after the first bytes."""
    begin = next((k for k, each in enumerate(size) if each), len(size))
    runs = groupby(range(begin, len(size)), key=lambda k: not size[k])
    empty = [list(run) for is_empty, run in runs if is_empty]
    return [(run[0], run[-1] + 1) for run in empty if len(run) * BIN_S >= _LEAST_PAUSE_S][:5]


def _counted(all_of: list[Points]) -> float | None:
    ends = [_rising(counted)[-1][1] for points in all_of if (counted := _numbers(points))]
    return sum(ends) if ends else None


def _merged(all_of: list[Points]) -> list[tuple[float, float]]:
    """Merge several series into one that is sorted by time.

    A stream has several series if its SSRC changed, because its reports then have a new id.
    """
    return sorted(point for points in all_of for point in _numbers(points))


def _latest(values: list[tuple[float, float]], edges: Sequence[float]) -> list[float | None]:
    """Return the last value at or before the end of each bin. It is `None` where this value is too old."""
    gaps = sorted(later - before for (before, _), (later, _) in pairwise(values))
    # A value stays valid for twice the usual interval between reports, but at least for `_REPORT_S`.
    holds = max(_REPORT_S, 2 * gaps[len(gaps) // 2] if gaps else 0.0)
    found: list[float | None] = []
    for end in edges[1:]:
        k = bisect_right(values, (end, math.inf))
        found.append(values[k - 1][1] if k and end - values[k - 1][0] <= holds + BIN_S else None)
    return found


def _limits(stats: Stats, ids: Iterable[str]) -> dict[float, set[str]]:
    """Return the reasons that limited an encoder at each time. Simulcast layers that are switched off are ignored."""
    found: dict[float, set[str]] = {}
    for each in ids:
        off = {at for at, value in stats.series.get((each, "active"), []) if value is False}
        for at, value in stats.series.get((each, "qualityLimitationReason"), []):
            if at not in off:
                found.setdefault(at, set()).add(str(value))
    return found


def _limits_by_duration(
    stats: Stats, ids: Sequence[str], edges: Sequence[float]
) -> list[list[str] | None] | None:
    """Return the reasons that limited an encoder in each bin, from the browser's sums of time.

    The sums (qualityLimitationDurations) also show what happened between two reports. If a reason applied for a part of
    the time between two reports, it gets this part of the bins. Return `None` if the file has no sums, or if a layer of
    a simulcast was switched off, because its sums continue.
    """
    if any(value is False for each in ids for _, value in stats.series.get((each, "active"), [])):
        return None
    sums: dict[str, dict[str, Points]] = {}
    times = []
    for each in ids:
        for at, value in stats.series.get((each, "qualityLimitationDurations"), []):
            times.append(at)
            for reason, seconds in value.items() if isinstance(value, dict) else ():
                sums.setdefault(str(reason), {}).setdefault(each, []).append((at, seconds))
    if not sums:
        return None
    found: list[list[str] | None] = [
        [] if begin < max(times) and end > min(times) else None for begin, end in pairwise(edges)
    ]
    for reason in sorted(sums.keys() - {"none"}):
        of_streams = [_grown([points], edges) for points in sums[reason].values()]
        shares = [max(each) / BIN_S for each in zip(*of_streams, strict=True)]
        for reasons, is_limited in zip(found, _integers(shares, [1] * len(shares)), strict=True):
            if reasons is not None and is_limited:
                reasons.append(reason)
    return found


def _limits_of_bins(limits: Mapping[float, set[str]], edges: Sequence[float]) -> list[list[str] | None]:
    """Return the reasons that limited an encoder in each bin. It is `None` where the file has no value."""
    found: list[set[str] | None] = [None] * (len(edges) - 1)
    for at, reasons in limits.items():
        k = bisect_right(edges, at) - 1
        if 0 <= k < len(found):
            found[k] = (found[k] or set()) | reasons
    return [None if reasons is None else sorted(reasons - {"none"}) for reasons in found]


def _shares(limits: Sequence[list[str] | None]) -> dict[str, float]:
    """Return for each reason the fraction of the known entries that contain it."""
    known = [reasons for reasons in limits if reasons is not None]
    return {
        reason: sum(reason in reasons for reasons in known) / len(known)
        for reason in sorted({reason for reasons in known for reason in reasons})
    }


def _by_reason(limits: Mapping[float, set[str]]) -> dict[str, list[float]]:
    reasons = sorted({reason for of in limits.values() for reason in of} - {"none"})
    return {reason: [at for at, of in limits.items() if reason in of] for reason in reasons}


def _unused(
    stats: Stats,
    kind: str,
    limits: Mapping[float, set[str]],
    estimates: Sequence[tuple[float, float]],
    edges: Sequence[float],
) -> Json | None:
    """Return the sent and the estimated rate while the browser reported bandwidth as the encoder's limit.

    Return `None` if the sent rate was at least `_USED` of the estimate. A lower sent rate contradicts the browser. Then
    something else was the limit, for example a maximum rate of the application.

    The sent rate includes all streams and their headers, because they share the estimate.
    """
    counters = stats.of(kind, "bytesSent") + stats.of(kind, "headerBytesSent")
    sent = [8 * size / BIN_S for size in _grown(counters, edges)]
    pairs = [
        (sent[min(int((at - edges[0]) / BIN_S), len(sent) - 1)], estimates[k - 1][1])
        for at in _by_reason(limits).get("bandwidth", [])
        if (k := bisect_right(estimates, (at, math.inf))) and at >= edges[0]
    ]
    used, estimated = (middle(each[k] for each in pairs) for k in (0, 1))
    if used is None or not estimated or used >= _USED * estimated:
        return None
    return {"sent_bps": used, "estimate_bps": estimated}


# ---------------------------------------------------------------- a run folder


def capture_of(place: Path) -> Path | None:
    """Return the capture in a run folder that is nearest to the sender. Return `None` if there are no captures."""
    captures = sorted(place.glob("pcap/*.pcap*"), key=lambda file: (".src" not in file.name, file.name))
    return captures[0] if captures else None


def of_run(place: Path) -> Json:
    """Summarize the first video of a run from the run's tables.

    Raises:
        UserError: it is no run folder, or has no video.

    """
    folder = Folder.open(place)
    video = next((flow for flow in folder.summary["flows"] if flow.get("kind") == "video"), None)
    if video is None or not video.get("receivers"):
        raise UserError(str(place), "no video was received in this run", "give a run with a video flow")
    rates = folder.table("rates")
    sender, receiver = (
        rates.filter((rates["flow"] == video["name"]) & (rates["node"] == node)).sort("t_s").to_dicts()
        for node in (f"{video['name']}.src", video["receivers"][0]["name"])
    )
    if len(receiver) < 2 or not sender:
        raise UserError(str(place), "its table of rates has less than two rows", "give a longer run")
    step = receiver[1]["t_s"] - receiver[0]["t_s"]
    came = {row["t_s"]: row for row in receiver}
    bins = []
    for row in sender:
        other = came.get(row["t_s"], {})
        # Estimate the number of packets, assuming that each has the default size of 1200 bytes.
        packets = round((row["throughput_bps"] or 0.0) * step / 8 / 1200)
        bins.append(
            _UNSHOWN
            | {
                "sent_bps": row["throughput_bps"] or 0.0,
                "arrived_bps": other.get("throughput_bps") or 0.0,
                "packets": packets,
                "lost": round((other.get("loss_frac") or 0.0) * packets),
                "delay_ms": other.get("delay_ms"),
            }
        )
    return {
        "file": place.resolve().name,
        "bin_s": step,
        "seen": {
            "source": f"a run folder's tables ({video['controller']})",
            "delay_is": "delay",
            "frozen_s": video["receivers"][0].get("freeze_s"),
            "notes": ["packets are counted as of 1200 bytes"],
            "reports": len(receiver),
            "estimates": [[row["t_s"], row["target_bps"]] for row in sender if row["target_bps"]],
            "freezes": video["receivers"][0].get("freeze_count"),
            "limited": {},
        },
        "path": {"refusals": [_TABLES]},
        "bins": bins,
    }


# ---------------------------------------------------------------- in words


def sentences(seen: Json) -> list[str]:
    """Describe the averages in sentences."""
    of_video = "video packets" if seen["audio"] else "packets"
    said = [
        f"Seen: {say.rate(seen['sent_bps'])} as a median ({say.rate(seen['sent_max_bps'])} at most), "
        f"{say.frac(seen['lost_frac'])} of the {of_video} lost, {say.ms(seen['delay_mean_ms'])} of {seen['delay_is']}."
    ]
    if seen["freezes"] is not None:
        stood = f", for {say.seconds(seen['frozen_s'])} in all" if seen["frozen_s"] else ""
        said.append(f"The picture froze {say.count(seen['freezes'])} times{stood}.")
    said += [
        f"The encoder was held back by {reason} for {say.frac(part)} of the time."
        for reason, part in seen["limited"].items()
    ]
    return said
