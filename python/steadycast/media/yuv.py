"""Raw files (.yuv). They contain only pictures, one after the other, and nothing about their format."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from steadycast import files
from steadycast.media.reader import RATES, ClipError

SIZES = {
    "sqcif": (128, 96),
    "qcif": (176, 144),
    "cif": (352, 288),
    "4cif": (704, 576),
    "qvga": (320, 240),
    "vga": (640, 480),
    "720p": (1280, 720),
    "1080p": (1920, 1080),
}
"""Width and height for each name of a picture size.

The first four sizes are from ITU-T H.263 (table 5). Then follow QVGA and VGA. Television sizes are named by their
number of lines.
"""
PIXELS = "yuv420p"
"""The default pixel format: 4:2:0, 8 bits, plane after plane."""
_BARE_RATES = range(10, 121)
"""A whole number after a size is a frame rate if it is in this range, as in `name_1920x1080_50.yuv`."""


@dataclass(frozen=True)
class Layout:
    """Size, frame rate and pixel format of a raw file. A value that is `None` is not known."""

    size: tuple[int, int] | None = None
    fps: Fraction | None = None
    pixels: str | None = None
    """FFmpeg's name of the pixel format."""

    @staticmethod
    def named(path: Path) -> Layout:
        """Return the layout that a file's name contains.

        Examples are `foreman_cif.yuv`, `x_1920x1080_50.yuv` and `x_640x480_30fps_yuv422p.yuv`.
        """
        size: tuple[int, int] | None = None
        fps: Fraction | None = None
        pixels: str | None = None
        before = ""
        for word in re.split(r"[_@ -]+|(?<!\d)\.|\.(?!\d)", path.stem.lower()):
            if sides := re.fullmatch(r"(\d{2,4})x(\d{2,4})", word):
                size = int(sides[1]), int(sides[2])
            elif word in SIZES:
                size = SIZES[word]
            elif rate := re.fullmatch(r"(\d{1,3}(?:\.\d+)?)(fps|hz|)", word):
                behind_size = before in SIZES or re.fullmatch(r"\d{2,4}x\d{2,4}", before)
                bare = word.isdecimal() and int(word) in _BARE_RATES and behind_size
                fps = Fraction(rate[1]) if rate[2] or bare else fps
            elif re.fullmatch(r"(yuv|nv|gray|uyvy|yuyv)\w+", word) and _is_format(word):
                pixels = word
            before = word
        return Layout(size, fps, pixels)

    def otherwise(self, told: Layout) -> Layout:
        """Return this layout with its unknown values taken from ``told``.

        The pixel format of ``told`` takes precedence.
        """
        return Layout(self.size or told.size, self.fps or told.fps, told.pixels or self.pixels)

    def __str__(self) -> str:
        size = "x".join(map(str, self.size)) if self.size else "?"
        rate = f"{float(self.fps):g}" if self.fps else "?"
        return f"{size} at {rate} pictures per second, {self.pixels or PIXELS}"


def is_raw(path: Path) -> bool:
    """Whether the suffix of a file says that it is a raw file."""
    return path.suffix.lower() == ".yuv"


def open_raw(path: Path, layout: Layout) -> Any:
    """Open a raw file. Return it as a container, as `files.media` does.

    Raises:
        OSError: the file can't be opened (see `files.media`).

    """
    if layout.size is None or layout.fps is None:
        unsaid = [word for word, said in (("size", layout.size), ("rate", layout.fps)) if said is None]
        size = "x".join(map(str, layout.size or SIZES["cif"]))
        name = path.with_stem(f"{path.stem}_25" if layout.size else f"{path.stem}_{size}_25").name
        keys = [] if layout.size else [f"encode.size={size}"]
        keys += [] if layout.fps else ["encode.fps=25"]
        remedy = f"add {' '.join(keys)}, or what else it was recorded with, or name it {name}"
        raise ClipError(str(path), f"a raw file does not say its pictures' {' and '.join(unsaid)}", remedy)
    pixels = layout.pixels or PIXELS
    if not _is_format(pixels):
        raise ClipError(
            str(path), f"there is no pixel format {pixels!r}", f"take {PIXELS}, yuv422p, yuv420p10le …"
        )
    if not RATES[0] <= layout.fps <= RATES[1]:
        problem = f"{layout.fps} pictures per second are not supported"
        raise ClipError(str(path), problem, f"rates go from {RATES[0]} to {RATES[1]}")
    width, height = layout.size
    each = _picture_bytes(path, layout, pixels)
    length = path.stat().st_size
    if length == 0 or length % each:
        problem = f"{length} bytes are not a whole number of pictures of {each} bytes ({layout})"
        raise ClipError(str(path), problem, "give the size and the pixel format that it was written with")
    options = {"video_size": f"{width}x{height}", "pixel_format": pixels, "framerate": str(layout.fps)}
    return files.media(path, form="rawvideo", options=options)


def _picture_bytes(path: Path, layout: Layout, pixels: str) -> int:
    """Return the number of bytes of a picture. The sides of its colour planes are rounded up, as in FFmpeg.

    Raises:
        ClipError: the pixel format has no such pictures.

    """
    assert layout.size is not None
    width, height = layout.size
    form = av.VideoFormat(pixels, width, height)
    parts = form.components
    if form.is_planar:
        each = sum(-(-part.bits // 8) * part.width * part.height for part in parts)
    elif width % 2 and (form.is_bit_stream or any(part.width != width for part in parts)):
        # Several samples share a byte or a group of bytes, and the last group of a line is padded.
        convert = (
            f"ffmpeg -f rawvideo -pixel_format {pixels} -video_size {width}x{height} -framerate {layout.fps} "
            f"-i {shlex.quote(str(path))} -c:v ffv1 film.mkv"
        )
        problem = f"pictures of {pixels} with an odd width ({width}x{height}) are not supported"
        raise ClipError(str(path), problem, f"convert the file: {convert}")
    else:
        each = width * height * form.padded_bits_per_pixel // 8
    if not each:
        problem = f"pictures of {width}x{height} in {pixels} are not supported"
        raise ClipError(str(path), problem, f"take sides from 16 samples on, and {PIXELS}, yuv422p …")
    return each


def _is_format(name: str) -> bool:
    try:
        av.VideoFormat(name, 16, 16)
    except ValueError:
        return False
    return True
