"""A live encoder. It opens a codec context for each GOP, with the quantizer that the rate allows."""

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
    """The size and the frame rate of a source's pictures."""

    width: int
    height: int
    fps: Fraction


_SCALES = tuple(map(Fraction, ("1", "3/4", "1/2", "3/8", "1/4", "3/16", "1/8")))
"""Factors for the width and height of coded pictures. They are used if a rate is too low for the source's size."""
_SMALLEST = 48
"""Smallest width and height of a picture after scaling, in samples."""


def sizes_of(codec: Codec, shape: Shape) -> list[tuple[int, int]]:
    """Return the sizes at which a source may be coded, in descending order. The first is the source's size."""
    sizes = [(shape.width, shape.height)]
    for scale in _SCALES[1:]:
        width, height = (
            round(side * scale / codec.multiple) * codec.multiple for side in (shape.width, shape.height)
        )
        if min(width, height) >= max(codec.least, _SMALLEST):
            sizes.append((width, height))
    return sizes


class Encoder:
    """Encodes pictures to access units without delay: there are no B frames and no look-ahead.

    The size may change from GOP to GOP, unless ``keep_size`` is set. ``profile`` is x264's name of an H.264 profile.
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
        """Encode a picture. Return its kind (0: I, 1: P) and its access unit.

        If ``first`` is set, the picture begins a GOP with the given ``quantizer`` and the size at index ``size`` of
        `sizes`. Its access unit then contains the decoder's configuration again.
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
                # Set this flag, because FFmpeg's MPEG-2 encoder otherwise delays each picture by one frame.
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
        """Return the decoder's configuration. It is taken from the access unit of a grey picture."""
        grey = np.full(self.shape.width * self.shape.height * 3 // 2, 128, dtype=np.uint8)
        _, data = self.unit(
            grey, first=True, quantizer=self.codec.quantizers[len(self.codec.quantizers) // 2]
        )
        self._context = None
        return config_of(self.codec.name, data)


def config_of(codec: str, unit: bytes) -> bytes:
    """Return the headers in an access unit for a session description: MPEG-4's headers, or H.264's parameter sets."""
    if codec == "mpeg4":
        starts = [unit.find(code) for code in (b"\0\0\1\xb3", b"\0\0\1\xb6")]
        return unit[: min((at for at in starts if at >= 0), default=0)]
    if codec == "h264":
        parts = unit.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")
        return b"".join(b"\0\0\0\1" + part for part in parts if part and part[0] & 0x1F in (7, 8))
    return b""
