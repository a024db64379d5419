"""Which of several runs, or controllers, to take: the one rule of comparisons, sweeps and the laboratory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steadycast import record
from steadycast.folder import Json, is_spread, number
from steadycast.report import say

LEAST_SHARE = 0.8
"""Of its fair share, which everybody else has to have."""
MOST_FROZEN = 0.01
"""Of the time, in which a picture may stand still."""
CONVERSATION_MS = 400.0
"""The most that a conversation takes one way (ITU-T G.114)."""
RULE = (
    f"The rule: nobody else, a TCP or another video, has less than {say.frac(LEAST_SHARE)} of its fair share, and no "
    f"picture stands still for more than {say.frac(MOST_FROZEN)} of the time. Of those that keep this, the best score; "
    "of equal scores, the shortest delay that a viewer has, play-out included."
)
_MOST_OTHERS = 3


@dataclass(frozen=True)
class Candidate:
    """What is known of one run: numbers, or means with their spread over seeds."""

    name: str
    others: Mapping[str, Any]
    """The share of its fair share that each flow has that is not in question."""
    share: Any
    """The same of the video in question; of several the smallest."""
    score: Any
    frozen: Any
    """The share of the time in which the picture of its worst receiver stood still."""
    delay_ms: Any
    """From a frame's being ready to its being shown."""
    alone: bool
    """Whether it has one receiver, as a call has."""
    seeds: int = 1

    @property
    def faults(self) -> list[str]:
        """Say where it breaks the rule."""
        said = []
        if self.least is not None and (number(self.least[1]) or 0.0) < LEAST_SHARE:
            said.append(f"it leaves {self.least[0]} {say.frac(self.least[1])} of its fair share")
        if (number(self.frozen) or 0.0) > MOST_FROZEN:
            said.append(f"its picture stands still for {say.frac(self.frozen)} of the time")
        return said

    @property
    def least(self) -> tuple[str, Any] | None:
        """Return who else has least of its fair share, and how much."""
        return min(self.others.items(), key=lambda item: number(item[1]) or 0.0, default=None)

    @property
    def apart(self) -> float:
        """By how much it breaks the rule: shares that others lack, and the time that is frozen."""
        share = LEAST_SHARE if self.least is None else number(self.least[1]) or 0.0
        return max(LEAST_SHARE - share, 0.0) + max((number(self.frozen) or 0.0) - MOST_FROZEN, 0.0)


def alike(one: Any, other: Any, how: Callable[[object], str]) -> bool:
    """Whether two values can't be told apart: they are said alike, or their 95 % intervals overlap."""
    if how(number(one)) == how(number(other)):
        return True
    half = sum(v["ci95"] or 0.0 for v in (one, other) if is_spread(v))
    return abs((number(one) or 0.0) - (number(other) or 0.0)) < half


def of_summary(name: str, summary: Json, tested: Sequence[str], seeds: int = 1) -> Candidate:
    """Return what a summary says of the videos in question."""
    mine = [flow for flow in summary["flows"] if flow["name"] in tested]
    receivers = [receiver for flow in mine for receiver in flow.get("receivers") or []]
    return Candidate(
        name=name,
        others={
            flow["name"]: share
            for flow in summary["flows"]
            if flow.get("kind") in ("video", "tcp")
            # Of several videos in question each is another one to the others.
            and (flow["name"] not in tested or len(tested) > 1)
            and number(share := flow.get("share_of_fair")) is not None
        },
        share=_worst((flow.get("share_of_fair") for flow in mine), min),
        score=_worst((_median(flow, "viewing_score") for flow in mine), min),
        frozen=_worst((receiver.get("frozen_frac") for receiver in receivers), max),
        delay_ms=_worst((delay_ms(flow) for flow in mine), max),
        alone=all(len(flow.get("receivers") or []) == 1 for flow in mine),
        seeds=seeds,
    )


def judged(summary: Json) -> Json:
    """Return the part of a summary by which it is judged here."""
    flow_keys = ("name", "kind", "controller", "share_of_fair")
    keys = ("viewing_score", "frozen_frac", "playout_ms", "delay_ms")
    return {
        "flows": [
            {
                **{key: flow.get(key) for key in flow_keys},
                "receivers": [{key: r.get(key) for key in keys} for r in flow.get("receivers") or []],
            }
            for flow in summary["flows"]
        ]
    }


def in_question(summaries: Sequence[Json]) -> list[str]:
    """Return the videos whose controllers differ between these runs; all, where none does."""
    steered: dict[str, set[str]] = {}
    for summary in summaries:
        for flow in summary["flows"]:
            if flow.get("kind") == "video":
                steered.setdefault(flow["name"], set()).add(str(flow.get("controller")))
    return [name for name, all_ in steered.items() if len(all_) > 1] or list(steered)


def delay_ms(flow: Mapping[str, Any]) -> Any:
    """Return the delay that a flow's viewer has: the play-out delay, or else that of the network."""
    play_out = _median(flow, "playout_ms", "p95")
    return play_out if number(play_out) is not None else _median(flow, "delay_ms", "p95")


def sentences(candidates: Sequence[Candidate]) -> list[str]:
    """Say which one to take, why, what it costs, and what others are better at; nothing of a single one."""
    if len(candidates) < 2:
        return []
    best, first = _chosen(candidates)
    if best is None:
        return [first]
    said = [first + _costs(best)]
    said += _better(best, candidates)
    said += conversation(best.delay_ms) if best.alone else []
    if few := [each.name for each in candidates if each.seeds < 2]:
        which = "This is" if len(few) == len(candidates) else f"Of {say.listed(few)} there is"
        said.append(f"{which} one seed, which is one sample: --seeds 1-5 tells whether others say the same.")
    return said


def conversation(delay: Any) -> list[str]:
    """Say of a delay that is too long for it that this is no call."""
    if (number(delay) or 0.0) <= CONVERSATION_MS:
        return []
    return [
        f"{say.ms(delay)} from camera to screen is no call: a conversation takes at most {say.ms(CONVERSATION_MS)} one "
        "way (ITU-T G.114); shorten playout."
    ]


def _chosen(candidates: Sequence[Candidate]) -> tuple[Candidate | None, str]:
    keep = [candidate for candidate in candidates if not candidate.faults]
    pool = keep or sorted(candidates, key=lambda each: each.apart)[:1]
    what, how, value = _merit(candidates)
    known = [each for each in pool if number(value(each)) is not None]
    if not known:
        return None, "Nothing is known of these runs by which one could be taken."
    top = max(known, key=lambda each: number(value(each)) or 0.0)
    equal = [each for each in known if alike(value(each), value(top), how)]
    least = min(equal, key=lambda each: number(each.delay_ms) or 0.0)
    best = [each for each in equal if alike(each.delay_ms, least.delay_ms, say.ms)]
    one = max(best, key=lambda each: number(value(each)) or 0.0)
    names = " or ".join(each.name for each in best)
    scored = f"{what} {how(value(one))}"
    if not keep:
        return one, f"None keeps the rule. Nearest is {names}: {' and '.join(one.faults)}; {scored}"
    if len(keep) == 1:
        return one, f"Take {names}: it alone keeps the rule; {scored}"
    if len(best) > 1:
        rest = "" if len(best) == len(candidates) else f" of the {len(keep)} that keep the rule"
        return one, f"Take {names}: nothing tells them apart, and they are the best{rest}; {scored}"
    if len(equal) > 1:
        others = say.listed([each.name for each in equal if each is not one])
        return one, f"Take {names}: {scored}, as {others}, with less delay"
    return one, f"Take {names}: {scored}, the best of the {len(keep)} that keep the rule"


def _merit(
    candidates: Sequence[Candidate],
) -> tuple[str, Callable[[object], str], Callable[[Candidate], Any]]:
    """Return what is compared first: the score, or without frames what the video got."""
    if any(number(each.score) is not None for each in candidates):
        return "score", say.score, lambda each: each.score
    return "share of fair", say.frac, lambda each: each.share


def _costs(best: Candidate) -> str:
    parts = []
    if best.least is not None and LEAST_SHARE <= (number(best.least[1]) or 0.0) < 0.995:
        parts.append(f"{best.least[0]} has {say.frac(best.least[1])} of its fair share")
    if number(best.delay_ms) is not None:
        parts.append(f"its viewer sees everything {say.ms(best.delay_ms)} late")
    return f". It costs: {' and '.join(parts)}." if parts else "."


def _better(best: Candidate, candidates: Sequence[Candidate]) -> list[str]:
    """Say what each of the others is better at, and why it is not taken all the same."""
    what, how, value = _merit(candidates)
    found = []
    for each in candidates:
        better = []
        if _above(value(each), value(best), how):
            better.append(f"{what} ({how(value(each))})")
        if _above(best.delay_ms, each.delay_ms, say.ms):
            better.append(f"delay ({say.ms(each.delay_ms)})")
        if not better and best.least and each.least and _above(each.least[1], best.least[1], say.frac):
            better.append(f"what it leaves to {each.least[0]} ({say.frac(each.least[1])})")
        if each is not best and better:
            but = each.faults or [f"it has a {what} of {how(value(each))}"]
            found.append(
                (len(better), f"{each.name} is better at {' and '.join(better)}, but {' and '.join(but)}")
            )
    if not found:
        return []
    shown = [text for _, text in found[:_MOST_OTHERS]]
    more = f"; {len(found) - len(shown)} more are better at something" if len(found) > len(shown) else ""
    return ["; ".join(shown) + more + "."]


def _above(one: Any, other: Any, how: Callable[[object], str]) -> bool:
    a, b = number(one), number(other)
    return a is not None and b is not None and a > b and not alike(one, other, how)


def _worst(values: Any, pick: Callable[..., Any]) -> Any:
    known = [value for value in values if number(value) is not None]
    return pick(known, key=lambda value: number(value) or 0.0) if known else None


def _median(flow: Mapping[str, Any], *path: str) -> Any:
    return record.middle(record.reach(receiver, *path) for receiver in flow.get("receivers") or [])
