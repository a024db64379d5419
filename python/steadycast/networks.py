"""The built-in networks and sets of networks. A scenario uses a network by ``network = "NAME"``."""

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
    """A network, as tables in the format of scenario files. Paths in it are absolute."""

    name: str
    """The name that the user gave, for example "cable-5+cubic"."""
    topology: dict[str, Any]
    """The table ``topology`` of a dumbbell. Its keys are ``shape``, ``bottleneck`` and ``access``."""
    event: tuple[dict[str, Any], ...] = ()
    """Changes of the link ``bottleneck``."""
    flow: tuple[dict[str, Any], ...] = ()
    """TCP flows that the name adds by a suffix such as "+cubic". They are called beside1, beside2 and so on."""
    about: str = ""
    source: str = ""
    licence: str = ""
    kind: str = ""
    """Origin of the data: "published", "model", "synthetic" or "measured"."""


def names() -> list[str]:
    """Return the names of the networks, in alphabetical order."""
    return builtin.names(NETWORKS)


@cache
def sets() -> dict[str, list[str]]:
    """Return the sets of networks.

    The keys are their names. The networks of a set are in the order in which they run.
    """
    text = (NETWORKS / "sets.toml").read_text(encoding="utf-8")
    return {name: list(of) for name, of in tomllib.loads(text).items()}


def is_path(name: str) -> bool:
    """Whether ``name`` is the path of a network file. If not, it is the name of a built-in network."""
    return "/" in name or "\\" in name or ".toml" in name


def expanded(name: str) -> list[str]:
    """Return the networks of the set ``name``. If there is no such set, ``name`` itself is the only network."""
    return sets().get(name.strip("\"'"), [name])


def find(name: str, folder: Path = Path()) -> Network:
    """Read a network. A suffix of its name, such as ``+cubic``, adds a flow.

    ``name`` is a built-in name, or a path relative to ``folder``.

    Raises:
        UserError: there is no such network, or its file is wrong. The error describes the place and the remedy.

    """
    told = tomllib.loads(f"it = {core.network(name, folder, NETWORKS)}")["it"]
    told |= {key: tuple(told.get(key, ())) for key in ("event", "flow")}
    return Network(name=name, **told)
