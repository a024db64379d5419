"""The commands that pages show work.

A block after a line `<!-- run -->` is run; one after `<!-- run: FILE -->` is written to FILE first. The blocks of a
page share a folder with the scenarios and examples of a checkout. All scenarios are shortened. Shell blocks run in
order. Then the blocks in Python run as one program. The processes of `steadycast` are forked from one that has
imported the libraries, except on the first page, which uses the installed command.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, ran
from tests.preloaded import preloaded

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
    "docs/switching-rule.md",
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


INSTALLED = Path(sys.executable).parent
"""The folder of the installed command."""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a folder with the command whose processes have imported the libraries."""
    with preloaded(tmp_path_factory.mktemp("forked")) as path:
        yield path


def done(words: list[str], folder: Path, commands: Path = INSTALLED) -> None:
    """Run a command; it must succeed. It finds `steadycast` in the folder ``commands``."""
    path = os.pathsep.join([str(commands), str(INSTALLED), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = ran(words, cwd=folder, env=environment, timeout=None)
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("name", PAGES)
def test_blocks_of_the_page_run(name: str, checkout: Path, forked: Path) -> None:
    commands = INSTALLED if name == PAGES[0] else forked
    found = blocks(ROOT / name)
    assert found
    program = []
    for block in found:
        if block.file:
            (checkout / block.file).write_text(shortened(block.code))
        if block.language in ("py", "python"):
            program.append(block.code)
        elif block.language != "toml":
            done(["bash", "-euo", "pipefail", "-c", block.code], checkout, commands)
    if program:
        done([sys.executable, "-c", "\n".join(program)], checkout)


@pytest.mark.parametrize("words", [["--version"], ["run"], ["run", "nosuch"], ["check", "-"]])
def test_a_forked_command_answers_as_the_installed_one(
    words: list[str], forked: Path, tmp_path: Path
) -> None:
    installed, other = (
        ran([folder / "steadycast", *words], cwd=tmp_path, input="format = 1\n")
        for folder in (INSTALLED, forked)
    )
    assert (other.returncode, other.stdout, other.stderr) == (
        installed.returncode,
        installed.stdout,
        installed.stderr,
    )


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
