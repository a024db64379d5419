import hashlib
import os
import shlex
import struct
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_clips import write_clip
from steadycast import clips, files
from steadycast.errors import UserError
from steadycast.media.clip import Clip, ClipError, _changed, _distorts, parse_fps, parse_size, resampled
from steadycast.media.synthetic import Synthetic


def test_a_clip_is_scaled_to_cif_and_resampled_to_the_rate_asked_for(clip_path):
    pictures = Clip.of(clip_path).pictures("cif", 50)
    frames = list(pictures.frames)
    assert (pictures.width, pictures.height, pictures.fps) == (352, 288, 50)
    assert len(frames) in range(79, 82)
    assert all(len(samples) == 352 * 288 * 3 // 2 for samples in frames)
    assert pictures.warnings == []


def test_size_and_rate_of_the_clip_itself_keep_every_frame(clip_path):
    pictures = Clip.of(clip_path).pictures("clip", "clip")
    assert (pictures.width, pictures.height, pictures.fps) == (176, 144, 25)
    assert len(list(pictures.frames)) == 40


def test_a_list_of_clips_is_played_end_to_end(tmp_path, clip_path):
    other = write_clip(tmp_path / "other.mp4", frames=20, rate=10, size="128x96")
    pictures = Clip.of([clip_path, other]).pictures("clip", "clip")
    frames = list(pictures.frames)
    assert len(frames) in range(40 + 49, 40 + 52)
    assert {len(samples) for samples in frames} == {176 * 144 * 3 // 2}


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sides=st.tuples(st.integers(16, 96), st.integers(16, 96)),
    first=st.sampled_from([(64, 48), (48, 64), (80, 20)]),
)
def test_a_later_clip_of_any_shape_keeps_it_or_a_warning_says_what_was_changed(tmp_path, sides, first):
    def white(path, width, height):
        with av.open(str(path), "w") as container:
            stream = container.add_stream("ffv1", rate=25)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv444p"
            frame = av.VideoFrame.from_ndarray(np.full((3, height, width), 235, np.uint8), format="yuv444p")
            container.mux([*stream.encode(frame), *stream.encode(None)])
        return path

    paths = [white(tmp_path / "first.mkv", *first), white(tmp_path / "later.mkv", *sides)]
    pictures = Clip.of(paths).pictures("auto", "auto")
    luma = list(pictures.frames)[-1][: first[0] * first[1]].reshape(first[::-1]) > 125
    width, height = int(luma.any(axis=0).sum()), int(luma.any(axis=1).sum())
    assert luma.sum() == width * height, "a rectangle"
    assert width == first[0] or height == first[1]
    # Sides are even.
    assert abs(width * sides[1] - height * sides[0]) <= 2 * max(*sides, width, height) * 2
    told = [warning for warning in pictures.warnings if "later.mkv is " in warning]
    assert bool(told) == (sides != first)
    assert all(("black borders" in warning) == ((width, height) != first) for warning in told)
    # A size that is named is taken for all.
    stretched = Clip.of(paths).pictures("64x48", "auto")
    assert (list(stretched.frames)[-1][: 64 * 48] > 125).all()
    distorted = abs(sides[0] * 48 - sides[1] * 64) > 2 * (max(sides) + 64)
    assert (
        any("later.mkv" in each and "changes its aspect" in each for each in stretched.warnings) == distorted
    )


def test_resampling_drops_pictures_or_holds_them():
    times = [Fraction(k, 10) for k in range(10)]
    pictures = [np.array([k], dtype=np.uint8) for k in range(10)]
    half = [int(p[0]) for p in resampled(iter(zip(times, pictures, strict=True)), Fraction(5))]
    assert half == [0, 2, 4, 6, 8]
    more = [int(p[0]) for p in resampled(iter(zip(times, pictures, strict=True)), Fraction(25))]
    assert more == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 8, 9, 9]


@settings(max_examples=40)
@given(
    gaps=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    fps=st.sampled_from([Fraction(4), Fraction(12), Fraction(30000, 1001), Fraction(60)]),
)
def test_a_picture_of_a_film_of_variable_rate_is_held_until_the_next_is_due(gaps, fps):
    times = [Fraction(ms, 1000) for ms in accumulate(gaps, initial=0)]
    pictures = ((time, np.array([k], dtype=np.uint8)) for k, time in enumerate(times))
    for due, samples in enumerate(resampled(pictures, fps)):
        slot, shown = due / fps, int(samples[0])
        assert times[shown] < slot + Fraction(1, 2) / fps, "no picture comes half an interval early"
        assert shown == len(gaps) or slot < times[shown + 1], "none stays when the next is due"


@pytest.mark.parametrize(
    "name", ["2026-11-25T12:30:00.mp4", "file:x.mkv", "-x.mp4", "pipe:0.mkv", "a|b %03d.mkv"]
)
def test_a_relative_name_is_a_files_whatever_a_protocol_looks_like(name, tmp_path, clip_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with files.media(Path(clip_path)) as source, files.media(Path(name), "w") as target:
        copied = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = copied
                target.mux(packet)
    assert (tmp_path / name).stat().st_size > 0
    assert len(list(Clip.of(Path(name)).pictures("clip", "clip").frames)) == 40


def test_what_is_no_clip_is_an_error_with_place_problem_and_remedy(tmp_path):
    text = tmp_path / "notes.mkv"
    text.write_text("no video at all\n" * 50)
    empty = tmp_path / "empty.mp4"
    empty.write_bytes(b"")
    sound = tmp_path / "sound.wav"
    with av.open(str(sound), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    for path in (text, empty, sound, tmp_path / "absent.mkv", tmp_path):
        with pytest.raises(ClipError) as caught:
            list(Clip.of(path).pictures("cif", 25).frames)
        assert caught.value.place == str(path)
        assert caught.value.problem
        assert caught.value.remedy
    with pytest.raises(ClipError):
        Clip.of([])
    with pytest.raises(ClipError, match="no such file"):
        Clip.of(tmp_path / "absent.mkv").identity()


@pytest.mark.parametrize("name", ["pipe.mkv", "/dev/zero", "pipe.yuv", "empty.mkv", "empty.y4m"])
def test_what_is_no_file_and_what_is_empty_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mkv")
    os.mkfifo(tmp_path / "pipe.yuv")
    for empty in ("empty.mkv", "empty.y4m"):
        (tmp_path / empty).touch()
    for read in (Clip.identity, lambda clip: clip.pictures("cif", 25)):
        with pytest.raises(ClipError, match="empty" if "empty" in name else "no file") as caught:
            read(Clip.of(tmp_path / name))
        assert "another program" not in caught.value.remedy


@pytest.mark.parametrize(
    "size", ["", "cif2", "0x0", "640", "x480", "640x", "9999x9999", "-4x8", "64x48x3", f"{'9' * 5000}x64"]
)
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(UserError):
        parse_size(size, (640, 480))


@pytest.mark.parametrize(
    "fps", ["", "fast", 0, -25, 1e9, float("nan"), float("inf"), "25/0", "1e99999999", "1e-99999999"]
)
def test_a_rate_that_is_none_is_refused(fps):
    with pytest.raises(UserError):
        parse_fps(fps, Fraction(25))


def test_odd_sides_are_cut_to_even_and_decimal_rates_become_their_fraction():
    assert parse_size("clip", (769, 431)) == (768, 430)
    assert parse_fps(29.97, Fraction(25)) == Fraction(30000, 1001)
    assert parse_fps(12.5, Fraction(25)) == Fraction(25, 2)
    assert parse_fps("clip", Fraction(10)) == 10


def test_the_synthetic_clip_is_the_same_on_every_machine():
    digest = hashlib.sha256()
    for samples in Synthetic(24).pictures("cif", 25).frames:
        digest.update(samples)
    assert digest.hexdigest()[:16] == "0c609e099048ac3f"


@pytest.mark.parametrize("size", ["cif", "320x180"])
def test_the_synthetic_film_has_two_cuts_and_never_stands_still(size: str):
    pictures = Synthetic(40).pictures(size, 25)
    luma = [f[: pictures.width * pictures.height].astype(float) for f in pictures.frames]
    steps = [float(np.abs(b - a).mean()) for a, b in pairwise(luma)]
    cuts = [place + 1 for place, step in enumerate(steps) if step > 25]
    assert cuts == [15, 30]  # three parts of 3/8, 3/8 and 2/8
    assert min(steps) > 0.3
    assert all(step < 15 for place, step in enumerate(steps) if place + 1 not in cuts)


def test_the_synthetic_clip_says_so_and_knows_its_length():
    clip = Synthetic(60)
    assert "synthetic" in clip.label
    assert len(list(clip.pictures("cif", 25).frames)) == 60
    assert len(list(clip.pictures("176x144", "12.5").frames)) == 30
    assert clip.identity() != Synthetic(60, seed=2).identity()


def _damaged(whole: bytes):
    """Forty ways to damage a file: truncate it, or overwrite a part with zeros."""
    for k in range(20):
        yield f"cut at {k}/20", whole[: len(whole) * k // 20]
    for k in range(20):
        start = len(whole) * k // 20
        hole = min(len(whole) // (3 + k % 5), len(whole) - start)
        yield f"{hole} zeros from {start}", whole[:start] + bytes(hole) + whole[start + hole :]


@pytest.mark.parametrize(("suffix", "codec"), [("mkv", "mpeg4"), ("mp4", "libx264")])
def test_a_damaged_clip_is_an_error_or_a_marked_result(tmp_path, suffix, codec):
    whole = write_clip(tmp_path / f"whole.{suffix}", codec=codec).read_bytes()
    path = tmp_path / f"damaged.{suffix}"
    outcomes = {"error": 0, "marked": 0, "unmarked": 0}
    for _, data in _damaged(whole):
        path.write_bytes(data)
        pictures = None
        try:
            pictures = Clip.of(path).pictures("176x144", 25)
            count = len(list(pictures.frames))
        except UserError:
            outcomes["error"] += 1
        else:
            assert 1 <= count <= 60
            outcomes["marked" if pictures.warnings else "unmarked"] += 1
    assert outcomes["error"] >= 1
    assert outcomes["error"] + outcomes["marked"] >= 36, outcomes


def test_a_clip_that_ends_early_says_where(tmp_path, clip_path):
    whole = clip_path.read_bytes()
    path = tmp_path / "cut.mkv"
    path.write_bytes(whole[: len(whole) // 2])
    pictures = Clip.of(path).pictures("cif", 25)
    frames = list(pictures.frames)
    assert 5 <= len(frames) <= 35
    assert any("cut.mkv is damaged" in warning and "1.6" in warning for warning in pictures.warnings)


def test_a_films_early_end_is_told_however_much_the_decoder_says(tmp_path):
    path = tmp_path / "short.mp4"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 176, 144, "yuv420p"
        noise = np.random.default_rng(1)
        for _ in range(40):
            samples = noise.integers(0, 256, (216, 176), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(samples, format="yuv420p")))
        container.mux(stream.encode(None))
    content = bytearray(path.read_bytes())
    begin = content.index(b"mdat") + 4
    third = (len(content) - begin) // 3
    # Damage in the middle third makes the decoder say more than is kept; the last third is missing.
    content[begin + third : begin + 2 * third] = noise.bytes(third)
    path.write_bytes(content[: begin + 2 * third])
    pictures = Clip.of(path).pictures("clip", "clip")
    list(pictures.frames)
    assert any("the pictures end at" in warning and "of 1.60 s" in warning for warning in pictures.warnings)


def test_sound_that_outlasts_the_pictures_is_no_damage(tmp_path):
    for suffix in ("mkv", "mp4"):
        path = tmp_path / f"sound.{suffix}"
        with av.open(str(path), "w") as container:
            video = container.add_stream("mpeg4", rate=25)
            video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
            sound = container.add_stream("aac", rate=8000, layout="mono")
            for index in range(25):
                frame = av.VideoFrame(64, 48, "yuv420p")
                frame.pts, frame.time_base = index, Fraction(1, 25)
                container.mux(video.encode(frame))
            for index in range(20):
                noise = np.full((1, 1024), 0.1 * (index % 3), dtype=np.float32)
                heard = av.AudioFrame.from_ndarray(noise, format="fltp", layout="mono")
                heard.sample_rate, heard.pts = 8000, 1024 * index
                container.mux(sound.encode(heard))
            container.mux(video.encode(None))
            container.mux(sound.encode(None))
        pictures = Clip.of(path).pictures("clip", "clip")
        assert len(list(pictures.frames)) == 25
        assert pictures.warnings == []


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_an_mp4_that_was_cut_off_before_its_index_says_so(tmp_path, suffix, share):
    path = write_clip(tmp_path / f"film.{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: round(content.index(b"moov") * share)])
    with pytest.raises(ClipError, match="the file was cut off") as told:
        Clip.of(path).pictures("clip", "clip")
    assert "copy the whole file" in told.value.remedy


def test_a_film_of_a_single_picture_is_told(tmp_path):
    pictures = Clip.of(write_clip(tmp_path / "still.mp4", frames=1)).pictures("clip", "clip")
    assert len(list(pictures.frames)) == 1
    assert pictures.warnings == ["still.mp4 has a single picture, which stands still"]


@given(st.tuples(st.integers(16, 64), st.integers(16, 64)), st.sampled_from(["clip", "auto", "own", "64x33"]))
def test_each_change_of_a_size_has_one_warning(own, size):
    asked = (64, 33) if size == "64x33" else own
    size = f"{own[0]}x{own[1]}" if size == "own" else size
    shown = parse_size(size, own)
    facts = SimpleNamespace(width=own[0], height=own[1], rate=Fraction(25))
    told = list(_changed(SimpleNamespace(name="a/x.mkv", facts=facts), shown, size, 25))
    said = f"x.mkv is encoded in {shown[0]}x{shown[1]}, not in {asked[0]}x{asked[1]}, because"
    assert sum(said in each for each in told) == (shown != asked)
    assert sum("aspect ratio" in each for each in told) == (size == "64x33" and _distorts(own, shown))
    assert len(told) == sum("aspect ratio" in each or said in each for each in told)


@pytest.mark.parametrize("kind", ["segments", "main playlist", "concat"])
def test_a_playlist_is_another_clip_when_its_pictures_change(kind: str, tmp_path: Path) -> None:
    first, other = (
        write_clip(tmp_path / name, frames, "mpeg2video") for name, frames in (("a.ts", 20), ("b.ts", 30))
    )
    segments = tmp_path / "segments.m3u8"
    segments.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.8,\na.ts\n#EXT-X-ENDLIST\n")
    clip = tmp_path / "clip.m3u8"
    clip.write_text(
        {
            "segments": segments.read_text(),
            "main playlist": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nsegments.m3u8\n",
            "concat": "ffconcat version 1.0\nfile 'a.ts'\n",
        }[kind]
    )
    before = Clip.of(clip).identity()
    assert before == Clip.of(clip).identity()
    assert before != Clip.of(first).identity()
    first.write_bytes(other.read_bytes())
    assert before != Clip.of(clip).identity()


@pytest.mark.parametrize(("name", "pattern"), [("f%03d.png", "f%03d.png"), ("f 007.png", "'f %03d.png'")])
def test_of_a_sequence_of_pictures_a_film_must_be_made_first(name, pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with av.open("f 007.png", "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("png", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        container.mux(stream.encode(av.VideoFrame(64, 48, "rgb24")))
    with pytest.raises(UserError, match="ffmpeg -framerate 25 ") as told:
        Clip.of(clips.find(name)).pictures("auto", "auto")
    assert f" -i {pattern} " in told.value.remedy


@pytest.mark.parametrize("first", [0, 4, 5, 4711])
@pytest.mark.parametrize("name", ["IMG_{:04}.png", "IMG_%04d.png"])
def test_the_remedy_for_a_sequence_of_pictures_finds_its_first_picture(name, first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = av.VideoFrame(64, 48, "rgb24")
    for number in range(first, first + 3):
        options = {"update": "1"}
        with av.open(f"IMG_{number:04}.png", "w", format="image2", options=options) as container:
            stream = container.add_stream("png", rate=25)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
            container.mux(stream.encode(picture))
    with pytest.raises(UserError) as told:
        Clip.of(clips.find(name.format(first + 1))).pictures("auto", "auto")
    words = shlex.split(told.value.remedy)
    options = {words[at][1:]: words[at + 1] for at, word in enumerate(words) if word == "-start_number"}
    with av.open(words[words.index("-i") + 1], format="image2", options=options) as container:
        assert sum(1 for _ in container.decode(video=0)) == 3


def test_motion_jpeg_without_a_container_is_no_picture(tmp_path: Path) -> None:
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 320, 240, "yuvj420p", Fraction(1, 25)
    [packet] = encoder.encode(av.VideoFrame(320, 240, "yuvj420p"))
    # FFmpeg takes pictures with a JFIF header for a photo, and others for a film.
    picture = bytes(packet)[:2] + b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0" + bytes(packet)[2:]
    film, photo = tmp_path / "camera 2.mjpeg", tmp_path / "photo.mjpeg"
    film.write_bytes(picture * 5)
    photo.write_bytes(picture)
    with pytest.raises(ClipError, match="without times") as told:
        Clip.of(film).pictures("auto", "auto")
    assert "-f mjpeg -framerate 25 -i " in told.value.remedy
    with av.open(str(film), format="mjpeg") as container:
        assert sum(1 for _ in container.decode(video=0)) == 5
    with pytest.raises(ClipError, match="is a picture"):
        Clip.of(photo).pictures("auto", "auto")


@pytest.mark.parametrize(("flags", "problem"), [(0x02, "an animated WebP"), (0x00, r"a picture \(webp\)")])
def test_an_animated_webp_is_no_picture(flags: int, problem: str, tmp_path: Path) -> None:
    # The header of RFC 9649, section 2.7: flags, three reserved bytes, width - 1 and height - 1.
    chunk = b"VP8X" + struct.pack("<IB9x", 10, flags)
    film = tmp_path / "film.webp"
    film.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk)
    with pytest.raises(ClipError, match=problem):
        Clip.of(film).pictures("auto", "auto")


def test_a_film_that_holds_the_name_of_another_file_is_no_playlist(tmp_path: Path, clip_path: str) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(Path(clip_path).read_bytes() + b'\n"other.ts"\n')
    before = Clip.of(film).identity()
    (tmp_path / "other.ts").write_bytes(b"x")
    assert before == Clip.of(film).identity()


@pytest.mark.parametrize("size", ["8192x16", "7680x4320"])
def test_each_size_that_a_scenario_accepts_can_be_encoded(size: str) -> None:
    assert "x".join(map(str, parse_size(size, (176, 144)))) == size


@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1, 3), Fraction(500), Fraction(1000)])
def test_a_frame_rate_that_is_not_used_is_named(tmp_path: Path, rate: Fraction) -> None:
    path = tmp_path / "odd.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(4):
            file.mux(stream.encode(av.VideoFrame(64, 48, "yuv420p")))
        file.mux(stream.encode(None))
    pictures = Clip.of(path).pictures("auto", "auto")
    assert pictures.fps == 25
    assert [text for text in pictures.warnings if "shown at" in text] == [
        f"odd.mkv has {float(rate):.4g} frames per second, which is not within 1 to 240, and is shown at 25 frames "
        "per second; encode.fps names another"
    ]
