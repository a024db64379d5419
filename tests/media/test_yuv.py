"""Raw files: where their format is given, and that they are read in it."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from steadycast import psnr
from steadycast.loading import changes, load
from steadycast.media import prepare
from steadycast.media.clip import Clip, ClipError
from steadycast.media.reader import scaled
from steadycast.media.synthetic import Synthetic
from steadycast.media.yuv import SIZES, Layout


def raw(path: Path, pixels: str = "yuv420p", size: str = "176x144", frames: int = 3) -> list[np.ndarray]:
    """Write a raw file; return its pictures as they are to be read, in 4:2:0."""
    pictures = Synthetic(frames).pictures(size, 25)
    expected = []
    with path.open("wb") as file:
        for samples in pictures.frames:
            frame = av.VideoFrame.from_ndarray(
                samples.reshape(pictures.height * 3 // 2, pictures.width), format="yuv420p"
            )
            stored = frame.reformat(format=pixels, interpolation="BICUBIC")
            for plane in stored.planes:
                wide = plane.width * (
                    2 if "10" in pixels or (pixels == "nv12" and plane is not stored.planes[0]) else 1
                )
                rows = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(plane.height, plane.line_size)
                file.write(rows[:, :wide].tobytes())
            expected.append(scaled(stored, pictures.width, pictures.height))
    return expected


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "nv12"])
def test_a_raw_file_is_read_as_its_name_says(pixels: str, tmp_path: Path) -> None:
    path = tmp_path / f"film_176x144_50_{pixels}.yuv"
    expected = raw(path, pixels)
    pictures = Clip.of(path).pictures("clip", "clip")
    assert (pictures.width, pictures.height, pictures.fps) == (176, 144, 50)
    assert all(np.array_equal(*pair) for pair in zip(pictures.frames, expected, strict=True))
    assert pictures.warnings == []


def odd_raw(path: Path, pixels: str) -> list[np.ndarray]:
    """Write a raw file of 33x25 samples as FFmpeg does; return its pictures in 32x24."""
    chance, expected = np.random.default_rng(1), []
    with path.open("wb") as file:
        for _ in range(3):
            frame = av.VideoFrame(33, 25, pixels)
            for n, plane in enumerate(frame.planes):
                wide = plane.width * (2 if pixels == "nv12" and n == 1 else 1)
                rows = np.zeros((plane.height, plane.line_size), dtype=np.uint8)
                rows[:, :wide] = chance.integers(16, 236, (plane.height, wide))
                plane.update(rows.tobytes())
                file.write(rows[:, :wide].tobytes())
            expected.append(scaled(frame, 32, 24))
    return expected


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "nv12"])
@pytest.mark.parametrize("name", ["film.yuv", "film_33x25_25.yuv"])
def test_a_raw_file_with_odd_sides_is_read_in_its_size(pixels: str, name: str, tmp_path: Path) -> None:
    expected = odd_raw(tmp_path / name, pixels)
    pictures = Clip.of(tmp_path / name, pixels).pictures("33x25", 25)
    assert (pictures.width, pictures.height) == (32, 24)
    assert all(np.array_equal(*pair) for pair in zip(pictures.frames, expected, strict=True))


def test_psnr_reads_a_raw_file_with_odd_sides(tmp_path: Path) -> None:
    odd_raw(tmp_path / "film.yuv", "yuv420p")
    film = tmp_path / "film.yuv"
    assert psnr.compare(film, film, size="33x25", fps="25").frames == (3, 3)


def test_a_packed_format_with_an_odd_width_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    film = tmp_path / "film.yuv"
    film.write_bytes(bytes(34 * 25 * 2))
    with pytest.raises(ClipError, match="yuyv422 with an odd width") as told:
        Clip.of(film, "yuyv422").pictures("33x25", 25)
    assert f"ffmpeg -f rawvideo -pixel_format yuyv422 -video_size 33x25 -framerate 25 -i {film}" in str(
        told.value
    )


def test_what_its_name_does_not_say_is_told_and_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "film.yuv"
    expected = raw(path, "yuv422p")
    pictures = Clip.of(path, "yuv422p").pictures("qcif", 25)
    assert all(np.array_equal(*pair) for pair in zip(pictures.frames, expected, strict=True))
    assert pictures.warnings == [
        "film.yuv is read as 176x144 at 25 pictures per second, yuv422p: neither the file nor its name says all of it"
    ]
    assert Clip.of(path, "yuv422p").identity() != Clip.of(path).identity()


def test_a_size_in_the_name_is_the_file_s_and_the_one_asked_for_that_of_the_pictures(tmp_path: Path) -> None:
    raw(tmp_path / "film_qcif.yuv", frames=4)  # as many bytes as one picture in CIF
    pictures = Clip.of(tmp_path / "film_qcif.yuv").pictures("cif", 25)
    assert (pictures.width, len(list(pictures.frames))) == (352, 4)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("foreman_cif", Layout((352, 288))),
        ("akiyo_qcif.30fps", Layout((176, 144), Fraction(30))),
        ("Johnny_720p_60", Layout((1280, 720), Fraction(60))),
        ("Crowd-1920x1080_50", Layout((1920, 1080), Fraction(50))),
        ("x_640x480_29.97fps_yuv420p10le", Layout((640, 480), Fraction("29.97"), "yuv420p10le")),
        ("foreman_352x288_300", Layout((352, 288))),  # 300 is a number of frames, not a rate
        ("x_12.5hz", Layout(None, Fraction("12.5"))),
        ("yuvish_yuv999p", Layout()),
        ("concat", Layout()),
    ],
)
def test_names_of_raw_files_say_how_pictures_lie(name: str, layout: Layout) -> None:
    assert Layout.named(Path(f"{name}.yuv")) == layout


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_a_scenario_knows_each_named_size_as_raw_files_do(name: str, size: tuple[int, int]) -> None:
    (video,) = load("home", changes({"flow.video.encode.size": name})).videos()
    assert video["size"] == f"{size[0]}x{size[1]}"


@pytest.mark.parametrize(
    ("size", "fps", "pixels", "said"),
    [
        (
            "clip",
            "clip",
            None,
            "does not say its pictures' size and rate; add encode.size=352x288 encode.fps=25, or",
        ),
        (
            "176x144",
            "clip",
            None,
            "does not say its pictures' rate; add encode.fps=25, or",
        ),
        ("clip", 25, None, "does not say its pictures' size; add"),
        (
            "352x288",
            25,
            None,
            "114048 bytes are not a whole number of pictures of 152064 bytes (352x288 at 25",
        ),
        ("176x144", 25, "yuv999p", "there is no pixel format 'yuv999p'; take yuv420p, yuv422p"),
    ],
)
def test_what_is_not_said_of_a_raw_file_is_one_line_with_the_remedy(
    size: str, fps: str | int, pixels: str | None, said: str, tmp_path: Path
) -> None:
    raw(tmp_path / "film.yuv")
    with pytest.raises(ClipError) as error:
        Clip.of(tmp_path / "film.yuv", pixels).pictures(size, fps)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_remedy_for_a_raw_file_in_a_scenario_can_be_typed(tmp_path: Path) -> None:
    raw(tmp_path / "film_176x144.yuv")
    (video,) = load("home", changes({"flow.video.clip": str(tmp_path / "film_176x144.yuv")})).videos()
    for read in (prepare.opened, lambda each: prepare.media_of(each, 1)):
        with pytest.raises(ClipError) as error:
            read(video)
        option, value = error.value.remedy.removeprefix("add ").partition(", ")[0].split()
        assert (option, value) == ("--set", "flow.video.encode.fps=25")
    key, _, rate = value.partition("=")
    given = {"flow.video.clip": str(tmp_path / "film_176x144.yuv"), key: rate}
    prepare.opened(load("home", changes(given)).videos()[0])


def test_an_empty_raw_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "film_cif_25.yuv").touch()
    with pytest.raises(ClipError, match="the file is empty"):
        Clip.of(tmp_path / "film_cif_25.yuv").pictures("clip", "clip")
