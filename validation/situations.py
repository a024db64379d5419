"""Every controller of the registry in every situation that it serves, to see which one suits what.

    python -m validation.situations            # seeds 1 to 3, all controllers
    python -m validation.situations tfrc asmp  # these alone
    python -m validation.situations --write    # into docs/which-controller.md

Simulated, 60 s each, without decoding pictures. The first table names, for each situation, the controllers that keep
its bounds, the one with the least delay first, and those that keep all but the loss. `fixed` and `no-control` do not
answer to the network, so that it names neither. The other two tables have each controller's means over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation import page

if TYPE_CHECKING:
    from steadycast.controllers import Controller

HERE = Path(__file__).parent
PAGE = page.DOCS / "which-controller.md"
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


def beside_tcp(name: str, queue: str, congestion: str = "cubic", **more: Any) -> Situation:
    """Beside one TCP on 4 Mb/s and 40 ms."""
    sets = {"topology.bottleneck.queue": queue, "flow.tcp.congestion": congestion}
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
    """What one run showed."""

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


def choice(found: Found, chosen: Sequence[Controller]) -> str:
    """Name, for each situation, the controllers that keep its bounds."""
    rows = []
    for situation in SITUATIONS:
        known = [(found[c.name, situation.name], c) for c in chosen if (c.name, situation.name) in found]
        good = [(seen, c.name) for seen, c in known if c.feedback != "none" and seen.shares(situation)]
        kept = [_named(good, situation.chance + low, situation.chance + high) for low, high in _CLASSES]
        rows.append([situation.name, *kept])
    return page.table(["situation", "keep its bounds", "keep all but the loss"], rows)


def table(found: Found, chosen: Sequence[Controller], cell: Callable[[Seen | None], str]) -> str:
    """Write a line for each controller; a cell is empty where it does not serve the situation."""
    rows = [
        [
            f"`{controller.name}`",
            *(cell(found.get((controller.name, situation.name))) for situation in SITUATIONS),
        ]
        for controller in chosen
    ]
    return page.table(["controller", *(situation.name for situation in SITUATIONS)], rows)


_CLASSES = ((-1.0, MOST_LOSS), (MOST_LOSS, SOME_LOSS))


def _named(good: Sequence[tuple[Seen, str]], low: float, high: float) -> str:
    some = sorted((seen.delay_ms, name) for seen, name in good if low < seen.loss <= high)
    return ", ".join(f"`{name}` ({delay:.0f} ms)" for delay, name in some) or "none"


def _shares(seen: Seen | None) -> str:
    if seen is None:
        return ""
    return f"{100 * seen.share:.0f}" + ("" if seen.others is None else f" / {100 * seen.others:.0f}")


def _cost(seen: Seen | None) -> str:
    return "" if seen is None else f"{100 * seen.loss:.1f} / {seen.delay_ms:.0f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the tables."""
    parser = page.options("validation.situations", __doc__, PAGE, seeds=3)
    parser.add_argument("controllers", nargs="*", help="from the registry; all without any")
    args = parser.parse_args(argv)
    from steadycast.controllers import find, registry
    from steadycast.progress import shown

    chosen = [find(name) for name in args.controllers] or list(registry())
    work = [(c, s) for c in chosen for s in SITUATIONS if not s.group or c.cast != "unicast"]
    found = {}
    with shown() as progress:
        for done, (controller, situation) in enumerate(work):
            progress("situations", done, len(work))
            runs = [see(controller.name, situation, seed) for seed in range(1, args.seeds + 1)]
            found[controller.name, situation.name] = mean(runs)
        progress("situations", len(work), len(work))
    made = {
        "choice": choice(found, chosen),
        "shares": table(found, chosen, _shares),
        "cost": table(found, chosen, _cost),
    }
    print("\n\n".join(made.values()))
    if args.write:
        told = page.stamp(
            "python -m validation.situations --write", f"seeds 1-{args.seeds}, means, 60 s each"
        )
        for mark, text in {"stamp": told, **made}.items():
            page.put(PAGE, mark, text)
    return 0


if __name__ == "__main__":
    page.end(main)
