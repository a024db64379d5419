"""RFC 8867's test cases with all controllers, as docs/data/test-cases*.csv have them.

    python -m validation.cases            # prints the tables
    python -m validation.cases --write    # writes them into docs/data
    python -m validation.cases --c4 --seeds 10 --write    # C4's scenarios alone: test-cases-c4.csv
    python -m validation.cases --c4 --own --seeds 100 --write    # those that are a TCP's own, beside the others' rows

With --keep DIR what each controller's runs came to stays there, and a second call runs only those that are missing.

The same as `steadycast test-cases rfc8867 --seeds 1-5`.
"""

from __future__ import annotations

import math
import pickle
import statistics
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from validation import page

if TYPE_CHECKING:
    from steadycast.cases.case import Case, Variant
    from steadycast.cases.suite import Suite

HELD, CASES, BOUNDS, C4 = "test-cases-held", "test-cases", "test-cases-bounds", "test-cases-c4"


def held(suite: Suite) -> page.Table:
    """Return how many bounds of each case hold with every seed, of all, and in how many cases each is behind."""
    rows = []
    for name in suite.controllers:
        cells = (suite.verdict(case, name) for case in suite.cases)
        told = [f"{held}/{all_}" if all_ else "–" for held, all_ in cells]
        rows.append([f"`{name}`", *told, str(len(behind(suite, name)))])
    return page.table(["controller", *(case.id for case in suite.cases), "behind"], rows)


def behind(suite: Suite, name: str) -> list[str]:
    """Return RFC 8867's cases in which a controller keeps fewer bounds than the best of the others.

    Those that do not answer to the network are not among the others.
    """
    from steadycast.controllers import registry

    deaf = {entry.name for entry in registry() if entry.feedback == "none"}
    others = [other for other in suite.controllers if other != name and other not in deaf]
    found = []
    for case in suite.cases:
        held, all_ = suite.verdict(case, name)
        best = max((suite.verdict(case, other)[0] for other in others), default=0)
        if case.rfc.startswith("RFC 8867") and all_ and held < best:
            found.append(case.id)
    return found


def bounds(suite: Suite) -> page.Table:
    """Return what each case expects, and the bounds that say so."""
    from steadycast.cases.show import described, ends
    from steadycast.cases.suite import Judged

    rows = []
    for case in suite.cases:
        for bound in case.bounds:
            each = Judged(case, case.variants[0], bound, {})
            source = f" ({bound.source})" if bound.source else ""
            told = f"{bound.why}{source}: {described(each)} {ends(bound)}"
            rows.append([case.id, case.title, case.rfc, case.expects, told])
    return page.table(["case", "title", "source", "expected", "bound"], rows)


def measures(suite: Suite) -> page.Table:
    """Return what each controller did in each variant of each case, and which bounds fail, with how many seeds."""
    from steadycast.cases.show import COLUMNS
    from steadycast.cases.suite import takes_part

    rows = []
    for case in suite.cases:
        for variant in case.variants:
            if not any(case.judges(bound, variant) for bound in case.bounds):
                continue
            for name in suite.controllers:
                if not takes_part(case, name):
                    continue
                cells = [how(suite.spread(case, variant, name, key)) for _, key, how in COLUMNS]
                bad = ", ".join(dict.fromkeys(_failed(suite, case, variant, name)))
                rows.append([case.id, case.title, variant.name, f"`{name}`", *cells, bad])
    heads = ["case", "title", "variant", "controller", *(heading for heading, _, _ in COLUMNS)]
    return page.table([*heads, "bounds that fail"], rows)


def _failed(suite: Suite, case: Case, variant: Variant, name: str) -> list[str]:
    return [
        each.bound.measure + (f" ({len(each.values) - each.kept} of {len(each.values)})" if each.kept else "")
        for each in suite.judged(case, name)
        if each.variant is variant and not each.holds
    ]


def whole(seeds: Sequence[int], keep: Path) -> Suite:
    """Run all cases with each controller of the registry, but for those whose runs are in the folder."""
    from dataclasses import replace

    from steadycast.cases import run_cases
    from steadycast.controllers import registry

    keep.mkdir(parents=True, exist_ok=True)
    suites = []
    for entry in registry():
        place = keep / f"{entry.name}.pickle"
        if not place.exists():
            place.write_bytes(pickle.dumps(run_cases([entry.name], seeds=seeds)))
        suites.append(pickle.loads(place.read_bytes()))
    runs = {task: done for suite in suites for task, done in suite.runs.items()}
    first: Suite = suites[0]
    return replace(first, controllers=tuple(entry.name for entry in registry()), runs=runs)


def c4(seeds: Sequence[int], *, own: bool) -> page.Table:
    """Run C4's cases, and return a row for each bound and controller; a value that is missing is the largest."""
    from steadycast.cases import run_cases
    from steadycast.cases.case import chosen

    who = ("cubic", "bbr", "bbr1", "steady", "gcc", "scream", "nada", "tfrc")
    files = [case.id for case in chosen((), "c4") if own and not {"video", "tcp"} & set(case.takes)]
    suite = run_cases(who, suite="c4", seeds=seeds, case=files)
    rows = []
    for case, name in product(suite.cases, suite.controllers):
        for each in suite.judged(case, name):
            values = [math.inf if value is None else value for value in each.values.values()]
            cells = (f"{x:.3g}" if x < math.inf else "–" for x in (statistics.median(values), max(values)))
            verdict = "holds" if each.holds else f"[{each.kept} of {len(values)}]"
            key = [case.id, each.bound.measure, f"{each.bound.max:g}", f"`{name}`"]
            rows.append([*key, str(len(values)), *cells, verdict])
    return page.table(["file", "measure", "its target", "by", "seeds", "median", "worst", "verdict"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the tables."""
    parser = page.options("validation.cases", __doc__, HELD, CASES, BOUNDS, C4, seeds=5)
    parser.add_argument("--keep", type=Path, help="where what the runs came to stays, by controller")
    parser.add_argument("--c4", action="store_true", help="C4's scenarios alone")
    parser.add_argument("--own", action="store_true", help="of these the files of CUBIC and BBR alone")
    args = parser.parse_args(argv)
    if args.c4:
        args.command = "python -m validation.cases --c4 --seeds 10 --write, then with --own --seeds 100"
        note = "seeds from 1; empty: not within twice the target, or frames are missing"
        made = page.merged(C4, c4(range(1, args.seeds + 1), own=args.own), 4)
        page.show(args, C4, "C4's scenarios, and their own targets", made, note)
        return 0
    with TemporaryDirectory(prefix="steadycast-") as scratch:
        suite = whole(range(1, args.seeds + 1), args.keep or Path(scratch))
    for error in suite.errors:
        print(error, file=sys.stderr)
    seeds = f"seeds 1-{args.seeds}"
    behind = "in how many of RFC 8867's cases fewer hold than with the best other that answers to the network"
    title = "Bounds of each case that hold with every seed, of all"
    page.show(args, HELD, title, held(suite), f"{seeds}; behind: {behind}")
    title = "What each controller did in each case of RFC 8867 and RFC 8869"
    page.show(args, CASES, title, measures(suite), seeds)
    page.show(args, BOUNDS, "What each case expects, and the bounds that say so", bounds(suite))
    return 1 if suite.errors else 0


if __name__ == "__main__":
    page.end(main)
