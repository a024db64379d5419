"""The command line.

It reads arguments and prints results; the work is done elsewhere, and imported only when it is needed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from steadycast import exits, signals
from steadycast.errors import MissingError, UnwrittenError, UserError, full
from steadycast.exits import Exit
from steadycast.files import scenario_at

if TYPE_CHECKING:
    from rich.console import Console

    from steadycast.report.page import Drawings

app = typer.Typer(
    name="steadycast",
    help="Video over RTP that shares the network fairly with TCP, and a laboratory that shows what every "
    "viewer will see.",
    # A backspace character keeps the lines as they are.
    epilog=f"Start with: steadycast demo, then steadycast run home\n\n\b\nExit codes:\n{exits.listed()}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SCENARIO = "A scenario (TOML), or the name of a built-in one."


def _completed(incomplete: str) -> list[str]:
    """Complete a scenario: built-in names, and files in TOML; where there are none the shell completes paths."""
    from glob import escape, glob

    from steadycast import builtin

    names = [name for name in builtin.names() if name.startswith(incomplete)]
    return [*names, *sorted(glob(f"{escape(incomplete)}*.toml"))]


_OUT = typer.Option("-o", "--out", metavar="DIR", help="The folder for the results.")
_FORCE = typer.Option("--force", help="Replace results that are there already.")
_JSON = typer.Option("--json", help="Print the numbers as JSON on stdout, and nothing else.")
_CODECS = "mpeg4, mpeg2, h263, h264, h265, vp8, vp9 or av1."
_FILM = typer.Option(
    "--film/--no-film", help="Film the ten seconds in which a viewer missed most, for the report."
)
_VMAF = typer.Option("--vmaf", help="Measure VMAF as well; takes imageio-ffmpeg, and its time.")
_METRICS = typer.Option(
    "--metrics", metavar="ADDR:PORT", help="Serve metrics for Prometheus; a port alone serves this machine."
)
_STATUS = typer.Option("--status", metavar="FILE", help="Append a JSON line every second; - is stdout.")
_EVENTS = typer.Option("--events", metavar="FILE", help="Append a JSON line for each change, and why.")
_SEEDS = typer.Option("--seeds", metavar="A-B", help="Several seeds, both ends included.")


class _Scenario(TyperCommand):
    """A command that takes --set: who writes a scenario's key as an option is told how it is written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            told = str(error)
            if name := getattr(error, "option_name", ""):
                written = _key(name.lstrip("-").replace("-", "_"))
            else:
                found = re.search(r"\(([a-z][\w.]*=[^ )]*)\)", told)
                written = found[1] if found else None
            if written is not None:
                error.message += f"; a value of the scenario is set by --set {written}"
            raise


_UsageError: Any = typer.BadParameter.__base__


def _key(name: str) -> str | None:
    """Write a change of the scenario's key of this name, or say what lists them if there are several."""
    from steadycast.reference import keys

    paths = [key.path for key in keys() if key.path.rpartition(".")[2] == name and not key.table]
    if len(paths) > 1:
        return f"PATH=VALUE (steadycast check --explain {name} lists the paths)"
    return f"{re.sub('^flow[.]', 'flow.NAME.', paths[0])}=…" if paths else None


_left: list[str] = []
"""What an interrupted command leaves behind, for the line that says so."""


def main() -> None:
    """Entry point: a user's mistake is one line on stderr, never a traceback."""
    with signals.obeyed():
        try:
            code = _run()
        except UserError as error:
            _tell(error)
            code = error.code
        except OSError as error:
            code = _unwritten(error)
        try:
            sys.stdout.flush()
        except OSError as error:
            code = _unwritten(error)
    raise SystemExit(code)


def _run() -> int:
    _left.clear()
    try:
        app(prog_name="steadycast")
    except KeyboardInterrupt:  # while the command line itself is being built
        _tell("interrupted")
        return Exit.INTERRUPTED
    except SystemExit as end:
        # Also when the interruption came before or after what a command guards itself.
        if end.code == Exit.INTERRUPTED:
            _tell("; ".join(["interrupted", *_left]))
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            return Exit.UNWRITTEN  # so the library says that stdout was closed
        return end.code if isinstance(end.code, int) else Exit.DONE
    return Exit.DONE


def _unwritten(error: OSError) -> Exit:
    """Tell what could not be written. A reader that closed its pipe needs no line.

    Raises:
        OSError: it was no writing that failed.

    """
    closed = isinstance(error, BrokenPipeError)
    if not closed and not full(error):
        raise error
    if error.filename is None:
        # Files are named; what is left in the buffer of standard output must not be tried again at the end.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not closed:
        _tell(
            UnwrittenError.of(error.filename or "standard output", error, "make room, or send it elsewhere")
        )
    return Exit.UNWRITTEN


def _tell(what: object) -> None:
    with suppress(OSError):  # a terminal that is gone
        print(f"steadycast: {what}", file=sys.stderr, flush=True)


def _module(name: str) -> Any:
    # By its full name: the package exports functions that are called like their modules.
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError(name, f"can't be loaded ({error})", "install steadycast again") from error


def _laboratory() -> Any:
    """Return the package `papers`: of the checkout that this program runs from, or of the current folder.

    Raises:
        MissingError: neither is a checkout.

    """
    for place in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (place / "papers" / "engine" / "suite.py").is_file():
            sys.path.insert(0, str(place))
            return _module("papers")
    raise MissingError(
        "reproduce",
        "the papers' experiments are not part of the installed package",
        "run this in a checkout of the repository, where papers/ is",
    )


def _examples(*lines: str) -> str:
    # A backspace character keeps the lines as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from steadycast import __main__

        print(__main__.version())
        raise typer.Exit(Exit.DONE)


@app.command(
    cls=_Scenario,
    short_help="Run a scenario.",
    epilog=_examples(
        "steadycast run home",
        "steadycast run home.toml -o home",
        "steadycast run home.toml --set flow.video.controller=tfrc -o home-tfrc",
        "steadycast run ci.toml --json",
        "steadycast run home.toml --seeds 1-5 -o home-5",
    ),
)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_SCENARIO, autocompletion=_completed)],
    out: Annotated[Path | None, _OUT] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Instead of the scenario's seed.")
    ] = None,
    seeds: Annotated[str | None, _SEEDS] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change a value: flow.NAME.KEY, link.NAME.KEY, topology.KEY. Repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
    vmaf: Annotated[bool, _VMAF] = False,
    film: Annotated[bool, _FILM] = True,
) -> None:
    """Run a scenario, and show who got what and what the viewers saw.

    Without -o the results go to runs/NAME; with --json alone they go nowhere but to stdout.
    """
    from steadycast.folder import free_or_force
    from steadycast.progress import Terminal

    if seed is not None and seeds is not None:
        raise UserError("--seeds", "--seed is given as well", "give one of the two")
    _changes(sets)
    many = seed_range(seeds) if seeds is not None else None
    file = scenario_at(file)
    place = out or (None if as_json else _free(Path("runs") / file.stem))
    if place is not None:
        free_or_force(place, force=force)

    whole = ""
    with ExitStack() as stack:
        # Its process starts before anything else is loaded here.
        ahead = (
            None if place is None or many else stack.enter_context(_module("steadycast.ahead").Ahead(place))
        )
        runner = _module("steadycast.run")
        common = {"sets": sets or (), "out": place, "force": force, "vmaf": vmaf}
        try:
            with Terminal() as progress:
                if many is not None:
                    summary = runner.run_seeds(file, seeds=many, progress=progress, **common)
                else:
                    common["film"], common["recorded"] = film and place is not None, ahead and ahead.draw
                    summary = runner.run(file, seed=seed, progress=progress, **common).summary
                if place is not None:
                    whole = f"the results are whole, without their report: steadycast report {place}"
                report = _write_report(place, ahead and ahead.drawings) if place is not None else None
        except KeyboardInterrupt as stop:
            _left.extend(getattr(stop, "__notes__", [whole] if whole else ()))
            raise typer.Exit(Exit.INTERRUPTED) from None
    _finish(summary, as_json=as_json, report=report)


@app.command(
    short_help="Run a small example, to a report with pictures.",
    epilog=_examples("steadycast demo", "steadycast demo --open", "steadycast demo -o first"),
)
def demo(
    out: Annotated[Path | None, _OUT] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the report in the browser.")] = False,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Run a video beside TCP on a link that is too small for both, and write a report with pictures.

    It is the built-in scenario demo. Without -o the results go to runs/demo, and replace those of an earlier demo.
    """
    import time

    from steadycast.progress import Terminal
    from steadycast.report import terminal

    began = time.monotonic()
    try:
        with Terminal() as progress:
            summary, page = _module("steadycast.demo").demo(
                out or Path("runs") / "demo", force=force or out is None, progress=progress
            )
    except KeyboardInterrupt as stop:
        _left.extend(getattr(stop, "__notes__", ()))
        raise typer.Exit(Exit.INTERRUPTED) from None
    terminal.console().print(terminal.flows(summary))
    for warning in summary["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"\n{time.monotonic() - began:.0f} s; report: {page}")
    if browse:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


@app.command(
    short_help="List the built-in scenarios, or copy them.",
    epilog=_examples(
        "steadycast scenarios", "steadycast scenarios --copy home", "steadycast scenarios --all"
    ),
)
def scenarios(
    copied: Annotated[
        list[str] | None,
        typer.Option("--copy", metavar="NAME", help="Copy this one, to change it. Repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Copy all.")] = False,
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="DIR", help="The folder for the copies; else the current one."),
    ] = Path(),
) -> None:
    """List the scenarios that come with the program, or copy them into a folder.

    `steadycast run NAME` runs one. A file NAME or NAME.toml in the current folder goes before the built-in one.
    """
    from steadycast import builtin

    if copied or every:
        for path in builtin.copy(builtin.names() if every else dict.fromkeys(copied or ()), out):
            print(path)
        return
    if out != Path():
        raise UserError("-o", "nothing is copied", "add --copy NAME or --all")
    from steadycast.report import terminal

    rows = [(name, builtin.about(name)) for name in builtin.names()]
    terminal.console().print(terminal.prose(rows, "name", "what it is"))


@app.command(
    short_help="Say what this machine can and can't do.",
    epilog=_examples("steadycast doctor", "steadycast doctor emulate", "steadycast doctor --json"),
)
def doctor(
    purpose: Annotated[
        str,
        typer.Argument(metavar="[COMMAND]", help="What it is asked for: run, emulate, send, receive or lab."),
    ] = "run",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Say what this machine can and can't do, each with its remedy.

    The exit code is 0 when COMMAND (run, if none is named) can work here, 3 when it lacks a right or a tool, and 4 when
    the cache can't be written.
    """
    examined = _module("steadycast.doctor").examine()
    lacking = examined.code(purpose)
    if as_json:
        _print_json(examined.json())
    else:
        from steadycast.report import terminal

        print(f"{examined.program}\n")
        console = terminal.console()
        console.print(terminal.prose(examined.rows(), "", "", "what is there, and the remedy"))
    if lacking != Exit.DONE:
        raise typer.Exit(lacking)


def _changes(sets: list[str] | None) -> None:
    for change in sets or []:
        if "=" not in change.strip("="):
            raise UserError(
                f"--set {change}",
                "this is not PATH=VALUE",
                "write for example --set flow.video.controller=tfrc",
            )


def _free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3 … that is free and that nobody writes at this moment."""
    from steadycast.folder import Claim

    tried, n = path, 1
    while tried.exists() or Claim.holder(tried) is not None:
        n += 1
        tried = path.with_name(f"{path.name}-{n}")
    return tried


def seed_range(text: str) -> range:
    """`1-5` as 1, 2, 3, 4, 5; `3` as 3.

    Raises:
        UserError: it is neither, or runs backwards.

    """
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash):
        seeds = range(int(first), int(last or first) + 1)
        if seeds:
            return seeds
    raise UserError(f"--seeds {text}", "this is not a range", "write for example --seeds 1-5")


def _write_report(place: Path, drawings: Callable[[], Drawings | None] | None = None) -> Path:
    from steadycast.folder import is_seeds
    from steadycast.report import write_report, write_seeds_report

    if not is_seeds(place):
        return write_report(place, drawings=drawings() if drawings is not None else None)
    for each in sorted(place.glob("seed-*")):
        if each.is_dir() and each.suffix != ".part":
            write_report(each)
    return write_seeds_report(place)


def _finish(summary: dict[str, Any], *, as_json: bool, report: Path | None) -> None:
    from steadycast.folder import failed

    if as_json:
        _print_json(summary)
    else:
        from steadycast.report import terminal

        console = terminal.console()
        for note in terminal.notes(summary):
            console.print(note, style="bold red")
        console.print(terminal.flows(summary))
        if (pauses := terminal.pauses(summary)) is not None:
            console.print()
            console.print(pauses)
        for warning in summary.get("warnings") or []:
            print(f"warning: {warning}", file=sys.stderr)
        _print_expectations(console, summary)
        if report is not None:
            # Not through the console: a path must not be wrapped.
            print(f"\nreport: {report}")
    if failed(summary):
        raise typer.Exit(Exit.FAILED)


def _print_expectations(console: Console, summary: dict[str, Any]) -> None:
    from steadycast.report import terminal

    table = terminal.expectations(summary)
    if table is not None:
        console.print()
        console.print(table)


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False))


@app.command(
    cls=_Scenario,
    short_help="Run a scenario at many points and with many seeds.",
    epilog=_examples(
        "steadycast sweep home.toml --over flow.video.controller=asmp,tfrc --seeds 1-10 -o controllers",
        "steadycast sweep home.toml --over topology.bottleneck.rate=1Mbps,2Mbps,4Mbps \\",
        "    --over flow.video.controller=asmp,tfrc --seeds 1-5 --baseline flow.video.controller=tfrc -o grid",
        "steadycast sweep home.toml --with design.csv --seeds 1-3 -o design",
        "steadycast sweep home.toml --seeds 1-100 --shard $SLURM_ARRAY_TASK_ID/16 -o shared",
        "steadycast sweep --collect -o shared",
    ),
)
def sweep(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help=_SCENARIO, autocompletion=_completed)
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="PATH=V1,V2",
            help="An axis: a path as in run's --set, and its values. Repeatable: all combinations.",
        ),
    ] = None,
    design: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="TABLE.csv", help="Points from a table: its heads are paths, its rows points."
        ),
    ] = None,
    seeds: Annotated[str | None, _SEEDS] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A change for all runs, as in run. Repeatable."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; without it all processors.")
    ] = None,
    pixels: Annotated[
        bool, typer.Option("--pixels", help="Decode and measure the pictures; takes its time.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="PATH",
            help="What is shown: a number of summary.json; with * the mean of what fits. Repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="PATH=V", help="Show differences from this value, paired by seed."
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Do part I of N alone, counted from 0 (job arrays)."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Do the runs on the workers of a Dask cluster."),
    ] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="Join the parts in DIR, and what an interrupted sweep left.")
    ] = False,
    out: Annotated[Path | None, _OUT] = None,
    force: Annotated[bool, typer.Option("--force", help="Begin anew in a folder that is there.")] = False,
) -> None:
    """Run a scenario at all combinations of values with several seeds each: a row per run in results.parquet.

    The same command does only what is missing or has failed; more values or seeds add runs. Without -o the results go
    to runs/NAME-sweep. A run that fails is a row with its error; the exit code is then 1.
    """
    import time

    from steadycast.report.terminal import console

    if out is None and (shard is not None or collect):
        raise UserError("-o", "it is missing", "give the DIR that all parts share")
    if not collect:
        if file is None:
            raise UserError("FILE", "it is missing", "name a scenario, or give --collect")
        file = scenario_at(file)
    elif file is not None or over or design or seeds or sets or shard or scheduler or jobs or pixels or force:
        raise UserError("--collect", "it runs nothing", "give only -o, --metric and --baseline with it")
    _changes(sets)
    sweeping = _module("steadycast.sweep")
    planning = _module("steadycast.sweep.plan")
    axes = [planning.axis(each) for each in over or []]
    planning.grid(axes)  # an axis that stands twice must be found before it is a dictionary's key
    part = planning.shard(shard) if shard is not None else None
    began = time.monotonic()
    try:
        if collect:
            done = sweeping.collect(out)
        else:
            assert file is not None
            done = sweeping.sweep(
                file,
                dict(axes),
                table=design,
                seeds=seed_range(seeds) if seeds is not None else None,
                set=sets or (),
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
        if part is None and done.results["complete"].any():
            from steadycast.sweep.show import tables

            for each in tables(done, metric or done.metrics(), baseline):
                console().print(each)
                print()
            # Not through the console: a path must not be wrapped.
            print(f"report: {done.report(metric or (), baseline)}")
    except KeyboardInterrupt as stop:
        _left.extend(getattr(stop, "__notes__", ()))
        raise typer.Exit(Exit.INTERRUPTED) from None
    if done.failed or (done.missing and part is None):
        raise typer.Exit(Exit.FAILED)


def _errors(done: Any) -> None:
    """Tell the first few errors of a sweep, each once."""
    errors = done.results["error"].drop_nulls().unique(maintain_order=True).to_list()
    for error in errors[:3]:
        _tell(error)
    if len(errors) > 3:
        _tell(f"{len(errors) - 3} more errors: column error of {done.folder / 'results.parquet'}")


def _programs(host: str | None, command: list[str] | None) -> list[tuple[str, list[str]]]:
    """Take a command apart at each ``--in HOST --`` in it."""
    if host is None or not command:
        return []
    programs = [(host, list[str]())]
    words = iter(range(len(command)))
    for n in words:
        if command[n] == "--in" and command[n + 2 : n + 3] == ["--"]:
            programs.append((command[n + 1], []))
            next(words), next(words)
        else:
            programs[-1][1].append(command[n])
    for name, words_ in programs:
        if not words_:
            raise UserError(f"--in {name}", "COMMAND is missing", "write --in HOST -- COMMAND for each host")
    return programs


@app.command(
    name="test-cases",
    short_help="Run the IETF's test cases with any controllers.",
    epilog=_examples(
        "steadycast test-cases rfc8867 --controllers scream,gcc,nada --seeds 1-5 -o cases",
        "steadycast test-cases rfc8867 --case 5.1 --case 5.6 --controllers tfrc",
        "steadycast test-cases rfc8867 --controllers my.py:Mine --json > cases.json",
    ),
)
def ietf_cases(
    rfc: Annotated[
        str,
        typer.Argument(metavar="RFC", help="rfc8867: its cases 5.1 to 6.3, and RFC 8869's cellular ones."),
    ],
    controllers: Annotated[
        str | None,
        typer.Option(
            "--controllers", metavar="A,B", help="Names, or FILE.py:Class; without it the whole registry."
        ),
    ] = None,
    seeds: Annotated[str, _SEEDS] = "1",
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="ID", help="This case alone. Repeatable.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; without it all processors.")
    ] = None,
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated",
            help="In real time, beside the kernel's TCP: those of up to 125 s, unless --case says which.",
        ),
    ] = False,
    out: Annotated[Path | None, _OUT] = None,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Run the IETF's test cases, and show RFC 8868's measures and which of the RFC's expectations hold.

    Without -o the results go to runs/RFC; with --json alone they go nowhere but to stdout. The exit code is 1 when an
    expectation fails with any seed.
    """
    from steadycast.folder import free_or_force
    from steadycast.progress import Terminal
    from steadycast.report import terminal

    if rfc != "rfc8867":
        raise UserError(rfc, "there are no test cases of this name", "write rfc8867")
    given = seed_range(seeds)
    place = out or (None if as_json else _free(Path("runs") / rfc))
    if place is not None:
        free_or_force(place, force=force)
    suites = _module("steadycast.cases")
    try:
        with Terminal() as progress:
            suite = suites.run_cases(
                [name.strip() for name in controllers.split(",")] if controllers is not None else (),
                seeds=given,
                case=case or (),
                jobs=jobs,
                emulated=emulated,
                out=place,
                force=force,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        _left.extend(getattr(stop, "__notes__", ()))
        raise typer.Exit(Exit.INTERRUPTED) from None
    if as_json:
        _print_json(suite.json())
    else:
        console = terminal.console()
        for each in _module("steadycast.cases.show").tables(suite):
            console.print(each)
            print()
        # Not through the console: a path must not be wrapped.
        print(f"report: {place}/report.html")
    for error in suite.errors[:3]:
        _tell(error)
    if suite.untrusted:
        _tell(f"the machine was too slow for these: {'; '.join(suite.untrusted)}")
    if suite.failed:
        raise typer.Exit(Exit.FAILED)


@app.command(
    cls=_Scenario,
    short_help="Run a scenario in real time, with the kernel's TCP.",
    context_settings={"allow_interspersed_args": True},
    epilog=_examples(
        "steadycast emulate home.toml -o home-real",
        "steadycast emulate home.toml --in video.dst1 --only -- ping -c 3 video.src",
        "steadycast emulate home.toml --pcap bottleneck",
    ),
)
def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_SCENARIO, autocompletion=_completed)],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="What runs in --in's host.")
    ] = None,
    out: Annotated[Path | None, _OUT] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Instead of the scenario's seed.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="As in run. Repeatable.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="HOST",
            help="Run COMMAND there beside the flows; the run ends with it. --in HOST2 -- COMMAND2 may follow.",
        ),
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="COMMAND alone, without the scenario's flows.")
    ] = False,
    pcap: Annotated[
        list[str] | None,
        typer.Option("--pcap", metavar="LINK", help="Capture a link's packets for Wireshark. Repeatable."),
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Leave aside what a kernel can't do, with a warning.")
    ] = False,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
    vmaf: Annotated[bool, _VMAF] = False,
    film: Annotated[bool, _FILM] = True,
) -> None:
    """Run a scenario in real time: hosts are network namespaces, links the simulator's own, TCP the kernel's.

    Needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN. Without -o the results go to runs/NAME-emulated;
    with --only, or with --json alone, they go nowhere.
    """
    from steadycast.folder import free_or_force

    file = scenario_at(file)
    if bool(command) != (host is not None):
        missing = "COMMAND" if host is not None else "--in HOST"
        raise UserError(
            "--in", f"{missing} is missing", "write --in HOST -- COMMAND, for example -- ping -c 3 r1"
        )
    place = out or (None if as_json or only else _free(Path("runs") / f"{file.stem}-emulated"))
    if place is not None:
        free_or_force(place, force=force)
    world = _module("steadycast.emulate")
    try:
        done = world.emulate(
            file,
            seed=seed,
            sets=sets or (),
            out=place,
            force=force,
            vmaf=vmaf,
            program=[world.Program(*of) for of in _programs(host, command)],
            only=only,
            pcap=pcap or (),
            approximate=approximate,
            film=film and place is not None,
        )
    except KeyboardInterrupt as stop:
        _left.extend(getattr(stop, "__notes__", ()))
        raise typer.Exit(Exit.INTERRUPTED) from None
    if not only or as_json:
        report = _write_report(place) if place is not None and done.run.summary["complete"] else None
        _finish(done.run.summary, as_json=as_json, report=report)
    if done.code:
        raise typer.Exit(done.code)


@app.command(
    cls=_Scenario,
    short_help="Run a scenario simulated and emulated, and set the two side by side.",
    epilog=_examples(
        "steadycast agree dumbbell.toml", "steadycast agree dumbbell.toml --seeds 1-3 -o agreement"
    ),
)
def agree(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_SCENARIO, autocompletion=_completed)],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="The folder for both worlds' results.")
    ] = None,
    seeds: Annotated[str, _SEEDS] = "1",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="As in run. Repeatable.")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Run a scenario simulated and emulated, and set the two side by side: one table, and one figure.

    "Not near" is a result: the exit code is 0. Needs the rights that emulate needs.
    """
    from steadycast.progress import Terminal

    file = scenario_at(file)
    try:
        with Terminal() as progress:
            found = _module("steadycast.agree").agree(
                file, seeds=seed_range(seeds), sets=sets or (), out=out, force=force, progress=progress
            )
    except KeyboardInterrupt as stop:
        _left.extend(getattr(stop, "__notes__", ()))
        raise typer.Exit(Exit.INTERRUPTED) from None
    if as_json:
        _print_json(found.json())
        return
    from steadycast.report import terminal

    terminal.console().print(found.table())
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if out is not None:
        print(f"\nfigure: {out / 'agree.png'}")


@app.command(
    short_help="Write report.html again, or save one of its figures.",
    epilog=_examples(
        "steadycast report home",
        "steadycast report home --pictures 250",
        "steadycast report home/seed-1 --film",
        "steadycast report home --figure rates -o rates.png",
    ),
)
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    pictures: Annotated[
        int | None,
        typer.Option(
            "--pictures", metavar="FRAME", min=0, help="Add this frame as sent and as received, side by side."
        ),
    ] = None,
    film: Annotated[
        bool,
        typer.Option(
            "--film", help="Film the ten seconds in which a viewer missed most, where there is no film yet."
        ),
    ] = False,
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure", metavar="NAME", help="Save one figure: rates, delay, mos, quality, why, queue or tcp."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Where the figure goes: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Write report.html again, or save one of its figures."""
    from steadycast.folder import Folder, is_seeds
    from steadycast.report import figures, write_report

    if figure is not None:
        target = out or Path(f"{directory.resolve().name}-{figure}.png")
        figures.save(Folder.open(directory), figure, target)
        print(target)
        return
    if out is not None:
        raise UserError(
            "-o",
            "only a figure can go elsewhere; a report stands in its folder",
            "add --figure NAME, or leave -o away",
        )
    if is_seeds(directory):
        if pictures is not None or film:
            raise UserError(
                str(directory),
                "this folder holds several seeds",
                f"name one of them, for example {directory}/seed-1",
            )
        print(_write_report(directory))
        return
    folder = Folder.open(directory)
    for name in folder.absent():
        table = folder.path / f"{name}.parquet"
        print(f"warning: {table}: missing: the report does without; run the scenario again", file=sys.stderr)
    if film and folder.film is None:
        from steadycast.progress import Terminal
        from steadycast.report.film import add

        with Terminal() as progress:
            add(folder, progress)
    shown = ""
    if pictures is not None:
        from steadycast.report.pictures import side_by_side

        shown = side_by_side(folder, pictures)
    print(write_report(folder, pictures=shown))


@app.command(
    short_help="Set runs side by side, against a baseline if there is one.",
    epilog=_examples(
        "steadycast compare home home-tfrc",
        "steadycast compare new --baseline main --fail-if 'flows.tcp.share_of_fair<-10%'",
        "steadycast compare new --baseline main --fail-if "
        "'flows.video.receivers.video.dst1.psnr_db.raw.y<-1'",
    ),
)
def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, of one seed or of several.")
    ],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="DIR", help="What the others are measured against.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="PATH<CHANGE or PATH>CHANGE against the baseline; a change is -10% or, in the value's "
            "own unit, -1. Repeatable.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page.")] = Path(
        "compare.html"
    ),
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Judge interrupted runs, and runs of other scenarios, too.")
    ] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Set runs side by side: one table, and one page with shared scales."""
    from steadycast import compare as comparison

    if fail_if and baseline is None:
        raise UserError("--fail-if", "there is nothing to measure against", "add --baseline DIR")
    conditions = [comparison.Condition.read(text) for text in fail_if or []]
    runs = comparison.read(directories)
    base = comparison.read([baseline])[0] if baseline is not None else None
    doubts = comparison.doubts(runs, base)
    if conditions and doubts and not anyway:
        raise UserError("--fail-if", "; ".join(doubts), "run them again, or add --anyway")
    for doubt in doubts:
        print(f"warning: {doubt}", file=sys.stderr)
    verdicts = comparison.judge(runs, base, conditions) if base is not None else []
    if as_json:
        _print_json(comparison.as_json(runs, base, verdicts))
    else:
        from steadycast.report import terminal

        console = terminal.console()
        console.print(comparison.answer(comparison.with_base(runs, base)))
        console.print()
        for table in comparison.tables(runs, base, verdicts):
            console.print(table)
            console.print()
        print(f"page: {comparison.write_page(runs, base, verdicts, out)}")
    if any(verdict.fails for verdict in verdicts):
        raise typer.Exit(Exit.FAILED)


@app.command(
    short_help="Encode clips at every quantizer.",
    epilog=_examples(
        "steadycast encode film.mkv",
        "steadycast encode a.mkv b.mkv --size cif --codec h264",
    ),
)
def encode(
    clips: Annotated[
        list[Path], typer.Argument(metavar="CLIP...", help="Videos, played one after the other.")
    ],
    codec: Annotated[str, typer.Option("--codec", help=_CODECS)] = "mpeg4",
    size: Annotated[str, typer.Option("--size", help='"cif", "clip" or "640x480".')] = "clip",
    fps: Annotated[str, typer.Option("--fps", help='"clip", or frames per second.')] = "clip",
    gop: Annotated[int, typer.Option("--gop", min=1, help="Frames from one I frame to the next.")] = 12,
    bframes: Annotated[
        int | None, typer.Option("--bframes", min=0, help="B frames between two others.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Save the figure: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Encode clips at every quantizer, and show quantizer, rate and quality."""
    from steadycast import encode as encoding
    from steadycast.progress import Terminal
    from steadycast.report import terminal

    with Terminal() as progress:
        steps = encoding.steps(
            clips, codec=codec, size=size, fps=fps, gop=gop, bframes=bframes, progress=progress
        )
    terminal.console().print(encoding.table(steps))
    if out is not None:
        encoding.draw(steps, out)
        print(out)


@app.command(
    short_help="Measure again what each receiver saw.",
    epilog=_examples("steadycast quality home", "steadycast quality home --json"),
)
def quality(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    as_json: Annotated[bool, _JSON] = False,
    vmaf: Annotated[bool, _VMAF] = False,
) -> None:
    """Decode again what each receiver got, and measure it. The folder stays as it is."""
    from steadycast import quality as measuring
    from steadycast.folder import Folder
    from steadycast.progress import Terminal
    from steadycast.report import terminal

    with Terminal() as progress:
        rows = measuring.measure(Folder.open(directory), progress, vmaf=vmaf)
    if as_json:
        _print_json(rows)
    else:
        terminal.console().print(measuring.table(rows))


@app.command(
    short_help="Write a run's tables for other programs.",
    epilog=_examples(
        "steadycast export home --csv",
        "steadycast export home --classic -o traces",
    ),
)
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    csv: Annotated[bool, typer.Option("--csv", help="All tables, packets.csv and control.csv.")] = False,
    classic: Annotated[
        bool, typer.Option("--classic", help="Multi-Evalvid-RA's sd_be_0 and rd_be_N.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="The folder for them; otherwise in the run's."),
    ] = None,
) -> None:
    """Write a run's tables for other programs."""
    from steadycast import export as writing
    from steadycast.folder import Folder

    if not csv and not classic:
        raise UserError("export", "no format is named", "add --csv, --classic or both")
    folder = Folder.open(directory)
    written: list[Path] = []
    if csv:
        written += writing.csv(folder, out or folder.path / "csv")
    if classic:
        written += writing.classic(folder, out or folder.path / "classic")
    for path in written:
        print(path)


@app.command(
    short_help="List the rate controllers, or show one.",
    epilog=_examples("steadycast controllers", "steadycast controllers asmp"),
)
def controllers(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One controller, with its parameters.")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """List the rate controllers, or show one with its parameters."""
    from steadycast.controllers import find, registry
    from steadycast.controllers import text as written

    chosen = [find(name)] if name is not None else list(registry())
    if as_json:
        from dataclasses import asdict

        _print_json([asdict(c) for c in chosen])
        return
    from steadycast.report import terminal

    console = terminal.console()
    if name is None:
        rows = [(c.name, c.cast, c.feedback, c.about) for c in chosen]
        console.print(terminal.prose(rows, "name", "cast", "feedback", "what it is"))
        console.print("\nParameters of one: steadycast controllers NAME")
        return
    one = chosen[0]
    needs = "".join(f"\nIt needs {need}: {about}" for need, about in one.needs)
    console.print(f"{one.name}: {one.about}\n{one.source}; {one.cast}, feedback {one.feedback}{needs}\n")
    if not one.params:
        console.print("It has no parameters.")
        return
    rows = [
        (
            p.name,
            written(p.default) + (f" (paper: {written(p.paper)})" if p.paper != p.default else ""),
            p.range,
            f"{p.about} [{p.source}]",
        )
        for p in one.params
    ]
    console.print(terminal.prose(rows, "parameter", "default", "range", "what it does"))


@app.command(
    short_help="Look for mistakes in a scenario.",
    epilog=_examples(
        "steadycast check home.toml", "steadycast check home.toml --set flow.video.controller=tfrc"
    ),
)
def check(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help=_SCENARIO, autocompletion=_completed, show_default=False),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="As in run. Repeatable.")
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="KEY", help='What a key means and takes: "flow.playout", or "playout".'
        ),
    ] = None,
) -> None:
    """Look for mistakes in a scenario, without running it; or explain a key."""
    from steadycast.controllers import core

    if explain is not None:
        from steadycast import reference

        print(reference.explain(explain))
        return
    if file is None:
        raise UserError("check", "no scenario is named", "write steadycast check FILE, or --explain KEY")
    file = scenario_at(file)
    problems = core().check(str(file), list(sets or []))
    for p in problems:
        line = f":{p['line']}" if p.get("line") else ""
        key = f" {p['key']}:" if p.get("key") else ""
        print(f"{p['file']}{line}:{key} {p['what']}; {p['remedy']}", file=sys.stderr)
    if problems:
        raise typer.Exit(Exit.MISUSED)
    # What `run` would warn of is said here, too.
    for warning in core().Scenario(str(file), list(sets or [])).warnings():
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{file}: no mistakes found")


@app.command(
    short_help="Print the scenario format as a JSON Schema.",
    epilog=_examples("steadycast schema > scenario.schema.json"),
)
def schema() -> None:
    """Print the scenario format as a JSON Schema, for editors."""
    import json

    from steadycast.controllers import core

    print(json.dumps(json.loads(core().schema()), indent=2, ensure_ascii=False))


@app.command(
    short_help="Move a scenario's values in the browser, and see what comes of them.",
    epilog=_examples(
        "steadycast lab",
        "steadycast lab home.toml lte.toml",
        "steadycast lab film.toml --allow-clips films",
        "steadycast lab --no-browser --port 9000",
        "steadycast lab --watch sent.jsonl --watch received.jsonl",
        "steadycast lab 'http://127.0.0.1:8765/#s=fVJ…'",
    ),
)
def lab(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Scenarios (TOML) to choose from, or a link that somebody shared. Without: home.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="Where it listens; the first free one from 8765 on."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    allow_clips: Annotated[
        Path | None,
        typer.Option("--allow-clips", metavar="DIR", help="A folder whose clips the page may choose from."),
    ] = None,
    watch: Annotated[
        list[Path] | None,
        typer.Option(
            "--watch",
            metavar="STATUS",
            help="Show a live session instead, by the file that send or receive appends its status to. At most two.",
        ),
    ] = None,
) -> None:
    """Serve a page on this machine alone: sliders beside the scenario's text, and charts that follow them.

    Two controllers stand side by side, with the frames that a viewer saw, the film, and why each rate was what it was.
    It takes the extra: pip install "steadycast[lab]". Ctrl-C ends it.
    """
    server = _module("steadycast.lab.server")
    if watch and (files or allow_clips is not None or len(watch) > 2):
        raise UserError("--watch", "it takes at most two files, and no scenario", "leave the others out")
    links = [each.partition("#")[2] for each in files or () if "#s=" in each]
    bases = [server.Base.read(Path(each)) for each in files or () if "#s=" not in each]
    server.serve(
        bases or ([] if watch else [server.Base.read(_home())]),
        port=port,
        watched=watch or (),
        clips=allow_clips,
        link=f"&{links[0]}" if links else "",
        opens=not no_browser,
        told=lambda address: print(f"lab: {address}", flush=True),
    )


def _home() -> Path:
    """Return the scenario that the lab begins with where none is named."""
    checkout = Path(__file__).resolve().parents[2] / "scenarios" / "home.toml"
    return checkout if checkout.is_file() else Path("home")


@app.command(
    short_help="Run a paper's experiments.",
    epilog=_examples(
        "steadycast reproduce",
        "steadycast reproduce K-A",
        "steadycast reproduce K --seeds 1-5 -o reproduced",
        "steadycast reproduce all",
        "steadycast reproduce M H-L C-F --emulated",
    ),
)
def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help='Experiments ("K-A"), families ("K"), or "all" for K to B; Q only by its name. Without: a list.',
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[str, _SEEDS] = "1-5",
    clip: Annotated[
        list[Path] | None,
        typer.Option(
            "--clip",
            metavar="FILE",
            help="A video instead of the papers' lost ones; without it a synthetic one. Repeatable.",
        ),
    ] = None,
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated",
            help="In real time, as root, beside the kernel's TCP: what can be, with the same simulated beside it.",
        ),
    ] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, max=64, help="Emulated runs at once.")
    ] = 4,
    out: Annotated[Path | None, _OUT] = None,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Run a paper's experiments: published beside measured, with a verdict for each statement.

    "Not reproduced" is a result: the exit code is 0. Runs are kept: a second time only what changed runs again.
    """
    try:
        _laboratory().main(
            ids or (), seed_range(seeds), out, clip or (), emulated=emulated, at_once=at_once, force=force
        )
    except KeyboardInterrupt:
        _left.append("finished runs are kept")
        raise typer.Exit(Exit.INTERRUPTED) from None


def _outlets(metrics: str | None, status: str | None, events: Path | None, *, as_json: bool) -> Any:
    if status == "-" and as_json:
        raise UserError("--status -", "--json has standard output", "give --status a file")
    return _module("steadycast.live.outlets").Options(metrics, status, events)


@app.command(
    short_help="Send a source live, at the rate that the network allows.",
    epilog=_examples(
        "steadycast send film.mkv --to 10.0.0.2:5004 --sdp film.sdp",
        "steadycast send testsrc --to 239.1.2.3:5004 --ttl 4 --interface eth0 --sdp test.sdp",
        "steadycast send greedy --to 10.0.0.2:5004 --controller tfrc --for 60s -o runs/live",
    ),
)
def send(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help='A video file, "testsrc", "greedy", "/dev/video0", or "-" for standard input.',
        ),
    ],
    to: Annotated[str, typer.Option("--to", metavar="A:P", help="A receiver's RTP address, or a group's.")],
    controller: Annotated[
        str, typer.Option("--controller", metavar="NAME", help="Who sets the rate.")
    ] = "asmp",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the controller. Repeatable."),
    ] = None,
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="repaired or paper.")] = "repaired",
    sdp: Annotated[
        Path | None, typer.Option("--sdp", metavar="FILE", help="Write the session description here.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option("--interface", metavar="I", help="By its name or its address.")
    ] = None,
    ttl: Annotated[
        int | None, typer.Option("--ttl", metavar="N", min=1, max=255, help="Time to live.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=1, max=65534, help="Own RTP port; RTCP comes to the next."),
    ] = None,
    mux: Annotated[bool, typer.Option("--mux", help="RTP and RTCP on one port.")] = False,
    max_rate: Annotated[
        str | None, typer.Option("--max-rate", metavar="R", help="Never more than this, for example 3Mbps.")
    ] = None,
    floor: Annotated[
        str | None, typer.Option("--floor", metavar="R", help="Never less than this; 50kbps without it.")
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Start the file again at its end.")] = False,
    ladder: Annotated[
        bool,
        typer.Option("--ladder", help="Encode the file at every quantizer before, not while it is sent."),
    ] = False,
    codec: Annotated[str, typer.Option("--codec", help=_CODECS)] = "mpeg4",
    size: Annotated[str, typer.Option("--size", help='"clip", "cif" or "640x480".')] = "clip",
    fps: Annotated[str, typer.Option("--fps", help='"clip", or frames per second.')] = "clip",
    gop: Annotated[
        int, typer.Option("--gop", min=1, max=600, help="Frames from one I frame to the next.")
    ] = 12,
    packet: Annotated[int, typer.Option("--packet", metavar="B", help="IP size of a full packet.")] = 1018,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="CNAME", help="A receiver whose reports do not count. Repeatable."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="Encrypt (SRTP) with the key in this file."),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="SIZE", help="Its receivers' play-out buffer, for example 16KiB."),
    ] = None,
    consume: Annotated[
        str | None,
        typer.Option("--consume", metavar="R", help="How fast it is emptied; else as the frames' times say."),
    ] = None,
    feedback: Annotated[
        str,
        typer.Option(
            "--feedback", metavar="FORMAT", help="How its receiver reports packets: own, rfc8888 or twcc."
        ),
    ] = "own",
    ecn: Annotated[
        str,
        typer.Option(
            "--ecn",
            metavar="AS",
            help="Packets leave as ect0 or ect1 (L4S) while the path keeps it; off. With --feedback rfc8888.",
        ),
    ] = "off",
    repair: Annotated[
        str,
        typer.Option(
            "--repair", metavar="HOW", help="What becomes of lost packets: auto, rtx, parity or none."
        ),
    ] = "auto",
    duration: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="End after this time, for example 30s.")
    ] = None,
    metrics: Annotated[str | None, _METRICS] = None,
    status: Annotated[str | None, _STATUS] = None,
    events: Annotated[Path | None, _EVENTS] = None,
    out: Annotated[Path | None, typer.Option("-o", metavar="DIR", help="The folder for the record.")] = None,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Send a source live, and show why the rate is what it is. Ctrl-C ends the session.

    The record is a run folder: report and compare work on it.
    """
    from steadycast.folder import free_or_force
    from steadycast.progress import Terminal

    if out is not None:
        free_or_force(out, force=force)
    live = _module("steadycast.live.send")
    options = live.Options(
        source=source,
        to=to,
        controller=controller,
        params=param or (),
        mode=mode,
        sdp=sdp,
        interface=interface,
        ttl=ttl,
        port=port,
        mux=mux,
        max_rate=max_rate,
        floor=floor,
        loop=loop,
        ladder=ladder,
        codec=codec,
        size=size,
        fps=fps,
        gop=gop,
        packet=packet,
        exclude=exclude or (),
        key_file=key_file,
        duration=duration,
        out=out,
        force=force,
        buffer=buffer,
        consume=consume,
        feedback=feedback,
        ecn=ecn,
        repair=repair,
        outlets=_outlets(metrics, status, events, as_json=as_json),
    )
    with Terminal() as progress:
        summary = live.send(options, progress)
    _finish(summary, as_json=as_json, report=_write_report(out) if out is not None else None)


@app.command(
    short_help="Receive a live session.",
    epilog=_examples(
        "steadycast receive film.sdp --out film.mkv",
        'steadycast receive film.sdp --play "ffplay -loglevel error -"',
        "steadycast receive 232.1.2.3:5004 --source 10.0.0.1 --interface eth0 --for 60s -o runs/received",
    ),
)
def receive(
    what: Annotated[str, typer.Argument(metavar="SDP|A:P", help="The sender's description, or an address.")],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="ADDR", help="The only sender that is wanted from a group."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the stream: raw (.m4v .m2v .264 .h263) or a container."
        ),
    ] = None,
    play: Annotated[
        str | None, typer.Option("--play", metavar="CMD", help="Pipe the stream into this command.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="CLIP", help="Measure the pictures against this clip."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="End after this time, for example 30s.")
    ] = None,
    mux: Annotated[bool, typer.Option("--mux", help="RTP and RTCP on one port.")] = False,
    interface: Annotated[
        str | None, typer.Option("--interface", metavar="I", help="By its name or its address.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option("--codec", help=f"{_CODECS[:-1]}, where no description says it.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="CNAME", help="What the sender's operator calls this receiver."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="The key of an encrypted stream (SRTP)."),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="SIZE", help="A play-out buffer, for example 16KiB."),
    ] = None,
    consume: Annotated[
        str | None,
        typer.Option("--consume", metavar="R", help="How fast it is emptied; else as the frames' times say."),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            "--latency", metavar="SPAN", help="How long lost packets are waited for; 300ms without it."
        ),
    ] = None,
    metrics: Annotated[str | None, _METRICS] = None,
    status: Annotated[str | None, _STATUS] = None,
    events: Annotated[Path | None, _EVENTS] = None,
    out: Annotated[Path | None, typer.Option("-o", metavar="DIR", help="The folder for the record.")] = None,
    as_json: Annotated[bool, _JSON] = False,
    force: Annotated[bool, _FORCE] = False,
) -> None:
    """Receive a live session until the sender ends it, or Ctrl-C."""
    from steadycast.folder import free_or_force

    if out is not None:
        free_or_force(out, force=force)
    live = _module("steadycast.live.receive")
    options = live.Options(
        what=what,
        source=source,
        out=file,
        play=play,
        reference=reference,
        duration=duration,
        mux=mux,
        interface=interface,
        codec=codec,
        name=name,
        key_file=key_file,
        folder=out,
        force=force,
        buffer=buffer,
        consume=consume,
        latency=latency,
        outlets=_outlets(metrics, status, events, as_json=as_json),
    )
    received = live.receive(options)
    _finish(received.summary, as_json=as_json, report=_write_report(out) if out is not None else None)
    if received.silent:
        _tell(f"{what}: nothing ever came; see whether the sender sends here, and what stands between")
        raise typer.Exit(Exit.SILENT)
