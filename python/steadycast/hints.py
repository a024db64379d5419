"""Makes hints mention options to users of the command line, and arguments to users of Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
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


def is_on_command_line() -> bool:
    """Whether the user reads the messages of a command."""
    return _on_command_line


_ARGUMENTS = {"with": "table", "param": "params", "metric": "metrics"}
"""Arguments in Python that have another name than their option on the command line."""


def in_python(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return a message in which options of the command line are replaced by the ``parameters`` of a function.

    Options without a parameter stay, because they are part of a command that the message suggests.
    """

    def argument(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        parameter = parameters.get(name) or parameters.get(_ARGUMENTS.get(name, ""))
        if parameter is None:
            return found[0]
        return f"{parameter.name}=True" if parameter.default is False else parameter.name

    if "set" in parameters:
        text = re.sub(r'(?<![\w-])--set ([\w.*-]+)=("[^"]*"|[^\s,;)]+)', _change, text)
    if "out" in parameters:
        text = re.sub(r"(?<!\S)-o (\w+)", r'out="\1"', text)
    return re.sub(r"(?<![\w-])--([a-z][a-z-]*[a-z])", argument, text)


def _change(found: re.Match[str]) -> str:
    value = found[2].strip('"')
    return f'set={{"{found[1]}": "{value}"}}'


def named(option: str, argument: str) -> str:
    """Return ``option`` for a user of the command line, and ``argument``, its counterpart, for a user of Python."""
    return option if _on_command_line else argument
