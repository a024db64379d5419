"""Fixtures and helpers of all tests."""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, AnyStr

import hypothesis
import pytest
from steadycast import cli

# Generated inputs have a seed, each test's own name, and a slow machine fails no test.
hypothesis.settings.register_profile("steadycast", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steadycast")

ROOT = Path(__file__).resolve().parent.parent

SMALL = """
format = 1
name = "small"
duration = "3s"

[topology]
shape = "dumbbell"
bottleneck = { rate = "1Mbps", delay = "10ms" }

[[flow]]
name = "video"
kind = "video"
controller = "asmp"
media = "greedy"

[[flow]]
name = "tcp"
kind = "tcp"
send_jitter = "1ms"
"""
"""A video that always has data beside TCP, for three seconds."""


FIRST = ("test_wheel.py", "test_pages.py", "test_instructions.py")
"""Files whose tests take longest: they begin first, so that no process of the tests waits for another at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest begin first; all else keeps its order."""
    items.sort(key=lambda item: item.path.name not in FIRST)


@dataclass
class Said:
    """The result of a command."""

    code: int
    out: str
    err: str


Say = Callable[..., Said]


def command(*words: object) -> list[str]:
    """Returns the command line of a `steadycast` by this Python."""
    return [sys.executable, "-c", "from steadycast.cli import main; main()", *map(str, words)]


def ran(
    words: Sequence[object], timeout: float | None = 300, code: int | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, with this code where one is given; what it printed is text."""
    more = {"capture_output": True, "text": True, "check": False, "timeout": timeout, **more}
    done = subprocess.run(list(map(str, words)), **more)
    assert code in (None, done.returncode), (done.returncode, done.stdout, done.stderr)
    return done


def started(words: Sequence[object], **more: Any) -> subprocess.Popen[str]:
    """Starts a program whose output is read as text."""
    pipe = subprocess.PIPE
    return subprocess.Popen(list(map(str, words)), stdout=pipe, stderr=pipe, text=True, **more)


def script(name: str) -> ModuleType:
    """Imports a module of scripts/, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        return importlib.import_module(name)


def until(holds: Callable[[], object], what: str = "it did not come in time", seconds: float = 60) -> None:
    """Waits until something is the case; a minute is more than it takes."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@contextmanager
def bounded(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A process that does not outlive the block: at its end it is killed, unless it has ended before."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def no_room(most: int) -> dict[str, Any]:
    """Returns how a process is begun whose files can't grow beyond ``most`` bytes, as on a full disk.

    It keeps no bytecode. Python puts as much of it into its cache as there is room for, and from then on no process
    can import that module.
    """
    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        "env": {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The scenario `SMALL` in a separate folder."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """Runs the command line in this process and an empty folder: to begin a process costs more than most commands.

    It has to end with the code that is given, if one is.
    """
    monkeypatch.chdir(tmp_path)

    def run(*words: object, code: int | None = None) -> Said:
        monkeypatch.setattr(sys, "argv", ["steadycast", *map(str, words)])
        ended = 0
        try:
            cli.main()
        except SystemExit as stop:
            ended = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        said = Said(ended, *capsys.readouterr())
        assert code in (None, ended), said
        return said

    return run


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's own cache: it begins empty, and all processes of the tests share one.

    Two of them can encode the same clip at the same time. A file gets its name in the cache only when it is complete,
    so that this costs time only.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker process has a separate folder below that of the main process.
        place = place.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYCAST_CACHE", str(place / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def signals_are_heard() -> Iterator[None]:
    """Take the default of what is ignored: SIGHUP under `nohup`, SIGINT in the background of a script.

    A command leaves an ignored signal as it is, so its tests would wait for what never comes.
    """
    defaults: dict[signal.Signals, Any] = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {each: signal.getsignal(each) for each in defaults}
    for each, default in defaults.items():
        if before[each] is signal.SIG_IGN:
            signal.signal(each, default)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as play:
        # Root may start it without a sandbox only; the page is ours.
        running = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()
