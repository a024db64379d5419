"""Defines the base class of `sc.Sender` and `sc.Receiver`, their pixel formats, and how errors refer to arguments."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Self

from steadycast.errors import UserError
from steadycast.live import session
from steadycast.result import Run

Json = dict[str, Any]

Pixels = Literal["rgb24", "bgr24", "gray", "yuv420p"]
"""The pixel format of a picture, which is an array of uint8.

``rgb24`` and ``bgr24`` have three samples in the last dimension. ``gray`` has no third dimension. ``yuv420p`` has its
planes one below the other, as in PyAV and OpenCV, so it has height * 3/2 rows.
"""
PIXELS: tuple[Pixels, ...] = ("rgb24", "bgr24", "gray", "yuv420p")
SLICE_S = 0.5
"""How often a call checks whether the session has ended, in seconds."""
_START_S = 10.0
"""How long a call waits for a session's first status, in seconds."""


def shape_of(pixels: Pixels, width: int, height: int) -> tuple[int, ...]:
    """Return the shape of the array that contains a picture."""
    shapes = {"gray": (height, width), "yuv420p": (height * 3 // 2, width)}
    return shapes.get(pixels, (height, width, 3))


def rate_text(given: str | float | None) -> str | None:
    """Format a rate for the parser of the command line. A number is a rate in bit/s."""
    return given if given is None or isinstance(given, str) else f"{given:.0f}bps"


class Ends:
    """A live session with a Python interface.

    It ends once: by itself, by `close`, or at the end of its ``with`` block. Then its results are available as `run`.
    """

    def __init__(self, core: Any, leave: Callable[..., None], *given: Any) -> None:
        self._core = core
        self._run: Run | None = None
        self._failed: BaseException | None = None
        self._closing = threading.Lock()
        self._leave = weakref.finalize(self, leave, core, *given)

    @property
    def done(self) -> bool:
        """Whether the session has ended, by itself or by `close`. A receiver may still have unread pictures."""
        return bool(self._core.done)

    @property
    def run(self) -> Run:
        """The results of the session, in the form of those of `steadycast.run`: summary, tables and report.

        Raises:
            UserError: the session is not closed yet.
            Exception: `close` has raised this error, so there are no results.

        """
        if self._failed is not None:
            raise self._failed
        if self._run is None:
            raise UserError(
                "run", "the session has not ended", "read it after the with block, or after close()"
            )
        return self._run

    def close(self) -> None:
        """End the session and send a BYE. A second call does nothing."""
        raise NotImplementedError

    def _finish(self, stop: Callable[[], None], warnings: list[str]) -> bool:
        """End the session and keep its results. Return false if the session was already closed."""
        with self._closing:
            if self._run is not None or self._failed is not None:
                return False
            try:
                stop()
                self._run = finished(self._core, warnings)
            # Keep the error, because each later request for the results raises it again.
            except BaseException as error:
                self._failed = error
                raise
            self._leave.detach()
            return True

    def _drain(self) -> None:
        """Complete the pending work. This runs at the end of a ``with`` block that has raised no error."""

    def _state(self, going: str) -> str:
        return (
            "closed" if self._run is not None or self._failed is not None else "ended" if self.done else going
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):  # the error of the block is raised instead
                self.close()
            return
        self._drain()
        self.close()


def look(core: Any) -> Json:
    """Return the current status of a core session.

    Raises:
        TimeoutError: the session does not report its status.

    """
    until = time.monotonic() + _START_S
    while True:
        status: Json | None = json.loads(core.status())
        if status is not None:
            return status
        if core.done or time.monotonic() > until:
            raise TimeoutError("the session does not say how it goes")


def leave(core: Any) -> None:
    """End a core session that the program did not close, and send a BYE. This may run at the interpreter's exit."""
    core.stop()
    core.wait(5.0)


def finished(core: Any, warnings: list[str]) -> Run:
    """Wait for the end of a core session, and return its results."""
    record = core.finish()
    summary = session.summary_of(record)
    summary["warnings"] += warnings
    return session.run_of(record, summary)
