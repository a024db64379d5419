"""Numbers that several families of statements take from their runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from papers.engine.experiment import Seen
from papers.engine.observe import Flow

Of = Callable[[Flow], float | None]
Measure = Callable[[Seen], float | None]


def of(variant: str, what: Of, flow: str = "video") -> Measure:
    """One variant's number; `None` where it has no such flow."""
    return lambda seen: what(seen[variant].flow(flow)) if seen[variant].has(flow) else None


def ratio(a: Measure, b: Measure) -> Measure:
    """How many times the other; `None` where either is missing or the other is 0."""

    def measure(seen: Seen) -> float | None:
        x, y = a(seen), b(seen)
        return None if x is None or not y else x / y

    return measure


def less(a: Measure, b: Measure) -> Measure:
    """By how much one exceeds the other."""

    def measure(seen: Seen) -> float | None:
        x, y = a(seen), b(seen)
        return None if x is None or y is None else x - y

    return measure


def more(high: str, low: str, what: Of, flow: str = "video") -> Measure:
    """By how much one variant's flow exceeds another's."""
    return less(of(high, what, flow), of(low, what, flow))


def times(high: str, low: str, what: Of, flow: str = "video") -> Measure:
    """How many times the other variant's."""
    return ratio(of(high, what, flow), of(low, what, flow))


def least(all: Iterable[Measure]) -> Measure:
    """Return the smallest of several: where that is above a bound, all are."""
    parts = tuple(all)

    def measure(seen: Seen) -> float | None:
        values = [m(seen) for m in parts]
        known = [v for v in values if v is not None]
        return min(known) if len(known) == len(values) else None

    return measure


def most(all: Iterable[Measure]) -> Measure:
    """Return the largest of several: where that is below a bound, all are."""
    parts = tuple(all)

    def measure(seen: Seen) -> float | None:
        values = [m(seen) for m in parts]
        known = [v for v in values if v is not None]
        return max(known) if len(known) == len(values) else None

    return measure


def mean(start: float, end: float, series: str = "rates") -> Of:
    """Mean of a series over a stretch of time."""
    return lambda flow: statistics.fmean(x) if (x := flow.between(series, start, end)) else None


def deviation(start: float, end: float, series: str = "rates") -> Of:
    """Coefficient of variation of a series over a stretch of time."""

    def what(flow: Flow) -> float | None:
        x = flow.between(series, start, end)
        return statistics.pstdev(x) / m if len(x) > 1 and (m := statistics.fmean(x)) > 0 else None

    return what


def lowest(start: float, end: float, series: str = "rates") -> Of:
    """Least value of a series over a stretch of time."""
    return lambda flow: min(flow.between(series, start, end), default=None)


def steepest(start: float, end: float, series: str = "rates") -> Of:
    """Largest change from one step to the next, up or down."""
    return lambda flow: max((abs(b - a) for a, b in pairwise(flow.between(series, start, end))), default=None)


def highest_rise(start: float, end: float, series: str = "rates") -> Of:
    """Largest rise from one step to the next."""
    return lambda flow: max((b - a for a, b in pairwise(flow.between(series, start, end))), default=None)


def after(start: float, end: float, holds: Callable[[float], bool], series: str = "rates") -> Of:
    """Seconds from `start` until a step keeps a condition; the whole stretch where none does."""

    def what(flow: Flow) -> float:
        for k, x in enumerate(flow.between(series, start, end)):
            if holds(x):
                return k * flow.step_s
        return end - start

    return what


def jain(rates: Iterable[float]) -> float:
    """Jain's index of some rates."""
    x = list(rates)
    squares = sum(v * v for v in x)
    return sum(x) ** 2 / (len(x) * squares) if squares > 0 else 1.0


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation; `None` where there is nothing to vary."""
    mean = statistics.fmean(values) if values else 0.0
    return statistics.pstdev(values) / mean if mean else None


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's, with ties sharing their mean rank; `None` where one side never changes."""

    def ranks(values: Sequence[float]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]

    try:
        return statistics.correlation(ranks(x), ranks(y))
    except statistics.StatisticsError:
        return None


def least_step(values: Sequence[float]) -> float:
    """Smallest difference between one value and the next: negative where they do not rise throughout."""
    return min(b - a for a, b in pairwise(values))
