"""Creates figures and saves them. It defines their size and style, and writes labels at the ends of lines."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import style
from steadycast.errors import UserError
from steadycast.files import whole
from steadycast.report.markup import element

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.4
_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    # Set the position of the title. Otherwise matplotlib searches for ticks above the axes, which takes a third of the
    # drawing time.
    "axes.titley": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": style.MUTED,
    "axes.labelcolor": style.MUTED,
    "axes.titlecolor": style.INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": style.GRID,
    "grid.linewidth": 0.7,
    "xtick.color": style.MUTED,
    "ytick.color": style.MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.color": style.INK,
    "figure.facecolor": style.PAPER,
    "axes.facecolor": style.PAPER,
    "savefig.facecolor": style.PAPER,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "steadycast",
    "path.simplify": True,
}


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure of a run or of a sweep, which a notebook can display."""

    figure: Figure
    """The matplotlib figure. A program may change it further."""

    def save(self, path: Path | str) -> None:
        """Save the figure. The suffix of ``path`` selects the format (.png, .svg, .pdf).

        Raises:
            UserError: the suffix is unknown.
            UnwrittenError: the file can't be written.

        """
        save_drawing(lambda: self.figure, Path(path))

    def _repr_svg_(self) -> str:
        return _plain_svg(self.figure)


def drawn(draw: Callable[[], Figure | None]) -> Drawing | None:
    """Return the figure that ``draw`` creates in the report's style. Returns `None` if there is nothing to show."""
    with _context():
        figure = draw()
    return None if figure is None else Drawing(figure)


def all_drawn(draw: Callable[[], Sequence[Figure]]) -> list[Drawing]:
    """Return the figures that ``draw`` creates in the report's style."""
    with _context():
        return [Drawing(figure) for figure in draw()]


def _plain_svg(figure: Figure) -> str:
    """Return the figure as SVG with fixed colours and without a creation time. The reader's fonts are used."""
    buffer = io.StringIO()
    with _context():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # Add a fallback font, because the reader may lack DejaVu Sans. Verdana has almost the same widths.
    return text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def svg(figure: Figure, name: str) -> str:
    """Return the figure as inline SVG. Its colours follow the light or dark scheme of the page."""
    text = _plain_svg(figure)
    # Make the ids unique, because a page contains several drawings.
    text = text.replace(f'<g id="{_END}"', f'<g class="{_END}"')
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    for colour, variable in (
        (style.INK, "ink"),
        (style.MUTED, "muted"),
        (style.GRID, "grid"),
        (style.PAPER, "paper"),
    ):
        text = text.replace(colour, f"var(--{variable})")
    # Use variables for the colours of lines and of most texts. Areas, and the texts on them, keep their colours.
    text = re.sub(r"stroke: #([0-9a-f]{6})", r"stroke: var(--c-\1, #\1)", text)
    text = re.sub(r"(<text [^>]*fill: )#(?!ffffff|111111)([0-9a-f]{6})", r"\1var(--c-\2, #\2)", text)
    text = text.replace("<svg ", '<svg role="img" ', 1)
    return f"{_legend(figure)}{text}"


_END = "end"
"""CSS class of the labels to the right of the axes. Narrow pages show these labels as a list."""


def _legend(figure: Figure) -> str:
    """Return the labels to the right of the axes as an HTML list. It is empty if there are none."""
    from matplotlib.colors import to_hex
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

    labels = [each for each in figure.findobj(Annotation) if each.get_gid() == _END]
    dashed = {" ".join(str(line.get_label()).split()) for line in figure.findobj(Line2D) if line.is_dashed()}
    items: dict[str, str] = {}
    for each in labels:
        items.setdefault(" ".join(each.get_text().split()), to_hex(each.get_color()))
    variables = {style.INK: "ink", style.MUTED: "muted"}

    def colour(value: str) -> str:
        return f"var(--{variables[value]})" if value in variables else f"var(--c-{value[1:]}, {value})"

    entries = (
        element("li", name, class_="dashed" if name in dashed else None, style=f"color:{colour(value)}")
        for name, value in items.items()
    )
    return element("ul", *entries, class_="ends") if items else ""


def colours(svgs: str) -> list[str]:
    """Return the line colours that the results of `svg` contain, as six hexadecimal digits."""
    return sorted(set(re.findall(r"var\(--c-([0-9a-f]{6})", svgs)))


def save_drawing(draw: Callable[[], Figure | None], path: Path) -> bool:
    """Save the figure that `draw` creates. Return false if there was no figure.

    The suffix of ``path`` selects the format.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(
            str(path), "an image can't be saved in this format", "end the name in .png, .svg or .pdf"
        )
    with _context():
        figure = draw()
        if figure is None:
            return False
        with whole(path, "give another -o FILE") as new:
            figure.savefig(new, dpi=200, format=path.suffix[1:])
    return True


@contextmanager
def _context() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def in_style(draw: Callable[[], Figure | None], name: str) -> str | None:
    """Return the figure that `draw` creates as inline SVG. Returns `None` if there is nothing to show."""
    with _context():
        figure = draw()
        return None if figure is None else svg(figure, name)


def canvas(
    rows: int = 1, *, height: float = 3.0, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Create a figure of panels that have a common time axis. It has room for labels on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(
        rows, 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios or [1] * rows}
    )
    left, bottom, top = 0.62 / WIDTH, 0.45 / height, 1 - 0.34 / height
    figure.subplots_adjust(left=left, right=1 - 1.75 / WIDTH, bottom=bottom, top=top, hspace=0.28)
    return figure, [row[0] for row in axes]


@dataclass(frozen=True)
class Label:
    """A label at the end of a line. ``y`` is its vertical position in data coordinates."""

    y: float
    text: str
    colour: str


def label_ends(axes: Axes, labels: Sequence[Label], *, size: float = 8.5) -> None:
    """Write labels at the ends of lines. Labels that overlap are moved apart, and wide labels are broken."""
    if not labels:
        return
    low, high = axes.get_ylim()
    figure: Any = axes.figure
    area, (wide, tall) = axes.get_position(), figure.bbox.size * 72 / figure.dpi
    step = (high - low) * size * 1.25 / (area.height * tall)
    room = (1 - area.x1) * wide - 5

    def fitted(label: Label) -> Label:
        return replace(label, text="\n".join(_broken(line, size, room) for line in label.text.split("\n")))

    ordered = sorted(map(fitted, labels), key=lambda label: label.y)
    lines = [label.text.count("\n") + 1 for label in ordered]
    places = [min(max(label.y, low), high) for label in ordered]
    # Push close labels apart. Stop after 50 rounds, because there may not be enough room for all labels.
    for _ in range(50):
        moved = False
        for i in range(1, len(places)):
            need = step * (lines[i] + lines[i - 1]) / 2
            gap = places[i] - places[i - 1]
            if gap < need * 0.999:
                push = (need - gap) / 2
                places[i - 1] -= push
                places[i] += push
                moved = True
        floor = low + step * lines[0] / 2 * 0.2
        if places[0] < floor:
            places = [places[0] + (floor - places[0]), *places[1:]]
        if not moved:
            break
    right = axes.get_xlim()[1]
    for label, place in zip(ordered, places, strict=True):
        colour = style.readable(label.colour)
        more: Any = {"ha": "left", "color": colour, "fontsize": size, "linespacing": 1.05, "gid": _END}
        note(axes, label.text, (right, place), (5, 0), **more)


def _broken(line: str, size: float, room: float) -> str:
    """Break a line at its spaces into lines that are at most ``room`` points wide."""
    from matplotlib.textpath import TextPath

    if not line.strip():  # matplotlib fails on an empty text
        return line
    width = float(TextPath((0, 0), line, size=size).get_extents().width)
    return line if width <= room else textwrap.fill(line, max(8, int(len(line) * room / width)))


def note(axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float], **more: Any) -> None:
    """Write a text at a point in data coordinates, moved by ``shift`` points. It may be outside of the axes."""
    axes.annotate(
        text, at, shift, textcoords="offset points", annotation_clip=False, **{"va": "center", **more}
    )


def beside(axes: Axes, text: str, y: float, shift: float, colour: str) -> None:
    """Write a text to the right of the axes.

    Its vertical position is the fraction ``y`` of the height of the axes, plus ``shift`` points.
    """
    more: Any = {"fontsize": 7.5, "color": style.readable(colour), "gid": _END}
    note(axes, text, (1, y), (5, shift), xycoords="axes fraction", **more)


def bare(axes: Axes, bottom: float = 0.0, top: float = 1.0) -> None:
    """Hide the vertical axis. Its limits become ``bottom`` and ``top``."""
    axes.set_ylim(bottom, top)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def level(axes: Axes, y: float, text: str) -> Label:
    """Draw a thin horizontal line for a value such as a fair share or a limit. Return the label of the line."""
    axes.axhline(y, color=style.MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    return Label(y, text, style.MUTED)


def from_zero(axes: Axes, top: float) -> None:
    """Set the limits of the vertical axis to 0 and ``top``. If ``top`` is 0, the upper limit is 1."""
    axes.set_ylim(0, top if top > 0 else 1.0)


def scale_of(top: float) -> tuple[float, str]:
    """Return by what to divide rates up to ``top`` for display, and the unit of the result."""
    for unit, step in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if top >= step:
            return step, unit
    return 1.0, "b/s"
