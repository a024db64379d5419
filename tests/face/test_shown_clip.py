"""A user's clip keeps its size, aspect ratio, rotation and frame rate in every command."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import steadycast as sc
from steadycast.errors import UserError
from steadycast.loading import load
from steadycast.media.clip import parse_size

from tests.conftest import command

SCENARIO = """
format = 1
duration = "1s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "3Mbps", delay = "10ms" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "synthetic"
encode = { codec = "h264", bframes = 0, q = "40-41", size = "cif", fps = 25 }
"""
SIZES = ((176, 144), (640, 360), (641, 361), (90, 160), (1280, 720), (1920, 1080), (3840, 2160))
TURNS = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
RATES = (Fraction(25), Fraction(30000, 1001), Fraction(60), Fraction(15))
ASPECTS = (Fraction(1), Fraction(16, 11), Fraction(8, 9))
FORMS = ("yuv420p", "yuv420p10le")


def film(
    path: Path, size: tuple[int, int], turn: int, rate: Fraction, aspect: Fraction, form: str, frames: int = 3
) -> Path:
    """A film in MP4, whose track header has a display matrix (ISO/IEC 14496-12, section 8.3.2)."""
    # A codec that supports odd sides, or for even sides the format that phones write.
    odd = size[0] % 2 or size[1] % 2
    with av.open(str(path), "w", format="mp4") as file:
        options = {} if odd else {"qp": "30", "bf": "0", "preset": "ultrafast"}
        stream: Any = file.add_stream("mpeg4" if odd else "libx264", rate=rate, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p" if odd else form
        stream.codec_context.sample_aspect_ratio = aspect
        for number in range(frames):
            rows = np.full((size[1], size[0], 3), 60 + 40 * number % 160, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(rows, format="rgb24").reformat(format=stream.pix_fmt)
            frame.pts, frame.time_base = number, 1 / rate
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    content = path.read_bytes()
    at = content.index(b"tkhd") + 4 + 40
    a, b, c, d = (value * 65536 for value in TURNS[turn])
    matrix = b"".join(n.to_bytes(4, "big", signed=True) for n in (a, b, 0, c, d, 0, 0, 0, 1 << 30))
    path.write_bytes(content[:at] + matrix + content[at + 36 :])
    return path


def displayed(size: tuple[int, int], turn: int, aspect: Fraction) -> tuple[float, float]:
    """Return the size at which a player shows a film: the samples become square by enlarging one side."""
    width, height = float(size[0]), float(size[1])
    if aspect > 1:
        width *= float(aspect)
    else:
        height /= float(aspect)
    return (height, width) if turn in (90, 270) else (width, height)


def is_near_the_bound(width: int, height: int) -> bool:
    """Whether a picture has at most the samples of 1280x720, and fewer only because its sides are even.

    The longer side L is shorter than the exact length by less than 4: by 2 for being even, and by 2 if the shorter side
    S was rounded up. S is shorter than its exact length by less than 1. The product therefore lacks at most 8 S + L
    samples, which is at most 4.5 (L + S).
    """
    return 1280 * 720 - 9 * (width + height) / 2 <= width * height <= 1280 * 720


def drawn() -> list[tuple[tuple[int, int], int, Fraction, Fraction, str]]:
    """Return cases in which each value of a property occurs with each value of the others, by a fixed rule.

    Films of more than 720 lines take long to write. Each such size occurs in only two cases.
    """
    cases = []
    for number, (size, turn) in enumerate(itertools.product(SIZES[:5], TURNS)):
        rate, aspect = RATES[(number + number // 4) % 4], ASPECTS[(number + number // 3) % 3]
        cases.append((size, turn, rate, aspect, FORMS[number // 2 % 2]))
    cases += [(size, turn, Fraction(30), Fraction(1), "yuv420p") for size in SIZES[5:] for turn in (0, 90)]
    return cases


@pytest.mark.parametrize(
    ("link", "tcp", "warned"), [(1 / 4, 0, True), (4, 0, False), (3 / 2, 1, True), (3, 1, False)]
)
def test_a_film_that_takes_more_than_its_share_at_the_coarsest_quantizer_is_warned_of(
    tmp_path: Path, link: float, tcp: int, warned: bool
) -> None:
    text = SCENARIO.replace('"1s"', '"8s"').replace("40-41", "18-20")
    # The film's rate at its coarsest quantizer is measured on a link without a limit.
    (tmp_path / "alone.toml").write_text(text.replace("18-20", "20-20"))
    alone = sc.run(tmp_path / "alone.toml", set={"topology.bottleneck.rate": "100Mbps"}, quality=False)
    least = alone.summary["flows"][0]["throughput_bps"]
    text += '[[flow]]\nname = "tcp"\nkind = "tcp"\n' * tcp
    (tmp_path / "film.toml").write_text(text.replace("fixed", "steady"))
    rate = {"topology.bottleneck.rate": f"{link * least:.0f}bps"}
    run = sc.run(tmp_path / "film.toml", set=rate, quality=False)
    said = [each for each in run.summary["warnings"] if "even at the coarsest quantizer" in each]
    assert bool(said) == warned, (run.summary, least)
    assert not any("cap" in each for each in said)
    # A cap below this rate is the reason, whatever the link.
    cap = {"topology.bottleneck.rate": "100Mbps", "flow.video.cap": f"{0.5 * least:.0f}bps"}
    capped = sc.run(tmp_path / "film.toml", set=cap, quality=False)
    [text] = [each for each in capped.summary["warnings"] if "even at the coarsest quantizer" in each]
    assert "a higher cap" in text
    assert "link" not in text


@pytest.mark.parametrize(("size", "turn", "rate", "aspect", "form"), drawn())
def test_a_run_shows_the_clip_in_its_own_size_and_rate(
    tmp_path: Path, size: tuple[int, int], turn: int, rate: Fraction, aspect: Fraction, form: str
) -> None:
    (tmp_path / "film.toml").write_text(SCENARIO)
    clip = film(tmp_path / "clip.mp4", size, turn, rate, aspect, form)
    run = sc.run(tmp_path / "film.toml", set={"clip": str(clip)}, quality=False)
    encoded = run.summary["flows"][0]["encoded"]
    assert encoded["codec"] == "h264"
    assert encoded["fps"] == pytest.approx(float(rate), rel=1e-6)
    wide, high = displayed(size, turn, aspect)
    bounded = wide * high > 1280 * 720 + 1
    told = [line for line in run.summary["warnings"] if "is encoded in" in line]
    if bounded:
        assert is_near_the_bound(encoded["width"], encoded["height"])
        assert len(told) == 1
    else:
        # Sides are even. If samples are not square, the longer side is a multiple of four.
        assert abs(encoded["width"] - wide) <= 2
        assert abs(encoded["height"] - high) <= 2
    # The aspect ratio changes by at most the effect of one row or column.
    off = abs(encoded["width"] * high - encoded["height"] * wide)
    assert off <= 2 * (wide + high) + 1e-6


def test_what_is_asked_for_counts_more_than_the_clip_in_any_order(tmp_path: Path) -> None:
    clip = film(tmp_path / "clip.mp4", (320, 240), 0, Fraction(30), Fraction(1), "yuv420p")
    (tmp_path / "film.toml").write_text(SCENARIO)
    for key, value, (size, fps) in (
        ("size", "qcif", ("176x144", "auto")),
        ("size", "clip", ("clip", "auto")),
        ("fps", "10", ("auto", 10.0)),
        ("fps", "clip", ("auto", None)),
    ):
        sets = [f"clip={clip}", f"flow.video.encode.{key}={value}"]
        for order in (sets, sets[::-1]):
            (video,) = load(tmp_path / "film.toml", order).videos()
            assert (video["size"], video["fps"]) == (size, fps), order


DOORS = (
    ("run", "film.toml", "--no-film", "-o", "out"),
    ("emulate", "film.toml", "--no-film", "-o", "out"),
    ("sweep", "film.toml", "--over", "flow.video.controller=fixed", "--pixels", "-o", "out"),
)


@pytest.mark.parametrize("words", DOORS, ids=lambda words: str(words[0]))
@pytest.mark.parametrize("last", [True, False], ids=["clip last", "clip first"])
def test_each_command_that_plays_a_clip_shows_it(tmp_path: Path, words: tuple[str, ...], last: bool) -> None:
    if words[0] == "emulate" and sc.emulate is None:
        pytest.skip("needs network namespaces")
    clip = film(tmp_path / "clip.mp4", (90, 160), 90, Fraction(30), Fraction(1), "yuv420p")
    (tmp_path / "film.toml").write_text(SCENARIO)
    options = [("--set", "flow.video.encode.fps=clip"), ("--clip", str(clip))]
    given = [word for option in (options if last else options[::-1]) for word in option]
    done = subprocess.run(
        command(*words, *given),
        cwd=tmp_path,
        env={**os.environ, "STEADYCAST_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if words[0] == "emulate" and done.returncode == 3:
        pytest.skip("needs network namespaces")
    assert done.returncode == 0, done.stderr
    if words[0] == "sweep":
        # A sweep stores only numbers. The facts about its encoding are in the cache, beside the pictures.
        (about,) = (tmp_path / "cache").rglob("*.json")
        facts = json.loads(about.read_text())
        assert (facts["width"], facts["height"], facts["fps"]) == (160, 90, "30")
        return
    (summary,) = (tmp_path / "out").rglob("summary.json")
    encoded = json.loads(summary.read_text())["flows"][0]["encoded"]
    assert encoded == {"codec": "h264", "width": 160, "height": 90, "fps": 30.0}


def test_the_bound_of_a_size_keeps_the_aspect_ratio_at_any_shape() -> None:
    # Sizes over the whole range that a reader accepts. The two steps are primes.
    for wide, high in itertools.product(range(16, 8193, 409), range(16, 8193, 523)):
        width, height = parse_size("auto", (wide, high))
        assert width % 2 == height % 2 == 0
        if wide * high <= 1280 * 720:
            assert (width, height) == (wide // 2 * 2, high // 2 * 2)
            continue
        assert is_near_the_bound(width, height)
        # A side of the picture is off by at most one sample.
        assert abs(width / wide * high - height) <= 1.5 or abs(height / high * wide - width) <= 1.5


def test_a_clip_that_is_longer_than_the_run_is_read_as_far_as_it_is_sent(tmp_path: Path) -> None:
    clip = film(tmp_path / "clip.mp4", (64, 64), 0, Fraction(1), Fraction(1), "yuv420p", frames=75)
    (tmp_path / "film.toml").write_text(SCENARIO)
    run = sc.run(
        tmp_path / "film.toml", set={"clip": str(clip), "flow.video.encode.size": "clip"}, quality=False
    )
    assert any("the first 60 s are encoded" in line for line in run.summary["warnings"])
    longer = sc.run(tmp_path / "film.toml", set={"clip": str(clip), "duration": "61s"}, quality=False)
    assert not any("are encoded" in line for line in longer.summary["warnings"])


@pytest.mark.parametrize(
    ("name", "form"), [("cover.png", "png"), ("photo.jpg", "mjpeg"), ("scan.bmp", "bmp")]
)
def test_a_picture_is_no_film(tmp_path: Path, name: str, form: str) -> None:
    with av.open(str(tmp_path / name), "w", format="image2", options={"update": "1"}) as file:
        stream: Any = file.add_stream(form, rate=1)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = {"png": "rgb24", "mjpeg": "yuvj420p", "bmp": "bgr24"}[form]
        frame = av.VideoFrame(64, 48, stream.pix_fmt)
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    with pytest.raises(UserError, match="the file is a picture"):
        sc.run("home", set={"clip": str(tmp_path / name)}, quality=False)
