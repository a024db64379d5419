"""Commands for emulation: a scenario in real time, and the same scenario simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steadycast.builtin import scenario_at
from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError


def _programs(host: str | None, command: list[str] | None) -> list[tuple[str, list[str]]]:
    """Split a command at each ``--in HOST --``."""
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


@base.command(
    "Run a scenario in real time, with the kernel's TCP.",
    "steadycast emulate home.toml -o home-real",
    "steadycast emulate home.toml --in video.dst1 --only -- ping -c 3 video.src",
    "steadycast emulate home.toml --pcap bottleneck",
    cls=base.Scenario,
    context_settings={"allow_interspersed_args": True},
)
def emulate(
    file: base.File,
    command: Annotated[
        list[str] | None, argument("[-- COMMAND...]", "The program to run on the host of --in.")
    ] = None,
    out: base.Out = None,
    seed: base.Seed = None,
    sets: base.Sets = None,
    host: Annotated[
        str | None,
        option(
            "--in HOST",
            "Run COMMAND on this host beside the flows, until COMMAND ends. More --in HOST2 -- COMMAND2 may follow.",
        ),
    ] = None,
    only: Annotated[bool, option("--only", "Run COMMAND without the scenario's flows.")] = False,
    pcap: Annotated[
        list[str] | None, option("--pcap LINK", "Capture a link's packets for Wireshark. Repeatable.")
    ] = None,
    clip: base.ClipName = None,
    network: base.Network = None,
    approximate: Annotated[
        bool,
        option("--approximate", "Leave out what an emulation does not support, with a warning for each."),
    ] = False,
    as_json: base.AsJson = False,
    force: base.Force = False,
    vmaf: base.Vmaf = False,
    film: base.Film = True,
) -> None:
    """Run a scenario in real time: hosts are network namespaces, and TCP is the kernel's.

    The links are those of the simulator. The command needs root, or a system on which every user may create user
    namespaces and open /dev/net/tun. Without -o the results go to runs/NAME-emulated; with --only, or with --json
    alone, nothing is written.
    """
    # This may start the command again in a user namespace.
    base.module("steadycast.rootless").enter()
    file = scenario_at(file)
    if bool(command) != (host is not None):
        missing = "COMMAND" if host is not None else "--in HOST"
        raise UserError(
            "--in", f"{missing} is missing", "write --in HOST -- COMMAND, for example -- ping -c 3 r1"
        )
    otherwise = None if as_json or only else Path("runs") / f"{file.stem}-emulated"
    world = base.module("steadycast.emulate")
    with base.place_of(out, otherwise, force=force) as place, base.interruptible():
        done = world.emulate(
            file,
            seed=seed,
            set=base.changes(sets, clip, network),
            out=place,
            force=force,
            vmaf=vmaf,
            program=[world.Program(*of) for of in _programs(host, command)],
            only=only,
            pcap=pcap or (),
            approximate=approximate,
            film=film and place is not None,
        )
    if not only or as_json:
        report = base.write_report(place) if place is not None and done.run.summary["complete"] else None
        base.finish(done.run.summary, as_json=as_json, report=report)
    if done.code:
        raise typer.Exit(done.code)


@base.command(
    "Run a scenario simulated and emulated, and compare the two.",
    "steadycast agree dumbbell.toml",
    "steadycast agree dumbbell.toml --seeds 1-3 -o agreement",
    cls=base.Scenario,
)
def agree(
    file: base.File,
    out: Annotated[Path | None, option("-o --out DIR", "The folder for the results of both worlds.")] = None,
    seeds: Annotated[str, base.SEEDS] = "1",
    sets: base.Sets = None,
    as_json: base.AsJson = False,
    force: base.Force = False,
) -> None:
    """Run a scenario simulated and emulated, and compare the two in a table and a figure.

    The exit code is 0 even if the two differ ("not near"). The command needs the same permissions as emulate.
    """
    from steadycast.progress import Terminal

    base.module("steadycast.rootless").enter()
    file = scenario_at(file)
    with base.interruptible(), Terminal() as progress:
        found = base.module("steadycast.world_agreement").agree(
            file, seeds=base.seed_list(seeds), set=sets or (), out=out, force=force, progress=progress
        )
    if as_json:
        base.print_json(found.json())
        return
    base.show(found.table())
    base.warn(found.warnings)
    if out is not None:
        print(f"\nfigure: {out / 'agree.png'}")
