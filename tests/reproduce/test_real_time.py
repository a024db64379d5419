"""Experiments in real time: their selection, the number of parallel runs, and the runs that are accepted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from steadycast.errors import MissingError, UserError
from steadycast.progress import Silent

from papers import EXPERIMENTS
from papers.engine import observe, runs, suite, write
from papers.engine.experiment import in_real_time
from papers.engine.runs import Job, key_of, makespan, run_all
from papers.engine.suite import Result

ROOT = Path(__file__).resolve().parents[2]
M_A = ROOT / "papers/scenarios/m-a.toml"
CLIP = Path("film.mkv")


def job(seed: int = 1, **sets: str) -> Job:
    return Job.of(M_A, ({"duration": "10s"}, sets), seed, pixels=False, emulated=True)


class World:
    """Stand-in for emulation: gives the result of each of its runs, in order."""

    def __init__(self, trustworthy: list[bool]) -> None:
        self.trustworthy = trustworthy
        self.began: list[Job] = []

    @contextmanager
    def pool(self, processes: int, nice: int = 0) -> Iterator[World]:
        yield self

    def do(self, jobs: Sequence[Job]) -> Iterator[tuple[int, bytes]]:
        for index, each in enumerate(jobs):
            fine = self.trustworthy[len(self.began)]
            self.began.append(each)
            content = {
                "format": observe.FORMAT,
                "emulation": {"trustworthy": fine},
                "run": len(self.began),
                "warnings": ["flow.tcp.tick: left aside: the kernel's own"],
            }
            yield index, gzip.compress(json.dumps(content).encode())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(runs, "need_rights", lambda: None)
    return tmp_path / "cache"


def world(monkeypatch: pytest.MonkeyPatch, *trustworthy: bool) -> World:
    made = World([*trustworthy])
    monkeypatch.setattr(runs, "workers", made.pool)
    return made


# # ---------------------------------------------------------------- which runs are made


def test_the_emulated_form_of_an_experiment_is_short_and_can_be_read() -> None:
    forms = [(e, *form) for e in EXPERIMENTS for form in in_real_time(e, ())]
    assert {e.id for e, *_ in forms} == {*(f"M-{x}" for x in "ABCDEFG"), "H-L", "C-F"}
    for _, experiment, medium, seeds in forms:
        for each in suite.Plan(experiment, medium, tuple(range(seeds))).jobs(emulated=True):
            assert 60 <= each.load().duration_s <= 600
            assert each.emulated


def test_a_clip_adds_a_run_of_its_own_that_tells_of_pictures_only() -> None:
    (m_f,) = (e for e in EXPERIMENTS if e.id == "M-F")
    (_, _, repeated), (pictures, medium, once) = in_real_time(m_f, (CLIP,))
    assert (repeated, once) == (3, 1)
    assert medium.pixels
    assert all(s.pixels for s in pictures.statements)
    jobs = suite.Plan(pictures, medium, (1,)).jobs(emulated=True)
    assert len(jobs) == len(pictures.variants), "and none with a change"


def test_all_of_it_takes_less_than_forty_minutes_four_at_a_time() -> None:
    plans = suite._emulated(["M", "H-L", "C-F"], (), tuple(range(1, 6)))
    jobs = {key_of(job): job for plan in plans for job in plan.jobs(emulated=True)}
    lengths = [job.load().duration_s for job in jobs.values()]
    assert 20 * 60 < makespan(sorted(lengths, reverse=True), 4) < 33 * 60, "a clip adds five minutes"


def test_what_has_no_emulated_form_is_refused_with_what_has() -> None:
    with pytest.raises(UserError, match=r"M-0: nothing of this can be emulated; there are: M-A, .*H-L, C-F"):
        suite.reproduce(["M-0"], emulated=True)


def test_worlds_are_kept_apart_and_parameters_of_other_controllers_are_not() -> None:
    here = job()
    assert key_of(here) != key_of(Job(here.scenario, here.sets, here.seed, here.pixels, emulated=False))
    other = {"flow.video.params.tfrcp-eai": "{ k = 8 }"}
    own = {"flow.video.params.fixed": '{ rate = "1Mbps" }'}
    assert key_of(job(1, **other)) == key_of(here)
    assert key_of(job(1, **own)) != key_of(here)


# # ---------------------------------------------------------------- when they are made, and which are trusted


def test_a_run_begins_as_soon_as_a_place_is_free() -> None:
    assert makespan([600, 600, 130, 130, 130], 2) == 600 + 130 + 130
    assert makespan([5, 4, 3], 8) == 5
    assert makespan([], 4) == 0


def test_what_comes_too_late_is_run_once_more_after_all_others(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(monkeypatch, False, True, True)
    first, second = job(1), job(2)
    seen = run_all([first, second], Silent())
    assert made.began == [first, second, first]
    assert seen[first].content["run"] == 3
    assert all(each.trustworthy for each in seen.values())
    assert len([*(cache / "reproduce").iterdir()]) == 2


def test_what_comes_too_late_twice_is_told_and_measured_again_the_next_time(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world(monkeypatch, False, True, False)
    first, second = job(1), job(2)
    seen = run_all([first, second], Silent())
    assert [seen[each].trustworthy for each in (first, second)] == [False, True]
    made = world(monkeypatch, True)
    again = run_all([first, second], Silent())
    assert made.began == [first]
    assert again[first].trustworthy


def test_the_longest_run_goes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, True, True, True)
    short, long, middle = (job(1, duration=f"{s}s") for s in (10, 30, 20))
    run_all([short, long, middle], Silent())
    assert made.began == [long, middle, short]


def test_without_the_right_to_emulate_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise MissingError("emulate", "network namespaces are not allowed", "run it as root")

    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    monkeypatch.setattr("steadycast._core.Emulation", refuse)
    made = world(monkeypatch)
    with pytest.raises(MissingError, match=r"emulate: network namespaces .*; run it as root"):
        run_all([job()], Silent())
    assert made.began == []


# ---------------------------------------------------------------- what is written


def test_the_table_has_both_worlds_what_was_left_aside_and_what_is_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = _result(monkeypatch)
    text = write.markdown(result)
    assert "| statement | published | bound | simulated | emulated | verdict | reason |" in text
    line = next(line for line in text.splitlines() if line.startswith("| UDP's throughput "))
    assert (
        "| 5.25 Mb/s | 5.09 … 5.41 Mb/s | 5.20 ± 0.00 Mb/s | 4.00 ± 0.00 Mb/s | does not come out |" in line
    )
    assert "In simulation it comes out." in line
    assert "not trustworthy: fixed, seed 2." in text
    assert "- flow.tcp.tick: left aside: the kernel's own" in text
    heads, rows = write.everything(result)
    assert heads[4:6] == ["simulated", "emulated"]
    assert heads[-2:] == ["verdict", "reason"]
    assert {len(row) for row in rows} == {len(heads)}
    page = write.page(result)
    assert "<th>emulated</th>" in page.replace(' class="text"', "")
    assert "left aside: the kernel&#x27;s own" in page
    (entry,) = (s for s in write.numbers(result)["statements"] if s["statement"] == "udp")
    assert (entry["simulated"]["mean"], entry["measured"]["mean"]) == (5.2e6, 4e6)


def _result(monkeypatch: pytest.MonkeyPatch) -> Result:
    def run_all(jobs: list[Job], *_: Any) -> dict[Job, observe.Observed]:
        return {each: observe.Observed(_content(each)) for each in jobs}

    monkeypatch.setattr(suite, "run_all", run_all)
    return suite.reproduce(["M-A"], seeds=[1, 2], emulated=True)


def _content(job: Job) -> dict[str, Any]:
    def flow(rate: float) -> dict[str, Any]:
        series = {
            "limited_by_frac": {},
            "rates": [rate] * 10,
            "targets": [rate] * 10,
            "first_s": 0.0,
            "step_s": 1.0,
        }
        return {"throughput_bps": rate, "kind": "video", "controller": "fixed", **series}

    return {
        "flows": {"video": flow(4e6 if job.emulated else 5.2e6), "tcp": flow(2e6)},
        "to_s": 10.0,
        "emulation": {"trustworthy": job.seed != 2 or "cubic" in str(job.sets)} if job.emulated else None,
        "warnings": ["flow.tcp.tick: left aside: the kernel's own"] if job.emulated else [],
    }
