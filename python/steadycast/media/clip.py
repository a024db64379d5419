"""Reads pictures from video files that PyAV can decode: scaled, resampled, and concatenated."""

import hashlib
import itertools
import math
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from io import BufferedReader
from pathlib import Path
from typing import Protocol

import av
import numpy as np

from steadycast import files, units
from steadycast.errors import UserError
from steadycast.media.reader import RATES, Reader, said
from steadycast.media.reader import ClipError as ClipError
from steadycast.media.reader import scaled as scaled
from steadycast.media.table import U8
from steadycast.media.yuv import SIZES, Layout, is_raw, open_raw

CIF = SIZES["cif"]

_MOST_SAMPLES = 1280 * 720
"""Maximum number of samples in a picture if the size is ``auto``."""
_RATE_OF_NONE = Fraction(25)
"""Pictures per second if the requested rate is ``auto`` and the clip has no frame rate."""

_MOST_BOXES = 10_000
"""Maximum number of boxes of an MP4 file that are searched for the file's index."""

_PLAYLISTS = (b"#EXTM3U", b"ffconcat version", b"<MPD")
"""Texts that occur near the beginning of playlists. The formats are HLS, FFmpeg's concat demuxer, and DASH."""
_PLAYLIST_HEAD = 4096
"""Number of bytes at the beginning of a file that are searched for `_PLAYLISTS`."""
_MOST_PLAYLIST = 1 << 20
"""Number of bytes after `_PLAYLIST_HEAD` that are searched for file names."""
_DEEPEST_PLAYLIST = 1
"""How deep playlists are followed. One level is enough for HLS.

A main playlist of HLS refers to one playlist for each quality.
"""

_READING = b"3"
"""Version of the conversion from a file to pictures. It is a part of the cache's key."""


@dataclass
class Pictures:
    """Pictures of one size at a constant frame rate."""

    width: int
    height: int
    fps: Fraction
    frames: Iterator[U8]
    """The samples of each picture in 4:2:0, plane after plane."""
    warnings: list[str] = field(default_factory=list)
    """Problems of the source. The list is complete when `frames` has ended."""
    failure: UserError | None = None
    """The error that ended `frames` early."""


class Source(Protocol):
    """A source from which a ladder can be encoded."""

    @property
    def label(self) -> str:
        """The name of the source in titles."""
        ...

    def identity(self) -> str:
        """Return a key that changes whenever the pictures may change."""
        ...

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Return the pictures from the beginning of the source. See `parse_size` and `parse_fps` for the arguments."""
        ...


def parse_size(size: str, own: tuple[int, int], place: str = "encode.size") -> tuple[int, int]:
    """Parse the size in which pictures are encoded or compared. Return a width and height that are even.

    ``size`` is a name in `SIZES`, a width and height such as ``640x480``, or a keyword. The keyword ``clip`` keeps the
    size of the clip. The keyword ``auto`` also scales a larger clip down to at most `_MOST_SAMPLES`.
    """
    if size in SIZES:
        return SIZES[size]
    if size == "clip":
        return _even(own)
    if size == "auto":
        return _bounded(own)
    return _even(parse_raw_size(size, place))


def _even(size: tuple[int, int]) -> tuple[int, int]:
    """Round both sides down to even numbers. The colour planes of 4:2:0 have half the width and height."""
    return size[0] // 2 * 2, size[1] // 2 * 2


def parse_raw_size(size: str, place: str = "encode.size") -> tuple[int, int]:
    """Parse the size of the pictures in a raw file. The sides may be odd.

    ``size`` is a name in `SIZES`, or a width and height such as ``640x480``.
    """
    if size in SIZES:
        return SIZES[size]
    width, cross, height = size.partition("x")
    if cross and width.isdecimal() and height.isdecimal():
        wide, high = units.whole(width, 16, 8192), units.whole(height, 16, 8192)
        if wide is not None and high is not None:
            return wide, high
        raise UserError(
            place, f"a picture of {size:.40} samples is not supported", "sides go from 16 to 8192"
        )
    raise UserError(place, f"{size!r:.40} is not a picture size", 'write "cif", "clip" or "640x480"')


def _bounded(own: tuple[int, int]) -> tuple[int, int]:
    """Scale a size down to at most `_MOST_SAMPLES`. The sides are even, and the aspect ratio is kept."""
    long, short = max(own), min(own)
    if long * short <= _MOST_SAMPLES:
        return parse_size("clip", own)
    longer = math.isqrt(_MOST_SAMPLES * long // short) // 2 * 2
    # Rounding the shorter side up may exceed the limit again. Then make the longer side smaller.
    while longer * (shorter := round(Fraction(longer * short, 2 * long)) * 2) > _MOST_SAMPLES:
        longer -= 2
    return (longer, shorter) if own[0] >= own[1] else (shorter, longer)


def _fraction(number: str | int | float | Fraction) -> Fraction:
    """Convert a number to a fraction. An extreme exponent ("1e99999999") would be expanded to all its digits."""
    if isinstance(number, str) and "/" not in number and not 1e-9 < abs(float(number)) < 1e9:
        return Fraction(float(number))
    return Fraction(number)


def parse_fps(fps: str | int | float | Fraction, own: Fraction, place: str = "encode.fps") -> Fraction:
    """Parse a frame rate. ``clip`` and ``auto`` return ``own``, and 29.97 returns the exact 30000/1001."""
    if fps in ("clip", "auto"):
        return own
    try:
        rate = _fraction(fps)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UserError(
            place, f"{fps!r:.40} is not a frame rate", 'write a number such as 25, or "clip"'
        ) from None
    if not RATES[0] <= rate <= RATES[1]:
        what = f"{fps} frames per second are not supported"
        raise UserError(place, what, f"rates go from {RATES[0]} to {RATES[1]}")
    return _tidy(rate)


def own_rate(reader: Reader, fps: str | int | float | Fraction) -> Fraction:
    """Return the frame rate that ``fps`` requests. ``clip`` and ``auto`` request the source's own rate."""
    rate = reader.facts.rate
    if fps == "auto" and rate is None:
        return _RATE_OF_NONE
    if fps != "clip" or rate is not None:
        return parse_fps(fps, Fraction(0) if rate is None else _tidy(rate))
    told = reader.facts.told_rate
    problem = "it has no frame rate" if told is None else f"its frame rate is {told}"
    remedy = f"take encode.fps 25, or another rate from {RATES[0]} to {RATES[1]}"
    raise ClipError(reader.name, problem, remedy)


def _tidy(rate: Fraction) -> Fraction:
    ntsc = Fraction(round(rate * 1001), 1001)
    if rate.denominator != 1 and ntsc.numerator % 1000 == 0 and abs(ntsc - rate) < Fraction(1, 100):
        return ntsc
    return rate.limit_denominator(1000)


@dataclass(frozen=True)
class Clip:
    """Video files that are played one after the other."""

    paths: tuple[Path, ...]
    pixels: str | None = None
    """FFmpeg's name for the pixel format of the raw files.

    If it is `None`, the format follows from each file's name. The default is 4:2:0.
    """
    seconds: int | None = None
    """The length to read, in seconds. `None` reads everything."""

    @staticmethod
    def of(paths: str | Path | Sequence[str | Path], pixels: str | None = None) -> "Clip":
        """Return a clip of these files. Raises an error if there are none."""
        several = [paths] if isinstance(paths, str | Path) else list(paths)
        if not several:
            raise ClipError("clip", "the list of clips is empty", "name at least one video file")
        return Clip(tuple(Path(path) for path in several), pixels)

    def beginning(self, seconds: int) -> "Clip":
        """Return a clip that ends after ``seconds``.

        A shorter clip is returned unchanged, and so is a clip that contains a raw file.
        """
        length = Fraction(0)
        for path in self.paths:
            if is_raw(path):
                return self
            with opened(path, Layout()) as reader:
                length += reader.length or 0
        return replace(self, seconds=seconds) if length > seconds else self

    @property
    def label(self) -> str:
        """The names of the files."""
        names = [path.name for path in self.paths]
        return " + ".join(names) if len(names) <= 3 else f"{names[0]} + … + {names[-1]} ({len(names)} clips)"

    def identity(self) -> str:
        """Return a hash of the files' contents. It also depends on the pixel format of raw files."""
        digest = hashlib.sha256(_READING)
        if self.seconds is not None:
            digest.update(f"{self.seconds} s".encode())
        for path in self.paths:
            if is_raw(path):
                digest.update(f"{Layout.named(path)} {self.pixels}".encode())
            for each in (path, *_parts(path)):
                with _bytes_of(each) as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Return the pictures of all files. ``clip`` and ``auto`` refer to the first file's size and rate.

        If the size is one of these two keywords, a later file gets black borders if its aspect ratio differs. A raw
        file whose name has no size or rate is read with the size and rate of the first file.
        """
        told = Layout(
            None if size in ("clip", "auto") else parse_raw_size(size),
            None if fps in ("clip", "auto") else parse_fps(fps, Fraction(25)),
            self.pixels,
        )
        with opened(self.paths[0], told) as reader:
            own = reader.facts.width, reader.facts.height
            width, height = parse_size(size, own)
            rate = own_rate(reader, fps)
            changed = list(_changed(reader, (width, height), size, fps))
        result = Pictures(width, height, rate, iter(()), changed)
        result.frames = self._frames(result, told, size, fps)
        if self.seconds is not None:
            result.warnings.append(
                f"{self.label}: the first {self.seconds} s are encoded, since no more is sent"
            )
            result.frames = itertools.islice(result.frames, math.ceil(self.seconds * rate))
        return result

    def _frames(
        self, result: Pictures, told: Layout, size: str, fps: str | int | float | Fraction
    ) -> Iterator[U8]:
        shown = (result.width, result.height)
        for path in self.paths:
            with opened(path, told) as reader:
                own = reader.facts.width, reader.facts.height
                inner = _fitted(own, shown) if size in ("clip", "auto") else shown
                timed = reader.pictures(*inner)
                pictures = resampled(timed, result.fps, reader.length)
                if path != self.paths[0]:
                    _add(result.warnings, _changed(reader, shown, size, fps, result.fps))
                # Add the reader's warnings already now, because the caller may not read all pictures.
                _add(result.warnings, reader.warnings)
                try:
                    yield from (
                        pictures if inner == shown else (_bordered(each, inner, shown) for each in pictures)
                    )
                finally:
                    _add(result.warnings, reader.warnings)
                    result.failure = reader.failure


def _add(warnings: list[str], more: Iterable[str]) -> None:
    warnings += [said for said in more if said not in warnings]


def _fitted(own: tuple[int, int], shown: tuple[int, int]) -> tuple[int, int]:
    """Return the largest size with even sides and the aspect ratio of ``own`` that fits into ``shown``."""
    if not _distorts(own, shown):
        return shown
    scale = min(Fraction(shown[0], own[0]), Fraction(shown[1], own[1]))
    width, height = (max(round(side * scale / 2), 1) * 2 for side in own)
    return width, height


def _distorts(own: tuple[int, int], shown: tuple[int, int]) -> bool:
    """Return whether scaling changes the aspect ratio.

    The small change from rounding both sides to even numbers is ignored.
    """
    return abs(own[0] * shown[1] - own[1] * shown[0]) > 2 * (max(own) + max(shown))


def _bordered(samples: U8, inner: tuple[int, int], outer: tuple[int, int]) -> U8:
    """Place a picture of size ``inner`` in the middle of a black picture of size ``outer``. Both are 4:2:0."""
    planes, at = [], 0
    for divisor, black in ((1, 16), (2, 128), (2, 128)):
        width, height = inner[0] // divisor, inner[1] // divisor
        plane = np.full((outer[1] // divisor, outer[0] // divisor), black, dtype=np.uint8)
        left, top = ((out - side) // 4 * 2 // divisor for out, side in zip(outer, inner, strict=True))
        part = samples[at : at + width * height].reshape(height, width)
        plane[top : top + height, left : left + width] = part
        planes.append(plane.reshape(-1))
        at += width * height
    return np.concatenate(planes)


def _changed(
    reader: Reader,
    shown: tuple[int, int],
    size: str,
    fps: str | int | float | Fraction,
    after: Fraction | None = None,
) -> Iterator[str]:
    """Yield a sentence for each unrequested difference between the clip and its encoded pictures.

    ``after`` is the frame rate of the first clip if this clip is not the first.
    """
    own, name = (reader.facts.width, reader.facts.height), reader.name.rpartition("/")[2]
    how = f"{name} is {own[0]}x{own[1]} and is encoded in {shown[0]}x{shown[1]}"
    own_size = size in ("clip", "auto")
    asked = own if own_size else parse_raw_size(size)
    if after is not None and own_size and shown != own:
        yield f"{how}, the size of the first clip{', with black borders' if _distorts(own, shown) else ''}"
    elif size == "auto" and own[0] * own[1] > _MOST_SAMPLES:
        yield f'{how}; encode.size "clip" keeps its size, and takes longer'
    elif shown != asked:
        as_shown = f"{name} is encoded in {shown[0]}x{shown[1]}"
        yield f"{as_shown}, not in {asked[0]}x{asked[1]}, because both sides have to be even"
    if not own_size and _distorts(own, shown):
        yield f'{how}, which changes its aspect ratio; encode.size "auto" keeps it'
    rate = reader.facts.rate
    if after is not None and rate is not None and fps in ("clip", "auto") and abs(rate - after) > after / 100:
        yield f"{name} has {float(rate):.4g} frames per second and is shown at {float(after):.4g}, as the first clip"
    if fps == "auto" and rate is None and after is None:
        told = reader.facts.told_rate
        has = (
            "names no frame rate"
            if told is None
            else f"has {float(told):.4g} frames per second, which is not within {RATES[0]} to {RATES[1]},"
        )
        yield f"{name} {has} and is shown at {_RATE_OF_NONE} frames per second; encode.fps names another"


def resampled(
    timed: Iterator[tuple[Fraction, U8]], fps: Fraction, length: Fraction | None = None
) -> Iterator[U8]:
    """Resample to a constant frame rate. A picture is shown until the next picture is due, as in a player.

    There is one exception: an output frame shows the next picture up to half a frame interval early, if the next
    picture's time stamp is nearer to the frame's time than the time stamp of the picture before. If the source already
    has the rate ``fps``, each of its pictures is therefore shown once, even if the time stamps have jitter.
    ``length`` is the source's length in seconds.
    """
    held: tuple[Fraction, U8] | None = None
    first = longest = Fraction(0)
    half = Fraction(1, 2) / fps
    count = due = 0
    for time, samples in timed:
        count += 1
        if held is None:
            first = time
        else:
            longest = max(longest, time - held[0])
            while (slot := Fraction(due) / fps) <= (held[0] + time) / 2 or slot <= time - half:
                yield held[1]
                due += 1
        held = (time, samples)
    if held is not None:
        # If the length is not known, show the last picture for the mean duration of all other pictures.
        last = (held[0] - first) / max(1, count - 1)
        if length is not None and length - held[0] > half:
            # Show the last picture until the end of the source, but not longer than the longest other picture.
            last = min(length - held[0], longest)
        # Yield at least one picture, even if the clip has only one.
        while due == 0 or Fraction(due) / fps < held[0] + last - half:
            yield held[1]
            due += 1


def _bytes_of(path: Path) -> BufferedReader:
    """Open a regular file that is not empty.

    Pipes and devices are refused, because they can be read only once or never end.
    """
    try:
        facts = path.stat()
        if stat.S_ISREG(facts.st_mode) and facts.st_size > 0:
            return path.open("rb")
    except FileNotFoundError as error:
        raise ClipError(str(path), "there is no such file", "check the path") from error
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        raise ClipError(str(path), problem, "check its name and its rights") from error
    if stat.S_ISREG(facts.st_mode):
        raise ClipError(str(path), "the file is empty", "wait until it is written, or name another one")
    raise ClipError(
        str(path), "this is no file", "name one; of a pipe, `steadycast send -` takes the pictures"
    )


def _parts(path: Path, nesting: int = 0) -> Iterator[Path]:
    """Yield the files that a playlist refers to.

    They are needed because they can change while the text of the playlist stays the same.
    """
    with _bytes_of(path) as file:
        head = file.read(_PLAYLIST_HEAD)
        if not any(magic in head for magic in _PLAYLISTS):
            return
        text = (head + file.read(_MOST_PLAYLIST)).decode(errors="replace")
    # A file name is alone on its line (HLS), in quotation marks, or after the keyword `file` (concat).
    names = re.split(r"[\"'\n]|(?m:^file +)", text)
    for part in dict.fromkeys(path.parent / name.strip() for name in names if name.strip()):
        with suppress(OSError, ValueError):
            if part.is_file() and part.stat().st_size > 0 and part != path:
                yield part
                if nesting < _DEEPEST_PLAYLIST:
                    yield from _parts(part, nesting + 1)


def _lacks_index(path: Path) -> bool:
    """Whether a file begins as MP4 or QuickTime but has no box ``moov``.

    See ISO/IEC 14496-12, sections 4.2 and 8.2.1.
    """
    end, at = path.stat().st_size, 0
    kinds: list[bytes] = []
    with path.open("rb") as file:
        while at + 8 <= end and len(kinds) < _MOST_BOXES:
            file.seek(at)
            size, kind = struct.unpack(">I4s", file.read(8))
            kinds.append(kind)
            if size == 1:
                size = int.from_bytes(file.read(8), "big")
            # A size of 0 means that the box extends to the end of the file.
            at = at + size if size >= 8 else end
    return kinds[:1] == [b"ftyp"] and b"moov" not in kinds


def opened(path: Path, told: Layout) -> Reader:
    """Open a file. ``told`` is the layout of a raw file whose name does not contain its layout."""
    _bytes_of(path).close()
    layout = Layout.named(path).otherwise(told)
    try:
        container = open_raw(path, layout) if is_raw(path) else files.media(path)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        if _lacks_index(path):
            raise ClipError(
                str(path),
                "its index (moov), which an MP4 file has at its end, is missing: the file was cut off",
                "copy the whole file; a recording that was interrupted is read if it is Matroska or a fragmented MP4",
            ) from error
        raise ClipError(
            str(path),
            f"not a video file, or damaged at its head ({said(error)})",
            "play it with another program to check",
        ) from error
    reader = Reader(container, str(path))
    if is_raw(path) and layout != Layout.named(path):
        reader.warnings.append(
            f"{path.name} is read as {layout}: neither the file nor its name says all of it"
        )
    return reader
