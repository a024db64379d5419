"""Tables for pages and for the terminal. They have column headings, and rows of cells that are text or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steadycast.report import say
from steadycast.report.markup import Html, element
from steadycast.report.words import term

Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The column headings, and the rows."""


def verdict(*, holds: bool, fails: str = "fails") -> Html:
    """Return whether a bound holds, as a word and a sign in colour."""
    return element("span", "✓ holds" if holds else f"✗ {fails}", class_="ok" if holds else "bad")


def expectations(summary: Mapping[str, Any]) -> Cells:
    """Return a table of the scenario's expectations, one per row."""
    rows = []
    for each in summary.get("expect") or []:
        how = say.by_unit(each["that"])
        numbers = [how(each.get(key)) for key in ("min", "max", "value")]
        rows.append([element("code", each["that"]), *numbers, verdict(holds=bool(each.get("ok")))])
    return [term("expectation"), "at least", "at most", "measured", ""], rows


VIEWER = {
    "throughput": "throughput_bps",
    "fair share": "fair_share_bps",
    "share of fair": "share_of_fair",
    "moves": "moves_count",
}
"""Figures of a simulcast's receiver by their headings. A column for each group follows them."""


def simulcasts(summary: Mapping[str, Any]) -> list[tuple[str, Cells]]:
    """Return a title and a table for each simulcast. A row is a receiver, over all groups of the simulcast."""
    return [(f"Simulcast {each['name']}", _simulcast(each)) for each in summary.get("simulcasts") or []]


def _simulcast(simulcast: Mapping[str, Any]) -> Cells:
    groups = simulcast.get("flows") or []
    rows = []
    for viewer in simulcast.get("receivers") or []:
        times = viewer.get("time_frac") or {}
        known = (say.by_unit(path, "viewer")(viewer.get(path)) for path in VIEWER.values())
        rows.append([viewer["name"], *known, *(say.frac(times.get(group)) for group in groups)])
    return ["receiver", *VIEWER, *(f"time in {group}" for group in groups)], rows
