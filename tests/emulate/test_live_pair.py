"""A flow of an emulated scenario, and `send` and `receive` over the same link, reach the same rate."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Claimed
from tests.live.conftest import needs_networks
from tests.live.network import Emulated, emulate

FLOW = """
[[flow]]
name = "video"
kind = "video"
controller = "%s"
media = "greedy"
from = "s"
to = ["r"]
stop = "13s"
"""

PAIR = """
$STEADYCAST send greedy --to $STEADYCAST_R:5004 --port 6004 --controller %s --for 13s --json --sdp session.sdp \\
  > sent.json & them=$!
while [ ! -s session.sdp ]; do sleep 0.1; done
nsenter --net=$STEADYCAST_NET_R $STEADYCAST receive session.sdp --for 18s --json > received.json
wait $them
"""

CASES = {
    "steady": ("2Mbps", ()),  # limited by the link
    # limited by its equation, with the same packets lost in both
    "tfrc": ("10Mbps", range(60, 8_000, 60)),
}


@pytest.mark.parametrize("controller", CASES)
@needs_networks
def test_a_live_pair_and_an_emulated_flow_agree_within_a_tenth(
    controller: str, tmp_path: Path, claimed: Claimed
) -> None:
    rate, lost = CASES[controller]

    def run(name: str, script: str, beside: str) -> Emulated:
        return emulate(tmp_path / name, script, rate=rate, loss=tuple(lost) or 0.0, beside=beside)

    with ThreadPoolExecutor(2) as pool:
        flow = pool.submit(run, "flow", "sleep 15", FLOW % controller)
        pair = pool.submit(run, "pair", PAIR % controller, "")
        both = flow.result(), pair.result()
    (_, emulated), (_, live) = (run.link(5, 11) for run in both)
    with claimed(trusted=all(run.kept_up for run in both)):
        assert live == pytest.approx(emulated, rel=0.1)
