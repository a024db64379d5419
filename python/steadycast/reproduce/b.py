"""Family B: ASMP by itself, against TFMCC and against PGMCC.

Bouras, Gkamas, Kioumourtzis: Adaptive Smooth Multicast Protocol for Multimedia Transmission (Wiley, 2009). Its figures
are lost; its text and tables are not.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

from steadycast.reproduce.experiment import (
    PERCENT,
    SECONDS,
    Bound,
    Change,
    Experiment,
    Figure,
    Kind,
    Seen,
    Statement,
    Unit,
    Variant,
    managed,
)
from steadycast.reproduce.measure import (
    Measure,
    after,
    deviation,
    highest_rise,
    jain,
    less,
    lowest,
    mean,
    of,
    ratio,
    steepest,
)
from steadycast.reproduce.observe import Flow

PAPER = "Bouras, Gkamas, Kioumourtzis: Adaptive Smooth Multicast Protocol for Multimedia Transmission (2009)"

_SOURCE = "a source that always has data"
_SCENARIOS = Path("scenarios/papers")
KBPS = Unit(1e-3, 0, " kb/s")
MS = Unit(1.0, 1, " ms")
_TARGETS = ("targets", "rate (bit/s)")
_DELAYS = ("delays", "mean delay of a second (ms)")
_LOSSES = ("losses", "share of packets lost")
POINTS = Unit(100.0, 2, " points")


def _runs(name: str, title: str, **sets: object) -> Variant:
    """One controller's run of the scenario."""
    controller = name.partition(" ")[0]
    return Variant(name, title, {"flow.video.controller": controller, **sets})


ASMP, TFMCC, PGMCC = _runs("asmp", "ASMP"), _runs("tfmcc", "TFMCC"), _runs("pgmcc", "PGMCC")

_REPAIRED = Change("both as repaired", {"flow.video.mode": "repaired"})


def _classic(path: str) -> Change:
    return Change("RED's classic parameters", {path: {"kind": "red", "preset": "classic", "limit": "50p"}})


def _red(path: str) -> Change:
    return Change("RED", {path: {"kind": "red", "preset": "ns2", "limit": "50p"}})


def _cubic(*flows: str) -> Change:
    sets: dict[str, object] = {}
    for flow in flows:
        sets |= {f"flow.{flow}.preset": "linux", f"flow.{flow}.congestion": "cubic"}
    return Change("TCP of today (CUBIC, SACK, no 20-packet limit)", sets)


def _delayed(*flows: str) -> Change:
    return Change("delayed ACKs", {f"flow.{flow}.delayed_ack": "true" for flow in flows})


# ---------------------------------------------------------------- how it is measured


def _rate(flow: Flow) -> float:
    return flow.rate


def _over_tcp(variant: str) -> Measure:
    """Divide the video's throughput by the mean of all TCP."""

    def measure(seen: Seen) -> float:
        run = seen[variant]
        tcp = [Flow(f).rate for f in run.content["flows"].values() if f["kind"] == "tcp"]
        return run.flow("video").rate / statistics.fmean(tcp)

    return measure


def _tcp_over(variant: str) -> Measure:
    return lambda seen: None if not (x := _over_tcp(variant)(seen)) else 1.0 / x


def _at(variant: str, prefix: str, what: str) -> Measure:
    """Largest value of the receivers whose names begin so."""

    def measure(seen: Seen) -> float | None:
        receivers = seen[variant].flow("video").receivers
        values = [r[what] for name, r in receivers.items() if prefix in name and r[what] is not None]
        return max(values, default=None)

    return measure


# ---------------------------------------------------------------- B-A and B-B


def _beyond_loss(seen: Seen) -> float | None:
    slow, fast = (_at("raw", name, "throughput_bps")(seen) for name in ("slow", "fast"))
    loss = _at("raw", "slow", "loss_frac")(seen)
    if slow is None or not fast or loss is None:
        return None
    return (fast - slow) / fast - loss


_RAW = Variant("raw", "ASMP, not smoothed", {"flow.video.controller": "asmp"}, scenario="b-a.toml")
_SMOOTH = Variant("smooth", "ASMP, smoothed", {"flow.video.controller": "asmp"}, scenario="b-b.toml")
_LAN_CHANGES = (
    _classic("link.bottleneck.queue"),
    *managed("link.bottleneck.queue"),
    _REPAIRED,
    _cubic("tcp"),
    _delayed("tcp"),
)

_B_A = Experiment(
    id="B-A",
    title="fairness to TCP without smoothing",
    paper=PAPER,
    section="4.2, figures 3 to 6",
    scenario=_SCENARIOS / "b-a.toml",
    variants=(_RAW,),
    changes=_LAN_CHANGES,
    source=_SOURCE,
    statements=(
        Statement(
            "tcp",
            "TCP's throughput over ASMP's",
            "more than friendly",
            _tcp_over("raw"),
            Bound(1.0),
            why="RED at 0.5 Mb/s begins to drop at 2.5 packets, where TCP halves again and again; ASMP hears of it "
            "once per second.",
        ),
        Statement(
            "fast-loss",
            "fast receivers' loss",
            "0",
            _at("raw", "fast", "loss_frac"),
            Bound(most=0.0),
            PERCENT,
        ),
        Statement(
            "slow-loss",
            "slow receivers' loss",
            "very low",
            _at("raw", "slow", "loss_frac"),
            Bound(most=0.03),
            PERCENT,
            why="It is RED's drop rate for the sum of both flows.",
        ),
        Statement(
            "slow-jitter",
            "slow receivers' jitter",
            "1 to 23 ms",
            _at("raw", "slow", "jitter_ms"),
            Bound(1.0, 30.0),
            MS,
        ),
        Statement(
            "jitter-ratio",
            "slow receivers' jitter over fast ones'",
            "fast near 0",
            ratio(_at("raw", "slow", "jitter_ms"), _at("raw", "fast", "jitter_ms")),
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
        Figure("Figure 5", "slow receivers' losses", "series", ("raw",), axes=_LOSSES),
        Figure("Figure 6", "slow receivers' delay", "series", ("raw",), axes=_DELAYS),
    ),
)

_B_B = Experiment(
    id="B-B",
    title="smooth behaviour",
    paper=PAPER,
    section="4.3, figures 7 to 10",
    scenario=_SCENARIOS / "b-b.toml",
    variants=(_SMOOTH, _RAW),
    changes=_LAN_CHANGES,
    source=_SOURCE,
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
            less(_at("smooth", "slow", "loss_frac"), _at("raw", "slow", "loss_frac")),
            Bound(most=0.015),
            POINTS,
            why="What makes increases gradual makes decreases so too (γ as printed).",
        ),
        Statement(
            "tcp",
            "TCP's throughput over ASMP's",
            '"high receiving rates"',
            _tcp_over("smooth"),
            Bound(0.9),
        ),
        Statement(
            "fast-loss",
            "fast receivers' loss",
            "0",
            _at("smooth", "fast", "loss_frac"),
            Bound(most=0.0),
            PERCENT,
        ),
        Statement(
            "slow-jitter",
            "slow receivers' jitter",
            "as before",
            _at("smooth", "slow", "jitter_ms"),
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
            axes=_LOSSES,
        ),
        Figure("Figure 9", "slow receivers' delay", "series", ("smooth",), axes=_DELAYS),
        Figure(
            "Figure 10",
            "the rate with and without smoothing",
            "series",
            ("raw", "smooth"),
            axes=_TARGETS,
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
    _classic("link.bottleneck.queue"),
    *managed("link.bottleneck.queue"),
    _REPAIRED,
    _cubic("tcp1", "tcp2", "tcp3", "tcp4"),
)

_B_C = Experiment(
    id="B-C",
    title="late join of a slow receiver",
    paper=PAPER,
    section="4.4, figures 11 and 12",
    scenario=_SCENARIOS / "b-c.toml",
    variants=(ASMP,),
    changes=_LATE_CHANGES,
    source=_SOURCE,
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
            axes=_TARGETS,
        ),
    ),
)

_B_F = Experiment(
    id="B-F",
    title="late join, TFMCC and ASMP",
    paper=PAPER,
    section="5.3.2, figures 21 and 22",
    scenario=_SCENARIOS / "b-f.toml",
    variants=(ASMP, TFMCC),
    changes=_LATE_CHANGES,
    source=_SOURCE,
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
            axes=_TARGETS,
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


_B_D = Experiment(
    id="B-D",
    title="competing traffic that comes and goes",
    paper=PAPER,
    section="4.5, figure 13",
    scenario=_SCENARIOS / "b-d.toml",
    variants=(ASMP,),
    changes=(
        _classic("topology.bottleneck.queue"),
        *managed("topology.bottleneck.queue"),
        _REPAIRED,
        _cubic("tcp1", "tcp2"),
    ),
    source=_SOURCE,
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

# ---------------------------------------------------------------- B-E

_CAPACITY = {"L1": 6.5e6, "L2": 11e6}
_PUBLISHED = {
    ("asmp", "L1"): ("83.05 %", "95.06 %"),
    ("asmp", "L2"): ("74.62 %", "93.56 %"),
    ("tfmcc", "L1"): ("143.32 %", "85.74 %"),
    ("tfmcc", "L2"): ("114.74 %", "86.94 %"),
}
SHARE = Unit(100.0, 1, " %")


def _share(controller: str, link: str) -> Measure:
    return of(f"{controller} {link}", lambda f: f.rate / (_CAPACITY[link] / 11.0))


def _tcp_share(controller: str, link: str) -> Measure:
    def measure(seen: Seen) -> float:
        flows = seen[f"{controller} {link}"].content["flows"].values()
        return statistics.fmean(Flow(f).rate for f in flows if f["kind"] == "tcp") / (_CAPACITY[link] / 11.0)

    return measure


_TEN = tuple(f"tcp{i}" for i in range(1, 11))
_TITLES = {"asmp": "ASMP", "tfmcc": "TFMCC", "pgmcc": "PGMCC"}

_B_E = Experiment(
    id="B-E",
    title="TFMCC and ASMP beside ten TCP",
    paper=PAPER,
    section="5.3.1, figures 14 to 20, tables I and II",
    scenario=_SCENARIOS / "b-e.toml",
    variants=tuple(
        _runs(f"{c} {link}", f"{_TITLES[c]} on {link}", **{"topology.bottleneck.rate": rate})
        for c in ("asmp", "tfmcc")
        for link, rate in (("L1", "6.5Mbps"), ("L2", "11Mbps"))
    ),
    changes=(
        _red("topology.bottleneck.queue"),
        *managed("topology.bottleneck.queue"),
        Change("TCP's packets spread over 5 ms", {f"flow.{t}.send_jitter": "5ms" for t in _TEN}),
        _REPAIRED,
        _cubic(*_TEN),
    ),
    source=_SOURCE,
    statements=(
        *(
            Statement(
                f"{c}-{link}",
                f"{_TITLES[c]}'s share of the fair one on {link}",
                _PUBLISHED[c, link][0],
                _share(c, link),
                Bound(0.9, 2.0) if c == "tfmcc" else Bound(0.5, 1.05),
                SHARE,
                why="A paced flow meets a drop-tail queue that ack-clocked bursts keep full: how often it finds "
                "no room hangs on phases.",
            )
            for c in ("tfmcc", "asmp")
            for link in ("L1", "L2")
        ),
        *(
            Statement(
                f"order-{link}",
                f"TFMCC's share less ASMP's on {link}",
                "TFMCC higher",
                less(_share("tfmcc", link), _share("asmp", link)),
                Bound(0.0, strict=True),
                SHARE,
            )
            for link in ("L1", "L2")
        ),
        *(
            Statement(
                f"tcp-{link}",
                f"TCP's share with ASMP less with TFMCC on {link}",
                "95.06 − 85.74" if link == "L1" else "93.56 − 86.94",
                less(_tcp_share("asmp", link), _tcp_share("tfmcc", link)),
                Bound(0.0, strict=True),
                SHARE,
                why="What the video leaves is TCP's.",
            )
            for link in ("L1", "L2")
        ),
        *(
            Statement(
                f"cov-{link}",
                f"coefficient of variation, ASMP's over TFMCC's, {link}",
                "ASMP smoother",
                ratio(
                    of(f"asmp {link}", deviation(50.0, 300.0)), of(f"tfmcc {link}", deviation(50.0, 300.0))
                ),
                Bound(most=1.0, strict=True),
            )
            for link in ("L1", "L2")
        ),
        *(
            Statement(
                f"tcp-{c}-{link}",
                f"TCP's share with {_TITLES[c]} on {link}",
                _PUBLISHED[c, link][1],
                _tcp_share(c, link),
                unit=SHARE,
                kind=Kind.REPORTED,
            )
            for c in ("tfmcc", "asmp")
            for link in ("L1", "L2")
        ),
    ),
    figures=(
        *(
            Figure(
                number,
                f"{_TITLES[c]} and TCP on {link}",
                "rates",
                (f"{c} {link}",),
                marks=((_CAPACITY[link] / 11.0, "fair share"),),
                top=2.5 * _CAPACITY[link] / 11e6,
            )
            for number, c, link in (
                ("Figure 15", "tfmcc", "L1"),
                ("Figure 16", "tfmcc", "L2"),
                ("Figure 17", "asmp", "L1"),
                ("Figure 18", "asmp", "L2"),
            )
        ),
        *(
            Figure(
                number,
                f"TFMCC and ASMP on {link}",
                "series",
                (f"tfmcc {link}", f"asmp {link}"),
                marks=((_CAPACITY[link] / 11.0, "fair share"),),
                axes=("rates", "throughput (bit/s)"),
            )
            for number, link in (("Figure 19", "L1"), ("Figure 20", "L2"))
        ),
    ),
)

# ---------------------------------------------------------------- B-G

_ENDS = (50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0)


def _stair(variant: str) -> tuple[Measure, Measure]:
    """Least way down from step to step, and least way up, in bit/s."""

    def means(flow: Flow) -> list[float]:
        return [mean(end - 20.0, end, "targets")(flow) or 0.0 for end in _ENDS]

    def down(flow: Flow) -> float:
        return min(a - b for a, b in pairwise(means(flow)[:4]))

    def up(flow: Flow) -> float:
        return min(b - a for a, b in pairwise(means(flow)[3:]))

    return of(variant, down), of(variant, up)


def _settled(flow: Flow) -> float | None:
    """Seconds after the second receiver's joining until the rate is within a quarter of its step's mean."""
    level = mean(80.0, 100.0, "targets")(flow)
    return (
        None
        if level is None
        else after(50.0, 100.0, lambda x: abs(x - level) <= 0.25 * level, "targets")(flow)
    )


def _within_steps(flow: Flow) -> float | None:
    parts = [deviation(end - 30.0, end, "targets")(flow) for end in _ENDS]
    known = [p for p in parts if p is not None]
    return statistics.fmean(known) if known else None


def _stairs(variant: str, title: str, reading: str) -> tuple[Statement, ...]:
    down, up = _stair(variant)
    return tuple(
        Statement(
            f"{variant.replace(' ', '-')}-{way}",
            f"{title}'s least step {way}, {reading}",
            f"a staircase {way}",
            measure,
            Bound(0.0, strict=True) if "fractions" in reading else Bound(-50e3),
            KBPS,
            why="At 0.05 to 0.15 % events are minutes apart, and TFRC-like averages carry over from step to step."
            if "percent" in reading
            else "The equation at the largest loss of those who are there.",
        )
        for way, measure in (("down", down), ("up", up))
    )


_B_G = Experiment(
    id="B-G",
    title="steps of loss",
    paper=PAPER,
    section="5.3.3, figures 23 and 24",
    scenario=_SCENARIOS / "b-g2.toml",
    variants=(
        ASMP,
        TFMCC,
        Variant(
            "asmp G1", "ASMP, percent", {"flow.video.controller": "asmp"}, scenario="b-g1.toml", changed=False
        ),
        Variant(
            "tfmcc G1",
            "TFMCC, percent",
            {"flow.video.controller": "tfmcc"},
            scenario="b-g1.toml",
            changed=False,
        ),
    ),
    changes=(_REPAIRED, _cubic("tcp1", "tcp2", "tcp3", "tcp4")),
    source=_SOURCE,
    statements=(
        *_stairs("asmp", "ASMP", "fractions of 0.05 to 0.15"),
        *_stairs("tfmcc", "TFMCC", "fractions of 0.05 to 0.15"),
        *_stairs("asmp G1", "ASMP", "0.05 to 0.15 percent"),
        *_stairs("tfmcc G1", "TFMCC", "0.05 to 0.15 percent"),
        Statement(
            "settles",
            "ASMP: from the second join to within a quarter of its step, fractions",
            "not seriously affected",
            of("asmp", _settled),
            Bound(most=30.0),
            SECONDS,
        ),
        Statement(
            "smoother",
            "coefficient of variation in the steps, ASMP's over TFMCC's, fractions",
            "ASMP smoother",
            ratio(of("asmp", _within_steps), of("tfmcc", _within_steps)),
            Bound(most=1.0),
        ),
    ),
    figures=(
        Figure(
            "Figure 24",
            "rates as loss steps up and down, fractions",
            "series",
            ("asmp", "tfmcc"),
            axes=_TARGETS,
        ),
        Figure(
            "Figure 24, percent",
            "the same, percent",
            "series",
            ("asmp G1", "tfmcc G1"),
            axes=_TARGETS,
        ),
    ),
)

# ---------------------------------------------------------------- B-H


def _all_tcp(variant: str) -> Measure:
    """Mean of what all TCP receive together."""

    def measure(seen: Seen) -> float:
        flows = [Flow(f) for f in seen[variant].content["flows"].values() if f["kind"] == "tcp"]
        return sum(sum(f.rates) * f.step_s for f in flows) / seen[variant].end_s

    return measure


_B_H = Experiment(
    id="B-H",
    title="a heterogeneous network that changes",
    paper=PAPER,
    section="5.3.4, figures 25 to 28",
    scenario=_SCENARIOS / "b-h.toml",
    variants=(ASMP, TFMCC),
    changes=(
        _REPAIRED,
        Change(
            "RED", {f"link.l{i}.queue": {"kind": "red", "preset": "ns2", "limit": "50p"} for i in range(1, 9)}
        ),
        Change("20 packets of queue", {f"link.l{i}.queue.limit": "20p" for i in range(1, 9)}),
        *managed(*(f"link.l{i}.queue" for i in range(1, 9))),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "more",
            "TFMCC's throughput over ASMP's",
            "TFMCC higher",
            ratio(of("tfmcc", _rate), of("asmp", _rate)),
            Bound(1.0, strict=True),
        ),
        Statement(
            "tcp",
            "all TCP with ASMP over all TCP with TFMCC",
            "the same, or better with ASMP",
            ratio(_all_tcp("asmp"), _all_tcp("tfmcc")),
            Bound(0.97),
            why="A multicast flow's share is a quarter of a link; what it leaves is spread over eight.",
        ),
        Statement(
            "stable",
            "coefficient of variation, ASMP's over TFMCC's",
            "ASMP has high stability",
            ratio(of("asmp", deviation(20.0, 300.0)), of("tfmcc", deviation(20.0, 300.0))),
            Bound(most=1.0, strict=True),
        ),
        Statement(
            "asmp",
            "ASMP's throughput",
            "about 400 kb/s at most",
            of("asmp", _rate),
            Bound(100e3, 450e3),
            KBPS,
            why="With TCP and UDP each on for half of the time there is more than a fifth of a link to be had.",
        ),
    ),
    figures=(
        *(
            Figure(
                number,
                f"a TCP beside {_TITLES[c]}",
                "series",
                (c,),
                axes=("rates", "throughput (bit/s)"),
                flow="tcp1a",
            )
            for number, c in (("Figure 26", "tfmcc"), ("Figure 27", "asmp"))
        ),
        Figure(
            "Figure 28", "TFMCC and ASMP", "series", ("tfmcc", "asmp"), axes=("rates", "throughput (bit/s)")
        ),
    ),
)

# ---------------------------------------------------------------- B-I and B-J

_TWICE = 2.0 * 8000.0 / 0.104
"""Two packets of 1000 B per round trip of 104 ms."""


def _both(start: float, end: float) -> Measure:
    def measure(seen: Seen) -> float | None:
        rates = [mean(start, end)(seen["asmp"].flow(f)) for f in ("video", "tcp")]
        return None if None in rates else sum(x for x in rates if x is not None)

    return measure


def _switches(flow: Flow) -> float:
    return float(sum(t >= 240.0 for t, _ in flow.switches))


_ASMP_TIMES = Variant("asmp", "ASMP", {"flow.video.controller": "asmp"}, scenario="b-i-asmp.toml")

_B_I = Experiment(
    id="B-I",
    title="two receivers, one TCP: PGMCC and ASMP",
    paper=PAPER,
    section="5.4.1, figures 29 to 31",
    scenario=_SCENARIOS / "b-i.toml",
    variants=(PGMCC, _ASMP_TIMES),
    changes=(
        Change("30 packets of queue", {"link.l1.queue.limit": "30p", "link.l2.queue.limit": "30p"}),
        Change("15 packets of queue", {"link.l1.queue.limit": "15p", "link.l2.queue.limit": "15p"}),
        *managed("link.l1.queue", "link.l2.queue"),
        Change("a TCP whose window does not limit", {"flow.tcp.window": "256p"}),
        Change("PGMCC not paced", {"flow.video.params.pgmcc": {"pacing": 64.0}}, variants=("pgmcc",)),
        Change(
            "acker by the square root", {"flow.video.params.pgmcc": {"rank": "sqrt"}}, variants=("pgmcc",)
        ),
        Change("both as repaired", {"flow.video.mode": "repaired"}),
        _cubic("tcp"),
    ),
    source=_SOURCE,
    statements=(
        *(
            Statement(
                f"pgmcc-{name}",
                f"PGMCC's throughput, {words}",
                f"{published} kb/s",
                of("pgmcc", mean(start, end)),
                Bound(published * 1e3 * (1 - within), published * 1e3 * (1 + within)),
                KBPS,
                why=why,
            )
            for name, words, published, start, end, within, why in (
                ("alone", "MR2 alone", 500, 20.0, 60.0, 0.15, ""),
                ("mr1", "with MR1", 400, 70.0, 120.0, 0.15, ""),
                (
                    "tcp",
                    "with TCP",
                    220,
                    130.0,
                    240.0,
                    0.25,
                    "A window beside a window. PGMCC repeats nothing, so that a loss halves its rate and no more, "
                    "while TCP also waits in recovery; and its pacing finds room in the queue.",
                ),
                ("after", "after TCP", 400, 255.0, 300.0, 0.15, ""),
            )
        ),
        Statement(
            "switch",
            "acker switches after TCP stops",
            "MR2 to MR1",
            of("pgmcc", _switches),
            Bound(1.0),
            Unit(1.0, 1),
            why="The rate rises until MR1's link drops: its NAKs then have the larger R √p.",
        ),
        Statement(
            "asmp-tcp",
            "ASMP's throughput over TCP's, 110 to 200 s",
            "232.1/259.4 = 0.89",
            ratio(of("asmp", mean(110.0, 200.0)), of("asmp", mean(110.0, 200.0), "tcp")),
            Bound(0.6, 1.3),
            why="The paper's share hangs on what TCP does to the queue: CUBIC turns it round.",
        ),
        Statement("asmp-sum", "their sum", "491.5 kb/s", _both(110.0, 200.0), Bound(450e3, 505e3), KBPS),
        Statement(
            "asmp-mr1",
            "ASMP's throughput with MR1, 60 to 100 s",
            "around 400 kb/s",
            of("asmp", mean(60.0, 100.0)),
            Bound(300e3, 400e3),
            KBPS,
        ),
        Statement(
            "asmp-gradual",
            "ASMP's largest rise in a second after TCP stops",
            "gradual",
            of("asmp", highest_rise(200.0, 300.0, "targets")),
            Bound(most=_TWICE),
            KBPS,
        ),
        Statement(
            "asmp-dip",
            "ASMP's least rate, 50 to 57 s",
            "below 200 kb/s",
            of("asmp", lowest(50.0, 58.0, "targets")),
            Bound(most=200e3),
            KBPS,
            why="A receiver that joins begins at 150 kb/s in paper mode, and the least rate counts.",
        ),
    ),
    figures=(
        Figure(
            "Figure 30", "PGMCC and TCP", "rates", ("pgmcc",), marks=((400e3, "L1"), (500e3, "L2")), top=0.6
        ),
        Figure(
            "Figure 31", "ASMP and TCP", "rates", ("asmp",), marks=((400e3, "L1"), (500e3, "L2")), top=0.6
        ),
    ),
)


def _kept(variant: str) -> Measure:
    return ratio(of(variant, mean(400.0, 600.0)), of(variant, mean(100.0, 300.0)))


def _recovers(flow: Flow) -> float | None:
    before = mean(100.0, 300.0)(flow) or 0.0
    fell = after(300.0, 420.0, lambda x: x < 0.8 * before)(flow)
    if fell is None or fell >= 120.0:
        return 0.0
    low = 300.0 + fell
    # Five seconds in a row, since single seconds vary by more than a fifth.
    for start in range(int(low), 600):
        window = flow.between("rates", float(start), start + 5.0)
        if window and statistics.fmean(window) >= 0.8 * before:
            return start - 300.0
    return 300.0


_B_J = Experiment(
    id="B-J",
    title="a hundred receivers with 1 % of loss each",
    paper=PAPER,
    section="5.4.2, figures 32 to 34",
    scenario=_SCENARIOS / "b-j.toml",
    variants=(PGMCC, ASMP),
    changes=(
        Change(
            "both as repaired",
            {"flow.video.mode": "repaired"},
            only=("asmp-below", "asmp-kept", "asmp-recovers"),
            variants=("asmp",),
        ),
        _cubic("tcp"),
    ),
    source=_SOURCE,
    statements=(
        *(
            s
            for c, title, why in (
                (
                    "pgmcc",
                    "PGMCC",
                    "The acker is whoever looks worst just now, of a hundred noisy estimates.",
                ),
                ("asmp", "ASMP", "The least of a hundred noisy estimates is below each one's mean."),
            )
            for s in (
                Statement(
                    f"{c}-below",
                    f"{title}'s throughput over TCP's",
                    "below TCP",
                    _over_tcp(c),
                    Bound(most=1.0, strict=True),
                    why="Beside no queue at all it is a window against a window at 1 % loss, and Reno's times out."
                    if c == "pgmcc"
                    else why,
                ),
                Statement(
                    f"{c}-kept",
                    f"{title}'s throughput with 100 receivers over that with 10",
                    "not affected" if c == "pgmcc" else "back within seconds",
                    _kept(c),
                    Bound(0.7),
                    why=why,
                ),
            )
        ),
        Statement(
            "asmp-recovers",
            "ASMP: from the 90 joining to 80 % of before",
            "a few seconds",
            of("asmp", _recovers),
            Bound(most=60.0),
            SECONDS,
        ),
    ),
    figures=(
        Figure("Figure 33", "PGMCC and TCP", "rates", ("pgmcc",), top=3.0),
        Figure("Figure 34", "ASMP and TCP", "rates", ("asmp",), top=3.0),
    ),
)

# ---------------------------------------------------------------- B-K

_WHERE: tuple[tuple[str, str, dict[str, object], float, float], ...] = (
    ("B-E", "", {"topology.bottleneck.rate": "6.5Mbps"}, 50.0, 300.0),
    ("B-F", "b-f.toml", {}, 100.0, 150.0),
    ("B-G", "b-g2.toml", {}, 20.0, 50.0),
    ("B-I", "b-i.toml", {}, 130.0, 240.0),
    ("B-J", "b-j.toml", {}, 100.0, 300.0),
)
_THREE = ("asmp", "tfmcc", "pgmcc")


def _median(controller: str, *, share: bool) -> Measure:
    """Median over the five networks of a rate's variation, or of how far from TCP's it is, as a factor."""

    def measure(seen: Seen) -> float | None:
        values = []
        for name, _, _, start, end in _WHERE:
            variant = f"{controller} {name}"
            if share:
                over = _over_tcp(variant)(seen)
                values.append(max(over, 1.0 / over) if over else None)
            else:
                values.append(deviation(start, end)(seen[variant].flow("video")))
        known = [v for v in values if v is not None]
        return statistics.median(known) if len(known) == len(values) else None

    return measure


_SAID = {
    "stable": {"asmp": "very good", "tfmcc": "no", "pgmcc": "good"},
    "friendly": {"asmp": "very good", "tfmcc": "poor", "pgmcc": "good"},
}
"""Table III's words."""

_B_K = Experiment(
    id="B-K",
    title="three controllers ranked",
    paper=PAPER,
    section="5.4, table III",
    scenario=_SCENARIOS / "b-e.toml",
    expected=False,
    variants=tuple(
        Variant(
            f"{c} {name}",
            f"{_TITLES[c]} in {name}",
            {"flow.video.controller": c, **sets},
            scenario=scenario,
            changed=False,
        )
        for c in _THREE
        for name, scenario, sets, _, _ in _WHERE
    ),
    source=_SOURCE,
    statements=(
        *(
            Statement(
                f"{c}-cov",
                f"{_TITLES[c]}: coefficient of variation, median of B-E, F, G, I and J",
                {"asmp": "stability very good", "tfmcc": "no stability", "pgmcc": "good"}[c],
                _median(c, share=False),
                kind=Kind.REPORTED,
            )
            for c in _THREE
        ),
        Statement(
            "asmp-pgmcc",
            "the same, PGMCC's less ASMP's",
            "ASMP most stable",
            less(_median("pgmcc", share=False), _median("asmp", share=False)),
            Bound(0.0),
            why="A window that is halved saws; a smoothed rate does not.",
        ),
        Statement(
            "pgmcc-tfmcc",
            "the same, TFMCC's less PGMCC's",
            "TFMCC least stable",
            less(_median("tfmcc", share=False), _median("pgmcc", share=False)),
            Bound(0.0),
            why="An equation over eight loss events is steadier than a window that is halved at each: the "
            "paper's order rests on one network of two receivers.",
        ),
        *(
            Statement(
                f"{c}-friendly",
                f"{_TITLES[c]}: its throughput from TCP's, as a factor, median of the five",
                {"asmp": "friendliness very good", "tfmcc": "poor", "pgmcc": "good"}[c],
                _median(c, share=True),
                kind=Kind.REPORTED,
            )
            for c in _THREE
        ),
    ),
    figures=(
        Figure(
            "Table III",
            "ranks measured, and the paper's words",
            "ranks",
            tuple(f"{c} {name}" for c in _THREE for name, *_ in _WHERE),
            ranks=(
                (
                    "stable transmission rate: coefficient of variation, least is best",
                    tuple((_TITLES[c], f"{c}-cov", said) for c, said in _SAID["stable"].items()),
                ),
                (
                    "TCP-friendliness: factor from TCP's rate, least is best",
                    tuple((_TITLES[c], f"{c}-friendly", said) for c, said in _SAID["friendly"].items()),
                ),
            ),
        ),
    ),
)


EXPERIMENTS: tuple[Experiment, ...] = (_B_A, _B_B, _B_C, _B_D, _B_E, _B_F, _B_G, _B_H, _B_I, _B_J, _B_K)
