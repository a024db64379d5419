"""Reconstructs the pictures at each receiver from the record of a run, and measures their quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from steadycast import record
from steadycast.errors import UserError
from steadycast.lazy_import import pl
from steadycast.media.metrics import capped
from steadycast.media.quality import OnScreen, Quality, Shown, evaluate, pictures_at, screen
from steadycast.media.splice import NEVER, Fates, Quantizers
from steadycast.media.table import Bools

if TYPE_CHECKING:
    from pathlib import Path

    from steadycast.folder import Folder, Json
    from steadycast.media.ladder import Ladder
    from steadycast.progress import Progress
    from steadycast.table import Column

MEASURED = ("picture_score", "psnr_db.raw.y", "ssim", "vmaf", "mos.mean")
"""Paths of figures that are measured on pictures.

In the summary, these figures are below several keys of a receiver. The list has one path for each of these keys.
"""


FRAMES = tuple(
    [
        *("flow", "node", "frame", "display", "pts_s", "ready_s"),
        *("sent_s", "due_s", "arrived_s", "fate", "q", "psnr_y_db"),
    ]
)
MISSING = ("flow", "node", "frame", "offset", "len")
"""Columns of the table `missing`. `FRAMES` are columns of the table `frames`."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as arrays. Values that are absent are NaN. A text is represented by its index in a list.

    polars is not used, because importing it takes longer than a short run.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    texts: Mapping[str, Sequence[str]]

    @classmethod
    def of_core(cls, told: Sequence[Column], names: Sequence[str]) -> Self:
        """Convert columns in the core's format."""
        columns: dict[str, npt.NDArray[Any]] = {}
        texts: dict[str, Sequence[str]] = {}
        for name, kind, content in told:
            if name not in names or kind == "absent":
                continue
            if kind == "text":
                columns[name], texts[name] = np.frombuffer(content[0], dtype="<u4"), content[1]
            else:
                columns[name] = np.frombuffer(content, dtype="<f8" if kind == "f64" else "<i8")
        return cls(columns, texts)

    @classmethod
    def of_frame(cls, table: pl.DataFrame, names: Sequence[str]) -> Self:
        """Convert columns of a table from a run folder."""
        columns: dict[str, npt.NDArray[Any]] = {}
        texts: dict[str, Sequence[str]] = {}
        for name in names:
            if name not in table.columns:
                continue
            column = table[name]
            if column.dtype.is_numeric():
                columns[name] = column.to_numpy()
            elif column.null_count() < len(column):
                # Do not use `np.unique`, because it imports NumPy's masked arrays, which is slow.
                every = column.to_list()
                texts[name] = sorted(set(every))
                place = {text: n for n, text in enumerate(texts[name])}
                columns[name] = np.array([place[text] for text in every])
        return cls(columns, texts)

    def __len__(self) -> int:
        return len(self.columns["frame"])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def are(self, name: str, *wanted: str) -> npt.NDArray[np.bool_]:
        """Return for each row whether its text in column ``name`` is one of ``wanted``."""
        column = self.columns[name]
        # For an empty column, `numpy.isin` imports numpy.ma, which takes longer than a short run.
        found = np.zeros(len(column), dtype=np.bool_)
        for place, text in enumerate(self.texts[name]):
            if text in wanted:
                found |= column == place
        return found

    def plus(self, name: str, column: npt.NDArray[Any]) -> Rows:
        """Return the same rows with an additional column."""
        return Rows({**self.columns, name: column}, self.texts)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows for which ``chosen`` is true."""
        return Rows({name: column[chosen] for name, column in self.columns.items()}, self.texts)


@dataclass(frozen=True, eq=False)
class Scores:
    """The measured quality of each row in the table of frames. It is NaN if it was not measured."""

    psnr_y_db: npt.NDArray[np.float64]
    ssim: npt.NDArray[np.float64]
    mos: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Viewer:
    """One receiver of a video."""

    ladder: Ladder
    chosen_q: Quantizers
    """The quantizer of each GOP. If it changes within a GOP, there is one for each frame of the GOP."""
    fates: Fates
    counted_from: int
    """First display slot that counts. It is after the warm-up, and after the receiver has joined."""
    rows: npt.NDArray[np.bool_]
    """True for the rows of this receiver in the table of frames."""
    owed: Bools | None = None
    """True for display slots that count. In such a slot, the flow sends and the receiver is present.

    `None` if all slots count.
    """

    def quality(
        self, *, by: str = "time", vmaf: bool = False, slots_done: Callable[[int, int], None] | None = None
    ) -> Quality | None:
        """Decode all pictures, and measure their quality. ``by`` is one of `media.quality.BY`."""
        return evaluate(
            self.ladder,
            self.chosen_q,
            self.fates,
            by=by,
            with_vmaf=vmaf,
            vmaf_from=self.counted_from,
            vmaf_of=self.owed,
            slots_done=slots_done,
        )

    def shown(self, slot: int) -> Shown:
        """Decode and return the pictures of one display slot."""
        return pictures_at(self.ladder, self.chosen_q, self.fates, [slot])[0]

    def pictures(self, slots: range | None = None) -> Iterator[OnScreen]:
        """Yield the picture on screen in each display slot of ``slots``. By default, yield it for all slots."""
        return screen(self.ladder, self.chosen_q, self.fates, slots)

    @property
    def slots(self) -> int:
        """Number of frames that were sent until the last row of this receiver."""
        return self.fates.frames


def with_pixels(videos: Sequence[Json], file: Path) -> list[Json]:
    """Return the videos of a scenario that have pictures.

    Raises:
        UserError: no video has pictures.

    """
    if not videos:
        raise UserError(str(file), "there is no video in it", "only videos have pictures")
    if not (found := [video for video in videos if video["media"] in ("clip", "synthetic")]):
        place, media = f"{file}: flow.{videos[0]['flow']}.media", videos[0]["media"]
        raise UserError(
            place, f'"{media}" has no pixels', 'only "clip" and "synthetic" have pictures to show'
        )
    return found


@dataclass(frozen=True, eq=False)
class Record:
    """The record of a run's video flows, together with their pictures."""

    videos: Sequence[Mapping[str, Any]]
    """The flows, as `_core.Scenario.videos` returns them."""
    ladders: Mapping[str, Ladder]
    """Ladder of each flow that has pictures. The keys are the names of flows."""
    frames: Rows
    missing: Rows | None
    from_s: float = 0.0
    """End of the warm-up, in seconds. Means do not include earlier pictures."""

    @classmethod
    def of(cls, folder: Folder, progress: Progress | None = None) -> Record:
        """Read a run from a folder, or from `Run.held`. A ladder that is not in the cache is encoded."""
        from steadycast.loading import load
        from steadycast.media.ladder import Ladder
        from steadycast.media.prepare import media_of

        file = folder.path / "scenario.toml"
        if not folder.scenario_text:
            raise UserError(str(file), "no such file", "run the scenario again")
        loaded = load(file, text=folder.scenario_text)
        videos = loaded.videos()
        made = {v["flow"]: media_of(v, loaded.seed, progress) for v in with_pixels(videos, file)}
        ladders = {flow: media for flow, media in made.items() if isinstance(media, Ladder)}
        frames = Rows.of_frame(folder.table("frames"), FRAMES)
        missing = Rows.of_frame(folder.table("missing"), MISSING) if folder.has("missing") else None
        return cls(videos, ladders, frames, missing, float(folder.summary.get("from_s") or 0.0))

    def viewer(self, flow: str, receiver: str) -> Viewer | None:
        """Reconstruct what a receiver has shown.

        Returns `None` if the receiver has no rows or the flow has no pictures.
        """
        ladder = self.ladders.get(flow)
        mine = self.frames.are("flow", flow) & self.frames.are("node", receiver)
        if ladder is None or not mine.any():
            return None
        rows = self.frames.where(mine)
        holes: list[tuple[int, int, int]] = []
        if self.missing is not None:
            lost = self.missing.where(self.missing.are("flow", flow) & self.missing.are("node", receiver))
            holes = list(zip(*(lost[name].tolist() for name in ("frame", "offset", "len")), strict=True))
        told, chosen = fates_of(rows, holes, ladder)
        counted = rows["display"][rows["pts_s"] >= self.from_s]
        first = int(counted.min()) if len(counted) else told.frames
        return Viewer(ladder, chosen, told, first, mine, owed_of(rows, ladder))

    def measure(
        self,
        flows: Sequence[Json],
        progress: Progress | None = None,
        *,
        by: str = "time",
        vmaf: bool = False,
    ) -> Scores:
        """Measure the quality at the receivers of flows, and add it to their summary.

        Returns the scores of all frames. ``by`` is one of `media.quality.BY`. With "index", all these scores are NaN,
        because a missing frame shifts the pictures of all later frames.
        """
        scores = Scores(*(np.full(len(self.frames), np.nan) for _ in range(3)))
        for flow in flows:
            name = flow["name"]
            if name not in self.ladders:
                continue
            receivers = flow["receivers"]
            chosen = self.frames["q"][self.frames.are("flow", name)]
            self.ladders[name].need(set(chosen.tolist()), progress)
            for n, receiver in enumerate(receivers):
                told = _within(progress, f"decoding {name}", n, len(receivers))
                told(0, 1)
                record.put_unknown(receiver, MEASURED)
                viewer = self.viewer(name, receiver["name"])
                seen = viewer.quality(by=by, vmaf=vmaf, slots_done=told) if viewer is not None else None
                if viewer is None or seen is None:
                    continue
                figures = summarised(seen, viewer.counted_from, viewer.owed)
                coding = figures.pop("coding")
                scored = _scored(receiver, coding) if by == "time" else {}
                record.put(receiver, "receiver", {**figures, **scored})
                if by == "time":
                    _put(scores, seen, viewer.rows, self.frames["display"])
            _within(progress, f"decoding {name}", len(receivers), len(receivers))(0, 1)
        return scores


_STEPS = 1000


def _within(progress: Progress | None, what: str, n: int, of: int) -> Callable[[int, int], None]:
    """Return a function that converts the progress of one receiver to the progress of all receivers.

    ``n`` is the index of the receiver, and ``of`` is the number of receivers.
    """

    def told(done: int, slots: int) -> None:
        if progress is not None:
            progress(what, n * _STEPS + done * _STEPS // max(slots, 1), of * _STEPS)

    return told


def _scored(receiver: Json, coding: float | None) -> Json:
    """Return the picture score of a receiver. It is the coding quality, reduced by the recorded `smooth_frac`."""
    smooth = receiver.get("smooth_frac")
    if coding is None or smooth is None:
        return {}
    score = 1.0 + (coding - 1.0) * smooth
    return {"picture_score": score, "viewing_score": score, "viewing_score_by": "pictures"}


def _put(scores: Scores, seen: Quality, mine: npt.NDArray[np.bool_], display: npt.NDArray[Any]) -> None:
    rows = np.flatnonzero(mine & (display < len(seen.mos)))
    slots = display[rows]
    scores.psnr_y_db[rows] = capped(seen.psnr_raw[slots, 0])
    scores.ssim[rows] = seen.ssim[slots]
    scores.mos[rows] = seen.mos[slots]


def _without(present: npt.NDArray[Any], n: int) -> npt.NDArray[np.intp]:
    """Return the numbers below ``n`` that are not in ``present``.

    `np.setdiff1d` is not used, because it imports masked arrays, which is slow.
    """
    absent = np.ones(n, dtype=np.bool_)
    absent[present[present < n]] = False
    return np.flatnonzero(absent)


def fates_of(rows: Rows, holes: Sequence[tuple[int, int, int]], ladder: Ladder) -> tuple[Fates, Quantizers]:
    """Return the fates of all frames at one receiver, and the quantizers of each GOP.

    ``rows`` are the frames of the receiver. ``holes`` has the frame, offset and length of each missing range. If a
    frame has no row, because the receiver is absent or the flow pauses, the frame is incomplete.
    """
    index = rows["frame"]
    n = int(index[-1]) + 1
    complete = np.zeros(n, dtype=np.bool_)
    complete[index] = rows.are("fate", "ok", "late", "undecodable")
    arrival, play = None, None
    if np.isfinite(rows["due_s"]).any():
        arrival = np.full(n, NEVER, dtype=np.int64)
        arrival[index] = (np.nan_to_num(rows["arrived_s"]) * 1e9).round().astype(np.int64)
        arrival[~complete] = NEVER
        play = np.zeros(n, dtype=np.int64)
        due = (rows["due_s"] * 1e9).round().astype(np.int64)
        slots = rows["display"]
        play[slots[slots < n]] = due[slots < n]
        # If a slot has no row, give it the play-out time of the slot before.
        bare = _without(slots, n)
        play[bare] = np.maximum.accumulate(play)[bare]
    parts: dict[int, list[tuple[int, int]]] = {}
    for frame, offset, length in holes:
        if frame < n and not complete[frame]:
            parts.setdefault(frame, []).append((offset, offset + length))
    groups = ladder.table.group_of(np.arange(n))
    # If a frame has no row, give it the quantizer of the next frame in its GOP. If there is none, use the frame before.
    following = np.searchsorted(index, np.arange(n))
    preceding = np.maximum(following - 1, 0)
    quantizers = rows["q"][np.where(groups[index[following]] == groups, following, preceding)]
    firsts = np.searchsorted(groups, np.arange(int(groups[-1]) + 2))
    chosen: list[int | tuple[int, ...]] = []
    for first, after in pairwise(firsts):
        of_group = quantizers[first:after]
        if (of_group == of_group[0]).all():
            chosen.append(int(of_group[0]))
        else:
            last = ladder.table.span(len(chosen)).stop - first
            chosen.append(tuple(int(q) for q in np.pad(of_group, (0, last - len(of_group)), mode="edge")))
    return Fates(complete, arrival, play, parts), chosen


def owed_of(rows: Rows, ladder: Ladder) -> Bools | None:
    """Return which slots are evaluated, or `None` if all are.

    A slot is evaluated if its frame has a row. Slots before the first row are evaluated as well. The run may end before
    a B frame is sent, although a later picture, to which the B frame refers, was sent. Its slot is not evaluated.
    """
    index = rows["frame"]
    owed = np.zeros(int(index[-1]) + 1, dtype=np.bool_)
    slots = ladder.table.slot_of(np.concatenate([np.arange(index[0]), index]))
    owed[slots[slots < len(owed)]] = True
    return None if owed.all() else owed


def summarised(seen: Quality, first: int = 0, owed: Bools | None = None) -> Json:
    """Return the figures of a receiver, by their paths.

    They are computed for the slots in ``owed`` from slot ``first`` on. VMAF was already measured for these slots only.
    The key ``coding`` contains the coding quality, from which the picture score is computed.
    """
    counted = np.arange(len(seen.mos)) >= first
    if owed is not None:
        counted &= owed[: len(counted)]
    part = seen if counted.all() else seen.where(counted)
    return {**part.figures(), "vmaf": seen.vmaf, "coding": part.mean_coding()}
