"""Pictures that are coded smaller than they are shown, in decoders, containers, receivers and measurements."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from steadycast.live import container, quality
from steadycast.live.encoder import Encoder, Shape, sizes_of
from steadycast.live.receiver import Outbox
from steadycast.media import stream
from steadycast.media.clip import scaled
from steadycast.media.ladder import CODECS, codec_of

SHAPE = Shape(352, 288, Fraction(25))
PLACES = [0] * 3 + [2] * 3 + [1] * 3
"""Index of the size at which each picture is coded."""


def units(name: str, pictures: list[NDArray[np.uint8]]) -> tuple[list[bytes], list[tuple[int, int]], bytes]:
    """Access units of three groups of pictures, their sizes, and the parameters for the session description."""
    encoder = Encoder(codec_of(name), SHAPE, 12)
    config = encoder.config()
    middle = encoder.codec.quantizers[len(encoder.codec.quantizers) // 3]
    made = []
    for number, (samples, place) in enumerate(zip(pictures, PLACES, strict=True)):
        made.append(encoder.unit(samples, first=number % 3 == 0, quantizer=middle, size=place))
    assert [kind for kind, _ in made] == [0, 1, 1] * 3
    return [data for _, data in made], [encoder.sizes[place] for place in PLACES], config


@pytest.fixture(scope="module")
def pictures() -> list[NDArray[np.uint8]]:
    with av.open("testsrc2=size=352x288:rate=25", format="lavfi") as source:
        return [scaled(frame, 352, 288) for frame, _ in zip(source.decode(video=0), PLACES, strict=False)]


@pytest.mark.parametrize("name", CODECS)
def test_a_decoder_follows_another_size_by_what_stands_in_the_stream(
    name: str, pictures: list[NDArray[np.uint8]]
) -> None:
    data, sizes, config = units(name, pictures)
    decoder: Any = av.CodecContext.create(codec_of(name).decoder, "r")
    decoder.extradata = config or None
    found = [frame for unit in data for frame in decoder.decode(av.Packet(unit))] + decoder.decode(None)
    assert [(frame.width, frame.height) for frame in found] == sizes


@pytest.mark.parametrize("ending", ["mkv", "mp4"])
@pytest.mark.parametrize("name", ["mpeg4", "h264", "vp9"])
def test_a_container_that_grows_holds_pictures_of_several_sizes(
    name: str, ending: str, pictures: list[NDArray[np.uint8]], tmp_path: Path
) -> None:
    data, sizes, config = units(name, pictures)
    place = tmp_path / f"film.{ending}"
    growing = container.Growing(place, {"mkv": "matroska", "mp4": "mp4"}[ending], name, config)
    for number, unit in enumerate(data):
        growing.add(3600 * number, unit)
    growing.close()
    with av.open(str(place)) as film:
        assert [(frame.width, frame.height) for frame in film.decode(video=0)] == sizes


def test_sizes_are_even_large_enough_and_none_but_the_source_s_where_that_is_asked_for() -> None:
    for codec in CODECS.values():
        found = sizes_of(codec, SHAPE)
        assert found[0] == (352, 288)
        assert found == sorted(set(found), reverse=True)
        for width, height in found:
            assert width % codec.multiple == height % codec.multiple == 0
            assert min(width, height) >= codec.least
            assert width / height == pytest.approx(352 / 288, rel=0.07), codec.name
        # At 0.1 bit per sample and picture, sizes of 142 by 142 samples and more are too large for 50 kb/s.
        assert found[-1][0] * found[-1][1] <= 20_000, codec.name
        assert Encoder(codec, SHAPE, 12, keep_size=True).sizes == [(352, 288)]
    assert sizes_of(CODECS["h264"], Shape(64, 48, Fraction(25))) == [(64, 48)]
    assert sizes_of(CODECS["h264"], Shape(1920, 1080, Fraction(25)))[-1] == (240, 136)


class Core:
    """A receiver whose frames are all available at the start."""

    codec, controller = "h264", "asmp"

    def __init__(self, data: list[bytes], config: bytes, size: tuple[int, int] | None) -> None:
        self.config, self.size = config, size
        self._given = [[(3600 * n, False, True, 0.04 * n, unit) for n, unit in enumerate(data)]]

    def want_frames(self) -> None:
        pass

    def frames(self, _: float) -> Any:
        return self._given.pop() if self._given else None


@pytest.mark.parametrize("described", [(352, 288), None])
def test_a_program_gets_all_pictures_in_one_size(
    described: tuple[int, int] | None, pictures: list[NDArray[np.uint8]]
) -> None:
    data, _, config = units("h264", pictures)
    # The first group has a small size. Without information from the sender, this becomes the size of all.
    data = data[3:]
    outbox = Outbox(Core(data, config, described), 60, low_delay=True)
    outbox.run()
    got = [outbox.get(1.0) for _ in data]
    shapes = {found[0].to_ndarray(format="rgb24").shape for found in got if found is not None}
    assert shapes == {(288, 352, 3) if described else (144, 176, 3)}
    assert outbox.get(1.0) is None


def test_pictures_are_measured_at_the_size_that_the_sender_says(
    pictures: list[NDArray[np.uint8]], tmp_path: Path
) -> None:
    clip = tmp_path / "clip.y4m"
    with av.open(str(clip), "w", format="yuv4mpegpipe") as target:
        raw = target.add_stream("wrapped_avframe", rate=25)
        raw.width, raw.height, raw.pix_fmt = 352, 288, "yuv420p"
        for number, samples in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(samples.reshape(432, 352), format="yuv420p")
            frame.pts = number
            target.mux(raw.encode(frame))
    data, _, config = units("h264", pictures)
    ticks = [3600 * n for n in range(len(data))]
    whole = quality.measure(clip, "h264", config, ticks[:3], data[:3], (352, 288))
    small = quality.measure(clip, "h264", config, ticks[3:6], data[3:6], (352, 288))
    mixed = quality.measure(clip, "h264", config, ticks, data, (352, 288))
    assert 30 < whole["psnr_db.raw.y"] < 60
    # A picture of half the size is enlarged to the full size, so sharp edges are lost.
    assert 15 < small["psnr_db.raw.y"] < whole["psnr_db.raw.y"] - 5
    assert small["psnr_db.raw.y"] < mixed["psnr_db.raw.y"] < whole["psnr_db.raw.y"]
    # Measured at its own size, it would seem better than it looks.
    own = quality.measure(clip, "h264", config, ticks[3:6], data[3:6], None)
    assert own["psnr_db.raw.y"] > small["psnr_db.raw.y"] + 3


def test_a_stream_as_it_comes_holds_pictures_of_several_sizes(pictures: list[NDArray[np.uint8]]) -> None:
    data, sizes, config = units("vp8", pictures)
    raw = stream.head("vp8", config) + b"".join(
        stream.framed("vp8", 3600 * n, unit) for n, unit in enumerate(data)
    )
    with av.open(io.BytesIO(raw), format=stream.FORMS["vp8"].demuxer) as source:
        assert [(frame.width, frame.height) for frame in source.decode(video=0)] == sizes
