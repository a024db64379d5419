"""The pictures of a source after scaling and resampling, in one memory-mapped file."""

import json
import zlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO

import av
import numpy as np

from steadycast.media import cache
from steadycast.media.clip import ClipError, Source
from steadycast.media.metrics import Picture
from steadycast.media.table import U8

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class RawVideo:
    """All pictures of a source, in 4:2:0."""

    width: int
    height: int
    fps: Fraction
    samples: U8
    """The samples, one row per picture. They are mapped from a file in the cache."""
    warnings: tuple[str, ...]
    """Problems of the source."""

    def __len__(self) -> int:
        return len(self.samples)

    def picture(self, index: int) -> Picture:
        """Return the planes of the picture with this index."""
        return Picture.of(np.asarray(self.samples[index]), self.width, self.height)


def raw_video(source: Source, size: str, fps: str | int | float | Fraction) -> RawVideo:
    """Return the pictures of ``source``. They are read from the cache if all of them are there."""
    name = cache.key(
        {
            "format": _FORMAT,
            "source": source.identity(),
            "size": size,
            "fps": str(fps),
            "libraries": [av.__version__, sorted(av.library_versions.items())],
        }
    )
    path = cache.folder() / f"{name}.yuv"
    about = path.with_suffix(".json")
    found = _load(path, about)
    if found is None:
        _store(source, size, fps, path, about)
        found = _load(path, about)
    if found is None:
        raise ClipError(
            str(path), "the cache lost a file while it was written", "start again, or empty the cache"
        )
    return found


def _load(path: Path, about: Path) -> RawVideo | None:
    try:
        facts = json.loads(about.read_text())
        width, height, count = int(facts["width"]), int(facts["height"]), int(facts["frames"])
        # The size is wrong if a process was killed while it wrote the file.
        if path.stat().st_size != count * width * height * 3 // 2:
            return None
        samples = np.memmap(path, dtype=np.uint8, mode="r", shape=(count, width * height * 3 // 2))
        # Compute the checksum in parts, so that the whole clip is never in memory.
        check = 0
        for start in range(0, count, 64):
            check = zlib.crc32(samples[start : start + 64].data, check)
        if check != facts["crc32"]:
            return None
        return RawVideo(width, height, Fraction(facts["fps"]), samples, tuple(map(str, facts["warnings"])))
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None  # the file is absent or damaged, so it is created again


def _store(source: Source, size: str, fps: str | int | float | Fraction, path: Path, about: Path) -> None:
    pictures = source.pictures(size, fps)
    count = check = 0

    def fill(file: IO[bytes]) -> None:
        nonlocal count, check
        for samples in pictures.frames:
            data = samples.data
            check = zlib.crc32(data, check)
            file.write(data)
            count += 1

    cache.write(path, fill)
    facts = {
        "width": pictures.width,
        "height": pictures.height,
        "fps": str(pictures.fps),
        "frames": count,
        "crc32": check,
        "warnings": pictures.warnings,
    }
    cache.write(about, lambda file: file.write(json.dumps(facts).encode()))
