"""Files of pictures, beside runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from steadycast.cli import base
from steadycast.cli.base import argument, option


@base.command(
    "Measure a video file against its original.",
    "steadycast psnr original.yuv received.yuv --size cif --fps 25",
    "steadycast psnr original.mkv received.mkv --out frames.csv",
    "steadycast psnr original_cif.yuv received_cif.yuv --fps 25 --by index",
)
def psnr(
    original: Annotated[Path, argument("ORIGINAL", "The video as it was.")],
    received: Annotated[Path, argument("RECEIVED", "The video as it is shown.")],
    by: base.By = "time",
    size: base.Size = "clip",
    fps: base.Fps = "clip",
    pixels: base.Pixels = None,
    out: Annotated[
        Path | None, option("-o --out FILE", "Save each frame's figures: .csv or .parquet.")
    ] = None,
    vmaf: base.Vmaf = False,
    as_json: base.AsJson = False,
) -> None:
    """Compare two video files frame by frame: PSNR of Y, U, V and all samples, SSIM, opinion class."""
    from steadycast.media.ladder import as_options
    from steadycast.progress import Terminal

    comparing = base.module("steadycast.psnr")
    with as_options(), Terminal() as progress:
        told = {"size": None if size == "clip" else size, "fps": None if fps == "clip" else fps}
        compared = comparing.compare(
            original, received, by, **told, pixels=pixels, vmaf=vmaf, progress=progress
        )
    base.warn(compared.warnings)
    if as_json:
        base.print_json(compared.json())
    else:
        base.show(comparing.table(compared))
        print(comparing.grades(compared))
    if out is not None:
        written = comparing.save(compared, out)
        if not as_json:
            print(written)
