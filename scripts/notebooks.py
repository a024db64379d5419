"""Runs the notebooks of examples/notebooks and stores their outputs in them. The site's page shows both.

    .venv/bin/python scripts/notebooks.py            # all six; or some of their names

It needs the extra `notebooks`. Each notebook has a digest of the code that made its outputs.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
PICTURES = "pictures/notebooks"
HEAD = """\
# Notebooks

The notebooks of [examples/notebooks](../examples/notebooks) with what they print. The tests run them;
`python scripts/notebooks.py` stores what they print. Pictures and PSNR depend on the version of FFmpeg.
"""
INLINE = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')


def main(names: list[str]) -> None:
    """Run notebooks, and store their outputs in them."""
    import nbformat
    from nbclient import NotebookClient

    for file in files():
        if names and file.stem not in names:
            continue
        book = nbformat.read(file, as_version=4)
        NotebookClient(
            book, timeout=600, record_timing=False, resources={"metadata": {"path": str(NOTEBOOKS)}}
        ).execute()
        for cell in (cell for cell in book.cells if cell.cell_type == "code"):
            # A progress bar leaves an empty output.
            cell.outputs = [o for o in cell.outputs if o.get("data", {}).get("text/html") != ""]
        book.metadata.pop("language_info", None)
        book.metadata["steadycast"] = {"code": digest(book)}
        nbformat.write(book, file)
        print(file)


def files() -> list[Path]:
    """Return the notebooks, in their order."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def read(file: Path) -> dict[str, Any]:
    """Read a notebook as it is stored."""
    return json.loads(file.read_text(encoding="utf-8"))


def text(parts: str | list[str]) -> str:
    """Return a text that a notebook may store as lines."""
    return parts if isinstance(parts, str) else "".join(parts)


def digest(book: Any) -> str:
    """Return the digest of a notebook's code, by which outputs of older code are recognised."""
    code = [text(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    return sha256("\0".join(code).encode()).hexdigest()


def page() -> tuple[str, dict[str, bytes]]:
    """Return the site's page of all notebooks, and its pictures by path below docs/."""
    parts, pictures = [HEAD], dict[str, bytes]()
    for file in files():
        for cell in read(file)["cells"]:
            source = text(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(words(source, file))
                continue
            parts.append(f"```python\n{source}\n```\n")
            parts += [printed(cell["id"], output, pictures) for output in cell["outputs"]]
    return "\n".join(part for part in parts if part), pictures


def words(source: str, file: Path) -> str:
    """Return a cell's text for the page: with its heading one level deeper, and a link to the notebook."""
    source = re.sub(r"\]\(\.\./\.\./docs/", "](", source)
    link = f"[{file.name}](../examples/notebooks/{file.name})"
    return re.sub(r"^# (.*)$", rf"## \1\n\n{link}", source, flags=re.MULTILINE) + "\n"


def printed(cell: str, output: Any, pictures: dict[str, bytes]) -> str:
    """Return the text of one output of a cell. A picture is added to `pictures`."""
    if output["output_type"] == "stream":
        return f"```\n{text(output['text']).rstrip()}\n```\n"
    data = {kind: text(value) for kind, value in output.get("data", {}).items()}
    inline = INLINE.search(data.get("text/html", ""))
    svg = data.get("image/svg+xml") or (b64decode(inline[1]).decode() if inline else None)
    plain = data.get("text/plain", "").rstrip()
    parts = [f"```\n{plain}\n```\n"] if plain and not plain.startswith(("<", "Drawing(")) else []
    if svg is not None:
        parts.append(picture(f"{cell}.svg", svg.encode(), pictures))
    elif "image/png" in data:
        parts.append(picture(f"{cell}.png", b64decode(data["image/png"]), pictures))
    return "\n".join(parts)


def picture(name: str, content: bytes, pictures: dict[str, bytes]) -> str:
    """Add a picture to `pictures`, and return the line that shows it."""
    pictures[f"{PICTURES}/{name}"] = content
    return f"![what the cell above shows]({PICTURES}/{name})\n"


if __name__ == "__main__":
    main(sys.argv[1:])
