"""Measures again what the receivers of a run saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steadycast.errors import UserError
from steadycast.folder import Folder, Json
from steadycast.report import say
from steadycast.report.answer import reach
from steadycast.report.rank import ranked_receivers
from steadycast.report.viewer import ladder_of, viewer

if TYPE_CHECKING:
    from rich.table import Table

    from steadycast.progress import Progress


def measure(folder: Folder, progress: Progress | None = None) -> list[Json]:
    """Decode and measure each receiver of each video, worst first, as summary.json's receivers have it.

    Raises:
        UserError: there is no video, or no pixels stand behind it.

    """
    result: list[Json] = []
    for flow in folder.summary["flows"]:
        receivers = flow.get("receivers") or [] if flow.get("kind") == "video" else []
        if not receivers:
            continue
        ladder = ladder_of(folder, flow, progress)
        rows = []
        for i, receiver in enumerate(receivers):
            if progress is not None:
                progress(f"measuring {flow['name']}", i, len(receivers))
            seen = viewer(folder, flow, receiver["name"], ladder).quality()
            if seen is None:
                continue
            planes = ("y", "u", "v")
            rows.append(
                {
                    "name": receiver["name"],
                    "psnr_db": {
                        "raw": dict(zip(planes, seen.mean_psnr_raw(), strict=True)),
                        "encoded": dict(zip(planes, seen.mean_psnr_encoded(), strict=True)),
                    },
                    "ssim": seen.mean_ssim(),
                    "vmaf": seen.vmaf,
                    "mos": {
                        "mean": seen.mean_mos(),
                        "share": {str(k): v for k, v in seen.mos_share().items()},
                    },
                    "freeze_count": seen.freeze_count,
                    "freeze_s": seen.freeze_s,
                }
            )
        result += ranked_receivers({"receivers": rows})
    if not result:
        raise UserError(str(folder.path), "there is no video in this run", "quality needs one")
    return result


def table(rows: Sequence[Json]) -> Table:
    """Show the receivers in a terminal."""
    from steadycast.report import terminal

    result = terminal.plain("receiver", "PSNR", "against sent", "SSIM", "MOS", "freezes")
    for row in rows:
        freezes = f"{say.count(row['freeze_count'])} / {say.seconds(row['freeze_s'])}"
        result.add_row(
            str(row["name"]),
            say.db(reach(row, "psnr_db", "raw", "y")),
            say.db(reach(row, "psnr_db", "encoded", "y")),
            say.plain(row["ssim"]),
            say.score(reach(row, "mos", "mean")),
            freezes,
        )
    return result
