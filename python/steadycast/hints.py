"""Names in hints: options for users of the command line, arguments for users of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_on_command_line = False


@contextmanager
def on_command_line() -> Iterator[None]:
    """Make hints contain options of the command line, not arguments of Python, within this context."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def named(option: str, argument: str) -> str:
    """Return an option of the command line, or the name of the corresponding argument in Python."""
    return option if _on_command_line else argument
