"""Estimates how many viewers a machine can serve."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SENDING_CORES = 0.02
"""Number of processor cores that are needed to send 1 Mb/s to one viewer.

This includes pacing, SRTP, feedback and recording. In a measurement with 20 viewers at 990 kb/s, each took 0.018 cores
(`crates/live/examples/watchers.rs`).
"""
USED = 0.8
"""Highest load of all cores at which packets are still sent on time, as a fraction."""


def cores() -> float:
    """Return the number of cores that this process may use.

    Its CPU affinity and the quota of its control group limit the number.
    """
    count: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, int(quota) / int(period))  # "max" raises ValueError: there is no quota
    return count


ENCODING = 0.5
"""Fraction of all cores that the encoders of a live source may use. The other cores are for sending."""
MOST_RUNGS = 8
"""Maximum number of rungs. With more rungs, the difference between neighbouring rungs would not be visible."""


def rungs_for(cost_s: float | None, fps: float) -> int:
    """Return how many rungs this machine can encode. ``cost_s`` is the processor time for encoding one picture."""
    if cost_s is None:
        return 1
    return max(1, min(MOST_RUNGS, math.floor(cores() * ENCODING / max(cost_s * fps, 1e-9))))


@dataclass(frozen=True)
class Capacity:
    """An estimate of how many viewers a machine can serve."""

    cores: float
    encoding: float | None
    """Cores that all encoders use together. It is 0 if the source is already encoded, and `None` if it is not known."""
    rungs: int = 0
    """Number of rungs that are encoded. It is 0 if the source is already encoded."""
    sound: float = 0.0
    """Fraction of a core for encoding the sound.

    If `rungs` is 0, each viewer needs it. Otherwise it is needed once.
    """
    sending: float = SENDING_CORES

    @property
    def viewers(self) -> int | None:
        """Expected number of viewers. `None` if it is not known what the encoders need."""
        if self.encoding is None:
            return None
        if self.rungs:
            return max(0, math.floor((self.cores * USED - self.encoding - self.sound) / self.sending))
        return math.floor(self.cores * USED / (self.sound + self.sending))

    def told(self, admitted: int) -> str:
        """Return a sentence for the operator. ``admitted`` is the largest number of viewers (`--viewers`)."""
        if self.viewers is None or self.encoding is None:
            return "how many viewers this machine carries is unknown: the source has too few pictures for a measurement"
        each = f"{self.sending:.2g} for each Mb/s that is sent"
        sound = f"{self.sound:.2g} for its sound"
        if self.rungs:
            count = f"{self.rungs} rung{'' if self.rungs == 1 else 's'}"
            shared = f" and {sound}" if self.sound else ""
            parts = f"all share {self.encoding:.2g} cores for encoding {count}{shared}, and one takes {each}"
        else:
            own = f"{sound} and " if self.sound else "and "
            parts = f"one takes, of a core, none for encoding, which is done, {own}{each}"
        line = (
            f"this machine is expected to carry {self.viewers} viewer{'' if self.viewers == 1 else 's'} at 1 Mb/s: "
            f"{parts}; {USED:.0%} of {self.cores:g} cores may be used"
        )
        if self.viewers >= admitted:
            return line
        remedy = "serve a smaller --size or --fps" + (", or a file with --ladder" if self.rungs else "")
        return f"{line}. --viewers admits {admitted}, for which pictures will be late or left out: {remedy}"
