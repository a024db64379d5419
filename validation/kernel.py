"""Measures a kernel's TCP on the dumbbell of scenarios/agree.toml: its delay after acknowledgments, and its windows.

    python -m validation.kernel             # the delays, over 20 s of reno and of cubic
    python -m validation.kernel --write     # and write crates/tcp/src/sender/kernel-*.txt

The files have the acknowledgments as they reached the sender, which crates/tcp/src/sender/tests.rs feeds to the
model, and the kernel's windows. The command needs the rights that `steadycast emulate` needs, and tshark.
"""

from __future__ import annotations

import bisect
import math
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from steadycast.emulate import emulate
from steadycast.progress import Silent

from validation import page

MODEL = Path(__file__).parent.parent / "crates" / "tcp" / "src" / "sender"
SCENARIO = Path(__file__).parent / "scenarios" / "agree.toml"
SECONDS = 20
INTERVAL_S = 0.1
LINK = "tcp.src-left"
PAYLOAD = 1448
FIELDS = (
    "frame.time_epoch",
    "tcp.dstport",
    "tcp.seq",
    "tcp.ack",
    "tcp.len",
    "tcp.options.sack_le",
    "tcp.options.sack_re",
    "ip.len",
)


@dataclass(frozen=True)
class Ack:
    """An acknowledgment at its arrival at the sender, counted in segments. The SYN is the first segment."""

    at_s: float
    next: int
    blocks: tuple[tuple[int, int], ...]

    def line(self) -> str:
        """Return the line that the model's test reads."""
        return " ".join(
            ["a", str(round(self.at_s * 1e6)), str(self.next), *(f"{a}-{b}" for a, b in self.blocks)]
        )


def segment(offset: int) -> int:
    """Return the number of the segment that begins at a byte. The SYN is the first segment and has one byte."""
    # TCP's sequence numbers wrap at 2^32.
    return (offset - 1) % 2**32 // PAYLOAD + 1


def captured(file: Path) -> tuple[list[Ack], list[float]]:
    """Return the acknowledgments, and the times at which new or retransmitted data was sent."""
    asked = [word for field in FIELDS for word in ("-e", field)]
    # SACK blocks hold absolute sequence numbers, so turn off relative ones.
    raw = ["-o", "tcp.relative_sequence_numbers:FALSE"]
    told = subprocess.run(
        ["tshark", "-r", str(file), *raw, "-Y", "tcp", "-T", "fields", *asked],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in told.stdout.splitlines()]
    first, port = int(rows[0][2]), rows[0][1]
    acks, data = [], []
    for at, to, _, ack, length, starts, ends, size in rows:
        if to == port:
            if int(length) > 0:
                data.append(float(at))
            continue
        # The capture is at the router. Add the transmission at 10 Mb/s and the access link's 5 ms.
        due = float(at) + int(size) * 8 / 10e6 + 0.005
        edges = zip(starts.split(","), ends.split(","), strict=True) if starts else ()
        blocks = tuple((segment(int(a) - first), segment(int(b) - first)) for a, b in edges)
        acks.append(Ack(due, segment(int(ack) - first), blocks[:3]))
    return acks, data


def answers(acks: list[Ack], data: list[float]) -> list[float]:
    """Return the delays in microseconds from an acknowledgment's expected arrival to the next segment."""
    due = [ack.at_s for ack in acks]
    found: dict[int, float] = {}
    for at in data:
        found.setdefault(bisect.bisect_right(due, at) - 1, at)
    return [1e6 * (at - due[n]) for n, at in found.items() if n >= 0 and at - due[n] < 0.001]


def main() -> None:
    """Run reno and cubic, and print the delays."""
    parser = page.options("validation.kernel", __doc__)
    parser.add_argument("--write", action="store_true", help="the model's files anew")
    args = parser.parse_args()
    print(page.head(["kernel", "answers", "p5 µs", "p50", "p95", "trustworthy"]))
    for congestion in ("reno", "cubic"):
        sets = [f"duration={SECONDS}s", f"record.interval={INTERVAL_S}s", f"flow.tcp.congestion={congestion}"]
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "run"
            done = emulate(
                SCENARIO, seed=1, set=sets, out=out, quality=False, pcap=[LINK], progress=Silent()
            ).run
            acks, data = captured(out / "pcap" / f"{LINK}.pcapng")
        took = answers(acks, data)
        cuts = statistics.quantiles(took, n=20)
        trusted = done.summary["emulation"]["trustworthy"]
        cells = [congestion, str(len(took)), *(f"{cuts[n]:.0f}" for n in (0, 9, 18)), str(trusted)]
        print(page.row(cells), flush=True)
        if args.write:
            lines = [(ack.at_s, ack.line()) for ack in acks]
            for row in done.tcp.to_polars().iter_rows(named=True):
                # A row has the time of its interval's beginning, and the values of its end.
                at = row["t_s"] + INTERVAL_S
                ssthresh = math.inf if row["ssthresh_packets"] is None else row["ssthresh_packets"]
                lines.append((at, f"w {round(at * 1e6)} {row['cwnd_packets']:g} {ssthresh:g}"))
            text = "\n".join(line for _, line in sorted(lines, key=lambda each: each[0]))
            head = f"# Linux, {congestion}, beside a video on 4 Mb/s: python -m validation.kernel --write\n"
            (MODEL / f"kernel-{congestion}.txt").write_text(head + text + "\n")


if __name__ == "__main__":
    main()
