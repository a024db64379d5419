"""Pages of docs/ with tables that a command writes: what stands between two marks is the command's."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from steadycast.run import commit

DOCS = Path(__file__).resolve().parent.parent / "docs"


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between a page's marks `<!-- NAME: begin -->` and `<!-- NAME: end -->`.

    Raises:
        ValueError: the page lacks a mark.

    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def command(module: str, words: Sequence[str] | None) -> str:
    """Write the command that runs a module with these words; None are this process's own."""
    return " ".join(["python -m", module, *(sys.argv[1:] if words is None else words)])


def stamp(command: str, more: str = "") -> str:
    """Say when a table was measured, of which commit, and by which command."""
    return (
        f"Measured {datetime.date.today()} at commit {commit()} by `{command}`{f': {more}' if more else ''}."
    )
