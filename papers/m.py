"""Family M: MPEG-TFRCP.

Miyabayashi, Wakamiya, Murata, Miyahara: MPEG-TFRCP: Video Transfer with TCP-friendly Rate Control Protocol (2001).
Its testbed is simulated: one link in place of two shared hubs and a router. Its figures are lost; table I is not.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from papers.engine import measure
from papers.engine.experiment import (
    DB,
    MBPS,
    PERCENT,
    RATIO,
    SCORE,
    Bound,
    Change,
    Experiment,
    Figure,
    Kind,
    RealTime,
    Seen,
    Statement,
    Unit,
    Variant,
)
from papers.engine.observe import Flow

PAPER = "Miyabayashi, Wakamiya, Murata, Miyahara: MPEG-TFRCP (2001)"
SOURCE = "rates of paper 001, no pictures"

# ---------------------------------------------------------------- what differs


def _variant(name: str, title: str) -> Variant:
    return Variant(name, title, {"flow.video.controller": name})


ORIGINAL = _variant("tfrcp", "original")
EAI = _variant("tfrcp-eai", "EAI")
QAI = _variant("tfrcp-qai", "QAI")
EAI_CL = replace(
    _variant("tfrcp-eai-cl", "EAI-CL"),
    sets={"flow.video.controller": "tfrcp-eai-cl", "flow.video.params.tfrcp-eai-cl": {"r0": "highest"}},
)
QAI_CL = _variant("tfrcp-qai-cl", "QAI-CL")
UDP = Variant(
    "fixed",
    "UDP",
    {"flow.video.controller": "fixed", "flow.video.params.fixed": {"rate": "5.3Mbps"}},
)
_KS = (8, 16, 32, 64, 96)
SWEEP = tuple(
    Variant(
        f"{k}-rtt",
        f"{k} RTT",
        {"flow.video.params.tfrcp-qai-cl": {"k": k, "interval_round": "frame"}},
    )
    for k in _KS
)

_BURST = Change("each frame as a burst", {"flow.video.emit": "burst"})
_WINDOW = Change("TCP with a window of 32 packets", {"flow.tcp.window": "32p"})
_QUEUE = Change("a queue of 60 packets", {"topology.bottleneck.queue.limit": "60p"})
_LARGE_I = Change("I frames of two P frames", {"flow.video.map001": {"exponent": 0.9, "intra": 2}})
_CUBIC = Change("TCP of today (CUBIC)", {"flow.tcp.congestion": "cubic", "flow.tcp.window": "4000p"})
_OPEN = (_BURST, _QUEUE, _LARGE_I, _WINDOW, _CUBIC)

# ---------------------------------------------------------------- how it is measured

_FIRST = 5
"""The second in which the video starts."""


def _rate(flow: Flow) -> float:
    return flow.rate


def _wanted(flow: Flow) -> list[float]:
    """Return the target, second by second, once the first group of pictures is over."""
    return flow.targets[_FIRST + 2 :]


def _swing(flow: Flow) -> float | None:
    return measure.variation(_wanted(flow))


def _turns(flow: Flow) -> float:
    """Count sign changes of the target's steps, per hundred steps."""
    steps = [b - a for a, b in pairwise(_wanted(flow)) if a != b]
    turns = sum((a > 0) != (b > 0) for a, b in pairwise(steps))
    return 100.0 * turns / len(steps) if steps else 0.0


_WORST_BPS = 5.25e6 * (12 / 62) ** 0.9


def _starved(flow: Flow) -> float:
    """Share of seconds in which the target is below the worst picture's rate."""
    wanted = _wanted(flow)
    return sum(x < _WORST_BPS for x in wanted) / len(wanted)


def _friendliness(variant: str) -> measure.Measure:
    """Divide the video's throughput by TCP's (mean over the TCPs)."""

    def of(seen: Seen) -> float | None:
        run = seen[variant]
        tcps = [run.flow(name).rate for name in run.content["flows"] if name.startswith("tcp")]
        return run.flow("video").rate / statistics.fmean(tcps)

    return of


def _losses(flow: Flow) -> list[tuple[float, float]]:
    """Return the loss that went into each decision."""
    return [(t, loss) for t, _, loss, _ in flow.decisions if loss is not None]


def _kept(seen: Seen) -> float | None:
    """Divide the cumulative loss after 60 groups of pictures by its peak."""
    losses = _losses(seen["tfrcp-eai-cl"].flow("video"))
    until = [p for t, p in losses if t <= _FIRST + 60 * 1.001]
    return until[-1] / max(p for _, p in losses) if until else None


def _early(flow: Flow) -> float:
    return statistics.fmean(flow.rates[_FIRST : _FIRST + 60])


def _decided(flow: Flow) -> float:
    return float(len(flow.decisions))


def _least(variants: tuple[Variant, ...]) -> measure.Measure:
    """Take the least of the others' swings off QAI-CL's."""

    def of(seen: Seen) -> float | None:
        others = [_swing(seen[v.name].flow("video")) for v in variants if v.name != "tfrcp-qai-cl"]
        own = _swing(seen["tfrcp-qai-cl"].flow("video"))
        known = [x for x in others if x is not None]
        return own - min(known) if own is not None and known else None

    return of


def _trend(what: str) -> measure.Measure:
    """Correlate ranks of a number with the interval's length, over the five."""

    def measured(seen: Seen) -> float | None:
        ys = []
        for k in _KS:
            name = f"{k}-rtt"
            y = _friendliness(name)(seen) if what == "friendliness" else _decided(seen[name].flow("video"))
            if y is None:
                return None
            ys.append(y)
        return measure.rank_correlation([float(k) for k in _KS], ys)

    return measured


_LOSSES = ("losses", "share of packets lost")
TURNS = Unit(1.0, 0, " per 100")
DECISIONS = Unit(1.0, 0, " decisions")

# ---------------------------------------------------------------- the eight experiments

_SCENARIOS = Path("papers/scenarios")


def _experiment(
    letter: str,
    title: str,
    section: str,
    variants: tuple[Variant, ...],
    statements: tuple[Statement, ...],
    changes: tuple[Change, ...] = (),
    figures: tuple[Figure, ...] = (),
    ladder: str = SOURCE,
    real_time: RealTime | None = None,
) -> Experiment:
    return Experiment(
        id=f"M-{letter}",
        title=title,
        paper=PAPER,
        section=section,
        scenario=_SCENARIOS / f"m-{letter.lower()}.toml",
        variants=variants,
        statements=statements,
        changes=changes,
        figures=figures,
        sizes={},
        ladder=ladder,
        real_time=real_time,
    )


def _score(value: str) -> Statement:
    return Statement(
        "mos",
        "mean opinion score",
        value,
        lambda _: None,
        unit=SCORE,
        kind=Kind.IMPOSSIBLE,
        why="A panel of viewers, of unknown size, and a clip that is not to be had.",
    )


def _of_pictures(variant: str, score: str, what: str = "") -> tuple[Statement, ...]:
    """Tell what the viewer of a clip gets, without a bound: the clip is not the paper's."""
    told: tuple[tuple[str, str, str, measure.Of, Unit], ...] = (
        ("score", "mean opinion score, from each frame's PSNR", score, lambda f: f.score, SCORE),
        ("psnr", "mean PSNR, luma", "", lambda f: f.mean_psnr_db, DB),
        ("broken", "share of frames with a packet missing", "", lambda f: f.lost, PERCENT),
        ("rate", "the video's throughput", "", _rate, MBPS),
    )
    clip = "Another clip, and no panel."
    return tuple(
        Statement(
            f"{variant}-{id}",
            text + what,
            published or "(not told)",
            measure.of(variant, of),
            unit=unit,
            kind=Kind.REPORTED,
            pixels=True,
            why=clip if id == "score" else "",
        )
        for id, text, published, of, unit in told
    )


def _real_time(pictures: tuple[Statement, ...], seeds: int = 3, cubic: tuple[Variant, ...] = ()) -> RealTime:
    """120 groups of pictures, with the rates of figure 2 and once with a clip."""
    return RealTime(
        {"duration": "126s"},
        seeds,
        (replace(_CUBIC, variants=tuple(v.name for v in cubic)),) if cubic else (),
        {"flow.video.encode.size": "640x480", "flow.video.encode.fps": 30},
        pictures,
    )


def _throughputs(variant: str, video: str, tcp: str) -> tuple[Statement, ...]:
    return (
        Statement(
            "video",
            "the video's throughput",
            video,
            measure.of(variant, _rate),
            unit=MBPS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "tcp", "TCP's throughput", tcp, measure.of(variant, _rate, "tcp"), unit=MBPS, kind=Kind.REPORTED
        ),
    )


_M_0 = _experiment(
    "0",
    "the original rule in simulation",
    "II.A, figure 3",
    (ORIGINAL, EAI),
    ladder="a source that always has data",
    changes=(
        Change("TCP of ns-2.35 (time-out 0.2 s)", {"flow.tcp.preset": "ns2"}),
        Change("a round trip of 200 ms", {"topology.bottleneck.delay": "95ms"}),
        Change("a round trip of 400 ms", {"topology.bottleneck.delay": "195ms"}),
        Change(
            "a round trip of 400 ms, and a TCP whose window does not limit it there",
            {"topology.bottleneck.delay": "195ms", "flow.tcp.window": "256p"},
        ),
        Change(
            "reports every five frames, not ACKs",
            {"flow.video.params.tfrcp": {"ack": "report"}, "flow.video.params.tfrcp-eai": {"ack": "report"}},
        ),
    ),
    statements=(
        Statement(
            "friendliness",
            "throughput over a TCP's mean",
            "behaves similarly, shares fairly",
            _friendliness("tfrcp"),
            Bound(0.5, 1.5),
            why="TCP's throughput at the loss fraction: near TCP's own where losses come one by one, below it "
            "where they come in bursts. Above it where TCP waits for coarse time-outs.",
        ),
        Statement(
            "smoother",
            "variation of the target: EAI's less the original's",
            "EAI smoother at a large, stable RTT",
            measure.more("tfrcp-eai", "tfrcp", _swing),
            Bound(most=0.0),
            why="An interval of k·RTT makes the step MTU·k/RTT. Doubling adds the fair share of 0.9 Mb/s: the step is "
            "smaller from 280 ms on. At 100 ms it is 3.2 Mb/s.",
        ),
    ),
    figures=(
        Figure("Figure 3", "Rates of a TCP and of MPEG-TFRCP", "rates", ("tfrcp", "tfrcp-eai"), top=7.5),
    ),
)

_M_A = _experiment(
    "A",
    "UDP beside TCP",
    "III, figure 6",
    (UDP,),
    statements=(
        Statement(
            "udp",
            "UDP's throughput",
            "5.25 Mb/s",
            measure.of("fixed", _rate),
            Bound(5.25e6 * 0.97, 5.25e6 * 1.03),
            MBPS,
            why="It answers to nothing; what is missing was lost.",
        ),
        Statement(
            "tcp",
            "TCP's throughput over what UDP leaves of 7.2 Mb/s",
            "2.27 Mb/s of 7.52",
            lambda seen: seen["fixed"].flow("tcp").rate / (7.2e6 - seen["fixed"].flow("video").rate),
            Bound(0.85, 1.15),
            RATIO,
        ),
        _score("4.25"),
    ),
    changes=_OPEN,
    figures=(Figure("Figure 6", "Rates of UDP and of TCP", "rates", ("fixed",), top=7.5),),
    real_time=_real_time(_of_pictures("fixed", "4.25"), cubic=(UDP,)),
)

_M_B = _experiment(
    "B",
    "the original rule",
    "III.A, figures 7 and 8",
    (ORIGINAL, QAI_CL, UDP),
    changes=_OPEN,
    statements=(
        Statement(
            "swing",
            "variation of the target: times QAI-CL's",
            "frequent and considerable fluctuation",
            measure.times("tfrcp", "tfrcp-qai-cl", _swing),
            Bound(2.0),
            why="The loss of one interval is one burst or none: the equation and the doubling take turns.",
        ),
        Statement(
            "starved",
            "share of seconds with a target below the worst picture's rate",
            "it happens: nothing is shown",
            measure.of("tfrcp", _starved),
            Bound(0.0, strict=True),
            PERCENT,
            why="A burst of a few per cent of an interval's packets is enough.",
        ),
        Statement(
            "tcp-more",
            "TCP's throughput beyond that beside UDP",
            "degraded less",
            measure.more("tfrcp", "fixed", _rate, "tcp"),
            Bound(0.0, strict=True),
            MBPS,
        ),
        *_throughputs("tfrcp", "(figure)", "(figure)"),
        _score("1.25"),
    ),
    figures=(
        Figure("Figure 7", "Rates of the original rule and of TCP", "rates", ("tfrcp",), top=7.5),
        Figure("Figure 8", "Share of packets lost, the original rule", "series", ("tfrcp",), axes=_LOSSES),
    ),
    real_time=_real_time(_of_pictures("tfrcp", "1.25")),
)

_M_C = _experiment(
    "C",
    "additive increase by the equation",
    "III.B, figure 9",
    (EAI, ORIGINAL, QAI_CL),
    changes=_OPEN,
    statements=(
        Statement(
            "swing",
            "variation of EAI's target: times QAI-CL's",
            "considerable oscillation",
            measure.times("tfrcp-eai", "tfrcp-qai-cl", _swing),
            Bound(1.5),
            why="A step without loss is MTU·I/RTT²: 8.9 Mb/s at 30 ms, more than the link.",
        ),
        Statement(
            "turns",
            "turns of EAI's target beyond QAI-CL's",
            "oscillates",
            measure.more("tfrcp-eai", "tfrcp-qai-cl", _turns),
            Bound(0.0, strict=True),
            TURNS,
            why="QAI-CL's steps are small, but they turn as well: its cumulative loss goes up and down.",
        ),
        Statement(
            "aggressive",
            "highest target: EAI's over the original's",
            "sometimes more aggressive",
            measure.times("tfrcp-eai", "tfrcp", lambda f: max(_wanted(f))),
            Bound(1.0, strict=True),
        ),
        *_throughputs("tfrcp-eai", "(figure)", "(figure)"),
    ),
    figures=(Figure("Figure 9", "Rates of EAI and of TCP", "rates", ("tfrcp-eai",), top=7.5),),
    real_time=_real_time(_of_pictures("tfrcp-eai", "")),
)

_M_D = _experiment(
    "D",
    "additive increase by the quantizer",
    "III.B, figure 10",
    (QAI, ORIGINAL),
    changes=_OPEN,
    statements=(
        Statement(
            "friendliness",
            "QAI's throughput over TCP's",
            "0.545 (2.34 over 4.29 Mb/s)",
            _friendliness("tfrcp-qai"),
            Bound(0.35, 0.75),
            why="One lossy interval throws it far below its share, and it comes back a quantizer at a time.",
        ),
        Statement(
            "swing",
            "variation of the target: QAI's less the original's",
            "smaller",
            measure.more("tfrcp-qai", "tfrcp", _swing),
            Bound(most=0.0, strict=True),
            why="Both fall alike at a loss; QAI rises in smaller steps, but stays low for longer.",
        ),
        *_throughputs("tfrcp-qai", "2.34 Mb/s", "4.29 Mb/s"),
        _score("2.50"),
    ),
    figures=(Figure("Figure 10", "Rates of QAI and of TCP", "rates", ("tfrcp-qai",), top=7.5),),
    real_time=_real_time(_of_pictures("tfrcp-qai", "2.50"), cubic=(QAI,)),
)

_M_E = _experiment(
    "E",
    "EAI with cumulative loss",
    "III.C, figure 11",
    (EAI_CL, QAI_CL),
    changes=_OPEN,
    statements=(
        Statement(
            "kept",
            "cumulative loss after 60 groups of pictures, over its peak",
            "stays high persistently",
            _kept,
            Bound(0.5),
            why="It begins at the best picture's 26 Mb/s and loses most of its first interval; then it sends so little "
            "that the fraction hardly falls.",
        ),
        Statement(
            "early",
            "mean rate of the first 60 s: EAI-CL's less QAI-CL's",
            "users wait long",
            measure.more("tfrcp-eai-cl", "tfrcp-qai-cl", _early),
            Bound(most=0.0, strict=True),
            MBPS,
        ),
        *_throughputs("tfrcp-eai-cl", "(figure)", "(figure)"),
    ),
    figures=(
        Figure("Figure 11", "Rates of EAI-CL and of TCP", "rates", ("tfrcp-eai-cl",), top=10.0),
        Figure(
            "Figure 11, losses", "Share of packets lost, EAI-CL", "series", ("tfrcp-eai-cl",), axes=_LOSSES
        ),
    ),
    real_time=_real_time(_of_pictures("tfrcp-eai-cl", "")),
)

_ALL = (ORIGINAL, EAI, QAI, EAI_CL, QAI_CL)

_M_F = _experiment(
    "F",
    "QAI with cumulative loss",
    "III.C, figure 12",
    _ALL,
    changes=_OPEN,
    statements=(
        Statement(
            "friendliness",
            "QAI-CL's throughput over TCP's",
            "0.802 (2.97 over 3.70 Mb/s)",
            _friendliness("tfrcp-qai-cl"),
            Bound(0.6, 1.1),
            why="A loss fraction counts each packet of a burst; the larger the encoder's bursts, the more.",
        ),
        Statement(
            "steadiest",
            "variation of the target: QAI-CL's less the least of the others'",
            "relatively small",
            _least(_ALL),
            Bound(most=0.0, strict=True),
            why="Where no loss came first, EAI-CL and QAI-CL are the same equation; with EAI-CL's heavy first loss it "
            "falls and creeps back.",
        ),
        Statement(
            "fairer",
            "friendliness: QAI-CL's less QAI's",
            "fairer than QAI",
            lambda seen: _difference(_friendliness("tfrcp-qai-cl")(seen), _friendliness("tfrcp-qai")(seen)),
            Bound(0.0, strict=True),
        ),
        *_throughputs("tfrcp-qai-cl", "2.97 Mb/s", "3.70 Mb/s"),
        _score("3.00"),
    ),
    figures=(
        Figure("Figure 12", "Rates of QAI-CL and of TCP", "rates", ("tfrcp-qai-cl",), top=7.5),
        Figure(
            "Figure 12, losses", "Share of packets lost, QAI-CL", "series", ("tfrcp-qai-cl",), axes=_LOSSES
        ),
    ),
    real_time=_real_time(_of_pictures("tfrcp-qai-cl", "3.00"), cubic=(QAI, QAI_CL)),
)


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


_TABLE = {8: (3.10, 3.53), 16: (2.87, 3.71), 32: (2.97, 3.70), 64: (2.51, 4.06), 96: (2.33, 4.29)}
_SCORES = {8: "2.25", 16: "3.25", 32: "3.00", 64: "3.33", 96: "2.50"}

_M_G = _experiment(
    "G",
    "the control interval",
    "III.D, table I",
    SWEEP,
    changes=(
        Change(
            "intervals in groups of pictures",
            {"flow.video.params.tfrcp-qai-cl.interval_round": "gop"},
        ),
        _BURST,
        _QUEUE,
        _WINDOW,
    ),
    statements=(
        Statement(
            "trend",
            "rank correlation of friendliness with the interval",
            "0.878 at 8 down to 0.543 at 96",
            _trend("friendliness"),
            Bound(most=-0.6),
            why="The cumulative loss, not the interval, sets the rate: an interval only says how often it is looked "
            "at. In some runs the loss of the start stays.",
        ),
        Statement(
            "ends",
            "friendliness at 96 round trips less that at 8",
            "−0.335",
            lambda seen: _difference(_friendliness("96-rtt")(seen), _friendliness("8-rtt")(seen)),
            Bound(most=0.0, strict=True),
        ),
        Statement(
            "changes",
            "rank correlation of the number of decisions with the interval",
            "frequent control varies more",
            _trend("decisions"),
            Bound(most=-0.9),
            why="There is a decision per interval.",
        ),
        *(
            Statement(
                f"friendliness-{k}",
                f"friendliness at {k} round trips",
                f"{video / tcp:.3f} ({video:.2f} over {tcp:.2f} Mb/s)",
                _friendliness(f"{k}-rtt"),
                kind=Kind.REPORTED,
            )
            for k, (video, tcp) in _TABLE.items()
        ),
        _score(", ".join(f"{v} at {k}" for k, v in _SCORES.items())),
    ),
    real_time=_real_time(
        tuple(s for k in _KS for s in _of_pictures(f"{k}-rtt", _SCORES[k], f", at {k} round trips")), seeds=1
    ),
)

EXPERIMENTS = (_M_0, _M_A, _M_B, _M_C, _M_D, _M_E, _M_F, _M_G)
