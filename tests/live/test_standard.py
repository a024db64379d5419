"""A player's standard reports alone steer a sender, on an emulated link."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.conftest import needs, needs_networks
from tests.live.network import GSTREAMER, READY, SEND, emulate

CONTROLLERS = ("asmp", "tfrc", "tfmcc", "asmp")


@pytest.mark.claim
@needs("gst-launch-1.0")
@needs_networks
def test_gstreamers_reports_alone_use_the_link_and_lose_little(tmp_path: Path) -> None:
    """`python -m pytest tests/live/test_standard.py -m claim -s` prints the table."""

    def run(number: int) -> tuple[float, float, int, bool]:
        script = (
            f"{GSTREAMER} & player=$!; {READY}; "
            f"{SEND} --controller {CONTROLLERS[number]} --for 62s --json > sent.json; kill $player; true"
        )
        done = emulate(tmp_path / str(number), script)
        (receiver,) = done.sent()["receivers"]
        assert receiver["standard"]
        return *done.link(20, 60), receiver["feedback_packets"], done.trusted

    with ThreadPoolExecutor(len(CONTROLLERS)) as pool:
        seen = list(pool.map(run, range(len(CONTROLLERS))))
    print("\ncontroller  reports    loss  of the link  (2 Mb/s, 40 ms; seconds 20 to 60)")
    for controller, (loss, utilisation, reports, trusted) in zip(CONTROLLERS, seen, strict=True):
        note = "" if trusted else "  not trustworthy: the machine was too busy"
        print(f"{controller:<11} {reports:>7} {100 * loss:>6.2f} % {100 * utilisation:>10.0f} %{note}")
    for loss, utilisation, reports, _ in seen:
        # A report every 2.4 to 6.2 s.
        assert 9 <= reports <= 30
        assert 0 <= loss < 0.02
        assert 0.6 <= utilisation <= 1.001
