"""A live session that the lab follows by its status lines."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from steadycast.folder import Json
from steadycast.lab.watch import KEPT, Watched

from tests.conftest import until
from tests.lab.conftest import Lab, start, stop
from tests.live.conftest import ports
from tests.live.test_endings import start as begin


def sent(at_s: float, rate: float = 500_000.0, **more: Any) -> str:
    """A status line of `send`, in the format of crates/live."""
    decision = {
        "target_bps": 520_000.0, "pacing_bps": 520_000.0, "limit": "network", "at_floor": False,
        "rule": "least of the receivers' rates", "loss": 0.02, "rtt_ms": 41.5, "by": "a@b",
    }  # fmt: skip
    peer = {"ssrc": 7, "name": "a@b", "silent_s": 0.2, "rtt_ms": 41.5, "loss_frac": 0.02, "jitter_ms": 3.0}
    row = {
        "format": 1, "kind": "status", "command": "send", "session": "10.0.0.2:5004", "at_s": at_s,
        "rate_bps": rate, "decision": decision, "peers": [peer],
    }  # fmt: skip
    return json.dumps({**row, **more}) + "\n"


def received(at_s: float) -> str:
    row = {
        "format": 1, "kind": "status", "command": "receive", "session": "10.0.0.2:5004", "at_s": at_s,
        "rate_bps": 480_000.0, "loss_frac": 0.01, "delay_ms": 12.5, "jitter_ms": 3.0,
        "frames": {"whole": 25, "damaged": 1, "missing": 0, "undecodable": 2},
    }  # fmt: skip
    return json.dumps(row) + "\n"


def shown(watched: Watched) -> Json:
    watched.read()
    found = watched.shown()
    json.dumps(found, allow_nan=False)
    return found


def test_lines_become_charts_decisions_and_numbers(tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    watched = Watched(file)
    assert "Nothing has come" in shown(watched)["says"][0]
    file.write_text(sent(1.0) + sent(2.0, 600_000.0))
    got = shown(watched)
    rate, target = got["charts"]["rates"]["lines"]
    assert (rate["t"], rate["y"], target["y"]) == ([1.0, 2.0], [500_000.0, 600_000.0], [520_000.0] * 2)
    assert got["charts"]["delay"][0]["y"] == [41.5, 41.5]
    assert got["charts"]["loss"][0]["y"] == [2.0, 2.0]
    [decisions] = got["decisions"]
    assert decisions["target"] == ["520 kb/s"] * 2
    assert decisions["why"][0] == "least of the receivers' rates · loss 2.0 % · RTT 41.5 ms"
    assert (decisions["limit"][0], decisions["by"][0]) == ("network", "a@b")
    assert got["numbers"]["rows"][0]["cells"] == ["2.0 %", "41.5 ms", "3.00 ms", "0.2 s"]
    assert got["says"] == ["10.0.0.2:5004: sending 600 kb/s after 2.00 s."]


def test_a_receivers_lines_have_its_loss_delay_and_frames(tmp_path: Path) -> None:
    (tmp_path / "got.jsonl").write_text(received(1.0))
    got = shown(Watched(tmp_path / "got.jsonl"))
    assert got["charts"]["delay"][0]["y"] == [12.5]
    assert got["charts"]["loss"][0]["y"] == [1.0]
    assert got["numbers"]["rows"][0]["cells"] == ["25", "1", "0", "2"]
    assert got["decisions"] == []


def test_two_sessions_stand_on_one_clock(tmp_path: Path) -> None:
    early, late = tmp_path / "early.jsonl", tmp_path / "late.jsonl"
    early.write_text(sent(30.0, at="2026-01-01T12:00:30.000Z"))
    late.write_text(sent(5.0, at="2026-01-01T12:00:30.500Z"))
    one, other = Watched(early), Watched(late)
    one.read()
    other.read()
    assert (one.began, other.began) == (1767268800.0, 1767268825.5)
    assert one.shown(one.began)["to_s"] == 30.0
    assert other.shown(one.began)["to_s"] == 30.5
    assert re.search(r"after 5\.00 s\. Its last line is \d+ s old\.$", other.shown(one.began)["says"][0])
    assert other.shown()["to_s"] == 5.0
    early.write_text(sent(1.0, at="yesterday"))
    assert (shown(one)["to_s"], one.began) == (1.0, None)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    watched = Watched(file)
    line = sent(1.0)
    for end in (10, 100, len(line) - 1):
        file.write_text(line[:end])
        assert shown(watched)["charts"]["rates"]["lines"][0]["t"] == []
    file.write_text(line)
    assert shown(watched)["charts"]["rates"]["lines"][0]["t"] == [1.0]


def test_a_new_session_and_a_file_that_starts_again_take_the_place_of_the_old(tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    watched = Watched(file)
    file.write_text(sent(10.0) + sent(11.0) + sent(1.0))
    assert shown(watched)["charts"]["rates"]["lines"][0]["t"] == [1.0]
    file.write_text(sent(5.0))
    assert shown(watched)["charts"]["rates"]["lines"][0]["t"] == [5.0]


def test_of_a_long_session_the_last_minutes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    file.write_text("".join(sent(float(n)) for n in range(5 * KEPT)))
    watched = Watched(file)
    for _ in range(10):
        got = shown(watched)
    assert got["charts"]["rates"]["lines"][0]["t"] == [float(n) for n in range(4 * KEPT, 5 * KEPT)]
    assert (got["since_s"], got["to_s"]) == (4.0 * KEPT, 5.0 * KEPT - 1)


def test_lines_of_any_other_kind_are_left_out_and_values_of_any_kind_are_shown(tmp_path: Path) -> None:
    dice = random.Random(7)
    file = tmp_path / "sent.jsonl"
    file.write_text("")
    watched = Watched(file)
    odd = [
        None,
        True,
        "x",
        "\x1b[31m",
        [],
        {},
        {"mean": 1},
        [1],
        -1,
        1e300,
        float("nan"),
        float("inf"),
        10**400,
        0.5,
    ]
    for n in range(300):
        row = json.loads(sent(float(n)))
        for _ in range(dice.randrange(4)):
            where = dice.choice([row, row["decision"], row["peers"][0]])
            if isinstance(where, dict) and where is not row:
                where[dice.choice(list(where))] = dice.choice(odd)
        if dice.random() < 0.3:
            row[dice.choice([key for key in row if key != "at_s"])] = dice.choice(odd)
        with file.open("a") as opened:
            opened.write(
                dice.choice(["", "", "{", "[]\n", "3\n", "[" * 5000 + "\n"]) + json.dumps(row) + "\n"
            )
        assert shown(watched)["pixels"] is False
    assert len(shown(watched)["charts"]["rates"]["lines"][0]["t"]) > 100


@pytest.fixture
def live(tmp_path: Path) -> Any:
    (tmp_path / "sent.jsonl").write_text("".join(sent(float(n)) for n in range(1, 20)))
    (tmp_path / "got.jsonl").touch()
    lab: Lab = start(
        tmp_path, "--watch", str(tmp_path / "sent.jsonl"), "--watch", str(tmp_path / "got.jsonl"), file=False
    )
    yield lab
    assert stop(lab) == 0


def test_the_lab_shows_two_sessions_and_runs_nothing(live: Lab, tmp_path: Path) -> None:
    begun = live.post("begin", {}).json
    assert begun["bases"] == []
    assert begun["watch"] == [str(tmp_path / "sent.jsonl"), str(tmp_path / "got.jsonl")]
    first, second = live.post("watch", {}).json
    assert first["to_s"] == 19.0
    assert "Nothing has come" in second["says"][0]
    assert live.post("run", {"tab": "t", "text": ""}).code == 400
    assert live.workers() == []


def test_the_lab_follows_send_and_receive_while_they_go(tmp_path: Path) -> None:
    (port,) = ports(1)
    sdp, mine, its = (tmp_path / name for name in ("s.sdp", "sent.jsonl", "got.jsonl"))
    to = ("--to", f"127.0.0.1:{port}", "--max-rate", "500kbps", "--sdp", sdp)
    begun = [begin("send", "testsrc", "--size", "176x144", *to, "--status", mine, "--for", "90s")]
    lab: Lab | None = None
    try:
        until(sdp.exists, "no description")
        begun.append(begin("receive", sdp, "--name", "wall", "--status", its, "--for", "90s"))
        until(lambda: mine.exists() and its.exists(), "a session has no status")
        lab = start(tmp_path, "--watch", str(mine), "--watch", str(its), file=False)

        def looked() -> list[Json]:
            assert lab is not None
            return list(lab.post("watch", {}).json)

        def rates() -> list[list[float]]:
            return [one["charts"]["rates"]["lines"][0]["y"] if one["charts"] else [] for one in looked()]

        until(lambda: all(len(rate) >= 2 and rate[-1] > 0 for rate in rates()), "a session is not shown")
        until(lambda: "wall" in looked()[0]["decisions"][0]["by"], "nobody sets the rate")
        sender, receiver = looked()
        assert sender["says"][0].startswith(f"127.0.0.1:{port}: sending ")
        assert len(sender["decisions"][0]["why"]) == len(sender["charts"]["rates"]["lines"][0]["t"])
        (row,) = sender["numbers"]["rows"]
        assert "wall" in json.dumps(row)
        assert receiver["numbers"]["heads"][0][0] == "whole"
        until(lambda: int(looked()[1]["numbers"]["rows"][0]["cells"][0]) > 10, "no frame is shown")
        # The page continues with the session.
        until(lambda: looked()[0]["to_s"] > sender["to_s"], "the page stands still")
    finally:
        if lab is not None:
            assert stop(lab) == 0
        begun[0].terminate()  # its BYE ends the receiver
        for each in begun:
            each.communicate(timeout=60)
    assert [each.returncode for each in begun] == [0, 0]
