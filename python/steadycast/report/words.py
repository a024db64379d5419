"""The glossary of the report's technical terms. `term` writes headings, and fails for a term without an entry."""

from __future__ import annotations

import re

from steadycast import record
from steadycast.report.markup import Html, element, joined

_WORDS: dict[str, str] = {
    "flow": "One sender and its receivers: a video, a TCP transfer, or background traffic.",
    "receiver": "A destination of a flow. A multicast flow has many; a TCP flow has one.",
    "loss event": "All losses within one round-trip time, counted as one sign of congestion.",
    "median": "The middle value: half of the values are larger, half are smaller.",
    "play-out limit": "The time from a frame's sending to its display; a frame that arrives later is late.",
    "quantizer": "The coarseness of the encoding: a larger number gives fewer bits and a worse picture.",
    "limited by": "What limited the rate, as shares of the run: the network, the encoder's best quality, the start "
    "phase, or a cap. The time at the floor counts as limited by the network.",
    "network": "The network limits the rate: the controller detected congestion or is recovering from it. Only in this "
    "phase can controllers be compared.",
    "encoder": "The encoder's best quality needs no higher rate, so a faster network would change nothing.",
    "start": "The start phase, before the first sign of congestion.",
    "cap": "A configured upper limit of the rate, or a constant rate.",
    "floor": "A lower limit of the rate: the encoder's worst quality, or a configured one.",
    "target": "The rate that the controller sets for the encoder.",
    "pacing": "The rate at which packets leave the sender.",
    "warm-up": "The first part of the run. Means and percentiles do not include it; figures over time show it, and "
    "counts of packets include it.",
    "rule": "The controller's rule that led to a rate.",
    "by": "The receiver whose report led to the decision.",
    "bandwidth": "A link's rate, which scenario files call `rate` and reports call capacity.",
    "bitrate": "The rate of a flow: bits of IP packets per second. The controller sets the target rate. Packets "
    "leave the sender at the pacing rate, and arrive with the throughput.",
    "capacity": "The highest rate that a link can carry.",
    "mode": "repaired or paper. In mode paper a controller follows its paper literally. In mode repaired, the default, "
    "the paper's contradictions are decided and its gaps are filled.",
    "multicast": "One packet from the sender reaches many receivers; the network copies it where the paths "
    "diverge.",
    "promise": "An invariant of a controller or the session, which is checked in every run.",
    "seed": "The number that determines all random draws of a run. The same scenario and seed give the same result.",
    "expectation": "A bound that the scenario file sets on a result.",
    "packet-hop": "One packet leaving one link: the unit of a simulation's work.",
    "p50": "The median: half of all values are below.",
    "p95": "95 % of all values are below: a bad but common case.",
    "p99": "99 % of all values are below.",
}

GLOSSARY: dict[str, str] = {
    **_WORDS,
    **{figure.short: figure.about for figure in reversed(record.FIGURES) if figure.short is not None},
}
"""Explanations of terms and figures. The keys are their headings.

If a figure of flows and a figure of receivers have the same heading, the flow's explanation is used.
"""


def term(word: str, shown: str | None = None) -> Html:
    """Return a term as a link to its entry in the glossary.

    Raises:
        KeyError: the glossary has no entry for the term.

    """
    GLOSSARY[word]
    return element("a", shown or word, class_="w", href=f"#w-{_slug(word)}")


def heading(shown: record.Shown) -> Html:
    """Return the heading of a figure in a table, as a link to its entry in the glossary."""
    return term(shown.figure.short or "", shown.heading)


def glossary(used: str) -> Html:
    """Return the entries of the glossary to which the page `used` contains links."""
    entries = [
        (w, about)
        for w, about in sorted(GLOSSARY.items(), key=lambda e: e[0].lower())
        if f'href="#w-{_slug(w)}"' in used
    ]
    return element(
        "dl", joined(element("dt", w, id=f"w-{_slug(w)}") + element("dd", about) for w, about in entries)
    )


def _slug(word: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", word.lower())
