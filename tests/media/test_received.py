"""The received pictures as a file, measured by time and by index."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import steadycast
from small_clips import write_clip
from steadycast import psnr, quality, received
from steadycast.errors import UnwrittenError, UserError
from steadycast.media.ladder import Ladder, encode_ladder
from steadycast.media.metrics import picture_psnr_db
from steadycast.media.quality import evaluate, pictures_at
from steadycast.media.splice import NEVER, Fates
from steadycast.media.synthetic import Synthetic
from steadycast.media.table import Kind
from steadycast.progress import Silent

SCENARIO = """
format = 1
duration = "3s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "1Mbps", delay = "10ms", loss = {{ kind = "bernoulli", p = 0.02 }} }}
[[flow]]
name = "video"
kind = "video"
controller = "tfmcc"
receivers = {receivers}
cast = "multicast"
media = "clip"
clip = "{clip}"
playout = "200ms"
encode = {{ size = "qcif", fps = 25, q = "4-8" }}
"""


@dataclass
class Ran:
    """A run, and the clip that it sent."""

    run: steadycast.Run
    clip: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("ran")
    clip = write_clip(folder / "clip.mkv", frames=80)
    path = folder / "small.toml"
    path.write_text(SCENARIO.format(receivers=1, clip=clip))
    return Ran(steadycast.run(path), clip)


@pytest.mark.parametrize("ending", [".yuv", ".y4m", ".mkv"])
def test_a_saved_video_is_what_was_measured(ending: str, ran: Ran, tmp_path: Path) -> None:
    (path,) = received.save(ran.run.held(), tmp_path / f"seen_qcif_25{ending}", Silent())
    frames = ran.run.frames.to_polars().sort("display")
    assert not (frames["fate"] == "ok").all()
    seen = psnr.compare(ran.clip, path, "index")
    assert seen.frames == (80, len(frames))
    shown = frames.filter(frames["display"] < len(frames))
    measured = seen.frame_table()["psnr_y_db"].to_numpy()[shown["display"]]
    assert measured == pytest.approx(shown["psnr_y_db"].to_numpy(), abs=1e-9)


def test_several_receivers_have_a_file_each_of_the_same_name_or_in_one_folder(
    ran: Ran, tmp_path: Path
) -> None:
    scenario = tmp_path / "several.toml"
    scenario.write_text(SCENARIO.format(receivers=2, clip=ran.clip))
    run = steadycast.run(scenario).held()
    names = [path.name for path in received.save(run, tmp_path / "seen.mp4", Silent())]
    assert names == ["seen-video-dst1.mp4", "seen-video-dst2.mp4"]
    paths = received.save(run, tmp_path / "folder", Silent())
    assert [path.name for path in paths] == ["video-dst1.mkv", "video-dst2.mkv"]
    with pytest.raises(UserError, match=r"can't be saved in this format; choose from: \.yuv, \.y4m, \.mkv"):
        received.save(run, tmp_path / "seen.txt", Silent())


def test_quality_by_index_is_measured_from_a_run_and_tells_no_freezes(ran: Ran, tmp_path: Path) -> None:
    folder = ran.run.save(tmp_path / "run")
    held = steadycast.folder.Folder.open(folder)
    by_time, by_index = (quality.measure(held, by=by)[0] for by in ("time", "index"))
    assert by_index["mos"]["mean"] < by_time["mos"]["mean"]
    assert "freeze_count" in by_time
    assert "freeze_count" not in by_index
    with pytest.raises(UserError, match="take time or index"):
        quality.measure(held, by="chance")


@pytest.fixture(scope="module")
def ladder() -> Ladder:
    return encode_ladder(Synthetic(36), size="qcif", qs=[6])


def told(ladder: Ladder, lost: list[int], late: list[int] | None = None) -> Fates:
    n = ladder.table.frames
    complete = np.ones(n, dtype=np.bool_)
    complete[lost] = False
    arrival, play = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
    arrival[late or []] = 2
    arrival[lost] = NEVER
    return Fates(complete, arrival, play)


def test_by_index_is_by_time_where_nothing_is_lost(ladder: Ladder) -> None:
    by_time, by_index = (evaluate(ladder, [6] * 3, told(ladder, []), by=by) for by in ("time", "index"))
    assert by_time is not None
    assert by_index is not None
    assert np.array_equal(by_time.psnr_raw, by_index.psnr_raw)


@pytest.mark.parametrize("how", ["lost", "late"])
def test_by_index_a_frame_that_is_not_there_moves_all_that_follow_it(how: str, ladder: Ladder) -> None:
    # The second B frame of the first group: nothing refers to it.
    gone = int(np.flatnonzero(ladder.table.kinds == Kind.B)[1])
    slot = int(ladder.table.display[gone])
    fates = told(ladder, [gone]) if how == "lost" else told(ladder, [], [gone])
    by_time, by_index = (evaluate(ladder, [6] * 3, fates, by=by) for by in ("time", "index"))
    assert by_time is not None
    assert by_index is not None
    assert by_index.shown.tolist() == [n for n in range(36) if n != slot]
    assert np.array_equal(by_index.psnr_raw[:slot], by_time.psnr_raw[:slot])
    for n in range(slot, 35):
        raw, got = (pictures_at(ladder, [6] * 3, fates, [at])[0] for at in (n, n + 1))
        assert by_index.psnr_raw[n] == pytest.approx(picture_psnr_db(got.received, raw.raw))
    # Its slot shows the previous frame; all others are complete, so that no time is lost.
    same = evaluate(ladder, [6] * 3, told(ladder, []))
    assert same is not None
    assert np.flatnonzero((by_time.psnr_raw != same.psnr_raw).any(axis=1)).tolist() == [slot]


@pytest.mark.parametrize("ending", [".yuv", ".y4m", ".mkv", ".mp4"])
def test_the_size_of_a_video_is_estimated_before_it_is_written(
    ending: str, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(received, "need_room", lambda _target, size, _videos: asked.append(size))
    (path,) = received.save(ran.run.held(), tmp_path / f"seen{ending}", Silent())
    # A lossless file has the size of its pictures. The size of other files depends on the content of the sampled
    # pictures.
    within = 1.01 if ending in (".yuv", ".y4m") else 2.5
    assert path.stat().st_size / within < asked[0] < path.stat().st_size * within


def test_much_is_told_before_it_is_written_and_more_than_the_disk_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=20_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    target = tmp_path / "seen.y4m"
    received.need_room(target, 999_999_999)
    assert capsys.readouterr().err == ""
    received.need_room(target, 13_700_000_000, 45)
    assert capsys.readouterr().err == f"warning: {target}: 45 videos take about 13.7 GB\n"
    with pytest.raises(
        UnwrittenError, match=r"45 videos take about 20\.1 GB, and 20\.0 GB are free; make room"
    ):
        received.need_room(target, 20_050_000_001, 45)


def test_nothing_is_written_where_the_disk_is_short(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UnwrittenError, match=r"a video takes about"):
        received.save(ran.run.held(), tmp_path / "seen.mkv", Silent())
    assert list(tmp_path.iterdir()) == []
