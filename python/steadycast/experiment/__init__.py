"""Experiments: a file defines a question, the runs, the measures, and the bounds for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from steadycast.controller import is_outside
from steadycast.controllers import registry
from steadycast.errors import UserError
from steadycast.experiment.runs import run_all
from steadycast.experiment.spec import Spec
from steadycast.experiment.verdict import Experiment
from steadycast.files import folder, write_text
from steadycast.folder import Claim, write_json
from steadycast.loading import seeds_of
from steadycast.progress import Progress, shown

NAME = "experiment.json"


def run_experiment(
    source: Path | str,
    *,
    seeds: tuple[int, ...] | range | None = None,
    only: Sequence[str] = (),
    beside: Sequence[str] = (),
    emulated: bool = False,
    draw: int | Sequence[int] = (),
    count: int | None = None,
    jobs: int | None = None,
    out: Path | str | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Run an experiment. Make only the runs that are missing in the folder ``out``.

    Args:
        source: an experiment file, or the name of a built-in experiment.
        seeds: seeds that replace the seeds of the file.
        only: names of variants, names of scenarios, or values of a scenario's ``about``. By default, everything is
            run. A variant may be a controller that is not in the file. The file for a table is only written if all rows
            of the table are run.
        beside: additional controllers for the file's list of controllers: names of the registry,
            ``FILE.py:Class``, or ``exec:`` with a program.
        draw: seeds for the random draws, which replace the seed in the file. Each seed makes a set of draws.
        count: a number of random draws per seed, which replaces the number in the file.
        emulated: make all runs in real time with the kernel's TCP. This needs the permissions of
            `steadycast emulate`.
        jobs: number of processes. By default, there is one for each processor.
        out: the folder for runs, tables and the page, by default runs/NAME. Existing runs in it are not repeated.
        progress: callback that receives the progress. By default, a progress bar is shown if standard error is a
            terminal.

    Raises:
        UserError: the file has a mistake. The error says the place and the remedy.
        UnwrittenError: the disk is full; finished runs are kept.
        KeyboardInterrupt: Ctrl-C was pressed; a repeated call makes only the missing runs.

    """
    from steadycast.experiment.show import write_report, write_tables

    redrawn = [draw] if isinstance(draw, int) else draw
    spec = Spec.read(source, seeds_of(redrawn) if redrawn else (), count)
    if seeds is not None:
        spec = replace(spec, seeds=tuple(seeds_of(seeds)), whole=False)
    spec = spec.beside([*beside, *(name for name in only if _is_controller(name, spec))])
    if emulated:
        spec = spec.emulated()
    if only:
        spec = spec.only(only)
    place = Path(out) if out is not None else Path("runs") / spec.name
    if place.exists() and any(place.iterdir()) and not (place / "experiment.toml").exists():
        raise UserError(str(place), "this folder holds other results", "give another -o DIR")
    with ExitStack() as stack:
        stack.enter_context(Claim(place, grows=True))
        folder(place)
        write_text(place / "experiment.toml", spec.text)
        done = Experiment(spec, run_all(spec, place, jobs, progress or stack.enter_context(shown())), place)
        write_json(place / NAME, done.json())
        write_tables(done)
        write_report(done)
    return done


def _is_controller(name: str, spec: Spec) -> bool:
    """Whether a name refers to a controller that the experiment does not have yet."""
    if name in spec.variants or name in spec.scenarios:
        return False
    return is_outside(name) or name in {entry.name for entry in registry()}


__all__ = ["Experiment", "Spec", "run_experiment"]
