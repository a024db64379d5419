"""Searches for a setting that a paper allows and in which more of its statements hold than in its joint setting.

A setting chooses one level for each value: the value as set up, or one of its `others`. The search has these steps:

1. Each value is changed separately around the joint setting.
2. All values are varied together by an experimental design. It is balanced (a Latin hypercube): each level of a value
   occurs in equally many rows, in a random order that is drawn for each value separately. A further row takes the
   level of each value whose rows have the most statements on average.
3. From the joint setting and from the best row, changes that gained a statement in step 1 are added one after the
   other; a change stays if more statements hold with it. The search ends here if no setting has more statements that
   hold than the joint setting.
4. The best `FINALISTS` settings are run with all seeds on which the joint setting is chosen. The best of them is the
   candidate.
5. The candidate is judged beside the joint setting on five seeds that no step before has used. If that leaves
   undecided which is better, twenty are used.

A statement holds in a setting if its mean keeps its bound, the mean without its event does not, and the flows load the
network. The number of statements that hold in the best setting is biased upwards, because this setting was selected for
its number. The fresh seeds remove the bias, because only one candidate per paper is run with them. Ten comparisons were
planned, at most two for each of the five papers. Their confidence intervals are widened accordingly (Bonferroni: 99.5 %
each, 95 % together).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from steadycast.progress import Progress, Silent

from papers.engine.experiment import Bound, Change, Experiment, Kind, Statement, media_of
from papers.engine.quantity import Seen
from papers.engine.registry import FAMILIES
from papers.engine.runs import run_all
from papers.engine.suite import CHOOSING, JUDGED, Plan, Setting, asks_little
from papers.engine.values import values
from papers.engine.verdict import as_read

Place = tuple[str, str]
"""The id of an experiment and the id of a statement."""

FINALISTS = 3
"""Number of settings that are run with all seeds of `CHOOSING`."""
_STEPS = 8
"""Maximum number of changes that are tried in step 3 from each of the two settings."""
_TOGETHER = 500
"""Up to this number of runs, those of all experiments are made by the same processes. More are made experiment by
experiment, because the observations of a whole family need gigabytes."""
_T995 = {4: 5.598, 19: 3.174}
"""Student's t for a two-sided 99.5 % interval, by degrees of freedom."""
MORE = tuple(range(JUDGED[0], JUDGED[0] + 20))
"""The seeds that are used if `JUDGED` leaves undecided whether the candidate is better."""


@dataclass(frozen=True)
class Tried:
    """A setting that is applied to all experiments of a paper."""

    kind: str
    """The origin of the setting.

    It is "joint setting", "as printed", "one at a time", "not the paper's", "design", "added" or "candidate".
    """
    name: str
    takes: frozenset[str]
    """Names of the alternative values and readings that are used."""
    change: str = ""
    """Name of a change that contradicts the paper or is newer than it; empty: none."""
    gives_up: frozenset[str] = frozenset()
    """Names of values and readings that this change removes from a setting to which it is added."""
    adds: frozenset[str] = frozenset()
    """Names of values and readings that this change adds to a setting."""

    @property
    def allowed(self) -> bool:
        """Whether the paper's words allow the setting."""
        return not self.change


@dataclass(frozen=True)
class Outcome:
    """A statement's numbers in a setting, one item per seed; `None` where a run does not have the number."""

    values: tuple[float | None, ...]
    bound: Bound
    placebo: tuple[float | None, ...] | None = None
    """The numbers without the event that the statement is about; `None` if the statement is not about an event."""
    little: bool = False
    """Whether the flows don't load the network enough to decide."""

    @property
    def holds(self) -> bool:
        """Whether the mean keeps the bound, and the mean without the event does not."""
        return not self.little and self._keeps(self.values) and not self._keeps(self.placebo or ())

    def holds_with(self, seed: int) -> bool:
        """Whether a seed's number keeps the bound, and its number without the event does not; `seed` is an index."""
        without = () if self.placebo is None else (self.placebo[seed],)
        return not self.little and self._keeps((self.values[seed],)) and not self._keeps(without)

    def _keeps(self, values: Iterable[float | None]) -> bool:
        there = [value for value in values if value is not None]
        return bool(there) and self.bound.holds(statistics.fmean(there))


@dataclass(frozen=True)
class Found:
    """The numbers of a setting, by statement."""

    tried: Tried
    seeds: tuple[int, ...]
    numbers: dict[Place, Outcome] = field(default_factory=dict)

    @property
    def holds(self) -> set[Place]:
        """The statements that hold in the setting."""
        return {place for place, outcome in self.numbers.items() if outcome.holds}

    @property
    def counts(self) -> list[int]:
        """The number of statements that hold with each seed."""
        return [sum(o.holds_with(n) for o in self.numbers.values()) for n in range(len(self.seeds))]


@dataclass(frozen=True)
class Search:
    """What a search has found."""

    tried: tuple[Found, ...]
    """The numbers of all settings with the seeds of the first three steps; the joint setting is the first."""
    finals: tuple[Found, ...]
    """The joint setting and the finalists, with all seeds of `CHOOSING`."""
    judged: tuple[Found, Found] | None
    """The joint setting and the candidate, with the seeds of `JUDGED`.

    `None` if in no setting more statements held than in the joint setting, so that there is no candidate.
    """
    more: tuple[Found, Found] | None = None
    """The joint setting and the candidate with the seeds of `MORE`; `None` if these are not needed.

    Experiments in which the two settings are the same are left out.
    """

    @property
    def gain(self) -> tuple[float, float] | None:
        """The mean difference in the number of statements that hold, and half the width of its 99.5 % interval.

        The difference is the candidate's number minus the joint setting's, per fresh seed. `None` without a candidate.
        """
        if self.judged is None:
            return None
        world, candidate = self.more or self.judged
        return paired(candidate.counts, world.counts)

    @property
    def better(self) -> bool:
        """Whether the candidate is better than the joint setting on fresh seeds."""
        mean, half = self.gain or (0.0, 0.0)
        return mean - half > 0


def paired(a: Sequence[int], b: Sequence[int]) -> tuple[float, float]:
    """Return the mean of a − b, paired by seed, and half the width of its 99.5 % interval, for 5 or 20 seeds."""
    apart = [x - y for x, y in zip(a, b, strict=True)]
    half = _T995[len(apart) - 1] * statistics.stdev(apart) / math.sqrt(len(apart))
    return statistics.fmean(apart), half


def settings(family: str, rows: int, seed: int = 1, without: Iterable[str] = ()) -> list[Tried]:
    """Return the settings of the first two steps.

    They are the joint setting, the paper as printed, each value changed separately, each change that is not the
    paper's, and the rows of the design. Values that occur only in the experiments `without` stay as in the joint
    setting.
    """
    left = frozenset(without)
    experiments = [e for e in FAMILIES[family] if e.id not in left]
    taken, known = _joint(family), _known(family, left)
    found = [Tried("joint setting", "joint setting", taken), Tried("as printed", "as printed", frozenset())]
    for value in values(family):
        levels = frozenset(o.name for o in value.others) & known
        for other in value.others:
            if other.name in levels - taken:
                found.append(_one(taken, other.name, levels, frozenset({other.name})))
        # The joint setting has another value than the scenario, so that the scenario's value is tried as well.
        if taken & levels:
            found.append(_one(taken, f"{value.name}: as set up", levels, frozenset()))
    read = frozenset(_readings(experiments))
    for name in _readings(experiments):
        if name in taken:
            found.append(_one(taken, f"not {name}", frozenset({name}), frozenset()))
        else:
            found.append(_one(taken, name, read, frozenset({name})))
    for name in dict.fromkeys(c.name for e in experiments for c in e.changes):
        found.append(Tried("not the paper's", name, taken, name))
    stays = taken - known
    designed = design(factors(family, left), rows, seed)
    return [*found, *(replace(each, takes=each.takes | stays) for each in designed)]


def _joint(family: str) -> frozenset[str]:
    """Return the names of the values and readings that a paper's joint setting uses."""
    world = FAMILIES[family][0].world
    return frozenset(world.takes) if world is not None else frozenset()


def _known(family: str, without: Iterable[str]) -> frozenset[str]:
    """Return the names that can change the numbers of a family's experiments, except those of `without`."""
    left = frozenset(without)
    return frozenset(name for e in FAMILIES[family] if e.id not in left for name in _names_in(e))


def _names_in(e: Experiment) -> set[str]:
    """Return the names of the other values and readings that can change an experiment's numbers."""
    return {c.name for c in e.alternatives} | {o.name for s in e.statements for o in s.others}


def _one(taken: frozenset[str], name: str, gives_up: frozenset[str], adds: frozenset[str]) -> Tried:
    return Tried("one at a time", name, taken - gives_up | adds, gives_up=gives_up, adds=adds)


def _readings(experiments: Iterable[Experiment]) -> list[str]:
    """Return the names of the other numbers that statements' words allow."""
    return list(dict.fromkeys(o.name for e in experiments for s in e.statements for o in s.others))


def factors(family: str, without: Iterable[str] = ()) -> list[tuple[str, list[str]]]:
    """Return the factors of a design, each with the names of its alternative levels.

    A factor is a value of the scenarios, or a statement's number for which the words allow another one. Factors that
    occur only in the experiments `without` are left out.
    """
    left = frozenset(without)
    experiments = [e for e in FAMILIES[family] if e.id not in left]
    known = _known(family, left)
    listed = [(v.name, [o.name for o in v.others if o.name in known]) for v in values(family)]
    return [
        *((name, others) for name, others in listed if others),
        *((n, [n]) for n in _readings(experiments)),
    ]


def design(listed: Sequence[tuple[str, Sequence[str]]], rows: int, seed: int) -> list[Tried]:
    """Return a balanced design over the levels of factors. The level "" is the value as set up."""
    columns: list[list[str]] = []
    for name, others in listed:
        levels = ["", *others]
        column = [levels[n % len(levels)] for n in range(rows)]
        # The seed includes the factor's name, so that a further factor does not change the order of this one.
        random.Random(f"{seed} {name}").shuffle(column)
        columns.append(column)
    return [Tried("design", f"design {n + 1}", frozenset(c[n] for c in columns if c[n])) for n in range(rows)]


def best_levels(found: Sequence[Found], listed: Sequence[tuple[str, Sequence[str]]]) -> Tried:
    """Return the setting with the best level of each factor: in its rows the most statements hold on average."""
    rows = [f for f in found if f.tried.kind == "design"]
    takes = set()
    for _, others in listed:
        means = {
            level: statistics.fmean(counts)
            for level in ("", *others)
            if (counts := [len(f.holds) for f in rows if f.tried.takes & set(others) == {level} - {""}])
        }
        takes.add(max(means, key=lambda level: means[level], default=""))
    return Tried("design", "design, best level of each value", frozenset(takes - {""}))


def search(
    family: str,
    rows: int,
    seeds: Sequence[int],
    progress: Progress | None = None,
    *,
    pictures: bool = True,
    without: Iterable[str] = (),
    whole: bool = False,
    clips: Sequence[Path] = (),
) -> Search:
    """Search a family's settings, and judge the best one on fresh seeds.

    Args:
        family: for example "B".
        rows: number of rows of the design.
        seeds: the seeds of the first three steps, out of `CHOOSING`.
        progress: receives the number of completed runs.
        pictures: whether the statements that need decoded pictures are included.
        without: ids of experiments that are left out.
        whole: whether the finalists and the candidate are judged by all experiments of the family, so that a gain in a
            few of them can't hide a loss in the others.
        clips: videos for the parts that need pictures, as in `reproduce`.

    """
    left = frozenset(without)

    def runs(tried: Sequence[Tried], of: Sequence[int], left: frozenset[str] = left) -> list[Found]:
        return run(family, tried, of, progress, pictures=pictures, without=left, clips=clips)

    found = runs(settings(family, rows, without=left), seeds)
    if rows:
        levels = best_levels(found, factors(family, left))
        stays = _joint(family) - _known(family, left)
        found += runs([replace(levels, takes=levels.takes | stays)], seeds)
    moves = [f.tried for f in _gaining(found)][:_STEPS]
    designed = [f for f in found if f.tried.kind == "design"]
    # The steps begin once at the joint setting, and once at the best row of the design.
    for start in (found[0], *sorted(designed, key=lambda f: -len(f.holds))[:1]):
        best = start
        for move in moves:
            takes = best.tried.takes - move.gives_up | move.adds
            if takes in {f.tried.takes for f in found if f.tried.allowed}:
                continue
            tried = Tried("added", f"{best.tried.name} + {move.name}", takes)
            found += runs([tried], seeds)
            best = max(best, found[-1], key=lambda f: len(f.holds))
    best_first = sorted((f for f in found[1:] if f.tried.allowed), key=lambda f: -len(f.holds))
    if len(best_first[0].holds) <= len(found[0].holds):
        return Search(tuple(found), (), None)
    if whole:
        left = frozenset()
    finals = runs([found[0].tried, *(f.tried for f in best_first[:FINALISTS])], CHOOSING, left)
    chosen = max(finals[1:], key=lambda f: len(f.holds)).tried
    judged = runs([found[0].tried, replace(chosen, kind="candidate")], JUDGED, left)
    made = Search(tuple(found), tuple(finals), (judged[0], judged[1]))
    mean, half = made.gain or (0.0, 0.0)
    # If the gain is positive but not larger than its uncertainty, both settings are run on more seeds.
    if not 0 < mean <= half:
        return made
    left |= _same_in(family, judged[0].tried, judged[1].tried)
    world, candidate = runs([each.tried for each in judged], MORE, left)
    return replace(made, more=(world, candidate))


def _same_in(family: str, a: Tried, b: Tried) -> frozenset[str]:
    """Return the ids of a family's experiments to which two settings apply the same changes."""
    apart = a.takes ^ b.takes
    return frozenset(e.id for e in FAMILIES[family] if not _names_in(e) & apart)


def _gaining(found: Sequence[Found]) -> list[Found]:
    """Return the changes of one value with which statements are gained, in the order of the net gain."""
    base = found[0]
    apart = [f for f in found if f.tried.kind == "one at a time" and len(f.holds) >= len(base.holds)]
    return sorted((f for f in apart if f.holds - base.holds), key=lambda f: -len(f.holds))


def run(
    family: str,
    tried: Sequence[Tried],
    seeds: Sequence[int] = CHOOSING,
    progress: Progress | None = None,
    *,
    pictures: bool = True,
    without: Iterable[str] = (),
    clips: Sequence[Path] = (),
) -> list[Found]:
    """Run the settings of a family, and return the numbers of its statements. Runs that are cached are not repeated."""
    without = frozenset(without)
    found = [Found(t, tuple(seeds)) for t in tried]
    parts = [
        each
        for e in FAMILIES[family]
        if e.id not in without
        for medium in media_of(e, tuple(clips))
        if pictures or not medium.pixels
        if (each := _Settings(e, Plan(e, medium, tuple(seeds)), tried)).statements
    ]
    jobs = [job for each in parts for job in each.plan.jobs()]
    if len(jobs) <= _TOGETHER:
        run_all(jobs, progress or Silent())
    for each in parts:
        for at, id, outcome in each.outcomes(progress or Silent()):
            found[at].numbers[each.experiment.id, id] = outcome
    return found


class _Settings:
    """One experiment with one medium in all settings."""

    def __init__(self, experiment: Experiment, plan: Plan, tried: Sequence[Tried]) -> None:
        self.experiment, self.plan, self.tried = experiment, plan, tried
        self.statements = [
            s for s in plan.statements() if s.kind in (Kind.MEASURED, Kind.CLIP) and s.bound != Bound()
        ]
        # Variants that serve only figures, or statements without a bound, are not run.
        measures = [m for s in self.statements for m in (s.measure, *(o.measure for o in s.others))]
        needed = {name for m in measures for name in m.variants}
        plan.variants = [v for v in plan.variants if v.name in needed]
        # Settings that are the same for this experiment have the same name, and are evaluated once.
        self._names: list[str] = []
        plan.settings = {}
        for each in tried:
            changes = tuple(self._changes(each))
            name = "; ".join(c.name for c in changes)
            self._names.append(name)
            plan.settings[name] = Setting(changes)
            for placebo in experiment.placebos:
                made = Setting((*changes, placebo), frozenset(placebo.only))
                plan.settings[f"{name}, {placebo.name}"] = made

    def _changes(self, tried: Tried) -> Iterator[Change]:
        yield from (c for c in self.experiment.alternatives if c.name in tried.takes)
        yield from (c for c in self.experiment.changes if c.name == tried.change)

    def outcomes(self, progress: Progress) -> Iterator[tuple[int, str, Outcome]]:
        """Yield the number of the setting, the id of a statement, and its outcome."""
        by = self.plan.runs_by(run_all(self.plan.jobs(), progress))
        known: dict[tuple[str, str, frozenset[str]], Outcome] = {}
        for s in self.statements:
            for at, (tried, name) in enumerate(zip(self.tried, self._names, strict=True)):
                change = next((c for c in self.experiment.changes if c.name == tried.change), None)
                if tried.change and (change is None or not self.plan.concerns(change, s, name)):
                    continue
                key = (name, s.id, tried.takes & {o.name for o in s.others})
                if key not in known:
                    known[key] = self._outcome(as_read(s, tuple(tried.takes)), name, by)
                yield at, s.id, known[key]

    def _outcome(self, s: Statement, name: str, by: dict[str, tuple[Seen, ...]]) -> Outcome:
        placebo = next((p for p in self.experiment.placebos if s.id in p.only), None)
        without = None if placebo is None else _numbers(s, by[f"{name}, {placebo.name}"])
        little = bool(asks_little(self.experiment, by[name], s.measure.variants))
        return Outcome(_numbers(s, by[name]), s.bound, without, little)


def _numbers(s: Statement, seeds: Sequence[Seen]) -> tuple[float | None, ...]:
    needed = set(s.measure.variants)
    return tuple(s.measure(seen) if needed <= seen.keys() else None for seen in seeds)


def turned(base: Found, found: Found) -> tuple[list[Place], list[Place]]:
    """Return the statements that hold in `found` but not in `base`, and the statements for which it is the reverse."""
    there = set(found.numbers)
    return sorted(found.holds - base.holds), sorted((base.holds & there) - found.holds)


HEADS = ("kind", "setting", "seeds", "statements that hold", "of", "gained", "lost", "difference per seed")
"""The headings of the table of a search.

"gained" are the statements that hold only in the setting, "lost" those that hold only in the joint setting. The
difference is the candidate's number minus the joint setting's on fresh seeds, with its 99.5 % interval.
"""


def table(found: Search) -> Iterator[list[str]]:
    """Yield one row per setting and group of seeds, compared with the joint setting on the same seeds."""
    for group in (found.tried, found.finals, found.judged or (), found.more or ()):
        for each in group:
            on, off = turned(group[0], each)
            setting = each.tried.name
            if each.tried.kind in ("design", "added", "candidate"):
                setting = f"{setting}: {'; '.join(sorted(each.tried.takes)) or 'as set up'}"
            seeds = f"{each.seeds[0]}–{each.seeds[-1]}" if len(each.seeds) > 1 else str(each.seeds[0])
            counts = (seeds, str(len(each.holds)), str(len(each.numbers)))
            fresh = each.tried.kind == "candidate" and group is (found.more or found.judged)
            difference = "{:.2f} ± {:.2f}".format(*found.gain) if fresh and found.gain else ""
            yield [each.tried.kind, setting, *counts, _names(on), _names(off), difference]


def overview(tables: Iterable[tuple[str, Sequence[Mapping[str, str]]]]) -> str:
    """Return a table of several sweeps.

    Args:
        tables: for each sweep the paper's link, and the rows of its table by their headings.

    """
    lines = [
        "| paper | statements | hold in the joint setting | hold in the best setting tried | "
        "hold in at least one setting tried | candidate minus joint setting, per fresh seed |",
        "|---|---|---|---|---|---|",
    ]
    sums = [0, 0, 0, 0]
    for link, rows in tables:
        base = rows[0]
        # The finalists, on more seeds, follow the settings of the first steps.
        end = next((n for n, row in enumerate(rows) if n and row["kind"] == "joint setting"), len(rows))
        allowed = [row for row in rows[1:end] if row["kind"] != "not the paper's"]
        gained = {name for row in allowed for name in row["gained"].split(", ") if name}
        holds = int(base["statements that hold"])
        best = max([holds, *(int(row["statements that hold"]) for row in allowed)])
        fresh = next((row for row in rows if row.get("difference per seed")), None)
        difference = "no candidate"
        if fresh is not None:
            difference = f"{_signed(float(fresh['difference per seed']))} ± {fresh['difference per seed ±']}"
        counts = (int(base["of"]), holds, best, holds + len(gained))
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        lines.append(f"| {link} | {' | '.join(map(str, counts))} | {difference} |")
    lines.append(f"| all | {' | '.join(map(str, sums))} | |")
    return "\n".join(lines)


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{experiment} {id}" for experiment, id in places)


def _texts(places: Iterable[Place]) -> str:
    """Return what the statements measure, grouped by experiment."""
    texts = {(e.id, s.id): s.text for family in FAMILIES.values() for e in family for s in e.statements}
    groups: dict[str, list[str]] = {}
    for experiment, id in places:
        groups.setdefault(experiment, []).append(texts.get((experiment, id), id))
    quoted = {experiment: ", ".join(f"“{text}”" for text in each) for experiment, each in groups.items()}
    return "; ".join(f"{experiment}: {listed}" for experiment, listed in quoted.items())


def summary(found: Search, link: str, adopted: bool = False) -> str:
    """Report whether a better setting was found, and the statements that hold in no setting.

    Args:
        found: the search.
        link: the address of the table of all settings.
        adopted: whether the candidate has become the joint setting since.

    """
    base = found.tried[0]
    allowed = [f for f in found.tried[1:] if f.tried.allowed]
    many = f"seeds {' and '.join(str(seed) for seed in base.seeds)}"
    seeds = many if len(base.seeds) > 1 else f"seed {base.seeds[0]}"
    ever = set[Place]().union(*(f.holds for f in (base, *allowed)))
    answer = (
        "A better setting was found, and is the joint setting now."
        if adopted
        else "A better setting than the joint setting was found."
        if found.better
        else "No tried setting is shown to be better than the joint setting."
    )
    paragraphs = [
        f"**{answer}** The search tried {len(allowed)} settings on {seeds}. [The table]({link}) names the statements "
        "that each setting gains and loses.",
        *_never(len(base.numbers), sorted(set(base.numbers) - ever)),
        *_candidate(found),
    ]
    return "\n\n".join(paragraphs)


_AS_SET_UP = ": as set up"
AS_PRINTED = "as printed"
"""What a page calls the values as set up."""


def _of_value(name: str) -> tuple[str, str]:
    """Return the name of the value that a change concerns, and the name of the change."""
    if name.endswith(_AS_SET_UP):
        return name.removesuffix(_AS_SET_UP), AS_PRINTED
    of_reading = name.removeprefix("not ")
    for family, experiments in FAMILIES.items():
        for of in values(family):
            if any(other.name == name for other in of.others):
                return of.name, name
        for e in experiments:
            if any(other.name == of_reading for s in e.statements for other in s.others):
                return f"the reading of a statement in {e.id}", name
    return "", name


def _never(of: int, never: Sequence[Place]) -> list[str]:
    """List the statements that hold in no setting. `of` is the number of all statements."""
    if not never:
        return []
    said = "One" if len(never) == 1 else str(len(never))
    hold = "holds" if len(never) == 1 else "hold"
    said = f"{said} of the {of} statements {hold} in none of the settings:"
    return [said, "\n".join(f"- {_texts([place])}" for place in never)]


def _candidate(found: Search) -> list[str]:
    """Report how the candidate differs from the joint setting, and how they compare on fresh seeds."""
    if found.judged is None or found.gain is None:
        return [
            "In none of them do more statements hold than in the joint setting, so there is no candidate."
        ]
    base, candidate = found.tried[0], found.judged[1]
    fresh = MORE if found.more is not None else candidate.seeds
    mean, half = found.gain
    rows = _differences(candidate.tried.takes, base.tried.takes)
    return [
        "The best of these settings is the *candidate*. It differs from the joint setting of that time in these "
        "values:",
        "\n".join(("| quantity | in the candidate | in the joint setting |", "|---|---|---|", *rows)),
        f"Both were run again with the seeds {fresh[0]} to {fresh[-1]}, which the search had not used. The candidate's "
        f"mean number of statements that hold, minus the joint setting's, is {_signed(mean)} ± {half:.2f} "
        "([99.5 % interval](../reproduction.md#the-sweep)).",
    ]


def _differences(candidate: Iterable[str], joint: Iterable[str]) -> list[str]:
    """Return the rows of a table of the values in which the candidate and the joint setting differ."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for at, names in enumerate((set(candidate) - set(joint), set(joint) - set(candidate))):
        for name in sorted(names):
            quantity, value = _of_value(name)
            found.setdefault(quantity, ([], []))[at].append(value)
    return [
        f"| {q} | {'; '.join(a) or AS_PRINTED} | {'; '.join(b) or AS_PRINTED} |"
        for q, (a, b) in found.items()
    ]
