"""An encoded clip in the form in which it is sent. Frames are in coding order, and each has a display slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av.error

from steadycast import files
from steadycast.errors import UserError
from steadycast.media.clip import opened, own_rate
from steadycast.media.decode import decoded
from steadycast.media.ladder import CODECS, Codec
from steadycast.media.metrics import Picture
from steadycast.media.reader import said
from steadycast.media.splice import Unit
from steadycast.media.table import Kind
from steadycast.media.yuv import Layout, is_raw

_KINDS = {1: Kind.I, 2: Kind.P, 3: Kind.B}
"""Frame types by FFmpeg's AVPictureType. All others are switching pictures, which have references like P frames."""


@dataclass(frozen=True, eq=False)
class EncodedClip:
    """An encoded clip: its access units (encoded frames), and the display slot of each."""

    path: Path
    codec: Codec
    config: bytes
    """The decoder's configuration. It is empty if the stream contains the configuration."""
    width: int
    height: int
    fps: Fraction
    units: tuple[bytes, ...]
    """The access units in coding order."""
    kinds: tuple[Kind, ...]
    slots: tuple[int, ...]
    """The display slot of each access unit."""
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, fps: str | Fraction = "clip") -> EncodedClip:
        """Read a video file in a codec that Steadycast encodes. ``fps`` is the frame rate of files without time stamps.

        Raises:
            UserError: the file has another format, or some frames can't be decoded.

        """
        if is_raw(path):
            raise UserError(
                str(path), "this is a raw video", "give the encoded clip; the raw one is --original"
            )
        with opened(path, Layout()) as reader:
            rate = own_rate(reader, fps)
            warnings = tuple(reader.warnings)
        name, config, units, (width, height) = _demuxed(path)
        codec = next((each for each in CODECS.values() if name in (each.name, each.decoder)), None)
        if codec is None:
            raise UserError(str(path), f"its codec is {name}", f"encode it with one of {', '.join(CODECS)}")
        slots, kinds = [-1] * len(units), [Kind.P] * len(units)
        given = (Unit(place, unit) for place, unit in enumerate(units))
        for slot, (place, _, picture_type) in enumerate(decoded(codec, given, config, width, height)):
            slots[place], kinds[place] = slot, _KINDS.get(picture_type, Kind.P)
        missing = [place for place, slot in enumerate(slots) if slot < 0]
        if missing:
            what = (
                f"{len(missing)} of its {len(units)} frames give no picture (the first is frame {missing[0]})"
            )
            raise UserError(str(path), what, "encode it in 4:2:0, without packed B frames or hidden frames")
        return cls(path, codec, config, width, height, rate, units, tuple(kinds), tuple(slots), warnings)


def _demuxed(path: Path) -> tuple[str, bytes, tuple[bytes, ...], tuple[int, int]]:
    """Return a file's codec name, decoder configuration, access units, and picture size."""
    try:
        with files.media(path) as container:
            stream: Any = container.streams.video[0]
            context = stream.codec_context
            config, size = bytes(context.extradata or b""), (context.width, context.height)
            units = tuple(bytes(packet) for packet in container.demux(stream) if packet.size)
            return context.name, config, units, size
    except (av.error.FFmpegError, OSError, ValueError, IndexError) as error:
        raise UserError(str(path), f"not a video file ({said(error)})", "play it to check") from error


def decoded_slots(clip: EncodedClip, frames: Iterable[int]) -> Iterator[tuple[int, Picture]]:
    """Decode the given frames of a clip, and yield the pictures with their display slots."""
    given = (Unit(clip.slots[frame], clip.units[frame]) for frame in frames)
    for slot, picture, _ in decoded(clip.codec, given, clip.config, clip.width, clip.height):
        yield slot, picture
