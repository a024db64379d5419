"""`steadycast reproduce`: runs the experiments, judges their statements, writes what came of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

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

MARK = "reproduction.json"
CHOOSING, JUDGED = (1, 2, 3, 4, 5), (6, 7, 8, 9, 10)
"""Seeds on which a paper's one world was chosen, and those on which it is judged."""


@dataclass(frozen=True)
class Part:
    """One experiment with one medium: its runs, as they are and with each change."""

    experiment: Experiment
    medium: Medium
    seeds: tuple[int, ...]
    base: tuple[Seen, ...]
    """What each seed's runs showed in the setting that is judged, in the order of `seeds`."""
    changed: dict[str, tuple[Seen, ...]]
    """The same with each change that was run."""
    rows: tuple[Row, ...]

    def runs(self, variant: str) -> list[Observed]:
        """Return a variant's runs, a seed each."""
        return [seen[variant] for seen in self.base if variant in seen]

    @property
    def left_aside(self) -> list[str]:
        """Settings of the scenarios that the emulated world does not support, each once."""
        return list(dict.fromkeys(text for run in self._all() for text in run.left_aside))

    @property
    def doubtful(self) -> list[str]:
        """Runs in real time that came too late, although they were given a second chance."""
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
        """Caveats of all verdicts; empty if there are none."""
        whose = asks_little(self.experiment, self.base)
        return f"{whose[:1].upper()}{whose[1:]}: nothing is judged by these runs." if whose else ""


def asks_little(experiment: Experiment, base: Sequence[Seen], variants: Sequence[str] = ()) -> str:
    """Name the flows whose rate is limited by the encoder for most of the time; empty if there are none.

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
        """All statements, in the papers' order."""
        return [r for part in self.parts for r in part.rows]

    @property
    def command(self) -> str:
        """The command that makes it again."""
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
        ids: "K-A", "K" for a family, "all"; either case.
        seeds: one run each; without any 6 to 10 where a paper's one world was chosen on 1 to 5, and else 1 to 5.
        clips: videos for the parts that need pictures; without them a synthetic clip, named so.
        emulated: in real time, across the kernel's TCP, and simulated in the same form.
        at_once: so many runs in real time.
        progress: told how far it is.

    Raises:
        UserError: no such experiment, none that can be emulated, a clip that can't be read.
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
    """Return the experiment with its scenario file found in this checkout.

    Raises:
        UserError: the file is missing.

    """
    scenario = ROOT / experiment.scenario
    if not scenario.is_file():
        raise UserError(str(experiment.scenario), "no such file", "take it from the repository again")
    return replace(experiment, scenario=scenario)


_ENOUGH, _TIMES = 5, 4
"""With how many seeds more are taken where they leave a statement undecided, and how many times as many."""
WORLD = "one world"
"""The setting in which all of a paper's statements are judged together."""


@dataclass(frozen=True)
class Setting:
    """What is set besides in some of an experiment's runs, and for which statements."""

    changes: tuple[Change, ...] = ()
    statements: frozenset[str] = frozenset()
    """Ids of those that it is for; empty: all."""

    def has(self, variant: Variant) -> bool:
        """Whether a variant is run with it."""
        changes = [c for c in self.changes if c.way is Way.CHANGE]
        return all(variant.changed and (not c.variants or variant.name in c.variants) for c in changes)


class Plan:
    """The runs that an experiment needs with one medium."""

    def __init__(self, experiment: Experiment, medium: Medium, seeds: tuple[int, ...]) -> None:
        self.experiment = _placed(experiment)
        self.medium = medium
        self.asked = seeds
        self.seeds = seeds
        """Those asked for, and behind them more where they leave a statement undecided."""
        self.extended: set[tuple[str, str]] = set()
        """Pairs of a setting and a variant that are run with all of them."""
        self.variants: list[Variant] = medium.variants(experiment)
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
        """Return those that this medium tells; the others need variants that are not run with it."""
        return [s for s in self.experiment.statements if self.medium.tells(self.experiment, s)]

    def read(self, statement: Statement) -> Statement:
        """Return a statement with the number that the one world takes it for."""
        return as_read(statement, self.experiment.world.takes if self.experiment.world else ())

    def job(self, variant: Variant, seed: int, setting: str, emulated: bool) -> Job:
        """Return a run."""
        e = self.experiment
        scenario = e.scenario_of(variant)
        changed = [c.sets_in(scenario) for c in self.settings[setting].changes]
        recorded: Sets = {} if e.jitters else {"record.packets": []}
        all_sets = (recorded, self.medium.sets, variant.sets, *changed)
        graded = self.medium.pixels and not emulated and e.grades
        return Job.of(scenario, all_sets, seed, pixels=self.medium.pixels, emulated=emulated, graded=graded)

    def ask_more(self, rows: Sequence[Row]) -> None:
        """Take more seeds of what these leave undecided, in the setting that does, and of its placebo."""
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
        """Whether one of these variants has no more seeds than were asked for: more of the others then help nothing."""
        most = [v.seeds for v in self.variants if v.name in needed and v.seeds is not None]
        return bool(most) and min(most) <= len(self.asked)

    def ask_changes(self, rows: Sequence[Row]) -> None:
        """Run what does not come out in the one world with what is none of the paper's words."""
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
        """Return the variants that a setting is run with: all, or those that its statements take."""
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
        """Return the seeds that a variant is run with."""
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
        """Return what was emulated, with each statement's number in simulation beside it."""
        beside = {r.statement.id: r for r in self.part(seen).rows}
        part = self.part(seen, emulated=True)
        return replace(part, rows=tuple(replace(r, simulated=beside[r.statement.id]) for r in part.rows))

    def part(self, seen: dict[Job, Observed], emulated: bool = False) -> Part:
        """Judge the statements by what the runs showed."""
        if not self.statements():
            return Part(self.experiment, self.medium, self.seeds, (), {}, ())
        by = self.runs_by(seen, emulated)
        rows = tuple(self._row(statement, by) for statement in self.statements())
        changed = {c.name: by[c.name] for c in self.experiment.changes if c.name in by}
        return Part(self.experiment, self.medium, self.seeds, by[self.judged], changed, rows)

    def runs_by(self, seen: dict[Job, Observed], emulated: bool = False) -> dict[str, tuple[Seen, ...]]:
        """Return what each seed's runs showed, by the name of their setting."""
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
        """Judge a statement by those runs that ask enough of the network."""
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
        """Whether a statement means the same with a change, and all its variants are run in the change's setting."""
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
    """Run experiments, print their verdicts, write the page, the table and the numbers; without ids list them.

    Raises:
        UserError: no such experiment, a clip that can't be read, a folder that is in the way.
        UnwrittenError: the system refused the folder.
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
            draft.discard()  # the runs are kept elsewhere
            raise
    write.show(result)
    print(f"\npage:  {place / 'reproduction.html'}\ntable: {place / 'reproduction.md'}")
    sys.stdout.flush()


def save(result: Result, draft: Draft) -> None:
    """Write the page, the table and the numbers into a folder, all of them or none.

    Raises:
        UnwrittenError: the system refused.

    """
    from papers.engine import write

    draft.text("reproduction.md", write.markdown(result))
    draft.text("reproduction.html", write.page(result))
    draft.finish(write.numbers(result))
