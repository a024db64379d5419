"""Finds the pages whose tables are older than their sources. `make docs` marks such pages.

A page, or each of its sections, lists in a comment the sources that its numbers depend on. The commit is that of the
first linked table of docs/data in the section, else in the page, else the one that is written there:

    Measured at commit eb0f74c (2026-11-21).
    <!-- measured from: validation/validate.py crates/tcp/src records:validation/scenarios/tcp -->

A source is a file or a folder, compared without comments, docstrings, blank lines, Rust's unit tests, and the wording
of reasons in TOML. `records:PREFIX` stands for the hashes in `crates/sim/tests/records.txt` of the scenarios below
PREFIX, which change only with their behaviour.

    python scripts/measured.py      # the pages, and what has changed since their commits
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
RECORDS = "crates/sim/tests/records.txt"
COMMIT = re.compile(r"\bcommit ([0-9a-f]{7,40})\b", re.IGNORECASE)
TABLE = re.compile(r"\(((?:\.\./)*data/[a-z0-9-]+)\.csv\)")
SOURCES = re.compile(r"<!-- measured from: (.+?) -->", re.DOTALL)
SECTION = re.compile(r"^(?=## )", re.MULTILINE)
UNIT_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{.*", re.MULTILINE | re.DOTALL)
COMMENT = {".rs": "//", ".py": "#", ".tcl": "#"}
PROSE = frozenset({"title", "why", "says", "differs", "told", "ours", "range", "kept"})
"""Keys of TOML files whose wording changes no number."""
SHOWN = 4
"""Maximum number of changed sources that a page names."""


@dataclass(frozen=True)
class Measured:
    """What a page says about its tables: their sources and their commit."""

    commit: str
    sources: tuple[str, ...]


def sections(page: str) -> list[str]:
    """Split a page before its headings of the second level."""
    return SECTION.split(page)


def measured(section: str, page: str) -> Measured | None:
    """Read a section of a page. Returns `None` if the section names no sources, or if neither names a commit."""
    sources, commit = SOURCES.search(section), commit_of(section) or commit_of(page)
    return Measured(commit, tuple(sources[1].split())) if sources and commit else None


def commit_of(text: str) -> str | None:
    """Return the commit of the first table whose origin names one, or else the commit in the text."""
    for found in TABLE.finditer(text):
        beside = ROOT / "docs" / f"{found[1].rpartition('../')[2]}.toml"
        told = tomllib.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}
        if "commit" in told:
            return str(told["commit"])
    named = COMMIT.search(text)
    return named[1] if named else None


def changed(what: Measured, root: Path = ROOT) -> list[str] | None:
    """Return the sources that have changed since the commit; `None` if git does not have the commit."""
    if _git(root, "cat-file", "-e", f"{what.commit}^{{commit}}") is None:
        return None
    found = []
    for source in what.sources:
        prefix = source.removeprefix("records:")
        if prefix != source:
            before, now = _git(root, "show", f"{what.commit}:{RECORDS}") or "", (root / RECORDS).read_text()
            if pinned(before, prefix) != pinned(now, prefix):
                found.append(f"the records of {prefix}*")
            continue
        for name in (_git(root, "diff", "--name-only", what.commit, "--", source) or "").splitlines():
            before, now = _git(root, "show", f"{what.commit}:{name}") or "", _content(root / name)
            if compared(before, name) != compared(now, name):
                found.append(name)
    return found


def pinned(records: str, prefix: str) -> list[str]:
    """Return the lines of a records file for the scenarios whose path begins with `prefix`."""
    kept: list[str] = []
    mine = False
    for line in records.splitlines():
        if not line.startswith(" "):
            mine = line.startswith(prefix)
        if mine:
            kept.append(line)
    return kept


def code(text: str, name: str) -> list[str]:
    """Return a source's lines without comments, blank lines and Rust's unit tests at the end."""
    suffix = Path(name).suffix
    if suffix == ".rs":
        text = UNIT_TESTS.sub("", text)
    comment = COMMENT.get(suffix, "\0")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(comment)]


def compared(text: str, name: str) -> list[str]:
    """Return a Python file's statements, a TOML file's values, or lines of code."""
    suffix = Path(name).suffix
    if suffix == ".toml":
        return _toml(text)
    return _python(text) if suffix == ".py" else code(text, name)


def _python(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text.splitlines()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree, indent=0).splitlines()


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or the description of the name before it."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _toml(text: str) -> list[str]:
    """Return the values of a TOML file, a line for each, without the wording of reasons and quotations."""
    try:
        return list(_values("", tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return text.splitlines()


def _values(path: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in sorted(value.items()):
            yield from _values(f"{path}.{key}", bool(each) if key in PROSE else each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _values(f"{path}[{number}]", each)
    else:
        yield f"{path} = {value!r}"


def mark(text: str, what: Measured, since: list[str]) -> str:
    """Replace the comment of a section whose sources have changed by a sentence next to the links to its tables."""
    names = ", ".join(f"`{name}`" for name in since[:SHOWN])
    more = f" and {len(since) - SHOWN} more" if len(since) > SHOWN else ""
    says = (
        f"**These tables are older than what they were measured from.** Since commit {what.commit} there are "
        f"changes in {names}{more}; today's numbers may be others."
    )
    return SOURCES.sub(lambda comment: f"\n{says}\n", text, count=1)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark each section of a page whose sources have changed since its commit."""
    marked = []
    for section in sections(markdown):
        what = measured(section, markdown)
        since = changed(what) if what else None
        if what and since:
            print(f"{page.file.src_uri}: {len(since)} sources have changed since commit {what.commit}")
        marked.append(mark(section, what, since) if what and since else section)
    return "".join(marked)


def main() -> None:
    """Print each measured section of each page, and the sources that have changed since its commit."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for section in sections(text):
            what = measured(section, text)
            if what is None:
                continue
            since = changed(what)
            says = (
                "commit not in this checkout" if since is None else ", ".join(since) or "nothing has changed"
            )
            print(f"{page.relative_to(ROOT)}, {section.partition(chr(10))[0]} (commit {what.commit}): {says}")


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", root, *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
