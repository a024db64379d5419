"""`steadycast receive`: what a sender sends, into a file, a player or nowhere."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from steadycast.errors import MissingError, UserError
from steadycast.live import session, view

Json = dict[str, Any]

_RAW = {
    "mpeg4": (".m4v", ".cmp"),
    "mpeg2": (".m2v", ".mpv"),
    "h263": (".h263", ".263"),
    "h264": (".h264", ".264", ".avc"),
}
_DEMUXERS = {"mpeg4": "m4v", "mpeg2": "mpegvideo", "h263": "h263", "h264": "h264"}


@dataclass(frozen=True)
class Options:
    """As the command line has them."""

    what: str
    source: str | None = None
    out: Path | None = None
    play: str | None = None
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


class Sink:
    """Takes frames in a thread of its own, and hands them to a file and a player."""

    def __init__(self, receiver: Any, options: Options) -> None:
        self._receiver = receiver
        self.codec: str = receiver.codec
        self.ticks: list[int] = []
        self.units: list[bytes] = []
        self.damaged = 0
        self._keep = options.reference is not None
        self._play: subprocess.Popen[bytes] | None = None
        self._raw: BinaryIO | None = None
        self._out = options.out
        self._scratch: Path | None = None
        self._place = Path()
        self._head: bytes = receiver.config
        self.notes: list[str] = []
        if options.out is not None:
            self._place = options.out
            if options.out.suffix.lower() not in _RAW[self.codec]:
                self._scratch = self._place = options.out.with_name(options.out.name + ".part")
            try:
                self._raw = self._place.open("wb")
            except OSError as error:
                raise UserError(
                    str(self._place), f"can't be written ({error.strerror})", "name another file"
                ) from error
            self._raw.write(self._head)
        if options.play is not None:
            words = shlex.split(options.play)
            try:
                self._play = subprocess.Popen(words, stdin=subprocess.PIPE)
            except (OSError, IndexError) as error:
                raise MissingError(
                    f"--play {options.play}", f"can't be started ({error})", "name a program that is here"
                ) from error
            self._feed(self._head)
        receiver.want_frames()
        self.thread = threading.Thread(target=self._run, daemon=True, name="frames")
        self.thread.start()

    def _run(self) -> None:
        while True:
            frames = self._receiver.frames(0.5)
            if frames is None:
                break
            for ticks, damaged, _, data in frames:
                self.damaged += damaged
                self.ticks.append(ticks)
                if self._keep:
                    self.units.append(data)
                if self._raw is not None:
                    self._raw.write(data)
                self._feed(data)
        if self._raw is not None:
            self._raw.close()
        if self._play is not None and self._play.stdin is not None:
            with contextlib.suppress(OSError):
                self._play.stdin.close()
            try:
                self._play.wait(5)
            except subprocess.TimeoutExpired:
                self._play.terminate()

    def _feed(self, data: bytes) -> None:
        if self._play is None or self._play.stdin is None:
            return
        try:
            self._play.stdin.write(data)
            self._play.stdin.flush()
        except OSError:
            # The player was closed: receiving goes on.
            self.notes.append("the player ended before the stream")
            self._play = None

    def finish(self) -> None:
        """Wait for the last frame, and put the stream into its container."""
        self.thread.join(10)
        if self._scratch is not None and self._out is not None:
            try:
                _contain(self._scratch, self._out, self.codec, self.ticks)
            finally:
                self._scratch.unlink(missing_ok=True)


def _contain(raw: Path, out: Path, codec: str, ticks: list[int]) -> None:
    """Copy a raw stream into the container that the file's name asks for, with the times of its frames."""
    from fractions import Fraction

    import av

    try:
        with av.open(str(raw), format=_DEMUXERS[codec]) as source, av.open(str(out), "w") as target:
            stream = source.streams.video[0]
            copied = target.add_stream_from_template(stream)
            copied.time_base = clock = Fraction(1, 90_000)
            units = [packet for packet in source.demux(stream) if packet.size]
            # A damaged frame may fall apart into two, or vanish: then the frames follow each other evenly.
            even = ticks[-1] // max(len(ticks) - 1, 1) if ticks else 3600
            exact = len(units) == len(ticks)
            for number, packet in enumerate(units):
                packet.stream = copied
                packet.time_base = clock  # not the stream's, which the container changes with its header
                packet.pts = packet.dts = ticks[number] if exact else number * even
                target.mux(packet)
    except (av.error.FFmpegError, OSError, ValueError, IndexError) as error:
        raise UserError(
            str(out),
            f"the stream can't be put into this container ({error})",
            f"name a file that ends in .mkv, or in {_RAW[codec][0]} for the stream as it came",
        ) from error


def receive(options: Options) -> Json:
    """Receive until the sender says BYE, the time is over, or somebody presses Ctrl-C; return the summary.

    Raises:
        UserError: an option, an address or the description can't be used.
        MissingError: the player is not here.

    """
    length = session.span(options.duration, "--for") if options.duration else None
    path = Path(options.what)
    text = None
    if path.suffix == ".sdp" or path.is_file():
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError(
                str(path),
                f"can't be read ({error.strerror})",
                "name the file that the sender wrote with --sdp",
            ) from error
    settings = {
        "sdp": text,
        "at": options.what,
        "codec": options.codec,
        "interface": options.interface,
        "ttl": None,
        "source": options.source,
        "mux": options.mux,
        "local": None,
        "key": session.read_key(options.key_file),
        **session.play_out(options.buffer, options.consume),
        "cname": options.name or session.own_name(),
    }
    try:
        receiver = session.core().Receiver(settings)
    except ValueError as error:
        raise session.refused(error) from None
    wants = options.out is not None or options.play is not None or options.reference is not None
    if wants and receiver.codec is None:
        receiver.stop()
        raise UserError(
            options.what,
            "the payload format is not known, so no pictures can be had of it",
            "give the sender's .sdp file, or --codec",
        )
    if wants and receiver.codec not in _RAW:
        receiver.stop()
        raise UserError(
            options.what,
            f"pictures in {receiver.codec} are not decoded yet",
            f"receive it without --out, --play and --reference, or have it sent in {', '.join(_RAW)}",
        )
    try:
        sink = Sink(receiver, options) if wants else None
    except UserError:
        receiver.stop()
        raise
    print(
        f"receiving at {receiver.address}, controller {receiver.controller or 'not named'}", file=sys.stderr
    )
    return _follow(receiver, sink, options, length)


def _follow(receiver: Any, sink: Sink | None, options: Options, length: float | None) -> Json:
    until = time.monotonic() + length if length is not None else float("inf")
    watch = view.Watch(
        view.receive_line,
        lambda status: view.receive_view(status, receiver.address),
        lambda status: view.receive_hints(status, receiver.address),
    )
    with watch:
        try:
            while not receiver.done and time.monotonic() < until:
                time.sleep(max(0.0, min(watch.period_s, until - time.monotonic())))
                watch.show(json.loads(receiver.status()))
        except KeyboardInterrupt:
            pass
    try:
        record = receiver.finish()
    except ValueError as error:
        raise session.refused(error) from None
    summary = session.summary_of(record, complete=True)
    if ended_by := summary["flows"][0]["receivers"][0].get("ended_by"):
        print(f"ended by {ended_by}", file=sys.stderr)
    if sink is not None:
        sink.finish()
        summary["warnings"] += sink.notes
        if options.reference is not None:
            from steadycast.live.quality import measure

            seen = measure(options.reference, sink.codec, receiver.config, sink.ticks, sink.units)
            summary["flows"][0]["receivers"][0].update(seen)
    if options.folder is not None:
        session.write(record, summary, options.folder, force=options.force, sdp=None)
    return summary
