"""Errors that the user can resolve: each names a place, a problem and a remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from steadycast.exits import Exit


class UserError(Exception):
    """A mistake in the input, with its place, the problem and a remedy.

    Commands print it as one line without a traceback; any other exception is a bug.
    """

    code: ClassVar[Exit] = Exit.MISUSED
    """The exit code of a command that ends with this error."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)
        self.place = place
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"

    def listed(self) -> list[Mapping[str, Any]]:
        """Return all problems, in the core's format for problems of a scenario."""
        return [{"file": "", "line": None, "key": self.place, "what": self.problem, "remedy": self.remedy}]


class Problems(UserError):  # noqa: N818  (as the core calls it)
    """All problems of a scenario."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(_place(first), first["what"], first["remedy"])

    def __str__(self) -> str:
        return "\n".join(f"{_place(p)}: {p['what']}; {p['remedy']}" for p in self.problems)

    def listed(self) -> list[Mapping[str, Any]]:
        """Return all problems."""
        return self.problems

    def __reduce__(self) -> tuple[type[Problems], tuple[list[Mapping[str, Any]]]]:
        return Problems, (self.problems,)


def _place(problem: Mapping[str, Any]) -> str:
    line = f":{problem['line']}" if problem["line"] is not None else ""
    key = f": {problem['key']}" if problem["key"] else ""
    return f"{problem['file']}{line}{key}"


class MissingError(UserError):
    """A permission or a tool that the machine lacks."""

    code = Exit.MISSING

    @classmethod
    def package(cls, place: str, name: str, wanted: str) -> Self:
        """Create the error of a missing Python package; ``wanted`` is pip's argument."""
        return cls(place, f"{name} is not installed", f"pip install '{wanted}'")


class UncompiledError(MissingError):
    """A part of the compiled module that is missing; a checkout compiles it on its first use."""


class UnwrittenError(UserError):
    """A file that could not be written."""

    code = Exit.UNWRITTEN

    @classmethod
    def of(
        cls, path: Path | str, error: BaseException, remedy: str = "make room, or name another place"
    ) -> Self:
        """Create the error from a file and the system's error."""
        return cls(str(path), f"can't be written ({reason(error)})", remedy)


def reason(error: BaseException) -> str:
    """Return the system's reason of an error, without file names and error numbers."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Rust libraries include the system's error number in the text.
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is not None:
        return os.strerror(int(number[1]))
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def meant(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the remedy for an unknown name: a similar known name, or the list of known names."""
    import difflib

    names = list(known)
    near = difflib.get_close_matches(name, names, 1, cutoff)
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(names[:_MOST_NAMES])}{more}"


_MOST_NAMES = 40


def full(error: OSError) -> bool:
    """Whether the error is a full disk, an exceeded quota, or a place that can't be written at all."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EBADF)
