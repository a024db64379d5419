"""The series of a run that a figure of rates and delays over time shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadycast import style
from steadycast.files import write_text
from steadycast.folder import Json
from steadycast.lazy_import import pl
from steadycast.report import canvas
from steadycast.report.canvas import Label
from steadycast.result import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 240
"""The largest number of points of a drawn series."""
_KINDS = ("video", "tcp")


def path(folder: Path, key: str) -> Path:
    """Return the path of the file in an experiment's folder that contains a run's series."""
    return folder / "times" / f"{key}.json"


def write(run: Run, place: Path) -> None:
    """Write the series of a run, averaged over steps: rates in kb/s and delays in ms."""
    rates, links = run.rates.to_polars(), run.links.to_polars()
    times = sorted(set(rates["t_s"]))
    step = times[1] - times[0] if len(times) > 1 else 1.0
    # Choose the step so that there are at most `_POINTS` steps.
    wide = step * max(1, -(-len(times) // _POINTS))
    # Add 1e-6, because rounding could otherwise put a time at the lower edge of a group into the earlier group.
    group = (pl.col("t_s") / wide + 1e-6).floor().cast(pl.Int64)
    steps = int(times[-1] / wide + 1e-6) + 1 if times else 0

    def series(table: pl.DataFrame, column: str, scale: float) -> list[float | None]:
        found = dict(table.group_by(group.alias("n")).agg(pl.col(column).mean()).rows())
        values = (found.get(n) for n in range(steps))
        return [None if value is None else round(value / scale, 1) for value in values]

    flows: list[Json] = []
    for flow in run.summary["flows"]:
        if flow["kind"] not in _KINDS:
            continue
        nodes = [each["name"] for each in flow.get("receivers") or ()]
        mine = rates.filter((pl.col("flow") == flow["name"]) & pl.col("node").is_in(nodes))
        look = {key: flow.get(key) for key in ("name", "kind", "controller", "congestion")}
        delay = series(mine, "delay_ms", 1.0) if flow["kind"] == "video" else []
        flows.append({**look, "rate_kbps": series(mine, "throughput_bps", 1e3), "delay_ms": delay})
    forward = links.filter((pl.col("direction") == "forward") & pl.col("capacity_bps").is_finite())
    capacity = {
        name: series(forward.filter(pl.col("link") == name), "capacity_bps", 1e3)
        for name in forward["link"].unique(maintain_order=True)
    }
    at = [round((n + 0.5) * wide, 2) for n in range(steps)]
    told = {"t_s": at, "flows": flows, "capacity_kbps": capacity}
    place.parent.mkdir(exist_ok=True)
    write_text(place, json.dumps(told, ensure_ascii=False))


def draw(place: Path) -> Figure:
    """Draw the rate and the delay of every flow, and the capacity of the links, as in RFC 8867's figures."""
    told: Json = json.loads(place.read_text(encoding="utf-8"))
    figure, (upper, lower) = canvas.canvas(2, height=3.6, ratios=(3, 2))
    t, flows = told["t_s"], told["flows"]
    labels = []
    for name, series in told["capacity_kbps"].items():
        upper.step(t, _mega(series), where="mid", color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        labels.append(Label(_last(_mega(series)), f"capacity ({name})", style.MUTED))
    videos = [flow["name"] for flow in flows if flow["kind"] == "video"]
    for flow in flows:
        look = style.look(flow)
        if flow["kind"] == "video" and len(videos) > 1:  # all have the same controller
            look = style.Look(style.SPARE[videos.index(flow["name"]) % len(style.SPARE)])
        upper.plot(t, _mega(flow["rate_kbps"]), **look.line)
        if flow["kind"] == "video" or len(flows) < 5:
            labels.append(Label(_last(_mega(flow["rate_kbps"])), flow["name"], look.colour))
        if flow["delay_ms"]:
            lower.plot(t, [float("nan") if v is None else v for v in flow["delay_ms"]], **look.line)
    rate = _most(v for flow in flows for v in flow["rate_kbps"])
    capacity = _most(v for series in told["capacity_kbps"].values() for v in series)
    # Limit the axis if the capacity is far above the rates, so that the rates remain readable.
    canvas.from_zero(upper, min(max(rate, capacity), 2.5 * rate) * 1.08 / 1e3)
    upper.set_xlim(0, t[-1])
    upper.set_ylabel("rate (Mb/s)")
    canvas.from_zero(lower, _most(v for flow in flows for v in flow["delay_ms"]) * 1.08)
    lower.set_ylabel("delay (ms)")
    lower.set_xlabel("time (s)", loc="right")
    canvas.label_ends(upper, labels)
    return figure


def _most(values: Iterable[float | None]) -> float:
    return max([1.0, *(value for value in values if value is not None)])


def _mega(series: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value / 1e3 for value in series]


def _last(values: Sequence[float]) -> float:
    # Return the last positive value, because flows that have stopped end with zeros.
    return next((v for v in reversed(values) if v == v and v > 0), 0.0)
