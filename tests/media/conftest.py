"""What the tests of media share: a cache of their own, and a stand-in for an unbuilt module."""

import importlib.util
import sys
import types

import numpy as np
import pytest
from small_clips import write_clip


def _stand_in() -> types.ModuleType:
    """PSNR and SSIM in NumPy for a tree without the compiled module; a built one is preferred."""
    core = types.ModuleType("steadycast._core")

    def psnr(a, b):
        mse = np.mean((a.astype(np.float64) - b) ** 2)
        return float("inf") if mse == 0 else float(10 * np.log10(255.0**2 / mse))

    def ssim(a, b):
        def blocks(x):
            h, w = x.shape[0] // 4, x.shape[1] // 4
            fours = x[: 4 * h, : 4 * w].reshape(h, 4, w, 4).sum(axis=(1, 3))
            return fours[:-1, :-1] + fours[:-1, 1:] + fours[1:, :-1] + fours[1:, 1:]

        a, b = a.astype(np.float64), b.astype(np.float64)
        sa, sb, both, product = blocks(a), blocks(b), blocks(a * a + b * b), blocks(a * b)
        c1, c2 = 0.01**2 * 255**2 * 64, 0.03**2 * 255**2 * 64 * 63
        above = (2 * sa * sb + c1) * (2 * (64 * product - sa * sb) + c2)
        return float(np.mean(above / ((sa**2 + sb**2 + c1) * (64 * both - sa**2 - sb**2 + c2))))

    core.picture_psnr, core.picture_ssim = psnr, ssim
    return core


if importlib.util.find_spec("steadycast._core") is None:
    import steadycast

    steadycast._core = sys.modules["steadycast._core"] = _stand_in()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """No test reads or writes the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYCAST_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def clip_path(tmp_path_factory):
    """A whole, small clip."""
    return write_clip(tmp_path_factory.mktemp("clips") / "whole.mkv")
