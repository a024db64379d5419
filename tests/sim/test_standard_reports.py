"""Receivers that send only standard reports (RFC 3550): one every few seconds, with what was expected and lost."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import steadycast

SCENARIO = """
duration = "120s"
seed = {seed}
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "2Mbps"
delay = "20ms"
loss = {{ kind = "bernoulli", p = {loss} }}
queue = {{ kind = "droptail", limit = "50p" }}
[[flow]]
name = "video"
kind = "video"
controller = "{controller}"
media = "greedy"
from = "s"
to = ["r"]
cap = "{cap}"
feedback = "rr"
"""

OUTAGE = """
[[event]]
at = "40s"
set = {{ link = "air", loss = {{ kind = "bernoulli", p = 1.0 }} }}
[[event]]
at = "{end}s"
set = {{ link = "air", loss = {{ kind = "none" }} }}
"""

CONSTANT = ("fixed",)
REACTING = [each.name for each in steadycast.controllers() if each.name not in CONSTANT]


def received(folder: Path, text: str, *spans: tuple[float, float]) -> list[float]:
    """Run this scenario. Returns the mean rate in bit/s at the receiver in each span of seconds."""
    file = folder / "standard.toml"
    file.write_text(text)
    rates = steadycast.run(file, quality=False).rates.to_polars().filter(pl.col("node") == "r")
    means = [rates.filter(pl.col("t_s").is_between(*span))["throughput_bps"].mean() for span in spans]
    return [float(mean or 0) for mean in means]  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [1, 4, 10])
@pytest.mark.parametrize("controller", REACTING)
def test_after_an_outage_the_rate_comes_back_within_a_minute(
    controller: str, seconds: int, tmp_path: Path
) -> None:
    # A ceiling at the rate that had arrived, which rose by 1 % per report, kept a fifth of the link two minutes after
    # an outage of 10 s.
    text = SCENARIO.format(controller=controller, seed=31, loss=0.0, cap="1Gbps") + OUTAGE.format(
        end=40 + seconds
    )
    before, after = received(tmp_path, text, (20, 39), (80, 119))
    assert before > 0
    assert after >= 0.6 * before


@pytest.mark.parametrize("controller", CONSTANT)
def test_a_constant_rate_stays_constant_whatever_is_lost(controller: str, tmp_path: Path) -> None:
    text = SCENARIO.format(controller=controller, seed=31, loss=0.03, cap="1.5Mbps")
    (mean,) = received(tmp_path, text, (10, 119))
    assert mean == pytest.approx(0.97 * 1.5e6, rel=0.02)
