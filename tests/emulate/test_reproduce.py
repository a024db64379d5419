"""A paper's experiment in real time, in short: from the scenario to the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from steadycast.reproduce import EXPERIMENTS, suite, write


def test_an_experiment_is_emulated_with_its_simulation_beside_it_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    (m_a,) = (e for e in EXPERIMENTS if e.id == "M-A")
    assert m_a.real_time is not None
    short = replace(m_a.real_time, sets={"duration": "15s"}, seeds=1, changes=())
    monkeypatch.setattr(suite, "chosen", lambda ids: [replace(m_a, real_time=short)])
    result = suite.reproduce(["M-A"], emulated=True)
    (part,) = result.parts
    udp, tcp = (
        next(r for r in part.rows if r.statement.text.startswith(f"{who}'s")) for who in ("UDP", "TCP")
    )
    for each in (udp, udp.simulated):
        assert each is not None
        assert each.measured is not None
        assert 4.9e6 < each.measured.mean < 5.4e6
    assert tcp.measured is not None
    assert 0.7 < tcp.measured.mean < 1.2, "of what UDP leaves"
    (run,) = part.runs("fixed")
    assert run.content["emulation"]["released_packets"] > 10_000
    assert part.left_aside == [
        "flow.tcp.initial_window: left aside: the kernel's TCP begins with 10 packets, not 2"
    ]
    assert "once" in write.markdown(result)
    if not part.doubtful:
        assert suite.reproduce(["M-A"], emulated=True).parts[0].base[0]["fixed"].content == run.content
