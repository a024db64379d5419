"""The crates know of each other as ARCHITECTURE.md says."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PREFIX = "steadycast-"
CRATES = sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml"))

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")


def told() -> dict[str, set[str]]:
    """The arrows of the text, crate by crate, in its order."""
    block = re.search(r"All arrows[^\n]*\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    lines = [line.split() for line in block[1].splitlines()]
    return {name: set(known) - {"-"} for name, *known in lines}


@functools.cache
def packages() -> dict[str, dict[str, Any]]:
    """The workspace's packages as cargo reads them, by their folders' names."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version=1"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {Path(package["manifest_path"]).parent.name: package for package in json.loads(said)["packages"]}


def named(crate: str, kinds: set[str | None]) -> set[str]:
    """The dependencies in a crate's manifest, without the prefix of our own; the kind of a normal one is `None`."""
    return {d["name"].removeprefix(PREFIX) for d in packages()[crate]["dependencies"] if d["kind"] in kinds}


def sources(crate: str) -> str:
    return "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "crates" / crate / "src").rglob("*.rs")
    )


def test_the_text_names_every_crate() -> None:
    assert sorted(told()) == CRATES
    assert sorted(re.findall(r"^\| `([a-z]+)` \|", TEXT, re.MULTILINE)) == CRATES


def test_the_text_s_arrows_lead_down() -> None:
    below: set[str] = set()
    for crate, known in told().items():
        assert known <= below, f"{crate} knows of {sorted(known - below)}, which are not below it"
        below.add(crate)


@needs_cargo
@pytest.mark.parametrize("crate", CRATES)
def test_a_manifest_names_the_crates_that_the_text_says(crate: str) -> None:
    assert named(crate, {None, "build"}) & set(CRATES) == told()[crate]


@needs_cargo
@pytest.mark.parametrize("crate", CRATES)
def test_what_only_tests_need_does_not_stand_above(crate: str) -> None:
    known = told()
    above = {other for other in known if crate in known[other]}
    while wider := {other for other in known if known[other] & above} - above:
        above |= wider
    assert named(crate, {"dev"}) & above == set()


@needs_cargo
@pytest.mark.parametrize("crate", CRATES)
def test_a_manifest_names_nothing_that_the_sources_do_not(crate: str) -> None:
    text = sources(crate)
    ours = {PREFIX + name: name for name in CRATES}
    unused = {
        ours.get(d["name"], d["name"])
        for d in packages()[crate]["dependencies"]
        if d["kind"] is None and not re.search(rf"\b{d['name'].replace('-', '_')}\b", text)
    }
    assert unused == set()


@pytest.mark.parametrize("crate", CRATES)
def test_no_crate_reads_the_system_s_randomness_as_a_file(crate: str) -> None:
    # A lint sees functions alone (clippy.toml).
    assert re.search(r"/dev/u?random", sources(crate)) is None
