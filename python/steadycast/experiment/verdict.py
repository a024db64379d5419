"""Evaluates the runs of an experiment: the mean and the spread of each measure, and the result of each bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from steadycast.core import program
from steadycast.experiment.formula import Context
from steadycast.experiment.runs import Runs
from steadycast.experiment.spec import Bound, Measure, Point, Spec
from steadycast.folder import Json, spread, within

HOLDS, FAILS, UNTESTED, UNKNOWN = "holds", "fails", "untested", "unknown"
"""Results of a bound.

"untested" means that the placebo (the run without the event) keeps the bound, too. "unknown" means that a run failed or
lacks the measure.
"""


@dataclass(frozen=True)
class Judgement:
    """The result of a bound for one variant, over all points to which the bound applies."""

    bound: Bound
    variant: str
    points: Mapping[Point, bool | None] = field(repr=False)
    """Whether the bound holds at each point. It is `None` if the value is unknown."""
    placebo: Mapping[Point, bool | None] = field(repr=False)
    """Whether the bound holds at each point of the placebo (the runs without the event)."""

    @property
    def held(self) -> int:
        """The number of points at which the bound holds."""
        return sum(holds is True for holds in self.points.values())

    @property
    def outcome(self) -> str:
        """The result: "holds", "fails", "untested" or "unknown"."""
        least = self.bound.fraction * len(self.points)
        if self.held < least:
            unknown = sum(holds is None for holds in self.points.values())
            return UNKNOWN if self.held + unknown >= least else FAILS
        kept = sum(holds is True for holds in self.placebo.values())
        return UNTESTED if self.placebo and kept >= least else HOLDS


@dataclass(frozen=True)
class Kept:
    """The combined result of all bounds that apply at a point."""

    runs: tuple[bool | None, ...]
    """Whether each seed keeps all bounds. It is `None` if a value is unknown."""
    mean: bool | None
    """Whether the means over the seeds keep all bounds. It is `None` if a value is unknown."""

    @property
    def each(self) -> bool | None:
        """Whether every seed keeps all bounds."""
        return all_of(self.runs)


def all_of(found: Iterable[bool | None]) -> bool | None:
    """Return false if a value is false. Otherwise, return `None` if a value is unknown, or else true."""
    known = list(found)
    return False if False in known else None if None in known else True


def kept_by(bound: Bound, values: Sequence[float | None], over: str) -> bool | None:
    """Whether the values of a point's seeds keep a bound. Return `None` if a value is unknown.

    Args:
        bound: the bound.
        values: one value for each seed.
        over: what must be within the bound: "mean", "each", or "interval" (the whole 95 % interval of the mean).

    """
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    match over:
        case "each":
            checked = known
        case "interval":
            one = spread(known)
            if one["ci95"] is None:  # a single value has no interval
                return None
            checked = [one["mean"] - one["ci95"], one["mean"] + one["ci95"]]
        case _:
            checked = [sum(known) / len(known)]
    return all(within(value, bound.min, bound.max) for value in checked)


@dataclass(frozen=True)
class Experiment:
    """An experiment with the results of its runs."""

    spec: Spec
    runs: Runs
    folder: Path
    """The folder that contains the experiment's page, tables and runs."""

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All points. The points of the placebo (runs without the event) are last."""
        return self.spec.points()

    def _context(self, point: Point, seed: int) -> Context | None:
        figures = self.runs.figures.get((point, seed))

        def other(name: str) -> Context | None:
            there = self.spec.counterpart(point, name)
            return None if there is None else self._context(there, seed)

        return None if figures is None else Context(figures, other)

    @cached_property
    def _values(self) -> dict[tuple[str, Point], dict[int, float | None]]:
        return {}

    def values(self, measure: Measure, point: Point) -> dict[int, float | None]:
        """Return the value of a measure for each seed. A value is `None` if the run failed or lacks the measure."""
        key = measure.name, point
        if key not in self._values:
            formula = measure.at(point)
            runs = {seed: self._context(point, seed) for seed in self.spec.seeds}
            self._values[key] = {
                seed: None if run is None or formula is None else formula.value(run)
                for seed, run in runs.items()
            }
        return self._values[key]

    def spread(self, measure: Measure, point: Point) -> Json | None:
        """Return the mean of a measure and its 95 % interval. Return `None` if a seed has no value."""
        known = [value for value in self.values(measure, point).values() if value is not None]
        return spread(known) if len(known) == len(self.spec.seeds) else None

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """The results of all bounds. There is one for each bound and variant."""
        return tuple(
            Judgement(bound, variant, self._judged(bound, variant, False), self._judged(bound, variant, True))
            for bound in self.spec.bounds
            for variant in self.spec.variants
            if (not bound.variants or variant in bound.variants)
            and any(point.variant == variant and bound.judges(point) for point in self.points)
        )

    def _judged(self, bound: Bound, variant: str, placebo: bool) -> dict[Point, bool | None]:
        chosen = (p for p in self.points if p.placebo == placebo and p.variant == variant and bound.judges(p))
        return {point: self.holds(bound, point) for point in chosen}

    def holds(self, bound: Bound, point: Point) -> bool | None:
        """Whether a bound holds at a point. Return `None` if a value is unknown."""
        values = self.values(self.spec.measure(bound.measure), point)
        return kept_by(bound, list(values.values()), bound.over)

    def keeps(self, point: Point, but: Sequence[str] = ()) -> bool | None:
        """Whether a point keeps all bounds that apply to it. Return `None` if no bound applies.

        Args:
            point: the point.
            but: the measures whose bounds are ignored.

        """
        bounds = [each for each in self.spec.bounds if each.judges(point) and each.measure not in but]
        found = [self.holds(each, point) is True for each in bounds]
        return all(found) if found else None

    def kept(self, point: Point, measures: Sequence[str] | None = None) -> Kept | None:
        """Return the combined result of all bounds at a point. Return `None` if there are no bounds.

        Args:
            point: the point.
            measures: the measures whose bounds are judged, by default all. A bound with a formula of its own is
                always judged.

        """
        chosen = [
            bound
            for bound in self.spec.bounds
            if bound.judges(point) and (measures is None or self.spec.counts(bound, measures))
        ]
        if not chosen:
            return None
        each = [(bound, self.values(self.spec.measure(bound.measure), point)) for bound in chosen]
        runs = (
            all_of(kept_by(bound, [values[seed]], "each") for bound, values in each)
            for seed in self.spec.seeds
        )
        mean = all_of(kept_by(bound, list(values.values()), "mean") for bound, values in each)
        return Kept(tuple(runs), mean)

    @property
    def failed(self) -> bool:
        """Whether a run had an error, or at least one bound does not hold. Untested and unknown bounds do not hold."""
        return bool(self.runs.errors) or any(each.outcome != HOLDS for each in self.judgements)

    def json(self) -> Json:
        """Return the content of experiment.json."""
        return {
            "format": 1,
            "program": program(),
            "question": self.spec.question,
            "seeds": list(self.spec.seeds),
            "points": [
                {
                    "scenario": point.scenario,
                    "values": dict(point.values),
                    "draw": point.draw,
                    "drawn": {} if point.draw is None else dict(self.spec.draws[point.draw - 1].variables),
                    "variant": point.variant,
                    "placebo": point.placebo,
                    "set": list(point.sets),
                    "measures": {each.name: self.spread(each, point) for each in self.spec.measures},
                }
                for point in self.points
            ],
            "bounds": [
                {
                    "measure": each.bound.measure,
                    "variant": each.variant,
                    "bound": each.bound.said(),
                    "min": each.bound.min,
                    "max": each.bound.max,
                    "over": each.bound.over,
                    "why": each.bound.why,
                    "source": each.bound.source,
                    "held": each.held,
                    "points": len(each.points),
                    "placebo_held": sum(holds is True for holds in each.placebo.values()),
                    "outcome": each.outcome,
                }
                for each in self.judgements
            ],
            "errors": list(dict.fromkeys(self.runs.errors.values())),
        }
