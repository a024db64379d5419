"""C4's scenarios with our TCPs and media controllers, beside the files' own targets: docs/test-cases.md.

    python -m validation.c4            # ten seeds, 90 s of a processor; prints the table
    python -m validation.c4 --write    # writes it into docs/data

The same as `steadycast test-cases c4` with these controllers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import product

from validation import page

NAME = "test-cases-c4"
WHO = ("cubic", "bbr", "bbr1", "steady", "gcc", "scream", "nada", "tfrc")


def table(seeds: int) -> page.Table:
    """Run all cases, and return a row for each bound and controller; a value that is missing is larger than any."""
    from steadycast.cases import run_cases

    suite = run_cases(WHO, suite="c4", seeds=range(1, seeds + 1))
    rows = []
    for case, name in product(suite.cases, suite.controllers):
        for each in suite.judged(case, name):
            values = [math.inf if value is None else value for value in each.values.values()]
            cells = (f"{x:.3g}" if x < math.inf else "–" for x in (statistics.median(values), max(values)))
            verdict = "holds" if each.holds else f"[{each.kept} of {seeds}]"
            rows.append([case.id, each.bound.measure, f"{each.bound.max:g}", f"`{name}`", *cells, verdict])
    return page.table(["file", "measure", "its target", "by", "median", "worst", "verdict"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    args = page.options("validation.c4", __doc__, NAME, seeds=10).parse_args(argv)
    made = table(args.seeds)
    print(made)
    if args.write:
        note = f"seeds 1-{args.seeds}; empty: not within twice the target, or frames are missing"
        page.save(
            NAME, "C4's scenarios, and their own targets", made, "python -m validation.c4 --write", note
        )
    return 0


if __name__ == "__main__":
    page.end(main)
