from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steadycast.errors import UserError
from steadycast.run import load

from papers import EXPERIMENTS, chosen
from papers.engine import runs, suite, write
from papers.engine.experiment import (
    MS,
    Bound,
    Experiment,
    Kind,
    Medium,
    Statement,
    Variant,
    Verdict,
    media_of,
)
from papers.engine.observe import Flow, Observed, percentile
from papers.engine.runs import Job, key_of, run_all
from papers.engine.suite import Part, Result
from papers.engine.verdict import Row, row

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


def test_names_are_unique_where_they_are_looked_up_by_name() -> None:
    assert len({e.id for e in EXPERIMENTS}) == len(EXPERIMENTS)
    for e in EXPERIMENTS:
        for names in (
            [s.id for s in e.statements],
            [v.name for v in e.variants],
            [c.name for c in e.changes],
            [f.number for f in e.figures],
        ):
            assert len(set(names)) == len(names), e.id
        assert all(set(c.only) <= {s.id for s in e.statements} for c in e.changes)
        assert all(set(f.variants) <= {v.name for v in e.variants} for f in e.figures)


def test_every_statement_that_is_judged_has_a_bound_and_no_other_has() -> None:
    for e in EXPERIMENTS:
        for s in e.statements:
            bounded = s.bound.least is not None or s.bound.most is not None
            assert bounded == (s.kind in (Kind.MEASURED, Kind.CLIP)), f"{e.id} {s.id}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_every_run_of_an_experiment_is_a_scenario_that_can_be_read(experiment: Experiment) -> None:
    for medium in media_of(experiment, ()):
        plan = suite._Plan(experiment, medium, (1,))
        for job in plan.jobs():
            load(job.scenario, runs._changes(job))


# ---------------------------------------------------------------- from numbers to verdicts


def seen(value: float) -> dict[str, Observed]:
    return {"x": Observed({"jain": value, "to_s": 1.0, "flows": {}})}


def judged(
    values: list[float], bound: Bound, changed: dict[str, list[float]] | None = None, **other: Any
) -> Row:
    statement = Statement("s", "delay", "below 10 ms", lambda s: s["x"].jain, bound, MS, **other)
    medium = Medium("table2", "sizes", {}, pixels=False)
    others = {name: [seen(v) for v in them] for name, them in (changed or {}).items()}
    return row(EXPERIMENTS[0], statement, medium, [seen(v) for v in values], others)


def test_the_mean_decides_and_the_spread_is_told() -> None:
    assert judged([8, 9, 12.9], Bound(most=10)).verdict is Verdict.REPRODUCED
    assert judged([8, 9, 13.1], Bound(most=10)).verdict is Verdict.NOT_REPRODUCED
    assert "holds for the mean only" in judged([8, 9, 12.9], Bound(most=10)).why
    assert "holds for the mean only" not in judged([8, 8.1, 7.9], Bound(most=10)).why


def test_a_strict_bound_excludes_its_ends() -> None:
    assert not Bound(1.0, strict=True).holds(1.0)
    assert Bound(1.0).holds(1.0)
    assert Bound(0.5, 0.8).holds(0.8)
    assert not Bound(0.5, 0.8).holds(0.81)


def test_a_failure_names_the_change_that_turns_it_or_the_nearest() -> None:
    failed = judged([20, 20], Bound(most=10), {"longer queue": [30, 30], "shorter queue": [9, 9]})
    assert failed.turns == ["shorter queue"]
    assert "Turned by: shorter queue (9 ± 0 ms)" in failed.why
    stuck = judged([20, 20], Bound(most=10), {"longer queue": [30, 30], "paced": [12, 12]})
    assert "None of 2 changes turns it; nearest: paced (12 ± 0 ms)" in stuck.why


def test_what_has_no_bound_is_reported_and_what_nobody_can_run_is_not_reproducible() -> None:
    assert judged([1, 2], Bound(), kind=Kind.REPORTED).verdict is Verdict.REPORTED
    assert judged([1, 2], Bound(most=9), kind=Kind.IMPOSSIBLE).verdict is Verdict.NOT_REPRODUCIBLE


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
        )
        patch.setattr(suite, "chosen", lambda ids: [small])
        return suite.reproduce(["K-F"], seeds=[1, 2])


def test_the_terminals_table_fits_80_columns(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    write.show(result)
    lines = capsys.readouterr().out.splitlines()
    assert 10 < len(lines) < 60
    assert max(len(line) for line in lines) <= 80


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


def test_results_replace_only_results(result: Result, tmp_path: Path) -> None:
    place = tmp_path / "out"
    suite.save(result, place)
    assert {p.name for p in place.iterdir()} == {"reproduction.md", "reproduction.html", "reproduction.json"}
    with pytest.raises(UserError, match="this folder exists"):
        suite._check(place, force=False)
    suite._check(place, force=True)
    (place / "reproduction.json").unlink()
    with pytest.raises(UserError, match="no reproduction"):
        suite._check(place, force=True)


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
