"""Measures a browser as the viewer of `serve`: first picture, freezes, share beside TCP: docs/data/browser-*.csv.

    python -m validation.browser                                  # prints all tables; needs root and chromium
    python -m validation.browser --tables first,many --write      # and writes these into docs/data
    python -m validation.browser --tables freezes --networks "1Mbps;5Mbps" --controllers steady,gcc --write

`--write` keeps the rows that were not measured. A cell of an emulated network takes 80 s.

first: median time of ten sessions to the first picture, from the browser's POST and from opening the page, on
loopback and on 2 Mb/s with 40 ms of round-trip time. Bounds from the POST: 1 s and 2 s.

freezes: a minute beside the kernel's CUBIC, from 5 s after the first picture. It compares the browser's
`freezeCount` and `totalFreezesDuration` with the same W3C rule (`crates/endpoints/src/freeze.rs`) on the times of
presentation. Bounds: the counts differ by at most one per minute, the durations by 10 % or 0.3 s, and 99 % of the
complete frames were decoded. The browser uses decoding times, so after a late burst it counts more freezes.

share: the video's share of the rate beside CUBIC for half a minute, with a browser and with `steadycast receive`,
both with transport-wide feedback. Mean, minimum and maximum of three sessions. Bound: the two differ by at most 15 %.

teleop: 50 s of 15 frames per second with 240 ms of round-trip time and 5 % random loss. Bound: 0.7 s frozen.

many: clients of examples/watchers.rs with 1 Mb/s each watch one `serve --ladder` on the same cores. Bound: the
senders' loops run at most 5 ms late, at the 99th percentile. The relay of validation/pion/relay serves the same
clients with one stream and no rate control. Neither program encodes.

live: the same with a live source of 640x360 at 30 frames per second, encoded at a few rungs for all viewers. The
processor time includes the encoders.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from steadycast.core import core

from validation import link, page

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "first": "From a browser's offer to the first picture",
    "freezes": "Freezes beside one CUBIC, by the browser's count and by ours",
    "share": "The share beside one CUBIC, towards a browser and towards our receiver",
    "teleop": "Freezes at 15 frames per second, 240 ms of round trip and 5 % of loss",
    "many": "Viewers of one ladder, what they cost, and how late their senders' loops are called",
    "live": "Viewers of one live source, what they cost, and how late their senders' loops are called",
}
HEADS = ("rate, kb/s", "freezes, browser", "freezes, ours", "frozen, browser, s", "frozen, ours, s")
CONTROLLERS = ("steady", "gcc", "scream", "tfrc")
NETWORKS = {
    "2Mbps": ("2Mbps", "20ms", "40p", 0.0),
    "1Mbps": ("1Mbps", "25ms", "30p", 0.0),
    "5Mbps": ("5Mbps", "10ms", "60p", 0.0),
    "5Mbps, 1 % lost": ("5Mbps", "20ms", "60p", 0.01),
    "3Mbps, 200 ms": ("3Mbps", "100ms", "80p", 0.0),
}
"""Rate, one-way delay, queue length in packets, and loss rate."""
TELEOP = ("5Mbps", "120ms", "80p", 0.05)
TELEOP_S = 50.0
TELEOP_FROZEN_S = 0.7
TELEOP_WAYS = ((12, 0), (150, 800))
"""Frames between key frames, and the browser's jitter-buffer delay in ms: the default, then for lossy paths."""
SHARE_S = 40.0
SHARE_FROM_S = 15.0
"""The share is measured from here; CUBIC starts at 10 s."""
SHARE_APART = 0.15
MANY_LATE_MS = 5.0
MANY_S = 30
FIRST_S = {"loopback": 1.0, "2Mbps": 2.0}
CUT_S = 5.0
"""Seconds at the start that are not measured: the page loads, and the rate is probed."""
APART = 1.0
"""Maximum difference between the browser's and our number of freezes, per minute."""
APART_S = (0.1, 0.3)
DECODED = 0.99
SOURCE = "testsrc --size 640x360 --codec vp8 --fps 30"
CONSTANT_RATE = (
    *("-deadline", "realtime", "-cpu-used", "8"),
    *("-b:v", "950k", "-minrate", "950k", "-maxrate", "950k", "-bufsize", "950k"),
)
"""FFmpeg's options for the relay's stream, at about the rate of the ladder's viewers."""

SEES = """
const Plain = RTCPeerConnection, ask = fetch;
window.seen = {pcs: [], times: [], posted: null};
window.RTCPeerConnection = class extends Plain { constructor(...all) { super(...all); seen.pcs.push(this); } };
window.fetch = (place, how = {}) => {
  if (how.method === "POST" && seen.posted === null) seen.posted = performance.now();
  return ask(place, how);
};
addEventListener("DOMContentLoaded", () => {
  const video = document.querySelector("video");
  const look = (now, frame) => { seen.times.push(frame.presentationTime); video.requestVideoFrameCallback(look); };
  video.requestVideoFrameCallback(look);
});
"""
"""Measures in the page without changing it."""
STATS = """async () => {
  const all = [...(await seen.pcs.at(-1).getStats()).values()];
  return {at: performance.now(), ...all.find((one) => one.type === "inbound-rtp")};
}"""


@dataclass(frozen=True)
class Seen:
    """A browser's measurements."""

    opened_s: float
    """Seconds from opening the page to the first picture."""
    first_s: float | None
    counted: tuple[float, float]
    """Number of freezes by the browser's count, and their total seconds."""
    ours: tuple[float, float]
    minutes: float
    received: float
    decoded: float
    dropped: float
    rate_bps: float
    trusted: bool

    def misses(self) -> list[str]:
        """Return the names of the missed bounds."""
        found = []
        if abs(self.counted[0] - self.ours[0]) > APART * self.minutes:
            found.append("count")
        if abs(self.counted[1] - self.ours[1]) > max(APART_S[0] * self.counted[1], APART_S[1]):
            found.append("duration")
        if self.decoded < DECODED * self.received:
            found.append("decoded")
        return found


def watch(address: str, seconds: float) -> dict[str, Any]:
    """Open a served page in the browser, and return the measurements."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.add_init_script(SEES)
        opened.goto(address)
        opened.wait_for_function("() => seen.times.length > 0", timeout=30_000)
        first = opened.evaluate("seen.times[0] - seen.posted") / 1e3
        before = after = opened.evaluate(STATS)
        if seconds > CUT_S:
            opened.wait_for_timeout(CUT_S * 1e3)
            before = opened.evaluate(STATS)
            opened.wait_for_timeout((seconds - CUT_S) * 1e3)
            after = opened.evaluate(STATS)
        times = opened.evaluate("seen.times")
        browser.close()
    return {"opened_s": times[0] / 1e3, "first_s": first, "before": before, "after": after, "times": times}


def seen(told: dict[str, Any], *, trusted: bool) -> Seen:
    """Evaluate a page's measurements."""
    before, after = told["before"], told["after"]

    def grown(name: str) -> float:
        return float(after.get(name, 0.0)) - float(before.get(name, 0.0))

    whole, early = (_freezes([at for at in told["times"] if at <= end["at"]]) for end in (after, before))
    span = grown("at") / 1e3
    return Seen(
        opened_s=told["opened_s"],
        first_s=told["first_s"],
        counted=(grown("freezeCount"), grown("totalFreezesDuration")),
        ours=(whole[0] - early[0], whole[1] - early[1]),
        minutes=span / 60,
        received=grown("framesReceived"),
        decoded=grown("framesDecoded"),
        dropped=grown("framesDropped"),
        rate_bps=8 * grown("bytesReceived") / span if span else 0.0,
        trusted=trusted,
    )


def _freezes(times_ms: Sequence[float]) -> tuple[float, float]:
    spans = np.diff(np.asarray(times_ms)) / 1e3
    told = json.loads(core.freezes([True] * len(spans), spans.tolist()))
    return float(told["freeze_count"]), float(told["freeze_s"] or 0.0)


def on_loopback(controller: str, seconds: float) -> Seen:
    """Watch over the loopback interface."""
    with serving(f"{SOURCE} --controller {controller} --listen 127.0.0.1:18081") as (address, _):
        return seen(watch(address, seconds), trusted=True)


@contextmanager
def serving(words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a source during the block. Yields the page's address and the process."""
    command = [sys.executable, "-m", "steadycast", "serve", *shlex.split(words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            # SIGINT lets the program write its record.
            process.send_signal(signal.SIGINT)


@dataclass(frozen=True)
class Cell:
    """A link, the competing traffic, and the programs at both ends."""

    network: tuple[str, str, str, float]
    controller: str
    source: str = SOURCE
    query: str = ""
    """Query part of the page's address."""
    busy: bool = True
    seed: int = 1

    def emulated(self, sends: str, views: str, seconds: float) -> tuple[Path, bool]:
        """Run a command at each end.

        Returns the folder with their files, and whether the machine was fast enough for real time.
        """
        folder = Path(tempfile.mkdtemp(prefix="steadycast-"))
        (folder / "link.toml").write_text(link.scenario(*self.network, "10s" if self.busy else None))
        words = [sys.executable, "-m", "steadycast", "emulate", "link.toml", "-o", "net", "--no-film"]
        words += ["--seed", str(self.seed)] + ([] if self.busy else ["--only"])
        words += ["--in", "r", "--", "sh", "-c", views, "--in", "s", "--", "sh", "-c", sends]
        path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds + 120,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{self}: {done.stderr}{done.stdout}")
        summary = json.loads((folder / "net" / "summary.json").read_text())
        return folder, bool(summary["emulation"]["trustworthy"])

    def watched(self, seconds: float) -> tuple[Seen, Path]:
        """Watch in a browser. Returns the measurements and the folder."""
        ours = f"exec {sys.executable} -m"
        serve = f"{ours} steadycast serve {self.source} --controller {self.controller}"
        serve += " --listen $STEADYCAST_S:8080 -o sent > address"
        views = f"{ours} validation.browser --watch address --seconds {seconds} --query '{self.query}' > seen.json"
        folder, trusted = self.emulated(serve, views, seconds)
        return seen(json.loads((folder / "seen.json").read_text()), trusted=trusted), folder

    def received(self, seconds: float) -> Path:
        """Run `steadycast receive` with transport-wide feedback. Returns the folder."""
        ours = f"{sys.executable} -m steadycast"
        send = f"exec {ours} send {self.source} --controller {self.controller} --feedback twcc"
        send += " --to $STEADYCAST_R:5004 --sdp told.sdp -o sent/viewer-1"
        views = (
            f"until [ -s told.sdp ]; do sleep 0.1; done; exec {ours} receive told.sdp --for {seconds}s -o got"
        )
        return self.emulated(send, views, seconds)[0]


def share(folder: Path) -> float:
    """Return the video's share of its and CUBIC's bytes, once both have started."""
    import polars

    def rate(of: str, flow: str) -> float:
        rates = polars.read_parquet(folder / of / "rates.parquet").filter(polars.col("flow") == flow)
        times, each = rates["t_s"].to_numpy(), rates["throughput_bps"].to_numpy()
        last = times.max()
        counted = (times >= last - (SHARE_S - SHARE_FROM_S)) & (times < last - 1) & (each > 0)
        return float(each[counted].mean())

    video, tcp = rate("sent/viewer-1", "video"), rate("net", "tcp")
    return video / (video + tcp)


def printed(place: Path) -> str:
    """Wait until a server has printed its address, and return it."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if place.exists() and "\n" in (text := place.read_text()):
            return text.splitlines()[0]
        time.sleep(0.1)
    raise SystemExit(f"{place}: no address")


def first_table(runs: int) -> page.Table:
    """Measure the time to the first picture."""
    rows = []
    for where, bound in FIRST_S.items():
        found, opened = [], []
        for seed in range(1, runs + 1):
            if where == "loopback":
                one = on_loopback("steady", 0)
            else:
                one, _ = Cell(NETWORKS[where], "steady", busy=False, seed=seed).watched(0)
            print(where, one, file=sys.stderr, flush=True)
            found.append(one.first_s or float("inf"))
            opened.append(one.opened_s)
        middle = statistics.median(found)
        told = f"{middle:.2f} s" if middle <= bound else f"[{middle:.2f} s]"
        ends = [f"{min(found):.2f} s", f"{max(found):.2f} s", f"{bound:g} s", str(runs)]
        rows.append([where, told, *ends, f"{statistics.median(opened):.2f} s"])
    return page.table(
        ["network", "first picture, median", "least", "most", "bound", "runs", "from opening"], rows
    )


def numbers(one: Seen) -> list[str]:
    """Return the cells of `HEADS`."""
    (count, duration), (own, own_s) = one.counted, one.ours
    return [f"{one.rate_bps / 1e3:.0f}", f"{count:.0f}", f"{own:.0f}", f"{duration:.2f}", f"{own_s:.2f}"]


def verdict(*, holds: bool) -> str:
    """Say whether a bound holds."""
    return "holds" if holds else "missed"


def freezes_table(networks: Sequence[str], controllers: Sequence[str], seconds: float) -> page.Table:
    """Measure freezes beside CUBIC."""
    rows = []
    for network in networks:
        for controller in controllers:
            one, _ = Cell(NETWORKS[network], controller).watched(seconds)
            print(network, controller, one, one.misses(), file=sys.stderr, flush=True)
            decoded = f"{100 * one.decoded / max(one.received, 1):.1f}"
            misses = (", ".join(one.misses()) or "none") + ("" if one.trusted else "; the machine stalled")
            rows.append([network, controller, *numbers(one), decoded, f"{one.dropped:.0f}", misses])
    heads = ["network", "controller", *HEADS, "decoded of received, %", "dropped", "bounds missed"]
    return page.table(heads, rows)


def share_table(networks: Sequence[str], controllers: Sequence[str], sessions: int) -> page.Table:
    """Measure shares beside CUBIC, towards a browser and towards `steadycast receive`."""

    def told(shares: Sequence[float]) -> str:
        most = f" ({100 * min(shares):.0f}…{100 * max(shares):.0f})" if len(shares) > 1 else ""
        return f"{100 * statistics.fmean(shares):.0f}{most}"

    rows = []
    for network in networks:
        for controller in controllers:
            cells = [Cell(NETWORKS[network], controller, seed=seed) for seed in range(1, sessions + 1)]
            browser = [share(cell.watched(SHARE_S)[1]) for cell in cells]
            own = [share(cell.received(SHARE_S)) for cell in cells]
            apart = statistics.fmean(browser) / statistics.fmean(own) - 1
            print(network, controller, browser, own, file=sys.stderr, flush=True)
            figures = [told(browser), told(own), f"{100 * apart:.0f}"]
            rows.append([network, controller, *figures, verdict(holds=abs(apart) <= SHARE_APART)])
    heads = ["network", "controller", "to a browser, %", "to a receiver, %", "apart, %", "bound 15 %"]
    return page.table(heads, rows)


def teleop_table(controllers: Sequence[str]) -> page.Table:
    """Measure the freezes of a teleoperator's video."""
    rows = []
    for controller in controllers:
        for gop, playout_ms in TELEOP_WAYS:
            source = SOURCE.replace("--fps 30", f"--fps 15 --gop {gop}")
            cell = Cell(TELEOP, controller, source, f"playout={playout_ms}", busy=False)
            one, _ = cell.watched(TELEOP_S + CUT_S)
            print(controller, one, file=sys.stderr, flush=True)
            told = [controller, str(gop), str(playout_ms), *numbers(one)]
            rows.append([*told, verdict(holds=one.counted[1] <= TELEOP_FROZEN_S)])
    return page.table(["controller", "gop", "playout, ms", *HEADS, "bound 0.7 s"], rows)


def processor_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched_by(count: int, address: str, process: subprocess.Popen[str]) -> tuple[dict[str, Any], float]:
    """Let ``count`` clients watch a server; return their rates, and the cores that the server used."""
    watchers = [str(ROOT / "target/release/examples/watchers"), address, str(count), str(MANY_S)]
    began, before = time.monotonic(), processor_s(process.pid)
    told: dict[str, Any] = json.loads(subprocess.run(watchers, stdout=subprocess.PIPE, check=True).stdout)
    return told["kbps"], (processor_s(process.pid) - before) / (time.monotonic() - began)


def served_to(count: int, source: str, folder: Path) -> list[str]:
    """Serve a source to ``count`` clients; return their rates, the cores in use, and the loops' lateness."""
    words = f"{source} --viewers {count} --max-rate 1Mbps --listen 127.0.0.1:18081 -o {folder}"
    with serving(words) as (address, process):
        kbps, cores = watched_by(count, address, process)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    summaries = [json.loads(each.read_text()) for each in folder.glob("*/summary.json")]
    late = sorted(each["flows"][0]["pacing_late_ms"]["p99"] for each in summaries)
    lates = [f"{statistics.median(late):.2f}", f"{late[-1]:.2f}"]
    return [*costs(count, kbps, cores), *lates, verdict(holds=late[-1] <= MANY_LATE_MS)]


def relayed_to(count: int, film: Path) -> list[str]:
    """Let pion's relay serve a VP8 film to ``count`` clients; return their rates, and the cores in use."""
    words = [str(film.parent / "relay"), "127.0.0.1:18081", str(film)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            kbps, cores = watched_by(count, process.stdout.readline().strip(), process)
        finally:
            process.terminate()
    return [*costs(count, kbps, cores), "", "", ""]


def costs(count: int, kbps: dict[str, Any], cores: float) -> list[str]:
    """Return the cells of the clients' rates and of the processor time."""
    return [str(count), str(kbps["median"]), str(kbps["least"]), f"{cores:.2f}", f"{cores / count:.4f}"]


def many_table(counts: Sequence[int], *, live: bool) -> page.Table:
    """Measure processor time and lateness for many viewers: of a ladder and a relay, or of a live source."""
    build = ["cargo", "build", "--locked", "--release", "-p", "steadycast-live", "--example", "watchers"]
    subprocess.run(build, cwd=ROOT, check=True)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        folder = Path(scratch)
        if live:
            rows += (["serve", *served_to(count, SOURCE, folder / str(count))] for count in counts)
        else:
            build = ["go", "build", "-o", f"{folder}/relay", "./relay"]
            subprocess.run(build, cwd=ROOT / "validation" / "pion", check=True)
            made = [
                "ffmpeg",
                "-v",
                "error",
                "-f",
                "lavfi",
                "-i",
                "mandelbrot=size=640x360:rate=30",
                "-t",
                "10",
            ]
            film, steady = folder / "film.mkv", folder / "film.ivf"
            subprocess.run([*made, film], check=True)
            subprocess.run([*made, "-c:v", "libvpx", *CONSTANT_RATE, steady], check=True)
            for count in counts:
                rows.append(["serve", *served_to(count, f"{film} --loop --ladder", folder / str(count))])
                rows.append(["pion", *relayed_to(count, steady)])
    heads = ["viewers", "rate, kb/s", "least, kb/s", "cores", "cores per viewer"]
    heads += [f"99 % late by, {which} viewer, ms" for which in ("median", "worst")]
    return page.table(["program", *heads, "bound 5 ms"], rows)


def main() -> int:
    """Print the tables, and write them with `--write`."""
    parser = page.options("validation.browser", __doc__, *(f"browser-{name}" for name in TITLES))
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--query", default="", help=argparse.SUPPRESS)
    parser.add_argument("--tables", default=",".join(TITLES))
    parser.add_argument("--runs", type=int, default=10, help="of the first picture (default 10)")
    parser.add_argument("--sessions", type=int, default=3, help="towards each end, of share (default 3)")
    parser.add_argument("--networks", default=";".join(NETWORKS), help="with ; between them")
    parser.add_argument("--controllers", default=",".join(CONTROLLERS))
    parser.add_argument("--seconds", type=float, default=65.0)
    parser.add_argument("--viewers", default="10,25,50", help="of many and live (default 10,25,50)")
    given = parser.parse_args()
    if given.watch is not None:
        address = printed(given.watch).replace("#", f"?{given.query}#")
        print(json.dumps(watch(address, given.seconds)))
        return 0
    networks, controllers = given.networks.split(";"), given.controllers.split(",")
    counts = [int(count) for count in given.viewers.split(",")]
    makes: dict[str, tuple[int, Callable[[], page.Table]]] = {
        "first": (1, lambda: first_table(given.runs)),
        "freezes": (2, lambda: freezes_table(networks, controllers, given.seconds)),
        "share": (2, lambda: share_table(networks, controllers, given.sessions)),
        "teleop": (3, lambda: teleop_table(controllers)),
        "many": (2, lambda: many_table(counts, live=False)),
        "live": (2, lambda: many_table(counts, live=True)),
    }
    for name in given.tables.split(","):
        keys, make = makes[name]
        made = make()
        print(made)
        if given.write:
            command = shlex.join(["python", "-m", "validation.browser", *sys.argv[1:]])
            page.save(f"browser-{name}", TITLES[name], page.merged(f"browser-{name}", made, keys), command)
    return 0


if __name__ == "__main__":
    page.end(main)
