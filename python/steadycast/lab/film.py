"""The film of a run: the original and what a viewer saw of it, side by side in one file, so that they can't drift."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from steadycast.media.metrics import Picture
    from steadycast.viewing import Viewer

FORMATS = {"mp4": ("libx264", "video/mp4"), "webm": ("libvpx-vp9", "video/webm")}
"""Containers, with the encoder and the type of each."""
_OPTIONS = {
    "mp4": {"preset": "ultrafast", "crf": "20", "tune": "zerolatency"},
    "webm": {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "0", "row-mt": "1"},
}
_GOP = 50


def film(viewers: Sequence[Viewer], kind: str, told: Callable[[int, int], None]) -> bytes:
    """Encode the original and the picture on each viewer's screen, side by side, slot by slot.

    Args:
        viewers: of one video flow: they watch the same clip.
        kind: the container, one of `FORMATS`.
        told: told how many slots of how many are done.

    """
    ladder = viewers[0].ladder
    slots = min(viewer.slots for viewer in viewers)
    columns = len(viewers) + 1
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as out:
        stream: Any = out.add_stream(FORMATS[kind][0], rate=ladder.table.fps, options=_OPTIONS[kind])
        stream.width, stream.height = ladder.width * columns, ladder.height
        stream.pix_fmt = "yuv420p"
        stream.gop_size = _GOP
        stream.thread_count = 0
        sheet = np.empty((ladder.height * 3 // 2, ladder.width * columns), dtype=np.uint8)
        for slot, pictures in enumerate(_rows(viewers, slots)):
            if slot % 16 == 0:
                told(slot, slots)
            _side_by_side(sheet, pictures, ladder.width, ladder.height)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(sheet, format="yuv420p")))
        out.mux(stream.encode())
    return buffer.getvalue()


def _rows(viewers: Sequence[Viewer], slots: int) -> Iterator[list[Picture]]:
    seen = [viewer.pictures() for viewer in viewers]
    for _, *rows in zip(range(slots), *seen, strict=False):
        yield [rows[0][0], *(received for _, received in rows)]


def _side_by_side(sheet: Any, pictures: Sequence[Picture], width: int, height: int) -> None:
    """Put 4:2:0 pictures next to each other on a sheet as FFmpeg lays one out: Y, then U, then V, row by row."""
    columns = len(pictures)
    chroma = sheet[height:].reshape(2, height // 2, columns * width // 2)
    for n, picture in enumerate(pictures):
        sheet[:height, n * width : (n + 1) * width] = picture.y
        for plane, part in zip(chroma, (picture.u, picture.v), strict=True):
            plane[:, n * width // 2 : (n + 1) * width // 2] = part
