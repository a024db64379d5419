"""Executes one run of a sweep in a worker process. It computes only the figures of the summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadycast.core import core
from steadycast.loading import place_of
from steadycast.media.prepare import MediaKept, media_of
from steadycast.progress import Progress, Silent
from steadycast.result import Run
from steadycast.run_pipeline import Keep, Plan, Ready, conduct, drive
from steadycast.sweep.plan import Base, Task

if TYPE_CHECKING:
    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable

_KEPT = 8
"""Number of flows whose media a process keeps from one run to the next."""


@dataclass(frozen=True)
class Setup:
    """Settings that all worker processes of a sweep share."""

    base: Base
    pixels: bool
    more: Callable[[Run], Mapping[str, float | None]] | None = None
    """Returns additional figures, which are computed from the tables of a run."""


def begin(setup: Setup) -> Callable[[Task], bytes]:
    """Return the function that executes a task. It returns the row of the task as a line of JSON."""
    base, kept = setup.base, MediaKept(_KEPT)

    def made(video: Mapping[str, Any], seed: int, told: Progress | None) -> Ladder | FrameTable | None:
        """Return the media of a flow. Media that have pictures are not kept, because they would fill the memory."""
        return media_of(video, seed, told) if setup.pixels else kept.of(video, seed, told)

    def one(task: Task) -> bytes:
        row: dict[str, Any] = {"key": task.key, "seed": task.seed}
        found = "{}"
        try:
            plan = Plan.of(base.load(*task.sets), place_of(base.scenario), base.folder)
            ready = Ready.of(plan, Silent(), made=made)
            run, found = _done(ready, setup)
        except Exception as error:  # also catch a controller's errors, because no error may stop the sweep
            row |= {"complete": False, "error": f"{type(error).__name__}: {error}"}
        else:
            row |= {
                "complete": bool(run.summary["complete"]),
                "error": None,
                "record_sha256": run.summary["record_sha256"],
                "cpu_s": run.cost["cpu_s"],
            }
        head = json.dumps(row, ensure_ascii=False, allow_nan=False)
        return f'{head[:-1]}, "figures": {found}}}\n'.encode()

    return one


def _done(ready: Ready, setup: Setup) -> tuple[Run, str]:
    """Execute a run. Return the run without tables that are not needed, and its figures as JSON."""
    expected = ready.plan.loaded.expectations()
    if setup.pixels or setup.more or expected or not isinstance(ready.world, core.Simulation):
        run = conduct(ready, Silent(), Keep(quality=setup.pixels))
        found = figures(run.summary)
        return run, found if setup.more is None else json.dumps(json.loads(found) | setup.more(run))
    # Compute the figures directly, which is faster than computing a whole summary.
    complete, cost = drive(ready.world)
    sha256, found = ready.world.figures(complete)
    return Run({"complete": complete, "record_sha256": sha256}, cost, {}, ""), found


def failed(task: Task, error: BaseException) -> bytes:
    """Return the row of a task that could not be executed, as a line of JSON."""
    row = {"key": task.key, "seed": task.seed, "complete": False, "error": str(error)}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def figures(summary: Mapping[str, Any]) -> str:
    """Return all numbers of a summary as JSON. The keys are their paths, as `steadycast.folder.find` expects them."""
    return core.flat(json.dumps(summary))
