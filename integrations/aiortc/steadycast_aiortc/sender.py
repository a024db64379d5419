"""The sender kit, which sits between aiortc's senders and their transport."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from aiortc.codecs import is_rtx
from aiortc.codecs.vpx import VpxPayloadDescriptor
from aiortc.rtp import (
    RTCP_PSFB_APP,
    RtcpPsfbPacket,
    RtcpRrPacket,
    RtcpSrPacket,
    RtpPacket,
    is_rtcp,
    pack_remb_fci,
    wrap_rtx,
)
from steadycast import MediaSender

from steadycast_aiortc.feedback import IP_UDP_BYTES, wait

OVERHEAD_BYTES = IP_UDP_BYTES + 16
"""Bytes of IPv4, UDP, and the tag of SRTP's AES-GCM profile. The tag of the older HMAC profile has 10 bytes."""
AUDIO_BPS = 64_000
"""The rate that is reserved for each audio stream."""
PAYLOAD_SHARE = 0.9
"""Share of the payload in a full packet. The encoder's rate does not include headers."""
KEPT = 4096
"""Packets stored for retransmission: those of one second at 40 Mb/s."""
WAITING_BYTES = 3000
"""Only an unusually large frame makes the kit's queue longer."""
HOLD_S, CHANGE = 1.0, 1.1
"""The encoder follows once its rate and the kit's differ by this factor for these seconds.

aiortc creates a new encoder for each change above 10 %, which begins with a key frame.
"""


class Stream:
    """A stream of one of aiortc's senders."""

    def __init__(self, sender: Any, parameters: Any, number: int) -> None:
        self.sender, self.codec, self.number = sender, parameters.codecs[0], number
        of = self.codec.payloadType
        rtx = (each for each in parameters.codecs if is_rtx(each) and each.parameters["apt"] == of)
        self.rtx_type = next((each.payloadType for each in rtx), None)
        self.seq = self.rtx_seq = sender._ssrc & 0x7FFF
        self.in_frame, self.taken = False, True
        self.rate, self.share, self.rates = 0.0, 1.0, deque[tuple[float, float]]()

    def follow(self, now: float, rate: float, total: float, waits: bool) -> int:
        """Return the encoder's rate in bit/s.

        ``rate`` is the kit's for this stream, ``total`` for all streams. While packets wait, the kit lowers ``rate``; a
        key frame's packets must not cause a new encoder, which would begin with another key frame.
        """
        if not waits:
            self.share = rate / total
        self.rates.append((now, self.share * total))
        while self.rates[0][0] < now - HOLD_S:
            self.rates.popleft()
        lowest, highest = min(each for _, each in self.rates), max(each for _, each in self.rates)
        if not self.rate or highest * CHANGE < self.rate or lowest > self.rate * CHANGE:
            self.rate = min(highest, max(lowest, self.rate))
        return int(self.rate * PAYLOAD_SHARE)

    def is_key(self, payload: bytes) -> bool:
        """Whether a frame with this first payload can be decoded without earlier ones (RFC 7741, RFC 6184)."""
        if self.codec.name == "VP8":
            return not VpxPayloadDescriptor.parse(payload)[1][0] & 1
        inner = payload[{24: 3, 28: 1}.get(payload[0] & 31, 0)] & 31
        return inner in (5, 7)

    def rtx(self, packet: RtpPacket) -> RtpPacket:
        """Return a packet as a retransmission (RFC 4588), or unchanged if the peer does not support that format."""
        if self.rtx_type is None:
            return packet
        self.rtx_seq = (self.rtx_seq + 1) & 0xFFFF
        return wrap_rtx(packet, self.rtx_type, self.rtx_seq, self.sender._rtx_ssrc)


class Kit:
    """A `MediaSender` through which all streams of a transport are sent."""

    def __init__(self, transport: Any, *, controller: str = "steady", **settings: Any) -> None:
        covered = settings.pop("retransmissions_covered", True)
        self.sender = MediaSender(controller, retransmissions_covered=covered, **settings)
        self.streams: dict[int, Stream] = {}
        self.packets: dict[int, tuple[Stream, RtpPacket]] = {}
        self.next, self.poke = 0, asyncio.Event()
        if transport is None:
            return
        self.transport, self.extensions = transport, transport._rtp_header_extensions_map
        self.write, self.read = transport._send_rtp, transport._handle_rtcp_data
        transport._send_rtp, transport._handle_rtcp_data = self.send, self.on_rtcp
        transport.on("statechange", self.poke.set)
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.ensure_future(self.run())

    def add(self, sender: Any, parameters: Any) -> None:
        """Handle a sender's packets and encoder, and the RTCP of its peer, from now on."""
        if sender._ssrc in self.streams:
            return
        if sender.kind == "audio":
            number = self.sender.add_audio(sender._ssrc, AUDIO_BPS)
        else:
            number = self.sender.add_video(sender._ssrc)
        stream = self.streams[sender._ssrc] = Stream(sender, parameters, number)
        handle = sender._handle_rtcp_packet
        sender._handle_rtcp_packet = partial(self.on_report, handle)
        if sender.kind == "video":
            sender._next_encoded_frame = partial(self.frame, stream, handle, sender._next_encoded_frame)

    async def frame(self, stream: Stream, handle: Any, encode: Any, codec: Any) -> Any:
        """Encode the next frame at the kit's rate, as a key frame if requested; skip it if the queue is long."""
        plan = self.sender.encoder(self.loop.time(), stream.number)
        self.poke.set()
        if plan.key_frame:
            stream.sender._send_keyframe()
        if plan.skip:
            await stream.sender.track.recv()
            return None
        total, waits = self.sender.decision.target_bps, self.sender.backlog_bytes > WAITING_BYTES
        rate = stream.follow(self.loop.time(), plan.rate_bps, total, waits)
        # aiortc sets its encoder's rate by the receiver's estimate, REMB.
        fci = pack_remb_fci(rate, [stream.sender._ssrc])
        await handle(RtcpPsfbPacket(RTCP_PSFB_APP, 0, 0, fci))
        return await encode(codec)

    async def on_report(self, handle: Any, packet: Any) -> None:
        """Pass reports to aiortc, for its statistics. The kit handles estimates, NACKs and PLIs."""
        if isinstance(packet, RtcpRrPacket | RtcpSrPacket):
            await handle(packet)

    async def on_rtcp(self, data: bytes) -> None:
        """Read feedback, NACKs, PLI and FIR."""
        self.sender.on_rtcp(self.loop.time(), data)
        self.poke.set()
        await self.read(data)

    async def send(self, data: bytes) -> None:
        """Queue a packet of a stream; send everything else."""
        stream = None if is_rtcp(data) else self.streams.get(int.from_bytes(data[8:12]))
        if stream is None or self.task.done():
            await self.write(data)
            return
        packet, now, video = (
            RtpPacket.parse(data, self.extensions),
            self.loop.time(),
            stream.sender.kind == "video",
        )
        first, last = not (video and stream.in_frame), not video or bool(packet.marker)
        if video and first:
            role = "key" if stream.is_key(packet.payload) else "reference"
            stream.taken = self.sender.frame(now, stream.number, role)
        stream.in_frame = not last
        # The kit numbers packets, because aiortc's receiver would wait at a skipped frame's gap.
        packet.sequence_number, packet.extensions.transport_sequence_number = stream.seq, 0
        size = len(packet.serialize(self.extensions)) + OVERHEAD_BYTES
        if stream.taken and self.sender.push(
            now, stream.number, self.next, size, stream.seq, first=first, last=last
        ):
            self.packets[self.next] = stream, packet
            self.packets.pop(self.next - KEPT, None)
            self.next, stream.seq = self.next + 1, (stream.seq + 1) & 0xFFFF
        self.poke.set()

    async def run(self) -> None:
        """Send what is due, until the transport closes."""
        while self.transport.state == "connected":
            for departure in self.sender.poll(self.loop.time()):
                stream, packet = self.packets.get(departure.id, (None, None))
                if stream is not None and packet is not None:
                    packet = stream.rtx(packet) if departure.kind == "repair" else packet
                    packet.extensions.transport_sequence_number = departure.number & 0xFFFF
                    with suppress(ConnectionError):
                        await self.write(packet.serialize(self.extensions))
            for _, dropped in self.sender.take_dropped():
                self.packets.pop(dropped, None)
            await wait(self.poke, self.sender.wake_s)
