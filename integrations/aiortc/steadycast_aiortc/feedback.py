"""Transport-wide feedback of aiortc as the receiver (draft-holmer-rmcat-transport-wide-cc-extensions-01)."""

from __future__ import annotations

import asyncio
from itertools import count
from struct import pack
from typing import Any

INTERVAL_S = 0.05
"""Time between two messages, as Chromium's."""
NACK_INTERVALS = 2
"""Intervals between two NACKs of the same packets. aiortc repeats a NACK only when another packet is lost;
until then its jitter buffer waits for a retransmission that was lost, for seconds."""
GIVE_UP_S = 1.0
"""Time after which a missing packet is given up: the kit does not retransmit older ones. aiortc's jitter buffer would
wait until 512 others have arrived."""
REMEMBERED = 512
"""Packets that a message can cover: 120 Mb/s of full packets in an interval, in a datagram without fragments."""
TICK_S = 250e-6
REFERENCE_TICKS = 256
"""Unit of the reference time, 64 ms, in ticks."""


def message(arrivals: dict[int, float], base: int, packets: int, index: int, ssrcs: tuple[int, int]) -> bytes:
    """Return feedback on ``packets`` packets from ``base`` on; it names those without an arrival as missing.

    ``arrivals`` are in seconds, by the full number; at least one is of these packets. ``index`` numbers messages.
    """
    ticks = [
        None if at is None else round(at / TICK_S) for at in map(arrivals.get, range(base, base + packets))
    ]
    last = next(each for each in ticks if each is not None) // REFERENCE_TICKS * REFERENCE_TICKS
    reference, symbols, deltas = last // REFERENCE_TICKS, [], b""
    for each in ticks:
        delta = 0 if each is None else max(-0x8000, min(each - last, 0x7FFF))
        small = 0 <= delta < 0x100
        symbols.append(0 if each is None else 1 if small else 2)
        if each is not None:
            deltas += pack("!B", delta) if small else pack("!h", delta)
            last += delta
    chunks = b""
    for begin in range(0, packets, 7):  # status vectors of seven two-bit symbols
        seven = (symbols[begin : begin + 7] + [0] * 6)[:7]
        chunks += pack("!H", 0xC000 | sum(symbol << 2 * (6 - place) for place, symbol in enumerate(seven)))
    head = pack("!HHI", base & 0xFFFF, packets, (reference & 0xFFFFFF) << 8 | index & 0xFF)
    body = pack("!LL", *ssrcs) + head + chunks + deltas
    padding = -len(body) % 4
    body += bytes(padding - 1) + bytes([padding]) if padding else b""
    return pack("!BBH", 0x8F | (0x20 if padding else 0), 205, len(body) // 4) + body


class Reporter:
    """Notes each packet with a transport-wide number, and reports it to the sender."""

    def __init__(self, transport: Any, ssrc: int) -> None:
        self.transport, self.ssrc, self.loop = transport, ssrc, asyncio.get_running_loop()
        self.arrivals: dict[int, float] = {}
        self.fresh: list[int] = []
        self.sources: dict[Any, int] = {}
        self.missing: dict[tuple[Any, int], float] = {}
        self.begin = self.newest = self.index = self.media_ssrc = 0
        router = transport._rtp_router
        self.route_rtp, router.route_rtp = router.route_rtp, self.route
        transport.on("statechange", self.stop)
        self.task = asyncio.ensure_future(self.run())

    def stop(self) -> None:
        """End with the transport."""
        if self.transport.state != "connected":
            self.task.cancel()

    def route(self, packet: Any) -> Any:
        """Note a packet, and do what aiortc does."""
        low = packet.extensions.transport_sequence_number
        if low is not None:
            if not self.arrivals:
                self.begin = self.newest = low
            number = self.newest + ((low - self.newest + 0x8000) & 0xFFFF) - 0x8000
            self.newest, self.media_ssrc = max(self.newest, number), packet.ssrc
            if number not in self.arrivals and number > self.newest - REMEMBERED:
                self.arrivals[number] = self.loop.time()
                self.fresh.append(number)
        receiver = self.route_rtp(packet)
        if receiver is not None:
            self.sources.setdefault(receiver, packet.ssrc)  # a stream begins before its retransmissions
        return receiver

    async def request(self, receiver: Any, source: int) -> None:
        """Send a NACK of what is missing; go on without what has been missing for too long, with a PLI."""
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

    async def run(self) -> None:
        """Send a message in each interval in which a packet has arrived, and NACKs of what is still missing."""
        for turn in count():
            await asyncio.sleep(INTERVAL_S)
            for receiver, source in self.sources.items() if turn % NACK_INTERVALS == 0 else ():
                await self.request(receiver, source)
            if not self.fresh:
                continue
            base = max(min(*self.fresh, self.begin), self.newest - REMEMBERED + 1)
            ssrcs = self.ssrc, self.media_ssrc
            data = message(self.arrivals, base, self.newest + 1 - base, self.index, ssrcs)
            self.begin, self.fresh, self.index = self.newest + 1, [], self.index + 1
            self.arrivals = {n: at for n, at in self.arrivals.items() if n > self.newest - REMEMBERED}
            await self.transport._send_rtp(data)
