"""Builds the tables of an experiment for the terminal, the page and CSV files."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steadycast.core import commit
from steadycast.experiment.spec import Bound, Measure, Point, TableSpec
from steadycast.experiment.verdict import HOLDS, Experiment, all_of, kept_by
from steadycast.files import write_text
from steadycast.folder import spread, within
from steadycast.report import say


@dataclass(frozen=True)
class Cells:
    """A cell or a heading.

    It has a text for the page and the terminal, and texts for one or more columns of a CSV file.
    """

    shown: str
    plain: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of an experiment."""

    heads: tuple[Cells, ...]
    rows: tuple[tuple[Cells, ...], ...]
    labels: int = 0
    """How many of the first columns identify the row. It is 0 if the table contains only texts."""

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table's headings and rows for a page or a terminal."""
        return [head.shown for head in self.heads], [[cell.shown for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Return the table as CSV. It has numbers without units, and a column that marks missed bounds."""
        heads = [name for head in self.heads for name in head.plain]
        return csv_text([heads, *([text for cell in row for text in cell.plain] for row in self.rows)])


def built(done: Experiment, spec: TableSpec) -> Table:
    """Build a table that the experiment's file defines."""
    return {"points": _points, "bounds": _bounds, "counts": _counts, "held": _held, "choice": _choice}[
        spec.kind
    ](done, spec)


def write(done: Experiment, spec: TableSpec) -> None:
    """Write a table to its CSV file. Write its title, day, commit, command and seeds to a file beside it."""
    if spec.write is None:
        return
    seeds = done.spec.seeds
    told = {
        "title": spec.title,
        "measured": datetime.date.today().isoformat(),
        "commit": commit() or "",
        "command": done.spec.command,
        "note": f"seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}",
    }
    path = done.folder / spec.write
    write_text(path, built(done, spec).csv())
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in told.items() if value]
    write_text(path.with_suffix(".toml"), "".join(lines))


# ---------------------------------------------------------------- labels


class Labels:
    """The columns that identify the point of a row: its scenario, texts about the scenario, axis values, draw, variant.

    The columns scenario, draw and variant are left out if their values are equal in all rows.
    """

    def __init__(self, done: Experiment, points: Sequence[Point], *, variants: bool = True) -> None:
        spec = done.spec
        abouts = dict.fromkeys(name for point in points for name in spec.scenarios[point.scenario].about)
        axes = dict.fromkeys(name for point in points for name, _ in point.values)
        every = [*abouts, "scenario", *axes, "draw", *(["variant"] if variants else [])]

        self._done = done
        found = {name: {self._of(point, name) for point in points} for name in every}
        keep = [name for name in every if len(found[name]) > 1 or name in abouts or name in axes]
        self.names = keep or every[:1]

    def _of(self, point: Point, name: str) -> str:
        scenario = self._done.spec.scenarios[point.scenario]
        values = {
            "scenario": point.scenario,
            "variant": point.variant,
            **dict(point.values),
            **scenario.about,
        }
        values["draw"] = "" if point.draw is None else str(point.draw)
        return values.get(name, "")

    def of(self, point: Point) -> list[Cells]:
        """Return the cells that identify a point."""
        return [_text(self._of(point, name)) for name in self.names]

    def heads(self) -> list[Cells]:
        """Return the headings of these columns."""
        return [Cells(name, (name,)) for name in self.names]


def _text(text: str) -> Cells:
    return Cells(text, (text,))


def _chosen(done: Experiment, spec: TableSpec, *, placebo: bool = False) -> list[Point]:
    return [
        point
        for point in done.points
        if point.placebo == placebo
        and point.scenario in spec.scenarios
        and (not spec.variants or point.variant in spec.variants)
        and spec.when.at(point) is True
    ]


# ---------------------------------------------------------------- kinds


def _points(done: Experiment, spec: TableSpec) -> Table:
    if spec.by is not None or spec.against is not None:
        return _means(done, spec)
    points = _chosen(done, spec)
    labels = Labels(done, points)
    measures = [done.spec.measure(name) for name in spec.measures]
    judged = {measure.name: any(_bounds_of(done, measure, point) for point in points) for measure in measures}
    heads = [_heading(measure, spec.spread, judged=judged[measure.name]) for measure in measures]
    rows = (
        (
            *labels.of(point),
            *(_cell(done, measure, point, spec.spread, judged[measure.name]) for measure in measures),
        )
        for point in points
    )
    return Table((*labels.heads(), *heads), tuple(rows), len(labels.names))


def _heading(measure: Measure, spread: str, *, judged: bool) -> Cells:
    unit = f", {measure.unit}" if measure.unit else ""
    parts = {"range": ("", " least", " most"), "interval": ("", " ±"), "none": ("",)}[spread]
    misses = (f"{measure.name} misses",) if judged else ()
    return Cells(f"{measure.name}{unit}", (*(f"{measure.name}{part}{unit}" for part in parts), *misses))


def _cell(done: Experiment, measure: Measure, point: Point, spread: str, judged: bool) -> Cells:
    values = list(done.values(measure, point).values())
    known = [value for value in values if value is not None]
    bounds = _bounds_of(done, measure, point)
    misses = any(done.holds(bound, point) is not True for bound in bounds)
    mark = ({True: "yes", False: "no"}[misses] if bounds else "",) if judged else ()
    parts = {"range": 3, "interval": 2, "none": 1}[spread]
    if len(known) < len(values):
        return Cells(f"[{say.NOTHING}]" if misses else say.NOTHING, ("",) * parts + mark)
    mean, *ends = (
        f"{value:.{measure.digits}f}" for value in (sum(known) / len(known), min(known), max(known))
    )
    shown = f"[{mean}]" if misses else mean
    if spread == "range":
        behind = "" if ends[0] == ends[1] else f" ({ends[0]}…{ends[1]})"
        return Cells(shown + behind, (mean, *ends, *mark))
    if spread == "interval":
        one = done.spread(measure, point)
        half = "" if one is None or one["ci95"] is None else f"{one['ci95']:.{measure.digits}f}"
        return Cells(f"{shown} ± {half}" if half else shown, (mean, half, *mark))
    return Cells(shown, (mean, *mark))


def _bounds_of(done: Experiment, measure: Measure, point: Point) -> list[Bound]:
    return [bound for bound in done.spec.bounds if bound.measure == measure.name and bound.judges(point)]


def _bounds(done: Experiment, spec: TableSpec) -> Table:
    """Build a row for each bound and point: the measure, each seed's value, and how many seeds keep the bound."""
    rows: list[tuple[Cells, ...]] = []
    points = _chosen(done, spec)
    pairs = [(point, bound) for point in points for bound in done.spec.bounds if bound.judges(point)]
    pairs = [(point, bound) for point, bound in pairs if done.spec.counts(bound, spec.measures)]
    labels = Labels(done, [point for point, _ in pairs])
    for point, bound in pairs:
        measure = done.spec.measure(bound.measure)
        values = [value for value in done.values(measure, point).values() if value is not None]
        ends = [
            f"{sign} {_number(measure, end)}"
            for sign, end in (("≥", bound.min), ("≤", bound.max))
            if end is not None
        ]
        held = sum(within(value, bound.min, bound.max) for value in values)
        verdict = HOLDS if held == len(done.spec.seeds) else f"{held} of {len(done.spec.seeds)}"
        spread = (
            f"{_number(measure, min(values))} … {_number(measure, max(values))}" if values else say.NOTHING
        )
        mean = _number(measure, sum(values) / len(values)) if values else say.NOTHING
        why = f"{bound.why} ({bound.source})" if bound.source else bound.why
        texts = (why, measure.shown, " and ".join(ends), mean, spread, verdict)
        rows.append((*labels.of(point), *map(_text, texts)))
    heads = ("what is asked", "figure", "bound", "mean", "least … most", "verdict")
    return Table((*labels.heads(), *(Cells(head, (head,)) for head in heads)), tuple(rows))


def _number(measure: Measure, value: float) -> str:
    return f"{value:.{measure.digits}f}{f' {measure.unit}' if measure.unit else ''}"


def _counts(done: Experiment, spec: TableSpec) -> Table:
    """Build a row for each group of points and each variant.

    A row has the number of points that have bounds, and counts of them: points whose bounds all hold with each
    seed, points whose bounds hold with one seed (a mean over the seeds), points whose bounds hold in the mean, and
    points whose result depends on the seed. The last count is of points whose result is unknown.

    With ``by_bound``, it also has for each measure the number of points whose bounds on the measure hold.
    """
    rows = []
    measures = _measures_of(done, spec) if spec.by_bound else {}
    for (*group, variant), points in _groups(done, spec).items():
        judged = {p: kept for p in points if (kept := done.kept(p, spec.measures)) is not None}
        if not judged:
            continue
        runs = sum(kept.runs.count(True) for kept in judged.values())
        counts = [
            len(judged),
            sum(kept.each is True for kept in judged.values()),
            f"{runs / len(done.spec.seeds):.2f}",
            sum(kept.mean is True for kept in judged.values()),
            sum({*kept.runs} == {True, False} for kept in judged.values()),
            sum(None in kept.runs for kept in judged.values()),
        ]
        held = (_held_of(done, bounds, [*judged]) for bounds in measures.values())
        rows.append(tuple(_text(str(cell)) for cell in (*group, variant, *counts, *held)))
    counted = ("points", "hold with each seed", "hold per seed", "hold in the mean", "undecided", "unknown")
    heads = [*_group_heads(spec), "variant", *counted, *measures]
    return Table(tuple(_text(head) for head in heads), tuple(rows), len(_group_heads(spec)) + 1)


def _measures_of(done: Experiment, spec: TableSpec) -> dict[str, list[Bound]]:
    """Return the bounds on each measure, by the name that tables show for the measure."""
    found: dict[str, list[Bound]] = {}
    for bound in done.spec.bounds:
        if done.spec.counts(bound, spec.measures):
            found.setdefault(done.spec.measure(bound.measure).shown, []).append(bound)
    return found


def _held_of(done: Experiment, bounds: Sequence[Bound], points: Sequence[Point]) -> str:
    """Return "KEPT/ALL". ALL is the number of points with bounds, and KEPT of them keep the bounds with each seed."""
    found = []
    for point in points:
        each = [
            kept_by(bound, list(done.values(done.spec.measure(bound.measure), point).values()), "each")
            for bound in bounds
            if bound.judges(point)
        ]
        if each:
            found.append(all_of(each) is True)
    return f"{sum(found)}/{len(found)}" if found else say.NOTHING


def _means(done: Experiment, spec: TableSpec) -> Table:
    """Build a row for each group and variant, with means over the group's points.

    With ``spec.against``, the means are of differences from this variant. The first mean is the fraction of runs that
    keep all bounds. If some points lack a value, a number in brackets says how many points the mean includes.
    """
    measures = [done.spec.measure(name) for name in spec.measures]
    rows = []
    for (*group, variant), points in _groups(done, spec).items():
        if variant == spec.against:
            continue
        pairs = [
            (p, None if spec.against is None else done.spec.counterpart(p, spec.against)) for p in points
        ]
        cells = [_mean_cell([_less(_holding(done, spec), *pair) for pair in pairs], 1, spec.spread)]
        for measure in measures:
            found = [_less(lambda p, m=measure: _mean(done, m, p), *pair) for pair in pairs]  # type: ignore[misc]
            cells.append(_mean_cell(found, measure.digits, spec.spread))
        rows.append((*map(_text, (*group, variant, str(len(points)))), *cells))
    less = f" less {spec.against}" if spec.against is not None else ""
    parts = {"range": ("", " least", " most"), "interval": ("", " ±"), "none": ("",)}[spec.spread]
    heads = []
    for name, unit in [("runs that hold", "%"), *((measure.name, measure.unit) for measure in measures)]:
        tail = f", {unit}" if unit else ""
        heads.append(Cells(f"{name}{tail}", (*(f"{name}{part}{tail}" for part in parts), f"{name}, points")))
    labels = (*_group_heads(spec), f"variant{less}", "points")
    return Table((*map(_text, labels), *heads), tuple(rows), len(labels))


_Value = Callable[[Point], float | None]


def _holding(done: Experiment, spec: TableSpec) -> _Value:
    """Return a function that computes for a point the percentage of runs that keep all bounds on the measures."""

    def value(point: Point) -> float | None:
        kept = done.kept(point, spec.measures)
        if kept is None or None in kept.runs:
            return None
        return 100 * sum(run is True for run in kept.runs) / len(kept.runs)

    return value


def _mean(done: Experiment, measure: Measure, point: Point) -> float | None:
    one = done.spread(measure, point)
    return None if one is None else float(one["mean"])


def _less(value: _Value, point: Point, other: Point | None) -> float | None:
    """Return the value at ``point``, minus the value at ``other`` if there is one."""
    found = value(point)
    if other is None or found is None:
        return found
    base = value(other)
    return None if base is None else found - base


def _mean_cell(values: Sequence[float | None], digits: int, shown: str) -> Cells:
    """Return the mean of the known values, with interval or range. Add their number if some values are unknown."""
    known = [value for value in values if value is not None]
    count = "" if len(known) == len(values) else f" ({len(known)})"
    if not known:
        return Cells(say.NOTHING, ("",) * {"range": 3, "interval": 2, "none": 1}[shown] + ("0",))
    one = spread(known)
    mean, low, high = (f"{value:.{digits}f}" for value in (one["mean"], min(known), max(known)))
    half = "" if one["ci95"] is None else f"{one['ci95']:.{digits}f}"
    text, plain = {
        "range": (f"{mean} ({low}…{high})", (mean, low, high)),
        "interval": (f"{mean} ± {half}" if half else mean, (mean, half)),
        "none": (mean, (mean,)),
    }[shown]
    return Cells(text + count, (*plain, str(len(known))))


def _held(done: Experiment, spec: TableSpec) -> Table:
    """Build a row for each variant, with the number of bounds that the variant keeps in each group and in total."""
    groups = {(value, who): points for (*_, value, who), points in _groups(done, spec).items()}
    names = list(dict.fromkeys(value for value, _ in groups))
    rows = []
    for variant in dict.fromkeys(variant for _, variant in groups):
        row = [variant]
        for name in names:
            points = groups.get((name, variant), [])
            held = [
                done.holds(bound, point) is True
                for point in points
                for bound in done.spec.bounds
                if bound.judges(point)
            ]
            row.append(f"{sum(held)}/{len(held)}" if held else say.NOTHING)
        rows.append(tuple(map(_text, row)))
    return Table(tuple(Cells(head, (head,)) for head in ("variant", *names)), tuple(rows), 1)


def _group_heads(spec: TableSpec) -> tuple[str, ...]:
    by = _by(spec)
    return by if len(by) < 2 else ("class", "value")


def _by(spec: TableSpec) -> tuple[str, ...]:
    if spec.by is not None or spec.kind == "points":
        # Each group has a row per variant anyway.
        return tuple(name for name in spec.by or () if name != "variant")
    return ("scenario",)


def _groups(done: Experiment, spec: TableSpec) -> dict[tuple[str, ...], list[Point]]:
    """Return the points of each group and variant, and then all points of each variant.

    A key consists of the texts in the first columns of a row, which identify the group and the variant.
    """
    found: dict[tuple[str, ...], list[Point]] = {}
    points, by = _chosen(done, spec), _by(spec)
    for name in by:
        # Sort the labels of a class in the file's order.
        order = [label for one in done.spec.classes if one.name == name for label, _ in one.labels]
        values = dict.fromkeys([*order, *(done.spec.label(point, name) for point in points)])
        for value in values:
            for point in points:
                if done.spec.label(point, name) == value:
                    head = (name,) if len(by) > 1 else ()
                    found.setdefault((*head, value, point.variant), []).append(point)
    several = len({key[:-1] for key in found}) > 1
    everything = ("all", "")[: min(len(by), 2)]
    for variant in dict.fromkeys(point.variant for point in points) if several or not by else ():
        found[(*everything, variant)] = [point for point in points if point.variant == variant]
    return found


def _choice(done: Experiment, spec: TableSpec) -> Table:
    """List the variants that keep all bounds, ordered by a measure.

    There is a row for each combination of scenario, axis values and draw.
    """
    [name] = spec.measures
    measure = done.spec.measure(name)
    points = _chosen(done, spec)
    labels = Labels(done, points, variants=False)
    rows = []
    for _, group in itertools.groupby(points, key=lambda point: (point.scenario, point.values, point.draw)):
        same = list(group)
        good = [point for point in same if done.keeps(point)]
        lists = [good]
        if spec.but:
            lists.append([point for point in same if point not in good and done.keeps(point, spec.but)])
        rows.append((*labels.of(same[0]), *(_text(_ordered(done, measure, each)) for each in lists)))
    heads = ["keep all bounds", *([f"keep all but {' and '.join(spec.but)}"] if spec.but else [])]
    return Table((*labels.heads(), *(Cells(head, (head,)) for head in heads)), tuple(rows))


def _ordered(done: Experiment, measure: Measure, points: Sequence[Point]) -> str:
    """Return the names of the points' variants, ordered by a measure. Variants with an unknown value are last."""
    found = [(done.spread(measure, point), point.variant) for point in points]
    known = sorted((one["mean"], who) for one, who in found if one)
    named = [f"{who} ({_number(measure, value)})" for value, who in known]
    return ", ".join([*named, *(f"{who} (unknown)" for one, who in found if not one)]) or "none"


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
