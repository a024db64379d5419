"""After any end of a session, the received file and its record exist, and the exit code gives the reason."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from av.video.frame import PictureType
from hypothesis import given, settings
from hypothesis import strategies as st
from steadycast.errors import UnwrittenError, UserError
from steadycast.folder import Folder
from steadycast.live import container, receive, send, session
from steadycast.live.encoder import Encoder, Shape
from steadycast.media import stream
from steadycast.media.clip import scaled
from steadycast.media.ladder import CODECS

from tests.conftest import bounded, no_room, ran, started, until
from tests.live.conftest import listening, needs, needs_networks, ports, steadycast

TICKS = [3600 * n for n in range(20)]


def start(*words: str | Path, most: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    """Begins a command whose files can't grow beyond ``most`` bytes."""
    return started(steadycast(*words), **no_room(most))


@contextmanager
def sending(port: int, folder: Path, *more: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A sender of the test pattern, which ends with the test at the latest."""
    sdp = folder / "session.sdp"
    words = ("--to", f"127.0.0.1:{port}", "--for", "120s", "--max-rate", "800kbps", "--sdp", sdp)
    sender = start("send", "testsrc", *words, *more)
    try:
        until(sdp.exists, "no description")
        yield sender
    finally:
        sender.kill()
        sender.communicate()


def one_line(said: str) -> str:
    """The one line of an error, after the status lines."""
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if line.startswith("steadycast: ")]
    return line


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("to_receiver", "to_sender"),
    [((signal.SIGHUP,), (signal.SIGTERM,)), ((signal.SIGINT, signal.SIGINT),) * 2],
    ids=["HUP and TERM", "INT twice"],
)
def test_signals_end_both_ends_with_whole_records(
    to_receiver: tuple[signal.Signals, ...], to_sender: tuple[signal.Signals, ...], port: int, tmp_path: Path
) -> None:
    film = tmp_path / "film.mkv"
    words = ("receive", tmp_path / "session.sdp", "--out", film, "-o", tmp_path / "received")
    with sending(port, tmp_path, "-o", tmp_path / "sent") as sender, bounded(start(*words)) as receiver:
        part = tmp_path / "film.mkv.part"
        until(lambda: part.exists() and part.stat().st_size > 50_000, "nothing was received")
        for end, blows in ((receiver, to_receiver), (sender, to_sender)):
            for blow in blows:
                end.send_signal(blow)
                time.sleep(0.2)
            _, said = end.communicate(timeout=60)
            assert end.returncode == 0, said
            assert "Traceback" not in said
    assert Folder.open(tmp_path / "received").summary["complete"] is True
    sent = Folder.open(tmp_path / "sent").summary
    assert sent["complete"] is True
    # The receiver sent BYE, so the sender has not waited for it to time out.
    assert sent["flows"][0]["receivers"]
    with av.open(str(film)) as found:
        assert sum(1 for packet in found.demux(video=0) if packet.size) > 5
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.lock"))


def test_the_second_interrupt_does_not_cut_a_table_off_that_is_being_written(tmp_path: Path) -> None:
    program = f"""
import os, signal, threading
from steadycast import signals
with signals.obeyed():
    import numpy, polars
    table = polars.DataFrame({{"x": numpy.random.default_rng(1).random(6_000_000)}})
    try:
        os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit("the first interrupt ended nothing")
    except KeyboardInterrupt:
        pass
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    while timer.is_alive():
        table.write_parquet({str(tmp_path / "table.parquet")!r}, compression="zstd", compression_level=9)
"""
    done = ran([sys.executable, "-c", program])
    assert (done.returncode, done.stderr) == (0, "steadycast: ending; once more to abort\n")


def test_a_receiver_gives_a_sender_up_that_ended_without_a_bye(port: int, tmp_path: Path) -> None:
    film = tmp_path / "x.m4v"
    words = ("receive", tmp_path / "session.sdp", "--out", film, "--json", "--give-up", "1s")
    with sending(port, tmp_path) as sender, bounded(start(*words)) as receiver:
        part = tmp_path / "x.m4v.part"
        until(lambda: part.exists() and part.stat().st_size > 20_000, "nothing was received")
        sender.kill()
        told, said = receiver.communicate(timeout=60)
    assert receiver.returncode == 0, said
    # Five intervals of this session (RFC 3550, 6.2.1) are longer than the requested second.
    found = re.search(r"ended by silence: nothing came for (\d+) s", said)
    assert found, said
    assert 5 <= int(found[1]) < 30, said
    (row,) = json.loads(told)["flows"][0]["receivers"]
    assert row["ended_by"].startswith("silence"), row
    assert film.stat().st_size > 20_000


STOOD_STILL_S = 17
"""Seconds for which an end is stopped: longer than the circuit breaker's 15 s, and than five reporting intervals."""


def test_an_end_that_stood_still_itself_takes_that_for_no_silence_of_the_other(tmp_path: Path) -> None:
    pairs: dict[str, dict[str, subprocess.Popen[str]]] = {}
    with ExitStack() as stack:
        for stopped, port in zip(("receiver", "sender"), ports(2), strict=True):
            folder = tmp_path / stopped
            folder.mkdir()
            give_up = "1s" if stopped == "receiver" else "60s"
            words = ("receive", folder / "session.sdp", "--out", folder / "x.m4v", "--give-up", give_up)
            pairs[stopped] = {
                "sender": stack.enter_context(sending(port, folder, "--events", folder / "events.jsonl")),
                "receiver": stack.enter_context(bounded(start(*words))),
            }
        parts = {stopped: tmp_path / stopped / "x.m4v.part" for stopped in pairs}
        for part in parts.values():
            until(lambda: part.exists() and part.stat().st_size > 50_000, "nothing was received")  # noqa: B023
        before = {stopped: part.stat().st_size for stopped, part in parts.items()}
        for stopped, pair in pairs.items():
            pair[stopped].send_signal(signal.SIGSTOP)
        time.sleep(STOOD_STILL_S)
        for stopped, pair in pairs.items():
            pair[stopped].send_signal(signal.SIGCONT)
        for stopped, pair in pairs.items():
            enough = before[stopped] + 100_000
            until(lambda: parts[stopped].stat().st_size > enough, f"{stopped}: nothing came after the pause")  # noqa: B023
            assert [end.poll() for end in pair.values()] == [None, None], stopped
            pair["receiver"].send_signal(signal.SIGTERM)
            _, said = pair["receiver"].communicate(timeout=60)
            assert pair["receiver"].returncode == 0, (stopped, said)
            assert "silence" not in said, stopped
    for stopped in pairs:
        events = (tmp_path / stopped / "events.jsonl").read_text().splitlines()
        rules = [json.loads(line).get("rule") or "" for line in events]
        assert rules, stopped
        # A receiver that was stopped has not reported, so the circuit breaker is right to act.
        if stopped == "sender":
            assert not [rule for rule in rules if rule.startswith("circuit breaker")]


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGHUP])
def test_a_receiver_hears_the_bye_of_a_sender_that_was_ended(
    blow: signal.Signals, port: int, tmp_path: Path
) -> None:
    words = ("receive", tmp_path / "session.sdp", "--out", tmp_path / "x.m4v")
    with sending(port, tmp_path) as sender, bounded(start(*words)) as receiver:
        part = tmp_path / "x.m4v.part"
        until(lambda: part.exists() and part.stat().st_size > 20_000, "nothing was received")
        sender.send_signal(blow)
        assert receiver.wait(30) == 0
        receiver.communicate()
    assert (tmp_path / "x.m4v").stat().st_size > 20_000


def test_a_terminal_that_closes_ends_a_sender_with_its_record(port: int, tmp_path: Path) -> None:
    own, its = os.openpty()

    def lead() -> None:
        os.setsid()
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)

    words = ("send", "greedy", "--to", f"127.0.0.1:{port}", "--max-rate", "300kbps", "-o", tmp_path / "sent")
    with bounded(
        subprocess.Popen(
            steadycast(*words), stdin=its, stdout=its, stderr=its, preexec_fn=lead, close_fds=True
        )
    ) as sender:
        os.close(its)
        try:
            shown, end = b"", time.monotonic() + 60
            while b"pacer" not in shown:
                ready, _, _ = select.select([own], [], [], max(end - time.monotonic(), 0.0))
                assert ready, shown
                shown += os.read(own, 4096)
        finally:
            os.close(own)
        # The last lines can't be written to the closed terminal, but the record is complete.
        assert sender.wait(60) in (0, 4)
    assert Folder.open(tmp_path / "sent").summary["complete"] is True


# # ---------------------------------------------------------------- files that can't be written


@pytest.mark.parametrize("name", ["film.m4v", "film.mkv"])
def test_a_full_disk_ends_a_receiver_with_4_and_keeps_what_came(name: str, port: int, tmp_path: Path) -> None:
    most = 150_000
    words = ("receive", tmp_path / "session.sdp", "--out", tmp_path / name, "-o", tmp_path / "received")
    with sending(port, tmp_path), bounded(start(*words, most=most)) as receiver:
        _, said = receiver.communicate(timeout=90)
    assert receiver.returncode == 4, said
    kept = tmp_path / f"{name}.part"
    assert one_line(said) == (
        f"steadycast: {tmp_path / name}: can't be written (File too large); the stream until then is in {kept}"
    )
    assert kept.stat().st_size == most
    assert not (tmp_path / name).exists()
    record = Folder.open(tmp_path / "received").summary
    assert record["complete"] is True
    assert any("can't be written" in warning for warning in record["warnings"])


def test_a_record_that_finds_no_room_leaves_the_stream(port: int, tmp_path: Path) -> None:
    with sending(port, tmp_path):
        (tmp_path / "received.part").write_text("")
        words = ("--out", tmp_path / "x.m4v", "-o", tmp_path / "received", "--for", "60s")
        with bounded(start("receive", tmp_path / "session.sdp", *words)) as receiver:
            assert receiver.wait(30) == 2
            assert "received.part: this is a file" in one_line(receiver.communicate()[1])
        (tmp_path / "received.part").unlink()
        with bounded(start("receive", tmp_path / "session.sdp", *words)) as receiver:
            part = tmp_path / "x.m4v.part"
            until(lambda: part.exists() and part.stat().st_size > 20_000, "nothing was received")
            # From now on no file can grow.
            resource.prlimit(receiver.pid, resource.RLIMIT_FSIZE, (10, 10))
            receiver.send_signal(signal.SIGTERM)
            _, said = receiver.communicate(timeout=60)
    assert receiver.returncode == 4, said
    assert "can't be written (File too large)" in said
    assert not (tmp_path / "received").exists()
    assert not list(tmp_path.rglob("*.new"))
    assert max(each.stat().st_size for each in tmp_path.glob("x.m4v*")) > 20_000


class Fake:
    """A receiver of frames without a network."""

    codec = "mpeg4"
    config = b""
    has_audio = False

    def __init__(self, frames: Iterable[Any], overrun: int = 0) -> None:
        self._frames = iter(frames)
        self._overrun = overrun
        self.stopped = False

    def status(self) -> str:
        return json.dumps({"overrun": self._overrun})

    def want_frames(self) -> None:
        """Takes no notice."""

    def frames(self, _: float) -> list[Any] | None:
        return next(self._frames, None)

    def stop(self) -> None:
        self.stopped = True


@settings(deadline=None, max_examples=60)
@given(sessions=st.lists(st.tuples(st.sampled_from(["ended", "killed"]), st.booleans()), max_size=8))
def test_no_session_replaces_an_unfinished_recording_or_without_force_a_finished_one(
    sessions: list[tuple[str, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out, expected = Path(folder) / "wall.mkv", {}
        for number, (fate, force) in enumerate(sessions):
            path = receive.reserve(out, force=force)
            part = receive.part_of(path)
            assert part.read_bytes() == b""
            part.write_text(f"{number}")
            if fate == "ended":
                part.replace(path)
            assert force or path not in expected, "a finished recording is replaced"
            assert part not in expected, "an unfinished recording is replaced"
            expected[path if fate == "ended" else part] = f"{number}"
        assert {path: path.read_text() for path in Path(folder).iterdir()} == expected


def test_a_service_that_is_restarted_goes_on_recording_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.m4v"
    for data, force in ((b"abc", False), (b"def", False), (b"ghi", True)):
        fake = Fake([[(0, False, True, 0.0, data)]])
        receive.Sink(fake, receive.Options(what="x", out=out, force=force)).finish()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "x.m4v": b"ghi",
        "x-2.m4v": b"def",
    }
    said = f"{out} exists, and --force is not given, so the stream is written to {tmp_path / 'x-2.m4v'}\n"
    assert capsys.readouterr().err == said


def test_whatever_the_writing_thread_raises_ends_the_session_and_is_told(tmp_path: Path) -> None:
    fake = Fake(
        [
            [(0, False, True, 0.0, b"abc")],
            [(3600, False, True, 0.1, "no bytes")],
            [(7200, False, True, 0.2, b"d")],
        ]
    )
    sink = receive.Sink(fake, receive.Options(what="x", out=tmp_path / "x.m4v"))
    with pytest.raises(
        UnwrittenError, match=r"x\.m4v: can't be written .*the stream until then is in .*x\.m4v\.part"
    ):
        sink.finish()
    assert fake.stopped
    assert [each.name for each in tmp_path.iterdir()] == ["x.m4v.part"]
    assert (tmp_path / "x.m4v.part").read_bytes() == b"abc"


def test_a_stream_that_no_container_takes_at_the_end_is_kept(tmp_path: Path) -> None:
    sink = receive.Sink(
        Fake([[(0, False, True, 0.0, b"no picture")]]), receive.Options(what="x", out=tmp_path / "x.mkv")
    )
    kept = f"the received stream is in {tmp_path / 'x.mkv.part'} \\(mpeg4\\)"
    with pytest.raises(UnwrittenError, match=f"can't be put into this container .*; {kept}"):
        sink.finish()
    assert [each.name for each in tmp_path.iterdir()] == ["x.mkv.part"]
    assert (tmp_path / "x.mkv.part").read_bytes() == b"no picture"


def test_a_player_that_pauses_costs_the_file_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive.Player, "_PATIENCE_S", 0.2)
    frames = [(3600 * n, False, True, 0.0, f"{n:05}".encode() * 200) for n in range(2000)]
    fake = Fake([[frame] for frame in frames], overrun=3)
    sink = receive.Sink(fake, receive.Options(what="x", out=tmp_path / "x.m4v", play="sleep 60"))
    sink.thread.join(30)
    assert not sink.thread.is_alive()
    sink.finish()
    assert (tmp_path / "x.m4v").read_bytes() == b"".join(frame[-1] for frame in frames)
    ended, told, overrun, unplayable = sink.notes
    assert unplayable.startswith(f"{tmp_path / 'x.m4v'} can't be played: ")
    assert ended == "the player did not read the stream to its end, and was ended"
    left_out = re.fullmatch(r"(\d+) frames were not given to the player, which did not read in time", told)
    assert left_out is not None
    # The pipe holds 64 KiB and the queue 256 frames.
    assert 1_600 < int(left_out[1]) < 1_750
    assert overrun == "3 frames were not written in time"


def test_a_player_reads_all_and_is_waited_for_and_one_that_ends_early_is_told(tmp_path: Path) -> None:
    frames = [[(3600 * n, False, True, 0.0, b"%05d" % n)] for n in range(100)]
    sink = receive.Sink(
        Fake(frames), receive.Options(what="x", play=f"dd of={tmp_path / 'seen'} status=none")
    )
    sink.finish()
    assert (tmp_path / "seen").read_bytes() == b"".join(frame[0][-1] for frame in frames)
    assert sink.notes == []
    # More data than a pipe holds, and fewer frames than the queue holds.
    much = [[(3600 * n, False, True, 0.0, bytes(1000))] for n in range(200)]
    sink = receive.Sink(Fake(much), receive.Options(what="x", play="true"))
    sink.finish()
    assert sink.notes == ["the player ended before the stream"]


def test_a_play_out_delay_gives_a_player_no_frame_before_its_time_however_they_come(tmp_path: Path) -> None:
    # Frames arrive complete, up to 40 ms later than the first one. The player logs when it read each frame.
    chance = random.Random(1)
    ends = [0.01 * n + (chance.uniform(0, 0.04) if n else 0) for n in range(30)]
    read = "import sys, time\nfor line in sys.stdin: print(line.strip(), time.monotonic())"
    words = ["sh", "-c", f'exec "$0" -c "$1" > {tmp_path}/seen', sys.executable, read]
    player = receive.Player(words, 0.1)
    began = time.monotonic()
    for n, end in sorted(enumerate(ends), key=lambda each: max(ends[: each[0] + 1])):
        time.sleep(max(0.0, began + end - time.monotonic()))
        player.take(b"%d\n" % n, 900 * n)
    assert player.finish() == []
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert [int(n) for n, _ in seen] == list(range(30))
    assert min(float(at) - began - 0.01 * n for n, (_, at) in enumerate(seen)) >= 0.1


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_players_pipe_tells_each_picture_without_the_next_one(streams: Path, codec: str) -> None:
    with av.open(str(streams / codec), format=stream.FORMS[codec].demuxer) as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    reader = av.CodecContext.create(stream.FORMS[codec].codec, "r")
    told = [len(reader.parse(stream.closed(codec, 3600 * n, unit))) for n, unit in enumerate(units)]
    assert told == [1] * len(TICKS)
    # A stream that already has delimiters gets no additional ones.
    own = stream.FORMS[codec].delimiter + units[0]
    assert stream.closed(codec, 0, own) == own


@pytest.mark.parametrize(("delay", "play"), [("500ms", None), ("1min", "true"), ("soon", "true")])
def test_a_play_out_delay_that_cannot_be_is_refused(delay: str, play: str | None) -> None:
    with pytest.raises(UserError, match="--playout"):
        receive.playout_of(receive.Options(what="x", playout=delay, play=play))


def test_a_device_takes_the_stream_itself(tmp_path: Path) -> None:
    fifo = tmp_path / "x.m4v"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
    receive.Sink(Fake([[(0, False, True, 0.0, b"abc")]]), receive.Options(what="x", out=fifo)).finish()
    assert reader.communicate(timeout=10)[0] == b"abc"
    assert fifo.is_fifo()


@pytest.mark.parametrize(
    ("rate", "pause_s", "told"), [(1_000, 0, True), (9_000, 0, True), (90_000, 0, False), (90_000, 9, False)]
)
def test_time_stamps_that_stay_behind_the_time_in_which_frames_come_are_told(
    rate: int, pause_s: int, told: bool, tmp_path: Path
) -> None:
    # Five seconds of a sender that pauses, and of another one whose data is read as fast as possible.
    frames = [(n * rate // 25, False, True, n / 25 + (n > 60) * pause_s, b"abc") for n in range(125)]
    for all_of_them in (frames, [(ticks, bad, whole, 0.0, data) for ticks, bad, whole, _, data in frames]):
        sink = receive.Sink(Fake([all_of_them]), receive.Options(what="x", out=tmp_path / "x.m4v"))
        sink.finish()
        said = [note for note in sink.notes if "time stamps" in note]
        assert bool(said) == (told and all_of_them is frames), said


# ---------------------------------------------------------------- containers


def read_frames(raw: Path, codec: str) -> list[tuple[int, bool, bool, float, bytes]]:
    """The frames of a raw stream in the receiver's format."""
    with av.open(str(raw), format=stream.FORMS[codec].demuxer) as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    return [(ticks, False, True, 0.0, unit) for ticks, unit in zip(TICKS, units, strict=True)]


@pytest.mark.parametrize("ending", [".m4v", ".mkv", ".mp4", ".avi", ".ts"])
@pytest.mark.parametrize("others", [(), ("play",), ("reference",), ("play", "reference")])
def test_a_full_disk_ends_the_recording_and_what_is_left_goes_on(
    ending: str,
    others: tuple[str, ...],
    streams: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, seen = tmp_path / f"film{ending}", tmp_path / "seen"
    # Every write to this device fails, as on a full disk.
    receive.part_of(out).symlink_to("/dev/full")
    monkeypatch.setattr(receive, "reserve", lambda out, force: out)
    frames = read_frames(streams / "mpeg4", "mpeg4") * 10
    fake = Fake([[frame] for frame in frames])
    sink = receive.Sink(
        fake,
        receive.Options(
            what="x",
            out=out,
            play=f"dd of={seen} status=none" if "play" in others else None,
            reference=tmp_path / "original" if "reference" in others else None,
        ),
    )
    with pytest.raises(UnwrittenError, match="No space left on device"):
        sink.finish()
    assert fake.stopped == (not others)
    assert not out.exists()
    if "play" in others:
        assert seen.read_bytes() == b"".join(frame[-1] for frame in frames)
    if "reference" in others:
        assert len(sink.kept) == len(frames)
    assert capsys.readouterr().err.count("the session goes on without it") == bool(others)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_one_look_at_a_recording_tells_whether_it_can_be_played(
    codec: str, streams: Path, tmp_path: Path
) -> None:
    frames = read_frames(streams / codec, codec)
    for name, taken, plays in (
        ("whole", frames, True),
        ("late", frames[5:], codec not in ("h264", "h265", "vp8", "vp9", "av1") or None),
        ("noise", [(*frame[:4], bytes(reversed(frame[4]))) for frame in frames], False),
    ):
        out = tmp_path / f"{name}{stream.FORMS[codec].endings[0]}"
        fake = Fake([[each] for each in taken])
        fake.codec = codec
        sink = receive.Sink(fake, receive.Options(what="x", out=out))
        sink.finish()
        told = [note for note in sink.notes if "can't be played" in note]
        if plays is not None:
            assert bool(told) == (not plays), (name, sink.notes)


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty frames in each codec, as `send` encodes them, in groups of 12."""
    folder = tmp_path_factory.mktemp("streams")
    with av.open("testsrc2=size=352x288:rate=25", format="lavfi") as source:
        pictures = [
            scaled(frame, 352, 288)
            for frame in itertools.islice(source.decode(video=0), len(TICKS))
            if isinstance(frame, av.VideoFrame)
        ]
    for name, codec in CODECS.items():
        encoder = Encoder(codec, Shape(352, 288, Fraction(25)), 12)
        middle = codec.quantizers[len(codec.quantizers) // 2]
        data = stream.head(name)
        for n, (ticks, samples) in enumerate(zip(TICKS, pictures, strict=True)):
            data += stream.framed(name, ticks, encoder.unit(samples, first=n % 12 == 0, quantizer=middle)[1])
        (folder / name).write_bytes(data)
    return folder


def cut(raw: Path, codec: str, ticks: list[int]) -> list[tuple[int, int]]:
    """The presentation time of each frame of a stream, and its size."""
    with av.open(str(raw), format=stream.FORMS[codec].demuxer) as source:
        return list(zip(ticks, [packet.size for packet in source.demux(video=0) if packet.size], strict=True))


TAKEN = {
    "mpeg4": (".mkv", ".mp4", ".avi", ".mov", ".ts"),
    "mpeg2": (".mkv", ".mp4", ".avi", ".mov", ".ts"),
    "h263": (".avi", ".mov"),
    "h264": (".mkv", ".mp4", ".avi", ".mov", ".ts"),
    "h265": (".mkv", ".mp4", ".mov", ".ts"),
    "vp8": (".mkv", ".webm", ".avi"),
    "vp9": (".mkv", ".webm", ".mp4", ".avi"),
    "av1": (".mkv", ".webm", ".mp4", ".avi"),
}


@pytest.mark.parametrize(
    ("codec", "ending"), [(codec, ending) for codec, some in TAKEN.items() for ending in some]
)
def test_a_container_that_is_accepted_at_the_start_takes_the_stream_at_the_end(
    codec: str, ending: str, streams: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"film{ending}"
    container = receive.container_of(out, codec)
    assert container is not None
    assert not out.exists()
    receive.contain(streams / codec, out, container, codec, cut(streams / codec, codec, TICKS), b"")
    with av.open(str(out)) as film:
        assert sum(1 for packet in film.demux(video=0) if packet.size) == 20


def test_frames_that_are_no_video_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(random.Random(1).randbytes(9_000))
    with pytest.raises(av.error.InvalidDataError) as caught:
        av.open(str(noise), format="matroska")
    error = receive.unwritten("film.mkv", "h264", caught.value, "the stream until then is in film.mkv.part")
    assert "the frames that came are not valid h264" in str(error)
    assert "encrypted; the stream until then is in film.mkv.part" in str(error)
    full = receive.unwritten("film.mkv", "h264", OSError(28, "No space left on device"), "name another file")
    assert str(full) == "film.mkv: can't be written (No space left on device); name another file"


@pytest.mark.parametrize(
    ("codec", "ending"), [(codec, ending) for codec, some in TAKEN.items() for ending in some]
)
def test_a_container_can_be_read_while_it_is_written(
    codec: str, ending: str, streams: Path, tmp_path: Path
) -> None:
    with av.open(str(streams / codec), format=stream.FORMS[codec].demuxer) as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    assert len(units) == 20
    out = tmp_path / f"film{ending}.part"
    growing = container.Growing(out, str(receive.container_of(Path(f"x{ending}"), codec)), codec, b"")
    for ticks, unit in zip([7200 * n for n in range(40)], units * 2, strict=True):
        growing.add(ticks, unit)
    assert growing.begun
    cut = tmp_path / "cut"
    cut.write_bytes(out.read_bytes())
    growing.close()
    for path, least in ((cut, 10), (out, 40)):
        with av.open(str(path)) as film:
            frames = [frame for frame in film.decode(video=0)]
        assert least <= len(frames) <= 40
        assert (frames[0].width, frames[0].height) == (352, 288)
    with av.open(str(out)) as film:
        packets = [packet for packet in film.demux(video=0) if packet.size]
    if ending == ".avi":  # it has no time stamps, and FFmpeg's reader invents some
        return
    assert [n for n, packet in enumerate(packets) if packet.is_keyframe] == [0, 12, 20, 32]
    spans = {round(float((b.pts - a.pts) * b.time_base), 3) for a, b in itertools.pairwise(packets)}
    assert spans == {0.08}


@pytest.mark.parametrize("ending", [".mkv", ".mp4"])
@pytest.mark.parametrize("codec", ["mpeg4", "h264"])
def test_a_frame_that_falls_apart_changes_no_other_ones_time(
    codec: str, ending: str, streams: Path, tmp_path: Path
) -> None:
    frames = cut(streams / codec, codec, TICKS)
    # FFmpeg's reader of the raw stream splits the fourth frame into two.
    both = [*frames[:3], (frames[3][0], frames[3][1] + frames[4][1]), *frames[5:]]
    out = tmp_path / f"film{ending}"
    receive.contain(streams / codec, out, str(receive.container_of(out, codec)), codec, both, b"")
    with av.open(str(out)) as film:
        shown = sorted(
            float(p.pts * p.time_base) for p in film.demux(video=0) if p.size and p.pts is not None
        )
    assert [round((time - shown[0]) * 90_000) for time in shown] == pytest.approx(
        [t for t, _ in both], abs=90
    )


@pytest.mark.parametrize("ending", [".mkv", ".mp4"])
def test_a_stream_that_is_joined_before_its_first_key_frame_lasts_as_long_as_its_frames(
    ending: str, streams: Path, tmp_path: Path
) -> None:
    with av.open(str(streams / "h264"), format="h264") as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    out = tmp_path / f"film{ending}"
    growing = container.Growing(out, str(receive.container_of(out, "h264")), "h264", b"")
    # Ten frames per second, although the stream itself says 25.
    for n, unit in enumerate([*units[5:], *units]):
        growing.add(9000 * n, unit)
    growing.close()
    with av.open(str(out)) as film:
        assert film.duration is not None
        lasts = film.duration / 1e6
    # 35 frames, of which the first seven can't be decoded.
    assert 3.49 <= lasts <= 3.51


@pytest.fixture(scope="module")
def bidirectional() -> list[tuple[int, bytes]]:
    """Forty frames of H.264 with B frames, with their presentation times, in decoding order."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 352, 288, "yuv420p"
    encoder.time_base, encoder.framerate = Fraction(1, 25), Fraction(25)
    encoder.max_b_frames = 3
    encoder.options = {"b_strategy": "0"}
    with av.open("testsrc2=size=352x288:rate=25", format="lavfi") as source:
        pictures = list(itertools.islice(source.decode(video=0), 40))
    pictures = [picture.reformat(format="yuv420p") for picture in pictures]
    for picture in pictures:
        picture.pict_type = PictureType.NONE  # raw pictures request I frames
    units = [packet for picture in [*pictures, None] for packet in encoder.encode(picture)]
    return [(3600 * packet.pts, bytes(packet)) for packet in units if packet.pts is not None]


@pytest.mark.parametrize("ending", [".mkv", ".mp4", ".mov", ".ts"])
@pytest.mark.parametrize("grows", [True, False])
def test_frames_that_are_shown_in_another_order_than_they_come_keep_their_times(
    ending: str, grows: bool, bidirectional: list[tuple[int, bytes]], tmp_path: Path
) -> None:
    shown = [ticks for ticks, _ in bidirectional]
    assert shown[:5] == [0, 14400, 7200, 3600, 10800]
    out = tmp_path / f"film{ending}"
    name = str(receive.container_of(out, "h264"))
    if grows:
        growing = container.Growing(out, name, "h264", b"")
        for ticks, unit in bidirectional:
            growing.add(ticks, unit)
        growing.close()
    else:
        raw = tmp_path / "film.h264"
        raw.write_bytes(b"".join(unit for _, unit in bidirectional))
        sizes = [len(unit) for _, unit in bidirectional]
        receive.contain(raw, out, name, "h264", list(zip(shown, sizes, strict=True)), b"")
    with av.open(str(out)) as film:
        packets = [packet for packet in film.demux(video=0) if packet.size]
    times = [float(packet.pts * packet.time_base) for packet in packets if packet.pts is not None]
    assert [round((time - times[0]) * 25) for time in times] == [ticks // 3600 for ticks in shown]
    assert {round(b - a, 3) for a, b in itertools.pairwise(sorted(times))} == {0.04}
    with av.open(str(out)) as film:
        frames = [frame.pts for frame in film.decode(video=0)]
    assert frames == sorted(packet.pts for packet in packets if packet.pts is not None)


@pytest.mark.parametrize("late", [0, 70], ids=["as it comes", "at the end"])
def test_a_file_whose_relative_name_has_a_colon_takes_the_stream(
    late: int, streams: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with av.open(str(streams / "mpeg4"), format="m4v") as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    frames = [(3600 * n, False, True, 0.0, data) for n, data in enumerate([b"nothing"] * late + units)]
    monkeypatch.chdir(tmp_path)
    name = "2026-11-25T12:30:00.mkv"
    receive.Sink(Fake([frames]), receive.Options(what="x", out=Path(name))).finish()
    assert [each.name for each in tmp_path.iterdir()] == [name]
    with av.open(str(tmp_path / name)) as film:
        assert 19 <= sum(1 for _ in film.decode(video=0)) <= 20


def test_a_stream_that_says_late_what_it_is_is_put_into_its_container_at_the_end(
    streams: Path, tmp_path: Path
) -> None:
    with av.open(str(streams / "mpeg4"), format="m4v") as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    frames = [b"nothing"] * 70 + units
    fake = Fake([[(3600 * n, False, True, 0.0, data)] for n, data in enumerate(frames)])
    sink = receive.Sink(fake, receive.Options(what="x", out=tmp_path / "x.mkv"))
    sink.finish()
    assert [each.name for each in tmp_path.iterdir()] == ["x.mkv"]
    with av.open(str(tmp_path / "x.mkv")) as film:
        assert sum(1 for _ in film.decode(video=0)) >= 19


@pytest.mark.parametrize("ending", [".m4v", ".mkv"])
def test_of_frames_that_are_written_nothing_is_kept(ending: str, streams: Path, tmp_path: Path) -> None:
    with av.open(str(streams / "mpeg4"), format="m4v") as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    taken = []

    def frames() -> Iterator[list[Any]]:
        for n in range(8_000):
            if n in (2_000, 7_999):
                taken.append(tracemalloc.get_traced_memory()[0])
            yield [(3600 * n, False, True, 0.0, units[n % len(units)])]

    tracemalloc.start()
    try:
        receive.Sink(Fake(frames()), receive.Options(what="x", out=tmp_path / f"x{ending}")).finish()
    finally:
        tracemalloc.stop()
    # A Python integer for each frame would take 32 bytes in a list: 80 MB per day at 30 frames per second.
    assert taken[1] - taken[0] < 6_000 * 8, taken


@pytest.mark.parametrize("codec", TAKEN)
@pytest.mark.parametrize("ending", [".mkv", ".mp4", ".ts", ".webm", ".h264", ".nosuch", ""])
def test_a_container_that_is_refused_is_told_with_one_that_is_taken(
    codec: str, ending: str, tmp_path: Path
) -> None:
    if ending in TAKEN[codec] or ending in stream.FORMS[codec].endings:
        return
    with pytest.raises(UserError) as told:
        receive.container_of(tmp_path / f"film{ending}", codec)
    first = TAKEN[codec][0]
    assert told.value.remedy == (
        f"name a file that ends in {first}, or in {stream.FORMS[codec].endings[0]} for the stream as it arrives"
    )
    assert not list(tmp_path.iterdir())


def test_h263_into_matroska_is_refused_before_the_session(tmp_path: Path) -> None:
    sdp = tmp_path / "session.sdp"
    sdp.write_text(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
        "m=video 5998 RTP/AVP 96\r\na=rtpmap:96 H263-1998/90000\r\n"
    )
    receiver = start("receive", sdp, "--out", tmp_path / "x.mkv")
    _, said = receiver.communicate(timeout=60)
    assert receiver.returncode == 2
    assert said == (
        f"steadycast: --out {tmp_path / 'x.mkv'}: the container matroska takes no h263; "
        "name a file that ends in .avi, or in .h263 for the stream as it arrives\n"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["session.sdp"]


# # ---------------------------------------------------------------- sessions without data, and invalid data


def test_a_session_in_which_nothing_came_is_5_with_its_record(port: int, tmp_path: Path) -> None:
    words = ("--codec", "mpeg4", "--out", tmp_path / "x.mkv", "-o", tmp_path / "received", "--for", "1s")
    receiver = start("receive", f"127.0.0.1:{port}", *words)
    _, said = receiver.communicate(timeout=60)
    assert receiver.returncode == 5, said
    assert f"127.0.0.1:{port}: no packet arrived" in one_line(said)
    assert "UserWarning" not in said
    assert Folder.open(tmp_path / "received").summary["complete"] is True
    assert sorted(each.name for each in tmp_path.iterdir()) == ["received"]


def send_h264(port: int, payload_type: int, pictures: int, *, unit: bytes = b"\x65\x88") -> None:
    """Sends H.264 packets, 25 per second, each with a unit that begins with these bytes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for n in range(pictures):
            head = struct.pack("!BBHII", 0x80, 0x80 | payload_type, 1_000 + n, 3_600 * n, 0x51515151)
            out.sendto(head + unit + bytes(100), ("127.0.0.1", port))
            time.sleep(0.04)


def last(status: Path) -> Any:
    """Returns the last complete line of a file with the statuses of a session."""
    return json.loads(status.read_text().rpartition("\n")[0].rpartition("\n")[2])


def described(folder: Path, port: int, types: str, *lines: str) -> Path:
    """Writes a description of video at this port."""
    sdp = folder / "in.sdp"
    head = f"v=0\no=- 1 1 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP {types}\n"
    sdp.write_text(head + "".join(f"a={line}\n" for line in lines))
    return sdp


H264 = tuple(f"rtpmap:{number} H264/90000" for number in (96, 97))


@pytest.mark.parametrize(
    ("payload_type", "unit", "reason", "said"),
    [
        (
            98,
            b"\x65\x88",
            "unknown_payload_type",
            "payload type 98 came, which the description does not name: it has H264 \\(96\\), H264",
        ),
        (97, b"\x65\x88", None, None),
        (96, b"\x7a\x00\x00", "unsupported_packetisation", "MTAP16"),
        (96, b"\x7d\xc5\x00\x00", "unsupported_packetisation", "FU-B"),
    ],
)
def test_packets_that_come_and_are_not_used_are_told_with_their_reason(
    payload_type: int, unit: bytes, reason: str | None, said: str | None, port: int, tmp_path: Path
) -> None:
    sdp = described(tmp_path, port, "96 97", *H264)
    status = tmp_path / "status.jsonl"
    receiver = start("receive", sdp, "--json", "--status", status)
    with bounded(receiver):
        until(lambda: status.exists() and status.stat().st_size > 0, "the receiver did not begin")
        send_h264(port, payload_type, 30, unit=unit)
        counted = {} if reason is None else {reason: 30}
        until(lambda: last(status)["unused"] == counted)
        receiver.send_signal(signal.SIGINT)
        told, errors = receiver.communicate(timeout=60)
    summary = json.loads(told)
    (row,) = summary["flows"][0]["receivers"]
    assert "no packet arrived" not in errors
    if reason is None:
        assert receiver.returncode == 0, errors
        assert (row["unused_packets"], row["unused"], row["frames"]["lost"]) == (0, [], 0)
        return
    assert row["unused"] == [{"reason": reason, "packets": 30}]
    assert re.search(str(said), errors), errors
    assert any(re.search(str(said), warning) for warning in summary["warnings"])
    # Packets with unsupported or undescribed formats do not count as lost.
    assert not (row.get("frames") or {}).get("lost")
    if reason == "unknown_payload_type":
        assert receiver.returncode == 5
        assert "packets arrived, but none could be used: 30 packets" in one_line(errors)
    else:
        assert (receiver.returncode, row["frames"]["undecodable"]) == (0, 30)


@pytest.mark.parametrize("packet", ["99", "1501", "65000"])
def test_a_packet_that_no_record_can_hold_is_refused_before_the_session(packet: str) -> None:
    sender = start("send", "greedy", "--to", "127.0.0.1:5004", "--packet", packet, "--for", "60s")
    _, said = sender.communicate(timeout=30)
    assert sender.returncode == 2
    assert said.startswith(f"steadycast: --packet {packet}: ")
    assert "take 100 to 1500 bytes" in said


@pytest.mark.parametrize("packet", ["0", "65000", "18446744073709551615"])
def test_a_description_with_such_a_packet_is_refused_before_the_session(packet: str, tmp_path: Path) -> None:
    sdp = tmp_path / "session.sdp"
    sdp.write_text(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 5996 RTP/AVP 96\r\n"
        f"a=rtpmap:96 MP4V-ES/90000\r\na=x-steadycast:controller=asmp;packet={packet}\r\n"
    )
    receiver = start("receive", sdp, "--for", "60s")
    _, said = receiver.communicate(timeout=30)
    assert receiver.returncode == 2
    assert "take 100 to 1500 bytes" in one_line(said)
    assert "packet" in said


# ---------------------------------------------------------------- names


def test_a_host_name_is_an_address_and_which_is_said(port: int, tmp_path: Path) -> None:
    receiver = start("receive", f"localhost:{port}", "--for", "20s", "--json")
    listening(port)
    sender = start(
        "send", "greedy", "--to", f"localhost:{port}", "--max-rate", "300kbps", "--for", "3s", "--json"
    )
    _, errors = sender.communicate(timeout=60)
    assert sender.returncode == 0, errors
    got, more = receiver.communicate(timeout=60)
    assert receiver.returncode == 0, more
    assert json.loads(got)["flows"][0]["throughput_bps"] > 10_000
    for told in (errors, more):
        assert told.splitlines()[0] in (
            f"localhost:{port} is 127.0.0.1:{port}",
            f"localhost:{port} is [::1]:{port}",
        )


def test_addresses_stay_and_names_and_zones_are_looked_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(host: str, *_: object, **__: object) -> None:
        assert host == "nosuch.invalid"
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    for text in ("10.0.0.1:5004", "[fd00::1]:5004", "nowhere", "fd00::1:5004", "a:b:5004"):
        assert session.resolved(text, "eth0") == (text, "eth0")
    assert capsys.readouterr().err == ""
    assert session.resolved("[fe80::1%lo]:5004", None) == ("[fe80::1%1]:5004", None)
    assert session.resolved("[ff02::1%1]:5004", None) == ("[ff02::1%1]:5004", "lo")
    for text, what in (
        ("[fe80::1%nosuch]:5004", 'there is no interface "nosuch"; see `ip link`'),
        ("nosuch.invalid:5004", "the name has no address (.*); check the name, or give the address"),
    ):
        with pytest.raises(UserError, match=what.replace("(.*)", r"\(.*\)")):
            session.resolved(text, None)


@needs("unshare")
@needs_networks
def test_a_link_local_address_with_its_zone_is_reached(tmp_path: Path) -> None:
    call = steadycast()
    script = tmp_path / "steadycast"
    script.write_text(f"#!/bin/sh\nexec {call[0]} -c '{call[2]}' \"$@\"\n")
    script.chmod(0o755)
    session_of = """
set -eu
ip link set lo up; ip link add one type veth peer name two
ip address add fe80::77/64 dev one nodad; ip link set one up; ip link set two up
"$0" receive '[fe80::77%one]:5004' --for 30s --json > received.json 2> receiver.txt & receiver=$!
until grep -q receiving receiver.txt; do sleep 0.1; done
"$0" send greedy --to '[fe80::77%one]:5004' --max-rate 300kbps --for 3s --json > sent.json
wait $receiver
"""
    done = ran(["unshare", "-n", "bash", "-c", session_of, script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr + (tmp_path / "receiver.txt").read_text()
    sent, received = (
        json.loads((tmp_path / f"{name}.json").read_text())["flows"][0] for name in ("sent", "received")
    )
    assert received["throughput_bps"] > 10_000
    assert len(sent["receivers"]) == 1


def test_a_link_local_address_without_a_zone_is_told_what_it_needs() -> None:
    receiver = start("receive", "[fe80::77]:5004", "--for", "5s")
    _, said = receiver.communicate(timeout=30)
    assert receiver.returncode == 2
    assert "[ADDRESS%INTERFACE]:PORT" in one_line(said)


@pytest.mark.parametrize(
    ("codec", "ending"), [(codec, ending) for codec, some in TAKEN.items() for ending in some[:2]]
)
def test_a_recording_begins_with_the_first_key_frame_and_says_what_it_leaves_out(
    codec: str, ending: str, streams: Path, tmp_path: Path
) -> None:
    frames = read_frames(streams / codec, codec)
    is_key = [session.live_core().is_key_frame(codec, frame[-1]) for frame in frames]
    second = is_key.index(True, 1)
    joined = random.randrange(1, second)
    for begin, end, left_out in ((0, len(frames), 0), (joined, len(frames), second - joined)):
        out = tmp_path / f"from-{begin}{ending}"
        fake = Fake([[each] for each in frames[begin:end]])
        fake.codec = codec
        sink = receive.Sink(fake, receive.Options(what="x", out=out))
        sink.finish()
        with av.open(str(out)) as film:
            packets = [packet for packet in film.demux(video=0) if packet.size]
        assert packets[0].is_keyframe
        assert len(packets) == end - begin - left_out
        told = [note for note in sink.notes if "begins with the first key frame" in note]
        assert len(told) == bool(left_out)
        assert all(f": {left_out} frame" in note for note in told)


def test_a_stream_without_a_key_frame_is_recorded_as_it_is(streams: Path, tmp_path: Path) -> None:
    frames = read_frames(streams / "mpeg2", "mpeg2")
    key, others = frames[0], [frame for frame in frames[1:12]]
    for count in (3, 30, receive._LOOKED_AT + 20):
        some = [(3600 * n, *others[n % len(others)][1:]) for n in range(count)]
        out = tmp_path / f"{count}.mkv"
        fake = Fake([[each] for each in some])
        fake.codec, fake.config = "mpeg2", key[-1][:64]
        sink = receive.Sink(fake, receive.Options(what="x", out=out))
        sink.finish()
        assert out.stat().st_size > sum(len(frame[-1]) for frame in some)
        assert not any("first key frame" in note for note in sink.notes)


def test_a_session_whose_film_is_deleted_and_whose_receiver_is_restarted_has_a_record(
    clip: Path, port: int, tmp_path: Path
) -> None:
    film, sdp = tmp_path / "film.mkv", tmp_path / "session.sdp"
    film.write_bytes(clip.read_bytes())
    seen: list[int] = []

    def is_read() -> bool:
        return any(Path(link).resolve() == film for link in Path("/proc/self/fd").iterdir())

    def receive_twice() -> None:
        until(sdp.exists, "no description")
        until(is_read, "the film is not read")
        film.unlink()
        for _ in range(2):
            receiver = session.live_core().Receiver(receive.settings_of(receive.Options(what=str(sdp))))
            time.sleep(1.3)
            receiver.stop()
            seen.append(session.summary_of(receiver.finish())["flows"][0]["receivers"][0]["throughput_bps"])

    receivers = threading.Thread(target=receive_twice)
    receivers.start()
    flow = {"controller": "steady", "max_rate": "900kbps"}
    to = f"127.0.0.1:{port}"
    out = tmp_path / "sent"
    summary = send.send(
        send.Options(source=str(film), to=to, flow=flow, sdp=sdp, duration="4s", out=out, no_audio=True)
    )
    receivers.join()
    record = Folder.open(out).summary
    assert record["complete"] is True
    assert len(record["flows"][0]["receivers"]) == len(seen) == 2
    assert record["flows"] == summary["flows"]
    for row in record["flows"][0]["receivers"]:
        assert row["throughput_bps"] is None or row["throughput_bps"] < 1.3e6
        assert row["loss_frac"] == 0.0
