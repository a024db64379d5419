"""How much code there is, how many files an addition touches, and how much is said twice.

`docs/counts.md` has what it prints, with what that means:

    cargo install tokei
    python scripts/counts.py
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "304dae4"
"""The commit before the crates `network`, `record` and `words`, and before `papers/`."""
PAPERS = "python/steadycast/reproduce"
"""Where the laboratory of papers stood before."""
TREES = ("crates", "python", "papers", "validation", "scripts")
MADE = re.compile(r"python/steadycast/scenario\.py|Cargo\.lock")
"""Files that a command writes."""
SOURCE = re.compile(r"(crates/[a-z]+/src|python/steadycast)/.*\.(rs|py|pyi|js|css|html)")
CODE = re.compile(r".*\.(rs|py|js)")
FIGURES = "crates/record/src/figures.rs"
QUEUES = "crates/link/src/queue.rs"
NEW_FIGURE = re.compile(r"^\+\s+[A-Z][A-Z0-9_]* = (?:figure|spread)\(", re.MULTILINE)
RUN = 6
"""Lines in a row that are the same in two places before they count as said twice."""


def main() -> int:
    """Print the tables of docs/counts.md."""
    if shutil.which("tokei") is None:
        print("counts: tokei is not installed: cargo install tokei", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        trees = [unpacked(revision, Path(folder) / revision) for revision in (BEFORE, "HEAD")]
        print(table(("lines of code", f"at {BEFORE}", "now"), sizes(trees)))
        print(table(("capability", f"at {BEFORE}", "now"), capabilities(trees)))
        print(table(("lines that stand in a second place", f"at {BEFORE}", "now"), twice(trees)))
    print(table(("commit", "adds", "source files"), additions(FIGURES, figures_added)))
    print(table(("commit", "adds", "source files"), additions(QUEUES, queues_added)))
    return 0


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return rows as Markdown; numbers stand on the right."""
    numbers = [all(re.fullmatch(r"[\d .]+( %)?", row[n]) for row in rows) for n in range(len(head))]
    lines = [head, tuple("--:" if number else "---" for number in numbers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def unpacked(revision: str, into: Path) -> Path:
    """Write the files of a revision into a folder."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", revision], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(into, filter="data")
    return into


def said(count: float) -> str:
    """Return a number with its thousands apart."""
    return f"{count:,.0f}".replace(",", " ")


def lines(root: Path, tree: str, kinds: Callable[[str], bool], tests: bool | None = None) -> int:
    """Count the lines of code below a folder, without comments and blank lines; of tests alone, or without them."""
    if not (root / tree).exists():
        return 0
    done = subprocess.run(["tokei", "-o", "json", tree], cwd=root, check=True, capture_output=True, text=True)
    return sum(
        report["stats"]["code"]
        for kind, found in json.loads(done.stdout).items()
        if kind != "Total" and kinds(kind)
        for report in found["reports"]
        if tests is None or tests == ("/tests/" in report["name"])
    )


def sizes(trees: list[Path]) -> list[tuple[str, ...]]:
    """Lines of code of each tree, by tokei; data in TOML apart."""

    def is_code(kind: str) -> bool:
        return kind not in ("TOML", "Markdown", "Plain Text")

    rows: list[tuple[str, list[int]]] = [
        (
            "crates, without tests of their own folders",
            [lines(r, "crates", is_code, tests=False) for r in trees],
        ),
        ("crates, tests", [lines(r, "crates", is_code, tests=True) for r in trees]),
        ("python", [lines(r, "python", is_code) - lines(r, PAPERS, is_code) for r in trees]),
        ("papers", [lines(r, "papers", is_code) + lines(r, PAPERS, is_code) for r in trees]),
        *((tree, [lines(root, tree, is_code) for root in trees]) for tree in TREES[3:]),
    ]
    data = [sum(lines(root, tree, lambda kind: kind == "TOML") for tree in TREES) for root in trees]
    total = [sum(row[1][n] for row in rows) for n in range(len(trees))]
    rows += [("**together**", total), ("TOML beside it: manifests, scenarios, experiments", data)]
    return [(name, *(said(n) for n in counts)) for name, counts in rows]


def capabilities(trees: list[Path]) -> list[tuple[str, ...]]:
    """What the code can do, in numbers, and how many lines each takes."""

    def found(root: Path, path: str, pattern: str) -> int:
        place = root / path
        return len(re.findall(pattern, place.read_text(encoding="utf-8"))) if place.exists() else 0

    def rust(root: Path, path: str) -> int:
        return lines(root, path, lambda kind: kind == "Rust")

    controllers = [
        found(root, "crates/control/src/registry.rs", r"    &[a-z_]+::[A-Z_0-9]+,") for root in trees
    ]
    places = ("cli.py", *(f"cli/{path.name}" for path in (ROOT / "python/steadycast/cli").glob("*.py")))
    commands = [
        sum(found(root, f"python/steadycast/{place}", r"@(?:base\.)?app\.command\(") for place in places)
        for root in trees
    ]
    tests = [
        sum(
            len(re.findall(r"#\[test\]|^\s*(?:async )?def test_", text, re.MULTILINE)) for text in texts(root)
        )
        for root in trees
    ]
    each = [rust(root, "crates/control/src") / n for root, n in zip(trees, controllers, strict=True)]
    return [
        ("controllers", *(said(n) for n in controllers)),
        ("lines of `crates/control/src` per controller", *(said(n) for n in each)),
        ("commands", *(said(n) for n in commands)),
        ("tests, by their functions", *(said(n) for n in tests)),
    ]


def texts(root: Path) -> Iterator[str]:
    """Return the code files of all trees and of the tests."""
    for tree in (*TREES, "tests"):
        for path in sorted((root / tree).rglob("*")):
            if path.is_file() and CODE.fullmatch(path.name):
                yield path.read_text(encoding="utf-8")


def twice(trees: list[Path]) -> list[tuple[str, ...]]:
    """Lines that stand in a run of several equal ones elsewhere; comments, imports and lone brackets do not count."""
    return [
        (f"of {RUN} and more in a row", *(said(count) for count, _ in map(repeated, trees))),
        ("of all these lines", *(f"{100 * count / of:.1f} %" for count, of in map(repeated, trees))),
    ]


def repeated(root: Path) -> tuple[int, int]:
    """Count the lines that stand in a second place, and all."""
    files = [[line for line in map(str.strip, text.splitlines()) if counts(line)] for text in texts(root)]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for n, content in enumerate(files):
        for at in range(len(content) - RUN + 1):
            places[tuple(content[at : at + RUN])].append((n, at))
    second = {
        (n, at + i) for where in places.values() for n, at in where[1:] if len(where) > 1 for i in range(RUN)
    }
    return len(second), sum(map(len, files))


def counts(line: str) -> bool:
    """Whether a line says something."""
    return len(re.findall(r"\w", line)) > 2 and not line.startswith(
        ("//", "#", "*", "use ", "import ", "from ")
    )


@dataclass(frozen=True)
class Commit:
    """One commit: its subject, the files it touches, and its change of one of them."""

    name: str
    subject: str
    files: tuple[str, ...]
    change: str


def additions(path: str, added: Callable[[Commit], str | None]) -> list[tuple[str, ...]]:
    """Commits that add something to a list, each with the source files that it touches."""
    rows = []
    for commit in commits(path):
        if what := added(commit):
            source = [f for f in commit.files if SOURCE.fullmatch(f) and not MADE.fullmatch(f)]
            rows.append((f"`{commit.name}` {commit.subject}", what, str(len(source))))
    return rows


def commits(path: str) -> Iterator[Commit]:
    """Return the commits that change a file, but for the one that makes it, the latest first."""
    names = _git("log", "--no-merges", "--format=%h", "--", path).split()
    for name in names[:-1]:
        subject = _git("show", "-s", "--format=%s", name).strip().replace("|", "\\|")
        subject = subject if len(subject) <= 80 else subject[:79].rsplit(" ", 1)[0] + " …"
        files = _git("show", "--format=", "--name-only", name).split()
        yield Commit(name, subject, tuple(files), _git("show", "--format=", "-U0", name, "--", path))


def figures_added(commit: Commit) -> str | None:
    """How many figures a commit adds, net of those that it takes away."""
    taken = NEW_FIGURE.findall(commit.change.replace("\n-", "\n+")) if commit.change else []
    added = len(NEW_FIGURE.findall(commit.change))
    fresh = added - (len(taken) - added)
    return f"{fresh} figure{'s' if fresh > 1 else ''}" if fresh > 0 else None


def queues_added(commit: Commit) -> str | None:
    """Say which kinds of queue a commit adds."""
    names = re.findall(r'^\+\s+"([a-z0-9-]+)" => [A-Z]', commit.change, re.MULTILINE)
    gone = re.findall(r'^-\s+"([a-z0-9-]+)" => [A-Z]', commit.change, re.MULTILINE)
    return ", ".join(f"`{name}`" for name in names if name not in gone) or None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
