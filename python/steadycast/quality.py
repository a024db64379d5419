"""Measures the pictures at the receivers of a run again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steadycast import record as record_of
from steadycast.errors import UserError
from steadycast.folder import Folder, Json
from steadycast.report import say
from steadycast.report.rank import ranked_receivers

if TYPE_CHECKING:
    from rich.table import Table

    from steadycast.progress import Progress

COLUMNS = record_of.table("quality")
MEASURED = ("name", *record_of.FREEZES, *dict.fromkeys(c.figure.key.partition(".")[0] for c in COLUMNS))


def measure(
    folder: Folder, progress: Progress | None = None, *, by: str = "time", vmaf: bool = False
) -> list[Json]:
    """Measure the quality of each video at each of its receivers.

    For each video, the receiver with the worst quality comes first. The results have the format of summary.json. ``by``
    is one of `media.quality.BY`. With "index", no picture is shown twice, so the results contain no freezes.
    """
    from steadycast.media.quality import need_by
    from steadycast.viewing import Record

    need_by(by)
    if vmaf:
        from steadycast.media.vmaf import need

        need()
    record = Record.of(folder, progress)
    # Copy the flows, because `Record.measure` changes them.
    flows = [copy.deepcopy(f) for f in folder.summary["flows"] if f["name"] in record.ladders]
    record.measure(flows, progress, by=by, vmaf=vmaf)
    rows = [
        {key: receiver.get(key) for key in MEASURED if by == "time" or key not in record_of.FREEZES}
        for flow in flows
        for receiver in ranked_receivers(flow)
        if receiver["mos"] is not None
    ]
    if not rows:
        raise UserError(str(folder.path), "no frame of a video was recorded", "run it for longer")
    return rows


def table(rows: Sequence[Json]) -> Table:
    """Return the results of the receivers as a table for a terminal."""
    from steadycast.report import terminal

    measured = [c for c in COLUMNS if any(c.of(row) is not None for row in rows) or c.figure.key != "vmaf"]
    result = terminal.plain("receiver", *(column.heading for column in measured))
    for row in rows:
        result.add_row(str(row["name"]), *say.cells(measured, row))
    return result
