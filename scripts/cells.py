"""Synthetic traces of a phone's capacity in a cell, for the cellular cases of RFC 8869. They are not measurements.

A changing number of users divides the cell's capacity, and the phone's signal fades. All computations use integers,
so that the traces are identical on all machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from steadycast.media.splitmix import mixed

TRACES = Path(__file__).resolve().parent.parent / "scenarios" / "traces"
_STEP_MS = 100
_FADES = (25, 35, 50, 70, 100, 130, 160, 200)
"""Fading in per cent of the mean; it moves by one level at a time."""


@dataclass(frozen=True)
class Cell:
    """A cell and the phone in it."""

    seed: int
    kbps: int
    """The cell's capacity for a single user."""
    users: tuple[int, int]
    """The lowest and the highest number of users."""
    holes: tuple[int, ...] = ()
    """Seconds at which the signal nearly vanishes for half a second."""
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
            # Every third step goes towards the middle, so that extreme levels do not persist.
            middle = _FADES.index(100)
            way = (middle > fade) - (middle < fade) if step % 3 == 0 else towards % 3 - 1
            fade = min(max(fade + way, 0), len(_FADES) - 1)
            if load % 20 == 0:  # the number of users changes every 2 s on average
                users = min(max(users + (1 if (load >> 8) % 2 else -1), low), high)
            hole = any(at * 1000 <= step * _STEP_MS < at * 1000 + 500 for at in self.holes)
            rates.append(max(50, self.kbps * _FADES[fade] // 100 // users // (10 if hole else 1)))
        return rates

    def trace(self) -> str:
        """Return the rates as a table of milliseconds and kb/s."""
        step = _STEP_MS
        return "".join(["t_ms kbps\n", *(f"{n * step} {rate}\n" for n, rate in enumerate(self.rates()))])


CELLS = {
    "cell-load": Cell(seed=1, kbps=10_000, users=(2, 10)),
    "cell-holes": Cell(seed=2, kbps=2_000, users=(1, 3), holes=(14, 33, 52, 71)),
}
"""The cells by the names of their traces in scenarios/traces."""


def main() -> None:
    """Write the traces."""
    for name, cell in CELLS.items():
        (TRACES / f"{name}.txt").write_text(cell.trace(), encoding="utf-8")


if __name__ == "__main__":
    main()
