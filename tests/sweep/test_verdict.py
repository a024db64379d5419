"""A sweep's recommendations from given runs: none due to chance, and none twice for equal values."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc
from steadycast.report import choice
from steadycast.report.choice import Candidate
from steadycast.sweep import Sweep
from steadycast.sweep.show import summaries

SCENARIO = """
format = 1
name = "verdict"
duration = "25s"
warmup = "5s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "3Mbps", delay = "20ms", queue = "100ms" }
[[flow]]
name = "video"
kind = "video"
controller = "steady"
media = "rfc8593"
rfc8593 = { r_max = "8Mbps" }
playout = "adaptive"
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
start = { uniform = ["0s", "2s"] }
send_jitter = "1ms"
"""
CONTROLLER, RATE, QUEUE = "flow.video.controller", "topology.bottleneck.rate", "topology.bottleneck.queue"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    file = tmp_path_factory.mktemp("verdict") / "verdict.toml"
    file.write_text(SCENARIO)
    over = {
        CONTROLLER: ["steady", "tfrc", "gcc", "scream"],
        RATE: ["2Mbps", "6Mbps"],
        QUEUE: ["40ms", "200ms"],
    }
    return sc.sweep(file, over, seeds=range(1, 7))


def test_of_thirty_drawn_pairs_that_differ_by_the_seed_alone_at_most_one_is_recommended(done: Sweep) -> None:
    """Controllers, networks, seeds and their number are drawn. The bound of 95 % is the guarantee of the rule."""
    chance, runs, taken = random.Random(42), summaries(done), []
    for _ in range(30):
        point = chance.choice(sorted(runs))
        count = chance.choice([1, 1, 2, 3])
        seeds = chance.sample(sorted(runs[point]), 2 * count)
        pair = [
            choice.candidate(name, {seed: runs[point][seed] for seed in part}, ["video"])
            for name, part in (("a", seeds[:count]), ("b", seeds[count:]))
        ]
        found = choice.verdict(pair)
        assert found.reason in ("alike", "broken", "chance", "decided")
        if found.take:
            taken.append((point, seeds, " ".join(found.said)))
    assert len(taken) <= 1, taken


def test_a_real_difference_with_five_seeds_is_recommended_rightly_nine_times_in_ten(done: Sweep) -> None:
    """Each run is compared with the same run at half a point less share or score, so the right answer is known."""
    right = all_ = 0
    for _, seeds in sorted(summaries(done).items()):
        good = choice.candidate("good", {seed: seeds[seed] for seed in range(1, 6)}, ["video"])
        if good.faults:
            continue  # it must not be recommended at all
        for key in ("share", "rate_score"):
            shifted = {}
            for seed, one in good.samples.items():
                worse: dict[str, Any] = {key: (getattr(one, key) or 0.0) - 0.5}
                shifted[seed] = replace(one, **worse)
            right += list(choice.verdict([Candidate("bad", shifted), good]).take) == ["good"]
            all_ += 1
    assert all_ >= 10
    assert right >= 0.9 * all_, f"{right} of {all_}"


def test_verdicts_stand_in_json_with_the_rule_and_their_spread(done: Sweep) -> None:
    done.report()
    found = json.loads((done.folder / "verdicts.json").read_text())["verdicts"]
    assert len(found) == 4
    for each in found:
        assert each["rule"] == choice.RULE
        assert {one["n"] for one in each["compared"]} == {6}, each["reason"]
        assert all(one["spread"] > 0.0 and one["least_difference"] > 0.0 for one in each["compared"])
    assert [each["take"] for each in done.verdicts()] == [each["take"] for each in found]
    page = (done.folder / "sweep.html").read_text()
    assert "The rule has six criteria, in this order" in page
    assert "rate score" in page
    assert "flows.video.receivers.*.rate_score" in done.metrics()


@pytest.mark.parametrize("spelled", [["1Mbps", "1000kbps"], ["1000kbps", "2Mbps", "1Mbps", "1000000bps"]])
def test_values_that_make_the_same_scenario_are_one_and_no_row_is_empty(
    tmp_path: Path, spelled: list[str]
) -> None:
    file = tmp_path / "verdict.toml"
    file.write_text(SCENARIO.replace('"25s"', '"6s"'))
    done = sc.sweep(file, {RATE: spelled, "duration": ["6s", "6000ms"]}, seeds=[1, 2], out=tmp_path / "out")
    different = ["1Mbps"] if len(spelled) == 2 else ["1000kbps", "2Mbps"]
    assert sorted(set(done.results[RATE])) == sorted(different)
    assert done.results.height == done.ran == 2 * len(different)
    assert done.results["flows.video.throughput_bps"].null_count() == 0
    left_out = set(spelled) - set(different)
    notes = done.plan.notes()
    assert len(notes) == len(left_out) + 1
    assert all(any(value in note and different[0] in note for note in notes) for value in left_out)
    # Another spelling in a later call makes no new run, and its row is not empty either.
    again = sc.sweep(file, {RATE: ["1000000bps"], "duration": ["6s"]}, seeds=[1, 2], out=tmp_path / "out")
    assert again.ran == 0
    assert again.results["flows.video.throughput_bps"].null_count() == 0
    assert again.missing == 0


def test_values_that_are_the_same_at_one_point_of_another_axis_share_its_run(tmp_path: Path) -> None:
    """2Mbps and 2000kbps are the same rate. Both remain as values, because the second one also has another duration."""
    file = tmp_path / "verdict.toml"
    file.write_text(SCENARIO.replace('"25s"', '"6s"'))
    design = tmp_path / "design.csv"
    design.write_text(f"{RATE},duration\n2Mbps,6s\n2000kbps,6s\n2000kbps,7s\n")
    done = sc.sweep(file, table=design, seeds=[1, 2])
    assert (done.ran, done.results.height, done.missing) == (4, 6, 0)
    assert done.results["flows.video.throughput_bps"].null_count() == 0
