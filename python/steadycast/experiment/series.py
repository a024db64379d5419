"""Computes numbers of a run that its summary lacks, from the run's tables.

Formulas call these computations as functions (`FUNCTIONS`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, Self

import numpy as np

from steadycast import record
from steadycast.errors import meant
from steadycast.experiment import rfc8868
from steadycast.result import Run


class Text(str):
    """An argument that is written in quotation marks."""


Argument = str | float
"""An argument of a function: a name, a text or a number."""


class ArgumentError(ValueError):
    """The arguments of a function in a formula are wrong. The text says what is expected.

    ``remedy`` is `None` if the text contains the remedy.
    """

    def __init__(self, problem: str, remedy: str | None = None) -> None:
        super().__init__(problem)
        self.remedy = remedy


class Series(Protocol):
    """A function of a formula, which computes a number from a run's tables."""

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse the function's arguments.

        Raises:
            ArgumentError: the arguments are wrong.

        """

    def value(self, run: Run) -> float | None:
        """Return the number for a run. Return `None` if it is unknown."""


def _split(arguments: Sequence[Argument], usage: str, *kinds: type) -> list[Argument]:
    if len(arguments) != len(kinds) or not all(map(isinstance, arguments, kinds)):
        raise ArgumentError(f"write {usage}")
    return list(arguments)


def quantile_level(level: float) -> float:
    """Check the level of a quantile, and return it.

    Raises:
        ArgumentError: it is not from 0 to 1.

    """
    if not 0 <= level <= 1:
        remedy = "write a level from 0 to 1: 0.95 for the 95th percentile"
        raise ArgumentError(f"{level:g} is not a level of a quantile", remedy)
    return level


def _periods(ends: Sequence[float]) -> None:
    """Check that each period ends after its start. ``ends`` alternates starts and ends."""
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        if begin >= end:
            problem = f"the period from {begin:g} to {end:g} s does not end after its start"
            raise ArgumentError(problem, "write the earlier time first, then the later one")


def _known(name: Argument, what: str, known: Iterable[str]) -> str:
    if name not in (all_ := list(known)):
        raise ArgumentError(f"there is no {what} {name}; {meant(str(name), all_)}")
    return str(name)


@dataclass(frozen=True)
class Statistic:
    """A statistic of a series that has one value per second."""

    of: Callable[[Sequence[float], float], float | None]
    """Computes the statistic from the values per second and a level, for example a threshold."""
    level: bool = False
    """Whether the statistic needs a level."""


def _first_above(values: Sequence[float], level: float) -> float | None:
    """Return how many seconds pass until the end of the first second whose value is above the level."""
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
    "quantile": Statistic(lambda values, level: float(np.quantile(values, level)), level=True),
    "first_above": Statistic(_first_above, level=True),
    "share_below": Statistic(lambda values, level: sum(v < level for v in values) / len(values), level=True),
    "longest_below": Statistic(_longest_below, level=True),
}
"""The statistics by name. In a formula, the level precedes the start and the end of the interval."""


@dataclass(frozen=True)
class Column:
    """A column of a table, restricted to some flows or links."""

    way: str
    """The kind of the series: "received", "sent" or "link"."""
    flow: str
    """The name of the flow or link. ``*`` matches any text."""
    name: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse ``received.FLOW.COLUMN``, ``sent.FLOW.COLUMN`` or ``link.LINK.COLUMN``."""
        way, _, rest = text.partition(".")
        flow, _, name = rest.rpartition(".")
        if way not in ("sent", "received", "link") or not flow:
            problem = f"{text} is not a series"
            raise ArgumentError(
                f"{problem}: write received.FLOW.COLUMN, sent.FLOW.COLUMN or link.LINK.COLUMN"
            )
        table = "links" if way == "link" else "rates"
        return cls(way, flow, _known(name, f"column of {table}", record.columns(table)))

    def __str__(self) -> str:
        return f"{self.way}.{self.flow}.{self.name}"

    def values(self, run: Run) -> dict[float, float]:
        """Return the values by second.

        If several flows or links match, rates (`_bps`) are added. In other columns, the largest value is used.
        """
        found: defaultdict[float, list[float]] = defaultdict(list)
        for at, value in self._links(run) if self.way == "link" else self._rates(run):
            if value is None and self.name == "throughput_bps":
                value = 0.0
            if value is not None:
                found[at].append(value)
        together: Callable[[list[float]], float] = sum if self.name.endswith("_bps") else max
        return {at: together(values) for at, values in found.items()}

    def _rates(self, run: Run) -> Iterator[tuple[float, float | None]]:
        rows = run.rates.to_polars().select("t_s", "flow", "node", self.name)
        sources: dict[str, str] = {}
        for at, flow, node, value in rows.iter_rows():
            # The source's row comes first, because a flow's source is listed before its receivers.
            source = sources.setdefault(flow, node)
            if fnmatchcase(flow, self.flow) and (node == source) == (self.way == "sent"):
                yield at, value

    def _links(self, run: Run) -> Iterator[tuple[float, float | None]]:
        rows = run.links.to_polars().select("t_s", "link", "direction", self.name)
        for at, link, direction, value in rows.iter_rows():
            if fnmatchcase(link, self.flow) and direction == "forward":
                yield at, value


@dataclass(frozen=True)
class Seconds:
    """A statistic of a series of values per second.

    Only seconds within one of the time windows count. A window includes its start FROM and excludes its end TO.

    The series is ``received.FLOW.COLUMN`` or ``sent.FLOW.COLUMN`` of the table ``rates``, ``link.LINK.COLUMN`` of the
    table ``links`` (forward), or the ratio of two such columns.

    ``*`` in FLOW or LINK matches any text. If several flows or links match, rates (`_bps`) are added. In other columns,
    the largest value is used.

    A missing `throughput_bps` counts as 0. Seconds in which another value is missing or the denominator is 0 are left
    out.
    """

    statistic: str
    level: float
    windows: tuple[float, ...]
    """Start and end of each window, in seconds."""
    columns: tuple[Column, ...]
    """One column, or the numerator and the denominator of a ratio."""

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse STATISTIC, its level if it needs one, FROM and TO of each window, and the series."""
        statistic = _known(arguments[0], "statistic", STATISTICS)
        level = STATISTICS[statistic].level
        usage = f"seconds({statistic}, {'LEVEL, ' * level}FROM, TO, received.FLOW.COLUMN)"
        windows = max(len(arguments) - 2 - level, 2)
        _, *numbers, series = _split(arguments, usage, str, *[float] * (windows + windows % 2 + level), str)
        values = tuple(map(float, numbers))
        if statistic == "quantile":
            quantile_level(values[0])
        _periods(values[level:])
        columns = tuple(map(Column.read, str(series).split(" / ")))
        return cls(statistic, values[0] if level else 0.0, values[level:], columns)

    @property
    def end(self) -> float:
        """The end of the last window, in seconds."""
        return max(self.windows[1::2])

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""
        level = (self.level,) if STATISTICS[self.statistic].level else ()
        numbers = ", ".join(f"{number:g}" for number in (*level, *self.windows))
        return f"seconds({self.statistic}, {numbers}, {' / '.join(map(str, self.columns))})"

    def value(self, run: Run) -> float | None:
        """Return the statistic for a run. Return `None` if the series has no values in the time windows."""
        found, *below = (column.values(run) for column in self.columns)
        for each in below:
            found = {at: value / each[at] for at, value in found.items() if each.get(at)}
        windows = list(zip(self.windows[::2], self.windows[1::2], strict=True))
        values = [found[at] for at in sorted(found) if any(begin <= at < end for begin, end in windows)]
        return STATISTICS[self.statistic].of(values, self.level) if values else None


@dataclass(frozen=True)
class Decisions:
    """A statistic of a sender's decisions whose rules match the pattern RULE, between FROM and TO seconds.

    - ``count``: the number of these decisions.
    - ``first``: when a matching rule applies for the first time, in seconds.
    - ``last``: when a matching rule ceases to apply for the last time, in seconds.
    - ``longest``: the longest interval in which matching rules apply, in seconds.
    """

    statistic: str
    rule: str
    begin: float
    end: float
    flow: str

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse STATISTIC, "RULE", FROM, TO and FLOW."""
        usage = 'decisions(STATISTIC, "RULE", FROM, TO, FLOW)'
        statistic, rule, begin, end, flow = _split(arguments, usage, str, Text, float, float, str)
        known = _known(statistic, "statistic", SPANS)
        _periods((float(begin), float(end)))
        return cls(known, str(rule), float(begin), float(end), str(flow))

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""
        return f'decisions({self.statistic}, "{self.rule}", {self.begin:g}, {self.end:g}, {self.flow})'

    def value(self, run: Run) -> float | None:
        """Return the statistic for a run. ``first`` and ``last`` have the value `None` if no matching rule applied."""
        table = run.decisions.to_polars()
        flows: dict[str, list[tuple[float, bool]]] = {}
        for at, flow, rule in table.select("t_s", "flow", "rule").iter_rows():
            if fnmatchcase(flow, self.flow) and rule != "report":
                flows.setdefault(flow, []).append((at, fnmatchcase(rule, self.rule)))
        if self.statistic == "count":
            return float(
                sum(fits for rows in flows.values() for at, fits in rows if self.begin <= at < self.end)
            )
        end = min(self.end, float(run.summary["to_s"]))
        spans = [span for rows in flows.values() for span in self._spans(rows, end)]
        if self.statistic == "longest":
            return max((end - begin for begin, end in spans), default=0.0)
        if not spans:
            return None
        return min(spans)[0] if self.statistic == "first" else max(end for _, end in spans)

    def _spans(self, rows: Sequence[tuple[float, bool]], end: float) -> list[tuple[float, float]]:
        """Return the start and the end of each time in which matching rules apply, between FROM and ``end``."""
        spans: list[tuple[float, float]] = []
        since: float | None = None
        for at, fits in [*rows, (end, False)]:
            if fits and since is None:
                since = at
            elif not fits and since is not None:
                spans.append((max(since, self.begin), min(at, end)))
                since = None
        return [(start, stop) for start, stop in spans if start < stop]


SPANS = ("count", "first", "last", "longest")


@dataclass(frozen=True)
class Arrived:
    """When a flow's receivers have received BYTES of IP packets, in seconds since the run's start.

    The time is interpolated between the rows of the table ``rates``. If the flow is TCP and has completed a fixed
    amount of data, the result is the time of the last acknowledgement.
    """

    amount: float
    flow: str

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse BYTES and FLOW."""
        amount, flow = _split(arguments, "arrived(BYTES, FLOW)", float, str)
        return cls(float(amount), str(flow))

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""
        return f"arrived({self.amount:g}, {self.flow})"

    def value(self, run: Run) -> float | None:
        """Return the time for the first matching flow. Return `None` if the flow does not receive that many bytes."""
        flow = next((each for each in run.summary["flows"] if fnmatchcase(each["name"], self.flow)), None)
        if flow is None or flow.get("completed_s") is not None:
            return None if flow is None else float(flow["completed_s"])
        rates = run.rates.to_polars()
        there = before = begin = 0.0
        nodes = [each["name"] for each in flow.get("receivers") or ()]
        found: defaultdict[float, float] = defaultdict(float)
        for at, name, node, bps in rates.select("t_s", "flow", "node", "throughput_bps").iter_rows():
            if name == flow["name"] and node in nodes:
                found[at] += bps or 0.0
        times = sorted(found)
        step = times[1] - times[0] if len(times) > 1 else 0.0
        for begin in times:
            before, there = there, there + found[begin] * step / 8
            if there >= self.amount:
                return begin + step * (self.amount - before) / (there - before)
        return None


@dataclass(frozen=True)
class Frames:
    """A statistic of the delay of video frames, in ms, for frames that were ready between FROM and TO seconds.

    The delay is measured from the end of the encoding to the arrival of the last packet. ``mean`` and ``max`` include
    all frames. ``arrived_p95`` is the 95th percentile of the frames that arrived.
    """

    statistic: str
    begin: float
    end: float
    flow: str

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse the statistic, FROM, TO and FLOW."""
        statistic, *ends, flow = _split(arguments, "frames(mean, FROM, TO, FLOW)", str, float, float, str)
        begin, end = map(float, ends)
        _periods((begin, end))
        return cls(_known(statistic, "statistic", ("mean", "max", "arrived_p95")), begin, end, str(flow))

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""
        return f"frames({self.statistic}, {self.begin:g}, {self.end:g}, {self.flow})"

    def value(self, run: Run) -> float | None:
        """Return the statistic for the first matching flow.

        "mean" and "max" are `None` if a frame did not arrive. "arrived_p95" ignores frames that did not arrive.
        """
        rows = run.frames.to_polars().select("flow", "ready_s", "delay_ms", "fate").rows()
        first = next((flow for flow, *_ in rows if fnmatchcase(flow, self.flow)), None)
        # Drop the delay of lost frames. The table has one for incomplete frames, too, up to the last packet that
        # arrived.
        delays: list[float | None] = [
            None if fate == "lost" else delay
            for flow, at, delay, fate in rows
            if flow == first and self.begin <= at < self.end
        ]
        there = [delay for delay in delays if delay is not None]
        if self.statistic == "arrived_p95":
            return float(np.percentile(there, 95)) if there else None
        if not there or len(there) < len(delays):
            return None
        return max(there) if self.statistic == "max" else sum(there) / len(there)


@dataclass(frozen=True)
class Rfc8868:
    """A measure of RFC 8868 for all videos of a run. See :mod:`steadycast.experiment.rfc8868`."""

    measure: str
    arguments: tuple[str | float, ...]
    """The names of bottlenecks for the measure "use", or the length of the windows in seconds."""

    @classmethod
    def read(cls, arguments: Sequence[Argument]) -> Self:
        """Parse the measure, and then its bottlenecks or the length of its windows."""
        measure = _known(arguments[0], "measure of RFC 8868", rfc8868.MEASURES)
        usage = f"rfc8868({measure}{rfc8868.MEASURES[measure].usage})"
        # Require at least one bottleneck for "use".
        kinds = [str] * (len(arguments) - 1 or 1) if measure == "use" else rfc8868.MEASURES[measure].kinds
        given = tuple(_split(arguments, usage, str, *kinds)[1:])
        if 0.0 in given:
            raise ArgumentError("windows of 0 s have no time in them", f"write {usage}, for example with 5 s")
        return cls(measure, given)

    @property
    def text(self) -> str:
        """The function call, as it is written in a formula."""
        told = (each if isinstance(each, str) else f"{each:g}" for each in self.arguments)
        return f"rfc8868({', '.join([self.measure, *told])})"

    def value(self, run: Run) -> float | None:
        """Return the measure for a run. Return `None` if there is no video, or if sending times are unknown."""
        facts = rfc8868.facts(run)
        return rfc8868.MEASURES[self.measure].of(facts, *self.arguments) if facts and facts.videos else None


FUNCTIONS: Mapping[str, type[Series]] = {
    "seconds": Seconds,
    "decisions": Decisions,
    "arrived": Arrived,
    "frames": Frames,
    "rfc8868": Rfc8868,
}
