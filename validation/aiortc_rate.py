"""aiortc's receiver-side estimator on a list of packets, for an interpreter that has aiortc (validation/reference.py).

Input and output have the format of `integrations/webrtc/examples/replay.rs`: a line for each packet with sending time,
IP size and arrival time; a line for each estimate with its time in seconds and bits per second.
"""

import sys
from importlib import import_module

HEADERS = 28 + 12
"""Bytes of the IP, UDP and RTP headers, which aiortc does not count."""
PACKET = 1000
"""IP size of the packets in bytes, to convert the estimate of payload to a rate on the wire."""


def main() -> None:
    """Read packets from standard input, and print the estimates."""
    estimator = import_module("aiortc.rate").RemoteBitrateEstimator()
    packets = [line.strip().split(",") for line in sys.stdin]
    arrived = sorted((float(at), float(left), int(size)) for left, size, at in packets if at)
    print("t_s,aiortc_bps")
    for at, left, size in arrived:
        # The time stamp is in seconds with 6.18 bits (http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time).
        stamp = round(left * (1 << 18)) & 0xFFFFFF
        told = estimator.add(round(at * 1000), stamp, size - HEADERS, 1)
        if told is not None:
            print(f"{at:.3f},{told[0] * PACKET / (PACKET - HEADERS):.0f}")


if __name__ == "__main__":
    main()
