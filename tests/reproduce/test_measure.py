"""Numbers that statements are made of."""

from __future__ import annotations

import pytest

from papers import h
from papers.engine import measure


def test_a_rank_correlation_is_one_where_both_rise_and_shares_ranks_of_ties() -> None:
    assert measure.rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1.0)
    assert measure.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert measure.rank_correlation([1, 2, 3], [5, 5, 9]) == pytest.approx(0.8660254)
    assert measure.rank_correlation([1, 2, 3], [5, 5, 5]) is None


def test_a_variation_is_the_deviation_over_the_mean() -> None:
    assert measure.variation([1.0, 3.0]) == pytest.approx(0.5)
    assert measure.variation([]) is None
    assert measure.variation([0.0, 0.0]) is None


def test_the_least_step_is_negative_where_something_falls() -> None:
    assert measure.least_step([1.0, 4.0, 5.0]) == 1.0
    assert measure.least_step([1.0, 4.0, 3.5]) == -0.5


def test_table_1_of_paper_002_is_its_formula_with_k_of_one_and_a_half() -> None:
    for p, (rtt, rate) in h._TABLE_1.items():
        assert h._formula(p, rtt) == pytest.approx(rate, rel=1e-4)
