"""Runs a scenario: media first, then the simulated world, then what each viewer saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.folder import Draft, Folder, Json, aggregate
from steadycast.loading import Sets, Source, changes, folder_of, load, place_of, seeds_of
from steadycast.progress import Progress, Silent, shown
from steadycast.result import Run
from steadycast.run_pipeline import Keep, Plan, Ready, stage
from steadycast.workers import LostError, Workers, cores


@typed
def run(
    scenario: Source,
    *,
    seed: int | None = None,
    set: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
    vmaf: bool = False,
    controllers: Mapping[str, type] | None = None,
    film: bool = False,
    recorded: Callable[[Folder], None] | None = None,
) -> Run:
    """Run a scenario, and measure what each viewer saw.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: instead of the scenario's own.
        set: changes to it, as ``{"flow.video.controller": "tfrc"}`` or ``["flow.video.controller=tfrc"]``.
        out: where to write the run folder; without it nothing is written.
        force: replace a folder that is there.
        progress: told how far it is; by default a bar, where somebody looks.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well, by the FFmpeg of `imageio-ffmpeg`.
        controllers: classes that steer video flows, by the flows' names, instead of what the scenario says.
        film: film the ten seconds in which a viewer missed most, for the report; only with ``quality``.
        recorded: with ``out``, called when the tables are written, before the film, with the folder in the making.

    Raises:
        UserError: the scenario, a clip or a controller is wrong; it says where, and what to do.
        MissingError: VMAF was asked for, and there is no program that measures it.
        KeyboardInterrupt: somebody pressed Ctrl-C; with ``out``, what there is stands in ``out``.part.

    """
    classes = dict(controllers or {})
    loaded = load(scenario, changes(set, seed=seed, classes=classes))
    plan = Plan.of(loaded, place_of(scenario), folder_of(scenario), classes)
    keep = Keep(quality, vmaf, film, recorded)
    with ExitStack() as stack:
        told = progress or stack.enter_context(shown())
        return stage(lambda: Ready.of(plan, told), told, keep, out, force=force)


@typed
def run_seeds(
    scenario: Source,
    *,
    seeds: Iterable[int],
    set: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
    vmaf: bool = False,
    controllers: Mapping[str, type] | None = None,
) -> Json:
    """Run a scenario once per seed, and return the summary in which each number has become its spread.

    Writes ``out/seed-N`` for each, and ``out/seeds.json``; all stand in ``out``.part until the last is done. The runs
    go in parallel, one per processor, in processes of their own; with ``controllers``, and on Windows, one after the
    other in this one.

    Raises:
        UserError: as `run`.

    """
    given = seeds_of(seeds)
    loaded = load(scenario, changes(set, seed=given[0], classes=controllers))
    common: dict[str, Any] = {"set": set, "quality": quality, "vmaf": vmaf}
    with ExitStack() as stack:
        told = progress or stack.enter_context(shown())
        processes = min(cores(), len(given))
        alone = bool(controllers) or processes < 2 or os.name != "posix"
        draft = None
        if out is not None:
            draft = stack.enter_context(Draft(out, force=force, mark="seeds.json"))
        if not alone:
            from steadycast.media.prepare import prepare

            prepare([loaded], told)
        if draft is not None:
            draft.begin()
            stack.enter_context(_seeds_kept(draft))
        place = draft.part if draft is not None else None
        if alone:
            summaries = [
                run(
                    scenario,
                    seed=seed,
                    out=_seed_folder(place, seed),
                    progress=told,
                    controllers=controllers,
                    **common,
                ).summary
                for seed in given
            ]
        else:
            summaries = _in_parallel(_Seeds(scenario, place, common), given, processes, told)
        joined = aggregate(summaries)
        if draft is not None:
            draft.finish(joined)
        return joined


@contextmanager
def _seeds_kept(draft: Draft) -> Iterator[None]:
    """Leave what there is of several seeds when the block ends early; nothing, where no seed has anything."""
    try:
        yield
    except BaseException:
        if not any(draft.part.glob("seed-*")):
            draft.discard()
        raise


@dataclass(frozen=True)
class _Seeds:
    """What the processes of `run_seeds` are told."""

    scenario: Source
    place: Path | None
    common: dict[str, Any]


def _seed_folder(place: Path | None, seed: int) -> Path | None:
    return place / f"seed-{seed}" if place is not None else None


def _in_parallel(what: _Seeds, seeds: Sequence[int], processes: int, progress: Progress) -> list[Json]:
    done: dict[int, Json] = {}
    progress("seeds", 0, len(seeds))
    with Workers("steadycast.run:seed_worker", what, processes, gently=True) as workers:
        for index, outcome in workers.do(seeds):
            if isinstance(outcome, LostError):
                remedy = "see whether the machine has memory left, and run it again"
                raise UserError(f"seed {seeds[index]}", str(outcome), remedy)
            if isinstance(outcome, Exception):
                raise outcome
            done[index] = outcome
            progress("seeds", len(done), len(seeds))
    return [done[index] for index in range(len(seeds))]


def seed_worker(what: _Seeds) -> Callable[[int], Json]:
    """Return what runs one seed in a process of `run_seeds`."""

    def one(seed: int) -> Json:
        place = _seed_folder(what.place, seed)
        return run(what.scenario, seed=seed, out=place, progress=Silent(), **what.common).summary

    return one
