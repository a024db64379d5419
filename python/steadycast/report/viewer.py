"""From a run's record back to pixels: what each receiver got of a clip, decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steadycast.errors import UserError
from steadycast.folder import Folder, Json
from steadycast.report.figures import span

if TYPE_CHECKING:
    from steadycast.media.ladder import Ladder
    from steadycast.media.quality import Quality, Shown
    from steadycast.media.splice import Fates
    from steadycast.progress import Progress


@dataclass(frozen=True, eq=False)
class Viewer:
    """One receiver of a video, as its record tells it.

    A frame that lacks a packet counts as missing altogether: the record says that it is incomplete, not which
    bytes of it came.
    """

    flow: Json
    receiver: str
    ladder: Ladder
    chosen_q: Sequence[int]
    fates: Fates

    def quality(self) -> Quality | None:
        """Decode everything, and measure it."""
        from steadycast.media.quality import evaluate

        return evaluate(self.ladder, self.chosen_q, self.fates)

    def shown(self, slot: int) -> Shown:
        """Decode what stands behind one display slot."""
        from steadycast.media.quality import pictures_at

        return pictures_at(self.ladder, self.chosen_q, self.fates, [slot])[0]

    @property
    def slots(self) -> int:
        """How many frames were sent to it."""
        return self.fates.frames


def ladder_of(folder: Folder, flow: Json, progress: Progress | None = None) -> Ladder:
    """Encode a flow's clip as it was encoded for the run, or take it from the cache.

    Raises:
        UserError: the flow has no pixels, or its clip is no longer there.

    """
    from steadycast.media.clip import Clip, Source
    from steadycast.media.ladder import encode_ladder
    from steadycast.media.synthetic import Synthetic

    name = str(flow["name"])
    told = next((f for f in folder.scenario.get("flow", []) if f.get("name") == name), None)
    if told is None:
        raise UserError(str(folder.path / "scenario.toml"), f'the flow "{name}" is not in it', "run again")
    kind = told.get("media", "clip" if "clip" in told else "synthetic")
    source: Source
    if kind == "clip":
        clips = [told["clip"]] if isinstance(told.get("clip"), str) else list(told.get("clip") or [])
        source = Clip.of([_found(folder, str(clip)) for clip in clips])
    elif kind == "synthetic":
        source = Synthetic()
    else:
        raise UserError(
            f"{folder.path / 'scenario.toml'}: flow.{name}.media",
            f'"{kind}" has no pixels',
            'only "clip" and "synthetic" have pictures to show',
        )
    encode: dict[str, Any] = dict(told.get("encode") or {})
    low, _, high = str(encode.get("q", "")).partition("-")
    return encode_ladder(
        source,
        codec=str(encode.get("codec", "mpeg4")),
        size=str(encode.get("size", "cif")),
        fps=encode.get("fps", 25),
        gop=int(encode.get("gop", 12)),
        bframes=encode.get("bframes"),
        qs=range(int(low), int(high) + 1) if low and high else None,
        progress=progress,
    )


def viewer(folder: Folder, flow: Json, receiver: str, ladder: Ladder) -> Viewer:
    """Read what one receiver got of each frame.

    Raises:
        UserError: the frames of this receiver were not recorded.

    """
    import polars as pl

    from steadycast.media.splice import NEVER, Fates

    mine = folder.table("frames").filter(pl.col("flow") == flow["name"])
    rows = mine.filter(pl.col("node") == receiver).sort("pts_s")
    if not rows.height:
        raise UserError(str(folder.path / "frames.parquet"), f"nothing of {receiver} is in it", "run again")
    fps = float(ladder.table.fps)
    start = float(mine["pts_s"].min() or 0.0)  # type: ignore[arg-type]
    # Display slots count from the flow's first frame; one that joined late begins in the middle.
    slots = np.round((rows["pts_s"] - start).to_numpy() * fps).astype(np.int64)
    n = int(slots[-1]) + 1
    there, arrived = np.zeros(n, dtype=np.bool_), np.full(n, NEVER, dtype=np.int64)
    quantizer = np.zeros(n, dtype=np.int64)
    there[slots] = (rows["fate"] != "lost").to_numpy()
    arrived[slots] = (rows["arrived_s"].fill_null(0.0) * 1e9).round().cast(pl.Int64).to_numpy()
    arrived[~there] = NEVER
    quantizer[slots] = rows["q"].fill_null(0).cast(pl.Int64).to_numpy()
    table = ladder.table
    # Rows stand in display order; the media side counts frames as they were coded.
    coded = np.minimum(table.slot_of(np.arange(n)), n - 1)
    groups = table.group_of(np.arange(n))
    chosen = [int(quantizer[coded][groups == g].max()) for g in range(table.groups_in(n))]
    told: Json = next((f for f in folder.scenario.get("flow", []) if f.get("name") == flow["name"]), {})
    limit = span(told.get("playout"))
    play = None
    if limit is not None:
        play = np.round((start + np.arange(n) / fps + limit) * 1e9).astype(np.int64)
    fates = Fates(there[coded], arrived[coded] if play is not None else None, play)
    best = table.qs[0]
    return Viewer(flow, receiver, ladder, [q if q in table.qs else best for q in chosen], fates)


def _found(folder: Folder, clip: str) -> Path:
    path = Path(clip)
    beside = folder.path / path
    return beside if not path.is_absolute() and beside.exists() else path
