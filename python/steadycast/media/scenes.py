"""The three scenes of the synthetic film."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from steadycast.media.draw import F32, Canvas, Colour, Place, Sprite, noise, ramp, rgb, several, sine
from steadycast.media.splitmix import mixed

_SKIN, _HAIR, _SHIRT, _LIPS = rgb("d9a07c"), rgb("3a2418"), rgb("2a6f86"), rgb("a8504c")
_WOOD, _WHITE, _BLACK = rgb("9c6b43"), rgb("f4f2ec"), rgb("1a1c20")
_LEAVES = (rgb("3f7d35"), rgb("56983f"), rgb("2f6430"), rgb("76ac4a"))
_BOOKS = several("b5483a d8a13c 3d6a9e 5c8a5a 7b4a78 e0d6c0 2f3e55 c9733f")


def _flat(text: str) -> F32:
    """Return a colour as an array that can be assigned to all rows and columns of a picture."""
    return np.array(rgb(text), np.float32)[:, None, None]


def _chance(salt: int) -> Iterator[float]:
    """Yield a fixed sequence of pseudo-random numbers from 0 to 1."""
    at = 0
    while True:
        words = mixed(np.arange(at, at + 64, dtype=np.uint64) + np.uint64(salt << 32))
        yield from ((words >> np.uint64(40)).astype(np.float64) / (1 << 24)).tolist()
        at += 64


def _leaves(canvas: Canvas, x: float, y: float, rx: float, ry: float, count: int, salt: int) -> None:
    """Draw ``count`` leaves.

    The first leaves are dark and lie at the back. The last ones are bright and lie in front.
    """
    chance = _chance(salt)
    for place in range(count):
        a, r = next(chance), next(chance) * (1.25 - 0.5 * place / count)
        dx, dy = r * sine(a), r * sine(a + 0.25)
        size = (0.16 + 0.1 * next(chance)) * min(rx, ry)
        luma, u, v = _LEAVES[int(next(chance) * 4)]
        light = 0.5 + 0.4 * place / count - 0.25 * dy
        canvas.ball(x + rx * dx, y + ry * dy, size * 1.3, size, (luma * light, u, v), 0.6)


class Desk:
    """A person who speaks and signs at a desk, in front of a bookshelf and a plant."""

    def __init__(self, width: int, height: int, frames: int, seed: int) -> None:
        room = Canvas.of(width, height)
        _, rows, columns = room.samples.shape
        wall = (
            1 + 0.03 * noise(rows, columns, (3, 4), seed) + 0.015 * noise(rows, columns, (90, 120), seed + 1)
        )
        bright = np.linspace(1.05, 0.72, columns, dtype=np.float32)[None, :]
        room.samples[:] = _flat("d8cbb4")
        room.samples[0] *= wall * bright
        side = -room.left
        self._window(room, -side + 0.04)
        self._shelf(room, max(0.3, side - 0.52), side + 0.02, seed)
        _leaves(room, -side + 0.13, 0.66, 0.13, 0.19, 90, seed + 5)
        room.limb((-side + 0.13, 0.84), (-side + 0.13, 0.95), 0.08, 0.06, rgb("b4613e"))
        self._top(room, side)
        self._room, self._frames = room, frames
        self._turn = [int(x * len(_SIGNS)) for x, _ in zip(_chance(seed), range(40), strict=False)]

    @staticmethod
    def _window(room: Canvas, x: float) -> None:
        room.box(x - 0.02, 0.05, x + 0.3, 0.47, rgb("efe9dd"), 0.008)
        room.box(x, 0.07, x + 0.28, 0.45, rgb("a9cbe6"), fade=-0.15)
        room.ball(x + 0.09, 0.2, 0.07, 0.03, _WHITE, 0.1, 0.8)
        room.ball(x + 0.17, 0.185, 0.06, 0.025, _WHITE, 0.1, 0.8)
        for place in range(5):
            left = x + place * 0.056
            room.box(left, 0.36 - 0.02 * (place % 3), left + 0.05, 0.45, rgb("7d93a3"))
        room.box(x + 0.133, 0.07, x + 0.147, 0.45, rgb("e4ddd0"))
        room.box(x, 0.25, x + 0.28, 0.262, rgb("e4ddd0"))

    @staticmethod
    def _shelf(room: Canvas, x0: float, x1: float, seed: int) -> None:
        chance = _chance(seed + 3)
        room.box(x0 - 0.015, 0.02, x1, 0.84, rgb("6d4a30"), 0.005, 0.2)
        for shelf in range(4):
            top, low = 0.04 + shelf * 0.2, 0.215 + shelf * 0.2
            room.box(x0, top, x1, low, rgb("4a3222"), fade=0.3)
            x = x0 + 0.006
            while x < x1:
                wide, high = 0.014 + 0.024 * next(chance), 0.1 + 0.065 * next(chance)
                colour = _BOOKS[int(next(chance) * len(_BOOKS))]
                if next(chance) < 0.88:
                    middle, half = x + wide / 2, wide / 2
                    room.limb((middle, low - high), (middle, low), half, half, colour, 0.35)
                    for at in (0.25, 0.34):
                        y = low - high * (1 - at)
                        room.box(x + 0.003, y, x + wide - 0.003, y + 0.008, _BOOKS[5])
                x += wide
            room.box(x0 - 0.015, low, x1, low + 0.018, rgb("855c3c"), 0.003, 0.3)

    @staticmethod
    def _top(room: Canvas, side: float) -> None:
        room.box(-side, 0.8, side, 1.0, _WOOD, fade=0.35)
        _, rows, columns = room.samples.shape
        board = slice(int(0.81 * rows), rows)
        room.samples[0, board] *= 1 + np.float32(0.1) * noise(rows, columns, (120, 5), 9)[board]
        room.box(-side, 0.8, side, 0.809, rgb("c79a6c"))
        room.limb((0.4, 0.76), (0.4, 0.86), 0.04, 0.036, rgb("d9534a"))
        room.ball(0.4, 0.735, 0.038, 0.012, rgb("b8403a"), 0)
        room.ball(0.4, 0.737, 0.033, 0.009, rgb("3b2013"), 0)
        room.box(-0.47, 0.87, -0.25, 0.95, _WHITE, 0.003)
        for line in range(4):
            y0, y1 = (edge + line * 0.015 for edge in (0.883, 0.888))
            room.box(-0.455, y0, -0.28 - 0.02 * (line % 2), y1, rgb("7f8894"))

    def picture(self, step: int) -> Canvas:
        """Draw picture ``step`` of the scene."""
        canvas, time = self._room.nearer(1 + 0.12 * step / self._frames), step / 25
        sway = 0.012 * sine(time / 3.1) + 0.006 * sine(time / 1.3)
        self._body(canvas.above(0.8), sway * 0.5)
        self._head(canvas, sway, 0.355 + 0.006 * sine(time / 1.7), time)
        sign = time / 0.44
        now, part = int(sign), ramp((sign % 1) * 1.7)
        first, then = (_SIGNS[self._turn[(now + k) % len(self._turn)]] for k in (0, 1))
        for hand, mirror in ((0, -1), (1, 1)):
            x, y, turn, spread = (a + (b - a) * part for a, b in zip(first[hand], then[hand], strict=True))
            wave = 0.008 * sine(time * 1.9 + hand / 3)
            self._arm(canvas, mirror, (mirror * x + sway, y + wave), turn + wave * 3, spread)
        return canvas

    @staticmethod
    def _body(canvas: Canvas, sway: float) -> None:
        for mirror in (-1, 1):  # hair behind the shoulders
            canvas.limb((mirror * 0.085 + sway, 0.33), (mirror * 0.11 + sway, 0.55), 0.055, 0.05, _HAIR)
        canvas.limb((sway, 0.44), (sway, 0.6), 0.05, 0.058, (_SKIN[0] * 0.8, *_SKIN[1:]), 0.55)
        canvas.limb((sway, 0.83), (sway, 1.0), 0.225, 0.25, _SHIRT, 0.55)
        canvas.limb((-0.165 + sway, 0.65), (0.165 + sway, 0.65), 0.088, 0.088, _SHIRT, 0.55)
        canvas.ball(sway, 0.566, 0.076, 0.03, rgb("1d5468"), 0.2)
        canvas.ball(sway, 0.56, 0.066, 0.026, (_SKIN[0] * 0.84, *_SKIN[1:]), 0.2)
        for row in range(3):
            y0, y1 = (edge + row * 0.04 for edge in (0.7, 0.712))
            canvas.box(-0.19 + sway, y0, 0.19 + sway, y1, rgb("d7e4e2"), 0.005, alpha=0.75)

    @staticmethod
    def _head(canvas: Canvas, x: float, y: float, time: float) -> None:
        canvas.ball(x, y - 0.03, 0.122, 0.15, _HAIR, 0.6)
        for mirror in (-1, 1):
            canvas.ball(x + mirror * 0.1, y + 0.02, 0.018, 0.032, _SKIN, 0.5)
        canvas.ball(x, y + 0.015, 0.1, 0.13, _SKIN, 0.4)
        canvas.ball(x, y + 0.085, 0.06, 0.055, _SKIN, 0.25, 0.6)
        for mirror in (-1, 1):
            canvas.ball(x + mirror * 0.055, y + 0.055, 0.026, 0.02, rgb("d8866c"), 0, 0.35)
        for at in (-0.9, -0.7, -0.5, -0.3, 0.3, 0.5, 0.7, 0.9):  # hair over the forehead, from a parting
            root, tip = (x + 0.02 * at, y - 0.135), (x + 0.115 * at, y - 0.1 + 0.09 * abs(at))
            canvas.limb(root, tip, 0.018, 0.016, _HAIR, 0.7)
        shut = ramp(1.5 - abs((time + 0.6) % 2.3 - 0.1) * 18)
        gaze = 0.005 * sine(time / 2.7)
        for mirror in (-1, 1):
            ex, ey = x + mirror * 0.042, y + 0.005
            canvas.ball(ex, ey, 0.021, 0.0125 * (1 - 0.85 * shut), _WHITE, 0.1)
            canvas.ball(ex + gaze, ey, 0.0095, 0.0115 * (1 - 0.9 * shut), rgb("3d2a1c"), 0)
            canvas.ball(ex + gaze - 0.003, ey - 0.004, 0.003, 0.0031 - 0.003 * shut, _WHITE, 0)
            canvas.line([(ex - 0.022, ey - 0.009), (ex, ey - 0.0145), (ex + 0.022, ey - 0.009)], 0.003, _HAIR)
            lift = 0.005 * sine(time / 1.9)
            arch = ((-0.025, 0.037), (-0.008, 0.042), (0.011, 0.04), (0.026, 0.031))
            canvas.line([(ex + mirror * dx, ey - dy - lift) for dx, dy in arch], 0.0035, _HAIR)
        canvas.limb((x + 0.004, y + 0.01), (x, y + 0.045), 0.008, 0.013, _SKIN, 0.55)
        for mirror in (-1, 1):
            canvas.ball(x + mirror * 0.008, y + 0.055, 0.004, 0.003, rgb("7a4a3a"), 0, 0.7)
        wide = max(0.0, 0.5 + 0.5 * sine(time * 2.3)) * max(0.1, 0.6 + 0.4 * sine(time / 1.7))
        for mirror in (-1, 1):
            corner = [(x + mirror * 0.038, y + 0.082), (x + mirror * 0.024, y + 0.089)]
            canvas.line(corner, 0.0028, rgb("8a4a40"))
        canvas.ball(x, y + 0.087, 0.033 - 0.008 * wide, 0.009 + 0.014 * wide, _LIPS, 0.3)
        canvas.ball(x, y + 0.087, 0.026 - 0.008 * wide, 0.002 + 0.01 * wide, rgb("4a1c20"), 0)
        y0, y1 = y + 0.084 - 0.006 * wide, y + 0.087 - 0.004 * wide
        canvas.box(x - 0.014, y0, x + 0.014, y1, _WHITE, alpha=ramp(wide))

    @staticmethod
    def _arm(canvas: Canvas, mirror: int, wrist: Place, turn: float, spread: float) -> None:
        """Draw an arm. ``turn`` is the direction of the fingers: 0 is up, 0.25 is towards the middle."""
        elbow = (mirror * 0.31 + wrist[0] * 0.12, 0.86)
        canvas.limb((mirror * 0.205, 0.65), elbow, 0.072, 0.06, _SHIRT, 0.6)
        canvas.limb(elbow, wrist, 0.058, 0.042, _SHIRT, 0.6)
        # Represent points as complex numbers, because these can be added and rotated.
        up = complex(-mirror * sine(turn), -sine(turn + 0.25))
        across = up * 1j
        palm = complex(*wrist) + up * 0.055
        canvas.limb(wrist, _place(palm), 0.032, 0.04, _SKIN, 0.45)
        for finger in range(4):
            off = (finger - 1.5) / 1.5
            root = palm + across * off * 0.029 + up * 0.025
            long = (0.06 + 0.012 * (1 - abs(off))) * (0.35 + 0.65 * spread)
            lean = off * 0.35 * spread
            canvas.limb(_place(root), _place(root + (up + across * lean) * long), 0.0125, 0.0095, _SKIN, 0.6)
        thumb = palm - across * mirror * 0.035
        tip = thumb + (up * 0.03 - across * mirror * 0.035) * (0.5 + 0.5 * spread)
        canvas.limb(_place(thumb), _place(tip), 0.014, 0.011, _SKIN, 0.6)


def _place(number: complex) -> Place:
    return number.real, number.imag


_SIGNS = (
    ((0.2, 0.66, 0.02, 1.0), (0.2, 0.66, 0.02, 1.0)),
    ((0.1, 0.7, 0.2, 0.9), (0.12, 0.62, 0.12, 0.2)),
    ((0.28, 0.6, 0.95, 0.8), (0.14, 0.74, 0.2, 0.6)),
    ((0.12, 0.76, 0.22, 0.1), (0.24, 0.52, 0.0, 1.0)),
    ((0.24, 0.56, 0.05, 0.3), (0.22, 0.58, 0.06, 0.3)),
    ((0.14, 0.66, 0.15, 1.0), (0.3, 0.66, 0.93, 1.0)),
)
"""Position and pose of the two hands in each sign.

The values are x from the middle, y, the direction of the fingers, and how far the fingers are spread.
"""


class Street:
    """A street with houses, trees and cars. The camera pans."""

    def __init__(self, width: int, height: int, frames: int, seed: int) -> None:
        self._pan = max(1, round(height * 0.0042))
        self._width, self._height, self._frames = width, height, frames
        wide = width + frames * self._pan
        self._sky = Canvas.of(wide, height)
        self._paint_sky(seed)
        self._long = wide / height
        self._near = Sprite.of(self._long, 1.0, height, lambda canvas: self._houses(canvas, seed))
        crown = partial(_leaves, x=0.0, y=0.23)
        self._inner, self._crown = (
            Sprite.of(0.5, 0.46, height, partial(crown, rx=rx, ry=ry, count=n, salt=seed + n))
            for rx, ry, n in ((0.14, 0.14, 150), (0.165, 0.15, 260))
        )
        paints = several("c23b32 e8e6e0 2d5f9a e0b03a")
        self._cars = [Sprite.of(0.62, 0.26, height, partial(self._car, paint)) for paint in paints]

    def _paint_sky(self, seed: int) -> None:
        sky = self._sky
        _, rows, columns = sky.samples.shape
        down = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
        sky.samples[:] = _flat("6fa8dc") * (1 - down) + _flat("e9f1f7") * down
        cells = 2.2 * columns / rows
        cloud = np.full((rows, columns), -0.25, np.float32)
        for k in (1, 2, 4, 8):
            cloud += noise(rows, columns, (4 * k, cells * k), seed + 20 + k) * np.float32(1.6 / k)
        cover = np.clip(cloud, 0, 1) * (1 - down)
        sky.samples += (_flat("f4f2ec") - sky.samples) * cover
        chance = _chance(seed + 21)
        x = sky.left
        while x < -sky.left:
            wide, top = 0.08 + 0.12 * next(chance), 0.22 + 0.2 * next(chance)
            sky.box(x, top, x + wide, 0.7, rgb("93a4b8"), fade=-0.15)
            x += wide + 0.02 * next(chance)

    @staticmethod
    def _houses(canvas: Canvas, seed: int) -> None:
        chance, x, end = _chance(seed + 22), canvas.left - 0.05, -canvas.left
        walls = several("c98b6b d9c6a0 a65a4a b8b0a4 d8d4c8 8d6a58")
        while x < end:
            wide, top = 0.34 + 0.22 * next(chance), 0.1 + 0.18 * next(chance)
            wall = walls[int(next(chance) * len(walls))]
            canvas.box(x, top, x + wide, 0.66, wall, fade=0.2)
            canvas.box(x - 0.01, top - 0.02, x + wide + 0.01, top + 0.012, rgb("5d4a42"), 0.004)
            across = int(wide / 0.1)
            gap = wide / across
            for row in range(int((0.6 - top) / 0.12)):
                for column in range(across):
                    left, y = x + gap * (column + 0.22), top + 0.04 + row * 0.12
                    canvas.box(left - 0.006, y - 0.006, left + gap * 0.56 + 0.006, y + 0.08, rgb("f0eade"))
                    glass = rgb("ffe2a0") if next(chance) < 0.15 else rgb("51677c")
                    canvas.box(left, y, left + gap * 0.56, y + 0.07, glass, fade=0.4)
                    canvas.box(left + gap * 0.26, y, left + gap * 0.3, y + 0.07, rgb("f0eade"))
            canvas.box(x + wide * 0.42, 0.55, x + wide * 0.58, 0.66, rgb("4a3a30"), 0.004)
            x += wide + (0.05 if next(chance) < 0.4 else 0.0)
        _, rows, columns = canvas.samples.shape
        canvas.box(canvas.left, 0.655, end, 0.735, rgb("b9b3aa"), fade=0.1)
        canvas.box(canvas.left, 0.73, end, 0.745, rgb("8c8780"))
        canvas.box(canvas.left, 0.745, end, 1.0, rgb("55575c"), fade=-0.15)
        asphalt = slice(int(0.75 * rows), rows)
        rough = noise(rows, columns, (rows / 2, columns / 2), 7)[asphalt]
        canvas.samples[0, asphalt] *= 1 + np.float32(0.09) * rough
        for dash in range(int(2 * end / 0.3) + 1):
            left = canvas.left + dash * 0.3
            canvas.box(left, 0.862, left + 0.15, 0.872, _WHITE, alpha=0.85)

    @staticmethod
    def _car(paint: Colour, canvas: Canvas) -> None:
        canvas.ball(0.0, 0.225, 0.25, 0.018, _BLACK, 0, 0.55)
        canvas.limb((-0.1, 0.075), (0.07, 0.075), 0.055, 0.06, paint, 0.6)
        canvas.limb((-0.2, 0.145), (0.2, 0.15), 0.055, 0.05, paint, 0.65)
        canvas.box(-0.235, 0.14, 0.24, 0.2, paint, 0.025, 0.4)
        canvas.box(-0.12, 0.045, -0.015, 0.105, rgb("26323d"), 0.02, -0.8)
        canvas.box(0.0, 0.045, 0.1, 0.105, rgb("26323d"), 0.02, -0.8)
        canvas.ball(0.235, 0.15, 0.012, 0.012, rgb("fff3c0"), 0)
        canvas.box(-0.246, 0.135, -0.232, 0.165, rgb("d03028"), 0.004)
        canvas.box(-0.23, 0.168, 0.235, 0.174, _BLACK, alpha=0.4)

    def picture(self, step: int) -> Canvas:
        """Draw picture ``step`` of the scene."""
        pan, time = step * self._pan, step / 25
        canvas = Canvas.of(self._width, self._height)
        far = pan // 3
        canvas.samples[:] = self._sky.samples[:, :, far : far + self._width]
        origin = canvas.left - pan / self._height
        canvas.paste(self._near, origin, 0.0)
        for tree in range(int(self._long / 0.62) + 1):
            x = origin + 0.2 + 0.62 * tree
            if canvas.left - 0.3 < x < -canvas.left + 0.3:
                self._tree(canvas, x, time + tree * 0.37)
        for who, (start, speed, coat) in enumerate(_WALKERS):
            x, ground = origin + start + speed * time, 0.735 - 0.012 * who
            self._walker(canvas, x, ground, time * 1.1 + who / 3, rgb(coat), speed)
        for place, (start, speed, y) in enumerate(_CARS):
            x = canvas.left + start + 0.6 + (speed - 0.1) * time
            x = (x + 1.6) % (2 * 1.6 + 0.6) - 1.6 - 0.3
            self._drive(canvas, place, x, y, speed, time)
        return canvas

    def _tree(self, canvas: Canvas, x: float, time: float) -> None:
        canvas.ball(x, 0.715, 0.1, 0.014, _BLACK, 0, 0.3)
        canvas.limb((x, 0.4), (x - 0.006, 0.7), 0.012, 0.02, rgb("5f4632"), 0.7)
        canvas.paste(self._inner, x - 0.25 + 0.005 * sine(time / 2.1), 0.17)
        canvas.paste(self._crown, x - 0.25 + 0.009 * sine(time / 1.6 + 0.2), 0.15)

    def _drive(self, canvas: Canvas, place: int, x: float, y: float, speed: float, time: float) -> None:
        car = self._cars[place]
        if speed < 0:
            car = Sprite(car.samples[..., ::-1])
        canvas.paste(car, x - 0.31, y)
        for wheel in (-0.145, 0.15):
            wx, wy, turn = x + (wheel if speed > 0 else -wheel), y + 0.198, speed * time / 0.22
            canvas.ball(wx, wy, 0.036, 0.036, rgb("1c1d20"), 0.2)
            canvas.ball(wx, wy, 0.022, 0.022, rgb("b9bec4"), 0.3)
            for spoke in (0, 1 / 6, 1 / 3):
                dx, dy = 0.019 * sine(turn + spoke), 0.019 * sine(turn + spoke + 0.25)
                canvas.line([(wx - dx, wy + dy), (wx + dx, wy - dy)], 0.003, rgb("4a4e54"))

    @staticmethod
    def _walker(canvas: Canvas, x: float, ground: float, turn: float, coat: Colour, speed: float) -> None:
        ahead = 1 if speed > 0 else -1
        for leg in (0, 0.5):
            swing = 0.03 * sine(turn + leg)
            knee = (x + swing * 0.6 + ahead * 0.006, ground - 0.045)
            canvas.limb((x, ground - 0.095), knee, 0.013, 0.011, rgb("2c3342"), 0.5)
            canvas.limb(knee, (x + swing, ground - 0.006), 0.011, 0.009, rgb("2c3342"), 0.5)
        canvas.limb((x, ground - 0.165), (x, ground - 0.09), 0.022, 0.02, coat, 0.6)
        hand, sleeve = (x + 0.028 * sine(turn + 0.5), ground - 0.105), (coat[0] * 0.8, *coat[1:])
        canvas.limb((x, ground - 0.165), hand, 0.009, 0.008, sleeve, 0.5)
        canvas.ball(x + ahead * 0.002, ground - 0.212, 0.017, 0.02, _SKIN, 0.5)
        canvas.ball(x - ahead * 0.003, ground - 0.219, 0.018, 0.015, _HAIR, 0.5)


_WALKERS = ((0.1, 0.12, "b8862f"), (0.95, -0.1, "7a3f63"), (1.5, 0.09, "35563f"))
"""Starting position, speed, and colour of the coat of each walker."""
_CARS = ((0.3, -0.5, 0.62), (1.5, -0.42, 0.62), (-0.5, 0.62, 0.745), (-1.4, 0.7, 0.745))
"""Starting position, speed, and y coordinate of each car."""
_HEADING = "Video beside TCP"
_TEXT = (
    "Who sends video over a network is seldom alone. Others load pages, fetch films and call their friends, "
    "and all of them share the same narrow link. A sender that takes more than its share leaves the others "
    "waiting. One that takes less shows a poor picture for no good reason. A rate controller decides how much "
    "is sent. It listens to what the receivers tell, to delay and to loss, and chooses a rate that the network "
    "can carry. When a download begins it gives way within a second, and when the download ends it takes back "
    "what is free. You can read this page when the picture is sharp. When the rate falls the fine strokes are "
    "lost first, then whole words become grey. If the page stands still and the clock does not move, the "
    "picture has frozen."
)


class Page:
    """A page of text that scrolls."""

    def __init__(self, width: int, height: int, frames: int, seed: int) -> None:
        self._step = max(1, round(height * 0.0042))
        self._width, self._height = width, height
        page = self._page = Canvas.of(width, height + frames * self._step, height)
        page.samples[:] = _flat("59636e")
        _, rows, columns = page.samples.shape
        half, size = min(-page.left - 0.05, 0.62), 0.036
        page.box(-half + 0.012, 0.072, half + 0.012, rows / height + 0.1, _BLACK, alpha=0.3)
        page.box(-half, 0.06, half, rows / height + 0.1, rgb("fbf9f3"))
        page.samples[0] *= 1 + np.float32(0.008) * noise(rows, columns, (rows / 3, columns / 3), seed + 40)
        page.text(-half + 0.06, 0.13, 0.065, _HEADING, rgb("20456e"), 0.09)
        page.box(-half + 0.06, 0.215, half - 0.06, 0.22, rgb("c0563c"))
        self._chart(page, -half + 0.08, 0.27, half - 0.08)
        line, x, y = "", -half + 0.06, 0.57
        for word in _TEXT.split() * 2:
            if (len(line) + 1 + len(word)) * 0.57 * size > 2 * half - 0.13:
                if y % 0.5 < 0.055:
                    page.box(x - 0.01, y - 0.009, half - 0.07, y + size + 0.009, rgb("fff07a"), 0.008)
                page.text(x, y, size, line, rgb("26282c"))
                line, y = "", y + 0.06
            line = f"{line} {word}".strip()
            if y > rows / height:
                break

    @staticmethod
    def _chart(page: Canvas, x0: float, y: float, x1: float) -> None:
        page.box(x0, y, x1, y + 0.24, rgb("eef1f3"), 0.006)
        for row in range(1, 4):
            page.box(x0, y + row * 0.06, x1, y + row * 0.06 + 0.002, rgb("cfd6db"))
        count = 11
        for place in range(count):
            left = x0 + 0.02 + (x1 - x0 - 0.04) * place / count
            high = 0.2 if place < 4 or place > 7 else 0.1
            page.box(left, y + 0.22 - high, left + 0.045, y + 0.22, rgb("2f7fb8"), 0.004, 0.25)
            if 3 < place < 8:
                page.box(left, y + 0.02, left + 0.045, y + 0.118, rgb("e08a3c"), 0.004, 0.25)

    def picture(self, step: int) -> Canvas:
        """Draw picture ``step`` of the scene."""
        canvas = Canvas.of(self._width, self._height)
        canvas.samples[:] = self._page.samples[:, step * self._step :][:, : self._height]
        return canvas
