"""Several seeds in parallel."""

from __future__ import annotations

import importlib
import json
import pickle
import signal
import sys
from pathlib import Path

import pytest
import steadycast as sc
from steadycast.cli.base import seed_list
from steadycast.errors import Problems, UserError
from steadycast.folder import TABLES
from steadycast.loading import load
from steadycast.workers import cores

from tests.conftest import SMALL, ran, until
from tests.sweep.conftest import SLOW, alive, children
from tests.sweep.test_sweep import Begin, Say, slow

run_module = importlib.import_module("steadycast.run")
"""The module, because the package has a function of the same name."""


def test_seeds_in_parallel_write_what_they_write_one_after_the_other(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "cores", lambda: 3)
    many = sc.run_seeds(small, seeds=range(1, 5), out=tmp_path / "many")
    monkeypatch.setattr(run_module, "cores", lambda: 1)
    one = sc.run_seeds(small, seeds=range(1, 5), out=tmp_path / "one")
    assert many == one
    names = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert names == {p.relative_to(tmp_path / "many") for p in (tmp_path / "many").rglob("*") if p.is_file()}
    assert {f"seed-4/{name}.parquet" for name in TABLES[:3]} <= set(map(str, names))
    for name in names:
        if name.name != "cost.json":  # times
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name


def test_a_script_without_a_guard_may_run_seeds(small: Path, say: Say, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import steadycast as sc\nprint(len(sc.run_seeds({str(small)!r}, seeds=[1, 2])['flows']))\n"
    )
    done = ran([sys.executable, script])
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_an_error_of_a_seed_is_told_as_that_of_a_single_run(small: Path, tmp_path: Path, say: Say) -> None:
    (tmp_path / "bad.py").write_text(SLOW.replace("pass", "raise RuntimeError('no idea')"))
    words = ("run", small, "--set", "flow.video.controller=bad.py:Slow")
    single = say(*words, "--seed", "1", "-o", "single")
    many = say(*words, "--seeds", "1-3", "-o", "many")
    assert (many.code, many.err) == (single.code, single.err)
    assert not (tmp_path / "many" / "seeds.json").exists()


def complete(folder: Path) -> bool:
    path = folder / "summary.json"
    return path.exists() and bool(json.loads(path.read_text())["complete"])


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1-5", [1, 2, 3, 4, 5]),
        ("7", [7]),
        ("1,3,5", [1, 3, 5]),
        ("1, 3", [1, 3]),
        ("3-4,9,1-3", [3, 4, 9, 1, 2]),
    ],
)
def test_seeds_are_a_range_or_a_list(text: str, seeds: list[int]) -> None:
    assert list(seed_list(text)) == seeds


def test_a_list_of_seeds_runs_each_of_them(small: Path, say: Say, tmp_path: Path) -> None:
    assert say("run", small, "--seeds", "1,4", "-o", "many").code == 0
    assert sorted(each.name for each in (tmp_path / "many").glob("seed-*")) == ["seed-1", "seed-4"]
    assert say("sweep", small, "--seeds", "2,5", "-o", "swept").code == 0
    points = json.loads((tmp_path / "swept" / "plan.json").read_text())["points"]
    assert [point["seeds"] for point in points] == [[2, 5]]


def test_an_interrupt_ends_all_seeds_and_leaves_what_there_is(
    small: Path, tmp_path: Path, begin: Begin, say: Say
) -> None:
    process = begin("run", slow(small), "--seeds", "1-40", "-o", "many")
    part = tmp_path / "many.part"
    until(lambda: complete(part / "seed-1"))
    workers = children(process.pid)
    # On one processor the runs are sequential in one process.
    assert workers or cores() == 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        130,
        "steadycast: interrupted; the partial results are in many.part\n",
    )
    assert not any(map(alive, workers))
    assert complete(part / "seed-1")
    assert json.loads((part / "seeds.json").read_text())["complete"] is False
    assert not (tmp_path / "many").exists()
    told = say("report", "many.part")
    assert (told.code, "many.part: these runs were interrupted; " in told.err) == (2, True), told
    again = say("run", tmp_path / "small.toml", "--seeds", "1-2", "-o", "many")
    assert (again.code, "what an interrupted run left there is replaced" in again.err) == (0, True), again
    assert not part.exists()


def test_a_mistake_beside_force_leaves_the_older_results(small: Path, tmp_path: Path, say: Say) -> None:
    assert say("run", small, "--seeds", "1-2", "-o", "many").code == 0
    before = (tmp_path / "many" / "seeds.json").read_bytes()
    (tmp_path / "bad.py").write_text(SLOW.replace("pass", "raise RuntimeError('no idea')"))
    for wrong in ("flow.video.controler=tfrc", "flow.video.controller=bad.py:Slow"):
        assert say("run", small, "--seeds", "1-2", "-o", "many", "--force", "--set", wrong).code == 2
        assert (tmp_path / "many" / "seeds.json").read_bytes() == before
        assert complete(tmp_path / "many" / "seed-2")
    assert say("run", small, "--seeds", "1-1", "-o", "many", "--force").code == 0
    assert sorted(path.name for path in tmp_path.glob("many*")) == ["many"]
    assert not (tmp_path / "many" / "seed-2").exists()


def test_no_seeds_are_a_mistake(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seeds: there are none"):
        sc.run_seeds(small, seeds=[], out=tmp_path / "many")
    assert not (tmp_path / "many").exists()


def test_all_problems_of_a_scenario_go_from_process_to_process(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(SMALL.replace("asmp", "asmq").replace('"1Mbps"', '"1Mbpz"'))
    with pytest.raises(Problems) as caught:
        load(tmp_path / "bad.toml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)
    assert len(again.problems) == 2
