"""The set-up of a checkout: the build of the module that each command makes, and the other builds that satisfy it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT, script
from validation import setup_cost


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The set-up script, in a folder with the files that it reads. Its commands are recorded instead of run."""
    module = script("setup")
    for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "crates").mkdir()
    (tmp_path / ".venv").mkdir()
    (tmp_path / "_core.so").touch()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "MODULE", tmp_path / "_core.so")
    return module


def built(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, option: str) -> list[str] | None:
    """Return maturin's arguments if it was called."""
    calls: list[list[str]] = []

    def run(words: list[Any], **_: Any) -> None:
        calls.append([str(word) for word in words])

    monkeypatch.setattr(setup.subprocess, "run", run)
    setup.build({"PATH": ""}, setup.SERVES[option])
    assert len(calls) <= 1
    return calls[0][2:] if calls else None


FIRST = {
    "": ["--profile", "setup", "--locked", "--no-default-features", "--features", "pyo3/extension-module"],
    "--all": ["--profile", "setup", "--locked"],
    "--release": ["--profile", "release", "--locked"],
    "--dev": ["--profile", "release", "--locked"],
    "--test": ["--profile", "dev", "--locked"],
}
CONTENT = {
    "": {"", "--all", "--release", "--dev", "--test"},
    "--all": {"--all", "--release", "--dev", "--test"},
    "--release": {"--release", "--dev"},
    "--dev": {"--release", "--dev"},
    "--test": {"--test", "--release", "--dev"},
}


@pytest.mark.parametrize("after", list(FIRST))
@pytest.mark.parametrize("before", list(FIRST))
def test_a_command_builds_the_module_unless_one_is_there_that_can_as_much(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    assert built(setup, monkeypatch, before) == FIRST[before]
    assert built(setup, monkeypatch, before) is None
    assert built(setup, monkeypatch, after) == (None if before in CONTENT[after] else FIRST[after])
    # Other sources make every build stale.
    (setup.ROOT / "Cargo.lock").write_text("changed")
    assert built(setup, monkeypatch, after) == FIRST[after]


def test_the_table_of_the_tests_names_each_option(setup: ModuleType) -> None:
    assert set(setup.SERVES) == set(FIRST) == set(CONTENT)
    used = set(re.findall(r"scripts/setup\.py ?(--\w+)?", (ROOT / "Makefile").read_text()))
    assert used <= set(FIRST)
    assert all(option in setup.__doc__ for option in FIRST)


@pytest.mark.parametrize("words", [["--tests"], ["--dev", "--test"], ["dev"]])
def test_an_option_that_there_is_not_is_refused_before_anything_is_made(
    setup: ModuleType, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert setup.main(words) == 2
    assert "there is no such option" in capsys.readouterr().err


PACKAGES = 65
"""The number of packages that the set-up of `make demo` compiles, including ours. Each additional one must be a
decision, because it costs users time."""
REAL_TIME = {
    "steadycast-live",
    "steadycast-emulate",
    "steadycast-web",
    "steadycast-calltrace",
    "dimpl",
    "socket2",
}


def test_the_set_up_compiles_as_many_packages_as_are_counted_here_and_nothing_for_real_time() -> None:
    setup = setup_cost.script()
    first, whole = (
        {line.split()[0] for line in setup_cost.packages(build)} for build in (setup.SIMULATOR, setup.WHOLE)
    )
    assert len(setup_cost.packages(setup.SIMULATOR)) == PACKAGES
    assert first < whole
    assert not first & REAL_TIME
    assert whole >= REAL_TIME


def test_the_set_up_compiles_no_package_in_two_versions_but_those_that_others_need() -> None:
    setup = setup_cost.script()
    names = [line.split()[0] for line in setup_cost.packages(setup.SIMULATOR)]
    # pcap-file's derive macro uses syn 1.
    assert {name for name in names if names.count(name) > 1} <= {"syn"}


MOST_TIMES_PEER = 7.2
"""The most core-seconds of a cold build, as a multiple of those of pyo3 and its dependencies. The sum of the compile
times of each package in one build gave 6.0. The bound is a fifth higher, because machines differ."""


@pytest.mark.claim
def test_a_cold_set_up_costs_a_bounded_multiple_of_what_pyo3_costs() -> None:
    setup = setup_cost.script()
    build = setup.SIMULATOR
    peer, ours = setup_cost.peer(build), setup_cost.cost(setup_cost.OURS, build.arguments())
    print(f"{ours.core_s:.0f} core-seconds, {ours.core_s / peer.core_s:.2f} times pyo3's {peer.core_s:.1f}")
    assert 1.0 < ours.core_s / peer.core_s <= MOST_TIMES_PEER
    assert ours.module_bytes > 1_000_000
