"""Q-4: k groups at different rates, each with a controller of its own, against single rate.

What stands as published is what was expected before the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from papers.engine.experiment import (
    MBPS,
    PERCENT,
    RATIO,
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
from papers.engine.measure import Measure, ratio
from papers.engine.observe import Observed

_SCENARIOS = Path("papers/scenarios")
_CONTROLLERS = {"asmp": "ASMP", "tfmcc": "TFMCC"}
_FLOWS = ("video", "video2", "video3", "video4")
_GROUPS = (2, 3, 4)
_FLOORS = {
    "plain": {2: ("1500kbps",), 3: ("750kbps", "1500kbps"), 4: ("750kbps", "1500kbps", "3Mbps")},
    "b-h": {2: ("400kbps",), 3: ("300kbps", "600kbps"), 4: ("250kbps", "500kbps", "1Mbps")},
}
_RECEIVERS = {
    "plain": {"r1": 0.5e6, "r2": 1e6, "r3": 2e6, "r4": 4e6},
    "b-h": {f"mr{n}": 2e6 for n in range(1, 9)},
}
"""Each network's receivers, and what the link to each carries."""
_TITLES = {"plain": "0.5 to 4 Mb/s", "b-h": "B-H's network"}
_ANY = "1Gbps"
MOVES = Unit(1.0, 1, "")


def _sets(net: str, controller: str, groups: int) -> dict[str, object]:
    """So many groups, each from its floor to the next one's; with one there is no choice."""
    floors = _FLOORS[net].get(groups, ())
    caps = (*floors, _ANY)
    used = _FLOWS[:groups]
    sets: dict[str, object] = {f"flow.{name}.controller": controller for name in _FLOWS}
    sets |= {f"flow.{name}.cap": cap for name, cap in zip(used, caps, strict=True)}
    sets |= {f"flow.{name}.floor": floor for name, floor in zip(used[1:], floors, strict=True)}
    sets |= {f"flow.{name}.count": 0 for name in _FLOWS[groups:]}
    return sets | {"simulcast.layers.flows": list(used) if groups > 1 else []}


def _variants(net: str, controller: str) -> list[Variant]:
    scenario = "q-4-plain.toml" if net == "plain" else ""
    title = f"{_CONTROLLERS[controller]}, {_TITLES[net]}"

    def variant(key: object, what: str, sets: dict[str, object]) -> Variant:
        return Variant(f"{net} {controller} {key}", f"{title}, {what}", sets, scenario=scenario)

    return [
        variant(1, "single rate", _sets(net, controller, 1)),
        *(variant(k, f"{k} groups", _sets(net, controller, k)) for k in _GROUPS),
        variant("own", "a session for each", {**_sets(net, controller, 1), "flow.video.cast": "unicast"}),
        variant("at once", "4 groups, leaves at once", {**_sets(net, controller, 4), "leave_latency": "0s"}),
    ]


def _receivers(run: Observed) -> Mapping[str, float]:
    """Throughput of each receiver, over all groups."""
    simulcasts = run.content["simulcasts"]
    if simulcasts:
        return {r["name"]: float(r["throughput_bps"]) for r in simulcasts[0]["receivers"]}
    return {name: float(r["throughput_bps"]) for name, r in run.flow("video").receivers.items()}


def _got(name: str) -> Callable[[Observed], float | None]:
    return lambda run: _receivers(run)[name] / 1e6


def _rate(name: str) -> Callable[[Observed], float]:
    return lambda run: _receivers(run)[name]


def _mean(run: Observed) -> float:
    return statistics.fmean(_receivers(run).values())


def _first_link(run: Observed) -> float:
    """Return what crosses the source's own link, of 100 Mb/s."""
    return float(run.content["links"][0]["utilisation_frac"]) * 100e6


def _tcps(run: Observed) -> float:
    return statistics.fmean(run.flow(f"tcp{n}{x}").rate for n in range(1, 9) for x in "ab")


def _moves(run: Observed) -> float:
    """Count a receiver's moves in a minute."""
    simulcast = run.content["simulcasts"][0]
    return float(simulcast["moves_count"]) / len(simulcast["receivers"]) / (run.end_s / 60.0)


def _unused(run: Observed) -> float:
    """Share of what crosses the receivers' links that no receiver wanted: two groups on a link while one is left."""
    capacities = dict(zip(("l1", "l2", "l3", "l4"), _RECEIVERS["plain"].values(), strict=True))
    links = {x["name"]: x for x in run.content["links"] if x["direction"] == "forward"}
    carried = sum(float(links[name]["utilisation_frac"]) * rate for name, rate in capacities.items())
    return 1.0 - sum(_receivers(run).values()) / carried


def _of(variant: str, what: Callable[[Observed], float]) -> Measure:
    return lambda seen: what(seen[variant])


def _extreme(variant: str, over: str, which: Callable[[list[float]], float]) -> Measure:
    """Most, or least, of what the receivers have, each over what it has in another variant."""

    def measure(seen: Seen) -> float:
        one, other = _receivers(seen[variant]), _receivers(seen[over])
        return which([one[name] / other[name] for name in one])

    return measure


def _told(id: str, text: str, measure: Measure, unit: Unit = RATIO) -> Statement:
    return Statement(id, text, "(open)", measure, unit=unit, kind=Kind.REPORTED)


def _plain(controller: str) -> list[Statement]:
    title, net = _CONTROLLERS[controller], f"plain {controller}"
    total = sum(_RECEIVERS["plain"].values())

    def used(run: Observed) -> float:
        return sum(_receivers(run).values()) / total

    each = [
        s
        for k in (1, *_GROUPS, "own", "at once")
        for s in (
            *(
                _told(
                    f"{net}-{k}-{name}", f"{title}, {k}: rate of {name}", _of(f"{net} {k}", _rate(name)), MBPS
                )
                for name in _RECEIVERS["plain"]
            ),
            _told(
                f"{net}-{k}-used", f"{title}, {k}: of what the links carry", _of(f"{net} {k}", used), SHARE
            ),
            _told(
                f"{net}-{k}-first",
                f"{title}, {k}: on the source's link",
                _of(f"{net} {k}", _first_link),
                MBPS,
            ),
        )
    ]
    moved = [
        s
        for k in (*_GROUPS, "at once")
        for s in (
            _told(
                f"{net}-{k}-moves",
                f"{title}, {k}: moves of a receiver in a minute",
                _of(f"{net} {k}", _moves),
                MOVES,
            ),
            _told(
                f"{net}-{k}-unused", f"{title}, {k}: left on the links", _of(f"{net} {k}", _unused), PERCENT
            ),
        )
    ]
    four, one = f"{net} 4", f"{net} 1"
    bounded = [
        Statement(
            f"{net}-fast",
            f"{title}: the fastest receiver with four groups over single rate",
            "4 to 8 times (its link carries 8 times the slowest one's)",
            ratio(_of(four, _rate("r4")), _of(one, _rate("r4"))),
            Bound(4.0, 8.0),
        ),
        Statement(
            f"{net}-slow",
            f"{title}: the slowest receiver with four groups over single rate",
            "nothing lost: 0.9 to 1.1",
            ratio(_of(four, _rate("r1")), _of(one, _rate("r1"))),
            Bound(0.9, 1.1),
        ),
        Statement(
            f"{net}-best",
            f"{title}: rates with four groups over those of a session for each",
            "0.75 to 1",
            ratio(_of(four, _mean), _of(f"{net} own", _mean)),
            Bound(0.75, 1.0),
        ),
        Statement(
            f"{net}-few",
            f"{title}: moves of a receiver in a minute, four groups",
            "at most 2",
            _of(four, _moves),
            Bound(0.1, 2.0),
            unit=MOVES,
        ),
        Statement(
            f"{net}-left",
            f"{title}: share of the links' traffic that belongs to a group that was left",
            "at most 5 %",
            _of(four, _unused),
            Bound(0.0, 0.05),
            unit=PERCENT,
        ),
    ]
    return [*bounded, *each, *moved]


def _changing(controller: str) -> list[Statement]:
    title, net = _CONTROLLERS[controller], f"b-h {controller}"
    one, own = f"{net} 1", f"{net} own"
    each = [
        s
        for k in (1, *_GROUPS, "own", "at once")
        for s in (
            _told(
                f"{net}-{k}-mean", f"{title}, {k}: mean rate of a receiver", _of(f"{net} {k}", _mean), MBPS
            ),
            _told(
                f"{net}-{k}-far", f"{title}, {k}: rate of the far one", _of(f"{net} {k}", _rate("mr8")), MBPS
            ),
            _told(f"{net}-{k}-tcp", f"{title}, {k}: rate of a TCP", _of(f"{net} {k}", _tcps), MBPS),
            _told(
                f"{net}-{k}-first",
                f"{title}, {k}: on the source's link",
                _of(f"{net} {k}", _first_link),
                MBPS,
            ),
        )
    ]
    moved = [
        s
        for k in (*_GROUPS, "at once")
        for s in (
            _told(
                f"{net}-{k}-moves",
                f"{title}, {k}: moves of a receiver in a minute",
                _of(f"{net} {k}", _moves),
                MOVES,
            ),
            _told(
                f"{net}-{k}-most",
                f"{title}, {k}: who gains most, over single rate",
                _extreme(f"{net} {k}", one, max),
            ),
            _told(
                f"{net}-{k}-least",
                f"{title}, {k}: who gains least, over single rate",
                _extreme(f"{net} {k}", one, min),
            ),
        )
    ]
    four = f"{net} 4"
    bounded = [
        Statement(
            f"{net}-gain",
            f"{title}: mean rate with four groups over single rate",
            "1.2 to 4 times",
            ratio(_of(four, _mean), _of(one, _mean)),
            Bound(1.2, 4.0),
        ),
        Statement(
            f"{net}-loses",
            f"{title}: who gains least from four groups, over single rate",
            "nobody loses more than a tenth",
            _extreme(four, one, min),
            Bound(0.9, 4.0),
        ),
        Statement(
            f"{net}-best",
            f"{title}: mean rate with four groups over that of a session for each",
            "0.6 to 1",
            ratio(_of(four, _mean), _of(own, _mean)),
            Bound(0.6, 1.0),
        ),
        Statement(
            f"{net}-tcps",
            f"{title}: a TCP's rate beside four groups over that beside single rate",
            "0.8 to 1",
            ratio(_of(four, _tcps), _of(one, _tcps)),
            Bound(0.8, 1.0),
        ),
    ]
    return [*bounded, *each, *moved]


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="Q-4",
        title="more than one rate",
        paper="Left as future work by the five papers, answered here",
        section="both ASMP papers, future work",
        scenario=_SCENARIOS / "q-4.toml",
        variants=tuple(v for net in _FLOORS for c in _CONTROLLERS for v in _variants(net, c)),
        source="a source that always has data",
        sizes={},
        statements=tuple(s for c in _CONTROLLERS for s in (*_plain(c), *_changing(c))),
        figures=(
            Figure(
                "Q-4",
                "What each receiver gets, behind links of 0.5, 1, 2 and 4 Mb/s",
                "sweep",
                tuple(f"plain {c} {k}" for c in _CONTROLLERS for k in (1, *_GROUPS)),
                curves=tuple(
                    Curve(
                        f"{title}, {link / 1e6:g} Mb/s",
                        tuple((k, f"plain {c} {k}") for k in (1, *_GROUPS)),
                        _got(name),
                    )
                    for c, title in _CONTROLLERS.items()
                    for name, link in _RECEIVERS["plain"].items()
                ),
                axes=("groups", "throughput (Mb/s)"),
            ),
        ),
    ),
)
