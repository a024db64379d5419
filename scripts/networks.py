"""Makes the pictures of docs/networks.md: the capacity and the delay of each network over a minute.

    .venv/bin/python scripts/networks.py

The downlink capacity is an area and the uplink capacity a line. The delay is that of a lone flow of 50 packets of 100
bytes per second in the simulator; the grey area above is what a full queue adds. Marks below are lost packets.
"""

from __future__ import annotations

import bisect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import steadycast as sc
from steadycast import networks, units
from steadycast.report import canvas
from steadycast.style import FATE, GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
SHEETS = {
    "lines": "clean-20 fibre-20 cable-5 dsl-1.5 dsl-8 home-3 bloat fq-codel dualpi2 asymmetric",
    "mobile": "edge 3g-fast 3g-poor 4g-9 lte-12 4g-unstable lte cell-load cell-holes",
    "wifi": "wifi-good wifi-bad wifi-bad-20 wifi-fade wifi-fade-2 wifi-suspend wifi-lossy",
    "changes": "steps steps-back black-hole low-and-up drop-and-back short-long",
    "others": "leo geo police-1.5 police-4 loss-1 bursts reorder teleop tunnel",
}
"""The pictures of the page, each with its networks, one per row."""
LASTS = 60
WIDE, HIGH, EDGES = 5.6, 0.62, 0.75
"""Inches: a picture's width, a row's height, both margins together.

At this width the text is legible on a phone of 400 pixels.
"""
BLUE = "#4d9de0"

Steps = tuple[list[float], list[float]]
"""Times in seconds, and the values from each of these times on."""


def constant(value: object) -> float:
    """Return a rate in Mb/s; infinity if there is no limit."""
    rate = units.read(value, units.RATE)
    return float("inf") if rate is None else rate / 1e6


def mahimahi(path: Path) -> Steps:
    """Return the rates of a trace in Mb/s, for each 500 ms of a minute."""
    lines = [int(line) for line in path.read_text().split()]
    times = [line + lap * lines[-1] for lap in range(1 + LASTS * 1000 // lines[-1]) for line in lines]
    places = range(0, LASTS * 1000, 500)
    counts = [bisect.bisect(times, at + 500) - bisect.bisect(times, at) for at in places]
    return [at / 1000 for at in places], [count * 0.024 for count in counts]


def table(path: Path) -> Steps:
    """Return the rates of a table of milliseconds and kb/s, in Mb/s for each 500 ms of a minute."""
    rows = [line.split() for line in path.read_text().splitlines()[1:]]
    places = range(0, LASTS * 1000, 500)
    means = [[float(rate) for t, rate in rows if at <= int(t) < at + 500] for at in places]
    return [at / 1000 for at in places], [sum(each) / len(each) / 1000 for each in means]


def capacity(network: networks.Network, way: str) -> Steps:
    """Return the capacity of a network in one direction, in Mb/s."""
    link: dict[str, Any] = network.topology["bottleneck"]
    if way == "back":
        link = {**link, **link.get("back", {})}
    if "trace" in link and not (way == "back" and "rate" in link):
        path = Path(link["trace"])
        return (mahimahi if path.suffix == ".mahi" else table)(path)
    changes = [(0.0, constant(link.get("rate")))]
    for event in network.event:
        change = event["set"]
        if "rate" in change and change.get("direction", way) in (way, "both"):
            at, every = (units.read(event.get(key), units.SPAN) for key in ("at", "every"))
            assert at is not None
            while at < LASTS:
                changes.append((at, constant(change["rate"])))
                at += every or LASTS
    changes.sort(key=lambda change: change[0])
    return [at for at, _ in changes], [rate for _, rate in changes]


def probed(name: str) -> pl.DataFrame:
    """Send the packets of a single flow through a network.

    Returns their sending times, and their delays in ms if they arrive.
    """
    probe = sc.Flow(name="probe", kind="cbr", rate="40kbps", packet="100B", stop=f"{LASTS - 3}s")
    record = sc.Record(packets=["probe"])
    scenario = sc.Scenario(name="probe", duration=f"{LASTS}s", network=name, flows=[probe], record=record)
    packets = sc.run(scenario, quality=False).table("packets").frame
    sent = packets.filter(pl.col("dir") == "s").select("seq", "t_s")
    came = packets.filter(pl.col("dir") == "r").select("seq", "owd_ms")
    return sent.join(came, "seq", "left").sort("t_s")


def waits(network: networks.Network, rates: Steps) -> list[float]:
    """Return the delay in ms of a full drop-tail queue, for each step of the rate."""
    queue = network.topology["bottleneck"].get("queue", {"limit": "50p"})
    if queue.get("kind", "droptail") != "droptail":
        return [0.0 for _ in rates[0]]
    time = units.read(queue["limit"], units.SPAN)
    size = units.read(queue["limit"], units.SIZE)
    whole = size or 1500.0 * float(queue["limit"].removesuffix("p") if time is None else 0)
    # Every queue is longer than a step of a trace, so take the mean rate.
    traced = "trace" in network.topology["bottleneck"]
    steps = [sum(rates[1]) / len(rates[1])] * len(rates[1]) if traced else rates[1]
    whole = whole if time is None else time * steps[0] * 125_000
    return [whole / 125 / rate if rate > 0 else float("nan") for rate in steps]


def sheet(names: list[str]) -> Figure:
    """Draw the networks of one picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE, EDGES + HIGH * len(names)))
    grid = figure.subplots(len(names), 2, squeeze=False)
    figure.subplots_adjust(
        0.26, 0.5 / (EDGES + HIGH * len(names)), 0.97, 1 - 0.25 / (EDGES + HIGH * len(names)), 0.3, 0.35
    )
    for name, (left, right) in zip(names, grid, strict=True):
        network = networks.find(name)
        down, up = capacity(network, "forward"), capacity(network, "back")
        row(left, right, down, up, probed(name), waits(network, down))
        box = left.get_position()
        figure.text(0.01, (box.y0 + box.y1) / 2, name, fontsize=10, weight="bold", color=INK, va="center")
        for axes in (left, right):
            axes.set_xlim(0, LASTS)
            axes.set_xticks([0, 20, 40, 60], ["0", "20", "40", "60"] if name == names[-1] else [])
            axes.tick_params(labelsize=9)
    grid[0][0].set_title("capacity, Mb/s", fontsize=9.5)
    grid[0][1].set_title("delay one way, ms", fontsize=9.5)
    for axes in grid[-1]:
        axes.set_xlabel("time, s", fontsize=9)
    return figure


def row(left: Axes, right: Axes, down: Steps, up: Steps, packets: pl.DataFrame, full: list[float]) -> None:
    """Draw one network: its capacity on the left, the delay of packets on the right."""
    most = max(*down[1], *(rate for rate in up[1] if rate < float("inf")))
    left.fill_between(
        [*down[0], LASTS], [*down[1], down[1][-1]], step="post", color=BLUE, alpha=0.45, linewidth=0
    )
    left.step([*up[0], LASTS], [*up[1], up[1][-1]], where="post", color=INK, linewidth=1)
    left.set_ylim(0, 1.15 * most)
    left.set_yticks([0, most], ["0", f"{most:.3g}"])
    came = packets.filter(pl.col("owd_ms").is_not_null())
    steps = (
        came.group_by((pl.col("t_s") * 2).floor().alias("bin"))
        .agg(pl.col("owd_ms").min().alias("low"), pl.col("owd_ms").max().alias("high"))
        .sort("bin")
    )
    at = (steps["bin"] / 2 + 0.25).to_list()
    low, high = steps["low"].to_list(), steps["high"].to_list()
    over = [full[max(0, bisect.bisect(down[0], t) - 1)] for t in at]
    tops = [least + more for least, more in zip(low, over, strict=True)]
    highest = max(1.0, *high, *(top for top in tops if top == top))
    kept = [n for n in range(len(at)) if not flat(low, n) or not flat(tops, n)]
    right.fill_between(
        [at[n] for n in kept], [low[n] for n in kept], [tops[n] for n in kept], color=GRID, linewidth=0
    )
    right.plot([at[n] for n in kept], [low[n] for n in kept], color=INK, linewidth=1)
    tall = [n for n in range(len(at)) if high[n] - low[n] > 0.02 * highest]
    right.vlines(
        [at[n] for n in tall], [low[n] for n in tall], [high[n] for n in tall], color=INK, linewidth=1.3
    )
    lost = packets.filter(pl.col("owd_ms").is_null())["t_s"].to_list()
    right.plot(
        lost,
        [-0.08 * highest] * len(lost),
        "|",
        color=FATE["lost"],
        markersize=4,
        markeredgewidth=0.8,
        clip_on=False,
    )
    right.set_ylim(-0.15 * highest, 1.1 * highest)
    right.set_yticks([0, highest], ["0", f"{highest:.0f}"])
    for axes in (left, right):
        axes.spines["bottom"].set_color(MUTED)


def flat(values: list[float], n: int) -> bool:
    """Whether a value equals both its neighbours, so that a line needs no point there."""
    near = values[max(0, n - 1) : n + 2]
    return 0 < n < len(values) - 1 and max(near) - min(near) < 0.01 * max(near)


def main() -> int:
    """Draw the named pictures, or all of them."""
    for name in sys.argv[1:] or SHEETS:
        path = PICTURES / f"networks-{name}.svg"
        canvas.save_drawing(lambda name=name: sheet(SHEETS[name].split()), path)  # type: ignore[misc]
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
