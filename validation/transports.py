"""Measures TCP's throughput beside FFmpeg's transports and ours, and the frames shown: docs/data/transports-*.csv.

    python -m validation.transports                   # prints them; needs root, ffmpeg and gst-launch-1.0
    python -m validation.transports --write           # and writes them into docs/data
    python -m validation.transports --runs 1 --ways srt,rist --tables beside-tcp

A film of 30 s crosses one emulated link to a decoder, whose pictures are hashed. A picture is whole if its hash
equals that of the undamaged stream: H.264 defines decoded pictures exactly. It is in time if at most 300 ms later
than with the session's lowest delay. A freeze is a picture that is shown for more than 190 ms.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from steadycast import hosts
from steadycast.emulate import emulate
from steadycast.media.cache import folder as cache_folder
from steadycast.progress import Silent

from validation import link, page

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "beside-tcp": "FFmpeg's transports and ours beside one TCP",
    "lossy": "FFmpeg's transports and ours over a link that loses 1 % each way",
}
WIDTH, HEIGHT, FPS, FRAMES = 352, 288, 25, 750
GOP = 12
FILM_BPS = 3_000_000
IN_TIME_S = 0.3
FREEZE_S = max(3 / FPS, 1 / FPS + 0.15)
"""The W3C's threshold of a freeze (webrtc-stats, `freezeCount`), with the film's frame interval as the mean."""
FIRST, LAST = 250, 725
"""First and last frame that count: after ten seconds, controllers have found their rate."""
BUSY_S = (10, 28)
"""Rates are measured between these seconds after the video's first packet."""

RAW = f"-an -fps_mode passthrough -pix_fmt yuv420p -f rawvideo - | {sys.executable} -m validation.transports --hash"
DECODE = f"ffmpeg -v error -fflags nobuffer {{options}} -i '{{url}}' {RAW} hashes.txt"
SEND_FILM = "ffmpeg -v error -re -i film.mkv -c copy {options} '{url}'"
SEND = (
    "$STEADYCAST send clip.mkv --ladder --codec h264 --gop {gop} --to $STEADYCAST_R:5004 "
    "--port 6004 {more} --json > sent.json"
)
PLAY = f"ffmpeg -v error -fflags nobuffer -probesize 4096 -f h264 -framerate {FPS} -i - {RAW} hashes.txt"
GSTREAMER = (
    "gst-launch-1.0 -q rtpsession name=s rtp-profile=avpf "
    'udpsrc port=5004 caps="$(cat caps.txt)" ! '
    "s.recv_rtp_sink s.recv_rtp_src ! rtprtxreceive payload-type-map='application/x-rtp-pt-map,96=(uint)97' ! "
    "rtpssrcdemux ! rtpjitterbuffer latency=300 do-retransmission=true ! rtph264depay ! h264parse ! avdec_h264 ! "
    "filesink location=/dev/stdout buffer-mode=2 sync=false udpsrc port=5005 caps=application/x-rtcp ! "
    "s.recv_rtcp_sink s.send_rtcp_src ! udpsink host=$STEADYCAST_S port=6005 sync=false async=false "
    f"| {sys.executable} -m validation.transports --hash hashes.txt"
)


@dataclass(frozen=True)
class Way:
    """How a film is sent from one host to the other."""

    called: str
    receive: str
    send: str


OURS = "$STEADYCAST receive session.sdp --latency 300ms --play 'sh play.sh' --json > received.json"
FIXED = "--controller fixed --max-rate 4Mbps"
WAYS = {
    "rtp": Way(
        "FFmpeg, plain RTP",
        DECODE.format(options="-protocol_whitelist file,udp,rtp", url="plain.sdp"),
        SEND_FILM.format(options="-f rtp", url="rtp://'$STEADYCAST_R':5004?pkt_size=1200"),
    ),
    "srt": Way(
        "FFmpeg, SRT (latency 300 ms)",
        DECODE.format(options="", url="srt://0.0.0.0:5004?mode=listener&latency=300000"),
        SEND_FILM.format(
            options="-f mpegts", url="srt://'$STEADYCAST_R':5004?mode=caller&latency=300000&pkt_size=1316"
        ),
    ),
    "rist": Way(
        "FFmpeg, RIST (buffer 300 ms)",
        DECODE.format(options="-buffer_size 300", url="rist://@0.0.0.0:5004"),
        SEND_FILM.format(
            options="-buffer_size 300 -pkt_size 1316 -f mpegts", url="rist://'$STEADYCAST_R':5004"
        ),
    ),
    "asmp": Way("`send` (asmp) to `receive`", OURS, SEND.format(gop=GOP, more="--controller asmp")),
    "tfrc": Way("`send` (tfrc) to `receive`", OURS, SEND.format(gop=GOP, more="--controller tfrc")),
    "ours": Way("`send` to `receive`", OURS, SEND.format(gop=GOP, more=FIXED)),
    "gstreamer": Way("`send` to GStreamer, RTX", GSTREAMER, SEND.format(gop=GOP, more=FIXED)),
    "ffmpeg": Way(
        "`send` to FFmpeg (the decoder of ffplay)",
        DECODE.format(options="-protocol_whitelist file,udp,rtp", url="session.sdp"),
        SEND.format(gop=GOP, more=FIXED),
    ),
}


@dataclass(frozen=True)
class Table:
    """The transports that are compared on one link."""

    rate: str
    loss: float
    beside: bool
    ways: tuple[str, ...]


TABLES = {
    "beside-tcp": Table("4Mbps", 0.0, True, ("rtp", "srt", "rist", "asmp", "tfrc")),
    "lossy": Table("6Mbps", 0.01, False, ("ours", "gstreamer", "ffmpeg", "rtp", "srt", "rist")),
}


@dataclass(frozen=True)
class Seen:
    """The results of a run."""

    video_bps: float
    tcp_bps: float | None
    whole: float
    in_time: float
    freezes_per_min: float
    frozen: float
    trusted: bool


def film(folder: Path) -> None:
    """Make the film and its description, unless they exist."""
    import av
    from steadycast.media.synthetic import Synthetic

    folder.mkdir(parents=True, exist_ok=True)
    clip, coded = folder / "clip.mkv", folder / "film.mkv"
    if not coded.exists():
        with av.open(str(clip), "w") as out:
            stream: Any = out.add_stream("mpeg4", rate=FPS)
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            stream.codec_context.qmin = stream.codec_context.qmax = 1
            for samples in Synthetic(FRAMES).pictures("cif", FPS).frames:
                picture = samples.reshape(HEIGHT * 3 // 2, WIDTH)
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
            out.mux(stream.encode())
        rate = [word for name in ("-b:v", "-minrate", "-maxrate") for word in (name, str(FILM_BPS))]
        fast = ["-preset", "veryfast", "-tune", "zerolatency", "-g", str(GOP), "-bf", "0", "-bufsize", "400k"]
        constant = ["-x264-params", "nal-hrd=cbr:force-cfr=1"]
        _ffmpeg("-i", str(clip), "-c:v", "libx264", *fast, *rate, *constant, str(coded))
    sdp, at = folder / "plain.sdp", "rtp://127.0.0.1:5004"
    _ffmpeg("-re", "-i", str(coded), "-t", "0.2", "-c", "copy", "-f", "rtp", "-sdp_file", str(sdp), at)
    text = sdp.read_text()
    sdp.write_text(text[text.index("v=0") :].replace("127.0.0.1", "10.0.0.2"))


def prepare(folder: Path) -> dict[str, int]:
    """Make the film and the ladder, cached. Return each decoded picture's position in the film, by its hash."""
    from steadycast.media.clip import Clip
    from steadycast.media.decode import decode_units
    from steadycast.media.ladder import encode_ladder
    from steadycast.media.splice import units

    film(folder)
    kept = folder / "places.json"
    if kept.exists():
        places: dict[str, int] = json.loads(kept.read_text())
        return places
    decoded = f"ffmpeg -v error -i {folder / 'film.mkv'} -pix_fmt yuv420p -f rawvideo -"
    places = _hashes(shlex.split(decoded))
    ladder = encode_ladder(Clip.of(folder / "clip.mkv"), "h264", "clip", "clip", GOP, bframes=0)
    groups = ladder.table.gops
    for q in ladder.table.qs:
        pictures = decode_units(
            ladder.codec, units(ladder, [q] * groups, None, range(groups)), b"", ladder.width, ladder.height
        )
        for slot, picture in pictures.items():
            planes = (picture.y, picture.u, picture.v)
            places[hashlib.md5(b"".join(plane.tobytes() for plane in planes)).hexdigest()] = slot
    kept.write_text(json.dumps(places))
    return places


def _ffmpeg(*words: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *words], check=True, capture_output=True)


def _hashes(words: Sequence[str]) -> dict[str, int]:
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found: dict[str, int] = {}
        while len(picture := process.stdout.read(WIDTH * HEIGHT * 3 // 2)) == WIDTH * HEIGHT * 3 // 2:
            found[hashlib.md5(picture).hexdigest()] = len(found)
    return found


def hash_pictures(out: Path) -> None:
    """Write the time and the hash of each raw picture that is read from standard input."""
    size = WIDTH * HEIGHT * 3 // 2
    with out.open("w", buffering=1) as file:
        while len(picture := sys.stdin.buffer.read(size)) == size:
            file.write(f"{time.monotonic():.4f} {hashlib.md5(picture).hexdigest()}\n")


def run(way: Way, table: Table, prepared: Path, places: Mapping[str, int], seed: int) -> Seen:
    """Send the film once."""
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        folder = Path(scratch)
        for path in prepared.iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "play.sh").write_text(f"exec {PLAY}\n")
        between = table.rate, "20ms", "50p", table.loss, "0s" if table.beside else None
        (folder / "link.toml").write_text(link.scenario(*between))
        env = {"STEADYCAST": f"{sys.executable} -m steadycast", "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
        scripts = (
            ("receive", "r", way.receive, "udp:5004"),
            ("send", "s", f"sleep 0.5; {way.send} && sleep 2", ""),
        )
        members = [
            hosts.Member(
                name, on, ["sh", "-c", f"cd {folder} && {script}"], ready, env, log=f"{folder / name}.log"
            )
            for name, on, script, ready in scripts
        ]
        done = emulate(
            folder / "link.toml",
            seed=seed,
            out=folder / "net",
            program=hosts.Plan(members, waits="send"),
            only=not table.beside,
            quality=False,
            progress=Silent(),
        )
        if done.code != 0:
            raise SystemExit(f"{way.called}: {''.join(path.read_text() for path in folder.glob('*.log'))}")
        if (folder / "sent.json").exists():
            flow = json.loads((folder / "sent.json").read_text())["flows"][0]
            told = [
                "sent_bps",
                "coded_frames",
                "skipped_frames",
                "repair_packets",
                "limited_by_frac",
                "target_bps",
            ]
            print({name: flow.get(name) for name in told}, file=sys.stderr)
        return _seen(folder, places, table.beside)


def _seen(folder: Path, places: Mapping[str, int], with_tcp: bool) -> Seen:
    import polars as pl

    came: dict[int, float] = {}
    for line in (folder / "hashes.txt").read_text().splitlines():
        at, name = line.split()
        if (slot := places.get(name)) is not None:
            came.setdefault(slot, float(at))
    delays = {slot: at - slot / FPS for slot, at in came.items() if FIRST <= slot < LAST}
    least = min(delays.values(), default=0.0)
    shown = [slot in delays and delays[slot] <= least + IN_TIME_S for slot in range(FIRST, LAST)]
    spans = freezes(shown)
    links = pl.read_parquet(folder / "net" / "links.parquet").filter(pl.col("direction") == "forward")
    all_bps = dict(zip(links["t_s"].round().to_list(), links["throughput_bps"].to_list(), strict=True))
    tcp_bps: dict[float, float] = {}
    if with_tcp:
        rates = pl.read_parquet(folder / "net" / "rates.parquet").filter(pl.col("node") == "r")
        tcp_bps = dict(zip(rates["t_s"].round().to_list(), rates["throughput_bps"].to_list(), strict=True))
    video = {t: bps - tcp_bps.get(t, 0.0) for t, bps in all_bps.items()}
    began = min(t for t, bps in video.items() if bps > 100e3)
    busy = [t for t in video if began + BUSY_S[0] <= t < began + BUSY_S[1]]
    summary = json.loads((folder / "net" / "summary.json").read_text())
    return Seen(
        video_bps=statistics.fmean(video[t] for t in busy),
        tcp_bps=statistics.fmean(tcp_bps.get(t, 0.0) for t in busy) if with_tcp else None,
        whole=len(delays) / len(shown),
        in_time=sum(shown) / len(shown),
        freezes_per_min=len(spans) * 60 * FPS / len(shown),
        frozen=sum(spans) * FPS / len(shown),
        trusted=bool(summary["emulation"]["trustworthy"]),
    )


def freezes(shown: Sequence[bool]) -> list[float]:
    """Return the seconds of each freeze, a picture shown for longer than `FREEZE_S`."""
    edges = [-1, *(n for n, new in enumerate(shown) if new), len(shown)]
    stood = [(after - before) / FPS for before, after in pairwise(edges)]
    return [span for span in stood if span > FREEZE_S]


def rows(name: str, seen: Mapping[str, Sequence[Seen]]) -> page.Table:
    """Return a table of the results."""
    tcp = ["TCP, Mb/s"] if TABLES[name].beside else []
    heads = [
        "transport",
        "video, Mb/s",
        *tcp,
        "frames whole, %",
        "whole and in time, %",
        "freezes/min",
        "frozen, %",
        "runs",
    ]
    lines = []
    for way, runs in seen.items():
        stalled = sum(not s.trusted for s in runs)
        cells = [
            WAYS[way].called,
            page.spread([s.video_bps / 1e6 for s in runs], 2),
            *([page.spread([(s.tcp_bps or 0.0) / 1e6 for s in runs], 2)] if tcp else []),
            page.spread([100 * s.whole for s in runs], 1),
            page.spread([100 * s.in_time for s in runs], 1),
            page.spread([s.freezes_per_min for s in runs], 1),
            page.spread([100 * s.frozen for s in runs], 1),
            f"{len(runs)}" + (f", {stalled} on a machine that stalled" if stalled else ""),
        ]
        lines.append(cells)
    return page.table(heads, lines)


def main() -> int:
    """Print the tables, and write them with `--write`."""
    parser = page.options("validation.transports", __doc__, *(f"transports-{name}" for name in TITLES))
    parser.add_argument("--hash", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", default="")
    parser.add_argument("--tables", default=",".join(TABLES))
    given = parser.parse_args()
    if given.hash is not None:
        hash_pictures(given.hash)
        return 0
    chosen = {name: TABLES[name] for name in given.tables.split(",")}
    if given.ways:
        chosen = {name: replace(table, ways=tuple(given.ways.split(","))) for name, table in chosen.items()}
    prepared = cache_folder() / "transports"
    places = prepare(prepared)
    describe(prepared)
    for name, table in chosen.items():
        seen: dict[str, list[Seen]] = {way: [] for way in table.ways}
        for seed in range(1, given.runs + 1):
            for way in table.ways:
                one = run(WAYS[way], table, prepared, places, seed)
                print(way, one, file=sys.stderr)
                seen[way].append(one)
        made = rows(name, seen)
        print(made)
        if given.write:
            made = page.merged(f"transports-{name}", made, 1)
            page.save(f"transports-{name}", TITLES[name], made, "python -m validation.transports --write")
    return 0


def describe(folder: Path) -> None:
    """Describe our session for players that start before it, and for GStreamer."""
    told = folder / "session.sdp"
    words = (
        f"send clip.mkv --ladder --codec h264 --gop {GOP} --to 127.0.0.1:5004 --controller fixed --for 100ms"
    )
    command = [sys.executable, "-m", "steadycast", *words.split(), "--sdp", str(told)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    text = told.read_text().replace("IN IP4 127.0.0.1", "IN IP4 10.0.0.2")
    told.write_text(text)
    caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96,rtcp-fb-nack=(boolean)true"
    (folder / "caps.txt").write_text(caps)


if __name__ == "__main__":
    page.end(main)
