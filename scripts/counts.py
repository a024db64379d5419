"""The size of the project, and of its interfaces for readers and users: docs/data/counts.csv.

    python scripts/counts.py            # prints the table
    python scripts/counts.py --write    # and writes it, for docs/counts.md

A line of code is one that is neither blank nor a comment; unit tests at the end of a Rust file are counted
separately.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from measured import UNIT_TESTS, code

ROOT = Path(__file__).resolve().parent.parent
RUN = 6
"""Minimum number of consecutive equal lines that count as duplicated."""
LONG = 100
"""A function with more lines counts as long."""
FUNCTION = re.compile(r"^( *)(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe )*fn \w+", re.MULTILINE)
WORD = re.compile(r"\S+")


def main() -> int:
    """Print the table, and write it with `--write`."""
    sys.path.insert(0, str(ROOT))
    from validation import page

    made = page.table(["what", "count"], [[what, str(count)] for what, count in counted()])
    print(made)
    if "--write" in sys.argv[1:]:
        page.save("counts", "The code in numbers", made, "python scripts/counts.py --write")
    return 0


def counted() -> Iterator[tuple[str, object]]:
    """Yield each count of the table, with its name."""
    rust = [name for name in files("crates") if name.endswith(".rs")]
    own = [name for name in rust if "/src/" in name and not name.endswith(("/tests.rs", "/harness.rs"))]
    yield "lines of Rust, without tests", sum(len(code(text(name), name)) for name in own)
    yield (
        "lines of Rust, tests",
        sum(len(code(text(name), name)) for name in rust if name not in own)
        + sum(len(code(tests(text(name)), "tests.rs")) for name in own),
    )
    for tree in ("python", "papers", "validation", "scripts", "tests"):
        scripts = [name for name in files(tree) if name.endswith((".py", ".js"))]
        yield f"lines of {tree}", sum(len(code(text(name), name)) for name in scripts)
    yield "functions in Rust, without tests", sum(len(lengths(text(name))) for name in own)
    long = [n for name in own for n in lengths(text(name)) if n > LONG]
    yield f"of these above {LONG} lines", len(long)
    yield "lines of the longest", max((n for name in own for n in lengths(text(name))), default=0)
    yield from surface()
    yield (
        "words of docs/",
        sum(len(WORD.findall(text(name))) for name in files("docs") if name.endswith(".md")),
    )
    second, of = repeated([name for tree in ("crates", "python", "papers") for name in files(tree)])
    yield f"lines that stand in a second place ({RUN} and more in a row), %", f"{100 * second / of:.1f}"


def surface() -> Iterator[tuple[str, object]]:
    """Count the names that users can refer to, such as commands and keys."""
    from steadycast import record, reference
    from steadycast.controllers import registry

    controllers = registry()
    yield "controllers", len(controllers)
    yield "public parameters of controllers", sum(len(each.params) for each in controllers)
    yield "public parameters of steady", sum(len(e.params) for e in controllers if e.name == "steady")
    yield "keys of a scenario", len(list(reference.keys()))
    yield "figures and columns of a run", len(record.FIGURES) + len(record.COLUMNS)


def files(tree: str) -> list[str]:
    """Return the files of a folder that are tracked by git."""
    done = subprocess.run(["git", "-C", ROOT, "ls-files", tree], check=True, capture_output=True, text=True)
    return done.stdout.split()


def text(name: str) -> str:
    """Return the text of a file, with other bytes replaced."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def tests(source: str) -> str:
    """Return the unit tests at the end of a Rust file."""
    found = UNIT_TESTS.search(source)
    return found[0] if found else ""


def lengths(source: str) -> list[int]:
    """Return the number of lines of each function in a Rust file, without unit tests."""
    lines = UNIT_TESTS.sub("", source).splitlines()
    found = []
    for first, line in enumerate(lines):
        if (head := FUNCTION.match(line)) is None:
            continue
        end = f"{head[1]}}}"
        body = (n for n, each in enumerate(lines[first:], 1) if each.rstrip() == end or each.endswith(";"))
        closed = (n for n, each in enumerate(lines[first:], 1) if each.rstrip() == end)
        last = next(closed, 1) if line.rstrip().endswith(("{", "(", ",")) else next(body, 1)
        found.append(last)
    return found


def repeated(names: list[str]) -> tuple[int, int]:
    """Return the number of lines within duplicated runs, and the number of all lines with content."""
    kept = [name for name in names if name.endswith((".rs", ".py", ".js")) and "/scenario.py" not in name]
    contents = [[line for line in code(text(name), name) if says(line)] for name in kept]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for n, content in enumerate(contents):
        for at in range(len(content) - RUN + 1):
            places[tuple(content[at : at + RUN])].append((n, at))
    second = {
        (n, at + i) for where in places.values() for n, at in where[1:] if len(where) > 1 for i in range(RUN)
    }
    return len(second), sum(map(len, contents))


def says(line: str) -> bool:
    """Whether a line has more than a bracket or an import."""
    return len(re.findall(r"\w", line)) > 2 and not line.startswith(("use ", "import ", "from "))


if __name__ == "__main__":
    sys.exit(main())
