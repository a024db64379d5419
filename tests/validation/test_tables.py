"""The tables of the test cases, and what becomes of any table."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation import page


def test_a_spread_is_told_where_runs_differ() -> None:
    assert page.spread([10.0, 10.2]) == "10"
    assert page.spread([8.0, 12.0]) == "10 (8…12)"


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
    assert len(marks) >= 3
    for place, mark in marks:
        text = place.read_text()
        assert text.count(mark) == text.count(mark.replace("begin", "end")) == 1, (place, mark)


def test_numbers_of_a_table_become_numbers_with_their_unit_in_the_heading() -> None:
    heads = ("`a`", "use", "share, %", "loss", "text")
    rows = (
        ("`x`", "99.5 ± 0.3 %", "101 (98…104)", "[1,234 ms]", "3 of 4"),
        ("**y**", "–", "95", "7 ms (5…9)", ""),
    )
    share = ["share, %", "share least, %", "share most, %"]
    loss = ["loss, ms", "loss least, ms", "loss most, ms", "loss misses"]
    assert page.plain(page.Table(heads, rows)) == [
        ["a", "use, %", "use ±, %", *share, *loss, "text"],
        ["x", "99.5", "0.3", "101", "98", "104", "1234", "1234", "1234", "yes", "3 of 4"],
        ["y", "", "", "95", "95", "95", "7", "5", "9", "no", ""],
    ]


CELL = st.text("a12 ,.\"'±()…[]%–`*|-µ\\", max_size=9)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=6))
def test_any_table_is_read_back_with_all_of_its_rows(rows: list[tuple[str, ...]]) -> None:
    made = page.Table(("one", "two", "two"), tuple(rows))
    with TemporaryDirectory() as folder:
        place = page.store("t", made, {"title": 'a "title"', "note": ""}, Path(folder))
        with place.open(encoding="utf-8", newline="") as file:
            read = list(csv.reader(file))
        assert tomllib.loads(place.with_suffix(".toml").read_text()) == {"title": 'a "title"'}
    assert len(read) == 1 + len(rows)
    assert len(set(read[0])) == len(read[0]), "each column has a name of its own"
    assert {len(line) for line in read} == {len(read[0])}


def test_rows_that_a_run_does_not_make_stay_and_another_table_s_do_not(tmp_path: Path) -> None:
    heads = ("net", "who", "rate, kb/s")
    first = page.table(heads, [("a", "x", "1"), ("a", "y", "2")])
    page.save("t", "a title", page.merged("t", first, 2, tmp_path), "made", folder=tmp_path)
    again = page.merged("t", page.table(heads, [("b", "x", "3"), ("a", "y", "4")]), 2, tmp_path)
    assert again.rows == (("a", "x", "1"), ("a", "y", "4"), ("b", "x", "3"))
    other = page.table(("net", "who", "delay, ms"), [("c", "x", "5")])
    assert page.merged("t", other, 2, tmp_path).rows == (("c", "x", "5"),)


def test_each_table_of_the_pages_says_where_it_comes_from_and_is_read_by_polars() -> None:
    linked = {
        name
        for place in page.DOCS.rglob("*.md")
        for name in re.findall(r"data/([a-z0-9-]+)\.csv\)", place.read_text(encoding="utf-8"))
    }
    tables = {place.stem for place in page.DATA.glob("*.csv")}
    assert tables == linked, "a page links to each table"
    assert tables == {place.stem for place in page.DATA.glob("*.toml")}
    for name in tables:
        told = tomllib.loads((page.DATA / f"{name}.toml").read_text(encoding="utf-8"))
        assert told["title"], name
        assert pl.read_csv(page.DATA / f"{name}.csv", infer_schema_length=None).height > 0, name
