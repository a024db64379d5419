"""A judgement: which cells are run, how many at once, which again, and what is written of them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from steadycast import confine
from steadycast.core import program
from steadycast.doctor import priority
from steadycast.errors import UserError
from steadycast.folder import Draft, Json
from steadycast.judge import text
from steadycast.judge.cell import AFTER_S, Outcome, Setup, Task
from steadycast.judge.pair import Pair, need_tools, seconds
from steadycast.judge.score import LEVELS as LEVELS
from steadycast.judge.score import RECOVERED_S
from steadycast.judge.show import page
from steadycast.judge.text import Judgement
from steadycast.networks import Network, expanded, find
from steadycast.progress import Progress, Silent
from steadycast.rootless import need_rights
from steadycast.workers import LostError, Workers, cores

_SHARE, _MOST = 0.6, 8
"""Of the processors that cells use together, and how many run at once at most."""


@dataclass(frozen=True)
class Asked:
    """How a pair is to be judged."""

    pair: Pair
    folder: Path = Path()
    """Where paths of networks begin."""
    runs: int = 1
    jobs: int | None = None
    """How many cells at once; `None`: as many as the machine carries."""
    budget_s: float | None = None
    seed: int = 1
    up: bool = False
    level: str | None = None
    anyway: bool = False
    baseline: Path | None = None
    fail_if: Sequence[str] = ()
    keep: str | None = None
    """An earlier text."""


@dataclass(frozen=True)
class Done:
    """A judgement, and what failed of it."""

    text: str
    json: Json
    fails: list[str]
    untrusted: list[str]
    """And of which networks the machine was too busy."""
    warnings: list[str]
    """What else is to be said of the programs."""
    nothing_trusted: bool = False
    """The machine was too busy in each of them."""


def judge(asked: Asked, out: Path, *, force: bool = False, progress: Progress | None = None) -> Done:
    """Run all cells, and write the text, the numbers and the page into the folder ``out``.

    Raises:
        UserError: the pair, a network or a bound is wrong, or it takes longer than the budget.
        MissingError: a program is not there, or the right to make network namespaces.
        KeyboardInterrupt: somebody pressed Ctrl-C; finished cells stand in ``out``.part.

    """
    pair, told = asked.pair, progress or Silent()
    networks = named(pair.networks, asked.folder)
    names = [*networks]
    _within_budget(asked, len(names))
    text.check(names, asked.fail_if, asked.baseline)
    for each in pair.expect:
        if each.network not in ("*", *names):
            _ = find(each.network, pair.folder)
    need_tools(pair)
    need_rights()
    began = time.time()
    with Draft(out, force=force, mark="judge.json") as draft, ExitStack() as stack:
        draft.begin()
        if pair.clip is not None:
            told("preparing the clip", 0, 1)
            _prepare(pair)
        part = draft.part.absolute()
        user, warning = confine.user_for(pair.reads())
        rooms = stack.enter_context(confine.reachable(part, user))
        setup = Setup(pair, networks, part, asked.seed, asked.up, asked.level, rooms, user)
        tasks = [Task(name, run) for name in names for run in range(1, asked.runs + 1)]
        outcomes = conducted(setup, tasks, asked.jobs, told)
        hashes = {
            name: hashlib.sha256(json.dumps(asdict(of), sort_keys=True).encode()).hexdigest()
            for name, of in networks.items()
        }
        judged = Judgement(pair, hashes, outcomes, _volatile(began, outcomes), asked.anyway)
        held = text.conditions(judged, asked.fail_if, asked.baseline), text.expectations(judged)
        whole = text.as_json(judged, *held)
        fails, doubted = text.fails(judged, *held), text.doubted(judged)
        nothing_trusted = not (asked.anyway or any(map(judged.trusted, judged.networks)))
        warnings = [warning] if warning else []
        done = Done(text.text(judged, asked.keep), whole, fails, doubted, warnings, nothing_trusted)
        draft.text("judge.txt", done.text)
        draft.text("judge.html", page(judged, *held))
        draft.finish(whole)
    return done


def named(asked: str, folder: Path) -> dict[str, Network]:
    """Read networks that are asked for by sets, names and files, which begin at ``folder``, each once."""
    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if not parts:
        raise UserError("--networks", "there are none", "name a set, for example smoke, or networks")
    return {name: find(name, folder) for part in parts for name in expanded(part)}


def _changes(name: str, of: Network) -> set[float]:
    """Return when a network changes; what comes again and again counts once."""
    changes = [(seconds(event["at"], f"{name}: event.at"), "every" in event) for event in of.event]
    first = min((at for at, _ in changes), default=0.0)
    return {at for at, again in changes if not (again and first < at)}


def lasts(name: str, of: Network) -> int:
    """Return how many seconds show all changes of a network, and what follows them; 0 where there are none."""
    return math.ceil(max(changes) + RECOVERED_S + 1) if (changes := _changes(name, of)) else 0


def unseen(asked: Asked) -> list[str]:
    """Say of each network which of its changes come when nothing counts any more: its cell does not show them."""
    found = []
    for name, of in named(asked.pair.networks, asked.folder).items():
        if late := [at for at in _changes(name, of) if at >= asked.pair.seconds]:
            what = f"{len(late)} of its changes come after the {asked.pair.seconds:g} s that count"
            found.append(f"{name}: {what}; --seconds {lasts(name, of)}s has all of them")
    return found


def conducted(setup: Setup, tasks: Sequence[Task], jobs: int | None, told: Progress) -> list[Outcome]:
    """Run all cells, and those again, alone, of which the machine was too busy."""
    found: dict[Task, Outcome] = {}

    def run(some: Sequence[Task], at_once: int, what: str = "judging") -> None:
        fresh = 0
        with Workers("steadycast.judge.cell:begin", setup, min(at_once, len(some)), gently=True) as workers:
            for place, came in workers.do(some):
                if isinstance(came, LostError):
                    lost = {"reason": "lost", "program": "", "detail": str(came), "log": []}
                    came = Outcome(some[place].network, some[place].run, failed=lost)
                if isinstance(came, BaseException):
                    raise came
                found[some[place]] = came
                fresh += 1
                again = what != "judging"
                told(what, fresh if again else len(found), len(some) if again else len(tasks))

    told("judging", 0, len(tasks))
    rest = list(tasks)
    if jobs is None:
        # The first runs alone, and says how many fit.
        run(rest[:1], 1)
        jobs = _jobs(next(iter(found.values())).processors)
        rest = rest[1:]
    if rest:
        run(rest, jobs)
    if again := [task for task in tasks if found[task].doubts]:
        what = "judging again, alone, what the machine was too busy for"
        told(what, 0, len(again))
        run(again, 1, what)
    return [found[task] for task in tasks]


def _jobs(processors: float) -> int:
    """How many cells may run at once, of which each takes so many processors; without priority one."""
    if priority().state != "ok":
        return 1
    return max(1, min(_MOST, int(_SHARE * cores() / max(0.05, processors))))


def _within_budget(asked: Asked, networks: int) -> None:
    if asked.budget_s is None:
        return
    pair = asked.pair
    each = pair.lead_s + pair.seconds + AFTER_S
    rounds = -(-networks * asked.runs // (asked.jobs or 1))
    if rounds * each <= asked.budget_s:
        return
    longest = asked.budget_s / rounds - pair.lead_s - AFTER_S
    fits = int(asked.budget_s / each) * (asked.jobs or 1)
    remedy = f"take {fits} cells at most" if fits else "allow more"
    if longest >= 5:
        remedy = f"take --seconds {int(longest)}s" + (f", or {fits} cells at most" if fits else "")
    what = f"{networks * asked.runs} cells of {each:g} s take {rounds * each / 60:.1f} min"
    raise UserError(f"--budget {asked.budget_s / 60:g}min", what, remedy)


def _prepare(pair: Pair) -> None:
    """Make what the cells take from the cache: its pictures, and the files that programs are given."""
    clip = pair.clip
    assert clip is not None
    _ = clip.raw()
    for place, kind in (("clip", "mkv"), ("clip.y4m", "y4m")):
        if place in pair.used:
            _ = clip.file(kind, pair.lead_s + pair.seconds + AFTER_S)


def _volatile(began: float, outcomes: Iterable[Outcome]) -> Json:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "took_s": round(time.time() - began, 1),
        "program": program(),
        "machine": {"system": platform.platform(), "processors": cores(), "load": list(os.getloadavg())},
        "cells": [
            {
                "network": o.network,
                "run": o.run,
                "processors": round(o.processors, 3),
                "emulation": o.lateness,
            }
            for o in outcomes
        ],
    }
