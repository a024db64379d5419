"""The mark in a picture: any number at any size, scaled and blurred."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steadycast.judge import mark
from steadycast.judge.clip import (
    Marked,
    Measured,
    ahead,
    coarse,
    pictures,
    raw_shape,
    shape_of,
    vmaf_of,
    words_of,
    y4m_shape,
)
from steadycast.media.vmaf import program

from tests.conftest import bounded, until

numbers = st.integers(0, 10 * mark.WRAPS)
sides = st.integers(40, 240).map(lambda half: 2 * half)


def marked(width: int, height: int, number: int, seed: int = 1) -> np.ndarray:
    """A picture of noise with a mark."""
    samples = np.random.default_rng(seed).integers(0, 256, width * height * 3 // 2, dtype=np.uint8)
    mark.paint(samples, width, height, number)
    return samples


@pytest.mark.parametrize("kind", ["mkv", "y4m"])
def test_the_clip_as_a_file_has_each_picture_with_its_mark(kind: str) -> None:
    clip = Marked(size="160x90", fps="25")
    raw = clip.raw()
    clip.file(kind, 0.6).unlink()  # possibly from an earlier run
    with av.open(str(clip.file(kind, 0.6))) as container:
        assert container.streams.video[0].average_rate == raw.fps
        got = [frame.to_ndarray() for frame in container.decode(video=0)]
    assert len(got) == 15
    for number, picture in enumerate(got):
        assert np.array_equal(picture.reshape(-1), clip.picture(raw, number).reshape(-1))


def luma(samples: np.ndarray, width: int, height: int) -> np.ndarray:
    return samples[: width * height].reshape(height, width)


@given(number=numbers, width=sides, height=sides)
def test_a_mark_is_read_as_it_was_painted(number: int, width: int, height: int) -> None:
    samples = marked(width, height, number)
    assert mark.read(luma(samples, width, height)) == number % mark.WRAPS


@given(number=numbers, width=st.integers(80, 320), height=st.integers(45, 180))
def test_a_mark_survives_being_scaled_and_blurred(number: int, width: int, height: int) -> None:
    frame = av.VideoFrame.from_ndarray(marked(320, 180, number).reshape(270, 320), format="yuv420p")
    other = frame.reformat(
        width=2 * width, height=2 * height, format="gray", interpolation="BILINEAR"
    ).to_ndarray()
    blurred = (other[:-1].astype(int) + other[1:]) // 2
    assert mark.read(blurred.astype(np.uint8)) == number % mark.WRAPS


@given(seed=st.integers(0, 2**32), height=sides)
def test_noise_has_no_mark(seed: int, height: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, (height, 320), dtype=np.uint8)
    assert mark.read(noise) is None


def test_one_column_changes_from_a_picture_to_the_next() -> None:
    for number in range(300):
        one, other = (luma(marked(320, 180, n), 320, 180)[: mark.strip(180)] for n in (number, number + 1))
        assert (one != other).any(axis=0).sum() == 320 // mark.CELLS


@given(width=st.integers(1, 40), height=st.integers(1, 40), count=st.integers(0, 4), cut=st.integers(0, 30))
def test_a_stream_of_y4m_gives_its_whole_pictures(width: int, height: int, count: int, cut: int) -> None:
    header = f"YUV4MPEG2 W{width} H{height} F25:1 Ip C420jpeg\n".encode()
    shape = shape_of(width, height, "420", 8)
    whole = header + b"".join(b"FRAME\n" + bytes([n]) * shape.size for n in range(count))
    found = list(pictures(io.BytesIO(whole[: max(len(header), len(whole) - cut)]), None))
    lost = 0 if cut == 0 else min(count, -(-cut // (shape.size + 6)))
    assert len(found) == count - lost
    assert [data[0] for _, _, data in found] == list(range(count - lost))


def test_pictures_are_read_while_earlier_ones_are_measured() -> None:
    read = threading.Event()

    def stream() -> Iterator[int]:
        yield from range(200)
        read.set()

    seen = []
    for each in ahead(stream()):
        assert read.wait(10), "the rest is read before the first one is done with"
        seen.append(each)
    assert seen == list(range(200))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_reader_of_pictures_which_has_kept_all_that_it_read(
    number: signal.Signals, tmp_path: Path
) -> None:
    clip, count = Marked(size="160x90", fps="25"), 20
    raw = clip.raw()
    fifo, log, kept = (tmp_path / name for name in ("fifo", "log", "kept"))
    os.mkfifo(fifo)

    def measured() -> int:
        return len(log.read_text().splitlines())

    looking = subprocess.Popen(words_of("look", clip, fifo, log, kept=str(kept)))
    with bounded(looking), fifo.open("wb", buffering=0) as pipe:
        pipe.write(b"YUV4MPEG2 W160 H90 F25:1 C420jpeg\n")
        for each in range(count):
            pipe.write(b"FRAME\n" + clip.picture(raw, each).tobytes())
        until(lambda: fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4))
        # SIGINT ends only the reading. SIGTERM ends the measuring as well.
        if number == signal.SIGTERM:
            until(lambda: measured() == count)
        looking.send_signal(number)
        assert looking.wait(60) == 0
    assert measured() == count
    assert kept.stat().st_size == count * 160 * (90 - mark.strip(90))


def test_ten_bits_are_read_as_eight() -> None:
    shape = y4m_shape(b"YUV4MPEG2 W4 H2 F25:1 C420p10")
    data = np.arange(12, dtype="<u2").tobytes() + bytes(100)
    assert shape.size == 24
    assert shape.luma(data).tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("text", ["yuv420p", "yuv420p 640", "abc 640x360", ""])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="yuv420p 640x360"):
        raw_shape(text)


@given(width=st.integers(1, 90), height=st.integers(1, 90))
def test_a_coarse_picture_has_the_mean_of_the_other_and_a_flat_one_is_itself(width: int, height: int) -> None:
    noise = np.random.default_rng(width).integers(0, 256, (height, width), dtype=np.uint8)
    assert abs(float(coarse(noise).mean()) - float(noise.mean())) <= 0.5
    assert (coarse(np.full_like(noise, 77)) == 77).all()
    assert coarse(noise)[0, 0] == np.rint(noise[:4, :4].astype(float).mean())


@pytest.mark.skipif(program() is None, reason="needs imageio-ffmpeg")
def test_vmaf_is_that_of_the_pictures_that_count(tmp_path: Path) -> None:
    clip = Marked(size="160x90", fps="25")
    raw = clip.raw()
    with (tmp_path / "kept").open("wb") as kept:
        measured = Measured(clip, kept)
        for number in range(20):
            shown = luma(clip.picture(raw, number), 160, 90)
            # The first ten are so coarse that their pictures are unrecognizable.
            measured.of(coarse(coarse(shown)) // 32 * 32 if number < 10 else shown, number)

    def of(counted: list[bool]) -> float:
        found = vmaf_of(clip, tmp_path / "kept", [*range(20)], counted)
        assert found is not None
        return found

    worse, good = of([True] * 10 + [False] * 10), of([False] * 10 + [True] * 10)
    assert worse < 60
    assert 95 < good <= 100
