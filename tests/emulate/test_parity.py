"""Parity over real sockets: the receivers of a group recover their lost packets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import steadycast

GROUP = """
name = "group"
duration = "9s"
warmup = "1s"
[topology]
shape = "star"
legs = [
  { name = "src", rate = "4Mbps", delay = "20ms" },
  { name = "r[1-3]", count = 3, rate = "10Mbps", delay = "10ms", loss = { kind = "bernoulli", p = 0.02 } },
]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "1Mbps" }
media = "synthetic"
encode = { size = "cif" }
from = "src"
to = ["r[1-3]"]
playout = "500ms"
vbr = "frame"
repair = "%s"
"""


@pytest.mark.parametrize("repair", ["parity", "auto"])
def test_each_receiver_of_a_group_computes_what_it_has_lost(tmp_path: Path, repair: str) -> None:
    (tmp_path / "group.toml").write_text(GROUP % repair)
    done = steadycast(["emulate", "group.toml", "--json"], tmp_path, code=0)
    summary = json.loads(done.stdout)
    (flow,) = summary["flows"]
    # A parity or two for each twenty packets, and a few more on request.
    assert 0.04 <= flow["parity_bps"] / flow["throughput_bps"] <= 0.35
    assert flow["repair_packets"] == 0
    for receiver in flow["receivers"]:
        assert 0.005 <= receiver["loss_frac"] <= 0.05, receiver["name"]
        # One block in hundreds may fail, with three packets of 600 at the end of a group of twelve frames. The bound
        # was 0.004, which is less than these three packets, until a run with such a block missed it. In 24 more runs,
        # two of 72 receivers lacked two packets, and none lacked more.
        assert receiver["loss_after_repair_frac"] <= 0.006, receiver["name"]
        frames = receiver["frames"]
        assert frames["ok"] >= frames["sent"] - 12, receiver["name"]
    broken = [check["id"] for check in summary["invariants"] if check["broken"]]
    assert broken == []
