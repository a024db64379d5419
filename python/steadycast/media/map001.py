"""The source of the MPEG-TFRCP paper, as frame sizes without pixels.

The paper's figure that shows the rate of each quantizer is lost. So the frame sizes follow from the text, which gives
5.25 Mb/s at quantizer 12.
"""

from fractions import Fraction

import numpy as np

from steadycast.media.table import FrameTable

ANCHOR_BPS, ANCHOR_Q = 5.25e6, 12
_PAYLOAD = 948 / 1000
"""Fraction of payload in a packet of 1000 bytes. The paper's rate includes all headers."""


def map001(
    fps: Fraction = Fraction(2997, 100),
    gop: int = 30,
    exponent: float = 0.9,
    intra: float = 3.0,
    groups: int = 10,
) -> FrameTable:
    """Return frame sizes for the quantizers 2, 4, …, 62. All groups are equal: an I frame, then P frames.

    The rate is proportional to q to the power −``exponent``. ``intra`` is the size of an I frame divided by the size of
    a P frame. The paper gives neither of the two values.
    """
    if gop < 1 or groups < 1 or intra <= 0 or exponent <= 0:
        raise ValueError("lengths start at 1, the rest is above 0")
    qs = list(range(2, 63, 2))
    frames = gop * groups
    kinds = np.array([min(i % gop, 1) for i in range(frames)], dtype=np.uint8)
    shares = np.where(kinds == 0, intra, 1.0)
    mean = shares.sum() / frames
    sizes = np.empty((len(qs), frames), dtype=np.uint32)
    for row, q in enumerate(qs):
        rate = ANCHOR_BPS * (ANCHOR_Q / q) ** exponent * _PAYLOAD
        sizes[row] = np.maximum(1, np.round(rate / (8 * float(fps)) * shares / mean))
    display = np.arange(frames, dtype=np.uint32)
    return FrameTable(fps, gop, kinds, qs, sizes, display, "rates of paper 001 (no pixels)")
