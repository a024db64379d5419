"""What `steadycast call` finds of paths that are known: networks drawn by a seed, docs/data/call.csv.

    python -m validation.call                # prints them
    python -m validation.call --write        # and writes them into docs/data
    python -m validation.call --seeds 5      # fewer networks

Each network has a capacity of 0.4 to 4 Mb/s in one to four steps over 60 s, 5 to 80 ms of delay, a queue of 20 to
300 ms, chance losses of up to 2 % in half of them, and nobody beside, or, in every fourth one, a CUBIC, where only a
refusal is right. The call is one of `gcc` over TWCC; its capture at the bottleneck is what is read.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from steadycast import call
from steadycast.record import middle
from steadycast.run import run
from steadycast.toml import document

from validation import page

SECONDS = 60
HEADS = (
    "network",
    "beside",
    "steps (Mb/s)",
    "path",
    "known (%)",
    "error, median (%)",
    "error, 90 % (%)",
    "in band (%)",
)


def network(seed: int) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Return a scenario, and its capacity's steps: (s, bit/s)."""
    draw = random.Random(seed)
    count = draw.randint(1, 4)
    steps = [(SECONDS * i / count, 1e6 * 0.4 * 10 ** draw.random()) for i in range(count)]
    queue = steps[0][1] / 8 * draw.uniform(0.02, 0.3)
    bottleneck: dict[str, Any] = {
        "rate": f"{steps[0][1]:.0f}bps",
        "delay": f"{draw.uniform(5, 80):.1f}ms",
        "queue": {"kind": "droptail", "limit": f"{max(queue, 6000):.0f}B"},
    }
    if draw.random() < 0.5:
        bottleneck["loss"] = draw.uniform(0.001, 0.02)
    flows = [
        {"name": "video", "kind": "video", "controller": "gcc", "feedback": "twcc", "media": "synthetic"}
    ]
    if seed % 4 == 0:
        flows.append({"name": "tcp", "kind": "tcp", "congestion": "cubic", "preset": "linux", "start": "1s"})
    made: dict[str, Any] = {
        "format": 1,
        "name": f"call-{seed}",
        "duration": f"{SECONDS}s",
        "seed": seed,
        "record": {"pcap": ["bottleneck"]},
        "topology": {
            "shape": "dumbbell",
            "bottleneck": bottleneck,
            "access": {"rate": "100Mbps", "delay": "1ms"},
        },
        "flow": flows,
    }
    events = [
        {"at": f"{at:g}s", "set": {"link": "bottleneck", "rate": f"{rate:.0f}bps"}} for at, rate in steps[1:]
    ]
    return made | ({"event": events} if events else {}), steps


def measured(seed: int) -> list[str]:
    """Run one network's call, read its capture, and return its row."""
    made, steps = network(seed)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "network.toml"
        file.write_text(document(made), encoding="utf-8")
        run(file, out=Path(place) / "run", quality=False)
        read = call.read(Path(place) / "run" / "pcap" / "bottleneck.pcapng")
    errors, held = [], 0
    for i, each in enumerate(read["bins"]):
        truth = [rate for at, rate in steps if at <= i * call.BIN_S][-1]
        if (band := each["capacity_bps"]) is not None:
            errors.append(100 * abs(band["rate"] / truth - 1))
            held += band["low"] <= truth <= band["high"]
    errors.sort()
    path = read["path"]
    return [
        str(seed),
        "CUBIC" if len(made["flow"]) > 1 else "nobody",
        ", ".join(f"{rate / 1e6:.2f}" for _, rate in steps),
        "refused" if path["refusals"] else str(path["verdict"]),
        f"{100 * path['known_frac']:.0f}",
        f"{middle(errors):.2f}" if errors else "",
        f"{errors[len(errors) * 9 // 10]:.2f}" if errors else "",
        f"{100 * held / len(errors):.0f}" if errors else "",
    ]


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = page.options("validation.call", __doc__, "call", seeds=20)
    options = parser.parse_args()
    rows = []
    print(page.head(HEADS))
    for seed in range(1, options.seeds + 1):
        rows.append(measured(seed))
        print(page.row(rows[-1]), flush=True)
    if options.write:
        title = "Paths that calls showed, against the networks that they went over"
        page.save("call", title, page.table(HEADS, rows), "python -m validation.call --write")
    return 0


if __name__ == "__main__":
    page.end(main)
