"""Measures the results of `steadycast call` on known paths: networks drawn from a seed, docs/data/call.csv.

    python -m validation.call                # prints them, and whether the bounds hold
    python -m validation.call --first 9901 --cells 40 --write     # a part, merged into docs/data
    python -m validation.call --first 1 --cells 20      # other networks, which are not written
    python -m validation.call --first 1 --cells 160 --beside cubic:1     # beside a CUBIC, which `call` is told
    python -m validation.call --same 8       # the same call from captures at its sender, at its receiver and at both
    python -m validation.call --speed        # how long reading takes, and replaying
    python -m validation.call --browser 3 --write     # as root: two Chromiums, docs/data/call-browser.csv

Each network has a capacity of 0.4 to 4 Mb/s in one to four steps over 40 s, 5 to 80 ms of delay, a queue of 20 to
300 ms, and in half of them random loss of up to 2 %. Every fourth one has a CUBIC beside the call, where the only
right result is a refusal. Frame sizes are those of RFC 8593, in every second network those of an encoded film. The
maximum rate is 0.4 to 4 Mb/s, so many calls do not fill their link. The call uses `gcc` with TWCC feedback, captured
at the sender. A ranking is compared with the results of five controllers on the network itself.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
from steadycast import call, openloop, replay
from steadycast.record import middle
from steadycast.report import say
from steadycast.run import run
from steadycast.toml import document

from validation import page

SECONDS = 40
FIRST, CELLS = 9901, 200
"""The table's first seed, and its number of networks. Other seeds are for tuning."""
PATHS = 10
SENDER = "video.src-left"
"""The link at which the sender's capture is made."""
ALIKE = 0.05
"""A smaller difference of scores on the network itself counts as none."""
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
    "pairs ranked right",
    "ranked wrong",
    "not ranked",
    "pairs that differ",
    "of these ranked right",
)
KNOWN, ERROR, IN_BAND, REPLAY, RIGHT = 4, 6, 7, 8, 9
"""Indices in a row of "known", "error, 90 %", "in band", "replay" and "pairs ranked right".

The other counts of `judged` follow `RIGHT`.
"""
BOUNDS = {
    "capacity: of the paths shown, those with nine of ten half seconds within 10 % (%)": 90,
    "bands: half seconds whose true capacity is in the band (%)": 85,
    "ranking: of the calls replayed, those in which no pair that differs is ranked the other way round (%)": 90,
    "beside a CUBIC: paths refused (%)": 95,
}
"""The lowest acceptable percentages."""
SAME_PERCENT = 5
"""Maximum difference in per cent of a call's capacities from different captures, for nine of ten half seconds."""
SPEED_S = {"reading 10 minutes of 3 Mb/s": 2, "20 paths of it with 5 controllers, on each of two cores": 60}
"""Maximum processor time in seconds."""


def network(seed: int) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Return a scenario, and its capacity's steps as pairs of seconds and bit/s."""
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
        "record": {"pcap": [SENDER]},
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


def called(
    seed: int, place: Path, *links: str
) -> tuple[dict[str, Any], list[tuple[float, float]], list[Path]]:
    """Run the call of one network in a folder.

    Returns the scenario, the steps of its capacity, and a capture of each link.
    """
    made, steps = network(seed)
    made["record"]["pcap"] = list(links)
    (place / "network.toml").write_text(document(made), encoding="utf-8")
    run(place / "network.toml", out=place / "run", quality=False)
    return made, steps, [place / "run" / "pcap" / f"{link}.pcapng" for link in links]


def measured(seed: int, beside: str | None = None) -> list[str]:
    """Run a network's call, analyse its capture, replay it, and compare with runs on the network itself."""
    with tempfile.TemporaryDirectory() as place:
        made, steps, (capture,) = called(seed, Path(place), SENDER)
        read = call.read(capture, beside=beside)
        read["replay"] = found = replay.replay(read, paths=PATHS)
        pairs = None if found["refusals"] else judged(found, Path(place) / "network.toml")
    errors, held = [], 0
    for i, each in enumerate(read["bins"]):
        truth = [rate for at, rate in steps if at <= i * call.BIN_S][-1]
        if (band := each["capacity_bps"]) is not None:
            errors.append(100 * abs(band["rate"] / truth - 1))
            held += band["low"] <= truth <= band["high"]
    errors.sort()
    path = read["path"]
    return [
        str(seed),
        "nobody" if len(made["flow"]) == 1 else f"{beside}, named" if beside else "CUBIC",
        ", ".join(f"{rate / 1e6:.2f}" for _, rate in steps),
        "refused" if path["refusals"] else str(path["verdict"]),
        f"{100 * path['known_frac']:.0f}",
        f"{middle(errors):.2f}" if errors else "",
        f"{errors[len(errors) * 9 // 10]:.2f}" if errors else "",
        f"{100 * held / len(errors):.0f}" if errors else "",
        "refused" if pairs is None else "yes",
        *(map(str, pairs) if pairs is not None else [""] * 5),
    ]


def judged(found: dict[str, Any], file: Path) -> tuple[int, ...]:
    """Count the pairs of controllers that differ on the network itself.

    Returns the pairs reported correctly, in the wrong order, and not at all; the pairs whose difference the
    reconstructed paths must show; and how many of these are reported correctly.
    """
    scores = {}
    for name in replay.CONTROLLERS:
        sets = [f"flow.video.controller={name}", "record.pcap=[]"]
        scores[name] = (
            run(file, set=sets, quality=False).summary["flows"][0]["receivers"][0]["rate_score"] or 1.0
        )
    right = wrong = unsure = far = far_right = 0
    for pair in found["pairs"]:
        ahead = scores[pair["one"]] - scores[pair["other"]]
        if abs(ahead) < ALIKE:
            continue
        share = pair["better"] / found["paths"] if ahead > 0 else 1 - pair["better"] / found["paths"]
        right, wrong = right + (share > replay.TOLD), wrong + (share < 1 - replay.TOLD)
        unsure += 1 - replay.TOLD <= share <= replay.TOLD
        far += abs(ahead) >= replay.ALIKE
        far_right += abs(ahead) >= replay.ALIKE and share > replay.TOLD
    return right, wrong, unsure, far, far_right


def same(seeds: Iterable[int]) -> bool:
    """Print the differences between the capacities from captures at the sender, the receiver and both ends.

    Returns whether all are within the bound.
    """
    within = True
    print(page.head(("network", "receiver's, 90 % (%)", "both ends', 90 % (%)")))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as place:
            *_, (sent, came) = called(seed, Path(place), SENDER, "right-video.dst1")
            reads = [
                call.read(file, side=side, other=other, controllers=[])["bins"]
                for file, side, other in (
                    (sent, "sender", None),
                    (came, "receiver", None),
                    (sent, None, came),
                )
            ]
        cells = []
        for bins in reads[1:]:
            both = [(a["capacity_bps"], b["capacity_bps"]) for a, b in zip(reads[0], bins, strict=False)]
            off = sorted(100 * abs(b["rate"] / a["rate"] - 1) for a, b in both if a and b)
            within &= not off or off[len(off) * 9 // 10] <= SAME_PERCENT
            cells.append(f"{off[len(off) * 9 // 10]:.2f}" if off else "")
        print(page.row((str(seed), *cells)), flush=True)
    print(f"{'holds' if within else 'FAILS'}: nine of ten half seconds are within {SAME_PERCENT} %")
    return within


def speed() -> bool:
    """Print the processor time of reading and replaying a long call. Return whether it is within `SPEED_S`."""
    made, _ = network(1)
    made |= {"duration": "600s", "event": [], "record": {"pcap": [SENDER]}}
    queue = {"kind": "droptail", "limit": "100ms"}
    made["topology"]["bottleneck"] = {"rate": "3300kbps", "delay": "20ms", "queue": queue}
    made["flow"][0] |= {"cap": "6Mbps", "rfc8593": {"r_max": "6Mbps"}}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "network.toml"
        file.write_text(document(made), encoding="utf-8")
        run(file, out=Path(place) / "run", quality=False)
        begin = time.process_time()
        read = call.read(Path(place) / "run" / "pcap" / f"{SENDER}.pcapng", controllers=[])
        middle_s = time.process_time()
    replay.replay(read, paths=20)
    took = (middle_s - begin, (time.process_time() - middle_s) / 2)
    print(f"{read['seen']['packets']} packets, {say.rate(read['seen']['sent_bps'])}")
    for (what, most), each in zip(SPEED_S.items(), took, strict=True):
        print(f"{'holds' if each <= most else 'FAILS'}: {what}: {each:.1f} s, at most {most}")
    return all(each <= most for each, most in zip(took, SPEED_S.values(), strict=True))


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
"""Seconds before the network's events begin, as in the example of two Chromiums."""


def browser(seed: int) -> list[str] | None:
    """Compare the sender's event log of two Chromiums' call in real time with its network.

    Returns `None` if no call was set up, or the machine was too busy to be trusted.
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
    """Return the share of true values in per cent."""
    all_of = list(which)
    return 100 * sum(all_of) / len(all_of) if all_of else 100.0


def verdicts(rows: list[list[str]]) -> dict[str, float]:
    """Return the values that are compared with `BOUNDS`, from a table's rows."""
    shown = [each for each in rows if each[3] != "refused" and each[1] != "CUBIC"]
    known = sum(float(each[KNOWN]) for each in shown)
    values = (
        share(float(each[ERROR]) <= 10 for each in shown),
        sum(float(each[IN_BAND]) * float(each[KNOWN]) for each in shown) / max(known, 1),
        share(each[RIGHT + 1] == "0" for each in shown if each[REPLAY] == "yes"),
        share(each[3] == "refused" for each in rows if each[1] == "CUBIC"),
    )
    return dict(zip(BOUNDS, values, strict=True))


def told(rows: list[list[str]]) -> bool:
    """Print the results of a table's rows. Returns whether the bounds hold."""
    alone = [each for each in rows if each[1] != "CUBIC"]
    replayed = [each for each in alone if each[REPLAY] == "yes"]
    right, wrong, unsure, far, seen = (sum(int(each[RIGHT + k]) for each in replayed) for k in range(5))
    print(
        f"{len(alone)} beside nobody or those named: {sum(each[3] != 'refused' for each in alone)} show their path, "
        f"{len(replayed)} are replayed ({share(each[REPLAY] != 'yes' for each in alone):.1f} % are not); pairs told "
        f"right {right}, wrong {wrong}, not {unsure}; of {far} that are {replay.ALIKE} apart {seen} right"
    )
    found = verdicts(rows)
    for what, value in found.items():
        print(
            f"{'holds' if value >= BOUNDS[what] else 'FAILS'}: {what}: {value:.1f}, at least {BOUNDS[what]}"
        )
    return all(value >= BOUNDS[what] for what, value in found.items())


def browsers(seeds: Iterable[int], *, write: bool) -> None:
    """Print a row for each call of two Chromiums that was set up."""
    title = "Capacities that logs of two Chromiums show, compared with the networks that the calls crossed"
    for cells in filter(None, map(browser, seeds)):
        print(page.head(BROWSER_HEADS), page.row(cells), sep="\n", flush=True)
        if write:
            made = page.merged("call-browser", page.table(BROWSER_HEADS, [cells]), 1)
            page.save(
                "call-browser", title, made, "python -m validation.call --browser 20 --first 21 --write"
            )


def main() -> int:
    """Measure, print, and with `--write` write the results."""
    parser = page.options("validation.call", __doc__, "call")
    parser.add_argument("--first", type=int, default=FIRST, help="the first network's seed")
    parser.add_argument("--cells", type=int, default=CELLS, help="how many networks")
    parser.add_argument(
        "--beside", help="name the others in the queue, as steadycast call does; only such networks"
    )
    parser.add_argument("--same", type=int, default=0, help="so many calls by each of their records instead")
    parser.add_argument("--speed", action="store_true", help="measure how long it takes instead")
    parser.add_argument(
        "--browser", type=int, default=0, help="so many calls of two Chromiums instead, in real time"
    )
    options = parser.parse_args()
    seeds = range(options.first, options.first + (options.browser or options.same or options.cells))
    if options.beside and options.write:
        parser.error("--beside: the table is of calls whose others nobody names; leave out --write")
    if options.browser:
        browsers(seeds, write=options.write)
        return 0
    if options.same or options.speed:
        return int(not (same(seeds) if options.same else speed()))
    rows = []
    print(page.head(HEADS))
    for seed in seeds:
        # Only every fourth network has another flow in its queue.
        if options.beside and seed % 4:
            continue
        rows.append(measured(seed, options.beside))
        print(page.row(rows[-1]), flush=True)
    if options.write:
        made = page.merged("call", page.table(HEADS, rows), 1)
        rows = [list(each) for each in made.rows if 0 <= int(each[0]) - FIRST < CELLS]
        rows.sort(key=lambda each: int(each[0]))
        title = "Paths and rankings that calls showed, compared with the networks that they crossed"
        page.save("call", title, page.table(HEADS, rows), "python -m validation.call --write")
    told(rows)
    return 0


if __name__ == "__main__":
    page.end(main)
