"""Observes how long threads wait for a processor, and what else keeps the machine's processors busy.

All values are read from /proc. This needs no permissions and does not disturb the observed threads. /proc/pressure/cpu
is not used, because it also counts waiting threads of low priority. Such threads do not disturb other threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from steadycast.confine import children, descendants

SAMPLE_S = 0.05
"""How often waiting times are sampled: the interval in seconds."""
LONG_WAIT_S = 0.005
"""A sample counts as disturbed if the thread waited longer than usual for a processor, by more than this.

The value is in seconds. It equals the tolerance of `judge --keep` for delays, which ignores smaller changes of a delay.
"""
_USUAL_WAIT_MAX_S = 0.00025
"""The longest usual wait of a thread before it runs, in seconds.

A thread that wakes up a hundred times per sample waits a few hundredths of a millisecond each time. Together these
waits may exceed `LONG_WAIT_S`, but they delay nothing by more than one of them.
"""
_LONG_ENOUGH_S = 3.0
"""The mean fraction of waiting is computed only for threads that were observed for at least this time, in seconds."""
_REALTIME = {1: "SCHED_FIFO", 2: "SCHED_RR", 6: "SCHED_DEADLINE"}
"""Scheduling policies that take precedence: normal threads can't preempt such threads (sched(7))."""
_POLICY = 0xFF
"""Mask that removes the flag SCHED_RESET_ON_FORK."""
_KERNEL_THREAD = 0x0020_0000
"""The flag PF_KTHREAD, which the kernel sets for its own threads."""
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass
class Thread:
    """How long a thread ran and waited, according to /proc/PID/task/TID/schedstat."""

    name: str
    file: int
    """Descriptor of the open file. It is kept, because reading it again is three times faster than opening it."""
    began: float
    """The time of the first sample, in seconds."""
    first: tuple[int, int, int]
    """Running time and waiting time at the first sample, in nanoseconds, and how many times the thread has run."""
    at: float
    last: tuple[int, int, int]
    counted_from: int | None = None
    """The thread's running time before the first sample that counts (see `Load.sample`), in nanoseconds."""
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """The samples that count: duration in seconds, waiting time in nanoseconds, and how many times the thread ran."""

    @property
    def ran_s(self) -> float:
        """The running time since the first sample, in seconds."""
        return (self.last[0] - self.first[0]) / 1e9

    @property
    def waited(self) -> float:
        """The fraction of the time for which the thread waited for a processor. It is 0 after a short observation."""
        span = self.at - self.began
        return (self.last[1] - self.first[1]) / 1e9 / span if span >= _LONG_ENOUGH_S else 0.0

    @property
    def disturbed_s(self) -> float:
        """The total duration of the disturbed samples, in seconds."""
        waits = [waited / times for _, waited, times in self.samples if times]
        usual = min(median(waits), 1e9 * _USUAL_WAIT_MAX_S) if waits else 0.0
        return sum(
            duration for duration, waited, times in self.samples if waited - times * usual > 1e9 * LONG_WAIT_S
        )


class Load:
    """The threads of a program."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.ended: list[Thread] = []
        self.counted_s = 0.0
        """The total duration of the samples that count, in seconds."""
        self._at: float | None = None
        self.unread: str | None = None
        """The reason why waiting times are unknown."""

    def find(self, pid: int, now: float, *, children: bool = True) -> None:
        """Begin to observe the new threads of a process. With ``children``, include the threads of its descendants."""
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
        """Read the times of all threads.

        With ``counts``, the time since the last sample counts as disturbed if the thread waited long for a processor.
        """
        if counts and self._at is not None:
            self.counted_s += now - self._at
        self._at = now
        for task, thread in list(self.threads.items()):
            try:
                values = _read(thread.file)
            except OSError:
                os.close(thread.file)
                self.ended.append(self.threads.pop(task))
                continue
            if counts and thread.counted_from is None:
                thread.counted_from = thread.last[0]
            if counts:
                _, waited, times = (value - last for value, last in zip(values, thread.last, strict=True))
                thread.samples.append((now - thread.at, waited, times))
            thread.at, thread.last = now, values

    @property
    def ran_s(self) -> float:
        """The running time of all threads since their first samples, in seconds."""
        return sum(thread.ran_s for thread in self._all)

    @property
    def counted_ran_s(self) -> float:
        """The running time of all threads during the samples that count, in seconds."""
        return sum(t.last[0] - t.counted_from for t in self._all if t.counted_from is not None) / 1e9

    @property
    def _all(self) -> list[Thread]:
        return [*self.threads.values(), *self.ended]

    def told(self) -> dict[str, Any]:
        """Return the results as JSON.

        They are the running times of all threads together, and results of two threads. One thread waited for the
        largest fraction of the time, and one was disturbed for the largest fraction. These two fractions and the names
        of the two threads are included.
        """
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


def _read(file: int) -> tuple[int, int, int]:
    ran, waited, times = os.pread(file, 80, 0).split()
    return int(ran), int(waited), int(times)


@dataclass
class Realtime:
    """A real-time thread that does not belong to the observed emulation."""

    process: int
    name: str
    policy: str
    priority: int
    first_ns: int
    last_ns: int


@dataclass
class Machine:
    """How busy the processors are, and which real-time threads run outside of the observed emulation."""

    emulation: int
    """The id of the emulation's process."""
    judge: int = 0
    """The id of the process whose children run this emulation and others. It is 0 if there is no such process.

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
            # Ignore errors, because a process or a thread may end at any time.
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
            # The priority is field 40 of proc_pid_stat(5). `fields` begins with field 3.
            self.realtime[place] = Realtime(process, name, policy, int(fields[37]), ran, ran)

    def told(self, now: float) -> dict[str, Any]:
        """Return as JSON what was measured since `begin`."""
        ends = self._use(now)
        if self._began is None or ends is None:
            return {"unread": self.unread or "the measurement did not begin"}
        (began, processors, busy, stolen), (end, _, busy_end, stolen_end) = self._began, ends
        rows: dict[int, dict[str, Any]] = {}
        # Sort by running time, so that the thread that ran longest represents its process.
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
