"""What a quantizer costs and what it gives: rate and quality of each rung, as numbers and as a figure."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from steadycast.files import whole
from steadycast.media.decode import decode_units
from steadycast.media.ladder import Ladder
from steadycast.media.metrics import mean_db, picture_psnr_db, picture_ssim
from steadycast.media.splice import units
from steadycast.workers import cores

_CLASSES = ((20.0, "poor"), (25.0, "fair"), (31.0, "good"), (37.0, "excellent"))
_RATE, _PSNR, _SSIM = "#1f5fa8", "#b4451f", "#4d7a2e"


@dataclass(frozen=True)
class RungQuality:
    """One rung: what it costs and how good it looks."""

    q: int
    rate_bps: float
    """Mean rate of the whole clip, in bits of access units per second."""
    psnr_y_db: float | None
    ssim: float
    groups: int
    """Groups of pictures on which the quality was measured."""


def rate_and_quality(ladder: Ladder, most_groups: int = 16) -> list[RungQuality]:
    """Rate and quality of every rung; the quality on up to ``most_groups`` groups, spread over the clip."""
    count = min(most_groups, ladder.table.gops)
    groups = [index * ladder.table.gops // count for index in range(count)]
    _ = ladder.raw  # loaded once, before several threads want it
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda q: _measure(ladder, q, groups), ladder.table.qs))


def _measure(ladder: Ladder, q: int, groups: list[int]) -> RungQuality:
    psnr: list[float] = []
    ssim: list[float] = []
    chosen = [q] * ladder.table.gops
    for group in groups:
        given = units(ladder, chosen, None, range(group, group + 1))
        extradata = ladder.rung(q).extradata
        pictures = decode_units(ladder.codec, given, extradata, ladder.width, ladder.height)
        for slot, picture in pictures.items():
            raw = ladder.raw.picture(slot)
            psnr.append(picture_psnr_db(picture, raw)[0])
            ssim.append(picture_ssim(picture, raw))
    rate = float(ladder.table.mean_rates_bps()[ladder.table.row(q)])
    return RungQuality(q, rate, mean_db(np.array(psnr)), float(np.mean(ssim)), len(groups))


def draw(rungs: list[RungQuality], title: str, path: str | Path | None = None) -> Figure:
    """Draw quantizer → rate and rate → quality (paper 001, Fig. 2); `path` ends in ``.svg`` or ``.png``."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    qs = [rung.q for rung in rungs]
    kbps = [rung.rate_bps / 1e3 for rung in rungs]
    psnr = [np.nan if rung.psnr_y_db is None else rung.psnr_y_db for rung in rungs]
    left.plot(qs, kbps, color=_RATE, marker="o", markersize=3)
    left.set(xlabel="quantizer", ylabel="mean rate (kb/s)", yscale="log", title="What a quantizer costs")
    right.plot(kbps, psnr, color=_PSNR, marker="o", markersize=3)
    right.set(xlabel="mean rate (kb/s)", ylabel="PSNR of luma (dB)", xscale="log", title="What a rate gives")
    finite = [value for value in psnr if np.isfinite(value)]
    low, high = (min(finite) - 1.5, max(finite) + 2.5) if finite else (20.0, 45.0)
    right.set_ylim(low, high)
    right.margins(x=0.1)  # room for the labels at both ends
    for bound, name in _CLASSES:
        if low < bound < high:
            right.axhline(bound, color="0.6", linewidth=0.7, linestyle=":")
            right.text(
                0.99, bound, f"{name} above", transform=right.get_yaxis_transform(), ha="right", va="bottom",
                fontsize=7, color="0.35",
            )  # fmt: skip
    for index in sorted({0, *(i for i, q in enumerate(qs) if q in (4, 8, 16, 24, 36)), len(qs) - 1}):
        right.annotate(
            f"q {qs[index]}",
            (kbps[index], psnr[index]),
            xytext=(5, -9),
            textcoords="offset points",
            fontsize=7,
        )
    similar = right.twinx()
    similar.plot(kbps, [rung.ssim for rung in rungs], color=_SSIM, linestyle="--")
    similar.set_ylabel("SSIM of luma (dashed)", color=_SSIM)
    similar.set_ylim(top=1.0)
    right.yaxis.label.set_color(_PSNR)
    for axes in (left, right):
        axes.grid(visible=True, which="both", color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
        # Plain numbers, and few of them, on the axis of rates.
        axis = axes.yaxis if axes is left else axes.xaxis
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: f"{value:g}" if str(value).lstrip("0.")[:1] in "25" else "")
        axis.set_tick_params(which="both", labelsize=8)
    figure.suptitle(f"Quantizer, rate and quality: {title}", fontsize=11)
    if path is not None:
        with whole(Path(path)) as new:
            figure.savefig(new, dpi=150, format=Path(path).suffix[1:] or "png")
    return figure
