"""The built-in networks and sets of networks; a scenario uses one by ``network = "NAME"``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from steadycast import builtin
from steadycast.builtin import NETWORKS
from steadycast.core import core


@dataclass(frozen=True)
class Network:
    """A network: tables in the format of scenario files, with absolute paths."""

    name: str
    """The name as given, for example "cable-5+cubic"."""
    topology: dict[str, Any]
    """A dumbbell: ``shape``, ``bottleneck`` and ``access``."""
    event: tuple[dict[str, Any], ...] = ()
    """Changes of the link ``bottleneck``."""
    flow: tuple[dict[str, Any], ...] = ()
    """TCP flows from suffixes of the name such as "+cubic". They are named beside1, beside2 and so on."""
    about: str = ""
    source: str = ""
    licence: str = ""
    kind: str = ""
    """Where the data are from: "published", "model", "synthetic" or "measured"."""


def names() -> list[str]:
    """Return the names of the networks, in alphabetical order."""
    return builtin.names(NETWORKS)


@cache
def sets() -> dict[str, list[str]]:
    """Return the sets of networks by name, each in the order of execution."""
    text = (NETWORKS / "sets.toml").read_text(encoding="utf-8")
    return {name: list(of) for name, of in tomllib.loads(text).items()}


def is_path(name: str) -> bool:
    """Whether a text is the path of a network file instead of a name."""
    return "/" in name or "\\" in name or ".toml" in name


def expanded(name: str) -> list[str]:
    """Return the networks of a set, or the one network of this name."""
    return sets().get(name.strip("\"'"), [name])


def find(name: str, folder: Path = Path()) -> Network:
    """Read a network by its name, or by a path relative to ``folder``, with the flows of suffixes such as ``+cubic``.

    Raises:
        UserError: there is no such network, or its file is wrong; the error names the place and the remedy.

    """
    told = tomllib.loads(f"it = {core.network(name, folder, NETWORKS)}")["it"]
    told |= {key: tuple(told.get(key, ())) for key in ("event", "flow")}
    return Network(name=name, **told)
