"""What a ladder costs: `steadycast encode`'s encoding beside thirty plain ffmpeg encodes of the same clips.

    python -m validation.encode_bench CLIP...
    python -m validation.encode_bench CLIP... --size cif --fps 25 --rounds 3

Both read the same files, scale to the same size and rate, and write thirty MPEG-4 streams with groups of
pictures of the same length, on the same cores: ours with one encoder per core, ffmpeg with one single-threaded
process per core. Ours starts from an empty cache, and writes it. They alternate; the median counts, and
the ratio is to be 1.3 at most.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from steadycast.errors import UserError

from validation import page

QS = range(2, 32)
AIM = 1.3


def find_ffmpeg() -> str | None:
    """Find the system's ffmpeg, or the one that imageio-ffmpeg brings."""
    try:
        import imageio_ffmpeg
    except ImportError:
        return shutil.which("ffmpeg")
    return shutil.which("ffmpeg") or str(imageio_ffmpeg.get_ffmpeg_exe())


def plain(ffmpeg: str, clips: Sequence[Path], size: tuple[int, int], fps: str, gop: int) -> tuple[float, int]:
    """Seconds for thirty plain encodes, and the bytes that they made."""
    from steadycast.workers import cores

    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "clips.txt"
        quoted = (str(clip.resolve()).replace("'", "'\\''") for clip in clips)
        listed.write_text("".join(f"file '{clip}'\n" for clip in quoted), encoding="utf-8")

        def one(q: int) -> int:
            out = Path(folder) / f"{q}.avi"
            scale = f"scale={size[0]}:{size[1]},fps={fps}"
            command = [
                ffmpeg,
                *["-v", "error", "-threads", "1", "-f", "concat", "-safe", "0", "-i"],
                str(listed),
            ]
            command += ["-an", "-vf", scale, "-c:v", "mpeg4", "-threads", "1", "-qscale:v", str(q)]
            command += ["-g", str(gop), "-bf", "2", "-y", str(out)]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
            )
            if done.returncode:
                said = done.stderr.strip() or f"exit code {done.returncode}"
                raise UserError(ffmpeg, f"encodes nothing: {said}", "give clips that FFmpeg can read")
            return out.stat().st_size

        begun = time.perf_counter()
        with ThreadPoolExecutor(cores()) as pool:
            made = sum(pool.map(one, QS))
        return time.perf_counter() - begun, made


def ours(
    clips: Sequence[Path], size: str, fps: str, gop: int
) -> tuple[float, int, tuple[int, int], str, int]:
    """Seconds for a ladder from an empty cache, its bytes, and the size, rate and number of its pictures."""
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
    ffmpeg = find_ffmpeg()
    if ffmpeg is None:
        print("there is no ffmpeg; install it, or pip install imageio-ffmpeg", file=sys.stderr)
        return 3
    mine, theirs = [], []
    for _ in range(max(1, args.rounds)):
        took, made, size, fps, frames = ours(args.clip, args.size, args.fps, args.gop)
        mine.append(took)
        seconds, bytes_made = plain(ffmpeg, args.clip, size, fps, args.gop)
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
