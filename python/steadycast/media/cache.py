"""The cache of encoded ladders and raw pictures."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from steadycast import files
from steadycast.errors import UserError

try:
    import pwd
except ImportError:  # Windows
    pwd = None  # type: ignore[assignment]

_ELSEWHERE = "make room in the cache, or set STEADYCAST_CACHE to another folder"


def folder() -> Path:
    """Return the cache's folder. Deleting the folder does no harm.

    The folder is ``$STEADYCAST_CACHE``, or ``steadycast`` in the user's cache folder.
    """
    told = os.environ.get("STEADYCAST_CACHE")
    if told:
        return Path(told)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG Base Directory Specification says that a relative path is invalid and must be ignored.
    return (base if base.is_absolute() else _home() / ".cache") / "steadycast"


def _home() -> Path:
    """Return the user's home folder. An empty or relative ``$HOME`` is ignored."""
    told = Path(os.environ.get("HOME", ""))
    if pwd is None:  # Windows
        return Path.home()
    if told.is_absolute():
        return told
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        problem = "the cache has no folder: HOME is not set, and the user is not in the password database"
        raise UserError("HOME", problem, "set STEADYCAST_CACHE to a folder") from None


def key(facts: Mapping[str, object]) -> str:
    """Return a hash of everything that the cached content depends on."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file as `files.whole` does. Several processes and threads may write the same file at the same time."""
    files.folder(path.parent, _ELSEWHERE)
    own = f".{os.getpid()}-{threading.get_ident()}.part"
    with files.whole(path, _ELSEWHERE, own) as new, new.open("wb") as file:
        fill(file)
