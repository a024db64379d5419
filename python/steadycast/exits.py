"""Exit codes of the commands. Scripts may rely on them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The result of a command. `about` describes it in a sentence."""

    about: str

    def __new__(cls, code: int, about: str) -> Exit:
        """Create a member from its exit code and its description."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.about = about
        return member

    DONE = 0, "The command is done. A live session that Ctrl-C, SIGTERM or SIGHUP ended counts as done."
    FAILED = (
        1,
        "The command is done, but an expectation, a bound, a condition on a baseline, a run of a sweep, "
        "a live source or the connection to a WHIP server failed, or no run of judge is trustworthy.",
    )
    MISUSED = 2, "The input or the usage is wrong; stderr has the place, the problem and the remedy."
    MISSING = 3, "A permission or a tool is missing on this machine."
    UNWRITTEN = 4, "A file could not be written, for example because the disk is full."
    SILENT = 5, "`receive` got no usable packet; stderr lists what arrived instead, if anything."
    INTERRUPTED = 130, "Ctrl-C, SIGTERM or SIGHUP interrupted the command before its end."


def listed() -> str:
    """Return a list of the codes and their descriptions, with a line for each code."""
    return "\n".join(f"  {code.value:<4} {code.about}" for code in Exit)
