"""The text of a judgement, what is kept of an earlier one, and its bounds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steadycast.errors import UserError
from steadycast.judge import pair as pairs
from steadycast.judge import show, text
from steadycast.judge.cell import Outcome

from .test_pair import GOOD

FIGURES = {
    "in_time_frac": 0.604,
    "freezes_per_min": 32.2,
    "frozen_frac": 0.004,
    "damaged_frac": 0.123,
    "delay_p95_ms": 312.0,
    "throughput_bps": 3.312e6,
    "tcp_share_of_fair": 0.334,
    "loss_frac": 0.0204,
    "silent_s": 0.41,
    "recover_s": None,
}


def judged(
    *figures: dict[str, Any], doubts: tuple[str, ...] = (), expect: Any = (), **more: Any
) -> text.Judgement:
    pair = pairs.of({**GOOD, "expect": list(expect)}, "", "pair")
    runs = [Outcome("cable", n, each, "picture", doubts=doubts) for n, each in enumerate(figures, 1)]
    lost = {"reason": "not-ready", "program": "receive", "detail": "udp:5004 after 10 s", "log": ["x"]}
    runs.append(Outcome("geo", 1, failed=lost))
    return text.Judgement(pair, {"cable": "1", "geo": "2"}, runs, {}, **more)


def lines(judgement: text.Judgement, old: str | None = None) -> list[list[str]]:
    return [line.split() for line in text.text(judgement, old).splitlines() if not line.startswith("#")]


def test_a_line_has_each_figure_as_it_is_rounded() -> None:
    head, cable, geo = lines(judged(FIGURES))
    assert dict(zip(head, cable, strict=True)) == {
        "network": "cable",
        "in-time%": "60",
        "freezes/min": "32",
        "frozen%": "0.5",
        "damaged%": "12",
        "delay95": "310ms",
        "rate": "3.3M",
        "tcp%": "34",
        "lost%": "2.0",
        "quiet": "0.4s",
        "recover": "never",
        "by": "p",
        "trust": "1/1",
    }
    assert " ".join(geo) == "geo failed: not-ready (receive: udp:5004 after 10 s)"


def test_the_worst_of_the_runs_counts_by_its_direction() -> None:
    worse = {**FIGURES, "in_time_frac": 0.5, "frozen_frac": 0.03, "tcp_share_of_fair": 0.8, "recover_s": 1.2}
    worst = judged(FIGURES, worse).worst("cable")
    assert (worst["in_time_frac"], worst["frozen_frac"], worst["tcp_share_of_fair"]) == (0.5, 0.03, 0.334)
    assert worst["recover_s"] is None


def test_figures_in_doubt_are_marked_and_not_known() -> None:
    one = judged(FIGURES, doubts=("busy",))
    assert lines(one)[1][1:3] == ["60?", "32?"]
    assert lines(one)[1][-1] == "0/1"
    assert one.known("cable", "frozen_frac") is None
    assert judged(FIGURES, doubts=("busy",), anyway=True).known("cable", "frozen_frac") == 0.004


@given(step=st.floats(-1.9, 1.9))
def test_a_figure_near_the_old_one_stays_and_the_text_is_the_same(step: float) -> None:
    old = text.text(judged(FIGURES))
    # 60 in the text has a tolerance of two points around it.
    assert text.text(judged({**FIGURES, "in_time_frac": (60.0 + step) / 100}), old) == old
    changed = {**FIGURES, "in_time_frac": (63.0 + abs(step)) / 100}
    assert text.text(judged(changed), old) != old


def test_former_names_stand_for_the_names_and_units_of_today(tmp_path: Path) -> None:
    one = judged(FIGURES, expect=[{"network": "cable", "that": "in_time_pct", "min": 60}])
    assert [(each["that"], each["min"], each["ok"]) for each in text.expectations(one)] == [
        ("in_time_frac", 0.6, True)
    ]
    old = {"network": "cable", "worst": {"frozen_pct": 0.4, "rate_bps": 4e6, "longest_freeze_s": 0.5}}
    was = tmp_path / "was.json"
    was.write_text(json.dumps({"cells": [old]}))
    now = judged({**FIGURES, "frozen_frac": 0.05, "longest_freeze_ms": 700.0})
    bounds = ["cable.frozen_pct>4", "cable.frozen_pct>5", "cable.rate_bps<-10%", "cable.longest_freeze_s>0.1"]
    found = text.conditions(now, bounds, was)
    assert [each["ok"] for each in found] == [False, True, False, False]
    assert [each["was"] for each in found] == pytest.approx([0.004, 0.004, 4e6, 500.0])


@given(values=st.lists(st.floats(0, 1e9), min_size=10, max_size=10))
def test_any_text_is_read_again_as_the_same(values: list[float]) -> None:
    figures = dict(zip(FIGURES, values, strict=True))
    old = text.text(judged(figures))
    assert text.text(judged(figures), old) == old


def test_runs_that_differ_widely_keep_the_old_text() -> None:
    old = text.text(judged(FIGURES, FIGURES))
    apart = [{**FIGURES, "in_time_frac": value} for value in (0.52, 0.64)]
    assert text.text(judged(*apart), old) == old


def baseline(tmp_path: Path, judgement: text.Judgement) -> Path:
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(text.as_json(judgement, [], [])))
    return path


def test_a_change_beyond_a_bound_fails_and_one_within_does_not(tmp_path: Path) -> None:
    was = baseline(tmp_path, judged(FIGURES))
    now = judged({**FIGURES, "frozen_frac": 0.05})
    for condition, fails in (
        ("cable.frozen_frac>0.05", False),
        ("cable.frozen_frac>0.04", True),
        ("*.frozen_frac>0.04", True),
    ):
        found = text.conditions(now, [condition], was)
        assert any(not each["ok"] for each in found if each["network"] == "cable") is fails, condition
    assert [each["network"] for each in text.conditions(now, ["*.throughput_bps<-10%"], was)] == ["cable"]
    doubted = judged({**FIGURES, "frozen_frac": 0.05}, doubts=("busy", "late"))
    found = text.conditions(doubted, ["cable.frozen_frac>0.05"], was)
    assert "--anyway" in text.fails(doubted, found, [])[-1]
    assert text.doubted(doubted) == ["cable is not to be trusted: busy"]


def test_bounds_that_can_t_be_judged_are_refused_before_anything_runs(tmp_path: Path) -> None:
    was = baseline(tmp_path, judged(FIGURES))
    for fail_if, base, remedy in (
        (["cable.frozen_frac>0.05"], None, "--baseline"),
        (["cble.frozen_frac>5"], was, 'did you mean "cable"?'),
        (["frozen"], was, "PATH<CHANGE"),
        (["cable.frozn_frac>5"], was, 'did you mean "frozen_frac"?'),
    ):
        with pytest.raises(UserError, match=remedy):
            text.check(["cable", "geo"], fail_if, base)


def test_what_is_expected_is_judged_for_the_networks_that_are_there() -> None:
    expect = [
        {"network": "cable", "that": "tcp_share_of_fair", "min": 0.5},
        {"network": "*", "that": "frozen_frac", "max": 0.01},
        {"network": "leo", "that": "frozen_frac", "max": 0.01},
    ]
    found = text.expectations(judged(FIGURES, expect=expect))
    assert [(e["network"], e["that"], e["ok"]) for e in found] == [
        ("cable", "tcp_share_of_fair", False),
        ("cable", "frozen_frac", True),
    ]
    fails = text.fails(judged(FIGURES, expect=expect), [], found)
    assert fails[1] == "cable: tcp_share_of_fair is 0.334, expected min 0.5"
    assert fails[0].startswith("geo failed: not-ready")
    assert fails[0].endswith(": x")


def test_the_page_has_every_network_and_loads_nothing() -> None:
    series = {
        "rate_bps": [1e6, 2e6],
        "delay_ms": [20.0, None],
        "capacity_bps": [3e6, 3e6],
        "tcp_bps": [],
        "gaps_s": [[0.5, 0.9]],
    }
    one = judged(FIGURES)
    runs = [Outcome("cable", 1, FIGURES, "picture", series=series), one.outcomes[1]]
    page = show.page(replace(one, outcomes=runs), [], text.expectations(one))
    assert "not-ready" in page
    assert "<svg" in page
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*', page) == []
