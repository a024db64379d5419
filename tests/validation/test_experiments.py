"""The experiments of a checkout: each file can be run, and its tables are those of docs/data."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from steadycast.experiment import Spec, run_experiment

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "data"
FILES = sorted((ROOT / "validation" / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_point_of_an_experiment_is_a_scenario(path: Path) -> None:
    spec = Spec.read(path)
    assert spec.question.endswith("?")
    points = list(spec.points())
    # The points of a scenario and a variant differ only in values. The first and the last point show whether the values
    # are valid.
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
        origin = tomllib.loads(place.read_text(encoding="utf-8"))
        command = origin.get("command", "")
        # A table that is marked as older has content that the command no longer makes.
        if "validation/experiments/" in command and not origin.get("note", "").startswith("older"):
            named.add((place.stem, Path(command.split()[2]).name))
    assert len(named) >= 8
    assert named <= written


@pytest.mark.claim
@pytest.mark.skipif(os.geteuid() != 0, reason="emulation needs root")
def test_beside_the_kernels_tcp_each_side_has_its_share(tmp_path: Path) -> None:
    """With RED, the video's loss follows from its share.

    It is compared with the share of packets that TCP retransmits.
    """
    only = ["4 Mb/s, 40 ms", "asmp", "tfmcc", "tfrc"]
    done = run_experiment(FILES[0].with_name("sharing-emulated.toml"), only=only, out=tmp_path / "out")
    assert len(done.points) == 12
    assert not done.runs.errors
    for point in done.points:
        red = dict(point.values)["queue"] == "RED"
        bounds = [bound for bound in done.spec.bounds if bound.judges(point)]
        judged = [bound for bound in bounds if not red or bound.measure != "loss"]
        assert [bound.measure for bound in judged if not done.holds(bound, point)] == [], point.labels
        lost, again = (
            (done.spread(done.spec.measure(name), point) or {})["mean"] for name in ("loss", "TCP sent again")
        )
        assert 0 < lost < max(1.25 * again, 1)
