"""The common part of the measuring commands: options, tables, and files of tables.

A measured table is a CSV file in docs/data. Beside it, `NAME.toml` has its title, day, commit and command. The site
shows it (`scripts/site_tables.py`). In a page, a command writes between the marks `<!-- NAME: begin -->` and
`<!-- NAME: end -->`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from steadycast.core import commit
from steadycast.errors import UserError

DOCS = Path(__file__).resolve().parent.parent / "docs"
DATA = DOCS / "data"

_NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNITS = "%|ms|s|kb/s|Mb/s|dB|MB|GB|points"
_UNIT = rf"(?: ?(?P<unit>{_UNITS}))?"
_FORMS = (
    (re.compile(rf"(?P<a>{_NUMBER}){_UNIT}"), ("",)),
    (re.compile(rf"(?P<a>{_NUMBER}) ± (?P<b>{_NUMBER}){_UNIT}"), ("", " ±")),
    (
        re.compile(rf"(?P<a>{_NUMBER}){_UNIT}(?: \((?P<b>{_NUMBER})…(?P<c>{_NUMBER})\))?"),
        ("", " least", " most"),
    ),
)
"""Patterns of cells of numbers, each with the CSV heading suffixes of its numbers."""
_BRACKETED = re.compile(r"\[([^\[\]]*)\]((?: \([^\[\]]*\))?)")
"""A cell in brackets, which misses its bound."""


@dataclass(frozen=True)
class Table:
    """A table of texts. Converted to a string, it is Markdown."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return "\n".join([head(self.heads), *map(row, self.rows)])


def options(
    module: str, about: str | None, *tables: str, seeds: int | None = None
) -> argparse.ArgumentParser:
    """Return a command's options: `--write` if it has tables, `--seeds` if it has a default number of seeds.

    Args:
        module: for example `validation.cases`.
        about: the module's docstring. Its first line is shown.
        tables: names of the files in docs/data that `--write` writes.
        seeds: default number of seeds.

    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").partition("\n")[0])
    parser.set_defaults(command=f"python -m {module} --write")
    if tables:
        where = ", ".join(f"docs/data/{name}.csv" for name in tables)
        parser.add_argument("--write", action="store_true", help=f"write {where}".replace("%", "%%"))
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, help=f"how many (default {seeds})")
    return parser


def end(main: Callable[[], int]) -> NoReturn:
    """Run a command, and exit with its code. A user's error is printed, and has its own code."""
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def row(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> str:
    """Return the first two lines of a table in Markdown."""
    return f"{row(cells)}\n{row(['---'] * len(cells))}"


def table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table."""
    return Table(tuple(heads), tuple(map(tuple, rows)))


def save(name: str, title: str, made: Table, command: str, note: str = "", folder: Path = DATA) -> Path:
    """Write a measured table as docs/data/NAME.csv, and its origin beside it.

    Args:
        name: the file's name.
        title: what the table shows, in one line.
        made: the table. In a column of numbers the unit moves to the heading.
        command: the command that makes it.
        note: further information for readers, for example the seeds.
        folder: where it is written.

    """
    origin = {
        "title": title,
        "measured": datetime.date.today().isoformat(),
        "commit": commit() or "",
        "command": command,
        "note": note,
    }
    return store(name, made, origin, folder)


def store(name: str, made: Table, origin: dict[str, str], folder: Path = DATA) -> Path:
    """Write a table and its origin."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name}.csv"
    with place.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(plain(made))
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in origin.items() if value]
    place.with_suffix(".toml").write_text("".join(lines), encoding="utf-8")
    return place


def merged(name: str, made: Table, keys: int, folder: Path = DATA) -> Table:
    """Return a measured table, with the file's rows that were not measured again.

    Args:
        name: the file's name.
        made: the new table.
        keys: number of columns that identify a row.
        folder: where the file is.

    """
    place, (heads, *rows) = folder / f"{name}.csv", plain(made)
    old: list[list[str]] = []
    if place.exists():
        with place.open(encoding="utf-8", newline="") as file:
            old = [row for row in csv.reader(file)]
    # Rows under other headings are dropped.
    kept = old[1:] if old[:1] == [heads] else []
    return table(heads, {tuple(each[:keys]): each for each in [*kept, *rows]}.values())


def plain(made: Table) -> list[list[str]]:
    """Return a table's headings and rows for a CSV file: without Markdown, with plain numbers."""
    columns: list[list[str]] = []
    names: dict[str, int] = {}
    for n, heading in enumerate(made.heads):
        cells = [_text(each[n]) if n < len(each) else "" for each in made.rows]
        for name, values in _split(_text(heading) or "what", cells):
            names[name] = names.get(name, 0) + 1
            columns.append([name if names[name] == 1 else f"{name} ({names[name]})", *values])
    return [list(each) for each in zip(*columns, strict=True)]


def _text(cell: str) -> str:
    """Remove Markdown from a cell; a dash becomes an empty cell."""
    cell = re.sub(r"`([^`]*)`|\*\*(.*?)\*\*", lambda found: found[1] or found[2] or "", cell)
    cell = cell.replace("\\|", "|").strip()
    return "" if cell == "–" else cell


def _split(heading: str, cells: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split a column of numbers into one per number. Another column is returned unchanged.

    An additional column marks bracketed cells, which miss their bound.
    """
    found = [_BRACKETED.fullmatch(cell) for cell in cells]
    bracketed = [one is not None for one in found]
    cells = [cell if one is None else _text(one[1] + one[2]) for cell, one in zip(cells, found, strict=True)]
    misses = ["yes" if yes else "no" if cell else "" for cell, yes in zip(cells, bracketed, strict=True)]
    told = [(f"{heading.partition(',')[0]} misses", misses)] if any(bracketed) else []
    return [*_numbers(heading, cells), *told]


def _numbers(heading: str, cells: Sequence[str]) -> list[tuple[str, list[str]]]:
    said = [cell for cell in cells if cell]
    for form, parts in _FORMS:
        found = [form.fullmatch(cell) for cell in said]
        units = {one["unit"] for one in found if one}
        if not said or None in found or len(units) > 1:
            continue
        unit = units.pop()
        told = re.fullmatch(rf"(.*), ({_UNITS})", heading)
        base, unit = (told[1], told[2]) if told and unit in (None, told[2]) else (heading, unit)
        tail = f", {unit}" if unit else ""
        split = []
        for part, group in zip(parts, "abc", strict=False):
            matches = (form.fullmatch(cell) for cell in cells)
            # A cell without an interval has only the value.
            values = [_number(one[group] or one["a"]) if one else "" for one in matches]
            split.append((f"{base}{part}{tail}", values))
        return split
    return [(heading, list(cells))]


def _number(text: str) -> str:
    return text.replace(",", "").replace("−", "-").removeprefix("+")


def show(args: argparse.Namespace, name: str, title: str, made: Table, note: str = "") -> None:
    """Print a measured table. With `--write`, save it."""
    print(f"{made}\n")
    if args.write:
        save(name, title, made, args.command, note)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Format a mean, with minimum and maximum if they differ from it."""
    mean, low, high = (f"{x:.{digits}f}" for x in (statistics.fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low}…{high})"


def put(page: Path, name: str, text: object) -> None:
    """Replace the text between two marks of a page.

    Raises:
        ValueError: the page lacks a mark.

    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n{str(text).strip()}\n{end}{after}", encoding="utf-8")


def command(module: str, words: Sequence[str] | None) -> str:
    """Return a module's command line with these words, without options for files. `None`: this process's words."""
    said = " ".join(["python -m", module, *(sys.argv[1:] if words is None else words)])
    return re.sub(r"( --from)[ =]\S+", r"\1 DIR", re.sub(r" (-o|--out)[ =]\S+", "", said))
