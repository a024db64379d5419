"""From a run's record to what each viewer saw: the one way from packets back to pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from steadycast import record
from steadycast.errors import UserError
from steadycast.media.quality import Quality, Shown, evaluate, pictures_at, screen
from steadycast.media.splice import NEVER, Fates, Quantizers
from steadycast.media.table import F64

if TYPE_CHECKING:
    from steadycast.folder import Folder, Json
    from steadycast.media.ladder import Ladder
    from steadycast.media.metrics import Picture
    from steadycast.progress import Progress

PLANES = ("y", "u", "v")
MEASURED = ("psnr_db.raw.y", "ssim", "vmaf", "mos.mean")
"""Figures of pictures, one of each family."""


@dataclass(frozen=True, eq=False)
class Viewer:
    """One receiver of a video, as the record tells it."""

    ladder: Ladder
    chosen_q: Quantizers
    """The quantizer of each group of pictures, or of each of its frames."""
    fates: Fates
    counted_from: int
    """The display slot from which on means are taken: after the warm-up, and after joining."""
    rows: pl.DataFrame
    """Its rows of the table of frames."""
    lasts: F64 | None = None
    """How long each display slot is shown, in seconds, where the play-out delay changes."""

    def quality(
        self, *, vmaf: bool = False, slots_done: Callable[[int, int], None] | None = None
    ) -> Quality | None:
        """Decode everything, and measure it."""
        return evaluate(
            self.ladder,
            self.chosen_q,
            self.fates,
            with_vmaf=vmaf,
            vmaf_from=self.counted_from,
            slots_done=slots_done,
        )

    def shown(self, slot: int) -> Shown:
        """Decode what stands behind one display slot."""
        return pictures_at(self.ladder, self.chosen_q, self.fates, [slot])[0]

    def pictures(self) -> Iterator[tuple[Picture, Picture]]:
        """Yield the source's picture and the one on the screen, display slot by display slot."""
        return screen(self.ladder, self.chosen_q, self.fates)

    @property
    def slots(self) -> int:
        """How many frames were sent up to its last one."""
        return self.fates.frames


@dataclass(frozen=True, eq=False)
class Record:
    """What a run recorded of its video flows, and the pictures behind them."""

    videos: Sequence[Mapping[str, Any]]
    """As the core tells them: `_core.Scenario.videos`."""
    ladders: Mapping[str, Ladder]
    """Of the flows that have pixels."""
    frames: pl.DataFrame
    missing: pl.DataFrame
    from_s: float = 0.0
    """What is shown before is left out of means."""

    @classmethod
    def of(cls, folder: Folder, progress: Progress | None = None) -> Record:
        """Read a run folder; clips are encoded again, or their ladders taken from the cache.

        Raises:
            UserError: there is no video with pixels, a table is missing, or a clip is no longer there.

        """
        from steadycast.media.ladder import Ladder
        from steadycast.media.prepare import media_of
        from steadycast.run import load

        file = folder.path / "scenario.toml"
        if not file.is_file():
            raise UserError(str(file), "no such file", "run the scenario again")
        loaded = load(file)
        videos = loaded.videos()
        if not videos:
            raise UserError(str(folder.path), "there is no video in this run", "only videos have pictures")
        with_pixels = [v for v in videos if v["media"] in ("clip", "synthetic")]
        if not with_pixels:
            raise UserError(
                f"{file}: flow.{videos[0]['flow']}.media",
                f'"{videos[0]["media"]}" has no pixels',
                'only "clip" and "synthetic" have pictures to show',
            )
        made = {v["flow"]: media_of(v, loaded.seed, progress) for v in with_pixels}
        ladders = {flow: media for flow, media in made.items() if isinstance(media, Ladder)}
        whole = pl.DataFrame(
            schema={
                "flow": pl.String,
                "node": pl.String,
                "frame": pl.Int64,
                "offset": pl.Int64,
                "len": pl.Int64,
            }
        )
        missing = folder.table("missing") if folder.has("missing") else whole
        return cls(
            videos, ladders, folder.table("frames"), missing, float(folder.summary.get("from_s") or 0.0)
        )

    def viewer(self, flow: str, receiver: str) -> Viewer | None:
        """Tell what one receiver got; `None` when nothing was recorded of it, or there are no pixels."""
        ladder = self.ladders.get(flow)
        mine = (pl.col("flow") == flow) & (pl.col("node") == receiver)
        rows = self.frames.filter(mine)
        if ladder is None or not rows.height:
            return None
        if "due_s" not in rows.columns:  # a record from before play-out delays changed
            playout_s = next(v["playout_s"] for v in self.videos if v["flow"] == flow)
            rows = rows.with_columns(due_s=pl.col("ready_s") + pl.lit(playout_s, pl.Float64))
        told, chosen = fates_of(rows, self.missing.filter(mine), ladder)
        counted = rows.filter(pl.col("pts_s") >= self.from_s)["display"]
        first = int(counted.min()) if counted.len() else told.frames  # type: ignore[arg-type]
        return Viewer(ladder, chosen, told, first, rows, lasts_of(rows, ladder))

    def measure(
        self, flows: Sequence[Json], progress: Progress | None = None, *, vmaf: bool = False
    ) -> pl.DataFrame:
        """Put quality into the receivers of a summary's flows; return scores per receiver and frame."""
        kinds = {"flow": pl.String, "node": pl.String, "frame": pl.Int64}
        scores = [
            pl.DataFrame(schema={**kinds, "psnr_y_db": pl.Float64, "ssim": pl.Float64, "mos": pl.Int64})
        ]
        for flow in flows:
            name = flow["name"]
            if name not in self.ladders:
                continue
            receivers = flow["receivers"]
            chosen = self.frames.filter(pl.col("flow") == name)["q"]
            self.ladders[name].need(chosen.unique().to_list(), progress)
            for n, receiver in enumerate(receivers):
                told = _within(progress, f"decoding {name}", n, len(receivers))
                told(0, 1)
                record.put_unknown(receiver, "receiver", MEASURED)
                viewer = self.viewer(name, receiver["name"])
                seen = viewer.quality(vmaf=vmaf, slots_done=told) if viewer is not None else None
                if viewer is None or seen is None:
                    continue
                record.put(receiver, "receiver", summarised(seen, viewer.counted_from, viewer.lasts))
                scores.append(_scores(seen, viewer.rows))
            _within(progress, f"decoding {name}", len(receivers), len(receivers))(0, 1)
        return pl.concat(scores)


_STEPS = 1000
"""Into which one receiver's part of the progress is divided."""


def _within(progress: Progress | None, what: str, n: int, of: int) -> Callable[[int, int], None]:
    """Tell how far receiver ``n`` of ``of`` is, as a part of them all."""

    def told(done: int, slots: int) -> None:
        if progress is not None:
            progress(what, n * _STEPS + done * _STEPS // max(slots, 1), of * _STEPS)

    return told


def _scores(seen: Quality, rows: pl.DataFrame) -> pl.DataFrame:
    held = rows.filter(pl.col("display") < len(seen.mos))
    slots = held["display"].to_numpy()
    return held.select("flow", "node", "frame").with_columns(
        pl.Series("psnr_y_db", seen.capped(seen.psnr_raw[slots, 0])),
        pl.Series("ssim", seen.ssim[slots]),
        pl.Series("mos", seen.mos[slots].astype(np.int64)),
    )


def fates_of(rows: pl.DataFrame, holes: pl.DataFrame, ladder: Ladder) -> tuple[Fates, Quantizers]:
    """Tell what one receiver got, as the media side takes it, and the quantizers of each group of pictures.

    ``rows`` and ``holes`` are one receiver's rows of the record. A receiver that joined late has no rows for
    what was sent before: those frames are not there for it.
    """
    index = rows["frame"].to_numpy()
    n = int(index[-1]) + 1
    complete = np.zeros(n, dtype=np.bool_)
    complete[index] = rows["fate"].is_in(["ok", "late", "undecodable"]).to_numpy()
    arrival, play = None, None
    if rows["due_s"].is_not_null().any():
        arrival = np.full(n, NEVER, dtype=np.int64)
        arrival[index] = (rows["arrived_s"].fill_null(0.0).to_numpy() * 1e9).round().astype(np.int64)
        arrival[~complete] = NEVER
        play = np.zeros(n, dtype=np.int64)
        due = (rows["due_s"].to_numpy() * 1e9).round().astype(np.int64)
        slots = rows["display"].to_numpy()
        play[slots[slots < n]] = due[slots < n]
    parts: dict[int, list[tuple[int, int]]] = {}
    for frame, offset, length in holes.select("frame", "offset", "len").iter_rows():
        if frame < n and not complete[frame]:
            parts.setdefault(frame, []).append((offset, offset + length))
    quantizers = np.full(n, ladder.table.qs[0], dtype=np.int64)
    quantizers[index] = rows["q"].to_numpy()
    groups = ladder.table.group_of(np.arange(n))
    joined = int(index[0])
    quantizers[:joined] = quantizers[joined]
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


def lasts_of(rows: pl.DataFrame, ladder: Ladder) -> F64 | None:
    """Tell how long each display slot is shown, in seconds; `None` where the play-out delay never changes."""
    delays = (rows["due_s"] - rows["ready_s"]).to_numpy()
    if not np.isfinite(delays).all() or np.ptp(delays) < 1e-6:
        return None
    slots = rows["display"].to_numpy()
    shown_at = np.full(int(slots.max()) + 1, np.nan)
    shown_at[slots] = rows["pts_s"].to_numpy() + delays
    lasts = np.diff(shown_at, append=np.nan)
    return np.where(np.isfinite(lasts), np.maximum(lasts, 0.0), float(1 / ladder.table.fps))


def summarised(seen: Quality, first: int = 0, lasts: F64 | None = None) -> Json:
    """Quality as figures of a receiver, by their paths, from display slot ``first`` on; VMAF is taken as it is."""
    part = seen if first == 0 else seen.between(first, len(seen.mos))
    against = {"raw": part.mean_psnr_raw(), "encoded": part.mean_psnr_encoded()}
    return {
        **part.freezes(None if lasts is None else lasts[first : first + len(part.mos)]),
        **{
            f"psnr_db.{what}.{plane}": value
            for what, values in against.items()
            for plane, value in zip(PLANES, values, strict=True)
        },
        "ssim": part.mean_ssim(),
        "vmaf": seen.vmaf,
        "mos.mean": part.mean_mos(),
        **{f"mos.share.{grade}": share for grade, share in part.mos_share().items()},
    }
