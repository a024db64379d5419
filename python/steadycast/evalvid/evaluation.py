"""Evaluates video that was sent over a network outside Steadycast.

The results are which frames arrived, which pictures were on screen, and the quality of these pictures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steadycast import files, received
from steadycast.errors import UserError
from steadycast.evalvid.clip import EncodedClip, decoded_slots
from steadycast.evalvid.matching import Exchange
from steadycast.lazy_import import pl
from steadycast.media import metrics
from steadycast.media.clip import opened, resampled
from steadycast.media.metrics import Picture
from steadycast.media.quality import need_by
from steadycast.media.sender_trace import TracedFrame
from steadycast.media.splice import NEVER, shown_frames
from steadycast.media.table import F64, I64, U8, Bools
from steadycast.media.yuv import Layout

if TYPE_CHECKING:
    from rich.table import Table

    from steadycast.folder import Json
    from steadycast.progress import Progress

FATES = ("received", "lost", "late", "never sent")
_MOST_SHOWN = 3
"""The largest number of frames that a warning lists."""


@dataclass(frozen=True, eq=False)
class Frames:
    """Whether and when each frame of a clip was sent and arrived. Frames are in coding order."""

    kinds: tuple[str, ...]
    sizes: I64
    packets: I64
    """Number of packets of each frame."""
    sent_ns: I64
    """When the first packet of each frame was sent. It is `NEVER` if no packet was sent."""
    arrival_ns: I64
    """When the last packet of each frame arrived. It is `NEVER` if a packet was lost."""
    late: Bools
    """Whether all packets of each frame arrived, but after its play-out time."""
    beyond: int
    """Number of packets that were sent after the packets of the last frame."""

    @property
    def count(self) -> int:
        """Number of frames up to the last frame that has a sent packet."""
        there = np.flatnonzero(self.sent_ns != NEVER)
        return int(there[-1]) + 1 if len(there) else 0

    @property
    def received(self) -> Bools:
        """Whether all packets of each frame arrived in time."""
        return np.asarray((self.arrival_ns != NEVER) & ~self.late, dtype=np.bool_)

    @property
    def fates(self) -> list[str]:
        """What happened to each frame: one of `FATES`."""
        lost = self.arrival_ns == NEVER
        fate = np.where(self.sent_ns == NEVER, 3, np.where(lost, 1, np.where(self.late, 2, 0)))
        return [FATES[n] for n in fate]


def frames_of(
    traced: Sequence[TracedFrame], packets: Exchange, playout_ns: int | None = None
) -> tuple[Frames, list[str]]:
    """Assign packets to frames in the order of sending. Return the frames with their arrivals, and warnings.

    Args:
        traced: the frames in the order of sending. Each has its number of packets.
        packets: the packets and their arrivals.
        playout_ns: time from the sending of a frame's first packet to its play-out. Without it, no frame is late.

    Raises:
        UserError: ``playout_ns`` is given, but the clocks of sender and receiver differ.

    """
    if playout_ns is not None and min(packets.delays_ns, default=0) < 0:
        raise UserError(
            "--playout",
            "packets arrive before they were sent: the clocks of the two ends differ",
            "give the receiver's clock less the sender's as --clock-offset SECONDS, or leave --playout out",
        )
    n = len(traced)
    counts = np.array([frame.packets for frame in traced], dtype=np.int64)
    sent, arrival = np.full(n, NEVER, dtype=np.int64), np.full(n, NEVER, dtype=np.int64)
    small: list[int] = []
    for place, (first, last) in enumerate(pairwise([0, *np.cumsum(counts).tolist()])):
        mine = packets.packets[first:last]
        # Stop, because there are no packets for this frame and the later frames.
        if not mine:
            break
        sent[place] = mine[0].time_ns
        arrived = [packet.arrival_ns for packet in mine if packet.arrival_ns is not None]
        if len(arrived) == counts[place]:
            arrival[place] = max(arrived)
        carried = [packet.size for packet in mine if packet.size is not None]
        if len(carried) == counts[place] and sum(carried) < traced[place].size_bytes:
            small.append(place)
    late = np.zeros(n, dtype=np.bool_)
    if playout_ns is not None:
        there = arrival != NEVER
        late[there] = arrival[there] - sent[there] > playout_ns
    sizes = np.array([frame.size_bytes for frame in traced], dtype=np.int64)
    beyond = max(0, len(packets.packets) - int(counts.sum()))
    frames = Frames(tuple(f.kind.name for f in traced), sizes, counts, sent, arrival, late, beyond)
    return frames, _doubts(frames, small, len(packets.packets))


def _doubts(frames: Frames, small: list[int], sent: int) -> list[str]:
    said = []
    if small:
        places = ", ".join(map(str, small[:_MOST_SHOWN]))
        said.append(
            f"the packets of {len(small)} frames are smaller than the frames (frame {places} …): "
            "do both traces belong to this clip?"
        )
    if frames.beyond:
        said.append(f"{frames.beyond} packets were sent after those of the last frame, and belong to none")
    if sent < (needed := int(frames.packets.sum())):
        said.append(
            f"{sent} packets were sent, and the {len(frames.kinds)} frames have {needed}: "
            f"only the first {frames.count} frames are measured"
        )
    return said


def by_payload(clip: EncodedClip, most_bytes: int) -> list[TracedFrame]:
    """Return a clip's frames for a sender that puts at most ``most_bytes`` bytes of a frame into a packet."""
    step = 1 / float(clip.fps)
    return [
        TracedFrame(0, kind, len(unit), math.ceil(len(unit) / most_bytes), place * step)
        for place, (kind, unit) in enumerate(zip(clip.kinds, clip.units, strict=True))
    ]


def check_trace(clip: EncodedClip, traced: Sequence[TracedFrame], path: Path) -> list[str]:
    """Return warnings about differences between a sender trace and a clip.

    Raises:
        UserError: the trace and the clip have different numbers of frames.

    """
    if len(traced) != len(clip.units):
        what = f"it has {len(traced)} frames, {clip.path.name} {len(clip.units)}"
        raise UserError(str(path), what, "give the clip that the trace was made of")
    kinds = [n for n, frame in enumerate(traced) if frame.kind != clip.kinds[n]]
    said = []
    if kinds:
        first = kinds[0]
        said.append(
            f"{path}: the type of {len(kinds)} frames differs from the clip's (frame {first} is "
            f"{clip.kinds[first].name} there): is it the clip that the trace was made of?"
        )
    return said


@dataclass(frozen=True, eq=False)
class Seen:
    """The pictures on screen and their quality. Each array has one entry for each display slot."""

    shown: I64
    """The slot of the picture that is on screen. It is −1 while the screen is black before the first picture."""
    against_sent: F64
    """PSNR of Y, U and V in dB, compared with the encoded pictures. It is infinite for identical pictures."""
    against_original: F64 | None
    """PSNR of Y, U and V in dB, compared with the original pictures. It is `None` without an original."""
    sent: F64 | None
    """Luma PSNR of the encoded pictures in dB, compared with the original. It is `None` without an original."""
    ssim: F64
    """SSIM of luma, compared with the original pictures or, without an original, with the encoded pictures."""
    warnings: tuple[str, ...]

    @property
    def classes(self) -> U8:
        """Opinion scores from the PSNR against the original or, without an original, against the encoded pictures."""
        psnr = self.against_sent if self.against_original is None else self.against_original
        return metrics.opinion_classes(psnr[:, 0])

    @property
    def sent_classes(self) -> U8:
        """Opinion scores of the encoded pictures, as if no packet were lost."""
        return metrics.opinion_classes(np.full(len(self.shown), np.inf) if self.sent is None else self.sent)


def on_screen(clip: EncodedClip, frames: Frames, by: str, playout_ns: int | None) -> tuple[I64, list[int]]:
    """Return which picture is on screen in each display slot, and the frames that the decoder receives.

    A picture is represented by its own slot, which is earlier than the display slot if the picture is shown late.

    With `by` "time", the decoder also receives late frames, because other frames refer to them. Their pictures are
    shown late.

    With "index", the decoder receives neither late nor lost frames. The pictures follow one another without a gap.
    """
    n = frames.count
    arrived = frames.arrival_ns[:n] != NEVER
    given = np.flatnonzero(arrived if by == "time" else arrived & ~frames.late[:n]).tolist()
    pictures = [slot for slot, _ in decoded_slots(clip, given)]
    if by == "index":
        return np.array(sorted(pictures), dtype=np.int64), given
    slots = np.array([clip.slots[frame] for frame in range(n)], dtype=np.int64)
    arrivals, play = np.full(n, NEVER, dtype=np.int64), np.zeros(n, dtype=np.int64)
    has_picture = np.isin(slots, np.array(pictures, dtype=np.int64))
    for frame in np.flatnonzero(has_picture & (slots < n)).tolist():
        arrivals[slots[frame]] = 0 if playout_ns is None else frames.arrival_ns[frame]
    if playout_ns is not None:
        within = (slots < n) & (frames.sent_ns[:n] != NEVER)
        play[slots[within]] = frames.sent_ns[:n][within] + playout_ns
        play = np.maximum.accumulate(play)
    return shown_frames(arrivals, play), given


def measure(
    clip: EncodedClip,
    shown: I64,
    given: Sequence[int],
    original: Path | None,
    pixels: str | None,
    progress: Progress,
    put: Callable[[Picture], None] | None = None,
) -> Seen:
    """Compare the pictures on screen with the encoded and the original pictures. Call ``put`` with each picture."""
    rows: list[tuple[Any, ...]] = []
    came = _Newest(decoded_slots(clip, given), clip)
    sent = _Newest(decoded_slots(clip, range(len(clip.units))), clip)
    originals = None if original is None else _original(original, clip, pixels)
    warnings: list[str] = []
    for slot, on in enumerate(shown.tolist()):
        theirs, ours = came.at(on), sent.at(slot)
        if put is not None:
            put(theirs)
        row: tuple[Any, ...] = (*metrics.picture_psnr_db(theirs, ours),)
        raw = None if originals is None else next(originals, None)
        if originals is not None and raw is None:
            warnings.append(f"{original} ends after {slot} pictures: only these are measured")
            shown = shown[:slot]
            break
        if raw is not None:
            row = (*row, *metrics.picture_psnr_db(theirs, raw), metrics.psnr_db(ours.y, raw.y))
        rows.append((*row, metrics.picture_ssim(theirs, ours if raw is None else raw)))
        if slot % 16 == 0:
            progress("measuring", slot, len(shown))
    if not rows:
        raise UserError(str(clip.path), "no picture was received", "give the traces of a longer time")
    values = np.array(rows, dtype=np.float64)
    has_original = originals is not None
    return Seen(
        shown,
        values[:, :3],
        values[:, 3:6] if has_original else None,
        values[:, 6] if has_original else None,
        values[:, -1],
        tuple(warnings),
    )


class _Newest:
    """Reads a decoder's pictures in ascending order of their slots."""

    def __init__(self, pictures: Iterator[tuple[int, Picture]], clip: EncodedClip) -> None:
        self.pictures = pictures
        self.held: dict[int, Picture] = {-1: Picture.black(clip.width, clip.height)}

    def at(self, slot: int) -> Picture:
        """Return the picture of a slot. A later call must not ask for an earlier slot."""
        while slot not in self.held:
            place, picture = next(self.pictures)
            self.held[place] = picture
        for earlier in [each for each in self.held if each < slot]:
            del self.held[earlier]
        return self.held[slot]


def _original(path: Path, clip: EncodedClip, pixels: str | None) -> Iterator[Picture]:
    told = Layout((clip.width, clip.height), clip.fps, pixels)
    with opened(path, told) as reader:
        timed = reader.pictures(clip.width, clip.height)
        for samples in resampled(timed, clip.fps, reader.length):
            yield Picture.of(samples, clip.width, clip.height)


def worst_interval(classes: U8, sent_classes: U8, interval: int) -> tuple[float, int]:
    """Return `miv` and the first frame of the interval for which `miv` is reached.

    `miv` is the largest fraction of worsened frames in ``interval`` consecutive frames. A frame is worsened if its
    opinion score is lower as received than as sent.
    """
    worse = np.concatenate([[0], np.cumsum(classes < sent_classes)])
    length = min(interval, len(classes))
    shares = (worse[length:] - worse[:-length]) / length
    place = int(np.argmax(shares))
    return float(shares[place]), place


def as_json(packets: Exchange, frames: Frames, seen: Seen, interval: int) -> Json:
    """Return the results: counts, delays in ms, PSNR in dB, and opinion scores from 1 to 5."""
    by_fate = {fate: Counter[str]() for fate in FATES}
    for kind, fate in zip(frames.kinds, frames.fates, strict=True):
        by_fate[fate][kind] += 1
    delays = np.array(packets.delays_ns) / 1e6
    known = len(delays) > 0 and delays.min() >= 0
    miv, begin = worst_interval(seen.classes, seen.sent_classes, interval)
    psnr = {"raw": seen.against_original, "encoded": seen.against_sent}
    return {
        "packets": {
            "sent": len(packets.packets),
            "received": len(packets.delays_ns),
            "lost": dict(packets.lost),
            "unmatched": {
                **packets.unmatched,
                **({"beyond the last frame": frames.beyond} if frames.beyond else {}),
            },
            "matched_by": packets.matched_by,
        },
        "delay_ms": {
            name: float(np.percentile(delays, q)) for name, q in (("p50", 50), ("p95", 95), ("max", 100))
        }
        if known
        else None,
        "frames": {fate: {"all": c.total(), **c} for fate, c in by_fate.items()},
        "measured_frames": len(seen.shown),
        "psnr_db": {
            name: None if values is None else {p: metrics.mean_db(values[:, i]) for i, p in enumerate("yuv")}
            for name, values in psnr.items()
        },
        "ssim": float(seen.ssim.mean()),
        "mos": {
            "against": "the encoded video" if seen.sent is None else "the original",
            "mean": float(seen.classes.mean()),
            "share": {str(n): float((seen.classes == n).mean()) for n in range(1, 6)},
            "sent_mean": float(seen.sent_classes.mean()),
        },
        "miv": {"largest_frac": miv, "interval_frames": min(interval, len(seen.shown)), "from_frame": begin},
    }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All results of the evaluation of a received video."""

    clip: EncodedClip
    packets: Exchange
    frames: Frames
    seen: Seen
    interval: int
    """Number of frames in an interval of `miv`."""
    warnings: tuple[str, ...]

    def json(self) -> Json:
        """Return the results in the form of `as_json`."""
        return as_json(self.packets, self.frames, self.seen, self.interval)

    def frame_table(self) -> pl.DataFrame:
        """Return a table that has a row for each display slot."""
        clip, frames, seen = self.clip, self.frames, self.seen
        n = len(seen.shown)
        frame_in = {slot: frame for frame, slot in enumerate(clip.slots)}
        order = [frame_in[slot] for slot in range(n)]
        fates = frames.fates
        # Count times from the sending of the first frame.
        origin = int(frames.sent_ns[frames.sent_ns != NEVER].min())

        def seconds(times: I64) -> list[float | None]:
            return [None if times[f] == NEVER else (int(times[f]) - origin) / 1e9 for f in order]

        columns: dict[str, Any] = {
            "frame": np.arange(n),
            "time_s": np.arange(n) / float(clip.fps),
            "type": [frames.kinds[f] for f in order],
            "bytes": frames.sizes[order],
            "packets": frames.packets[order],
            "fate": [fates[f] for f in order],
            "sent_s": seconds(frames.sent_ns),
            "arrived_s": seconds(frames.arrival_ns),
            "shown": seen.shown,
            "psnr_sent_y_db": metrics.capped(seen.against_sent[:, 0]),
            "ssim": seen.ssim,
            "mos": seen.classes,
            "sent_mos": seen.sent_classes,
        }
        if seen.against_original is not None:
            columns["psnr_y_db"] = metrics.capped(seen.against_original[:, 0])
        return pl.DataFrame(columns)

    def histogram(self) -> pl.DataFrame:
        """Return the table `hist`: numbers and fractions of frames, by PSNR in steps of 1 dB and by opinion score."""
        seen = self.seen
        rows: list[tuple[str, float, float, int]] = []
        edges = np.arange(0, metrics.PSNR_CAP_DB + 1)
        for name, psnr in (("psnr_y_db", seen.against_original), ("psnr_sent_y_db", seen.against_sent)):
            if psnr is not None:
                values = np.floor(metrics.capped(psnr[:, 0]))
                rows += [(name, float(low), float(low + 1), int((values == low).sum())) for low in edges]
        rows += [("mos", float(n), float(n), int((seen.classes == n).sum())) for n in range(1, 6)]
        table = pl.DataFrame(rows, schema=["figure", "from", "below", "frames"], orient="row")
        share = pl.col("frames") / pl.col("frames").sum().over("figure")
        return table.with_columns(
            share.alias("share"), share.cum_sum().over("figure").alias("cumulative_share")
        )


def evaluate(
    clip: EncodedClip,
    traced: Sequence[TracedFrame],
    packets: Exchange,
    *,
    original: Path | None = None,
    pixels: str | None = None,
    playout_ns: int | None = None,
    by: str = "time",
    interval: int | None = None,
    video: Path | None = None,
    progress: Progress,
) -> Evaluation:
    """Measure what a receiver saw, and save the pictures if ``video`` is given.

    Args:
        clip: the encoded video.
        traced: the frames and their numbers of packets, from `read_sender_trace` or `by_payload`.
        packets: the packets that were sent, in their order, and their arrivals.
        original: the raw video. Without it, pictures are compared only with the encoded video.
        pixels: FFmpeg's name for the pixel format of the original, if the original is a `.yuv` file.
        playout_ns: the play-out limit, as for `frames_of`. Without it, no frame is late.
        by: one of `media.quality.BY`.
        interval: the number of frames in an interval of `miv`. By default, an interval lasts for one second.
        video: the file to which the pictures on screen are saved.
        progress: callback that receives the number of finished frames.

    """
    need_by(by)
    frames, doubts = frames_of(traced, packets, playout_ns)
    if not frames.count:
        raise UserError(str(clip.path), "no frame of it was sent", "give the trace of its sender")
    shown, given = on_screen(clip, frames, by, playout_ns)
    if not len(shown):
        raise UserError(str(clip.path), "none of its frames was received", "there is nothing to see")
    with _saved(clip, video, len(shown)) as put:
        seen = measure(clip, shown, given, original, pixels, progress, put)
    told = (*clip.warnings, *packets.notes, *doubts, *seen.warnings)
    return Evaluation(clip, packets, frames, seen, interval or round(clip.fps) or 1, told)


@contextmanager
def _saved(clip: EncodedClip, target: Path | None, count: int) -> Iterator[Callable[[Picture], None] | None]:
    if target is None:
        yield None
        return
    if received.checked(target).suffix == "":
        endings = ", ".join(received.ENDINGS)
        raise UserError(f"--save-video {target}", "one video is a file", f"end its name in {endings}")
    pictures = islice(decoded_slots(clip, range(len(clip.units))), received.SAMPLE)
    sample = [picture for _, picture in pictures]
    received.need_room(target, received.estimated_bytes(target, sample, clip.fps, count))
    with (
        files.whole(target, received.ANOTHER) as new,
        received.writer(target, new, clip.width, clip.height, clip.fps) as put,
    ):
        yield put


def table(evaluation: Evaluation) -> Table:
    """Return a table of the results for the terminal."""
    from steadycast.report import say, terminal

    told = evaluation.json()
    psnr = {name: say.db(planes and planes["y"]) for name, planes in told["psnr_db"].items()}
    result = terminal.plain(*FATES, "PSNR", "against sent", "SSIM", "MOS", "miv")
    frames = [str(told["frames"][fate]["all"]) for fate in FATES]
    mos, miv = say.score(told["mos"]["mean"]), say.frac(told["miv"]["largest_frac"])
    result.add_row(*frames, psnr["raw"], psnr["encoded"], say.plain(told["ssim"]), mos, miv)
    return result


def sentences(evaluation: Evaluation) -> list[str]:
    """Describe how many packets arrived, why others did not, and the delays."""
    from steadycast.report import say

    told = evaluation.json()["packets"]
    counted = ", ".join(f"{count} {why}" for why, count in told["lost"].items())
    said = [f"packets: {told['sent']} sent, {told['received']} received{counted and ', ' + counted}"]
    if told["unmatched"]:
        said.append("beside them: " + ", ".join(f"{count} {why}" for why, count in told["unmatched"].items()))
    delay = evaluation.json()["delay_ms"]
    if delay is None:
        said.append(
            "delay: unknown: packets arrive before they were sent, by clocks that differ; --clock-offset"
        )
    else:
        said.append("delay: " + ", ".join(f"{name} {say.ms(value)}" for name, value in delay.items()))
    return said
