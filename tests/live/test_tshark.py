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


FIELDS = (
    *("rtp", "rtcp", "_ws.malformed", "ip.src", "frame.time_epoch"),
    *("rtp.seq", "rtp.timestamp", "rtp.marker", "rtcp.ssrc.jitter", "rtcp.roundtrip-delay"),
)
OUR_RECEIVER = "10.0.0.2"


@dataclass(frozen=True)
class Capture:
    """What tshark reads in a file."""

    packets: list[dict[str, str]]
    """The `FIELDS` of each packet; empty texts for fields that it lacks. Copies in ICMP errors are left out."""
    jitter_ms: float
    """The highest jitter that tshark computes by itself, over packets without a marker."""

    @classmethod
    def of(cls, path: Path) -> Capture:
        """Read a file. tshark reads it only once, because this takes most of the time."""
        words = [*TEXT, *ROUND_TRIPS, "-r", path, "-z", "rtp,streams"]
        words += ["-Y", "(rtp || rtcp || _ws.malformed) && !icmp", "-T", "fields"]
        for name in FIELDS:
            words += ["-e", name]
        packets, _, streams = ran(words, check=True).stdout.partition("\n=")
        (row,) = [line.split() for line in streams.splitlines() if "Video" in line]
        rows = [line.split("\t") for line in packets.splitlines()]
        return cls([dict(zip(FIELDS, row, strict=True)) for row in rows], float(row[-1]))

    @property
    def numbers(self) -> list[int]:
        """The sequence number of each RTP packet."""
        return [int(packet["rtp.seq"]) for packet in self.packets if packet["rtp"]]

    @property
    def reports(self) -> list[dict[str, str]]:
        """The RTCP packets of our receiver."""
        return [packet for packet in self.packets if packet["rtcp"] and packet["ip.src"] == OUR_RECEIVER]

    def reported(self, name: str) -> list[float]:
        """The values of a field in the RTCP packets of our receiver that have it."""
        return [float(packet[name]) for packet in self.reports if packet[name]]

    @property
    def malformed(self) -> int:
        """How many packets tshark can't read."""
        return sum(bool(packet["_ws.malformed"]) for packet in self.packets)

    def jitters(self) -> tuple[float, float]:
        """Jitter in ms by tshark's times (RFC 3550, A.8).

        The first value is the mean at the reports of our receiver, the second is the highest of packets without a
        marker.
        """
        at_reports, at_packets = [], []
        jitter, last = 0.0, None
        for packet in self.packets:
            if not packet["rtp"]:
                if packet["rtcp"] and packet["ip.src"] == OUR_RECEIVER:
                    at_reports.append(jitter)
                continue
            this = float(packet["frame.time_epoch"]) * 1000, int(packet["rtp.timestamp"])
            if last is not None:
                # Time stamps have 32 bits.
                apart = (this[1] - last[1] + 2**31) % 2**32 - 2**31
                jitter += (abs(this[0] - last[0] - apart / 90) - jitter) / 16
            last = this
            if packet["rtp.marker"] in ("0", "False"):
                at_packets.append(jitter)
        return mean(at_reports), max(at_packets)


def compare(controller: str, done: Emulated) -> Seen:
    """Compare both measurements of a session."""
    near, far = (Capture.of(done.folder / f"{side}.pcapng") for side in ("s", "r"))
    sent, received = done.sent(), done.sent("received")
    (peer,), (sink,) = sent["receivers"], received["receivers"]
    at_reports, highest = far.jitters()
    # tshark computes the same quantities as our reports.
    assert abs(highest - far.jitter_ms) <= 0.01, controller
    # A capture on a busy machine may miss a packet. The link loses none, so the two captures together have all
    # packets.
    leaving, arriving = set(near.numbers), set(far.numbers)
    assert [len(leaving), len(arriving)] == [len(near.numbers), len(far.numbers)], (
        f"{controller}: some came twice"
    )
    captures = " ".join((done.folder / f"{side}.txt").read_text() for side in ("near", "far"))
    return Seen(
        controller,
        (sent["sent_packets"], len(leaving | arriving)),
        (sink["feedback_packets"], len(far.reports)),
        near.malformed + far.malformed,
        (peer["rtt_ms"], mean(near.reported("rtcp.roundtrip-delay")[-5:])),
        (mean(jitter / 90 for jitter in near.reported("rtcp.ssrc.jitter")), at_reports),
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
