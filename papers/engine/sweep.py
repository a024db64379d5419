"""Shows which values a paper's statements depend on.

The values are varied one at a time around the paper's joint setting, and all together by an experimental design. A
setting chooses one level for each value: the value as set up, or one of its `others`. The design is balanced (a Latin
hypercube): each level of a value occurs in equally many rows, in a random order that is drawn for each value
separately. The runs use the seeds on which the joint setting is chosen, never those on which it is judged.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from steadycast.progress import Progress, Silent

from papers.engine.experiment import Bound, Change, Experiment, Kind, media_of
from papers.engine.observe import Observed
from papers.engine.registry import FAMILIES
from papers.engine.runs import Job, run_all
from papers.engine.suite import CHOOSING, Plan, Setting
from papers.engine.values import Value, values
from papers.engine.verdict import Measured, as_read, measured

Place = tuple[str, str]
"""The id of an experiment and the id of a statement."""


@dataclass(frozen=True)
class Tried:
    """A setting that is applied to all experiments of a paper."""

    kind: str
    """"one world", "as printed", "one at a time", "not the paper's" or "design"."""
    name: str
    takes: frozenset[str]
    """Names of the alternative values and readings that are used."""
    change: str = ""
    """Name of a change that contradicts the paper or is newer than it; empty: none."""


@dataclass(frozen=True)
class Found:
    """A setting's numbers."""

    tried: Tried
    numbers: dict[Place, Measured | None]

    @property
    def holds(self) -> set[Place]:
        """The statements whose mean keeps its bound."""
        return {place for place, m in self.numbers.items() if m is not None and m.holds}


def settings(family: str, rows: int, seed: int = 1) -> list[Tried]:
    """Return the settings of a sweep.

    They are the joint setting, the paper as printed, each value changed separately, each change that is not the
    paper's, and the rows of the design.
    """
    experiments = FAMILIES[family]
    world = experiments[0].world
    taken = frozenset(world.takes) if world is not None else frozenset()
    found = [Tried("one world", "one world", taken), Tried("as printed", "as printed", frozenset())]
    listed = [v for v in values(family) if v.others]
    for value in listed:
        levels = frozenset(o.name for o in value.others)
        for other in value.others:
            if other.name not in taken:
                found.append(Tried("one at a time", other.name, taken - levels | {other.name}))
        if taken & levels:
            found.append(Tried("one at a time", f"{value.name}: as set up", taken - levels))
    read = dict.fromkeys(o.name for e in experiments for s in e.statements for o in s.others)
    for name in read:
        turned = taken - {name} if name in taken else taken - frozenset(read) | {name}
        label = f"not {name}" if name in taken else name
        found.append(Tried("one at a time", label, turned))
    for name in dict.fromkeys(c.name for e in experiments for c in e.changes):
        found.append(Tried("not the paper's", name, taken, name))
    return [*found, *design(listed, rows, seed)]


def design(listed: Sequence[Value], rows: int, seed: int) -> list[Tried]:
    """Return a balanced design over the levels of the values."""
    columns: list[list[str]] = []
    for value in listed:
        levels = ["", *(o.name for o in value.others)]
        column = [levels[n % len(levels)] for n in range(rows)]
        random.Random(f"{seed} {value.name}").shuffle(column)
        columns.append(column)
    return [
        Tried("design", f"design {n + 1}", frozenset(c[n] for c in columns if c[n]) - {""})
        for n in range(rows)
    ]


def run(
    family: str,
    tried: Sequence[Tried],
    seeds: Sequence[int] = CHOOSING,
    progress: Progress | None = None,
    *,
    without: Iterable[str] = (),
    clips: Sequence[Path] = (),
) -> list[Found]:
    """Run the settings of a family, and return the numbers of its statements.

    Args:
        family: for example "B".
        tried: the settings.
        seeds: one run each.
        progress: receives the number of completed runs.
        without: ids of experiments to leave out.
        clips: videos for the parts that need pictures, as in `reproduce`.

    """
    plans = [
        _Settings(e, medium.name, Plan(e, medium, tuple(seeds)), tried)
        for e in FAMILIES[family]
        if e.id not in set(without)
        for medium in media_of(e, tuple(clips))
    ]
    jobs = dict.fromkeys(job for plan in plans for job in plan.plan.jobs())
    seen = run_all(list(jobs), progress or Silent())
    numbers: list[dict[Place, Measured | None]] = [{} for _ in tried]
    for plan in plans:
        for at, place, number in plan.numbers(seen):
            numbers[at][place] = number
    return [Found(t, n) for t, n in zip(tried, numbers, strict=True)]


class _Settings:
    """One experiment with one medium in all settings."""

    def __init__(self, experiment: Experiment, medium: str, plan: Plan, tried: Sequence[Tried]) -> None:
        self.experiment, self.medium, self.plan, self.tried = experiment, medium, plan, tried
        plan.settings = {str(n): Setting(tuple(self._changes(t))) for n, t in enumerate(tried)}

    def _changes(self, tried: Tried) -> Iterator[Change]:
        yield from (c for c in self.experiment.alternatives if c.name in tried.takes)
        yield from (c for c in self.experiment.changes if c.name == tried.change)

    def numbers(self, seen: dict[Job, Observed]) -> Iterator[tuple[int, Place, Measured | None]]:
        by = self.plan.runs_by(seen)
        for s in self.plan.statements():
            if s.kind not in (Kind.MEASURED, Kind.CLIP) or s.bound == Bound():
                continue
            for at, tried in enumerate(self.tried):
                change = next((c for c in self.experiment.changes if c.name == tried.change), None)
                if tried.change and (change is None or not self.plan.concerns(change, s, str(at))):
                    continue
                yield at, (self.experiment.id, s.id), measured(as_read(s, tuple(tried.takes)), by[str(at)])


def turned(base: Found, found: Found) -> tuple[list[Place], list[Place]]:
    """Return the statements that hold only in `found`, and those that hold only in `base`."""
    there = set(found.numbers)
    return sorted(found.holds - base.holds), sorted((base.holds & there) - found.holds)


HEADS = ("kind", "setting", "holds", "of", "turned on", "turned off")


def table(found: Sequence[Found]) -> Iterator[list[str]]:
    """Yield one row per setting, compared with the first setting, which is the joint setting."""
    base = found[0]
    for each in found:
        on, off = turned(base, each)
        told = each.tried.name
        if each.tried.kind == "design":
            told = f"{told}: {'; '.join(sorted(each.tried.takes)) or 'as set up'}"
        counts = (str(len(each.holds)), str(len(each.numbers)))
        yield [each.tried.kind, told, *counts, _names(on), _names(off)]


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{experiment} {id}" for experiment, id in places)


def summary(found: Sequence[Found], link: str) -> str:
    """Report which statements change their verdict with each value, and how many hold in the design's best row."""
    base = found[0]
    apart = [f for f in found if f.tried.kind == "one at a time"]
    lines = ["| value, in place of the world's | turns on | turns off |", "|---|---|---|"]
    for each in apart:
        on, off = turned(base, each)
        if on or off:
            lines.append(f"| {each.tried.name} | {_names(on) or ' '} | {_names(off) or ' '} |")
    still = [f.tried.name for f in apart if turned(base, f) == ([], [])]
    rows = [len(f.holds) for f in found if f.tried.kind == "design"]
    more = max((len(f.holds) for f in apart if len(f.numbers) == len(base.numbers)), default=0)
    said = f"On the choice's seeds {len(base.holds)} of {len(base.numbers)} means keep their bounds in the one world"
    said += f", {max(rows)} in the best of {len(rows)} designed settings" if rows else ""
    said += f", and {more} at most where one value is another."
    nothing = f" {len(still)} values turn nothing: {'; '.join(still)}." if still else ""
    return "\n".join([f"{said}{nothing} [All settings]({link}).", "", *lines])
