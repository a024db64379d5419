"""What family B's experiments share: who is run, what is changed, how it is measured."""

from __future__ import annotations

import statistics
from pathlib import Path

from papers.engine.experiment import (
    Change,
    Seen,
    Unit,
    Variant,
)
from papers.engine.measure import (
    Measure,
)
from papers.engine.observe import Flow

PAPER = "Bouras, Gkamas, Kioumourtzis: Adaptive Smooth Multicast Protocol for Multimedia Transmission (2009)"

SOURCE = "a source that always has data"
SCENARIOS = Path("papers/scenarios")
KBPS = Unit(1e-3, 0, " kb/s")
MS = Unit(1.0, 1, " ms")
TARGETS = ("targets", "rate (bit/s)")
DELAYS = ("delays", "mean delay of a second (ms)")
LOSSES = ("losses", "share of packets lost")
POINTS = Unit(100.0, 2, " points")


def runs(name: str, title: str, **sets: object) -> Variant:
    """One controller's run of the scenario."""
    controller = name.partition(" ")[0]
    return Variant(name, title, {"flow.video.controller": controller, **sets})


ASMP, TFMCC, PGMCC = runs("asmp", "ASMP"), runs("tfmcc", "TFMCC"), runs("pgmcc", "PGMCC")

REPAIRED = Change("both as repaired", {"flow.video.mode": "repaired"})


def classic(path: str) -> Change:
    """RED as it was before it configured itself."""
    return Change("RED's classic parameters", {path: {"kind": "red", "preset": "classic", "limit": "50p"}})


def red(path: str) -> Change:
    """RED as ns-2 configures it."""
    return Change("RED", {path: {"kind": "red", "preset": "ns2", "limit": "50p"}})


def cubic(*flows: str) -> Change:
    """Today's TCP in place of ns-2's."""
    sets: dict[str, object] = {}
    for flow in flows:
        sets |= {f"flow.{flow}.preset": "linux", f"flow.{flow}.congestion": "cubic"}
    return Change("TCP of today (CUBIC, SACK, no 20-packet limit)", sets)


def delayed(*flows: str) -> Change:
    """TCPs whose receivers acknowledge every other packet."""
    return Change("delayed ACKs", {f"flow.{flow}.delayed_ack": "true" for flow in flows})


# ---------------------------------------------------------------- how it is measured


def rate(flow: Flow) -> float:
    """Throughput over the run."""
    return flow.rate


def over_tcp(variant: str) -> Measure:
    """Divide the video's throughput by the mean of all TCP."""

    def measure(seen: Seen) -> float:
        run = seen[variant]
        tcp = [Flow(f).rate for f in run.content["flows"].values() if f["kind"] == "tcp"]
        return run.flow("video").rate / statistics.fmean(tcp)

    return measure


def tcp_over(variant: str) -> Measure:
    """Divide the mean of all TCP by the video's throughput."""
    return lambda seen: None if not (x := over_tcp(variant)(seen)) else 1.0 / x


def at(variant: str, prefix: str, what: str) -> Measure:
    """Largest value of the receivers whose names begin so."""

    def measure(seen: Seen) -> float | None:
        receivers = seen[variant].flow("video").receivers
        values = [r[what] for name, r in receivers.items() if prefix in name and r[what] is not None]
        return max(values, default=None)

    return measure


TITLES = {"asmp": "ASMP", "tfmcc": "TFMCC", "pgmcc": "PGMCC"}
