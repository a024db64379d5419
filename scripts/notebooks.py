"""Make docs/notebooks.md and its pictures again: the notebooks of examples/notebooks with what they print.

    .venv/bin/python scripts/notebooks.py

It takes the extra `notebooks`, and half a minute.
"""

from __future__ import annotations

import re
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGE = ROOT / "docs" / "notebooks.md"
PICTURES = ROOT / "docs" / "pictures" / "notebooks"
HEAD = """\
# Notebooks

The notebooks of [examples/notebooks](../examples/notebooks) with what they print. The tests run them;
`python scripts/notebooks.py` makes this page again. Pictures and PSNR depend on the version of FFmpeg.
"""
INLINE = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')


def main() -> None:
    """Run the notebooks, and write the page."""
    from nbclient import NotebookClient

    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    parts = [HEAD]
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        book = read(file)
        NotebookClient(book, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
        parts += section(file, book)
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(PAGE)


def read(file: Path) -> Any:
    """Read a notebook."""
    import nbformat

    return nbformat.read(file, as_version=4)


def section(file: Path, book: Any) -> list[str]:
    """Return a notebook's part of the page: its cells, and what each has printed."""
    parts = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(words(cell.source, file))
        else:
            parts.append(f"```python\n{cell.source}\n```\n")
            parts += [shown for output in cell.outputs if (shown := printed(file, cell.id, output))]
    return parts


def words(source: str, file: Path) -> str:
    """Return a cell's words as they stand on the page: its heading one deeper, with a link to the notebook."""
    text = re.sub(r"\]\(\.\./\.\./docs/", "](", source)
    link = f"[{file.name}](../examples/notebooks/{file.name})"
    return re.sub(r"^# (.*)$", rf"## \1\n\n{link}", text, flags=re.MULTILINE) + "\n"


def printed(file: Path, cell: str, output: Any) -> str:
    """Return one output of a cell: its text, and its picture in a file of its own."""
    if output.output_type == "stream":
        return f"```\n{output.text.rstrip()}\n```\n"
    data = output.get("data", {})
    inline = INLINE.search(data.get("text/html", ""))
    svg = data.get("image/svg+xml") or (b64decode(inline[1]).decode() if inline else None)
    text = data.get("text/plain", "").rstrip()
    parts = [f"```\n{text}\n```\n"] if text and not text.startswith(("<", "Drawing(")) else []
    if svg is not None:
        parts.append(picture(f"{cell}.svg", svg.encode()))
    elif "image/png" in data:
        parts.append(picture(f"{cell}.png", b64decode(data["image/png"])))
    return "\n".join(parts)


def picture(name: str, content: bytes) -> str:
    """Write a picture, and return the line that shows it."""
    (PICTURES / name).write_bytes(content)
    return f"![what the cell above shows](pictures/notebooks/{name})\n"


if __name__ == "__main__":
    main()
