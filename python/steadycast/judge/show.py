"""The page of a judgement: the table of figures, the bounds, and diagrams over time for each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from steadycast import style
from steadycast.folder import Json
from steadycast.judge.cell import Outcome
from steadycast.judge.figures import COLUMNS
from steadycast.judge.text import Judgement, bound, cells
from steadycast.report import canvas
from steadycast.report import page as pages
from steadycast.report.canvas import Label
from steadycast.report.cells import verdict
from steadycast.report.markup import Html, element, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABOUT = (
    "in-time%: the share of the clip's pictures that were shown at most the deadline later than the fastest one, "
    "damaged or not. damaged%: the share of shown pictures that are worse than the clip scaled down to a quarter of "
    "its width and height. delay95: the 95th percentile of the latency of pictures; if it is unknown, of frames or of "
    "datagrams. rate: the rate that arrived, in bits of IP packets per second. tcp%: the throughput of the TCP in the "
    "same network, as a share of its fair share. quiet: the longest gap between two arrivals. recover: the longest "
    "time from a change of the network until rate and delay were good again. by: the source of frames and freezes: p "
    "pictures, b the browser, r RTP, w datagrams only. trust: the number of runs that are trustworthy. ?: the machine "
    "was too busy, or it is unknown whether it was, so that the figure may not be the programs' own. "
    "The mark in the clip costs its encoder 12 to 117 kb/s."
)


def page(judged: Judgement, changes: Sequence[Json], expected: Sequence[Json]) -> str:
    """Return the page as HTML. It loads nothing from other places."""
    pair = judged.pair
    rows = []
    for network in judged.networks:
        told = cells(judged, network)
        failed = judged.failed(network)
        said = None if failed is None else element("span", f"failed: {failed['reason']}", class_="bad")
        rows.append(told if said is None else [network, said])
    heads = ["network", *(column.head for column in COLUMNS.values()), "by", "trust"]
    good = [network for network in judged.networks if judged.failed(network) is None]
    summed = f"{len(good)} of {len(judged.networks)} networks have figures"
    doubted = [network for network in good if not judged.trusted(network)]
    if doubted:
        summed += f"; not trustworthy: {', '.join(doubted)}"
    command = f"steadycast judge {pair.name}.toml --networks {pair.networks} --seconds {pair.seconds:g}s"
    content = joined(
        (
            element("h1", f"{pair.name} on {pair.networks}"),
            element("p", f"{summed}.", class_="answer"),
            pages.table(heads, rows),
            element("p", _ABOUT, class_="small"),
            pages.section("Bounds", _bounds(changes, expected)),
            *(_network(judged, network, command) for network in judged.networks),
            pages.section("The programs", _programs(judged)),
        ),
        "\n",
    )
    return pages.wrap(f"{pair.name} · Steadycast judge", content)


def _bounds(changes: Sequence[Json], expected: Sequence[Json]) -> Html:
    told = [(each, each["fail_if"], _said(each["was"]), each["now"]) for each in changes]
    told += [(each, f"{each['that']}: {bound(each)}", "", each["value"]) for each in expected]
    rows = [
        [each["network"], element("code", what), was, _said(now), verdict(holds=each["ok"])]
        for each, what, was, now in told
    ]
    return pages.table(["network", "bound", "baseline", "now", ""], rows) if rows else Html()


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "–"


def _programs(judged: Judgement) -> Html:
    return pages.table(
        ["program", "host", "command"],
        [[p.name, p.on, element("code", p.run)] for p in judged.pair.programs],
        prose=[2],
    )


def _network(judged: Judgement, network: str, command: str) -> Html:
    parts: list[Html] = []
    for outcome in judged.of(network):
        name = f"{network}, run {outcome.run}"
        if outcome.failed is not None:
            lines = "\n".join(outcome.failed["log"])
            parts.append(element("p", f"Run {outcome.run}: {outcome.failed['detail']}"))
            parts.append(element("pre", lines) if lines else Html())
            continue
        reasons = (*outcome.doubts, *outcome.unknown)
        parts += [element("p", f"Run {outcome.run}: {reason}.", class_="nothing") for reason in reasons]
        drawing = canvas.in_style(partial(_draw, outcome), f"{judged.pair.name}-{network}-{outcome.run}")
        if drawing is not None:
            parts.append(pages.figure(drawing, name, command, f"{judged.pair.name}-{network}-{outcome.run}"))
    return pages.section(network, joined(parts, "\n"))


def _draw(outcome: Outcome) -> Figure | None:
    told: Mapping[str, Any] = outcome.series
    if not told:
        return None
    figure, (rates, delay) = canvas.canvas(2, height=3.6, ratios=[3, 2])
    at = [n + 0.5 for n in range(len(told["rate_bps"]))]
    known = [
        *told["rate_bps"],
        *(c for key in ("capacity_bps", "tcp_bps") for c in told[key] if c is not None),
    ]
    scale, unit = canvas.scale_of(max(known, default=0.0))
    labels = []
    for key, name, colour, dashes in (
        ("capacity_bps", "capacity", style.MUTED, (2, 2)),
        ("tcp_bps", "TCP", style.INK, (3, 1)),
        ("rate_bps", "the programs", style.SPARE[0], ()),
    ):
        values = [None if v is None else v / scale for v in told[key]]
        shown = [v for v in values if v is not None]
        if shown:
            line: Any = (0, dashes) if dashes else "solid"
            rates.plot(at, [float("nan") if v is None else v for v in values], color=colour, linestyle=line)
            labels.append(Label(shown[-1], name, colour))
    rates.set_ylabel(unit)
    canvas.from_zero(rates, max(known, default=0.0) / scale * 1.05)
    canvas.label_ends(rates, labels)
    rates.set_title("rate, and gaps of more than 200 ms without arrivals")
    for begin, end in told["gaps_s"]:
        for axes in (rates, delay):
            axes.axvspan(begin, end, color=style.FATE["lost"], alpha=0.15, linewidth=0)
    late = [float("nan") if v is None else v for v in told["delay_ms"]]
    delay.plot(at, late, color=style.SPARE[0])
    delay.set_title("delay of datagrams, 95th percentile of each second")
    delay.set_ylabel("ms")
    delay.set_xlabel("s")
    canvas.from_zero(delay, max((v for v in told["delay_ms"] if v is not None), default=0.0) * 1.05)
    return figure
