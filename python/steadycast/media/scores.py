"""Quality scores of a ladder's encoded pictures. They are cached in files beside the ladder's encoded data.

If a GOP arrives without losses, the receiver sees the encoder's pictures. So their scores are the same for all
receivers and runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from steadycast.core import core
from steadycast.media import cache
from steadycast.media.ladder import DAMAGE, Ladder, read_arrays
from steadycast.media.table import F64

Score = tuple[float, float, float]
"""PSNR of Y, U and V in dB. It is infinite if the planes are identical."""

_COLUMNS = 4
"""Number of values in a stored score: PSNR of the three planes, and SSIM."""


class EncodedScores:
    """Scores of the encoded pictures at each quantizer, compared with the source's pictures.

    There is one row per display slot. A row is NaN if its picture was not measured. Threads may call `put` at the same
    time for different slots.
    """

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        # Store the version of the program with the scores, because another version may compute other scores.
        self._program = core.sources()[0].encode()
        self._rungs: dict[int, F64] = {}
        self._changed: set[int] = set()

    def need(self, qs: Iterable[int]) -> None:
        """Load the stored scores of these quantizers."""
        for q in qs:
            if q not in self._rungs:
                kept = self._read(q)
                empty = np.full((self._ladder.table.frames, _COLUMNS), np.nan)
                self._rungs[q] = empty if kept is None else kept

    def of(self, q: int, slot: int) -> tuple[Score, float] | None:
        """Return PSNR and SSIM of the picture in a display slot at quantizer ``q``.

        Returns `None` if the picture was not measured.
        """
        y, u, v, ssim = self._rungs[q][slot].tolist()
        return ((y, u, v), ssim) if y == y else None  # NaN is not equal to itself

    def put(self, q: int, slot: int, score: Score, ssim: float) -> None:
        """Add the scores of a picture that was measured."""
        self._rungs[q][slot] = (*score, ssim)
        self._changed.add(q)

    def store(self) -> None:
        """Write the added scores to the cache file. Scores that other processes have written are kept."""
        while self._changed:
            q = self._changed.pop()
            scores = self._rungs[q]
            kept = self._read(q)
            if kept is not None:
                scores = np.where(np.isnan(scores), kept, scores)
            program = np.frombuffer(self._program, dtype=np.uint8)
            cache.write(self._path(q), partial(np.savez, program=program, scores=scores))

    def _read(self, q: int) -> F64 | None:
        try:
            program, scores = read_arrays(self._path(q), "program", "scores")
        except DAMAGE:
            return None
        fits = scores.shape == (self._ladder.table.frames, _COLUMNS) and scores.dtype == np.float64
        return scores if fits and program.tobytes() == self._program else None

    def _path(self, q: int) -> Path:
        return self._ladder.place.with_name(f"{self._ladder.place.stem}-{q}.scores")
