"""Programs on several hosts of one emulation."""

from __future__ import annotations

from pathlib import Path

import pytest
from steadycast.cli.real import _programs
from steadycast.errors import UserError

from .conftest import steadycast

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


def test_a_host_that_is_not_there_is_named(dumbbell: Path, tmp_path: Path) -> None:
    words = ["--in", "video.src", "--", "sleep", "60", "--in", "nobody", "--", "true"]
    done = steadycast(["emulate", str(dumbbell), "--only", *words], tmp_path, code=2)
    assert "--in nobody: no host of that name" in done.stderr


def test_words_of_a_program_that_look_alike_are_its_own() -> None:
    words = ["grep", "--in", "file", "--in", "b", "--", "true"]
    assert _programs("a", words) == [("a", ["grep", "--in", "file"]), ("b", ["true"])]
    with pytest.raises(UserError, match="COMMAND is missing"):
        _programs("a", ["true", "--in", "b", "--"])
