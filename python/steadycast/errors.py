"""Errors that the user can resolve. Each error says the place, the problem and the remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from steadycast.exits import Exit


class UserError(Exception):
    """A mistake in the input, with its place, the problem and a remedy.

    Commands print it as one line without a traceback. Any other exception is a bug of this program.
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

    def reworded(self, words: Callable[[str], str]) -> Self:
        """Change the texts of this error by the function ``words``, and return the error."""
        self.place, self.problem, self.remedy = map(words, (self.place, self.problem, self.remedy))
        self.args = (self.place, self.problem, self.remedy)
        return self

    def listed(self) -> list[Mapping[str, Any]]:
        """Return all problems in the format that the core uses for problems of a scenario."""
        return [{"file": "", "line": None, "key": self.place, "what": self.problem, "remedy": self.remedy}]


class Problems(UserError):  # noqa: N818  (the core uses this name)
    """All problems of a scenario."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(_place(first), first["what"], first["remedy"])

    def __str__(self) -> str:
        return "\n".join(f"{_place(p)}: {p['what']}; {p['remedy']}" for p in self.problems)

    def reworded(self, words: Callable[[str], str]) -> Self:
        """Change the texts of all problems by the function ``words``, and return the error."""
        texts = ("file", "what", "remedy")
        self.problems = [{**one, **{key: words(one[key]) for key in texts}} for one in self.problems]
        return super().reworded(words)

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
    """An error because the machine lacks a permission or a tool."""

    code = Exit.MISSING

    @classmethod
    def package(cls, place: str, name: str, wanted: str) -> Self:
        """Create an error about a missing Python package. ``wanted`` is the argument for pip."""
        return cls(place, f"{name} is not installed", f"pip install '{wanted}'")


class UncompiledError(MissingError):
    """An error because a part of the module is not compiled. A checkout compiles it when it is first needed."""


class UnwrittenError(UserError):
    """An error because a file could not be written."""

    code = Exit.UNWRITTEN

    @classmethod
    def of(
        cls, path: Path | str, error: BaseException, remedy: str = "make room, or name another place"
    ) -> Self:
        """Create the error from the file's path and the system's error."""
        return cls(str(path), f"can't be written ({reason(error)})", remedy)


def shortage(error: BaseException) -> MissingError | None:
    """Return the error for the user if ``error`` means that the system gives no more memory or threads.

    A library in Rust panics if it can't start a thread. The text of its panic has the system's words.
    """
    if isinstance(error, UserError):
        return None
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        cure = "end other programs, raise its limit (see ulimit -v), or take smaller pictures"
        return MissingError("memory", "there is not enough of it for this", cure)
    # A file that is not ready has the same words, but a library's own type of error, and no word of threads.
    text = str(error)
    has_no_thread = os.strerror(errno.EAGAIN) in text and re.search("thread|spawn|fork", text, re.IGNORECASE)
    if text == "can't start new thread" or has_no_thread or type(error) is BlockingIOError:
        cure = "end other programs, or raise the limits of processes and memory (see ulimit -u and ulimit -v)"
        return MissingError("threads and processes", "the system starts no more of them", cure)
    return None


def reason(error: BaseException) -> str:
    """Return why an error occurred, in the system's words without file names and error numbers."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Rust libraries write the number of the system's error into the text.
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
    """Whether an error means that a disk is full, a quota is exceeded, or a place can't be written to at all."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EBADF)
