"""Runs a scenario: encodes the media, simulates the network, and measures the pictures at each receiver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.folder import Draft, Folder, Json, aggregate
from steadycast.hints import is_on_command_line, on_command_line
from steadycast.loading import Sets, Source, changes, folder_of, load_with, place_of, seeds_of
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
    """Run a scenario, and measure the pictures that each receiver shows.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: replaces the scenario's seed.
        set: changes to the scenario, for example ``{"flow.video.controller": "tfrc"}`` or
            ``["flow.video.controller=tfrc"]``.
        out: where to write the run folder. By default, nothing is written.
        force: replace an existing folder.
        progress: callback that receives the progress. By default, a progress bar is shown if stderr is a terminal.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well. This needs the FFmpeg of `imageio-ffmpeg`.
        controllers: controller classes, by the name of the video flow. They replace the controllers in the scenario.
        film: record the ten seconds with the worst picture quality as a film for the report. This needs ``quality``.
        recorded: called with the unfinished folder, after the tables and before the film are written. This needs
            ``out``.

    Raises:
        UserError: the scenario, a clip or a controller is wrong. The error describes the place and the remedy.
        MissingError: VMAF is requested, but no program that measures it is installed.
        KeyboardInterrupt: Ctrl-C was pressed. If ``out`` is given, the partial results are in ``out``.part.

    """
    classes = dict(controllers or {})
    loaded = load_with(scenario, changes(set, seed=seed), classes)
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
    """Run a scenario once per seed. Return one summary that has the mean and the spread of each number.

    Writes ``out/seed-N`` for each seed, and ``out/seeds.json``. All files are in ``out``.part until the last run is
    done. There is one process per processor, so that runs are parallel. With ``controllers``, and on Windows, the runs
    follow one another in this process.

    Raises:
        UserError: as in `run`.

    """
    given = seeds_of(seeds)
    loaded = load_with(scenario, changes(set, seed=given[0]), controllers or {})
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
            summaries = _in_parallel(
                _Seeds(scenario, place, common, is_on_command_line()), given, processes, told
            )
        joined = aggregate(summaries)
        if draft is not None:
            draft.finish(joined)
        return joined


@contextmanager
def _seeds_kept(draft: Draft) -> Iterator[None]:
    """Keep the runs that are finished if the block ends early. If there are none, remove the folder."""
    try:
        yield
    except BaseException:
        if not any(draft.part.glob("seed-*")):
            draft.discard()
        raise


@dataclass(frozen=True)
class _Seeds:
    """Arguments that the worker processes of `run_seeds` share."""

    scenario: Source
    place: Path | None
    common: dict[str, Any]
    is_command: bool
    """Whether the user reads the messages of a command."""


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
    """Return the function that runs one seed in a worker process of `run_seeds`."""

    def one(seed: int) -> Json:
        place = _seed_folder(what.place, seed)
        with on_command_line() if what.is_command else nullcontext():
            return run(what.scenario, seed=seed, out=place, progress=Silent(), **what.common).summary

    return one
