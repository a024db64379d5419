"""Single-rate sender traces, as EvalVid's `mp4trace` writes them.

A line contains the frame's number, type, size in bytes, number of packets, and time in seconds.
"""

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from steadycast.errors import UserError
from steadycast.media.clip import parse_fps
from steadycast.media.table import Kind

_COMMENT = ("#", "%", "//", ";")
_SEPARATOR = re.compile(r"[\s,;]+")
_TYPES = {"H", *Kind.__members__}
_LINE = "a line is: frame, type H, I, P or B, bytes, packets, time in seconds"
_MOST = (1 << 31) - 1
_RATES = tuple(map(Fraction, ("24000/1001", "24", "25", "30000/1001", "30", "50", "60000/1001", "60")))
_RATE_WITHIN = Fraction(1, 200)
"""Largest relative error of a frame rate that is measured from a trace's times.

The nearest of `_RATES` is used if it differs by at most this fraction. The error is due to times in whole milliseconds.
"""


class TraceError(UserError):
    """An error of a trace file that can't be used. `place` is ``file:line``."""


@dataclass(frozen=True)
class TracedFrame:
    """A frame of a sender trace. If a header (H) precedes the frame, its bytes and packets are included."""

    line: int
    kind: Kind
    size_bytes: int
    """Size of the frame, rounded up to whole bytes."""
    packets: int
    time_s: float
    """Time at which the frame is sent, in seconds."""


def text_of(path: Path) -> str:
    """Return the text of a trace file.

    Raises:
        TraceError: the file does not exist, can't be read, or is empty.

    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise TraceError(str(path), "there is no such file", "check the path") from error
    except OSError as error:
        raise TraceError(
            str(path), f"the file cannot be read ({error.strerror})", "check its rights"
        ) from error
    except UnicodeDecodeError as error:
        raise TraceError(
            str(path), "this is not a text file", 'name a trace, or use media = "clip"'
        ) from error
    if not text.strip():
        raise TraceError(str(path), "the file is empty", "name a trace with at least one frame")
    return text


def is_single_rate(text: str) -> bool:
    """Whether a trace is a single-rate trace.

    One of its first two lines must begin with a number and the type of a frame.
    """
    for _, fields in _lines(text)[:2]:
        if len(fields) >= 2 and _is_number(fields[0]) and fields[1].upper() in _TYPES:
            return True
        # A multi-rate table has a number without a frame type in this place, or a heading for the quantizer.
        if _is_number(fields[0]) or "q" in map(str.lower, fields):
            return False
    return False


def read_sender_trace(path: Path, text: str) -> list[TracedFrame]:
    """Return the frames of a single-rate trace. Blanks, tabs or commas separate its columns.

    Raises:
        TraceError: a line is damaged or missing.

    """
    frames: list[TracedFrame] = []
    header: TracedFrame | None = None
    before: tuple[int, float] | None = None
    for line, fields in _lines(text):
        place = f"{path}:{line}"
        # Skip the heading, which is all lines before the first line that begins with a number.
        if before is None and not _is_number(fields[0]):
            continue
        if len(fields) != 5:
            raise TraceError(place, f"{len(fields)} columns in place of 5", _LINE)
        letter = fields[1].upper()
        if letter not in _TYPES:
            raise TraceError(place, f"type {fields[1][:20]!r} is unknown", "types are H, I, P and B")
        number, packets = _count(place, fields[0], 0), _count(place, fields[3], 1)
        size, time = math.ceil(_number(place, fields[2])), float(_number(place, fields[4]))
        if size < packets:
            raise TraceError(place, f"{packets} packets carry {size} bytes", "each carries at least one byte")
        if before is not None:
            # The number must increase by one. Only the I frame after a header line has the same number as the header.
            if number != before[0] + 1 and not (header is not None and number == before[0]):
                raise TraceError(
                    place, f"frame {number} follows frame {before[0]}", "give a trace without a gap"
                )
            if time < before[1]:
                raise TraceError(place, f"{time:g} s follows {before[1]:g} s", "sort the trace by its times")
        before = number, time
        if letter == "H":
            if header is not None:
                raise TraceError(place, "two headers follow one another", "put each before its I frame")
            header = TracedFrame(line, Kind.I, size, packets, time)
            continue
        frame = TracedFrame(line, Kind[letter], size, packets, time)
        if header is not None:
            if frame.kind != Kind.I:
                raise TraceError(
                    f"{path}:{header.line}",
                    "a header is not followed by an I frame",
                    "put it before the I frame",
                )
            frame = replace(frame, size_bytes=size + header.size_bytes, packets=packets + header.packets)
            header = None
        frames.append(frame)
    if not frames:
        raise TraceError(str(path), "the trace holds no frame", _LINE)
    if header is not None:
        raise TraceError(f"{path}:{header.line}", "it ends in a header", "give a trace that is not cut")
    return frames


def rate_of(frames: list[TracedFrame], otherwise: str | int | float | Fraction, place: str) -> Fraction:
    """Return the number of frames per second, computed from the times of the trace.

    Returns ``otherwise`` if all times are equal.
    """
    times = [Fraction(frame.time_s).limit_denominator(10**9) for frame in frames]
    length = times[-1] - times[0]
    if length <= 0:
        return parse_fps(otherwise, Fraction(25), place)
    rate = (len(frames) - 1) / length
    nearest = min(_RATES, key=lambda each: abs(each - rate))
    return nearest if abs(nearest - rate) <= nearest * _RATE_WITHIN else parse_fps(rate, rate, place)


def _lines(text: str) -> list[tuple[int, list[str]]]:
    """Return the line number and the columns of each line that is neither empty nor a comment."""
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [
        (number, _SEPARATOR.split(line.strip(",;")))
        for number, line in stripped
        if line.strip(",;") and not line.startswith(_COMMENT)
    ]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word, re.ASCII) is not None


def _number(place: str, word: str) -> Fraction:
    if not _is_number(word) or len(word) > 40 or not 0 <= float(word) <= _MOST:
        raise TraceError(place, f"{word[:40]!r} is not a number from 0 to {_MOST}", _LINE)
    return Fraction(word)


def _count(place: str, word: str, least: int) -> int:
    value = _number(place, word)
    if value.denominator != 1 or value < least:
        raise TraceError(place, f"{word[:40]!r} is not a whole number from {least} on", _LINE)
    return int(value)
