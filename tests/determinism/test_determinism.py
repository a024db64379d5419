"""The same scenario and seed give the same record: from Rust and from Python, alone and in parallel."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import steadycast as sc

from tests.conftest import ROOT, ran

SCENARIO = """
name = "pair"
duration = "6s"
seed = 3
[topology]
shape = "dumbbell"
bottleneck = { rate = "800kbps", delay = "10ms", loss = { kind = "bernoulli", p = 0.01 } }
access = { rate = "10Mbps", delay = "5ms", jitter = { mean = "1ms" } }
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "table2"
receivers = 3
[[flow]]
name = "tcp"
kind = "tcp"
start = { uniform = ["0s", "1s"] }
send_jitter = "1ms"
[record]
packets = "all"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "pair.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def pinned() -> list[tuple[str, int, str]]:
    """Return the hashes of the scenario files' records that the Rust tests pin in debug builds."""
    text = (ROOT / "crates" / "sim" / "tests" / "records.txt").read_text(encoding="utf-8")
    # A line per scenario, behind it an indented one per flow.
    rows = [line.split() for line in text.splitlines() if not line.startswith(("#", " "))]
    return [(file, int(hops), sha) for file, hops, sha in rows]


@pytest.mark.parametrize(
    "file",
    [
        "validation/scenarios/bench-cbr.toml",
        "validation/scenarios/tcp-lossy.toml",
        "validation/scenarios/tfrc-lossy.toml",
    ],
)
def test_python_and_rust_have_the_same_record(file: str) -> None:
    # Only sources without a clip. Their hashes are the same in release builds, such as the compiled module, and in
    # debug builds.
    done = sc.run(ROOT / file, set={"duration": "8s", "warmup": "0s"}, quality=False)
    hops, sha = next((hops, sha) for name, hops, sha in pinned() if name == file)
    assert (done.cost["packet_hops"], done.summary["record_sha256"]) == (hops, sha)


def test_equal_runs_have_equal_summaries_and_tables_to_the_last_byte(scenario: Path, tmp_path: Path) -> None:
    first, second = (sc.run(scenario, out=tmp_path / name) for name in ("a", "b"))
    a, b = (tmp_path / "a", tmp_path / "b")
    assert (a / "summary.json").read_bytes() == (b / "summary.json").read_bytes()
    for name in ("rates", "frames", "decisions", "packets", "tcp", "links"):
        assert first.table(name).to_polars().equals(second.table(name).to_polars()), name
    assert (a / "scenario.toml").read_bytes() == (b / "scenario.toml").read_bytes()


def test_side_by_side_is_as_alone(scenario: Path) -> None:
    def sha(seed: int) -> str:
        return str(sc.run(scenario, seed=seed, quality=False).summary["record_sha256"])

    seeds = [1, 2, 3, 1]
    alone = [sha(seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(sha, seeds))
    assert together == alone
    assert len(set(alone)) == 3


def test_another_process_has_the_same_record(scenario: Path) -> None:
    here = sc.run(scenario, quality=False).summary["record_sha256"]
    code = (
        f"import steadycast as sc; print(sc.run({str(scenario)!r}, quality=False).summary['record_sha256'])"
    )
    # With another hash seed, so that the order of sets or dicts can't affect the result.
    there = ran([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "77"})
    assert there.stdout.strip() == here


def test_the_resolved_scenario_is_the_same_run(scenario: Path, tmp_path: Path) -> None:
    first = sc.run(scenario, out=tmp_path / "a", quality=False)
    again = sc.run(tmp_path / "a" / "scenario.toml", quality=False)
    assert again.summary["record_sha256"] == first.summary["record_sha256"]
