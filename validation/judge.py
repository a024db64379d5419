"""Checks the results of `steadycast judge` on known pairs, and makes the table of pairs: docs/judge.md.

    python -m validation.judge own                # our own pair: its record compared with judge's result; needs root
    python -m validation.judge table              # the examples on networks: one row per pair and network
    python -m validation.judge keep               # judge twice, the second time with --keep, and with a greedier sender
    python -m validation.judge rootless           # the same pair as root and in a user namespace
    python -m validation.judge browser            # two Chromiums' freezes by marks beside their own counts
    python -m validation.judge transports         # FFmpeg's rates beside those of docs/transports.md
    python -m validation.judge table --pairs iperf3,ffmpeg-rtp --networks leo,lte --seconds auto -o DIR
    python -m validation.judge table --from DIR,DIR --write    # from kept results; a cell in both takes the later one

`own` and `table` write docs/data with `--write`, and keep rows that were not judged again. Cells run one at a time,
each for its lead time, its measured time, and about 9 s. `scripts/grids.py` draws the table.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from steadycast.errors import UserError
from steadycast.folder import read_json
from steadycast.judge import pair as pairs
from steadycast.judge import suite, text
from steadycast.judge.figures import COLUMNS, figures_now
from steadycast.judge.pair import Pair, seconds
from steadycast.judge.score import Cell, frozen
from steadycast.media.cache import folder as cache_folder
from steadycast.networks import sets
from steadycast.rootless import MARK, UNSHARE

from validation import page
from validation import transports as others

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "judge"
PAIRS = ("ffmpeg-rtp", "gstreamer-gcc", "ffmpeg-srt", "aiortc", "chromium", "iperf3", "steadycast")
NETWORKS = "cable-5+cubic,lte,wifi-bad,4g-unstable,leo"
"""The networks of `smoke` that change within 20 s: 24 minutes for seven pairs."""
AROUND_S = 9.0
"""Seconds of a cell besides its lead time and its measured time."""
PLAYOUT_S, WAITS_S = 0.5, 0.3
"""The player's delay, and the wait for lost packets, in seconds, as in the example."""
FRAMES_PCT, IN_TIME_POINTS, FREEZES, RATE_PCT = 1.0, 1.0, 1.0, 2.0
"""Maximum differences between judge and the receiver's record.

Frames in per cent, in time in percentage points, freezes per minute, rate in per cent.
"""
KEPT = 0.95
"""Share of the lines that a second run with --keep must leave unchanged."""
GREED = 1.3
AUTO, LEAST_S = "auto", 20.0
"""`--seconds auto` measures each network for its own time with all its changes, at least 20 s."""
TABLE = "judged"

Json = dict[str, Any]


def example(name: str) -> Path:
    """Return the file of an example, which may be in a folder with its name."""
    return next(
        path for path in (EXAMPLES / f"{name}.toml", EXAMPLES / name / f"{name}.toml") if path.exists()
    )


def judged(pair: Pair, out: Path, **more: Any) -> suite.Done:
    """Judge a pair, one cell at a time."""
    return suite.judge(suite.Asked(pair, jobs=1, anyway=True, **more), out)


def asked_for(options: argparse.Namespace, name: str) -> Pair:
    """Return an example's pair with the networks, duration and lead time of the options."""
    pair = replace(pairs.read(example(name)), networks=options.networks)
    lead = pair.lead_s if options.lead is None else seconds(options.lead, "--lead")
    long = LEAST_S if options.seconds == AUTO else seconds(options.seconds, "--seconds")
    return replace(pair, seconds=long, lead_s=lead)


def own_record(cell: Cell) -> Mapping[str, float]:
    """Return judge's figures from the files that `receive -o` wrote: frames, in time, freezes, rate.

    The first packet aligns the clocks: both records have its arrival. A frame is shown at its arrival, but not before
    its play-out time, which counts from the frame with the shortest delay so far.
    """
    folder = cell.folder / "received"
    # The player also shows the decodable parts of incomplete frames.
    frames = pl.read_parquet(folder / "frames.parquet").filter(pl.col("size_bytes") > 0).sort("pts_s")
    begun = next(e["t"] for e in cell.crew if e["what"] == "start" and e["program"] == "receive")
    heard = cell.way().filter(pl.col("arrived_s") > begun, pl.col("ssrc").is_not_null())["arrived_s"].min()
    offset = float(heard) - float(frames["first_s"].min())  # type: ignore[arg-type]
    # An incomplete frame is passed on when the receiver stops waiting for its packets.
    given = frames["arrived_s"] + WAITS_S * (frames["fate"] == "lost")
    arrived, pts = given.to_numpy() + offset, frames["pts_s"].to_numpy()
    due = np.minimum.accumulate(arrived - pts) + pts + PLAYOUT_S
    shown = np.maximum(np.maximum.accumulate(arrived), due)
    low, high = cell.window
    inside = (shown >= low) & (shown < high)
    assert cell.pair.clip is not None
    # Count the pictures that at the lowest delay could arrive and be shown in the measured time.
    came, deadline = due - PLAYOUT_S, cell.pair.rtp.deadline_s
    last = high - PLAYOUT_S - deadline
    timely = (shown - due <= deadline) & (came >= low) & (came < last)
    # The receiver's rates are per whole second of its clock: compare the same seconds on the wire.
    rates = pl.read_parquet(folder / "rates.parquet").filter(pl.col("throughput_bps").is_not_null())
    rates = rates.filter(pl.col("t_s") >= low - offset, pl.col("t_s") + 1 <= high - offset)
    begin, end = offset + rates["t_s"][0], offset + rates["t_s"][-1] + 1
    wire = cell.way().filter(pl.col("arrived_s").is_between(begin, end, closed="left"))
    return {
        "pictures": float(inside.sum()),
        "in_time_frac": float(timely.sum()) / ((last - low) * float(cell.pair.clip.rate)),
        "freezes_per_min": frozen(shown[inside], low, high)["freezes_per_min"],
        "throughput_bps": float(np.mean(rates["throughput_bps"].to_numpy())),
        "wire_bps": 8 * float(wire["bytes"].sum()) / (end - begin),
    }


OWN = (
    ("pictures", "pictures", FRAMES_PCT, True, 1.0),
    ("in time, %", "in_time_frac", IN_TIME_POINTS, False, 100.0),
    ("freezes/min", "freezes_per_min", FREEZES, False, 1.0),
    ("rate, Mb/s", "throughput_bps", RATE_PCT, True, 1e-6),
)
"""Heading, key, bound, whether the bound is in per cent of our record, and scale."""


def own(options: argparse.Namespace) -> int:
    """Judge our own pair twice on each network, and compare it with the receiver's record."""
    pair = asked_for(options, "steadycast")
    figures = [f"{head}: {who}" for head, *_ in OWN for who in ("judge", "record")]
    heads = ["network", "run", *figures, "misses", "trust"]
    rows: list[list[str]] = []
    missed = 0
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        out = options.out or Path(scratch) / "own"
        done = judged(pair, out, runs=2, keep=None)
        for told in done.json["cells"]:
            for run in told["runs"]:
                row = [told["network"], str(run["run"])]
                if run["failed"]:
                    rows.append([*row, *[""] * 2 * len(OWN), run["failed"]["reason"], "no"])
                    missed += 1
                    continue
                record = own_record(Cell(out / "cells" / told["network"] / str(run["run"]), pair))
                misses = []
                for head, key, bound, relative, scale in OWN:
                    says, was = record["wire_bps"] if key == "throughput_bps" else run[key], record[key]
                    row += [f"{scale * says:.4g}", f"{scale * was:.4g}"]
                    if abs(says - was) > bound * (was / 100 if relative else 1):
                        misses.append(head.partition(",")[0])
                rows.append([*row, ", ".join(misses), "no" if run["doubts"] else "yes"])
                missed += bool(misses)
    made = page.table(heads, rows)
    print(made)
    print(
        f"{missed} of {len(rows)} miss a bound: pictures {FRAMES_PCT:g} %, in time {IN_TIME_POINTS:g} point,"
        f" freezes {FREEZES:g} a minute, rate {RATE_PCT:g} %"
    )
    if options.write:
        title = "Judge's figures of our own pair, and those of its receiver's record"
        page.save("judge-own", title, made, page.command("validation.judge", None))
    return int(missed > 0)


UNITS = {
    "throughput_bps": ("rate, Mb/s", 1e-6),
    "delay_p95_ms": ("delay p95, ms", 1.0),
    "silent_s": ("quiet, s", 1.0),
    "recover_s": ("recovered, s", 1.0),
}
"""Headings and scales of columns."""


def rows_of(judged: Json) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Yield each network's row of figures, or its reason of failure, by pair and network."""
    made_by = judged["volatile"]["program"]
    for told in judged["cells"]:
        worst = figures_now(told["worst"])
        cells = [_cell(worst, key) for key in COLUMNS]
        failed = told["failed"]
        state = failed["reason"] if failed else "yes" if told["trusted"] else "no"
        key = judged["pair"], told["network"]
        seconds_, by = f"{judged['seconds']:g}", told["by"] or ""
        yield key, [*key, *cells, by, state, seconds_, made_by["commit"] or made_by["version"]]


def _cell(worst: Mapping[str, float | None], key: str) -> str:
    if key not in worst:
        return ""
    value = worst[key]
    scale = UNITS[key][1] if key in UNITS else COLUMNS[key].scale
    return text.NEVER if value is None else f"{scale * value:.3g}"


def kept(folders: str) -> list[Json]:
    """Read the judgements below the folders, which are separated by commas, the oldest first.

    Raises:
        UserError: there are none.

    """
    places = [place for folder in folders.split(",") for place in sorted(Path(folder).rglob("judge.json"))]
    told = [read_json(place, "take it away, and judge that pair again") for place in places]
    if not (whole := [each for each in told if each.get("complete")]):
        raise UserError(f"--from {folders}", "no judgement stands there", "name what -o was given")
    return sorted(whole, key=lambda each: str(each["volatile"]["at"]))


def measured(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the judgements of the examples on all networks. A pair that can't run here is reported and left out."""
    several = [asked_for(options, name) for name in options.pairs.split(",")]
    lasts: dict[float, list[str]] = {}
    for name, network in suite.named(options.networks, Path()).items():
        least = suite.lasts(name, network) if options.seconds == AUTO else 0
        lasts.setdefault(max(least, several[0].seconds), []).append(name)
    plan = [(pair, long, some) for pair in several for long, some in lasts.items()]
    whole = sum(len(some) * (pair.lead_s + long + AROUND_S) for pair, long, some in plan)
    print(f"{len(several)} pairs take some {whole / 60:.0f} min", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        for pair, long, some in plan:
            name = pair.name if len(lasts) == 1 else f"{pair.name}-{long:g}s"
            pair = replace(pair, networks=",".join(some), seconds=long)
            try:
                done = judged(pair, (options.out or Path(scratch)) / name)
            except UserError as error:
                print(f"left out: {pair.name}: {error}", file=sys.stderr)
                continue
            print(done.text, flush=True)
            yield done.json


def table(options: argparse.Namespace) -> int:
    """Make a row for each pair and network, from kept or new judgements."""
    heads = [
        UNITS[key][0] if key in UNITS else column.head.replace("%", ", %") for key, column in COLUMNS.items()
    ]
    heads = ["pair", "network", *heads, "by", "trusted", "seconds", "commit"]
    told = kept(options.kept) if options.kept else [*measured(options)]
    new = dict(row for each in told for row in rows_of(each))
    made = page.table(heads, new.values())
    made = page.merged(TABLE, made, 2, page.DATA) if options.write else made
    # Sort by network, then in the order of `PAIRS`.
    orders = [[*of, *(row[n] for row in made.rows)].index for of, n in ((sets()["standard"], 1), (PAIRS, 0))]
    ordered = sorted(made.rows, key=lambda row: (orders[0](row[1]), orders[1](row[0])))
    made = page.table(heads, ordered)
    print(made)
    if options.write and new:
        origin = {
            "title": "Judged pairs of programs",
            "measured": told[-1]["volatile"]["at"][:10],
            "command": page.command("validation.judge", None),
            "note": "each row has the seconds of its cell and the commit that it was measured with",
        }
        page.store(TABLE, made, origin, page.DATA)
    asked = [] if options.kept else options.pairs.split(",")
    return int(not {*asked} <= {pair for pair, _ in new})


def keep(options: argparse.Namespace) -> int:
    """Judge a pair twice: with --keep its text must not change, but a higher rate must change TCP's share."""
    pair = asked_for(options, options.pairs.split(",")[0])
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        texts: list[str] = []
        for each in (pair, pair, _greedier(pair)):
            out = Path(scratch) / str(len(texts))
            texts.append(judged(each, out, keep=texts[0] if texts else None).text)
            print(texts[-1], flush=True)
        first, again, greedy = texts
    lines = list(zip(_figures(first), _figures(again), strict=True))
    same = sum(a == b for a, b in lines)
    column = first.splitlines()[2].split().index("tcp%")
    # A failed cell has no value here.
    shares = [
        {line[0]: line[column:][:1] for line in _figures(each) if "+" in line[0]} for each in (first, greedy)
    ]
    moved = sum(shares[1][network] != share for network, share in shares[0].items())
    print(
        f"{same} of {len(lines)} lines stay ({KEPT:.0%} wanted); TCP's share moves in {moved} of {len(shares[0])}"
    )
    return int(same < KEPT * len(lines) or moved < len(shares[0]))


def _figures(told: str) -> list[list[str]]:
    """Return the cells of each line, without the trust column."""
    return [line.split()[:-1] for line in told.replace("?", "").splitlines()[3:]]


def _greedier(pair: Pair) -> Pair:
    """Multiply each bit rate in a pair's commands (-b 5M or -b:v 3M) by `GREED`."""
    rate = re.compile(r"(-(?:b|b:v|maxrate) )(\d+)M")

    def more(found: re.Match[str]) -> str:
        return f"{found[1]}{GREED * int(found[2]):g}M"

    programs = tuple(replace(each, run=rate.sub(more, each.run)) for each in pair.programs)
    if programs == pair.programs:
        raise UserError("keep", "no word of this pair is a bit rate", "take ffmpeg-rtp or iperf3")
    return replace(pair, programs=programs)


def rootless(options: argparse.Namespace) -> int:
    """Judge a pair as root, and again in a user namespace with --keep.

    Only the trust column may differ: a user namespace may lack real-time priority.
    """
    words = [sys.executable, "-m", "steadycast", "judge", str(example(options.pairs.split(",")[0]))]
    words += ["--anyway", "--jobs", "1", "--networks", options.networks, "--seconds", options.seconds]
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        root, user = Path(scratch) / "root", Path(scratch) / "user"
        subprocess.run([*words, "-o", str(root)], check=True)
        again = [*UNSHARE, *words, "--keep", str(root / "judge.txt"), "-o", str(user)]
        subprocess.run(again, check=True, env={**os.environ, MARK: "1"})
        texts = [(each / "judge.txt").read_text() for each in (root, user)]
    first, second = map(_figures, texts)
    print(*texts, "the same text" if first == second else "another text", sep="\n")
    return int(first != second)


def browser(options: argparse.Namespace) -> int:
    """Compare freezes detected by marks with the browser's own count: at most one per minute may differ."""
    options.pairs = "chromium"
    missed = counted = 0
    for judgement in kept(options.kept) if options.kept else measured(options):
        for told in judgement["cells"] if judgement["pair"] == options.pairs else ():
            run = told["runs"][0]
            both = [run.get(key) for key in ("freezes_per_min", "browser_freezes_per_min")]
            apart = None in both or abs(both[0] - both[1]) > FREEZES
            state = "" if told["trusted"] else "not to be trusted"
            state = run["failed"]["reason"] if run["failed"] else state
            counted, missed = counted + (not state), missed + (apart and not state)
            print(told["network"], *both, state)
    print(f"{missed} of {counted} are more than {FREEZES:g} a minute apart")
    return int(missed > 0 or not counted)


NETWORK = """
about = "a link of docs/transports.md"
source = "validation.transports"
licence = "facts"
kind = "synthetic"
topology.shape = "dumbbell"
topology.bottleneck = {{ rate = "{rate}", delay = "20ms", queue = {{ kind = "droptail", limit = "50p" }}{loss} }}
topology.access = {{ rate = "1Gbps", queue = {{ kind = "droptail", limit = "1000p" }} }}
"""


def transports(options: argparse.Namespace) -> int:
    """Compare the video's and TCP's rates of FFmpeg's RTP and SRT with docs/transports.md, with the same film.

    The page counts packets that the link sent, even if lost later; `judge` counts those that arrive.
    """
    missed = compared = 0
    film = cache_folder() / "transports"
    others.film(film)
    with tempfile.TemporaryDirectory(prefix="steadycast-") as scratch:
        for name, link in others.TABLES.items():
            loss = f', loss = {{ kind = "bernoulli", p = {link.loss} }}' if link.loss else ""
            network = Path(scratch) / f"{name}.toml"
            network.write_text(NETWORK.format(rate=link.rate, loss=loss), encoding="utf-8")
            there = pl.read_csv(page.DATA / f"transports-{name}.csv")
            known = {row["transport"]: row for row in there.iter_rows(named=True)}
            for sort in ("rtp", "srt"):
                way = others.WAYS[sort]
                pair = replace(_filmed(sort, film), networks=f"{network}{'+cubic' if link.beside else ''}")
                done = judged(pair, (options.out or Path(scratch)) / f"{name}-{pair.name}", level="wire")
                told, row = done.json["cells"][0], known[way.called]
                for what, key, carried in (
                    ("video", "throughput_bps", 1 - link.loss),
                    ("TCP", "tcp_bps", 1.0),
                ):
                    if f"{what} least, Mb/s" in row:
                        least, most = (row[f"{what} {end}, Mb/s"] for end in ("least", "most"))
                        says = round((told["worst"].get(key) or float("nan")) / carried / 1e6, 2)
                        missed, compared = missed + (not least <= says <= most), compared + 1
                        doubt = "" if told["trusted"] else "?"
                        where = f"{name}: {way.called}: {what}"
                        print(f"{where} {says:.2f}{doubt} Mb/s, {least} to {most} there", flush=True)
    print(f"{compared - missed} of {compared} are within what the runs there had")
    return int(missed > 0)


def _filmed(sort: str, film: Path) -> Pair:
    """Return the pair that sends the film of docs/transports.md, measured in the same seconds."""
    way, (begin, end) = others.WAYS[sort], others.BUSY_S
    env = {"STEADYCAST_R": "{receiver}"}
    programs = [
        {"name": name, "on": on, "run": f"cd {film} && exec {run}", "shell": True, "env": env, **more}
        for name, on, run, more in (
            ("receive", "receiver", way.receive.partition(" | ")[0] + " > /dev/null", {"ready": "udp:5004"}),
            ("send", "sender", way.send, {"ends": True}),
        )
    ]
    table = {"format": 1, "lead": f"{begin}s", "seconds": f"{end - begin}s", "program": programs}
    return pairs.of(table, "validation.judge", sort)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    each.__name__: each for each in (own, table, keep, rootless, browser, transports)
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = page.options("validation.judge", __doc__, TABLE, "judge-own")
    parser.add_argument("what", choices=[*COMMANDS])
    parser.add_argument("--pairs", help="examples, with commas between; for keep and rootless one")
    parser.add_argument("--networks", help="as of judge")
    long = "how long a cell counts; auto: all changes of a network"
    parser.add_argument("--seconds", default="20s", help=long)
    parser.add_argument("--lead", help="as of the pair; a busy machine takes longer to begin")
    parser.add_argument("-o", "--out", type=Path, help="keep the judgements here")
    parser.add_argument("--from", dest="kept", metavar="DIR,DIR", help="table: what -o kept; nothing is run")
    options = parser.parse_args(words)
    options.pairs = options.pairs or {"table": ",".join(PAIRS)}.get(options.what, "ffmpeg-rtp")
    options.networks = options.networks or {"own": "smoke"}.get(options.what, NETWORKS)
    return COMMANDS[options.what](options)


if __name__ == "__main__":
    page.end(main)
