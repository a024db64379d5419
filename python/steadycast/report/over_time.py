"""Draws a quantity over time, such as jitter, fairness, quality or delay. A figure shows one run or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steadycast import style
from steadycast.folder import Folder, Json
from steadycast.lazy_import import pl
from steadycast.report import canvas
from steadycast.report.answer import title
from steadycast.report.rank import ranked_receivers
from steadycast.report.series import mark_events, series, time_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from steadycast.media.table import F64

_DENSE = 200
"""A line that has more points than this is drawn without dashes."""


@dataclass(frozen=True, eq=False)
class Line:
    """The values of a flow over time, in the unit of the drawn quantity."""

    flow: Json
    t: F64
    values: F64


@dataclass(frozen=True)
class Quantity:
    """Something that can be drawn over time. ``name`` is its name on the command line."""

    name: str
    heading: str
    lines: Callable[[Folder], Iterator[Line]]
    bottom: float | None = None
    """Lower limit of the vertical axis. `None` uses the lowest value."""


def jain(throughputs: Sequence[float]) -> float:
    """Return Jain's fairness index of ``n`` throughputs.

    It is 1 if all throughputs are equal, also if all of them are 0. It is 1/n if one flow gets everything.
    """
    values = np.asarray(throughputs)
    squares = len(values) * float((values**2).sum())
    return float(values.sum()) ** 2 / squares if squares else 1.0


def _frames(folder: Folder, *columns: str) -> Iterator[tuple[Json, list[F64]]]:
    """Yield columns of the table `frames` for each video.

    The values are in coding order, and have no nulls. They come from the receiver whose score is the median.
    """
    if not folder.has("frames"):
        return
    table = folder.table("frames")
    for flow in folder.summary["flows"]:
        if flow.get("kind") != "video" or not (order := ranked_receivers(flow)):
            continue
        mine = table.filter(
            (pl.col("flow") == flow["name"]) & (pl.col("node") == order[len(order) // 2]["name"])
        )
        mine = mine.sort("frame").drop_nulls(columns)
        if mine.height:
            yield flow, [mine[name].to_numpy() for name in columns]


def _jitter(folder: Folder) -> Iterator[Line]:
    """Yield the jitter J between consecutive frames (Multi-Evalvid-RA, equation 3).

    Both frames must have arrived completely.
    """
    for flow, (number, made, came) in _frames(folder, "frame", "ready_s", "arrived_s"):
        pairs = np.diff(number) == 1
        yield Line(flow, came[1:][pairs], np.diff(came - made)[pairs] * 1000)


def _cumulative(folder: Folder) -> Iterator[Line]:
    """Yield the cumulative jitter (Multi-Evalvid-RA, equation 4).

    It is the delay of a frame minus the delay of the first frame.
    """
    for flow, (made, came) in _frames(folder, "ready_s", "arrived_s"):
        delays = (came - made) * 1000
        yield Line(flow, came, delays - delays[0])


def _psnr(folder: Folder) -> Iterator[Line]:
    for flow, (shown, values) in _frames(folder, "pts_s", "psnr_y_db"):
        order = np.argsort(shown)
        yield Line(flow, shown[order], values[order])


def _rates(column: str) -> Callable[[Folder], Iterator[Line]]:
    def lines(folder: Folder) -> Iterator[Line]:
        for one in series(folder, column) if folder.has("rates") else ():
            yield Line(one.flow, np.array(one.t), np.array(one.mid))

    return lines


def _fairness(folder: Folder) -> Iterator[Line]:
    """Yield Jain's index of the throughputs of videos and TCP flows.

    Intervals in which fewer than two flows send are left out.
    """
    at: dict[float, list[float]] = {}
    flows = []
    for line in _rates("throughput_bps")(folder):
        if line.flow.get("kind") in ("video", "tcp"):
            flows.append(line.flow)
            for t, value in zip(line.t, line.values, strict=True):
                at.setdefault(float(t), []).extend([float(value)] if value == value else [])
    times = sorted(t for t, values in at.items() if len(values) > 1)
    if times:
        yield Line(flows[0], np.array(times), np.array([jain(at[t]) for t in times]))


QUANTITIES = {
    each.name: each
    for each in (
        Quantity("jitter", "Jitter from frame to frame (ms)", _jitter),
        Quantity("cumulative-jitter", "Cumulative jitter of frames (ms)", _cumulative),
        Quantity("fairness", "Jain's index of each interval", _fairness, 0.0),
        Quantity("quality", "PSNR of each frame against the original (dB)", _psnr),
        Quantity("delay", "One-way delay, mean of each interval (ms)", _rates("delay_ms"), 0.0),
    )
}
"""The quantities that can be drawn, by name. Reports contain more detailed figures of quality and delay."""


def draw(quantity: Quantity, runs: Sequence[tuple[str, Folder]]) -> Figure | None:
    """Draw the flows of all runs into one panel. If there are several runs, the labels contain the run's name."""
    found = [(name, line) for name, folder in runs for line in quantity.lines(folder)]
    if not found:
        return None
    figure, (axes,) = canvas.canvas(height=3.4)
    labels = []
    looks = style.looks([line.flow for _, line in found])
    for (name, line), look in zip(found, looks, strict=True):
        dense = len(line.t) > _DENSE
        how: Any = {"color": look.colour, "linewidth": 0.8} if dense else {**look.line, "linewidth": 1.4}
        axes.plot(line.t, line.values, **how)
        told = "" if quantity.name == "fairness" else title(line.flow)
        text = "\n".join(part for part in (name if len(runs) > 1 else "", told) if part)
        end = line.values[np.isfinite(line.values)][-25:]
        labels.append(canvas.Label(float(end.mean()) if len(end) else 0.0, text, look.colour))
    longest = max((folder for _, folder in runs), key=lambda folder: float(folder.summary.get("to_s") or 1.0))
    time_axis(axes, longest)
    if quantity.bottom is not None:
        axes.set_ylim(bottom=quantity.bottom)
    if len(runs) == 1:
        mark_events(axes, runs[0][1], labels=False)
    axes.set_title(quantity.heading)
    canvas.label_ends(axes, labels)
    return figure


def of_one(name: str) -> Callable[[Folder], Figure | None]:
    """Return a function that draws a quantity of a single run."""
    return lambda folder: draw(QUANTITIES[name], [("", folder)])
