"""Formats numbers. They get their unit, three significant figures, and their spread over several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steadycast import record
from steadycast.folder import is_spread, number

NOTHING = "–"


def rate(value: object) -> str:
    """Format a rate in bit/s."""
    return _said(value, _rate)


def frac(value: object) -> str:
    """Format a fraction as a percentage."""
    return _said(value, _frac)


def ms(value: object) -> str:
    """Format milliseconds."""
    return _said(value, _ms)


def db(value: object) -> str:
    """Format decibels."""
    return _said(value, lambda x: f"{x:.1f} dB")


def score(value: object) -> str:
    """Format a mean opinion score."""
    return _said(value, lambda x: f"{x:.2f}")


def plain(value: object) -> str:
    """Format a number that has no unit."""
    return _said(value, figures)


def count(value: object) -> str:
    """Format a whole number."""
    return _said(value, lambda x: f"{x:,.0f}".replace(",", " ") if x == round(x) else figures(x))


def seconds(value: object) -> str:
    """Format seconds."""
    return _said(value, lambda x: f"{figures(x)} s")


def figures(x: float) -> str:
    """Format a number with three significant figures and without an exponent."""
    if x == 0:
        return "0"
    size = abs(x)
    if size >= 100:
        return f"{x:.0f}"
    if size >= 10:
        return f"{x:.1f}"
    if size >= 0.9995:
        return f"{x:.2f}"
    if size >= 0.001:
        return f"{x:.3f}".rstrip("0")
    return f"{x:.2g}"


def by_unit(path: str, of: str | None = None) -> Callable[[object], str]:
    """Return the function that formats the figure at ``path``.

    The path is one in summary.json, or in an object of the kind ``of``.
    """
    figure = record.at(path) if of is None else record.find(of, path)
    return how(figure) if figure is not None else plain


def how(figure: record.Figure) -> Callable[[object], str]:
    """Return the function that formats the values of a figure."""
    return _UNITS.get(figure.unit, plain)


def cells(columns: Sequence[record.Shown], thing: Mapping[str, Any]) -> list[str]:
    """Format the values of ``thing`` as the cells of a table row."""
    return [how(column.figure)(column.of(thing)) for column in columns]


def flow_cells(columns: Sequence[record.Shown], flow: Mapping[str, Any]) -> list[str]:
    """Format the values of a flow as the cells of a table row.

    For a figure of receivers, the value of the median receiver is used.
    """
    return [how(column.figure)(column.of_flow(flow)) for column in columns]


def listed(items: list[str]) -> str:
    """Join items with commas and "and", for example to "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def link(name: str, direction: str) -> str:
    """Return the name of one direction of a link. The forward direction has no suffix."""
    return name if direction == "forward" else f"{name}, {direction}"


def _said(value: object, how: Callable[[float], str]) -> str:
    x = number(value)
    if x is None:
        return NOTHING
    said = how(x)
    if not is_spread(value):
        return said
    assert isinstance(value, dict)
    half: float | None = value["ci95"]
    if half is None:
        return said
    # Give both numbers the unit of the mean, and two significant figures to the interval: "1.612 ± 0.041 Mb/s".
    figure, _, unit = said.partition(" ")
    steps = {"Gb/s": 1e9, "Mb/s": 1e6, "kb/s": 1e3, "%": 0.01, "s": 1e3 if how is _ms else 1.0}
    step = steps.get(unit, 1.0)
    if half <= abs(x) * 1e-9:
        return f"{figure} ± 0 {unit}".rstrip()
    decimals = min(4, max(0, 1 - math.floor(math.log10(half / step))))
    return f"{x / step:.{decimals}f} ± {half / step:.{decimals}f} {unit}".rstrip()


def _rate(x: float) -> str:
    for unit, step in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if abs(x) >= step * 0.9995:
            return f"{figures(x / step)} {unit}"
    return f"{figures(x)} b/s"


def _frac(x: float) -> str:
    per_cent = 100 * x
    if per_cent == 0 or abs(per_cent) >= 10:
        return f"{per_cent:.0f} %"
    return f"{per_cent:.1f} %" if abs(per_cent) >= 1 else f"{figures(per_cent)} %"


def _ms(x: float) -> str:
    return f"{figures(x / 1000)} s" if abs(x) >= 10_000 else f"{figures(x)} ms"


_UNITS: dict[str, Callable[[object], str]] = {
    "bit/s": rate,
    "bytes": lambda value: _said(value, lambda x: f"{figures(x / 1e6)} MB"),
    "share of 1": frac,
    "ms": ms,
    "s": seconds,
    "dB": db,
    "count": count,
    "1 to 5": score,
    "text": lambda value: value if isinstance(value, str) else NOTHING,
}
