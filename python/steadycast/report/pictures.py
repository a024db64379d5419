"""Shows a frame as it was sent and as it was received, side by side."""

from __future__ import annotations

import base64
from fractions import Fraction
from typing import Any

import av

from steadycast.errors import UserError
from steadycast.folder import Folder
from steadycast.media.metrics import Picture
from steadycast.report import page
from steadycast.report.markup import Html, element, joined
from steadycast.report.rank import ranked_receivers
from steadycast.viewing import Record


def side_by_side(folder: Folder, frame: int) -> Html:
    """Show a frame of each video: the original, the frame as sent, and what the median and the worst receiver saw."""
    record = Record.of(folder)
    parts = []
    for flow in folder.summary["flows"]:
        order = [r["name"] for r in ranked_receivers(flow)] if flow.get("kind") == "video" else []
        if not order:
            continue
        # If there is a single receiver, it is both the median and the worst. Show it once.
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
    """Return a picture as a PNG. The picture has Y, U and V planes (BT.601, video range)."""
    frame = picture.frame().reformat(format="rgb24")
    encoder: Any = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "rgb24"
    encoder.time_base = Fraction(1, 25)
    return bytes(encoder.encode(frame)[0])
