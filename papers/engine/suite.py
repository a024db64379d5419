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
    Experiment,
    Medium,
    Sets,
    Statement,
    Variant,
    Verdict,
    in_real_time,
    media_of,
)
from papers.engine.observe import Observed
from papers.engine.quantity import Seen
from papers.engine.read import ROOT
from papers.engine.registry import EXPERIMENTS, chosen
from papers.engine.runs import Job, run_all
from papers.engine.verdict import Row, row

MARK = "reproduction.json"


@dataclass(frozen=True)
class Part:
    """One experiment with one medium: its runs, as they are and with each change."""

    experiment: Experiment
    medium: Medium
    seeds: tuple[int, ...]
    base: tuple[Seen, ...]
    """What each seed's runs showed, in the order of `seeds`."""
    changed: dict[str, tuple[Seen, ...]]
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
    seeds: Sequence[int] = range(1, 6),
    clips: Sequence[Path] = (),
    emulated: bool = False,
    at_once: int = 4,
    progress: Progress | None = None,
) -> Result:
    """Run experiments and judge their statements.

    Args:
        ids: "K-A", "K" for a family, "all"; either case.
        seeds: one run each.
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
    if not emulated and len(seeds) >= _ENOUGH:
        for plan in plans:
            plan.ask_more(plan.part(seen).rows)
        more = [job for plan in plans for job in plan.jobs() if job not in jobs]
        jobs |= dict.fromkeys(more)
        seen |= run_all(more, progress or Silent(), at_once)
    parts = tuple(plan.both(seen) if emulated else plan.part(seen) for plan in plans)
    used = tuple(s for s in seeds if any(s in plan.asked for plan in plans))
    return Result(tuple(p for p in parts if p.rows), tuple(ids), used, clips, len(jobs), emulated)


def _simulated(ids: Sequence[str], clips: tuple[Path, ...], seeds: tuple[int, ...]) -> list[_Plan]:
    return [_Plan(e, m, seeds) for e in chosen(ids) for m in media_of(_placed(e), clips)]


def _emulated(ids: Sequence[str], clips: tuple[Path, ...], seeds: tuple[int, ...]) -> list[_Plan]:
    plans = [
        _Plan(e, medium, seeds[:number])
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
_OPEN = (Verdict.UNJUDGED, Verdict.FAILS, Verdict.LEFT_OPEN)
"""Verdicts that a reading which more seeds decide may turn."""


class _Plan:
    """The runs that an experiment needs with one medium."""

    def __init__(self, experiment: Experiment, medium: Medium, seeds: tuple[int, ...]) -> None:
        self.experiment = _placed(experiment)
        self.medium = medium
        self.asked = seeds
        self.seeds = seeds
        """Those asked for, and behind them more where they leave a statement undecided."""
        self.extended: set[tuple[str, str]] = set()
        """Pairs of a change or a reading (none: empty) and a variant that are run with all of them."""
        self.variants: list[Variant] = medium.variants(experiment)
        self.changes = [c for c in experiment.tried if c.pixels == medium.pixels]

    def statements(self) -> list[Statement]:
        """Return those that this medium tells; the others need variants that are not run with it."""
        return [s for s in self.experiment.statements if self.medium.tells(self.experiment, s)]

    def job(self, variant: Variant, seed: int, change: str, emulated: bool) -> Job:
        e = self.experiment
        scenario = e.scenario.with_name(variant.scenario) if variant.scenario else e.scenario
        changed = [c.sets_in(scenario) for c in self.changes if c.name == change]
        recorded: Sets = {} if e.jitters else {"record.packets": []}
        all_sets = (recorded, self.medium.sets, variant.sets, *changed)
        graded = self.medium.pixels and not emulated and e.grades
        return Job.of(scenario, all_sets, seed, pixels=self.medium.pixels, emulated=emulated, graded=graded)

    def ways(self) -> list[str]:
        return ["", *(c.name for c in self.changes)]

    def ask_more(self, rows: Sequence[Row]) -> None:
        """Take more seeds of what these leave undecided: as printed, and by each reading that does not decide it."""
        for r in rows:
            if r.little or r.measured is None or r.verdict not in _OPEN:
                continue
            undecided = {"": r.measured, **r.readings}
            # Another number of the same runs takes more of the runs as printed.
            ways = {n if n in self.ways() else "" for n, m in undecided.items() if m.open}
            self.extended |= {(way, v) for way in ways for v in r.statement.measure.variants}
        if self.extended:
            last = self.asked[-1]
            self.seeds = (*self.asked, *range(last + 1, last + 1 + (_TIMES - 1) * len(self.asked)))

    def seeds_of(self, change: str, variant: Variant) -> tuple[int, ...]:
        taken = self.seeds if (change, variant.name) in self.extended else self.asked
        return taken[: variant.seeds]

    def jobs(self, emulated: bool = False) -> list[Job]:
        if not self.statements():
            return []
        return [
            self.job(v, s, name, emulated)
            for name in self.ways()
            for v in self._run_with(name)
            for s in self.seeds_of(name, v)
        ]

    def both(self, seen: dict[Job, Observed]) -> Part:
        """Return what was emulated, with each statement's number in simulation beside it."""
        beside = {r.statement.id: r for r in self.part(seen).rows}
        part = self.part(seen, emulated=True)
        return replace(part, rows=tuple(replace(r, simulated=beside[r.statement.id]) for r in part.rows))

    def part(self, seen: dict[Job, Observed], emulated: bool = False) -> Part:
        if not self.statements():
            return Part(self.experiment, self.medium, self.seeds, (), {}, ())
        by_change: dict[str, tuple[Seen, ...]] = {
            name: tuple(
                {
                    v.name: seen[self.job(v, s, name, emulated)]
                    for v in self._run_with(name)
                    if s in self.seeds_of(name, v)
                }
                for s in self.seeds
            )
            for name in self.ways()
        }
        base = by_change.pop("")
        rows = tuple(self._row(statement, base, by_change) for statement in self.statements())
        return Part(self.experiment, self.medium, self.seeds, base, by_change, rows)

    def _row(
        self, statement: Statement, base: tuple[Seen, ...], by_change: dict[str, tuple[Seen, ...]]
    ) -> Row:
        """Judge a statement by those runs that ask enough of the network."""
        e, needed = self.experiment, statement.measure.variants
        changed = self._for(statement, by_change)
        asked = {name: asks_little(e, seen, needed) for name, seen in changed.items()}
        asked |= {other.name: asks_little(e, base, other.measure.variants) for other in statement.others}
        poor = frozenset(name for name, little in asked.items() if little)
        return row(e, statement, self.medium, base, changed, asks_little(e, base, needed), poor)

    def _run_with(self, change: str) -> list[Variant]:
        if not change:
            return self.variants
        which = next(c.variants for c in self.changes if c.name == change)
        return [v for v in self.variants if v.changed and (not which or v.name in which)]

    def _for(
        self, statement: Statement, by_change: dict[str, tuple[Seen, ...]]
    ) -> dict[str, tuple[Seen, ...]]:
        """Return the runs with each change that concerns the statement and has all its variants."""
        needed = set(statement.measure.variants)
        return {
            c.name: by_change[c.name]
            for c in self.changes
            if c.concerns(statement) and needed <= {v.name for v in self._run_with(c.name)}
        }


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
