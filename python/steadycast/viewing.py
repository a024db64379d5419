"""From a run's record to what each viewer saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from steadycast.media.quality import Quality, evaluate
from steadycast.media.splice import NEVER, Fates

if TYPE_CHECKING:
    from steadycast.folder import Json
    from steadycast.media.ladder import Ladder
    from steadycast.progress import Progress

PLANES = ("y", "u", "v")


def measure_flow(
    flow: Json,
    ladder: Ladder,
    frames: pl.DataFrame,
    missing: pl.DataFrame,
    playout_s: float | None,
    progress: Progress | None = None,
    from_s: float = 0.0,
) -> pl.DataFrame:
    """Put quality into the receivers of one flow's summary; return a row of scores per receiver and frame.

    ``frames`` and ``missing`` are tables of the record, with all flows in them. Means are taken over what was
    sent from ``from_s`` on.
    """
    mine = frames.filter(pl.col("flow") == flow["name"])
    holes = missing.filter(pl.col("flow") == flow["name"])
    scores = []
    receivers = flow["receivers"]
    for n, receiver in enumerate(receivers):
        if progress is not None:
            progress(f"decoding {flow['name']}", n, len(receivers))
        rows = mine.filter(pl.col("node") == receiver["name"])
        receiver |= {"psnr_db": None, "ssim": None, "vmaf": None, "mos": None}
        if not rows.height:
            continue
        told, chosen = fates_of(rows, holes.filter(pl.col("node") == receiver["name"]), ladder, playout_s)
        seen = evaluate(ladder, chosen, told)
        if seen is None:
            continue
        first = int(rows.filter(pl.col("ready_s") >= from_s)["display"].min() or 0)  # type: ignore[arg-type]
        receiver |= summarised(seen, first)
        slots = rows["display"].to_numpy()
        slots = slots[slots < len(seen.mos)]
        held = rows.filter(pl.col("display") < len(seen.mos))
        scores.append(
            held.select("flow", "node", "frame").with_columns(
                pl.Series("psnr_y_db", np.minimum(seen.psnr_raw[slots, 0], 100.0)),
                pl.Series("ssim", seen.ssim[slots]),
                pl.Series("mos", seen.mos[slots].astype(np.int64)),
            )
        )
    if progress is not None:
        progress(f"decoding {flow['name']}", len(receivers), len(receivers))
    if scores:
        return pl.concat(scores)
    kinds = {"flow": pl.String, "node": pl.String, "frame": pl.Int64}
    return pl.DataFrame(schema={**kinds, "psnr_y_db": pl.Float64, "ssim": pl.Float64, "mos": pl.Int64})


def fates_of(
    rows: pl.DataFrame, holes: pl.DataFrame, ladder: Ladder, playout_s: float | None
) -> tuple[Fates, Sequence[int]]:
    """Tell the media side what one receiver got, and the quantizer of each group of pictures.

    ``rows`` and ``holes`` are one receiver's rows of the record. A receiver that joined late has no rows for
    what was sent before: those frames are not there for it.
    """
    index = rows["frame"].to_numpy()
    n = int(index[-1]) + 1
    complete = np.zeros(n, dtype=np.bool_)
    complete[index] = rows["fate"].is_in(["ok", "late", "undecodable"]).to_numpy()
    arrival, play = None, None
    if playout_s is not None:
        arrival = np.full(n, NEVER, dtype=np.int64)
        arrival[index] = (rows["arrived_s"].fill_null(0.0).to_numpy() * 1e9).round().astype(np.int64)
        arrival[~complete] = NEVER
        play = np.zeros(n, dtype=np.int64)
        due = ((rows["ready_s"].to_numpy() + playout_s) * 1e9).round().astype(np.int64)
        slots = rows["display"].to_numpy()
        play[slots[slots < n]] = due[slots < n]
    parts: dict[int, list[tuple[int, int]]] = {}
    for frame, offset, length in holes.select("frame", "offset", "len").iter_rows():
        if frame < n and not complete[frame]:
            parts.setdefault(frame, []).append((offset, offset + length))
    quantizers = np.full(n, ladder.table.qs[0], dtype=np.int64)
    quantizers[index] = rows["q"].to_numpy()
    groups = ladder.table.group_of(np.arange(n))
    firsts = np.searchsorted(groups, np.arange(int(groups[-1]) + 1))
    return Fates(complete, arrival, play, parts), [int(q) for q in quantizers[firsts]]


def summarised(seen: Quality, first: int = 0) -> Json:
    """Quality as summary.json's receivers have it, from display slot ``first`` on."""
    part = seen if first == 0 else seen.between(first, len(seen.mos))
    return {
        "freeze_count": part.freeze_count,
        "freeze_s": part.freeze_s,
        "psnr_db": {
            "raw": dict(zip(PLANES, part.mean_psnr_raw(), strict=True)),
            "encoded": dict(zip(PLANES, part.mean_psnr_encoded(), strict=True)),
        },
        "ssim": part.mean_ssim(),
        "vmaf": part.vmaf,
        "mos": {"mean": part.mean_mos(), "share": {str(k): v for k, v in part.mos_share().items()}},
    }
