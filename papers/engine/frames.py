"""Grades the pictures of a run against references other than the original of each display slot.

The Multi-Evalvid-RA paper compares "the encoded video at the sender side … with the one 'as seen' by the receivers",
frame by frame. A tool that numbers a decoder's output compares frame i of the original with the i-th decoded picture,
even if earlier frames were lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadycast.folder import Json
    from steadycast.media.ladder import Ladder
    from steadycast.media.quality import Quality
    from steadycast.result import Run


def graded(run: Run, ladders: Mapping[str, Ladder]) -> dict[str, Json]:
    """Return the grades of each video's first receiver by flow name: against the encoded pictures, and by index.

    Args:
        run: a run with pictures.
        ladders: the ladders of its flows. Pictures that the run has measured with these ladders are not decoded again.

    """
    from steadycast.media.metrics import opinion_classes
    from steadycast.viewing import FRAMES, MISSING, Record, Rows

    held = run.held()
    missing = Rows.of_frame(held.table("missing"), MISSING) if held.has("missing") else None
    record = Record((), ladders, Rows.of_frame(held.table("frames"), FRAMES), missing, held.summary["from_s"])
    found: dict[str, Json] = {}
    for flow in run.summary["flows"]:
        name = flow["name"]
        viewer = record.viewer(name, flow["receivers"][0]["name"]) if name in record.ladders else None
        if viewer is None:
            continue
        seen, index = viewer.quality(), viewer.quality(by="index")
        if seen is None or index is None:
            continue
        sent = opinion_classes(seen.psnr_encoded[:, 0])
        found[name] = {
            "sent": {str(n): round(float((sent == n).mean()), 6) for n in range(1, 6)},
            "index": {str(n): round(float((index.mos == n).mean()), 6) for n in range(1, 6)},
            "index_psnr_y_db": _rounded(index),
        }
    return found


def _rounded(seen: Quality) -> list[float]:
    """Return the luma PSNR of each frame in dB, at most `PSNR_CAP_DB`."""
    from steadycast.media.metrics import capped

    return [round(float(x), 2) for x in capped(seen.psnr_raw[:, 0])]
