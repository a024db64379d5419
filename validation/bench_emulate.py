"""The emulated world's overhead: additional delay, and loss at high rates.

    python -m validation.bench_emulate            # 10 s each
    python -m validation.bench_emulate --seconds 30

Runs without other traffic: 4 Mb/s in packets of 1000 B for the delay, 40 000 packets/s of 1000 B for the loss, and a
star of 64 receivers at 1 Mb/s. The delay is from the sender's `send` to the receiving kernel, minus the link's. Needs
the rights that `steadycast emulate` needs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from steadycast.emulate import emulate
from steadycast.errors import MissingError
from steadycast.progress import Silent

WIRE = """
duration = "{seconds}s"
nodes = ["a", "b"]
[[link]]
name = "wire"
between = ["a", "b"]
delay = "10ms"
queue = {{ kind = "droptail", limit = "1000p" }}
[[flow]]
name = "cbr"
kind = "cbr"
rate = "{rate}"
packet = "1000B"
from = "a"
to = ["b"]
[record]
packets = {packets}
"""

STAR = """
duration = "{seconds}s"
nodes = ["s", "hub", "r[1-64]"]
[[link]]
between = ["s", "hub"]
rate = "10Mbps"
delay = "5ms"
[[link]]
between = ["hub", "r[1-64]"]
rate = "2Mbps"
delay = "10ms"
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
params.fixed = {{ rate = "1Mbps" }}
media = "greedy"
packet = "1000B"
from = "s"
to = ["r[1-64]"]
"""


def emulated(text: str) -> tuple[Any, float]:
    """Run a scenario. Returns the run and its total time in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.toml"
        file.write_text(text)
        began = time.perf_counter()
        done = emulate(file, progress=Silent())
        return done.run, time.perf_counter() - began


def say(what: str, measured: str, aim: str, near: bool) -> None:
    """Print what was measured, the value, the target, and whether it is met."""
    print(f"{what:<46} {measured:>14}   {aim:<14} {'met' if near else 'missed'}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10)
    seconds = parser.parse_args().seconds
    try:
        slow, _ = emulated(WIRE.format(seconds=seconds, rate="4Mbps", packets='["cbr"]'))
        fast, _ = emulated(WIRE.format(seconds=seconds, rate="320Mbps", packets="[]"))
        star, took = emulated(STAR.format(seconds=seconds))
    except MissingError as error:
        print(f"bench_emulate: {error}", file=sys.stderr)
        raise SystemExit(3) from None
    packets = slow.packets.to_polars()
    added = packets.filter(packets["dir"] == "r")["owd_ms"].drop_nulls() - 10.0
    for share, aim in ((0.5, 0.1), (0.99, 0.5)):
        value = float(added.quantile(share))
        say(
            f"added delay at 4 Mb/s, p{share * 100:.0f}", f"{value:.3f} ms", f"at most {aim} ms", value <= aim
        )
    flow = fast.summary["flows"][0]
    rate, lost = flow["sent_packets"] / seconds, flow["receivers"][0]["loss_frac"]
    say(
        "packets of 1000 B through one link", f"{rate:,.0f} /s".replace(",", " "), "40 000 /s", rate >= 39_000
    )
    say("lost of them", f"{100 * lost:.3f} %", "below 0.5 %", lost < 0.005)
    worst = max(r["loss_frac"] for r in star.summary["flows"][0]["receivers"])
    say("64 receivers at 1 Mb/s: most that one lost", f"{100 * worst:.3f} %", "below 0.5 %", worst < 0.005)
    say("64 receivers: set up and taken down", f"{took - seconds:.1f} s", "below 10 s", took - seconds < 10)
    for run in (slow, fast, star):
        told = run.summary["emulation"]
        late = told["lateness_ms"]
        print(
            f"  released after their time: p50 {late['p50']:.3f}, p99 {late['p99']:.3f} ms; "
            f"{100 * told['late_frac']:.2f} % by more than 1 ms"
        )


if __name__ == "__main__":
    main()
