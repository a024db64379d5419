"""A clip sent over another program's network: what is received follows from its traces, and so does the quality."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from steadycast import psnr
from steadycast.errors import UnwrittenError, UserError
from steadycast.evalvid import matching
from steadycast.evalvid.clip import EncodedClip
from steadycast.evalvid.evaluation import Evaluation, by_payload, check_trace, evaluate
from steadycast.evalvid.packets import read_packets
from steadycast.media.clip import Clip
from steadycast.media.sender_trace import TracedFrame, read_sender_trace, text_of
from steadycast.media.table import Kind
from steadycast.progress import Silent

from tests.conftest import ran
from tests.evalvid import traces
from tests.evalvid.traces import PAYLOAD, Sent

DELAY_US = 20_000


@dataclass
class Film:
    """An encoded clip, its source, and its sender trace."""

    clip: EncodedClip
    raw: Path
    st: Path
    traced: list[TracedFrame]

    def packets(self, lost: set[int] | None = None, delays_us: Mapping[int, int] | None = None) -> list[Sent]:
        """The packets of a sender with 25 frames per second. Of a lost frame, the first packet is lost."""
        sent = []
        for n, unit in enumerate(self.clip.units):
            for k in range(math.ceil(len(unit) / PAYLOAD)):
                at = 1_000_000 + n * 40_000 + k * 200
                came = None if n in (lost or set()) and k == 0 else at + (delays_us or {}).get(n, DELAY_US)
                sent.append(Sent(at, came, min(PAYLOAD, len(unit) - k * PAYLOAD)))
        return sent


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Film:
    folder = tmp_path_factory.mktemp("film")
    traces.write_clip(folder / "clip.mp4", folder / "clip_qcif.yuv")
    clip = EncodedClip.read(folder / "clip.mp4")
    # As EvalVid's mp4trace prints it.
    lines = [
        f"{n + 1}\t{kind.name}\t{len(unit)}\t{math.ceil(len(unit) / PAYLOAD)}\t{n / 25:.3f}\n"
        for n, (kind, unit) in enumerate(zip(clip.kinds, clip.units, strict=True))
    ]
    st = folder / "st"
    st.write_text("".join(lines))
    return Film(clip, folder / "clip_qcif.yuv", st, read_sender_trace(st, text_of(st)))


def seen(film: Film, folder: Path, packets: list[Sent], writer: Any = traces.ns2, **asked: Any) -> Evaluation:
    first, *others = (read_packets(path) for path in writer(folder, packets))
    joined = matching.exchange(first, others[0] if others else None)
    return evaluate(film.clip, film.traced, joined, progress=Silent(), **{"original": film.raw, **asked})


def test_the_clip_has_the_frames_that_the_encoder_was_given(film: Film) -> None:
    assert len(film.clip.units) == 48
    assert film.clip.fps == 25
    assert film.clip.slots[:4] == (0, 3, 1, 2)
    assert "".join(kind.name for kind in film.clip.kinds[:10]) == "IPBBPBBPBB"


@pytest.mark.parametrize("writer", [traces.ns2, traces.ns3], ids=["ns-2", "ns-3"])
def test_a_network_without_losses_shows_what_was_sent(writer: object, film: Film, tmp_path: Path) -> None:
    got = seen(film, tmp_path, film.packets(), writer, playout_ns=150_000_000)
    told = got.json()
    assert told["psnr_db"]["encoded"] == {"y": 60.0, "u": 60.0, "v": 60.0}
    direct = psnr.compare(film.raw, film.clip.path, size="qcif", fps="25").json()
    assert told["psnr_db"]["raw"]["y"] == pytest.approx(direct["psnr_db"]["y"], abs=1e-9)
    assert told["mos"]["mean"] == direct["mos"]["mean"] == told["mos"]["sent_mean"]
    assert told["miv"]["largest_frac"] == 0.0
    assert told["delay_ms"] == {"p50": pytest.approx(20), "p95": pytest.approx(20), "max": pytest.approx(20)}
    assert {fate: counts["all"] for fate, counts in told["frames"].items()} == {
        "received": 48, "lost": 0, "late": 0, "never sent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("writer", [traces.ns2, traces.ns3], ids=["ns-2", "ns-3"])
def test_a_b_frame_that_is_lost_or_late_costs_itself(writer: object, film: Film, tmp_path: Path) -> None:
    lost, late = 5, 18
    assert film.clip.kinds[lost] == film.clip.kinds[late] == Kind.B
    packets = film.packets({lost}, {late: 300_000})
    got = seen(film, tmp_path, packets, writer, playout_ns=150_000_000)
    told = got.json()
    node = "2" if writer is traces.ns2 else "1"
    assert told["packets"]["lost"] == {f"dropped at node {node}": 1}
    assert told["frames"]["lost"] == told["frames"]["late"] == {"all": 1, "B": 1}
    gone = sorted((film.clip.slots[lost], film.clip.slots[late]))
    assert np.flatnonzero(np.isfinite(got.seen.against_sent[:, 0])).tolist() == gone
    assert [int(got.seen.shown[slot]) for slot in gone] == [slot - 1 for slot in gone]
    table = got.frame_table()
    assert table.filter(pl.col("fate") != "received")["frame"].to_list() == gone
    assert (
        table.filter(pl.col("fate") == "late")["arrived_s"][0]
        - table.filter(pl.col("fate") == "late")["sent_s"][0]
        > 0.3
    )
    # Without a time limit no frame is late.
    assert seen(film, tmp_path, packets, writer).json()["frames"]["late"] == {"all": 0}


def test_a_lost_reference_costs_what_refers_to_it(film: Film, tmp_path: Path) -> None:
    lost = 4
    assert film.clip.kinds[lost] == Kind.P
    got = seen(film, tmp_path, film.packets({lost}))
    worse = np.flatnonzero(np.isfinite(got.seen.against_sent[:, 0]))
    next_i = next(n for n in range(1, 48) if film.clip.kinds[n] == Kind.I)
    assert worse.min() >= film.clip.slots[lost] - 2
    assert worse.max() < film.clip.slots[next_i]
    assert len(worse) >= 3
    share, begin = got.json()["miv"]["largest_frac"], got.json()["miv"]["from_frame"]
    assert 0 < share <= len(worse) / 25
    assert begin <= worse.min()


def test_each_loss_more_lowers_what_is_compared_with_the_encoded_video(film: Film, tmp_path: Path) -> None:
    b_frames = [n for n, kind in enumerate(film.clip.kinds) if kind == Kind.B][::4]
    means = [
        seen(film, tmp_path, film.packets(set(b_frames[:count]))).json()["psnr_db"]["encoded"]["y"]
        for count in range(4)
    ]
    assert means[0] == 60.0
    assert means == sorted(set(means), reverse=True)


def test_by_index_a_lost_frame_moves_all_that_follow(film: Film, tmp_path: Path) -> None:
    got = seen(film, tmp_path, film.packets({5}), by="index")
    gone = film.clip.slots[5]
    assert got.seen.shown.tolist() == [slot for slot in range(48) if slot != gone]
    assert np.flatnonzero(np.isfinite(got.seen.against_sent[:, 0])).tolist() == list(range(gone, 47))


def test_the_saved_video_is_what_was_measured(film: Film, tmp_path: Path) -> None:
    path = tmp_path / "seen.y4m"
    got = seen(film, tmp_path, film.packets({5, 18}), video=path)
    again = psnr.compare(film.raw, path, "index", size="qcif", fps="25")
    assert again.frames == (48, 48)
    assert got.seen.against_original is not None
    assert again.psnr_db[:, 0] == pytest.approx(got.seen.against_original[:, 0], abs=1e-9)


def test_hist_counts_each_picture_once_in_each_figure(film: Film, tmp_path: Path) -> None:
    got = seen(film, tmp_path, film.packets({5, 18}))
    table = got.histogram()
    for name in ("psnr_y_db", "psnr_sent_y_db", "mos"):
        mine = table.filter(pl.col("figure") == name)
        assert mine["frames"].sum() == 48
        assert mine["cumulative_share"][-1] == pytest.approx(1)
    sent = table.filter((pl.col("figure") == "psnr_sent_y_db") & (pl.col("from") == 60))
    assert sent["frames"].to_list() == [46]
    shares = table.filter(pl.col("figure") == "mos")["share"].to_list()
    assert shares == pytest.approx(list(got.json()["mos"]["share"].values()))


def test_without_an_original_the_encoded_video_is_what_is_compared_with(film: Film, tmp_path: Path) -> None:
    told = seen(film, tmp_path, film.packets({5}), original=None).json()
    assert told["psnr_db"]["raw"] is None
    assert told["mos"]["against"] == "the encoded video"
    assert told["mos"]["sent_mean"] == 5.0 > told["mos"]["mean"]


def test_frames_by_the_payload_of_packets_are_those_of_the_trace(film: Film) -> None:
    made = by_payload(film.clip, PAYLOAD)
    assert [(f.kind, f.size_bytes, f.packets) for f in made] == [
        (f.kind, f.size_bytes, f.packets) for f in film.traced
    ]


def test_a_trace_of_another_clip_is_refused_or_doubted(film: Film) -> None:
    with pytest.raises(UserError, match=r"it has 47 frames, clip\.mp4 48"):
        check_trace(film.clip, film.traced[1:], film.st)
    assert check_trace(film.clip, film.traced, film.st) == []
    assert (
        "differs from the clip's (frame 0 is I there)"
        in check_trace(film.clip, film.traced[::-1], film.st)[0]
    )


def test_nothing_is_saved_where_the_disk_is_short(
    film: Film, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UnwrittenError, match="make room"):
        seen(film, tmp_path, film.packets(), video=tmp_path / "seen.y4m")
    assert not (tmp_path / "seen.y4m").exists()


def test_the_command_measures_and_saves_all_at_once(film: Film, tmp_path: Path) -> None:
    sd, rd = traces.sd_rd(tmp_path, film.packets({5}))
    files = {name: tmp_path / f"{name}.csv" for name in ("out", "hist")}
    words = ["--trace", film.st, "--sent", sd, "--received", rd, "--original", film.raw, "--playout", "150ms"]
    words += ["--save-video", tmp_path / "seen.mkv", "--out", files["out"], "--hist", files["hist"]]
    done = ran(
        [sys.executable, "-m", "steadycast", "received", *map(str, [film.clip.path, *words, "--json"])]
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["frames"]["lost"] == {"all": 1, "B": 1}
    assert pl.read_csv(files["out"]).height == 48
    assert pl.read_csv(files["hist"])["frames"].sum() == 3 * 48
    assert len(list(Clip.of(tmp_path / "seen.mkv").pictures("clip", "clip").frames)) == 48
    for wrong, what in (
        (["--payload", "500"], "--trace: both --trace and --payload are given"),
        (["--playout", "soon"], "this is not a time"),
    ):
        done = ran(
            [sys.executable, "-m", "steadycast", "received", *map(str, [film.clip.path, *words[:6], *wrong])]
        )
        assert (done.returncode, what in done.stderr) == (2, True), done.stderr
