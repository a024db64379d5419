"""Measures the time that a user's commands take, each run as a separate process.

    python -m validation.latency_bench                # prints the table
    python -m validation.latency_bench --write        # and into docs/data/waits.csv

Encoded streams and their quality are cached, results of simulations are not. With other work on the machine, the
minimum is closer to the program's own time than the median.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from validation import page

ROOT = Path(__file__).parent.parent
TABLE = "waits"
HOME = ("run", "scenarios/home.toml", "--set", "duration=30s")


def times(words: tuple[str, ...], rounds: int) -> list[float]:
    """Return the times of several calls in seconds. A first call, which may encode, is not counted."""
    found = []
    for _ in range(rounds + 1):
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "steadycast", *words], cwd=ROOT, capture_output=True, check=True
        )
        found.append(time.monotonic() - began)
    return found[1:]


def table(rounds: int) -> page.Table:
    """Measure, and return the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        written = (*HOME, "--force", "-o", f"{folder}/home")
        for shown, words, aim in (
            ("`--version`", ("--version",), 0.2),
            ("`run scenarios/home.toml --set duration=30s --json`", (*HOME, "--json"), 1.0),
            ("the same into a folder, with its report", (*written, "--no-film"), 1.8),
            ("and with the film of its worst ten seconds", written, 2.4),
        ):
            took = times(words, rounds)
            rows.append([shown, f"{aim} s", f"{min(took):.2f} s", f"{statistics.median(took):.2f} s"])
    return page.table(["command", "aim", "least", "median"], rows)


def main() -> int:
    """Print the table, and write it with `--write`."""
    parser = page.options("validation.latency_bench", __doc__, TABLE)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    told = f"{given.rounds} rounds at a load of {load:.1f}"
    page.show(given, TABLE, "What a user waits for", table(given.rounds), told)
    return 0


if __name__ == "__main__":
    page.end(main)
