"""Measures the cost of a ladder: `steadycast encode` compared with thirty plain ffmpeg encodes of the same clips.

    python -m validation.encode_bench CLIP...
    python -m validation.encode_bench CLIP... --size cif --fps 25 --rounds 3

Both write thirty MPEG-4 streams of the same size, frame rate and groups of pictures on the same cores. Steadycast uses
one encoder per core and fills an empty cache; ffmpeg is one single-threaded process per core. The programs alternate,
and the median counts. Bound: Steadycast takes at most 1.3 times as long.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from steadycast.errors import MissingError, UserError

from validation import page

QS = range(2, 32)
AIM = 1.3


def ffmpeg(words: Sequence[str], out: Path) -> None:
    """Make a file from clips with FFmpeg."""
    command = ["ffmpeg", "-v", "error", *words, "-y", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        raise MissingError("ffmpeg", "it is not installed", "install it") from None
    if done.returncode != 0:
        raise UserError("ffmpeg", done.stderr.strip() or "it made nothing", "give other clips")


def plain(clips: Sequence[Path], size: tuple[int, int], fps: str, gop: int) -> tuple[float, int]:
    """Return the seconds for thirty plain encodes, and the number of bytes."""
    from steadycast.workers import cores

    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "clips.txt"
        # FFmpeg's file lists quote like a shell.
        quoted = (str(clip.resolve()).replace("'", "'\\''") for clip in clips)
        listed.write_text("".join(f"file '{clip}'\n" for clip in quoted), encoding="utf-8")

        def one(q: int) -> int:
            out = Path(folder) / f"{q}.avi"
            scale = f"scale={size[0]}:{size[1]},fps={fps}"
            words = ["-threads", "1", "-f", "concat", "-safe", "0", "-i", str(listed), "-an", "-vf", scale]
            words += ["-c:v", "mpeg4", "-threads", "1", "-qscale:v", str(q), "-g", str(gop), "-bf", "2"]
            ffmpeg(words, out)
            return out.stat().st_size

        begun = time.perf_counter()
        with ThreadPoolExecutor(cores()) as pool:
            made = sum(pool.map(one, QS))
        return time.perf_counter() - begun, made


def ours(
    clips: Sequence[Path], size: str, fps: str, gop: int
) -> tuple[float, int, tuple[int, int], str, int]:
    """Return the seconds for a ladder from an empty cache, its bytes, and the size, rate and number of its pictures."""
    from steadycast.media.clip import Clip
    from steadycast.media.ladder import encode_ladder

    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, STEADYCAST_CACHE=folder):
        begun = time.perf_counter()
        ladder = encode_ladder(Clip.of(list(clips)), "mpeg4", size, fps, gop)
        took = time.perf_counter() - begun
    made = sum(len(rung.data) for rung in ladder.rungs)
    table = ladder.table
    return took, made, (ladder.width, ladder.height), str(table.fps), table.frames


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a line for each program."""
    parser = page.options("validation.encode_bench", __doc__)
    parser.add_argument("clip", nargs="+", type=Path, help="played one after the other")
    parser.add_argument("--size", default="clip", help='"clip", "cif" or "640x480"')
    parser.add_argument("--fps", default="clip", help='"clip", or frames per second')
    parser.add_argument("--gop", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    mine, theirs = [], []
    for _ in range(max(1, args.rounds)):
        took, made, size, fps, frames = ours(args.clip, args.size, args.fps, args.gop)
        mine.append(took)
        seconds, bytes_made = plain(args.clip, size, fps, args.gop)
        theirs.append(seconds)
    a, b = statistics.median(mine), statistics.median(theirs)
    print(f"{frames} pictures of {size[0]}x{size[1]}, {fps} per second; median of {len(mine)} rounds")
    print(f"{'':12}{'seconds':>9}{'from':>8}{'to':>8}{'MB made':>10}")
    for name, all_of, size_made in (("steadycast", mine, made), ("ffmpeg × 30", theirs, bytes_made)):
        middle = statistics.median(all_of)
        print(f"{name:12}{middle:9.1f}{min(all_of):8.1f}{max(all_of):8.1f}{size_made / 1e6:10.1f}")
    print(f"ratio {a / b:.2f}, aim {AIM} at most")
    return 0


if __name__ == "__main__":
    page.end(main)
