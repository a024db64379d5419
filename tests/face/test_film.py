"""The film of the worst ten seconds: its choice, its look, its maximum size, and its place on a page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import polars as pl
import pytest
from steadycast import film as film_module
from steadycast.compare import read, write_page
from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.progress import Silent
from steadycast.report import film as film_page
from steadycast.report.page import write_report
from steadycast.run import run

WIDTH, HEIGHT = 176, 144
SCENARIO = """\
format = 1
name = "film"
duration = "24s"
seed = 1

[topology]
shape = "dumbbell"
bottleneck = {{ rate = "4Mbps", delay = "10ms", queue = {{ kind = "droptail", limit = "50p" }} }}
access = {{ rate = "10Mbps", delay = "5ms" }}

[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "600kbps" }}
media = "{media}"
encode = {{ size = "{width}x{height}", q = "8-12" }}
playout = "150ms"

[[event]] # what waits comes too late, and some is lost
at = "13s"
set = {{ link = "bottleneck", rate = "300kbps" }}

[[event]]
at = "17s"
set = {{ link = "bottleneck", rate = "4Mbps" }}
"""


def scenario(folder: Path, media: str = "synthetic") -> Path:
    path = folder / "film.toml"
    path.write_text(SCENARIO.format(media=media, width=WIDTH, height=HEIGHT))
    return path


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A run whose viewer misses frames from second 13 on, with its film."""
    place = tmp_path_factory.mktemp("film")
    run(scenario(place), out=place / "run", film=True, progress=Silent())
    return Folder.open(place / "run")


def shown(folder: Folder) -> tuple[dict[str, Any], list[Any]]:
    """Return the film's facts and its pictures."""
    assert folder.film is not None
    facts, data = folder.film
    with av.open(io.BytesIO(data)) as container:
        return facts, [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_the_film_is_of_the_ten_seconds_with_most_frames_not_whole_and_in_time(filmed: Folder) -> None:
    facts, pictures = shown(filmed)
    assert (facts["flow"], facts["receiver"]) == ("video", "video.dst1")
    assert facts["slots"] == len(pictures) == 250
    assert facts["to_s"] - facts["from_s"] == pytest.approx(10.0)
    frames = filmed.table("frames").sort("display")
    missed = (frames["fate"] != "ok").to_numpy()
    sums = np.convolve(missed, np.ones(250), "valid")
    assert 0 < sums.max() == 250 - facts["frames"]["ok"]
    assert sum(facts["frames"].values()) == 250
    assert sums.max() == missed[:-1].sum()  # the run ends within the last second
    assert facts["from_s"] < 13.0 < facts["to_s"] - 1


def test_frames_that_the_sender_skipped_are_not_told_as_lost(tmp_path: Path) -> None:
    # The controller asks for a tenth of what the coarsest quantizer needs, so the sender skips frames.
    path = tmp_path / "film.toml"
    text = SCENARIO.format(media="synthetic", width=WIDTH, height=HEIGHT).replace("600kbps", "20kbps")
    path.write_text(text[: text.index("[[event]]")])
    run(path, out=tmp_path / "run", film=True, progress=Silent())
    folder = Folder.open(tmp_path / "run")
    facts, _ = shown(folder)
    frames = folder.table("frames").filter(pl.col("pts_s").is_between(facts["from_s"], facts["to_s"] - 0.03))
    skipped = frames.filter(pl.col("sent_s").is_null())
    assert facts["frames"]["skipped"] == len(skipped) > 0
    assert set(skipped["fate"]) == {"lost"}
    assert facts["frames"]["lost"] == frames.filter(pl.col("fate") == "lost").height - len(skipped)
    page = write_report(folder.path).read_text()
    assert f"{len(skipped)} were skipped by the sender" in page
    assert f"{facts['frames']['lost']} were lost" in page or not facts["frames"]["lost"]


def test_the_original_stands_beside_what_was_seen_and_a_red_frame_says_what_is_held(filmed: Folder) -> None:
    _, pictures = shown(filmed)
    assert {picture.shape for picture in pictures} == {(HEIGHT, 2 * WIDTH, 3)}
    edges = np.array([p[HEIGHT // 2 - 20 : HEIGHT // 2 + 20, -2].astype(int).mean(axis=0) for p in pictures])
    red = (edges[:, 0] > 150) & (edges[:, 1] < 90) & (edges[:, 2] < 90)
    assert 5 < np.count_nonzero(red) < 200
    inner = [
        np.abs(p[8:-8, 8 : WIDTH - 8].astype(int) - p[8:-8, WIDTH + 8 : -8].astype(int)) for p in pictures
    ]
    differences = np.array([each.mean() for each in inner])
    # Frames that are not frozen differ only by the quantizer.
    assert differences[~red].mean() < 8
    assert differences[red].mean() > differences[~red].mean()


def test_the_film_of_the_same_run_again_is_of_the_same_seconds_and_as_long(
    filmed: Folder, tmp_path: Path
) -> None:
    assert filmed.film is not None
    again = run(scenario(tmp_path), film=True, progress=Silent(), out=tmp_path / "again")
    assert again.film is not None
    assert again.film[0] == filmed.film[0]
    with av.open(io.BytesIO(again.film[1])) as one, av.open(io.BytesIO(filmed.film[1])) as other:
        assert one.duration == other.duration


# With five widths and quantizers the films have 497, 236, 136, 89 and 52 kB.
@pytest.mark.parametrize(("most", "width"), [(150_000, 2 * WIDTH), (60_000, 2 * 160), (100, None)])
def test_a_film_takes_no_more_than_it_may(
    filmed: Folder, monkeypatch: pytest.MonkeyPatch, most: int, width: int | None
) -> None:
    from steadycast.viewing import Record

    monkeypatch.setattr(film_module, "MOST", most)
    made = film_module.worst_seconds(Record.of(filmed), filmed.summary["flows"], lambda *_: None)
    if width is None:
        assert made is None
        return
    assert made is not None
    assert len(made[1]) <= most
    with av.open(io.BytesIO(made[1])) as container:
        assert container.streams.video[0].width == width


def test_the_page_has_it_with_controls_and_it_plays_when_it_is_asked_to(filmed: Folder) -> None:
    page = write_report(filmed).read_text(encoding="utf-8")
    (tag,) = re.findall(r"<video [^>]*>", page)
    assert " controls " in tag
    assert "autoplay" not in tag
    assert "loop" not in tag
    assert 'aria-label="film: the original, and beside it what video.dst1 saw in seconds ' in tag
    assert filmed.film is not None
    facts, data = filmed.film
    assert base64.b64encode(data).decode() in tag
    assert len(base64.b64encode(b"x" * film_module.MOST)) <= 2_000_000
    words = f"of 250 frames {facts['frames']['ok']} were shown whole and in time"
    assert f"saw in seconds {facts['from_s']:.1f} to {facts['to_s']:.1f}: {words}" in page
    assert page.index("<video") < page.index("<svg role")


def test_a_run_without_a_film_gets_one_when_it_is_asked_for(
    say: Callable[..., Any], tmp_path: Path, filmed: Folder
) -> None:
    del filmed  # its ladder is in the cache
    run(scenario(tmp_path), out=tmp_path / "run", progress=Silent())
    assert Folder.open(tmp_path / "run").film is None
    assert "<video" not in write_report(tmp_path / "run").read_text()
    assert say("report", tmp_path / "run", "--film").code == 0
    assert (tmp_path / "run" / "report.html").read_text().count("<video") == 1


def test_what_has_no_pictures_has_no_film(tmp_path: Path) -> None:
    path = tmp_path / "film.toml"
    text = SCENARIO.format(media="greedy", width=WIDTH, height=HEIGHT)
    path.write_text(re.sub(r"encode = .*\nplayout = .*\n", "", text))
    run(path, out=tmp_path / "run", film=True, progress=Silent())
    assert Folder.open(tmp_path / "run").film is None
    with pytest.raises(UserError, match="no pixels"):
        film_page.add(Folder.open(tmp_path / "run"), Silent())


def test_a_comparison_shows_all_films_smaller_and_names_those_that_can_not_be_made_so_small(
    filmed: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(scenario(tmp_path), out=tmp_path / "other", film=True, progress=Silent())
    page = write_page(read([filmed.path, tmp_path / "other"]), None, [], tmp_path / "compare.html")
    assert page.read_text().count("<video") == 2
    assert filmed.film is not None
    most = len(base64.b64encode(filmed.film[1])) + 10
    monkeypatch.setattr(film_page, "_MOST", most)
    page = write_page(read([filmed.path, tmp_path / "other"]), None, [], tmp_path / "compare.html")
    codes = re.findall(r"data:video/webm;base64,([^\"]*)", page.read_text())
    assert len(codes) == 2, "all of them, smaller"
    assert sum(map(len, codes)) <= most
    monkeypatch.setattr(film_page, "_MOST", 400)
    page = write_page(read([filmed.path, tmp_path / "other"]), None, [], tmp_path / "compare.html")
    text = page.read_text()
    assert text.count("<video") == 0
    assert "its report shows it, and its file is in" in text
    assert f"<code>{tmp_path / 'other' / 'film.webm'}</code>" in text
