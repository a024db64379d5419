"""A dump of a browser's statistics shows the events of a call, and why it shows no path.

Other files give a clear error.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from steadycast import call, call_diagnosis
from steadycast.errors import UserError
from steadycast.report import say

from tests.conftest import ROOT, Say

BEGIN_MS = 1_764_000_000_000


def statistics(seed: int, seconds: int = 60) -> list[list[dict[str, Any]]]:
    """Return a getStats report for each second: 20 to 39 s have a tenth of the rate, losses and freezes."""
    chance = random.Random(seed)
    sent = packets = lost = frozen = freezes = 0.0
    reports = []
    for t in range(seconds + 1):
        bad = 20 <= t - 1 < 40
        if t:
            rate = (0.1e6 if bad else 1e6) * chance.uniform(0.9, 1.1)
            sent, packets = sent + rate / 8, packets + rate / 8 / 1000
            lost += 2 if bad else 0
            frozen, freezes = frozen + 0.3 * bad, freezes + bad
        at = BEGIN_MS + 1000 * t
        common = {"timestamp": at, "kind": "video"}
        reports.append(
            [
                {"id": "OT-1", "type": "outbound-rtp", **common, "bytesSent": sent, "packetsSent": packets}
                | {"qualityLimitationReason": "bandwidth" if bad else "none"},
                {
                    "id": "OA/2",
                    "type": "outbound-rtp",
                    "timestamp": at,
                    "kind": "audio",
                    "bytesSent": 4e3 * t,
                },
                {"id": "RI-1", "type": "remote-inbound-rtp", **common, "packetsLost": lost}
                | {"roundTripTime": 0.4 if bad else 0.05},
                {
                    "id": "CP",
                    "type": "candidate-pair",
                    "timestamp": at,
                    "availableOutgoingBitrate": 2e6 - 1.88e6 * bad,
                },
                {
                    "id": "IT",
                    "type": "inbound-rtp",
                    **common,
                    "bytesReceived": sent / 4,
                    "packetsReceived": packets / 4,
                }
                | {"packetsLost": 0, "freezeCount": freezes, "totalFreezesDuration": frozen},
            ]
        )
    return reports


def old_form(reports: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Write the reports in the format of chrome://webrtc-internals."""
    stats: dict[str, Any] = {}
    times = {"startTime": "2025-11-24T16:00:00.000Z", "endTime": "2025-11-24T16:01:00.000Z"}
    for k, each in enumerate(reports[0]):
        for metric in set(each) - {"id", "type"}:
            values = json.dumps([report[k][metric] for report in reports])
            stats[f"{each['id']}-{metric}"] = times | {"statsType": each["type"], "values": values}
    return {
        "getUserMedia": [],
        "PeerConnections": {"8-1": {"stats": stats, "updateLog": []}},
        "UserAgent": "x",
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", ["old", "series", "tables", "packed"])
def test_each_form_of_a_dump_tells_the_same_and_its_worst_ten_seconds(
    tmp_path: Path, form: str, seed: int
) -> None:
    reports = statistics(seed)
    dump: Any = old_form(reports) if form in ("old", "packed") else reports
    if form == "tables":
        dump = [{"stats": {each["id"]: each for each in report}} for report in reports]
    text = json.dumps(dump).encode()
    file = tmp_path / "dump.txt"
    file.write_bytes(gzip.compress(text) if form == "packed" else text)
    read = call.read(file)
    seen = read["seen"]
    assert 58 <= seen["length_s"] <= 61
    assert 0.9e6 < seen["sent_bps"] < 1.1e6
    assert 20 <= seen["worst"]["from_s"] <= 30
    assert 0.08 < seen["worst"]["lost_frac"] < 0.3
    assert seen["limited"] == {"bandwidth": pytest.approx(20 / 61)}
    assert max(rate for _, rate in seen["estimates"]) == 2e6
    assert "one value a second" in read["path"]["refusals"][0]
    other = call.read(file, side="receiver")["seen"]
    assert (other["freezes"], round(other["frozen_s"], 3)) == (20, 6.0)
    assert 0.2e6 < other["sent_bps"] < 0.3e6


def test_a_dump_has_words_a_page_and_no_path(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "dump.txt"
    file.write_text(json.dumps(old_form(statistics(1))))
    said = say("call", file, "-o", tmp_path / "out")
    text = " ".join(said.out.split())
    assert said.code == 0
    assert "held back by bandwidth" in text
    assert "Worst from 2" in text
    assert "can't be determined: one value a second" in text
    assert "The results of other controllers are unknown" in text
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"path.json", "report.html"}
    assert "--key-file" not in text
    key = tmp_path / "key"
    key.touch(mode=0o600)
    assert "no packets, so --key-file was ignored" in " ".join(call.read(file, key_file=key)["seen"]["notes"])
    assert say("call", file, "--side", "left").code == 2


def test_a_run_folder_is_read_by_its_capture_or_by_its_tables(tmp_path: Path) -> None:
    from steadycast.run import run

    from tests.face.test_call import SCENARIO

    (tmp_path / "steps.toml").write_text(SCENARIO.replace('"synthetic"', '"rfc8593"'))
    run(tmp_path / "steps.toml", set=["duration=20s"], out=tmp_path / "run", quality=False)
    with_capture = call.read(tmp_path / "run")
    assert with_capture["file"] == "run"
    assert with_capture["path"]["capacity_bps"]
    (tmp_path / "run" / "pcap" / "bottleneck.pcapng").unlink()
    tables = call.read(tmp_path / "run")
    assert "a run's tables" in tables["path"]["refusals"][0]
    low, high = (0.8 * with_capture["seen"]["sent_bps"], 1.2 * with_capture["seen"]["sent_bps"])
    assert low < tables["seen"]["sent_bps"] < high


LOST, RECEIVED = 100, 8850


def counters(*, is_sender: bool, restart: bool) -> list[dict[str, dict[str, Any]]]:
    """Return one report per second for one stream.

    Losses are counted and later taken back, and counters may restart.
    """
    packets, lost, reports = 0, 0, []
    base = [0, 0]
    gone = [5 if 10 <= t < 36 else 0 for t in range(60)]
    for t in range(60):
        if restart and t == 55:
            base = [packets, lost]
        if t:
            packets += RECEIVED // 59
            lost += gone[t]
            # 30 of the 130 packets that were counted as lost arrive later.
            lost -= 3 if 40 <= t < 50 else 0
        at = BEGIN_MS + 1000 * t
        common = {"timestamp": at, "kind": "video", "ssrc": 7}
        sent, missed = packets - base[0], lost - base[1]
        if is_sender:
            size = {"packetsSent": sent, "bytesSent": sent * 1000}
            found = {
                "O": {"id": "O", "type": "outbound-rtp", **common, **size},
                "R": {
                    "id": "R",
                    "type": "remote-inbound-rtp",
                    **common,
                    "localId": "O",
                    "packetsLost": missed,
                },
            }
        else:
            size = {"packetsReceived": sent, "bytesReceived": sent * 1000, "packetsLost": missed}
            found = {"I": {"id": "I", "type": "inbound-rtp", **common, **size}}
        reports.append(found)
    assert lost == LOST
    return reports


def in_form(reports: list[dict[str, dict[str, Any]]], form: str) -> bytes:
    """Write reports in one of the formats of other programs."""
    arrays = [list(each.values()) for each in reports]
    native = [[one | {"timestamp": one["timestamp"] * 1000} for one in each] for each in arrays]
    texts = [
        [{k: str(v) if k.startswith("bytes") else v for k, v in one.items()} for one in each]
        for each in arrays
    ]
    forms: dict[str, Any] = {
        "arrays": arrays,
        "tables": reports,
        "pairs": [list(each.items()) for each in reports],
        "wrapped": [{"at": k, "report": each} for k, each in enumerate(arrays)],
        "keyed": {"pc": arrays},
        "flat": [one for each in arrays for one in each],
        "microseconds": native,
        "numbers as text": texts,
        "times as text": [[one | {"timestamp": str(one["timestamp"])} for one in each] for each in arrays],
        "deep": {"version": 1, "call": {"id": "x", "data": {"reports": arrays}}},
        "connections": {"small": [each[:] for each in quarter(arrays)], "large": arrays},
        "side by side": [[small, large] for small, large in zip(quarter(arrays), arrays, strict=True)],
        "by time": {str(each[0]["timestamp"]): each for each in arrays},
        "by time, tables": {
            str(each[0]["timestamp"]): table for each, table in zip(arrays, reports, strict=True)
        },
        "sessions": {"meta": {"version": 3}, "sessions": [{"pc": "x", "stats": arrays}]},
        "sessions, tables": {"sessions": [{"pc": "x", "stats": reports}]},
        "chunks": [{"batch": arrays[k : k + 5]} for k in range(0, len(arrays), 5)],
        "two sessions": {"sessions": [{"stats": quarter(arrays)}, {"stats": arrays}]},
        "internals": old_form(arrays),
    }
    if form.startswith("lines"):
        lines = [
            json.dumps(each) for each in (arrays if form == "lines" else [list(r.items()) for r in reports])
        ]
        return ("\n".join(lines) + ("\n[{" if form == "lines cut" else "")).encode()
    if form == "values":
        return "".join(json.dumps(each, indent=1) + "\n" for each in arrays).encode()
    return json.dumps(forms["arrays" if form == "utf-16" else form]).encode(
        "utf-16" if form == "utf-16" else "utf-8"
    )


def quarter(arrays: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return another connection with the same ids, a quarter of the bytes, and no losses."""

    def less(one: dict[str, Any]) -> dict[str, Any]:
        counted = {k: v // 4 for k, v in one.items() if k.startswith(("bytes", "packets"))}
        return one | counted | ({"packetsLost": 0} if "packetsLost" in one else {})

    return [[less(one) for one in each] for each in arrays]


@pytest.mark.parametrize("restart", [False, True], ids=["going on", "restarted"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize(
    "form",
    [
        *("arrays", "tables", "pairs", "wrapped", "keyed", "flat", "microseconds", "numbers as text"),
        *("lines", "lines of pairs", "lines cut", "connections", "side by side", "internals"),
        *("values", "utf-16", "times as text", "deep", "chunks", "two sessions"),
        *("by time", "by time, tables", "sessions", "sessions, tables"),
    ],
)
def test_losses_that_are_taken_back_and_counters_that_begin_anew_are_right_in_each_form(
    tmp_path: Path, form: str, side: str, restart: bool
) -> None:
    reports = counters(is_sender=side == "sender", restart=restart)
    file = tmp_path / "dump.json"
    file.write_bytes(in_form(reports, form))
    seen = call.read(file)["seen"]
    total = RECEIVED // 59 * 59 + (LOST if side == "receiver" else 0)
    assert seen["source"].endswith(f"the {side}'s")
    assert seen["lost_frac"] == pytest.approx(LOST / total, abs=0.001)
    assert seen["packets"] == pytest.approx(total, abs=61)
    if form in ("connections", "side by side", "two sessions"):
        assert any("2 connections" in note for note in seen["notes"])


@pytest.mark.parametrize("form", ["old", "series"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_losses_of_audio_are_counted_apart_from_those_of_video(
    tmp_path: Path, form: str, side: str, is_limited: bool, seed: int
) -> None:
    chance = random.Random(seed)
    of_audio, of_video = chance.choice([(0, 0), (10, 0), (5, 2), (2, 10)])
    if seed == 0:
        of_audio, of_video = 10, 0
    kind, counters = (
        ("outbound-rtp", ("bytesSent", "packetsSent"))
        if side == "sender"
        else ("inbound-rtp", ("bytesReceived", "packetsReceived"))
    )
    reports = []
    for t in range(41):
        report: list[dict[str, Any]] = []
        for media, size, lost in (("video", 1000, of_video), ("audio", 100, of_audio)):
            # 50 packets leave each second, of which `lost` are lost.
            came = (50 - (lost if side == "receiver" else 0)) * t
            stream = {"id": media, "type": kind, "kind": media, counters[0]: size * came, counters[1]: came}
            stream["qualityLimitationReason"] = "bandwidth" if is_limited and media == "video" else "none"
            counting = {"id": f"R{media}", "type": "remote-inbound-rtp", "kind": media, "localId": media}
            report.append(stream | ({"packetsLost": lost * t} if side == "receiver" else {}))
            if side == "sender":
                report.append(counting | {"packetsLost": lost * t, "roundTripTime": 0.02})
        reports.append([each | {"timestamp": BEGIN_MS + 1000 * t} for each in report])
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(old_form(reports) if form == "old" else reports))
    read = call.read(file, controllers=[])
    assert read["seen"]["lost_frac"] == pytest.approx(of_video / 50, abs=0.002)
    assert read["seen"]["audio"]["lost_frac"] == pytest.approx(of_audio / 50, abs=0.002)
    said = call_diagnosis.sentence(read)
    assert (f"audio packets were lost ({say.frac(of_audio / 50)}" in said) == (of_audio > 0), said
    assert ("the network limited" in said) == is_limited
    of_video_said = said.split("Worst from")[0].replace("audio packets were lost", "")
    assert ("packets were lost" in of_video_said) == (of_video > 0), said
    assert any(f"audio packets {say.frac(of_audio / 50)}" in note for note in read["seen"]["notes"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_losses_of_one_stream_are_not_hidden_by_the_others(tmp_path: Path, side: str, seed: int) -> None:
    chance = random.Random(seed)
    streams, lossy, begin = chance.randint(2, 9), chance.random() < 0.7, chance.randint(5, 45)
    counted, kind = ("Sent", "outbound-rtp") if side == "sender" else ("Received", "inbound-rtp")
    reports: list[list[dict[str, Any]]] = []
    for t in range(60):
        lost = 10 * min(max(t - begin, 0), 10) * lossy
        report = []
        for k in range(streams):
            packets = 400 * t if k else 40 * t - lost * (side == "receiver")
            each = {"id": f"S{k}", "type": kind, "timestamp": BEGIN_MS + 1000 * t, "kind": "video", "ssrc": k}
            counters = {f"packets{counted}": packets, f"bytes{counted}": 1000 * packets}
            losses = {"packetsLost": 0 if k else lost}
            report.append(each | counters | (losses if side == "receiver" else {}))
            if side == "sender":
                report.append(
                    each | losses | {"id": f"R{k}", "type": "remote-inbound-rtp", "localId": f"S{k}"}
                )
        reports.append(report)
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(reports))
    read = call.read(file, side=side, controllers=[])
    said = call_diagnosis.sentence(read)
    is_seen_in_sum = 0.01 * (400 * (streams - 1) + 40) <= 10
    named = "packets of one of the streams were lost (25 % in its worst ten seconds)"
    assert (named in said) == (lossy and not is_seen_in_sum), said
    assert ("Cause: packets were lost" in said) == (lossy and is_seen_in_sum), said


@pytest.mark.parametrize("seed", range(8))
def test_a_freeze_without_losses_is_unexplained_and_lies_before_its_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    frozen_s, end = chance.choice([0.3, 3.0, 8.0]), chance.randint(15, 45)
    reports = [list(each.values()) for each in counters(is_sender=False, restart=False)]
    for t, report in enumerate(reports):
        for each in report:
            if each["type"] == "inbound-rtp":
                each |= {
                    "freezeCount": int(t >= end),
                    "totalFreezesDuration": frozen_s * (t >= end),
                    "packetsLost": 0,
                }
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(reports))
    read = call.read(file, side="receiver", controllers=[])
    streams = read["seen"]["frozen_s"] / frozen_s
    frozen = {k: each["frozen_s"] for k, each in enumerate(read["bins"]) if each["frozen_s"]}
    assert sum(frozen.values()) == pytest.approx(read["seen"]["frozen_s"], abs=0.01)
    assert streams >= 1
    assert max(frozen) == end - 1
    assert min(frozen) == end - len(frozen), "without a gap"
    said = call_diagnosis.sentence(read)
    assert (f"the picture froze for {say.seconds(read['seen']['frozen_s'])}" in said) == (frozen_s > 1), said
    assert ("none that the averages show" in said) == (frozen_s < 1), said


@pytest.mark.parametrize("seed", range(8))
def test_a_line_that_is_no_json_is_refused_wherever_it_is(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = [json.dumps(report) for report in statistics(1, 20)]
    foreign = [
        "2026-12-01 12:00:00 INFO joined",
        "INFO joined",
        "12:00:00.5 [x] y",
        "-",
        "}",
        "nul",
        '"open',
        "{'a': 1}",
    ]
    at = chance.randrange(2, 19)
    lines.insert(at, foreign[seed])
    file = tmp_path / "stats.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(UserError, match=f"it is not whole JSON .*line {at + 1} ") as error:
        call.read(file, controllers=[])
    assert "remove what is not JSON" in str(error.value)


@pytest.mark.parametrize("form", ["old", "series"])
@pytest.mark.parametrize("larger", ["sender", "receiver"])
def test_the_cause_of_the_other_direction_is_named_in_a_note(tmp_path: Path, form: str, larger: str) -> None:
    reports = statistics(2)
    for each in (one for report in reports for one in report):
        if each["id"] == "IT" and larger == "receiver":
            each |= {key: 10 * each[key] for key in ("bytesReceived", "packetsReceived")}
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(old_form(reports) if form == "old" else reports))
    other = "receiver" if larger == "sender" else "sender"
    read, apart = call.read(file), call_diagnosis.sentence(call.read(file, side=other))
    assert read["seen"]["source"].endswith(f"the {larger}'s")
    (note,) = (each for each in read["seen"]["notes"] if f"--side {other}" in each)
    assert apart.removesuffix(".") in note
    assert call_diagnosis.sentence(read) != apart
    assert not any("--side" in each for each in call.read(file, side=other)["seen"]["notes"])


@pytest.mark.parametrize("seed", range(12))
def test_values_that_a_counter_lacks_are_noted(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    dump = old_form([list(each.values()) for each in counters(is_sender=True, restart=False)])
    stats = dump["PeerConnections"]["8-1"]["stats"]
    values = json.loads(stats["O-bytesSent"]["values"])
    wrong_at = chance.sample(range(1, 59), chance.choice([0, 1, 5]))
    for k in wrong_at:
        values[k] = chance.choice(["x", None, True, [], {}])
    kept = chance.choice([60, 30, 4])
    stats["O-bytesSent"]["values"] = json.dumps(values[-kept:])
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(dump))
    notes = " ".join(call.read(file, controllers=[])["seen"]["notes"])
    left_out = sum(k >= 60 - kept for k in wrong_at)
    assert (f"{left_out} of its values of bytesSent are no numbers" in notes) == (left_out > 0), notes
    covers = f"bytesSent covers only {say_s(kept - 1)} of the 59.0 s of its streams"
    assert (covers in notes) == (kept < 60), notes


@pytest.mark.parametrize(
    "series",
    [
        [1, 2],
        "x",
        7,
        True,
        {"values": "[1, 2"},
        {"values": "[1]"},
        {"values": 3, "startTime": 0, "endTime": 0},
    ],
)
@pytest.mark.parametrize("name", ["O-bytesSent", "O-timestamp", "R-packetsLost"])
def test_a_series_that_can_t_be_read_is_named(tmp_path: Path, name: str, series: object) -> None:
    dump = old_form([list(each.values()) for each in counters(is_sender=True, restart=False)])
    dump["PeerConnections"]["8-1"]["stats"][name] = series
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(dump))
    with pytest.raises(UserError, match=f"its series {name} is not written as a browser does") as told:
        call.read(file)
    assert "Error" not in told.value.problem


@pytest.mark.parametrize("form", ["arrays", "internals", "lines"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_a_direction_that_a_dump_does_not_have_is_refused_with_the_one_that_it_has(
    tmp_path: Path, side: str, form: str
) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(in_form(counters(is_sender=side == "receiver", restart=False), form))
    other = "receiver" if side == "sender" else "sender"
    with pytest.raises(UserError, match=f"no data of the {side}'s direction") as told:
        call.read(file, side=side)
    assert f"--side {other}" in told.value.remedy
    assert call.read(file, side=other)["seen"]["side"] == other


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_losses_that_nothing_counts_are_unknown(tmp_path: Path, side: str) -> None:
    reports = counters(is_sender=side == "sender", restart=False)
    bare = [
        [{k: v for k, v in one.items() if k != "packetsLost"} for one in each.values()] for each in reports
    ]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(bare))
    read = call.read(file)
    assert read["seen"]["lost_frac"] is None
    assert "losses are unknown" in call.sentences(read)[0]
    assert "none" not in call.sentences(read)[0]
    call.write(read, tmp_path / "out")


@pytest.mark.parametrize("link", ["localId", "ssrc", "kind"])
def test_a_report_on_another_stream_counts_no_losses_of_the_video(tmp_path: Path, link: str) -> None:
    reports = statistics(3)
    links: dict[str, dict[str, Any]] = {"OT-1": {"ssrc": 11}, "OA/2": {"ssrc": 12}}
    of = {"localId": ("OT-1", "OA/2"), "ssrc": (11, 12), "kind": ("video", "audio")}[link]
    for is_known in (True, False):
        made = [
            [one | links.get(one["id"], {}) | ({link: of[0]} if one["id"] == "RI-1" else {}) for one in each]
            + [{**each[2], "id": "RA-1", "packetsLost": 0, link: of[1]}]
            for each in reports
        ]
        if not is_known:
            made = [[one for one in each if one["id"] != "RI-1"] for each in made]
        file = tmp_path / "dump.json"
        file.write_text(json.dumps(made))
        lost = call.read(file)["seen"]["lost_frac"]
        assert lost == (pytest.approx(40 / 5500, rel=0.1) if is_known else None)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_counted_for_a_part_of_the_call_is_unknown_in_the_other(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    reports = statistics(seed)
    begin, end = (0, chance.randrange(30, 50)) if seed % 2 else (chance.randrange(10, 30), 61)
    part = [
        [one for one in each if one["id"] != "RI-1" or begin <= k < end] for k, each in enumerate(reports)
    ]
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    whole.write_text(json.dumps(reports))
    cut.write_text(json.dumps(part))
    expected, read = call.read(whole), call.read(cut)
    slack = 6
    for k, (one, other) in enumerate(zip(expected["bins"], read["bins"], strict=True)):
        if begin + 1 <= k < end - 1:
            assert (one["lost"], one["delay_ms"]) == (other["lost"], other["delay_ms"])
        elif not begin - slack <= k < end + slack:
            assert (other["lost"], other["delay_ms"]) == (None, None)
    counted = [each for each in read["bins"] if each["lost"] is not None]
    share = sum(each["lost"] for each in counted) / sum(each["packets"] for each in counted)
    assert read["seen"]["lost_frac"] == pytest.approx(share)
    assert any("nothing in it counts losses" in note for note in read["seen"]["notes"])


@pytest.mark.parametrize("seed", range(8))
def test_a_clock_that_was_set_back_changes_no_rate(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    reports = statistics(seed)
    at, by = chance.randrange(5, 55), chance.choice([2, 20, 3600]) * 1000
    moved = [
        [one | {"timestamp": one["timestamp"] - by * (k >= at)} for one in each]
        for k, each in enumerate(reports)
    ]
    straight, back = tmp_path / "straight.json", tmp_path / "back.json"
    straight.write_text(json.dumps(reports))
    back.write_text(json.dumps(moved))
    expected, read = call.read(straight), call.read(back)
    assert read["bins"] == expected["bins"]
    assert any("clock was set back" in note for note in read["seen"]["notes"])
    # The same reports in another order do not count as a changed clock.
    chance.shuffle(reports)
    back.write_text(json.dumps(reports))
    assert call.read(back)["bins"] == expected["bins"]


def test_counters_beyond_64_bits_and_streams_without_bytes_are_no_call(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    for value in (1e308, 0):
        counts = {"bytesSent": value, "bytesReceived": value}
        made = [
            [one | {k: v for k, v in counts.items() if k in one} for one in each] for each in statistics(1)
        ]
        file.write_text(json.dumps(made))
        with pytest.raises(UserError, match="carried nothing"):
            call.read(file)
    file.write_text("\n".join(["[1]", "[2]", "[3", "[4]"]))
    with pytest.raises(UserError, match="not whole JSON"):
        call.read(file)


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_losses_without_a_count_of_packets_are_no_share_and_the_rate_is_that_of_the_bytes(
    tmp_path: Path, side: str
) -> None:
    bare = [
        [
            {k: v for k, v in one.items() if k not in ("packetsSent", "packetsReceived")}
            for one in each.values()
        ]
        for each in counters(is_sender=side == "sender", restart=False)
    ]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(bare))
    seen = call.read(file)["seen"]
    assert (seen["sent_bps"] or 0.0) > 0.0
    assert any("the share of lost packets is unknown" in note for note in seen["notes"])
    if side == "sender":
        assert seen["lost_frac"] is None


@pytest.mark.parametrize("form", ["old", "series"])
@pytest.mark.parametrize("seed", range(4))
def test_a_value_without_a_time_is_left_out_and_the_others_are_right(
    tmp_path: Path, form: str, seed: int
) -> None:
    chance = random.Random(seed)
    reports = statistics(seed)
    whole, torn = tmp_path / "whole.json", tmp_path / "torn.json"
    whole.write_text(json.dumps(reports))
    for report in chance.sample(reports[1:-1], 5):
        for one in report:
            one["timestamp"] = chance.choice([None, "", True, {}])
    torn.write_text(json.dumps(old_form(reports) if form == "old" else reports))
    expected, read = call.read(whole)["seen"], call.read(torn)["seen"]
    assert read["sent_bps"] == pytest.approx(expected["sent_bps"], rel=0.1)
    assert read["packets"] == expected["packets"]
    assert any("have no time" in note for note in read["notes"])


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_packets_that_nothing_counts_are_unknown(tmp_path: Path, side: str) -> None:
    bare = [
        [{k: v for k, v in one.items() if not k.startswith("packets")} for one in each.values()]
        for each in counters(is_sender=side == "sender", restart=False)
    ]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(bare))
    read = call.read(file)
    assert read["seen"]["packets"] is None
    assert "an unknown number of packets" in " ".join(call.sentences(read))


@pytest.mark.parametrize("pause_s", [2, 30, 3000])
def test_a_time_without_reports_is_named_and_loses_no_packets(tmp_path: Path, pause_s: int) -> None:
    reports = [
        [one | {"timestamp": one["timestamp"] + 1000 * pause_s * (k >= 25)} for one in each]
        for k, each in enumerate(statistics(2))
    ]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(reports))
    seen = call.read(file)["seen"]
    assert seen["packets"] == pytest.approx(reports[-1][0]["packetsSent"], abs=1)
    notes = " ".join(seen["notes"])
    assert (f"no report is in it from 24.0 s to {say_s(25 + pause_s)}" in notes) == (pause_s >= 30)


def say_s(seconds: float) -> str:
    from steadycast.report import say

    return say.seconds(seconds)


def test_what_is_no_series_of_getstats_is_told_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    reports = statistics(1)
    untimed = [[{k: v for k, v in one.items() if k != "timestamp"} for one in each] for each in reports]
    in_seconds = [[one | {"timestamp": one["timestamp"] / 1000} for one in each] for each in reports]
    span = {
        "startTime": "2016-01-01T00:00:00.000Z",
        "endTime": "2016-01-01T00:01:00.000Z",
        "values": "[1, 2]",
    }
    goog = {"PeerConnections": {"1-1": {"stats": {"ssrc_1_send-googRtt": span}}}}
    rtcstats = [["create", "PC_0", {}, 1], ["getstats", "PC_0", {"OT": {"type": "outbound-rtp"}}, 2]]
    lines = "\n".join(map(json.dumps, rtcstats))
    client = json.dumps(["connectionInfo", None, {"statsFormat": "chrome_standard"}, 1]) + "\n" + lines
    server = "\n".join(
        json.dumps({"statsSessionId": "1", "type": kind}) for kind in ("identity", "stats-entry")
    )
    nameless = [[{k: v for k, v in one.items() if k != "id"} for one in each] for each in reports]
    tshark = [{"_index": "packets", "_source": {"layers": {}}}]
    # Chrome still has this metric.
    timing = [
        one | ({"googTimingFrameInfo": "1,2,3"} if one["type"] == "inbound-rtp" else {}) for one in reports[0]
    ]
    for content, says in [
        (json.dumps(untimed), "no times (timestamp)"),
        (json.dumps(in_seconds), "cover 0.06 s by their times, which count as milliseconds"),
        (json.dumps(goog), "(goog…), which are not read"),
        (lines, "a log of rtcstats"),
        (json.dumps(rtcstats), "a log of rtcstats"),
        (client, "a log of rtcstats"),
        (json.dumps({"fileFormat": 3, "origin": "x"}) + "\n" + lines, "a log of rtcstats"),
        (server, "a log of rtcstats"),
        (json.dumps(reports[:1]), "of one moment, which shows no rate"),
        (json.dumps(timing), "of one moment, which shows no rate"),
        (json.dumps(nameless), "its statistics have no id"),
        (json.dumps([[{"localVideoTrackStats": []}]] * 3), "no statistics in the form of getStats"),
        (json.dumps(tshark), "a list of packets by tshark"),
        ("", "it is empty"),
    ]:
        file.write_text(content)
        assert says in str(wrong(file)), says
        assert "byte 0" not in str(wrong(file))


def test_options_for_packets_are_not_ignored_silently(tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    file.write_text(json.dumps(statistics(1)))
    notes = call.read(file, stream=5, beside="cubic:1", send_time_id=3)["seen"]["notes"]
    assert "a file of averages has no packets, so --stream, --beside and --send-time-id were ignored" in notes
    log = ROOT / "crates" / "calltrace" / "tests" / "logs" / "sender.log"
    for ends in [(file, log), (log, file)]:
        with pytest.raises(UserError, match=r"stats\.json: it is a dump, whose averages can't be joined"):
            call.read(ends[0], other=ends[1])


def test_a_report_of_several_streams_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    common = {"type": "outbound-rtp", "kind": "video"}
    layers = [
        [{"id": f"OT{k}", **common, "timestamp": BEGIN_MS + 1000 * t, "bytesSent": 9e4 * t} for k in range(3)]
        for t in range(20)
    ]
    file.write_text(json.dumps(layers))
    assert call.read(file)["seen"]["reports"] == 20


@pytest.mark.parametrize("media", ["video", "audio"])
def test_a_time_without_packets_is_noted(tmp_path: Path, media: str) -> None:
    def report(t: int) -> list[dict[str, Any]]:
        counted = min(max(t - 8, 0), 12) + max(t - 30, 0)
        common = {"type": "inbound-rtp", "timestamp": BEGIN_MS + 1000 * t, "kind": media}
        return [{"id": "IT", **common, "bytesReceived": 9e4 * counted, "packetsReceived": 90 * counted}]

    file = tmp_path / "stats.json"
    file.write_text(json.dumps([report(t) for t in range(60)]))
    notes = [note for note in call.read(file)["seen"]["notes"] if note.startswith("no ")]
    packet = "video packet" if media == "video" else "packet"
    assert [note for note in notes if "arrived" in note] == [f"no {packet} arrived from 20.0 s to 30.0 s"], (
        notes
    )


def damaged(kind: str, chance: random.Random) -> bytes:
    """Return a file in an unknown format, or a broken one."""
    text = json.dumps(old_form(statistics(1, 5))).encode()
    log = (ROOT / "crates" / "calltrace" / "tests" / "logs" / "sender.log").read_bytes()
    if kind == "cut":
        return text[: chance.randrange(1, len(text) - 1)]
    if kind == "flipped":
        whole = bytearray(chance.choice([text, log]))
        for _ in range(20):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        return bytes(whole)
    if kind == "noise":
        return chance.randbytes(chance.randrange(200))
    if kind == "packed":
        return gzip.compress(text)[: chance.randrange(3, 200)]
    values: list[Any] = [None, 1, "x", [], {}, [[]], {"stats": 3}, -1e300, True]
    tree: Any = {"PeerConnections": {"1": {"stats": {"a-b": {}}}}}
    at = chance.randrange(4)
    if at == 0:
        tree = chance.choice(values)
    elif at == 1:
        tree["PeerConnections"] = chance.choice(values)
    elif at == 2:
        tree["PeerConnections"]["1"]["stats"]["a-bytesSent"] = chance.choice(values)
    else:
        tree = [[{"id": 1, "type": "outbound-rtp", "timestamp": v, "bytesSent": v}] for v in values]
    return json.dumps(tree).encode()


def wrong(file: Path) -> str | None:
    """Read a file, and return what is wrong with it."""
    try:
        call.sentences(call.read(file))
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["cut", "flipped", "noise", "packed", "odd"])
def test_a_damaged_or_foreign_file_is_one_line_or_is_read_as_far_as_it_goes(
    tmp_path: Path, kind: str
) -> None:
    refused = 0
    for seed in range(30):
        file = tmp_path / "file"
        file.write_bytes(damaged(kind, random.Random(f"{kind}{seed}")))
        said = wrong(file)
        refused += said is not None
        assert said is None or ("\n" not in said and str(file) in said)
    assert refused >= (1 if kind == "flipped" else 25)


@pytest.mark.parametrize("form", ["old", "series"])
@pytest.mark.parametrize("limited", ["none", "cpu", "bandwidth", "other"])
@pytest.mark.parametrize("seconds_limited", [2, 20])
@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("trip_s", [0.05, 0.4])
def test_averages_name_no_cause_that_they_do_not_show(
    tmp_path: Path, form: str, limited: str, seconds_limited: int, lost: int, trip_s: float
) -> None:
    reports = statistics(1)
    for t, report in enumerate(reports):
        by_type = {each["type"]: each for each in report if each["id"] != "OA/2"}
        is_limited = 20 <= t < 20 + seconds_limited
        by_type["outbound-rtp"]["qualityLimitationReason"] = limited if is_limited else "none"
        by_type["remote-inbound-rtp"]["packetsLost"] = lost * min(max(t - 20, 0), 20)
        by_type["remote-inbound-rtp"]["roundTripTime"] = trip_s if 20 < t <= 40 else 0.05
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(old_form(reports) if form == "old" else reports))
    said = call_diagnosis.sentence(call.read(file))
    reason = {"cpu": "too slow to encode", "bandwidth": "the network limited", "other": "other limited"}.get(
        limited
    )
    if reason and seconds_limited == 20:
        assert reason in said
    elif lost:
        assert "packets were lost" in said
    elif trip_s > 0.1:
        assert "there was a standing queue or another route" in said
    else:
        assert "none that the averages show" in said
    assert (reason is not None and reason in said) == (reason is not None and seconds_limited == 20)


@pytest.mark.parametrize("seed", range(24))
def test_a_limit_elsewhere_in_the_call_does_not_hide_the_cause_of_the_worst_ten_seconds(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kind = ("lost", "late", "healthy")[seed % 3]
    limit = ("cpu", "bandwidth")[seed // 3 % 2]
    is_at_start = bool(seed // 6 % 2)
    seconds = chance.randint(90, 150)
    bad_s = range(60, 60 + chance.randint(12, 25))
    limited_s = range(chance.randint(9, 19)) if is_at_start else range(50, 90)
    lost, reports = 0, []
    for t in range(seconds):
        is_bad = t in bad_s
        lost += 30 if is_bad and kind == "lost" else 0
        stream = {"id": "O", "type": "outbound-rtp", "bytesSent": 120_000 * t, "packetsSent": 120 * t}
        stream |= {"qualityLimitationReason": limit if t in limited_s else "none"}
        report = {"id": "R", "type": "remote-inbound-rtp", "packetsLost": lost}
        report |= {"roundTripTime": 0.9 if is_bad and kind == "late" else 0.04}
        reports.append(
            [each | {"timestamp": BEGIN_MS + 1000 * t, "kind": "video"} for each in (stream, report)]
        )
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(reports))
    said = call_diagnosis.sentence(call.read(file, controllers=[]))
    own = {"lost": "packets were lost", "late": "round trip grew", "healthy": "none that"}
    of_limit = {"cpu": "too slow to encode", "bandwidth": "the network limited"}[limit]
    is_limit_named = len(limited_s) >= 0.1 * (seconds - 1) and not (is_at_start and limit == "bandwidth")
    assert (of_limit in said) == is_limit_named, said
    shown = [key for key, text in own.items() if text in said]
    assert shown == ([] if kind == "healthy" and is_limit_named else [kind]), said
    if kind != "healthy" and is_limit_named:
        # The limit comes first if it applied in the worst ten seconds.
        assert (said.index(of_limit) < said.index(own[kind])) == (not is_at_start), said


def changing(side: str, change: str, at_s: int) -> list[list[dict[str, Any]]]:
    """Return the reports of a call of 60 s whose round trip goes from 20 to 100 ms, and whose estimate rises."""
    counter, packets = (
        ("bytesSent", "packetsSent") if side == "sender" else ("bytesReceived", "packetsReceived")
    )
    kind = "outbound-rtp" if side == "sender" else "inbound-rtp"
    totals: dict[str, int] = {}
    reports = []
    for t in range(61):
        is_late = t >= at_s
        stream = "S2" if change == "stream" and is_late else "S1"
        pair = "P2" if change in ("pair", "pair and check") and is_late else "P1"
        totals[stream] = totals.get(stream, 0) + 125_000
        at, trip = BEGIN_MS + 1000 * t, 0.1 if is_late else 0.02
        report: list[dict[str, Any]] = [
            {"id": stream, "type": kind, "kind": "video", "ssrc": int(stream[1:]), "transportId": "T"}
            | {counter: totals[stream], packets: totals[stream] // 1000, "packetsLost": 0},
            {"id": "T", "type": "transport", "selectedCandidatePairId": pair},
            {"id": pair, "type": "candidate-pair", "nominated": True, "selected": True}
            | {"currentRoundTripTime": trip, "availableOutgoingBitrate": 3e6 if is_late else 5e5},
        ]
        if side == "sender":
            report.append(
                {"id": f"R{stream}", "type": "remote-inbound-rtp", "kind": "video", "ssrc": int(stream[1:])}
                | {"localId": stream, "packetsLost": 0, "roundTripTime": trip}
            )
        if change == "pair and check":
            # A pair over a relay is only checked.
            report.append(
                {"id": "P0", "type": "candidate-pair", "nominated": True, "currentRoundTripTime": 0.4}
            )
        reports.append([each | {"timestamp": at} for each in report])
    return reports


def internals(reports: list[list[dict[str, Any]]], *, has_types: bool = True) -> dict[str, Any]:
    """Write reports as chrome://webrtc-internals does, with series that begin and end during the call."""
    stats: dict[str, Any] = {"gone-metric": {}}
    for report in reports:
        for each in report:
            for metric in set(each) - {"id", "type"}:
                series = stats.setdefault(
                    f"{each['id']}-{metric}", {"startTime": each["timestamp"], "values": []}
                )
                series["values"].append(each[metric])
                series |= {"endTime": each["timestamp"]} | ({"statsType": each["type"]} if has_types else {})
    packed = {
        key: each | {"values": json.dumps(each["values"])} if each else each for key, each in stats.items()
    }
    return {"getUserMedia": [], "PeerConnections": {"8-1": {"stats": packed}}, "UserAgent": "x"}


@pytest.mark.parametrize("form", ["internals", "series"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("told", ["transport", "selected", "nominated"])
@pytest.mark.parametrize("change", ["none", "pair", "pair and check", "stream"])
@pytest.mark.parametrize("at_s", [10, 45])
def test_the_round_trip_and_the_estimate_are_those_of_the_pair_and_the_stream_in_use(
    tmp_path: Path, form: str, side: str, told: str, change: str, at_s: int
) -> None:
    reports = changing(side, change, at_s)
    is_ambiguous = told == "nominated" and change == "pair and check"
    for report in reports:
        for each in report:
            if told != "transport":
                each.pop("selectedCandidatePairId", None)
            if told == "nominated":
                each.pop("selected", None)
            # Without another mark, the pair in use is the one that carried most.
            if is_ambiguous and each["type"] == "candidate-pair" and each["id"] != "P0":
                each["bytesSent"] = each["timestamp"] - BEGIN_MS
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(internals(reports) if form == "internals" else reports))
    read = call.read(file, side=side, controllers=[])
    trips = [each["delay_ms"] for each in read["bins"]]
    assert trips == [pytest.approx(100 if t + 1 >= at_s else 20) for t in range(60)]
    estimates = [rate for _, rate in read["seen"]["estimates"]]
    assert estimates == ([] if side == "receiver" else [5e5] * at_s + [3e6] * (61 - at_s))
    assert "grew from 20.0 ms to 100 ms" in call_diagnosis.sentence(read)


@pytest.mark.parametrize("form", ["internals", "series"])
@pytest.mark.parametrize("layer", ["off", "limited", "idle"])
def test_bandwidth_is_a_cause_only_of_an_encoder_that_used_it(tmp_path: Path, form: str, layer: str) -> None:
    reports = changing("sender", "none", 0)
    for t, report in enumerate(reports):
        small, trip = report[0], report[3]
        trip["roundTripTime"] = 0.02
        small |= {
            "qualityLimitationReason": "none",
            "active": True,
            "bytesSent": 4_000 * t if layer == "idle" else 62_500 * t,
        }
        large = small | {"id": "S9", "ssrc": 9, "active": layer != "off", "bytesSent": 0, "packetsSent": 0}
        large["qualityLimitationReason"] = "bandwidth"
        report.append(large)
        report[2]["availableOutgoingBitrate"] = 6e5
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(internals(reports) if form == "internals" else reports))
    read = call.read(file, controllers=[])
    assert read["seen"]["limited"] == ({} if layer == "off" else {"bandwidth": 1.0})
    says = {
        "off": "none that the averages show",
        "limited": "the network limited the encoder for 100 %",
        "idle": "but then 32.0 kb/s of an estimated 600 kb/s were sent",
    }
    assert says[layer] in call_diagnosis.sentence(read)


def test_a_dump_of_an_older_browser_has_its_types_in_its_ids(tmp_path: Path) -> None:
    names = {
        "S1": "RTCOutboundRTPVideoStream_1",
        "RS1": "RTCRemoteInboundRtpVideoStream_1",
        "T": "RTCTransport_0_1",
    }
    names["P1"] = "RTCIceCandidatePair_a_b"
    text = json.dumps(internals(changing("sender", "none", 30), has_types=False))
    for short, name in names.items():
        text = text.replace(f'"{short}-', f'"{name}-').replace(f'\\"{short}\\"', f'\\"{name}\\"')
    file = tmp_path / "dump.txt"
    file.write_text(text)
    seen = call.read(file, controllers=[])["seen"]
    assert seen["sent_bps"] == pytest.approx(1e6)
    assert (seen["lost_frac"], len(seen["estimates"])) == (0.0, 61)


def series(
    side: str, sent: list[int], lost: list[int], step: int = 1, reported: range | None = None
) -> list[list[dict[str, Any]]]:
    """Return reports on a video every ``step`` seconds: packets sent and reported losses of each second.

    The sender has the receiver's reports only in the seconds ``reported``.
    """
    reports: list[list[dict[str, Any]]] = []
    for t in range(0, len(sent) + 1, step):
        packets, gone = sum(sent[:t]), sum(lost[:t])
        common = {"timestamp": BEGIN_MS + 1000 * t, "kind": "video", "ssrc": 7}
        counted = {"id": "RI", "type": "remote-inbound-rtp", "packetsLost": gone, "roundTripTime": 0.05}
        if side == "receiver":
            came = packets - gone
            stream = {
                "id": "IT",
                "type": "inbound-rtp",
                "packetsReceived": came,
                "bytesReceived": 1000 * came,
            }
            pair = {"id": "CP", "type": "candidate-pair", "currentRoundTripTime": 0.05, "nominated": True}
            reports.append(
                [stream | common | {"packetsLost": gone}, pair | {"timestamp": common["timestamp"]}]
            )
            continue
        stream = {"id": "OT", "type": "outbound-rtp", "packetsSent": packets, "bytesSent": 1000 * packets}
        is_reported = reported is None or t in reported
        reports.append([stream | common, *([counted | common] if is_reported else [])])
    return reports


def read_series(place: Path, reports: list[list[dict[str, Any]]], side: str | None = None) -> dict[str, Any]:
    file = place / "dump.json"
    file.write_text(json.dumps(reports))
    return call.read(file, side=side, controllers=[])


@pytest.mark.parametrize("seed", range(12))
def test_all_losses_of_an_interruption_count_although_one_report_has_them(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    begin, length = chance.randrange(10, 40), chance.randrange(2, 9)
    sent = [chance.randrange(100, 200) for _ in range(60)]
    # The sender reduces its rate during the interruption. The first report after it counts all losses.
    sent[begin + 1 : begin + length + 5] = [chance.randrange(5, 20)] * (length + 4)
    lost = [0] * 60
    lost[begin + length] = sum(sent[begin : begin + length])
    read = read_series(tmp_path, series("sender", sent, lost))
    assert read["seen"]["lost_frac"] == pytest.approx(sum(lost) / sum(sent), abs=1e-3)
    assert sum(each["lost"] for each in read["bins"]) == sum(lost)
    assert all(each["lost"] <= each["packets"] for each in read["bins"])
    assert sum(each["lost"] for each in read["bins"][begin : begin + length + 1]) == sum(lost)


@pytest.mark.parametrize("step", [5, 10, 60])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_few_losses_between_distant_reports_are_not_rounded_off(tmp_path: Path, side: str, step: int) -> None:
    sent, lost = [20] * 240, [int(t % step == 0) for t in range(240)]
    read = read_series(tmp_path, series(side, sent, lost, step))
    assert read["seen"]["lost_frac"] == pytest.approx(sum(lost) / sum(sent), rel=0.02)
    assert read["seen"]["packets"] == pytest.approx(sum(sent), rel=0.02)


@pytest.mark.parametrize("first", [0, 1, 400])
def test_losses_before_the_first_report_are_known_only_if_it_counts_none(tmp_path: Path, first: int) -> None:
    sent, lost = [100] * 60, [0] * 60
    lost[0] = first
    reports = series("sender", sent, lost, 59, range(59, 60))
    audio = [
        [one | {"id": f"A{one['id']}", "kind": "audio", "ssrc": 8, "localId": "AOT"} for one in each]
        for each in reports
    ]
    read = read_series(tmp_path, [one + other for one, other in zip(reports, audio, strict=True)])
    known = [each["lost"] for each in read["bins"] if each["lost"] is not None]
    assert (known == []) == (first > 0)
    assert (read["seen"]["lost_frac"], read["seen"]["audio"]["lost_frac"]) == (
        (None, None) if first else (0, 0)
    )


@pytest.mark.parametrize("step", [1, 10, 30, 60])
@pytest.mark.parametrize("limited_s", [0, 12, 60])
def test_a_limit_counts_for_its_time_between_distant_reports(
    tmp_path: Path, step: int, limited_s: int
) -> None:
    reports = series("sender", [100] * 120, [0] * 120, step)
    for report in reports:
        t = (report[0]["timestamp"] - BEGIN_MS) / 1000
        held = min(t % 60, limited_s) + t // 60 * limited_s
        report[0]["qualityLimitationReason"] = "bandwidth" if t % 60 <= limited_s else "none"
        report[0]["qualityLimitationDurations"] = {"none": t - held, "bandwidth": held, "cpu": 0}
    seen = read_series(tmp_path, reports)["seen"]
    assert seen["limited"].get("bandwidth", 0) == pytest.approx(limited_s / 60, abs=0.01)
    assert seen["limited"].get("cpu", 0) == 0


@pytest.mark.parametrize("after", ["pause", "interruption", "end", "sender"])
def test_seconds_without_packets_have_a_cause_that_later_packets_show(tmp_path: Path, after: str) -> None:
    side = "sender" if after == "sender" else "receiver"
    sent, lost = [100] * 60, [0] * 60
    sent[20 : 60 if after == "end" else 40] = [0] * (40 if after == "end" else 20)
    if after == "interruption":
        sent[40], lost[40] = 2100, 2000
    reports = series(side, sent, lost, reported=range(21))
    for report in reports:
        t = (report[0]["timestamp"] - BEGIN_MS) // 1000
        report[0]["totalFreezesDuration"] = 20.0 if t > 40 or (after == "end" and t > 50) else 0.0
    read = read_series(tmp_path, reports)
    # The worst seconds are those in which the picture stands.
    read["seen"]["worst"] |= {"from_s": 25.0, "to_s": 35.0}
    for each in read["bins"][25:35]:
        each["lost"] = None
    said = call_diagnosis.sentence(read)
    cause = {
        "pause": "the sender paused: no packet arrived in these seconds, and none is missing",
        "interruption": "the path was interrupted: no packet arrived in these seconds",
        "end": "unknown: no packet arrived in these seconds, because the sender paused or the path",
        "sender": "the sender paused: it sent no packet in these seconds",
    }[after]
    assert said.startswith(f"Cause: {cause}"), said
    if side == "receiver":
        assert "50.0 ms of round trip" in said


def test_a_note_names_streams_without_a_count_of_losses(tmp_path: Path) -> None:
    reports = series("sender", [100] * 30, [2] * 30)
    for report in reports:
        report.append(report[0] | {"id": "OT-h", "ssrc": 8})
        # A layer that is not sent needs no reports.
        report.append(report[0] | {"id": "OT-f", "ssrc": 9, "bytesSent": 0, "packetsSent": 0})
    notes = read_series(tmp_path, reports)["seen"]["notes"]
    assert any("for 1 of its 2 streams nothing in it counts losses" in note for note in notes)
    notes = read_series(tmp_path, series("sender", [100] * 30, [2] * 30))["seen"]["notes"]
    assert not any("streams nothing in it counts" in note for note in notes)


@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("form", ["bytes_{}", "Bytes{}", "BYTES_{}"])
def test_counters_with_other_names_are_the_reason_of_the_refusal(
    tmp_path: Path, side: str, form: str
) -> None:
    way = {"sender": "sent", "receiver": "received"}[side]
    name = form.format(way.capitalize() if form == "Bytes{}" else way.upper() if form.isupper() else way)
    reports = series(side, [100] * 30, [0] * 30)
    for report in reports:
        report[0][name] = report[0].pop(f"bytes{way.capitalize()}")
    with pytest.raises(UserError, match=f"have other names than those of getStats, for example {name}"):
        read_series(tmp_path, reports)


@pytest.mark.parametrize("seed", range(4))
def test_connections_that_a_record_has_under_different_keys_are_not_summed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rates, lost = [chance.randrange(50, 100), chance.randrange(150, 300)], [chance.randrange(1, 9), 0]
    begins = chance.choice([0, 7])
    ends = []
    for k, (rate, gone) in enumerate(zip(rates, lost, strict=True)):
        made = series("sender", [rate] * 60, [gone] * 60)
        # The SSRCs differ, but each connection has a transport with the same id.
        ends.append(
            [
                [one | {"id": f"{one['id']}{k}", "ssrc": k} for one in report]
                + [{"id": "T01", "type": "transport", "timestamp": report[0]["timestamp"] + 3 * k}]
                for report in made
            ]
        )
    records = [
        {"t": t, "first": [[one["id"], one] for one in a]} | ({"second": b} if t >= begins else {})
        for t, (a, b) in enumerate(zip(*ends, strict=True))
    ]
    file = tmp_path / "dump.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in records))
    seen = call.read(file, controllers=[])["seen"]
    assert seen["sent_bps"] == pytest.approx(8000 * rates[1], rel=0.02)
    assert seen["lost_frac"] == 0
    assert any("2 connections with RTP" in note for note in seen["notes"])
    assert any("another connection" in note and "packets were lost" in note for note in seen["notes"])
