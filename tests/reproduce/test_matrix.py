"""An experiment's cross product equals its rows written one by one."""

from __future__ import annotations

import tomllib
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.engine.matrix import crossed
from tests.conftest import ROOT, script

NAMES = st.text("abc123", min_size=1, max_size=3)
AXES = st.lists(st.lists(NAMES, min_size=1, max_size=4, unique=True), min_size=1, max_size=3)


def table(axes: list[list[str]], **matrix: object) -> dict[str, object]:
    """An experiment whose variants are named by all of their values."""
    names = [f"axis{n}" for n in range(len(axes))]
    listed = [
        {"name": name, "values": [{"name": v, "sets": {f"{name}.is": v}} for v in values]}
        for name, values in zip(names, axes, strict=True)
    ]
    variant = " ".join(f"{{{name}}}" for name in names)
    reported = [[f"{variant}-rate", "a rate", f"{variant}.video.rate", "Mb/s"]]
    made = {"over": names, "variant": variant, "title": f"of {variant}", "reported": reported, **matrix}
    return {"id": "X", "axis": listed, "matrix": [made]}


@given(AXES)
def test_each_combination_is_a_variant_with_the_sets_of_its_values(axes: list[list[str]]) -> None:
    made = crossed(table(axes), ValueError)
    assert set(made) == {"id", "variant", "reported"}
    assert len(made["variant"]) == len(made["reported"]) == prod(map(len, axes))
    names = [variant["name"] for variant in made["variant"]]
    assert len(set(names)) == len(names)
    for variant, row in zip(made["variant"], made["reported"], strict=True):
        values = variant["name"].split(" ")
        assert variant["sets"] == {f"axis{n}.is": value for n, value in enumerate(values)}
        assert row == [f"{variant['name']}-rate", "a rate", f"{variant['name']}.video.rate", "Mb/s"]


@given(AXES)
def test_what_is_left_out_is_not_there(axes: list[list[str]]) -> None:
    gone = axes[0][0]
    made = crossed(table(axes, without=[[gone]]), ValueError)
    names = [variant["name"].split(" ") for variant in made.get("variant", [])]
    assert len(names) == prod(sum(value != gone for value in values) for values in axes)
    assert all(gone not in values for values in names)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"over": ["nothing"]}, 'no axis "nothing"'),
        ({"title": "{axis9}"}, "axis9"),
        ({"title": "{axis0.colour}"}, "colour"),
        ({"title": "{"}, "filled in"),
    ],
)
def test_a_name_that_stands_for_nothing_is_an_error(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        crossed(table([["a", "b"]], **change), ValueError)


def test_each_cell_of_the_answers_is_a_statement_of_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = script("answers")
    for table in answers.TABLES:
        question = "-".join(table.name.split("-")[:2])
        content = tomllib.loads((ROOT / "papers" / "q" / f"{question}.toml").read_text(encoding="utf-8"))
        made = crossed(content, ValueError)
        names = {row[0] for row in made.get("reported", [])} | {s["id"] for s in made.get("statement", [])}
        number = {"mean": 1.0, "ci95": 0.0, "min": 1.0, "max": 1.0, "n": 5}
        filled = answers.written(table, dict.fromkeys(names, number)).rows
        assert filled
        for column in zip(*filled, strict=True):
            assert any(column), f"{table.name}: a column without a statement"
