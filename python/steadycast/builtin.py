"""The scenarios that come with the program, and are run by their names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from steadycast.errors import UserError, meant
from steadycast.files import folder, write_text

FOLDER = Path(__file__).parent / "scenarios"
"""Where they are: in a checkout a link to its folder of scenarios, which the wheel has as files."""

NETWORKS = (FOLDER / "networks").resolve()
"""Where the networks are that scenarios name."""


def names(of: Path = FOLDER) -> list[str]:
    """Return their names, in the order of the alphabet."""
    return sorted(path.stem for path in of.glob("*.toml") if path.stem != "sets")


def find(name: str, of: Path = FOLDER) -> Path | None:
    """Return the file of a built-in scenario; `None` when there is none of this name."""
    return of / f"{name}.toml" if name in names(of) else None


def scenario_at(path: Path) -> Path:
    """Return the path of a scenario file: the one that is named, or the built-in one of this name.

    `home` is the file of that name, else `home.toml` beside it, else the built-in scenario.
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
    """Say in one sentence what a built-in scenario is: the comment that its file begins with."""
    return path_of(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def copy(chosen: Iterable[str], into: Path, of: Path = FOLDER) -> list[Path]:
    """Copy built-in scenarios, or networks, and the traces that they name, into a folder; return what was written."""
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
    """Return the file of a built-in scenario, or of a network.

    Raises:
        UserError: there is none of this name.

    """
    found = find(name, of)
    if found is None:
        kind = "network" if of == NETWORKS else "built-in scenario"
        raise UserError(name, f"there is no {kind} of this name", meant(name, names(of)))
    return found


def remedy(name: str) -> str:
    """Say what a user may have meant by a name that is none."""
    return meant(name.removesuffix(".toml"), names())
