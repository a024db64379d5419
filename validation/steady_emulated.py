"""`steady` in real time beside the kernel's TCP, and the same cells simulated: how near the two worlds are.

    python -m validation.steady_emulated                      # five runs in both worlds: half an hour, as root
    python -m validation.steady_emulated --runs 1 --cells E1
    python -m validation.steady_emulated --write              # docs/data/steady-emulated.csv

The cells are those of validation/steady.py: A1, the middle of B1 beside CUBIC, Reno and BBR, B3, C1 with two, and E1. A
run that says of itself that it is not trustworthy is printed and counted as such, and left out of the means.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from papers.engine.runs import processes
from validation import page, simulated
from validation.steady import (
    LABELS,
    READERS,
    SHOWN,
    Cell,
    Seen,
    cells,
    dumbbell,
    figure,
    scenario,
    tcp,
    video,
)

TABLE = "steady-emulated"
MIDDLE = "B1 4 Mb/s 40 ms 2 BDP"
NEAR = 0.1
"""Rates of the two worlds within 10 % are near."""
AT_ONCE = 6
"""A run takes a tenth of a processor at 4 Mb/s."""


def chosen() -> list[Cell]:
    """Return the cells, in the table's order."""
    every = {cell.key: cell for cell in cells()}
    alone = [cell for key, cell in every.items() if cell.row == "A1"]
    own = [
        f"B3 cubic {rate} Mb/s {rtt} ms 100p" for rate, rtt in ((1, 60), (4, 20), (4, 60), (4, 120), (20, 60))
    ]
    queue = '{ kind = "droptail", limit = "27p" }'
    # The kernel's Reno is Linux's own word for NewReno with SACK, and its BBR the first version.
    others = [
        Cell("B1", f"the middle, beside {name}", dumbbell(4, 40, queue, video() + tcp(congestion)))
        for name, congestion in (("Reno", "reno"), ("BBR", "bbr1"))
    ]
    rest = [every[key] for key in (*own, "C1 2 on 4 Mb/s", "E1 CUBIC from 20 to 50 s")]
    return [*alone, every[MIDDLE], *others, *rest]


@dataclass(frozen=True)
class Came:
    """The results of a run."""

    cell: str
    emulated: bool
    seen: Seen
    trusted: bool


def one(folder: Path, key: str, seed: int, *, emulated: bool) -> Came:
    """Run a cell once, in one of the worlds."""
    from steadycast.emulate import emulate
    from steadycast.progress import Silent

    cell = next(cell for cell in chosen() if cell.key == key)
    place = folder / f"{key.replace(' ', '-').replace('/', '')}-{seed}-{emulated}.toml"
    place.write_text(scenario(cell, "steady"))
    if not emulated:
        done = simulated.run(place, seed)
        return Came(key, False, READERS[cell.read](done, cell), True)
    done = emulate(place, seed=seed, quality=False, progress=Silent()).run
    return Came(key, True, READERS[cell.read](done, cell), bool(done.summary["emulation"]["trustworthy"]))


def table(came: Sequence[Came], listed: Sequence[Cell]) -> page.Table:
    """Write a line for each cell and world; the video's emulated rate in its simulated one, in brackets if not near."""
    names = list(dict.fromkeys(name for cell in listed for name in SHOWN[cell.read]))
    rows = []
    for cell in listed:
        worlds = {
            world: [c.seen for c in came if c.cell == cell.key and c.emulated == world and c.trusted]
            for world in (False, True)
        }
        left_out = sum(c.emulated and not c.trusted for c in came if c.cell == cell.key)
        for emulated, seen in worlds.items():
            told = ""
            if emulated and seen:
                ratio = fmean(s["bps"] for s in seen) / fmean(s["bps"] for s in worlds[False])
                told = f"{ratio:.2f}" if abs(ratio - 1) <= NEAR else f"[{ratio:.2f}]"
            figures = (figure(seen, name) or "" if name in SHOWN[cell.read] else "" for name in names)
            world = "emulated" if emulated else "simulated"
            rows.append([cell.key, world, str(left_out) if emulated else "", told, *figures])
    labels = (LABELS.get(name, name) for name in names)
    return page.table(["cell", "world", "runs left out", "rate, emulated in simulated", *labels], rows)


def run_all(listed: Sequence[Cell], runs: int, at_once: int) -> list[Came]:
    """Run the cells in both worlds; real time is shared by several."""
    from steadycast.progress import shown

    came: list[Came] = []
    with (
        TemporaryDirectory() as folder,
        shown() as progress,
        processes(at_once) as pool,
    ):
        waiting = [
            pool.submit(one, Path(folder), cell.key, seed, emulated=emulated)
            for emulated in (True, False)
            for seed in range(1, runs + 1)
            for cell in listed
        ]
        for number, future in enumerate(as_completed(waiting)):
            progress("runs", number, len(waiting))
            came.append(future.result())
    return came


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print the table."""
    parser = page.options("validation.steady_emulated", __doc__, TABLE)
    parser.add_argument("--cells", nargs="+", default=[], help="rows or cells, as A1 or 'A1 4 Mb/s'")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    args = parser.parse_args(argv)
    listed = [c for c in chosen() if not args.cells or any(c.key.startswith(some) for some in args.cells)]
    made = table(run_all(listed, args.runs, args.at_once), listed)
    note = f"{args.runs} runs of each cell in each world"
    page.show(args, TABLE, "The same cells simulated and in real time", made, note)
    return 0


if __name__ == "__main__":
    page.end(main)
