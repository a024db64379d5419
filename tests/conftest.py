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
def signals_are_heard() -> Iterator[None]:
    """Take the default of what is ignored: SIGHUP under `nohup`, SIGINT in the background of a script.

    A command leaves an ignored signal as it is, so its tests would wait for what never comes.
    """
    defaults = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {each: signal.getsignal(each) for each in defaults}
    for each, default in defaults.items():
        if before[each] is signal.SIG_IGN:
            signal.signal(each, default)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)
