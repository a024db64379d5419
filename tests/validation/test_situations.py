"""Every controller in every situation that it serves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation import page, situations

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "which-controller.md"


def test_a_unicast_controller_has_no_cell_for_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert situations.main(["tfrc", "fixed", "--seeds", "1"]) == 0
    rows = re.findall(r"^\| ([^|]+) \| `(tfrc|fixed)` \|", capsys.readouterr().out, re.MULTILINE)
    every = [situation.name for situation in situations.SITUATIONS]
    single = [situation.name for situation in situations.SITUATIONS if not situation.group]
    assert [where for where, name in rows if name == "fixed"] == every
    assert [where for where, name in rows if name == "tfrc"] == single


@pytest.mark.parametrize(
    ("share", "others", "chance", "kept"),
    [(0.8, 0.8, 0.0, True), (0.79, 1.2, 0.0, False), (1.3, 0.79, 0.0, False), (0.5, 0.6, 0.02, True)],
)
def test_both_sides_keep_their_share(share: float, others: float, chance: float, *, kept: bool) -> None:
    situation = situations.Situation("a", situations.FAIR, {}, 2e6, chance=chance)
    assert situations.Seen(share, others, 0.0, 30.0).shares(situation) == kept


def test_no_fixed_rate_is_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    assert situations.main(["fixed", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.count("| none | none |") == len(situations.SITUATIONS)


def test_the_page_says_what_its_tables_have() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for mark, said in situations.said().items():
        told = text.partition(f"<!-- {mark}: begin -->\n")[2].partition(f"\n<!-- {mark}: end -->")[0]
        assert told == said, "python -m validation.situations --told"


def test_the_table_has_each_situation() -> None:
    found = situations.read(page.DATA / f"{situations.CELLS}.csv")
    assert {where for _, where in found} == {situation.name for situation in situations.SITUATIONS}
    choices = situations.read_choices(page.DATA / f"{situations.CHOICE}.csv")
    assert list(choices) == [situation.name for situation in situations.SITUATIONS]
