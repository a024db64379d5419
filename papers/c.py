"""Family C: MULTFRC, E-MULTFRC, AIO-TFRC and EAIO-TFRC over a wireless link.

Chen, Zakhor: An Enhanced All-in-one TFRC Protocol for Streaming Video in Wireless Networks (2006). Its figure 3 is
lost; its text and table 1 are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from papers.engine.calculate import calculation
from papers.engine.experiment import (
    PERCENT,
    RATIO,
    Bound,
    Change,
    Curve,
    Experiment,
    Figure,
    Kind,
    RealTime,
    Seen,
    Statement,
    Unit,
    Variant,
    managed,
)
from papers.engine.measure import Measure, jain, least, less, mean, most, of, ratio
from papers.engine.observe import Flow, Observed

PAPER = "Chen, Zakhor: An Enhanced All-in-one TFRC Protocol for Streaming Video in Wireless Networks (2006)"

_SOURCE = "a source that always has data"
_SCENARIOS = Path("papers/scenarios")
_LINK = 1e6
_LOSSES = (0.0, 0.02, 0.04, 0.06, 0.08)
_MODEL = {0.02: 2.9, 0.04: 4.7, 0.06: 6.7, 0.08: 9.1}
"""Connections that TFRC's equation needs for 1 Mb/s at 168 ms and 1000 B."""
_BARS = {0.0: 0.90, 0.02: 0.88, 0.04: 0.80, 0.06: 0.75, 0.08: 0.68}
"""Least use of the link that counts: what the law's ramp and TFRC's noise leave in a small model, rounded down."""
_LATE, _END = 3000.0, 9000.0

KBPS = Unit(1e-3, 1, " kb/s")

# ---------------------------------------------------------------- what differs


def _runs(
    controller: str, title: str, losses: Sequence[float], changed: Sequence[float] = ()
) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            _name(controller, p),
            f"{title}, p_w = {p:g}",
            {"flow.video.controller": controller, "link.air.loss.p": str(p)},
            changed=p in changed,
        )
        for p in losses
    )


def _name(controller: str, p: float) -> str:
    return f"{controller} {p:g}"


_EAIO = _runs("eaio-tfrc", "EAIO-TFRC", _LOSSES, (0.0, 0.02))
_EAIO_ONCE = _runs("eaio-tfrc", "EAIO-TFRC", _LOSSES)

_FEW, _NONE = (_name("eaio-tfrc", 0.02),), (_name("eaio-tfrc", 0.0),)
_OPEN = (
    Change("packets of 1460 B", {"flow.video.packet": "1460B"}, variants=_FEW),
    Change("ns-2's TFRC", {"flow.video.params.eaio-tfrc.profile": "ns2"}, variants=_FEW),
    Change("the least mean of 20 s as round trip", {"flow.video.params.eaio-tfrc.rtt_min": "averages"}),
    Change("queues of 20 packets", {"link.air.queue.limit": "20p"}, variants=_NONE),
    Change(
        "RED on the air",
        {"link.air.queue": {"kind": "red", "limit": "50p", "preset": "classic"}},
        variants=_NONE,
    ),
)

# ---------------------------------------------------------------- how it is measured


def _used(controller: str, p: float) -> Measure:
    """Share of the link that arrives, over the last 6000 s."""
    return of(_name(controller, p), lambda f: m / _LINK if (m := mean(_LATE, _END)(f)) is not None else None)


def _whole(controller: str, p: float) -> Measure:
    return of(_name(controller, p), lambda f: f.rate / _LINK)


def _n(controller: str, p: float) -> Measure:
    return of(_name(controller, p), mean(_LATE, _END, "n"))


def _lost(flow: Flow) -> float:
    return float(flow.content["loss_frac"])


def _against(controller: str, p: float, other: str) -> Measure:
    return less(_used(other, p), _used(controller, p))


def _curves(controllers: Sequence[tuple[str, str]], what: str) -> tuple[Curve, ...]:
    def measure(run: Observed) -> float | None:
        flow = run.flow("video")
        if what == "loss":
            return _lost(flow)
        if what == "rtt":
            return mean(_LATE, _END, "rtts")(flow)
        if what == "n":
            return mean(_LATE, _END, "n")(flow)
        return m / _LINK if (m := mean(_LATE, _END)(flow)) is not None else None

    return tuple(
        Curve(title, tuple((p, _name(controller, p)) for p in _LOSSES), measure)
        for controller, title in controllers
    )


_AXIS = "packet loss rate of the wireless link, p_w"
_NAMES = tuple(v.name for v in _EAIO)

_C_A = Experiment(
    id="C-A",
    title="EAIO-TFRC's use of a wireless link",
    paper=PAPER,
    section="4, figures 2 and 3",
    scenario=_SCENARIOS / "c-a.toml",
    variants=_EAIO,
    changes=_OPEN,
    source=_SOURCE,
    statements=(
        *(
            Statement(
                f"used-{p:g}",
                f"share of the link at p_w = {p:g}, last 6000 s",
                {0.0: "near 1", 0.02: "0.92"}.get(p, f"near {1 - p:g}"),
                _used("eaio-tfrc", p),
                Bound(_BARS[p], 1.0 - p + 0.005),
                RATIO,
                why="The law adds connections until the round trip shows a queue; TFRC's own noise shows one early, "
                "so that the link is not quite full, the less so the more packets are lost.",
            )
            for p in _LOSSES
        ),
        Statement(
            "whole-0.02",
            "share of the link at p_w = 0.02, all 9000 s",
            "0.92",
            _whole("eaio-tfrc", 0.02),
            Bound(0.88, 0.96),
            RATIO,
            why="n² grows by α/10 per second: the way to three connections takes 320 s of 9000.",
        ),
        Statement(
            "excess",
            "largest loss beyond p_w",
            "close to p_w",
            most(
                [
                    less(of(_name("eaio-tfrc", p), _lost), lambda _, p=p: p)  # type: ignore[misc]
                    for p in _LOSSES
                ]
            ),
            Bound(most=0.02),
            PERCENT,
            why="A queue of 50 packets holds more than the 84 ms at which n falls, so few packets are dropped.",
        ),
        Statement(
            "n-rises",
            "least rise of n from one p_w to the next",
            "n increases with p_w",
            least([less(_n("eaio-tfrc", b), _n("eaio-tfrc", a)) for a, b in pairwise(_LOSSES)]),
            Bound(0.0, strict=True),
            why="The rate of one connection falls as 1/√p and faster: more of them fill the link.",
        ),
        Statement("n-0", "n at p_w = 0", "(figure lost)", _n("eaio-tfrc", 0.0), Bound(1.0, 1.5)),
        *(
            Statement(
                f"n-{p:g}",
                f"n at p_w = {p:g} over what the equation needs",
                "(figure lost)",
                ratio(_n("eaio-tfrc", p), lambda _, p=p: _MODEL[p]),  # type: ignore[misc]
                Bound(0.65, 1.8),
                why=f"TFRC's equation needs {_MODEL[p]:g} connections; the law swings around that.",
            )
            for p in _LOSSES[1:]
        ),
    ),
    figures=tuple(
        Figure(
            number,
            title,
            "sweep",
            _NAMES,
            curves=_curves([("eaio-tfrc", "EAIO-TFRC")], what),
            axes=(_AXIS, axis),
        )
        for number, title, what, axis in (
            ("Figure 3(b)", "loss from end to end", "loss", "share of packets lost"),
            ("Figure 3(c)", "number of connections", "n", "n, mean of the last 6000 s"),
            ("Figure 3(d)", "round-trip time", "rtt", "round trip (ms)"),
        )
    ),
    notes=("The paper's figure 3 has panels (a) to (c); its text names the average RTT among them.",),
)

_OTHER_WAY = (
    "The other way round, and not by rounding: n connections estimate p each for themselves and their errors "
    "average out, while one estimate, times n, swings the whole rate; so the round trip shows a queue earlier, and n "
    "stays lower. With n times as many loss intervals in the one estimate the difference goes away (calculation "
    '"averaged").'
)

_C_B = Experiment(
    id="C-B",
    title="E-MULTFRC against EAIO-TFRC",
    paper=PAPER,
    section="4, figure 3(a)",
    scenario=_SCENARIOS / "c-b.toml",
    variants=(
        *_runs("e-multfrc", "E-MULTFRC", _LOSSES, (0.02,)),
        *(v if v.name != _name("eaio-tfrc", 0.02) else _EAIO[1] for v in _EAIO_ONCE),
    ),
    changes=(
        Change(
            "γ = 0.25",
            {"flow.video.params.e-multfrc.gamma": "0.25", "flow.video.params.eaio-tfrc.gamma": "0.25"},
        ),
        Change(
            "the additive law",
            {
                "flow.video.params": {
                    name: {"law": "iiad", "alpha": 1.0, "beta": 1.0, "gamma": 0.25}
                    for name in ("e-multfrc", "eaio-tfrc")
                }
            },
        ),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "gain-0.02",
            "EAIO-TFRC's share of the link less E-MULTFRC's, p_w = 0.02",
            "0.92 − 0.81 = 0.11",
            _against("e-multfrc", 0.02, "eaio-tfrc"),
            Bound(0.03),
            why=_OTHER_WAY,
            calculation=calculation("gain-iimd-0.02"),
        ),
        Statement(
            "sign-0.02",
            "the same, its sign",
            "EAIO-TFRC higher",
            _against("e-multfrc", 0.02, "eaio-tfrc"),
            Bound(-0.01),
            calculation=calculation("gain-iimd-0.02"),
        ),
        Statement(
            "e-multfrc-0.02",
            "E-MULTFRC's share of the link, p_w = 0.02",
            "0.81",
            _used("e-multfrc", 0.02),
            Bound(0.76, 0.86),
            why="Nothing in the law itself leaves a fifth of the link unused.",
            calculation=calculation("many-iimd-0.02"),
        ),
        Statement(
            "same-0.08",
            "difference at p_w = 0.08",
            "almost none",
            _against("e-multfrc", 0.08, "eaio-tfrc"),
            Bound(-0.05, 0.05),
            why="As at 0.02, the more so the more connections there are.",
            calculation=calculation("gain-iimd-0.08"),
        ),
        Statement(
            "n-0.02",
            "E-MULTFRC's n at p_w = 0.02",
            "(figure lost)",
            _n("e-multfrc", 0.02),
            kind=Kind.REPORTED,
        ),
    ),
    figures=(
        Figure(
            "Figure 3(a)",
            "share of 1 Mb/s that arrives",
            "sweep",
            tuple(_name(c, p) for c in ("eaio-tfrc", "e-multfrc") for p in _LOSSES),
            curves=_curves([("eaio-tfrc", "EAIO-TFRC"), ("e-multfrc", "E-MULTFRC")], "used"),
            axes=(_AXIS, "share of the link"),
        ),
    ),
)

_C_C = Experiment(
    id="C-C",
    title="the additive law: MULTFRC and AIO-TFRC",
    paper=PAPER,
    section="2.2",
    scenario=_SCENARIOS / "c-c.toml",
    variants=(
        *_runs("aio-tfrc", "AIO-TFRC", (0.02, 0.08), (0.02,)),
        *_runs("multfrc", "MULTFRC", (0.02, 0.08), (0.02,)),
    ),
    changes=(
        Change(
            "the least mean of 20 s as round trip",
            {
                "flow.video.params.multfrc.rtt_min": "averages",
                "flow.video.params.aio-tfrc.rtt_min": "averages",
            },
        ),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "gain-0.02",
            "AIO-TFRC's share of the link less MULTFRC's, p_w = 0.02",
            "AIO-TFRC higher",
            _against("multfrc", 0.02, "aio-tfrc"),
            Bound(-0.01),
            why=_OTHER_WAY,
            calculation=calculation("gain-iiad-0.02"),
        ),
        Statement(
            "same-0.08",
            "difference at p_w = 0.08",
            "similar",
            _against("multfrc", 0.08, "aio-tfrc"),
            Bound(-0.05, 0.05),
            why="As in C-B: independent estimates of p average out.",
            calculation=calculation("gain-iiad-0.08"),
        ),
        *(
            Statement(
                f"{name}-{p:g}",
                f"{title}'s share of the link, p_w = {p:g}",
                "0.81" if (name, p) == ("multfrc", 0.02) else "(not told)",
                _used(name, p),
                kind=Kind.REPORTED,
            )
            for p in (0.02, 0.08)
            for name, title in (("multfrc", "MULTFRC"), ("aio-tfrc", "AIO-TFRC"))
        ),
    ),
)

_C_D = Experiment(
    id="C-D",
    title="one TFRC connection",
    paper=PAPER,
    section="1",
    scenario=_SCENARIOS / "c-d.toml",
    variants=(*_runs("tfrc", "TFRC", _LOSSES, (0.02,)), *_EAIO_ONCE),
    changes=(
        Change("packets of 1460 B", {"flow.video.packet": "1460B"}),
        Change("ns-2's TFRC", {"flow.video.params.tfrc.profile": "ns2"}),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "used-0.02",
            "TFRC's share of the link, p_w = 0.02",
            "underutilised",
            _used("tfrc", 0.02),
            Bound(0.2, 0.6),
            why="The equation at 2 % and 168 ms gives 0.35 Mb/s, however fast the link is.",
        ),
        Statement(
            "below",
            "least by which EAIO-TFRC exceeds TFRC, p_w from 0.02",
            "EAIO-TFRC higher",
            least([less(_used("eaio-tfrc", p), _used("tfrc", p)) for p in _LOSSES[1:]]),
            Bound(0.0, strict=True),
        ),
        Statement("used-0", "TFRC's share at p_w = 0", "(not told)", _used("tfrc", 0.0), Bound(0.9, 1.005)),
    ),
    figures=(
        Figure(
            "Section 1",
            "one connection, and as many as it takes",
            "sweep",
            tuple(_name(c, p) for c in ("eaio-tfrc", "tfrc") for p in _LOSSES),
            curves=_curves([("eaio-tfrc", "EAIO-TFRC"), ("tfrc", "TFRC")], "used"),
            axes=(_AXIS, "share of the link"),
        ),
    ),
)


def _largest_fall(seen: Seen) -> float:
    n = seen["printed"].flow("video").between("n", 0.0, 1200.0)
    return max((a - b for a, b in pairwise(n)), default=0.0)


def _last_n(variant: str) -> Measure:
    return of(variant, lambda f: f.between("n", 1100.0, 1200.0)[-1])


_C_E = Experiment(
    id="C-E",
    title="α = β = 1 as printed",
    paper=PAPER,
    section="3",
    scenario=_SCENARIOS / "c-e.toml",
    variants=(
        Variant("printed", "α = β = 1", {}),
        Variant("meant", "α = 1/4, β = 3/4", {"flow.video.params.eaio-tfrc": {"alpha": 0.25, "beta": 0.75}}),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "falls",
            "largest fall of n with α = β = 1",
            "eq. 2 wants α = 1 − β",
            _largest_fall,
            Bound(most=0.0),
            why="By algebra: both branches of the law are then n + 1/n. It is MULTFRC's pair of parameters, printed "
            "for another law.",
        ),
        Statement(
            "printed-n",
            "n after 1200 s without any random loss, α = β = 1",
            "(not told)",
            _last_n("printed"),
            Bound(8.0),
        ),
        Statement(
            "meant-n", "the same with α = 1/4, β = 3/4", "(not told)", _last_n("meant"), Bound(1.0, 1.6)
        ),
    ),
)


def _half_hour(what: str, controller: str) -> Measure:
    def measure(seen: Seen) -> float | None:
        flow = seen[controller].flow("video")
        if what == "rate":
            return flow.rate
        return _lost(flow) if what == "loss" else mean(0.0, 1800.0, what)(flow)

    return measure


_C_F = Experiment(
    id="C-F",
    title="1xRTT",
    paper=PAPER,
    section="4, table 1",
    scenario=_SCENARIOS / "c-f.toml",
    expected=False,
    variants=(
        Variant("tfrc", "TFRC", {"flow.video.controller": "tfrc"}),
        Variant("eaio-tfrc", "EAIO-TFRC", {"flow.video.controller": "eaio-tfrc"}),
    ),
    changes=(
        Change("the least mean of 20 s as round trip", {"flow.video.params.eaio-tfrc.rtt_min": "averages"}),
        Change("50 packets of queue", {"link.air.queue.limit": "50p"}),
        Change("a loss of 2 %", {"link.air.loss.p": "0.02"}),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "ratio",
            "EAIO-TFRC's throughput over TFRC's",
            "90/54 = 1.67",
            ratio(_half_hour("rate", "eaio-tfrc"), _half_hour("rate", "tfrc")),
            Bound(1.3, 2.2),
            why="One connection is limited by loss, not by the link; the published gain is 67 %, not 65 %.",
        ),
        Statement(
            "rtt",
            "EAIO-TFRC's round trip over TFRC's",
            "2354/1624 = 1.45",
            ratio(_half_hour("rtts", "eaio-tfrc"), _half_hour("rtts", "tfrc")),
            Bound(1.0, strict=True),
        ),
        Statement("n", "mean n", "1.6", _half_hour("n", "eaio-tfrc"), Bound(1.2, 2.5)),
        *(
            Statement(
                f"{controller}-{what}",
                f"{title}'s {words}",
                published,
                _half_hour(what, controller),
                unit=unit,
                kind=Kind.REPORTED,
                why="The network is gone: a link with its published capacity stands in.",
            )
            for controller, title, figures in (
                ("tfrc", "TFRC", ("54 kb/s", "1624 ms", "0.031")),
                ("eaio-tfrc", "EAIO-TFRC", ("90 kb/s", "2354 ms", "0.039")),
            )
            for (what, words, unit), published in zip(
                (
                    ("rate", "throughput", KBPS),
                    ("rtts", "round trip", Unit(1.0, 0, " ms")),
                    ("loss", "loss", Unit(1.0, 3)),
                ),
                figures,
                strict=True,
            )
        ),
    ),
    real_time=RealTime({"duration": "600s"}, seeds=2),
)


def _pair(variant: str, other: str) -> Measure:
    def measure(seen: Seen) -> float | None:
        run = seen[variant]
        return jain([run.flow("video").rate, run.flow(other).rate])

    return measure


def _over_tcp(variant: str) -> Measure:
    return ratio(of(variant, lambda f: f.rate), of(variant, lambda f: f.rate, "tcp"))


_TCP = "c-g-tcp.toml"

_C_G = Experiment(
    id="C-G",
    title="fairness",
    paper=PAPER,
    section="2.2 and 2.3",
    scenario=_SCENARIOS / "c-g.toml",
    variants=(
        Variant("two", "two EAIO-TFRC", {}),
        Variant("ns2", "EAIO-TFRC and TCP", {}, scenario=_TCP),
        Variant("ns2old", "EAIO-TFRC and a TCP of before 2004", {"flow.tcp.preset": "ns2old"}, scenario=_TCP),
        Variant(
            "cubic",
            "EAIO-TFRC and CUBIC",
            {"flow.tcp.preset": "linux", "flow.tcp.congestion": "cubic"},
            scenario=_TCP,
            changed=False,
        ),
        Variant(
            "tfrc",
            "TFRC and TCP",
            {"flow.video.controller": "tfrc"},
            scenario=_TCP,
            changed=False,
        ),
        Variant(
            "long",
            "EAIO-TFRC and TCP, 3000 s",
            {"duration": "3000s"},
            scenario=_TCP,
            changed=False,
        ),
    ),
    changes=(
        Change("the least mean of 20 s as round trip", {"flow.video.params.eaio-tfrc.rtt_min": "averages"}),
        Change("queues of 20 packets", {"topology.bottleneck.queue.limit": "20p"}),
        Change("a TCP whose window does not limit", {"flow.tcp.window": "256p"}, variants=("ns2", "ns2old")),
        Change("RED", {"topology.bottleneck.queue": {"kind": "red", "limit": "50p", "preset": "classic"}}),
        *managed("topology.bottleneck.queue"),
    ),
    source=_SOURCE,
    statements=(
        Statement(
            "itself",
            "Jain's index of two EAIO-TFRC",
            '"highly fair to itself"',
            _pair("two", "second"),
            Bound(0.9),
            why="Both see the same round trip and so the same sign of congestion; n near 1 for both.",
        ),
        *(
            Statement(
                f"tcp-{variant}",
                f"EAIO-TFRC's throughput over that of {title}",
                '"relatively fair to TCP"',
                _over_tcp(variant),
                Bound(0.5, 2.0),
                why="n stays near 1: it is TFRC against TCP, and a single TFRC connection takes as much here (below). "
                "At one drop-tail queue a paced flow loses less than bursts do.",
            )
            for variant, title in (("ns2", "ns-2's TCP"), ("ns2old", "ns-2's TCP of before 2004"))
        ),
        Statement(
            "tcp-cubic",
            "EAIO-TFRC's throughput over CUBIC's",
            "(later than the paper)",
            _over_tcp("cubic"),
            kind=Kind.REPORTED,
        ),
        Statement(
            "tcp-tfrc",
            "one TFRC connection's throughput over ns-2's TCP's",
            "(for comparison)",
            _over_tcp("tfrc"),
            kind=Kind.REPORTED,
            why="What a single connection does to this TCP.",
        ),
        Statement(
            "tcp-long",
            "the same over ns-2's TCP in 3000 s",
            "(300 s above)",
            _over_tcp("long"),
            Bound(0.5, 2.0),
            why="As in 300 s: with the least single round trip as measure a standing queue is never taken "
            "for the way, and n does not run away.",
        ),
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_C_A, _C_B, _C_C, _C_D, _C_E, _C_F, _C_G)
