"""Judges other programs on named networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from steadycast import units
from steadycast.cli import base
from steadycast.cli.base import argument, option
from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.files import readable


@base.command(
    "Judge a pair of programs, a sender and a receiver, on networks.",
    "steadycast judge pair.toml --networks smoke -o judged",
    "steadycast judge pair.toml --networks wifi-bad,cable-5+cubic --runs 3",
    "steadycast judge --send 'iperf3 -u -b 5M -c {receiver}' --receive 'iperf3 -s' --networks leo",
    "steadycast judge pair.toml --baseline judge.json --fail-if '*.frozen_frac>0.05' --keep judge.txt",
)
def judge(
    file: Annotated[
        Path | None, argument("[FILE]", "A file (TOML) that describes the two programs (docs/judge.md).")
    ] = None,
    send: Annotated[
        str | None, option("--send COMMAND", "The command of the sender, instead of FILE.")
    ] = None,
    receive: Annotated[
        str | None, option("--receive COMMAND", "The command of the receiver, instead of FILE.")
    ] = None,
    networks: Annotated[
        str | None,
        option(
            "--networks A,B",
            "The networks: a set (smoke, standard), names (also with +cubic …), or files.",
            autocompletion=base.network_completed,
        ),
    ] = None,
    out: base.Out = None,
    seconds: Annotated[
        str | None, option("--seconds TIME", "The measured time of each run, for example 60s.")
    ] = None,
    runs: Annotated[
        int, option("--runs N", "The number of runs of each network; the worst value counts.", min=1, max=100)
    ] = 1,
    jobs: Annotated[
        str, option("--jobs N", "The number of runs at the same time; auto: as many as the processors allow.")
    ] = "auto",
    budget: Annotated[
        str | None,
        option("--budget TIME", "Refuse to start if the runs take longer than this, for example 20min."),
    ] = None,
    seed: Annotated[int, option("--seed N", "The seed of the networks' random numbers.")] = 1,
    direction: Annotated[str, option("--direction WAY", "The direction of the media: down, or up.")] = "down",
    level: Annotated[
        str | None,
        option(
            "--level LEVEL",
            "What is measured: wire, rtp, picture or browser; by default the most detailed level that works.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None, option("--baseline FILE", "An earlier judge.json, with which --fail-if compares.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        option(
            "--fail-if NETWORK.FIGURE>CHANGE",
            "Exit with code 1 if a figure has changed by more than this. Repeatable.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        option(
            "--keep FILE",
            "An earlier judge.txt. Its figures are printed again where the new ones are close to them.",
        ),
    ] = None,
    anyway: Annotated[
        bool, option("--anyway", "Also judge runs that are not trustworthy because the machine was busy.")
    ] = False,
    as_json: base.AsJson = False,
    force: base.Force = False,
) -> None:
    """Run a sender and a receiver in real time on networks, and score what is sent and shown.

    The command needs the same permissions as emulate. Without -o the results go to runs/judge-NAME: judge.txt,
    judge.json, judge.html and cells/NETWORK/RUN.
    """
    from steadycast.progress import Terminal

    base.module("steadycast.rootless").enter()
    pairs, suite = base.module("steadycast.judge.pair"), base.module("steadycast.judge.suite")
    if (file is None) == (send is None or receive is None):
        raise UserError(
            "judge",
            "FILE and the pair --send and --receive: neither is complete, or both are given",
            "give either FILE, or --send COMMAND and --receive COMMAND",
        )
    pair = pairs.read(file) if file is not None else pairs.of_commands(send, receive)
    if networks is not None:
        pair = replace(pair, networks=networks)
    if seconds is not None:
        pair = replace(pair, seconds=pairs.seconds(seconds, "--seconds"))
        pairs.need_time(pair.seconds, "--seconds")
    for name, value, among in (("--direction", direction, ("down", "up")), ("--level", level, suite.LEVELS)):
        if value is not None and value not in among:
            raise UserError(
                f"{name} {value}", "this is not one of its values", f"choose from: {', '.join(among)}"
            )
    if jobs != "auto" and units.whole(jobs, 1, 64) is None:
        raise UserError(
            f"--jobs {jobs}", "this is not a number of runs", "write auto, or a number from 1 to 64"
        )
    asked = suite.Asked(
        pair,
        file.parent if file is not None and networks is None else Path(),
        runs,
        None if jobs == "auto" else int(jobs),
        None if budget is None else pairs.seconds(budget, "--budget"),
        seed,
        direction == "up",
        level,
        anyway,
        baseline,
        fail_if or (),
        _text_of(keep),
    )
    base.warn(suite.unseen(asked))
    otherwise = Path("runs") / f"judge-{pair.name}"
    with (
        base.place_of(out, otherwise, force=force) as place,
        base.interruptible(),
        Terminal(lines=True) as progress,
    ):
        assert place is not None
        done = suite.judge(asked, place, force=force, progress=progress)
    if as_json:
        base.print_json(done.json)
    else:
        print(done.text, end="")
        # Use `print`, because the console would wrap the path.
        print(f"\nreport: {place}/judge.html")
    base.warn(done.warnings)
    for line in [*done.fails, *done.untrusted]:
        base.tell(line)
    if done.nothing_trusted:
        base.tell(
            "no cell can be trusted, so nothing is judged: the lines above have the reasons; --anyway judges all"
        )
    if done.fails or done.nothing_trusted:
        raise typer.Exit(Exit.FAILED)


def _text_of(path: Path | None) -> str | None:
    if path is None:
        return None
    with readable(path, "name an earlier judge.txt"):
        return path.read_text(encoding="utf-8")
