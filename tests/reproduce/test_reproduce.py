from __future__ import annotations

import inspect
import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steadycast.errors import UnwrittenError, UserError
from steadycast.folder import Draft
from steadycast.progress import Silent

from papers import EXPERIMENTS, chosen
from papers.engine import quantity, sets, suite, write
from papers.engine.experiment import (
    UNITS,
    Another,
    Bound,
    Change,
    Experiment,
    Kind,
    Medium,
    Statement,
    Variant,
    Verdict,
    media_of,
)
from papers.engine.observe import Flow, Observed, percentile
from papers.engine.quantity import Term, term
from papers.engine.read import family
from papers.engine.runs import Job, key_of, run_all
from papers.engine.suite import Part, Result
from papers.engine.take import Take
from papers.engine.verdict import Row, as_read, judge, measured

ROOT = Path(__file__).resolve().parents[2]
K_F = ROOT / "papers/scenarios/k-f.toml"
SHORT = {"flow.video.media": "table2", "duration": "1s", "flow.video.receivers": "2"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ---------------------------------------------------------------- the list


def test_a_name_stands_for_one_experiment_a_family_or_all_in_either_case() -> None:
    assert [e.id for e in chosen(["k-b", "K-A"])] == ["K-A", "K-B"]
    assert [e.id for e in chosen(["k"])] == [f"K-{x}" for x in "ABCDEFG"]
    assert chosen(["all"]) == [e for e in EXPERIMENTS if not e.id.startswith("Q")]
    assert [e.id[0] for e in chosen(["q"])] == ["Q"] * len(chosen(["q"])) != []


def test_an_unknown_experiment_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match='did you mean "K-A"'):
        chosen(["KA"])


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    suite.main([], range(1, 6), None)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    for e in EXPERIMENTS:
        (line,) = (x for x in lines if x.startswith(f"{e.id} "))
        assert line.split()[-3:] == [
            str(sum(s.kind.judged for s in e.statements)),
            "of",
            str(len(e.statements)),
        ]


def test_names_are_unique_where_they_are_looked_up_by_name() -> None:
    assert len({e.id for e in EXPERIMENTS}) == len(EXPERIMENTS)
    assert [problem for e in EXPERIMENTS for problem in e.mistakes()] == []


def test_every_statement_that_is_judged_has_a_bound_and_no_other_has() -> None:
    for e in EXPERIMENTS:
        for s in e.statements:
            assert (s.bound != Bound()) == s.kind.judged, f"{e.id} {s.id}"


FAMILY = """
paper = "A paper"
[[variant]]
name = "asmp"
title = "ASMP"
sets = { "flow.video.controller" = "asmp" }
[[change]]
name = "wide"
sets = { "flow.tcp[1-3].window" = "256p" }
"""
FILE = """
id = "T-A"
title = "a test"
section = "1"
scenario = "k-f.toml"
source = "a source"
variants = ["asmp", "tfmcc"]
changes = ["wide"]
[[variant]]
name = "tfmcc"
title = "TFMCC"
sets = { "flow.video.controller" = "tfmcc" }
[[statement]]
id = "ratio"
text = "TFMCC's throughput divided by ASMP's"
published = "TFMCC higher"
take = "ratio"
of = ["tfmcc.video.rate", "asmp.video.rate"]
above = 1.0
[[figure]]
number = "Figure 1"
title = "rates"
kind = "rates"
variants = ["asmp"]
"""


def read(place: Path, text: str) -> Experiment:
    (place / "family.toml").write_text(FAMILY, encoding="utf-8")
    (place / "t-a.toml").write_text(text, encoding="utf-8")
    (found,) = family(place)
    return found


def test_a_file_says_what_an_experiment_is(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    assert [v.name for v in found.variants] == ["asmp", "tfmcc"]
    assert found.changes[0].sets == {f"flow.tcp{n}.window": "256p" for n in (1, 2, 3)}
    (statement,) = found.statements
    assert statement.measure.variants == ("tfmcc", "asmp")
    assert (statement.bound, statement.kind) == (Bound(1.0, strict=True), Kind.MEASURED)


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        (
            "tfmcc.video.rate",
            "tfmc.video.rate",
            'statement ratio: there is no variant "tfmc"; there are: asmp, tfmcc',
        ),
        ("tfmcc.video.rate", "tfmcc.video.rte", 'there is no number "rte"'),
        ('"ratio"\nof', '"ratoi"\nof', "there is no such combinator"),
        ("above = 1.0", "abvoe = 1.0", 'unknown key "abvoe"'),
        ("above = 1.0", 'above = 1.0\nkind = "reported"', "leave its bound out"),
        ("above = 1.0", 'above = 1.0\nunit = "parsec"', 'there is no unit "parsec"'),
        ("above = 1.0", 'above = 1.0\ncalculation = "x"', 'there is no calculation "x"'),
        ("above = 1.0", "above = 1.0\nmost = 2.0", "a bound of most, above"),
        ('changes = ["wide"]', 'changes = ["wode"]', 'changes: there is no "wode"'),
        ('variants = ["asmp"]\n', 'variants = ["pgmcc"]\n', 'figure Figure 1: there is no variant "pgmcc"'),
        ('kind = "rates"', 'kind = "rats"', 'there is no drawing "rats"'),
        (
            'title = "TFMCC"\n',
            'title = "TFMCC"\nsizes = false\n',
            "statement ratio: no medium has all its variants",
        ),
        ("[[figure]]", "[[figrue]]", 'unknown key "figrue"'),
        ("[[figure]]", "[[figure", "is not TOML"),
    ],
)
def test_a_typo_is_an_error_with_its_place_when_the_experiment_is_read(
    tmp_path: Path, written: str, instead: str, says: str
) -> None:
    assert written in FILE
    with pytest.raises(UserError) as caught:
        read(tmp_path, FILE.replace(written, instead))
    assert says in str(caught.value)
    assert "t-a.toml" in str(caught.value)


def test_a_statement_is_told_whenever_its_variants_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement whose quantity fails is still reported."""
    (experiment,) = (e for e in EXPERIMENTS if e.id == "K-F")
    medium = media_of(experiment, ())[0]
    plan = suite.Plan(experiment, medium, (1,))
    runs_of = {job: Observed({"flows": {}, "to_s": 1.0}) for job in plan.jobs()}
    with pytest.raises(KeyError, match="video"):
        plan.part(runs_of)


@pytest.mark.parametrize("id", ["B-A", "K-A", "K-C", "M-F"])
def test_packets_are_recorded_only_where_a_number_takes_their_jitter(id: str) -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.id == id)
    recorded = {
        str(tomllib.loads(job.load().toml()).get("record", {}).get("packets", []))
        for medium in media_of(experiment, ())
        for job in suite.Plan(experiment, medium, (1,)).jobs()
    }
    assert recorded == {"['video']" if id == "B-A" else "[]"}


def test_a_change_that_not_all_variants_are_run_with_is_held_against_none_of_theirs() -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.id == "B-I")
    own = Change("a TCP of its own", {"flow.tcp.window": "9p"}, variants=("pgmcc",))
    experiment = replace(experiment, changes=(own,), world=None)
    plan = suite.Plan(experiment, media_of(experiment, ())[0], (1,))
    by_id = {s.id: s for s in experiment.statements}
    assert plan.concerns(own, by_id["pgmcc-tcp"], own.name)
    assert not plan.concerns(own, by_id["asmp-tcp"], own.name)


def test_ranges_of_paths_are_written_out_and_short_again() -> None:
    long = {f"flow.tcp{n}.preset": "linux" for n in range(1, 11)} | {"seed": 1}
    assert sets.spread({"flow.tcp[1-10].preset": "linux", "seed": 1}) == long
    assert sets.short(long) == {"flow.tcp[1-10].preset": "linux", "seed": 1}
    assert sets.short({"flow.a1.x": 1, "flow.a2.x": 2}) == {"flow.a1.x": 1, "flow.a2.x": 2}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_every_flow_that_a_statement_names_is_in_its_scenario(experiment: Experiment) -> None:
    flows = {}
    for medium in media_of(experiment, ()):
        plan = suite.Plan(experiment, medium, (1,))
        for v in plan.variants:
            job = plan.job(v, 1, "", False)
            flows[v.name] = {f["name"] for f in tomllib.loads(job.load().toml())["flow"]}
    for s in experiment.statements:
        for part in (x for each in s.measure.rows for x in each if isinstance(x, Term)):
            if part.quantity.flow:
                assert part.quantity.flow in flows[part.variant], f"{s.id}: {part}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_every_run_of_an_experiment_is_a_scenario_that_can_be_read(experiment: Experiment) -> None:
    for medium in media_of(experiment, ()):
        plan = suite.Plan(experiment, medium, (1,))
        for job in plan.jobs():
            job.load()


# ---------------------------------------------------------------- from numbers to verdicts


def seen(value: float) -> dict[str, Observed]:
    return {"x": Observed({"jain": value, "to_s": 1.0, "flows": {}})}


def judged(
    values: list[float],
    bound: Bound,
    changed: dict[str, list[float]] | None = None,
    placebo: list[float] | None = None,
    little: str = "",
    **other: Any,
) -> Row:
    statement = Statement(
        "s", "delay", "", "below 10 ms", Take("value", ((term("x.jain"),),)), bound, UNITS["ms"], **other
    )
    tried = {
        name: m
        for name, them in (changed or {}).items()
        if (m := measured(statement, [seen(v) for v in them])) is not None
    }
    without = None if placebo is None else [seen(v) for v in placebo]
    found = judge(statement, [seen(v) for v in values], without, tried, little)
    medium = Medium("table2", "sizes", {}, pixels=False)
    return Row(EXPERIMENTS[0], statement, medium, found, None, tried)


def test_a_statement_is_decided_where_the_whole_interval_is_on_one_side_of_its_bound() -> None:
    assert judged([8, 8.1, 7.9], Bound(most=10)).verdict is Verdict.COMES_OUT
    assert judged([12, 12.1, 11.9], Bound(most=10)).verdict is Verdict.FAILS
    kept, missed = judged([8, 9, 12.9], Bound(most=10)), judged([8, 9, 13.1], Bound(most=10))
    assert (kept.verdict, missed.verdict) == (Verdict.UNJUDGED, Verdict.UNJUDGED)
    assert kept.words == "can't be judged (the interval of 3 seeds reaches across the bound)"
    assert "The mean keeps the bound, its interval reaches across it." in kept.why
    assert "The mean misses the bound, its interval reaches across it." in missed.why
    assert judged([8, 8, 8], Bound(most=8)).verdict is Verdict.COMES_OUT
    assert judged([5], Bound(most=10)).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [(0, 0.4, True), (0.4, 0.6, False), (0.5, 1, True), (0.9, 1.1, False), (1.1, 2, True), (0, 2, False)],
)
def test_an_interval_around_a_two_sided_bound_decides_nothing(low: float, high: float, decided: bool) -> None:
    assert Bound(0.5, 1.0).decides(low, high) is decided


def test_seeds_without_a_value_are_said() -> None:
    statement = Statement("s", "s", "", "s", Take("ratio", ((term("x.jain"), term("y.jain")),)), Bound(0.1))
    runs_ = [{"x": seen(1.0)["x"], "y": seen(y)["x"]} for y in (2.0, 2.0, 0.0)]
    medium = Medium("table2", "sizes", {}, pixels=False)
    found = Row(EXPERIMENTS[0], statement, medium, judge(statement, runs_), None, {})
    assert found.verdict is Verdict.COMES_OUT
    assert found.why == "1 of 3 seeds have no value."


def test_what_holds_by_construction_is_shown_and_not_counted() -> None:
    certain = judged([5, 5], Bound(most=10), kind=Kind.CERTAIN)
    assert certain.verdict is Verdict.CERTAIN
    assert judged([15, 15], Bound(most=10), kind=Kind.CERTAIN).verdict is Verdict.FAILS


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("count", [1, 2, 11])
def test_counted_verdicts_agree_with_their_number(verdict: Verdict, count: int) -> None:
    said = write.counted([(verdict, verdict)] * count)
    assert Verdict.of(f"{verdict.value} (why)") is verdict
    many = re.search(rf"\b{count} (come|do|numbers|statements)\b", said)
    one = re.search(rf"\b{count} (comes|does|number|statement)\b", said)
    assert (many is None, one is None) == (count == 1, count != 1), said
    assert not re.search(r"\b1 (come|do|numbers|statements)\b", said), said


def test_the_joint_setting_and_what_is_printed_are_counted_apart() -> None:
    out, fails, untested = Verdict.COMES_OUT, Verdict.FAILS, Verdict.UNTESTED
    said = write.counted([(out, fails), (out, out), (fails, out), (untested, out)])
    assert said.startswith(
        "4 statements are judged in the joint setting of their paper. Of these statements, 2 come"
    )
    assert ". 1 does not come out. 1 can't be tested, because " in said
    assert said.endswith("(setting “as printed”), our results are within the bounds of 3 statements.")


def test_what_its_placebo_keeps_does_not_come_out() -> None:
    assert judged([8, 8.1, 7.9], Bound(most=10), placebo=[20, 21, 22]).verdict is Verdict.COMES_OUT
    kept = judged([8, 8.1, 7.9], Bound(most=10), placebo=[9, 9.1, 9])
    assert kept.words == "can't be tested this way (without its event 9 ± 0 ms)"
    # The placebo reaches across the bound, and the runs do not differ from it.
    assert judged([8, 8.1, 7.9], Bound(most=10), placebo=[2, 8, 14]).verdict is Verdict.UNTESTED
    # One of them may have more seeds.
    assert judged([8, 8.1, 7.9, 8], Bound(most=10), placebo=[20, 21]).verdict is Verdict.COMES_OUT
    # A result that misses its bound fails, independent of the placebo.
    assert judged([12, 12.1, 12], Bound(most=10), placebo=[9, 9.1, 9]).verdict is Verdict.FAILS


def test_a_strict_bound_excludes_its_ends() -> None:
    assert not Bound(1.0, strict=True).holds(1.0)
    assert Bound(1.0).holds(1.0)
    assert Bound(0.5, 0.8).holds(0.8)
    assert not Bound(0.5, 0.8).holds(0.81)


def test_what_comes_out_with_what_is_not_the_papers_does_not_come_out() -> None:
    row = judged([20, 20], Bound(most=10), {"CoDel": [9, 9], "RED": [30, 30]})
    assert row.words == "does not come out, but would with “CoDel”"
    assert "With what is not the paper's: CoDel (9 ± 0 ms); RED (30 ± 0 ms)." in row.why
    assert judged([20, 20], Bound(most=10), {"RED": [30, 30]}).words == "does not come out"
    # A change whose interval crosses the bound shows nothing.
    assert judged([20, 20], Bound(most=10), {"CoDel": [5, 12]}).words == "does not come out"


def test_another_number_of_the_same_runs_may_be_what_the_world_takes_the_words_for() -> None:
    other = Another("twice", '"twice" (1)', Take("ratio", ((term("x.jain"), 2.0),)))
    statement = replace(judged([1, 1], Bound(most=10)).statement, others=(other,))
    assert as_read(statement, ["γ", "twice"]).measure == other.measure
    assert as_read(statement, ["γ"]) == statement


def test_what_asks_too_little_of_the_network_is_not_judged() -> None:
    row = judged([8, 8], Bound(most=10), little="the encoder limits the rate")
    assert row.words == "can't be judged (the encoder limits the rate)"


@pytest.mark.parametrize("family", "KMHCB")
def test_a_world_takes_what_excludes_nothing_else_of_it(family: str) -> None:
    experiments = [e for e in EXPERIMENTS if e.id[0] == family]
    (world,) = {e.world for e in experiments}
    assert world is not None
    taken = [name for e in experiments for name in (c.name for c in e.in_world)]
    read = [o.name for e in experiments for s in e.statements for o in s.others]
    assert set(world.takes) <= {*taken, *read}


def test_a_statement_about_an_event_has_a_run_without_it() -> None:
    for e in EXPERIMENTS:
        ids = [id for p in e.placebos for id in p.only]
        assert len(ids) == len(set(ids)), f"{e.id}: a statement has two placebos"
        for p in e.placebos:
            assert all(p.sets_in(e.scenario_of(v)) for v in e.variants)


def test_grades_by_index_and_of_what_was_sent_are_taken_where_a_statement_asks_for_them(cache: Path) -> None:
    short = {"duration": "2s", "flow.video.receivers": 1, "flow.video.encode.size": "qcif"}
    job = Job.of(ROOT / "papers/scenarios/k-d.toml", [short], 1, pixels=True)
    plain, graded = run_all([job, replace(job, graded=True)], Silent()).values()
    assert key_of(job) != key_of(replace(job, graded=True))
    assert quantity.score_by_index(plain.flow("video")) is None
    flow = graded.flow("video")
    for against in ("sent", "index"):
        assert sum(flow.grades(against).values()) == pytest.approx(1.0, abs=1e-5)
    # A frame in flight at the end is neither lost nor given to the decoder.
    given = flow.content["graded"]["index_psnr_y_db"]
    assert 0 <= flow.frames["sent"] - flow.frames["lost"] - len(given) <= 2


def test_decisions_are_kept_where_a_number_needs_them(cache: Path) -> None:
    functions = {name: each for name, each in vars(quantity).items() if inspect.isfunction(each)}
    needed = {name for name, each in functions.items() if ".decisions" in inspect.getsource(each)}
    # A number may call another one.
    needed |= {
        n for n, each in functions.items() if any(f" {x}(" in inspect.getsource(each) for x in needed - {n})
    }
    assert needed == set(quantity.DECISIONS)

    job = Job.of(K_F, (SHORT,), 1, pixels=False)
    whole, without = run_all([job, replace(job, decisions=False)], Silent()).values()
    assert whole.flow("video").decisions
    for flow in whole.content["flows"].values():
        flow.pop("decisions", None)
    assert whole.content == without.content


@pytest.mark.parametrize(
    ("bound", "width"),
    [
        (Bound(0.5, 2.0), "a factor of 4"),
        (Bound(-5.0, 5.0), "10 ms wide"),
        (Bound(0.0, strict=True), "an order alone"),
        (Bound(most=1.0), "an order alone"),
        (Bound(1.5), "open above"),
        (Bound(most=30.0), "open below"),
        (Bound(), ""),
    ],
)
def test_a_bound_says_how_wide_it_is(bound: Bound, width: str) -> None:
    kind = Kind.REPORTED if bound == Bound() else Kind.MEASURED
    assert judged([1, 1], bound, kind=kind).width == width


def test_what_five_seeds_leave_undecided_is_run_with_twenty_and_nothing_else_is() -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.id == "B-I")
    plan = suite.Plan(experiment, media_of(experiment, ())[0], (6, 7, 8, 9, 10))
    before = set(plan.jobs())
    by_id = {s.id: s for s in experiment.statements}
    open_ = replace(judged([8, 9, 13.1], Bound(most=10)), statement=by_id["asmp-gradual"])
    decided = replace(judged([8, 8, 8], Bound(most=10)), statement=by_id["pgmcc-tcp"])
    plan.ask_more([open_, decided])
    more = set(plan.jobs()) - before
    assert {job.seed for job in more} == set(range(11, 26))
    (asmp,) = (v for v in plan.variants if v.name == "asmp")
    ways = ("joint setting", "joint setting, without the end of TCP")
    assert {job.sets for job in more} == {plan.job(asmp, 6, way, False).sets for way in ways}


@pytest.mark.parametrize(("seeds", "more"), [(2, False), (5, False), (6, True), (None, True)])
def test_no_seeds_are_added_where_a_variant_of_a_statement_has_no_more(seeds: int | None, more: bool) -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.id == "C-C")
    few = tuple(replace(v, seeds=seeds if v.name == "multfrc 0.08" else None) for v in experiment.variants)
    plan = suite.Plan(replace(experiment, variants=few), media_of(experiment, ())[0], (6, 7, 8, 9, 10))
    before = set(plan.jobs())
    (same,) = (s for s in experiment.statements if s.id == "same-0.08")
    plan.ask_more([replace(judged([8, 9, 13.1], Bound(most=10)), statement=same)])
    assert bool(set(plan.jobs()) - before) is more


def test_an_experiment_may_keep_the_drawn_film_where_clips_are_given(tmp_path: Path) -> None:
    clip = tmp_path / "film.mkv"
    named = {e.id: [m.name for m in media_of(e, (clip,))] for e in EXPERIMENTS if e.id in ("K-D", "K-E")}
    assert named == {"K-D": ["clip"], "K-E": ["table2", "synthetic"]}


def test_what_does_not_come_out_is_run_with_what_is_not_the_papers_and_nothing_else_is() -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.id == "B-I")
    plan = suite.Plan(experiment, media_of(experiment, ())[0], (6, 7))
    before = set(plan.jobs())
    by_id = {s.id: s for s in experiment.statements}
    fails = replace(judged([20, 20], Bound(most=10)), statement=by_id["asmp-tcp"])
    plan.ask_changes([fails, replace(judged([8, 8], Bound(most=10)), statement=by_id["pgmcc-tcp"])])
    more = set(plan.jobs()) - before
    assert len(more) == 2 * len(experiment.changes)
    assert {job.scenario.name for job in more} == {"b-i-asmp.toml"}


def test_a_reading_sets_what_each_network_calls_its_links() -> None:
    red = next(c for e in EXPERIMENTS if e.id == "B-K" for c in e.tried if c.name.startswith("RED in"))
    assert "topology.bottleneck.queue" in red.sets_in(Path("b-e.toml"))
    assert "link.l8.queue" in red.sets_in(Path("papers/scenarios/b-h.toml"))
    assert red.sets_in(Path("b-j.toml")) == {}


def test_what_has_no_bound_is_reported_and_what_nobody_can_run_can_not_be_judged() -> None:
    assert judged([1, 2], Bound(), kind=Kind.REPORTED).verdict is Verdict.REPORTED
    assert judged([1, 2], Bound(most=9), kind=Kind.IMPOSSIBLE).verdict is Verdict.UNJUDGED


# ---------------------------------------------------------------- what is measured


def flow(delays: list[float | None]) -> Flow:
    return Flow({"frame_delay_ms": delays, "frame_first_ms": delays})


def test_cumulative_jitter_is_the_delay_beyond_the_first_frames_and_a_loss_needs_no_special_case() -> None:
    assert flow([20.0, 25.0, None, 18.0]).cumulative_ms() == [0.0, 5.0, -2.0]


def test_delay_variation_is_taken_between_frames_that_follow_each_other() -> None:
    assert flow([20.0, 25.0, None, 18.0, 19.0]).variations_ms() == [5.0, 1.0]


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(x) for x in range(1, 101)]
    assert percentile(values, 0.95) == 95.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([7.0], 0.99) == 7.0


# ---------------------------------------------------------------- runs and their cache


def job(**sets: str) -> Job:
    return Job.of(K_F, (SHORT, sets), 1, pixels=False)


def test_only_what_changes_packets_changes_a_runs_name() -> None:
    base = key_of(job())
    assert key_of(job(name="other")) == base
    assert key_of(job(**{"flow.video.controller": "tfmcc"})) != base
    assert key_of(replace(job(), seed=2)) != base
    assert key_of(replace(job(), pixels=True)) != base


def test_a_controllers_source_names_the_runs_that_it_takes_part_in_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from steadycast import _core

    asmp, tfmcc = job(), job(**{"flow.video.controller": "tfmcc"})
    before = key_of(asmp), key_of(tfmcc)
    rest, each = _core.sources()
    monkeypatch.setattr(_core, "sources", lambda: (rest, {**each, "tfmcc": "changed"}))
    assert key_of(asmp) == before[0]
    assert key_of(tfmcc) != before[1]
    monkeypatch.setattr(_core, "sources", lambda: ("changed", each))
    assert key_of(asmp) != before[0]


def test_what_is_built_from_another_controller_changes_with_it() -> None:
    from steadycast import _core

    _, each = _core.sources()
    assert len({each[name] for name in ("tfrc", "multfrc", "asmp", "tfmcc", "pgmcc", "fixed")}) == 6
    assert each["multfrc"] == each["eaio-tfrc"]


def test_a_run_is_made_once_and_again_only_when_its_record_is_damaged(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, of: int) -> None:
        heard.append((what, done, of))

    first = run_all([job(), job(name="twin")], progress)
    assert heard[-1] == ("runs", 1, 1), "runs that differ in their name only are one"
    assert first[job()].flow("video").frames["sent"] in range(24, 28)
    heard.clear()
    again = run_all([job()], progress)
    assert heard == []
    assert again[job()].content == first[job()].content
    (kept,) = (cache / "reproduce").iterdir()
    kept.write_bytes(kept.read_bytes()[:40])
    assert run_all([job()], progress)[job()].content == first[job()].content
    assert heard[-1] == ("runs", 1, 1)


# ---------------------------------------------------------------- what is written


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYCAST_CACHE", str(tmp_path_factory.mktemp("cache")))
        (experiment,) = (e for e in EXPERIMENTS if e.id == "K-F")
        keep = {"ratio", "asmp-loss", "tfmcc-loss", "p95"}
        small = replace(
            experiment,
            variants=tuple(
                Variant(v.name, v.title, {**v.sets, "duration": "3s", "flow.video.receivers": "2"})
                for v in experiment.variants
            ),
            statements=tuple(s for s in experiment.statements if s.id in keep),
            changes=experiment.changes[:1],
            placebos=(),
        )
        patch.setattr(suite, "chosen", lambda ids: [small])
        return suite.reproduce(["K-F"], seeds=[1, 2])


def test_the_terminals_table_fits_80_columns(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    write.show(result)
    lines = capsys.readouterr().out.splitlines()
    assert 10 < len(lines) < 60
    assert max(len(line) for line in lines) <= 80
    assert any(line.split()[:3] == ["statement", "published", "bound"] for line in lines)
    assert "papers/scenarios/k-f.toml" in lines
    assert "  TFMCC: flow.video.controller=tfmcc duration=3s flow.video.receivers=2" in " ".join(lines)


def test_the_page_has_every_statement_and_figure_and_loads_nothing(result: Result) -> None:
    page = write.page(result)
    assert page.count("<figure>") == 2
    for r in result.rows:
        assert r.said() in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_the_markdown_has_a_row_per_statement(result: Result) -> None:
    lines = write.markdown(result).splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(result.rows) + 1
    assert len({line.count(" | ") for line in lines if line.startswith("| ")}) == 1


def test_results_replace_only_results_and_one_command_at_a_time_writes_them(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "reproduce", lambda *_, **__: result)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "out"
    suite.main(["K-A"], [1], place)
    assert {p.name for p in place.iterdir()} == {"reproduction.md", "reproduction.html", "reproduction.json"}
    with pytest.raises(UserError, match="this folder exists"):
        suite.main(["K-A"], [1], place)
    with Draft(place, force=True) as other:
        other.begin()
        with pytest.raises(UserError, match=f"another run .process {os.getpid()}. is writing there"):
            suite.main(["K-A"], [1], place, force=True)
        assert other.part.is_dir()
    other.discard()
    suite.main(["K-A"], [1], place, force=True)
    with pytest.raises(UserError, match="this is the current folder"):
        suite.main(["K-A"], [1], Path(), force=True)
    (place / "reproduction.json").unlink()
    with pytest.raises(UserError, match="no results of this program"):
        suite.main(["K-A"], [1], place, force=True)
    # Without a folder's name, each call has a separate folder.
    suite.main(["K-A"], [1], None)
    suite.main(["K-A"], [1], None)
    assert {p.name for p in Path("runs").iterdir()} == {"reproduce-K-A", "reproduce-K-A-2"}


def test_a_folder_that_can_not_be_written_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "reproduce", None)
    (tmp_path / "file").touch()
    with pytest.raises(UnwrittenError, match="can't be written"):
        suite.main(["K-A"], [1], tmp_path / "file" / "out")

    def stops(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "reproduce", stops)
    with pytest.raises(KeyboardInterrupt):
        suite.main(["K-A"], [1], tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_parts_know_their_runs(result: Result) -> None:
    (part,) = result.parts
    assert isinstance(part, Part)
    assert len(part.runs("asmp")) == 2
    assert part.runs("nobody") == []


# ---------------------------------------------------------------- the papers' numbers


def test_every_figure_and_table_that_a_paper_numbers_has_a_place() -> None:
    from papers.engine.numbered import COUNTS, numbered

    places = numbered(EXPERIMENTS)
    assert len(places) == sum(figures + len(tables) for figures, tables in COUNTS.values()) == 94
    assert [p for p in places if not p[2]] == []
    known = {e.id for e in EXPERIMENTS}
    drawn = {number: place for paper, number, place in places if paper.startswith("Hong")}
    assert [drawn[f"Figure {n}"] for n in (4, 6, 7)] == ["H-B", "H-C", "H-D"]
    assert {i for _, _, place in places for i in place.split(", ") if "-" in i and len(i) <= 3} <= known
