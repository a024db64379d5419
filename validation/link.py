"""A link between two hosts `s` and `r` on which programs are measured, alone or beside a CUBIC of the kernel."""

from __future__ import annotations

_LINK = """
duration = "5min"
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "{rate}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "{queue}" }}
loss = {{ kind = "bernoulli", p = {loss} }}
"""
_CUBIC = """
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
from = "s"
to = ["r"]
start = "{start}"
"""


def scenario(rate: str, delay: str, queue: str, loss: float, cubic: str | None) -> str:
    """Return the text of a scenario: rate, one-way delay, queue, loss, and the start of a CUBIC (`None`: no CUBIC)."""
    link = _LINK.format(rate=rate, delay=delay, queue=queue, loss=loss)
    return link + (beside(cubic) if cubic is not None else "")


def beside(start: str) -> str:
    """Return the text of a CUBIC flow from `s` to `r` that starts at this time."""
    return _CUBIC.format(start=start)
