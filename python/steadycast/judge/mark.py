"""Writes a picture's number into the picture, and reads it back after scaling and lossy coding.

Two rows of 16 cells cover the top sixth of the picture. The first row shows the bits of the number's Gray code, with
the most significant bit first. The second row shows their complement. From picture to picture, only one column changes,
which costs an encoder little. A bit is read by comparing a cell with the cell below it.
"""

from __future__ import annotations

import numpy as np

from steadycast.media.table import U8

CELLS = 16
PART = 6
"""The ratio of the height of a picture to the height of its mark, which has two rows."""
WRAPS = 1 << CELLS
"""The numbers in marks repeat after this number of pictures."""
_DARK, _LIGHT, _GREY = 32, 224, 128
_LEAST = 64
"""Minimum difference in brightness between a cell and the cell below it."""
_KEY = 0x5A5A
"""A constant that is combined with the code by XOR, so that the mark of picture 0 has both dark and light cells."""


def strip(height: int) -> int:
    """Return how many rows of a picture the mark covers. The number is even."""
    return height // PART // 2 * 2


def paint(samples: U8, width: int, height: int, number: int) -> None:
    """Paint a number into a picture in the format 4:2:0, whose planes follow each other in ``samples``."""
    flat = samples.reshape(-1)
    luma = flat[: width * height].reshape(height, width)
    number %= WRAPS
    code = number ^ number >> 1 ^ _KEY
    bits = np.array([code >> (CELLS - 1 - n) & 1 for n in range(CELLS)], dtype=np.uint8)
    columns = np.arange(width) * CELLS // width
    rows = strip(height)
    line = np.where(bits, _LIGHT, _DARK).astype(np.uint8)[columns]
    other = np.where(bits, _DARK, _LIGHT).astype(np.uint8)[columns]
    luma[: rows // 2] = line
    luma[rows // 2 : rows] = other
    for plane in np.split(flat[width * height :], 2):
        plane.reshape(height // 2, width // 2)[: rows // 2] = _GREY


def read(luma: U8) -> int | None:
    """Read the number (modulo `WRAPS`) from the luma of a picture. Return `None` if there is no mark.

    ``luma`` has rows and columns.
    """
    height, width = luma.shape
    means = [_middles(luma, width, row * height / (2 * PART), height / (2 * PART)) for row in (0, 1)]
    difference = means[0] - means[1]
    if np.abs(difference).min() < _LEAST:
        return None
    code = int("".join("1" if each > 0 else "0" for each in difference), 2) ^ _KEY
    number = 0
    while code:
        number, code = number ^ code, code >> 1
    return number


def _middles(luma: U8, width: int, top: float, high: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the brightness of each cell in one row of the mark.

    It is the mean over the middle half of the cell's width and height.
    """
    first = round(top + high / 4)
    line = luma[first : max(first + 1, round(top + high * 3 / 4))].mean(axis=0)
    sums = np.concatenate([[0.0], np.cumsum(line)])
    left = np.rint((np.arange(CELLS) + 0.25) * width / CELLS).astype(int)
    right = np.maximum(left + 1, np.rint((np.arange(CELLS) + 0.75) * width / CELLS).astype(int))
    return np.asarray((sums[right] - sums[left]) / (right - left), dtype=np.float64)
