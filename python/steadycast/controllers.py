"""The registry of controllers, as the core tells it: names, looks, parameters with units and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from steadycast.errors import UserError


@dataclass(frozen=True)
class Parameter:
    """One parameter: numbers are plain, spans and rates are texts with their unit."""

    name: str
    about: str
    source: str
    kind: str
    default: object
    paper: object
    min: object = None
    max: object = None
    of: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """What it may be, in a few characters."""
        if self.of:
            return " | ".join(self.of)
        if self.kind == "switch":
            return "true | false"
        if self.min is None and self.max is None:
            return ""
        return f"{text(self.min)} … {text(self.max)}"


@dataclass(frozen=True)
class Controller:
    """One entry of the registry."""

    name: str
    about: str
    when: str
    """When to take it."""
    source: str
    cast: str
    feedback: str
    needs: tuple[tuple[str, str], ...]
    """What it cannot do without, by name, and what that is."""
    colour: str
    dashes: tuple[float, ...]
    params: tuple[Parameter, ...]
    promises: tuple[tuple[str, str], ...]
    """What is checked as it runs, by name, and what that is."""


def text(value: object) -> str:
    """Parameter's value as one would write it in a scenario."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


@cache
def registry(*, quiet: bool = False) -> tuple[Controller, ...]:
    """All controllers.

    `quiet` gives none instead of an error where the compiled module is absent (a report needs only looks).
    """
    try:
        from steadycast.core import core

        entries = core.controllers()
    except UserError:
        if quiet:
            return ()
        raise
    return tuple(_controller(entry) for entry in entries)


def controllers() -> tuple[Controller, ...]:
    """All controllers that a scenario can name, with their parameters."""
    return registry()


def find(name: str) -> Controller:
    """Find the controller called `name`."""
    import difflib

    entries = registry()
    for entry in entries:
        if entry.name == name:
            return entry
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(names)}"
    raise UserError(name, "no such controller", remedy)


def _controller(entry: dict[str, Any]) -> Controller:
    return Controller(
        name=entry["name"],
        about=entry["about"],
        when=entry["when"],
        source=entry["source"],
        cast=entry["cast"],
        feedback=entry["feedback"],
        needs=tuple((name, about) for name, about in entry["needs"]),
        colour=entry["colour"],
        dashes=tuple(float(d) for d in entry["dashes"]),
        params=tuple(_parameter(p) for p in entry["params"]),
        promises=tuple((name, about) for name, about in entry["promises"]),
    )


def _parameter(entry: dict[str, Any]) -> Parameter:
    of: Sequence[str] = entry.get("of") or ()
    return Parameter(
        name=entry["name"],
        about=entry["about"],
        source=entry["source"],
        kind=entry["kind"],
        default=entry["default"],
        paper=entry["paper"],
        min=entry.get("min"),
        max=entry.get("max"),
        of=tuple(of),
    )
