"""A container that is written while its frames come: what was received can be played when the session is cut off."""

from __future__ import annotations

import heapq
import io
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import av

from steadycast import files
from steadycast.live import session
from steadycast.media import stream

_OPTIONS = {
    # Fragments of a second: what has been written needs no index at the end.
    "mp4": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
    "mov": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
}
_CLOCK = Fraction(1, 90_000)
_MOST = 64
"""Frames that are waited for until one says what the stream is."""


class Times:
    """When frames are shown and when they are decoded: they come in the order in which they are decoded.

    The codec context of their stream knows how many frames a decoder holds back to put them in order.
    """

    def __init__(self, codec: Any) -> None:
        # Older versions of PyAV only say whether it holds any back. Too many do no harm.
        depth = getattr(codec, "reorder_depth", 4 * codec.has_b_frames)
        self._ahead = list(range(-depth, 0))
        self._last = -1 - depth

    def of(self, ticks: int) -> tuple[int, int]:
        """Return both times of the next frame, which is shown at ``ticks``."""
        # The times of decoding are those of showing, sorted, and as many frames later as a decoder holds back. They
        # never go back, and no frame is shown before it is decoded.
        self._last = max(heapq.heappushpop(self._ahead, ticks), self._last + 1)
        return max(ticks, self._last), self._last


class Growing:
    """The container. Frames wait until the stream is known: its size stands in the first I frame.

    ``container`` is FFmpeg's name of it; ``head`` is what a decoder must be told first.
    """

    def __init__(self, place: Path, container: str, codec: str, head: bytes) -> None:
        self._place, self._container, self._codec, self._head = place, container, codec, head
        self.waiting: list[tuple[int, bytes]] = []
        self._file: Any = None
        self._stream: Any = None
        self._times: Any = None
        self._next_try = 1
        self._latest: int | None = None
        self._step = 0

    @property
    def begun(self) -> bool:
        """Whether the file is being written."""
        return self._file is not None

    @property
    def hopeless(self) -> bool:
        """Whether no frame has said what the stream is, among many."""
        return self._file is None and len(self.waiting) >= _MOST

    def plain(self) -> bytes:
        """Return what waits, as the stream itself."""
        units = (stream.framed(self._codec, *each) for each in self.waiting)
        return stream.head(self._codec, self._head) + b"".join(units)

    def add(self, ticks: int, data: bytes) -> None:
        """Take a frame, shown at ``ticks`` of a clock of 90 kHz.

        Raises:
            OSError: the system refused; FFmpeg's errors are its subclasses, or those of ValueError.

        """
        if self._file is not None:
            self._mux(ticks, data)
            return
        self.waiting.append((ticks, data))
        if len(self.waiting) < self._next_try:
            return
        # Each try reads all that waits: they become rarer as it grows.
        self._next_try = 2 * len(self.waiting)
        if self.begin(io.BytesIO(self.plain())):
            for each in self.waiting:
                self._mux(*each)
            self.waiting.clear()

    def begin(self, source: BinaryIO) -> bool:
        """Begin the file, where what stands in ``source``, the stream itself, says what it is."""
        try:
            with av.open(source, format=stream.FORMS[self._codec].demuxer) as known:
                found = known.streams.video[0]
                if not found.codec_context.width:
                    return False
                options = {"flush_packets": "1", **_OPTIONS.get(self._container, {})}
                file = files.media(self._place, "w", form=self._container, options=options)
                self._stream = file.add_stream_from_template(found, opaque=True)
                self._times = Times(found.codec_context)
        except (av.error.InvalidDataError, av.error.EOFError, ValueError, IndexError):
            return False
        self._stream.time_base = _CLOCK
        # A few frames without times tell no rate, and FFmpeg would guess one.
        self._stream.codec_context.framerate = 0
        self._file = file
        return True

    def _mux(self, ticks: int, data: bytes) -> None:
        if self._latest is not None and ticks > self._latest:
            self._step = min(ticks - self._latest, self._step or ticks)
        self._latest = max(ticks, self._latest or ticks)
        packet = av.Packet(data)
        packet.stream, packet.time_base = self._stream, _CLOCK
        packet.pts, packet.dts = self._times.of(ticks)
        packet.duration = self._step
        packet.is_keyframe = session.live_core().is_key_frame(self._codec, data)
        self._file.mux(packet)

    def close(self) -> None:
        """Write its end.

        Raises:
            OSError: the system refused.

        """
        file, self._file = self._file, None
        if file is not None:
            file.close()
