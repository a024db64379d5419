"""Synthetic traces of what a cell gives one phone, for RFC 8869's cellular cases: ours, measured on no network.

A cell's capacity is shared by its users, who come and go, and changes with the phone's fading. All numbers are whole,
so that a trace is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadycast.media.splitmix import mixed

_STEP_MS = 100
_FADES = (25, 35, 50, 70, 100, 130, 160, 200)
"""In per cent of the mean, around which the fading wanders a step at a time."""
_BITS = 12_000
"""One opportunity of a Mahimahi trace: 1500 bytes."""


@dataclass(frozen=True)
class Cell:
    """A cell and the phone in it."""

    seed: int
    kbps: int
    """What the cell carries for one user."""
    users: tuple[int, int]
    """From how many to how many share it."""
    holes: tuple[int, ...] = ()
    """Seconds at which the signal is all but gone for half a second."""
    duration_s: int = 91

    def rates(self) -> list[int]:
        """Return the phone's rate in kb/s, for each 100 ms."""
        steps = self.duration_s * 1000 // _STEP_MS
        words = mixed(np.arange(2 * steps, dtype=np.uint64) + np.uint64(self.seed << 32)).tolist()
        low, high = self.users
        fade, users = _FADES.index(100), (low + high) // 2
        rates = []
        for step in range(steps):
            towards, load = words[2 * step] >> 40, words[2 * step + 1] >> 40
            # Every third step goes back to the middle, so that neither end lasts.
            middle = _FADES.index(100)
            way = (middle > fade) - (middle < fade) if step % 3 == 0 else towards % 3 - 1
            fade = min(max(fade + way, 0), len(_FADES) - 1)
            if load % 20 == 0:  # every 2 s on average somebody comes or goes
                users = min(max(users + (1 if (load >> 8) % 2 else -1), low), high)
            hole = any(at * 1000 <= step * _STEP_MS < at * 1000 + 500 for at in self.holes)
            rates.append(max(50, self.kbps * _FADES[fade] // 100 // users // (10 if hole else 1)))
        return rates

    def trace(self) -> str:
        """Return it as Mahimahi has it: a line for each 1500 bytes that may leave, in milliseconds from the start."""
        lines, credit = [], 0
        for step, kbps in enumerate(self.rates()):
            for ms in range(step * _STEP_MS, (step + 1) * _STEP_MS):
                credit += kbps
                while credit >= _BITS:
                    credit -= _BITS
                    lines.append(ms + 1)
        # The last line is the period.
        return "\n".join(map(str, [*lines, self.duration_s * 1000])) + "\n"


CELLS = {
    "load": Cell(seed=1, kbps=10_000, users=(2, 10)),
    "edge": Cell(seed=2, kbps=2_000, users=(1, 3), holes=(14, 33, 52, 71)),
}
"""The cells by the names of their traces."""
