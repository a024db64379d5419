"""Captures of other programs that contain other traffic beside a call, and their messages."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from steadycast import call
from steadycast.errors import UserError

FROM, TO = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
Captured = tuple[float, bytes]


def rtp(at: float, n: int, ssrc: int, port: int = 5004, fragment: int = 0) -> bytes:
    """An IP packet of a call with its sending time, in seconds with 24 bits, of which 18 are after the point."""
    stamp = int(at * (1 << 18)) & 0xFFFFFF
    head = struct.pack("!BBHII", 0x90, 96, n & 0xFFFF, n // 3 * 3000, ssrc)
    body = head + struct.pack("!HHI", 0xBEDE, 1, 3 << 28 | 2 << 24 | stamp) + b"secret" * 80
    udp = struct.pack("!HHHH", port, port, 8 + len(body), 0) + body
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), n & 0xFFFF, fragment, 64, 17, 0) + FROM + TO + udp


def sent(ssrc: int, port: int = 5004, begin: float = 0.0) -> list[Captured]:
    """Four seconds of packets, each captured 30 ms after it was sent."""
    return [(begin + 0.01 * n + 0.03, rtp(begin + 0.01 * n, n, ssrc, port)) for n in range(400)]


def capture(place: Path, packets: Iterable[Captured], snap: int = 65_535) -> Path:
    """A file of raw IP packets, each truncated to `snap` bytes."""
    file = place / "call.pcap"
    with file.open("wb") as out:
        out.write(struct.pack("!IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, 101))
        for at, packet in sorted(packets):
            kept = packet[:snap]
            out.write(struct.pack("!IIII", int(at), round(at % 1 * 1e6), len(kept), len(packet)) + kept)
    return file


@pytest.mark.parametrize(
    ("packets", "snap", "what", "remedy"),
    [
        ([*sent(1), *sent(2, 6004)], 65_535, "2 directions of media: SSRC", "--stream SSRC"),
        (
            # The second sender's clock begins again, as after a restart.
            [*sent(1), *((at + 6.0, packet) for at, packet in sent(2))],
            65_535,
            "2 parts of media, not all at the same time, as several calls or a sender that was started again",
            "--stream SSRC",
        ),
        ([*sent(1), *sent(1, begin=90_000.0)], 65_535, "more than 24 h apart", "one call"),
        (sent(1), 24, "400 packets cut so short", "tcpdump -s 128"),
        (sent(1)[:20], 65_535, "no source has 20 packets in sequence", "where the call passes"),
    ],
)
def test_a_capture_that_shows_no_single_call_says_why_and_what_helps(
    tmp_path: Path, packets: list[Captured], snap: int, what: str, remedy: str
) -> None:
    with pytest.raises(UserError) as told:
        call.read(capture(tmp_path, packets, snap))
    assert what in told.value.problem
    assert remedy in told.value.remedy


def test_a_call_is_read_beside_others_fragments_and_cut_packets_and_leaves_no_address(tmp_path: Path) -> None:
    pieces = [(1.0, rtp(1.0, 7, 9, fragment=0x2000)), (1.0, rtp(1.0, 7, 9, fragment=185))]
    file = capture(tmp_path, [*sent(1), *sent(2, 6004), *pieces], 96)
    # Each took 30 ms. Unless the user says otherwise, this may be the sender's side.
    with pytest.raises(UserError, match="as where packets leave"):
        call.read(file, stream=2)
    found = call.read(file, stream=2, side="receiver")
    assert found["seen"]["packets"] == 400
    assert any("joined from fragments" in note for note in found["seen"]["notes"])
    call.write(found, tmp_path / "out")
    for each in (tmp_path / "out").rglob("*.*"):
        text = each.read_text()
        assert "10.77.0." not in text
        assert "secret" not in text
