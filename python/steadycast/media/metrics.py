"""PSNR, SSIM and opinion score of pictures."""

from dataclasses import dataclass

import av
import numpy as np

from steadycast.core import core
from steadycast.media.table import F64, U8

PSNR_CAP_DB = 60.0
"""Upper limit for PSNR values in means, tables and figures, in dB. Higher values are capped.

libvmaf has the same cap for samples of 8 bits: 6 dB per bit, plus 12 dB.
"""

OPINION_BOUNDS_DB = (20.0, 25.0, 31.0, 37.0)
"""The PSNR values in dB that separate the opinion scores (Multi-Evalvid-RA, table 1).

The paper leaves gaps between the scores. Here they are closed:
below 20 dB → 1, [20, 25] → 2, (25, 31] → 3, (31, 37] → 4, above → 5.
"""


@dataclass(frozen=True)
class Picture:
    """A picture in 4:2:0, with 8 bits per sample. The chroma planes have half the width and height of luma."""

    y: U8
    u: U8
    v: U8

    @staticmethod
    def of(samples: U8, width: int, height: int) -> "Picture":
        """Return a picture whose planes are views into `samples`, which has plane after plane.

        ``width`` and ``height`` must be even.
        """
        flat = samples.reshape(-1)
        luma, chroma = width * height, width * height // 4
        half = (height // 2, width // 2)
        return Picture(
            flat[:luma].reshape(height, width),
            flat[luma : luma + chroma].reshape(half),
            flat[luma + chroma : luma + 2 * chroma].reshape(half),
        )

    def frame(self) -> av.VideoFrame:
        """Return the picture as a frame that an encoder accepts."""
        flat = np.concatenate([plane.reshape(-1) for plane in (self.y, self.u, self.v)])
        return av.VideoFrame.from_ndarray(flat.reshape(-1, self.y.shape[1]), format="yuv420p")

    @staticmethod
    def black(width: int, height: int) -> "Picture":
        """Return a black picture. Viewers see it before the first received picture."""
        y = np.full((height, width), 16, dtype=np.uint8)
        chroma = np.full((height // 2, width // 2), 128, dtype=np.uint8)
        return Picture(y, chroma, chroma)


def psnr_db(a: U8, b: U8) -> float:
    """Return the PSNR of two planes in dB. It is infinite if the planes are identical."""
    return float(core.picture_psnr(a, b))


def picture_psnr_db(a: Picture, b: Picture) -> tuple[float, float, float]:
    """Return the PSNR of the planes Y, U and V in dB. It is infinite for identical planes."""
    return psnr_db(a.y, b.y), psnr_db(a.u, b.u), psnr_db(a.v, b.v)


def overall_db(y: float, u: float, v: float) -> float:
    """Return the PSNR over all samples of a 4:2:0 picture in dB. The arguments are the PSNR of its planes."""
    error = (4 * 10 ** (-y / 10) + 10 ** (-u / 10) + 10 ** (-v / 10)) / 6
    return float(-10 * np.log10(error)) if error > 0 else np.inf


def picture_ssim(a: Picture, b: Picture) -> float:
    """Return the SSIM of the luma planes."""
    return float(core.picture_ssim(a.y, b.y))


def opinion_classes(psnr: F64) -> U8:
    """Return the opinion score for each luma PSNR in dB. Scores go from 1 (bad) to 5 (excellent)."""
    bad, poor, fair, good = OPINION_BOUNDS_DB
    classes = 1 + (psnr >= bad).astype(np.uint8) + (psnr > poor) + (psnr > fair) + (psnr > good)
    return np.asarray(classes, dtype=np.uint8)


def opinions(psnr: F64) -> F64:
    """Return a continuous opinion score from 1 to 5 for each luma PSNR in dB.

    The PSNR bound between score k and score k + 1 gets k + 0.5. Scores between the bounds are interpolated linearly.
    """
    # A display slot without a picture has no PSNR. It gets the lowest score.
    known = np.where(np.isnan(psnr), 0.0, psnr)
    return np.interp(known, (17.5, *OPINION_BOUNDS_DB, 40.0), (1.0, 1.5, 2.5, 3.5, 4.5, 5.0))


def figures(raw: F64, encoded: F64 | None, ssim: F64, classes: U8) -> dict[str, float | None]:
    """Return the mean values of the measurements. The keys are their paths in a receiver's summary.

    Args:
        raw: PSNR of Y, U, V in dB, one row per picture. The reference is the source's picture.
        encoded: PSNR of Y, U, V in dB, one row per picture. The reference is the encoder's reconstructed picture.
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
    """Return the PSNR values in dB, capped at `PSNR_CAP_DB`."""
    return np.minimum(psnr, PSNR_CAP_DB)


def mean_db(psnr: F64) -> float | None:
    """Return the mean PSNR of the pictures in dB, or `None` if there are no pictures.

    Each value is capped at `PSNR_CAP_DB`.
    """
    return float(capped(psnr).mean()) if len(psnr) else None
