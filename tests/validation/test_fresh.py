"""The drawn networks: what a number draws, what is written for it, and what is bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from steadycast.loading import load

from validation import fresh

CELLS = [fresh.cell(4_711, n) for n in range(60)]


def test_a_number_draws_the_same_cell_whatever_was_drawn_before_and_another_one_in_another_draw() -> None:
    assert fresh.cell(4_711, 17) == CELLS[17]
    assert fresh.cell(4_712, 17) != CELLS[17]


@pytest.mark.parametrize("name", ["rival", "queue", "trouble"])
def test_twenty_cells_in_a_row_have_each_card_of_a_deck(name: str) -> None:
    for block in range(3):
        cards = Counter(getattr(one, name) for one in CELLS[20 * block : 20 * block + 20])
        assert cards == fresh.DECKS[name]


def test_every_cell_is_a_scenario_with_steady_and_with_cubic_in_its_place(tmp_path: Path) -> None:
    place = tmp_path / "cell.toml"
    for one in CELLS:
        for controller in ("steady", fresh.CUBIC):
            place.write_text(fresh.scenario(one, controller, {}))
            load(place)
            assert place.read_text().count('name = "video') == one.own


SEEN = {
    "share": 0.9, "others_bps": 1e6, "used": 0.97, "queue_ms": 10.0, "loss": 0.0, "kin": 1.0, "low": 0.0, "low_row": 0,
    "ratio": 1.0, "tcp_low": 0.0, "tcp_row": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rival", "figure", "value", "missed"),
    [
        ("cubic", "ratio", 2.1, "fair"),
        ("cubic", "ratio", 0.45, "fair"),
        ("cubic", "share", 0.4, "share"),
        ("cubic", "others_bps", 0.7e6, "harm"),
        ("cubic", "tcp_row", 12, "starves"),
        ("none", "used", 0.8, "used"),
        ("none", "queue_ms", 500.0, "queue"),
        ("none", "loss", 0.006, "loss"),
        ("cubic", "loss", 0.011, "loss"),
        ("none", "low_row", 10, "low"),
    ],
)
def test_a_figure_beyond_its_bound_misses_that_bound_alone(
    rival: str, figure: str, value: float, missed: str
) -> None:
    one = next(
        one for one in CELLS if one.rival == rival and one.own == 1 and not one.loss and not one.frames
    )
    kept = fresh.verdict(one, SEEN, SEEN)
    assert all(kept.values())
    kept = fresh.verdict(one, SEEN | {figure: value}, SEEN)
    assert [name for name, is_kept in kept.items() if not is_kept] == [missed]


def test_the_interval_of_differences_is_students_within_a_fiftieth() -> None:
    mean, half = fresh.interval([0.0, 1.0] * 15)
    assert mean == 0.5
    # Student's quantile of 29 degrees of freedom is 2.045, the deviation 0.5085.
    assert half == pytest.approx(2.045 * 0.5085 / 30**0.5, rel=0.02)


def test_a_cell_runs_and_is_judged() -> None:
    one = next(one for one in CELLS if one.trouble == "no" and one.rival == "none" and one.rate < 2e6)
    seen = fresh.see(one, "steady", {}, 1)
    assert 0 < seen["used"] <= 1.02
    assert set(fresh.verdict(one, seen, seen)) >= {"share", "low", "loss", "used", "queue"}
