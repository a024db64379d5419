"""Two aiortc peers over a link, in virtual time: rate, queue, delay and losses between two real UDP sockets."""

from __future__ import annotations

import asyncio
import datetime
import queue
import random
import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from unittest import mock

import aioice.ice
import aiortc.clock
import aiortc.rtcrtpreceiver
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.jitterbuffer import JitterBuffer
from aiortc.mediastreams import MediaStreamError
from av import VideoFrame

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FPS = 30
WIDTH, HEIGHT = 320, 240
HEADERS = 28  # IPv4 and UDP


class VirtualSelector(selectors.DefaultSelector):
    """Advances the virtual time when no socket has anything to read.

    Datagrams on the loopback interface arrive at once.
    """

    now = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout is None:
            return super().select(None)
        if not ready and timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Work that aiortc gives to threads takes no virtual time."""

    def __init__(self):
        self.virtual = VirtualSelector()
        super().__init__(self.virtual)

    def time(self):
        return self.virtual.now

    def run_in_executor(self, executor, function, *arguments):
        future = self.create_future()
        future.set_result(function(*arguments))
        return future


class Handover(queue.Queue):
    """A queue that waits until the decoder has taken the previous frame. Decoding then takes no virtual time either."""

    def __init__(self):
        super().__init__()
        self.idle = threading.Event()

    def get(self):
        self.idle.set()
        return super().get()

    def put(self, item):
        self.idle.wait()
        self.idle.clear()
        super().put(item)
        if item is not None:
            self.idle.wait()


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """Run aiortc's clock in virtual time, on the loopback interface alone."""
    loop = VirtualLoop()

    def clock() -> datetime.datetime:
        return EPOCH + datetime.timedelta(seconds=loop.time())

    try:
        with (
            mock.patch.object(aiortc.clock, "current_datetime", clock),
            mock.patch.object(aiortc.rtcrtpreceiver, "queue", SimpleNamespace(Queue=Handover)),
            mock.patch.object(aioice.ice, "get_host_addresses", return_value=["127.0.0.1"]),
        ):
            yield loop
    finally:
        loop.close()


class Video(MediaStreamTrack):
    """A moving picture with noise, so that VP8 uses its whole rate. Its time stamps are those of the event loop."""

    kind = "video"

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = np.random.default_rng(seed)
        coarse = chance.integers(40, 216, (HEIGHT // 20, 2 * WIDTH // 20))
        self.texture = np.kron(coarse, np.ones((20, 20))).astype(np.uint8)
        self.noise = chance.integers(0, 24, (8, HEIGHT, WIDTH), dtype=np.uint8)
        self.count = 0

    async def recv(self) -> VideoFrame:
        loop = asyncio.get_running_loop()
        self.start = getattr(self, "start", loop.time())
        self.count += 1
        await asyncio.sleep(self.start + self.count / FPS - loop.time())
        if self.readyState != "live":
            raise MediaStreamError
        planes = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        shift = 3 * self.count % WIDTH
        planes[:HEIGHT] = self.texture[:, shift : shift + WIDTH] + self.noise[self.count % 8]
        frame = VideoFrame.from_ndarray(planes, format="yuv420p")
        frame.pts, frame.time_base = int(loop.time() * 90_000), Fraction(1, 90_000)
        return frame


class Port(asyncio.DatagramProtocol):
    """A socket of the link."""


@dataclass
class Link:
    """One bottleneck towards the receiver; the reverse direction has only the delay.

    All randomness depends on the seed.
    """

    rate_bps: Callable[[float], float]
    queue_s: float
    way_s: float
    loss: float = 0.0
    seed: int = 1
    passed: list[tuple[float, bytes]] = field(default_factory=list)
    dropped: list[float] = field(default_factory=list)
    without: str = ""  # lines with this text are removed from the descriptions

    async def between(self, left: tuple[str, int], right: list) -> tuple[int, int]:
        """Return the ports on which the left peer reaches the right one, and the right one the left one."""
        loop, self.chance, self.free = asyncio.get_running_loop(), random.Random(self.seed), 0.0
        to_right, to_left = Port(), Port()
        (a, _), (b, _) = [
            await loop.create_datagram_endpoint(lambda each=each: each, local_addr=("127.0.0.1", 0))
            for each in (to_right, to_left)
        ]

        def there(data: bytes, _: object) -> None:
            now = loop.time()
            if self.chance.random() < self.loss or self.free - now > self.queue_s:
                self.dropped.append(now)
                return
            self.free = max(self.free, now) + (len(data) + HEADERS) * 8 / self.rate_bps(now)
            loop.call_at(self.free + self.way_s, arrive, data)

        def arrive(data: bytes) -> None:
            self.passed.append((loop.time(), data))
            b.sendto(data, tuple(right))

        to_right.datagram_received = there
        to_left.datagram_received = lambda data, _: loop.call_later(self.way_s, a.sendto, data, left)
        return a.get_extra_info("sockname")[1], b.get_extra_info("sockname")[1]


def through(
    description: RTCSessionDescription, port: int, without: str = ""
) -> tuple[RTCSessionDescription, int]:
    """Return a description whose candidate is the link's port, and the candidate's own port."""
    lines, own = description.sdp.split("\r\n"), 0
    lines = [line for line in lines if not without or without not in line]
    for place, line in enumerate(lines):
        if line.startswith("a=candidate:"):
            words = line.split(" ")
            own, words[5] = int(words[5]), str(port)
            lines[place] = " ".join(words)
    return RTCSessionDescription("\r\n".join(lines), description.type), own


async def call(link: Link, sender: RTCPeerConnection, receiver: RTCPeerConnection, seconds: float) -> int:
    """Send video for a time; return how many pictures were decoded."""
    shown, shows = 0, []

    async def show(track: MediaStreamTrack) -> None:
        nonlocal shown
        while True:
            try:
                await track.recv()
            except MediaStreamError:
                return
            shown += 1

    receiver.on("track", lambda track: shows.append(asyncio.ensure_future(show(track))))
    track = Video(link.seed)
    own = sender.addTrack(track)
    video = next(each for each in sender.getTransceivers() if each.sender is own)
    video.setCodecPreferences([c for c in own.getCapabilities("video").codecs if c.name in ("VP8", "rtx")])
    await sender.setLocalDescription(await sender.createOffer())
    offer, left = through(sender.localDescription, 0, link.without)
    right = ["127.0.0.1", 0]  # its port is known once the receiver has answered
    to_right, to_left = await link.between(("127.0.0.1", left), right)
    await receiver.setRemoteDescription(through(offer, to_left)[0])
    await receiver.setLocalDescription(await receiver.createAnswer())
    answer, right[1] = through(receiver.localDescription, to_right)
    await sender.setRemoteDescription(answer)
    await asyncio.sleep(seconds)
    track.stop()
    await sender.close()
    await receiver.close()
    await asyncio.gather(*shows)
    return shown


@contextmanager
def frames_seen() -> Iterator[list[tuple[float, int]]]:
    """Note when aiortc's jitter buffer gives a frame to the decoder, and the frame's time stamp."""
    seen: list[tuple[float, int]] = []
    add = JitterBuffer.add

    def note(self, packet):
        pli, frame = add(self, packet)
        if frame is not None:
            seen.append((asyncio.get_running_loop().time(), frame.timestamp))
        return pli, frame

    with mock.patch.object(JitterBuffer, "add", note):
        yield seen


@dataclass
class Outcome:
    """The packets and pictures that passed the link after a given time."""

    rate_bps: float  # of IP packets of the video and of its retransmissions
    frame_p95_s: float  # the time from a picture to its frame at the decoder, 95th percentile
    lost: float  # share of the packets that the link dropped
    again: int  # retransmissions that arrived
    pictures: int  # the number of decoded pictures in the whole call


def outcome(link: Link, frames: list[tuple[float, int]], pictures: int, begin: float, end: float) -> Outcome:
    """Compute the outcome from the RTP headers of the packets on the link, which SRTP does not encrypt."""
    size, again, first = 0, 0, None
    for at, data in link.passed:
        kind = data[1] & 0x7F if len(data) > 12 and 128 <= data[0] < 192 else 0
        if 96 <= kind < 128:  # RTCP has 72 to 76
            first = first or kind
            if begin <= at < end:
                size, again = size + len(data) + HEADERS, again + (kind != first)
    # The first time stamp is random. The fastest frame is assumed to have only the path's delay.
    since = [at - (stamp - frames[0][1]) % 2**32 / 90_000 for at, stamp in frames]
    delays = sorted(
        each - min(since) + link.way_s
        for each, (at, _) in zip(since, frames, strict=True)
        if begin <= at < end
    )
    passed = sum(begin <= at < end for at, _ in link.passed)
    dropped = sum(begin <= at < end for at in link.dropped)
    p95, lost = delays[len(delays) * 95 // 100], dropped / (passed + dropped)
    return Outcome(8 * size / (end - begin), p95, lost, again, pictures)


def run(link: Link, make: Callable[[], RTCPeerConnection], seconds: float, warm: float) -> Outcome:
    """Run a call in virtual time between two peers; count what passes the link after the first seconds."""
    random.seed(link.seed)  # aiortc draws its RTCP intervals at random
    with virtual_time() as loop, frames_seen() as frames:

        async def whole() -> int:
            return await call(link, make(), make(), seconds)

        pictures = loop.run_until_complete(whole())
        return outcome(link, frames, pictures, warm, seconds)


def plain() -> RTCPeerConnection:
    """Return a peer with aiortc's own estimator."""
    return RTCPeerConnection(RTCConfiguration(iceServers=[]))
