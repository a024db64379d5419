"""Commands that make many runs: sweeps, experiments, and the IETF's test cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steadycast.builtin import scenario_at
from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError
from steadycast.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@base.command(
    "Run a scenario with many values and seeds.",
    "steadycast sweep home.toml --over flow.video.controller=asmp,tfrc --seeds 1-10 -o controllers",
    "steadycast sweep home.toml --over topology.bottleneck.rate=1Mbps,2Mbps,4Mbps \\",
    "    --over flow.video.controller=asmp,tfrc --seeds 1-5 --baseline flow.video.controller=tfrc -o grid",
    "steadycast sweep home.toml --over network=standard --over flow.video.controller=steady,gcc -o networks",
    "steadycast sweep home.toml --with design.csv --seeds 1-3 -o design",
    "steadycast sweep home.toml --seeds 1-100 --shard $SLURM_ARRAY_TASK_ID/16 -o shared",
    "steadycast sweep --collect -o shared",
    cls=base.Scenario,
)
def sweep(
    file: Annotated[Path | None, argument("FILE", base.SCENARIO, autocompletion=base.completed)] = None,
    over: Annotated[
        list[str] | None,
        option(
            "--over PATH=V1,V2",
            "A key, as in --set, and its values. If repeated, all combinations of the values are run.",
        ),
    ] = None,
    design: Annotated[
        Path | None,
        option(
            "--with TABLE.csv", "A table of values: each column is a key, as in --set, and each row is run."
        ),
    ] = None,
    seeds: Annotated[str | None, base.SEEDS] = None,
    sets: Annotated[list[str] | None, option("--set PATH=VALUE", base.SET_HELP)] = None,
    clip: base.ClipName = None,
    jobs: base.Jobs = None,
    pixels: Annotated[
        bool, option("--pixels", "Decode and measure the pictures, which takes longer.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        option(
            "--metric PATH",
            "The figure of summary.json to show; with * in the path, the mean of all figures that match. Repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        option("--baseline PATH=V", "Show differences from the runs with this value, paired by seed."),
    ] = None,
    shard: Annotated[
        str | None,
        option("--shard I/N", "Make only part I of N parts of the runs, counted from 0 (for job arrays)."),
    ] = None,
    scheduler: Annotated[
        str | None, option("--scheduler ADDRESS", "Make the runs on the workers of a Dask cluster.")
    ] = None,
    collect: Annotated[
        bool, option("--collect", "Merge the parts and the rows of an interrupted sweep in DIR.")
    ] = False,
    figures: Annotated[
        bool, option("--figures", "Also save each figure as PNG, SVG and PDF in DIR/figures.")
    ] = False,
    out: base.Out = None,
    force: Annotated[
        bool, option("--force", "Delete the results in an existing folder, and start again.")
    ] = False,
) -> None:
    """Run a scenario with all combinations of values and several seeds; results.parquet has a row per run.

    If the command is repeated, it makes only the runs that are missing or have failed. More values or seeds add runs.
    Without -o the results go to runs/NAME-sweep. If a run fails, its row contains the error, and the exit code is 1.
    """
    import time

    if out is None and (shard is not None or collect):
        raise UserError("-o", "it is missing", "give the DIR that all parts share")
    if not collect:
        if file is None:
            raise UserError("FILE", "it is missing", "name a scenario, or give --collect")
        file = scenario_at(file)
    elif any((file, over, design, seeds, sets, clip, shard, scheduler, jobs, pixels, force)):
        raise UserError(
            "--collect", "it runs nothing", "give only -o, --metric, --baseline and --figures with it"
        )
    sets = base.changes(sets, clip)
    sweeping = base.module("steadycast.sweep")
    planning = base.module("steadycast.sweep.plan")
    axes = [planning.axis(each) for each in over or []]
    planning.grid(axes)  # raises an error for a duplicate axis
    part = planning.shard(shard) if shard is not None else None
    began = time.monotonic()
    with base.interruptible():
        if collect:
            done = sweeping.collect(out)
        else:
            assert file is not None
            done = sweeping.sweep(
                file,
                dict(axes),
                table=design,
                seeds=base.seed_list(seeds) if seeds is not None else None,
                set=sets,
                jobs=jobs,
                pixels=pixels,
                shard=part,
                scheduler=scheduler,
                metrics=metric or (),
                baseline=baseline,
                out=out or Path("runs") / f"{file.stem}-sweep",
                force=force,
            )
        took = time.monotonic() - began
        rate = f" in {took:.1f} s ({done.ran / took:.1f} runs/s)" if done.ran else ""
        missing = f", {done.missing} missing" if done.missing else ""
        ran = f"{done.ran} {'run' if done.ran == 1 else 'runs'}{rate}"
        print(f"{ran}; {done.results.height} in all, {done.failed} failed{missing}", file=sys.stderr)
        _errors(done)
        for note in done.plan.notes():
            print(note, file=sys.stderr)
        if part is None and done.results["complete"].any():
            _show(done, metric or (), baseline, figures)
    if done.failed or (done.missing and part is None):
        raise typer.Exit(Exit.FAILED)


def _show(done: Any, metrics: Sequence[str], baseline: str | None, figures: bool) -> None:
    from steadycast.report.choice import RULE
    from steadycast.sweep.show import MOST_SAID, tables, taken, warning

    if (note := warning(done)) is not None:
        base.show(note, style="bold red")
    choices = taken(done)
    for where, text in choices[:MOST_SAID]:
        base.show(f"At {where}: {text}\n")
    if len(choices) > MOST_SAID:
        base.show(f"{len(choices) - MOST_SAID} more points: see the report.\n")
    if choices:
        base.show(RULE, "", style="dim")
    for each in tables(done, metrics or done.metrics(), baseline):
        base.show(each, "")
    # Use `print`, because the console would wrap the path.
    print(f"report: {done.report(metrics, baseline, figures=figures)}")


def _errors(done: Any) -> None:
    errors = done.results["error"].drop_nulls().unique(maintain_order=True).to_list()
    for error in errors[:3]:
        base.tell(error)
    if len(errors) > 3:
        base.tell(f"{len(errors) - 3} more errors: column error of {done.folder / 'results.parquet'}")


@base.command(
    "Run an experiment: a file with a question, its runs, measures and bounds.",
    "steadycast experiment",
    "steadycast experiment rtt-unfairness",
    "steadycast experiment mine.toml --seeds 1-10 -o mine",
    "steadycast experiment mine.toml --why",
    "steadycast experiment rfc8867 --only 5.1 --only my.py:Mine",
    "steadycast experiment networks --draw 4711 --count 60",
    "steadycast experiment K-A --why",
)
def experiment(
    file: Annotated[
        Path | None,
        argument(
            "[FILE|NAME]",
            "An experiment file, or the name of an experiment or of a paper's experiment. Without it, "
            "the experiments are listed.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[str | None, base.SEEDS] = None,
    only: Annotated[
        list[str] | None, option("--only NAME", "Run only this variant or scenario. Repeatable.")
    ] = None,
    beside: Annotated[
        list[str] | None,
        option(
            "--with CONTROLLER",
            "An additional controller: a name, FILE.py:Class or exec:COMMAND. Repeatable.",
        ),
    ] = None,
    draw: Annotated[
        str | None,
        option("--draw SEEDS", "The seeds of the drawn values, in place of the file's; each makes a set."),
    ] = None,
    count: Annotated[
        int | None, option("--count N", "The number of draws per seed, in place of the file's.", min=1)
    ] = None,
    emulated: Annotated[
        bool, option("--emulated", "Make all runs in real time, with the kernel's TCP; needs root.")
    ] = False,
    why: Annotated[
        bool, option("--why", "Print each bound with its reason and source, without any run.")
    ] = False,
    jobs: base.Jobs = None,
    out: base.Out = None,
    as_json: base.AsJson = False,
) -> None:
    """Run an experiment file; write its tables of means, its bounds, its figures and a page.

    Without -o the results go to runs/NAME. If the command is repeated, it makes only the runs that are missing.

    The exit code is 1 if a run fails, if a bound does not hold, or if a bound also holds in the placebo, the runs
    without the event under test.

    In a checkout, NAME can also be an experiment of a paper. It runs as with "steadycast reproduce" and ends with exit
    code 0.
    """
    specs = base.module("steadycast.experiment.spec")
    laboratories = base.module("steadycast.cli.laboratories")
    papers = laboratories.papers()
    if file is None:
        rows = [[name, specs.question(path)] for name, path in specs.named().items()]
        rows += [[each.id, each.title] for each in papers.EXPERIMENTS] if papers is not None else []
        base.listed(rows, "experiment", "question, or subject of a paper's experiment")
        return
    # An existing file takes precedence over a paper's experiment with the same name.
    if papers is not None and not file.exists() and str(file).upper() in {e.id for e in papers.EXPERIMENTS}:
        if why:
            _explain_paper(papers.chosen([str(file)])[0])
            return
        if given := [
            name
            for name, value in (
                ("--only", only),
                ("--with", beside),
                ("--draw", draw),
                ("--count", count),
                ("--jobs", jobs),
            )
            if value is not None
        ]:
            problem = f"{file} is a paper's experiment, which has its own variants"
            raise UserError(given[0], problem, "leave it out")
        laboratories.reproduce([str(file)], seeds or "", emulated=emulated, out=out)
        return
    if why:
        _explain(specs.Spec.read(file))
        return
    redrawn = {"draw": base.seed_list(draw, "--draw") if draw is not None else (), "count": count}
    chosen: dict[str, Any] = {"only": only or (), "beside": beside or (), **redrawn}
    _experiment(file, seeds, chosen | {"emulated": emulated, "jobs": jobs, "out": out}, as_json=as_json)


def _experiment(
    file: Path,
    seeds: str | None,
    chosen: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    experiments = base.module("steadycast.experiment")
    with base.interruptible():
        given = None if seeds is None else base.seed_list(seeds)
        done = experiments.run_experiment(file, seeds=given, **chosen)
    if as_json:
        base.print_json(done.json())
    else:
        for each in base.module("steadycast.experiment.show").tables(done):
            base.show(each, "")
        # Use `print`, because the console would wrap the path.
        print(f"report: {done.folder}/report.html")
    for error in list(dict.fromkeys(done.runs.errors.values()))[:3]:
        base.tell(error)
    if done.failed:
        raise typer.Exit(Exit.FAILED)


def _explain(spec: Any) -> None:
    base.show(spec.question, "")
    rows = [
        [
            spec.measure(each.measure).shown,
            _named(each.variants, spec.variants),
            each.said(),
            each.why,
            each.source or "ours",
        ]
        for each in spec.bounds
    ]
    base.listed(rows, "measure", "variant", "bound", "why", "source")
    if spec.placebo is not None:
        base.show(f"\nPlacebo: {spec.placebo[1]}")


def _explain_paper(experiment: Any) -> None:
    base.show(f"{experiment.id}: {experiment.title}", "")
    rows = [
        [each.text, each.published, each.asked, each.why, each.says or f"section {experiment.section}"]
        for each in experiment.statements
    ]
    base.listed(rows, "statement", "published", "bound", "why", "source")


def _named(names: Sequence[str], known: Iterable[str]) -> str:
    return "all" if not {*known} - {*names} or not names else ", ".join(names)


@base.command(
    "The former name of steadycast experiment rfc8867 and c4.",
    "steadycast test-cases rfc8867 --controllers scream,gcc,nada --seeds 1-5 -o cases",
    name="test-cases",
)
def ietf_cases(
    suite: Annotated[str, argument("SUITE", "The test cases: rfc8867 or c4.")],
    controllers: Annotated[
        str | None,
        option(
            "--controllers A,B",
            "The controllers: names, or FILE.py:Class; by default all of the experiment file.",
        ),
    ] = None,
    seeds: Annotated[str, base.SEEDS] = "1",
    case: Annotated[list[str] | None, option("--case ID", "Run only this case. Repeatable.")] = None,
    jobs: base.Jobs = None,
    emulated: Annotated[
        bool, option("--emulated", "Run in real time, with the kernel's TCP; needs root.")
    ] = False,
    out: base.Out = None,
    as_json: base.AsJson = False,
) -> None:
    """Run the experiment rfc8867 or c4."""
    if suite not in ("rfc8867", "c4"):
        raise UserError(suite, "there are no test cases of this name", "write rfc8867 or c4")
    names = [name.strip() for name in controllers.split(",")] if controllers is not None else []
    only = [*names, *(case or ())]
    words = "".join(f" --only {each}" for each in only)
    base.tell(f"test-cases is an experiment now: steadycast experiment {suite}{words}")
    _experiment(
        Path(suite), seeds, {"only": only, "emulated": emulated, "jobs": jobs, "out": out}, as_json=as_json
    )
