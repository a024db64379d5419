"""The experiments of a checkout: each file can be run, and its tables are those of docs/data."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from steadycast.experiment import Spec

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "data"
FILES = sorted((ROOT / "validation" / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_point_of_an_experiment_is_a_scenario(path: Path) -> None:
    spec = Spec.read(path)
    assert spec.question.endswith("?")
    points = list(spec.points())
    # Points of one scenario and variant differ in values alone: the first and the last show whether these fit.
    ends = {(point.scenario, point.variant): point for point in points} | {
        (point.scenario, point.variant, "first"): point for point in reversed(points)
    }
    for point in ends.values():
        assert spec.scenarios[point.scenario].base.load(*point.sets).flows


def test_a_table_of_the_docs_names_the_experiment_that_writes_it() -> None:
    written = {
        (table.write.stem, path.name) for path in FILES for table in Spec.read(path).tables if table.write
    }
    named = set()
    for place in DATA.glob("*.toml"):
        command = tomllib.loads(place.read_text(encoding="utf-8")).get("command", "")
        if "validation/experiments/" in command:
            named.add((place.stem, Path(command.split()[2]).name))
    assert len(named) >= 8
    assert named <= written
