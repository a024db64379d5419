"""The sound of a saved video: the tones of a clip at their times, and silence for what was lost or late."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import steadycast
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_clips import write_clip
from steadycast import received
from steadycast.media.synthetic import Synthetic
from steadycast.progress import Silent
from steadycast.received_audio import positions

from tests.conftest import Say

HZ = 48_000
PACKET = 960
LEVEL = 8_000.0
SCENARIO = """
format = 1
duration = "{seconds}s"
seed = {seed}
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "2Mbps", delay = "10ms"{link} }}
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "500kbps" }}
media = "clip"
clip = "{clip}"
playout = "200ms"
encode = {{ size = "sqcif", fps = 25, q = "20-24" }}
{more}
"""
AUDIO = 'audio = "48kbps"'
RECORDED = f"{AUDIO}\n[record]\naudio = true"

Samples = NDArray[np.float64]


def write_film(path: Path, sound: Samples, rate: int = 25) -> Path:
    """A film of the synthetic clip with this sound: one row per channel."""
    frames = round(sound.shape[1] * rate / HZ)
    pictures = Synthetic(frames).pictures("sqcif", rate)
    layout = "mono" if len(sound) == 1 else "stereo"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = pictures.width, pictures.height, "yuv420p"
        track: Any = container.add_stream("pcm_s16le", rate=HZ, layout=layout)
        for n, samples in enumerate(pictures.frames):
            shape = (pictures.height * 3 // 2, pictures.width)
            frame = av.VideoFrame.from_ndarray(samples.reshape(shape), format="yuv420p")
            frame.pts, frame.time_base = n, Fraction(1, rate)
            container.mux(stream.encode(frame))
            at = slice(n * HZ // rate, (n + 1) * HZ // rate)
            packed = np.ascontiguousarray(sound[:, at].T.reshape(1, -1).astype(np.int16))
            block: Any = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
            block.sample_rate, block.pts, block.time_base = HZ, at.start, Fraction(1, HZ)
            container.mux(track.encode(block))
        container.mux(stream.encode())
        container.mux(track.encode())
    return path


def tone(seconds: float, hertz: float = 1_000.0) -> Samples:
    return LEVEL * np.sin(2 * np.pi * hertz * np.arange(round(seconds * HZ)) / HZ)


def tones(seconds: int) -> Samples:
    """A tone of 0.2 s in the middle of each second."""
    sound = np.zeros((1, seconds * HZ))
    for n in range(seconds):
        sound[0, n * HZ + HZ // 2 : n * HZ + HZ // 2 + HZ // 5] = tone(0.2)
    return sound


def streams(path: Path) -> tuple[int, int]:
    """Returns the numbers of picture and sound tracks."""
    with av.open(str(path)) as container:
        return len(container.streams.video), len(container.streams.audio)


def heard(path: Path) -> Samples:
    """Returns the sound of a file from the time 0 on: one row per channel."""
    with av.open(str(path)) as container:
        track = container.streams.audio[0]
        resampler = av.AudioResampler(format="s16p", layout=track.codec_context.layout.name, rate=HZ)
        frames = [each for frame in container.decode(track) for each in resampler.resample(frame)]
    begins = round(float(frames[0].pts * frames[0].time_base) * HZ)
    sound = np.concatenate([frame.to_ndarray() for frame in frames], axis=1).astype(np.float64)
    before = np.zeros((len(sound), max(0, begins)))
    return np.concatenate([before, sound[:, max(0, -begins) :]], axis=1)


def runs_of(mask: NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    """Returns the begin and the length of each run of true values that has at least this length."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(begin, end - begin) for begin, end in pairs if end - begin >= least]


def ran(
    folder: Path, clip: Path, seconds: int, *, link: str = "", more: str = RECORDED, seed: int = 1
) -> Any:
    """A run of a clip, with its receiver's figures of sound."""
    path = folder / "sound.toml"
    path.write_text(SCENARIO.format(seconds=seconds, seed=seed, clip=clip, link=link, more=more))
    return steadycast.run(path, quality=False)


def figures(run: steadycast.Run) -> dict[str, Any]:
    return dict(run.summary["flows"][0]["receivers"][0]["audio"])


@pytest.mark.parametrize(("clip_s", "run_s"), [(4, 4), (2, 5)])
@pytest.mark.parametrize("ending", [".mkv", ".mp4", ".webm"])
def test_without_loss_the_tones_stand_at_their_times_with_their_level(
    ending: str, clip_s: int, run_s: int, tmp_path: Path
) -> None:
    clip = write_film(tmp_path / "tones.mkv", tones(clip_s))
    run = ran(tmp_path, clip, run_s)
    assert figures(run) == {
        "lost_packets": 0,
        "late_packets": 0,
        "gaps_over_20ms": 0,
        "concealed_ms_per_min": 0.0,
    }
    (path,) = received.save(run.held(), tmp_path / f"seen{ending}", Silent())
    assert streams(path) == (1, 1)
    sound = heard(path)
    if ending == ".mkv":
        with av.open(str(path)) as container:
            assert sound.shape[1] == sum(1 for _ in container.decode(video=0)) * HZ // 25
    # A clip that is shorter than the run is repeated, and its sound with it.
    loud = np.flatnonzero(np.abs(sound[0]) > LEVEL / 4)
    parts = np.split(loud, np.flatnonzero(np.diff(loud) > HZ // 10) + 1)
    assert len(parts) == run_s
    for n, part in enumerate(parts):
        assert part[0] / HZ == pytest.approx(n + 0.5, abs=0.04)
        assert part[-1] / HZ == pytest.approx(n + 0.7, abs=0.04)
        middle = sound[0, n * HZ + HZ * 55 // 100 : n * HZ + HZ * 65 // 100]
        rms = float(np.sqrt(np.mean(middle**2)))
        # The bound is 1 dB.
        assert abs(20 * np.log10(rms / (LEVEL / np.sqrt(2)))) < 1.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_lost_packet_is_silent_and_nothing_else(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed).uniform(0.01, 0.15)
    # 440 cycles in a second: the clip's repetitions continue the tone.
    clip = write_film(tmp_path / "tone.mkv", tone(2.0, 440.0)[None])
    link = f', loss = {{ kind = "bernoulli", p = {chance:.4f} }}'
    run = ran(tmp_path, clip, 20, link=link, seed=seed)
    said, fates = figures(run), run.table("audio").to_polars()["fate"].to_list()
    # The figures do not know of losses before the first arrival or after the last one, and these seeds have none.
    assert "lost" not in (fates[0], fates[-1])
    assert said["lost_packets"] > 0
    assert said["late_packets"] == 0
    (path,) = received.save(run.held(), tmp_path / "seen.mkv", Silent())
    silent = runs_of(heard(path)[0] == 0, PACKET // 2)
    packets = [round(length / PACKET) for _, length in silent]
    # A sample of the tone beside a gap may be zero, too.
    assert all(abs(length - n * PACKET) < 48 for n, (_, length) in zip(packets, silent, strict=True))
    assert sum(packets) == said["lost_packets"]
    assert sum(n > 1 for n in packets) == said["gaps_over_20ms"]
    assert sum(packets) * 20 / (len(fates) * 0.02 / 60) == pytest.approx(said["concealed_ms_per_min"])


def test_a_late_packet_is_silent_for_the_rise_of_the_play_out_delay(tmp_path: Path) -> None:
    clip = write_film(tmp_path / "tone.mkv", tone(2.0, 440.0)[None])
    event = '[[event]]\nat = "3s"\nset = { link = "bottleneck", delay = "130ms" }'
    run = ran(tmp_path, clip, 6, more=f"{RECORDED}\n{event}")
    said, table = figures(run), run.table("audio").to_polars()
    assert said["lost_packets"] == 0
    assert said["late_packets"] > 0
    assert (table["fate"] == "late").sum() == said["late_packets"]
    (path,) = received.save(run.held(), tmp_path / "seen.mkv", Silent())
    silent = runs_of(heard(path)[0] == 0, 48)
    # The figures are about what arrived until the end of the run.
    counted = (table["arrived_s"] <= 6).sum()
    concealed_s = said["concealed_ms_per_min"] / 1000 * counted * 0.02 / 60
    # The last 6.5 ms of the file are silent, too: they are the delay of the encoder.
    longest = max(length for _, length in silent)
    assert longest / HZ == pytest.approx(concealed_s, abs=0.002 * said["late_packets"])
    (begin,) = [begin for begin, length in silent if length == longest]
    assert begin / HZ == pytest.approx(table.filter(table["fate"] == "late")["sent_s"][0], abs=0.01)


def test_both_channels_are_kept(tmp_path: Path) -> None:
    clip = write_film(tmp_path / "stereo.mkv", np.stack([tone(2.0), np.zeros(2 * HZ)]))
    run = ran(tmp_path, clip, 2)
    (path,) = received.save(run.held(), tmp_path / "seen.mkv", Silent())
    left, right = np.sqrt(np.mean(heard(path)[:, HZ // 10 :] ** 2, axis=1))
    assert left == pytest.approx(LEVEL / np.sqrt(2), rel=0.12)
    # The bound is 20 dB.
    assert right < left / 10


def test_save_video_records_the_sound_and_the_folder_still_has_it(say: Say, tmp_path: Path) -> None:
    clip = write_film(tmp_path / "tones.mkv", tones(2))
    path = tmp_path / "sound.toml"
    path.write_text(SCENARIO.format(seconds=2, seed=1, clip=clip, link="", more=AUDIO))
    out, seen = tmp_path / "run", tmp_path / "seen.mkv"
    said = say("run", path, "-o", out, "--no-film", "--save-video", seen, code=0)
    assert "is not kept" not in said.err
    assert (out / "audio.parquet").exists()
    say("quality", out, "--save-video", tmp_path / "again.mkv", code=0)
    assert np.array_equal(heard(seen), heard(tmp_path / "again.mkv"))


@pytest.mark.parametrize("ending", [".yuv", ".y4m"])
def test_a_format_without_sound_is_named_and_nothing_is_recorded(
    ending: str, say: Say, tmp_path: Path
) -> None:
    clip = write_film(tmp_path / "tones.mkv", tones(2))
    path = tmp_path / "sound.toml"
    path.write_text(SCENARIO.format(seconds=2, seed=1, clip=clip, link="", more=AUDIO))
    out, seen = tmp_path / "run", tmp_path / f"seen{ending}"
    said = say("run", path, "-o", out, "--no-film", "--save-video", seen, code=0)
    told = f"the sound of video is not kept: {ending} has no sound track; take .mkv, .mp4, .webm, or a folder"
    assert told in said.err
    assert not (out / "audio.parquet").exists()


def test_a_run_that_recorded_no_sound_is_told_to_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_film(tmp_path / "tones.mkv", tones(2))
    run = ran(tmp_path, clip, 2, more=AUDIO)
    (path,) = received.save(run.held(), tmp_path / "seen.mkv", Silent())
    assert "run it again with --set record.audio=true" in capsys.readouterr().err
    assert streams(path) == (1, 0)


@pytest.mark.parametrize("lacks", ["clip's sound", "flow's audio"])
def test_without_sound_or_audio_nothing_changes(lacks: str, say: Say, tmp_path: Path) -> None:
    if lacks == "clip's sound":
        clip, more = write_clip(tmp_path / "silent.mkv", frames=50), AUDIO
    else:
        clip, more = write_film(tmp_path / "tones.mkv", tones(2)), ""
    path = tmp_path / "sound.toml"
    path.write_text(SCENARIO.format(seconds=2, seed=1, clip=clip, link="", more=more))
    out, seen = tmp_path / "run", tmp_path / "seen.mkv"
    said = say("run", path, "-o", out, "--no-film", "--save-video", seen, code=0)
    assert "is not kept" not in said.err
    assert streams(seen) == (1, 0)
    assert not (out / "audio.parquet").exists()
    assert "audio = true" not in (out / "scenario.toml").read_text()


@given(
    st.sampled_from([Fraction(24_000, 1001), Fraction(25), Fraction(30), Fraction(60)]),
    st.integers(1, 200),
    st.integers(1, 500),
    st.floats(0.1, 100.0),
)
def test_a_packet_begins_with_its_picture_before_and_after_a_pause(
    fps: Fraction, before: int, skipped: int, pause_s: float
) -> None:
    # The pictures continue with a later slot after a pause, and both streams begin again at the same time.
    slots = np.concatenate([np.arange(before), np.arange(before + skipped, before + skipped + 50)])
    first_s, again_s = 0.5, 0.5 + before / float(fps) + pause_s
    pts = np.where(
        slots < before, first_s + slots / float(fps), again_s + (slots - before - skipped) / float(fps)
    )
    count = int(before / float(fps) * 50)
    sent = np.concatenate([first_s + 0.02 * np.arange(count), again_s + 0.02 * np.arange(50)])
    order = np.random.default_rng(before).permutation(len(slots))
    begins = positions(sent, slots[order], pts[order], fps)
    assert np.array_equal(begins[:count], PACKET * np.arange(count))
    second = round((before + skipped) / fps * HZ)
    assert np.abs(begins[count:] - second - PACKET * np.arange(50)).max() <= 1
