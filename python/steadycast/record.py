"""The figures (numbers) and table columns in the record of a run, as `crates/record` declares them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steadycast.core import core
from steadycast.folder import Json, is_spread, number


@dataclass(frozen=True)
class Figure:
    """One key of `summary.json` or `cost.json`."""

    of: str
    """The kind of object that the figure describes: run, flow, receiver, link, simulcast, viewer and so on."""
    key: str
    """Path of the figure in the object. Its keys are separated by dots."""
    parts: tuple[str, ...]
    """Keys below the figure's key. A distribution has for example p50, p95, p99 and max."""
    by_flow: bool
    """Whether the keys below the figure's key are the names of flows."""
    unit: str
    about: str
    short: str | None
    """Heading of the figure in tables, and its term in the glossary."""
    better: str | None
    """Whether "higher" or "lower" values are better. `None` if neither is better in general."""
    when: str
    """Which objects have the figure, in words. The text is empty if all of them have it."""
    shown: tuple[tuple[str, str], ...]
    """The tables that show the figure. Each table's name comes with the part of the figure that it shows."""

    def is_at(self, path: str) -> bool:
        """Whether ``path`` is the path of this figure or of one of its parts.

        The path starts at the described object.
        """
        if not self.parts and not self.by_flow:
            return path == self.key
        head, _, part = path.rpartition(".")
        return path.startswith(self.key + ".") if self.by_flow else head == self.key and part in self.parts


@dataclass(frozen=True)
class Shown:
    """A figure, or one of its parts, that is shown in a table of results."""

    figure: Figure
    part: str

    @property
    def heading(self) -> str:
        """Heading of the figure, followed by the name of the part."""
        return f"{self.figure.short} {self.part}".rstrip()

    def of(self, thing: Mapping[str, Any]) -> Any:
        """Return the value of the figure in the described object, or `None` if the object has no value."""
        return reach(thing, *self.figure.key.split("."), *filter(None, [self.part]))

    def of_flow(self, flow: Mapping[str, Any]) -> Any:
        """Return the value for a flow.

        If the figure describes receivers, it is the value of the median receiver.
        """
        return self.of(flow) if self.figure.of == "flow" else middle(self.of(r) for r in _receivers(flow))


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    table: str
    name: str
    unit: str
    about: str
    measured: bool
    """Whether the values are measured on decoded pictures. They are null if no pictures were decoded."""


FIGURES: tuple[Figure, ...] = tuple(
    Figure(**{**f, "parts": tuple(f["parts"]), "shown": tuple(f["shown"])}) for f in core.figures()
)
FREEZES: tuple[str, ...] = tuple(json.loads(core.freezes([], [])))
"""Keys of a receiver's figures that describe freezes."""
COLUMNS: tuple[Column, ...] = tuple(Column(**c) for c in core.columns())


def table(name: str) -> list[Shown]:
    """Return the figures that the table ``name`` shows, in the order of its columns."""
    return [Shown(f, part) for f in FIGURES for where, part in f.shown if where == name]


def columns(name: str, *, measured: bool = False) -> list[str]:
    """Return the names of a table's columns. Only columns are returned whose `Column.measured` equals ``measured``."""
    return [c.name for c in COLUMNS if c.table == name and c.measured == measured]


def find(of: str, path: str) -> Figure | None:
    """Return the figure at ``path`` in an object of the kind ``of``, or `None` if there is no such figure."""
    return next((f for f in FIGURES if f.of == of and f.is_at(path)), None)


def figure(of: str, path: str) -> Figure:
    """Return the figure at ``path`` in an object of the kind ``of``.

    Raises:
        KeyError: there is no such figure in `crates/record/src/figures.rs`.

    """
    found = find(of, path)
    if found is None:
        raise KeyError(f"no figure {path!r} of a {of}: crates/record/src/figures.rs lists them")
    return found


def at(path: str) -> Figure | None:
    """Return the figure at a path in the summary, such as `flows.video.receivers.video.dst1.delay_ms.p95`."""
    head, _, rest = path.partition(".")
    within = "receivers" in rest.split(".")[1:]
    of = {
        "flows": "receiver" if within else "flow",
        "simulcasts": "viewer" if within else "simulcast",
        "links": "link",
        "invariants": "invariant",
    }.get(head)
    if of is None:
        return find("run", path)
    # The name of a flow may contain dots. So try each possible end of the name.
    keys = rest.split(".")
    return next((f for n in range(1, len(keys)) if (f := find(of, ".".join(keys[n:])))), None)


def needs_pictures(path: str) -> bool:
    """Return whether the figure at a path in the summary exists only if pictures are measured. VMAF is left out."""
    found = at(path)
    return found is not None and found.when.endswith("when pictures are measured") and found.key != "vmaf"


def put(thing: Json, of: str, values: Mapping[str, Any]) -> None:
    """Write figures into the object that they describe. The keys of ``values`` are paths in this object.

    Raises:
        KeyError: no such figure is declared.

    """
    for path, value in values.items():
        figure(of, path)
        *way, last = path.split(".")
        below = thing
        for key in way:
            if not isinstance(below.get(key), dict):
                below[key] = {}
            below = below[key]
        below[last] = value


def put_unknown(receiver: Json, paths: Iterable[str]) -> None:
    """Write null for unknown figures of a receiver. It is written at the first key of each figure's path."""
    for path in paths:
        receiver[figure("receiver", path).key.partition(".")[0]] = None


def reach(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, or `None` if the value has no such path."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def median(values: Sequence[float]) -> float | None:
    """Return the median, or `None` if there are no values.

    For an even number of values, it is the mean of the middle two.
    """
    return core.median(list(values))


def middle(values: Iterable[Any]) -> Any:
    """Return the median, or `None` if there are no values.

    The values are numbers, or results of `folder.spread`, which are sorted by their means.
    """
    known = [v for v in values if number(v) is not None]
    if not any(is_spread(v) for v in known):
        return median([float(v) for v in known])
    known.sort(key=lambda v: number(v) or 0.0)
    two = known[(len(known) - 1) // 2 : len(known) // 2 + 1]
    if len(two) == 1 or not all(is_spread(v) for v in two):
        return two[-1]
    parts = {key: [v[key] for v in two if v[key] is not None] for key in two[0]}
    return {key: sum(each) / len(each) if each else None for key, each in parts.items()}


def of_flow(flow: Mapping[str, Any], path: str) -> float | None:
    """Return the value of a figure at the median receiver of a flow. ``path`` is the figure's path in the receiver."""
    figure("receiver", path)
    return number(middle(reach(r, *path.split(".")) for r in _receivers(flow)))


def _receivers(flow: Mapping[str, Any]) -> list[Json]:
    return flow.get("receivers") or []
