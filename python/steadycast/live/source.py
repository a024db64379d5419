"""Sources of a live sender: a video file, a test pattern, a camera, raw frames, a ladder, or greedy traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import clips
from steadycast.errors import UserError
from steadycast.exits import Exit

if TYPE_CHECKING:
    from steadycast.live.encoder import Encoder, Shape
    from steadycast.media.reader import Reader
    from steadycast.media.table import U8
    from steadycast.progress import Progress


class Pictures:
    """A source of pictures of one size. The encoder requests pictures by number, in increasing order."""

    shape: Shape
    warnings: list[str]
    """Problems of the source. More problems may be added while the source is read."""
    own_pace = False
    """Whether the source determines the time of each picture, as a camera does."""
    taken_s: float | None = None
    """The time of the picture that was returned last, in seconds since the first picture.

    `None` if the source does not determine the time of its pictures.
    """
    has_unread_sound = False
    """Whether the source has sound that can't be sent, because the source is read only once, for its pictures."""
    _passed = 0
    _surplus = 0

    def picture(self, number: int) -> tuple[int, U8] | None:
        """Return a picture and its number, or `None` at the end of the source.

        A file returns the picture ``number``. A camera returns its newest picture.
        """
        raise NotImplementedError

    def loop_s(self, n: int) -> float | None:
        """Return when repetition ``n`` of the source begins, in seconds.

        Returns infinity if it never begins, and `None` if the time is not known yet.
        """
        return 0.0 if n == 0 else float("inf")

    def passed(self) -> int:
        """Return the number of pictures that were skipped since the last call because the encoder was late."""
        passed, self._passed = self._passed, 0
        return passed

    def surplus(self) -> int:
        """Return the number of pictures that were dropped since the last call because they exceed the frame rate."""
        surplus, self._surplus = self._surplus, 0
        return surplus

    def close(self) -> UserError | None:
        """Stop reading. Return the error if the source ended prematurely."""
        return None


class SourceError(UserError):
    """An error of a source that ended prematurely."""

    code = Exit.FAILED


def _ended(failure: UserError | None) -> UserError | None:
    return None if failure is None else SourceError(failure.place, failure.problem, failure.remedy)


class Filed(Pictures):
    """The pictures of a file, or of the test pattern."""

    def __init__(self, source: Any, size: str, fps: str, *, loop: bool) -> None:
        from steadycast.live.encoder import Shape

        self._source, self._size, self._fps, self._loop = source, size, fps, loop
        self._pictures = source.pictures(size, fps)
        self.shape = Shape(self._pictures.width, self._pictures.height, self._pictures.fps)
        self.warnings = self._pictures.warnings
        self._next = 0
        self._loops = [0]
        """Number of the first picture of each repetition."""
        self._over = False

    def loop_s(self, n: int) -> float | None:
        """See `Pictures.loop_s`. The time becomes known when the last picture of the file was read."""
        if n < len(self._loops):
            return float(self._loops[n] / self.shape.fps)
        return None if self._loop and not self._over else float("inf")

    def picture(self, number: int) -> tuple[int, U8] | None:
        """See `Pictures.picture`."""
        fresh = False
        while True:
            samples = next(self._pictures.frames, None)
            if samples is None:
                # End a source that has no picture even after it was reopened. Otherwise it would be reopened forever.
                if not self._loop or fresh or self._pictures.failure is not None:
                    self._over = True
                    return None
                self._loops.append(self._next)
                self._pictures, fresh = self._source.pictures(self._size, self._fps), True
                self._pictures.warnings = self.warnings
                continue
            fresh = False
            self._next += 1
            if self._next > number:
                return number, samples
            self._passed += 1

    def close(self) -> UserError | None:
        """See `Pictures.close`."""
        return _ended(self._pictures.failure)


class Pattern:
    """FFmpeg's endless moving test pattern."""

    def pictures(self, size: str, fps: str) -> Any:
        """Open the pattern at this size and frame rate."""
        import av

        from steadycast.media.clip import CIF, Pictures, parse_fps, parse_size, scaled

        width, height = parse_size(size, CIF)
        rate = parse_fps(fps, Fraction(25))

        def frames() -> Iterator[U8]:
            spec = f"testsrc2=size={width}x{height}:rate={rate.numerator}/{rate.denominator}"
            with av.open(spec, format="lavfi") as container:
                for frame in container.decode(video=0):
                    yield scaled(frame, width, height)

        return Pictures(width, height, rate, frames())


_MOST_AHEAD = 0.75
"""A picture is dropped if its number is ahead of its time by more than this many frame intervals.

The limit is above 0.5, because rounding the number already adds up to 0.5.
"""


class Newest(Pictures):
    """A source that determines the time of its pictures. Only the newest picture is kept for the reader.

    Pictures that exceed the frame rate are dropped as well, because their numbers would run ahead of their times.
    """

    own_pace = True

    def __init__(self, shape: Shape, warnings: list[str]) -> None:
        self.shape, self.warnings = shape, warnings
        self._newest: tuple[float, U8] | None = None
        self._over = False
        self._change = threading.Condition()
        self._began: float | None = None
        self._last = -1

    def _put(self, at: float, samples: U8) -> None:
        """Replace the newest picture by ``samples``. ``at`` is the time in seconds at which the picture was taken."""
        with self._change:
            self._passed += self._newest is not None
            self._newest = (at, samples)
            self._change.notify()

    def _end(self) -> None:
        with self._change:
            self._over = True
            self._change.notify()

    def picture(self, number: int) -> tuple[int, U8] | None:
        """See `Pictures.picture`. Waits until there is a newer picture than the one that was returned last."""
        while True:
            with self._change:
                while self._newest is None and not self._over:
                    self._change.wait(1.0)
                if self._newest is None:
                    return None
                at, samples = self._newest
                self._newest = None
                if self._began is None:
                    self._began = at
            found = self._number(at - self._began)
            if found is not None:
                return found, samples
            self._surplus += 1

    def _number(self, since_s: float) -> int | None:
        """Return the number of a picture, or `None` if the picture must be dropped.

        ``since_s`` is the picture's time, in seconds since the first picture.
        """
        ideal = since_s * float(self.shape.fps)
        number = max(self._last + 1, round(ideal))
        if number - ideal > _MOST_AHEAD:
            return None
        self._last, self.taken_s = number, since_s
        return number

    def passed(self) -> int:
        """See `Pictures.passed`. Counts the pictures that were replaced by newer ones."""
        with self._change:
            return super().passed()


class Camera(Newest):
    """Pictures of a capture device, or from standard input."""

    def __init__(self, place: str, size: str, fps: str) -> None:
        from steadycast.live.encoder import Shape
        from steadycast.media.clip import own_rate, parse_size

        self._reader = _opened(place)
        facts = self._reader.facts
        width, height = parse_size(size, (facts.width, facts.height))
        rate = Fraction(25) if fps == "clip" and facts.told_rate is None else own_rate(self._reader, fps)
        super().__init__(Shape(width, height, rate), self._reader.warnings)
        self.has_unread_sound = self._reader.has_sound
        # Read in a thread of its own, because a read from a camera can block without a limit.
        threading.Thread(target=self._read, daemon=True, name="camera").start()

    def _read(self) -> None:
        first: float | None = None
        try:
            for at, samples in self._reader.pictures(self.shape.width, self.shape.height):
                now = time.monotonic()
                # Read a file on standard input at its frame rate. Otherwise most of its pictures would be dropped.
                first = now - float(at) if first is None else first
                time.sleep(max(0.0, min(first + float(at) - now, 5.0)))
                self._put(time.monotonic(), samples)
        finally:
            self._end()

    def close(self) -> UserError | None:
        """See `Pictures.close`."""
        return _ended(self._reader.failure)


_PATIENCE = 250
"""A camera or pipe ends after this number of consecutive undecodable pictures: 10 s at 25 per second."""


def _opened(place: str) -> Reader:
    import av

    from steadycast.media.reader import ClipError, Reader

    name = "standard input" if place == "-" else place
    try:
        # Do not use sys.stdin. The thread that reads sys.stdin would hold its lock and block the interpreter's exit.
        taken = open(0, "rb", buffering=0, closefd=False) if place == "-" else None  # noqa: SIM115
        container: Any = av.open(taken) if taken is not None else av.open(place, format="v4l2")
        return Reader(container, name, _PATIENCE)
    except (ClipError, av.error.FFmpegError, OSError, ValueError, IndexError) as error:
        why = error.problem if isinstance(error, ClipError) else error
        remedy = (
            "give a stream with headers, for example the output of: ffmpeg … -f yuv4mpegpipe -"
            if place == "-"
            else "see `ls /dev/video*` for the cameras that are here, and who may read them"
        )
        raise UserError(name, f"no pictures that can be read ({why})", remedy) from error


@dataclass
class Plan:
    """The source of a session in the core's format, and the Python functions that encode it."""

    medium: dict[str, Any]
    clip: str | None
    """Path of the source file, or `None` if the source is not a file."""
    work: Any = None
    """The function that encodes the pictures, in its own thread. Its argument is the core's `Sender`.

    `None` if no pictures are encoded.
    """
    warnings: list[str] = field(default_factory=list)
    audio: Any = None
    """The function that encodes the sound, in a second thread. `None` if no sound is sent."""
    sound_is_shared: bool = False
    """Whether a core `Broadcast` provides the sound."""


def plan(
    source: str,
    *,
    codec: str,
    size: str,
    fps: str,
    gop: int,
    loop: bool,
    ladder: bool,
    keep_size: bool = False,
    audio: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Open ``source``, and return how to send it. If ``audio`` is set, the sound of a file is sent, too."""
    if source == "greedy":
        return Plan({"kind": "greedy"}, None)
    from steadycast.live.encoder import Encoder
    from steadycast.media.ladder import as_options, codec_of, in_options

    with as_options():
        if ladder:
            planned, loop_s = _laddered(source, codec, size, fps, gop, loop, progress)
        else:
            kind = codec_of(codec)
            pictures, clip = pictures_of(source, size, fps, loop=loop)
            loop_s = pictures.loop_s
            planned = encoded(pictures, Encoder(kind, pictures.shape, gop, keep_size=keep_size), clip)
            if audio and pictures.has_unread_sound:
                name = "standard input" if source == "-" else source
                planned.warnings.append(f"{name}: its sound is not sent; to send sound, name a file")
        if audio and planned.clip is not None:
            _add_sound(planned, loop_s)
        # Change the list in place, because the encoders add warnings to it later.
        planned.warnings[:] = map(in_options, planned.warnings)
        return planned


def _add_sound(planned: Plan, loop_s: Callable[[int], float | None]) -> None:
    from steadycast.live.audio import Work as AudioWork
    from steadycast.live.audio import sound_of

    sound, warning = sound_of(Path(str(planned.clip)))
    if warning is not None:
        planned.warnings.append(warning)
    if sound is not None:
        planned.audio = AudioWork(sound, loop_s, planned.warnings)


_PATTERN = "testsrc"
"""The name of the source `Pattern`."""


def _is_capture(source: str) -> bool:
    """Return whether a source is standard input or a camera."""
    return source == "-" or source.startswith("/dev/video")


def pictures_of(source: str, size: str, fps: str, *, loop: bool) -> tuple[Pictures, str | None]:
    """Open a source. Return its pictures and the path of its file. The path is `None` if there is no file."""
    if source == _PATTERN:
        return Filed(Pattern(), size, fps, loop=True), None
    if _is_capture(source):
        return Camera(source, size, fps), None
    from steadycast.media.clip import Clip

    file = clips.find(source)
    return Filed(Clip.of(file), size, fps, loop=loop), str(file.resolve())


def encoded(pictures: Pictures, encoder: Encoder, clip: str | None) -> Plan:
    """Return a plan that encodes these pictures while they are sent."""
    medium = {"kind": "encoder", "codec": encoder.codec.name, "config": encoder.config()}
    return Plan(medium | steering(pictures, encoder), clip, Work(encoder, pictures), pictures.warnings)


def steering(pictures: Pictures, encoder: Encoder) -> dict[str, Any]:
    """Return the parameters that the core needs to control this encoder's rate."""
    fps, kind = pictures.shape.fps, encoder.codec
    return {
        "fps": (fps.numerator, fps.denominator),
        "gop": encoder.gop,
        "quantizers": (kind.quantizers[0], kind.quantizers[-1]),
        "doubling": kind.doubling,
        "sizes": encoder.sizes,
        "own_pace": pictures.own_pace,
    }


class Work:
    """The loop of the encoder. It requests jobs from the core's `Sender`, and returns access units to it."""

    def __init__(self, encoder: Any, pictures: Pictures) -> None:
        self._encoder, self._pictures = encoder, pictures
        self.failed: BaseException | None = None

    def __call__(self, sender: Any) -> None:
        """Run the loop."""
        try:
            while True:
                job = sender.next_job(0.5)
                if job is False:
                    return
                if job is None:
                    continue
                number, first, quantizer, size = job
                taken = self._pictures.picture(number)
                if passed := self._pictures.passed() + self._pictures.surplus():
                    sender.passed(passed)
                if taken is None:
                    self.failed = self._pictures.close()
                    sender.end()
                    return
                number, samples = taken
                kind, data = self._encoder.unit(samples, first=first, quantizer=quantizer, size=size)
                sender.push(number, kind, quantizer, data)
        except BaseException as error:
            self.failed = error
            sender.end()


def _laddered(
    source: str, codec: str, size: str, fps: str, gop: int, loop: bool, progress: Progress | None
) -> tuple[Plan, Callable[[int], float | None]]:
    from steadycast.live import session
    from steadycast.live.encoder import config_of
    from steadycast.media.clip import Clip
    from steadycast.media.ladder import encode_ladder

    if source == _PATTERN or _is_capture(source):
        problem = f"{source} is no file, so it can't be encoded before the session"
        raise UserError("--ladder", problem, "leave --ladder out, or name a file")
    # No B frames, because a B frame would have to wait for a later picture.
    file = clips.find(source)
    made = encode_ladder(Clip.of(file), codec, size, fps, gop, bframes=0, progress=progress)
    medium = {
        "kind": "ladder",
        "codec": codec,
        "config": config_of(codec, made.rungs[0].extradata + made.rungs[0].unit(0)),
        "ladder": session.live_core().EncodedLadder(
            made.told(), [(r.q, r.data, r.offsets, r.extradata) for r in made.rungs]
        ),
        "frames": None if loop else made.table.frames,
    }
    lasts = float(made.table.frames / made.table.fps)
    planned = Plan(medium, str(file.resolve()), warnings=list(made.warnings))
    return planned, lambda n: n * lasts if n == 0 or loop else float("inf")
