"""Compares `gcc` with other programs' estimators of its family on the same arrivals: docs/data/estimators.csv.

    python -m validation.reference            # prints the table
    python -m validation.reference --write    # writes it there

A video at a fixed rate crosses a simulated link. Each estimator gets the packets' departure and arrival times.
webrtc-rs's estimator (`rtc-interceptor`, a port of pion's) comes from crates.io and is built by
`integrations/webrtc`; pion's (`interceptor`) comes from Go's proxy and is built by `validation/pion` with Go 1.25 or
newer; aiortc's (the older receiver-side one with a Kalman filter) comes from PyPI, into build/reference.
"""

from __future__ import annotations

import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from validation import page

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "validation" / "scenarios" / "reference.toml"
INTEGRATION = ROOT / "integrations" / "webrtc"
BUILD = ROOT / "build" / "reference"
TABLE = "estimators"
AIORTC = "aiortc==1.16.0"

NAMES = {
    "gcc_v2_bps": '`gcc`, `loss = "v2"`',
    "gcc_v1_bps": '`gcc`, `loss = "v1"`',
    "webrtc_rs_bps": "webrtc-rs 0.21.1",
    "pion_bps": "pion 0.1.51",
    "aiortc_bps": "aiortc 1.16.0",
}
SETTLED, CHANGE, END_S = 5.0, 20.0, 40.0


@dataclass(frozen=True)
class Case:
    """The network's conditions."""

    title: str
    sets: tuple[str, ...]
    below: float | None = None
    """The rate in bit/s that the link leaves to the video from `since` on.

    A higher estimate has to fall below this rate.
    """
    since: float = 0.0


CASES = (
    Case("1 Mb/s on 2 Mb/s", ()),
    Case("2.2 Mb/s on 2 Mb/s", ("flow.video.params.fixed.rate=2.2Mbps",), 2e6),
    Case("1 Mb/s on 2, then on 0.7 Mb/s", ("event.1.set.rate=700kbps",), 0.7e6, CHANGE),
    Case("1 Mb/s, 2 % lost by chance", ('topology.bottleneck.loss={ kind = "bernoulli", p = 0.02 }',)),
    Case("1 Mb/s, 8 % lost by chance", ('topology.bottleneck.loss={ kind = "bernoulli", p = 0.08 }',)),
    Case("1 Mb/s, then beside CUBIC", ("flow.tcp.count=1",), 1e6, CHANGE),
)

Series = list[tuple[float, float]]


def trace(case: Case) -> str:
    """Run the scenario, and return a line for each packet."""
    import steadycast as sc

    packets = sc.run(SCENARIO, set=list(case.sets)).table("packets").to_polars()
    came = {seq: at for seq, at in packets.filter(packets["dir"] == "r").select("seq", "t_s").iter_rows()}
    sent = packets.filter(packets["dir"] == "s").select("seq", "t_s", "size_bytes").iter_rows()
    return "".join(f"{at:.9f},{size},{came.get(seq, '')}\n" for seq, at, size in sent)


def told(words: list[str], packets: str) -> dict[str, Series]:
    """Run an estimator's program on packets, and return the columns of its output."""
    done = subprocess.run(words, input=packets, capture_output=True, text=True, check=True)
    head, *lines = (line.split(",") for line in done.stdout.splitlines() if "," in line)
    rows = [[float(cell) for cell in line] for line in lines]
    return {name: [(line[0], line[n]) for line in rows] for n, name in enumerate(head) if n}


def programs() -> tuple[list[str], ...]:
    """Build the programs that are compared; return their command lines."""
    target = BUILD / "target"
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--example", "replay"],
        cwd=INTEGRATION,
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
        check=True,
    )
    pion = BUILD / "pion.test"
    subprocess.run(["go", "test", "-c", "-o", pion, "."], cwd=ROOT / "validation" / "pion", check=True)
    python = BUILD / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", AIORTC], check=True)
    aiortc = [str(python), str(ROOT / "validation" / "aiortc_rate.py")]
    return [str(target / "release" / "examples" / "replay")], [str(pion)], aiortc


def measured(case: Case, series: Series) -> list[str]:
    """Return an estimator's cells: medians before and after the change, and the seconds until it reacted."""
    early = [bps for at, bps in series if SETTLED <= at < CHANGE]
    late = [bps for at, bps in series if CHANGE + SETTLED <= at < END_S]
    cells = [f"{median(bps) / 1e6:.2f}" if bps else "–" for bps in (early, late)]
    if case.below is None:
        return [*cells, ""]
    if not any(bps >= case.below for at, bps in series if at >= case.since - 1):
        return [*cells, "it is not above"]
    above = False
    for at, bps in series:
        above = above or bps >= case.below
        if at >= case.since and above and bps < case.below:
            return [*cells, f"{at - case.since:.1f} s"]
    return [*cells, "never"]


def table() -> page.Table:
    """Run all cases, and return the table."""
    words = programs()
    head = ["packets", "estimator", "Mb/s, 5 … 20 s", "Mb/s, 25 … 40 s", "lowered after"]
    rows = []
    for case in CASES:
        packets = trace(case)
        found = {key: series for each in words for key, series in told(each, packets).items()}
        for key, name in NAMES.items():
            rows.append([case.title, name, *measured(case, found[key])])
    return page.table(head, rows)


def main() -> int:
    """Run, and print or write the table."""
    args = page.options("validation.reference", __doc__, TABLE).parse_args()
    page.show(args, TABLE, "`gcc` beside other programs' estimators of its family", table())
    return 0


if __name__ == "__main__":
    page.end(main)
