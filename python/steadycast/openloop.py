"""Computes what each controller would decide if it got the recorded reports of a call (open loop).

This cannot rank controllers, because their decisions had no effect on the recorded reports.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from typing import TYPE_CHECKING

from steadycast import style
from steadycast.controllers import find
from steadycast.folder import Json
from steadycast.record import middle
from steadycast.report import canvas, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALIKE = 0.10
"""Two rates count as the same decision if they differ by at most this fraction."""
STEP_S = 0.1
_HIGHEST = 3.0
"""Upper limit of the drawn rates, relative to the highest sending rate.

The limit is needed because a controller's target grows without bound if the recorded link is never full.
"""


def recorded(call: Json) -> tuple[str, list[tuple[float, float]]]:
    """Return the name and the values of the recorded bandwidth estimate.

    If the call has no recorded estimate, return the rates of gcc, which is assumed to be the call's controller.
    """
    if estimates := call["seen"]["estimates"]:
        return "recorded", estimates
    return "gcc", [(at, rate) for at, rate, _ in call.get("open", {}).get("gcc", [])]


def table(call: Json) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table. It compares each controller's rate with the recorded rate.

    A row begins with the fraction of time in which the controller's rate is within 10 % of the recorded rate. Its other
    columns describe the longest period outside this range in which the same rule decides. They are the beginning and
    end of the period, the medians of both rates, and the rule.
    """
    name, was = recorded(call)
    rows = []
    for controller, decided in call["open"].items():
        if controller == name or not decided or not was:
            continue
        parts = list(apart(decided, was, call["seen"]["length_s"]))
        rows.append([controller, say.frac(sum(part is None for _, part in parts) / max(len(parts), 1))])
        runs = [(key, list(run)) for key, run in groupby(parts, key=lambda one: (one[1] or [None])[0])]
        key, run = max((one for one in runs if one[0]), key=lambda one: len(one[1]), default=(None, []))
        mine, theirs = (middle(part[k] for _, part in run if part) for k in (1, 2))
        where = f"{say.seconds(run[0][0])} to {say.seconds(run[-1][0] + STEP_S)}" if run else ""
        rows[-1] += [where, f"{say.rate(mine)}, not {say.rate(theirs)}" if run else "", key or ""]
    return ["", f"within 10 % of {name}", "longest apart", "asks for", "by its rule"], rows


def apart(
    decided: list[tuple[float, float, str]], was: list[tuple[float, float]], length_s: float
) -> list[tuple[float, tuple[str, float, float] | None]]:
    """Compare the target rate of a controller with the recorded target rate in each step of `STEP_S`.

    Return the time of each step in seconds. If the two rates differ, also return the controller's rule, its rate and
    the recorded rate in bit/s. If they agree, return `None` instead. Steps before both rates have a value are left out.
    """
    found: list[tuple[float, tuple[str, float, float] | None]] = []
    for step in range(int(length_s / STEP_S)):
        i, j = (bisect_right(each, step * STEP_S, key=lambda one: one[0]) for each in (decided, was))
        if i and j:
            _, rate, rule = decided[i - 1]
            other = was[j - 1][1]
            alike = abs(rate - other) <= ALIKE * other
            found.append((step * STEP_S, None if alike else (rule, rate, other)))
    return found


def draw(call: Json) -> Figure:
    """Draw the target rate of each controller, the recorded target rate, and the sending rate."""
    figure, (axes,) = canvas.canvas(1, height=2.6)
    length, bins = call["seen"]["length_s"], call["bins"]
    name, was = recorded(call)
    top = max(each["sent_bps"] for each in bins)
    lines = {each: [(at, rate) for at, rate, _ in decided] for each, decided in call["open"].items()}
    top = max(
        [top, *(rate for _, rate in was), *(middle(r for _, r in one) or 0.0 for one in lines.values())]
    )
    top = min(top, _HIGHEST * max(each["sent_bps"] for each in bins))
    scale, unit = canvas.scale_of(top)
    labels = []

    def line(points: list[tuple[float, float]], label: str, colour: str, width: float) -> None:
        if points:
            times, rates = [at for at, _ in points], [rate / scale for _, rate in points]
            axes.step([*times, length], [*rates, rates[-1]], where="post", color=colour, linewidth=width)
            labels.append(canvas.Label(rates[-1], label, colour))

    at = [k * call["bin_s"] for k in range(len(bins))]
    axes.step(at, [each["sent_bps"] / scale for each in bins], where="post", color=style.GRID, linewidth=1.0)
    for each, points in lines.items():
        line(points, each, find(each).colour, 1.0)
    if name == "recorded":
        line(was, name, style.INK, 1.6)
    axes.set_title(f"targets, and in grey what was sent ({unit})")
    axes.set_xlabel("time (s)", loc="right")
    axes.set_xlim(0, length)
    canvas.from_zero(axes, top * 1.3 / scale)
    canvas.label_ends(axes, labels)
    return figure
