"""Redundancy in a call (ULPFEC in RED, FlexFEC, padding) is no part of a picture, and its loss tears none."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from steadycast import call

from tests.face import test_call_captures as captures

SECONDS = 20
REDUNDANCY = 0x9988_7766
"""The SSRC of a stream that has only redundancy."""
MOST_WRONG = 12
"""Pictures of 600 that may be attributed wrongly: lost redundancy is estimated by the pictures beside."""


def protected(kind: str, share: float, lost: float, seed: int) -> tuple[list[tuple[float, bytes]], int]:
    """Return the packets that arrived, with their times, and how many pictures arrived complete.

    ``kind`` is the redundancy's place, ``share`` its packets for each packet of a picture. Payloads are encrypted.
    """
    chance = random.Random(seed)
    queued: list[tuple[float, int, int, bool, int, int | None]] = []
    for k in range(SECONDS * 30):
        size = 5000 * chance.uniform(0.7, 1.3)
        parts = max(1, round(size / 1000))
        count = 0 if kind == "none" else max(1, round(parts * share))
        ssrc = captures.VIDEO if kind in ("red", "none") else REDUNDANCY
        for n in range(parts + count):
            of, is_media = (captures.VIDEO, True) if n < parts else (ssrc, False)
            left, timestamp = k / 30 + n * 0.0015, 90 * round(1000 * k / 30)
            queued.append((left, of, timestamp, n == parts - 1, round(size / parts), k if is_media else None))
    queued += [(k / 50 + 3e-4, captures.SOUND, k * 960, False, 120, None) for k in range(SECONDS * 50)]
    queued.sort(key=lambda each: each[0])
    numbers = {captures.VIDEO: 1000, captures.SOUND: 100, REDUNDANCY: 5000}
    free, found, torn = 0.0, [], set()
    for number, (left, ssrc, timestamp, is_last, size, picture) in enumerate(queued):
        free = max(free, left) + (size + captures.HEAD) * 8 / 4e6
        numbers[ssrc] += 1
        if ssrc != captures.SOUND and chance.random() < lost:
            torn.add(picture)
            continue
        sent = captures.Sent(left, free, ssrc, numbers[ssrc], timestamp, is_last, number, 0, size)
        found.append((free + 0.02, captures.rtp(sent, captures.Way())))
    return found, SECONDS * 30 - len(torn - {None})


def written(place: Path, packets: list[tuple[float, bytes]]) -> Path:
    """Write a capture at the receiver."""
    way = captures.Way()
    frame = captures.framed(way)
    with place.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1))
        for ident, (at, packet) in enumerate(packets):
            whole = frame(captures.ip(packet, False, way, 40_000, ident)[0])
            at += captures.BEGIN_S
            file.write(struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(whole), len(whole)) + whole)
    return place


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("kind", "share"),
    [("none", 0.0), ("red", 0.3), ("red", 0.5), ("red", 1.0), ("stream", 0.3), ("stream", 1.2)],
)
def test_lost_redundancy_tears_no_picture(tmp_path: Path, kind: str, share: float, seed: int) -> None:
    packets, complete = protected(kind, share, 0.03, seed)
    seen = call.read(written(tmp_path / "call.pcap", packets), side="receiver")["seen"]
    assert seen["frames"]["all"] == SECONDS * 30
    assert abs(seen["frames"]["whole"] - complete) <= MOST_WRONG
    assert any("follow the end of their picture" in note for note in seen["notes"]) == (kind == "red")


def test_a_video_without_marker_bits_has_no_pictures_and_says_why(tmp_path: Path) -> None:
    packets, _ = protected("none", 0.0, 0.0, 1)
    # The marker is the highest bit of the second byte; packets of sound have none.
    bare = [(at, packet[:1] + bytes([packet[1] & 0x7F]) + packet[2:]) for at, packet in packets]
    seen = call.read(written(tmp_path / "call.pcap", bare), side="receiver")["seen"]
    assert seen["frames"] is None
    assert any("has the marker bit" in note for note in seen["notes"])
