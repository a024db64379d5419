"""Implements `steadycast receive`. A stream is written to a file, sent to a player, or used only for its record."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import operator
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from steadycast import files, signals
from steadycast.errors import MissingError, UnwrittenError, UserError, reason
from steadycast.folder import Draft, Json
from steadycast.hints import named
from steadycast.live import outlets, session, view
from steadycast.live.container import Growing, takes_audio
from steadycast.media import stream

_UNTOLD = {
    ("mpegts", "h263"),
    *((each, codec) for each in ("mpegts", "mov") for codec in ("vp8", "vp9", "av1")),
}
"""Pairs of a container and a codec for which the container has no name, so that no player can read the file.

MPEG-TS, for example, has no stream type for VP8 (ISO/IEC 13818-1).
"""


LONGEST_PLAYOUT_S = 4.0
"""The longest play-out delay, in seconds. At 60 frames per second, it needs 240 frames of the player's queue of 256."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command line."""

    what: str
    source: str | None = None
    out: Path | None = None
    play: str | None = None
    playout: str | None = None
    reference: Path | None = None
    duration: str | None = None
    mux: bool = False
    interface: str | None = None
    codec: str | None = None
    name: str | None = None
    key_file: Path | None = None
    folder: Path | None = None
    force: bool = False
    buffer: str | None = None
    consume: str | None = None
    latency: str | None = None
    give_up: str = "30s"
    outlets: outlets.Options = field(default_factory=outlets.Options)


@dataclass(frozen=True)
class Received:
    """The result of a live session."""

    summary: Json
    silent: bool
    """Whether the session received no packet that it could use."""
    unused: tuple[str, ...] = ()
    """Sentences about packets that were discarded."""


class Player:
    """An external player that reads the stream from its standard input.

    A thread writes to the pipe. Frames are dropped if the player does not read them in time. The play-out delay counts
    from the frame that has had the shortest transfer time so far. With ``codec`` (the name and the decoder's
    configuration), the player gets Matroska with an audio track.
    """

    _WAITING = 256
    """The largest number of frames in the player's queue."""
    _PATIENCE_S = 5.0
    """Time limit for the player to read the queued frames, and time limit for its exit, both in seconds."""

    def __init__(
        self, words: Sequence[str], playout_s: float | None, codec: tuple[str, bytes] | None = None
    ) -> None:
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE)
        # Make the queue larger for a container, because audio packets share it with the frames.
        self._queue: queue.Queue[tuple[float, bytes, Callable[[Growing], None] | None] | None] = queue.Queue(
            self._WAITING if codec is None else 3 * self._WAITING
        )
        self._codec = codec
        self._playout_s, self._begun = playout_s, math.inf
        self._left_out = 0
        self.gone = False
        # Use a daemon thread, so that a player that does not read can't keep the process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True, name="player")
        self._thread.start()

    @property
    def contains_audio(self) -> bool:
        """Whether the player gets a container with an audio track. Otherwise, it gets a raw stream."""
        return self._codec is not None

    def take(self, data: bytes, ticks: int | None, add: Callable[[Growing], None] | None = None) -> None:
        """Queue a frame. Drop it if the queue is full or the player has ended.

        ``ticks`` is the frame's time in 1/90000 s. It is `None` for the stream's header. ``add`` adds the frame to a
        container.
        """
        if self.gone:
            return
        due = 0.0
        if self._playout_s is not None and ticks is not None:
            # Count play-out times from the frame that has had the shortest delay so far.
            self._begun = min(self._begun, time.monotonic() - ticks / 90_000)
            due = self._begun + ticks / 90_000 + self._playout_s
        try:
            self._queue.put_nowait((due, data, add))
        except queue.Full:
            self._left_out += 1

    def _run(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        growing = (
            None
            if self._codec is None
            else Growing(pipe, "matroska", self._codec[0], self._codec[1], audio=True)
        )
        try:
            while (taken := self._queue.get()) is not None:
                due, data, add = taken
                time.sleep(max(0.0, due - time.monotonic()))
                if growing is None:
                    pipe.write(data)
                elif add is not None:
                    add(growing)
                pipe.flush()
            if growing is not None:
                growing.close()
        except (OSError, ValueError):
            # Do not raise an error, because a user may close the player during the session.
            self.gone = True
        with contextlib.suppress(OSError):
            pipe.close()

    def finish(self) -> list[str]:
        """Wait until the player has read the rest, or end the player. Return warnings for the record."""
        # Limit the wait for a free place, because the queue stays full if the player does not read.
        if not self.gone:
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=self._PATIENCE_S)
        self._thread.join(self._PATIENCE_S + (self._playout_s or 0.0))
        notes = ["the player ended before the stream"] if self.gone else []
        if self._thread.is_alive():
            notes.append("the player did not read the stream to its end, and was ended")
            self._process.kill()
            self._thread.join()
        try:
            self._process.wait(self._PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
        if self._left_out:
            left_out = view.counted(self._left_out, "frame was", "frames were")
            notes.append(f"{left_out} not given to the player, which did not read in time")
        return notes


class Sink:
    """Writes received frames to a file and a player, and keeps frames for the comparison with the original.

    This happens in a separate thread. If the file can't be written, the session goes on only for a player or the
    comparison. Frames are written to FILE.part (`reserve`), which is renamed at the end. If the parameters that the
    container needs are missing, the raw stream is written and converted at the end.
    """

    def __init__(self, receiver: Any, options: Options) -> None:
        self._receiver = receiver
        self.codec: str = receiver.codec
        self._frames: list[tuple[int, int]] = []
        """Presentation time and size in bytes of each frame. They are needed to convert a raw stream at the end."""
        self._any = False
        self.kept: list[tuple[int, bytes]] = []
        """Presentation time and data of each frame, for the comparison with the original."""
        self.damaged = 0
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        """Presentation and arrival time of the last frame, in seconds."""
        self._keep = options.reference is not None
        self._player: Player | None = None
        self._raw: BinaryIO | None = None
        self._out = options.out
        self._place = Path()
        self._container: str | None = None
        self._growing: Growing | None = None
        self._before_key: list[tuple[int, bytes]] | None = []
        """Frames before the first key frame, which can't be decoded. It is `None` once the container has frames."""
        self._skipped = 0
        """Number of frames before the first key frame that were not written to the container."""
        self._head: bytes = receiver.config
        self._failed: UnwrittenError | None = None
        self._audio: bool = receiver.has_audio
        self.missing_audio = 0
        """Number of audio packets that are missing between the received audio packets."""
        self.notes: list[str] = []
        if options.out is not None:
            self._container = container_of(options.out, self.codec)
            self._open(options.out, force=options.force)
        if options.play is not None:
            words = shlex.split(options.play)
            try:
                codec = (self.codec, self._head) if self._audio else None
                self._player = Player(words, playout_of(options), codec)
            except (OSError, IndexError) as error:
                self._close()
                self._take_away()
                raise MissingError(
                    f"--play {options.play}", f"can't be started ({error})", "name a program that is here"
                ) from error
        receiver.want_frames()
        self.thread = threading.Thread(target=self._run, daemon=True, name="frames")
        self.thread.start()

    def _open(self, out: Path, *, force: bool) -> None:
        # Write directly to a pipe or a device, because it can't be renamed.
        direct = self._container is None and out.exists() and not out.is_file()
        try:
            self._out = out if direct else reserve(out, force=force)
            self._place = out if direct else part_of(self._out)
            raw = self._place.open("wb")
        except OSError as error:
            raise UnwrittenError.of(out, error, "name another file") from error
        if self._container is None:
            self._raw = raw
        else:
            raw.close()
            audio = self._audio and takes_audio(self._container)
            self._growing = Growing(self._place, self._container, self.codec, self._head, audio=audio)

    def _run(self) -> None:
        try:
            head = stream.head(self.codec, self._head)
            self._take(head, head, None)
            # Wait for frames at most for this time in seconds, because audio is written after each wait.
            patience = 0.1 if self._audio else 0.5
            while (frames := self._receiver.frames(patience)) is not None:
                self._take_audio()
                for ticks, damaged, _, arrived, data in frames:
                    self.damaged += damaged
                    self._any = True
                    self._last = (ticks / 90_000, arrived)
                    self._first = self._first or self._last
                    if self._keep:
                        self.kept.append((ticks, data))
                    if self._container is not None and self._failed is None:
                        self._contain(ticks, data)
                    self._take(
                        stream.framed(self.codec, ticks, data),
                        stream.closed(self.codec, ticks, data),
                        ticks,
                        operator.methodcaller("add", ticks, data),
                    )
                if self._failed is not None and not self._serves():
                    self._receiver.stop()
        except Exception as error:
            self._fail(error)
            self._receiver.stop()
        self._close()

    def _serves(self) -> bool:
        return self._keep or (self._player is not None and not self._player.gone)

    def _contain(self, ticks: int, data: bytes) -> None:
        try:
            self._add(ticks, data)
        except (OSError, ValueError) as error:
            self._fail(error)

    def _add(self, ticks: int, data: bytes) -> None:
        if self._before_key is None:
            self._add_decodable(ticks, data)
        elif session.live_core().is_key_frame(self.codec, data):
            self._skipped, self._before_key = len(self._before_key), None
            self._add_decodable(ticks, data)
        else:
            self._before_key.append((ticks, data))
            if len(self._before_key) == _LOOKED_AT:
                self._add_all()

    def _add_all(self) -> None:
        """Write the frames that waited for a key frame, because the stream has no key frames."""
        waiting, self._before_key = self._before_key or [], None
        for each in waiting:
            self._add_decodable(*each)

    def _add_decodable(self, ticks: int, data: bytes) -> None:
        if self._growing is not None and self._growing.hopeless:
            self._plain(self._growing)
        if self._growing is not None:
            self._growing.add(ticks, data)
        if self._growing is not None and self._growing.begun:
            self._frames.clear()
        else:
            self._frames.append((ticks, len(data)))

    def _plain(self, growing: Growing) -> None:
        """Write all frames so far as a raw stream, and continue with it."""
        self._growing = None
        self._raw = self._place.open("wb")
        self._raw.write(growing.plain())

    def _take_audio(self) -> None:
        for ticks, missing, data in self._receiver.audio() if self._audio else ():
            self.missing_audio += missing
            if self._growing is not None and self._failed is None:
                try:
                    self._growing.add_audio(ticks, data)
                except (OSError, ValueError) as error:
                    self._fail(error)
            if self._player is not None and self._player.contains_audio:
                self._player.take(b"", ticks, operator.methodcaller("add_audio", ticks, data))

    def _take(
        self, kept: bytes, played: bytes, ticks: int | None, add: Callable[[Growing], None] | None = None
    ) -> None:
        if self._raw is not None:
            try:
                self._raw.write(kept)
            except (OSError, ValueError) as error:
                self._fail(error)
        if self._player is not None:
            self._player.take(played, ticks, add)

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            self._take_audio()
        if self._container is not None and self._failed is None:
            try:
                self._add_all()
            except (OSError, ValueError) as error:
                self._fail(error)
        if self._growing is not None:
            try:
                if self._growing.begun:
                    self._growing.close()
                elif self._any:
                    self._plain(self._growing)
            except (OSError, ValueError) as error:
                self._fail(error)
        if self._raw is not None:
            try:
                self._raw.close()
            except OSError as error:
                self._fail(error)
            self._raw = None

    def _fail(self, error: Exception) -> None:
        if self._failed is not None:
            return
        self._failed = unwritten(str(self._out or "--play"), self.codec, error, self._kept())
        # Ignore errors, because closing flushes the buffers, which fails again for the same reason.
        growing, raw, self._growing, self._raw = self._growing, self._raw, None, None
        self._frames.clear()
        with contextlib.suppress(OSError, ValueError):
            if growing is not None:
                growing.close()
        with contextlib.suppress(OSError, ValueError):
            if raw is not None:
                raw.close()
        if self._serves():
            print(f"{self._failed}; the session goes on without it", file=sys.stderr)

    def _kept(self) -> str:
        return (
            f"the stream until then is in {self._place}" if self._place != self._out else "name another file"
        )

    def _take_away(self) -> None:
        if self._out is not None and self._place != self._out:
            self._place.unlink(missing_ok=True)

    def finish(self) -> None:
        """Wait for the last frame. Then rename the file, or convert the raw stream to the requested container."""
        self.thread.join(10)
        if self._player is not None:
            self.notes += self._player.finish()
        if overrun := (json.loads(self._receiver.status()) or {}).get("overrun"):
            self.notes.append(f"{view.counted(overrun, 'frame was', 'frames were')} not written in time")
        shown, took = (end - begun for end, begun in zip(self._last, self._first or self._last, strict=True))
        # A sender's pauses also reduce `shown`, so only a factor of 5 shows that the clock rate is wrong.
        if took > 2 and shown < took / 5:
            self.notes.append(
                f"its time stamps cover {shown:.2f} s of the {took:.1f} s in which frames came, so the film is too"
                " fast: RTP's clock of video has 90 kHz, and the sender's has another rate"
            )
        if self._audio and self._out is not None and not takes_audio(self._container):
            self.notes.append(f"{self._out} has no sound: take a name that ends in .mkv or .mp4 for both")
        if self._failed is not None:
            raise self._failed
        if self._out is None or self._place == self._out:
            return
        if not self._any:
            self.notes.append(f"no frame came, so {self._out} was not written")
            self._take_away()
            return
        if self._container is not None and self._growing is None:
            contain(self._place, self._out, self._container, self.codec, self._frames, self._head)
            self._take_away()
        else:
            try:
                self._place.replace(self._out)
            except OSError as error:
                raise UnwrittenError.of(self._out, error, self._kept()) from error
        if self._skipped:
            left_out = view.counted(self._skipped, "frame", "frames")
            self.notes.append(
                f"{self._out} begins with the first key frame: {left_out} before it can't be decoded"
            )
        form = stream.FORMS[self.codec].demuxer if self._container is None else None
        if (why := unplayable(self._out, form)) is not None:
            self.notes.append(f"{self._out} can't be played: {why}")


def part_of(out: Path) -> Path:
    """Return the path of the file that a session writes until it ends."""
    return out.with_name(f"{out.name}.part")


def reserve(out: Path, *, force: bool) -> Path:
    """Create the empty unfinished file of a recording that replaces no other, and return the recording's path.

    The path is ``out``, or the first free one of film-2.mkv, film-3.mkv and so on, so that a service which is restarted
    goes on recording. If ``force`` is set, a finished recording may be replaced. An unfinished recording is never
    replaced, because its session was killed, or still writes.

    Raises:
        OSError: no file can be created there.

    """
    path, number, why = out, 1, ""
    while True:
        if not force and os.path.lexists(path):
            why = why or f"{path} exists, and --force is not given"
        else:
            try:
                part_of(path).touch(exist_ok=False)
            except FileExistsError:
                why = why or f"{part_of(path)} is the unfinished recording of another session"
            else:
                if why:
                    print(f"{why}, so the stream is written to {path}", file=sys.stderr)
                return path
        number += 1
        path = out.with_name(f"{out.stem}-{number}{out.suffix}")


def unwritten(name: str, codec: str, error: BaseException, kept: str) -> UnwrittenError:
    """Create the error for a stream that could not be written.

    FFmpeg also refuses frames that it can't parse. The cause is then the stream, not the disk.
    """
    import av

    if not isinstance(error, av.error.InvalidDataError):
        return UnwrittenError.of(name, error, kept)
    problem = f"can't be written, because the frames that came are not valid {codec}"
    return UnwrittenError(name, problem, f"check the codec, and whether the stream is encrypted; {kept}")


_LOOKED_AT = 300
"""The largest number of frames that are decoded to test a recording. They are about the first GOP."""


def unplayable(path: Path, form: str | None) -> str | None:
    """Return the reason why no picture of a recording's first GOP can be decoded. Return `None` if one can be decoded.

    ``form`` is FFmpeg's name for the format of a raw stream.
    """
    import av

    level, seen = av.logging.get_level(), 0
    av.logging.set_level(av.logging.PANIC)
    try:
        with files.media(path, "r", form=form) as recording:
            film = recording.streams.video[0]
            for packet in itertools.islice(recording.demux(film), _LOOKED_AT):
                seen += bool(packet.size)
                # Ignore errors of packets before the first key frame, which can't be decoded.
                with contextlib.suppress(av.error.FFmpegError, EOFError, ValueError):
                    if film.codec_context.decode(packet):
                        return None
    except (av.error.FFmpegError, OSError, ValueError, IndexError) as error:
        return f"it can't be read ({reason(error)})"
    finally:
        av.logging.set_level(level)
    return f"of its first {view.counted(seen, 'frame', 'frames')} none can be decoded"


def playout_of(options: Options) -> float | None:
    """Return the play-out delay in seconds. Return `None` if frames are passed on when they arrive."""
    if options.playout is None:
        return None
    delay = session.span(options.playout, "--playout")
    if options.play is None:
        raise UserError(f"--playout {options.playout}", "there is no player to wait for", "give --play, too")
    if delay > LONGEST_PLAYOUT_S:
        remedy = f"write {LONGEST_PLAYOUT_S:g}s or less"
        raise UserError(f"--playout {options.playout}", "so many frames can't wait", remedy)
    return delay


def container_of(out: Path, codec: str) -> str | None:
    """Return the container format that belongs to a file name. Return `None` for a raw stream."""
    endings = stream.FORMS[codec].endings
    if out.suffix.lower() in endings:
        return None
    name, problem = _offered(out, codec)
    if name is not None and not problem:
        return name
    others = (
        e
        for e in (".mkv", ".mp4", ".avi")
        if e != out.suffix.lower() and not _offered(Path(f"x{e}"), codec)[1]
    )
    other = "".join(f"{ending}, or in " for ending in itertools.islice(others, 1))
    remedy = f"name a file that ends in {other}{endings[0]} for the stream as it arrives"
    raise UserError(f"--out {out}", problem, remedy)


def _offered(out: Path, codec: str) -> tuple[str | None, str]:
    """Return the container format that belongs to a file name, and the reason why it can't store this codec.

    The reason is empty if the container can store it.
    """
    import av

    try:
        with files.media(out, "w") as target:
            name = target.format.name
            if (name, codec) in _UNTOLD:
                return name, f"the container {name} has no name for {codec}"
            try:
                target.add_stream(stream.FORMS[codec].codec)
            except (av.error.FFmpegError, ValueError):
                return name, f"the container {name} takes no {codec}"
            return name, ""
    except (av.error.FFmpegError, OSError, ValueError):
        return None, "no container has this ending"


def _units(
    source: BinaryIO, codec: str, frames: Sequence[tuple[int, int]], head: bytes
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yield each frame of a raw stream: its index, its presentation time, and its data."""
    source.seek(len(stream.head(codec, head)))
    before = len(stream.framed(codec, 0, b""))
    for n, (ticks, size) in enumerate(frames):
        source.seek(before, io.SEEK_CUR)
        yield n, (ticks, source.read(size))


def contain(
    raw: Path, out: Path, container: str, codec: str, frames: Sequence[tuple[int, int]], head: bytes
) -> None:
    """Copy a raw stream into a container. If there is an error, leave no file ``out`` behind.

    ``frames`` contains times in 1/90000 s and sizes in bytes. ``head`` is the decoder's configuration.
    """
    import av

    remedy = f"the received stream is in {raw} ({codec})"
    try:
        with files.whole(out, remedy) as new, raw.open("rb") as source:
            growing = Growing(new, container, codec, head)
            if not growing.begin(source):
                raise ValueError("no key frame arrived, and only key frames have the headers that it needs")
            # Leave out the frames before the first key frame, because they can't be decoded.
            keys = (
                n
                for n, (_, data) in _units(source, codec, frames, head)
                if session.live_core().is_key_frame(codec, data)
            )
            first = next(keys, 0)
            for n, (ticks, data) in _units(source, codec, frames, head):
                if n >= first:
                    growing.add(ticks, data)
            growing.close()
    except (av.error.FFmpegError, ValueError, IndexError) as error:
        problem = f"the stream can't be put into this container ({reason(error)})"
        raise UnwrittenError(str(out), problem, remedy) from error


def receive(options: Options) -> Received:
    """Receive until the sender's BYE, the end of the time limit, or a signal."""
    with Draft(options.folder, force=options.force) if options.folder is not None else nullcontext() as draft:
        length = session.span(options.duration, "--for") if options.duration else None
        settings = settings_of(options)
        _ = playout_of(options)
        with outlets.Outlets(options.outlets, "receive", options.name or options.what) as told:
            return _begin(settings, options, length, draft, told)


def settings_of(options: Options, *, tell: bool = True) -> Json:
    """Convert the options to the core's format."""
    path = Path(options.what)
    text, at, interface = None, options.what, options.interface
    # Text that begins with "v=" is a session description (RFC 8866).
    if "\n" in options.what or options.what.startswith("v="):
        text, at = options.what, "the description"
    elif path.suffix == ".sdp" or _is_file(path):
        with files.readable(path, f"name the file that the sender wrote{named(' with --sdp', '')}"):
            text = path.read_text(encoding="utf-8", errors="replace")
    else:
        at, interface = session.resolved(options.what, interface, tell=tell)
    return {
        "sdp": text,
        "at": at,
        "codec": options.codec,
        "interface": interface,
        "ttl": None,
        "source": options.source,
        "mux": options.mux,
        "local": None,
        "key": session.read_key(options.key_file),
        **session.play_out(options.buffer, options.consume),
        "latency_s": session.span(options.latency, "--latency") if options.latency is not None else None,
        "give_up_s": None if options.give_up == "never" else session.span(options.give_up, "--give-up"),
        "cname": options.name or session.own_name(),
    }


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no file can have this name
        return False


def need_pictures(receiver: Any, what: str) -> None:
    """Raise an error for a stream that can't be decoded, and stop its `receiver`."""
    if receiver.codec is not None:
        return
    offered, other_clock = receiver.offered, receiver.other_clock
    receiver.stop()
    if other_clock is not None:
        name, number, clock = other_clock
        problem = f"its {name} packets (payload type {number}) have a clock of {clock} Hz, and here video has 90000 Hz"
        raise UserError(what, problem, "have the sender use the clock of 90000 Hz")
    if offered is not None:
        from steadycast.media.ladder import CODECS

        remedy = f"have the sender send one of {', '.join(CODECS)}"
        raise UserError(what, f"it offers {offered or 'nothing'}, of which no pictures can be had", remedy)
    raise UserError(
        what,
        "the payload format is not known, so no pictures can be had of it",
        "give the sender's .sdp file, or --codec",
    )


def _begin(
    settings: Json, options: Options, length: float | None, draft: Draft | None, told: outlets.Outlets
) -> Received:
    receiver = session.live_core().Receiver(settings)
    wants = options.out is not None or options.play is not None or options.reference is not None
    if wants:
        need_pictures(receiver, options.what)
    try:
        sink = Sink(receiver, options) if wants else None
    except UserError:
        receiver.stop()
        raise
    told.begun()
    # Ignore Ctrl-C, because it is the regular end of a session.
    with contextlib.suppress(KeyboardInterrupt):
        print(
            f"receiving at {receiver.address}, controller {receiver.controller or 'not named'}",
            file=sys.stderr,
        )
        _watch(receiver, options, length, told)
    with signals.held():
        return _record(receiver, sink, options, draft)


def _watch(receiver: Any, options: Options, length: float | None, told: outlets.Outlets) -> None:
    until = time.monotonic() + length if length is not None else float("inf")
    keyed = options.key_file is not None
    watch = view.Watch(
        view.receive_line,
        lambda status: view.receive_view(status, receiver.address),
        lambda status: view.receive_hints(status, receiver.address),
    )
    with contextlib.suppress(OSError), watch:
        shown = lambda status: watch.show({**status, "keyed": keyed} if status else None)  # noqa: E731
        watch.follow(receiver, until, told.look, shown)


def _record(receiver: Any, sink: Sink | None, options: Options, draft: Draft | None) -> Received:
    """Write the stream and the record. If one of them can't be written, still write the other."""
    record = receiver.finish()
    summary = session.summary_of(record)
    if ended_by := summary["flows"][0]["receivers"][0].get("ended_by"):
        print(f"ended by {ended_by}", file=sys.stderr)
    failed: list[UserError] = []
    if sink is not None:
        try:
            sink.finish()
        except UserError as error:
            failed.append(error)
        summary["warnings"] += sink.notes + [str(error) for error in failed]
        if options.reference is not None:
            from steadycast import record as record_of
            from steadycast.live.quality import measure

            try:
                ticks, units = [ticks for ticks, _ in sink.kept], [data for _, data in sink.kept]
                seen = measure(options.reference, sink.codec, receiver.config, ticks, units, receiver.size)
                row = summary["flows"][0]["receivers"][0]
                record_of.put_unknown(row, ("psnr_db.raw.y", "ssim", "mos.mean"))
                record_of.put(row, "receiver", seen)
            except UserError as error:
                failed.append(error)
    if draft is not None:
        try:
            session.write(record, summary, draft, sdp=None)
        except UserError as error:
            failed.append(error)
    for more in failed[1:]:
        print(f"steadycast: {more}", file=sys.stderr)
    if failed:
        raise failed[0]
    unused = (json.loads(receiver.status()) or {}).get("unused_said", ())
    return Received(summary, record.silent, tuple(unused))
