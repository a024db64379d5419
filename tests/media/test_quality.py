from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_clips import judged
from steadycast.folder import Json
from steadycast.media import quality as quality_module
from steadycast.media import vmaf as vmaf_module
from steadycast.media.ladder import CODECS, encode_ladder
from steadycast.media.metrics import PSNR_CAP_DB, opinions
from steadycast.media.quality import Quality, evaluate, pictures_at
from steadycast.media.splice import NEVER, Fate, Fates, fates, shown_frames
from steadycast.media.synthetic import Synthetic
from steadycast.media.table import FrameTable, coding_order
from steadycast.media.table2 import table2
from steadycast.progress import Silent
from steadycast.record import FREEZES
from steadycast.run import run
from steadycast.viewing import Rows, owed_of

MS = 1_000_000
SCALES = {None: [2, 9, 31], 6: [18, 32, 47], 12: [10, 36, 63]}
"""Quantizers, by the number of steps that double the step size."""


def small(codec="mpeg4"):
    return encode_ladder(Synthetic(52), codec=codec, size="176x144", qs=SCALES[CODECS[codec].doubling])


def chosen(ladder, frames):
    return [ladder.table.qs[group % 3] for group in range(ladder.table.groups_in(frames))]


def whole(frames):
    return np.ones(frames, dtype=bool)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "av1"])
def test_a_frame_of_another_quantizer_than_its_group_s_is_decoded_by_its_own(codec):
    qs = {None: [4, 8], 6: [24, 30], 12: [24, 36]}[CODECS[codec].doubling]
    ladder = encode_ladder(Synthetic(24), codec=codec, size="176x144", qs=qs)
    mixed = evaluate(ladder, [(qs[0],) * 4 + (qs[1],) * 8, qs[1]], Fates(whole(24)))
    fine, coarse = (evaluate(ladder, [q, q], Fates(whole(24))) for q in qs)
    first = slice(0, 12)
    assert np.isinf(mixed.psnr_encoded[:, 0]).all(), "the sender's decoder shows the same"
    # The mixed GOP is worse than one of fine pictures only. It is better than one of coarse pictures only, because its
    # coarse pictures are predicted from fine ones. With temporal motion prediction, H.265's was 1.2 dB lower.
    low, middle, high = (float(seen.psnr_raw[first, 0].mean()) for seen in (coarse, mixed, fine))
    assert low < middle < high


def test_a_late_frame_is_never_shown_once_a_newer_one_has_come():
    # The paper's example: frame 3 misses its display slot, so frame 2 is shown for two slots. Frame 4 is in time.
    play = np.arange(6) * 40 * MS + 150 * MS
    arrival = np.arange(6) * 40 * MS + 50 * MS
    arrival[3] = play[3] + 10 * MS
    assert shown_frames(arrival, play).tolist() == [0, 1, 2, 2, 4, 5]


def test_a_late_frame_is_shown_at_the_next_slot_when_nothing_newer_has_come():
    play = np.arange(6) * 40 * MS + 150 * MS
    arrival = np.arange(6) * 40 * MS + 50 * MS
    arrival[3] = play[3] + 10 * MS
    arrival[4] = play[5]
    assert shown_frames(arrival, play).tolist() == [0, 1, 2, 2, 3, 5]


def test_a_late_frame_that_b_frames_refer_to_is_not_shown_at_its_slot_though_they_are_due_after_it():
    play = np.array([150, 230, 270, 190, 350])
    arrival = np.array([100, 180, 220, 200, 300])
    assert shown_frames(arrival, play).tolist() == [0, 1, 2, 2, 4]
    arrival[4] = NEVER
    assert shown_frames(arrival, play).tolist() == [0, 1, 2, 2, 3]
    arrival[3] = 190
    assert shown_frames(arrival, play).tolist() == [0, 1, 2, 3, 3]


def test_a_frame_that_arrives_at_its_slot_is_in_time_and_an_early_one_waits():
    play = np.array([100, 200, 300])
    assert shown_frames(np.array([100, 0, 301]), play).tolist() == [0, 1, 1]


LOSSY = """
duration = "20s"
nodes = ["s", "r"]
[[link]]
between = ["s", "r"]
rate = "4Mbps"
delay = "10ms"
loss = "{loss}"
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "1Mbps" }}
media = "synthetic"
playout = "{playout}"
encode = {{ codec = "mpeg4", size = "qcif", q = "2-12", gop = 12, bframes = 2 }}
from = "s"
to = "r"
start = "0s"
"""


@pytest.mark.parametrize("playout", ["300ms", "adaptive"])
@pytest.mark.parametrize("loss", ["0%", "1%", "10%"])
def test_a_damaged_picture_ends_no_freeze_whether_pictures_are_measured_or_not(
    tmp_path: Path, loss: str, playout: str
) -> None:
    (path := tmp_path / "lossy.toml").write_text(LOSSY.format(loss=loss, playout=playout), encoding="utf-8")
    measured, told = (
        run(path, quality=pictures, progress=Silent()).summary["flows"][0]["receivers"][0]
        for pictures in (True, False)
    )
    assert measured["picture_score"] is not None
    assert told.get("picture_score") is None
    assert [measured[name] for name in FREEZES] == [told[name] for name in FREEZES]
    # With 10 % of loss nearly every group has a damaged picture, after which no whole picture follows in the group.
    assert (measured["frozen_frac"] > 0.4) == (loss == "10%")


PAUSES = """
duration = "20s"
nodes = ["s", "r"]
[[link]]
between = ["s", "r"]
rate = "4Mbps"
delay = "10ms"
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "1Mbps" }}
media = "synthetic"
playout = "{playout}"
encode = {{ size = "qcif", q = "2-12", gop = {gop}, bframes = 0 }}
from = "s"
to = "r"
start = "0s"
"""


def paused(path: Path, stop: str, start: str, *, playout: str = "300ms", gop: int = 12) -> list[Json]:
    """Return the result of a video's only receiver with this pause, with measured pixels and without."""
    events = f'[[event]]\nat = "{stop}"\nstop = "video"\n[[event]]\nat = "{start}"\nstart = "video"\n'
    path.write_text(PAUSES.format(playout=playout, gop=gop) + (events if stop else ""), encoding="utf-8")
    return [
        run(path, quality=measured, progress=Silent()).summary["flows"][0]["receivers"][0]
        for measured in (True, False)
    ]


def test_a_pause_is_neither_a_freeze_nor_does_it_lower_what_is_measured_of_pictures(tmp_path: Path):
    whole, told = paused(tmp_path / "whole.toml", "", "")
    assert (whole["freeze_count"], told["freeze_count"]) == (0, 0)
    measured, told = paused(tmp_path / "paused.toml", "5.1s", "12s")
    # Packets in the sender's queue when it stopped were not sent.
    assert 128 + 200 - 3 <= measured["frames"]["ok"] <= measured["frames"]["sent"] == 128 + 200
    assert (measured["freeze_count"], told["freeze_count"]) == (0, 0)
    for name in ("stills_count", "freeze_s", "frozen_frac", "harmonic_fps"):
        assert measured[name] == pytest.approx(told[name], rel=1e-9), name
    assert measured["mos"]["mean"] == pytest.approx(whole["mos"]["mean"], abs=0.1)
    assert measured["ssim"] == pytest.approx(whole["ssim"], abs=0.01)


def test_a_pause_between_two_groups_of_pictures_is_no_freeze_either(tmp_path: Path):
    for seen in paused(tmp_path / "paused.toml", "5s", "15s", playout="adaptive", gop=1):
        assert seen["freeze_count"] == 0


def test_lost_frames_are_replaced_by_the_one_before_and_the_screen_is_blank_before_the_first():
    play = np.arange(5) * 40
    arrival = np.array([NEVER, NEVER, 0, NEVER, 0])
    assert shown_frames(arrival, play).tolist() == [-1, -1, 2, 2, 4]


def blank_slots(quality: Quality) -> int:
    """Count slots before the first picture."""
    return int(np.count_nonzero(quality.shown < 0))


def test_each_frame_has_one_fate_and_a_lost_reference_breaks_the_rest_of_its_group():
    table = table2(frames=30, gop=6, distance=3)  # coding order I P B B B B in each group
    complete = whole(30)
    complete[7] = False  # the second group's P
    complete[14] = False  # a B of the third
    complete[18] = False  # the fourth group's I
    play = np.arange(30) * 40 + 100
    arrival = np.zeros(30, dtype=np.int64)
    arrival[2] = 10_000
    arrival[9] = 10_000  # late as well, but already broken before
    told = fates(table, Fates(complete, arrival, play))
    expected = np.zeros(30, dtype=int)
    expected[[7, 14, 18]] = Fate.LOST
    expected[8:12] = Fate.UNDECODABLE
    expected[19:24] = Fate.UNDECODABLE
    expected[2] = Fate.LATE
    assert told.tolist() == expected.tolist()


@pytest.mark.parametrize("codec", CODECS)
def test_a_receiver_that_lost_nothing_sees_what_the_sender_encoded(codec):
    ladder = small(codec)
    quality = evaluate(ladder, chosen(ladder, 104), Fates(whole(104)))
    assert quality.shown.tolist() == list(range(104))
    assert [quality.figures()[f"psnr_db.encoded.{plane}"] for plane in "yuv"] == [PSNR_CAP_DB] * 3
    finest, coarsest = quality.psnr_raw[:12, 0].mean(), quality.psnr_raw[24:36, 0].mean()
    assert 38 < finest < 60
    assert 15 < coarsest < 36
    looped = evaluate(ladder, [ladder.table.qs[1]] * 10, Fates(whole(104)))
    assert np.array_equal(looped.psnr_raw[:52], looped.psnr_raw[52:])


def test_psnr_and_ssim_of_a_damaged_flow_are_those_of_ffmpegs_filters():
    ladder = small()
    complete = whole(52)
    complete[[4, 13, 30]] = False
    told = Fates(complete, holes={13: [(200, 700)]})
    q = chosen(ladder, 52)
    quality = evaluate(ladder, q, told)
    slots = list(range(0, 52, 5))
    for slot, pictures in zip(slots, pictures_at(ladder, q, told, slots), strict=True):
        told_psnr = judged("psnr", pictures.received, pictures.raw)
        told_ssim = judged("ssim", pictures.received, pictures.raw)
        expected = [float(told_psnr[f"lavfi.psnr.psnr.{plane}"]) for plane in "yuv"]
        assert quality.psnr_raw[slot] == pytest.approx(expected, abs=0.01)
        assert quality.ssim[slot] == pytest.approx(float(told_ssim["lavfi.ssim.Y"]), abs=0.001)
        encoded = judged("psnr", pictures.received, pictures.encoded)["lavfi.psnr.psnr.y"]
        assert min(100, quality.psnr_encoded[slot, 0]) == pytest.approx(min(100, float(encoded)), abs=0.01)


@pytest.mark.parametrize("codec", CODECS)
def test_losses_hurt_their_own_group_and_no_other(codec):
    ladder = small(codec)
    complete = whole(52)
    complete[15] = False  # early in the second group
    quality = evaluate(ladder, chosen(ladder, 52), Fates(complete))
    same = np.isinf(quality.psnr_encoded[:, 0])
    assert same[:12].all()
    assert same[24:].all()
    assert 1 <= np.count_nonzero(~same[12:24]) <= 12


@pytest.mark.parametrize("codec", CODECS)
def test_any_damage_gives_a_result(codec):
    ladder = small(codec)
    rng = np.random.default_rng(11)
    q = chosen(ladder, 104)
    for rate in (0.02, 0.3, 0.9, 1.0):
        complete = rng.random(104) >= rate
        sizes = [
            int(ladder.table.sizes[ladder.table.row(q[int(ladder.table.group_of(f))]), f % 52])
            for f in range(104)
        ]
        holes = {}
        for frame in np.flatnonzero(~complete).tolist():
            if rng.random() < 0.6:
                start, end = sorted(rng.integers(0, sizes[frame] + 1, 2).tolist())
                holes[frame] = [(start, end), (end, end + 5)]
        quality = evaluate(ladder, q, Fates(complete, holes=holes))
        assert len(quality.mos) == 104
        assert np.isfinite(quality.psnr_raw).all()
        assert ((quality.shown <= np.arange(104)) & (np.diff(quality.shown, prepend=-1) >= 0)).all()


def test_the_same_damage_gives_the_same_result_every_time():
    rng = np.random.default_rng(12)
    complete = rng.random(104) >= 0.1
    results = []
    for _ in range(3):
        ladder = small()
        results.append(evaluate(ladder, chosen(ladder, 104), Fates(complete)))
    for other in results[1:]:
        assert np.array_equal(results[0].psnr_raw, other.psnr_raw)
        assert np.array_equal(results[0].shown, other.shown)


def test_a_stream_that_loses_everything_stays_black():
    ladder = small()
    quality = evaluate(ladder, chosen(ladder, 24), Fates(np.zeros(24, dtype=bool)))
    assert blank_slots(quality) == 24
    assert quality.figures()["mos.mean"] == 1.0


def test_without_its_first_i_frame_nothing_is_shown_that_was_not_decoded():
    ladder = small("h264")
    complete = whole(24)
    complete[0] = False
    quality = evaluate(ladder, chosen(ladder, 24), Fates(complete))
    assert blank_slots(quality) == 12
    assert np.isinf(quality.psnr_encoded[12:, 0]).all()


def test_late_frames_freeze_the_picture_but_still_feed_the_decoder():
    ladder = small()
    slots = np.arange(52)
    play = slots * 40 * MS + 150 * MS
    arrival = ladder.table.slot_of(np.arange(52)) * 40 * MS + 50 * MS
    late = int(np.flatnonzero(ladder.table.display == 15)[0])
    arrival[late] += 120 * MS
    quality = evaluate(ladder, chosen(ladder, 52), Fates(whole(52), arrival, play))
    assert quality.shown[14:17].tolist() == [14, 14, 16]
    assert np.isinf(quality.psnr_encoded[16:, 0]).all()


def test_a_delay_of_more_than_a_group_shows_old_pictures():
    ladder = small()
    play = np.arange(52) * 40 * MS
    arrival = ladder.table.slot_of(np.arange(52)) * 40 * MS + 700 * MS
    quality = evaluate(ladder, chosen(ladder, 52), Fates(whole(52), arrival, play))
    assert blank_slots(quality) == 18
    assert quality.shown[18:].tolist() == list(range(34))


def test_receivers_with_the_same_losses_are_decoded_once(monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))  # no scores of other tests
    ladder = small()
    calls = []
    real = quality_module.decode_units
    monkeypatch.setattr(quality_module, "decode_units", lambda *a: calls.append(1) or real(*a))
    complete = whole(52)
    complete[20] = False
    first = evaluate(ladder, chosen(ladder, 52), Fates(complete))
    once = len(calls)
    assert once == 6  # five groups, and the damaged one a second time as encoded
    for _ in range(44):
        assert evaluate(ladder, chosen(ladder, 52), Fates(complete.copy())) is first
    assert len(calls) == once


def test_receivers_that_share_some_losses_share_that_work(monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    ladder = small()
    one, other = whole(52), whole(52)
    one[20] = other[20] = other[40] = False
    evaluate(ladder, chosen(ladder, 52), Fates(one))
    calls = []
    real = quality_module.decode_units
    monkeypatch.setattr(quality_module, "decode_units", lambda *a: calls.append(1) or real(*a))
    evaluate(ladder, chosen(ladder, 52), Fates(other))
    assert len(calls) == 1


def test_sizes_without_pixels_have_no_quality():
    table = table2(frames=24)
    assert evaluate(table, [2, 2], Fates(whole(24))) is None


def test_a_part_of_a_view_counts_its_own_slots_only():
    ladder = small()
    complete = whole(52)
    complete[:12] = False
    complete[-1] = False
    view = evaluate(ladder, [2] * 5, Fates(complete))
    slots = np.arange(52)
    part = view.where((slots >= 12) & (slots < 48))
    assert (len(part.mos), blank_slots(part)) == (36, 0)
    assert blank_slots(view) == 12
    assert part.mean_psnr_raw()[0] > view.mean_psnr_raw()[0] + 3
    assert view.where(slots >= 60).mean_ssim() is None


def test_a_flow_that_stops_inside_a_group_is_measured_to_its_end():
    ladder = small()
    for frames in (1, 2, 14, 53, 101):
        quality = evaluate(ladder, chosen(ladder, frames), Fates(whole(frames)))
        sent = set(ladder.table.slot_of(np.arange(frames)).tolist())
        assert len(quality.mos) == frames
        shown_in_place = np.flatnonzero(quality.shown == np.arange(frames)).tolist()
        assert set(shown_in_place) == sent & set(range(frames))


def test_too_few_quantizers_are_refused():
    with pytest.raises(ValueError, match="quantizers"):
        evaluate(small(), [2], Fates(whole(52)))


def test_vmaf_is_none_where_it_is_not_available(monkeypatch):
    monkeypatch.setattr(vmaf_module, "program", lambda: None)
    ladder = small()
    quality = evaluate(ladder, chosen(ladder, 24), Fates(whole(24)), with_vmaf=True)
    assert quality.vmaf is None


def test_vmaf_falls_with_the_quantizer():
    if vmaf_module.program() is None:
        pytest.skip("no FFmpeg with libvmaf: install the extra steadycast[vmaf]")
    ladder = small()
    fine, coarse = (evaluate(ladder, [q] * 2, Fates(whole(24)), with_vmaf=True).vmaf for q in (2, 31))
    assert 90 < fine <= 100
    assert 0 <= coarse < fine - 10


@pytest.mark.parametrize("seed", range(4))
def test_the_quality_of_coding_is_the_same_whatever_is_dropped_and_a_finer_quantizer_s_is_better(seed):
    drawn = np.random.default_rng(seed)
    ladder = small()
    qs = chosen(ladder, 52)
    all_there = evaluate(ladder, qs, Fates(whole(52)))
    some = whole(52)
    some[drawn.choice(52, size=int(drawn.integers(1, 40)), replace=False)] = False
    dropped = evaluate(ladder, qs, Fates(some))
    assert dropped.mean_coding() == pytest.approx(all_there.mean_coding(), abs=1e-9)
    np.testing.assert_allclose(dropped.coded, all_there.psnr_raw[:, 0])
    steps = [evaluate(ladder, [q] * len(qs), Fates(some)).mean_coding() for q in ladder.table.qs]
    assert 5.0 >= steps[0] > steps[1] > steps[2] >= 1.0


def test_an_opinion_of_a_psnr_goes_by_straight_lines_between_the_classes_bounds():
    psnr = np.array([0.0, 17.5, 20.0, 22.5, 25.0, 31.0, 34.0, 37.0, 38.5, 40.0, 60.0, np.inf])
    assert opinions(psnr).tolist() == [1.0, 1.0, 1.5, 2.0, 2.5, 3.5, 4.0, 4.5, 4.75, 5.0, 5.0, 5.0]


def test_a_run_s_score_is_built_on_its_pictures_and_without_them_on_its_rate(tmp_path):
    text = """duration = "4s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "5ms" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "2Mbps" }
playout = "100ms"
encode = { size = "176x144" }
"""
    scores = {}
    for loss in ("", ', loss = "3%"'):
        path = tmp_path / "a.toml"
        path.write_text(text.replace('"5ms" }', f'"5ms"{loss} }}'))
        for quality in (True, False):
            flow = run(path, quality=quality, progress=Silent()).flows["video"]
            (found,) = flow.receivers.values()
            assert found.viewing_score_by == ("pictures" if quality else "rate")
            assert found.viewing_score == found.score == flow.score
            assert found.score == (found.picture_score if quality else found.rate_score)
            assert quality or found.get("picture_score") is None
            scores[loss, quality] = found.score
            if quality:
                coding = 1.0 + (found.score - 1.0) / found.smooth_frac if found.smooth_frac else 1.0
                assert coding <= 5.0 + 1e-9
    # At 2 Mb/s in QCIF the finest quantizer is used and no frame is missing, so the score is near the maximum.
    assert scores["", True] > 4.7
    assert all(scores[', loss = "3%"', quality] < scores["", quality] for quality in (True, False))


@given(data=st.data())
@settings(max_examples=60)
def test_slots_count_whose_frame_has_a_row_or_comes_before_all_rows(data: st.DataObject) -> None:
    # The last B frames of a run may be missing although a later picture was sent before them.
    between = data.draw(st.integers(0, 3), label="B frames between two other frames")
    groups = data.draw(st.integers(1, 4), label="groups of B frames")
    kinds, display = coding_order("I" + ("B" * between + "P") * groups)
    total = len(kinds)
    table = FrameTable(Fraction(25), total, kinds, [2], np.ones((1, total), dtype=np.uint32), display, "one")
    last = data.draw(st.integers(0, 3 * total - 1), label="last frame")
    present = data.draw(st.sets(st.integers(0, last)), label="frames with a row") | {last}
    rows = Rows({"frame": np.array(sorted(present))}, {})
    owed = owed_of(rows, SimpleNamespace(table=table))  # type: ignore[arg-type]
    counted = present | set(range(min(present)))
    frames = range((last // total + 1) * total)
    expected = {
        slot for frame, slot in zip(frames, table.slot_of(list(frames)), strict=True) if frame in counted
    }
    found = set(range(last + 1)) if owed is None else set(np.flatnonzero(owed))
    assert found == {slot for slot in expected if slot <= last}
