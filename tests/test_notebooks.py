"""The notebooks in examples/ run, and show what they say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NEEDS = {"5-tuning": "optuna", "6-duckdb": "duckdb"}


def test_the_page_shows_the_cells_of_all_six_notebooks() -> None:
    cells = [cell for file in NOTEBOOKS for cell in json.loads(file.read_text())["cells"]]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 6
    assert re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL) == code
    assert re.findall(r"/(notebooks/\S+\.ipynb)\)$", page, re.MULTILINE) == [
        f"notebooks/{file.name}" for file in NOTEBOOKS
    ]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_the_notebook_runs_and_is_kept_without_its_output(file: Path, tmp_path: Path) -> None:
    nbformat: Any = pytest.importorskip("nbformat", reason="nbclient is not installed")
    nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip(NEEDS.get(file.stem, "sys"), reason=f"{NEEDS.get(file.stem)} is not installed")
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)

    for name in ("scenarios", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    place = tmp_path / "examples" / "notebooks"
    nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(place)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    shown = "\n".join(str(output) for output in outputs)
    assert str(tmp_path) not in shown
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds & {"text/html", "text/plain"}
    if file.stem[0] in "1234":
        assert kinds & {"image/svg+xml", "image/png"}
    assert len(outputs) >= 3
