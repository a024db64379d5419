"""A call of a minute between two peers, over a link whose rate changes. It runs in virtual time, in seconds.

python -m pip install aiortc==1.16.0 . && python example.py
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from aiortc import RTCConfiguration
from steadycast_aiortc import PeerConnection
from world import Link, call, virtual_time


async def watch(peer: PeerConnection, link: Link) -> None:
    """Print the link's rate, the controller's target, the received rate and the reason, once per second."""
    print("second  link  target  arrives (Mb/s)  why")
    while True:
        await asyncio.sleep(1)
        now, decision = asyncio.get_running_loop().time(), peer.decision
        if decision is not None:
            bits = 8 * sum(len(data) + 28 for at, data in link.passed if at >= now - 1)
            rates = f"{link.rate_bps(now) / 1e6:5.2f} {decision.target_bps / 1e6:7.2f} {bits / 1e6:8.2f}"
            print(f"{now:6.0f} {rates}         {decision.why}")


async def main(link: Link) -> None:
    """Call over the link."""
    peers = [
        PeerConnection(RTCConfiguration(iceServers=[]), floor_bps=100e3, cap_bps=1.5e6) for _ in range(2)
    ]
    watching = asyncio.ensure_future(watch(peers[0], link))
    await call(link, *peers, 60.0)
    watching.cancel()


with virtual_time() as loop:
    rate = Link(lambda now: 0.5e6 if 20 <= now < 40 else 1.2e6, queue_s=0.3, way_s=0.025, loss=0.005)
    loop.run_until_complete(main(rate))
