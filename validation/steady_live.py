"""Runs a live session of `steady` over 4 Mb/s, with a download by the kernel's CUBIC for a part of it.

    python -m validation.steady_live             # 75 s of real time, as root
    python -m validation.steady_live --write     # docs/data/steady-live.csv and its picture
    python -m validation.steady_live --keep DIR  # the film, and the records of both ends

It measures rates and queue, and keeps the film. `send`, `receive` and the download share the two hosts of a link.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from steadycast.errors import UserError
from steadycast.folder import Folder

from validation import page

TABLE = "steady-live"
FIGURE = page.DOCS / "pictures" / "steady-live.png"
BEGIN, END, LAST = 22, 52, 76
"""Seconds on the network's clock: start and end of the download, and end of the network."""
SESSION = 70
"""Length of the session in seconds. It starts one second after the network."""
STARTED, SETTLED = 8, 10
"""Seconds not counted: after the session's start, and after the start and end of the download."""
NETWORK = f"""
duration = "{LAST}s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "4Mbps", delay = "20ms", queue = {{ kind = "droptail", limit = "27p" }} }}
[[flow]]
name = "download"
kind = "tcp"
congestion = "cubic"
start = "{BEGIN}s"
stop = "{END}s"
"""
STEADYCAST = f"{shlex.quote(sys.executable)} -m steadycast"
SEND = f"exec {STEADYCAST} send testsrc --size 640x480 --to download.dst1:5004 --controller steady \
--for {SESSION}s --sdp session.sdp -o sent"
RECEIVE = (
    "while [ ! -s session.sdp ]; do sleep 0.05; done; "
    f"exec {STEADYCAST} receive session.sdp --out film.mkv -o received"
)
PHASES = (
    ("before it", STARTED, BEGIN),
    ("beside it", BEGIN + SETTLED, END),
    ("after it", END + SETTLED, SESSION - 2),
)


@dataclass(frozen=True)
class Seen:
    """One phase: mean rates in Mb/s, and the queue in ms."""

    name: str
    video: float
    download: float
    queue: float


def session(folder: Path) -> None:
    """Run the network, both ends and the download. All files are left in the folder.

    Raises:
        UserError: the run failed, or the machine did not keep up with it.

    """
    (folder / "network.toml").write_text(NETWORK)
    words = ["emulate", "network.toml", "-o", "network"]
    words += ["--in", "download.src", "--", "sh", "-c", SEND]
    words += ["--in", "download.dst1", "--", "sh", "-c", RECEIVE]
    done = subprocess.run([sys.executable, "-m", "steadycast", *words], cwd=folder, check=False)
    if done.returncode:
        raise UserError("steadycast emulate", f"ended with exit code {done.returncode}", "see what it said")
    if not Folder.open(folder / "network").summary["emulation"]["trustworthy"]:
        raise UserError(
            "the run", "is not trustworthy: the machine stalled", "run it again on a quiet machine"
        )


def rates(folder: Path) -> list[tuple[float, float, float, float]]:
    """Return time in s, the video's and the download's rate in Mb/s, and the queue in ms, each second."""
    import polars as pl

    network = Folder.open(folder / "network")
    link = network.table("links").filter(
        (pl.col("link") == "bottleneck") & (pl.col("direction") == "forward")
    )
    tcp = network.table("rates").filter((pl.col("flow") == "download") & (pl.col("node") != "download.src"))
    tcp = tcp.select("t_s", tcp="throughput_bps")
    both = link.join(tcp, on="t_s", how="left").sort("t_s").with_columns(pl.col("tcp").fill_null(0.0))
    return [
        (row["t_s"], max(row["throughput_bps"] - row["tcp"], 0) / 1e6, row["tcp"] / 1e6, row["queue_ms"])
        for row in both.iter_rows(named=True)
    ]


def phases(series: Sequence[tuple[float, float, float, float]]) -> list[Seen]:
    """Return the means of each phase."""
    found = []
    for name, begin, end in PHASES:
        rows = [row for row in series if begin <= row[0] < end]
        video, download, queue = (sum(row[i] for row in rows) / len(rows) for i in (1, 2, 3))
        found.append(Seen(name, video, download, queue))
    return found


def told(folder: Path) -> tuple[page.Table, str]:
    """Return the results of the session."""
    lines = [
        [seen.name, f"{seen.video:.2f} Mb/s", f"{seen.download:.2f} Mb/s", f"{seen.queue:.0f} ms"]
        for seen in phases(rates(folder))
    ]
    sent = Folder.open(folder / "sent").summary["flows"][0]
    frames = Folder.open(folder / "received").summary["flows"][0]["receivers"][0]["frames"]
    table = page.table(["the download", "video", "download", "queue, mean"], lines)
    repair = (
        f"{sent['repair_packets']} packets were sent again, and {sent['parity_packets']} of parity were sent"
    )
    return table, f"Of {sent['coded_frames']} frames {frames['ok']} were whole; {repair}"


def draw(folder: Path, to: Path) -> None:
    """Draw pictures of the film above the two rates and the queue."""
    import av
    from matplotlib.figure import Figure
    from steadycast.controllers import find

    series = rates(folder)
    at = [row[0] for row in series]
    figure = Figure(figsize=(9, 6.6), layout="constrained")
    grid = figure.add_gridspec(3, 4, height_ratios=(1.1, 1.6, 1))
    pictures: list[av.VideoFrame] = []
    with av.open(str(folder / "film.mkv")) as film:
        for packet in film.demux(video=0):
            with suppress(av.error.InvalidDataError):  # an incomplete frame
                pictures += packet.decode()
    for place, second in enumerate((8, 20, 35, 60)):
        picture = min(pictures, key=lambda each: abs((each.time or 0.0) - second))
        time = picture.time or 0.0
        axes = figure.add_subplot(grid[0, place])
        axes.imshow(picture.to_ndarray(format="rgb24"))
        axes.set_title(f"film, {time:.0f} s", fontsize=9)
        axes.set_axis_off()
    above = figure.add_subplot(grid[1, :])
    above.plot(at, [row[1] for row in series], label="video, steady", color=find("steady").colour)
    above.plot(at, [row[2] for row in series], label="download, the kernel's CUBIC", color="#d1495b")
    above.set_ylabel("Mb/s at the bottleneck")
    above.set_ylim(0, 4.2)
    above.legend(loc="center left", bbox_to_anchor=(0.06, 0.3), fontsize=8)
    below = figure.add_subplot(grid[2, :], sharex=above)
    below.plot(at, [row[3] for row in series], color="#444444")
    below.set_ylabel("queue, ms")
    below.set_ylim(bottom=0)
    below.set_xlabel("time, s")
    for axes in (above, below):
        axes.axvspan(BEGIN, END, color="#d1495b", alpha=0.07)
    figure.savefig(to, dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the results."""
    parser = page.options("validation.steady_live", __doc__, TABLE)
    parser.add_argument("--keep", type=Path, help="a folder for the film and the records")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        session(folder)
        table, note = told(folder)
        print(table, note, sep="\n\n")
        if args.write:
            draw(folder, FIGURE)
            title = "A session of `steady`, and a download that comes and goes"
            page.save(TABLE, title, table, "python -m validation.steady_live --write", note)
        elif args.keep:
            draw(folder, folder / "steady-live.png")
    return 0


if __name__ == "__main__":
    page.end(main)
