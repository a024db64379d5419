"""The style of lines in all figures. Each controller has one colour and one dash pattern, from the registry."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from steadycast.controllers import registry

# A page replaces these colours by its own variables. The variables differ between the light scheme, the dark scheme and
# paper.
INK = "#1b1f24"
MUTED = "#667080"
GRID = "#e4e7eb"
PAPER = "#fffffe"
DARK_PAPER = "#16191d"
"""Background of a page in the dark scheme."""
LEAST_CONTRAST = 4.5
"""Minimum contrast between a line or text and its background (WCAG 2.2, 1.4.3)."""

# Colours for lines that have no colour of their own. Colour-blind readers can distinguish them (Okabe and Ito).
SPARE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

# The classes of the mean opinion score. The worst class is the first.
MOS = {
    1: ("bad", "#b2182b"),
    2: ("poor", "#ef8a62"),
    3: ("fair", "#c9c4b5"),
    4: ("good", "#67a9cf"),
    5: ("excellent", "#2166ac"),
}
# Colours that show in the background of a figure what limited the rate.
LIMIT = {"start": "#e8b400", "network": "#4d9de0", "cap": "#9a9a9a", "encoder": "#9a9a9a", "floor": "#e0606f"}
# Colours for frames that were not displayed whole and in time.
FATE = {"lost": "#7f3b08", "late": "#e08214", "undecodable": "#8073ac"}


@dataclass(frozen=True)
class Look:
    """The style of a line.

    The colour has the form "#rrggbb". The dashes are lengths in points, alternately drawn and not drawn. A solid line
    has no dashes.
    """

    colour: str
    dashes: tuple[float, ...] = ()

    @property
    def line(self) -> dict[str, Any]:
        """The style, as keyword arguments for matplotlib."""
        style: Any = (0, self.dashes) if self.dashes else "solid"
        return {"color": readable(self.colour), "linestyle": style}


def look(flow: dict[str, Any]) -> Look:
    """Return the style of a flow. The flow is one from summary.json."""
    kind = flow.get("kind")
    if kind == "tcp":
        # Draw TCP in the colour of texts, because all comparisons refer to it. Dashes distinguish its congestion
        # controls.
        dashes: dict[str, tuple[float, ...]] = {"reno": (6, 2), "sack": (6, 2, 1, 2), "cubic": (3, 1)}
        return Look(INK, dashes.get(str(flow.get("congestion")), ()))
    if kind in ("cbr", "onoff"):
        return Look("#8a6d3b", (1, 1.5))
    name = str(flow.get("controller"))
    for entry in registry():
        if entry.name == name:
            return Look(entry.colour, entry.dashes)
    # Derive the colour of a user's controller from its name, so that it is always the same.
    return Look(SPARE[sum(name.encode()) % len(SPARE)], (4, 1, 1, 1))


def looks(flows: Sequence[dict[str, Any]]) -> list[Look]:
    """Return a style for each flow of a drawing.

    If styles would be equal, some of them get paler colours, and then other dashes.
    """
    result: list[Look] = []
    for flow in flows:
        plain = look(flow)
        found = replace(plain, colour=readable(plain.colour))
        for dashes, paler in itertools.product((plain.dashes, *_DASHES), (0.0, 0.3, 0.5)):
            if found not in result:
                break
            found = Look(readable(mix(plain.colour, PAPER, paler)), dashes)
        result.append(found)
    return result


_DASHES: tuple[tuple[float, ...], ...] = ((5, 2), (1.5, 1.5), (8, 2, 1.5, 2), (3, 1, 1, 1))


def contrast(one: str, other: str) -> float:
    """Return the contrast between two colours, from 1 to 21 (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [c / 255 for c in _channels(colour)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(area: str) -> str:
    """Return black or white: the one that is easier to read on this background."""
    return max(("#ffffff", "#000000"), key=lambda ink: contrast(ink, area))


def readable(colour: str, paper: str = PAPER) -> str:
    """Return the colour, made darker or lighter until it can be read on this background."""
    end = max(("#000000", "#ffffff"), key=lambda ink: contrast(paper, ink))
    mixed = (mix(colour, end, step / 50) for step in range(50))
    return next((each for each in mixed if contrast(each, paper) >= LEAST_CONTRAST), end)


def mix(one: str, other: str, share: float) -> str:
    """Mix two colours. ``share`` is the fraction of the second colour."""
    pairs = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))
