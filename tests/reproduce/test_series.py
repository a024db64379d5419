"""Numbers of statements, computed from runs made by hand."""

from __future__ import annotations

import pytest

from papers.engine import draw, quantity
from papers.engine.observe import Flow


def flow(rates: list[float | None], first_s: float = 0.0, step_s: float = 1.0) -> Flow:
    return Flow(
        {"rates": rates, "targets": rates, "step_s": step_s, "first_s": first_s, "throughput_bps": 1.0}
    )


def test_a_stretch_of_a_series_counts_from_the_flows_first_step_and_leaves_gaps_out() -> None:
    late = flow([1.0, 2.0, None, 4.0], first_s=30.0)
    assert late.between("rates", 30.0, 32.0) == [1.0, 2.0]
    assert late.between("rates", 20.0, 34.0) == [1.0, 2.0, 4.0]
    # The sender's decisions are counted from the start of the run.
    assert late.between("targets", 0.0, 2.0) == [1.0, 2.0]
    assert flow([1.0, 2.0, 3.0], step_s=10.0).between("rates", 10.0, 30.0) == [2.0, 3.0]


def test_means_deviations_and_steps_of_a_stretch() -> None:
    x = flow([9.0, 1.0, 3.0, 2.0, 9.0])
    assert quantity.mean(x, 1.0, 4.0) == 2.0
    assert quantity.deviation(x, 1.0, 4.0) == pytest.approx(0.5)  # over n - 1
    assert quantity.lowest(x, 0.0, 5.0) == 1.0
    assert quantity.steepest(x, 0.0, 4.0) == 8.0
    assert quantity.highest_rise(x, 0.0, 4.0) == 2.0
    assert quantity.mean(x, 10.0, 12.0) is None


def test_the_time_until_a_condition_holds_is_the_whole_stretch_where_it_never_does() -> None:
    x = flow([5.0, 4.0, 1.0, 1.0])
    assert quantity._after(x, 0.0, 4.0, lambda v: v < 2.0) == 2.0
    assert quantity._after(x, 0.0, 4.0, lambda v: v < 0.0) == 4.0


def test_jains_index_is_one_for_equals_and_a_half_for_one_of_two() -> None:
    assert quantity.jain_index([1.0, 1.0]) == 1.0
    assert quantity.jain_index([1.0, 0.0]) == 0.5
    assert quantity.jain_index([0.0, 0.0]) == 1.0


def test_an_estimated_loss_holds_from_one_decision_to_the_next() -> None:
    decided = {"rules": ["a", "b"], "t_s": [0.5, 2.0, 4.4], "rule": [0, 1, 1], "loss": [None, 0.1, 0.2]}
    content = {"step_s": 1.0, "targets": [0.0] * 6, "decisions": {**decided, "rtt_ms": [None, 1.0, 1.0]}}
    known = draw._estimates(Flow(content))
    assert known[2:] == [0.1, 0.1, 0.2, 0.2]
    assert all(x != x for x in known[:2])
