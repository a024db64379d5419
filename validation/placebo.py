"""Measures how much two runs differ if only their seeds differ, and how the comparison's rule judges them.

    python -m validation.placebo            # the built-in scenarios, and home over the networks of the set smoke
    python -m validation.placebo --write    # and docs/data/placebo*.csv, which report/choice.py repeats

It prints the spread of each figure, and how often the rule recommends one of two runs, or groups of runs, of the same
scenario and controller, which it should never do. For pairs of controllers whose scores or shares differ by at least
half a point over all seeds, it prints how often the rule recommends the better one with five seeds.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from steadycast.report import choice
from steadycast.report.choice import Candidate
from steadycast.sweep import Sweep, sweep
from steadycast.sweep.show import summaries

from validation import page

TABLE = "placebo"
COSTS_TABLE = "placebo-costs"
COSTS = ("others_share_unbounded",)
"""Figures that only the sentence on costs compares."""
SCENARIOS = {
    "home": "video",
    "wifi": "call",
    "bufferbloat": "call",
    "demo": "video",
    "ci": "video",
    "lte": "video",
}
"""Built-in scenarios, and their video of one receiver. All use known frame sizes; nothing is encoded."""
CONTROLLERS = ("steady", "tfrc", "gcc", "asmp", "scream", "tfmcc")
NETWORKS = {"network": ["smoke"], "flow.video.controller": ["steady", "tfrc", "gcc"]}
SEEDS = 10
DRAWS = 1000
HEAD = (
    "figure",
    "spread of a difference",
    "at the point in the middle",
    "one in a thousand exceeds",
    "pairs",
)
COSTS_NOTE = "The smallest share of another flow, without the rule's bound."
Points = dict[tuple[str, ...], list[Candidate]]


def points(seeds: int) -> Points:
    """Run the sweeps. Return the controllers at each point of the other axes."""
    found: Points = {}
    for name, flow in SCENARIOS.items():
        over = {f"flow.{flow}.controller": list(CONTROLLERS)}
        found |= candidates(
            name, flow, sweep(Path(f"scenarios/{name}.toml"), over, seeds=range(1, seeds + 1))
        )
    done = sweep(Path("scenarios/home.toml"), NETWORKS, seeds=range(1, seeds + 1), set={"duration": "30s"})
    return found | candidates("home", "video", done)


def candidates(scenario: str, flow: str, done: Sweep) -> Points:
    """Return the controllers at each point of a sweep's other axes."""
    place = done.plan.axes.index(f"flow.{flow}.controller")
    found: Points = {}
    for values, runs in summaries(done).items():
        point = (scenario, *values[:place], *values[place + 1 :])
        found.setdefault(point, []).append(choice.candidate(values[place], runs, [flow]))
    return found


@dataclass(frozen=True)
class Spread:
    """The effect of seeds on one figure."""

    key: str
    spread: float
    """Root mean square of the difference between two runs with different seeds."""
    middle: float
    """Median over the points of each point's root mean square."""
    most: float
    """The difference that one pair of seeds in a thousand exceeds, over all points."""
    pairs: int


def spreads(found: Points) -> list[Spread]:
    """Return each figure's spread over all pairs of seeds of each controller at each point."""
    apart: dict[str, list[float]] = {}
    points: dict[str, list[float]] = {}
    for each in itertools.chain.from_iterable(found.values()):
        delay = choice.delay_of([each])
        rule = choice.criteria("rate_score", delay)
        costs = (one for one in choice.cost_criteria("rate_score", delay) if one.placebo in COSTS)
        for criterion in (*rule, *costs):
            if criterion.key == "starvation":  # this criterion is the share, clipped at its bound
                continue
            values = list(criterion.by_seed(each).values())
            level = statistics.fmean(map(abs, values)) if criterion.relative and values else 1.0
            pairs = itertools.combinations(values, 2)
            mine = [abs(x - y) / level for x, y in pairs]
            if mine:
                apart.setdefault(criterion.placebo, []).extend(mine)
                points.setdefault(criterion.placebo, []).append(
                    math.sqrt(statistics.fmean(x * x for x in mine))
                )
    return [
        Spread(
            key,
            math.sqrt(statistics.fmean(x * x for x in values)),
            statistics.median(points[key]),
            sorted(values)[math.ceil(0.999 * len(values)) - 1],
            len(values),
        )
        for key, values in apart.items()
    ]


def some(of: Candidate, seeds: Sequence[int]) -> Candidate:
    """Return a candidate with only these seeds."""
    return Candidate(of.name, {seed: of.samples[seed] for seed in seeds}, of.alone)


def recommended(found: Points, count: int, draws: int) -> float:
    """Return how often the rule recommends one of two groups of runs that differ only in their seeds."""
    chance, wrong = random.Random(f"placebo {count}"), 0
    all_ = list(itertools.chain.from_iterable(found.values()))
    for _ in range(draws):
        each = chance.choice(all_)
        seeds = chance.sample(sorted(each.samples), 2 * count)
        pair = [some(each, seeds[:count]), some(each, seeds[count:])]
        pair = [Candidate(name, one.samples, one.alone) for name, one in zip("ab", pair, strict=True)]
        wrong += bool(choice.verdict(pair).take)
    return wrong / draws


def apart(found: Points) -> Iterator[tuple[Candidate, Candidate]]:
    """Yield pairs of controllers that differ by half a point of score or share over all seeds, the better one first."""
    for field in found.values():
        for pair in itertools.combinations(field, 2):
            whole = choice.verdict(pair)
            by = next(iter(whole.decided), None)
            if by is not None and len(whole.take) == 1 and by.difference >= 0.5 and by.criterion.least < 1.0:
                yield by.better, by.worse


def right(found: Points, count: int, draws: int) -> tuple[float, float, int]:
    """Return how often the rule recommends the better controller of `apart`, with `count` seeds.

    The second value is how often it can't, because that controller breaks one of the first three rules. The third is
    the number of pairs.
    """
    chance, pairs = random.Random(f"real {count}"), list(apart(found))
    taken = broken = 0
    for _ in range(draws):
        better, worse = chance.choice(pairs)
        seeds = chance.sample(sorted(better.samples.keys() & worse.samples.keys()), count)
        pair = [some(better, seeds), some(worse, seeds)]
        taken += list(choice.verdict(pair).take) == [better.name]
        broken += bool(pair[0].faults)
    return taken / draws, broken / draws, len(pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print or write the table."""
    args = page.options("validation.placebo", __doc__, TABLE, COSTS_TABLE, seeds=SEEDS).parse_args(argv)
    found = points(args.seeds)
    made = spreads(found)
    rows = {
        one.key: (one.key, f"{one.spread:.3f}", f"{one.middle:.3f}", f"{one.most:.3g}", str(one.pairs))
        for one in made
    }
    # The rule uses the spreads measured now, not an earlier table's.
    choice.PLACEBO = {
        one.key: choice.Placebo(one.middle if one.key in choice.MIDDLE else one.spread, one.most)
        for one in made
    }
    wrong = {count: recommended(found, count, DRAWS) for count in (1, 2, 3, 5)}
    rate, broken, pairs = right(found, 5, DRAWS)
    said = ", ".join(f"{100 * share:.1f} % with {count}" for count, share in wrong.items())
    note = (
        f"{sum(map(len, found.values()))} controllers and points, {args.seeds} seeds each; delays as a share of their "
        f"mean. Of {DRAWS} drawn pairs that differ by their seeds alone the rule recommends one in {said} seeds. Of "
        f"{pairs} pairs of controllers that are half a point of score or share apart it recommends the right one with "
        f"five drawn seeds in {100 * rate:.1f} %; in {100 * broken:.1f} % the right one breaks one of the rule's first "
        "three bounds."
    )
    title = "Differences between runs that differ only by their seeds"
    ruled = [row for key, row in rows.items() if key not in COSTS]
    page.show(args, TABLE, title, page.table(HEAD, ruled), note)
    page.show(
        args, COSTS_TABLE, f"{title}, for costs", page.table(HEAD, [rows[key] for key in COSTS]), COSTS_NOTE
    )
    print(note, file=sys.stderr)
    return 0


if __name__ == "__main__":
    page.end(main)
