"""The number of viewers that a machine is expected to carry."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SENDING_CORES = 0.02
"""The part of a core that sending 1 Mb/s to one viewer takes: pacing, SRTP, feedback and its record.

20 viewers of one ladder (`crates/live/examples/watchers.rs`), at 990 kb/s each, took 0.018 of a core each."""
USED = 0.8
"""The part of all cores up to which senders are expected to be on time."""


def cores() -> float:
    """Return the number of cores that this process may use: those of its affinity, and its control group's quota."""
    count: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, int(quota) / int(period))  # "max" is no number, and means no quota
    return count


@dataclass(frozen=True)
class Capacity:
    """An estimate by the processor time of one viewer."""

    cores: float
    encoding: float | None
    """The part of a core that a viewer's encoder takes; 0 if all viewers share one, `None` if it is unknown."""
    sound: float = 0.0
    """The part of a core that the encoder of a viewer's sound takes."""
    sending: float = SENDING_CORES

    @property
    def viewers(self) -> int | None:
        """The expected number; `None` if the encoder's cost is unknown."""
        if self.encoding is None:
            return None
        return math.floor(self.cores * USED / (self.encoding + self.sound + self.sending))

    def told(self, admitted: int) -> str:
        """Return the sentence for the operator; ``admitted`` is the number of places."""
        if self.viewers is None or self.encoding is None:
            return (
                "how many viewers this machine carries is unknown: its encoder can't be measured in advance"
            )
        pictures = (
            f"{self.encoding:.2g} for encoding" if self.encoding else "none for encoding, which is done"
        )
        sound = [f"{self.sound:.2g} for its sound"] if self.sound else []
        *parts, last = [pictures, *sound, f"{self.sending:.2g} for each Mb/s that is sent"]
        line = (
            f"this machine is expected to carry {self.viewers} viewer{'' if self.viewers == 1 else 's'} at 1 Mb/s: "
            f"one takes, of a core, {', '.join(parts)} and {last}; {USED:.0%} of {self.cores:g} cores may be used"
        )
        if self.viewers >= admitted:
            return line
        remedy = "serve a smaller --size or --fps" + (", or a file with --ladder" if self.encoding else "")
        return f"{line}. --viewers admits {admitted}, for which pictures will be left out: {remedy}"


def of_encoder(cost_s: float | None, fps: float, sound: float = 0.0) -> Capacity:
    """Return the capacity with an encoder per viewer, which takes ``cost_s`` of processor time per picture.

    ``sound`` is the part of a core that the encoder of its sound takes.
    """
    return Capacity(cores(), None if cost_s is None else cost_s * fps, sound)
