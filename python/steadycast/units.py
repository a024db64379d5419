"""Reads quantities as scenarios and options write them: ``4Mbps``, ``10ms``, ``16KiB``."""

from __future__ import annotations

import re

RATE = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
"""Units of rates, with their values in bit/s. FFmpeg and iperf3 write only the prefix."""
SPAN = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Units of time, with their values in seconds."""
SIZE = {"B": 1.0, "kB": 1e3, "MB": 1e6, "KiB": 2.0**10, "MiB": 2.0**20}
"""Units of size, with their values in bytes."""
_MOST_DIGITS = 20
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def whole(text: str, least: int, most: int) -> int | None:
    """Return a whole number in decimal digits, or `None` if it is outside of the bounds or something else."""
    # Python refuses to convert thousands of digits, so check the length first.
    is_number = len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal()
    return int(text) if is_number and least <= int(text) <= most else None


def read(value: object, units: dict[str, float]) -> float | None:
    """Return a quantity in the base unit, or `None` if ``value`` has none of these units."""
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) * units[found[2]] if found and found[2] in units else None
