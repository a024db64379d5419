"""Programs on several hosts of one emulation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from steadycast import hosts
from steadycast.cli.real import _programs
from steadycast.emulate import emulate
from steadycast.errors import UserError

from .conftest import COMMAND, steadycast

LISTEN = "import socket; s = socket.create_server(('', 7000)); c, a = s.accept(); c.sendall(a[0].encode()); s.accept()"
CALL = (
    "import os, socket, time\n"
    "for _ in range(100):\n"
    "    try: c = socket.create_connection(('video.dst1', 7000)); break\n"
    "    except OSError: time.sleep(0.1)\n"
    "print(os.environ['STEADYCAST_HOST'], c.recv(99).decode() == os.environ['STEADYCAST_VIDEO_SRC'])\n"
    "raise SystemExit(7)"
)


def test_each_host_has_its_program_and_the_run_ends_with_the_first_with_its_code(
    dumbbell: Path, tmp_path: Path
) -> None:
    # The program that listens would otherwise wait forever.
    words = [
        "--in",
        "video.src",
        "--",
        "python3",
        "-c",
        CALL,
        "--in",
        "video.dst1",
        "--",
        "python3",
        "-c",
        LISTEN,
    ]
    done = steadycast(["emulate", str(dumbbell), "--only", *words], tmp_path)
    assert (done.returncode, done.stdout) == (7, "video.src True\n"), done.stderr


def test_all_programs_die_with_an_emulation_that_is_killed(dumbbell: Path, tmp_path: Path) -> None:
    # The programs write their process ids.
    run = 'echo $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 600'
    words = []
    files = [tmp_path / host for host in ("video.src", "video.dst1", "tcp.src")]
    for file in files:
        words += ["--in", file.name, "--", "sh", "-c", run, "sh", str(file)]
    emulation = subprocess.Popen(
        [*COMMAND, "emulate", str(dumbbell), "--only", *words], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        _until(lambda: all(file.exists() for file in files) or emulation.poll() is not None)
    finally:
        emulation.kill()
        _ = emulation.wait()
    processes = [int(file.read_text()) for file in files]
    try:
        _until(lambda: not any(map(_sleeps, processes)))
        assert not [*filter(_sleeps, processes)]
    finally:
        for process in filter(_sleeps, processes):
            os.kill(process, signal.SIGKILL)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def _sleeps(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:
        return False


def test_a_program_that_is_not_ready_is_reported_with_what_was_awaited_and_its_own_words(
    tmp_path: Path,
) -> None:
    run = "trap 'echo ended; exit' INT; echo begun; while :; do sleep 0.05; done"
    member = hosts.Member("a", None, ["sh", "-c", run], "udp:5005", log=str(tmp_path / "log"))
    report = tmp_path / "report"
    plan = hosts.Plan([member], until_s=1.5, signals=(("INT", 20),), report=str(report))
    _ = subprocess.run(plan.words, check=False, timeout=60)
    told = [json.loads(line) for line in report.read_text().splitlines()]
    failed = next(each for each in told if each["what"] == "failed")
    assert (failed["reason"], "udp:5005" in failed["detail"]) == ("too-long", True)
    assert (tmp_path / "log").read_bytes()[: failed["logged"]] in (b"", b"begun\n")


def test_a_link_that_is_not_there_is_blamed_on_its_option(dumbbell: Path) -> None:
    with pytest.raises(UserError, match='pcap: no link is called "nolink"; there are: bottleneck, '):
        emulate(dumbbell, pcap=["bottleneck", "nolink"])


def test_a_host_that_is_not_there_is_named(dumbbell: Path, tmp_path: Path) -> None:
    words = ["--in", "video.src", "--", "sleep", "60", "--in", "nobody", "--", "true"]
    done = steadycast(["emulate", str(dumbbell), "--only", *words], tmp_path, code=2)
    assert "--in nobody: no host of that name" in done.stderr


def test_words_of_a_program_that_look_alike_are_its_own() -> None:
    words = ["grep", "--in", "file", "--in", "b", "--", "true"]
    assert _programs("a", words) == [("a", ["grep", "--in", "file"]), ("b", ["true"])]
    with pytest.raises(UserError, match="COMMAND is missing"):
        _programs("a", ["true", "--in", "b", "--"])
