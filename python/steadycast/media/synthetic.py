"""A clip that needs no file: the same samples on every machine, and always labelled synthetic."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np

from steadycast.media.clip import CIF, Pictures, parse_fps, parse_size, resampled, scaled
from steadycast.media.splitmix import mixed
from steadycast.media.table import U8

FPS = Fraction(25)
_VERSION = 1
_PLATE = 1024
"""Side of the square plate that the camera looks at; a power of two, so that coordinates wrap by a mask."""


@dataclass(frozen=True)
class Synthetic:
    """Four segments of equal length: still with a moving patch, slow pan and zoom, fast ones, a deep zoom.

    All arithmetic is in whole numbers; NumPy's generators are not used, since their streams may change.
    """

    frames: int = 400
    seed: int = 1

    @property
    def label(self) -> str:
        """Says that it is synthetic."""
        return f"synthetic clip ({self.frames} frames)"

    def identity(self) -> str:
        """Hash of the parameters."""
        return hashlib.sha256(f"synthetic {_VERSION} {self.frames} {self.seed}".encode()).hexdigest()

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Pictures made in CIF at 25 frames per second, then scaled and resampled where asked."""
        width, height = parse_size(size, CIF)
        rate = parse_fps(fps, FPS)
        frames: Iterator[U8] = self._frames()
        if (width, height) != CIF:
            frames = (_scaled(samples, width, height) for samples in frames)
        if rate != FPS:
            frames = resampled(((Fraction(i) / FPS, samples) for i, samples in enumerate(frames)), rate)
        return Pictures(width, height, rate, frames)

    def _frames(self) -> Iterator[U8]:
        plate, tint = _plate(self.seed)
        grain = _grain(self.seed)
        for index in range(self.frames):
            yield _picture(plate, tint, grain, index, self.frames)


def _lattice(side: int, salt: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    words = mixed(np.arange(side * side, dtype=np.uint64) + np.uint64(salt) * np.uint64(1 << 32))
    return (words >> np.uint64(56)).astype(np.int32).reshape(side, side)


def _smooth(side: int, salt: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Value noise over the plate: random corners of a lattice, linear between them, 0…255."""
    corners = _lattice(side, salt)
    cell = _PLATE // side
    along = np.arange(_PLATE)
    near, part = along // cell, (along % cell).astype(np.int32)
    far = (near + 1) % side
    rows = corners[near] * (cell - part)[:, None] + corners[far] * part[:, None]
    both = rows[:, near] * (cell - part) + rows[:, far] * part
    return np.asarray(both // (cell * cell), dtype=np.int32)


def _plate(seed: int) -> tuple[U8, U8]:
    """Luma of the plate, and its two chroma planes one above the other."""
    octaves = [(4, 6), (16, 4), (64, 3), (256, 2)]
    total = sum(weight for _, weight in octaves)
    luma = sum(_smooth(side, 16 * seed + i) * weight for i, (side, weight) in enumerate(octaves))
    y = np.arange(_PLATE)[:, None]
    x = np.arange(_PLATE)[None, :]
    # Hard edges, as buildings and letters have: without them coarse quantizers would look too good.
    tiles = ((x // 64 + y // 48) % 5 == 0) * 40 - ((x // 24) % 7 == (y // 40) % 7) * 35
    bright = np.clip(luma // total + tiles, 16, 235).astype(np.uint8)
    chroma = np.stack([96 + _smooth(8, 16 * seed + 8) // 4, 96 + _smooth(8, 16 * seed + 9) // 4])
    return bright, chroma.astype(np.uint8)


def _grain(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """Make a sheet of camera noise, larger than a picture, read at another place for each picture."""
    words = mixed(np.arange(512 * 512, dtype=np.uint64) + np.uint64(seed + 77) * np.uint64(1 << 40))
    four = sum(((words >> np.uint64(shift)) & np.uint64(3)).astype(np.int8) for shift in (0, 8, 16, 24))
    return np.asarray(four - 6, dtype=np.int8).reshape(512, 512)  # −6…6, mostly within ±2


def _picture(
    plate: U8, tint: U8, grain: np.ndarray[tuple[int, ...], np.dtype[np.int8]], index: int, total: int
) -> U8:
    width, height = CIF
    quarter = max(1, total // 4)
    segment = min(3, index // quarter)
    step = index - segment * quarter
    # Place of the window's centre on the plate and the samples of the plate per sample of the picture, in
    # 1/1024.
    if segment == 0:
        scale, cx, cy = 1024, 400, 300
    elif segment == 1:
        scale, cx, cy = 1024 + step, 400 + step // 2, 300 + step // 3
    elif segment == 2:
        scale, cx, cy = 1200 - 2 * step, 300 + 6 * step, 700 - 3 * step
    else:
        scale, cx, cy = max(96, 2600 - 28 * step), 640 + 2 * step, 420 + step
    across = ((np.arange(width) - width // 2) * scale // 1024 + cx) & (_PLATE - 1)
    down = ((np.arange(height) - height // 2) * scale // 1024 + cy) & (_PLATE - 1)
    # Row and column apart: far faster than one two-dimensional gather.
    luma = plate[down].take(across, axis=1)
    if segment == 0:
        left, top = 60 + 2 * step % 220, 120 + (step * 3 // 2) % 90
        patch = plate[700 : 700 + 40, 500 : 500 + 48]
        luma[top : top + 40, left : left + 48] = 255 - patch
    word = int(mixed(np.array([index + 1], dtype=np.uint64))[0])
    right, low = word % (512 - width), (word >> 16) % (512 - height)
    noise = grain[low : low + height, right : right + width] // 2
    out = np.empty(width * height * 3 // 2, dtype=np.uint8)
    np.clip(luma.astype(np.int16) + noise, 0, 255, out=luma, casting="unsafe")
    out[: width * height] = luma.reshape(-1)
    out[width * height :] = tint[:, down[::2]].take(across[::2], axis=2).reshape(-1)
    return out


def _scaled(samples: U8, width: int, height: int) -> U8:
    frame = av.VideoFrame.from_ndarray(samples.reshape(CIF[1] * 3 // 2, CIF[0]), format="yuv420p")
    return scaled(frame, width, height)
