from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from steadycast import cli

from tests.conftest import Said
from tests.face.made_up import make, make_seeds


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
def say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

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
