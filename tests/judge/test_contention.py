"""Waits for a processor and real-time work of others are observed, and cast doubt on a cell."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from steadycast import contention
from steadycast.contention import LONG_WAIT_S, SAMPLE_S, Load, Machine
from steadycast.judge.cell import DISTURBED, TAKEN, WAITED, cause, doubts, unread
from steadycast.judge.figures import COLUMNS

from .made_up import cell, offers

OBSERVED_S = 1.5
BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
BURSTS = """
import time
end = time.monotonic() + 20
while time.monotonic() < end:
    until = time.monotonic() + 0.005
    while time.monotonic() < until: pass
    time.sleep(0.045)
"""
"""A tenth of a processor."""


@contextmanager
def running(*programs: str, cpu: int | None = None, policy: int = os.SCHED_OTHER) -> Iterator[list[int]]:
    """Run Python programs, on one processor if ``cpu`` is given, and end them."""
    started = [subprocess.Popen([sys.executable, "-c", each], start_new_session=True) for each in programs]
    try:
        for each in started:
            if cpu is not None:
                os.sched_setaffinity(each.pid, {cpu})
            os.sched_setscheduler(each.pid, policy, os.sched_param(0))
        yield [each.pid for each in started]
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def observed(load: Load, pid: int, seconds: float = OBSERVED_S) -> dict[str, Any]:
    """Observe a process as the crew does."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        load.find(pid, now)
        load.sample(now, counts=True)
        time.sleep(SAMPLE_S)
    return load.told()


def test_a_program_that_shares_its_processor_is_disturbed() -> None:
    one = next(iter(os.sched_getaffinity(0)))
    with running(BUSY, BUSY, cpu=one) as (pid, _):
        told = observed(Load(), pid)
    # Each of the two waits half of the time, and longer on a busy machine.
    assert told["unread"] is None
    assert told["disturbed"] > 0.5


@pytest.mark.parametrize("wakes", [1, 10, 100, 400])
@pytest.mark.parametrize("usual_us", [1.0, 20.0, 60.0])
@pytest.mark.parametrize("long_s", [0.0, 0.002, 0.012])
def test_many_short_waits_are_no_disturbance_but_one_long_wait_is(
    wakes: int, usual_us: float, long_s: float
) -> None:
    """One sample in ten has a long wait. Together, the short waits of a sample take up to 24 ms."""
    drawn = random.Random(f"{wakes} {usual_us} {long_s}")
    thread = contention.Thread("sc-tcp", 0, 0.0, (0, 0, 0), 0.0, (0, 0, 0))
    for n in range(400):
        short = sum(drawn.expovariate(1e6 / usual_us) for _ in range(wakes))
        waited = short + (long_s if n % 10 == 0 else 0.0)
        thread.samples.append((SAMPLE_S, round(1e9 * waited), wakes))
    found = thread.disturbed_s / (400 * SAMPLE_S)
    if long_s > 2 * LONG_WAIT_S:
        assert 0.1 <= found < 0.11
    else:
        assert found < 0.01


def test_a_program_that_sleeps_is_not_disturbed_on_any_machine() -> None:
    with running("import time; time.sleep(20)") as (pid,):
        time.sleep(0.5)
        told = observed(Load(), pid)
    assert (told["unread"], told["disturbed"], told["waited"]) == (None, 0.0, 0.0)
    assert told["ran_s"] < 0.5


def test_threads_of_children_are_observed_and_what_has_ended_is_no_gap_in_the_evidence() -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURSTS!r}])"
    load = Load()
    with running(parent) as (pid,):
        told = observed(load, pid)
        assert told["ran_s"] > 0.01
    end = time.monotonic() + 10
    while load.threads and time.monotonic() < end:
        observed(load, pid, SAMPLE_S)
    assert (load.threads, load.told()["unread"]) == ({}, None)


def test_what_can_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str, *_: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    load = Load()
    monkeypatch.setattr(os, "open", closed)
    load.find(os.getpid(), 0.0)
    assert str(load.told()["unread"]).startswith(f"/proc/{os.getpid()}/task/")
    assert "Permission denied" in str(load.told()["unread"])


def test_real_time_work_of_others_is_found_and_the_judgements_own_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCHED_BATCH stands for a real-time policy, because any user may choose it."""
    monkeypatch.setattr(contention, "_REALTIME", {os.SCHED_BATCH: "SCHED_BATCH"})
    with running(BURSTS, policy=os.SCHED_BATCH) as (pid,):
        others, own = Machine(emulation=1 << 22), Machine(emulation=os.getpid())
        cells = Machine(emulation=1 << 22, judge=os.getpid())
        for machine in (others, own, cells):
            machine.begin(time.monotonic())
        time.sleep(OBSERVED_S)
        for machine in (others, own, cells):
            machine.scan()
        found, mine, parallel = (machine.told(time.monotonic()) for machine in (others, own, cells))
    (row,) = (each for each in found["realtime"] if each["process"] == pid)
    assert (row["policy"], row["priority"]) == ("SCHED_BATCH", 0)
    # Bursts of 5 ms, of which 30 fit into the observed time; on a busy machine fewer.
    assert 0.02 < row["ran_s"] < 0.3
    for told in (mine, parallel):
        assert pid not in [each["process"] for each in told["realtime"]]
    assert found["unread"] is None
    assert found["processors"] >= 1


# ---------------------------------------------------------------- the verdict

QUIET = {"ran_s": 4.0, "counted_ran_s": 4.0, "unread": None, "waited": 0.01, "disturbed": 0.0}
MACHINE: dict[str, Any] = {
    "unread": None,
    "span_s": 20.0,
    "processors": 2,
    "busy_s": 6.0,
    "stolen_s": 0.0,
    "realtime": [],
}
OTHER = {"process": 7, "name": "sc-relay", "policy": "SCHED_FIFO", "priority": 2, "ran_s": 0.0}


def crew(folder: Path, load: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    made = cell(folder, [*offers(20, 100)])
    rows = [
        {"what": "load", "program": "send", **QUIET, **load},
        {"what": "emulation", **QUIET},
        {"what": "machine", **MACHINE, **machine},
    ]
    with (folder / "crew.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return [*doubts(made, {"trustworthy": True})]


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize(("key", "bound"), [("waited", WAITED), ("disturbed", DISTURBED)])
def test_a_program_may_wait_up_to_the_bound(tmp_path: Path, key: str, bound: float, factor: float) -> None:
    found = crew(tmp_path, {key: factor * bound}, {"busy_s": 30.0})
    assert len(found) == (factor > 1)
    if found:
        # 30 s minus 8 s of the cell, in 20 s.
        assert "send waited" in found[0]
        assert "other programs used 1.1 of 2 processors; end them" in found[0]


def test_waits_that_the_cell_caused_itself_have_another_remedy(tmp_path: Path) -> None:
    (found,) = crew(tmp_path, {"disturbed": 0.5}, {"busy_s": 9.0})
    assert "the cell itself used 0.4 of 2 processors; use more processors" in found


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_real_time_work_and_stolen_time_cast_doubt_beyond_the_bound(tmp_path: Path, factor: float) -> None:
    seconds = factor * TAKEN * 20.0 * 2
    (tmp_path / "realtime").mkdir()
    (tmp_path / "stolen").mkdir()
    realtime = crew(tmp_path / "realtime", {}, {"realtime": [{**OTHER, "ran_s": seconds}]})
    stolen = crew(tmp_path / "stolen", {}, {"stolen_s": seconds})
    assert len(realtime) == len(stolen) == (factor > 1)
    if realtime:
        assert "process 7 (another emulation, sc-relay, SCHED_FIFO, priority 2); end it" in realtime[0]
        assert "hypervisor" in stolen[0]


def test_evidence_that_can_not_be_read_makes_a_cell_unknown() -> None:
    rows: list[dict[str, Any]] = [
        {"what": "load", "program": "send", **QUIET},
        {"what": "machine", **MACHINE},
    ]
    assert [*unread(rows)] == []
    assert not cause(rows).certain
    closed = "/proc/9/task/9/schedstat: Permission denied"
    rows[0]["unread"] = closed
    assert [*unread(rows)] == [f"whether send was disturbed is unknown: {closed}"]
    assert "missing" in [*unread(rows[:1])][-1]


def test_a_wait_is_long_if_a_delay_changes_by_more_than_its_tolerance() -> None:
    assert COLUMNS["delay_p95_ms"].floor == 1e3 * LONG_WAIT_S
