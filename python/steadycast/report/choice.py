"""The rule that recommends one of several runs or controllers, in comparisons, sweeps and the lab."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from steadycast import record
from steadycast.folder import Json, is_spread, number, spread, student_t99
from steadycast.report import say

LEAST_OWN_SHARE = 0.5
"""A video starves below this fraction of its fair share.

A flow is reasonably fair within a factor of two of a TCP's rate (RFC 5348, section 1).
"""
LEAST_SHARE = 0.8
"""The fraction of its fair share that every other flow must obtain."""
MOST_FROZEN = 0.01
"""The largest acceptable share of time with a frozen picture."""
CONVERSATION_MS = 400.0
"""The longest one-way delay of a conversation, in milliseconds (ITU-T G.114)."""
PRIOR_FREEDOM = 2
"""The degrees of freedom that `Placebo.spread` adds to the measured variance (moderated t-test, Smyth 2004)."""
_MOST_OTHERS = 3
Value = float | None
Where = Literal["compare", "sweep", "python", "lab"]
Delay = Literal["playout_ms", "delay_ms"]

_MORE_SEEDS: Mapping[Where, str] = {
    "compare": "run each with steadycast run … --seeds 1-5, and compare the folders",
    "sweep": "add --seeds 1-5",
    "python": "compare the folders of run_seeds(…, seeds=range(1, 6)), or give sweep(…) these seeds",
    "lab": "save the scenario, and run it with steadycast sweep FILE --seeds 1-5",
}
"""How to add seeds in each interface."""


@dataclass(frozen=True)
class Placebo:
    """The differences of a figure between two runs that only differ in the seed (`python -m validation.placebo`)."""

    spread: float
    """Root mean square; for delays relative to the mean delay.

    For the figures in `MIDDLE` it is the median over scenarios, networks and controllers.
    """
    most: float
    """The 99.9th percentile of the differences."""


PLACEBO: Mapping[str, Placebo] = {
    "others_share": Placebo(0.055, 0.331),
    "frozen": Placebo(0.028, 0.162),
    "score": Placebo(0.138, 1.22),
    "share": Placebo(0.081, 0.446),
    "delay": Placebo(0.093, 0.722),
    "others_share_unbounded": Placebo(0.113, 0.558),
}
"""The placebo of each figure, from docs/data/placebo.csv and placebo-costs.csv."""
MIDDLE = ("score",)
"""Figures whose `Placebo.spread` is a median, because a few networks would dominate the root mean square.

Scores vary six times as much on Wi-Fi as elsewhere.
"""


@dataclass(frozen=True)
class Sample:
    """The figures of one run that the rule uses."""

    others: Mapping[str, float]
    """Fractions of their fair share that flows other than the tested videos obtained, by name."""
    share: Value
    """The smallest fraction of its fair share that a video under test obtained."""
    picture_score: Value
    rate_score: Value
    frozen: Value
    """The share of time with a frozen picture at the worst receiver."""
    delay_ms: Value
    """The 95th percentile of the packets' delay, in milliseconds."""
    playout_ms: Value = None
    """The delay from a frame's capture to its display, in milliseconds; `None` if a video has no play-out."""


@dataclass(frozen=True)
class Candidate:
    """A run, or the runs of several seeds, that may be recommended."""

    name: str
    samples: Mapping[int, Sample]
    """The runs' figures, by seed."""
    alone: bool = True
    """Whether the video has a single receiver, as in a call."""

    def mean(self, of: Callable[[Sample], Value]) -> Any:
        """Return the mean over the seeds with its spread; the number for one seed, `None` if unknown."""
        known = [value for sample in self.samples.values() if (value := of(sample)) is not None]
        if not known:
            return None
        return known[0] if len(known) == 1 else spread(known)

    @cached_property
    def least(self) -> tuple[str, Any] | None:
        """The flow in `Sample.others` with the smallest fraction of its fair share, and this fraction."""
        names = dict.fromkeys(name for sample in self.samples.values() for name in sample.others)
        shares = [(name, self.mean(lambda sample, name=name: sample.others.get(name))) for name in names]  # type: ignore[misc]
        return min(shares, key=lambda item: number(item[1]) or 0.0, default=None)

    def others_share(self, sample: Sample) -> Value:
        """Return the share of the flow named by `least` in one run, as a fraction of its fair share."""
        return None if self.least is None else sample.others.get(self.least[0])

    @property
    def faults(self) -> list[str]:
        """Sentences about violations of the rule."""
        share, frozen, said = self.mean(_share), self.mean(_frozen), []
        if number(share) is not None and (number(share) or 0.0) < LEAST_OWN_SHARE:
            said.append(f"it starves at {say.frac(share)} of its own fair share")
        if self.least is not None and (number(self.least[1]) or 0.0) < LEAST_SHARE:
            said.append(f"it leaves {self.least[0]} {say.frac(self.least[1])} of its fair share")
        if (number(frozen) or 0.0) > MOST_FROZEN:
            said.append(f"its picture is frozen for {say.frac(frozen)} of the time")
        return said

    @property
    def breach(self) -> float:
        """The sum of the missing shares and the excess of frozen time."""
        share, frozen = number(self.mean(_share)), number(self.mean(_frozen))
        others = LEAST_SHARE if self.least is None else number(self.least[1]) or 0.0
        own = LEAST_OWN_SHARE if share is None else share
        missing = max(LEAST_OWN_SHARE - own, 0.0) + max(LEAST_SHARE - others, 0.0)
        return missing + max((frozen or 0.0) - MOST_FROZEN, 0.0)


def _share(sample: Sample) -> Value:
    return sample.share


def _frozen(sample: Sample) -> Value:
    return sample.frozen


@dataclass(frozen=True)
class Criterion:
    """A criterion of the rule."""

    key: str
    """The name in JSON."""
    placebo: str
    """The key in `PLACEBO`."""
    least: float
    """The smallest difference that matters to a viewer or to another flow; relative for delays."""
    value: Callable[[Candidate, Sample], Value]
    """The value of a run; more is better, up to a bound."""
    raw: Callable[[Candidate], Any]
    """The unbounded figure, as a mean over the seeds."""
    how: Callable[[object], str]
    """Formats the figure."""
    words: Callable[[Candidate], str]
    """The predicate after the candidate's name, with {} for the figure."""
    relative: bool = False
    least_ms: float = 0.0

    def by_seed(self, of: Candidate) -> dict[int, float]:
        """Return the known values of a candidate's runs, in the order of seeds."""
        runs = sorted(of.samples.items())
        return {seed: x for seed, sample in runs if (x := self.value(of, sample)) is not None}

    def beside(self, one: Candidate, other: Candidate) -> str:
        """Describe the figures of two candidates."""
        first = f"{one.name} {self.words(one)}".format(self.how(self.raw(one)))
        return f"{first}, {other.name} {self.how(self.raw(other))}"


def _capped(value: Value, most: float) -> Value:
    return None if value is None else min(value, most)


def _negative(value: Value, least: float = 0.0) -> Value:
    return None if value is None else -max(value, least)


def criteria(score: str | None, delay: Delay) -> list[Criterion]:
    """Return the rule's criteria in their order; they compare ``score`` and ``delay``."""

    def scored(sample: Sample) -> Value:
        return None if score is None else getattr(sample, score)

    def late(sample: Sample) -> Value:
        return sample.playout_ms if delay == "playout_ms" else sample.delay_ms

    def above_starving(_: Candidate, sample: Sample) -> Value:
        return _capped(sample.share, LEAST_OWN_SHARE)

    def left_to_others(each: Candidate, sample: Sample) -> Value:
        return _capped(each.others_share(sample), LEAST_SHARE)

    def moving(_: Candidate, sample: Sample) -> Value:
        return _negative(sample.frozen, MOST_FROZEN)

    def own_share(_: Candidate, sample: Sample) -> Value:
        return _capped(sample.share, 1.0)

    def share(each: Candidate) -> Any:
        return each.mean(_share)

    def own(_: Candidate) -> str:
        return "has {} of its own fair share"

    def leaves(each: Candidate) -> str:
        return f"leaves {each.least[0] if each.least else ''} {{}} of its fair share"

    def stands(_: Candidate) -> str:
        return "is frozen for {} of the time"

    def sees(_: Candidate) -> str:
        return f"has a {say_score(score)} of {{}}"

    def waits(_: Candidate) -> str:
        return "shows everything {} late" if delay == "playout_ms" else "has packets that arrive {} late"

    def least(each: Candidate) -> Any:
        return each.least[1] if each.least else None

    def frozen(each: Candidate) -> Any:
        return each.mean(_frozen)

    def seen(each: Candidate) -> Any:
        return each.mean(scored)

    def waited(each: Candidate) -> Any:
        return each.mean(late)

    return [
        Criterion("starvation", "share", 0.05, above_starving, share, say.frac, own),
        Criterion("others_share", "others_share", 0.05, left_to_others, least, say.frac, leaves),
        Criterion("frozen_frac", "frozen", 0.01, moving, frozen, say.frac, stands),
        Criterion(score or "score", "score", 0.2, lambda _, s: scored(s), seen, say.score, sees),
        Criterion("share_of_fair", "share", 0.05, own_share, share, say.frac, own),
        Criterion(
            "delay_ms", "delay", 0.1, lambda _, s: _negative(late(s)), waited, say.ms, waits, True, 20.0
        ),
    ]


def cost_criteria(score: str | None, delay: Delay) -> list[Criterion]:
    """Return the figures in which a recommended run may be worse than others.

    What another flow loses is a cost beyond `LEAST_SHARE` too, so that its share has no bound here.
    """
    return [
        replace(one, placebo="others_share_unbounded", value=Candidate.others_share)
        if one.key == "others_share"
        else one
        for one in criteria(score, delay)
        if one.key != "starvation"  # this is `share_of_fair` up to its bound
    ]


def say_score(score: str | None) -> str:
    """Return a score's name for use in sentences."""
    return (score or "score").replace("_", " ")


RULE = (
    "The rule has six criteria, in this order: "
    f"(1) the video has at least {say.frac(LEAST_OWN_SHARE)} of its fair share; "
    f"(2) each other flow, a TCP or another video, has at least {say.frac(LEAST_SHARE)} of its fair share; "
    f"(3) the picture is frozen for at most {say.frac(MOST_FROZEN)} of the time, "
    "where without measured pictures only whole pictures count as shown; "
    "(4) a better score; (5) a larger share of the video's fair share; (6) less delay: with play-out if all "
    "runs have it, else that of the packets. "
    "A run that breaks one of the first three is not recommended. "
    "A difference counts if it is at least 0.2 of a score, 5 points of a share, 1 point of frozen time, or 10 % and "
    "20 ms of delay, and if it is significant. With several seeds it is significant if the 99 % interval of the "
    "differences per seed excludes 0; for this interval, the usual spread between seeds counts as two more seeds. "
    "The interval of a single mean does not decide. With one seed, a difference is significant if only one in a "
    "thousand pairs of runs that differ in their seed alone exceeds it: "
    f"{PLACEBO['score'].most:.1f} of a score, {100 * PLACEBO['share'].most:.0f} points of the video's share, "
    f"{100 * PLACEBO['others_share'].most:.0f} points of another flow's share, "
    f"{100 * PLACEBO['frozen'].most:.0f} points of frozen time, {100 * PLACEBO['delay'].most:.0f} % of the mean delay."
)


@dataclass(frozen=True)
class Difference:
    """The difference of two candidates in one criterion."""

    criterion: Criterion
    better: Candidate
    worse: Candidate
    difference: float
    """The mean difference over the seeds, in the criterion's unit."""
    least: float
    """The smallest significant difference."""
    spread: Value
    """The standard deviation from which `least` follows: that of the runs, pooled with that in `PLACEBO`."""
    seeds: int
    paired: bool
    """Whether the runs of each pair have the same seed."""

    @property
    def counts(self) -> bool:
        """Whether the difference is significant and large enough to matter."""
        return self.difference >= self.least

    @property
    def basis(self) -> str:
        """The origin of `least`."""
        if self.seeds == 1:
            return "placebo"
        return "paired by seed" if self.paired else "seeds in their order"

    def as_json(self) -> Json:
        """Return the difference as JSON."""
        return {
            "better": self.better.name,
            "worse": self.worse.name,
            "figure": self.criterion.key,
            "difference": self.difference,
            "least_difference": self.least,
            "spread": self.spread,
            "n": self.seeds,
            "basis": self.basis,
            "counts": self.counts,
        }

    def __str__(self) -> str:
        return self.criterion.beside(self.worse, self.better)


def difference(criterion: Criterion, one: Candidate, other: Candidate) -> Difference | None:
    """Compare two candidates by one criterion; `None` if one of them has no value.

    Runs are paired by seed if at least half of the seeds are equal, otherwise in their order.
    """
    a, b = criterion.by_seed(one), criterion.by_seed(other)
    if not a or not b:
        return None
    common = sorted(a.keys() & b.keys())
    paired = 2 * len(common) >= min(len(a), len(b))
    pairs = (
        [(a[seed], b[seed]) for seed in common] if paired else list(zip(a.values(), b.values(), strict=False))
    )
    apart = [x - y for x, y in pairs]
    mean, n = statistics.fmean(apart), len(apart)
    level = statistics.fmean(abs(x) for pair in pairs for x in pair) if criterion.relative else 1.0
    placebo = PLACEBO[criterion.placebo]
    matters = max(criterion.least * level, criterion.least_ms)
    if n == 1:
        deviation, chance = placebo.spread * level, placebo.most * level
    else:
        # Smyth's moderated t (2004, equation 3.2): without pooling, two or three pairs that agree by chance would be
        # significant. `chance` is the half-width of the mean's 99 % interval.
        freedom = PRIOR_FREEDOM + n - 1
        squares = PRIOR_FREEDOM * (placebo.spread * level) ** 2 + (n - 1) * statistics.variance(apart)
        deviation = math.sqrt(squares / freedom)
        chance = student_t99(freedom) * deviation / math.sqrt(n)
    better, worse = (one, other) if mean >= 0 else (other, one)
    return Difference(criterion, better, worse, abs(mean), max(matters, chance), deviation, n, paired)


@dataclass(frozen=True)
class Verdict:
    """The recommended candidates, and the reasons."""

    candidates: Sequence[Candidate]
    take: Sequence[str] = ()
    """One, several without a significant difference, or none."""
    nearest: str | None = None
    """The candidate with the smallest violation, if all violate the rule."""
    score: str | None = None
    """The score that is compared."""
    decided: Sequence[Difference] = ()
    """The differences that excluded the other candidates."""
    compared: Sequence[Difference] = ()
    """All computed differences, in the rule's order."""
    reason: str = ""
    """Why candidates are recommended ("decided"), or why none is recommended (any other value).

    - "decided": all other candidates are significantly worse.
    - "alike": no candidate was excluded, or some of the remaining candidates violate the rule.
    - "chance": each candidate that keeps the rule is significantly worse than a candidate that violates the rule.
    - "broken": all candidates violate the rule.
    - "unknown": no figure is known.
    """
    said: Sequence[str] = field(default=())
    networks: Sequence[str] = ()
    """Differences between the networks of the runs."""

    def as_json(self) -> Json:
        """Return the verdict as JSON."""
        return {
            "take": list(self.take),
            "recommended": self.take[0] if len(self.take) == 1 else None,
            "nearest": self.nearest,
            "reason": self.reason,
            "score": self.score,
            "networks_differ": list(self.networks),
            "decided_by": [each.as_json() for each in self.decided],
            "compared": [each.as_json() for each in self.compared],
            "faults": {each.name: each.faults for each in self.candidates},
            "confidence": 0.99,
            "rule": RULE,
            "text": " ".join(self.said),
        }


def verdict(
    candidates: Sequence[Candidate], where: Where = "compare", networks: Sequence[str] = ()
) -> Verdict:
    """Apply the rule: each criterion in turn excludes the candidates that are significantly behind.

    A single candidate is recommended only if it would be recommended over each of the others alone. ``networks`` are
    sentences about differences between the networks of the runs.
    """
    if len(candidates) < 2:
        return Verdict(candidates)
    score, delay = score_of(candidates), delay_of(candidates)
    rule = criteria(score, delay)
    first, compared = _excluded(rule, candidates)
    # A third run may be better than one of two others that do not differ. None of these two is recommended.
    left = [
        each
        for each in candidates
        if each in first or not any(each not in _excluded(rule, [one, each])[0] for one in first)
    ]
    decided = [found for found in compared if found.counts and found.worse not in left]
    made = _made(candidates, left)
    said = _said(made, candidates, left, compared, cost_criteria(score, delay), networks, where)
    return Verdict(candidates, made[0], made[1], score, decided, compared, made[2], said, networks)


def _excluded(
    rule: Sequence[Criterion], candidates: Sequence[Candidate]
) -> tuple[list[Candidate], list[Difference]]:
    """Apply each criterion in turn. Return the candidates that are left, and the computed differences."""
    left, compared = list(candidates), []
    for criterion in rule:
        means = {
            each.name: statistics.fmean(values)
            for each in left
            if (values := criterion.by_seed(each).values())
        }
        known = [each for each in left if each.name in means]
        top = max(known, key=lambda each: means[each.name], default=None)
        for each in known:
            if top is None or each is top or (found := difference(criterion, top, each)) is None:
                continue
            compared.append(found)
            if found.counts and found.better is top:
                left.remove(each)
    return left, compared


def score_of(candidates: Sequence[Candidate]) -> str | None:
    """Return the score that all runs have: the picture score, or else the rate score."""
    samples = [sample for each in candidates for sample in each.samples.values()]
    keys = ("picture_score", "rate_score")
    return next((key for key in keys if all(getattr(sample, key) is not None for sample in samples)), None)


def delay_of(candidates: Sequence[Candidate]) -> Delay:
    """Return the delay that all runs have: with play-out, or else that of the packets."""
    samples = [sample for each in candidates for sample in each.samples.values()]
    return "playout_ms" if all(sample.playout_ms is not None for sample in samples) else "delay_ms"


_Made = tuple[list[str], str | None, str]


def _made(candidates: Sequence[Candidate], left: Sequence[Candidate]) -> _Made:
    keep = [each for each in candidates if not each.faults]
    if not any(sample != _UNKNOWN for each in candidates for sample in each.samples.values()):
        return [], None, "unknown"
    if not keep:
        nearest = left[0] if len(left) == 1 else min(left, key=lambda each: each.breach)
        return [], nearest.name, "broken"
    good = [each.name for each in left if not each.faults]
    if len(left) == len(candidates) or 0 < len(good) < len(left):
        return [], None, "alike"
    return (good, None, "decided") if good else ([], None, "chance")


_UNKNOWN = Sample({}, None, None, None, None, None)


def _said(
    made: _Made,
    candidates: Sequence[Candidate],
    left: Sequence[Candidate],
    compared: Sequence[Difference],
    costs: Sequence[Criterion],
    networks: Sequence[str],
    where: Where,
) -> list[str]:
    take, nearest, reason = made
    named = {each.name: each for each in candidates}
    decided = [found for found in compared if found.counts and found.worse not in left]
    why = "; ".join(str(found) for found in decided[:_MOST_OTHERS])
    why += f"; {len(decided) - _MOST_OTHERS} more are worse" if len(decided) > _MOST_OTHERS else ""
    names = say.listed([each.name for each in left])
    said: list[str]
    use = "Better, each over its own network, is" if networks else "Use"
    best = named[take[0]] if len(take) == 1 else None
    if reason == "unknown":
        return ["These runs have no figures by which one could be recommended."]
    if reason == "broken":
        best = named[nearest or ""]
        said = [f"None keeps the rule. {best.name} is nearest to it, but {' and '.join(best.faults)}."]
        said += [f"{why}."] if why else []
    elif reason == "alike":
        said = [f"No recommendation: {names} do not differ significantly{_nearly(left, compared)}."]
        faulty = [each for each in left if each.faults]
        said += [f"Of {each.name}: {' and '.join(each.faults)}." for each in faulty[:_MOST_OTHERS]]
        said += [f"Worse: {why}."] if why else []
    elif reason == "chance":
        faults = "; ".join(f"{each.name}: {' and '.join(each.faults)}" for each in left)
        said = [f"No recommendation: {why}. But {names} {_breaks(left)} the rule ({faults})."]
    elif best is not None:
        said = [f"{use} {best.name}: {why}.", *_costs(best, candidates, costs)]
    else:
        said = [f"{use} {' or '.join(take)}, which do not differ significantly: {why}."]
    if networks:
        said.insert(0, f"{'; '.join(networks)}. The networks are compared, and not the controllers alone.")
    if best is not None and best.alone:
        said += conversation(best.mean(lambda sample: sample.playout_ms))
    if (fewest := min((found.seeds for found in compared), default=1)) < 2 and compared:
        which = "One seed is one sample" if fewest == 1 else ""
        said.append(f"{which}, so that only large differences count; {_MORE_SEEDS[where]}.")
    return said


def _breaks(left: Sequence[Candidate]) -> str:
    return "breaks" if len(left) == 1 else "break"


def _nearly(left: Sequence[Candidate], compared: Sequence[Difference]) -> str:
    scores = (each for each in compared if each.criterion.placebo == "score")
    found = next((each for each in scores if each.better in left and each.worse in left), None)
    if found is None or len(left) != 2:
        return ""
    what = say_score(found.criterion.key)
    return f": their {what}s differ by {found.difference:.2f}, and a difference counts from {found.least:.2f}"


def conversation(delay: Any) -> list[str]:
    """Return a note if a delay is too long for a conversation."""
    if (number(delay) or 0.0) <= CONVERSATION_MS:
        return []
    return [
        f"{say.ms(delay)} from camera to screen is too long for a call: a conversation needs at most "
        f"{say.ms(CONVERSATION_MS)} one way (ITU-T G.114). Shorten playout."
    ]


def _costs(best: Candidate, candidates: Sequence[Candidate], costs: Sequence[Criterion]) -> list[str]:
    """Name the figures in which another run is significantly better than the recommended one."""
    found = [
        criterion.beside(best, each)
        for each in candidates
        for criterion in costs
        if each is not best
        and (one := difference(criterion, each, best)) is not None
        and one.counts
        and one.better is each
    ]
    more = f"; {len(found) - _MOST_OTHERS} more are better" if len(found) > _MOST_OTHERS else ""
    return [f"It costs: {'; '.join(found[:_MOST_OTHERS])}{more}."] if found else []


# # ---------------------------------------------------------------- the data of runs


def candidate(name: str, summaries: Mapping[int, Json], tested: Sequence[str]) -> Candidate:
    """Return a candidate from its runs' summaries, by seed; ``tested`` are the videos under test."""
    flows = [flow for summary in summaries.values() for flow in summary["flows"] if flow["name"] in tested]
    alone = all(len(flow.get("receivers") or []) == 1 for flow in flows)
    return Candidate(name, {seed: sample(summary, tested) for seed, summary in summaries.items()}, alone)


def seed_of(summary: Json, otherwise: int) -> int:
    """Return the seed of a run, or ``otherwise`` if its summary has none."""
    seed = number(record.reach(summary, "scenario", "seed"))
    return otherwise if seed is None else int(seed)


def sample(summary: Json, tested: Sequence[str]) -> Sample:
    """Return the figures of the videos under test from a run's summary."""
    mine = [flow for flow in summary["flows"] if flow["name"] in tested]
    receivers = [receiver for flow in mine for receiver in flow.get("receivers") or []]
    playouts = [number(_median(flow, "playout_ms", "p95")) for flow in mine]
    return Sample(
        others={
            flow["name"]: share
            for flow in summary["flows"]
            if flow.get("kind") in ("video", "tcp")
            # Several videos under test compete with each other.
            and (flow["name"] not in tested or len(tested) > 1)
            and (share := number(flow.get("share_of_fair"))) is not None
        },
        share=_worst((flow.get("share_of_fair") for flow in mine), min),
        picture_score=_worst((_median(flow, "picture_score") for flow in mine), min),
        rate_score=_worst((_median(flow, "rate_score") for flow in mine), min),
        frozen=_worst((receiver.get("frozen_frac") for receiver in receivers), max),
        delay_ms=_worst((_median(flow, "delay_ms", "p95") for flow in mine), max),
        playout_ms=None if None in playouts else _worst(playouts, max),
    )


def judged(summary: Json) -> Json:
    """Return the part of a summary that the recommendation depends on."""
    flow_keys = ("name", "kind", "controller", "share_of_fair")
    keys = ("picture_score", "rate_score", "frozen_frac", "playout_ms", "delay_ms")
    return {
        "scenario": summary.get("scenario"),
        "flows": [
            {
                **{key: flow.get(key) for key in flow_keys},
                "receivers": [{key: r.get(key) for key in keys} for r in flow.get("receivers") or []],
            }
            for flow in summary["flows"]
        ],
    }


def in_question(summaries: Sequence[Json]) -> list[str]:
    """Return the videos whose controllers differ between these runs; all if no controller differs."""
    steered: dict[str, set[str]] = {}
    for summary in summaries:
        for flow in summary["flows"]:
            if flow.get("kind") == "video":
                steered.setdefault(flow["name"], set()).add(str(flow.get("controller")))
    return [name for name, all_ in steered.items() if len(all_) > 1] or list(steered)


def delay_ms(flow: Mapping[str, Any]) -> Any:
    """Return the play-out delay of a flow, or else the network's delay, in milliseconds."""
    play_out = _median(flow, "playout_ms", "p95")
    return play_out if number(play_out) is not None else _median(flow, "delay_ms", "p95")


def alike(one: Any, other: Any, how: Callable[[object], str]) -> bool:
    """Whether two values are formatted alike, or their 95 % intervals overlap."""
    if how(number(one)) == how(number(other)):
        return True
    half = sum(v["ci95"] or 0.0 for v in (one, other) if is_spread(v))
    return abs((number(one) or 0.0) - (number(other) or 0.0)) < half


def _worst(values: Any, pick: Callable[..., Any]) -> Any:
    known = [value for value in values if number(value) is not None]
    return pick(known, key=lambda value: number(value) or 0.0) if known else None


def _median(flow: Mapping[str, Any], *path: str) -> Any:
    return record.middle(record.reach(receiver, *path) for receiver in flow.get("receivers") or [])
