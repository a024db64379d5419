"""Emulations need the right to make network namespaces; without it these tests skip, and say so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from steadycast.errors import MissingError

from tests.conftest import command, ran

COMMAND = command()

DUMBBELL = """
name = "short"
duration = "4s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "10ms", queue = { kind = "droptail", limit = "50p" } }
access = { rate = "10Mbps", delay = "5ms" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = { rate = "1Mbps" }
media = "greedy"
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "reno"
"""


@cache
def _may() -> bool:
    from steadycast.rootless import need_rights

    try:
        need_rights()
    except MissingError:
        return False
    return True


@pytest.fixture(autouse=True, scope="session")
def _allowed() -> None:
    if not _may():
        pytest.skip("needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun")


@pytest.fixture
def dumbbell(tmp_path: Path) -> Path:
    """Return a scenario file: one video, one TCP, 4 s."""
    path = tmp_path / "short.toml"
    path.write_text(DUMBBELL)
    return path


def steadycast(
    arguments: Sequence[str], cwd: Path, code: int | None = None, program: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[str]:
    """Run the command line; its exit code has to be `code` if that is given."""
    return ran([*program, *arguments], cwd=cwd, env={**os.environ, "COLUMNS": "200"}, code=code)


def marked_processes(owner: str = "") -> list[int]:
    """Processes that belong to any emulation, or to that of one process if its number is given."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"STEADYCAST_EMULATION={owner}".encode() in environment:
                found.append(int(entry.name))
    return found
