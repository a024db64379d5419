"""Pictures from video files: any that PyAV reads, scaled and resampled, one file after the other."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import av
import numpy as np

from steadycast import files
from steadycast.errors import UserError
from steadycast.media.table import U8

CIF = (352, 288)

_LONGEST_PAUSE_S = 5
"""A longer pause between two frames is taken for a damaged time stamp: it would be filled with copies."""


class ClipError(UserError):
    """A clip that cannot be used."""


@dataclass
class Pictures:
    """Pictures of one size at a constant frame rate."""

    width: int
    height: int
    fps: Fraction
    frames: Iterator[U8]
    """Samples of each picture, 4:2:0, plane after plane."""
    warnings: list[str] = field(default_factory=list)
    """What was wrong with the source; complete when `frames` has ended."""


class Source(Protocol):
    """What a ladder can be encoded from."""

    @property
    def label(self) -> str:
        """Its name in titles; says so when it is synthetic."""
        ...

    def identity(self) -> str:
        """Differs when the pictures could differ."""
        ...

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Pictures from the start; see `parse_size` and `parse_fps`."""
        ...


def parse_size(size: str, own: tuple[int, int], place: str = "encode.size") -> tuple[int, int]:
    """Width and height of ``cif``, ``clip`` (the clip's own) or ``640x480``; odd ones are cut to even."""
    if size == "cif":
        return CIF
    if size == "clip":
        return own[0] // 2 * 2, own[1] // 2 * 2
    width, cross, height = size.partition("x")
    if cross and width.isdecimal() and height.isdecimal():
        wide, high = int(width), int(height)
        if 16 <= wide <= 4096 and 16 <= high <= 4096:
            return wide // 2 * 2, high // 2 * 2
        raise UserError(place, f"a picture of {size} samples is not supported", "sides go from 16 to 4096")
    raise UserError(place, f"{size!r} is not a picture size", 'write "cif", "clip" or "640x480"')


def parse_fps(fps: str | int | float | Fraction, own: Fraction, place: str = "encode.fps") -> Fraction:
    """Frames per second; ``clip`` is the clip's own. Rates like 29.97 become the fraction they stand for."""
    if fps == "clip":
        return own
    try:
        rate = Fraction(fps)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UserError(
            place, f"{fps!r} is not a frame rate", 'write a number such as 25, or "clip"'
        ) from None
    if not 1 <= rate <= 240:
        raise UserError(place, f"{fps} frames per second are not supported", "rates go from 1 to 240")
    return _tidy(rate)


def _tidy(rate: Fraction) -> Fraction:
    ntsc = Fraction(round(rate * 1001), 1001)
    if rate.denominator != 1 and ntsc.numerator % 1000 == 0 and abs(ntsc - rate) < Fraction(1, 100):
        return ntsc
    return rate.limit_denominator(1000)


@dataclass(frozen=True)
class Clip:
    """Video files played one after the other."""

    paths: tuple[Path, ...]

    @staticmethod
    def of(paths: str | Path | Sequence[str | Path]) -> "Clip":
        """One file or several; each must be there."""
        several = [paths] if isinstance(paths, str | Path) else list(paths)
        if not several:
            raise ClipError("clip", "the list of clips is empty", "name at least one video file")
        return Clip(tuple(Path(path) for path in several))

    @property
    def label(self) -> str:
        """The files' names."""
        names = [path.name for path in self.paths]
        return " + ".join(names) if len(names) <= 3 else f"{names[0]} + … + {names[-1]} ({len(names)} clips)"

    def identity(self) -> str:
        """Hash of the files' bytes."""
        digest = hashlib.sha256()
        for path in self.paths:
            try:
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise _unreadable(path, error) from error
        return digest.hexdigest()

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Pictures of all files; where ``clip`` stands for size or rate, the first file's count for all."""
        width, height, own_rate = _facts(self.paths[0])
        width, height = parse_size(size, (width, height))
        rate = parse_fps(fps, own_rate)
        result = Pictures(width, height, rate, iter(()))
        result.frames = self._frames(result, keep=fps == "clip")
        return result

    def _frames(self, result: Pictures, *, keep: bool) -> Iterator[U8]:
        for path in self.paths:
            timed = _decode(path, result)
            # The first file's own rate keeps its frames one by one, whatever their time stamps say.
            as_they_are = keep and (path == self.paths[0] or _facts(path)[2] == result.fps)
            yield from (samples for _, samples in timed) if as_they_are else resampled(timed, result.fps)


def resampled(timed: Iterator[tuple[Fraction, U8]], fps: Fraction) -> Iterator[U8]:
    """For each instant of a constant frame rate, the picture whose time is nearest (of two, the earlier)."""
    held: tuple[Fraction, U8] | None = None
    interval = Fraction(0)
    due = 0
    for time, samples in timed:
        if held is not None:
            interval = time - held[0]
            while Fraction(due) / fps - held[0] <= time - Fraction(due) / fps:
                yield held[1]
                due += 1
        held = (time, samples)
    if held is not None:
        # The last picture lasts as long as the one before it did; a clip of one picture is that picture.
        while due == 0 or Fraction(due) / fps < held[0] + interval - Fraction(1, 2) / fps:
            yield held[1]
            due += 1


def scaled(frame: av.VideoFrame, width: int, height: int) -> U8:
    """Scale a frame; samples in 4:2:0 at this size, plane after plane."""
    same = frame.reformat(width=width, height=height, format="yuv420p", interpolation="BICUBIC")
    return np.ascontiguousarray(same.to_ndarray(), dtype=np.uint8).reshape(-1)


def _unreadable(path: Path, error: OSError) -> ClipError:
    if isinstance(error, FileNotFoundError):
        return ClipError(str(path), "there is no such file", "check the path")
    return ClipError(
        str(path), f"the file cannot be read ({error.strerror})", "check its name and its rights"
    )


def _said(error: Exception) -> str:
    """Take what FFmpeg says of an error, without its number and its log."""
    return getattr(error, "strerror", None) or str(error)


def _open(path: Path) -> av.container.InputContainer:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        container: av.container.InputContainer = files.media(path)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise ClipError(
            str(path),
            f"not a video file, or damaged at its head ({_said(error)})",
            "play it with another program to check",
        ) from error
    if not container.streams.video:
        container.close()
        raise ClipError(str(path), "the file holds no video", "name a file with pictures")
    return container


def _facts(path: Path) -> tuple[int, int, Fraction]:
    with _open(path) as container:
        stream = container.streams.video[0]
        width, height = stream.codec_context.width, stream.codec_context.height
        rate = stream.average_rate or stream.guessed_rate or stream.base_rate
    if not (16 <= width <= 8192 and 16 <= height <= 8192):
        raise ClipError(str(path), f"its pictures are {width}x{height}", "sides go from 16 to 8192 samples")
    if not rate or not 1 <= rate <= 240:
        raise ClipError(str(path), f"its frame rate is {rate}", "give a rate in encode.fps, or another clip")
    return width, height, _tidy(Fraction(rate))


def _decode(path: Path, result: Pictures) -> Iterator[tuple[Fraction, U8]]:
    """Time and samples of each picture; what is damaged is left out and said in the warnings."""
    with _open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "SLICE"
        step = 1 / Fraction(stream.average_rate or stream.guessed_rate or result.fps)
        expected = _duration(container, stream)
        damage = _Damage()
        start: Fraction | None = None
        time = Fraction(0)
        count = 0
        for frame in _frames_of(container, stream, damage):
            try:
                samples = scaled(frame, result.width, result.height)
            except (av.error.FFmpegError, ValueError) as error:
                damage.note(_said(error))
                continue
            if frame.is_corrupt:
                damage.note("pictures marked as corrupt")
            shown = (
                None
                if frame.pts is None or frame.time_base is None
                else Fraction(frame.pts) * frame.time_base
            )
            if shown is not None and start is None:
                start = shown
            if count:
                since = step if shown is None or start is None else shown - start - time
                if not 0 < since <= _LONGEST_PAUSE_S:
                    damage.note("time stamps that jump")
                    since = step
                    start = None if shown is None else shown - time - step
                time += since
            count += 1
            yield time, samples
        if count == 0:
            raise ClipError(str(path), "no picture could be decoded", "play it with another program to check")
        if expected is not None and time + step < expected - step * 3 / 2:
            damage.note(f"the pictures end at {float(time + step):.2f} s of {float(expected):.2f} s")
        if damage.notes:
            result.warnings.append(f"{path.name} is damaged: {'; '.join(damage.notes)}")


def _duration(container: av.container.InputContainer, stream: av.VideoStream) -> Fraction | None:
    """How long the pictures should last, in seconds; `None` where only a longer sound could be meant."""
    if stream.duration and stream.time_base:
        return stream.duration * Fraction(stream.time_base)
    told = {name.upper(): value for name, value in stream.metadata.items()}.get("DURATION", "")  # Matroska
    parts = told.split(":")
    if len(parts) == 3 and all(part.replace(".", "", 1).isdecimal() for part in parts):
        hours, minutes, seconds = map(Fraction, parts)
        return (hours * 60 + minutes) * 60 + seconds
    alone = len(container.streams) == 1
    return Fraction(container.duration, 1_000_000) if alone and container.duration else None


class _Damage:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, what: str) -> None:
        if what not in self.notes and len(self.notes) < 5:
            self.notes.append(what)


def _frames_of(
    container: av.container.InputContainer, stream: av.VideoStream, damage: _Damage
) -> Iterator[av.VideoFrame]:
    packets = container.demux(stream)
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture(local=False) as log:
            while True:
                try:
                    packet = next(packets, None)
                except (av.error.FFmpegError, OSError) as error:
                    damage.note(f"it ends in an error ({_said(error)})")
                    packet = None
                try:
                    frames = stream.codec_context.decode(
                        packet if packet is not None and packet.size else None
                    )
                except EOFError:
                    frames = []
                except (av.error.FFmpegError, ValueError) as error:
                    damage.note(_said(error))
                    frames = []
                for _, _, message in log:
                    damage.note(" ".join(message.split()))
                log.clear()
                yield from frames
                if packet is None or not packet.size:
                    break
    finally:
        av.logging.set_level(level)
