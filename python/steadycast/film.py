"""The film of a run.

It shows the original and a viewer's pictures side by side in one file, so that they stay synchronous.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from steadycast.errors import MissingError
from steadycast.hints import named

if TYPE_CHECKING:
    from steadycast.folder import Json
    from steadycast.media.metrics import Picture
    from steadycast.viewing import Record, Viewer

FORMATS = {"mp4": ("libx264", "video/mp4"), "webm": ("libvpx-vp9", "video/webm")}
"""The supported containers. Each has an encoder and a media type."""
OPTIONS = {
    "mp4": {"preset": "ultrafast", "crf": "20", "tune": "zerolatency"},
    "webm": {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "0", "row-mt": "1"},
}
_GOP = 50

WORST_S = 10
"""The length of the film of a run's worst part, in seconds."""
MOST = 1_500_000
"""The largest size of the film, in bytes. As base64 in a page, it takes two million bytes."""
_TRIES = ((640, 33), (640, 45), (480, 54), (320, 60), (160, 63))
"""Pairs of a largest picture width and a quantizer. They are tried in order until the film is small enough."""
_RED = (81, 90, 240)
"""Colour of the border around a frozen picture: Y, U, V in BT.601."""
_EDGE = 4
"""Width of the border around a frozen picture, in samples. It must be even."""


@dataclass(frozen=True)
class Cut:
    """The part of a film that is encoded, and how it is encoded."""

    slots: range
    """The display slots of the part."""
    width: int | None = None
    """Larger pictures are scaled down to this width, in samples."""
    quantizer: int | None = None
    """The quantizer. `None` means the container's default."""
    marked: bool = False
    """Whether a frozen picture gets a red border. A picture is frozen if it is shown in a slot that is not its own."""
    most: int | None = None
    """The encoding is aborted if the film exceeds this size, in bytes."""


def film(
    viewers: Sequence[Viewer], kind: str, told: Callable[[int, int], None], cut: Cut | None = None
) -> bytes | None:
    """Encode the original and the pictures that the viewers saw, side by side.

    Args:
        viewers: viewers of one video flow, who watch the same clip.
        kind: the container, one of `FORMATS`.
        told: callback that receives the number of finished slots, and their total.
        cut: the slots, and how they are encoded. By default, all slots are encoded at full size.

    Returns: the content of the file, or `None` if it would exceed the largest size in ``cut``.

    """
    ladder = viewers[0].ladder
    cut = cut or Cut(range(min(viewer.slots for viewer in viewers)))
    columns = len(viewers) + 1
    options = dict(OPTIONS[kind])
    if cut.quantizer is not None:
        options["crf"] = str(cut.quantizer)
    factor = min(1.0, (cut.width or ladder.width) / ladder.width)
    # Make the sides even, because the colour planes have half the resolution (4:2:0).
    width, height = (max(2, round(side * factor / 2) * 2) for side in (ladder.width, ladder.height))
    buffer = io.BytesIO()
    with _encoding(kind), av.open(buffer, "w", format=kind, options={"fflags": "+bitexact"}) as out:
        stream = _stream(out, kind, ladder.table.fps, options, width * columns, height)
        sheet = np.empty((ladder.height * 3 // 2, ladder.width * columns), dtype=np.uint8)
        for n, (pictures, held) in enumerate(_rows(viewers, cut.slots)):
            if n % 16 == 0:
                told(n, len(cut.slots))
                if cut.most is not None and buffer.tell() > cut.most:
                    return None
            _side_by_side(sheet, pictures, ladder.width, ladder.height)
            if cut.marked:
                _frame(sheet, held, ladder.width, ladder.height)
            whole = av.VideoFrame.from_ndarray(sheet, format="yuv420p")
            if factor < 1:
                whole = whole.reformat(width=width * columns, height=height)
            out.mux(stream.encode(whole))
        out.mux(stream.encode())
    made = buffer.getvalue()
    return made if cut.most is None or len(made) <= cut.most else None


def _stream(out: Any, kind: str, rate: Any, options: dict[str, str], width: int, height: int) -> Any:
    stream = out.add_stream(FORMATS[kind][0], rate=rate, options=options)
    stream.width, stream.height = width, height
    stream.pix_fmt, stream.gop_size, stream.thread_count = "yuv420p", _GOP, 0
    return stream


def _rows(viewers: Sequence[Viewer], slots: range) -> Iterator[tuple[list[Picture], list[bool]]]:
    """Yield a list of pictures for each slot, with the original first. A second list says which pictures are frozen."""
    seen = [viewer.pictures(slots) for viewer in viewers]
    for slot, *rows in zip(slots, *seen, strict=False):
        yield [rows[0].raw, *(row.received for row in rows)], [False, *(row.of != slot for row in rows)]


def _planes(sheet: Any, height: int) -> tuple[Any, Any]:
    """Return views of the luma plane and of the two chroma planes."""
    return sheet[:height], sheet[height:].reshape(2, height // 2, sheet.shape[1] // 2)


def _side_by_side(sheet: Any, pictures: Sequence[Picture], width: int, height: int) -> None:
    luma, chroma = _planes(sheet, height)
    for n, picture in enumerate(pictures):
        luma[:, n * width : (n + 1) * width] = picture.y
        for plane, part in zip(chroma, (picture.u, picture.v), strict=True):
            plane[:, n * width // 2 : (n + 1) * width // 2] = part


def _frame(sheet: Any, held: Sequence[bool], width: int, height: int) -> None:
    luma, chroma = _planes(sheet, height)
    for plane, colour, part in zip((luma, *chroma), _RED, (1, 2, 2), strict=True):
        edge, wide = _EDGE // part, width // part
        for n, is_held in enumerate(held):
            if is_held:
                mine = plane[:, n * wide : (n + 1) * wide]
                mine[:edge] = mine[-edge:] = mine[:, :edge] = mine[:, -edge:] = colour


def smaller(data: bytes, most: int) -> bytes | None:
    """Encode a film in WebM again, so that it has at most ``most`` bytes.

    Returns: the film, or `None` if this size needs too low a quality, or if the film is damaged.
    """
    if len(data) <= most:
        return data
    try:
        tries = (_again(data, width, quantizer) for width, quantizer in _TRIES[1:])
        return next((made for made in tries if len(made) <= most), None)
    except av.error.InvalidDataError:
        return None


def _again(data: bytes, width: int, quantizer: int) -> bytes:
    options = {**OPTIONS["webm"], "crf": str(quantizer)}
    buffer = io.BytesIO()
    with (
        _encoding("webm"),
        av.open(io.BytesIO(data)) as film,
        av.open(buffer, "w", format="webm", options={"fflags": "+bitexact"}) as out,
    ):
        pictures: Any = film
        source = pictures.streams.video[0]
        factor = min(1.0, 2 * width / source.width)
        # Make the sides even, because the colour planes have half the resolution (4:2:0).
        sides = (round(side * factor / 2) * 2 for side in (source.width, source.height))
        stream = _stream(out, "webm", source.average_rate, options, *sides)
        for picture in pictures.decode(source):
            out.mux(stream.encode(picture.reformat(width=stream.width, height=stream.height)))
        out.mux(stream.encode())
    return buffer.getvalue()


# ---------------------------------------------------------------- the worst seconds of a run


def worst_seconds(
    record: Record, flows: Sequence[Json], told: Callable[[int, int], None]
) -> tuple[Json, bytes] | None:
    """Create the film of the worst ten seconds of a run.

    The film shows one receiver. It is the receiver with the lowest fraction of intact and punctual frames, among the
    worst receivers of all videos.

    The worst ten seconds have the fewest intact and punctual frames. If several intervals are equal, the lowest mean
    PSNR decides, then the earliest time.

    Returns: a description (`flow`, `receiver`, `from_s`, `to_s`, frames by their fates) and the film, or `None` if
    there are no pictures, or no quantizer makes the film small enough.
    """
    found = _worst_viewer(record, flows)
    if found is None:
        return None
    flow, receiver, viewer = found
    slots = _worst_slots(record, viewer)
    for n, (width, quantizer) in enumerate(_TRIES):
        cut = Cut(slots, width, quantizer, marked=True, most=MOST)
        made = film([viewer], "webm", lambda done, of, n=n: told(n * of + done, (n + 1) * of), cut)  # type: ignore[misc]
        if made is not None:
            return _facts(record, viewer, flow, receiver, slots), made
    return None


def _worst_viewer(record: Record, flows: Sequence[Json]) -> tuple[str, str, Viewer] | None:
    from steadycast.report.rank import ranked_receivers

    def whole(receiver: Json) -> float:
        share = (receiver.get("frames") or {}).get("ok_frac")
        return float(share) if isinstance(share, int | float) else 1.0

    worst = [
        (ranked_receivers(flow)[0], flow["name"])
        for flow in flows
        if flow["name"] in record.ladders and flow.get("receivers")
    ]
    for receiver, flow in sorted(worst, key=lambda each: whole(each[0])):
        viewer = record.viewer(flow, receiver["name"])
        if viewer is not None and viewer.slots > viewer.counted_from:
            return flow, receiver["name"], viewer
    return None


def _worst_slots(record: Record, viewer: Viewer) -> range:
    rows = record.frames.where(viewer.rows)
    rows = rows.where(rows["display"] < viewer.slots)
    first, after = int(rows["display"].min()), int(rows["display"].max()) + 1
    length = min(round(WORST_S * viewer.ladder.table.fps), after - first)
    missed, psnr = np.zeros(after), np.zeros(after)
    missed[rows["display"]] = ~rows.are("fate", "ok")
    if "psnr_y_db" in rows.columns:
        psnr[rows["display"]] = np.nan_to_num(rows["psnr_y_db"])

    def over(values: Any) -> Any:
        sums = np.concatenate([[0.0], np.cumsum(values[first:])])
        return np.round(sums[length:] - sums[:-length], 6)

    # `lexsort` uses the last key first, and keeps the order of equal intervals. So the earliest worst interval is
    # first.
    at = first + int(np.lexsort((over(psnr), -over(missed)))[0])
    return range(at, at + length)


@contextmanager
def _encoding(kind: str) -> Iterator[None]:
    """Convert errors of the encoder to an error that says what is missing: a part of FFmpeg, or memory."""
    try:
        yield
    except av.error.InvalidDataError:
        raise  # an error of the decoder
    except av.error.FFmpegError as error:
        problem = f"FFmpeg's {FORMATS[kind][0]} can't encode it ({error.strerror})"
        without = named("--no-film", "film=False")
        raise MissingError("the film", problem, f"make room in memory, or leave it out: {without}") from error


def _facts(record: Record, viewer: Viewer, flow: str, receiver: str, slots: range) -> Json:
    rows = record.frames.where(viewer.rows)
    rows = rows.where((rows["display"] >= slots.start) & (rows["display"] < slots.stop))
    last = float(1 / viewer.ladder.table.fps)
    fates = {fate: rows.are("fate", fate) for fate in ("ok", "late", "lost", "undecodable")}
    # The core's fate of a frame that the sender skipped is "lost", too. Only its packets were never sent.
    skipped = np.isnan(rows["sent_s"])
    fates |= {"lost": fates["lost"] & ~skipped, "skipped": fates["lost"] & skipped}
    return {
        "flow": flow,
        "receiver": receiver,
        "from_s": round(float(rows["pts_s"].min()), 3),
        "to_s": round(float(rows["pts_s"].max()) + last, 3),
        "slots": len(slots),
        "frames": {fate: int(np.count_nonzero(those)) for fate, those in fates.items()},
    }
