"""``make bench``: packet-hops per CPU second of ns-2 and of our simulator, in one run.

    python -m validation.bench                # the three workloads, then many receivers
    python -m validation.bench tcp --rounds 5
    python -m validation.bench --large        # ns-2 with 10,000 receivers too (a minute, 600 MB)
    python -m validation.bench --write        # and into docs/data/bench*.csv

A hop is one packet leaving one link. ns-2 runs without unused headers and traces, and with the event scheduler that
is fastest here. The *run* is from the first event to the last: for ns-2 the process's user time minus that of a run
of 10 ms, for ours the thread's time in cost.json. The *process* is the user time of the program as a user starts it,
for ours with Python, its packages and the report's tables. `aim` applies to the runs. The programs alternate, and the
median counts.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from validation import ns2, page

SCENARIOS = Path(__file__).parent / "scenarios"
SCHEDULERS = ("Calendar", "Heap", "Splay")
TITLES = {
    "bench": "Packet-hops per CPU second, beside ns-2",
    "bench-receivers": "Many receivers, 20 s, beside ns-2",
    "bench-recording": "What a row for every packet sent and received costs",
}
HOPS_WITHIN = 0.01
RECORDING_AT_MOST = 2


@dataclass(frozen=True)
class Workload:
    """A workload that both programs simulate."""

    name: str
    script: str
    params: ns2.Params
    scenario: str
    aim: float  # the target ratio of our rate to that of ns-2


WORKLOADS = (
    Workload("cbr", "bench-cbr", {}, "bench-cbr.toml", 3),
    Workload("tcp", "bench-tcp", {}, "bench-tcp.toml", 4),
    # ns-2's own multicast routing, in the faster of its two protocols.
    Workload("multicast", "bench-multicast", {"tree": "ctrmcast"}, "bench-multicast.toml", 5),
    # One replicator, configured by hand, which users of ns-2 don't usually do.
    Workload("multicast-static", "bench-multicast", {"tree": "static"}, "bench-multicast.toml", 5),
)
LARGE = (100, 1000, 10_000)


class OursFailedError(RuntimeError):
    """Our program ended without reporting its cost."""


@dataclass(frozen=True)
class Cost:
    """The cost of a run: the values of cost.json, and the user time of its process."""

    process_s: float
    cpu_s: float
    peak_memory_bytes: int
    packet_hops: int


def run_ours(scenario: str, overrides: Sequence[str] = ()) -> Cost:
    """Run a scenario as a user starts it. The cost is in the file that the run writes beside its summary."""
    with tempfile.TemporaryDirectory(prefix="ours-") as folder:
        out = Path(folder, "run")
        words = [sys.executable, "-m", "steadycast", "run", str(SCENARIOS / scenario), "-o", str(out)]
        for override in overrides:
            words += ["--set", override]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
        process = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        if done.returncode != 0:
            raise OursFailedError(
                f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}"
            )
        cost = json.loads((out / "cost.json").read_text())
    return Cost(process, *(cost[key] for key in ("cpu_s", "peak_memory_bytes", "packet_hops")))


@dataclass(frozen=True)
class Theirs:
    """ns-2's exact number of hops, and median CPU times of whole runs and of runs of 10 ms."""

    hops: int
    scheduler: str
    cpu_s: float
    setup_s: float

    @property
    def rate(self) -> float:
        """Hops per CPU second, including set-up."""
        return self.hops / self.cpu_s

    @property
    def rate_moving(self) -> float:
        """Hops per CPU second without set-up; NaN if set-up is nearly all of the measured time."""
        moving = self.cpu_s - self.setup_s
        # The difference of two nearly equal times is mostly noise.
        return self.hops / moving if moving > 0.2 * self.cpu_s else math.nan


def _million(rate: float) -> str:
    return "–" if math.isnan(rate) else f"{rate / 1e6:.1f} M"


def _alternate(load: Workload, *, rounds: int, ns: bool) -> tuple[Theirs | None, list[Cost]]:
    script, params = load.script, load.params
    best: dict[str, float | int | str] = dict(params)
    hops = 0
    if ns:
        # Monitors don't change a seed's packets, so one run with counting is enough.
        hops = int(ns2.run(script, {**params, "count": 1}).number("hops"))
        tried = {
            name: min(ns2.run(script, {**params, "scheduler": name}).user_s for _ in range(2))
            for name in SCHEDULERS
        }
        best["scheduler"] = min(tried, key=lambda name: tried[name])
    whole: list[float] = []
    setup: list[float] = []
    costs: list[Cost] = []
    for _ in range(rounds):
        if ns:
            whole.append(ns2.run(script, best).user_s)
            setup.append(ns2.run(script, {**best, "duration_s": 0.01}).user_s)
        costs.append(run_ours(load.scenario))
    theirs = (
        Theirs(hops, str(best["scheduler"]), statistics.median(whole), statistics.median(setup))
        if ns
        else None
    )
    return theirs, costs


def _agreement(theirs: Theirs, costs: Sequence[Cost]) -> str:
    off = costs[0].packet_hops / theirs.hops - 1
    return f"{'within' if abs(off) <= HOPS_WITHIN else 'OUTSIDE'} ({100 * off:+.2f} %)"


def workloads(names: Sequence[str], *, rounds: int, ns: bool) -> page.Table:
    """Run the three workloads, and return their table."""
    rows = []
    for load in WORKLOADS:
        if not any(load.name.startswith(name) for name in names):
            continue
        theirs, costs = _alternate(load, rounds=rounds, ns=ns)
        row = [load.name]
        if theirs:
            row += [f"{theirs.hops:,}", theirs.scheduler, f"{theirs.cpu_s:.2f} ({theirs.setup_s:.2f})"]
            row += [_million(theirs.rate), _million(theirs.rate_moving)]
        else:
            row += ["–"] * 5
        cpu = statistics.median(cost.cpu_s for cost in costs)
        process = statistics.median(cost.process_s for cost in costs)
        hops = costs[0].packet_hops
        row += [f"{hops:,}", f"{cpu:.3f}, {process:.2f}", _million(hops / cpu), _million(hops / process)]
        if theirs:
            runs = hops / cpu / theirs.rate_moving
            met = "met" if runs >= load.aim else "NOT MET"
            row += [f"{runs:.1f}", f"{hops / cpu / theirs.rate:.1f}", f"{hops / process / theirs.rate:.2f}"]
            row += [f"{load.aim:g}: {met}", _agreement(theirs, costs)]
        else:
            row += ["–", "–", "–", f"{load.aim:g}", "–"]
        rows.append(row)
        print(f"  {load.name}", file=sys.stderr, flush=True)
    head = ["workload", "ns-2 hops", "scheduler", "CPU s (set-up)", "hops/s: process", "run"]
    head += ["our hops", "CPU s: run, process", "hops/s: run", "process"]
    head += ["ours / ns-2: run / run", "run / process", "process / process", "aim", "hop counts"]
    return page.table(head, rows)


def recording(*, rounds: int) -> page.Table:
    """Run each workload without and with a record of every packet that is sent or arrives."""
    rows = []
    for name in dict.fromkeys(load.scenario for load in WORKLOADS):
        without, recorded = [], []
        for _ in range(rounds):
            without.append(run_ours(name))
            recorded.append(run_ours(name, ['record.packets="all"']))
        a, b = (statistics.median(cost.cpu_s for cost in costs) for costs in (without, recorded))
        tables = statistics.median(cost.process_s - cost.cpu_s for cost in recorded)
        tables -= statistics.median(cost.process_s - cost.cpu_s for cost in without)
        verdict = f"2: {'met' if b / a < RECORDING_AT_MOST else 'NOT MET'}"
        rows.append(
            [name.removesuffix(".toml"), f"{a:.3f}", f"{b:.3f}", f"{b / a:.2f}", verdict, f"{tables:.2f}"]
        )
        print(f"  {name}, recorded", file=sys.stderr, flush=True)
    head = ["scenario", "CPU s", "with every packet recorded", "factor", "aim, below"]
    return page.table([*head, "tables and Parquet, CPU s"], rows)


def many_receivers(*, ns: bool, large: bool) -> page.Table:
    """Run 100, 1,000 and 10,000 receivers for 20 s: cost per hop, and peak memory."""
    rows = []
    for n in LARGE:
        params: ns2.Params = {"tree": "static", "receivers": n, "duration_s": 20}
        row = [f"{n:,}"]
        hops = None
        if ns and (large or n < LARGE[-1]):
            a = ns2.run("bench-multicast", params)
            setup = ns2.run("bench-multicast", {**params, "duration_s": 0.01})
            hops = a.number("hops")
            theirs = Theirs(round(hops), "Splay", a.user_s, setup.user_s)
            row += [f"{hops:,.0f}", f"{a.user_s:.2f} ({setup.user_s:.2f})", _million(theirs.rate_moving)]
            row.append(f"{a.peak_memory_bytes / 1e6:.0f}")
        else:
            row += ["–"] * 4
        cost = run_ours("bench-multicast-large.toml", [f"flow.video.receivers={n}"])
        row += [f"{cost.packet_hops:,}", f"{cost.cpu_s:.2f}", _million(cost.packet_hops / cost.cpu_s)]
        row += [f"{1e9 * cost.cpu_s / cost.packet_hops:.1f}", f"{cost.peak_memory_bytes / 1e6:.0f}"]
        row.append(f"{100 * (cost.packet_hops / hops - 1):+.2f} %" if hops else "–")
        rows.append(row)
        print(f"  {n:,} receivers", file=sys.stderr, flush=True)
    head = ["receivers", "ns-2 hops", "CPU s (set-up)", "hops/s without set-up", "MB"]
    head += ["our hops", "CPU s", "hops/s", "ns per hop", "MB", "hop counts"]
    return page.table(head, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = page.options("validation.bench", __doc__, *TITLES)
    choices = ("cbr", "tcp", "multicast", "receivers", "recording")
    parser.add_argument("workload", nargs="*", help=f"of {', '.join(choices)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="alternations (default 3); the median counts")
    parser.add_argument("--large", action="store_true", help="ns-2 with 10,000 receivers too")
    args = parser.parse_args(argv)
    unknown = [name for name in args.workload if name not in choices]
    if unknown:
        print(f"unknown workload {unknown[0]!r}; there are: {', '.join(choices)}", file=sys.stderr)
        return 2
    if args.rounds < 1:
        print("--rounds must be at least 1", file=sys.stderr)
        return 2
    ns = ns2.find_ns() is not None
    if not ns:
        print(f"{ns2.NsMissingError()}; its columns stay empty", file=sys.stderr)
    names = args.workload or list(choices)
    try:
        made = {}
        loads = [name for name in names if name not in ("receivers", "recording")]
        if loads:
            made["bench"] = workloads(loads, rounds=args.rounds, ns=ns)
        if "receivers" in names:
            made["bench-receivers"] = many_receivers(ns=ns, large=args.large)
        if "recording" in names:
            made["bench-recording"] = recording(rounds=args.rounds)
        command, note = page.command("validation.bench", argv), f"the median of {args.rounds} rounds"
        for name, table in made.items():
            print(f"{TITLES[name]}:\n\n{table}\n")
            if args.write:
                page.save(name, TITLES[name], table, command, note)
    except (ns2.NsFailedError, OursFailedError) as why:
        print(why, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
