"""RFC 8868's measures of a run: throughput over time, delay, loss, convergence and fairness.

Times are in seconds since the run's start, rates in bit/s of IP packets, delays in milliseconds. Series have the step
of the record, which the cases set to 200 ms (RFC 8867, 4.1).
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steadycast import units
from steadycast.lazy_import import pl

if TYPE_CHECKING:
    from steadycast.cases.case import Bound, Case
    from steadycast.result import Run

Series = npt.NDArray[np.float64]

SETTLING_S = 10.0
"""The time in seconds after a flow's start or return in which fairness and minimum rates are not judged."""
WINDOWS_S = (1, 5, 20)
"""The window lengths in seconds over which shares are compared (RFC 8868, 4.1)."""
BACKGROUND = "udp"
"""The name prefix of background flows, which reduce the capacity of the case's flows (RFC 8867, 4.2)."""
FACTOR = 3.0
"""The largest ratio between the rates of flows with the same priority (RFC 8868, 4.1)."""
NEAR = 0.2
"""The relative difference from the steady rate below which a rate counts as converged."""
_SHORTEST_S = 10.0
"""The shortest segment in seconds in which convergence is judged."""


@dataclass(frozen=True)
class Flow:
    """A flow of a case."""

    name: str
    kind: str
    most_bps: float
    """The highest rate that the source can use."""
    active: tuple[tuple[float, float], ...]
    """The intervals in which it sends."""
    back: bool = False
    """Whether its direction is opposite to the measured bottlenecks."""

    def sends(self, at: Series) -> npt.NDArray[np.bool_]:
        """Return for each of these times whether the flow sends."""
        within = np.zeros(len(at), dtype=bool)
        for low, high in self.active:
            within |= (at >= low - 1e-9) & (at < high - 1e-9)
        return within


@dataclass
class Facts:
    """The data of a run for the measures."""

    step: float
    """The length of a step, in seconds."""
    end: float
    flows: tuple[Flow, ...]
    received: dict[str, Series]
    """The received rate of each flow per step; all flows of these cases have one receiver."""
    delay: dict[str, Series]
    """The mean one-way delay of each flow; NaN for steps without arrivals."""
    carried: dict[str, Series]
    """The sending rate of each bottleneck."""
    capacity: dict[str, Series]
    """The capacity of each bottleneck for the case's flows."""
    changes: tuple[float, ...]
    """The times at which a bottleneck's rate changes."""
    summary: Mapping[str, Any]
    frame_delay_ms: Series
    """The delay of each complete video frame, from its encoding to the arrival of its last packet."""
    first_video: Series | None = None
    """The encoding time of each frame of the first video, in s, and its delay; NaN if it did not arrive."""

    @classmethod
    def of(cls, run: Run, links: Sequence[str]) -> Facts:
        """Extract the data from a run."""
        told = tomllib.loads(run.scenario)
        end = _read(told["duration"], units.SPAN)
        step = _read(told["record"]["interval"], units.SPAN)
        flows = tuple(
            _flow(flow, told.get("event", []), end) for flow in told["flow"] if flow.get("count") != 0
        )
        steps = round(end / step)
        rates, table = run.rates.to_polars(), run.links.to_polars()
        nodes = {
            flow["name"]: [each["name"] for each in flow.get("receivers") or []]
            for flow in run.summary["flows"]
        }
        received, delay = {}, {}
        for flow in flows:
            mine = rates.filter((pl.col("flow") == flow.name) & pl.col("node").is_in(nodes[flow.name]))
            received[flow.name] = _steps(mine, "throughput_bps", step, steps, 0.0)
            delay[flow.name] = _steps(mine, "delay_ms", step, steps, np.nan)
        carried, capacity = {}, {}
        for name in links:
            mine = table.filter((pl.col("link") == name) & (pl.col("direction") == "forward"))
            carried[name] = _steps(mine, "throughput_bps", step, steps, 0.0)
            capacity[name] = _steps(mine, "capacity_bps", step, steps, np.nan)
        changes = tuple(
            _read(event["at"], units.SPAN)
            for event in told.get("event", [])
            if isinstance(event.get("set"), dict) and event["set"].get("direction", "both") != "back"
        )
        # Background flows are not part of the case: their rate is subtracted from the capacity, whose changes include
        # theirs.
        behind = [flow for flow in flows if flow.name.startswith(BACKGROUND)]
        for flow in (flow for flow in behind if not flow.back):
            for name in links:
                carried[name] = np.maximum(carried[name] - received[flow.name], 0.0)
                capacity[name] = np.maximum(capacity[name] - received[flow.name], 0.0)
            changes += tuple(at for each in flow.active for at in each if 0.0 < at < end)
        flows = tuple(flow for flow in flows if flow not in behind)
        all_frames = run.frames.to_polars()
        first = all_frames.filter(
            pl.col("flow").is_in([each.name for each in flows if each.kind == "video"][:1])
        )
        frames = all_frames.filter(pl.col("arrived_s").is_not_null())
        return cls(
            step,
            end,
            flows,
            received,
            delay,
            carried,
            capacity,
            changes,
            run.summary,
            frames["delay_ms"].drop_nulls().to_numpy(),
            first.select("ready_s", "delay_ms").to_numpy(),
        )

    @cached_property
    def at(self) -> Series:
        """The beginning of each step."""
        steps = len(next(iter(self.received.values())))
        return np.arange(steps, dtype=np.float64) * self.step

    @cached_property
    def videos(self) -> tuple[Flow, ...]:
        """The videos, or the TCPs in their place."""
        kind = "video" if any(flow.kind == "video" for flow in self.flows) else "tcp"
        return tuple(flow for flow in self.flows if flow.kind == kind)

    def rate(self, name: str, during: tuple[float, float]) -> float:
        """Return a flow's mean rate in an interval."""
        within = (self.at >= during[0] - 1e-9) & (self.at < during[1] - 1e-9)
        return float(self.received[name][within].mean()) if within.any() else 0.0

    @cached_property
    def judged(self) -> tuple[float, float]:
        """The judged interval: from the end of the videos' first seconds until the first of them stops."""
        start = min(flow.active[0][0] for flow in self.videos)
        return start + SETTLING_S, min(flow.active[-1][1] for flow in self.videos)

    @cached_property
    def segments(self) -> list[tuple[float, float]]:
        """The intervals in which neither the capacity nor the set of sending flows changes."""
        low, high = min(flow.active[0][0] for flow in self.videos), self.judged[1]
        marks = {low, high, *self.changes, *(t for flow in self.videos for each in flow.active for t in each)}
        inside = sorted(t for t in marks if low <= t <= high)
        return [(a, b) for a, b in itertools.pairwise(inside) if b - a >= _SHORTEST_S - 1e-9]

    @cached_property
    def together(self) -> Series:
        """The total received rate of all videos in the measured direction."""
        all_ = [self.received[flow.name] for flow in self.videos if not flow.back]
        return np.asarray(np.sum(all_, axis=0), dtype=np.float64)

    def windows(self, length: float, flows: Sequence[Flow]) -> Series:
        """Return the mean rates of flows over windows of this length in which all send, one row per window."""
        size = round(length / self.step)
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


def _flow(told: Mapping[str, Any], events: Sequence[Mapping[str, Any]], end: float) -> Flow:
    name = f"{told['name']}{told.get('count', '')}"
    start = told.get("start")
    turns = [(_read(start, units.SPAN), True)] if isinstance(start, str) else []
    if "stop" in told:
        turns.append((_read(told["stop"], units.SPAN), False))
    for event in events:
        turns += [
            (_read(event["at"], units.SPAN), key == "start")
            for key in ("start", "stop")
            if name in event.get(key, ())
        ]
    active, since = [], None
    for at, on in sorted(turns):
        if on and since is None:
            since = at
        elif not on and since is not None:
            active.append((since, at))
            since = None
    if since is not None:
        active.append((since, end))
    most = np.inf
    if told["kind"] == "video" and "rfc8593" in told:
        most = _read(told["rfc8593"]["r_max"], units.RATE)
    elif told["kind"] == "cbr":
        most = _read(told["rate"], units.RATE)
    back = ".dst" in str(told.get("from", ""))
    return Flow(name, str(told["kind"]), most, tuple(active) or ((0.0, end),), back)


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


def use(facts: Facts) -> float | None:
    """Return the utilisation of the bottleneck by these flows; the lowest of several bottlenecks.

    The usable capacity is limited to the sum of the flows' highest rates.
    """
    low, high = facts.judged
    within = (facts.at >= low) & (facts.at < high)
    forward = [flow for flow in facts.flows if not flow.back]
    wanted = np.sum([flow.sends(facts.at) * 1.0 * min(flow.most_bps, 1e12) for flow in forward], axis=0)
    shares = []
    for name, capacity in facts.capacity.items():
        could = np.minimum(capacity, wanted)[within]
        shares.append(float(facts.carried[name][within].sum() / could.sum()) if could.sum() > 0 else None)
    known = [share for share in shares if share is not None and np.isfinite(share)]
    return min(known) if known else None


def _of_videos(facts: Facts, value: Callable[[Mapping[str, Any]], float | None]) -> float | None:
    """Return the worst value over the videos' receivers."""
    names = {flow.name for flow in facts.videos}
    found = [
        value(each) for flow in facts.summary["flows"] if flow["name"] in names for each in flow["receivers"]
    ]
    known = [number for number in found if number is not None]
    return max(known) if known else None


def delay_p95(facts: Facts) -> float | None:
    """Return the 95th percentile of the packets' one-way delay, for the worst video."""
    return _of_videos(facts, lambda receiver: (receiver.get("delay_ms") or {}).get("p95"))


def loss(facts: Facts) -> float | None:
    """Return the packet loss rate of the worst video."""
    return _of_videos(facts, lambda receiver: receiver.get("loss_frac"))


def whole(facts: Facts) -> float | None:
    """Return the share of frames that arrived complete within 400 ms, for the worst video."""

    def share(receiver: Mapping[str, Any]) -> float | None:
        frames = receiver.get("frames") or {}
        return -frames["ok"] / frames["sent"] if frames.get("sent") else None

    least = _of_videos(facts, share)
    return None if least is None else -least


def frame_delay_p95(facts: Facts) -> float | None:
    """Return the 95th percentile of the frame delay over all videos."""
    return float(np.percentile(facts.frame_delay_ms, 95)) if len(facts.frame_delay_ms) else None


def queue_p95(facts: Facts) -> float | None:
    """Return the 95th percentile of the queueing delay at a bottleneck; the largest of several bottlenecks."""
    found = [
        (link.get("queue_ms") or {}).get("p95")
        for link in facts.summary["links"]
        if link["name"] in facts.carried and link["direction"] == "forward"
    ]
    known = [number for number in found if number is not None]
    return max(known) if known else None


def convergence(facts: Facts) -> list[tuple[float, float | None]]:
    """Return the begin of each segment, and the time until the videos' total rate converged; `None` if it did not.

    The steady rate is the mean over the segment's second half. The rate has converged when its means over 1 s and over
    5 s differ from the steady rate by less than a fifth.
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
    """Return the longest time of `convergence`; `None` if a segment did not converge."""
    found = [after for _, after in convergence(facts)]
    return None if not found or None in found else max(after for after in found if after is not None)


def variation(facts: Facts) -> float | None:
    """Return the coefficient of variation of rates over 1 s in segments' second halves, averaged over all videos."""
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
    """Return the share of windows in which no video's rate exceeds three times another's."""
    rivals = [flow for flow in facts.videos if not flow.back]
    if len(rivals) < 2:
        return None
    rows = facts.windows(length, rivals)
    if not len(rows):
        return None
    return float((rows.max(axis=1) <= FACTOR * rows.min(axis=1)).mean())


def least(facts: Facts, length: float) -> float | None:
    """Return the lowest mean rate of a video over a window of this length."""
    found = [rows.min() for flow in facts.videos if len(rows := facts.windows(length, (flow,)))]
    return float(min(found)) if found else None


def _flow_figure(facts: Facts, kind: str, *path: str) -> float | None:
    found = []
    for flow in facts.summary["flows"]:
        value: Any = flow if flow["kind"] == kind else None
        for key in path:
            value = (value or {}).get(key)
        if value is not None:
            found.append(float(value))
    return sum(found) if found else None


MEASURES: dict[str, Callable[[Facts], float | None]] = {
    "use": use,
    "delay_p95_ms": delay_p95,
    "frame_delay_p95_ms": frame_delay_p95,
    "queue_p95_ms": queue_p95,
    "loss": loss,
    "whole": whole,
    "converge_s": slowest,
    "cov": variation,
    "fair_1s": lambda facts: fairness(facts, WINDOWS_S[0]),
    "fair_5s": lambda facts: fairness(facts, WINDOWS_S[1]),
    "fair_20s": lambda facts: fairness(facts, WINDOWS_S[2]),
    "least_5s_bps": lambda facts: least(facts, 5),
    "least_20s_bps": lambda facts: least(facts, 20),
    "media_bps": lambda facts: _flow_figure(facts, "video", "throughput_bps"),
    "feedback_bps": lambda facts: _flow_figure(facts, "video", "feedback_bps"),
    "tcp_bps": lambda facts: _flow_figure(facts, "tcp", "throughput_bps"),
    "tcp_again_packets": lambda facts: _flow_figure(facts, "tcp", "retransmitted_packets"),
}
"""The measures of each run, by name."""


def measured(facts: Facts) -> dict[str, float | None]:
    """Return all of `MEASURES`, rounded to six significant digits."""
    return {name: _rounded(measure(facts)) for name, measure in MEASURES.items()}


def finish(facts: Facts, amount: int) -> float | None:
    """Return the time at which the first flow has received this many IP bytes, or a TCP has acknowledged all data."""
    first = facts.summary["flows"][0]
    if first["kind"] == "tcp":
        at: float | None = first.get("completed_s")
        return at
    there = np.concatenate([[0.0], facts.received[first["name"]].cumsum() * facts.step / 8])
    return (
        float(np.interp(amount, there, np.arange(len(there)) * facts.step)) if there[-1] >= amount else None
    )


def frame(facts: Facts, bound: Bound) -> float:
    """Return the mean or the largest delay of the first video's frames; NaN if one of them did not arrive."""
    assert facts.first_video is not None
    assert bound.during is not None
    ready, delay = facts.first_video.T
    found = delay[ready >= bound.during[0]]
    return float(found.max() if bound.measure == "frame_max_ms" else found.mean())


def value(bound: Bound, facts: Facts, found: Mapping[str, float | None]) -> float | None:
    """Return the value of a bound's measure, before the division by its reference variant."""
    if bound.measure == "finish_s":
        return _rounded(finish(facts, bound.bytes or 0))
    if bound.measure.startswith("frame_m"):
        return _rounded(frame(facts, bound))
    if bound.measure not in ("rate", "ratio"):
        return found[bound.measure]
    assert bound.during is not None
    rates = [facts.rate(name, bound.during) for name in bound.of]
    if bound.measure == "rate":
        return _rounded(min(rates))
    others = float(np.mean([facts.rate(name, bound.during) for name in bound.than]))
    return _rounded(float(np.mean(rates)) / others) if others > 0 else None


def values(case: Case, facts: Facts, found: Mapping[str, float | None]) -> list[float | None]:
    """Return `value` of each bound of a case."""
    return [value(bound, facts, found) for bound in case.bounds]


def _rounded(number: float | None) -> float | None:
    return None if number is None or not np.isfinite(number) else float(f"{number:.6g}")
