"""Judges the adapters beside the stacks' own estimators: `python -m validation.stacks run -o DIR`, as root.

    python -m validation.stacks run -o DIR              # a second call only repeats untrusted cells
    python -m validation.stacks table -o DIR --write    # keeps the file's rows that DIR has no trusted cell for

Nine named and three drawn networks, each alone and beside a CUBIC, in six rounds of four cells. Each round has all
estimators, so that a run stopped early lacks networks, but no stack. Programs are made as the `judge.toml` in
each folder of integrations says.

Bounds for each adapter, over its trusted cells, set before the first run. One cell in six may miss a bound:

- Beside the CUBIC, the TCP has at least half of its fair share, and the pair half of its own, or of its cap if that
  is smaller.
- Alone, the 95th percentile of the delay is at most 20 ms above the best of the stack's own estimators.
- The loss is at most one percentage point above the best of the stack's own estimators.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from steadycast.core import core
from steadycast.errors import UserError
from steadycast.judge import pair as pairs
from steadycast.judge import suite
from steadycast.judge.pair import Pair
from steadycast.judge.score import Cell, frozen

from validation import page
from validation.judge import EXAMPLES

INTEGRATIONS = page.DOCS.parent / "integrations"
TABLE = "stacks"
SECONDS = 20.0
JOBS = 2
"""Cells at a time."""
DRAWS = page.DOCS.parent / "validation" / "experiments" / "networks.toml"
SEED, DRAWN = 991101, 3
"""The draw's seed, and how many networks are taken: the first without a trouble or a step."""
ROUNDS = (
    *(("cable-5", "drawn-2"), ("lte", "drawn-1"), ("wifi-bad", "drawn-3")),
    *(("dsl-8", "fq-codel"), ("4g-9", "leo"), ("wifi-good", "home-3")),
)
"""Each network runs alone and beside a CUBIC."""
FAIR, DELAY_MS, LOSS = 0.5, 20.0, 0.01
"""Least part of the fair share, additional milliseconds, additional share of lost packets."""
MISSES_ALLOWED = 6
"""One in this many cells may miss a bound, rounded down."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Estimator:
    """An estimator of a stack, and the replacements in its `judge.toml` commands that select it."""

    stack: str
    name: str
    folder: str = ""
    words: tuple[tuple[str, str], ...] = ()
    cap_bps: float = 4e6
    jobs: int = JOBS

    @property
    def label(self) -> str:
        """The name of the estimator's judgements."""
        return f"{self.stack}-{self.name}"

    def pair(self) -> Pair:
        """Return the pair with this estimator."""
        path = INTEGRATIONS / self.folder / "judge.toml" if self.folder else EXAMPLES / "chromium.toml"
        pair = pairs.read(path)
        programs = []
        for program in pair.programs:
            run = program.run
            for old, new in self.words:
                run = run.replace(old, new)
            programs.append(replace(program, run=run))
        return replace(pair, name=self.label, programs=tuple(programs), seconds=SECONDS)


def _own(name: str) -> tuple[tuple[str, str], ...]:
    return ((" steady", f" {name}".rstrip()),)


NOQ = ((" quinn", " noq"),)
ESTIMATORS = (
    Estimator("pion", "steady", "pion"),
    Estimator("pion", "gcc", "pion", _own("gcc")),
    Estimator("webrtc-rs", "steady", "webrtc"),
    Estimator("webrtc-rs", "gcc", "webrtc", _own("gcc")),
    Estimator("quinn", "steady", "quic"),
    Estimator("quinn", "cubic", "quic", _own("cubic")),
    Estimator("quinn", "bbr", "quic", _own("bbr")),
    Estimator("noq", "steady", "quic", NOQ),
    Estimator("noq", "cubic", "quic", (*NOQ, *_own("cubic"))),
    Estimator("gstreamer", "steady", "gstreamer", jobs=1),
    Estimator("gstreamer", "gcc", "gstreamer", _own("gcc"), jobs=1),
    Estimator("aiortc", "steady", "aiortc", cap_bps=1.5e6, jobs=1),
    Estimator("aiortc", "remb", "aiortc", _own(""), cap_bps=1.5e6, jobs=1),
    Estimator("chromium", "gcc", words=(("{clip.y4m}", "{clip.y4m} --cap 4000000"),), jobs=1),
)
"""Chromium is the reference, without an adapter. Without a cap its encoder does not exceed 1.7 Mb/s at 640x360."""


def drawn(folder: Path) -> None:
    """Write the drawn networks as files: rate, delay, queue and loss, without the draw's flows."""
    told = json.loads(core.experiment(DRAWS.read_text(encoding="utf-8"), str(DRAWS), SEED, 40))
    plain = (each["variables"] for each in told["draws"])
    some = [each for each in plain if each["trouble"] == "none" and each["stepped"] == "0"][:DRAWN]
    for number, each in enumerate(some, 1):
        rate, rtt, depth = (float(each[key]) for key in ("speed", "RTT", "depth"))
        queue = each["queue_keys"]
        if each["queue"] == "droptail":
            queue = f'{{ kind = "droptail", limit = "{max(8, round(depth * rate * rtt / 12))}p" }}'
        loss = f'loss = {{ kind = "bernoulli", p = {float(each["random_loss"]):.4f} }}, '
        loss = loss if each["lossy"] == "1" else ""
        link = f'rate = "{rate:.3f}Mbps", delay = "{rtt / 2 - 2:.1f}ms", {loss}queue = {queue}'
        lines = (
            f'about = "draw {SEED} of {DRAWS.name}"',
            'source = "drawn"',
            'licence = "facts"',
            'kind = "synthetic"',
            'topology.shape = "dumbbell"',
            f"topology.bottleneck = {{ {link} }}",
        )
        (folder / f"drawn-{number}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def judgements(out: Path) -> list[tuple[Path, Json]]:
    """Return the judgements in a folder with their own folders, the oldest first."""
    places = [place for place in out.glob("*/judge.json") if place.parent.suffix != ".part"]
    told = [(place.parent, json.loads(place.read_text(encoding="utf-8"))) for place in places]
    return sorted(told, key=lambda each: str(each[1]["volatile"]["at"]))


def finished(out: Path) -> set[tuple[str, str]]:
    """Return the labels and networks of cells that are trusted or failed, and so not repeated."""
    cells = ((told["pair"], cell) for _, told in judgements(out) for cell in told["cells"])
    return {(pair, cell["network"]) for pair, cell in cells if cell["trusted"] or cell["failed"]}


def run(options: argparse.Namespace) -> int:
    """Judge all estimators on all networks, but for `finished` cells."""
    options.out.mkdir(parents=True, exist_ok=True)
    drawn(options.out)
    wanted = options.only.split(",") if options.only else [each.label for each in ESTIMATORS]
    for some in ROUNDS[: options.rounds]:
        names = [f"{name}.toml" if name.startswith("drawn") else name for name in some]
        networks = [f"{name}{beside}" for name in names for beside in ("", "+cubic")]
        for each in ESTIMATORS:
            there = finished(options.out)
            lacking = [name for name in networks if (each.label, name) not in there]
            if each.label not in wanted or not lacking:
                continue
            numbers = [
                int(place.name.rpartition("-")[2]) for place in options.out.glob(f"{each.label}-*[0-9]")
            ]
            out = options.out / f"{each.label}-{max(numbers, default=0) + 1}"
            pair = replace(each.pair(), networks=",".join(lacking))
            try:
                done = suite.judge(suite.Asked(pair, folder=options.out, jobs=each.jobs, anyway=True), out)
            except UserError as error:
                print(f"left out: {each.label}: {error}", file=sys.stderr, flush=True)
                continue
            print(done.text, flush=True)
    return 0


@dataclass(frozen=True)
class Row:
    """An estimator's result on a network. A figure that was not measured is absent."""

    estimator: Estimator
    network: str
    beside: bool
    figures: Mapping[str, float | None]
    by: str
    trusted: bool
    failed: str
    commit: str

    @property
    def cell(self) -> tuple[str, str, bool]:
        """Identify the row by estimator, network and whether a CUBIC is beside."""
        return self.estimator.label, self.network, self.beside

    def fair_bps(self) -> float | None:
        """Return the pair's fair share beside the TCP, at most its cap; `None` if it is not known."""
        fair = self.figures.get("fair_bps")
        return min(fair, self.estimator.cap_bps) if fair else None

    def cells(self) -> list[str]:
        """Return the row of the table."""
        get = self.figures.get
        numbers = ["" if (value := get(key)) is None else f"{scale * value:.4g}" for key, scale, _ in FIGURES]
        state = self.failed or ("yes" if self.trusted else "no")
        network = f"{self.network}+cubic" if self.beside else self.network
        return [self.estimator.stack, self.estimator.name, network, *numbers, self.by, state, self.commit]


FIGURES = (
    ("throughput_bps", 1e-6, "rate, Mb/s"),
    ("fair_bps", 1e-6, "fair, Mb/s"),
    ("tcp_share_of_fair", 100, "tcp, %"),
    ("delay_p95_ms", 1, "delay p95, ms"),
    ("freezes_per_min", 1, "freezes/min"),
    ("frozen_frac", 100, "frozen, %"),
    ("in_time_frac", 100, "in-time, %"),
    ("loss_frac", 100, "lost, %"),
)
"""Keys, factors and headings. `fair_bps` is the fair share beside the TCP, without a cap."""
HEADS = (
    *("stack", "estimator", "network"),
    *(heading for *_, heading in FIGURES),
    *("by", "trusted", "commit"),
)


FEWEST = 6
"""Minimum number of cells of a mean; a network counts once alone and once beside a CUBIC."""
RATES = ("stack", "estimator", "networks", "Mb/s alone", "Mb/s beside", "TCP's share, %")
DELAYS = (
    *("stack", "estimator", "delay p95 alone, ms", "delay p95 beside, ms"),
    *("freezes/min alone", "freezes/min beside"),
)
"""Headings of the page's two tables: few columns, so that a phone shows them."""


def streams(folder: Path, pair: Pair) -> Json:
    """Return figures of frames sent as QUIC streams, from the receiver's record: sending time, delay, size.

    Frames that the sender skipped, or whose streams never ended, have no row.
    """
    record = folder / "programs" / "frames.csv"
    if not record.exists():
        return {}
    frames = pl.read_csv(record, has_header=False, new_columns=["sent_us", "delay_us", "bytes"])
    cell = Cell(folder, pair)
    start = next(e["t"] for e in cell.crew if e["what"] == "start" and e["program"] == "send")
    sent = start + (frames["sent_us"] - frames["sent_us"].min()).to_numpy() / 1e6
    came, (low, high) = np.sort(sent + frames["delay_us"].to_numpy() / 1e6), cell.window
    delays = frames["delay_us"].to_numpy()[(sent >= low) & (sent < high)] / 1e3
    if not len(delays):
        return {}
    found = frozen(came, low, high)
    return {**found, "delay_p95_ms": float(np.percentile(delays, 95))}


def rows(out: Path) -> Iterator[Row]:
    """Yield the rows of what `run` kept."""
    known = {each.label: each for each in ESTIMATORS}
    for place, told in judgements(out):
        estimator, made_by = known[told["pair"]], told["volatile"]["program"]
        for each in told["cells"]:
            name = each["network"]
            evidence = place / "cells" / name.replace("/", "_") / "1"
            more = streams(evidence, estimator.pair()) if estimator.folder == "quic" else {}
            tcp, share = each["worst"].get("tcp_bps"), each["worst"].get("tcp_share_of_fair")
            fair = {"fair_bps": tcp / share} if tcp and share else {}
            failed = each["failed"]["reason"] if each["failed"] else ""
            yield Row(
                estimator,
                name.removesuffix("+cubic").removesuffix(".toml"),
                name.endswith("+cubic"),
                {**each["worst"], **fair, **more},
                ("program" if more else each["by"]) or "",
                bool(each["trusted"]) and not failed,
                failed,
                made_by["commit"] or made_by["version"],
            )


def kept(place: Path) -> Iterator[Row]:
    """Yield the rows of a written table. Their figures are rounded."""
    known = {each.label: each for each in ESTIMATORS}
    if not place.exists():
        return
    for each in csv.DictReader(place.read_text(encoding="utf-8").splitlines()):
        figures = {key: float(each[head]) / scale for key, scale, head in FIGURES if each.get(head)}
        yield Row(
            known[f"{each['stack']}-{each['estimator']}"],
            each["network"].removesuffix("+cubic"),
            each["network"].endswith("+cubic"),
            figures,
            each["by"],
            each["trusted"] == "yes",
            each["trusted"] if each["trusted"] not in ("yes", "no") else "",
            each["commit"],
        )


def best(several: Iterable[Row]) -> Iterator[Row]:
    """Yield the last trusted row of each estimator and network, otherwise the last."""
    found: dict[tuple[str, str, bool], Row] = {}
    for row in several:
        if row.trusted or row.cell not in found or not found[row.cell].trusted:
            found[row.cell] = row
    yield from found.values()


@dataclass(frozen=True)
class Judged:
    """A bound on an adapter's trusted cell. The two figures are absent if they were not measured."""

    stack: str
    bound: str
    network: str
    ours: float | None
    limit: float
    kept: bool


def judged(all_rows: list[Row]) -> Iterator[Judged]:
    """Yield the bounds of all adapters' trusted cells: shares in Mb/s, delays in milliseconds, loss in per cent."""
    found = {(r.estimator.stack, r.estimator.name, r.network, r.beside): r for r in all_rows if r.trusted}
    for (stack, name, network, beside), row in found.items():
        if name != "steady":
            continue
        figures, fair = row.figures, row.fair_bps()
        if beside and fair:
            rate, share = figures["throughput_bps"], figures["tcp_share_of_fair"]
            kept = rate is not None and share is not None and rate >= FAIR * fair and share >= FAIR
            yield Judged(stack, "shares", network, rate and rate / 1e6, FAIR * fair / 1e6, kept)
        own = [each.name for each in ESTIMATORS if each.stack == stack and each.name != "steady"]
        others = [r for each in own if (r := found.get((stack, each, network, beside)))]
        for bound, key, more, scale in (
            ("delay", "delay_p95_ms", DELAY_MS, 1.0),
            ("loss", "loss_frac", LOSS, 100.0),
        ):
            theirs = [value for r in others if (value := r.figures.get(key)) is not None]
            ours = figures.get(key)
            if theirs and ours is not None and not (bound == "delay" and beside):
                limit = min(theirs) + more
                place = f"{network}+cubic" if beside else network
                yield Judged(stack, bound, place, scale * ours, scale * limit, ours <= limit)


def verdicts(all_rows: list[Row]) -> page.Table:
    """Return, for each adapter, how many trusted cells keep each bound."""
    every, told = list(judged(all_rows)), []
    for stack in dict.fromkeys(each.stack for each in ESTIMATORS if each.name == "steady"):
        cells = []
        for bound in ("shares", "delay", "loss"):
            some = [each.kept for each in every if (each.stack, each.bound) == (stack, bound)]
            missed = some.count(False)
            cells.append(
                f"{sum(some)} of {len(some)}" + (": missed" if missed > len(some) // MISSES_ALLOWED else "")
            )
        told.append([stack, *cells])
    return page.table(("stack", "shares beside CUBIC", "delay alone", "loss"), told)


def misses(all_rows: list[Row]) -> page.Table:
    """Return the trusted cells that miss a bound."""
    rows = [
        [
            each.bound,
            each.network,
            each.stack,
            "–" if each.ours is None else f"{each.ours:.3g}",
            f"{each.limit:.3g}",
        ]
        for bound in ("shares", "delay", "loss")
        for each in judged(all_rows)
        if each.bound == bound and not each.kept
    ]
    return page.table(("bound", "network", "stack", "adapter", "limit"), rows)


def summaries(all_rows: list[Row]) -> tuple[page.Table, page.Table]:
    """Return the tables of rates and of delays: means over the cells in which all estimators of a stack are trusted.

    A stack with fewer than `FEWEST` of these cells is left out.
    """
    rates, delays = [], []
    for stack in dict.fromkeys(each.stack for each in ESTIMATORS):
        mine = [row for row in all_rows if row.estimator.stack == stack and row.trusted]
        names = [each.name for each in ESTIMATORS if each.stack == stack]
        where = [{(r.network, r.beside) for r in mine if r.estimator.name == name} for name in names]
        common = set.intersection(*where)
        if len(common) < FEWEST:
            continue
        for name in names:
            some = [r for r in mine if r.estimator.name == name and (r.network, r.beside) in common]
            alone, beside = ([r for r in some if r.beside == wanted] for wanted in (False, True))
            rate = [mean(part, "throughput_bps", 1e-6, 2) for part in (alone, beside)]
            share = mean(beside, "tcp_share_of_fair", 100.0)
            rates.append([stack, name, f"{len(alone)} + {len(beside)}", *rate, share])
            late = [
                mean(part, key) for key in ("delay_p95_ms", "freezes_per_min") for part in (alone, beside)
            ]
            delays.append([stack, name, *late])
    return page.table(RATES, rates), page.table(DELAYS, delays)


def mean(some: list[Row], key: str, scale: float = 1.0, digits: int = 0) -> str:
    """Format the mean of a figure over the rows that have it; without any, a dash."""
    values = [value for row in some if (value := row.figures.get(key)) is not None]
    return f"{scale * float(np.mean(values)):.{digits}f}" if values else "–"


def table(options: argparse.Namespace) -> int:
    """Make the table of what `run` kept, and judge the bounds."""
    order = [each.label for each in ESTIMATORS]
    networks = [name for some in ROUNDS for name in some]
    all_rows = sorted(
        best([*kept(page.DATA / f"{TABLE}.csv"), *rows(options.out)]),
        key=lambda r: (networks.index(r.network), r.beside, order.index(r.estimator.label)),
    )
    made = page.table(HEADS, [row.cells() for row in all_rows])
    shown = (*summaries(all_rows), verdicts(all_rows))
    print(made, *shown, sep="\n\n")
    if options.write:
        title = "Adapters beside the stacks' own estimators"
        note = "each row has the commit that it was measured with; a row that is not trusted does not count"
        page.save(TABLE, title, made, "python -m validation.stacks run", note)
        place = page.DOCS / "adapters-compared.md"
        page.put(place, TABLE, "\n\n".join(map(str, shown)))
        page.put(place, f"{TABLE} missed", misses(all_rows))
    return 0


def main() -> int:
    """Run one of the commands."""
    parser = page.options("validation.stacks", __doc__, TABLE)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("runs/stacks"), help="keep the judgements here"
    )
    parser.add_argument("--only", metavar="A,B", help="estimators such as pion-steady; by default all")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="the first rounds of networks alone")
    options = parser.parse_args()
    return {"run": run, "table": table}[options.what](options)


if __name__ == "__main__":
    page.end(main)
