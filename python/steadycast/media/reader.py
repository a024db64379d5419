"""Reads pictures of a file, a pipe or a camera, and converts them: upright, with square samples, in video range.

Rotation, aspect ratio and colours are applied. A warning says so if one of them can't be applied.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
import struct
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.sidedata.sidedata import SideDataContainer

from steadycast.errors import UserError
from steadycast.media.table import U8

RATES = (1, 240)
"""Supported frame rates, in pictures per second."""
_SIDES = (16, 8192)
_LEAST_MEAN_RATE = Fraction(9, 10)
"""A frame rate is variable if the mean rate is below this fraction of it."""
_LONGEST_PAUSE_S = 5
"""If the gap between two time stamps is longer than this time in seconds, it counts as damage.

A gap is accepted if it ends within the length that the source claims to have.
"""
_TRIES = 25
"""Reading ends after this number of consecutive errors because of invalid data. Any other error ends it at once."""
_DEFAULT, _ATTACHED = 0x1, 0x400
"""FFmpeg's flags AV_DISPOSITION_DEFAULT and AV_DISPOSITION_ATTACHED_PIC (cover art)."""
_BESIDE = 0x800 | 0x80000 | 0x100000
"""FFmpeg's flags AV_DISPOSITION_TIMED_THUMBNAILS, AV_DISPOSITION_DEPENDENT and AV_DISPOSITION_STILL_IMAGE."""
_WITH_AN_END = ("matroska,webm", "flv", "live_flv")
"""Containers whose duration field is the time at which the file ends, not its length."""
_WITHOUT_LENGTHS = ("mpegts", "mpeg")
"""Containers that do not contain the length of each track.

If the audio is longer than the video, the file's length is too long.
"""
_LAST_START = 4
"""FFmpeg looks for the first picture of a numbered sequence from 0 up to this number."""
_PICTURES_OF_A_PHOTO = 2
"""Maximum number of pictures in a photo: a camera may add a preview, a gain map or a second view."""
_WEBP_FLAGS, _WEBP_ANIMATION = 20, 0x02
"""Offset of a WebP file's flags, and the flag of an animation (RFC 9649, section 2.7)."""
_ROUNDING_S = Fraction(1, 10_000)
_FULL = 2
"""FFmpeg's AVCOL_RANGE_JPEG, which means samples from 0 to 255."""
_MATRICES = {1: "bt709", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020", 10: "bt2020"}
"""FFmpeg's names of the YCbCr matrices. The keys are codes of ITU-T H.273, table 4."""
_UNSAID = (0, 2, 3)
"""Codes of ITU-T H.273 for RGB (0) and for matrices that are not specified (2 and 3)."""
_ROUNDED_ZERO = 64
"""An element of a display matrix counts as 0 if its absolute value is not above this, in units of 1/65536."""
_OPAQUE = "transparent parts are sent opaque, in the colours that are stored there"
_OPAQUE_ALPHA = 255
_HDR = {16: "PQ", 18: "HLG"}
"""Names of the transfer functions of SMPTE ST 2084 and ARIB STD-B67. The keys are codes of ITU-T H.273, table 3."""
_TURNS = {
    (1, 0, 0, 1): (),
    (0, 1, -1, 0): (("transpose", "clock"),),
    (0, -1, 1, 0): (("transpose", "cclock"),),
    (-1, 0, 0, -1): (("hflip", ""), ("vflip", "")),
    (-1, 0, 0, 1): (("hflip", ""),),
    (1, 0, 0, -1): (("vflip", ""),),
    (0, 1, 1, 0): (("transpose", "cclock_flip"),),
    (0, -1, -1, 0): (("transpose", "clock_flip"),),
}
"""FFmpeg's filters that apply a display matrix (ISO/IEC 14496-12, section 6.2.2).

The keys are the signs of the matrix elements a, b, c and d.
"""

Turn = tuple[tuple[str, str], ...]


class ClipError(UserError):
    """Raised for a clip that cannot be used."""


def said(error: BaseException) -> str:
    """Return FFmpeg's message of an error. The error's number and log are left out."""
    return getattr(error, "strerror", None) or str(error)


def _picture(form: str) -> str | None:
    """Return the image format if ``form`` is a demuxer for single pictures, such as png_pipe or jpeg_pipe.

    Returns `None` for a demuxer of films.
    """
    kind, pipe, _ = form.partition("_pipe")
    return kind if pipe else "image" if form == "image2" else None


def film_of_pictures(name: str | Path) -> str:
    """Return the remedy for a sequence of pictures. ``name`` is the name of one picture, or a pattern for all."""
    path = Path(name)
    digits = re.search(r"%\d*d|\d+$", path.stem)
    if digits is None:
        numbered, start = path.name, ""
    else:
        before, after = path.stem[: digits.start()], path.stem[digits.end() :] + path.suffix
        number = digits[0] if digits[0].startswith("%") else f"%0{len(digits[0])}d"
        numbered, start = before + number + after, _first_number(path.parent, before, after)
    pattern = shlex.quote(str(path.with_name(numbered)))
    return (
        f"make a film of numbered pictures first: ffmpeg -framerate 25 {start}-i {pattern} -c:v ffv1 film.mkv"
    )


def _first_number(folder: Path, before: str, after: str) -> str:
    """Return FFmpeg's option for the first number of a sequence, if FFmpeg does not find this number itself."""
    name = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    found = [name.fullmatch(each.name) for each in folder.iterdir()] if folder.is_dir() else []
    first = min((int(each[1]) for each in found if each), default=0)
    return f"-start_number {first} " if first > _LAST_START else ""


def _no_film(container: Any, name: str, kind: str) -> ClipError:
    """Return the error for a file that FFmpeg opens as a picture of the format ``kind``."""
    file = shlex.quote(name)
    if kind == "webp" and _is_animated_webp(name):
        save = f'from PIL import Image; Image.open({json.dumps(name)}).save("film.png", save_all=True)'
        remedy = f"convert it to animated PNG, for example with Pillow: python3 -c {shlex.quote(save)}"
        return ClipError(name, "the file is an animated WebP, which FFmpeg does not read", remedy)
    if kind == "jpeg" and _holds_more_than_a_photo(container):
        remedy = f"write them into a container: ffmpeg -f mjpeg -framerate 25 -i {file} -c copy film.mkv"
        return ClipError(name, "the file holds JPEG pictures without times (Motion JPEG)", remedy)
    return ClipError(
        name, f"the file is a picture ({kind}), not a film", f"name a film, or {film_of_pictures(name)}"
    )


def _holds_more_than_a_photo(container: Any) -> bool:
    count = 0
    with contextlib.suppress(av.FFmpegError):
        for packet in container.demux(video=0):
            count += packet.size > 0
            if count > _PICTURES_OF_A_PHOTO:
                return True
    return False


def _is_animated_webp(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            head = file.read(21)
    except OSError:
        return False
    return head[12:16] == b"VP8X" and len(head) > _WEBP_FLAGS and bool(head[_WEBP_FLAGS] & _WEBP_ANIMATION)


def scaled(frame: av.VideoFrame, width: int, height: int) -> U8:
    """Scale a frame. Return its samples in 4:2:0, plane after plane."""
    return _samples(frame.reformat(width=width, height=height, format="yuv420p", interpolation="BICUBIC"))


def _samples(frame: av.VideoFrame) -> U8:
    return np.ascontiguousarray(frame.to_ndarray(), dtype=np.uint8).reshape(-1)


def assumed_matrix(width: int, height: int) -> str:
    """Return the YCbCr matrix that players assume for pictures that do not specify one."""
    return "bt709" if width >= 1280 or height > 576 else "bt601"


@dataclass(frozen=True)
class Facts:
    """The metadata of a source."""

    width: int
    """Width of the picture after it was turned upright and its samples were made square."""
    height: int
    rate: Fraction | None
    """Pictures per second, or `None` if the source gives no rate or one that is not within `RATES`."""
    told_rate: Fraction | None
    """Pictures per second as the source gives them, without a check."""
    warnings: tuple[str, ...]
    """Sentences about metadata that is not applied, and about a conversion to square samples."""

    @staticmethod
    def of(stream: av.VideoStream, first: av.VideoFrame, tracks: int) -> Facts:
        """Read the metadata of a stream and of its first picture."""
        warnings = [*_untouched(stream, first)]
        width, height = first.width, first.height
        if tracks > 1:
            which = f"track {stream.index} ({width}x{height})"
            warnings.append(f"it holds {tracks} films; {which} is taken, as players do")
        aspect = Fraction(stream.sample_aspect_ratio or 1)
        if not Fraction(1, 8) <= aspect <= 8:
            warnings.append(f"its samples are said to be {aspect} as wide as high, and are taken for square")
            aspect = Fraction(1)
        # Enlarge the pictures to make the samples square, so that no sample is lost. All codecs accept sides that are
        # multiples of 4.
        if aspect > 1:
            width = round(width * aspect / 4) * 4
        elif aspect < 1:
            height = round(height / aspect / 4) * 4
        if aspect != 1:
            ratio = f"{aspect.numerator}:{aspect.denominator}"
            was = f"its pictures are {first.width}x{first.height} with samples of {ratio}"
            warnings.append(f"{was}, and are taken as {width}x{height} with square samples")
        if any(name == "transpose" for name, _ in _turn(first) or ()):
            width, height = height, width
        told = _told_rate(stream, first)
        rate = told if told is not None and RATES[0] <= told <= RATES[1] else None
        return Facts(width, height, rate, told, tuple(warnings))


def _told_rate(stream: av.VideoStream, first: av.VideoFrame) -> Fraction | None:
    average, guessed = stream.average_rate, stream.guessed_rate
    if average and guessed and average < guessed <= 60 and not first.interlaced_frame:
        # If the time stamps are uneven, the mean rate may differ from the rate of each part of the source. Use the
        # guessed rate then.
        average = guessed
    rate = average or guessed or stream.base_rate
    return Fraction(rate) if rate else None


def _untouched(stream: av.VideoStream, first: av.VideoFrame) -> Iterator[str]:
    """Yield warnings about metadata that is not applied."""
    context = stream.codec_context
    if (kind := _HDR.get(int(context.color_trc))) is not None:
        yield f"its pictures are HDR ({kind}) and leave as if they were not: they will look flat"
    colours = int(first.colorspace)
    if colours not in _MATRICES and colours not in _UNSAID:
        yield f"its colours are coded in a way that is not converted (matrix {colours} of ITU-T H.273)"
    if _turn(first) is None:
        yield "its pictures are to be turned by less than a right angle, and are not"
    # In WebM, transparency is in a second stream, which FFmpeg's own decoders do not read. So look at the metadata.
    if ("ALPHA_MODE", "1") in ((name.upper(), value) for name, value in stream.metadata.items()):
        yield f"it has an alpha channel, and {_OPAQUE}"


def _is_transparent(frame: av.VideoFrame) -> bool:
    """Return whether any sample is transparent. Pictures that have an alpha channel may still be opaque."""
    if not any(component.is_alpha for component in frame.format.components):
        return False
    return int(frame.reformat(format="rgba").to_ndarray()[..., 3].min()) < _OPAQUE_ALPHA


def _turn(frame: av.VideoFrame) -> Turn | None:
    """Return the filters that turn a picture upright, or `None` if the angle is not a multiple of 90°."""
    # Do not use `frame.side_data`. It keeps the container in the frame, which the container refers to, so that pictures
    # would stay in memory until Python's garbage collector searches for cycles.
    told: Any = SideDataContainer(frame)  # type: ignore[call-arg]  # PyAV's stubs lack its argument
    try:
        data = bytes(told["DISPLAYMATRIX"])
    except KeyError:
        return ()
    a, b, _, c, d = struct.unpack_from("=5i", data)
    signs = [0 if abs(value) <= _ROUNDED_ZERO else 1 if value > 0 else -1 for value in (a, b, c, d)]
    return _TURNS.get((signs[0], signs[1], signs[2], signs[3]))


def _films(container: Any) -> list[Any]:
    """Return the video tracks, sorted as FFmpeg's players prefer them.

    Default tracks come first, then larger tracks. Thumbnails and still pictures come last. Cover art is left out.
    """

    def order(stream: Any) -> tuple[bool, bool, int]:
        kind = int(stream.disposition)
        return bool(kind & _BESIDE), not kind & _DEFAULT, -(stream.width or 0) * (stream.height or 0)

    return sorted(
        (each for each in container.streams.video if not int(each.disposition) & _ATTACHED), key=order
    )


class Reader:
    """Reads the pictures of the first film in an open container. Pictures that can't be decoded are skipped.

    Args:
        container: the result of `av.open`.
        name: the source's name in messages.
        patience: the source counts as permanently damaged after this number of packets that can't be decoded, without a
            picture between them. Then reading ends with an error. Without it, a source is read to its end.

    """

    def __init__(self, container: Any, name: str, patience: int | None = None) -> None:
        self._container, self.name, self._patience = container, name, patience
        if (kind := _picture(container.format.name)) is not None:
            raise _no_film(container, name, kind)
        films = _films(container)
        if not films:
            what = "a cover, but no film" if container.streams.video else "no video"
            raise ClipError(name, f"the file holds {what}", "name a file with pictures")
        self._stream: Any = films[0]
        self._stream.thread_type = "SLICE"
        self._notes: list[str] = []
        self.lost = 0
        """Number of packets that caused an error and gave no picture."""
        self.headless = 0
        """Number of packets that gave no picture because they came before the first key frame."""
        self.ended: BaseException | None = None
        """The error that ended the reading prematurely, if any."""
        self._decoded = self._decode()
        first = next(self._decoded, None)
        if first is None:
            raise self._failure("no picture could be decoded")
        if not all(_SIDES[0] <= side <= _SIDES[1] for side in (first.width, first.height)):
            problem = f"its pictures are {first.width}x{first.height}"
            raise ClipError(name, problem, f"sides go from {_SIDES[0]} to {_SIDES[1]} samples")
        self._first = first
        self.facts = Facts.of(self._stream, first, len(films))
        self.length = _duration(container, self._stream, _shown(first, self._stream))
        """Length of the source in seconds, from the first displayable picture. `None` if it is not known."""
        self._label = name.rpartition("/")[2]
        self.warnings = [f"{self._label}: {warning}" for warning in self.facts.warnings]
        """Problems of the source. The list is complete when `pictures` has ended."""

    @property
    def has_sound(self) -> bool:
        """Whether the source has an audio track."""
        return bool(self._container.streams.audio)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoded.close()
        self._container.close()

    def _failure(self, problem: str) -> ClipError:
        why = f" ({said(self.ended)})" if self.ended is not None else ""
        return ClipError(self.name, f"{problem}{why}", "play it with another program to check")

    @property
    def failure(self) -> ClipError | None:
        """The error if the source ended prematurely, else `None`."""
        return None if self.ended is None else self._failure("reading it ended in an error")

    def _note(self, what: str) -> None:
        if what not in self._notes and len(self._notes) < 5:
            self._notes.append(what)

    def pictures(self, width: int, height: int) -> Iterator[tuple[Fraction, U8]]:
        """Yield the time and the samples of each picture. This works only once per reader.

        Pictures that can't be decoded or converted are skipped. If pictures are damaged, a warning is added.
        """
        stage = _Stage(width, height)
        clock = _Clock(1 / (self.facts.told_rate or Fraction(25)), self.length)
        count = 0
        is_opaque, is_interlaced = True, False
        for frame in itertools.chain((self._first,), self._decoded):
            count += 1
            if is_opaque and _is_transparent(frame):
                is_opaque = False
                self.warnings.append(f"{self._label}: it is transparent in part, and {_OPAQUE}")
            if frame.interlaced_frame and not is_interlaced:
                is_interlaced = True
                self.warnings.append(
                    f"{self._label}: it is interlaced; its pictures are deinterlaced, also those for PSNR"
                )
            if frame.is_corrupt:
                self._note("pictures marked as corrupt")
            if (note := clock.tell(_shown(frame, self._stream))) is not None:
                self._note(note)
            try:
                yield from stage.push(clock.time, frame)
            except (av.error.FFmpegError, ValueError) as error:
                self._note(said(error))
        yield from stage.rest()
        if (note := clock.early()) is not None:
            # Put this note before the messages of the decoder, because the number of notes is limited.
            self._notes.insert(0, note)
        if count == 1:
            self.warnings.append(f"{self._label} has a single picture, which stands still")
        if self.lost:
            self._notes.insert(0, f"{self.lost} of its parts could not be decoded")
        if self.headless:
            which = "part has" if self.headless == 1 else f"{self.headless} parts have"
            self.warnings.append(
                f"{self._label} begins within a group of pictures: its first {which} nothing to begin with"
            )
        if self._notes:
            self.warnings.append(f"{self._label} is damaged: {'; '.join(self._notes)}")
        elif self.facts.rate is not None and (note := clock.uneven(count)) is not None:
            self.warnings.append(f"{self._label}: {note}")

    def _packets(self) -> Iterator[Any]:
        """Yield all packets, then `None`. Packets that can't be read are skipped."""
        errors = 0
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    errors = 0
                    if packet.size:
                        yield packet
                break
            except av.error.InvalidDataError as error:
                self._note(said(error))
                errors += 1
                if errors == _TRIES:
                    self.ended = error
                    break
            except (av.error.FFmpegError, OSError) as error:
                self._note(f"it ends in an error ({said(error)})")
                self.ended = error
                break
        yield None

    def _decode(self) -> Generator[av.VideoFrame, None, None]:
        level = av.logging.get_level()
        av.logging.set_level(av.logging.ERROR)
        bad, begun = 0, False
        try:
            with av.logging.Capture(local=False) as log:
                for packet in self._packets():
                    frames: list[av.VideoFrame] = []
                    failed = None
                    try:
                        frames = self._stream.codec_context.decode(packet)
                    except EOFError:
                        pass
                    except (av.error.FFmpegError, ValueError) as error:
                        failed, bad = said(error), bad + 1
                    said_of_it = [*filter(None, [failed]), *(" ".join(each[2].split()) for each in log)]
                    log.clear()
                    begun = begun or bool(frames) or packet is None or packet.is_keyframe
                    if begun:
                        self.lost += failed is not None
                        for each in said_of_it:
                            self._note(each)
                    else:
                        # The packet refers to frames from before the start of the source. This is not damage, so do not
                        # count it as lost.
                        self.headless += 1
                    bad = 0 if frames else bad
                    yield from frames
                    if bad == self._patience:
                        self.ended = ValueError(f"{bad} pictures in a row can't be decoded")
                        break
        finally:
            av.logging.set_level(level)


def first_shown(container: Any) -> Fraction:
    """Return the presentation time of the first picture that a `Reader` yields, in seconds.

    Returns 0 if the picture has no time.
    """
    reader = Reader(container, "")
    return _shown(reader._first, reader._stream) or Fraction(0)


def _shown(frame: av.VideoFrame, stream: av.VideoStream) -> Fraction | None:
    base = frame.time_base or stream.time_base
    return None if frame.pts is None or not base else frame.pts * Fraction(base)


class _Clock:
    """Presentation times that start at 0. Implausible time stamps are replaced by times at equal distances."""

    def __init__(self, step: Fraction, length: Fraction | None) -> None:
        self._step, self._length = step, length
        self._start: Fraction | None = None
        self._begun = False
        self.time = Fraction(0)

    def tell(self, shown: Fraction | None) -> str | None:
        """Process the time stamp of the next picture. Return a description of its problem, or `None`."""
        if not self._begun:
            self._begun, self._start = True, shown
            return None
        if self._start is None and shown is not None:
            self._start = shown - self.time - self._step
        since = self._step if shown is None or self._start is None else shown - self._start - self.time
        covered = self._length is not None and self.time + since <= self._length
        if since <= 0 or (since > _LONGEST_PAUSE_S and not covered):
            self.time += self._step
            self._start = None if shown is None else shown - self.time
            return "time stamps that jump"
        self.time += since
        return None

    def uneven(self, count: int) -> str | None:
        """Return a warning if `count` pictures are far fewer than the frame rate needs for their time."""
        mean, rate = count / (self.time + self._step), 1 / self._step
        if mean >= rate * _LEAST_MEAN_RATE:
            return None
        return (
            f"its frame rate is variable: {float(mean):.3g} pictures per second on average, and {float(rate):.3g} at "
            "times; each picture is repeated until the next one is due"
        )

    def early(self) -> str | None:
        """Return a warning if the pictures ended before the length that the source claims to have."""
        end = self.time + self._step
        if self._length is None or end >= self._length - self._step * 3 / 2:
            return None
        return f"the pictures end at {float(end):.2f} s of {float(self._length):.2f} s"


def _duration(container: Any, stream: av.VideoStream, first: Fraction | None) -> Fraction | None:
    """Return the length of the pictures in seconds.

    Returns `None` if the known length may include audio that is longer than the pictures. ``first`` is the presentation
    time of the first picture, in seconds.
    """
    base = Fraction(stream.time_base) if stream.time_base else None
    begin = stream.start_time * base if base and stream.start_time is not None else Fraction(0)
    zero = begin if first is None else first
    end = _end(container, stream, begin, zero)
    return None if end is None else max(end - zero, Fraction(0))


def _end(container: Any, stream: av.VideoStream, begin: Fraction, zero: Fraction) -> Fraction | None:
    """Return the time at which the last picture ends, in seconds on the clock of the time stamps."""
    told = {name.upper(): value for name, value in stream.metadata.items()}
    parts = told.get("DURATION", "").split(":")  # a tag of Matroska
    if len(parts) == 3 and all(part.replace(".", "", 1).isdecimal() for part in parts):
        hours, minutes, seconds = map(Fraction, parts)
        length = (hours * 60 + minutes) * 60 + seconds
        # The tag DURATION is the length of the track if mkvmerge wrote it, and the time of the track's end if FFmpeg
        # wrote it. For other programs, assume the meaning that gives the earlier end. An end that is too late would
        # cause a false warning in `early`.
        return length + (zero if "_STATISTICS_WRITING_APP" in told else 0)
    own = stream.duration * Fraction(stream.time_base) if stream.duration and stream.time_base else None
    alone, name = len(container.streams) == 1, container.format.name
    whole = Fraction(container.duration, 1_000_000) if container.duration else None
    filled = own is not None and whole is not None and abs(own - whole) < _ROUNDING_S
    if name in _WITHOUT_LENGTHS and filled and not alone:
        return None
    if name in _WITH_AN_END:
        return whole if alone else None
    return begin + own if own is not None else whole if alone else None


@dataclass(frozen=True)
class _Form:
    """The properties of a picture that determine how it is converted."""

    pixels: str
    width: int
    height: int
    full: bool
    matrix: str | None
    """Name of the YCbCr matrix. `None` if it is not specified, and `rgb` for RGB."""
    turn: Turn
    woven: bool
    """Whether the picture is interlaced."""

    @staticmethod
    def of(frame: av.VideoFrame, *, woven: bool) -> _Form:
        name = frame.format.name
        full = int(frame.color_range) == _FULL or name.startswith("yuvj")
        rgb = frame.format.is_rgb or frame.format.has_palette
        matrix = "rgb" if rgb else _MATRICES.get(int(frame.colorspace))
        return _Form(name, frame.width, frame.height, full and not rgb, matrix, _turn(frame) or (), woven)

    def filters(self, width: int, height: int) -> list[tuple[str, str]]:
        """Return filters and their options. The list is empty if the picture only needs scaling."""
        target = assumed_matrix(width, height)
        # Do not convert samples whose matrix is not specified. RGB needs no filter for BT.601, because the scaler
        # converts it.
        turned = self.matrix not in (None, target) and (self.matrix, target) != ("rgb", "bt601")
        if not (self.turn or self.woven or self.full or turned):
            return []
        chain = [("bwdif", "mode=send_frame:deint=interlaced")] if self.woven else []
        scale = f"{width}:{height}:flags=bicubic"
        if self.full:
            scale += ":in_range=full:out_range=limited"
        if turned:
            scale += f":out_color_matrix={target}"
            scale += "" if self.matrix == "rgb" else f":in_color_matrix={self.matrix}"
        return [*chain, *self.turn, ("scale", scale), ("format", "yuv420p")]


class _Stage:
    """A filter graph for pictures. It is built again when the properties of the source's pictures change."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._woven = False
        self._form: _Form | None = None
        self._ends: tuple[Any, Any] | None = None
        self._graph: Any = None  # keeps the graph alive, because the filters do not
        self._times: deque[Fraction] = deque()

    def push(self, time: Fraction, frame: av.VideoFrame) -> Iterator[tuple[Fraction, U8]]:
        """Filter a picture. Yield the pictures that are finished.

        Deinterlacing delays each picture by one picture.
        """
        self._woven = self._woven or frame.interlaced_frame
        form = _Form.of(frame, woven=self._woven)
        if form != self._form:
            yield from self.rest()
            self._begin(form, frame)
        if self._ends is None:
            yield time, scaled(frame, self._width, self._height)
            return
        self._times.append(time)
        frame.pts = len(self._times)
        self._ends[0].push(frame)
        yield from self._ready()

    def rest(self) -> Iterator[tuple[Fraction, U8]]:
        """Yield the pictures that are still in the filters."""
        if self._ends is not None and self._times:
            self._ends[0].push(None)
            yield from self._ready()
        self._form, self._ends, self._graph = None, None, None
        self._times.clear()

    def _begin(self, form: _Form, frame: av.VideoFrame) -> None:
        self._form = form
        filters = form.filters(self._width, self._height)
        if not filters:
            return
        self._graph = av.filter.Graph()
        size = f"video_size={form.width}x{form.height}:pix_fmt={form.pixels}:time_base=1/25:pixel_aspect=1/1"
        source = last = self._graph.add("buffer", size)
        for name, options in filters:
            following = self._graph.add(name, options) if options else self._graph.add(name)
            last.link_to(following)
            last = following
        sink = self._graph.add("buffersink")
        last.link_to(sink)
        self._graph.configure()
        self._ends = source, sink

    def _ready(self) -> Iterator[tuple[Fraction, U8]]:
        assert self._ends is not None
        while self._times:
            try:
                frame = self._ends[1].pull()
            except (BlockingIOError, EOFError):
                return
            yield self._times.popleft(), _samples(frame)
