"""Drawn experiments: decks, derived variables, changes of some points, classes, and tables over points."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steadycast.errors import UserError
from steadycast.experiment import Experiment, Spec, run_experiment
from steadycast.experiment.formula import Formula
from steadycast.experiment.runs import Runs
from steadycast.experiment.spec import Condition, Point, resolved
from steadycast.experiment.tables import built
from steadycast.progress import Silent

from tests.conftest import SMALL, Say
from tests.sweep.test_experiment import Recorded

NETWORKS = Path(__file__).resolve().parents[2] / "validation" / "experiments" / "networks.toml"
DRAWN = """
question = "Do the drawn networks differ?"
seeds = "1-2"
over = "each"
[draw]
count = 24
seed = 11
[draw.variables]
rate = { from = 1.0, to = 8.0, scale = "log" }
[[draw.deck]]
columns = ["queue", "deep", "keys"]
rows = [
    ["deep", 1, '{ kind = "droptail", limit = "${packets}p" }'],
    ["codel", 0, '{ kind = "codel" }'],
    ["pie", 0, '{ kind = "pie" }'],
]
weights = [3, 2, 1]
[variables]
packets = "${10 * level}"
level = "${round(rate) + deep}"
[[scenario]]
name = "small"
file = "small.toml"
set = { duration = "2s", warmup = "1s" }
[[change]]
set = { "topology.bottleneck.rate" = "${rate}Mbps", "topology.bottleneck.queue" = "${keys}" }
[[change]]
when = "deep * (rate < 4)"
variant = "asmp"
set = { "topology.bottleneck.delay" = "7ms" }
[[variant]]
name = ["tfrc", "asmp"]
set = { "flow.video.controller" = "${variant}" }
[[class]]
name = "speed"
labels = { slow = "rate < 2", middle = "rate < 4", fast = "1" }
[[class]]
name = "queue"
labels = { shallow = "deep * (rate < 2)" }
[[measure]]
name = "Mb/s"
value = "flows.video.throughput_bps / 1e6"
[[measure]]
name = "loss"
value = "flows.video.loss"
when = "deep"
[[bound]]
measure = "Mb/s"
min = 1
why = "a test"
[[bound]]
measure = "loss"
max = 1
why = "a test"
[[table]]
title = "counts"
kind = "counts"
by = []
bounds = true
[[table]]
title = "classes"
kind = "counts"
by = ["speed", "queue"]
when = "deep"
[[table]]
title = "differences"
against = "asmp"
[[table]]
title = "means"
by = "queue"
spread = "range"
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "small.toml").write_text(SMALL)
    (folder / "drawn.toml").write_text(DRAWN)
    return folder / "drawn.toml"


def numbers(point: Point) -> dict[str, float]:
    told = dict(point.variables)
    return {name: float(told[name]) for name in ("rate", "deep", "level", "packets")}


@given(st.integers(0, 2**63), st.integers(1, 4))
@settings(max_examples=25)
def test_a_card_s_values_stay_together_and_changes_are_made_where_their_formula_is_true(
    path: Path, seed: int, passes: int
) -> None:
    spec = Spec.read(path, [seed], 6 * passes)
    assert not spec.whole, "another draw does not write the file's tables"
    mine = [point for point in spec.points() if point.variant == "tfrc"]
    assert len(mine) == 6 * passes
    for deal in (mine[n : n + 6] for n in range(0, len(mine), 6)):
        assert sorted(dict(point.variables)["queue"] for point in deal) == [
            *("codel", "codel", "deep", "deep", "deep", "pie")
        ]
    for point in spec.points():
        told, of = dict(point.variables), numbers(point)
        assert of["deep"] == (told["queue"] == "deep")
        assert of["packets"] == 10 * of["level"] == 10 * (round(of["rate"]) + of["deep"])
        limit = f'limit = "{told["packets"]}p"' if of["deep"] else f'"{told["queue"]}"'
        [queue] = [change for change in point.sets if change.startswith("topology.bottleneck.queue=")]
        assert limit in queue
        slow = of["deep"] == 1 and of["rate"] < 4 and point.variant == "asmp"
        assert ("topology.bottleneck.delay=7ms" in point.sets) == slow
        rate = of["rate"]
        assert spec.label(point, "speed") == ("slow" if rate < 2 else "middle" if rate < 4 else "fast")
        # Without a label of the class a point has the variable's value.
        assert spec.label(point, "queue") == ("shallow" if of["deep"] and rate < 2 else told["queue"])


def test_a_draw_is_repeated_by_its_number_and_a_larger_count_continues_it(path: Path) -> None:
    few, many = Spec.read(path, [5], 7).draws, Spec.read(path, [5], 40).draws
    assert many[:7] == few
    assert Spec.read(path, [6], 7).draws != few
    assert Spec.read(path, [11], 24).draws == Spec.read(path).draws


@given(st.sampled_from(["0", "0.0", "-0", "0 * -1", "1 - 1", "0e3", "2", "-0.5", "1e-12", "3 > 2"]))
def test_a_condition_is_true_where_its_value_is_not_0(text: str) -> None:
    point = Point("s", (), None, "v", (), (("zero", text),) if " " not in text else ())
    value = {"0 * -1": 0.0, "1 - 1": 0.0, "3 > 2": 1.0}.get(text)
    expected = (float(text) if value is None else value) != 0
    assert Condition(text, "here").at(point) == expected
    if " " not in text:
        assert Condition("zero", "here").at(point) == expected
    assert Condition("", "here").at(point)
    assert Condition("absent", "here").at(point) is None


@given(st.permutations(range(12)), st.integers(1, 9))
def test_variables_are_filled_in_whatever_their_order(order: list[int], first: int) -> None:
    told = {f"v{n}": f"${{v{n - 1} + {n}}}" if n else str(first) for n in order}
    found = dict(resolved(told, "here"))
    assert {name: float(value) for name, value in found.items()} == {
        f"v{n}": first + n * (n + 1) / 2 for n in range(12)
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("${round(rate) + deep}", "${round(rte) + deep}", "variable level: there is no variable rte"),
        ("${round(rate) + deep}", "${round(rate) + packets}", "level, packets"),
        ('when = "deep * (rate', 'when = "deap * (rate', "deep"),
        ('when = "deep * (rate < 4)"', 'when = "queue"', "0 and 1"),
        ('slow = "rate < 2"', 'slow = "rat < 2"', "rate"),
        ('slow = "rate < 2"', 'slow = "rate <"', "class"),
        ('by = ["speed", "queue"]', 'by = ["sped", "queue"]', "speed"),
        ('against = "asmp"', 'against = "asmq"', "asmp"),
        ('when = "deep"\n[[table]]', 'when = "dep"\n[[table]]', "deep"),
        ('["codel", 0,', "[0,", "columns"),
        ("weights = [3, 2, 1]", "weights = [3, 2]", "weights"),
        ('"deep", "keys"]', '"deep", "rate"]', "drawn twice"),
        ('variant = "asmp"\nset', 'variant = "asm"\nset', "asmp"),
        ('set = { "topology.bottleneck.delay" = "7ms" }', "", "set"),
        ('title = "counts"\nkind = "counts"', 'title = "counts"\nkind = "held"', "by"),
        ('against = "asmp"', 'kind = "choice"\nmeasure = "loss"\nagainst = "asmp"', "against"),
        ('columns = ["queue", "deep", "keys"]', "", "columns"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_to_write(
    path: Path, tmp_path: Path, old: str, new: str, told: str
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    wrong = tmp_path / "wrong.toml"
    assert old in DRAWN
    wrong.write_text(DRAWN.replace(old, new, 1))
    with pytest.raises(UserError, match=r"wrong\.toml") as caught:
        Spec.read(wrong)
    assert told in str(caught.value)


def test_a_file_that_draws_nothing_can_t_be_drawn_again(path: Path, tmp_path: Path, say: Say) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    plain = tmp_path / "plain.toml"
    text = 'question = "?"\n[[scenario]]\nname = "small"\nfile = "small.toml"\n[[measure]]\nname = "Jain"\n'
    plain.write_text(text + 'value = "fairness.jain"\n')
    said = say("experiment", str(plain), "--draw", "7", code=2)
    assert "--draw" in said.err
    assert "plain.toml" in said.err


@pytest.mark.parametrize(("seeds", "place"), [("x", "--draw x"), ("7,", "--draw 7,"), ("9-7", "--draw 9-7")])
def test_what_is_no_list_of_seeds_draws_nothing(path: Path, say: Say, seeds: str, place: str) -> None:
    said = say("experiment", str(path), "--draw", seeds, code=2)
    assert place in said.err
    assert "Traceback" not in said.err


Values = dict[tuple[int, str, int], tuple[float | None, float | None]]


def judged(path: Path, given: Values) -> Experiment:
    """Return the experiment whose runs have these rates in Mb/s and losses, by draw, variant and seed."""
    spec = Spec.read(path)
    figures: dict[tuple[Point, int], Mapping[str, float | None]] = {}
    for point in spec.points():
        for seed in spec.seeds:
            assert point.draw is not None
            rate, loss = given[point.draw, point.variant, seed]
            bps = None if rate is None else 1e6 * rate
            figures[point, seed] = {"flows.video.throughput_bps": bps, "flows.video.loss": loss}
    return Experiment(spec, Runs(figures, {}, 0, {}), path.parent)


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_counts_and_differences_are_those_of_the_runs(path: Path, data: st.DataObject) -> None:
    value = st.one_of(st.none(), st.sampled_from([0.5, 1.0, 1.5, 3.0]))
    keys = [(draw, who, seed) for draw in range(1, 25) for who in ("tfrc", "asmp") for seed in (1, 2)]
    # Most runs have a value, as a point with an unknown one can't hold.
    pairs = st.tuples(st.one_of(st.just(2.0), value), st.one_of(st.just(0.0), value))
    given_ = dict(zip(keys, data.draw(st.lists(pairs, min_size=len(keys), max_size=len(keys))), strict=True))
    done = judged(path, given_)
    deep = {point.draw: numbers(point)["deep"] == 1 for point in done.points}

    def runs(draw: int, who: str) -> list[bool | None]:
        found: list[bool | None] = []
        for seed in (1, 2):
            rate, loss = given_[draw, who, seed]
            each = [None if rate is None else rate >= 1]
            each += [None if loss is None else loss <= 1] if deep[draw] else []
            found.append(False if False in each else None if None in each else True)
        return found

    counts, _, differences, means = (built(done, each) for each in done.spec.tables)
    for row in counts.rows:
        who, *texts = (cell.shown for cell in row)
        all_ = [runs(draw, who) for draw in range(1, 25)]
        mixed, unknown = sum({*each} == {True, False} for each in all_), sum(None in each for each in all_)
        loss = [all((given_[d, who, s][1] or 0) <= 1 for s in (1, 2)) for d in range(1, 25) if deep[d]]
        lost = [
            within and None not in (given_[d, who, 1][1], given_[d, who, 2][1])
            for d, within in zip((d for d in range(1, 25) if deep[d]), loss, strict=True)
        ]
        kept = f"{sum(each.count(True) for each in all_) / 2:.2f}"
        assert texts[:3] == ["24", str(sum(each == [True, True] for each in all_)), kept]
        assert texts[4:6] == [str(mixed), str(unknown)]
        assert texts[-1] == f"{sum(lost)}/{len(lost)}"
    # A mean is of the points at which both variants are known.
    apart = []
    for draw in range(1, 25):
        rates = [[given_[draw, who, seed][0] for seed in (1, 2)] for who in ("tfrc", "asmp")]
        if None not in rates[0] and None not in rates[1]:
            apart.append(sum(rates[0]) / 2 - sum(rates[1]) / 2)  # type: ignore[arg-type]
    [row] = differences.rows
    assert row[0].shown == "tfrc"
    mean, half, count = row[3].plain
    assert int(count) == len(apart)
    if len(apart) > 1:
        assert float(mean) == pytest.approx(statistics.fmean(apart), abs=0.006)
        # Student's quantile lies between that of the normal distribution and that of one degree of freedom.
        error = statistics.stdev(apart) / len(apart) ** 0.5
        assert 1.95 * error - 0.006 <= float(half) <= 12.71 * error + 0.006
    assert {row[0].shown for row in means.rows} >= {"codel", "pie", "all"}


def test_a_table_by_variant_is_a_table_of_all_points(path: Path) -> None:
    keys = [(draw, who, seed) for draw in range(1, 25) for who in ("tfrc", "asmp") for seed in (1, 2)]
    done = judged(path, dict.fromkeys(keys, (2.0, 0.0)))
    for spec in done.spec.tables:
        whole, also = (built(done, replace(spec, by=by)) for by in ((), ("variant",)))
        assert whole == also
        assert len({cell.shown for cell in also.heads}) == len(also.heads)


def test_classes_count_each_point_once_for_each_name(path: Path) -> None:
    keys = [(draw, who, seed) for draw in range(1, 25) for who in ("tfrc", "asmp") for seed in (1, 2)]
    done = judged(path, dict.fromkeys(keys, (2.0, 0.0)))
    table = built(done, done.spec.tables[1])
    rows = [[cell.shown for cell in row] for row in table.rows]
    for name in ("speed", "queue", "all"):
        assert sum(int(row[3]) for row in rows if row[0] == name and row[2] == "tfrc") == 12, (
            "deep ones alone"
        )
    assert [row[1] for row in rows if row[0] == "speed" and row[2] == "tfrc"] == ["slow", "middle", "fast"]


def test_the_numbers_of_an_experiment_say_what_was_drawn(path: Path) -> None:
    keys = [(draw, who, seed) for draw in range(1, 25) for who in ("tfrc", "asmp") for seed in (1, 2)]
    done = judged(path, dict.fromkeys(keys, (2.0, 0.0)))
    for point, told in zip(done.points, done.json()["points"], strict=True):
        drawn = {name: value for name, value in told["drawn"].items() if "${" not in value}
        assert drawn.items() <= dict(point.variables).items()
        assert {"rate", "queue", "deep"} <= drawn.keys()


def test_a_measure_that_a_point_lacks_is_absent_and_its_bound_judges_only_the_others(path: Path) -> None:
    keys = [(draw, who, seed) for draw in range(1, 25) for who in ("tfrc", "asmp") for seed in (1, 2)]
    done = judged(path, dict.fromkeys(keys, (2.0, 3.0)))
    for point in done.points:
        is_deep = numbers(point)["deep"] == 1
        assert (done.spread(done.spec.measure("loss"), point) is not None) == is_deep
        assert done.keeps(point) == (not is_deep)


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.one_of(st.none(), st.floats(1, 1e7))), min_size=9, max_size=9),
    st.integers(1, 3),
    st.integers(4, 6),
)
def test_a_ratio_of_columns_over_windows_is_that_of_their_seconds(
    values: list[tuple[float, float | None]], end: int, begin: int
) -> None:
    import polars as pl

    rows = [(float(n), "a", node, rate, fair) for n, (rate, fair) in enumerate(values) for node in ("s", "r")]
    schema = {"t_s": pl.Float64, "flow": pl.String, "node": pl.String}
    schema |= {"throughput_bps": pl.Float64, "fair_bps": pl.Float64}
    run: Any = Recorded(rates=pl.DataFrame(rows, schema=schema, orient="row"))
    series = "received.a.throughput_bps / received.a.fair_bps"
    ratios = [
        rate / fair
        for n, (rate, fair) in enumerate(values)
        if fair is not None and (n < end or begin <= n < 9)
    ]
    (mean,) = Formula.read(f"seconds(mean, 0, {end}, {begin}, 9, {series})", "here").series
    (below,) = Formula.read(f"seconds(share_below, 0.5, 0, {end}, {begin}, 9, {series})", "here").series
    assert mean.value(run) == (pytest.approx(statistics.fmean(ratios)) if ratios else None)
    share = sum(ratio < 0.5 for ratio in ratios) / len(ratios) if ratios else None
    assert below.value(run) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    "text", ["seconds(mean, 0, 1, 2, sent.a.fair_bps)", "seconds(mean, 0, 1, sent.a.fair_bps /)"]
)
def test_windows_without_an_end_and_half_ratios_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="here"):
        Formula.read(text, "here")


def test_a_drawn_experiment_runs_and_another_controller_stands_beside_its_list(
    path: Path, tmp_path: Path
) -> None:
    text = path.read_text().replace("flows.video.loss", "max(flows.video.receivers.*.loss_frac)")
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "mine.toml").write_text(text)
    done = run_experiment(
        tmp_path / "mine.toml", draw=3, count=2, beside=["gcc"], out=tmp_path / "out", progress=Silent()
    )
    assert done.runs.ran == 2 * 3 * 2
    assert not done.runs.errors
    assert {point.variant for point in done.points} == {"tfrc", "asmp", "gcc"}
    assert "differences" in (tmp_path / "out" / "report.html").read_text()


# ---------------------------------------------------------------- validation/experiments/networks.toml


def test_each_drawn_network_has_its_videos_and_the_same_other_flows_for_each_controller() -> None:
    spec = Spec.read(NETWORKS, [4711], 40)
    for point in spec.points():
        told = {name: value for name, value in point.variables}
        loaded = spec.scenarios[point.scenario].base.load(*point.sets)
        web, own = 3 * int(told["web"]), int(told["own"])
        others = sum(int(told[name]) for name in ("long", "pauses", "cbr", "udp", "upload")) + web
        assert loaded.flows == own + others, point.labels
        assert own == 1 or float(told["rate"]) / (own + int(told["long"])) >= 0.15


def test_no_bound_of_a_drawn_network_is_unknown(tmp_path: Path) -> None:
    done = run_experiment(
        NETWORKS, draw=4711, count=3, seeds=(1,), only=["networks"], out=tmp_path, progress=Silent()
    )
    assert not done.runs.errors
    for point in done.points:
        for bound in done.spec.bounds:
            if bound.judges(point):
                assert done.holds(bound, point) is not None, (point.labels, bound.measure)
    # CUBIC in the video's place has what CUBIC in the video's place has.
    cubic = [point for point in done.points if point.variant == "cubic"]
    names = ("share", "harm", "starves", "starves in a row")
    own = [b for b in done.spec.bounds if done.spec.measure(b.measure).shown in names]
    assert all(done.holds(bound, point) for bound in own for point in cubic if bound.judges(point))


def test_at_fq_codel_a_video_is_judged_by_its_own_queue() -> None:
    spec = Spec.read(NETWORKS, [4711], 60)
    measure = spec.measure("queue p95")
    for point in (each for each in spec.points() if each.scenario == "networks" and measure.at(each)):
        told = dict(point.variables)
        figures = {
            "links.bottleneck.queue_ms.p95": 300.0,
            "flows.own-a-video1.receivers.x.delay_ms.p95": 200.0,
        }
        base = float(told["RTT"]) / 2 + 9.6 / float(told["rate"]) + 19 * float(told["jitter"])
        formula = measure.at(point)
        assert formula is not None
        own = told["queue"] == "fq-codel"
        assert formula.value(figures) == pytest.approx(200 - base if own else 300)


def test_a_part_of_a_file_writes_the_tables_of_which_nothing_is_missing() -> None:
    spec = Spec.read(NETWORKS, count=1)
    written = {
        part: [t.write is not None for t in spec.only([part]).tables] for part in ("networks", "steady")
    }
    where = [(t.scenarios, t.write is not None) for t in spec.tables]
    assert written["networks"] == [at == ("networks",) and writes for at, writes in where]
    # `steady` is judged by CUBIC's runs, so that these are made, too.
    assert written["steady"] == written["networks"]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4, unique=True), st.integers(1, 8))
@settings(max_examples=25)
def test_each_seed_of_several_makes_the_draws_that_it_makes_alone(
    path: Path, seeds: list[int], count: int
) -> None:
    alone = [draw for seed in seeds for draw in Spec.read(path, [seed], count).draws]
    assert list(Spec.read(path, seeds, count).draws) == alone


def test_a_file_s_seeds_do_not_change_its_draws(path: Path) -> None:
    spec = Spec.read(path)
    assert replace(spec, seeds=(9,)).draws == spec.draws


@pytest.mark.parametrize(
    "written", [str, os.path.relpath, lambda path: f"{path.parent}/../experiments/{path.name}"]
)
def test_a_table_s_command_names_a_file_of_the_checkout_relative_to_it(
    written: Callable[[Path], str],
) -> None:
    for path in sorted(NETWORKS.parent.glob("*.toml")):
        command = Spec.read(written(path)).command
        assert command == f"steadycast experiment validation/experiments/{path.name}"
