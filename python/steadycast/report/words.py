"""The glossary: every word of a report that somebody may have to look up.

A heading can only be written through `term`.
"""

from __future__ import annotations

import html
import re

GLOSSARY: dict[str, str] = {
    "flow": "One sender and its receivers: a video, a TCP transfer, or background traffic.",
    "receiver": "One end that a flow reaches. A multicast flow has many; a TCP flow has one.",
    "throughput": "What arrived, in bits of IP packets per second, each packet counted once, from the "
    "flow's start to its stop. "
    "1 Mb/s is 1 000 000 bits per second.",
    "fair share": "The max–min share: what the flow would get if every link divided its capacity evenly "
    "among those who want more.",
    "share of fair": "Throughput divided by the fair share. 100 % is fair; above takes from others, below "
    "gives way.",
    "loss": "The share of the flow's packets that never arrived.",
    "loss event": "All losses within one round-trip time, counted as one sign of congestion.",
    "delay": "From the first send of a packet (or the first packet of a frame) to its arrival. The "
    "sender's own backlog is not in it.",
    "p50": "The median: half of all values are below.",
    "p95": "95 % of all values are below; what one sees on a bad day.",
    "p99": "99 % of all values are below.",
    "median": "The value in the middle: half of the receivers have more, half have less.",
    "jitter": "How much the delay changes from packet to packet, smoothed as in RFC 3550.",
    "cumulative jitter": "How far behind the first packet's pace the stream has ever fallen.",
    "play-out needed": "The play-out delay with which no frame would have been late.",
    "play-out limit": "How long after its sending a frame is shown; a later one is late.",
    "rate CoV": "Coefficient of variation of the throughput in 1-s bins: standard deviation divided by "
    "mean. 0 is perfectly smooth.",
    "Jain index": "Fairness among n flows, from 1/n (one has all) to 1 (all have the same).",
    "frames": "How many pictures were sent; ok arrived in time and could be decoded; the others are lost, "
    "late or undecodable.",
    "lost": "A frame of which a packet never came.",
    "late": "A frame that was whole only after its play-out limit.",
    "undecodable": "A frame that arrived, but needs another one that did not: it is decoded with the other's "
    "damage, which may be hard to see.",
    "freeze": "The picture stands still because the next frame is not there.",
    "PSNR": "Peak signal-to-noise ratio of the luminance in dB: what is shown against the raw original. "
    "Above 37 dB looks excellent, "
    "below 25 dB poor.",
    "SSIM": "Structural similarity of what is shown and the original; 1 is identical.",
    "VMAF": "A learned score of picture quality from 0 to 100.",
    "MOS": "Mean opinion score, 1 (bad) to 5 (excellent), from each frame's PSNR: above 37 dB is 5, 31–37 "
    "is 4, 25–31 is 3, 20–25 is 2, "
    "below 20 is 1.",
    "quantizer": "How coarsely the encoder draws: a larger number gives fewer bits and a worse picture.",
    "limited by": "What held the rate, as shares of the run: the network, the encoder's best quality, the "
    "start phase, or a cap.",
    "network": "The controller saw congestion, or is on its way up from it: the only phase in which "
    "controllers can be compared.",
    "encoder": "The encoder's best quality needs no more: more network would change nothing.",
    "start": "The start phase, before the first sign of congestion.",
    "cap": "A configured upper limit of the rate, or a constant rate.",
    "floor": "A lower limit of the rate: the encoder's worst quality, or a configured one.",
    "target": "What the controller tells the encoder to produce.",
    "pacing": "The rate at which packets leave the sender.",
    "warm-up": "The beginning of the run that no mean counts; series show it, and the links' "
    "loads and drops include it.",
    "rule": "The controller's own reason for a rate.",
    "by": "The receiver whose report led to the decision.",
    "utilisation": "The share of a link's capacity that was used.",
    "queue delay": "How long a packet waits in front of a link.",
    "drops": "Packets that a full (or early-dropping) queue threw away.",
    "capacity": "What a link can carry.",
    "window": "TCP's congestion window: how many packets may be on their way.",
    "RTT": "Round-trip time, smoothed: to the receiver and back.",
    "retransmitted": "Packets that TCP sent again.",
    "feedback": "Reports from the receivers to the sender, in bits per second on the way back.",
    "ramp": "How long the flow took to reach 1 Mb/s, and 80 % of its fair share.",
    "multicast": "One packet from the sender reaches many receivers; the network copies it where the ways "
    "part.",
    "invariant": "A rule that must never break while the program runs.",
    "seed": "The number from which all chance of a run is drawn. Same scenario, same seed: same result.",
    "expectation": "A bound that the scenario file sets on a result.",
    "packet-hop": "One packet leaving one link: the unit of a simulation's work.",
}


def term(word: str, shown: str | None = None) -> str:
    """Word as a link to its entry in the glossary.

    Raises:
        KeyError: the glossary lacks it.

    """
    GLOSSARY[word]
    return f'<a class="w" href="#w-{_slug(word)}">{html.escape(shown or word)}</a>'


def glossary(used: str) -> str:
    """Entries that the page `used` links to, and those that these entries are about, as a list."""
    entries = [
        (w, text)
        for w, text in sorted(GLOSSARY.items(), key=lambda e: e[0].lower())
        if f'href="#w-{_slug(w)}"' in used
    ]
    return (
        "<dl>"
        + "".join(
            f'<dt id="w-{_slug(w)}">{html.escape(w)}</dt><dd>{html.escape(text)}</dd>' for w, text in entries
        )
        + "</dl>"
    )


def _slug(word: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", word.lower())
