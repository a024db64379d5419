"""What goes wrong on a network, in short form: the rate before, during and after, with bounds on both sides.

`python -m pytest tests/emulate/test_faults.py -s` prints the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

NETWORK = """
duration = "24s"
seed = 1
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "2Mbps"
delay = "20ms"
queue = { kind = "droptail", limit = "50p" }
[[flow]]
name = "video"
kind = "video"
controller = "tfrc"
media = "greedy"
start = "0s"
from = "s"
to = ["r"]
"""

BLOCK = '{ link = "air", direction = "%s", loss = { kind = "bernoulli", p = %s } }'


def event(at: int, what: str) -> str:
    """An event of the scenario."""
    return f'[[event]]\nat = "{at}s"\n{what}\n'


def lossy(at: int, direction: str, p: float) -> str:
    """From then on a link loses packets, all with one probability."""
    return event(at, f"set = {BLOCK % (direction, p)}")


@dataclass(frozen=True)
class Fault:
    """What happens from second 8 on, until second 13, and what the rate does in the meantime and afterwards."""

    events: str
    during: tuple[float, float]
    """Mb/s in seconds 10 to 13."""
    after: tuple[float, float]
    """Mb/s in seconds 20 to 24."""
    hit: tuple[int, int]
    """Packets that the fault took, in both directions."""


FAULTS: Mapping[str, Fault] = {
    "feedback lost": Fault(lossy(8, "back", 1) + lossy(13, "back", 0), (0.0, 1.2), (1.5, 2.0), (10, 1_000)),
    "a fifth lost both ways": Fault(
        lossy(8, "both", 0.2) + lossy(13, "both", 0), (0.02, 0.9), (1.2, 2.0), (5, 400)
    ),
    "the link vanishes": Fault(
        lossy(8, "both", 1) + lossy(13, "both", 0), (0.0, 0.0), (1.2, 2.0), (5, 1_500)
    ),
    "the sender restarts": Fault(
        event(10, 'stop = "video"') + event(13, 'start = "video"'), (0.0, 0.3), (1.2, 2.0), (0, 0)
    ),
}


@cache
def results() -> dict[str, Any]:
    """All faults at once: they wait most of the time."""
    from steadycast.emulate import emulate
    from steadycast.progress import Silent

    def one(name: str) -> Any:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "fault.toml"
            file.write_text(NETWORK + FAULTS[name].events)
            return emulate(file, progress=Silent()).run

    with ThreadPoolExecutor(len(FAULTS)) as pool:
        return dict(zip(FAULTS, pool.map(one, FAULTS), strict=True))


def rate(run: Any, first: int, last: int) -> float:
    """Mean of what the receiver got in these seconds, in Mb/s."""
    import polars as pl

    rows = run.rates.to_polars().filter(
        (pl.col("node") == "r") & (pl.col("t_s") >= first) & (pl.col("t_s") < last)
    )
    return float(rows["throughput_bps"].mean() or 0.0) / 1e6


@pytest.mark.parametrize("name", FAULTS)
def test_the_rate_falls_and_returns(name: str) -> None:
    fault, run = FAULTS[name], results()[name]
    before, during, after = rate(run, 5, 8), rate(run, 10, 13), rate(run, 20, 24)
    lost = sum(link["lost_packets"] for link in run.summary["links"])
    print(
        f"\n{name:<24} before {before:.2f}  during {during:.2f}  after {after:.2f} Mb/s  {lost} packets hit"
    )
    assert run.summary["complete"] is True
    assert 1.5 <= before <= 2.01
    assert fault.during[0] <= during <= fault.during[1]
    assert fault.after[0] <= after <= fault.after[1] + 0.01
    assert fault.hit[0] <= lost <= fault.hit[1]
