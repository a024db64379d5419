"""Pseudo-random integers that are the same on every machine and with every version of NumPy."""

import numpy as np

from steadycast.media.table import U64


def mixed(counters: U64) -> U64:
    """Return one 64-bit word for each counter.

    This is the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    with np.errstate(over="ignore"):
        z = counters * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)
