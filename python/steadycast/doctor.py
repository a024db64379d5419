"""Tests which commands work on this machine."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadycast.errors import MissingError, UncompiledError, UserError, reason
from steadycast.exits import Exit
from steadycast.workers import cores

LEAST_ROOM = 2 << 30
"""A disk with less free space than this counts as nearly full, in bytes. Ten minutes of CIF pictures need this."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: str
    """The result: "ok", "missing", "unwritable" or "low"."""
    found: str
    remedy: str = ""
    code: Exit = Exit.DONE
    """The exit code of a command that needs this check, if the check has failed."""


NEEDED: dict[str, tuple[str, ...]] = {
    "run": ("simulator", "codecs", "cache"),
    "emulate": ("simulator", "codecs", "cache", "networks"),
    "judge": ("simulator", "codecs", "cache", "networks"),
    "send": ("simulator", "codecs", "cache", "sockets"),
    "serve": ("simulator", "codecs", "cache", "sockets", "serve"),
    "receive": ("simulator", "sockets"),
    "lab": ("simulator", "codecs", "cache", "lab"),
}
"""The names of the checks that must succeed, by command."""


@dataclass(frozen=True)
class Examined:
    """The results of all checks."""

    program: str
    findings: tuple[Finding, ...]

    def code(self, purpose: str) -> Exit:
        """Return the exit code of a command whose checks have failed. Return 0 if all its checks have succeeded."""
        if purpose not in NEEDED:
            raise UserError(
                f"doctor {purpose}", "this command has no check", f"choose from: {', '.join(NEEDED)}"
            )
        return max(f.code for f in self.findings if f.name in NEEDED[purpose])

    def rows(self) -> list[tuple[str, str, str]]:
        """Return a row for each check, for a table in the terminal."""
        return [(f.name, f.state, f"{f.found}; {f.remedy}" if f.remedy else f.found) for f in self.findings]

    def json(self) -> dict[str, Any]:
        """Return the results as JSON, for a script or a bug report."""
        return {
            "format": 1,
            "program": self.program,
            "findings": [{**asdict(f), "code": int(f.code)} for f in self.findings],
            "works": {purpose: self.code(purpose) == Exit.DONE for purpose in NEEDED},
        }


def need(purpose: str) -> None:
    """Raise `UncompiledError` if a command needs the module's real-time part and this part is not compiled."""
    if {"networks", "sockets"} & set(NEEDED.get(purpose, ())):
        from steadycast.core import need_real_time

        try:
            need_real_time(f"doctor {purpose}")
        except UncompiledError:
            raise
        except MissingError:  # the checks will report this problem
            return


def examine() -> Examined:
    """Run all checks. The checks leave no files behind."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("steadycast")
    except PackageNotFoundError:
        own = "not installed"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    program = f"steadycast {own}, Python {platform.python_version()}, {system}"
    return Examined(program, tuple(_findings()))


def _findings() -> Iterator[Finding]:
    yield _attempt("simulator", _simulator)
    yield _codecs()
    yield _cache()
    yield _room("disk", Path.cwd())
    yield Finding("processors", "ok", f"{cores()}: sweep and run --seeds use them all")
    yield _attempt("networks", _networks)
    yield priority()
    yield _attempt("sockets", _sockets)
    for extra, modules, use in (
        ("judge", ("playwright",), "a pair of browsers under judge"),
        ("lab", ("starlette", "tomlkit", "uvicorn"), "steadycast lab"),
        ("serve", ("starlette", "uvicorn"), "steadycast serve"),
        ("metrics", ("prometheus_client",), "send --metrics and receive --metrics"),
        ("cluster", ("distributed",), "sweep --scheduler"),
        ("vmaf", ("imageio_ffmpeg",), "run --vmaf"),
    ):
        yield _extra(extra, modules, use)
    for program, use, package in (
        ("ffplay", "a player for receive --play", "ffmpeg"),
        ("gst-launch-1.0", "GStreamer's players and senders", "gstreamer1.0-tools"),
        ("tshark", "Wireshark's reader of captures", "tshark"),
    ):
        yield _program(program, use, package)


def _attempt(name: str, works: Callable[[], str]) -> Finding:
    """Run a check. ``works`` returns a description of what works, or raises an error that says what is missing."""
    try:
        return Finding(name, "ok", works())
    except MissingError as error:
        return Finding(name, "missing", f"{error.place}: {error.problem}", error.remedy, Exit.MISSING)


def _simulator() -> str:
    from steadycast.core import core

    return f"compiled module {core.__version__}"


def _sockets() -> str:
    from steadycast.core import need_real_time

    need_real_time("send and receive")
    return "send and receive can work"


def _codecs() -> Finding:
    again = "install PyAV again: pip install --force-reinstall av"
    try:
        import av

        from steadycast.media.ladder import CODECS
    except ImportError as error:
        return Finding("codecs", "missing", str(error), again, Exit.MISSING)
    lacking = [c.name for c in CODECS.values() if not {c.encoder, c.decoder} <= av.codecs_available]
    if lacking:
        found = f"PyAV {av.__version__} lacks {', '.join(lacking)}"
        return Finding("codecs", "missing", found, again, Exit.MISSING)
    return Finding("codecs", "ok", f"PyAV {av.__version__} with {', '.join(CODECS)}")


def _cache() -> Finding:
    from steadycast.media import cache

    place = cache.folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        found = f"{place} can't be written ({reason(error)})"
        return Finding("cache", "unwritable", found, "set STEADYCAST_CACHE to another folder", Exit.UNWRITTEN)
    size = sum(each.stat().st_size for each in place.iterdir() if each.is_file())
    room = _room("cache", place)
    return Finding("cache", room.state, f"{_bytes(size)} in {room.found}", room.remedy)


def _room(name: str, place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    found = f"{place}, {_bytes(free)} free"
    if free < LEAST_ROOM:
        return Finding(name, "low", found, "make room, or work in another folder")
    return Finding(name, "ok", found)


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _networks() -> str:
    from steadycast import rootless

    how = "without root, in a user namespace" if rootless.way() else "directly"
    return f"emulate and agree can make network namespaces and TUN devices {how}"


def priority() -> Finding:
    """Check whether emulations can get real-time priority."""
    try:
        # Try the call by which the relay of an emulation gets its priority. Then restore the thread's priority.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except (AttributeError, OSError):
        line = 'echo "$USER - rtprio 5" | sudo tee /etc/security/limits.d/steadycast.conf'
        found = "no real-time priority: emulations may not be trustworthy beside other work"
        return Finding("priority", "low", found, f"{line}, and log in again")
    return Finding("priority", "ok", "emulations go before other work")


def _extra(name: str, modules: Sequence[str], use: str) -> Finding:
    from importlib.util import find_spec

    lacking = [module for module in modules if find_spec(module) is None]
    if lacking:
        found = f"for {use} alone: {', '.join(lacking)}"
        return Finding(name, "missing", found, f"pip install 'steadycast[{name}]'", Exit.MISSING)
    return Finding(name, "ok", f"for {use}")


def _program(name: str, use: str, package: str) -> Finding:
    place = shutil.which(name)
    if place is None:
        remedy = f"Debian, Ubuntu: apt-get install {package}" if os.name == "posix" else "install it"
        return Finding(name, "missing", f"for {use} alone", remedy)
    return Finding(name, "ok", f"{place}: {use}")
