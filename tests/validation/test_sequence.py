from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from steadycast.media.trace import read_trace

from validation import sequence


@pytest.fixture
def sizes() -> sequence.Sizes:
    return np.random.default_rng(3).integers(40, 4000, (3, 4, 30)).astype(np.float64)


def test_each_way_evens_out_one_thing_and_keeps_the_bytes_of_the_rest(sizes: sequence.Sizes) -> None:
    frames, groups = sequence.even_frames(sizes), sequence.even_groups(sizes)
    assert np.ptp(frames, axis=2).max() == pytest.approx(0.0, abs=1e-9)
    assert frames.sum(axis=2) == pytest.approx(sizes.sum(axis=2))
    assert np.ptp(groups.sum(axis=2), axis=1) == pytest.approx(0.0, abs=1e-6)
    assert groups.sum(axis=(1, 2)) == pytest.approx(sizes.sum(axis=(1, 2)))
    share = sizes / sizes.sum(axis=2, keepdims=True)
    assert groups / groups.sum(axis=2, keepdims=True) == pytest.approx(share)


def test_finer_quantizers_keep_the_others_and_lie_between_them(sizes: sequence.Sizes) -> None:
    fine = sequence.finer(sizes)
    assert np.array_equal(fine[::2], sizes)
    low, high = np.minimum(sizes[:-1], sizes[1:]), np.maximum(sizes[:-1], sizes[1:])
    assert ((low <= fine[1::2]) & (fine[1::2] <= high)).all()


def test_a_trace_is_read_as_it_was_written(sizes: sequence.Sizes, tmp_path: Path) -> None:
    place = tmp_path / "frames.csv"
    place.write_text(sequence.trace(sizes), encoding="utf-8")
    assert np.array_equal(read_trace(place, 29.97).sizes, sizes.reshape(3, -1))
