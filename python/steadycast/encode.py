"""Measures the rate and the quality of a clip at every quantizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steadycast import files, style
from steadycast.report import canvas, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from steadycast.media.ladder import Ladder
    from steadycast.media.table import F64
    from steadycast.progress import Progress


@dataclass(frozen=True, eq=False)
class Steps:
    """The encodings of clips at all quantizers (a ladder), with the mean rate and the picture quality of each encoding.

    Rates are in bit/s. They include the encoded pictures (access units), but no packet headers.
    """

    ladder: Ladder
    q: tuple[int, ...]
    rate_bps: tuple[float, ...]
    psnr_y_db: tuple[float | None, ...]
    ssim: tuple[float | None, ...]
    frame_psnr_y_db: F64
    """Luma PSNR of each frame in display order, at most `PSNR_CAP_DB`. Each quantizer has one row."""


def steps(
    clips: Sequence[Path],
    *,
    codec: str = "mpeg4",
    size: str = "clip",
    fps: str = "clip",
    gop: int = 12,
    bframes: int | None = None,
    pixels: str | None = None,
    progress: Progress | None = None,
) -> Steps:
    """Encode clips at every quantizer, and measure the results. ``pixels`` is the pixel format of raw files."""
    from steadycast.media.clip import Clip
    from steadycast.media.ladder import as_options, encode_ladder
    from steadycast.media.metrics import capped
    from steadycast.media.quality import evaluate
    from steadycast.media.splice import Fates

    source = Clip.of(list(clips), pixels)
    with as_options():
        ladder = encode_ladder(source, codec, size, fps, gop, bframes, progress=progress)
    table = ladder.table
    # Measure the encoding alone: treat all frames as received.
    whole = Fates(np.ones(table.frames, dtype=np.bool_))
    psnr, ssim, frames = [], [], []
    for i, q in enumerate(table.qs):
        if progress is not None:
            progress("measuring", i, len(table.qs))
        seen = evaluate(ladder, [q] * table.gops, whole)
        assert seen is not None
        psnr.append(seen.mean_psnr_raw()[0])
        ssim.append(seen.mean_ssim())
        frames.append(capped(seen.psnr_raw[:, 0]))
    rates = tuple(float(r) for r in table.mean_rates_bps())
    return Steps(ladder, tuple(table.qs), rates, tuple(psnr), tuple(ssim), np.stack(frames))


def write_trace(steps: Steps, path: Path) -> Path:
    """Write a trace of the rates at all quantizers. A scenario reads the file by its key ``trace``."""
    from steadycast.media.trace import written

    text = written(path, steps.ladder.table, steps.frame_psnr_y_db)
    with files.whole(path, "give another --trace FILE") as new:
        new.write_text(text, encoding="ascii")
    return path


def write_clips(steps: Steps, folder: Path) -> list[Path]:
    """Write the clip at each quantizer as a stream for players, for example q02.m4v."""
    from steadycast.media import stream

    ladder = steps.ladder
    name, ticks = ladder.codec.name, stream.CLOCK / ladder.table.fps
    another = "give another --clips DIR"
    files.folder(folder, another)
    paths = []
    for rung in ladder.rungs:
        path = folder / f"q{rung.q:02}{stream.FORMS[name].endings[0]}"
        with files.whole(path, another) as new, new.open("wb") as file:
            file.write(stream.head(name, rung.extradata))
            for index, slot in enumerate(ladder.table.display):
                file.write(stream.framed(name, round(int(slot) * ticks), rung.unit(index)))
        paths.append(path)
    return paths


def table(ladder: Steps) -> Table:
    """Return a table for the terminal, with a row per quantizer."""
    from steadycast.report import terminal

    result = terminal.plain("quantizer", "rate", "PSNR", "SSIM")
    for q, rate, psnr, ssim in zip(ladder.q, ladder.rate_bps, ladder.psnr_y_db, ladder.ssim, strict=True):
        result.add_row(str(q), say.rate(rate), say.db(psnr), say.plain(ssim))
    return result


def draw(ladder: Steps, path: Path) -> None:
    """Draw rate and quality against the quantizer, and save the figure."""
    canvas.save_drawing(lambda: _draw(ladder), path)


def _draw(ladder: Steps) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(canvas.WIDTH, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.grid(visible=True, which="major")
    scale, unit = canvas.scale_of(max(ladder.rate_bps))
    rates = [rate / scale for rate in ladder.rate_bps]
    left.plot(ladder.q, rates, color=style.INK, marker="o", markersize=3)
    left.set_yscale("log")
    left.set_xlabel("quantizer", loc="right")
    left.set_title(f"{ladder.ladder.table.label}: rate ({unit})")
    points = [(r, p) for r, p in zip(rates, ladder.psnr_y_db, strict=True) if p is not None]
    right.plot([r for r, _ in points], [p for _, p in points], color=style.INK, marker="o", markersize=3)
    right.set_xscale("log")
    _plain_ticks(left.yaxis)
    _plain_ticks(right.xaxis)
    right.set_xlabel(f"rate ({unit})", loc="right")
    right.set_title("PSNR (dB) by rate")
    return figure


def _plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers such as 100, 200 and 500 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
