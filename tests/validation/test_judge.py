"""What our receiver writes down of a cell is what judge says of it, on a cell that is known to the bit."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from steadycast.errors import UserError
from steadycast.judge import pair as pairs
from steadycast.judge import score
from steadycast.judge.score import Cell

from tests.judge.made_up import BEGAN, LEAD_S, SECONDS, cell, video
from validation import judge

FPS = 25
HEARD_S = 1.5
"""When the record's clock begins."""


def made(folder: Path, stands_s: float, lag_s: float) -> Cell:
    """A cell of which frames stand still for a while, and a player that shows each so long after it is given it."""
    count = int((LEAD_S + SECONDS) * FPS)
    first = int(HEARD_S * FPS) + 1
    came = [n / FPS + 0.02 for n in range(count)]
    stop = LEAD_S + SECONDS / 2
    came = [at if not 0 <= at - stop < stands_s else stop + stands_s for at in came]
    shown = [max(at, n / FPS + 0.02 + judge.PLAYOUT_S) + lag_s for n, at in enumerate(came)]
    lines = [f"{BEGAN + at}\t{n}\t40.0\t35.0\t\n" for n, at in enumerate(shown) if n >= first]
    (folder / "look.tsv").write_text("".join(lines))
    (folder / "feed.tsv").write_text(
        "".join(f"{n}\t{BEGAN + n / FPS}\t{BEGAN + n / FPS}\n" for n in range(count))
    )
    (folder / "received").mkdir()
    rows = [
        {
            "pts_s": (n - first) / FPS,
            "first_s": at - HEARD_S,
            "arrived_s": at - HEARD_S,
            "size_bytes": 4000,
            "fate": "ok",
        }
        for n, at in enumerate(came)
        if n >= first
    ]
    pl.DataFrame(rows).write_parquet(folder / "received" / "frames.parquet")
    packets = list(video())
    bits = [sum(8 * p["bytes"] for p in packets if t <= p["arrived_s"] - HEARD_S < t + 1) for t in range(25)]
    rates = pl.DataFrame({"t_s": [float(t) for t in range(25)], "throughput_bps": [float(b) for b in bits]})
    rates.write_parquet(folder / "received" / "rates.parquet")
    done = cell(folder, packets)
    with (folder / "crew.jsonl").open("a") as crew:
        crew.write(f'{{"t": {HEARD_S}, "what": "start", "program": "receive"}}\n')
    return done


@pytest.mark.parametrize("stands_s", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("lag_s", [0.0, 0.05])
def test_the_record_and_judge_say_the_same(tmp_path: Path, stands_s: float, lag_s: float) -> None:
    known = made(tmp_path, stands_s, lag_s)
    said, _ = score.score(known)
    written = judge.own_record(known)
    assert written["freezes_per_min"] == said["freezes_per_min"] == (60 / SECONDS if stands_s > 0.8 else 0)
    for _, key, bound, relative, _ in judge.OWN:
        says = written["wire_bps"] if key == "rate_bps" else said[key]
        assert abs(says - written[key]) <= bound * (written[key] / 100 if relative else 1)


def test_an_example_is_found_wherever_it_is_and_each_has_its_place_in_the_table() -> None:
    assert all(judge.example(name).is_file() for name in judge.PAIRS)


def test_a_greedier_pair_sends_a_third_more_and_one_without_a_rate_is_refused() -> None:
    greedy = judge._greedier(pairs.read(judge.example("iperf3")))
    assert "-b 6.5M" in greedy.programs[1].run
    with pytest.raises(UserError, match="bit rate"):
        judge._greedier(pairs.read(judge.example("steadycast")))
