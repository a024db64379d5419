"""The figures of pages whose answer is a grid: a row for each controller, a column for each situation.

    .venv/bin/python scripts/grids.py      # docs/pictures/grid-*.svg, from the tables of docs/data

A cell says how much of its fair share the worse side has, in per cent, or which part of its bounds holds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast.report.canvas import WIDTH, save_drawing
from steadycast.style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data"
PICTURES = ROOT / "docs" / "pictures"
Line = Mapping[str, str]
Cell = tuple[str, str, float]
"""Row, column and value from 0 to 1."""
DARK = 0.3
"""Below this a cell is dark."""
SHOWN = (
    *("steady", "tfrc", "asmp", "tfmcc", "pgmcc", "lda-plus"),
    *("scream", "nada", "gcc", "e-multfrc", "eaio-tfrc"),
)
"""Controllers that a figure has; the tables have all."""


@dataclass(frozen=True)
class Grid:
    """A figure of a table."""

    name: str
    table: str
    title: str
    cells: Callable[[Line], Iterator[Cell]]


def least(line: Line, column: str, own: str, other: str) -> Iterator[Cell]:
    """Return what the side that is worse off has."""
    if line[own]:
        shares = [float(line[key]) / 100 for key in (own, other) if line[key]]
        yield line["controller"], column, min(1.0, *shares)


def situation(line: Line) -> Iterator[Cell]:
    """Return the cell of a row of docs/data/situations.csv."""
    return least(line, line["situation"], "share, %", "least share of a TCP, %")


def beside_cubic(line: Line) -> Iterator[Cell]:
    """Return the cell of a row of docs/data/field.csv, beside CUBIC and alone."""
    if line["situation"] in ("alone", "beside CUBIC"):
        where = f"{line['situation']}\n{line['network']}"
        yield from least(line, where, "share, %", "share of the other, %")


def held(line: Line) -> Iterator[Cell]:
    """Return the cells of a row of docs/data/test-cases-held.csv."""
    for case, told in line.items():
        some, slash, of = told.partition("/")
        if slash:
            yield line["controller"], case, int(some) / int(of)


GRIDS = (
    Grid(
        "situations",
        "situations",
        "share of the side that is worse off, % of its fair share (alone: of the link)",
        situation,
    ),
    Grid(
        "field",
        "field",
        "share of the side that is worse off, % of its fair share (alone: of the link)",
        beside_cubic,
    ),
    Grid("test-cases", "test-cases-held", "bounds that hold with every seed, % of the case's", held),
)


def draw(grid: Grid) -> Figure:
    """Draw a grid."""
    from matplotlib.figure import Figure

    with (DATA / f"{grid.table}.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        order = list(lines.fieldnames or ())
        found = {
            (row, column): value for line in lines for row, column, value in grid.cells(line) if row in SHOWN
        }
    columns = list(dict.fromkeys(column for _, column in found))
    columns.sort(key=lambda column: order.index(column) if column in order else 0)
    figure = Figure(figsize=(WIDTH, 0.27 * len(SHOWN) + 1.1), layout="constrained")
    axes = figure.subplots()
    values = [[found.get((row, column), float("nan")) for column in columns] for row in SHOWN]
    axes.imshow(values, cmap="RdYlBu", vmin=0.2, vmax=1.2, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            if (SHOWN[y], columns[x]) in found:
                ink = PAPER if value < DARK else INK
                axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", fontsize=7.5, color=ink)
    axes.set_xticks(range(len(columns)), columns, fontsize=7, rotation=35, ha="right")
    axes.set_yticks(range(len(SHOWN)), SHOWN, fontsize=8)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set_title(grid.title, fontsize=8.5)
    return figure


if __name__ == "__main__":
    for each in GRIDS:
        path = PICTURES / f"grid-{each.name}.svg"
        save_drawing(lambda each=each: draw(each), path)  # type: ignore[misc]
        print(path)
