"""Figures of streams that are known exactly: the figures show what was done to the streams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steadycast.judge import score
from steadycast.judge.cell import LATE, doubts
from steadycast.judge.figures import COLUMNS, FIGURES

from .made_up import BEGAN, CAPACITY, LEAD_S, SECONDS, cell, head, offers, repaired, video

FPS = 25
END_S = LEAD_S + SECONDS
again = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
few = settings(again, max_examples=4)


def between(value: Any, least: float, most: float) -> None:
    assert least <= value <= most, value


# ---------------------------------------------------------------- the wire


def test_a_constant_stream_has_its_rate_its_delay_and_no_loss(tmp_path: Path) -> None:
    found = score.wire(cell(tmp_path, [*offers(END_S, 500)]))
    between(found["throughput_bps"], 4.79e6, 4.81e6)
    assert found["loss_frac"] == 0
    between(found["delay_ms"]["p95"], 19.99, 20.01)
    between(found["queue_ms"]["p95"], 0.0, 0.01)  # 19 + 1 ms are the path's own
    between(found["silent_s"], 0.0019, 0.0021)
    assert found["silent_frac"] == 0
    between(found["burst"], 1.0, 1.3)
    assert "recover_s" not in found
    assert "tcp_share_of_fair" not in found


@again
@given(every=st.integers(2, 40))
def test_each_nth_that_is_lost_is_counted_and_a_copy_is_no_loss(tmp_path: Path, every: int) -> None:
    rows = [*offers(END_S, 200)]
    for n in range(0, len(rows), every):
        rows[n]["arrived_s"] = None
    copies = [{**rows[1], "number": 1, "copy": 1, "arrived_s": rows[1]["sent_s"] + 0.03}]
    found = score.wire(cell(tmp_path, rows + copies))
    between(found["loss_frac"], 1 / every - 0.001, 1 / every + 0.001)


def test_tcp_is_set_against_the_share_that_one_more_flow_leaves_it(tmp_path: Path) -> None:
    found = score.wire(cell(tmp_path, [*offers(END_S, 100)], tcp_bps=CAPACITY / 4))
    between(found["tcp_share_of_fair"], 0.499, 0.501)


@again
@given(gap=st.floats(0.25, 5.0))
def test_silence_is_as_long_as_it_was(tmp_path: Path, gap: float) -> None:
    rows = [row for row in offers(END_S, 200) if not 10 <= row["sent_s"] < 10 + gap]
    found = score.wire(cell(tmp_path, rows))
    between(found["silent_s"], gap - 0.011, gap + 0.011)
    between(found["silent_frac"], (gap - 0.011) / SECONDS, (gap + 0.011) / SECONDS)


@again
@given(after=st.floats(0.2, 6.0))
def test_a_sender_that_follows_a_step_after_a_while_recovers_after_it(tmp_path: Path, after: float) -> None:
    rows = []
    for row in offers(END_S, 300):
        queued = 10 <= row["sent_s"] < 10 + after
        rows.append({**row, "arrived_s": row["arrived_s"] + (0.3 if queued else 0.0)})
    event = {"event": [{"at": "10s", "set": {"link": "bottleneck", "rate": "3Mbps"}}]}
    found = score.wire(cell(tmp_path, rows, scenario=event))
    # Measured from the first whole second in which at most 5 % were late. These packets arrive 0.3 s later.
    between(found["recover_s"], max(0.0, after - 0.3), after + 0.5)


def test_one_that_does_not_follow_never_recovers(tmp_path: Path) -> None:
    rows = [row for row in offers(END_S, 300) if row["sent_s"] < 10 or int(row["sent_s"] * 300) % 2]
    event = {"event": [{"at": "10s", "set": {"link": "bottleneck", "rate": "6Mbps"}}]}
    found = score.wire(cell(tmp_path, rows, scenario=event))
    assert found["recover_s"] is None


@few
@given(begin=st.floats(6.0, 10.0), lasts=st.floats(0.5, 6.0), kept=st.floats(0.02, 0.6))
def test_after_an_outage_the_rate_is_compared_with_that_before_it(
    tmp_path: Path, begin: float, lasts: float, kept: float
) -> None:
    end = begin + lasts
    rates = ((begin, "0bps"), (end, "4Mbps"))
    events = [{"at": f"{1e3 * at:.0f}ms", "set": {"link": "bottleneck", "rate": rate}} for at, rate in rates]

    def capacity(t: float) -> float:
        # The mean of the interval.
        outage = max(0.0, min(t + 1, end) - max(t, begin))
        return CAPACITY * (1 - outage)

    found = []
    for left in (kept, 1.0):
        rows = [*offers(begin, 60), *offers(END_S - end, 60 * left, start=end)]
        made = cell(tmp_path, rows, scenario={"event": events}, capacity=capacity)
        found.append(score.wire(made)["recover_s"])
    assert found[0] is None
    between(found[1], -1e-9, 0.2)


@pytest.mark.parametrize(
    ("rows", "reason", "said"),
    [
        ([*offers(0.5, 80)], "no-traffic", "0 datagrams"),
        ([*offers(10, 100, start=LEAD_S + 3)], "late-start", 'lead = "10s"'),
    ],
)
def test_a_cell_without_traffic_in_time_has_failed(
    tmp_path: Path, rows: list[dict[str, Any]], reason: str, said: str
) -> None:
    with pytest.raises(score.FailedError, match=said) as caught:
        score.wire(cell(tmp_path, rows))
    assert caught.value.reason == reason


# ---------------------------------------------------------------- RTP


def frames(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    found = score.rtp(cell(tmp_path, rows, **more))
    assert found is not None
    return found.figures


def test_each_tenth_frame_that_lacks_a_packet_is_not_whole(tmp_path: Path) -> None:
    found = frames(tmp_path, [*video(lost=lambda n, part: n % 10 == 0 and part == 2)])
    between(found["whole_frac"], 0.897, 0.903)
    between(found["in_time_frac"], 0.897, 0.903)
    between(found["frames_per_s"], 24.9, 25.1)
    assert found["chain"] == "assumed"


def test_what_is_sent_again_makes_frames_whole_and_late(tmp_path: Path) -> None:
    rows = [*video(lost=lambda n, part: n % 10 == 0 and part == 2)]
    found = frames(tmp_path, rows + repaired(rows))
    assert found["whole_frac"] == 1
    assert found["in_time_frac"] == 1
    between(found["frame_delay_ms"]["p95"], 79, 82)  # every tenth waits 60 ms
    late = frames(tmp_path, rows + repaired(rows, late_s=0.5))
    assert late["whole_frac"] == 1
    between(late["in_time_frac"], 0.897, 0.903)


def test_a_repair_of_another_length_mends_nothing(tmp_path: Path) -> None:
    rows = [*video(lost=lambda n, part: n % 10 == 0 and part == 2)]
    other = [{**row, "bytes": row["bytes"] + 40, "head": head(b"\x8a\x17")} for row in repaired(rows)]
    between(frames(tmp_path, rows + other)["whole_frac"], 0.897, 0.903)


@few
@given(each=st.integers(2, 10), secret=st.booleans())
def test_a_copy_of_a_packet_that_arrived_repairs_no_other_packet(
    tmp_path: Path, each: int, secret: bool
) -> None:
    # Packets of equal size; the first of each frame is sent twice, and the second of some is lost.
    rows = [{**row, "bytes": 1200} for row in video(lost=lambda n, part: n % each == 0 and part == 1)]
    copies = repaired([{**row, "arrived_s": None} for row in rows[::4]])
    if secret:
        copies = [{**row, "head": head(b"\x8a\x17")} for row in copies]
    found = frames(tmp_path, rows + copies)
    share = 1 - 1 / each
    between(found["in_time_frac"], share - 0.003, share + 0.003)
    if secret:
        between(found["whole_frac_low"], share - 0.003, share + 0.003)
        assert found["whole_frac_high"] == 1
    else:
        between(found["whole_frac"], share - 0.003, share + 0.003)


def test_parity_gives_a_range(tmp_path: Path) -> None:
    rows = [*video(lost=lambda n, part: n % 10 == 0 and part == 2)]
    found = frames(tmp_path, rows, rtp={"fec": 98})
    between(found["whole_frac_low"], 0.897, 0.903)
    assert found["whole_frac_high"] == 1


def test_nothing_is_shown_after_a_loss_until_a_key_frame_where_these_are_known(tmp_path: Path) -> None:
    # A frame in the middle of each second is lost; a key frame begins each second.
    rows = [*video(lost=lambda n, part: n % FPS == 12 and part == 0)]
    assumed = frames(tmp_path, rows)
    (tmp_path / "session.sdp").write_text("m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n")
    known = frames(tmp_path, rows)
    unread = frames(tmp_path, [{**row, "head": head(b"\x41")} for row in rows])
    assert (assumed["chain"], known["chain"], unread["chain"]) == ("assumed", "known", "assumed")
    between(known["freezes_per_min"], 57, 61)
    # The picture is frozen until the next key frame. The display time of the picture before it counts as well.
    between(known["frozen_frac"], 13 / FPS, 15 / FPS)
    between(known["in_time_frac"], 11 / FPS, 13 / FPS)
    for found in (assumed, unread):
        assert found["freezes_per_min"] == 0
        between(found["in_time_frac"], 0.955, 0.965)


@pytest.mark.parametrize("optional", [0, 0x80, 0x40, 0x30, 0x10, 0xC0, 0xF0])
@pytest.mark.parametrize("wide", [0, 0x80], ids=["7 bits", "15 bits"])
def test_the_chain_of_vp8_is_known_whatever_its_payload_descriptor_has(
    tmp_path: Path, optional: int, wide: int
) -> None:
    descriptor = bytes([0x10]) if not optional else bytes([0x90, optional])
    if optional & 0x80:
        descriptor += bytes([wide | 5, 9][: 2 if wide else 1])
    descriptor += b"\x07" * (bool(optional & 0x40) + bool(optional & 0x30))
    rows = [*video(lost=lambda n, part: n % FPS == 12 and part == 0)]
    for n, row in enumerate(rows):
        first = bytes([descriptor[0] if n % 4 == 0 else descriptor[0] & 0x80]) + descriptor[1:]
        row["head"] = head(first + (b"\x10" if n % (4 * FPS) == 0 else b"\x11"))
    (tmp_path / "session.sdp").write_text("m=video 5004 RTP/AVP 96\na=rtpmap:96 VP8/90000\n")
    found = frames(tmp_path, rows)
    assert found["chain"] == "known"
    between(found["frozen_frac"], 13 / FPS, 15 / FPS)


@pytest.mark.parametrize("again_as", ["rtx", "media"])
def test_a_receiver_waits_for_a_repair_only_if_the_stream_has_repairs(tmp_path: Path, again_as: str) -> None:
    rows = [*video(lost=lambda n, part: n % FPS == 12 and part == 0)]
    assert frames(tmp_path, rows)["frozen_frac"] == 0
    repairs = repaired(rows)[: len(rows) // 200]
    if again_as == "media":
        lost = [row for row in rows if row["arrived_s"] is None]
        repairs = [{**lost[3], "sent_s": lost[3]["sent_s"] + 0.06, "arrived_s": lost[3]["sent_s"] + 0.08}]
    else:
        # The first half of the losses is repaired.
        repairs = repaired(rows)
        repairs = [
            row if n < len(repairs) / 2 else {**row, "arrived_s": None} for n, row in enumerate(repairs)
        ]
    found = frames(tmp_path, rows + repairs)
    # Of each second, the deadline and the time of a picture are frozen.
    share = 0.5 if again_as == "rtx" else 0.95
    between(found["frozen_frac"], 0.30 * share - 0.03, 0.38 * share + 0.02)
    between(found["in_time_frac"], 0.955, 0.985)


@few
@given(own_s=st.floats(0.0, 2.0), queue_s=st.floats(0.0, 0.28))
def test_a_path_s_own_delay_is_not_lateness(tmp_path: Path, own_s: float, queue_s: float) -> None:
    rows = [*video()]
    for row in rows:
        row["arrived_s"] += own_s + (queue_s if row["sent_s"] > 12 else 0)
    found = frames(tmp_path, rows)
    assert found["in_time_frac"] == 1
    between(found["frame_delay_ms"]["p50"], 1e3 * own_s + 19, 1e3 * (own_s + queue_s) + 21)


@few
@given(late_s=st.floats(0.35, 2.0))
def test_frames_that_a_queue_delays_are_late_and_shown(tmp_path: Path, late_s: float) -> None:
    rows = [*video()]
    for row in rows:
        # The queue grows by 100 ms per second.
        row["arrived_s"] += min(late_s, max(0.0, (row["sent_s"] - 4) / 10))
    found = frames(tmp_path, rows)
    between(found["in_time_frac"], 0.2, 0.32)
    assert found["frozen_frac"] == 0


@few
@given(
    at=st.integers(4 * FPS, 20 * FPS),
    keys=st.sampled_from([("ssrc",), ("pt",), ("from_port",), ("ssrc", "from_port")]),
)
def test_a_stream_that_goes_on_with_another_name_is_one_stream(
    tmp_path: Path, at: int, keys: tuple[str, ...]
) -> None:
    rows = [*video(lost=lambda n, part: n % 10 == 0 and part == 2)]
    # Sound of the same length, and a part of it after the video's first part, are no part of the video.
    sound = [
        {**row, "bytes": 200, "sent_s": n / 50, "arrived_s": n / 50 + 0.02}
        | {"ssrc": 9, "pt": 111, "seq": n % 65536, "rtp_ts": 960 * n, "head": 0}
        for n, row in enumerate(rows[: int(50 * END_S)])
    ]
    whole = frames(tmp_path, rows + sound)
    for row in rows[4 * at :]:
        row.update({"from_port": 6004} | {key: {"ssrc": 3, "pt": 99, "from_port": 7000}[key] for key in keys})
        if "ssrc" in keys:
            row.update(rtp_ts=(row["rtp_ts"] + 12345) % 2**32, seq=(row["seq"] + 999) % 65536)
    assert frames(tmp_path, rows + sound) == whole


@given(
    wait_s=st.floats(0.0, 19.9),
    fps=st.sampled_from([10, 25, 60]),
    count=st.integers(0, 500),
    low=st.floats(0, 9),
)
def test_the_wait_for_the_first_picture_and_a_stop_after_the_last_are_freezes(
    wait_s: float, fps: int, count: int, low: float
) -> None:
    high = low + 20
    shown = low + wait_s + (1 + np.arange(count)) / fps
    shown = shown[shown < high]
    found = score.frozen(shown, low, high)
    ends = np.concatenate([[low], shown, [high]])
    # The threshold is 150 ms above the mean.
    long = [span for span in (ends[1] - ends[0], ends[-1] - ends[-2]) if span > 0.5][: len(ends) - 1]
    sure = sum(long)
    between(found["frozen_frac"] * 20, sure - 1e-3, sure + 1.0)
    if not len(shown):
        assert (found["frozen_frac"], found["freezes_per_min"]) == (pytest.approx(1), pytest.approx(3))


def test_ciphertext_hides_key_frames_and_nothing_else(tmp_path: Path) -> None:
    rows = [*video(lost=lambda n, part: n % 10 == 0 and part == 2)]
    secret = [{**row, "head": head(b"\x9c\x11\x80\x42")} for row in rows + repaired(rows)]
    (tmp_path / "session.sdp").write_text("m=video 5004 RTP/SAVP 96\na=rtpmap:96 H264/90000\n")
    found = frames(tmp_path, secret)
    assert (found["whole_frac"], found["chain"]) == (1, "assumed")


@again
@given(seed=st.integers(0, 2**32))
def test_what_only_looks_like_rtp_is_no_stream(tmp_path: Path, seed: int) -> None:
    rows = [*offers(END_S, 50)]
    chance = Random(seed)
    for row in rows:
        row.update(ssrc=7, pt=96, seq=chance.randrange(65536), rtp_ts=chance.randrange(2**32), head=1)
    assert score.rtp(cell(tmp_path, rows)) is None


# ---------------------------------------------------------------- pictures


def shown(
    folder: Path, is_shown: Callable[[int], bool] = lambda n: True, *, unread: Callable[[int], bool] = lambda n: False,
    fed: bool = True, latency: float = 0.1,
) -> None:  # fmt: skip
    """Write the pictures that were handed over and shown.

    Each is shown after a delay, or the one before it is repeated.
    """
    count = int((END_S + 1) * FPS)
    if fed:
        due = [BEGAN + n / FPS for n in range(count)]
        (folder / "feed.tsv").write_text("".join(f"{n}\t{at}\t{at}\n" for n, at in enumerate(due)))
    lines, last = [], 0
    for n in range(count):
        last = n if is_shown(n) else last
        number = "" if unread(n) else str(last % 65536)
        lines.append(f"{BEGAN + n / FPS + latency}\t{number}\t40.0\t35.0\t\n")
    (folder / "look.tsv").write_text("".join(lines) + "12")


def pictures(folder: Path, **more: Any) -> dict[str, Any]:
    found = score.pictures(cell(folder, [*offers(END_S, 100)], **more), None)
    assert found is not None
    return found


@pytest.mark.parametrize("at_s", [0.5, LEAD_S + 0.5])
@pytest.mark.parametrize("most", [0.5, 2.0])
def test_pictures_that_are_not_taken_cast_doubt_only_in_the_time_that_counts(
    tmp_path: Path, at_s: float, most: float
) -> None:
    shown(tmp_path)
    first, count = int(at_s * FPS), round(most * LATE * SECONDS * FPS)
    lines = (tmp_path / "feed.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "feed.tsv").write_text("".join(lines[:first] + lines[first + count :]))
    found = [*doubts(cell(tmp_path, [*offers(END_S, 100)]), {"trustworthy": True})]
    assert bool(found) == (at_s > LEAD_S and most > 1)


def test_each_tenth_picture_that_is_missing_is_missed(tmp_path: Path) -> None:
    shown(tmp_path, lambda n: n % 10 != 0)
    found = pictures(tmp_path)
    between(found["in_time_frac"], 0.897, 0.903)
    between(found["latency_ms"]["p95"], 99.9, 100.1)
    assert found["freezes_per_min"] == 0


def test_a_second_of_standing_still_is_one_freeze_of_a_second(tmp_path: Path) -> None:
    shown(tmp_path, lambda n: not 250 < n < 275)
    found = pictures(tmp_path)
    assert found["freezes_per_min"] == pytest.approx(60 / SECONDS)
    between(found["longest_freeze_ms"], 950, 1050)
    between(found["frozen_frac"], 0.95 / SECONDS, 1.05 / SECONDS)


@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
def test_damage_is_told_also_where_all_pictures_have_it(tmp_path: Path, part: float) -> None:
    shown(tmp_path)
    path = tmp_path / "look.tsv"
    lines = path.read_text().splitlines(keepends=True)
    bad = [line.replace("40.0", "30.0") if n % 50 < 50 * part else line for n, line in enumerate(lines)]
    path.write_text("".join(bad))
    between(pictures(tmp_path)["damaged_frac"], part - 0.02, part + 0.02)


def test_pictures_before_and_after_the_time_that_counts_do_not(tmp_path: Path) -> None:
    shown(tmp_path, lambda n: LEAD_S * FPS <= n < END_S * FPS)
    found = pictures(tmp_path)
    assert found["in_time_frac"] == 1
    assert found["freezes_per_min"] == 0


@pytest.mark.parametrize(("each", "fails"), [(10, False), (4, True)])
def test_too_many_pictures_without_a_mark_fail(tmp_path: Path, each: int, fails: bool) -> None:
    shown(tmp_path, unread=lambda n: n % each == 0)
    if not fails:
        between(pictures(tmp_path)["unread_frac"], 0.097, 0.103)
        return
    with pytest.raises(score.FailedError, match="25 %"):
        pictures(tmp_path)


def test_none_in_the_time_that_counts_fail(tmp_path: Path) -> None:
    (tmp_path / "look.tsv").write_text("")
    with pytest.raises(score.FailedError) as caught:
        pictures(tmp_path)
    assert caught.value.reason == "no-pictures"


@again
@given(latency=st.floats(0.02, 3.0))
def test_of_a_file_latency_is_told_from_the_frames_on_the_wire(tmp_path: Path, latency: float) -> None:
    (tmp_path / "feed.tsv").unlink(missing_ok=True)
    shown(tmp_path, fed=False, latency=latency)
    made = cell(tmp_path, [*video()])
    found = score.pictures(made, score.rtp(made))
    assert found is not None
    assert found["latency_from"] == "first packet"
    between(found["latency_ms"]["p50"], 1e3 * latency - 0.1, 1e3 * latency + 0.1)
    assert found["in_time_frac"] == 1


@pytest.mark.parametrize(("count", "wrong"), [(0, 0), (3, 40_000), (3, 260)])
def test_a_number_that_the_time_makes_impossible_is_no_mark(tmp_path: Path, count: int, wrong: int) -> None:
    # Number 40,000 does not exist; number 260 would be shown two seconds before it was handed over.
    shown(tmp_path)
    path = tmp_path / "look.tsv"
    lines = path.read_text().splitlines(keepends=True)
    for n in range(count):
        at = lines[200 + 9 * n].split("\t")[0]
        lines[200 + 9 * n] = f"{at}\t{wrong + n}\t\t\t\n"
    path.write_text("".join(lines))
    found = pictures(tmp_path)
    between(found["unread_frac"], count / (SECONDS * FPS) - 1e-4, count / (SECONDS * FPS) + 1e-4)
    assert found["in_time_frac"] > 0.95


def browses(folder: Path) -> None:
    """Write a browser's own report of freezes every ten seconds."""
    more = {"type": "inbound-rtp", "kind": "video", "jitterBufferDelay": 9.0, "jitterBufferEmittedCount": 99}
    reports = [
        {**more, "freezeCount": n // 10, "totalFreezesDuration": n / 100} for n in range(int(END_S) + 5)
    ]
    lines = [
        json.dumps({"t": BEGAN + n, "stats": [{"type": "codec"}, each]}) for n, each in enumerate(reports)
    ]
    (folder / "stats.jsonl").write_text("\n".join(lines))


@given(st.integers(1, 12), st.integers(5, 40))
@again
def test_a_damaged_picture_with_the_mark_of_a_later_one_is_not_the_fastest(
    tmp_path: Path, ahead: int, each: int
) -> None:
    shown(tmp_path, latency=0.5)
    lines = []
    for line in (tmp_path / "look.tsv").read_text().splitlines()[:-1]:
        at, number, *_ = line.split("\t")
        if int(number) % each == 0:
            lines.append(f"{float(at) - 0.01}\t{int(number) + ahead}\t8.0\t35.0\t")
        lines.append(line)
    (tmp_path / "look.tsv").write_text("\n".join(lines))
    assert pictures(tmp_path)["in_time_frac"] == 1


def test_a_browser_s_own_freezes_stand_beside_those_of_the_marks(tmp_path: Path) -> None:
    browses(tmp_path)
    shown(tmp_path, lambda n: not 250 < n < 275, fed=False)
    found, by = score.score(cell(tmp_path, [*video()], pictures={"from": "browser"}))
    assert (by, found["latency_from"]) == ("picture", "the fastest")
    assert found["browser_freezes_per_min"] == pytest.approx(60 * 2 / (SECONDS - 1))
    assert found["freezes_per_min"] == pytest.approx(60 / SECONDS)
    (tmp_path / "look.tsv").write_text("")
    found, by = score.score(cell(tmp_path, [*video()], pictures={"from": "browser"}))
    assert by == "browser"
    between(found["frozen_frac"], 0.0099, 0.0101)


def test_a_bound_may_name_each_figure_that_is_a_number_and_nothing_else(tmp_path: Path) -> None:
    event = {"event": [{"at": "10s", "set": {"link": "bottleneck", "rate": "2Mbps"}}]}
    known = {"vmaf"}
    for n, (shows, rtp) in enumerate(((True, {"fec": 98}), (False, {}))):
        folder = tmp_path / str(n)
        folder.mkdir()
        if shows:
            shown(folder)
            browses(folder)
        more: dict[str, Any] = {"scenario": event, "tcp_bps": CAPACITY / 4, "rtp": rtp}
        more |= {} if shows else {"pictures": {"from": "none"}}
        found, _ = score.score(cell(folder, [*video()], **more))
        known |= {key for key, value in found.items() if not isinstance(value, (str, dict, list))}
    # SSIM is measured for some of the pictures.
    assert known | {"ssim"} == {*FIGURES}


def test_each_column_of_the_text_is_scored_and_the_page_says_what_it_is(tmp_path: Path) -> None:
    shown(tmp_path)
    event = {"event": [{"at": "10s", "set": {"link": "bottleneck", "rate": "2Mbps"}}]}
    found, _ = score.score(cell(tmp_path, [*offers(END_S, 100)], tcp_bps=CAPACITY / 4, scenario=event))
    assert set(COLUMNS) <= set(found)
    numbers = {key for key, value in found.items() if isinstance(value, (int, float))}
    assert numbers <= set(FIGURES), "each number is declared"
    page = (Path(__file__).parents[2] / "docs" / "judge.md").read_text(encoding="utf-8")
    rows = re.search(r"^\| column \| key in JSON .*?\n\n", page, re.MULTILINE | re.DOTALL)
    assert rows is not None
    cells = [line.split(" | ") for line in rows[0].strip().splitlines()[2:]]
    told = [
        pair
        for heads, keys, _ in cells
        for pair in zip(heads.strip("| ").split(", "), keys.split(", "), strict=True)
    ]
    assert told == [(column.head, f"`{key}`") for key, column in COLUMNS.items()]
