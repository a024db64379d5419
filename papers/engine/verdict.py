"""From runs to verdicts: a row per statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from steadycast.folder import Json, spread

from papers.engine.experiment import Bound, Experiment, Kind, Medium, Statement, Verdict
from papers.engine.quantity import Seen

FALLS = "No longer with"
"""What begins the list of changes with which a statement that comes out does not."""


@dataclass(frozen=True)
class Measured:
    """A statement's number over the seeds."""

    values: tuple[float, ...]
    bound: Bound
    runs: int
    """How many seeds were run; those without a value have none in `values`."""

    @property
    def spread(self) -> Json:
        """Mean, half-width of its 95 % interval, least, most, how many."""
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
        """Whether the 95 % interval of the mean reaches across the bound, or one value gives none."""
        ci = self.spread["ci95"]
        return ci is None or not self.bound.decides(self.mean - ci, self.mean + ci)


@dataclass(frozen=True)
class Row:
    """A statement, what was measured, and what that says of it."""

    experiment: Experiment
    statement: Statement
    medium: Medium
    measured: Measured | None
    changed: Mapping[str, Measured]
    """The same with one thing different, by the change's name."""
    readings: Mapping[str, Measured]
    """The same by other readings of the paper's words, by their names."""
    verdict: Verdict
    little: str = ""
    """Why the runs ask too little to judge by; empty: they don't."""
    simulated: Row | None = None
    """The same in simulation, where this was emulated."""
    poor: frozenset[str] = frozenset()
    """Readings and changes whose own runs ask too little to decide anything."""

    @property
    def turns(self) -> list[str]:
        """Changes with which the mean is on the bound's other side."""
        if self.measured is None or not self.statement.kind.judged:
            return []
        return [name for name, m in self.changed.items() if m.holds != self.measured.holds]

    @property
    def words(self) -> str:
        """The verdict, with the readings, the changes or the reason that it rests on."""
        whose = ""
        if self.verdict is Verdict.READING:
            whose = f" “{'” or “'.join(self._keep(self.readings))}”"
        elif self.verdict is Verdict.LEFT_OPEN:
            whose = f" ({'; '.join(self._keep(self.changed))})"
        elif self.verdict is Verdict.UNJUDGED:
            whose = f" ({self._unjudged()})"
        elif self.verdict is Verdict.FAILS and self._refuted:
            whose = " (a calculation without our simulator contradicts it too)"
        elif self.verdict is Verdict.COMES_OUT:
            lost = [name for name, m in self.readings.items() if not m.holds and not m.open]
            whose = f" (not with the reading “{'”, “'.join(lost)}”)" if lost else ""
        return f"{self.verdict.value}{whose}"

    @property
    def _refuted(self) -> bool:
        calculation, tried = self.statement.calculation, {**self.changed, **self.readings}
        kept = any(m.holds for m in tried.values())
        return calculation is not None and not kept and calculation.contradicts(self.statement.bound)

    def _keep(self, others: Mapping[str, Measured]) -> list[str]:
        return [name for name, m in others.items() if m.keeps and name not in self.poor]

    def _unjudged(self) -> str:
        if self.statement.kind is Kind.IMPOSSIBLE:
            return "people or hardware are lost"
        if self.little or self.measured is None:
            return self.little or "the runs don't have it"
        seeds = len(self.measured.values)
        return "one seed" if seeds == 1 else f"the interval of {seeds} seeds reaches across the bound"

    @property
    def width(self) -> str:
        """The distance to the bound."""
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
        """Mean and spread with their unit."""
        m = measured or self.measured
        if m is None:
            return "–"
        unit = self.statement.unit
        ci = m.spread["ci95"]
        around = f" ± {unit.text(ci)}" if ci is not None else ""
        return f"{unit.text(m.mean)}{around}{unit.suffix}"

    @property
    def asked(self) -> str:
        """The bound of the mean."""
        b, unit = self.statement.bound, self.statement.unit
        low, high = ("> ", "< ") if b.strict else ("≥ ", "≤ ")
        if b.least is not None and b.most is not None:
            return f"{unit.text(b.least)} … {unit.text(b.most)}{unit.suffix}"
        if b.least is not None:
            return f"{low}{unit.text(b.least)}{unit.suffix}"
        if b.most is not None:
            return f"{high}{unit.text(b.most)}{unit.suffix}"
        return "–"

    @property
    def why(self) -> str:
        """The reason, and what would turn a failure, in a sentence or two."""
        parts = [self.statement.why] if self.statement.why else []
        m = self.measured
        if m is None:
            return " ".join(parts)
        if len(m.values) < m.runs:
            parts.append(f"{m.runs - len(m.values)} of {m.runs} seeds have no value.")
        if self.verdict in (Verdict.FAILS, Verdict.LEFT_OPEN):
            parts += [*self._calculated(), self._turned()]
        elif self.verdict is Verdict.UNJUDGED and m.open:
            parts += self._undecided(m)
        elif self.verdict is Verdict.COMES_OUT and self.turns:
            parts.append(f"{FALLS}: {self._values(self.turns)}.")
        if self.simulated is not None and self.simulated.verdict is not self.verdict:
            parts.append(f"In simulation it {self.simulated.verdict.value}.")
        return " ".join(parts)

    def _values(self, names: Iterable[str]) -> str:
        return "; ".join(f"{n} ({self.said(self.changed[n])})" for n in names)

    def _undecided(self, m: Measured) -> list[str]:
        keeps = "keeps" if m.holds else "misses"
        if len(m.values) == 1:
            told = [f"One value gives no interval; it {keeps} the bound."]
        else:
            told = [f"The mean {keeps} the bound, its interval reaches across it."]
        for word, holds in (("Kept", True), ("Missed", False)):
            names = [n for n, c in self.changed.items() if not c.open and c.holds is holds]
            if names:
                told.append(f"{word} with: {self._values(names)}.")
        return told

    def _calculated(self) -> list[str]:
        calculation = self.statement.calculation
        if calculation is None:
            return []
        unit, values = self.statement.unit, sorted(calculation.values.values())
        word = "Contradicted by" if calculation.contradicts(self.statement.bound) else "Not decided by"
        span = f"{unit.text(values[0])} to {unit.text(values[-1])}{unit.suffix}"
        return [f'{word} calculation "{calculation.name}": {span} under the conditions tried.']

    def _turned(self) -> str:
        if self.turns:
            return f"Turned by: {self._values(self.turns)}."
        if not self.changed:
            return "No change was tried."
        nearest = min(self.changed, key=lambda name: _gap(self.changed[name]))
        return (
            f"None of {len(self.changed)} changes turns it; nearest: {nearest} "
            f"({self.said(self.changed[nearest])})."
        )


def _gap(m: Measured) -> float:
    below = 0.0 if m.bound.least is None else max(0.0, m.bound.least - m.mean)
    above = 0.0 if m.bound.most is None else max(0.0, m.mean - m.bound.most)
    return below + above


def measured(statement: Statement, seeds: Sequence[Seen]) -> Measured | None:
    """Statement's number over the seeds that its variants were run with; `None` when not one of them has it."""
    needed = set(statement.measure.variants)
    run = [seen for seen in seeds if needed <= seen.keys()]
    values = [value for seen in run if (value := statement.measure(seen)) is not None]
    return Measured(tuple(values), statement.bound, len(run)) if values else None


def _verdict(
    statement: Statement,
    found: Measured | None,
    readings: Mapping[str, Measured],
    changed: Mapping[str, Measured],
    little: str,
) -> Verdict:
    if statement.kind is Kind.IMPOSSIBLE:
        return Verdict.UNJUDGED
    if statement.kind is Kind.REPORTED:
        return Verdict.REPORTED
    if statement.kind is Kind.CERTAIN and found is not None and found.holds:
        return Verdict.CERTAIN
    if not little and found is not None and found.keeps:
        return Verdict.COMES_OUT
    if any(m.keeps for m in readings.values()):
        return Verdict.READING
    if little or found is None or found.open:
        return Verdict.UNJUDGED
    return Verdict.LEFT_OPEN if any(m.keeps for m in changed.values()) else Verdict.FAILS


def row(
    experiment: Experiment,
    statement: Statement,
    medium: Medium,
    base: Sequence[Seen],
    changed: Mapping[str, Sequence[Seen]],
    little: str = "",
    poor: frozenset[str] = frozenset(),
) -> Row:
    """Verdict on a statement, from the runs of all seeds, as they are and with each change.

    Args:
        experiment: whose it is.
        statement: what the paper says.
        medium: what the video flow sent.
        base: the runs as they are, a seed each.
        changed: the runs with each change and each reading that concerns the statement.
        little: why the runs ask too little of the network to judge by.
        poor: readings and changes whose own runs do.

    """
    found = measured(statement, base)
    others = {name: m for name, seen in changed.items() if (m := measured(statement, seen)) is not None}
    quoted = {c.name for c in experiment.tried if c.says}
    readings = {name: m for name, m in others.items() if name in quoted}
    for other in statement.others:
        if (m := measured(replace(statement, measure=other.measure), base)) is not None:
            readings[other.name] = m
    tried = {name: m for name, m in others.items() if name not in quoted}
    able, tried_by = ({n: m for n, m in each.items() if n not in poor} for each in (readings, tried))
    verdict = _verdict(statement, found, able, tried_by, little)
    return Row(experiment, statement, medium, found, tried, readings, verdict, little, poor=poor)
