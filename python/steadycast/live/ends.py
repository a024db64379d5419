"""What `sc.Sender` and `sc.Receiver` have in common: pictures as arrays, errors by the names of arguments, the end."""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, Self

from steadycast.errors import UserError
from steadycast.live import session
from steadycast.result import Run

Json = dict[str, Any]

Pixels = Literal["rgb24", "bgr24", "gray", "yuv420p"]
"""How a picture lies in an array of uint8, of height by width samples.

``rgb24`` and ``bgr24`` have three samples in the last dimension, ``gray`` has no third dimension, ``yuv420p`` has its
planes one below the other, as PyAV and OpenCV do: height * 3/2 rows.
"""
PIXELS: tuple[Pixels, ...] = ("rgb24", "bgr24", "gray", "yuv420p")
SLICE_S = 0.5
"""Seconds between two looks at whether the session has ended."""
_START_S = 10.0
"""As long a session may take to say for the first time how it goes."""
_OPTION = re.compile(r"--(?!help\b)([a-z]+(?:-[a-z]+)*)")


def shape_of(pixels: Pixels, width: int, height: int) -> tuple[int, ...]:
    """Return the shape of a picture's array."""
    shapes = {"gray": (height, width), "yuv420p": (height * 3 // 2, width)}
    return shapes.get(pixels, (height, width, 3))


@contextmanager
def by_argument() -> Iterator[None]:
    """Name arguments in errors that name options of the command line."""
    try:
        yield
    except UserError as error:
        words = (error.place, error.problem, error.remedy)
        named = [_OPTION.sub(lambda found: found[1].replace("-", "_"), text) for text in words]
        raise type(error)(*named) from error.__cause__


def rate_text(given: str | float | None) -> str | None:
    """Write a rate as the command line takes it; a number is in bit/s."""
    return given if given is None or isinstance(given, str) else f"{given:.0f}bps"


class Ends:
    """A session of a program: it ends once, by itself, by `close` or with its block, and leaves a run behind."""

    def __init__(self, core: Any, leave: Callable[..., None], *given: Any) -> None:
        self._core = core
        self._run: Run | None = None
        self._failed: BaseException | None = None
        self._closing = threading.Lock()
        self._leave = weakref.finalize(self, leave, core, *given)

    @property
    def done(self) -> bool:
        """Whether it has ended, by itself or by `close`. A receiver's pictures may still wait to be read."""
        return bool(self._core.done)

    @property
    def run(self) -> Run:
        """What the session has left behind: summary, tables, report, as of `steadycast.run`.

        Raises:
            UserError: it was not closed yet.
            Exception: what `close` has raised: there is no record.

        """
        if self._failed is not None:
            raise self._failed
        if self._run is None:
            raise UserError("run", "the session goes on", "take it after the with block, or after close()")
        return self._run

    def close(self) -> None:
        """End the session, with a BYE. A second call does nothing."""
        raise NotImplementedError

    def _finish(self, stop: Callable[[], None], warnings: list[str]) -> bool:
        """End the session and keep its run; whether it had not been ended before."""
        with self._closing:
            if self._run is not None or self._failed is not None:
                return False
            try:
                stop()
                self._run = finished(self._core, warnings)
            except BaseException as error:
                self._failed = error
                raise
            self._leave.detach()
            return True

    def _drain(self) -> None:
        """Wait for what a block without errors has begun."""

    def _state(self, going: str) -> str:
        return (
            "closed" if self._run is not None or self._failed is not None else "ended" if self.done else going
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):  # the first error is the one that tells
                self.close()
            return
        self._drain()
        self.close()


def look(core: Any) -> Json:
    """Return how a core session goes at this moment.

    Raises:
        TimeoutError: it does not say so.

    """
    until = time.monotonic() + _START_S
    while True:
        status: Json | None = json.loads(core.status())
        if status is not None:
            return status
        if core.done or time.monotonic() > until:
            raise TimeoutError("the session does not say how it goes")


def leave(core: Any) -> None:
    """End a core session that nobody has closed: with a BYE, also when the program ends."""
    core.stop()
    core.wait(5.0)


def finished(core: Any, warnings: list[str]) -> Run:
    """Wait for a core session's end, and return its record."""
    record = core.finish()
    summary = session.summary_of(record)
    summary["warnings"] += warnings
    return session.run_of(record, summary)
