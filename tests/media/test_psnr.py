"""A comparison of two files, and the files of a ladder."""

import json
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_clips import judged, write_clip
from steadycast import encode, psnr
from steadycast.errors import UserError
from steadycast.media.clip import Clip
from steadycast.media.metrics import Picture
from steadycast.media.quality import BY
from steadycast.media.table import FrameTable, Kind, coding_order
from steadycast.media.trace import TraceError, read_trace, written

from tests.conftest import ran

ROUNDING_DB = 0.006
"""FFmpeg's filter prints two decimals."""


def lossless(path: Path, clip: Path, without: frozenset[int] = frozenset(), *, close: bool = False) -> Path:
    """Copy a clip losslessly. Frames that are left out leave a gap in time, or the following frames close the gap."""
    pictures = Clip.of(clip).pictures("clip", "clip")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = pictures.width, pictures.height, "yuv420p"
        written_frames = 0
        for index, samples in enumerate(pictures.frames):
            if index in without:
                continue
            frame = av.VideoFrame.from_ndarray(samples.reshape(-1, pictures.width), format="yuv420p")
            frame.pts, frame.time_base = written_frames if close else index, Fraction(1, 25)
            container.mux(stream.encode(frame))
            written_frames += 1
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    original = lossless(folder / "original.mkv", write_clip(folder / "fine.mkv"))
    return original, write_clip(folder / "coarse.mp4", codec="mpeg2video")


def test_psnr_of_planes_and_of_all_samples_and_ssim_are_those_of_ffmpeg(pair: tuple[Path, Path]) -> None:
    seen = psnr.compare(*pair)
    assert len(seen.ssim) == 40
    planes = [
        [Picture.of(s, 176, 144) for s in Clip.of(path).pictures("clip", "clip").frames] for path in pair
    ]
    for n in (0, 17, 39):
        told = judged("psnr", planes[1][n], planes[0][n])
        for i, plane in enumerate(("y", "u", "v", "avg")):
            name = f"lavfi.psnr.psnr{'_' if plane == 'avg' else '.'}{plane}"
            assert seen.psnr_db[n, i] == pytest.approx(float(told[name]), abs=ROUNDING_DB), name


def test_a_file_beside_itself_is_identical(pair: tuple[Path, Path]) -> None:
    figures = psnr.compare(pair[0], pair[0]).json()
    assert (figures["identical_frames"], figures["psnr_db"]["y"], figures["ssim"]) == (40, 60.0, 1.0)
    assert figures["mos"]["share"]["5"] == 1.0


def test_by_time_a_lost_frame_costs_itself_and_by_index_all_that_follow(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    original = pair[0]
    lost = lossless(tmp_path / "lost.mkv", original, frozenset({10, 11}))
    by_time, by_index = (psnr.compare(original, lost, by) for by in BY)
    assert np.flatnonzero(np.isfinite(by_time.psnr_db[:, 0])).tolist() == [10, 11]
    # The synthetic clip moves in each frame.
    assert np.flatnonzero(np.isfinite(by_index.psnr_db[:, 0])).tolist() == list(range(10, 38))
    assert by_index.frames == (40, 38)
    assert by_index.warnings == ("the original has 40 frames, the other file 38: 38 are compared",)


def test_the_table_has_a_row_per_frame(pair: tuple[Path, Path], tmp_path: Path) -> None:
    seen = psnr.compare(*pair)
    for ending, read in ((".csv", pl.read_csv), (".parquet", pl.read_parquet)):
        table = read(psnr.save(seen, tmp_path / f"frames{ending}"))
        assert table.columns == [
            "frame", "time_s", "psnr_y_db", "psnr_u_db", "psnr_v_db", "psnr_all_db", "ssim", "mos"
        ]  # fmt: skip
        assert table["psnr_all_db"].to_numpy() == pytest.approx(seen.psnr_db[:, 3])
    with pytest.raises(UserError, match=r"end the name in .csv or .parquet"):
        psnr.save(seen, tmp_path / "frames.txt")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{original}", "absent.mkv"], 2, "there is no such file"),
        (["{original}", "{original}", "--fps", "25"], 2, "it is for raw files"),
        (["{original}", "{original}", "--out", "/proc/absent/x.csv"], 4, "can't be written"),
        (["{original}", "{original}", "--json"], 0, ""),
    ],
)
def test_psnr_ends_as_the_page_of_exit_codes_says(
    words: list[str], code: int, said: str, pair: tuple[Path, Path]
) -> None:
    words = [word.format(original=pair[0]) for word in words]
    done = ran([sys.executable, "-m", "steadycast", "psnr", *words])
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert code == 0 or "Traceback" not in done.stderr
    if not code:
        assert json.loads(done.stdout)["frames"] == 40


@st.composite
def tables(draw: st.DrawFn, qs: list[int] | None = None) -> FrameTable:
    """Tables of closed groups of pictures, as encoders make them."""
    gop, distance = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    frames = draw(st.integers(1, 40))
    kinds, display = [], []
    for first in range(0, frames, gop):
        length = min(gop, frames - first)
        pattern = "".join(
            "I" if i == 0 else "P" if i % distance == 0 or i == length - 1 else "B" for i in range(length)
        )
        part, places = coding_order(pattern)
        kinds += part.tolist()
        display += (places + first).tolist()
    qs = qs or sorted(draw(st.sets(st.integers(1, 63), min_size=1, max_size=4)))
    sizes = np.random.default_rng(draw(st.integers(0, 1000))).integers(1, 100_000, (len(qs), frames))
    return FrameTable(
        Fraction(25),
        min(gop, frames),
        np.array(kinds, dtype=np.uint8),
        qs,
        sizes.astype(np.uint32),
        np.array(display, dtype=np.uint32),
        "generated",
    )


def same(one: FrameTable, other: FrameTable) -> bool:
    return (one.fps, one.gop, one.qs) == (other.fps, other.gop, other.qs) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("kinds", "sizes", "display")
    )


@given(table=tables())
def test_a_trace_is_read_back_as_it_was_written(
    table: FrameTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.csv"
    path.write_text(written(path, table, np.zeros((len(table.qs), table.frames))))
    assert same(read_trace(path), table)


@settings(max_examples=20)
@given(table=tables(list(range(2, 32))))
def test_a_trace_in_evalvid_s_form_is_read_back_as_it_was_written(
    table: FrameTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.txt"
    path.write_text(written(path, table, np.zeros((len(table.qs), table.frames))))
    assert same(read_trace(path), table)


def test_evalvid_s_form_has_its_own_quantizers_only(tmp_path: Path) -> None:
    kinds, display = coding_order("I")
    table = FrameTable(Fraction(25), 1, kinds, [18], np.ones((1, 1), dtype=np.uint32), display, "one")
    with pytest.raises(TraceError, match=r"end the file's name in \.csv"):
        written(tmp_path / "x.txt", table, np.zeros((1, 1)))


@pytest.mark.parametrize("codec", ["mpeg4", "vp8"])
def test_each_clip_of_a_ladder_plays_as_its_trace_says(codec: str, tmp_path: Path) -> None:
    clip = lossless(tmp_path / "clip.mkv", write_clip(tmp_path / "source.mkv", frames=13))
    steps = encode.steps([clip], codec=codec)
    paths = encode.write_clips(steps, tmp_path / "clips")
    trace = pl.read_csv(encode.write_trace(steps, tmp_path / "trace.csv"))
    assert len(paths) == len(steps.q)
    for place in (0, -1):
        seen = psnr.compare(clip, paths[place], "index")
        mine = trace.filter(pl.col("q") == steps.q[place])
        # The trace is in coding order.
        told = mine["psnr_y_db"].to_numpy()[np.argsort(steps.ladder.table.display)]
        assert seen.psnr_db[:, 0] == pytest.approx(told, abs=1e-4)
        assert [Kind[t] for t in mine["type"]] == steps.ladder.table.kinds.tolist()
