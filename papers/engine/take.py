"""Combinators that compute one number from several numbers of a statement, each with a name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from steadycast.errors import UserError

from papers.engine.quantity import Seen, Term

Numbers = Sequence[float]


@dataclass(frozen=True)
class Combinator:
    """A function of one or more rows of numbers, and optionally of the x values at which they were measured."""

    name: str
    of: Callable[[Sequence[Numbers], Numbers], float | None]
    rows: int | None = 1
    """Number of rows; `None`: one or more."""
    length: int | None = None
    """Length of each row; `None`: one or more."""
    over: bool = False
    """Whether the function needs the x values, one for each number of a row."""


@dataclass(frozen=True)
class Take:
    """A combinator with its arguments, which are numbers from runs or constants."""

    name: str
    rows: tuple[tuple[Term | float, ...], ...] = ()
    over: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        known = COMBINATORS.get(self.name)
        if known is None:
            raise UserError(self.name, "there is no such combinator", f"there are: {', '.join(COMBINATORS)}")
        lengths = [len(row) for row in self.rows]
        if known.rows is not None and len(lengths) != known.rows:
            raise UserError(self.name, f"{len(lengths)} lists of numbers", f"it takes {known.rows}")
        if known.length is not None and any(n != known.length for n in lengths):
            raise UserError(self.name, f"{lengths[0]} numbers", f"it takes {known.length}")
        if known.rows != 0 and not all(lengths):
            raise UserError(self.name, "no numbers", "name what it is taken of")
        if len(set(lengths)) > 1:
            raise UserError(self.name, "lists of different lengths", "make them as long as each other")
        if bool(self.over) != known.over or (self.over and len(self.over) != lengths[0]):
            wanted = "one x for each number" if known.over else "no x"
            raise UserError(self.name, f"{len(self.over)} values to be over", f"it takes {wanted}")

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants whose runs are needed, each once."""
        terms = (each for row in self.rows for each in row if isinstance(each, Term))
        return tuple(dict.fromkeys(t.variant for t in terms))

    def __call__(self, seen: Seen) -> float | None:
        """Compute the number from the runs of one seed; `None` if one of its parts is missing."""
        rows = [[part(seen) if isinstance(part, Term) else part for part in row] for row in self.rows]
        known = [[x for x in row if x is not None] for row in rows]
        if any(len(a) != len(b) for a, b in zip(rows, known, strict=True)):
            return None
        return COMBINATORS[self.name].of(known, self.over)


# ---------------------------------------------------------------- shared


def rank_correlation(x: Numbers, y: Numbers) -> float | None:
    """Return Spearman's rank correlation, with mean ranks for ties; `None` if one side is constant."""

    def ranks(values: Numbers) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]

    try:
        return statistics.correlation(ranks(x), ranks(y))
    except statistics.StatisticsError:
        return None


def least_step(values: Numbers) -> float:
    """Return the smallest difference between consecutive values. It is negative if the values decrease anywhere."""
    return min(b - a for a, b in pairwise(values))


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _slope(x: Numbers, y: Numbers) -> float:
    return statistics.linear_regression(x, y).slope


def _relative_step(values: Numbers) -> float | None:
    return least_step(values) / values[0] if values[0] else None


def _least_excess(a: Numbers, b: Numbers) -> float:
    """Return the smallest difference a − b over the pairs with a value above 2 %; 0 if there is no such pair."""
    return min((x - y for x, y in zip(a, b, strict=True) if max(x, y) > 0.02), default=0.0)


def _bend(x: Numbers, y: Numbers) -> float | None:
    return _ratio((y[2] - y[1]) / (x[2] - x[1]), (y[1] - y[0]) / (x[1] - x[0]))


# ---------------------------------------------------------------- combinators for one paper


TABLE_1 = {5: (21.4, 313.47), 10: (22.05, 215.12), 15: (23.75, 163.07), 20: (29.15, 115.06)}
"""The receiver-buffer paper's table 1: error rate in per cent → round-trip time in ms, packets per second."""


def eq_2(rtt_ms: float, p: float) -> float:
    """Return the rate in packets per second by the receiver-buffer paper's eq. 2, with k = 1.5 (the paper: 1,502)."""
    return 1.5 / (rtt_ms / 1e3 * math.sqrt(p))


def table_1_rate(p: int, rtt_ms: float) -> float:
    """Return the rate of table 1 in packets per second for an error rate in per cent."""
    return eq_2(rtt_ms, p / 100)


def _table_1() -> float:
    return max(abs(table_1_rate(p, rtt) / rate - 1.0) for p, (rtt, rate) in TABLE_1.items())


# ---------------------------------------------------------------- the list


_ALL = (
    Combinator("none", lambda r, x: None, 0),
    Combinator("value", lambda r, x: r[0][0], length=1),
    Combinator("ratio", lambda r, x: _ratio(*r[0]), length=2),
    Combinator("difference", lambda r, x: r[0][0] - r[0][1], length=2),
    Combinator("rate by eq. 2", lambda r, x: eq_2(r[0][0], r[0][1]), length=2),
    Combinator("ratio of ratios", lambda r, x: _ratio(r[0][0] / r[0][1], r[0][2] / r[0][3]), length=4),
    Combinator("excess over three times", lambda r, x: r[0][0] - 3.0 * r[0][1], length=2),
    Combinator("excess over five times", lambda r, x: r[0][0] - 5.0 * r[0][1], length=2),
    Combinator("missing beyond", lambda r, x: (r[0][0] - r[0][1]) / r[0][0] - r[0][2], length=3),
    Combinator("median", lambda r, x: statistics.median(r[0])),
    Combinator("difference of medians", lambda r, x: statistics.median(r[0]) - statistics.median(r[1]), 2),
    Combinator("less the least", lambda r, x: r[0][0] - min(r[0][1:])),
    Combinator("least step", lambda r, x: min(least_step(row) for row in r), None),
    Combinator("least fall", lambda r, x: min(least_step([-y for y in row]) for row in r), None),
    Combinator("least relative step", lambda r, x: _relative_step(r[0])),
    Combinator("least difference", lambda r, x: min(a - b for a, b in zip(*r, strict=True)), 2),
    Combinator("largest difference", lambda r, x: max(a - b for a, b in zip(*r, strict=True)), 2),
    Combinator("least ratio", lambda r, x: min(a / b for a, b in zip(*r, strict=True)), 2),
    Combinator("largest ratio", lambda r, x: max(a / b for a, b in zip(*r, strict=True)), 2),
    Combinator("least excess", lambda r, x: _least_excess(*r), 2),
    # A constant series has no trend.
    Combinator("rank correlation", lambda r, x: rank_correlation(x, r[0]) or 0.0, over=True),
    Combinator("R² of a line", lambda r, x: statistics.correlation(x, r[0]) ** 2, over=True),
    Combinator("difference of slopes", lambda r, x: _slope(x, r[0]) - _slope(x, r[1]), 2, over=True),
    Combinator("bend", lambda r, x: _bend(x, r[0]), length=3, over=True),
    Combinator("table 1 by eq. 2", lambda r, x: _table_1(), 0),
)
COMBINATORS = {each.name: each for each in _ALL}
