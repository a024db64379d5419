"""FFmpeg's plain RTP in the place of a scenario's video: a film of constant rate, between the same two hosts."""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.errors import MissingError, UserError
from steadycast.media.cache import folder as cache_folder
from steadycast.media.cache import key as cache_key
from steadycast.progress import Silent

from papers.engine.runs import Job
from validation.worlds import Film, Seen, damaged, psnr, seconds, sent_again, trusted

if TYPE_CHECKING:
    from steadycast.result import Run

BPS = 3_800_000
LENGTH_S = 60
MISSING = MissingError("ffmpeg", "it is not installed", "install it, or leave it out")
_PORT = 5010
_PAYLOAD = 1200 - 28
_LONGEST_S = 300
_SEND = """
nsenter --net="$STEADYCAST_NET_VIDEO_SRC" ffmpeg -v error -re -stream_loop -1 -i "$1" -t "$2" -c copy \
  -f rtp "rtp://$STEADYCAST_VIDEO_DST1:$3?pkt_size=$4" >/dev/null
"""
_RECEIVE = """
"$5" -c 'from steadycast.cli import main; main()' receive "$6" --for "$7s" --reference "$8" --json >"$9" 2>"$9.said" &
until grep -q receiving "$9.said" || ! kill -0 $!; do sleep 0.1; done
"""


def film(clips: Sequence[Path]) -> Film:
    """Clips end to end at FFmpeg's constant rate; moving noise without any."""
    content = hashlib.sha256()
    for clip in clips:
        content.update(clip.read_bytes())
    name = cache_key({"clips": content.hexdigest(), "bps": BPS, "by": _version()})
    place = cache_folder() / "fair"
    place.mkdir(parents=True, exist_ok=True)
    path, whole = place / f"{name}.mkv", place / f"{name}-clip.mkv"
    if not path.exists():
        source = ["-f", "lavfi", "-i", "testsrc2=size=640x480:rate=30,noise=alls=40:allf=t", "-t", "20"]
        if clips:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as files:
                files.writelines(f"file '{clip.resolve()}'\n" for clip in clips)
                files.flush()
                _make(["-f", "concat", "-safe", "0", "-i", files.name, "-c", "copy"], whole)
            source = ["-i", str(whole)]
        rate = [word for name in ("-b:v", "-minrate", "-maxrate") for word in (name, str(BPS))]
        _make(
            [*source, "-an", "-c:v", "mpeg4", "-g", "12", "-bf", "0", *rate, "-bufsize", "1M", "-qmin", "1"],
            path,
        )
    return Film(path, _version(), whole if clips else None)


@cache
def _version() -> str:
    try:
        done = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True)
    except OSError:
        raise MISSING from None
    return done.stdout.splitlines()[0]


def ffmpeg(words: Sequence[str], out: Path) -> None:
    """Have FFmpeg make a file of clips."""
    command = ["ffmpeg", "-v", "error", *words, "-y", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        raise MISSING from None
    if done.returncode != 0:
        raise UserError("ffmpeg", done.stderr.strip() or "it made nothing", "give other clips")


def _make(words: Sequence[str], out: Path) -> None:
    part = out.with_suffix(".part.mkv")
    ffmpeg(words, part)
    part.replace(out)


def _describe(path: Path, sdp: Path) -> Path:
    """Write what FFmpeg says of its stream, for whoever receives it."""
    words = ["-re", "-i", str(path), "-t", "0.1", "-c", "copy", "-f", "rtp", "-sdp_file", str(sdp)]
    command = ["ffmpeg", "-v", "error", *words, f"rtp://127.0.0.1:{_PORT}"]
    subprocess.run(command, capture_output=True, check=True)
    text = sdp.read_text()
    sdp.write_text(text[text.index("v=0") :].replace("127.0.0.1", "0.0.0.0"))
    return sdp


def run(job: Job, film: Film) -> Seen:
    """Emulate with FFmpeg instead of the scenario's video, which does not start before the end."""
    from steadycast.emulate import Program, emulate

    sets = [*job.sets, f"duration={_LONGEST_S}s", f"flow.video.start={_LONGEST_S - 1}s"]
    with tempfile.TemporaryDirectory(prefix="steadycast-") as folder:
        out = Path(folder) / "received.json"
        script, given = _SEND, [film.path, LENGTH_S, _PORT, _PAYLOAD]
        if film.clip is not None:
            # Links tell throughput and loss; a receiver is needed for pictures alone.
            script = f"{_RECEIVE}{_SEND}wait\n"
            sdp = _describe(film.path, Path(folder) / "plain.sdp")
            given += [sys.executable, sdp, LENGTH_S + 3, film.clip, out]
        program = Program("video.dst1", [str(word) for word in ("sh", "-c", script, "sh", *given)])
        how: dict[str, Any] = {"seed": job.seed, "sets": sets, "program": program, "quality": False}
        done = emulate(job.scenario, progress=Silent(), **how).run
        viewer = _viewer(out) if film.clip is not None else {"frames": None}
    tcp = done.summary["flows"][1]
    left, came = _links(done)
    first = next(n for n, bps in enumerate(left) if bps > 0)
    bins, theirs = (rates[first : first + LENGTH_S] for rates in (came, seconds(done, "tcp.dst1")[0]))
    video_bps, tcp_bps = sum(came) / LENGTH_S, sum(theirs) / LENGTH_S
    return Seen(
        jain=(video_bps + tcp_bps) ** 2 / (2 * (video_bps**2 + tcp_bps**2)),
        video_bps=video_bps,
        tcp_bps=tcp_bps,
        fair_bps=tcp["fair_share_bps"],
        loss=1 - sum(came) / sum(left),
        tcp_again=sent_again(tcp),
        to_1mbps=next((n + 1.0 for n, bps in enumerate(bins) if bps >= 1e6), None),
        cov=statistics.stdev(bins) / video_bps,
        frames_damaged=damaged(viewer),
        psnr=psnr(viewer),
        bins=bins,
        losses=[],
        trusted=trusted(done) and _steady(left[first + 1 : first + LENGTH_S - 1]),
    )


def _viewer(out: Path) -> dict[str, Any]:
    try:
        viewer: dict[str, Any] = json.loads(out.read_text())["flows"][0]["receivers"][0]
    except ValueError:
        said = out.with_name(f"{out.name}.said").read_text().strip()
        raise UserError("steadycast receive", said or "it said nothing", "run it again") from None
    return viewer


def _steady(left: Sequence[float]) -> bool:
    """Whether FFmpeg had enough processor time: otherwise it stalls, and then sends the missed packets as a burst."""
    mean = statistics.fmean(left)
    return max(abs(bps - mean) for bps in left) < 0.2 * mean


def _links(done: Run) -> tuple[list[float], list[float]]:
    """Return what left the film's host and what came to the other one, second by second."""
    import polars as pl

    rows = done.links.to_polars().filter(pl.col("direction") == "forward")
    left, came = (
        rows.filter(pl.col("link") == link)["throughput_bps"].to_list()
        for link in ("video.src-left", "right-video.dst1")
    )
    return left, came
