"""A long session in which receivers come and go and the sender restarts once. Neither memory nor lag may grow.

``python -m validation.soak --minutes 20`` emulates 8 Mb/s to 32 receivers. One joins or leaves every two seconds.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import threading
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from validation import page

RECEIVERS = 32

NETWORK = """
name = "soak"
duration = "{seconds}s"
seed = 1
nodes = ["s", "hub", "r[1-{receivers}]"]
[[link]]
name = "air"
between = ["s", "hub"]
rate = "10Mbps"
delay = "10ms"
queue = {{ kind = "droptail", limit = "100p" }}
[[link]]
between = ["hub", "r[1-{receivers}]"]
delay = "10ms"
[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"
cap = "8Mbps"
packet = "1400B"
start = "0s"
from = "s"
to = ["r[1-{receivers}]"]
rtcp = {{ session_bw = "2Mbps" }}
"""

SLOPE = 0.02
"""Maximum growth of memory over the second half, as a fraction."""

LAG_MS = 5.0
"""Bound on the 99th percentile of the timers' lateness at the end, in ms."""


@dataclass(frozen=True)
class Soaked:
    """Memory over time, lag, and the session's results."""

    memory: list[tuple[float, float]]
    """Seconds from the start, and MB of resident memory."""
    lag_ms: float
    rate_bps: float
    """Mean received rate in bit/s of the receivers present both at the start and at the end."""
    trustworthy: bool
    complete: bool
    cpu_s: float

    def slope(self) -> float:
        """Growth of memory over the second half by linear regression, as a fraction of the mean in that half."""
        start, end = self.memory[0][0], self.memory[-1][0]
        half = [(t, m) for t, m in self.memory if t >= (start + end) / 2]
        mean_t = sum(t for t, _ in half) / len(half)
        mean_m = sum(m for _, m in half) / len(half)
        rise = sum((t - mean_t) * (m - mean_m) for t, m in half) / sum((t - mean_t) ** 2 for t, _ in half)
        return rise * (half[-1][0] - half[0][0]) / mean_m


def scenario(seconds: int, receivers: int) -> str:
    """Return the scenario: the network, the joins and leaves, and the restart in the middle."""
    events = []
    outside = {n: False for n in range(1, receivers + 1)}
    # The first receiver stays. The others join or leave in turn.
    for turn, at in enumerate(range(2, seconds - 1, 2)):
        who = 2 + turn * 7 % (receivers - 1)
        verb = "join" if outside[who] else "leave"
        outside[who] = not outside[who]
        events.append(f'[[event]]\nat = "{at}s"\n{verb} = "video.r{who}"\n')
    middle = seconds // 2
    events.append(
        f'[[event]]\nat = "{middle}s"\nstop = "video"\n[[event]]\nat = "{middle + 1}s"\nstart = "video"\n'
    )
    return NETWORK.format(seconds=seconds, receivers=receivers) + "".join(events)


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def soak(seconds: int, receivers: int = RECEIVERS) -> Soaked:
    """Run the session in real time."""
    from steadycast.emulate import emulate
    from steadycast.progress import Silent

    # Allocated first, so that measuring does not grow the memory.
    seen, count = array("d", bytes(16 * (seconds + 60))), 0
    over, began = threading.Event(), time.monotonic()

    def watch() -> None:
        nonlocal count
        while not over.wait(1.0) and 2 * count < len(seen):
            seen[2 * count], seen[2 * count + 1] = time.monotonic() - began, resident_mb()
            count += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "soak.toml"
            file.write_text(scenario(seconds, receivers))
            run = emulate(file, progress=Silent()).run
    finally:
        over.set()
        watcher.join()
    # Memory for converting the record at the end does not count.
    memory = [
        (t, m) for t, m in zip(seen[0 : 2 * count : 2], seen[1 : 2 * count : 2], strict=True) if t <= seconds
    ]
    told = run.summary["emulation"]
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Soaked(
        memory=memory,
        lag_ms=told["ends_lateness_last_ms"]["p99"],
        rate_bps=run.summary["flows"][0]["receivers"][0]["throughput_bps"],
        trustworthy=told["trustworthy"],
        complete=run.summary["complete"],
        cpu_s=used.ru_utime + used.ru_stime,
    )


def main() -> int:
    """Print the table; exit code 1 if memory or lag grows."""
    parser = page.options("validation.soak", __doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--receivers", type=int, default=RECEIVERS)
    options = parser.parse_args()
    began = time.monotonic()
    told = soak(round(options.minutes * 60), options.receivers)
    wall = time.monotonic() - began
    first, middle, last = (f"{told.memory[n][1]:.1f}" for n in (0, len(told.memory) // 2, -1))
    cells = {
        "minutes": f"{options.minutes:g}",
        "Mb/s": f"{told.rate_bps / 1e6:.2f}",
        "MB at first, half, end": f"{first}, {middle}, {last}",
        "growth in the last half": f"{told.slope():+.2%}",
        "lag at the end, p99": f"{told.lag_ms:.2f} ms",
        "CPU s": f"{told.cpu_s:.0f}",
        "wall s": f"{wall:.0f}",
    }
    print(page.table(list(cells), [cells.values()]))
    if not told.trustworthy:
        print("This machine was too busy: the lag is not the session's.", file=sys.stderr)
    good = told.complete and abs(told.slope()) <= SLOPE and told.lag_ms <= LAG_MS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
