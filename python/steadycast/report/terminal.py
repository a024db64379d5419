"""Results in a terminal: tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from steadycast import record
from steadycast.report import answer, cells, markup, say
from steadycast.report.answer import counted, title
from steadycast.report.rank import ranked_receivers

_COLOURS = {"ok": "green", "bad": "bold red"}
"""Of texts by the classes that they have on a page."""


def text(cell: str | Text) -> Text:
    """Return a cell as the terminal has it: of HTML its text, coloured where it says what holds and what fails."""
    if isinstance(cell, Text):
        return cell
    style = next((colour for name, colour in _COLOURS.items() if f'class="{name}"' in cell), "")
    return Text(markup.plain(cell), style if isinstance(cell, markup.Html) else "")


class Fitted:
    """A table in as many parts as it takes to fit the width; each part begins with the first column.

    Args:
        heads: of its columns.
        rows: cells, as pages have them.
        title: a line above the first part.
        wraps: cells of the first column are wrapped at blanks before the table is divided.

    """

    def __init__(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[str | Text]],
        *,
        title: str = "",
        wraps: bool = False,
    ) -> None:
        self._heads, self._title, self._wraps = heads, title, wraps
        self._rows = [[text(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Divide it, and show the parts below each other."""
        heads = [markup.plain(head) for head in self._heads]
        named = [heads[0], *(row[0].plain for row in self._rows)]
        room = max(len(word) for name in named for word in (name.split() or [""] if self._wraps else [name]))
        parts: list[list[int]] = []
        used = options.max_width
        for place in range(1, len(heads)):
            need = 2 + max(len(heads[place]), *(len(row[place]) for row in self._rows), 0)
            if used + need > options.max_width - room:
                parts.append([])
                used = 0
            parts[-1].append(place)
            used += need
        if self._title:
            yield Text(self._title, style="dim")
        for n, columns in enumerate(parts):
            if n:
                yield ""
            part = plain(*(heads[i] for i in (0, *columns)))
            for row in self._rows:
                part.add_row(*(row[i] for i in (0, *columns)))
            yield part


def flows(summary: Mapping[str, Any]) -> Fitted:
    """Line per flow: what it got, and what its viewers saw.

    A second one for the worst of several receivers.
    """
    columns = record.table("terminal")
    rows: list[list[str | Text]] = []
    for flow in summary["flows"]:
        rows.append([counted(flow), *say.flow_cells(columns, flow)])
        if len(flow.get("receivers") or []) > 1:
            worst = ranked_receivers(flow)[0]
            seen = (
                say.how(column.figure)(column.of(worst))
                if column.figure.of == "receiver" or record.find("receiver", column.figure.key)
                else ""
                for column in columns
            )
            rows.append([Text(f"  worst: {worst['name']}", style="dim"), *seen])
    return Fitted(["flow", *map(heading, columns)], rows, wraps=True)


def unshared(summary: Mapping[str, Any]) -> Text | None:
    """Say why flows have no share of a fair share; nothing where all have one."""
    names = [str(flow["name"]) for flow in summary["flows"] if answer.never_competes(flow)]
    if not names:
        return None
    return Text(f"of fair is unknown for {say.listed(names)}: no other flow competed with it", style="dim")


def partly_competing(summary: Mapping[str, Any]) -> Text | None:
    """Say what flows got while they competed, where this differs from the throughput in the table."""
    said = answer.partly_competing(summary)
    return None if said is None else Text(said, style="dim")


def pauses(summary: Mapping[str, Any]) -> Fitted | None:
    """Line per flow whose source pauses: its transfers, and what it got while it was active.

    Nothing where there is no such flow.
    """
    columns = record.table("pauses")
    rows = [[title(f), *say.cells(columns, f)] for f in summary["flows"] if f.get("active_frac") is not None]
    heads = ["source that pauses", *(column.heading for column in columns)]
    return Fitted(heads, rows, wraps=True) if rows else None


def heading(column: record.Shown) -> str:
    """Heading of a flow's column where there is little room."""
    return column.heading.removeprefix("share ")


def expectations(summary: Mapping[str, Any]) -> Table | None:
    """Line per expectation of the scenario; nothing where there is none."""
    heads, rows = cells.expectations(summary)
    return filled(heads, rows) if rows else None


def filled(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Table of cells, as pages have them."""
    table = plain(*map(markup.plain, heads))
    for row in rows:
        table.add_row(*map(text, row))
    return table


def plain(first: str, *others: str) -> Table:
    """Table without a frame; its first column is text, the others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def console() -> Console:
    """Where results go: stdout, at its width, or 80 columns where it is no terminal."""
    out = _Console(highlight=False)
    return out if out.is_terminal else _Console(highlight=False, width=80)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command's end, whose exit code says so."""
        raise BrokenPipeError


def prose(rows: Sequence[Sequence[str]], *heads: str) -> Table:
    """Table of texts; the last column is prose, and is wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads[:-1]:
        table.add_column(head, overflow="fold")
    table.add_column(heads[-1], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
