"""The test command's counts and failures, and the files that the reproduction's command replaces."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT, ran, script

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("steadycast_test_command", SCRIPTS / "test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.tools, "missing", lambda of: [])
    monkeypatch.setattr(module, "real_time", lambda count: None)
    monkeypatch.setattr(module, "processor_bound", lambda count: None)
    return module


def test_the_last_line_adds_up_and_gives_each_reason_once(command: ModuleType) -> None:
    count = command.Count(passed=7, skipped=Counter({"tshark is not installed": 2, "ns is not installed": 1}))
    assert count.line() == "7 passed, 3 skipped because ns is not installed; tshark is not installed (2)"
    assert command.Count(passed=7).line() == "7 passed, 0 skipped"


SAID = """
test a::good ... ok
test needs_it ... ignored, needs nosuchtool
test takes_long ... ignored, claim: an hour

test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""


@pytest.mark.parametrize(("required", "code"), [("", 0), ("all", 1)])
def test_a_skip_fails_only_where_all_is_required(
    command: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    required: str,
    code: int,
) -> None:
    monkeypatch.setenv("STEADYCAST_REQUIRE", required)
    monkeypatch.setattr(command, "CARGO", (sys.executable, "-c", f"print('''{SAID}''')"))
    assert command.main() == code
    said = capsys.readouterr().out.splitlines()
    assert "skipped: cargo test needs_it: nosuchtool is not installed" in said
    assert said[-1] == "1 passed, 1 skipped because nosuchtool is not installed"


def test_cargo_that_ends_without_results_is_a_failure(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CARGO", (sys.executable, "-c", "raise SystemExit(101)"))
    assert command.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 skipped, cargo test ended with code 101"


FELL = """
test a::good ... ok
test a::bad ... FAILED

---- a::bad stdout ----

thread 'a::bad' (12) panicked at crates/a/src/lib.rs:3:5:
3 is not 4

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""


def test_the_end_names_each_test_that_failed_or_was_skipped_and_why(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    skip = f"import pytest\n\ndef test_calm():\n    pytest.skip('{command.STALLED}')\n\n"
    (tmp_path / "test_it.py").write_text(f"{skip}def test_seven():\n    assert 7 == 8, 'not seven'\n")
    monkeypatch.setattr(command, "CARGO", (sys.executable, "-c", f"print({FELL!r}); raise SystemExit(101)"))
    monkeypatch.setattr(command, "real_time", lambda count: command.pytest(count, [str(tmp_path)], at_once=1))
    assert command.main() == 1
    skipped, cargo, python, last = capsys.readouterr().out.splitlines()[-4:]
    assert skipped.startswith("skipped: ")
    assert skipped.endswith("test_it::test_calm: the machine stalled")
    assert cargo == "failed: cargo test a::bad (crates/a/src/lib.rs:3:5): 3 is not 4"
    assert python.startswith("failed: ")
    assert "test_it::test_seven: AssertionError: not seven" in python
    assert last == "1 passed, 2 failed, 1 skipped because the machine stalled"


def test_the_page_of_each_paper_says_its_commit_first() -> None:
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    pages = set(re.findall(r"\(papers/([^)#\s]+)", text))
    assert len(pages) == 5
    for page in pages:
        head = (ROOT / "docs" / "papers" / page).read_text(encoding="utf-8").splitlines()[:20]
        assert any(line.startswith("Commit ") for line in head), f"{page}: the commit that it was made at"


@pytest.mark.parametrize(
    ("stalled", "others", "timed", "lacking"),
    [
        (0, 0, 0, False),
        (2, 0, 20, False),
        (3, 0, 20, True),
        (1, 0, 9, True),
        (1, 1, 20, True),
        (0, 1, 20, True),
    ],
)
def test_a_busy_machine_may_cost_a_tenth_of_the_timed_tests_and_no_other(
    command: ModuleType, stalled: int, others: int, timed: int, lacking: bool
) -> None:
    skipped = Counter({command.STALLED: stalled, "ns is not installed": others})
    assert (command.Count(skipped=skipped, timed=timed).lacking() is not None) == lacking


def test_the_tests_that_use_the_fixture_are_the_timed_ones(command: ModuleType, tmp_path: Path) -> None:
    uses = "def test_{0}(claimed):\n    with claimed(trusted={1}):\n        assert {2}\n\n"
    cases = (
        ("kept", True, True),
        ("late", False, False),
        ("wrong", True, False),
        ("late_but_right", False, True),
    )
    (tmp_path / "test_it.py").write_text(
        "".join(uses.format(*case) for case in cases) + "def test_other(): pass\n"
    )
    count = command.Count()
    folder = [str(tmp_path), "-p", "tests.conftest", f"--rootdir={tmp_path}", "--override-ini=addopts="]
    command.pytest(count, folder, at_once=1)
    assert (count.passed, count.timed, count.skipped[command.STALLED], len(count.failures)) == (3, 4, 1, 1)
    marked = command.Count()
    command.pytest(marked, [*folder, "-m", "timed"], at_once=1)
    assert (marked.passed, marked.timed) == (2, 4)


def test_a_command_of_the_makefile_builds_the_same_whatever_the_environment_says() -> None:
    words = ["make", "-s", "--eval=kept: ; @env", "kept"]
    told = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "CARGO_INCREMENTAL": "0"}
    said = ran(words, cwd=ROOT, env=told, check=True).stdout
    assert "\nPATH=" in f"\n{said}"
    assert not re.search("^(PYTHONDONTWRITEBYTECODE|CARGO_INCREMENTAL)=", said, re.MULTILINE)


def test_the_count_of_a_folder_s_lines_is_below_its_lines_with_content() -> None:
    counts = script("counts")
    named = [name for name in counts.files("scripts") if name.endswith((".py", ".js"))]
    with_content = sum(bool(line.strip()) for name in named for line in counts.text(name).splitlines())
    counted = dict(counts.counted())["lines of scripts"]
    assert 0.8 * with_content < counted < with_content
