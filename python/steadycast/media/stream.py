"""A stream of access units as a file that a player opens.

Most codecs mark where a frame begins; VP8, VP9 and AV1 stand in IVF's frames. That format has no specification but
libvpx's source (`ivfenc.c`): a head of 32 bytes, then before each frame its length in 4 bytes and its time in 8,
little-endian.
"""

from __future__ import annotations

import struct

DEMUXERS = {
    "mpeg4": "m4v",
    "mpeg2": "mpegvideo",
    "h263": "h263",
    "h264": "h264",
    "h265": "hevc",
    "vp8": "ivf",
    "vp9": "ivf",
    "av1": "ivf",
}
"""For each codec, FFmpeg's name of the format that `head` and `framed` make."""
ENDINGS = {
    "mpeg4": (".m4v", ".cmp"),
    "mpeg2": (".m2v", ".mpv"),
    "h263": (".h263", ".263"),
    "h264": (".h264", ".264", ".avc"),
    "h265": (".h265", ".265", ".hevc"),
    "vp8": (".ivf",),
    "vp9": (".ivf",),
    "av1": (".ivf",),
}
"""Endings of files of that format."""
_FOURCC = {"vp8": b"VP80", "vp9": b"VP90", "av1": b"AV01"}
CLOCK = 90_000
"""Ticks per second of the times that IVF's frames have."""


def head(codec: str, config: bytes = b"") -> bytes:
    """Return what stands before the first frame; ``config`` is what a decoder must be told first.

    The size of the pictures stands in the first key frame, and is left out of IVF's head.
    """
    if codec not in _FOURCC:
        return config
    return struct.pack("<4sHH4sHHIIII", b"DKIF", 0, 32, _FOURCC[codec], 0, 0, CLOCK, 1, 0, 0)


def framed(codec: str, ticks: int, data: bytes) -> bytes:
    """Return an access unit as it stands in the file."""
    return data if codec not in _FOURCC else struct.pack("<IQ", len(data), max(ticks, 0)) + data
