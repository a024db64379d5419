"""RFC 8867's test cases, emulated and simulated.

The bounds were set after the first results had been seen. The use differed by at most 6 percentage points, the delay
by at most 16 %.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from steadycast.experiment import run_experiment

SHORT = ["5.1", "5.2", "5.3", "5.4", "5.8"]
"""The cases of up to 125 s without a TCP. Beside a long TCP (5.6) a comparison would only measure the full queue."""


@pytest.mark.claim
@pytest.mark.parametrize("controller", ["scream", "nada", "gcc"])
def test_the_use_of_the_link_and_the_delay_are_those_of_the_simulation(
    controller: str, tmp_path: Path
) -> None:
    simulated, emulated = (
        run_experiment(
            "rfc8867", only=[*SHORT, controller], seeds=(1,), out=tmp_path / str(real), emulated=real
        )
        for real in (False, True)
    )
    assert not simulated.runs.errors
    assert not emulated.runs.errors, "the machine was too slow"
    use, delay = (simulated.spec.measure(name) for name in ("use", "delay p95"))
    for one, other in zip(simulated.points, emulated.points, strict=True):
        assert emulated.values(use, other)[1] == pytest.approx(simulated.values(use, one)[1], abs=8), (
            one.scenario
        )
        assert emulated.values(delay, other)[1] == pytest.approx(simulated.values(delay, one)[1], rel=0.2), (
            one.scenario
        )
