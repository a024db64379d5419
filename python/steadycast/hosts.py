"""A crew: a supervisor process that runs programs on several hosts of an emulation.

Its argument is a `Plan` as JSON. Each program starts when the program before it is ready.

The crew ends all programs when the program `Plan.waits` exits. If `Plan.waits` is `None`, it ends them at
`Plan.until_s`. If a program fails, the crew ends the others immediately.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from steadycast.confine import Confinement, descendants
from steadycast.contention import SAMPLE_S, Load, Machine
from steadycast.rootless import bare

LOG_BYTES = 4 << 20
"""Largest size of a program's log, in bytes. Further output is discarded."""
FIND_S = 1.0
"""The interval between searches for new threads, in seconds."""
READY_S = 10.0
"""Time limit for a program to become ready, in seconds."""
_DIES_WITH_CREW = ("setpriv", "--pdeathsig=KILL", "--")
"""Command prefix that makes a program end with the crew, even if the crew is killed.

The emulation ends the crew in the same way. But the kernel kills only a child in this way, and not a grandchild
(PR_SET_PDEATHSIG, prctl(2)). So the programs need their own setting.
"""
_LISTENS = "0A"
"""The state TCP_LISTEN, as it is written in /proc/net/tcp."""


@dataclass(frozen=True)
class Member:
    """A program that a crew runs."""

    name: str
    on: str | None
    """The host on which the program runs.

    If it is `None`, the program runs in the crew's namespace, which has no network.
    """
    run: Sequence[str]
    ready: str = ""
    """How to see that the program is ready: udp:PORT, tcp:PORT, log:REGEX, file:PATH or delay:SECONDS.

    If the text is empty, the program is ready immediately.
    """
    env: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True
    """Whether the program may exit with code 0 before the crew ends."""
    log: str | None = None
    """The file for the program's output. The program then has its own process group. `None` means the crew's output."""
    own: bool = False
    """Whether the program belongs to Steadycast. Such a program is not confined."""


@dataclass(frozen=True)
class Plan:
    """The programs of a crew, and the conditions for its end."""

    members: Sequence[Member]
    waits: str | None = None
    """The name of a program. When this program exits, the crew ends."""
    until_s: float | None = None
    """When the crew ends if `waits` is `None`, in seconds since the emulation's start."""
    counts_from_s: float = 0.0
    """When long waits for a processor begin to count, in seconds since the emulation's start."""
    judge: int = 0
    """The id of the process whose children run this emulation and others (`Machine.judge`)."""
    asked: Sequence[str] = ()
    """Names of the programs that are ended first, in this order. The others follow in the order of their start."""
    signals: Sequence[tuple[str, float]] = (("TERM", 5),)
    """The signals that end a program, each with a time limit in seconds. SIGKILL follows."""
    pause_s: float = 0.0
    """Pause before programs of another host are ended, in seconds. It lets packets in transit arrive."""
    report: str | None = None
    """The path of the log of events. It has a line of JSON for each event."""
    confined: Confinement | None = None
    """The restrictions for members that are not `own`. All processes of these members end with the crew."""

    @classmethod
    def read(cls, text: str) -> Plan:
        """Parse a plan from the JSON that `words` creates."""
        told = json.loads(text)
        confined = told["confined"] and Confinement(**told["confined"])
        return cls(**{**told, "members": [Member(**each) for each in told["members"]], "confined": confined})

    @property
    def words(self) -> list[str]:
        """The command that executes the plan."""
        return [sys.executable, "-m", "steadycast.hosts", json.dumps(asdict(self))]


class FailedError(Exception):
    """A program failed. It has a keyword for the reason, the program's name, and details."""

    def __init__(self, reason: str, member: str, detail: str) -> None:
        super().__init__(reason, member, detail)
        self.told = {"reason": reason, "program": member, "detail": detail}


def space_of(host: str) -> str | None:
    """Return the path of a host's network namespace, from the environment variables that the emulation sets."""
    return os.environ.get("STEADYCAST_NET_" + re.sub(r"[^A-Za-z0-9]", "_", host).upper())


def age_s() -> float:
    """Return the time since the emulation's start in seconds, with a resolution of 10 ms.

    The time is measured as the age of this process.
    """
    ticks = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Crew:
    """Starts and ends the programs of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: dict[str, tuple[Member, subprocess.Popen[bytes]]] = {}
        self.began = time.monotonic() - age_s()
        self._report = open(plan.report, "a", buffering=1) if plan.report else None  # noqa: SIM115
        self.loads: dict[str, Load] = {}
        self.emulation: Load | None = None
        self.machine: Machine | None = None
        self.logs: dict[str, Log] = {}
        if plan.confined is not None:
            _adopt_orphans()
        self.told("begins", monotonic_s=self.began)

    def told(self, what: str, **more: Any) -> None:
        """Write an event to the log."""
        if self._report is not None:
            at = round(time.monotonic() - self.began, 4)
            self._report.write(json.dumps({"t": at, "what": what, **more}) + "\n")

    def start(self, member: Member) -> None:
        """Start a program in the namespace of its host."""
        words, env = self._command(member)
        if member.on is not None:
            space = space_of(member.on)
            if space is None:
                print(
                    f"--in {member.on}: no host of that name; name an end of a flow, or a node with one link",
                    file=sys.stderr,
                )
                raise SystemExit(2)
            words, env = ["nsenter", f"--net={space}", "--", *words], {**env, "STEADYCAST_HOST": member.on}
        words = [*_DIES_WITH_CREW, *words]
        to: dict[str, Any] = {}
        if member.log is not None:
            self.logs[member.name] = log = Log(Path(member.log))
            to = {"stdin": subprocess.DEVNULL, "stdout": log.end, "stderr": log.end, "process_group": 0}
        self.told("start", program=member.name, words=shlex.join(member.run))
        try:
            self.running[member.name] = member, subprocess.Popen(words, env=env, **to)
        except FileNotFoundError:
            print(f"{words[0]} is not installed; apt-get install util-linux", file=sys.stderr)
            raise SystemExit(3) from None
        finally:
            # Close this end of the pipe, because the log ends when all writing ends are closed.
            if to:
                os.close(to["stdout"])
        self._wait_ready(member)
        self.loads[member.name] = Load()

    def _command(self, member: Member) -> tuple[list[str], dict[str, str]]:
        confined = self.plan.confined
        if confined is None:
            return bare(member.run), {**os.environ, **member.env}
        if member.own:
            # Keep the crew's capabilities, so that a process without capabilities can't trace the program (ptrace(2)).
            return list(member.run), {**os.environ, **member.env}
        return confined.words(member.run), confined.environment(os.environ, member.env)

    def _wait_ready(self, member: Member) -> None:
        kind, _, what = member.ready.partition(":")
        began = time.monotonic()
        patience = float(what) if kind == "delay" else READY_S
        while kind and not self._is_ready(member, kind, what):
            if time.monotonic() - began > patience:
                if kind == "delay":
                    break
                raise FailedError("not-ready", member.name, f"{member.ready} after {READY_S:g} s")
            if self.plan.until_s is not None and time.monotonic() - self.began > self.plan.until_s:
                detail = f"not ready ({member.ready}) at {self.plan.until_s:g} s, the end"
                raise FailedError("too-long", member.name, detail)
            self.look(member)
            # Poll, because socket tables and logs give no notice of changes.
            time.sleep(0.02)
        self.told("ready", program=member.name)

    def _is_ready(self, member: Member, kind: str, what: str) -> bool:
        if kind in ("udp", "tcp"):
            return any(
                row[1].endswith(f":{int(what):04X}") and (kind == "udp" or row[3] == _LISTENS)
                for row in _sockets(self.running[member.name][1].pid, kind)
            )
        if kind == "log":
            # Ignore errors, because the log may not exist yet.
            with suppress(OSError):
                return re.search(what, Path(member.log or "").read_text(errors="replace")) is not None
        return kind == "file" and Path(what).exists() and Path(what).stat().st_size > 0

    def look(self, member: Member) -> None:
        """Raise an error if a program has exited although it should still run."""
        code = self.running[member.name][1].poll()
        if code in (126, 127):
            raise FailedError("no-start", member.name, f"code {code}")
        if code is not None and (code or not member.ends):
            at = time.monotonic() - self.began
            remedy = "" if code else '; if it may end by itself, write "ends = true" in a file of the pair'
            raise FailedError("ended-early", member.name, f"{_ended(code)} at {at:.1f} s{remedy}")

    def logged(self, name: str) -> int | None:
        """Return the current size of a running program's log, in bytes. Return `None` if it has no log.

        Lines beyond this size may be caused by the signals that end the program. If the program has already ended,
        return `None`, because the log has no such lines.
        """
        running = name in self.running and self.running[name][1].poll() is None
        log = self.running[name][0].log if running else None
        return Path(log).stat().st_size if log is not None and Path(log).exists() else None

    def wait(self) -> int:
        """Wait until the crew has to end. Return the exit code of the crew."""
        if self.plan.waits is not None:
            code = self.running[self.plan.waits][1].wait()
            return code if code >= 0 else 128 - code
        until, counts_from = self.began + (self.plan.until_s or 0.0), self.began + self.plan.counts_from_s
        # The parent process is the emulation, because it started the crew.
        emulation, found_at = os.getppid(), 0.0
        self.machine = Machine(emulation, self.plan.judge)
        self.emulation = Load()
        counts = False
        while (now := time.monotonic()) < until:
            for member, _ in self.running.values():
                self.look(member)
            for load in (*self.loads.values(), self.emulation):
                load.sample(now, counts=counts)
            if not counts and now >= counts_from:
                counts = True
                self.machine.begin(now)
            if now >= found_at + FIND_S:
                found_at = now
                for name, (_, process) in self.running.items():
                    self.loads[name].find(process.pid, now)
                self.emulation.find(emulation, now, children=False)
                if counts:
                    self.machine.scan()
            time.sleep(min(SAMPLE_S, max(0.0, until - now)))
        return 0

    def _tell_loads(self) -> None:
        """Write to the log of events for how long threads have waited for a processor."""
        if self.emulation is None or self.machine is None:
            return
        for name, load in self.loads.items():
            self.told("load", program=name, **load.told())
        self.told("emulation", **self.emulation.told())
        self.told("machine", **self.machine.told(time.monotonic()))

    def end(self) -> None:
        """End the remaining programs, with SIGKILL if necessary."""
        self._tell_loads()
        order = [*self.plan.asked, *(name for name in self.running if name not in self.plan.asked)]
        host: str | None = None
        for name in order:
            if name not in self.running:
                continue
            member, process = self.running[name]
            if host is not None and member.on not in (None, host):
                time.sleep(self.plan.pause_s)
            host = member.on or host
            self._end(member, process)
        if self.plan.confined is not None:
            _end_descendants()
        for log in self.logs.values():
            log.close()

    def _end(self, member: Member, process: subprocess.Popen[bytes]) -> None:
        if (code := process.poll()) is not None:
            self.told("ended", program=member.name, code=code)
            if code and member.log is None and member.name != self.plan.waits:
                print(f"--in {member.on}: exit code {code}", file=sys.stderr)
            return
        for name, patience in (*self.plan.signals, ("KILL", 5.0)):
            with suppress(ProcessLookupError):
                number = getattr(signal, f"SIG{name}")
                # A program with a log has its own process group, so signal the whole group. A program without a log is
                # in the process group of the terminal, so signal only its process.
                (process.send_signal if member.log is None else partial(os.killpg, process.pid))(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        self.told("ended", program=member.name, code=process.returncode, asked=True)


class Log:
    """The log of a program. It keeps the beginning of the program's output."""

    def __init__(self, path: Path) -> None:
        output, self.end = os.pipe()
        self._thread = threading.Thread(target=_keep_output, args=(output, path), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until the output is written. Do not wait for a detached process that still has the pipe open."""
        self._thread.join(1.0)


def _keep_output(output: int, path: Path) -> None:
    kept = left_out = 0
    with open(output, "rb", buffering=0) as source, path.open("ab", buffering=0) as file:
        while part := source.read(1 << 16):
            begin = part[: LOG_BYTES - kept]
            with suppress(OSError):  # go on reading on a full disk, because the program would otherwise block
                _ = file.write(begin)
            kept += len(begin)
            left_out += len(part) - len(begin)
        if left_out:
            with suppress(OSError):
                _ = file.write(f"\n{left_out} bytes more were left out\n".encode())


def _adopt_orphans() -> None:
    """Make orphaned descendants children of this process (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def _end_descendants() -> None:
    until = time.monotonic() + READY_S
    while (left := [*descendants(os.getpid())]) and time.monotonic() < until:
        for process in left:
            # Ignore the error of a process that has already ended.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            # Wait for ended children. Otherwise, they would remain as zombies and be listed again.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        # Look again, because a process may have started a child after the list was made.
        time.sleep(0.01)


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"


def _sockets(pid: int, kind: str) -> Iterator[list[str]]:
    """Yield the rows of a process's socket tables for IPv4 and IPv6, because an IPv6 socket may accept IPv4."""
    for table in (kind, f"{kind}6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                yield line.split()


def main() -> int:
    """Run the plan that the command line contains."""
    plan = Plan.read(sys.argv[1])
    crew = Crew(plan)

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        for member in plan.members:
            crew.start(member)
        return crew.wait()
    except FailedError as failed:
        crew.told("failed", **failed.told, logged=crew.logged(failed.told["program"]))
        return 1
    finally:
        crew.end()


if __name__ == "__main__":
    sys.exit(main())
