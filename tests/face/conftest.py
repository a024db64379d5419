from __future__ import annotations

from pathlib import Path

import pytest

from tests.face.made_up import make, make_seeds


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run: 25 receivers, TCP, noise, events, packets."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    make(path, receivers=25, seconds=70, packets=True)
    return path


@pytest.fixture(scope="session")
def seeds_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "seeds"
    make_seeds(path, 3, receivers=2, seconds=64)
    return path
