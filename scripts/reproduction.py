"""All of the papers' experiments: page, table and numbers under build/, and what docs/reproduction.md counts.

    .venv/bin/python scripts/reproduction.py         # a quarter of an hour, unless the runs are kept

The tables are docs/data/reproduction*.csv; the text of docs/reproduction.md is written by hand, but for its headline.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
BUILD = ROOT / "build" / "reproduction"


def main() -> None:
    """Run what is not kept, and write."""
    # The laboratory is a package of the checkout, not an installed one.
    sys.path.insert(0, str(ROOT))
    from steadycast.folder import Draft
    from steadycast.progress import Terminal

    from papers.engine import write
    from papers.engine.suite import MARK, reproduce, save
    from validation import page

    with Draft(BUILD, force=True, mark=MARK) as draft:
        with Terminal() as progress:
            result = reproduce(["all"], progress=progress)
        save(result, draft)
    page.put(PAGE, "headline", write.answered(result))
    for name, title, heads, rows in write.data(result):
        page.save(name, title, page.table(heads, rows), result.command, write.note(result))
    print(f"{PAGE.relative_to(ROOT)}\n{(BUILD / 'reproduction.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
