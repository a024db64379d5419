"""Makes hints mention options to users of the command line, and arguments to users of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_on_command_line = False


@contextmanager
def on_command_line() -> Iterator[None]:
    """Within this context, make hints mention options of the command line instead of arguments in Python."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def named(option: str, argument: str) -> str:
    """Return ``option`` for a user of the command line, and ``argument``, its counterpart, for a user of Python."""
    return option if _on_command_line else argument
