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
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, AnyStr

import hypothesis
import pytest
from steadycast import cli

# Generated inputs have a fixed seed, each test's own name. There is no deadline, so that a slow machine fails no
# test. A property has 60 examples instead of Hypothesis's 100, because most of the time of all tests is spent here.
hypothesis.settings.register_profile("steadycast", deadline=None, derandomize=True, max_examples=60)
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
"""Files with the longest tests. They start first, so that all test processes end at about the same time."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest tests to the front, and mark those whose result depends on the machine's speed."""
    items.sort(key=lambda item: item.path.name not in FIRST)
    for item in items:
        if "claimed" in getattr(item, "fixturenames", ()):
            item.add_marker("timed")


Claimed = Callable[..., AbstractContextManager[None]]
"""A context for assertions about runs in real time: ``claimed(trusted=…)``."""


@contextmanager
def _claimed(*, trusted: bool) -> Iterator[None]:
    try:
        yield
    except AssertionError:
        if trusted:
            raise
        pytest.skip("the machine stalled")


@pytest.fixture
def claimed(record_property: Callable[[str, object], None]) -> Claimed:
    """Return the context in which a test makes assertions about runs in real time.

    ``trusted`` says whether all these runs report that the machine kept up. An assertion that holds counts, because a
    busy machine only makes results worse. An assertion that fails is not evidence if a run did not have the time it
    needed. `scripts/test.py` runs the tests that use this fixture with few others at the same time, and limits how
    many of them may be skipped.
    """
    record_property("timed", True)
    return _claimed


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
    """Runs a program to its end. Its exit code has to be `code` if that is given. The output is text."""
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
    """Waits until a condition is true, for at most a minute."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@contextmanager
def bounded(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A process that ends with the block at the latest: it is killed then, unless it has ended before."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def no_room(most: int) -> dict[str, Any]:
    """Returns the arguments for starting a process whose files can't grow beyond ``most`` bytes, as on a full disk.

    The process writes no bytecode. Otherwise Python would write a truncated file into its cache, and no process could
    import that module any more.
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
    """Runs the command line in this process, in an empty folder.

    Starting a process would take longer than most commands. The library that draws is imported here, because a run
    would otherwise start a process that imports it.

    The exit code has to be `code` if that is given.
    """
    importlib.import_module("matplotlib.figure")
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
    """Replaces the user's cache by an empty one, which all test processes share.

    Two of them can encode the same clip at the same time. This only costs time, because a file gets its name in the
    cache when it is complete.
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
    """Restore the default action of ignored signals: SIGHUP under `nohup`, SIGINT in the background of a script.

    A command keeps ignoring a signal that was ignored at its start, so its tests would wait forever.
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
        # Chromium runs as root only without its sandbox. The page is our own.
        running = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()
