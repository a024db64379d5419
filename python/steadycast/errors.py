"""What went wrong on the user's side, in a shape that a person can act on."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import ClassVar, Self

from steadycast.exits import Exit


class UserError(Exception):
    """A mistake in the input: where it is, what it is, and what would mend it.

    Commands print it as one line, without a traceback; everything else that is raised is a fault of ours.
    """

    code: ClassVar[Exit] = Exit.MISUSED
    """How a command ends that it ends."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)
        self.place = place
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


class MissingError(UserError):
    """A right or a tool that the machine lacks: the same line, another exit code."""

    code = Exit.MISSING


class UnwrittenError(UserError):
    """A file that could not be written: the same line, another exit code."""

    code = Exit.UNWRITTEN

    @classmethod
    def of(
        cls, path: Path | str, error: BaseException, remedy: str = "make room, or name another place"
    ) -> Self:
        """Name the file, and the system's reason."""
        return cls(str(path), f"can't be written ({reason(error)})", remedy)


def reason(error: BaseException) -> str:
    """Say why the system refused, without the names and numbers around it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # A library in Rust tells the system's number in its text.
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is not None:
        return os.strerror(int(number[1]))
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def full(error: OSError) -> bool:
    """Whether the system has no room, or may not write there at all."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def need_linux(core: object, part: str, command: str) -> None:
    """Say so where the compiled module was built without the worlds of real time, as it is on other systems.

    Raises:
        MissingError: it lacks ``part``.

    """
    if not hasattr(core, part):
        raise MissingError(
            command,
            f"this needs Linux, and here is {sys.platform}",
            "run, compare and report work here; for the others take a Linux machine or container",
        )
