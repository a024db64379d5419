"""The compiled module `steadycast._core`, which is loaded here and nowhere else."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from steadycast.errors import MissingError

try:
    import steadycast._core as core
except ImportError as error:
    raise MissingError(
        "steadycast._core",
        f"the compiled module can't be loaded ({error})",
        'install it again: "pip install --force-reinstall steadycast"; in a checkout "maturin develop"',
    ) from error

__all__ = ["core", "need_linux", "program"]


def need_linux(part: str, command: str) -> None:
    """Say so where the compiled module was built without the worlds of real time, as it is on other systems."""
    if not hasattr(core, part):
        raise MissingError(
            command,
            f"this needs Linux, and here is {sys.platform}",
            "run, compare and report work here; for the others take a Linux machine or container",
        )


def program() -> dict[str, str | None]:
    """Return what a summary says of the program: its version, and the commit of the checkout that it runs from."""
    return {"version": core.__version__, "commit": commit()}


@cache
def commit() -> str | None:
    """Return the commit of the checkout that this program runs from; `None` when it does not."""
    import subprocess

    here = Path(__file__).resolve().parent
    if not (here.parent.parent / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
