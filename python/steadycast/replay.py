"""Replays a call with other controllers. They are simulated on many paths that are consistent with the record."""

from __future__ import annotations

import json
import math
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from steadycast import networks, openloop
from steadycast.controllers import find
from steadycast.errors import UserError
from steadycast.files import write_text
from steadycast.folder import Json
from steadycast.loading import load
from steadycast.media.table import FrameTable
from steadycast.progress import Progress, Silent
from steadycast.report import say
from steadycast.run_pipeline import Plan, Ready, drive
from steadycast.toml import document
from steadycast.workers import cores

CONTROLLERS = ("steady", "gcc", "scream", "nada", "tfrc")
RECORDED = "gcc"
"""The controller that a browser's sender is assumed to have, because the recorded files do not say which it was."""
PATHS = 20
ALIKE = 0.27
"""Two controllers count as equal on a path if their scores differ by less than this.

The limit comes from the networks 1 to 69 of `validation.call`. There, the score difference between two controllers was
computed on the true and on the reconstructed path. In six of seven cases, the two results differed by less than this.
"""
ALIKE_BESIDE = 0.5
"""The same limit as `ALIKE`, but for calls with competing flows.

With 0.5, none of 15 random calls had two controllers in the wrong order. With 0.45, one call did (``python -m
validation.call --first 1 --cells 260 --beside cubic:1``).
"""
TOLD = 0.75
"""A controller is called better if it has a better score on more than this fraction of the paths.

A path on which the scores are equal (see `ALIKE`) counts half.
"""
FIGURES: dict[str, tuple[str, Callable[[object], str], str]] = {
    "rate_bps": ("rate", say.rate, "The mean received rate."),
    "delay_p95_ms": (
        "delay p95",
        say.ms,
        "The 95th percentile of the delay above the delay without queueing.",
    ),
    "frozen_frac": (
        "frozen",
        say.frac,
        "The share of the time in which no new picture was complete without retransmissions.",
    ),
    "score": ("rate score", say.score, "The viewer's score, estimated from the rate."),
}
"""The figures that are shown for each controller.

A figure has a heading, a function that formats it, and its meaning for the recorded call.
"""
LOOPS = (
    "The recorded packets keep the recorded rate, whatever another controller decides on their reports (open loop), so "
    "they can't rank controllers. Each controller is therefore run on each path, where its own packets fill the queue "
    f"(closed loop). The recorded controller is assumed to be {RECORDED}, and runs there as well. If its results are "
    "not close to the record, no results are shown."
)
_RATE_OFF = 0.15
"""Maximum relative error of the rate when the recorded controller is simulated."""
_DELAY_OFF = 0.30
"""Maximum relative error of the delay when the recorded controller is simulated."""
_DELAY_LEAST_MS = 5.0
"""Lower limit of the tolerance of the delay, in ms. It is the time over which the packets of a frame are spread."""
_MORE = 1.3
"""The encoder limits the rate if the target rate exceeds the sent rate by this factor for `_HELD_S`."""
_HELD_S = 4.0
"""How long the target rate must exceed the sent rate by `_MORE`, in seconds."""
_MEDIA_BAND = (0.95, 1.2)
"""Bounds of the encoder's highest rate. They are multiples of the rate that `_held` returns.

On the random networks 9 to 51 of `validation.call`, the true multiple was between 0.98 and 1.19.
"""
_HELD_BINS = 4
"""If the capacity is unknown for at most this number of bins, it is interpolated."""
_BEFORE_BINS = 4
"""If the call began before the record, the start rate is the mean sent rate of this number of bins at the beginning."""
_STEP = 0.05
"""A scenario omits changes of the capacity that are not larger than this fraction."""
_KEEPS = 0.8
"""Correlation between the errors of the capacity in one bin and in the next bin."""
_UNKNOWN_DELAY_MS = 20.0
_LONGEST_QUEUE_S = 0.5
_ACCESS_MS = 1.0
_NEVER_MS = 60_000.0
"""Delay of a call in which no packet arrived, in milliseconds."""
_MOST = 3.0
"""Upper bound of an unknown capacity, as a multiple of the highest known capacity."""


@dataclass(frozen=True)
class Drawn:
    """A random network path that is consistent with a call."""

    rates: Sequence[float]
    """Capacity of the path in each bin, in bit/s."""
    queue_bytes: float
    loss_frac: float
    media_bps: float
    """Highest rate of the encoder, in bit/s."""
    seed: int = 1


def gaps(call: Json) -> Iterator[tuple[int, int, list[float], float]]:
    """Yield each range of bins in which the capacity is unknown.

    The values are the range's start and end, the known capacities beside it, and its highest throughput in bit/s.
    """
    bins = call["bins"]
    i = 0
    while i < len(bins):
        if bins[i]["capacity_bps"]:
            i += 1
            continue
        end = next((j for j in range(i, len(bins)) if bins[j]["capacity_bps"]), len(bins))
        sides = [bins[j]["capacity_bps"]["rate"] for j in (i - 1, end) if 0 <= j < len(bins)]
        yield i, end, sides, max(max(b["at_least_bps"] or 0.0, b["arrived_bps"]) for b in bins[i:end])
        i = end


def rates(call: Json) -> list[float]:
    """Return the capacity of each bin, in bit/s. Unknown capacities are estimated."""
    found = [each["capacity_bps"]["rate"] if each["capacity_bps"] else 0.0 for each in call["bins"]]
    most = _MOST * max(found)
    for first, end, sides, went in gaps(call):
        if end - first <= _HELD_BINS:
            held = math.sqrt(sides[0] * sides[-1])
        else:
            # The capacity is between the throughput `went` and the bound `most`. Do not use the last known capacity,
            # because it may be too low. It would then limit controllers that fill the link faster than the recorded
            # controller.
            held = math.sqrt(min(max(went, min(sides) / 10), most) * most)
        found[first:end] = [held] * (end - first)
    return found


def _queue(call: Json) -> tuple[float, float]:
    """Return the lower and upper bound of the size of the queue, in bytes."""
    path = call["path"]
    held = max(path["queue"]["bytes"], 3000)
    if path["queue"]["full"]:
        return held, held
    return held, max(held, path["capacity_bps"]["median"] / 8 * _LONGEST_QUEUE_S)


def middle_path(call: Json) -> Drawn:
    """Return the path in the middle of those that are consistent with the call."""
    queue, media = (math.sqrt(low * high) for low, high in (_queue(call), _media(call)))
    return Drawn(rates(call), queue, call["path"]["chance_loss_frac"], media)


def _media(call: Json) -> tuple[float, float]:
    """Return the lower and upper bound of the encoder's highest rate, in bit/s.

    If the encoder limited the rate for `_HELD_S`, the bounds are its output multiplied by `_MEDIA_BAND`. Otherwise the
    lower bound is the 95th percentile of the sent rate over two seconds, but at least 200 kb/s. The upper bound is then
    a multiple of the highest capacity. Bounds that `_ceiling` has found take precedence.
    """
    if found := call.get("replay", {}).get("media_bps"):
        return found[0], found[1]
    if held := _held(call):
        return held * _MEDIA_BAND[0], held * _MEDIA_BAND[1]
    low = max(sustained(call["bins"]), 200e3)
    highest = max(band["rate"] for each in call["bins"] if (band := each["capacity_bps"]))
    # With competing flows, use a larger upper bound. The share that `nada` takes grows with its maximum rate (RFC 8698,
    # RMAX).
    return low, max((_MOST if call["path"].get("beside") else 1.2) * highest, low)


def _held(call: Json) -> float | None:
    """Return the mean sent rate while the encoder limited it, in bit/s. Returns `None` if it never did."""
    asked, sent = openloop.recorded(call)[1], [each["sent_bps"] for each in call["bins"]]

    def is_less(k: int) -> bool:
        near = sent[max(k - 2, 0) : k + 2]
        place = bisect_right(asked, (k + 0.5) * call["bin_s"], key=lambda one: one[0])
        return place > 0 and asked[place - 1][1] > _MORE * sum(near) / len(near)

    runs = (
        [k for k, _ in run]
        for less, run in groupby(((k, is_less(k)) for k in range(len(sent))), lambda one: one[1])
        if less
    )
    held = [sent[k] for run in runs if len(run) * call["bin_s"] >= _HELD_S for k in run]
    return sum(held) / len(held) if held else None


def sustained(bins: Sequence[Json]) -> float:
    """Return the 95th percentile of the sent rate over two seconds, in bit/s."""
    sent: list[float] = [each["sent_bps"] for each in bins]
    # Take the mean of four bins, because a bin has half a second.
    means = sorted(sum(sent[k : k + 4]) / 4 for k in range(max(len(sent) - 3, 1)))
    return means[len(means) * 95 // 100]


def drawn(call: Json, n: int = PATHS, seed: int = 1) -> list[Drawn]:
    """Return ``n`` random paths that are consistent with a call."""
    known = [each["capacity_bps"] for each in call["bins"]]
    pairs = [(a["rate"], b["rate"]) for a, b in pairwise(known) if a and b]
    # Estimate the probability that the capacity changes between two bins. Add two pairs of bins, one of them with a
    # change, so that the probability is never 0 or 1.
    steps = (1 + sum(not _alike(a, b) for a, b in pairs)) / (2 + len(pairs))
    most = _MOST * max(band["rate"] for band in known if band)
    (low, high), (least, ceiling) = _queue(call), _media(call)
    path = call["path"]
    lost = path["chance_loss_frac"] * call["seen"]["packets"] / max(path["loss_run_packets"], 1.0)

    def one(k: int) -> Drawn:
        chance = random.Random(f"{seed}/{k}")
        found, error = [], chance.gauss()
        for band in known:
            # Draw a known capacity from its uncertainty band. The errors of successive bins are correlated.
            error = _KEEPS * error + math.sqrt(1 - _KEEPS**2) * chance.gauss()
            # Divide by 3.29, because the 5th and the 95th percentile are 3.29 standard deviations apart.
            found.append(band["rate"] * (band["high"] / band["low"]) ** (error / 3.29) if band else 0.0)
        for first, end, sides, went in gaps(call):
            floor = min(max(went, min(sides) / 10), most)
            if chance.random() < (1 - steps) ** (end - first) and min(sides) >= floor / (1 + 2 * _STEP):
                # Fill the gap with the known capacities before and after it. If they differ, draw when the second one
                # replaces the first one.
                turn = chance.randint(first, end) if not _alike(sides[0], sides[-1]) else end
                found[first:end] = [sides[0]] * (turn - first) + [sides[-1]] * (end - turn)
            else:
                # The capacity changed, so draw it between `floor` and `most`. Its logarithm is uniformly distributed.
                found[first:end] = [floor * (most / floor) ** chance.random()] * (end - first)
        # Draw the loss rate from the posterior of a Poisson rate with Jeffreys' prior, scaled by the measured loss
        # rate.
        loss = path["chance_loss_frac"] * chance.gammavariate(lost + 0.5, 1 / (lost + 0.5)) if lost else 0.0
        queue, media = low * (high / low) ** chance.random(), least * (ceiling / least) ** chance.random()
        return Drawn(found, queue, min(loss, 0.5), media, k + 1)

    return [one(k) for k in range(n)]


def _alike(a: float, b: float) -> bool:
    return abs(a / b - 1) <= 2 * _STEP


FRAMES = "frames.csv"
_OTHER = re.compile(r"(?P<kind>[a-zA-Z]\w*)(:(?P<count>[1-9][0-9]?))?")
"""Competing flows of one kind, and their number."""
_RUNG_BPS = 1e6


def others(named: str | None) -> list[Json]:
    """Return the competing flows that a user asks for, for example by "cubic" or "cubic:2,web:1".

    Raises:
        UserError: the text has another form, or a kind of traffic is unknown.

    """
    if named is None:
        return []
    words = ""
    for part in named.split(","):
        form = _OTHER.fullmatch(part.strip())
        if form is None:
            what = f'"{part.strip()}" is neither KIND nor KIND:N, with N from 1 to 99'
            raise UserError("--beside", what, "write for example cubic:2 or cubic:2,web:1")
        words += f"+{form['count'] or 1}{form['kind']}"
    try:
        return list(networks.find(f"steps{words}").flow)
    except UserError as error:
        raise UserError("--beside", error.problem, error.remedy) from error


def table_of(call: Json) -> FrameTable:
    """Return the sizes of the recorded frames. They are relative to the mean of the surrounding frames."""
    frames = call["seen"]["frames"]
    fps = min(max(round(frames["per_s"] or 30), 1), 60) if frames else 30
    shares = frames["sizes"] if frames else [1.0]
    sizes = np.array([[max(share * _RUNG_BPS / 8 / fps, 1) for share in shares]], dtype=np.uint32)
    n = len(shares)
    return FrameTable(
        Fraction(fps), 1, np.zeros(n, np.uint8), [2], sizes, np.arange(n, dtype=np.uint32), "a call's"
    )


def frames_csv(call: Json) -> str:
    """Return the frame sizes of `table_of` as the text of a trace in CSV."""
    rows = (f"{k},I,2,{size}\n" for k, size in enumerate(table_of(call).sizes[0]))
    return "frame,type,q,size\n" + "".join(rows)


def scenario(call: Json, path: Drawn, trace: str, controller: str = RECORDED) -> Json:
    """Return the scenario of a path. The frame sizes of its video come from the file ``trace``."""
    seen, found = call["seen"], call["path"]
    steps: list[tuple[float, float]] = []
    for i, rate in enumerate(path.rates):
        if not steps or abs(rate / steps[-1][1] - 1) > _STEP:
            steps.append((i * call["bin_s"], rate))
    bottleneck: Json = {
        "rate": _bps(steps[0][1]),
        "delay": f"{_delay_ms(call):.1f}ms",
        "queue": {"kind": "droptail", "limit": f"{path.queue_bytes:.0f}B"},
    }
    if path.loss_frac > 0:
        # Runs of losses have a mean length of 1 / p_good. With this p_good, p_bad determines the overall loss rate.
        good = 1 / max(found["loss_run_packets"], 1.0)
        bad = min(path.loss_frac * good / (1 - path.loss_frac), 1.0)
        bottleneck["loss"] = {"kind": "gilbert", "p_good": good, "p_bad": bad}
    if found["jitter_ms"] > 0:
        # Divide by log 2 to get the mean of an exponential jitter from the measured median. The median of the absolute
        # difference between two exponential variables is log 2 times their mean.
        bottleneck["jitter"] = f"{found['jitter_ms'] / math.log(2):.3f}ms"
    cap = _bps(path.media_bps)
    codec = {"model": "trace", "r_max": cap, "skip_frames": 0}
    video: Json = {"name": "video", "kind": "video", "controller": controller, "feedback": "twcc"}
    video |= {"media": "rfc8593", "trace": trace, "cap": cap, "rfc8593": codec}
    video["encode"] = {"fps": int(table_of(call).fps)}
    if not seen["begins"] and any(each.name == "start" for each in find(controller).params):
        went = [each["sent_bps"] for each in call["bins"][:_BEFORE_BINS]]
        video["params"] = {controller: {"start": _bps(sum(went) / len(went))}}
    made: Json = {
        "format": 1,
        "name": "path",
        "duration": f"{max(seen['length_s'], 1.0):g}s",
        "seed": path.seed,
        "topology": {
            "shape": "dumbbell",
            "bottleneck": bottleneck,
            "access": {"rate": "1Gbps", "delay": f"{_ACCESS_MS:g}ms"},
        },
        "flow": [video, *others(found.get("beside"))],
    }
    events = [{"at": f"{at:g}s", "set": {"link": "bottleneck", "rate": _bps(rate)}} for at, rate in steps[1:]]
    return made | ({"event": events} if events else {})


def empty_ms(call: Json) -> float:
    """Return the delay of the call's path while its queues are empty, in milliseconds."""
    return _delay_ms(call) + 2 * _ACCESS_MS


def _delay_ms(call: Json) -> float:
    trip = call["seen"]["round_trip_ms"]
    return max(1.0, (trip / 2 if trip is not None else _UNKNOWN_DELAY_MS) - 2 * _ACCESS_MS)


def _bps(rate: float) -> str:
    return f"{rate / 1000:.0f}kbps"


# ---------------------------------------------------------------- the replay


def recorded(call: Json) -> dict[str, float | None]:
    """Return the figures of the recorded call. A figure is `None` if the record does not show it."""
    seen = call["seen"]
    paused = (seen["frames"] or {}).get("paused_s")
    went = sum(each["arrived_bps"] for each in call["bins"]) / max(len(call["bins"]), 1)
    return {
        "rate_bps": went,
        "delay_p95_ms": seen["delay_p95_ms"],
        "frozen_frac": None if paused is None else paused / seen["length_s"],
        "score": None,
    }


def replay(
    call: Json,
    controllers: Sequence[str] = CONTROLLERS,
    paths: int = PATHS,
    seed: int = 1,
    told: Progress | None = None,
) -> Json:
    """Simulate each controller on ``paths`` random paths of a call. The packets of the controller fill the queue.

    Returns:
        A mapping with the following keys. ``refusals`` are the reasons why there is no result. ``controllers`` has
        ``p05``, ``p50`` and ``p95`` over the paths for each of `FIGURES`. ``pairs`` has the number of paths on which
        controller ``one`` is better than ``other``. A path on which none is better counts half. The other keys are
        ``paths``, ``seed``, ``media_bps`` and ``recorded``.

    """
    # Raise the error for an unknown controller before the first run.
    for name in controllers:
        find(name)
    if call["path"]["refusals"]:
        return {"refusals": ["the call does not show its path"]}
    record = recorded(call)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in [*controllers, RECORDED]}
    with TemporaryDirectory() as folder, ThreadPoolExecutor(cores()) as pool:
        place = Path(folder)
        write_text(place / FRAMES, frames_csv(call))
        call = call | {"replay": {"media_bps": _ceiling(call, record["rate_bps"] or 0.0, place)}}
        tasks = [(name, path) for name in found for path in drawn(call, paths, seed)]
        ran = pool.map(lambda task: _ran(call, task[1], task[0], place), tasks)
        for k, ((name, _), figures) in enumerate(zip(tasks, ran, strict=True)):
            (told or Silent())("paths", k + 1, len(tasks))
            found[name].append(figures)
    spread = {
        name: {key: _spread([one[key] for one in each]) for key in FIGURES} for name, each in found.items()
    }
    alike = ALIKE_BESIDE if call["path"].get("beside") else ALIKE
    pairs = [
        {
            "one": a,
            "other": b,
            "better": sum(_better(*each, alike) for each in zip(found[a], found[b], strict=True)),
        }
        for a, b in combinations(found, 2)
    ]
    return {
        "refusals": _missed(record, spread[RECORDED]),
        "paths": paths,
        "seed": seed,
        "media_bps": call["replay"]["media_bps"],
        "recorded": record,
        "controllers": spread,
        "pairs": pairs,
    }


def _ceiling(call: Json, went: float, place: Path) -> tuple[float, float]:
    """Return the lower and upper bound of the encoder's highest rate, in bit/s.

    If the call does not reveal this rate, the bounds of `_media` are narrowed by bisection. The bisection finds
    the rate with which the simulation of the recorded controller reproduces the recorded rate ``went``.
    """
    low, high = _media(call)
    # Do not bisect with competing flows, because the simulated rate is then too random.
    if _held(call) or call["path"].get("beside"):
        return low, high

    def rate(ceiling: float) -> float:
        trial = call | {"replay": {"media_bps": (ceiling, ceiling)}}
        return _ran(trial, middle_path(trial), RECORDED, place)["rate_bps"]

    if rate(high) <= went * (1 + _RATE_OFF):
        return low, high
    low = min(low, went) / 1.5
    for _ in range(6):
        half = math.sqrt(low * high)
        low, high = (low, half) if rate(half) > went else (half, high)
    return low / (1 + _STEP), high * (1 + _STEP)


def _ran(call: Json, path: Drawn, controller: str, place: Path) -> dict[str, float]:
    text = document(scenario(call, path, FRAMES, controller))
    plan = Plan.of(load(str(place / "path.toml"), text=text), "path.toml", place)
    world = Ready.of(plan, Silent(), made=lambda *_: table_of(call)).world
    complete, _ = drive(world)
    receiver = json.loads(world.summary(complete))["flows"][0]["receivers"][0]
    delay: float | None = receiver["delay_ms"]["p95"]
    return {
        "rate_bps": receiver["throughput_bps"],
        "delay_p95_ms": _NEVER_MS if delay is None else max(delay - empty_ms(call), 0.0),
        "frozen_frac": 1.0 if receiver["frozen_frac"] is None else receiver["frozen_frac"],
        "score": receiver["rate_score"] or 1.0,
    }


def _better(one: dict[str, float], other: dict[str, float], alike: float) -> float:
    ahead = one["score"] - other["score"]
    return 0.5 if abs(ahead) < alike else float(ahead > 0)


def _spread(values: list[float]) -> dict[str, float]:
    return dict(zip(("p05", "p50", "p95"), map(float, np.percentile(values, (5, 50, 95))), strict=True))


def _missed(record: dict[str, float | None], again: dict[str, dict[str, float]]) -> list[str]:
    """Return a sentence for each figure that the simulation of the recorded controller does not reproduce."""
    said = []
    for key, off, least in (("rate_bps", _RATE_OFF, 0.0), ("delay_p95_ms", _DELAY_OFF, _DELAY_LEAST_MS)):
        was, now = record[key], again[key]
        if was is not None and abs(now["p50"] - was) > max(off * was, least):
            head, how, _ = FIGURES[key]
            said.append(
                f"{RECORDED} has on the reconstructed paths a {head} of {interval(now, how)}, where {how(was)} was "
                "recorded"
            )
    return said


# ---------------------------------------------------------------- in words


def interval(spread: dict[str, float], how: Callable[[object], str]) -> str:
    """Format an interval. The unit is written only once if both ends have the same unit: "3 to 5 %"."""
    low, high = how(spread["p05"]), how(spread["p95"])
    if low == high:
        return low
    (figure, _, unit), (_, _, other) = low.partition(" "), high.partition(" ")
    return f"{figure if unit == other else low} to {high}"


def is_compared(call: Json) -> bool:
    """Whether controllers were run on the paths, and the recorded controller reproduced the record there."""
    found = call.get("replay", {})
    return "controllers" in found and not found["refusals"]


def answer(call: Json) -> str:
    """Return a text about the recorded call and the result of the best controller."""
    found = call["replay"]
    if found["refusals"]:
        return f"The results of other controllers are unknown: {'; '.join(found['refusals'])}."
    ranked = sorted(found["controllers"], key=lambda name: -found["controllers"][name]["score"]["p50"])
    was = found["recorded"]

    def told(name: str) -> str:
        each = found["controllers"][name]
        return f"{interval(each['rate_bps'], say.rate)} with {interval(each['frozen_frac'], say.frac)} frozen"

    froze = "" if was["frozen_frac"] is None else f" with {say.frac(was['frozen_frac'])} frozen"
    ahead, n = _ahead(call), found["paths"]
    best, alike = ranked[0], [name for name in ranked[1:] if ahead[ranked[0], name] <= TOLD * n]
    if best == RECORDED or RECORDED in alike:
        best = f"no controller has a significantly better score than {RECORDED}: {told(RECORDED)}"
    else:
        apart = f" (not significantly better than {say.listed(alike)})" if alike else ""
        best = f"{best} has the best score{apart}: {told(best)}; {RECORDED} has {told(RECORDED)}"
    named = call["path"].get("beside")
    beside = f", with {named} as given by --beside," if named else ""
    return (
        f"The record, assumed to be of {RECORDED}: {say.rate(was['rate_bps'])}{froze}. On "
        f"{found['paths']} paths that fit "
        f"the record{beside} {best}."
    )


def verdict(call: Json) -> str:
    """Return a sentence about how often each controller is better than the recorded controller.

    It counts the paths on which the controller has a better score.
    """
    n, ahead = call["replay"]["paths"], _ahead(call)
    others = [name for name in call["replay"]["controllers"] if name != RECORDED]
    each = [f"{name} in {ahead[name, RECORDED]:g}" for name in others]
    return (
        f"Number of {n} paths on which each controller has a better score than {RECORDED}: {say.listed(each)}. "
        f"Between {n // 4} and {n - n // 4}, the difference is not significant."
    )


def _ahead(call: Json) -> dict[tuple[str, str], float]:
    found = call["replay"]
    one_way = {(pair["one"], pair["other"]): pair["better"] for pair in found["pairs"]}
    return one_way | {(b, a): found["paths"] - better for (a, b), better in one_way.items()}


def matrix(call: Json) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table that compares each pair of controllers.

    A cell is the number of paths on which the row's controller has a better score than the column's.
    """
    ahead, names = _ahead(call), list(call["replay"]["controllers"])
    rows = [[one, *("" if one == other else f"{ahead[one, other]:g}" for other in names)] for one in names]
    return ["better than", *names], rows


def table(call: Json) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table. It contains the figures of the record and of each controller."""
    found = call["replay"]
    was = [how(found["recorded"][key]) for key, (_, how, _) in FIGURES.items()]
    rows = [
        [name, *(interval(each[key], how) for key, (_, how, _) in FIGURES.items())]
        for name, each in found["controllers"].items()
    ]
    return ["", *(head for head, _, _ in FIGURES.values())], [["as recorded", *was], *rows]
