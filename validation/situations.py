"""Every controller of the registry in every situation that it serves, to see which one suits what.

    python -m validation.situations            # seeds 1 to 3, all controllers
    python -m validation.situations tfrc asmp  # these alone
    python -m validation.situations --write    # docs/data/situations*.csv, and what docs/which-controller.md says
    python -m validation.situations --told     # only what the page says, from docs/data/situations.csv

Simulated, 60 s each, without decoding pictures. One table has each controller's means over the seeds. The other one
names, for each situation, the controllers that keep its bounds, the one with the least delay first, and those that keep
all but the loss. `fixed` and `no-control` do not answer to the network, so that it names neither. The sentences with
numbers in docs/which-controller.md are made from the same table.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation import page

if TYPE_CHECKING:
    from steadycast.controllers import Controller

HERE = Path(__file__).parent
PAGE = page.DOCS / "which-controller.md"
CELLS, CHOICE = "situations", "situations-choice"
FAIR = HERE / "scenarios" / "fair.toml"
GROUP = HERE / "scenarios" / "group.toml"
HOME = HERE.parent / "scenarios" / "home.toml"

LEAST_SHARE = 0.8
"""Of the fair share, that the video and each lasting TCP are to have."""
MOST_LOSS = 0.01
"""Of the video's packets, beyond what the link loses by chance."""
SOME_LOSS = 0.02
"""Beyond this a controller is not named at all."""


@dataclass(frozen=True)
class Situation:
    """A network, and who else uses it."""

    name: str
    scenario: Path
    sets: Mapping[str, object]
    told_bps: float
    """The rate that the operator gives to `fixed`: the video's fair share."""
    group: bool = False
    chance: float = 0.0
    """Share of packets that the link loses by chance."""
    beside: str = "tcp"
    """What the names of the TCP flows begin with that last from start to end; empty without any."""


def beside_tcp(name: str, queue: str, **more: Any) -> Situation:
    """Beside one CUBIC on 4 Mb/s and 40 ms."""
    sets = {"topology.bottleneck.queue": queue, "flow.tcp.congestion": "cubic"}
    return Situation(name, FAIR, {**sets, **more.pop("sets", {})}, 2e6, **more)


DROP_TAIL = '{ kind = "droptail", limit = "50p" }'
SITUATIONS = (
    beside_tcp("drop-tail", DROP_TAIL),
    beside_tcp("RED", '{ kind = "red", preset = "classic" }'),
    beside_tcp("CoDel", '{ kind = "codel" }'),
    beside_tcp("FQ-CoDel", '{ kind = "fq-codel" }'),
    beside_tcp(
        "2 % loss",
        DROP_TAIL,
        chance=0.02,
        sets={"topology.bottleneck.loss": '{ kind = "bernoulli", p = 0.02 }'},
    ),
    Situation("alone", FAIR, {"flow.tcp.start": "59.9s"}, 4e6, beside=""),
    Situation("group of 8", GROUP, {}, 2e6, group=True),
    Situation("one slow of 8", GROUP, {"link.slow.rate": "1Mbps"}, 1e6, group=True),
    Situation("home.toml", HOME, {}, 0.75e6, beside="download"),
)


@dataclass(frozen=True)
class Seen:
    """The results of a run."""

    share: float
    others: float | None
    """The least share of a lasting TCP."""
    loss: float
    delay_ms: float

    def shares(self, situation: Situation) -> bool:
        """Whether it keeps the bound of the shares; where the link itself loses, they are compared with each other."""
        if situation.chance and self.others is not None:
            return min(self.share, self.others) >= LEAST_SHARE * max(self.share, self.others)
        return min(self.share, 1.0 if self.others is None else self.others) >= LEAST_SHARE


def see(controller: str, situation: Situation, seed: int) -> Seen:
    """Run it once."""
    import steadycast as sc
    from steadycast.progress import Silent

    sets: dict[str, object] = {"flow.video.controller": controller, **situation.sets}
    if controller == "fixed":
        sets["flow.video.params.fixed.rate"] = f"{situation.told_bps:.0f}bps"
    changes = [f"{path}={value}" for path, value in sets.items()]
    done = sc.run(situation.scenario, set=changes, seed=seed, quality=False, progress=Silent())
    video, *rest = done.summary["flows"]
    viewers = video["receivers"]
    alone = not situation.beside
    lasting = [f["share_of_fair"] for f in rest if not alone and f["name"].startswith(situation.beside)]
    return Seen(
        share=video["throughput_bps"] / situation.told_bps if alone else video["share_of_fair"],
        others=min(lasting, default=None),
        loss=max(viewer["loss_frac"] or 0.0 for viewer in viewers),
        delay_ms=max(viewer["delay_ms"]["p95"] or 0.0 for viewer in viewers),
    )


def mean(runs: Sequence[Seen]) -> Seen:
    """Mean over the seeds."""
    others = [seen.others for seen in runs if seen.others is not None]
    count = len(runs)
    return Seen(
        share=sum(seen.share for seen in runs) / count,
        others=sum(others) / count if others else None,
        loss=sum(seen.loss for seen in runs) / count,
        delay_ms=sum(seen.delay_ms for seen in runs) / count,
    )


Found = Mapping[tuple[str, str], Seen]


def kept(found: Found, chosen: Sequence[Controller], situation: Situation) -> tuple[list[str], list[str]]:
    """Return who keeps all bounds, and who loses up to a hundredth more, the one with the least delay first."""
    known = [(found[c.name, situation.name], c) for c in chosen if (c.name, situation.name) in found]
    good = [(seen, c.name) for seen, c in known if c.feedback != "none" and seen.shares(situation)]
    some, more = (
        sorted(
            (seen.delay_ms, name)
            for seen, name in good
            if situation.chance + low < seen.loss <= situation.chance + high
        )
        for low, high in ((-1.0, MOST_LOSS), (MOST_LOSS, SOME_LOSS))
    )
    return [name for _, name in some], [name for _, name in more]


def choice(found: Found, chosen: Sequence[Controller]) -> page.Table:
    """Name, for each situation, the controllers that keep its bounds."""
    rows = []
    for situation in SITUATIONS:
        each = (_named(found, situation, names) for names in kept(found, chosen, situation))
        rows.append([situation.name, *each])
    return page.table(["situation", "keep its bounds", "keep all but the loss"], rows)


def table(found: Found, chosen: Sequence[Controller]) -> page.Table:
    """Return a line for each situation and each controller that serves it."""
    heads = ["situation", "controller", "share, %", "least share of a TCP, %", "loss, %", "delay p95, ms"]
    rows = []
    for situation in SITUATIONS:
        for controller in chosen:
            if seen := found.get((controller.name, situation.name)):
                others = "" if seen.others is None else f"{100 * seen.others:.0f}"
                share, loss = f"{100 * seen.share:.0f}", f"{100 * seen.loss:.2f}"
                name = f"`{controller.name}`"
                rows.append([situation.name, name, share, others, loss, f"{seen.delay_ms:.0f}"])
    return page.table(heads, rows)


def read(place: Path) -> dict[tuple[str, str], Seen]:
    """Read what an earlier run has written."""
    found = {}
    with place.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            numbers = [float(line[name]) if line[name] else None for name in list(line)[2:]]
            share, others, loss, delay = numbers
            assert share is not None
            assert loss is not None
            assert delay is not None
            least = None if others is None else others / 100
            found[line["controller"], line["situation"]] = Seen(share / 100, least, loss / 100, delay)
    return found


FIRST = "steady"
"""The controller that the page sets beside the others."""
NAMED = 3
"""Names of others that a sentence has."""


def answer(found: Found) -> str:
    """Say in which situations `steady` keeps the shares, and what it gains."""
    missed = [
        f"{s.name} ({100 * min(seen.share, 9.0 if seen.others is None else seen.others):.0f} %)"
        for s in SITUATIONS
        if not (seen := found[FIRST, s.name]).shares(s)
    ]
    waits = {
        name: [found[name, place].delay_ms for place in ("alone", "FQ-CoDel")]
        for name in (FIRST, "tfrc", "asmp")
    }
    told = "; ".join(f"`{name}` {a:.0f} and {b:.0f} ms" for name, (a, b) in waits.items())
    but = f" but {', '.join(missed)}" if missed else ""
    return (
        f"With `{FIRST}` both sides keep the bound of the shares in all of {len(SITUATIONS)} situations{but}. "
        f"Delay of packets (95th percentile) alone and at FQ-CoDel: {told}."
    )


Choices = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""For each situation who keeps all bounds, and who all but the loss, each with its delay."""


def read_choices(place: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Read who keeps the bounds, as an earlier run has written it."""
    with place.open(encoding="utf-8", newline="") as file:
        return {
            situation: (_listed(good), _listed(more)) for situation, good, more in list(csv.reader(file))[1:]
        }


def _listed(cell: str) -> list[str]:
    return [] if cell == "none" else cell.split(", ")


def told(found: Found, choices: Choices) -> str:
    """Say in a line for each situation what `steady` has there, and who else keeps the bounds."""
    lines = []
    for situation, (good, more) in choices.items():
        seen = found[FIRST, situation]
        does = "misses a share"
        for text, names in (("keeps the shares", more), ("keeps all bounds", good)):
            does = text if any(name.startswith(f"{FIRST} ") for name in names) else does
        beside = "" if seen.others is None else f", the TCP {100 * seen.others:.0f} %"
        others = [f"`{name.replace(' ', '` ', 1)}" for name in good if not name.startswith(f"{FIRST} ")]
        rest = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        best = (
            f"Others that do: {', '.join(others[:NAMED])}{rest}." if others else "No other keeps all bounds."
        )
        best = (
            best if does == "keeps all bounds" else best.replace("Others that do:", "All bounds are kept by")
        )
        lines.append(
            f"- **{situation}**: `{FIRST}` {does}. It has {100 * seen.share:.0f} %{beside}; "
            f"{100 * seen.loss:.1f} % is lost, the delay is {seen.delay_ms:.0f} ms. {best}"
        )
    return "\n".join(lines)


def _named(found: Found, situation: Situation, names: Sequence[str]) -> str:
    return ", ".join(f"`{n}` ({found[n, situation.name].delay_ms:.0f} ms)" for n in names) or "none"


FIELD = "field"
"""The table of docs/field.md: other networks, five seeds."""
NO_BOUND = ("beside one of its own kind", "2 % loss")
"""Its rows that this page does not judge: both are `steady`, or the link itself loses."""


def weak(found: Found, field: Sequence[Mapping[str, str]]) -> str:
    """Return a table of where `steady` misses a share: what it has there, and who does best by the worse side."""
    lines = [
        "| where | share of `steady` | share of the TCP | best for the worse side |",
        "|---|---|---|---|",
    ]
    for situation in SITUATIONS:
        if not (seen := found[FIRST, situation.name]).shares(situation):
            others = {name: each for (name, where), each in found.items() if where == situation.name}
            worse = {name: min(each.share, each.others or each.share) for name, each in others.items()}
            lines.append(_weak(situation.name, seen.share, seen.others, worse))
    for line in field:
        place = line["situation"], line["network"]
        if line["controller"] != FIRST or not {*place}.isdisjoint(NO_BOUND):
            continue
        same = [each for each in field if (each["situation"], each["network"]) == place]
        worse = {each["controller"]: min(_shares(each)) for each in same}
        if worse[FIRST] < LEAST_SHARE:
            share, *beside = _shares(line)
            lines.append(_weak(", ".join(place), share, beside[0] if beside else None, worse))
    return "\n".join(lines)


def _shares(line: Mapping[str, str]) -> list[float]:
    return [float(line[key]) / 100 for key in ("share, %", "share of the other, %") if line[key]]


def _weak(where: str, share: float, other: float | None, worse: Mapping[str, float]) -> str:
    told = {name: value for name, value in worse.items() if name not in ("fixed", "no-control")}
    best = max(told, key=lambda name: told[name])
    beside = "–" if other is None else f"{100 * other:.0f} %"
    most = "nobody" if best == FIRST else f"`{best}` ({100 * told[best]:.0f} %)"
    return f"| {where} | {100 * share:.0f} % | {beside} | {most} |"


def said() -> dict[str, str]:
    """Return the sentences of the page by their marks, from what an earlier run has written."""
    found = read(page.DATA / f"{CELLS}.csv")
    with (page.DATA / f"{FIELD}.csv").open(encoding="utf-8", newline="") as file:
        field = list(csv.DictReader(file))
    return {
        "answer": answer(found),
        "weak": weak(found, field),
        "told": told(found, read_choices(page.DATA / f"{CHOICE}.csv")),
    }


def say() -> None:
    """Put the sentences into the page."""
    for mark, text in said().items():
        page.put(PAGE, mark, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the tables."""
    parser = page.options("validation.situations", __doc__, CELLS, CHOICE, seeds=3)
    parser.add_argument("--told", action="store_true", help="only put the page's sentences anew")
    parser.add_argument("controllers", nargs="*", help="from the registry; all without any")
    args = parser.parse_args(argv)
    from steadycast.controllers import find, registry
    from steadycast.progress import shown

    chosen = [find(name) for name in args.controllers] or list(registry())
    if args.told:
        say()
        return 0
    work = [(c, s) for c in chosen for s in SITUATIONS if not s.group or c.cast != "unicast"]
    found = {}
    with shown() as progress:
        for done, (controller, situation) in enumerate(work):
            progress("situations", done, len(work))
            runs = [see(controller.name, situation, seed) for seed in range(1, args.seeds + 1)]
            found[controller.name, situation.name] = mean(runs)
        progress("situations", len(work), len(work))
    choices, cells = choice(found, chosen), table(found, chosen)
    print(choices, cells, sep="\n\n")
    if args.write:
        origin = ("python -m validation.situations --write", f"seeds 1-{args.seeds}, means, 60 s each")
        page.save(CHOICE, "Who keeps the bounds of each situation, by delay", choices, *origin)
        page.save(CELLS, "Each controller in each situation that it serves", cells, *origin)
        say()
    return 0


if __name__ == "__main__":
    page.end(main)
