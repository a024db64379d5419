"""What all tests find."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SMALL = """
format = 1
name = "small"
duration = "3s"

[topology]
shape = "dumbbell"
bottleneck = { rate = "1Mbps", delay = "10ms" }

[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"

[[flow]]
name = "tcp"
kind = "tcp"
send_jitter = "1ms"
"""
"""A video that always has data beside TCP, for three seconds."""


@dataclass
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The scenario `SMALL` in a folder of its own."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(autouse=True, scope="session")
def hanging_up_is_heard() -> Iterator[None]:
    """Under `nohup` SIGHUP is ignored, and a command leaves that as it is: the tests of it take the default."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
