"""The demo: a run of a call beside a download, and a report that contains the worst picture that the viewer saw."""

from __future__ import annotations

from pathlib import Path

from steadycast.builtin import FOLDER
from steadycast.figure_prefetch import FigurePrefetcher
from steadycast.folder import Folder, Json
from steadycast.lazy_import import pl
from steadycast.progress import Progress
from steadycast.run import run


def demo(out: Path, *, force: bool, progress: Progress) -> tuple[Json, Path]:
    """Run the demo into the folder ``out``. Return the summary and the path of the report."""
    from steadycast.report.page import write_report
    from steadycast.report.pictures import side_by_side

    with FigurePrefetcher(out) as prefetcher:
        scenario = FOLDER / "demo.toml"
        done = run(scenario, out=out, force=force, progress=progress, film=True, recorded=prefetcher.draw)
        folder = Folder.open(out)
        pictures = side_by_side(folder, worst_frame(folder))
        return done.summary, write_report(folder, pictures=pictures, drawings=prefetcher.drawings())


def worst_frame(folder: Folder) -> int:
    """Return the display index of the frame that the viewer saw with the lowest luma PSNR.

    Return 0 if no frame was measured.
    """
    frames = folder.table("frames").filter(pl.col("psnr_y_db").is_not_null())
    return int(frames.sort("psnr_y_db", "frame")["display"][0]) if frames.height else 0
