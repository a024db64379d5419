"""`steadycast reproduce`: runs the experiments, judges their statements, and writes the results."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast.errors import UserError
from steadycast.folder import Claim, Draft
from steadycast.progress import Progress, Silent

from papers.engine.experiment import (
    Change,
    Experiment,
    Medium,
    Sets,
    Statement,
    Variant,
    Verdict,
    Way,
    in_real_time,
    media_of,
)
from papers.engine.observe import Observed
from papers.engine.quantity import Seen
from papers.engine.read import ROOT
from papers.engine.registry import EXPERIMENTS, chosen
from papers.engine.runs import Job, run_all
from papers.engine.verdict import Judged, Measured, Row, as_read, judge, measured

if TYPE_CHECKING:
    from papers.engine.drawings import Formats

MARK = "reproduction.json"
CHOOSING, JUDGED = (1, 2, 3, 4, 5), (6, 7, 8, 9, 10)
"""The seeds with which a paper's joint setting was chosen, and the seeds with which that setting is judged."""


@dataclass(frozen=True)
class Part:
    """One experiment with one medium: its runs without changes and with each change."""

    experiment: Experiment
    medium: Medium
    seeds: tuple[int, ...]
    base: tuple[Seen, ...]
    """The observed runs in the setting by which statements are judged, one item per seed, in the order of `seeds`."""
    changed: dict[str, tuple[Seen, ...]]
    """The observed runs with each change that was run, by the name of the change."""
    rows: tuple[Row, ...]

    def runs(self, variant: str) -> list[Observed]:
        """Return the runs of a variant, one per seed."""
        return [seen[variant] for seen in self.base if variant in seen]

    @property
    def left_aside(self) -> list[str]:
        """Settings of the scenarios that an emulation does not support, each once."""
        return list(dict.fromkeys(text for run in self._all() for text in run.left_aside))

    @property
    def doubtful(self) -> list[str]:
        """Real-time runs that were not trustworthy even when they were repeated."""
        return [
            ", ".join(filter(None, (name, change, f"seed {seed}")))
            for change, runs in {"": self.base, **self.changed}.items()
            for seed, seen in zip(self.seeds, runs, strict=True)
            for name, run in seen.items()
            if not run.trustworthy
        ]

    def _all(self) -> list[Observed]:
        return [
            run for seeds in (self.base, *self.changed.values()) for seen in seeds for run in seen.values()
        ]

    @property
    def warning(self) -> str:
        """Caveats that apply to all verdicts; empty if there are none."""
        whose = asks_little(self.experiment, self.base)
        return f"{whose[:1].upper()}{whose[1:]}: nothing is judged by these runs." if whose else ""


def asks_little(experiment: Experiment, base: Sequence[Seen], variants: Sequence[str] = ()) -> str:
    """Name the flows whose rate was limited by the encoder for most of the time; empty if there are none.

    Only the given variants are examined, or all of them if none is given.
    """
    shares = {
        v.title: [
            seen[v.name].flow("video").limited.get("encoder") or 0.0
            for seen in base
            if v.name in seen
            and seen[v.name].has("video")
            and seen[v.name].flow("video").content["controller"] != "fixed"
        ]
        for v in experiment.variants
        if not variants or v.name in variants
    }
    capped = {title: sum(s) / len(s) for title, s in shares.items() if s and sum(s) / len(s) > 0.5}
    whose = ", ".join(f"{title} {share:.0%}".replace("%", " %") for title, share in capped.items())
    return f"the encoder, not the network, limits the rate for most of the time: {whose}" if whose else ""


@dataclass(frozen=True)
class Result:
    """Everything that was measured."""

    parts: tuple[Part, ...]
    ids: tuple[str, ...]
    seeds: tuple[int, ...]
    clips: tuple[Path, ...]
    runs: int
    emulated: bool = False

    @property
    def rows(self) -> list[Row]:
        """The rows of all statements, in the order of the papers."""
        return [r for part in self.parts for r in part.rows]

    @property
    def command(self) -> str:
        """The command that repeats these runs."""
        words = ["steadycast", "reproduce", *self.ids, "--seeds", f"{self.seeds[0]}-{self.seeds[-1]}"]
        for clip in self.clips:
            words += ["--clip", clip.name]
        if self.emulated:
            words.append("--emulated")
        return shlex.join(words)


def reproduce(
    ids: Sequence[str],
    *,
    seeds: Sequence[int] = (),
    clips: Sequence[Path] = (),
    emulated: bool = False,
    at_once: int = 4,
    progress: Progress | None = None,
) -> Result:
    """Run experiments and judge their statements.

    Args:
        ids: "K-A", "K" for a family, or "all", in upper or lower case.
        seeds: one run each. The default is 6 to 10 if the paper's joint setting was chosen on 1 to 5, otherwise 1 to 5.
        clips: videos for the parts that need pictures. Without them a synthetic clip is used, and the result says so.
        emulated: run in real time over the kernel's TCP, and simulate the same runs for comparison.
        at_once: maximum number of real-time runs at the same time.
        progress: receives the number of completed runs.

    Raises:
        UserError: there is no such experiment, none can be emulated, or a clip can't be read.
        MissingError: the right to emulate is missing.

    """
    clips = tuple(clips)
    for clip in clips:
        if not clip.is_file():
            raise UserError(str(clip), "no such file", "give the path of a video")
    plans = _emulated(ids, clips, tuple(seeds)) if emulated else _simulated(ids, clips, tuple(seeds))
    worlds = (False, True) if emulated else (False,)
    jobs = dict.fromkeys(job for plan in plans for world in worlds for job in plan.jobs(world))
    seen = run_all(list(jobs), progress or Silent(), at_once)
    if not emulated:
        for plan in plans:
            rows = plan.part(seen).rows
            plan.ask_more(rows)
            plan.ask_changes(rows)
        more = [job for plan in plans for job in plan.jobs() if job not in jobs]
        jobs |= dict.fromkeys(more)
        seen |= run_all(more, progress or Silent(), at_once)
    parts = tuple(plan.both(seen) if emulated else plan.part(seen) for plan in plans)
    used = tuple(sorted({s for plan in plans for s in plan.asked}))
    return Result(tuple(p for p in parts if p.rows), tuple(ids), used, clips, len(jobs), emulated)


def _simulated(ids: Sequence[str], clips: tuple[Path, ...], seeds: tuple[int, ...]) -> list[Plan]:
    return [
        Plan(e, m, seeds or (JUDGED if e.world is not None else CHOOSING))
        for e in chosen(ids)
        for m in media_of(_placed(e), clips)
    ]


def _emulated(ids: Sequence[str], clips: tuple[Path, ...], seeds: tuple[int, ...]) -> list[Plan]:
    plans = [
        Plan(e, medium, (seeds or CHOOSING)[:number])
        for experiment in chosen(ids)
        for e, medium, number in in_real_time(experiment, clips)
    ]
    if not plans:
        known = ", ".join(e.id for e in EXPERIMENTS if e.real_time is not None)
        raise UserError(" ".join(ids), "nothing of this can be emulated", f"there are: {known}")
    return plans


def _placed(experiment: Experiment) -> Experiment:
    """Return the experiment with the path of its scenario file in this checkout.

    Raises:
        UserError: the file is missing.

    """
    scenario = ROOT / experiment.scenario
    if not scenario.is_file():
        raise UserError(str(experiment.scenario), "no such file", "take it from the repository again")
    return replace(experiment, scenario=scenario)


_ENOUGH, _TIMES = 5, 4
"""If the user requests at least `_ENOUGH` seeds, more seeds are run for an undecided statement.

The total is then `_TIMES` times the requested number.
"""
WORLD = "joint setting"
"""Name of the setting in which all statements of a paper are judged together."""


@dataclass(frozen=True)
class Setting:
    """The changes with which some runs of an experiment are made, and the statements that need these runs."""

    changes: tuple[Change, ...] = ()
    statements: frozenset[str] = frozenset()
    """Ids of the statements that are evaluated in the setting; empty: all."""

    def has(self, variant: Variant) -> bool:
        """Whether a variant is run in this setting."""
        changes = [c for c in self.changes if c.way is Way.CHANGE]
        return all(variant.changed and (not c.variants or variant.name in c.variants) for c in changes)


class Plan:
    """The runs that an experiment needs with one medium."""

    def __init__(self, experiment: Experiment, medium: Medium, seeds: tuple[int, ...]) -> None:
        self.experiment = _placed(experiment)
        self.medium = medium
        self.asked = seeds
        self.seeds = seeds
        """The requested seeds, followed by additional ones if a statement is undecided."""
        self.extended: set[tuple[str, str]] = set()
        """Pairs of a setting and a variant that are also run with the additional seeds."""
        self.variants: list[Variant] = medium.variants(experiment)
        # `decisions` is the same for all experiments of a family, because they share cached runs.
        family = [e for e in EXPERIMENTS if e.id[0] == experiment.id[0]]
        self.decisions = any(e.decides for e in (experiment, *family))
        self.settings = self._settings()
        self.judged = WORLD if experiment.world is not None else ""

    def _settings(self) -> dict[str, Setting]:
        e = self.experiment
        made = {"": Setting()}
        if e.world is not None:
            made[WORLD] = Setting(e.in_world)
        for name, setting in list(made.items()):
            for each in e.placebos:
                made[_named(name, each)] = Setting((*setting.changes, each), frozenset(each.only))
        if e.world is None:
            for each in self._changes():
                made[each.name] = Setting((each,), frozenset(each.only))
        return made

    def _changes(self) -> list[Change]:
        return [c for c in self.experiment.changes if c.pixels == self.medium.pixels]

    def statements(self) -> list[Statement]:
        """Return the statements whose variants are all run with this medium."""
        return [s for s in self.experiment.statements if self.medium.tells(self.experiment, s)]

    def read(self, statement: Statement) -> Statement:
        """Return a statement with the reading that the joint setting uses."""
        return as_read(statement, self.experiment.world.takes if self.experiment.world else ())

    def job(self, variant: Variant, seed: int, setting: str, emulated: bool) -> Job:
        """Return the job that runs a variant with a seed in a setting."""
        e = self.experiment
        scenario = e.scenario_of(variant)
        changed = [c.sets_in(scenario) for c in self.settings[setting].changes]
        recorded: Sets = {} if e.jitters else {"record.packets": []}
        all_sets = (recorded, self.medium.sets, variant.sets, *changed)
        graded = self.medium.pixels and not emulated and e.grades
        return Job.of(
            scenario,
            all_sets,
            seed,
            pixels=self.medium.pixels,
            emulated=emulated,
            graded=graded,
            decisions=self.decisions,
        )

    def ask_more(self, rows: Sequence[Row]) -> None:
        """Add seeds for undecided statements, in the setting in which they are undecided and in its placebo."""
        if len(self.asked) < _ENOUGH:
            return
        for r in rows:
            for setting, judged in ((self.judged, r.judged), ("", r.printed)):
                if judged is None or judged.little or judged.measured is None:
                    continue
                if judged.verdict is Verdict.UNJUDGED and judged.measured.open:
                    needed = (self.read(r.statement) if setting else r.statement).measure.variants
                    if self._capped(needed):
                        continue
                    ways = (setting, *self._without(r.statement, setting))
                    self.extended |= {(way, v) for way in ways for v in needed}
        if self.extended:
            last = self.asked[-1]
            self.seeds = (*self.asked, *range(last + 1, last + 1 + (_TIMES - 1) * len(self.asked)))

    def _capped(self, needed: Sequence[str]) -> bool:
        """Whether one of the variants ``needed`` has a limited number of seeds.

        More seeds of the other variants would not help then, because a statement uses the seeds that all variants have.
        """
        most = [v.seeds for v in self.variants if v.name in needed and v.seeds is not None]
        return bool(most) and min(most) <= len(self.asked)

    def ask_changes(self, rows: Sequence[Row]) -> None:
        """Add runs with changes that contradict the paper or are newer than it, for statements that failed."""
        if not self.judged:
            return
        failed = frozenset(r.statement.id for r in rows if r.verdict is Verdict.FAILS)
        for each in self._changes():
            concerned = failed & frozenset(each.only) if each.only else failed
            if concerned:
                world = self.settings[WORLD]
                self.settings[each.name] = Setting((*world.changes, each), concerned)

    def _without(self, statement: Statement, setting: str) -> list[str]:
        placebos = [p for p in self.experiment.placebos if statement.id in p.only]
        return [_named(setting, p) for p in placebos]

    def _run_in(self, setting: str) -> list[Variant]:
        """Return the variants that are run in a setting: all variants, or those that the setting's statements need."""
        made = self.settings[setting]
        needed = {
            v
            for s in self.statements()
            if s.id in made.statements
            for each in (s, self.read(s))
            for v in each.measure.variants
        }
        return [v for v in self.variants if made.has(v) and (not made.statements or v.name in needed)]

    def seeds_of(self, setting: str, variant: Variant) -> tuple[int, ...]:
        """Return the seeds that a variant is run with in a setting."""
        taken = self.seeds if (setting, variant.name) in self.extended else self.asked
        return taken[: variant.seeds]

    def jobs(self, emulated: bool = False) -> list[Job]:
        """Return all runs."""
        if not self.statements():
            return []
        return [
            self.job(v, s, name, emulated)
            for name in self.settings
            for v in self._run_in(name)
            for s in self.seeds_of(name, v)
        ]

    def both(self, seen: dict[Job, Observed]) -> Part:
        """Return the emulated results, with each statement's simulated number beside them."""
        beside = {r.statement.id: r for r in self.part(seen).rows}
        part = self.part(seen, emulated=True)
        return replace(part, rows=tuple(replace(r, simulated=beside[r.statement.id]) for r in part.rows))

    def part(self, seen: dict[Job, Observed], emulated: bool = False) -> Part:
        """Judge the statements by the observed runs."""
        if not self.statements():
            return Part(self.experiment, self.medium, self.seeds, (), {}, ())
        by = self.runs_by(seen, emulated)
        rows = tuple(self._row(statement, by) for statement in self.statements())
        changed = {c.name: by[c.name] for c in self.experiment.changes if c.name in by}
        return Part(self.experiment, self.medium, self.seeds, by[self.judged], changed, rows)

    def runs_by(self, seen: dict[Job, Observed], emulated: bool = False) -> dict[str, tuple[Seen, ...]]:
        """Return the observed runs of each seed, by the name of their setting."""
        return {
            name: tuple(
                {
                    v.name: seen[self.job(v, s, name, emulated)]
                    for v in self._run_in(name)
                    if s in self.seeds_of(name, v)
                }
                for s in self.seeds
            )
            for name in self.settings
        }

    def _row(self, statement: Statement, by: dict[str, tuple[Seen, ...]]) -> Row:
        """Judge a statement, leaving out runs in which the flows don't load the network enough."""
        e, read = self.experiment, self.read(statement)
        tried = {
            c.name: m
            for c in e.changes
            if c.name in by and self.concerns(c, statement, c.name)
            if (m := measured(read, by[c.name])) is not None
        }
        poor = frozenset(n for n in tried if asks_little(e, by[n], read.measure.variants))
        able = {name: m for name, m in tried.items() if name not in poor}
        judged = self._judge(read, self.judged, by, able)
        printed = self._judge(statement, "", by, {}) if self.judged else None
        return Row(e, statement, self.medium, judged, printed, tried, poor=poor)

    def _judge(
        self,
        statement: Statement,
        setting: str,
        by: dict[str, tuple[Seen, ...]],
        changed: dict[str, Measured],
    ) -> Judged:
        little = asks_little(self.experiment, by[setting], statement.measure.variants)
        without = self._without(statement, setting)
        return judge(statement, by[setting], by[without[0]] if without else None, changed, little)

    def concerns(self, change: Change, statement: Statement, setting: str) -> bool:
        """Whether a statement may be evaluated with a change, and all its variants are run with it."""
        needed = set(self.read(statement).measure.variants)
        return change.concerns(statement) and needed <= {v.name for v in self._run_in(setting)}


def _named(setting: str, placebo: Change) -> str:
    return f"{setting}, {placebo.name}" if setting else placebo.name


def main(
    ids: Sequence[str],
    seeds: Sequence[int],
    out: Path | None,
    clips: Sequence[Path] = (),
    *,
    emulated: bool = False,
    at_once: int = 4,
    force: bool = False,
) -> None:
    """Run experiments, print their verdicts, and write the page, the table and the numbers. Without ids, list them.

    Raises:
        UserError: there is no such experiment, a clip can't be read, or the folder already exists.
        UnwrittenError: the operating system refused to write the folder.
        MissingError: the right to emulate is missing.

    """
    from steadycast.progress import Terminal

    from papers.engine import write

    if not ids:
        write.catalogue()
        return
    chosen(ids)
    default = Path("runs") / f"reproduce-{'-'.join(i.upper() if i != 'all' else i for i in ids)}"
    with ExitStack() as stack:
        place = out or stack.enter_context(Claim.first(default))
        draft = stack.enter_context(Draft(place, force=force, mark=MARK))
        draft.begin()
        try:
            with Terminal() as progress:
                result = reproduce(
                    ids, seeds=seeds, clips=clips, emulated=emulated, at_once=at_once, progress=progress
                )
            save(result, draft)
        except BaseException:
            draft.discard()  # the runs are in the cache and stay there
            raise
    write.show(result)
    print(f"\npage:  {place / 'reproduction.html'}\ntable: {place / 'reproduction.md'}")
    sys.stdout.flush()


def save(result: Result, draft: Draft, drawings: Mapping[tuple[int, str], Formats] | None = None) -> None:
    """Write the page, the table and the numbers into a folder. Writes either all of them or none.

    Args:
        result: what was measured.
        draft: the folder.
        drawings: the figures, as in `write.page`.

    Raises:
        UnwrittenError: the operating system refused to write.

    """
    from papers.engine import write

    draft.text("reproduction.md", write.markdown(result))
    draft.text("reproduction.html", write.page(result, drawings))
    draft.finish(write.numbers(result))
