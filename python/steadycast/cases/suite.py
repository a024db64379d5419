"""The results of the test cases: bounds, and whether they held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from steadycast.cases.case import TCPS, Bound, Case, Variant
from steadycast.cases.work import Done, Task
from steadycast.controllers import registry
from steadycast.core import program
from steadycast.folder import Json, spread

NAME = "cases.json"
"""The file with a suite's numbers."""
FORMAT = 1
_TOLD = ("measure", "why", "against", "min", "max")


@dataclass(frozen=True)
class Judged:
    """The result of a bound of one variant with one controller."""

    case: Case
    variant: Variant
    bound: Bound
    values: dict[int, float | None]
    """The value by seed; `None` if it is absent, which violates the bound."""

    @property
    def kept(self) -> int:
        """The number of seeds with which the bound held."""
        return sum(map(self.bound.holds, self.values.values()))

    @property
    def holds(self) -> bool:
        """Whether the bound held with every seed."""
        return self.kept == len(self.values)


@dataclass(frozen=True)
class Suite:
    """The results of a suite's cases."""

    cases: tuple[Case, ...]
    controllers: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: dict[Task, Done | str]
    """The result of each run: its measures, or the error that ended it."""
    folder: Path | None
    """The folder of cases.json and report.html."""

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str, int], Done | str]:
        return {
            (task.case, task.variant, task.controller, task.seed): done for task, done in self.runs.items()
        }

    def done(self, case: Case, variant: Variant, controller: str) -> dict[int, Done]:
        """Return the runs without an error, by seed."""
        found = {seed: self._by_place.get((case.id, variant.name, controller, seed)) for seed in self.seeds}
        return {seed: done for seed, done in found.items() if isinstance(done, Done)}

    def spread(self, case: Case, variant: Variant, controller: str, measure: str) -> Json | None:
        """Return the mean of a measure over the seeds with its interval; `None` if no run has it."""
        found = [done.measures[measure] for done in self.done(case, variant, controller).values()]
        known = [value for value in found if value is not None]
        return spread(known) if known else None

    def judged(self, case: Case, controller: str) -> list[Judged]:
        """Return the results of all bounds of a case; empty if the controller does not take part."""
        if not takes_part(case, controller):
            return []
        return [
            Judged(case, variant, bound, self._values(case, variant, bound, controller))
            for variant in case.variants
            for bound in case.bounds
            if case.judges(bound, variant)
        ]

    def _values(self, case: Case, variant: Variant, bound: Bound, controller: str) -> dict[int, float | None]:
        place = case.bounds.index(bound)
        own = self.done(case, variant, controller)
        values = {seed: own[seed].values[place] if seed in own else None for seed in self.seeds}
        if bound.against is None:
            return values
        other = self.done(case, case.variant(bound.against), controller)
        return {
            seed: value / below
            if value is not None and seed in other and (below := other[seed].values[place])
            else None
            for seed, value in values.items()
        }

    def verdict(self, case: Case, controller: str) -> tuple[int, int]:
        """Return the number of bounds of a case that held with every seed, and their total number."""
        found = self.judged(case, controller)
        return sum(each.holds for each in found), len(found)

    @property
    def errors(self) -> list[str]:
        """The errors of runs, without duplicates."""
        return list(dict.fromkeys(done for done in self.runs.values() if isinstance(done, str)))

    @property
    def untrusted(self) -> list[str]:
        """The emulated runs in which the machine was too slow."""
        return [
            str(task) for task, done in self.runs.items() if isinstance(done, Done) and not done.trustworthy
        ]

    @property
    def failed(self) -> bool:
        """Whether a bound did not hold, or a run failed."""
        verdicts = (self.verdict(case, name) for case in self.cases for name in self.controllers)
        return bool(self.errors) or any(held < all_ for held, all_ in verdicts)

    def json(self) -> Json:
        """Return the content of cases.json."""
        return {
            "format": FORMAT,
            "program": program(),
            "seeds": list(self.seeds),
            "emulated": any(task.emulated for task in self.runs),
            "untrusted": self.untrusted,
            "cases": [
                {
                    "id": case.id,
                    "title": case.title,
                    "expects": case.expects,
                    "controllers": [self._controller(case, name) for name in self.controllers],
                }
                for case in self.cases
            ],
            "errors": self.errors,
        }

    def _controller(self, case: Case, name: str) -> Json:
        held, bounds = self.verdict(case, name)
        return {
            "name": name,
            "takes_part": takes_part(case, name),
            "held": held,
            "bounds": bounds,
            "variants": [
                {
                    "name": variant.name,
                    "measures": {
                        measure: self.spread(case, variant, name, measure)
                        for measure in next(iter(self.done(case, variant, name).values()), Done()).measures
                    },
                    "converged_s": {
                        str(seed): done.converged for seed, done in self.done(case, variant, name).items()
                    },
                    "record_sha256": {
                        str(seed): done.record_sha256 for seed, done in self.done(case, variant, name).items()
                    },
                    "expect": [
                        {
                            **{key: getattr(each.bound, key) for key in _TOLD},
                            "values": {str(seed): value for seed, value in each.values.items()},
                            "ok": each.holds,
                        }
                        for each in self.judged(case, name)
                        if each.variant is variant
                    ],
                }
                for variant in case.variants
            ],
        }


def takes_part(case: Case, controller: str) -> bool:
    """Whether a controller has the features that a case requires; a user's class is assumed to have them."""
    if controller in TCPS:
        return "tcp" in case.takes or controller in case.takes
    if case.parameter is None:
        return "video" in case.takes
    known = [entry for entry in registry() if entry.name == controller]
    return not known or any(param.name == case.parameter for param in known[0].params)


def chosen_drawing(suite: Suite, case: Case, controller: str) -> dict[str, Any]:
    """Return the series of the run that a figure shows: the first variant, the first seed."""
    done = suite.done(case, case.variants[0], controller).get(suite.seeds[0])
    return done.drawing if done is not None else {}
