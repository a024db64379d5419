"""Runs a scenario in real time. Hosts are network namespaces, links are the simulator's, and TCP is the kernel's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from steadycast import hosts
from steadycast.arguments import typed
from steadycast.controller import Guest, check_start
from steadycast.core import core
from steadycast.errors import Problems, UserError
from steadycast.hints import named
from steadycast.loading import Sets, Source, changes, folder_of, load_with, place_of
from steadycast.progress import Progress, Silent, shown
from steadycast.result import Run
from steadycast.rootless import bare, need_rights
from steadycast.run_pipeline import Keep, Ladders, Made, Plan, Ready, stage


def _program() -> str:
    """Return how a user specifies a program: as an option on the command line, or as an argument in Python."""
    return named("--in HOST -- COMMAND", "program=Program(host, command)")


@dataclass(frozen=True)
class Program:
    """A program that runs on a host of the emulated network."""

    host: str
    command: Sequence[str]


@dataclass(frozen=True)
class Emulated:
    """The result of an emulation."""

    run: Run
    """The run and its record."""
    code: int | None
    """The program's exit code, or 128 plus the number of the signal that ended it. It is `None` without a program."""


@typed
def emulate(
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
    program: Program | Sequence[Program] | hosts.Plan | None = None,
    only: bool = False,
    pcap: Sequence[str] = (),
    approximate: bool = False,
    film: bool = False,
    tap: Sequence[str] = (),
) -> Emulated:
    """Run a scenario in real time on this machine's kernel, and measure the pictures that each receiver shows.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: replaces the scenario's seed.
        set: changes to the scenario, as for `run`.
        out: the path of the run folder to write. Without it, nothing is written.
        force: replace an existing folder.
        progress: callback that receives the progress. By default, a progress bar is shown if stderr is a terminal.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well.
        controllers: classes that control video flows, by the name of the flow.
        program: the program to run on a host beside the flows. The run ends when this program ends. If there are
            several programs, the run ends when the first program ends. The other programs are started before the first
            program and stopped after it. A `hosts.Plan` specifies starts and ends in detail.
        only: run the program alone, without the scenario's flows.
        pcap: names of links. Their packets are captured, in addition to the links that the scenario specifies.
        approximate: omit features that an emulation does not support, with a warning for each.
        tap: names of hosts. All their datagrams are recorded in the table `wire`.
        film: record the ten seconds with the worst picture quality as a film for the report. It needs ``quality``.

    Raises:
        UserError: the scenario, a clip or a controller is wrong, or requires a feature that the kernel lacks.
        MissingError: the permission to create network namespaces is missing.
        KeyboardInterrupt: Ctrl-C was pressed. If ``out`` is given, the partial results are in ``out``.part.

    """
    program = _one(program)
    if only and program is None:
        raise UserError(named("--only", "only"), "there is no program to run", f"add {_program()}")
    need_rights()
    classes = dict(controllers or {})
    sets = changes(set, seed=seed)
    if pcap:
        links = dict.fromkeys([*load_with(scenario, sets, classes).captured(), *pcap])
        captures = f"record.pcap={json.dumps(list(links))}"
        try:
            _ = load_with(scenario, [*sets, captures], classes)
        except UserError as error:
            raise UserError(named("--pcap", "pcap"), error.problem, error.remedy) from error
        sets.append(captures)
    plan = Plan.of(load_with(scenario, sets, classes), place_of(scenario), folder_of(scenario), classes)
    if program is None:
        plan.need_flows(f"write at least one [[flow]], or add {_program()}")
    alone = only or not plan.loaded.flows
    if not alone:
        plan = replace(plan, warnings=_left_aside(plan.loaded, approximate=approximate))
    command = None if program is None else (program.host, program.command)
    made: Made | None = (lambda *_: None) if alone else None  # if no flow runs, no clips are encoded
    worlds: list[core.Emulation] = []

    def build(loaded: core.Scenario, ladders: Ladders, steering: Mapping[str, Guest]) -> core.Emulation:
        worlds.append(core.Emulation(loaded, ladders, steering, command, alone, list(tap)))
        return worlds[0]

    with ExitStack() as stack:
        # Show no progress bar beside a program, because it would disturb the program's output in the terminal.
        told = progress or (stack.enter_context(shown()) if program is None else Silent())
        done = stage(
            lambda: Ready.of(plan, told, build, made),
            told,
            Keep(quality, vmaf, film),
            out,
            force=force,
            doing="emulating",
        )
        return Emulated(done, worlds[0].code)


def _left_aside(loaded: core.Scenario, *, approximate: bool) -> tuple[str, ...]:
    """Return a warning for each unsupported feature of the scenario.

    Raise an error instead unless ``approximate`` is set.
    """
    refused = core.refusals(loaded)
    if refused and not approximate:
        raise Problems(refused)
    return tuple(f"{p['key']}: left aside: {p['what']}" for p in refused)


def _one(programs: Program | Sequence[Program] | hosts.Plan | None) -> Program | None:
    if isinstance(programs, hosts.Plan):
        host = next(member.on for member in reversed(programs.members) if member.on is not None)
        return Program(host, programs.words)
    if programs is None or isinstance(programs, Program):
        programs = [] if programs is None else [programs]
    for each in programs:
        # Call `check_start` only for the errors that it raises. The core reports a program that does not exist, and
        # an empty command.
        for word in each.command[:1]:
            check_start(word, word)
    if len(programs) < 2:
        return Program(programs[0].host, bare(programs[0].command)) if programs else None
    # Start the first program last, so that the other programs are already running.
    members = [hosts.Member(str(n), each.host, list(each.command)) for n, each in enumerate(programs)]
    return _one(hosts.Plan(members[::-1], waits="0"))
