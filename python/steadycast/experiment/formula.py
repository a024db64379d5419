"""Formulas that are computed from the figures of a run.

A formula consists of paths of summary.json, numbers, ``+ - * / ( )``, comparisons (which are 1 or 0) and functions.

``*`` in a path matches any name. For example, ``flows.*.loss_frac`` is the loss of each flow, but not of its receivers.
Such a path must be an argument of a function such as ``mean``. An operator that could be part of a name needs spaces:
``a - b`` is a difference, but ``a-b`` is a name.

``in("NAME", FORMULA)`` is the formula's value in the run of another variant or scenario with the same seed. The
functions of `FUNCTIONS` are computed from a run's tables: see :mod:`steadycast.experiment.series`.
"""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from steadycast import record
from steadycast.errors import UserError, meant
from steadycast.experiment.series import FUNCTIONS, Argument, ArgumentError, Series, Text, quantile_level
from steadycast.shape import LARGEST

Figures = Mapping[str, float | None]
"""A run's numbers, by their paths in summary.json. A value is `None` if the summary has no number there."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]))|(?P<path>[A-Za-z_][\w.*-]*)"
    r'|"(?P<text>[^"]*)"|(?P<sign>[<>]=|[-+*/(),<>]))'
)
_NAME = r"(?:(?!\.receivers\.|\.forward\.|\.back\.).)*"
"""Pattern for ``*``, which matches the name of a flow, a receiver or a link. Such a name may contain dots."""


class UnknownError(Exception):
    """The formula contains a figure that has no value in this run."""


@dataclass(frozen=True)
class Context:
    """The run for which a formula is evaluated, and access to other runs."""

    figures: Figures
    other: Callable[[str], Context | None] = field(default=lambda _: None)
    """Returns the run of another variant or scenario. Returns `None` if this run failed or does not exist."""


_SHOWN = 40
"""Number of characters of a long formula that an error shows."""

_Values = Callable[[Context], list[float]]


def _jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def quantile(values: Sequence[float], part: float) -> float:
    """Return the quantile of the values for the fraction ``part``, without interpolation."""
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "sum": sum,
    "jain": _jain,
    "count": len,
    "median": statistics.median,
    "quantile": lambda values: quantile(values[1:], values[0]),
    "abs": lambda values: abs(_one(values)),
    "sqrt": lambda values: math.sqrt(_one(values)),
    "log2": lambda values: math.log2(_one(values)),
    "round": lambda values: float(round(_one(values))),
    "floor": lambda values: float(math.floor(_one(values))),
}
_OPERATORS: tuple[dict[str, Callable[[float, float], float]], ...] = (
    {
        ">=": lambda a, b: float(a >= b),
        "<=": lambda a, b: float(a <= b),
        ">": lambda a, b: float(a > b),
        "<": lambda a, b: float(a < b),
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv},
)
"""Operators in ascending order of precedence."""


def _one(values: Sequence[float]) -> float:
    if len(values) != 1:
        raise UnknownError
    return values[0]


@dataclass(frozen=True)
class Formula:
    """A parsed formula, which can be evaluated with the figures of any run."""

    text: str
    paths: tuple[str, ...]
    """The paths in the formula. Paths inside ``in( )`` are left out, because they may exist only in other scenarios."""
    names: tuple[str, ...]
    """Names of other variants and scenarios to which the formula refers."""
    calls: tuple[tuple[tuple[str, ...], Series], ...]
    """The functions in the formula that are computed from a run's tables.

    Each has the names of the ``in( )`` that enclose it, the outermost first. It is computed for the run that they name.
    """
    _value: _Values

    @property
    def series(self) -> tuple[Series, ...]:
        """The functions in the formula that are computed from a run's tables."""
        return tuple(dict.fromkeys(series for _, series in self.calls))

    @classmethod
    def read(cls, text: str, place: str) -> Formula:
        """Parse a formula.

        Args:
            text: the formula.
            place: where it is written, for errors.

        Raises:
            UserError: the text is not a valid formula.

        """
        reader = _Reader(text, place)
        try:
            return reader.formula()
        except RecursionError:
            raise reader.too_deep() from None

    def value(self, figures: Figures | Context) -> float | None:
        """Return the formula's value.

        Return `None` if a figure is unknown, or if the result is not a number that a measurement can have.
        """
        context = figures if isinstance(figures, Context) else Context(figures)
        try:
            [value] = self._value(context)
        except (UnknownError, ZeroDivisionError, OverflowError):
            return None
        return value if abs(value) <= LARGEST else None

    def check(self, names: Sequence[str], place: str) -> None:
        """Check that each path of the formula matches a name in ``names``, the figures of the runs.

        Raises:
            UserError: no run has a figure with this path.

        """
        for path in self.paths:
            if _fitting(path, names):
                continue
            if record.needs_pictures(path):
                remedy = "use rate_score, or make the runs with steadycast sweep --pixels"
                raise UserError(place, f"experiments do not measure pictures, so no run has {path}", remedy)
            raise UserError(place, f"no run has the figure {path}", meant(path, names, cutoff=0.4))


class _Reader:
    """Parses one formula by recursive descent."""

    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self._tokens = list(self._split())
        self._at = 0
        self._paths: list[str] = []
        self._names: list[str] = []
        self._calls: list[tuple[tuple[str, ...], Series]] = []
        self._within: list[str] = []

    def formula(self) -> Formula:
        value = self._binary(0)
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} is not expected here")
        return Formula(
            self._text,
            tuple(dict.fromkeys(self._paths)),
            tuple(dict.fromkeys(self._names)),
            tuple(dict.fromkeys(self._calls)),
            self._whole(value),
        )

    def too_deep(self) -> UserError:
        """Return the error about a formula whose parts are nested deeper than this Python can follow."""
        start = f"{self._text[:_SHOWN]}…"
        return UserError(self._place, f"the formula is nested too deep ({start})", "divide it into variables")

    def _whole(self, value: _Values) -> _Values:
        single = self._single(value)

        def whole(run: Context) -> list[float]:
            try:
                return single(run)
            except RecursionError:
                raise self.too_deep() from None

        return whole

    def _wrong(self, problem: str, remedy: str | None = None) -> UserError:
        example = 'write for example "flows.video.throughput_bps / flows.tcp.throughput_bps"'
        return UserError(self._place, f"{problem} ({self._text})", remedy or example)

    def _split(self) -> Iterator[tuple[str, str]]:
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._wrong(f"{self._text[at:].strip()[0]!r} has no meaning in a formula")
            at = found.end()
            kind = str(found.lastgroup)
            yield kind, found[kind]

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _next(self, *kinds: str) -> tuple[str, str]:
        token = self._peek()
        if kinds and token[0] not in kinds:
            raise self._wrong(f"{token[1]!r} is not expected here")
        self._at += 1
        return token

    def _sign(self, sign: str) -> None:
        if self._next() != ("sign", sign):
            missing = "a closing bracket" if sign == ")" else repr(sign)
            raise self._wrong(f"{missing} is missing")

    def _binary(self, level: int) -> _Values:
        if level == len(_OPERATORS):
            return self._factor()
        left = self._binary(level + 1)
        while self._peek()[0] == "sign" and self._peek()[1] in _OPERATORS[level]:
            apply = _OPERATORS[level][self._next()[1]]
            left = _combined(apply, self._single(left), self._single(self._binary(level + 1)))
        return left

    def _factor(self) -> _Values:
        kind, word = self._next()
        if (kind, word) == ("sign", "-"):
            inner = self._factor()
            return lambda run: [-value for value in inner(run)]
        if (kind, word) == ("sign", "("):
            inner = self._binary(0)
            self._sign(")")
            return inner
        if kind == "number":
            number = float(word)
            if not math.isfinite(number):
                raise self._wrong(f"{word} is too large", "write a smaller number")
            return lambda _: [number]
        if kind == "path":
            return self._called(word) if self._peek() == ("sign", "(") else self._path(word)
        raise self._wrong(f"{word!r} is not expected here")

    def _called(self, name: str) -> _Values:
        self._next()
        if name == "in":
            return self._elsewhere()
        if name in FUNCTIONS:
            return self._of_series(name)
        given = [self._binary(0)]
        while self._peek() == ("sign", ","):
            self._next()
            given.append(self._binary(0))
        self._sign(")")
        if name == "if":
            return self._chosen(given)
        if name == "first":
            return self._first(given)
        function = _FUNCTIONS.get(name)
        if function is None:
            known = [*_FUNCTIONS, "if", "first", "in", *FUNCTIONS]
            raise self._wrong(f"there is no function {name}; there are {', '.join(known)}")
        if name == "quantile":
            given[0] = self._level(given[0])
        return lambda run: [_applied(function, [each for one in given for each in one(run)])]

    def _level(self, given: _Values) -> _Values:
        single = self._single(given)

        def value(run: Context) -> list[float]:
            try:
                return [quantile_level(*single(run))]
            except ArgumentError as error:
                raise self._wrong(str(error), error.remedy) from None

        with suppress(UnknownError, ZeroDivisionError, OverflowError):
            value(Context({}))  # refuses a wrong level before the first run if the level depends on no run
        return value

    def _chosen(self, given: list[_Values]) -> _Values:
        if len(given) != 3:
            raise self._wrong("if( ) has a condition and two values")
        condition, then, otherwise = map(self._single, given)
        return lambda run: then(run) if condition(run)[0] else otherwise(run)

    def _first(self, given: list[_Values]) -> _Values:
        values = [self._single(each) for each in given]

        def value(run: Context) -> list[float]:
            for each in values:
                with suppress(UnknownError, ZeroDivisionError, OverflowError):
                    return each(run)
            raise UnknownError

        return value

    def _elsewhere(self) -> _Values:
        _, name = self._next("text")
        self._sign(",")
        before = len(self._paths)
        self._within.append(name)
        inner = self._binary(0)
        self._within.pop()
        del self._paths[before:]
        self._sign(")")
        self._names.append(name)

        def value(run: Context) -> list[float]:
            there = run.other(name)
            if there is None:
                raise UnknownError
            return inner(there)

        return value

    def _of_series(self, name: str) -> _Values:
        arguments: list[Argument] = []
        while True:
            kind, word = self._next("number", "path", "text")
            if kind == "path" and self._peek() == ("sign", "/"):
                self._next()
                word += f" / {self._next('path')[1]}"
            arguments.append(float(word) if kind == "number" else Text(word) if kind == "text" else word)
            if self._next() != ("sign", ","):
                self._at -= 1
                break
        self._sign(")")
        try:
            one = FUNCTIONS[name].read(arguments)
        except ArgumentError as error:
            raise self._wrong(str(error), error.remedy) from None
        self._calls.append((tuple(self._within), one))
        return lambda run: [_known(run.figures.get(one.text))]

    def _path(self, path: str) -> _Values:
        self._paths.append(path)
        return lambda run: [_known(run.figures[name]) for name in _fitting(path, run.figures)] or _unknown()

    def _single(self, value: _Values) -> _Values:
        place, text = self._place, self._text

        def checked(run: Context) -> list[float]:
            values = value(run)
            if len(values) != 1:
                remedy = (
                    "put the path with * into mean( ), min( ), max( ), sum( ), jain( ) or another function"
                )
                raise UserError(place, f"it has several values ({text})", remedy)
            return values

        return checked


def _applied(function: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    try:
        return _finite(float(function(values)))
    except (ValueError, IndexError):  # for example, the square root of a negative number
        raise UnknownError from None


def _finite(value: float) -> float:
    """Return a value. Raise `UnknownError` if it is too large for a number of the machine."""
    if not math.isfinite(value):
        raise UnknownError
    return value


def _known(value: float | None) -> float:
    if value is None:
        raise UnknownError
    return value


def _unknown() -> list[float]:
    raise UnknownError


def _combined(apply: Callable[[float, float], float], left: _Values, right: _Values) -> _Values:
    return lambda run: [_finite(apply(left(run)[0], right(run)[0]))]


def _fitting(path: str, names: Sequence[str] | Figures) -> list[str]:
    if "*" not in path:
        return [path] if path in names else []
    pattern = re.compile(_NAME.join(map(re.escape, path.split("*"))))
    return [name for name in names if pattern.fullmatch(name)]
