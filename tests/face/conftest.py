from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from steadycast import cli
from steadycast.controllers import registry

from tests.face.made_up import make, make_seeds

REGISTRY = [
    {
        "name": "asmp",
        "about": "loss and delay of the worst receiver",
        "source": "paper 004",
        "cast": "any",
        "feedback": "periodic",
        "colour": "#d62728",
        "dashes": [6.0, 2.0],
        "params": [
            {
                "name": "gamma_congested",
                "about": "share of a step that is taken when congested",
                "source": "paper 004, section 3.6",
                "kind": "number",
                "default": 0.9,
                "paper": 0.2,
                "min": 0.0,
                "max": 1.0,
            },
            {
                "name": "loss_mode",
                "about": "what counts as loss",
                "source": "X-21",
                "kind": "choice",
                "default": "fraction",
                "paper": "fraction",
                "of": ["fraction", "event"],
            },
        ],
    },
    {
        "name": "fixed",
        "about": "a constant rate; feedback is ignored",
        "source": "plain RTP",
        "cast": "any",
        "feedback": "none",
        "colour": "#7f7f7f",
        "dashes": [],
        "params": [],
    },
]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run: 25 receivers, TCP, noise, events, packets."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    make(path, receivers=25, seconds=70, packets=True)
    return path


@pytest.fixture(scope="session")
def seeds_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "seeds"
    make_seeds(path, 3, receivers=2, seconds=64)
    return path


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A stand-in for the compiled module."""
    module = ModuleType("steadycast._core")
    module.controllers = lambda: REGISTRY  # type: ignore[attr-defined]
    module.schema = lambda: '{"title": "scenario"}'  # type: ignore[attr-defined]
    module.check = lambda path, sets: []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "steadycast._core", module)
    registry.cache_clear()
    yield module
    registry.cache_clear()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for the simulation: writes the made-up run."""

    def run(file: Path, *, out: Path | None = None, force: bool = False, **_: Any) -> SimpleNamespace:
        place = out or Path(os.environ["PYTEST_SCRATCH"]) / "unasked"
        summary = make(place, receivers=2, seconds=64, force=force)
        return SimpleNamespace(summary=summary)

    def run_seeds(file: Path, *, seeds: range, out: Path, **_: Any) -> dict[str, Any]:
        return make_seeds(out, len(seeds), receivers=2, seconds=64)

    module = ModuleType("steadycast.run")
    module.run = run  # type: ignore[attr-defined]
    module.run_seeds = run_seeds  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "steadycast.run", module)
    return module


@dataclass
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path.with_name(tmp_path.name + "-scratch")
    scratch.mkdir()
    monkeypatch.setenv("PYTEST_SCRATCH", str(scratch))

    def run(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["steadycast", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run
