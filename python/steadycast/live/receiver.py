"""`sc.Receiver`: receives a sender's video as pictures for a program."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.live import ends, receive, session
from steadycast.live.ends import Pixels
from steadycast.live.status import ReceiverStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CLOCK = 90_000
"""Ticks per second of a video's time stamps (RFC 3551, section 5)."""


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedFrame:
    """A received picture."""

    image: NDArray[np.uint8]
    """The samples, as an array of uint8. The receiver's argument ``pixels`` determines its shape.

    For ``rgb24``, the shape is (height, width, 3).
    """
    time_s: float
    """The presentation time in seconds, measured by the sender's clock from the first received frame."""
    arrived_s: float
    """The time at which the frame's last packet arrived, in seconds from the start of the session."""
    whole: bool
    """Whether the frame and all its references arrived completely. If not, the decoder has concealed the gaps."""

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.image.shape))
        state = "whole" if self.whole else "damaged"
        return f"<ReceivedFrame {shape} at {self.time_s:.3f} s, {state}>"


class Outbox:
    """Decodes arriving frames in a thread, and keeps the newest pictures for a reader.

    ``low_delay`` makes the decoder output each picture immediately. It must not be set for a stream that has B frames.
    ``scaled`` scales all pictures to the size of the first picture.
    """

    def __init__(self, core: Any, room: int, *, low_delay: bool, scaled: bool = True) -> None:
        self._core, self._room, self._low_delay, self._scaled = core, room, low_delay, scaled
        self._pictures: deque[tuple[Any, int, float, bool]] = deque()
        self._size: tuple[int, int] | None = core.size
        self._change = threading.Condition()
        self._over = False
        self.failed: BaseException | None = None
        self.unread = 0
        core.want_frames()

    def run(self) -> None:
        """Decode until there are no more frames."""
        try:
            self._decode()
        # Keep the error. `get` raises it in the thread that reads the pictures.
        except BaseException as error:
            self.failed = error
        with self._change:
            self._over = True
            self._change.notify_all()

    def _decode(self) -> None:
        import av

        from steadycast.media.decode import decoder_of, packet_of
        from steadycast.media.ladder import codec_of

        # The decoder also outputs damaged pictures. `take` delivers them with `whole` set to false.
        flags = ["low_delay"] if self._low_delay else []
        decoder: Any = decoder_of(codec_of(self._core.codec), self._core.config, *flags)
        known: dict[int, tuple[float, bool]] = {}

        def take(packet: Any) -> None:
            try:
                frames = decoder.decode(packet)
            except (av.error.FFmpegError, EOFError, ValueError, MemoryError):
                return
            for frame in frames:
                if frame.pts in known:
                    self._put(frame, frame.pts, *known.pop(frame.pts))

        while (came := self._core.frames(ends.SLICE_S)) is not None:
            for ticks, _, whole, arrived, data in came:
                if not data:
                    continue
                known[ticks] = (arrived, whole)
                if len(known) > 2 * _CLOCK // 1000:
                    known.pop(next(iter(known)))
                take(packet_of(data, ticks, Fraction(1, _CLOCK)))
        take(None)

    def _put(self, frame: Any, ticks: int, arrived: float, whole: bool) -> None:
        # The sender may code pictures at a smaller size than it displays them (`keep_size` of `sc.Sender`).
        self._size = self._size or (frame.width, frame.height)
        if self._scaled and (frame.width, frame.height) != self._size:
            frame = frame.reformat(*self._size, interpolation="BICUBIC")
        with self._change:
            if len(self._pictures) >= self._room:
                self._pictures.popleft()
                self.unread += 1
            self._pictures.append((frame, ticks, arrived, whole))
            self._change.notify_all()

    def get(self, timeout: float | None) -> tuple[Any, int, float, bool] | None:
        """Return the next picture, or `None` when there are no more pictures."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._change:
            while not self._pictures and not self._over:
                left = ends.SLICE_S if until is None else min(ends.SLICE_S, until - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"no picture came in {timeout} s")
                self._change.wait(left)
            if self._pictures:
                return self._pictures.popleft()
        if self.failed is not None:
            raise self.failed
        return None


class Receiver(ends.Ends):
    """Receives video over RTP, reports to its sender, and delivers the pictures to a program.

    The session starts with the constructor and runs in background threads until `close`, or the end of the ``with``
    block. All methods are thread-safe.

    Args:
        what: what to receive. It is a session description, or the address and port at which to listen. A description is
            a file that ends in ``.sdp``, or its text (`Sender.sdp`).
        pixels: the pixel format of the arrays: ``rgb24``, ``bgr24``, ``gray`` or ``yuv420p``, as in `Sender`. With
            `None`, pictures are not decoded.
        queue: the number of decoded pictures that may wait for the program. If the queue is full, the oldest picture is
            dropped (`ReceiverStatus.unread`), so that pictures do not become old.
        codec: the codec of a stream without a description: mpeg4, mpeg2, h263, h264, h265, vp8, vp9 or av1.
        latency: how long a packet waits for missing packets before it, in seconds. The default is 0.3 if the sender
            retransmits.
        give_up: end the session if no packet arrives for this many seconds and for five reporting intervals (RFC 3550,
            section 6.2.1), because the BYE may be lost. The time-out starts with the first packet. `None` disables it.
        name: the name by which the sender knows the receiver (CNAME). The default is derived from the host name.
        source: the sender's address, for a source-specific multicast group (RFC 4607).
        key_file: a file with the master key for SRTP.
        interface: the network interface on which a group is joined.
        mux: use the same port for RTP and RTCP (RFC 5761).

    Raises:
        UserError: an argument, an address or the description can't be used. The error describes the place and the
            remedy.
        MissingError: the system is not Linux.

    """

    @typed
    def __init__(
        self,
        what: str | Path,
        *,
        pixels: Pixels | None = "rgb24",
        queue: int = 25,
        codec: str | None = None,
        latency: float | None = None,
        give_up: float | None = 30.0,
        name: str | None = None,
        source: str | None = None,
        key_file: Path | str | None = None,
        interface: str | None = None,
        mux: bool = False,
    ) -> None:
        if queue < 1:
            raise UserError(f"queue {queue}", "no picture has room", "take 1 or more")
        options = receive.Options(
            what=str(what),
            source=source,
            mux=mux,
            interface=interface,
            codec=codec,
            name=name,
            key_file=None if key_file is None else Path(key_file),
            give_up="never" if give_up is None else f"{give_up}s",
            latency=None if latency is None else f"{latency}s",
        )
        settings = receive.settings_of(options, tell=False)
        core = session.live_core().Receiver(settings)
        if pixels is not None:
            receive.need_pictures(core, "what" if settings["sdp"] else str(what))
        super().__init__(core, ends.leave)
        self.pixels = pixels
        self._outbox: Outbox | None = None
        if pixels is not None:
            # Only Steadycast's senders announce a controller, and they use no B frames. So low delay is safe for them.
            self._outbox = Outbox(self._core, queue, low_delay=self._core.controller is not None)
            threading.Thread(target=self._outbox.run, daemon=True, name="steadycast-decoder").start()

    @property
    def address(self) -> str:
        """The address and port at which the receiver listens."""
        return str(self._core.address)

    @property
    def status(self) -> ReceiverStatus:
        """The present status of the session, or its last status after the session has ended."""
        unread = 0 if self._outbox is None else self._outbox.unread
        return ReceiverStatus.of(ends.look(self._core), unread=unread)

    @typed
    def read(self, timeout: float | None = None) -> ReceivedFrame | None:
        """Return the next picture. Return `None` when the stream has ended and all pictures were read.

        Args:
            timeout: the longest wait in seconds. By default, there is no limit.

        Raises:
            TimeoutError: no picture arrived in time.
            UserError: the receiver decodes no pictures.

        """
        if self._outbox is None or self.pixels is None:
            raise UserError("pixels None", "no pictures are decoded", f"take one of {', '.join(ends.PIXELS)}")
        found = self._outbox.get(timeout)
        if found is None:
            return None
        frame, ticks, arrived, whole = found
        return ReceivedFrame(frame.to_ndarray(format=self.pixels), ticks / _CLOCK, arrived, whole)

    def __iter__(self) -> Iterator[ReceivedFrame]:
        while (frame := self.read()) is not None:
            yield frame

    def close(self) -> None:
        """End the session, and send a BYE. Waiting pictures can still be read. A second call does nothing.

        Raises:
            UserError: the session has failed. The error contains the reason.

        """
        self._finish(self._core.stop, [])

    def __repr__(self) -> str:
        return f"<Receiver at={self.address!r}: {self._state('receiving')}>"
