"""Formulas over the figures of a run: paths of summary.json, numbers, + - * / ( ), and functions of several figures.

``*`` in a path stands for any name: ``flows.*.loss_frac`` means that figure of all flows, not of their receivers. Such
a path stands inside ``mean``, ``min``, ``max``, ``sum`` or ``jain``. An
operator needs a blank on both sides where it could be part of a name: ``a - b`` is a difference, ``a-b`` a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steadycast.errors import UserError, meant

Figures = Mapping[str, float | None]
"""The numbers of a run by their paths in summary.json; None where a run can't know one."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]))|(?P<path>[A-Za-z_][\w.*-]*)|(?P<sign>[-+*/(),]))"
)
_NAME = r"(?:(?!\.receivers\.|\.forward\.|\.back\.).)*"
"""The pattern of ``*``: the name of a flow, a receiver or a link, which may contain dots."""
_LEVELS: tuple[str, ...] = ("+-", "*/")


def _jain(values: Sequence[float]) -> float | None:
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else None


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float | None]] = {
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "sum": sum,
    "jain": _jain,
}


class UnknownError(Exception):
    """A figure has no value in this run."""


@dataclass(frozen=True)
class Formula:
    """A formula that was read, and can be evaluated with the figures of any run."""

    text: str
    paths: tuple[str, ...]
    """The paths that stand in it."""
    _value: Callable[[Figures], list[float]]

    @classmethod
    def read(cls, text: str, place: str) -> Formula:
        """Read a formula.

        Args:
            text: the formula.
            place: where it stands, for errors.

        Raises:
            UserError: it is no formula.

        """
        return _Reader(text, place).formula()

    def value(self, figures: Figures) -> float | None:
        """Return its value; None where a figure is not known, or the value is not a number."""
        try:
            [value] = self._value(figures)
        except (UnknownError, ZeroDivisionError, OverflowError):
            return None
        return value

    def check(self, names: Sequence[str], place: str) -> None:
        """Check that each path is a figure that the runs have.

        Raises:
            UserError: no run has a figure of this path.

        """
        for path in self.paths:
            if not _fitting(path, names):
                raise UserError(place, f"no run has the figure {path}", meant(path, names, cutoff=0.4))


class _Reader:
    """A recursive-descent reader of one formula."""

    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self._tokens = list(self._split())
        self._at = 0
        self._paths: list[str] = []

    def formula(self) -> Formula:
        value = self._sum(0)
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} is not expected here")
        return Formula(self._text, tuple(dict.fromkeys(self._paths)), _single(value, self._place, self._text))

    def _wrong(self, problem: str) -> UserError:
        remedy = 'write for example "flows.video.throughput_bps / flows.tcp.throughput_bps"'
        return UserError(self._place, f"{problem} ({self._text})", remedy)

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

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _sum(self, level: int) -> Callable[[Figures], list[float]]:
        if level == len(_LEVELS):
            return self._factor()
        left = self._sum(level + 1)
        while self._peek()[0] == "sign" and self._peek()[1] in _LEVELS[level]:
            sign = self._next()[1]
            left = _combined(sign, left, self._sum(level + 1))
        return left

    def _factor(self) -> Callable[[Figures], list[float]]:
        kind, word = self._next()
        if (kind, word) == ("sign", "-"):
            inner = self._factor()
            return lambda figures: [-value for value in inner(figures)]
        if (kind, word) == ("sign", "("):
            inner = self._sum(0)
            self._close()
            return inner
        if kind == "number":
            number = float(word)
            return lambda _: [number]
        if kind == "path":
            return self._called(word) if self._peek() == ("sign", "(") else self._path(word)
        raise self._wrong(f"{word!r} is not expected here")

    def _called(self, name: str) -> Callable[[Figures], list[float]]:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self._wrong(f"there is no function {name}; there are {', '.join(_FUNCTIONS)}")
        self._next()
        given = [self._sum(0)]
        while self._peek() == ("sign", ","):
            self._next()
            given.append(self._sum(0))
        self._close()

        def value(figures: Figures) -> list[float]:
            found = function([each for one in given for each in one(figures)])
            if found is None:
                raise UnknownError
            return [found]

        return value

    def _close(self) -> None:
        if self._next() != ("sign", ")"):
            raise self._wrong("a closing bracket is missing")

    def _path(self, path: str) -> Callable[[Figures], list[float]]:
        self._paths.append(path)

        def value(figures: Figures) -> list[float]:
            found = [figures[name] for name in _fitting(path, figures)]
            known = [each for each in found if each is not None]
            if not known or len(known) < len(found):
                raise UnknownError
            return known

        return value


def _combined(
    sign: str, left: Callable[[Figures], list[float]], right: Callable[[Figures], list[float]]
) -> Callable[[Figures], list[float]]:
    def value(figures: Figures) -> list[float]:
        [x], [y] = left(figures), right(figures)
        match sign:
            case "+":
                return [x + y]
            case "-":
                return [x - y]
            case "*":
                return [x * y]
            case _:
                return [x / y]

    return value


def _single(
    value: Callable[[Figures], list[float]], place: str, text: str
) -> Callable[[Figures], list[float]]:
    def checked(figures: Figures) -> list[float]:
        try:
            [one] = value(figures)
        except ValueError:
            remedy = "put the path with * into mean( ), min( ), max( ), sum( ) or jain( )"
            raise UserError(place, f"it has several values ({text})", remedy) from None
        return [one]

    return checked


def _fitting(path: str, names: Sequence[str] | Figures) -> list[str]:
    if "*" not in path:
        return [path] if path in names else []
    pattern = re.compile(_NAME.join(map(re.escape, path.split("*"))))
    return [name for name in names if pattern.fullmatch(name)]
