"""Measures VMAF with the optional FFmpeg of `imageio-ffmpeg`. It runs as a child process and is never linked."""

import importlib
import json
import subprocess
import tempfile
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path

from steadycast.errors import MissingError
from steadycast.files import written
from steadycast.media.metrics import Picture


@cache
def program() -> str | None:
    """Return the path of an FFmpeg that can measure VMAF, or `None` if there is none."""
    try:
        path = str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
        told = subprocess.run([path, "-hide_banner", "-filters"], capture_output=True, timeout=30, check=True)
    except (ImportError, RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return path if b" libvmaf " in told.stdout else None


def need() -> None:
    """Raise an error if VMAF can't be measured."""
    if program() is None:
        raise MissingError(
            "VMAF",
            "there is no FFmpeg with libvmaf",
            'install one by "pip install imageio-ffmpeg", or leave VMAF out',
        )


def vmaf(pairs: Iterable[tuple[Picture, Picture]], width: int, height: int, fps: Fraction) -> float | None:
    """Return the mean VMAF of pairs of pictures, or `None` if it can't be measured.

    Each pair consists of the displayed picture and the original.
    """
    path = program()
    if path is None:
        return None
    with tempfile.TemporaryDirectory(prefix="steadycast-vmaf-") as name:
        folder = Path(name)
        with (
            written(folder, "make room there, set TMPDIR, or leave VMAF out"),
            (folder / "shown.yuv").open("wb") as shown,
            (folder / "raw.yuv").open("wb") as raw,
        ):
            for pair in pairs:
                for file, picture in zip((shown, raw), pair, strict=True):
                    for plane in (picture.y, picture.u, picture.v):
                        file.write(plane.tobytes())
        read = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", f"{width}x{height}", "-r", str(fps), "-i"]
        command = [path, "-nostdin", "-v", "error", *read, "shown.yuv", *read, "raw.yuv"]
        command += ["-lavfi", "libvmaf=log_fmt=json:log_path=vmaf.json", "-f", "null", "-"]
        try:
            subprocess.run(command, cwd=folder, capture_output=True, timeout=3600, check=True)
            told = json.loads((folder / "vmaf.json").read_text())
            return float(told["pooled_metrics"]["vmaf"]["mean"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
            return None
