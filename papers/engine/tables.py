"""The papers' own tables, cell by cell: the published value, and beside it our value in the joint setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from papers.engine.experiment import Bound, Cell, PaperTable
from papers.engine.verdict import Measured

if TYPE_CHECKING:
    from papers.engine.suite import Part


def _opinion() -> list[list[Cell]]:
    """Return Multi-Evalvid-RA's table 1, which maps a frame's PSNR to an opinion score, with our classes."""
    from steadycast.media.metrics import OPINION_BOUNDS_DB

    low, fair, good, best = OPINION_BOUNDS_DB
    rows = (
        ("> 37", f"> {best:g}", "5, excellent"),
        ("31 – 37", f"{good:g} – {best:g}", "4, good"),
        ("25 – 30", f"{fair:g} – {good:g}", "3, fair"),
        ("20 – 24", f"{low:g} – {fair:g}", "2, poor"),
        ("< 20", f"< {low:g}", "1, bad"),
    )
    return [[Cell(name), Cell(published, ours=ours)] for published, ours, name in rows]


def _ladder() -> list[list[Cell]]:
    """Return Multi-Evalvid-RA's table 2: the mean rate in kb/s at each quantizer, with that of the synthetic film."""
    from steadycast.media.ladder import encode_ladder
    from steadycast.media.synthetic import Synthetic
    from steadycast.media.table2 import MEAN_RATES_BPS

    film = encode_ladder(Synthetic(), "mpeg4", "352x288", 25, 12, 2, qs=range(2, 32)).table
    ours = {q: float(film.sizes[film.row(q)].mean()) * 8 * float(film.fps) / 1e3 for q in MEAN_RATES_BPS}
    cells = [
        [Cell(str(q)), Cell(f"{float(r) / 1e3:.1f}", ours=f"{ours[q]:.1f}")]
        for q, r in MEAN_RATES_BPS.items()
    ]
    return [cells[n] + cells[n + 10] + cells[n + 20] for n in range(10)]


MADE: Mapping[str, Callable[[], list[list[Cell]]]] = {"opinion": _opinion, "ladder": _ladder}
"""Tables whose cells don't come from a run, by the name that an experiment file uses."""


def markdown(table: PaperTable, part: Part) -> str:
    """Return a table of the paper in Markdown, with `published / ours` in each cell that has a measured value."""
    rows = MADE[table.made]() if table.made else table.rows
    lines = [f"| {' | '.join(table.heads)} |", "|---" * len(table.heads) + "|"]
    lines += [f"| {' | '.join(_text(cell, part) for cell in row)} |" for row in rows]
    note = "In each cell, the published value is before the slash, and our value is after the slash."
    return "\n".join([f"**{table.number}**: {table.title}. {note}", "", *lines])


def _text(cell: Cell, part: Part) -> str:
    ours = cell.ours
    if cell.statement:
        ours = next(r.said() for r in part.rows if r.statement.id == cell.statement)
    if cell.measure is not None:
        needed = set(cell.measure.variants)
        run = [seen for seen in part.base if needed <= seen.keys()]
        values = tuple(value for seen in run if (value := cell.measure(seen)) is not None)
        if not values:
            return f"{cell.published} / –"
        m = Measured(values, Bound(), len(run))
        ci = m.spread["ci95"]
        ours = f"{cell.unit.text(m.mean)}{f' ± {cell.unit.text(ci)}' if ci is not None else ''}{cell.unit.suffix}"
    return f"{cell.published} / **{ours}**" if ours else cell.published
