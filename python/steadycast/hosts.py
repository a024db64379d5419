"""A crew: programs on several hosts of an emulation, started by the one that the emulation itself runs.

Told a plan as JSON. Programs are started in the plan's order, each when the one
before is ready. The crew ends with the program that the plan waits for, whose exit code is its own, or at a time of
the emulation, or when a program fails. What is left is then asked to end, in the order of `Plan.asked`.
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
from steadycast.rootless import bare

LOG_BYTES = 4 << 20
"""What is kept of a program's output; its log then says how much was left out."""
READY_S = 10.0
"""How long a program may take until it is ready."""
_LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


@dataclass(frozen=True)
class Member:
    """A program of a crew."""

    name: str
    on: str | None
    """Its host; `None`: it needs no network, and runs where the crew does."""
    run: Sequence[str]
    ready: str = ""
    """udp:PORT, tcp:PORT, log:REGEX, file:PATH or delay:SECONDS; without it, it is ready at once."""
    env: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True
    """May end by itself, with code 0, before the time is over."""
    log: str | None = None
    """Where its output goes; it is then in a process group of its own. `None`: where the crew's goes."""
    own: bool = False
    """It is a program of ours, which the plan's confinement is not for."""


@dataclass(frozen=True)
class Plan:
    """What a crew does."""

    members: Sequence[Member]
    waits: str | None = None
    """The program with which the crew ends."""
    until_s: float | None = None
    """Else the time of the emulation at which it does."""
    asked: Sequence[str] = ()
    """The order in which those that are left are asked to end; others follow in the order of their start."""
    signals: Sequence[tuple[str, float]] = (("TERM", 5),)
    """By which, and how long each may take; SIGKILL follows."""
    pause_s: float = 0.0
    """Between two hosts' programs, so that what is under way still arrives."""
    report: str | None = None
    """The file that is told what happens, a line of JSON each."""
    confined: Confinement | None = None
    """How the members run that are not our own, and that all their processes end with the crew."""

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read what `words` has written."""
        told = json.loads(text)
        confined = told["confined"] and Confinement(**told["confined"])
        return cls(**{**told, "members": [Member(**each) for each in told["members"]], "confined": confined})

    @property
    def words(self) -> list[str]:
        """The command that carries it out."""
        return [sys.executable, "-m", "steadycast.hosts", json.dumps(asdict(self))]


class FailedError(Exception):
    """A program that did not do what the plan needs: the reason in a word, the program, and the rest."""

    def __init__(self, reason: str, member: str, detail: str) -> None:
        super().__init__(reason, member, detail)
        self.told = {"reason": reason, "program": member, "detail": detail}


def space_of(host: str) -> str | None:
    """Give the file of a host's network namespace, as the emulation names it in the environment."""
    return os.environ.get("STEADYCAST_NET_" + re.sub(r"[^A-Za-z0-9]", "_", host).upper())


def age_s() -> float:
    """Seconds since this process was started, which is when the emulation began, to 10 ms."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Crew:
    """Programs that run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: dict[str, tuple[Member, subprocess.Popen[bytes]]] = {}
        self.began = time.monotonic() - age_s()
        self._report = open(plan.report, "a", buffering=1) if plan.report else None  # noqa: SIM115
        self.loads: dict[str, Load] = {}
        self.logs: dict[str, Log] = {}
        if plan.confined is not None:
            _adopt_orphans()
        self.told("begins", monotonic_s=self.began)

    def told(self, what: str, **more: Any) -> None:
        """Write down what happens."""
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
            if to:
                os.close(to["stdout"])
        self._wait_ready(member)
        self.loads[member.name] = Load()

    def _command(self, member: Member) -> tuple[list[str], dict[str, str]]:
        """Return a program's words and its environment."""
        confined = self.plan.confined
        if confined is None:
            return bare(member.run), {**os.environ, **member.env}
        if member.own:
            # It keeps our capabilities, so that a program of the same user without them can't trace it (ptrace(2)).
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
                raise FailedError("too-long", member.name, f"not ready at {self.plan.until_s:g} s, the end")
            self.look(member)
            time.sleep(0.02)
        self.told("ready", program=member.name)

    def _is_ready(self, member: Member, kind: str, what: str) -> bool:
        if kind in ("udp", "tcp"):
            return any(
                row[1].endswith(f":{int(what):04X}") and (kind == "udp" or row[3] == _LISTENS)
                for row in _sockets(self.running[member.name][1].pid, kind)
            )
        if kind == "log":
            with suppress(OSError):
                return re.search(what, Path(member.log or "").read_text(errors="replace")) is not None
        return kind == "file" and Path(what).exists() and Path(what).stat().st_size > 0

    def look(self, member: Member) -> None:
        """Fail where a program has ended that was not to."""
        code = self.running[member.name][1].poll()
        if code in (126, 127):
            raise FailedError("no-start", member.name, f"code {code}")
        if code is not None and (code or not member.ends):
            at = time.monotonic() - self.began
            raise FailedError("ended-early", member.name, f"{_ended(code)} at {at:.1f} s")

    def wait(self) -> int:
        """Wait until the crew is to end; return its exit code."""
        polled = 0.0
        if self.plan.waits is not None:
            code = self.running[self.plan.waits][1].wait()
            return code if code >= 0 else 128 - code
        until = self.began + (self.plan.until_s or 0.0)
        while (now := time.monotonic()) < until:
            for member, _ in self.running.values():
                self.look(member)
            if now >= polled + 1:
                polled = now
                for name, (_, process) in self.running.items():
                    self.loads[name].poll(process.pid, now)
            time.sleep(min(0.05, max(0.0, until - now)))
        return 0

    def end(self) -> None:
        """Ask all that are left to end, and see that they do."""
        for name, load in self.loads.items():
            if load.ran_s:
                self.told("load", program=name, ran_s=load.ran_s, waited=load.waited)
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
                # Without a log it is in the terminal's group, which also hears Ctrl-C.
                (process.send_signal if member.log is None else partial(os.killpg, process.pid))(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        self.told("ended", program=member.name, code=process.returncode, asked=True)


class Log:
    """A program's output, of which a file keeps the beginning."""

    def __init__(self, path: Path) -> None:
        output, self.end = os.pipe()
        self._thread = threading.Thread(target=_keep_output, args=(output, path), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until the output is in the file; not for a process that left the crew and holds the pipe."""
        self._thread.join(1.0)


def _keep_output(output: int, path: Path) -> None:
    kept = left_out = 0
    with open(output, "rb", buffering=0) as source, path.open("ab", buffering=0) as file:
        while part := source.read(1 << 16):
            begin = part[: LOG_BYTES - kept]
            with suppress(OSError):  # a full disk: the program still needs a reader
                _ = file.write(begin)
            kept += len(begin)
            left_out += len(part) - len(begin)
        if left_out:
            with suppress(OSError):
                _ = file.write(f"\n{left_out} bytes more were left out\n".encode())


def _adopt_orphans() -> None:
    """Have processes whose parents end become children of this one (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def _end_descendants() -> None:
    """End all processes that programs have started, and that are left."""
    until = time.monotonic() + READY_S
    while (left := [*descendants(os.getpid())]) and time.monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"


def _sockets(pid: int, kind: str) -> Iterator[list[str]]:
    """Yield the rows of the kernel's table of sockets in the namespace of a process; IPv6's take IPv4, too."""
    for table in (kind, f"{kind}6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                yield line.split()


@dataclass
class Load:
    """How long the threads of a program ran, and waited for a processor (/proc/PID/task/TID/schedstat)."""

    first: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    last: dict[str, tuple[float, int, int]] = field(default_factory=dict)

    def poll(self, pid: int, now: float) -> None:
        """Look at all threads of a process, and of those that it has started."""
        for task in _tasks(pid):
            with suppress(OSError, ValueError):
                ran, waited, _ = map(int, Path(task, "schedstat").read_text().split())
                self.first.setdefault(task, (now, ran, waited))
                self.last[task] = (now, ran, waited)

    @property
    def ran_s(self) -> float:
        """How long they ran since they were first looked at, in seconds, together."""
        return sum(self.last[task][1] - self.first[task][1] for task in self.last) / 1e9

    @property
    def waited(self) -> float:
        """The largest share of its time that a thread, looked at for 3 s or longer, waited for a processor."""
        spans = [(self.last[t][0] - self.first[t][0], self.last[t][2] - self.first[t][2]) for t in self.last]
        return max((waited / 1e9 / span for span, waited in spans if span >= 3), default=0.0)


def _tasks(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for task in os.scandir(f"/proc/{pid}/task"):
            yield task.path
            for child in Path(task.path, "children").read_text().split():
                yield from _tasks(int(child))


def main() -> int:
    """Run a plan."""
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
        crew.told("failed", **failed.told)
        return 1
    finally:
        crew.end()


if __name__ == "__main__":
    sys.exit(main())
