"""The numbers that statements and curves compute from a run, each with a name.

A number of a flow is written `VARIANT.FLOW.NAME(ARGUMENTS)`, and a number of the whole run `VARIANT.NAME(ARGUMENTS)`.
Examples are `tfmcc.video.rate`, `asmp L1.video.deviation(50, 300)` and `two.jain_of(video, second)`. Times are in
seconds from the start of the run, rates in bit/s, and shares are fractions. A series is `rates`, `targets`, `losses`,
`delays`, `n` or `rtts`. The result is `None` if the run does not have the number.

A public function of this module whose first parameter is `flow` or `run` defines a number of that name.
"""

from __future__ import annotations

import inspect
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from steadycast.core import core
from steadycast.errors import UserError

from papers.engine.observe import Flow, Observed, percentile

Seen = Mapping[str, Observed]
"""The observed runs of one seed of an experiment, by variant name."""


# ---------------------------------------------------------------- how they are written


@dataclass(frozen=True)
class Quantity:
    """A number of a flow, or of a run if `flow` is empty, with its arguments."""

    name: str
    args: tuple[float | str, ...] = ()
    flow: str = ""

    def __call__(self, run: Observed) -> float | None:
        """Compute the number from a run; `None` if the run does not have it."""
        if self.flow:
            return _FLOW[self.name](run.flow(self.flow), *self.args)
        return _RUN[self.name](run, *self.args)

    def __str__(self) -> str:
        args = ", ".join(f"{a:.12g}" if isinstance(a, float) else a for a in self.args)
        return f"{self.flow}{'.' if self.flow else ''}{self.name}{f'({args})' if args else ''}"


SERIES = ("rates", "targets", "losses", "delays", "jitters", "n", "rtts", "buffer")
"""The values of a flow that are kept for each step."""
DRAWN = (*SERIES, "p")
"""The series that a figure may show over time. `p` is the loss rate that a sender bases its decisions on."""
_WORDS = {"series": SERIES, "figure": ("throughput_bps", "loss_frac", "jitter_ms", "jitter_p95_ms")}
"""The allowed values of the text arguments, by name of the argument."""

_WRITTEN = re.compile(r"(?:(?P<flow>[a-z][\w-]*)\.)?(?P<name>[a-z]\w*)(?:\((?P<args>[^()]*)\))?")
_TERM = re.compile(r"(?P<variant>.+?)\.(?P<rest>" + _WRITTEN.pattern + ")")


@dataclass(frozen=True)
class Term:
    """A quantity of one variant's run."""

    variant: str
    quantity: Quantity

    def __call__(self, seen: Seen) -> float | None:
        """Compute the number from the runs of one seed."""
        return self.quantity(seen[self.variant])

    def __str__(self) -> str:
        return f"{self.variant}.{self.quantity}"


def quantity(text: str) -> Quantity:
    """Parse `FLOW.NAME(ARGUMENTS)` or `NAME(ARGUMENTS)`.

    Raises:
        UserError: there is no such number, or it takes other arguments.

    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise UserError(text, "this is no number of a run", "write FLOW.NAME or NAME, with (ARGUMENTS)")
    flow, name = match["flow"] or "", match["name"]
    known, other = (_FLOW, _RUN) if flow else (_RUN, _FLOW)
    if name not in known:
        if name in other:
            remedy = "leave the flow out" if flow else "name the flow before it"
            raise UserError(text, f"{name} is a number of a {'run' if flow else 'flow'}", remedy)
        raise UserError(text, f'there is no number "{name}"', f"there are: {', '.join(sorted(known))}")
    return Quantity(name, _arguments(text, known[name], match["args"]), flow)


def _arguments(text: str, number: Callable[..., float | None], said: str | None) -> tuple[float | str, ...]:
    words = [word.strip() for word in said.split(",")] if said else []
    parameters = list(inspect.signature(number).parameters.values())[1:]
    rest = parameters[-1] if parameters and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL else None
    fixed = [p for p in parameters if p is not rest]
    needed = sum(p.default is inspect.Parameter.empty for p in fixed)
    if len(words) < needed or (rest is None and len(words) > len(fixed)):
        names = ", ".join(p.name for p in parameters) or "nothing"
        raise UserError(text, f"{len(words)} arguments", f"{number.__name__} takes {names}")
    args: list[float | str] = []
    repeated = [rest] * (len(words) - len(fixed)) if rest is not None else []
    for word, parameter in zip(words, [*fixed, *repeated], strict=False):
        # A parameter that is not in `_WORDS` accepts any word.
        known = _WORDS.get(parameter.name, (word,))
        if word not in known:
            raise UserError(text, f'there is no {parameter.name} "{word}"', f"there are: {', '.join(known)}")
        if "float" not in str(parameter.annotation):
            args.append(word)
            continue
        try:
            args.append(float(word))
        except ValueError:
            raise UserError(text, f'"{word}" is no number', f"write {parameter.name} as a number") from None
    return tuple(args)


def term(text: str) -> Term:
    """Parse `VARIANT.FLOW.NAME(ARGUMENTS)` or `VARIANT.NAME(ARGUMENTS)`.

    Raises:
        UserError: there is no such number, or it takes other arguments.

    """
    match = _TERM.fullmatch(text)
    if match is None:
        raise UserError(text, "this is no number of a variant", "write VARIANT.FLOW.NAME or VARIANT.NAME")
    return Term(match["variant"], quantity(match["rest"]))


# ---------------------------------------------------------------- rates and other series of a flow


def rate(flow: Flow) -> float:
    """Mean throughput over the run in bit/s."""
    return flow.rate


def rate_share(flow: Flow, link: float) -> float:
    """Throughput divided by a link's capacity."""
    return flow.rate / link


def fair_share(flow: Flow, link: float, flows: float) -> float:
    """Throughput divided by a flow's fair share of a link: the capacity `link` divided by the number `flows`."""
    return flow.rate / (link / flows)


def seconds_for(flow: Flow, bits: float) -> float:
    """Seconds that `bits` take at the flow's mean throughput."""
    return bits / flow.rate


def rate_cov(flow: Flow) -> float | None:
    """Coefficient of variation of the rate, from the run's summary."""
    return _known(flow.content["rate_cov"])


def mean(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Mean of a series between two times."""
    return statistics.fmean(x) if (x := flow.between(series, start, end)) else None


def mean_share(flow: Flow, start: float, end: float, link: float) -> float | None:
    """Mean rate between two times, as a share of a link."""
    return m / link if (m := mean(flow, start, end)) is not None else None


def deviation(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Coefficient of variation of a series between two times."""
    return core.variation(flow.between(series, start, end))


def lowest(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Lowest value of a series between two times."""
    return min(flow.between(series, start, end), default=None)


def steepest(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Largest absolute change of a series from one step to the next."""
    return max((abs(b - a) for a, b in pairwise(flow.between(series, start, end))), default=None)


def mean_step(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Mean absolute change of a series from one step to the next, divided by the mean of the series."""
    values = flow.between(series, start, end)
    steps = [abs(b - a) for a, b in pairwise(values)]
    return statistics.fmean(steps) / statistics.fmean(values) if steps and any(values) else None


def highest_rise(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Largest increase of a series from one step to the next."""
    return max((b - a for a, b in pairwise(flow.between(series, start, end))), default=None)


def largest_fall(flow: Flow, start: float, end: float, series: str = "rates") -> float:
    """Largest decrease of a series from one step to the next; 0 or less if it never decreases."""
    return max((a - b for a, b in pairwise(flow.between(series, start, end))), default=0.0)


def last(flow: Flow, start: float, end: float, series: str = "rates") -> float | None:
    """Last value of a series between two times."""
    return x[-1] if (x := flow.between(series, start, end)) else None


def until_at_most(flow: Flow, limit: float, start: float, end: float, series: str = "rates") -> float:
    """Seconds from `start` until a value is at most `limit`; if none is, the whole interval."""
    return _after(flow, start, end, lambda x: x <= limit, series)


def _after(
    flow: Flow, start: float, end: float, holds: Callable[[float], bool], series: str = "rates"
) -> float:
    """Seconds from `start` until a value meets a condition; if none does, the whole interval."""
    for k, x in enumerate(flow.between(series, start, end)):
        if holds(x):
            return k * flow.step_s
    return end - start


def mean_of_steps(flow: Flow, first: float, end: float) -> float:
    """Mean of the flow's rates from step `first` up to step `end`, excluding `end`; step 0 is the flow's first."""
    return statistics.fmean(flow.rates[int(first) : int(end)])


def lowest_of_steps(flow: Flow, first: float, end: float) -> float:
    """Lowest of the flow's rates from step `first` up to step `end`, excluding `end`; step 0 is the flow's first."""
    return min(flow.rates[int(first) : int(end)])


def highest_of_steps(flow: Flow, first: float, end: float) -> float:
    """Highest of the flow's rates from step `first` up to step `end`, excluding `end`; step 0 is the flow's first."""
    return max(flow.rates[int(first) : int(end)])


# ---------------------------------------------------------------- the controller's target rate


def swing(flow: Flow, skip: float) -> float | None:
    """Coefficient of variation of the target rate, without the first `skip` steps."""
    return core.variation(flow.targets[int(skip) :])


def turns(flow: Flow, skip: float) -> float:
    """Number of times that the target's change reverses its sign, per hundred steps in which the target changes."""
    steps = [b - a for a, b in pairwise(flow.targets[int(skip) :]) if a != b]
    found = sum((a > 0) != (b > 0) for a, b in pairwise(steps))
    return 100.0 * found / len(steps) if steps else 0.0


def highest_target(flow: Flow, skip: float) -> float:
    """Highest target in bit/s, without the first `skip` steps."""
    return max(flow.targets[int(skip) :])


def share_below(flow: Flow, limit: float, skip: float) -> float:
    """Share of steps in which the target is below a limit, without the first `skip` steps."""
    wanted = flow.targets[int(skip) :]
    return sum(x < limit for x in wanted) / len(wanted)


def target_step_deviation(flow: Flow, skip: float) -> float:
    """Standard deviation of the target's changes from step to step, without the first `skip` steps."""
    return statistics.pstdev([b - a for a, b in pairwise(flow.targets[int(skip) :])])


# ---------------------------------------------------------------- losses


def loss(flow: Flow) -> float:
    """Share of packets that were lost."""
    return flow.lost_packets


def loss_percent(flow: Flow) -> float:
    """Share of packets that were lost, in per cent."""
    return 100.0 * flow.lost_packets


def lost_or_sent_again(flow: Flow) -> float | None:
    """Share of packets that were lost, or for TCP the share that was retransmitted."""
    if flow.content["kind"] == "tcp":
        return float(flow.content["retransmitted_packets"]) / float(flow.content["sent_packets"])
    return _known(flow.content["loss_frac"])


def worst_receiver(flow: Flow, names: str, figure: str) -> float | None:
    """Largest `figure` of the receivers whose names contain `names`.

    `figure` is `throughput_bps`, `loss_frac`, `jitter_ms` or `jitter_p95_ms`.
    """
    values = [r[figure] for name, r in flow.receivers.items() if names in name and r[figure] is not None]
    return max(values, default=None)


def loss_kept(flow: Flow, until: float) -> float | None:
    """Loss rate used in the last decision before `until`, divided by the largest loss rate used in any decision."""
    losses = [(t, p) for t, _, p, _ in flow.decisions if p is not None]
    found = [p for t, p in losses if t <= until]
    return found[-1] / max(p for _, p in losses) if found else None


# ---------------------------------------------------------------- frames and pictures


def frame_loss(flow: Flow) -> float:
    """Share of frames with at least one lost packet."""
    return flow.lost


def lost_frames(flow: Flow) -> float:
    """Number of frames with at least one lost packet."""
    return float(flow.frames["lost"])


def frame_delay(flow: Flow, share: float) -> float:
    """Delay in ms that is not exceeded by this share of the complete frames."""
    return percentile(flow.whole_ms, share)


def worst_frame_delay(flow: Flow) -> float:
    """Largest delay of a complete frame in ms."""
    return max(flow.whole_ms)


def frames_later_than(flow: Flow, ms: float) -> float:
    """Share of the complete frames whose delay exceeds `ms`."""
    return sum(x > ms for x in flow.whole_ms) / len(flow.whole_ms)


def peak_cumulative_jitter(flow: Flow) -> float:
    """Largest cumulative jitter of a frame's last packet in ms (Multi-Evalvid-RA, eq. 4)."""
    return max(flow.cumulative_ms())


def peak_first_cumulative_jitter(flow: Flow) -> float:
    """Largest cumulative jitter of a frame's first packet in ms."""
    return max(flow.first_cumulative_ms())


def delay_variation_deviation(flow: Flow) -> float:
    """Standard deviation of the delay variation between consecutive frames in ms (Multi-Evalvid-RA, eq. 3)."""
    return statistics.pstdev(flow.variations_ms())


def graded(flow: Flow, least: float, most: float) -> float | None:
    """Share of frames with an opinion score from `least` to `most`."""
    return sum(v for k, v in flow.scores.items() if least <= k <= most) if flow.scores else None


def opinion_score(flow: Flow) -> float | None:
    """Mean opinion score."""
    return flow.score


def score_by_index(flow: Flow) -> float | None:
    """Mean opinion score if frame i of the original is compared with the i-th picture that the decoder returns.

    Lost and late frames have no picture, so each of them shifts all later comparisons by one.
    """
    return _mean_grade(flow, "index")


def graded_by_index(flow: Flow, least: float, most: float) -> float | None:
    """Share of frames with an opinion score from `least` to `most`, compared by index."""
    return _share_graded(flow, "index", least, most)


def score_of_sent(flow: Flow) -> float | None:
    """Mean opinion score against the pictures as encoded."""
    return _mean_grade(flow, "sent")


def graded_of_sent(flow: Flow, least: float, most: float) -> float | None:
    """Share of frames with an opinion score from `least` to `most`, against the pictures as encoded."""
    return _share_graded(flow, "sent", least, most)


GRADES = ("score_by_index", "graded_by_index", "score_of_sent", "graded_of_sent")
"""Numbers that need opinion scores in addition to those in the summary."""


def _mean_grade(flow: Flow, against: str) -> float | None:
    shares = flow.grades(against)
    return sum(n * share for n, share in shares.items()) if shares else None


def _share_graded(flow: Flow, against: str, least: float, most: float) -> float | None:
    shares = flow.grades(against)
    return sum(v for k, v in shares.items() if least <= k <= most) if shares else None


def psnr(flow: Flow) -> float | None:
    """Mean luma PSNR in dB against the original."""
    return flow.mean_psnr_db


def ssim(flow: Flow) -> float | None:
    """Mean SSIM."""
    return _known(flow.content["ssim"])


def freezes(flow: Flow) -> float | None:
    """Number of freezes."""
    return _known(flow.content["freeze_count"])


def frozen(flow: Flow, length: float) -> float | None:
    """Time in which the shown picture was frozen, divided by `length` seconds."""
    return None if (x := flow.content["freeze_s"]) is None else float(x) / length


def encoder_limited(flow: Flow) -> float:
    """Share of time in which the encoder limits the rate."""
    return flow.limited.get("encoder", 0.0)


# ---------------------------------------------------------------- TCP


def mean_window(flow: Flow) -> float:
    """Mean congestion window in packets."""
    return float(flow.content["cwnd_packets"]["mean"])


def median_srtt(flow: Flow) -> float | None:
    """Median of the smoothed round-trip time in ms."""
    return _known(flow.content["srtt_ms"]["p50"])


def completed(flow: Flow) -> float | None:
    """Time in seconds at which the transfer was complete."""
    return _known(flow.content["completed_s"])


# ---------------------------------------------------------------- decisions


def decisions(flow: Flow) -> float:
    """Number of the sender's decisions."""
    return float(len(flow.decisions))


def decided_rtt(flow: Flow) -> float:
    """Mean round-trip time in ms over the sender's decisions after the first second."""
    return statistics.fmean(rtt for t, _, _, rtt in flow.decisions if rtt is not None and t > 1.0)


def decision_period(flow: Flow) -> float:
    """Mean time between two decisions after the first 5 s, divided by the round-trip time."""
    at = [t for t, *_ in flow.decisions if t > 5.0]
    return statistics.fmean(b - a for a, b in pairwise(at)) * 1e3 / float(decided_rtt(flow) or 0.0)


def overflow_entries(flow: Flow) -> float:
    """Number of times that the sender observed the receiver's buffer entering overflow."""
    rules = [rule == "overflow" for _, rule, _, _ in flow.decisions]
    return float(sum(b and not a for a, b in pairwise(rules)))


DECISIONS = ("decisions", "decided_rtt", "decision_period", "overflow_entries", "loss_kept")
"""Quantities that are computed from the single decisions of the sender.

In runs that last hours, decisions are most of an observation's data. They are therefore read only if a statement or a
figure needs one of these quantities.
"""


def limiter_changes(flow: Flow, start: float) -> float:
    """Number of times from `start` on that another receiver became the one that limits the rate."""
    return float(sum(t >= start for t, _ in flow.switches))


def congested(flow: Flow) -> float | None:
    """Share of reports after the start phase that found the path congested."""
    known = flow.states.get("congested", 0) + flow.states.get("unloaded", 0)
    return flow.states.get("congested", 0) / known if known else None


# ---------------------------------------------------------------- the receiver's buffer


def level_follows(flow: Flow, steps: float = 1.0) -> float | None:
    """Correlation between the change of the buffer's level and the change of the target, each over `steps` steps."""
    level, target = ([abs(b - a) for a, b in pairwise(x)] for x in (flow.buffer, flow.targets))
    # The target reacts to a level one step later, so its series is shifted by one step.
    level, target = (
        [sum(x[n : n + int(steps)]) for n in range(0, len(x) - int(steps) + 1, int(steps))]
        for x in (level, target[1:])
    )
    n = min(len(level), len(target))
    try:
        return statistics.correlation(level[:n], target[:n])
    except statistics.StatisticsError:
        return None


def underflows(flow: Flow) -> float:
    """Number of times that the buffer ran empty."""
    return float(flow.content["buffer_underflows"])


def overflows(flow: Flow) -> float:
    """Number of packets that were dropped because the buffer was full."""
    return float(flow.content["buffer_overflows"] or 0)


def least_level(flow: Flow, played: float, size: float) -> float:
    """Data that is played in a mean round-trip time, as a share of `size` bytes (receiver-buffer paper, eq. 5)."""
    return float(decided_rtt(flow) or 0.0) / 1e3 * played / 8 / size


def most_level(flow: Flow, played: float, size: float) -> float:
    """Largest excess of received over played data in a second, divided by `size` bytes.

    This is the receiver-buffer paper's equation 9.
    """
    n = round(1 / flow.step_s)
    seconds = [sum(flow.rates[k : k + n]) * flow.step_s for k in range(0, len(flow.rates) - n + 1, n)]
    return (max(seconds) - played) / 8 / size


def overall_loss(flow: Flow) -> float:
    """Share of packets that were lost in the network or dropped by a full buffer."""
    return flow.lost_packets + _unfit(flow)


def overall_loss_percent(flow: Flow) -> float:
    """Share of packets that were lost in the network or dropped by a full buffer, in per cent."""
    return 100.0 * (flow.lost_packets + _unfit(flow))


def buffer_share(flow: Flow) -> float:
    """Packets dropped by a full buffer as a share of all lost packets."""
    whole = flow.lost_packets + _unfit(flow)
    return _unfit(flow) / whole if whole else 0.0


def buffer_share_percent(flow: Flow) -> float:
    """Packets dropped by a full buffer as a share of all lost packets, in per cent."""
    return 100.0 * float(buffer_share(flow) or 0.0)


def _unfit(flow: Flow) -> float:
    return float(overflows(flow) or 0.0) / float(flow.content["sent_packets"])


def level_between(flow: Flow, size: float, low: float, high: float, skip: float) -> float:
    """Share of steps, without the first `skip`, in which the buffer's level is between two shares of its size.

    `size` is in bytes, and `low` and `high` are fractions of it.
    """
    late = flow.buffer[int(skip) :]
    return sum(low <= level / size <= high for level in late) / len(late)


# ---------------------------------------------------------------- of one experiment


_TABLE2_TOP = 2_614_400.0
"""Highest rate of table 2 in bit/s. In experiment K-F, the video never uses more than this of the link's 4 Mb/s."""


def recovery_after_udp(flow: Flow) -> float:
    """K-F: seconds until the video has 90 % of the rate that it can use, mean over the three times that UDP ends.

    A recovery that is not reached counts as 10 s.
    """
    waits = []
    for start in (20, 40, 60):
        reached = [i for i, x in enumerate(flow.rates[start : start + 10]) if x >= 0.9 * _TABLE2_TOP]
        waits.append(float(reached[0]) if reached else 10.0)
    return statistics.fmean(waits)


_STEP_ENDS = (50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0)


def _stairs(flow: Flow) -> list[float]:
    return [mean(flow, end - 20.0, end, "targets") or 0.0 for end in _STEP_ENDS]


def least_stair_down(flow: Flow) -> float:
    """B-G: smallest decrease of the target from one loss rate to the next higher one."""
    return min(a - b for a, b in pairwise(_stairs(flow)[:4]))


def least_stair_up(flow: Flow) -> float:
    """B-G: smallest increase of the target from one loss rate to the next lower one."""
    return min(b - a for a, b in pairwise(_stairs(flow)[3:]))


def stair_settled(flow: Flow) -> float | None:
    """B-G: seconds from the join of the second receiver until the target is within 25 % of that step's mean."""
    level = mean(flow, 80.0, 100.0, "targets")
    return (
        None
        if level is None
        else _after(flow, 50.0, 100.0, lambda x: abs(x - level) <= 0.25 * level, "targets")
    )


def stair_deviation(flow: Flow) -> float | None:
    """B-G: coefficient of variation of the target within a step of the loss rate, mean over the steps."""
    parts = [deviation(flow, end - 30.0, end, "targets") for end in _STEP_ENDS]
    known = [p for p in parts if p is not None]
    return statistics.fmean(known) if known else None


def recovery_after_joins(flow: Flow) -> float | None:
    """B-J: seconds from the join of the 90 receivers until the mean rate over 5 s is 80 % of that before the join."""
    before = mean(flow, 100.0, 300.0) or 0.0
    fell = _after(flow, 300.0, 420.0, lambda x: x < 0.8 * before)
    if fell >= 120.0:
        return 0.0
    # The mean over five consecutive seconds is used, because single seconds vary by more than a fifth.
    for start in range(int(300.0 + fell), 600):
        window = flow.between("rates", float(start), start + 5.0)
        if window and statistics.fmean(window) >= 0.8 * before:
            return start - 300.0
    return 300.0


# ---------------------------------------------------------------- of a run: several flows


def jain(run: Observed) -> float:
    """Jain's fairness index of all flows that adapt their rate, over the whole run."""
    return run.jain


def jain_of(run: Observed, *flows: str) -> float:
    """Jain's fairness index of the throughputs of some flows; a name may contain `*`."""
    return jain_index(flow.rate for flow in _flows(run, *flows))


def jain_between(run: Observed, start: float, end: float, *flows: str) -> float | None:
    """Jain's fairness index of the mean rates of some flows between two times; a name may contain `*`."""
    rates = [mean(flow, start, end) for flow in _flows(run, *flows)]
    known = [x for x in rates if x is not None]
    return jain_index(known) if len(known) == len(rates) else None


def sum_between(run: Observed, start: float, end: float, *flows: str) -> float | None:
    """Sum of the mean rates of some flows between two times; a name may contain `*`."""
    rates = [mean(flow, start, end) for flow in _flows(run, *flows)]
    known = [x for x in rates if x is not None]
    return sum(known) if len(known) == len(rates) else None


def mean_over_flows(run: Observed, flows: str, start: float, end: float, series: str) -> float | None:
    """Mean of a series between two times, averaged over the flows with this name, which may contain `*`."""
    return _mean_of(mean(flow, start, end, series) for flow in _flows(run, flows))


def deviation_over_flows(run: Observed, flows: str, start: float, end: float, series: str) -> float | None:
    """Coefficient of variation of a series between two times, averaged over the flows with this name.

    The name may contain `*`.
    """
    return _mean_of(deviation(flow, start, end, series) for flow in _flows(run, flows))


def loss_over_flows(run: Observed, flows: str) -> float | None:
    """Share of packets lost, averaged over the flows with this name, which may contain `*`."""
    return _mean_of(flow.lost_packets for flow in _flows(run, flows))


def rate_while_there(run: Observed, flows: str, start: float, end: float) -> float | None:
    """Mean rate over the flows with this name (may contain `*`), without seconds in which a flow receives nothing."""
    return _mean_of(x for flow in _flows(run, flows) for x in flow.between("rates", start, end) if x > 0)


def settles(run: Observed, flows: str, start: float, end: float, first: float, last: float) -> float:
    """Seconds from `start` until the mean rate over 5 s is within 20 % of the mean between `first` and `last`.

    The rate of a second is the mean over the flows with this name (may contain `*`) that receive data in that second.
    """
    rates = []
    for now in zip(*(flow.rates for flow in _flows(run, flows)), strict=False):
        there = [x for x in now if x > 0]
        rates.append(statistics.fmean(there) if there else 0.0)
    level = statistics.fmean(rates[int(first) : int(last)])
    for t in range(int(start), int(end) - 5):
        if abs(statistics.fmean(rates[t : t + 5]) / level - 1) <= 0.2:
            return t - start
    return end - start


def _tcps(run: Observed) -> list[Flow]:
    return [Flow(f) for f in run.content["flows"].values() if f["kind"] == "tcp"]


def over_tcp(run: Observed) -> float:
    """The video's throughput divided by the mean throughput of all TCPs."""
    return run.flow("video").rate / statistics.fmean(f.rate for f in _tcps(run))


def tcp_over(run: Observed) -> float | None:
    """Mean throughput of all TCPs divided by the video's."""
    return None if not (x := over_tcp(run)) else 1.0 / x


def factor_from_tcp(run: Observed) -> float | None:
    """The video's throughput divided by the mean throughput of all TCPs, or the inverse ratio if that is larger."""
    return max(x, 1.0 / x) if (x := over_tcp(run)) else None


def tcp_fair_share(run: Observed, link: float, flows: float) -> float:
    """Mean throughput of all TCPs divided by a flow's fair share of a link: the capacity `link` divided by `flows`."""
    return statistics.fmean(f.rate for f in _tcps(run)) / (link / flows)


def all_tcp(run: Observed) -> float:
    """Total throughput of all TCPs, mean over the run."""
    return sum(sum(f.rates) * f.step_s for f in _tcps(run)) / run.end_s


def mean_tcp(run: Observed) -> float:
    """Mean of the throughputs of all TCPs."""
    return statistics.fmean(f.rate for f in _tcps(run))


def tcp_of_what_udp_leaves(run: Observed, link: float) -> float:
    """TCP's throughput divided by the link's capacity minus the video's throughput."""
    return run.flow("tcp").rate / (link - run.flow("video").rate)


def correlation(run: Observed, one: str, other: str) -> float:
    """Correlation of the rates of two flows over all steps from the third on."""
    x, y = run.flow(one).rates, run.flow(other).rates
    n = min(len(x), len(y))
    return statistics.correlation(x[2:n], y[2:n])


def _others(run: Observed) -> list[Flow]:
    return [run.flow(name) for name in run.content["flows"] if name != "video"]


def others_rate(run: Observed) -> float:
    """Sum of the throughputs of all flows except the video."""
    return sum(f.rate for f in _others(run))


def transfer_time(run: Observed, share: float) -> float | None:
    """Duration in seconds that is not exceeded by this share of the completed transfers beside the video."""
    # Transfers start at whole seconds. A transfer starts with the step in which its first packet arrived.
    known = [
        float(f.content["completed_s"]) - next(k for k, x in enumerate(f.rates) if x > 0)
        for f in _others(run)
        if f.content["completed_s"] is not None
    ]
    return percentile(known, share) if known else None


def feedback(run: Observed) -> float:
    """Feedback packets from the video's receivers per second."""
    return float(run.flow("video").content["feedback_packets"]) / run.end_s


# ---------------------------------------------------------------- of a run: several groups


def _receivers(run: Observed) -> Mapping[str, float]:
    """Throughput of each receiver, over all groups."""
    simulcasts = run.content["simulcasts"]
    if simulcasts:
        return {r["name"]: float(r["throughput_bps"]) for r in simulcasts[0]["receivers"]}
    return {name: float(r["throughput_bps"]) for name, r in run.flow("video").receivers.items()}


def receiver(run: Observed, name: str) -> float:
    """Throughput of one receiver, over all groups."""
    return _receivers(run)[name]


def mean_receiver(run: Observed) -> float:
    """Mean of the receivers' throughputs, over all groups."""
    return statistics.fmean(_receivers(run).values())


def receivers_share(run: Observed, links: float) -> float:
    """Sum of the receivers' throughputs divided by the total capacity of their links."""
    return sum(_receivers(run).values()) / links


def first_link_rate(run: Observed, capacity: float) -> float:
    """Rate on the scenario's first link in bit/s."""
    return float(run.content["links"][0]["utilisation_frac"]) * capacity


def moves(run: Observed) -> float:
    """Number of times per minute that a receiver moves between groups, mean over the receivers."""
    simulcast = run.content["simulcasts"][0]
    return float(simulcast["moves_count"]) / len(simulcast["receivers"]) / (run.end_s / 60.0)


def unused(run: Observed, *links: str) -> float:
    """Share of the traffic on the receivers' links that does not count towards any receiver's throughput.

    Each of ``links`` is `NAME=CAPACITY`.
    """
    known = {x["name"]: x for x in run.content["links"] if x["direction"] == "forward"}
    capacities = [each.partition("=") for each in links]
    carried = sum(float(known[name]["utilisation_frac"]) * float(rate) for name, _, rate in capacities)
    return 1.0 - sum(_receivers(run).values()) / carried


# ---------------------------------------------------------------- shared


def _known(value: Any) -> float | None:
    return None if value is None else float(value)


def _flows(run: Observed, *names: str) -> list[Flow]:
    """Return the flows with these names, each of which may contain `*`.

    Raises:
        KeyError: no flow has such a name.

    """
    there = list(run.content["flows"])
    for wanted in names:
        if not any(fnmatchcase(name, wanted) for name in there):
            raise KeyError(wanted)
    return [run.flow(name) for name in there if any(fnmatchcase(name, n) for n in names)]


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [x for x in values if x is not None]
    return statistics.fmean(known) if known else None


def jain_index(rates: Iterable[float]) -> float:
    """Jain's index of some rates."""
    x = list(rates)
    squares = sum(v * v for v in x)
    return sum(x) ** 2 / (len(x) * squares) if squares > 0 else 1.0


def _numbers(of: str) -> dict[str, Callable[..., float | None]]:
    """Return the public functions of this module whose first parameter is `of` ("flow" or "run")."""
    public = {name: each for name, each in globals().items() if inspect.isfunction(each) and name[0] != "_"}
    return {
        name: each for name, each in public.items() if next(iter(inspect.signature(each).parameters)) == of
    }


_FLOW, _RUN = _numbers("flow"), _numbers("run")
