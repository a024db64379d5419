"""Shows results in a terminal, as tables that fit into 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from steadycast import record
from steadycast.folder import number
from steadycast.report import answer, cells, markup, say
from steadycast.report.answer import counted, title
from steadycast.report.rank import ranked_receivers

_COLOURS = {"ok": "green", "bad": "bold red"}
"""The colour of a text for each CSS class."""


def text(cell: str | Text) -> Text:
    """Convert a cell for the terminal. HTML becomes text, and its CSS class determines the colour."""
    if isinstance(cell, Text):
        return cell
    style = next((colour for name, colour in _COLOURS.items() if f'class="{name}"' in cell), "")
    return Text(markup.plain(cell), style if isinstance(cell, markup.Html) else "")


class Fitted:
    """A table that is divided into parts if it is too wide. Each part repeats the first columns.

    Args:
        heads: the column headings.
        rows: the cells, as text or HTML.
        title: a line that is printed above the first part.
        wraps: wrap the texts of the first columns at blanks before the table is divided.
        labels: the number of columns that each part repeats.

    """

    def __init__(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[str | Text]],
        *,
        title: str = "",
        wraps: bool = False,
        labels: int = 1,
    ) -> None:
        self._heads, self._title, self._wraps, self._labels = heads, title, wraps, labels
        self._rows = [[text(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [markup.plain(head) for head in self._heads]
        room = sum(self._room(heads, place) + 2 for place in range(self._labels)) - 2
        parts: list[list[int]] = []
        used = options.max_width
        for place in range(self._labels, len(heads)):
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
            shown = (*range(self._labels), *columns)
            part = plain(*(heads[i] for i in shown), labels=self._labels)
            for row in self._rows:
                part.add_row(*(row[i] for i in shown))
            yield part

    def _room(self, heads: Sequence[str], place: int) -> int:
        """Return the width in characters of one of the first columns, which each part of the table repeats."""
        cells = [heads[place], *(row[place].plain for row in self._rows)]
        return max(len(word) for cell in cells for word in (cell.split() or [""] if self._wraps else [cell]))


def flows(summary: Mapping[str, Any]) -> Fitted:
    """Build the table of flows. A flow with several receivers has a second line for its worst receiver."""
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
    """Return a text that explains why flows have no fair share. Returns `None` if all flows have one."""
    reasons: dict[str, list[str]] = {}
    for flow in summary["flows"]:
        if answer.never_competes(flow):
            ran = number(flow.get("throughput_bps")) is not None
            reason = "shared no full link with another flow" if ran else "did not run in the measured time"
            reasons.setdefault(reason, []).append(str(flow["name"]))
    if not reasons:
        return None
    said = (f"{say.listed(names)}, which {reason}" for reason, names in reasons.items())
    return Text(f"of fair is unknown for {'; and for '.join(said)}", style="dim")


def partly_competing(summary: Mapping[str, Any]) -> Text | None:
    """Return a sentence about the rates of flows that competed for only a part of the time.

    Returns `None` if these rates do not differ from the throughput in the table.
    """
    said = answer.partly_competing(summary)
    return None if said is None else Text(said, style="dim")


def pauses(summary: Mapping[str, Any]) -> Fitted | None:
    """Build the table of flows that pause, with their transfers and their throughput while they are active.

    Returns `None` if no flow pauses.
    """
    columns = record.table("pauses")
    rows = [[title(f), *say.cells(columns, f)] for f in summary["flows"] if f.get("active_frac") is not None]
    heads = ["source that pauses", *(column.heading for column in columns)]
    return Fitted(heads, rows, wraps=True) if rows else None


def heading(column: record.Shown) -> str:
    """Return the heading of a column in the table of flows, without "share " at its start."""
    return column.heading.removeprefix("share ")


def expectations(summary: Mapping[str, Any]) -> Table | None:
    """Build the table of the scenario's expectations. Returns `None` if there are none."""
    heads, rows = cells.expectations(summary)
    return filled(heads, rows) if rows else None


def simulcasts(summary: Mapping[str, Any]) -> list[Fitted]:
    """Build a table of the receivers of each simulcast."""
    return [Fitted(heads, rows, title=title) for title, (heads, rows) in cells.simulcasts(summary)]


def filled(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Build a table. Its cells are text or HTML."""
    table = plain(*map(markup.plain, heads))
    for row in rows:
        table.add_row(*map(text, row))
    return table


def plain(*heads: str, labels: int = 1) -> Table:
    """Build a table without a frame.

    The first ``labels`` columns contain texts, the others contain numbers.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in heads[:labels]:
        table.add_column(name, overflow="fold")
    for name in heads[labels:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def console() -> Console:
    """Return a console for stdout. It is 80 columns wide if stdout is not a terminal."""
    out = _Console(highlight=False)
    return out if out.is_terminal else _Console(highlight=False, width=80)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again, so that the command sets the exit code. rich would raise `SystemExit`."""
        raise BrokenPipeError


def prose(rows: Sequence[Sequence[str]], *heads: str) -> Table:
    """Build a table of texts. Long texts in the last column are wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads[:-1]:
        table.add_column(head, overflow="fold")
    table.add_column(heads[-1], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
