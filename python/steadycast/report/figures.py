"""The figures of a report.

Each takes a run folder and gives a drawing, or nothing where the run has no such thing to show.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import style
from steadycast.errors import UserError
from steadycast.folder import Folder, Json, number
from steadycast.report import say
from steadycast.report.rank import alike, ranked_receivers

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.4
_MOST_LINES = 8
_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
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


@dataclass(frozen=True)
class Plot:
    """A figure's name on the command line, what it shows, and how it is drawn."""

    name: str
    title: str
    note: str
    draw: Callable[[Folder], Figure | None]


# ---------------------------------------------------------------- saving


def svg(figure: Figure, name: str) -> str:
    """Drawing as inline SVG whose ink, paper and lines follow the page's light and dark."""
    buffer = io.StringIO()
    with _context():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # Several drawings share one page: what one refers to must not be found in another.
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    # A reader may lack matplotlib's own font; Verdana's widths are all but the same.
    text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    for colour, variable in (
        (style.INK, "ink"),
        (style.MUTED, "muted"),
        (style.GRID, "grid"),
        (style.PAPER, "paper"),
    ):
        text = text.replace(colour, f"var(--{variable})")
    text = re.sub(r"(fill|stroke): #([0-9a-f]{6})", r"\1: var(--c-\2, #\2)", text)
    return text.replace("<svg ", '<svg role="img" ', 1)


def colours(svgs: str) -> list[str]:
    """Line colours that drawings of `svg` use, as six hexadecimal digits."""
    return sorted(set(re.findall(r"var\(--c-([0-9a-f]{6})", svgs)))


def save(folder: Folder, name: str, path: Path) -> None:
    """Save one figure; the ending says how (.png, .svg, .pdf).

    Raises:
        UserError: no such figure, nothing to show, or an ending that is not known.

    """
    plots = {plot.name: plot for plot in PLOTS}
    if name not in plots:
        raise UserError(name, "no such figure", f"there are: {', '.join(plots)}")
    if not save_drawing(lambda: plots[name].draw(folder), path):
        raise UserError(
            str(folder.path),
            f'this run has nothing that the figure "{name}" could show',
            f"there are: {', '.join(plots)}",
        )


def save_drawing(draw: Callable[[], Figure | None], path: Path) -> bool:
    """Save what `draw` draws; the ending says how. Returns whether there was anything.

    Raises:
        UserError: an ending that is not known, or a place that can't be written to.

    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(str(path), "an image can't be saved so", "end its name in .png, .svg or .pdf")
    with _context():
        figure = draw()
        if figure is None:
            return False
        try:
            figure.savefig(path, dpi=200)
        except OSError as error:
            raise UserError(
                str(path), f"can't be written ({error.strerror})", "give another -o FILE"
            ) from error
    return True


@contextmanager
def _context() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def in_style(draw: Callable[[], Figure | None], name: str) -> str | None:
    """Return what `draw` draws, as inline SVG."""
    with _context():
        figure = draw()
        return None if figure is None else svg(figure, name)


def drawn(plot: Plot, folder: Folder) -> str | None:
    """Figure as inline SVG, or nothing."""
    return in_style(lambda: plot.draw(folder), plot.name)


def canvas(
    rows: int = 1, *, height: float = 3.0, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Make a drawing of panels on one time axis, with room for the lines' labels on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(
        rows, 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios or [1] * rows}
    )
    left, bottom, top = 0.62 / WIDTH, 0.45 / height, 1 - 0.34 / height
    figure.subplots_adjust(left=left, right=1 - 1.75 / WIDTH, bottom=bottom, top=top, hspace=0.28)
    return figure, [row[0] for row in axes]


# ---------------------------------------------------------------- what is drawn around the lines


@dataclass(frozen=True)
class Label:
    """A label at a line's end."""

    y: float
    text: str
    colour: str


def label_ends(axes: Axes, labels: Sequence[Label], *, size: float = 8.5) -> None:
    """Write labels right of the axes, at their lines' ends, pushed apart where they would overlap."""
    if not labels:
        return
    low, high = axes.get_ylim()
    figure = axes.figure
    height = axes.get_position().height * figure.get_figheight() * 72  # type: ignore[union-attr]
    step = (high - low) * size * 1.25 / height
    ordered = sorted(labels, key=lambda label: label.y)
    lines = [label.text.count("\n") + 1 for label in ordered]
    places = [min(max(label.y, low), high) for label in ordered]
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
        axes.annotate(
            label.text,
            xy=(right, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            color=label.colour,
            fontsize=size,
            annotation_clip=False,
            linespacing=1.05,
        )


def beside(axes: Axes, text: str, y: float, shift: float, colour: str) -> None:
    """Write right of the axes, at a share of their height and so many points from it."""
    axes.annotate(
        text,
        xy=(1, y),
        xycoords="axes fraction",
        xytext=(5, shift),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
        color=colour,
        annotation_clip=False,
    )


def level(axes: Axes, y: float, text: str) -> Label:
    """Thin marked line across (a fair share, a limit), and its label."""
    axes.axhline(y, color=style.MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    return Label(y, text, style.MUTED)


def fair_shares(summary: Json) -> list[tuple[float, str]]:
    """Fair shares, and whose they are in a few words."""
    shares: dict[float, list[str]] = {}
    for flow in summary["flows"]:
        share = number(flow.get("fair_share_bps"))
        if share and flow.get("kind") in ("video", "tcp"):
            shares.setdefault(round(share, -2), []).append(str(flow["name"]))
    if len(shares) == 1:
        return [(share, "fair share") for share in shares]
    return [
        (share, f"fair share, {say.listed(names) if len(names) <= 2 else f'{len(names)} flows'}")
        for share, names in shares.items()
    ]


def mark_events(axes: Axes, folder: Folder, *, labels: bool) -> None:
    """Events as thin lines, with their names where asked; the warm-up, which no mean counts, in grey."""
    start, end = axes.get_xlim()
    warm = float(folder.summary.get("from_s") or 0.0)
    if warm > start:
        axes.axvspan(start, min(warm, end), color=style.MUTED, alpha=0.1, linewidth=0, zorder=0)
        if labels:
            axes.annotate(
                "warm-up",
                xy=(start, 0),
                xycoords=("data", "axes fraction"),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=7.5,
                color=style.MUTED,
            )
    latest = -1e9
    for t, text in events(folder):
        if not start < t < end:
            continue
        axes.axvline(t, color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        if labels and t - latest > (end - start) / 60:
            axes.annotate(
                text,
                xy=(t, 1),
                xycoords=("data", "axes fraction"),
                xytext=(2, -2),
                textcoords="offset points",
                rotation=90,
                va="top",
                ha="left",
                fontsize=7.5,
                color=style.MUTED,
                bbox={"facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            )
            latest = t


@cache
def events(folder: Folder) -> tuple[tuple[float, str], ...]:
    """Say what happened when: events, starts and stops. What happens at one moment is one entry."""
    found: dict[float, list[str]] = {}
    for flow in folder.scenario.get("flow", []):
        for key in ("start", "stop"):
            at = span(flow.get(key))
            if at:
                found.setdefault(at, []).append(f"{flow.get('name')} {key}s")
    for event in folder.scenario.get("event", []):
        at = span(event.get("at"))
        if at is None:
            continue
        for verb in ("join", "leave", "start", "stop"):
            if verb in event:
                found.setdefault(at, []).append(f"{event[verb]} {verb}s")
        if isinstance(event.get("set"), dict):
            change = dict(event["set"])
            what = ", ".join(str(v) if isinstance(v, str) else k for k, v in change.items() if k != "link")
            found.setdefault(at, []).append(f"{change.get('link')}: {what}")
    return tuple(
        (t, texts[0] if len(texts) == 1 else f"{texts[0]} (+{len(texts) - 1})")
        for t, texts in sorted(found.items())
    )


def span(value: object) -> float | None:
    """Length of time as the scenario writes it, in seconds; None for what is not a fixed one."""
    match = re.fullmatch(r"([0-9.]+)(us|ms|s|min)", value) if isinstance(value, str) else None
    return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}[match[2]] if match else None


def time_axis(axes: Axes, folder: Folder) -> None:
    """Show the run's whole length, in seconds."""
    axes.set_xlim(0.0, float(folder.summary.get("to_s") or 1.0))
    axes.set_xlabel("time (s)", loc="right", labelpad=1)


def scale_of(top: float) -> tuple[float, str]:
    """Say what to divide a rate by, and the unit that it is then in."""
    for unit, step in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if top >= step:
            return step, unit
    return 1.0, "b/s"


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True)
class Series:
    """A flow over time: the median of its receivers, and between which two they all lie."""

    flow: Json
    t: list[float]
    mid: list[float]
    low: list[float]
    high: list[float]

    @property
    def label(self) -> str:
        """What stands at the line's end."""
        return flow_label(self.flow)


def flow_label(flow: Json) -> str:
    """Flow's name, and what steers it."""
    how = flow.get("controller") or (flow.get("congestion") if flow.get("kind") == "tcp" else None)
    name = str(flow["name"])
    text = name if not how or str(how) == name else f"{name} ({how})"
    if flow.get("flows"):
        return f"{flow['flows']} × {name}\nmedian"
    if flow.get("seeds"):
        return f"{text}\n{flow['seeds']} seeds"
    n = len(flow.get("receivers") or [])
    return f"{text}\nmedian of {n}" if n > 1 else text


def grouped(lines: Sequence[Series]) -> list[Series]:
    """Join flows of one kind where there are too many to tell apart: their median, and their extremes."""
    if len(lines) <= _MOST_LINES:
        return list(lines)
    groups: dict[tuple[object, ...], list[Series]] = {}
    for one in lines:
        how = one.flow.get("controller") or one.flow.get("congestion") or one.flow.get("kind")
        groups.setdefault((one.flow.get("kind"), how), []).append(one)
    result = []
    for (_, how), members in groups.items():
        at: dict[float, list[tuple[float, float, float]]] = {}
        for one in members:
            for t, *values in zip(one.t, one.mid, one.low, one.high, strict=True):
                if values[0] == values[0]:
                    at.setdefault(t, []).append((values[0], values[1], values[2]))
        times = sorted(at)
        flow = {**members[0].flow, "name": how, "receivers": [{}, {}], "flows": len(members)}
        mid = [sorted(v[0] for v in at[x])[len(at[x]) // 2] for x in times]
        low = [min(v[1] for v in at[x]) for x in times]
        high = [max(v[2] for v in at[x]) for x in times]
        result.append(Series(flow, times, mid, low, high))
    return result


def series(folder: Folder, column: str) -> list[Series]:
    """Column of the rates table for what arrived, flow by flow."""
    import polars as pl

    rates = folder.table("rates").filter(pl.col(column).is_not_null() & pl.col(column).is_finite())
    step = interval(rates)
    result = []
    for flow in folder.summary["flows"]:
        if column == "delay_ms" and flow.get("kind") not in ("video", "tcp"):
            continue  # nobody waits for background traffic
        nodes = [r["name"] for r in flow.get("receivers") or []]
        mine = (
            rates.filter((pl.col("flow") == flow["name"]) & pl.col("node").is_in(nodes))
            .group_by("t_s")
            .agg(mid=pl.col(column).median(), low=pl.col(column).min(), high=pl.col(column).max())
            .sort("t_s")
        )
        if mine.height:
            # Where nothing arrived there is no line: a gap, not a bridge.
            gaps = mine.filter(pl.col("t_s").diff() > 1.5 * step).select(pl.col("t_s") - step)
            nothing = gaps.with_columns(**{c: pl.lit(math.nan) for c in ("mid", "low", "high")})
            mine = pl.concat([mine, nothing]).sort("t_s")
            t = (mine["t_s"] + step / 2).to_list()
            result.append(
                Series(flow, t, mine["mid"].to_list(), mine["low"].to_list(), mine["high"].to_list())
            )
    return result


def interval(rates: pl.DataFrame) -> float:
    """Return the recording interval in seconds."""
    steps = rates["t_s"].unique().sort().diff().drop_nulls()
    return float(steps.min() or 1.0) if steps.len() else 1.0  # type: ignore[arg-type]


def highest(lines: Sequence[Series]) -> float:
    """Highest value of all."""
    return max((v for one in lines for v in one.high if v == v), default=1.0)


def last(values: Sequence[float]) -> float:
    """Last value that there is."""
    return next((v for v in reversed(values) if v == v), 0.0)


def draw_series(axes: Axes, lines: Sequence[Series], scale: float = 1.0) -> list[Label]:
    """Lines with their bands; gives their labels."""
    labels = []
    for one, look in zip(lines, style.looks([one.flow for one in lines]), strict=True):
        if len(one.flow.get("receivers") or []) > 1:
            low, high = [v / scale for v in one.low], [v / scale for v in one.high]
            axes.fill_between(one.t, low, high, color=look.colour, alpha=0.18, linewidth=0)
        axes.plot(one.t, [v / scale for v in one.mid], zorder=3, **look.line)
        labels.append(Label(last(one.mid) / scale, one.label, look.colour))
    return labels


def capacity(folder: Folder) -> tuple[str, list[float], list[float]] | None:
    """Derive the busiest link's capacity over time from throughput and utilisation: events are in it."""
    import polars as pl

    if not folder.has("links") or not folder.summary.get("links"):
        return None
    busiest = max(folder.summary["links"], key=lambda link: link.get("utilisation_frac") or 0.0)
    rows = (
        folder.table("links")
        .filter(
            (pl.col("link") == busiest["name"])
            & (pl.col("direction") == busiest["direction"])
            & (pl.col("utilisation_frac") > 0.02)
        )
        .sort("t_s")
    )
    if not rows.height:
        return None
    values = (rows["throughput_bps"] / rows["utilisation_frac"]).to_list()
    return str(busiest["name"]), rows["t_s"].to_list(), [float(v) for v in values]


def draw_rates(folder: Folder) -> Figure | None:
    """Throughput over time, with the fair shares, the capacity and the events."""
    lines = grouped(series(folder, "throughput_bps"))
    if not lines:
        return None
    limit = capacity(folder)
    top = max([highest(lines)] + (limit[2] if limit else []))
    scale, unit = scale_of(top)
    figure, (axes,) = canvas(height=3.6)
    labels = draw_series(axes, lines, scale)
    time_axis(axes, folder)
    axes.set_ylim(0, top / scale * 1.08)
    if limit:
        name, t, values = limit
        end = float(folder.summary["to_s"])
        axes.step(
            [0.0, *t[1:], end],
            [v / scale for v in [*values, values[-1]]],
            where="post",
            color=style.MUTED,
            linewidth=0.9,
        )
        labels.append(Label(values[-1] / scale, f"capacity of {name}\n{say.rate(values[-1])}", style.MUTED))
    for share, whose in fair_shares(folder.summary):
        labels.append(level(axes, share / scale, f"{whose}\n{say.rate(share)}"))
    mark_events(axes, folder, labels=True)
    axes.set_title(f"Throughput ({unit})")
    label_ends(axes, labels)
    return figure


def draw_delay(folder: Folder) -> Figure | None:
    """One-way delay over time, with the play-out limit."""
    lines = grouped(series(folder, "delay_ms"))
    if not lines:
        return None
    figure, (axes,) = canvas()
    labels = draw_series(axes, lines)
    time_axis(axes, folder)
    top = highest(lines)
    for flow in folder.scenario.get("flow", []):
        limit = span(flow.get("playout"))
        if limit is not None:
            if limit * 1000 < top * 3:
                top = max(top, limit * 1000)
                labels.append(level(axes, limit * 1000, f"play-out limit\n{say.ms(limit * 1000)}"))
            break
    axes.set_ylim(0, top * 1.12)
    mark_events(axes, folder, labels=False)
    axes.set_title("One-way delay, mean of each interval (ms)")
    label_ends(axes, labels)
    return figure


def decided(folder: Folder) -> pl.DataFrame:
    """Return what the senders decided, in time; the table also holds what each receiver reported."""
    import polars as pl

    return folder.table("decisions").filter(pl.col("limit").is_not_null()).sort("t_s")


def draw_why(folder: Folder) -> Figure | None:
    """Draw the video's target, what was sent, and what held the rate."""
    import polars as pl
    from matplotlib.patches import Patch

    if not folder.has("decisions"):
        return None
    decisions = decided(folder)
    flows = [
        f
        for f in folder.summary["flows"]
        if f.get("kind") == "video" and (decisions["flow"] == f["name"]).any()
    ]
    if not flows:
        return None
    flows = flows[:4]
    rates = folder.table("rates") if folder.has("rates") else None
    figure, panels = canvas(2 * len(flows), height=0.6 + 2.6 * len(flows), ratios=[1, 0.09] * len(flows))
    for i, flow in enumerate(flows):
        axes, strip = panels[2 * i], panels[2 * i + 1]
        look = style.look(flow)
        # Only the sender is held by something: rows of receivers are their own views.
        mine = decisions.filter((pl.col("flow") == flow["name"]) & pl.col("limit").is_not_null())
        if not mine.height:
            continue
        t = mine["t_s"].to_list()
        shown = mine.select("target_bps", "pacing_bps").drop_nulls()
        top = float(shown["target_bps"].max() or 1.0)  # type: ignore[arg-type]
        scale, unit = scale_of(top)
        axes.step(t, (mine["target_bps"] / scale).to_list(), where="post", zorder=3, **look.line)
        labels = [Label(float(mine["target_bps"].drop_nulls()[-1]) / scale, "target", look.colour)]
        if rates is not None:
            sent = rates.filter((pl.col("flow") == flow["name"]) & pl.col("target_bps").is_not_null()).sort(
                "t_s"
            )
            if sent.height:
                step = interval(rates)
                axes.plot(
                    (sent["t_s"] + step / 2).to_list(),
                    (sent["throughput_bps"] / scale).to_list(),
                    color=style.INK,
                    linewidth=0.9,
                )
                labels.append(Label(float(sent["throughput_bps"][-1]) / scale, "sent", style.INK))
                top = max(top, float(sent["throughput_bps"].max() or 0.0))  # type: ignore[arg-type]
        time_axis(axes, folder)
        axes.set_xlabel("")
        axes.set_ylim(0, top / scale * 1.1)
        axes.set_title(f"{flow['name']} ({flow.get('controller')}): target and what was sent ({unit})")
        mark_events(axes, folder, labels=False)
        label_ends(axes, labels)
        end = float(folder.summary["to_s"])
        held: dict[str, float] = {}
        spans: dict[str, list[tuple[float, float]]] = {}
        for begin, stop, limit in stretches(t, [str(v) for v in mine["limit"].to_list()], end):
            spans.setdefault(limit, []).append((begin, stop - begin))
            held[limit] = held.get(limit, 0.0) + stop - begin
            if (stop - begin) / end > 0.014 * len(limit):
                strip.text(
                    (begin + stop) / 2, 0.5, limit, va="center", ha="center", fontsize=7, color="#111111"
                )
        for limit, each in spans.items():
            # One collection per limit: a patch for each of thousands of spans takes most of the report's time.
            colour = style.LIMIT.get(limit, style.MUTED)
            whole = axes.get_xaxis_transform()
            axes.broken_barh(each, (0, 1), transform=whole, color=colour, alpha=0.1, linewidth=0)
            strip.broken_barh(each, (0, 1), color=colour, linewidth=0)
        strip.set_ylim(0, 1)
        strip.set_yticks([])
        strip.grid(visible=False)
        strip.spines["left"].set_visible(False)
        strip.legend(
            handles=[
                Patch(
                    color=style.LIMIT.get(limit, style.MUTED),
                    label=f"{limit} {say.frac(time / (end - t[0]))}",
                )
                for limit, time in sorted(held.items(), key=lambda e: -e[1])
            ],
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            borderaxespad=0.3,
            handlelength=1,
            handletextpad=0.5,
            labelspacing=0.15,
            fontsize=7.5,
        )
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    return figure


def stretches(t: Sequence[float], what: Sequence[str], end: float) -> list[tuple[float, float, str]]:
    """Join equal values in a row, as (from, to, value)."""
    result: list[tuple[float, float, str]] = []
    for begin, value in zip(t, what, strict=True):
        if result and result[-1][2] == value:
            continue
        if result:
            result[-1] = (result[-1][0], begin, result[-1][2])
        result.append((begin, end, value))
    return result


def draw_queue(folder: Folder) -> Figure | None:
    """Queue delay and drops of the links that have any."""
    import polars as pl

    if not folder.has("links"):
        return None
    links = folder.table("links").sort("t_s")
    ranked = (
        links.group_by("link", "direction", maintain_order=True)
        .agg(queue=pl.col("queue_ms").max(), drops=pl.col("dropped_packets").sum())
        .filter(
            ((pl.col("queue") > 1.0) & (pl.col("queue") > 0.02 * pl.col("queue").max()))
            | (pl.col("drops") > 0)
        )
        .sort("queue", descending=True)
        .head(4)
    )
    if not ranked.height:
        return None
    dropping = ranked.filter(pl.col("drops") > 0).height > 0
    figure, panels = canvas(
        2 if dropping else 1, height=3.8 if dropping else 2.8, ratios=[2, 1] if dropping else None
    )
    step = interval(links)
    queue_labels, drop_labels = [], []
    base: dict[float, float] = {}
    for i, (link, direction) in enumerate(zip(ranked["link"], ranked["direction"], strict=True)):
        mine = links.filter((pl.col("link") == link) & (pl.col("direction") == direction))
        shade = (style.INK, "#0072b2", "#d55e00", "#009e73")[i]
        t = mine["t_s"].to_list()
        panels[0].plot([x + step / 2 for x in t], mine["queue_ms"].to_list(), color=shade, linewidth=1.3)
        name = link if direction == "forward" else f"{link}, back"
        queue_labels.append(Label(float(mine["queue_ms"].drop_nulls()[-1]), name, shade))
        if dropping and mine["dropped_packets"].sum():
            counts = [float(v or 0) for v in mine["dropped_packets"].to_list()]
            panels[1].bar(
                [x + step / 2 for x in t],
                counts,
                width=step * 0.9,
                bottom=[base.get(x, 0.0) for x in t],
                color=shade,
            )
            for x, n in zip(t, counts, strict=True):
                base[x] = base.get(x, 0.0) + n
            drop_labels.append(Label(0.0, f"{name}: {say.count(sum(counts))}", shade))
    for axes in panels:
        time_axis(axes, folder)
        axes.set_xlabel("")
        axes.set_ylim(bottom=0)
        mark_events(axes, folder, labels=False)
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    panels[0].set_title("Queue delay, mean of each interval (ms)")
    label_ends(panels[0], queue_labels)
    if dropping:
        panels[1].set_title("Drops per interval (packets)")
        label_ends(panels[1], drop_labels)
    return figure


def draw_quality(folder: Folder) -> Figure | None:
    """Draw PSNR frame by frame (median and worst receiver), the worst one's missing frames, the quantizer."""
    import polars as pl

    if not folder.has("frames"):
        return None
    frames = folder.table("frames").sort("pts_s")
    flows = [
        f for f in folder.summary["flows"] if f.get("kind") == "video" and (frames["flow"] == f["name"]).any()
    ][:3]
    if not flows:
        return None
    pixels = [f for f in flows if frames.filter(pl.col("flow") == f["name"])["psnr_y_db"].is_not_null().any()]
    per_flow = [[1.0, 0.13, 0.45] if f in pixels else [0.13, 0.45] for f in flows]
    ratios = [r for part in per_flow for r in part]
    figure, panels = canvas(len(ratios), height=0.55 + 2.4 * sum(ratios), ratios=ratios)
    figure.subplots_adjust(hspace=0.35)
    free = iter(panels)
    for flow in flows:
        look = style.look(flow)
        order = ranked_receivers(flow)
        worst, middle = order[0]["name"], order[len(order) // 2]["name"]
        mine = frames.filter(pl.col("flow") == flow["name"])
        bad = mine.filter(pl.col("node") == worst)
        if flow in pixels:
            axes = next(free)
            same = alike(order)
            shown: list[tuple[str, Any, str, float]] = [(worst, bad, style.INK, 0.6)]
            if middle != worst and not same:
                shown.append((middle, mine.filter(pl.col("node") == middle), look.colour, 1.0))
            else:
                shown = [(worst, bad, look.colour, 1.0)]
            labels = []
            low, high = 60.0, 20.0
            for name, rows, colour, width in shown:
                rows = rows.filter(pl.col("psnr_y_db").is_not_null())
                values = [min(v, 60.0) for v in rows["psnr_y_db"].to_list()]
                if not values:
                    continue
                axes.plot(rows["pts_s"].to_list(), values, color=colour, linewidth=width)
                low, high = min(low, *values), max(high, *values)
                what = (
                    name
                    if len(order) == 1
                    else f"all {len(order)}"
                    if same
                    else f"worst: {name}"
                    if name == worst
                    else f"median: {name}"
                )
                labels.append(Label(sum(values[-25:]) / len(values[-25:]), what, colour))
            time_axis(axes, folder)
            axes.set_xlabel("")
            axes.set_ylim(low - 1, high + 2)
            for edge, words in (
                (37, "excellent above 37"),
                (31, "good above 31"),
                (25, "fair above 25"),
                (20, "poor above 20"),
            ):
                if low - 1 < edge < high + 1:
                    labels.append(level(axes, edge, words))
            mark_events(axes, folder, labels=False)
            axes.set_title(
                f"{flow['name']} ({flow.get('controller')}): PSNR of each frame against the original (dB)"
            )
            label_ends(axes, labels)
        axes = next(free)
        time_axis(axes, folder)
        axes.set_xlabel("")
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        place = 0.0
        for fate, colour in style.FATE.items():
            t = bad.filter(pl.col("fate") == fate)["pts_s"].to_list()
            axes.vlines(t, 0, 1, color=colour, linewidth=0.7)
            # As in the table: those of the warm-up are drawn, and not counted.
            n = sum(each >= folder.summary.get("from_s", 0.0) for each in t)
            beside(axes, f"{n} {fate}", 1.0, -place, colour)
            place += 9
        who = "nobody saw" if len(order) > 1 and alike(order) else f"{worst} did not see"
        axes.set_title(f"Frames that {who} in time and whole", fontsize=8.5)
        axes = next(free)
        steps = mine.filter(pl.col("node") == middle)
        if steps["q"].is_not_null().any():
            axes.step(
                steps["pts_s"].to_list(), steps["q"].to_list(), where="post", color=look.colour, linewidth=1.1
            )
        time_axis(axes, folder)
        axes.set_xlabel("")
        axes.set_title("Quantizer (smaller is finer)", fontsize=8.5)
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    return figure


def draw_mos(folder: Folder) -> Figure | None:
    """Share of frames in each class of the mean opinion score."""
    rows: list[tuple[str, Json]] = []
    for flow in folder.summary["flows"]:
        seen = [r for r in ranked_receivers(flow) if r.get("mos")]
        if not seen:
            continue
        if len(seen) > 1 and alike(seen):
            rows.append((f"all {len(seen)} ({flow.get('controller')})", seen[0]["mos"]))
        elif len(seen) <= 8:
            rows += [(f"{r['name']} ({flow.get('controller')})", r["mos"]) for r in seen]
        else:
            chosen = (("worst", seen[0]), ("median", seen[len(seen) // 2]), ("best", seen[-1]))
            rows += [(f"{which}: {r['name']} ({flow.get('controller')})", r["mos"]) for which, r in chosen]
    return mos_bars(rows, "Share of frames in each class") if rows else None


def mos_bars(rows: Sequence[tuple[str, Json]], heading: str) -> Figure:
    """Bar per row, from bad to excellent, with its mean score at the end."""
    height = 0.95 + 0.36 * len(rows)
    figure, (axes,) = canvas(height=height)
    figure.subplots_adjust(
        left=2.1 / WIDTH, right=1 - 0.9 / WIDTH, top=1 - 0.55 / height, bottom=0.42 / height
    )
    for y, (name, mos) in enumerate(rows):
        left = 0.0
        for grade, (_, colour) in style.MOS.items():
            share = 100 * (number((mos.get("share") or {}).get(str(grade))) or 0.0)
            axes.barh(y, share, left=left, color=colour, height=0.72, edgecolor=style.PAPER, linewidth=0.6)
            if share >= 5:
                ink = "#ffffff" if grade in (1, 5) else "#111111"
                axes.text(
                    left + share / 2, y, f"{share:.0f} %", ha="center", va="center", fontsize=8, color=ink
                )
            left += share
        mean = say.score(number(mos.get("mean")))
        axes.annotate(
            f"MOS {mean}",
            xy=(100, y),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )
        axes.annotate(
            name,
            xy=(0, y),
            xytext=(-6, 0),
            textcoords="offset points",
            va="center",
            ha="right",
            annotation_clip=False,
        )
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of frames (%)", loc="right", labelpad=1)
    axes.set_title(heading, pad=20)
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=f"{grade} {word}") for grade, (word, colour) in style.MOS.items()]
    axes.legend(
        handles=handles,
        ncols=5,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        borderaxespad=0.1,
        handlelength=1,
        columnspacing=1.2,
    )
    return figure


def draw_tcp(folder: Folder) -> Figure | None:
    """TCP's window and smoothed round-trip time."""
    import polars as pl

    if not folder.has("tcp"):
        return None
    table = folder.table("tcp").sort("t_s")
    flows = [
        f for f in folder.summary["flows"] if f.get("kind") == "tcp" and (table["flow"] == f["name"]).any()
    ]
    if not flows:
        return None
    figure, panels = canvas(2, height=3.8)
    for axes, column, title in (
        (panels[0], "cwnd_packets", "TCP's window (packets)"),
        (panels[1], "srtt_ms", "TCP's smoothed round-trip time (ms)"),
    ):
        labels = []
        for flow, look in zip(flows[:6], style.looks(flows[:6]), strict=True):
            mine = table.filter((pl.col("flow") == flow["name"]) & pl.col(column).is_not_null())
            if not mine.height:
                continue
            axes.plot(mine["t_s"].to_list(), mine[column].to_list(), **{**look.line, "linewidth": 1.2})
            labels.append(Label(float(mine[column][-1]), flow_label(flow), look.colour))
        time_axis(axes, folder)
        axes.set_xlabel("")
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        mark_events(axes, folder, labels=False)
        label_ends(axes, labels)
    panels[-1].set_xlabel("time (s)", loc="right", labelpad=1)
    return figure


PLOTS: tuple[Plot, ...] = (
    Plot("rates", "Who got what", "Band: from the lowest to the highest receiver.", draw_rates),
    Plot("delay", "How long it took", "Band: from the lowest to the highest receiver.", draw_delay),
    Plot("mos", "What viewers saw", "Receivers ranked by their mean score.", draw_mos),
    Plot(
        "quality",
        "Frame by frame",
        "The dotted levels are the classes of the mean opinion score.",
        draw_quality,
    ),
    Plot("why", "Why the rate was what it was", "Tinted by what held the rate.", draw_why),
    Plot(
        "queue",
        "Queues and drops",
        "Only links whose queue mattered: more than 1 ms and 2 % of the longest, or drops.",
        draw_queue,
    ),
    Plot("tcp", "Inside TCP", "As recorded.", draw_tcp),
)
