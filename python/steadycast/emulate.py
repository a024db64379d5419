"""Runs a scenario in real time: hosts are network namespaces, links the simulator's own, TCP the kernel's."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.controller import named
from steadycast.errors import MissingError, UserError, need_linux
from steadycast.folder import free_or_force
from steadycast.progress import Progress, Silent, shown
from steadycast.run import Problems, Run, Sets, _Runner, _texts, load

if TYPE_CHECKING:
    from steadycast import _core
    from steadycast.scenario import Scenario


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


def emulate(
    scenario: str | Path | Scenario,
    *,
    seed: int | None = None,
    set: Sets = (),
    sets: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
    vmaf: bool = False,
    controllers: Mapping[str, type] | None = None,
    program: Program | Sequence[Program] | None = None,
    only: bool = False,
    pcap: Sequence[str] = (),
    approximate: bool = False,
    film: bool = False,
) -> Emulated:
    """Run a scenario in real time, across this machine's kernel, and measure what each viewer saw.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: instead of the scenario's own.
        set: changes to it, as for `run`.
        sets: the same; the two are added.
        out: where to write the run folder; without it nothing is written.
        force: replace a folder that is there.
        progress: told how far it is; by default a bar, where somebody looks.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well.
        controllers: classes that steer video flows, by the flows' names.
        program: runs on a host beside the flows; the run ends with it. Of several, on hosts of their own, it ends with
            the first, whose code is the run's; the others are started before it, and asked to end after it.
        only: the program alone, without the scenario's flows.
        pcap: links whose packets are captured, besides those that the scenario names.
        approximate: leave aside what this world can't honour, with a warning for each.
        film: film the ten seconds in which a viewer missed most, for the report; only with ``quality``.

    Raises:
        UserError: the scenario, a clip or a controller is wrong, or asks what a kernel can't do.
        MissingError: the right to make network namespaces is missing.
        KeyboardInterrupt: somebody pressed Ctrl-C; with ``out``, what there is stands in ``out``.part.

    """
    program = _one(program)
    if only and program is None:
        raise UserError("--only", "there is no program to run", "add --in HOST -- COMMAND")
    need_rights()
    if out is not None:
        free_or_force(Path(out), force=force)
    if vmaf:
        from steadycast.media.vmaf import need

        need()
    classes = dict(controllers or {})
    changes = [*_texts(set), *_texts(sets), *named(classes)]
    if seed is not None:
        changes.append(f"seed={seed}")
    if pcap:
        links = dict.fromkeys([*load(scenario, changes).captured(), *pcap])
        changes.append(f"record.pcap={json.dumps(list(links))}")
    with ExitStack() as stack:
        # A program has the terminal to itself.
        told = progress or (stack.enter_context(shown()) if program is None else Silent())
        runner = _Real(scenario, changes, told, quality, vmaf, classes)
        runner.program, runner.only, runner.approximate, runner.film = program, only, approximate, film
        if program is None:
            runner._need_flows("write at least one [[flow]], or add --in HOST -- COMMAND")
        elif not runner.loaded.flows:
            runner.only = True
        done = runner.go(out, force)
        return Emulated(done, runner.code)


def _one(programs: Program | Sequence[Program] | None) -> Program | None:
    """Make one program of several."""
    if programs is None or isinstance(programs, Program):
        return programs
    if len(programs) < 2:
        return programs[0] if programs else None
    told = json.dumps([(program.host, list(program.command)) for program in programs])
    return Program(programs[0].host, [sys.executable, "-m", "steadycast.hosts", told])


_SMALLEST = """
duration = "1s"
nodes = ["a", "b"]
[[link]]
between = ["a", "b"]
rate = "1Mbps"
[[flow]]
name = "x"
kind = "cbr"
rate = "1kbps"
from = "a"
to = ["b"]
"""


def need_rights() -> None:
    """Say so at once when this system, or a right to make networks, is missing: nothing else would help then.

    Raises:
        MissingError: one of them is.

    """
    from steadycast import _core

    need_linux(_core, "Emulation", "emulate")

    try:
        _core.Emulation(_core.Scenario("rights", [], _SMALLEST), {}, {})
    except PermissionError as error:
        what, _, remedy = str(error).partition("; ")
        raise MissingError("emulate", what, remedy or "run it as root") from None


class _Real(_Runner):
    """One run in real time, step by step."""

    doing = "emulating"
    program: Program | None = None
    only = False
    approximate = False
    code: int | None = None
    _left_aside: Sequence[str] = ()

    def _build(self, ladders: dict[str, dict[str, object]]) -> _core.Simulation | _core.Emulation:
        refused = [] if self.only else self.core.refusals(self.loaded)
        if refused and not self.approximate:
            raise Problems(refused)
        self._left_aside = [f"{p['key']}: left aside: {p['what']}" for p in refused]
        program = (self.program.host, list(self.program.command)) if self.program is not None else None
        try:
            made: _core.Emulation = self.core.Emulation(
                self.loaded, ladders, self.classes, program, self.only
            )
            return made
        except ValueError as error:
            if program is not None and str(error).startswith("no host"):
                remedy = "name a node of the scenario, or an end of one of its flows"
                raise UserError(f"--in {program[0]}", str(error), remedy) from None
            key, _, what = str(error).partition(": ")
            if not what:
                key, what = "emulate", key
            raise UserError(f"{self.where}: {key}", what, "change it in the scenario, or by --set") from None

    def _go(self, *args: Any) -> Run:
        try:
            return super()._go(*args)
        except ValueError as error:
            # The program, which starts when all else is ready.
            what, _, problem = str(error).partition(": ")
            raise MissingError(what, problem, "give its path, or install it") from None

    def _ladders(self) -> dict[str, dict[str, object]]:
        return {} if self.only else super()._ladders()

    def _measure(self, summary: Any, tables: Any) -> Any:
        return None if self.only else super()._measure(summary, tables)

    def _record(self, simulation: _core.Simulation | _core.Emulation, *, complete: bool) -> Run:
        self.code = getattr(simulation, "code", None)
        done = super()._record(simulation, complete=complete)
        done.summary["warnings"] += self._left_aside
        return done
