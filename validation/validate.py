"""``make validate``: compares ns-2 and our simulator over the same grid, and both with the equations.

    python -m validation.validate                      # everything, to the terminal
    python -m validation.validate tcp-lossy --seeds 1-2
    python -m validation.validate --write              # and into docs/data/validation*.csv

Means must agree within 8 %; ratios within the larger of 0.1 and two standard errors of the difference; waiting times
in a queue within the larger of 8 % and half of a packet's transmission time. Exit codes: 0 all within, 1 something
outside, 2 usage, 3 ns-2 is missing.
"""

from __future__ import annotations

import math
import statistics
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadycast.progress import Silent
from steadycast.run import run

from validation import ns2, page

SCENARIOS = Path(__file__).parent / "scenarios"
COMPARED, EQUATION, SIDES = "validation", "validation-equation", "validation-sides"
MEANS_WITHIN = 0.08
RATIOS_WITHIN = 0.1
WAITS_WITHIN_PACKETS = 0.5
"""Maximum difference of two mean waiting times, in transmission times of a packet.

ns-2's paced connections collide with each other; our pacer for n connections does not. To first order their mean
wait is rho (n - 1) / 2 n transmission times at utilisation rho, less than one half.
"""

Summary = Mapping[str, Any]

# Key for quantities computed from the record: the summary lacks means after the warm-up.
RECORD = "validation"


@dataclass(frozen=True)
class Quantity:
    """A quantity that both programs measure."""

    name: str
    theirs: str  # key in the result of ns-2's script
    ours: Callable[[Summary], float | None]  # out of summary.json
    kind: str  # mean | ratio | wait | shown (without a verdict)


@dataclass(frozen=True)
class Cell:
    """One point of the grid, with its settings for both programs."""

    group: str
    script: str
    params: ns2.Params
    scenario: str
    overrides: Mapping[str, object]
    quantities: tuple[Quantity, ...]
    seeds: int


def _flows(summary: Summary, kind: str) -> list[Summary]:
    return [flow for flow in summary["flows"] if flow["kind"] == kind]


def _mean_of(kind: str, key: str) -> Callable[[Summary], float | None]:
    def read(summary: Summary) -> float | None:
        values = [flow.get(key) for flow in _flows(summary, kind)]
        known = [float(v) for v in values if v is not None]
        return statistics.fmean(known) if known else None

    return read


def _recorded(key: str) -> Callable[[Summary], float | None]:
    def read(summary: Summary) -> float | None:
        value = summary[RECORD].get(key)
        return None if value is None else float(value)

    return read


def _timeouts(summary: Summary) -> float | None:
    values = [flow.get("timeouts") for flow in _flows(summary, "tcp")]
    return float(sum(v for v in values if v is not None)) if values else None


def _ratio(summary: Summary) -> float | None:
    tfrc, tcp = _mean_of("video", "throughput_bps")(summary), _mean_of("tcp", "throughput_bps")(summary)
    return tfrc / tcp if tfrc is not None and tcp else None


def _cwnd(summary: Summary) -> float | None:
    values = [flow["cwnd_packets"]["mean"] for flow in _flows(summary, "tcp") if flow.get("cwnd_packets")]
    return statistics.fmean(values) if values else None


_QUEUE = Quantity("queue_ms", "queue_mean_ms", _recorded("queue_ms"), "wait")
_TCP = (
    Quantity("throughput_bps", "throughput_bps", _mean_of("tcp", "throughput_bps"), "mean"),
    Quantity(
        "retransmitted_packets", "retransmitted_packets", _mean_of("tcp", "retransmitted_packets"), "shown"
    ),
    Quantity("timeouts", "timeouts", _mean_of("tcp", "timeouts"), "shown"),
    Quantity("cwnd_mean_packets", "cwnd_mean_packets", _cwnd, "shown"),
    Quantity("srtt_ms", "srtt_ms", _recorded("srtt_ms"), "shown"),
)
_TFRC = (
    Quantity("throughput_bps", "throughput_bps", _mean_of("video", "throughput_bps"), "mean"),
    Quantity("loss_event_rate", "wali_p", _recorded("loss_event_rate"), "mean"),
    Quantity("loss_frac", "loss_frac", _recorded("loss_frac"), "mean"),
    _QUEUE,
)
_MANY = (
    Quantity("throughput_bps", "throughput_bps", _mean_of("video", "throughput_bps"), "mean"),
    _QUEUE,
    Quantity("rtt_ms", "rtt_ms", _recorded("rtt_ms"), "shown"),
    Quantity("loss_frac", "loss_frac", _recorded("loss_frac"), "mean"),
    Quantity("utilisation_frac", "utilisation_frac", _recorded("utilisation_frac"), "shown"),
)
_MIX = (
    Quantity("tfrc_to_tcp", "tfrc_to_tcp", _ratio, "ratio"),
    Quantity("tfrc_mean_bps", "tfrc_mean_bps", _mean_of("video", "throughput_bps"), "mean"),
    Quantity("tcp_mean_bps", "tcp_mean_bps", _mean_of("tcp", "throughput_bps"), "mean"),
    Quantity("link_drop_frac", "link_drop_frac", _recorded("drop_frac"), "shown"),
    _QUEUE,
    Quantity("tcp_timeouts", "tcp_timeouts", _timeouts, "shown"),
    Quantity("utilisation_frac", "utilisation_frac", _recorded("utilisation_frac"), "mean"),
)


def cells() -> list[Cell]:
    """Return the grid.

    TFRC is compared with ns-2's defaults, with RFC 5348's constants, and with our users' defaults.
    """

    def profile(params: ns2.Params, flow: str) -> dict[str, object]:
        key = f"flow.{flow}.params.tfrc"
        if "tfrc_rto_s" not in params:
            return {f"{key}.profile": "ns2"}
        if params["discount_floor"] == ns2.NO_DISCOUNTING:
            return {}
        return {f"{key}.profile": "rfc5348", f"{key}.discount_threshold": params["discount_floor"]}

    grid: list[Cell] = []
    for params in ns2.SCENARIOS["tcp-lossy"].grid:
        overrides: dict[str, object] = {
            "flow.tcp.congestion": params["congestion"],
            "flow.tcp.delayed_ack": bool(params["delayed_ack"]),
            "link.path.loss": {"kind": "bernoulli", "p": params["p"], "direction": "forward"},
        }
        grid.append(Cell("tcp-lossy", "tcp-lossy", params, "tcp-lossy.toml", overrides, _TCP, 5))
    for params in ns2.SCENARIOS["tfrc-lossy"].grid:
        overrides = {
            "link.air.loss": {"kind": "bernoulli", "p": params["p"], "direction": "forward"},
            **profile(params, "tfrc"),
        }
        grid.append(Cell("tfrc-lossy", "tfrc-lossy", params, "tfrc-lossy.toml", overrides, _TFRC, 5))
    for params in ns2.SCENARIOS["multfrc-lossy"].grid:
        overrides = {
            "link.air.loss": {"kind": "bernoulli", "p": params["p"], "direction": "forward"},
            "flow.multfrc.params.multfrc": {"law": "fixed", "n": params["n"], "profile": "ns2"},
        }
        grid.append(Cell("multfrc-lossy", "tfrc-lossy", params, "multfrc-lossy.toml", overrides, _MANY, 5))
    mix = ns2.SCENARIOS["tfrc-tcp"]
    for params in mix.grid:
        name = f"tfrc-tcp-{params['n']}-{params['queue']}.toml"
        overrides = profile(params, f"tfrc[1-{params['n']}]")
        grid.append(Cell("tfrc-tcp", "tfrc-tcp", params, name, overrides, _MIX, mix.seeds_for(params)))
    return grid


def ours(path: Path, seed: int, overrides: Mapping[str, object]) -> Summary:
    """Run one of our scenarios."""
    done = run(path, set=overrides, seed=seed, quality=False, progress=Silent())
    warmup = tomllib.loads(path.read_text())["warmup"]
    return {**done.summary, RECORD: _from_record(done, float(warmup.removesuffix("s")))}


def _from_record(done: Any, warmup_s: float) -> dict[str, float]:
    """Return means after the warm-up that the summary does not have."""
    import polars as pl

    late = pl.col("t_s") >= warmup_s
    found: dict[str, float] = {}
    reports = done.decisions.to_polars().filter(
        late & pl.col("limit").is_null() & pl.col("loss").is_not_null()
    )
    if reports.height:
        found["loss_event_rate"] = reports["loss"].mean()
        found["rtt_ms"] = reports["rtt_ms"].mean()
    # Lost among arrived and lost packets, over the seconds in which packets arrived.
    seconds = done.rates.to_polars().filter(
        late & pl.col("loss_frac").is_not_null() & (pl.col("loss_frac") < 1)
    )
    if seconds.height:
        expected = seconds["throughput_bps"] / (1 - seconds["loss_frac"])
        found["loss_frac"] = 1 - seconds["throughput_bps"].sum() / expected.sum()
    windows = done.tcp.to_polars().filter(late)
    if windows.height:
        # ns-2 rounds its estimate down to whole ticks.
        found["srtt_ms"] = (windows["srtt_ms"] / 10).floor().mean() * 10
    # ns-2 keeps statistics of these links.
    link = done.links.to_polars().filter(
        late & pl.col("link").is_in(["path", "air", "bottleneck"]) & (pl.col("direction") == "forward")
    )
    if link.height:
        found["utilisation_frac"] = link["utilisation_frac"].mean()
        found["queue_ms"] = link["queue_ms"].mean()
        sent = link["throughput_bps"].sum() / 8 / 1000  # packets of 1000 B, summed over rows of one second
        found["drop_frac"] = link["dropped_packets"].sum() / (sent + link["dropped_packets"].sum())
    return found


def throughput_equation(packet: float, rtt_s: float, p: float, rto_s: float, b: int = 1) -> float:
    r"""Evaluate Padhye's equation in bit/s, packet in bytes (SIGCOMM 1998, eq. 30; RFC 5348 section 3.1).

                                  8 s
    X = ---------------------------------------------------------
        R sqrt(2bp/3) + t_RTO min(1, 3 sqrt(3bp/8)) p (1 + 32 p²)
    """
    slow = rto_s * min(1.0, 3 * math.sqrt(3 * b * p / 8)) * p * (1 + 32 * p * p)
    return 8 * packet / (rtt_s * math.sqrt(2 * b * p / 3) + slow)


def verdict(kind: str, theirs: ns2.Spread, ours: ns2.Spread, packet_ms: float = math.nan) -> tuple[str, bool]:
    """Return the difference in words, and whether it is within the bound.

    `packet_ms` is a packet's transmission time.
    """
    if kind == "shown":
        return "", True
    if kind == "wait":
        limit = max(WAITS_WITHIN_PACKETS * packet_ms, MEANS_WITHIN * theirs.mean)
        off = abs(ours.mean - theirs.mean)
        return f"{'within' if off <= limit else 'OUTSIDE'} ({off:.1f} of {limit:.1f} ms)", off <= limit
    if kind == "ratio":
        errors = [s.standard_error for s in (theirs, ours)]
        two = 2 * math.hypot(*errors) if not any(math.isnan(e) for e in errors) else 0.0
        limit, off = max(RATIOS_WITHIN, two), abs(ours.mean - theirs.mean)
        return f"{'within' if off <= limit else 'OUTSIDE'} ({off:.2f} of {limit:.2f})", off <= limit
    if theirs.mean == 0:
        return "within" if ours.mean == 0 else "OUTSIDE", ours.mean == 0
    off = abs(ours.mean / theirs.mean - 1)
    return f"{'within' if off <= MEANS_WITHIN else 'OUTSIDE'} ({100 * off:.1f} % of 8 %)", off <= MEANS_WITHIN


@dataclass
class Report:
    """The compared rows, and whether a value was outside its bound."""

    rows: list[list[str]] = field(default_factory=list)
    equation: list[list[str]] = field(default_factory=list)
    sides: list[list[str]] = field(default_factory=list)
    compared: int = 0
    outside: int = 0


def compare(chosen: Sequence[Cell], seeds: Sequence[int] | None, *, jobs: int, report: Report) -> None:
    """Add the rows of one group of cells."""
    group = chosen[0].group
    for cell in chosen:
        numbers = list(seeds) if seeds is not None else list(range(1, cell.seeds + 1))
        answers = ns2.run_grid(cell.script, [cell.params], numbers, jobs=jobs)[0]
        if cell is chosen[0]:
            report.sides += _sides(cell, answers[0])
        path = SCENARIOS / cell.scenario
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            summaries = list(pool.map(lambda seed: ours(path, seed, cell.overrides), numbers))  # noqa: B023
        for quantity in cell.quantities:
            values = [a.number(quantity.theirs) for a in answers if quantity.theirs in a.results]
            theirs = ns2.Spread.of(values) if values else None
            mine = [v for v in (quantity.ours(s) for s in summaries) if v is not None]
            row = [group, ns2.label(cell.params), quantity.name, str(theirs) if theirs else "–"]
            if theirs is not None and mine:
                spread = ns2.Spread.of(mine)
                words, good = verdict(quantity.kind, theirs, spread, _packet_ms(answers[0]))
                report.compared += quantity.kind != "shown"
                report.outside += not good
                ratio = f"{spread.mean / theirs.mean:.3f}" if theirs.mean else "–"
                row += [str(spread), ratio, words]
            else:
                row += ["–", "–", ""]
            report.rows.append(row)
        report.equation += ([group, *line] for line in _equation_rows(cell, answers, summaries))
        print(f"  {cell.group}: {ns2.label(cell.params)}, {len(numbers)} seeds", file=sys.stderr, flush=True)


def _packet_ms(answer: ns2.Answer) -> float:
    """Return the transmission time of a data packet on the link whose queue is measured."""
    rate = answer.results.get("bottleneck_bps", answer.params.get("rate_bps"))
    assert isinstance(rate, (int, float))
    return 8000 * answer.number("wire_bytes") / rate


def _equation_rows(
    cell: Cell, answers: Sequence[ns2.Answer], summaries: Sequence[Summary]
) -> list[list[str]]:
    """Compare the cell with the equation, at ns-2's loss event rate and at ours, if reported.

    The equation gives the sending rate, so throughputs are divided by the share of packets that arrives.
    """
    p_nominal = float(cell.params.get("p", 0))
    if cell.group not in ("tcp-lossy", "tfrc-lossy") or p_nominal == 0:
        return []

    def theirs(name: str) -> float:
        return statistics.fmean(a.number(name) for a in answers)

    rtt_s = theirs("rtt_ms") / 1000
    is_tcp = cell.group == "tcp-lossy"
    b = 2 if is_tcp and cell.params["delayed_ack"] else 1
    packet = theirs("wire_bytes")
    if is_tcp:
        rto_s, source = 0.2, "tcp"
    else:
        # ns-2's estimate settles at five ticks of 0.1 s: two smoothed, three of variance.
        rto_s, source = float(cell.params.get("tfrc_rto_s", 0.5)), "video"

    def line(what: str, p: float, ns: float | None, our: float | None) -> list[str]:
        x = throughput_equation(packet, rtt_s, p, rto_s, b)
        row = [
            f"{ns2.label(cell.params)}, {what}",
            f"{p:.4g}",
            f"{1000 * rtt_s:.1f}",
            f"{1000 * rto_s:.0f}",
            f"{x:,.0f}",
        ]
        for value in (ns, our):
            row += [f"{value:,.0f}", f"{value / x:.3f}"] if value is not None else ["–", "–"]
        return row

    sent = theirs("throughput_bps") / (1 - theirs("loss_frac"))
    mine = [v for v in (_mean_of(source, "throughput_bps")(s) for s in summaries) if v is not None]
    our_sent = statistics.fmean(mine) / (1 - p_nominal) if mine else None
    # Our TCP reports no loss event rate.
    rows = [
        line("p = loss events", theirs("loss_event_rate"), sent, None),
        line("p = loss rate", p_nominal, sent, our_sent),
    ]
    if not is_tcp:
        rows.append(line("p = receiver's mean estimate", theirs("wali_p"), sent, None))
        events = [v for v in (_recorded("loss_event_rate")(s) for s in summaries) if v is not None]
        if events:
            rows.append(line("p = our receiver's estimate", statistics.fmean(events), None, our_sent))
    return rows


def _sides(cell: Cell, answer: ns2.Answer) -> list[list[str]]:
    """List the settings of both sides: windows, delayed acknowledgments, jitter and wire sizes."""
    told = {**answer.params, "wire_bytes": answer.results["wire_bytes"]}
    skip = ("headers", "seed", *cell.params)
    about = [cell.group, ns2.SCENARIOS[cell.group].about]
    rows = [
        [*about, "ns-2, besides the cell", " ".join(f"{k}={v}" for k, v in told.items() if k not in skip)]
    ]
    for flow in tomllib.loads((SCENARIOS / cell.scenario).read_text())["flow"]:
        keys = " ".join(f"{k}={_said(v)}" for k, v in flow.items() if k not in ("name", "from", "to"))
        rows.append([*about, f"Ours, flow {flow['name']} of validation/scenarios/{cell.scenario}", keys])
    return rows


def _said(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{k}:{_said(v)}" for k, v in value.items())
    return "-".join(map(_said, value)) if isinstance(value, list) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = page.options("validation.validate", __doc__, COMPARED, EQUATION, SIDES)
    groups = list(dict.fromkeys(cell.group for cell in cells()))
    parser.add_argument("group", nargs="*", help=f"of {', '.join(groups)} (default: all)")
    parser.add_argument("--seeds", type=ns2.parse_seeds, help="N or A-B (default 1-5; 1-20 for drop-tail)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.group if name not in groups]
    if unknown:
        print(f"unknown group {unknown[0]!r}; there are: {', '.join(groups)}", file=sys.stderr)
        return 2
    if ns2.find_ns() is None:
        print(ns2.NsMissingError(), file=sys.stderr)
        return 3
    command = page.command("validation.validate", argv)
    report = Report()
    for group in args.group or groups:
        compare([c for c in cells() if c.group == group], args.seeds, jobs=args.jobs, report=report)
    within = f"{report.compared - report.outside} of {report.compared} comparisons lie within"
    heads = ["group", "cell", "quantity", "ns-2", "ours", "ours / ns-2", "verdict"]
    compared = page.table(heads, report.rows)
    heads = ["group", "cell", "p", "R ms", "t_RTO ms", "equation", "ns-2", "ns-2 / eq.", "ours", "ours / eq."]
    equation = page.table(heads, report.equation)
    sides = page.table(["group", "scenario", "side", "parameters"], report.sides)
    print(compared, equation, sides, f"{within}.", sep="\n\n")
    if args.write:
        note = f"mean ± 95 % interval over seeds; {within}"
        page.save(COMPARED, "ns-2 and ours in the same scenarios", compared, command, note)
        page.save(EQUATION, "ns-2 and ours beside the equation that they follow", equation, command, note)
        page.save(SIDES, "The set-up of both sides", sides, command)
    return 1 if report.outside else 0


if __name__ == "__main__":
    page.end(main)
