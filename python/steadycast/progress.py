"""Progress on stderr. It appears only in a terminal or notebook, and only if the work takes more than two seconds."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_PATIENCE_S = 2.0


@runtime_checkable
class Progress(Protocol):
    """A progress callback. It is called often, and decides itself how often it draws."""

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show the progress of the task ``what``: ``done`` of its parts are finished, and it has ``of`` parts."""


class Silent:
    """A progress callback that shows nothing."""

    def __call__(self, what: str, done: int, of: int) -> None:
        """Do nothing."""


def shown(*, rated: bool = False) -> AbstractContextManager[Progress]:
    """Return a progress display for the notebook or terminal in which the program runs.

    Elsewhere the display stays silent. ``rated`` also shows the speed.
    """
    shell = sys.modules.get("IPython")
    kernel = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    return Notebook() if kernel else Terminal(rated=rated)


class Notebook:
    """A bar under the notebook's cell. It appears after two seconds."""

    def __init__(self) -> None:
        self._began = self._drawn = time.monotonic()
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._show("")

    def __call__(self, what: str, done: int, of: int) -> None:
        """Draw the progress. Does nothing if it was drawn less than 0.2 s ago."""
        now = time.monotonic()
        if now - self._began < _PATIENCE_S or now - self._drawn < 0.2:
            return
        self._drawn = now
        from steadycast.report.markup import element, text

        self._show(text(what) + " " + element("progress", value=done, max=of))

    def _show(self, text: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))


class Terminal:
    """Progress bars on stderr, one for each label. They appear after two seconds.

    Args:
        rated: show the speed as well.
        lines: print a line for each finished part if stderr is not a terminal.

    """

    def __init__(self, *, rated: bool = False, lines: bool = False) -> None:
        self._began = time.monotonic()
        self._rated = rated
        self._lines = lines
        self._last: tuple[str, int] | None = None
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, what: str, done: int, of: int) -> None:
        """Draw the progress of ``what``, or print a line about it."""
        if not self._shows:
            if self._lines and (what, done) != self._last:
                self._last = (what, done)
                print(f"{what}: {done} of {of}", file=sys.stderr, flush=True)
            return
        if time.monotonic() - self._began < _PATIENCE_S:
            return
        if self._bars is None:
            self._bars = self._start()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=of)
        self._bars.update(self._tasks[what], completed=done, total=of)

    def close(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks.clear()

    def _start(self) -> Bars:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            ProgressColumn,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(f"{task.speed:.1f}/s" if task.speed else "")

        columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
        columns += [Rate()] if self._rated else []
        bars = Bars(*columns, console=Console(stderr=True), transient=True)
        bars.start()
        return bars
