"""The papers' experiments: a page with all figures under build/, and the tables and pictures of docs/papers.

    .venv/bin/python scripts/reproduction.py         # a quarter of an hour on two cores, unless the runs are kept
    .venv/bin/python scripts/reproduction.py B       # of one paper, by its family: its tables and pictures alone

The tables are docs/data/papers-*.csv, the pictures docs/pictures/papers; the text of the pages is written by hand, but
for what stands between the marks `answer` and `readings`.
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


def main(ids: list[str]) -> None:
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
            result = reproduce(ids or ["all"], progress=progress)
        save(result, draft)
    for family in PAGES:
        if any(part.experiment.id[0] == family for part in result.parts):
            _paper(result, family)
    if not ids:
        page.put(DOCS / "reproduction.md", "headline", write.answered(result))
        for name, title, (heads, rows) in (
            ("papers-verdicts", "The verdicts, by paper", write.families(result)),
            ("papers-shown", "Numbers beside the papers' without a bound", write.shown(result)),
            ("papers-places", "The papers' figures and tables by their numbers", write.places(result)),
        ):
            page.save(name, title, page.table(heads, rows), result.command, write.note(result))
    print(f"{DOCS.relative_to(ROOT)}/papers\n{(BUILD / 'reproduction.html').relative_to(ROOT)}")


def _paper(result: Result, family: str) -> None:
    """Write what the page of a paper shows: its outcome, its readings, its table, its pictures."""
    from papers.engine import write
    from validation import page

    name = PAGES[family]
    text = DOCS / "papers" / f"{name}.md"
    said = f"Commit {write.commit()}, `{result.command}`. {write.answer(result, family)}"
    page.put(text, "answer", said)
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
    wanted = set(re.findall(r"\(\.\./pictures/papers/([a-z0-9-]+)\.png\)", text.read_text(encoding="utf-8")))
    for part in result.parts:
        for figure in part.experiment.figures:
            if picture(part, figure) in wanted and figure.pixels == part.medium.pixels:
                _draw(part, figure)


def picture(part: Part, figure: Figure) -> str:
    """Return the name of a figure's picture: "k-a-figure-3"."""
    return re.sub(r"[^a-z0-9]+", "-", f"{part.experiment.id} {figure.number}".lower()).strip("-")


def _draw(part: Part, figure: Figure) -> None:
    """Save a figure as a small PNG: few colours are enough for lines."""
    from PIL import Image

    from papers.engine.draw import drawing

    made = drawing(figure, part)
    if made is None:
        return
    raw = io.BytesIO()
    made.figure.savefig(raw, format="png", dpi=_DPI, metadata={"Software": None})
    PICTURES.mkdir(parents=True, exist_ok=True)
    few = (
        Image.open(raw)
        .convert("RGB")
        .quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    few.save(PICTURES / f"{picture(part, figure)}.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
