"""One run of a sweep in a worker process: its summary's figures, and nothing that only a folder would need."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadycast import _core
from steadycast.progress import Silent
from steadycast.run import Run, _Runner, media_facts
from steadycast.sweep.plan import Base, Task

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable
    from steadycast.run import Columns
    from steadycast.scenario import Scenario

_KEPT = 8
"""How many flows' media a process keeps from run to run."""


@dataclass(frozen=True)
class Setup:
    """What the processes of a sweep are told."""

    base: Base
    pixels: bool


def begin(setup: Setup) -> Callable[[Task], bytes]:
    """Return what makes a task its row, as a line of JSON."""
    media: OrderedDict[str, Ladder | FrameTable | None] = OrderedDict()

    class Lean(_Runner):
        """A run that shares media with those before it, and makes no tables where no pictures are measured."""

        folder = setup.base.folder

        def _load(self, scenario: str | Path | Scenario, sets: Sequence[str]) -> _core.Scenario:
            return setup.base.load(*sets)

        def _tables(
            self, simulation: _core.Simulation | _core.Emulation
        ) -> dict[str, pl.DataFrame | Columns]:
            return super()._tables(simulation) if self.quality else {}

        def _simulated(self, done: float, of: float) -> None:
            pass  # the sweep counts whole runs

        def _record(self, simulation: _core.Simulation | _core.Emulation, *, complete: bool) -> Run:
            self.figures: str | None = None
            if self.quality or self.loaded.expectations() or not isinstance(simulation, _core.Simulation):
                return super()._record(simulation, complete=complete)
            # What a row needs, without the way over a summary.
            sha256, self.figures = simulation.figures(complete)
            return Run({"complete": complete, "record_sha256": sha256}, {}, {}, "")

        def _media_of(self, video: Mapping[str, Any]) -> Ladder | FrameTable | None:
            if self.quality:
                return super()._media_of(video)  # decoded pictures that stay would fill the memory
            # Frame sizes by Table II are drawn by the run's seed.
            name = f"{media_facts(video)} {self.loaded.seed if video['media'] == 'table2' else ''}"
            if name not in media:
                media[name] = super()._media_of(video)
            media.move_to_end(name)
            if len(media) > _KEPT:
                media.popitem(last=False)
            return media[name]

    def one(task: Task) -> bytes:
        row: dict[str, Any] = {"key": task.key, "seed": task.seed}
        found = "{}"
        try:
            runner = Lean(setup.base.scenario, task.sets, Silent(), setup.pixels, False, {})
            run = runner.go(None, False)
        except Exception as error:  # also of a user's controller: the sweep goes on
            row |= {"complete": False, "error": f"{type(error).__name__}: {error}"}
        else:
            row |= {
                "complete": bool(run.summary["complete"]),
                "error": None,
                "record_sha256": run.summary["record_sha256"],
                "cpu_s": run.cost["cpu_s"],
            }
            found = runner.figures or figures(run.summary)
        head = json.dumps(row, ensure_ascii=False, allow_nan=False)
        return f'{head[:-1]}, "figures": {found}}}\n'.encode()

    return one


def failed(task: Task, error: BaseException) -> bytes:
    """Return the row of a task that could not be run, as a line of JSON."""
    row = {"key": task.key, "seed": task.seed, "complete": False, "error": str(error)}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def figures(summary: Mapping[str, Any]) -> str:
    """Return each number of a summary under the path by which `steadycast.folder.find` finds it, as JSON."""
    from steadycast import _core

    return _core.flat(json.dumps(summary))
