"""The crates depend on each other as ARCHITECTURE.md says, and the Python modules have no import cycles."""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, ran

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PREFIX = "steadycast-"
CRATES = sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml"))

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")


def told() -> dict[str, set[str]]:
    """Return the dependencies in the text, by crate and in the text's order."""
    block = re.search(r"All dependencies[^\n]*\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    lines = [line.split() for line in block[1].splitlines()]
    return {name: set(known) - {"-"} for name, *known in lines}


@functools.cache
def packages() -> dict[str, dict[str, Any]]:
    """Return the workspace's packages as cargo reads them, by the names of their folders."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version=1"]
    said = ran(command, cwd=ROOT, check=True).stdout
    return {Path(package["manifest_path"]).parent.name: package for package in json.loads(said)["packages"]}


def named(crate: str, kinds: set[str | None]) -> set[str]:
    """Return the dependencies in a crate's manifest without our prefix; the kind of a normal one is `None`."""
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


@needs_cargo
@pytest.mark.parametrize("crate", sorted(set(CRATES) - {"capi", "python"}))
def test_a_library_is_built_for_tests_and_examples_where_it_has_some(crate: str) -> None:
    """The C library's tests are in C, and the Python module can't be called by a Rust test."""
    text = sources(crate)
    fences = re.findall(r"^ *//[/!] ```(.*)", text, re.MULTILINE)
    examples = any(kind in ("", "no_run", "should_panic") for kind in fences[::2])
    (target,) = (each for each in packages()[crate]["targets"] if each["kind"] == ["lib"])
    assert (target["test"], target["doctest"]) == ("#[test]" in text, examples)


@needs_cargo
def test_the_module_has_the_features_of_the_tests_so_that_make_test_compiles_each_package_once() -> None:
    def packages_of(*words: str) -> set[str]:
        command = ["cargo", "tree", "--offline", "--locked", "--prefix=none", "--format={p} {f}", *words]
        said = ran(command, cwd=ROOT, check=True).stdout
        return set(said.replace(" (*)", "").splitlines())

    module = packages_of("--package=steadycast-python", "--edges=normal")
    assert len(module) > len(CRATES)
    assert module <= packages_of("--workspace", "--edges=normal,dev")


@pytest.mark.parametrize("crate", CRATES)
def test_no_crate_reads_the_system_s_randomness_as_a_file(crate: str) -> None:
    # Clippy's lint detects only functions (clippy.toml).
    assert re.search(r"/dev/u?random", sources(crate)) is None


WIDE = {
    "units": 5, "wire": 4, "settings": 8,
}  # fmt: skip
"""The maximum number of lines wider than 120 in each crate. The formatter does not change comments and texts. The
numbers may only fall."""


@pytest.mark.parametrize("crate", CRATES)
def test_no_crate_gets_more_lines_wider_than_120(crate: str) -> None:
    wide = [
        f"{file.relative_to(ROOT)}:{n} has {len(line)}"
        for file in sorted((ROOT / "crates" / crate).rglob("*.rs"))
        for n, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1)
        if len(line) > 120
    ]
    assert len(wide) <= WIDE.get(crate, 0), "\n".join(wide)


INTEGRATIONS = sorted(
    path.parent
    for path in (ROOT / "integrations").glob("*/Cargo.toml")
    if f"{PREFIX}remote" in path.read_text(encoding="utf-8")
)
"""Only `make integrations` compiles them. These tests detect beforehand what a change of the workspace
breaks in them."""
OFFERED = "".join(sources(crate) for crate in ("remote", "sender", "control", "units"))


def exported(crate: str) -> set[str]:
    """Return the names that a crate for products, `remote` or `sender`, exports."""
    text = (ROOT / "crates" / crate / "src" / "lib.rs").read_text(encoding="utf-8")
    return set(re.findall(r"\b[A-Z]\w+", "".join(re.findall(r"^pub use ([^;]+);", text, re.MULTILINE))))


@needs_cargo
@pytest.mark.parametrize("place", INTEGRATIONS, ids=lambda place: place.name)
def test_the_lock_of_an_integration_knows_our_crates_as_they_are(place: Path) -> None:
    locked = tomllib.loads((place / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    ours = {p["name"]: p for p in locked if p["name"].startswith(PREFIX) and "source" not in p}
    crates = {name: ours[name] for name in ours if name.removeprefix(PREFIX) in CRATES}
    assert f"{PREFIX}remote" in crates
    for name, found in crates.items():
        crate = name.removeprefix(PREFIX)
        assert found["version"] == packages()[crate]["version"], name
        known = {d["name"] for d in packages()[crate]["dependencies"] if d["kind"] != "dev"}
        assert {each.split()[0] for each in found.get("dependencies", [])} == known, name


@pytest.mark.parametrize("place", INTEGRATIONS, ids=lambda place: place.name)
def test_an_integration_uses_names_that_the_crates_for_products_have(place: Path) -> None:
    files = [file for part in ("src", "examples", "tests") for file in sorted((place / part).glob("*.rs"))]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    used: set[str] = set()
    for file, text in texts.items():
        names: set[str] = set()
        for crate in ("remote", "sender"):
            imported = re.findall(rf"\bsteadycast_{crate}::(?:\{{([^}}]+)\}}|(\w+))", text)
            some = set(re.findall(r"\b[A-Z]\w+", " ".join(map("".join, imported))))
            assert some <= exported(crate), f"{file} uses {sorted(some - exported(crate))}"
            names |= some
        for name, member in re.findall(r"\b([A-Z]\w+)::(\w+)", text):
            if name in names:
                declared = rf"\bfn {member}\b|\bconst {member}\b|^\s+{member}\b"
                assert re.search(declared, OFFERED, re.MULTILINE), f"{file}: there is no {name}::{member}"
        used |= names
    assert "PacketResult" in used
    assert used & {"Remote", "MediaSender"}


# ---------------------------------------------------------------- Python

FACE = ROOT / "python" / "steadycast"


@functools.cache
def modules() -> dict[str, Path]:
    """Return the package's modules by their full names."""
    names = {
        path: ("steadycast", *path.relative_to(FACE).with_suffix("").parts) for path in FACE.rglob("*.py")
    }
    return {".".join(name).removesuffix(".__init__"): path for path, name in names.items()}


def imports(path: Path) -> set[str]:
    """Return the package's modules that a module imports, also in functions; imports for type checkers do not count."""
    found: set[str] = set()
    known = {*modules(), "steadycast._core"}
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            found |= inner & known or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)
    return {name for name in found if name.startswith("steadycast.")}


def circle(known: dict[str, set[str]]) -> list[str]:
    """Return the modules of an import cycle; none if the modules can be put into an order."""
    left = {name: arrows & known.keys() - {name} for name, arrows in known.items()}
    while free := [name for name, arrows in left.items() if not arrows]:
        for name in free:
            del left[name]
        left = {name: arrows - set(free) for name, arrows in left.items()}
    return sorted(left)


def test_no_module_knows_of_one_that_knows_of_it_not_even_in_a_function() -> None:
    known = {name: imports(path) for name, path in modules().items()}
    assert len(known) > 80
    assert circle(known) == []
    assert circle(known | {"steadycast.errors": {"steadycast.run"}}) != []


def test_the_compiled_module_is_loaded_in_one_place_and_for_the_version() -> None:
    users = {name for name, path in modules().items() if "steadycast._core" in imports(path)}
    assert users == {"steadycast.core", "steadycast.__main__"}


@pytest.mark.parametrize("name", sorted(modules()))
def test_no_module_takes_a_private_name_of_another(name: str) -> None:
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    taken = {each.name for node in froms for each in node.names if re.match(r"_[a-z]", each.name)}
    assert taken == set()
