"""Runs all tests, Rust and Python. The last line is "N passed, M skipped because …".

A Rust test marked ``#[ignore = "needs TOOL"]`` (or "needs root") runs if the tool is installed, and otherwise counts
as skipped. A slow test is marked ``#[ignore = "claim: …"]`` and belongs to `make claims`. The failures and the skipped
tests are listed before the last line.

Under ``STEADYCAST_REQUIRE=all`` a skip is a failure, with one exception: a timed test (one that uses the fixture
``claimed``) may be skipped because the machine was too busy. At most a tenth of the timed tests may be.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent
CARGO = ("cargo", "test", "--workspace", "--locked", "--no-fail-fast")
"""The compiled Python module has no tests; including it gives cargo the features of its own build."""
REAL_TIME = ["tests/emulate", "tests/live", "tests/validation/test_soak.py"]
# Maximum characters of a failure that are repeated at the end.
CUT = 600
STALLED = "the machine stalled"
FAULTS = "tests/emulate/test_faults.py"
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
FAILED = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. FAILED", re.MULTILINE)
IGNORED = re.compile(r"^test (\S+)(?: - .*)? \.\.\. ignored, needs (\S+)", re.MULTILINE)


@dataclass
class Count:
    """The outcome of the tests."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)  # failed tests, with the reason if it is one line
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    skips: list[str] = field(default_factory=list)  # skipped tests, with the reason
    # Processes that ended with an error although no test failed.
    broken: list[str] = field(default_factory=list)
    timed: int = 0  # timed tests that ran, with any result

    def skip(self, name: str, why: str) -> None:
        """Count a skipped test."""
        self.skipped[why] += 1
        self.skips.append(f"{name}: {why}")

    def lacking(self) -> str | None:
        """Say what is missing if everything is required; `None` if nothing is."""
        if self.skipped.total() > self.skipped[STALLED]:
            return "a skip is a failure"
        if self.skipped[STALLED] * 10 > self.timed:
            return f"{STALLED} in {self.skipped[STALLED]} tests, more than a tenth of the {self.timed} timed tests"
        return None

    def line(self) -> str:
        """Return the counts as the last line of the output."""
        parts = [f"{self.passed} passed"]
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        skipped = f"{self.skipped.total()} skipped"
        if self.skipped:
            reasons = (f"{why} ({n})" if n > 1 else why for why, n in sorted(self.skipped.items()))
            skipped += f" because {'; '.join(reasons)}"
        parts.append(skipped)
        return ", ".join([*parts, *self.broken])


def main() -> int:
    """Run everything. Exit code 1 if a test failed, or was skipped although everything is required."""
    required = os.environ.get("STEADYCAST_REQUIRE", "") == "all"
    count = Count()
    with ThreadPoolExecutor(1) as installer:  # the tools are installed while cargo compiles
        prepared = installer.submit(tools.prepare, "test", tools.TOOLS)
        said = cargo_test(count)
        prepared.result()
    needing_tools(count, said)
    processor_bound(count)
    real_time(count)
    print("".join(f"\nskipped: {skip}" for skip in count.skips), end="")
    print("".join(f"\nfailed: {failure}" for failure in count.failures))
    print(count.line())
    if required and (lacking := count.lacking()):
        print(f"STEADYCAST_REQUIRE=all: {lacking}", file=sys.stderr)
        return 1
    return 1 if count.failures or count.broken else 0


def may_make_networks() -> bool:
    """Whether this user may make network namespaces and TUN devices."""
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()


def cargo_test(count: Count) -> str:
    """Run the crates' tests that need no tool; returns cargo's output."""
    with part("cargo test"):
        return cargo(count, [])


def needing_tools(count: Count, said: str) -> None:
    """Run the crates' tests that need a tool. ``said`` is the output of cargo, which names them."""
    by_tool: dict[str, list[str]] = {}
    for name, tool in IGNORED.findall(said):
        by_tool.setdefault(tool.rstrip(",;:"), []).append(name)
    there: list[str] = []
    for tool, names in sorted(by_tool.items()):
        if tool == "root" and not may_make_networks():
            lacking = "network namespaces need root"
        elif tool != "root" and shutil.which(tool) is None:
            lacking = f"{tool} is not installed"
        else:
            there += names
            continue
        for name in names:
            count.skip(f"cargo test {name}", lacking)
    if there:
        # No documentation example needs a tool. Most tests wait for real-time networks, so 8 run in parallel.
        with part("cargo test of what needs tools"):
            cargo(count, ["--tests", "--", "--ignored", "--test-threads=8", "--exact", *there])


@contextmanager
def part(name: str) -> Iterator[None]:
    """Print the name of a part of the tests, and how long it took."""
    print(f"\n{name} …", flush=True)
    began = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def cargo(count: Count, more: list[str]) -> str:
    """Run cargo's tests, and print the output of those that fail."""
    environment = {**os.environ, "PATH": tools.path_with_cargo(), "CARGO_TERM_COLOR": "never"}
    # Generated inputs have a fixed seed; set this variable for another.
    environment.setdefault("PROPTEST_RNG_SEED", "1")
    said: list[str] = []
    with subprocess.Popen(
        [*CARGO, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if not re.match(
                r"test .* \.\.\. (ok|ignored)|running \d+ test|\s*$|test result: ok|   Doc-tests", line
            ):
                print(line, end="", flush=True)
    code, whole = process.returncode, "".join(said)
    results = RESULT.findall(whole)
    count.passed += sum(int(passed) for passed, _ in results)
    failed = FAILED.findall(whole)
    count.failures += [f"cargo test {name}{panic_of(whole, name)}" for name in failed]
    if (code != 0 and not failed) or not results:
        count.broken.append(f"cargo test ended with code {code}")
    return whole


def panic_of(said: str, name: str) -> str:
    """Return the message with which a Rust test panicked, if there is one."""
    found = re.search(rf"^thread '{re.escape(name)}'.* panicked at (.+):\n(.+)", said, re.MULTILINE)
    return f" ({found[1]}): {found[2]}"[:CUT] if found else ""


def processor_bound(count: Count) -> None:
    """Run the tests of the package that do not run in real time."""
    pytest(count, [f"--ignore={folder}" for folder in REAL_TIME], at_once=3)


def real_time(count: Count) -> None:
    """Run the tests of the package in real time, after those that use much CPU time.

    The fault tests run alone, because other tests' video players would slow them down. The other timed tests run two
    at once: with four, up to three of them found the machine too busy. Each of the rest uses a fifth to a third of a
    processor. With six of these at once, pictures came late in one of two runs.
    """
    others = [*REAL_TIME, f"--ignore={FAULTS}"]
    pytest(count, [FAULTS], at_once=1)
    pytest(count, [*others, "-m", "timed and not claim"], at_once=2)
    pytest(count, [*others, "-m", "not timed and not claim"], at_once=4)


def pytest(count: Count, which: list[str], at_once: int = 2) -> None:
    """Run some of the tests in ``at_once`` processes.

    Each process gets a contiguous part, so most fixtures of a module are made once; an idle one takes tests over.
    """
    with part(" ".join(["pytest", *which])), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "junit.xml")
        spread = ["-n", str(at_once), "--dist", "worksteal"]
        slowest = ["--durations=8", "--durations-min=3"]
        words = [sys.executable, "-m", "pytest", "-q", *spread, *slowest, f"--junit-xml={file}", *which]
        code = subprocess.run(words, cwd=ROOT, check=False).returncode
        if not file.exists():
            count.broken.append(f"pytest ended with code {code}")
            return
        suite = next(ET.parse(file).iter("testsuite"))
        cases = list(suite.iter("testcase"))
    failed = [(case, what) for case in cases for what in [*case.iter("failure"), *case.iter("error")][:1]]
    skips = [(case, skip) for case in cases for skip in case.iter("skipped")]
    count.timed += sum(case.find("properties/property[@name='timed']") is not None for case in cases)
    for case, what in failed:
        why = " ".join(what.get("message", "").split())
        count.failures.append(f"{case.get('classname')}::{case.get('name')}: {why}"[:CUT])
    count.passed += len(cases) - len(failed) - len(skips)
    for case, skip in skips:
        name = f"{case.get('classname')}::{case.get('name')}"
        count.skip(name, skip.get("message") or "no reason is given")
    # pytest can fail without a failed test, for example if it can't import a module.
    if code != 0 and not failed:
        count.broken.append(f"pytest ended with code {code}")


if __name__ == "__main__":
    sys.exit(main())
