"""The crates that other programs embed can be packaged: for an index of packages, or for a folder of vendored ones."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, ran, script

EMBEDDED = ("units", "settings", "wire", "control", "remote", "sender", "capi")


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "Cargo.toml").read_text())


@pytest.mark.parametrize("crate", EMBEDDED)
def test_a_crate_that_is_embedded_says_what_an_index_shows_of_it(crate: str) -> None:
    package = manifest(ROOT / "crates" / crate)["package"]
    readme = (ROOT / "crates" / crate / package["readme"]).read_text()
    assert readme.startswith(f"# {package['name']}\n")
    assert package["description"]
    assert {"license", "repository", "rust-version"} <= package.keys()


@pytest.mark.parametrize("crate", EMBEDDED)
def test_a_crate_that_is_embedded_needs_others_by_their_versions(crate: str) -> None:
    workspace = manifest(ROOT)["workspace"]
    version = workspace["package"]["version"]
    ours = [
        name for name in manifest(ROOT / "crates" / crate)["dependencies"] if name.startswith("steadycast-")
    ]
    assert [workspace["dependencies"][name].get("version") for name in ours] == [version] * len(ours)
    assert {name.removeprefix("steadycast-") for name in ours} <= set(EMBEDDED)


def cargo_package(*more: str) -> str:
    chosen = [word for crate in EMBEDDED for word in ("-p", f"steadycast-{crate}")]
    words = ["cargo", "package", "--allow-dirty", "--locked", "--offline", *chosen, *more]
    return ran(words, cwd=ROOT, env=script("setup").with_cargo(), timeout=None, code=0).stderr


def test_cargo_packages_the_crates_that_are_embedded() -> None:
    said = cargo_package("--no-verify")
    assert all(f"Packaging steadycast-{crate} v" in said for crate in EMBEDDED)
    assert "warning" not in said


@pytest.mark.claim
def test_the_packaged_crates_compile_without_the_rest_of_the_checkout() -> None:
    said = cargo_package()
    assert all(f"Verifying steadycast-{crate} v" in said for crate in EMBEDDED)
