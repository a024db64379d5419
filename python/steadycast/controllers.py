"""The core's registry of controllers, with their names, line styles and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from steadycast.core import core
from steadycast.errors import UserError, meant


@dataclass(frozen=True)
class Parameter:
    """A parameter of a controller. Its value is a number or, for a duration or a rate, a text with a unit."""

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
        """The allowed values as a short text. It is empty if all values are allowed."""
        if self.of:
            return " | ".join(self.of)
        if self.kind == "switch":
            return "true | false"
        if self.min is None and self.max is None:
            return ""
        return f"{text(self.min)} … {text(self.max)}"


@dataclass(frozen=True)
class Controller:
    """A controller of the registry."""

    name: str
    about: str
    when: str
    """When to use the controller."""
    source: str
    cast: str
    feedback: str
    needs: tuple[tuple[str, str], ...]
    """Features that a session must have. Each is a pair of name and description."""
    colour: str
    dashes: tuple[float, ...]
    params: tuple[Parameter, ...]
    promises: tuple[tuple[str, str], ...]
    """Invariants that are checked during a run. Each is a pair of name and description."""


@dataclass(frozen=True)
class Use:
    """A recommendation: which controller to use for a purpose."""

    towards: str
    controller: str
    why: str


ONE = Use(
    "one receiver",
    "steady",
    "keeps the queue almost empty if no other flow fills it, and takes the share of a CUBIC flow if one does",
)
GROUP = Use("a group", "asmp", "the slowest receiver has its fair share; standard reports are enough")
USES = (
    ONE,
    GROUP,
    Use(
        "a group, all by `steadycast receive`",
        "tfmcc",
        "with many receivers, reaches its share in half the time",
    ),
    Use(
        "a standard player with RTCP",
        GROUP.controller,
        "`send` changes to it if only standard reports arrive",
    ),
    Use(
        "a player without RTCP (ffplay)",
        ONE.controller,
        "with --floor R, because no report shows what arrives",
    ),
    Use("GStreamer's element", ONE.controller, "the element's default; without packet trains"),
    Use("libwebrtc", "tfrc", "steady also works, without its packet trains"),
    Use("a network without other traffic", "fixed", "a constant rate: --max-rate R"),
)
"""Recommendations by purpose. The first two controllers are the defaults of `send`."""


def default(*, group: bool, paper: bool = False) -> str:
    """Return the default controller of a session. Multicast groups and paper mode use the same default."""
    return (GROUP if group or paper else ONE).controller


def text(value: object) -> str:
    """Format a parameter's value as in a scenario."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


@cache
def registry() -> tuple[Controller, ...]:
    """Return all controllers."""
    return tuple(_controller(entry) for entry in core.controllers())


def controllers() -> tuple[Controller, ...]:
    """Return all built-in controllers, with their parameters."""
    return registry()


def find(name: str) -> Controller:
    """Find the controller named `name`."""
    known = {entry.name: entry for entry in registry()}
    if name not in known:
        raise UserError(name, "no such controller", meant(name, known))
    return known[name]


def _controller(entry: Mapping[str, Any]) -> Controller:
    told = {each.name: entry[each.name] for each in fields(Controller)}
    pairs = {key: tuple((name, about) for name, about in entry[key]) for key in ("needs", "promises")}
    params = tuple(Parameter(**{**each, "of": tuple(each.get("of") or ())}) for each in entry["params"])
    return Controller(**{**told, **pairs, "dashes": tuple(map(float, entry["dashes"])), "params": params})
