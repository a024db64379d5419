"""The tables of docs/field.md and docs/test-cases.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from steadycast.cases import run_cases

from validation import cases, field, page
from validation.field import Seen


def test_each_neighbour_meets_the_video_at_each_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = [
        replace(
            group, networks={"FQ-CoDel": group.networks["FQ-CoDel"]}, sets={**group.sets, "duration": "15s"}
        )
        for group in field.GROUPS
    ]
    monkeypatch.setattr(field, "GROUPS", tuple(short))
    lte = replace(
        field.LTE_GROUP,
        networks={"CoDel": field.LTE_GROUP.networks["CoDel"]},
        sets={**field.LTE_GROUP.sets, "duration": "15s"},
    )
    monkeypatch.setattr(field, "LTE_GROUP", lte)
    found = field.measure(["gcc"], 1, tmp_path)
    assert len(found) == 6
    for (group, network, name), runs in found.items():
        assert name == "gcc"
        assert len(runs) == 1
        alone = group in ("alone", "on the LTE trace")
        assert (runs[0].other is None) == alone, (group, network)
        assert 0.05 < runs[0].share < 1.6
        assert 0.5 < runs[0].whole <= 1.0
    text = field.tables(found, ["gcc"], 1)
    assert text.count("| `gcc` |") == 2 * 6


def seen(share: float, other: float | None, whole: float = 1.0, delay: float = 50.0) -> Seen:
    return Seen(share, other, delay, 0.0, whole)


def test_the_choice_names_those_that_keep_all_bounds_in_every_run_by_their_delay() -> None:
    key = ("beside CUBIC", "CoDel")
    found = {
        (*key, "gcc"): [seen(0.9, 0.9, delay=40.0), seen(0.9, 0.9, delay=60.0)],
        (*key, "nada"): [seen(0.9, 0.9, delay=30.0), seen(0.8, 0.8, delay=30.0)],
        (*key, "scream"): [seen(0.9, 0.9), seen(0.79, 1.2)],
        (*key, "tfrc"): [seen(0.9, 0.9, whole=0.94)],
        (*key, "fixed"): [seen(1.0, 1.0)],
    }
    lines = field.choice(found, ["fixed", "gcc", "nada", "scream", "tfrc"]).splitlines()
    [line] = [line for line in lines if line.startswith("| beside CUBIC, CoDel")]
    assert line.endswith("| `nada` (30 ms), `gcc` (50 ms) | `tfrc` (50 ms) |")


def test_a_spread_is_told_where_runs_differ() -> None:
    assert field.spread([10.0, 10.2]) == "10"
    assert field.spread([8.0, 12.0]) == "10 (8…12)"


def test_where_the_link_loses_the_two_are_compared_with_each_other() -> None:
    found = {("beside CUBIC", field.CHANCE, "gcc"): [seen(0.5, 0.6)]}
    line = next(line for line in field.choice(found, ["gcc"]).splitlines() if "CUBIC, 2 % loss" in line)
    assert "`gcc`" in line


def test_pages_get_their_tables_between_the_marks(tmp_path: Path) -> None:
    place = tmp_path / "page.md"
    place.write_text("before\n<!-- x: begin -->\nold\n<!-- x: end -->\nafter\n")
    page.put(place, "x", "new")
    assert place.read_text() == "before\n<!-- x: begin -->\nnew\n<!-- x: end -->\nafter\n"
    with pytest.raises(ValueError, match="has no <!-- y: begin -->"):
        page.put(place, "y", "new")


def test_a_mark_stands_once_in_its_page() -> None:
    marks = [
        (place, mark)
        for place in page.DOCS.glob("*.md")
        for mark in re.findall(r"<!-- [\w-]+: begin -->", place.read_text())
    ]
    assert len(marks) > 10
    for place, mark in marks:
        text = place.read_text()
        assert text.count(mark) == text.count(mark.replace("begin", "end")) == 1, (place, mark)


def test_the_tables_of_the_test_cases_say_what_is_bounded_and_what_failed() -> None:
    suite = run_cases(["tfrcp"], case=["5.1", "6.1"])
    text = cases.tables(suite)
    assert "- it comes to use the capacity: use at least 70 %" in text
    assert "No controller has a priority." in text
    assert "| `tfrcp` | 0/8 | – |" in text or "| `tfrcp` | 1/8 | – |" in text
    assert "converge_s" in text
