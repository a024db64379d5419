"""Measures the overhead of a sweep: runs per second, and CPU seconds of all processes per run.

    python -m validation.sweep_bench                # 1,000 runs of scenarios/home.toml, 30 s each, without pictures
    python -m validation.sweep_bench --runs 2000
    python -m validation.sweep_bench --write        # and into docs/data/sweep-bench.csv

The overhead is the CPU time of all processes in excess of the simulations' alone (`cpu_s` of each row). A second sweep
with a tenth of the runs separates the fixed cost of a sweep from the cost per run. Runs per second are in wall-clock
time.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from validation import page

ROOT = Path(__file__).parent.parent
TABLE = "sweep-bench"


def cost(runs: int, folder: Path) -> tuple[float, float, float]:
    """Sweep home.toml.

    Returns the CPU seconds of all processes, those of the simulations, and the reported runs per second.
    """
    command = [sys.executable, "-m", "steadycast", "sweep", "scenarios/home.toml"]
    options = ["--set", "duration=30s", "--seeds", f"1-{runs}", "-o", str(folder / f"home-{runs}")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    simulated = float(pl.read_parquet(folder / f"home-{runs}" / "results.parquet")["cpu_s"].sum())
    said = re.search(r"\(([\d.]+) runs/s\)", done.stderr)
    assert said is not None, done.stderr
    return cpu, simulated, float(said[1])


def measure(runs: int, folder: Path) -> page.Table:
    """Sweep few runs and many, and compute the fixed cost of a sweep and the cost per run."""
    load, few = os.getloadavg()[0], max(runs // 10, 2)
    less, more = cost(few, folder), cost(runs, folder)
    each, simulated = ((more[i] - less[i]) / (runs - few) for i in (0, 1))
    rows = {
        "runs (home.toml, 30 s, without pictures)": f"{runs:,}",
        "processors; load before the start": f"{len(os.sched_getaffinity(0))}; {load:.1f}",
        "runs per second by the clock, without the page": f"{more[2]:.1f}",
        "CPU per run, all processes": f"{each * 1e3:.1f} ms",
        "CPU per run, the simulation alone": f"{simulated * 1e3:.1f} ms",
        "overhead per run": f"{each / simulated - 1:.0%}",
        "CPU for starts, page and figures, once": f"{less[0] - few * each:.1f} s",
        "overhead of the whole command": f"{more[0] / more[1] - 1:.0%}",
    }
    return page.table(["what", "measured"], rows.items())


def main() -> None:
    """Measure, print, and with `--write` write the table."""
    parser = page.options("validation.sweep_bench", __doc__, TABLE)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    options.command = f"python -m validation.sweep_bench --runs {options.runs} --write"
    with tempfile.TemporaryDirectory() as folder:
        page.show(options, TABLE, "What a sweep costs", measure(options.runs, Path(folder)))


if __name__ == "__main__":
    main()
