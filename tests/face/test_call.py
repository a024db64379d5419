"""A call's file goes in, and what it shows comes out: the truth where it shows the path, and a refusal where not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from steadycast import call
from steadycast.errors import UserError
from steadycast.loading import load
from steadycast.run import run

from tests.conftest import Said

Say = Callable[..., Said]
ROOT = Path(__file__).resolve().parent.parent.parent
SENDER = ROOT / "crates" / "imported" / "tests" / "logs" / "sender.log"
SCENARIO = """\
format = 1
name = "steps"
duration = "60s"

[record]
pcap = ["bottleneck"]

[topology]
shape = "dumbbell"
bottleneck = { rate = "3Mbps", delay = "20ms", queue = { kind = "droptail", limit = "50p" } }
access = { rate = "100Mbps", delay = "1ms" }

[[flow]]
name = "video"
kind = "video"
controller = "gcc"
feedback = "twcc"
media = "synthetic"

[[event]]
at = "20s"
set = { link = "bottleneck", rate = "1Mbps" }

[[event]]
at = "40s"
set = { link = "bottleneck", rate = "2Mbps" }
"""
CUBIC = """
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
preset = "linux"
start = "1s"
"""


def made(folder: Path, text: str, seed: int, *sets: str) -> dict[str, Any]:
    """Simulate a call, and read its capture."""
    file = folder / "steps.toml"
    file.write_text(text)
    run(file, seed=seed, set=sets, out=folder / "run", quality=False)
    return call.read(folder / "run" / "pcap" / "bottleneck.pcapng")


def errors(read: dict[str, Any]) -> tuple[list[float], float]:
    """Return how far the known capacities are from the truth, sorted, and in what share of them the band holds it."""
    found, held = [], 0
    for i, each in enumerate(read["bins"]):
        at = i * call.BIN_S
        truth = 3e6 if at < 20 else 1e6 if at < 40 else 2e6
        if (band := each["capacity_bps"]) is not None:
            found.append(abs(band["rate"] / truth - 1))
            held += band["low"] <= truth <= band["high"]
    return sorted(found), held / len(found)


def is_within(read: dict[str, Any], median: float, most: float, worst: float) -> None:
    """Bounds written before the first run of this program, from a prototype's."""
    assert read["path"]["refusals"] == []
    found, held = errors(read)
    assert len(found) >= 0.4 * len(read["bins"])
    assert found[len(found) // 2] <= median
    assert found[len(found) * 9 // 10] <= most
    assert found[-1] <= worst
    assert held >= 0.85


@pytest.mark.parametrize("seed", [2, *(pytest.param(n, marks=pytest.mark.claim) for n in range(3, 7))])
def test_a_call_alone_shows_the_steps_of_its_path_which_then_runs(tmp_path: Path, seed: int) -> None:
    read = made(tmp_path, SCENARIO, seed)
    is_within(read, 0.0025, 0.0074, 0.063)
    call.write(read, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["path.json", "path.toml", "report.html"]
    assert 'class="answer"' in (tmp_path / "out" / "report.html").read_text()
    again = run(tmp_path / "out" / "path.toml", set=["duration=5s", "event=[]"], quality=False).summary
    assert again["flows"][0]["kind"] == "video"


@pytest.mark.claim
@pytest.mark.parametrize("seed", range(2, 7))
def test_losses_by_chance_are_found_as_such(tmp_path: Path, seed: int) -> None:
    lossy = SCENARIO.replace('delay = "20ms"', 'delay = "20ms", loss = 0.02')
    read = made(tmp_path, lossy, seed)
    is_within(read, 0.0035, 0.026, 0.17)
    assert 0.012 < read["path"]["chance_loss_frac"] < 0.028


@pytest.mark.parametrize("seed", [2, *(pytest.param(n, marks=pytest.mark.claim) for n in range(3, 7))])
def test_beside_a_cubic_the_path_is_refused(tmp_path: Path, seed: int) -> None:
    read = made(tmp_path, SCENARIO.replace("\n[[event]]", CUBIC + "\n[[event]]", 1), seed)
    assert "others" in read["path"]["refusals"][0]
    call.write(read, tmp_path / "out")
    assert not (tmp_path / "out" / "path.toml").exists()


@pytest.mark.claim
@pytest.mark.parametrize("seed", range(2, 7))
def test_a_managed_queue_is_refused(tmp_path: Path, seed: int) -> None:
    read = made(tmp_path, SCENARIO.replace('kind = "droptail", limit = "50p"', 'kind = "codel"'), seed)
    assert any("managed queue" in why for why in read["path"]["refusals"])


def test_a_browser_s_log_is_told_in_words_and_its_exit_code_says_whether_the_path_is_known(
    say: Say, tmp_path: Path
) -> None:
    said = say("call", SENDER, "-o", tmp_path / "out")
    text = " ".join(said.out.split())
    assert said.code == 0
    assert "sender's event log" in text
    assert "580 packets" in text
    assert "The call does not show its path" in text
    assert said.out.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    assert say("call", SENDER, "-o", tmp_path / "out").code == 2, "results are there"
    told = say("call", SENDER, "--json", "--require-path")
    assert told.code == 1
    assert json.loads(told.out)["seen"]["packets"] == 580


def test_a_file_that_is_none_is_refused_by_name_and_byte(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither an event log"):
        call.read(ROOT / "README.md")
    with pytest.raises(UserError, match="no-file"):
        call.read(tmp_path / "no-file")


def test_an_unknown_part_of_a_path_has_no_held_value() -> None:
    def part(rate: float | None, went: float = 0.5e6) -> dict[str, Any]:
        band = None if rate is None else {"low": rate, "rate": rate, "high": rate}
        return {"capacity_bps": band, "at_least_bps": went, "arrived_bps": went}

    bins = [part(1e6), part(None), part(2.25e6), *[part(None)] * 6, part(3e6), part(None)]
    found = call.rates({"bins": bins})
    assert found[1] == pytest.approx(1.5e6), "a short gap lies between its sides"
    assert found[3] == pytest.approx((0.5e6 * 9e6) ** 0.5)
    assert found[-1] == pytest.approx(3e6)
    assert len(found) == len(bins)


def test_a_scenario_of_a_path_passes_the_check() -> None:
    read = call.read(SENDER)
    band = {"low": 1.9e6, "rate": 2e6, "high": 2.1e6}
    read["bins"] = [each | {"capacity_bps": band} for each in read["bins"]]
    read["path"] |= {
        "refusals": [],
        "chance_loss_frac": 0.01,
        "capacity_bps": {"median": 2e6, "min": 2e6, "max": 2e6},
    }
    from steadycast.toml import document

    assert load("path.toml", text=document(call.scenario(read))) is not None
