from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# It waits before each run, so that a test has time to look at the processes.
SLOW = """
import time


class Slow:
    def __init__(self, setup):
        time.sleep(0.1)

    def on_report(self, report):
        pass

    def rate_bps(self):
        return 200_000.0
"""


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", "from steadycast.cli import main; main()", *map(str, words)]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begins commands, which end with the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command(*words), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    """Processes that this one has begun."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Waits, for at most this long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.01)
