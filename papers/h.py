"""Family H: rate control by the receiver's buffer.

Hong, Park: A Cost-Effective Rate Control for Streaming Video for Wireless Portable Devices (2011). Most of its
networks are not told; its figures are lost, table 1 is not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from papers.engine import measure
from papers.engine.calculate import calculation
from papers.engine.experiment import (
    MS,
    PERCENT,
    SECONDS,
    SHARE,
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
)
from papers.engine.observe import Flow

PAPER = "Hong, Park: A Cost-Effective Rate Control for Streaming Video for Wireless Portable Devices (2011)"

KBPS = Unit(1e-3, 1, " kb/s")
TIMES = Unit(1.0, 0, " times")
NS_PER_BYTE = Unit(1e6, 0, " ns/B")
WINDOW = Unit(1.0, 2, " packets")

# ---------------------------------------------------------------- what differs

_SIZES = (100, 300, 600, 900, 1200, 1500)
HOPS = tuple(
    Variant(f"{hop}-{size}", f"{hop}, {size} B", {"flow.video.to": [to], "flow.video.packet": f"{size}B"})
    for hop, to in (("wired", "ap"), ("wireless", "pda"))
    for size in _SIZES
)

_DELAYS = (1, 5, 10, 20, 30, 50)
_PACKETS = (500, 1000, 1500)
TRAINS = tuple(
    Variant(
        f"{size}-{ms}",
        f"{size} B, {ms} ms",
        {"flow.video.packet": f"{size}B", "flow.video.params.no-control": {"ipd_min": f"{ms}ms"}},
    )
    for size in _PACKETS
    for ms in _DELAYS
)

_ERRORS = (5, 10, 15, 20)
ERRORS = (
    Variant("none", "no errors", {"link.air.loss.p": 0}),
    *(Variant(f"{p}", f"{p} %", {"link.air.loss.p": p / 100}) for p in _ERRORS),
)

_WINDOWS = (4, 8, 16, 32)
WINDOWS = tuple(Variant(f"{kib}", f"{kib} KiB", {"flow.tcp.window": f"{kib}p"}) for kib in _WINDOWS)

TYPE1 = Variant("type1", "type-I", {"flow.video.controller": "rbuf-type1"})
TYPE2 = Variant("type2", "type-II", {"flow.video.controller": "rbuf-type2"})

_KIB = (8, 16, 32)
BUFFERS = tuple(Variant(f"{kib}", f"{kib} KiB", {"flow.video.buffer.size": f"{kib}KiB"}) for kib in _KIB)

_N = (0, 8, 16, 24, 32, 40, 48)


def _among(n: int) -> dict[str, object]:
    # None at all: one that starts when the run ends.
    return {"flow.tcp.count": n} if n else {"flow.tcp.count": 1, "flow.tcp.start": "104.9s"}


_SCHEMES = {"type1": ("type-I", "rbuf-type1"), "tfrc": ("TFRC", "tfrc")}
CROWDS = tuple(
    Variant(
        f"{scheme}-{n}",
        f"{title}, {n} TCPs",
        {"flow.video.controller": controller, **_among(n)},
    )
    for scheme, (title, controller) in _SCHEMES.items()
    for n in _N
)
CROWDED = tuple(v for v in CROWDS if v.name.endswith("-48"))

_PAPER_MODE = Change("type-I with the signs and the stable state as printed", {"flow.video.mode": "paper"})
_SMALL = Change("packets of 160 B", {"flow.video.packet": "160B"})
_STEADY = Change("a round trip without jitter", {"link.air.jitter.mean": "1us"})

# ---------------------------------------------------------------- how it is measured


def _rate(flow: Flow) -> float:
    return flow.rate


def _rtts(flow: Flow) -> list[float]:
    return [rtt for t, _, _, rtt in flow.decisions if rtt is not None and t > 1.0]


def _rtt(flow: Flow) -> float:
    return statistics.fmean(_rtts(flow))


def _line(hop: str) -> Callable[[Seen], tuple[float, float]]:
    """Slope in ms per byte of the round trip over the size, and the fit's R²."""

    def fit(seen: Seen) -> tuple[float, float]:
        y = [_rtt(seen[f"{hop}-{size}"].flow("video")) for size in _SIZES]
        slope, _ = statistics.linear_regression(_SIZES, y)
        return slope, statistics.correlation([float(s) for s in _SIZES], y) ** 2

    return fit


def _time(seen: Seen, size: int, ms: int) -> float:
    """Seconds for 1 MB."""
    return 8e6 / seen[f"{size}-{ms}"].flow("video").rate


def _least_growth(seen: Seen) -> float:
    return min(measure.least_step([_time(seen, size, ms) for ms in _DELAYS]) for size in _PACKETS)


def _reaction(size: int) -> measure.Measure:
    return lambda seen: _time(seen, size, 20) / _time(seen, size, 1)


def _window(flow: Flow) -> float:
    return float(flow.content["cwnd_packets"]["mean"])


def _srtt(flow: Flow) -> float | None:
    srtt = flow.content["srtt_ms"]["p50"]
    return None if srtt is None else float(srtt)


def _done(flow: Flow) -> float | None:
    done = flow.content["completed_s"]
    return None if done is None else float(done)


def _steps(values: list[float]) -> list[float]:
    return [abs(b - a) for a, b in pairwise(values)]


def _follow(flow: Flow) -> float | None:
    """Correlation of the level's changes with the rate's, over steps of 25 ms."""
    # The rate answers a round later.
    level, rate = _steps(flow.buffer), _steps(flow.targets)[1:]
    n = min(len(level), len(rate))
    try:
        return statistics.correlation(level[:n], rate[:n])
    except statistics.StatisticsError:
        return None


def _period(flow: Flow) -> float:
    """Time between two adjustments, over the round trip."""
    at = [t for t, *_ in flow.decisions if t > 5.0]
    return statistics.fmean(b - a for a, b in pairwise(at)) * 1e3 / _rtt(flow)


def _entries(flow: Flow) -> float:
    """Count how often the sender saw the buffer enter overflow."""
    rules = [rule == "overflow" for _, rule, _, _ in flow.decisions]
    return float(sum(b and not a for a, b in pairwise(rules)))


def _amplitude(flow: Flow) -> float:
    """Return the standard deviation of the rate's steps of 25 ms, after 5 s."""
    late = flow.targets[200:]
    return statistics.pstdev([b - a for a, b in pairwise(late)])


def _swing(flow: Flow) -> float | None:
    return measure.variation(flow.targets[20:])


def _over_buffers(what: Callable[[Flow], float | None]) -> measure.Measure:
    """Least step from one buffer to the next larger one, as a share of the first."""

    def of(seen: Seen) -> float | None:
        values = [what(seen[str(kib)].flow("video")) for kib in _KIB]
        known = [v for v in values if v is not None]
        return measure.least_step(known) / known[0] if len(known) == len(_KIB) and known[0] else None

    return of


def _slowest(flow: Flow) -> float:
    """Return the least 1-s rate, once all are there."""
    return min(flow.rates[15:-1])


def _buffered(flow: Flow) -> float:
    """Packets that did not fit into the buffer, over those sent."""
    return float(flow.content["buffer_overflows"] or 0) / float(flow.content["sent_packets"])


def _overall(flow: Flow) -> float:
    return flow.lost_packets + _buffered(flow)


def _buffer_share(flow: Flow) -> float:
    lost = _overall(flow)
    return _buffered(flow) / lost if lost else 0.0


def _trend(scheme: str, what: Callable[[Flow], float]) -> measure.Measure:
    def of(seen: Seen) -> float | None:
        ys = [what(seen[f"{scheme}-{n}"].flow("video")) for n in _N]
        # What never changes has no trend.
        return measure.rank_correlation([float(n) for n in _N], ys) or 0.0

    return of


def _least_excess(seen: Seen) -> float:
    """TFRC's share less type-I's, least over those n at which either is above 2 %."""
    pairs = [
        (_buffer_share(seen[f"tfrc-{n}"].flow("video")), _buffer_share(seen[f"type1-{n}"].flow("video")))
        for n in _N
    ]
    return min((a - b for a, b in pairs if max(a, b) > 0.02), default=0.0)


def _inside(flow: Flow) -> float:
    """Share of time, after 10 s, with the level between a fifth and nine tenths of 16 KiB."""
    late = flow.buffer[200:]
    return sum(0.2 <= level / 16_384 <= 0.9 for level in late) / len(late)


def _overflows(flow: Flow) -> float:
    return float(flow.content["buffer_overflows"])


# ---------------------------------------------------------------- the twelve experiments

_SCENARIOS = Path("papers/scenarios")
_BOUNDS = ((0.2 * 16_384, "a fifth"), (0.9 * 16_384, "nine tenths"))


def _sweep(
    number: str,
    title: str,
    axes: tuple[str, str],
    lines: list[tuple[str, list[tuple[int, str]]]],
    what: Callable[[Flow], float],
    flow: str = "video",
) -> Figure:
    curves = tuple(
        Curve(label, tuple((float(x), name) for x, name in points), lambda run: what(run.flow(flow)))
        for label, points in lines
    )
    variants = tuple(name for _, points in lines for _, name in points)
    return Figure(number, title, "sweep", variants, curves=curves, axes=axes, flow=flow)


def _experiment(
    letter: str,
    title: str,
    section: str,
    variants: tuple[Variant, ...],
    statements: tuple[Statement, ...],
    changes: tuple[Change, ...] = (),
    figures: tuple[Figure, ...] = (),
    *,
    real_time: RealTime | None = None,
    expected: bool = True,
) -> Experiment:
    return Experiment(
        id=f"H-{letter}",
        expected=expected,
        title=title,
        paper=PAPER,
        section=section,
        scenario=_SCENARIOS / f"h-{letter.lower()}.toml",
        variants=variants,
        statements=statements,
        changes=changes,
        figures=figures,
        sizes={},
        ladder="a source that always has data",
        real_time=real_time,
    )


_H_A = _experiment(
    "A",
    "round-trip time and packet size",
    "3.1, figure 1",
    HOPS,
    (
        Statement(
            "wired",
            "R² of a line through the round trips, wired",
            "linear",
            lambda seen: _line("wired")(seen)[1],
            Bound(0.9),
            why="A packet's time on the wire is its size over the rate.",
        ),
        Statement(
            "wireless",
            "R² of a line through the round trips, wireless",
            "linear, with fluctuation",
            lambda seen: _line("wireless")(seen)[1],
            Bound(0.7),
        ),
        Statement(
            "steeper",
            "slope: wireless less wired",
            "steeper over the wireless hop",
            lambda seen: _line("wireless")(seen)[0] - _line("wired")(seen)[0],
            Bound(0.0, strict=True),
            NS_PER_BYTE,
        ),
    ),
    figures=(
        _sweep(
            "Figure 1",
            "Round-trip time over packet size",
            ("packet (B)", "round trip (ms)"),
            [(hop, [(size, f"{hop}-{size}") for size in _SIZES]) for hop in ("wired", "wireless")],
            _rtt,
        ),
    ),
)

_H_B = _experiment(
    "B",
    "transfer time and delay between packets",
    "3.3 and 4.3, figures 4 and 8",
    TRAINS,
    (
        Statement(
            "monotone",
            "least growth of the time from one delay to the next",
            "increases with the delay",
            _least_growth,
            Bound(0.0, strict=True),
            SECONDS,
        ),
        Statement(
            "small",
            "growth from 1 to 20 ms: of 500 B over that of 1500 B",
            "smaller packets react more",
            lambda seen: (_reaction(500)(seen) or 0.0) / (_reaction(1500)(seen) or 1.0),
            Bound(1.0, strict=True),
            why="Their own time, t(S) = 1 ms + 4 µs/B, is the smaller part.",
        ),
        Statement(
            "quarter",
            "rate at 20 ms over that at 1 ms, 1000 B",
            "24 %",
            lambda seen: _time(seen, 1000, 1) / _time(seen, 1000, 20),
            unit=SHARE,
            kind=Kind.REPORTED,
            why="t(1000 B) = 5 ms is chosen so: a calibration, no reproduction.",
        ),
        Statement(
            "beyond",
            "growth per ms beyond 20 ms over that below, 1000 B",
            "sharp beyond 20 ms",
            lambda seen: (
                (_time(seen, 1000, 50) - _time(seen, 1000, 20))
                / 30
                / ((_time(seen, 1000, 20) - _time(seen, 1000, 1)) / 19)
            ),
            kind=Kind.REPORTED,
            why="A train of packets with a delay between them is linear in the delay; the rest was the testbed's.",
        ),
    ),
    figures=(
        _sweep(
            "Figure 4",
            "Time of 1 MB over the delay between packets, 1000 B",
            ("delay (ms)", "time (s)"),
            [("1000 B", [(ms, f"1000-{ms}") for ms in _DELAYS])],
            lambda flow: 8e6 / flow.rate,
        ),
        _sweep(
            "Figure 8",
            "Time of 1 MB over the delay between packets",
            ("delay (ms)", "time (s)"),
            [(f"{size} B", [(ms, f"{size}-{ms}") for ms in _DELAYS]) for size in _PACKETS],
            lambda flow: 8e6 / flow.rate,
        ),
    ),
)

_TABLE_1 = {5: (21.4, 313.47), 10: (22.05, 215.12), 15: (23.75, 163.07), 20: (29.15, 115.06)}


def _formula(p: int, rtt_ms: float) -> float:
    """Eq. 2 in packets per second, with k = 1.5 (the paper prints 1,502)."""
    return 1.5 / (rtt_ms / 1e3 * math.sqrt(p / 100))


_H_C = _experiment(
    "C",
    "rate and error rate",
    "4.2, table 1 and figure 6",
    ERRORS,
    (
        Statement(
            "table",
            "table 1 by eq. 2 with k = 1.5: largest relative difference",
            "313.47, 215.12, 163.07, 115.06 · S",
            lambda _: max(abs(_formula(p, rtt) / rate - 1.0) for p, (rtt, rate) in _TABLE_1.items()),
            Bound(most=1e-4),
            Unit(1e6, 1, " · 10⁻⁶"),
            why="The printed k = 1,502 would give 313.89 in the first column.",
        ),
        Statement(
            "window",
            "least fall of the mean window from one error rate to the next",
            "falls with the error rate",
            lambda seen: measure.least_step([-_window(seen[str(p)].flow("tcp")) for p in _ERRORS]),
            Bound(0.0, strict=True),
            WINDOW,
        ),
        *(
            Statement(
                f"rtt-{name}",
                f"smoothed round trip, {'no errors' if name == 'none' else name + ' % errors'}",
                published,
                measure.of(name, _srtt, "tcp"),
                unit=MS,
                kind=Kind.REPORTED,
                why="The paper's grows with the errors, so its link retransmits; ours does not."
                if name == "20"
                else "",
            )
            for name, published in (("none", "19 ms"), ("5", "21.4 ms"), ("20", "29.15 ms"))
        ),
    ),
    changes=(
        Change("retransmission on the wireless hop", {"link.air.arq": {"tries": 2, "per_try": "3ms"}}),
        Change("CUBIC with SACK", {"flow.tcp.preset": "linux", "flow.tcp.congestion": "cubic"}),
    ),
    figures=(
        _sweep(
            "Figure 6",
            "Mean congestion window over the error rate",
            ("error rate (%)", "window (packets)"),
            [("TCP", [(0, "none"), *((p, str(p)) for p in _ERRORS)])],
            _window,
            "tcp",
        ),
    ),
)

_H_D = _experiment(
    "D",
    "transfer time and receive buffer",
    "4.2, figure 7",
    WINDOWS,
    (
        Statement(
            "shorter",
            "least gain of time from one buffer to the next larger one",
            "the larger, the shorter",
            lambda seen: measure.least_step([-(_done(seen[str(k)].flow("tcp")) or 0.0) for k in _WINDOWS]),
            Bound(0.0),
            SECONDS,
            why="A window per round trip, until the link is full: then more of it changes nothing, or costs a loss.",
        ),
        *(
            Statement(
                f"time-{k}",
                f"time of 1 MB with {k} KiB",
                "(figure)",
                measure.of(str(k), _done, "tcp"),
                unit=SECONDS,
                kind=Kind.REPORTED,
            )
            for k in _WINDOWS
        ),
    ),
    figures=(
        _sweep(
            "Figure 7",
            "Time of 1 MB over the receive buffer",
            ("buffer (KiB)", "time (s)"),
            [("TCP", [(k, str(k)) for k in _WINDOWS])],
            lambda flow: _done(flow) or math.nan,
            "tcp",
        ),
    ),
)

_H_E = _experiment(
    "E",
    "rate and level",
    "4.4, figure 9",
    (TYPE1,),
    (
        Statement(
            "follow",
            "correlation of the level's changes with the rate's",
            "slow while the level is, fast otherwise",
            measure.of("type1", _follow),
            Bound(0.3),
            why="Foreseeing makes most steps equal: 5 % up, or none. Where it does not, the level's size decides.",
        ),
        Statement(
            "period",
            "time between adjustments over the round trip",
            "once per RTT",
            measure.of("type1", _period),
            Bound(0.8, 1.2),
        ),
    ),
    changes=(
        _PAPER_MODE,
        _SMALL,
        Change(
            "1.56 packets per second played",
            {"flow.video.buffer.consume": "12.48kbps", "flow.video.cap": "85.6kbps"},
        ),
    ),
    figures=(
        Figure(
            "Figure 9",
            "Buffer level with type-I",
            "series",
            ("type1",),
            marks=_BOUNDS,
            axes=("buffer", "buffer (B)"),
        ),
    ),
    expected=False,
)

_H_F = _experiment(
    "F",
    "occupancy with type-I and type-II",
    "4.4, figure 10",
    (TYPE1, TYPE2),
    (
        Statement(
            "type1",
            "type-I's entries into overflow",
            "0",
            measure.of("type1", _entries),
            Bound(most=1.0),
            TIMES,
            why="It foresees the level eight rounds ahead: a reconstruction, for the paper prints no rule.",
        ),
        Statement(
            "type2",
            "type-II's entries into overflow",
            "11",
            measure.of("type2", _entries),
            Bound(8.0, 14.0),
            TIMES,
            why="A packet per round takes it to the server's maximum at once, and each packet enters overflow again "
            "when one has been played: the number is the run's length, which the paper does not tell.",
        ),
        Statement(
            "overflows",
            "type-II's packets that did not fit",
            "(not told)",
            measure.of("type2", _overflows),
            unit=TIMES,
            kind=Kind.REPORTED,
        ),
    ),
    changes=(
        _PAPER_MODE,
        _SMALL,
        Change("half as long", {"duration": "10s"}),
        _STEADY,
    ),
    figures=(
        Figure(
            "Figure 10",
            "Buffer level",
            "series",
            ("type1", "type2"),
            marks=_BOUNDS,
            axes=("buffer", "buffer (B)"),
        ),
    ),
)

_H_G = _experiment(
    "G",
    "rates of type-I and type-II",
    "4.4, figure 11",
    (TYPE1, TYPE2),
    (
        Statement(
            "amplitude",
            "deviation of the rate's steps after 5 s: type-II's over type-I's",
            "type-II too big, type-I moderate",
            measure.times("type2", "type1", _amplitude),
            Bound(1.5),
            why="+S per round is +S/rtt: 40 packets per second at a step, where the player takes 1.56.",
        ),
    ),
    changes=(_PAPER_MODE, _SMALL),
    figures=(
        Figure("Figure 11", "Sending rate", "series", ("type1", "type2"), axes=("targets", "rate (b/s)")),
    ),
)

_H_H = _experiment(
    "H",
    "the size of the buffer",
    "4.4, figure 12",
    BUFFERS,
    (
        Statement(
            "smoother",
            "least step of the rate's variation from one buffer to the next larger one",
            "smaller is smoother",
            _over_buffers(_swing),
            Bound(0.0),
            PERCENT,
            why="The player, not the buffer, sets the mean rate; a small buffer is what makes the rate turn often.",
        ),
        Statement(
            "utilisation",
            "least step of the throughput from one buffer to the next larger one",
            "smaller under-utilises",
            _over_buffers(_rate),
            Bound(0.0),
            PERCENT,
            why="In the long run what is played is what arrives, whatever the buffer's size.",
        ),
    ),
    changes=(
        _PAPER_MODE,
        _SMALL,
        Change("type-II", {"flow.video.controller": "rbuf-type2"}),
        Change(
            "40 packets per second played",
            {"flow.video.buffer.consume": "320kbps", "flow.video.cap": "1.3Mbps"},
        ),
    ),
    figures=(
        Figure(
            "Figure 12",
            "Sending rate",
            "series",
            tuple(str(kib) for kib in _KIB),
            axes=("targets", "rate (b/s)"),
        ),
    ),
)

_DEEP = Change("a queue of 20 kB", {"topology.bottleneck.queue.limit": "20kB"})
_WIDE = Change("a bottleneck of 1 Mb/s", {"topology.bottleneck.rate": "1Mbps"})
_EQUAL = Change("TCP's packets of 160 B, as the video's", {"flow.tcp.packet": "160B"})
_ARTEFACT = (
    Change(
        "type-I bounded by TCP's share",
        {"flow.video.params.rbuf-type1": {"ipd_max": "10s", "cc_cap": "tfrc"}},
    ),
    _EQUAL,
    _DEEP,
    _WIDE,
)

_H_I = _experiment(
    "I",
    "arrivals among 48 TCPs",
    "4.4, figure 13",
    CROWDED,
    (
        Statement(
            "ratio",
            "packets that arrive: type-I's over TFRC's",
            "2.4",
            measure.times("type1-48", "tfrc-48", _rate),
            Bound(1.5),
            why="Type-I is not congestion-controlled: it takes what its player needs from those who are.",
        ),
        Statement(
            "never-zero",
            "type-I's least rate over a second",
            "never zero",
            measure.of("type1-48", _slowest),
            Bound(0.0, strict=True),
            KBPS,
        ),
        Statement(
            "underflows",
            "times that type-I's buffer ran out",
            "0",
            measure.of("type1-48", lambda f: float(f.content["buffer_underflows"])),
            Bound(most=0.0),
            TIMES,
        ),
        Statement(
            "type1",
            "type-I's throughput",
            "(figure)",
            measure.of("type1-48", _rate),
            unit=KBPS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "tfrc",
            "TFRC's throughput",
            "(figure)",
            measure.of("tfrc-48", _rate),
            unit=KBPS,
            kind=Kind.REPORTED,
        ),
    ),
    changes=_ARTEFACT,
    figures=(
        Figure(
            "Figure 13",
            "Arriving rate",
            "series",
            ("type1-48", "tfrc-48"),
            marks=((8000.0, "played"),),
            axes=("rates", "rate (b/s)"),
        ),
    ),
)

_H_J = _experiment(
    "J",
    "loss and the number of TCPs",
    "4.4, figure 14",
    CROWDS,
    tuple(
        Statement(
            scheme,
            f"rank correlation of {title}'s loss with the number of TCPs",
            "grows with the number",
            _trend(scheme, _overall),
            Bound(0.8),
            why=why,
            calculation=wrong,
        )
        for scheme, title, why, wrong in (
            ("type1", "type-I", "", None),
            (
                "tfrc",
                "TFRC",
                "Alone, TFRC sends the cap of 64 kb/s into a player that takes 8: the buffer loses seven of eight, "
                "more than any number of TCPs makes it lose.",
                calculation("loss-trend"),
            ),
        )
    ),
    changes=(
        Change("the network's losses alone (a buffer of 4 MB)", {"flow.video.buffer.size": "4MB"}),
        _EQUAL,
        _DEEP,
        _WIDE,
    ),
    figures=(
        _sweep(
            "Figure 14",
            "Overall loss over the number of TCPs",
            ("TCPs", "loss (%)"),
            [(title, [(n, f"{scheme}-{n}") for n in _N]) for scheme, (title, _) in _SCHEMES.items()],
            lambda flow: 100.0 * _overall(flow),
        ),
    ),
)

_H_K = _experiment(
    "K",
    "losses by the buffer",
    "4.4, figure 15",
    CROWDS,
    (
        *(
            Statement(
                scheme,
                f"rank correlation of the buffer's share of {title}'s losses with the number of TCPs",
                "decreases with the number",
                _trend(scheme, _buffer_share),
                Bound(most=-0.6),
                why=why,
            )
            for scheme, title, why in (
                (
                    "type1",
                    "type-I",
                    "It has none: that its buffer does not overflow is type-I's point, and the paper's own figure 10.",
                ),
                ("tfrc", "TFRC", ""),
            )
        ),
        Statement(
            "more",
            "buffer's share: TFRC's less type-I's, least over the numbers",
            "TFRC consistently more",
            _least_excess,
            Bound(0.0, strict=True),
            PERCENT,
            why="Type-I's buffer never overflows; TFRC's does wherever more than 8 kb/s are left.",
        ),
    ),
    changes=(_EQUAL, _DEEP, _WIDE, _PAPER_MODE),
    figures=(
        _sweep(
            "Figure 15",
            "The buffer's share of losses over the number of TCPs",
            ("TCPs", "share (%)"),
            [(title, [(n, f"{scheme}-{n}") for n in _N]) for scheme, (title, _) in _SCHEMES.items()],
            lambda flow: 100.0 * _buffer_share(flow),
        ),
    ),
)

_H_L = _experiment(
    "L",
    "the prototype",
    "4.4, figure 16",
    (TYPE1,),
    (
        Statement(
            "overflow",
            "packets that did not fit",
            "no overflow",
            measure.of("type1", _overflows),
            Bound(most=0.0),
            TIMES,
            why="A receiver that plays at 64 kb/s stands for the device.",
        ),
        Statement(
            "inside",
            "share of time, after 10 s, with the level between a fifth and nine tenths",
            "(not told)",
            measure.of("type1", _inside),
            Bound(0.8),
            SHARE,
        ),
        Statement(
            "device",
            "pictures per second that the device achieves",
            "16.2 to 16.5 of 20",
            lambda _: None,
            kind=Kind.IMPOSSIBLE,
            why="The device's own speed.",
        ),
    ),
    real_time=RealTime({}, seeds=3),
    expected=False,
)

EXPERIMENTS = (_H_A, _H_B, _H_C, _H_D, _H_E, _H_F, _H_G, _H_H, _H_I, _H_J, _H_K, _H_L)
