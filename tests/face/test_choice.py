from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from steadycast.report import choice, say
from steadycast.report.choice import Candidate, sentences


def candidate(name: str, tcp: float = 0.95, **changed: Any) -> Candidate:
    known: dict[str, Any] = {
        "others": {"tcp": tcp},
        "share": 0.9,
        "score": 4.0,
        "frozen": 0.0,
        "delay_ms": 200.0,
        "alone": True,
        "seeds": 5,
    }
    return Candidate(name, **{**known, **changed})


def spread(mean: float, ci95: float) -> dict[str, float | int]:
    return {"mean": mean, "ci95": ci95, "min": mean, "max": mean, "n": 5}


def test_the_one_that_keeps_the_rule_is_taken_though_another_looks_better() -> None:
    said = " ".join(
        sentences(
            [
                candidate("steady", 0.87, score=3.2),
                candidate("fixed", 0.29, score=3.9),
                candidate("tfrc", 1.1, score=2.9, frozen=0.03, delay_ms=150.0),
            ]
        )
    )
    assert said == (
        "Take steady: it alone keeps the rule; score 3.20. It costs: tcp has 87 % of its fair share and its viewer "
        "sees everything 200 ms late. fixed is better at score (3.90), but it leaves tcp 29 % of its fair share; tfrc "
        "is better at delay (150 ms), but its picture stands still for 3.0 % of the time."
    )


def test_equal_scores_are_told_apart_by_the_delay_and_equal_delays_not_at_all() -> None:
    slow, fast = candidate("slow", delay_ms=300.0), candidate("fast", delay_ms=100.0)
    assert sentences([slow, fast])[0].startswith("Take fast: score 4.00, as slow, with less delay.")
    same = sentences([candidate("one"), candidate("two")])[0]
    assert same.startswith("Take one or two: nothing tells them apart, and they are the best; score 4.00.")


def test_intervals_that_overlap_are_equal_and_those_that_do_not_are_not() -> None:
    wide = [candidate("a", score=spread(4.0, 0.3)), candidate("b", score=spread(3.8, 0.3), delay_ms=90.0)]
    assert sentences(wide)[0].startswith("Take b: score 3.80 ± 0.30, as a, with less delay")
    narrow = [candidate("a", score=spread(4.0, 0.05)), candidate("b", score=spread(3.8, 0.05), delay_ms=90.0)]
    assert sentences(narrow)[0].startswith("Take a: score 4.000 ± 0.050, the best of the 2")


def test_where_none_keeps_the_rule_the_nearest_is_named_with_what_it_breaks() -> None:
    first = sentences([candidate("a", 0.3), candidate("b", 0.7)])[0]
    assert first.startswith(
        "None keeps the rule. Nearest is b: it leaves tcp 70 % of its fair share; score 4.00"
    )


def test_one_seed_says_so_and_800_ms_of_play_out_are_no_call() -> None:
    said = sentences([candidate("a", seeds=1, delay_ms=800.0), candidate("b", score=3.0, delay_ms=800.0)])
    assert any(each.startswith("Of a there is one seed") and "--seeds 1-5" in each for each in said)
    assert any(each.startswith("800 ms from camera to screen is no call") for each in said)
    group = sentences([candidate("a", delay_ms=800.0, alone=False), candidate("b", score=3.0, alone=False)])
    assert not any("no call" in each or "--seeds" in each for each in group)
    assert sentences([candidate("a")]) == []


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_taken_keeps_the_rule_if_anybody_does_and_no_other_that_keeps_it_has_a_better_score(
    seed: int,
) -> None:
    drawn = random.Random(seed)
    all_ = [
        candidate(
            f"c{n}",
            drawn.choice([0.5, 0.79, 0.8, 0.81, 1.2]),
            score=round(drawn.uniform(1, 5), 2),
            frozen=drawn.choice([0.0, 0.01, 0.011, 0.2]),
            delay_ms=drawn.choice([100.0, 200.0, 800.0]),
        )
        for n in range(drawn.randint(2, 8))
    ]
    best, _ = choice._chosen(all_)
    assert best is not None
    keep = [each for each in all_ if each.others["tcp"] >= 0.8 and each.frozen <= 0.01]
    assert not keep or best in keep
    assert all(say.score(best.score) >= say.score(each.score) for each in keep)
    for order in itertools.islice(itertools.permutations(all_), 10):
        assert choice._chosen(order)[0] == best


def test_the_video_in_question_is_the_one_whose_controller_differs_and_others_are_others() -> None:
    def summary(first: str) -> dict[str, Any]:
        flows = [
            {"name": "call", "kind": "video", "controller": first, "share_of_fair": 0.5, "receivers": []},
            {"name": "film", "kind": "video", "controller": "asmp", "share_of_fair": 0.7, "receivers": []},
            {"name": "tcp", "kind": "tcp", "share_of_fair": 0.9, "receivers": []},
            {"name": "noise", "kind": "cbr", "share_of_fair": 0.1, "receivers": []},
        ]
        return {"flows": flows}

    both = [summary("tfrc"), summary("gcc")]
    assert choice.in_question(both) == ["call"]
    found = choice.of_summary("a", both[0], ["call"])
    assert (found.others, found.share) == ({"film": 0.7, "tcp": 0.9}, 0.5)
    assert choice.in_question(both[:1]) == ["call", "film"]
    assert choice.of_summary("a", both[0], ["call", "film"]).others == {"call": 0.5, "film": 0.7, "tcp": 0.9}
