"""Wireshark reads our packets as intended: packets, round-trip times and jitter, for every live controller."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest
from steadycast.controllers import controllers

from tests.conftest import ran
from tests.live.conftest import needs, needs_networks, run
from tests.live.network import READY, Emulated, emulate

TEXT = ["tshark", "-d", "udp.port==5004,rtp", "-d", "udp.port==5005,rtcp", "-d", "udp.port==6005,rtcp"]
ROUND_TRIPS = ["-o", "rtcp.show_roundtrip_calculation:TRUE", "-o", "rtcp.roundtrip_min_threshhold:0"]

SCRIPT = """
dumpcap -q -i any -w s.pcapng 2>near.txt & near=$!
nsenter --net=$STEADYCAST_NET_R dumpcap -q -i any -w r.pcapng 2>far.txt & far=$!
nsenter --net=$STEADYCAST_NET_R $STEADYCAST receive session.sdp --json > received.json & ours=$!
{ready}
$STEADYCAST send testsrc --codec mpeg2 --size 176x144 --max-rate 800kbps --controller {controller} --repair none \\
  --to $STEADYCAST_R:5004 --port 6004 --for {seconds}s --json > sent.json
wait $ours
sleep 1  # until the last packets are in the files
kill -TERM $near $far; wait; true
"""


@dataclass(frozen=True)
class Seen:
    """A session as measured by us and by tshark: (ours, theirs)."""

    controller: str
    rtp: tuple[int, int]
    rtcp: tuple[int, int]
    malformed: int
    rtt_ms: tuple[float, float]
    jitter_ms: tuple[float, float]
    told: str
    """The packets that are missing by the captures and by our sender."""

    def row(self) -> str:
        """A line of the table."""
        pair = "{:>7.1f} {:>7.1f}"
        return (
            f"{self.controller:<13} {self.rtp[0]:>6} {self.rtp[1]:>6} {self.rtcp[0]:>6} {self.rtcp[1]:>6} "
            f"{self.malformed:>9} {pair.format(*self.rtt_ms)} {pair.format(*self.jitter_ms)}"
        )


def fields(capture: Path, only: str, *names: str) -> list[list[str]]:
    """Return tshark's fields of the packets that a filter selects. Copies in ICMP errors are not counted."""
    words = [*TEXT, *ROUND_TRIPS, "-r", capture, "-Y", f"({only}) && !icmp", "-T", "fields"]
    for name in names:
        words += ["-e", name]
    done = ran(words, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def streams_jitter(capture: Path) -> float:
    """The highest jitter in ms that tshark computes by itself, over packets without a marker."""
    words = [*TEXT, "-r", str(capture), "-q", "-z", "rtp,streams"]
    said = ran(words, check=True).stdout
    (row,) = [line.split() for line in said.splitlines() if "Video" in line]
    return float(row[-1])


def jitters(capture: Path) -> tuple[float, float]:
    """Jitter in ms by tshark's times (RFC 3550, A.8): the mean at reports, the highest of packets without a marker."""
    at_reports, at_packets = [], []
    jitter, last = 0.0, None
    names = ("frame.time_epoch", "rtp.timestamp", "rtp.marker")
    for time, ticks, marker in fields(capture, "rtp || (rtcp && ip.src == 10.0.0.2)", *names):
        if not ticks:
            at_reports.append(jitter)
            continue
        this = float(time) * 1000, int(ticks)
        if last is not None:
            # Time stamps have 32 bits.
            apart = (this[1] - last[1] + 2**31) % 2**32 - 2**31
            jitter += (abs(this[0] - last[0] - apart / 90) - jitter) / 16
        last = this
        if marker in ("0", "False"):
            at_packets.append(jitter)
    return mean(at_reports), max(at_packets)


def compare(controller: str, done: Emulated) -> Seen:
    """Compare both measurements of a session."""
    near, far = done.folder / "s.pcapng", done.folder / "r.pcapng"
    sent, received = done.sent(), done.sent("received")
    (peer,), (sink,) = sent["receivers"], received["receivers"]
    reports = fields(far, "rtcp && ip.src == 10.0.0.2", "frame.number")
    trips = fields(near, "rtcp.roundtrip-delay && ip.src == 10.0.0.2", "rtcp.roundtrip-delay")
    at_reports, highest = jitters(far)
    # tshark computes the same quantities as our reports.
    assert abs(highest - streams_jitter(far)) <= 0.01, controller
    blocks = fields(near, "rtcp.ssrc.jitter && ip.src == 10.0.0.2", "rtcp.ssrc.jitter")
    # A capture on a busy machine may miss a packet. The link loses none, so the two captures together have all
    # packets.
    numbers = [[int(row[0]) for row in fields(side, "rtp", "rtp.seq")] for side in (near, far)]
    leaving, arriving = map(set, numbers)
    assert [len(leaving), len(arriving)] == [len(each) for each in numbers], f"{controller}: some came twice"
    captures = " ".join((done.folder / f"{side}.txt").read_text() for side in ("near", "far"))
    return Seen(
        controller,
        (sent["sent_packets"], len(leaving | arriving)),
        (sink["feedback_packets"], len(reports)),
        sum(len(fields(side, "_ws.malformed", "frame.number")) for side in (near, far)),
        (peer["rtt_ms"], mean(float(row[0]) for row in trips[-5:])),
        (mean(float(row[0]) / 90 for row in blocks), at_reports),
        f"one capture alone has {sorted(leaving ^ arriving)}; {captures}; {done.warnings()}",
    )


def sessions(names: Sequence[str], seconds: int, at_once: int, folder: Path) -> list[Seen]:
    """Runs each controller, a few at a time, and prints the table."""
    described = folder / "session.sdp"
    run(
        *("send", "testsrc", "--codec", "mpeg2", "--size", "176x144", "--to", "127.0.0.1:5004"),
        # Jitter is measured for one stream; retransmissions would be a second one.
        *("--for", "100ms", "--controller", "fixed", "--repair", "none", "--sdp", described),
    )
    text = described.read_text().replace("IP4 127.0.0.1", "IP4 10.0.0.2")

    def one(name: str) -> Seen:
        own = folder / name
        own.mkdir()
        (own / "session.sdp").write_text(re.sub("controller=fixed", f"controller={name}", text))
        done = emulate(own, SCRIPT.format(controller=name, seconds=seconds, ready=READY), record=False)
        return compare(name, done)

    with ThreadPoolExecutor(at_once) as pool:
        all_seen = list(pool.map(one, names))
    print(f"\n{'':<13} RTP packets   RTCP packets            RTT ms          jitter ms   ({seconds} s each)")
    print("controller      sent tshark   ours tshark malformed    ours  tshark    ours  tshark")
    for seen in all_seen:
        print(seen.row())
    return all_seen


def agree(seen: Seen) -> None:
    """Check the results."""
    assert seen.rtp[0] == seen.rtp[1] > 100, seen
    assert seen.rtcp[0] == seen.rtcp[1] > 5, seen
    assert seen.malformed == 0, seen
    # The link's 40 ms plus the delay of the hosts and the queue; tshark rounds to whole milliseconds.
    assert 40 <= seen.rtt_ms[0] < 250, seen
    assert abs(seen.rtt_ms[0] - seen.rtt_ms[1]) <= 0.1 * seen.rtt_ms[1] + 3, seen
    assert 0.9 * seen.jitter_ms[1] - 0.5 <= seen.jitter_ms[0] <= 1.1 * seen.jitter_ms[1] + 0.5, seen


@needs("tshark")
@needs_networks
def test_tshark_counts_and_measures_as_we_do(tmp_path: Path) -> None:
    for seen in sessions(("asmp", "tfrc", "pgmcc"), 10, 3, tmp_path):
        agree(seen)


@pytest.mark.claim
@needs("tshark")
@needs_networks
def test_tshark_counts_and_measures_as_we_do_with_every_controller(tmp_path: Path) -> None:
    """`python -m pytest tests/live/test_tshark.py -m claim -s` prints the table."""
    for seen in sessions([c.name for c in controllers()], 60, 6, tmp_path):
        agree(seen)
