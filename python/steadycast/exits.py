"""Exit codes, on which scripts and pipelines can rely."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The outcome of a command; `about` describes it in a sentence."""

    about: str

    def __new__(cls, code: int, about: str) -> Exit:
        """Create a member from its number and its sentence."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.about = about
        return member

    DONE = 0, "Done; also a live session that Ctrl-C, SIGTERM or SIGHUP ended."
    FAILED = (
        1,
        "Done, and an expectation, a condition on a baseline, a run of a sweep or a live source failed, "
        "or no cell of judge can be trusted.",
    )
    MISUSED = 2, "Bad input or usage; stderr says where, what and the remedy."
    MISSING = 3, "A right or a tool is missing on this machine."
    UNWRITTEN = 4, "Something could not be written, for example to a full disk."
    SILENT = 5, "Nothing that could be used ever came (receive); stderr says what came instead, if anything."
    INTERRUPTED = 130, "Interrupted before the end by Ctrl-C, SIGTERM or SIGHUP."


def listed() -> str:
    """Return the codes and their sentences, a line each."""
    return "\n".join(f"  {code.value:<4} {code.about}" for code in Exit)
