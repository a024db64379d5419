"""What the commands that measure have in common: their options, their tables, and the pages of docs/ that take them.

What stands between two marks of a page, `<!-- NAME: begin -->` and `<!-- NAME: end -->`, is the command's.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from steadycast.errors import UserError
from steadycast.run import commit

DOCS = Path(__file__).resolve().parent.parent / "docs"


def options(
    module: str, about: str | None, page: Path | None = None, *, seeds: int | None = None
) -> argparse.ArgumentParser:
    """Return a command's options: `--write` where it has a page, `--seeds` where it has a number of them.

    Args:
        module: as `validation.field`.
        about: the module's docstring, of which the first line is shown.
        page: where `--write` puts the tables.
        seeds: how many there are without `--seeds`.

    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").partition("\n")[0])
    if page is not None:
        where = page.relative_to(DOCS.parent)
        parser.add_argument("--write", action="store_true", help=f"put the tables into {where}")
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, help=f"how many (default {seeds})")
    return parser


def end(main: Callable[[], int]) -> NoReturn:
    """Run a command to its exit code; a user's error is printed, and has code 2."""
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def row(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> str:
    """Return the first two lines of a table."""
    return f"{row(cells)}\n{row(['---'] * len(cells))}"


def table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    return "\n".join([head(heads), *map(row, rows)])


def publish(page: Path, name: str, text: str, *, write: bool) -> None:
    """Put a text between a page's marks where that is asked for; otherwise print it.

    Raises:
        ValueError: the page lacks a mark.

    """
    if write:
        put(page, name, text)
    else:
        print(text)


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between a page's marks.

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
