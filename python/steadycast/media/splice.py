"""Splices the stream that reaches one viewer: access units of the chosen quantizers, without the lost bytes."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from steadycast.media.ladder import Ladder
from steadycast.media.table import I64, U8, Bools, FrameTable, Kind

NEVER = np.iinfo(np.int64).max
"""The arrival time of lost frames, in nanoseconds."""

Quantizers = Sequence[int | tuple[int, ...]]
"""The quantizers of each GOP of a flow, or of its frames in coding order."""

Holes = Mapping[int, Sequence[tuple[int, int]]]
"""The lost byte ranges [from, to) of each frame's access unit, by frame number."""


class Fate(IntEnum):
    """What became of a frame at one receiver."""

    OK = 0
    LOST = 1
    """At least one packet is missing."""
    LATE = 2
    """Complete, but arrived after its display slot."""
    UNDECODABLE = 3
    """Complete, but a reference frame is lost."""


@dataclass(frozen=True, eq=False)
class Fates:
    """The arrival of a flow's frames at one receiver, in coding order."""

    complete: Bools
    arrival_ns: I64 | None = None
    """Arrival of each complete frame's last packet, on any clock; `None` if nothing is late."""
    play_ns: I64 | None = None
    """Play-out time of each display slot, on the same clock; `None` if nothing is late."""
    holes: Holes = field(default_factory=dict)
    """The lost byte ranges of incomplete frames; without an entry, the whole frame is lost."""

    def __post_init__(self) -> None:
        n = len(self.complete)
        for times in (self.arrival_ns, self.play_ns):
            if times is not None and len(times) != n:
                raise ValueError(f"{len(times)} times do not fit {n} frames")
        if any(not 0 <= frame < n or self.complete[frame] for frame in self.holes):
            raise ValueError("only an incomplete frame can have holes")

    @property
    def frames(self) -> int:
        """The number of frames sent."""
        return len(self.complete)


def fates(table: FrameTable, told: Fates) -> U8:
    """Return the `Fate` of each frame, in coding order.

    A lost I or P frame makes all later frames of its GOP undecodable. A frame that is both lost and undecodable counts
    as lost; a frame that is both undecodable and late counts as undecodable.
    """
    frames = np.arange(told.frames)
    groups = table.group_of(frames)
    breaks = ~told.complete & (table.kinds[frames % table.frames] != Kind.B)
    before = np.cumsum(breaks) - breaks
    opens = (
        np.concatenate([[True], groups[1:] != groups[:-1]]) if len(groups) else np.zeros(0, dtype=np.bool_)
    )
    # Losses before the GOP don't count.
    broken = before > np.maximum.accumulate(np.where(opens, before, 0))
    result = np.full(told.frames, Fate.OK, dtype=np.uint8)
    if told.arrival_ns is not None and told.play_ns is not None:
        slots = table.slot_of(frames)
        within = slots < len(told.play_ns)
        late = within & (told.arrival_ns > told.play_ns[np.minimum(slots, len(told.play_ns) - 1)])
        result[late] = Fate.LATE
    result[broken] = Fate.UNDECODABLE
    result[~told.complete] = Fate.LOST
    return result


def left_out(table: FrameTable, told: Fates) -> Fates:
    """Return the decoder's input if all incomplete and late frames are dropped."""
    there = told.complete
    if told.arrival_ns is not None and told.play_ns is not None:
        slots = table.slot_of(np.arange(told.frames))
        play = told.play_ns[np.minimum(slots, told.frames - 1)]
        there = there & ((told.arrival_ns <= play) | (slots >= told.frames))
    return Fates(there)


def shown_frames(arrival_times: I64, play_times: I64) -> I64:
    """Return the index of the frame on screen at each display slot; −1 before the first.

    Slot k shows the newest frame up to k that was complete by ``play_times[k]``. Both arrays are in display order and
    in nanoseconds on the same clock; a lost frame arrives at `NEVER`.
    """
    slots = len(play_times)
    frames = np.arange(min(len(arrival_times), slots))
    arrivals = arrival_times[: len(frames)]
    # `searchsorted` needs sorted play times. After an increase of the play-out delay, a B frame may have a later play
    # time than the reference frame that is displayed next.
    later = np.searchsorted(np.maximum.accumulate(play_times), arrivals, side="left")
    # A late frame is shown at the first later slot whose play time is not before its arrival.
    first = np.where(arrivals <= play_times[: len(frames)], frames, np.maximum(later, frames + 1))
    seen = (first < slots) & (arrivals != NEVER)
    newest = np.full(slots, -1, dtype=np.int64)
    np.maximum.at(newest, first[seen], frames[seen])
    return np.asarray(np.maximum.accumulate(newest), dtype=np.int64)


def on_screen(table: FrameTable, told: Fates, decoded: Bools) -> I64:
    """Return the slot of the frame on screen at each display slot; −1 before the first.

    ``decoded`` marks the slots whose frame was decoded.
    """
    slots = table.slot_of(np.arange(told.frames))
    arrivals = np.full(told.frames, NEVER, dtype=np.int64)
    there = slots < told.frames
    times = np.zeros(told.frames, dtype=np.int64) if told.arrival_ns is None else told.arrival_ns
    usable = there & decoded[np.minimum(slots, told.frames - 1)]
    arrivals[slots[usable]] = times[usable]
    if told.arrival_ns is None or told.play_ns is None:
        arrivals[slots[usable]] = 0
        return shown_frames(arrivals, np.zeros(told.frames, dtype=np.int64))
    return shown_frames(arrivals, told.play_ns)


@dataclass(frozen=True)
class Unit:
    """An access unit at the decoder's input."""

    slot: int
    """The display slot in the flow."""
    data: bytes


def first_of(chosen: int | tuple[int, ...]) -> int:
    """Return the quantizer of a GOP's first frame."""
    return chosen if isinstance(chosen, int) else chosen[0]


def units(ladder: Ladder, chosen_q: Quantizers, told: Fates | None, groups: range) -> Iterator[Unit]:
    """Yield the access units of these GOPs.

    With ``told``, only frames that arrived are included; lost bytes are replaced by zeros.
    """
    table = ladder.table
    for group in groups:
        chosen = chosen_q[group]
        span = table.span(group)
        last = first_of(chosen)
        for frame in span:
            q = chosen if isinstance(chosen, int) else chosen[frame - span.start]
            rung = ladder.rung(q)
            data: bytes | None = None
            if told is None:
                data = rung.unit(frame % table.frames)
            elif frame >= told.frames:
                break
            elif told.complete[frame]:
                data = rung.unit(frame % table.frames)
            elif frame in told.holes:
                data = _with_holes(rung.unit(frame % table.frames), told.holes[frame], ladder.codec.name)
            if data:
                # Slice quantizers are relative to the parameter sets, so a new rung's parameter sets come first.
                head = parameter_sets(ladder, q) if q != last else b""
                last = q
                yield Unit(int(table.slot_of(frame)), head + data)


_SETS = {"h264": lambda first: first & 31 in (7, 8), "h265": lambda first: first >> 1 & 63 in (32, 33, 34)}
"""Whether a NAL unit's first byte is that of a parameter set."""


def parameter_sets(ladder: Ladder, q: int) -> bytes:
    """Return the parameter sets in a rung's first access unit of H.264 or H.265; else empty."""
    is_set = _SETS.get(ladder.codec.name)
    if is_set is None:
        return b""
    nals = re.split(rb"\x00*\x00\x00\x01", ladder.rung(q).unit(0))
    return b"".join(b"\x00\x00\x00\x01" + nal for nal in nals if nal and is_set(nal[0]))


def _with_holes(data: bytes, holes: Sequence[tuple[int, int]], codec: str) -> bytes | None:
    """Return the usable part of a damaged access unit, as in `wire::payload::Depacketiser`.

    VP8 and VP9 keep the part before the first hole. AV1 keeps nothing, because its OBUs have no size on the wire. For
    other codecs the lost bytes are zeros, and a hole at the end is removed.
    """
    if codec == "av1":
        return None
    if codec in ("vp8", "vp9"):
        return data[: max(0, min(start for start, _ in holes))]
    whole = bytearray(data)
    for start, end in sorted(holes, reverse=True):
        start, end = max(0, start), min(len(data), end)
        if start >= end:
            continue
        if end >= len(whole):
            del whole[start:]
        else:
            whole[start:end] = bytes(end - start)
    return bytes(whole)


def segments(ladder: Ladder, told: Fates) -> list[range]:
    """Divide the flow into runs of GOPs that must be decoded together.

    Only a run's first GOP has a complete I frame.
    """
    table = ladder.table
    starts = [
        group
        for group in range(table.groups_in(told.frames))
        if group == 0 or told.complete[table.span(group).start]
    ]
    ends = [*starts[1:], table.groups_in(told.frames)] if starts else []
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def segment_key(ladder: Ladder, chosen_q: Quantizers, told: Fates, groups: range) -> tuple[object, ...]:
    """Return a key that is equal for segments with equal decoded pictures, of any flow or receiver."""
    table = ladder.table
    first, last = table.span(groups.start).start, min(table.span(groups.stop - 1).stop, told.frames)
    part = told.complete[first:last]
    clip_groups = tuple((group % table.gops, chosen_q[group]) for group in groups)
    if part.all() and last == table.span(groups.stop - 1).stop:
        return ("whole", *clip_groups)
    digest = hashlib.sha256(part.tobytes())
    for frame in range(first, last):
        if frame in told.holes:
            digest.update(f"{frame - first}:{sorted(told.holes[frame])};".encode())
    return ("part", *clip_groups, last - first, digest.digest())
