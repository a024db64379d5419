"""Measures the cost of pacing for our sender, for a plain loop of a timer and `send`, and for FFmpeg.

make bench-live

All three send at the same rate, in one run.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 10
RATES = (4, 20)
ROUNDS = 3


def main() -> int:
    """Measure, and print a table."""
    subprocess.run(
        ["cargo", "build", "-q", "--release", "-p", "steadycast-live", "--example", "pace"],
        cwd=ROOT,
        check=True,
    )
    print(
        f"CPU seconds, user and system, per million packets of 1000 B, {date.today()}, "
        f"{SECONDS} s each, median of {ROUNDS}"
    )
    print(
        f"{'Mb/s':>5} {'bare loop':>10} {'ours':>8} {'ratio':>6} {'ffmpeg':>8}   gap error p50/p99 (us): bare, ours"
    )
    good = True
    for mbps in RATES:
        # The programs alternate, so that other work of the machine affects both equally.
        rounds = [(pace("bare", mbps), pace("ours", mbps)) for _ in range(ROUNDS)]
        bare, ours = (median([r[n] for r in rounds]) for n in (0, 1))
        ratio = ours["cpu_s_per_million"] / bare["cpu_s_per_million"]
        good &= ratio <= 1.3
        other = ffmpeg(mbps)
        gaps = ", ".join(
            f"{r['gap_error_us']['p50']:.0f}/{r['gap_error_us']['p99']:.0f}" for r in (bare, ours)
        )
        print(
            f"{mbps:>5} {bare['cpu_s_per_million']:>10.1f} {ours['cpu_s_per_million']:>8.1f} {ratio:>6.2f} "
            f"{'-' if other is None else format(other, '.1f'):>8}   {gaps}"
        )
    flat = median([pace("ours", 100_000, 2) for _ in range(ROUNDS)])["cpu_s_per_million"]
    good &= flat <= 4
    print(f"flat out: {flat:.2f}")
    print(f"aim: at most 1.3 times the bare loop, and at most 4 flat out: {'reached' if good else 'missed'}")
    return 0 if good else 1


def pace(who: str, mbps: int, seconds: int = SECONDS) -> dict[str, Any]:
    """Run the example program once, with the pacer ``who``, and return its measurements."""
    words = [str(ROOT / "target/release/examples/pace"), who, str(mbps), str(seconds)]
    found: dict[str, Any] = json.loads(
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
    )
    return found


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the median cost."""
    return sorted(runs, key=lambda r: r["cpu_s_per_million"])[len(runs) // 2]


def ffmpeg(mbps: int) -> float | None:
    """Return FFmpeg's cost of sending a copied stream's packets, including reading it; `None` without FFmpeg."""
    if shutil.which("ffmpeg") is None:
        return None
    film = ROOT / f"target/bench-live-{mbps}.ts"
    source = ["-f", "lavfi", "-i", f"testsrc2=size=640x480:rate=25:duration={SECONDS}"]
    rate = f"-c:v mpeg2video -b:v {mbps}M -minrate {mbps}M -maxrate {mbps}M -bufsize 1M".split()
    subprocess.run(["ffmpeg", "-v", "error", "-y", *source, *rate, str(film)], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["ffmpeg", "-v", "error", "-re", "-i", str(film), "-c", "copy", "-f", "rtp"]
    subprocess.run([*words, "rtp://127.0.0.1:5990?pkt_size=1000"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    packets = film.stat().st_size / 960
    film.unlink()
    return used / packets * 1e6


if __name__ == "__main__":
    sys.exit(main())
