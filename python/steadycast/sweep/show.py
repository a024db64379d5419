"""Shows the results of a sweep. It computes means, intervals and differences, draws figures, and writes a page."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import record, style, units
from steadycast.errors import UserError, meant
from steadycast.files import write_text, written
from steadycast.folder import Json, spread, write_json
from steadycast.hints import named
from steadycast.lazy_import import pl
from steadycast.report import canvas, choice, page, say
from steadycast.report.answer import MOSTLY
from steadycast.report.markup import Html, element, joined
from steadycast.sweep.plan import RESERVED

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from steadycast.sweep import Sweep

_MOST_METRICS = 12
_MOST_LINES = 60
_MOST_CELLS = 400
_MOST_PANELS = 12
_ENDINGS = (".png", ".svg", ".pdf")
_DIVERGING = ("#b35806", "#f1a340", "#f7f7f7", "#998ec3", "#542788")
"""Orange, white and purple (PuOr of ColorBrewer). Colour-blind readers can distinguish these colours."""
_SHADES = ("#00224e", "#434e6c", "#7d7c78", "#bcae6c", "#fee838")
MOST_SAID = 6
"""The terminal shows at most this number of recommendations. The report shows all of them."""
VERDICTS = "verdicts.json"
"""Name of the file that says which controller is recommended at each point."""
MARK = "†"
"""This sign follows the results of points at which the network did not limit the flows.

Such results do not compare controllers.
"""
_SHARES = ".limited_by_frac."
_BASES = units.RATE | units.SPAN
_CONTROLLER = re.compile(r"flow\.(.+)\.controller")
_JUDGED = re.compile(
    r"flows\.(.+?)\.receivers\.(.+)\.(picture_score|rate_score|frozen_frac|playout_ms\.p95|delay_ms\.p95)"
)
Values = tuple[str, ...]
Spreads = dict[Values, Json | None]


# ---------------------------------------------------------------- numbers


def columns(names: Sequence[str], metric: str) -> list[str]:
    """Return the columns of a metric. It is one column, or with ``*`` all columns that match."""
    found = _fitting(names, metric)
    if found:
        return found
    if record.needs_pictures(metric) and not any(map(record.needs_pictures, names)):
        pixels, force = named("--pixels", "pixels=True"), named("--force", "force=True")
        remedy = f"add {pixels}, and {force} if the folder has results without pictures"
        raise UserError(
            f"{named('--metric', 'metric')} {metric}", "the runs did not measure their pictures", remedy
        )
    near = [name for name in names if metric in name] or names
    raise UserError(
        f"{named('--metric', 'metric')} {metric}", "no run has this figure", meant(metric, near, cutoff=0.4)
    )


def metrics(sweep: Sweep) -> list[str]:
    """Return the metrics that are shown by default."""
    names = _figures(sweep)
    flows = dict.fromkeys(
        found[1] for name in names if (found := re.fullmatch(r"flows\.(.+?)\.throughput_bps", name))
    )
    wanted = []
    for flow in flows:
        if ".receivers." not in flow:
            share = f"flows.{flow}.share_of_fair"
            wanted.append(share if share in names else f"flows.{flow}.throughput_bps")
            score = (
                "picture_score"
                if _fitting(names, f"flows.{flow}.receivers.*.picture_score")
                else "rate_score"
            )
            wanted += [f"flows.{flow}.receivers.*.{end}" for end in (score, "loss_frac", "psnr_db.raw.y")]
    # Put the metrics of videos first. A flow is a video if it has a loss rate.
    fits = {metric: bool(_fitting(names, metric)) for metric in wanted}
    wanted.sort(key=lambda metric: not fits.get(f"flows.{metric.split('.')[1]}.receivers.*.loss_frac"))
    return [metric for metric in wanted if fits[metric]][:_MOST_METRICS]


def spreads(sweep: Sweep, metric: str) -> Spreads:
    """Return the mean and the confidence interval of a metric at each point, over the seeds.

    The value is `None` if no run of the point has the metric.
    """
    return {point: _spread(list(seeds.values())) for point, seeds in _by_point(sweep, metric).items()}


def differences(sweep: Sweep, metric: str, baseline: str) -> Spreads:
    """Return how much each point differs from the point that has the baseline's value.

    The values of the other axes are equal at both points. Runs are paired by seed.
    """
    place, value = sweep.plan.axis_of(baseline)
    points = _by_point(sweep, metric)
    result: Spreads = {}
    for point, seeds in points.items():
        if point[place] != value:
            other = points.get((*point[:place], value, *point[place + 1 :]), {})
            result[point] = _spread([x - other[seed] for seed, x in seeds.items() if seed in other])
    return result


def idle(sweep: Sweep) -> dict[Values, int]:
    """Return for each point the number of runs in which the network did not limit the rates."""
    held = [
        pl.sum_horizontal(f"{flow}{_SHARES}encoder", f"{flow}{_SHARES}start").fill_null(0.0) > MOSTLY
        for flow in _limited(sweep)
    ]
    if not held:
        return {}
    chosen = sweep.results.filter(pl.any_horizontal(held)).select(*sweep.plan.axes, "seed")
    return Counter(tuple(values) for *values, _ in chosen.iter_rows())


def _limited(sweep: Sweep) -> list[str]:
    """Return the paths of the flows for which the table has what limited their rate."""
    ending = f"{_SHARES}encoder"
    return [name.removesuffix(ending) for name in _figures(sweep) if name.endswith(ending)]


def _broken(sweep: Sweep) -> int:
    """Return the number of runs in which all packets of a video, or all reports about it, were lost."""
    names = _figures(sweep)
    lost: list[Any] = []
    for flow in _limited(sweep):
        own = [name for name in names if name.startswith(f"{flow}.receivers.")]
        losses = [pl.col(name) == 1 for name in own if name.endswith(".loss_frac")]
        unreported = [pl.col(name) == 0 for name in names if name == f"{flow}.feedback_packets"]
        both = [*([pl.all_horizontal(losses)] if losses else []), *unreported]
        started = pl.col(f"{flow}{_SHARES}start").fill_null(0.0) > MOSTLY
        lost.extend(started & each.fill_null(value=False) for each in both)
    return sweep.results.filter(pl.any_horizontal(lost)).height if lost else 0


def warning(sweep: Sweep) -> str | None:
    """Return a warning about runs in which the network did not limit the flows. Returns `None` if there are none."""
    found = idle(sweep)
    if not found:
        return None
    runs, points, broken = sum(found.values()), len(sweep.plan.points), _broken(sweep)
    reasons = []
    if runs > broken:
        reasons.append(
            "for most of the time a video was limited by its encoder's best quality, or still in its start phase, not "
            "by the network. Take a slower link, a clip that needs more, or longer runs."
        )
    if broken:
        reasons.append(
            f"in {broken} of them no packet of a video arrived, or no report reached its sender. Check the rate, the "
            "loss and the delay of the links."
        )
    return (
        f"{runs} of {sweep.results.height} runs, at {len(found)} of {points} points ({MARK}), compare nothing: "
        + " Also, ".join(reasons)
    )


def taken(sweep: Sweep, where: choice.Where = "sweep") -> list[tuple[str, str]]:
    """Return a recommendation for each combination of values, except those of the controller's axis.

    A recommendation consists of the combination and of sentences.
    """
    texts = [
        (point, " ".join(found.said) if found else f"Nothing is compared here ({MARK}).")
        for point, found in verdicts(sweep, where)
    ]
    return [(point, text) for point, text in texts if text]


def verdicts(sweep: Sweep, where: choice.Where = "sweep") -> list[tuple[str, choice.Verdict | None]]:
    """Return the result of `choice.verdict` for each combination of the other axes.

    The other axes are all except the controller. The result is `None` if the network did not limit the flows at one of
    the compared points. If not exactly one axis is a controller, the list is empty.
    """
    steered = [
        (n, match[1]) for n, path in enumerate(sweep.plan.axes) if (match := _CONTROLLER.fullmatch(path))
    ]
    if len(steered) != 1:
        return []
    place, tested = steered[0]
    groups: dict[Values, list[tuple[str, Values]]] = {}
    for point in sweep.plan.points:
        values = point.values
        groups.setdefault((*values[:place], *values[place + 1 :]), []).append((values[place], values))
    axes = [path for n, path in enumerate(sweep.plan.axes) if n != place]
    runs, idles = summaries(sweep), idle(sweep)
    each = re.compile(re.escape(tested) + r"\d*")  # the key `count` makes several flows
    found: list[tuple[str, choice.Verdict | None]] = []
    for group, points in groups.items():
        named = zip(_heads(axes), group, strict=False)
        said = ", ".join(f"{head} {value}" for head, value in named) or sweep.plan.name
        compared = [(name, runs[values]) for name, values in points if values in runs]
        if any(values in idles for _, values in points):
            found.append((said, None))
        elif len(compared) > 1:
            flows = {flow["name"] for _, seeds in compared for one in seeds.values() for flow in one["flows"]}
            videos = [flow for flow in flows if each.fullmatch(flow)]
            candidates = [choice.candidate(name, seeds, videos) for name, seeds in compared]
            found.append((said, choice.verdict(candidates, where)))
    return found


def verdicts_json(sweep: Sweep, where: choice.Where = "sweep") -> list[Json]:
    """Return the verdicts as JSON. Each verdict contains its point."""
    idle_one: Json = {"take": [], "recommended": None, "reason": "idle", "rule": choice.RULE}
    return [
        {"point": point, **(found.as_json() if found is not None else idle_one)}
        for point, found in verdicts(sweep, where)
    ]


def summaries(sweep: Sweep) -> dict[Values, dict[int, Json]]:
    """Return for each point and seed the figures on which `choice.RULE` is based."""
    names = _figures(sweep)
    places: list[tuple[str, str, str | None, list[str]]] = []
    for name in names:
        if found := re.fullmatch(r"flows\.(.+?)\.share_of_fair", name):
            places.append((name, found[1], None, ["share_of_fair"]))
        elif found := _JUDGED.fullmatch(name):
            places.append((name, found[1], found[2], found[3].split(".")))
    runs: dict[Values, dict[int, Json]] = {}
    for metric, flow, receiver, keys in places:
        video = f"flows.{flow}.limited_by_frac.network" in names
        if not video and any(
            name.startswith(f"flows.{flow}.receivers.") and "loss" in name for name in names
        ):
            continue  # this flow is background traffic
        for point, seeds in _by_point(sweep, metric).items():
            for seed, value in seeds.items():
                summary = runs.setdefault(point, {}).setdefault(seed, {"flows": {}})
                kind = "video" if video else "tcp"
                below = summary["flows"].setdefault(flow, {"name": flow, "kind": kind, "receivers": {}})
                if receiver is not None:
                    below = below["receivers"].setdefault(receiver, {})
                for key in keys[:-1]:
                    below = below.setdefault(key, {})
                below[keys[-1]] = value
    for summary in (summary for seeds in runs.values() for summary in seeds.values()):
        flows = list(summary["flows"].values())
        summary["flows"] = [{**told, "receivers": list(told["receivers"].values())} for told in flows]
    return runs


def frame(axes: Sequence[str], found: Spreads) -> pl.DataFrame:
    """Return a table that contains points, means and intervals."""
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


def _fitting(names: Sequence[str], metric: str) -> list[str]:
    if "*" not in metric:
        return [metric] if metric in names else []
    pattern = re.compile(".*".join(map(re.escape, metric.split("*"))))
    return [name for name in names if pattern.fullmatch(name)]


# ---------------------------------------------------------------- text


def tables(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> list[Table]:
    """Return a table for each metric, for the terminal. A table has one line per point."""
    from steadycast.report.terminal import plain

    result = []
    for metric in metrics:
        heads, lines = _lines(sweep, metric, baseline)
        shown = plain(*heads)
        shown.title, shown.title_justify = f"{said(metric)} ({metric})", "left"
        shown.min_width = min(len(shown.title), 80)
        for column in shown.columns[: len(heads) - 2 - (baseline is not None)]:
            column.justify, column.overflow, column.no_wrap = "left", "fold", False
        for cells in lines[:_MOST_LINES]:
            shown.add_row(*cells)
        if len(lines) > _MOST_LINES:
            shown.caption = f"{len(lines) - _MOST_LINES} more: {sweep.folder / 'sweep.html'}"
        result.append(shown)
    return result


def _heads(axes: Sequence[str]) -> list[str]:
    """Return the last key of each axis's path. If these are not unique, return the whole paths."""
    ends = [path.rpartition(".")[2] for path in axes]
    return (ends if len(set(ends)) == len(ends) else list(axes)) or ["scenario"]


def _lines(sweep: Sweep, metric: str, baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the lines of a table. There is one line per point.

    A line has the values of the axes, the mean and interval, the number of seeds, and the difference to the baseline.
    """
    how = say.by_unit(metric)
    found = spreads(sweep, metric)
    apart = differences(sweep, metric, baseline) if baseline is not None else {}
    marked = idle(sweep)
    heads = [*_heads(sweep.plan.axes), "mean ± 95 %", "seeds"]
    if baseline is not None:
        heads.append(f"minus {baseline.partition('=')[2]}")
    lines = []
    for point, one in found.items():
        line = [
            *(point or (sweep.plan.name,)),
            how(one) + _mark(point in marked),
            str(one["n"] if one else 0),
        ]
        if baseline is not None:
            line.append(how(apart.get(point)))
        lines.append(line)
    return heads, lines


def said(metric: str) -> str:
    """Return a metric in words: its flow or link, then its heading in tables."""
    figure = record.at(metric.replace("*", "any"))
    if figure is None:
        return metric
    key = next(
        (
            each
            for each in (figure.key, *(f"{figure.key}.{part}" for part in figure.parts))
            if metric.endswith(f".{each}")
        ),
        figure.key,
    )
    whose = metric.removesuffix(f".{key}").partition(".")[2]
    flow, of, receiver = whose.partition(".receivers.")
    word = figure.short or figure.key.replace("_", " ")
    part = key.removeprefix(figure.key).replace(".", " ")
    at = f", at {receiver}" if of and receiver != "*" else ""
    return f"{flow}: {word}{part}{at}" if whose else f"{word}{part}"


def axis_said(path: str) -> str:
    """Return an axis in words, from the last two keys of its path."""
    keys = [key for key in path.split(".") if key not in ("flow", "topology", "link")]
    return " ".join(keys[-2:]).replace("_", " ")


def _mark(marked: bool) -> str:
    return f" {MARK}" if marked else ""


# ---------------------------------------------------------------- figures


def number_of(value: str) -> float | None:
    """Return a value of an axis as a number, or `None` if it is not a number.

    Rates are in bit/s, and times are in seconds.
    """
    found = re.fullmatch(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)([A-Za-z]*)", value.strip("\"'"))
    if found is None or (found[2] and found[2] not in _BASES):
        return None
    return float(found[1]) * _BASES.get(found[2], 1.0)


def figures(sweep: Sweep, metric: str) -> list[tuple[str, Figure]]:
    """Draw the figures of a metric. Return them with their headings.

    If there is one axis, the figure is a curve. Otherwise there are heat maps over the last two axes.
    """
    curve = _curve_of(sweep, metric)
    if curve is not None:
        return [(metric, curve)]
    return [(grid.heading, _heat(grid)) for grid in grids(sweep, metric)]


def _curve_of(sweep: Sweep, metric: str) -> Figure | None:
    axes = sweep.plan.axes
    found = spreads(sweep, metric)
    if len(axes) != 1 or all(one is None for one in found.values()):
        return None
    marked = {point[0] for point in idle(sweep)}
    return _curve(axes[0], metric, {point[0]: one for point, one in found.items()}, marked)


@dataclass(frozen=True)
class Grid:
    """A metric over two axes. The other axes have fixed values."""

    paths: tuple[str, str]
    """Paths of the vertical and of the horizontal axis."""
    heading: str
    metric: str
    rows: Sequence[str]
    across: Sequence[str]
    cells: Mapping[Values, Json | None]
    marked: AbstractSet[Values]
    """Cells of points at which the network did not limit the flows."""


def grids(sweep: Sweep, metric: str) -> list[Grid]:
    """Return a metric over the last two axes. There is one grid for each combination of the other axes."""
    found = spreads(sweep, metric)
    axes = sweep.plan.axes
    if len(axes) < 2 or all(one is None for one in found.values()):
        return []
    groups = list(dict.fromkeys(point[:-2] for point in found))
    marked = idle(sweep)
    result = []
    for group in groups[:_MOST_PANELS]:
        cells = {point[-2:]: one for point, one in found.items() if point[:-2] == group}
        rows, across = (_ordered([*dict.fromkeys(cell[i] for cell in cells)]) for i in (0, 1))
        if len(rows) * len(across) > min(_MOST_CELLS, 4 * len(cells)):
            continue  # the points are too scattered for a heat map
        others = (f"{axis_said(path)} {value}" for path, value in zip(axes, group, strict=False))
        heading = ", ".join([said(metric), *others])
        bad = {point[-2:] for point in marked if point[:-2] == group}
        result.append(Grid((axes[-2], axes[-1]), heading, metric, rows, across, cells, bad))
    return result


def _curve(axis: str, metric: str, found: Mapping[str, Json | None], marked: AbstractSet[str]) -> Figure:
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
    for x, mean, label in zip(xs, means, labels, strict=True):
        text = how(mean) + _mark(label in marked)
        canvas.note(axes, text, (x, mean), (0, 6), ha="center", va="baseline", fontsize=7.5)
    axes.yaxis.set_major_formatter(lambda value, _: how(value))
    axes.margins(y=0.2)
    axes.set_xlabel(axis_said(axis))
    axes.set_title(said(metric), color=style.INK)
    return figure


def _heat(of: Grid) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    rows, across, grid = of.rows, of.across, _means(of)
    figure = Figure(figsize=(canvas.WIDTH, 1.2 + 0.46 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=False)
    low, high, shades = _scale(of)
    colours = LinearSegmentedColormap.from_list("shades", list(shades))
    image = axes.imshow(grid, aspect="auto", cmap=colours, vmin=low, vmax=high)
    axes.set_xticks(range(len(across)), across, rotation=30 if sum(map(len, across)) > 80 else 0)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(axis_said(of.paths[1]))
    axes.set_ylabel(axis_said(of.paths[0]))
    axes.set_title(of.heading)
    how = say.by_unit(of.metric)
    text: Any = {"ha": "center", "va": "center", "size": 8.0 if len(across) <= 8 else 6.0}
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(across)):
        marked = (row, column) in of.marked
        if marked:
            hatched: Any = {"fill": False, "hatch": "///", "edgecolor": "#ffffff80", "linewidth": 0}
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **hatched))
        if not math.isnan(grid[i][j]):
            ink = style.ink_on(_shade(grid[i][j], low, high, shades))
            told = how(of.cells[row, column]).replace(" ± ", "\n± ") + _mark(marked)
            axes.text(j, i, told, color=ink, **text)
    bar = figure.colorbar(image, ax=axes)
    bar.ax.yaxis.set_major_formatter(lambda value, _: how(value))
    return figure


def _means(of: Grid) -> list[list[float]]:
    return [
        [(of.cells.get((row, column)) or {}).get("mean", math.nan) for column in of.across] for row in of.rows
    ]


def _ordered(values: Sequence[str]) -> list[str]:
    numbers = {value: number_of(value) for value in values}
    if None in numbers.values():
        return list(values)
    return sorted(values, key=lambda value: numbers[value] or 0.0)


# ---------------------------------------------------------------- page


def write_report(
    sweep: Sweep, metrics: Sequence[str], baseline: str | None, *, figures: bool = False
) -> Path:
    """Write sweep.html, and return its path. A page that has not changed is not written again.

    With ``figures``, also write each figure into the folder ``figures``.
    """
    metrics = list(metrics) or sweep.metrics()
    path = sweep.folder / "sweep.html"
    stamp = Html(f"<!-- of {_digest(sweep, metrics, baseline)} -->")
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if stamp not in known:
        content = [
            stamp,
            _top(sweep),
            _taken_html(sweep),
            *(_section(sweep, metric, baseline, i) for i, metric in enumerate(metrics)),
            _commands(sweep),
            _failed(sweep),
        ]
        write_text(path, page.wrap(f"Sweep of {sweep.plan.name}", joined(content, "\n")))
        write_json(sweep.folder / VERDICTS, {"format": 1, "verdicts": verdicts_json(sweep)})
    if figures or stamp not in known:
        _save_figures(sweep, metrics if figures else ())
    return path


def _digest(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> str:
    rows = sweep.results.drop("cpu_s").hash_rows(0).to_list()
    shown = (rows, list(metrics), baseline, sweep.plan.program, sweep.plan.axes, sweep.missing)
    return hashlib.sha256(repr(shown).encode()).hexdigest()


def _save_figures(sweep: Sweep, metrics: Sequence[str]) -> None:
    place = sweep.folder / "figures"
    with written(place):
        if place.exists() or metrics:
            place.mkdir(exist_ok=True)
        # Remove the figures of an earlier call, because they would be mistaken for figures of this one.
        for old in itertools.chain.from_iterable(place.glob(f"*{ending}") for ending in (*_ENDINGS, ".csv")):
            old.unlink()
        if not metrics and place.exists():
            place.rmdir()
    for metric in metrics:
        name = re.sub(r"[^A-Za-z0-9]+", "-", metric).strip("-")
        drawings = canvas.all_drawn(lambda metric=metric: [one for _, one in figures(sweep, metric)])  # type: ignore[misc]
        for count, drawing in enumerate(drawings):
            for ending in _ENDINGS:
                drawing.save(place / f"{name}{f'-{count}' if count else ''}{ending}")
        if drawings:
            write_text(place / f"{name}.csv", frame(sweep.plan.axes, spreads(sweep, metric)).write_csv())


def _top(sweep: Sweep) -> Html:
    axes = ", ".join(sweep.plan.axes) or "nothing"
    told = f"{sweep.results.height} runs of {sweep.plan.name} over {axes}."
    more = [
        f"{sweep.failed} failed." if sweep.failed else "",
        f"{sweep.missing} are missing." if sweep.missing else "",
    ]
    bad = [
        element("p", each, class_="nothing") for each in (*more, *sweep.plan.notes(), warning(sweep)) if each
    ]
    seeds = {len(point.seeds) for point in sweep.plan.points}
    rough = " With fewer than five seeds an interval is rough." if min(seeds, default=0) < 5 else ""
    note = (
        "Means over the seeds with their 95 % interval by Student's t; a metric with * is the mean of what fits. "
        f"Of many intervals one in twenty misses.{rough}"
    )
    last = element("p", f"{note} {sweep.plan.program}.", class_="small")
    return joined([element("h1", "Sweep"), element("p", told, class_="answer"), *bad, last])


def _taken_html(sweep: Sweep) -> Html:
    texts = taken(sweep)
    if not texts:
        return Html()
    rows = page.table(["at", "which to take"], [list(each) for each in texts], prose=(0, 1))
    return page.section("Which to take", rows + element("p", choice.RULE, class_="small"))


def _section(sweep: Sweep, metric: str, baseline: str | None, number: int) -> Html:
    drawn = [_heat_html(grid) for grid in grids(sweep, metric)]
    curve = canvas.in_style(lambda: _curve_of(sweep, metric), f"m{number}")
    if curve is not None:
        drawn.append(element("figure", element("div", Html(curve), class_="wide")))
    path = element("p", element("code", metric), class_="small")
    return page.section(said(metric), joined([*drawn, _table_html(sweep, metric, baseline), path], "\n"))


def _heat_html(of: Grid) -> Html:
    """Build a heat map as an HTML table. Such a table is fast, and its numbers can be copied."""
    how = say.by_unit(of.metric)
    low, high, shades = _scale(of)

    def cell(place: Values) -> Html:
        one = of.cells.get(place)
        if one is None:
            return element("td", "")
        marked = place in of.marked
        shade = _shade(one["mean"], low, high, shades)
        colours = f"background-color:{shade};color:{style.ink_on(shade)}"
        return element("td", how(one) + _mark(marked), class_="idle" if marked else None, style=colours)

    head = element("tr", element("th", ""), *(element("th", each) for each in of.across))
    lines = [element("tr", element("th", row), *(cell((row, each)) for each in of.across)) for row in of.rows]
    more = of.heading.removeprefix(said(of.metric)).removeprefix(", ")
    down, across = (axis_said(path) for path in of.paths)
    return element(
        "figure",
        element("div", element("table", head, *lines, class_="heat"), class_="wide"),
        element("figcaption", f"{more} down: {down}, across: {across}".lstrip()),
    )


Shades = Sequence[str]


def _scale(of: Grid) -> tuple[float, float, Shades]:
    """Return the lowest and the highest value of a grid's colour scale, and its colours.

    For fractions of the fair share, the scale is symmetric around 100 %, which is the best value.
    """
    means = [mean for line in _means(of) for mean in line if not math.isnan(mean)] or [0.0]
    figure = record.at(of.metric)
    if figure is not None and figure.key == "share_of_fair":
        far = max(*(abs(mean - 1.0) for mean in means), 0.2)
        return 1.0 - far, 1.0 + far, _DIVERGING
    return min(means), max(means), _SHADES


def _shade(value: float, low: float, high: float, shades: Shades) -> str:
    # If all cells are equal, they get the middle colour.
    level = (value - low) / (high - low) if high > low else 0.5
    place = min(max(level, 0.0), 1.0) * (len(shades) - 1)
    n = min(int(place), len(shades) - 2)
    return style.mix(shades[n], shades[n + 1], place - n)


def _table_html(sweep: Sweep, metric: str, baseline: str | None) -> Html:
    return page.table(*_lines(sweep, metric, baseline))


def tables_html(sweep: Sweep, metrics: Sequence[str], baseline: str | None) -> str:
    """Return the tables as HTML for a notebook."""
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
