"""Draws the figures of experiments on all cores, each once, as SVG for a page and as PNG for the documentation.

The PNG is the figure in another width and with few colours, so that the file is small.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.report import canvas
from steadycast.workers import Workers, cores

from papers.engine.draw import drawing
from papers.engine.experiment import Figure, Medium
from papers.engine.observe import Observed
from papers.engine.registry import EXPERIMENTS
from papers.engine.suite import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_DPI, _COLOURS = 104, 40
_PER_PROCESS = 8
"""Separate processes save time only if each draws at least this number of figures."""
_WIDTH = 5.8
"""Width in inches. Two pictures side by side are 400 pixels wide each, with letters of at least 8 pixels."""

Place = tuple[int, str]
"""The index of a part, and the number of one of its figures."""


@dataclass(frozen=True)
class Formats:
    """A figure in both formats. Each is empty if it is not needed."""

    svg: str = ""
    png: bytes = b""


@dataclass(frozen=True)
class _Task:
    """A figure with the observed runs that it shows, in a form that another process can receive."""

    experiment: str
    medium: Medium
    figure: int
    """Index of the figure among those of the experiment."""
    seeds: tuple[int, ...]
    contents: tuple[dict[str, Any], ...]
    """For each seed the contents of the observations, by variant."""
    name: str
    """Prefix of the figure's ids in the page."""
    page: bool
    picture: bool


def on_page(figure: Figure, medium: Medium) -> bool:
    """Return whether the page of a reproduction shows a figure with a medium."""
    return medium.pixels if figure.pixels else medium.name != "synthetic"


def in_docs(figure: Figure, medium: Medium) -> bool:
    """Return whether the documentation shows a figure with a medium."""
    return figure.pixels == medium.pixels


def draw_all(parts: Sequence[Part], *, docs: bool = False) -> dict[Place, Formats]:
    """Draw the figures of all parts. Figures whose runs were not made are left out.

    Args:
        parts: experiments with their observed runs.
        docs: whether the pictures of the documentation are drawn, too.

    """
    made: dict[Place, Formats] = {}
    places: list[Place] = []
    tasks: list[_Task] = []
    for number, part in enumerate(parts):
        for index, figure in enumerate(part.experiment.figures):
            page, picture = on_page(figure, part.medium), docs and in_docs(figure, part.medium)
            if not page and not picture:
                continue
            name = f"p{number}-{figure.number.split()[-1]}"
            if figure.ranks:
                # Ranks show the numbers of statements, which another process can't receive.
                made[number, figure.number] = _formats(figure, part, name, page, picture)
                continue
            places.append((number, figure.number))
            tasks.append(_task(part, index, name, page, picture))
    for index, formats in _drawn(tasks):
        made[places[index]] = formats
    return {place: formats for place, formats in made.items() if formats != Formats()}


def _drawn(tasks: Sequence[_Task]) -> Iterator[tuple[int, Formats]]:
    count = min(cores(), len(tasks) // _PER_PROCESS)
    if count < 2:
        yield from enumerate(map(begin(None), tasks))
        return
    with Workers("papers.engine.drawings:begin", None, count, path=str(Path(__file__).parents[2])) as pool:
        for index, outcome in pool.do(tasks):
            if isinstance(outcome, BaseException):
                raise outcome
            yield index, outcome


def _task(part: Part, index: int, name: str, page: bool, picture: bool) -> _Task:
    needed = set(_variants(part.experiment.figures[index]))
    contents = tuple({v: run.content for v, run in seen.items() if v in needed} for seen in part.base)
    return _Task(part.experiment.id, part.medium, index, part.seeds, contents, name, page, picture)


def _variants(figure: Figure) -> Iterator[str]:
    yield from figure.variants
    yield from (line.variant for line in figure.lines)
    yield from (name for curve in figure.curves for _, name in curve.points)


def begin(_: None) -> Callable[[_Task], Formats]:
    """Return the function that draws a figure in this process."""
    known = {e.id: e for e in EXPERIMENTS}

    def work(task: _Task) -> Formats:
        base = tuple({v: Observed(content) for v, content in seen.items()} for seen in task.contents)
        experiment = known[task.experiment]
        part = Part(experiment, task.medium, task.seeds, base, {}, ())
        return _formats(experiment.figures[task.figure], part, task.name, task.page, task.picture)

    return work


def _formats(figure: Figure, part: Part, name: str, page: bool, picture: bool) -> Formats:
    made = drawing(figure, part)
    if made is None:
        return Formats()
    svg = canvas.svg(made.figure, name) if page else ""
    return Formats(svg, _png(made.figure) if picture else b"")


def _png(whole: Drawing) -> bytes:
    from PIL import Image

    old = whole.subplotpars
    left = min(1.3, old.left * whole.get_figwidth())
    right = _WIDTH - (1 - old.right) * whole.get_figwidth()
    whole.set_figwidth(_WIDTH)
    whole.subplots_adjust(left=left / _WIDTH, right=right / _WIDTH)
    raw, small = io.BytesIO(), io.BytesIO()
    whole.savefig(raw, format="png", dpi=_DPI, metadata={"Software": None})
    few = (
        Image.open(raw)
        .convert("RGB")
        .quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    few.save(small, format="png", optimize=True)
    return small.getvalue()
