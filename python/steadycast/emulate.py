"""Runs a scenario in real time: hosts are network namespaces, links the simulator's own, TCP the kernel's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from steadycast import hosts
from steadycast.arguments import typed
from steadycast.controller import Guest
from steadycast.core import core
from steadycast.errors import Problems, UserError
from steadycast.hints import named
from steadycast.loading import Sets, Source, changes, folder_of, load, place_of
from steadycast.progress import Progress, Silent, shown
from steadycast.result import Run
from steadycast.rootless import bare, need_rights
from steadycast.run_pipeline import Keep, Ladders, Made, Plan, Ready, stage


def _program() -> str:
    """Name what gives a program to run."""
    return named("--in HOST -- COMMAND", "program=Program(host, command)")


@dataclass(frozen=True)
class Program:
    """Any program on a host of the emulated world."""

    host: str
    command: Sequence[str]


@dataclass(frozen=True)
class Emulated:
    """What an emulation comes to."""

    run: Run
    """The run and its record."""
    code: int | None
    """How the program ended: its exit code, or 128 and a signal's number; None without one."""


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
    """Run a scenario in real time, across this machine's kernel, and measure what each viewer saw.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: instead of the scenario's own.
        set: changes to it, as for `run`.
        out: where to write the run folder; without it nothing is written.
        force: replace a folder that is there.
        progress: told how far it is; by default a bar, where somebody looks.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well.
        controllers: classes that steer video flows, by the flows' names.
        program: runs on a host beside the flows; the run ends with it. Of several, on hosts of their own, it ends with
            the first, whose code is the run's; the others are started before it, and asked to end after it. A plan
            says more of when they start and end.
        only: the program alone, without the scenario's flows.
        pcap: links whose packets are captured, besides those that the scenario names.
        approximate: leave aside what this world can't honour, with a warning for each.
        tap: hosts whose datagrams, whoever sends them, are recorded one by one in the table `wire`.
        film: film the ten seconds in which a viewer missed most, for the report; only with ``quality``.

    Raises:
        UserError: the scenario, a clip or a controller is wrong, or asks what a kernel can't do.
        MissingError: the right to make network namespaces is missing.
        KeyboardInterrupt: somebody pressed Ctrl-C; with ``out``, what there is stands in ``out``.part.

    """
    program = _one(program)
    if only and program is None:
        raise UserError(named("--only", "only"), "there is no program to run", f"add {_program()}")
    need_rights()
    classes = dict(controllers or {})
    sets = changes(set, seed=seed, classes=classes)
    if pcap:
        links = dict.fromkeys([*load(scenario, sets).captured(), *pcap])
        sets.append(f"record.pcap={json.dumps(list(links))}")
    plan = Plan.of(load(scenario, sets), place_of(scenario), folder_of(scenario), classes)
    if program is None:
        plan.need_flows(f"write at least one [[flow]], or add {_program()}")
    alone = only or not plan.loaded.flows
    if not alone:
        plan = replace(plan, warnings=_left_aside(plan.loaded, approximate=approximate))
    command = None if program is None else (program.host, program.command)
    made: Made | None = (lambda *_: None) if alone else None  # without its flows a scenario needs none
    worlds: list[core.Emulation] = []

    def build(loaded: core.Scenario, ladders: Ladders, steering: Mapping[str, Guest]) -> core.Emulation:
        worlds.append(core.Emulation(loaded, ladders, steering, command, alone, list(tap)))
        return worlds[0]

    with ExitStack() as stack:
        # A program has the terminal to itself.
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
    """Say what this world can't honour, and leaves aside where that is allowed."""
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
    if len(programs) < 2:
        return Program(programs[0].host, bare(programs[0].command)) if programs else None
    # The first one is started last: it finds the others there.
    members = [hosts.Member(str(n), each.host, list(each.command)) for n, each in enumerate(programs)]
    return _one(hosts.Plan(members[::-1], waits="0"))
