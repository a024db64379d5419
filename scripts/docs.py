"""What in docs/ is made by a command: the glossary, and the README's figure and table.

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
FIGURE = PICTURES / "demo-rates.png"
README = ROOT / "README.md"
BEGIN, END = "<!-- demo: begin -->", "<!-- demo: end -->"
ABOUT = "A video under asmp beside a TCP flow that starts after 5 s"
HEAD = """# Glossary

The words of reports, tables and `summary.json`. Made by `make figures` from the list that the reports themselves use
(`python/steadycast/report/words.py`); change it there.

| word | what it means |
|---|---|
"""


def glossary() -> str:
    """Return the page, in the order of the alphabet."""
    rows = (
        f"| **{word}** | {text} |\n" for word, text in sorted(GLOSSARY.items(), key=lambda e: e[0].lower())
    )
    return HEAD + "".join(rows)


def pictures() -> None:
    """Run the demo; draw its figure, and put its table into the README."""
    from rich.console import Console
    from steadycast.folder import Folder
    from steadycast.report import figures, terminal
    from steadycast.run import run

    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        summary = run(ROOT / "scenarios" / "demo.toml", out=place).summary
        figures.save(Folder.open(place), "rates", FIGURE)
    console = Console(width=80, color_system=None)
    with console.capture() as said:
        console.print(terminal.flows(summary))
    table = "\n".join(line.rstrip() for line in said.get().rstrip().splitlines())
    shown = f"![{ABOUT}]({FIGURE.relative_to(ROOT)})\n\n```\n{table}\n```\n\n*{ABOUT}: `make demo`.*"
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{shown}\n{END}{after}", encoding="utf-8")
    print(FIGURE, README, sep="\n")


if __name__ == "__main__":
    PAGE.write_text(glossary(), encoding="utf-8")
    print(PAGE)
    if "glossary" not in sys.argv[1:]:
        pictures()
