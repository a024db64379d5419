"""What went wrong on the user's side, in a shape that a person can act on."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from steadycast.exits import Exit


class UserError(Exception):
    """A mistake in the input: where it is, what it is, and what would mend it.

    Commands print it as one line, without a traceback; everything else that is raised is a fault of ours. Any function
    may raise it; the docstrings of the public functions say when they do, those of the others only name other errors.
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

    def listed(self) -> list[Mapping[str, Any]]:
        """Return all that is wrong, each as the core tells a problem of a scenario."""
        return [{"file": "", "line": None, "key": self.place, "what": self.problem, "remedy": self.remedy}]


class Problems(UserError):  # noqa: N818  (as the core calls it)
    """All that is wrong with a scenario."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(_place(first), first["what"], first["remedy"])

    def __str__(self) -> str:
        return "\n".join(f"{_place(p)}: {p['what']}; {p['remedy']}" for p in self.problems)

    def listed(self) -> list[Mapping[str, Any]]:
        """Return them all."""
        return self.problems

    def __reduce__(self) -> tuple[type[Problems], tuple[list[Mapping[str, Any]]]]:
        return Problems, (self.problems,)


def _place(problem: Mapping[str, Any]) -> str:
    line = f":{problem['line']}" if problem["line"] is not None else ""
    key = f": {problem['key']}" if problem["key"] else ""
    return f"{problem['file']}{line}{key}"


class MissingError(UserError):
    """A right or a tool that the machine lacks: the same line, another exit code."""

    code = Exit.MISSING

    @classmethod
    def package(cls, place: str, name: str, wanted: str) -> Self:
        """Name a package that is not installed, and what pip is to install."""
        return cls(place, f"{name} is not installed", f"pip install '{wanted}'")


class UncompiledError(MissingError):
    """A part of the compiled module that a checkout compiles when it is first used."""


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


def meant(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Say what somebody may have meant by a name, or else what there is: the remedy where there is no such thing."""
    import difflib

    names = list(known)
    near = difflib.get_close_matches(name, names, 1, cutoff)
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(names[:_MOST_NAMES])}{more}"


_MOST_NAMES = 40


def full(error: OSError) -> bool:
    """Whether the system has no room, or may not write there at all."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EBADF)
