"""Figures are drawn by a process in parallel with the run. They are the same without it, and also if it fails."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from steadycast import figure_prefetch
from steadycast.figure_prefetch import FigurePrefetcher
from steadycast.folder import Folder
from steadycast.progress import Silent
from steadycast.report import page
from steadycast.report.page import write_report
from steadycast.run import run
from steadycast.workers import Helper

from tests.conftest import SMALL, Said
from tests.conftest import ran as started


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario in a separate folder, with two processors on any machine, in a process that has drawn nothing."""
    monkeypatch.setattr(figure_prefetch, "cores", lambda: 2)
    monkeypatch.setattr(figure_prefetch, "drawing_is_imported", lambda: False)
    path = tmp_path / "beside.toml"
    path.write_text(SMALL.replace('"3s"', '"6s"'))
    return path


@pytest.fixture
def ran(scenario: Path) -> Folder:
    run(scenario, out=scenario.parent / "ran", progress=Silent())
    return Folder.open(scenario.parent / "ran")


def test_the_commands_report_is_the_one_that_is_drawn_afterwards(
    say: Callable[..., Said], scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = []
    answer = Helper.answer
    monkeypatch.setattr(Helper, "answer", lambda self: answers.append(answer(self)) or answers[-1])
    assert say("run", scenario, "-o", "ran").code == 0
    (drawings,) = answers
    assert isinstance(drawings, dict)
    assert {"rates", "delay", "why", "queue", "tcp"} <= {name for name, svg in drawings.items() if svg}
    beside = Path("ran/report.html").read_text()
    assert beside.count('<svg role="img"') == sum(svg is not None for svg in drawings.values())
    assert write_report("ran").read_text() == beside


@pytest.mark.parametrize("named", ["before", "meanwhile"])
def test_a_folder_may_get_its_name_before_its_figures_are_drawn_or_meanwhile(ran: Folder, named: str) -> None:
    part, place = ran.path.with_name("late.part"), ran.path.with_name("late")
    shutil.copytree(ran.path, part)
    with FigurePrefetcher(place) as prefetcher:
        folder = Folder(part, ran.summary)
        if named == "before":
            part.rename(place)
        prefetcher.draw(folder)
        if named == "meanwhile":
            part.rename(place)
        drawings = prefetcher.drawings()
    assert drawings == page.drawings(ran)


def test_where_its_process_ends_or_fails_the_report_is_drawn_as_without_it(ran: Folder) -> None:
    with FigurePrefetcher(ran.path) as prefetcher:
        assert prefetcher._helper is not None
        os.kill(prefetcher._helper._worker.process.pid, signal.SIGKILL)
        prefetcher.draw(ran)
        killed = prefetcher.drawings()
    with FigurePrefetcher(ran.path) as prefetcher:
        prefetcher.draw(Folder(ran.path.with_name("nowhere"), {"flows": "none"}))
        failed = prefetcher.drawings()
    assert killed is failed is None
    assert write_report(ran, drawings=None).read_text().count('<svg role="img"') >= 5


def test_what_was_not_asked_for_is_not_waited_for_and_no_process_is_left(ran: Folder) -> None:
    with FigurePrefetcher(ran.path) as prefetcher:
        assert prefetcher.drawings() is None
        assert prefetcher._helper is not None
        process = prefetcher._helper._worker.process
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("name", "value"), [("cores", 1), ("drawing_is_imported", True)])
def test_on_one_processor_and_where_the_library_is_imported_already_there_is_no_process(
    ran: Folder, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(figure_prefetch, name, lambda: value)
    with FigurePrefetcher(ran.path) as prefetcher:
        prefetcher.draw(ran)
        assert prefetcher._helper is None
        assert prefetcher.drawings() is None


def test_the_library_that_draws_is_imported_with_the_first_figure_and_not_before() -> None:
    words = "from steadycast import cli, figure_prefetch as f; print(f.drawing_is_imported()); {}"
    words = words.format("f.drawer(None); print(f.drawing_is_imported())")
    assert started([sys.executable, "-c", words], code=0).stdout.split() == ["False", "True"]
