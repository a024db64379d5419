"""A flood of forged requests makes a sender send only the retransmissions that its budget allows."""

from __future__ import annotations

import json
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.live.conftest import listening, needs_networks, ports, steadycast
from tests.live.test_flood import listen, resident

FORGED = 100_000
PER_S = 25_000
RATE_BPS = 1_500_000
PURSE = 0.15
"""Share of the rate that retransmissions may use: `SHARE` in crates/session/src/repair."""
SAVED_S = 1.0
"""Seconds for which an unused part of the budget is kept."""


def report(ssrc: int) -> bytes:
    """An empty receiver report with a name, which makes its sender a member."""
    name = b"storm"
    chunk = struct.pack("!IBB", ssrc, 1, len(name)) + name
    chunk += bytes(4 - len(chunk) % 4)
    return struct.pack("!BBHI", 0x80, 201, 1, ssrc) + struct.pack("!BBH", 0x81, 202, len(chunk) // 4) + chunk


def nack(ssrc: int, media: int, first: int) -> bytes:
    """Ask for 17 packets in a row (RFC 4585, section 6.2.1)."""
    return struct.pack("!BBHIIHH", 0x81, 205, 3, ssrc, media, first & 0xFFFF, 0xFFFF)


def pli(ssrc: int, media: int) -> bytes:
    """Ask for a key frame (RFC 4585, section 6.3.1)."""
    return struct.pack("!BBHII", 0x81, 206, 2, ssrc, media)


def parity_request(ssrc: int, media: int, base: int) -> bytes:
    """Ask for all parity of a few blocks (docs/wire.md)."""
    blocks = b"".join(struct.pack("!HBB", (base + n) & 0xFFFF, 20, 64) for n in range(4))
    return struct.pack("!BBHI4sI", 0x80, 204, 3 + len(blocks) // 4, ssrc, b"PRTY", media) + blocks


Forge = Callable[[int], Iterator[bytes]]
ONE = 0x5EED_0001


def member(media: int) -> Iterator[bytes]:
    """A member that requests everything repeatedly: packets, parity, key frames."""
    for n in count(1):
        yield (
            report(ONE)
            + (nack(ONE, media, n * 17), parity_request(ONE, media, n * 4), pli(ONE, media))[n % 3]
        )


def stranger(media: int) -> Iterator[bytes]:
    """A sender of requests without reports (RFC 5506), which never names itself."""
    for n in count(1):
        yield nack(0xBAD, media, n * 17) if n % 2 else pli(0xBAD, media)


def mixed(media: int) -> Iterator[bytes]:
    """The member, a new member for each request, and the sender without reports."""
    for n, (asked, alone) in enumerate(zip(member(media), stranger(media), strict=True)):
        name = struct.pack("!I", (n * 40_503 + 17) & 0xFFFF_FFFF)
        yield asked
        yield asked.replace(struct.pack("!I", ONE), name) if n % 2 else alone


def storm(to: int, forged: Iterator[bytes]) -> None:
    """Send all forged packets to a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        began = time.monotonic()
        for n, datagram in enumerate(forged):
            out.sendto(datagram, ("127.0.0.1", to))
            ahead = began + n / PER_S - time.monotonic()
            if ahead > 0.005:
                time.sleep(ahead)


@dataclass(frozen=True)
class Session:
    """The statistics of a sender whose receivers were all forged."""

    flow: Any
    took_s: float
    """Seconds from the session's start at least until the end of the flood."""
    grown_bytes: int
    """Growth of its resident memory during the flood."""


def session(folder: Path, port: int, repair: str, forged: Callable[[int], Iterator[bytes]]) -> Session:
    """Send seven seconds of a test pattern without a receiver, and flood the sender with forged feedback."""
    to = ("--to", f"127.0.0.1:{port}", "--port", str(port + 1_000))
    rate = ("--controller", "fixed", "--max-rate", f"{RATE_BPS // 1_000}kbps")
    words = (
        "send",
        "testsrc",
        *to,
        *rate,
        "--repair",
        repair,
        "--gop",
        "250",
        "--sdp",
        folder / f"{port}.sdp",
    )
    began = time.monotonic()
    sender = subprocess.Popen(steadycast(*words, "--for", "7s", "--json"), stdout=subprocess.PIPE, text=True)
    try:
        media = listen(port)
        time.sleep(0.5)
        before = resident(sender.pid)
        storm(port + 1_001, forged(media))
        took, grown = time.monotonic() - began, resident(sender.pid) - before
        said, _ = sender.communicate(timeout=60)
    finally:
        sender.kill()
    return Session(json.loads(said)["flows"][0], took, grown)


def _first(forge: Forge, most: int, media: int) -> Iterator[bytes]:
    return islice(forge(media), most)


@needs_networks
def test_a_hundred_thousand_forged_requests_get_what_the_purse_holds(tmp_path: Path) -> None:
    cases: list[tuple[str, Forge, int]] = [
        ("rtx", mixed, FORGED),
        ("parity", mixed, FORGED),
        ("rtx", stranger, FORGED // 10),
    ]
    with ThreadPoolExecutor(len(cases)) as pool:
        work = [
            pool.submit(session, tmp_path, port, repair, partial(_first, of, most))
            for port, (repair, of, most) in zip(ports(len(cases)), cases, strict=True)
        ]
        sessions = [each.result() for each in work]
    for (repair, of, _), done in zip(cases, sessions, strict=True):
        flow, about = done.flow, f"{repair} {of.__name__}"
        # There is no receiver: all retransmissions answer forged requests.
        again = (flow["repair_bps"] + flow["parity_bps"]) * 7
        most = PURSE * RATE_BPS * (done.took_s + SAVED_S)
        # At most a third of the sent packets are parity, which no receiver needs.
        assert again <= most + (RATE_BPS * 7 / 3 if repair == "parity" else 0), about
        assert flow["sent_bps"] <= 1.02 * RATE_BPS, about
        assert done.grown_bytes < 25e6, about
        # At most one key frame per 500 ms.
        assert flow["key_frame_requests"] <= 2 * done.took_s + 1, about
        if of is stranger:
            assert (flow["repair_packets"], flow["key_frame_requests"]) == (0, 0)
        else:
            assert flow["feedback_refused"] > FORGED / 4, about
            assert flow["key_frame_requests"] > 0, about
        assert flow["coded_frames"] > 60, about


DESCRIBED = """v=0
o=- 1 1 IN IP4 127.0.0.1
s=absurd
c=IN IP4 127.0.0.1
t=0 0
m=video {port} RTP/AVPF 96 98
a=rtpmap:96 MP4V-ES/90000
a=rtpmap:98 x-steadycast-rs/90000
"""


def absurd(chance: random.Random) -> bytes:
    """A parity payload with impossible counts, block or symbol, and sometimes an even more invalid one."""
    head = struct.pack(
        "!BBHBBH",
        chance.choice((0xC0, 0xC0, 0xC0, 0x80, 0xC1)),
        chance.choice((0, 1, 20, 64, 65, 255)),
        chance.randrange(1 << 16) if chance.random() < 0.5 else chance.randrange(80),
        chance.randrange(256) if chance.random() < 0.2 else chance.randrange(64),
        chance.choice((1, 64, 255)),
        0,
    )
    return (head + chance.randbytes(chance.choice((0, 7, 8, 40, 1_400))))[
        : chance.choice((3, 2_000, 2_000, 2_000))
    ]


def test_twenty_thousand_absurd_packets_of_parity_stop_no_receiver(tmp_path: Path) -> None:
    (port,) = ports(1)
    sdp = tmp_path / "absurd.sdp"
    sdp.write_text(DESCRIBED.format(port=port))
    receiver = subprocess.Popen(steadycast("receive", sdp, "--json"), stdout=subprocess.PIPE, text=True)
    try:
        listening(port)
        before, chance = resident(receiver.pid), random.Random(7)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for n in range(20_000):
                if n % 250 == 0:
                    # Eighty packets of the media, each a frame; every tenth is lost.
                    number = n // 250
                    head = struct.pack("!BBHII", 0x80, 0x80 | 96, number, 3_600 * number, 1)
                    if number % 10 != 9:
                        out.sendto(head + b"\0\0\1\xb6" + bytes(60), ("127.0.0.1", port))
                head = struct.pack("!BBHII", 0x80, 98, n & 0xFFFF, 0, 2)
                out.sendto(head + absurd(chance), ("127.0.0.1", port))
                if n % 100 == 0:
                    time.sleep(0.005)
        time.sleep(0.5)
        grown = resident(receiver.pid) - before
        receiver.send_signal(signal.SIGINT)
        said, _ = receiver.communicate(timeout=30)
    finally:
        receiver.kill()
    (row,) = json.loads(said)["flows"][0]["receivers"]
    assert grown < 30e6
    # Eight of eighty packets; the last one may not be known to be lost.
    assert 7 / 79 <= row["loss_frac"] <= 0.12
    # Parity over packets that were never sent recovers nothing.
    assert row["repaired_packets"] == 0
