"""Measures real clips with every controller, over several seeds.

    python -m validation.clips --signs a.mkv b.mkv … --cars cars.mp4
    python -m validation.clips --cars cars.mp4 --seeds 3 -o runs/clips      # and keep the run folders

A row is a clip on a link with one controller. Its numbers are the mean over the seeds, with minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation import page

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "clips"
CONTROLLERS = ("asmp", "tfmcc", "tfrc", "fixed")


@dataclass(frozen=True)
class Case:
    """A clip on a link."""

    name: str
    scenario: str
    rate: str
    fixed: str
    clip: str


CASES = (
    Case("signs, 4 Mb/s", "signs.toml", "4Mbps", "2Mbps", "signs"),
    Case("signs, 3 Mb/s", "signs.toml", "3Mbps", "1.5Mbps", "signs"),
    Case("signs in CIF, 1.5 Mb/s", "signs-cif.toml", "1.5Mbps", "750kbps", "signs"),
    Case("cars, 0.8 Mb/s", "cars.toml", "800kbps", "400kbps", "cars"),
)
HEAD = (
    "clip and link",
    "controller",
    "rate, Mb/s",
    "of fair",
    "TCP of fair",
    "loss, %",
    "frames not seen whole, %",
    "play-out needed, s",
    "MOS",
    "network, %",
)


def settings(case: Case, controller: str, clips: Sequence[Path], congestion: str) -> list[str]:
    """Return the settings for the command line."""
    files = ", ".join(f'"{clip.resolve()}"' for clip in clips)
    return [
        f"flow.video.clip=[{files}]",
        f"flow.video.controller={controller}",
        f"flow.video.receivers={1 if controller == 'tfrc' else 45}",
        f"flow.video.params.fixed.rate={case.fixed}",
        f"topology.bottleneck.rate={case.rate}",
        f"flow.tcp.congestion={congestion}",
    ]


def numbers(summary: dict[str, Any]) -> list[float | None]:
    """Return the row of one run.

    Receivers behind one bottleneck receive the same packets, so the first one represents all.
    """
    video, tcp = summary["flows"][:2]
    viewer = video["receivers"][0]
    frames = viewer["frames"]
    return [
        video["throughput_bps"] / 1e6,
        video["share_of_fair"],
        tcp["share_of_fair"],
        viewer["loss_frac"] * 100,
        100 * (1 - frames["ok"] / frames["sent"]),
        viewer["playout_needed_ms"] / 1000,
        (viewer.get("mos") or {}).get("mean"),
        100 * video["limited_by_frac"]["network"],
    ]


def said(values: Sequence[float | None], digits: int) -> str:
    """Format the mean, with minimum and maximum."""
    there = [v for v in values if v is not None]
    return page.spread(there, digits) if there else "–"


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything, and print each row as soon as it is complete."""
    parser = page.options("validation.clips", __doc__, "clips", seeds=3)
    parser.add_argument("--signs", nargs="+", type=Path, default=[], help="clips of people signing")
    parser.add_argument("--cars", nargs="+", type=Path, default=[], help="a clip of a road")
    parser.add_argument("--controllers", nargs="+", default=CONTROLLERS)
    parser.add_argument("--congestion", default="newreno", help="the TCP's")
    parser.add_argument("-o", "--out", type=Path, help="keep the run folders, with their reports")
    args = parser.parse_args(argv)
    import steadycast
    from steadycast.report.page import write_report

    print(page.head(HEAD), flush=True)
    lines = []
    for case in CASES:
        clips = args.signs if case.clip == "signs" else args.cars
        for controller in args.controllers if clips else ():
            rows = []
            for seed in range(1, args.seeds + 1):
                place = None
                if args.out is not None:
                    word = case.name.replace(",", "").replace(" ", "-").replace("/", "")
                    place = args.out / f"{word}-{controller}-{seed}"
                run = steadycast.run(
                    SCENARIOS / case.scenario,
                    seed=seed,
                    set=settings(case, controller, clips, args.congestion),
                    out=place,
                    force=True,
                )
                if place is not None:
                    write_report(place)
                rows.append(numbers(run.summary))
            digits = (2, 2, 2, 2, 1, 2, 2, 0)
            cells = [said([row[i] for row in rows], digits[i]) for i in range(len(digits))]
            lines.append([case.name, controller, *cells])
            print(page.row(lines[-1]), flush=True)
    if args.write:
        command, note = page.command("validation.clips", argv), f"seeds 1-{args.seeds}"
        page.save(
            "clips", "Real clips, each with several controllers", page.table(HEAD, lines), command, note
        )
    return 0


if __name__ == "__main__":
    page.end(main)
