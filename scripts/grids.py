"""Draws heat maps of the results: a row for each situation, a column for each controller or pair of controllers.

    .venv/bin/python scripts/grids.py      # docs/pictures/grid-*.svg, from the tables of docs/data

A cell is in per cent: the smaller one of both sides' shares of their fair rates, or the share of bounds that hold. For
a judged pair, it is the share of pictures in time and, beside a TCP, the TCP's share.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast.report.canvas import save_drawing
from steadycast.style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data"
PICTURES = ROOT / "docs" / "pictures"
Line = Mapping[str, str]
Cell = tuple[str, str, float, str]
"""Controller or pair, situation, value from 0 to 1, and the text of the cell."""
DARK = 0.3
"""Cells with a value below this are dark."""
WIDE = 6.2
"""Inches. On a phone the figure is half as wide, and its numbers are still legible."""
SHOWN = (
    *("steady", "tfrc", "asmp", "tfmcc", "pgmcc", "lda-plus"),
    *("scream", "nada", "gcc", "e-multfrc", "eaio-tfrc"),
)
"""The controllers in the figures. The tables have all controllers."""


@dataclass(frozen=True)
class Grid:
    """A figure that is drawn from a table."""

    name: str
    table: str
    title: str
    cells: Callable[[Line], Iterator[Cell]]
    shown: tuple[str, ...] = SHOWN


def least(line: Line, column: str, own: str, other: str) -> Iterator[Cell]:
    """Yield the smaller one of two flows' shares of their fair rates."""
    if line[own]:
        shares = [float(line[key]) / 100 for key in (own, other) if line[key]]
        yield told(line["variant"], column, min(1.0, *shares))


def told(name: str, situation: str, value: float) -> Cell:
    """Return a cell whose text is its value."""
    return name, situation, value, f"{100 * value:.0f}"


def situation(line: Line) -> Iterator[Cell]:
    """Return the cell of a row of docs/data/situations.csv."""
    return least(line, line["scenario"], "share, %", "least share of a TCP, %")


def beside_cubic(line: Line) -> Iterator[Cell]:
    """Return the cell of a row of docs/data/field.csv, beside CUBIC and alone."""
    if line["scenario"] in ("alone", "beside CUBIC"):
        where = f"{line['scenario']}, {line['network']}"
        yield from least(line, where, "share, %", "share of the other, %")


def held(line: Line) -> Iterator[Cell]:
    """Return the cells of a row of docs/data/test-cases-held.csv."""
    for case, part in line.items():
        some, slash, of = part.partition("/")
        if slash and case != "all":
            called = f"{case.replace('8869-', 'LTE ')} {CASES.get(case, '')}"
            yield told(line["variant"], called, int(some) / int(of))


def judged(line: Line) -> Iterator[Cell]:
    """Return the cell of a row of docs/data/judged.csv."""
    if (state := line["trusted"]) not in ("yes", "no"):
        yield line["pair"], line["network"], float("nan"), "unread" if state == "unread" else "failed"
        return
    good = float(line["in-time, %"] or "nan") * (100 - float(line["damaged, %"] or 0)) / 100
    shares = [good, *([float(line["tcp, %"])] if "+" in line["network"] else [])]
    if shares != [good] or line["in-time, %"]:
        said = "/".join("–" if math.isnan(share) else f"{share:.0f}" for share in shares)
        worse = min(100.0, *(share for share in shares if not math.isnan(share)))
        yield line["pair"], line["network"], worse / 100, said + ("" if state == "yes" else "?")


CASES = {
    "5.1": "rate changes",
    "5.2": "rate changes, two videos",
    "5.3": "both directions",
    "5.4": "three videos",
    "5.5": "unequal round trips",
    "5.6": "beside a long TCP",
    "5.7": "beside short TCPs",
    "5.8": "one pauses",
    "6.1": "priorities",
    "6.2": "ECN and L4S",
    "6.3": "two bottlenecks",
    "8869-2.1": "varying load",
    "8869-2.2": "edge of a cell",
}
"""The test cases of RFC 8867 and RFC 8869 in two or three words."""

GRIDS = (
    Grid(
        "situations",
        "situations",
        "What the side that is worse off has, in % of its fair share\n(alone: in % of the link)",
        situation,
    ),
    Grid(
        "field",
        "field",
        "What the side that is worse off has, in % of its fair share\n(alone: in % of the link)",
        beside_cubic,
    ),
    Grid(
        "test-cases", "test-cases-held", "Bounds that hold with every seed, in % of the case's bounds", held
    ),
    Grid(
        "judged",
        "judged",
        "Pictures in time and undamaged, in %; beside a TCP also what that had,\n"
        "in % of its fair share (unread: too damaged; –: no pictures;\n"
        "?: the machine stalled; the colour is the worse one's)",
        judged,
        ("ffmpeg-rtp", "ffmpeg-srt", "gstreamer-gcc", "aiortc", "chromium", "iperf3", "steadycast"),
    ),
)


def draw(grid: Grid) -> Figure:
    """Draw a grid."""
    from matplotlib.figure import Figure

    with (DATA / f"{grid.table}.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        order = list(lines.fieldnames or ())
        found = {
            (row, name): (value, said)
            for line in lines
            for name, row, value, said in grid.cells(line)
            if name in grid.shown
        }
    rows = list(dict.fromkeys(row for row, _ in found))
    rows.sort(key=lambda row: order.index(first) if (first := row.split(" ")[0]) in order else len(order))
    figure = Figure(figsize=(WIDE, 0.27 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots()
    values = [[found.get((row, name), (float("nan"), ""))[0] for name in grid.shown] for row in rows]
    axes.imshow(values, cmap="RdYlBu", vmin=0.2, vmax=1.2, aspect="auto")
    for (row, name), (value, said) in found.items():
        ink = PAPER if value < DARK else INK
        x, y = grid.shown.index(name), rows.index(row)
        axes.text(x, y, said, ha="center", va="center", fontsize=9, color=ink)
    axes.set_xticks(range(len(grid.shown)), grid.shown, fontsize=9, rotation=40, ha="left", color=INK)
    axes.set_yticks(range(len(rows)), rows, fontsize=9, color=INK)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.suptitle(grid.title, x=0.01, ha="left", fontsize=9.5, fontweight="bold", color=INK)
    return figure


if __name__ == "__main__":
    for each in GRIDS:
        path = PICTURES / f"grid-{each.name}.svg"
        save_drawing(lambda each=each: draw(each), path)  # type: ignore[misc]
        print(path)
