"""Draws the figures of a report in a separate process, in parallel with the rest of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from steadycast.folder import Folder, Json
from steadycast.workers import Helper, cores

if TYPE_CHECKING:
    from steadycast.report.page import Drawings

Task = tuple[Path, Path, Json]
"""The unfinished folder that contains the tables, the folder's final path, and the summary."""


class FigurePrefetcher:
    """Draws a run's figures while the run creates its film.

        with FigurePrefetcher(Path("runs/home")) as prefetcher:
            run(..., out="runs/home", recorded=prefetcher.draw)
            write_report("runs/home", drawings=prefetcher.drawings())

    The process imports the drawing libraries during the simulation. `drawings` returns `None` without a process: on a
    single processor, without POSIX, or if the libraries are already imported here.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._helper: Helper | None = None

    def __enter__(self) -> Self:
        if os.name == "posix" and cores() > 1 and not drawing_is_imported():
            self._helper = Helper("steadycast.figure_prefetch:drawer")
        return self

    def __exit__(self, *_: object) -> None:
        if self._helper is not None:
            self._helper.end()

    def draw(self, folder: Folder) -> None:
        """Start to draw the figures of a folder whose tables are complete. The folder may be renamed during this."""
        if self._helper is not None:
            task: Task = (folder.path.absolute(), self._place.absolute(), folder.summary)
            self._helper.ask(task)

    def drawings(self) -> Drawings | None:
        """Wait for the figures and return them. Return `None` if they were not drawn."""
        return self._helper.answer() if self._helper is not None else None


def drawing_is_imported() -> bool:
    """Whether this process has already imported matplotlib. The import takes longer than the drawing."""
    return "matplotlib.figure" in sys.modules


def drawer(_: object) -> Callable[[Task], Drawings]:
    """Return the function that draws the figures in the separate process."""
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
    import polars  # noqa: F401

    from steadycast.report.page import drawings

    def draw(task: Task) -> Drawings:
        part, place, summary = task
        # Make the folder the current folder. It then remains accessible if the other process renames it.
        try:
            os.chdir(part)
        except FileNotFoundError:
            os.chdir(place)
        return drawings(Folder(Path(), summary))

    return draw
