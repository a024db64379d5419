"""The marked clip of a pair. It is created once, fed to the sender in real time, and recognised in displayed pictures.

`steadycast judge` tests a pair of programs, a sender and a receiver. It runs this module as a separate process for each
FIFO through which a program gets or gives pictures.
"""

from __future__ import annotations

import io
import json
import os
import queue
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from steadycast import clips, files, units
from steadycast.errors import UserError
from steadycast.judge import mark
from steadycast.media import cache
from steadycast.media.clip import CIF, Clip, Source, parse_fps, parse_size
from steadycast.media.metrics import Picture, psnr_db
from steadycast.media.raw import RawVideo, raw_video
from steadycast.media.synthetic import Synthetic
from steadycast.media.table import U8
from steadycast.media.vmaf import vmaf

_FORMAT = 2
SSIM_EVERY = 15
"""SSIM is measured only for every 15th picture, because it is ten times as slow as PSNR."""
_COARSE = 4
"""A picture's coarse version contains the mean of each square with this side, in samples.

A displayed picture is damaged if its PSNR is lower than the PSNR of the coarse version.
"""


@dataclass(frozen=True)
class Marked:
    """The clip that a judged sender sends. Each picture contains its own number as a mark."""

    source: str = "synthetic"
    size: str = "640x360"
    fps: str = "30"
    mark: bool = True
    """Whether pictures contain marks. Without marks, only packets on the wire are judged."""

    def raw(self) -> RawVideo:
        """Return the clip's scaled pictures without marks. The clip is used as a loop."""
        source: Source = Synthetic() if self.source == "synthetic" else Clip.of(clips.find(self.source))
        return raw_video(source, self.size, self.fps)

    @property
    def sides(self) -> tuple[int, int]:
        """Width and height of the pictures, in samples."""
        if self.size == "clip":
            raw = self.raw()
            return raw.width, raw.height
        return parse_size(self.size, CIF, "clip.size")

    @property
    def rate(self) -> Fraction:
        """Pictures per second."""
        return self.raw().fps if self.fps == "clip" else parse_fps(self.fps, Fraction(25), "clip.fps")

    def file(self, kind: str, seconds: float) -> Path:
        """Return the path of a cached file with ``seconds`` of the clip. ``kind`` is "y4m", or "mkv" (FFV1)."""
        raw = self.raw()
        facts = {
            "format": _FORMAT,
            "raw": [self.source, raw.width, raw.height, str(raw.fps), len(raw), int(raw.samples[0].sum())],
        }
        name = cache.key({**facts, "mark": self.mark, "kind": kind, "seconds": seconds})
        path = cache.folder() / f"{name}.{kind}"
        if not path.exists():
            files.folder(path.parent)
            from steadycast.received import writer

            with (
                files.whole(path, "make room in the cache", f".{os.getpid()}.part") as new,
                writer(path, new, raw.width, raw.height, raw.fps) as put,
            ):
                for number in range(round(seconds * raw.fps)):
                    put(Picture.of(self.picture(raw, number), raw.width, raw.height))
        return path

    def picture(self, raw: RawVideo, number: int) -> U8:
        """Return the picture with this number."""
        samples = np.array(raw.samples[number % len(raw)])
        if self.mark:
            mark.paint(samples, raw.width, raw.height, number)
        return samples


def _header(raw: RawVideo) -> bytes:
    rate = f"{raw.fps.numerator}:{raw.fps.denominator}"
    return f"YUV4MPEG2 W{raw.width} H{raw.height} F{rate} Ip A1:1 C420jpeg\n".encode()


# ---------------------------------------------------------------- handing over


def feed(clip: Marked, fifo: Path, log: IO[str]) -> None:
    """Write the clip into a FIFO in real time, once a reader has opened the FIFO. Skip pictures that are late.

    ``log`` gets the number of each picture, its due time, and the time of its first byte on the monotonic clock.
    Programs may open the FIFO several times, for example to probe the format. Each time, the header is written again.
    """
    raw = clip.raw()
    began: float | None = None
    number = -1
    while True:
        # Ignore a broken pipe, because the reader may close the pipe and open it again.
        with suppress(BrokenPipeError), fifo.open("wb", buffering=0) as pipe:
            _whole(pipe, _header(raw))
            while True:
                began = began or time.monotonic()
                # Skip the pictures that are late.
                number = max(number + 1, int((time.monotonic() - began) * raw.fps))
                due = began + float(number / raw.fps)
                time.sleep(max(0.0, due - time.monotonic()))
                at = time.monotonic()
                _whole(pipe, b"FRAME\n" + clip.picture(raw, number).tobytes())
                log.write(f"{number}\t{due:.5f}\t{at:.5f}\n")


def _whole(pipe: Any, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[pipe.write(left) :]


# ---------------------------------------------------------------- what is shown


class Shape(NamedTuple):
    """The layout of the pictures in a stream."""

    width: int
    height: int
    size: int
    """Number of bytes of a picture."""
    deep: int
    """Number of bits of a sample."""

    def luma(self, data: bytes) -> U8:
        """Return the luma samples of a picture, converted to 8 bits."""
        shape, count = (self.height, self.width), self.width * self.height
        if self.deep == 8:
            return np.frombuffer(data, np.uint8, count).reshape(shape)
        return (np.frombuffer(data, "<u2", count) >> (self.deep - 8)).astype(np.uint8).reshape(shape)


_PLANES = {"420": 6, "422": 8, "444": 12, "mono": 4}
"""How many luma and chroma samples there are for each four luma samples, by y4m's colour space."""
_RAW = {
    "yuv420p": ("420", 8),
    "nv12": ("420", 8),
    "yuv422p": ("422", 8),
    "yuv444p": ("444", 8),
    "gray": ("mono", 8),
    "yuv420p10le": ("420", 10),
}


def shape_of(width: int, height: int, colours: str, deep: int) -> Shape:
    """Return the layout of pictures that have the given size and colour space."""
    half = ((width + 1) // 2) * ((height + 1) // 2) * 2
    chroma = {"420": half, "422": (width + 1) // 2 * height * 2, "444": 2 * width * height, "mono": 0}
    return Shape(width, height, (width * height + chroma[colours]) * (1 if deep == 8 else 2), deep)


_LONGEST_SIDE = 16384
"""The longest side of received pictures, in samples."""


def raw_shape(text: str, place: str = "pictures.format") -> Shape:
    """Parse the layout of raw pictures, for example "yuv420p 640x360"."""
    found = re.fullmatch(r"(\w+) +([1-9][0-9]{,4})x([1-9][0-9]{,4})", text.strip())
    if found is None or found[1] not in _RAW or max(int(found[2]), int(found[3])) > _LONGEST_SIDE:
        remedy = f'write for example "yuv420p 640x360"; formats are {", ".join(_RAW)}'
        raise UserError(place, f"{text!r:.60} is not a known picture format", remedy)
    return shape_of(int(found[2]), int(found[3]), *_RAW[found[1]])


def y4m_shape(header: bytes) -> Shape:
    """Parse a y4m header. ``header`` does not include the line end."""
    words = {word[:1]: word[1:] for word in header.decode("ascii", "replace").split()[1:]}
    colours = words.get("C", "420jpeg")
    kind = next((each for each in _PLANES if colours.startswith(each)), None)
    deep = re.search(r"p(1\d)$", colours)
    sides = (words.get("W", ""), words.get("H", ""))
    if kind is None or not all(units.whole(side, 1, _LONGEST_SIDE) for side in sides):
        raise ValueError(f"no header of y4m: {header[:80]!r}")
    return shape_of(int(sides[0]), int(sides[1]), kind, int(deep[1]) if deep else 8)


def pictures(stream: IO[bytes], shape: Shape | None) -> Iterator[tuple[float, Shape, bytes]]:
    """Yield complete pictures, each with its arrival time and its layout.

    If ``shape`` is given, the stream has raw pictures in this layout. Otherwise it is y4m, which specifies the layout.
    """
    raw = shape
    while True:
        if raw is None:
            line = stream.readline(512)
            if line.startswith(b"YUV4MPEG2"):
                shape = y4m_shape(line)
                continue
            if not line.startswith(b"FRAME") or shape is None:
                return
        assert shape is not None
        data = stream.read(shape.size)
        if len(data) < shape.size:
            return
        yield time.monotonic(), shape, data


Crop = tuple[int, int, int, int]
Item = TypeVar("Item")


def cut(luma: U8, crop: Crop | None) -> U8:
    """Return the part of a picture that shows the clip. ``crop`` is (width, height, left, top)."""
    if crop is None:
        return luma
    width, height, left, top = crop
    return luma[top : top + height, left : left + width]


class Measured:
    """Compares pictures with those of the clip. The strip that contains the mark is ignored."""

    def __init__(self, clip: Marked, kept: IO[bytes] | None = None) -> None:
        self._raw, self._count, self._kept = clip.raw(), 0, kept
        self._top = mark.strip(self._raw.height)
        self._coarse: dict[int, float] = {}

    def of(self, luma: U8, number: int) -> tuple[float, float, float | None]:
        """Return luma PSNR in dB, the PSNR below which the picture is damaged, and SSIM if it is measured."""
        import av

        from steadycast.core import core

        raw = self._raw
        if luma.shape != (raw.height, raw.width):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(luma), format="gray")
            fit = frame.reformat(raw.width, raw.height, format="gray", interpolation="BICUBIC")
            luma = np.asarray(fit.to_ndarray(), dtype=np.uint8)
        place = number % len(raw)
        source = raw.picture(place).y[self._top :]
        shown = np.ascontiguousarray(luma[self._top :])
        if self._kept is not None:
            self._kept.write(shown.tobytes())
        self._count += 1
        ssim = None if self._count % SSIM_EVERY else float(core.picture_ssim(shown, source))
        if place not in self._coarse:
            self._coarse[place] = psnr_db(coarse(source), source)
        return min(100.0, psnr_db(shown, source)), min(100.0, self._coarse[place]), ssim


def coarse(luma: U8) -> U8:
    """Replace each square of samples by its mean. The side of a square is `_COARSE`."""
    height, width = luma.shape
    across, down = (np.arange(0, side, _COARSE) for side in (width, height))
    sums = np.add.reduceat(np.add.reduceat(luma.astype(np.float32), down, axis=0), across, axis=1)
    sizes = np.outer(np.diff([*down, height]), np.diff([*across, width]))
    squares = np.rint(sums / sizes).astype(np.uint8)
    return np.asarray(squares.repeat(_COARSE, axis=0)[:height].repeat(_COARSE, axis=1)[:, :width])


class Fifo(io.RawIOBase):
    """A FIFO that is read until `end` is called. A program that closes it does not end it."""

    def __init__(self, path: Path) -> None:
        # Open the FIFO for reading and writing. Then the call does not wait for a writer, and there is no EOF between
        # two writers.
        self._fifo = os.open(path, os.O_RDWR)
        self._ended, self._end = os.pipe()

    def readable(self) -> bool:
        """Return true, as `io.BufferedReader` requires."""
        return True

    def readinto(self, room: Any) -> int:
        """Wait for bytes and read them. Return 0 after the end."""
        ready, _, _ = select.select([self._fifo, self._ended], [], [])
        return 0 if self._ended in ready else os.readv(self._fifo, [room])

    def end(self) -> None:
        """End the stream. A thread that waits in `readinto` returns. A signal handler may call this method."""
        _ = os.write(self._end, b"x")


def look(measured: Measured, stream: IO[bytes], shape: Shape | None, crop: Crop | None, log: IO[str]) -> None:
    """Write a line for each picture: its arrival on the monotonic clock, its number, and the results of `Measured`."""
    seen = ahead(pictures(stream, shape))
    _tell(measured, ((at, form.luma(data)) for at, form, data in seen), crop, log)


def ahead(items: Iterator[Item], room: int = 300) -> Iterator[Item]:
    """Yield items that a thread reads ahead, so that slow measurements do not delay the arrival times."""
    waiting: queue.Queue[Item | None] = queue.Queue(room)

    def take() -> None:
        try:
            for each in items:
                waiting.put(each)
        finally:
            waiting.put(None)

    threading.Thread(target=take, daemon=True, name="ahead").start()
    while (found := waiting.get()) is not None:
        yield found


def look_at_file(clip: Marked, path: Path, crop: Crop | None, log: IO[str]) -> None:
    """Write the lines of `look` for a file. The file's time stamps are the arrival times."""
    with files.media(path) as container:
        decoded = container.decode(video=0)
        seen = ((float(f.time or 0), f.reformat(format="gray").to_ndarray()) for f in decoded)
        _tell(Measured(clip), seen, crop, log)


def vmaf_of(clip: Marked, kept: Path, numbers: Sequence[int], counted: Sequence[bool]) -> float | None:
    """Return the mean VMAF of the pictures in the file ``kept`` for which ``counted`` is true.

    ``numbers`` contains the number that each picture in the file has in the clip.
    """
    raw = clip.raw()
    top = mark.strip(raw.height)
    grey = np.full(((raw.height - top) // 2, raw.width // 2), 128, np.uint8)

    def pairs() -> Iterator[tuple[Picture, Picture]]:
        with kept.open("rb") as file:
            for number, counts in zip(numbers, counted, strict=True):
                source = raw.picture(number % len(raw)).y[top:]
                luma = np.frombuffer(file.read(source.size), np.uint8)
                if counts and luma.size == source.size:
                    yield Picture(luma, grey, grey), Picture(source, grey, grey)

    return vmaf(pairs(), raw.width, raw.height - top, raw.fps)


def _tell(measured: Measured, seen: Iterator[tuple[float, U8]], crop: Crop | None, log: IO[str]) -> None:
    last = None
    for at, whole in seen:
        luma = cut(whole, crop)
        number = mark.read(luma)
        told: list[float | int | None] = [number]
        # Measure a picture only once. Consecutive pictures with the same number are the same picture.
        told += measured.of(luma, number) if number is not None and number != last else (None,) * 3
        last = number if number is not None else last
        log.write("\t".join([f"{at:.5f}", *("" if each is None else f"{each:.8g}" for each in told)]) + "\n")


def words_of(what: str, clip: Marked, fifo: Path, log: Path, **more: Any) -> list[str]:
    """Return the command that writes the clip into a FIFO ("feed"), or measures the pictures from a FIFO ("look")."""
    told = {"what": what, "clip": asdict(clip), "fifo": str(fifo), "log": str(log), **more}
    return [sys.executable, "-m", "steadycast.judge.clip", json.dumps(told)]


def main() -> int:
    """Serve one FIFO as the command line specifies."""
    told = json.loads(sys.argv[1])
    clip, fifo = Marked(**told["clip"]), Path(told["fifo"])
    shown = Fifo(fifo) if told["what"] == "look" else None

    def stop(number: int, _: object) -> None:
        # SIGINT ends only the reading of pictures: those that were read are still measured. SIGTERM ends this, too.
        if shown is not None:
            shown.end()
        if shown is None or number == signal.SIGTERM:
            raise SystemExit(0)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    with Path(told["log"]).open("w", buffering=1, encoding="utf-8") as log:
        if shown is None:
            feed(clip, fifo, log)
            return 0
        shape = raw_shape(told["format"]) if told.get("format") else None
        with (
            io.BufferedReader(shown, 1 << 20) as stream,
            open(told.get("kept") or os.devnull, "wb") as kept,
        ):
            look(Measured(clip, kept if told.get("kept") else None), stream, shape, told.get("crop"), log)
    return 0


if __name__ == "__main__":
    sys.exit(main())
