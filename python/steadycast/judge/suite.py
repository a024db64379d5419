"""Runs a pair of programs on all networks, repeats the runs that the machine disturbed, and writes the results."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from steadycast import confine
from steadycast.core import program
from steadycast.doctor import priority
from steadycast.errors import UserError
from steadycast.folder import Draft, Json
from steadycast.judge import text
from steadycast.judge.cell import AFTER_S, Outcome, Setup, Task, folder_of
from steadycast.judge.pair import Pair, need_tools, seconds
from steadycast.judge.score import LEVELS as LEVELS
from steadycast.judge.score import RECOVERED_S
from steadycast.judge.show import page
from steadycast.judge.text import Judgement
from steadycast.networks import Network, expanded, find
from steadycast.progress import Progress, Silent
from steadycast.rootless import need_rights
from steadycast.sweep import store
from steadycast.workers import LostError, Workers, cores

_SHARE, _MOST = 0.6, 8
"""The limits of parallel runs: the fraction of the processors that they may use, and their number."""
REPETITIONS = 1
"""How often a run is repeated if the machine was too busy during it."""


@dataclass(frozen=True)
class Asked:
    """What to judge, and how: the options of a judgement."""

    pair: Pair
    folder: Path = Path()
    """The folder to which relative paths of networks refer."""
    runs: int = 1
    jobs: int | None = None
    """The number of runs in parallel. If it is `None`, the number is derived from the load of the machine."""
    budget_s: float | None = None
    seed: int = 1
    up: bool = False
    level: str | None = None
    anyway: bool = False
    baseline: Path | None = None
    fail_if: Sequence[str] = ()
    keep: str | None = None
    """The text of an earlier judgement. Its figures are kept if the new figures differ little."""


@dataclass(frozen=True)
class Done:
    """The results of a finished judgement."""

    text: str
    json: Json
    fails: list[str]
    untrusted: list[str]
    """A sentence about each network whose figures are untrusted.

    Figures are untrusted if the machine was busy, or if its load is unknown.
    """
    warnings: list[str]
    """Other warnings, for example that some runs come from an interrupted judgement."""
    nothing_trusted: bool = False
    """Whether no network has trustworthy figures."""


def judge(asked: Asked, out: Path, *, force: bool = False, progress: Progress | None = None) -> Done:
    """Run the pair on all networks, and write the text, the numbers and the page into the folder ``out``.

    Raises:
        UserError: the pair, a network or a bound is wrong, or the judgement would exceed the time budget.
        MissingError: a program is missing, or the permission to create network namespaces.
        KeyboardInterrupt: Ctrl-C was pressed; a repeated call reuses the finished runs in ``out``.part, unless
            ``force`` is set.

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
    with Draft(out, force=force, mark="judge.json", goes_on=not force) as draft, ExitStack() as stack:
        if pair.clip is not None:
            told("preparing the clip", 0, 1)
            _prepare(pair)
        draft.begin()
        part = draft.part.absolute()
        user, warning = confine.user_for(pair.reads())
        rooms = stack.enter_context(confine.reachable(part, user))
        setup = Setup(pair, networks, part, asked.seed, asked.up, asked.level, rooms, user)
        tasks = [Task(name, run) for name in names for run in range(1, asked.runs + 1)]
        keys = {task: key_of(setup, task) for task in tasks}
        finished = finished_in(part, keys)
        remove_others(part, finished)
        with store.Part(part) as kept:
            outcomes = conducted(setup, keys, finished, kept, asked.jobs, told)
        shutil.rmtree(part / store.PARTS, ignore_errors=True)
        hashes = {name: _hash(asdict(of)) for name, of in networks.items()}
        judged = Judgement(pair, hashes, outcomes, _volatile(began, outcomes), asked.anyway)
        held = text.conditions(judged, asked.fail_if, asked.baseline), text.expectations(judged)
        whole = text.as_json(judged, *held)
        fails, doubted = text.fails(judged, *held), text.doubted(judged)
        nothing_trusted = not (asked.anyway or any(map(judged.trusted, judged.networks)))
        warnings = [warning] if warning else []
        if finished:
            what = (
                f"{len(finished)} of {len(tasks)} runs are from an interrupted judgement of the same programs"
            )
            warnings.append(f"{what}; --force repeats all of them")
        done = Done(text.text(judged, asked.keep), whole, fails, doubted, warnings, nothing_trusted)
        draft.text("judge.txt", done.text)
        draft.text("judge.html", page(judged, *held))
        draft.finish(whole)
    return done


def named(asked: str, folder: Path) -> dict[str, Network]:
    """Read the networks. ``asked`` contains sets, names and files relative to ``folder``. Duplicates are left out."""
    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if not parts:
        raise UserError("--networks", "there are none", "name a set, for example smoke, or networks")
    for part in parts:
        # Check the path before ".toml", because a suffix such as "+cubic" may follow it.
        path, suffix, _ = part.partition(".toml")
        if suffix and not (folder / f"{path}.toml").exists():
            remedy = "name a network's file, or one of those that `steadycast networks` lists"
            raise UserError(part, f"there is no file {(folder / path).absolute()}.toml", remedy)
    return {name: find(name, folder) for part in parts for name in expanded(part)}


def _changes(name: str, of: Network) -> set[float]:
    """Return the times at which a network changes. Only the first time of a periodic change is included."""
    changes = [(seconds(event["at"], f"{name}: event.at"), "every" in event) for event in of.event]
    first = min((at for at, _ in changes), default=0.0)
    return {at for at, again in changes if not (again and first < at)}


def lasts(name: str, of: Network) -> int:
    """Return how many seconds include all changes of a network and their effects. Return 0 without changes."""
    return math.ceil(max(changes) + RECOVERED_S + 1) if (changes := _changes(name, of)) else 0


def unseen(asked: Asked) -> list[str]:
    """Warn of network changes that occur after the end of the scored time."""
    found = []
    for name, of in named(asked.pair.networks, asked.folder).items():
        if late := [at for at in _changes(name, of) if at >= asked.pair.seconds]:
            what = f"{len(late)} of its changes come after the {asked.pair.seconds:g} s that are measured"
            found.append(f"{name}: {what}; --seconds {lasts(name, of)}s has all of them")
    return found


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def key_of(setup: Setup, task: Task) -> str:
    """Return a hash of everything on which the outcome of a run depends, including the files of the programs."""
    pair = setup.pair
    paths = [*pair.reads(), *([Path(pair.clip.source)] if pair.clip else [])]
    states = [(str(path), path.stat()) for path in paths if path.is_file()]
    # Use size and time of modification to identify the version of a program.
    programs = [(path, state.st_size, state.st_mtime_ns) for path, state in states]
    network = asdict(setup.networks[task.network])
    asked = (setup.seed, task.run, setup.up, setup.level)
    return _hash([asdict(pair), programs, task.network, network, asked, program()])


def finished_in(part: Path, keys: Mapping[Task, str]) -> dict[Task, Outcome]:
    """Return the outcomes in ``part``, the folder of an interrupted judgement.

    Outcomes whose keys have changed since then are left out.
    """
    rows = {row["key"]: row["outcome"] for row in store.rows(part)}
    found = {}
    for task, key in keys.items():
        if key in rows and folder_of(part, task).is_dir():
            reasons = {name: tuple(rows[key].get(name, ())) for name in ("doubts", "unknown")}
            found[task] = Outcome(**{**rows[key], **reasons})
    return found


def remove_others(part: Path, finished: Iterable[Task]) -> None:
    """Remove everything in the folder ``part`` except the ``finished`` runs."""
    for path in part.iterdir():
        if path.name not in ("judge.json", "cells", store.PARTS):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    kept = {folder_of(part, task) for task in finished}
    for path in (part / "cells").glob("*/*"):
        if path not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (part / "cells").glob("*"):
        if not any(path.iterdir()):
            path.rmdir()


def conducted(
    setup: Setup,
    keys: Mapping[Task, str],
    finished: Mapping[Task, Outcome],
    kept: store.Part,
    jobs: int | None,
    told: Progress,
) -> list[Outcome]:
    """Make all unfinished runs. If the machine was too busy during a run, repeat this run alone (`REPETITIONS`).

    Trusted outcomes are stored immediately, so that they can be used after an interruption.
    """
    tasks = list(keys)
    found = dict(finished)

    def run(some: Sequence[Task], at_once: int, what: str = "judging") -> None:
        fresh = 0
        with Workers("steadycast.judge.cell:begin", setup, min(at_once, len(some)), gently=True) as workers:
            for place, came in workers.do(some):
                task = some[place]
                if isinstance(came, LostError):
                    lost = {"reason": "lost", "program": "", "detail": str(came), "log": []}
                    came = Outcome(task.network, task.run, failed=lost)
                if isinstance(came, BaseException):
                    raise came
                found[task] = came
                if not came.doubts and came.failed is None:
                    row = {"key": keys[task], "outcome": asdict(came)}
                    kept.append(json.dumps(row).encode() + b"\n")
                fresh += 1
                again = what != "judging"
                told(what, fresh if again else len(found), len(some) if again else len(tasks))

    told("judging", len(found), len(tasks))
    rest = [task for task in tasks if task not in found]
    if jobs is None and rest:
        if not found:
            # Make the first run alone. Its load shows how many runs the machine can make at a time.
            run(rest[:1], 1)
            rest = rest[1:]
        jobs = _jobs(next(iter(found.values())).processors)
    if rest:
        run(rest, jobs or 1)
    for _ in range(REPETITIONS):
        if again := [task for task in tasks if found[task].doubts]:
            what = "repeating the runs for which the machine was too busy, one at a time"
            told(what, 0, len(again))
            run(again, 1, what)
    return [found[task] for task in tasks]


def _jobs(processors: float) -> int:
    """Return the number of runs in parallel if each run uses ``processors`` processors on average.

    Return 1 without real-time priority.
    """
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
    remedy = f"choose at most {fits} runs" if fits else "allow more"
    if longest >= 5:
        remedy = f"write --seconds {int(longest)}s" + (f", or choose at most {fits} runs" if fits else "")
    what = f"{networks * asked.runs} runs of {each:g} s take {rounds * each / 60:.1f} min"
    raise UserError(
        f"--budget {asked.budget_s:g}s"
        if asked.budget_s < 60
        else f"--budget {round(asked.budget_s / 60, 1):g}min",
        what,
        remedy,
    )


def _prepare(pair: Pair) -> None:
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
