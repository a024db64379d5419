"""Shapes with soft edges and shading, drawn into pictures of any size.

Lengths are relative to the height of the picture. x is 0 in the middle, and y is 0 at the top. Only sums, products and
square roots are used, because IEEE 754 rounds these in the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from steadycast.media.splitmix import mixed
from steadycast.media.table import U8

F32 = npt.NDArray[np.float32]
Place = tuple[float, float]
Colour = tuple[float, float, float]
"""Luma and the two chroma differences, each from 0 to 255 (BT.601, full range)."""
_LIGHT = (-0.45, -0.6, 0.66)
"""Direction towards the light, which is to the left of, above and in front of the picture."""


def rgb(text: str) -> Colour:
    """Return the colour for six hexadecimal digits."""
    r, g, b = (int(text[i : i + 2], 16) for i in (0, 2, 4))
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return y, 128 + (b - y) * 0.564, 128 + (r - y) * 0.713


def several(text: str) -> list[Colour]:
    """Return the colours that a text contains as words of six hexadecimal digits."""
    return [rgb(word) for word in text.split()]


def sine(turns: float) -> float:
    """Return the sine of an angle in full turns, with an error of at most 0.001."""
    x = turns % 1 * 2 - 1
    y = 4 * x * (1 - abs(x))
    return -(0.225 * (abs(y) * y - y) + y)


def ramp(value: float) -> float:
    """Return 0 for negative values and 1 for values above 1. Values between follow a smooth step."""
    value = min(1.0, max(0.0, value))
    return value * value * (3 - 2 * value)


def noise(height: int, width: int, cells: tuple[float, float], salt: int) -> F32:
    """Return smooth noise from -1 to 1. ``cells`` is the number of noise cells per column and per row."""
    rows, columns = int(cells[0]) + 2, int(cells[1]) + 2
    words = mixed(np.arange(rows * columns, dtype=np.uint64) + np.uint64(salt << 32))
    corners = ((words >> np.uint64(48)).astype(np.float32) / np.float32(32768) - 1).reshape(rows, columns)
    down, across = (
        np.arange(n, dtype=np.float32) * np.float32(c / n) for n, c in ((height, cells[0]), (width, cells[1]))
    )
    i, j = down.astype(np.intp), across.astype(np.intp)
    u, v = (part * part * (3 - 2 * part) for part in (down - i, across - j))
    lines = corners[i] + (corners[i + 1] - corners[i]) * u[:, None]
    return np.asarray(lines[:, j] + (lines[:, j + 1] - lines[:, j]) * v, dtype=np.float32)


@dataclass(eq=False)
class Canvas:
    """The samples of a picture before they are rounded: luma and chroma differences."""

    samples: F32
    """Three planes, each with rows and columns."""
    unit: float
    """Number of rows per unit of length."""
    left: float
    """The x coordinate of the first column."""

    @classmethod
    def of(cls, width: int, height: int, unit: int | None = None) -> Self:
        """Return a grey canvas with x = 0 in its middle."""
        unit = unit or height
        return cls(np.full((3, height, width), 128, dtype=np.float32), unit, -width / (2 * unit))

    def nearer(self, zoom: float) -> Canvas:
        """Return the picture, enlarged by the factor ``zoom``. The middle of its upper edge stays in place."""
        _, rows, columns = self.samples.shape
        down = np.arange(rows, dtype=np.float32) / np.float32(zoom)
        middle = np.float32(columns / 2)
        across = (np.arange(columns, dtype=np.float32) - middle) / np.float32(zoom) + middle
        i, j = down.astype(np.intp), across.astype(np.intp)
        lines = self.samples.take(i, 1)
        lines += (self.samples.take(np.minimum(i + 1, rows - 1), 1) - lines) * (down - i)[:, None]
        seen = lines.take(j, 2)
        seen += (lines.take(np.minimum(j + 1, columns - 1), 2) - seen) * (across - j)
        return Canvas(seen, self.unit * zoom, self.left / zoom)

    def above(self, y: float) -> Canvas:
        """Return the part of the picture above ``y``. The part shares its samples with this canvas."""
        return Canvas(self.samples[:, : int(y * self.unit)], self.unit, self.left)

    def grid(self, x0: float, y0: float, x1: float, y1: float) -> tuple[F32, F32, F32]:
        """Return the samples between these coordinates. Also return their x and y coordinates."""
        _, rows, columns = self.samples.shape
        pad = 1.5 / self.unit
        a, b = (max(0, min(columns, int((x - self.left) * self.unit))) for x in (x0 - pad, x1 + 2 * pad))
        c, d = (max(0, min(rows, int(y * self.unit))) for y in (y0 - pad, y1 + 2 * pad))
        x, y = (
            (np.arange(*ends, dtype=np.float32) + np.float32(0.5)) / np.float32(self.unit)
            for ends in ((a, b), (c, d))
        )
        return self.samples[:, c:d, a:b], (x + np.float32(self.left))[None, :], y[:, None]

    def blend(
        self, part: F32, outside: F32, colour: Colour, light: F32 | float = 1.0, alpha: float = 1.0
    ) -> None:
        """Paint where ``outside`` is negative. ``light`` scales the luma.

        ``outside`` is the distance of each sample from the edge of the shape, negative inside it.
        """
        cover = np.clip(np.float32(0.5) - outside * np.float32(self.unit), 0, 1) * np.float32(alpha)
        luma, *chroma = map(np.float32, colour)
        for plane, value in zip(part, (light * luma, *chroma), strict=True):
            plane += (value - plane) * cover

    def box(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        colour: Colour,
        round: float = 0.0,
        fade: float = 0.0,
        alpha: float = 1.0,
    ) -> None:
        """Draw a rectangle that has round corners. ``fade`` darkens its lower part."""
        part, x, y = self.grid(x0, y0, x1, y1)
        dx = np.abs(x - (x0 + x1) / 2) - ((x1 - x0) / 2 - round)
        dy = np.abs(y - (y0 + y1) / 2) - ((y1 - y0) / 2 - round)
        outside = np.sqrt(np.maximum(dx, 0) ** 2 + np.maximum(dy, 0) ** 2)
        far = outside + np.minimum(np.maximum(dx, dy), 0) - round
        self.blend(part, far, colour, 1 - fade * ((y - y0) / (y1 - y0)), alpha)

    def ball(
        self, x: float, y: float, rx: float, ry: float, colour: Colour, light: float = 0.5, alpha: float = 1.0
    ) -> None:
        """Draw an ellipse that is shaded like a ball.

        ``light`` is the fraction of its luma that depends on the direction of the light.
        """
        part, gx, gy = self.grid(x - rx, y - ry, x + rx, y + ry)
        nx, ny = (gx - x) / np.float32(rx), (gy - y) / np.float32(ry)
        square = nx * nx + ny * ny
        shade = _lit(nx, ny, square, light) if light else 1.0
        self.blend(part, (np.sqrt(square) - 1) * min(rx, ry), colour, shade, alpha)

    def limb(self, a: Place, b: Place, ra: float, rb: float, colour: Colour, light: float = 0.5) -> None:
        """Draw a round bar between the points ``a`` and ``b``. ``ra`` and ``rb`` are its radii at these points."""
        (ax, ay), (bx, by), r = a, b, max(ra, rb)
        part, x, y = self.grid(min(ax, bx) - r, min(ay, by) - r, max(ax, bx) + r, max(ay, by) + r)
        dx, dy = bx - ax, by - ay
        # Add 1e-9 to prevent a division by zero if both points are equal.
        along = (((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy + 1e-9)).astype(np.float32)
        np.clip(along, 0, 1, out=along)
        radius = ra + (rb - ra) * along
        nx, ny = (x - ax - along * dx) / radius, (y - ay - along * dy) / radius
        square = nx * nx + ny * ny
        shade = _lit(nx, ny, square, light) if light else 1.0
        self.blend(part, (np.sqrt(square) - 1) * radius, colour, shade)

    def line(self, points: Sequence[Place], radius: float, colour: Colour) -> None:
        """Draw a line through points."""
        for a, b in pairwise(points):
            self.limb(a, b, radius, radius, colour, 0)

    def text(
        self, x: float, y: float, size: float, words: str, colour: Colour, weight: float = 0.062
    ) -> None:
        """Draw words. Small letters appear as small capitals. ``x`` and ``y`` are the upper left corner."""
        for letter in words:
            high = size * (0.74 if letter.islower() else 1.0)
            narrow = letter in "Ii1.,: "
            x -= 0.13 * high * narrow
            if letter != " ":
                cover = _letter(letter.upper(), high * self.unit, size * weight * self.unit)
                row = round((y + size - high) * self.unit) - _EDGE
                column = round((x - self.left) * self.unit) - _EDGE
                rows = slice(max(0, row), max(0, row + len(cover)))
                part = self.samples[:, rows, column : column + cover.shape[1]]
                seen = cover[max(0, -row) :][: part.shape[1], : part.shape[2]]
                for plane, value in zip(part, colour, strict=True):
                    plane += (np.float32(value) - plane) * seen
            x += (0.62 if narrow else 0.76) * high

    def paste(self, sprite: Sprite, x: float, y: float) -> None:
        """Draw a sprite whose upper left corner is at this point. The position is precise to a fraction of a sample."""
        across, down = round((x - self.left) * self.unit * 64) / 64, y * self.unit
        column, row = int(across // 1), int(down // 1)
        _, rows, columns = self.samples.shape
        _, high, wide = sprite.samples.shape
        a, b, c, d = max(0, column), min(columns, column + wide), max(0, row), min(rows, row + high)
        if a >= b or c >= d:
            return
        s = sprite.moved(across - column)[:, c - row : d - row, a - column : b - column]
        part = self.samples[:, c:d, a:b]
        part *= 1 - s[3]
        part += s[:3]

    def rounded(self, grain: F32) -> U8:
        """Return the planes of the picture in 4:2:0 and in video range (16…235). ``grain`` is added to the luma."""
        _, height, width = self.samples.shape
        out = np.empty(height * width * 3 // 2, dtype=np.uint8)
        luma = self.samples[0] * np.float32(219 / 255) + (grain + np.float32(16.5))
        out[: height * width] = np.clip(luma, 16, 235, out=luma).reshape(-1)
        four = self.samples[1:, ::2] + self.samples[1:, 1::2]
        chroma = four[..., ::2] + four[..., 1::2]
        chroma = np.clip(
            (chroma * np.float32(0.25) - 128) * np.float32(224 / 255) + np.float32(128.5), 16, 240
        )
        out[height * width :] = chroma.reshape(-1)
        return out


def _lit(nx: F32, ny: F32, square: F32, light: float) -> F32:
    """Return the light on a curved surface whose normal has these components."""
    nz = np.sqrt(np.maximum(1 - square, 0))
    return np.asarray(
        1 - light + light * (0.35 + nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2]), dtype=np.float32
    )


@dataclass(frozen=True, eq=False)
class Sprite:
    """A shape that is pasted into many pictures.

    The last plane is the coverage (alpha). The other planes are the samples, already multiplied by the coverage.
    """

    samples: F32

    @classmethod
    def of(cls, width: float, height: float, unit: int, draw: Callable[[Canvas], None]) -> Self:
        """Draw on a black and on a white background. The sprite is transparent where the results differ."""
        grounds = []
        for luma in (0, 255):
            canvas = Canvas.of(int(width * unit) + 1, int(height * unit) + 1, unit)
            canvas.samples[:] = np.array((luma, 0, 0), np.float32)[:, None, None]
            draw(canvas)
            grounds.append(canvas.samples)
        black, white = grounds
        cover = 1 - (white[:1] - black[:1]) / np.float32(255)
        return cls(np.concatenate([black, cover]))

    def moved(self, part: float) -> F32:
        """Return the sprite's samples, shifted to the right by a fraction of a column."""
        if not part:
            return self.samples
        left = np.concatenate([np.zeros_like(self.samples[..., :1]), self.samples[..., :-1]], axis=2)
        return np.asarray(self.samples + (left - self.samples) * np.float32(part), dtype=np.float32)


_STROKES = (
    "082048/1535 08003041433404/3445473808 4130100107183847 00083847413000 40000848/0434 400008/0434 "
    "41301001071838474424 0008/4048/0444 2028 4047381807 0008/400448 000848 0800244048 08004840 "
    "103041473818070110 08003041433404 103041473818070110/2648 08003041433404/2448 "
    "413010010314344547381807 0040/2028 000718384740 002840 0018243840 0048/4008 002440/2428 "
    "00400848 103041473818070110 022028 01103041430848 01103041433414/344547381807 300646/3038 "
    "4000033344473808 413010010718384745341405 004018 103041433445473818070514030110/1434 "
    "443414030110304147381807 1818 2719 2222/2626 0444"
)
"""The strokes of each letter in `_LETTERS`. Slashes separate the strokes.

Each pair of digits is a point: its column, then its row. The grid has columns 0 to 4 and rows 0 to 9. Row 8 is the base
line.
"""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:-"
_EDGE = 2
"""Number of empty rows and columns on each side of a letter."""


@cache
def _letter(letter: str, high: float, weight: float) -> F32:
    """Return how much of each sample a letter covers. The letter is ``high`` rows high."""
    shape = 3, int(high * 1.2) + 2 * _EDGE, int(high * 0.55) + 2 * _EDGE + 1
    canvas = Canvas(np.zeros(shape, np.float32), 1, 0)
    for stroke in _STROKES.split()[_LETTERS.index(letter)].split("/"):
        cells = zip(stroke[::2], stroke[1::2], strict=True)
        places = [(_EDGE + int(i) * 0.13 * high, _EDGE + int(j) * 0.125 * high) for i, j in cells]
        canvas.line(places, weight, (1, 0, 0))
    return np.asarray(canvas.samples[0])
