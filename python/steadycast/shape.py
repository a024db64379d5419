"""The schema of the files in run folders. Files are checked when they are read.

`crates/record` declares summaries and tables. Unknown keys are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from steadycast.core import core
from steadycast.errors import UserError
from steadycast.lazy_import import pl

NUMBER, TEXT, FLAG, TEXTS, ANY = "a number", "a text", "true or false", "a list of texts", "anything"
LARGEST = 1e24
"""A number that is larger than this can't be a measurement."""


@dataclass(frozen=True)
class Object:
    """An object that has these keys. The keys in ``needed`` must be present and must not be null.

    The keys in ``filled`` may be absent, but must not be null.
    """

    keys: Mapping[str, Any]
    needed: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Each:
    """A list whose elements all have the same shape.

    If ``is_list`` is false, it is an object whose keys are arbitrary and whose values have this shape.
    """

    shape: Any
    is_list: bool = True


Shape = str | Object | Each

FILM: Shape = Object(
    {
        **dict.fromkeys(("flow", "receiver"), TEXT),
        **dict.fromkeys(("from_s", "to_s", "slots"), NUMBER),
        "frames": Object(
            dict.fromkeys(("ok", "late", "lost", "skipped", "undecodable"), NUMBER), frozenset({"ok"})
        ),
    },
    frozenset({"flow", "receiver", "from_s", "to_s", "slots", "frames"}),
)
"""Schema of `film.json`."""
JUDGED: Shape = Object(
    {"cells": Each(Object({"network": TEXT, "worst": Object({})}, frozenset({"network"})))}
)
"""Schema of the keys that are read from an earlier `judge.json`."""

_UNUSED: Shape = Each(Object({"reason": TEXT, "packets": NUMBER}, frozenset({"reason", "packets"})))
"""Schema of the packets that a receiver has discarded."""
_OF_UNITS = {"text": TEXT, "true or false": FLAG}
_LISTS = {
    ("run", "flows"): "flow",
    ("run", "links"): "link",
    ("run", "simulcasts"): "simulcast",
    ("run", "invariants"): "invariant",
    ("run", "expect"): "expectation",
    ("flow", "receivers"): "receiver",
    ("simulcast", "receivers"): "viewer",
}
"""Lists of objects in a summary: the object with the list, the list's key, and the kind of its elements.

The elements of other lists are texts.
"""
_NEEDED = {
    "flow": ("name", "kind"),
    "receiver": ("name",),
    "link": ("name", "direction"),
    "simulcast": ("name",),
    "viewer": ("name",),
    "invariant": ("id",),
    "expectation": ("that",),
}
_FILLED = {"run": ("from_s", "to_s", "warnings")}
"""Keys that must not be null if they are present. An interrupted run may lack them.

Lists are treated in the same way, but they are not mentioned here.
"""


@cache
def summary() -> Shape:
    """Return the schema of `summary.json` and `seeds.json`."""
    return _of("run")


@cache
def cost() -> Shape:
    """Return the schema of `cost.json`."""
    return _of("cost")


def _of(kind: str) -> Object:
    """Return the schema of an object of this kind, such as ``run``. It is built from the keys in `core.figures`."""
    keys: dict[str, Any] = {}
    for figure in core.figures():
        if figure["of"] != kind:
            continue
        below, (*way, last) = keys, figure["key"].split(".")
        for key in way:
            below = below.setdefault(key, {})
        below[last] = _of_figure(kind, figure)
    lists = [key for key, each in keys.items() if isinstance(each, Each) and each.is_list]
    return _object(keys, _NEEDED.get(kind, ()), [*lists, *_FILLED.get(kind, ())])


def _of_figure(kind: str, figure: Mapping[str, Any]) -> Shape:
    key, unit = figure["key"], figure["unit"]
    if key == "unused":
        return _UNUSED
    if unit == "list":
        of = _LISTS.get((kind, key))
        return Each(_of(of)) if of else TEXTS
    if figure["parts"]:
        return Object(dict.fromkeys(figure["parts"], NUMBER))
    return Each(NUMBER, is_list=False) if figure["by_flow"] else _OF_UNITS.get(unit, NUMBER)


def _object(keys: Mapping[str, Any], needed: Sequence[str] = (), filled: Sequence[str] = ()) -> Object:
    made = {key: _object(each) if isinstance(each, dict) else each for key, each in keys.items()}
    return Object(made, frozenset(needed), frozenset(filled))


def check(value: object, shape: Shape, place: object, remedy: str, *, several: bool = False) -> None:
    """Check a value that was read from a file.

    Args:
        value: the value.
        shape: the shape that the value must have.
        place: the name of the file for error messages.
        remedy: what to do if the file is damaged.
        several: whether the file summarises several seeds. Then a number may be an object with its mean and interval
            (`folder.spread`), and a text may be a list of texts.

    Raises:
        UserError: the value has another shape. The error mentions the file and the path to the value.

    """
    for path, what in _wrong(value, shape, "", several=several):
        raise UserError(f"{place}: {path}" if path else str(place), f"damaged: {what}", remedy)


def _wrong(value: object, shape: Shape, path: str, *, several: bool) -> Iterator[tuple[str, str]]:
    """Yield each place at which a value has the wrong shape, and a description of the problem."""
    if isinstance(shape, Each):
        kind = list if shape.is_list else dict
        if value is not None and not isinstance(value, kind):
            yield path, f"{_shown(value)} is not {'a list' if shape.is_list else 'an object'}"
            return
        inner = value.items() if isinstance(value, dict) else enumerate(value or ())
        for key, each in inner:
            if each is None and isinstance(shape.shape, Object):
                yield f"{path}[{key}]", "null is not an object"
            yield from _wrong(each, shape.shape, f"{path}[{key}]", several=several)
    elif isinstance(shape, Object):
        if value is None:
            return
        if not isinstance(value, dict):
            yield path, f"{_shown(value)} is not an object"
            return
        for key in sorted(shape.needed | shape.filled):
            if value.get(key) is None and (key in shape.needed or key in value):
                yield _below(path, key), "it is null" if key in value else "it is missing"
        for key, each in shape.keys.items():
            # What identifies an object is the same with each seed, so it is no list.
            varies = several and key not in shape.needed
            yield from _wrong(value.get(key), each, _below(path, key), several=varies)
    elif value is not None and not _fits(value, shape, several=several):
        yield path, f"{_shown(value)} is not {shape}"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _fits(value: object, shape: str, *, several: bool) -> bool:
    if several and isinstance(value, list):
        return all(
            each is None or _fits(each, shape if shape != TEXTS else TEXT, several=False) for each in value
        )
    if shape == NUMBER:
        if several and isinstance(value, dict):
            return all(each is None or _is_number(each) for each in value.values())
        return _is_number(value)
    if shape == TEXTS:
        return isinstance(value, list) and all(_fits(each, TEXT, several=False) for each in value)
    if shape == TEXT and isinstance(value, str):
        return not any("\ud800" <= each <= "\udfff" for each in value)  # a lone surrogate can't be encoded
    return isinstance(value, {TEXT: str, FLAG: bool}.get(shape, object))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST and math.isfinite(value)


def _shown(value: object) -> str:
    text = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 40


OPTIONAL = {("frames", "clip_frame"), ("packets", "stream")}
"""Columns that a table may lack.

A frame table has no `clip_frame` if there is no clip. Older tables of packets have no `stream`.
"""


def table_problem(table: str, found: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the columns of a table, or `None` if they are right.

    The keys of ``found`` are names of columns, the values are their types.
    """
    for column in core.columns():
        if column["table"] != table or column["measured"]:
            continue
        kind = found.get(column["name"])
        if kind is None and (table, column["name"]) in OPTIONAL:
            continue
        if kind is None:
            return f"there is no column {column['name']}"
        is_text = str(kind) in ("String", "Categorical", "Enum")
        if str(kind) != "Null" and is_text != (column["unit"] == "text"):
            return f"the column {column['name']} holds {kind}"
        if not is_text and not (kind.is_numeric() or str(kind) in ("Boolean", "Null")):
            return f"the column {column['name']} holds {kind}"
    return None


def value_problem(table: str, found: pl.DataFrame) -> str | None:
    """Describe the first value of a table that no measurement can have. `None`: all values are possible.

    A writer stores an absent value as null. NaN, infinity and numbers beyond `LARGEST` therefore mean that
    the table is damaged.
    """
    declared = {column["name"] for column in core.columns() if column["table"] == table}
    for series in found:
        if series.name not in declared or not series.dtype.is_float():
            continue
        # Polars treats NaN as larger than any number.
        wrong = (series.abs() > LARGEST).arg_true()
        if len(wrong):
            row = int(wrong[0])
            return f"the column {series.name} holds {series[row]:g} in row {row + 1}"
    return None
