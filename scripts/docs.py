"""What in docs/ is made by a command: the glossary, and the figures of the README.

    .venv/bin/python scripts/docs.py              # all of it
    .venv/bin/python scripts/docs.py glossary     # the glossary alone

The glossary's one source is the list that reports use, `python/steadycast/report/words.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from steadycast.report.words import GLOSSARY

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "glossary.md"
PICTURES = ROOT / "docs" / "pictures"
HEAD = """# Glossary

The words of reports, tables and `summary.json`. Made by `make figures` from the list that the reports themselves use
(`python/steadycast/report/words.py`); change it there.

| word | what it means |
|---|---|
"""


def glossary() -> str:
    """Return the page, in the order of the alphabet."""
    rows = (f"| **{word}** | {text} |\n" for word, text in sorted(GLOSSARY.items(), key=lambda e: e[0].lower()))
    return HEAD + "".join(rows)


def pictures() -> None:
    """Draw the demo's figures, from a run of its own."""
    from steadycast.folder import Folder
    from steadycast.report import figures
    from steadycast.run import run

    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        run(ROOT / "scenarios" / "demo.toml", out=place)
        for name in ("rates",):
            figures.save(Folder.open(place), name, PICTURES / f"demo-{name}.png")
            print(PICTURES / f"demo-{name}.png")


if __name__ == "__main__":
    PAGE.write_text(glossary(), encoding="utf-8")
    print(PAGE)
    if "glossary" not in sys.argv[1:]:
        pictures()
