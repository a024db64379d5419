"""Compares two video files frame by frame. It measures PSNR, SSIM, VMAF and the opinion score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steadycast.errors import UserError
from steadycast.files import whole
from steadycast.lazy_import import pl
from steadycast.media import metrics
from steadycast.media import vmaf as vmaf_of
from steadycast.media.clip import opened, own_rate, parse_fps, parse_raw_size, resampled
from steadycast.media.metrics import Picture
from steadycast.media.quality import need_by
from steadycast.media.table import F64, U8
from steadycast.media.yuv import Layout, is_raw

if TYPE_CHECKING:
    from rich.table import Table

    from steadycast.folder import Json
    from steadycast.media.reader import Reader
    from steadycast.progress import Progress

PLANES = ("y", "u", "v", "all")


@dataclass(frozen=True, eq=False)
class Compared:
    """The measured quality of each frame of the original. The PSNR of identical pictures is infinite."""

    fps: Fraction
    psnr_db: F64
    """PSNR in dB of Y, U and V, and of all samples together (`overall_db`). There is one row per frame."""
    ssim: F64
    vmaf: float | None
    frames: tuple[int, int]
    """Number of frames in the original and in the received file."""
    warnings: tuple[str, ...]

    @property
    def mos(self) -> U8:
        """Opinion score of each frame, from 1 to 5, from its luma PSNR."""
        return metrics.opinion_classes(self.psnr_db[:, 0])

    def json(self) -> Json:
        """Return the results. The mean PSNR is computed by `metrics.mean_db`."""
        means = {plane: metrics.mean_db(self.psnr_db[:, i]) for i, plane in enumerate(PLANES)}
        count = len(self.ssim)
        share = {str(grade): int(np.count_nonzero(self.mos == grade)) / count for grade in range(1, 6)}
        return {
            "frames": count,
            "original_frames": self.frames[0],
            "received_frames": self.frames[1],
            "identical_frames": int(np.count_nonzero(~np.isfinite(self.psnr_db[:, 3]))),
            "psnr_db": means,
            "ssim": float(self.ssim.mean()),
            "vmaf": self.vmaf,
            "mos": {"mean": float(self.mos.mean()), "share": share},
        }

    def frame_table(self) -> pl.DataFrame:
        """Return a table that has a row per frame. PSNR values are capped at `PSNR_CAP_DB`."""
        number = np.arange(len(self.ssim))
        psnr = metrics.capped(self.psnr_db)
        named = {f"psnr_{plane}_db": psnr[:, i] for i, plane in enumerate(PLANES)}
        times = number / float(self.fps)
        return pl.DataFrame({"frame": number, "time_s": times, **named, "ssim": self.ssim, "mos": self.mos})


def compare(
    original: Path,
    received: Path,
    by: str = "time",
    *,
    size: str | None = None,
    fps: str | None = None,
    pixels: str | None = None,
    vmaf: bool = False,
    progress: Progress | None = None,
) -> Compared:
    """Compare a received file with the original. The comparison ends when the shorter of the two files ends.

    Args:
        original: a video file.
        received: a video file. Its pictures are scaled to the size of the original's pictures.
        by: how pictures are paired, one of `BY`. With ``time``, an original picture is compared with the received
            picture that is on screen at its time. With ``index``, it is compared with the received frame that has the
            same number, even if earlier frames were lost.
        size: the size of raw files whose names do not contain it.
        fps: the pictures per second of such raw files.
        pixels: FFmpeg's name for the pixel format of raw files. It takes precedence over a format in their names.
        vmaf: measure VMAF as well.
        progress: callback that receives the number of finished frames.

    """
    need_by(by)
    raw = [path for path in (original, received) if is_raw(path)]
    if not raw and (
        given := [n for n, v in (("--size", size), ("--fps", fps), ("--pixel-format", pixels)) if v]
    ):
        raise UserError(given[0], "it is for raw files (.yuv), and neither is one", "leave it out")
    if vmaf:
        vmaf_of.need()
    told = Layout(
        None if size in (None, "clip", "auto") else parse_raw_size(size, "--size"),
        None if fps is None else parse_fps(fps, Fraction(0), "--fps"),
        pixels,
    )
    with _Pair(original, received, told, by) as pair:
        rows = []
        for n, (ours, theirs) in enumerate(pair.pictures()):
            psnr = metrics.picture_psnr_db(theirs, ours)
            rows.append((*psnr, metrics.overall_db(*psnr), metrics.picture_ssim(theirs, ours)))
            if progress is not None and n % 16 == 0:
                progress("measuring", n, pair.about(n))
        if not rows:
            raise UserError(
                str(received), "there is no frame to compare", "play both files with another program"
            )
        values = np.array(rows)
        frames, warnings = (pair.counts[0], pair.counts[1]), pair.warnings()
    score = None
    if vmaf:
        # Open the files again, because the first pass has consumed their pictures.
        with _Pair(original, received, told, by) as pair:
            shown = ((theirs, ours) for ours, theirs in pair.pictures())
            score = vmaf_of.vmaf(shown, pair.width, pair.height, pair.fps)
    return Compared(pair.fps, values[:, :4], values[:, 4], score, frames, warnings)


class _Pair:
    def __init__(self, original: Path, received: Path, told: Layout, by: str) -> None:
        self.original, self.by, self.counts = opened(original, told), by, [0, 0]
        try:
            self.received = opened(received, told)
        # Close the first file here, because `__exit__` isn't called if opening the second file fails.
        except BaseException:
            self.original.__exit__()
            raise
        facts = self.original.facts
        self.width, self.height = facts.width // 2 * 2, facts.height // 2 * 2
        self.fps = own_rate(self.original, "clip")

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.original.__exit__()
        self.received.__exit__()

    def pictures(self) -> Iterator[tuple[Picture, Picture]]:
        """Yield pairs of pictures until one of the files ends. All pictures of both files are counted."""
        for n, pair in enumerate(zip_longest(self._of(self.original), self._of(self.received))):
            for i, samples in enumerate(pair):
                self.counts[i] = n + 1 if samples is not None else self.counts[i]
            if pair[0] is not None and pair[1] is not None:
                ours, theirs = (Picture.of(samples, self.width, self.height) for samples in pair)
                yield ours, theirs

    def _of(self, reader: Reader) -> Iterator[U8]:
        timed = reader.pictures(self.width, self.height)
        return resampled(timed, self.fps, reader.length) if self.by == "time" else (each for _, each in timed)

    def about(self, done: int) -> int:
        """Return an estimate of the total number of pairs. ``done`` pairs are finished."""
        length = self.original.length
        return max(done + 1, round(length * self.fps)) if length else done + 1

    def warnings(self) -> tuple[str, ...]:
        """Return the problems of the two files, and the differences between them."""
        said = [*self.original.warnings, *self.received.warnings]
        size = (self.received.facts.width, self.received.facts.height)
        if size != (self.width, self.height):
            said.append(f"pictures of {size[0]}x{size[1]} are scaled to {self.width}x{self.height}")
        if self.counts[0] != self.counts[1]:
            ours, theirs = self.counts
            said.append(
                f"the original has {ours} frames, the other file {theirs}: {min(self.counts)} are compared"
            )
        return tuple(dict.fromkeys(said))


def table(compared: Compared) -> Table:
    """Return the results as a table for a terminal."""
    from steadycast.report import say, terminal

    figures = compared.json()
    psnr, score = figures["psnr_db"], compared.vmaf
    result = terminal.plain(
        "frames", "PSNR Y", "U", "V", "all", "SSIM", *(["VMAF"] if score is not None else []), "MOS"
    )
    planes = [say.db(psnr[plane]) for plane in PLANES]
    known = [f"{score:.1f}"] if score is not None else []
    mos = say.score(figures["mos"]["mean"])
    result.add_row(str(figures["frames"]), *planes, say.plain(figures["ssim"]), *known, mos)
    return result


def grades(compared: Compared) -> str:
    """Return the fraction of frames in each opinion class, as text."""
    from steadycast import style
    from steadycast.report import say

    share = compared.json()["mos"]["share"]
    return ", ".join(
        f"{word} {say.frac(share[str(grade)])}" for grade, (word, _) in sorted(style.MOS.items())[::-1]
    )


def save(compared: Compared, path: Path) -> Path:
    """Write a row for each frame. The suffix of ``path`` selects CSV or Parquet."""
    return save_table(compared.frame_table(), path)


def save_table(table: pl.DataFrame, path: Path) -> Path:
    """Write a table. The suffix of ``path`` selects CSV or Parquet."""
    writers: dict[str, Callable[[Path], object]] = {".csv": table.write_csv, ".parquet": table.write_parquet}
    if path.suffix not in writers:
        raise UserError(
            f"--out {path}", "a table can't be saved in this format", "end the name in .csv or .parquet"
        )
    with whole(path, "give another --out FILE") as new:
        writers[path.suffix](new)
    return path
