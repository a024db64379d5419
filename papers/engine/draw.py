"""Draws the paper's figures that are lost, from our runs, on the axes that the paper's text describes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.report import canvas, figures
from steadycast.report.series import last
from steadycast.style import SPARE, Look, look, looks

from papers.engine.experiment import Figure, Line
from papers.engine.observe import Flow, Observed
from papers.engine.suite import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_NAMES = {
    **{name: name.upper() for name in ("asmp", "tfmcc", "tfrc", "pgmcc")},
    **{"fixed": "UDP", "tfrcp": "MPEG-TFRCP"},
    **{f"tfrcp-{name}": name.upper() for name in ("eai", "qai", "eai-cl", "qai-cl")},
}


_KINDS: dict[str, Callable[[Figure, Part], Drawing | None]] = {
    "rates": lambda f, p: _rates(f, p),
    "delay": lambda f, p: _frames(f, p, lambda video: video.delays_ms, "delay of a frame (ms)"),
    "cj": lambda f, p: _frames(f, p, Flow.cumulative_ms, "cumulative jitter (ms)", signed=True),
    "ji": lambda f, p: _frames(f, p, Flow.variations_ms, "delay variation (ms)", signed=True),
    "psnr": lambda f, p: _frames(f, p, lambda video: video.psnr_db, "luma PSNR (dB)", floor=10.0),
    "sizes": lambda f, p: _frames(f, p, _sizes, "frame size (kB)"),
    "mos": lambda f, p: _scores(f, p, lambda flow: flow.scores),
    "psnr by index": lambda f, p: _frames(f, p, _psnr_by_index, "luma PSNR (dB)", floor=10.0),
    "mos by index": lambda f, p: _scores(f, p, lambda flow: flow.grades("index")),
    "ladder": lambda f, p: _ladder(f, p),
    "sweep": lambda f, p: _sweep(f, p),
    "series": lambda f, p: _series(f, p),
    "ranks": lambda f, p: _ranks(f, p),
}


def draw(figure: Figure, part: Part, name: str) -> str | None:
    """Return a figure as inline SVG, or `None` if its runs were not made."""
    return canvas.in_style(lambda: _drawing(figure, part), name)


def drawing(figure: Figure, part: Part) -> canvas.Drawing | None:
    """Return a figure that can be saved in any file format, or `None` if its runs were not made."""
    return canvas.drawn(lambda: _drawing(figure, part))


def save(figure: Figure, part: Part, path: Path) -> bool:
    """Save a figure as a file. Returns false if there was nothing to draw."""
    return canvas.save_drawing(lambda: _drawing(figure, part), path)


def _drawing(figure: Figure, part: Part) -> Drawing | None:
    made = all(part.runs(variant) for variant in figure.variants)
    return _KINDS[figure.kind](figure, part) if made else None


def _label(content: dict[str, Any]) -> str:
    if content["kind"] == "video":
        return _NAMES.get(str(content["controller"]), str(content["controller"]))
    return "UDP" if content["kind"] in ("cbr", "onoff") else "TCP"


def _rates(figure: Figure, part: Part) -> Drawing | None:
    """Draw throughput over time.

    The first seed is drawn as a strong line, and the other seeds as faint lines behind this line. If there are many
    TCPs, one of them is drawn strong and the others faint.
    """
    drawing, (axes,) = canvas.canvas(height=3.0)
    labels, end = [], 0.0
    for n, variant in enumerate(figure.variants):
        runs = part.runs(variant)
        for name, content in runs[0].content["flows"].items():
            # Of the flows other than the video, only those of the first variant are drawn.
            if content["kind"] != "video" and n:
                continue
            flows = [run.flow(name) for run in runs]
            rows = [[x / 1e6 for x in flow.rates] for flow in flows]
            shape, crowd = look(content), _crowd(runs[0], content)
            # All TCPs are drawn together with the first one.
            if crowd and crowd[0] is not content:
                continue
            if crowd:
                rows = [[x / 1e6 for x in Flow(each).rates] for each in crowd]
            above, most = content["kind"] == "video", max(_FAINT, len(crowd))
            end = max(end, _seeds(axes, rows, flows[0].step_s, shape, above=above, most=most))
            label = "one of the TCPs" if crowd else _label(content)
            labels.append(canvas.Label(last(rows[0]), label, shape.colour))
    labels += [canvas.level(axes, y / 1e6, text) for y, text in figure.marks]
    axes.set_xlim(0, end)
    axes.set_ylim(0, figure.top)
    axes.set_ylabel("throughput (Mb/s)")
    axes.set_xlabel("time (s)", loc="right", labelpad=1)
    axes.set_title(f"{figure.number}: {figure.title}")
    canvas.label_ends(axes, labels)
    return drawing


def _crowd(run: Observed, content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all TCPs of a run if `content` is a TCP and there are more than `_FEW`; otherwise an empty list."""
    tcps = [flow for flow in run.content["flows"].values() if flow["kind"] == "tcp"]
    return tcps if content["kind"] == "tcp" and len(tcps) > _FEW else []


_FAINT = 5
"""Maximum number of seeds that are drawn."""
_FEW = 3
"""Up to this number of TCPs in a run, each is drawn separately."""


def _seeds(
    axes: Axes,
    rows: Sequence[Sequence[float]],
    step: float,
    shape: Look,
    *,
    above: bool = False,
    most: int = _FAINT,
) -> float:
    """Draw the first row as a strong line and the other rows faint behind it.

    Returns the end of the first row in seconds.
    """
    for n, row in enumerate(rows[:most]):
        t = [(i + 0.5) * step for i in range(len(row))]
        if n:
            axes.plot(t, row, color=shape.colour, alpha=0.22, linewidth=0.6, zorder=1)
        else:
            axes.plot(t, row, zorder=3 if above else 2, **shape.line)
    return len(rows[0]) * step


_UNITS = {
    "rates": "rate",
    "targets": "rate",
    "losses": "lost packets (%)",
    "p": "estimated loss (%)",
    "delays": "delay (ms)",
    "jitters": "jitter (ms)",
    "rtts": "round trip (ms)",
    "buffer": "in the buffer (kB)",
    "n": "connections",
}
"""Label of the y axis for each kind of series. Series with the same label share a panel."""
_FACTORS = {"losses": 100.0, "p": 100.0, "buffer": 1e-3}


def _series(figure: Figure, part: Part) -> Drawing | None:
    """Draw series over time, with one panel per unit, or one per line if the figure says so.

    For each line, the first seed is drawn strong, and the other seeds are drawn faint behind it.
    """
    keys = [n if figure.apart else _UNITS[line.series] for n, line in enumerate(figure.lines)]
    units = list(dict.fromkeys(keys))
    drawing, panels = canvas.canvas(len(units), height=1.1 + (1.2 if figure.apart else 1.9) * len(units))
    titles = {v.name: v.title for v in part.experiment.variants}
    flows = [[run.flow(line.flow) for run in part.runs(line.variant)] for line in figure.lines]
    for n, (axes, unit) in enumerate(zip(panels, units, strict=True)):
        chosen = [(f, each) for f, each, key in zip(figure.lines, flows, keys, strict=True) if key == unit]
        shapes = _distinguished([each[0].content for _, each in chosen])
        here = [(line, each, shape) for (line, each), shape in zip(chosen, shapes, strict=True)]
        rows = [[_numbers(flow, line, figure.until) for flow in each] for line, each, _ in here]
        # NaN stands for an unknown value, and differs from itself.
        top = max((x for row in rows for one in row for x in one if x == x), default=0.0)
        name = _UNITS[here[0][0].series]
        factor = _FACTORS.get(here[0][0].series, 1.0)
        if name == "rate":
            factor, name = (1e-6, "rate (Mb/s)") if top >= 2e5 else (1e-3, "rate (kb/s)")
        labels = []
        for (line, each, shape), row in zip(here, rows, strict=True):
            scaled = [[x * factor for x in one] for one in row]
            end = _seeds(axes, scaled, each[0].step_s, shape)
            axes.set_xlim(0, end)
            known = [x for x in scaled[0] if x == x]
            labels.append(canvas.Label(last(known), line.label or titles[line.variant], shape.colour))
        if n == 0:
            labels += [canvas.level(axes, y * factor, text) for y, text in figure.marks]
        axes.set_ylim(bottom=0)
        axes.set_ylabel(name)
        canvas.label_ends(axes, labels)
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    panels[0].set_title(f"{figure.number}: {figure.title}")
    return drawing


def _distinguished(flows: Sequence[dict[str, Any]]) -> list[Look]:
    """Return the style of each line of a panel. Flows with the same controller get different colours."""
    colours = [look(flow).colour for flow in flows]
    if len(set(colours)) == len(colours):
        return looks(flows)
    return [Look(SPARE[n]) for n in range(len(flows))]


def _numbers(flow: Flow, line: Line, until: float | None) -> list[float]:
    """Return the values of a line for each time step up to `until`; NaN where there is no value."""
    end = None if until is None else round(until / flow.step_s)
    if line.series == "p":
        return _estimates(flow)[:end]
    content = flow.receivers[line.receiver] if line.receiver else flow.content
    return [math.nan if x is None else float(x) for x in content[line.series][:end]]


def _estimates(flow: Flow) -> list[float]:
    """Return for each time step the loss rate that the sender's latest decision was based on."""
    decided = [(t, p) for t, _, p, _ in flow.decisions if p is not None]
    known = [math.nan] * len(flow.content["targets"])
    for (t, p), (end, _) in pairwise([*decided, (len(known) * flow.step_s, 0.0)]):
        first, last = (round(x / flow.step_s) for x in (t, end))
        known[first:last] = [p] * len(known[first:last])
    return known


def _sweep(figure: Figure, part: Part) -> Drawing | None:
    """Draw values over the quantity that differs between variants.

    The line is the mean over the seeds, and the band reaches from the smallest to the largest value.
    """
    drawing, (axes,) = canvas.canvas(height=3.0)
    labels = []
    for curve in figure.curves:
        rows = [(x, [curve.measure(run) for run in part.runs(name)]) for x, name in curve.points]
        known = [(x, [v * curve.scale for v in values if v is not None]) for x, values in rows]
        if not all(values for _, values in known):
            return None
        shape = look(part.runs(curve.points[0][1])[0].content["flows"][curve.measure.flow or "video"])
        xs, mid = [x for x, _ in known], [statistics.fmean(v) for _, v in known]
        band = [min(v) for _, v in known], [max(v) for _, v in known]
        axes.fill_between(xs, *band, color=shape.colour, alpha=0.15, linewidth=0)
        axes.plot(xs, mid, marker="o", markersize=3, **shape.line)
        labels.append(canvas.Label(mid[-1], curve.label, shape.colour))
    if figure.log:
        axes.set_xscale("log")
    elif all(float(x).is_integer() for curve in figure.curves for x, _ in curve.points):
        axes.locator_params(axis="x", integer=True)
    labels += [canvas.level(axes, y, text) for y, text in figure.marks]
    axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.axes[0], loc="right", labelpad=1)
    axes.set_ylabel(figure.axes[1])
    axes.set_title(f"{figure.number}: {figure.title}")
    canvas.label_ends(axes, labels)
    return drawing


def _ranks(figure: Figure, part: Part) -> Drawing | None:
    """Draw the controllers, ranked by the measured number, each with the paper's words about it."""
    drawing, (axes,) = canvas.canvas(height=0.9 + 0.36 * len(figure.ranks))
    measured = {r.statement.id: r.measured for r in part.rows}
    known = [(who, m, said) for who, id, said in figure.ranks if (m := measured.get(id)) is not None]
    known.sort(key=lambda row: row[1].mean, reverse=True)
    labels = []
    for y, (who, m, said) in enumerate(known):
        shape = look({"kind": "video", "controller": who.lower()})
        axes.plot([min(m.values), max(m.values)], [y, y], color=shape.colour, alpha=0.35, linewidth=6)
        axes.plot(m.mean, y, marker="o", color=shape.colour)
        labels.append(canvas.Label(y, f"{len(known) - y}. {who}: {said}", shape.colour))
    axes.set_ylim(-0.6, len(known) - 0.4)
    axes.set_yticks([])
    axes.set_xlim(left=0)
    axes.set_xlabel(figure.axes[0], loc="right", labelpad=1)
    axes.set_title(f"{figure.number}: {figure.title}")
    canvas.label_ends(axes, labels)
    return drawing


def _psnr_by_index(video: Flow) -> list[float]:
    known = video.content.get("graded")
    return [] if known is None else [float(x) for x in known["index_psnr_y_db"]]


def _sizes(video: Flow) -> list[float]:
    return [x / 1000 for x in video.content["frame_bytes"]]


def _frames(
    figure: Figure,
    part: Part,
    of: Callable[[Flow], Sequence[float | None]],
    what: str,
    *,
    signed: bool = False,
    floor: float = 0.0,
) -> Drawing | None:
    """Draw a value for each frame of the first seed, with one panel per variant, all on the same scale."""
    drawing, panels = canvas.canvas(len(figure.variants), height=0.8 + 1.7 * len(figure.variants))
    rows = [of(part.runs(variant)[0].flow("video")) for variant in figure.variants]
    values = [[math.nan if x is None else x for x in each] for each in rows]
    known = [x for v in values for x in v if x == x]
    if not known:
        return None
    low, high = min(known), max([*known, *(y for y, _ in figure.marks)])
    room = 0.06 * (high - low)
    for axes, variant, each in zip(panels, figure.variants, values, strict=True):
        flow = part.runs(variant)[0].content["flows"]["video"]
        shape = look(flow)
        axes.plot(range(len(each)), each, color=shape.colour, linewidth=0.7)
        axes.set_xlim(0, len(each))
        axes.set_ylim(low - room if signed else floor, high + room)
        labels = [canvas.level(axes, y, text) for y, text in figure.marks]
        title = next(v.title for v in part.experiment.variants if v.name == variant)
        y = (low + high) / 2 if signed else high * 0.55
        labels.append(canvas.Label(y, title.replace(", ", ",\n"), shape.colour))
        canvas.label_ends(axes, labels)
        axes.set_ylabel(what)
    panels[-1].set_xlabel("frame", loc="right", labelpad=1)
    panels[0].set_title(f"{figure.number}: {figure.title}")
    return drawing


def _scores(figure: Figure, part: Part, of: Callable[[Flow], dict[int, float]]) -> Drawing | None:
    """Draw the share of frames with each opinion score (1 to 5), averaged over the seeds."""
    rows = []
    for variant in figure.variants:
        found = [of(run.flow("video")) for run in part.runs(variant)]
        if not all(found):
            return None
        share = {str(g): statistics.fmean(each[g] for each in found) for g in range(1, 6)}
        mean = sum(int(g) * x for g, x in share.items())
        title = next(v.title for v in part.experiment.variants if v.name == variant)
        rows.append((title, {"share": share, "mean": mean}))
    return figures.mos_bars(rows, f"{figure.number}: {figure.title}")


_GROUPS, _STEPS = 4, (2, 3, 4, 6, 8, 12, 20, 31)
"""For a ladder figure, the number of GOPs of the synthetic film that are encoded, and the quantizer scales."""


def _ladder(figure: Figure, part: Part) -> Drawing | None:
    """Draw rate and PSNR of the synthetic film over the quantizer scale.

    Beside them are the rates that are used in place of the paper's clips.
    """
    import numpy as np
    from steadycast.media.ladder import encode_ladder
    from steadycast.media.map001 import map001
    from steadycast.media.quality import evaluate
    from steadycast.media.splice import Fates
    from steadycast.media.synthetic import Synthetic

    film = encode_ladder(Synthetic(), "mpeg2", "640x486", 29.97, 30, 0, qs=range(2, 32))
    frames = _GROUPS * film.table.gop
    fates = Fates(np.ones(frames, dtype=np.bool_))
    rates, psnr = [], []
    for q in _STEPS:
        seen = evaluate(film, [q] * _GROUPS, fates)
        assert seen is not None
        psnr.append(seen.mean_psnr_raw()[0] or 0.0)
        sizes = film.table.sizes[film.table.row(q)][:frames]
        rates.append(float(sizes.mean()) * 8 * float(film.table.fps) / 1e6)
    drawing, (upper, lower) = canvas.canvas(2, height=3.6)
    paper = map001()
    known = [float(x) / 1e6 for x in paper.mean_rates_bps()]
    # MPEG-2's quantizer scale is twice the code that encoders take.
    scales = [2 * q for q in _STEPS]
    ours, theirs = look({"kind": "video", "controller": "tfrcp-qai-cl"}), SPARE[0]
    upper.plot(paper.qs, known, color=theirs)
    upper.plot(scales, rates, color=ours.colour, marker="o", markersize=3)
    lower.plot(scales, psnr, color=ours.colour, marker="o", markersize=3)
    upper.set_ylabel("rate (Mb/s)")
    upper.set_yscale("log")
    upper.set_xlim(0, 64)
    lower.set_ylabel("luma PSNR (dB)")
    lower.set_xlabel("quantizer scale", loc="right", labelpad=1)
    upper.set_title(f"{figure.number}: {figure.title}")
    canvas.label_ends(
        lower,
        [
            canvas.Label(psnr[-1], "drawn film", ours.colour),
            canvas.level(lower, 37.28, "37.28 dB at 12\nin the paper"),
        ],
    )
    for y, text, colour in (
        (known[-1], "media map001", theirs),
        (rates[-1] * 0.7, "drawn film", ours.colour),
    ):
        canvas.note(upper, text, (64, y), (5, 0), color=colour, fontsize=8.5)
    return drawing
