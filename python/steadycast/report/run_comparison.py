"""Compares runs in tables and figures. The figures of all runs have the same scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from steadycast import record, style
from steadycast.errors import UserError
from steadycast.folder import (
    Folder,
    Json,
    check_summary,
    is_seeds,
    is_spread,
    number,
    read_json,
    with_scores,
    write_text,
)
from steadycast.report import canvas, choice, figures, page, say, series
from steadycast.report.answer import got, title, uncompared
from steadycast.report.markup import Html, element, joined
from steadycast.report.words import glossary, heading, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PANELS = 8
_MOST_LINES = 12


@dataclass(frozen=True, eq=False)
class Run:
    """A run of one seed, or the runs of several seeds. With several seeds, its numbers have a spread."""

    name: str
    path: Path
    summary: Json
    folders: tuple[Folder, ...]


def read(path: Path) -> Run:
    """Read the folder of a run, or a folder that contains the runs of several seeds."""
    if not is_seeds(path):
        folder = Folder.open(path)
        return Run(folder.name, path, folder.summary, (folder,))
    summary = read_json(path / "seeds.json", "run the seeds again")
    if summary.get("complete") is False and "flows" not in summary:
        one = next((str(p) for p in path.glob("seed-*") if p.suffix != ".part"), None)
        remedy = "run them again" + (f", or name one of them, for example {one}" if one else "")
        raise UserError(str(path), "these runs were interrupted", remedy)
    if not isinstance(summary.get("flows"), list):
        raise UserError(str(path / "seeds.json"), "there are no flows in it", "run the seeds again")
    check_summary(summary, path / "seeds.json", several=True)
    with_scores(summary)
    seeds = sorted(
        (p for p in path.glob("seed-*") if p.is_dir() and p.suffix != ".part"),
        key=lambda p: (len(p.name), p.name),
    )
    return Run(path.resolve().name, path, summary, tuple(Folder.open(p) for p in seeds))


def over_seeds(run: Run, column: str) -> list[series.Series]:
    """Return a column of the table `rates` over time, for each flow.

    With several seeds, the result contains the median, minimum and maximum over the seeds.
    """
    each = [series.series(folder, column) for folder in run.folders if folder.has("rates")]
    if len(each) <= 1:
        return each[0] if each else []
    result = []
    for flow in run.summary["flows"]:
        mine = [one for lines in each for one in lines if one.flow["name"] == flow["name"]]
        if mine:
            # Use only `mid` of each seed, which is the median of the receivers. The band then shows the range of the
            # seeds.
            plain = {**flow, "receivers": [{}, {}], "seeds": len(run.folders)}
            alone = [replace(one, low=one.mid, high=one.mid) for one in mine]
            result.append(series.merged(plain, alone))
    return result


def draw(runs: Sequence[Run], column: str, heading: str) -> Figure | None:
    """Draw one panel per run. All panels have the same scale."""
    shown = [
        (run, lines) for run in runs[:_MOST_PANELS] if (lines := series.grouped(over_seeds(run, column)))
    ]
    if not shown:
        return None
    top = max(series.highest(lines) for _, lines in shown)
    scale, unit = canvas.scale_of(top) if column.endswith("_bps") else (1.0, "ms")
    end = max(float(number(run.summary.get("to_s")) or 1.0) for run, _ in shown)
    figure, panels = canvas.canvas(len(shown), height=0.5 + 1.75 * len(shown))
    for (run, lines), axes in zip(shown, panels, strict=True):
        labels = series.draw_series(axes, lines, scale)
        axes.set_xlim(0, end)
        canvas.from_zero(axes, top / scale * 1.05)
        if column == "throughput_bps":
            for share, whose in series.fair_shares(run.summary):
                labels.append(canvas.level(axes, share / scale, whose.replace(", ", "\n", 1)))
        series.mark_events(axes, run.folders[0], labels=False)
        axes.set_title(f"{run.name}: {heading} ({unit})" if len(runs) > 1 else f"{heading} ({unit})")
        canvas.label_ends(axes, labels)
    panels[-1].set_xlabel("time (s)", loc="right")
    return figure


@dataclass(frozen=True)
class Seen:
    """The video of one run as a line, in a figure that shows several runs."""

    label: str
    flow: Json
    t: Sequence[float]
    values: Sequence[float]
    means_from: float = 0.0
    """The end of the warm-up, in seconds."""

    def counted(self) -> list[float]:
        """Return the values after the warm-up, sorted."""
        return sorted(v for t, v in zip(self.t, self.values, strict=True) if t >= self.means_from and v == v)


def videos(runs: Sequence[Run], column: str) -> list[Seen]:
    """Return a column of the table `rates` over time, for the tested videos of each run.

    These are the videos whose controllers differ between the runs, or all videos if no controller differs.
    """
    tested = choice.in_question([run.summary for run in runs])
    found = []
    for run in runs[:_MOST_LINES]:
        for one in over_seeds(run, column):
            if one.flow["name"] in tested:
                label = run.name if len(tested) == 1 else f"{run.name}: {one.flow['name']}"
                found.append(Seen(label, one.flow, one.t, one.mid, number(run.summary.get("from_s")) or 0.0))
    return found[:_MOST_LINES]


def _whose(runs: Sequence[Run], lines: Sequence[Seen]) -> str:
    """Return which videos the lines show. If the runs have others as well, a single one is named."""
    shown = {one.flow["name"] for one in lines}
    videos = {flow["name"] for run in runs for flow in run.summary["flows"] if flow.get("kind") == "video"}
    if len(videos) == 1:
        return "the video"
    return shown.pop() if len(shown) == 1 else "the videos"


def draw_overlay(runs: Sequence[Run], column: str, heading: str) -> Figure | None:
    """Draw the videos of all runs into one panel."""
    lines = videos(runs, column)
    if not lines:
        return None
    top = max((v for one in lines for v in one.values if v == v), default=1.0)
    scale, unit = canvas.scale_of(top) if column.endswith("_bps") else (1.0, "ms")
    figure, (axes,) = canvas.canvas(height=3.2)
    labels = []
    for one, look in zip(lines, style.looks([one.flow for one in lines]), strict=True):
        axes.plot(one.t, [v / scale for v in one.values], zorder=3, **look.line)
        labels.append(canvas.Label(series.last(one.values) / scale, one.label, look.colour))
    axes.set_xlim(0, max(one.t[-1] for one in lines))
    canvas.from_zero(axes, top / scale * 1.05)
    axes.set_title(f"{heading.capitalize()} of {_whose(runs, lines)} ({unit})")
    axes.set_xlabel("time (s)", loc="right")
    canvas.label_ends(axes, labels)
    return figure


def draw_delays(runs: Sequence[Run]) -> Figure | None:
    """Draw how the delays of the videos are distributed after the warm-up, from the table `rates` of each run.

    The upper panel shows the cumulative distribution, the lower panel shows quantiles.
    """
    lines = [(one, known) for one in videos(runs, "delay_ms") if (known := one.counted())]
    if not lines:
        return None
    looks = style.looks([one.flow for one, _ in lines])
    height = 2.6 + 0.3 * len(lines)
    figure, (upper, lower) = canvas.canvas(2, height=height + 0.6, ratios=(2.2, 0.3 * len(lines)))
    labels = []
    for n, ((one, known), look) in enumerate(zip(lines, looks, strict=True)):
        shares = [100 * (i + 1) / len(known) for i in range(len(known))]
        upper.step([known[0], *known], [0.0, *shares], where="post", **look.line)
        labels.append(canvas.Label(100.0 - 12.0 * n, one.label, look.colour))
        low, first, middle, third, high = (quantile(known, share) for share in (0.05, 0.25, 0.5, 0.75, 0.95))
        colour = style.readable(look.colour)
        lower.hlines(n, low, high, color=colour, linewidth=1.2)
        lower.barh(n, third - first, left=first, height=0.6, color=colour, alpha=0.35, linewidth=0)
        lower.vlines(middle, n - 0.3, n + 0.3, color=colour, linewidth=2)
        canvas.beside(lower, f"{one.label}: {say.ms(middle)}", 1 - (n + 0.5) / len(lines), 0, look.colour)
    upper.set_ylim(0, 101)
    upper.set_xlim(left=0)
    upper.set_title(f"Share of the time with less delay of {_whose(runs, [one for one, _ in lines])} (%)")
    canvas.label_ends(upper, labels)
    canvas.bare(lower, len(lines) - 0.5, -0.5)
    lower.set_title("Median, middle half, and 5 % to 95 %", fontsize=8.5)
    lower.set_xlabel("one-way delay, mean of each interval (ms)", loc="right")
    return figure


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of values that are sorted. It is computed by the nearest-rank method."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def data(lines: Sequence[Seen], column: str) -> str:
    """Return the data of a figure as CSV. There is a line per interval and a column per run."""
    times = sorted({t for one in lines for t in one.t})
    at = [dict(zip(one.t, one.values, strict=True)) for one in lines]
    head = ["t_s", *(f"{one.label} {column}".replace(",", " ") for one in lines)]
    rows = [
        [f"{t:g}", *("" if (v := each.get(t, math.nan)) != v else f"{v:.6g}" for each in at)] for t in times
    ]
    return "\n".join(",".join(row) for row in [head, *rows]) + "\n"


FIGURES: dict[str, tuple[str, str, str, str]] = {
    "videos": (
        "Rates of the videos",
        "throughput_bps",
        "throughput",
        "With several seeds, each line is the median.",
    ),
    "delays": (
        "Delay of the videos",
        "delay_ms",
        "delay",
        "The mean of each interval after the warm-up; with several seeds, their median. A longer play-out delay is "
        "added to it.",
    ),
}
"""Figures that show all runs in one panel.

The values are the heading, the column of the table `rates`, the name of the quantity, and an explanation.
"""


def together(runs: Sequence[Run], name: str) -> Figure | None:
    """Draw the figure of `FIGURES` that has this name."""
    _, column, heading, _ = FIGURES[name]
    return draw_delays(runs) if name == "delays" else draw_overlay(runs, column, heading)


def draw_mos(runs: Sequence[Run]) -> Figure | None:
    """Draw the opinion scores of each video, at the receiver whose score is the median."""
    rows = []
    for run in runs:
        for flow in run.summary["flows"]:
            seen = [
                r for r in flow.get("receivers") or [] if number(record.reach(r, "mos", "mean")) is not None
            ]
            if seen:
                seen.sort(key=lambda r: number(r["mos"]["mean"]) or 0.0)
                rows.append((f"{run.name}: {title(flow)}", seen[len(seen) // 2]["mos"]))
    return figures.mos_bars(rows, "Share of frames in each class") if rows else None


@dataclass(frozen=True)
class Row:
    """One quantity of one flow. There is a value for each run."""

    head: str
    values: tuple[Any, ...]
    how: Any


def quantities(runs: Sequence[Run]) -> list[Row]:
    """Return the quantities to compare. The figures of each flow come first, then fairness and the busiest link."""
    names = list(dict.fromkeys(flow["name"] for run in runs for flow in run.summary["flows"]))
    rows: list[Row] = []

    def add(column: record.Shown, whose: str, values: tuple[Any, ...]) -> None:
        if any(number(v) is not None for v in values):
            rows.append(Row(whose + heading(column), values, say.how(column.figure)))

    for name in names:
        flows: list[Json] = [next((f for f in run.summary["flows"] if f["name"] == name), {}) for run in runs]

        steered = [f.get("controller") or f.get("congestion") for f in flows]
        if len(set(steered)) > 1:
            rows.append(Row(f"{name}: controller", tuple(steered), lambda v: str(v or say.NOTHING)))
        for column in record.table("compare"):
            if column.figure.of in ("flow", "receiver"):
                add(column, f"{name}: ", tuple(column.of_flow(f) for f in flows))
    for column in record.table("compare"):
        if column.figure.of == "run":
            add(column, "", tuple(column.of(run.summary) for run in runs))
        elif column.figure.of == "link":
            add(column, "busiest link: ", tuple(column.of(_busiest(run.summary)) for run in runs))
    return rows


@dataclass(frozen=True)
class Measure(Row):
    """A figure with a value for each run. It is the value of the run's worst flow."""

    better: str | None
    """Whether "higher" or "lower" values are better. `None` if neither is better in general."""

    def marks(self) -> tuple[str, ...]:
        """Return "best", "worst" or an empty string for each run.

        A run is "best" if it does not differ from the best run (see `choice.alike`), and "worst" if it does not differ
        from the worst run. The string is empty if both or neither applies. All strings are empty if a run has a single
        seed, if `better` is `None`, or if the best and the worst run do not differ.
        """
        known = [v for v in self.values if number(v) is not None]
        unmarked = ("",) * len(self.values)
        if self.better is None or len(known) < 2 or any(not is_spread(v) or v["ci95"] is None for v in known):
            return unmarked
        known.sort(key=lambda v: number(v) or 0.0, reverse=self.better == "higher")
        ends = {"best": known[0], "worst": known[-1]}
        if choice.alike(known[0], known[-1], self.how):
            return unmarked

        def mark(value: Any) -> str:
            if number(value) is None:
                return ""
            near = [end for end, one in ends.items() if choice.alike(value, one, self.how)]
            return near[0] if len(near) == 1 else ""

        return tuple(mark(value) for value in self.values)


def measures(runs: Sequence[Run]) -> list[Measure]:
    """Return the columns of a table that has a line per run.

    Picture quality comes first, then the flows' shares of the network.
    """
    found = []
    for column in sorted(record.table("runs"), key=lambda column: column.figure.of != "receiver"):
        kinds = ("video", "tcp") if column.figure.key == "share_of_fair" else (None,)
        for kind in kinds:
            # For TCP, a larger share is better. For a video it is not, because a video may exceed its fair share.
            better = "higher" if kind == "tcp" else column.figure.better
            whose = {"video": "video: ", "tcp": "TCP: ", None: ""}[kind]
            values = tuple(_worst_off(run.summary, column, kind, better) for run in runs)
            if any(number(v) is not None for v in values):
                found.append(Measure(whose + heading(column), values, say.how(column.figure), better))
    return found


def _worst_off(summary: Json, column: record.Shown, kind: str | None, better: str | None) -> Any:
    if column.figure.of == "run":
        return column.of(summary)
    flows = [flow for flow in summary["flows"] if kind is None or flow.get("kind") == kind]
    values = [v for flow in flows if number(v := column.of_flow(flow)) is not None]
    worst = max if better == "lower" else min
    return worst(values, key=lambda v: number(v) or 0.0, default=None)


def _busiest(summary: Json) -> Json:
    links = summary.get("links") or []
    return max(links, key=lambda link: number(link.get("utilisation_frac")) or 0.0, default={})


def sections(runs: Sequence[Run], command: str) -> Html:
    """Build the figures of a page that compares `runs`. ``command`` is the command that creates the page."""
    parts = []
    for name, (above, column, _, note) in FIGURES.items() if len(runs) > 1 else ():
        drawing = canvas.in_style(lambda n=name: together(runs, n), name)  # type: ignore[misc]
        if drawing:
            code = data(videos(runs, column), column)
            parts.append(page.section(above, page.figure(drawing, note, command, name, data=code)))
    for name, above, column, title_ in (
        ("rates", "Rates", "throughput_bps", "throughput"),
        ("delay", "Delay", "delay_ms", "one-way delay"),
    ):
        drawing = canvas.in_style(lambda c=column, t=title_: draw(runs, c, t), name)  # type: ignore[misc]
        if drawing:
            more = f" The first {_MOST_PANELS} runs." if len(runs) > _MOST_PANELS else ""
            several = any(len(run.folders) > 1 for run in runs)
            note = (
                "Line: median of the seeds; band: all of them."
                if several
                else "Band: from the lowest to the highest receiver."
                if any(series.banded(run.summary["flows"]) for run in runs)
                else ""
            )
            parts.append(page.section(above, page.figure(drawing, note + more, command, name)))
    drawing = canvas.in_style(lambda: draw_mos(runs), "mos")
    if drawing:
        parts.append(
            page.section(
                "What viewers saw",
                page.figure(
                    drawing, "Of each run's receivers, by mean score, the one in the middle.", command, "mos"
                ),
            )
        )
    return joined(parts, "\n")


def write_seeds_report(path: Path) -> Path:
    """Write the report of several seeds. It contains means, spreads, and links to the report of each seed."""
    run = read(path)
    rows = [[row.head, row.how(row.values[0])] for row in quantities([run])]
    names = [each.path.name for each in run.folders]
    links = joined((element("a", name, href=f"{quote(name)}/report.html") for name in names), ", ")
    told = "; ".join(got(f) for f in run.summary["flows"] if f.get("kind") in ("video", "tcp"))
    content = joined(
        (
            element("h1", f"{run.name} · {len(run.folders)} ", term("seed", "seeds")),
            *(element("p", note, class_="nothing") for note in uncompared(run.summary)),
            element("p", f"{told}.", class_="answer"),
            element("p", "Mean ± half of the 95 % confidence interval of the mean.", class_="more"),
            page.expectations(run.summary),
            page.table(["", "mean ± 95 %"], rows),
            page.simulcasts(run.summary),
            element("p", "Each seed: ", links),
            sections([run], f"steadycast report {path}"),
        )
    )
    target = path / "report.html"
    write_text(
        target, page.wrap(f"{run.name} · Steadycast", content + page.section("Words", glossary(content)))
    )
    return target
