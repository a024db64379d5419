"""RFC 8868's measures of a run's videos: use of the bottlenecks, convergence, variation and fairness.

Times are in seconds since the run's start, and rates are in bit/s of IP packets. The series have the time step of the
run's tables, which is 200 ms in RFC 8867's cases (section 4.1). A bottleneck is a link with a capacity in the direction
of the media.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steadycast import units
from steadycast.lazy_import import pl

if TYPE_CHECKING:
    from steadycast.result import Run

Series = npt.NDArray[np.float64]

SETTLING_S = 10.0
"""After a flow starts or resumes, fairness and minimum rates are not judged for this time, in seconds."""
BACKGROUND = "udp"
"""The names of background flows begin with this prefix. These flows reduce the capacity for others (RFC 8867, 4.2)."""
FACTOR = 3.0
"""Two flows of equal priority share fairly if the ratio of their rates is at most this value (RFC 8868, 4.1)."""
NEAR = 0.2
"""A rate has converged if it differs from the steady rate by at most this fraction of the steady rate."""
_SHORTEST_S = 10.0
"""Convergence is judged only in segments of at least this length, in seconds."""


@dataclass(frozen=True)
class Flow:
    """A flow of a run."""

    name: str
    kind: str
    most_bps: float
    """The highest rate of the source, in bit/s."""
    active: tuple[tuple[float, float], ...]
    """The intervals in which the flow sends. Each is a pair of start and end in seconds."""
    back: bool = False
    """Whether the flow runs in the direction opposite to the bottlenecks."""

    def sends(self, at: Series) -> npt.NDArray[np.bool_]:
        """Return for each of the times ``at`` whether the flow sends."""
        within = np.zeros(len(at), dtype=bool)
        for low, high in self.active:
            # Tolerate rounding errors, because the times are sums of steps.
            within |= (at >= low - 1e-9) & (at < high - 1e-9)
        return within


@dataclass
class Facts:
    """The data of a run from which the measures are computed."""

    step: float
    """The time step of the series, in seconds."""
    flows: tuple[Flow, ...]
    received: Mapping[str, Series]
    """The rate that each flow's receivers get in total, per step."""
    carried: Mapping[str, Series]
    """The rate that each bottleneck carries, per step. Background flows are not included."""
    capacity: Mapping[str, Series]
    """The capacity that the background flows leave in each bottleneck, per step."""
    changes: tuple[float, ...]
    """The times at which a bottleneck's rate changes."""

    @cached_property
    def at(self) -> Series:
        """The times at which the steps begin."""
        steps = len(next(iter(self.received.values())))
        return np.arange(steps, dtype=np.float64) * self.step

    @cached_property
    def videos(self) -> tuple[Flow, ...]:
        """The video flows of the run. In a run without video, the TCP flows."""
        kind = "video" if any(flow.kind == "video" for flow in self.flows) else "tcp"
        return tuple(flow for flow in self.flows if flow.kind == kind)

    @cached_property
    def judged(self) -> tuple[float, float]:
        """The judged interval, in seconds.

        It begins `SETTLING_S` after the first video starts, and ends when the first video ends.
        """
        start = min(flow.active[0][0] for flow in self.videos)
        return start + SETTLING_S, min(flow.active[-1][1] for flow in self.videos)

    @cached_property
    def segments(self) -> list[tuple[float, float]]:
        """Intervals of at least `_SHORTEST_S` in which neither the capacity nor the set of sending flows changes."""
        low, high = min(flow.active[0][0] for flow in self.videos), self.judged[1]
        marks = {low, high, *self.changes, *(t for flow in self.videos for each in flow.active for t in each)}
        inside = sorted(t for t in marks if low <= t <= high)
        return [(a, b) for a, b in itertools.pairwise(inside) if b - a >= _SHORTEST_S - 1e-9]

    @cached_property
    def together(self) -> Series:
        """The total received rate of the videos that run in the bottlenecks' direction."""
        all_ = [self.received[flow.name] for flow in self.videos if not flow.back]
        return np.asarray(np.sum(all_, axis=0), dtype=np.float64)

    def windows(self, length: float, flows: Sequence[Flow]) -> Series:
        """Return the mean rates of ``flows`` in windows of ``length`` seconds, with one row for each window.

        A window is included only if all of these flows send during the whole window. The time of `SETTLING_S` after
        each start or resumption of a flow is left out. There are no windows that are shorter than a step.
        """
        size = round(length / self.step)
        if size == 0:
            return np.empty((0, len(flows)))
        settled = np.ones(len(self.at), dtype=bool)
        for flow in flows:
            settled &= flow.sends(self.at)
            for start, _ in flow.active:
                settled &= ~((self.at >= start - 1e-9) & (self.at < start + SETTLING_S - 1e-9))
        rows, first = [], 0
        while first + size <= len(self.at):
            if settled[first : first + size].all():
                rows.append([self.received[flow.name][first : first + size].mean() for flow in flows])
                first += size
            else:
                first += 1
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(flows))


@lru_cache(maxsize=1)
def facts(run: Run) -> Facts | None:
    """Return the data of a run. Return `None` if its steps or its flows' sending times are unknown.

    A flow counts as sending while the run's table has a fair share (`fair_bps`) for the flow.
    """
    told = tomllib.loads(run.scenario)
    rates, links = run.rates.to_polars(), run.links.to_polars()
    times = rates["t_s"].unique().sort()
    if len(times) < 2:
        return None
    step = float(times[1] - times[0])
    end = _read(told["duration"], units.SPAN)
    steps = round(end / step)
    most = {name: _most(each) for each in told["flow"] for name in _names(each)}
    received: dict[str, Series] = {}
    flows = []
    for flow in run.summary["flows"]:
        name = flow["name"]
        nodes = [each["name"] for each in flow.get("receivers") or []]
        own = rates.filter(pl.col("flow") == name)
        mine = own.filter(pl.col("node").is_in(nodes))
        received[name] = _steps(
            mine.group_by("t_s").agg(pl.col("throughput_bps").sum()), "throughput_bps", step, steps, 0.0
        )
        shares = mine.group_by("t_s").agg(pl.col("fair_bps").max())
        active = _spans(np.isfinite(_steps(shares, "fair_bps", step, steps, np.nan)), step)
        if not active:
            return None
        # The source's row comes first, because a flow's source is listed before its receivers.
        flows.append(Flow(name, flow["kind"], most[name], active, ".dst" in own["node"][0]))
    forward = links.filter((pl.col("direction") == "forward") & pl.col("capacity_bps").is_finite())
    carried, capacity = {}, {}
    for name in forward["link"].unique(maintain_order=True):
        mine = forward.filter(pl.col("link") == name)
        carried[name] = _steps(mine, "throughput_bps", step, steps, 0.0)
        capacity[name] = _steps(mine, "capacity_bps", step, steps, np.nan)
    changes = [
        _read(event["at"], units.SPAN)
        for event in told.get("event", [])
        if isinstance(event.get("set"), dict) and event["set"].get("direction", "both") != "back"
    ]
    # Subtract the background flows from the capacity. When they begin or end, the capacity for the others changes.
    behind = [flow for flow in flows if flow.name.startswith(BACKGROUND)]
    for flow in (flow for flow in behind if not flow.back):
        for name in capacity:
            carried[name] = np.maximum(carried[name] - received[flow.name], 0.0)
            capacity[name] = np.maximum(capacity[name] - received[flow.name], 0.0)
        changes += [at for each in flow.active for at in each if 0.0 < at < end]
    measured = tuple(flow for flow in flows if flow not in behind)
    return Facts(step, measured, received, carried, capacity, tuple(changes))


def _spans(on: npt.NDArray[np.bool_], step: float) -> tuple[tuple[float, float], ...]:
    """Return the intervals, in seconds, in which ``on`` is true for all steps."""
    turns = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(int)))
    return tuple((float(low * step), float(high * step)) for low, high in turns.reshape(-1, 2))


def _names(told: Mapping[str, Any]) -> list[str]:
    """Return the names of the flows that an entry of the scenario creates. With the key `count`, there are several."""
    name = str(told["name"])
    return [f"{name}{n + 1}" for n in range(int(told["count"]))] if "count" in told else [name]


def _most(told: Mapping[str, Any]) -> float:
    if told["kind"] == "video" and "rfc8593" in told:
        return _read(told["rfc8593"]["r_max"], units.RATE)
    return _read(told["rate"], units.RATE) if told["kind"] == "cbr" else np.inf


def _read(text: str, kind: dict[str, float]) -> float:
    found = units.read(text, kind)
    assert found is not None, text
    return found


def _steps(table: pl.DataFrame, column: str, step: float, steps: int, missing: float) -> Series:
    values = np.full(steps, missing)
    places = np.rint(table["t_s"].to_numpy() / step).astype(int)
    found = table[column].to_numpy().astype(np.float64)
    fits = (places >= 0) & (places < steps) & np.isfinite(found)
    values[places[fits]] = found[fits]
    return values


# ---------------------------------------------------------------- measures


def use(facts: Facts, *bottlenecks: str) -> float | None:
    """Return the lowest utilisation of the given links by the flows, from 0 to 1.

    The usable capacity of a link is limited to the sum of the highest rates of the flows that send.
    """
    low, high = facts.judged
    within = (facts.at >= low) & (facts.at < high)
    forward = [flow for flow in facts.flows if not flow.back]
    wanted = np.sum([flow.sends(facts.at) * 1.0 * min(flow.most_bps, 1e12) for flow in forward], axis=0)
    shares = []
    for name in bottlenecks:
        if name not in facts.capacity:
            return None
        could = np.minimum(facts.capacity[name], wanted)[within].sum()
        shares.append(float(facts.carried[name][within].sum() / could) if could > 0 else np.nan)
    known = [share for share in shares if np.isfinite(share)]
    return min(known) if known else None


def convergence(facts: Facts) -> list[tuple[float, float | None]]:
    """Return the start of each segment, and how long the videos' total rate took to converge, in seconds.

    The second value is `None` if the rate did not converge. The rate has converged when its means over 1 s and over 5 s
    differ by at most a fifth from the mean of the segment's second half.
    """
    second, five = round(1 / facts.step), round(5 / facts.step)
    found: list[tuple[float, float | None]] = []
    for low, high in facts.segments:
        first, last = round(low / facts.step), round(high / facts.step)
        steady = facts.together[(first + last) // 2 : last].mean()

        def near(place: int, length: int, last: int = last, steady: float = steady) -> bool:
            part = facts.together[place : min(place + length, last)]
            return bool(abs(part.mean() - steady) <= NEAR * steady)

        reached = next((n for n in range(first, last - second) if near(n, second) and near(n, five)), None)
        found.append((low, None if reached is None else (reached - first) * facts.step))
    return found


def slowest(facts: Facts) -> float | None:
    """Return the longest convergence time of all segments.

    Return `None` if a segment did not converge, or if there are no segments.
    """
    found = [after for _, after in convergence(facts)]
    return None if not found or None in found else max(after for after in found if after is not None)


def variation(facts: Facts) -> float | None:
    """Return the mean coefficient of variation of the video rates, over the second halves of all segments.

    The rates are means over 1 s.
    """
    second = round(1 / facts.step)
    found = []
    for low, high in facts.segments:
        first, last = round((low + high) / 2 / facts.step), round(high / facts.step)
        for flow in facts.videos:
            if flow.sends(facts.at[first:last]).all():
                part = facts.received[flow.name][first:last]
                bins = part[: len(part) // second * second].reshape(-1, second).mean(axis=1)
                if len(bins) > 1 and bins.mean() > 0:
                    found.append(float(bins.std() / bins.mean()))
    return float(np.mean(found)) if found else None


def fairness(facts: Facts, length: float) -> float | None:
    """Return the fraction of windows of ``length`` seconds in which the videos share fairly.

    In such a window, no video has more than `FACTOR` times the rate of another video.
    """
    rivals = [flow for flow in facts.videos if not flow.back]
    if len(rivals) < 2:
        return None
    rows = facts.windows(length, rivals)
    if not len(rows):
        return None
    return float((rows.max(axis=1) <= FACTOR * rows.min(axis=1)).mean())


def least(facts: Facts, length: float) -> float | None:
    """Return the lowest mean rate of a video over a window of ``length`` seconds."""
    found = [rows.min() for flow in facts.videos if len(rows := facts.windows(length, (flow,)))]
    return float(min(found)) if found else None


@dataclass(frozen=True)
class Measure:
    """A function that computes a measure, with the kinds of its arguments."""

    of: Callable[..., float | None]
    usage: str = ""
    kinds: tuple[type, ...] = ()


MEASURES: Mapping[str, Measure] = {
    "use": Measure(use, ", LINK", (str,)),
    "convergence": Measure(slowest),
    "variation": Measure(variation),
    "fair": Measure(fairness, ", SECONDS", (float,)),
    "least": Measure(least, ", SECONDS", (float,)),
}
