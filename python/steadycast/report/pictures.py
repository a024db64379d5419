"""A frame as sent and as received, side by side."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.report import page
from steadycast.report.markup import Html, element, joined
from steadycast.report.rank import ranked_receivers
from steadycast.viewing import Record

if TYPE_CHECKING:
    from steadycast.media.metrics import Picture


def side_by_side(folder: Folder, frame: int) -> Html:
    """Show a frame of each video as it was recorded, sent, and seen by the median and the worst receiver."""
    record = Record.of(folder)
    parts = []
    for flow in folder.summary["flows"]:
        order = [r["name"] for r in ranked_receivers(flow)] if flow.get("kind") == "video" else []
        if not order:
            continue
        chosen = list(dict.fromkeys((order[len(order) // 2], order[0])))
        cells: list[Html] = []
        for receiver in chosen:
            view = record.viewer(flow["name"], receiver)
            if view is None:
                continue
            if frame >= view.slots:
                raise UserError(
                    f"--pictures {frame}",
                    f"{receiver} was sent {view.slots} frames",
                    f"name one below {view.slots}",
                )
            shown = view.shown(frame)
            if not cells:
                cells += [_cell(shown.raw, "original"), _cell(shown.encoded, "as sent")]
            rank = "worst" if receiver == order[0] else "median"
            which = rank if len(order) > 1 else "seen by"
            cells.append(_cell(shown.received, f"{which}: {receiver}"))
        if not cells:
            continue
        heading = f"Frame {frame} of {flow['name']}"
        parts.append(page.section(heading, element("div", *cells, class_="pair")))
    if not parts:
        raise UserError(str(folder.path), "there is no video in this run", "pictures need one")
    return joined(parts, "\n")


def _cell(picture: Picture, caption: str) -> Html:
    data = base64.b64encode(png(picture)).decode("ascii")
    image = element("img", alt=caption, src=f"data:image/png;base64,{data}")
    return element("figure", image, element("figcaption", caption))


def png(picture: Picture) -> bytes:
    """Turn a picture in Y, U, V (BT.601, as the clips are) into a PNG."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, rgb(picture), format="png")
    return buffer.getvalue()


def rgb(picture: Picture) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Turn 4:2:0 planes in video range into red, green and blue (BT.601)."""
    y = (picture.y.astype(np.float32) - 16) * (255 / 219)
    height, width = y.shape
    u, v = (
        np.repeat(np.repeat(plane.astype(np.float32) - 128, 2, axis=0), 2, axis=1)[:height, :width]
        * (255 / 224)
        for plane in (picture.u, picture.v)
    )
    red, green, blue = y + 1.402 * v, y - 0.344136 * u - 0.714136 * v, y + 1.772 * u
    return np.clip(np.round(np.stack([red, green, blue], axis=-1)), 0, 255).astype(np.uint8)
