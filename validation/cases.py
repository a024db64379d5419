"""RFC 8867's test cases with all controllers, as docs/test-cases.md has them.

    python -m validation.cases            # prints the tables
    python -m validation.cases --write    # writes them into docs/test-cases.md

With --keep DIR what each controller's runs came to stays there, and a second call runs only those that are missing.

The same as `steadycast test-cases rfc8867 --seeds 1-5`, as Markdown.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
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
    lines = [page.head(["controller", *(case.id for case in suite.cases), "behind"])]
    for name in suite.controllers:
        cells = (suite.verdict(case, name) for case in suite.cases)
        told = [f"{held}/{all_}" if all_ else "–" for held, all_ in cells]
        lines.append(page.row([f"`{name}`", *told, str(len(behind(suite, name)))]))
    about = (
        "**behind**: in how many of RFC 8867's cases fewer bounds hold than with the best of the others that answer "
        "to the network."
    )
    return "\n".join(["### Bounds that hold with every seed", "", about, "", *lines])


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
    lines = [page.head(heads)]
    for name in names:
        cells = [how(suite.spread(case, variant, name, key)) for _, key, how in COLUMNS]
        bad = [
            each.bound.measure
            + (f" ({len(each.values) - each.kept} of {len(each.values)})" if each.kept else "")
            for each in suite.judged(case, name)
            if each.variant is variant and not each.holds
        ]
        lines.append(page.row([f"`{name}`", *cells, ", ".join(dict.fromkeys(bad))]))
    return lines


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print or write the tables."""
    parser = page.options("validation.cases", __doc__, PAGE, seeds=5)
    parser.add_argument("--keep", type=Path, help="where what the runs came to stays, by controller")
    args = parser.parse_args(argv)
    with TemporaryDirectory(prefix="steadycast-") as scratch:
        suite = whole(range(1, args.seeds + 1), args.keep or Path(scratch))
    for error in suite.errors:
        print(error, file=sys.stderr)
    page.publish(PAGE, "tables", tables(suite), write=args.write)
    return 1 if suite.errors else 0


if __name__ == "__main__":
    page.end(main)
