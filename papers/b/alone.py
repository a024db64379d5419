"""ASMP by itself: fairness, smoothness, late joins, traffic that comes and goes; the late join of TFMCC too."""

from __future__ import annotations

from papers.b.shared import (
    ASMP,
    DELAYS,
    KBPS,
    LOSSES,
    MS,
    PAPER,
    POINTS,
    REPAIRED,
    SCENARIOS,
    SOURCE,
    TARGETS,
    TFMCC,
    at,
    classic,
    cubic,
    delayed,
    tcp_over,
)
from papers.engine.experiment import (
    PERCENT,
    SECONDS,
    Bound,
    Change,
    Experiment,
    Figure,
    Kind,
    Seen,
    Statement,
    Variant,
    managed,
)
from papers.engine.measure import (
    Measure,
    after,
    deviation,
    jain,
    less,
    lowest,
    mean,
    of,
    ratio,
    steepest,
)

# ---------------------------------------------------------------- B-A and B-B


def _beyond_loss(seen: Seen) -> float | None:
    slow, fast = (at("raw", name, "throughput_bps")(seen) for name in ("slow", "fast"))
    loss = at("raw", "slow", "loss_frac")(seen)
    if slow is None or not fast or loss is None:
        return None
    return (fast - slow) / fast - loss


_RAW = Variant("raw", "ASMP, not smoothed", {"flow.video.controller": "asmp"}, scenario="b-a.toml")
_SMOOTH = Variant("smooth", "ASMP, smoothed", {"flow.video.controller": "asmp"}, scenario="b-b.toml")


def _fast_loss(variant: str) -> Statement:
    return Statement(
        "fast-loss", "fast receivers' loss", "0", at(variant, "fast", "loss_frac"), Bound(most=0.0), PERCENT
    )


_LAN_CHANGES = (
    classic("link.bottleneck.queue"),
    *managed("link.bottleneck.queue"),
    REPAIRED,
    cubic("tcp"),
    delayed("tcp"),
)

B_A = Experiment(
    id="B-A",
    title="fairness to TCP without smoothing",
    paper=PAPER,
    section="4.2, figures 3 to 6",
    scenario=SCENARIOS / "b-a.toml",
    variants=(_RAW,),
    changes=_LAN_CHANGES,
    source=SOURCE,
    statements=(
        Statement(
            "tcp",
            "TCP's throughput over ASMP's",
            "more than friendly",
            tcp_over("raw"),
            Bound(1.0),
            why="RED at 0.5 Mb/s begins to drop at 2.5 packets, where TCP halves again and again; ASMP hears of it "
            "once per second.",
        ),
        _fast_loss("raw"),
        Statement(
            "slow-loss",
            "slow receivers' loss",
            "very low",
            at("raw", "slow", "loss_frac"),
            Bound(most=0.03),
            PERCENT,
            why="It is RED's drop rate for the sum of both flows.",
        ),
        Statement(
            "slow-jitter",
            "slow receivers' jitter",
            "1 to 23 ms",
            at("raw", "slow", "jitter_p95_ms"),
            Bound(1.0, 30.0),
            MS,
        ),
        Statement(
            "jitter-ratio",
            "slow receivers' jitter over fast ones'",
            "fast near 0",
            ratio(at("raw", "slow", "jitter_p95_ms"), at("raw", "fast", "jitter_p95_ms")),
            Bound(5.0),
            why="Packets leave evenly: only a queue spreads them.",
        ),
        Statement(
            "same",
            "what slow receivers miss beyond their loss",
            "fast and slow receive the same rate",
            _beyond_loss,
            Bound(-0.005, 0.005),
            POINTS,
            why="One sender, one rate: what differs is what was dropped.",
        ),
    ),
    figures=(
        Figure("Figure 4", "sending rates", "rates", ("raw",), top=0.6),
        Figure("Figure 5", "slow receivers' losses", "series", ("raw",), axes=LOSSES),
        Figure("Figure 6", "slow receivers' delay", "series", ("raw",), axes=DELAYS),
    ),
)

B_B = Experiment(
    id="B-B",
    title="smooth behaviour",
    paper=PAPER,
    section="4.3, figures 7 to 10",
    scenario=SCENARIOS / "b-b.toml",
    variants=(_SMOOTH, _RAW),
    changes=_LAN_CHANGES,
    source=SOURCE,
    statements=(
        Statement(
            "cov",
            "rate's coefficient of variation, smoothed over not smoothed",
            "smooth",
            ratio(
                of("smooth", deviation(20.0, 200.0, "targets")), of("raw", deviation(20.0, 200.0, "targets"))
            ),
            Bound(most=0.7),
            why="γ takes a fifth of each step in congestion.",
        ),
        Statement(
            "loss",
            "loss of slow receivers, smoothed less not smoothed",
            "slightly more",
            less(at("smooth", "slow", "loss_frac"), at("raw", "slow", "loss_frac")),
            Bound(most=0.015),
            POINTS,
            why="What makes increases gradual makes decreases so too (γ as printed).",
        ),
        Statement(
            "tcp",
            "TCP's throughput over ASMP's",
            '"high receiving rates"',
            tcp_over("smooth"),
            Bound(0.9),
        ),
        _fast_loss("smooth"),
        Statement(
            "slow-jitter",
            "slow receivers' jitter",
            "as before",
            at("smooth", "slow", "jitter_p95_ms"),
            unit=MS,
            kind=Kind.REPORTED,
        ),
    ),
    figures=(
        Figure("Figure 7", "sending rates", "rates", ("smooth",), top=0.6),
        Figure(
            "Figure 8",
            "slow receivers' losses",
            "series",
            ("smooth",),
            axes=LOSSES,
        ),
        Figure("Figure 9", "slow receivers' delay", "series", ("smooth",), axes=DELAYS),
        Figure(
            "Figure 10",
            "the rate with and without smoothing",
            "series",
            ("raw", "smooth"),
            axes=TARGETS,
        ),
    ),
)

# ---------------------------------------------------------------- B-C, B-D, B-F


def _late(variant: str, title: str) -> tuple[Statement, ...]:
    return (
        Statement(
            f"{variant}-with",
            f"{title}'s rate, 60 to 100 s",
            "300 kb/s",
            of(variant, mean(60.0, 100.0, "targets")),
            Bound(100e3, 330e3),
            KBPS,
            why="The slow link's losses are the late receiver's, and the least rate counts.",
        ),
        Statement(
            f"{variant}-within",
            f"{title}: from the join to a rate below 330 kb/s",
            '"rapidly"',
            of(variant, after(50.0, 100.0, lambda x: x <= 330e3, "targets")),
            Bound(most=15.0),
            SECONDS,
        ),
        Statement(
            f"{variant}-back",
            f"{title}'s rate after 130 s over that before the join",
            "recovers",
            ratio(of(variant, mean(130.0, 150.0, "targets")), of(variant, mean(30.0, 50.0, "targets"))),
            Bound(0.8),
        ),
    )


_SLOWER: dict[str, object] = {"link.bottleneck.rate": "1.5Mbps"}
_LATE_CHANGES = (
    Change("the paper's 1.5 Mb/s", _SLOWER),
    classic("link.bottleneck.queue"),
    *managed("link.bottleneck.queue"),
    REPAIRED,
    cubic("tcp1", "tcp2", "tcp3", "tcp4"),
)

B_C = Experiment(
    id="B-C",
    title="late join of a slow receiver",
    paper=PAPER,
    section="4.4, figures 11 and 12",
    scenario=SCENARIOS / "b-c.toml",
    variants=(ASMP,),
    changes=_LATE_CHANGES,
    source=SOURCE,
    statements=(
        *_late("asmp", "ASMP"),
        Statement(
            "before",
            "ASMP's rate, 30 to 50 s",
            "500 kb/s",
            of("asmp", mean(30.0, 50.0, "targets")),
            unit=KBPS,
            kind=Kind.REPORTED,
        ),
    ),
    figures=(
        Figure(
            "Figure 12",
            "ASMP's rate",
            "series",
            ("asmp",),
            marks=((300e3, "slow link"),),
            axes=TARGETS,
        ),
    ),
)

B_F = Experiment(
    id="B-F",
    title="late join, TFMCC and ASMP",
    paper=PAPER,
    section="5.3.2, figures 21 and 22",
    scenario=SCENARIOS / "b-f.toml",
    variants=(ASMP, TFMCC),
    changes=_LATE_CHANGES,
    source=SOURCE,
    statements=(
        *_late("asmp", "ASMP"),
        *_late("tfmcc", "TFMCC"),
        Statement(
            "abrupt",
            "largest step in a second, 50 to 60 s: ASMP's over TFMCC's",
            "TFMCC abrupt",
            ratio(of("asmp", steepest(50.0, 60.0, "targets")), of("tfmcc", steepest(50.0, 60.0, "targets"))),
            Bound(most=1.0, strict=True),
            why="TFMCC takes a lower rate whole and at once, ASMP a fifth of the step per report.",
        ),
        Statement(
            "oscillates",
            "coefficient of variation after 100 s: TFMCC's over ASMP's",
            "TFMCC oscillates",
            ratio(
                of("tfmcc", deviation(100.0, 150.0, "targets")),
                of("asmp", deviation(100.0, 150.0, "targets")),
            ),
            Bound(1.0, strict=True),
        ),
    ),
    figures=(
        Figure(
            "Figure 22",
            "rates of TFMCC and ASMP",
            "series",
            ("asmp", "tfmcc"),
            marks=((300e3, "slow link"),),
            axes=TARGETS,
        ),
    ),
)


def _three(start: float, end: float) -> Measure:
    def measure(seen: Seen) -> float | None:
        rates = [mean(start, end)(seen["asmp"].flow(f)) for f in ("video", "tcp1", "tcp2")]
        known = [x for x in rates if x is not None]
        return jain(known) if len(known) == len(rates) else None

    return measure


def _target(start: float, end: float) -> Measure:
    return of("asmp", mean(start, end, "targets"))


B_D = Experiment(
    id="B-D",
    title="competing traffic that comes and goes",
    paper=PAPER,
    section="4.5, figure 13",
    scenario=SCENARIOS / "b-d.toml",
    variants=(ASMP,),
    changes=(
        classic("topology.bottleneck.queue"),
        *managed("topology.bottleneck.queue"),
        REPAIRED,
        cubic("tcp1", "tcp2"),
    ),
    source=SOURCE,
    statements=(
        Statement(
            "jain",
            "Jain's index of three flows, 30 to 80 s",
            "almost equal",
            _three(30.0, 80.0),
            Bound(0.85),
        ),
        Statement(
            "never-zero",
            "ASMP's least rate",
            "about 100 kb/s",
            of("asmp", lowest(5.0, 220.0, "targets")),
            Bound(50e3),
            KBPS,
            why="Reports are a second apart and each may take it to the equation's rate.",
        ),
        Statement(
            "falls",
            "rate at 90–120 s less that at 40–80 s",
            "adapts within seconds",
            less(_target(90.0, 120.0), _target(40.0, 80.0)),
            Bound(most=0.0, strict=True),
            KBPS,
        ),
        Statement(
            "rises-120",
            "rate at 130–165 s less that at 90–120 s",
            "increases",
            less(_target(130.0, 165.0), _target(90.0, 120.0)),
            Bound(0.0, strict=True),
            KBPS,
        ),
        Statement(
            "rises-170",
            "rate at 185–220 s less that at 130–165 s",
            "increases again",
            less(_target(185.0, 220.0), _target(130.0, 165.0)),
            Bound(0.0, strict=True),
            KBPS,
        ),
    ),
    figures=(Figure("Figure 13", "all four flows", "rates", ("asmp",), top=1.0),),
)
