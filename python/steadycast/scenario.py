"""Scenarios from Python: the same keys as in a scenario file, checked by the same core.

Values are written as in the file: rates "4Mbps", spans "10ms", sizes "1018B", queue limits "50p". A key that is not
given has the file's default. The stub `scenario.pyi` describes the keys of each class.

    Scenario(
        name="dumbbell",
        duration="80s",
        topology=Topology(shape="dumbbell", bottleneck=Pipe(rate="4Mbps", delay="10ms")),
        flows=[Flow(name="video", kind="video", controller="asmp"), Flow(name="tcp", kind="tcp")],
    )
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from steadycast import PARTS
from steadycast.errors import UserError
from steadycast.files import write_text
from steadycast.toml import document

_LISTS = {"events": "event", "flows": "flow", "links": "link", "simulcasts": "simulcast"}
"""Attributes that are lists of tables, and their keys in the scenario file."""


class Part:
    """A table of keys. Keys that were not given are `None`."""

    def __init__(self, **keys: Any) -> None:
        self.__dict__.update(keys)

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"

    def plain(self, at: str = "") -> dict[str, Any]:
        """Return the keys and values as a scenario file has them. The entries of ``extra`` are added unchanged.

        ``at`` is the path of this table in the scenario, for errors.

        Raises:
            UserError: a value can't be written to a scenario file.

        """
        given = {key: value for key, value in vars(self).items() if value is not None and key != "extra"}
        filled = {self._key(key): value for key, value in given.items() if not _is_empty(value)}
        return _plain({**filled, **(self.extra or {})}, at)

    def _key(self, name: str) -> str:
        """Return the key for the name of an attribute.

        An underscore at the end is removed. Only names that are Python keywords have one.
        """
        return name.rstrip("_")


globals().update({name: type(name, (Part,), {"__module__": __name__}) for name in PARTS.split()})


class Scenario(Part):
    """A complete scenario."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**{"format": 1, **keys})

    def to_toml(self) -> str:
        """Return the scenario in the format of a scenario file."""
        return document(self.plain())

    def to_json(self) -> str:
        """Return the scenario as JSON, with the same keys."""
        return json.dumps(self.plain(), ensure_ascii=False, allow_nan=False)

    def save(self, path: Path | str) -> Path:
        """Write the scenario to a file, and return the file's path."""
        path = Path(path)
        write_text(path, self.to_toml())
        return path

    def _key(self, name: str) -> str:
        return _LISTS.get(name, name)


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping) and not value


def _plain(value: Any, at: str) -> Any:
    """Return a value as JSON and TOML have it. ``at`` is its path in the scenario."""
    if isinstance(value, Part):
        return value.plain(at)
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{at}.{key}" if at else str(key)) for key, each in value.items()}
    if isinstance(value, str | bool):
        return value
    if isinstance(value, Path):
        return str(value)
    # NumPy's numbers are of these classes, too.
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        if not math.isfinite(value):
            raise UserError(f"scenario: {at}", f"{value} is not a finite number", "write for example 0.02")
        return float(value)
    if not isinstance(value, Iterable):
        problem = f"a value of the type {type(value).__name__} has no form in a scenario"
        raise UserError(
            f"scenario: {at}", problem, "write a text, a number, true or false, or a list of them"
        )
    return [_plain(each, _place(each, n, at)) for n, each in enumerate(value, 1)]


def _place(element: Any, number: int, at: str) -> str:
    """Return the path of an element of a list. ``number`` is counted from 1."""
    name = vars(element).get("name") if isinstance(element, Part) else None
    return f"{at}.{name}" if name else f"{at}[{number}]"
