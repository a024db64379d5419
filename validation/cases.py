"""RFC 8867's test cases with all controllers, as docs/test-cases.md has them.

    python -m validation.cases            # prints the tables
    python -m validation.cases --write    # writes them into docs/test-cases.md

The same as `steadycast test-cases rfc8867 --seeds 1-5`, as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from validation import page

if TYPE_CHECKING:
    from steadycast.cases import Suite
    from steadycast.cases.case import Case, Variant

PAGE = page.DOCS / "test-cases.md"


def tables(suite: Suite) -> str:
    """Return what the command found: how many bounds held, which ones did not, and the measures of each case."""
    made = page.stamp("python -m validation.cases --write", f"seeds {suite.seeds[0]}-{suite.seeds[-1]}")
    parts = [made, _held(suite), *(_case(suite, case) for case in suite.cases)]
    return "\n\n".join(part for part in parts if part)


def _held(suite: Suite) -> str:
    lines = [row(["controller", *(case.id for case in suite.cases)]), row(["---"] * (len(suite.cases) + 1))]
    for name in suite.controllers:
        cells = (suite.verdict(case, name) for case in suite.cases)
        lines.append(row([f"`{name}`", *(f"{held}/{all_}" if all_ else "–" for held, all_ in cells)]))
    return "\n".join(["### Bounds that hold with every seed", "", *lines])


def _case(suite: Suite, case: Case) -> str:
    from steadycast.cases import takes_part

    names = [name for name in suite.controllers if takes_part(case, name)]
    if not names:
        return f"### {case.id} {case.title}\n\n{case.rfc}: {case.expects} No controller has a priority."
    lines = [f"### {case.id} {case.title}", "", f"{case.rfc}: {case.expects}", "", *_bounds(case)]
    variants = [variant for variant in case.variants if any(case.judges(b, variant) for b in case.bounds)]
    for variant in variants:
        lines += ["", *_measures(suite, case, variant, names)]
    return "\n".join(lines)


def _bounds(case: Case) -> list[str]:
    """Say what is bounded, and by what."""
    from steadycast.cases import Judged
    from steadycast.cases.show import described, ends

    lines = []
    for bound in case.bounds:
        each = Judged(case, case.variants[0], bound, {})
        source = f" ({bound.source})" if bound.source else ""
        lines.append(f"- {bound.why}{source}: {described(each)} {ends(bound)}")
    return lines


def _measures(suite: Suite, case: Case, variant: Variant, names: Sequence[str]) -> list[str]:
    from steadycast.cases.show import COLUMNS

    heads = [variant.name or "controller", *(heading for heading, _, _ in COLUMNS), "bounds that fail"]
    lines = [row(heads), row(["---"] * len(heads))]
    for name in names:
        cells = [how(suite.spread(case, variant, name, key)) for _, key, how in COLUMNS]
        bad = [
            each.bound.measure
            + (f" ({len(each.values) - each.kept} of {len(each.values)})" if each.kept else "")
            for each in suite.judged(case, name)
            if each.variant is variant and not each.holds
        ]
        lines.append(row([f"`{name}`", *cells, ", ".join(dict.fromkeys(bad))]))
    return lines


def row(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the tables."""
    parser = argparse.ArgumentParser(prog="python -m validation.cases", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/test-cases.md")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args(argv)
    from steadycast.cases import run_cases

    suite = run_cases(seeds=range(1, args.seeds + 1))
    for error in suite.errors:
        print(error, file=sys.stderr)
    if args.write:
        page.put(PAGE, "tables", tables(suite))
    else:
        print(tables(suite))
    return 1 if suite.errors else 0


if __name__ == "__main__":
    sys.exit(main())
