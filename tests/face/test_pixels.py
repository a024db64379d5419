"""Pictures, quality and encode on a small real clip."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import polars as pl
import pytest
from steadycast.folder import Draft, Folder
from steadycast.quality import measure

from tests.conftest import Say

FRAMES, GOP = 24, 12


@pytest.fixture(autouse=True)
def pixels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A bar that moves over noise, nearly lossless."""
    path = tmp_path / "bar.mkv"
    noise = np.random.default_rng(1).integers(60, 120, (96, 128, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for n in range(FRAMES):
            picture = noise.copy()
            picture[:, 4 * n : 4 * n + 16] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.fixture
def watched(tmp_path: Path, clip: Path) -> Path:
    """A run in which one receiver got everything, and the other lost two frames of the first group."""
    receivers = [
        {"name": "video.dst1", "throughput_bps": 1e6, "loss_frac": 0.0, "stills_count": 0},
        {"name": "video.dst2", "throughput_bps": 1e6, "loss_frac": 0.1, "stills_count": 2},
    ]
    rows = [
        {
            "flow": "video",
            "node": r["name"],
            "frame": n,
            "display": n,
            "ready_s": n / 25,
            "due_s": n / 25 + 0.15,
            "pts_s": n / 25,
            "kind": "I" if n % GOP == 0 else "P",
            "q": 4,
            "size_bytes": 900,
            "sent_s": n / 25,
            "first_s": n / 25 + 0.02,
            "arrived_s": None if (lost := r["name"] == "video.dst2" and n in (3, 6)) else n / 25 + 0.03,
            "delay_ms": None if lost else 30.0,
            "fate": "lost" if lost else "ok",
            "psnr_y_db": None,
            "ssim": None,
            "mos": None,
        }
        for r in receivers
        for n in range(FRAMES)
    ]
    flow = {
        "name": "video",
        "kind": "video",
        "controller": "asmp",
        "throughput_bps": 1e6,
        "receivers": receivers,
    }
    with Draft(tmp_path / "run") as draft:
        draft.text(
            "scenario.toml",
            'name = "pixels"\nduration = "1s"\n'
            '[topology]\nshape = "dumbbell"\nbottleneck = { rate = "4Mbps" }\n'
            '[[flow]]\nname = "video"\nkind = "video"\ncontroller = "asmp"\nreceivers = 2\n'
            f'media = "clip"\nclip = "{clip}"\nplayout = "150ms"\n'
            f'encode = {{ size = "clip", fps = "clip", gop = {GOP}, bframes = 0 }}\n',
        )
        draft.table("frames", pl.DataFrame(rows, infer_schema_length=None))
        draft.finish({"format": 1, "complete": True, "flows": [flow], "to_s": FRAMES / 25})
    return tmp_path / "run"


def test_quality_measures_each_receiver_worst_first(say: Say, watched: Path) -> None:
    said = say("quality", watched, "--json", code=0)
    worst, best = json.loads(said.out)
    assert (worst["name"], best["name"]) == ("video.dst2", "video.dst1")
    assert 25 < worst["psnr_db"]["raw"]["y"] < best["psnr_db"]["raw"]["y"] - 0.5 < 60
    assert best["psnr_db"]["encoded"]["y"] == 60.0  # nothing was lost: there is no difference
    assert worst["psnr_db"]["raw"]["y"] < worst["psnr_db"]["encoded"]["y"] < 60.0
    # Figures of freezes are those of the record, which has only one of them.
    assert (best["stills_count"], worst["stills_count"]) == (0, 2)
    assert (best["freeze_count"], worst["freeze_count"]) == (None, None)
    assert "video.dst2" in say("quality", watched).out


def test_progress_goes_on_within_one_receiver(watched: Path) -> None:
    told: list[tuple[str, int, int]] = []
    measure(Folder.open(watched), lambda what, done, of: told.append((what, done, of)))
    shares = [done / of for what, done, of in told if what == "decoding video"]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    # The progress within the first of two receivers, and within the second.
    assert any(0 < share < 0.5 for share in shares)
    assert any(0.5 < share < 1 for share in shares)


def test_pictures_show_the_original_the_sent_and_each_seen_frame(say: Say, watched: Path) -> None:
    say("report", watched, "--pictures", 6, code=0)
    text = (watched / "report.html").read_text()
    text = text[text.index("Frame 6 of video") :]
    pictures = [part.split('"')[0] for part in text.split("data:image/png;base64,")[1:]]
    captions = [part.split("<")[0] for part in text.split("<figcaption>")[1:]]
    assert captions[:4] == ["original", "as sent", "median: video.dst1", "worst: video.dst2"]
    assert len(pictures) == 4
    sent, whole, broken = pictures[1], *pictures[2:]
    assert whole == sent
    assert broken != sent


def test_a_frame_that_was_not_sent_is_told(say: Say, watched: Path) -> None:
    said = say("report", watched, "--pictures", FRAMES, code=2)
    assert f"name one below {FRAMES}" in said.err


def test_pictures_of_sizes_without_pixels_are_refused(say: Say, watched: Path) -> None:
    text = (watched / "scenario.toml").read_text()
    text = text[: text.index('media = "clip"')] + 'media = "table2"\n'
    (watched / "scenario.toml").write_text(text)
    said = say("report", watched, "--pictures", 1, code=2)
    assert '"table2" has no pixels' in said.err


def test_encode_prints_and_draws_quantizer_rate_and_quality(say: Say, clip: Path, tmp_path: Path) -> None:
    said = say("encode", clip, "-o", "ladder.svg", code=0)
    rows = {row[0]: row for line in said.out.splitlines() if (row := line.split()) and row[0].isdecimal()}
    assert list(rows) == [str(q) for q in range(2, 32)]
    assert float(rows["2"][3]) > float(rows["31"][3]) + 3  # dB
    assert (tmp_path / "ladder.svg").exists()


def test_encode_of_what_is_no_video_is_exit_code_2(say: Say, tmp_path: Path) -> None:
    (tmp_path / "text.mkv").write_text("no video")
    for name in ("text.mkv", "none.mkv"):
        said = say("encode", name, code=2)
        assert name in said.err
        assert "Traceback" not in said.err
