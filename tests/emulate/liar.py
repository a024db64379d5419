"""A receiver that lies: whatever arrives, it reports a rate of 1 B/s to the group of a scenario's first flow.

It learns the sender from the media that it hears, and sends what a member would: RR, SDES and the controller's APP.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

GROUP, RTP_PORT, SSRC = "239.0.0.1", 5004, 0x11A2_11A2


def rtcp(kind: int, count: int, body: bytes) -> bytes:
    """One RTCP packet."""
    return struct.pack("!BBH", 0x80 | count, kind, len(body) // 4) + body


def report(sender: int, highest: int) -> bytes:
    """No packet lost, and a rate of 1 B/s."""
    block = struct.pack("!IIIIII", sender, 0, highest, 0, 0, 0)
    name = b"\x01\x04liar\x00\x00"
    claim = struct.pack("!ffIB3x", 1.0, 0.5, 100_000, 0)
    return (
        rtcp(201, 1, struct.pack("!I", SSRC) + block)
        + rtcp(202, 1, struct.pack("!I", SSRC) + name)
        + rtcp(204, 1, struct.pack("!I4s", SSRC, b"ASMP") + claim)
    )


def main() -> None:
    """Listens until the time that it is told, then lies twice a second until it is ended."""
    quiet_s, lasts_s = float(sys.argv[1]), float(sys.argv[2])
    own = socket.inet_aton(os.environ["STEADYCAST_LIAR"])
    media = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    media.settimeout(0.5)
    media.bind((GROUP, RTP_PORT))
    media.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    reports = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    reports.bind(("", RTP_PORT + 1))
    reports.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    began, last = time.monotonic(), 0.0
    while (now := time.monotonic()) < began + lasts_s:
        try:
            seq, sender = struct.unpack("!2xH4xI", media.recv(2048)[:12])
        except TimeoutError:
            continue
        if now > began + quiet_s and now > last + 0.5:
            last = now
            reports.sendto(report(sender, seq), (GROUP, RTP_PORT + 1))


if __name__ == "__main__":
    main()
