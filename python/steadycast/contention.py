"""Observes how long threads wait for a processor, and what else the machine's processors do.

Everything is read from /proc. This needs no rights, and the observed threads do not notice it. /proc/pressure/cpu is
not used, because it also counts waiting threads of low priority, which do not disturb other threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadycast.confine import children, descendants

SAMPLE_S = 0.05
"""The interval between samples of waiting times, in seconds."""
LONG_WAIT_S = 0.005
"""A sample is disturbed if the thread waited for a processor for longer than this since the sample before, in seconds.

It is the tolerance of `judge --keep` for delays: a smaller change of a delay does not count as a change.
"""
_LONG_ENOUGH_S = 3.0
"""The mean share of waiting is known only for threads that were observed for this time in seconds."""
_REALTIME = {1: "SCHED_FIFO", 2: "SCHED_RR", 6: "SCHED_DEADLINE"}
"""The policies whose threads normal threads can't preempt (sched(7))."""
_POLICY = 0xFF
"""Without the flag SCHED_RESET_ON_FORK."""
_KERNEL_THREAD = 0x0020_0000
"""The flag PF_KTHREAD in a thread's flags."""
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass
class Thread:
    """Running and waiting times of a thread (/proc/PID/task/TID/schedstat)."""

    name: str
    file: int
    """The open file; reading it again is three times faster than opening it."""
    began: float
    """The time of the first sample, in seconds."""
    first: tuple[int, int]
    """Running and waiting time at the first sample, in nanoseconds."""
    at: float
    last: tuple[int, int]
    counted_from: int | None = None
    """The running time before the first sample with ``counts`` (see `Load.sample`), in nanoseconds."""
    disturbed_s: float = 0.0
    """The duration of all disturbed samples, in seconds."""

    @property
    def ran_s(self) -> float:
        """The running time since the first sample, in seconds."""
        return (self.last[0] - self.first[0]) / 1e9

    @property
    def waited(self) -> float:
        """The share of time that the thread waited for a processor; 0 if it was observed too briefly."""
        span = self.at - self.began
        return (self.last[1] - self.first[1]) / 1e9 / span if span >= _LONG_ENOUGH_S else 0.0


class Load:
    """The threads of a program."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.ended: list[Thread] = []
        self.counted_s = 0.0
        """The duration of the samples that count, in seconds."""
        self._at: float | None = None
        self.unread: str | None = None
        """Why waiting times are unknown."""

    def find(self, pid: int, now: float, *, children: bool = True) -> None:
        """Begin to observe new threads of a process and, with ``children``, of its descendants."""
        try:
            for task in self._tasks(pid, children=children):
                if task not in self.threads:
                    with suppress(*_GONE):
                        self.threads[task] = _observed(task, now)
        except OSError as error:
            self.unread = f"{error.filename}: {error.strerror}"

    def _tasks(self, pid: int, *, children: bool) -> Iterator[str]:
        with suppress(*_GONE):
            for task in os.scandir(f"/proc/{pid}/task"):
                yield task.path
                if not children:
                    continue
                file = Path(task.path, "children")
                try:
                    started = file.read_text().split()
                except FileNotFoundError:
                    if Path(task.path).exists():
                        self.unread = f"{file} does not exist, because the kernel lacks CONFIG_PROC_CHILDREN"
                    continue
                for child in started:
                    yield from self._tasks(int(child), children=True)

    def sample(self, now: float, *, counts: bool) -> None:
        """Read all threads. With ``counts``, a long wait since the sample before is a disturbance."""
        if counts and self._at is not None:
            self.counted_s += now - self._at
        self._at = now
        for task, thread in list(self.threads.items()):
            try:
                ran, waited = _read(thread.file)
            except OSError:
                os.close(thread.file)
                self.ended.append(self.threads.pop(task))
                continue
            if counts and thread.counted_from is None:
                thread.counted_from = thread.last[0]
            if counts and waited - thread.last[1] > LONG_WAIT_S * 1e9:
                thread.disturbed_s += now - thread.at
            thread.at, thread.last = now, (ran, waited)

    @property
    def ran_s(self) -> float:
        """The running time of all threads since their first samples, in seconds."""
        return sum(thread.ran_s for thread in self._all)

    @property
    def counted_ran_s(self) -> float:
        """The running time of all threads in the samples with ``counts``, in seconds."""
        return sum(t.last[0] - t.counted_from for t in self._all if t.counted_from is not None) / 1e9

    @property
    def _all(self) -> list[Thread]:
        return [*self.threads.values(), *self.ended]

    def told(self) -> dict[str, Any]:
        """Return running times, and the largest `waited` and `disturbed` share with its thread, as JSON."""
        found: dict[str, Any] = {
            "ran_s": self.ran_s,
            "counted_ran_s": self.counted_ran_s,
            "unread": self.unread,
            "waited": 0.0,
            "disturbed": 0.0,
        }
        if not self._all:
            return found
        most = max(self._all, key=lambda thread: thread.waited)
        often = max(self._all, key=lambda thread: thread.disturbed_s)
        return found | {
            "waited": most.waited,
            "waited_thread": most.name,
            "disturbed": often.disturbed_s / self.counted_s if self.counted_s else 0.0,
            "disturbed_thread": often.name,
        }


def _observed(task: str, now: float) -> Thread:
    name = Path(task, "comm").read_text().strip()
    try:
        file = os.open(f"{task}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if not Path(task).exists():
            raise
        what = "it does not exist, because the kernel lacks CONFIG_SCHED_INFO"
        raise OSError(0, what, f"{task}/schedstat") from error
    try:
        times = _read(file)
    except OSError:
        os.close(file)
        raise
    return Thread(name, file, now, times, now, times)


def _read(file: int) -> tuple[int, int]:
    ran, waited, _ = os.pread(file, 80, 0).split()
    return int(ran), int(waited)


@dataclass
class Realtime:
    """A real-time thread outside the observed emulation."""

    process: int
    name: str
    policy: str
    priority: int
    first_ns: int
    last_ns: int


@dataclass
class Machine:
    """The use of the processors, and the real-time threads outside the observed emulation."""

    emulation: int
    """The id of the emulation's process."""
    judge: int = 0
    """The id of the process whose children run this and other emulations; 0: none.

    The real-time threads of these children are not counted.
    """
    realtime: dict[str, Realtime] = field(default_factory=dict)
    unread: str | None = None
    _began: tuple[float, int, float, float] | None = None

    def begin(self, now: float) -> None:
        """Begin to measure the use of the processors."""
        self._began = self._use(now)
        self.scan()

    def scan(self) -> None:
        """Find real-time threads outside the emulation, and read their running times."""
        own = {self.emulation, *descendants(self.emulation), self.judge, *children(self.judge)}
        try:
            processes = [int(each.name) for each in os.scandir("/proc") if each.name.isdecimal()]
        except OSError as error:
            self.unread = f"/proc: {error.strerror}"
            return
        if 1 not in processes:
            self.unread = "/proc is mounted with hidepid, which hides the processes of other users"
        for process in processes:
            if process in own:
                continue
            # A process or a thread may end at any time.
            with suppress(*_GONE):
                for thread in os.listdir(f"/proc/{process}/task"):
                    policy = os.sched_getscheduler(int(thread)) & _POLICY
                    if policy in _REALTIME:
                        self._add(process, thread, _REALTIME[policy])

    def _add(self, process: int, thread: str, policy: str) -> None:
        place = f"/proc/{process}/task/{thread}"
        ran = int(Path(place, "schedstat").read_text().split()[0])
        if place in self.realtime:
            self.realtime[place].last_ns = ran
            return
        stat = Path(place, "stat").read_text()
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat.rpartition(") ")[2].split()
        if not int(fields[6]) & _KERNEL_THREAD:
            # Field 40 of proc_pid_stat(5); the fields after the name begin with the third one.
            self.realtime[place] = Realtime(process, name, policy, int(fields[37]), ran, ran)

    def told(self, now: float) -> dict[str, Any]:
        """Return the evidence since `begin` as JSON."""
        ends = self._use(now)
        if self._began is None or ends is None:
            return {"unread": self.unread or "the measurement did not begin"}
        (began, processors, busy, stolen), (end, _, busy_end, stolen_end) = self._began, ends
        rows: dict[int, dict[str, Any]] = {}
        # The thread that ran most stands for its process.
        for each in sorted(self.realtime.values(), key=lambda thread: thread.first_ns - thread.last_ns):
            thread = {
                "process": each.process,
                "name": each.name,
                "policy": each.policy,
                "priority": each.priority,
            }
            row = rows.setdefault(each.process, {**thread, "ran_s": 0.0})
            row["ran_s"] += (each.last_ns - each.first_ns) / 1e9
        return {
            "unread": self.unread,
            "span_s": end - began,
            "processors": processors,
            "busy_s": busy_end - busy,
            "stolen_s": stolen_end - stolen,
            "realtime": sorted(rows.values(), key=lambda row: -row["ran_s"]),
        }

    def _use(self, now: float) -> tuple[float, int, float, float] | None:
        """Return the time, the number of processors, and their busy and stolen time in seconds (/proc/stat)."""
        try:
            lines = Path("/proc/stat").read_text().splitlines()
        except OSError as error:
            self.unread = f"/proc/stat: {error.strerror}"
            return None
        rows = [line.split() for line in lines if line.startswith("cpu")]
        user, nice, system, _, _, irq, softirq, steal = map(int, rows[0][1:9])
        tick = os.sysconf("SC_CLK_TCK")
        return now, len(rows) - 1, (user + nice + system + irq + softirq) / tick, steal / tick
