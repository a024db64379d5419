"""Measures the cost of a controller in another language, and compares its decisions: `examples/any-language`.

python -m validation.guest            # exchanges per second, cost relative to a class, equal records
python -m validation.guest --cases    # the cases of RFC 8867 with a control law that gets one report per second
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import steadycast as sc
from steadycast.core import core
from steadycast.loading import load

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "any-language"


@dataclass(frozen=True)
class Built:
    """How to build and run an example."""

    file: str
    tool: str
    build: tuple[str, ...] = ()
    """The command, without the program's name and the file; empty if the tool runs the file directly."""
    run: tuple[str, ...] = ()
    """The interpreter and the file's name in the build folder; empty if the file is executable."""

    def found(self) -> str | None:
        """Return the path of the tool, also where Go's own archive installs it."""
        return shutil.which(self.tool) or shutil.which(self.tool, path="/usr/local/go/bin")


BUILT = {
    "c": Built("aimd.c", "cc", ("cc", "-O2", "-ffp-contract=off", "-o")),
    "go": Built("aimd.go", "go", ("go", "build", "-o")),
    "typescript": Built(
        "aimd.mts",
        "tsc",
        ("tsc", "--strict", "--target", "es2022", "--module", "es2022", "--outDir"),
        ("node", "aimd.mjs"),
    ),
    "python": Built("aimd_exec.py", sys.executable),
}
"""The same control law in several languages."""

LINK = """
name = "guest"
duration = "{seconds}s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "{rate}", delay = "{delay}", queue = {{ kind = "droptail", limit = "{limit}" }}{more} }}
access = {{ rate = "100Mbps", delay = "5ms" }}
[[flow]]
name = "video"
kind = "video"
controller = "tfrc"
media = "greedy"
cap = "20Mbps"
"""
TCP = """
[[flow]]
name = "tcp"
kind = "tcp"
preset = "linux"
congestion = "cubic"
"""
SCENARIOS = (
    LINK.format(seconds=10, rate="2Mbps", delay="20ms", limit="30p", more="") + TCP,
    LINK.format(seconds=20, rate="8Mbps", delay="60ms", limit="100p", more=', loss = "0.5%"'),
    LINK.format(seconds=20, rate="600kbps", delay="5ms", limit="10p", more=', jitter = "2ms"') + TCP,
)
"""Networks beside a TCP, with random loss, and over a slow link with varying delay."""


class Aimd:
    """The examples' control law as a Python class, in the same units, so that all numbers are equal."""

    report_every_s = 0.1

    def __init__(self, setup: sc.Setup) -> None:
        self.setup = setup
        self.rate = setup.floor_bps
        self.quiet = 0.0
        self.reason = "start"

    def on_report(self, report: sc.Report) -> None:
        """Halve the rate at a loss, at most once per round trip; otherwise add one packet per round trip."""
        if not report.rtt_s or report.received_bps is None:
            return
        t, rtt = round(report.at_s * 1e9), round(report.rtt_s * 1e9)
        if report.lost_packets and t >= self.quiet:
            self.rate, self.quiet, self.reason = self.rate / 2, t + rtt, "loss: halved"
        elif not report.lost_packets:
            self.rate += 8e9 * self.setup.packet_bytes / rtt * min(1.0, 100e6 / rtt)
            self.reason = "no loss: a packet more"
        self.rate = min(max(self.rate, self.setup.floor_bps), self.setup.cap_bps)

    def rate_bps(self) -> float:
        """Return the rate in bit/s, rounded down to a whole number."""
        return float(int(self.rate))

    def why(self) -> str:
        """Return the rule."""
        return self.reason


def built(name: str, folder: Path) -> list[str]:
    """Build the program of an example, and return its command line."""
    how = BUILT[name]
    file, tool = str(EXAMPLES / how.file), how.found()
    assert tool is not None
    if not how.build:
        return [tool, file]
    out = str(folder / f"aimd-{name}")
    subprocess.run([tool, *how.build[1:], out, file], check=True)
    return [how.run[0], f"{out}/{how.run[1]}"] if how.run else [out]


def world(text: str, seed: int, guest: type | list[str]) -> core.Simulation:
    """Create the simulation of a scenario's text, with `guest` as the video's controller."""
    loaded = load(Path("guest.toml"), [f"seed={seed}", "flow.video.controller=guest.py:Guest"], text)
    return core.Simulation(loaded, {}, {"flow.video.controller": guest})


def sha256(text: str, seed: int, guest: type | list[str]) -> str:
    """Run a scenario's text, and return the hash of its record."""
    simulation = world(text, seed, guest)
    simulation.run(None)
    return simulation.figures(True)[0]


EXCHANGES = 200_000
LEAST = {"c": 20_000, "python": 8_000}
"""Minimum exchanges per second of wall-clock time, on an idle machine with two processors."""
MOST = {"c": 1.3}
"""Maximum run time relative to a Python class as the controller."""


def exchanges(programs: dict[str, list[str]]) -> list[list[str]]:
    """Count a program's answers per second of wall-clock time, and per second of CPU time of both processes."""
    build = "cargo build --release --quiet --package steadycast-external --example exchanges"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    rows = [["exchanges/s", "clock", "wanted", "processor"]]
    for name, words in {"pipes alone": [], **programs}.items():
        before, at = _spent(), time.perf_counter()
        subprocess.run([ROOT / "target/release/examples/exchanges", str(EXCHANGES), *words], check=True)
        took = time.perf_counter() - at
        wanted = str(LEAST.get(name, ""))
        rows.append([name, f"{EXCHANGES / took:.0f}", wanted, f"{EXCHANGES / (_spent() - before):.0f}"])
    return rows


def _spent() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _least_s(text: str, guest: type | list[str], *, runs: bool = True) -> float:
    """Return the minimum CPU seconds of five runs, or of only their start and end."""
    took = []
    for _ in range(5):
        before = _spent()
        simulation = world(text, 1, guest)
        if runs:
            simulation.run(None)
        del simulation
        took.append(_spent() - before)
    return min(took)


def costs(programs: dict[str, list[str]]) -> list[list[str]]:
    """Measure the CPU time of runs of a minute, for each kind of controller."""
    text = SCENARIOS[0].replace('"10s"', '"60s"')
    rows = [["a minute", "ms", "its start", "of a class", "wanted"]]
    of_class = _least_s(text, Aimd)
    guests: dict[str, type | list[str]] = {"class in Python": Aimd, **programs}
    for name, guest in guests.items():
        both = _least_s(text, guest), _least_s(text, guest, runs=False)
        told = [*(f"{1e3 * each:.1f}" for each in both), f"{both[0] / of_class:.2f}"]
        rows.append([name, *told, str(MOST.get(name, ""))])
    return rows


def one_record(programs: dict[str, list[str]]) -> int:
    """Count the scenarios and seeds whose records differ between languages or between two runs."""
    differ = 0
    for scenario in SCENARIOS:
        for seed in range(1, 6):
            hashes = {sha256(scenario, seed, Aimd)}
            for words in programs.values():
                hashes |= {sha256(scenario, seed, words) for _ in range(2)}
            differ += len(hashes) > 1
    return differ


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    with TemporaryDirectory(prefix="steadycast-") as scratch:
        folder = Path(scratch)
        if "--cases" in arguments:
            [program] = built("c", folder)
            from steadycast.experiment import run_experiment

            names = [f"exec:{program} stats", "tfrc"]
            done = run_experiment("rfc8867", only=names, seeds=(1,), out=folder / "cases")
            for point in done.points:
                held = [done.holds(bound, point) is True for bound in done.spec.bounds if bound.judges(point)]
                print(f"{point.scenario:>24}  {point.variant[:20]:>20}  {sum(held)} of {len(held)}")
            return len(done.runs.errors)
        programs = {name: built(name, folder) for name in BUILT}
        for row in [*exchanges(programs), *costs(programs)]:
            print("  ".join(f"{cell:>16}" for cell in row))
        differ = one_record(programs)
        print(
            f"{differ} of {5 * len(SCENARIOS)} pairs of scenario and seed differ between languages, or between runs"
        )
        return differ > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
