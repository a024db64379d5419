"""Numbers that statements take from runs, against runs made by hand."""

from __future__ import annotations

import pytest

from papers.engine import measure
from papers.engine.experiment import Seen
from papers.engine.observe import Flow, Observed


def flow(rates: list[float | None], first_s: float = 0.0, step_s: float = 1.0) -> Flow:
    return Flow(
        {"rates": rates, "targets": rates, "step_s": step_s, "first_s": first_s, "throughput_bps": 1.0}
    )


def seen(**rates: list[float]) -> Seen:
    return {
        name: Observed({"flows": {"video": flow([*each]).content}, "to_s": 1.0})
        for name, each in rates.items()
    }


def test_a_stretch_of_a_series_counts_from_the_flows_first_step_and_leaves_gaps_out() -> None:
    late = flow([1.0, 2.0, None, 4.0], first_s=30.0)
    assert late.between("rates", 30.0, 32.0) == [1.0, 2.0]
    assert late.between("rates", 20.0, 34.0) == [1.0, 2.0, 4.0]
    # What the sender decides is counted from the start of the run.
    assert late.between("targets", 0.0, 2.0) == [1.0, 2.0]
    assert flow([1.0, 2.0, 3.0], step_s=10.0).between("rates", 10.0, 30.0) == [2.0, 3.0]


def test_means_deviations_and_steps_of_a_stretch() -> None:
    x = flow([9.0, 1.0, 3.0, 2.0, 9.0])
    assert measure.mean(1.0, 4.0)(x) == 2.0
    assert measure.deviation(1.0, 4.0)(x) == pytest.approx(0.40825, abs=1e-5)
    assert measure.lowest(0.0, 5.0)(x) == 1.0
    assert measure.steepest(0.0, 4.0)(x) == 8.0
    assert measure.highest_rise(0.0, 4.0)(x) == 2.0
    assert measure.mean(10.0, 12.0)(x) is None


def test_the_time_until_a_condition_holds_is_the_whole_stretch_where_it_never_does() -> None:
    x = flow([5.0, 4.0, 1.0, 1.0])
    assert measure.after(0.0, 4.0, lambda v: v < 2.0)(x) == 2.0
    assert measure.after(0.0, 4.0, lambda v: v < 0.0)(x) == 4.0


def test_ratios_and_extremes_are_missing_where_one_side_is() -> None:
    a, b = (measure.of(name, measure.mean(0.0, 2.0)) for name in ("a", "b"))
    both = seen(a=[4.0, 6.0], b=[2.0, 3.0])
    assert measure.ratio(a, b)(both) == 2.0
    assert measure.less(a, b)(both) == 2.5
    assert (measure.least([a, b])(both), measure.most([a, b])(both)) == (2.5, 5.0)
    none = seen(a=[4.0, 6.0], b=[])
    assert measure.ratio(a, b)(none) is None
    assert measure.least([a, b])(none) is None
    assert measure.ratio(a, b)(seen(a=[4.0, 6.0], b=[0.0, 0.0])) is None


def test_jains_index_is_one_for_equals_and_a_half_for_one_of_two() -> None:
    assert measure.jain([1.0, 1.0]) == 1.0
    assert measure.jain([1.0, 0.0]) == 0.5
    assert measure.jain([0.0, 0.0]) == 1.0
