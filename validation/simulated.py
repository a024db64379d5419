"""Simulates for the measuring commands, without pictures and without a progress bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadycast.result import Run


def run(scenario: Path | str, seed: int, sets: Mapping[str, object] | Sequence[str] = ()) -> Run:
    """Run a scenario once, from a file or from text."""
    import steadycast as sc
    from steadycast.progress import Silent

    with TemporaryDirectory() as folder:
        place = scenario if isinstance(scenario, Path) else Path(folder) / "scenario.toml"
        if isinstance(scenario, str):
            place.write_text(scenario, encoding="utf-8")
        return sc.run(place, set=sets, seed=seed, quality=False, progress=Silent())
