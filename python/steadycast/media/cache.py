"""Where encoded ladders and raw pictures are kept between runs."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from steadycast.errors import UnwrittenError

_ELSEWHERE = "make room in the cache, or set STEADYCAST_CACHE to another folder"


def folder() -> Path:
    """``$STEADYCAST_CACHE``, else ``steadycast`` in the user's cache folder; deleting it does no harm."""
    told = os.environ.get("STEADYCAST_CACHE")
    if told:
        return Path(told)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "steadycast"


def key(facts: Mapping[str, object]) -> str:
    """One name for everything that the cached thing depends on."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def write(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Write a file so that its name never stands on half of it, whatever interrupts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    except OSError as error:
        raise UnwrittenError.of(path.parent, error, _ELSEWHERE) from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UnwrittenError.of(path, error, _ELSEWHERE) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
