"""Evaluates the runs of an experiment: the spread of each measure at each point, and the result of each bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from steadycast.core import program
from steadycast.experiment.runs import Runs
from steadycast.experiment.spec import Bound, Measure, Point, Spec
from steadycast.folder import Json, spread, within

HOLDS, FAILS, UNTESTED, UNKNOWN = "holds", "fails", "untested", "unknown"
"""The possible results of a bound.

Untested: the placebo is within the bound as well, so that the bound does not test the event. Unknown: a run failed, or
lacks the measure.
"""


@dataclass(frozen=True)
class Judgement:
    """A bound and what came of it for one variant, over all points at which it is judged."""

    bound: Bound
    variant: str
    points: Mapping[Point, bool | None] = field(repr=False)
    """Whether it holds at each point; None where the value is unknown."""
    placebo: Mapping[Point, bool | None] = field(repr=False)
    """The same of the placebo's points."""

    @property
    def held(self) -> int:
        """The number of points at which the bound holds."""
        return sum(holds is True for holds in self.points.values())

    @property
    def outcome(self) -> str:
        """The result: holds, fails, untested or unknown."""
        least = self.bound.fraction * len(self.points)
        if self.held < least:
            unknown = sum(holds is None for holds in self.points.values())
            return UNKNOWN if self.held + unknown >= least else FAILS
        kept = sum(holds is True for holds in self.placebo.values())
        return UNTESTED if self.placebo and kept >= least else HOLDS


@dataclass(frozen=True)
class Experiment:
    """An experiment that has been run."""

    spec: Spec
    runs: Runs
    folder: Path
    """The folder of its page, tables and runs."""

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All points, the placebo's last."""
        return tuple(self.spec.points())

    def values(self, measure: Measure, point: Point) -> dict[int, float | None]:
        """Return a measure by seed; None where a run failed or lacks it."""
        found = {}
        for seed in self.spec.seeds:
            figures = self.runs.figures.get((point, seed))
            found[seed] = None if figures is None else measure.formula.value(figures)
        return found

    def spread(self, measure: Measure, point: Point) -> Json | None:
        """Return the mean of a measure with its 95 % interval; None where a seed has no value."""
        known = [value for value in self.values(measure, point).values() if value is not None]
        return spread(known) if len(known) == len(self.spec.seeds) else None

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """All bounds, each once per variant that it judges."""
        return tuple(
            Judgement(bound, variant, self._judged(bound, variant, False), self._judged(bound, variant, True))
            for bound in self.spec.bounds
            for variant in self.spec.variants
            if not bound.variants or variant in bound.variants
        )

    def _judged(self, bound: Bound, variant: str, placebo: bool) -> dict[Point, bool | None]:
        measure = next(each for each in self.spec.measures if each.name == bound.measure)
        chosen = (p for p in self.points if p.placebo == placebo and p.variant == variant and bound.judges(p))
        return {point: self._holds(bound, measure, point) for point in chosen}

    def _holds(self, bound: Bound, measure: Measure, point: Point) -> bool | None:
        values = self.values(measure, point)
        known = [value for value in values.values() if value is not None]
        if len(known) < len(values):
            return None
        match bound.over:
            case "each":
                return all(within(value, bound.min, bound.max) for value in known)
            case "interval":
                one = spread(known)
                if one["ci95"] is None:  # a single seed has no interval
                    return None
                ends = (one["mean"] - one["ci95"], one["mean"] + one["ci95"])
                return all(within(end, bound.min, bound.max) for end in ends)
            case _:
                return within(sum(known) / len(known), bound.min, bound.max)

    @property
    def failed(self) -> bool:
        """Whether a run failed, or a bound does not hold or tests nothing."""
        return bool(self.runs.errors) or any(each.outcome != HOLDS for each in self.judgements)

    def json(self) -> Json:
        """Return it as experiment.json has it."""
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
