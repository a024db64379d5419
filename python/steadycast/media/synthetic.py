"""A film that the program draws. Its samples are the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from steadycast.media.clip import CIF, Pictures, parse_fps, parse_size, resampled
from steadycast.media.draw import F32, Canvas, rgb, sine
from steadycast.media.scenes import Desk, Page, Street
from steadycast.media.splitmix import mixed
from steadycast.media.table import U8

FPS = Fraction(25)
_VERSION = 2
_LARGE = 704 * 576
"""Number of samples of a 4CIF picture. The film for larger pictures is half as long, because they are slow to draw."""
_WHITE, _DARK, _RED = rgb("ffffff"), rgb("101418"), rgb("ff5040")


@dataclass(frozen=True)
class Synthetic:
    """A synthetic clip that shows a person at a desk, a street, a page that scrolls, and a clock."""

    frames: int = 400
    seed: int = 1

    @classmethod
    def of(cls, size: str) -> Self:
        """Return the film for pictures of this size. It is half as long if they have more samples than `_LARGE`."""
        width, height = parse_size(size, CIF)
        return cls() if width * height <= _LARGE else cls(200)

    @property
    def label(self) -> str:
        """The name of the film. It says that the film is synthetic."""
        return f"synthetic film ({self.frames} frames)"

    def identity(self) -> str:
        """Return a hash of the parameters."""
        return hashlib.sha256(f"synthetic {_VERSION} {self.frames} {self.seed}".encode()).hexdigest()

    def pictures(self, size: str, fps: str | int | float | Fraction) -> Pictures:
        """Draw the pictures in this size at 25 frames per second. If another rate is requested, they are resampled."""
        width, height = parse_size(size, CIF)
        rate = parse_fps(fps, FPS)
        frames = self._frames(width, height)
        if rate != FPS:
            frames = resampled(((Fraction(i) / FPS, samples) for i, samples in enumerate(frames)), rate)
        return Pictures(width, height, rate, frames)

    def _frames(self, width: int, height: int) -> Iterator[U8]:
        grain = _grain(self.seed, width + 64, height + 64)
        for make, first, last in ((Desk, 0, 3), (Street, 3, 6), (Page, 6, 8)):
            begin, end = self.frames * first // 8, self.frames * last // 8
            scene = make(width, height, end - begin, self.seed)
            for step in range(end - begin):
                canvas = scene.picture(step)
                _clock(Canvas(canvas.samples, height, -width / (2 * height)), begin + step)
                word = int(mixed(np.array([begin + step + 1], dtype=np.uint64))[0])
                across, down = word % 64, (word >> 16) % 64
                yield canvas.rounded(grain[down : down + height, across : across + width])


def _grain(seed: int, width: int, height: int) -> F32:
    """Return camera noise for an area that is larger than a picture. Each picture uses another part of it."""
    words = mixed(np.arange(width * height, dtype=np.uint64) + np.uint64(seed + 77) * np.uint64(1 << 40))
    four = sum(((words >> np.uint64(shift)) & np.uint64(3)).astype(np.float32) for shift in (0, 8, 16, 24))
    return np.asarray((four - np.float32(6)) * np.float32(0.5), dtype=np.float32).reshape(height, width)


def _clock(canvas: Canvas, frame: int) -> None:
    """Draw the seconds as digits, and a hand that turns once per second."""
    right = -canvas.left - 0.035
    canvas.box(right - 0.38, 0.035, right, 0.125, _DARK, round=0.02, alpha=0.8)
    x, y, turn = right - 0.045, 0.08, frame / float(FPS)
    canvas.ball(x, y, 0.034, 0.034, _WHITE, light=0)
    canvas.limb((x, y), (x + 0.026 * sine(turn), y - 0.026 * sine(turn + 0.25)), 0.006, 0.004, _RED, 0)
    minutes, seconds = divmod(frame * 4, 6000)
    words = f"{minutes:02}:{seconds // 100:02}.{seconds % 100:02}"
    canvas.text(right - 0.365, 0.055, 0.05, words, _WHITE, weight=0.1)
