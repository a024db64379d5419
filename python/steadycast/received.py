"""Saves the received video of a run as a file. It contains what a viewer's screen showed in each frame interval."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import files
from steadycast.errors import UnwrittenError, UserError
from steadycast.film import FORMATS, OPTIONS
from steadycast.media.metrics import Picture

if TYPE_CHECKING:
    from steadycast.folder import Folder
    from steadycast.progress import Progress
    from steadycast.received_audio import Track
    from steadycast.viewing import Viewer

_CONTAINERS = {
    ".yuv": ("rawvideo", "rawvideo", {}),
    ".y4m": ("yuv4mpegpipe", "rawvideo", {}),
    ".mkv": ("matroska", "ffv1", {}),
    **{f".{name}": (name, codec, OPTIONS[name]) for name, (codec, _) in FORMATS.items()},
}
"""Container, encoder and options for each suffix. The first three formats are lossless."""
ENDINGS = tuple(_CONTAINERS)
ANOTHER = "make room, or give another --save-video PATH"
_MUCH_BYTES = 1 << 30
"""A warning is printed if the estimated size of all videos together is at least this, in bytes."""
SAMPLE = 24
"""Number of pictures that are encoded to estimate the size of a file."""


def checked(target: Path) -> Path:
    """Check that ``target`` is a folder, or a file whose suffix is known. Return it unchanged."""
    if target.suffix and target.suffix.lower() not in ENDINGS:
        ways = f"{', '.join(ENDINGS)}, or a folder's name without an ending"
        raise UserError(
            f"--save-video {target}", "a video can't be saved in this format", f"choose from: {ways}"
        )
    return target


def save(folder: Folder, target: Path, progress: Progress) -> list[Path]:
    """Save the pictures that each receiver of each video has displayed.

    Frame i of a file is the picture of display slot i. If a picture is late or lost, the file repeats the picture on
    screen, which is black at the beginning. The second track is the received sound. A warning is printed if the sound
    can't be kept.

    Args:
        folder: a run.
        target: a folder for lossless files FLOW-RECEIVER.mkv, or a file. If there are several receivers, -FLOW-RECEIVER
            is added to the name of the file.
        progress: callback that receives the number of finished slots.

    """
    from steadycast.received_audio import tracks_of
    from steadycast.viewing import Record

    record = Record.of(folder, progress)
    track_of = tracks_of(folder, record, target)
    found = [
        (
            f"{flow['name']}-{receiver['name'].removeprefix(flow['name'] + '.')}",
            viewer,
            track_of(flow["name"], receiver["name"], viewer),
        )
        for flow in folder.summary["flows"]
        if flow["name"] in record.ladders
        for receiver in flow["receivers"]
        if (viewer := record.viewer(flow["name"], receiver["name"])) is not None
    ]
    if not found:
        raise UserError(str(folder.path), "no frame of a video was recorded", "run it for longer")
    single = checked(target).suffix != ""
    files.folder(target.parent if single else target, ANOTHER)
    paths = []
    need_room(target, sum(_estimated_bytes(target, viewer, track) for _, viewer, track in found), len(found))
    for n, (name, viewer, track) in enumerate(found):
        path = target if single else target / f"{name}.mkv"
        if single and len(found) > 1:
            path = target.with_stem(f"{target.stem}-{name}")
        _save(viewer, track, path, lambda done, n=n: progress("saving", n * 100 + done, len(found) * 100))  # type: ignore[misc]
        paths.append(path)
    return paths


def need_room(target: Path, estimated_bytes: int, videos: int = 1) -> None:
    """Print a warning if the estimated size of the videos is large.

    Raises:
        UnwrittenError: the videos are estimated to need more space than is free on the disk.

    """
    free = shutil.disk_usage(target.parent if target.suffix else target).free
    takes = "a video takes" if videos == 1 else f"{videos} videos take"
    if estimated_bytes > free:
        what = f"{takes} about {_gigabytes(estimated_bytes)}, and {_gigabytes(free)} are free"
        raise UnwrittenError(str(target), what, f"{ANOTHER}; .mp4 takes less than .yuv, .y4m and .mkv")
    if estimated_bytes >= _MUCH_BYTES:
        print(f"warning: {target}: {takes} about {_gigabytes(estimated_bytes)}", file=sys.stderr)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def estimated_bytes(target: Path, pictures: Sequence[Picture], fps: Fraction, count: int) -> int:
    """Estimate the size of a file of ``count`` pictures, in bytes.

    For `.yuv` and `.y4m`, the size is computed. For other formats, ``pictures`` are encoded as a sample.
    """
    height, width = (int(side) for side in pictures[0].y.shape)
    if target.suffix.lower() in (".yuv", ".y4m"):
        return count * width * height * 3 // 2
    ending = target.suffix.lower() or ".mkv"
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / f"sample{ending}"
        with writer(sample, sample, width, height, fps) as put:
            for picture in pictures:
                put(picture)
        return sample.stat().st_size * count // len(pictures)


def _estimated_bytes(target: Path, viewer: Viewer, track: Track | None) -> int:
    raw, slots = viewer.ladder.raw, viewer.slots
    # Take the sample from the middle of the clip.
    first = max(0, viewer.ladder.table.frames // 2 - SAMPLE // 2)
    last = min(first + SAMPLE, viewer.ladder.table.frames)
    sample = [raw.picture(place) for place in range(first, last)]
    sound = 0 if track is None else track.most_bytes(target.suffix.lower() or ".mkv")
    return sound + estimated_bytes(target, sample, viewer.ladder.table.fps, slots)


def _save(viewer: Viewer, track: Track | None, path: Path, told: Callable[[int], None]) -> None:
    ladder = viewer.ladder
    with (
        files.whole(path, ANOTHER) as new,
        writer(path, new, ladder.width, ladder.height, ladder.table.fps, track) as put,
    ):
        for slot, seen in enumerate(viewer.pictures()):
            put(seen.received)
            if slot % 16 == 0:
                told(slot * 100 // viewer.slots)


@contextmanager
def writer(
    path: Path, new: Path, width: int, height: int, fps: Fraction, track: Track | None = None
) -> Iterator[Callable[[Picture], None]]:
    """Write pictures and the sound track into ``new``. The format follows from the suffix of ``path``."""
    name, codec, options = _CONTAINERS[path.suffix.lower()]
    with files.media(new, "w", form=name) as out:
        stream: Any = out.add_stream(codec, rate=fps, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        sound = None if track is None else track.into(out, path.suffix.lower())
        count = 0

        def put(picture: Picture) -> None:
            nonlocal count
            out.mux(stream.encode(picture.frame()))
            count += 1
            if sound is not None:
                sound.write(count / fps)

        yield put
        out.mux(stream.encode())
        if sound is not None:
            sound.end()
