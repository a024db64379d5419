"""Losses and frames after repair: docs/data/repair*.csv.

    python -m validation.repair                      # prints the simulated one
    python -m validation.repair --write              # writes it into docs/data
    python -m validation.repair --emulated --write   # two of its rows over real sockets, in real time; needs root
    python -m validation.repair --parts --write      # what repair and `vbr = "frame"` each do to the video's rate
    python -m validation.repair --rooms --write      # three values of `room` beside each other, with seeds 6 to 45
    python -m validation.repair --rows home --seeds 2
    python -m validation.repair --clips a.mkv b.mkv --write     # rows with one receiver, with these instead of the
                                                                # synthetic clip

Each row is a set-up, run with five seeds: "before" without repair, with a quantizer per group of pictures and a fixed
play-out delay; "now" as the row says. Cells are means over the seeds and, behind them, the worst seed. What misses its
bound stands in brackets. `--emulated` runs its rows in both worlds for a minute and sets them side by side. `--parts`
switches repair and the quantizer per frame on and off, each alone and both, beside CoDel and FQ-CoDel. `--rooms`
compares values of `room` with seeds of its own, which have chosen nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from papers.engine.runs import processes
from validation import page, simulated

ROOT = Path(__file__).resolve().parent.parent
Json = Mapping[str, Any]

HEAD = """
format = 1
name = "repair"
duration = "{duration}"
warmup = "5s"
"""
DUMBBELL = """
[topology]
shape = "dumbbell"
bottleneck = {bottleneck}
access = {{ rate = "1Gbps", delay = "0ms" }}
"""
VIDEO = """
[[flow]]
name = "video"
kind = "video"
"""
NOW = {"flow.video.repair": "auto", "flow.video.vbr": "frame"}


def dumbbell(bottleneck: str, duration: str, flow: str, more: str = "") -> str:
    """Scenario of one video over one link."""
    return HEAD.format(duration=duration) + DUMBBELL.format(bottleneck=bottleneck) + VIDEO + flow + more


CIF = 'media = "synthetic"\nencode = { size = "cif" }\n'


def lossy(loss: str, playout: str, duration: str = "180s") -> str:
    """Pictures at 1.5 Mb/s over 60 ms with loss both ways."""
    link = f'{{ rate = "10Mbps", delay = "30ms", loss = {loss}, back = {{ loss = {loss} }} }}'
    flow = f'controller = "fixed"\n{CIF}params.fixed = {{ rate = "1500kbps" }}\nplayout = "{playout}"\n'
    return dumbbell(link, duration, flow)


GREEDY = dumbbell(
    '{ rate = "20Mbps", delay = "20ms", loss = { kind = "bernoulli", p = 0.05 }, '
    'back = { rate = "20Mbps", loss = { kind = "bernoulli", p = 0.05 } } }',
    "1000s",
    'controller = "fixed"\nmedia = "greedy"\nparams.fixed = { rate = "4Mbps" }\npacket = "500B"\nplayout = "105ms"\n'
    'rtcp = { profile = "avpf", session_bw = "20Mbps" }\n',
)
TCP = """
[[flow]]
name = "tcp"
kind = "tcp"
preset = "linux"
congestion = "cubic"
packet = "1200B"
start = { uniform = ["0s", "1s"] }
send_jitter = "1ms"
"""
RED = dumbbell(
    '{ rate = "4Mbps", delay = "20ms", queue = { kind = "red", preset = "classic" } }',
    "120s",
    f'controller = "asmp"\n{CIF}packet = "1200B"\nplayout = "1s"\n',
    TCP,
)


def group(receivers: int, last: float, duration: str, flow: str) -> str:
    """Group behind 4 Mb/s and 60 ms, of which each member loses 1 % on its own, and the last another share."""

    def leg(name: str, p: float) -> str:
        loss = f'{{ kind = "bernoulli", p = {p} }}'
        return f'{{ name = "{name}", rate = "10Mbps", delay = "10ms", loss = {loss} }}'

    legs = (
        f'  {{ name = "src", rate = "4Mbps", delay = "20ms" }},\n'
        f"  {leg(f'r[1-{receivers - 1}]', 0.01)},\n  {leg('far', last)},\n"
    ).replace(f'r[1-{receivers - 1}]"', f'r[1-{receivers - 1}]", count = {receivers - 1}')
    star = f'[topology]\nshape = "star"\nlegs = [\n{legs}]\n'
    to = f'from = "src"\nto = ["r[1-{receivers - 1}]", "far"]\nplayout = "500ms"\n'
    return HEAD.format(duration=duration) + star + VIDEO + flow + to


def video(summary: Json) -> Json:
    """Video flow of a run."""
    return next(flow for flow in summary["flows"] if flow["name"] == "video")


def missed(receiver: Json) -> float:
    """Share of frames that a receiver did not show whole and in time."""
    return 1 - float(receiver["frames"]["ok_frac"])


def first(summary: Json) -> float:
    """Share of frames that the first receiver missed."""
    return missed(video(summary)["receivers"][0])


def below(summary: Json, part: float) -> float:
    """Share of frames that this part of a group's receivers stays below."""
    shares = sorted(missed(r) for r in video(summary)["receivers"])
    return shares[int(part * len(shares))]


def last(summary: Json) -> float:
    """Share of frames that the last receiver missed."""
    return missed(video(summary)["receivers"][-1])


def residual(summary: Json) -> float:
    """Share of packets that repair left missing."""
    return float(video(summary)["receivers"][0]["loss_after_repair_frac"])


def again(summary: Json) -> float:
    """Packets that were sent again."""
    return float(video(summary)["repair_packets"])


def frac(value: float) -> str:
    """Share in per cent."""
    return f"{100 * value:.2f} %"


def small(value: float) -> str:
    """Residual loss."""
    return f"{value:.2e}"


HOME = ROOT / "scenarios" / "home.toml"
OLD = {"flow.video.repair": "none", "flow.video.vbr": "bucket", "flow.video.playout": "300ms"}
BERNOULLI = '{ kind = "bernoulli", p = 0.01 }'
GILBERT = '{ kind = "gilbert", p_bad = 0.01316, p_good = 0.25 }'
ASKED = {"flow.video.repair": "rtx"}
FIXED = f'controller = "fixed"\n{CIF}params.fixed = {{ rate = "1Mbps" }}\n'


@dataclass(frozen=True)
class Row:
    """One set-up, what is measured in it, and its bound."""

    key: str
    name: str
    scenario: str | Path
    bound: float
    of: Callable[[Json], float]
    now: Mapping[str, str] = field(default_factory=lambda: NOW)
    before: Mapping[str, str] | None = field(default_factory=dict)
    text: Callable[[float], str] = frac


def rows() -> Iterator[Row]:
    """Yield all set-ups."""
    every = "5 % independent loss both ways, one try: residual"
    yield Row("residual", every, GREEDY, 1.3 * 4.88e-3, residual, ASKED, None, small)
    twice = {**ASKED, "flow.video.playout": "160ms"}
    yield Row("residual", "the same, two tries", GREEDY, 1.3 * 4.75e-4, residual, twice, None, small)
    yield Row(
        "lossy", "1 % independent loss, 60 ms, play-out 300 ms", lossy(BERNOULLI, "300ms"), 0.001, first
    )
    red = "beside one TCP, RED `classic`, 4 Mb/s, 40 ms, 1200 B, play-out 1 s, asmp"
    yield Row("red", red, RED, 0.01, first)
    for queue, bound in (("droptail", 0.03), ("codel", 0.02), ("fq-codel", 0.01)):
        for controller in ("asmp", "tfmcc", "tfrc"):
            change = {"flow.video.controller": controller}
            if queue != "droptail":
                change["topology.bottleneck.queue"] = f'{{ kind = "{queue}" }}'
            play = {"flow.video.playout": "adaptive" if queue == "droptail" else "300ms"}
            wait = "adaptive up to 800" if queue == "droptail" else "300"
            name = f"home.toml, {queue}, play-out {wait} ms, {controller}"
            yield Row("home", name, HOME, bound, first, {**NOW, **change, **play}, {**OLD, **change})
    bursts = "5 % Gilbert–Elliott of mean 4, 60 ms, play-out 500 ms"
    yield Row("gilbert", bursts, lossy(GILBERT, "500ms"), 0.01, first)
    for controller in ("asmp", "tfmcc"):
        flow = f'controller = "{controller}"\n{CIF}'
        even, far = (group(45, loss, "300s", flow) for loss in (0.01, 0.03))
        yield Row(
            "group", f"45 receivers, 1 % each, {controller}: 9 of 10", even, 0.005, partial(below, part=0.9)
        )
        yield Row("group", "the same, one behind 3 %: it", far, 0.015, last)
    large = group(10_000, 0.01, "30s", FIXED)
    yield Row(
        "large", "10,000 receivers, 1 % each, fixed: 99 of 100", large, 0.005, partial(below, part=0.99)
    )
    clean = lossy('{ kind = "none" }', "300ms", "60s")
    yield Row("clean", "a clean path: packets sent again", clean, 0.0, again, NOW, None, "{:.0f}".format)


@dataclass(frozen=True)
class Seen:
    """The data of a run for a table's row."""

    value: float
    playout: float | None
    freezes: float
    video_bps: float
    others_bps: float
    extra: float
    """Share of the video's bytes that is repair."""
    score: float


def measure(row: Row, changes: Mapping[str, str], seed: int, clips: Sequence[str]) -> Seen:
    """Run a row's scenario once."""
    told: dict[str, object] = {**changes}
    if clips:
        told |= {"flow.video.clip": list(clips), "flow.video.media": "clip"}
    summary = simulated.run(row.scenario, seed, told).summary
    flow = video(summary)
    receiver = flow["receivers"][0]
    extra = float(flow.get("repair_bps") or 0.0) + float(flow.get("parity_bps") or 0.0)
    others = [f["throughput_bps"] for f in summary["flows"] if f["kind"] == "tcp"]
    return Seen(
        row.of(summary),
        (receiver.get("playout_ms") or {}).get("p95"),
        float(receiver.get("freezes_per_min") or 0.0),
        float(flow["throughput_bps"]),
        sum(others) / len(others) if others else 0.0,
        extra / float(flow["throughput_bps"] or 1.0),
        float(receiver.get("rate_score") or 0.0),
    )


def line(row: Row, runs: Sequence[Sequence[Seen]]) -> list[str]:
    """Lay out a line of the table, of the runs now, and of those before where there are some."""
    *rest, now = runs
    before = rest[0] if rest else ()
    value, worst = fmean([s.value for s in now]), max(s.value for s in now)
    cell = f"{row.text(value)} (to {row.text(worst)})"
    cell = cell if value <= row.bound else f"[{cell}]"
    waits = [s.playout for s in now if s.playout is not None]
    old = row.text(fmean([s.value for s in before])) if before else "–"

    def both(of: Callable[[Seen], float], digits: int) -> str:
        """Write a mean before and now; nothing where there is none now."""
        means = [fmean(map(of, each)) for each in (before, now) if each]
        return " → ".join(f"{mean:.{digits}f}" for mean in means) if of(now[0]) else "–"

    rates, tcp = both(lambda s: s.video_bps / 1e3, 0), both(lambda s: s.others_bps / 1e3, 0)
    score = both(lambda s: s.score, 2)
    wait = f"{fmean(waits):.0f} ms" if waits else "–"
    freezes, extra = f"{fmean([s.freezes for s in now]):.2f}", f"{100 * fmean([s.extra for s in now]):.1f} %"
    return [row.name, old, cell, row.text(row.bound), wait, freezes, score, rates, tcp, extra]


TABLE = [
    "set-up",
    "before",
    "now (worst seed)",
    "at most",
    "play-out, p95",
    "freezes/min",
    "rate score",
    "video, kb/s",
    "a TCP, kb/s",
    "repair's share",
]


BOTH = {"duration": "60s", "warmup": "5s"}
"""What a row that runs in both worlds is given."""
WORLDS = [
    "set-up",
    "seed",
    "video, kb/s",
    "apart",
    "loss before repair",
    "apart",
    "frames not whole and in time",
    "apart",
]


def side_by_side(row: Row, seed: int) -> list[str]:
    """One line: a row simulated and emulated with the same seed."""
    import steadycast as sc
    from steadycast.progress import Silent

    told = {**row.now, **BOTH}
    with TemporaryDirectory() as folder:
        place = Path(folder) / "row.toml"
        place.write_text(str(row.scenario), encoding="utf-8")
        emulated = sc.emulate(place, seed=seed, set=told, quality=False, progress=Silent()).run.summary
    runs = [video(simulated.run(row.scenario, seed, told).summary), video(emulated)]
    rates = [float(flow["throughput_bps"]) / 1e3 for flow in runs]
    losses = [float(flow["receivers"][0]["loss_frac"]) for flow in runs]
    missing = [100 * missed(flow["receivers"][0]) for flow in runs]
    apart = [100 * (two / one - 1) for one, two in (rates, losses)]
    cells = [f"[{gap:+.1f} %]" if abs(gap) > 10 else f"{gap:+.1f} %" for gap in apart]
    points = missing[1] - missing[0]
    shown = f"[{points:+.2f} points]" if abs(points) > 0.3 else f"{points:+.2f} points"
    busy = "" if emulated["emulation"]["trustworthy"] else " (the machine was too busy)"
    speeds = f"{rates[0]:.0f}, {rates[1]:.0f}"
    lost, late = (f"{one:.2f} %, {two:.2f} %" for one, two in ([100 * loss for loss in losses], missing))
    return [row.name + busy, str(seed), speeds, cells[0], lost, cells[1], late, shown]


PARTS = [
    "queue",
    "controller",
    "`vbr`",
    "`repair`",
    "video, kb/s",
    "loss before repair",
    "delay of packets, p95",
    "frames not whole and in time",
]


def factors(seeds: int) -> page.Table:
    """Say what repair and the quantizer per frame do to the video's rate in home.toml, each alone and both."""
    rows = []
    every = product(("codel", "fq-codel"), ("asmp", "tfrc"), ("bucket", "frame"), ("none", "auto"))
    for queue, controller, vbr, repair in every:
        change = {
            "topology.bottleneck.queue": f'{{ kind = "{queue}" }}',
            "flow.video.controller": controller,
            "flow.video.vbr": vbr,
            "flow.video.repair": repair,
            "flow.video.playout": "300ms",
        }
        flows = [video(simulated.run(HOME, seed, change).summary) for seed in range(1, seeds + 1)]
        rate = fmean([float(flow["throughput_bps"]) for flow in flows]) / 1e3
        ends = [flow["receivers"][0] for flow in flows]
        loss = 100 * fmean([float(end["loss_frac"]) for end in ends])
        delay = fmean([float(end["delay_ms"]["p95"]) for end in ends])
        missing = 100 * fmean([missed(end) for end in ends])
        came = [f"{rate:.0f}", f"{loss:.1f} %", f"{delay:.0f} ms", f"{missing:.2f} %"]
        rows.append([queue, controller, vbr, repair, *came])
        print(page.row(rows[-1]), flush=True)
    return page.table(PARTS, rows)


ONE_RECEIVER = ("lossy", "red", "home", "gilbert")
"""Keys of the rows with pictures that go to one receiver."""
ROOMS = ("2.5", "2.25", "2")
"""Values of `room` that are compared."""
UNSEEN = range(6, 46)
"""Seeds with which `room` is compared: no value was chosen with them."""
ROOMS_HEAD = ["set-up", "at most", *(f"`room = {room}`" for room in ROOMS)]


def compared(row: Row, runs: Sequence[Sequence[Seen]]) -> list[str]:
    """One line of the table of rooms: what each value misses, how often it freezes, and its rate."""
    cells = []
    for seen in runs:
        value, worst = fmean([s.value for s in seen]), max(s.value for s in seen)
        freezes, rate = fmean([s.freezes for s in seen]), fmean([s.video_bps for s in seen]) / 1e3
        missing = f"{row.text(value)} (to {row.text(worst)})"
        missing = missing if value <= row.bound else f"[{missing}]"
        often = f"{freezes:.2f}" if freezes <= 1 else f"[{freezes:.2f}]"
        cells.append(f"{missing}, {often}, {rate:.0f} kb/s")
    return [row.name, row.text(row.bound), *cells]


Plan = tuple[Row, Sequence[Mapping[str, str]], Iterable[int]]
"""A row, the changes that it is run with, and the seeds."""


def table(
    heads: Sequence[str],
    plans: Sequence[Plan],
    lay: Callable[[Row, list[list[Seen]]], list[str]],
    clips: Sequence[str] = (),
) -> page.Table:
    """Run all, two at a time, and print each line as soon as it is known."""
    lines = []
    with processes(2) as pool:
        work = [
            [[pool.submit(measure, row, each, seed, clips) for seed in seeds] for each in sets]
            for row, sets, seeds in plans
        ]
        for (row, *_), parts in zip(plans, work, strict=True):
            lines.append(lay(row, [[future.result() for future in part] for part in parts]))
            print(page.row(lines[-1]), flush=True)
    return page.table(heads, lines)


def rooms(chosen: Sequence[Row]) -> page.Table:
    """Compare values of `room` over the rows with pictures towards one receiver, with seeds that have chosen none."""
    plans = [(row, [{**row.now, "flow.video.room": room} for room in ROOMS], UNSEEN) for row in chosen]
    return table(ROOMS_HEAD, plans, compared)


def worlds(chosen: Sequence[Row], seeds: int) -> page.Table:
    """Run the rows that both worlds have, each seed simulated and emulated."""
    lines = []
    for row in chosen:
        for seed in range(1, seeds + 1) if row.key in ("lossy", "red") else ():
            lines.append(side_by_side(row, seed))
            print(page.row(lines[-1]), flush=True)
    return page.table(WORLDS, lines)


def with_and_without(chosen: Sequence[Row], seeds: int, clips: Sequence[str]) -> page.Table:
    """Run the rows as they were before repair, and now."""
    plans: list[Plan] = [
        (
            row,
            [row.now] if row.before is None else [row.before, row.now],
            range(1, 2 if row.key == "large" else seeds + 1),
        )
        for row in chosen
    ]
    return table(TABLE, plans, line, clips)


TITLES = {
    "repair": "What repair leaves of losses",
    "repair-clips": "The same with real clips",
    "repair-emulated": "Repair simulated and in real time",
    "repair-rooms": "Values of `room`, each: frames not whole (to the worst seed), freezes per minute, rate",
    "repair-parts": "What repair and the quantizer per frame do to the rate of home.toml",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line as soon as it is known, and write the table where it is asked for."""
    parser = page.options("validation.repair", __doc__, *TITLES, seeds=5)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--clips", nargs="*", default=[])
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--rooms", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows() if not options.rows or row.key in options.rows]
    clips = [str(Path(clip).resolve()) for clip in options.clips]
    with_pictures = [row for row in chosen if row.key in ONE_RECEIVER]
    words: Sequence[str] = ()
    if options.parts:
        name, words, made = "repair-parts", ("--parts",), factors(options.seeds)
    elif options.rooms:
        name, words, made = "repair-rooms", ("--rooms",), rooms(with_pictures)
    elif options.emulated:
        name, words, made = "repair-emulated", ("--emulated",), worlds(chosen, options.seeds)
    elif clips:
        name, words = "repair-clips", ("--clips", *(Path(clip).name for clip in clips))
        made = with_and_without(with_pictures, options.seeds, clips)
    else:
        name, made = "repair", with_and_without(chosen, options.seeds, [])
    if options.write:
        page.save(name, TITLES[name], made, " ".join(["python -m validation.repair", *words, "--write"]))
    return 0


if __name__ == "__main__":
    page.end(main)
