"""A paper's experiment in real time, in short form: from the scenario to the table."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from papers import EXPERIMENTS, Verdict
from papers.engine import suite, write
from tests.conftest import Claimed


def test_an_experiment_is_emulated_with_its_simulation_beside_it_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: Claimed
) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    (m_a,) = (e for e in EXPERIMENTS if e.id == "M-A")
    assert m_a.real_time is not None
    short = replace(m_a.real_time, sets={"duration": "10s"}, seeds=1, changes=())
    monkeypatch.setattr(suite, "chosen", lambda ids: [replace(m_a, real_time=short)])
    result = suite.reproduce(["M-A"], emulated=True)
    (part,) = result.parts
    udp, tcp = (
        next(r for r in part.rows if r.statement.text.startswith(f"{who}'s")) for who in ("UDP", "TCP")
    )
    assert udp.simulated is not None
    assert udp.simulated.measured is not None
    assert 4.9e6 < udp.simulated.measured.mean < 5.4e6
    assert udp.measured is not None
    assert tcp.measured is not None
    (run,) = part.runs("fixed")
    assert run.content["emulation"]["released_packets"] > 6_700
    assert part.left_aside == [
        "flow.tcp.initial_window: left aside: the kernel's TCP begins with 10 packets, not 2"
    ]
    assert "once" in write.markdown(result)
    if not part.doubtful:
        assert suite.reproduce(["M-A"], emulated=True).parts[0].base[0]["fixed"].content == run.content
    with claimed(trusted=not part.doubtful):
        assert 4.9e6 < udp.measured.mean < 5.4e6
        assert 0.7 < tcp.measured.mean < 1.2, "of what UDP leaves"


@pytest.mark.claim
def test_the_papers_testbeds_beside_the_kernels_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEADYCAST_CACHE", str(tmp_path))
    began = time.monotonic()
    result = suite.reproduce(["M", "H-L", "C-F"], emulated=True)
    with capsys.disabled():
        print(f"\n{write.markdown(result)}\n{(time.monotonic() - began) / 60:.1f} minutes")
    assert [each for part in result.parts for each in part.doubtful] == []
    found = {(r.experiment.id, r.statement.id): r for r in result.rows}
    for kept in (
        ("M-A", "udp"),
        ("M-A", "tcp"),
        ("M-B", "swing"),
        ("M-C", "swing"),
        ("M-E", "kept"),
        ("M-F", "friendliness"),
        ("M-F", "fairer"),
        ("H-L", "overflow"),
        ("H-L", "inside"),
        ("C-F", "ratio"),
        ("C-F", "rtt"),
        ("C-F", "n"),
    ):
        measured = found[kept].measured
        assert measured is not None, kept
        assert measured.holds, f"{kept}: {found[kept].said()}"
    assert {r.verdict for (_, id), r in found.items() if id == "mos"} == {Verdict.UNJUDGED}
