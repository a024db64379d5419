"""Adds what aiortc's receiver lacks: transport-wide feedback, and NACKs until a packet has arrived or is given up."""

from __future__ import annotations

import asyncio
from typing import Any

from steadycast import TransportFeedbackRecorder

IP_UDP_BYTES = 20 + 8
NACK_S = 0.1
"""Seconds between two NACKs of the same packets.

aiortc repeats a NACK only when another packet is lost. If a retransmission is lost, its jitter buffer waits for
seconds.
"""
GIVE_UP_S = 1.0
"""Seconds after which a missing packet is given up: the kit retransmits no older ones.

aiortc's jitter buffer would wait until 512 later packets have arrived.
"""


async def wait(event: asyncio.Event, until_s: float | None) -> None:
    """Wait for an event, at most until this time of the event loop."""
    loop = asyncio.get_running_loop()
    timer = None if until_s is None else loop.call_at(until_s, event.set)
    await event.wait()
    event.clear()
    if timer is not None:
        timer.cancel()


class Reporter:
    """Records each packet with a transport-wide number, and reports it to the sender."""

    def __init__(self, transport: Any, ssrc: int, bandwidth_bps: float) -> None:
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.recorder = TransportFeedbackRecorder(ssrc, bandwidth_bps)
        self.sources: dict[Any, int] = {}
        self.missing: dict[tuple[Any, int], float] = {}
        self.arrived = asyncio.Event()
        router = transport._rtp_router
        self.route_rtp, router.route_rtp = router.route_rtp, self.route
        transport.on("statechange", self.stop)
        self.tasks = [asyncio.ensure_future(each) for each in (self.report(), self.request())]

    def stop(self) -> None:
        """Stop if the transport is no longer connected."""
        if self.transport.state != "connected":
            for task in self.tasks:
                task.cancel()

    def route(self, packet: Any) -> Any:
        """Record a packet, and route it as aiortc does."""
        number = packet.extensions.transport_sequence_number
        if number is not None:
            size, last = len(packet.payload) + IP_UDP_BYTES, bool(packet.marker)
            self.recorder.on_packet(self.loop.time(), packet.ssrc, number, size, last=last)
            self.arrived.set()
        receiver = self.route_rtp(packet)
        if receiver is not None:
            self.sources.setdefault(receiver, packet.ssrc)  # a stream begins before its retransmissions
        return receiver

    async def report(self) -> None:
        """Send the reports that are due."""
        while True:
            for data in self.recorder.report(self.loop.time()):
                await self.transport._send_rtp(data)
            await wait(self.arrived, self.recorder.due_s)

    async def request(self) -> None:
        """Request missing packets by NACK. Give up packets that are missing for too long, and send a PLI."""
        while True:
            await asyncio.sleep(NACK_S)
            for receiver, source in self.sources.items():
                await self.request_from(receiver, source)

    async def request_from(self, receiver: Any, source: int) -> None:
        """Request the missing packets of the streams of one of aiortc's receivers."""
        nacks, now = getattr(receiver, "_RTCRtpReceiver__nack_generator"), self.loop.time()  # noqa: B009
        if nacks is None:
            return
        buffer = getattr(receiver, "_RTCRtpReceiver__jitter_buffer")  # noqa: B009
        self.missing = {
            key: at for key, at in self.missing.items() if key[0] is not receiver or key[1] in nacks.missing
        }
        first = {seq: self.missing.setdefault((receiver, seq), now) for seq in nacks.missing}
        late = [seq for seq, at in first.items() if now - at > GIVE_UP_S]
        nacks.missing.difference_update(late)
        ahead = [(seq - buffer._origin) & 0xFFFF for seq in late]
        waits = [each for each in ahead if each < buffer.capacity]
        if waits:
            buffer.smart_remove(max(waits) + 1)
            await receiver._send_rtcp_pli(source)
        if nacks.missing:
            await receiver._send_rtcp_nack(source, sorted(nacks.missing))
