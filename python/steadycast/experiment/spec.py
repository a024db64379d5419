"""Experiment files: a question, the runs that answer it, the measures of each run, and their bounds.

The core parses and checks a file (`crates/scenario/src/experiment.rs`); `steadycast schema --experiment` describes
its keys. This module converts its content to objects, and reads its scenarios.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from steadycast.builtin import scenario_at
from steadycast.core import core
from steadycast.errors import UserError, meant
from steadycast.experiment.formula import Formula
from steadycast.experiment.series import Series
from steadycast.files import readable
from steadycast.sweep.plan import Base
from steadycast.sweep.show import number_of

BUILT_IN = resources.files("steadycast") / "experiments"
CHECKOUT = Path(__file__).resolve().parents[3] / "validation" / "experiments"
"""The folder of the experiments that only exist in a checkout."""
ALONE = ""
"""The name of the only variant of an experiment without variants."""


@dataclass(frozen=True)
class Measure:
    """A number that is computed for each run."""

    name: str
    """The name, which is unique in its file."""
    shown: str
    """Its name in tables."""
    text: str
    """The formula, in which ``${ }`` is replaced by a variable of a point."""
    unit: str
    """The unit in tables; empty if the figure has its own, or if there is none."""
    digits: int
    place: str
    """The place in the file, for errors."""

    def at(self, point: Point) -> Formula | None:
        """Return the formula at a point; `None` if the point lacks one of its variables.

        Raises:
            UserError: it is not a valid formula.

        """
        try:
            text = fill(self.text, dict(point.variables), self.place)
        except NoVariableError:
            return None
        return _formula(text, self.place)


@cache
def _formula(text: str, place: str) -> Formula:
    return Formula.read(text, place)


@dataclass(frozen=True)
class Bound:
    """A bound on a measure."""

    measure: str
    min: float | None
    max: float | None
    over: str
    """"mean", "each" or "interval": what has to be within the bound, for the values of the seeds."""
    variants: tuple[str, ...]
    """The variants to which it applies; empty: all."""
    scenarios: tuple[str, ...]
    at: Mapping[str, tuple[str, ...]]
    """The axis values at which it applies."""
    when: str
    """A formula of variables. The bound applies where it is not 0; empty: everywhere."""
    fraction: float
    """The share of the points at which it has to hold."""
    why: str
    source: str
    place: str
    """The place in the file, for errors."""

    def judges(self, point: Point) -> bool:
        """Whether the bound applies at this point."""
        return (
            point.scenario in self.scenarios
            and (not self.variants or point.variant in self.variants)
            and all(dict(point.values).get(axis) in values for axis, values in self.at.items())
            and (not self.when or self._applies(point) is True)
        )

    def _applies(self, point: Point) -> bool | None:
        """Whether the condition is true at a point; `None` if the point lacks one of its variables."""
        try:
            return fill(f"${{{self.when}}}", dict(point.variables), self.place) != "0"
        except NoVariableError:
            return None

    def check(self, points: Sequence[Point]) -> None:
        """Check that at least one point has the variables of the condition.

        Raises:
            UserError: no point has them.

        """
        if self.when and all(self._applies(point) is None for point in points):
            fill(f"${{{self.when}}}", dict(points[0].variables), self.place)

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
    """"points", "bounds", "counts", "held" or "choice": the meaning of its rows."""
    measures: tuple[str, ...]
    but: tuple[str, ...]
    """For "choice": a second list ignores the bounds of these measures."""
    by: str
    """For "counts" and "held": the axis or the column of ``about`` whose values are rows or columns; empty: the
    scenarios."""
    spread: str
    """The spread that a table shows after a mean: "range", "interval" or "none"."""
    scenarios: tuple[str, ...]
    variants: tuple[str, ...]
    write: Path | None


@dataclass(frozen=True)
class FigureSpec:
    """A figure."""

    kind: str
    """"measure", or "time" for rates and delays over time in each scenario and variant."""
    measure: str
    """The measure; empty in a figure over time."""
    over: str | None
    """The axis on the x axis; `None`: a bar per variant."""
    against: str | None
    """The measure on the x axis, with a dot per point and a panel per variant."""
    scenarios: tuple[str, ...]
    caption: str
    write: Path | None


@dataclass(frozen=True)
class Scenario:
    """A scenario of an experiment."""

    base: Base
    sets: tuple[str, ...]
    variables: Mapping[str, str]
    """The values of the names in ``${ }``."""
    about: Mapping[str, str]
    """The texts about it in tables, by column."""
    variants: tuple[str, ...]
    """The variants that run it."""


@dataclass(frozen=True)
class Value:
    """A value of an axis."""

    labels: tuple[str, ...]
    """One label for each name of the axis."""
    values: tuple[str, ...]
    """The values of the names in ``${ }``."""
    sets: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """An axis: a quantity that is varied."""

    names: tuple[str, ...]
    """The names of the variables; several if they change together."""
    values: tuple[Value, ...]
    scenarios: tuple[str, ...]
    """The scenarios that have it."""


@dataclass(frozen=True)
class Variant:
    """A variant: changes to a scenario, whose results are compared with those of the other variants."""

    sets: tuple[str, ...]
    emulated: bool
    """Whether it runs in real time, beside the kernel's TCP."""
    group: int | None
    """Index of the list from which it comes, if that list gives several names the same changes."""


@dataclass(frozen=True)
class Draw:
    """One random draw: its changes of scenarios, and its variables."""

    sets: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Point:
    """A scenario with axis values, a draw and a variant. Its runs differ only in their seeds."""

    scenario: str
    values: tuple[tuple[str, str], ...]
    """Axes and their values."""
    draw: int | None
    """The number of the draw, from 1 on."""
    variant: str
    sets: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    placebo: bool = False
    emulated: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in an error: scenario, values, draw, variant."""
        draw = () if self.draw is None else (f"draw {self.draw}",)
        return (self.scenario, *(value for _, value in self.values), *draw, self.variant)

    @property
    def name(self) -> tuple[object, ...]:
        """A key that is unique among the points of an experiment."""
        return (self.scenario, self.values, self.draw, self.variant, self.placebo)


@dataclass(frozen=True)
class Spec:
    """An experiment file's content."""

    name: str
    path: str
    text: str
    folder: Path
    """The folder of the files that the experiment names."""
    question: str
    seeds: tuple[int, ...]
    scenarios: Mapping[str, Scenario]
    draws: tuple[Draw, ...]
    axes: tuple[Axis, ...]
    variants: Mapping[str, Variant]
    placebo: tuple[tuple[str, ...], str] | None
    """The changes that remove the event, and a description of what is removed."""
    measures: tuple[Measure, ...]
    bounds: tuple[Bound, ...]
    tables: tuple[TableSpec, ...]
    figures: tuple[FigureSpec, ...]
    write: Path | None
    whole: bool = True
    """Whether it is complete. If other seeds or only a part of the experiment are run, the file's tables are not
    written."""

    @classmethod
    def read(cls, source: Path | str) -> Spec:
        """Read an experiment from a file, or a built-in one by its name.

        Raises:
            UserError: the file does not exist or has a mistake; the error names its place and the remedy.

        """
        path = _at(Path(source))
        with readable(path, "give an experiment file, with the right to read it"):
            text = path.read_text(encoding="utf-8")
        told: dict[str, Any] = json.loads(core.experiment(text, str(path)))
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
            tuple(Draw(tuple(one["sets"]), one["variables"]) for one in told["draws"]),
            tuple(_axis(one) for one in told["axes"]),
            variants,
            (tuple(told["placebo"]["sets"]), told["placebo"]["why"]) if told["placebo"] else None,
            tuple(_measures(told, str(path))),
            tuple(_bound(one, str(path)) for one in told["bounds"]),
            tuple(_table(one, path) for one in told["tables"]),
            tuple(_figure(one, path) for one in told["figures"]),
            _written(told, path),
        )
        spec.check()
        return spec

    def check(self) -> None:
        """Check the names of variants, scenarios and variables in formulas.

        Raises:
            UserError: a name does not exist.

        """
        known = [*self.variants, *self.scenarios]
        for measure, formula in self.formulas():
            for name in formula.names:
                if name not in known:
                    problem = f"{name} is neither a variant nor a scenario of this file"
                    raise UserError(measure.place, problem, meant(name, known))
        points = list(self.points())
        for bound in self.bounds:
            bound.check(points)

    def beside(self, names: Sequence[str]) -> Spec:
        """Return a copy with additional controllers in its list of controllers, with the same changes.

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
        """Return a copy in which all runs are in real time, with the kernel's TCP."""
        variants = {name: replace(each, emulated=True) for name, each in self.variants.items()}
        return replace(self, variants=variants, whole=False)

    def only(self, names: Sequence[str]) -> Spec:
        """Return a copy with only these variants and scenarios, and those that their measures refer to.

        Args:
            names: variants, scenarios, or values of a scenario's ``about``.

        Raises:
            UserError: a name is none of these.

        """
        about = {name: [*each.about.values()] for name, each in self.scenarios.items()}
        told = {text for texts in about.values() for text in texts}
        for name in names:
            if name not in (known := [*self.variants, *self.scenarios, *told]):
                problem = f"{name} is neither a variant nor a scenario of this file"
                raise UserError(self.path, problem, meant(name, known))
        names = [*names, *(name for name, texts in about.items() if {*texts} & {*names})]
        looked: dict[str, set[str]] = {name: set() for name in self.scenarios}
        for measure, formula in self.formulas():
            bounds = [bound for bound in self.bounds if bound.measure == measure.name]
            everywhere = measure.name == measure.shown
            for scenario in self.scenarios:
                if everywhere or any(scenario in bound.scenarios for bound in bounds):
                    looked[scenario].update(formula.names)
        chosen = {name for name in self.scenarios if name in names} or {*self.scenarios}
        chosen |= {name for scenario in chosen for name in looked[scenario] if name in self.scenarios}
        variants = {name for name in self.variants if name in names} or {*self.variants}
        kept = {
            name: replace(each, variants=tuple(v for v in each.variants if v in variants | looked[name]))
            for name, each in self.scenarios.items()
            if name in chosen
        }
        return replace(
            self, scenarios={name: each for name, each in kept.items() if each.variants}, whole=False
        )

    def measure(self, name: str) -> Measure:
        """Return a measure by its name."""
        return next(measure for measure in self.measures if measure.name == name)

    def counts(self, bound: Bound, measures: Sequence[str]) -> bool:
        """Whether a bound applies to one of these measures, or to a measure that the file defines only for it."""
        measure = self.measure(bound.measure)
        return measure.name in measures or measure.name != measure.shown

    def formulas(self) -> Iterator[tuple[Measure, Formula]]:
        """Yield each measure with its formula, for each point that has the formula's variables.

        Raises:
            UserError: a measure is not a valid formula, or no point has its variables.

        """
        points = list(self.points())
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
    def series(self) -> tuple[Series, ...]:
        """All statistics that the measures need in addition to the summary."""
        return tuple(dict.fromkeys(each for _, formula in self.formulas() for each in formula.series))

    def axes_of(self, scenario: str) -> tuple[Axis, ...]:
        """Return the axes that a scenario has."""
        return tuple(axis for axis in self.axes if scenario in axis.scenarios)

    def points(self) -> Iterator[Point]:
        """Yield all points, with those of the placebo last."""
        draws: Sequence[tuple[int | None, Draw]] = [*enumerate(self.draws, 1)] or [(None, Draw((), {}))]
        for placebo in (False, True) if self.placebo else (False,):
            last = self.placebo[0] if placebo and self.placebo else ()
            for name, scenario in self.scenarios.items():
                axes = self.axes_of(name)
                for values in itertools.product(*(axis.values for axis in axes)):
                    names = [name for axis in axes for name in axis.names]
                    labels = zip(names, (label for one in values for label in one.labels), strict=True)
                    labelled = tuple(labels)
                    on_axes = tuple(change for one in values for change in one.sets)
                    named = dict(zip(names, (each for one in values for each in one.values), strict=True))
                    for (number, draw), who in itertools.product(draws, scenario.variants):
                        variant = self.variants[who]
                        changes = (*scenario.sets, *draw.sets, *on_axes, *variant.sets, *last)
                        place = f"{self.path}: {name}"
                        variables = {**scenario.variables, **named, **draw.variables, "variant": who}
                        filled = tuple(fill(change, variables, place) for change in changes)
                        told = tuple(variables.items())
                        yield Point(name, labelled, number, who, filled, told, placebo, variant.emulated)


class NoVariableError(UserError):
    """A variable with this name does not exist."""


_HOLE = re.compile(r"\$\{([^{}]*)\}")


def fill(text: str, variables: Mapping[str, str], place: str) -> str:
    """Replace each ``${ }`` in a change: a name by its value, and a formula of numeric variables by its result.

    Raises:
        NoVariableError: there is no such variable.
        UserError: its value is not a number.

    """

    def value(hole: re.Match[str]) -> str:
        inside = hole[1].strip()
        if inside in variables:
            return variables[inside]
        numbers = {name: number_of(value) for name, value in variables.items()}
        formula = Formula.read(inside, place)
        for path in formula.paths:
            if path not in variables:
                problem = f"there is no variable {path} for {hole[0]}"
                raise NoVariableError(place, problem, meant(path, variables))
        found = formula.value(numbers)
        if found is None:
            raise UserError(place, f"{hole[0]} has no value", "use variables that are plain numbers")
        return f"{found:.9g}"

    return _HOLE.sub(value, text)


def built_in() -> dict[str, Path]:
    """Return the experiments that come with the program, by their names."""
    with resources.as_file(BUILT_IN) as folder:
        return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def named() -> dict[str, Path]:
    """Return all experiment files that have a name: the built-in ones, and those of a checkout."""
    return built_in() | {path.stem: path for path in sorted(CHECKOUT.glob("*.toml"))}


def _at(path: Path) -> Path:
    if path.exists() or path.suffix == ".toml" or len(path.parts) > 1:
        return path
    known = named()
    if path.name not in known:
        problem = "there is no such file, and no experiment of this name"
        raise UserError(str(path), problem, meant(path.name, known))
    return known[path.name]


def _written(told: Mapping[str, Any], origin: Path) -> Path | None:
    """Return the path of a table or a figure.

    It is in the folder of its experiment file or, for a built-in file, in the results folder.
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
    lists = {key: tuple(told[key]) for key in ("measures", "but", "scenarios", "variants")}
    write = _written(told, origin)
    return TableSpec(**{**told, **lists, "write": write})


def _base(told: Mapping[str, Any], origin: Path) -> Base:
    if told["text"] is not None:
        # An inline scenario has no file. Errors use its name, and its paths are relative to the experiment's.
        return Base(
            str(origin.parent / f"{origin.stem}-{told['name'].replace(' ', '-')}.toml"), told["text"], ()
        )
    beside = origin.parent / told["file"]
    return Base.of(beside if beside.is_file() else scenario_at(Path(told["file"])), ())


def _measures(told: Mapping[str, Any], path: str) -> Iterator[Measure]:
    """Yield the measures of a file, and the bounds' own measures."""
    for one in told["measures"]:
        yield _measure(one["name"], one["name"], one, path)
    for bound in told["bounds"]:
        if bound["own"] is not None:
            yield _measure(_own(bound), bound["measure"], bound["own"], path)


def _own(bound: Mapping[str, Any]) -> str:
    """Return the unique name of a bound's own measure."""
    return f"{bound['measure']}, line {bound['own']['line']}"


def _measure(name: str, shown: str, told: Mapping[str, Any], path: str) -> Measure:
    place = f"{path}:{told['line']}: measure {shown}"
    return Measure(name, shown, told["value"], told["unit"], told["digits"], place)


def _bound(told: Mapping[str, Any], path: str) -> Bound:
    return Bound(
        told["measure"] if told["own"] is None else _own(told),
        told["min"],
        told["max"],
        told["over"],
        tuple(told["variants"]),
        tuple(told["scenarios"]),
        {axis: tuple(values) for axis, values in told["at"].items()},
        told["when"],
        told["fraction"],
        told["why"],
        told["source"],
        f"{path}:{told['line']}: bound",
    )
