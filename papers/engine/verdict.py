"""Derives the verdicts from the runs, one row per statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from steadycast.folder import Json, spread

from papers.engine.experiment import Bound, Experiment, Kind, Medium, Statement, Verdict
from papers.engine.quantity import Seen


@dataclass(frozen=True)
class Measured:
    """A statement's number over the seeds."""

    values: tuple[float, ...]
    bound: Bound
    runs: int
    """Number of seeds that were run. `values` has fewer if some runs don't have the number."""

    @property
    def spread(self) -> Json:
        """Mean, half-width of its 95 % interval, minimum, maximum, and count."""
        return spread(self.values)

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(self.spread["mean"])

    @property
    def holds(self) -> bool:
        """Whether the mean keeps the bound."""
        return self.bound.holds(self.mean)

    @property
    def keeps(self) -> bool:
        """Whether the whole 95 % interval of the mean keeps the bound."""
        return self.holds and not self.open

    @property
    def open(self) -> bool:
        """Whether the 95 % interval of the mean crosses the bound.

        A single value has no interval, and also counts as crossing the bound.
        """
        ci = self.spread["ci95"]
        return ci is None or not self.bound.decides(self.mean - ci, self.mean + ci)

    def apart(self, other: Measured) -> bool:
        """Whether the two numbers differ: the 95 % interval of their paired difference does not contain zero."""
        # Both numbers start with the same seed, but one of them may have more seeds.
        found = spread([a - b for a, b in zip(self.values, other.values, strict=False)])
        return found["ci95"] is not None and abs(float(found["mean"])) > found["ci95"]


@dataclass(frozen=True)
class Judged:
    """The result for a statement in one setting: its number, its number without the event, and the verdict."""

    measured: Measured | None
    verdict: Verdict
    placebo: Measured | None = None
    """The number in runs without the statement's event; `None` if the statement is not about an event."""
    little: str = ""
    """Why the runs can't decide, for example because flows don't load the network enough; empty if they can decide."""


@dataclass(frozen=True)
class Row:
    """A statement with its measured numbers and its verdict."""

    experiment: Experiment
    statement: Statement
    medium: Medium
    judged: Judged
    """The result in the joint setting; if the experiment has none, the result as set up."""
    printed: Judged | None
    """The result in the setting as printed in the paper, if the experiment also has a joint setting."""
    changed: Mapping[str, Measured]
    """The number with each change that contradicts the paper or is newer than it, by the name of the change."""
    simulated: Row | None = None
    """The simulated result, if this row is emulated."""
    poor: frozenset[str] = frozenset()
    """Names of the changes whose runs don't load the network enough to decide anything."""

    @property
    def verdict(self) -> Verdict:
        """The verdict that is counted: that of `judged`."""
        return self.judged.verdict

    @property
    def measured(self) -> Measured | None:
        """The number that is judged."""
        return self.judged.measured

    @property
    def words(self) -> str:
        """The verdict as text, with the changes or the reason that it depends on."""
        j, whose = self.judged, ""
        if j.verdict is Verdict.WOULD:
            kept = [name for name, m in self.changed.items() if m.keeps and name not in self.poor]
            whose = f" {'; '.join(f'“{name}”' for name in kept)}"
        elif j.verdict is Verdict.UNTESTED:
            whose = f" (without its event {self.said(j.placebo)})"
        elif j.verdict is Verdict.UNJUDGED:
            whose = f" ({self._unjudged()})"
        elif j.verdict is Verdict.FAILS and self._refuted:
            whose = " (a calculation without our simulator contradicts it too)"
        return f"{j.verdict.value}{whose}"

    @property
    def _refuted(self) -> bool:
        calculation = self.statement.calculation
        kept = any(m.holds for m in self.changed.values())
        return calculation is not None and not kept and calculation.contradicts(self.statement.bound)

    def _unjudged(self) -> str:
        if self.statement.kind is Kind.IMPOSSIBLE:
            return "people or hardware are lost"
        if self.judged.little or self.measured is None:
            return self.judged.little or "the runs don't have it"
        seeds = len(self.measured.values)
        return "one seed" if seeds == 1 else f"the interval of {seeds} seeds reaches across the bound"

    @property
    def width(self) -> str:
        """The width of the bound as text, which shows how strict the check is."""
        b, unit = self.statement.bound, self.statement.unit
        if b.least is not None and b.most is not None:
            if b.least > 0:
                return f"a factor of {b.most / b.least:.2g}"
            return f"{unit.text(b.most - b.least)}{unit.suffix} wide"
        end = b.most if b.least is None else b.least
        if end is None:
            return ""
        return "an order alone" if end in (0.0, 1.0) else f"open {'below' if b.least is None else 'above'}"

    def said(self, measured: Measured | None = None) -> str:
        """Format mean and spread with their unit."""
        m = measured or self.measured
        if m is None:
            return "–"
        unit = self.statement.unit
        ci = m.spread["ci95"]
        around = f" ± {unit.text(ci)}" if ci is not None else ""
        return f"{unit.text(m.mean)}{around}{unit.suffix}"

    @property
    def why(self) -> str:
        """The reason for the result, and the changes that would make a failed statement hold, in a sentence or two."""
        parts = [self.statement.why] if self.statement.why else []
        m = self.measured
        if m is None:
            return " ".join(parts)
        if len(m.values) < m.runs:
            parts.append(f"{m.runs - len(m.values)} of {m.runs} seeds have no value.")
        if self.verdict in (Verdict.FAILS, Verdict.WOULD):
            parts += [*self._calculated(), *self._tried()]
        elif self.verdict is Verdict.UNJUDGED and m.open:
            keeps = "keeps" if m.holds else "misses"
            parts.append(f"The mean {keeps} the bound, its interval reaches across it.")
        if self.simulated is not None and self.simulated.verdict is not self.verdict:
            parts.append(f"In simulation it {self.simulated.verdict.value}.")
        return " ".join(parts)

    def _calculated(self) -> list[str]:
        calculation = self.statement.calculation
        if calculation is None:
            return []
        unit, values = self.statement.unit, sorted(calculation.values.values())
        word = "Contradicted by" if calculation.contradicts(self.statement.bound) else "Not decided by"
        span = f"{unit.text(values[0])} to {unit.text(values[-1])}{unit.suffix}"
        return [f'{word} calculation "{calculation.name}": {span} under the conditions tried.']

    def _tried(self) -> list[str]:
        changes = "; ".join(f"{name} ({self.said(m)})" for name, m in self.changed.items())
        return [f"With what is not the paper's: {changes}."] if changes else []


def measured(statement: Statement, seeds: Sequence[Seen]) -> Measured | None:
    """Return a statement's number over the seeds that its variants were run with; `None` if no seed has it."""
    needed = set(statement.measure.variants)
    run = [seen for seen in seeds if needed <= seen.keys()]
    values = [value for seen in run if (value := statement.measure(seen)) is not None]
    return Measured(tuple(values), statement.bound, len(run)) if values else None


def _verdict(
    statement: Statement,
    found: Measured | None,
    placebo: Measured | None,
    changed: Mapping[str, Measured],
    little: str,
) -> Verdict:
    if statement.kind is Kind.IMPOSSIBLE:
        return Verdict.UNJUDGED
    if statement.kind is Kind.REPORTED:
        return Verdict.REPORTED
    if statement.kind is Kind.CERTAIN and found is not None and found.holds:
        return Verdict.CERTAIN
    if little or found is None:
        return Verdict.UNJUDGED
    if found.keeps:
        blind = placebo is not None and (placebo.keeps or not found.apart(placebo))
        return Verdict.UNTESTED if blind else Verdict.COMES_OUT
    if found.open:
        return Verdict.UNJUDGED
    return Verdict.WOULD if any(m.keeps for m in changed.values()) else Verdict.FAILS


def judge(
    statement: Statement,
    runs: Sequence[Seen],
    without: Sequence[Seen] | None = None,
    changed: Mapping[str, Measured] = MappingProxyType({}),
    little: str = "",
) -> Judged:
    """Judge a statement by the runs of all seeds in one setting.

    Args:
        statement: the paper's statement.
        runs: the runs, one item per seed.
        without: the same runs without the event that the statement is about; `None` if it is not about an event.
        changed: the statement's numbers in runs with a change that contradicts the paper or is newer than the paper,
            by the change's name.
        little: the reason why the runs can't decide the statement; empty if they can.

    """
    found = measured(statement, runs)
    placebo = measured(statement, without) if without is not None else None
    return Judged(found, _verdict(statement, found, placebo, changed, little), placebo, little)


def as_read(statement: Statement, takes: Sequence[str]) -> Statement:
    """Return the statement with the first of its alternative numbers that is named in `takes`; otherwise unchanged."""
    other = next((each for each in statement.others if each.name in takes), None)
    return statement if other is None else replace(statement, measure=other.measure)
