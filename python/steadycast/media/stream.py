"""A stream of access units, in a file format that a player can open.

VP8, VP9 and AV1 need the format IVF, which only the source of libvpx specifies (`ivfenc.c`). An IVF file begins with a
header of 32 bytes. The length (4 bytes) and the time (8 bytes) of each frame precede the frame, little-endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Form(NamedTuple):
    """The file format for the raw stream of a codec."""

    codec: str
    """FFmpeg's name of the codec."""
    demuxer: str
    """FFmpeg's name of the file format that `head` and `framed` write."""
    endings: tuple[str, ...]
    """Suffixes of file names."""
    fourcc: bytes = b""
    """FourCC of the codec in IVF. It is empty if the codec does not use IVF."""
    delimiter: bytes = b""
    """The optional delimiter that may precede each access unit (H.264 and H.265, section 7.3.1)."""


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
    """Return the file header that precedes the first frame. ``config`` is the configuration of the decoder.

    The size of the pictures is left 0 in the header of IVF, because the first key frame contains it.
    """
    fourcc = FORMS[codec].fourcc
    return struct.pack("<4sHH4sHHIIII", b"DKIF", 0, 32, fourcc, 0, 0, CLOCK, 1, 0, 0) if fourcc else config


def framed(codec: str, ticks: int, data: bytes) -> bytes:
    """Return an access unit with its IVF frame header, if the codec's files are IVF files."""
    return struct.pack("<IQ", len(data), max(ticks, 0)) + data if FORMS[codec].fourcc else data


def closed(codec: str, ticks: int, data: bytes) -> bytes:
    """Return an access unit for a player's pipe, followed by the delimiter of the next access unit.

    Without the delimiter, a player would not show a unit before the next unit has arrived.
    """
    delimiter = FORMS[codec].delimiter
    return framed(codec, ticks, data) + (b"" if delimiter[1:5] in data[:6] else delimiter)
