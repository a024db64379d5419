"""Whether a controller is fair to others, and keeps the queue empty if no other flow fills it, cell by cell.

    python -m validation.steady                                 # steady, five seeds, all cells
    python -m validation.steady --cells A1 B1 --controllers steady tfrc --seeds 2
    python -m validation.steady --group seen                    # the cells that constants were chosen with
    python -m validation.steady --write                         # docs/data/steady-*.csv; of all there, a figure

Simulated on all processors; pictures are not decoded. A run lasts 90 s and is measured from 20 s on, where a cell says
nothing else. Every third cell is *unseen*: constants were chosen without it. A cell holds when every seed's run
holds its bound. `cubic` is no controller but a TCP in the video's place: what CUBIC gets in the same cell.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.core import commit

from validation import page, simulated

if TYPE_CHECKING:
    from steadycast.result import Run

ROOT = Path(__file__).resolve().parent.parent
CUBIC = "cubic"
CUBIC_ROWS = ("B1", "B2", "B3", "B4", "B5", "C3")
"""Where a TCP in the video's place says something."""
APART = ("V1", "V2", "V3")
"""Rows that are no part of the sum: they came last."""
SEGMENT_BITS = 8 * 1500
LEAST_QUEUE = 12
"""Packets; cells with a shorter queue are printed and not judged."""

Seen = dict[str, float]
Judge = Callable[[Seen, Mapping[str, Seen]], bool | None]


@dataclass(frozen=True)
class Stricter:
    """A second bound of the same runs."""

    row: str
    judge: Judge
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One network, what a controller is to reach on it, and how that is read from a run."""

    row: str
    name: str
    text: str
    """The scenario file; VIDEO stands for the controller."""
    read: str = "shares"
    judge: Judge = lambda seen, beside: True
    warmup: float = 20.0
    sets: tuple[str, ...] = ()
    """Also set, for this controller alone: paths with {controller}."""
    beside: tuple[str, ...] = ()
    """Other cells' keys whose runs with the same seed the judge looks at."""
    only: tuple[str, ...] = ()
    """The controllers that have it; all without any."""
    facts: Mapping[str, float] = field(default_factory=dict)
    stricter: Stricter | None = None
    """Counted in a row of its own behind this one's, of the same runs."""

    @property
    def key(self) -> str:
        """Name it, uniquely."""
        return f"{self.row} {self.name}"


BURSTS = Path(__file__).parent / "scenarios" / "bursts.mahi"
"""4 Mb/s as a radio that gathers packets has it: seven of 1500 B at once, each 20 or 21 ms."""


def droptail(packets: float) -> str:
    """Write a drop-tail queue of a number of packets."""
    return f'{{ kind = "droptail", limit = "{round(packets)}p" }}'


def queue(kind: str, **more: object) -> str:
    """Write a queue of this kind."""
    rest = "".join(f", {key} = {json.dumps(value)}" for key, value in more.items())
    return f'{{ kind = "{kind}"{rest} }}'


def dumbbell(
    rate: float,
    rtt: float,
    line: str,
    flows: str,
    *,
    duration: float = 90.0,
    warmup: float = 20.0,
    more: str = "",
    events: str = "",
) -> str:
    """Return a scenario: a bottleneck of a rate in Mb/s and a delay in ms, behind fast access links of 1 ms."""
    return f"""
format = 1
name = "steady"
duration = "{duration:g}s"
warmup = "{warmup:g}s"
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "{rate:g}Mbps", delay = "{rtt / 2 - 2:g}ms", queue = {line}{more} }}
access = {{ rate = "1Gbps", delay = "1ms", queue = {{ kind = "droptail", limit = "10000p" }} }}
{flows}
{events}
"""


def video(name: str = "video", more: str = "") -> str:
    """Write a greedy video flow."""
    return f'[[flow]]\nname = "{name}"\nkind = "video"\ncontroller = "VIDEO"\nmedia = "greedy"\n{more}\n'


def frames(name: str = "video", more: str = "") -> str:
    """Write a video flow whose pictures are encoded individually and sent as bursts."""
    coded = 'vbr = "frame"\nrepair = "auto"\nplayout = "adaptive"\n' + more
    return video(name, coded).replace('"greedy"', '"synthetic"')


def tcp(
    congestion: str = "cubic", more: str = 'start = { uniform = ["0s", "1s"] }', name: str = "tcp"
) -> str:
    """Write a TCP flow as a Linux server sends it."""
    return (
        f'[[flow]]\nname = "{name}"\nkind = "tcp"\npreset = "linux"\ncongestion = "{congestion}"\n'
        f'send_jitter = "1ms"\n{more}\n'
    )


# -- what the bounds are


def fair(least: float) -> Judge:
    """Bound both shares from below."""
    return lambda seen, _: min(seen["video"], seen["tcp"]) >= least


def bound(of: str, least: float, loss: float, queue_ms: float | None = None) -> Judge:
    """Bound a figure from below, loss and the queue's 95th percentile from above."""

    def holds(seen: Seen, _: Mapping[str, Seen]) -> bool:
        short = queue_ms is None or seen["queue_ms"] <= queue_ms
        return seen[of] >= least and seen["loss"] <= loss and short

    return holds


def printed(_: Seen, __: Mapping[str, Seen]) -> None:
    """Judge nothing."""
    return None


def reno_bound(mixed: str) -> Judge:
    """Beside NewReno: 0.75 where CUBIC and NewReno have it between them, else it gets no less than beside CUBIC."""

    def holds(seen: Seen, beside: Mapping[str, Seen]) -> bool:
        mix = beside[mixed]
        if min(mix["video"], mix["tcp"]) >= 0.75:
            return min(seen["video"], seen["tcp"]) >= 0.75
        return seen["tcp"] >= mix["tcp"]

    return holds


def same_rate(plain: str) -> Judge:
    """Bound by how much the rate is another than in a cell without the trouble."""
    return lambda seen, beside: abs(seen["bps"] / max(beside[plain]["bps"], 1e-9) - 1) <= 0.1


def own_queues(loss: float, key: str) -> Judge:
    """Bound TCP's share as well, by its share beside CUBIC, which can't fill a separate queue."""

    def holds(seen: Seen, beside: Mapping[str, Seen]) -> bool:
        least = min(0.9, 0.95 * beside[key]["tcp"])
        return bound("video", 0.9, loss)(seen, beside) is True and seen["tcp"] >= least

    return holds


# -- the cells


def cells() -> list[Cell]:
    """List all of them, in the table's order."""
    return [*_a(), *_b(), *_c(), *_d(), *_e(), *_f(), *_g(), *_v()]


def _deep(rate: float, rtt: float) -> int:
    return 200 if (rate, rtt) == (20, 120) else 50


def _a() -> Iterator[Cell]:
    for rate in (1, 4, 20):
        for rtt in (20, 40, 120):
            text = dumbbell(rate, rtt, droptail(_deep(rate, rtt)), video(), warmup=5)
            judge = bound("used", 0.95, 0.0, max(12.0, 4 * 1200 * 8 / rate / 1e3))
            yield Cell("A1", f"{rate} Mb/s {rtt} ms", text, "alone", judge, facts={"rate": rate * 1e6})
    for kind in ("codel", "fq-codel", "pie", "dualpi2"):
        for rate in (1, 4, 20):
            ecn = 'ecn = "ect1"' if kind == "dualpi2" else ""
            text = dumbbell(rate, 40, queue(kind), video(more=ecn))
            judge = bound("used", 0.95, 0.001)
            yield Cell("A2", f"{kind} {rate} Mb/s", text, "alone", judge, facts={"rate": rate * 1e6})
    for loss, used in ((0.02, 0.92), (0.05, 0.85)):
        text = dumbbell(4, 40, droptail(50), video(), more=f', loss = {{ kind = "bernoulli", p = {loss} }}')
        yield Cell("A3", f"{loss:.0%} loss", text, "alone", bound("used", used, 1.0), facts={"rate": 4e6})
    for rate, rtt in ((1, 20), (1, 40), (1, 120), (4, 20), (4, 40), (4, 120), (20, 40)):
        text = dumbbell(rate, rtt, droptail(50), video(), duration=12, warmup=0)
        judge = bound("held", 0.8, 0.001)
        yield Cell("A4", f"{rate} Mb/s {rtt} ms", text, "start", judge, facts={"rate": rate * 1e6})


def _b() -> Iterator[Cell]:
    grid = list(product((1, 2, 4, 6, 10, 20), (20, 40, 80, 120), (0.5, 1, 2, 4)))
    for row, congestion in (("B1", "cubic"), ("B2", "newreno")):
        for rate, rtt, depth in grid:
            packets = max(2, round(depth * rate * 1e3 * rtt / SEGMENT_BITS))
            text = dumbbell(rate, rtt, droptail(packets), video() + tcp(congestion))
            name = f"{rate} Mb/s {rtt} ms {depth:g} BDP"
            judge, beside = (fair(0.8) if packets >= LEAST_QUEUE else printed), tuple[str, ...]()
            if judge is not printed and row == "B2":
                judge, beside = reno_bound(f"B2 {name}"), (f"B2 {name}",)
            yield Cell(row, name, text, judge=judge, beside=beside)
    for rate, rtt, limit in product((1, 2, 4, 8, 20), (20, 60, 120), (100, 1000)):
        for congestion in ("cubic", "newreno"):
            text = dumbbell(rate, rtt, queue("fq-codel", limit=f"{limit}p"), video() + tcp(congestion))
            name = f"{congestion} {rate} Mb/s {rtt} ms {limit}p"
            most, key = (0.01 if rate == 1 else 0.003), f"B3 {name}"
            both = Stricter("B3 t", own_queues(most, key), (key,))
            yield Cell("B3", name, text, judge=bound("video", 0.9, most), stricter=both)
    lines = {
        "codel": (queue("codel"), 0.75),
        "pie": (queue("pie"), 0.75),
        "red classic": (queue("red", preset="classic"), 0.7),
        "red ns2": (queue("red", preset="ns2"), 0.7),
    }
    for name, (line, least) in lines.items():
        for rate in (4, 20):
            text = dumbbell(rate, 40, line, video() + tcp())
            yield Cell("B4", f"{name} {rate} Mb/s", text, judge=fair(least))
    for bbr in ("bbr1", "bbr"):
        text = dumbbell(4, 40, droptail(50), video() + tcp(bbr))
        key = f"B5 {bbr} 4 Mb/s"

        def no_less(seen: Seen, beside: Mapping[str, Seen], key: str = key) -> bool:
            return seen["video"] >= beside[key]["video"]

        yield Cell("B5", f"{bbr} 4 Mb/s", text, judge=no_less, beside=(key,))
    text = dumbbell(4, 40, queue("dualpi2"), video(more='ecn = "ect1"') + tcp("prague", PRAGUE))
    yield Cell("B5", "prague, DualPI2 4 Mb/s", text, judge=fair(0.75))


PRAGUE = 'ecn = true\nstart = { uniform = ["0s", "1s"] }'


def _kin(count: int, gap: float, make: Callable[[str, str], str] = video) -> str:
    return "".join(make(f"video{n + 1}", f'start = "{n * gap:g}s"') for n in range(count))


def _c() -> Iterator[Cell]:
    for rate, most in ((1, 50.0), (4, 25.0)):
        for count in (2, 3, 4):
            begin = 10.0 * (count - 1) + 20
            text = dumbbell(rate, 40, droptail(50), _kin(count, 10), duration=begin + 70, warmup=begin)
            yield Cell("C1", f"{count} on {rate} Mb/s", text, "kin", bound("jain", 0.98, 0.001, most))
    text = dumbbell(20, 40, droptail(67), _kin(10, 1), duration=100, warmup=30)
    yield Cell("C2", "10 on 20 Mb/s", text, "kin", bound("jain", 0.95, 0.003))
    text = dumbbell(4, 40, queue("codel"), _kin(2, 10), duration=100, warmup=30)
    yield Cell("C2", "2 at CoDel", text, "kin", bound("jain", 0.95, 0.003))
    for other in ("tfrc", "gcc", "nada", "scream"):
        text = dumbbell(4, 40, droptail(50), video() + video("tcp").replace("VIDEO", other))
        key = f"C3 beside {other}"

        def leaves(seen: Seen, beside: Mapping[str, Seen], key: str = key) -> bool:
            return seen["video"] >= 0.7 and seen["tcp"] >= beside[key]["tcp"]

        if other == "tfrc":
            yield Cell("C3", "beside tfrc", text, judge=fair(0.7))
        else:
            yield Cell("C3", f"beside {other}", text, judge=leaves, beside=(key,))


def _d() -> Iterator[Cell]:
    home = (ROOT / "scenarios" / "home.toml").read_text().replace('"steady"', '"VIDEO"')
    lte = (ROOT / "scenarios" / "lte.toml").read_text().replace('"asmp"', '"VIDEO"')
    trace = str(ROOT / "scenarios" / "traces")
    lte = lte.replace('"traces/', f'"{trace}/')
    lines = {
        "drop-tail": (droptail(50), "800ms", 0.97),
        "CoDel": (queue("codel"), "300ms", 0.98),
        "FQ-CoDel": (queue("fq-codel"), "300ms", 0.99),
        "RED": (queue("red", preset="ns2"), "800ms", None),
    }
    for name, (line, playout, frames) in lines.items():
        text = home.replace('{ kind = "droptail", limit = "50p" }', line, 1)
        text, changed = re.subn(r"playout = .*", f'playout = "{playout}"', text)
        assert changed == 1, "home.toml has no play-out"

        def judge(seen: Seen, _: Mapping[str, Seen], frames: float | None = frames) -> bool | None:
            if frames is None:
                return None
            return min(seen["video"], seen["tcp"]) >= 0.8 and seen["frames"] >= frames

        yield Cell("D1", name, text, judge=judge, warmup=5.0)
    lte = lte.replace('media = "synthetic"', 'media = "greedy"').replace('playout = "400ms"\n', "")
    lte = lte.replace('start = "20s"\nstop = "40s"', 'start = "59.9s"')
    soon: Judge = lambda seen, _: seen["used"] >= 0.6 and seen["delay_ms"] <= 300  # noqa: E731
    yield Cell("D2", "LTE alone", lte, "lte", soon)
    events = "".join(
        f'[[event]]\nat = "{at}s"\nset = {{ link = "bottleneck", rate = "{rate}Mbps" }}\n'
        for at, rate in ((30, 1), (60, 4))
    )
    text = dumbbell(4, 40, droptail(50), video(), events=events)
    yield Cell("D3", "4, 1, 4 Mb/s", text, "steps", bound("followed", 1, 0.01))


def _e() -> Iterator[Cell]:
    text = dumbbell(4, 40, droptail(50), video() + tcp("cubic", 'start = "20s"\nstop = "50s"'), warmup=5)
    yield Cell("E1", "CUBIC from 20 to 50 s", text, "modes", comes_and_goes(10.0), only=("steady",))
    rest = 'kind = "cbr"\nrate = "2Mbps"'
    onoff = 'kind = "onoff"\nrate = "2Mbps"' + "".join(
        f'\n{way} = {{ dist = "constant", mean = "2s" }}' for way in ("on", "off")
    )
    hardly: Judge = lambda seen, _: seen["competes_s"] <= 2.0 and seen["loss"] <= 0.001  # noqa: E731
    for name, flow in (("CBR of half", rest), ("on and off each 2 s", onoff)):
        text = dumbbell(4, 40, droptail(50), video() + f'[[flow]]\nname = "cbr"\n{flow}\n')
        yield Cell("E2", name, text, "modes", hardly)


PLAIN = (("A1 4 Mb/s 40 ms", "alone", "", 50), ("B1 4 Mb/s 40 ms 2 BDP", "beside CUBIC", tcp(), 27))
"""Cells without a trouble: what is called so, who is beside, and the queue in packets."""


def _f() -> Iterator[Cell]:
    upload = tcp(more='from = "video.dst1"\nto = "video.src"\nstart = "1s"', name="upload")
    every = tuple(f"flow.video.params.steady.report_{which}=100ms" for which in ("every", "most"))
    ways: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
        "drift +100 ppm": ("clock = { drift = 100 }", "", "", ()),
        "drift −100 ppm": ("clock = { drift = -100 }", "", "", ()),
        "bursts of 20 ms": ("", f', trace = "{BURSTS}", loop = true', "", ()),
        "jitter of 0 to 20 ms": ("", ', jitter = { dist = "uniform", mean = "10ms" }', "", ()),
        "reverse link full": ("", "", upload, ()),
        "reports at 100 ms": ("", "", "", every),
    }
    facts = {"rate": 4e6}
    for name, (flow, link, more, sets) in ways.items():
        for plain, who, other, packets in PLAIN:
            text = dumbbell(4, 40, droptail(packets), video(more=flow) + other + more, more=link)
            if "trace" in link:
                text = text.replace('rate = "4Mbps", ', "", 1)
            only = ("steady",) if sets else ()
            how: dict[str, Any] = {"sets": sets, "beside": (f"={plain}",), "only": only, "facts": facts}
            yield Cell("F", f"{name}, {who}", text, "rates", same_rate(plain), **how)
    text = dumbbell(0.5, 40, droptail(50), video(), warmup=20)
    yield Cell("F", "500 kb/s, alone", text, "alone", bound("used", 0.95, 0.0), facts={"rate": 0.5e6})
    text = dumbbell(0.5, 40, droptail(50), video() + tcp())
    yield Cell("F", "500 kb/s, beside CUBIC", text, judge=fair(0.8))
    # A machine that stands still: packets that arrive meanwhile are processed together afterwards. These cells come
    # last, so that the set of held-out cells stays the same.
    events = "".join(
        f'[[event]]\nat = "{at}ms"\nset = {{ link = "right-video.dst1", rate = "{rate}" }}\n'
        for begin in range(2_500, 90_000, 5_000)
        for at, rate in ((begin, "1kbps"), (begin + 50, "1Gbps"))
    )
    for plain, who, other, packets in PLAIN:
        text = dumbbell(4, 40, droptail(packets), video() + other, events=events)
        beside = (f"={plain}",)
        yield Cell(
            "F", f"stalls of 50 ms, {who}", text, "rates", same_rate(plain), beside=beside, facts=facts
        )


def star(leaf: str, elsewhere: str, tcp_to: str | None) -> str:
    """Return a scenario: a group of eight behind separate links, and a CUBIC flow to one of them."""
    links = (("server", "hub", ""), ("peer", "hub", ""), ("hub", "r1", leaf), ("hub", "r[2-8]", elsewhere))
    fast = 'rate = "1Gbps"\ndelay = "1ms"\nqueue = { kind = "droptail", limit = "10000p" }'
    text = 'format = 1\nname = "steady"\nduration = "90s"\nwarmup = "20s"\n'
    text += 'nodes = ["server", "peer", "hub", "r[1-8]"]\n'
    for a, b, line in links:
        name = 'name = "bottleneck"\n' if b == "r1" else ""
        text += f'[[link]]\n{name}between = ["{a}", "{b}"]\n{line or fast}\n'
    text += video(more='from = "server"\nto = ["r[1-8]"]')
    if tcp_to is not None:
        text += tcp(more=f'from = "peer"\nto = "{tcp_to}"\nstart = {{ uniform = ["0s", "1s"] }}')
    return text


GROUPS = ("steady", "asmp", "tfmcc")
"""Controllers that serve groups."""


def _g() -> Iterator[Cell]:
    def line(rate: float) -> str:
        return f'rate = "{rate:g}Mbps"\ndelay = "19ms"\nqueue = {droptail(27)}'

    for name, text in (
        ("one of 8 behind a CUBIC", star(line(4), line(4), "r1")),
        (
            "8 behind one link with a CUBIC",
            dumbbell(4, 40, droptail(27), video(more="receivers = 8") + tcp()),
        ),
    ):
        key = f"G {name}"

        def judge(seen: Seen, beside: Mapping[str, Seen], key: str = key) -> bool:
            near = abs(seen["video"] / max(beside[key]["video"], 1e-9) - 1) <= 0.2
            return near and seen["elsewhere_ms"] <= 12

        yield Cell("G", name, text, "group", judge, beside=(f"asmp={key}",), only=GROUPS)

    def full(seen: Seen, _: Mapping[str, Seen]) -> bool:
        longest = max(seen["queue_ms"], seen["elsewhere_ms"])
        return seen["used"] >= 0.95 and seen["loss"] == 0 and longest <= 4 * 1200 * 8 / 2e3

    yield Cell("G", "one of 8 behind 2 Mb/s", star(line(2), line(4), None), "group", full, only=GROUPS)


def _v() -> Iterator[Cell]:
    """Rows of their own: B1, B2, C1 and E1 with pictures, at rates that the coded clip needs."""
    for rate, rtt, deep in product((0.8, 1.5), (30, 60, 120), (1, 2, 4)):
        packets = round(deep * rate * 1e3 * rtt / SEGMENT_BITS)
        for congestion in ("cubic", "newreno"):
            text = dumbbell(rate, rtt, droptail(packets), frames() + tcp(congestion))
            judge = fair(0.75) if packets >= LEAST_QUEUE else printed
            yield Cell("V1", f"{congestion} {rate:g} Mb/s {rtt} ms {deep} BDP", text, judge=judge)
    for rate, count in ((0.8, 2), (1.5, 2), (1.5, 3), (3, 4)):
        for rtt in (40, 120):
            begin = 10.0 * (count - 1) + 20
            flows = _kin(count, 10, frames)
            text = dumbbell(rate, rtt, droptail(50), flows, duration=begin + 70, warmup=begin)
            yield Cell("V2", f"{count} on {rate:g} Mb/s {rtt} ms", text, "kin", bound("jain", 0.9, 0.003))
    flows = frames() + tcp("cubic", 'start = "20s"\nstop = "50s"')
    for rate, rtt, deep in product((0.8, 1.5), (60, 120), (2, 4)):
        packets = round(deep * rate * 1e3 * rtt / SEGMENT_BITS)
        text = dumbbell(rate, rtt, droptail(packets), flows, warmup=5)
        judge = comes_and_goes(15.0) if packets >= LEAST_QUEUE else printed
        yield Cell("V3", f"{rate:g} Mb/s {rtt} ms {deep} BDP", text, "modes", judge, only=("steady",))


def comes_and_goes(left_s: float) -> Judge:
    """Bound how long the law takes to compete with a CUBIC that comes, and to end that once it has gone."""
    return lambda seen, _: seen["entered_s"] <= 1.5 and seen["left_s"] <= left_s


def unseen(all_cells: Sequence[Cell]) -> set[str]:
    """Return the keys of every third cell, counted over the whole list."""
    return {cell.key for n, cell in enumerate(all_cells) if n % 3 == 2}


# -- running


def scenario(cell: Cell, controller: str) -> str:
    """Return the scenario's text with this controller, or with CUBIC in the video's place."""
    if controller != CUBIC:
        return cell.text.replace("VIDEO", controller)
    parts = cell.text.split("[[flow]]\n")
    for n, part in enumerate(parts):
        if '"VIDEO"' in part:
            name = part.split('name = "')[1].split('"')[0]
            rest = "[[event]]" + part.split("[[event]]", 1)[1] if "[[event]]" in part else ""
            begin = [line for line in part.splitlines() if line.startswith("start")]
            ecn = ["ecn = true"] if 'ecn = "ect1"' in part else []
            parts[n] = tcp(name=name, more="\n".join(begin + ecn)).removeprefix("[[flow]]\n") + rest
    return "[[flow]]\n".join(parts)


def see(task: tuple[str, str, int, tuple[str, ...]]) -> Seen:
    """Run a cell, named by its key, with a controller and a seed, once."""
    key, controller, seed, sets = task
    cell = _known()[key]
    changes = [*cell.sets, *(_for_kin(cell, sets) if controller == "steady" else ())]
    return READERS[cell.read](simulated.run(scenario(cell, controller), seed, changes), cell)


def _for_kin(cell: Cell, sets: Sequence[str]) -> list[str]:
    """Set for all of its kind what is set for the flow `video`."""
    names = [part.split('"')[0] for part in cell.text.split('name = "video')[1:]]
    return [each.replace("flow.video.", f"flow.video{name}.", 1) for name in names for each in sets]


def _basic(done: Run) -> Seen:
    first, *rest = done.summary["flows"]
    viewers = first.get("receivers") or [{}]
    neck = next(link for link in done.summary["links"] if link["name"] in ("bottleneck", "air"))
    lasting = [f for f in rest if f["name"].startswith(("tcp", "download"))]
    frames = viewers[0].get("frames")
    lost = viewers[0].get("loss_frac")
    if lost is None:
        lost = (first.get("retransmitted_packets") or 0) / max(first.get("sent_packets") or 1, 1)
    seen = {
        "bps": first["throughput_bps"],
        "loss": lost,
        "queue_ms": neck["queue_ms"]["p95"] or 0.0,
        "queue_p50_ms": neck["queue_ms"]["p50"] or 0.0,
        "delay_ms": (viewers[0].get("delay_ms") or {}).get("p95") or 0.0,
        "used": neck["utilisation_frac"],
    }
    if first.get("share_of_fair") is not None:  # There is none over a link whose rate follows a trace.
        seen["video"] = first["share_of_fair"]
    shares = [f["share_of_fair"] for f in lasting if f.get("share_of_fair") is not None]
    if shares:
        seen["tcp"] = min(shares)
    if frames and frames["sent"]:
        seen["frames"] = frames["ok"] / frames["sent"]
    return seen


def _alone(done: Run, cell: Cell) -> Seen:
    seen = _basic(done)
    return {**seen, "used": seen["bps"] / cell.facts["rate"]}


def _bins(done: Run, column: str = "throughput_bps") -> list[float]:
    rates = done.rates.to_polars()
    rates = rates.filter((rates["flow"] == "video") & rates["node"].str.contains(r"\.dst"))
    return [value or 0.0 for value in rates[column].to_list()]


def _start(done: Run, cell: Cell) -> Seen:
    bins = _bins(done)
    rate = cell.facts["rate"]
    fast = next((n for n, bps in enumerate(bins) if bps >= 0.8 * rate), len(bins))
    return {**_alone(done, cell), "held": min(bins[3:11]) / rate, "fast_s": fast + 1.0}


def _kin_seen(done: Run, _: Cell) -> Seen:
    flows = [f for f in done.summary["flows"] if f["name"].startswith("video")]
    rates = [f["throughput_bps"] for f in flows]
    losses = [r["loss_frac"] or 0.0 for f in flows for r in f.get("receivers", [])]
    shares = [f["share_of_fair"] for f in flows]
    return {
        **_basic(done),
        "jain": sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates)),
        "loss": max(losses, default=0.0),
        "least": min(shares),
        "most": max(shares),
    }


def _steps(done: Run, cell: Cell) -> Seen:
    """From three seconds after each change on the rate is that of the link: at least 0.75, and its queue short."""
    del cell
    bins, delays = _bins(done), _bins(done, "delay_ms")
    low = min(bins[33:59]) >= 0.75e6 and max(delays[33:59]) <= 20 + 50
    high = min(bins[63:89]) >= 3e6
    return {
        **_basic(done),
        "followed": float(low and high),
        "fall": max(delays[33:59]),
        "rise": min(bins[63:89]) / 4e6,
    }


def _modes(done: Run, _: Cell) -> Seen:
    decisions = done.decisions.to_polars()
    decisions = decisions.filter((decisions["flow"] == "video") & (decisions["rule"] != "report"))
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for at, rule in zip(decisions["t_s"], decisions["rule"], strict=True):
        if rule.startswith("compete") and since is None:
            since = at
        elif not rule.startswith("compete") and since is not None:
            spans.append((since, at))
            since = None
    if since is not None:
        spans.append((since, 90.0))
    entered = next((max(begin - 20.0, 0.0) for begin, end in spans if end > 20.0), 99.0)
    left = max((end - 50.0 for begin, end in spans), default=0.0)
    return {
        **_basic(done),
        "entered_s": entered,
        "left_s": max(left, 0.0),
        "competes_s": max((end - begin for begin, end in spans if begin > 5), default=0.0),
        "flaps": float(sum(1 for begin, end in spans if end > 20)),
    }


def _group(done: Run, _: Cell) -> Seen:
    """Return a group's largest loss, and the longest queue towards receivers without a TCP behind the same link."""
    first = done.summary["flows"][0]
    others = [
        link["queue_ms"]["p95"] or 0.0 for link in done.summary["links"] if link["name"].startswith("hub-r")
    ]
    return {
        **_basic(done),
        "loss": max(r.get("loss_frac") or 0.0 for r in first["receivers"]),
        "elsewhere_ms": max(others, default=0.0),
    }


READERS: Mapping[str, Callable[[Run, Cell], Seen]] = {
    "shares": lambda done, _: _basic(done),
    "rates": lambda done, _: _basic(done),
    "alone": _alone,
    "start": _start,
    "kin": _kin_seen,
    "lte": lambda done, _: _basic(done),
    "steps": _steps,
    "modes": _modes,
    "group": _group,
}


def mean(runs: Sequence[Seen]) -> Seen:
    """Return each figure's mean over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    values = {name: [run[name] for run in runs if run.get(name) is not None] for name in names}
    return {name: sum(known) / len(known) for name, known in values.items() if known}


@dataclass
class Found:
    """All that was seen."""

    runs: dict[tuple[str, str, int], Seen] = field(default_factory=dict)

    def of(self, cell: Cell, controller: str, seeds: Sequence[int]) -> list[Seen]:
        """Return its runs."""
        return [
            self.runs[controller, cell.key, seed]
            for seed in seeds
            if (controller, cell.key, seed) in self.runs
        ]

    def _judged(
        self, cell: Cell, judge: Judge, needs: Sequence[str], controller: str, seeds: Sequence[int]
    ) -> bool | None:
        """Judge the means of these seeds' runs; nothing where one of those that it needs was not run."""
        beside = {}
        for key in needs:
            who, _, plain = key.rpartition("=")
            who = who or (controller if key.startswith("=") else CUBIC)
            if any((who, plain, seed) not in self.runs for seed in seeds):
                return None
            beside[plain] = mean([self.runs[who, plain, seed] for seed in seeds])
        return judge(mean([self.runs[controller, cell.key, seed] for seed in seeds]), beside)

    def _seeds(self, cell: Cell, controller: str, seeds: Sequence[int]) -> list[int]:
        return [seed for seed in seeds if (controller, cell.key, seed) in self.runs]

    def verdicts(
        self, cell: Cell, controller: str, seeds: Sequence[int], by: Stricter | None = None
    ) -> list[bool]:
        """Tell of each of its runs that is judged whether it holds its bound, or the stricter one."""
        judge, needs = (by.judge, by.beside) if by else (cell.judge, cell.beside)
        known = self._seeds(cell, controller, seeds)
        each = [self._judged(cell, judge, needs, controller, [seed]) for seed in known]
        return [verdict for verdict in each if verdict is not None]

    def holds(
        self, cell: Cell, controller: str, seeds: Sequence[int], by: Stricter | None = None
    ) -> bool | None:
        """Tell whether all its runs hold its bound, or the stricter one; nothing where none is judged."""
        judged = self.verdicts(cell, controller, seeds, by)
        return all(judged) if judged else None

    def mean_holds(
        self, cell: Cell, controller: str, seeds: Sequence[int], by: Stricter | None = None
    ) -> bool | None:
        """Tell whether its runs hold it in the mean; nothing where that is not judged."""
        judge, needs = (by.judge, by.beside) if by else (cell.judge, cell.beside)
        known = self._seeds(cell, controller, seeds)
        return self._judged(cell, judge, needs, controller, known) if known else None

    def dots(
        self, chosen: Sequence[Cell], row: str, controller: str, seeds: Sequence[int]
    ) -> list[tuple[float, float]]:
        """Return of a row's cells beside a CUBIC the queueing delay (ms) and the TCP's share, in the mean."""
        cells = [cell for cell in chosen if cell.row == row and "newreno" not in cell.name]
        means = [mean(runs) for cell in cells if (runs := self.of(cell, controller, seeds))]
        return [(seen["queue_ms"], seen["tcp"]) for seen in means]

    def misses(self, cell: Cell, controller: str, seeds: Sequence[int]) -> bool:
        """Tell whether one of its runs misses its bound."""
        return bool(self.of(cell, controller, seeds)) and self.holds(cell, controller, seeds) is False


def run_all(
    chosen: Sequence[Cell],
    plan: Mapping[str, Sequence[int]],
    sets: Sequence[str] = (),
    jobs: int | None = None,
    keep: Path | None = None,
) -> Found:
    """Run the cells with each controller and its seeds, but for what `keep` has; what is run is added to it."""
    from concurrent.futures import as_completed

    from steadycast.progress import shown
    from steadycast.workers import cores

    from papers.engine.runs import processes

    tasks = [
        (cell.key, controller, seed, tuple(sets))
        for controller, seeds in plan.items()
        for cell in chosen
        for seed in seeds
        if (not cell.only or controller in cell.only) and (controller != CUBIC or cell.row in CUBIC_ROWS)
    ]
    found = Found()
    for line in keep.read_text().splitlines() if keep is not None and keep.exists() else ():
        *name, seen = json.loads(line)
        found.runs[tuple(name)] = seen
    tasks = [task for task in tasks if (task[1], task[0], task[2]) not in found.runs]
    with shown() as progress, processes(jobs or cores()) as pool:
        waiting = {pool.submit(see, task): task for task in tasks}
        for done, future in enumerate(as_completed(waiting)):
            progress("runs", done, len(tasks))
            key, controller, seed, _ = waiting[future]
            found.runs[controller, key, seed] = future.result()
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps([controller, key, seed, future.result()]) + "\n")
    return found


@cache
def _known() -> Mapping[str, Cell]:
    return {cell.key: cell for cell in cells()}


# -- tables


def figures(runs: Sequence[Seen], names: Sequence[str]) -> str:
    """Means over the seeds, and the extremes of shares."""
    found = ((LABELS.get(name, name), figure(runs, name)) for name in names)
    return ", ".join(f"{label} {text}" for label, text in found if text is not None)


def figure(runs: Sequence[Seen], name: str) -> str | None:
    """Mean over the seeds, and the extremes of a share; None where no run has it."""
    values = [run[name] for run in runs if run.get(name) is not None]
    if not values:
        return None
    scale, digits, unit = STYLE.get(name, (1.0, 2, ""))
    text = f"{sum(values) / len(values) * scale:.{digits}f}{unit}"
    if len(values) > 1 and name in ("video", "tcp", "jain", "used"):
        text += f" ({min(values) * scale:.{digits}f}…{max(values) * scale:.{digits}f})"
    return text


STYLE: Mapping[str, tuple[float, int, str]] = {
    "bps": (1e-6, 2, " Mb/s"),
    "fall": (1.0, 0, " ms"),
    "loss": (100.0, 2, " %"),
    "queue_ms": (1.0, 0, " ms"),
    "elsewhere_ms": (1.0, 0, " ms"),
    "delay_ms": (1.0, 0, " ms"),
    "frames": (100.0, 1, " %"),
    "jain": (1.0, 3, ""),
    "competes_s": (1.0, 1, " s"),
    "entered_s": (1.0, 1, " s"),
    "left_s": (1.0, 1, " s"),
}
LABELS = {
    "bps": "rate",
    "fall": "delay after the fall",
    "rise": "used after the rise",
    "queue_ms": "queue p95",
    "elsewhere_ms": "elsewhere",
    "delay_ms": "delay p95",
    "tcp": "beside",
    "entered_s": "in after",
    "left_s": "out after",
    "competes_s": "competes",
}
SHOWN: Mapping[str, Sequence[str]] = {
    "shares": ("video", "tcp", "loss", "queue_ms", "frames"),
    "rates": ("bps", "video", "tcp", "loss", "queue_ms"),
    "alone": ("used", "loss", "queue_ms"),
    "start": ("held", "loss", "queue_ms"),
    "kin": ("jain", "loss", "queue_ms"),
    "lte": ("used", "loss", "delay_ms"),
    "steps": ("fall", "rise", "loss"),
    "modes": ("entered_s", "left_s", "competes_s", "video", "loss"),
    "group": ("video", "tcp", "used", "loss", "queue_ms", "elsewhere_ms"),
}


def report(found: Found, chosen: Sequence[Cell], plan: Mapping[str, Sequence[int]]) -> page.Table:
    """Write a line per cell: what was seen of each controller, in brackets where it misses its bound."""
    others = [c for c in plan if any((c, cell.key, s) in found.runs for cell in chosen for s in plan[c])]
    hidden = unseen(cells())
    rows = []
    for cell in chosen:
        row = [cell.key + (" *" if cell.key in hidden else "")]
        for controller in others:
            runs = found.of(cell, controller, plan[controller])
            text = figures(runs, SHOWN[cell.read]) if runs else ""
            holds = found.holds(cell, controller, plan[controller]) if runs and controller != CUBIC else None
            row.append(f"[{text}]" if holds is False else text)
        rows.append(row)
    return page.table(["cell", *(f"`{c}`" for c in others)], rows)


@dataclass(frozen=True)
class Tally:
    """Return the number of cells of a row that hold with a controller."""

    row: str
    controller: str
    judged: int
    held: int
    """With each seed."""
    unseen: int
    """Of the judged, those with which nothing was chosen."""
    unseen_held: int
    means: int
    """Cells that hold in the mean of their seeds."""
    runs: float | None
    """Share of all runs that hold; None without a run that is judged."""


def tallies(found: Found, chosen: Sequence[Cell], plan: Mapping[str, Sequence[int]]) -> list[Tally]:
    """Count the cells of each row that hold, of those that are judged.

    A row of stricter bounds stands behind its cells' row. It is no part of the sum, nor are the rows `APART`. A TCP in
    the video's place is counted in the rows where it says something, and not in the sum.
    """
    hidden = unseen(cells())
    told = []
    for row, bounds in _rows(chosen).items():
        for who, seeds in plan.items():
            shown = [(c, by) for c, by in bounds if who != CUBIC or (c.row in CUBIC_ROWS and row != "all")]
            ran = [(c, by) for c, by in shown if found.of(c, who, seeds)]
            judged = [(c, h) for c, by in ran if (h := found.holds(c, who, seeds, by)) is not None]
            means = [m for c, by in shown if (m := found.mean_holds(c, who, seeds, by)) is not None]
            runs = [verdict for c, by in shown for verdict in found.verdicts(c, who, seeds, by)]
            blind = [held for cell, held in judged if cell.key in hidden]
            share = sum(runs) / len(runs) if runs else None
            held = sum(held for _, held in judged)
            told.append(Tally(row, who, len(judged), held, len(blind), sum(blind), sum(means), share))
    return told


def counts(found: Found, chosen: Sequence[Cell], plan: Mapping[str, Sequence[int]]) -> page.Table:
    """Say of each row and controller how many cells hold with each seed and in the mean, and how many runs do."""
    heads = (
        "row",
        "controller",
        "cells",
        "hold with each seed",
        "unseen cells",
        "unseen hold with each seed",
        "hold in the mean",
        "runs that hold, %",
        "seeds",
        "commit",
    )
    rows = []
    for t in tallies(found, chosen, plan):
        numbers = [str(n) for n in (t.judged, t.held, t.unseen, t.unseen_held, t.means)]
        if t.runs is not None or t.controller != CUBIC:
            share = "" if t.runs is None else f"{100 * t.runs:.1f}"
            rows.append([t.row, f"`{t.controller}`", *numbers, share, str(len(plan[t.controller])), MADE_BY])
    return page.table(heads, rows)


def _rows(chosen: Sequence[Cell]) -> dict[str, list[tuple[Cell, Stricter | None]]]:
    """Gather the cells by row, those of a stricter bound behind their own row, and all together."""
    rows: dict[str, list[tuple[Cell, Stricter | None]]] = {}
    for cell in chosen:
        rows.setdefault(cell.row, []).append((cell, None))
        if cell.stricter:
            rows.setdefault(cell.stricter.row, []).append((cell, cell.stricter))
    rows["all"] = [(cell, None) for cell in chosen if cell.row not in APART]
    return rows


ROWS, CELLS = "steady-rows", "steady-cells"
DRAWN = ("B1", "B3")
MADE_BY = (commit() or "")[:12]
FIGURE = ROOT / "docs" / "pictures" / "steady.svg"


def seen_of(found: Found, chosen: Sequence[Cell], plan: Mapping[str, Sequence[int]]) -> page.Table:
    """Return a line for each cell and controller, with a column for each figure."""
    hidden = unseen(cells())
    names = list(dict.fromkeys(name for cell in chosen for name in SHOWN[cell.read]))
    rows = []
    for cell in chosen:
        for who, seeds in plan.items():
            runs = found.of(cell, who, seeds)
            if not runs:
                continue
            held = found.holds(cell, who, seeds) if who != CUBIC else None
            holds = "" if held is None else "yes" if held else "no"
            told = [figure(runs, name) or "" if name in SHOWN[cell.read] else "" for name in names]
            keys = [cell.row, cell.key, "yes" if cell.key in hidden else "no", f"`{who}`"]
            rows.append([*keys, holds, *told, str(len(seeds)), MADE_BY])
    labels = (LABELS.get(name, name) for name in names)
    return page.table(["row", "cell", "unseen", "controller", "holds", *labels, "seeds", "commit"], rows)


def write(found: Found, chosen: Sequence[Cell], plan: Mapping[str, Sequence[int]]) -> None:
    """Write the tables; what was not run now stays as it is there."""
    note = "each row has its seeds, from 1 on, and the commit that it was measured with"
    command = "python -m validation.steady --write"
    title = "Cells of each row that keep their bound, by controller"
    rows = page.merged(ROWS, counts(found, chosen, plan), 2)
    page.save(ROWS, title, rows, command, note)
    dots = {
        (row, who): found.dots(chosen, row, who, plan.get(who, ()))
        for row, who, *_ in rows.rows
        if row in DRAWN
    }
    # A picture of a part of what the table has would take the place of one of all.
    if dots and all(dots.values()):
        draw(dots)
    own = {who: plan[who] for who in ("steady", CUBIC) if who in plan}
    title = "What was seen of `steady`, and of a CUBIC in its place, in each cell"
    page.save(CELLS, title, page.merged(CELLS, seen_of(found, chosen, own), 4), command, note)


def draw(dots: Mapping[tuple[str, str], Sequence[tuple[float, float]]]) -> None:
    """Draw TCP's share against the bottleneck's queueing delay: a panel for each controller, a dot for each cell.

    Args:
        dots: by row and controller, for each cell the delay's 95th percentile (ms) and the TCP's share.

    """
    from matplotlib.figure import Figure
    from steadycast.controllers import find
    from steadycast.report.canvas import WIDTH, save_drawing

    controllers = dict.fromkeys(who for _, who in dots)

    def drawing() -> Figure:
        rows = -(-len(controllers) // 2)
        figure = Figure(figsize=(WIDTH, 1.4 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
        for axes, who in zip(panels.flat, controllers, strict=False):
            colour = "#5a5a5a" if who == CUBIC else find(who).colour
            axes.axhline(1, linewidth=0.6, color="#8a8a8a")
            axes.scatter(*zip(*dots["B1", who], strict=True), s=12, color=colour, linewidths=0)
            rings = {"facecolors": "none", "edgecolors": colour, "linewidths": 0.7}
            axes.scatter(*zip(*dots["B3", who], strict=True), s=14, **rings)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_ylim(0, 2)
            axes.set_title("CUBIC in the video's place" if who == CUBIC else who)
        figure.supylabel("share of the CUBIC beside it", fontsize=9)
        figure.supxlabel("queueing delay, 95th percentile (ms)", fontsize=9)
        return figure

    save_drawing(drawing, FIGURE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the tables."""
    parser = page.options("validation.steady", __doc__, ROWS, CELLS, seeds=5)
    parser.add_argument("--cells", nargs="+", default=[], help="rows or cells, as A1 or 'A1 4 Mb/s'")
    parser.add_argument("--group", choices=("all", "seen", "unseen"), default="all")
    parser.add_argument("--controllers", nargs="+", default=["steady"])
    parser.add_argument("--other-seeds", type=int, help="for all but steady and cubic; as many without")
    parser.add_argument("--set", action="append", default=[], help="for steady: as `steadycast run --set`")
    parser.add_argument("--jobs", type=int, help="processes; one for each processor without")
    parser.add_argument("--keep", type=Path, help="a file of runs: what it has is not run again")
    parser.add_argument("--brief", action="store_true", help="only the cells that miss, and the counts")
    args = parser.parse_args(argv)
    every = cells()
    hidden = unseen(every)
    chosen = [
        cell
        for cell in every
        if (not args.cells or any(cell.key == some or cell.key.startswith(f"{some} ") for some in args.cells))
        and (args.group == "all" or (cell.key in hidden) == (args.group == "unseen"))
    ]
    if not chosen:
        print(f"no such cells: {' '.join(args.cells)}", file=sys.stderr)
        return 2
    plan = {
        controller: range(
            1, 1 + (args.seeds if controller in ("steady", CUBIC) else args.other_seeds or args.seeds)
        )
        for controller in args.controllers
    }
    found = run_all(chosen, plan, args.set, args.jobs, args.keep)
    listed = chosen
    if args.brief:
        judged = [who for who in plan if who != CUBIC]
        listed = [cell for cell in chosen if any(found.misses(cell, who, plan[who]) for who in judged)]
    print(report(found, listed, plan))
    print()
    print(counts(found, chosen, plan))
    if args.write:
        write(found, chosen, plan)
    return 0


if __name__ == "__main__":
    page.end(main)
