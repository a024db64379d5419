"""A live encoder: one context per group of pictures, so that each has the quantizer that the rate allows."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.video.frame import PictureType

from steadycast.media.ladder import Codec, open_encoder, start
from steadycast.media.table import U8


@dataclass(frozen=True)
class Shape:
    """Pictures of one size and rate."""

    width: int
    height: int
    fps: Fraction


_SCALES = tuple(map(Fraction, ("1", "3/4", "1/2", "3/8", "1/4", "3/16", "1/8")))
"""Sides of pictures that are coded, of the source's, where the rate has no room for these."""
_SMALLEST = 48
"""Samples on each side that a picture of these has at least."""


def sizes_of(codec: Codec, shape: Shape) -> list[tuple[int, int]]:
    """Widths and heights that a source may be coded at: its own, and then smaller and smaller ones."""
    sizes = [(shape.width, shape.height)]
    for scale in _SCALES[1:]:
        width, height = (
            round(side * scale / codec.multiple) * codec.multiple for side in (shape.width, shape.height)
        )
        if min(width, height) >= max(codec.least, _SMALLEST):
            sizes.append((width, height))
    return sizes


class Encoder:
    """Turns pictures into access units, one at once for each: no B frames, nothing is held back.

    Each group of ``gop`` pictures may have another size, where that is not forbidden by ``keep_size``. A ``profile`` is
    x264's name of one.
    """

    def __init__(
        self, codec: Codec, shape: Shape, gop: int, *, keep_size: bool = False, profile: str = ""
    ) -> None:
        codec.need_size("encode.size", shape.width, shape.height)
        self.codec, self.shape, self.gop, self.profile = codec, shape, gop, profile
        self.sizes = [(shape.width, shape.height)] if keep_size else sizes_of(codec, shape)
        self._context: Any = None
        self._number = 0

    def unit(self, samples: U8, *, first: bool, quantizer: int, size: int = 0) -> tuple[int, bytes]:
        """Kind (0: I, 1: P) and bytes of the next picture.

        ``first`` begins a group at this quantizer and the size at this place of `sizes`. Each group begins with what a
        decoder must be told of it, so that decoders follow another size.
        """
        if first or self._context is None:
            self._context = open_encoder(self.codec, self.sizes[size], self.shape.fps, 0, self.gop, quantizer)
            options = dict(self._context.options)
            if self.codec.encoder == "libx264":
                options |= {"preset": "veryfast", "tune": "zerolatency"}
                options |= {"profile": self.profile} if self.profile else {}
                options["x264-params"] += ":sliced-threads=0"
            elif self.codec.encoder == "libx265":
                options |= {"preset": "ultrafast", "tune": "zerolatency"}
            elif self.codec.encoder.startswith("libvpx"):
                options["cpu-used"] = "8"
            elif self.codec.encoder == "libsvtav1":
                options["preset"] = "12"
            elif self.codec.encoder == "mpeg2video":
                # Without it MPEG-2 gives each picture out only when the next one comes.
                options["flags"] += "+low_delay"
            self._context.options = options
            start(self._context)
            self._number = 0
        shape = (self.shape.height * 3 // 2, self.shape.width)
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(samples).reshape(shape), format="yuv420p")
        width, height = self._context.width, self._context.height
        if (width, height) != (self.shape.width, self.shape.height):
            frame = frame.reformat(width=width, height=height, interpolation="AREA")
        frame.pts, frame.time_base = self._number, self._context.time_base
        frame.pict_type = PictureType.I if self._number == 0 else PictureType.NONE
        self._number += 1
        packets = self._context.encode(frame)
        if len(packets) != 1:
            raise RuntimeError(f"{self.codec.encoder} gave {len(packets)} units for one picture")
        return (0 if packets[0].is_keyframe else 1), bytes(packets[0])

    def config(self) -> bytes:
        """Return what a decoder must be told before the first unit, taken from a grey picture's."""
        grey = np.full(self.shape.width * self.shape.height * 3 // 2, 128, dtype=np.uint8)
        _, data = self.unit(
            grey, first=True, quantizer=self.codec.quantizers[len(self.codec.quantizers) // 2]
        )
        self._context = None
        return config_of(self.codec.name, data)


def config_of(codec: str, unit: bytes) -> bytes:
    """Headers at the head of an access unit that session descriptions carry: MPEG-4's, and H.264's sets."""
    if codec == "mpeg4":
        starts = [unit.find(code) for code in (b"\0\0\1\xb3", b"\0\0\1\xb6")]
        return unit[: min((at for at in starts if at >= 0), default=0)]
    if codec == "h264":
        parts = unit.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")
        return b"".join(b"\0\0\0\1" + part for part in parts if part and part[0] & 0x1F in (7, 8))
    return b""
