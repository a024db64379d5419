"""Compares simulation and emulation on Multi-Evalvid-RA's dumbbell: reno and cubic, drop-tail and RED, one row each.

    python -m validation.agree                 # one seed: four minutes
    python -m validation.agree --seeds 3       # with the spread, as half a 95 % confidence interval

Values that miss the aims of `steadycast agree` are in brackets. Below the table of means is a table with the
distribution of the values of single seconds. It needs the rights that `steadycast emulate` needs, and an otherwise
idle machine.
"""

from __future__ import annotations

from pathlib import Path

from steadycast.folder import Json, number
from steadycast.progress import Silent
from steadycast.world_agreement import Agreement, agree

from validation import page

SCENARIO = Path(__file__).parent / "scenarios" / "agree.toml"
QUEUES = {
    "drop-tail": '{ kind = "droptail", limit = "50p" }',
    "RED": '{ kind = "red", preset = "classic" }',
}
LINK = "link bottleneck"
MEANS = (
    ("TCP Mb/s", "tcp", "throughput_bps", 1e6),
    ("video Mb/s", "video", "throughput_bps", 1e6),
    ("delay p95 ms", "video", "delay_ms.p95", 1.0),
    ("video loss %", "video", "loss_frac", 0.01),
    ("queue p50 ms", LINK, "queue_ms.p50", 1.0),
    ("p95", LINK, "queue_ms.p95", 1.0),
    ("p99", LINK, "queue_ms.p99", 1.0),
    ("drops %", LINK, "drop_frac", 0.01),
)
SECONDS = (
    ("TCP p10 Mb/s", "tcp", "second_bps.p10", 1e6),
    ("p50", "tcp", "second_bps.p50", 1e6),
    ("p90", "tcp", "second_bps.p90", 1e6),
    ("video p10 Mb/s", "video", "second_bps.p10", 1e6),
    ("p50", "video", "second_bps.p50", 1e6),
    ("p90", "video", "second_bps.p90", 1e6),
    ("delay p50 ms", "video", "second_delay_ms.p50", 1.0),
    ("p90", "video", "second_delay_ms.p90", 1.0),
    ("with video loss %", "video", "lossy_second_frac", 0.01),
    ("with drops %", LINK, "lossy_second_frac", 0.01),
)
Shown = tuple[tuple[str, str, str, float], ...]


def said(value: Json, unit: float) -> str:
    """Format a mean over seeds in this unit, with half its confidence interval if there are several seeds."""
    digits = 0 if unit == 1.0 or (unit == 0.01 and (number(value) or 0.0) > 0.1) else 2
    mean = f"{(number(value) or 0.0) / unit:.{digits}f}"
    half = value.get("ci95") if isinstance(value, dict) else None
    return mean if half is None else f"{mean} ± {half / unit:.{digits}f}"


def cells(found: Agreement, shown: Shown) -> list[str]:
    """Return the cells with the values of both worlds. They are in brackets if they miss the aim."""
    rows = {(row.of, row.path): row for row in found.rows}
    all_of_them = []
    for _, of, path, unit in shown:
        row = rows[of, path]
        both = f"{said(row.simulated, unit)} / {said(row.emulated, unit)}"
        all_of_them.append(f"[{both}]" if row.near is False else both)
    return all_of_them


def table(shown: Shown, found: dict[str, Agreement]) -> page.Table:
    """Return a table with a row for each agreement."""
    heads = ["queue, TCP", *(head for head, *_ in shown)]
    return page.table(heads, ([name, *cells(each, shown)] for name, each in found.items()))


def main() -> None:
    """Run everything, and print the tables."""
    parser = page.options("validation.agree", __doc__, "agree", "agree-seconds", seeds=1)
    parser.add_argument("--out", type=Path, help="keep all runs, tables and figures in this folder")
    parser.add_argument("--queue", choices=QUEUES, help="with this queue alone")
    parser.add_argument("--congestion", choices=("reno", "cubic"), help="with this TCP alone")
    args = parser.parse_args()
    all_of_them = {}
    for queue in [args.queue] if args.queue else QUEUES:
        spec = QUEUES[queue]
        for congestion in [args.congestion] if args.congestion else ("reno", "cubic"):
            found = agree(
                SCENARIO,
                seeds=range(1, args.seeds + 1),
                set=[f"topology.bottleneck.queue={spec}", f"flow.tcp.congestion={congestion}"],
                out=args.out / f"{queue}-{congestion}" if args.out else None,
                force=True,
                progress=Silent(),
                quality=False,
            )
            trusted = all(r.summary["emulation"]["trustworthy"] for r in found.runs["emulated"])
            all_of_them[f"{queue}, {congestion}{'' if trusted else ' (not trustworthy)'}"] = found
    args.command = f"python -m validation.agree --seeds {args.seeds} --write"
    for name, what, shown in (("agree", "means", MEANS), ("agree-seconds", "single seconds", SECONDS)):
        title = f"Both worlds beside each other: {what} (simulated / emulated)"
        page.show(args, name, title, table(shown, all_of_them), "in brackets where they are not near")


if __name__ == "__main__":
    main()
