"""`steady` by what RFC 9743 asks of a new congestion controller: docs/dossier.md.

    python -m validation.dossier            # five seeds; prints the table
    python -m validation.dossier --write    # writes it into docs/data

Each case of validation/dossier-cases.toml is the network of validation/scenarios/dossier.toml with changes
(`set`), a figure, and a bound that was written before the first run. Where a case has `over`, the figure is divided by
that of the same network with so many CUBIC in the videos' place.
"""

from __future__ import annotations

import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation import page, simulated
from validation.queues import flows, link, used

if TYPE_CHECKING:
    from steadycast.result import Run

HERE = Path(__file__).parent / "scenarios"
NAME = "dossier"
Case = Mapping[str, Any]


def cases() -> list[Case]:
    """Read the cases, in the order of the RFC's sections."""
    return list(tomllib.loads((HERE.parent / f"{NAME}-cases.toml").read_text(encoding="utf-8"))["case"])


def seconds(done: Run, case: Case, end: str) -> list[float]:
    """Return what the flows of a case have together at their sources or receivers in each of its seconds, in Mb/s."""
    rates = done.rates.to_polars()
    rates = rates.filter(
        rates["flow"].str.starts_with(case.get("flow", "video")) & rates["node"].str.contains(rf"\.{end}")
    )
    first, last = case["seconds"]
    found: Counter[float] = Counter()
    for at, bps in zip(rates["t_s"], rates["throughput_bps"].fill_null(0.0), strict=True):
        if first <= at < last:
            found[at] += bps / 1e6
    return list(found.values())


def lost(done: Run, _: Case) -> float:
    """Return what the video that loses most loses, in per cent."""
    seen = [receiver for flow in flows(done.summary, "video") for receiver in flow["receivers"]]
    return 100 * max(receiver["loss_frac"] or 0.0 for receiver in seen)


def shares(done: Run, case: Case) -> list[float]:
    """Return the shares of the fair rate that a case's flows have."""
    return [flow["share_of_fair"] for flow in flows(done.summary, case.get("flow", "video"))]


def transfer(done: Run, _: Case) -> float:
    """Return how long a short download takes, in ms."""
    return statistics.fmean(flow["transfer_mean_ms"] for flow in flows(done.summary, "short"))


def feedback(done: Run, _: Case) -> float:
    """Return the video's feedback as a share of what it sends, in per cent."""
    [flow] = flows(done.summary, "video")
    return float(100 * flow["feedback_bps"] / flow["throughput_bps"])


def trips(done: Run, _: Case) -> float:
    """Return how many decisions are a circuit breaker's."""
    return float(done.decisions.to_polars()["rule"].str.starts_with("circuit breaker").sum())


FIGURES: Mapping[str, tuple[str, Callable[[Run, Case], float]]] = {
    "use of the link": ("{:.3f}", lambda done, _: used(done.summary)),
    "loss": ("{:.2f} %", lost),
    "drops at the link": ("{:.2f} %", lambda done, _: 100 * link(done.summary)["drop_frac"]),
    "queue p95": ("{:.1f} ms", lambda done, _: link(done.summary)["queue_ms"]["p95"] or 0.0),
    "least share": ("{:.2f}", lambda done, case: min(shares(done, case))),
    "Jain's index": ("{:.3f}", lambda done, _: done.summary["fairness"]["jain"]),
    "rate": ("{:.2f} Mb/s", lambda done, case: statistics.fmean(seconds(done, case, "dst"))),
    "least second": ("{:.2f} Mb/s", lambda done, case: min(seconds(done, case, "dst"))),
    "sent": ("{:.3f} Mb/s", lambda done, case: max(seconds(done, case, "src"))),
    "transfer": ("{:.0f} ms", transfer),
    "feedback": ("{:.2f} %", feedback),
    "trips": ("{:.0f}", trips),
}
"""How each is written, and what it is of a run. `sent` is the most in a second."""


def see(case: Case, sets: Sequence[str], seed: int) -> float:
    """Run a case's network once, and return the figure."""
    events = list(case.get("events", []))
    if "turns" in case:
        every, *both = case["turns"]
        events += [(at, both[n % 2]) for n, at in enumerate(range(30, 90, every))]
    told = (f'{{ at = "{at}s", set = {{ link = "bottleneck", {change} }} }}' for at, change in events)
    changes = [*sets, f"event=[{', '.join(told)}]"]
    done = simulated.run(HERE / f"{NAME}.toml", seed, changes)
    return float(FIGURES[case["figure"]][1](done, case))


def values(case: Case, seeds: Sequence[int]) -> list[float]:
    """Return a case's figure with each seed."""
    sets = case.get("set", [])
    seen = [see(case, sets, seed) for seed in seeds]
    if "over" not in case:
        return seen
    other = {**case, "flow": case.get("over_flow", case.get("flow", "video"))}
    place = ["flow.video.count=0", f"flow.cubic.count={case['over']}"]
    return [value / see(other, [*sets, *place], seed) for value, seed in zip(seen, seeds, strict=True)]


def table(seeds: Sequence[int]) -> page.Table:
    """Run all cases, and return a row for each."""
    from steadycast.workers import cores

    listed = cases()
    with ThreadPoolExecutor(cores()) as pool:
        found = pool.map(lambda case: values(case, seeds), listed)
        return page.table(HEADS, [row(case, seen) for case, seen in zip(listed, found, strict=True)])


HEADS = ("RFC 9743", "what is asked", "set-up", "figure", "bound", "mean", "least … most", "verdict")


def row(case: Case, seen: Sequence[float]) -> list[str]:
    """Return a case's row: it holds where each seed keeps the bound."""
    how = "{:.2f}" if "over" in case else FIGURES[case["figure"]][0]
    least, most = case.get("least"), case.get("most")
    kept = sum((least is None or each >= least) and (most is None or each <= most) for each in seen)
    bound = " and ".join(
        f"{sign} {how.format(end)}" for sign, end in (("≥", least), ("≤", most)) if end is not None
    )
    figure = case["figure"] + (" over CUBIC's" if "over" in case else "")
    return [
        case["section"],
        case["asks"],
        case["setup"],
        figure,
        bound,
        how.format(statistics.fmean(seen)),
        f"{how.format(min(seen))} … {how.format(max(seen))}",
        "holds" if kept == len(seen) else f"{kept} of {len(seen)}",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    args = page.options("validation.dossier", __doc__, NAME, seeds=5).parse_args(argv)
    made = table(range(1, args.seeds + 1))
    page.show(args, NAME, "`steady` by the criteria of RFC 9743", made, f"seeds 1-{args.seeds}")
    return 0


if __name__ == "__main__":
    page.end(main)
