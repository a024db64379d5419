"""Runs one cell, which is one run of a pair of programs on a network, and computes its figures."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from steadycast import confine, hosts
from steadycast.contention import LONG_WAIT_S
from steadycast.emulate import emulate
from steadycast.judge import clip as clips
from steadycast.judge.pair import HOSTS, PLACES, Pair, filled, seconds
from steadycast.judge.score import Cell, FailedError, Figures, score, series
from steadycast.media import cache
from steadycast.networks import Network
from steadycast.progress import Silent
from steadycast.toml import document

AFTER_S = 5.0
"""Estimated time after a run, in seconds, in which the programs end and the figures are computed."""
SIGNALS = (("INT", 2.0), ("TERM", 5.0))
"""The signals that end programs, each with its time limit in seconds."""
PAUSE_S = 1.0
"""Pause between the end of the sender and the end of the receiver, in seconds. It lets packets in transit arrive."""
WAITED = 0.05
"""Figures are not trusted if a thread waits for a processor for more than this fraction of the time."""
DISTURBED = 0.01
"""The largest fraction of the scored time in which a thread may wait `LONG_WAIT_S` longer than usual for a processor.

The error of a delay exceeds `LONG_WAIT_S` for at most this fraction of the delays. So the reported 95th percentile of
the delay is at most `LONG_WAIT_S` above the true 96th percentile.
"""
TAKEN = 0.01
"""The largest fraction of the processors' time that the hypervisor may use.

The same limit applies to the real-time threads of other programs. The judged programs can't preempt the hypervisor and
these threads, so this fraction is the probability that a program must wait for a processor. Therefore, the limit is
the same as `DISTURBED`.
"""
LATE = 0.01
"""The largest fraction of the clip's pictures that the sender may get more than one picture interval late."""
_KEPT = "shown.y"
"""The file that contains the displayed pictures for VMAF."""
_LINES = 5
"""The report on a failed program includes this number of lines of the program's log."""
LEFT = "programs"
"""The subfolder that gets a copy of the files that the programs wrote."""
_SAID = {"session.sdp": 1 << 16, "stats.jsonl": 64 << 20, "look.tsv": 64 << 20}
"""Files of the programs that are copied to the results of a run, and their largest sizes in bytes."""
_ACCESS = {"rate": "1Gbps", "queue": {"kind": "droptail", "limit": "1000p"}}


@dataclass(frozen=True)
class Task:
    """A cell to run: a network, and the number of the run."""

    network: str
    run: int


@dataclass(frozen=True)
class Outcome:
    """The result of a cell."""

    network: str
    run: int
    figures: Figures = field(default_factory=dict)
    by: str | None = None
    failed: Mapping[str, Any] | None = None
    """The reason of a failure, the program, details, and the last lines of the program's log."""
    doubts: tuple[str, ...] = ()
    """The reasons why the figures are not trusted."""
    processors: float = 0.0
    """How many processors the pair's programs used on average."""
    series: Mapping[str, Any] = field(default_factory=dict)
    """Data for the page's diagrams over time."""
    lateness: Mapping[str, Any] = field(default_factory=dict)
    """How late the timers of the emulation expired, as statistics."""
    unknown: tuple[str, ...] = ()
    """The reasons why it is unknown whether the figures can be trusted."""


@dataclass(frozen=True)
class Setup:
    """The settings that all runs of a judgement share."""

    pair: Pair
    networks: Mapping[str, Network]
    folder: Path
    seed: int
    up: bool
    level: str | None
    rooms: Path
    """The folder in which each run has its own folder until it ends."""
    user: tuple[int, int] | None = None
    """User and group of the programs. `None` means the judge's own."""


def begin(setup: Setup) -> Callable[[Task], Outcome]:
    """Return a function that runs a task."""
    return lambda task: run(setup, task)


def scenario(setup: Setup, network: str, seed: int) -> dict[str, Any]:
    """Return the scenario that emulates a network for the pair of programs.

    Each background flow of the network gets its own hosts, which the programs of the pair do not use. The network's
    events are delayed by `pair.lead_s`, because the programs start in this time.
    """
    pair, of = setup.pair, setup.networks[network]
    shape, access = of.topology, of.topology.get("access", _ACCESS)
    used = [host for host in HOSTS if host != "relay" or any(p.on == host for p in pair.programs)]
    near, far = ("right", "left") if setup.up else ("left", "right")
    sides = {host: near if host == "sender" else far for host in used}
    flows = []
    for flow in of.flow:
        for n in range(flow.get("count", 1)):
            name = flow["name"] + (f"-{n + 1}" if flow.get("count", 1) > 1 else "")
            sides |= {f"{name}-from": near, f"{name}-to": far}
            ends = {"name": name, "from": f"{name}-from", "to": [f"{name}-to"]}
            flows.append({**{k: v for k, v in flow.items() if k != "count"}, **ends})
    events = [
        {**event, "at": f"{1e3 * (seconds(event['at'], f'{network}: event.at') + pair.lead_s):.3f}ms"}
        for event in of.event
    ]
    links = [{"name": f"access-{host}", "between": [host, side], **access} for host, side in sides.items()]
    whole = pair.lead_s + pair.seconds + 2 * AFTER_S + sum(patience for _, patience in SIGNALS)
    return {
        "format": 1,
        "name": "judge",
        "duration": f"{whole:g}s",
        "seed": seed,
        "nodes": [*used, "left", "right", *(node for node in sides if node not in used)],
        "link": [{"name": "bottleneck", "between": ["left", "right"], **shape["bottleneck"]}, *links],
        "flow": flows,
        "event": events,
    }


def folder_of(judgement: Path, task: Task) -> Path:
    """Return the folder that keeps the results of a run."""
    return judgement / "cells" / task.network.replace("/", "_") / str(task.run)


def run(setup: Setup, task: Task) -> Outcome:
    """Run a cell and score it. Keep its results in the folder that `folder_of` returns."""
    place = folder_of(setup.folder, task)
    place.parent.mkdir(parents=True, exist_ok=True)
    rooms = Rooms(setup.rooms / place.relative_to(setup.folder).with_name(f"{task.run}.work"))
    for old in (place, rooms.work):
        # Remove files of an interrupted run, so that they do not become results of this run.
        shutil.rmtree(old, ignore_errors=True)
    rooms.make(setup)
    table = scenario(setup, task.network, setup.seed + task.run - 1)
    (rooms.judge / "cell.toml").write_text(document(table), encoding="utf-8")
    folder = place.parent.stat()
    done = emulate(
        rooms.judge / "cell.toml",
        out=place,
        force=True,
        progress=Silent(),
        quality=False,
        program=_plan(setup, rooms, table["seed"]),
        only=not table["flow"],
        tap=[node for node in HOSTS if node in table["nodes"]],
    ).run
    if not os.path.samestat(folder, place.parent.stat()):
        # Refuse the results if their folder was replaced. A program that runs as the judge's user can rename folders.
        detail = f"{place.parent} is not the folder that was there when the programs began"
        return _failed(task, place, {"reason": "evidence-moved", "program": "", "detail": detail})
    for path in rooms.judge.iterdir():
        shutil.move(path, place / path.name)
    notes = confine.copy_left(rooms.cell, place / LEFT)
    if notes:
        (place / f"{LEFT}.txt").write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")
    shutil.rmtree(rooms.work, ignore_errors=True)
    take_said(setup.pair, place)
    cell = Cell(place, setup.pair, setup.up)
    told, emulation = cell.crew, done.summary["emulation"]
    if failed := next((each for each in told if each["what"] == "failed"), None):
        return _failed(task, place, failed)
    if setup.pair.pictures.source == "file" and setup.pair.clip is not None:
        with (place / "look.tsv").open("w") as log:
            clips.look_at_file(setup.pair.clip, place / LEFT / "out", setup.pair.pictures.crop, log)
    try:
        figures, by = score(cell, setup.level)
    except FailedError as error:
        return _failed(task, place, {"reason": error.reason, "program": "", "detail": error.detail})
    if setup.pair.pictures.vmaf:
        figures["vmaf"] = _vmaf(cell)
    loads = {each["program"]: each for each in told if each["what"] == "load"}
    ran = sum(load["ran_s"] for name, load in loads.items() if name not in ("feed", "look"))
    used = ran / (setup.pair.lead_s + setup.pair.seconds)
    why, unknown = tuple(doubts(cell, emulation)), tuple(unread(told))
    return Outcome(task.network, task.run, figures, by, None, why, used, series(cell), emulation, unknown)


@dataclass(frozen=True)
class Rooms:
    """The folders that are used during a run."""

    work: Path

    @property
    def judge(self) -> Path:
        """The folder of the judge. Programs can't write to it."""
        return self.work / "judge"

    @property
    def pipes(self) -> Path:
        """The folder of the pipes and the clip's files. Programs can open these, but not replace them."""
        return self.work / "pipes"

    @property
    def cell(self) -> Path:
        """The folder of the programs."""
        return self.work / "cell"

    def make(self, setup: Setup) -> None:
        """Create the folders. Give the user of the programs access to them."""
        for path in (self.judge, self.pipes, self.cell):
            path.mkdir(parents=True)
        if setup.user is None:
            return
        for path in (setup.rooms, *(each for each in self.pipes.parents if setup.rooms in each.parents)):
            # Set execute but not read permission, so that others can reach the paths inside but can't list the folder.
            path.chmod(path.stat().st_mode | 0o011)
        self.judge.chmod(0o700)
        self.pipes.chmod(0o755)
        os.chown(self.cell, *setup.user)


def take_said(pair: Pair, place: Path) -> None:
    """Copy a session description and, if the receiver is a browser, its measurements to the results.

    The programs have written these files. A file that is too large is left out.
    """
    wanted = ["session.sdp", *(["stats.jsonl", "look.tsv"] if pair.pictures.source == "browser" else [])]
    for name in wanted:
        said = place / LEFT / name
        if said.is_file() and said.stat().st_size <= _SAID[name]:
            os.link(said, place / name)


def _vmaf(cell: Cell) -> float | None:
    """Measure the VMAF of the pictures in the scored time. Then delete the pictures."""
    assert cell.pair.clip is not None
    rows = cell.rows("look.tsv", ("at", "number", "psnr", "least", "ssim")).drop_nulls("psnr")
    numbers = [int(number) for number in rows["number"]]
    counted = [cell.window[0] <= at - cell.began < cell.window[1] for at in rows["at"]]
    kept = cell.folder / _KEPT
    found = clips.vmaf_of(cell.pair.clip, kept, numbers, counted)
    kept.unlink()
    return found


def _failed(task: Task, place: Path, told: Mapping[str, Any]) -> Outcome:
    (place / _KEPT).unlink(missing_ok=True)
    log = place / f"{told['program']}.log"
    text = log.read_bytes()[: told.get("logged")].decode(errors="replace") if log.is_file() else ""
    lines = text.splitlines()[-_LINES:]
    failed = {"reason": told["reason"], "program": told["program"], "detail": told["detail"], "log": lines}
    return Outcome(task.network, task.run, failed=failed)


def doubts(cell: Cell, emulation: Mapping[str, Any]) -> Iterable[str]:
    """Yield the reasons why a run's figures are not trusted. Each reason has a cause and a remedy."""
    why = cause(cell.crew)
    if why.certain:
        yield f"{why.what}; {why.remedy}"
    because = f" ({why.what}; {why.remedy})" if why.what and not why.certain else ""
    if not emulation["trustworthy"]:
        share = f"{100 * emulation['late_frac']:.1f} %"
        yield f"{share} of the datagrams left the network more than 1 ms late{because}"
    for load in (each for each in cell.crew if each["what"] in ("load", "emulation")):
        # Skip the program `feed`, which writes the clip to a pipe. The times in feed.tsv are checked below instead.
        if (name := load.get("program", "the emulation")) == "feed":
            continue
        who = "the reader of the pictures" if name == "look" else name
        if load["waited"] > WAITED:
            yield f"{who} waited {100 * load['waited']:.0f} % of the time for a processor{because}"
        elif load["disturbed"] > DISTURBED:
            share = f"in {100 * load['disturbed']:.1f} % of the time"
            yield f"{who} waited {1e3 * LONG_WAIT_S:g} ms longer than usual for a processor {share}{because}"
    fed = cell.rows("feed.tsv", ("number", "due", "at"))
    if fed.height and cell.pair.clip is not None:
        # Check only the pictures in the scored time, because the start of the sender delays earlier pictures.
        low, high = (cell.began + at for at in cell.window)
        rate = float(cell.pair.clip.rate)
        begun = fed["due"][0] - fed["number"][0] / rate
        wanted = math.ceil((high - begun) * rate) - max(math.ceil((low - begun) * rate), 0)
        fed = fed.filter(pl.col("due") >= low, pl.col("due") < high)
        late = (fed["at"] - fed["due"] > 1 / rate).sum()
        if (missed := int(late) + max(wanted - fed.height, 0)) > LATE * wanted:
            ones = f"{missed} pictures of the clip"
            yield f"{ones} were given to the sender too late, or it read them too late{because}"


@dataclass(frozen=True)
class Cause:
    """What makes the threads of a run wait for a processor, and the remedy."""

    what: str = ""
    remedy: str = ""
    certain: bool = False
    """Whether this cause alone makes the figures untrustworthy, even if no thread was observed to wait."""


def cause(crew: Sequence[Mapping[str, Any]]) -> Cause:
    """Return what used most of the processors' time while a run was scored, as far as it is known."""
    machine = next((each for each in crew if each["what"] == "machine" and "span_s" in each), None)
    if machine is None:
        return Cause()
    count, span = machine["processors"], machine["span_s"]
    whole = max(span * count, 1e-9)
    taken = sum(each["ran_s"] for each in machine["realtime"])
    if taken > TAKEN * whole:
        most = machine["realtime"][0]
        # Names that begin like this belong to the threads of an emulation.
        kind = "another emulation, " if most["name"].startswith("sc-") else ""
        what = f"{kind}{most['name']}, {most['policy']}, priority {most['priority']}"
        which = f"process {most['process']} ({what})"
        share = f"{100 * taken / whole:.1f} % of the processors' time"
        what = f"real-time work of others took {share}, most of it {which}"
        return Cause(what, "end it, and judge one pair at a time", certain=True)
    if machine["stolen_s"] > TAKEN * whole:
        share = f"{100 * machine['stolen_s'] / whole:.1f} % of the processors' time"
        what = f"the hypervisor gave {share} to other guests"
        return Cause(what, "use a machine with processors of its own", certain=True)
    ran = sum(each["counted_ran_s"] for each in crew if each["what"] in ("load", "emulation"))
    others = max(machine["busy_s"] - ran, 0.0)
    used = f"of {count} processor{'s' if count > 1 else ''}"
    if others > ran:
        return Cause(f"other programs used {others / span:.1f} {used}", "end them")
    what = f"the cell itself used {ran / span:.1f} {used}"
    return Cause(what, "use more processors, or a smaller clip")


def unread(crew: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield the reasons why it is unknown whether other work on the machine disturbed a run."""
    found = [each for each in crew if each["what"] in ("load", "emulation", "machine")]
    for each in found:
        if each["unread"] is not None:
            who = each.get("program", f"the {each['what']}")
            yield f"whether {who} was disturbed is unknown: {each['unread']}"
    if not any(each["what"] == "machine" for each in found):
        yield "whether the machine was disturbed is unknown: the record of its processors is missing"


def _plan(setup: Setup, rooms: Rooms, seed: int) -> hosts.Plan:
    pair, clip = setup.pair, setup.pair.clip
    long = pair.lead_s + pair.seconds + AFTER_S
    used = pair.used
    values: dict[str, str] = {
        **dict.fromkeys(PLACES, ""),
        **HOSTS,
        "cell": str(rooms.cell),
        "here": str(pair.folder),
        "sdp": str(rooms.cell / "session.sdp"),
        "out": str(rooms.cell / "out"),
        "pictures": str(rooms.pipes / "pictures"),
        "clip.pipe": str(rooms.pipes / "clip"),
        "seconds": f"{pair.seconds:g}",
        "seed": str(seed),
    }
    own: list[hosts.Member] = []
    shown: list[tuple[str, str]] = []
    if clip is not None:
        for place, kind in (("clip", "mkv"), ("clip.y4m", "y4m")):
            if place in used:
                seen = rooms.pipes / f"clip.{kind}"
                seen.touch()
                shown.append((str(clip.file(kind, long)), str(seen)))
                values[place] = str(seen)
        serves: list[tuple[str, str, dict[str, Any]]] = []
        if "pictures" in used:
            kept = str(rooms.judge / _KEPT) if pair.pictures.vmaf else None
            more = {"format": pair.pictures.format, "crop": pair.pictures.crop, "kept": kept}
            serves.append(("look", "pictures", more))
        if "clip.pipe" in used:
            serves.append(("feed", "clip.pipe", {}))
        for what, place, more in serves:
            os.mkfifo(values[place])
            # Set the mode again, because the umask restricts the mode that `mkfifo` sets.
            os.chmod(values[place], 0o666 if setup.user else 0o600)
            words = clips.words_of(what, clip, Path(values[place]), rooms.judge / f"{what}.tsv", **more)
            own.append(hosts.Member(what, None, words, log=str(rooms.judge / f"{what}.log"), own=True))
    members = [
        hosts.Member(
            program.name,
            program.on,
            program.words(values),
            filled(program.ready, values),
            {name: filled(value, values) for name, value in program.env.items()},
            program.ends,
            str(rooms.judge / f"{program.name}.log"),
        )
        for program in pair.programs
    ]
    asked = [p.name for p in pair.programs if p.on == "sender"]
    asked += [p.name for p in pair.programs if p.on != "sender"]
    return hosts.Plan(
        [*own, *members],
        until_s=pair.lead_s + pair.seconds,
        counts_from_s=pair.lead_s,
        # This code runs in a worker process, whose parent process is the judge.
        judge=os.getppid(),
        asked=asked,
        signals=SIGNALS,
        pause_s=PAUSE_S,
        report=str(rooms.judge / "crew.jsonl"),
        confined=confine.Confinement(
            str(rooms.cell),
            [
                str(path)
                for path in dict.fromkeys((setup.rooms, setup.folder, cache.folder().absolute()))
                if path.is_dir()
            ],
            shown,
            setup.user,
        ),
    )
