"""Counts the instructions per packet-hop of the compiled module, with callgrind.

    python -m validation.instructions            # the three workloads of the bench, a minute
    python -m validation.instructions --write    # and into docs/data/instructions.csv

A count does not depend on other work of the machine, so a few seconds suffice. The difference of a longer and a
shorter simulation excludes Python, its start and the building of the network. Counts depend on the compiler and the
profile: the file has those of a release build and of the build for `make test`, which
`tests/validation/test_instructions.py` compares. A change of speed must update both.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steadycast import _core

from validation import page
from validation.bench import SCENARIOS

NAME = "instructions"
TITLE = "Instructions per packet-hop, counted by callgrind"
SECONDS = {"bench-cbr": (1, 3), "bench-tcp": (2, 4), "bench-multicast": (2, 12)}
"""Simulated seconds of the short and the long run; they differ by at least about 70,000 hops."""

COUNTED = """
import importlib.util, sys
_, module, scenario, duration = sys.argv
spec = importlib.util.spec_from_file_location("_core", module)
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
simulation = core.Simulation(core.Scenario(scenario, [f'duration="{duration}s"']), {}, {})
simulation.run(None)
print("hops", simulation.hops)
"""


class NotCountedError(RuntimeError):
    """The counted program ended without a count."""


def _counted(workload: str, seconds: int) -> tuple[int, int]:
    """Run one simulation under callgrind. Returns its hops and the instructions of the whole process."""
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", COUNTED]
    words += [str(_core.__file__), str(SCENARIOS / f"{workload}.toml"), str(seconds)]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        # A fixed hash seed makes the number of instructions repeatable.
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    hops = re.search(r"^hops (\d+)$", done.stdout, re.MULTILINE)
    instructions = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or hops is None or instructions is None:
        raise NotCountedError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return int(hops[1]), int(instructions[1])


def count() -> dict[str, float]:
    """Return the instructions per hop of each workload."""
    runs = [(workload, seconds) for workload, both in SECONDS.items() for seconds in both]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(runs, pool.map(lambda run: _counted(*run), runs), strict=True))
    per_hop = {}
    for workload, (short, long) in SECONDS.items():
        (hops, instructions), (more_hops, more) = made[workload, short], made[workload, long]
        per_hop[workload] = (more - instructions) / (more_hops - hops)
    return per_hop


def written() -> list[list[str]]:
    """Return the rows of the file: workload, instructions per hop, and the build."""
    with Path(page.DATA, f"{NAME}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    args = page.options("validation.instructions", __doc__, NAME).parse_args(argv)
    if shutil.which("valgrind") is None:
        print("valgrind is missing (Debian and Ubuntu: apt install valgrind)", file=sys.stderr)
        return 3
    rows = [row for row in written() if row[2] != _core.__build__]
    rows += [[name, f"{per_hop:.1f}", _core.__build__] for name, per_hop in count().items()]
    page.show(args, NAME, TITLE, page.table(["workload", "instructions per hop", "build"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
