"""A receiver that lies: it reports a rate of 1 B/s to the group of a scenario's first flow.

With a number N as its argument, it answers each packet with N such reports, each with a different name. It learns the
sender's address from the media, and sends the packets of a member: RR, SDES and the controller's APP.
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


def report(sender: int, highest: int, ssrc: int = SSRC) -> bytes:
    """A report with no packet lost and a rate of 1 B/s."""
    block = struct.pack("!IIIIII", sender, 0, highest, 0, 0, 0)
    name = b"\x01\x04liar\x00\x00"
    claim = struct.pack("!ffIB3x", 1.0, 0.5, 100_000, 0)
    return (
        rtcp(201, 1, struct.pack("!I", ssrc) + block)
        + rtcp(202, 1, struct.pack("!I", ssrc) + name)
        + rtcp(204, 1, struct.pack("!I4s", ssrc, b"ASMP") + claim)
    )


def main() -> None:
    """Wait for the sender's first packet, then send a false report twice a second until the end."""
    own = socket.inet_aton(os.environ["STEADYCAST_LIAR"])
    media = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    media.bind((GROUP, RTP_PORT))
    media.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    media.recv(2048)
    # The test waits for this port to be open before it expects the first false report.
    reports = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    reports.bind(("", RTP_PORT + 1))
    reports.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    last, name = 0.0, SSRC
    while True:
        seq, sender = struct.unpack("!2xH4xI", media.recv(2048)[:12])
        for _ in range(many):
            name = (name + 0x9E37_79B1) & 0xFFFF_FFFF
            reports.sendto(report(sender, seq, name), (GROUP, RTP_PORT + 1))
        if not many and (now := time.monotonic()) > last + 0.5:
            last = now
            reports.sendto(report(sender, seq), (GROUP, RTP_PORT + 1))


if __name__ == "__main__":
    main()
