"""ASMP against PGMCC, and the three ranked."""

from __future__ import annotations

import statistics

from papers.b.shared import (
    ASMP,
    KBPS,
    PAPER,
    PGMCC,
    SCENARIOS,
    SOURCE,
    TITLES,
    cubic,
    over_tcp,
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
    highest_rise,
    less,
    lowest,
    mean,
    of,
    ratio,
)
from papers.engine.observe import Flow

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

B_I = Experiment(
    id="B-I",
    title="two receivers, one TCP: PGMCC and ASMP",
    paper=PAPER,
    section="5.4.1, figures 29 to 31",
    scenario=SCENARIOS / "b-i.toml",
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
        cubic("tcp"),
    ),
    source=SOURCE,
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


B_J = Experiment(
    id="B-J",
    title="a hundred receivers with 1 % of loss each",
    paper=PAPER,
    section="5.4.2, figures 32 to 34",
    scenario=SCENARIOS / "b-j.toml",
    variants=(PGMCC, ASMP),
    changes=(
        Change(
            "both as repaired",
            {"flow.video.mode": "repaired"},
            only=("asmp-below", "asmp-kept", "asmp-recovers"),
            variants=("asmp",),
        ),
        cubic("tcp"),
    ),
    source=SOURCE,
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
                    over_tcp(c),
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
    ("B-E L1", "", {"topology.bottleneck.rate": "6.5Mbps"}, 50.0, 300.0),
    ("B-E L2", "", {"topology.bottleneck.rate": "11Mbps"}, 50.0, 300.0),
    ("B-F", "b-f.toml", {}, 100.0, 150.0),
    ("B-G", "b-g2.toml", {}, 20.0, 50.0),
    ("B-H", "b-h.toml", {}, 20.0, 300.0),
    ("B-I", "b-i.toml", {}, 130.0, 240.0),
    ("B-J", "b-j.toml", {}, 100.0, 300.0),
)
_THREE = ("asmp", "tfmcc", "pgmcc")


def _median(controller: str, *, share: bool) -> Measure:
    """Median over the networks of a rate's variation, or of how far from TCP's it is, as a factor."""

    def measure(seen: Seen) -> float | None:
        values = []
        for name, _, _, start, end in _WHERE:
            variant = f"{controller} {name}"
            if share:
                over = over_tcp(variant)(seen)
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

B_K = Experiment(
    id="B-K",
    title="three controllers ranked",
    paper=PAPER,
    section="5.4, table III",
    scenario=SCENARIOS / "b-e.toml",
    expected=False,
    variants=tuple(
        Variant(
            f"{c} {name}",
            f"{TITLES[c]} in {name}",
            {"flow.video.controller": c, **sets},
            scenario=scenario,
            changed=False,
        )
        for c in _THREE
        for name, scenario, sets, _, _ in _WHERE
    ),
    source=SOURCE,
    statements=(
        *(
            Statement(
                f"{c}-cov",
                f"{TITLES[c]}: coefficient of variation, median over B-E to B-J",
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
                f"{TITLES[c]}: its throughput from TCP's, as a factor, median over B-E to B-J",
                {"asmp": "friendliness very good", "tfmcc": "poor", "pgmcc": "good"}[c],
                _median(c, share=True),
                kind=Kind.REPORTED,
            )
            for c in _THREE
        ),
    ),
    figures=tuple(
        Figure(
            f"Table III, {key}",
            title,
            "ranks",
            tuple(f"{c} {name}" for c in _THREE for name, *_ in _WHERE),
            ranks=tuple((TITLES[c], f"{c}-{measured}", said) for c, said in _SAID[key].items()),
            axes=(axis, ""),
        )
        for key, measured, title, axis in (
            ("stable", "cov", "ranks, and the paper's words", "coefficient of variation; least is best"),
            ("friendly", "friendly", "ranks, and the paper's words", "factor from TCP's rate; 1 is best"),
        )
    ),
)
