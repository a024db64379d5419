"""The figures of a report.

Each function draws the data of a run folder. It returns `None` if the run has no data for the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import style, units
from steadycast.errors import UserError
from steadycast.folder import Folder, Json, number
from steadycast.lazy_import import pl
from steadycast.report import canvas, over_time, say, series
from steadycast.report.canvas import Drawing, Label
from steadycast.report.rank import alike, ranked_receivers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A figure of the report.

    It has a name on the command line, a caption, and a function that draws it.
    """

    name: str
    title: str
    note: str
    """Explanation of the figure for the reader."""
    draw: Callable[[Folder], Figure | None]
    ranges: bool = False
    """Whether the note is shown only if lines may have bands (see `series.banded`)."""


def save(folder: Folder, name: str, path: Path) -> None:
    """Save one figure. The suffix of ``path`` selects the format (.png, .svg, .pdf)."""
    drawing(folder, name).save(path)


def drawing(folder: Folder, name: str) -> Drawing:
    """Return one figure, for example for a notebook."""
    plots = {plot.name: plot for plot in (*PLOTS, *ALONE)}
    there = f"there are: {', '.join(plots)}"
    if name not in plots:
        raise UserError(name, "no such figure", there)
    found = canvas.drawn(lambda: plots[name].draw(folder))
    if found is None:
        problem = f'this run has nothing that the figure "{name}" could show'
        raise UserError(str(folder.path), problem, there)
    return found


def drawn(plot: Plot, folder: Folder) -> str | None:
    """Return a figure as inline SVG, or `None` if the run has no data for it."""
    return canvas.in_style(lambda: plot.draw(folder), plot.name)


def draw_rates(folder: Folder) -> Figure | None:
    """Draw the throughput over time. The fair shares, the capacity and the events are drawn as well."""
    lines = series.grouped(series.series(folder, "throughput_bps"))
    if not lines:
        return None
    limit = series.capacity(folder)
    top = max([series.highest(lines)] + (limit[2] if limit else []))
    scale, unit = canvas.scale_of(top)
    figure, (axes,) = canvas.canvas(height=3.6)
    labels = series.draw_series(axes, lines, scale)
    series.time_axis(axes, folder)
    canvas.from_zero(axes, top / scale * 1.08)
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
    for share, whose in series.fair_shares(folder.summary):
        labels.append(canvas.level(axes, share / scale, f"{whose}\n{say.rate(share)}"))
    series.mark_events(axes, folder, labels=True)
    axes.set_title(f"Throughput ({unit})")
    canvas.label_ends(axes, labels)
    return figure


def draw_delay(folder: Folder) -> Figure | None:
    """Draw the one-way delay over time, and the play-out delay."""
    lines = series.grouped(series.series(folder, "delay_ms"))
    if not lines:
        return None
    figure, (axes,) = canvas.canvas()
    labels = series.draw_series(axes, lines)
    series.time_axis(axes, folder)
    top = series.highest(lines)
    for flow in folder.scenario.get("flow", []):
        limit = units.read(flow.get("playout"), units.SPAN)
        if limit is not None:
            # Do not draw a limit that is far above all delays, because it would press the delays to the bottom.
            if limit * 1000 < top * 3:
                top = max(top, limit * 1000)
                labels.append(canvas.level(axes, limit * 1000, f"play-out limit\n{say.ms(limit * 1000)}"))
            break
        if flow.get("playout") not in (None, "none"):
            waits = [
                line for line in series.series(folder, "playout_ms") if line.flow["name"] == flow["name"]
            ]
            for line in waits[:1]:
                axes.step(line.t, line.mid, where="mid", color=style.MUTED, linewidth=0.9)
                labels.append(Label(line.mid[-1], f"play-out\n{say.ms(line.mid[-1])}", style.MUTED))
                top = max(top, series.highest(waits[:1]))
            break
    canvas.from_zero(axes, top * 1.12)
    series.mark_events(axes, folder, labels=False)
    axes.set_title("One-way delay, mean of each interval (ms)")
    canvas.label_ends(axes, labels)
    return figure


def decided(folder: Folder) -> pl.DataFrame:
    """Return the decisions of senders in the order of their times. Measurements of receivers are left out."""
    return folder.table("decisions").filter(pl.col("limit").is_not_null()).sort("t_s")


def draw_why(folder: Folder) -> Figure | None:
    """Draw the target rate of each video, its sending rate, and what limited the rate.

    At most four videos are drawn.
    """
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
    figure, panels = canvas.canvas(
        2 * len(flows), height=0.6 + 2.6 * len(flows), ratios=[1, 0.09] * len(flows)
    )
    for i, flow in enumerate(flows):
        axes, strip = panels[2 * i], panels[2 * i + 1]
        look = style.look(flow)
        # Select the sender's decisions. The measurements of receivers have no limit.
        mine = decisions.filter((pl.col("flow") == flow["name"]) & pl.col("limit").is_not_null())
        if not mine.height:
            continue
        t = mine["t_s"].to_list()
        shown = mine.select("target_bps", "pacing_bps").drop_nulls()
        top = float(shown["target_bps"].max() or 1.0)  # type: ignore[arg-type]
        scale, unit = canvas.scale_of(top)
        axes.step(t, (mine["target_bps"] / scale).to_list(), where="post", zorder=3, **look.line)
        labels = [Label(float(mine["target_bps"].drop_nulls()[-1]) / scale, "target", look.colour)]
        if rates is not None:
            sent = rates.filter((pl.col("flow") == flow["name"]) & pl.col("target_bps").is_not_null()).sort(
                "t_s"
            )
            if sent.height:
                step = series.interval(rates)
                axes.plot(
                    (sent["t_s"] + step / 2).to_list(),
                    (sent["throughput_bps"] / scale).to_list(),
                    color=style.INK,
                    linewidth=0.9,
                )
                labels.append(Label(float(sent["throughput_bps"][-1]) / scale, "sent", style.INK))
                top = max(top, float(sent["throughput_bps"].max() or 0.0))  # type: ignore[arg-type]
        series.time_axis(axes, folder)
        canvas.from_zero(axes, top / scale * 1.1)
        axes.set_title(f"{flow['name']} ({flow.get('controller')}): target rate and sent rate ({unit})")
        series.mark_events(axes, folder, labels=False)
        canvas.label_ends(axes, labels)
        end = float(folder.summary["to_s"])
        periods = limit_periods(folder, flow["name"], mine)
        spans: dict[str, list[tuple[float, float]]] = {}
        for begin, stop, limit in periods:
            spans.setdefault(limit, []).append((begin, stop - begin))
            if (stop - begin) / end > 0.014 * len(limit):
                strip.text(
                    (begin + stop) / 2, 0.5, limit, va="center", ha="center", fontsize=7, color="#111111"
                )
        for limit, each in spans.items():
            # Draw all periods with the same limit as one object. Thousands of single patches would take too long.
            colour = style.LIMIT.get(limit, style.MUTED)
            whole = axes.get_xaxis_transform()
            axes.broken_barh(each, (0, 1), transform=whole, color=colour, alpha=0.1, linewidth=0)
            strip.broken_barh(each, (0, 1), color=colour, linewidth=0)
        canvas.bare(strip)
        series.time_axis(strip, folder)
        shares = limit_shares(periods, float(folder.summary["from_s"]))
        for row, (limit, share) in enumerate(sorted(shares.items(), key=lambda e: -e[1])):
            told, up = f"{limit} {say.frac(share)}", 9.5 * ((len(shares) - 1) / 2 - row)
            canvas.beside(strip, told, 0.5, up, style.LIMIT.get(limit, style.MUTED))
    return figure


def limit_periods(folder: Folder, flow: str, decisions: pl.DataFrame) -> list[tuple[float, float, str]]:
    """Return the periods of the run in which the same limit held a video's rate, each as (from, to, limit).

    `decisions` are the video's, in the order of their times. A limit holds until the next decision, the next stop of
    the video, or the end of the run.
    """
    t, end = decisions["t_s"].to_list(), float(folder.summary["to_s"])
    stops = series.stops(folder, flow)
    result: list[tuple[float, float, str]] = []
    for begin, until, limit in zip(t, [*t[1:], end], decisions["limit"].to_list(), strict=True):
        stop = min([until, *(at for at in stops if begin < at)])
        if result and result[-1][1] == begin and result[-1][2] == limit:
            result[-1] = (result[-1][0], stop, limit)
        elif stop > begin:
            result.append((begin, stop, limit))
    return result


def limit_shares(periods: Sequence[tuple[float, float, str]], from_s: float) -> dict[str, float]:
    """Return each limit's share of the time of all `periods` after `from_s`."""
    held: dict[str, float] = {}
    for begin, stop, limit in periods:
        held[limit] = held.get(limit, 0.0) + max(0.0, stop - max(begin, from_s))
    total = sum(held.values())
    return {limit: time / total for limit, time in held.items() if time}


def draw_queue(folder: Folder) -> Figure | None:
    """Draw the queueing delay and the drops of at most four links.

    Links without drops are left out if their queues stay short.
    """
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
    figure, panels = canvas.canvas(
        2 if dropping else 1, height=3.8 if dropping else 2.8, ratios=[2, 1] if dropping else None
    )
    step = series.interval(links)
    queue_labels, drop_labels = [], []
    base: dict[float, float] = {}
    for i, (link, direction) in enumerate(zip(ranked["link"], ranked["direction"], strict=True)):
        mine = links.filter((pl.col("link") == link) & (pl.col("direction") == direction))
        shade = (style.INK, "#0072b2", "#d55e00", "#009e73")[i]
        t = mine["t_s"].to_list()
        panels[0].plot([x + step / 2 for x in t], mine["queue_ms"].to_list(), color=shade, linewidth=1.3)
        name = say.link(link, direction)
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
        series.time_axis(axes, folder)
        axes.set_ylim(bottom=0)
        series.mark_events(axes, folder, labels=False)
    panels[0].set_title("Queue delay, mean of each interval (ms)")
    canvas.label_ends(panels[0], queue_labels)
    if dropping:
        panels[1].set_title("Drops per interval (packets)")
        canvas.label_ends(panels[1], drop_labels)
    return figure


def draw_quality(folder: Folder) -> Figure | None:
    """Draw the PSNR of each frame, the missing frames, and the quantizer.

    The PSNR is drawn for the median and the worst receiver, the missing frames for the worst.
    """
    if not folder.has("frames"):
        return None
    frames = folder.table("frames").sort("pts_s")
    videos = [f for f in folder.summary["flows"] if f.get("kind") == "video" and f.get("receivers")]
    flows = [f for f in videos if (frames["flow"] == f["name"]).any()][:3]
    if not flows:
        return None
    pixels = [f for f in flows if frames.filter(pl.col("flow") == f["name"])["psnr_y_db"].is_not_null().any()]
    # Draw the quantizer only where it is known. Live receivers know neither the quantizers nor, without the original,
    # the quality.
    coded = [f for f in flows if frames.filter(pl.col("flow") == f["name"])["q"].ge(0).any()]
    ratios = [r for f in flows for r in [*[1.0] * (f in pixels), 0.13, *[0.45] * (f in coded)]]
    figure, panels = canvas.canvas(len(ratios), height=0.55 + 2.4 * sum(ratios), ratios=ratios)
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
            series.time_axis(axes, folder)
            axes.set_ylim(low - 1, high + 2)
            for edge, words in (
                (37, "excellent above 37"),
                (31, "good above 31"),
                (25, "fair above 25"),
                (20, "poor above 20"),
            ):
                if low - 1 < edge < high + 1:
                    labels.append(canvas.level(axes, edge, words))
            series.mark_events(axes, folder, labels=False)
            axes.set_title(
                f"{flow['name']} ({flow.get('controller')}): PSNR of each frame against the original (dB)"
            )
            canvas.label_ends(axes, labels)
        axes = next(free)
        series.time_axis(axes, folder)
        canvas.bare(axes)
        place = 0.0
        for fate, colour in style.FATE.items():
            t = bad.filter(pl.col("fate") == fate)["pts_s"].to_list()
            axes.vlines(t, 0, 1, color=colour, linewidth=0.7)
            # Do not count the frames of the warm-up, although they are drawn.
            n = sum(each >= folder.summary.get("from_s", 0.0) for each in t)
            canvas.beside(axes, f"{n} {fate}", 1.0, -place, colour)
            place += 9
        who = "no receiver saw" if len(order) > 1 and alike(order) else f"{worst} did not see"
        axes.set_title(f"Frames that {who} in time and whole", fontsize=8.5)
        if flow not in coded:
            continue
        axes = next(free)
        steps = mine.filter(pl.col("node") == middle)
        axes.step(
            steps["pts_s"].to_list(), steps["q"].to_list(), where="post", color=look.colour, linewidth=1.1
        )
        series.time_axis(axes, folder)
        axes.set_title("Quantizer (smaller is finer)", fontsize=8.5)
    return figure


def draw_mos(folder: Folder) -> Figure | None:
    """Draw the fraction of frames in each opinion class."""
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
    """Draw one bar per row. It goes from bad to excellent, and its mean score is written at its end."""
    height = 1.0 + 0.62 * len(rows)
    figure, (axes,) = canvas.canvas(height=height)
    figure.subplots_adjust(
        left=0.2 / canvas.WIDTH, right=1 - 0.3 / canvas.WIDTH, top=1 - 0.6 / height, bottom=0.45 / height
    )
    for y, (name, mos) in enumerate(rows):
        left = 0.0
        for grade, (_, colour) in style.MOS.items():
            share = 100 * (number((mos.get("share") or {}).get(str(grade))) or 0.0)
            axes.barh(y, share, left=left, color=colour, height=0.42, edgecolor=style.PAPER, linewidth=0.6)
            if share >= 5:
                ink = "#ffffff" if grade in (1, 5) else "#111111"
                axes.text(
                    left + share / 2, y, f"{share:.0f} %", ha="center", va="center", fontsize=8, color=ink
                )
            left += share
        canvas.note(axes, f"{name}: MOS {say.score(number(mos.get('mean')))}", (0, y - 0.42), (0, 0))
    canvas.bare(axes, len(rows) - 0.7, -0.7)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of frames (%)", loc="right")
    axes.set_title(heading, pad=20)
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=f"{grade} {word}") for grade, (word, colour) in style.MOS.items()]
    axes.legend(
        handles=handles,
        ncols=5,
        loc="lower left",
        mode="expand",
        bbox_to_anchor=(0, 1.0, 1, 0.1),
        borderaxespad=0.1,
        handlelength=1,
    )
    return figure


def draw_tcp(folder: Folder) -> Figure | None:
    """Draw the window of each TCP flow, and its smoothed round-trip time."""
    if not folder.has("tcp"):
        return None
    table = folder.table("tcp").sort("t_s")
    if folder.has("rates"):  # draw the window only while data arrive
        arrived = folder.table("rates").filter(pl.col("throughput_bps") > 0).group_by("flow")
        table = table.join(arrived.agg(first=pl.col("t_s").min(), last=pl.col("t_s").max()), on="flow")
        table = table.filter(pl.col("t_s").is_between("first", "last")).sort("t_s")
    flows = [
        f for f in folder.summary["flows"] if f.get("kind") == "tcp" and (table["flow"] == f["name"]).any()
    ]
    if not flows:
        return None
    figure, panels = canvas.canvas(2, height=3.8)
    for axes, column, title in (
        (panels[0], "cwnd_packets", "TCP's window (packets)"),
        (panels[1], "srtt_ms", "TCP's smoothed round-trip time (ms)"),
    ):
        labels = []
        for flow, look in zip(flows[:6], style.looks(flows[:6]), strict=True):
            mine = table.filter((pl.col("flow") == flow["name"]) & pl.col(column).is_not_null())
            if not mine.height:
                continue
            label = series.flow_label(flow)
            look_here = {**look.line, "linewidth": 1.2, "label": label}
            axes.plot(mine["t_s"].to_list(), mine[column].to_list(), **look_here)
            labels.append(Label(float(mine[column][-1]), label, look.colour))
        series.time_axis(axes, folder)
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        series.mark_events(axes, folder, labels=False)
        canvas.label_ends(axes, labels)
    return figure


ALONE: tuple[Plot, ...] = tuple(
    Plot(name, over_time.QUANTITIES[name].heading, "", over_time.of_one(name))
    for name in ("jitter", "cumulative-jitter", "fairness")
)
"""Figures that are drawn only on request. The report does not contain them."""

PLOTS: tuple[Plot, ...] = (
    Plot("rates", "Rates", "Band: from the lowest to the highest receiver.", draw_rates, ranges=True),
    Plot("delay", "Delay", "Band: from the lowest to the highest receiver.", draw_delay, ranges=True),
    Plot("mos", "What viewers saw", "Receivers ranked by their mean score.", draw_mos, ranges=True),
    Plot(
        "quality",
        "Frame by frame",
        "Dotted lines: the classes of the mean opinion score.",
        draw_quality,
    ),
    Plot(
        "why",
        "Why the rate was what it was",
        "The background colour shows what limited the rate. The shares are of the time after the warm-up.",
        draw_why,
    ),
    Plot(
        "queue",
        "Queues and drops",
        "Only links with drops, or with a queue of more than 1 ms and 2 % of the longest queue.",
        draw_queue,
    ),
    Plot("tcp", "Inside TCP", "As recorded.", draw_tcp),
)
