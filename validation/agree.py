"""Simulated and emulated on the dumbbell of paper 000: reno and cubic, drop-tail and RED, one line each.

    python -m validation.agree                 # one seed: four minutes
    python -m validation.agree --seeds 3

Mean throughput within 10 %, 95th percentile of delay within 15 ms: what misses stands in brackets. Needs the rights
that `steadycast emulate` needs, and a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from steadycast.agree import Agreement, agree
from steadycast.folder import number
from steadycast.progress import Silent

SCENARIO = Path(__file__).parent / "scenarios" / "agree.toml"
QUEUES = {
    "drop-tail": '{ kind = "droptail", limit = "50p" }',
    "RED": '{ kind = "red", preset = "classic" }',
}
SHOWN = (
    ("tcp", "throughput_bps", 1e6),
    ("video", "throughput_bps", 1e6),
    ("video", "delay_ms.p95", 1.0),
    ("video", "loss_frac", 0.01),
    ("link bottleneck", "queue_ms.p50", 1.0),
    ("link bottleneck", "queue_ms.p95", 1.0),
    ("link bottleneck", "drop_frac", 0.01),
)


def cells(found: Agreement) -> list[str]:
    """Both worlds' values of what is shown; in brackets where they are not near."""
    rows = {(row.of, row.path): row for row in found.rows}
    all_of_them = []
    for key in SHOWN:
        row = rows[key[0], key[1]]
        a, b = (number(v) or 0.0 for v in (row.simulated, row.emulated))
        said = f"{a / key[2]:.2f} / {b / key[2]:.2f}" if key[2] != 1.0 else f"{a:.0f} / {b:.0f}"
        all_of_them.append(f"({said})" if row.near is False else said)
    return all_of_them


def main() -> None:
    """Run all, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    seeds = range(1, parser.parse_args().seeds + 1)
    print(
        "| simulated / emulated | TCP Mb/s | video Mb/s | delay p95 ms | video loss % | queue p50 ms | p95 | drops % |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for queue, spec in QUEUES.items():
        for congestion in ("reno", "cubic"):
            sets = [f"topology.bottleneck.queue={spec}", f"flow.tcp.congestion={congestion}"]
            found = agree(SCENARIO, seeds=seeds, sets=sets, progress=Silent(), quality=False)
            trusted = all(r.summary["emulation"]["trustworthy"] for r in found.runs["emulated"])
            print(
                f"| {queue}, {congestion}{'' if trusted else ' (not trustworthy)'} | {' | '.join(cells(found))} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
