"""Sweeps: run a scenario at many points of its parameters with many seeds, with one row of results per run."""

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
    """A row per run: the axes as text, ``seed``, ``key``, ``complete``, ``error``, ``record_sha256``, ``cpu_s`` (of the
    simulation alone), then each number of its summary under its path, in the units of summary.json.
    """
    plan: Plan
    """The axes, points and seeds."""
    folder: Path
    """The sweep's folder."""
    ran: int = 0
    """The number of runs that this call executed; earlier calls executed the other runs."""
    _scratch: TemporaryDirectory[str] | None = None

    @property
    def failed(self) -> int:
        """The number of failed runs."""
        return int(self.results["complete"].not_().sum())

    @property
    def missing(self) -> int:
        """The number of planned runs without a result."""
        return sum(1 for _ in self.plan.runs()) - self.results.height

    def metrics(self) -> list[str]:
        """Return each flow's default metrics: share of the fair rate, score, loss, and PSNR of decoded pictures."""
        from steadycast.sweep.show import metrics

        return metrics(self)

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the recommended controllers at each point of the other axes, with the decisive differences.

        The list is empty if no axis is a controller. ``reason`` is "idle" if the network did not limit the flows.
        """
        from steadycast.sweep.show import verdicts_json

        return verdicts_json(self, "python")

    def points(self, metric: str) -> pl.DataFrame:
        """Return a row per point: its axes, ``mean``, ``ci95`` (half-width by Student's t; null for one seed), ``n``.

        Args:
            metric: a column of the results; with ``*`` the mean over the matching columns.

        Raises:
            UserError: there is no such column.

        """
        from steadycast.sweep.show import frame, spreads

        return frame(self.plan.axes, spreads(self, metric))

    def differences(self, metric: str, baseline: str) -> pl.DataFrame:
        """Return the difference of each point from the baseline point, paired by seed.

        ``baseline`` is PATH=VALUE. The columns are those of `points`.

        Raises:
            UserError: there is no such column, axis or value.

        """
        from steadycast.sweep.show import differences, frame

        return frame(self.plan.axes, differences(self, metric, baseline))

    def plot(self, metric: str) -> Drawing:
        """Draw a metric: a curve over one axis, a heat map over the last two of several. A notebook shows it.

        Raises:
            UserError: there is no such column, or nothing to draw over.

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
        """Write sweep.html, and with `figures` each figure as PNG, SVG and PDF into figures/; return the page's path.

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
    """Run a scenario at all combinations of values, with several seeds each, on all processors.

    A failed run becomes a row with its error, and the others continue. With ``out``, a repeated call executes only
    missing and failed runs; additional values or seeds add runs.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        over: the values of each axis, by its path: ``{"flow.video.controller": ["asmp", "tfrc"]}``; a single value is
            also an axis.
        table: a CSV file whose header has paths and whose rows are points; combined with the axes of ``over``.
        seeds: by default the scenario's seed.
        set: changes for all runs, as in `steadycast.run`.
        jobs: processes; by default one per processor.
        pixels: decode and measure the pictures.
        shard: (I, N): only part I of N, counted from 0, into ``out``/shard-I-of-N; `collect` joins the parts.
        scheduler: address of a Dask scheduler (tcp://HOST:PORT) or a `distributed.Client`; its workers run the sweep.
        metrics: required columns; their absence is an error after the first run.
        baseline: required PATH=VALUE of an axis; its absence is an error before the first run.
        out: the sweep's folder; by default a temporary folder that is removed with the result.
        force: begin again in an existing folder; its old results are removed once a run is done.
        progress: callback that receives the progress; by default a progress bar, if stderr is a terminal.

    Raises:
        UserError: the scenario, a value or the folder is wrong; the error names the place and the remedy.
        UnwrittenError: the disk is full; finished runs are kept.
        KeyboardInterrupt: Ctrl-C was pressed; a repeated call continues the sweep.

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
        # Points with the same resolved scenario have the same key, and share one run.
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
    """Join the parts of a sweep (``out``/shard-I-of-N) and the results in ``out``, also after an interruption.

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
    """Begin again in a folder; restore the old one if the block fails before a run is done."""
    # The name must not match `_SHARDS`: `collect` would join the old results.
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
    """Write the plan, joined with the folder's plan."""
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

    # The workers find encoded clips in the cache.
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
    """Check that a row contains the metrics; return those that a failed row leaves unchecked."""
    import json

    from steadycast.sweep.show import columns

    row = json.loads(line)
    if not row["complete"]:
        return metrics
    for metric in metrics:
        columns(list(row["figures"]), metric)
    return []
