"""The papers' lost figures, drawn from our runs on the axes that their text describes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from steadycast.report import figures
from steadycast.reproduce.experiment import Figure
from steadycast.reproduce.observe import Observed
from steadycast.reproduce.suite import Part
from steadycast.style import Look, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_FPS = 25.0
_NAMES = {"asmp": "ASMP", "tfmcc": "TFMCC", "tfrc": "TFRC"}


def draw(figure: Figure, part: Part, name: str) -> str | None:
    """Figure as inline SVG; nothing where its runs were not made."""
    kinds: dict[str, Callable[[Figure, Part], Drawing | None]] = {
        "rates": _rates,
        "delay": lambda f, p: _frames(f, p, _delays, "delay of a frame (ms)"),
        "cj": lambda f, p: _frames(
            f, p, lambda o: o.flow("video").cumulative_ms(), "cumulative jitter (ms)", signed=True
        ),
        "ji": lambda f, p: _frames(
            f, p, lambda o: o.flow("video").variations_ms(), "delay variation (ms)", signed=True
        ),
        "psnr": lambda f, p: _frames(f, p, _psnr, "luma PSNR (dB)", floor=10.0),
        "sizes": lambda f, p: _frames(f, p, _sizes, "frame size (kB)"),
        "mos": _scores,
    }
    if not all(part.runs(variant) for variant in figure.variants):
        return None
    return figures.in_style(lambda: kinds[figure.kind](figure, part), name)


def _label(content: dict[str, Any]) -> str:
    if content["kind"] == "video":
        return _NAMES.get(str(content["controller"]), str(content["controller"]))
    return "UDP" if content["kind"] in ("cbr", "onoff") else "TCP"


def _rates(figure: Figure, part: Part) -> Drawing | None:
    """Throughput over time: mean over the seeds, band from least to most."""
    drawing, (axes,) = figures.canvas(height=3.0)
    labels, end = [], 0
    for n, variant in enumerate(figure.variants):
        runs = part.runs(variant)
        for name, content in runs[0].content["flows"].items():
            if content["kind"] != "video" and n:
                continue
            rows = list(zip(*(run.flow(name).rates for run in runs), strict=False))
            shape = look(content)
            t = [i + 0.5 for i in range(len(rows))]
            mid = [statistics.fmean(r) / 1e6 for r in rows]
            axes.fill_between(
                t,
                [min(r) / 1e6 for r in rows],
                [max(r) / 1e6 for r in rows],
                color=shape.colour,
                alpha=0.15,
                linewidth=0,
            )
            axes.plot(t, mid, **shape.line)
            labels.append(figures.Label(figures.last(mid), _label(content), shape.colour))
            end = max(end, len(rows))
    labels += [figures.level(axes, y / 1e6, text) for y, text in figure.marks]
    axes.set_xlim(0, end)
    axes.set_ylim(0, 4.2)
    axes.set_ylabel("throughput (Mb/s)")
    axes.set_xlabel("time (s)", loc="right", labelpad=1)
    axes.set_title(f"{figure.number}: {figure.title}")
    figures.label_ends(axes, labels)
    return drawing


def _delays(run: Observed) -> list[float]:
    return [math.nan if x is None else x for x in run.flow("video").delays_ms]


def _psnr(run: Observed) -> list[float]:
    return [math.nan if x is None else x for x in run.flow("video").psnr_db]


def _sizes(run: Observed) -> list[float]:
    return [x / 1000 for x in run.flow("video").content["frame_bytes"]]


def _frames(
    figure: Figure,
    part: Part,
    of: Callable[[Observed], Sequence[float]],
    what: str,
    *,
    signed: bool = False,
    floor: float = 0.0,
) -> Drawing | None:
    """Value per frame, of the first seed: a panel per variant, one scale."""
    drawing, panels = figures.canvas(len(figure.variants), height=0.8 + 1.7 * len(figure.variants))
    values = [of(part.runs(variant)[0]) for variant in figure.variants]
    known = [x for v in values for x in v if x == x]
    if not known:
        return None
    low, high = min(known), max([*known, *(y for y, _ in figure.marks)])
    room = 0.06 * (high - low)
    for axes, variant, each in zip(panels, figure.variants, values, strict=True):
        flow = part.runs(variant)[0].content["flows"]["video"]
        shape = look(flow)
        _line(axes, each, shape)
        axes.set_xlim(0, len(each))
        axes.set_ylim(low - room if signed else floor, high + room)
        labels = [figures.level(axes, y, text) for y, text in figure.marks]
        title = next(v.title for v in part.experiment.variants if v.name == variant)
        labels.append(
            figures.Label(
                (low + high) / 2 if signed else high * 0.55, title.replace(", ", ",\n"), shape.colour
            )
        )
        figures.label_ends(axes, labels)
        axes.set_ylabel(what)
    panels[-1].set_xlabel("frame", loc="right", labelpad=1)
    panels[0].set_title(f"{figure.number}: {figure.title}")
    return drawing


def _line(axes: Axes, values: Sequence[float], shape: Look) -> None:
    axes.plot(range(len(values)), values, color=shape.colour, linewidth=0.7)


def _scores(figure: Figure, part: Part) -> Drawing | None:
    """Shares of frames per class of opinion, mean over the seeds."""
    rows = []
    for variant in figure.variants:
        flows = [run.flow("video") for run in part.runs(variant)]
        if not all(flow.scores for flow in flows):
            return None
        share = {str(g): statistics.fmean(flow.scores[g] for flow in flows) for g in range(1, 6)}
        mean = statistics.fmean(flow.score or 0.0 for flow in flows)
        title = next(v.title for v in part.experiment.variants if v.name == variant)
        rows.append((title, {"share": share, "mean": mean}))
    return figures.mos_bars(rows, f"{figure.number}: {figure.title}")
