"""`sc.Sender` and `sc.Receiver`: a program's pictures over real sockets."""

from __future__ import annotations

import gc
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import steadycast as sc
from numpy.typing import NDArray
from steadycast.folder import Folder
from steadycast.live import ends
from steadycast.live.encoder import Shape
from steadycast.live.ends import PIXELS, Pixels
from steadycast.live.sender import Inbox, _samples

from tests.conftest import until
from tests.live.conftest import ports

SIZE = (96, 80)
FPS = 25


def picture(number: int) -> NDArray[np.uint8]:
    """A smooth moving picture. It is grey, because colours have half the resolution.

    It moves in both directions at different rates, so that no two of the first 40 pictures look alike.
    """
    rows, columns = np.mgrid[: SIZE[1], : SIZE[0]]
    grey = 128 + 100 * np.sin((columns + 4 * number) / 15) * np.cos((rows + 3 * number) / 15)
    return np.repeat(grey[:, :, None], 3, axis=2).astype(np.uint8)


def psnr_db(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    return float(10 * np.log10(255**2 / max(np.mean((a.astype(float) - b) ** 2), 1e-3)))


def told(image: NDArray[np.uint8], count: int) -> tuple[int, float]:
    """Return the index of the original that this picture shows, and its PSNR against it in dB.

    Pictures have the times at which they are handed over. If the machine stalls, these are later than their numbers
    say.
    """
    near = [psnr_db(image, picture(number)) for number in range(count)]
    return int(np.argmax(near)), max(near)


def lateness(frames: list[sc.ReceivedFrame], numbers: list[int]) -> list[int]:
    """Return the lateness of each picture against its number in frame periods, relative to the first picture."""
    return [round(frame.time_s * FPS) - number for frame, number in zip(frames, numbers, strict=True)]


def sent(sender: sc.Sender, count: int) -> threading.Thread:
    """Send a number of pictures in another thread, as fast as the session accepts them, and end."""

    def work() -> None:
        for number in range(count):
            sender.send(picture(number))
        sender.end()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@contextmanager
def relay(port: int, to: int, loses: Callable[[int], bool]) -> Iterator[None]:
    """Carries RTP and RTCP from a port and the next one to other ports, and RTCP back.

    Loses RTP packets by their order.
    """
    near = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    far = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for place, each in enumerate(near):
        each.bind(("127.0.0.1", port + place))
    sender: list[Any] = [None, None]
    over = threading.Event()

    def work() -> None:
        count = 0
        while not over.is_set():
            for ready in select.select([*near, *far], [], [], 0.1)[0]:
                data, address = ready.recvfrom(2000)
                if ready in near:
                    place = near.index(ready)
                    sender[place] = address
                    count += place == 0
                    if place == 1 or not loses(count):
                        far[place].sendto(data, ("127.0.0.1", to + place))
                elif (back := sender[far.index(ready)]) is not None:
                    near[far.index(ready)].sendto(data, back)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for each in (*near, *far):
            each.close()


def test_pictures_that_miss_something_or_depend_on_such_are_told_from_whole_ones() -> None:
    port, other = ports(2)
    with (
        relay(port, other, lambda count: count % 25 == 10),
        sc.Sender(f"127.0.0.1:{port}", size=SIZE, max_rate="1Mbps", gop=6, repair="none") as sender,
        sc.Receiver(sender.sdp.replace(f" {port} ", f" {other} "), queue=60) as receiver,
    ):
        sent(sender, 40)
        frames = list(receiver)
        seen = receiver.status
    assert seen.packets < seen.expected_packets
    assert seen.repaired_packets == 0
    broken = [frame for frame in frames if not frame.whole]
    assert 2 <= len(broken) <= len(frames) - 10
    # A decoder's concealment may sometimes show another picture, but a frame marked as complete never does.
    whole = [frame for frame in frames if frame.whole]
    numbers = [told(frame.image, 40) for frame in whole]
    assert min(near for _, near in numbers) > 30
    late = lateness(whole, [number for number, _ in numbers])
    assert late == sorted(late)
    assert late[0] >= 0
    # A broken frame is as late as the complete one before it, unless something stalled between them.
    hidden = []
    for frame in broken:
        before = [each for each, other in zip(late, whole, strict=True) if other.time_s < frame.time_s]
        number = round(frame.time_s * FPS) - (before or [0])[-1]
        hidden.append(psnr_db(frame.image, picture(number)))
    assert min(hidden) < 30
    assert seen.whole_frames == len(frames) - len(broken)


def test_pictures_that_the_rate_has_no_room_for_come_out_at_their_size_all_of_them(port: int) -> None:
    chance = np.random.default_rng(1)
    noise = chance.integers(0, 255, (160, 192, 3), dtype=np.uint8)
    with (
        sc.Sender(f"127.0.0.1:{port}", size=(192, 160), max_rate="150kbps") as sender,
        sc.Receiver(sender.sdp, queue=60) as receiver,
    ):
        for number in range(40):
            # Coarse moving noise.
            sender.send(np.roll(noise, 5 * number, axis=1)[::8, ::8].repeat(8, axis=0).repeat(8, axis=1))
        sender.end()
        images = [frame.image for frame in receiver]
        last = sender.status
    (flow,) = sender.run.summary["flows"]
    assert {image.shape for image in images} == {(160, 192, 3)}
    assert last.size is not None
    assert 5 <= last.smaller_frames < last.frames
    assert max(last.size) <= 192
    # Pictures that a busy machine skips are not due to the rate, nor are those that had no room while packets waited
    # for the machine. The latter were added when a stall of the machine made packets wait.
    assert last.frames >= 20
    assert 36 <= len(images) + last.left_out + flow["no_room_frames"] <= 40


@pytest.mark.parametrize("codec", ["mpeg4", "h264", "vp8", "av1"])
def test_pictures_come_out_as_they_went_in_whole_and_at_their_times(
    codec: str, port: int, tmp_path: Path
) -> None:
    with (
        sc.Sender(f"127.0.0.1:{port}", size=SIZE, codec=codec, max_rate="1Mbps") as sender,
        sc.Receiver(sender.sdp, name="desk", queue=60) as receiver,
    ):
        thread = sent(sender, 30)
        frames = list(receiver)
        thread.join()
        last, seen = sender.status, receiver.status
    assert [frame.whole for frame in frames] == [True] * len(frames)
    (flow,) = sender.run.summary["flows"]
    found = [told(frame.image, 30) for frame in frames]
    numbers = [number for number, _ in found]
    # An encoder on a busy machine may skip some; the first one is always there.
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    late = lateness(frames, numbers)
    assert late[0] == 0
    assert late == sorted(late), "a picture may be handed over late, and none catches up"
    # With fewer than ten, a run shows nothing. The bound was 20 until a machine that stalled skipped more.
    assert 10 <= len(numbers) <= 30 <= len(frames) + last.left_out + flow["no_room_frames"]
    assert all(frame.image.shape == (80, 96, 3) and frame.image.dtype == np.uint8 for frame in frames)
    near = [each for _, each in found]
    assert 30 < min(near) <= np.mean(near) < 60
    # The picture of another time looks different.
    assert psnr_db(frames[0].image, picture(8)) < 20
    assert (last.frames, seen.whole_frames, seen.unread) == (len(frames), len(frames), 0)
    assert (seen.damaged_frames, seen.missing_frames, seen.undecodable_frames) == (0, 0, 0)
    (peer,) = last.receivers
    assert (peer.name, peer.packets, peer.loss_frac) == ("desk", True, 0)
    assert last.packets == seen.packets
    assert "BYE" in str(seen.ended_by)
    # The session leaves a run folder like any other run.
    assert sender.run.summary["world"] == receiver.run.summary["world"] == "live"
    assert sender.run.report().exists()
    assert Folder.open(sender.run.save(tmp_path / "sent")).table("decisions").height > 0
    assert receiver.run.frames.to_polars().height == len(frames)


def test_a_status_is_of_this_moment_and_limits_move_while_it_runs(port: int) -> None:
    to = f"127.0.0.1:{port}"
    with (
        sc.Sender(to, source="greedy", controller="fixed", max_rate=400_000) as sender,
        sc.Receiver(sender.sdp, pixels=None) as receiver,
    ):
        times = [sender.status.at_s for _ in range(5)]
        assert times == sorted(set(times)), "none is the one before"
        assert sender.status.limit in ("start", "network", "cap")
        sender.limit(floor="80kbps")
        assert sender.status.floor_bps == 80_000
        until(lambda: receiver.status.packets > 0)
        status = receiver.status
        assert str(status.source).startswith("127.0.0.1:")
        assert 0 < status.packets <= status.expected_packets <= sender.status.packets
        assert not sender.done
        assert repr(sender) == f"<Sender to='{to}', controller='fixed': sending>"
        assert repr(receiver) == f"<Receiver at='{to}': receiving>"
        with pytest.raises(sc.UserError, match="no pictures are decoded; take one of rgb24"):
            receiver.read()
        with pytest.raises(sc.UserError, match="the session has a source already"):
            sender.send(picture(0))
        with pytest.raises(sc.UserError, match="after the with block"):
            sender.run  # noqa: B018
    assert sender.done
    assert receiver.done
    assert repr(sender).endswith(": closed>")
    assert sender.status == sender.status, "the last one stays"


def test_a_reader_that_is_slow_has_the_newest_pictures_and_knows_how_many_went(port: int) -> None:
    with (
        sc.Sender(f"127.0.0.1:{port}", size=SIZE, max_rate="1Mbps") as sender,
        sc.Receiver(sender.sdp, queue=5) as receiver,
    ):
        sent(sender, 30).join()
        until(lambda: receiver.done)
        frames = list(receiver)
        unread = receiver.status.unread
        assert receiver.read() is None
    assert len(frames) == 5
    assert unread == sender.status.frames - 5
    (flow,) = sender.run.summary["flows"]
    found = [told(frame.image, 30) for frame in frames]
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    # The last picture that was coded. A busy machine may have skipped those after it.
    left_out = flow["left_out_frames"] + flow["no_room_frames"]
    assert 29 - left_out <= numbers[-1] <= 29
    # All their references were decoded.
    assert min(near for _, near in found) > 30


def test_a_queue_is_bounded_and_who_waits_is_told(port: int) -> None:
    with sc.Sender(f"127.0.0.1:{port}", size=SIZE, queue=2) as sender:

        def hurry() -> None:
            for number in range(100):
                sender.send(picture(number), timeout=0)

        with pytest.raises(TimeoutError, match="2 pictures wait already"):
            hurry()
    with pytest.raises(ValueError, match="the sender is closed"):
        sender.send(picture(0))
    with (
        sc.Receiver(f"127.0.0.1:{port}", codec="mpeg4") as receiver,
        pytest.raises(TimeoutError, match="no picture"),
    ):
        receiver.read(timeout=0.05)
    assert receiver.read() is None
    assert receiver.run.summary["flows"][0]["receivers"][0]["throughput_bps"] in (0, None)


def test_pictures_of_a_slow_program_have_the_times_at_which_they_come_and_a_leaky_queue_keeps_the_newest() -> (
    None
):
    shape = Shape(*SIZE, Fraction(FPS))
    samples = [np.full(1, n, np.uint8) for n in range(250)]

    def taken(inbox: Inbox) -> Iterator[tuple[int, int]]:
        inbox.end()
        while (found := inbox.picture(0)) is not None:
            yield found[0], int(found[1][0])

    late = Inbox(shape, 4, leaky=False)
    late._began -= 1.0
    for each in samples[:4]:
        late.put(each, 0)
    (first, *rest) = [number for number, _ in taken(late)]
    assert first >= 25
    assert rest == [first + 1, first + 2, first + 3]

    leaky = Inbox(shape, 4, leaky=True)
    for each in samples:
        leaky._began -= 0.02
        leaky.put(each, None)
        assert len(leaky) <= 4
    kept = [*taken(leaky)]
    # Half of them arrive between two display times.
    assert leaky.left_out == 250 - len(kept) == 246
    assert [b[0] - a[0] for a, b in pairwise(kept)] == [1, 1, 1]
    assert kept[-1][1] >= 247
    assert abs(kept[-1][0] - 125) <= 10


def test_a_session_that_failed_says_why_and_a_second_close_does_nothing() -> None:
    class Broken:
        done = True
        reasons: ClassVar = [
            ("port 5004", "is taken", "choose another"),
            ("record", "it was taken already", "this is a bug"),
        ]

        def finish(self) -> None:
            raise sc.UserError(*self.reasons.pop(0))

    class Session(ends.Ends):
        def close(self) -> None:
            self._finish(lambda: None, [])

    session = Session(Broken(), lambda core: None)
    with pytest.raises(sc.UserError, match="is taken"):
        session.close()
    session.close()
    with pytest.raises(sc.UserError, match="is taken"):
        _ = session.run


def test_an_exception_ends_the_session_at_once_and_its_record_is_there(port: int) -> None:
    sender = sc.Sender(f"127.0.0.1:{port}", size=SIZE)

    def fail() -> None:
        with sender:
            sender.send(picture(0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sender.done
    assert sender.run.summary["flows"][0]["name"] == "video"
    sender.close()


def test_a_sender_that_nobody_keeps_says_bye(port: int) -> None:
    sender = sc.Sender(f"127.0.0.1:{port}", size=SIZE)
    with sc.Receiver(sender.sdp) as receiver:
        sender.send(picture(0))
        assert receiver.read(timeout=30) is not None
        del sender
        gc.collect()
        assert [*receiver] == []
        assert "BYE" in str(receiver.status.ended_by)


def test_an_encoder_that_fails_is_the_programs_error(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadycast.live.encoder import Encoder

    whole = Encoder.unit

    def unit(self: Encoder, *words: Any, **more: Any) -> tuple[int, bytes]:
        if threading.current_thread().name == "steadycast-encoder":
            raise OSError("no memory for a picture")
        return whole(self, *words, **more)

    monkeypatch.setattr(Encoder, "unit", unit)
    sender = sc.Sender(f"127.0.0.1:{port}", size=SIZE)

    def work() -> None:
        with sender:
            for number in range(1000):
                sender.send(picture(number))

    with pytest.raises(OSError, match="no memory"):
        work()
    assert sender.done


@pytest.mark.parametrize("pixels", PIXELS)
def test_each_layout_goes_in_and_comes_out_the_same(pixels: Pixels) -> None:
    import av

    assert set(get_args(Pixels)) == set(PIXELS)
    shape = Shape(*SIZE, Fraction(FPS))
    colours = np.stack([np.full(SIZE[::-1], value, np.uint8) for value in (200, 90, 30)], axis=-1)
    given = {
        "rgb24": colours,
        "bgr24": colours[:, :, ::-1],
        "gray": picture(0)[:, :, 0],
        "yuv420p": np.concatenate([picture(0)[:, :, 0], np.full((SIZE[1] // 2, SIZE[0]), 100, np.uint8)]),
    }[pixels]
    samples = _samples(given, pixels, shape)
    planes = samples.reshape(SIZE[1] * 3 // 2, SIZE[0])
    back = av.VideoFrame.from_ndarray(planes, format="yuv420p").to_ndarray(format=pixels)
    assert back.shape == given.shape
    assert np.abs(back.astype(int) - given).max() <= 4
    assert not np.shares_memory(samples, given)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda to: sc.Sender(to), "size: the pictures' size is not known; give width and height"),
        (lambda to: sc.Sender(to, size=(97, 80)), "size 97x80: a side is odd; take 96x80"),
        (lambda to: sc.Sender(to, size=(8, 8)), "size: a picture of 8x8 samples is not supported"),
        (lambda to: sc.Sender(to, size=SIZE, fps=0), "fps: 0 frames per second are not supported"),
        (
            lambda to: sc.Sender(to, size=SIZE, codec="theora"),
            "codec theora: there is no such codec; choose from: mpeg4",
        ),
        (
            lambda to: sc.Sender(to, size=SIZE, pixels="rgba"),  # type: ignore[arg-type]
            "give one of rgb24, bgr24, gray, yuv420p",
        ),
        (lambda to: sc.Sender(to, size=SIZE, queue=0), "queue 0: no picture has room; take 1 or more"),
        (
            lambda to: sc.Sender(to, size=SIZE, max_rate="fast"),
            'max_rate fast: "fast" has no number that can be read; write digits',
        ),
        (
            lambda to: sc.Sender(to, size=SIZE, max_rate=1e6, floor=2e6),
            "max_rate 1000000bps: the cap 1Mbps is below the floor 2Mbps",
        ),
        (
            lambda to: sc.Sender(to, size=SIZE, feedback="remb"),
            'feedback remb: "remb" is not one of its values; choose from: own',
        ),
        (lambda to: sc.Sender(to, size=SIZE, packet=0), "packet 0: 0B is not a packet size"),
        (
            lambda to: sc.Sender(to, size=SIZE, packet=9),
            "packet 9: 9B is not a packet size; take 100 to 1500 bytes",
        ),
        (lambda to: sc.Sender(to, size=SIZE, controller="tfcr"), 'did you mean "tfrc"'),
        (lambda to: sc.Sender(to, size=SIZE, params={"x": 1}), "x"),
        (
            lambda to: sc.Sender("239.1.1.1:5004", size=SIZE, controller="tfrc"),
            'to: "tfrc" serves one receiver',
        ),
        (lambda to: sc.Sender("nowhere", size=SIZE), "nowhere: not ADDRESS:PORT"),
        (lambda to: sc.Sender(to, source="absent.mkv"), "absent.mkv: there is no such file"),
        (lambda to: sc.Receiver(to), "give the sender's .sdp file, or codec"),
        (lambda to: sc.Receiver("absent.sdp"), "absent.sdp: can't be read"),
        (lambda to: sc.Receiver("232.1.1.1:5004", codec="mpeg4"), "source"),
        (lambda to: sc.Receiver(to, codec="theora"), "codec: there is no theora"),
    ],
)
def test_a_mistake_is_named_by_its_argument(make: Callable[[str], object], what: str) -> None:
    with pytest.raises(sc.UserError) as raised:
        make(f"127.0.0.1:{ports(1)[0]}")
    assert what in str(raised.value)
    assert "--" not in str(raised.value)


def test_an_array_that_is_no_picture_is_refused_with_what_would_be_one(port: int) -> None:
    with sc.Sender(f"127.0.0.1:{port}", size=SIZE) as sender:
        for wrong in (picture(0)[:-1], picture(0).astype(float), picture(0)[:, :, 0], [[0]]):
            with pytest.raises(
                sc.UserError, match=r"rgb24 pictures of 96x80 are arrays of shape \(80, 96, 3\)"
            ):
                sender.send(wrong)  # type: ignore[arg-type]


def test_reports_recorded_in_another_session_with_the_same_key_steer_nothing(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("A" * 40)
    key.chmod(0o600)
    relay, port = ports(2)
    said: list[bytes] = []
    sender_at: list[tuple[str, int]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as between:
        between.bind(("127.0.0.1", relay))
        between.settimeout(0.1)

        def carry(seconds: float) -> None:
            """Carry each datagram to the other end, and store the receiver's feedback."""
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    datagram, place = between.recvfrom(65_536)
                    if place[1] == port:
                        said.append(datagram)
                        between.sendto(datagram, sender_at[-1])
                    else:
                        sender_at.append(place)
                        between.sendto(datagram, ("127.0.0.1", port))

        def sender() -> sc.Sender:
            to = f"127.0.0.1:{relay}"
            return sc.Sender(to, source="testsrc", size="96x80", max_rate="300kbps", mux=True, key_file=key)

        with sender() as first:
            description = first.sdp.replace(f"m=video {relay} ", f"m=video {port} ")
            with sc.Receiver(description, key_file=key, pixels=None):
                carry(3)
            [heard] = first.status.receivers
        with sender() as second:
            recorded = list(said)
            carry(1)
            for datagram in recorded:
                between.sendto(datagram, sender_at[-1])
                carry(0.01)
            status = second.status
    assert len(recorded) > 10
    assert heard.reports > 10
    assert sum(receiver.reports for receiver in status.receivers) == 0
    assert (status.loss_frac, status.rtt_s, status.set_by) == (None, None, None)
