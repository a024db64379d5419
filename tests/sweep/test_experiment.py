"""Experiment files: the runs, the measures, the verdicts, and the answer to a mistake."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import steadycast as sc
from hypothesis import given
from hypothesis import strategies as st
from steadycast.errors import UserError
from steadycast.experiment import run_experiment
from steadycast.experiment.formula import Formula
from steadycast.experiment.rfc8868 import facts
from steadycast.experiment.runs import _planned
from steadycast.experiment.series import Arrived, Column, Decisions, Frames, Rfc8868, Seconds
from steadycast.experiment.spec import Spec, built_in
from steadycast.experiment.tables import built
from steadycast.experiment.verdict import FAILS, HOLDS, UNKNOWN, UNTESTED
from steadycast.folder import spread
from steadycast.progress import Silent

from tests.conftest import SMALL, Say

DOCS = Path(__file__).resolve().parents[2] / "docs"


def written(folder: Path, rest: str, *, seeds: str = "1-2") -> Path:
    """Write an experiment over the small scenario, with two rates and two controllers."""
    (folder / "small.toml").write_text(SMALL)
    path = folder / "mine.toml"
    path.write_text(
        f"""
question = "Does the rate matter?"
seeds = "{seeds}"
[[scenario]]
name = "small"
file = "small.toml"
[[axis]]
name = "rate"
path = "topology.bottleneck.rate"
values = ["1Mbps", "4Mbps"]
[[variant]]
name = "tfrc"
set = {{ "flow.video.controller" = "tfrc" }}
[[variant]]
name = "asmp"
set = {{ "flow.video.controller" = "asmp" }}
[[measure]]
name = "Mb/s"
value = "flows.video.throughput_bps / 1e6"
{rest}
"""
    )
    return path


BOUND = """
[[bound]]
measure = "Mb/s"
{}
why = "a test"
"""


def test_an_experiment_runs_all_points_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, BOUND.format("max = 3.9"))
    first = run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert first.runs.ran == 2 * 2 * 2
    again = run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert again.runs.ran == 0
    assert again.json()["points"] == first.json()["points"]
    more = run_experiment(path, seeds=(1, 2, 3), out=tmp_path / "out", progress=Silent())
    assert more.runs.ran == 2 * 2
    # A faster link carries more, with either controller.
    means = {
        (dict(point.values)["rate"], point.variant): more.spread(more.spec.measures[0], point) or {}
        for point in more.points
    }
    for variant in ("tfrc", "asmp"):
        assert means["1Mbps", variant]["mean"] < means["4Mbps", variant]["mean"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        *("report.html", "results.csv", "seeds.csv", "bounds.csv", "experiment.json", "experiment.toml")
    }
    assert len((tmp_path / "out" / "seeds.csv").read_text().splitlines()) == 1 + 12


@pytest.mark.parametrize(
    ("bound", "outcome"),
    [
        ("max = 4", HOLDS),
        ("min = 4", FAILS),
        ('max = 4\nover = "each"', HOLDS),
        ('max = 1\nat = { rate = "1Mbps" }', HOLDS),
        ('min = 0.01\nmax = 1\nfraction = 0.5\nvariant = "tfrc"', HOLDS),
        ('max = 4\nover = "interval"', HOLDS),
    ],
)
def test_a_bound_is_judged_as_it_says(tmp_path: Path, bound: str, outcome: str) -> None:
    done = run_experiment(written(tmp_path, BOUND.format(bound)), out=tmp_path / "out", progress=Silent())
    assert {each.outcome for each in done.judgements} == {outcome}
    assert done.failed == (outcome != HOLDS)


def test_an_interval_of_one_seed_is_unknown(tmp_path: Path) -> None:
    path = written(tmp_path, BOUND.format('max = 4\nover = "interval"'), seeds="1")
    done = run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert {each.outcome for each in done.judgements} == {UNKNOWN}


def test_a_bound_that_the_placebo_keeps_is_untested(tmp_path: Path) -> None:
    placebo = '[placebo]\nwhy = "a link that carries half"\nset = { "topology.bottleneck.rate" = "500kbps" }'
    total = '[[measure]]\nname = "total"\nvalue = "sum(flows.*.throughput_bps) / 1e6"\n'
    # No more than 0.5 Mb/s can pass the placebo's link.
    above = '[[bound]]\nmeasure = "total"\nmin = 0.55\nwhy = "a test"\n'
    path = written(tmp_path, total + BOUND.format("max = 4") + above + placebo)
    done = run_experiment(path, out=tmp_path / "out", progress=Silent())
    both = {each.bound.min: each.outcome for each in done.judgements}
    assert both == {None: UNTESTED, 0.55: HOLDS}
    assert "untested" in (tmp_path / "out" / "report.html").read_text()


def test_a_figure_that_no_run_has_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_text(path.read_text().replace("throughput_bps", "thruput_bps"))
    with pytest.raises(UserError, match=r"mine\.toml:\d+: measure Mb/s.*flows\.video\.thruput_bps") as caught:
        run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert "throughput_bps" in caught.value.remedy


def test_a_wrong_change_is_named_with_its_point(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_text(path.read_text().replace('"4Mbps"', '"4 apples"'))
    with pytest.raises(UserError, match="4 apples") as caught:
        run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert "--set" not in str(caught.value)


def test_a_scenario_is_no_experiment_and_is_told_how_to_run(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    with pytest.raises(UserError, match="this is a scenario, not an experiment; steadycast run "):
        Spec.read(path)


def test_a_folder_with_other_results_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(UserError, match="holds"):
        run_experiment(written(tmp_path, ""), out=tmp_path / "out", progress=Silent())
    assert (tmp_path / "out" / "mine").read_text() == "precious"


FIGURES = {"a.b": 4.0, "a.c-d": 2.0, "x.1.y": 1.0, "x.2.y": 3.0, "gone": None}
FIGURES |= {"flows.a.rate": 1.0, "flows.b.c.rate": 2.0, "flows.a.receivers.a.dst1.rate": 10.0}
FIGURES |= {"flows.b.c.receivers.b.c.dst1.rate": 20.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b", 4),
        ("a.b - a.c-d", 2),
        ("2 * (a.b + 1) / 4 - 0.5", 2),
        ("-a.b + 5", 1),
        ("mean(x.*.y)", 2),
        ("sum(flows.*.rate)", 3),
        ("sum(flows.*.receivers.*.rate)", 30),
        ("max(x.*.y, 7)", 7),
        ("jain(x.*.y)", 0.8),
        ("sum(x.*.y) * 1e3", 4000),
        ("a.b / (a.c-d - 2)", None),
        ("gone + 1", None),
        ("if(a.b > 3, a.c-d, gone)", 2),
        ("(a.b >= 4) + (a.b < 4) + 1 <= 2", 1),
        ("quantile(0.5, x.*.y, 9)", 3),
        ("log2(a.b) + sqrt(a.b) + abs(-1) + round(1.6) + floor(1.6)", 8),
        ("sqrt(-a.b)", None),
        ('in("elsewhere", a.b)', None),
        ("count(x.*.y)", 2),
        ("median(1, 5, 2)", 2),
        ("first(nothing, gone, a.b / 0, a.c-d)", 2),
        ("first(nothing, gone)", None),
    ],
)
def test_a_formula_has_the_value_that_arithmetic_gives(text: str, value: float | None) -> None:
    assert Formula.read(text, "here").value(FIGURES) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a +",
            "(a",
            "a b",
            "f(a)",
            "a ^ 2",
            "mean()",
            "1 2",
            "__import__('os')",
            "if(a, b)",
            "in(a, b)",
        ),
        *("rfc8868(least, 0)", "rfc8868(fair, 0.0)"),
        *("seconds(mean, 1, a.b.c)", "seconds(mode, 1, 2, sent.a.b)", "seconds(min, 1, 2, came.a.b)"),
        *(
            "seconds(first_above, 1, 2, sent.a.b)",
            'decisions(sum, "x", 0, 1, a)',
            "decisions(count, x, 0, 1, a)",
        ),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError, match="here"):
        Formula.read(text, "here")


@given(
    st.floats(0, 1000),
    st.sampled_from(["quantile({}, x.*.y)", "seconds(quantile, {}, 0, 9, sent.a.fair_bps)"]),
)
def test_a_level_that_is_not_from_0_to_1_is_refused_before_the_first_run(level: float, text: str) -> None:
    text = text.format(f"{level:.6f}")
    if 0 <= float(f"{level:.6f}") <= 1:
        Formula.read(text, "here")
        return
    with pytest.raises(UserError, match="here") as caught:
        Formula.read(text, "here")
    assert "0.95" in caught.value.remedy


def test_a_negative_level_is_refused() -> None:
    for text in ("quantile(-1, x.*.y)", "seconds(quantile, -1, 0, 9, sent.a.fair_bps)"):
        with pytest.raises(UserError, match="here"):
            Formula.read(text, "here")


def test_a_level_that_a_run_gives_is_checked_with_the_run() -> None:
    formula = Formula.read("quantile(a.b / 8, x.*.y)", "here")
    assert formula.value(FIGURES) == 3
    with pytest.raises(UserError, match=r"here: 4 is not a level"):
        formula.value({**FIGURES, "a.b": 32.0})


@given(st.lists(st.integers(0, 30), min_size=2, max_size=2))
def test_a_period_that_does_not_end_after_its_start_is_refused(ends: list[int]) -> None:
    begin, end = ends
    periods = (f"{begin}, {end}", f"40, 50, {begin}, {end}")
    functions = [f"seconds(mean, {period}, sent.a.fair_bps)" for period in periods]
    functions += [f'decisions(count, "*", {periods[0]}, a)', f"frames(mean, {periods[0]}, a)"]
    for text in functions:
        if begin < end:
            Formula.read(text, "here")
            continue
        with pytest.raises(UserError, match=f"here: the period from {begin} to {end} s"):
            Formula.read(text, "here")


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("seconds(mean, 0, 3, received.video.throughput_bps)", False),
        ("seconds(mean, 0, 1, 2, 4, received.video.throughput_bps)", True),
        ("frames(mean, 5, 9, video)", True),
        ('decisions(count, "*", 0, 1000, video)', False),
        ('in("long", seconds(mean, 0, 6, received.video.throughput_bps))', False),
        ('in("long", seconds(mean, 0, 7, received.video.throughput_bps))', True),
    ],
)
def test_a_period_that_ends_after_its_run_is_refused_before_the_first_run(
    tmp_path: Path, value: str, refused: bool
) -> None:
    variant = '[[variant]]\nname = "long"\nset = { duration = "6s" }\n'
    measure = f"[[measure]]\nname = \"mine\"\nvalue = '{value}'\n"
    path = written(tmp_path, variant + measure)
    if not refused:
        _planned(Spec.read(path))
        return
    with pytest.raises(
        UserError, match=r"mine\.toml:\d+: measure mine: .* ends after the run of small, .*, which lasts"
    ):
        run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert not (tmp_path / "out" / "results.csv").exists()


_HUGE = st.recursive(
    st.sampled_from(["1e308", "0", "1e-308", "3", "gone"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda each: f"({' '.join(each)})"),
        st.tuples(st.sampled_from(["sum", "mean", "jain"]), inner, inner).map(
            lambda each: "{}({}, {})".format(*each)
        ),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + "1" + ")" * 2000, "-" * 4000 + "1", "1" + "+1" * 2000, "abs(" * 900 + "1" + ")" * 900],
)
def test_a_formula_that_is_nested_too_deep_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError, match=r"here: the formula is nested too deep") as caught:
        Formula.read(text, "here").value(FIGURES)
    assert len(str(caught.value)) < 200


@given(_HUGE)
def test_a_formula_s_value_is_a_number_or_unknown(text: str) -> None:
    value = Formula.read(text, "here").value(FIGURES)
    # The mean and the interval of two seeds are computed from the value.
    assert value is None or math.isfinite(spread([value, -value])["ci95"])


def test_what_is_too_large_for_a_number_is_unknown_even_within_a_formula() -> None:
    assert Formula.read("1 / (1e308 * 1e308)", "here").value(FIGURES) is None
    with pytest.raises(UserError, match="1e999 is too large"):
        Formula.read("1e999", "here")


def test_a_column_that_seconds_do_not_have_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"here.*thruput_bps") as caught:
        Formula.read("seconds(min, 1, 2, received.a.thruput_bps)", "here")
    assert "throughput_bps" in caught.value.remedy


class Recorded:
    """A run with these tables."""

    summary: Mapping[str, Any] = {"to_s": 60.0}

    def __init__(self, **tables: pl.DataFrame) -> None:
        self.__dict__ |= {
            name: SimpleNamespace(to_polars=lambda frame=frame: frame) for name, frame in tables.items()
        }


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e3)), min_size=1, max_size=8))
def test_a_second_without_a_value_is_unknown_but_for_a_throughput(values: list[float | None]) -> None:
    rows = [
        (float(n), "a", node, x, x) for n, each in enumerate(values) for node, x in (("s", 7.0), ("r", each))
    ]
    names = ["t_s", "flow", "node", "throughput_bps", "delay_ms"]
    run: Any = Recorded(rates=pl.DataFrame(rows, schema=names, orient="row"))
    known = [value for value in values if value is not None]
    delay, rate = (
        Seconds("min", 0.0, (0, 99), (Column("received", "a", name),))
        for name in ("delay_ms", "throughput_bps")
    )
    assert delay.value(run) == (min(known) if known else None)
    assert rate.value(run) == min(value or 0.0 for value in values)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=8), st.floats(0, 1))
def test_seconds_of_a_link_are_those_forward_and_a_quantile_is_numpys(
    values: list[float], level: float
) -> None:
    rows = [
        (float(n), name, way, value if (name, way) == ("neck", "forward") else 5e3)
        for n, value in enumerate(values)
        for name in ("neck", "other")
        for way in ("forward", "back")
    ]
    schema = ["t_s", "link", "direction", "queue_ms"]
    run: Any = Recorded(links=pl.DataFrame(rows, schema=schema, orient="row"))
    formula = Formula.read(f"seconds(quantile, {level:.6f}, 0, 99, link.neck.queue_ms)", "here")
    (series,) = formula.series
    assert series.value(run) == pytest.approx(np.quantile(values, float(f"{level:.6f}")))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=12))
def test_decisions_of_several_flows_do_not_end_each_others_times(changes: list[tuple[str, bool]]) -> None:
    rows = [(float(n), flow, "compete" if fits else "delay") for n, (flow, fits) in enumerate(changes)]
    schema = {"t_s": pl.Float64, "flow": pl.String, "rule": pl.String}
    run: Any = Recorded(decisions=pl.DataFrame(rows, schema=schema, orient="row"))
    both = Decisions("longest", "compete*", 0, 20, "*").value(run)
    each = [Decisions("longest", "compete*", 0, 20, flow).value(run) for flow in "ab"]
    assert both == max(value or 0.0 for value in each)


@given(st.floats(0, 30), st.floats(31, 90))
def test_a_rule_applies_until_the_end_of_the_run_at_the_latest(since: float, end: float) -> None:
    schema = {"t_s": pl.Float64, "flow": pl.String, "rule": pl.String}
    run: Any = Recorded(decisions=pl.DataFrame([(since, "a", "compete")], schema=schema, orient="row"))
    ended = min(end, 60.0)
    assert Decisions("last", "compete*", 0, end, "a").value(run) == ended
    assert Decisions("longest", "compete*", 0, end, "a").value(run) == ended - since


def test_several_values_need_a_function() -> None:
    with pytest.raises(UserError, match="several values"):
        Formula.read("x.*.y", "here").value(FIGURES)


@given(st.text(alphabet='ab.*+-/() 1,<>="', max_size=30))
def test_no_text_ends_a_formula_in_another_error(text: str) -> None:
    with suppress(UserError):
        Formula.read(text, "here").value(FIGURES)


RICH = """
question = "Does the rate matter?"
seeds = "1-2"
over = "each"
[[variant]]
name = "tfrc"
set = { "flow.video.controller" = "tfrc" }
[[variant]]
name = "fixed"
judged = false
set = { "flow.video.controller" = "fixed", "flow.video.params.fixed.rate" = "${fixed}kbps" }
[[axis]]
name = "rate"
values = [1, 4]
scenario = "alone"
[[measure]]
name = "over fixed"
value = 'flows.video.throughput_bps / in("fixed", flows.video.throughput_bps)'
[[measure]]
name = "last seconds"
unit = "Mb/s"
value = "seconds(max, 2, 3, received.video.throughput_bps) / 1e6"
[[measure]]
name = "of the rate"
value = "flows.video.throughput_bps / ${rate * 1e6}"
[[bound]]
measure = "of the rate"
max = 1
when = "rate >= 2"
why = "no more than the link carries"
[[measure]]
name = "reports"
value = 'decisions(count, "*", 0, 100, video)'
[[measure]]
name = "as alone"
value = 'flows.video.throughput_bps / in("alone", flows.video.throughput_bps)'
[[scenario]]
name = "alone"
file = "small.toml"
about = { place = "a" }
variables = { fixed = 100 }
bound = [{ measure = "over fixed", min = 1.5, why = "more than fixed" }]
[scenario.set]
"topology.bottleneck.rate" = "${rate}Mbps"
"topology.bottleneck.queue" = '{ kind = "droptail", limit = "${max(8, 10 * rate)}p" }'
[[scenario]]
name = "slow"
file = "small.toml"
variant = ["tfrc"]
about = { place = "b" }
set = { "topology.bottleneck.rate" = "500kbps" }
[[scenario.bound]]
measure = "share"
value = "links.bottleneck.utilisation_frac"
unit = "%"
max = 0.01
why = "it cannot hold"
source = "a test"
[[scenario.bound]]
measure = "part of the link"
value = "links.bottleneck.utilisation_frac"
max = 1.1
why = "a bound that fails makes no other one fail"
[[table]]
title = "points"
write = "points.csv"
[[table]]
title = "bounds"
kind = "bounds"
variant = "tfrc"
[[table]]
title = "counts"
kind = "counts"
by = "place"
[[table]]
title = "choice"
kind = "choice"
measure = "last seconds"
"""


def test_variables_references_own_bounds_and_tables_mean_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "rich.toml"
    path.write_text(RICH)
    done = run_experiment(path, out=tmp_path / "out", progress=Silent())
    # Two rates for two variants, and the slow scenario, which has no such axis and runs one variant.
    assert len(done.points) == 2 * 2 + 1
    fast = next(point for point in done.points if dict(point.values) == {"rate": "4"})
    assert 'topology.bottleneck.queue={ kind = "droptail", limit = "40p" }' in fast.sets
    judged = {(each.bound.scenarios, each.outcome, len(each.points)) for each in done.judgements}
    assert judged == {
        (("alone",), HOLDS, 2),
        (("slow",), FAILS, 1),
        (("slow",), HOLDS, 1),
        (("alone", "slow"), HOLDS, 1),
    }
    # A point without the variable has no value.
    slow = next(point for point in done.points if point.scenario == "slow")
    assert set(done.values(done.spec.measure("of the rate"), slow).values()) == {None}
    assert 0 < (done.spread(done.spec.measure("of the rate"), fast) or {})["mean"] <= 1
    measure = done.spec.measure("last seconds")
    for point in done.points:
        mean = sum(value or 0 for value in done.values(measure, point).values()) / 2
        assert 0 < mean <= {"4": 4, "1": 1}.get(dict(point.values).get("rate", ""), 0.5)
        assert all(
            value and value >= 1 for value in done.values(done.spec.measure("reports"), point).values()
        )
    # The slow scenario has no rate, so the points of the other scenario don't count as its own.
    assert set(done.values(done.spec.measure("as alone"), slow).values()) == {None}
    points, bounds, counts, choice = (built(done, each) for each in done.spec.tables)
    assert [head.shown for head in points.heads[:3]] == ["place", "scenario", "rate"]
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert rows[0]["over fixed misses"] == "no"
    assert (
        float(rows[0]["over fixed least"])
        <= float(rows[0]["over fixed"])
        <= float(rows[0]["over fixed most"])
    )
    assert tomllib.loads((tmp_path / "points.toml").read_text())["title"] == "points"
    assert [row[-1].shown for row in bounds.rows] == ["holds", "holds", "holds", "0 of 2", "holds"]
    assert [[cell.shown for cell in row][:5] for row in counts.rows] == [
        ["a", "tfrc", "2", "2", "2.00"],
        ["b", "tfrc", "1", "0", "0.00"],
        ["all", "tfrc", "3", "2", "2.00"],
    ]
    assert [row[-1].shown.split(" ")[0] for row in choice.rows] == ["tfrc", "tfrc", "none"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("${fixed}kbps", "${fixd}kbps", "fixed"),
        ('in("fixed"', 'in("fixes"', "fixed"),
        ("${rate * 1e6}", "${rat * 1e6}", "rate"),
        ('when = "rate', 'when = "rte', "rate"),
        ('value = "links', 'measures = "links', "value"),
        ("values = [1, 4]", "", "values"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "rich.toml"
    path.write_text(RICH.replace(old, new, 1))
    with pytest.raises(UserError, match=r"rich\.toml") as caught:
        list(Spec.read(path).points())
    assert told in str(caught.value)


def test_a_part_of_an_experiment_has_what_its_measures_look_at_and_writes_no_table(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "rich.toml"
    path.write_text(RICH)
    part = Spec.read(path).only(["slow"])
    assert {(point.scenario, point.variant) for point in part.points()} == {
        ("slow", "tfrc"),
        *(("alone", variant) for variant in ("tfrc", "fixed")),
    }
    done = run_experiment(path, seeds=(1,), only=["slow"], out=tmp_path / "out", progress=Silent())
    assert done.runs.ran == 1 + 2 * 2
    assert not (tmp_path / "points.csv").exists()
    with pytest.raises(UserError, match="slow"):
        Spec.read(path).only(["slo"])


def test_a_part_of_an_experiment_needs_no_figures_of_the_scenarios_that_are_left_out(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(SMALL.replace('name = "tcp"', f'name = "{name}"'))
    path = tmp_path / "both.toml"
    scenarios = (
        f"""
[[scenario]]
name = "{name}"
file = "{name}.toml"
[[scenario.bound]]
measure = "rate of {name}"
value = "flows.{name}.throughput_bps"
min = 1
why = "it sends"
"""
        for name in ("one", "two")
    )
    path.write_text('question = "Do both send?"\nseeds = "1"\n' + "".join(scenarios))
    for name in ("one", "two"):
        done = run_experiment(path, only=[name], out=tmp_path / name, progress=Silent())
        assert {each.outcome for each in done.judgements if each.points} == {HOLDS}


ROWS = """
question = "Do the rows differ?"
seeds = "1-2"
[[scenario]]
name = "small"
file = "small.toml"
variables = { half = 0.5 }
set = { "topology.bottleneck.rate" = "${Mb/s}Mbps", "topology.bottleneck.delay" = "${delay}ms" }
[[axis]]
columns = ["Mb/s", "delay", "published"]
rows = [[1, 10, 0.9], [4, 30, 3.5]]
[[variant]]
name = ["tfrc", "asmp"]
set = { "flow.video.controller" = "${variant}" }
[[variant]]
name = "fixed"
judged = false
set = { "flow.video.controller" = "${variant}", "flow.video.params.fixed.rate" = "1Mbps" }
[[measure]]
name = "rate"
value = "flows.video.throughput_bps / 1e6"
[[measure]]
name = "over half"
value = "flows.video.throughput_bps / 1e6 / (${half} * ${published})"
[[bound]]
measure = "over half"
min = 0.01
why = "it sends"
[[bound]]
measure = "rate"
max = 0.01
at = { published = 3.5 }
why = "none is so slow"
[[table]]
title = "points"
[[table]]
title = "choice"
kind = "choice"
measure = "rate"
but = "rate"
"""


def test_rows_of_variables_and_lists_of_variants_mean_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "rows.toml"
    path.write_text(ROWS)
    done = run_experiment(path, out=tmp_path / "out", progress=Silent())
    # The columns change together: two rows for three variants.
    assert len(done.points) == 2 * 3
    slow, fast = (point for point in done.points if point.variant == "asmp")
    assert dict(fast.values) == {"Mb/s": "4", "delay": "30", "published": "3.5"}
    assert {"topology.bottleneck.delay=30ms", "flow.video.controller=asmp"} <= set(fast.sets)
    rate, over = done.spec.measures
    for point, published in ((slow, 0.9), (fast, 3.5)):
        for seed in done.spec.seeds:
            own, other = done.values(rate, point)[seed], done.values(over, point)[seed]
            assert own is not None
            assert other == pytest.approx(own / (0.5 * published))
    points, choice = (built(done, each) for each in done.spec.tables)
    assert [head.shown for head in points.heads] == [
        *("Mb/s", "delay", "published", "variant", "rate", "over half")
    ]
    # Only a point that a bound of this measure judges can miss it.
    missed = [row[4].shown.startswith("[") for row in points.rows]
    assert missed == [False, False, False, True, True, False]
    # A reference is never chosen. On the fast link, all others miss the bound of the rate.
    named = [[cell.shown for cell in row][-2:] for row in choice.rows]
    assert sorted(one.split(" ")[0] for one in named[0][0].split(", ")) == ["asmp", "tfrc"]
    assert named[0][1] == named[1][0] == "none"
    assert sorted(one.split(" ")[0] for one in named[1][1].split(", ")) == ["asmp", "tfrc"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[1, 10, 0.9]", "[1, 10]", "columns"),
        ("columns = [", "name = 'x'\ncolumns = [", "rows"),
        ("at = { published = 3.5 }", "at = { published = 3.4 }", "3.5"),
        ('name = ["tfrc", "asmp"]', 'name = ["tfrc", "tfrc"]', "twice"),
        ('but = "rate"', 'but = "rat"', "rate"),
        ('kind = "choice"', 'kind = "counts"', "choice"),
    ],
)
def test_a_mistake_in_rows_and_lists_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "rows.toml"
    path.write_text(ROWS.replace(old, new, 1))
    with pytest.raises(UserError, match=r"rows\.toml") as caught:
        Spec.read(path)
    assert told in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="emulation needs root")
def test_both_worlds_run_the_same_scenario_and_a_busy_machine_s_values_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "worlds.toml"
    variants = """
[[variant]]
name = "simulated"
[[variant]]
name = "emulated"
world = "emulated"
[[measure]]
name = "over simulated"
value = 'flows.video.throughput_bps / in("simulated", flows.video.throughput_bps)'
"""
    path.write_text(ROWS[: ROWS.index("variables")] + variants)
    done = run_experiment(path, seeds=(1,), out=tmp_path / "out", progress=Silent())
    assert done.runs.ran == 2
    for point in done.points:
        [value] = done.values(done.spec.measures[0], point).values()
        error = done.runs.errors.get((point, 1))
        if point.emulated and error:
            assert "not trustworthy" in error
            assert value is None
        elif point.emulated:
            # How closely emulation and simulation agree is tested in tests/emulate, which share the machine with fewer
            # tests. Here the bound was 30 %, until a run at a load of 13 had 0.41.
            assert value is not None
            assert value > 0
        else:
            assert value == 1


def test_the_page_s_own_file_is_an_experiment(tmp_path: Path) -> None:
    page = (DOCS / "experiment.md").read_text()
    [text] = re.findall(r"<!-- experiment -->\n```toml\n(.+?)```", page, re.S)
    assert len([line for line in text.splitlines() if line.strip()]) <= 45
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"set = \{ ", 'set = { duration = "12s", ', text).replace("1-10", "1-2"))
    done = run_experiment(path, out=tmp_path / "out", progress=Silent())
    assert not done.runs.errors
    assert len(done.points) == 2 * 3
    assert all(done.spread(measure, point) for measure in done.spec.measures for point in done.points)


@pytest.mark.parametrize("name", built_in())
def test_each_built_in_experiment_asks_and_bounds(name: str) -> None:
    spec = Spec.read(name)
    assert spec.question.endswith("?")
    assert spec.bounds
    assert list(spec.points())


def test_the_command_lists_explains_and_ends_with_1_where_a_bound_fails(tmp_path: Path, say: Say) -> None:
    assert "rtt-unfairness" in say("experiment", code=0).out
    path = written(tmp_path, BOUND.format("min = 4"))
    assert "a test" in say("experiment", str(path), "--why", code=0).out
    said = say("experiment", str(path), "-o", str(tmp_path / "out"), code=1)
    assert "fails" in said.out
    told = say("experiment", str(path), "-o", str(tmp_path / "out"), "--json", code=1)
    assert json.loads(told.out)["bounds"][0]["outcome"] == "fails"
    said = say("experiment", "rtt-unfarness", code=2)
    assert "rtt-unfairness" in said.err


LOSSY = """
duration = "6s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "20ms", queue = { limit = "100p" } }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "1Mbps" }
media = "rfc8593"
repair = "none"
"""


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_arrivals_and_delays_of_frames_are_those_of_the_tables(loss: float, tmp_path: Path) -> None:
    path = tmp_path / "lossy.toml"
    path.write_text(LOSSY)
    kind = f'{{ kind = "bernoulli", p = {loss} }}' if loss else '{ kind = "none" }'
    run = sc.run(path, set=[f"topology.bottleneck.loss={kind}"], quality=False)
    frames = run.frames.to_polars().filter(pl.col("ready_s") < 5)
    whole = frames.filter(pl.col("fate") != "lost")["delay_ms"].drop_nulls()
    values = {
        name: Frames.read([name, 0.0, 5.0, "vid*"]).value(run) for name in ("mean", "max", "arrived_p95")
    }
    if loss:
        assert len(whole) < len(frames)
        assert values["mean"] is values["max"] is None, "a frame is missing"
    else:
        assert values["mean"] == pytest.approx(whole.mean())
        assert values["max"] == whole.max()
    assert values["arrived_p95"] == pytest.approx(np.percentile(whole.to_numpy(), 95))
    rates = run.rates.to_polars().filter(pl.col("node") == run.summary["flows"][0]["receivers"][0]["name"])
    bits = rates["throughput_bps"].fill_null(0.0).cum_sum() * (rates["t_s"][1] - rates["t_s"][0])
    for share in (0.01, 0.5, 0.99):
        amount = float(bits[-1]) / 8 * share
        at = Arrived.read([amount, "video"]).value(run)
        assert at is not None
        place = int((bits / 8 < amount).sum())
        assert rates["t_s"][place] <= at <= rates["t_s"][place] + 1.0
    assert Arrived.read([float(bits[-1]), "video"]).value(run) is None, "it never has eight times as much"
    assert Arrived.read([1.0, "tcp"]).value(run) is None


@pytest.mark.parametrize("start", ['"0s"', '"1400ms"', '{ uniform = ["0s", "2s"] }'])
def test_a_flow_is_measured_from_its_start_on_even_if_that_is_drawn(start: str, tmp_path: Path) -> None:
    path = tmp_path / "drawn.toml"
    path.write_text(LOSSY.replace('duration = "6s"', 'duration = "20s"') + f"start = {start}\n")
    run = sc.run(path, quality=False)
    known = facts(run)
    assert known is not None
    (flow,) = known.flows
    (active,) = flow.active
    sent = run.rates.to_polars().filter(pl.col("node") == "video.src", pl.col("throughput_bps") > 0)["t_s"]
    assert active == pytest.approx((sent.min(), 20.0), abs=known.step)
    assert Rfc8868.read(["least", 5.0]).value(run) is not None
