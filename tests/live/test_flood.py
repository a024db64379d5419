"""Floods: reports with 95,000 made-up names to a sender, and 10,000 invalid offers to `steadycast serve`."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.live.conftest import needs_networks, ports, steadycast

NAMES = 95_000
PER_S = 13_000
FLOOD_S = 8.0
SESSION_S = 14


@dataclass(frozen=True)
class Session:
    """The statistics of a sender in a session."""

    sent_bps: float
    refused: int
    grown_bytes: int
    """Growth of its resident memory during the flood."""


def made_up(n: int, sender: int) -> bytes:
    """A receiver report with a name."""
    ssrc = (n % NAMES) * 40_503 + 17 & 0xFFFF_FFFF
    block = struct.pack("!IBBHIIII", sender, 0, 0, 0, 3_000 + n % 5_000, 5, 0, 0)
    name = b"%d@nowhere" % n
    item = bytes([1, len(name)]) + name
    chunk = struct.pack("!I", ssrc) + item + bytes(4 - len(item) % 4)
    return (
        struct.pack("!BBHI", 0x81, 201, 7, ssrc)
        + block
        + struct.pack("!BBH", 0x81, 202, len(chunk) // 4)
        + chunk
    )


def listen(port: int) -> int:
    """Return the SSRC of the packets that arrive at a port."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as ear:
        ear.bind(("lo", 0x0800))
        ear.settimeout(60)  # a sender and a receiver start in the meantime
        while True:
            packet = ear.recv(2048)
            udp = packet[4 * (packet[0] & 15) :]
            if packet[9] == socket.IPPROTO_UDP and struct.unpack_from("!H", udp, 2)[0] == port:
                return int(struct.unpack_from("!I", udp, 16)[0])


def flood(port: int, sender: int) -> None:
    """Send reports with SSRCs that no receiver has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        began = time.monotonic()
        for n in range(int(PER_S * FLOOD_S)):
            out.sendto(made_up(n, sender), ("127.0.0.1", port))
            ahead = began + n / PER_S - time.monotonic()
            if ahead > 0.005:
                time.sleep(ahead)


def resident(pid: int) -> int:
    """Memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def session(folder: Path, *, flooded: bool) -> Session:
    """Run a sender of 20 Mb/s with one of our receivers, with or without a flood in the middle."""
    folder.mkdir()
    (port,) = ports(1)
    sdp, own = folder / "session.sdp", port + 1_000
    words = ("greedy", "--to", f"127.0.0.1:{port}", "--port", str(own), "--max-rate", "20Mbps", "--sdp", sdp)
    sender = subprocess.Popen(
        steadycast("send", *words, "--for", f"{SESSION_S}s", "--json"), stdout=subprocess.PIPE, text=True
    )
    while not sdp.exists():
        assert sender.poll() is None
        time.sleep(0.05)
    receiver = subprocess.Popen(steadycast("receive", sdp, "--json"), stdout=subprocess.PIPE, text=True)
    ssrc = listen(port)
    time.sleep(3)
    before = resident(sender.pid)
    if flooded:
        flood(own + 1, ssrc)
    else:
        time.sleep(FLOOD_S)
    grown = resident(sender.pid) - before
    said, _ = sender.communicate(timeout=60)
    receiver.communicate(timeout=60)
    flow = json.loads(said)["flows"][0]
    return Session(flow["sent_bps"], flow["feedback_refused"], grown)


@pytest.mark.claim
@needs_networks
def test_a_flood_of_made_up_receivers_slows_a_sender_by_less_than_a_tenth(tmp_path: Path) -> None:
    """`python -m pytest tests/live/test_flood.py -m claim -s` prints the two sessions."""
    alone, flooded = session(tmp_path / "alone", flooded=False), session(tmp_path / "flooded", flooded=True)
    print(f"\nalone    {alone}\nflooded  {flooded}")
    assert alone.sent_bps > 15e6
    assert 0.9 < flooded.sent_bps / alone.sent_bps < 1.1
    assert flooded.refused > 1_000
    assert flooded.grown_bytes < 50e6


def offers(port: int, token: str, count: int) -> Counter[int]:
    """Post invalid offers, each over a separate connection; return the status codes."""
    sdp = "application/sdp"
    kinds = [("other", sdp, b"v=0"), (token, "text/plain", b"v=0"), (token, sdp, b"v=0")]
    kinds += [(token, sdp, b"a" * 65_537), ("y" * 2_000, sdp, b"\xff" * 5_000)]
    codes: Counter[int] = Counter()
    for given, kind, body in islice(cycle(kinds), count):
        asked = HTTPConnection("127.0.0.1", port, timeout=60)
        asked.request("POST", "/whep/video", body, {"authorization": f"Bearer {given}", "content-type": kind})
        codes[asked.getresponse().status] += 1
        asked.close()
    return codes


@pytest.mark.claim
def test_ten_thousand_wrong_offers_leave_a_server_its_memory(tmp_path: Path) -> None:
    listen, media = ports(2)
    words = steadycast("serve", "testsrc", "--size", "64x64", "--listen", f"127.0.0.1:{listen}")
    words += ["--media-port", str(media)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        token = server.stdout.readline().strip().partition("token=")[2]
        offers(listen, token, 500)
        before = resident(server.pid)
        codes = offers(listen, token, 10_000)
        grown = resident(server.pid) - before
        server.terminate()
    print(f"\n{codes}, {grown} bytes")
    assert set(codes) <= {400, 401, 413, 415, 429}
    assert grown < 5e6
