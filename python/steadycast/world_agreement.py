"""Compares the simulation of a scenario with its emulation, in which the kernel's TCP runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import style
from steadycast.arguments import typed
from steadycast.core import core
from steadycast.emulate import emulate
from steadycast.errors import Problems, UserError
from steadycast.folder import FORMAT, Draft, Json, aggregate, find, number
from steadycast.lazy_import import pl
from steadycast.loading import Sets, changes, load, seeds_of
from steadycast.progress import Progress
from steadycast.report import say
from steadycast.result import Run, moved
from steadycast.rootless import need_rights
from steadycast.run import run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

WORLDS = ("simulated", "emulated")

_Quantity = tuple[str, str, float | None]
"""A quantity: its name, its path in the summary, and how much its means over the seeds may differ.

The bound on the difference is relative for throughputs. Otherwise it has the unit of the quantity.
"""
# Compare distributions over seconds, because chaotic systems can't agree in each single second.
_FLOW: tuple[_Quantity, ...] = (
    ("throughput", "throughput_bps", 0.10),
    ("throughput of a second, p10", "second_bps.p10", 0.10),
    ("throughput of a second, p50", "second_bps.p50", 0.10),
    ("throughput of a second, p90", "second_bps.p90", 0.10),
    ("rate's variation", "rate_cov", None),
    ("RTT p50", "srtt_ms.p50", None),
    ("RTT p95", "srtt_ms.p95", None),
    ("window, mean", "cwnd_packets.mean", None),
    ("sent again", "retransmitted_packets", None),
    ("time-outs", "timeouts", None),
)
_RECEIVER: tuple[_Quantity, ...] = (
    ("loss", "loss_frac", 0.0025),
    ("delay p50", "delay_ms.p50", None),
    ("delay p95", "delay_ms.p95", 15.0),
    ("delay p99", "delay_ms.p99", None),
    ("seconds with loss", "lossy_second_frac", 0.10),
    ("delay of a second, p50", "second_delay_ms.p50", 15.0),
    ("delay of a second, p90", "second_delay_ms.p90", 15.0),
    ("frames lost", "frames.lost", None),
    ("PSNR", "psnr_db.raw.y", None),
)
_LINK: tuple[_Quantity, ...] = (
    ("utilisation", "utilisation_frac", None),
    ("dropped", "drop_frac", 0.0025),
    ("queue p50", "queue_ms.p50", 15.0),
    ("queue p95", "queue_ms.p95", 15.0),
    ("queue p99", "queue_ms.p99", 15.0),
    ("seconds with drops", "lossy_second_frac", 0.10),
    ("queue of a second, p50", "second_queue_ms.p50", 15.0),
    ("queue of a second, p90", "second_queue_ms.p90", 15.0),
)


@dataclass(frozen=True)
class Row:
    """The mean of a quantity over the seeds, in simulation and emulation."""

    of: str
    what: str
    path: str
    simulated: Json
    emulated: Json
    aim: float | None
    """Upper bound for the absolute value of `difference`."""

    @property
    def difference(self) -> float | None:
        """The emulated value minus the simulated value.

        It is relative for rates and counts. Otherwise it has the unit of the quantity.
        """
        a, b = number(self.simulated), number(self.emulated)
        if a is None or b is None:
            return None
        if self.path.endswith(("_ms", "_frac", "_db", "_cov")) or "_ms." in self.path or "_db." in self.path:
            return b - a
        return (b - a) / a if a else None

    @property
    def near(self) -> bool | None:
        """Whether the difference is within the bound. `None` if there is no bound or no difference."""
        return None if self.aim is None or self.difference is None else abs(self.difference) <= self.aim

    def said(self) -> str:
        """Return the difference as text, with its unit."""
        x = self.difference
        if x is None or not math.isfinite(x):
            return say.NOTHING
        if "_ms" in self.path:
            return f"{x:+.1f} ms"
        if "_db" in self.path:
            return f"{x:+.2f} dB"
        if self.path.endswith("_frac"):
            return f"{100 * x:+.2f} pp"
        if self.path.endswith("_cov"):
            return f"{x:+.3f}"
        return f"{100 * x:+.1f} %"

    def verdict(self) -> str:
        """Return the bound as text, and whether it holds."""
        if self.near is None or self.aim is None:
            return ""
        scale, unit = (
            (1.0, "ms") if "_ms" in self.path else (100.0, "pp" if self.path.endswith("_frac") else "%")
        )
        return f"{'near' if self.near else 'not near'} (± {scale * self.aim:g} {unit})"


@dataclass(frozen=True, eq=False)
class Agreement:
    """The simulated and the emulated runs of a scenario, and how they compare."""

    name: str
    runs: Mapping[str, Sequence[Run]]
    rows: Sequence[Row]

    @property
    def near(self) -> bool:
        """Whether all differences are within their bounds."""
        return all(row.near is not False for row in self.rows)

    @property
    def warnings(self) -> list[str]:
        """Warnings of all runs, without duplicates."""
        said = [w for runs in self.runs.values() for each in runs for w in each.summary["warnings"]]
        return list(dict.fromkeys(said))

    def json(self) -> Json:
        """Return the comparison as JSON."""
        rows = [{**asdict(row), "difference": row.difference, "near": row.near} for row in self.rows]
        told = {"format": FORMAT, "name": self.name, "near": self.near}
        return {**told, "warnings": self.warnings, "rows": rows}

    def table(self) -> Table:
        """Return the comparison as a table for the terminal."""
        from steadycast.report import terminal

        table = terminal.plain("", "simulated", "emulated", "difference", "aim")
        last = ""
        for row in self.rows:
            if row.of != last:
                table.add_row(row.of, style="bold")
                last = row.of
            how = say.by_unit(row.path)
            table.add_row(f"  {row.what}", how(row.simulated), how(row.emulated), row.said(), row.verdict())
        return table

    def figure(self) -> Figure | None:
        """Draw throughput and delay over time, simulated and emulated, for the first seed.

        Simulation and emulation have the same scales.
        """
        rates = {world: runs[0].rates.to_polars() for world, runs in self.runs.items()}
        panels = (("throughput_bps", "Throughput"), ("delay_ms", "One-way delay, mean of each interval"))
        last = float(self.runs["simulated"][0].summary["to_s"])
        return _draw(
            self, panels, lambda flow, world, column: _mean(rates[world], flow, column), last, "time (s)"
        )

    def seconds(self) -> Figure | None:
        """Draw the distributions of throughput and delay per second, simulated and emulated.

        A distribution contains the seconds of all seeds.
        """
        panels = (
            ("throughput_bps", "Seconds by their throughput; band: within 10 %"),
            ("delay_ms", "Seconds by their mean one-way delay; band: within 15 ms"),
        )

        def points(flow: Json, world: str, column: str) -> list[tuple[float, float]]:
            ys = sorted(y for each in self.runs[world] for y in _seconds(each, flow, column))
            return [(100 * (n + 0.5) / len(ys), y) for n, y in enumerate(ys)]

        return _draw(self, panels, points, 100.0, "share of the seconds that are below (%)", banded=True)


@typed
def agree(
    scenario: str | Path,
    *,
    seeds: Sequence[int] = (1,),
    set: Sets = (),
    out: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
) -> Agreement:
    """Simulate and emulate a scenario, once per seed.

    Args:
        scenario: a file.
        seeds: the seeds of the runs.
        set: changes to the scenario, as for `run`.
        out: folder for the runs, agree.json, agree.png and agree-seconds.png. By default, nothing is written.
        force: replace an existing folder.
        progress: callback that receives the progress of each run.
        quality: decode and measure the pictures.

    Raises:
        UserError: the scenario is wrong, or it needs a feature that the simulation or the emulation does not have.
        MissingError: the system does not permit to create network namespaces.

    """
    need_rights()
    given = seeds_of(seeds)
    if refused := core.refusals(load(scenario, changes(set))):
        raise Problems(refused)
    with ExitStack() as stack:
        draft = None
        if out is not None:
            draft = stack.enter_context(Draft(out, force=force, mark="agree.json"))
            draft.begin()
        done: dict[str, list[Run]] = {world: [] for world in WORLDS}
        for seed in given:
            common: dict[str, Any] = {"seed": seed, "set": set, "quality": quality, "progress": progress}
            # Do not run anything in parallel, because an emulation needs the whole machine.
            for world in WORLDS:
                place = draft.part / f"{world}-{seed}" if draft is not None else None
                if world == "simulated":
                    each = run(scenario, out=place, **common)
                else:
                    each = emulate(scenario, out=place, **common).run
                done[world].append(each)
        found = Agreement(str(done["simulated"][0].summary["scenario"]["name"]), done, tuple(_rows(done)))
        if draft is None:
            return found
        from steadycast.report.canvas import save_drawing

        save_drawing(found.figure, draft.part / "agree.png")
        save_drawing(found.seconds, draft.part / "agree-seconds.png")
        place = draft.finish(found.json())
        stands = {
            world: [moved(each, place / f"{world}-{seed}") for seed, each in zip(given, runs, strict=True)]
            for world, runs in done.items()
        }
        return replace(found, runs=stands)


def _rows(done: Mapping[str, Sequence[Run]]) -> Iterator[Row]:
    both = {world: aggregate([_with_seconds(each) for each in runs]) for world, runs in done.items()}
    first = done["simulated"][0].summary
    for flow in first["flows"]:
        base = f"flows.{flow['name']}"
        yield from _present(both, flow["name"], base, _FLOW)
        for receiver in flow["receivers"]:
            many = len(flow["receivers"]) > 1
            of = receiver["name"] if many else flow["name"]
            yield from _present(both, of, f"{base}.receivers.{receiver['name']}", _RECEIVER)
    for link in first["links"]:
        # Compare only forward directions, and leave out queues that are nearly empty.
        if link["direction"] == "forward" and (link["queue_ms"]["p95"] or 0) > 5:
            yield from _present(both, f"link {link['name']}", f"links.{link['name']}.forward", _LINK)


def _present(both: Mapping[str, Json], of: str, base: str, what: Sequence[_Quantity]) -> Iterator[Row]:
    for name, path, aim in what:
        values = []
        for world in WORLDS:
            try:
                values.append(find(both[world], f"{base}.{path}"))
            except UserError:
                values.append(None)
        if any(number(v) is not None for v in values):
            yield Row(of, name, path, values[0], values[1], aim)


def _with_seconds(each: Run) -> Json:
    """Return the summary of a run.

    Distributions of the rates, delays and queues of single seconds are added to it.
    """
    since = each.summary["from_s"]
    links = each.links.to_polars()
    flows = []
    for flow in each.summary["flows"]:
        receivers = []
        for receiver in flow["receivers"]:
            alone = {**flow, "receivers": [receiver]}
            lost, delays = _seconds(each, alone, "loss_frac"), _seconds(each, alone, "delay_ms")
            told = {"lossy_second_frac": _share(lost), "second_delay_ms": _tenths(delays)}
            receivers.append({**receiver, **told})
        bins = _seconds(each, flow, "throughput_bps")
        flows.append({**flow, "receivers": receivers, "second_bps": _tenths(bins)})
    told_links = []
    for link in each.summary["links"]:
        here = (pl.col("link") == link["name"]) & (pl.col("direction") == link["direction"])
        mine = links.filter(here & (pl.col("t_s") >= since))
        drops, queues = mine["dropped_packets"].fill_null(0), mine["queue_ms"].drop_nulls()
        told = {"lossy_second_frac": _share(drops.to_list()), "second_queue_ms": _tenths(queues.to_list())}
        told_links.append({**link, **told})
    return {**each.summary, "flows": flows, "links": told_links}


def _seconds(each: Run, flow: Json, column: str) -> list[float]:
    """Return the values of a column, one value per second after the warm-up. Each is the mean over the receivers."""
    return [x for t, x in _mean(each.rates.to_polars(), flow, column) if t >= each.summary["from_s"]]


def _share(seconds: Sequence[float]) -> float | None:
    return sum(x > 0 for x in seconds) / len(seconds) if seconds else None


def _tenths(seconds: Sequence[float]) -> Json:
    if len(seconds) < 2:
        return {"p10": None, "p50": None, "p90": None}
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    return {"p10": cuts[0], "p50": cuts[4], "p90": cuts[8]}


def _mean(rates: Any, flow: Json, column: str) -> list[tuple[float, float]]:
    """Return a column over time, as pairs of time and value. The values are means over the flow's receivers."""
    names = [r["name"] for r in flow["receivers"]]
    rows = (
        rates.filter((pl.col("flow") == flow["name"]) & pl.col("node").is_in(names))
        .group_by("t_s")
        .agg(pl.col(column).mean())
        .drop_nulls()
        .sort("t_s")
    )
    return list(zip(rows["t_s"].to_list(), rows[column].to_list(), strict=True))


def _draw(
    found: Agreement,
    panels: Sequence[tuple[str, str]],
    points: Callable[[Json, str, str], Sequence[tuple[float, float]]],
    last: float,
    across: str,
    *,
    banded: bool = False,
) -> Figure | None:
    """Draw a line for each flow. It is thick for the simulation, and thin and dashed for the emulation.

    With ``banded``, a band around the line of the simulation shows the bound.
    """
    from steadycast.report.canvas import Label, canvas, from_zero, label_ends, scale_of
    from steadycast.report.series import flow_label

    figure, axes = canvas(2, height=5.4)
    flows = found.runs["simulated"][0].summary["flows"]
    for panel, (column, title) in zip(axes, panels, strict=True):
        lines = [
            (flow, world, each) for flow in flows for world in WORLDS if (each := points(flow, world, column))
        ]
        if not lines:
            return None
        top = max(y for _, _, each in lines for _, y in each)
        scale, unit = scale_of(top) if column == "throughput_bps" else (1.0, "ms")
        labels = []
        for flow, world, each in lines:
            xs, ys, colour = [x for x, _ in each], [y / scale for _, y in each], style.look(flow).colour
            thin: Any = {"linewidth": 0.9, "linestyle": (0, (3, 1))}
            panel.plot(
                xs, ys, color=colour, **(thin if world == "emulated" else {"linewidth": 1.6, "alpha": 0.45})
            )
            labels.append(Label(ys[-1], f"{flow_label(flow)}, {world}", colour))
            if banded and world == "simulated":
                aim = [0.10 * y if column == "throughput_bps" else 15.0 for y in ys]
                low, high = ([y + sign * a for y, a in zip(ys, aim, strict=True)] for sign in (-1, 1))
                panel.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
        from_zero(panel, top / scale * 1.08)
        panel.set_xlim(0, last)
        panel.set_title(f"{title} ({unit})")
        label_ends(panel, labels)
    axes[-1].set_xlabel(across)
    return figure
