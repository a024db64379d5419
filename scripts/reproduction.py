"""All of the papers' experiments: page, table and numbers under build/, and what docs/reproduction.md counts.

    .venv/bin/python scripts/reproduction.py         # a quarter of an hour, unless the runs are kept

The text of docs/reproduction.md is written by hand; what stands there between the marks is made.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
BUILD = ROOT / "build" / "reproduction"
MARKS = ("headline", "tables")


def between(text: str, mark: str, made: str) -> str:
    """Return the text with what stands between two marks replaced.

    Raises:
        ValueError: a mark is missing.

    """
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->\n"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{PAGE}: the marks of {mark} are missing")
    return f"{before}{begin}{made.strip()}\n{end}{after}"


def main() -> None:
    """Run what is not kept, and write."""
    # The laboratory is a package of the checkout, not an installed one.
    sys.path.insert(0, str(ROOT))
    from steadycast.progress import Terminal

    from papers.engine import write
    from papers.engine.suite import reproduce, save

    with Terminal() as progress:
        result = reproduce(["all"], progress=progress)
    BUILD.parent.mkdir(exist_ok=True)
    save(result, BUILD)
    text = PAGE.read_text(encoding="utf-8")
    for mark, made in zip(MARKS, (write.headline(result), write.tables(result)), strict=True):
        text = between(text, mark, made)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}\n{(BUILD / 'reproduction.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
