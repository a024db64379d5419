"""Shows the results of an experiment: tables for the terminal, CSV files, and a page with figures."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from steadycast import style
from steadycast.experiment import timeline
from steadycast.experiment.spec import FigureSpec, Measure, Point
from steadycast.experiment.tables import Labels, built, csv_text, write
from steadycast.experiment.verdict import FAILS, HOLDS, UNKNOWN, UNTESTED, Experiment, Judgement
from steadycast.files import write_text
from steadycast.folder import Json
from steadycast.report import canvas, page, say, terminal
from steadycast.report.canvas import Label
from steadycast.report.cells import verdict
from steadycast.report.markup import Html, element, joined
from steadycast.sweep.show import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

_MOST_ROWS = 60
"""The largest number of rows that a table has in the terminal."""
_FEW = 20
"""If there are at most this many bounds, the page shows them expanded."""
_SAID = {
    FAILS: "fails",
    UNTESTED: "untested: the placebo keeps it",
    UNKNOWN: "unknown: a run has no value",
}


# ---------------------------------------------------------------- tables


def measured(done: Experiment, *, placebo: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the table of all means: its headings, and a row for each point."""
    points = [point for point in done.points if point.placebo == placebo]
    measures = [measure for measure in done.spec.measures if measure.name == measure.shown]
    labels = Labels(done, points)
    rows = [
        [
            *(cell.shown for cell in labels.of(point)),
            *(_cell(measure, done.spread(measure, point)) for measure in measures),
        ]
        for point in points
    ]
    return [*labels.names, *map(_heading, measures)], rows


def bounds(done: Experiment) -> tuple[list[str], list[list[str]]]:
    """Return the table of all bounds: its headings, and a row for each bound and variant."""
    rows = []
    every = len(done.spec.scenarios)
    limited = any(len(each.bound.scenarios) < every for each in done.judgements)
    for each in done.judgements:
        source = f" ({each.bound.source})" if each.bound.source else ""
        held = f"{each.held} of {len(each.points)}"
        rows.append(
            [
                done.spec.measure(each.bound.measure).shown,
                *([", ".join(each.bound.scenarios)] if limited else []),
                each.variant,
                each.bound.said(),
                held,
                _outcome(each),
                each.bound.why + source,
            ]
        )
    where = ["scenario"] if limited else []
    return ["measure", *where, "variant", "bound", "points", "", "why"], rows


def tables(done: Experiment) -> list[Table | terminal.Fitted]:
    """Return the tables that the experiment's file defines. Without them, return tables of the means and the bounds."""
    found: list[Table | terminal.Fitted] = []

    def add(heads: Sequence[str], rows: Sequence[Sequence[str]], labels: int) -> None:
        few = rows[:_MOST_ROWS]
        found.append(terminal.Fitted(heads, few, labels=labels) if labels else terminal.filled(heads, few))
        if len(rows) > _MOST_ROWS:
            more = f"{len(rows) - _MOST_ROWS} more: {done.folder / 'report.html'}"
            found.append(terminal.plain(more))

    # Skip tables without rows, which `--only` may cause.
    for table in (built(done, each) for each in done.spec.tables):
        if table.rows:
            add(*table.shown(), table.labels)
    if not done.spec.tables:
        heads, rows = measured(done)
        add(heads, rows, len(heads) - sum(measure.name == measure.shown for measure in done.spec.measures))
        if done.judgements:
            heads, rows = bounds(done)
            add(heads[:-1], [row[:-1] for row in rows], 0)
    return found


def _heading(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}" if measure.unit else measure.name


def _cell(measure: Measure, one: Json | None) -> str:
    if one is None:
        return say.NOTHING
    mean = f"{one['mean']:.{measure.digits}f}"
    return mean if one["ci95"] is None else f"{mean} ± {one['ci95']:.{measure.digits}f}"


def _outcome(each: Judgement) -> Html:
    return verdict(holds=each.outcome == HOLDS, fails=_SAID.get(each.outcome, ""))


def write_tables(done: Experiment) -> None:
    """Write results.csv (means), seeds.csv (each run), bounds.csv, and the files that the experiment specifies."""
    spec = done.spec
    axes = list(dict.fromkeys(name for axis in spec.axes for name in axis.names))
    heads = ["scenario", *axes, *(["draw"] if spec.draws else []), "variant", "placebo"]
    means: list[list[object]] = [[*heads, *(f"{m.name}{end}" for m in spec.measures for end in ("", " ±"))]]
    seeds: list[list[object]] = [[*heads, "seed", *(measure.name for measure in spec.measures), "error"]]
    for point in done.points:
        at = [dict(point.values).get(axis, "") for axis in axes]
        draw = [f"draw {point.draw}"] if spec.draws else []
        labels = [point.scenario, *at, *draw, point.variant, "yes" if point.placebo else "no"]
        found = [done.spread(measure, point) for measure in spec.measures]
        means.append([*labels, *(_plain(one, key) for one in found for key in ("mean", "ci95"))])
        values = [done.values(measure, point) for measure in spec.measures]
        for seed in spec.seeds:
            numbers = ["" if each[seed] is None else f"{each[seed]:.9g}" for each in values]
            seeds.append([*labels, seed, *numbers, done.runs.errors.get((point, seed), "")])
    bound_heads, bound_rows = bounds(done)
    judged = [
        [*row[:-2], each.outcome, row[-1]] for row, each in zip(bound_rows, done.judgements, strict=True)
    ]
    bound_heads[-2] = "outcome"
    for name, rows in (("results", means), ("seeds", seeds), ("bounds", [bound_heads, *judged])):
        write_text(done.folder / f"{name}.csv", csv_text(rows))
    if spec.write is not None and spec.whole:
        write_text(done.folder / spec.write, csv_text(means))
    for table in spec.tables if spec.whole else ():
        write(done, table)


def _plain(one: Json | None, key: str) -> str:
    value = None if one is None else one[key]
    return "" if value is None else f"{value:.6g}"


# ---------------------------------------------------------------- page


def write_report(done: Experiment) -> None:
    """Write report.html into the experiment's folder."""
    spec = done.spec
    count = sum(each.outcome == HOLDS for each in done.judgements)
    answer = f"{count} of {len(done.judgements)} bounds hold." if done.judgements else "It has no bounds."
    seeds = f"{len(spec.seeds)} seeds" if len(spec.seeds) > 1 else f"seed {spec.seeds[0]}"
    parts = [
        element("h1", _with_code(spec.question)),
        element("p", answer, class_="answer"),
        element(
            "p",
            f"{seeds}; means with half of their 95 % interval (Student's t). ",
            element("code", spec.command),
        ),
        *(element("p", error, class_="nothing") for error in dict.fromkeys(done.runs.errors.values())),
    ]
    for each in spec.tables:
        heads, rows = built(done, each).shown()
        if not rows:
            continue
        prose = [
            n for n, head in enumerate(heads) if head in ("scenario", "what is asked", "keep all bounds")
        ]
        parts.append(page.section(_with_code(each.title), page.table(heads, rows, prose=prose)))
    if done.judgements and not any(each.kind == "bounds" for each in spec.tables):
        parts.append(_bounds_section(done))
    for number, figure in enumerate(spec.figures):
        if figure.kind == "time":
            parts += _times(done, figure, f"figure-{number + 1}")
            continue
        if figure.write is not None and spec.whole:
            canvas.save_drawing(lambda figure=figure: draw(done, figure), done.folder / figure.write)  # type: ignore[misc]
        drawn = canvas.in_style(lambda figure=figure: draw(done, figure), f"f{number}")  # type: ignore[misc]
        if drawn is not None:
            parts.append(page.figure(drawn, figure.caption, spec.command, f"figure-{number + 1}"))
    if not any(each.kind == "points" for each in spec.tables):
        heads, rows = measured(done)
        parts.append(page.section("Measures", page.table(heads, rows)))
    if spec.placebo is not None:
        heads, rows = measured(done, placebo=True)
        told = element("p", f"Placebo: {spec.placebo[1]}")
        parts.append(page.section("The same without the event", told + page.table(heads, rows)))
    parts.append(page.section("The experiment", element("pre", element("code", spec.text))))
    write_text(done.folder / "report.html", page.wrap(f"{spec.question} · Steadycast", joined(parts, "\n")))


def _bounds_section(done: Experiment) -> Html:
    heads, rows = bounds(done)
    prose = [n for n, head in enumerate(heads) if head in ("measure", "scenario", "bound", "why")]
    table = page.table(heads, rows, prose=prose)
    return page.section("Bounds", page.folded(f"all {len(rows)}", table) if len(rows) > _FEW else table)


def _times(done: Experiment, figure: FigureSpec, name: str) -> Iterator[Html]:
    """Yield the figures over time for each scenario and variant. The figures of many variants are collapsed."""
    several = len({point.variant for point in done.runs.times}) > 3
    for number, (point, path) in enumerate(done.runs.times.items()):
        if point.scenario not in figure.scenarios:
            continue
        label = f"{name}-{number + 1}"
        drawn = canvas.in_style(lambda path=path: timeline.draw(path), label)  # type: ignore[misc]
        # Round coordinates to 0.01 points, which makes a page with many figures smaller.
        drawn = re.sub(r"(\d\.\d\d)\d+", r"\1", str(drawn))
        words = ["steadycast", "run", str(done.spec.scenarios[point.scenario].base.scenario)]
        for change in [*point.sets, f"seed={done.spec.seeds[0]}"]:
            words += ["--set", change]
        title = f"{figure.caption}: {', '.join(filter(None, point.labels))}"
        shown = page.figure(drawn, title, shlex.join(words), label)
        yield page.folded(title, shown) if several else shown


def _with_code(text: str) -> Html:
    return joined(element("code", part) if n % 2 else part for n, part in enumerate(text.split("`")))


def draw(done: Experiment, figure: FigureSpec) -> Figure | None:
    """Draw a measure with its intervals and bounds.

    Draw a line for each variant over an axis, or a bar for each variant.

    A value is the mean over all points of its variant (and axis value). A mean over several points has no interval.
    """
    if figure.against is not None:
        return _dots(done, figure, figure.against)
    measure = done.spec.measure(figure.measure)
    drawing, (axes,) = canvas.canvas()
    axes.set_ylabel(_heading(measure))
    names = list(done.spec.variants)
    ends = [
        end for bound in done.spec.bounds if bound.measure == measure.name for end in (bound.min, bound.max)
    ]
    for end in dict.fromkeys(end for end in ends if end is not None):
        axes.axhline(end, color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    if figure.over is None:
        return drawing if _bars(done, figure, measure, axes, names) else None
    path = list(
        dict.fromkeys(label for point in done.points for name, label in point.values if name == figure.over)
    )
    numbers = [number_of(value) for value in path]
    numeric = None not in numbers
    places = [float(x or 0) for x in numbers] if numeric else [float(n) for n in range(len(path))]
    labels, top = [], 0.0
    for name in names:
        line = [_mean_of(done, figure, measure, name, value) for value in path]
        known = [(x, one) for x, one in zip(places, line, strict=True) if one is not None]
        if not known:
            continue
        look = style.look({"kind": "video", "controller": name})
        xs, means, halves = ([each[0] for each in known], [o[0] for _, o in known], [o[1] for _, o in known])
        axes.errorbar(xs, means, yerr=halves, capsize=3, **look.line)
        labels.append(Label(means[-1], name, look.colour))
        top = max(top, *(mean + half for mean, half in zip(means, halves, strict=True)))
    if not labels:
        return None
    axes.set_xticks(places, path)
    axes.set_xlabel(figure.over, loc="right")
    # Use a logarithmic scale, because the smallest values would nearly coincide on a linear one.
    if numeric and min(places) > 0 and max(places) / min(places) >= 20:
        axes.set_xscale("log")
        # Set the ticks again, because the change of the scale has reset them.
        axes.set_xticks(places, path)
        axes.minorticks_off()
    canvas.from_zero(axes, top * 1.08 or 1.0)
    canvas.label_ends(axes, labels)
    return drawing


def _dots(done: Experiment, spec: FigureSpec, against: str) -> Figure | None:
    """Draw a panel for each variant, with a dot for each scenario, combination of axis values, and draw.

    The dots of a scenario have the same shape.
    """
    from matplotlib.figure import Figure

    across, up = done.spec.measure(against), done.spec.measure(spec.measure)
    points = [each for each in done.points if not each.placebo and each.scenario in spec.scenarios]
    found = [
        (point, x["mean"], y["mean"])
        for point in points
        if (x := done.spread(across, point)) is not None and (y := done.spread(up, point)) is not None
    ]
    names = [name for name in done.spec.variants if any(point.variant == name for point, *_ in found)]
    if not names:
        return None
    rows = -(-len(names) // 2)
    figure = Figure(figsize=(canvas.WIDTH, 1.6 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, min(len(names), 2), sharex=True, sharey=True, squeeze=False)
    for axes, name in zip(panels.flat, names, strict=False):
        colour = style.look({"kind": "video", "controller": name}).colour
        for scenario, marker in zip(spec.scenarios, itertools.cycle("o^sD"), strict=False):
            dots = [(x, y) for point, x, y in found if (point.variant, point.scenario) == (name, scenario)]
            if dots:
                xs, ys = zip(*dots, strict=True)
                axes.scatter(xs, ys, s=12, color=colour, marker=marker, linewidths=0, label=scenario)
        axes.set_title(name)
    if len(spec.scenarios) > 1:
        panels[0][0].legend(fontsize=7)
    figure.supxlabel(_heading(across), fontsize=9)
    figure.supylabel(_heading(up), fontsize=9)
    return figure


def _bars(done: Experiment, figure: FigureSpec, measure: Measure, axes: Axes, names: Sequence[str]) -> bool:
    found = [(name, _mean_of(done, figure, measure, name, "")) for name in names]
    known = [(name, one) for name, one in found if one is not None]
    for place, (name, (mean, half)) in enumerate(known):
        colour = style.look({"kind": "video", "controller": name}).colour
        axes.bar(place, mean, yerr=half or None, width=0.6, color=colour, capsize=3)
    axes.set_xticks(range(len(known)), [name for name, _ in known])
    return bool(known)


def _mean_of(
    done: Experiment, figure: FigureSpec, measure: Measure, variant: str, value: str
) -> tuple[float, float] | None:
    """Return the mean of a measure for a variant and an axis value, and half the width of its confidence interval.

    If the mean is over several points, the second number is 0.
    """

    def fits(point: Point) -> bool:
        return (
            not point.placebo
            and point.scenario in figure.scenarios
            and point.variant == variant
            and (figure.over is None or dict(point.values).get(figure.over) == value)
        )

    found = [one for point in done.points if fits(point) and (one := done.spread(measure, point)) is not None]
    if not found:
        return None
    half = found[0]["ci95"] or 0.0 if len(found) == 1 else 0.0
    return sum(one["mean"] for one in found) / len(found), half
