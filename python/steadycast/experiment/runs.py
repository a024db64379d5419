"""The runs of an experiment.

A run is stored under a key that is made of everything on which the run's result depends. So an experiment can be
resumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steadycast import record
from steadycast.core import core
from steadycast.errors import UserError
from steadycast.experiment import timeline
from steadycast.experiment.series import Series
from steadycast.experiment.spec import Point, Spec
from steadycast.progress import Progress, Silent
from steadycast.result import Run
from steadycast.sweep import store
from steadycast.sweep.plan import Base, Task, point_key, run_key
from steadycast.sweep.work import Setup, failed, figures
from steadycast.sweep.work import begin as begin_sweep

EMULATED_AT_ONCE = 4
"""The number of emulated runs at a time. A run with 4 Mb/s takes about a tenth of a processor."""


@dataclass(frozen=True)
class Job:
    """A run of a scenario, with the changes and the seed in `task`."""

    scenario: str
    task: Task
    emulated: bool = False
    timed: bool = False
    """Whether the run's series over time are stored for a figure."""
    draw: int | None = None
    """The number of the random draw, counted from 1. It is `None` without draws. It is the key in `Shared.series`."""


@dataclass(frozen=True)
class Runs:
    """The results of all runs."""

    figures: Mapping[tuple[Point, int], Mapping[str, float | None]]
    """The figures of each run by point and seed. Failed runs are left out."""
    errors: Mapping[tuple[Point, int], str]
    ran: int
    """The number of runs that this call executed."""
    times: Mapping[Point, Path]
    """Files that contain series for figures over time."""


@dataclass(frozen=True)
class Shared:
    """Data that all runs need. Each worker process gets it once."""

    bases: Mapping[str, Base]
    series: Mapping[int | None, tuple[Series, ...]]
    """The statistics that are computed for each run. The key is the number of the random draw, as in `Job.draw`."""
    place: Path
    """The folder of the experiment."""


def begin(shared: Shared) -> Callable[[Job], bytes]:
    """Return a function that runs a job and returns a line of JSON. Each worker process calls `begin` once."""
    works: dict[tuple[str, bool], Callable[[Task], bytes]] = {}
    now: list[Job] = []

    def more(run: Run) -> Mapping[str, float | None]:
        if now[0].timed:
            timeline.write(run, timeline.path(shared.place, now[0].task.key))
        return {each.text: each.value(run) for each in shared.series[now[0].draw]}

    def one(job: Job) -> bytes:
        now[:] = [job]
        base = shared.bases[job.scenario]
        if job.emulated:
            return _emulated(base, job.task, more)
        # Write tables only if they are needed, because a run without tables is faster.
        tables = bool(shared.series[job.draw]) or job.timed
        kind = job.scenario, tables
        if kind not in works:
            works[kind] = begin_sweep(Setup(base, pixels=False, more=more if tables else None))
        return works[kind](job.task)

    return one


def _emulated(base: Base, task: Task, more: Callable[[Run], Mapping[str, float | None]]) -> bytes:
    """Run a task in real time. If the run is not trustworthy, its row contains an error instead of figures."""
    from steadycast.emulate import emulate

    row: dict[str, Any] = {"key": task.key, "seed": task.seed, "complete": False}
    try:
        with TemporaryDirectory(prefix="steadycast-") as folder:
            place = Path(str(base.scenario))
            if not place.exists():  # the scenario is inline in the experiment file
                place = Path(folder) / place.name
                place.write_text(base.text, encoding="utf-8")
            run = emulate(place, set=list(task.sets), quality=False, progress=Silent()).run
        if not run.summary["emulation"]["trustworthy"]:
            raise RuntimeError(next(each for each in run.summary["warnings"] if each.startswith("not trust")))
        found = json.loads(figures(run.summary)) | more(run)
    except Exception as error:  # no error, for example in a user's controller, may stop the experiment
        row["error"] = f"{type(error).__name__}: {error}"
    else:
        row |= {"complete": bool(run.summary["complete"]), "error": None, "figures": found}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def run_all(spec: Spec, place: Path, jobs: int | None, progress: Progress) -> Runs:
    """Run the jobs whose results are missing in ``place``, and return the figures of all runs.

    Raises:
        UserError: a scenario or a change is wrong, or a measure contains a figure that no run has.
        UnwrittenError: the disk is full; finished runs are kept.
        KeyboardInterrupt: Ctrl-C was pressed; a repeated call makes only the missing runs.

    """
    from steadycast.media.prepare import prepare

    planned, scenarios = _planned(spec)
    prepare(scenarios, progress)
    needed = {draw: {each.text for each in series} for draw, series in spec.series.items()}
    known = {row["key"]: row["figures"].keys() for row in store.rows(place) if row["complete"]}
    # Repeat a stored run if it lacks statistics, which may have been added to the file later.
    todo = [
        job
        for job in dict.fromkeys(planned.values())
        if not (job.task.key in known and needed[job.draw] <= known[job.task.key])
        or (job.timed and not timeline.path(place, job.task.key).exists())
    ]
    # First run one job of each scenario, to check its figures. Run emulations last, so that they have the processors
    # for themselves.
    lead = list({job.scenario: job for job in reversed(todo) if not job.emulated}.values())
    rest = [job for job in todo if job not in lead]
    for batch in (lead, [job for job in rest if not job.emulated], [job for job in rest if job.emulated]):
        if batch:
            _work(spec, place, batch, jobs or (EMULATED_AT_ONCE if batch[0].emulated else None), progress)
        figures, errors = _found(planned, place)
        _check(spec, figures, is_whole=len(figures) + len(errors) == len(planned))
    times = {point: timeline.path(place, job.task.key) for (point, _), job in planned.items() if job.timed}
    there = {point: path for point, path in times.items() if path.exists()}
    return Runs(figures, errors, len(todo), there)


def _found(
    planned: Mapping[tuple[Point, int], Job], place: Path
) -> tuple[dict[tuple[Point, int], Mapping[str, float | None]], dict[tuple[Point, int], str]]:
    """Return the figures of the runs that exist, and the errors of the runs that failed."""
    rows: dict[str, store.Row] = {}
    for row in store.rows(place):
        if row["complete"] or not rows.get(row["key"], {}).get("complete"):
            rows[row["key"]] = row
    figures: dict[tuple[Point, int], Mapping[str, float | None]] = {}
    errors: dict[tuple[Point, int], str] = {}
    for of, job in planned.items():
        if job.task.key not in rows:
            continue
        row = rows[job.task.key]
        if row["complete"]:
            figures[of] = row["figures"]
        else:
            errors[of] = str(row["error"])
    return figures, errors


def _planned(spec: Spec) -> tuple[dict[tuple[Point, int], Job], list[core.Scenario]]:
    """Return the job for each point and seed. Also return the scenarios, whose clips have to be encoded first."""
    planned: dict[tuple[Point, int], Job] = {}
    scenarios: list[core.Scenario] = []
    durations: dict[Point, float] = {}
    timed = {name for figure in spec.figures if figure.kind == "time" for name in figure.scenarios}
    for point in spec.points():
        base = spec.scenarios[point.scenario].base
        try:
            loaded = base.load(*point.sets)
        except UserError as error:
            told = ", ".join(filter(None, point.labels))
            # The core's errors attribute all changes to --set. Remove this, because the changes are in the experiment
            # file.
            at = error.place.removeprefix("--set: ")
            raise UserError(f"{spec.path}: {told}: {at}", error.problem, error.remedy) from None
        scenarios.append(loaded)
        durations[point] = loaded.duration_s
        key = point_key(loaded, base.folder, pixels=False)
        for seed in spec.seeds:
            world = "-emulated" if point.emulated else ""
            task = Task(run_key(key, seed) + world, (*point.sets, f"seed={seed}"), seed)
            drawn = seed == spec.seeds[0] and point.scenario in timed and not point.placebo
            planned[point, seed] = Job(point.scenario, task, point.emulated, drawn, point.draw)
    spec.check_periods(durations)
    return planned, scenarios


def _work(spec: Spec, place: Path, todo: Sequence[Job], jobs: int | None, progress: Progress) -> None:
    from steadycast.workers import Workers, cores

    shared = Shared({name: each.base for name, each in spec.scenarios.items()}, spec.series, place)
    processes = min(jobs or cores(), len(todo))
    part = store.Part(place)
    progress("runs", 0, len(todo))
    crew = Workers("steadycast.experiment.runs:begin", shared, processes)
    try:
        with part, crew as workers, closing(workers.do(todo)) as outcomes:
            for done, (index, outcome) in enumerate(outcomes, 1):
                lost = isinstance(outcome, Exception)
                part.append(failed(todo[index].task, outcome) if lost else outcome)
                progress("runs", done, len(todo))
    except KeyboardInterrupt as stop:
        stop.add_note(f"{part.count()} of {len(todo)} runs are done and kept; repeat the command to continue")
        raise


def _check(
    spec: Spec, figures: Mapping[tuple[Point, int], Mapping[str, float | None]], *, is_whole: bool
) -> None:
    """Check that each measure's figures exist in at least one run, if the measure is computed for any scenario.

    ``is_whole`` says whether all runs exist. If it is false and there are random draws, later runs may have other
    flows. In this case, a path is an error only if no summary can contain it.
    """
    if not figures:
        return
    names = list(dict.fromkeys(name for found in figures.values() for name in found))
    checked: set[tuple[str, ...]] = set()
    for measure, formula in spec.formulas():
        # `--only` can leave out all scenarios of a measure.
        if formula.paths in checked or not spec.scenarios_of(measure):
            continue
        checked.add(formula.paths)
        kept = () if is_whole or not spec.draws else filter(record.at, formula.paths)
        formula.check([*names, *kept], measure.place)
