"""The steps of a run. `run`, `emulate`, sweeps and the lab combine them."""

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

    World = core.Simulation | core.Emulation  # `Emulation` is missing in a module built without `real-time`

Ladders = Mapping[str, Mapping[str, object]]
"""Frame sizes of each flow, in the format of the core. The keys are the names of flows."""
Build = Callable[[core.Scenario, Ladders, Mapping[str, controller.Guest]], "World"]
"""Builds a simulation or emulation from a scenario, its frame sizes, and its controllers from outside the core."""
Made = Callable[[Mapping[str, Any], int, Progress | None], "Ladder | FrameTable | None"]
"""Prepares the media of a flow. An example is `media.prepare.media_of`."""

_LEAST_BPS = 4_000.0
"""If a controller never requests a rate above this, its rates are probably not in bit/s.

The value is one packet of 1500 bytes every 3 s, in bit/s.
"""


@dataclass(frozen=True)
class Plan:
    """A scenario that was checked, and its controllers from outside the core."""

    loaded: core.Scenario
    where: str
    """How error messages refer to the scenario."""
    guests: Mapping[str, controller.Guest]
    """Controllers and switching rules from outside the core.

    The keys are scenario keys, such as ``flow.NAME.controller``.
    """
    warnings: tuple[str, ...] = ()
    """Warnings that the summary contains in addition to the core's warnings."""

    @classmethod
    def of(
        cls, loaded: core.Scenario, where: str, folder: Path, classes: Mapping[str, type] | None = None
    ) -> Plan:
        """Find the controllers and switching rules that are not in the core. File names are relative to ``folder``."""
        given = classes or {}
        videos = loaded.videos()
        steering: dict[str, controller.Guest] = {
            f"flow.{v['flow']}.controller": controller.checked(given[v["flow"]])
            if v["flow"] in given
            else controller.found(v["controller"], folder)
            for v in videos
            if v["flow"] in given or controller.is_outside(v["controller"])
        }
        steering |= {
            f"flow.{v['flow']}.switching": controller.found_switching(v["switching"], folder)
            for v in videos
            if v["switching"] is not None
        }
        return cls(loaded, where, steering)

    def need_flows(self, remedy: str = "write at least one [[flow]]") -> None:
        """Raise an error if the scenario has no flows."""
        if not self.loaded.flows:
            raise UserError(f"{self.where}: flow", "there is none, so nothing would happen", remedy)


@dataclass(frozen=True)
class Keep:
    """What a run keeps besides its numbers."""

    quality: bool = True
    """Whether the pictures are decoded and measured."""
    vmaf: bool = False
    film: bool = False
    """Whether to create a film of the ten seconds with the worst picture quality."""
    recorded: Callable[[Folder], None] | None = None
    """Called with the unfinished folder, after the tables and before the film are written."""


@dataclass(frozen=True)
class Ready:
    """A `Plan`, its media, and the simulation or emulation (the "world") that was built from them."""

    plan: Plan
    media: Mapping[str, Ladder | FrameTable]
    """Media of each flow.

    The keys are the names of flows. A ladder has pictures, a frame table has only frame sizes.
    """
    world: World
    media_s: float
    """How long it took to prepare the media and to build the world, in seconds."""

    @classmethod
    def of(cls, plan: Plan, told: Progress, build: Build | None = None, made: Made | None = None) -> Ready:
        """Prepare the media with the function ``made``, and build the world with the function ``build``.

        The defaults are `media_of` and `core.Simulation`.
        """
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
        """The media that have pictures. The keys are the names of flows."""
        if not self.media:
            return {}
        from steadycast.media.table import FrameTable

        # Do not import the module of `Ladder` for this test, because it would load the codecs.
        return {flow: each for flow, each in self.media.items() if not isinstance(each, FrameTable)}


def drive(world: World, told: Callable[[float, float], None] | None = None) -> tuple[bool, Json]:
    """Run a world, which is a simulation or an emulation.

    Returns whether it reached its end, and the processor time and wall-clock time in seconds. ``told`` is called with
    the simulated time so far and the total time, in seconds.
    """
    own, cpu, wall = os.getpid(), time.thread_time(), time.perf_counter()
    try:
        complete = world.run(told)
    finally:
        # End a forked child here. A user's controller may fork and let the child return. The child would also write the
        # results.
        if os.getpid() != own:
            os._exit(0)
    return complete, {"cpu_s": time.thread_time() - cpu, "wall_s": time.perf_counter() - wall}


def record_of(ready: Ready, *, complete: bool) -> Run:
    """Return the record of a run whose pictures are not yet measured."""
    plan, world = ready.plan, ready.world
    summary: Json = json.loads(world.summary(complete))
    summary["scenario"]["sha256"] = plan.loaded.sha256
    # Build the summary in this order of keys, because the order is documented.
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
    """Yield a warning for each video that exceeds its fair share or its cap even at the coarsest quantizer."""
    from steadycast.report import say
    from steadycast.report.answer import MOSTLY

    for flow in summary["flows"]:
        ladder, fair = ready.ladders.get(flow["name"]), number(flow.get("fair_share_bps"))
        # A video that has its best quality most of the time needs no warning.
        limits = flow.get("limited_by_frac") or {}
        at_best, at_cap = (number(limits.get(limit)) or 0.0 for limit in ("encoder", "cap"))
        if ladder is None or fair is None or at_best > MOSTLY:
            continue
        table = ladder.table
        least = 8 * float(table.fps) * float(table.sizes.mean(axis=1).min())
        if least > fair and at_cap > MOSTLY:
            yield (
                f"flow.{flow['name']}: its film takes {say.rate(least)} even at the coarsest quantizer, more than its "
                "cap permits: pictures are skipped or late; take a higher cap, a smaller encode.size, or a coarser "
                "encode.q"
            )
        elif least > fair:
            yield (
                f"flow.{flow['name']}: its film takes {say.rate(least)} even at the coarsest quantizer, and its fair "
                f"share is {say.rate(fair)}: no controller can make it give way; take a smaller encode.size, a coarser "
                "encode.q, or a faster link"
            )


def _class_warnings(plan: Plan, decisions: Table) -> Iterator[str]:
    """Yield a warning for each controller whose rate was never high enough to send.

    Such a controller probably uses another unit.
    """
    for flow in (video["flow"] for video in plan.loaded.videos()):
        if (each := plan.guests.get(f"flow.{flow}.controller")) is None:
            continue
        frame = decisions.frame
        # Leave out rows without `limit`. They are measurements of a receiver, not decisions.
        decided = frame.filter((frame["flow"] == flow) & frame["limit"].is_not_null())
        most = decided["target_bps"].max()
        if isinstance(most, float) and most <= _LEAST_BPS:
            name = each.__qualname__ if isinstance(each, type) else each[0]
            yield (
                f"flow.{flow}: {name} never asked for more than {most:g} b/s; a rate is in bits per "
                "second: 2.5 Mb/s is 2.5e6"
            )


def measure(ready: Ready, done: Run, told: Progress, *, vmaf: bool = False) -> Record | None:
    """Measure the picture quality, and add it to a run.

    Returns what the viewers saw, or `None` if the run has no pictures.
    """
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
    """Run a simulation or emulation, measure the received pictures, and check the scenario's expectations.

    Args:
        ready: the simulation or emulation, its plan and its media.
        told: callback that receives the progress.
        keep: the results that are kept in addition to the numbers.
        draft: the unfinished folder. An interrupted run leaves its partial results there.
        captures: the folder in which captured packets are written.
        doing: the label of the progress while the simulation or emulation runs.

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
            for name, written in ready.world.logs():
                if written:
                    draft.text(f"{name}.log", written.decode(errors="replace"))
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
        # After a write error, keep the partial folder. After any other error, remove the folder if there are no
        # results.
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
    """Start the captures that the scenario requests. Return their files by the names of the links."""
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
    """Prepare and execute a run. If ``out`` is given, the run's folder is written during the run."""
    from tempfile import TemporaryDirectory

    if keep.vmaf:
        from steadycast.media.vmaf import need

        need()
    if out is not None:
        # Lock the folder first, so that a conflict is noticed before minutes of encoding and simulation.
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
