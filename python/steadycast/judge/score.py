"""Scores a cell, which is one run of a pair of programs on a network.

The figures come from the packets on the wire, from the RTP frames, and from the displayed pictures. All times are
seconds since the start of the emulation. Suffixes are units: ``_frac`` from 0 to 1, ``_ms``, ``_s``, and ``_bps`` in
bit/s of IP packets. An unknown figure is absent. ``recover_s`` is `None` if there was no recovery.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from steadycast.core import core
from steadycast.folder import number
from steadycast.judge import mark
from steadycast.judge.pair import Pair, seconds
from steadycast.lazy_import import pl
from steadycast.media.table import F64

_LARGEST = 1e15
"""Values that programs report are invalid if they are larger than this. NaN is invalid, too."""
LEVELS = ("wire", "rtp", "picture", "browser")
BY = {"picture": "p", "browser": "b", "rtp": "r", "wire": "w"}
LEAST_DATAGRAMS = 50
"""If there are fewer datagrams than this, a run is treated as a run without traffic."""
_RUN, _RUN_S = 20, 1.0
"""Sending begins with the first 20 datagrams that are sent within 1 s."""
_GAP_S = 0.2
"""A gap between arrivals counts as silence if it is at least this long, in seconds."""
_BURST_S = 0.005
RECOVERED_S, _RATE, _CAPACITY, _DELAY_S = 3.0, 0.8, 0.9, 0.1
"""The conditions for a recovery, which must hold for `RECOVERED_S`.

- The rate over 1 s is at least `_RATE * min(former rate, _CAPACITY * capacity)`.
- The 95th percentile of the delay exceeds the path's propagation delay by at most `_DELAY_S`.
"""
_STREAM, _STEPS, _REGULAR = 16, 64, 0.9
"""Packets are an RTP stream if there are at least 16, and if 90 % of their sequence steps are from 1 to 64."""
_OVERLAP_S = 1.0
"""A stream and its continuation may both be sent for at most this time, in seconds."""
_HEAD_BYTES = 7
"""The number of payload bytes in the column ``head`` of the table ``wire``."""
_RECENT_PICTURES = 30
"""To detect freezes, durations are compared with the mean over this number of pictures (W3C, ``freezeCount``)."""
_PLAUSIBLE_S = 10.0
"""Maximum time in seconds by which a picture can be late or early. If its mark implies more, the mark was misread."""
_UNREAD = 0.2

Figures = dict[str, Any]


class FailedError(Exception):
    """A run can't be scored. The error has a keyword for the reason, and details."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Cell:
    """The folder of a cell, which is one run, and the parameters of the run."""

    folder: Path
    pair: Pair
    up: bool = False
    """Whether the media are sent in the back direction of the bottleneck."""

    @property
    def window(self) -> tuple[float, float]:
        """Start and end of the scored time, in seconds."""
        return self.pair.lead_s, self.pair.lead_s + self.pair.seconds

    @cached_property
    def wire(self) -> pl.DataFrame:
        """The datagrams that the hosts of sender and receiver sent."""
        if not (self.folder / "wire.parquet").exists():
            raise FailedError("no-traffic", "no datagram was sent; check that the sender sends to {receiver}")
        return pl.read_parquet(self.folder / "wire.parquet").sort("sent_s", "number")

    def way(self, back: bool = False) -> pl.DataFrame:
        """Return the datagrams from the sender to the receiver, or with ``back`` in the opposite direction."""
        return self.wire.filter((pl.col("to") if back else pl.col("from")) == "sender")

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The scenario of the run."""
        return tomllib.loads((self.folder / "scenario.toml").read_text(encoding="utf-8"))

    @cached_property
    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """The times and values of the bottleneck's changes in the direction of the media."""
        way = "back" if self.up else "forward"
        found = []
        for event in self.scenario.get("event", []):
            change = event.get("set", {})
            if change.get("link") != "bottleneck" or change.get("direction", way) not in (way, "both"):
                continue
            at = seconds(event["at"], "at")
            step = seconds(event["every"], "every") if "every" in event else np.inf
            while at < self.window[1]:
                found.append((at, change))
                at += step
        return sorted(found, key=lambda each: each[0])

    def own_delay(self, at: F64) -> F64:
        """Return the propagation delay of the path at the times ``at``, in seconds."""
        links = {link.get("name"): link for link in self.scenario["link"]}
        bottleneck = links["bottleneck"]
        first = {**bottleneck, **bottleneck.get("back", {})} if self.up else bottleneck
        access = sum(
            seconds(link.get("delay", "0s"), "delay")
            for name, link in links.items()
            if str(name).startswith("access-") and {"sender", "receiver"} & set(link["between"])
        )
        steps = [(-1.0, seconds(first.get("delay", "0s"), "delay"))]
        steps += [(t, seconds(s["delay"], "delay")) for t, s in self.events if "delay" in s]
        times, delays = (np.array(each) for each in zip(*steps, strict=True))
        return np.asarray(delays[np.searchsorted(times, at, side="right") - 1] + access)

    @cached_property
    def capacity(self) -> tuple[F64, F64]:
        """Starts of intervals, and the capacity of the bottleneck in each interval, in bit/s."""
        links = pl.read_parquet(self.folder / "links.parquet").filter(
            pl.col("link") == "bottleneck", pl.col("direction") == ("back" if self.up else "forward")
        )
        return links["t_s"].to_numpy(), links["capacity_bps"].fill_null(0.0).to_numpy()

    @cached_property
    def tcp(self) -> tuple[int, F64, F64]:
        """Number of competing TCP flows, starts of intervals, and the flows' total rate in each interval, in bit/s.

        Flows with pauses are not included, because they have no fair share.
        """
        ends = [node for flow in self.scenario.get("flow", []) if "off" not in flow for node in flow["to"]]
        if not ends:
            return 0, np.zeros(0), np.zeros(0)
        rates = pl.read_parquet(self.folder / "rates.parquet").filter(pl.col("node").is_in(ends))
        together = rates.group_by("t_s").agg(pl.col("throughput_bps").sum()).sort("t_s")
        return len(ends), together["t_s"].to_numpy(), together["throughput_bps"].to_numpy()

    @cached_property
    def crew(self) -> list[dict[str, Any]]:
        """Events of the started processes, from the file `crew.jsonl`."""
        return [json.loads(line) for line in (self.folder / "crew.jsonl").read_text().splitlines()]

    @property
    def began(self) -> float:
        """The emulation's start on the monotonic clock, in seconds."""
        return float(self.crew[0]["monotonic_s"])

    def rows(self, name: str, columns: Sequence[str]) -> pl.DataFrame:
        """Read a table of numbers. Skip malformed lines."""
        path = self.folder / name
        # Accept any bytes, because a program that was killed may have left an incomplete line or character.
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        kept = [row for line in lines if (row := _numbers(line, len(columns))) is not None]
        return pl.DataFrame(
            {c: [row[n] for row in kept] for n, c in enumerate(columns)},
            schema=dict.fromkeys(columns, pl.Float64),
        )


def _numbers(line: str, count: int) -> list[float | None] | None:
    """Parse ``count`` numbers. Return `None` for a malformed line. Fields after the first may be empty."""
    cells = line.split("\t")
    try:
        values = [float(cell) if cell else None for cell in cells]
    except ValueError:
        return None
    fits = len(values) == count and values[0] is not None
    return values if fits and all(value is None or abs(value) < _LARGEST for value in values) else None


def score(cell: Cell, level: str | None = None) -> tuple[Figures, str]:
    """Return the figures of a run, and one of `LEVELS`. The figures about frames and freezes come from this level.

    Raises:
        FailedError: the run can't be scored.

    """
    figures = wire(cell)
    by = "wire"
    # Figures of a later level replace figures of an earlier level.
    wanted = LEVELS[: LEVELS.index(level) + 1] if level else LEVELS
    frames: Rtp | None = None
    if "rtp" in wanted:
        frames = rtp(cell)
        if frames is not None:
            figures |= frames.figures
            by = "rtp"
    if "browser" in wanted and (cell.folder / "stats.jsonl").exists() and (found := browser(cell)):
        figures |= found
        by = "browser"
    if "picture" in wanted and cell.pair.pictures.source in ("pipe", "file", "browser"):
        shown = cell.pair.clip is not None and cell.pair.clip.mark
        if shown and (found := pictures(cell, frames)) is not None:
            figures |= found
            by = "picture"
    if level is not None and by != level:
        raise FailedError(
            f"no-{level}", f"--level {level} can't be measured here; without it the level is {by}"
        )
    figures["delay_p95_ms"] = next(
        figures[key]["p95"] for key in ("latency_ms", "frame_delay_ms", "delay_ms") if figures.get(key)
    )
    return figures, by


def spread(values: F64) -> dict[str, float] | None:
    """Return the 50th, 95th and 99th percentile of the values. Return `None` if there are no values."""
    if not len(values):
        return None
    return {f"p{p}": float(np.percentile(values, p)) for p in (50, 95, 99)}


# ---------------------------------------------------------------- the wire


def wire(cell: Cell) -> Figures:
    """Score the packets on the wire. This works for any protocol.

    Raises:
        FailedError: there is no traffic, or it began after the lead time.

    """
    low, high = cell.window
    way = cell.way()
    offers = way.filter(pl.col("copy") == 0).unique("number", keep="first", maintain_order=True)
    sent = offers["sent_s"].to_numpy()
    # Ignore datagrams before the start of the last program. They are not media, but for example session descriptions.
    after = sent[sent >= max((e["t"] for e in cell.crew if e["what"] == "start"), default=0.0)]
    runs = np.flatnonzero(after[_RUN - 1 :] - after[: max(0, len(after) - _RUN + 1)] <= _RUN_S)
    inside = (sent >= low) & (sent < high)
    if not len(runs) or inside.sum() < LEAST_DATAGRAMS:
        raise FailedError("no-traffic", f"{int(inside.sum())} datagrams from sender to receiver")
    if (t0 := float(after[runs[0]])) > low:
        remedy = f'lead = "{2 * max(int(t0), int(low)):g}s"'
        raise FailedError("late-start", f"it began to send at {t0:.1f} s; write {remedy}")
    came = way.filter(pl.col("arrived_s").is_not_null()).sort("arrived_s")
    arrived, bytes_ = came["arrived_s"].to_numpy(), came["bytes"].to_numpy()
    within = (arrived >= low) & (arrived < high)
    here = offers.filter(pl.col("sent_s").is_between(low, high, closed="left"))
    numbers = set(came["number"].to_list())
    lost = sum(number not in numbers for number in here["number"].to_list())
    both = came.filter(pl.col("sent_s").is_between(low, high, closed="left"))
    delays = (both["arrived_s"] - both["sent_s"]).to_numpy()
    back = cell.way(back=True).filter(pl.col("arrived_s").is_between(low, high, closed="left"))
    gaps = np.diff(np.concatenate([[low], arrived[within], [high]]))
    figures: Figures = {
        "t0_s": t0,
        "throughput_bps": float(bytes_[within].sum()) * 8 / (high - low),
        "loss_frac": lost / max(1, here.height),
        "delay_ms": spread(1e3 * delays),
        "queue_ms": spread(1e3 * np.maximum(0, delays - cell.own_delay(both["sent_s"].to_numpy()))),
        "burst": _burst(here["sent_s"].to_numpy(), here["bytes"].to_numpy(), low, high),
        "silent_s": float(gaps.max()),
        "silent_frac": float(gaps[gaps >= _GAP_S].sum()) / (high - low),
        "back_bps": float(back["bytes"].sum()) * 8 / (high - low),
    }
    flows, times, rates = cell.tcp
    if flows:
        counted = (times >= low) & (times < high)
        at, capacity = cell.capacity
        # With a fair division, the media gets as much capacity as each of the TCP flows.
        fair = float(capacity[(at >= low) & (at < high)].mean()) * flows / (flows + 1)
        figures["tcp_bps"] = float(rates[counted].mean()) if counted.any() else 0.0
        figures["tcp_share_of_fair"] = figures["tcp_bps"] / fair if fair else None
    if recovered := _recoveries(cell, came):
        figures["recoveries_s"] = recovered
        figures["recover_s"] = None if None in recovered else max(r for r in recovered if r is not None)
    return figures


def _burst(sent: F64, bytes_: F64, low: float, high: float) -> float | None:
    """Return the 95th percentile of the burst ratio over all seconds in which packets are sent.

    The burst ratio of a second is its largest number of bytes in 5 ms, divided by its mean number of bytes per 5 ms.
    """
    bins = np.bincount(((sent - low) / _BURST_S).astype(int), bytes_, round((high - low) / _BURST_S) + 1)
    each = round(1 / _BURST_S)
    whole = bins[: len(bins) // each * each].reshape(-1, each)
    busy = whole[whole.sum(axis=1) > 0]
    return float(np.percentile(busy.max(axis=1) / busy.mean(axis=1), 95)) if len(busy) else None


def _recoveries(cell: Cell, came: pl.DataFrame) -> list[float | None]:
    """Return for each network change how long the recovery took, in seconds.

    The time is `None` if there was no recovery before the next change.

    A change has no result of its own if it begins an outage, or if the next change follows within `RECOVERED_S` + 1 s.
    Such a change is merged with the next change. The time then begins at the last of the merged changes, and the rate
    is compared with the rate before the first of them.
    """
    low, high = cell.window
    changes = sorted({at for at, _ in cell.events if low < at < high})
    arrived, sent, bytes_ = (came[key].to_numpy() for key in ("arrived_s", "sent_s", "bytes"))
    over = arrived - sent - cell.own_delay(sent)
    totals = np.concatenate([[0.0], np.cumsum(bytes_)]) * 8
    at, capacity = cell.capacity
    found: list[float | None] = []
    first_change: float | None = None
    for change, end in pairwise([*changes, high]):
        first_change = change if first_change is None else first_change
        now = capacity[(at >= change) & (at + 1 <= end)]
        if end - change < RECOVERED_S + 1 or not now.any():
            continue

        def rate(until: float) -> float:
            first, last = np.searchsorted(arrived, (until - 1, until))
            return float(totals[last] - totals[first])

        least = _RATE * min(rate(first_change), _CAPACITY * float(now.max()))
        first_change = None
        since: float | None = None
        for until in np.arange(change + 1, end + 1e-9, 0.1):
            first, last = np.searchsorted(arrived, (until - 1, until))
            late = np.percentile(over[first:last], 95) if last > first else np.inf
            if rate(until) < least or late > _DELAY_S:
                since = None
                continue
            since = until - 1 if since is None else since
            if until - since >= RECOVERED_S:
                found.append(float(since - change))
                break
        else:
            found.append(None)
    return found


# ---------------------------------------------------------------- RTP


@dataclass
class Rtp:
    """The RTP frames of a run, and the figures that are computed from them."""

    figures: Figures
    first_s: dict[int, float] = field(default_factory=dict)
    """When the first packet of each frame was sent, in seconds, by the RTP time stamp of the frame."""
    clock: int = 90_000


def rtp(cell: Cell) -> Rtp | None:
    """Score the frames of RTP or SRTP. Return `None` if there is no RTP on the wire."""
    told = cell.pair.rtp
    way = cell.way().filter(pl.col("ssrc").is_not_null()) if "ssrc" in cell.wire.columns else None
    streams = [] if way is None else _streams(way)
    media = next((each for each in streams if told.media in (None, each["pt"][0])), None)
    if media is None:
        return None
    media = _continued(
        media, [each for each in streams if each["pt"][0] not in (told.rtx, told.fec)], told.media
    )
    parts = set(media.select("ssrc", "pt").unique().iter_rows())
    stamps = media["rtp_ts"].unique().to_numpy()
    # If the file judge.toml does not give the payload type of retransmissions (rtx), streams with the media's time
    # stamps count as retransmissions.
    rtx = [
        each
        for each in streams
        if (each["ssrc"][0], each["pt"][0]) not in parts
        and each["pt"][0] != told.fec
        and (
            each["pt"][0] == told.rtx
            or (told.rtx is None and np.isin(each["rtp_ts"].to_numpy(), stamps).mean() > 0.5)
        )
    ]
    packets = _packets(media, rtx)
    frames = _frames(packets)
    low, high = cell.window
    # Skip the codec if there are several payload types, because it is unknown which of them the session description
    # describes.
    codec = _codec(cell) if media["pt"].n_unique() == 1 else None
    keys = _keys(media, frames, codec) if codec else None
    chained = keys is not None
    frames = frames.with_columns(key=pl.lit(value=True) if keys is None else keys)
    begun = frames.filter(pl.col("whole") & pl.col("first_s").is_between(low, high, closed="left"))
    fastest = (begun["done_s"] - begun["first_s"]).to_numpy().min(initial=np.inf)
    limit = told.deadline_s + (float(fastest) if begun.height else 0.0)
    sent_again = media.filter(pl.col("copy") == 0).height > packets.height
    repairs = bool(rtx) or told.fec is not None or sent_again
    frames = frames.with_columns(shown_s=_shown(frames, limit, chained=chained, repairs=repairs))
    counted = frames.filter(pl.col("first_s").is_between(low, high - limit, closed="left"))
    if not counted.height:
        return None
    delays = (counted["done_s"] - counted["first_s"]).to_numpy()
    in_time = (counted["shown_s"] - counted["first_s"] <= limit).fill_null(value=False)
    figures: Figures = {
        "frames": counted.height,
        "frames_per_s": counted.height / (high - limit - low),
        "frame_delay_ms": spread(1e3 * delays[counted["whole"].to_numpy()]),
        "in_time_frac": float(in_time.to_numpy().mean()),
        "chain": "known" if chained else "assumed",
        **_whole(counted, parity=told.fec is not None),
        **frozen(frames["shown_s"].drop_nulls().to_numpy(), low, high),
    }
    # Use only the first SSRC, because the time stamps of another SSRC have another origin (RFC 3550, section 5.1).
    named = frames.filter(pl.col("ssrc") == frames["ssrc"][0])
    return Rtp(
        figures, dict(zip(named["rtp_ts"].to_list(), named["first_s"].to_list(), strict=True)), told.clock
    )


def _streams(way: pl.DataFrame) -> list[pl.DataFrame]:
    found = []
    for each in way.partition_by("from_port", "to_port", "ssrc", "pt", maintain_order=True):
        numbers = each.filter(pl.col("copy") == 0)["seq"].to_numpy().astype(np.int64)
        steps = np.diff(numbers) % 65536
        if len(numbers) >= _STREAM and float(((steps >= 1) & (steps <= _STEPS)).mean()) >= _REGULAR:
            found.append(each)
    return sorted(found, key=lambda each: -int(each["bytes"].sum()))


def _continued(media: pl.DataFrame, streams: Sequence[pl.DataFrame], named: int | None) -> pl.DataFrame:
    """Return a stream together with the streams that continue it with another SSRC, payload type or port.

    A continuation has the same SSRC or the same payload type. Unlike simulcast and audio, it overlaps with the stream
    for at most `_OVERLAP_S`.
    """
    parts = [media]
    for each in streams:
        begin, end = float(each["sent_s"][0]), float(each["sent_s"][-1])
        apart = all(
            begin > float(part["sent_s"][-1]) - _OVERLAP_S or end < float(part["sent_s"][0]) + _OVERLAP_S
            for part in parts
        )
        same = any(each[key][0] == part[key][0] for part in parts for key in ("ssrc", "pt"))
        if apart and same and named in (None, each["pt"][0]) and all(each is not part for part in parts):
            parts.append(each)
    return pl.concat(parts).sort("sent_s", "number")


def _packets(media: pl.DataFrame, rtx: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return a row for each packet in sending order, with the earliest arrival of the packet.

    A packet also counts as received if a retransmission of the packet arrived (RFC 4588). A retransmission has the same
    time stamp and begins with the original sequence number. SRTP encrypts this number. Then retransmissions are matched
    by time stamp and size, because a retransmission is two bytes longer.

    A match by size may be wrong if the sender also repeats packets that were not lost. In this case, ``arrived_s``
    omits a match by size if it also fits a packet that arrived. The column ``possible`` includes all matches.
    """
    packets = media.group_by("ssrc", "seq", "rtp_ts", maintain_order=True).agg(
        pl.col("sent_s").min(), pl.col("arrived_s").min(), pl.col("bytes").first()
    )
    columns = ("rtp_ts", "seq", "bytes", "arrived_s")
    sent = {(stamp, seq) for stamp, seq, *_ in packets.select(columns).iter_rows()}
    numbered: dict[tuple[int, int], float] = {}
    sized: dict[tuple[int, int], list[float]] = {}
    for each in rtx:
        copies = (
            each.unique("seq", keep="first", maintain_order=True)
            .drop_nulls("head")
            .with_columns(original=pl.col("head") // 2 ** (8 * (_HEAD_BYTES - 2)))
        )
        # Use only packets that have the time stamp of a media packet. Some of them may not be retransmissions, because
        # padding may have such a time stamp, too.
        of_media = copies.filter(pl.col("rtp_ts").is_in(packets["rtp_ts"].implode()))
        known = [key in sent for key in of_media.select("rtp_ts", "original").iter_rows()]
        came = of_media.drop_nulls("arrived_s").sort("arrived_s")
        if known and float(np.mean(known)) >= _REGULAR:
            for stamp, seq, at in came.select("rtp_ts", "original", "arrived_s").iter_rows():
                numbered.setdefault((stamp, seq), at)
        else:
            for stamp, size, at in came.select("rtp_ts", "bytes", "arrived_s").iter_rows():
                sized.setdefault((stamp, size - 2), []).append(at)
    arrived_sizes: set[tuple[int, int]] = set()
    lost_sizes: set[tuple[int, int]] = set()
    for stamp, _, size, at in packets.select(columns).iter_rows():
        (lost_sizes if at is None else arrived_sizes).add((stamp, size))
    needless = any(key in arrived_sizes and key not in lost_sizes for key in sized)
    arrived: list[float | None] = []
    possible: list[bool] = []
    for stamp, seq, size, at in packets.select(columns).iter_rows():
        key = (stamp, size)
        repaired = at if at is not None else numbered.get((stamp, seq))
        if repaired is None and sized.get(key):
            repaired = sized[key].pop(0)
            possible.append(True)
            arrived.append(None if needless and key in arrived_sizes else repaired)
        else:
            possible.append(repaired is not None)
            arrived.append(repaired)
    return packets.with_columns(
        pl.Series("arrived_s", arrived, pl.Float64), pl.Series("possible", possible, pl.Boolean)
    )


def _frames(packets: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each frame, in sending order."""
    frames = packets.group_by("ssrc", "rtp_ts", maintain_order=True).agg(
        first_s=pl.col("sent_s").min(),
        done_s=pl.col("arrived_s").max(),
        whole=pl.col("arrived_s").is_not_null().all(),
        lacking=(~pl.col("possible")).sum(),
    )
    return frames.sort("first_s")


def _whole(frames: pl.DataFrame, *, parity: bool) -> Figures:
    """Return the fraction of frames that are whole.

    Repairs by parity, and some repairs by retransmissions of SRTP, can't be observed. Then the result is a lower and an
    upper bound of the fraction.
    """
    low = float(frames["whole"].to_numpy().mean())
    high = float((frames["lacking"].to_numpy() <= int(parity)).mean())
    return {"whole_frac_low": low, "whole_frac_high": high} if parity or low < high else {"whole_frac": low}


def _codec(cell: Cell) -> str | None:
    """Return the codec from the session description, if `_begins` supports it and the media are not encrypted."""
    path = cell.folder / "session.sdp"
    # Accept any bytes, because a tested program has written the file.
    text = path.read_text(errors="replace").upper() if path.exists() else ""
    clear = "SAVP" not in text
    return next((c for c in ("H264", "H265", "VP8") if clear and f" {c}/90000" in text), None)


def _keys(media: pl.DataFrame, frames: pl.DataFrame, codec: str) -> pl.Series | None:
    """Return for each frame whether it is a key frame. Return `None` if key frames can't be recognised.

    This is also the case if no key frame is found. A stream begins with one, so the payload has an unknown format.
    """
    stamps = set()
    for ssrc, stamp, head in media.select("ssrc", "rtp_ts", "head").iter_rows():
        if head is not None and _begins(codec, head.to_bytes(_HEAD_BYTES)):
            stamps.add((ssrc, stamp))
    keys = [key in stamps for key in frames.select("ssrc", "rtp_ts").iter_rows()]
    return pl.Series(keys, dtype=pl.Boolean) if stamps else None


def _begins(codec: str, head: bytes) -> bool:
    """Whether a payload that begins with ``head`` belongs to a key frame (RFC 6184, 7798, 7741)."""
    if codec == "H264":
        # STAP-A (24) has its first type in byte 3, and FU-A (28) has its type in byte 1. 5 is an IDR slice, 7 an SPS.
        kind = head[0] & 31
        inner = head[3] & 31 if kind == 24 else head[1] & 31 if kind == 28 else kind
        return inner in (5, 7)
    if codec == "H265":
        # FU (49) has its type in byte 2. 16 to 21 are random access points, 32 is a VPS, 33 an SPS. Assume that an AP
        # (48) contains a unit of these types.
        kind = head[0] >> 1 & 63
        inner = head[2] & 63 if kind == 49 else kind
        return 16 <= inner <= 21 or inner in (32, 33) or kind == 48
    # A frame starts with S = 1 and partition 0. A key frame has P = 0 in the byte after the payload descriptor.
    extended, starts = head[0] & 128, head[0] & 16 and not head[0] & 15
    after = 1
    if extended:
        # A picture ID (I) has one byte, or two bytes with M. TL0PICIDX (L) has one byte, and so have TID and KEYIDX (T,
        # K) together.
        more = head[1]
        picture_id = 0 if not more & 128 else 2 if head[2] & 128 else 1
        after = 2 + picture_id + bool(more & 64) + bool(more & 48)
    # A descriptor has at most six bytes, so ``head`` has the byte after it.
    return bool(starts) and not head[after] & 1


def _shown(frames: pl.DataFrame, limit: float, *, chained: bool, repairs: bool) -> pl.Series:
    """Return the display times of frames. The time of a frame that is not shown is null.

    A whole frame is shown when it and all earlier frames have arrived or were given up. A frame is given up if it is
    incomplete. It is also given up if it arrives more than ``limit`` seconds after it was sent, and after a later
    frame.

    If the stream has ``repairs``, the receiver waits for them, so later frames are held until the limit. With
    ``chained``, frames after a frame that was given up are not shown until the next key frame.
    """
    first, keys = frames["first_s"].to_list(), frames["key"].to_list()
    done = np.where(frames["whole"].to_numpy(), frames["done_s"].fill_null(np.inf).to_numpy(), np.inf)
    # For each frame, the earliest completion of a later frame.
    later = np.append(np.minimum.accumulate(done[::-1])[::-1][1:], np.inf)
    shown: list[float | None] = []
    free, broken = 0.0, False
    for n, at in enumerate(done.tolist()):
        if at == np.inf or (at > first[n] + limit and at > later[n]):
            free = max(free, first[n] + limit) if repairs else free
            broken = chained
            shown.append(None)
            continue
        broken = broken and not keys[n]
        free = free if broken else max(free, at)
        shown.append(None if broken else free)
    return pl.Series(shown, dtype=pl.Float64)


def frozen(shown: F64, low: float, high: float) -> Figures:
    """Return figures about the freezes between two times. The wait for the first picture counts as well."""
    inside = shown[(shown > low) & (shown < high)]
    spans = np.diff(np.concatenate([[low], inside, [high]]))
    # Freezes are compared with the 30 pictures before them. Use the mean duration for the pictures before `low`.
    # Otherwise, the wait for the first picture would only be compared with itself.
    usual = float(inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 else 0.0
    before = [usual] * _RECENT_PICTURES
    told = json.loads(core.freezes([True] * (len(before) + len(spans)), [*before, *spans.tolist()]))
    return {
        "freezes_per_min": 60 * told["freeze_count"] / (high - low),
        "frozen_frac": told["freeze_s"] / (high - low),
        "longest_freeze_ms": told.get("longest_freeze_ms") or 0.0,
    }


# ---------------------------------------------------------------- pictures


def pictures(cell: Cell, frames: Rtp | None) -> Figures | None:
    """Score the displayed pictures by their marks. Return `None` if the pictures were not captured.

    Raises:
        FailedError: no pictures were displayed, or too many have no mark.

    """
    assert cell.pair.clip is not None
    low, high = cell.window
    fps = float(cell.pair.clip.rate)
    shown = cell.rows("look.tsv", ("at", "number", "psnr", "least", "ssim"))
    timed = cell.pair.pictures.source != "file"
    fed = cell.rows("feed.tsv", ("number", "due", "at")).with_columns(pl.col("due", "at") - cell.began)
    if timed:
        shown = shown.with_columns(pl.col("at") - cell.began)
    if shown.height == 0 and cell.pair.pictures.source == "browser":
        return None
    at, raw = shown["at"].to_numpy(), shown["number"].to_numpy()
    number = _unwrapped(at, raw, fps, float(fed["due"][0]) if fed.height else None)
    if not timed:
        # The times of a file start at 0. Use the first picture with a mark to align them with the clip.
        known = np.flatnonzero(np.isfinite(number))
        at = at - (at[known[0]] - number[known[0]] / fps) + low if len(known) else at
    inside = (at >= low) & (at < high)
    if not inside.any():
        raise FailedError("no-pictures", f"{len(at)} pictures, none of them in the measured time")
    unread = float((~np.isfinite(number[inside])).mean())
    if unread > _UNREAD:
        raise FailedError(
            "unread", f"{100 * unread:.0f} % of the pictures have no mark: damaged, or not the clip"
        )
    new = np.flatnonzero(np.isfinite(number) & np.concatenate([[True], number[1:] != number[:-1]]))
    figures: Figures = {
        "pictures": int(inside[new].sum()),
        "unread_frac": unread,
        "times": "arrival" if timed else "file",
        **frozen(at[new], low, high),
        **_quality(shown[new].filter(pl.Series(inside[new])), int((~np.isfinite(number[inside])).sum())),
    }
    first: dict[int, float] = {}
    sound: set[int] = set()
    damaged = shown.select((pl.col("psnr") < pl.col("least")).fill_null(value=False)).to_series().to_numpy()
    for n, t, broken in zip(number[new].astype(int).tolist(), at[new].tolist(), damaged[new], strict=True):
        if n not in first:
            first[n] = t
            sound |= set() if broken else {n}
    if fed.height:
        handed = dict(zip(fed["number"].cast(int).to_list(), fed["at"].to_list(), strict=True))
    elif timed:
        # Ignore RTP frames for a browser. It drops some first pictures of its camera, so the number of its first frame
        # is unknown.
        frames = None if cell.pair.pictures.source == "browser" else frames
        handed = _handed(first, frames, fps)
    else:
        handed = {n: low + n / fps for n in range(int(cell.pair.seconds * fps))}
    delays = {n: t - handed[n] for n, t in first.items() if n in handed}
    # Use only undamaged pictures. The mark of a damaged picture may be read as the number of a later picture, whose
    # delay would be too small.
    least = min((t for n, t in delays.items() if n in sound), default=min(delays.values(), default=0.0))
    deadline = cell.pair.rtp.deadline_s
    due = [n for n, t in handed.items() if low <= t < high - least - deadline]
    counted = np.array([delays[n] for n in due if n in delays and first[n] < high])
    if due:
        figures["in_time_frac"] = float((counted <= least + deadline).sum()) / len(due)
        figures["shown_frac"] = len(counted) / len(due)
    if timed and len(counted):
        figures["latency_ms"] = spread(1e3 * counted)
        figures["latency_from"] = (
            "handed over" if fed.height else "first packet" if frames is not None else "the fastest"
        )
    return figures


def _unwrapped(at: F64, number: F64, fps: float, began: float | None) -> F64:
    """Unwrap the picture numbers in marks. Numbers that are impossible at their time become NaN."""
    known = np.isfinite(number)
    if not known.any():
        return number
    # Limit how far a number can be ahead, because a picture can't be displayed before the sender got it.
    ahead = _PLAUSIBLE_S * fps if began is None else 1.0
    if began is None:
        began = float(np.median((at - number / fps)[known]))
    wanted = (at - began) * fps
    number = number + mark.WRAPS * np.round((wanted - number) / mark.WRAPS)
    possible = (number - wanted <= ahead) & (wanted - number <= _PLAUSIBLE_S * fps)
    return np.where(possible, number, np.nan)


def _handed(first: Mapping[int, float], frames: Rtp | None, fps: float) -> dict[int, float]:
    """Estimate when the sender got each picture, from the RTP frames or from the smallest delay.

    The first RTP frame counts as picture 0, and the time stamps identify the other pictures. Without RTP, the smallest
    delay is assumed to be 0.
    """
    begin = min(t - n / fps for n, t in first.items())
    left: dict[int, float] = {}
    if frames is not None:
        origin, start = next(iter(frames.first_s.items()))
        numbers = (round((s - origin) % 2**32 / frames.clock * fps) for s in frames.first_s)
        left = dict(zip(numbers, frames.first_s.values(), strict=True))
        # Discard these times if a picture was displayed before its sending time. Then the first frame was not picture
        # 0.
        left, begin = (left, start) if all(t > left.get(n, 0) for n, t in first.items()) else ({}, begin)
    return {n: left.get(n, begin + n / fps) for n in range(max(first) + 1)}


def _quality(shown: pl.DataFrame, unread: int) -> Figures:
    """Return the quality of the displayed pictures. Each picture counts once.

    ``unread`` is the number of pictures whose mark can't be read. They count as damaged.
    """
    kept = shown.filter(pl.col("psnr").is_not_null())
    if not kept.height:
        return {}
    ssim = kept["ssim"].drop_nulls().to_numpy()
    damaged = (kept["psnr"].to_numpy() < kept["least"].to_numpy()).sum()
    return {
        "psnr_db": float(kept["psnr"].to_numpy().mean()),
        "damaged_frac": (int(damaged) + unread) / (kept.height + unread),
        **({"ssim": float(ssim.mean())} if len(ssim) else {}),
    }


# ---------------------------------------------------------------- browsers


def browser(cell: Cell) -> Figures | None:
    """Score the results of getStats that a browser wrote to `stats.jsonl`, with one line per second."""
    low, high = cell.window
    # Accept any bytes, because a browser that was killed may leave an incomplete character.
    text = (cell.folder / "stats.jsonl").read_text(errors="replace")
    seen = []
    for at, reports in filter(None, map(_stats, text.splitlines())):
        if low <= at - cell.began < high and reports:
            seen.append((at - cell.began, reports[0]))
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    (begin, first), (end, last) = seen[0], seen[-1]
    span = end - begin

    def grown(key: str) -> float:
        return last.get(key, 0.0) - first.get(key, 0.0)

    delays = [
        1e3 * s.get("jitterBufferDelay", 0.0) / s["jitterBufferEmittedCount"]
        for _, s in seen
        if s.get("jitterBufferEmittedCount")
    ]
    freezes = 60 * grown("freezeCount") / span
    return {
        "freezes_per_min": freezes,
        "browser_freezes_per_min": freezes,  # kept in addition to the figure from the marks
        "frozen_frac": grown("totalFreezesDuration") / span,
        "frames_per_s": grown("framesDecoded") / span,
        "dropped_frames": grown("framesDropped"),
        "nack_count": grown("nackCount"),
        "pli_count": grown("pliCount"),
        **({"jitter_buffer_ms": delays[-1]} if delays else {}),
    }


def _stats(line: str) -> tuple[float, list[dict[str, float]]] | None:
    """Parse a line of `stats.jsonl`. Return its time and the numbers of each inbound video."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or (at := number(told.get("t"))) is None:
        return None
    reports = told.get("stats")
    found = []
    for report in reports if isinstance(reports, list) else ():
        if isinstance(report, dict) and (report.get("type"), report.get("kind")) == ("inbound-rtp", "video"):
            values = {key: number(value) for key, value in report.items()}
            found.append({k: v for k, v in values.items() if v is not None and abs(v) < _LARGEST})
    return at, found


# ---------------------------------------------------------------- over time


def series(cell: Cell) -> dict[str, list[Any]]:
    """Return series that have one value for each second of the scored time.

    They are rates in bit/s, and the 95th percentile of the delay in ms.
    """
    low, high = cell.window
    seconds_ = int(high - low)
    came = cell.way().filter(pl.col("arrived_s").is_not_null())
    arrived, bytes_ = came["arrived_s"].to_numpy(), came["bytes"].to_numpy()
    delays = 1e3 * (arrived - came["sent_s"].to_numpy())
    of = np.floor(arrived - low).astype(int)

    def each(times: F64, values: F64) -> list[float | None]:
        at = {round(t - low): float(v) for t, v in zip(times, values, strict=True)}
        return [at.get(n) for n in range(seconds_)]

    gaps = [(a, b) for a, b in pairwise(np.sort(arrived)) if b - a >= _GAP_S and low <= a < high]
    return {
        "rate_bps": [8 * float(bytes_[of == n].sum()) for n in range(seconds_)],
        "delay_ms": [
            float(np.percentile(delays[of == n], 95)) if (of == n).any() else None for n in range(seconds_)
        ],
        "capacity_bps": each(*cell.capacity),
        "tcp_bps": each(*cell.tcp[1:]),
        "gaps_s": [[float(begin - low), float(end - low)] for begin, end in gaps],
    }
