"""Named networks carry a call in real time, beside the kernel's TCP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from steadycast import networks

from tests.conftest import Claimed
from tests.face.test_networks import CALL, row

from .conftest import steadycast

SOME = ("wifi-bad+cubic", "tunnel+web", "steps-back")
"""A network with jitter, one with another MTU at its hosts, and one that changes."""


def _carries(name: str, folder: Path, claimed: Claimed) -> None:
    path = folder / "call.toml"
    path.write_text(f'topology.shape = "dumbbell"\n{CALL.format(2)}', encoding="utf-8")
    done = steadycast(["emulate", str(path), "--network", name, "--json"], folder, code=0)
    summary = json.loads(done.stdout)
    assert summary["complete"]
    call, *beside = summary["flows"]
    network = networks.find(name)
    assert [flow["name"] for flow in beside] == [flow["name"] for flow in network.flow]
    assert all(flow["throughput_bps"] > 0 for flow in beside)
    (receiver,) = call["receivers"]
    least = float(row(network)[1])
    with claimed(trusted=summary["emulation"]["trustworthy"]):
        assert least <= receiver["delay_mean_ms"] < least + 300
        assert 0.6 < 1 - receiver["loss_frac"] <= 1


@pytest.mark.parametrize("name", SOME)
def test_a_call_over_a_network_in_real_time_waits_for_its_way_at_least(
    name: str, tmp_path: Path, claimed: Claimed
) -> None:
    _carries(name, tmp_path, claimed)


@pytest.mark.claim
@pytest.mark.parametrize("name", networks.names())
def test_every_network_carries_a_call_in_real_time(name: str, tmp_path: Path, claimed: Claimed) -> None:
    _carries(name, tmp_path, claimed)
