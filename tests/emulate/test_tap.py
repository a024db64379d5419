"""The record of a program's datagrams."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from steadycast.emulate import Program, emulate
from steadycast.errors import UserError

# 300 RTP packets within a second, followed by 300 other packets. The reports are not counted.
SEND = """
import os, socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(300):
    header = struct.pack("!BBHII", 0x80, 96 | 128 * (n % 10 == 9), (65500 + n) % 65536, 3000 * (n // 10), 7)
    s.sendto(header + bytes([0x65, 1, 2, 3]) + bytes(500), (os.environ["STEADYCAST_B"], 5004))
    s.sendto(bytes(516), (os.environ["STEADYCAST_B"], 6000))
    time.sleep(0.003)
time.sleep(0.3)
"""
SCENARIO = """
name = "wire"
duration = "1s"
nodes = ["a", "b"]
[[link]]
between = ["a", "b"]
rate = "10Mbps"
delay = "20ms"
loss = 0.1
"""


def test_a_programs_datagrams_stand_in_wire_parquet_with_their_losses_times_and_rtp(tmp_path: Path) -> None:
    path = tmp_path / "wire.toml"
    path.write_text(SCENARIO)
    program = Program("a", [sys.executable, "-c", SEND])
    run = emulate(path, only=True, program=program, tap=["a", "b"], out=tmp_path / "out").run
    wire = pl.read_parquet(tmp_path / "out" / "wire.parquet")
    assert wire.equals(run.table("wire").to_polars())
    # A host without a listener answers with ICMP, from b to a, up to the kernel's rate limit for ICMP.
    sent, back = wire.filter(pl.col("from") == "a"), wire.filter(pl.col("from") == "b")
    assert sent["protocol"].unique().to_list() == [17]
    assert back["protocol"].unique().to_list() in ([], [1])
    assert back["from_port"].null_count() == back.height
    assert sent["to_port"].sort().to_list() == [5004] * 300 + [6000] * 300
    link = run.summary["links"][0]
    lost = sent["arrived_s"].null_count()
    assert lost == link["dropped_packets"]
    # The quantiles of 1e-6 for 600 packets at 10 %.
    assert 27 <= lost <= 98
    assert sent["ecn_arrived"].null_count() == lost
    taken = (sent["arrived_s"] - sent["sent_s"]).drop_nulls()
    # 544 bytes take 0.4352 ms at 10 Mb/s. A program that was not scheduled in time sends a burst.
    assert 0.020435 <= taken.min() <= 0.021
    rtp, other = sent.filter(pl.col("to_port") == 5004), sent.filter(pl.col("to_port") == 6000)
    assert rtp["seq"].to_list() == [(65500 + n) % 65536 for n in range(300)]
    assert rtp["marker"].sum() == 30
    assert rtp.select("ssrc", "pt", "head", "bytes").unique().row(0) == (7, 96, 0x65_010203_000000, 544)
    assert rtp["rtp_ts"].to_list() == [3000 * (n // 10) for n in range(300)]
    assert other.select("ssrc", "pt", "seq", "rtp_ts", "marker", "head").null_count().row(0) == (300,) * 6


def test_a_tap_of_a_host_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wire.toml"
    path.write_text(SCENARIO)
    with pytest.raises(UserError, match='no host is called "c"'):
        emulate(path, only=True, program=Program("a", ["true"]), tap=["c"])
