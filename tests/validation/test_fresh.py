"""The drawn networks: the network of a number, its scenario file, and its bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from steadycast.loading import load

from validation import fresh, simulated

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
    "share": 0.9, "others_bps": 1e6, "due_bps": 1e6, "used": 0.97, "queue_ms": 10.0, "loss": 0.0, "kin": 1.0,
    "low": 0.0, "low_row": 0, "ratio": 1.0, "tcp_low": 0.0, "tcp_row": 0,
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


def test_others_that_have_four_fifths_of_their_share_suffer_no_harm_whatever_a_crippled_cubic_leaves_them() -> (
    None
):
    one = next(one for one in CELLS if one.rival == "cubic")
    for others, left, due, kept in [
        (0.81e6, 3e6, 1e6, True),
        (0.79e6, 3e6, 1e6, False),
        (0.81e6, 1e6, 3e6, True),
        (0.79e6, 1e6, 3e6, False),
    ]:
        seen = SEEN | {"others_bps": others}
        assert fresh.verdict(one, seen, SEEN | {"others_bps": left, "due_bps": due})["harm"] == kept


def test_what_is_due_to_others_and_to_videos_is_the_link_where_all_are_elastic() -> None:
    for one in CELLS:
        names = {"cubic": ["long1"], "2 cubic": ["long1", "long2"], "web": ["short1", "short2", "short3"]}
        if one.rival not in names:
            continue
        second = one.begin + 1
        rates = {f"video{n + 1}": [1.0] * one.end for n in range(one.own)}
        rates |= {name: [1.0] * one.end for name in names[one.rival]}
        due, each = fresh._due(one, rates, second), one.capacity(second) / len(rates)
        assert due == pytest.approx(each * len(names[one.rival]))
        starved = fresh._due(one, rates | {names[one.rival][0]: [0.0] * one.end}, second)
        assert (starved == due) == (one.rival != "web"), "a long flow that is starved still has its share"


def test_what_is_due_to_udp_is_no_more_than_it_sends() -> None:
    for one in CELLS:
        if one.rival in fresh.UDP:
            rates = {"video1": [1.0] * one.end, "udp": [1.0] * one.end}
            due = fresh._due(one, rates, one.begin)
            assert due == pytest.approx(min(one.part * one.rate, one.capacity(one.begin) / (one.own + 1)))


def _link_queue_ms(one: fresh.Cell) -> float:
    links = simulated.run(fresh.scenario(one, "steady", {}), 1).summary["links"]
    neck = next(link for link in links if (link["name"], link["direction"]) == ("bottleneck", "forward"))
    return float(neck["queue_ms"]["p95"])


def test_at_fair_queueing_a_video_is_judged_by_its_own_queue() -> None:
    plain = replace(
        CELLS[0], queue="fq-codel", rival="cbr", part=0.9, own=1, loss=0.0, step=1.0, frames=False
    )
    for rate, rtt in [(2e6, 0.040), (8e6, 0.020), (4e6, 0.150)]:
        one = replace(plain, rate=rate, rtt=rtt, trouble="no", late=3.0, rival_first=True)
        own = fresh.see(one, "steady", {}, 1)["queue_ms"]
        # The UDP sends more than its share of the link, so that it fills its own queue.
        assert 0 <= own <= 25 < _link_queue_ms(one), (rate, rtt)
        alone = replace(one, rival="none")
        assert fresh.see(alone, "steady", {}, 1)["queue_ms"] == pytest.approx(_link_queue_ms(alone), abs=2)


def test_cells_that_hold_with_some_seeds_are_counted_apart() -> None:
    one, two, three = [one for one in CELLS if one.rival == "cubic" and not one.loss][:3]
    bad = SEEN | {"share": 0.4}
    each = {one: (SEEN, SEEN), two: (SEEN, bad), three: (bad, bad)}
    runs = {
        (name, of.key, seed): seen if name == "steady" else SEEN
        for of, pair in each.items()
        for seed, seen in enumerate(pair, 1)
        for name in ("steady", fresh.CUBIC)
    }
    table = str(fresh.counts(fresh.Found(list(each), runs, 2), ["steady"]))
    assert [cell.strip() for cell in table.splitlines()[-1].split("|") if cell.strip()][:3] == [
        "steady",
        "1/3",
        "1/3",
    ]


def test_the_interval_of_differences_is_students_within_a_fiftieth() -> None:
    mean, half = fresh.interval([0.0, 1.0] * 15)
    assert mean == 0.5
    # Student's quantile for 29 degrees of freedom is 2.045, and the standard deviation is 0.5085.
    assert half == pytest.approx(2.045 * 0.5085 / 30**0.5, rel=0.02)


def test_a_cell_runs_and_is_judged() -> None:
    one = next(one for one in CELLS if one.trouble == "no" and one.rival == "none" and one.rate < 2e6)
    seen = fresh.see(one, "steady", {}, 1)
    assert 0 < seen["used"] <= 1.02
    assert set(fresh.verdict(one, seen, seen)) >= {"share", "low", "loss", "used", "queue"}
