"""The receiver's record of a cell and judge's result agree, on a cell whose content is known exactly."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from steadycast.errors import UserError
from steadycast.judge import pair as pairs
from steadycast.judge import score, suite
from steadycast.judge.score import Cell

from tests.judge.made_up import BEGAN, LEAD_S, SECONDS, cell, video
from validation import judge, page

FPS = 25
HEARD_S = 1.5
"""The time at which the record's clock begins, in seconds."""


def made(folder: Path, stands_s: float, lag_s: float) -> Cell:
    """Make a cell in which no frames arrive for a while, and whose player shows each frame ``lag_s`` after its time."""
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


@pytest.mark.parametrize("seed", range(3))
def test_of_each_pair_and_network_the_table_has_the_latest_judgement_and_other_rows_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(page, "DATA", tmp_path)
    heads = (page.DOCS / "data" / "judged.csv").read_text().partition("\n")[0]
    rest = "," * (len(next(csv.reader([heads]))) - 2)
    (tmp_path / "judged.csv").write_text(f"{heads}\niperf3,leo{rest}\niperf3,mine.toml{rest}\n")
    wanted = {("iperf3", "leo"): "", ("iperf3", "mine.toml"): ""}
    for at in chance.sample(range(10, 60), 8):
        told = {"pair": chance.choice(judge.PAIRS), "seconds": 20.0 + at, "complete": chance.random() < 0.8}
        worst = {"rate_bps": 1e6 * at, "recover_s": None}
        told["cells"] = [
            {"network": network, "worst": worst, "failed": None, "trusted": True, "by": "wire"}
            for network in chance.sample(["leo", "lte", "steps"], 2)
        ]
        told["volatile"] = {"at": f"2026-11-26T20:{at}:00Z", "program": {"version": "1", "commit": f"c{at}"}}
        place = tmp_path / chance.choice("ab") / str(at)
        place.mkdir(parents=True)
        (place / "judge.json").write_text(json.dumps(told))
    for told in judge.kept(f"{tmp_path}/a,{tmp_path}/b"):
        wanted |= {key: row[-1] for key, row in judge.rows_of(told)}
    for _ in range(2):
        assert judge.main(["table", "--from", f"{tmp_path}/a,{tmp_path}/b", "--write"]) == 0
        rows = pl.read_csv(tmp_path / "judged.csv", infer_schema=False).rows(named=True)
        assert {(row["pair"], row["network"]): row["commit"] or "" for row in rows} == wanted
        for row in rows:
            if row["commit"]:
                at = row["commit"].removeprefix("c")
                assert (row["rate, Mb/s"], row["seconds"]) == (at, str(20 + int(at)))


def test_a_network_lasts_until_what_follows_its_last_change_is_seen() -> None:
    for name, network in suite.named("standard", Path()).items():
        pair = replace(pairs.read(judge.example("iperf3")), networks=name)
        least = suite.lasts(name, network)
        assert not suite.unseen(suite.Asked(replace(pair, seconds=float(least))))
        once = [e for e in network.event if "every" not in e]
        assert not once or suite.unseen(suite.Asked(replace(pair, seconds=least - 4.5)))
