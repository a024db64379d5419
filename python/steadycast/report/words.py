"""The glossary of the report's technical terms.

All headings are written by `term`, which guarantees that each has an entry.
"""

from __future__ import annotations

import re

from steadycast import record
from steadycast.report.markup import Html, element, joined

_WORDS: dict[str, str] = {
    "flow": "One sender and its receivers: a video, a TCP transfer, or background traffic.",
    "receiver": "One end that a flow reaches. A multicast flow has many; a TCP flow has one.",
    "loss event": "All losses within one round-trip time, counted as one sign of congestion.",
    "median": "The value in the middle: half of the receivers have more, half have less.",
    "play-out limit": "How long after its sending a frame is shown; a later one is late.",
    "quantizer": "How coarsely the encoder draws: a larger number gives fewer bits and a worse picture.",
    "limited by": "What held the rate, as shares of the run: the network, the encoder's best quality, the start "
    "phase, or a cap.",
    "network": "The controller saw congestion, or is on its way up from it: the only phase in which "
    "controllers can be compared.",
    "encoder": "The encoder's best quality needs no more: more network would change nothing.",
    "start": "The start phase, before the first sign of congestion.",
    "cap": "A configured upper limit of the rate, or a constant rate.",
    "floor": "A lower limit of the rate: the encoder's worst quality, or a configured one.",
    "target": "What the controller tells the encoder to produce.",
    "pacing": "The rate at which packets leave the sender.",
    "warm-up": "The beginning of the run that no mean counts; series show it, and the links' loads and drops "
    "include it.",
    "rule": "The controller's own reason for a rate.",
    "by": "The receiver whose report led to the decision.",
    "bandwidth": "A link's rate, which scenario files call `rate` and reports call capacity.",
    "bitrate": "The rate of a flow: bits of IP packets per second. The controller sets the target, packets leave the "
    "sender at the pacing, and the throughput is what arrives.",
    "capacity": "What a link can carry.",
    "mode": "repaired or paper. In mode paper a controller does what its paper prints. In mode repaired, the default, "
    "the paper's contradictions are decided and its gaps are filled.",
    "multicast": "One packet from the sender reaches many receivers; the network copies it where the ways "
    "part.",
    "promise": "A rule that a controller or the session keeps, and that is checked in every run.",
    "seed": "The number from which all chance of a run is drawn. Same scenario, same seed: same result.",
    "expectation": "A bound that the scenario file sets on a result.",
    "packet-hop": "One packet leaving one link: the unit of a simulation's work.",
    "p50": "The median: half of all values are below.",
    "p95": "95 % of all values are below; what one sees on a bad day.",
    "p99": "99 % of all values are below.",
}

GLOSSARY: dict[str, str] = {
    **_WORDS,
    **{figure.short: figure.about for figure in reversed(record.FIGURES) if figure.short is not None},
}
"""Terms other than figures, and the headings of figures; a figure of both flows and receivers is listed for flows."""


def term(word: str, shown: str | None = None) -> Html:
    """Return a term as a link to its entry in the glossary.

    Raises:
        KeyError: the glossary lacks it.

    """
    GLOSSARY[word]
    return element("a", shown or word, class_="w", href=f"#w-{_slug(word)}")


def heading(shown: record.Shown) -> Html:
    """Return the heading of a figure in a table, as a link to its entry."""
    return term(shown.figure.short or "", shown.heading)


def glossary(used: str) -> Html:
    """Return the entries to which the page `used` links, and those to which these refer, as a list."""
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
