"""Reads and checks scenarios, with the caller's changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from steadycast import clips
from steadycast.builtin import NETWORKS, scenario_at
from steadycast.controller import named
from steadycast.core import core
from steadycast.errors import Problems, UserError
from steadycast.scenario import Scenario
from steadycast.toml import inline, read

Source = str | Path | Scenario
"""A scenario: the path of its file, the name of a built-in scenario, or an object."""
Sets = Mapping[str, object] | Sequence[str]
"""Changes to a scenario: ``{"flow.video.controller": "tfrc"}`` or ``["flow.video.controller=tfrc"]``."""


def load(
    scenario: Source, sets: Sequence[str] = (), text: str | None = None, origin: Path = Path()
) -> core.Scenario:
    """Read and check a scenario. ``text`` is the content of its file if the caller knows it.

    The change ``clip=NAME|FILE`` sets the clip of all videos. File names in a scenario object are relative to
    ``origin``.
    """
    if isinstance(scenario, str) and "\n" in scenario:
        raise UserError(
            "scenario", "it is a scenario's text, not the name of a file", "save it, and give the file's name"
        )
    sets = [clips.resolved(change) for change in sets]
    if isinstance(scenario, Scenario):
        return core.Scenario(str(origin / "scenario"), sets, scenario.to_json(), True, NETWORKS)
    place = scenario_at(Path(scenario)) if text is None else scenario
    try:
        return core.Scenario(str(place), sets, text, False, NETWORKS)
    except Problems:
        if _is_network(Path(place), text):
            remedy = f"write home --set network={place} in its place"
            raise UserError(str(place), "this is a network, which a scenario runs over", remedy) from None
        raise


def _is_network(place: Path, text: str | None) -> bool:
    try:
        keys = read(place.read_text("utf-8") if text is None else text).keys()
    except (OSError, ValueError):
        return False
    return "topology" in keys and keys <= {"about", "source", "licence", "kind", "topology", "event"}


def place_of(scenario: Source) -> str:
    """Return how error messages refer to a scenario."""
    return "scenario" if isinstance(scenario, Scenario) else str(scenario)


def folder_of(scenario: Source) -> Path:
    """Return the folder to which the file names in a scenario are relative."""
    return Path() if isinstance(scenario, Scenario) else Path(scenario).parent


SEED_MOST = 2**63 - 1
"""The largest seed, which is TOML's largest whole number."""


def load_with(scenario: Source, sets: Sequence[str], classes: Mapping[str, type]) -> core.Scenario:
    """Read and check a scenario in which the ``classes`` control video flows. The keys are the names of the flows.

    Raises:
        UserError: as in `load`, or a key of ``classes`` is not the name of a video flow.

    """
    try:
        loaded = load(scenario, [*sets, *named(classes)])
    except Problems:
        # If the scenario is right without the classes, its video flows are known.
        if classes:
            _check_flows(load(scenario, sets), classes)
        raise
    _check_flows(loaded, classes)
    return loaded


def _check_flows(loaded: core.Scenario, classes: Mapping[str, type]) -> None:
    videos = [video["flow"] for video in loaded.videos()]
    for flow in classes:
        if flow not in videos:
            there = ", ".join(videos) or "none"
            raise UserError(f"controllers[{flow!r}]", "there is no such video flow", f"there are: {there}")


def changes(sets: Sets, *, seed: int | None = None) -> list[str]:
    """Return changes in the form PATH=VALUE. ``seed`` is added to the changes in ``sets``.

    Raises:
        UserError: the seed is out of range.

    """
    if seed is not None:
        _check_seed("seed", seed)
    texts = _texts(sets)
    return texts if seed is None else [*texts, f"seed={seed}"]


def _check_seed(place: str, seed: int) -> None:
    if not 0 <= seed <= SEED_MOST:
        raise UserError(place, f"{seed} is out of range", f"write a whole number from 0 to {SEED_MOST}")


def _texts(sets: Sets) -> list[str]:
    if isinstance(sets, Mapping):
        return [f"{path}={literal(value)}" for path, value in sets.items()]
    return list(sets)


def literal(value: object) -> str:
    """Format a value as TOML. A text is returned unchanged, so it may be TOML or plain text."""
    return value if isinstance(value, str) else inline(value)


def all_texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in the plain values of a scenario, each with the key under which it was found."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            yield from all_texts(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from all_texts(each, key)
    elif isinstance(value, str):
        yield key, value


def seeds_of(given: Iterable[int]) -> list[int]:
    """Return the seeds without duplicates.

    Raises:
        UserError: there are no seeds, or a seed is out of range.

    """
    if not (seeds := list(dict.fromkeys(given))):
        raise UserError("seeds", "there are none", "give at least one")
    for seed in seeds:
        _check_seed("seeds", seed)
    return seeds
