"""Frame sizes at every quantizer."""

from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Kind(IntEnum):
    """The type of a frame."""

    I = 0  # noqa: E741  (the field's name for it)
    P = 1
    B = 2


@dataclass(frozen=True, eq=False)
class FrameTable:
    """The frames of a film, and their sizes at each quantizer. Frames are in coding order.

    A longer flow repeats the film: frame ``i`` of the flow is frame ``i % frames`` of the film. The last GOP of the
    film may be shorter than the others.
    """

    fps: Fraction
    gop: int
    kinds: U8
    qs: list[int]
    """Quantizers in ascending order, one per row of `sizes`. The rate does not always fall when the quantizer rises."""
    sizes: U32
    """Bytes of each access unit. There is a row per quantizer, and a column per frame in coding order."""
    display: U32
    """Position of each frame in display order. The frames are in coding order."""
    label: str
    """Name of the film in titles."""

    def __post_init__(self) -> None:
        n = len(self.kinds)
        if self.fps <= 0 or self.gop < 1 or n == 0 or not self.qs:
            raise ValueError(
                "a frame table needs a positive frame rate, a group length, frames and quantizers"
            )
        if self.sizes.shape != (len(self.qs), n) or self.display.shape != (n,):
            raise ValueError(f"{len(self.qs)} quantizers and {n} frames do not fit sizes {self.sizes.shape}")
        if sorted(set(self.qs)) != self.qs:
            raise ValueError("quantizers must ascend")
        opens = np.arange(n) % self.gop == 0
        if not np.array_equal(self.kinds == Kind.I, opens):
            raise ValueError(f"I frames must stand at every {self.gop}th frame and nowhere else")
        for first in range(0, n, self.gop):
            group = np.sort(self.display[first : first + self.gop])
            if not np.array_equal(group, np.arange(first, first + len(group))):
                raise ValueError(f"the group of pictures at frame {first} is not closed in display order")

    @property
    def frames(self) -> int:
        """Number of frames in the film. A longer flow repeats them."""
        return len(self.kinds)

    @property
    def gops(self) -> int:
        """Number of GOPs in the film. A longer flow repeats them."""
        return -(-self.frames // self.gop)

    def row(self, q: int) -> int:
        """Return the row of `sizes` for quantizer ``q``.

        Raises:
            KeyError: there is no such quantizer.

        """
        try:
            return self.qs.index(q)
        except ValueError:
            raise KeyError(f"no quantizer {q} in {self.qs[0]}…{self.qs[-1]}") from None

    def span(self, group: int) -> range:
        """Return the numbers of the frames in GOP ``group`` of the flow, in coding order."""
        start, within = divmod(group, self.gops)
        first = start * self.frames + within * self.gop
        return range(first, min(first + self.gop, (start + 1) * self.frames))

    def group_of(self, frames: npt.ArrayLike) -> I64:
        """Return the number of the GOP that contains each frame.

        GOPs and frames are counted from the start of the flow.
        """
        passes, within = np.divmod(np.asarray(frames, dtype=np.int64), self.frames)
        return np.asarray(passes * self.gops + within // self.gop, dtype=np.int64)

    def groups_in(self, frames: int) -> int:
        """Return the number of GOPs that contain the first ``frames`` frames of the flow."""
        return int(self.group_of(frames - 1)) + 1 if frames else 0

    def slot_of(self, frames: npt.ArrayLike) -> I64:
        """Return the display slot of each frame. ``frames`` are numbers in coding order.

        Slots and frames are counted from the start of the flow.
        """
        passes, within = np.divmod(np.asarray(frames, dtype=np.int64), self.frames)
        return np.asarray(passes * self.frames + self.display[within], dtype=np.int64)

    def told(self, doubling: int | None = None) -> dict[str, object]:
        """Return the sizes in the format of the core. ``doubling`` is `ladder.Codec.doubling`."""
        return {
            "fps": (self.fps.numerator, self.fps.denominator),
            "gop": self.gop,
            "doubling": doubling,
            "qs": bytes(self.qs),
            "kinds": self.kinds,
            "display": self.display,
            "sizes": self.sizes,
        }

    def mean_rates_bps(self) -> F64:
        """Return the mean rate at each quantizer, in bit/s. Packet headers are not included."""
        return np.asarray(self.sizes.sum(axis=1, dtype=np.float64) * 8 * float(self.fps) / self.frames)


def coding_order(pattern: str) -> tuple[U8, U32]:
    """Return the types and the display positions of the frames in a closed GOP, in coding order.

    ``pattern`` lists the types in display order, such as ``IBBPBBP``. B frames that follow the last P frame are coded
    last.
    """
    order: list[int] = []
    waiting: list[int] = []
    for place, kind in enumerate(pattern):
        if kind == "B":
            waiting.append(place)
        else:
            order += [place, *waiting]
            waiting = []
    order += waiting
    kinds = np.array([Kind[pattern[place]] for place in order], dtype=np.uint8)
    return kinds, np.array(order, dtype=np.uint32)
