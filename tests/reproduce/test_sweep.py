"""The settings of a sweep, and the papers' tables."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from papers import EXPERIMENTS
from papers.engine import sweep, tables
from papers.engine.experiment import Bound, Medium
from papers.engine.observe import Observed
from papers.engine.registry import FAMILIES
from papers.engine.suite import JUDGED, Part
from validation import page


@pytest.mark.parametrize("family", "KMHCB")
@pytest.mark.parametrize("rows", [7, 24])
def test_each_level_of_a_value_stands_in_equally_many_rows_of_the_design(family: str, rows: int) -> None:
    listed = sweep.factors(family)
    made = sweep.design(listed, rows, seed=1)
    assert made == sweep.design(listed, rows, seed=1) != sweep.design(listed, rows, seed=2)
    for _, others in listed:
        names = set(others)
        taken = [names & t.takes for t in made]
        assert all(len(each) <= 1 for each in taken), "levels of a value exclude each other"
        counts = Counter(name for each in taken for name in each)
        counts["as set up"] = sum(not each for each in taken)
        assert max(counts.values()) - min(counts[n] for n in (*names, "as set up")) <= 1


@pytest.mark.parametrize("family", "KMHCB")
def test_a_sweep_changes_one_thing_of_the_world_at_a_time(family: str) -> None:
    found = sweep.settings(family, rows=0)
    world = FAMILIES[family][0].world
    assert world is not None
    assert found[0].takes == set(world.takes)
    apart = [t for t in found if t.kind == "one at a time"]
    assert all(1 <= len(t.takes ^ found[0].takes) <= 2 for t in apart)
    assert all(found[0].takes - t.gives_up | t.adds == t.takes for t in apart)
    assert len({t.name for t in found}) == len(found)


@pytest.mark.parametrize("family", "KMHCB")
def test_a_world_takes_one_level_of_a_value_at_most_so_that_a_design_can_contain_it(family: str) -> None:
    world = FAMILIES[family][0].world
    assert world is not None
    known = {name for _, others in sweep.factors(family) for name in others}
    assert set(world.takes) <= known
    assert all(len(set(others) & set(world.takes)) <= 1 for _, others in sweep.factors(family))


def _found(name: str, *numbers: float, kind: str = "one at a time") -> sweep.Found:
    outcomes = {("A", str(n)): sweep.Outcome((x,) * 5, Bound(most=1.0)) for n, x in enumerate(numbers)}
    return sweep.Found(sweep.Tried(kind, name, frozenset()), JUDGED, outcomes)


def test_the_table_has_what_a_setting_changes_beside_the_joint_setting() -> None:
    world, other = _found("joint setting", 0.5, 2.0, 0.1), _found("other", 2.0, 0.5, 0.2)
    assert sweep.turned(world, other) == ([("A", "1")], [("A", "0")])
    found = sweep.Search((world, other), (world, other), (world, other))
    rows = page.plain(page.table(sweep.HEADS, list(sweep.table(found))))
    told = dict(zip(rows[0], rows[2], strict=True))
    assert (told["setting"], told["gained"], told["lost"]) == ("other", "A 1", "A 0")


def test_statements_that_hold_in_no_setting_are_listed() -> None:
    world, other = _found("joint setting", 0.5, 2.0, 2.0), _found("other", 2.0, 0.5, 3.0)
    text = sweep.summary(sweep.Search((world, other), (world, other), (world, other)), "x.csv")
    assert "One of the 3 statements holds in none of the settings:\n\n- A: “2”" in text


@pytest.mark.parametrize("draw", range(5))
def test_an_overview_counts_what_a_table_of_a_sweep_has(draw: int) -> None:
    drawn = random.Random(draw)

    def found(name: str, kind: str) -> sweep.Found:
        return _found(name, *(drawn.choice((0.5, 2.0)) for _ in range(6)), kind=kind)

    base = found("joint setting", "joint setting")
    others = [found(str(n), drawn.choice(("one at a time", "design", "added"))) for n in range(4)]
    newer = found("newer", "not the paper's")
    candidate = found("5", "candidate")
    search = sweep.Search((base, *others, newer), (base, others[0]), (base, candidate))
    plain = page.plain(page.table(sweep.HEADS, list(sweep.table(search))))
    rows = [dict(zip(plain[0], row, strict=True)) for row in plain[1:]]
    line = sweep.overview([("a", rows)]).splitlines()[2]
    best = max(len(f.holds) for f in (base, *others))
    ever = len(set().union(*(f.holds for f in (base, *others))))
    gain = f"{len(candidate.holds) - len(base.holds):+.2f}".replace("-", "−")
    assert line == f"| a | 6 | {len(base.holds)} | {best} | {ever} | {gain} ± 0.00 |"


@pytest.mark.parametrize(
    ("values", "placebo", "little", "holds"),
    [
        ((0.5, 1.3), None, False, True),
        ((0.5, 1.7), None, False, False),
        ((None, 0.5), None, False, True),
        ((None, None), None, False, False),
        ((0.5, 0.5), (2.0, 2.0), False, True),
        ((0.5, 0.5), (0.5, 0.7), False, False),
        ((0.5, 0.5), None, True, False),
    ],
)
def test_a_statement_holds_by_its_mean_if_it_does_not_hold_without_its_event(
    values: tuple[float | None, ...], placebo: tuple[float | None, ...] | None, little: bool, holds: bool
) -> None:
    assert sweep.Outcome(values, Bound(most=1.0), placebo, little).holds is holds


def test_a_difference_between_settings_is_paired_by_seed_with_a_995_per_mille_interval() -> None:
    assert sweep.paired([12, 14, 13, 15, 16], [10, 12, 11, 13, 14]) == (2.0, 0.0)
    mean, half = sweep.paired([1, 0, 1, 0, 1], [0, 1, 0, 1, 0])
    assert mean == pytest.approx(0.2)
    assert half == pytest.approx(5.598 * 1.0954 / 5**0.5, rel=1e-3)


def test_the_best_level_of_each_value_is_that_whose_rows_have_the_most_statements() -> None:
    def row(takes: str, count: int) -> sweep.Found:
        outcomes = {("A", str(n)): sweep.Outcome((0.0,), Bound(most=1.0)) for n in range(count)}
        return sweep.Found(sweep.Tried("design", takes, frozenset(takes.split())), (1,), outcomes)

    rows = [row("a x", 5), row("b", 2), row("a", 6), row("x", 3), row("b x", 1)]
    best = sweep.best_levels(rows, [("one", ["a", "b"]), ("two", ["x"])])
    assert best.takes == {"a"}


@pytest.mark.parametrize("family", "HB")
@pytest.mark.parametrize("draw", range(4))
def test_a_search_judges_one_candidate_on_seeds_that_it_has_not_used(
    family: str, draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(draw)
    names = [name for _, others in sweep.factors(family) for name in others]
    wanted = set(drawn.sample(names, 5))
    asked: list[tuple[tuple[int, ...], int]] = []

    def run(
        _: str, tried: list[sweep.Tried], seeds: tuple[int, ...], *__: object, **___: object
    ) -> list[sweep.Found]:
        asked.append((tuple(seeds), len(tried)))
        made = []
        for each in tried:
            # A statement holds in this paper if its value is as wanted.
            outcomes = {
                ("A", name): sweep.Outcome(
                    ((0.0 if (name in each.takes) == (name in wanted) else 2.0),) * 5, Bound(most=1.0)
                )
                for name in names
            }
            made.append(sweep.Found(each, tuple(seeds), outcomes))
        return made

    monkeypatch.setattr(sweep, "run", run)
    found = sweep.search(family, rows=12, seeds=(1, 2))
    assert asked[-1] == (JUDGED, 2)
    assert all(not set(seeds) & set(JUDGED) for seeds, _ in asked[:-1])
    assert found.judged is not None
    world, candidate = found.judged
    assert len(candidate.holds) == max(len(f.holds) for f in found.tried[1:] if f.tried.allowed)
    assert found.better == (len(candidate.holds) > len(world.holds))
    assert len({row[1] for row in sweep.table(found)}) > 12


@pytest.mark.parametrize("of", ["K-G", "C-C", "B-K", "H-G"])
@pytest.mark.parametrize("gains", [True, False])
def test_a_search_of_one_experiment_is_judged_by_the_whole_paper(
    of: str, gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = of[0]
    others = {e.id for e in FAMILIES[family]} - {of}
    joint = frozenset(FAMILIES[family][0].world.takes)
    runs: list[tuple[tuple[int, ...], frozenset[str]]] = []

    def run(
        _: str, tried: list[sweep.Tried], seeds: tuple[int, ...], *__: object, **how: Any
    ) -> list[sweep.Found]:
        runs.append((tuple(seeds), how["without"]))
        number = [0.0 if gains and t.takes != joint else 2.0 for t in tried]
        outcome = [sweep.Outcome((n,) * len(seeds), Bound(most=1.0)) for n in number]
        return [sweep.Found(t, tuple(seeds), {(of, "1"): o}) for t, o in zip(tried, outcome, strict=True)]

    monkeypatch.setattr(sweep, "run", run)
    found = sweep.search(family, rows=4, seeds=(1,), without=others, whole=True)
    e = next(e for e in FAMILIES[family] if e.id == of)
    known = {c.name for c in e.alternatives} | {o.name for s in e.statements for o in s.others}
    for each in found.tried:
        # Values that cannot change this experiment stay as in the joint setting, except as printed.
        assert each.tried.takes - known in (joint - known, frozenset())
    assert (found.judged is not None) == gains
    assert all(left == others for seeds, left in runs if seeds == (1,))
    assert [left for seeds, left in runs if seeds != (1,)] == [frozenset(), frozenset()] * gains
    rows = page.plain(page.table(sweep.HEADS, list(sweep.table(found))))
    line = sweep.overview([("a", [dict(zip(rows[0], row, strict=True)) for row in rows[1:]])]).splitlines()[2]
    assert line.endswith("| +1.00 ± 0.00 |" if gains else "| no candidate |")
    assert ("no candidate" in sweep.summary(found, "x.csv")) != gains


def test_a_candidate_that_five_seeds_leave_undecided_has_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[int, ...], frozenset[str]]] = []

    def run(
        family: str, tried: list[sweep.Tried], seeds: tuple[int, ...], *_: object, **how: Any
    ) -> list[sweep.Found]:
        asked.append((tuple(seeds), how["without"]))
        world = set(FAMILIES[family][0].world.takes)
        # A statement never holds in the world, and with every second seed in other settings.
        values = {
            True: (2.0,) * len(seeds),
            False: tuple(2.0 * (n % 2) for n in range(len(seeds))),
        }
        return [
            sweep.Found(
                t, tuple(seeds), {("A", "1"): sweep.Outcome(values[t.takes == world], Bound(most=1.0))}
            )
            for t in tried
        ]

    monkeypatch.setattr(sweep, "run", run)
    found = sweep.search("H", rows=4, seeds=(1, 2))
    seeds, left = asked[-1]
    assert seeds == sweep.MORE
    assert set(JUDGED) < set(seeds)
    assert not set(seeds) & {1, 2, 3, 4, 5}
    assert found.judged is not None
    assert left == sweep._same_in("H", found.judged[0].tried, found.judged[1].tried)
    assert found.gain == pytest.approx((0.5, 3.174 * 0.51299 / 20**0.5), rel=1e-3)
    assert found.better


@pytest.mark.parametrize(
    "experiment", [e for e in EXPERIMENTS if e.tables and e.id != "B-K"], ids=lambda e: e.id
)
def test_a_table_of_a_paper_has_its_number_and_ours_in_each_cell(experiment: object) -> None:
    e = next(each for each in EXPERIMENTS if each is experiment)
    part = Part(e, Medium("source", "", {}, pixels=False), (1,), ({"none": Observed({"flows": {}})},), {}, ())
    for table in e.tables:
        if table.made == "ladder":
            continue
        lines = tables.markdown(table, part).splitlines()
        assert len({line.count("|") for line in lines[2:]}) == 1
        assert sum(line.count(" / ") for line in lines[4:]) == sum(
            c.measure is not None for row in table.rows for c in row
        ) + (5 if table.made else 0)


def test_every_table_of_the_papers_is_shown() -> None:
    shown = {(e.id[0], t.number) for e in EXPERIMENTS for t in e.tables}
    from papers.engine.numbered import COUNTS

    papers = {FAMILIES[f][0].paper: f for f in "KMHCB"}
    assert shown == {(papers[paper], f"Table {n}") for paper, (_, names) in COUNTS.items() for n in names}
