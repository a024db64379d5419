"""Numbers that statements are made of: one per seed, from what its runs showed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from steadycast.reproduce.experiment import Seen
from steadycast.reproduce.observe import Flow

Measure = Callable[[Seen], float | None]


def of(variant: str, what: Callable[[Flow], float | None], flow: str = "video") -> Measure:
    """Of one variant's flow; `None` where it has no such flow."""
    return lambda seen: what(seen[variant].flow(flow)) if seen[variant].has(flow) else None


def more(high: str, low: str, what: Callable[[Flow], float | None], flow: str = "video") -> Measure:
    """By how much one variant's flow exceeds another's."""

    def measure(seen: Seen) -> float | None:
        a, b = what(seen[high].flow(flow)), what(seen[low].flow(flow))
        return None if a is None or b is None else a - b

    return measure


def times(high: str, low: str, what: Callable[[Flow], float | None], flow: str = "video") -> Measure:
    """How many times the other variant's."""

    def measure(seen: Seen) -> float | None:
        a, b = what(seen[high].flow(flow)), what(seen[low].flow(flow))
        return a / b if a is not None and b else None

    return measure


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
