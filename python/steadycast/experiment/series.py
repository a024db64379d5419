"""Numbers of a run that its summary lacks: statistics of a flow's seconds, and of a controller's decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from steadycast.result import Run


@dataclass(frozen=True)
class Statistic:
    """A statistic of a list of seconds."""

    of: Callable[[Sequence[float], float], float | None]
    """Called with the values, second by second, and the level."""
    level: bool = False
    """Whether it compares with a level."""


def _first_above(values: Sequence[float], level: float) -> float | None:
    """Return the end of the first second above the level, counted from the first of the seconds."""
    return next((n + 1.0 for n, value in enumerate(values) if value > level), None)


def _longest_below(values: Sequence[float], level: float) -> float:
    longest = row = 0
    for value in values:
        row = row + 1 if value < level else 0
        longest = max(longest, row)
    return float(longest)


STATISTICS: Mapping[str, Statistic] = {
    "mean": Statistic(lambda values, _: sum(values) / len(values)),
    "min": Statistic(lambda values, _: min(values)),
    "max": Statistic(lambda values, _: max(values)),
    "sum": Statistic(lambda values, _: sum(values)),
    "first_above": Statistic(_first_above, level=True),
    "share_below": Statistic(lambda values, level: sum(v < level for v in values) / len(values), level=True),
    "longest_below": Statistic(_longest_below, level=True),
}
"""The statistics of seconds by their names. A level is given before the seconds."""


@dataclass(frozen=True)
class Seconds:
    """A statistic of the seconds from FROM to TO, TO not included.

    The series is ``received.FLOW.COLUMN`` or ``sent.FLOW.COLUMN``, with a column of the table ``rates``. ``*`` in FLOW
    stands for any name. Rates of several flows or receivers are added, of other columns the largest counts. A second
    without a throughput carried nothing; of any other column it is left out, as its value is unknown.
    """

    statistic: str
    numbers: tuple[float, ...]
    """The level, if the statistic has one, and the two ends in seconds."""
    way: str
    flow: str
    column: str

    @property
    def text(self) -> str:
        """The name of its value among a run's figures."""
        numbers = ", ".join(f"{number:g}" for number in self.numbers)
        return f"seconds({self.statistic}, {numbers}, {self.way}.{self.flow}.{self.column})"

    def value(self, run: Run) -> float | None:
        """Return the statistic of a run's seconds; None where there is no such second."""
        *level, begin, end = self.numbers
        rates = run.rates.to_polars()
        sources: dict[str, str] = {}
        found: defaultdict[float, list[float]] = defaultdict(list)
        for at, flow, node, value in rates.select("t_s", "flow", "node", self.column).iter_rows():
            # A flow's source stands before its receivers.
            source = sources.setdefault(flow, node)
            fits = fnmatchcase(flow, self.flow) and (node == source) == (self.way == "sent")
            if value is None and self.column == "throughput_bps":
                value = 0.0
            if fits and begin <= at < end and value is not None:
                found[at].append(value)
        together: Callable[[list[float]], float] = sum if self.column.endswith("_bps") else max
        values = [together(found[at]) for at in sorted(found)]
        return STATISTICS[self.statistic].of(values, level[0] if level else 0.0) if values else None


@dataclass(frozen=True)
class Decisions:
    """A statistic of the decisions of a flow's sender from FROM to TO seconds whose rule fits a pattern.

    ``count`` is their number. ``first`` and ``last`` are the seconds at which a time under the rule begins first and
    ends last, ``longest`` is the longest such time in seconds: it lasts until a decision by another rule.
    """

    statistic: str
    rule: str
    begin: float
    end: float
    flow: str

    @property
    def text(self) -> str:
        """The name of its value among a run's figures."""
        return f'decisions({self.statistic}, "{self.rule}", {self.begin:g}, {self.end:g}, {self.flow})'

    def value(self, run: Run) -> float | None:
        """Return the statistic of a run's decisions; None where no time under the rule has a begin or an end."""
        table = run.decisions.to_polars()
        flows: dict[str, list[tuple[float, bool]]] = {}
        for at, flow, rule in table.select("t_s", "flow", "rule").iter_rows():
            if fnmatchcase(flow, self.flow) and rule != "report":
                flows.setdefault(flow, []).append((at, fnmatchcase(rule, self.rule)))
        if self.statistic == "count":
            return float(
                sum(fits for rows in flows.values() for at, fits in rows if self.begin <= at < self.end)
            )
        spans = [span for rows in flows.values() for span in self._spans(rows)]
        if self.statistic == "longest":
            return max((end - begin for begin, end in spans), default=0.0)
        if not spans:
            return None
        return min(spans)[0] if self.statistic == "first" else max(end for _, end in spans)

    def _spans(self, rows: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
        """Return the times of one flow under the rule, within the two ends."""
        spans: list[tuple[float, float]] = []
        since: float | None = None
        for at, fits in [*rows, (self.end, False)]:
            if fits and since is None:
                since = at
            elif not fits and since is not None:
                spans.append((max(since, self.begin), min(at, self.end)))
                since = None
        return [(begin, end) for begin, end in spans if begin < end]


SPANS = ("count", "first", "last", "longest")
"""The statistics of decisions."""
