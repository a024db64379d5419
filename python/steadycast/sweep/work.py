"""One run of a sweep in a worker process: its summary's figures, and nothing that only a folder would need."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadycast.progress import Silent
from steadycast.run import _Runner, media_facts
from steadycast.sweep.plan import Base, Task

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from steadycast import _core
    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable
    from steadycast.run import Columns
    from steadycast.scenario import Scenario

_KEPT = 8
"""How many flows' media a process keeps from run to run."""
_NOT_FIGURES = ("format", "scenario", "program", "world", "complete", "warnings", "record_sha256")
_NAMES = ("name", "id", "that", "direction")


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

        def _load(self, scenario: str | Path | Scenario, sets: Sequence[str]) -> _core.Scenario:
            return setup.base.load(*sets)

        def _tables(
            self, simulation: _core.Simulation | _core.Emulation
        ) -> dict[str, pl.DataFrame | Columns]:
            return super()._tables(simulation) if self.quality else {}

        def _simulated(self, done: float, of: float) -> None:
            pass  # the sweep counts whole runs

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
        try:
            run = Lean(setup.base.scenario, task.sets, Silent(), setup.pixels, False, {}).go(None, False)
        except Exception as error:  # also of a user's controller: the sweep goes on
            row |= {"complete": False, "error": f"{type(error).__name__}: {error}"}
        else:
            row |= {
                "complete": bool(run.summary["complete"]),
                "error": None,
                "record_sha256": run.summary["record_sha256"],
                "cpu_s": run.cost["cpu_s"],
                "figures": figures(run.summary),
            }
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    return one


def failed(task: Task, error: BaseException) -> bytes:
    """Return the row of a task that could not be run, as a line of JSON."""
    row = {"key": task.key, "seed": task.seed, "complete": False, "error": str(error)}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return each number of a summary under the path by which `steadycast.folder.find` finds it."""
    found: dict[str, float] = {}
    for key, value in summary.items():
        if key not in _NOT_FIGURES:
            _fill(found, key, value)
    return found


def _fill(found: dict[str, float], path: str, value: Any) -> None:
    # By the exact types of JSON: this runs hundreds of times per run.
    kind = type(value)
    if kind is float or kind is int:
        found[path] = float(value)
    elif kind is dict:
        for key, each in value.items():
            if each is not None and key not in _NAMES:
                _fill(found, f"{path}.{key}", each)
    elif kind is list:
        for row in value:
            if type(row) is dict:
                name = str(row.get("name", row.get("id", row.get("that", ""))))
                way = row.get("direction", "forward")
                _fill(found, f"{path}.{name}" if way == "forward" else f"{path}.{name}.{way}", row)
