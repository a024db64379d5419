"""The compiled module `steadycast._core`, with errors that explain its missing parts.

Other modules import it from here. The package and `steadycast.__main__` import single names directly.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from steadycast.errors import MissingError, UncompiledError

try:
    import steadycast._core as core
except ImportError as error:
    raise MissingError(
        "steadycast._core",
        f"the compiled module can't be loaded ({error})",
        'install it again: "pip install --force-reinstall steadycast"; in a checkout "maturin develop"',
    ) from error

__all__ = ["core", "need_real_time", "program"]

REAL_TIME = {
    "Emulation": "emulate",
    "LiveRecord": "send and receive",
    "Receiver": "receive",
    "Sender": "send",
    "Session": "send and receive",
    "call": "call",
    "is_key_frame": "send and receive",
    "refusals": "emulate",
}
"""Names that only exist if the module has its real-time part, each with the command that uses the name."""
SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup.py"
"""The script that compiles the module in a checkout. A wheel does not contain the script."""


def need_real_time(command: str) -> None:
    """Check that the module includes its real-time part: sessions over sockets, emulation, and analysis of calls.

    Raises:
        MissingError: this system is not Linux.
        UncompiledError: the module was compiled without this part, for example by a checkout's first set-up.

    """
    if vars(core).keys() >= REAL_TIME.keys():
        return
    if sys.platform != "linux":
        raise MissingError(
            command,
            f"this needs Linux, and here is {sys.platform}",
            "run, compare and report work here; for the others take a Linux machine or container",
        )
    remedy = f"run: {sys.executable} {SETUP} --all" if SETUP.exists() else "install steadycast again"
    raise UncompiledError(
        command, "the part of the compiled module for real time is not compiled yet", remedy
    )


def _absent(name: str) -> object:
    """Explain why the module lacks a name. Python calls this function for an absent attribute (PEP 562)."""
    if name in REAL_TIME:
        need_real_time(REAL_TIME[name])
    raise AttributeError(f"module {core.__name__!r} has no attribute {name!r}")


vars(core)["__getattr__"] = _absent


def program() -> dict[str, str | None]:
    """Return the version of the program and the commit of its checkout. A run's summary contains them."""
    return {"version": core.__version__, "commit": commit()}


@cache
def commit() -> str | None:
    """Return the commit of the checkout from which this program runs. Return `None` if it runs from elsewhere."""
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
