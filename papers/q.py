"""Family Q: what the papers left as future work, asked here and answered with measurements.

No paper has these numbers: what stands as published is what was expected before the runs. Nothing of it is part of
"all"; docs/answers.md tells what came of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from papers.engine.experiment import (
    DB,
    MBPS,
    MS,
    PERCENT,
    RATIO,
    SECONDS,
    SHARE,
    Bound,
    Curve,
    Experiment,
    Figure,
    Kind,
    Seen,
    Statement,
    Unit,
    Variant,
)
from papers.engine.measure import Measure, Of, after, deviation, jain, less, mean, of, ratio
from papers.engine.observe import Flow, Observed, percentile

PAPER = "Left as future work by the five papers, answered here"

_SCENARIOS = Path("papers/scenarios")
_SOURCE = "a source that always has data"
_OPEN = "(open)"

SECONDS2 = Unit(1.0, 2, " s")
PER_SECOND = Unit(1.0, 1, " /s")


def _told(id: str, text: str, measure: Measure, unit: Unit = RATIO, why: str = "") -> Statement:
    """One number without a bound."""
    return Statement(id, text, _OPEN, measure, unit=unit, kind=Kind.REPORTED, why=why)


def _where(variant: str, what: Of, flow: str = "video") -> Measure:
    """Like `of`, but `None` for a seed with which the variant was not run."""

    def measure(seen: Seen) -> float | None:
        return of(variant, what, flow)(seen) if variant in seen else None

    return measure


def _over(a: Measure, reference: float) -> Measure:
    return lambda seen: None if (x := a(seen)) is None else x / reference


def _rate(flow: Flow) -> float:
    return flow.rate


def _lost(flow: Flow) -> float:
    return flow.lost_packets


# ----------------------------------------------------------------

_SIZES = (10, 100, 1_000, 10_000)
_FROM, _BAD, _END = 60.0, 120.0, 160.0
_BAD_RATE = 200e3


def _group(key: str, title: str, sets: dict[str, object], sizes: Iterable[int]) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            f"{key} {n}",
            f"{title}, {n} receivers",
            {
                "flow.video.receivers": n,
                "topology.levels": [
                    {"fanout": 10, "rate": "10Mbps", "delay": "10ms"},
                    {
                        "fanout": n // 10,
                        "rate": "10Mbps",
                        "delay": "5ms",
                        "loss": {"kind": "bernoulli", "p": 0.01},
                    },
                ],
                **sets,
            },
            seeds=3 if n >= 10_000 else None,
        )
        for n in sizes
    )


_ALL_HEAR = {"flow.video.rtcp": {"reports": "group"}}
_GROUPS: dict[str, tuple[str, dict[str, object], tuple[int, ...]]] = {
    "asmp": ("ASMP", {"flow.video.controller": "asmp"}, _SIZES),
    "tfmcc": ("TFMCC", {"flow.video.controller": "tfmcc"}, _SIZES),
    "pgmcc": ("PGMCC", {"flow.video.controller": "pgmcc"}, _SIZES),
    "pgmcc-off": (
        "PGMCC, no suppression",
        {"flow.video.controller": "pgmcc", "flow.video.params.pgmcc.nak_backoff": "0s"},
        _SIZES[:3],
    ),
    "quantile": (
        "ASMP without the lowest 2 %",
        {"flow.video.controller": "asmp", "flow.video.params.asmp.agg": "quantile"},
        _SIZES,
    ),
    "fraction": (
        "ASMP, loss over eight reports",
        {"flow.video.controller": "asmp", "flow.video.params.asmp.loss_mode": "fraction"},
        _SIZES,
    ),
    "hear": ("ASMP, all hear all", {"flow.video.controller": "asmp", **_ALL_HEAR}, _SIZES[:3]),
    "hear-off": (
        "ASMP, all hear all, no suppression",
        {"flow.video.controller": "asmp", "flow.video.params.asmp.suppress": "off", **_ALL_HEAR},
        _SIZES[:3],
    ),
}


def _feedback(run: Observed) -> float:
    return float(run.flow("video").content["feedback_packets"]) / run.end_s


def _per_second(variant: str) -> Measure:
    return lambda seen: _feedback(seen[variant]) if variant in seen else None


_group_rate = mean(_FROM, _BAD, "targets")
_reaction = after(_BAD, _END, lambda x: x <= 2.0 * _BAD_RATE, "targets")


def _group_mbps(run: Observed) -> float | None:
    return rate / 1e6 if (rate := _group_rate(run.flow("video"))) is not None else None


def _points(key: str) -> tuple[tuple[float, str], ...]:
    return tuple((float(n), f"{key} {n}") for n in _GROUPS[key][2])


_Q_1 = Experiment(
    id="Q-1",
    title="thousands of receivers",
    paper=PAPER,
    section="Multi-Evalvid-RA and ASMP, future work",
    scenario=_SCENARIOS / "q-1.toml",
    variants=tuple(
        v for key, (title, sets, sizes) in _GROUPS.items() for v in _group(key, title, sets, sizes)
    ),
    source=_SOURCE,
    statements=(
        *(
            _told(
                f"{key}-{n}-rate",
                f"{title}, {n} receivers: rate of the group",
                _where(f"{key} {n}", _group_rate),
                MBPS,
            )
            for key, (title, _, sizes) in _GROUPS.items()
            for n in sizes
        ),
        *(
            _told(
                f"{key}-{n}-feedback",
                f"{title}, {n} receivers: feedback",
                _per_second(f"{key} {n}"),
                PER_SECOND,
            )
            for key, (title, _, sizes) in _GROUPS.items()
            for n in sizes
        ),
        *(
            _told(
                f"{key}-{n}-reaction",
                f"{title}, {n} receivers: from a link's fall to 200 kb/s until at most 400 kb/s are sent",
                _where(f"{key} {n}", _reaction),
                SECONDS,
                "40 s: not before the end." if key == "quantile" else "",
            )
            for key, (title, _, sizes) in _GROUPS.items()
            for n in sizes
        ),
        *(
            Statement(
                f"{key}-bias",
                f"{title}: rate with 1,000 receivers over that with 10",
                "lower: a least of many estimates",
                ratio(_where(f"{key} 1000", _group_rate), _where(f"{key} 10", _group_rate)),
                Bound(most=0.9),
                why="Each receiver's own estimate is right on average; the least of N is as many deviations below.",
            )
            for key, title in (("asmp", "ASMP"), ("tfmcc", "TFMCC"))
        ),
        *(
            Statement(
                f"{key}-remedy",
                f"{_GROUPS[key][0]}: rate with 1,000 receivers over ASMP's",
                "higher: less noise, or fewer of the lowest",
                ratio(_where(f"{key} 1000", _group_rate), _where("asmp 1000", _group_rate)),
                Bound(1.1),
                why=why,
            )
            for key, why in (
                ("quantile", "Who is skipped may also be a receiver that is really worse."),
                ("fraction", "In large groups eight reports hold many more packets than eight loss events."),
            )
        ),
    ),
    figures=(
        Figure(
            "Q-1",
            "What the group gets",
            "sweep",
            (),
            curves=tuple(
                Curve(_GROUPS[key][0], _points(key), _group_mbps)
                for key in ("asmp", "tfmcc", "pgmcc", "quantile", "fraction")
            ),
            axes=("receivers", "rate of the group (Mb/s)"),
            log=True,
        ),
    ),
)


# ----------------------------------------------------------------

_AIR = 4e6
_SETTLED, _LAST = 1500.0, 3000.0
_COUNTS = (2, 8, 16)
_CROWDS = {n: ("video", *(f"video{k}" for k in range(2, n + 1))) for n in _COUNTS}
_MIXED = {"eaio": ("video", "video2"), "multfrc": ("multfrc1", "multfrc2"), "tfrc": ("tfrc1", "tfrc2")}
_CONNECTIONS = {"eaio": "EAIO-TFRC", "multfrc": "MULTFRC", "tfrc": "TFRC"}


def _each(variant: str, flows: Iterable[str], what: Of) -> Callable[[Seen], list[float]]:
    """Return the number of several flows of one run; those without it are left out."""
    names = tuple(flows)
    return lambda seen: [x for name in names if (x := what(seen[variant].flow(name))) is not None]


def _fmean(values: Callable[[Seen], list[float]]) -> Measure:
    return lambda seen: statistics.fmean(x) if (x := values(seen)) else None


def _late(series: str = "rates") -> Of:
    return mean(_SETTLED, _LAST, series)


def _used(variant: str, flows: Iterable[str]) -> Measure:
    values = _each(variant, flows, _late())
    return lambda seen: sum(values(seen)) / _AIR


def _jain_of(variant: str, flows: Iterable[str]) -> Measure:
    values = _each(variant, flows, _late())
    return lambda seen: jain(values(seen))


def _wander(variant: str, flows: Iterable[str]) -> Measure:
    """Mean of the flows' coefficients of variation of n."""
    return _fmean(_each(variant, flows, deviation(_SETTLED, _LAST, "n")))


_Q_7 = Experiment(
    id="Q-7",
    title="stability with many",
    paper=PAPER,
    section="EAIO-TFRC, future work",
    scenario=_SCENARIOS / "q-7-2.toml",
    variants=(
        *(Variant(f"eaio {n}", f"{n} EAIO-TFRC", {}, scenario=f"q-7-{n}.toml") for n in _COUNTS),
        *(
            Variant(
                f"no loss {n}",
                f"{n} EAIO-TFRC, no radio loss",
                {"link.air.loss.p": "0"},
                scenario=f"q-7-{n}.toml",
            )
            for n in _COUNTS
        ),
        Variant(
            "together",
            "16 EAIO-TFRC, all from 0 s on",
            {f"flow.{name}.start": "0s" for name in _CROWDS[16]},
            scenario="q-7-16.toml",
        ),
        Variant("mixed", "2 EAIO-TFRC, 2 MULTFRC, 2 TFRC", {}, scenario="q-7-mixed.toml"),
    ),
    source=_SOURCE,
    statements=(
        *(
            s
            for n, flows in _CROWDS.items()
            for s in (
                Statement(
                    f"jain-{n}",
                    f"{n} EAIO-TFRC: Jain's index over 1500 s",
                    "equal shares",
                    _jain_of(f"eaio {n}", flows),
                    Bound(0.9),
                    why="Who adds connections sees the queue that takes them away, if it has seen it empty.",
                ),
                _told(
                    f"used-{n}",
                    f"{n} EAIO-TFRC: share of the link that arrives",
                    _used(f"eaio {n}", flows),
                    SHARE,
                ),
                _told(
                    f"n-{n}", f"{n} EAIO-TFRC: n, mean of all", _fmean(_each(f"eaio {n}", flows, _late("n")))
                ),
                _told(
                    f"wander-{n}",
                    f"{n} EAIO-TFRC: coefficient of variation of n",
                    _wander(f"eaio {n}", flows),
                ),
                _told(
                    f"rtt-{n}",
                    f"{n} EAIO-TFRC: round-trip time (least: 168 ms)",
                    _fmean(_each(f"eaio {n}", flows, _late("rtts"))),
                    MS,
                ),
                _told(
                    f"clean-n-{n}",
                    f"{n} EAIO-TFRC without radio loss: n",
                    _fmean(_each(f"no loss {n}", flows, _late("n"))),
                ),
                _told(
                    f"clean-rtt-{n}",
                    f"{n} EAIO-TFRC without radio loss: round-trip time",
                    _fmean(_each(f"no loss {n}", flows, _late("rtts"))),
                    MS,
                ),
                _told(
                    f"clean-jain-{n}",
                    f"{n} EAIO-TFRC without radio loss: Jain's index",
                    _jain_of(f"no loss {n}", flows),
                ),
            )
        ),
        _told(
            "together-jain",
            "16 EAIO-TFRC that start at once, with an empty queue: Jain's index",
            _jain_of("together", _CROWDS[16]),
        ),
        _told("together-n", "the same: n, mean of all", _fmean(_each("together", _CROWDS[16], _late("n")))),
        *(
            _told(
                f"mixed-{key}",
                f"mixed: rate of one {_CONNECTIONS[key]}",
                _fmean(_each("mixed", flows, _late())),
                MBPS,
            )
            for key, flows in _MIXED.items()
        ),
        *(
            _told(
                f"mixed-n-{key}",
                f"mixed: n of one {_CONNECTIONS[key]}",
                _fmean(_each("mixed", flows, _late("n"))),
            )
            for key, flows in _MIXED.items()
            if key != "tfrc"
        ),
        _told(
            "mixed-rtt", "mixed: round-trip time", _fmean(_each("mixed", _MIXED["eaio"], _late("rtts"))), MS
        ),
        Statement(
            "mixed-tfrc-alone",
            "mixed: TFRC's rate over what the equation gives it alone (0.35 Mb/s)",
            "nobody pushes a single TFRC below that",
            _over(_fmean(_each("mixed", _MIXED["tfrc"], _late())), 0.345e6),
            Bound(0.8),
            why="The link's 4 Mb/s are more than all of them need at 2 % loss, until n has grown.",
        ),
    ),
    figures=(
        Figure(
            "Q-7",
            "Connections of one of 2, 8, 16 EAIO-TFRC",
            "series",
            tuple(f"eaio {n}" for n in _COUNTS),
            axes=("n", "n, mean over 10 s"),
        ),
    ),
)


# ----------------------------------------------------------------

_WIDE: dict[str, object] = {"link.air.rate": "100Mbps", "flow.noise.stop": "1s"}
_WORLDS: dict[str, tuple[str, dict[str, object]]] = {
    "radio 1": ("1 % of radio loss, never full", {**_WIDE, "link.air.loss.p": "0.01"}),
    "radio 3": ("3 % of radio loss, never full", {**_WIDE, "link.air.loss.p": "0.03"}),
    "jitter": (
        "1 % of radio loss and 5 ms of jitter, never full",
        {**_WIDE, "link.air.loss.p": "0.01", "link.air.jitter": {"mean": "5ms", "dist": "exponential"}},
    ),
    "congestion": ("congestion alone", {}),
    "both": ("congestion and 1 % of radio loss", {"link.air.loss.p": "0.01"}),
}
_SIGHTS: dict[str, tuple[str, dict[str, object]]] = {
    "repaired": ("ASMP", {}),
    "paper": ("ASMP as printed", {"flow.video.mode": "paper"}),
    "loss": ("loss-only", {"flow.video.params.asmp.ci_eps": "1s"}),
}


def _congested(flow: Flow) -> float | None:
    """Share of reports beyond the start phase that found the way congested."""
    known = flow.states.get("congested", 0) + flow.states.get("unloaded", 0)
    return flow.states.get("congested", 0) / known if known else None


def _cov(flow: Flow) -> float | None:
    cov = flow.content["rate_cov"]
    return None if cov is None else float(cov)


_Q_5 = Experiment(
    id="Q-5",
    title="an indicator of congestion on wireless links",
    paper=PAPER,
    section="ASMP, future work",
    scenario=_SCENARIOS / "q-5.toml",
    variants=tuple(
        Variant(f"{s} {w}", f"{sight}, {world}", {**changes, **sets})
        for w, (world, changes) in _WORLDS.items()
        for s, (sight, sets) in _SIGHTS.items()
    ),
    source=_SOURCE,
    statements=(
        *(
            _told(
                f"{s}-{w}-states",
                f"{sight}, {world}: reports that say congested",
                of(f"{s} {w}", _congested),
                SHARE,
            )
            for s, (sight, _) in _SIGHTS.items()
            if s != "loss"
            for w, (world, _) in _WORLDS.items()
        ),
        *(
            Statement(
                f"{s}-tells-{w}",
                f"{sight}: share of congested reports under congestion less that under {against}",
                "clearly more",
                less(of(f"{s} congestion", _congested), of(f"{s} {w}", _congested)),
                Bound(0.2),
                SHARE,
                why=why,
            )
            for s, sight in (("repaired", "ASMP"), ("paper", "ASMP as printed"))
            for w, against, why in (
                ("radio 1", "1 % of radio loss", "Radio loss does not move the delay."),
                (
                    "jitter",
                    "radio loss with jitter",
                    "A mean over few packets moves by more than the threshold.",
                ),
            )
        ),
        *(
            _told(f"{s}-{w}-{id}", f"{sight}, {world}: {what}", of(f"{s} {w}", measure), unit)
            for w, (world, _) in _WORLDS.items()
            for s, (sight, _) in _SIGHTS.items()
            for id, what, measure, unit in (
                ("rate", "rate", _rate, MBPS),
                ("lost", "loss", _lost, PERCENT),
                ("cov", "coefficient of variation", _cov, RATIO),
            )
        ),
    ),
    figures=(
        Figure(
            "Q-5",
            "Rate beside a flow that comes and goes",
            "rates",
            ("repaired congestion", "loss congestion"),
            top=3.2,
        ),
    ),
)

# ----------------------------------------------------------------

_GAMMAS = (0.2, 0.6, 1.0)
_RIVALS = {"cubic": "CUBIC", "web": "web transfers", "cbr": "CBR", "onoff": "Pareto on/off"}
_LOSS_MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "bernoulli": ("independent loss", {}),
    "run": ("run-length loss", {"topology.bottleneck.loss": {"kind": "run", "mean": "200p"}}),
    "gilbert": (
        "Gilbert-Elliott loss",
        {
            "topology.bottleneck.loss": {
                "kind": "gilbert",
                "p_bad": 0.00101,
                "p_good": 0.1,
                "loss_good": 0,
                "loss_bad": 0.5,
            }
        },
    ),
}


def _smoothing(gamma: float) -> dict[str, object]:
    names = ("gamma_unloaded", "gamma_congested", "gamma_down")
    return {f"flow.video.params.asmp.{name}": gamma for name in names}


def _beside(rival: str, loss: str, gamma: float) -> str:
    return f"{rival} {loss} {gamma:g}"


def _others(run: Observed) -> list[Flow]:
    return [run.flow(name) for name in run.content["flows"] if name != "video"]


def _rival_rate(variant: str) -> Measure:
    return lambda seen: sum(f.rate for f in _others(seen[variant]))


def _web_time(variant: str, share: float) -> Measure:
    """Time of a transfer that a share of the others does not exceed, of those that ended."""

    def measure(seen: Seen) -> float | None:
        # Transfers start at whole seconds: with the step in which their first packet came.
        known = [
            float(f.content["completed_s"]) - next(k for k, x in enumerate(f.rates) if x > 0)
            for f in _others(seen[variant])
            if f.content["completed_s"] is not None
        ]
        return percentile(known, share) if known else None

    return measure


def _rival_cov(variant: str) -> Measure:
    return of(variant, _cov, "other")


def _rival_loss(variant: str) -> Measure:
    """Share of packets lost, or for a TCP sent again."""

    def measure(seen: Seen) -> float | None:
        flow = seen[variant].flow("other").content
        if flow["kind"] == "tcp":
            return float(flow["retransmitted_packets"]) / float(flow["sent_packets"])
        return None if flow["loss_frac"] is None else float(flow["loss_frac"])

    return measure


def _smoothed(rival: str, loss: str, gamma: float) -> list[Statement]:
    v, where = _beside(rival, loss, gamma), f"γ = {gamma:g} beside {_RIVALS[rival]}, {_LOSS_MODELS[loss][0]}"
    key = f"{rival}-{loss}-{gamma:g}"
    told = [
        _told(f"{key}-rate", f"{where}: ASMP's rate", of(v, _rate), MBPS),
        _told(f"{key}-cov", f"{where}: ASMP's coefficient of variation", of(v, _cov)),
        _told(f"{key}-lost", f"{where}: ASMP's loss", of(v, _lost), PERCENT),
    ]
    if rival == "web":
        return [
            *told,
            _told(f"{key}-time", f"{where}: median time of a transfer", _web_time(v, 0.5), SECONDS2),
            _told(
                f"{key}-slow", f"{where}: 95th percentile of a transfer's time", _web_time(v, 0.95), SECONDS2
            ),
        ]
    return [
        *told,
        _told(f"{key}-other", f"{where}: the other's rate", _rival_rate(v), MBPS),
        _told(f"{key}-other-cov", f"{where}: the other's coefficient of variation", _rival_cov(v)),
        _told(f"{key}-other-lost", f"{where}: the other's loss (TCP: sent again)", _rival_loss(v), PERCENT),
    ]


_MORE_GAMMAS = (0.2, 0.4, 0.6, 0.8, 1.0)


def _percent_lost(flow: str) -> Callable[[Observed], float | None]:
    return lambda run: 100.0 * run.flow(flow).lost_packets


_Q_6 = Experiment(
    id="Q-6",
    title="what smoothing does to others",
    paper=PAPER,
    section="Multi-Evalvid-RA and ASMP, future work",
    scenario=_SCENARIOS / "q-6-cubic.toml",
    variants=tuple(
        Variant(
            _beside(rival, loss, gamma),
            f"γ = {gamma:g}, {title}, {model}",
            {**changes, **_smoothing(gamma)},
            scenario=f"q-6-{rival}.toml",
        )
        for rival, title in _RIVALS.items()
        for loss, (model, changes) in _LOSS_MODELS.items()
        for gamma in (_MORE_GAMMAS if (rival, loss) == ("onoff", "bernoulli") else _GAMMAS)
    ),
    source=_SOURCE,
    statements=(
        *(
            s
            for rival in _RIVALS
            for loss in _LOSS_MODELS
            for gamma in _GAMMAS
            for s in _smoothed(rival, loss, gamma)
        ),
        *(
            Statement(
                f"steady-{loss}",
                f"beside CUBIC, {model}: ASMP's coefficient of variation with γ = 1 over that with γ = 0.2",
                "higher: less smooth",
                ratio(
                    of(_beside("cubic", loss, 1.0), _cov),
                    of(_beside("cubic", loss, 0.2), _cov),
                ),
                Bound(1.1),
                why="γ is the weight of the newest rate.",
            )
            for loss, (model, _) in _LOSS_MODELS.items()
        ),
        *(
            Statement(
                f"others-{loss}",
                f"beside CUBIC, {model}: CUBIC's rate with γ = 0.2 over that with γ = 1",
                "the same: the mean does not hang on γ",
                ratio(
                    of(_beside("cubic", loss, 0.2), _rate, "other"),
                    of(_beside("cubic", loss, 1.0), _rate, "other"),
                ),
                Bound(0.8, 1.25),
                why="A mean of rates weighs old ones, and takes nothing away.",
            )
            for loss, (model, _) in _LOSS_MODELS.items()
        ),
    ),
    figures=(
        Figure(
            "Q-6",
            "Beside a Pareto on/off source, 0.5 % of independent loss",
            "sweep",
            (),
            curves=tuple(
                Curve(
                    label,
                    tuple((g, _beside("onoff", "bernoulli", g)) for g in _MORE_GAMMAS),
                    _percent_lost(flow),
                )
                for label, flow in (("ASMP", "video"), ("on/off", "other"))
            ),
            axes=("γ", "loss (%)"),
        ),
    ),
)

# ----------------------------------------------------------------

_VIEWED = {
    "rbuf-type1": "type-I",
    "rbuf-type2": "type-II",
    "tfrc": "TFRC",
    "e-multfrc": "E-MULTFRC",
    "eaio-tfrc": "EAIO-TFRC",
    "no-control": "no control",
}
_AIRS: dict[str, tuple[str, dict[str, object]]] = {
    "radio": ("radio loss", {}),
    "arq": ("link-layer retransmission", {"link.air.arq": {"tries": 7, "per_try": "5ms"}}),
}


_STEERED: dict[str, object] = {"flow.video.buffer": {"size": "128KiB"}}
"""What type-I and type-II steer by."""


def _ssim(flow: Flow) -> float | None:
    return None if (x := flow.content["ssim"]) is None else float(x)


def _frozen(flow: Flow) -> float | None:
    """Share of the run that a frozen picture was shown."""
    return None if (x := flow.content["freeze_s"]) is None else float(x) / _VIEW_S


def _freezes(flow: Flow) -> float | None:
    return None if (x := flow.content["freeze_count"]) is None else float(x)


_VIEW_S = 40.0
"""Length of the run."""

_Q_2 = Experiment(
    id="Q-2",
    title="video quality over wireless",
    paper=PAPER,
    section="receiver-buffer control and EAIO-TFRC, future work",
    scenario=_SCENARIOS / "q-2.toml",
    variants=tuple(
        Variant(
            f"{c} {air}",
            f"{title}, {where}",
            {"flow.video.controller": c, **sets, **(_STEERED if c.startswith("rbuf") else {})},
        )
        for air, (where, sets) in _AIRS.items()
        for c, title in _VIEWED.items()
    ),
    statements=tuple(
        Statement(
            f"{c}-{air}-{id}",
            f"{title}, {where}: {what}",
            _OPEN,
            of(f"{c} {air}", measure),
            unit=unit,
            kind=Kind.REPORTED,
            pixels=True,
        )
        for air, (where, _) in _AIRS.items()
        for c, title in _VIEWED.items()
        for id, what, measure, unit in (
            ("rate", "rate", _rate, MBPS),
            ("psnr", "luma PSNR", lambda f: f.mean_psnr_db, DB),
            ("ssim", "SSIM", _ssim, Unit(1.0, 3)),
            ("freezes", "freezes", _freezes, Unit(1.0, 0)),
            ("frozen", "share of time frozen", _frozen, SHARE),
            ("lost", "packets lost", _lost, PERCENT),
        )
    ),
    figures=(
        Figure(
            "Q-2",
            "Opinion scores under radio loss",
            "mos",
            tuple(f"{c} radio" for c in _VIEWED),
            pixels=True,
        ),
    ),
)

# ----------------------------------------------------------------

_SESSIONS = ("video", *(f"video{k}" for k in range(2, 51)))
_TCPS = tuple(f"tcp{k}" for k in range(1, 51))
_PHASES = {
    "before": ("20 ms", 30.0, 80.0),
    "long": ("120 ms", 100.0, 160.0),
    "after": ("20 ms again", 180.0, 240.0),
}
_COMING = {"tfrcp-qai-cl": "TFRCP-QAI-CL", "tfrcp-qai": "TFRCP-QAI", "tfrc": "TFRC"}


def _alive(variant: str, flows: Iterable[str], start: float, end: float) -> Measure:
    """Mean rate of a flow while it is there, over all of them: seconds without a packet are not."""
    names = tuple(flows)

    def measure(seen: Seen) -> float | None:
        run = seen[variant]
        seconds = [x for name in names for x in run.flow(name).between("rates", start, end) if x > 0]
        return statistics.fmean(seconds) if seconds else None

    return measure


def _session_loss(variant: str) -> Measure:
    return _fmean(_each(variant, _SESSIONS, _lost))


def _session_jain(variant: str) -> Measure:
    """Of the sessions' means over the time that each was there."""
    values = _each(variant, _SESSIONS, _rate)
    return lambda seen: jain(values(seen))


def _mean_rates(run: Observed, flows: Iterable[str]) -> list[float]:
    """Mean rate of those that are there, second by second."""
    series = [run.flow(name).rates for name in flows]
    steps = []
    for now in zip(*series, strict=False):
        there = [x for x in now if x > 0]
        steps.append(statistics.fmean(there) if there else 0.0)
    return steps


def _settles(variant: str, start: float, end: float, final: tuple[float, float]) -> Measure:
    """Seconds from a step of the round trip until five seconds' mean is within a fifth of what is reached later."""

    def measure(seen: Seen) -> float:
        rates = _mean_rates(seen[variant], _SESSIONS)
        level = statistics.fmean(rates[int(final[0]) : int(final[1])])
        for t in range(int(start), int(end) - 5):
            if abs(statistics.fmean(rates[t : t + 5]) / level - 1) <= 0.2:
                return t - start
        return end - start

    return measure


_Q_3 = Experiment(
    id="Q-3",
    title="many sessions that come and go, and a varying round trip",
    paper=PAPER,
    section="MPEG-TFRCP, future work",
    scenario=_SCENARIOS / "q-3.toml",
    variants=tuple(
        Variant(c, title, {f"flow.{name}.controller": c for name in _SESSIONS})
        for c, title in _COMING.items()
    ),
    sizes={},
    statements=(
        *(
            s
            for c, title in _COMING.items()
            for phase, (rtt, start, end) in _PHASES.items()
            for s in (
                _told(
                    f"{c}-{phase}",
                    f"{title}, {rtt}: rate of a session",
                    _alive(c, _SESSIONS, start, end),
                    MBPS,
                ),
                _told(
                    f"{c}-{phase}-tcp", f"{title}, {rtt}: rate of a TCP", _alive(c, _TCPS, start, end), MBPS
                ),
                _told(
                    f"{c}-{phase}-ratio",
                    f"{title}, {rtt}: a session's rate over a TCP's",
                    ratio(_alive(c, _SESSIONS, start, end), _alive(c, _TCPS, start, end)),
                ),
            )
        ),
        *(
            s
            for c, title in _COMING.items()
            for s in (
                _told(f"{c}-lost", f"{title}: loss of a session", _session_loss(c), PERCENT),
                _told(f"{c}-jain", f"{title}: Jain's index of the sessions", _session_jain(c)),
                _told(
                    f"{c}-up",
                    f"{title}: from 20 to 120 ms, until within a fifth of what is reached",
                    _settles(c, 80.0, 160.0, (130.0, 160.0)),
                    SECONDS,
                ),
                _told(
                    f"{c}-down",
                    f"{title}: from 120 to 20 ms, until within a fifth of what is reached",
                    _settles(c, 160.0, 240.0, (210.0, 240.0)),
                    SECONDS,
                ),
            )
        ),
        *(
            Statement(
                f"fair-{phase}",
                f"TFRCP-QAI-CL, {rtt}: a session's rate over a TCP's",
                "friendly: between a half and twice",
                ratio(
                    _alive("tfrcp-qai-cl", _SESSIONS, start, end), _alive("tfrcp-qai-cl", _TCPS, start, end)
                ),
                Bound(0.5, 2.0),
                why="The cumulative loss remembers what each session met when it came.",
            )
            for phase, (rtt, start, end) in _PHASES.items()
        ),
    ),
    figures=(
        Figure(
            "Q-3", "The session that stays", "series", tuple(_COMING), axes=("rates", "throughput (bit/s)")
        ),
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_Q_1, _Q_2, _Q_3, _Q_5, _Q_6, _Q_7)
