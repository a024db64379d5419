"""The figures of a report, drawn by a process of their own beside what else a run still has to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from steadycast.folder import Folder, Json
from steadycast.workers import Helper, cores

if TYPE_CHECKING:
    from steadycast.report.page import Drawings

Task = tuple[Path, Path, Json]
"""The folder in which the tables were written, the one that it becomes, and the summary."""


class FigurePrefetcher:
    """Figures that are drawn while the run that they show makes its film.

        with FigurePrefetcher(Path("runs/home")) as prefetcher:
            run(..., out="runs/home", recorded=prefetcher.draw)
            write_report("runs/home", drawings=prefetcher.drawings())

    The process loads what draws at the beginning of the block, beside the simulation. On one processor, and where the
    system is not POSIX, there is no process, and `drawings` has nothing.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._helper: Helper | None = None

    def __enter__(self) -> Self:
        if os.name == "posix" and cores() > 1:
            self._helper = Helper("steadycast.figure_prefetch:drawer")
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, also in the middle of a figure."""
        if self._helper is not None:
            self._helper.end()

    def draw(self, folder: Folder) -> None:
        """Let the figures of this folder be drawn: its tables stand in it, and its name may change."""
        if self._helper is not None:
            task: Task = (folder.path.absolute(), self._place.absolute(), folder.summary)
            self._helper.ask(task)

    def drawings(self) -> Drawings | None:
        """Wait for the figures; `None` where they were not drawn: the caller then draws them itself."""
        return self._helper.answer() if self._helper is not None else None


def drawer(_: object) -> Callable[[Task], Drawings]:
    """Return what draws the figures in the process."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
    import polars  # noqa: F401

    from steadycast.report.page import drawings

    def draw(task: Task) -> Drawings:
        part, place, summary = task
        # The process stands in the folder, and goes with it when it gets its name.
        try:
            os.chdir(part)
        except FileNotFoundError:
            os.chdir(place)
        return drawings(Folder(Path(), summary))

    return draw
