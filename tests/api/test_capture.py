"""Captured links, as Wireshark's own dissectors read them."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import steadycast as sc

from tests.conftest import ran

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
KEYS = ("-d", "udp.port==5004,rtp", "-d", "udp.port==5005,rtcp")


def tshark(file: Path, *words: str) -> list[str]:
    done = ran(["tshark", "-r", str(file), *KEYS, *words], check=True)
    return done.stdout.splitlines()


def fields(file: Path, shown: str, *names: str) -> list[list[str]]:
    asked = [word for name in names for word in ("-e", name)]
    return [line.split("\t") for line in tshark(file, "-Y", shown, "-T", "fields", *asked)]


@pytest.fixture
def run(scenario: Path) -> sc.Run:
    return sc.run(scenario, set={"record.pcap": ["bottleneck"], "record.packets": "all"})


def test_every_packet_is_there_and_none_is_malformed(run: sc.Run) -> None:
    file = run.captures["bottleneck"]
    video = run.summary["flows"][0]
    rtp = fields(file, "rtp", "rtp.seq", "frame.interface_name")
    assert len(rtp) == video["sent_packets"]
    assert {name for _, name in rtp} == {"bottleneck left to right"}
    seqs = [int(seq) for seq, _ in rtp]
    assert all((b - a) % 65536 == 1 for a, b in pairwise(seqs))
    # The sender's reports travel in one direction, the receiver's in the other.
    assert {row[0] for row in fields(file, "rtcp", "frame.interface_name")} == {
        "bottleneck left to right",
        "bottleneck right to left",
    }
    problems = tshark(file, "-Y", "_ws.malformed || _ws.expert.severity == error")
    assert problems == []
    sums = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
    bad = "ip.checksum.status == 0 || udp.checksum.status == 0 || tcp.checksum.status == 0"
    assert tshark(file, *sums, "-Y", bad) == []
    good = "ip.checksum.status == 1 && (udp.checksum.status == 1 || tcp.checksum.status == 1)"
    assert len(tshark(file, *sums, "-Y", good)) == len(tshark(file))


def test_what_the_link_drops_has_a_comment_that_says_why(run: sc.Run) -> None:
    file = run.captures["bottleneck"]
    comments = [row[0] for row in fields(file, "frame.comment", "frame.comment")]
    assert set(comments) == {"dropped: the queue was full"}
    forward = next(
        link
        for link in run.summary["links"]
        if (link["name"], link["direction"]) == ("bottleneck", "forward")
    )
    # The summary has the figures of the run. The capture continues until the packets in flight have arrived.
    assert forward["dropped_packets"] <= len(comments) <= forward["dropped_packets"] + 5


def test_tcp_reads_as_one_connection_in_bytes_with_sack(run: sc.Run) -> None:
    file = run.captures["bottleneck"]
    data = fields(file, "tcp.dstport == 5001 && tcp.len > 0", "tcp.stream", "tcp.seq", "tcp.len")
    assert {stream for stream, _, _ in data} == {"0"}
    assert {length for _, _, length in data} == {"1448"}  # 1500 B less 52 B of headers
    seqs = {int(seq) for _, seq, _ in data}
    assert max(seqs) - min(seqs) == 1448 * (len(seqs) - 1)
    assert len(data) > len(seqs)  # some were sent again


def test_times_are_those_of_the_run_in_nanoseconds(run: sc.Run) -> None:
    file = run.captures["bottleneck"]
    times = [float(row[0]) for row in fields(file, "ip", "frame.time_epoch")]
    assert times == sorted(times)
    assert 0 < times[0] < 0.1
    assert 10 < times[-1] < 13
    digits = [row[0].partition(".")[2] for row in fields(file, "ip", "frame.time_epoch")]
    assert any(int(d) % 1000 for d in digits)


def test_a_group_has_one_address_and_its_members_report_to_it(tmp_path: Path) -> None:
    path = tmp_path / "group.toml"
    path.write_text(
        'name = "group"\nduration = "5s"\n[topology]\nshape = "dumbbell"\nbottleneck = { rate = "1Mbps" }\n'
        '[[flow]]\nname = "video"\nkind = "video"\ncontroller = "asmp"\nreceivers = 3\nmedia = "greedy"\n'
    )
    run = sc.run(path, set={"record.pcap": ["bottleneck"]})
    file = run.captures["bottleneck"]
    assert {row[0] for row in fields(file, "rtp", "ip.dst")} == {"239.0.0.1"}
    assert len({row[0] for row in fields(file, "rtcp.pt == 201", "ip.src")}) == 3
    assert tshark(file, "-Y", "_ws.malformed") == []


def test_captures_stand_in_the_folder_and_in_its_copies(scenario: Path, tmp_path: Path) -> None:
    run = sc.run(scenario, out=tmp_path / "run", set={"record.pcap": ["bottleneck"]})
    assert run.captures == {"bottleneck": tmp_path / "run" / "pcap" / "bottleneck.pcapng"}
    run.save(tmp_path / "copy")
    first, copy = (tmp_path / name / "pcap" / "bottleneck.pcapng" for name in ("run", "copy"))
    assert first.read_bytes() == copy.read_bytes()


def test_recording_does_not_change_the_run(scenario: Path) -> None:
    plain, captured = sc.run(scenario), sc.run(scenario, set={"record.pcap": ["bottleneck"]})
    assert plain.summary["record_sha256"] == captured.summary["record_sha256"]
