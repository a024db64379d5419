"""How commands start and end, and the options that several commands have."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from steadycast import exits, hints, signals
from steadycast.errors import (
    MissingError,
    UncompiledError,
    UnwrittenError,
    UserError,
    full,
    reason,
    shortage,
)
from steadycast.exits import Exit
from steadycast.live.flow import FPS

if TYPE_CHECKING:
    from steadycast.report.page import Drawings


def option(written: str, about: str, **more: Any) -> Any:
    """Declare an option. ``written`` contains its names and then the name of its value: ``-o --out DIR``."""
    words = written.split()
    names = [word for word in words if word.startswith("-")]
    return typer.Option(*names, metavar=" ".join(words[len(names) :]) or None, help=about, **more)


def argument(written: str, about: str, **more: Any) -> Any:
    """Declare an argument. ``written`` is its name in the help."""
    return typer.Argument(metavar=written, help=about, **more)


class Commands(TyperGroup):
    """The list of commands. Its error messages suggest a remedy."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the name of the command."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if getattr(error, "option_name", "") and any(each in self.commands for each in args):
                error.message += "; write a command's options behind its name"
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument specifies."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            if "Did you mean" not in error.message:
                error.message = f"{error.message.rstrip('.')}; `steadycast --help` lists the commands"
            raise


app = typer.Typer(
    name="steadycast",
    cls=Commands,
    help="Video over RTP that shares the network fairly with TCP, and a laboratory that shows what every "
    "viewer will see.",
    # A backspace character makes click keep the line breaks of the paragraph.
    epilog=f"Start with: steadycast demo, then steadycast run home\n\n\b\nExit codes:\n{exits.listed()}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Command = TypeVar("Command", bound=Callable[..., None])
SCENARIO = "A scenario (TOML), or the name of a built-in one."
SET_HELP = "Change a value: flow.NAME.KEY, link.NAME.KEY, topology.KEY. Repeatable."
SEEDS = option("--seeds A-B", "The seeds from A to B, both included, or a list of seeds, such as 1,3,7-9.")


def completed(incomplete: str) -> list[str]:
    """Complete the name of a built-in scenario or of a TOML file."""
    from steadycast import builtin

    return _completed(builtin.names(), incomplete)


def network_completed(incomplete: str) -> list[str]:
    """Complete the name or the file of a network. In a list of networks, complete the last item."""
    from steadycast import networks

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{each}" for each in _completed([*networks.sets(), *networks.names()], last)]


def _completed(names: Iterable[str], incomplete: str) -> list[str]:
    from glob import escape, glob

    found = [name for name in names if name.startswith(incomplete)]
    return [*found, *sorted(glob(f"{escape(incomplete)}*.toml"))]


File = Annotated[Path, argument("FILE", SCENARIO, autocompletion=completed)]
RunFolder = Annotated[Path, argument("DIR", "A run folder.")]
Out = Annotated[Path | None, option("-o --out DIR", "The folder for the results.")]
Force = Annotated[bool, option("--force", "Replace existing results.")]
AsJson = Annotated[bool, option("--json", "Print the results as JSON on stdout, and nothing else.")]
Film = Annotated[bool, option("--film/--no-film", "Add a film of the worst ten seconds to the report.")]
Vmaf = Annotated[bool, option("--vmaf", "Also measure VMAF; needs imageio-ffmpeg, and takes longer.")]
By = Annotated[
    str,
    option(
        "--by HOW",
        "How shown pictures are paired with original ones. time: by the time of display; index: by "
        "their numbers, regardless of losses.",
    ),
]
SaveVideo = Annotated[
    Path | None,
    option(
        "--save-video PATH",
        "Save what each receiver saw: a file (.yuv, .y4m, .mkv, .mp4, .webm) or a folder (.mkv). "
        ".mkv, .mp4 and .webm have the received sound as well.",
    ),
]
Seed = Annotated[int | None, option("--seed N", "The seed, in place of the scenario's.")]
Sets = Annotated[list[str] | None, option("--set PATH=VALUE", SET_HELP)]
ClipName = Annotated[
    str | None, option("--clip NAME|FILE", "The clip of all video flows (steadycast clips lists names).")
]
Network = Annotated[
    str | None,
    option(
        "--network NAME|FILE",
        "The network, in place of the scenario's (steadycast networks lists names).",
        autocompletion=network_completed,
    ),
]
Jobs = Annotated[
    int | None, option("--jobs N", "The number of processes; by default one per processor.", min=1)
]
Fps = Annotated[str, option("--fps", f"{FPS} A .yuv file needs it, unless its name has it.")]
Size = Annotated[
    str,
    option(
        "--size",
        'The picture size: "cif", "640x480", or "clip" for the clip\'s own. A .yuv file needs it, '
        "unless its name has it.",
    ),
]
Pixels = Annotated[
    str | None,
    option("--pixel-format NAME", "A .yuv file's pixel format, by FFmpeg's name; by default yuv420p."),
]


class Numbers(TyperCommand):
    """A command that suggests a remedy in errors about arguments and numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            parameter = getattr(error, "param", None)
            if parameter is not None and "Input should be" in error.message:
                several = parameter.name == "seed" and any(each.name == "seeds" for each in self.params)
                error.message = _number_problem(
                    error.message, _value_of(given, parameter.opts), several=several
                )
            elif not error.message and (about := getattr(parameter, "help", None)):
                # The sentence is printed after "Missing argument 'FILE'."
                error.message = f"Give {about[0].lower()}{about[1:]}"
            elif error.message.startswith("Got unexpected extra"):
                error.message += f"; leave out what is in parentheses, or see {ctx.command_path} --help"
            raise


def _value_of(args: list[str], names: Sequence[str]) -> str:
    # Search from the end, because the last occurrence of an option counts.
    for word, following in reversed(list(zip(args, [*args[1:], ""], strict=True))):
        name, is_joined, value = word.partition("=")
        if name in names:
            return value if is_joined else following
    return ""


def _number_problem(found: str, value: str, *, several: bool) -> str:
    """Describe what is wrong with a number. ``several`` says whether the command has the option --seeds."""
    if bound := re.search(r"(greater|less) than or equal to (\S+)", found):
        size, way = ("small", "more") if bound[1] == "greater" else ("large", "less")
        return f"{value} is too {size}; take {bound[2]} or {way}"
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
        return f"{value} is not decimal; write {int(value, 16)}"
    if re.fullmatch(r"\d+([-,]\d+)+", value) and several:
        return f"{value} are several seeds; write --seeds {value}"
    return f"{value} is not a whole number; write for example 3"


class Scenario(Numbers):
    """A command with the option --set.

    If a user writes a scenario's key as an option, the error message suggests --set.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            told = str(error)
            if told.startswith("Option "):
                raise  # the option's value is missing or superfluous
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
    """Return the `--set` change for a scenario key. Return `None` if there is no such key."""
    from steadycast.reference import keys

    paths = [key.path for key in keys() if key.path.rpartition(".")[2] == name and not key.table]
    if len(paths) > 1:
        return f"PATH=VALUE (steadycast check --explain {name} lists the paths)"
    return f"{re.sub('^flow[.]', 'flow.NAME.', paths[0])}=…" if paths else None


left: list[str] = []
"""Sentences about results that an interrupted command leaves behind. They are printed in its last line."""


def main() -> None:
    """Run the command line. Print a user's mistake as one line on stderr, without a traceback."""
    _open_what_is_closed()
    lacking: UncompiledError | None = None
    with signals.obeyed():
        try:
            code = _run()
        except UncompiledError as error:
            lacking, code = error, error.code
        except UserError as error:
            tell(error)
            code = error.code
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a panic in a Rust library is no `Exception`
            code = _refused(error)
        try:
            # Flush now, because an error could not be reported when the interpreter flushes at its exit.
            sys.stdout.flush()
        except OSError as error:
            code = _refused(error)
        _leave_threads(code)
    if lacking is not None:
        compile_and_restart(lacking)
    raise SystemExit(code)


_STDERR = 2
"""Descriptor of standard error. The compiler writes to it, because a command may print JSON on standard output."""
_RESTARTED = "STEADYCAST_RESTARTED"
"""Environment variable that is set for the restarted command, so that it does not compile the module again."""


def compile_and_restart(lacking: UncompiledError) -> None:
    """Compile the Rust module in a checkout, and start this command again.

    The new start is needed because a loaded module can't be replaced.

    Print an error instead if the module can't be compiled here, or if the command was restarted before.
    """
    import subprocess

    from steadycast.core import SETUP

    # Do not compile as root in another user's checkout, because the user could not overwrite the files later.
    is_foreign = SETUP.exists() and os.geteuid() == 0 != SETUP.stat().st_uid
    if not SETUP.exists() or _RESTARTED in os.environ or is_foreign:
        tell(lacking)
        return
    tell("compiling the part of the module for real time, once (some minutes)")
    words = [sys.executable, str(SETUP), "--all"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False)
    except KeyboardInterrupt:
        tell("interrupted")
        return
    if done.returncode == 0:
        os.environ[_RESTARTED] = "1"
        os.execv(sys.executable, sys.orig_argv)
    tell(lacking)


def _open_what_is_closed() -> None:
    """Open closed standard streams, so that other files do not get their descriptors. Writes to stdout still fail."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
    # Print "?" for characters that the terminal's encoding lacks, for example in LC_ALL=de_DE.ISO-8859-1.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


_THREADS_S = 5.0
"""How long a command waits at its end for threads that are still running, in seconds."""


def _leave_threads(code: int) -> None:
    until = time.monotonic() + _THREADS_S
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    for each in others:
        if not each.daemon:
            each.join(max(0.0, until - time.monotonic()))
    if endless := [each.name for each in others if each.is_alive() and not each.daemon]:
        tell(f"left behind: the thread {', '.join(endless)}, which did not end in {_THREADS_S:g} s")
        # Exit at once, because a normal exit would wait for the thread.
        os._exit(code)


def _of(words: list[str]) -> typer.Typer:
    """Return an application with only the called command, because it is slow to build all commands."""
    named = {each.name or getattr(each.callback, "__name__", ""): each for each in app.registered_commands}
    alone = copy(app)
    alone.registered_commands = [named[word] for word in words if word in named] or app.registered_commands
    return alone


def _run() -> int:
    left.clear()
    # Refuse bytes that could not be decoded. Python represents them as lone surrogates, which can't be printed.
    for word in (*sys.argv[1:], os.environ.get("PWD", "")):
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            code = sys.getfilesystemencoding()
            raise UserError(
                repr(word), f"these bytes are no {code}", "rename it; in ASCII set LC_ALL=C.UTF-8"
            )
    try:
        with hints.on_command_line():
            _of(sys.argv[1:2])(prog_name="steadycast")
    except KeyboardInterrupt:  # while the command line is being built
        tell("interrupted")
        return Exit.INTERRUPTED
    except SystemExit as end:
        # Print the message here and not in `interruptible`, because a command may also be interrupted outside of an
        # `interruptible` block.
        if end.code == Exit.INTERRUPTED:
            tell("; ".join(["interrupted", *left]))
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            return Exit.UNWRITTEN  # click sets this wrapper if stdout was closed
        return end.code if isinstance(end.code, int) else Exit.DONE
    return Exit.DONE


_REMEDIES = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EACCES: "check its permissions, and those of the folders above it",
    errno.EPERM: "check its permissions, and those of the folders above it",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENFILE: "end other programs: this machine has no more open files",
}
"""Remedies for errors of the system about a file, by error number."""


def _refused(error: BaseException) -> Exit:
    """Report what the machine lacks, or which file could not be written or read.

    Print nothing if the reader of a pipe closed it.

    Raises:
        BaseException: any other error.

    """
    if (lack := shortage(error)) is not None:
        tell(lack)
        return lack.code
    if isinstance(error, ImportError) and not (error.name or "steadycast").startswith("steadycast"):
        cure = "install it again; `steadycast doctor` shows what is installed"
        tell(MissingError(str(error.name), f"can't be loaded ({error})", cure))
        return Exit.MISSING
    if not isinstance(error, OSError):
        raise error
    if error.filename is not None and (remedy := _REMEDIES.get(error.errno or 0)) is not None:
        tell(UserError(str(error.filename), reason(error), remedy))
        return Exit.MISUSED
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_current_folder():
        tell(UserError("the current folder", "it was removed", "go to another one by cd"))
        return Exit.MISUSED
    closed = isinstance(error, BrokenPipeError)
    if not closed and not full(error):
        raise error
    if error.filename is None:
        # Only errors of standard output have no file name. Replace standard output by the null device, because the
        # interpreter writes the rest of the buffer to it at its exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not closed:
        tell(UnwrittenError.of(error.filename or "standard output", error, "make room, or send it elsewhere"))
    return Exit.UNWRITTEN


def _has_current_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def tell(what: object) -> None:
    """Print a line on stderr."""
    with suppress(OSError):  # the terminal is closed
        print(f"steadycast: {what}", file=sys.stderr, flush=True)


def warn(warnings: Iterable[object]) -> None:
    """Print each warning as a line on stderr."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


class WarnOnce:
    """Prints each warning as a line on stderr, but prints equal warnings only once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, warnings: Iterable[object]) -> None:
        """Print the warnings that have not been printed yet."""
        new = [said for said in map(str, warnings) if said not in self._told]
        self._told.update(new)
        warn(new)


def module(name: str) -> Any:
    """Import a module by its full name.

    The package exports functions that have the names of modules, so an import from the package could return a function.
    """
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError(name, f"can't be loaded ({error})", "install steadycast again") from error


def command(about: str, *examples: str, **more: Any) -> Callable[[Command], Command]:
    """Declare a command, with its text in the list of commands and with examples for its help."""
    # A backspace character makes click keep the line breaks of the paragraph.
    listed = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
    return app.command(short_help=about, epilog=listed, **{"cls": Numbers, **more})


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, option("--version", "Print the version.")] = False,
) -> None:
    if version:
        from steadycast.core import core

        print(f"steadycast {core.__version__}")
        raise typer.Exit(Exit.DONE)


def changes(sets: list[str] | None, clip: str | None = None, network: str | None = None) -> list[str]:
    """Return a scenario's changes as PATH=VALUE: the network, the clip, and then the changes of `--set`."""
    for change in sets or []:
        if "=" not in change.strip("="):
            raise UserError(
                f"--set {change}",
                "this is not PATH=VALUE",
                "write for example --set flow.video.controller=tfrc",
            )
    named = {"network": network, "clip": clip}
    return [*(f"{key}={value}" for key, value in named.items() if value is not None), *(sets or [])]


@contextmanager
def place_of(out: Path | None, otherwise: Path | None, *, force: bool) -> Iterator[Path | None]:
    """Yield ``out``. Without it, reserve and yield the first free one of ``otherwise``, ``otherwise``-2 and so on."""
    from steadycast.folder import Claim, free_or_force

    if out is not None:
        free_or_force(out, force=force)
        yield out
    elif otherwise is None:
        yield None
    else:
        with Claim.first(otherwise) as place:
            yield place


@contextmanager
def interruptible() -> Iterator[list[str]]:
    """Exit with a message about the results that are left behind if the command is interrupted.

    The notes of the `KeyboardInterrupt` describe these results. Without notes, the texts of the yielded list are used.
    """
    otherwise: list[str] = []
    try:
        yield otherwise
    except KeyboardInterrupt as stop:
        left.extend(getattr(stop, "__notes__", otherwise))
        raise typer.Exit(Exit.INTERRUPTED) from None


_MOST_SEEDS = 100_000
"""The largest number of seeds in a list. A much longer list would not fit into memory."""


def seed_list(text: str, name: str = "--seeds") -> tuple[int, ...]:
    """Parse a range of seeds, for example `1-5`, or a single seed, or a list of both, for example `1,3,7-9`.

    ``name`` is the option whose value ``text`` is.
    """
    from steadycast.loading import SEED_MOST

    place, parts = f"{name} {text:.60}", text.split(",")
    ranges = [_seed_range(part, place, name, len(parts) == 1) for part in parts]
    # `len` fails for very long ranges.
    if (count := sum(each.stop - each.start for each in ranges)) > _MOST_SEEDS:
        first = ranges[0].start
        remedy = "give fewer seeds in each of several calls"
        if len(parts) == 1 and first + _MOST_SEEDS <= SEED_MOST:
            remedy = f"write {name} {first}-{first + _MOST_SEEDS - 1}"
        raise UserError(
            place, f"these are {count:,} seeds, and one call takes at most {_MOST_SEEDS:,}", remedy
        )
    if (most := max(each.stop - 1 for each in ranges)) > SEED_MOST:
        raise UserError(place, f"{most} is too large", f"take {SEED_MOST} or less")
    return tuple(dict.fromkeys(seed for each in ranges for seed in each))


def _seed_range(part: str, place: str, name: str, alone: bool) -> range:
    """Parse a range of seeds or a single seed. ``alone`` says whether the option ``name`` has only this part."""
    first, dash, last = part.strip().partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash) and len(part) < 40:
        seeds = range(int(first), int(last or first) + 1)
        if seeds.stop > seeds.start:
            return seeds
    wrong = "this is" if alone else f'"{part.strip():.40}" is'
    raise UserError(place, f"{wrong} not a range", f"write for example {name} 1-5 or {name} 1,3,5")


def write_report(place: Path, drawings: Callable[[], Drawings | None] | None = None) -> Path:
    """Write the report of a run. With several seeds, write a report for each seed and one for all seeds."""
    from steadycast.folder import is_seeds
    from steadycast.report.page import write_report
    from steadycast.report.run_comparison import write_seeds_report

    if not is_seeds(place):
        return write_report(place, drawings=drawings() if drawings is not None else None)
    for each in sorted(place.glob("seed-*")):
        if each.is_dir() and each.suffix != ".part":
            write_report(each)
    return write_seeds_report(place)


def finish(
    summary: dict[str, Any],
    *,
    as_json: bool,
    report: Path | None,
    warn: Callable[[Iterable[object]], None] = warn,
) -> None:
    """Print the results of a run. Exit with `Exit.FAILED` if one of its expectations failed."""
    from steadycast.folder import failed

    if as_json:
        print_json(summary)
    else:
        from steadycast.report import terminal
        from steadycast.report.answer import uncompared

        show(*uncompared(summary), style="bold red")
        show(terminal.flows(summary))
        for said in (terminal.unshared(summary), terminal.partly_competing(summary)):
            if said is not None:
                show(said)
        warn(summary.get("warnings") or ())
        for table in (
            terminal.pauses(summary),
            *terminal.simulcasts(summary),
            terminal.expectations(summary),
        ):
            if table is not None:
                show("", table)
        if report is not None:
            # Use `print`, because the console would wrap the path.
            print(f"\nreport: {report}")
    if failed(summary):
        raise typer.Exit(Exit.FAILED)


def show(*what: object, style: str | None = None) -> None:
    """Print tables and texts, each on lines of its own."""
    from steadycast.report import terminal

    console = terminal.console()
    for each in what:
        console.print(each, style=style)


def listed(rows: Sequence[Sequence[str]], *heads: str) -> None:
    """Print texts as a table whose last column is wrapped."""
    from steadycast.report import terminal

    show(terminal.prose(rows, *heads))


def print_json(value: object) -> None:
    """Print a value as JSON, for other programs."""
    import json

    print(json.dumps(value, ensure_ascii=is_limited(sys.stdout), indent=1, allow_nan=False))


def is_limited(stream: Any) -> bool:
    """Whether a stream's encoding lacks some characters."""
    return not str(getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")
