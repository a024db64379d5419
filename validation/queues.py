"""Each queue beside what its RFC says of it, and SCReAM beside Prague at DualPI2: docs/queues.md.

    python -m validation.queues            # five seeds; prints the tables
    python -m validation.queues --write    # writes them into docs/data
    python -m validation.queues --swing    # prints the table of Prague over Reno at 80 ms

Simulated, 60 s each, of which the first 20 count for nothing. The bounds were written before the first run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation import page, simulated

HERE = Path(__file__).parent
SCENARIO = HERE / "scenarios" / "queues.toml"
CHECKED, SCREAM = "queues", "queues-scream"
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One thing that a document says of a queue, and the runs that show it."""

    queue: str
    says: str
    """What follows from the document."""
    source: str
    setup: str
    sets: Mapping[str, str]
    of: Callable[[Summary], float]
    least: float
    most: float
    how: str = "{:.2f}"

    def text(self, value: float) -> str:
        """Write a number of it."""
        return self.how.format(value)


def flows(summary: Summary, name: str) -> list[Any]:
    """Return the flows whose names begin so."""
    return [flow for flow in summary["flows"] if str(flow["name"]).startswith(name)]


def link(summary: Summary) -> Any:
    """Return the bottleneck's forward direction."""
    return next(
        each for each in summary["links"] if each["name"] == "bottleneck" and each["direction"] == "forward"
    )


def wait(part: str) -> Callable[[Summary], float]:
    """Return what reads a percentile of the bottleneck's wait, in milliseconds."""
    return lambda summary: float(link(summary)["queue_ms"][part])


def used(summary: Summary) -> float:
    """Return the bottleneck's utilisation."""
    return float(link(summary)["utilisation_frac"])


def rate(summary: Summary, name: str) -> float:
    """Return the mean throughput of the flows whose names begin so."""
    found = [flow["throughput_bps"] for flow in flows(summary, name)]
    return float(sum(found) / len(found))


def ratio(summary: Summary) -> float:
    """Return the scalable flows' rate as a share of the classic ones'."""
    return rate(summary, "scalable") / rate(summary, "classic")


def srtt(name: str, base_ms: float) -> Callable[[Summary], float]:
    """Return what reads by how much a TCP's median round trip is longer than the path's."""
    return lambda summary: float(flows(summary, name)[0]["srtt_ms"]["p50"]) - base_ms


def window_times_marks(summary: Summary) -> float:
    """Return the mean window of a scalable TCP times the share of its packets that are marked."""
    tcp = flows(summary, "scalable")[0]
    return (
        float(tcp["cwnd_packets"]["mean"])
        * float(link(summary)["marked_packets"])
        / float(link(summary)["offered_packets"])
    )


def signals(summary: Summary) -> tuple[float, float]:
    """Return the share of L4S packets that are marked, and that of Classic packets that are dropped."""
    part = rate(summary, "scalable") / (rate(summary, "classic") + rate(summary, "scalable"))
    offered = link(summary)["offered_packets"]
    marked = link(summary)["marked_packets"] / (offered * part)
    return float(marked), float(link(summary)["dropped_packets"] / (offered * (1 - part)))


def coupling(summary: Summary) -> float:
    """Return the share of L4S packets that are marked over 2·√(share of Classic packets that are dropped)."""
    marked, dropped = signals(summary)
    return float(marked / (2 * dropped**0.5))


def window_times_coupled_marks(summary: Summary) -> float:
    """Return the mean window of a scalable TCP beside a Classic one times the share of its packets that are marked."""
    return float(flows(summary, "scalable")[0]["cwnd_packets"]["mean"]) * signals(summary)[0]


def unlike(summary: Summary) -> float:
    """Return the largest throughput of a classic TCP as a share of the least."""
    found = [flow["throughput_bps"] for flow in flows(summary, "classic")]
    return float(max(found) / min(found))


def thin_wait(summary: Summary) -> float:
    """Return the 95th percentile of a thin flow's delay above the path's 20 ms."""
    [receiver] = flows(summary, "thin")[0]["receivers"]
    return float(receiver["delay_ms"]["p95"]) - 20.0


def four(queue: str, **more: str) -> dict[str, str]:
    """Return four Reno over a queue."""
    return {"topology.bottleneck.queue": queue, "flow.classic.count": "4", **more}


def beside(rtt_ms: int) -> dict[str, str]:
    """Return one Reno and one Prague at DualPI2, 40 Mb/s."""
    return {
        "topology.bottleneck.queue": '{ kind = "dualpi2", limit = "250ms" }',
        "topology.bottleneck.rate": "40Mbps",
        "topology.bottleneck.delay": f"{rtt_ms / 2:g}ms",
        "flow.classic.count": "1",
        "flow.scalable.count": "1",
    }


LONG = {"duration": "300s"}
"""Where a link's counts are looked at, which include the start."""
DUAL = '{ kind = "dualpi2", limit = "250ms" }'
CHECKS = (
    Check(
        "drop-tail",
        "a Reno halves from two BDP to one where the queue holds one BDP, so that the link never idles",
        "RFC 5681, 3.1",
        "one Reno, 10 Mb/s, 40 ms, a queue of 40 ms",
        {"flow.classic.count": "1", "topology.bottleneck.queue": '{ kind = "droptail", limit = "40ms" }'},
        used,
        0.97,
        1.0,
    ),
    Check(
        "PIE",
        "the queueing delay is held around QDELAY_REF, 15 ms",
        "RFC 8033, 4.2",
        "four Reno, 10 Mb/s, 40 ms",
        four('{ kind = "pie", limit = "250ms" }'),
        wait("p50"),
        10.0,
        20.0,
        "{:.1f} ms",
    ),
    Check(
        "PIE",
        "and that whatever the target is",
        "RFC 8033, 4.2",
        "the same with a target of 40 ms",
        four('{ kind = "pie", limit = "250ms", target = "40ms" }'),
        wait("p50"),
        30.0,
        50.0,
        "{:.1f} ms",
    ),
    Check(
        "CoDel",
        "the standing queue is near the target of 5 ms; what is above it are bursts of less than 100 ms",
        "RFC 8289, 3.2",
        "four Reno, 10 Mb/s, 40 ms",
        four('{ kind = "codel", limit = "250ms" }'),
        wait("p50"),
        2.0,
        15.0,
        "{:.1f} ms",
    ),
    Check(
        "FQ-CoDel",
        "flows get equal shares, however many packets they have under way",
        "RFC 8290, 4.2",
        "four Reno with round trips of 40, 60, 80 and 120 ms: the most over the least",
        four(
            '{ kind = "fq-codel", limit = "250ms" }',
            **{f"link.classic{n}.src-left.delay": f"{d}ms" for n, d in ((2, 10), (3, 20), (4, 40))},
        ),
        unlike,
        1.0,
        1.15,
    ),
    Check(
        "FQ-CoDel",
        "a flow of less than its share hardly waits: its packets go first",
        "RFC 8290, 4.2",
        "100 kb/s beside four Reno: p95 of its delay above 20 ms",
        four('{ kind = "fq-codel", limit = "250ms" }', **{"flow.thin.count": "1"}),
        thin_wait,
        0.0,
        5.0,
        "{:.1f} ms",
    ),
    *(
        Check(
            "DualPI2",
            "a Classic and a scalable flow of one round trip get about the same rate",
            "RFC 9332, 2.1",
            f"one Reno and one Prague, 40 Mb/s, {rtt} ms: Prague's rate over Reno's",
            beside(rtt),
            ratio,
            0.5,
            2.0,
        )
        for rtt in (20, 40, 80)
    ),
    Check(
        "DualPI2",
        "L4S packets are marked by the coupling at least: p_L = 2·√p_C",
        "RFC 9332, 2.1",
        "one Reno and one Prague, 40 Mb/s, 40 ms, 300 s: marked over 2·√dropped",
        beside(40) | LONG,
        coupling,
        0.8,
        1.5,
    ),
    Check(
        "DualPI2",
        "Classic packets wait around the target of 15 ms",
        "RFC 9332, A.1",
        "the same: the Reno's median round trip above 40 ms",
        beside(40),
        srtt("classic", 40.0),
        8.0,
        25.0,
        "{:.1f} ms",
    ),
    Check(
        "DualPI2",
        "L4S packets wait about the ramp, 0.8 to 1.2 ms",
        "RFC 9332, A.1",
        "the same: Prague's median round trip above 40 ms",
        beside(40),
        srtt("scalable", 40.0),
        0.0,
        3.0,
        "{:.1f} ms",
    ),
    Check(
        "DualPI2",
        "a scalable TCP in its steady state has a window of 2/p packets",
        "RFC 9331, 4.3 with RFC 8257, 3.3",
        "one Prague, 40 Mb/s, 40 ms, 300 s: window times share of marks",
        {
            "topology.bottleneck.queue": DUAL,
            "topology.bottleneck.rate": "40Mbps",
            "flow.scalable.count": "1",
            **LONG,
        },
        window_times_marks,
        1.5,
        2.7,
    ),
    Check(
        "DualPI2",
        "and the same where the coupling marks",
        "RFC 9331, 4.3 with RFC 8257, 3.3",
        "one Reno and one Prague, 40 Mb/s, 40 ms, 300 s: window times share of marks",
        beside(40) | LONG,
        window_times_coupled_marks,
        1.5,
        2.7,
    ),
)

RTTS_MS = (5, 10, 25, 50, 100)
PUBLISHED = (
    (79, 52, 40, 29, 20),
    (78, 58, 40, 28, 22),
    (78, 60, 48, 38, 29),
    (76, 60, 43, 35, 30),
    (71, 54, 32, 25, 18),
)
"""SCReAM's rate in Mb/s beside none to four Prague, for each round trip: the authors' record of 31 October 2024."""
PRAGUES_GAIN = {
    "flow.scream.params.scream.alpha_up": "0.0625",
    "flow.scream.params.scream.alpha_down": "0.0625",
}
"""In place of the draft's 1/8 and 1/128."""
SCREAM_SEEDS = 2
"""Each run is of 25 s at 100 Mb/s, of which the first 10 count for nothing."""
CLOSE = 0.3
"""By how much of theirs ours may differ to be called the same: ours, since theirs is one run on two laptops."""


def scream(rtt_ms: int, others: int) -> dict[str, str]:
    """Return SCReAM beside Prague over DualPI2 at 100 Mb/s."""
    return {
        "topology.bottleneck.queue": DUAL,
        "topology.bottleneck.rate": "100Mbps",
        "topology.bottleneck.delay": f"{rtt_ms / 2:g}ms",
        "flow.scream.count": "1",
        "flow.scalable.count": str(others),
        "duration": "25s",
        "warmup": "10s",
    }


def one(sets: Mapping[str, str], seed: int) -> Summary:
    """Run the scenario with changes, and return its summary."""
    return simulated.run(SCENARIO, seed, sets).summary


def run(work: Sequence[Mapping[str, str]], seeds: int) -> list[list[Summary]]:
    """Run each of these changes with each seed, on all processors: the simulation does not hold Python's lock."""
    from steadycast.workers import cores

    with ThreadPoolExecutor(cores()) as pool:
        found = [[pool.submit(one, sets, seed) for seed in range(1, seeds + 1)] for sets in work]
        return [[each.result() for each in runs] for runs in found]


def checks_table(checks: Sequence[Check], found: Sequence[Sequence[Summary]]) -> page.Table:
    """Return a row per check: what is said, what comes out, and whether every seed keeps the bound."""
    heads = ["queue", "what follows from the document", "set-up", "bound", "mean", "least … most", ""]
    rows = []
    for check, runs in zip(checks, found, strict=True):
        values = [check.of(summary) for summary in runs]
        kept = sum(check.least <= value <= check.most for value in values)
        rows.append(
            [
                check.queue,
                f"{check.says} ({check.source})",
                check.setup,
                f"{check.text(check.least)} … {check.text(check.most)}",
                check.text(sum(values) / len(values)),
                f"{check.text(min(values))} … {check.text(max(values))}",
                "holds" if kept == len(values) else f"[{kept} of {len(values)}]",
            ]
        )
    return page.table(heads, rows)


def scream_table(gain: str, found: Mapping[tuple[int, int], Sequence[Summary]]) -> list[list[str]]:
    """Return SCReAM's rate beside Prague, ours and theirs, a line for each place; `gain` is Prague's of alpha."""
    rows = []
    for rtt, theirs in zip(RTTS_MS, PUBLISHED, strict=True):
        for others, published in enumerate(theirs):
            rates = [rate(summary, "scream") / 1e6 for summary in found[rtt, others]]
            ours = sum(rates) / len(rates)
            near = "yes" if abs(ours / published - 1) <= CLOSE else "no"
            rows.append([gain, f"{rtt}", f"{others}", page.spread(rates), f"{published}", near])
    return rows


PAIRS = ((1, 40), (1, 10), (4, 40), (8, 40))
"""Reno and Prague of each, and the rate of their link in Mb/s."""


def swing(seeds: int) -> str:
    """Return what becomes of Prague's rate over Reno's at 80 ms as their signal swings less: a table."""
    found = run(
        [
            beside(80)
            | LONG
            | {
                "flow.classic.count": str(count),
                "flow.scalable.count": str(count),
                "topology.bottleneck.rate": f"{mbps}Mbps",
            }
            for count, mbps in PAIRS
        ],
        seeds,
    )
    heads = [
        "flows of each",
        "link",
        "marked over 2·√dropped",
        "Prague's window times its marks",
        "Prague over Reno",
    ]
    rows = []
    for (count, mbps), summaries in zip(PAIRS, found, strict=True):
        means = [statistics.fmean(map(of, summaries)) for of in (coupling, window_times_coupled_marks, ratio)]
        rows.append([str(count), f"{mbps} Mb/s", *(f"{mean:.2f}" for mean in means)])
    return str(page.table(heads, rows))


def tables(seeds: int) -> tuple[page.Table, page.Table]:
    """Run everything, and return what was checked, and SCReAM beside Prague."""
    places = [(rtt, others) for rtt in RTTS_MS for others in range(5)]
    checked = checks_table(CHECKS, run([check.sets for check in CHECKS], seeds))
    rows = []
    for gain, sets in (("as published", {}), ("1/16 up and down", PRAGUES_GAIN)):
        came = run([scream(*place) | sets for place in places], min(seeds, SCREAM_SEEDS))
        rows += scream_table(gain, dict(zip(places, came, strict=True)))
    heads = ["Prague's gain of α", "RTT, ms", "Pragues", "ours, Mb/s", "published, Mb/s", "near"]
    return checked, page.table(heads, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the tables."""
    parser = page.options("validation.queues", __doc__, CHECKED, SCREAM, seeds=5)
    parser.add_argument("--swing", action="store_true", help="Prague over Reno at 80 ms alone, printed")
    args = parser.parse_args(argv)
    if args.swing:
        print(swing(args.seeds))
        return 0
    checked, beside = tables(args.seeds)
    note = f"seeds 1-{args.seeds}"
    page.show(args, CHECKED, "What the documents of the queues derive, and what comes out", checked, note)
    page.show(args, SCREAM, "SCReAM beside Prague at DualPI2", beside, note)
    return 0


if __name__ == "__main__":
    page.end(main)
