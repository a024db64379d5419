"""The main job, small: asmp beside TCP, to a report with the picture that the viewer saw."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from steadycast.errors import UserError
from steadycast.exits import Exit
from steadycast.folder import Folder
from steadycast.progress import Terminal
from steadycast.report import terminal, write_report
from steadycast.report.pictures import side_by_side
from steadycast.run import run

ROOT = Path(__file__).resolve().parent.parent
OUT = Path("runs/demo")


def main() -> int:
    """Run, write, name the report."""
    began = time.perf_counter()
    with Terminal() as progress:
        done = run(ROOT / "scenarios" / "demo.toml", out=OUT, force=True, progress=progress)
        folder = Folder.open(OUT)
        report = write_report(folder, pictures=side_by_side(folder, worst_frame(folder)))
    console = terminal.console()
    console.print(terminal.flows(done.summary))
    for warning in done.summary["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"\n{time.perf_counter() - began:.0f} s; report: {report}")
    return 0


def worst_frame(folder: Folder) -> int:
    """Return the picture in which the viewer lost most."""
    import polars as pl

    frames = folder.table("frames").filter(pl.col("psnr_y_db").is_not_null())
    return int(frames.sort("psnr_y_db", "frame")["display"][0]) if frames.height else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
