"""Experiment files: a question, the runs that answer it, the measures of each run, and their bounds.

The core reads and checks a file (`crates/scenario/src/experiment.rs`); `steadycast schema --experiment` describes its
keys. Here its content becomes objects, and its scenarios are read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from steadycast.builtin import scenario_at
from steadycast.core import core
from steadycast.errors import UserError, meant
from steadycast.experiment.formula import Formula
from steadycast.files import readable
from steadycast.sweep.plan import Base

BUILT_IN = resources.files("steadycast") / "experiments"
ALONE = ""
"""The name of the only variant of an experiment that has none."""


@dataclass(frozen=True)
class Measure:
    """A number that is taken from each run."""

    name: str
    formula: Formula
    unit: str
    """The unit that tables show; empty where it is the figure's own, or there is none."""
    digits: int
    place: str
    """The place in the file, for errors."""


@dataclass(frozen=True)
class Bound:
    """A bound on a measure."""

    measure: str
    min: float | None
    max: float | None
    over: str
    """mean, each or interval: what of the seeds' values it bounds."""
    variants: tuple[str, ...]
    """The variants that are judged; none: all."""
    scenarios: tuple[str, ...]
    at: Mapping[str, tuple[str, ...]]
    """The values of axes at which it is judged."""
    fraction: float
    """The share of the points at which it has to hold."""
    why: str
    source: str

    def judges(self, point: Point) -> bool:
        """Whether the bound is one of this point."""
        return (
            point.scenario in self.scenarios
            and (not self.variants or point.variant in self.variants)
            and all(dict(point.values).get(axis) in values for axis, values in self.at.items())
        )

    def said(self) -> str:
        """Return the bound in words: 0.5 to 2 in the mean."""
        how = {"mean": "in the mean", "each": "with each seed", "interval": "with its whole 95 % interval"}
        both = self.min is not None and self.max is not None
        ends = f"{self.min:g} to {self.max:g}" if both else ""
        ends = ends or (f"at least {self.min:g}" if self.min is not None else f"at most {self.max:g}")
        often = "" if self.fraction == 1 else f", at {self.fraction:.0%} of the points"
        return f"{ends} {how[self.over]}{often}"


@dataclass(frozen=True)
class FigureSpec:
    """A figure."""

    measure: str
    over: str | None
    """The axis on its abscissa; None: a bar per variant."""
    caption: str


@dataclass(frozen=True)
class Point:
    """A scenario with the values of all axes, a draw and a variant: what differs from another run only by the seed."""

    scenario: str
    values: tuple[tuple[str, str], ...]
    """Axes and their values."""
    draw: int | None
    """The number of the draw, from 1 on."""
    variant: str
    sets: tuple[str, ...]
    placebo: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in a table: scenario, values, draw, variant."""
        draw = () if self.draw is None else (f"draw {self.draw}",)
        return (self.scenario, *(value for _, value in self.values), *draw, self.variant)


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
    scenarios: Mapping[str, tuple[Base, tuple[str, ...]]]
    """Each scenario, and its changes."""
    draws: tuple[tuple[str, ...], ...]
    axes: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Name, path and values of each axis."""
    variants: Mapping[str, tuple[str, ...]]
    placebo: tuple[tuple[str, ...], str] | None
    """The changes that take the event away, and what that leaves out."""
    measures: tuple[Measure, ...]
    bounds: tuple[Bound, ...]
    figures: tuple[FigureSpec, ...]
    write: Path | None

    @classmethod
    def read(cls, source: Path | str) -> Spec:
        """Read an experiment: a file, or a built-in one by its name.

        Raises:
            UserError: there is no such file, or something is wrong in it; it says where, and what to do.

        """
        path = _at(Path(source))
        with readable(path, "give an experiment file, with the right to read it"):
            text = path.read_text(encoding="utf-8")
        told: dict[str, Any] = json.loads(core.experiment(text, str(path)))
        measures = tuple(_measure(one, str(path)) for one in told["measures"])
        return cls(
            path.stem,
            str(source),
            text,
            path.parent,
            told["question"],
            tuple(told["seeds"]),
            {one["name"]: (_base(one, path), tuple(one["sets"])) for one in told["scenarios"]},
            tuple(tuple(one) for one in told["draws"]),
            tuple((one["name"], one["path"], tuple(one["values"])) for one in told["axes"]),
            {one["name"]: tuple(one["sets"]) for one in told["variants"]} or {ALONE: ()},
            (tuple(told["placebo"]["sets"]), told["placebo"]["why"]) if told["placebo"] else None,
            measures,
            tuple(_bound(one) for one in told["bounds"]),
            tuple(FigureSpec(**one) for one in told["figures"]),
            path.parent / told["write"] if told["write"] else None,
        )

    def points(self) -> Iterator[Point]:
        """Yield all points, the placebo's after the others."""
        draws: list[tuple[int | None, tuple[str, ...]]] = [*enumerate(self.draws, 1)] or [(None, ())]
        for placebo in (False, True) if self.placebo else (False,):
            last = self.placebo[0] if placebo and self.placebo else ()
            for scenario, (_, sets) in self.scenarios.items():
                for values in itertools.product(*(values for _, _, values in self.axes)):
                    named = [
                        (name, path, value) for (name, path, _), value in zip(self.axes, values, strict=True)
                    ]
                    on_axes = tuple(f"{path}={value}" for _, path, value in named)
                    labels = tuple((name, value) for name, _, value in named)
                    for (draw, drawn), (variant, more) in itertools.product(draws, self.variants.items()):
                        changes = (*sets, *drawn, *on_axes, *more, *last)
                        yield Point(scenario, labels, draw, variant, changes, placebo)

    def heads(self) -> list[str]:
        """Return the headings of a point's labels."""
        return ["scenario", *(name for name, _, _ in self.axes), *(["draw"] if self.draws else []), "variant"]


def built_in() -> dict[str, Path]:
    """Return the experiments that come with the program, by their names."""
    with resources.as_file(BUILT_IN) as folder:
        return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _at(path: Path) -> Path:
    if path.exists() or path.suffix == ".toml" or len(path.parts) > 1:
        return path
    known = built_in()
    if path.name not in known:
        problem = "there is no such file, and no experiment of this name"
        raise UserError(str(path), problem, meant(path.name, known))
    return known[path.name]


def _base(told: Mapping[str, Any], origin: Path) -> Base:
    if told["text"] is not None:
        # An inline scenario has no file: errors use its name, and its files are relative to the experiment.
        return Base(
            str(origin.parent / f"{origin.stem}-{told['name'].replace(' ', '-')}.toml"), told["text"], ()
        )
    beside = origin.parent / told["file"]
    return Base.of(beside if beside.is_file() else scenario_at(Path(told["file"])), ())


def _measure(told: Mapping[str, Any], path: str) -> Measure:
    place = f"{path}:{told['line']}: measure {told['name']}"
    return Measure(told["name"], Formula.read(told["value"], place), told["unit"], told["digits"], place)


def _bound(told: Mapping[str, Any]) -> Bound:
    return Bound(
        told["measure"],
        told["min"],
        told["max"],
        told["over"],
        tuple(told["variants"]),
        tuple(told["scenarios"]),
        {axis: tuple(values) for axis, values in told["at"].items()},
        told["fraction"],
        told["why"],
        told["source"],
    )
