"""The GStreamer element over an emulated link of 2 Mb/s, beside the kernel's CUBIC, with real pipelines and rtpbin.

`python -m pytest tests/emulate/test_gstreamer.py -m claim -s` prints the figures of docs/gstreamer.md. The
integration has to be built: `cargo build --release --lib --example call` in integrations/gstreamer, as `make claims`
does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.conftest import ran

CALL = Path(__file__).parents[2] / "integrations/gstreamer/target/release/examples/call"
HERE = Path(__file__).parent
CAPACITY = 2e6
LINK = """
format = 1
name = "gstreamer"
duration = "{duration}s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "2Mbps", delay = "20ms", queue = {{ kind = "droptail", limit = "25p" }} }}
access = {{ rate = "50Mbps", delay = "0ms" }}
[[flow]]
name = "video"
kind = "cbr"
rate = "1kbps"
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
{more}
"""
"""The first flow only names the hosts. It is not run, or uses 1/1000 of the link."""

pytestmark = [
    pytest.mark.claim,
    pytest.mark.skipif(not CALL.exists(), reason="integrations/gstreamer is not built"),
]


@dataclass(frozen=True)
class Call:
    """The counts of both ends, and TCP's throughput beside them."""

    sent: dict[str, Any]
    received: dict[str, Any]
    tcp_bps: float

    def rate(self, begin: int, end: int) -> float:
        """Bit rate of the IP packets that arrived between two seconds of the receiver's clock."""
        return 8 * mean(self.received["bytes"][begin:end])

    @property
    def loss(self) -> float:
        """Return the share of the sent packets that feedback to the element reported as lost."""
        return float(self.sent["lost"] / self.sent["sent"])


def call(folder: Path, controller: str, *, only: bool, seconds: int = 70, more: str = "") -> Call:
    """Send from one end of the link to the other."""
    from steadycast.emulate import Program, emulate
    from steadycast.progress import Silent

    file = folder / "link.toml"
    file.write_text(LINK.format(duration=seconds + 30, more=more))
    source, sink = "video.src", "video.dst1"
    sent, received = folder / "sent.json", folder / "received.json"

    def ends(what: str, other: str, lasts: int, out: Path, *words: str) -> list[str]:
        host = "$STEADYCAST_" + other.upper().replace(".", "_")
        return ["sh", "-c", f'exec "{CALL}" {what} {host} {lasts} {" ".join(words)} > {out}']

    steps: list[list[object]] = [
        ["start", "receiver", "video_dst1", ends("receive", source, seconds + 2, received)],
        ["ready", "receiver", 21000],
        ["start", "sender", "video_src", ends("send", sink, seconds, sent, controller)],
        ["ended", "sender"],
        ["ended", "receiver"],
    ]
    words = [sys.executable, str(HERE / "crew.py"), json.dumps(steps), str(folder / "marks.json")]
    done = emulate(file, progress=Silent(), program=Program(source, words), only=only)
    left = json.loads((folder / "marks.json").read_text())
    assert left["failed"] == []
    flows = {flow["name"]: flow for flow in done.run.summary["flows"]}
    tcp = 0.0 if only else float(flows["tcp"]["throughput_bps"])
    told = Call(json.loads(sent.read_text()), json.loads(received.read_text()), tcp)
    rates = " ".join(f"{8 * bytes_ / 1e6:.2f}" for bytes_ in told.received["bytes"])
    print(f"\n{controller}: {rates} Mb/s, loss {told.loss:.2%}, TCP {tcp / 1e6:.2f} Mb/s, {told.sent}")
    return told


@pytest.mark.parametrize("controller", ["steady", "tfrc", "asmp"])
def test_alone_it_fills_most_of_the_link_and_loses_little(tmp_path: Path, controller: str) -> None:
    told = call(tmp_path, controller, only=True)
    assert 0.7 * CAPACITY < told.rate(20, 60) < 1.02 * CAPACITY
    assert 0 <= told.loss < 0.02
    assert told.sent["feedback"] > 200
    assert told.sent["troubles"] == told.received["troubles"] == []


@pytest.mark.parametrize("controller", ["steady", "tfrc", "asmp"])
def test_beside_cubic_it_takes_half_to_one_and_a_half_of_its_share(tmp_path: Path, controller: str) -> None:
    told = call(tmp_path, controller, only=False, seconds=100)
    assert 0.5 < told.rate(30, 90) / told.tcp_bps < 1.5
    assert told.rate(30, 90) + told.tcp_bps < 1.1 * CAPACITY


STEP = """
[[event]]
at = "30s"
set = { link = "bottleneck", rate = "500kbps" }
"""


@pytest.mark.parametrize("controller", ["steady", "tfrc"])
def test_a_step_to_a_quarter_is_followed_within_three_seconds(tmp_path: Path, controller: str) -> None:
    told = call(tmp_path, controller, only=True, seconds=50, more=STEP)
    # The link changes in the receiver's second in which its rate falls.
    rates = [8 * bytes_ for bytes_ in told.received["bytes"]]
    changed = next(second for second in range(15, 45) if rates[second] < 0.7e6)
    fallen = next(second for second in range(changed - 1, 50) if told.sent["estimates"][second] < 0.6e6)
    assert fallen - changed <= 3
    assert told.rate(changed + 5, changed + 15) > 0.6 * 0.5e6


@pytest.mark.skipif(shutil.which("gst-launch-1.0") is None, reason="needs gst-launch-1.0")
def test_a_pipeline_that_has_ended_leaves_no_object_behind() -> None:
    pipeline = (
        "videotestsrc num-buffers=60 ! video/x-raw,width=320,height=240 ! vp8enc deadline=1 ! rtpvp8pay "
        "! rtpsteadycastbwe min-bitrate=5000000 ! fakesink"
    )
    told = {"GST_PLUGIN_PATH": str(CALL.parents[1]), "GST_TRACERS": "leaks", "GST_DEBUG": "GST_TRACER:7"}
    words = ["gst-launch-1.0", "-q", *pipeline.split()]
    done = ran(words, env={**os.environ, **told, "GST_DEBUG_NO_COLOR": "1"}, check=True)
    # The tracer first describes the format of its lines.
    lines = [line for line in done.stderr.splitlines() if "object-alive" in line]
    assert any("object-alive.class" in line for line in lines)
    assert [line for line in lines if "gst_tracer_record_build_format" not in line] == []
