"""The lab's HTTP server: whom it answers, what it refuses, and the results of a run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import steadycast as sc
from steadycast import web
from steadycast.errors import UserError
from steadycast.lab.server import listening
from steadycast.lab.text import Base
from steadycast.lab.work import Board, Setup, Task, begin
from steadycast.run_pipeline import conduct

from tests.conftest import bounded, ran
from tests.lab.conftest import ROOT, SCENARIO, Lab, start, stop

UPLOT = {
    "uPlot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
BODY = {"tab": "t", "base": 0, "text": SCENARIO, "edits": [], "b": None}


def test_a_run_is_the_run_of_the_command_line(lab: Lab, tmp_path: Path) -> None:
    got = lab.post("run", {**BODY, "b": "tfrc", "pictures": True})
    assert got.code == 200
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    for side, sets in zip(got.json["sides"], ([], ["flow.video.controller=tfrc"]), strict=True):
        run = sc.run(file, set=sets)
        flow = run.summary["flows"][0]
        first = side["numbers"]["rows"][0]
        assert first["title"] == f"video ({flow['controller']})"
        heads = [head for head, _ in side["numbers"]["heads"]]
        cells = dict(zip(heads, first["cells"], strict=True))
        assert cells["PSNR"] == f"{flow['receivers'][0]['psnr_db']['raw']['y']:.1f} dB"
        decisions = run.decisions.to_polars()
        assert len(side["decisions"][0]["t"]) == decisions["limit"].drop_nulls().len()
        frames = run.frames.to_polars().sort("display")
        assert side["strips"][0]["q"] == frames["q"].to_list()
        assert side["strips"][0]["mos"] == frames["mos"].to_list()


def test_an_edit_comes_back_in_the_text_and_in_the_knobs(lab: Lab) -> None:
    got = lab.post("run", {**BODY, "edits": [[["topology", "bottleneck", "rate"], "1Mbps"]]}).json
    assert got["text"] == SCENARIO.replace("600kbps", "1Mbps")
    rate = next(k for k in got["knobs"] if k["label"] == "rate")
    assert (rate["value"], rate["kind"], rate["path"]) == (
        "1Mbps",
        "rate",
        ["topology", "bottleneck", "rate"],
    )


def test_mistakes_are_told_with_their_lines_and_all_at_once(lab: Lab) -> None:
    text = SCENARIO.replace('delay = "15ms"', 'delay = "15"').replace('"asmp"', '"asmq"')
    got = lab.post("run", {**BODY, "text": text})
    assert got.code == 422
    assert [(p["line"], p["key"]) for p in got.json["problems"]] == [
        (10, "topology.bottleneck.delay"),
        (15, "flow.video.controller"),
    ]


def test_what_is_wrong_with_b_alone_leaves_a_standing(lab: Lab) -> None:
    text = SCENARIO.replace('playout = "400ms"', "receivers = 3")
    got = lab.post("run", {**BODY, "text": text, "b": "tfrc"})
    assert got.code == 200
    a, b = got.json["sides"]
    assert a["numbers"]
    assert b["problems"][0]["key"] == "flow.video.receivers"


@pytest.mark.parametrize("written", ["{}:Mine", '"{}\\u003aMine"', "asmp "])
def test_the_page_can_name_no_controllers_source(lab: Lab, tmp_path: Path, written: str) -> None:
    source, ran = tmp_path / "evil.py", tmp_path / "ran"
    source.write_text(f"open({str(ran)!r}, 'w').close()\n")
    name = written.format(source)
    for what in ("run", "film", "report"):
        got = lab.post(what, {**BODY, "b": name, "side": "b"})
        assert got.code == 422
        assert f'may not name "{name}"' in got.json["problems"][0]["what"]
    assert not ran.exists()


def test_captures_are_not_made(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCENARIO + '\n[record]\npcap = ["bottleneck"]\n'
    assert lab.post("run", {**BODY, "text": text}).code == 200
    # Runs a worker's job in this process, to record the path of its captures.
    places: list[tuple[list[str], Path | None]] = []

    def told(ready: Any, progress: Any, keep: Any, *, captures: Path | None = None) -> Any:
        places.append((ready.plan.loaded.captured(), captures))
        return conduct(ready, progress, keep, captures=captures)

    monkeypatch.setattr("steadycast.lab.work.conduct", told)
    file = tmp_path / "small.toml"
    file.write_text(text)
    begin(Setup(tmp_path / "board", None))(Task("run", Base.read(file), text, (), (), 0, 0))
    assert places == [(["bottleneck"], None)]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_steadycast_token": ""}, 403),
        ({"x_steadycast_token": "a" * 32}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 400),
        ({"host": "evil.example:8765"}, 400),
    ],
)
def test_a_request_of_another_page_is_refused(lab: Lab, headers: dict[str, str], code: int) -> None:
    assert lab.post("begin", {}, **headers).code == code
    assert lab.post("begin", {}, origin=lab.address).code == 200


def test_only_the_page_and_its_files_are_served_and_none_is_foreign(lab: Lab) -> None:
    page = lab.ask("/")
    assert page.code == 200
    names = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert sorted(names) == ["data:,", "lab.css", "lab.js", "uPlot.css", "uPlot.js"]
    bodies = [lab.ask(f"/{name}") for name in names if ":" not in name]
    assert all(each.code == 200 for each in bodies)
    assert len(page.body) + sum(len(each.body) for each in bodies) <= 150_000
    for path in (
        "/../server.py",
        "/server.py",
        "/etc/passwd",
        "/page/lab.html",
        "/%2e%2e/server.py",
        "/api/",
        "/docs",
    ):
        assert lab.ask(path).code == 404, path
    assert lab.ask("/api/run").code == 405


def test_the_library_of_others_is_the_one_of_its_release(lab: Lab) -> None:
    # The files dist/uPlot.iife.min.js and dist/uPlot.min.css of uplot-1.6.32.tgz on the npm registry.
    for name, digest in UPLOT.items():
        assert hashlib.sha256(lab.ask(f"/{name}").body).hexdigest() == digest
    licence = ROOT / "python" / "steadycast" / "lab" / "page" / "uPlot.LICENSE"
    assert "Leon Sorokin" in licence.read_text()
    assert "uPlot 1.6.32" in (ROOT / "docs" / "licences.md").read_text()


def test_every_answer_forbids_foreign_content(lab: Lab) -> None:
    for got in (lab.ask("/"), lab.ask("/nothing"), lab.post("run", {}), lab.ask("/lab.js")):
        policy = got.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert got.headers["x-content-type-options"] == "nosniff"


def test_random_requests_are_answered_or_refused_and_never_break_the_server(lab: Lab) -> None:
    dice = random.Random(20)

    def scalar() -> Any:
        return dice.choice(
            [
                None,
                True,
                0,
                -1,
                10**30,
                1e308,
                "",
                "a",
                "\ud800",
                "video",
                "1Mbps",
                "\x00",
                "x" * 300,
                "[[flow]]",
            ]
        )

    def anything(depth: int = 0) -> Any:
        kind = dice.randrange(4 if depth < 3 else 1)
        if kind <= 1:
            return scalar()
        if kind == 2:
            return [anything(depth + 1) for _ in range(dice.randrange(4))]
        return {str(scalar()): anything(depth + 1) for _ in range(dice.randrange(4))}

    def text() -> Any:
        cut = SCENARIO[: dice.randrange(len(SCENARIO))]
        at = dice.randrange(len(SCENARIO))
        return dice.choice(
            [cut, SCENARIO, SCENARIO[:at] + dice.choice('"[]{}=\n#x\x00é') + SCENARIO[at:], anything()]
        )

    def edits() -> Any:
        keys = [
            "flow",
            "topology",
            "bottleneck",
            "rate",
            0,
            1,
            "loss",
            "p",
            "params",
            "x.y",
            'a"b',
            "duration",
            "\n",
        ]
        path = [dice.choice(keys) for _ in range(dice.randrange(1, 5))]
        return dice.choice([anything(), [[path, scalar()]], [[path, dice.choice(["2Mbps", 0.1, True])]]])

    codes = []
    for n in range(300):
        what = dice.choice(["run", "begin", "progress", "cancel", "run", "film", "report"])
        body: Any = {
            "tab": dice.choice(["t", "u", anything()]),
            "base": dice.choice([0, 0, 0, anything()]),
            "text": text(),
            "edits": edits(),
            "b": dice.choice([None, "tfrc", anything()]),
            "kind": dice.choice(["mp4", anything()]),
        }
        for key in list(body):
            if dice.random() < 0.1:
                del body[key]
        if what in ("film", "report") and n % 4:
            body["text"] = "x"  # the parts that take long are tested elsewhere
        content = json.dumps(dice.choice([body, body, body, anything()])).encode()
        if dice.random() < 0.1:
            content = content[: dice.randrange(len(content) + 1)] + bytes(
                dice.randrange(256) for _ in range(3)
            )
        got = lab.post(what, content)
        assert got.code in (200, 400, 422), (got, what, content)
        codes.append(got.code)
        if got.code == 422:
            assert all({"line", "key", "what", "remedy"} <= set(p) for p in got.json["problems"])
    assert {200, 400, 422} <= set(codes)
    assert lab.post("run", b"x" * 300_000).code == 413
    assert lab.post("run", BODY).code == 200


def test_a_run_whose_process_is_killed_is_run_again(lab: Lab) -> None:
    before = lab.workers()
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert lab.post("run", {**BODY, "b": "tfrc"}).code == 200
    assert len(set(lab.workers()) - set(before)) >= 1


def test_a_newer_request_of_a_tab_ends_its_older_one_and_no_other_tabs(lab: Lab) -> None:
    long = {
        **BODY,
        "text": SCENARIO.replace('"12s"', '"5000s"')
        .replace("media = ", 'media = "table2" # ')
        .replace("encode", "# "),
    }
    with ThreadPoolExecutor() as threads:
        old = threads.submit(lab.post, "run", long)
        while lab.post("progress", {"tab": "t"}).json["run"][0] != "simulating":
            assert not old.done()
        assert lab.post("run", {**BODY, "tab": "other"}).code == 200
        assert not old.done()
        assert lab.post("run", BODY).json["sides"]
        assert old.result().json == {"newer": True}
        assert lab.post("progress", {"tab": "t"}).json["run"] == ["", 0, 0]
        old = threads.submit(lab.post, "run", long)
        while lab.post("progress", {"tab": "t"}).json["run"][0] != "simulating":
            assert not old.done()
        assert lab.post("cancel", {"tab": "t"}).code == 200
        assert old.result().json == {"newer": True}


def test_without_its_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SCENARIO)
    program = (
        "import sys; sys.modules['starlette.applications'] = None; sys.argv = ['steadycast', 'lab', 'small.toml']\n"
        "from steadycast.cli import main; main()"
    )
    done = ran([sys.executable, "-c", program], cwd=tmp_path, code=3)
    assert done.stderr.startswith("steadycast: lab: starlette")
    assert "pip install 'steadycast[lab]'" in done.stderr


def test_a_film_shows_the_original_beside_each_picture(lab: Lab, tmp_path: Path) -> None:
    import av
    import numpy as np

    got = lab.post("film", {**BODY, "b": "tfrc", "kind": "mp4"})
    assert got.headers["content-type"] == "video/mp4"
    (tmp_path / "film.mp4").write_bytes(got.body)
    with av.open(str(tmp_path / "film.mp4")) as film:
        pictures = [frame.to_ndarray(format="gray") for frame in film.decode(video=0)]
    assert pictures[0].shape == (144, 3 * 176)
    assert 280 <= len(pictures) <= 300
    assert pictures[150][:, :176].std() > 20
    # The viewers' pictures are similar to the original but not equal, because they were encoded. Some arrived late,
    # and at the film's cuts they differ for a moment.
    three = np.stack(pictures).astype(np.int16).reshape(len(pictures), 144, 3, 176)
    for viewer in (1, 2):
        unlike = np.abs(three[:, :, viewer] - three[:, :, 0]).mean(axis=(1, 2))
        assert 0.5 < np.median(unlike) < 40
    assert lab.post("film", {**BODY, "kind": "webm"}).headers["content-type"] == "video/webm"
    no_pixels = SCENARIO.replace('media = "synthetic"', 'media = "table2"').replace(
        'encode = { size = "176x144", q = "4-10" }\n', ""
    )
    refused = lab.post("film", {**BODY, "text": no_pixels})
    assert refused.code == 422
    assert "no video of this scenario has pixels" in refused.json["problems"][0]["what"]


def test_a_report_is_the_page_of_the_command_line(lab: Lab) -> None:
    got = lab.post("report", {**BODY, "b": "tfrc", "side": "b"})
    assert got.code == 200
    assert "video (tfrc)" in got.body.decode()
    assert "<script src" not in got.body.decode()


def test_a_second_lab_takes_the_next_port_and_its_end_leaves_no_process(lab: Lab, tmp_path: Path) -> None:
    second = start(tmp_path, "http://127.0.0.1:1/#s=abc_-1")
    with bounded(second.process):
        assert second.address != lab.address
        assert second.link == "&s=abc_-1"
        assert second.post("run", BODY).code == 200
        pids = second.workers()
        assert len(pids) == 2
        assert stop(second) == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_a_port_that_is_asked_for_and_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: no room to listen"):
            listening(port)


def test_the_board_keeps_its_places_apart(tmp_path: Path) -> None:
    board, seen = Board(tmp_path / "board"), Board(tmp_path / "board")
    first = board.next(3)
    board.tell(3, first, "encoding the clip é", 7, 30)
    assert seen.told(3) == ("encoding the clip é", 7, 30)
    assert (seen.newest(2), seen.newest(3), seen.newest(4)) == (0, first, 0)
    assert board.next(3) == first + 1
    assert seen.told(3) == ("", 0, 0)
    board.tell(3, first, "what the older ticket asked for", 8, 30)
    assert seen.told(3) == ("", 0, 0)
    board.tell(3, first + 1, "simulating", 1, 2)
    board.over(3, first)
    assert seen.told(3) == ("simulating", 1, 2)
    board.over(3, first + 1)
    assert seen.told(3) == ("", 0, 0)
    board.tell(Board.PLACES - 1, 0, "x" * 500, 2**40, -1 + 2)
    assert seen.told(Board.PLACES - 1) == ("x" * 64, 2**31, 1)


def test_connections_without_a_request_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty connections send nothing, or half of a request's header; meanwhile a page is served."""
    monkeypatch.setattr(web, "_HEAD_S", 1.0)

    async def asked(address: tuple[str, int]) -> None:
        half = [await asyncio.open_connection(*address) for _ in range(40)]
        for _, writer in half[::2]:
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        for reader, _ in half:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""

    async def served() -> None:
        app = web.application(web.file_routes({"/": ("steadycast.lab", "lab.html")}))
        with web.listener("127.0.0.1", 0) as at:
            server = asyncio.create_task(web.serve(app, at, lambda: None))
            await asyncio.wait_for(asked(at.getsockname()), 60)
            os.kill(os.getpid(), signal.SIGINT)
            await server

    asyncio.run(served())
