"""The ladder of Multi-Evalvid-RA's table 2: mean rates without pixels, because the paper's clip is lost."""

from fractions import Fraction

import numpy as np

from steadycast.media.splitmix import mixed
from steadycast.media.table import FrameTable, Kind, coding_order

# Mean rates in kb/s as printed in the paper, for the quantizers 2…31. At 22, 25 and 28 the rate rises instead of
# falling.
_PRINTED = """
    2614.4 1420.5 929.1 651.1 452.9 362.0 294.0 234.8 219.0 197.4 179.0 166.0 139.7 135.4 129.9
    113.6 107.6 102.6 96.9 92.8 103.2 85.1 81.6 92.7 76.6 73.8 86.1 69.5 67.4 65.5
"""
MEAN_RATES_BPS = {q: Fraction(word) * 1000 for q, word in enumerate(_PRINTED.split(), start=2)}
"""Mean rate in bit/s at each quantizer. The keys are the quantizers."""


def table2(
    frames: int = 2000,
    fps: Fraction = Fraction(25),
    gop: int = 12,
    distance: int = 3,
    weights: tuple[int, int, int] = (6, 2, 1),
    variation_permille: int = 100,
    seed: int = 1,
) -> FrameTable:
    """Return frame sizes whose mean rate at each quantizer is the one that the paper gives.

    The sum of the sizes is rounded down to a byte. ``distance`` is the number of frames from one I or P frame to the
    next (M). ``weights`` are the relative sizes of I, P and B frames. The paper does not give them. Sizes vary
    uniformly by up to ± ``variation_permille``, by the same factors at all quantizers.
    """
    if gop < 1 or distance < 1 or frames < 1 or min(weights) < 1 or not 0 <= variation_permille < 1000:
        raise ValueError("lengths and weights start at 1, the variation is below 1000 permille")
    pattern = "".join("I" if i == 0 else "P" if i % distance == 0 else "B" for i in range(gop))
    kinds = np.empty(frames, dtype=np.uint8)
    display = np.empty(frames, dtype=np.uint32)
    for first in range(0, frames, gop):
        part_kinds, part_display = coding_order(pattern[: min(gop, frames - first)])
        kinds[first : first + gop] = part_kinds
        display[first : first + gop] = first + part_display
    words = mixed(np.arange(1, frames + 1, dtype=np.uint64) + np.uint64((seed % (1 << 31)) << 32))
    spread = np.uint64(2 * variation_permille + 1)
    factors = np.uint64(1000 - variation_permille) + (words >> np.uint64(16)) % spread
    shares = np.array(weights, dtype=np.uint64)[kinds] * factors
    whole = int(shares.sum())
    sizes = np.empty((len(MEAN_RATES_BPS), frames), dtype=np.uint32)
    ends = np.cumsum(shares)
    for row, rate in enumerate(MEAN_RATES_BPS.values()):
        total = int(rate * frames / (8 * Fraction(fps)))
        # Use the differences of cumulative sums, so that rounding errors do not accumulate. Python's integers are used
        # because the products need more than 64 bits.
        marks = [total * int(end) // whole for end in ends]
        sizes[row] = np.diff([0, *marks])
    assert kinds[0] == Kind.I
    return FrameTable(
        Fraction(fps), gop, kinds, list(MEAN_RATES_BPS), sizes, display, "Table 2 of paper 000 (no pixels)"
    )
