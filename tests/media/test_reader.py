"""Properties of a source's pictures are followed, or a warning names them."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steadycast.live.source import Filed
from steadycast.media.clip import Clip, ClipError
from steadycast.media.reader import _TURNS, Reader, _films

SIDES = (96, 64)
RATE = 25
COLOURS = ((200, 60, 60), (60, 180, 80), (70, 80, 190), (225, 215, 60))
"""Red, green and blue from 0 to 255 of the quarters: upper left, upper right, lower left, lower right."""
PLACES = ((-1, -1), (1, -1), (-1, 1), (1, 1))
"""The direction of each quarter from the middle: to the right, and down."""
LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Weights of red and blue in luma (ITU-T H.273, table 4)."""
NUMBERS = {"bt601": 6, "bt709": 1, "bt2020": 9}


def coded(colour: tuple[int, int, int], matrix: str, *, full: bool) -> tuple[float, float, float]:
    """Luma and chroma of a colour, by ITU-T H.273, section 8.3."""
    red, green, blue = (value / 255 for value in colour)
    of_red, of_blue = LUMA[matrix]
    luma = of_red * red + (1 - of_red - of_blue) * green + of_blue * blue
    differences = (blue - luma) / (2 - 2 * of_blue), (red - luma) / (2 - 2 * of_red)
    scale, base, span = (255, 0, 255) if full else (219, 16, 224)
    first, second = (128 + span * value for value in differences)
    return base + scale * luma, first, second


def quarters(planes: tuple[np.ndarray, ...]) -> list[tuple[int, ...]]:
    """The samples in the middle of each quarter."""
    return [
        tuple(
            int(plane[plane.shape[0] * (2 + down) // 4, plane.shape[1] * (2 + right) // 4])
            for plane in planes
        )
        for right, down in PLACES
    ]


def painted(number: int, matrix: str, *, full: bool) -> av.VideoFrame:
    """A picture of four quarters; the lower right one is darker in each picture than in the one before."""
    width, height = SIDES
    planes = [np.zeros((height, width)), *(np.zeros((height // 2, width // 2)) for _ in range(2))]
    for index, (right, down) in enumerate(PLACES):
        red, green, blue = (value - (5 * number if index == 3 else 0) for value in COLOURS[index])
        for plane, value in zip(planes, coded((red, green, blue), matrix, full=full), strict=True):
            rows, columns = plane.shape[0] // 2, plane.shape[1] // 2
            plane[
                rows * (down > 0) : rows * (1 + (down > 0)),
                columns * (right > 0) : columns * (1 + (right > 0)),
            ] = value
    flat = np.concatenate([plane.round().astype(np.uint8).reshape(-1) for plane in planes])
    return av.VideoFrame.from_ndarray(flat.reshape(height * 3 // 2, width), format="yuv420p")


def turned(content: bytes, turn: tuple[int, int, int, int]) -> bytes:
    """The MP4 file with this display matrix in its track's header (ISO/IEC 14496-12, section 8.3.2)."""
    at = content.index(b"tkhd") + 4 + 40
    a, b, c, d = (value * 65536 for value in turn)
    matrix = b"".join(n.to_bytes(4, "big", signed=True) for n in (a, b, 0, c, d, 0, 0, 0, 1 << 30))
    return content[:at] + matrix + content[at + 36 :]


def film(
    path: Path,
    times: list[int],
    *,
    matrix: str | None = None,
    full: bool = False,
    aspect: Fraction = Fraction(1),
    turn: tuple[int, int, int, int] = (1, 0, 0, 1),
    transfer: int = 2,
) -> Path:
    """A film in MP4 whose pictures are shown at these times, in frame intervals."""
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=RATE, options={"qp": "1", "bf": "0", "preset": "ultrafast"})
        stream.width, stream.height = SIDES
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.time_base = Fraction(1, RATE)
        context.sample_aspect_ratio = aspect
        context.color_range = 2 if full else 1
        context.color_trc = transfer
        if matrix is not None:
            context.colorspace = NUMBERS[matrix]
        for number, time in enumerate(times):
            frame = painted(number, matrix or "bt601", full=full)
            frame.pts, frame.time_base = time, Fraction(1, RATE)
            frame.color_range = 2 if full else 1
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    path.write_bytes(turned(path.read_bytes(), turn))
    return path


def planes_of(samples: np.ndarray, width: int, height: int) -> tuple[np.ndarray, ...]:
    luma, chroma = width * height, width * height // 4
    return (
        samples[:luma].reshape(height, width),
        samples[luma : luma + chroma].reshape(height // 2, width // 2),
        samples[luma + chroma :].reshape(height // 2, width // 2),
    )


def upright(turn: tuple[int, int, int, int]) -> list[int]:
    """Return, by the matrix alone, the quarter of the film in each quarter of the upright picture."""
    a, b, c, d = turn
    places = [(a * right + c * down, b * right + d * down) for right, down in PLACES]
    return [places.index(place) for place in PLACES]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turn=st.sampled_from(sorted(_TURNS)),
    full=st.booleans(),
    matrix=st.sampled_from([None, *LUMA]),
    aspect=st.sampled_from([Fraction(1), Fraction(16, 11), Fraction(12, 11), Fraction(10, 11)]),
    gaps=st.lists(st.integers(1, 7), min_size=2, max_size=6),
)
def test_any_film_is_sent_upright_in_video_range_in_square_samples_and_in_time(
    tmp_path: Path,
    turn: tuple[int, int, int, int],
    full: bool,
    matrix: str | None,
    aspect: Fraction,
    gaps: list[int],
) -> None:
    times = [0, *itertools.accumulate(gaps)]
    path = film(tmp_path / "film.mp4", times, matrix=matrix, full=full, aspect=aspect, turn=turn)
    pictures = Clip.of(path).pictures("clip", RATE)
    frames = list(pictures.frames)

    width, height = SIDES
    wide = (round(width * aspect / 4) * 4, height) if aspect > 1 else (width, round(height / aspect / 4) * 4)
    ratio = f"{aspect.numerator}:{aspect.denominator}"
    was = f"film.mp4: its pictures are {width}x{height} with samples of {ratio}"
    how = f"{was}, and are taken as {wide[0]}x{wide[1]} with square samples"
    warned = [text for text in pictures.warnings if "its frame rate is variable" not in text]
    assert warned == ([] if aspect == 1 else [how])
    assert (pictures.width, pictures.height) == (wide if turn[0] else wide[::-1])

    # Each picture lasts as long as its time stamps say, and the last one as long as one of the others.
    assert times[-1] + 1 <= len(frames) <= times[-1] + max(gaps)
    order = upright(turn)
    for number, time in enumerate(times):
        found = quarters(planes_of(frames[time], pictures.width, pictures.height))
        for place, quarter in enumerate(order):
            colour = COLOURS[quarter] if quarter < 3 else tuple(value - 5 * number for value in COLOURS[3])
            expected = coded(colour, "bt601", full=False)  # type: ignore[arg-type]
            # The tolerance covers the coder's error and three roundings.
            assert np.abs(np.array(found[place]) - expected).max() <= 3, (number, place, found, expected)


def test_a_film_at_its_own_rate_lasts_as_long_as_its_time_stamps_say(tmp_path: Path) -> None:
    # One second at the full rate, then five pictures a second for two.
    times = [*range(25), *range(25, 75, 5)]
    pictures = Clip.of(film(tmp_path / "slower.mp4", times)).pictures("clip", "clip")
    assert 2.8 <= len(list(pictures.frames)) / pictures.fps <= 3.0


@given(gaps=st.lists(st.integers(min_value=1, max_value=4), min_size=8, max_size=40))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_variable_frame_rate_is_told(tmp_path: Path, gaps: list[int]) -> None:
    times = [0, *itertools.accumulate(gaps)]
    pictures = Clip.of(film(tmp_path / "uneven.mp4", times)).pictures("clip", "clip")
    assert len(list(pictures.frames)) >= len(times)
    fps = pictures.fps
    mean = len(times) / (Fraction(times[-1], RATE) + 1 / fps)
    told = (
        f"uneven.mp4: its frame rate is variable: {float(mean):.3g} pictures per second on average, and "
        f"{float(fps):.3g} at times; each picture is repeated until the next one is due"
    )
    assert pictures.warnings == ([told] if mean < fps * Fraction(9, 10) else [])


def test_time_stamps_that_are_off_by_less_than_half_an_interval_keep_pictures_one_by_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shaky.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height = SIDES
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(40):
            frame = painted(0, "bt601", full=False)
            frame.pts, frame.time_base = 40 * number + (0, 13, -16, 9)[number % 4], Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    assert len(list(Clip.of(path).pictures("clip", 25).frames)) == 40


def test_long_pauses_that_the_films_length_covers_are_kept(tmp_path: Path) -> None:
    pictures = Clip.of(film(tmp_path / "slides.mp4", [0, 200, 400, 401])).pictures("clip", RATE)
    assert len(list(pictures.frames)) in range(401, 404)
    (warned,) = pictures.warnings
    assert "its frame rate is variable" in warned


@pytest.mark.parametrize(("transfer", "name"), [(16, "PQ"), (18, "HLG")])
def test_what_is_not_honoured_is_told(tmp_path: Path, transfer: int, name: str) -> None:
    pictures = Clip.of(film(tmp_path / "hdr.mp4", [0, 1], transfer=transfer)).pictures("clip", "clip")
    list(pictures.frames)
    assert pictures.warnings == [
        f"hdr.mp4: its pictures are HDR ({name}) and leave as if they were not: they will look flat"
    ]


@pytest.mark.parametrize("pixels", ["argb", "rgba", "yuva444p10le", "pal8", "rgba64be"])
@pytest.mark.parametrize("is_opaque", [True, False])
def test_transparency_that_is_not_sent_is_told(tmp_path: Path, pixels: str, is_opaque: bool) -> None:
    codec = {"argb": "qtrle", "yuva444p10le": "prores_ks", "pal8": "gif"}.get(pixels, "png")
    path = tmp_path / ("film.gif" if codec == "gif" else "film.mov")
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream(codec, rate=RATE)
        stream.width, stream.height = SIDES
        stream.pix_fmt = pixels
        for number in range(4):
            colours = np.full((SIDES[1], SIDES[0], 4), (200, 100, 50, 255), np.uint8)
            # Only the third picture is transparent in a part.
            colours[:8, :8, 3] = 0 if number == 2 and not is_opaque else 255
            given = av.VideoFrame.from_ndarray(colours, "rgba")
            if pixels == "pal8":
                index = (colours[..., 3] == 0).astype(np.uint8)
                palette = np.zeros((256, 4), np.uint8)
                palette[:2] = (255, 200, 100, 50), (0, 200, 100, 50)
                indexed: Any = (index, palette)
                given = av.VideoFrame.from_ndarray(indexed, "pal8")
            frame = given if given.format.name == pixels else given.reformat(format=pixels)
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    pictures = Clip.of(path).pictures("clip", "auto")
    list(pictures.frames)
    what = "it is transparent in part, and transparent parts are sent opaque, in the colours that are stored there"
    assert pictures.warnings == ([] if is_opaque else [f"{path.name}: {what}"])


def test_a_webm_with_an_alpha_channel_is_told(tmp_path: Path) -> None:
    path = tmp_path / "alpha.webm"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libvpx-vp9", rate=RATE)
        stream.width, stream.height = SIDES
        stream.pix_fmt = "yuv420p"
        stream.metadata["alpha_mode"] = "1"
        file.mux(stream.encode(painted(0, "bt601", full=False)))
        file.mux(stream.encode(None))
    pictures = Clip.of(path).pictures("clip", "clip")
    list(pictures.frames)
    assert "has an alpha channel, and transparent parts are sent opaque" in pictures.warnings[0]


def y4m(path: Path, head: str, pictures: list[np.ndarray]) -> Path:
    body = b"".join(b"FRAME\n" + each.astype(np.uint8).tobytes() for each in pictures)
    path.write_bytes(f"YUV4MPEG2 W{SIDES[0]} H{SIDES[1]} F25:1 {head}\n".encode() + body)
    return path


def test_two_fields_are_not_sent_in_one_picture(tmp_path: Path) -> None:
    """A white bar moves from field to field.

    If two fields were sent in one picture, every second line of the bar's edges would be black.
    """
    width, height = SIDES

    def woven(number: int) -> np.ndarray:
        luma = np.full((height, width), 16)
        for field in (0, 1):
            left = 8 + 4 * (2 * number + field)
            luma[field::2, left : left + 24] = 235
        return np.concatenate([luma.reshape(-1), np.full(width * height // 2, 128)])

    def combs(samples: np.ndarray) -> int:
        lines = samples[: width * height].reshape(height, width)[8:-8].astype(int)
        return int((np.abs(lines[1:-1] - (lines[:-2] + lines[2:]) // 2) > 100).sum())

    pictures = [woven(number) for number in range(6)]
    even = Clip.of(y4m(tmp_path / "even.y4m", "Ip", pictures)).pictures("clip", "clip")
    told = Clip.of(y4m(tmp_path / "told.y4m", "It", pictures)).pictures("clip", "clip")
    as_it_is, without = ([combs(samples) for samples in each.frames] for each in (even, told))
    assert len(as_it_is) == len(without) == 6
    assert min(as_it_is) > 100
    assert max(without) < min(as_it_is) / 4
    assert even.warnings == []
    assert told.warnings == ["told.y4m: it is interlaced; its pictures are deinterlaced, also those for PSNR"]


@dataclass(frozen=True)
class Track:
    """A video track of a made-up file."""

    sides: tuple[int, int]
    default: bool
    kind: int = 0
    """Further dispositions, by FFmpeg's numbers."""


ATTACHED, THUMBNAILS, STILL = 0x400, 0x800, 0x100000
TRACK = st.builds(
    Track,
    sides=st.sampled_from([(64, 48), (96, 64), (128, 96)]),
    default=st.booleans(),
    kind=st.sampled_from([0, 0, 0, ATTACHED, THUMBNAILS, STILL]),
)


class Container:
    """Stands for an open container, of which only the tracks matter."""

    def __init__(self, tracks: list[Track]) -> None:
        of = [
            SimpleNamespace(index=n, width=t.sides[0], height=t.sides[1], disposition=t.default | t.kind)
            for n, t in enumerate(tracks)
        ]
        self.streams = SimpleNamespace(video=of)


@given(st.lists(TRACK, max_size=5))
def test_the_film_of_several_tracks_is_the_one_that_players_take(tracks: list[Track]) -> None:
    taken = [each.index for each in _films(Container(tracks))]
    assert sorted(taken) == [n for n, track in enumerate(tracks) if not track.kind & ATTACHED]
    for earlier, later in itertools.pairwise(taken):
        one, other = tracks[earlier], tracks[later]
        beside = [bool(track.kind & (THUMBNAILS | STILL)) for track in (one, other)]
        if beside[0] != beside[1]:
            assert beside[1], "a thumbnail comes after every film"
        elif one.default != other.default:
            assert one.default, "a default track comes before others"
        elif one.sides != other.sides:
            assert one.sides > other.sides, "a larger picture comes before smaller ones"
        else:
            assert earlier < later


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_the_default_film_is_sent_wherever_it_stands(
    tmp_path: Path, suffix: str, order: tuple[int, int]
) -> None:
    path = tmp_path / f"two.{suffix}"
    tracks = [Track((96, 64), default=True), Track((128, 96), default=False)]
    with av.open(str(path), "w") as file:
        streams = [file.add_stream("mpeg4", rate=RATE) for _ in order]
        for stream, n in zip(streams, order, strict=True):
            stream.width, stream.height = tracks[n].sides
            stream.pix_fmt = "yuv420p"
            stream.disposition = Disposition(int(tracks[n].default))
        for number in range(3):
            for stream in streams:
                frame = painted(0, "bt601", full=False).reformat(stream.width, stream.height)
                frame.pts, frame.time_base = number, Fraction(1, RATE)
                file.mux(stream.encode(frame))
        for stream in streams:
            file.mux(stream.encode(None))
    pictures = Clip.of(path).pictures("clip", "clip")
    list(pictures.frames)
    assert (pictures.width, pictures.height) == (96, 64)
    which = f"track {order.index(0)} (96x64)"
    assert pictures.warnings == [f"two.{suffix}: it holds 2 films; {which} is taken, as players do"]


PICTURES, GROUP = 50, 10
"""Pictures of a late or a cut film, and of one of its groups."""


def late_film(path: Path, codec: str, offset: Fraction, skip: int, *, sound: bool) -> Path:
    """Write a film whose first picture is shown at ``offset``, without its first ``skip`` packets."""
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream(codec, rate=RATE)
        stream.width, stream.height = SIDES
        stream.pix_fmt, stream.gop_size = "yuv420p", GROUP
        stream.codec_context.time_base = Fraction(1, RATE)
        if codec == "libx264":
            stream.options = {"x264-params": f"keyint={GROUP}:min-keyint={GROUP}:scenecut=0"}
        voice = file.add_stream("mp2" if path.suffix == ".ts" else "aac", rate=48_000) if sound else None
        packets: list[Any] = []
        for number in range(PICTURES):
            frame = painted(number % 20, "bt601", full=False)
            frame.pts, frame.time_base = number + round(offset * RATE), Fraction(1, RATE)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        if voice is not None:
            encode: Any = voice.encode
            seconds = offset + Fraction(PICTURES, RATE) + 1
            size = voice.codec_context.frame_size or 1152
            for number in range(int(seconds * 48_000) // size):
                silence = av.AudioFrame.from_ndarray(
                    np.zeros((1, 2 * size), np.int16), format="s16", layout="stereo"
                )
                silence.pts, silence.sample_rate = number * size, 48_000
                silence.time_base = Fraction(1, 48_000)
                packets += encode(silence)
            packets += encode(None)
        taken = itertools.chain(
            [p for p in packets if p.stream.type == "video"][skip:],
            [p for p in packets if p.stream.type == "audio"],
        )
        for packet in sorted(taken, key=lambda p: p.dts * p.time_base):
            file.mux(packet)
    return path


@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(1, 2), Fraction(3), Fraction(20)])
@pytest.mark.parametrize(
    ("suffix", "codec"),
    [
        ("mkv", "mpeg4"),
        ("mkv", "libx264"),
        ("mp4", "libx264"),
        ("mov", "mpeg4"),
        ("ts", "libx264"),
        ("ts", "mpeg2video"),
    ],
)
def test_where_a_film_begins_is_no_damage(
    tmp_path: Path, suffix: str, codec: str, offset: Fraction, *, sound: bool
) -> None:
    """Whole films and films cut anywhere in a group: containers x time of the first picture x cut."""
    for skip in (0, 1, GROUP // 2, GROUP - 1, GROUP):
        path = late_film(tmp_path / f"late{skip}.{suffix}", codec, offset, skip, sound=sound)
        pictures = Clip.of(path).pictures("clip", RATE)
        count = len(list(pictures.frames))
        said = f"{suffix} {codec}, {float(offset)} s late, {skip} cut: {count} pictures, {pictures.warnings}"
        assert not any("damaged" in warning for warning in pictures.warnings), said
        if skip % GROUP == 0:
            assert abs(count - (PICTURES - skip)) <= 1, said
            assert pictures.warnings == [], said
        else:
            # At most the truncated group is missing, and with B frames the pictures that are shown before the next
            # group.
            assert PICTURES - GROUP - 3 <= count <= PICTURES - skip, said


@pytest.mark.parametrize("offset", [Fraction(0), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
def test_a_film_that_begins_late_and_is_cut_short_is_damaged(
    tmp_path: Path, codec: str, offset: Fraction
) -> None:
    whole = late_film(tmp_path / "whole.mkv", codec, offset, 0, sound=False).read_bytes()
    cut = 0
    for tenths in range(3, 10):
        path = tmp_path / "short.mkv"
        path.write_bytes(whole[: len(whole) * tenths // 10])
        try:
            pictures = Clip.of(path).pictures("clip", RATE)
        except ClipError:
            continue  # the cut is before the first picture
        count = len(list(pictures.frames))
        # Only the index is after the last picture.
        assert count == PICTURES or any("short.mkv is damaged" in each for each in pictures.warnings), tenths
        cut += count < PICTURES
    assert cut >= 2


class Lossy:
    """A container with unreadable packets, and then a permanent error."""

    def __init__(self, inner: av.container.InputContainer, after: int, times: int, error: Exception) -> None:
        self._inner, self._after, self._times, self._error = inner, after, times, error
        self._packets = inner.demux(inner.streams.video[0])

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def demux(self, _: object) -> object:
        for packet in self._packets:
            if self._after == 0 and self._times > 0:
                self._times -= 1
                raise self._error
            self._after -= 1
            yield packet


def test_packets_that_cannot_be_read_cost_themselves_alone(clip_path: Path) -> None:
    error = av.error.InvalidDataError(1, "bad")
    with Reader(Lossy(av.open(str(clip_path)), 10, 1, error), "lossy") as reader:
        assert len(list(reader.pictures(*SIDES))) >= 38
        assert reader.failure is None
        assert reader.warnings


def test_what_is_unplugged_is_told_as_the_end(clip_path: Path) -> None:
    error = OSError(19, "No such device")
    with Reader(Lossy(av.open(str(clip_path)), 10, 9, error), "/dev/video0") as reader:
        assert 9 <= len(list(reader.pictures(*SIDES))) <= 11
        assert reader.failure is not None
        assert "No such device" in str(reader.failure)


class Garbled(Lossy):
    """A container that never ends, and whose packets are all invalid from a certain one on."""

    def demux(self, _: object) -> object:
        yield from itertools.islice(self._packets, self._after)
        for _ in range(1000):
            yield av.Packet(b"nonsense")
        raise AssertionError("nobody gave up")


def test_a_stream_that_gives_no_picture_any_more_is_damaged_for_good(tmp_path: Path) -> None:
    frames = [np.full(SIDES[0] * SIDES[1] * 3 // 2, 100)] * 10
    container = Garbled(av.open(str(y4m(tmp_path / "film.y4m", "Ip", frames))), 10, 0, ValueError())
    with Reader(container, "camera", patience=30) as reader:
        assert len(list(reader.pictures(*SIDES))) == 10
        assert reader.lost == 30
        assert "30 pictures in a row" in str(reader.failure)


def test_pictures_of_no_use_are_refused() -> None:
    with pytest.raises(ClipError, match="8x8"):
        Reader(av.open("color=size=8x8", format="lavfi"), "tiny")


@settings(deadline=None, max_examples=3)
@given(count=st.integers(1, 8), turn=st.sampled_from(sorted(_TURNS)), loops=st.integers(1, 4))
def test_pictures_of_a_repeated_film_are_freed_without_the_garbage_collector(
    tmp_path_factory: pytest.TempPathFactory, count: int, turn: tuple[int, int, int, int], loops: int
) -> None:
    path = film(tmp_path_factory.mktemp("film") / "film.mp4", list(range(count)), turn=turn)
    looped = Filed(Clip.of(path), "clip", "clip", loop=True)
    looped.picture(0)
    gc.collect()
    gc.disable()
    try:
        before = living_pictures()
        assert looped.picture(loops * count) is not None
        assert living_pictures() <= before + 1
    finally:
        gc.enable()


def living_pictures() -> int:
    return sum(isinstance(each, av.VideoFrame) for each in gc.get_objects())
