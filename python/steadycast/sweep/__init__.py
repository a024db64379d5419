"""Sweeps run a scenario with many combinations of values and many seeds. Each run gives one row of results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from steadycast.arguments import typed
from steadycast.errors import UserError
from steadycast.files import folder, write_text, written
from steadycast.folder import Claim
from steadycast.lazy_import import pl
from steadycast.loading import Sets, Source, changes, literal, seeds_of
from steadycast.progress import Progress, shown
from steadycast.sweep import plan as planning
from steadycast.sweep import store
from steadycast.sweep.plan import Base, Plan, Task

if TYPE_CHECKING:
    from steadycast.report.canvas import Drawing

_SHARDS = "shard-*-of-*"


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The results of a sweep."""

    results: pl.DataFrame
    """One row per run.

    The columns are the axes as text, ``seed``, ``key``, ``complete``, ``error``, ``record_sha256`` and ``cpu_s`` (of
    the simulation alone). Then there is a column for each number in summary.json. The column's name is the number's
    path in this file, and its unit is the same.
    """
    plan: Plan
    """The axes, the points and the seeds."""
    folder: Path
    """Folder of the sweep."""
    ran: int = 0
    """Number of runs that this call has executed. Earlier calls have executed the other runs."""
    _scratch: TemporaryDirectory[str] | None = None

    @property
    def failed(self) -> int:
        """Number of runs that have failed."""
        return int(self.results["complete"].not_().sum())

    @property
    def missing(self) -> int:
        """Number of runs that are planned and have no result."""
        return sum(1 for _ in self.plan.runs()) - self.results.height

    def metrics(self) -> list[str]:
        """Return the metrics that are shown by default.

        They are the share of the fair rate, score, loss, and PSNR of decoded pictures, for each flow.
        """
        from steadycast.sweep.show import metrics

        return metrics(self)

    def verdicts(self) -> list[dict[str, Any]]:
        """Return which controllers are recommended, and the differences that decided this.

        There is a result for each combination of the axes other than the controller. The list is empty if no axis is a
        controller. ``reason`` is "idle" if the network did not limit the flows.
        """
        from steadycast.sweep.show import verdicts_json

        return verdicts_json(self, "python")

    def points(self, metric: str) -> pl.DataFrame:
        """Return a table that has a row per point.

        Its columns are the axes, ``mean``, ``ci95`` and ``n``. ``ci95`` is half of the width of the 95 % interval by
        Student's t. It is null if there is only one seed.

        Args:
            metric: a column of the results. With ``*``, it is the mean over all columns that match.

        Raises:
            UserError: there is no such column.

        """
        from steadycast.sweep.show import frame, spreads

        return frame(self.plan.axes, spreads(self, metric))

    def differences(self, metric: str, baseline: str) -> pl.DataFrame:
        """Return how much each point differs from the point that has the baseline's value, paired by seed.

        ``baseline`` is PATH=VALUE. The columns are the same as in `points`.

        Raises:
            UserError: there is no such column, axis or value.

        """
        from steadycast.sweep.show import differences, frame

        return frame(self.plan.axes, differences(self, metric, baseline))

    def plot(self, metric: str) -> Drawing:
        """Draw a metric. A notebook shows the drawing.

        It is a curve if there is one axis. Otherwise it is a heat map over the last two axes.

        Raises:
            UserError: there is no such column, or there is no axis to draw it over.

        """
        from steadycast.report.canvas import drawn
        from steadycast.sweep.show import figures

        found = drawn(lambda: next((figure for _, figure in figures(self, metric)), None))
        if found is None:
            raise UserError(metric, "there is nothing to draw it over", "sweep over at least one axis")
        return found

    def report(
        self, metrics: Sequence[str] = (), baseline: str | None = None, *, figures: bool = False
    ) -> Path:
        """Write sweep.html, and return its path.

        With ``figures``, also write each figure into the folder ``figures``, as PNG, SVG and PDF.

        Raises:
            UserError: a metric or the baseline does not exist.
            UnwrittenError: a file can't be written.

        """
        from steadycast.sweep.show import write_report

        return write_report(self, metrics, baseline, figures=figures)

    def __repr__(self) -> str:
        axes = ", ".join(self.plan.axes) or "nothing"
        return f"Sweep of {self.plan.name} over {axes}: {self.results.height} runs, {self.failed} failed"

    def _repr_html_(self) -> str:
        from steadycast.sweep.show import tables_html

        return tables_html(self, self.metrics()[:4], None)


@typed
def sweep(
    scenario: Source,
    over: Mapping[str, object] | None = None,
    *,
    table: Path | str | None = None,
    seeds: Iterable[int] | None = None,
    set: Sets = (),
    jobs: int | None = None,
    pixels: bool = False,
    shard: tuple[int, int] | None = None,
    scheduler: object = None,
    metrics: Sequence[str] = (),
    baseline: str | None = None,
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Run a scenario with all combinations of values, several seeds each, on all processors.

    If a run fails, its row contains the error, and the other runs continue. If ``out`` is given, a repeated call
    executes only missing and failed runs. More values or seeds add runs.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        over: the values of each axis. The keys are paths, as in ``{"flow.video.controller": ["asmp", "tfrc"]}``. A
            single value is an axis, too.
        table: a CSV file. Its header contains paths, and its rows are points. It is combined with the axes in ``over``.
        seeds: the seeds of each point. The default is the seed of the scenario.
        set: changes for all runs, as in `steadycast.run`.
        jobs: the number of processes. By default, there is one per processor.
        pixels: decode and measure the pictures.
        shard: (I, N) executes only part I of N, counted from 0, in ``out``/shard-I-of-N. `collect` joins the parts.
        scheduler: the address of a Dask scheduler (tcp://HOST:PORT) or a `distributed.Client`. The sweep runs on its
            workers.
        metrics: columns that the results must have. If one is missing after the first run, this is an error.
        baseline: PATH=VALUE of an axis, with which the runs will be compared later. Here it is only checked: if it
            does not exist, this is an error before the first run.
        out: the folder of the sweep. By default, a temporary folder is used and removed together with the result.
        force: begin again in a folder that exists. Its old results are removed. If the call fails before a run
            is done, they stay.
        progress: callback that receives the progress. By default, a progress bar is shown if stderr is a terminal.

    Raises:
        UserError: the scenario, a value or the folder is wrong. The error describes the place and the remedy.
        UnwrittenError: the disk is full. Runs that are finished are kept.
        KeyboardInterrupt: Ctrl-C was pressed. A repeated call continues the sweep.

    """
    base = Base.of(scenario, changes(set))
    heads = planning.table(Path(table)) if table is not None else ((), ((),))
    given = [
        (path, planning.values(path, map(literal, _several(values)))) for path, values in (over or {}).items()
    ]
    axes, rows = planning.grid(given, heads)
    if jobs is not None and scheduler is not None:
        raise UserError("--jobs", "a cluster's workers are as many as it has", "leave it out, or --scheduler")
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}", "at least one process is needed", "give 1 or more, or leave it out")
    if shard is not None and out is None:
        raise UserError("--shard", "it has no folder", "give -o DIR, the same for all parts")
    scratch = TemporaryDirectory(prefix="steadycast-") if out is None else None
    place = Path(scratch.name) / "sweep" if scratch is not None else Path(out or "")
    if shard is not None:
        place = place / f"shard-{shard[0]}-of-{shard[1]}"
    file = base.scenario if isinstance(base.scenario, str) else str(place / "scenario.toml")
    new, scenarios = Plan.of(
        base,
        axes,
        rows,
        None if seeds is None else seeds_of(seeds),
        pixels=pixels,
        file=file,
        options={path: f"--with {table}: {path}" if path in heads[0] else f"--over {path}" for path in axes},
    )
    with ExitStack() as stack:
        stack.enter_context(Claim(place, force=force, grows=not force))
        if force and place.exists():
            stack.enter_context(_anew(place))
        plan = _begun(place, new, base, baseline)
        siblings = sorted(place.parent.glob(_SHARDS)) if shard is not None else sorted(place.glob(_SHARDS))
        done = store.finished({place, *siblings})
        part, parts = shard or (0, 1)
        # Points whose resolved scenarios are equal have the same key, so they need only one run.
        todo = list(
            {
                task.key: task
                for number, (_, _, task) in enumerate(new.runs())
                if number % parts == part and task.key not in done
            }.values()
        )
        if todo:
            told = progress or stack.enter_context(shown(rated=True))
            _work(base, place, todo, scenarios, pixels, jobs, scheduler, metrics, told)
        return Sweep(store.join(place, plan), plan, place, len(todo), scratch)


def _several(values: object) -> Iterable[object]:
    if isinstance(values, Iterable) and not isinstance(values, str | Mapping):
        return values
    return [values]


@typed
def collect(out: Path | str) -> Sweep:
    """Join the parts of a sweep (``out``/shard-I-of-N) and the results in ``out``.

    This also works after an interruption.

    Raises:
        UserError: there are no parts, or they belong to different sweeps.
        UnwrittenError: a file can't be written.

    """
    place = Path(out)
    shards = [each for each in sorted(place.glob(_SHARDS)) if each.is_dir()]
    plan: Plan | None = None
    for each in (place, *shards):
        writer = Claim.holder(each)
        if writer is not None:
            raise UserError(str(each), f"{writer} is writing there", "wait until it has ended")
        found = Plan.read(each)
        if found is not None:
            plan = found if plan is None else plan.joined(found, str(each))
    if plan is None:
        remedy = "name the DIR that was given to --shard"
        raise UserError(str(place), "there is no sweep in it, and no shard-I-of-N", remedy)
    with Claim(place, grows=True) if (place / "scenario.toml").exists() else ExitStack():
        first = next(each for each in (place, *shards) if (each / "scenario.toml").exists())
        write_text(place / "scenario.toml", (first / "scenario.toml").read_text(encoding="utf-8"))
        plan.write(place)
        return Sweep(store.join(place, plan, shards), plan, place)


@contextmanager
def _anew(place: Path) -> Iterator[None]:
    """Begin again in a folder. If the block fails before a run is done, restore the old folder."""
    # Choose a name that does not match `_SHARDS`. Otherwise `collect` would join the old results.
    old = place.with_name(f"old-{os.getpid()}.{place.name}")
    with written(place):
        place.rename(old)
    try:
        yield
    except BaseException:
        if not any(row["complete"] for row in store.rows(place)):
            shutil.rmtree(place, ignore_errors=True)
            old.rename(place)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _begun(place: Path, new: Plan, base: Base, baseline: str | None) -> Plan:
    """Write the plan. If the folder already has a plan, join both."""
    known = Plan.read(place)
    if known is None:
        held = (each.name for each in place.iterdir()) if place.exists() else ()
        if any(not name.startswith("shard-") for name in held):
            raise UserError(str(place), "this folder holds other results", "give another -o DIR, or --force")
    plan = new if known is None else known.joined(new, str(place))
    if baseline is not None:
        plan.axis_of(baseline)
    folder(place)
    if isinstance(base.scenario, str):
        write_text(place / "scenario.toml", base.text)
    else:
        base.scenario.save(place / "scenario.toml")
    plan.write(place)
    return plan


def _work(
    base: Base,
    place: Path,
    todo: Sequence[Task],
    scenarios: Sequence[Any],
    pixels: bool,
    jobs: int | None,
    scheduler: object,
    metrics: Sequence[str],
    progress: Progress,
) -> None:
    from steadycast.media.prepare import prepare
    from steadycast.sweep.cluster import Cluster, pack
    from steadycast.sweep.work import Setup, failed
    from steadycast.workers import Workers, cores

    # Encode the clips once. The workers find them in the cache.
    encoded = prepare(scenarios, progress)
    crew: Cluster | Workers
    if scheduler is None:
        processes = min(jobs or cores(), len(todo))
        crew = Workers("steadycast.sweep.work:begin", Setup(base, pixels), processes)
    else:
        crew = Cluster(
            scheduler,
            pack(base, pixels, scenarios, encoded, {change for task in todo for change in task.sets}),
        )
    unseen = list(metrics)
    part = store.Part(place)
    progress("runs", 0, len(todo))
    try:
        with part, crew as workers, closing(workers.do(todo)) as outcomes:
            for done, (index, outcome) in enumerate(outcomes, 1):
                line = failed(todo[index], outcome) if isinstance(outcome, Exception) else outcome
                if unseen:
                    unseen = _looked_for(line, unseen)
                part.append(line)
                progress("runs", done, len(todo))
    except KeyboardInterrupt as stop:
        stop.add_note(f"{part.count()} of {len(todo)} runs are done and kept; repeat the command to continue")
        raise


def _looked_for(line: bytes, metrics: list[str]) -> list[str]:
    """Check that a row contains the metrics.

    Return the metrics that are still unchecked, because the run has failed.
    """
    import json

    from steadycast.sweep.show import columns

    row = json.loads(line)
    if not row["complete"]:
        return metrics
    for metric in metrics:
        columns(list(row["figures"]), metric)
    return []
