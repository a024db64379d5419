"""If a run is interrupted or killed at any time, nothing incomplete looks complete."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import bounded, command, started

SCENARIO = """
name = "long"
duration = "3s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "20Mbps", delay = "10ms" }
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "table2"
receivers = 20
[[flow]]
name = "tcp"
kind = "tcp"
count = 4
send_jitter = "1ms"
[record]
packets = ["video"]
"""
RUN = command("run", "long.toml", "-o", "out")


def start(folder: Path, scenario: str = SCENARIO) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "long.toml").write_text(scenario, encoding="utf-8")
    return started(RUN, cwd=folder)


def look(folder: Path) -> list[dict[str, object]]:
    """Return all summaries in a folder. Each has to be valid JSON."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("summary.json"))]


@pytest.fixture(scope="module")
def lasts(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the duration of the complete run on this machine in seconds."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    with bounded(start(folder)) as run:
        _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    assert [summary["complete"] for summary in look(folder)] == [True]
    assert not list(folder.glob("*.part"))
    return time.monotonic() - began


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_at_three_random_moments_nothing_looks_whole_that_is_not(
    tmp_path: Path, lasts: float, blow: signal.Signals
) -> None:
    chance = random.Random(int(blow))
    for number in range(3):
        # Two in a run that would last minutes, and one near the end of a run, while it writes or draws.
        endless = number < 2
        folder = tmp_path / str(number)
        with bounded(start(folder, SCENARIO.replace("3s", "9999s") if endless else SCENARIO)) as run:
            time.sleep(chance.uniform(1.0, 3.0) if endless else lasts * chance.uniform(0.5, 1.0))
            os.kill(run.pid, blow)
            _, said = run.communicate(timeout=60)
        summaries = look(folder)
        assert "Traceback" not in said, said
        assert not endless or not any(summary["complete"] for summary in summaries)
        if run.returncode == 0:
            assert [summary["complete"] for summary in summaries] == [True]
        elif run.returncode == -signal.SIGINT:
            # An interpreter that is starting or shutting down has no signal handler.
            assert all(summary["complete"] for summary in summaries)
        elif blow == signal.SIGINT:
            assert run.returncode == 130, (run.returncode, said)
            assert "interrupted" in said
        else:
            assert run.returncode == -signal.SIGKILL
        for summary in summaries:
            # A run that is interrupted while it writes its report is complete, with all its tables.
            tables = {path.stem for path in (folder / "out").glob("*.parquet")}
            assert summary["complete"] is False or {"rates", "frames", "decisions", "links"} <= tables
