"""Elements that several figures of a run share: flows over time, fair shares, events and capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from steadycast import style, units
from steadycast.folder import Folder, Json, number
from steadycast.lazy_import import pl
from steadycast.report import say
from steadycast.report.answer import title
from steadycast.report.canvas import Label, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 8


@dataclass(frozen=True)
class Series:
    """The values of a flow over time. They are the median, minimum and maximum over its receivers."""

    flow: Json
    t: list[float]
    mid: list[float]
    low: list[float]
    high: list[float]

    @property
    def label(self) -> str:
        """The text at the end of the line."""
        return flow_label(self.flow)


def flow_label(flow: Json) -> str:
    """Return the name of a flow and its controller. It also says how many flows, seeds or receivers were merged."""
    if flow.get("flows"):
        return f"{flow['flows']} × {flow['name']}\nmedian"
    text = title(flow)
    if flow.get("seeds"):
        return f"{text}\n{flow['seeds']} seeds"
    n = len(flow.get("receivers") or [])
    return f"{text}\nmedian of {n}" if n > 1 else text


def grouped(lines: Sequence[Series]) -> list[Series]:
    """Return the lines unchanged if there are at most `_MOST_LINES`. Otherwise merge lines of similar flows.

    Similar flows are of the same kind, and have the same controller or congestion control.

    A merged line has the median and the extremes of its flows.
    """
    if len(lines) <= _MOST_LINES:
        return list(lines)
    groups: dict[tuple[object, ...], list[Series]] = {}
    for one in lines:
        how = one.flow.get("controller") or one.flow.get("congestion") or one.flow.get("kind")
        groups.setdefault((one.flow.get("kind"), how), []).append(one)
    return [
        merged({**members[0].flow, "name": how, "receivers": [{}, {}], "flows": len(members)}, members)
        for (_, how), members in groups.items()
    ]


def merged(flow: Json, lines: Sequence[Series]) -> Series:
    """Merge lines into one line. It has the median and the extremes of their values at each time.

    If two values are in the middle, the median is the higher of the two.
    """
    names = ("t", "mid", "low", "high")
    rows = pl.concat([pl.DataFrame({name: getattr(one, name) for name in names}) for one in lines])
    mid, low, high = (pl.col(name).drop_nans() for name in names[1:])
    at = rows.group_by("t").agg(mid.quantile(0.5, "higher"), low.min(), high.max()).sort("t")
    return Series(flow, *(at[name].fill_null(math.nan).to_list() for name in names))


def banded(flows: Sequence[Json]) -> bool:
    """Whether a line in the figure of these flows represents several receivers or several flows."""
    return len(flows) > _MOST_LINES or any(len(flow.get("receivers") or []) > 1 for flow in flows)


def series(folder: Folder, column: str) -> list[Series]:
    """Return a column of the table `rates` over time, for each flow. Only rows of the flow's receivers are used."""
    rates = folder.table("rates").filter(pl.col(column).is_not_null() & pl.col(column).is_finite())
    step = interval(rates)
    result = []
    for flow in folder.summary["flows"]:
        if column == "delay_ms" and flow.get("kind") not in ("video", "tcp"):
            continue  # background traffic has no viewer who could notice a delay
        nodes = [r["name"] for r in flow.get("receivers") or []]
        mine = (
            rates.filter((pl.col("flow") == flow["name"]) & pl.col("node").is_in(nodes))
            .group_by("t_s")
            .agg(mid=pl.col(column).median(), low=pl.col(column).min(), high=pl.col(column).max())
            .sort("t_s")
        )
        if mine.height:
            # Break the line where nothing arrived, because a line across a gap would look like data.
            gaps = mine.filter(pl.col("t_s").diff() > 1.5 * step).select(pl.col("t_s") - step)
            nothing = gaps.with_columns(**{c: pl.lit(math.nan) for c in ("mid", "low", "high")})
            mine = pl.concat([mine, nothing]).sort("t_s")
            # Place the value in the middle of the interval, which begins at `t_s`.
            t = (mine["t_s"] + step / 2).to_list()
            result.append(
                Series(flow, t, mine["mid"].to_list(), mine["low"].to_list(), mine["high"].to_list())
            )
    return result


def interval(rates: pl.DataFrame) -> float:
    """Return the length of the recording interval, in seconds."""
    steps = rates["t_s"].unique().sort().diff().drop_nulls()
    return float(steps.min() or 1.0) if steps.len() else 1.0  # type: ignore[arg-type]


def highest(lines: Sequence[Series]) -> float:
    """Return the highest value of all lines, bands included."""
    return max((v for one in lines for v in one.high if v == v), default=1.0)


def last(values: Sequence[float]) -> float:
    """Return the last value that is not NaN. Return 0 if all values are NaN."""
    return next((v for v in reversed(values) if v == v), 0.0)


def draw_series(axes: Axes, lines: Sequence[Series], scale: float = 1.0) -> list[Label]:
    """Draw lines and the bands around them. Return the labels of the lines."""
    labels = []
    for one, look in zip(lines, style.looks([one.flow for one in lines]), strict=True):
        if len(one.flow.get("receivers") or []) > 1:
            low, high = [v / scale for v in one.low], [v / scale for v in one.high]
            axes.fill_between(one.t, low, high, color=look.colour, alpha=0.18, linewidth=0)
        axes.plot(one.t, [v / scale for v in one.mid], zorder=3, label=one.label, **look.line)
        labels.append(Label(last(one.mid) / scale, one.label, look.colour))
    return labels


def capacity(folder: Folder) -> tuple[str, list[float], list[float]] | None:
    """Return the busiest link with its direction, the times, and its capacity at these times in bit/s.

    Returns `None` if no capacity is known.
    """
    if not folder.has("links") or not folder.summary.get("links"):
        return None
    busiest = max(folder.summary["links"], key=lambda link: link.get("utilisation_frac") or 0.0)
    rows = (
        folder.table("links")
        .filter(
            (pl.col("link") == busiest["name"])
            & (pl.col("direction") == busiest["direction"])
            & pl.col("capacity_bps").is_finite()
        )
        .sort("t_s")
    )
    if not rows.height:
        return None
    return (
        say.link(busiest["name"], busiest["direction"]),
        rows["t_s"].to_list(),
        rows["capacity_bps"].to_list(),
    )


def fair_shares(summary: Json) -> list[tuple[float, str]]:
    """Return the fair shares of flows that competed. Each has a short label."""
    shares: dict[float, list[str]] = {}
    for flow in summary["flows"]:
        share = number(flow.get("fair_share_bps"))
        if share and flow.get("kind") in ("video", "tcp") and number(flow.get("competing_s")) != 0:
            shares.setdefault(round(share, -2), []).append(str(flow["name"]))
    if len(shares) == 1:
        return [(share, "fair share") for share in shares]
    return [
        (share, f"fair share, {say.listed(names) if len(names) <= 2 else f'{len(names)} flows'}")
        for share, names in shares.items()
    ]


def stops(folder: Folder, flow: str) -> list[float]:
    """Return the times at which a video stopped before the end of the run, to within an interval of the record.

    The target rate of a sender is 0 while it is stopped.
    """
    if not folder.has("rates"):
        return []
    rates = folder.table("rates")
    targets = (
        rates.filter((pl.col("flow") == flow) & pl.col("target_bps").is_not_null())
        .group_by("t_s")
        .agg(pl.col("target_bps").max())
        .sort("t_s")
    )
    # A row has the target rate at the end of its interval.
    stopped = targets.filter((pl.col("target_bps") == 0) & (pl.col("target_bps").shift(1) > 0))
    return [t + interval(rates) for t in stopped["t_s"]]


def mark_events(axes: Axes, folder: Folder, *, labels: bool) -> None:
    """Draw events as thin lines, and the warm-up as a grey area. Means do not include the warm-up."""
    start, end = axes.get_xlim()
    small: Any = {"xycoords": ("data", "axes fraction"), "fontsize": 7.5, "color": style.MUTED}
    warm = float(folder.summary.get("from_s") or 0.0)
    if warm > start:
        axes.axvspan(start, min(warm, end), color=style.MUTED, alpha=0.1, linewidth=0, zorder=0)
        if labels:
            note(axes, "warm-up", (start, 0), (3, 3), va="baseline", **small)
    latest = -1e9
    for t, text in events(folder):
        if not start < t < end:
            continue
        axes.axvline(t, color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        if labels and t - latest > (end - start) / 60:
            box = {"facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
            note(axes, text, (t, 1), (2, -2), rotation=90, va="top", ha="left", bbox=box, **small)
            latest = t


def _names(value: object) -> list[str]:
    """Return the names of a key that holds one name or a list of names."""
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


@cache
def events(folder: Folder) -> tuple[tuple[float, str], ...]:
    """Return events, and starts and stops of flows, each with its time. Events at the same time are one entry."""
    found: dict[float, list[str]] = {}
    for flow in folder.scenario.get("flow", []):
        for key in ("start", "stop"):
            at = units.read(flow.get(key), units.SPAN)
            if at:
                found.setdefault(at, []).append(f"{flow.get('name')} {key}s")
    for event in folder.scenario.get("event", []):
        at = units.read(event.get("at"), units.SPAN)
        if at is None:
            continue
        for verb in ("join", "leave", "start", "stop"):
            if verb in event:
                names = _names(event[verb])
                found.setdefault(at, []).append(f"{say.listed(names)} {verb}{'s' if len(names) == 1 else ''}")
        if isinstance(event.get("set"), dict):
            change = dict(event["set"])
            what = ", ".join(str(v) if isinstance(v, str) else k for k, v in change.items() if k != "link")
            found.setdefault(at, []).append(f"{say.listed(_names(change.get('link')))}: {what}")
    return tuple(
        (t, texts[0] if len(texts) == 1 else f"{texts[0]} (+{len(texts) - 1})")
        for t, texts in sorted(found.items())
    )


def time_axis(axes: Axes, folder: Folder) -> None:
    """Set the time axis to the length of the run in seconds. Only the last of several panels gets a label."""
    axes.set_xlim(0.0, float(folder.summary.get("to_s") or 1.0))
    if axes is axes.figure.axes[-1]:
        axes.set_xlabel("time (s)", loc="right")
