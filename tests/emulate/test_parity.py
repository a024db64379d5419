"""Parity over real sockets: the receivers of a group recover their lost packets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steadycast.emulate import emulate
from steadycast.progress import Silent

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


def test_each_receiver_of_a_group_computes_what_it_has_lost(tmp_path: Path) -> None:
    repairs = ("parity", "auto")
    for repair in repairs:
        (tmp_path / f"{repair}.toml").write_text(GROUP % repair)
    with ThreadPoolExecutor(len(repairs)) as pool:
        runs = [
            pool.submit(emulate, tmp_path / f"{repair}.toml", progress=Silent(), quality=False)
            for repair in repairs
        ]
    for repair, run in zip(repairs, runs, strict=True):
        summary = run.result().run.summary
        (flow,) = summary["flows"]
        # A parity or two for each twenty packets, and a few more on request.
        assert 0.04 <= flow["parity_bps"] / flow["throughput_bps"] <= 0.35, repair
        assert flow["repair_packets"] == 0, repair
        for receiver in flow["receivers"]:
            place = repair, receiver["name"]
            assert 0.005 <= receiver["loss_frac"] <= 0.05, place
            # One block in hundreds may fail, with three packets of 600 at the end of a group of twelve frames. The
            # bound was 0.004, which is less than these three packets, until a run with such a block missed it. In 24
            # more runs, two of 72 receivers lacked two packets, and none lacked more.
            assert receiver["loss_after_repair_frac"] <= 0.006, place
            frames = receiver["frames"]
            assert frames["ok"] >= frames["sent"] - 12, place
        broken = [check["id"] for check in summary["invariants"] if check["broken"]]
        assert broken == [], repair
