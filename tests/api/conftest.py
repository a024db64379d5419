from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINK = """
name = "small"
duration = "{seconds}s"
seed = 3
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "1Mbps", delay = "10ms", queue = {{ kind = "droptail", limit = "20p" }} }}
access = {{ rate = "10Mbps", delay = "5ms" }}
"""
VIDEO = """
[[flow]]
name = "video"
kind = "video"
controller = "{controller}"
media = "greedy"
"""
TCP = """
[[flow]]
name = "tcp"
kind = "tcp"
preset = "linux"
congestion = "sack"
"""
CBR = """
[[flow]]
name = "noise"
kind = "cbr"
rate = "100kbps"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Video, TCP and packets at a constant rate over 1 Mb/s, without pixels."""
    path = tmp_path / "small.toml"
    path.write_text(LINK.format(seconds=10) + VIDEO.format(controller="tfrc") + TCP + CBR)
    return path
