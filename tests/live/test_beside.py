"""Controllers with a player's transport-wide feedback, beside the kernel's CUBIC on one emulated link."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.conftest import needs, needs_networks
from tests.live.network import READY, REPORTER, SEND, emulate
from validation.link import beside

CUBIC = beside("5s")

CONTROLLERS = ("scream", "tfrc", "asmp")


@dataclass(frozen=True)
class Shared:
    """The results of one minute on a link of 4 Mb/s."""

    video_bps: float
    tcp_bps: float
    loss: float
    reports: int
    standard: bool
    trusted: bool


@pytest.mark.claim
@needs("gst-launch-1.0")
@needs_networks
def test_controllers_on_a_players_packet_reports_share_with_the_kernels_cubic(tmp_path: Path) -> None:
    """`python -m pytest tests/live/test_beside.py -m claim -s` prints the table."""

    def run(controller: str) -> Shared:
        script = (
            f"{REPORTER} & player=$!; {READY}; "
            f"{SEND} --controller {controller} --feedback twcc --for 62s --json > sent.json; kill $player; true"
        )
        done = emulate(tmp_path / controller, script, rate="4Mbps", beside=CUBIC)
        sent = done.sent()
        tcp = json.loads((done.folder / "net" / "summary.json").read_text())["flows"][0]
        (receiver,) = sent["receivers"]
        loss = done.link(20, 60)[0]
        return Shared(
            sent["sent_bps"],
            tcp["throughput_bps"],
            loss,
            sent["feedback_packets"],
            receiver["standard"],
            done.trusted,
        )

    with ThreadPoolExecutor(len(CONTROLLERS)) as pool:
        seen = dict(zip(CONTROLLERS, pool.map(run, CONTROLLERS), strict=True))
    print("\ncontroller    video     CUBIC   drops  reports  (4 Mb/s, 40 ms, 50 packets of drop-tail, 62 s)")
    for controller, s in seen.items():
        note = "" if s.trusted else "  not trustworthy: the machine was too busy"
        print(
            f"{controller:<11} {s.video_bps / 1e6:>5.2f} Mb/s {s.tcp_bps / 1e6:>5.2f} Mb/s "
            f"{100 * s.loss:>4.2f} % {s.reports:>7}{note}"
        )
    for controller, s in seen.items():
        # The feedback is per packet, not that of a standard player.
        assert not s.standard, controller
        # A report follows each packet with a marker bit. A frame is one packet here, so a report follows each packet.
        assert 500 <= s.reports <= 35_000, controller
        assert 2.5e6 <= s.video_bps + s.tcp_bps <= 4.1e6, controller
    # SCReAM gives way to a queue that another flow fills, as its authors' own program does.
    assert seen["scream"].video_bps < 1.2e6
    for controller in ("tfrc", "asmp"):
        assert 0.6e6 <= seen[controller].video_bps <= 3.2e6, controller
