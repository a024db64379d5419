"""What became of frames, as the simulator and as the media side tell it; and the ladder of paper 000."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import steadycast as sc
from steadycast.media.splice import NEVER, Fate, Fates, fates
from steadycast.media.table import Kind
from steadycast.media.table2 import MEAN_RATES_BPS, table2


def lossy(tmp_path: Path, seed: int, loss: float) -> sc.Run:
    path = tmp_path / f"lossy-{seed}.toml"
    path.write_text(
        f"""
duration = "20s"
seed = {seed}
nodes = ["s", "r"]
[[link]]
between = ["s", "r"]
rate = "2Mbps"
delay = "20ms"
jitter = {{ mean = "30ms", dist = "exponential" }}
loss = {{ kind = "bernoulli", p = {loss} }}
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "900kbps" }}
media = "table2"
playout = "150ms"
from = "s"
to = "r"
""",
        encoding="utf-8",
    )
    return sc.run(path, quality=False)


def test_the_simulator_and_the_media_side_judge_frames_alike(tmp_path: Path) -> None:
    letters = {"I": Kind.I, "P": Kind.P, "B": Kind.B}
    told = {"ok": Fate.OK, "lost": Fate.LOST, "late": Fate.LATE, "undecodable": Fate.UNDECODABLE}
    seen = np.zeros(len(Fate), dtype=np.int64)
    for seed, loss in [(1, 0.002), (2, 0.01), (3, 0.05), (4, 0.3)]:
        rows = lossy(tmp_path, seed, loss).frames.to_polars()
        table = table2(seed=seed)
        n = rows.height
        assert n == 500
        assert [letters[k] for k in rows["kind"]] == [Kind(k) for k in table.kinds[:n]]
        simulated = np.array([told[fate] for fate in rows["fate"]])
        complete = simulated != Fate.LOST
        arrival = np.full(n, NEVER, dtype=np.int64)
        came = rows["arrived_s"].to_numpy()[complete]
        arrival[complete] = (came * 1e9).round().astype(np.int64)
        play = np.zeros(n + 12, dtype=np.int64)
        due = rows["ready_s"].to_numpy() + 0.150
        play[rows["display"].to_numpy()] = (due * 1e9).round().astype(np.int64)
        judged = fates(table, Fates(complete, arrival, play[:n]))
        # Of the frames that were to be shown after the end, the media side judges no lateness.
        shown = rows["display"].to_numpy() < n
        assert np.array_equal(judged[shown], simulated[shown]), (seed, loss)
        seen += np.bincount(simulated, minlength=len(Fate))
    assert (seen >= 20).all(), f"all four are there to be told apart: {seen}"


def test_the_ladder_of_paper_000_has_the_exponents_that_its_page_says() -> None:
    rates = MEAN_RATES_BPS

    def exponent(low: int, high: int) -> float:
        return math.log(rates[low] / rates[high]) / math.log(high / low)

    found = [exponent(2, 4), exponent(4, 8), exponent(8, 16), exponent(16, 31)]
    for value, said in zip(found, [1.49, 1.66, 1.18, 1.04], strict=True):
        assert abs(value - said) <= 0.0051, (value, said)


def test_the_ladder_of_paper_000_has_its_mean_rates_and_is_not_monotone() -> None:
    table = table2(frames=2000, fps=Fraction(25))
    measured = table.mean_rates_bps()
    for q, said in MEAN_RATES_BPS.items():
        # A byte per frame is 200 b/s.
        assert abs(measured[table.row(q)] - float(said)) <= 200
    rising = [q for q in table.qs[1:] if measured[table.row(q)] > measured[table.row(q - 1)]]
    assert rising == [22, 25, 28]
