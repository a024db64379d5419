"""Calculations that statements are checked against: that they are correct, and the consequences for the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from papers import EXPERIMENTS
from papers.engine import calculate
from papers.engine.calculate import (
    IIAD,
    IIMD,
    History,
    _conditions,
    calculation,
    overall_loss,
    share,
    tfrc_rate,
)
from papers.engine.experiment import Bound, Calculation, Medium, Statement
from papers.engine.observe import Observed
from papers.engine.quantity import term
from papers.engine.take import Take
from papers.engine.verdict import Row, judge, measured


def test_the_equation_has_the_values_of_its_rfc() -> None:
    for p, kbps in ((0.02, 348.80), (0.04, 211.55), (0.06, 148.60), (0.08, 110.42)):
        assert tfrc_rate(p, 0.168) * 8.0 == pytest.approx(kbps, abs=0.01)


def test_a_loss_every_hundred_packets_is_one_per_cent_whatever_number_of_intervals_is_averaged() -> None:
    for times in (1, 3):
        history = History(times)
        assert history.p == 0.0
        for _ in range(40):
            history.current = 100.0
            history.close()
        assert history.p == pytest.approx(0.01)
        history.current = 1000.0
        assert 0.002 < history.p < 0.01


def test_one_connection_worth_n_uses_less_of_a_lossy_link_than_n_and_with_as_many_intervals_does_not() -> (
    None
):
    for seed in (1, 2):
        many, one, smooth = (
            share(replace(IIMD, times=times), 0.02, one=one, seed=seed)
            for times, one in ((1, False), (1, True), (3, True))
        )
        assert 0.94 < many < 0.98
        assert 0.89 < one < 0.95
        assert 0.01 < many - one < 0.07
        assert -0.03 < many - smooth < 0.015


def test_n_of_the_lossless_law_stays_at_one_connection_s_share() -> None:
    assert share(replace(IIAD, queue=100.0), 0.001, one=True) == pytest.approx(0.99, abs=0.02)


def test_a_cap_above_what_is_played_loses_seven_of_eight_and_less_with_company() -> None:
    assert overall_loss(1e6) == pytest.approx(1.0 - (8e3 + 8.0 * 16_384 / 100.0) / 64e3)
    assert overall_loss(20e3) == pytest.approx(0.534, abs=0.01)
    assert overall_loss(8e3, lost=0.3) == pytest.approx(0.3)


def _judged(value: float, calculated: dict[str, float] | None, changed: float | None = None) -> str:
    number = Calculation("test", "a number", lambda: calculated or {}) if calculated else None
    take = Take("value", ((term("a.jain"),),))
    statement = Statement("s", "s", "", "more than 1", take, Bound(1.0), calculation=number)
    seen = [{"a": Observed({"jain": value})}] * 2
    other = None if changed is None else measured(statement, [{"a": Observed({"jain": changed})}] * 2)
    tried = {} if other is None else {"another queue": other}
    found = judge(statement, seen, None, tried)
    return Row(EXPERIMENTS[0], statement, Medium("source", "", {}, pixels=False), found, None, tried).words


def test_a_statement_is_shown_to_be_wrong_only_where_no_condition_keeps_its_bound() -> None:
    wrong = "does not come out (a calculation without our simulator contradicts it too)"
    assert _judged(0.5, None) == "does not come out"
    assert _judged(0.5, {"a": 0.9, "b": 0.2}) == wrong
    assert _judged(0.5, {"a": 1.1, "b": 0.2}) == "does not come out"
    # A calculation does not override a result of our runs, nor one with a change.
    assert _judged(1.5, {"a": 0.9}) == "comes out"
    assert _judged(0.5, {"a": 0.9, "b": 0.2}, changed=0.6) == wrong
    would = "does not come out, but would with “another queue”"
    assert _judged(0.5, {"a": 0.9, "b": 0.2}, changed=1.2) == would


def test_what_the_paper_leaves_open_of_n_connections_is_varied_where_it_leaves_it_open() -> None:
    multiplicative, additive = _conditions(IIMD), _conditions(IIAD)
    assert {many.gamma for many, _ in multiplicative.values()} == {0.5, 0.25, 0.2, 0.15, 0.1}
    assert {one.gamma for _, one in multiplicative.values()} == {0.5}, "the paper's, for EAIO-TFRC"
    assert {many.alpha for many, _ in multiplicative.values()} == {0.25, 0.5, 0.1}
    assert {(many.alpha, many.beta, many.gamma) for many, _ in additive.values()} == {(1.0, 1.0, 0.25)}


def test_every_calculation_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    calculate.show(["loss-trend"])
    said = capsys.readouterr().out
    assert "0.5 Mb/s, 100 ms" in said
    assert len({c.name for c in calculate.ALL}) == len(calculate.ALL)
    assert calculation("loss-trend") is calculate.ALL[-1]
