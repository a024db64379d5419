"""Compares controllers on randomly drawn networks. Each *draw* is a set of networks, named by its number.

    python -m validation.fresh --draw 8150 --cells 300 --placebo              # steady, and CUBIC in its place
    python -m validation.fresh --draw 8150 --controllers steady gcc tfrc --seeds 2           # quicker than four
    python -m validation.fresh --draw 8150 --keep runs.jsonl --name before    # and, with another program later,
    python -m validation.fresh --draw 8150 --keep runs.jsonl --name after --against before

A *cell* is a network with its other flows and the media that is sent. Cell n of a draw is always the same. Decks of
twenty cards make each class equally frequent in all draws. Once single cells of a draw have been examined, or a
constant has been chosen with it, use another draw for judging. A run is measured for 50 s, beginning 15 s after the
last flow has started. One cell in five has a *trouble*: a policer, jitter of 20 ms, several frame-based sources, or
an upload on the reverse path. These cells are counted separately.

The bounds, each with its source:

    fair     beside long CUBIC or NewReno flows, without random loss: a mean video has half to twice what a mean TCP
             has (RFC 5348, 1)
    share    the video with the least has half of its max-min share, or 0.8 of what CUBIC in its place has
             (RFC 5348, 1)
    harm     all other flows together have 0.8 of what CUBIC in the video's place leaves them, or 0.8 of their max-min
             share if that is less (Ware et al., HotNets 2019)
    kin      of several videos, the one with the least has half of their mean (RFC 5348, 1)
    used     without an elastic flow beside it: 0.85 of what others leave, or 0.7 if frame-based or at a policer
             (docs/evidence-steady.md, A3, D2)
    queue    without an elastic flow beside it: p95 of at most 25 ms, or four packets of each flow; with FQ-CoDel it is
             the video's own queue (docs/evidence-steady.md, A1, C1)
    loss     in addition to random loss: 0.5 % without an elastic flow beside it, otherwise 1 % or 1.5 times the loss of
             CUBIC in its place; at a policer as beside an elastic flow (validation/experiments/situations.toml)
    low      from 10 s after its start, at most 5 % of the seconds below a tenth of its share, and never ten in a row
             (own)
    starves  the same for a long TCP, or 5 % more of the seconds than beside CUBIC in the video's place (own)

The max-min share of a second is an equal part of the link among all elastic flows that send, or what the other flows
leave, if that is more. A cell *holds* in a run that keeps all its bounds. It is *undecided* if it holds with some
seeds but not with others. CUBIC in the video's place keeps `share` and `harm` by definition. Differences are between
the same cells and seeds; they are means over cells with 95 % intervals. `--placebo` also runs the first controller
with other seeds. A difference that is no larger than the placebo's may be due to chance.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from validation import page, simulated

CUBIC = "cubic"
"""Name of the TCP that is run in the video's place."""
L4S = ("steady", "scream")
"""Controllers that use ECN marks if the cell's queue has them."""
SEGMENT_BITS = 8 * 1500
PACKET_BITS = 8 * 1200
SETTLE, MEASURED, AFTER_STEP = 15, 50, 5
"""Seconds from the last start to the measurement, seconds of the measurement, and seconds after a step of the rate in
which shares are not counted."""
STEP = (15, 35)
"""Begin and end of the changed rate, in seconds from the begin of the measurement."""
JITTER = 0.020
"""Maximum jitter in seconds of the cells that have jitter. It is uniformly distributed."""
LEAST_SHARE = 150e3
"""The number of videos in a cell is limited, so that an equal share is at least this rate in bit/s."""
PLACEBO_SEEDS = 1000
SEEN_VERSION = 2
"""Version of the measured values of a run. A kept run with another version is made again."""
LONG = {"cubic": 1, "newreno": 1, "2 cubic": 2, "bbr": 1}
"""Rivals that send from their start to the end, with their number of flows."""
UDP = ("cbr", "on/off udp")
SIZES = (30e3, 100e3, 300e3)
"""Sizes in bytes of the objects of a web-like rival. Each size makes up a third of the load."""

DECKS: Mapping[str, Mapping[str, int]] = {
    "rival": {
        "none": 5, "cubic": 3, "newreno": 2, "2 cubic": 2, "bbr": 2, "web": 2, "cbr": 2,
        "on/off tcp": 1, "on/off udp": 1,
    },
    "queue": {"droptail": 8, "codel": 3, "fq-codel": 3, "pie": 2, "red": 2, "dualpi2": 2},
    "media": {"greedy": 13, "frames": 4, "several": 3},
    "loss": {"no": 16, "yes": 4},
    "step": {"no": 17, "yes": 3},
    "first": {"video": 10, "rival": 10},
    "trouble": {"no": 16, "policer": 1, "jitter": 1, "several frames": 1, "way back": 1},
}  # fmt: skip
"""Number of each card in a deck, which is dealt to twenty consecutive cells."""

Seen = dict[str, float]
Rates = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Cell:
    """A network with its flows."""

    key: str
    rate: float
    """Rate of the bottleneck, or of the policer, in bit/s."""
    rtt: float
    """Round-trip time without queueing, in seconds."""
    queue: str
    depth: float
    """Length of a drop-tail queue in BDP; 0 for other queues."""
    rival: str
    part: float
    """Rate of a UDP or web-like rival, as a fraction of the bottleneck's rate."""
    frames: bool
    own: int
    """Videos."""
    loss: float
    step: float
    """Factor of the rate during a part of the measured time; 1: the rate is constant."""
    late: float
    """Start in seconds of the second group: the rival, or the videos if the rival starts first."""
    rival_first: bool
    ecn: str
    """ECN code point of videos whose controller supports it: "ect0" or "ect1"; empty: not ECN-capable."""
    trouble: str
    burst: float
    """Burst size of a policer, in seconds at its rate."""

    def starts(self) -> list[float]:
        """Return the start times of the videos in seconds."""
        begin = self.late if self.rival_first and self.rival != "none" else 0.0
        return [begin + 5.0 * n for n in range(self.own)]

    @property
    def begin(self) -> int:
        """The first measured second."""
        return math.ceil(max(self.late, self.starts()[-1])) + SETTLE

    @property
    def end(self) -> int:
        """The second after the last measured one."""
        return self.begin + MEASURED

    def capacity(self, second: int) -> float:
        """Return the bottleneck's rate in this second, in bit/s."""
        stepped = self.begin + STEP[0] <= second < self.begin + STEP[1]
        return self.rate * (self.step if stepped else 1.0)

    def settled(self) -> list[int]:
        """Return the measured seconds in which shares are counted."""
        steps = [self.begin + at for at in STEP] if self.step != 1 else []
        seconds = range(self.begin, self.end)
        return [n for n in seconds if all(not at <= n < at + AFTER_STEP for at in steps)]

    @property
    def elastic(self) -> bool:
        """Whether another flow uses the capacity that a video leaves."""
        return self.rival not in ("none", *UDP)

    @property
    def kind(self) -> str:
        """The kind of media that is sent: "several" videos, "frames" or "greedy"."""
        return "several" if self.own > 1 else "frames" if self.frames else "greedy"


def _card(draw: int, number: int, name: str) -> str:
    """Return the card for a cell, from a deck that is shuffled anew for every twenty cells."""
    deck = [card for card, count in DECKS[name].items() for _ in range(count)]
    block, place = divmod(number, len(deck))
    Random(f"{draw} {name} {block}").shuffle(deck)
    return deck[place]


def cell(draw: int, number: int) -> Cell:
    """Return cell `number` of a draw."""
    chance = Random(f"{draw} {number}")

    def between(low: float, high: float) -> float:
        """Draw a number whose logarithm is uniform."""
        return math.exp(chance.uniform(math.log(low), math.log(high)))

    rate, rtt, depth, burst = between(0.5e6, 50e6), between(0.010, 0.250), between(0.3, 6), between(0.01, 0.1)
    loss, late, part = chance.uniform(0.005, 0.02), chance.uniform(3, 10), chance.uniform(0.2, 0.6)
    count, step = chance.randint(2, 4), chance.choice([between(0.3, 0.75), between(1.33, 2.5)])
    ect1 = chance.random() < 0.5
    cards = {name: _card(draw, number, name) for name in DECKS}
    trouble, queue, rival = cards["trouble"], cards["queue"], cards["rival"]
    plain = trouble == "no"
    several = trouble == "several frames" or (plain and cards["media"] == "several")
    most = max(1, int(rate / LEAST_SHARE) - LONG.get(rival, 0 if rival == "none" else 1))
    return Cell(
        key=f"{draw}-{number}",
        rate=round(rate, -3),
        rtt=round(rtt, 4),
        queue=queue,
        depth=depth if queue == "droptail" else 0.0,
        rival=rival,
        part=part,
        frames=trouble == "several frames" or (plain and cards["media"] == "frames"),
        own=min(count, most) if several else 1,
        loss=round(loss, 4) if plain and cards["loss"] == "yes" else 0.0,
        step=round(step, 3) if plain and cards["step"] == "yes" else 1.0,
        late=round(late, 3),
        rival_first=cards["first"] == "rival",
        ecn="ect1" if queue == "dualpi2" and ect1 else "",
        trouble=trouble,
        burst=burst,
    )


# # -- the scenario of a cell


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def _table(head: str, keys: Mapping[str, object]) -> str:
    return "\n".join([head, *(f"{key} = {_value(value)}" for key, value in keys.items()), ""])


def _flow(name: str, kind: str, start: float, **more: object) -> str:
    return _table("[[flow]]", {"name": name, "kind": kind, "start": f"{start:g}s", **more})


def _tcp(name: str, congestion: str, start: float, **more: object) -> str:
    return _flow(name, "tcp", start, preset="linux", congestion=congestion, send_jitter="1ms", **more)


def _rivals(one: Cell) -> list[str]:
    """Return the rival's flows as text."""
    start = 0.0 if one.rival_first else one.late
    period = {way: {"dist": "exponential", "mean": "5s"} for way in ("on", "off")}
    sent = {"rate": f"{one.part * one.rate:.0f}bps"}
    match one.rival:
        case "none":
            return []
        case "2 cubic":
            return [_tcp(f"long{n + 1}", "cubic", start + n) for n in range(2)]
        case "on/off tcp":
            return [_tcp("short", "cubic", start, **period)]
        case "cbr":
            return [_flow("udp", "cbr", start, **sent)]
        case "on/off udp":
            return [_flow("udp", "onoff", start, **sent, **period)]
        case "web":
            pauses = [max(8 * size / (one.part / len(SIZES) * one.rate), 0.05) for size in SIZES]
            offs = [{"dist": "exponential", "mean": f"{pause:.3f}s"} for pause in pauses]
            begins = [start + 0.3 * n for n in range(len(SIZES))]
            each = zip(SIZES, offs, begins, strict=True)
            return [
                _tcp(f"short{n + 1}", "cubic", begin, bytes=f"{size:.0f}B", off=off)
                for n, (size, off, begin) in enumerate(each)
            ]
    return [_tcp("long1", one.rival, start)]


def _videos(one: Cell, controller: str, params: Mapping[str, object]) -> list[str]:
    named = [(f"video{n + 1}", start) for n, start in enumerate(one.starts())]
    if controller == CUBIC:
        return [_tcp(name, "cubic", start) for name, start in named]
    keys: dict[str, object] = {"controller": controller, "media": "greedy"}
    if one.frames:
        # In RFC 8593 the burst of 13.5 kB belongs to its highest rate of 1.5 Mb/s.
        burst = max(2000, round(13_500 * one.rate / 1.5e6))
        most = one.rate * max(one.step, 1.0)
        codec = {"r_min": "100kbps", "r_max": f"{most:.0f}bps", "k_b": f"{burst}B"}
        keys |= {"media": "rfc8593", "rfc8593": codec}
    if one.ecn and controller in L4S:
        keys["ecn"] = one.ecn
    if params:
        keys["params"] = {controller: params}
    return [_flow(name, "video", start, **keys) for name, start in named]


def _neck(one: Cell) -> dict[str, object]:
    """Return the keys of the bottleneck."""
    queue: dict[str, object] = {"kind": one.queue}
    if one.queue == "droptail":
        queue["limit"] = f"{max(8, round(one.depth * one.rate * one.rtt / SEGMENT_BITS))}p"
    if one.queue == "red":
        queue["preset"] = "classic"
    delay = f"{(one.rtt / 2 - 0.002) * 1e3:.3f}ms"
    neck: dict[str, object] = {"rate": f"{one.rate:.0f}bps", "delay": delay, "queue": queue}
    if one.loss:
        neck["loss"] = {"kind": "bernoulli", "p": one.loss}
    if one.trouble == "jitter":
        neck["jitter"] = {"dist": "uniform", "mean": f"{JITTER / 2 * 1e3:g}ms"}
    if one.trouble == "policer":
        bytes_ = max(10 * SEGMENT_BITS, one.burst * one.rate) / 8
        neck |= {"rate": f"{4 * one.rate:.0f}bps"}
        neck["policer"] = {"rate": f"{one.rate:.0f}bps", "burst": f"{bytes_:.0f}B"}
    return neck


def scenario(one: Cell, controller: str, params: Mapping[str, object]) -> str:
    """Return a cell as a scenario file."""
    head = {"format": 1, "name": f"fresh-{one.key}", "duration": f"{one.end}s", "warmup": f"{one.begin}s"}
    access = {"rate": "10Gbps", "delay": "1ms", "queue": {"kind": "droptail", "limit": "100000p"}}
    flows = [*_videos(one, controller, params), *_rivals(one)]
    if one.trouble == "way back":
        flows.append(_tcp("upload", "cubic", 0.0, **{"from": "video1.dst1", "to": "video1.src"}))
    rates = [(STEP[0], one.step), (STEP[1], 1.0)] if one.step != 1 else []
    events = [
        _table(
            "[[event]]",
            {
                "at": f"{one.begin + at}s",
                "set": {"link": "bottleneck", "rate": f"{one.rate * times:.0f}bps"},
            },
        )
        for at, times in rates
    ]
    topology = {"shape": "dumbbell", "bottleneck": _neck(one), "access": access}
    return "\n".join([_table("", head), _table("[topology]", topology), *flows, *events])


# -- a run


def see(one: Cell, controller: str, params: Mapping[str, object], seed: int) -> Seen:
    """Run a cell once, and return the measured values."""
    done = simulated.run(scenario(one, controller, params), seed)
    rows = done.rates.to_polars().select("t_s", "flow", "node", "throughput_bps").iter_rows()
    rates: dict[str, list[float]] = {}
    for at, flow, node, bps in rows:
        if ".dst" in node and flow != "upload":
            rates.setdefault(flow, [0.0] * one.end)
            if round(at) < one.end:
                rates[flow][round(at)] = bps or 0.0
    return _figures(one, done.summary, rates)


def _granted(one: Cell, rates: Rates, second: int) -> float:
    """Return the max-min fair share of a video in bit/s."""
    sends = {name: each[second] for name, each in rates.items() if each[second] and name[:5] != "video"}
    udp = sends.get("udp", 0.0)
    videos = sum(second >= start for start in one.starts()) or 1
    left = one.capacity(second) - sum(sends.values())
    return max((one.capacity(second) - udp) / (videos + len(sends.keys() - {"udp"})), left / videos)


def _due(one: Cell, rates: Rates, second: int) -> float:
    """Return the max-min fair share of all other flows together, in bit/s.

    A long flow is always active. Another flow is active in a second in which some of its packets arrive.
    """
    active = [
        name for name, each in rates.items() if name[:5] != "video" and (name[:4] == "long" or each[second])
    ]
    videos = sum(second >= start for start in one.starts())
    equal = one.capacity(second) / max(videos + len(active), 1)
    return len(active) * (min(equal, one.part * one.rate) if one.rival in UDP else equal)


def _own_queue_ms(one: Cell, flow: Mapping[str, Any]) -> float:
    """Return the 95th percentile of a video's own queueing delay in ms; for a TCP, that of its round-trip time."""
    jitter = 0.95 * JITTER if one.trouble == "jitter" else 0.0
    if flow["kind"] == "tcp":
        return float((flow["srtt_ms"]["p95"] or 0.0) - (one.rtt + SEGMENT_BITS / one.rate + jitter) * 1e3)
    delay = flow["receivers"][0]["delay_ms"]["p95"] or 0.0
    return float(delay - (one.rtt / 2 + PACKET_BITS / one.rate + jitter) * 1e3)


def _low(one: Cell, has: Sequence[float], begin: float, share: Callable[[int], float]) -> tuple[float, int]:
    """Return how often a flow has less than a tenth of its share.

    The values are the fraction of such seconds, and the longest run of consecutive ones.
    """
    row = longest = count = 0
    seconds = range(math.ceil(begin) + 10, one.end)
    for n in seconds:
        row = row + 1 if has[n] < 0.1 * share(n) else 0
        longest, count = max(longest, row), count + (row > 0)
    return count / len(seconds), longest


def _figures(one: Cell, summary: Mapping[str, Any], rates: Rates) -> Seen:
    videos = sorted(name for name in rates if name.startswith("video"))
    others = [name for name in rates if not name.startswith("video")]
    long = [name for name in others if name.startswith("long")]
    counted = one.settled()
    granted = {n: _granted(one, rates, n) for n in range(one.end)}
    means = {name: statistics.fmean(each[n] for n in counted) for name, each in rates.items()}
    share = statistics.fmean(granted[n] for n in counted)
    shares = [means[name] / share for name in videos]
    lows = [
        _low(one, rates[name], at, granted.__getitem__) for name, at in zip(videos, one.starts(), strict=True)
    ]
    ways = [link for link in summary["links"] if link["name"] == "bottleneck"]
    neck = next(link for link in ways if link["direction"] == "forward")
    spare = statistics.fmean(one.capacity(n) for n in counted) - sum(means[name] for name in others)
    video = statistics.fmean(means[name] for name in videos)
    sent = [flow for flow in summary["flows"] if flow["name"] in videos]
    seen = {
        "share": min(shares),
        "others_bps": sum(means[name] for name in others),
        "due_bps": statistics.fmean(_due(one, rates, n) for n in counted),
        "used": len(videos) * video / max(spare, 1.0),
        "queue_ms": neck["queue_ms"]["p95"] or 0.0,
        "loss": max(_lost(flow) for flow in sent),
        "kin": min(shares) / max(statistics.fmean(shares), 1e-9),
        "low": max(part for part, _ in lows),
        "low_row": max(row for _, row in lows),
    }
    if one.queue == "fq-codel":
        # With FQ-CoDel, the queue of another flow does not delay the video's packets.
        seen["queue_ms"] = max(_own_queue_ms(one, flow) for flow in sent)
    if long:
        equal = [one.capacity(n) / (len(long) + len(videos)) for n in range(one.end)]
        begin = max(1.0 if one.rival_first else one.late + 1, *one.starts())
        starved = [_low(one, rates[name], begin, equal.__getitem__) for name in long]
        seen["ratio"] = video / max(statistics.fmean(means[name] for name in long), 1.0)
        seen["tcp_low"] = max(part for part, _ in starved)
        seen["tcp_row"] = max(row for _, row in starved)
    return seen


def _lost(flow: Mapping[str, Any]) -> float:
    """Return the share of a flow's packets that is lost; for a TCP, the share that is retransmitted."""
    lost = (flow.get("receivers") or [{}])[0].get("loss_frac")
    if lost is None:
        lost = (flow.get("retransmitted_packets") or 0) / max(flow.get("sent_packets") or 1, 1)
    return float(lost)


# # -- the bounds


BOUNDS = ("fair", "share", "harm", "kin", "used", "queue", "loss", "low", "starves")


def verdict(one: Cell, seen: Seen, beside: Seen) -> dict[str, bool]:
    """Return for each bound of a cell whether it is kept. `beside` is the run with CUBIC in the video's place.

    The max-min share of the other flows comes from CUBIC's run, because a video that starves them would lower it.
    """
    found = {
        "share": seen["share"] >= min(0.5, 0.8 * beside["share"]),
        "low": seen["low"] <= 0.05 and seen["low_row"] < 10,
    }
    if one.rival in ("cubic", "newreno", "2 cubic") and not one.loss:
        found["fair"] = 0.5 <= seen["ratio"] <= 2.0
    if one.rival != "none":
        found["harm"] = seen["others_bps"] >= 0.8 * min(beside["others_bps"], beside["due_bps"])
    if "tcp_low" in seen:
        most = max(0.05, beside["tcp_low"] + 0.05)
        found["starves"] = seen["tcp_low"] <= most and seen["tcp_row"] < max(10, beside["tcp_row"] + 1)
    if one.own > 1:
        found["kin"] = seen["kin"] >= 0.5
    beyond, policed = seen["loss"] - one.loss, one.trouble == "policer"
    if one.elastic or policed:
        found["loss"] = beyond <= max(0.01, 1.5 * (beside["loss"] - one.loss))
    else:
        found["loss"] = beyond <= 0.005
    if not one.elastic:
        found["used"] = seen["used"] >= (0.7 if one.frames or policed else 0.85)
        slowest = one.rate * min(one.step, 1.0)
        found["queue"] = seen["queue_ms"] <= max(25.0, 4 * one.own * PACKET_BITS / slowest * 1e3)
    return found


FIGURES = {
    "holds": (100, 1, "%"), "low": (100, 2, "%"), "share": (1, 3, ""), "others": (1, 3, ""),
    "unfair": (1, 3, "octaves"), "used": (100, 1, "%"), "queue": (1, 1, "ms"),
    "loss alone": (100, 3, "%"), "loss beside": (100, 2, "%"),
}  # fmt: skip
"""Figures that are compared, each with its factor, its number of decimals, and its unit."""
LESS = ("low", "unfair", "queue", "loss alone", "loss beside")
"""Figures for which smaller is better."""


def values(one: Cell, seen: Seen, beside: Seen) -> dict[str, float]:
    """Return the figures that apply to a cell."""
    found = {"holds": float(all(verdict(one, seen, beside).values())), "low": seen["low"]}
    beyond = seen["loss"] - one.loss
    if not one.elastic:
        return found | {"used": min(seen["used"], 1.0), "queue": seen["queue_ms"], "loss alone": beyond}
    others = min(seen["others_bps"] / max(beside["others_bps"], 1.0), 1.5)
    found |= {"share": min(seen["share"], 1.0), "others": others, "loss beside": beyond}
    if "ratio" in seen and one.rival != "bbr" and not one.loss:
        found["unfair"] = abs(math.log2(min(max(seen["ratio"], 1 / 16), 16)))
    return found


# -- all runs


@dataclass(frozen=True)
class Found:
    """The runs by name, cell and seed, with functions that evaluate them."""

    cells: Sequence[Cell]
    runs: Mapping[tuple[str, str, int], Seen]
    seeds: int

    def of(self, one: Cell, name: str) -> list[tuple[Seen, Seen]]:
        """Return pairs of a run of the cell and the run with CUBIC in the video's place.

        Seeds without both runs are left out.
        """
        seeds = range(1, self.seeds + 1)
        each = [
            (self.runs.get((name, one.key, seed)), self.runs.get((CUBIC, one.key, seed))) for seed in seeds
        ]
        return [(seen, cubic) for seen, cubic in each if seen is not None and cubic is not None]

    def held(self, one: Cell, name: str) -> list[bool]:
        """Return for each run of a cell whether it keeps all bounds."""
        return [all(verdict(one, *pair).values()) for pair in self.of(one, name)]

    def kept(self, one: Cell, name: str) -> dict[str, bool]:
        """Return for each bound of a cell whether all its runs keep it."""
        each = [verdict(one, *pair) for pair in self.of(one, name)]
        return {bound: all(kept[bound] for kept in each) for bound in each[0]} if each else {}

    def values(self, one: Cell, name: str) -> dict[str, float]:
        """Return the means of a cell's figures over its seeds."""
        each = [values(one, *pair) for pair in self.of(one, name)]
        return {figure: statistics.fmean(of[figure] for of in each) for figure in each[0]} if each else {}

    def among(self, chosen: Callable[[Cell], bool]) -> Found:
        """Return the runs of the cells that meet a condition."""
        return Found([one for one in self.cells if chosen(one)], self.runs, self.seeds)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval.

    The normal quantile is widened for small counts, like Student's t.
    """
    count = len(differences)
    if count < 2:
        return (differences[0] if differences else 0.0), math.inf
    quantile = 1.96 + 2.5 / (count - 1)
    return statistics.fmean(differences), quantile * statistics.stdev(differences) / math.sqrt(count)


def counts(found: Found, names: Sequence[str]) -> page.Table:
    """Count the cells that hold with all seeds, those that are undecided, and for each bound the cells that keep it."""
    rows = []
    for name in names:
        judged = [kept for one in found.cells if (kept := found.kept(one, name))]
        held = [of for one in found.cells if (of := found.held(one, name))]
        texts = [f"{sum(map(all, held))}/{len(held)}", f"{sum(len(set(of)) > 1 for of in held)}/{len(held)}"]
        for bound in BOUNDS:
            having = [kept[bound] for kept in judged if bound in kept]
            texts.append(f"{sum(having)}/{len(having)}")
        rows.append([name, *texts])
    return page.table(["", "holds", "undecided", *BOUNDS], rows)


def figures(found: Found, names: Sequence[str], against: str | None = None) -> page.Table:
    """Return the means of all figures over cells, or with `against` the mean differences with their intervals."""
    rows = []
    for name in (name for name in names if name != against):
        gathered: dict[str, list[float]] = {figure: [] for figure in FIGURES}
        for one in found.cells:
            base = found.values(one, against) if against else {}
            for figure, value in found.values(one, name).items():
                if not against or figure in base:
                    gathered[figure].append(value - base.get(figure, 0.0))
        texts = []
        for figure, (scale, digits, _) in FIGURES.items():
            mean, half = interval(gathered[figure])
            if not gathered[figure]:
                texts.append("")
            elif against is None:
                texts.append(f"{scale * mean:.{digits}f}")
            else:
                worse = (mean > 0) == (figure in LESS)
                mark = "" if abs(mean) <= half else " worse" if worse else " better"
                texts.append(f"{scale * mean:+.{digits}f} ± {scale * half:.{digits}f}{mark}")
        rows.append([name, *texts])
    heads = [f"{figure}, {unit}" if unit else figure for figure, (*_, unit) in FIGURES.items()]
    return page.table([f"less {against}" if against else "", *heads], rows)


CLASSES: Mapping[str, Callable[[Cell], str]] = {
    "rival": lambda one: one.rival,
    "queue": lambda one: "droptail < 1 BDP" if 0 < one.depth < 1 else one.queue,
    "media": lambda one: one.kind,
    "rate": lambda one: "< 2 Mb/s" if one.rate < 2e6 else "2 to 10 Mb/s" if one.rate < 10e6 else "≥ 10 Mb/s",
    "rtt": lambda one: "< 30 ms" if one.rtt < 0.03 else "30 to 100 ms" if one.rtt < 0.1 else "≥ 100 ms",
    "loss": lambda one: "yes" if one.loss else "no",
    "step": lambda one: "no" if one.step == 1 else "yes",
    "first": lambda one: "nobody else" if one.rival == "none" else "rival" if one.rival_first else "video",
}
TROUBLE: Mapping[str, Callable[[Cell], str]] = {"trouble": lambda one: one.trouble}


def classes(found: Found, names: Sequence[str], of: Mapping[str, Callable[[Cell], str]]) -> page.Table:
    """Return the number of cells in each class that hold.

    A cell counts with the share of its seeds in which it holds.
    """
    rows = []
    for name, read in of.items():
        for value in sorted({read(one) for one in found.cells}):
            some = [one for one in found.cells if read(one) == value]
            held = [
                [found.values(one, each)["holds"] for one in some if found.of(one, each)] for each in names
            ]
            rows.append([name, value, *(f"{sum(each):g}/{len(each)}" for each in held)])
    return page.table(["", "", *names], rows)


@dataclass(frozen=True)
class Task:
    """One run, with its name in the tables."""

    name: str
    one: Cell
    seed: int
    controller: str
    params: Mapping[str, object]
    shift: int = 0

    def key(self) -> str:
        """Return the key of the run in the file of kept runs."""
        text = scenario(self.one, self.controller, self.params)
        words = f"{self.name}\n{self.seed + self.shift}\n{SEEN_VERSION}\n{text}"
        return hashlib.sha256(words.encode()).hexdigest()[:20]

    def run(self) -> Seen:
        """Run it."""
        return see(self.one, self.controller, self.params, self.seed + self.shift)


def with_marks(tasks: Sequence[Task], first: str) -> list[Task]:
    """Return the tasks, with those of the first controller twice: with ECT(1) and with ECT(0)."""
    found = []
    for task in tasks:
        ecns = {"": "ect1", "-ect0": "ect0"} if task.name == first else {"": ""}
        found += [
            replace(task, name=task.name + more, one=replace(task.one, ecn=ecn)) for more, ecn in ecns.items()
        ]
    return found


def run_all(tasks: Sequence[Task], keep: Path | None, jobs: int) -> dict[tuple[str, str, int], Seen]:
    """Run the tasks that are not kept, and return all runs, including kept runs of other tasks."""
    kept: dict[str, tuple[str, str, int, Seen]] = {}
    if keep is not None and keep.exists():
        kept = {key: tuple(rest) for key, *rest in map(json.loads, keep.read_text().splitlines())}
    todo = {key: task for task in tasks if (key := task.key()) not in kept}
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(task.run): (key, task) for key, task in todo.items()}
        for future in as_completed(waiting):
            key, task = waiting[future]
            kept[key] = (task.name, task.one.key, task.seed, future.result())
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps([key, *kept[key]]) + "\n")
    return {(name, cell_key, seed): seen for name, cell_key, seed, seen in kept.values()}


def report(found: Found, names: Sequence[str], against: str) -> str:
    """Return all tables as text: those of the cells without a trouble first, then those with one."""
    plain, apart = found.among(lambda one: one.trouble == "no"), found.among(lambda one: one.trouble != "no")
    parts = [
        ("Cells that hold with all seeds, and bounds that are kept", counts(plain, names)),
        ("Means over cells", figures(plain, names)),
        ("Paired differences", figures(plain, names, against)),
        ("Cells that hold in the mean of the seeds, by class", classes(plain, names, CLASSES)),
        ("The same of those with a trouble", classes(apart, names, TROUBLE)),
        ("Bounds that these keep", counts(apart, names)),
        ("Their paired differences", figures(apart, names, against)),
    ]
    return "\n\n".join(f"## {head}\n\n{text}" for head, text in parts)


def _set(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the tables."""
    parser = page.options("validation.fresh", __doc__, seeds=4)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--draw", type=int, required=True, help="the number that the cells are drawn by")
    add("--cells", type=int, default=120, help="how many (default 120)")
    add("--trouble", action="store_true", help="only those with a trouble")
    add("--dualpi2", action="store_true", help="each with DualPI2, the first with ECT(1) and with ECT(0)")
    add("--controllers", nargs="+", default=["steady"], metavar="NAME", help="default steady")
    add("--set", nargs="+", default=[], metavar="PARAM=VALUE", help="parameters of the first controller")
    add("--name", help="what the first controller is called in the tables")
    add("--placebo", action="store_true", help="and run the first controller with other seeds")
    add("--against", help="what the others are compared with (default: the first)")
    add("--keep", type=Path, metavar="FILE", help="a file of runs: what it has is not run again, but shown")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each processor)")
    args = parser.parse_args(argv)
    cells = [cell(args.draw, n) for n in range(args.cells)]
    cells = [one for one in cells if not args.trouble or one.trouble != "no"]
    if args.dualpi2:
        cells = [replace(one, queue="dualpi2", depth=0.0) for one in cells]
    first, *rest = args.controllers
    chosen = [(args.name or first, first, dict(map(_set, args.set)), 0)]
    chosen += [(name, name, {}, 0) for name in dict.fromkeys([*rest, CUBIC])]
    if args.placebo:
        chosen.append(("placebo", first, dict(map(_set, args.set)), PLACEBO_SEEDS))
    tasks = [
        Task(name, one, seed, controller, params, shift)
        for one in cells
        for seed in range(1, args.seeds + 1)
        for name, controller, params, shift in chosen
    ]
    if args.dualpi2:
        tasks = with_marks(tasks, chosen[0][0])
    runs = run_all(tasks, args.keep, args.jobs)
    keys = {one.key for one in cells}
    names = list(dict.fromkeys([*(task.name for task in tasks), *(n for n, key, _ in runs if key in keys)]))
    print(report(Found(cells, runs, args.seeds), names, args.against or names[0]))
    return 0


if __name__ == "__main__":
    page.end(main)
