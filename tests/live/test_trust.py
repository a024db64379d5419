"""Strangers beside a session on this machine steer nothing, and a key keeps yesterday's session out."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.live.conftest import listening, ports, steadycast

EMPTY = struct.pack("!BBHII", 0x8B, 205, 2, 0xE111_E111, 0)
"""A report of single packets that tells of none (RFC 8888)."""
STRANGER = struct.pack("!BBHI", 0x80, 201, 1, 0xE111_E111) + struct.pack(
    "!BBHIBB", 0x81, 202, 2, 0xE111_E111, 1, 1
)
HOSTILE = STRANGER + b"x\0" + EMPTY
"""The same of a member that reports and says its name."""
SESSION_S = 12
LATE_S = 2.0
"""The receiver starts this long after its sender."""


def rate_bps(folder: Path, port: int, *, disturbed: bool) -> tuple[float, int]:
    """Send to a receiver that comes late, and return what was sent and how much feedback was refused."""
    folder.mkdir()
    sdp = folder / "session.sdp"
    words = ("greedy", "--to", f"127.0.0.2:{port}", "--port", str(port + 1_000), "--max-rate", "1Mbps")
    sender = subprocess.Popen(
        steadycast("send", *words, "--sdp", sdp, "--for", f"{SESSION_S}s", "--json"),
        stdout=subprocess.PIPE,
        text=True,
    )
    receiver = None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        try:
            out.bind(("127.0.0.3", 0))
            listening(port + 1_001)
            began = time.monotonic()
            while sender.poll() is None:
                if disturbed:
                    out.sendto(HOSTILE, ("127.0.0.1", port + 1_001))
                if receiver is None and time.monotonic() - began > LATE_S:
                    receiver = subprocess.Popen(
                        steadycast("receive", sdp, "--json"), stdout=subprocess.DEVNULL
                    )
                time.sleep(0.2)
            said, _ = sender.communicate(timeout=60)
            assert receiver is not None
            receiver.wait(timeout=60)
        finally:
            sender.kill()
            if receiver is not None:
                receiver.kill()
    flow = json.loads(said)["flows"][0]
    assert [row["name"] for row in flow["receivers"]] != [], said
    return flow["sent_bps"], flow["feedback_refused"]


def test_a_stranger_that_reports_before_the_receiver_and_after_steers_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        of = zip(("alone", "disturbed"), ports(2), strict=True)
        work = [
            pool.submit(rate_bps, tmp_path / name, port, disturbed=name == "disturbed") for name, port in of
        ]
        (alone, none), (disturbed, refused) = (each.result() for each in work)
    assert alone > 300e3
    assert 0.8 <= disturbed / alone <= 1.2
    # Five a second.
    assert none == 0
    assert SESSION_S * 2 <= refused <= SESSION_S * 6


def recorded(folder: Path, name: str, port: int, key: Path) -> tuple[Path, list[bytes]]:
    """The description of a session of some seconds that nobody receives, and its media."""
    sdp = folder / f"{name}.sdp"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", port))
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        ear.settimeout(0.5)
        to = (
            "--to",
            f"127.0.0.1:{port}",
            "--max-rate",
            "500kbps",
            "--controller",
            "fixed",
            "--size",
            "176x144",
        )
        subprocess.run(
            steadycast("send", "testsrc", *to, "--key-file", key, "--sdp", sdp, "--for", "3s"),
            check=True,
            timeout=60,
        )
        media = []
        try:
            while True:
                media.append(ear.recv(2_048))
        except TimeoutError:
            return sdp, media


def test_with_a_key_the_media_of_another_session_with_that_key_is_not_shown(tmp_path: Path) -> None:
    (port,) = ports(1)
    key = tmp_path / "key"
    key.write_text("A" * 40)
    key.chmod(0o600)
    sessions = [recorded(tmp_path, name, port, key) for name in ("yesterday", "today")]
    assert all(len(media) > 40 for _, media in sessions)
    sdp, _ = sessions[1]
    received = []
    for _, media in sessions:
        receiver = subprocess.Popen(
            steadycast("receive", sdp, "--key-file", key, "--json"), stdout=subprocess.PIPE, text=True
        )
        try:
            listening(port)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                for datagram in media:
                    out.sendto(datagram, ("127.0.0.1", port))
                    time.sleep(0.002)
            time.sleep(0.5)
            receiver.send_signal(signal.SIGINT)
            said, _ = receiver.communicate(timeout=60)
        finally:
            receiver.kill()
        row = json.loads(said)["flows"][0]["receivers"][0]
        received.append((row.get("frames") or {}).get("ok", 0))
    yesterday, today = received
    assert yesterday == 0
    assert today > 10
