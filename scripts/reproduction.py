"""The papers' experiments: a page with all figures under build/, and the tables and pictures of docs/papers.

    .venv/bin/python scripts/reproduction.py         # a quarter of an hour on two cores, unless the runs are kept
    .venv/bin/python scripts/reproduction.py B       # of one paper, by its family: its table and its pictures alone
    .venv/bin/python scripts/reproduction.py B --as-printed       # without the changes, in a third of the time

The tables are docs/data/papers-*.csv, the pictures docs/pictures/papers; the text of the pages is written by hand, but
for what stands between the marks `answer`, `readings` and `figures`.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from papers.engine.experiment import Figure
    from papers.engine.suite import Part, Result

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "reproduction"
PICTURES = DOCS / "pictures" / "papers"
PAGES = {"K": "evalvid-ra", "M": "mpeg-tfrcp", "H": "receiver-buffer", "C": "many-tfrcs", "B": "asmp"}
"""Pages of docs/papers, by the family of their experiments."""
_DPI, _COLOURS = 72, 40


def main(words: list[str]) -> None:
    """Run what is not kept, and write."""
    ids, changes = [word for word in words if word != "--as-printed"], "--as-printed" not in words
    # The laboratory is a package of the checkout, not an installed one.
    sys.path.insert(0, str(ROOT))
    from steadycast.folder import Draft
    from steadycast.progress import Terminal

    from papers.engine import write
    from papers.engine.suite import MARK, reproduce, save
    from validation import page

    with Draft(BUILD, force=True, mark=MARK) as draft:
        with Terminal() as progress:
            result = reproduce(ids or ["all"], progress=progress, changes=changes)
        save(result, draft)
    for family in PAGES:
        if any(part.experiment.id[0] == family for part in result.parts):
            _paper(result, family, changes)
    if not ids and changes:
        page.put(DOCS / "reproduction.md", "headline", write.answered(result))
        for name, title, (heads, rows) in (
            ("reproduction", "The papers' statements, published and measured", write.everything(result)),
            ("reproduction-families", "The verdicts, by paper", write.families(result)),
            ("reproduction-numbers", "The papers' figures and tables by their numbers", write.places(result)),
        ):
            page.save(name, title, page.table(heads, rows), result.command, write.note(result))
    print(f"{DOCS.relative_to(ROOT)}/papers\n{(BUILD / 'reproduction.html').relative_to(ROOT)}")


def _paper(result: Result, family: str, changes: bool) -> None:
    """Write what the page of a paper shows: its outcome, its readings, its table, its pictures."""
    from papers.engine import write
    from validation import page

    name = PAGES[family]
    text = DOCS / "papers" / f"{name}.md"
    said = f"Commit {write.commit()}, `{result.command}`. {write.answer(result, family)}"
    if not changes:
        said += " What the paper leaves open was not varied in these runs: some that do not come out may depend on it."
    page.put(text, "answer", f"{said}\n\nTable: [every statement](../data/papers-{name}.csv).")
    page.put(text, "readings", write.quoted(result, family))
    heads, rows = write.statements(result, family)
    paper = next(p.experiment.paper for p in result.parts if p.experiment.id[0] == family)
    page.save(
        f"papers-{name}",
        f"{paper}: its statements",
        page.table(heads, rows),
        result.command,
        write.note(result),
    )
    parts = [part for part in result.parts if part.experiment.id[0] == family]
    page.put(text, "figures", "\n".join(line for part in parts for line in _gallery(part)).strip())


def _gallery(part: Part) -> list[str]:
    """Draw an experiment's figures, and return the lines that show them, two in a row."""
    e = part.experiment
    drawn = [f for f in e.figures if f.pixels == part.medium.pixels and _draw(part, f)]
    cells = [f"![{f.number}](../pictures/papers/{picture(part, f)}.png)" for f in drawn]
    if not cells:
        return []
    cells += [""] * (len(cells) % 2)
    rows = [f"| {a} | {b} |" for a, b in zip(cells[::2], cells[1::2], strict=True)]
    return [f"**{e.id}**, {e.section}: {e.title}", "", "| | |", "|---|---|", *rows, ""]


def picture(part: Part, figure: Figure) -> str:
    """Return the name of a figure's picture: "k-a-figure-3"."""
    return re.sub(r"[^a-z0-9]+", "-", f"{part.experiment.id} {figure.number}".lower()).strip("-")


def _draw(part: Part, figure: Figure) -> bool:
    """Save a figure as a small PNG, whether there is one: few colours are enough for lines."""
    from PIL import Image

    from papers.engine.draw import drawing

    made = drawing(figure, part)
    if made is None:
        return False
    raw = io.BytesIO()
    made.figure.savefig(raw, format="png", dpi=_DPI, metadata={"Software": None})
    PICTURES.mkdir(parents=True, exist_ok=True)
    few = (
        Image.open(raw)
        .convert("RGB")
        .quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    few.save(PICTURES / f"{picture(part, figure)}.png", optimize=True)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
