"""Whether a controller that always has data shares a link with one TCP, and how fast it fills an empty link.

    python -m validation.fair                                        # asmp, tfmcc, tfrc; five seeds
    python -m validation.fair asmp --rates 1 4 --rtts 20 40 --seeds 3
    python -m validation.fair --write                                # docs/data/sharing-simulated.csv
    python -m validation.fair --emulated --clips sign-*.mkv          # in real time, beside the kernel's TCP (as root)

Alone on 4 Mb/s: when the first second above 3.6 Mb/s was over, and the loss up to then (bounds: 3 s, 1 %). Beside one
TCP, 60 s from the first packet: Jain's index of the two means (at least 0.95), throughput (at least 0.8 of the fair
share on both sides), the video's loss (below 1 %), when the first second above 1 Mb/s was over (5 s, where its share is
more). Means over the seeds, and from where to where they go; a mean that misses its bound stands in brackets.

Emulated: 4 Mb/s and 40 ms, then one run each on other links, one each with real clips, and all other controllers.
Each run is kept in the cache folder: a second call makes only those that are missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from validation import page

if TYPE_CHECKING:
    from validation.worlds import Film, Seen, Work

SCENARIO = Path(__file__).parent / "scenarios" / "fair.toml"
CONTROLLERS = ("asmp", "tfmcc", "tfrc")
PLAIN = "ffmpeg"
ALONE_ABOVE = 3.6e6
QUEUES = {
    "droptail": '{ kind = "droptail", limit = "50p" }',
    "red": '{ kind = "red", preset = "classic" }',
}
ELSEWHERE = ((1.0, 40.0), (20.0, 40.0), (4.0, 20.0), (4.0, 120.0))
"""Mb/s and ms."""
Bound = Callable[[float], bool]


def free(_: float) -> bool:
    """No bound."""
    return True


@dataclass(frozen=True)
class Column:
    """A number of the table, and what its mean is to be."""

    name: str
    of: Callable[[Seen], float | None]
    digits: int
    good: Bound = free
    judged: Callable[[Seen], float | None] | None = None
    """What the bound is of, where that is not the number itself."""

    def cell(self, runs: Sequence[Seen]) -> str:
        """Mean, in brackets when it misses its bound, and from where to where the runs go."""
        values, judged = (all_of([of(seen) for seen in runs]) for of in (self.of, self.judged or self.of))
        text, spread = "–", ""
        if values is not None:
            text, low, high = (f"{v:.{self.digits}f}" for v in (mean(values), min(values), max(values)))
            spread = "" if low == high else f" ({low}…{high})"
        good = self.good is free or (judged is not None and self.good(mean(judged)))
        return (text if good else f"[{text}]") + spread


def all_of(values: Sequence[float | None]) -> list[float] | None:
    """All values; nothing when one is missing: it was not reached."""
    known = [v for v in values if v is not None]
    return known if len(known) == len(values) else None


def mean(values: Sequence[float]) -> float:
    """Mean."""
    return sum(values) / len(values)


def percent(part: float | None) -> float | None:
    """Convert a share to per cent."""
    return None if part is None else 100 * part


def enough(part: float) -> bool:
    """Whether a part of the fair share is."""
    return part >= 0.8


def filled(seen: Seen) -> float | None:
    """When the first second above 3.6 Mb/s was over."""
    return next((n + 1.0 for n, bps in enumerate(seen.bins) if bps > ALONE_ABOVE), None)


def early_loss(seen: Seen) -> float:
    """Return the loss up to then in per cent of the sent packets; unknown for a second in which no packet arrived."""
    seconds = zip(seen.bins, seen.losses, strict=True)
    known = [(bps, loss) for bps, loss in islice(seconds, int(filled(seen) or 10)) if loss < 1]
    sent = sum(bps / (1 - loss) for bps, loss in known)
    return 100 * (1 - sum(bps for bps, _ in known) / sent) if sent else 0.0


def soon(seen: Seen) -> float | None:
    """When 1 Mb/s was reached, where it is less than the fair share."""
    return seen.to_1mbps if seen.fair_bps > 1e6 else 0.0


ALONE = (
    Column("above 3.6 Mb/s, s", filled, 1, lambda s: s <= 3.0),
    Column("loss by then, %", early_loss, 2, lambda p: p < 1.0),
    Column("later, Mb/s", lambda seen: mean(seen.bins[10:29]) / 1e6, 2),
)
BESIDE = (
    Column("Jain", lambda seen: seen.jain, 3, lambda j: j >= 0.95),
    Column(
        "video, Mb/s",
        lambda seen: seen.video_bps / 1e6,
        2,
        enough,
        lambda seen: seen.video_bps / seen.fair_bps,
    ),
    Column(
        "TCP, Mb/s", lambda seen: seen.tcp_bps / 1e6, 2, enough, lambda seen: seen.tcp_bps / seen.fair_bps
    ),
    Column("loss, %", lambda seen: percent(seen.loss), 2, lambda p: p < 1.0),
    Column("TCP sent again, %", lambda seen: percent(seen.tcp_again), 2),
    Column("1 Mb/s after, s", lambda seen: seen.to_1mbps, 1, lambda s: s <= 5.0, soon),
    Column("CoV", lambda seen: seen.cov, 2),
)
PICTURES = (
    Column("frames not whole, %", lambda seen: percent(seen.frames_damaged), 1),
    Column("PSNR, dB", lambda seen: seen.psnr, 1),
)


@dataclass(frozen=True)
class Row:
    """One line of a table: runs that differ by their seed only."""

    cells: tuple[str, ...]
    work: tuple[Work, ...]


@dataclass(frozen=True)
class Table:
    """A table."""

    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    what: str = ""
    """Which of the world's runs these are."""

    def show(self, found: Mapping[Work, Future[Seen]]) -> list[list[str]]:
        """Print a row as soon as it is known, and how often a run was made again; return the rows."""
        heads = [*self.heads, *(column.name for column in self.columns)]
        print(page.head(heads), flush=True)
        again = 0
        lines: list[list[str]] = []
        for each in self.rows:
            runs = [found[work].result() for work in each.work]
            again += sum(seen.tries - 1 for seen in runs)
            trusted = all(seen.trusted for seen in runs)
            cells = [column.cell(runs) for column in self.columns]
            name = each.cells[0] + ("" if trusted else " (not trustworthy)")
            lines.append([name, *each.cells[1:], *cells])
            print(page.row(lines[-1]), flush=True)
        if again:
            print(f"\nMade again, because they were not trustworthy: {again}.")
        print(flush=True)
        return lines


@dataclass(frozen=True)
class Plan:
    """The parameters of runs: a link, a queue, a TCP and a controller."""

    emulated: bool
    seeds: int
    extra: tuple[str, ...]
    films: Mapping[bool, Film]
    """FFmpeg's, without and with the clips."""
    clips: tuple[str, ...]

    def alone(self, controllers: Sequence[str]) -> Table:
        """Fill 4 Mb/s alone."""
        rows = []
        for controller in controllers:
            sets = [f"flow.video.controller={controller}", "duration=30s", "flow.tcp.start=29.9s"]
            rows.append(Row((controller,), self._work(sets, self.seeds)))
        return Table(("alone on 4 Mb/s",), ALONE, tuple(rows), f"{self.seeds} runs")

    def beside(
        self,
        controllers: Sequence[str],
        links: Sequence[tuple[float, float]],
        queues: Sequence[str],
        tcps: Sequence[str],
        *,
        seeds: int | None = None,
        clips: bool = False,
    ) -> Table:
        """Share with one TCP."""
        rows = []
        for queue in queues:
            for tcp in tcps:
                for rate, rtt in links:
                    for controller in controllers:
                        sets = [
                            f"flow.tcp.congestion={tcp}",
                            f"topology.bottleneck.rate={rate}Mbps",
                            f"topology.bottleneck.delay={rtt / 2 - 2}ms",
                            f"topology.bottleneck.queue={QUEUES[queue]}",
                            *self._video(controller, rate, clips),
                        ]
                        film = self.films[clips] if controller == PLAIN else None
                        work = self._work(sets, seeds or self.seeds, film, clips)
                        rows.append(Row((controller, f"{rate:g}", f"{rtt:g}", queue, tcp), work))
        heads = ("with clips" if clips else "beside one TCP", "Mb/s", "RTT, ms", "queue", "TCP")
        count = seeds or self.seeds
        what = f"{count} run{'s' * (count > 1)}" + (", with pictures" if clips else "")
        return Table(heads, BESIDE + PICTURES if clips else BESIDE, tuple(rows), what)

    def _video(self, controller: str, rate: float, clips: bool) -> list[str]:
        if controller == PLAIN:
            return []
        # Controllers without congestion control run at the fair share, as a user who knows the network would set them.
        sets = [f"flow.video.controller={controller}", f"flow.video.params.fixed.rate={rate / 2}Mbps"]
        if clips:
            files = ", ".join(f'"{clip}"' for clip in self.clips)
            sets += ["flow.video.media=clip", f"flow.video.clip=[{files}]", "flow.video.playout=1s"]
            sets.append('flow.video.encode={ size = "clip", fps = "clip" }')
        return sets

    def _work(
        self, sets: Sequence[str], seeds: int, film: Film | None = None, clips: bool = False
    ) -> tuple[Work, ...]:
        from papers.engine.runs import Job
        from validation.worlds import Work

        changes = (*sets, *self.extra)
        pixels = clips and film is None
        jobs = (Job(SCENARIO, changes, seed, pixels) for seed in range(1, seeds + 1))
        return tuple(Work(job, self.emulated, film) for job in jobs)


def others() -> list[str]:
    """All controllers that the first tables don't have."""
    from steadycast.controllers import controllers

    return [c.name for c in controllers() if c.name not in CONTROLLERS]


def tables(args: argparse.Namespace) -> list[Table]:
    """Plan what is to be run and printed."""
    clips = tuple(str(clip.resolve()) for clip in args.clips)
    films = {}
    if args.emulated and PLAIN in args.controllers:
        from validation import plain

        films = {False: plain.film([]), True: plain.film(args.clips)}
    plan = Plan(args.emulated, args.seeds, tuple(args.set), films, clips)
    links = [(rate, rtt) for rate in args.rates for rtt in args.rtts]
    ours = [name for name in args.controllers if name != PLAIN]
    found = [plan.beside(args.controllers, links, args.queues, args.tcps)]
    if not args.emulated:
        return [plan.alone(ours), *found]
    found += [plan.alone(ours), plan.beside(args.controllers, ELSEWHERE, args.queues, args.tcps, seeds=1)]
    if clips:
        found.append(plan.beside(args.controllers, links, args.queues, args.tcps, seeds=1, clips=True))
    if args.all:
        found.append(plan.beside(others(), links, args.queues, args.tcps))
    return found


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    from steadycast.workers import cores

    parser = page.options("validation.fair", __doc__, *TABLES, seeds=5)
    parser.add_argument("controllers", nargs="*", help=f"emulated also {PLAIN}: plain RTP at 3.8 Mb/s")
    parser.add_argument("--emulated", action="store_true", help="in real time, beside the kernel's TCP")
    parser.add_argument("--clips", nargs="+", type=Path, default=[], help="emulated: real clips, end to end")
    parser.add_argument("--all", action="store_true", help="emulated: the other controllers as well")
    parser.add_argument("--at-once", type=int, help="runs at the same time (8 emulated, or one per core)")
    parser.add_argument("--rates", nargs="+", type=float, help="Mb/s")
    parser.add_argument("--rtts", nargs="+", type=float, help="ms, queues empty")
    parser.add_argument("--queues", nargs="+", choices=QUEUES, default=list(QUEUES))
    parser.add_argument("--tcps", nargs="+", help="as in a scenario's `congestion`")
    parser.add_argument("--set", action="append", default=[], help="as `steadycast run --set`")
    args = parser.parse_args(argv)
    real = args.emulated
    args.controllers = args.controllers or [*CONTROLLERS, *([PLAIN] if real else [])]
    args.rates = args.rates or ([4.0] if real else [1.0, 4.0, 20.0])
    args.rtts = args.rtts or ([40.0] if real else [20.0, 40.0, 120.0])
    args.tcps = args.tcps or (["cubic", "reno"] if real else ["newreno", "cubic"])
    args.at_once = args.at_once or (8 if real else cores())
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print a row as soon as it is known."""
    args = arguments(argv)
    from steadycast.media.prepare import prepare
    from steadycast.progress import shown

    from validation.worlds import results

    todo = tables(args)
    with shown() as progress:
        work = [work for table in todo for row in table.rows for work in row.work]
        prepare([each.job.load() for each in work if each.job.pixels], progress)
        with results(work, args.at_once, progress) as found:
            made = [(table, table.show(found)) for table in todo]
    if args.write:
        write(args, made, page.command("validation.fair", argv))
    return 0


TABLES = ("sharing-simulated", "sharing-emulated", "sharing-alone-simulated", "sharing-alone-emulated")


def write(
    args: argparse.Namespace, made: Sequence[tuple[Table, Sequence[Sequence[str]]]], command: str
) -> None:
    """Write what a world's runs came to: beside one TCP, and alone."""
    world = "emulated" if args.emulated else "simulated"
    told: dict[bool, list[list[str]]] = {True: [], False: []}
    for table, rows in made:
        told[table.columns is ALONE] += [[table.what, *row] for row in rows]
    heads = ["runs", "controller", "Mb/s", "RTT, ms", "queue", "TCP", *(c.name for c in BESIDE + PICTURES)]
    beside = [[*row, *[""] * (len(heads) - len(row))] for row in told[False]]
    title = f"A source that always has data beside one TCP, {world}"
    page.save(f"sharing-{world}", title, page.table(heads, beside), command)
    if told[True]:
        heads = ["runs", "controller", *(c.name for c in ALONE)]
        title = f"A source that always has data, alone on 4 Mb/s, {world}"
        page.save(f"sharing-alone-{world}", title, page.table(heads, told[True]), command)


if __name__ == "__main__":
    page.end(main)
