"""Every controller in every situation that it serves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation import situations

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "which-controller.md"


def test_a_unicast_controller_has_no_cell_for_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert situations.main(["tfrc", "fixed", "--seeds", "1"]) == 0
    rows = re.findall(r"^\| `(tfrc|fixed)` \| (.*) \|$", capsys.readouterr().out, re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for _, row in rows]
    assert [name for name, _ in rows] == ["tfrc", "fixed", "tfrc", "fixed"]
    groups = [n for n, situation in enumerate(situations.SITUATIONS) if situation.group]
    for (name, _), row in zip(rows, cells, strict=True):
        assert [n for n, cell in enumerate(row) if not cell] == (groups if name == "tfrc" else [])


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


def test_the_page_has_a_column_for_each_situation() -> None:
    heads = re.findall(r"^\| controller \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert heads == [" | ".join(situation.name for situation in situations.SITUATIONS)] * 2
