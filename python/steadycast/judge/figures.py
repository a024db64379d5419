"""The figures that `steadycast judge` computes. If a run's summary has the same figure, its name and unit are the same.

Shares are fractions from 0 to 1. judge.txt shows them in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steadycast.folder import Json, number


def _to(step: float, unit: str = "") -> Callable[[float], str]:
    digits = max(0, -math.floor(math.log10(step)))
    return lambda x: f"{round(x / step) * step:.{digits}f}{unit}"


def _percent(x: float) -> str:
    return _to(1)(100 * x) if abs(x) > 0.1 else _to(0.5)(100 * x).removesuffix(".0")


def _hundredths(step: float) -> Callable[[float], str]:
    said = _to(step)
    return lambda x: said(100 * x)


def _two(x: float, unit: str) -> str:
    step = max(0.1, 10 ** (math.floor(math.log10(max(abs(x), 1))) - 1))
    whole = round(x / step) * step
    return f"{whole:.{max(0, -math.floor(math.log10(step)))}f}{unit}"


def _rate(x: float) -> str:
    unit, scale = next((u, s) for u, s in (("M", 1e6), ("k", 1e3), ("", 1.0)) if abs(x) >= s or s == 1.0)
    return _two(x / scale, unit)


@dataclass(frozen=True)
class Column:
    """How judge.txt shows a figure."""

    head: str
    less_is_worse: bool
    say: Callable[[float], str]
    floor: float
    """With `--keep`, an earlier value is kept if the new value differs by at most this, in judge.txt's unit."""
    share: float = 0.0
    """Fraction of the earlier value that is added to `floor`."""

    @property
    def scale(self) -> float:
        """The factor that converts a figure to its value in judge.txt."""
        return 100.0 if self.head.endswith("%") else 1.0


@dataclass(frozen=True)
class Figure:
    """A numeric result of a run on a network. `pair.Expect` can set a bound for it."""

    key: str
    about: str
    column: Column | None = None

    def worst(self, values: Sequence[float | None]) -> float | None:
        """Return the worst value of several runs. Return `None` if a value is `None`, or if the figure has no column.

        `None` is the worst value, because it means that something never occurred, for example a recovery.
        """
        known = [value for value in values if value is not None]
        if self.column is None or len(known) < len(values) or not known:
            return None
        return min(known) if self.column.less_is_worse else max(known)


_ALL = (
    Figure(
        "in_time_frac",
        "share of the clip's pictures, or of the frames sent, that were shown at most the deadline later than the "
        "fastest undamaged one",
        Column("in-time%", True, _percent, 2),
    ),
    Figure("shown_frac", "share of the clip's pictures that were shown at any time"),
    Figure("freezes_per_min", "freezes per minute", Column("freezes/min", False, _to(1), 2)),
    Figure("frozen_frac", "share of the time in freezes", Column("frozen%", False, _percent, 2)),
    Figure("longest_freeze_ms", "duration of the longest freeze"),
    Figure(
        "damaged_frac", "share of the shown pictures that are damaged", Column("damaged%", False, _percent, 2)
    ),
    Figure("unread_frac", "share of the shown pictures whose mark can't be read"),
    Figure(
        "delay_p95_ms",
        "95th percentile of the latency of pictures; if it is unknown, of frames or of datagrams",
        Column("delay95", False, lambda x: _two(x, "ms"), 5, 0.1),
    ),
    Figure(
        "throughput_bps",
        "rate of the IP packets that arrived, in bit/s",
        Column("rate", True, _rate, 0, 0.05),
    ),
    Figure("back_bps", "rate of the IP packets from the receiver to the sender, in bit/s"),
    Figure("tcp_bps", "rate of the TCP in the same network, in bit/s"),
    Figure(
        "tcp_share_of_fair",
        "throughput of the TCP in the same network, divided by its fair share of the capacity",
        Column("tcp%", True, _hundredths(2), 6),
    ),
    Figure(
        "loss_frac",
        "share of the datagrams that did not arrive",
        Column("lost%", False, _hundredths(0.1), 0.3),
    ),
    Figure("silent_s", "the longest gap between arrivals", Column("quiet", False, _to(0.1, "s"), 0.2)),
    Figure("silent_frac", "share of the time in gaps of more than 200 ms"),
    Figure(
        "recover_s",
        "the longest time from a change of the network until rate and delay were good again",
        Column("recover", False, _to(0.1, "s"), 1),
    ),
    Figure(
        "burst",
        "burstiness: the peak of the bytes sent in 5 ms, 95th percentile over the seconds, divided by the mean",
    ),
    Figure("t0_s", "time of the first datagram, in seconds from the start of the emulation"),
    Figure("pictures", "number of pictures that were shown"),
    Figure("psnr_db", "mean PSNR of the pictures"),
    Figure("ssim", "mean SSIM of the pictures"),
    Figure("vmaf", "mean VMAF of the pictures"),
    Figure("frames", "number of frames that were sent"),
    Figure("frames_per_s", "frames per second, on the wire or decoded by the browser"),
    Figure("whole_frac", "share of the frames of which all packets arrived"),
    Figure("whole_frac_low", "lower bound of whole_frac, without repair by parity"),
    Figure("whole_frac_high", "upper bound of whole_frac, with all the repair that parity allows"),
    Figure("browser_freezes_per_min", "freezes per minute by the browser's own count"),
    Figure("dropped_frames", "number of frames that the browser dropped"),
    Figure("nack_count", "number of requests for packets (NACK) that the browser sent"),
    Figure("pli_count", "number of requests for key frames (PLI) that the browser sent"),
    Figure("jitter_buffer_ms", "mean time in the browser's jitter buffer"),
)
FIGURES: Mapping[str, Figure] = {figure.key: figure for figure in _ALL}
COLUMNS: Mapping[str, Column] = {each.key: each.column for each in _ALL if each.column is not None}
"""The columns of judge.txt in order, by the key of the figure."""

_FORMER: Mapping[str, tuple[str, float]] = {
    f"{name}_pct": (f"{name}_frac", 0.01)
    for name in ("in_time", "shown", "frozen", "damaged", "unread", "silent", "whole")
} | {
    "whole_pct_low": ("whole_frac_low", 0.01),
    "whole_pct_high": ("whole_frac_high", 0.01),
    "longest_freeze_s": ("longest_freeze_ms", 1e3),
    "lost_pct": ("loss_frac", 0.01),
    "rate_bps": ("throughput_bps", 1.0),
    "tcp_of_fair_pct": ("tcp_share_of_fair", 0.01),
}
"""Former names of figures, which are accepted until version 0.2.0.

Each has its present name, and the factor that converts its value.
"""


def renamed(key: str) -> tuple[str, float]:
    """Return the present name of a figure, and the factor that converts its value."""
    return _FORMER.get(key, (key, 1.0))


def figures_now(figures: Json) -> Json:
    """Return figures under their present names and in their present units."""
    found: Json = {}
    for key, value in figures.items():
        name, factor = renamed(key)
        known = number(value)
        found[name] = value if known is None or factor == 1.0 else known * factor
    return found
