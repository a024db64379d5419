"""An interrupted judgement goes on with the cells that it lacks, if the programs are the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steadycast.judge import pair, suite
from steadycast.judge.cell import Outcome, Setup, Task, folder_of
from steadycast.networks import find
from steadycast.progress import Silent
from steadycast.sweep import store

TASKS = [Task("clean-20", run) for run in range(1, 5)]


class Machine:
    """Stands in for the worker processes. It is interrupted before its cell number `ends`, and doubts some runs."""

    def __init__(self, folder: Path, ends: int = 100, doubts: Sequence[int] = ()) -> None:
        self.folder, self.ends, self.doubts = folder, ends, doubts
        self.began: list[Task] = []

    def __call__(self, *_: object, **__: object) -> Machine:
        return self

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def do(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        for index, task in enumerate(tasks):
            if len(self.began) + 1 == self.ends:
                raise KeyboardInterrupt
            self.began.append(task)
            folder_of(self.folder, task).mkdir(parents=True, exist_ok=True)
            doubts = ("too busy",) if task.run in self.doubts else ()
            figures = {"loss_frac": task.run / 10, "recovery_s": None}
            yield (
                index,
                Outcome(task.network, task.run, figures, "wire", None, doubts, 0.1, {"gaps_s": [[1.0, 2.0]]}),
            )


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    program = tmp_path / "send.sh"
    program.write_text("sleep 1")
    judged = pair.of_commands(f"sh {program}", "sh -c true")
    networks = {"clean-20": find("clean-20", tmp_path)}
    return Setup(judged, networks, tmp_path, 1, up=False, level=None, rooms=tmp_path)


def goes_on(setup: Setup, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    monkeypatch.setattr(suite, "Workers", machine)
    keys = {task: suite.key_of(setup, task) for task in TASKS}
    with store.Part(setup.folder) as kept:
        return suite.conducted(setup, keys, suite.finished_in(setup.folder, keys), kept, 1, Silent())


@pytest.mark.parametrize("ends", range(1, 5))
def test_only_the_cells_that_are_lacking_are_run(
    ends: int, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        goes_on(setup, Machine(setup.folder, ends), monkeypatch)
    second = Machine(setup.folder)
    outcomes = goes_on(setup, second, monkeypatch)
    assert second.began == TASKS[ends - 1 :]
    fresh = goes_on(replace(setup, seed=9), Machine(setup.folder), monkeypatch)
    assert outcomes == fresh, "an outcome is the same when it is read again"


def test_cells_that_are_not_trusted_are_run_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        goes_on(setup, Machine(setup.folder, ends=4, doubts=[2]), monkeypatch)
    second = Machine(setup.folder)
    goes_on(setup, second, monkeypatch)
    assert second.began == [TASKS[1], TASKS[3]]


@pytest.mark.parametrize("count", range(3))
def test_a_run_that_the_machine_disturbed_is_repeated_after_the_others(
    count: int, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "REPETITIONS", count)
    machine = Machine(setup.folder, doubts=[2])
    goes_on(setup, machine, monkeypatch)
    assert machine.began == TASKS + [TASKS[1]] * count


def _newer_program(setup: Setup) -> Setup:
    os.utime(setup.folder / "send.sh", ns=(1, 1))
    return setup


CHANGES: dict[str, Any] = {
    "seed": lambda setup: replace(setup, seed=2),
    "direction": lambda setup: replace(setup, up=True),
    "seconds": lambda setup: replace(setup, pair=replace(setup.pair, seconds=9.0)),
    "network": lambda setup: replace(setup, networks={"clean-20": find("dsl-8", setup.folder)}),
    "program": _newer_program,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_outcome_depends_on_makes_another_run(
    change: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on(setup, Machine(setup.folder), monkeypatch)
    second = Machine(setup.folder)
    goes_on(CHANGES[change](setup), second, monkeypatch)
    assert second.began == TASKS


def test_a_cell_without_its_evidence_is_run_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on(setup, Machine(setup.folder), monkeypatch)
    folder_of(setup.folder, TASKS[2]).rmdir()
    second = Machine(setup.folder)
    goes_on(setup, second, monkeypatch)
    assert second.began == [TASKS[2]]
    assert all(
        json.loads(line)["outcome"] for path in (setup.folder / store.PARTS).iterdir() for line in path.open()
    )


def test_nothing_of_another_judgement_or_run_stays_in_the_folder(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = tmp_path / "out.part"
    part.mkdir()
    mine = replace(setup, folder=part)
    goes_on(mine, Machine(part), monkeypatch)
    others = [Task("dsl-8", 1), Task("clean-20", 9)]
    for task in others:
        folder_of(part, task).mkdir(parents=True)
    (part / "cells" / "clean-20" / "3.work").mkdir()
    (part / "rates.parquet").write_text("of a run")
    (part / "judge.json").write_text("{}")
    keys = {task: suite.key_of(mine, task) for task in TASKS}
    suite.remove_others(part, suite.finished_in(part, keys))
    assert sorted(path.name for path in part.iterdir()) == ["cells", "judge.json", store.PARTS]
    assert sorted((part / "cells").glob("*/*")) == [folder_of(part, task) for task in TASKS]
    assert [path.name for path in (part / "cells").iterdir()] == ["clean-20"]
