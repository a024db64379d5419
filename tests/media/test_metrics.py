import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clips import judged
from steadycast.media.metrics import (
    PSNR_CAP_DB,
    Picture,
    mean_db,
    opinion_classes,
    picture_psnr_db,
    picture_ssim,
)
from steadycast.media.synthetic import Synthetic


def _pairs():
    """Pictures of the synthetic clip, compared with coarser, darker, noisier and shifted versions."""
    rng = np.random.default_rng(5)
    frames = list(Synthetic(8).pictures("cif", 25).frames)
    for index, samples in enumerate(frames):
        other = {
            0: lambda s: s // 8 * 8,
            1: lambda s: s // 3,
            2: lambda s: np.clip(s + rng.integers(-9, 10, s.shape), 0, 255),
            3: lambda s: np.roll(s, 3),
            4: lambda s: s // 32 * 32 + 7,
            5: lambda s: np.clip(s.astype(int) + 40, 0, 255),
            6: lambda s: np.full_like(s, 128),
            7: lambda s: 255 - s,
        }[index](samples)
        yield Picture.of(samples, 352, 288), Picture.of(other.astype(np.uint8), 352, 288)
    dark = rng.integers(0, 4, 352 * 288 * 3 // 2, dtype=np.uint8)
    yield Picture.of(dark, 352, 288), Picture.of(dark // 2, 352, 288)


def test_psnr_agrees_with_ffmpegs_filter_to_a_hundredth_of_a_db():
    for a, b in _pairs():
        told = judged("psnr", a, b)
        expected = [float(told[f"lavfi.psnr.psnr.{plane}"]) for plane in "yuv"]
        assert picture_psnr_db(a, b) == pytest.approx(expected, abs=0.01)


def test_ssim_agrees_with_ffmpegs_filter_to_a_thousandth():
    for a, b in _pairs():
        assert picture_ssim(a, b) == pytest.approx(float(judged("ssim", a, b)["lavfi.ssim.Y"]), abs=0.001)


def test_sides_that_are_no_multiple_of_four_are_measured_as_ffmpeg_does():
    rng = np.random.default_rng(6)
    a = rng.integers(0, 256, (63, 94), dtype=np.uint8)
    b = np.clip(a.astype(int) + rng.integers(-20, 21, a.shape), 0, 255).astype(np.uint8)
    pair = [Picture(plane, plane, plane) for plane in (a, b)]
    assert picture_ssim(*pair) == pytest.approx(float(judged("ssim", a, b)["lavfi.ssim.Y"]), abs=0.001)
    expected = float(judged("psnr", a, b)["lavfi.psnr.psnr.y"])
    assert picture_psnr_db(*pair)[0] == pytest.approx(expected, abs=0.01)


def test_identical_pictures_are_infinite_and_count_as_the_cap_in_the_mean():
    picture = next(iter(_pairs()))[0]
    assert picture_psnr_db(picture, picture) == (np.inf, np.inf, np.inf)
    assert mean_db(np.array([30.0, np.inf, 50.0])) == (30.0 + PSNR_CAP_DB + 50.0) / 3
    assert mean_db(np.array([])) is None


@given(st.lists(st.floats(0, 130) | st.just(np.inf), min_size=1), st.data())
def test_the_mean_never_falls_when_a_picture_gets_better(psnr, data):
    place = data.draw(st.integers(0, len(psnr) - 1))
    better = [*psnr]
    better[place] = data.draw(st.floats(psnr[place], allow_nan=False))
    before, after = mean_db(np.array(psnr)), mean_db(np.array(better))
    assert before <= after + 1e-9
    if psnr[place] < PSNR_CAP_DB - 0.1 and better[place] >= psnr[place] + 0.1:
        assert before < after
    assert max(before, after) <= PSNR_CAP_DB + 1e-9


def test_opinion_classes_close_the_gaps_of_the_paper():
    psnr = np.array([19.99, 20.0, 24.5, 25.0, 25.1, 30.5, 31.0, 31.1, 37.0, 37.1, np.inf])
    assert opinion_classes(psnr).tolist() == [1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5]
