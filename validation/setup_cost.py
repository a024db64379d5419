"""Measures the cost of a checkout's first build in packages and core-seconds, compared with another project's package.

    python -m validation.setup_cost             # the set-up of `make demo`, cold: two core-minutes
    python -m validation.setup_cost --all       # and the other builds of scripts/setup.py: ten more
    python -m validation.setup_cost --write     # and into docs/data/setup-cost.csv

Each build starts with an empty target folder, after its packages were downloaded. A core-second is a second of user
or system time of cargo and its child processes. The ratio to `PEER`, compiled in the same run, depends less on the
machine and its other work.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from validation import page

ROOT = Path(__file__).resolve().parent.parent
TABLE = "setup-cost"
PEER = "pyo3"
"""A package of the set-up with all its dependencies. Changes of this project don't affect its cost."""
OURS = "steadycast-python"


@dataclass(frozen=True)
class Cost:
    """The cost of a cold build."""

    core_s: float
    module_bytes: int
    """0 for a build without a module."""


def script() -> ModuleType:
    """Return the module scripts/setup.py, which has the list of builds."""
    spec = importlib.util.spec_from_file_location("steadycast_setup", ROOT / "scripts" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _cargo(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = script().with_cargo()
    environment |= more.pop("env", {})
    # A user's build settings would change the cost.
    for name in ("RUSTFLAGS", "RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"):
        environment.pop(name, None)
    return subprocess.run(["cargo", *words], cwd=ROOT, check=True, text=True, env=environment, **more)


def packages(build: Any) -> set[str]:
    """Return the packages that a build compiles, with their versions."""
    chosen = [word for word in build.arguments() if word not in ("--profile", build.profile)]
    words = ["tree", "-p", OURS, "-e", "normal,build", "--prefix", "none", "--format", "{p}", *chosen]
    said = _cargo(*words, capture_output=True).stdout
    return {" ".join(line.split()[:2]) for line in said.splitlines() if line.strip()}


def cost(package: str, arguments: list[str]) -> Cost:
    """Compile a package in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _cargo("build", "-q", "-p", package, *arguments, env={"CARGO_TARGET_DIR": folder})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        module = [path.stat().st_size for path in Path(folder).glob("*/lib_core.*so")]
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(spent, sum(module))


def peer(build: Any) -> Cost:
    """Compile `PEER` with the profile of a build."""
    return cost(PEER, ["--profile", build.profile, "--locked"])


def table(builds: list[Any]) -> page.Table:
    """Measure the builds, and return the table."""
    beside = peer(builds[0])
    rows = [[PEER, builds[0].profile, "", f"{beside.core_s:.1f}", "1.00", ""]]
    for build in builds:
        found = cost(OURS, build.arguments())
        ratio = found.core_s / beside.core_s
        size = f"{found.module_bytes / 1e6:.1f}"
        count = str(len(packages(build)))
        rows.append([build.part, build.profile, count, f"{found.core_s:.1f}", f"{ratio:.2f}", size])
    return page.table(["what", "profile", "packages", "core-seconds", "times pyo3", "module, MB"], rows)


def main() -> int:
    """Print the table, and write it with `--write`."""
    parser = page.options("validation.setup_cost", __doc__, TABLE)
    parser.add_argument("--all", action="store_true", help="also the builds beside that of make demo")
    given = parser.parse_args()
    setup = script()
    builds = [setup.SIMULATOR, *([setup.WHOLE, setup.TESTS, setup.RELEASE] if given.all else [])]
    _cargo("fetch", "--locked", "-q")
    told = f"{os.cpu_count()} processors at a load of {os.getloadavg()[0]:.1f}"
    page.show(given, TABLE, "What the first build costs", table(builds), told)
    return 0


if __name__ == "__main__":
    page.end(main)
