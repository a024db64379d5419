"""Builds the tables of an experiment, for the terminal, the page and CSV files."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steadycast.core import commit
from steadycast.experiment.spec import Bound, Measure, Point, TableSpec
from steadycast.experiment.verdict import HOLDS, Experiment
from steadycast.files import write_text
from steadycast.folder import within
from steadycast.report import say


@dataclass(frozen=True)
class Cells:
    """A cell or a heading of a table: the text that is shown, and its columns in a CSV file."""

    shown: str
    plain: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of an experiment."""

    heads: tuple[Cells, ...]
    rows: tuple[tuple[Cells, ...], ...]
    labels: int = 0
    """Number of columns that identify the row; 0: all columns are texts."""

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return its headings and rows for a page or a terminal."""
        return [head.shown for head in self.heads], [[cell.shown for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Return it as CSV. Numbers have no units, and an additional column marks missed bounds."""
        heads = [name for head in self.heads for name in head.plain]
        return csv_text([heads, *([text for cell in row for text in cell.plain] for row in self.rows)])


def built(done: Experiment, spec: TableSpec) -> Table:
    """Build a table that an experiment's file asks for."""
    return {"points": _points, "bounds": _bounds, "counts": _counts, "held": _held, "choice": _choice}[
        spec.kind
    ](done, spec)


def write(done: Experiment, spec: TableSpec) -> None:
    """Write a table to its CSV file, and a file with its origin beside it: title, day, commit, command and seeds."""
    if spec.write is None:
        return
    seeds = done.spec.seeds
    told = {
        "title": spec.title,
        "measured": datetime.date.today().isoformat(),
        "commit": commit() or "",
        "command": shlex.join(["steadycast", "experiment", done.spec.path]),
        "note": f"seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}",
    }
    path = done.folder / spec.write
    write_text(path, built(done, spec).csv())
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in told.items() if value]
    write_text(path.with_suffix(".toml"), "".join(lines))


# ---------------------------------------------------------------- labels


class Labels:
    """The columns that identify the point of a row. Columns that are equal in all rows are left out."""

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
        """Return the labels of a point."""
        return [_text(self._of(point, name)) for name in self.names]

    def heads(self) -> list[Cells]:
        """Return their headings."""
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
    ]


# ---------------------------------------------------------------- kinds


def _points(done: Experiment, spec: TableSpec) -> Table:
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
    """Return the bounds of a measure at a point."""
    return [bound for bound in done.spec.bounds if bound.measure == measure.name and bound.judges(point)]


def _bounds(done: Experiment, spec: TableSpec) -> Table:
    """Build a row per bound and point.

    It has the bounded quantity, the values of the seeds, and the number of them that keep the bound.
    """
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
    """Build a row per group and variant: the number of points that keep all their bounds, by seed and in the mean."""
    rows = []
    groups = _groups(done, spec)
    for (group, variant), points in groups.items():
        judged = [kept for point in points if (kept := done.kept(point, spec.measures)) is not None]
        if not judged:
            continue
        each, means = (
            sum(kept is True for kept in found)
            for found in zip(*((k.each, k.mean) for k in judged), strict=True)
        )
        runs = [run for kept in judged for run in kept.runs]
        share = 100 * sum(run is True for run in runs) / len(runs)
        rows.append(
            tuple(map(_text, (group, variant, str(len(judged)), str(each), str(means), f"{share:.1f}")))
        )
    by = spec.by or "scenario"
    heads = (by, "variant", "points", "hold with each seed", "hold in the mean", "runs that hold, %")
    return Table(tuple(Cells(head, (head,)) for head in heads), tuple(rows), 2)


def _held(done: Experiment, spec: TableSpec) -> Table:
    """Build a row per variant: the number of bounds that it keeps, in each group and in total."""
    groups = _groups(done, spec)
    names = list(dict.fromkeys(group for group, _ in groups))
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


def _groups(done: Experiment, spec: TableSpec) -> Mapping[tuple[str, str], list[Point]]:
    found: dict[tuple[str, str], list[Point]] = {}
    for point in _chosen(done, spec):
        about = done.spec.scenarios[point.scenario].about
        labels = {"scenario": point.scenario, **dict(point.values), **about}
        found.setdefault((labels.get(spec.by or "scenario", ""), point.variant), []).append(point)
    groups = {group for group, _ in found}
    for variant in done.spec.variants if len(groups) > 1 else ():
        everything = [point for (_, who), points in found.items() if who == variant for point in points]
        if everything:
            found["all", variant] = everything
    return found


def _choice(done: Experiment, spec: TableSpec) -> Table:
    """Build a row per scenario, axis values and draw: the variants that keep all bounds there, ordered by a measure."""
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
    """Return the variants' names in the order of a measure. Those with an unknown value are last."""
    found = [(done.spread(measure, point), point.variant) for point in points]
    known = sorted((one["mean"], who) for one, who in found if one)
    named = [f"{who} ({_number(measure, value)})" for value, who in known]
    return ", ".join([*named, *(f"{who} (unknown)" for one, who in found if not one)]) or "none"


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as the text of a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
