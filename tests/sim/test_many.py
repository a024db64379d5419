"""The cost of a group with many receivers, by counts instead of times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCENARIO = """
duration = "0.5s"
nodes = ["s", "m", "r[1-{count}]"]
[[link]]
between = ["s", "m"]
rate = "2Mbps"
delay = "10ms"
[[link]]
between = ["m", "r[1-{count}]"]
rate = "2Mbps"
delay = "10ms"
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"
from = "s"
to = ["r[1-{count}]"]
"""


RTCP = 0.05 * 2e6 * 0.5 / (8 * 60)
"""Compound packets of at least 60 bytes that use 5 % of the session's rate in half a second."""


def cost(folder: Path, count: int) -> tuple[int, int, int]:
    """Run in a separate process; return the media's packets, all hops, and the peak memory in bytes."""
    (folder / "many.toml").write_text(SCENARIO.format(count=count))
    run = [sys.executable, "-m", "steadycast", "run", "many.toml", "-o", str(count)]
    subprocess.run(run, cwd=folder, check=True, capture_output=True)
    found = json.loads((folder / str(count) / "cost.json").read_text())
    [flow] = json.loads((folder / str(count) / "summary.json").read_text())["flows"]
    return flow["sent_packets"], found["packet_hops"], found["peak_memory_bytes"]


def test_what_a_group_costs_is_so_much_for_each_receiver_however_many_there_are(tmp_path: Path) -> None:
    few, many = cost(tmp_path, 100), cost(tmp_path, 1_600)
    sent, hops, memory = many[0], (many[1] - few[1]) / 1_500, (many[2] - few[2]) / 1_500
    # For each receiver: a copy of each media packet, a copy of each report, and its own two packets.
    assert sent <= hops <= sent + RTCP + 2
    # 100,000 receivers fit into 8 GB.
    assert memory <= 80_000
