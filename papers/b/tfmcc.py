"""ASMP against TFMCC: shares, steps of loss, a heterogeneous network."""

from __future__ import annotations

import statistics
from itertools import pairwise

from papers.b.shared import (
    ASMP,
    KBPS,
    PAPER,
    REPAIRED,
    SCENARIOS,
    SOURCE,
    TARGETS,
    TFMCC,
    TITLES,
    cubic,
    rate,
    red,
    runs,
)
from papers.engine.experiment import (
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
from papers.engine.measure import (
    Measure,
    after,
    deviation,
    less,
    mean,
    of,
    ratio,
)
from papers.engine.observe import Flow

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

B_E = Experiment(
    id="B-E",
    title="TFMCC and ASMP beside ten TCP",
    paper=PAPER,
    section="5.3.1, figures 14 to 20, tables I and II",
    scenario=SCENARIOS / "b-e.toml",
    variants=tuple(
        runs(f"{c} {link}", f"{TITLES[c]} on {link}", **{"topology.bottleneck.rate": rate})
        for c in ("asmp", "tfmcc")
        for link, rate in (("L1", "6.5Mbps"), ("L2", "11Mbps"))
    ),
    changes=(
        red("topology.bottleneck.queue"),
        *managed("topology.bottleneck.queue"),
        Change("TCP's packets spread over 5 ms", {f"flow.{t}.send_jitter": "5ms" for t in _TEN}),
        REPAIRED,
        cubic(*_TEN),
    ),
    source=SOURCE,
    statements=(
        *(
            Statement(
                f"{c}-{link}",
                f"{TITLES[c]}'s share of the fair one on {link}",
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
                f"TCP's share with {TITLES[c]} on {link}",
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
                f"{TITLES[c]} and TCP on {link}",
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


B_G = Experiment(
    id="B-G",
    title="steps of loss",
    paper=PAPER,
    section="5.3.3, figures 23 and 24",
    scenario=SCENARIOS / "b-g2.toml",
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
    changes=(REPAIRED, cubic("tcp1", "tcp2", "tcp3", "tcp4")),
    source=SOURCE,
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
            axes=TARGETS,
        ),
        Figure(
            "Figure 24, percent",
            "the same, percent",
            "series",
            ("asmp G1", "tfmcc G1"),
            axes=TARGETS,
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


B_H = Experiment(
    id="B-H",
    title="a heterogeneous network that changes",
    paper=PAPER,
    section="5.3.4, figures 25 to 28",
    scenario=SCENARIOS / "b-h.toml",
    variants=(ASMP, TFMCC),
    changes=(
        REPAIRED,
        Change(
            "RED", {f"link.l{i}.queue": {"kind": "red", "preset": "ns2", "limit": "50p"} for i in range(1, 9)}
        ),
        Change("20 packets of queue", {f"link.l{i}.queue.limit": "20p" for i in range(1, 9)}),
        *managed(*(f"link.l{i}.queue" for i in range(1, 9))),
    ),
    source=SOURCE,
    statements=(
        Statement(
            "more",
            "TFMCC's throughput over ASMP's",
            "TFMCC higher",
            ratio(of("tfmcc", rate), of("asmp", rate)),
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
            of("asmp", rate),
            Bound(100e3, 450e3),
            KBPS,
            why="With TCP and UDP each on for half of the time there is more than a fifth of a link to be had.",
        ),
    ),
    figures=(
        *(
            Figure(
                number,
                f"a TCP beside {TITLES[c]}",
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
