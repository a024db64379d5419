"""The networks that come with the program, and sets of them: a scenario takes one by ``network = "NAME"``."""

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
    """A network as a scenario takes it: tables as a scenario file has them, with absolute paths."""

    name: str
    """As it was named, for example "cable-5+cubic"."""
    topology: dict[str, Any]
    """A dumbbell: ``shape``, ``bottleneck`` and ``access``."""
    event: tuple[dict[str, Any], ...] = ()
    """What changes on the link ``bottleneck``."""
    flow: tuple[dict[str, Any], ...] = ()
    """The TCP flows that the name asks for, called beside1, beside2 …; without hosts, as a dumbbell brings them."""
    about: str = ""
    """What it is like, in one sentence."""
    source: str = ""
    licence: str = ""
    kind: str = ""
    """published, model, synthetic or measured."""


def names() -> list[str]:
    """Return the names of the networks, in the order of the alphabet."""
    return builtin.names(NETWORKS)


@cache
def sets() -> dict[str, list[str]]:
    """Return the sets: the networks of each, by its name, in the order in which they are run."""
    text = (NETWORKS / "sets.toml").read_text(encoding="utf-8")
    return {name: list(of) for name, of in tomllib.loads(text).items()}


def is_path(name: str) -> bool:
    """Whether it is the path of a network's file, and not a name."""
    return "/" in name or "\\" in name or ".toml" in name


def expanded(name: str) -> list[str]:
    """Return the networks of a set, or the one network of this name."""
    return sets().get(name.strip("\"'"), [name])


def find(name: str, folder: Path = Path()) -> Network:
    """Read a network, by its name or by a path that begins at ``folder``, with the flows that ``+cubic`` … add.

    Raises:
        UserError: there is no such network, or something is wrong with its file; it says where, and what to do.

    """
    told = tomllib.loads(f"it = {core.network(name, folder, NETWORKS)}")["it"]
    told |= {key: tuple(told.get(key, ())) for key in ("event", "flow")}
    return Network(name=name, **told)
