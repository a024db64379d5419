"""Shows a recorded call on the page, beside a controller that runs on the call's network path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadycast import call as calls
from steadycast import replay, style
from steadycast.errors import UserError
from steadycast.folder import Json, read_json
from steadycast.report import say

NAME = "the recorded call"


def path_of(place: Path) -> Path:
    """Return ``place`` if it is a file. If it is the folder of an analysed call, return the folder's file path.toml.

    Raises:
        UserError: the folder has no path.toml, because the network path of the call is unknown.

    """
    if not place.is_dir():
        return place
    if not (place / "path.toml").is_file():
        told = read_json(place / "path.json", "give a folder that steadycast call has written")
        why = "; ".join(told.get("path", {}).get("refusals", [])) or "it has no path.toml"
        raise UserError(
            str(place), f"the call does not show its path: {why}", "steadycast call has what was seen"
        )
    return place / "path.toml"


def beside(place: Path) -> Json | None:
    """Return the page's content for the call from which a scenario was made. Return `None` if there is no such call."""
    told = place.parent / "path.json"
    if place.name != "path.toml" or not told.is_file():
        return None
    return side(read_json(told, "read the call again"))


def side(call: Json) -> Json:
    """Return the page's content for a call: series with one value per bin, a row of numbers, and sentences.

    The delays on the page are queueing delays plus `replay.empty_ms`, which is the path's delay with empty queues.
    """
    bins, step = call["bins"], call["bin_s"]
    at = [round((k + 0.5) * step, 3) for k in range(len(bins))]
    empty = replay.empty_ms(call)
    delay = [None if each["delay_ms"] is None else round(each["delay_ms"] + empty, 2) for each in bins]
    lost = [
        100 * each["lost"] / each["packets"] if each["packets"] and each["lost"] is not None else None
        for each in bins
    ]
    known = [each["capacity_bps"] for each in bins]
    was = replay.recorded(call)
    shown = [
        (head, how(was[key]), about) for key, (head, how, about) in replay.FIGURES.items() if key != "score"
    ]

    def line(y: list[Any]) -> list[Json]:
        look = {"flow": "video", "label": "as recorded", "colour": style.INK, "video": True}
        return [{**look, "t": at, "y": y}]

    estimates = call["seen"]["estimates"]
    decisions = {
        "flow": "video",
        "title": NAME,
        "t": [t for t, _ in estimates],
        "target": [say.rate(rate) for _, rate in estimates],
        "why": ["as logged"] * len(estimates),
        "limit": [None] * len(estimates),
        "by": [None] * len(estimates),
    }
    return {
        "to_s": call["seen"]["length_s"],
        "from_s": 0.0,
        "cpu_s": None,
        "says": calls.sentences(call)[:3],
        "warnings": [],
        "expect": [],
        "pixels": False,
        "numbers": {
            "heads": [[head, about] for head, _, about in shown],
            "rows": [
                {"flow": "video", "title": NAME, "cells": [each for _, each, _ in shown], "colour": style.INK}
            ],
        },
        "charts": {
            "rates": {
                "lines": line([round(each["arrived_bps"]) for each in bins]),
                "capacity": {
                    "name": "capacity",
                    "t": [k * step for k, band in enumerate(known) if band],
                    "y": [round(band["rate"]) for band in known if band],
                },
                "shares": [],
            },
            "delay": line(delay),
            "queue": [],
            "loss": line(lost),
        },
        "events": [],
        "decisions": [decisions] if estimates else [],
        "strips": [],
    }
