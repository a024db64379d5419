"""A browser as the viewer of `serve`: when its first picture comes, and what stands still: docs/data/browser-*.csv.

    python -m validation.browser                                  # prints both tables; needs root and chromium
    python -m validation.browser --write                          # and writes them into docs/data
    python -m validation.browser --tables freezes --networks 2Mbps --controllers steady --seconds 60

first: from the browser's POST to the first picture that is presented, median of ten, on loopback and on 2 Mb/s with
40 ms of round trip. Bounds, written before the first run: 1 s and 2 s.

freezes: a minute beside the kernel's CUBIC, from 5 s after the first picture on. `freezeCount` and
`totalFreezesDuration` of the browser stand beside ours, by the same rule of the W3C (`crates/ends/src/freeze.rs`) on
the times at which pictures were presented. Bounds: the counts differ by at most one a minute, the durations by 10 % or
0.3 s, and 99 % of the frames that came whole were decoded.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from steadycast.core import core

from validation import page

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "first": "From a browser's offer to the first picture",
    "freezes": "Freezes as the browser counts them and as we do, beside one CUBIC",
}
CONTROLLERS = ("steady", "gcc", "scream", "tfrc")
NETWORKS = {
    "2Mbps": ("2Mbps", "20ms", "40p", 0.0),
    "1Mbps": ("1Mbps", "25ms", "30p", 0.0),
    "5Mbps": ("5Mbps", "10ms", "60p", 0.0),
    "5Mbps, 1 % lost": ("5Mbps", "20ms", "60p", 0.01),
    "3Mbps, 200 ms": ("3Mbps", "100ms", "80p", 0.0),
}
"""Rate, delay each way, queue and loss."""
FIRST_S = {"loopback": 1.0, "2Mbps": 2.0}
CUT_S = 5.0
"""Of the beginning, in which the page is loaded and the rate is looked for."""
APART = 1.0
"""Freezes a minute by which the counts may differ."""
APART_S = (0.1, 0.3)
DECODED = 0.99
SOURCE = ("testsrc", "--size", "640x360", "--fps", "30", "--codec", "vp8")

LINK = """
duration = "5min"
nodes = ["s", "r"]
[[link]]
name = "air"
between = ["s", "r"]
rate = "{rate}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "{queue}" }}
loss = {{ kind = "bernoulli", p = {loss} }}
"""
CUBIC = """
[[flow]]
name = "tcp"
kind = "tcp"
congestion = "cubic"
from = "s"
to = ["r"]
start = "10s"
"""
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
"""Notes in the page what is measured, without a change of the page."""
STATS = """async () => {
  const all = [...(await seen.pcs.at(-1).getStats()).values()];
  return {at: performance.now(), ...all.find((one) => one.type === "inbound-rtp")};
}"""


@dataclass(frozen=True)
class Seen:
    """What a browser saw."""

    first_s: float | None
    counted: tuple[float, float]
    """Freezes by its own count, and how long they were, in seconds."""
    ours: tuple[float, float]
    minutes: float
    received: float
    decoded: float
    dropped: float
    rate_bps: float
    trusted: bool

    def misses(self) -> list[str]:
        """Name the bounds that do not hold."""
        found = []
        if abs(self.counted[0] - self.ours[0]) > APART * self.minutes:
            found.append("count")
        if abs(self.counted[1] - self.ours[1]) > max(APART_S[0] * self.counted[1], APART_S[1]):
            found.append("duration")
        if self.decoded < DECODED * self.received:
            found.append("decoded")
        return found


# ---------------------------------------------------------------- the browser


def watch(address: str, seconds: float) -> dict[str, Any]:
    """Watch a served page, and return what was seen."""
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
    return {"first_s": first, "before": before, "after": after, "times": times}


def seen(told: dict[str, Any], *, trusted: bool) -> Seen:
    """Judge what a page told."""
    before, after = told["before"], told["after"]

    def grown(name: str) -> float:
        return float(after.get(name, 0.0)) - float(before.get(name, 0.0))

    whole, early = (_freezes([at for at in told["times"] if at <= end["at"]]) for end in (after, before))
    span = grown("at") / 1e3
    return Seen(
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


# ---------------------------------------------------------------- a run


def on_loopback(controller: str, seconds: float) -> Seen:
    """Watch over this machine's loopback."""
    words = [sys.executable, "-m", "steadycast", "serve", *SOURCE, "--controller", controller]
    words += ["--listen", "127.0.0.1:18081"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        try:
            assert serving.stdout is not None
            told = watch(serving.stdout.readline().strip(), seconds)
        finally:
            serving.terminate()
    return seen(told, trusted=True)


def emulated(network: str, controller: str, seconds: float, seed: int, *, busy: bool) -> Seen:
    """Watch over an emulated link."""
    rate, delay, queue, loss = NETWORKS[network]
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        folder = Path(scratch)
        link = LINK.format(rate=rate, delay=delay, queue=queue, loss=loss)
        (folder / "link.toml").write_text(link + (CUBIC if busy else ""))
        ours = f"{sys.executable} -m steadycast"
        serve = f"exec {ours} serve {' '.join(SOURCE)} --controller {controller} --listen $STEADYCAST_S:8080 > address"
        viewer = (
            f"exec {sys.executable} -m validation.browser --watch address --seconds {seconds} > seen.json"
        )
        words = [*ours.split(), "emulate", "link.toml", "-o", "net", "--seed", str(seed), "--no-film"]
        words += [] if busy else ["--only"]
        words += ["--in", "r", "--", "sh", "-c", viewer, "--in", "s", "--", "sh", "-c", serve]
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
            raise SystemExit(f"{network}, {controller}: {done.stderr}{done.stdout}")
        summary = json.loads((folder / "net" / "summary.json").read_text())
        told = json.loads((folder / "seen.json").read_text())
        return seen(told, trusted=bool(summary["emulation"]["trustworthy"]))


def printed(place: Path) -> str:
    """Return the address that a server has printed there, once it has."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if place.exists() and "\n" in (text := place.read_text()):
            return text.splitlines()[0]
        time.sleep(0.1)
    raise SystemExit(f"{place}: no address")


# ---------------------------------------------------------------- the tables


def first_table(runs: int) -> page.Table:
    """Measure when the first picture comes."""
    rows = []
    for where, bound in FIRST_S.items():
        found = []
        for seed in range(1, runs + 1):
            one = (
                on_loopback("steady", 0)
                if where == "loopback"
                else emulated(where, "steady", 0, seed, busy=False)
            )
            print(where, one, file=sys.stderr, flush=True)
            found.append(one.first_s or float("inf"))
        middle = statistics.median(found)
        told = f"{middle:.2f} s" if middle <= bound else f"[{middle:.2f} s]"
        rows.append([where, told, f"{min(found):.2f} s", f"{max(found):.2f} s", f"{bound:g} s", str(runs)])
    return page.table(["network", "first picture, median", "least", "most", "bound", "runs"], rows)


def freezes_table(networks: Sequence[str], controllers: Sequence[str], seconds: float) -> page.Table:
    """Measure freezes beside CUBIC."""
    heads = ["network", "controller", "rate, kb/s", "freezes, browser", "ours", "frozen, browser", "ours, s"]
    rows = []
    for network in networks:
        for controller in controllers:
            one = emulated(network, controller, seconds, 1, busy=True)
            print(network, controller, one, one.misses(), file=sys.stderr, flush=True)
            rows.append(
                [
                    network,
                    controller,
                    f"{one.rate_bps / 1e3:.0f}",
                    f"{one.counted[0]:.0f}",
                    f"{one.ours[0]:.0f}",
                    f"{one.counted[1]:.2f} s",
                    f"{one.ours[1]:.2f}",
                    f"{100 * one.decoded / max(one.received, 1):.1f} %",
                    f"{one.dropped:.0f}",
                    (", ".join(one.misses()) or "none") + ("" if one.trusted else "; the machine stalled"),
                ]
            )
    return page.table([*heads, "decoded of received", "dropped", "bounds missed"], rows)


def main() -> int:
    """Print the tables, and write them where it is asked for."""
    parser = page.options("validation.browser", __doc__, *(f"browser-{name}" for name in TITLES))
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tables", default=",".join(TITLES))
    parser.add_argument("--runs", type=int, default=10, help="of the first picture (default 10)")
    parser.add_argument("--networks", default=";".join(NETWORKS), help="with ; between them")
    parser.add_argument("--controllers", default=",".join(CONTROLLERS))
    parser.add_argument("--seconds", type=float, default=65.0)
    given = parser.parse_args()
    if given.watch is not None:
        print(json.dumps(watch(printed(given.watch), given.seconds)))
        return 0
    for name in given.tables.split(","):
        made = (
            first_table(given.runs)
            if name == "first"
            else freezes_table(given.networks.split(";"), given.controllers.split(","), given.seconds)
        )
        print(made)
        if given.write:
            command = shlex.join(["python", "-m", "validation.browser", *sys.argv[1:]])
            page.save(f"browser-{name}", TITLES[name], made, command)
    return 0


if __name__ == "__main__":
    page.end(main)
