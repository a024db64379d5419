"""Experiment files: a question, the runs that answer it, the measures of each run, and bounds for the measures.

The core checks a file (`crates/scenario/src/experiment.rs`). `steadycast schema --experiment` lists its keys.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from steadycast import toml
from steadycast.builtin import scenario_at
from steadycast.core import core
from steadycast.errors import UserError, meant
from steadycast.experiment.formula import Formula
from steadycast.experiment.series import Frames, Seconds, Series
from steadycast.files import readable
from steadycast.sweep.plan import Base
from steadycast.sweep.show import number_of

BUILT_IN = resources.files("steadycast") / "experiments"
CHECKOUT = Path(__file__).resolve().parents[3] / "validation" / "experiments"
"""The folder of experiments that only exist in a checkout."""
ALONE = ""
"""The name of the only variant in an experiment that defines no variants."""


@dataclass(frozen=True)
class Condition:
    """A formula that counts as true if its value is not 0. An empty formula is true."""

    text: str
    place: str

    def at(self, point: Point) -> bool | None:
        """Whether the condition is true at a point. Return `None` if the point lacks a variable of the formula.

        Raises:
            UserError: the formula's value is a text.

        """
        if not self.text:
            return True
        found = filled(f"${{{self.text}}}", point.variables, self.place)
        if found is None:
            return None
        value = number_of(found)
        if value is None:
            remedy = "compare numbers: a card can have another column with 0 and 1"
            raise UserError(self.place, f"{self.text} is {found}, which is not a number", remedy)
        return value != 0

    def check(self, points: Sequence[Point]) -> None:
        """Check that at least one point has all variables of the formula.

        Raises:
            NoVariableError: no point has them.

        """
        if all(self.at(point) is None for point in points):
            fill(f"${{{self.text}}}", dict(points[0].variables), self.place)


@dataclass(frozen=True)
class Measure:
    """A number that is computed for each run."""

    name: str
    shown: str
    """The name that tables show."""
    text: str
    """The formula. ``${NAME}`` in it is replaced by a variable of the point."""
    unit: str
    """The unit that tables show. It may be empty."""
    digits: int
    when: Condition
    """The measure exists only at points where this condition is true."""
    place: str

    def at(self, point: Point) -> Formula | None:
        """Return the formula at a point.

        Return `None` if the measure does not exist there, or if a variable is missing.

        Raises:
            UserError: the text is not a valid formula.

        """
        if self.when.at(point) is not True:
            return None
        text = filled(self.text, point.variables, self.place)
        return None if text is None else _formula(text, self.place)


@cache
def _formula(text: str, place: str) -> Formula:
    return Formula.read(text, place)


@dataclass(frozen=True)
class Bound:
    """A minimum, a maximum or both for a measure."""

    measure: str
    min: float | None
    max: float | None
    over: str
    """Which value must be within the bound.

    - "mean": the mean over the seeds.
    - "each": the value of each seed.
    - "interval": the whole 95 % confidence interval of the mean.
    """
    variants: tuple[str, ...]
    """The variants to which the bound applies. If it is empty, the bound applies to all variants."""
    scenarios: tuple[str, ...]
    at: Mapping[str, tuple[str, ...]]
    """The values to which the bound applies, by the name of the axis."""
    when: tuple[Condition, ...]
    """The bound applies only at points where all of these conditions are true."""
    fraction: float
    """The bound must hold at least at this fraction of the points, from 0 to 1."""
    why: str
    source: str

    def judges(self, point: Point) -> bool:
        """Whether the bound applies at a point."""
        return (
            point.scenario in self.scenarios
            and (not self.variants or point.variant in self.variants)
            and all(dict(point.values).get(axis) in values for axis, values in self.at.items())
            and all(each.at(point) is True for each in self.when)
        )

    def said(self) -> str:
        """Return the bound in words, for example "0.5 to 2 in the mean"."""
        how = {"mean": "in the mean", "each": "with each seed", "interval": "with its whole 95 % interval"}
        both = self.min is not None and self.max is not None
        ends = f"{self.min:g} to {self.max:g}" if both else ""
        ends = ends or (f"at least {self.min:g}" if self.min is not None else f"at most {self.max:g}")
        often = "" if self.fraction == 1 else f", at {self.fraction:.0%} of the points"
        return f"{ends} {how[self.over]}{often}"


@dataclass(frozen=True)
class TableSpec:
    """A table of an experiment."""

    title: str
    kind: str
    """The content of the table: "points", "bounds", "counts", "held" or "choice", as in the experiment's file."""
    measures: tuple[str, ...]
    but: tuple[str, ...]
    """Names of measures, for a "choice" table.

    If there are any, a second column lists the variants that fail only bounds on these measures.
    """
    by: tuple[str, ...] | None
    """Names of axes, variables, classes (`Class`) or columns of ``about``.

    Points for which all of these have equal values make one row or, in a "held" table, one column. If it is `None`,
    each point makes a row of a "points" table, and each scenario makes a row of any other table.
    """
    against: str | None
    """The name of a variant. If it is set, a "points" table shows the mean differences from this variant."""
    by_bound: bool
    """Whether a "counts" table shows for each measure how many points keep the bounds on the measure.

    The table then also counts the points whose result is unknown or depends on the seed.
    """
    when: Condition
    """The table shows only points where this condition is true."""
    spread: str
    """What the table shows after a mean: "range", "interval" or "none"."""
    scenarios: tuple[str, ...]
    variants: tuple[str, ...]
    write: Path | None


@dataclass(frozen=True)
class FigureSpec:
    """A figure of an experiment."""

    kind: str
    """"measure" for a figure of a measure, or "time" for rates and delays over time."""
    measure: str
    """The name of the measure. It is empty in a figure over time."""
    over: str | None
    """The quantity on the horizontal axis. If it is `None`, the figure has a bar for each variant."""
    against: str | None
    """The measure on the horizontal axis of a figure that has a dot for each point."""
    scenarios: tuple[str, ...]
    caption: str
    write: Path | None


@dataclass(frozen=True)
class Scenario:
    """A scenario of an experiment."""

    base: Base
    sets: tuple[str, ...]
    variables: Mapping[str, str]
    """The values that replace ``${NAME}``, by name."""
    about: Mapping[str, str]
    """Texts that describe the scenario in tables, by the table's column."""
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """One value of an axis, with its labels and changes."""

    labels: tuple[str, ...]
    """One label for each name of the axis."""
    values: tuple[str, ...]
    """One value for each name of the axis. It replaces ``${NAME}``."""
    sets: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """An axis: a quantity that is varied."""

    names: tuple[str, ...]
    """The names of the variables that the axis sets. It has several if they change together."""
    values: tuple[Value, ...]
    scenarios: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """A variant of the scenarios, which is defined by changes."""

    sets: tuple[str, ...]
    emulated: bool
    """Whether the variant runs in real time, with the kernel's TCP."""
    group: int | None
    """The index of the variant's table in the file. It is `None` if that table has one name and no ``${variant}``."""


@dataclass(frozen=True)
class Change:
    """Changes of a scenario that apply only at some of its points (see `Point`)."""

    when: Condition
    scenarios: tuple[str, ...]
    variants: tuple[str, ...] | None
    """The variants to which the changes apply. `None` means all variants."""
    sets: tuple[str, ...]

    def changes(self, point: Point) -> bool:
        """Whether the changes apply to a point."""
        named = self.variants is None or point.variant in self.variants
        return named and point.scenario in self.scenarios and self.when.at(point) is True


@dataclass(frozen=True)
class Class:
    """A rule that gives each point a label.

    A point gets the first label whose condition is true. If no condition is true, the label is the value of the
    variable that has the same name as the class.
    """

    name: str
    labels: tuple[tuple[str, Condition], ...]


@dataclass(frozen=True)
class Draw:
    """A random draw of changes and variables."""

    sets: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Point:
    """A combination of scenario, axis values, draw and variant. The runs of a point differ only in their seeds."""

    scenario: str
    values: tuple[tuple[str, str], ...]
    draw: int | None
    """The number of the draw, counted from 1."""
    variant: str
    sets: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    placebo: bool = False
    emulated: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the scenario, the axis values, the draw and the variant."""
        draw = () if self.draw is None else (f"draw {self.draw}",)
        return (self.scenario, *(value for _, value in self.values), *draw, self.variant)

    @property
    def name(self) -> tuple[object, ...]:
        """A key that is unique within the experiment."""
        return (self.scenario, self.values, self.draw, self.variant, self.placebo)


@dataclass(frozen=True)
class Spec:
    """The content of an experiment file."""

    name: str
    path: str
    text: str
    folder: Path
    """The folder that contains the files to which the experiment refers."""
    question: str
    seeds: tuple[int, ...]
    scenarios: Mapping[str, Scenario]
    draws: tuple[Draw, ...]
    variables: Mapping[str, str]
    changes: tuple[Change, ...]
    classes: tuple[Class, ...]
    axes: tuple[Axis, ...]
    variants: Mapping[str, Variant]
    placebo: tuple[tuple[str, ...], str] | None
    """The changes that remove the tested event from a run, and their description."""
    measures: tuple[Measure, ...]
    bounds: tuple[Bound, ...]
    tables: tuple[TableSpec, ...]
    figures: tuple[FigureSpec, ...]
    write: Path | None
    whole: bool = True
    """Whether the seeds, draws and variants are those of the file. If not, no table is written to a file."""
    part: tuple[str, ...] = ()
    """Variants and scenarios that the user has selected. If it is empty, all are used."""

    @classmethod
    def read(cls, source: Path | str, draw: Sequence[int] = (), count: int | None = None) -> Spec:
        """Read an experiment from a file, or a built-in experiment.

        Args:
            source: the path of the file, or the name of the built-in experiment.
            draw: seeds for the draws, which replace the file's seed. Each seed makes a set of draws.
            count: a number of draws per seed, which replaces the file's number.

        Raises:
            UserError: the file does not exist or has a mistake.

        """
        path = _at(Path(source))
        with readable(path, "give an experiment file, with the right to read it"):
            text = path.read_text(encoding="utf-8")
        _refuse_scenario(path, text)
        told, *more = (json.loads(core.experiment(text, str(path), seed, count)) for seed in draw or (None,))
        variants = {
            one["name"]: Variant(tuple(one["sets"]), one["world"] == "emulated", one["group"])
            for one in told["variants"]
        } or {ALONE: Variant((), told["world"] == "emulated", None)}
        spec = cls(
            path.stem,
            str(source),
            text,
            path.parent,
            told["question"],
            tuple(told["seeds"]),
            {one["name"]: _scenario(one, path, variants) for one in told["scenarios"]},
            tuple(
                Draw(tuple(one["sets"]), one["variables"]) for each in (told, *more) for one in each["draws"]
            ),
            told["variables"],
            tuple(_change(one, str(path)) for one in told["changes"]),
            tuple(_class(one, str(path)) for one in told["classes"]),
            tuple(_axis(one) for one in told["axes"]),
            variants,
            (tuple(told["placebo"]["sets"]), told["placebo"]["why"]) if told["placebo"] else None,
            tuple(_measures(told, str(path))),
            tuple(_bound(one, told["measures"], str(path)) for one in told["bounds"]),
            tuple(_table(one, path) for one in told["tables"]),
            tuple(_figure(one, path) for one in told["figures"]),
            _written(told, path),
            whole=not draw and count is None,
        )
        spec.check()
        return spec

    @property
    def command(self) -> str:
        """The command that creates the tables of the experiment."""
        file, root = Path(self.path).resolve(), CHECKOUT.parents[1]
        path = file.relative_to(root).as_posix() if file.is_relative_to(CHECKOUT) else self.path
        return shlex.join(
            ["steadycast", "experiment", path, *(w for name in self.part for w in ("--only", name))]
        )

    def check(self) -> None:
        """Check the names that formulas, conditions and tables contain.

        Raises:
            UserError: a name does not exist.

        """
        known = [*self.variants, *self.scenarios]
        for measure, formula in self.formulas():
            for name in formula.names:
                if name not in known:
                    problem = f"{name} is neither a variant nor a scenario of this file"
                    raise UserError(measure.place, problem, meant(name, known))
        points = self.points()
        conditions = [condition for bound in self.bounds for condition in bound.when]
        conditions += [each.when for each in self.changes]
        conditions += [each.when for each in self.measures]
        conditions += [each.when for each in self.tables]
        conditions += [condition for one in self.classes for _, condition in one.labels]
        for condition in conditions:
            condition.check(points)
        found = {name for point in points for name, _ in point.variables}
        if not self.variables.keys() <= found:
            explain({**self.variables, **dict(points[0].variables)}, found, self.path)
        for table in self.tables:
            for name in table.by or ():
                if not any(self.label(point, name) for point in points):
                    known = self._classes(points)
                    problem = f"{name} is not an axis, variable, class or column of about"
                    raise UserError(table.when.place, problem, meant(name, known))

    def _classes(self, points: Sequence[Point]) -> list[str]:
        names = dict.fromkeys(["scenario", *(one.name for one in self.classes)])
        names |= dict.fromkeys(name for each in self.scenarios.values() for name in each.about)
        return [
            *names,
            *dict.fromkeys(name for point in points for name, _ in (*point.values, *point.variables)),
        ]

    def label(self, point: Point, name: str) -> str:
        """Return the label of a point for ``name``.

        If ``name`` is "scenario", the label is the name of the point's scenario. If it is a class, the label is the
        point's label in this class. Otherwise, the label is the value of the axis, the variable or the column of
        `about` that has this name.
        """
        labels = {"scenario": point.scenario, **dict(point.values), **self.scenarios[point.scenario].about}
        if name in labels:
            return labels[name]
        for one in self.classes:
            if one.name == name:
                for label, condition in one.labels:
                    if condition.at(point):
                        return label
        return dict(point.variables).get(name, "")

    def beside(self, names: Sequence[str]) -> Spec:
        """Return a copy that has more controllers in the file's list of controllers.

        Args:
            names: names of the registry, ``FILE.py:Class``, or ``exec:`` with a program.

        Raises:
            UserError: the file has no list of controllers.

        """
        new = [name for name in names if name not in self.variants]
        if not new:
            return self
        like = next(
            (
                (name, variant)
                for name, variant in self.variants.items()
                if variant.group is not None
                and any(each.endswith(".controller=${variant}") for each in variant.sets)
            ),
            None,
        )
        if like is None:
            problem = "this file has no list of controllers, so that no other can stand beside them"
            remedy = 'write name = ["steady", "gcc"] and set = { "flow.video.controller" = "${variant}" }'
            raise UserError(self.path, problem, remedy)
        mates = {name for name, variant in self.variants.items() if variant.group == like[1].group}

        def joined(all_: tuple[str, ...]) -> tuple[str, ...]:
            return (*all_, *new) if mates & set(all_) else all_

        return replace(
            self,
            variants={**self.variants, **dict.fromkeys(new, like[1])},
            scenarios={
                name: replace(each, variants=joined(each.variants)) for name, each in self.scenarios.items()
            },
            bounds=tuple(replace(each, variants=joined(each.variants)) for each in self.bounds),
            tables=tuple(replace(each, variants=joined(each.variants)) for each in self.tables),
            whole=False,
        )

    def emulated(self) -> Spec:
        """Return a copy in which all runs are made in real time with the kernel's TCP."""
        variants = {name: replace(each, emulated=True) for name, each in self.variants.items()}
        return replace(self, variants=variants, whole=False)

    def only(self, names: Sequence[str]) -> Spec:
        """Return a copy that has only some variants and scenarios.

        It also keeps the variants and scenarios to which the measures refer.

        Args:
            names: variants, scenarios, or values of a scenario's ``about``.

        Raises:
            UserError: a name is neither a variant nor a scenario nor such a value.

        """
        about = {name: [*each.about.values()] for name, each in self.scenarios.items()}
        told = {text for texts in about.values() for text in texts}
        for name in names:
            if name not in (known := [*self.variants, *self.scenarios, *told]):
                problem = f"{name} is neither a variant nor a scenario of this file"
                raise UserError(self.path, problem, meant(name, known))
        asked = names
        names = [*names, *(name for name, texts in about.items() if {*texts} & {*names})]
        looked: dict[str, set[str]] = {name: set() for name in self.scenarios}
        for measure, formula in self.formulas():
            for scenario in self.scenarios_of(measure):
                looked[scenario].update(formula.names)
        chosen = {name for name in self.scenarios if name in names} or {*self.scenarios}
        chosen |= {name for scenario in chosen for name in looked[scenario] if name in self.scenarios}
        variants = {name for name in self.variants if name in names} or {*self.variants}
        kept = {
            name: replace(each, variants=tuple(v for v in each.variants if v in variants | looked[name]))
            for name, each in self.scenarios.items()
            if name in chosen
        }
        shown = {name: {*each.variants} for name, each in kept.items()}
        # Do not write a table that lacks rows, because it would replace the file of the complete table.
        tables = (
            one
            if all(
                {*self.scenarios[name].variants} & {*(one.variants or self.variants)}
                <= shown.get(name, set())
                for name in one.scenarios
            )
            else replace(one, write=None)
            for one in self.tables
        )
        return replace(
            self,
            scenarios={name: each for name, each in kept.items() if each.variants},
            tables=tuple(tables),
            figures=tuple(replace(one, write=None) for one in self.figures),
            write=None,
            part=tuple(asked),
        )

    def measure(self, name: str) -> Measure:
        """Return the measure with the given name."""
        return next(measure for measure in self.measures if measure.name == name)

    def counts(self, bound: Bound, measures: Sequence[str]) -> bool:
        """Whether a bound is on one of the given measures, or on a measure that the bound itself defines."""
        measure = self.measure(bound.measure)
        return measure.name in measures or measure.name != measure.shown

    def scenarios_of(self, measure: Measure) -> list[str]:
        """Return the scenarios for which a measure is computed. A bound's own measure is only for its scenarios."""
        if measure.name == measure.shown:
            return [*self.scenarios]
        bounds = [bound for bound in self.bounds if bound.measure == measure.name]
        return [name for name in self.scenarios if any(name in bound.scenarios for bound in bounds)]

    def formulas(self) -> Iterator[tuple[Measure, Formula]]:
        """Yield each measure with each of its formulas. With variables, a measure can have several formulas.

        Raises:
            UserError: a measure is not a valid formula, or no point has its variables.

        """
        points = self.points()
        for measure in self.measures:
            if "${" not in measure.text:
                yield measure, Formula.read(measure.text, measure.place)
                continue
            found = list(dict.fromkeys(filter(None, map(measure.at, points))))
            if not found:
                fill(measure.text, dict(points[0].variables), measure.place)
            for formula in found:
                yield measure, formula

    @cached_property
    def series(self) -> Mapping[int | None, tuple[Series, ...]]:
        """Statistics that the measures need in addition to the summary. The key is the number of the random draw.

        They are computed for every run of the draw, because the measures at a point can refer to runs of other points.
        """
        found: dict[int | None, dict[Series, None]] = {}
        for point in self.points():
            mine = found.setdefault(point.draw, {})
            for formula in filter(None, (measure.at(point) for measure in self.measures)):
                mine.update(dict.fromkeys(formula.series))
        return {draw: tuple(series) for draw, series in found.items()}

    def axes_of(self, scenario: str) -> tuple[Axis, ...]:
        """Return the axes that a scenario has."""
        return tuple(axis for axis in self.axes if scenario in axis.scenarios)

    @cached_property
    def _points(self) -> tuple[Point, ...]:
        return tuple(self._made())

    def points(self) -> tuple[Point, ...]:
        """Return all points. The points of the placebo (runs without the tested event) are last."""
        return self._points

    @cached_property
    def _by_name(self) -> Mapping[tuple[object, ...], Point]:
        return {point.name: point for point in self.points()}

    def counterpart(self, point: Point, name: str) -> Point | None:
        """Return the point that has the variant or scenario ``name``, but otherwise equals ``point``.

        Return `None` if it does not exist. Values of axes that the scenario ``name`` lacks are left out.
        """
        values = point.values
        if name in self.variants:
            return self._by_name.get((point.scenario, values, point.draw, name, point.placebo))
        axes = {one for axis in self.axes_of(name) for one in axis.names}
        values = tuple(one for one in values if one[0] in axes)
        return self._by_name.get((name, values, point.draw, point.variant, point.placebo))

    def judged(self, measure: Measure, point: Point) -> bool:
        """Whether a measure is used at a point. The measure of a single bound is used where the bound applies."""
        own = measure.name != measure.shown
        return not own or any(bound.measure == measure.name and bound.judges(point) for bound in self.bounds)

    def check_periods(self, durations: Mapping[Point, float]) -> None:
        """Check that the periods of all measures end before the runs.

        ``durations`` are the durations of the runs in seconds.

        Raises:
            UserError: a period ends after the run.

        """
        for point, measure in itertools.product(self.points(), self.measures):
            formula = measure.at(point) if self.judged(measure, point) else None
            for names, series in formula.calls if formula else ():
                there: Point | None = point
                for name in names:
                    there = self.counterpart(there, name) if there else None
                if there and isinstance(series, Seconds | Frames) and series.end > durations[there]:
                    where = ", ".join(filter(None, there.labels))
                    problem = (
                        f"{series.text} ends after the run of {where}, which lasts {durations[there]:g} s"
                    )
                    remedy = (
                        "end the period with the run, make the run longer, or limit the measure by `when`"
                    )
                    raise UserError(measure.place, problem, remedy)

    def _made(self) -> Iterator[Point]:
        draws: Sequence[tuple[int | None, Draw]] = [*enumerate(self.draws, 1)] or [(None, Draw((), {}))]
        for placebo in (False, True) if self.placebo else (False,):
            for name, scenario in self.scenarios.items():
                axes = self.axes_of(name)
                for values in itertools.product(*(axis.values for axis in axes)):
                    names = [name for axis in axes for name in axis.names]
                    labels = zip(names, (label for one in values for label in one.labels), strict=True)
                    labelled = tuple(labels)
                    named = dict(zip(names, (each for one in values for each in one.values), strict=True))
                    on_axes = tuple(change for one in values for change in one.sets)
                    for (number, draw), who in itertools.product(draws, scenario.variants):
                        told = {**self.variables, **draw.variables, **scenario.variables, **named}
                        variables = resolved({**told, "variant": who}, f"{self.path}: {name}")
                        emulated = self.variants[who].emulated
                        point = Point(name, labelled, number, who, (), variables, placebo, emulated)
                        try:
                            yield self._changed(point, draw.sets, on_axes)
                        except NoVariableError:
                            explain({**told, "variant": who}, dict(variables), f"{self.path}: {name}")
                            raise

    def _changed(self, point: Point, drawn: Sequence[str], on_axes: Sequence[str]) -> Point:
        variant = self.variants[point.variant]
        last = self.placebo[0] if point.placebo and self.placebo else ()
        some = [change for one in self.changes if one.changes(point) for change in one.sets]
        every = (*self.scenarios[point.scenario].sets, *drawn, *on_axes, *variant.sets, *some, *last)
        variables, place = dict(point.variables), f"{self.path}: {point.scenario}"
        return replace(point, sets=tuple(fill(change, variables, place) for change in every))


class NoVariableError(UserError):
    """A text contains a variable that does not exist."""


_HOLE = re.compile(r"\$\{([^{}]*)\}")


def fill(text: str, variables: Mapping[str, str], place: str) -> str:
    """Replace each ``${ }`` in a text by the value of a variable or of a formula.

    The variables of a formula must be numbers.

    Raises:
        NoVariableError: there is no such variable.
        UserError: a variable in a formula is not a number.

    """

    def value(hole: re.Match[str]) -> str:
        inside = hole[1].strip()
        if inside in variables:
            return variables[inside]
        formula = _formula(inside, place)
        for path in formula.paths:
            if path not in variables:
                problem = f"there is no variable {path} for {hole[0]}"
                raise NoVariableError(place, problem, meant(path, variables))
        found = formula.value({path: number_of(variables[path]) for path in formula.paths})
        if found is None:
            raise UserError(place, f"{hole[0]} has no value", "use variables that are plain numbers")
        return f"{found:.9g}"

    return _HOLE.sub(value, text)


@cache
def filled(text: str, variables: tuple[tuple[str, str], ...], place: str) -> str | None:
    """Return the result of `fill`. Return `None` if a variable does not exist."""
    named = dict(variables)
    return None if _lacks(text, named, place) else fill(text, named, place)


def explain(told: Mapping[str, str], known: Collection[str], place: str) -> None:
    """Raise an error if some variables could not be filled in.

    Args:
        told: the definitions of all variables, by name.
        known: the names of the variables that were filled in.
        place: where the variables are defined, for errors.

    """
    left = [name for name in told if name not in known]
    for name in left:
        if _lacks(told[name], told, place):
            fill(told[name], dict.fromkeys(told, "1"), f"{place}: variable {name}")
    if left:
        problem = f"the variables {', '.join(left)} are defined by each other"
        raise UserError(place, problem, "leave out one of their ${ }")


def _lacks(text: str, variables: Mapping[str, str], place: str) -> bool:
    inside = (hole[1].strip() for hole in _HOLE.finditer(text))
    formulas = (_formula(each, place) for each in inside if each not in variables)
    return any(path not in variables for formula in formulas for path in formula.paths)


def resolved(variables: Mapping[str, str], place: str) -> tuple[tuple[str, str], ...]:
    """Fill in variables that contain other variables. Leave out variables that can't be filled in."""
    known = {name: value for name, value in variables.items() if "${" not in value}
    left = {name: value for name, value in variables.items() if name not in known}
    while left:
        ready = [name for name, value in left.items() if not _lacks(value, known, place)]
        if not ready:
            break
        found = {name: fill(left[name], known, f"{place}: variable {name}") for name in ready}
        known |= found
        left = {name: value for name, value in left.items() if name not in found}
    return tuple(known.items())


def built_in() -> dict[str, Path]:
    """Return the paths of the package's experiments, by name."""
    with resources.as_file(BUILT_IN) as folder:
        return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def named() -> dict[str, Path]:
    """Return the paths of the built-in experiments and the checkout's experiments, by name."""
    return built_in() | {path.stem: path for path in sorted(CHECKOUT.glob("*.toml"))}


def question(path: Path) -> str:
    """Return the question of an experiment file. The file is not checked."""
    return str(tomllib.loads(path.read_text(encoding="utf-8"))["question"])


def _at(path: Path) -> Path:
    if path.exists() or path.suffix == ".toml" or len(path.parts) > 1:
        return path
    known = named()
    if path.name not in known:
        problem = "there is no such file, and no experiment of this name"
        raise UserError(str(path), problem, meant(path.name, known))
    return known[path.name]


def _written(told: Mapping[str, Any], origin: Path) -> Path | None:
    """Return the path of an output file.

    It is relative to the experiment file or, for a built-in experiment, to the results folder.
    """
    if not told["write"]:
        return None
    own = origin in built_in().values()
    return Path(told["write"]) if own else (origin.parent / told["write"]).absolute()


def _scenario(told: Mapping[str, Any], origin: Path, variants: Mapping[str, object]) -> Scenario:
    own = tuple(told["variants"]) or tuple(variants)
    return Scenario(_base(told, origin), tuple(told["sets"]), told["variables"], told["about"], own)


def _axis(told: Mapping[str, Any]) -> Axis:
    values = tuple(
        Value(tuple(one["labels"]), tuple(one["values"]), tuple(one["sets"])) for one in told["values"]
    )
    return Axis(tuple(told["names"]), values, tuple(told["scenarios"]))


def _figure(told: Mapping[str, Any], origin: Path) -> FigureSpec:
    write = _written(told, origin)
    lists = {"scenarios": tuple(told["scenarios"]), "measure": told["measure"] or ""}
    return FigureSpec(**{**told, **lists, "write": write})


def _table(told: Mapping[str, Any], origin: Path) -> TableSpec:
    lists: dict[str, Any] = {key: tuple(told[key]) for key in ("measures", "but", "scenarios", "variants")}
    lists["by"] = None if told["by"] is None else tuple(told["by"])
    when = Condition(told["when"], f"{origin}:{told['line']}: table")
    kept = {key: value for key, value in told.items() if key != "line"}
    return TableSpec(**{**kept, **lists, "when": when, "write": _written(told, origin)})


def _change(told: Mapping[str, Any], path: str) -> Change:
    variants = None if told["variants"] is None else tuple(told["variants"])
    when = Condition(told["when"], f"{path}:{told['line']}: change")
    return Change(when, tuple(told["scenarios"]), variants, tuple(told["sets"]))


def _class(told: Mapping[str, Any], path: str) -> Class:
    place = f"{path}:{told['line']}: class"
    return Class(told["name"], tuple((label, Condition(text, place)) for label, text in told["labels"]))


def _base(told: Mapping[str, Any], origin: Path) -> Base:
    if told["text"] is not None:
        # An inline scenario has no file. Its paths are relative to the folder of the experiment file.
        return Base(
            str(origin.parent / f"{origin.stem}-{told['name'].replace(' ', '-')}.toml"), told["text"], ()
        )
    beside = origin.parent / told["file"]
    return Base.of(beside if beside.is_file() else scenario_at(Path(told["file"])), ())


def _measures(told: Mapping[str, Any], path: str) -> Iterator[Measure]:
    for one in told["measures"]:
        yield _measure(one["name"], one["name"], one, path)
    for bound in told["bounds"]:
        if bound["own"] is not None:
            yield _measure(_own(bound), bound["measure"], bound["own"], path)


def _own(bound: Mapping[str, Any]) -> str:
    return f"{bound['measure']}, line {bound['own']['line']}"


def _measure(name: str, shown: str, told: Mapping[str, Any], path: str) -> Measure:
    place = f"{path}:{told['line']}: measure {shown}"
    when = Condition(told["when"], place)
    return Measure(name, shown, told["value"], told["unit"], told["digits"], when, place)


def _bound(told: Mapping[str, Any], measures: Sequence[Mapping[str, Any]], path: str) -> Bound:
    place = f"{path}:{told['line']}: bound"
    conditions = [told["when"], *(one["when"] for one in measures if one["name"] == told["measure"])]
    return Bound(
        told["measure"] if told["own"] is None else _own(told),
        told["min"],
        told["max"],
        told["over"],
        tuple(told["variants"]),
        tuple(told["scenarios"]),
        {axis: tuple(values) for axis, values in told["at"].items()},
        tuple(Condition(text, place) for text in conditions if text),
        told["fraction"],
        told["why"],
        told["source"],
    )


def _refuse_scenario(path: Path, text: str) -> None:
    """Raise an error if a file has keys of a scenario, but no key of an experiment."""
    try:
        keys = toml.read(text).keys()
    except tomllib.TOMLDecodeError:
        return  # the core will report the line of the mistake
    if {"flow", "topology"} & keys and not {"question", "scenario", "measure"} & keys:
        remedy = f"steadycast run {path}; or write an experiment that names it: docs/experiment.md"
        raise UserError(str(path), "this is a scenario, not an experiment", remedy)
