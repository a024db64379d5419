"""Compares our queues, TCPs and controllers with those of other programs: docs/data/peers.csv, one row each.

    python -m validation.peers                  # prints the table of all that can be run here
    python -m validation.peers ns-3 --write     # runs one program's rows, and writes them beside the others'

ns-3 is Debian's `libns3-dev`, ns-2 its `ns2`. The kernel's TCPs run in real time, which needs the rights of
`steadycast emulate` and an idle machine. If a program is missing or the machine too slow, existing rows are kept.
Programs in no registry were measured once, at the named commit. A row is near if our value is within `NEAR` of
theirs, a bound set before the first run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from steadycast.errors import MissingError, UserError
from steadycast.progress import Silent
from steadycast.run import run

from validation import ns2, page

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
BUILD = HERE.parent / "build" / "peers"
NAME = "peers"
NEAR = 0.1
Summary = Mapping[str, Any]
Figures = Mapping[str, float]


def flows(summary: Summary, name: str) -> list[Any]:
    """Return the flows whose names begin with `name`."""
    return [flow for flow in summary["flows"] if str(flow["name"]).startswith(name)]


def link(summary: Summary) -> Any:
    """Return the bottleneck's forward direction."""
    return next(
        each for each in summary["links"] if each["name"] == "bottleneck" and each["direction"] == "forward"
    )


def wait(part: str) -> Callable[[Summary], float]:
    """Return a function that reads a percentile of the bottleneck's queueing delay in milliseconds."""
    return lambda summary: float(link(summary)["queue_ms"][part])


def rate(summary: Summary, name: str) -> float:
    """Return the mean throughput of the flows whose names begin with `name`."""
    found = [flow["throughput_bps"] for flow in flows(summary, name)]
    return float(sum(found) / len(found))


def waited(flow: str, packet: int, part: str, summary: Summary) -> float:
    """Return a percentile of a flow's queueing delay in ms.

    The path's 20 ms and the transmission time at 10 Mb/s are subtracted.
    """
    [receiver] = flows(summary, flow)[0]["receivers"]
    return float(receiver["delay_ms"][part]) - 20 - packet * 8 / 10_000


FIGURES: Mapping[str, tuple[str, Callable[[Summary], float]]] = {
    "p50": ("wait, median, ms", wait("p50")),
    "p95": ("wait, 95th percentile, ms", wait("p95")),
    "cbr50": ("wait, median, ms", partial(waited, "cbr", 1000, "p50")),
    "cbr95": ("wait, 95th percentile, ms", partial(waited, "cbr", 1000, "p95")),
    "thin": ("thin flow's wait, 95th percentile, ms", partial(waited, "thin", 200, "p95")),
    "dropped": ("dropped, %", lambda summary: 100 * float(link(summary)["drop_frac"])),
    "drops": ("drops", lambda summary: float(link(summary)["dropped_packets"])),
    "tcp": ("TCP, Mb/s", lambda summary: rate(summary, "tcp") / 1e6),
    "other": ("the other TCP, Mb/s", lambda summary: rate(summary, "other") / 1e6),
    "video": ("video, Mb/s", lambda summary: rate(summary, "video") / 1e6),
    "tfrc": ("video, Mb/s", lambda summary: rate(summary, "tfrc") / 1e6),
}
"""Headings, and functions that read the figures from our summary."""


@dataclass(frozen=True)
class Row:
    """A network that both programs run."""

    program: str
    setup: str
    sets: Mapping[str, object]
    """Changes to our scenario."""
    theirs: Mapping[str, Any]
    """Parameters for the other program; its figures if it was measured once."""
    figures: Sequence[str]
    seeds: int = 1


@cache
def built() -> Path:
    """Compile our program that uses ns-3."""
    if not Path("/usr/include/ns3/core-module.h").exists() or shutil.which("g++") is None:
        raise MissingError("ns-3", "its library or a compiler is not here", "apt install libns3-dev g++")
    BUILD.mkdir(parents=True, exist_ok=True)
    libraries = ("applications", "point-to-point", "traffic-control", "internet", "network", "core")
    words = ["g++", "-std=c++17", "-O1", "-o", str(BUILD / "ns3"), str(HERE / "ns3.cc")]
    subprocess.run([*words, *(f"-lns3-{name}" for name in libraries)], check=True)
    return BUILD / "ns3"


def of_ns3(row: Row, seed: int) -> Figures:
    """Run ns-3 once with the row's parameters, and return its figures."""
    words = [f"--{name}={value}" for name, value in {**row.theirs, "seed": seed}.items()]
    told = json.loads(subprocess.run([built(), *words], capture_output=True, text=True, check=True).stdout)
    rates = dict(zip(("tcp", "other"), told.pop("mbps"), strict=False))
    alike = {"cbr50": told["p50"], "cbr95": told["p95"], "dropped": 100 * told["drops"] / told["offered"]}
    return {**told, **rates, **alike}


def of_kernel(row: Row, seed: int) -> Figures:
    """Emulate the row's scenario once with the kernel's TCPs, and return the figures."""
    from steadycast.emulate import emulate
    from steadycast.progress import Silent

    done = emulate(scenario(row), seed=seed, set=row.sets, quality=False, progress=Silent()).run
    if not done.summary["emulation"]["trustworthy"]:
        raise UserError(row.setup, "the machine was late", "run it where nothing else runs")
    return read(row, done.summary)


def of_ns2(row: Row, seed: int) -> Figures:
    """Run ns-2's TFRC once with the row's parameters, and return its figures."""
    try:
        answer = ns2.run("tfrc-lossy", {**row.theirs, "seed": seed})
    except ns2.NsMissingError as why:
        raise MissingError("ns-2", "no `ns` on the PATH", "apt install ns2") from why
    return {"tfrc": answer.number("throughput_bps") / 1e6}


def measured_once(row: Row, _seed: int) -> Figures:
    """Return the figures of a program that was measured once."""
    return row.theirs


def read(row: Row, summary: Summary) -> Figures:
    """Return the row's figures from our summary."""
    return {key: FIGURES[key][1](summary) for key in row.figures}


def ours(row: Row, seed: int) -> Figures:
    """Simulate the row's scenario once, and return the figures."""
    done = run(scenario(row), set=row.sets, seed=seed, quality=False, progress=Silent())
    return read(row, done.summary)


def scenario(row: Row) -> Path:
    """Return the file of our scenario for a row."""
    return SCENARIOS / ("tfrc-lossy.toml" if row.program == NS2 else "peers.toml")


NS3, KERNEL, NS2 = "ns-3 3.37", "Linux", "ns-2 2.35"
NADA, SCREAM = "cisco/ns3-rmcat adb3f8e", "EricssonResearch/scream c8f84c3"
PROGRAMS = {NS3: of_ns3, NS2: of_ns2, KERNEL: of_kernel}


def queue(setup: str, theirs: str, own: str, cbr: float = 0, figures: Sequence[str] = (), **more: Any) -> Row:
    """Return a row with packets of 1000 bytes over an ns-3 queue.

    In `more`, ``tcps`` lists the congestion control for each TCP of ns-3 by our names. ``thin`` adds a flow with a low,
    constant rate.
    """
    sets: dict[str, object] = {"topology.bottleneck.queue": f"{{ {own} }}"}
    told: dict[str, object] = {"queue": f"ns3::{theirs}"}
    if cbr:
        sets |= {"flow.cbr.count": 1, "flow.cbr.rate": f"{cbr}Mbps"}
        told["cbr"] = cbr * 1e6
    if "thin" in more:
        sets["flow.thin.count"] = 1
        told["thin"] = 1e6
    names = more.get("tcps", ())
    for flow in dict.fromkeys(names):
        sets |= {f"flow.{flow}.count": names.count(flow), f"flow.{flow}.packet": "1000B"}
    if names:
        told["tcps"] = ",".join(
            {"tcp": "ns3::TcpCubic", "other": "ns3::TcpLinuxReno"}[name] for name in names
        )
    if "seconds" in more:
        sets |= {"duration": f"{more['seconds']}s", "warmup": "0s", "flow.tcp.start": "0s"}
        told |= {"duration": more["seconds"], "from": 0, "spread": 0}
    return Row(NS3, setup, sets, told, figures or ("p50", "p95", "dropped"), 3 if names else 1)


PIE = 'kind = "pie", limit = "1000p"'
PLAIN = "PieQueueDisc[MaxSize=1000p]"
CODEL, CODELS = "CoDelQueueDisc[MaxSize=1000p]", 'kind = "codel", limit = "1000p"'
RED = "RedQueueDisc[MaxSize=75p|MinTh=10|MaxTh=30|QW=0.002|LInterm=10|LinkBandwidth=10Mbps|MeanPktSize=1000]"
REDS = 'kind = "red", limit = "75p", min = "10p", max = "30p", max_p = 0.1, weight = 0.002, mean_packet = "1000B"'
TAIL, TAILS = "FifoQueueDisc[MaxSize=50p]", 'kind = "droptail", limit = "50p"'
FQ, FQS = "FqCoDelQueueDisc[MaxSize=10240p]", 'kind = "fq-codel", limit = "10240p"'
ONE, FOUR = ("other",), ("other",) * 4
OF_NS3 = (
    *(
        queue(f"{name}, {cbr:g} Mb/s on 10", theirs, own, cbr)
        for name, theirs, own in (
            ("PIE", PLAIN, PIE),
            ("PIE, ns-3 with derandomization", PLAIN.replace("]", "|UseDerandomization=true]"), PIE),
            ("CoDel", CODEL, CODELS),
            ("RED", RED, REDS),
        )
        for cbr in (10.5, 12)
    ),
    queue("FQ-CoDel, 12 and 1 Mb/s on 10", FQ, FQS, 12, ("cbr50", "cbr95", "thin"), thin=True),
    queue("PIE, one Reno", PLAIN, PIE, tcps=ONE),
    queue("CoDel, one Reno", CODEL, CODELS, tcps=ONE),
    queue("CoDel, four Reno", CODEL, CODELS, tcps=FOUR),
    queue("RED, four Reno", RED, REDS, tcps=FOUR),
    queue("drop-tail of 50, one CUBIC, 2 s", TAIL, TAILS, figures=("drops",), tcps=("tcp",), seconds=2),
    queue("drop-tail of 50, CUBIC and Reno", TAIL, TAILS, figures=("tcp", "other"), tcps=("tcp", "other")),
)


def tcp(setup: str, figures: Sequence[str], **flow: object) -> Row:
    """Return a row with a kernel's TCP over a drop-tail queue of 50 packets, 10 Mb/s, 40 ms."""
    sets = {key.replace("__", "."): value for key, value in flow.items()}
    return Row(KERNEL, f"{setup}, drop-tail of 50", {"flow.tcp.count": 1, **sets}, {}, figures)


LOSS = '{ kind = "bernoulli", p = 0.01, direction = "forward" }'
OF_KERNEL = (
    tcp("BBR version 1", ("tcp", "p50", "p95", "drops"), flow__tcp__congestion="bbr1"),
    tcp(
        "BBR version 1, 1 % lost",
        ("tcp",),
        flow__tcp__congestion="bbr1",
        topology__bottleneck__loss=LOSS,
    ),
    tcp("CUBIC", ("tcp", "p50", "p95")),
    tcp("CUBIC, 1 % lost", ("tcp",), topology__bottleneck__loss=LOSS),
    tcp("CUBIC and Reno", ("tcp", "other"), flow__other__count=1),
    tcp("CUBIC, 2 s", ("drops",), duration="2s", warmup="0s", flow__tcp__start="0s"),
)


def lossy(rtt_ms: int, p: float, rate_mbps: float = 20) -> Row:
    """Return a row with ns-2's TFRC over a link with loss, outside the grid of `validation.validate`."""
    hop = rtt_ms / 2 - 1
    sets = {
        "duration": "300s",
        "link.wire.rate": "100Mbps",
        "link.wire.delay": "1ms",
        "link.air.rate": f"{rate_mbps}Mbps",
        "link.air.delay": f"{hop:g}ms",
        "link.air.loss": f'{{ kind = "bernoulli", p = {p}, direction = "forward" }}',
        "flow.tfrc.params.tfrc.profile": "ns2",
    }
    told = {
        "duration_s": 300,
        "wired_bps": 1e8,
        "wired_ms": 1,
        "rate_bps": rate_mbps * 1e6,
        "wireless_ms": hop,
        "p": p,
    }
    return Row(NS2, f"TFRC, {rate_mbps:g} Mb/s, {rtt_ms} ms, {100 * p:g} % lost", sets, told, ("tfrc",), 5)


def video(
    program: str, controller: str, told: Figures, mbps: int = 4, rtt_ms: int = 50, loss: float = 0
) -> Row:
    """Return a row with a video of equal frames, alone over a drop-tail queue of 150 packets.

    `told` has the other program's figures, measured once.
    """
    sets = {
        "duration": "80s",
        "flow.video.count": 1,
        "flow.video.controller": controller,
        "topology.bottleneck.rate": f"{mbps}Mbps",
        "topology.bottleneck.delay": f"{rtt_ms / 2:g}ms",
        "topology.bottleneck.queue.limit": "150p",
        "topology.bottleneck.loss": f'{{ kind = "bernoulli", p = {loss}, direction = "forward" }}',
    }
    lost = f", {100 * loss:g} % lost" if loss else ""
    return Row(program, f"{mbps} Mb/s, {rtt_ms} ms{lost}", sets, told, tuple(told), 4 if loss else 1)


ONCE = (
    video(SCREAM, "scream", {"video": 3.872}, rtt_ms=20),
    video(SCREAM, "scream", {"video": 3.92, "p50": 9.9, "p95": 30.9}),
    video(SCREAM, "scream", {"video": 3.974}, rtt_ms=100),
    video(SCREAM, "scream", {"video": 0.956}, mbps=1),
    video(SCREAM, "scream", {"video": 1.199}, loss=0.02),
    video(NADA, "nada", {"video": 1.0}, mbps=1),
    video(NADA, "nada", {"video": 4.0, "p50": 13.8}),
    *(
        video(NADA, "nada", {"video": mbps}, loss=loss)
        for loss, mbps in ((0.005, 3.662), (0.01, 3.57), (0.02, 2.442), (0.03, 0.949))
    ),
)
ROWS = (*OF_NS3, *(lossy(rtt, p) for rtt in (30, 250) for p in (0.005, 0.03)), *OF_KERNEL, *ONCE)


def cells(row: Row) -> list[list[str]]:
    """Run a row with its seeds, and return a line for each figure."""
    from steadycast.workers import cores

    program = PROGRAMS.get(row.program, measured_once)
    numbers = range(1, row.seeds + 1)
    with ThreadPoolExecutor(1 if row.program == KERNEL else cores()) as pool:
        found = list(pool.map(lambda seed: (program(row, seed), ours(row, seed)), numbers))
    lines = []
    for key in row.figures:
        theirs, own = (fmean(each[side][key] for each in found) for side in (0, 1))
        ratio = f"{own / theirs:.2f}" if theirs else "–"
        near = "yes" if abs(own - theirs) <= NEAR * theirs else "no"
        lines.append([row.program, row.setup, FIGURES[key][0], f"{theirs:.4g}", f"{own:.4g}", ratio, near])
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    parser = page.options("validation.peers", __doc__, NAME)
    names = {row.program.split()[0].rpartition("/")[2]: row.program for row in ROWS}
    parser.add_argument("program", nargs="*", choices=[*names, []], help="default: all")
    args = parser.parse_args(argv)
    lines: list[list[str]] = []
    missing: set[str] = set()
    for row in ROWS:
        if row.program in missing or (args.program and row.program not in map(names.get, args.program)):
            continue
        try:
            lines += cells(row)
        except UserError as why:
            print(why, file=sys.stderr)
            # Report a missing program once, and skip its other rows.
            if isinstance(why, MissingError):
                missing.add(row.program)
    made = page.table(["program", "set-up", "figure", "theirs", "ours", "ours / theirs", "near"], lines)
    note = f"means over seeds; near: within {100 * NEAR:g} % of theirs"
    page.show(
        args,
        NAME,
        "Queues, TCPs and controllers compared with other programs",
        page.merged(NAME, made, 3),
        note,
    )
    return 0


if __name__ == "__main__":
    page.end(main)
