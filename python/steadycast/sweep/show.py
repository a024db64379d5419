"""How a sweep is shown: means with their intervals, differences paired by seed, figures, and a page of all."""

from __future__ import annotations

import difflib
import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.errors import UnwrittenError, UserError
from steadycast.files import write_text
from steadycast.folder import Json, spread
from steadycast.report import canvas, page, say
from steadycast.report.markup import Html, element, joined
from steadycast.sweep.plan import RESERVED

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure
    from rich.table import Table

    from steadycast.sweep import Sweep

_MOST_METRICS = 12
_MOST_LINES = 60
_MOST_CELLS = 400
_MOST_PANELS = 12
_BASES = {
    "bps": 1.0,
    "kbps": 1e3,
    "Mbps": 1e6,
    "Gbps": 1e9,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
}
Values = tuple[str, ...]
Spreads = dict[Values, Json | None]


# ---------------------------------------------------------------- numbers


def columns(names: Sequence[str], metric: str) -> list[str]:
    """Columns that a metric means: one, or with ``*`` all that fit.

    Raises:
        UserError: there is none.

    """
    if "*" in metric:
        pattern = re.compile(".*".join(map(re.escape, metric.split("*"))))
        found = [name for name in names if pattern.fullmatch(name)]
    else:
        found = [metric] if metric in names else []
    if found:
        return found
    near = difflib.get_close_matches(metric, names, n=1, cutoff=0.4)
    remedy = f'did you mean "{near[0]}"?' if near else "name a number of summary.json by its path"
    raise UserError(f"--metric {metric}", "no run has this figure", remedy)


def metrics(sweep: Sweep) -> list[str]:
    """Paths that are shown when none is named."""
    names = _figures(sweep)
    flows = dict.fromkeys(
        found[1] for name in names if (found := re.fullmatch(r"flows\.(.+?)\.throughput_bps", name))
    )
    wanted = []
    for flow in flows:
        if ".receivers." not in flow:
            share = f"flows.{flow}.share_of_fair"
            wanted.append(share if share in names else f"flows.{flow}.throughput_bps")
            wanted += [f"flows.{flow}.receivers.*.{end}" for end in ("loss_frac", "psnr_db.raw.y")]
    # Where there are many, videos come first: only they have losses.
    wanted.sort(key=lambda metric: not _fits(names, f"flows.{metric.split('.')[1]}.receivers.*.loss_frac"))
    return [metric for metric in wanted if _fits(names, metric)][:_MOST_METRICS]


def spreads(sweep: Sweep, metric: str) -> Spreads:
    """Mean and interval of each point over its seeds; `None` where no run has the figure."""
    return {point: _spread(list(seeds.values())) for point, seeds in _by_point(sweep, metric).items()}


def differences(sweep: Sweep, metric: str, baseline: str) -> Spreads:
    """Each point less the one that has the baseline's value and else its own values, paired by seed."""
    place, value = sweep.plan.axis_of(baseline)
    points = _by_point(sweep, metric)
    result: Spreads = {}
    for point, seeds in points.items():
        if point[place] != value:
            other = points.get((*point[:place], value, *point[place + 1 :]), {})
            result[point] = _spread([x - other[seed] for seed, x in seeds.items() if seed in other])
    return result


def frame(axes: Sequence[str], found: Spreads) -> pl.DataFrame:
    """Table of points and their spreads."""
    import polars as pl

    heads = {path: pl.Series(path, [point[i] for point in found], pl.String) for i, path in enumerate(axes)}
    numbers = [one or {"mean": None, "ci95": None, "n": 0} for one in found.values()]
    return pl.DataFrame(
        [
            *heads.values(),
            *(pl.Series(name, [one[name] for one in numbers], pl.Float64) for name in ("mean", "ci95")),
            pl.Series("n", [one["n"] for one in numbers], pl.Int64),
        ]
    )


def _by_point(sweep: Sweep, metric: str) -> dict[Values, dict[int, float]]:
    import polars as pl

    names = columns(_figures(sweep), metric)
    axes = sweep.plan.axes
    points: dict[Values, dict[int, float]] = {point.values: {} for point in sweep.plan.points}
    wanted = sweep.results.select(*axes, "seed", pl.mean_horizontal(names).alias("mean of the metric"))
    for *values, seed, x in wanted.iter_rows():
        if x is not None:
            points[tuple(values)][seed] = x
    return points


def _spread(values: Sequence[float]) -> Json | None:
    return spread(values) if values else None


def _figures(sweep: Sweep) -> list[str]:
    return [name for name in sweep.results.columns if name not in (*sweep.plan.axes, *RESERVED)]


def _fits(names: Sequence[str], metric: str) -> bool:
    try:
        return bool(columns(names, metric))
    except UserError:
        return False


# ---------------------------------------------------------------- text


def tables(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> list[Table]:
    """Table of each metric for the terminal: a line per point."""
    from steadycast.report.terminal import plain

    result = []
    for metric in metrics:
        heads, lines = _lines(sweep, metric, baseline)
        shown = plain(*heads)
        shown.title, shown.title_justify = metric, "left"
        shown.min_width = len(metric)
        for column in shown.columns[: len(heads) - 2 - (baseline is not None)]:
            column.justify, column.overflow, column.no_wrap = "left", "fold", False
        for cells in lines[:_MOST_LINES]:
            shown.add_row(*cells)
        if len(lines) > _MOST_LINES:
            shown.caption = f"{len(lines) - _MOST_LINES} more: {sweep.folder / 'sweep.html'}"
        result.append(shown)
    return result


def _heads(axes: Sequence[str]) -> list[str]:
    """Name the axes by the ends of their paths, where these differ."""
    ends = [path.rpartition(".")[2] for path in axes]
    return (ends if len(set(ends)) == len(ends) else list(axes)) or ["scenario"]


def _lines(sweep: Sweep, metric: str, baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """Heads, and a line per point: what it is, mean with interval, seeds, and the difference from the baseline."""
    how = say.by_unit(metric)
    found = spreads(sweep, metric)
    apart = differences(sweep, metric, baseline) if baseline is not None else {}
    heads = [*_heads(sweep.plan.axes), "mean ± 95 %", "seeds"]
    if baseline is not None:
        heads.append(f"less {baseline.partition('=')[2]}")
    lines = []
    for point, one in found.items():
        line = [*(point or (sweep.plan.name,)), how(one), str(one["n"] if one else 0)]
        if baseline is not None:
            line.append(how(apart.get(point)))
        lines.append(line)
    return heads, lines


# ---------------------------------------------------------------- figures


def number_of(value: str) -> float | None:
    """Value of an axis as a number: of a rate in b/s, of a time in seconds."""
    found = re.fullmatch(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)([A-Za-z]*)", value.strip("\"'"))
    if found is None or (found[2] and found[2] not in _BASES):
        return None
    return float(found[1]) * _BASES.get(found[2], 1.0)


def figures(sweep: Sweep, metric: str) -> list[tuple[str, Figure]]:
    """Figures of a metric with their headings: curves over one axis, heat maps over the last two of several."""
    found = spreads(sweep, metric)
    axes = sweep.plan.axes
    if not axes or all(one is None for one in found.values()):
        return []
    if len(axes) == 1:
        return [(metric, _curve(axes[0], metric, {point[0]: one for point, one in found.items()}))]
    groups = list(dict.fromkeys(point[:-2] for point in found))
    result = []
    for group in groups[:_MOST_PANELS]:
        cells = {point[-2:]: one for point, one in found.items() if point[:-2] == group}
        rows, across = ([*dict.fromkeys(cell[i] for cell in cells)] for i in (0, 1))
        if len(rows) * len(across) > min(_MOST_CELLS, 4 * len(cells)):
            continue  # scattered points, no grid
        heading = ", ".join([metric, *(f"{path}={value}" for path, value in zip(axes, group, strict=False))])
        result.append((heading, _heat(axes[-2:], heading, metric, (rows, across), cells)))
    return result


def _curve(axis: str, metric: str, found: Mapping[str, Json | None]) -> Figure:
    from steadycast import style

    there = [(value, one) for value, one in found.items() if one is not None]
    numbers = [number_of(value) for value, _ in there]
    numeric = len(there) > 1 and None not in numbers
    places = [float(x or 0) for x in numbers] if numeric else [float(i) for i in range(len(there))]
    order = sorted(range(len(there)), key=lambda i: places[i])
    xs = [places[i] for i in order]
    means = [there[i][1]["mean"] for i in order]
    halves = [there[i][1]["ci95"] or 0.0 for i in order]
    labels = [there[i][0] for i in order]
    figure, (axes,) = canvas.canvas()
    figure.subplots_adjust(right=0.97, bottom=0.16)
    colour = "#0072b2"
    if numeric:
        low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(xs, means, color=colour, marker="o", markersize=4)
        if xs[0] > 0 and xs[-1] / xs[0] >= 20:
            axes.set_xscale("log")
            axes.minorticks_off()
    else:
        axes.errorbar(xs, means, yerr=halves, color=colour, fmt="o", capsize=4)
        axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_xticks(xs, labels, rotation=30 if sum(map(len, labels)) > 90 else 0)
    how = say.by_unit(metric)
    for x, mean in zip(xs, means, strict=True):
        axes.annotate(how(mean), (x, mean), (0, 6), textcoords="offset points", ha="center", fontsize=7.5)
    axes.yaxis.set_major_formatter(lambda value, _: how(value))
    axes.margins(y=0.2)
    axes.set_xlabel(axis)
    axes.set_title(metric, color=style.INK)
    return figure


def _heat(
    paths: Sequence[str],
    heading: str,
    metric: str,
    sides: tuple[Sequence[str], Sequence[str]],
    cells: Mapping[tuple[str, ...], Json | None],
) -> Figure:
    from matplotlib.figure import Figure

    rows, across = (_ordered(side) for side in sides)
    grid: list[list[float]] = [
        [(cells.get((row, column)) or {}).get("mean", math.nan) for column in across] for row in rows
    ]
    figure = Figure(figsize=(canvas.WIDTH, 1.2 + 0.38 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=False)
    image = axes.imshow(grid, aspect="auto", cmap="cividis")
    axes.set_xticks(range(len(across)), across, rotation=30 if sum(map(len, across)) > 80 else 0)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(paths[1])
    axes.set_ylabel(paths[0])
    axes.set_title(heading)
    how = say.by_unit(metric)
    means = [mean for line in grid for mean in line if not math.isnan(mean)]
    middle = (min(means) + max(means)) / 2 if means else 0.0
    size = 8.0 if len(across) <= 8 else 6.0
    for (i, line), (j, _) in itertools.product(enumerate(grid), enumerate(across)):
        if not math.isnan(line[j]):
            dark = line[j] < middle
            axes.text(
                j,
                i,
                how(line[j]),
                ha="center",
                va="center",
                size=size,
                color="#ffffff" if dark else "#000000",
            )
    bar = figure.colorbar(image, ax=axes)
    bar.ax.yaxis.set_major_formatter(lambda value, _: how(value))
    return figure


def _ordered(values: Sequence[str]) -> list[str]:
    numbers = {value: number_of(value) for value in values}
    if None in numbers.values():
        return list(values)
    return sorted(values, key=lambda value: numbers[value] or 0.0)


# ---------------------------------------------------------------- page


def write_report(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> Path:
    """Write sweep.html, and each figure as PNG and SVG into figures/."""
    metrics = list(metrics) or sweep.metrics()
    place = sweep.folder / "figures"
    try:
        place.mkdir(exist_ok=True)
        for old in (*place.glob("*.png"), *place.glob("*.svg")):
            old.unlink()
    except OSError as error:
        raise UnwrittenError.of(place, error) from error
    content = [
        _top(sweep),
        *(_section(sweep, metric, baseline, i, place) for i, metric in enumerate(metrics)),
    ]
    path = sweep.folder / "sweep.html"
    write_text(
        path,
        page.wrap(f"Sweep of {sweep.plan.name}", joined([*content, _commands(sweep), _failed(sweep)], "\n")),
    )
    return path


def _top(sweep: Sweep) -> Html:
    axes = ", ".join(sweep.plan.axes) or "nothing"
    told = f"{sweep.results.height} runs of {sweep.plan.name} over {axes}."
    more = [
        f"{sweep.failed} failed." if sweep.failed else "",
        f"{sweep.missing} are missing." if sweep.missing else "",
    ]
    bad = [element("p", each, class_="nothing") for each in more if each]
    seeds = {len(point.seeds) for point in sweep.plan.points}
    rough = " With fewer than five seeds an interval is rough." if min(seeds, default=0) < 5 else ""
    note = (
        "Means over the seeds with their 95 % interval by Student's t; a metric with * is the mean of what fits. "
        f"Of many intervals one in twenty misses.{rough}"
    )
    last = element("p", f"{note} {sweep.plan.program}.", class_="small")
    return joined([element("h1", "Sweep"), element("p", told, class_="answer"), *bad, last])


def _section(sweep: Sweep, metric: str, baseline: str | None, number: int, place: Path) -> Html:
    drawn = []
    count = itertools.count()
    for heading, draw in _drawings(sweep, metric):
        name = f"{re.sub(r'[^A-Za-z0-9]+', '-', metric).strip('-')}-{next(count)}".removesuffix("-0")
        for ending in ("png", "svg"):
            canvas.save_drawing(draw, place / f"{name}.{ending}")
        picture = canvas.in_style(draw, f"m{number}-{name}")
        more = element("span", heading if heading != metric else "")  # the section is called so
        words = element("figcaption", more, element("code", f"figures/{name}.png"))
        drawn.append(element("figure", element("div", Html(picture), class_="wide"), words))
    return page.section(metric, joined([*drawn, _table_html(sweep, metric, baseline)], "\n"))


def _drawings(sweep: Sweep, metric: str) -> list[tuple[str, Any]]:
    def at(place: int) -> Any:
        return lambda: figures(sweep, metric)[place][1]

    return [(heading, at(i)) for i, (heading, _) in enumerate(figures(sweep, metric))]


def _table_html(sweep: Sweep, metric: str, baseline: str | None) -> Html:
    return page.table(*_lines(sweep, metric, baseline))


def tables_html(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> str:
    """Tables alone, for a notebook."""
    each = (element("p", metric) + _table_html(sweep, metric, baseline) for metric in metrics)
    return element("p", repr(sweep)) + joined(each)


def _commands(sweep: Sweep) -> Html:
    rows = [
        [
            ", ".join(point.values) or sweep.plan.name,
            joined(
                (element("code", shlex.join(words)) for words in sweep.plan.commands(point)), element("br")
            ),
        ]
        for point in sweep.plan.points
    ]
    return page.section(
        "Commands",
        element("p", "What runs a point again, with all its tables and its report:")
        + page.table(["point", "command"], rows, prose=(0, 1)),
    )


def _failed(sweep: Sweep) -> Html:
    wrong = sweep.results.filter(sweep.results["complete"].not_())
    if not wrong.height:
        return Html()
    rows = [
        [", ".join(values), str(seed), error or ""]
        for *values, seed, error in wrong.select(*sweep.plan.axes, "seed", "error").head(200).iter_rows()
    ]
    return page.section("Failed runs", page.table(["point", "seed", "error"], rows, prose=(0, 2)))
