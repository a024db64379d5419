"""A pair with known properties is judged over emulated links: results, failures, and leftovers."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import until
from tests.judge.test_confine import EVIDENCE

from .conftest import COMMAND, marked_processes, steadycast

CLEAN = """
about = "x"
source = "x"
licence = "x"
kind = "synthetic"
[topology]
shape = "dumbbell"
bottleneck = { rate = "20Mbps", delay = "10ms", queue = { kind = "droptail", limit = "100ms" }, loss = LOSS }
access = { rate = "1Gbps", queue = { kind = "droptail", limit = "1000p" } }
"""
SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
began, n = time.monotonic(), 0
while True:
    s.sendto(bytes(1222), (sys.argv[1], 5004))
    n += 1
    time.sleep(max(0, began + n / 500 - time.monotonic()))
"""
RECEIVE = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5004))
while True: s.recv(2000)
"""
SHOW = """
import sys, time
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as shown:
    header = source.readline(); shown.write(header)
    words = {w[:1]: w[1:] for w in header.split()}
    size = int(words[b"W"]) * int(words[b"H"]) * 3 // 2 + 6
    n = 0
    while len(frame := source.read(size)) == size:
        n += 1
        if n % 10: shown.write(frame); shown.flush()
"""


def pair(send: str, receive: str, **more: Any) -> dict[str, Any]:
    """Make a pair of two commands, with changes to its receiver."""
    receiver = {"name": "receive", "on": "receiver", "ready": "udp:5004", "run": receive, **more}
    return {"program": [receiver, {"name": "send", "on": "sender", "run": send}]}


def files(folder: Path, table: dict[str, Any], loss: str = "") -> None:
    """Write the files that a judgement needs."""
    from steadycast.toml import document

    folder.mkdir()
    (folder / "pair.toml").write_text(document({"format": 1, "lead": "2s", "seconds": "4s", **table}))
    for name, text in (("send.py", SEND), ("receive.py", RECEIVE), ("show.py", SHOW)):
        (folder / name).write_text(text)
    (folder / "net.toml").write_text(CLEAN.replace(", loss = LOSS", loss))


ONCE = """
from steadycast.cli import main
from steadycast.judge import suite
suite.REPETITIONS = 0
main()
"""
"""Judges each run once. The other tests' emulations disturb a repeated run as much as the first one."""


def judged(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["judge", "pair.toml", "--networks", "net.toml", "-o", "out", "--jobs", "1", "--anyway", *more]
    return steadycast(words, folder, program=[sys.executable, "-c", ONCE])


def cell(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "out" / "judge.json").read_text())["cells"][0]
    return told


def test_pairs_that_are_known_have_the_figures_that_they_have(tmp_path: Path) -> None:
    udp = pair(
        f"{sys.executable} {tmp_path}/udp/send.py {{receiver}}", f"{sys.executable} {tmp_path}/udp/receive.py"
    )
    lossy = pair(
        f"{sys.executable} {tmp_path}/lossy/send.py {{receiver}}",
        f"{sys.executable} {tmp_path}/lossy/receive.py",
    )
    tenth = pair(
        f"{sys.executable} {tmp_path}/tenth/send.py {{receiver}}",
        f"{sys.executable} {tmp_path}/tenth/show.py {{clip.pipe}} {{pictures}}",
        ready="delay:10ms",
    )
    tables: dict[str, dict[str, Any]] = {
        "udp": udp,
        "lossy": lossy,
        "tenth": {**tenth, "clip": {"size": "160x90", "fps": 25}},
    }
    for name, table in tables.items():
        files(tmp_path / name, table, ', loss = { kind = "bernoulli", p = 0.1 }' if name == "lossy" else "")
    with ThreadPoolExecutor() as pool:
        done = dict(zip(tables, pool.map(lambda name: judged(tmp_path / name), tables), strict=True))
    for name, each in done.items():
        assert each.returncode == 0, (name, each.stderr)
        text = (tmp_path / name / "out" / "judge.txt").read_text()
        assert each.stdout.startswith(text)
        assert (tmp_path / name / "out" / "judge.html").exists()
    found = {name: cell(tmp_path / name)["worst"] for name in tables}
    # 500 datagrams of 1222 + 28 bytes a second are 5 Mb/s.
    assert 4.95e6 < found["udp"]["throughput_bps"] < 5.05e6
    assert found["udp"]["loss_frac"] == 0
    links = json.loads((tmp_path / "lossy/out/cells/net.toml/1/summary.json").read_text())["links"]
    drops = sum(link["lost_packets"] for link in links if link["direction"] == "forward")
    import polars as pl

    wire = pl.read_parquet(tmp_path / "lossy/out/cells/net.toml/1/wire.parquet")
    assert wire.filter(pl.col("from") == "sender", pl.col("arrived_s").is_null()).height == drops
    assert 0.08 < found["lossy"]["loss_frac"] < 0.12  # 0.1 of 2000 packets, ± 4.5 standard deviations
    # One frame of ten is skipped; on a machine that stalls, more are.
    assert 0.80 < found["tenth"]["in_time_frac"] <= 0.91
    assert cell(tmp_path / "tenth")["by"] == "picture"
    assert _left(tmp_path) == {}


BURSTS = """
import os, time
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
end = time.monotonic() + 120
while time.monotonic() < end:
    until = time.monotonic() + 0.002
    while time.monotonic() < until: pass
    time.sleep(0.018)
"""
"""A tenth of a processor, at the priority of the emulation's relay."""


@pytest.mark.claim
def test_a_cell_beside_real_time_work_of_others_is_not_trusted_and_the_work_is_named(tmp_path: Path) -> None:
    """It needs the right to real-time priority, which not each machine gives to root."""
    folder = tmp_path / "beside"
    send, receive = f"{sys.executable} {folder}/send.py {{receiver}}", f"{sys.executable} {folder}/receive.py"
    files(folder, pair(send, receive))
    with subprocess.Popen([sys.executable, "-c", BURSTS], preexec_fn=one_processor) as others:
        done = judged(folder)
        others.kill()
    assert done.returncode == 0, done.stderr
    (run,) = cell(folder)["runs"]
    assert not cell(folder)["trusted"]
    assert "real-time work of others" in run["doubts"][0]
    assert str(others.pid) in (folder / "out/cells/net.toml/1/crew.jsonl").read_text()
    assert run["unknown"] == []


def one_processor() -> None:
    """Keep the caller on one processor, so that the others remain free."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def test_each_reason_of_a_failure_is_named(tmp_path: Path) -> None:
    good_send, good_receive = f"{sys.executable} send.py {{receiver}}", f"{sys.executable} receive.py"
    quick = f"{sys.executable} -c 'print(\"no such camera\"); raise SystemExit(3)'"
    tables = {
        "ended-early": pair(quick, good_receive),
        "no-start": pair("sh -c 'exec /nobody'", good_receive),
        "no-traffic": pair("sleep 60", good_receive),
        "too-long": pair(good_send, "sleep 60", ready="log:never"),
        "no-pictures": {
            **pair(good_send, good_receive),
            "clip": {"size": "160x90"},
            "pictures": {"from": "pipe"},
        },
    }
    for name, table in tables.items():
        for program in table["program"]:
            program["run"] = program["run"].replace("send.py", f"{tmp_path}/{name}/send.py")
            program["run"] = program["run"].replace("receive.py", f"{tmp_path}/{name}/receive.py")
        files(tmp_path / name, table)
    with ThreadPoolExecutor() as pool:
        done = dict(
            zip(
                tables, pool.map(lambda name: judged(tmp_path / name, "--seconds", "2s"), tables), strict=True
            )
        )
    for name, each in done.items():
        assert each.returncode == 1, (name, each.stderr)
        assert f"failed: {name}" in each.stdout, each.stdout
    assert cell(tmp_path / "ended-early")["failed"]["log"] == ["no such camera"]


HOSTILE = """
import os, pathlib, socket, subprocess, sys
cell, results = map(pathlib.Path, sys.argv[1:])
names = EVIDENCE
for n, name in enumerate(names):
    path = cell / name
    if n % 4 == 0: path.write_text("forged")
    elif n % 4 == 1: path.symlink_to("/etc/passwd")
    elif n % 4 == 2: os.mkfifo(path)
    else: path.mkdir()
wrote = []
for folder in [results, *[p for p in results.rglob("*") if p.is_dir() and not p.is_relative_to(cell)]]:
    for name in names:
        try:
            (folder / name).write_text("forged")
            wrote.append(str(folder / name))
        except OSError:
            pass
status = open("/proc/self/status").read().splitlines()
(cell / "said").write_text(repr((wrote, dict(os.environ), [l for l in status if l.startswith(("Cap", "NoNew"))])))
# A child that leaves its group and its session, and would write when all is over.
late = "import time\\nwhile True:\\n time.sleep(0.2); open(%r, 'w').write('late')" % str(cell / "late")
subprocess.Popen([sys.executable, "-c", late], start_new_session=True, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={})
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5004))
print("ready", flush=True)
for _ in range(1200): os.write(1, b"x" * 9999 + b"\\n")
while True: s.recv(2000)
"""


def test_a_program_can_neither_forge_what_it_is_judged_by_nor_see_secrets_nor_outlive_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "forged"
    send = f"{sys.executable} {folder}/send.py {{receiver}}"
    receive = f"{sys.executable} {folder}/hostile.py {{cell}} {folder}/out.part"
    files(folder, {**pair(send, receive, ready="log:ready"), "lead": "3s"})
    (folder / "hostile.py").write_text(HOSTILE.replace("EVIDENCE", repr(EVIDENCE)))
    monkeypatch.setenv("GITHUB_TOKEN", "a secret")
    done = judged(folder)
    assert done.returncode == 0, done.stderr
    # 500 datagrams of 1222 + 28 bytes a second are 5 Mb/s, independent of the forged reports.
    assert 4.9e6 < cell(folder)["worst"]["throughput_bps"] < 5.1e6
    place = folder / "out" / "cells" / "net.toml" / "1"
    wrote, environment, status = ast.literal_eval((place / "programs" / "said").read_text())
    assert wrote == []
    assert "GITHUB_TOKEN" not in environment
    assert environment["HOME"].endswith("/cell")
    assert {line.split()[-1] for line in status} == {"0000000000000000", "1"}
    assert not any(path.is_symlink() or path.is_fifo() for path in place.rglob("*"))
    assert (place / "programs" / "wire.parquet").read_text() == "forged"
    log = (place / "receive.log").read_bytes()
    assert len(log) < (4 << 20) + 100
    assert re.search(rb"\n\d+ bytes more were left out\n$", log)
    late = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(p)]
    assert late == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_mid_cell_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "cut"
    files(
        folder,
        pair(f"{sys.executable} {folder}/send.py {{receiver}}", f"{sys.executable} {folder}/receive.py"),
    )
    words = [*COMMAND, "judge", "pair.toml", "--networks", "net.toml", "-o", "out", "--seconds", "30s"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        until(lambda: any("send.py" in each for each in _left(folder).values()))
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    if number == signal.SIGINT:
        assert process.returncode == 130, said
    else:
        # Its helper processes end by themselves. The next emulation ends the children of its programs.
        steadycast(["doctor"], tmp_path)
    until(lambda: not _left(folder))


def _left(folder: Path) -> dict[int, str]:
    """Processes of emulations that were started in this folder, with their command lines.

    Other tests have their own.
    """
    found = {}
    for number in marked_processes():
        try:
            if Path(f"/proc/{number}/cwd").readlink().is_relative_to(folder):
                found[number] = Path(f"/proc/{number}/cmdline").read_text()
        except OSError:
            continue
    return found


FOLDER = Path(__file__).parents[2] / "examples" / "judge"
EXAMPLES = sorted([*FOLDER.glob("*.toml"), *FOLDER.glob("*/*.toml")])
NEEDS = {
    "aiortc": "python3",
    "gstreamer": "gst-launch-1.0",
    "gstreamer-gcc": "gst-launch-1.0",
    "iperf3": "iperf3",
    "chromium": "chromium",
    "steadycast": "ffmpeg",
}
"""The tools that each example needs; FFmpeg if it is not listed."""


@pytest.mark.claim
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_shows_its_pictures_where_there_is_room(path: Path, tmp_path: Path) -> None:
    tool = NEEDS.get(path.stem, "ffmpeg")
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    if path.parent != FOLDER:
        path = tmp_path / path.relative_to(FOLDER.parents[1])
        shutil.copytree(FOLDER / path.stem, path.parent, ignore=shutil.ignore_patterns("venv"))
        if path.stem == "gstreamer-gcc" and not (path.parent / "plugins").is_dir():
            pytest.skip("rtpgccbwe is not built")
        for made in re.findall(r"^# (python3 -m venv .*)$", path.read_text(), re.MULTILINE):
            subprocess.run(made, shell=True, cwd=tmp_path, check=True)
    words = ["judge", str(path), "--networks", "clean-20", "--seconds", "10s", "-o", "out", "--anyway"]
    done = steadycast(words, tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    found = cell(tmp_path)
    assert found["by"] == ("wire" if path.stem == "iperf3" else "picture")
    # On an idle machine all are shown; if the figures are not trusted, a large part.
    least = 90 if found["trusted"] else 40
    assert path.stem == "iperf3" or found["worst"]["in_time_frac"] >= least / 100
