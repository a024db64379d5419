"""The rule that recommends one of several runs or controllers. It is used by comparisons, sweeps and the lab."""

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
"""A video starves if it gets less than this fraction of its fair share.

Within a factor of two of a TCP flow's rate, a flow is reasonably fair (RFC 5348, section 1).
"""
LEAST_SHARE = 0.8
"""Every other flow must get at least this fraction of its fair share."""
MOST_FROZEN = 0.01
"""Largest acceptable fraction of time in which the picture is frozen."""
CONVERSATION_MS = 400.0
"""Longest one-way delay that a conversation tolerates, in milliseconds (ITU-T G.114)."""
PRIOR_FREEDOM = 2
"""Weight of `Placebo.spread` in the pooled variance, in degrees of freedom (moderated t-test, Smyth 2004)."""
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
"""For each interface, a sentence that says how to add more seeds."""


@dataclass(frozen=True)
class Placebo:
    """How much a figure differs between two runs that differ only in the seed (`python -m validation.placebo`)."""

    spread: float
    """Root mean square of the differences. For delays, it is relative to the mean delay.

    For the figures in `MIDDLE`, it is the median over scenarios, networks and controllers.
    """
    most: float
    """99.9th percentile of the differences."""


PLACEBO: Mapping[str, Placebo] = {
    "others_share": Placebo(0.055, 0.331),
    "frozen": Placebo(0.028, 0.162),
    "score": Placebo(0.138, 1.22),
    "share": Placebo(0.081, 0.446),
    "delay": Placebo(0.093, 0.722),
    "others_share_unbounded": Placebo(0.113, 0.558),
}
"""The `Placebo` of each figure, from docs/data/placebo.csv and placebo-costs.csv."""
MIDDLE = ("score",)
"""Figures whose `Placebo.spread` is a median, because a few networks would dominate a root mean square.

Scores vary six times as much on Wi-Fi as on other networks.
"""


@dataclass(frozen=True)
class Sample:
    """The figures of one run that the rule compares."""

    others: Mapping[str, float]
    """How much of its fair share each competing flow got, as a fraction. The keys are names of flows.

    If several videos are tested, they compete with each other, so they are included.
    """
    share: Value
    """How much of its fair share the tested video got, as a fraction. With several videos, it is the smallest value."""
    picture_score: Value
    rate_score: Value
    frozen: Value
    """Fraction of time in which the picture was frozen, at the worst receiver."""
    delay_ms: Value
    """95th percentile of the packets' delay, in milliseconds."""
    playout_ms: Value = None
    """Delay from the capture of a frame to its display, in milliseconds. `None` if a video has no play-out."""


@dataclass(frozen=True)
class Candidate:
    """A run that may be recommended. It may consist of several runs that differ only in the seed."""

    name: str
    samples: Mapping[int, Sample]
    """The figures of each run. The keys are the seeds."""
    alone: bool = True
    """Whether the video has only one receiver, as in a call."""

    def mean(self, of: Callable[[Sample], Value]) -> Any:
        """Return the mean of a figure over the seeds, with its spread.

        Returns a plain number if there is only one seed, and `None` if the figure is not known.
        """
        known = [value for sample in self.samples.values() if (value := of(sample)) is not None]
        if not known:
            return None
        return known[0] if len(known) == 1 else spread(known)

    @cached_property
    def least(self) -> tuple[str, Any] | None:
        """The flow that gets the least of its fair share, and how much of it the flow gets.

        The flow is one of those in `Sample.others`. The second value is a fraction.
        """
        names = dict.fromkeys(name for sample in self.samples.values() for name in sample.others)
        shares = [(name, self.mean(lambda sample, name=name: sample.others.get(name))) for name in names]  # type: ignore[misc]
        return min(shares, key=lambda item: number(item[1]) or 0.0, default=None)

    def others_share(self, sample: Sample) -> Value:
        """Return how much of its fair share a flow gets in one run, as a fraction.

        The flow is the one that `least` specifies.
        """
        return None if self.least is None else sample.others.get(self.least[0])

    @property
    def faults(self) -> list[str]:
        """Sentences about how the run breaks the rule."""
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
        """How far the run breaks the rule, as a sum of fractions.

        It adds how far the video's share is below `LEAST_OWN_SHARE`, how far the other flow's share is below
        `LEAST_SHARE`, and how far the frozen time is above `MOST_FROZEN`.
        """
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
    """One criterion of the rule. It compares two candidates by one figure."""

    key: str
    """Name of the criterion in JSON."""
    placebo: str
    """Key of the criterion in `PLACEBO`."""
    least: float
    """Smallest difference that matters to a viewer or to another flow. It is relative for delays."""
    value: Callable[[Candidate, Sample], Value]
    """Returns the value of one run. A higher value is better. Some criteria limit the value."""
    raw: Callable[[Candidate], Any]
    """Returns the figure without a bound, as a mean over the seeds."""
    how: Callable[[object], str]
    """Formats the figure as text."""
    words: Callable[[Candidate], str]
    """Returns the rest of a sentence that begins with the candidate's name. The figure replaces {} in it."""
    relative: bool = False
    least_ms: float = 0.0

    def by_seed(self, of: Candidate) -> dict[int, float]:
        """Return the values of a candidate's runs, sorted by seed. Unknown values are left out."""
        runs = sorted(of.samples.items())
        return {seed: x for seed, sample in runs if (x := self.value(of, sample)) is not None}

    def beside(self, one: Candidate, other: Candidate) -> str:
        """Return a phrase with the figures of two candidates."""
        first = f"{one.name} {self.words(one)}".format(self.how(self.raw(one)))
        return f"{first}, {other.name} {self.how(self.raw(other))}"


def _capped(value: Value, most: float) -> Value:
    return None if value is None else min(value, most)


def _negative(value: Value, least: float = 0.0) -> Value:
    return None if value is None else -max(value, least)


def criteria(score: str | None, delay: Delay) -> list[Criterion]:
    """Return the criteria of the rule in their order.

    ``score`` and ``delay`` are the score and the delay that are compared.
    """

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
    """Return the criteria in which a recommended run may be worse than others.

    The rule limits another flow's share to `LEAST_SHARE`. Here it is not limited, because a loss of share above
    `LEAST_SHARE` is also a cost.
    """
    return [
        replace(one, placebo="others_share_unbounded", value=Candidate.others_share)
        if one.key == "others_share"
        else one
        for one in criteria(score, delay)
        if one.key != "starvation"  # "starvation" is `share_of_fair` with an upper bound
    ]


def say_score(score: str | None) -> str:
    """Return the name of a score as words."""
    return (score or "score").replace("_", " ")


RULE = (
    "The rule has six criteria, in this order: "
    f"(1) the video has at least {say.frac(LEAST_OWN_SHARE)} of its fair share; "
    f"(2) each other flow, a TCP or another video, has at least {say.frac(LEAST_SHARE)} of its fair share; "
    f"(3) the picture is frozen for at most {say.frac(MOST_FROZEN)} of the time; "
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
    """The difference between two candidates in one criterion."""

    criterion: Criterion
    better: Candidate
    worse: Candidate
    difference: float
    """Mean difference over the seeds, in the unit of the criterion."""
    least: float
    """Smallest difference that counts as significant and large enough."""
    spread: Value
    """Standard deviation on which `least` is based.

    It combines the standard deviation of the runs with the one in `PLACEBO`.
    """
    seeds: int
    paired: bool
    """Whether the two runs of each pair have the same seed."""

    @property
    def counts(self) -> bool:
        """Whether the difference is significant, and large enough to matter."""
        return self.difference >= self.least

    @property
    def basis(self) -> str:
        """What `least` is based on."""
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
    """Return the difference between two candidates in one criterion, or `None` if one of them has no value.

    Runs with equal seeds are paired, and runs without a partner are left out. If less than half of the runs of the
    candidate with fewer runs have a partner, the runs are paired in their order instead. If one candidate has more
    runs, its surplus runs are left out.
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
        # Use Smyth's moderated t (2004, equation 3.2). Without it, two or three pairs that agree by chance would be
        # significant. `chance` is half of the width of the mean's 99 % interval.
        freedom = PRIOR_FREEDOM + n - 1
        squares = PRIOR_FREEDOM * (placebo.spread * level) ** 2 + (n - 1) * statistics.variance(apart)
        deviation = math.sqrt(squares / freedom)
        chance = student_t99(freedom) * deviation / math.sqrt(n)
    better, worse = (one, other) if mean >= 0 else (other, one)
    return Difference(criterion, better, worse, abs(mean), max(matters, chance), deviation, n, paired)


@dataclass(frozen=True)
class Verdict:
    """Which candidates are recommended, and why."""

    candidates: Sequence[Candidate]
    take: Sequence[str] = ()
    """Names of the recommended candidates.

    There are several if they do not differ significantly, and none if none is recommended.
    """
    nearest: str | None = None
    """The candidate that is nearest to the rule, if all candidates break the rule.

    It is the only candidate that was not excluded. If several were not excluded, it is the one of them that breaks
    the rule least.
    """
    score: str | None = None
    """Name of the score that was compared."""
    decided: Sequence[Difference] = ()
    """The differences that excluded the other candidates."""
    compared: Sequence[Difference] = ()
    """All differences that were computed, in the order of the rule's criteria."""
    reason: str = ""
    """Why candidates are recommended ("decided"), or why none is recommended (any other value).

    - "decided": all other candidates are significantly worse.
    - "alike": no candidate was excluded. Or of the candidates that were not excluded, some break the rule and some do
      not.
    - "chance": each candidate that keeps the rule is significantly worse than a candidate that breaks the rule.
    - "broken": all candidates break the rule.
    - "unknown": no figure is known.
    """
    said: Sequence[str] = field(default=())
    networks: Sequence[str] = ()
    """Sentences about differences between the networks of the runs."""

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
    """Apply the rule. Each criterion in turn excludes the candidates that are significantly worse than the best.

    A single candidate is recommended only if it also wins each direct comparison with another candidate. ``networks``
    are sentences about differences between the networks of the runs.
    """
    if len(candidates) < 2:
        return Verdict(candidates)
    score, delay = score_of(candidates), delay_of(candidates)
    rule = criteria(score, delay)
    first, compared = _excluded(rule, candidates)
    # Put back each excluded candidate that does not lose a direct comparison with any remaining candidate. The
    # candidate that excluded it was later excluded itself.
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
    """Apply each criterion in turn.

    Return the candidates that are not excluded, and the differences that were computed.
    """
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
    """Return the name of the score that all runs have. The picture score is preferred to the rate score."""
    samples = [sample for each in candidates for sample in each.samples.values()]
    keys = ("picture_score", "rate_score")
    return next((key for key in keys if all(getattr(sample, key) is not None for sample in samples)), None)


def delay_of(candidates: Sequence[Candidate]) -> Delay:
    """Return the delay to compare: the delay with play-out if all runs have it, or else the delay of the packets."""
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
    """Return a sentence if the delay is too long for a conversation. Otherwise return nothing."""
    if (number(delay) or 0.0) <= CONVERSATION_MS:
        return []
    return [
        f"{say.ms(delay)} from camera to screen is too long for a call: a conversation needs at most "
        f"{say.ms(CONVERSATION_MS)} one way (ITU-T G.114). Shorten playout."
    ]


def _costs(best: Candidate, candidates: Sequence[Candidate], costs: Sequence[Criterion]) -> list[str]:
    """Return a sentence about the figures in which another run is significantly better than the recommended run."""
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


# ---------------------------------------------------------------- the data of runs


def candidate(name: str, summaries: Mapping[int, Json], tested: Sequence[str]) -> Candidate:
    """Create a candidate from the summaries of its runs.

    The keys of ``summaries`` are seeds. ``tested`` are the names of the tested videos.
    """
    flows = [flow for summary in summaries.values() for flow in summary["flows"] if flow["name"] in tested]
    alone = all(len(flow.get("receivers") or []) == 1 for flow in flows)
    return Candidate(name, {seed: sample(summary, tested) for seed, summary in summaries.items()}, alone)


def seed_of(summary: Json, otherwise: int) -> int:
    """Return the seed of a run. If the summary has no seed, return ``otherwise``."""
    seed = number(record.reach(summary, "scenario", "seed"))
    return otherwise if seed is None else int(seed)


def sample(summary: Json, tested: Sequence[str]) -> Sample:
    """Return the figures of a run that the rule compares. ``tested`` are the names of the tested videos."""
    mine = [flow for flow in summary["flows"] if flow["name"] in tested]
    receivers = [receiver for flow in mine for receiver in flow.get("receivers") or []]
    playouts = [number(_median(flow, "playout_ms", "p95")) for flow in mine]
    return Sample(
        others={
            flow["name"]: share
            for flow in summary["flows"]
            if flow.get("kind") in ("video", "tcp")
            # If several videos are tested, count each of them as another flow, because they compete with each other.
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
    """Return the part of a summary on which the recommendation depends."""
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
    """Return the names of the videos whose controllers differ between these runs.

    If no controller differs, return the names of all videos.
    """
    steered: dict[str, set[str]] = {}
    for summary in summaries:
        for flow in summary["flows"]:
            if flow.get("kind") == "video":
                steered.setdefault(flow["name"], set()).add(str(flow.get("controller")))
    return [name for name, all_ in steered.items() if len(all_) > 1] or list(steered)


def delay_ms(flow: Mapping[str, Any]) -> Any:
    """Return the play-out delay of a flow in milliseconds. If there is none, return the delay of its packets."""
    play_out = _median(flow, "playout_ms", "p95")
    return play_out if number(play_out) is not None else _median(flow, "delay_ms", "p95")


def alike(one: Any, other: Any, how: Callable[[object], str]) -> bool:
    """Whether two values do not differ visibly: they look the same as text, or their 95 % intervals overlap."""
    if how(number(one)) == how(number(other)):
        return True
    half = sum(v["ci95"] or 0.0 for v in (one, other) if is_spread(v))
    return abs((number(one) or 0.0) - (number(other) or 0.0)) < half


def _worst(values: Any, pick: Callable[..., Any]) -> Any:
    known = [value for value in values if number(value) is not None]
    return pick(known, key=lambda value: number(value) or 0.0) if known else None


def _median(flow: Mapping[str, Any], *path: str) -> Any:
    return record.middle(record.reach(receiver, *path) for receiver in flow.get("receivers") or [])
