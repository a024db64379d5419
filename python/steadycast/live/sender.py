"""`sc.Sender`: sends a program's pictures, or a source, over real sockets at the rate that the network allows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.live import ends, send, session
from steadycast.live.ends import Pixels
from steadycast.live.source import Pictures
from steadycast.live.status import SenderStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from steadycast.live.encoder import Shape
    from steadycast.live.source import Plan
    from steadycast.media.table import U8

_DRAIN_S = 5.0
"""How long the sender may take to send the waiting frames and the BYE, in seconds."""


class Inbox(Pictures):
    """A bounded queue of pictures from a program to the encoder.

    A picture's number is the time of its `put` call, in frame intervals since the start. It is always larger than the
    number of the picture before.
    """

    def __init__(self, shape: Shape, room: int, *, leaky: bool) -> None:
        self.shape = shape
        self._room, self._leaky = room, leaky
        self._waiting: deque[tuple[int, U8]] = deque()
        self._change = threading.Condition()
        self._began = time.monotonic()
        self._last = -1
        self._ended = False
        self.over: Callable[[], bool] = lambda: False
        """Returns whether the session has ended before `end` was called."""
        self.left_out = 0
        self.warnings = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, samples: U8, timeout: float | None) -> None:
        """Add a picture. Wait until the queue has room. A leaky queue drops its oldest picture instead.

        Raises:
            TimeoutError: there was no room in time.
            ValueError: the queue is closed.

        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._change:
            while len(self._waiting) >= self._room and not (self._leaky or self._ended or self.over()):
                left = ends.SLICE_S if until is None else min(ends.SLICE_S, until - time.monotonic())
                if left <= 0:
                    raise TimeoutError(
                        f"{self._room} pictures wait already: the encoder, or the rate, is behind"
                    )
                self._change.wait(left)
            if self._ended or self.over():
                raise ValueError("the sender is closed")  # the same error as a closed file raises
            now = int((time.monotonic() - self._began) * self.shape.fps)
            if self._leaky and not self._make_room(now):
                return
            self._last = max(self._last + 1, now)
            self._waiting.append((self._last, samples))
            self._change.notify_all()

    def _make_room(self, now: int) -> bool:
        if self._last > now:
            # The program sends more pictures than the frame rate allows, so this picture is dropped.
            self.left_out += 1
            return False
        while len(self._waiting) >= self._room:
            self._waiting.popleft()
            self.left_out += 1
        return True

    def picture(self, number: int) -> tuple[int, U8] | None:
        """See `Pictures.picture`. Pictures whose presentation time has passed are dropped."""
        with self._change:
            while True:
                while self._waiting:
                    found = self._waiting.popleft()
                    self._change.notify_all()
                    if found[0] >= number:
                        return found
                    self._passed += 1
                if self._ended:
                    return None
                self._change.wait()

    def end(self, *, now: bool = False) -> None:
        """Close the queue. Waiting pictures are still encoded, unless ``now`` is set."""
        with self._change:
            self._ended = True
            if now:
                self._waiting.clear()
            self._change.notify_all()


class Sender(ends.Ends):
    """Sends video over RTP to one receiver or to a group, at the rate that the network allows.

    A program passes its pictures to `send`, or gives a ``source``. The session starts with the constructor and runs in
    background threads until `close`, or until the end of the ``with`` block. All methods are thread-safe.

    Args:
        to: the address and port of a receiver, ``10.0.0.2:5004``, or of a multicast group.
        source: a source of `steadycast send` instead of the program's pictures: a video file, a camera
            (``/dev/video0``), ``testsrc`` or ``greedy``.
        loop: play the file again when it ends.
        size: width and height of the pictures. A source is scaled to this size. By default, a source keeps its own
            size.
        fps: pictures per second. The default is 25 for a program's pictures, and the source's own rate for a source.
        pixels: the pixel format of the arrays: ``rgb24``, ``bgr24`` (height, width, 3), ``gray`` (height, width) or
            ``yuv420p`` (planes one below the other: height * 3/2, width).
        queue: the number of pictures that may wait for the encoder. Each waiting picture adds a delay of one frame
            interval.
        leaky: when the queue is full, drop the oldest picture instead of blocking in `send`. This suits a camera.
        codec: mpeg4, mpeg2, h263, h264, h265, vp8, vp9 or av1.
        gop: the distance between I frames, in pictures.
        keep_size: keep the size of the pictures when the rate is too low for it, and drop pictures instead.
        audio: also send the sound of a file.
        controller: the controller's name, see `controllers`. The default is ``steady`` for a receiver and ``asmp`` for
            a group.
        params: the controller's parameters, by name.
        mode: repaired (the default) or paper.
        max_rate: upper limit of the rate, ``"2Mbps"`` or a number in bit/s.
        floor: lower limit of the rate. The default is 50 kb/s.
        feedback: the receiver's per-packet feedback: own (the default), rfc8888 or twcc.
        repair: the repair of lost packets: rtx, parity, none, or auto (the default).
        packet: the size of a full IP packet in bytes. The default is 1200.
        key_file: a file with the master key for SRTP.
        interface: the network interface from which the packets of a group are sent.
        ttl: the time to live of the packets of a group, in router hops.
        port: the local port. By default, any free port is used.
        mux: use the same port for RTP and RTCP (RFC 5761).

    Raises:
        UserError: an argument, an address or the source can't be used. The error describes the place and the remedy.
        MissingError: the system is not Linux.

    """

    @typed
    def __init__(
        self,
        to: str,
        *,
        source: str | Path | None = None,
        loop: bool = False,
        size: tuple[int, int] | str | None = None,
        fps: float | str | Fraction | None = None,
        pixels: Pixels = "rgb24",
        queue: int = 4,
        leaky: bool = False,
        codec: str = "mpeg4",
        gop: int = 12,
        keep_size: bool = False,
        audio: bool = True,
        controller: str | None = None,
        params: Mapping[str, object] | None = None,
        mode: str | None = None,
        max_rate: str | float | None = None,
        floor: str | float | None = None,
        feedback: str | None = None,
        repair: str | None = None,
        packet: int | None = None,
        key_file: Path | str | None = None,
        interface: str | None = None,
        ttl: int | None = None,
        port: int | None = None,
        mux: bool = False,
    ) -> None:
        if queue < 1:
            raise UserError(f"queue {queue}", "no picture has room", "take 1 or more")
        for name, number, most in (("gop", gop, 600), ("ttl", ttl, 255), ("port", port, 65_535)):
            if number is not None and not 1 <= number <= most:
                raise UserError(f"{name} {number}", "it is out of range", f"take 1 to {most}")
        to, interface = session.resolved(to, interface, tell=False)
        controller = controller or send.default_controller(to, mode)
        said = {
            "controller": controller,
            "param": params or None,
            "mode": mode,
            "max_rate": ends.rate_text(max_rate),
            "floor": ends.rate_text(floor),
            "packet": packet,
            "feedback": feedback,
            "repair": repair,
        }
        options = send.Options(
            source="" if source is None else str(source),
            to=to,
            flow={name: value for name, value in said.items() if value is not None},
            interface=interface,
            ttl=ttl,
            port=port,
            mux=mux,
            key_file=None if key_file is None else Path(key_file),
        )
        settings = send.settings_of(options)
        self._inbox: Inbox | None = None
        coding = {"codec": codec, "gop": gop, "keep_size": keep_size, "audio": audio}
        plan = _plan(source, size, fps, coding, lambda shape: self._take(shape, queue, leaky), loop=loop)
        core = send.begun(settings, options.flow, plan)
        super().__init__(core, _leave, self._inbox)
        self.to, self.controller, self.pixels = to, controller, pixels
        self._plan = plan
        if plan.audio is not None:
            threading.Thread(target=plan.audio, args=(core,), daemon=True, name="steadycast-audio").start()
        inbox, work = self._inbox, plan.work
        if inbox is not None:
            inbox.over = lambda: core.done
        self._worker = threading.Thread(
            target=lambda: work and work(core), daemon=True, name="steadycast-encoder"
        )
        self._worker.start()

    def _take(self, shape: Shape, queue: int, leaky: bool) -> Inbox:
        self._inbox = Inbox(shape, queue, leaky=leaky)
        return self._inbox

    @property
    def sdp(self) -> str:
        """The session description (RFC 8866), for `Receiver` and standard players."""
        return str(self._core.sdp)

    @property
    def status(self) -> SenderStatus:
        """The present status of the session, or its last status after the session has ended."""
        waiting, left_out = (0, 0) if self._inbox is None else (len(self._inbox), self._inbox.left_out)
        return SenderStatus.of(ends.look(self._core), waiting=waiting, left_out=left_out)

    def send(self, picture: NDArray[np.uint8], timeout: float | None = None) -> None:
        """Send a copy of the next picture.

        Pictures are encoded at the frame rate. A faster program blocks here until the queue has room. The pictures of
        a slower program are presented at the time of this call.

        Args:
            picture: an array of uint8 in the format ``pixels``. For ``rgb24``, its shape is (height, width, 3).
            timeout: the longest wait in seconds. By default, there is no limit.

        Raises:
            TimeoutError: there was no room in time.
            UserError: the array has another shape or type, or the session has a source.
            ValueError: the sender was closed, or it has ended.

        """
        if self._inbox is None:
            raise UserError("send", "the session has a source already", "leave source out to send pictures")
        shape = self._inbox.shape
        samples = _samples(picture, self.pixels, shape)
        try:
            self._inbox.put(samples, timeout)
        except ValueError:
            # If the encoder has failed, the queue was closed for that reason. Raise the encoder's error instead.
            self._raise_failure()
            raise

    def end(self) -> None:
        """Announce that there are no more pictures. The waiting pictures are sent, then the session ends."""
        if self._inbox is not None:
            self._inbox.end()

    @typed
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the session ends, because its source ends or `end` was called.

        Returns whether the session has ended. The result is false if ``timeout`` seconds have passed first.
        """
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._core.wait(max(0.0, min(ends.SLICE_S, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    @typed
    def limit(self, *, max_rate: str | float | None = None, floor: str | float | None = None) -> None:
        """Change the upper and lower limit of the rate. A limit that is not given stays unchanged.

        Raises:
            UserError: a value is not a rate.

        """
        low, high = (
            None if text is None else session.rate(text, option)
            for text, option in ((ends.rate_text(floor), "floor"), (ends.rate_text(max_rate), "max_rate"))
        )
        self._core.limit(low, high)

    @typed
    def exclude(self, name: str) -> None:
        """Ignore the reports of the receiver with this name (CNAME), now or after it joins."""
        self._core.exclude(name)

    def admit_all(self) -> None:
        """Accept the reports of all receivers again."""
        self._core.admit_all()

    def close(self) -> None:
        """End the session immediately, and send a BYE. Waiting pictures are dropped. A second call does nothing.

        Raises:
            UserError: the session has failed. The error contains the reason.

        """
        if self._finish(lambda: _stop(self._core, self._inbox), self._plan.warnings):
            self._worker.join(_DRAIN_S)
            self._raise_failure()

    def _raise_failure(self) -> None:
        failed = None if self._plan.work is None else self._plan.work.failed
        if failed is not None:
            raise failed

    def _drain(self) -> None:
        """Send the waiting pictures. A session that has a source ends immediately."""
        if self._inbox is not None:
            self.end()
            self.wait(_DRAIN_S + float(len(self._inbox) / self._inbox.shape.fps))

    def __repr__(self) -> str:
        shape = "" if self._inbox is None else f", size={self._inbox.shape.width}x{self._inbox.shape.height}"
        return f"<Sender to={self.to!r}, controller={self.controller!r}{shape}: {self._state('sending')}>"


def _stop(core: Any, inbox: Inbox | None) -> None:
    core.stop()
    if inbox is not None:
        inbox.end(now=True)


def _leave(core: Any, inbox: Inbox | None) -> None:
    _stop(core, inbox)
    ends.leave(core)


def _plan(
    source: str | Path | None,
    size: tuple[int, int] | str | None,
    fps: float | str | Fraction | None,
    coding: Mapping[str, Any],
    take: Callable[[Shape], Inbox],
    *,
    loop: bool,
) -> Plan:
    from steadycast.live.encoder import Encoder, Shape
    from steadycast.live.source import encoded, plan
    from steadycast.media.clip import parse_fps, parse_size
    from steadycast.media.ladder import as_options, codec_of

    text = "x".join(map(str, size)) if isinstance(size, tuple) else size
    if source is not None:
        rate = "clip" if fps is None else str(fps)
        return plan(str(source), size=text or "clip", fps=rate, loop=loop, ladder=False, **coding)
    if text is None or text == "clip":
        raise UserError("size", "the pictures' size is not known", "give width and height: size=(640, 480)")
    width, height = parse_size(text, (0, 0), "size")
    # `parse_size` rounds odd sides down. A changed text means that a side was odd.
    if text != "cif" and text != f"{width}x{height}":
        raise UserError(f"size {text}", "a side is odd", f"take {width}x{height}")
    shape = Shape(width, height, parse_fps(25 if fps is None else fps, Fraction(25), "fps"))
    with as_options():
        encoder = Encoder(codec_of(coding["codec"]), shape, coding["gop"], keep_size=coding["keep_size"])
    return encoded(take(shape), encoder, None)


def _samples(picture: object, pixels: Pixels, shape: Shape) -> U8:
    """Convert a picture to 4:2:0, as a contiguous copy of its planes."""
    import av
    import numpy as np

    from steadycast.media.clip import scaled

    wanted = ends.shape_of(pixels, shape.width, shape.height)
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape != wanted:
        found = (
            f"an array of shape {picture.shape} and {picture.dtype}"
            if isinstance(picture, np.ndarray)
            else f"a {type(picture).__name__}"
        )
        raise UserError(
            "picture",
            f"it is {found}",
            f"{pixels} pictures of {shape.width}x{shape.height} are arrays of shape {wanted} and uint8",
        )
    # Copy the samples, because the program may change its array after the call.
    if pixels == "yuv420p":
        return np.array(picture, dtype=np.uint8, order="C").reshape(-1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=pixels)
    return scaled(frame, shape.width, shape.height)
