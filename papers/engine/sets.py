"""Short notation for changes of a scenario: a range in a path stands for each of its numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_RANGE = re.compile(r"\[(\d+)-(\d+)\]")
_NUMBER = re.compile(r"\d+")


def spread(table: Mapping[str, Any]) -> dict[str, object]:
    """Expand ranges such as "flow.tcp[1-10].preset" into one path per number."""
    found: dict[str, object] = {}
    for path, value in table.items():
        match = _RANGE.search(path)
        if match is None:
            found[path] = value
            continue
        for n in range(int(match[1]), int(match[2]) + 1):
            found[path[: match.start()] + str(n) + path[match.end() :]] = value
    return found


def short(sets: Mapping[str, object]) -> dict[str, object]:
    """Combine paths that differ only in their first number and have the same value into one path with a range."""
    alike: dict[tuple[str, str, str], dict[int, str]] = {}
    for path, value in sets.items():
        if match := _NUMBER.search(path):
            around = (path[: match.start()], path[match.end() :], repr(value))
            alike.setdefault(around, {})[int(match[0])] = path
    names: dict[str, str] = {}
    for (before, after, _), paths in alike.items():
        numbers = sorted(paths)
        if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            names |= {path: f"{before}[{numbers[0]}-{numbers[-1]}]{after}" for path in paths.values()}
    return {names.get(path, path): value for path, value in sets.items()}


def text(sets: Mapping[str, object]) -> str:
    """Format changes as command-line arguments, with ranges: "flow.tcp[1-10].preset=linux"."""
    from steadycast.loading import changes

    return " ".join(changes(short(sets)))
