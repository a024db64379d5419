"""The commands that pages show work.

A block after a line `<!-- run -->` is run; one after `<!-- run: FILE -->` is written to FILE first. The blocks of a
page share a folder with the scenarios and examples of a checkout. All scenarios are shortened. Shell blocks run in
order. Then the blocks in Python run as one program.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, ran

BLOCK = re.compile(r"^<!-- run(?:: (\S+))? -->\n```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT = (
    (re.compile(r'^duration = "[^"]*"', re.MULTILINE), 'duration = "6s"'),
    (re.compile(r'^warmup = "\d+s"', re.MULTILINE), 'warmup = "2s"'),
    (
        re.compile(r'^media = "synthetic"$', re.MULTILINE),
        'media = "synthetic"\nencode = { size = "qcif", q = "4-12" }',
    ),
)
"""Replacements that shorten a scenario. The pages are about commands, not about figures."""
PAGES = (
    "README.md",
    "docs/audio.md",
    "docs/bufferbloat.md",
    "docs/embedding.md",
    "docs/lte.md",
    "docs/tutorial.md",
    "docs/wifi.md",
    "docs/python.md",
    "docs/python-controller.md",
    "docs/scenarios.md",
    "docs/toolchain.md",
)


@dataclass(frozen=True)
class Block:
    """One block of code."""

    file: str
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that are to be run."""
    return [Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def shortened(scenario: str) -> str:
    """Return a scenario with less to simulate and small pictures."""
    for written, short in SHORT:
        scenario = written.sub(short, scenario)
    return scenario


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a folder with the parts of a checkout that the pages use."""
    for name in ("scenarios", "examples", "papers/scenarios"):
        shutil.copytree(ROOT / name, tmp_path / name)
        for scenario in (tmp_path / name).glob("*.toml"):
            scenario.write_text(shortened(scenario.read_text()))
    # A page calls a built-in scenario by its name, and a file in the folder takes precedence. Most scenarios need no
    # pictures.
    for scenario in (ROOT / "scenarios").glob("*.toml"):
        media = "synthetic" if scenario.stem == "ci" else "table2"
        (tmp_path / scenario.name).write_text(
            shortened(scenario.read_text().replace('"synthetic"', f'"{media}"'))
        )
    shutil.copytree(tmp_path / "scenarios" / "traces", tmp_path / "traces")
    return tmp_path


def done(words: list[str], folder: Path) -> None:
    """Run a command; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = ran(words, cwd=folder, env=environment, timeout=None)
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("name", PAGES)
def test_blocks_of_the_page_run(name: str, checkout: Path) -> None:
    found = blocks(ROOT / name)
    assert found
    program = []
    for block in found:
        if block.file:
            (checkout / block.file).write_text(shortened(block.code))
        if block.language in ("py", "python"):
            program.append(block.code)
        elif block.language != "toml":
            done(["bash", "-euo", "pipefail", "-c", block.code], checkout)
    if program:
        done([sys.executable, "-c", "\n".join(program)], checkout)


def test_each_page_with_runnable_blocks_is_run() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    marked = {str(page.relative_to(ROOT)) for page in pages if "<!-- run" in page.read_text(encoding="utf-8")}
    assert marked == set(PAGES)
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text.count("<!-- run") == len(blocks(ROOT / name)), f"{name}: a mark without its block"


def test_the_worked_example_is_the_file() -> None:
    (shown,) = [b.code for b in blocks(ROOT / "docs" / "python-controller.md") if b.file]
    assert shown == (ROOT / "examples" / "aimd.py").read_text()
