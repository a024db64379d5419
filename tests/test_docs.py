"""Everything that the pages refer to exists."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from steadycast import cli, record, reference
from steadycast.controllers import registry
from steadycast.errors import UserError

from tests.conftest import ROOT, ran, script

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "papers" / "README.md"])
MOST_WORDS = 2_500
"""The most words of a page in the repository. Reference pages are generated with the site."""
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_pages_that_are_made_with_the_site_have_a_stub_that_says_how_to_read_them() -> None:
    docs = script("docs")
    for name in docs.pages():
        stub = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert "`make docs`" in stub, name
        assert docs.INSTEAD[name] in stub, name
        assert len(stub.split()) < 60, "what the program tells is not committed"


def _words(page: Path) -> int:
    """Count the words and numbers of a page, without blocks of code and tables that a command writes between marks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- ([\w -]+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    return len(re.findall(r"\S*[A-Za-z0-9]\S*", text))


def test_no_page_is_longer_than_a_reader_reads() -> None:
    words = {str(page.relative_to(ROOT / "docs")): _words(page) for page in (ROOT / "docs").rglob("*.md")}
    assert [name for name, count in words.items() if count > MOST_WORDS] == []


def test_the_reference_names_all_figures_and_tables() -> None:
    made = script("docs").record()
    assert all(f"`{figure.key}" in made for figure in record.FIGURES)
    assert made.count("\n### ") == len({column.table for column in record.COLUMNS})


def test_the_reference_of_python_says_what_each_argument_and_attribute_is() -> None:
    made = script("docs").pages()["reference/python"]
    entries = re.findall(r"^\| `(\w+)` \|(?: `[^`]+` \|)? (.*) \|$", made, re.MULTILINE)
    assert len(entries) > 100
    assert [name for name, about in entries if not about.strip()] == []


def test_the_manual_page_is_what_the_program_says() -> None:
    docs = script("docs")
    made = docs.reference_pages.man_page()
    assert docs.MANUAL.read_text(encoding="utf-8") == made
    assert made.count("\n.SS ") == made.count("\n.SS steadycast ") > 10
    roff = [line for line in made.splitlines() if line.startswith((".", "'"))]
    assert all(
        line.split()[0] in {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".BR", '.\\"'} for line in roff
    )


def test_each_controller_has_a_page_with_its_figure() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "controllers").glob("*.md"))
    shown = re.findall(r"\(\.\./pictures/controllers/([a-z0-9-]+)\.svg\)", text)
    assert sorted(shown) == sorted(entry.name for entry in registry())


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8"))
    }
    assert {"demo", "test"} <= named <= targets


CODE = re.compile(r"^```\w*\n(.*?)^ *```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?<!import )(?<![\w/.-])steadycast\)?\"? ([a-z][\w-]*)((?:\\\n|[^\n;|&#])*)")


def test_commands_options_and_scenarios_that_pages_name_exist() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    options = {name: {o for p in command.params for o in p.opts} for name, command in commands.items()}
    wrong, called = [], 0
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        text = page.read_text(encoding="utf-8")
        wrong += [
            f"{page.name}: {s}"
            for s in re.findall(r"(?<!/)\bscenarios/[\w/.-]+\.toml", text)
            if not _scenario(s)
        ]
        for code in ("".join(found) for found in CODE.findall(text)):
            for command, words in CALL.findall(code):
                called += 1
                # Options after `--` belong to another program.
                named = re.findall(r"(?<=\s)--[a-z][a-z-]*", words.partition(" -- ")[0])
                unknown = [o for o in named if o not in {*options.get(command, ()), "--help"}]
                wrong += [f"{page.name}: {command} {o}" for o in (unknown if command in options else ["?"])]
    assert wrong == []
    assert called > 150


def _scenario(place: str) -> bool:
    return any((ROOT / folder / place).exists() for folder in ("", "validation", "papers", "crates/network"))


def test_keys_that_pages_name_exist() -> None:
    paths = {key.path for key in reference.keys()}  # noqa: SIM118  (it is no mapping)
    parameters = {parameter.name for entry in registry() for parameter in entry.params}
    names = {path.rpartition(".")[2] for path in paths} | parameters

    def inside(table: object, path: str) -> Iterator[str]:
        for each in table if isinstance(table, list) else [table]:
            for key, value in each.items() if isinstance(each, dict) else ():
                here = f"{path}.{key}".lstrip(".").replace(".back.", ".")
                yield here
                if key != "params":
                    yield from inside(value, here)

    wrong, named = [], 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        # These pages have a pair's keys and an experiment's: tests/judge/test_pair.py, tests/sweep/test_experiment.py.
        if page.name in ("judge.md", "experiment.md"):
            continue
        text = page.read_text(encoding="utf-8")
        blocks = [
            tomllib.loads(block)
            for block in re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        ]
        written = [path for block in blocks for path in inside(block, "")]
        wrong += [f"{page.name}: {path}" for path in written if path not in paths]
        code = CODE.findall(text)
        # KEY and PATH are placeholders.
        given = [
            path
            for each in code
            for path in re.findall(r"--(?:set|explain) '?([a-z][\w.*-]*)", "".join(each))
        ]
        for path in given:
            try:
                reference.explain(path.rstrip("."))
            except UserError as error:
                wrong.append(f"{page.name}: {error}")
        alone = [
            key
            for _, line in code
            for key in re.findall(r'^(?:[a-z_]+\.)*([a-z_]+) = (?:["{\d]|true|false)', line)
        ]
        wrong += [f"{page.name}: {key}" for key in alone if key not in names]
        named += len(written) + len(given) + len(alone)
    assert wrong == []
    assert named > 150


def test_every_page_stands_in_the_navigation_of_the_site_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"[\w/-]+\.md", text.partition("\nnav:")[2])
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Build the site of docs/. Return its folder, and the output of the command."""
    pytest.importorskip("material", reason="mkdocs is not installed (the extra docs)")
    folder = tmp_path_factory.mktemp("site")
    said = ran(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=None,
    )
    return folder, said


def test_the_site_builds_without_a_warning_and_asks_nobody_else(
    site: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, said = site
    assert (said.returncode, said.stderr) == (0, "")
    # Its output is the pages whose tables are older than their sources.
    old = re.compile(r"[\w/-]+\.md: \d+ sources have changed since commit [0-9a-f]{7,}")
    assert [line for line in said.stdout.splitlines() if not old.fullmatch(line)] == []
    foreign = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(?:https?:)?//')
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > 30
    assert [str(page) for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == []
    assert (folder / "search" / "search_index.js").stat().st_size > 10_000
    assert (folder / "assets" / "worker.js").exists()


def _looked_up() -> Iterator[tuple[str, str]]:
    """Words that a newcomer looks up, with the pages that explain them."""
    for key in reference.keys():  # noqa: SIM118
        yield key.path.rpartition(".")[2], "reference/scenario.html"
    for figure in record.FIGURES:
        yield figure.key, "record.html"
    for column in record.COLUMNS:
        yield column.name, "record.html"
    for command in typer.main.get_command(cli.app).commands.values():  # type: ignore[attr-defined]
        for parameter in command.params:
            for option in (o for o in parameter.opts if o.startswith("--")):
                yield option, "reference/commands.html"


def _found(site: Path, words: list[str]) -> dict[str, list[list[str]]]:
    """Search the site for words. Return for each word the pages, the best first, each with its places."""
    asked = ran(
        ["node", str(ROOT / "tests" / "site_search.js"), str(site)], input=json.dumps(words), check=True
    )
    return json.loads(asked.stdout)


NEWCOMERS = {
    "which controller": "which-controller",
    "quick start": "tutorial",
    "wifi": "wifi",
    "wi-fi": "wifi",
    "bufferbloat": "bufferbloat",
    "audio": "audio",
    "LTE trace": "lte",
    "gpu": "gpu",
    "hardware encoder": "gpu",
    "compare two runs": "compare",
}
"""Queries of users who don't know our terms, with the page that answers each."""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_what_a_newcomer_looks_for_is_found_first(
    site: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    found = _found(site[0], list(NEWCOMERS))
    first = {word: pages[0][0].partition("#")[0] if pages else None for word, pages in found.items()}
    assert first == {word: f"{page}.html" for word, page in NEWCOMERS.items()}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_each_key_figure_and_option_is_found_by_the_search_of_the_site_in_one_try(
    site: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    wanted = list(dict.fromkeys(_looked_up()))
    assert len(wanted) > 400
    found = _found(site[0], [word for word, _ in wanted])
    ranks = {}
    for word, page in wanted:
        # Each page is listed once, with its places. One of them is the table row that has the word.
        pages = [places for places in found[word] if places[0].partition("#")[0] == page]
        last = re.sub(r"[^a-z0-9_.]+", "-", word.lower()).strip("-")
        rows = [place for places in pages for place in places if last in place.partition("#")[2]]
        ranks[word, page] = found[word].index(pages[0]) if rows else None
    assert [word for word, rank in ranks.items() if rank is None or rank > 4] == []
    first = sum(rank == 0 for rank in ranks.values()) / len(ranks)
    assert 0.8 < first <= 1, "share whose page comes first"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_search_of_the_site_finds_each_word_by_its_first_three_letters(
    site: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    index = json.loads((site[0] / "search" / "search_index.json").read_text())
    text = " ".join(re.sub(r"<[^>]*>", " ", f"{doc['title']} {doc['text']}") for doc in index["docs"])
    words = re.split(index["config"]["separator"], html.unescape(text).lower())
    begin = {word[:3] for word in words if re.fullmatch("[a-z]{3,}[0-9]*", word)}
    assert len(begin) > 1_000
    assert [word for word, pages in _found(site[0], sorted(begin)).items() if not pages] == []


def _commit(root: Path) -> str:
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    done = ran([*git, "rev-parse", "HEAD"], check=True)
    return done.stdout.strip()


def test_a_table_is_older_than_its_sources_once_their_code_or_a_record_has_changed(tmp_path: Path) -> None:
    tool = script("measured")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    source, records, binary = tmp_path / "a.rs", tmp_path / tool.RECORDS, tmp_path / "sizes.gz"
    records.parent.mkdir(parents=True)
    tests = "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"
    source.write_text(f"fn a() {{}}\n{tests}")
    records.write_text("x/one.toml 1\n  flow 1\nx/two.toml 1\n  flow 1\n")
    binary.write_bytes(b"\x1f\x8b\xff")
    names = "a.rs sizes.gz records:x/one"
    page = f"# Title\n\nMeasured at commit {_commit(tmp_path)}.\n<!-- measured from: {names} -->\n"
    what = tool.measured(page, page)
    assert tool.changed(what, tmp_path) == []

    source.write_text(f"// A comment.\n\nfn a() {{}}\n{tests.replace('b()', 'c()')}")
    records.write_text("x/one.toml 1\n  flow 1\nx/two.toml 2\n  flow 2\n")
    assert tool.changed(what, tmp_path) == []

    source.write_text(f"fn other() {{}}\n{tests}")
    binary.write_bytes(b"\x1f\x8b\xfe\xff")
    records.write_text("x/one.toml 1\n  flow 2\nx/two.toml 1\n  flow 1\n")
    since = tool.changed(what, tmp_path)
    assert since == ["a.rs", "sizes.gz", "the records of x/one*"]
    title, _, _, _, says, *_ = tool.mark(page, what, since).splitlines()
    assert title == "# Title"
    assert says.startswith("**These tables are older")

    assert tool.changed(tool.Measured("0" * 40, ("a.rs",)), tmp_path) is None


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (
            '"""Other words."""\n\nM = 3  # a comment\n"""The number of M."""\ndef f(x):\n    return M * x\n',
            True,
        ),
        ("M = 3\ndef f(x):\n    return M * x\n", True),
        ("M = 4\ndef f(x):\n    return M * x\n", False),
        ('M = 3\ndef f(x):\n    "A text."\n    return M * "x"\n', False),
        ("M = 3\ndef f(x):\n    return (M * x\n", False),
    ],
)
def test_comments_and_docstrings_do_not_make_a_table_older(now: str, same: bool) -> None:
    compared = script("measured").compared
    before = '"""Words."""\nM = 3\ndef f(x):\n    """Multiply."""\n    # A reason.\n    return M * x\n'
    assert (compared(before, "a.py") == compared(now, "a.py")) is same


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ('[[statement]]\nmost = 3\nwhy = "another reason"\n', True),
        ('# A comment.\nstatement = [{ why = "one", most = 3 }]\n', True),
        ('[[statement]]\nmost = 4\nwhy = "one"\n', False),
        ('[[statement]]\nmost = 3\nwhy = ""\n', False),
        ('[[statement]]\nmost = "3"\nwhy = "one"\n', False),
    ],
)
def test_the_wording_of_a_reason_does_not_make_a_table_older(now: str, same: bool) -> None:
    compared = script("measured").compared
    before = '[[statement]]\nmost = 3\nwhy = "one"\n'
    assert (compared(before, "a.toml") == compared(now, "a.toml")) is same


def test_each_page_of_measurements_names_its_commit_and_what_it_was_measured_from() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("- Measurements:")[2]
    names = [*re.findall(r"([a-z/-]+\.md)", listed), "which-controller.md"]
    tool, unmeasured = script("measured"), []
    for name in names:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        named = [section for section in tool.sections(text) if tool.SOURCES.search(section)]
        assert named, name
        for section in named:
            assert len(tool.SOURCES.findall(section)) == 1, name
            what = tool.measured(section, text)
            if what is None:
                unmeasured.append(name)
                continue
            paths = [source for source in what.sources if not source.startswith("records:")]
            assert [path for path in paths if not (ROOT / path).exists()] == [], name
            records = (ROOT / tool.RECORDS).read_text(encoding="utf-8")
            pins = [s.removeprefix("records:") for s in what.sources if s not in paths]
            assert [pin for pin in pins if not tool.pinned(records, pin)] == [], name
    assert unmeasured == []


def test_each_section_of_a_page_has_the_commit_of_its_own_table() -> None:
    tool = script("measured")
    page = (
        "# Title\n\n## One\n[a](data/field.csv)\n<!-- measured from: x -->\n\n"
        "## Two\n[b](data/dossier.csv)\n<!-- measured from: y z -->\n\n## Three\n"
    )
    read = [tool.measured(section, page) for section in tool.sections(page)]
    commits = [
        tomllib.loads((ROOT / "docs" / "data" / f"{name}.toml").read_text(encoding="utf-8"))["commit"]
        for name in ("field", "dossier")
    ]
    assert commits[0] != commits[1]
    assert read == [None, tool.Measured(commits[0], ("x",)), tool.Measured(commits[1], ("y", "z")), None]
