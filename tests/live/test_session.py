"""Our own sender and receiver, as a user starts them."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import pytest
from steadycast.exits import Exit
from steadycast.folder import Folder
from steadycast.live import receive, send, session, source, view

from tests.conftest import Say, started, until
from tests.live.conftest import needs, ports, run, steadycast


def described(sdp: Path) -> None:
    """Waits for a whole description."""
    until(lambda: sdp.exists() and sdp.read_bytes().endswith(b"\r\n"))


def pair(
    port: int, folder: Path, *more: str, receive: tuple[str, ...] = (), code: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Four seconds of the test pattern at a receiver, counted from when it has started.

    Returns the summaries of both ends.
    """
    sdp = folder / "session.sdp"
    sent = [
        *steadycast("send", "testsrc", "--to", f"127.0.0.1:{port}", "--for", "90s", "--sdp", sdp),
        "--json",
    ]
    sender = started([*sent, *more])
    described(sdp)
    received = run("receive", sdp, "--for", "4s", "--json", *receive, code=code)
    # Ctrl-C is how an operator ends a session.
    sender.send_signal(signal.SIGINT)
    said, errors = sender.communicate(timeout=30)
    assert sender.returncode == 0, errors
    return json.loads(said), json.loads(received.stdout)


def test_both_ends_leave_a_run_folder_that_reports_and_compare_read(port: int, tmp_path: Path) -> None:
    sent, received = pair(
        port,
        tmp_path,
        *("--max-rate", "800kbps", "-o", str(tmp_path / "sent")),
        receive=("-o", str(tmp_path / "received"), "--name", "desk", "--out", str(tmp_path / "film.mkv")),
    )
    flow, seen = sent["flows"][0], received["flows"][0]["receivers"][0]
    assert sent["world"] == received["world"] == "live"
    (reported,) = flow["receivers"]
    assert (reported["name"], reported["standard"], reported["loss_frac"]) == ("desk", False, 0)
    assert seen["loss_frac"] == 0
    assert 0.3e6 < seen["throughput_bps"] < 0.9e6
    # A receiver that starts late misses some frames.
    assert 40 <= seen["frames"]["ok"] <= min(flow["coded_frames"], 115)
    assert (tmp_path / "film.mkv").stat().st_size > 10_000
    for name in ("sent", "received"):
        folder = Folder.open(tmp_path / name)
        assert folder.table("rates").height >= 2
        assert (tmp_path / name / "report.html").exists()
    assert Folder.open(tmp_path / "received").table("frames")["fate"].value_counts().height <= 2
    page = tmp_path / "page.html"
    run("compare", tmp_path / "sent", tmp_path / "received", "-o", page)
    assert page.exists()


def test_every_controller_is_served_by_reports_of_single_packets(tmp_path: Path) -> None:
    cases = [("tfrc", "twcc"), ("asmp", "rfc8888"), ("scream", "twcc"), ("scream", "own")]

    def session(case: tuple[str, str], port: int) -> tuple[dict[str, Any], dict[str, Any], str]:
        folder = tmp_path / "-".join(case)
        folder.mkdir()
        words = (
            "--controller",
            case[0],
            "--feedback",
            case[1],
            "--max-rate",
            "800kbps",
            "-o",
            folder / "sent",
        )
        sent, received = pair(port, folder, *map(str, words))
        return sent["flows"][0], received["flows"][0]["receivers"][0], (folder / "session.sdp").read_text()

    with ThreadPoolExecutor(len(cases)) as pool:
        done = list(pool.map(session, cases, ports(len(cases))))
    for case, (flow, seen, sdp) in zip(cases, done, strict=True):
        (reported,) = flow["receivers"]
        assert (reported["standard"], reported["loss_frac"]) == (False, 0), case
        assert seen["loss_frac"] == 0, case
        assert seen["frames"]["ok"] >= 20, case
        # A report for each of 25 frames per second, or at least five reports per second.
        assert flow["feedback_packets"] >= 15, case
        rules = set(Folder.open(tmp_path / "-".join(case) / "sent").table("decisions")["rule"])
        assert not any("standard reports" in rule for rule in rules), case
        line = "a=rtcp-fb:96 transport-cc" if case[1] == "twcc" else "a=rtcp-fb:* ack ccfb"
        assert line in sdp, case
        assert " RTP/AVPF " in sdp, case


def test_a_stream_with_a_key_is_opened_by_that_key_alone(tmp_path: Path) -> None:
    keys = {}
    for name, letter in (("key", "A"), ("other", "B")):
        (tmp_path / name).mkdir()
        keys[name] = tmp_path / name / "secret"
        keys[name].write_text(letter * 40)
        keys[name].chmod(0o600)

    def session(name: str, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return pair(
            port,
            tmp_path / name,
            *("--key-file", str(keys["key"])),
            receive=("--key-file", str(keys[name])),
            code=Exit.DONE if name == "key" else Exit.SILENT,
        )

    with ThreadPoolExecutor(len(keys)) as pool:
        done = list(pool.map(session, keys, ports(len(keys))))
    for (sent, received), opens in zip(done, (True, False), strict=True):
        assert opens != any("the key may be wrong" in warning for warning in received["warnings"])
        whole = received["flows"][0]["receivers"][0]["frames"]
        assert (whole is not None and whole["ok"] > 10) == opens
        assert bool(sent["flows"][0]["receivers"]) == opens


def test_a_container_has_the_times_of_its_frames(clip: Path, tmp_path: Path) -> None:
    raw, out = tmp_path / "film.m4v", tmp_path / "film.mkv"
    with av.open(str(clip)) as source, av.open(str(raw), "w", format="m4v") as target:
        stream = target.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 352, 288, "yuv420p"
        pictures = [*itertools.islice(source.decode(video=0), 20), None]
        packets = [packet for picture in pictures for packet in stream.encode(picture)]
        sizes = [packet.size for packet in packets]
        target.mux(packets)
    # 25 frames per second, of which one was skipped.
    ticks = [3600 * n for n in range(21) if n != 7]
    receive.contain(raw, out, "matroska", "mpeg4", list(zip(ticks, sizes, strict=True)), b"")
    with av.open(str(out)) as film:
        times = [float(packet.pts * packet.time_base) for packet in film.demux(video=0) if packet.size]
    assert times == pytest.approx([tick / 90_000 for tick in ticks], abs=0.001)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("send", "greedy", "--to", "nowhere"), "not ADDRESS:PORT"),
        (("send", "greedy", "--to", "127.0.0.1:65535"), "from 1 to 65534"),
        (("send", "greedy", "--to", "127.0.0.1:5004", "--controller", "tfcr"), 'did you mean "tfrc"?'),
        (("send", "greedy", "--to", "239.1.1.1:5004", "--controller", "tfrc"), "serves one receiver"),
        (
            ("send", "greedy", "--to", "127.0.0.1:5004", "--max-rate", "fast"),
            'write digits and a point, for example "4Mbps"',
        ),
        (
            ("send", "greedy", "--to", "127.0.0.1:5004", "--feedback", "remb"),
            "choose from: own, rfc8888, twcc",
        ),
        (("send", "greedy", "--to", "239.1.1.1:5004", "--feedback", "twcc"), "a group's receivers report as"),
        (
            ("send", "greedy", "--to", "127.0.0.1:5004", "--max-rate", "1Mbps", "--floor", "2Mbps"),
            "is below the floor",
        ),
        (("send", "absent.mkv", "--to", "127.0.0.1:5004"), "there is no such file"),
        (("send", "testsrc", "--to", "127.0.0.1:5004", "--codec", "vp7"), "choose from: mpeg4"),
        (("send", "/dev/video77", "--to", "127.0.0.1:5004"), "ls /dev/video*"),
        (("receive", "232.1.1.1:5004"), "--source"),
        (("receive", "127.0.0.1:5004", "--buffer", "full"), "write for example 16KiB"),
        (("receive", "127.0.0.1:5004", "--consume", "8kbps"), "give --buffer, too"),
        (("receive", "absent.sdp"), "the file that the sender wrote"),
        (("receive", "127.0.0.1:5004", "--out", "film.mkv"), "--codec"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(words: tuple[str, ...], what: str, say: Say) -> None:
    said = say(*words, code=2)
    assert what in said.err
    assert len(said.err.strip().splitlines()) == 1, said.err


def test_a_warning_about_the_source_is_printed_once_and_names_an_option(
    clip: Path, port: int, say: Say
) -> None:
    size = f"{2 * random.randrange(100, 150)}x{2 * random.randrange(30, 60)}"
    words = ("--to", f"127.0.0.1:{port}", "--size", size, "--for", "200ms", "--no-audio")
    said = say("send", str(clip), *words, code=0).err
    (told,) = [line for line in said.splitlines() if "changes its aspect ratio" in line]
    assert f"is encoded in {size}" in told
    assert told.endswith('; --size "auto" keeps it')


@needs("ffmpeg")
def test_raw_frames_on_standard_input_are_sent(port: int) -> None:
    made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=176x144:rate=15", "-t", "3"]
    frames = subprocess.run(
        [*made, "-f", "yuv4mpegpipe", "-"], capture_output=True, timeout=60, check=True
    ).stdout
    words = steadycast("send", "-", "--to", f"127.0.0.1:{port}", "--controller", "fixed", "--json")
    done = subprocess.run(
        [*words, "--max-rate", "300kbps"], input=frames, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    flow = json.loads(done.stdout)["flows"][0]
    assert flow["coded_frames"] + flow["left_out_frames"] + flow["no_room_frames"] == 45
    assert flow["coded_frames"] >= 30


@needs("ffmpeg")
def test_each_picture_of_standard_input_is_taken_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=100", "-t", "0.6"]
    frames = subprocess.run([*made, "-f", "yuv4mpegpipe", "-"], capture_output=True, timeout=60, check=True)
    monkeypatch.setattr(source, "open", lambda *_, **__: io.BytesIO(frames.stdout), raising=False)
    camera = source.Camera("-", "clip", "clip")
    taken = passed = 0
    while camera.picture(0) is not None:
        taken += 1
        # An encoder that takes five times the frame interval.
        time.sleep(0.05)
        passed += camera.passed()
    assert taken + passed + camera.passed() == 60
    assert taken < 20


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("A" * 40)
    key.chmod(0o644)
    with pytest.raises(Exception, match="chmod 600"):
        session.read_key(key)


STATUS: dict[str, Any] = {
    "at_s": 12.0,
    "rate_bps": 1.2e6,
    "decision": {
        "target_bps": 1.3e6,
        "limit": "network",
        "rule": "least of the receivers' rates",
        "loss": 0.012,
        "rtt_ms": 41.0,
        "by": "desk",
    },
    "backlog_ms": 3.0,
    "frames": 300,
    "quantizer": 7,
    "feedback": 12,
    "feedback_refused": 0,
    "ecn": None,
    "floor_bps": 50_000.0,
    "left_out": 3,
    "no_room": 0,
    "skipped_frames": 0,
    "size": {"width": 352, "height": 288, "smaller": False, "smaller_frames": 0, "changes": 0},
    "refused": 0,
    "unreadable": 0,
    "peers": [
        {
            "name": name,
            "address": f"10.0.0.{n}:5005",
            "ours": n == 2,
            "left": False,
            "aside": None,
            "packets": False,
            "silent_s": silent,
            "reports": 9,
            "rtt_ms": 41.0,
            "loss_frac": loss,
            "jitter_ms": 1.0,
        }
        for n, (name, silent, loss) in enumerate(
            [("hall", 9.0, 0.0), ("yard", 1.0, 0.3), ("desk", 0.2, 0.01)]
        )
    ],
}


def test_the_view_shows_who_limits_first_and_names_what_is_missing() -> None:
    from rich.console import Console

    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(view.send_view(STATUS, "10.0.0.9:5004", 5005))
    text = console.export_text()
    order = [text.index(name) for name in ("1  desk", "2  yard", "3  hall")]
    assert order == sorted(order)
    assert "the network limits: least of the receivers' rates, loss 1.2 %, RTT 41.0 ms, set by desk" in text
    assert "no RTCP from 10.0.0.0 (hall) for 9 s" in text
    assert "3 pictures were left out" in text
    for count, said in ((1, "1 packet sent again"), (2, "2 packets sent again")):
        assert f", {said}" in view.send_line({**STATUS, "repair": {"packets": count, "parities": 0}})
    alone = view.hints({**STATUS, "peers": [], "left_out": 0, "no_room": 7}, "10.1.0.2:5004", 5005)
    assert alone == [
        "no RTCP from 10.1.0.2 for 12 s: is port 5005 of this machine reachable from there?",
        "the rate was too low for 7 pictures; use a player that sends RTCP, a higher --floor (the key +), "
        "or a smaller --size",
    ]
    unknown = view.hints({**STATUS, "peers": [], "left_out": 0}, "10.1.0.2:5004", None)
    assert unknown == [
        "no RTCP from 10.1.0.2 for 12 s: is this machine reachable from there? Give --port N, and open N + 1"
    ]
    for last, told in (
        ({"left": True, "at_s": 6.1}, ["desk left at 6 s: nobody receives"]),
        ({"left": False, "at_s": 8.5}, []),
        (
            {"left": False, "at_s": 2.0},
            [
                "no RTCP from 10.1.0.2 (desk) for 10 s: is it still there, and is port 5005 of this machine reachable?"
            ],
        ),
    ):
        gone = {**STATUS, "peers": [], "left_out": 0, "last_heard": {"name": "desk", **last}}
        assert view.hints(gone, "10.1.0.2:5004", 5005) == told
        left = [{**STATUS["peers"][2], "left": True}] if last["left"] else []
        assert view.hints({**gone, "peers": left}, "10.1.0.2:5004", 5005) == told
    for audio, reports, told in (
        ({"packets": 149, "loss_frac": None}, True, []),
        ({"packets": 900, "loss_frac": 0.0}, True, []),
        ({"packets": 900, "loss_frac": None}, False, []),
        (
            {"packets": 900, "loss_frac": None},
            True,
            [
                "no receiver has reported any sound: check that UDP reaches port 5006, and that the receiver takes it"
            ],
        ),
    ):
        peers = [{**STATUS["peers"][1], "packets": reports}]
        heard = {**STATUS, "left_out": 0, "peers": peers, "audio": audio}
        assert view.hints(heard, "10.1.0.2:5004", 5005) == told
    for state, told in (
        ("checking", ["no connection to server for 12 s: check that UDP passes in both directions"]),
        ("connecting", ["no connection to server for 12 s: check that UDP passes in both directions"]),
        ("connected", ["no RTCP from server for 12 s: is this machine reachable from there?"]),
        ("ended", []),
    ):
        connection = {**STATUS, "peers": [], "left_out": 0, "browser": {"state": state, "why": None}}
        assert view.hints(connection, "server", None) == told
    small = {"width": 88, "height": 72, "smaller": True, "smaller_frames": 9, "changes": 1}
    assert view.hints({**STATUS, "size": small}, "h:5004", 5005)[-1] == (
        "the rate is too low for the source's size: pictures are encoded at 88x72; use a higher --floor (the key +)"
    )
    assert "pictures of 88x72; the network limits" in view.send_line({**STATUS, "size": small})
    assert "pictures of" not in view.send_line(STATUS)
    assert (
        "too low for 9 pictures; use a higher --floor (the key +)"
        in view.hints({**STATUS, "no_room": 9}, "h:5004", 5005)[-1]
    )


@pytest.mark.parametrize(
    ("to", "more", "port"),
    [
        ("10.1.0.2:5004", {}, None),
        ("10.1.0.2:5004", {"mux": True}, None),
        ("10.1.0.2:5004", {"port": 6000}, 6001),
        ("10.1.0.2:5004", {"port": 6000, "mux": True}, 6000),
        ("239.1.1.1:5004", {}, 5005),
        ("239.1.1.1:5004", {"port": 6000}, 5005),
        ("239.1.1.1:5004", {"port": 6000, "mux": True}, 5004),
        ("232.1.1.1:5004", {}, None),
        ("232.1.1.1:5004", {"port": 6000}, 6001),
        ("[ff15::1]:5004", {}, 5005),
        ("[ff35::1]:5004", {}, None),
        ("[ff35:40::1]:5004", {}, 5005),
    ],
)
def test_a_sender_knows_the_port_that_its_reports_come_to_unless_the_system_has_chosen_it(
    to: str, more: dict[str, Any], port: int | None
) -> None:
    assert send.own_port(send.Options(source="testsrc", to=to, **more)) == port


def test_of_many_silent_receivers_a_few_are_named_and_the_others_counted_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(ghosts: int) -> dict[str, Any]:
        ghost = {**STATUS["peers"][0], "silent_s": 9.0}
        mute = {**STATUS["peers"][1], "reports": 0, "known_s": 9.0}
        peers = [{**ghost, "name": f"evil{n}"} for n in range(ghosts)] + [{**mute, "name": "m"}] * ghosts
        return {**STATUS, "left_out": 0, "peers": peers}

    told = view.hints(status(200), "10.0.0.9:5004", 5005)
    # A receiver that has just joined is not expected to have reported on the stream.
    joined = {**STATUS["peers"][1], "reports": 0, "known_s": 1.0}
    assert view.hints({**status(0), "peers": [joined]}, "10.0.0.9:5004", 5005) == []
    assert len(told) == 8
    assert "(evil2)" in told[2]
    assert told[3] == "197 more receivers are silent"
    assert told[7] == "197 more send RTCP, but no report on this stream"
    assert view.hints(status(3), "10.0.0.9:5004", 5005) == [*told[:3], *told[4:7]]
    watch = view.Watch(view.send_line, lambda _: None, lambda s: view.hints(s, "10.0.0.9:5004", 5005))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(watch, "EVERY_S", 0.0)
    watch.in_terminal = False
    with watch:
        for ghosts in (200, 150):
            watch.show(status(ghosts))
    # One line per status. The same hint appears once, even if its count changes.
    assert len(capsys.readouterr().err.splitlines()) == 2 + 6


HEARD: dict[str, Any] = {
    "at_s": 30.0,
    "rate_bps": 1e6,
    "loss_frac": 0.0,
    "delay_ms": 5.0,
    "jitter_ms": 1.0,
    "from": "10.0.0.1:5004",
    "reports_to": None,
    "reports": 9,
    "buffer": None,
    "view": {"rate_bps": None, "loss": None, "rtt_ms": None, "state": None},
    "frames": {"whole": 194, "damaged": 2, "missing": 0, "undecodable": 0},
    "ended_by": None,
    "silent_s": 0.1,
    "still_s": 0.1,
    "overrun": 0,
    "unreadable": 0,
    "odd": [],
    "other": None,
}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, []),
        ({"still_s": 2.0}, []),
        ({"still_s": 12.0}, ["the picture has been frozen for 12 s: no frame arrived that can be decoded"]),
        (
            {"still_s": 12.0, "frames": {"whole": 0, "damaged": 0, "missing": 0, "undecodable": 97}},
            [
                "the picture has been frozen for 12 s: no key frame has arrived yet; the sender should send one at "
                "least every few seconds"
            ],
        ),
        ({"still_s": 12.0, "silent_s": 12.0}, ["no packet has arrived for 12 s"]),
        ({"still_s": None}, []),
        (
            {"other": {"ssrc": 7, "from": "10.0.0.3:9", "after_s": 22.6}, "silent_s": 2.4, "still_s": 12.0},
            ["another source (SSRC 7, address 10.0.0.3:9) sends here; it will be received in 23 s"],
        ),
        (
            {"other": {"ssrc": 7, "from": "10.0.0.3:9", "after_s": 25.0}},
            [
                "another source (SSRC 7, address 10.0.0.3:9) sends here; it is ignored while 10.0.0.1:5004 sends"
            ],
        ),
        ({"odd": ["3 keep-alives came"]}, ["3 keep-alives came"]),
        (
            {"unreadable": 3, "unused": {"not_rtp": 3}},
            ["3 datagrams could not be read: is the stream encrypted?"],
        ),
        ({"unreadable": 3, "unused": {"not_rtp": 3, "mpeg_ts": 90}}, []),
    ],
)
def test_a_receivers_view_says_that_the_picture_stands_still_and_who_else_sends(
    more: dict[str, Any], told: list[str]
) -> None:
    assert view.receive_hints({**HEARD, **more}, "10.0.0.9:5004") == told


class Operated:
    """A sender that records its calls."""

    def __init__(self) -> None:
        self.floor: int | None = 50_000
        self.excluded: list[str] = []

    def limit(self, floor: int | None = None, cap: int | None = None) -> None:
        assert cap is None
        self.floor = floor

    def exclude(self, name: str) -> None:
        self.excluded.append(name)


def test_keys_move_the_floor_and_exclude_receivers() -> None:
    operated = Operated()
    send._obey(operated, "++-+2", STATUS)
    assert operated.floor == 78_125
    assert operated.excluded == ["yard"]
    send._obey(operated, "-" * 20, STATUS)
    assert operated.floor == 10_000
    operated.floor = None  # in paper mode it can't be changed
    send._obey(operated, "+", STATUS)
    assert operated.floor is None


def test_a_floor_set_during_a_session_holds_at_once(port: int) -> None:
    settings = session_settings(port)
    sender = session.live_core().Sender(settings, {"kind": "greedy"})
    try:
        sender.limit(floor=700_000)
        seen = status_once(sender, lambda s: s["decision"] and s["decision"]["target_bps"] == 700_000)
        assert (seen["floor_bps"], seen["decision"]["limit"]) == (700_000, "floor")
        # The rate is not below the start rate of 300 kb/s, even if the controller's target is lower.
        sender.limit(floor=20_000)
        seen = status_once(sender, lambda s: s["decision"]["target_bps"] < 700_000)
        assert seen["decision"]["target_bps"] == 300_000
    finally:
        sender.finish()


def test_a_play_out_buffer_steers_its_sender_as_the_description_says(tmp_path: Path) -> None:
    """Type-I keeps a player's buffer between 20 % and 90 %. Without control, the same buffer overflows."""
    controllers = ("rbuf-type1", "no-control")

    def session(controller: str, port: int) -> tuple[dict[str, Any], Any]:
        sdp, folder = tmp_path / f"{controller}.sdp", tmp_path / controller
        words = ["send", "greedy", "--to", f"127.0.0.1:{port}", "--controller", controller, "--sdp", str(sdp)]
        words += ["--buffer", "64KiB", "--consume", "400kbps", "--max-rate", "1500kbps", "--for", "60s"]
        sender = subprocess.Popen(steadycast(*words), stderr=subprocess.PIPE)
        described(sdp)
        done = run("receive", sdp, "--for", "6s", "--json", "-o", folder)
        sender.send_signal(signal.SIGINT)
        sender.communicate(timeout=30)
        levels = Folder.open(folder).table("rates")["buffer_bytes"].drop_nulls().tail(20)
        return json.loads(done.stdout)["flows"][0]["receivers"][0], levels

    with ThreadPoolExecutor(len(controllers)) as pool:
        seen = dict(zip(controllers, pool.map(session, controllers, ports(len(controllers))), strict=True))
    steered, levels = seen["rbuf-type1"]
    assert steered["buffer_overflows"] == 0
    assert 0.1 * 65_536 < levels.min() <= levels.max() < 0.95 * 65_536
    flooded, levels = seen["no-control"]
    assert 50 < flooded["buffer_overflows"] < 1_000
    assert 0.9 * 65_536 < levels.max() <= 65_536


def test_a_sender_that_names_no_controller_gets_reports_at_rfc_3550s_times(port: int) -> None:
    none = dict.fromkeys(
        (
            "sdp",
            "codec",
            "interface",
            "ttl",
            "source",
            "local",
            "key",
            "buffer_bytes",
            "consume_bps",
            "latency_s",
            "give_up_s",
        )
    )
    receiver = session.live_core().Receiver(
        {**none, "at": f"127.0.0.1:{port}", "mux": False, "cname": "test"}
    )
    own = ports(1)[0]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as media,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reports,
    ):
        media.bind(("127.0.0.1", own))
        reports.bind(("127.0.0.1", own + 1))
        reports.setblocking(False)
        heard = 0
        for number in range(250):
            if number % 7:  # Every seventh packet is lost.
                head = struct.pack("!BBHII", 0x80, 96, number, number * 1800, 77)
                media.sendto(head + bytes(500), ("127.0.0.1", port))
            time.sleep(0.02)
            with contextlib.suppress(BlockingIOError):
                while reports.recv(2048)[1] == 201:
                    heard += 1
    receiver.finish()
    # In 5 s, the first report is sent after 1 to 3 s, the others 2 to 6 s after the one before.
    assert 1 <= heard <= 3


def session_settings(port: int) -> dict[str, object]:
    """Return the core's options of a sender to a local port without a receiver."""
    none = dict.fromkeys(("interface", "ttl", "source", "local", "key", "buffer_bytes", "consume_bps"))
    flow = json.dumps({"controller": "asmp", "cap": "2Mbps"})
    return {**none, "flow": flow, "mux": False, "to": f"127.0.0.1:{port}", "cname": "test"}


def status_once(sender: Any, holds: Callable[[Any], object]) -> Any:
    """The first status that meets a condition, within 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        status = json.loads(sender.status())
        if status and holds(status):
            return status
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_rates_and_times_are_read_as_they_are_written_elsewhere() -> None:
    assert session.rate("2.5Mbps", "--floor") == 2_500_000
    assert session.span("90s", "--for") == 90
    assert session.span("1.5min", "--for") == 90
    assert session.params(["beta=0.3", "ramp=false", "init=sent"]) == [
        ("beta", 0.3),
        ("ramp", False),
        ("init", "sent"),
    ]
