"""Writes a container file while frames arrive; after an interruption, the file can still be played."""

from __future__ import annotations

import heapq
import io
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, BinaryIO

import av

from steadycast import files
from steadycast.live import session
from steadycast.media import stream

_OPTIONS = {
    # Fragments of one second make the file playable without an index at its end.
    "mp4": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
    "mov": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
}
_CLOCK = Fraction(1, 90_000)
_WITH_OPUS = ("matroska", "webm", "mp4", "mpegts", "nut")
"""Containers into which FFmpeg can write Opus."""
_LONGEST_WAIT_US = "1000000"
"""The longest wait of frames for audio, and vice versa, in µs; a track may pause."""
_MOST = 64
"""The most frames that wait for a frame with the stream's parameters."""


def takes_audio(container: str | None) -> bool:
    """Whether FFmpeg can write Opus into this container; false for a raw stream."""
    return container is not None and any(name in _WITH_OPUS for name in container.split(","))


_MOST_EARLY = 500
"""The most audio packets that wait for the start of the file: 10 s."""


class Times:
    """Derives decoding times from presentation times, for frames in decoding order.

    The reorder depth (the number of frames that a decoder holds back) comes from the stream's codec context.
    """

    def __init__(self, codec: Any) -> None:
        # Older PyAV only has a boolean. Too large a depth only makes decoding times earlier.
        depth = getattr(codec, "reorder_depth", 4 * codec.has_b_frames)
        self._ahead = list(range(-depth, 0))
        self._last = -1 - depth

    def of(self, ticks: int) -> tuple[int, int]:
        """Return the presentation time ``ticks`` of the next frame, and its decoding time."""
        # Decoding times are the sorted presentation times, delayed by the reorder depth; they must increase.
        self._last = max(heapq.heappushpop(self._ahead, ticks), self._last + 1)
        return max(ticks, self._last), self._last


class Growing:
    """A container file that grows. Frames wait until an I frame has the stream's parameters (such as the size).

    ``container`` is FFmpeg's name of the format; ``head`` is the decoder's configuration. ``audio`` adds a track of
    Opus packets.
    """

    def __init__(
        self, place: Path | IO[bytes], container: str, codec: str, head: bytes, *, audio: bool = False
    ) -> None:
        self._place, self._container, self._codec, self._head = place, container, codec, head
        self._audio = audio
        self._sound: Any = None
        self._early: list[tuple[int, bytes]] = []
        self._heard = -1
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
        """Whether none of the first `_MOST` frames contains the stream's parameters."""
        return self._file is None and len(self.waiting) >= _MOST

    def plain(self) -> bytes:
        """Return the waiting frames as a raw stream."""
        units = (stream.framed(self._codec, *each) for each in self.waiting)
        return stream.head(self._codec, self._head) + b"".join(units)

    def add(self, ticks: int, data: bytes) -> None:
        """Add a frame with the presentation time ``ticks``, in units of 1/90000 s.

        Raises:
            OSError: the file can't be written; FFmpeg's errors are subclasses of it or of ValueError.

        """
        if self._file is not None:
            self._mux(ticks, data)
            return
        self.waiting.append((ticks, data))
        if len(self.waiting) < self._next_try:
            return
        # Each attempt parses all waiting frames: doubling the interval keeps the total work linear.
        self._next_try = 2 * len(self.waiting)
        if self.begin(io.BytesIO(self.plain())):
            for each in self.waiting:
                self._mux(*each)
            self.waiting.clear()

    def begin(self, source: BinaryIO) -> bool:
        """Begin the file if ``source`` has the stream's parameters; return whether it was begun."""
        try:
            with av.open(source, format=stream.FORMS[self._codec].demuxer) as known:
                found = known.streams.video[0]
                if not found.codec_context.width:
                    return False
                options = {"flush_packets": "1", **_OPTIONS.get(self._container, {})}
                if self._audio:
                    options["max_interleave_delta"] = _LONGEST_WAIT_US
                if isinstance(self._place, Path):
                    file = files.media(self._place, "w", form=self._container, options=options)
                else:
                    file = av.open(self._place, "w", format=self._container, options=options)
                self._stream = file.add_stream_from_template(found, opaque=True)
                self._times = Times(found.codec_context)
        except (av.error.InvalidDataError, av.error.EOFError, ValueError, IndexError):
            return False
        self._stream.time_base = _CLOCK
        # The parameters come from a few frames without time stamps. 0 keeps FFmpeg from guessing a frame rate from
        # them.
        self._stream.codec_context.framerate = 0
        if self._audio:
            # This encoder encodes nothing. The track's header needs its configuration.
            self._sound = file.add_stream("libopus", rate=48_000, layout="stereo")
        self._file = file
        for each in self._early:
            self.add_audio(*each)
        self._early.clear()
        return True

    def add_audio(self, ticks: int, data: bytes) -> None:
        """Add an Opus packet that begins at ``ticks``, on the clock of the frames; ignored without an audio track.

        Raises:
            OSError: the file can't be written; FFmpeg's errors are subclasses of it or of ValueError.

        """
        if not self._audio:
            return
        if self._file is None:
            self._early = [*self._early[-_MOST_EARLY:], (ticks, data)]
            return
        # A track's time stamps must increase. Audio before the first picture would be negative.
        if ticks <= self._heard:
            return
        self._heard = ticks
        packet = av.Packet(data)
        packet.stream, packet.time_base = self._sound, _CLOCK
        packet.pts = packet.dts = ticks
        packet.duration = _CLOCK.denominator // 50
        packet.is_keyframe = True
        self._file.mux(packet)

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
        """Write the container's trailer, and close the file.

        Raises:
            OSError: the file can't be written.

        """
        file, self._file = self._file, None
        if file is not None:
            file.close()
