"""Runs the scripts of ``validation/ns2`` with ns-2 and returns their results.

    python -m validation.ns2 --list
    python -m validation.ns2 tcp-lossy --seeds 1-5
    python -m validation.ns2 --check-headers

Every script prints its parameters and results as one JSON object. ns-2 is Debian's package ``ns2``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from steadycast.folder import student_t95

from validation import page

SCRIPTS = Path(__file__).parent / "ns2"
Value = float | int | str | list[float]
Params = Mapping[str, float | int | str]


class NsMissingError(RuntimeError):
    """ns-2 is not installed."""

    def __init__(self) -> None:
        super().__init__("ns-2 is missing: no `ns` on the PATH (Debian and Ubuntu: apt install ns2)")


class NsFailedError(RuntimeError):
    """A script ended without printing a result."""


@dataclass(frozen=True)
class Answer:
    """The output of a script, and the cost of its run."""

    script: str
    params: dict[str, Value]
    results: dict[str, Value]
    user_s: float
    peak_memory_bytes: int

    def number(self, name: str) -> float:
        """Return a result that is one number."""
        value = self.results[name]
        if isinstance(value, (str, list)):
            raise TypeError(f"{self.script}: {name} is not a number")
        return float(value)


def find_ns() -> Path | None:
    """Return the path of `ns`, or `None` if it is not on the PATH."""
    found = shutil.which("ns")
    return Path(found) if found else None


def run(script: str, params: Params | None = None, *, limit_s: float = 300.0) -> Answer:
    """Run a script in a separate directory for at most `limit_s` seconds."""
    ns = find_ns()
    if ns is None:
        raise NsMissingError
    words = [f"{name}={value}" for name, value in (params or {}).items()]
    with tempfile.TemporaryDirectory(prefix="ns2-") as folder:
        out, err = Path(folder, "stdout"), Path(folder, "stderr")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            child = subprocess.Popen(
                [ns, SCRIPTS / f"{script}.tcl", *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            late = threading.Event()

            def stop() -> None:
                late.set()
                child.kill()

            timer = threading.Timer(limit_s, stop)
            timer.start()
            try:
                # Only wait4 returns the resource usage of this child alone.
                _, status, usage = os.wait4(child.pid, 0)
            finally:
                timer.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        command = " ".join(["ns", f"{script}.tcl", *words])
        if late.is_set():
            raise NsFailedError(f"{command}: stopped after {limit_s:g} s")
        text = out.read_text(errors="replace")
        if child.returncode != 0:
            why = err.read_text(errors="replace").strip()
            raise NsFailedError(f"{command}: exit code {child.returncode}: {why[-500:]}")
    answers = [line for line in text.splitlines() if line.startswith("{")]
    if not answers:
        raise NsFailedError(f"{command}: printed no answer")
    results = json.loads(answers[-1])
    given = results.pop("params")
    name = results.pop("script")
    results.update(_tfrc_prints(text, results, given))
    return Answer(name, given, results, usage.ru_utime, usage.ru_maxrss * 1024)


_LOSS = re.compile(
    r"^time: ([\d.]+) sample 0: +\d+ loss_rate: ([\d.]+) *\n"
    r"[\d.]+: sample 0: +\d+ 1: +(\d+) 2: +(\d+) 3: +(\d+) 4: +(\d+)",
    re.M,
)
_RATE = re.compile(r"^time: +([\d.]+) rate: ([\d.]+)\ntime: +[\d.]+ packetrate: +([\d.]+)$", re.M)


def _shifts(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """Return the smallest number of places by which `before` may have shifted to give `after`."""
    n = len(before)
    return next(k for k in range(n + 1) if after[k:] == before[: n - k])


def _tfrc_prints(text: str, results: Mapping[str, Value], params: Params) -> dict[str, Value]:
    """Read what ns-2's TFRC only prints: loss event rate and round-trip time during the measurement.

    The loss event rate is events per packet sent. Each event shifts the four newest closed intervals by one place. The
    open interval does not show events, because it may already be as long as before. `wali_p` is the mean of the
    receiver's reported estimates.
    """
    if "loss_rate:" not in text:
        return {}
    begin, span, sent = results["from_s"], results["span_s"], results["sent_packets"]
    assert isinstance(begin, (int, float))
    assert isinstance(span, (int, float))
    assert isinstance(sent, (int, float))
    end = begin + span
    events = 0
    last: tuple[int, ...] | None = None
    estimates: list[float] = []
    for at, p, *closed in _LOSS.findall(text):
        now = tuple(int(c) for c in closed)
        if begin <= float(at) < end:
            estimates.append(float(p))
            if last is not None:
                events += _shifts(last, now)
        last = now
    found: dict[str, Value] = {"loss_events": events, "loss_event_rate": events / sent}
    if estimates:
        found["wali_p"] = statistics.fmean(estimates)
    packet = float(params["packet"])
    trips = [
        1000.0 * float(packets) * packet / float(rate)
        for at, rate, packets in _RATE.findall(text)
        if begin <= float(at) < end and float(rate) > 0
    ]
    if trips:
        found["srtt_ms"] = statistics.fmean(trips)
    return found


@dataclass(frozen=True)
class Spread:
    """Mean and half-width of the 95 % confidence interval over seeds."""

    mean: float
    ci95: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the statistics of one value per seed."""
        n = len(values)
        mean = statistics.fmean(values)
        if n < 2:
            return cls(mean, math.nan, n)
        return cls(mean, student_t95(n - 1) * statistics.stdev(values) / math.sqrt(n), n)

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean."""
        return math.nan if self.n < 2 else self.ci95 / student_t95(self.n - 1)

    def __str__(self) -> str:
        digits = 4
        mean = f"{self.mean:.{digits}g}" if abs(self.mean) < 1e4 else f"{self.mean:,.0f}"
        if math.isnan(self.ci95):
            return mean
        ci = f"{self.ci95:.2g}" if abs(self.ci95) < 1e4 else f"{self.ci95:,.0f}"
        return f"{mean} ± {ci}"


@dataclass(frozen=True)
class Scenario:
    """A script with the grid of its parameters, and the results that get a column."""

    script: str
    about: str
    grid: tuple[Params, ...]
    columns: tuple[str, ...]

    def seeds_for(self, cell: Params) -> int:
        """Return the number of seeds for a cell.

        With a drop-tail queue, different start times alone change a ratio by a half.
        """
        return 20 if cell.get("queue") == "droptail" and cell.get("congestion") != "reno" else 5


def _grid(**axes: Iterable[float | int | str]) -> tuple[Params, ...]:
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


# ns-2's TFRC with the parameters closest to RFC 5348: discounting down to 0.25, and t_RTO = 4 R by a lower limit.
# `numPkts_` stays 1, not RFC 5348's 3; see docs/validation.md.
def _rfc5348(rtt_s: float) -> dict[str, float | int | str]:
    return {"discount_floor": 0.25, "tfrc_rto_s": round(4 * rtt_s, 4)}


NO_DISCOUNTING = 1


# As our default `tfrc`: RFC 5348's constants, but no discounting of older loss intervals.
def _users(rtt_s: float) -> dict[str, float | int | str]:
    return {**_rfc5348(rtt_s), "discount_floor": NO_DISCOUNTING}


# The papers' Reno with a window of 20 packets, beside one TFRC.
_RENO: Params = {
    "n": 1,
    "congestion": "reno",
    "window": 20,
    "queue": "droptail",
    "duration_s": 300,
    "start_s": 1,
}
_ONE_TCP: Params = {
    **_RENO,
    "share_bps": 0.5e6,
    "delay_ms": 69.6,
    "access_ms": 7.2,
    "access_bps": 10e6,
    "tail_per_flow": 25,
    "warmup_s": 60,
}
_TEN_TCP: Params = {
    **_RENO,
    "tcps": 10,
    "access_ms": 5,
    "access_bps": 20e6,
    "tail_per_flow": 50 / 11,
    "warmup_s": 50,
}

_LOSSY_P: tuple[float, ...] = (0, 0.02, 0.04, 0.06, 0.08)
_MIX = _grid(queue=("red", "droptail"), n=(8, 32))
_MIX_RTT = {"red": 0.067, "droptail": 0.093}

SCENARIOS: dict[str, Scenario] = {
    "tcp-lossy": Scenario(
        "tcp-lossy",
        "one TCP over 10 Mb/s, 100 ms round trip, independent loss",
        _grid(congestion=("reno", "newreno", "sack"), delayed_ack=(0, 1), p=(0.001, 0.01, 0.03)),
        ("throughput_bps", "loss_frac", "loss_event_rate", "timeouts", "rtt_ms"),
    ),
    "tfrc-lossy": Scenario(
        "tfrc-lossy",
        "one TFRC over a lossy wireless hop of 1 Mb/s, 168 ms round trip",
        _grid(p=_LOSSY_P)
        + tuple({**cell, **form(0.168)} for form in (_rfc5348, _users) for cell in _grid(p=_LOSSY_P)),
        ("throughput_bps", "loss_frac", "loss_event_rate", "wali_p", "rtt_ms", "srtt_ms"),
    ),
    "multfrc-lossy": Scenario(
        "tfrc-lossy",
        "n TFRC connections of one stream over a lossy wireless hop of 1 Mb/s, 168 ms round trip",
        _grid(p=(0.02, 0.04), n=(1, 2, 3, 4)),
        ("throughput_bps", "loss_frac", "rtt_ms", "utilisation_frac"),
    ),
    "multfrc-many": Scenario(
        "tfrc-lossy",
        "the same with as many connections as fill the link, 1000 s",
        tuple(
            {**cell, "duration_s": 1000}
            for cell in _grid(p=(0.02, 0.04, 0.06, 0.08), n=(1, 2, 3, 4, 6, 8, 10))
        ),
        ("throughput_bps", "loss_frac", "rtt_ms"),
    ),
    "one-tcp": Scenario(
        "tfrc-tcp",
        "one TFRC beside one Reno with a window of 20, as in C-G: 1 Mb/s, 168 ms, 300 s",
        tuple({**_ONE_TCP, **cell} for cell in (*_grid(jitter_ms=(0, 1, 8)), {"queue": "red-auto"})),
        ("tfrc_to_tcp", "rtt_ms"),
    ),
    "ten-tcp": Scenario(
        "tfrc-tcp",
        "one TFRC beside ten Reno with windows of 20, as in B-E: 50 packets of drop-tail queue, 40 ms, 300 s",
        tuple({**_TEN_TCP, **cell} for cell in _grid(share_bps=(6.5e6 / 11, 1e6), jitter_ms=(0, 1, 5))),
        ("tfrc_mean_bps", "tcp_mean_bps", "rtt_ms"),
    ),
    "tfrc-tcp": Scenario(
        "tfrc-tcp",
        "n TFRC against n SACK, 1 Mb/s a flow, 50 ms, send jitter 1 ms",
        _MIX
        + tuple(
            {**cell, **form(_MIX_RTT[str(cell["queue"])])} for form in (_rfc5348, _users) for cell in _MIX
        ),
        ("tfrc_to_tcp", "tfrc_mean_bps", "tcp_mean_bps", "link_drop_frac", "utilisation_frac", "rtt_ms"),
    ),
    "tfrc-tcp-red-auto": Scenario(
        "tfrc-tcp",
        "the same with the RED that ns-2 configures by itself (sensitivity)",
        _grid(queue=("red-auto",), n=(8, 32)),
        ("tfrc_to_tcp", "tfrc_mean_bps", "tcp_mean_bps", "link_drop_frac", "utilisation_frac", "rtt_ms"),
    ),
    "bench-cbr": Scenario("bench-cbr", "100 Mb/s of CBR over 3 links, 100 s", ({},), ("hops",)),
    "bench-tcp": Scenario("bench-tcp", "32 TCP at 64 Mb/s, 100 s", ({},), ("hops", "throughput_bps")),
    "bench-multicast": Scenario(
        "bench-multicast",
        "45 multicast receivers and one TCP, 200 s",
        ({},),
        ("hops", "video_bps", "tcp_bps"),
    ),
}


def run_grid(
    script: str, cells: Sequence[Params], seeds: Sequence[int], *, jobs: int = 2
) -> list[list[Answer]]:
    """Run every cell with every seed, in `jobs` processes. Returns a list per cell, in the order of the seeds."""
    tasks = [{**cell, "seed": seed} for cell in cells for seed in seeds]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        answers = list(pool.map(lambda params: run(script, params), tasks))
    k = len(seeds)
    return [answers[i : i + k] for i in range(0, len(answers), k)]


def parse_seeds(text: str) -> list[int]:
    """Parse `3` or `1-5`, with both ends included."""
    first, _, last = text.partition("-")
    a, b = int(first), int(last or first)
    if not 0 < a <= b:
        raise ValueError(f"seeds {text!r}: expected N or A-B with 0 < A <= B")
    return list(range(a, b + 1))


def label(cell: Params) -> str:
    """Describe a cell for a table."""
    words = [f"{k}={v}" for k, v in cell.items() if k not in ("discount_floor", "tfrc_rto_s")]
    if "tfrc_rto_s" in cell:
        form = "as users get it" if cell.get("discount_floor") == NO_DISCOUNTING else "RFC 5348 constants"
        words.append(f"{form} (4 R = {1000 * float(cell['tfrc_rto_s']):g} ms)")
    return " ".join(words) or "as published"


def table(scenario: Scenario, seeds: Sequence[int] | None, *, jobs: int = 2) -> page.Table:
    """Return a table with mean ± 95 % interval per cell, and the user CPU seconds of a run."""
    rows: list[list[str]] = []
    for cell in scenario.grid:
        chosen = seeds if seeds is not None else list(range(1, scenario.seeds_for(cell) + 1))
        answers = run_grid(scenario.script, [cell], chosen, jobs=jobs)[0]
        row = [label(cell), str(len(answers))]
        for column in scenario.columns:
            have = [a.number(column) for a in answers if column in a.results]
            row.append(str(Spread.of(have)) if have else "–")
        row.append(f"{statistics.fmean(a.user_s for a in answers):.2f}")
        rows.append(row)
    return page.table(["cell", "seeds", *scenario.columns, "CPU s"], rows)


def check_headers() -> page.Table:
    """Run each script with all packet headers of ns-2, and with only those that it needs.

    The results must be equal.
    """
    short: dict[str, Params] = {
        "tcp-lossy": {"duration_s": 100},
        "tfrc-lossy": {"duration_s": 200},
        "tfrc-tcp": {"duration_s": 50},
        "bench-cbr": {"duration_s": 10, "count": 1},
        "bench-tcp": {"duration_s": 10, "count": 1},
        "bench-multicast": {"duration_s": 20, "count": 1},
    }
    rows = []
    for script, params in short.items():
        needed = run(script, params).results
        every = run(script, {**params, "headers": "all"}).results
        rows.append([script, "equal" if needed == every else "DIFFERENT"])
    return page.table(["script", "results without the unused headers"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m validation.ns2", description="Run our ns-2 scripts.")
    parser.add_argument("name", nargs="*", help="scenarios (default: all that are not a bench)")
    parser.add_argument("--list", action="store_true", help="name the scenarios and stop")
    parser.add_argument("--seeds", type=parse_seeds, help="N or A-B (default 1-5; 1-20 for drop-tail)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--check-headers", action="store_true", help="stripped headers change no result")
    args = parser.parse_args(argv)
    if args.list:
        print("\n".join(f"{name:18} {s.about}" for name, s in SCENARIOS.items()))
        return 0
    unknown = [name for name in args.name if name not in SCENARIOS]
    if unknown:
        print(f"unknown scenario {unknown[0]!r}; there are: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    try:
        if args.check_headers:
            print(check_headers())
            return 0
        for name in args.name or [n for n in SCENARIOS if not n.startswith("bench-")]:
            print(f"\n{name}: {SCENARIOS[name].about}\n")
            print(table(SCENARIOS[name], args.seeds, jobs=args.jobs), flush=True)
    except NsMissingError as why:
        print(why, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
