"""Quantities over time: of one run, and of several in one drawing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steadycast.compare import read, save_figures
from steadycast.folder import Folder
from steadycast.report import figures, over_time

from tests.face.made_up import make


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Folder]]:
    place = tmp_path_factory.mktemp("runs")
    for name in ("one", "two"):
        make(place / name, receivers=1, seconds=12)
    return [(name, Folder.open(place / name)) for name in ("one", "two")]


@given(values=st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_jain_s_index_is_between_a_share_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= over_time.jain(values) <= 1 + 1e-9


def test_jain_s_index_is_one_for_equals_and_a_half_for_one_of_two() -> None:
    assert over_time.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert over_time.jain([3.0, 0.0]) == pytest.approx(0.5)


def test_jitter_adds_up_to_the_cumulative_jitter_where_every_frame_came(
    folders: list[tuple[str, Folder]],
) -> None:
    folder = folders[0][1]
    (steps,) = over_time.QUANTITIES["jitter"].lines(folder)
    (sums,) = over_time.QUANTITIES["cumulative-jitter"].lines(folder)
    assert sums.values[0] == 0
    # Without a lost frame between two frames, their sums differ by the jitter of the second frame.
    known = dict(zip(sums.t.tolist(), np.diff(sums.values, prepend=0.0).tolist(), strict=True))
    assert len(steps.t) > 100
    assert steps.values == pytest.approx([known[t] for t in steps.t.tolist()], abs=1e-6)


def test_each_quantity_of_two_runs_is_one_drawing_that_names_both_and_its_data(
    folders: list[tuple[str, Folder]], tmp_path: Path
) -> None:
    runs = read([folder.path for _, folder in folders])
    saved = save_figures(runs, None, tmp_path)
    for name in over_time.QUANTITIES:
        assert {tmp_path / f"{name}{ending}" for ending in (".pdf", ".svg", ".png", ".csv")} <= set(saved)
        drawing = (tmp_path / f"{name}.svg").read_text()
        assert "one" in drawing
        assert "two" in drawing
        head, first, *_ = (tmp_path / f"{name}.csv").read_text().splitlines()
        assert head.startswith(f"t_s,one: video {name},")
        assert len(first.split(",")) == len(head.split(","))


@pytest.mark.parametrize("plot", figures.ALONE, ids=lambda plot: plot.name)
def test_a_figure_that_stands_in_no_report_is_saved_when_it_is_asked_for(
    plot: figures.Plot, folders: list[tuple[str, Folder]], tmp_path: Path
) -> None:
    figures.save(folders[0][1], plot.name, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
