"""A link between two hosts `s` and `r`, as programs are measured on it: with a CUBIC of the kernel beside, or alone."""

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
    """Return the text of a scenario: rate, delay each way, queue and loss, and when a CUBIC begins; `None`: never."""
    link = _LINK.format(rate=rate, delay=delay, queue=queue, loss=loss)
    return link + (beside(cubic) if cubic is not None else "")


def beside(start: str) -> str:
    """Return the text of a CUBIC from `s` to `r` that begins then."""
    return _CUBIC.format(start=start)
