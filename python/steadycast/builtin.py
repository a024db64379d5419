"""The built-in scenarios and networks, which users refer to by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from steadycast.errors import UserError, meant
from steadycast.files import folder, write_text

FOLDER = Path(__file__).parent / "scenarios"
"""The folder of the built-in scenarios: a symbolic link in a checkout, a copy in the wheel."""

NETWORKS = (FOLDER / "networks").resolve()


def names(of: Path = FOLDER) -> list[str]:
    """Return the names of the scenarios or networks in a folder, in alphabetical order."""
    return sorted(path.stem for path in of.glob("*.toml") if path.stem != "sets")


def find(name: str, of: Path = FOLDER) -> Path | None:
    """Return the file of a built-in scenario or network. Return `None` if none has this name."""
    return of / f"{name}.toml" if name in names(of) else None


def scenario_at(path: Path) -> Path:
    """Return the path of a scenario file.

    ``path`` is a file, a file without its suffix .toml, or the name of a built-in scenario. The first of these that
    exists is returned.
    """
    if path.is_file():
        return path
    if path.name and path.parent == Path() and not path.suffix:
        own = path.with_suffix(".toml")
        if own.is_file():
            return own
        if (found := find(path.name)) is not None:
            return found
    what = "this is a folder" if path.is_dir() else "no such file"
    offer = f"give the path of a scenario, or the name of a built-in one; {remedy(path.name)}"
    raise UserError(str(path), what, offer)


def about(name: str) -> str:
    """Return the description of a built-in scenario: the comment in the first line of its file."""
    return path_of(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def copy(chosen: Iterable[str], into: Path, of: Path = FOLDER) -> list[Path]:
    """Copy built-in scenarios or networks and their traces into a folder, and return the written files."""
    texts: dict[Path, str] = {}
    for name in chosen:
        text = path_of(name, of).read_text(encoding="utf-8")
        for trace in sorted(FOLDER.glob("traces/*")):
            if f'traces/{trace.name}"' in text:
                texts[trace.relative_to(FOLDER)] = trace.read_text(encoding="utf-8")
        texts[Path(f"{name}.toml")] = text.replace('"../traces/', '"traces/')
    for place in texts:
        if (into / place).exists():
            raise UserError(
                str(into / place), "this file exists", "move it away, or copy into another folder"
            )
    for place, text in texts.items():
        folder((into / place).parent)
        write_text(into / place, text)
    return [into / place for place in texts]


def path_of(name: str, of: Path = FOLDER) -> Path:
    """Return the file of a built-in scenario or network.

    Raises:
        UserError: there is none with this name.

    """
    found = find(name, of)
    if found is None:
        kind = "network" if of == NETWORKS else "built-in scenario"
        raise UserError(name, f"there is no {kind} of this name", meant(name, names(of)))
    return found


def remedy(name: str) -> str:
    """Return the remedy for an unknown scenario name: the most similar built-in name, or a list of names."""
    return meant(name.removesuffix(".toml"), names())
