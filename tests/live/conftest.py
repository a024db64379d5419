"""Clips of a test pattern, and the commands that play what is sent."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import av
import pytest

from tests.conftest import command as steadycast
from tests.conftest import ran

FRAMES, FEWER_FRAMES = 250, 125
"""The numbers of frames of `clip` and `short_clip`."""


def run(*words: str | Path, timeout: float = 60, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. Its exit code has to be `code`."""
    return ran(steadycast(*words), timeout=timeout, code=code)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of a moving test pattern."""
    return pattern(tmp_path_factory.mktemp("clip") / "pattern.mkv", FRAMES)


@pytest.fixture(scope="session")
def short_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five seconds of a moving test pattern."""
    return pattern(tmp_path_factory.mktemp("clip") / "short.mkv", FEWER_FRAMES)


def pattern(path: Path, frames: int) -> Path:
    """Write a clip of a moving test pattern, and return its path."""
    with (
        av.open("testsrc2=size=352x288:rate=25", format="lavfi") as source,
        av.open(str(path), "w") as target,
    ):
        stream = target.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 352, 288, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 25)
        stream.codec_context.qmin = stream.codec_context.qmax = 2
        for number, frame in enumerate(source.decode(video=0)):
            if number == frames:
                break
            frame.pts, frame.time_base = number, Fraction(1, 25)
            target.mux(stream.encode(frame.reformat(format="yuv420p")))
        target.mux(stream.encode(None))
    return path


def ports(count: int) -> list[int]:
    """Free even ports of this machine; the ports after them, and those a thousand higher, are free as well.

    They are below the kernel's range of automatic ports, which could be taken at any time. Each test process has its
    own range, so that no process takes a port that another one has found free.
    """
    found: list[int] = []
    first, last = _range(os.environ)
    while len(found) < count:
        port = random.randrange(first, last - 1001, 2)
        if all(abs(port - other) not in (0, 1000) for other in found) and all(
            _free(port + more) for more in (0, 1, 1000, 1001)
        ):
            found.append(port)
    return found


def _range(environment: Mapping[str, str]) -> tuple[int, int]:
    """The first port of this test process, and the one after its last."""
    processes = int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(environment.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    # With many processes, the ranges are too small for ports a thousand apart, so some processes share a range.
    ranges = min(processes, 16)
    size = 21_000 // ranges // 2 * 2
    first = 10_000 + number % ranges * size
    return first, first + size


def _free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


@pytest.fixture
def port() -> int:
    """Return a free port."""
    return ports(1)[0]


def listening(*ports: int) -> None:
    """Wait until all these ports are open, and then a moment for the set-up that follows."""
    until = time.monotonic() + 60
    while True:
        tables = Path("/proc/net/udp").read_text() + Path("/proc/net/udp6").read_text()
        lacking = [port for port in ports if f":{port:04X} " not in tables]
        if not lacking:
            break
        assert time.monotonic() < until, f"nobody listens at {lacking}"
        time.sleep(0.05)
    time.sleep(0.5)


def needs(tool: str) -> pytest.MarkDecorator:
    """Skips the test with the tool's name if the tool is missing."""
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"needs {tool}")


def _may_make_networks() -> bool:
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()


needs_networks = pytest.mark.skipif(not _may_make_networks(), reason="network namespaces need root")


def description(clip: Path, codec: str, to: str, folder: Path) -> Path:
    """Return a sender's session description. It is written before the receiver starts: a player must be ready first."""
    sdp = folder / "session.sdp"
    run("send", clip, "--to", to, "--codec", codec, "--controller", "fixed", "--for", "100ms", "--sdp", sdp)
    return sdp


def caps(sdp: Path) -> str:
    """Return the GStreamer caps of a description."""
    text = sdp.read_text()
    payload, name = re.search(r"a=rtpmap:(\d+) ([\w-]+)/90000", text).groups()
    found = f"application/x-rtp,media=video,clock-rate=90000,encoding-name={name},payload={payload}"
    config = re.search(r"config=(\w+)", text)
    sets = re.search(r"sprop-parameter-sets=([\w+/=,]+)", text)
    if config:
        found += f",config=(string){config[1]}"
    if sets:
        found += f',sprop-parameter-sets=(string)"{sets[1]}"'
    return found
