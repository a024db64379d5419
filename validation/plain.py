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
from typing import TYPE_CHECKING

from steadycast.errors import MissingError, UserError
from steadycast.media.cache import folder as cache_folder
from steadycast.media.cache import key as cache_key
from steadycast.progress import Silent
from steadycast.reproduce.runs import Job
from validation.worlds import Film, Seen, damaged, psnr, sent_again, seconds, trusted

if TYPE_CHECKING:
    from steadycast.run import Run

BPS = 3_800_000
LENGTH_S = 60
_PORT = 5010
_PAYLOAD = 1200 - 28
_SLACK_S = 8
_SCRIPT = """
"$1" -c 'from steadycast.cli import main; main()' receive "$2" --for "$5s" -o "$4" --json $6 >"$4.json" 2>"$4.err" &
sleep 4
nsenter --net="$STEADYCAST_NET_VIDEO_SRC" ffmpeg -v error -re -stream_loop -1 -i "$3" -t "$7" -c copy \
  -f rtp "rtp://$STEADYCAST_VIDEO_DST1:$8?pkt_size=$9" >/dev/null
wait
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
        _make([*source, "-an", "-c:v", "mpeg4", "-g", "12", "-bf", "0", *rate, "-bufsize", "1M", "-qmin", "1"], path)
    return Film(path, _version(), whole if clips else None)


@cache
def _version() -> str:
    try:
        done = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True)
    except OSError:
        raise MissingError("ffmpeg", "it is not installed", "install it, or leave it out") from None
    return done.stdout.splitlines()[0]


def _make(words: Sequence[str], out: Path) -> None:
    part = out.with_suffix(".part.mkv")
    command = ["ffmpeg", "-v", "error", *words, "-y", str(part)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError("ffmpeg", done.stderr.strip(), "give other clips")
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

    long = LENGTH_S + _SLACK_S
    sets = [*job.sets, f"duration={2 * long}s", f"flow.video.start={2 * long - 1}s"]
    with tempfile.TemporaryDirectory(prefix="steadycast-") as folder:
        out = Path(folder) / "received"
        given = [sys.executable, _describe(film.path, Path(folder) / "plain.sdp"), film.path, out, long]
        given += [f"--reference={film.clip}" if film.clip else "--", LENGTH_S, _PORT, _PAYLOAD]
        program = Program("video.dst1", [str(word) for word in ("sh", "-c", _SCRIPT, "sh", *given)])
        how = {"seed": job.seed, "sets": sets, "program": program, "quality": False}
        done = emulate(job.scenario, progress=Silent(), **how).run  # type: ignore[arg-type]
        try:
            received = json.loads(out.with_name("received.json").read_text())
        except ValueError:
            said = out.with_name("received.err").read_text().strip()
            raise UserError("steadycast receive", said or "it said nothing", "run it again") from None
        viewer = received["flows"][0]["receivers"][0]
        bins, losses = _received(out, viewer["name"])
    tcp = done.summary["flows"][1]
    theirs, _ = seconds(done, "tcp.dst1")
    first = _first_second(done)
    video_bps, tcp_bps = (sum(rates) / LENGTH_S for rates in (bins, theirs[first : first + LENGTH_S]))
    return Seen(
        jain=(video_bps + tcp_bps) ** 2 / (2 * (video_bps**2 + tcp_bps**2)),
        video_bps=video_bps,
        tcp_bps=tcp_bps,
        fair_bps=tcp["fair_share_bps"],
        loss=viewer["loss_frac"],
        tcp_again=sent_again(tcp),
        to_1mbps=next((n + 1.0 for n, bps in enumerate(bins) if bps >= 1e6), None),
        # Not its first and last second, of which the film has a part.
        cov=statistics.stdev(bins[1 : LENGTH_S - 1]) / video_bps,
        frames_damaged=damaged(viewer),
        psnr=psnr(viewer),
        bins=bins,
        losses=losses,
        trusted=trusted(done),
    )


def _received(folder: Path, node: str) -> tuple[list[float], list[float]]:
    """Return throughput and loss of a live record from its first packet on."""
    import polars as pl

    rates = pl.read_parquet(folder / "rates.parquet").filter(pl.col("node") == node)
    rates = rates.filter(pl.col("throughput_bps").cum_sum() > 0)
    return rates["throughput_bps"].to_list(), rates["loss_frac"].fill_null(0.0).to_list()


def _first_second(done: Run) -> int:
    """Return the second of the emulation in which the film's first packet left."""
    import polars as pl

    links = done.links.to_polars().filter((pl.col("link") == "video.src-left") & (pl.col("throughput_bps") > 0))
    return int(links["t_s"][0])
