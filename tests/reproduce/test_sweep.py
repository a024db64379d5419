"""The settings of a sweep, and the papers' tables."""

from __future__ import annotations

from collections import Counter

import pytest

from papers import EXPERIMENTS
from papers.engine import sweep, tables
from papers.engine.experiment import Bound, Medium
from papers.engine.observe import Observed
from papers.engine.registry import FAMILIES
from papers.engine.suite import Part
from papers.engine.values import values
from papers.engine.verdict import Measured


@pytest.mark.parametrize("family", "KMHCB")
@pytest.mark.parametrize("rows", [7, 24])
def test_each_level_of_a_value_stands_in_equally_many_rows_of_the_design(family: str, rows: int) -> None:
    listed = [v for v in values(family) if v.others]
    made = sweep.design(listed, rows, seed=1)
    assert made == sweep.design(listed, rows, seed=1) != sweep.design(listed, rows, seed=2)
    for value in listed:
        names = {o.name for o in value.others}
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
    assert len({t.name for t in found}) == len(found)


def test_what_a_setting_turns_is_told_beside_the_world() -> None:
    def found(name: str, *numbers: float) -> sweep.Found:
        measured = {("A", str(n)): Measured((x, x), Bound(most=1.0), 2) for n, x in enumerate(numbers)}
        return sweep.Found(sweep.Tried("one at a time", name, frozenset()), dict(measured))

    world, other = found("one world", 0.5, 2.0, 0.1), found("other", 2.0, 0.5, 0.2)
    assert sweep.turned(world, other) == ([("A", "1")], [("A", "0")])
    assert "| other | A 1 | A 0 |" in sweep.summary([world, other, found("same", 0.1, 3.0, 0.2)], "x.csv")


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
