"""Family K: Multi-Evalvid-RA, ASMP against TFMCC.

Bouras, Gkamas, Kioumourtzis: Evaluation of Single Rate Multicast Congestion Control Schemes for MPEG-4 Video
Transmission (2009). Its figures and clips are lost; its text and tables are not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from papers.engine import measure
from papers.engine.experiment import (
    DB,
    FRAMES,
    MBPS,
    MS,
    PERCENT,
    SCORE,
    SECONDS,
    SHARE,
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
from papers.engine.observe import Flow, percentile

PAPER = "Bouras, Gkamas, Kioumourtzis: Evaluation of Single Rate Multicast Congestion Control Schemes (2009)"

# ---------------------------------------------------------------- what differs

ASMP = Variant("asmp", "ASMP", {"flow.video.controller": "asmp"})
TFMCC = Variant("tfmcc", "TFMCC", {"flow.video.controller": "tfmcc"})
ASMP_LONG = Variant(
    "asmp-300s",
    "ASMP, 300 s",
    {"flow.video.controller": "asmp", "duration": "300s"},
    pixels=False,
    changed=False,
)
ASMP_150 = Variant(
    "asmp-150ms",
    "ASMP, play-out 150 ms",
    {"flow.video.controller": "asmp", "flow.video.playout": "150ms"},
    sizes=False,
)
TFMCC_150 = Variant(
    "tfmcc-150ms",
    "TFMCC, play-out 150 ms",
    {"flow.video.controller": "tfmcc", "flow.video.playout": "150ms"},
    sizes=False,
)

TABLE2 = {"flow.video.media": "table2"}


def _queues(limit: str) -> dict[str, object]:
    return {"topology.bottleneck.queue.limit": limit, "topology.access.queue.limit": limit}


def _weights(i: int, p: int, b: int) -> dict[str, object]:
    return {"flow.video.table2": {"weights": [i, p, b], "vary": 0.1}}


_OPEN = (
    Change("queues of 50 packets", _queues("50p")),
    Change("queues of 100 packets", _queues("100p")),
    Change("paced emission", {"flow.video.emit": "paced"}),
    Change("I:P:B of 4:2:1", _weights(4, 2, 1)),
    Change("I:P:B of 10:2:1", _weights(10, 2, 1)),
    Change("the ladder rule for the encoder", {"flow.video.vbr": "ladder"}),
    Change("both as repaired", {"flow.video.mode": "repaired"}),
    Change("RTCP at least 5 s apart", {"flow.video.rtcp.profile": "rfc3550"}),
    Change("TFMCC's first R_max of 160 ms", {"flow.video.params.tfmcc.r_max": "160ms"}),
    *managed("topology.bottleneck.queue"),
)
_SQUARE = (
    Change(
        "UDP on and off every 5 s",
        {
            "flow.udp.on": {"dist": "constant", "mean": "5s"},
            "flow.udp.off": {"dist": "constant", "mean": "5s"},
            "flow.udp.start": "5s",
            "flow.udp.stop": "70s",
        },
        only=("asmp-loss", "tfmcc-loss", "loss-times", "ratio", "p95"),
    ),
    Change(
        "GoPs of 12 frames (IBBP)",
        {"flow.video.encode.gop": "12", "flow.video.encode.bframes": "2"},
    ),
    Change(
        "GoPs of 12 frames and TFMCC's first R_max of 160 ms",
        {
            "flow.video.encode.gop": "12",
            "flow.video.encode.bframes": "2",
            "flow.video.params.tfmcc.r_max": "160ms",
        },
    ),
    Change("ASMP's decreases taken at 0.9", {"flow.video.params.asmp.gamma_down": "0.9"}),
)
_TCP = (
    Change(
        "TCP of today (CUBIC, SACK, no 20-packet limit)",
        {"flow.tcp.preset": "linux", "flow.tcp.congestion": "cubic"},
    ),
    Change("delayed ACKs", {"flow.tcp.delayed_ack": "true"}),
)
_NARROW = Change(
    "a bottleneck of 1.5 Mb/s, below what the clip can fill",
    {"topology.bottleneck.rate": "1.5Mbps"},
    pixels=True,
)

# ---------------------------------------------------------------- how it is measured


_video, _more, _times = measure.of, measure.more, measure.times


def _tcp(variant: str, of: Callable[[Flow], float | None]) -> Callable[[Seen], float | None]:
    return measure.of(variant, of, "tcp")


def _lost_beyond_three_times(seen: Seen) -> float:
    asmp, tfmcc = seen["asmp"].flow("video"), seen["tfmcc"].flow("video")
    return tfmcc.frames["lost"] - 3.0 * asmp.frames["lost"]


def _correlation(variant: str) -> Callable[[Seen], float | None]:
    def measure(seen: Seen) -> float | None:
        video, tcp = seen[variant].flow("video").rates, seen[variant].flow("tcp").rates
        n = min(len(video), len(tcp))
        return statistics.correlation(video[2:n], tcp[2:n])

    return measure


def _delay(share: float) -> Callable[[Flow], float]:
    return lambda flow: percentile(flow.whole_ms, share)


def _worst(flow: Flow) -> float:
    return max(flow.whole_ms)


def _above_150(flow: Flow) -> float:
    return sum(x > 150.0 for x in flow.whole_ms) / len(flow.whole_ms)


def _peak_cj(flow: Flow) -> float:
    return max(flow.cumulative_ms())


def _peak_first_cj(flow: Flow) -> float:
    return max(flow.first_cumulative_ms())


def _uneven(flow: Flow) -> float:
    return statistics.pstdev(flow.variations_ms())


def _at_least(grade: int) -> Callable[[Flow], float | None]:
    return lambda flow: sum(v for k, v in flow.scores.items() if k >= grade) if flow.scores else None


def _grades(*grades: int) -> Callable[[Flow], float | None]:
    return lambda flow: sum(flow.scores[g] for g in grades) if flow.scores else None


_TOP_BPS = 2_614_400.0
"""Table 2's highest rate: more than this the video never takes of the 4 Mb/s."""


def _recovery_s(flow: Flow) -> float:
    """Seconds to 90 % of what the video can take, mean over UDP's three ends; 10 where it is not reached."""
    waits = []
    for start in (20, 40, 60):
        after = flow.rates[start : start + 10]
        reached = [i for i, rate in enumerate(after) if rate >= 0.9 * _TOP_BPS]
        waits.append(float(reached[0]) if reached else 10.0)
    return statistics.fmean(waits)


def _first_seconds(flow: Flow) -> float:
    return max(flow.rates[:5])


def _frame_loss(flow: Flow) -> float:
    return flow.lost


def _encoder(flow: Flow) -> float:
    return flow.limited.get("encoder", 0.0)


# ---------------------------------------------------------------- the seven experiments

_SCENARIOS = Path("papers/scenarios")

_K_A = Experiment(
    id="K-A",
    title="throughput of video and TCP",
    paper=PAPER,
    section="IV.A and IV.B, figures 3 and 4",
    scenario=_SCENARIOS / "k-a.toml",
    variants=(ASMP, TFMCC, ASMP_LONG),
    changes=(*_OPEN, *_TCP),
    sizes=TABLE2,
    statements=(
        Statement(
            "ratio",
            "TFMCC's throughput over ASMP's",
            "TFMCC higher",
            _times("tfmcc", "asmp", lambda f: f.rate),
            Bound(1.05),
            why="TFMCC starts by doubling and then follows the equation each round trip; ASMP adds at most a packet "
            "per report.",
        ),
        Statement(
            "tfmcc-rate",
            "TFMCC's throughput",
            "near 2 Mb/s",
            _video("tfmcc", lambda f: f.rate),
            unit=MBPS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "asmp-rate",
            "ASMP's throughput",
            "at most 2 Mb/s",
            _video("asmp", lambda f: f.rate),
            Bound(most=2.2e6),
            MBPS,
            why="A weak test: in 80 s ASMP is still climbing.",
        ),
        Statement(
            "asmp-rate-300s",
            "ASMP's throughput over 300 s",
            "(80 s in the paper)",
            _video("asmp-300s", lambda f: f.rate),
            unit=MBPS,
            kind=Kind.REPORTED,
            why="Where the climb arrives when there is time for it.",
        ),
        Statement(
            "tcp-asmp",
            "TCP's throughput next to ASMP",
            "at least 2 Mb/s",
            _tcp("asmp", lambda f: f.rate),
            Bound(1.8e6),
            MBPS,
            why="TCP takes what ASMP has not yet claimed.",
        ),
        Statement(
            "tcp-tfmcc",
            "TCP's throughput next to TFMCC",
            "near 2 Mb/s",
            _tcp("tfmcc", lambda f: f.rate),
            unit=MBPS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "asmp-loss",
            "ASMP's frame loss",
            "0",
            _video("asmp", _frame_loss),
            Bound(most=0.003),
            PERCENT,
            why="The leaky bucket now and then takes a GoP at the ladder's top, 2.61 Mb/s, at a rate of 1.7; its I "
            "frame is a burst that overflows a queue with TCP's 20 packets in it.",
        ),
        Statement(
            "tfmcc-loss",
            "TFMCC's frame loss",
            "2.95 % (59 of 2000)",
            _video("tfmcc", _frame_loss),
            Bound(0.005, 0.08),
            PERCENT,
            why="Bursts of I frames at a low quantizer overflow the queue: its limit and their size decide.",
        ),
        Statement(
            "loss-times",
            "frames TFMCC loses beyond three times ASMP's",
            "59 against 0",
            _lost_beyond_three_times,
            Bound(0.0, strict=True),
            FRAMES,
        ),
        Statement(
            "asmp-jain", "Jain's index with ASMP", "(figure lost)", lambda s: s["asmp"].jain, Bound(0.8)
        ),
        Statement(
            "tfmcc-jain", "Jain's index with TFMCC", "(figure lost)", lambda s: s["tfmcc"].jain, Bound(0.8)
        ),
        Statement(
            "jain-more",
            "Jain's index: TFMCC's less ASMP's",
            "higher for TFMCC",
            lambda s: s["tfmcc"].jain - s["asmp"].jain,
            Bound(-0.02),
            why="The index counts ASMP's slow climb as unfairness to itself.",
        ),
        Statement(
            "asmp-mirror",
            "correlation of ASMP's and TCP's 1-s rates",
            '"mirrored"',
            _correlation("asmp"),
            kind=Kind.REPORTED,
            why="By construction: a TCP that is limited by its window fills whatever the video leaves.",
        ),
        Statement(
            "tfmcc-mirror",
            "correlation of TFMCC's and TCP's 1-s rates",
            '"mirrored"',
            _correlation("tfmcc"),
            kind=Kind.REPORTED,
        ),
        Statement(
            "encoder",
            "share of time the encoder limits TFMCC",
            "(not told)",
            _video("tfmcc", _encoder),
            unit=SHARE,
            kind=Kind.REPORTED,
            why="Table 2 ends at 2.61 Mb/s: where this is large, the run compares encoders.",
        ),
    ),
    figures=(
        Figure("Figure 3", "ASMP and TCP", "rates", ("asmp",), marks=((2e6, "fair share"),)),
        Figure("Figure 4", "TFMCC and TCP", "rates", ("tfmcc",), marks=((2e6, "fair share"),)),
    ),
)

_K_B = Experiment(
    id="K-B",
    title="end-to-end delay",
    paper=PAPER,
    section="IV.C, figures 5 and 6",
    scenario=_SCENARIOS / "k-b.toml",
    variants=(ASMP, TFMCC),
    changes=(*_OPEN, *_TCP),
    sizes=TABLE2,
    statements=(
        Statement(
            "p95",
            "95th percentile of the frames' delay: TFMCC's less ASMP's",
            "TFMCC higher",
            _more("tfmcc", "asmp", _delay(0.95)),
            Bound(0.0, strict=True),
            MS,
            why="A higher rate means a lower quantizer, so larger I frames in one burst, so a longer queue.",
        ),
        Statement(
            "asmp-median",
            "ASMP's median",
            "below 150 ms",
            _video("asmp", _delay(0.5)),
            Bound(most=100.0, strict=True),
            MS,
        ),
        Statement(
            "tfmcc-max",
            "TFMCC's maximum",
            "above 150 ms at times",
            _video("tfmcc", _worst),
            Bound(150.0, strict=True),
            MS,
            why="The queues set the ceiling: 60 packets take 122 ms at 4 Mb/s, 49 ms at 10 Mb/s; never full together.",
        ),
        Statement(
            "asmp-max", "ASMP's maximum", "below 150 ms", _video("asmp", _worst), unit=MS, kind=Kind.REPORTED
        ),
        Statement(
            "tfmcc-above",
            "TFMCC's frames later than 150 ms",
            '"in some cases"',
            _video("tfmcc", _above_150),
            unit=PERCENT,
            kind=Kind.REPORTED,
        ),
        Statement(
            "asmp-above",
            "ASMP's frames later than 150 ms",
            "none",
            _video("asmp", _above_150),
            unit=PERCENT,
            kind=Kind.REPORTED,
        ),
    ),
    figures=(
        Figure("Figure 5", "ASMP's end-to-end delay", "delay", ("asmp",), marks=((150.0, "150 ms"),)),
        Figure("Figure 6", "TFMCC's end-to-end delay", "delay", ("tfmcc",), marks=((150.0, "150 ms"),)),
    ),
)

_K_C = Experiment(
    id="K-C",
    title="cumulative jitter",
    paper=PAPER,
    section="IV.D, figures 8 to 10, equations 3 and 4",
    scenario=_SCENARIOS / "k-c.toml",
    variants=(ASMP, TFMCC),
    changes=(*_OPEN, *_TCP),
    sizes=TABLE2,
    statements=(
        Statement(
            "asmp-peak",
            "ASMP's highest cumulative jitter (last packet)",
            "below 100 ms",
            _video("asmp", _peak_cj),
            Bound(most=120.0, strict=True),
            MS,
            why="The peak is one frame's: an I frame of the ladder's top, which the leaky bucket takes now and then "
            "above its rate, in a queue with TCP's 20 packets in it.",
        ),
        Statement(
            "times",
            "TFMCC's highest over ASMP's",
            '"very high"',
            _times("tfmcc", "asmp", _peak_cj),
            Bound(1.5),
            why="Both end in the same two queues; where both send I frames of the ladder's top, both fill them.",
        ),
        Statement(
            "uneven",
            "standard deviation of the delay variation, TFMCC's over ASMP's",
            "TFMCC larger",
            _times("tfmcc", "asmp", _uneven),
            Bound(1.0, strict=True),
        ),
        Statement(
            "asmp-first",
            "ASMP's highest, first packet",
            "(not told)",
            _video("asmp", _peak_first_cj),
            unit=MS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "tfmcc-first",
            "TFMCC's highest, first packet",
            "(not told)",
            _video("tfmcc", _peak_first_cj),
            unit=MS,
            kind=Kind.REPORTED,
        ),
    ),
    figures=(
        Figure("Figure 8", "Cumulative jitter", "cj", ("asmp", "tfmcc"), marks=((100.0, "100 ms"),)),
        Figure("Figure 9", "ASMP's inter-frame variation", "ji", ("asmp",)),
        Figure("Figure 10", "TFMCC's inter-frame variation", "ji", ("tfmcc",)),
    ),
)


def _clip_facts(asmp: str, tfmcc: str) -> tuple[Statement, ...]:
    """Frames lost with pictures, as published, and how long the encoder sets the rate."""
    rows = (
        ("asmp-loss", "ASMP's frame loss", asmp, _video("asmp", _frame_loss), PERCENT),
        ("tfmcc-loss", "TFMCC's frame loss", tfmcc, _video("tfmcc", _frame_loss), PERCENT),
        ("encoder", "share of time the encoder limits TFMCC", "(not told)", _video("tfmcc", _encoder), SHARE),
    )
    return tuple(
        Statement(id, text, published, what, unit=unit, kind=Kind.REPORTED, pixels=True)
        for id, text, published, what, unit in rows
    )


_K_D = Experiment(
    id="K-D",
    title="PSNR and opinion score",
    paper=PAPER,
    section="IV.E, figures 11 and 12",
    scenario=_SCENARIOS / "k-d.toml",
    expected=False,
    variants=(ASMP, TFMCC),
    changes=(_NARROW,),
    statements=(
        Statement(
            "mos",
            "mean opinion score: ASMP's less TFMCC's",
            "5 and some 4 against 1 to 3",
            _more("asmp", "tfmcc", lambda f: f.score),
            Bound(0.5),
            SCORE,
            Kind.CLIP,
            pixels=True,
            why="Only lost frames can cost TFMCC this much, and they need a clip whose bursts overflow the queue; 59 "
            "lost frames of 2000 alone don't make most of the others bad, a comparison shifted by them would.",
        ),
        Statement(
            "asmp-good",
            "ASMP's frames that are good or excellent",
            "all",
            _video("asmp", _at_least(4)),
            Bound(0.8),
            SHARE,
            Kind.CLIP,
            pixels=True,
        ),
        Statement(
            "tfmcc-bad",
            "TFMCC's frames that are bad or poor",
            '"the biggest part"',
            _video("tfmcc", _grades(1, 2)),
            unit=SHARE,
            kind=Kind.REPORTED,
            pixels=True,
        ),
        Statement(
            "tfmcc-fair",
            "TFMCC's frames that are fair",
            "≈ 15 %",
            _video("tfmcc", _grades(3)),
            unit=SHARE,
            kind=Kind.REPORTED,
            pixels=True,
        ),
        *_clip_facts("0", "2.95 %"),
    ),
    figures=(
        Figure("Figure 11", "PSNR, frame by frame", "psnr", ("asmp", "tfmcc"), pixels=True),
        Figure("Figure 12", "Opinion scores", "mos", ("asmp", "tfmcc"), pixels=True),
    ),
)

_K_E = Experiment(
    id="K-E",
    title="a play-out limit of 150 ms",
    paper=PAPER,
    section="IV.F, figures 13 to 17",
    scenario=_SCENARIOS / "k-e.toml",
    variants=(ASMP, TFMCC, ASMP_150, TFMCC_150),
    changes=_OPEN[:5],
    sizes=TABLE2,
    statements=(
        Statement(
            "asmp-median",
            "ASMP's median delay",
            "below 50 ms in equilibrium",
            _video("asmp", _delay(0.5)),
            Bound(most=50.0, strict=True),
            MS,
        ),
        Statement(
            "p95",
            "95th percentile of the delay: TFMCC's less ASMP's",
            "TFMCC higher",
            _more("tfmcc", "asmp", _delay(0.95)),
            Bound(0.0, strict=True),
            MS,
            why="Without TCP the only queue is the frame's own burst, so it follows the quantizer alone; the ladder's "
            "top of 2.61 Mb/s stays below the link's 4.",
        ),
        Statement(
            "asmp-p99",
            "ASMP's 99th percentile",
            "below 150 ms",
            _video("asmp", _delay(0.99)),
            unit=MS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "tfmcc-p99",
            "TFMCC's 99th percentile",
            '"high"',
            _video("tfmcc", _delay(0.99)),
            unit=MS,
            kind=Kind.REPORTED,
        ),
        Statement(
            "asmp-limit",
            "PSNR with the limit less without, ASMP",
            "unaffected",
            lambda s: _psnr_cost(s, "asmp"),
            Bound(-0.5),
            DB,
            Kind.CLIP,
            pixels=True,
        ),
        Statement(
            "tfmcc-limit",
            "PSNR with the limit less without, TFMCC",
            "≈ −5 dB",
            lambda s: _psnr_cost(s, "tfmcc"),
            unit=DB,
            kind=Kind.REPORTED,
            pixels=True,
            why="No frame misses 150 ms while the clip's rate stays below the link's: any I frame is through both "
            "queues before.",
        ),
        Statement(
            "asmp-psnr",
            "ASMP's mean PSNR",
            "above 30 dB",
            _video("asmp", lambda f: f.mean_psnr_db),
            unit=DB,
            kind=Kind.REPORTED,
            pixels=True,
        ),
        Statement(
            "tfmcc-psnr",
            "TFMCC's mean PSNR",
            "above 30 dB but for Stefan",
            _video("tfmcc", lambda f: f.mean_psnr_db),
            unit=DB,
            kind=Kind.REPORTED,
            pixels=True,
        ),
    ),
    figures=(
        Figure("Figure 14", "Frame sizes as sent", "sizes", ("tfmcc",), pixels=True),
        Figure("Figure 15", "PSNR without a play-out limit", "psnr", ("asmp", "tfmcc"), pixels=True),
        Figure(
            "Figure 16",
            "PSNR with a play-out limit of 150 ms",
            "psnr",
            ("asmp-150ms", "tfmcc-150ms"),
            pixels=True,
        ),
        Figure(
            "Figure 17",
            "End-to-end delay",
            "delay",
            ("asmp", "tfmcc"),
            marks=((150.0, "150 ms"), (50.0, "50 ms")),
        ),
    ),
)


def _psnr_cost(seen: Seen, variant: str) -> float | None:
    free, limited = (
        seen[variant].flow("video").mean_psnr_db,
        seen[f"{variant}-150ms"].flow("video").mean_psnr_db,
    )
    return None if free is None or limited is None else limited - free


_K_F = Experiment(
    id="K-F",
    title="a square wave of UDP",
    paper=PAPER,
    section="IV.G, figures 18 and 19",
    scenario=_SCENARIOS / "k-f.toml",
    variants=(ASMP, TFMCC),
    changes=(*_OPEN, *_SQUARE),
    sizes=TABLE2,
    statements=(
        Statement(
            "ratio",
            "TFMCC's throughput over ASMP's",
            "TFMCC higher",
            _times("tfmcc", "asmp", lambda f: f.rate),
            Bound(1.0, strict=True),
        ),
        Statement(
            "recovery",
            "time to 90 % of what is there after UDP stops: ASMP's less TFMCC's",
            "TFMCC reacts faster",
            _more("asmp", "tfmcc", _recovery_s),
            Bound(0.0, strict=True),
            SECONDS,
            why="What is there is Table 2's top, 2.61 Mb/s; 10 s count where it is not reached before UDP returns.",
        ),
        Statement(
            "overshoot",
            "TFMCC's highest 1-s rate in the first 5 s",
            "above 2.5 Mb/s",
            _video("tfmcc", _first_seconds),
            Bound(2.3e6),
            MBPS,
            why="RFC 4654 starts at a packet per 500 ms, hears its first report after 2 to 3 s, and then doubles what "
            "was received, which an encoder that changes once per GoP raises once per second only.",
        ),
        Statement(
            "loss-times",
            "frames TFMCC loses beyond three times ASMP's",
            "30 against 3",
            _lost_beyond_three_times,
            Bound(0.0),
            FRAMES,
            why="Both meet UDP's return in a GoP that no longer fits, and can't change it before its end; ASMP then "
            "takes a fifth of each decrease (γ = 0.2).",
        ),
        Statement(
            "asmp-loss",
            "ASMP's frame loss",
            "0.17 % (3 of 1753)",
            _video("asmp", _frame_loss),
            Bound(most=0.005),
            PERCENT,
        ),
        Statement(
            "tfmcc-loss",
            "TFMCC's frame loss",
            "1.71 % (30 of 1753)",
            _video("tfmcc", _frame_loss),
            unit=PERCENT,
            kind=Kind.REPORTED,
        ),
        Statement(
            "p95",
            "95th percentile of the delay: TFMCC's less ASMP's",
            "TFMCC higher",
            _more("tfmcc", "asmp", _delay(0.95)),
            Bound(0.0, strict=True),
            MS,
        ),
    ),
    figures=(
        Figure("Figure 18", "Throughput", "rates", ("asmp", "tfmcc"), marks=((2e6, "left by UDP"),)),
        Figure("Figure 19", "End-to-end delay", "delay", ("asmp", "tfmcc"), marks=((150.0, "150 ms"),)),
    ),
)

_K_G = Experiment(
    id="K-G",
    title="PSNR and opinion score beside UDP",
    paper=PAPER,
    section="IV.G, figures 20 and 21",
    scenario=_SCENARIOS / "k-g.toml",
    expected=False,
    variants=(ASMP, TFMCC),
    changes=(
        Change(
            "a bottleneck of 2.5 Mb/s, which UDP and the clip overfill",
            {"topology.bottleneck.rate": "2.5Mbps"},
            pixels=True,
        ),
    ),
    statements=(
        Statement(
            "asmp-excellent",
            "ASMP's frames that are excellent",
            "≈ 85 %",
            _video("asmp", _grades(5)),
            Bound(0.7),
            SHARE,
            Kind.CLIP,
            pixels=True,
        ),
        Statement(
            "more",
            "excellent frames: ASMP's less TFMCC's",
            "ASMP clearly better",
            _more("asmp", "tfmcc", _grades(5)),
            Bound(0.0, strict=True),
            SHARE,
            Kind.CLIP,
            pixels=True,
            why="Below the encoder's top the higher rate is also the better picture; only losses turn the order.",
        ),
        *_clip_facts("0.17 %", "1.71 %"),
    ),
    figures=(
        Figure("Figure 20", "PSNR, frame by frame", "psnr", ("asmp", "tfmcc"), pixels=True),
        Figure("Figure 21", "Opinion scores", "mos", ("asmp", "tfmcc"), pixels=True),
    ),
)

EXPERIMENTS = (_K_A, _K_B, _K_C, _K_D, _K_E, _K_F, _K_G)
