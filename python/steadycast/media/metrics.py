"""PSNR, SSIM and opinion score of pictures."""

from dataclasses import dataclass

import av
import numpy as np

from steadycast.core import core
from steadycast.media.table import F64, U8

PSNR_CAP_DB = 60.0
"""The PSNR to which higher values are capped in means, tables and figures, in dB.

It is libvmaf's cap for samples of 8 bits: 6 dB per bit, plus 12 dB.
"""

OPINION_BOUNDS_DB = (20.0, 25.0, 31.0, 37.0)
"""PSNR bounds of the opinion scores (Multi-Evalvid-RA, table 1, with its gaps closed).

Below 20 dB → 1, [20, 25] → 2, (25, 31] → 3, (31, 37] → 4, above → 5.
"""


@dataclass(frozen=True)
class Picture:
    """One picture in 4:2:0: luma and two chroma planes of half its width and height, 8 bits each."""

    y: U8
    u: U8
    v: U8

    @staticmethod
    def of(samples: U8, width: int, height: int) -> "Picture":
        """Create a picture from views into `samples`, plane after plane; ``width`` and ``height`` are even."""
        flat = samples.reshape(-1)
        luma, chroma = width * height, width * height // 4
        half = (height // 2, width // 2)
        return Picture(
            flat[:luma].reshape(height, width),
            flat[luma : luma + chroma].reshape(half),
            flat[luma + chroma : luma + 2 * chroma].reshape(half),
        )

    def frame(self) -> av.VideoFrame:
        """Return the picture as a frame for encoders."""
        flat = np.concatenate([plane.reshape(-1) for plane in (self.y, self.u, self.v)])
        return av.VideoFrame.from_ndarray(flat.reshape(-1, self.y.shape[1]), format="yuv420p")

    @staticmethod
    def black(width: int, height: int) -> "Picture":
        """Return a black picture, which is on screen before the first received picture."""
        y = np.full((height, width), 16, dtype=np.uint8)
        chroma = np.full((height // 2, width // 2), 128, dtype=np.uint8)
        return Picture(y, chroma, chroma)


def psnr_db(a: U8, b: U8) -> float:
    """Return the PSNR of two planes in dB; infinite if they are identical."""
    return float(core.picture_psnr(a, b))


def picture_psnr_db(a: Picture, b: Picture) -> tuple[float, float, float]:
    """Return the PSNR of Y, U and V in dB; infinite for planes that are identical."""
    return psnr_db(a.y, b.y), psnr_db(a.u, b.u), psnr_db(a.v, b.v)


def overall_db(y: float, u: float, v: float) -> float:
    """Return the PSNR of all samples of a 4:2:0 picture in dB, from the PSNR of its planes."""
    error = (4 * 10 ** (-y / 10) + 10 ** (-u / 10) + 10 ** (-v / 10)) / 6
    return float(-10 * np.log10(error)) if error > 0 else np.inf


def picture_ssim(a: Picture, b: Picture) -> float:
    """Return the SSIM of the luma planes."""
    return float(core.picture_ssim(a.y, b.y))


def opinion_classes(psnr: F64) -> U8:
    """Return the opinion score from 1 (bad) to 5 (excellent) for each luma PSNR in dB."""
    bad, poor, fair, good = OPINION_BOUNDS_DB
    classes = 1 + (psnr >= bad).astype(np.uint8) + (psnr > poor) + (psnr > fair) + (psnr > good)
    return np.asarray(classes, dtype=np.uint8)


def opinions(psnr: F64) -> F64:
    """Return a continuous opinion score from 1 to 5 for each luma PSNR in dB.

    The bound between the classes k and k + 1 has the score k + 0.5. The scores between are interpolated linearly.
    """
    # A slot without a picture has no PSNR, and gets the lowest score.
    known = np.where(np.isnan(psnr), 0.0, psnr)
    return np.interp(known, (17.5, *OPINION_BOUNDS_DB, 40.0), (1.0, 1.5, 2.5, 3.5, 4.5, 5.0))


def figures(raw: F64, encoded: F64 | None, ssim: F64, classes: U8) -> dict[str, float | None]:
    """Return means of the measurements, by their paths in a receiver's summary.

    Args:
        raw: PSNR of Y, U, V in dB compared with the source, one row per picture.
        encoded: PSNR of Y, U, V in dB compared with the encoder's reconstructed pictures, one row per picture.
        ssim: SSIM of each picture.
        classes: opinion score of each picture.

    """
    against = {"raw": raw, "encoded": encoded}
    return {
        **{
            f"psnr_db.{what}.{plane}": None if values is None else mean_db(values[:, n])
            for what, values in against.items()
            for n, plane in enumerate("yuv")
        },
        "ssim": float(ssim.mean()) if len(ssim) else None,
        "mos.mean": float(classes.mean()) if len(classes) else None,
        **{f"mos.share.{k}": np.count_nonzero(classes == k) / max(1, len(classes)) for k in range(1, 6)},
    }


def capped(psnr: F64) -> F64:
    """Return PSNR values in dB of at most `PSNR_CAP_DB`."""
    return np.minimum(psnr, PSNR_CAP_DB)


def mean_db(psnr: F64) -> float | None:
    """Return the mean of the pictures' PSNR values in dB, each capped at `PSNR_CAP_DB`; `None` without pictures."""
    return float(capped(psnr).mean()) if len(psnr) else None
