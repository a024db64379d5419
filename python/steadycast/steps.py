"""The steps of a run, which `run`, `emulate`, a sweep and the lab each put together as they need them.

A plan says what is to run, a world runs it, and `Keep` says what is kept of its record.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import controller, files
from steadycast.clips import notices
from steadycast.core import core, program
from steadycast.errors import UnwrittenError, UserError
from steadycast.folder import FORMAT, TABLES, Draft, Folder, Json, judge, number
from steadycast.progress import Progress
from steadycast.result import Run, moved
from steadycast.table import Table, partly, scored, unscored

if TYPE_CHECKING:
    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable
    from steadycast.viewing import Record

    World = core.Simulation | core.Emulation  # a module without the part of real time has no `Emulation`

Ladders = Mapping[str, Mapping[str, object]]
"""Frame sizes as the core takes them, by the names of their flows."""
Build = Callable[[core.Scenario, Ladders, Mapping[str, controller.Guest]], "World"]
"""Makes a world of a scenario, its frame sizes and its classes: `core.Simulation`."""
Made = Callable[[Mapping[str, Any], int, Progress | None], "Ladder | FrameTable | None"]
"""Makes a flow's media: `media.prepare.media_of`."""

_LEAST_BPS = 4_000.0
"""What a session sends at the least: a packet of 1500 B each 3 s. Who asks for no more means another unit."""


@dataclass(frozen=True)
class Plan:
    """What is to run."""

    loaded: core.Scenario
    where: str
    """What errors call the scenario."""
    guests: Mapping[str, controller.Guest]
    """What steers video flows, of those that a class or a program steers."""
    warnings: tuple[str, ...] = ()
    """What the summary says besides what the core warns of."""

    @classmethod
    def of(
        cls, loaded: core.Scenario, where: str, folder: Path, classes: Mapping[str, type] | None = None
    ) -> Plan:
        """Find what steers flows: the classes given, and what the scenario names by a file in ``folder``."""
        given = classes or {}
        videos = loaded.videos()
        for flow in given:
            if all(v["flow"] != flow for v in videos):
                there = ", ".join(v["flow"] for v in videos) or "none"
                raise UserError(
                    f"controllers[{flow!r}]", "there is no such video flow", f"there are: {there}"
                )
        steering: dict[str, controller.Guest] = {
            v["flow"]: controller.checked(given[v["flow"]])
            if v["flow"] in given
            else controller.found(v["controller"], folder)
            for v in videos
            if v["flow"] in given or controller.is_outside(v["controller"])
        }
        return cls(loaded, where, steering)

    def need_flows(self, remedy: str = "write at least one [[flow]]") -> None:
        """Refuse a scenario without flows."""
        if not self.loaded.flows:
            raise UserError(f"{self.where}: flow", "there is none, so nothing would happen", remedy)


@dataclass(frozen=True)
class Keep:
    """What is kept of a run besides its numbers."""

    quality: bool = True
    """Pictures are decoded and measured."""
    vmaf: bool = False
    film: bool = False
    """Film the ten seconds in which a viewer missed most."""
    recorded: Callable[[Folder], None] | None = None
    """Called when the tables are written, before the film, with the folder in the making."""


@dataclass(frozen=True)
class Ready:
    """A plan with its media, and the world that was made of them."""

    plan: Plan
    media: Mapping[str, Ladder | FrameTable]
    """Frame sizes by the names of their flows; pictures stand behind those of a ladder."""
    world: World
    media_s: float
    """How long it took to make them, in seconds."""

    @classmethod
    def of(cls, plan: Plan, told: Progress, build: Build | None = None, made: Made | None = None) -> Ready:
        """Make media by ``made`` and the world by ``build``; without them by `media_of`, and the simulated one."""
        began = time.perf_counter()
        if build is None:
            plan.need_flows()
        videos = plan.loaded.videos()
        media: dict[str, Ladder | FrameTable] = {}
        if any(video["media"] != "greedy" for video in videos):
            from steadycast.media.prepare import media_of

            make = made or media_of
            found = {video["flow"]: make(video, plan.loaded.seed, told) for video in videos}
            media = {flow: each for flow, each in found.items() if each is not None}
        ladders = {flow: each.told() for flow, each in media.items()}
        world = (build or core.Simulation)(plan.loaded, ladders, plan.guests)
        return cls(plan, media, world, time.perf_counter() - began)

    @property
    def ladders(self) -> dict[str, Ladder]:
        """Those media behind which pictures stand."""
        if not self.media:
            return {}
        from steadycast.media.table import FrameTable

        # Not by the class `Ladder`, whose module loads the codecs.
        return {flow: each for flow, each in self.media.items() if not isinstance(each, FrameTable)}


def drive(world: World, told: Callable[[float, float], None] | None = None) -> tuple[bool, Json]:
    """Run a world; return whether its end was reached, and what it took. ``told`` how many seconds of how many."""
    own, cpu, wall = os.getpid(), time.thread_time(), time.perf_counter()
    try:
        complete = world.run(told)
    finally:
        # A copy of this process, which a user's controller has forked and let return, would go on as this one.
        if os.getpid() != own:
            os._exit(0)
    return complete, {"cpu_s": time.thread_time() - cpu, "wall_s": time.perf_counter() - wall}


def record_of(ready: Ready, *, complete: bool) -> Run:
    """Return what a world has recorded, before its pictures are measured."""
    plan, world = ready.plan, ready.world
    summary: Json = json.loads(world.summary(complete))
    summary["scenario"]["sha256"] = plan.loaded.sha256
    # In the order of the contract.
    summary = {"format": FORMAT, "scenario": summary["scenario"], "program": program(), **summary}
    tables = {name: Table(world.table(name)) for name in (*TABLES, "missing")}
    tables["frames"] = unscored(world.table("frames"))
    tables["wire"] = partly(world.table("wire"))
    for flow in summary["flows"]:
        if (ladder := ready.ladders.get(flow["name"])) is not None:
            flow["encoded"] = ladder.shape()
    summary["warnings"] = [
        *plan.loaded.warnings(),
        *summary["warnings"],
        *_media_warnings(ready),
        *_encoder_floor_warnings(ready, summary),
        *_class_warnings(plan, tables["decisions"]),
        *plan.warnings,
    ]
    return Run(summary, {}, tables, plan.loaded.toml())


def _media_warnings(ready: Ready) -> Iterator[str]:
    ladders = ready.ladders
    for video in ready.plan.loaded.videos():
        if video["media"] == "synthetic":
            yield (
                f"flow.{video['flow']}: no clip is set, so that a drawn film plays; the key clip names a film of yours"
            )
        yield from (f"flow.{video['flow']}: {notice}" for notice in notices(video.get("paths") or ()))
        if video["flow"] in ladders:
            yield from (f"flow.{video['flow']}: {warning}" for warning in ladders[video["flow"]].warnings)


def _encoder_floor_warnings(ready: Ready, summary: Json) -> Iterator[str]:
    """Warn of each video that takes more than its fair share even at the coarsest quantizer.

    Where the encoder's best quality holds the rate, the fair share is what that quality takes, and says nothing here.
    """
    from steadycast.report import say
    from steadycast.report.answer import MOSTLY

    for flow in summary["flows"]:
        ladder, fair = ready.ladders.get(flow["name"]), number(flow.get("fair_share_bps"))
        at_best = number((flow.get("limited_by_frac") or {}).get("encoder")) or 0.0
        if ladder is None or fair is None or at_best > MOSTLY:
            continue
        table = ladder.table
        least = 8 * float(table.fps) * float(table.sizes.mean(axis=1).min())
        if least > fair:
            yield (
                f"flow.{flow['name']}: its film takes {say.rate(least)} even at the coarsest quantizer, and its fair "
                f"share is {say.rate(fair)}: no controller can make it give way; take a smaller encode.size, a coarser "
                "encode.q, or a faster link"
            )


def _class_warnings(plan: Plan, decisions: Table) -> Iterator[str]:
    """Say who never asked for a rate at which anything can be sent: they meant another unit."""
    for flow, each in plan.guests.items():
        frame = decisions.frame
        # A receiver's rows say what it saw.
        decided = frame.filter((frame["flow"] == flow) & frame["limit"].is_not_null())
        most = decided["target_bps"].max()
        if isinstance(most, float) and most <= _LEAST_BPS:
            name = each.__qualname__ if isinstance(each, type) else each[0]
            yield (
                f"flow.{flow}: {name} never asked for more than {most:g} b/s; a rate is in bits per "
                "second: 2.5 Mb/s is 2.5e6"
            )


def measure(ready: Ready, done: Run, told: Progress, *, vmaf: bool = False) -> Record | None:
    """Put what the viewers saw into a run; return the record with it, or `None` where nothing has pictures."""
    ladders = ready.ladders
    if not ladders:
        return None
    from steadycast.viewing import FRAMES, MISSING, Record, Rows

    frames = Rows.of_core(done.tables["frames"].columns, FRAMES)
    missing = Rows.of_core(done.tables["missing"].columns, MISSING)
    record = Record(ready.plan.loaded.videos(), ladders, frames, missing, done.summary["from_s"])
    measured = record.measure(done.summary["flows"], told, vmaf=vmaf)
    done.tables["frames"] = scored(done.tables["frames"], measured)
    return replace(record, frames=frames.plus("psnr_y_db", measured.psnr_y_db))


def conduct(
    ready: Ready,
    told: Progress,
    keep: Keep,
    *,
    draft: Draft | None = None,
    captures: Path | None = None,
    doing: str = "simulating",
) -> Run:
    """Run a world, measure what its viewers saw, and judge what was expected.

    Args:
        ready: the world, with its plan and its media.
        told: told how far it is.
        keep: what is kept besides the numbers.
        draft: the folder in the making; what there is stands in it when the run is interrupted.
        captures: the folder for captured packets.
        doing: what progress is called while the world runs.

    """
    captured = _capture(ready, captures)
    done: Run | None = None
    try:
        complete, cost = drive(ready.world, lambda at, of: told(doing, round(at * 10), round(of * 10)))
        done = record_of(ready, complete=complete)
        began = time.perf_counter()
        seen = measure(ready, done, told, vmaf=keep.vmaf) if keep.quality else None
        if draft is not None:
            done.fill_tables(draft)
            for flow, written in ready.world.logs():
                if written:
                    draft.text(f"controller-{flow}.log", written.decode(errors="replace"))
            if keep.recorded is not None:
                keep.recorded(Folder(draft.part, done.summary))
        if keep.film and seen is not None:
            from steadycast.film import worst_seconds

            shown = worst_seconds(seen, done.summary["flows"], lambda at, of: told("filming", at, of))
            done = replace(done, film=shown)
    except KeyboardInterrupt:
        if draft is not None:
            left = done or record_of(ready, complete=False)
            left.fill(draft)
            draft.progress(left.summary)
        raise
    except UserError as error:
        if draft is not None and done is None and not isinstance(error, UnwrittenError):
            draft.discard()
        raise
    expectations = [{"that": t, "min": lo, "max": hi} for t, lo, hi in ready.plan.loaded.expectations()]
    done.summary["expect"] = judge(done.summary, expectations, place=ready.plan.where)
    done.cost.update(
        format=FORMAT,
        **cost,
        media_s=ready.media_s,
        quality_s=time.perf_counter() - began,
        packet_hops=ready.world.hops,
        peak_memory_bytes=_peak_memory(),
    )
    if draft is not None:
        done.fill_rest(draft)
    return replace(done, captures=captured)


def _capture(ready: Ready, folder: Path | None) -> dict[str, Path]:
    """Have the links that the scenario captures written to a folder; return their files."""
    links = ready.plan.loaded.captured()
    if folder is None or not links:
        return {}
    files.folder(folder, "make room, or capture less")
    ready.world.capture(folder)
    return {name: folder / f"{name}.pcapng" for name in links}


def stage(
    prepare: Callable[[], Ready],
    told: Progress,
    keep: Keep,
    out: Path | str | None,
    *,
    force: bool,
    doing: str = "simulating",
) -> Run:
    """Prepare and conduct a run, and write its folder while it goes on, if there is to be one."""
    from tempfile import TemporaryDirectory

    if keep.vmaf:
        from steadycast.media.vmaf import need

        need()
    if out is not None:
        # The folder is this run's before anything is encoded or simulated.
        with Draft(out, force=force) as draft:
            ready = prepare()
            draft.begin()
            done = conduct(ready, told, keep, draft=draft, captures=draft.part / "pcap", doing=doing)
            place = draft.finish(done.summary)
        return moved(done, place)
    ready = prepare()
    if not ready.plan.loaded.captured():
        return conduct(ready, told, keep, doing=doing)
    scratch = TemporaryDirectory(prefix="steadycast-")
    done = conduct(ready, told, keep, captures=Path(scratch.name), doing=doing)
    return replace(done, _scratch=scratch)


def _peak_memory() -> int:
    if os.name != "posix":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
