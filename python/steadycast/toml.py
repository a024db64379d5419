"""Writes plain values as TOML, which the standard library can't do, and reads TOML that a user wrote."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_DEEP = re.compile(r"""^[ \t\[]*(?:[\w"'-]+[ \t]*\.[ \t]*){64}""", re.MULTILINE)
"""A key of more than 64 parts. The standard library needs memory that grows with the square of their number."""


def read(text: str) -> dict[str, Any]:
    """Read a TOML document that may be nested to any depth.

    Raises:
        TOMLDecodeError: the text is not TOML, or it is nested too deep.

    """
    if _DEEP.search(text):
        raise tomllib.TOMLDecodeError("keys are nested too deep")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("values are nested too deep") from None


def document(table: Mapping[str, Any]) -> str:
    """Return a table as a TOML document. Its plain keys come first, then its tables, then its arrays of tables."""
    lines = [f"{_bare(k)} = {inline(v)}" for k, v in table.items() if not _is_table(v) and not _is_tables(v)]
    for key, value in table.items():
        for each in [value] if _is_table(value) else value if _is_tables(value) else []:
            head = f"[[{_bare(key)}]]" if _is_tables(value) else f"[{_bare(key)}]"
            lines += ["", head, *(f"{_bare(k)} = {inline(v)}" for k, v in each.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _bare(key: str) -> str:
    """Format a key for TOML. Quotation marks are added if they are needed."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def inline(value: Any) -> str:
    """Format a value as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_bare(k)} = {inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # Use the escapes of JSON, which are valid in TOML. Only DEL must be escaped in addition.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
