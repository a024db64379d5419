"""The notebooks in examples/ run, and show what they say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, script

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NEEDS = {"5-tuning": "optuna", "6-duckdb": "duckdb"}


def test_the_page_shows_the_cells_of_all_six_notebooks_and_what_they_print() -> None:
    cells = [cell for file in NOTEBOOKS for cell in json.loads(file.read_text())["cells"]]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    page, pictures = script("notebooks").page()
    assert len(NOTEBOOKS) == 6
    assert re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL) == [
        "".join(cell["source"]) for cell in code
    ]
    assert re.findall(r"/(notebooks/\S+\.ipynb)\)$", page, re.MULTILINE) == [
        f"notebooks/{file.name}" for file in NOTEBOOKS
    ]
    assert sorted(pictures) == sorted(set(re.findall(r"\((pictures/\S+)\)", page)))
    assert 6 <= len(pictures) <= len(code)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_stored_was_printed_by_the_code_that_stands_there(file: Path) -> None:
    book = json.loads(file.read_text(encoding="utf-8"))
    remedy = f"python scripts/notebooks.py {file.stem}"
    assert book["metadata"]["steadycast"]["code"] == script("notebooks").digest(book), remedy
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), remedy
    outputs = [output for cell in code for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert str(ROOT) not in json.dumps(outputs), "a path of the machine that ran it"
    assert 1_000 < file.stat().st_size < 250_000, "small"


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_the_notebook_runs(file: Path, tmp_path: Path) -> None:
    nbformat: Any = pytest.importorskip("nbformat", reason="nbclient is not installed")
    nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip(NEEDS.get(file.stem, "sys"), reason=f"{NEEDS.get(file.stem)} is not installed")
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
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
