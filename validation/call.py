"""What `steadycast call` finds of paths that are known: networks drawn by a seed, docs/data/call.csv.

    python -m validation.call                # prints them, and whether the bounds hold
    python -m validation.call --write        # and writes them into docs/data
    python -m validation.call --first 1 --seeds 20      # other networks, fewer
    python -m validation.call --browser 3 --write     # as root: two Chromiums, docs/data/call-browser.csv

Each network has a capacity of 0.4 to 4 Mb/s in one to four steps over 40 s, 5 to 80 ms of delay, a queue of 20 to
300 ms, chance losses of up to 2 % in half of them, and nobody beside, or, in every fourth one, a CUBIC, where only a
refusal is right. The media has RFC 8593's sizes, in every second network an encoded film's, and up to 0.4 to 4 Mb/s, so
that many a call does not fill its link. The call is one of `gcc` over TWCC; its capture at the sender is what is
read. The truth of a ranking is what five controllers do on the network itself, with the same media.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from steadycast import call, openloop, replay
from steadycast.record import middle
from steadycast.run import run
from steadycast.toml import document

from validation import page

SECONDS = 40
FIRST = 9801
PATHS = 10
ALIKE = 0.05
"""Scores on the network itself that are nearer to each other are no difference."""
HEADS = (
    "network",
    "beside",
    "steps (Mb/s)",
    "path",
    "known (%)",
    "error, median (%)",
    "error, 90 % (%)",
    "in band (%)",
    "replay",
    "pairs told right",
    "told wrong",
    "not told",
)
BOUNDS = {
    "capacity: of the paths shown, those with nine of ten half seconds within 10 % (%)": 90,
    "bands: half seconds in which they hold the truth (%)": 85,
    "ranking: of the calls replayed, those in which no pair that differs is told the other way (%)": 90,
    "beside a CUBIC: paths refused (%)": 95,
}
"""The least that has to hold, each."""


def network(seed: int) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Return a scenario, and its capacity's steps: (s, bit/s)."""
    draw = random.Random(seed)
    count = draw.randint(1, 4)
    steps = [(SECONDS * i / count, 1e6 * 0.4 * 10 ** draw.random()) for i in range(count)]
    queue = steps[0][1] / 8 * draw.uniform(0.02, 0.3)
    bottleneck: dict[str, Any] = {
        "rate": f"{steps[0][1]:.0f}bps",
        "delay": f"{draw.uniform(5, 80):.1f}ms",
        "queue": {"kind": "droptail", "limit": f"{max(queue, 6000):.0f}B"},
    }
    if draw.random() < 0.5:
        bottleneck["loss"] = draw.uniform(0.001, 0.02)
    video: dict[str, Any] = {"name": "video", "kind": "video", "controller": "gcc", "feedback": "twcc"}
    most = f"{4e5 * 10 ** draw.random():.0f}bps"
    codec = (
        {"r_max": most, "model": "trace"} if seed % 2 else {"r_max": most, "scale_b": draw.uniform(0.1, 0.5)}
    )
    flows = [video | {"media": "rfc8593", "cap": most, "rfc8593": codec, "encode": {"fps": 30}}]
    if seed % 4 == 0:
        flows.append({"name": "tcp", "kind": "tcp", "congestion": "cubic", "preset": "linux", "start": "1s"})
    made: dict[str, Any] = {
        "format": 1,
        "name": f"call-{seed}",
        "duration": f"{SECONDS}s",
        "seed": seed,
        "record": {"pcap": ["video.src-left"]},
        "topology": {
            "shape": "dumbbell",
            "bottleneck": bottleneck,
            "access": {"rate": "100Mbps", "delay": "1ms"},
        },
        "flow": flows,
    }
    events = [
        {"at": f"{at:g}s", "set": {"link": "bottleneck", "rate": f"{rate:.0f}bps"}} for at, rate in steps[1:]
    ]
    return made | ({"event": events} if events else {}), steps


@dataclass
class Measured:
    """What was found of one network."""

    row: list[str]
    beside: bool
    refused: bool
    errors: list[float]
    """Of each known half second, in per cent."""
    held: int
    """In how many of these the band holds the truth."""
    pairs: tuple[int, int, int] | None
    """Pairs of controllers that differ and are told rightly, told wrongly, and not told; `None` without a replay."""


def measured(seed: int) -> Measured:
    """Run one network's call, read its capture, replay it, and set that against the network itself."""
    made, steps = network(seed)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "network.toml"
        file.write_text(document(made), encoding="utf-8")
        run(file, out=Path(place) / "run", quality=False)
        read = call.read(Path(place) / "run" / "pcap" / "video.src-left.pcapng")
        read["replay"] = found = replay.replay(read, paths=PATHS)
        pairs = None if found["refusals"] else judged(found, file)
    errors, held = [], 0
    for i, each in enumerate(read["bins"]):
        truth = [rate for at, rate in steps if at <= i * call.BIN_S][-1]
        if (band := each["capacity_bps"]) is not None:
            errors.append(100 * abs(band["rate"] / truth - 1))
            held += band["low"] <= truth <= band["high"]
    errors.sort()
    path, beside = read["path"], len(made["flow"]) > 1
    row = [
        str(seed),
        "CUBIC" if beside else "nobody",
        ", ".join(f"{rate / 1e6:.2f}" for _, rate in steps),
        "refused" if path["refusals"] else str(path["verdict"]),
        f"{100 * path['known_frac']:.0f}",
        f"{middle(errors):.2f}" if errors else "",
        f"{errors[len(errors) * 9 // 10]:.2f}" if errors else "",
        f"{100 * held / len(errors):.0f}" if errors else "",
        "refused" if pairs is None else "yes",
        *(map(str, pairs) if pairs is not None else ("", "", "")),
    ]
    return Measured(row, beside, bool(path["refusals"]), errors, held, pairs)


def judged(found: dict[str, Any], file: Path) -> tuple[int, int, int]:
    """Count pairs that differ on the network itself: told so, told the other way, and not told."""
    scores = {}
    for name in replay.CONTROLLERS:
        sets = [f"flow.video.controller={name}", "record.pcap=[]"]
        scores[name] = (
            run(file, set=sets, quality=False).summary["flows"][0]["receivers"][0]["viewing_score"] or 1.0
        )
    right = wrong = unsure = 0
    for pair in found["pairs"]:
        ahead = scores[pair["one"]] - scores[pair["other"]]
        if abs(ahead) < ALIKE:
            continue
        share = pair["better"] / found["paths"] if ahead > 0 else 1 - pair["better"] / found["paths"]
        right, wrong = right + (share > replay.TOLD), wrong + (share < 1 - replay.TOLD)
        unsure += 1 - replay.TOLD <= share <= replay.TOLD
    return right, wrong, unsure


BROWSER_HEADS = (
    "network",
    "steps (Mb/s)",
    "path",
    "known (%)",
    "error, median (%)",
    "within 10 % (%)",
    "replay",
    "gcc as logged (%)",
)
LEAD_S = 20
"""The network's first change counts from here, as the example of two Chromiums says."""


def browser(seed: int) -> list[str] | None:
    """Have two Chromiums call across a network in real time, and set its sender's event log against the network.

    `None` where they did not come to call, or the machine was too busy for the emulation to be trusted.
    """
    draw = random.Random(seed)
    steps = [(at, 1e6 * draw.uniform(0.5, 2.0)) for at in (0.0, 12.0, 24.0)]
    events = [
        {"at": f"{at:g}s", "set": {"link": "bottleneck", "rate": f"{rate:.0f}bps"}} for at, rate in steps[1:]
    ]
    queue = {"kind": "droptail", "limit": "150ms"}
    bottleneck = {"rate": f"{steps[0][1]:.0f}bps", "delay": f"{draw.uniform(10, 60):.0f}ms", "queue": queue}
    topology = {"shape": "dumbbell", "access": {"rate": "1Gbps"}, "bottleneck": bottleneck}
    about = {"about": f"drawn by {seed}", "source": "own", "licence": "facts", "kind": "synthetic"}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "drawn.toml").write_text(
            document(about | {"topology": topology, "event": events}), encoding="utf-8"
        )
        program = place / "logging"
        program.write_text(
            f'#!/bin/sh\nexec chromium --webrtc-event-logging={place} "$@"\n', encoding="utf-8"
        )
        program.chmod(0o755)
        pair = (page.DATA.parent.parent / "examples" / "judge" / "chromium.toml").read_text(encoding="utf-8")
        pair = pair.replace("--clip {clip.y4m}", f"--clip {{clip.y4m}} --program {program}")
        (place / "pair.toml").write_text(pair, encoding="utf-8")
        words = ["judge", place / "pair.toml", "--networks", place / "drawn.toml", "-o", place / "out"]
        line = [sys.executable, "-m", "steadycast", *map(str, words)]
        judged_so = subprocess.run(line, check=False, stderr=subprocess.PIPE, text=True).stderr
        logs = sorted(place.glob("event_log*"), key=lambda log: log.stat().st_mtime)
        if "not to be trusted" in judged_so or not logs:
            print(judged_so, file=sys.stderr)
            return None
        read = call.read(logs[-1])
        (wire,) = (place / "out" / "cells").glob("*/*/wire.parquet")
        sent = pl.read_parquet(wire).filter(pl.col("ssrc").is_not_null(), pl.col("rtp_ts") > 0)
        begin = min(sent["sent_s"], default=0.0) - LEAD_S
    errors = []
    for i, each in enumerate(read["bins"]):
        truth = [rate for at, rate in steps if at <= max(i * call.BIN_S + begin, 0.0)][-1]
        if (band := each["capacity_bps"]) is not None:
            errors.append(100 * abs(band["rate"] / truth - 1))
    found, path, seen = replay.replay(read, [replay.RECORDED], PATHS), read["path"], read["seen"]
    apart = openloop.apart(read["open"][replay.RECORDED], seen["estimates"], seen["length_s"])
    return [
        str(seed),
        ", ".join(f"{rate / 1e6:.2f}" for _, rate in steps),
        "refused" if path["refusals"] else str(path["verdict"]),
        f"{100 * path['known_frac']:.0f}",
        f"{middle(errors):.1f}" if errors else "",
        f"{share(each <= 10 for each in errors):.0f}" if errors else "",
        "refused" if found["refusals"] else "yes",
        f"{share(each is None for each in apart):.0f}",
    ]


def share(which: Iterable[bool]) -> float:
    """Return how many of them are true, in per cent."""
    all_of = list(which)
    return 100 * sum(all_of) / len(all_of) if all_of else 100.0


def verdicts(all_of: list[Measured]) -> dict[str, float]:
    """Return what `BOUNDS` bound."""
    shown = [each for each in all_of if not each.refused and not each.beside]
    values = (
        share(each.errors[len(each.errors) * 9 // 10] <= 10 for each in shown),
        100 * sum(each.held for each in shown) / max(sum(len(each.errors) for each in shown), 1),
        share(each.pairs[1] == 0 for each in shown if each.pairs is not None),
        share(each.refused for each in all_of if each.beside),
    )
    return dict(zip(BOUNDS, values, strict=True))


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = page.options("validation.call", __doc__, "call", seeds=200)
    parser.add_argument("--first", type=int, default=FIRST, help="the first network's seed")
    parser.add_argument(
        "--browser", type=int, default=0, help="so many calls of two Chromiums instead, in real time"
    )
    options = parser.parse_args()
    if options.browser:
        for seed in range(options.first, options.first + options.browser):
            if (cells := browser(seed)) is None:
                continue
            print(page.head(BROWSER_HEADS), page.row(cells), sep="\n", flush=True)
            if options.write:
                title = (
                    "Capacities that logs of two Chromiums show, against the networks that they called across"
                )
                made = page.merged("call-browser", page.table(BROWSER_HEADS, [cells]), 1)
                page.save(
                    "call-browser", title, made, "python -m validation.call --browser 20 --first 21 --write"
                )
        return 0
    all_of = []
    print(page.head(HEADS))
    for seed in range(options.first, options.first + options.seeds):
        all_of.append(measured(seed))
        print(page.row(all_of[-1].row), flush=True)
    replayed = [each.pairs for each in all_of if each.pairs is not None]
    print(
        f"shown {sum(not each.refused for each in all_of)}, replayed {len(replayed)}, pairs told right, wrong, not:"
    )
    print(*(sum(each[k] for each in replayed) for k in range(3)))
    found = verdicts(all_of)
    for what, value in found.items():
        print(
            f"{'holds' if value >= BOUNDS[what] else 'FAILS'}: {what}: {value:.1f}, at least {BOUNDS[what]}"
        )
    if options.write:
        title = "Paths that calls showed, and rankings on them, against the networks that they went over"
        page.save(
            "call",
            title,
            page.table(HEADS, [each.row for each in all_of]),
            "python -m validation.call --write",
        )
    return 0


if __name__ == "__main__":
    page.end(main)
