"""Saves the received video of a run as a file: the picture on each viewer's screen, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import files
from steadycast.errors import UserError
from steadycast.film import FORMATS, OPTIONS
from steadycast.media.metrics import Picture

if TYPE_CHECKING:
    from steadycast.folder import Folder
    from steadycast.progress import Progress
    from steadycast.viewing import Viewer

_CONTAINERS = {
    ".yuv": ("rawvideo", "rawvideo", {}),
    ".y4m": ("yuv4mpegpipe", "rawvideo", {}),
    ".mkv": ("matroska", "ffv1", {}),
    **{f".{name}": (name, codec, OPTIONS[name]) for name, (codec, _) in FORMATS.items()},
}
"""The container, the encoder and its options for each suffix; the first three are lossless."""
ENDINGS = tuple(_CONTAINERS)
_ANOTHER = "make room, or give another --save-video PATH"


def checked(target: Path) -> Path:
    """Check the target of received videos, a folder or a file with a known suffix, and return it."""
    if target.suffix and target.suffix.lower() not in ENDINGS:
        ways = f"{', '.join(ENDINGS)}, or a folder's name without an ending"
        raise UserError(f"--save-video {target}", "a video can't be saved so", f"take {ways}")
    return target


def save(folder: Folder, target: Path, progress: Progress) -> list[Path]:
    """Save the displayed pictures of each receiver of each video: frame i is that of display slot i.

    A late or lost picture is replaced by the one on screen; the screen is black before the first picture.

    Args:
        folder: a run.
        target: a folder for lossless files FLOW-RECEIVER.mkv; or a file, to whose name -RECEIVER is added if there
            are several receivers.
        progress: callback that receives the number of finished slots.

    """
    from steadycast.viewing import Record

    record = Record.of(folder, progress)
    found = [
        (f"{flow['name']}-{receiver['name'].removeprefix(flow['name'] + '.')}", viewer)
        for flow in folder.summary["flows"]
        if flow["name"] in record.ladders
        for receiver in flow["receivers"]
        if (viewer := record.viewer(flow["name"], receiver["name"])) is not None
    ]
    if not found:
        raise UserError(str(folder.path), "no frame of a video was recorded", "run it for longer")
    single = checked(target).suffix != ""
    files.folder(target.parent if single else target, _ANOTHER)
    paths = []
    for n, (name, viewer) in enumerate(found):
        path = target if single else target / f"{name}.mkv"
        if single and len(found) > 1:
            path = target.with_stem(f"{target.stem}-{name}")
        _save(viewer, path, lambda done, n=n: progress("saving", n * 100 + done, len(found) * 100))  # type: ignore[misc]
        paths.append(path)
    return paths


def _save(viewer: Viewer, path: Path, told: Callable[[int], None]) -> None:
    ladder = viewer.ladder
    with (
        files.whole(path, _ANOTHER) as new,
        writer(path, new, ladder.width, ladder.height, ladder.table.fps) as put,
    ):
        for slot, seen in enumerate(viewer.pictures()):
            put(seen.received)
            if slot % 16 == 0:
                told(slot * 100 // viewer.slots)


@contextmanager
def writer(
    path: Path, new: Path, width: int, height: int, fps: Fraction
) -> Iterator[Callable[[Picture], None]]:
    """Write pictures into ``new``, in the format of the suffix of ``path``."""
    name, codec, options = _CONTAINERS[path.suffix.lower()]
    with files.media(new, "w", form=name) as out:
        stream: Any = out.add_stream(codec, rate=fps, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        yield lambda picture: out.mux(stream.encode(picture.frame()))
        out.mux(stream.encode())
