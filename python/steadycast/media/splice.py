"""Builds the stream that reaches one viewer: access units of the chosen quantizers, without the lost bytes."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from steadycast.media.ladder import Ladder
from steadycast.media.table import I64, U8, Bools, FrameTable, Kind

NEVER = np.iinfo(np.int64).max
"""Arrival time of lost frames. Other arrival times are in nanoseconds."""

Quantizers = Sequence[int | tuple[int, ...]]
"""One entry per GOP of a flow. It is the quantizer of the GOP, or a tuple that has the quantizer of each frame.

The frames of a tuple are in coding order.
"""

Holes = Mapping[int, Sequence[tuple[int, int]]]
"""Lost byte ranges [from, to) of access units. The keys are the numbers of the frames."""


class Fate(IntEnum):
    """Whether a frame is usable at a receiver, or why it is not."""

    OK = 0
    LOST = 1
    """At least one packet of the frame is missing."""
    LATE = 2
    """The frame is complete, but it arrived after its display slot."""
    UNDECODABLE = 3
    """The frame is complete, but a frame that it refers to is lost."""


@dataclass(frozen=True, eq=False)
class Fates:
    """Which frames of a flow arrived at one receiver, and when. Frames are in coding order."""

    complete: Bools
    arrival_ns: I64 | None = None
    """When the last packet of each complete frame arrived, on any clock. `None` if no frame is late."""
    play_ns: I64 | None = None
    """When each display slot is played out, on the clock of `arrival_ns`. `None` if no frame is late."""
    holes: Holes = field(default_factory=dict)
    """Lost byte ranges of incomplete frames. An incomplete frame without an entry is lost as a whole."""

    def __post_init__(self) -> None:
        n = len(self.complete)
        for times in (self.arrival_ns, self.play_ns):
            if times is not None and len(times) != n:
                raise ValueError(f"{len(times)} times do not fit {n} frames")
        if any(not 0 <= frame < n or self.complete[frame] for frame in self.holes):
            raise ValueError("only an incomplete frame can have holes")

    @property
    def frames(self) -> int:
        """Number of frames that were sent."""
        return len(self.complete)


def fates(table: FrameTable, told: Fates) -> U8:
    """Return the `Fate` of each frame, in coding order.

    A lost I or P frame makes all later frames of its GOP undecodable. If a frame is both lost and undecodable, it
    counts as lost. If it is both undecodable and late, it counts as undecodable.
    """
    frames = np.arange(told.frames)
    groups = table.group_of(frames)
    breaks = ~told.complete & (table.kinds[frames % table.frames] != Kind.B)
    before = np.cumsum(breaks) - breaks
    opens = (
        np.concatenate([[True], groups[1:] != groups[:-1]]) if len(groups) else np.zeros(0, dtype=np.bool_)
    )
    # Do not count losses from before the GOP.
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
    """Return the frames that the decoder gets if all incomplete and late frames are dropped."""
    there = told.complete
    if told.arrival_ns is not None and told.play_ns is not None:
        slots = table.slot_of(np.arange(told.frames))
        play = told.play_ns[np.minimum(slots, told.frames - 1)]
        there = there & ((told.arrival_ns <= play) | (slots >= told.frames))
    return Fates(there)


def shown_frames(arrival_times: I64, play_times: I64) -> I64:
    """Return which frame is on screen in each display slot, as an index. It is −1 before the first frame.

    Slot k shows the newest frame up to k that was complete at ``play_times[k]``. Both arrays are in display order.
    Their times are in nanoseconds on the same clock. A lost frame has the arrival time `NEVER`.
    """
    slots = len(play_times)
    frames = np.arange(min(len(arrival_times), slots))
    arrivals = arrival_times[: len(frames)]
    # Make the play times ascending, because `searchsorted` needs this. They may descend after an increase of the
    # play-out delay. A B frame may then have a later play time than the reference frame that is displayed next.
    later = np.searchsorted(np.maximum.accumulate(play_times), arrivals, side="left")
    # Show a late frame in the first later slot whose play time is not before the frame's arrival.
    first = np.where(arrivals <= play_times[: len(frames)], frames, np.maximum(later, frames + 1))
    seen = (first < slots) & (arrivals != NEVER)
    newest = np.full(slots, -1, dtype=np.int64)
    np.maximum.at(newest, first[seen], frames[seen])
    return np.asarray(np.maximum.accumulate(newest), dtype=np.int64)


def on_screen(table: FrameTable, told: Fates, decoded: Bools) -> I64:
    """Return which frame is on screen in each display slot, as the frame's own slot.

    It is −1 before the first frame. ``decoded`` is true for the slots whose frame was decoded.
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
    """An access unit that the decoder gets."""

    slot: int
    """Display slot of the frame, counted from the start of the flow."""
    data: bytes


def first_of(chosen: int | tuple[int, ...]) -> int:
    """Return the quantizer of the first frame of a GOP."""
    return chosen if isinstance(chosen, int) else chosen[0]


def units(ladder: Ladder, chosen_q: Quantizers, told: Fates | None, groups: range) -> Iterator[Unit]:
    """Yield the access units of these GOPs.

    With ``told``, frames that did not arrive are left out, and lost bytes are replaced by zeros.
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
                # Put the new quantizer's parameter sets first, because the quantizers in the slices are relative to
                # them.
                head = parameter_sets(ladder, q) if q != last else b""
                last = q
                yield Unit(int(table.slot_of(frame)), head + data)


_SETS = {"h264": lambda first: first & 31 in (7, 8), "h265": lambda first: first >> 1 & 63 in (32, 33, 34)}
"""Functions that return whether a NAL unit is a parameter set. The argument is the NAL unit's first byte."""


def parameter_sets(ladder: Ladder, q: int) -> bytes:
    """Return the parameter sets of quantizer ``q``, which are in its first access unit.

    Returns no bytes for codecs other than H.264 and H.265.
    """
    is_set = _SETS.get(ladder.codec.name)
    if is_set is None:
        return b""
    nals = re.split(rb"\x00*\x00\x00\x01", ladder.rung(q).unit(0))
    return b"".join(b"\x00\x00\x00\x01" + nal for nal in nals if nal and is_set(nal[0]))


def _with_holes(data: bytes, holes: Sequence[tuple[int, int]], codec: str) -> bytes | None:
    """Return the usable part of a damaged access unit, as `wire::payload::Depacketiser` does.

    VP8 and VP9 use the part before the first hole. AV1 uses nothing, because its OBUs do not contain their size when
    they are sent. For other codecs, lost bytes become zeros, and a hole at the end is cut off.
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
    """Divide the flow into ranges of GOPs that must be decoded together.

    A range begins at each GOP that has a complete I frame, and at the first GOP of the flow.
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
    """Return a key for the decoded pictures of a segment.

    Segments that have equal pictures have equal keys, even in different flows and at different receivers.
    """
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
