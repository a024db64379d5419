"""RFC 8868's measures of series whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from steadycast.experiment import rfc8868 as measure
from steadycast.experiment.rfc8868 import Facts, Flow

STEP = 0.2


def facts(
    rates: dict[str, Any],
    *,
    active: dict[str, tuple[tuple[float, float], ...]] | None = None,
    capacity: Any = 2e6,
    changes: tuple[float, ...] = (),
    most: float = 1.5e6,
) -> Facts:
    """Videos with these rates over 100 s, and a bottleneck that carries nothing else."""
    steps = round(100 / STEP)
    at = np.arange(steps) * STEP
    received = {
        name: np.asarray([rate(t) if callable(rate) else rate for t in at], dtype=np.float64)
        for name, rate in rates.items()
    }
    whole = {name: ((0.0, 100.0),) for name in rates} | (active or {})
    flows = tuple(Flow(name, "video", most, whole[name]) for name in rates)
    can = np.asarray([capacity(t) if callable(capacity) else capacity for t in at], dtype=np.float64)
    carried = np.sum(list(received.values()), axis=0)
    return Facts(STEP, flows, received, {"bottleneck": carried}, {"bottleneck": can}, changes)


def test_use_counts_what_the_flows_could_have_sent_where_the_link_could_carry_more() -> None:
    assert measure.use(facts({"a": 1e6}, capacity=2e6), "bottleneck") == pytest.approx(1e6 / 1.5e6)
    assert measure.use(facts({"a": 1e6}, capacity=1.25e6), "bottleneck") == pytest.approx(0.8)
    assert measure.use(facts({"a": 0.5e6, "b": 0.5e6}, capacity=2e6), "bottleneck") == pytest.approx(0.5)


def test_the_time_to_a_steady_rate_is_told_for_each_change() -> None:
    # The rate rises linearly from 1 to 1.5 Mb/s in 8 s. 80 % of the final rate, the lower end of the band, is 1.2
    # Mb/s.
    found = measure.convergence(
        facts({"a": lambda t: min(1e6 + max(t - 40, 0) / 8 * 0.5e6, 1.5e6)}, changes=(40.0,))
    )
    assert [begin for begin, _ in found] == [0.0, 40.0]
    assert found[0][1] == pytest.approx(0.0)
    assert found[1][1] is not None
    assert 2.0 < found[1][1] < 4.0
    never = facts({"a": lambda t: 1e6 if (t // 10) % 2 else 0.2e6})
    assert measure.slowest(never) is None


def test_steps_that_are_too_short_to_become_steady_are_left_out() -> None:
    short = facts({"a": 1e6}, changes=(40.0, 45.0))
    assert [begin for begin, _ in measure.convergence(short)] == [0.0, 45.0]


def test_fairness_is_the_share_of_windows_within_a_factor_of_three() -> None:
    assert measure.fairness(facts({"a": 0.9e6, "b": 0.31e6}), 1) == 1.0
    assert measure.fairness(facts({"a": 0.9e6, "b": 0.29e6}), 1) == 0.0
    turns = facts(
        {"a": lambda t: 0.9e6 if (t // 2) % 2 else 0.1e6, "b": lambda t: 0.1e6 if (t // 2) % 2 else 0.9e6}
    )
    assert measure.fairness(turns, 1) == 0.0
    assert measure.fairness(turns, 20) == 1.0
    assert measure.fairness(facts({"a": 1e6}), 1) is None


def test_pauses_and_the_first_seconds_after_a_start_are_nobodys_least_rate() -> None:
    gap = facts(
        {"a": lambda t: 0.0 if 40 <= t < 65 or t < 5 else 1e6}, active={"a": ((0.0, 40.0), (60.0, 100.0))}
    )
    assert measure.least(gap, 5) == pytest.approx(1e6)
    hole = facts({"a": lambda t: 0.0 if 50 <= t < 53 else 1e6})
    least = measure.least(hole, 5)
    assert least is not None
    assert 0.4e6 <= least < 0.8e6


def test_swings_are_told_from_a_steady_rate() -> None:
    assert measure.variation(facts({"a": 1e6})) == pytest.approx(0.0)
    swing = measure.variation(facts({"a": lambda t: 1e6 if int(t) % 2 else 0.5e6}))
    assert swing == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize(("seconds", "known"), [(0.05, False), (0.2, True), (90.0, True), (200.0, False)])
def test_windows_that_are_shorter_than_a_step_or_longer_than_the_run_give_no_value(
    seconds: float, known: bool
) -> None:
    two = facts({"a": 1e6, "b": 1e6})
    assert (measure.least(two, seconds) == 1e6) is known
    assert measure.fairness(two, seconds) == (1.0 if known else None)
    assert known or measure.least(two, seconds) is None
