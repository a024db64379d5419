"""Results in a terminal: tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from steadycast import record
from steadycast.report import say
from steadycast.report.answer import title
from steadycast.report.rank import ranked_receivers


def fitting(widths: Sequence[int], first: int, width: int = 80) -> list[list[int]]:
    """Split columns of these widths into groups that each fit ``width`` beside a first column."""
    groups: list[list[int]] = []
    used = width
    for i, need in enumerate(widths):
        if used + need + 2 > width - first:
            groups.append([])
            used = 0
        groups[-1].append(i)
        used += need + 2
    return groups


class Fitted:
    """A table in as many parts as it takes to fit the width; each part begins with the first column.

    The cells of the first column are wrapped at blanks before the table is divided.
    """

    def __init__(self, *heads: str) -> None:
        self._heads = heads
        self._rows: list[tuple[Text, Sequence[str]]] = []

    def add_row(self, first: Text | str, *others: str) -> None:
        """Add a line."""
        self._rows.append((first if isinstance(first, Text) else Text(first), others))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Divide it, and show the parts below each other."""
        first, *heads = self._heads
        lines = [others for _, others in self._rows]
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        words = [word for name, _ in self._rows for word in [first, *name.plain.split()]]
        for n, columns in enumerate(fitting(widths, max(map(len, words), default=0), options.max_width)):
            if n:
                yield ""
            table = plain(first, *(heads[i] for i in columns))
            for name, others in self._rows:
                table.add_row(name, *(others[i] for i in columns))
            yield table


def flows(summary: Mapping[str, Any]) -> Fitted:
    """Line per flow: what it got, and what its viewers saw.

    A second one for the worst of several receivers.
    """
    columns = record.table("terminal")
    table = Fitted("flow", *(heading(column) for column in columns))
    for flow in summary["flows"]:
        receivers = flow.get("receivers") or []
        table.add_row(
            title(flow) + (f" → {len(receivers)}" if len(receivers) > 1 else ""),
            *say.flow_cells(columns, flow),
        )
        if len(receivers) > 1:
            worst = ranked_receivers(flow)[0]
            table.add_row(
                Text(f"  worst: {worst['name']}", style="dim"),
                *(
                    say.how(column.figure)(column.of(worst))
                    if column.figure.of == "receiver" or record.find("receiver", column.figure.key)
                    else ""
                    for column in columns
                ),
            )
    return table


def pauses(summary: Mapping[str, Any]) -> Fitted | None:
    """Line per flow whose source pauses: its transfers, and what it got while it was active.

    Nothing where there is no such flow.
    """
    flows = [flow for flow in summary["flows"] if flow.get("active_frac") is not None]
    if not flows:
        return None
    columns = record.table("pauses")
    table = Fitted("source that pauses", *(column.heading for column in columns))
    for flow in flows:
        table.add_row(title(flow), *say.cells(columns, flow))
    return table


def heading(column: record.Shown) -> str:
    """Heading of a flow's column where there is little room."""
    return column.heading.removeprefix("share ")


def expectations(summary: Mapping[str, Any]) -> Table | None:
    """Line per expectation of the scenario; nothing where there is none."""
    entries = summary.get("expect") or []
    if not entries:
        return None
    table = plain("expectation", "at least", "at most", "measured", "")
    for entry in entries:
        how = say.by_unit(entry["that"])
        verdict = Text("holds", style="green") if entry.get("ok") else Text("fails", style="bold red")
        table.add_row(
            str(entry["that"]), how(entry.get("min")), how(entry.get("max")), how(entry.get("value")), verdict
        )
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
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=80)


def prose(rows: Sequence[Sequence[str]], *heads: str) -> Table:
    """Table of texts; the last column is prose, and is wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads[:-1]:
        table.add_column(head, overflow="fold")
    table.add_column(heads[-1], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
