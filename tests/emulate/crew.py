"""Starts, kills and ends processes on hosts of an emulation, step by step.

The arguments are the steps as JSON, and a file. The steps are ``["start", name, host, [word, …]]``, ``["wait",
seconds]``, ``["ready", name, port]`` (wait until that process has bound the port), ``["mark", word]`` (record the
time), ``["kill", name]`` (SIGKILL), ``["end", name]`` (SIGINT) and ``["ended", name]`` (wait for its end). The file
gets the marks in seconds from the start, and the failures. Exit code 1: a process that was not killed has failed or
did not end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 120
"""Seconds to wait for the end of a process, which writes its record then; on a busy machine this takes long."""


def age_s() -> float:
    """Seconds since this process was started, which is the start of the emulation. Its own first line runs later."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Crew:
    """Processes by their names."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.marks: dict[str, float] = {}
        self.failed: list[str] = []

    def start(self, name: str, host: str, words: list[str]) -> None:
        """Start a process in the namespace of a host."""
        space = os.environ["STEADYCAST_NET_" + host.upper()]
        self.running[name] = subprocess.Popen(
            ["nsenter", f"--net={space}", *words], stdout=subprocess.DEVNULL
        )

    def ready(self, name: str, port: int) -> None:
        """Wait until a process has bound its port, by the socket table of its namespace."""
        process, bound = self.running[name], f":{port:04X} "
        while process.poll() is None:
            if bound in Path(f"/proc/{process.pid}/net/udp").read_text():
                return
            time.sleep(0.05)
        self.failed.append(f"{name} has ended before it was ready: {process.returncode}")

    def kill(self, name: str) -> None:
        """Kill a process, which must still be running."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            self.failed.append(f"{name} had ended before it was killed: {process.returncode}")

    def end(self, name: str) -> None:
        """Ask a process to end, as Ctrl-C does, and wait until it has."""
        self.running[name].send_signal(signal.SIGINT)
        self.ended(name)

    def ended(self, name: str) -> None:
        """Wait until a process has ended, with exit code 0."""
        process = self.running.pop(name)
        try:
            if process.wait(PATIENCE_S) not in (0, 130):
                self.failed.append(f"{name}: exit code {process.returncode}")
        except subprocess.TimeoutExpired:
            process.kill()
            self.failed.append(f"{name} would not end")

    def wait(self, seconds: float) -> None:
        """Do nothing."""
        time.sleep(seconds)

    def mark(self, word: str) -> None:
        """Write down the time."""
        self.marks[word] = age_s()


@contextmanager
def crew() -> Iterator[Crew]:
    """Ends all processes, also after an error."""
    made = Crew()
    try:
        yield made
    finally:
        for name in list(made.running):
            made.end(name)


def main() -> int:
    """Take the steps."""
    steps, marks = json.loads(sys.argv[1]), Path(sys.argv[2])
    with crew() as told:
        for what, *words in steps:
            getattr(told, what)(*words)
    marks.write_text(json.dumps({"marks": told.marks, "failed": told.failed}))
    return 1 if told.failed else 0


if __name__ == "__main__":
    sys.exit(main())
