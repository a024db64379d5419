"""The reduction of several numbers to one, and invalid files."""

from __future__ import annotations

import pytest
from steadycast.errors import UserError

from papers.engine import quantity, take
from papers.engine.observe import Flow, Observed
from papers.engine.quantity import Seen, term
from papers.engine.take import Take


def flow(rates: list[float | None]) -> Flow:
    return Flow({"rates": rates, "targets": rates, "step_s": 1.0, "first_s": 0.0, "throughput_bps": 1.0})


def seen(**rates: list[float]) -> Seen:
    return {
        name: Observed({"flows": {"video": flow([*each]).content}, "to_s": 1.0})
        for name, each in rates.items()
    }


def taken(name: str, *of: str | float, over: tuple[float, ...] = ()) -> Take:
    return Take(name, (tuple(term(x) if isinstance(x, str) else x for x in of),), over)


def test_a_rank_correlation_is_one_where_both_rise_and_shares_ranks_of_ties() -> None:
    assert take.rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1.0)
    assert take.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert take.rank_correlation([1, 2, 3], [5, 5, 9]) == pytest.approx(0.8660254)
    assert take.rank_correlation([1, 2, 3], [5, 5, 5]) is None


@pytest.mark.parametrize("name", ["video.deviation(0, 10)", "video.swing(0)"])
def test_a_coefficient_of_variation_is_the_one_of_the_runs_summary(name: str) -> None:
    def of(*rates: float) -> float | None:
        return term(f"one.{name}")(seen(one=[*rates]))

    assert of(1.0, 3.0, 5.0) == pytest.approx(2 / 3)  # √(8 / 2) / 3
    assert of(1.0) is None
    assert of(0.0, 0.0) is None


def test_the_least_step_is_negative_where_something_falls() -> None:
    assert take.least_step([1.0, 4.0, 5.0]) == 1.0
    assert take.least_step([1.0, 4.0, 3.5]) == -0.5


def test_table_1_of_paper_002_is_its_formula_with_k_of_one_and_a_half() -> None:
    for p, (rtt, rate) in take.TABLE_1.items():
        assert take.table_1_rate(p, rtt) == pytest.approx(rate, rel=1e-4)


def test_ratios_and_differences_are_missing_where_one_side_is() -> None:
    a, b = "a.video.mean(0, 2)", "b.video.mean(0, 2)"
    both = seen(a=[4.0, 6.0], b=[2.0, 3.0])
    assert taken("value", a)(both) == 5.0
    assert taken("ratio", a, b)(both) == 2.0
    assert taken("difference", a, b)(both) == 2.5
    assert taken("ratio", a, 10.0)(both) == 0.5
    none = seen(a=[4.0, 6.0], b=[])
    assert taken("ratio", a, b)(none) is None
    assert taken("median", a, b)(none) is None
    assert taken("ratio", a, b)(seen(a=[4.0, 6.0], b=[0.0, 0.0])) is None


def test_combinators_of_several_rows_and_of_x() -> None:
    one = seen(a=[1.0], b=[3.0], c=[6.0])
    rows = tuple(tuple(term(f"{v}.video.mean(0, 1)") for v in each) for each in ("ab", "bc"))
    assert Take("least step", rows)(one) == 2.0
    assert Take("least difference", rows)(one) == -3.0
    assert Take("largest ratio", rows)(one) == 0.5
    row = rows[0] + rows[1][1:]
    assert Take("rank correlation", (row,), (1.0, 2.0, 3.0))(one) == pytest.approx(1.0)
    assert Take("rank correlation", (row[:1] * 3,), (1.0, 2.0, 3.0))(one) == 0.0
    assert Take("bend", (row,), (0.0, 1.0, 2.0))(one) == 1.5
    assert Take("least step", rows).variants == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "rows", "over", "says"),
    [
        ("ration", 1, (), "no such combinator"),
        ("ratio", 1, (), "1 numbers; it takes 2"),
        ("least difference", 1, (), "1 lists of numbers; it takes 2"),
        ("rank correlation", 1, (), "one x for each number"),
        ("value", 1, (1.0,), "it takes no x"),
    ],
)
def test_a_combinator_says_what_it_takes(name: str, rows: int, over: tuple[float, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Take(name, ((term("a.video.rate"),),) * rows, over)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tfmcc", "no number of a variant"),
        ("tfmcc.video.rat", 'there is no number "rat"'),
        ("tfmcc.rate", "name the flow before it"),
        ("tfmcc.video.jain", "leave the flow out"),
        ("tfmcc.video.mean(20)", "mean takes start, end, series"),
        ("tfmcc.video.mean(20, 60, rates, 4)", "4 arguments"),
        ("tfmcc.video.mean(20, sixty)", '"sixty" is no number'),
        ("tfmcc.video.mean(20, 60, rats)", 'there is no series "rats"'),
        ("raw.video.worst_receiver(slow, jitter)", 'there is no figure "jitter"'),
    ],
)
def test_a_number_that_does_not_exist_is_an_error_when_it_is_read(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        term(text)


def test_a_name_of_a_variant_may_hold_spaces_and_points() -> None:
    found = term("eaio-tfrc 0.02.video.mean_share(3000, 9000, 1e6)")
    assert (found.variant, str(found.quantity)) == ("eaio-tfrc 0.02", "video.mean_share(3000, 9000, 1000000)")
    assert str(term("two.jain_of(video, second)")) == "two.jain_of(video, second)"


def test_a_flow_that_a_run_does_not_have_is_no_missing_value_but_an_error() -> None:
    with pytest.raises(KeyError, match="vidio"):
        term("a.vidio.mean(0, 1)")(seen(a=[1.0]))
    with pytest.raises(KeyError, match="second"):
        term("a.jain_of(video, second)")(seen(a=[1.0]))


def test_b_min_is_what_is_played_in_a_round_trip_and_b_max_what_comes_in_a_second_beyond_it() -> None:
    content = {"rates": [8e3, 24e3, 16e3, 16e3], "step_s": 0.5, "decisions": DECIDED}
    buffer = Flow(content)
    assert quantity.least_level(buffer, 8000, 1000) == pytest.approx(0.025)
    assert quantity.most_level(buffer, 8000, 1000) == pytest.approx(1.0)


DECIDED = {
    "rules": ["stable"],
    "t_s": [2.0, 3.0],
    "rule": [0, 0],
    "loss": [None, None],
    "rtt_ms": [20.0, 30.0],
}
