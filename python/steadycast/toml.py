"""Writes plain values as TOML, because the standard library can only read TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


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
