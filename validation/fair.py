"""Whether a controller that always has data shares a link with one TCP, and how fast it fills a link of its own.

    python -m validation.fair                                        # asmp, tfmcc, tfrc; five seeds
    python -m validation.fair asmp --rates 1 4 --rtts 20 40 --seeds 3

Alone on 4 Mb/s: when the first second above 3.6 Mb/s was over, and the loss up to then (bounds: 3 s, 1 %). Beside one TCP, 60 s from
the first packet: Jain's index of the two means (at least 0.95), each one's part of its fair share (at least 0.8), the
video's loss (below 1 %), when the first second above 1 Mb/s was over (5 s, where its share is more). Means over the seeds; what misses
its bound stands in brackets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCENARIO = Path(__file__).parent / "scenarios" / "fair.toml"
CONTROLLERS = ("asmp", "tfmcc", "tfrc")
ALONE_ABOVE = 3.6e6
QUEUES = {
    "droptail": '{ kind = "droptail", limit = "50p" }',
    "red": '{ kind = "red", preset = "classic" }',
}
Bound = Callable[[float], bool]


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of what is there; nothing when one is missing: it was not reached."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def cell(values: Sequence[float | None], digits: int, good: Bound) -> str:
    """Mean over the seeds, in brackets when it misses its bound."""
    found = mean(values)
    if found is None:
        return "[–]"
    text = f"{found:.{digits}f}"
    return text if good(found) else f"[{text}]"


def row(cells: Sequence[str]) -> None:
    """Print a line of the table."""
    print("| " + " | ".join(cells) + " |", flush=True)


def run(seed: int, sets: Sequence[str]) -> Any:
    """Run the scenario once."""
    import steadycast

    return steadycast.run(SCENARIO, seed=seed, sets=sets)


def alone(controller: str, seeds: range, extra: Sequence[str]) -> list[str]:
    """Fill 4 Mb/s alone."""
    import polars as pl

    seconds: list[float | None] = []
    losses: list[float | None] = []
    later: list[float | None] = []
    for seed in seeds:
        sets = [f"flow.video.controller={controller}", "duration=30s", *extra]
        rates = run(seed, [*sets, "flow.tcp.start=29.9s"]).rates.to_polars()
        rates = rates.filter(pl.col("node") == "video.dst1")
        bins = rates.get_column("throughput_bps").to_list()
        lost = rates.get_column("loss_frac").to_list()
        first = next((n for n, rate in enumerate(bins) if rate > ALONE_ABOVE), None)
        seconds.append(None if first is None else first + 1.0)
        losses.append(100 * mean([x or 0.0 for x in lost[: (first or 9) + 1]]))  # type: ignore[operator]
        later.append(mean(bins[10:29]) / 1e6)  # type: ignore[operator]
    return [
        controller,
        cell(seconds, 1, lambda s: s <= 3.0),
        cell(losses, 2, lambda p: p < 1.0),
        cell(later, 2, lambda _: True),
    ]


def beside(
    controller: str, seeds: range, rate: float, rtt: float, queue: str, tcp: str, extra: Sequence[str]
) -> list[str]:
    """Share with one TCP."""
    sets = [
        f"flow.video.controller={controller}",
        f"flow.tcp.congestion={tcp}",
        f"topology.bottleneck.rate={rate}Mbps",
        f"topology.bottleneck.delay={rtt / 2 - 2}ms",
        f"topology.bottleneck.queue={QUEUES[queue]}",
        *extra,
    ]
    found = [run(seed, sets).summary for seed in seeds]
    flows = [summary["flows"][:2] for summary in found]
    ramps = [video["ramp_s"]["1Mbps"] for video, _ in flows]
    return [
        controller,
        f"{rate:g}",
        f"{rtt:g}",
        queue,
        tcp,
        cell([s["fairness"]["jain"] for s in found], 3, lambda j: j >= 0.95),
        cell([video["share_of_fair"] for video, _ in flows], 2, lambda share: share >= 0.8),
        cell([other["share_of_fair"] for _, other in flows], 2, lambda share: share >= 0.8),
        cell([100 * video["receivers"][0]["loss_frac"] for video, _ in flows], 2, lambda p: p < 1.0),
        cell(ramps, 1, lambda s: s <= 5.0) if rate > 2.0 else "",
        cell([video["rate_cov"] for video, _ in flows], 2, lambda _: True),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print a row as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m validation.fair", description=__doc__.partition("\n")[0])
    parser.add_argument("controllers", nargs="*", default=CONTROLLERS)
    parser.add_argument("--rates", nargs="+", type=float, default=[1, 4, 20], help="Mb/s")
    parser.add_argument("--rtts", nargs="+", type=float, default=[20, 40, 120], help="ms, queues empty")
    parser.add_argument("--queues", nargs="+", choices=QUEUES, default=list(QUEUES))
    parser.add_argument("--tcps", nargs="+", default=["newreno", "cubic"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], help="as `steadycast run --set`")
    args = parser.parse_args(argv)
    from steadycast.errors import UserError

    seeds = range(1, args.seeds + 1)
    try:
        heads = ["alone on 4 Mb/s", "above 3.6 Mb/s, s", "loss by then, %", "later, Mb/s"]
        row(heads)
        print("|" + "---|" * len(heads))
        for controller in args.controllers:
            row(alone(controller, seeds, args.set))
        heads = [
            "beside one TCP",
            "Mb/s",
            "RTT, ms",
            "queue",
            "TCP",
            "Jain",
            "of its share",
            "TCP of its share",
        ]
        heads += ["loss, %", "1 Mb/s after, s", "CoV"]
        print()
        row(heads)
        print("|" + "---|" * len(heads))
        for queue in args.queues:
            for tcp in args.tcps:
                for rate in args.rates:
                    for rtt in args.rtts:
                        for controller in args.controllers:
                            row(beside(controller, seeds, rate, rtt, queue, tcp, args.set))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
