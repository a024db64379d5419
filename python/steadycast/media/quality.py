"""Measures the picture quality of a flow at one receiver, for each display slot."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any

import numpy as np

from steadycast.errors import UserError
from steadycast.media import metrics, splice
from steadycast.media.decode import decode_units
from steadycast.media.ladder import Ladder
from steadycast.media.metrics import Picture
from steadycast.media.scores import EncodedScores, Score
from steadycast.media.splice import Fates, Quantizers
from steadycast.media.table import F64, I64, U8, Bools, FrameTable
from steadycast.media.vmaf import vmaf
from steadycast.workers import cores

Planes = tuple[float | None, float | None, float | None]

BY = ("time", "index")
"""The ways to choose the received picture that an original frame is compared with.

"time" chooses the picture that is on screen in the frame's slot. "index" chooses the picture that has the frame's
number in the decoder's output. A missing frame then shifts all later pictures (`left_out`).
"""


def need_by(by: str) -> None:
    """Raise an error if ``by`` is not in `BY`."""
    if by not in BY:
        problem = "this is not a way to pair frames"
        raise UserError(f"--by {by}", problem, f"take {' or '.join(BY)}")


_TOLD_EVERY = 4
"""Number of slots between two calls of the progress callback."""
_PIXELS_HELD = 256 << 20
"""Size limit of the cache of decoded pictures, in bytes. Another receiver may need the same pictures.

The two newest segments are kept even if they exceed the limit.
"""


@dataclass(frozen=True, eq=False)
class Quality:
    """The picture quality at a receiver, for each display slot. The PSNR of identical pictures is infinite."""

    fps: Fraction
    """Display slots per second."""
    shown: I64
    """Slot of the frame that is on screen. It is −1 before the first frame, while the screen is black."""
    psnr_raw: F64
    """PSNR of Y, U, V in dB. The reference is the source's picture."""
    psnr_encoded: F64
    """PSNR of Y, U, V in dB. The reference is the encoder's reconstructed picture."""
    ssim: F64
    """SSIM of luma. The reference is the source's picture."""
    mos: U8
    """Opinion score from 1 to 5, from the luma PSNR in `psnr_raw`."""
    coded: F64
    """PSNR of the luma that the encoder reconstructed, also for frames that did not arrive.

    The reference is the source's picture.
    """
    vmaf: float | None = None
    """Mean VMAF, or `None` if it was not measured. The reference is the source's picture."""

    def where(self, part: Bools) -> "Quality":
        """Return the quality of the slots for which ``part`` is true."""
        per_slot = ("shown", "psnr_raw", "psnr_encoded", "ssim", "mos", "coded")
        return replace(self, vmaf=None, **{name: getattr(self, name)[part] for name in per_slot})

    def figures(self) -> dict[str, float | None]:
        """Return the mean values of PSNR, SSIM and opinion score. The keys are their paths in a receiver's summary."""
        return metrics.figures(self.psnr_raw, self.psnr_encoded, self.ssim, self.mos)

    def mean_psnr_raw(self) -> Planes:
        """Return the mean PSNR of Y, U and V in dB, as computed by `metrics.mean_db`. The reference is the source."""
        y, u, v = (metrics.mean_db(self.psnr_raw[:, plane]) for plane in range(3))
        return y, u, v

    def mean_ssim(self) -> float | None:
        """Return the mean SSIM over all slots."""
        return float(self.ssim.mean()) if len(self.ssim) else None

    def mean_coding(self) -> float | None:
        """Return the mean opinion score of the encoder's pictures, from 1 to 5. It does not depend on losses."""
        return float(metrics.opinions(self.coded).mean()) if len(self.coded) else None


@dataclass(frozen=True)
class Shown:
    """The pictures of one display slot."""

    raw: Picture
    encoded: Picture
    received: Picture


def evaluate(
    media: Ladder | FrameTable,
    chosen_q: Quantizers,
    told: Fates,
    *,
    by: str = "time",
    with_vmaf: bool = False,
    vmaf_from: int = 0,
    vmaf_of: Bools | None = None,
    slots_done: Callable[[int, int], None] | None = None,
) -> Quality | None:
    """Decode a receiver's stream, and measure its quality for each slot.

    Returns `None` if the media have no pictures. ``chosen_q`` are the quantizers of the flow's GOPs or frames. ``by``
    is one of `BY`. Receivers and parts of flows that have the same losses are measured only once. VMAF is measured for
    the slots from ``vmaf_from`` on, without those that ``vmaf_of`` excludes. ``slots_done`` is called with the number
    of slots that were compared, and the total number.
    """
    if isinstance(media, FrameTable):
        return None
    needed = media.table.groups_in(told.frames)
    if len(chosen_q) < needed:
        raise ValueError(f"{needed} groups of pictures need as many quantizers, {len(chosen_q)} are given")
    view = _View(media, chosen_q, told if by == "time" else splice.left_out(media.table, told))
    key = (by, *view.key(), with_vmaf, vmaf_from, None if vmaf_of is None else vmaf_of.tobytes())
    kept = media.scores.get(key)
    if isinstance(kept, Quality):
        return kept
    quality = view.measure(view.shown() if by == "time" else np.flatnonzero(view.there()), slots_done)
    if with_vmaf:
        slots = [
            slot for slot in range(vmaf_from, len(quality.shown)) if vmaf_of is None or bool(vmaf_of[slot])
        ]
        pairs = ((view.received(int(quality.shown[slot])), view.raw(slot)) for slot in slots)
        quality = replace(quality, vmaf=vmaf(pairs, media.width, media.height, media.table.fps))
    media.scores[key] = quality
    return quality


def pictures_at(ladder: Ladder, chosen_q: Quantizers, told: Fates, slots: Sequence[int]) -> list[Shown]:
    """Return the source's, the encoder's and the received picture of each display slot in ``slots``."""
    view = _View(ladder, chosen_q, told)
    shown = view.shown()
    return [Shown(view.raw(slot), view.encoded(slot), view.received(int(shown[slot]))) for slot in slots]


@dataclass(frozen=True)
class OnScreen:
    """The picture on screen in one display slot."""

    raw: Picture
    """The source's picture of this slot."""
    received: Picture
    of: int
    """Slot of the received picture. It is −1 before the first picture, while the screen is black."""


def screen(
    ladder: Ladder, chosen_q: Quantizers, told: Fates, slots: range | None = None
) -> Iterator[OnScreen]:
    """Yield the picture on screen in each display slot of ``slots``. By default, yield it for all slots."""
    view = _View(ladder, chosen_q, told)
    shown = view.shown()
    for slot in range(len(shown)) if slots is None else slots:
        of = int(shown[slot])
        yield OnScreen(view.raw(slot), view.received(of), of)


class _Decoded:
    """An LRU cache of decoded segments. If several threads need the same segment, only one of them decodes it."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.kept: OrderedDict[tuple[object, ...], Future[dict[int, Picture]]] = OrderedDict()
        self.held = 0
        self.lock = Lock()

    def pictures(
        self, key: tuple[object, ...], chosen_q: Quantizers, told: Fates | None, groups: range
    ) -> dict[int, Picture]:
        """Return the pictures of a segment by slot. Slots are counted from the first slot of the segment.

        ``key`` is the `segment_key` of the segment.
        """
        with self.lock:
            found = self.kept.get(key)
            if found is None:
                ours = self.kept[key] = Future()
            else:
                self.kept.move_to_end(key)
        if found is not None:
            return found.result()
        try:
            pictures = self._decode(chosen_q, told, groups)
        except BaseException as error:
            # Do not cache the failure, so that a later call decodes the segment again.
            with self.lock:
                del self.kept[key]
            ours.set_exception(error)
            raise
        with self.lock:
            ours.set_result(pictures)
            self.held += self._size(ours)
            # Remove old segments, but not those that are still being decoded.
            there = [other for other, future in self.kept.items() if future.done()]
            for other in there[: max(len(there) - 2, 0)]:
                if self.held <= _PIXELS_HELD:
                    break
                self.held -= self._size(self.kept.pop(other))
        return pictures

    def _decode(self, chosen_q: Quantizers, told: Fates | None, groups: range) -> dict[int, Picture]:
        ladder = self.ladder
        first = ladder.table.span(groups.start).start
        given = splice.units(ladder, chosen_q, told, groups)
        extradata = ladder.rung(splice.first_of(chosen_q[groups.start])).extradata
        by_slot = decode_units(ladder.codec, given, extradata, ladder.width, ladder.height)
        return {slot - first: picture for slot, picture in by_slot.items()}

    def _size(self, decoded: Future[dict[int, Picture]]) -> int:
        return len(decoded.result()) * self.ladder.width * self.ladder.height * 3 // 2


class _View:
    def __init__(self, ladder: Ladder, chosen_q: Quantizers, told: Fates) -> None:
        self.ladder = ladder
        self.table = ladder.table
        self.chosen_q = chosen_q
        self.told = told
        self.parts = splice.segments(ladder, told)
        self.keys = [splice.segment_key(ladder, chosen_q, told, part) for part in self.parts]
        self.part_of_group = [index for index, part in enumerate(self.parts) for _ in part]
        decoded = ladder.scores.setdefault(("decoded",), _Decoded(ladder))
        assert isinstance(decoded, _Decoded)
        self.decoded = decoded
        encoded = ladder.scores.setdefault(("encoded",), EncodedScores(ladder))
        assert isinstance(encoded, EncodedScores)
        self.encoded_scores = encoded

    def key(self) -> tuple[object, ...]:
        shown_at = (
            None
            if self.told.arrival_ns is None or self.told.play_ns is None
            else splice.on_screen(self.table, self.told, self.there()).tobytes()
        )
        return ("quality", self.told.frames, tuple(self.keys), shown_at)

    def there(self) -> Bools:
        """Return for each slot whether the decoder has output a picture."""
        there = np.zeros(self.told.frames, dtype=np.bool_)
        for part, key in zip(self.parts, self.keys, strict=True):
            slots = self._kept(("places", *key), partial(self._places, part, key))
            slots = slots + self.table.span(part.start).start
            there[slots[slots < self.told.frames]] = True
        return there

    def _places(self, part: range, key: tuple[object, ...]) -> I64:
        """Return the slots of a segment for which there is a decoded picture.

        Slots are counted from the first slot of the segment.
        """
        if key[0] == "whole":
            return np.arange(self.table.span(part.stop - 1).stop - self.table.span(part.start).start)
        return np.array(sorted(self.decoded.pictures(key, self.chosen_q, self.told, part)), dtype=np.int64)

    def shown(self) -> I64:
        return splice.on_screen(self.table, self.told, self.there())

    def raw(self, slot: int) -> Picture:
        return self.ladder.raw.picture(slot % self.table.frames)

    def encoded(self, slot: int) -> Picture:
        group = self._group_of_slot(slot)
        key = ("whole", (group % self.table.gops, self.chosen_q[group]))
        pictures = self.decoded.pictures(key, self.chosen_q, None, range(group, group + 1))
        return pictures[slot - self.table.span(group).start]

    def received(self, slot: int) -> Picture:
        if slot < 0:
            return Picture.black(self.ladder.width, self.ladder.height)
        index = self.part_of_group[self._group_of_slot(slot)]
        part = self.parts[index]
        pictures = self.decoded.pictures(self.keys[index], self.chosen_q, self.told, part)
        return pictures[slot - self.table.span(part.start).start]

    def _group_of_slot(self, slot: int) -> int:
        # A GOP has the same range of frame numbers in display order as in coding order, because GOPs are closed.
        passes, within = divmod(slot, self.table.frames)
        return passes * self.table.gops + within // self.table.gop

    def measure(self, shown: I64, slots_done: Callable[[int, int], None] | None = None) -> Quality:
        n = len(shown)
        psnr_raw, psnr_encoded = np.zeros((n, 3)), np.zeros((n, 3))
        ssim, coded = np.zeros(n), np.zeros(n)
        self.encoded_scores.need(sorted({q for q in self.chosen_q if isinstance(q, int)}))
        told: SimpleQueue[int | None] = SimpleQueue()
        stop = Event()

        def take(slots: range) -> None:
            try:
                for count, slot in enumerate(slots, 1):
                    if stop.is_set():
                        return
                    psnr_raw[slot], ssim[slot] = self._against_raw(slot, int(shown[slot]))
                    psnr_encoded[slot] = self._against_encoded(slot, int(shown[slot]))
                    coded[slot] = self._coded(slot)
                    if count % _TOLD_EVERY == 0:
                        told.put(_TOLD_EVERY)
            finally:
                told.put(None)

        # Each thread decodes and measures a contiguous range of slots.
        threads = min(cores(), self.table.groups_in(n))
        bounds = [n * i // threads for i in range(threads + 1)] if n else []
        with ThreadPoolExecutor(max(threads, 1)) as pool:
            jobs = [pool.submit(take, range(*pair)) for pair in pairwise(bounds)]
            try:
                done, going = 0, len(jobs)
                while going:
                    part = told.get()
                    if part is None:
                        going -= 1
                        continue
                    done += part
                    if slots_done is not None:
                        slots_done(done, n)
            finally:
                stop.set()
        for job in jobs:
            job.result()
        self.encoded_scores.store()
        return Quality(
            fps=self.table.fps,
            shown=shown,
            psnr_raw=psnr_raw,
            psnr_encoded=psnr_encoded,
            ssim=ssim,
            mos=metrics.opinion_classes(psnr_raw[:, 0]),
            coded=coded,
        )

    def _origin(self, slot: int) -> tuple[object, ...]:
        """Return a key for the decoded picture of a slot. Receivers that have the same picture get the same key."""
        if slot < 0:
            return ("black",)
        index = self.part_of_group[self._group_of_slot(slot)]
        return (self.keys[index], slot - self.table.span(self.parts[index].start).start)

    def _kept(self, name: tuple[object, ...], measure: Callable[[], Any]) -> Any:
        """Return the result that is cached in the ladder under ``name``. If there is none, measure it."""
        if (kept := self.ladder.scores.get(name)) is None:
            kept = self.ladder.scores[name] = measure()
        return kept

    def _against_raw(self, slot: int, shown: int) -> tuple[Score, float]:
        def measure() -> tuple[Score, float]:
            raw, received = self.raw(slot), self.received(shown)
            return metrics.picture_psnr_db(received, raw), metrics.picture_ssim(received, raw)

        q = self.chosen_q[self._group_of_slot(slot)]
        if shown == slot and isinstance(q, int) and self._is_whole(slot):
            place = slot % self.table.frames
            if (known := self.encoded_scores.of(q, place)) is None:
                known = measure()
                self.encoded_scores.put(q, place, *known)
            return known
        kept: tuple[Score, float] = self._kept(
            ("raw", *self._origin(shown), slot % self.table.frames), measure
        )
        return kept

    def _coded(self, slot: int) -> float:
        q, place = self.chosen_q[self._group_of_slot(slot)], slot % self.table.frames
        if isinstance(q, int) and (known := self.encoded_scores.of(q, place)) is not None:
            return known[0][0]
        return float(
            self._kept(("coded", place, q), lambda: metrics.psnr_db(self.encoded(slot).y, self.raw(slot).y))
        )

    def _is_whole(self, slot: int) -> bool:
        return self.keys[self.part_of_group[self._group_of_slot(slot)]][0] == "whole"

    def _against_encoded(self, slot: int, shown: int) -> Score:
        group = self._group_of_slot(slot)
        if shown == slot and self._is_whole(slot):
            return (np.inf, np.inf, np.inf)
        name = ("encoded", *self._origin(shown), slot % self.table.frames, self.chosen_q[group])
        kept: Score = self._kept(
            name, lambda: metrics.picture_psnr_db(self.received(shown), self.encoded(slot))
        )
        return kept
