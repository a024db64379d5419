"""Every controller of the registry alone, beside its own kind and beside TCP, at the queues of today: docs/field.md.

    python -m validation.field                     # all controllers, five seeds; prints the tables
    python -m validation.field scream gcc nada     # these alone
    python -m validation.field --write             # writes docs/data/field.csv and field-choice.csv

Simulated, 60 s each, of which the first 10 count for nothing. 4 Mb/s and 40 ms there and back; the video is RFC 8593's
codec, which asks for up to 8 Mb/s, so that the network alone limits it. With --keep DIR the runs stay there, and a
second call makes only those that are missing.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from validation import page

HERE = Path(__file__).parent
SCENARIO = HERE / "scenarios" / "field.toml"
LTE = HERE.parent / "scenarios" / "lte.toml"
CELLS, CHOICE = "field", "field-choice"

LEAST_SHARE = 0.8
"""Of the fair share, that the video and its neighbour are to have in every run."""
LEAST_WHOLE = 0.95
"""Of the frames, that are to arrive whole within 400 ms in every run."""

DROP_TAIL = '{{ kind = "droptail", limit = "{}" }}'
QUEUES = {
    "drop-tail 30 ms": DROP_TAIL.format("30ms"),
    "drop-tail 300 ms": DROP_TAIL.format("300ms"),
    "drop-tail 1 s": DROP_TAIL.format("1000ms"),
    "CoDel": '{ kind = "codel", limit = "300ms" }',
    "FQ-CoDel": '{ kind = "fq-codel", limit = "300ms" }',
    "PIE": '{ kind = "pie", limit = "300ms" }',
    "DualPI2": '{ kind = "dualpi2", limit = "300ms" }',
}
"""What the columns are called, and the queue of each."""
TCPS = {"Reno": "newreno", "CUBIC": "cubic", "BBR": "bbr"}


@dataclass(frozen=True)
class Group:
    """One neighbour, several networks."""

    name: str
    neighbour: str
    """How its flow is called; empty where there is none."""
    sets: Mapping[str, str]
    networks: Mapping[str, Mapping[str, str]]
    scenario: Path = SCENARIO


def _queues() -> dict[str, dict[str, str]]:
    return {name: {"topology.bottleneck.queue": queue} for name, queue in QUEUES.items()}


CHANCE = "2 % loss"
LOSS = {"topology.bottleneck.loss": '{ kind = "bernoulli", p = 0.02 }'}
GROUPS = (
    Group("alone", "", {}, _queues() | {CHANCE: LOSS}),
    Group("beside one of its own kind", "video-own1", {"flow.video-own.count": "1"}, _queues()),
    *(
        Group(
            f"beside {name}",
            "tcp1",
            {"flow.tcp.count": "1", "flow.tcp.congestion": congestion},
            _queues() | ({CHANCE: LOSS} if name == "CUBIC" else {}),
        )
        for name, congestion in TCPS.items()
    ),
)
LTE_GROUP = Group(
    "on the LTE trace",
    "",
    {"flow.tcp.count": "0", "flow.video.media": "rfc8593", "flow.video.rfc8593.r_max": "12Mbps"},
    {"alone": {}, "CoDel": {"link.air.queue": '{ kind = "codel" }'}},
    LTE,
)


@dataclass(frozen=True)
class Seen:
    """The results of a run."""

    share: float
    """The video's throughput, of its fair share; alone, of the link."""
    other: float | None
    """The neighbour's throughput, of its fair share."""
    delay_ms: float
    loss: float
    whole: float
    """Share of the frames that arrived whole within 400 ms."""


Found = dict[tuple[str, str, str], list[Seen]]
"""By group, network and controller: a run for each seed."""


def look(group: Group, figures: Mapping[str, Any]) -> Seen:
    """Read a run's row of a sweep's results."""
    ends = (name.rpartition(".frames.ok") for name in figures if name.startswith("flows.video.receivers."))
    stem = next(head for head, end, _ in ends if end)
    if group.scenario == LTE:
        share = figures["links.air.utilisation_frac"]
    elif group.neighbour:
        share = figures["flows.video.share_of_fair"]
    else:
        share = figures["flows.video.throughput_bps"] / 4e6
    return Seen(
        share=share,
        other=figures.get(f"flows.{group.neighbour}.share_of_fair"),
        delay_ms=figures.get(f"{stem}.delay_ms.p95", math.nan),
        loss=figures.get(f"{stem}.loss_frac", 1.0),
        whole=figures[f"{stem}.frames.ok"] / max(figures[f"{stem}.frames.sent"], 1),
    )


def measure(controllers: Sequence[str], seeds: int, keep: Path) -> Found:
    """Run all groups, and return what was seen."""
    found: Found = {}
    for group in (*GROUPS, LTE_GROUP):
        found |= _group(group, controllers, seeds, keep / group.name.replace(" ", "-"))
    return found


def _group(group: Group, controllers: Sequence[str], seeds: int, folder: Path) -> Found:
    from steadycast.sweep import sweep

    heads = list(dict.fromkeys(path for sets in group.networks.values() for path in sets))
    defaults = {
        "topology.bottleneck.queue": QUEUES["drop-tail 300 ms"],
        "topology.bottleneck.loss": '{ kind = "none" }',
    }
    defaults["link.air.queue"] = '{ kind = "droptail", limit = "150kB" }'
    folder.parent.mkdir(parents=True, exist_ok=True)
    design = folder.with_suffix(".csv")
    rows = {
        tuple(sets.get(head, defaults[head]) for head in heads): name for name, sets in group.networks.items()
    }
    with design.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *rows])
    path = "flow.video*.controller" if group.scenario == SCENARIO else "flow.video.controller"
    found: Found = {}
    for controller in controllers:
        # A folder each: one that is new or has changed is measured beside what is there.
        done = sweep(
            group.scenario,
            {path: [controller]},
            table=design,
            seeds=range(1, seeds + 1),
            set=[f"{key}={value}" for key, value in group.sets.items()],
            out=folder / controller,
        )
        for each in done.results.to_dicts():
            if each["error"] is not None:
                print(f"{group.name}: {controller}: {each['error']}", file=sys.stderr)
                continue
            name = rows[tuple(each[head] for head in heads)]
            figures = {key: value for key, value in each.items() if value is not None}
            found.setdefault((group.name, name, controller), []).append(look(group, figures))
    return found


# ---------------------------------------------------------------- tables


def table(found: Found, controllers: Sequence[str]) -> page.Table:
    """Return what was seen, a line for each situation, network and controller."""
    heads = [
        "situation",
        "network",
        "controller",
        "share, %",
        "share of the other, %",
        "delay p95, ms",
        "loss, %",
        "frames whole, %",
    ]
    rows = []
    for group in (*GROUPS, LTE_GROUP):
        for network in group.networks:
            for name in controllers:
                if runs := found.get((group.name, network, name), []):
                    rows.append([group.name, network, f"`{name}`", *_cells(runs)])
    return page.table(heads, rows)


def choice(found: Found, controllers: Sequence[str]) -> page.Table:
    """Name the controllers that keep the bounds in every run, the one with the least delay first.

    Those that do not answer to the network are never named.
    """
    from steadycast.controllers import registry

    deaf = {entry.name for entry in registry() if entry.feedback == "none"}
    rows = []
    for group in (*GROUPS, LTE_GROUP):
        for network in group.networks:
            good: dict[str, list[Seen]] = {}
            shares: dict[str, list[Seen]] = {}
            for name in controllers:
                seen = found.get((group.name, network, name), [])
                if seen and name not in deaf and all(_shares(each, network) for each in seen):
                    whole = all(each.whole >= LEAST_WHOLE for each in seen)
                    (good if whole else shares)[name] = seen
            rows.append([f"{group.name}, {network}", _named(good), _named(shares)])
    heads = ["situation", "keep all bounds in every run", "keep those of the shares"]
    return page.table(heads, rows)


def _shares(seen: Seen, network: str) -> bool:
    if seen.other is None:
        return seen.share >= LEAST_SHARE
    # On a link with random loss, the two flows are compared with each other.
    most = max(seen.share, seen.other) if network == CHANCE else 1.0
    return min(seen.share, seen.other) >= LEAST_SHARE * most


def _named(runs: Mapping[str, Sequence[Seen]]) -> str:
    ordered = sorted((fmean([s.delay_ms for s in seen]), name) for name, seen in runs.items())
    return ", ".join(f"`{name}` ({delay:.0f} ms)" for delay, name in ordered) or "none"


def _cells(runs: Sequence[Seen]) -> list[str]:
    """Return the means of the runs, and from where to where the shares go."""
    others = [100 * seen.other for seen in runs if seen.other is not None]
    return [
        page.spread([100 * seen.share for seen in runs]),
        page.spread(others) if others else "",
        f"{fmean([seen.delay_ms for seen in runs]):.0f}",
        f"{fmean([100 * seen.loss for seen in runs]):.1f}",
        f"{fmean([100 * seen.whole for seen in runs]):.0f}",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the tables."""
    parser = page.options("validation.field", __doc__, CELLS, CHOICE, seeds=5)
    parser.add_argument("controllers", nargs="*", help="from the registry; all without any")
    parser.add_argument("--keep", type=Path, help="where the runs stay")
    args = parser.parse_args(argv)
    from steadycast.controllers import find, registry

    chosen = [find(name).name for name in args.controllers] or [entry.name for entry in registry()]
    with TemporaryDirectory(prefix="steadycast-") as scratch:
        found = measure(chosen, args.seeds, args.keep or Path(scratch))
    note = f"seeds 1-{args.seeds}"
    title = "Who keeps the bounds of each situation in every run, the one with the least delay first"
    page.show(args, CHOICE, title, choice(found, chosen), note)
    title = "Each controller alone, beside its own kind and beside TCP, at the queues of today"
    page.show(args, CELLS, title, table(found, chosen), note)
    return 0


if __name__ == "__main__":
    page.end(main)
