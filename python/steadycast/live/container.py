"""Writes a container file while frames arrive. The file can be played even if the writing is interrupted."""

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
    # Write fragments of one second, which make the file playable without an index at its end.
    "mp4": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
    "mov": {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000"},
}
_CLOCK = Fraction(1, 90_000)
_WITH_OPUS = ("matroska", "webm", "mp4", "mpegts", "nut")
"""Names of containers into which FFmpeg can write Opus."""
_LONGEST_WAIT_US = "1000000"
"""The longest time that frames wait for audio, and audio for frames, in µs. A limit is needed if a track pauses."""
_MOST = 64
"""The largest number of frames that wait until a frame contains the stream's parameters."""


def takes_audio(container: str | None) -> bool:
    """Whether FFmpeg can write Opus into this container. Return false for a raw stream."""
    return container is not None and any(name in _WITH_OPUS for name in container.split(","))


_MOST_EARLY = 500
"""The largest number of audio packets that wait for the start of the file. They contain 10 s of sound."""


class Times:
    """Computes decoding times from presentation times. The frames must be in decoding order.

    The reorder depth (the number of frames that a decoder holds back) comes from the stream's codec context.
    """

    def __init__(self, codec: Any) -> None:
        # Older versions of PyAV only have a boolean. A depth that is too large only makes decoding times earlier.
        depth = getattr(codec, "reorder_depth", 4 * codec.has_b_frames)
        self._ahead = list(range(-depth, 0))
        self._last = -1 - depth

    def of(self, ticks: int) -> tuple[int, int]:
        """Return the presentation time and the decoding time of the next frame. ``ticks`` is its presentation time."""
        # Decoding times are the sorted presentation times, delayed by the reorder depth. They must increase.
        self._last = max(heapq.heappushpop(self._ahead, ticks), self._last + 1)
        return max(ticks, self._last), self._last


class Growing:
    """A container file to which frames are added one after another.

    Frames wait until an I frame contains the stream's parameters, such as the picture size. ``container`` is FFmpeg's
    name of the format, and ``head`` is the decoder's configuration. ``audio`` adds a track of Opus packets.
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
        """Whether the start of the file has been written."""
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
        # Double the interval between attempts. Each attempt parses all waiting frames, so the total work stays linear.
        self._next_try = 2 * len(self.waiting)
        if self.begin(io.BytesIO(self.plain())):
            for each in self.waiting:
                self._mux(*each)
            self.waiting.clear()

    def begin(self, source: BinaryIO) -> bool:
        """Begin the file if ``source`` contains the stream's parameters. Return whether the file was begun."""
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
        # The parameters come from a few frames without time stamps. Set 0, so that FFmpeg does not guess a frame rate
        # from them.
        self._stream.codec_context.framerate = 0
        if self._audio:
            # Create an encoder only for its configuration, which the header of the track needs. It encodes nothing.
            self._sound = file.add_stream("libopus", rate=48_000, layout="stereo")
        self._file = file
        for each in self._early:
            self.add_audio(*each)
        self._early.clear()
        return True

    def add_audio(self, ticks: int, data: bytes) -> None:
        """Add an Opus packet that begins at ``ticks``, on the clock of the frames.

        The packet is ignored if the file has no audio track.

        Raises:
            OSError: the file can't be written; FFmpeg's errors are subclasses of it or of ValueError.

        """
        if not self._audio:
            return
        if self._file is None:
            self._early = [*self._early[-_MOST_EARLY:], (ticks, data)]
            return
        # Drop packets whose time stamp does not increase. This includes audio before the first picture, which would
        # have negative time stamps.
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
