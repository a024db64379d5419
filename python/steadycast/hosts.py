"""A crew: programs on several hosts of an emulation, started by the one that the emulation itself runs.

Told a plan as JSON. Programs are started in the plan's order, each when the one
before is ready. The crew ends with the program that the plan waits for, whose exit code is its own, or at a time of
the emulation, or when a program fails. What is left is then asked to end, in the order of `Plan.asked`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from steadycast.rootless import bare

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

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read what `words` has written."""
        told = json.loads(text)
        return cls(**{**told, "members": [Member(**each) for each in told["members"]]})

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
        self.told("begins", monotonic_s=self.began)

    def told(self, what: str, **more: Any) -> None:
        """Write down what happens."""
        if self._report is not None:
            at = round(time.monotonic() - self.began, 4)
            self._report.write(json.dumps({"t": at, "what": what, **more}) + "\n")

    def start(self, member: Member) -> None:
        """Start a program in the namespace of its host."""
        words, env = bare(member.run), {**os.environ, **member.env}
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
            out = os.open(member.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            to = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "process_group": 0}
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
