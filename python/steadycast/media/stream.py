"""A stream of access units as a file that a player can open.

VP8, VP9 and AV1 need IVF, which only libvpx's source specifies (`ivfenc.c`): a header of 32 bytes, and before each
frame its length in 4 bytes and its time in 8 bytes, little-endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Form(NamedTuple):
    """The file format of a codec's raw stream."""

    codec: str
    """FFmpeg's name."""
    demuxer: str
    """FFmpeg's name of the format that `head` and `framed` produce."""
    endings: tuple[str, ...]
    """File name suffixes."""
    fourcc: bytes = b""
    """The codec's FourCC in IVF."""
    delimiter: bytes = b""
    """The optional delimiter before each access unit (H.264 and H.265, 7.3.1)."""


FORMS = {
    "mpeg4": Form("mpeg4", "m4v", (".m4v", ".cmp")),
    "mpeg2": Form("mpeg2video", "mpegvideo", (".m2v", ".mpv")),
    "h263": Form("h263", "h263", (".h263", ".263")),
    "h264": Form("h264", "h264", (".h264", ".264", ".avc"), delimiter=b"\0\0\0\1\x09\xf0"),
    "h265": Form("hevc", "hevc", (".h265", ".265", ".hevc"), delimiter=b"\0\0\0\1\x46\1\x50"),
    "vp8": Form("vp8", "ivf", (".ivf",), b"VP80"),
    "vp9": Form("vp9", "ivf", (".ivf",), b"VP90"),
    "av1": Form("av1", "ivf", (".ivf",), b"AV01"),
}
CLOCK = 90_000
"""Ticks per second of the time stamps in IVF."""


def head(codec: str, config: bytes = b"") -> bytes:
    """Return the file header before the first frame; ``config`` is the decoder's configuration.

    IVF's header omits the size of the pictures, which the first key frame has.
    """
    fourcc = FORMS[codec].fourcc
    return struct.pack("<4sHH4sHHIIII", b"DKIF", 0, 32, fourcc, 0, 0, CLOCK, 1, 0, 0) if fourcc else config


def framed(codec: str, ticks: int, data: bytes) -> bytes:
    """Return an access unit as it is stored in the file."""
    return struct.pack("<IQ", len(data), max(ticks, 0)) + data if FORMS[codec].fourcc else data


def closed(codec: str, ticks: int, data: bytes) -> bytes:
    """Return an access unit for a player's pipe, with the delimiter of the next one.

    Without it, a player shows each unit only when the next has come.
    """
    delimiter = FORMS[codec].delimiter
    return framed(codec, ticks, data) + (b"" if delimiter[1:5] in data[:6] else delimiter)
