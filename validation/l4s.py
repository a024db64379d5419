"""Two TCPs over one queue, beside what Heist and Morton measured with Linux: docs/queues.md.

    python -m validation.l4s --write    # writes docs/data/queues-l4s.csv

Their numbers stand in scenarios/l4s.csv. A row is near theirs where the first TCP's share of both rates differs from
theirs by at most `NEAR`, which was written before the first run.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from validation import page, simulated
from validation.queues import HERE, SCENARIO

NAME = "queues-l4s"
NEAR = 0.1
CODEL = 'kind = "codel", limit = "10240p", ecn = true'
RED = 'kind = "red", ecn = true, gentle = false, max_p = 0.1, mean_packet = "1000B"'
QUEUES = {
    "pfifo(200)": 'kind = "droptail", limit = "200p"',
    "pfifo(1000)": 'kind = "droptail", limit = "1000p"',
    "dualpi2": 'kind = "dualpi2", limit = "10000p", min_th = "1ms", range = "0s"',
    "fq_codel": 'kind = "fq-codel", ecn = true',
    "fq_codel(1q)": CODEL,
    "fq_codel(1q,1ms/20ms)": f'{CODEL}, target = "1ms", interval = "20ms"',
    "pie": 'kind = "pie", ecn = true',
    "pie(100p/5ms)": 'kind = "pie", ecn = true, limit = "100p", target = "5ms", t_update = "32ms"',
    "red(150000b)": f'{RED}, limit = "150000B", min = "12500B", max = "37500B", weight = 0.0625',
    "red(400000b)": f'{RED}, limit = "400000B", min = "33333B", max = "100000B", weight = 0.03125',
}
"""As `tc` has them; adaptive RED's probability stands still here."""
LONG = ("pfifo(200)", "pfifo(1000)", "dualpi2", "fq_codel")
"""Queues of the rows that took 180 s; the others took 60."""


def rows() -> list[list[str]]:
    """Return the published rows."""
    text = (HERE / "scenarios" / "l4s.csv").read_text(encoding="utf-8")
    return list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))


def one(row: Sequence[str], seed: int) -> tuple[float, ...]:
    """Run a row with the authors' times, and return both rates in Mb/s."""
    mbps, queue, *_ = row
    times = ["duration=178s", "warmup=118s"] if queue in LONG else ["duration=58s", "warmup=18s"]
    changes = [
        *times,
        f"topology.bottleneck.rate={mbps}Mbps",
        f"topology.bottleneck.queue={{ {QUEUES[queue]} }}",
        "topology.bottleneck.delay=0ms",
    ]
    for name, tcp, rtt in (("classic", *row[2:4]), ("scalable", *row[5:7])):
        kind, _, ecn = tcp.replace("reno", "newreno").partition("-")
        changes += [f"flow.{name}.count=1", f"link.{name}1.src-left.delay={int(rtt) / 2:g}ms"]
        changes += [f"flow.{name}.congestion={kind}", f"flow.{name}.ecn={str(ecn != 'noecn').lower()}"]
    done = simulated.run(SCENARIO, seed, changes)
    return tuple(flow["throughput_bps"] / 1e6 for flow in done.summary["flows"])


def table(seeds: int) -> page.Table:
    """Run all rows, and return them beside the published ones."""
    from steadycast.workers import cores

    with ThreadPoolExecutor(cores()) as pool:
        found = list(pool.map(lambda each: one(*each), product(rows(), range(1, seeds + 1))))
    made = []
    for n, (mbps, queue, first, rtt, rate, second, other_rtt, other) in enumerate(rows()):
        came = found[n * seeds : (n + 1) * seeds]
        ours = sum(a / (a + b) for a, b in came) / seeds
        theirs = float(rate) / (float(rate) + float(other))
        rates = (f"{sum(each) / seeds:.2f}" for each in zip(*came, strict=True))
        near = "yes" if abs(ours - theirs) <= NEAR else "no"
        pair = (f"{first} {rtt} ms", f"{second} {other_rtt} ms")
        made.append([mbps, queue, *pair, *rates, f"{ours:.2f}", rate, other, f"{theirs:.2f}", near])
    heads = ["Mb/s", "queue", "first", "second", "first's Mb/s", "second's Mb/s", "first's share"]
    return page.table([*heads, "theirs, first's Mb/s", "second's", "theirs, first's share", "near"], made)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    args = page.options("validation.l4s", __doc__, NAME, seeds=2).parse_args(argv)
    note = f"mean over seeds 1-{args.seeds}; near: the first's share differs by at most {NEAR}"
    page.show(args, NAME, "Two TCPs over one queue, beside Linux", table(args.seeds), note)
    return 0


if __name__ == "__main__":
    page.end(main)
