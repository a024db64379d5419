"""Signals that end a command: Ctrl-C, SIGTERM (`kill`, `docker stop`, systemd) and SIGHUP (the terminal was closed)."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

_ABORT = 3


class _Heard:
    """A handler that raises KeyboardInterrupt for the first signal, and from the third signal on.

    It ignores the second signal, so that two signals in quick succession do not abort the writing of the record.
    """

    count = 0
    holding = False
    putting_off = False
    owed = False

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1
        first = self.count == 1 and not self.holding
        if self.count >= _ABORT or (first and not self.putting_off):
            raise KeyboardInterrupt
        if first:
            self.owed = True
            return
        # Ignore errors of a closed standard error.
        with suppress(OSError):
            print("steadycast: ending; once more to abort", file=sys.stderr)


_heard = _Heard()


@contextmanager
def _put_off() -> Iterator[None]:
    """Delay a first signal. Its KeyboardInterrupt is raised at the end of the block."""
    if _heard.putting_off or threading.current_thread() is not threading.main_thread():
        yield
        return
    _heard.putting_off = True
    try:
        yield
    finally:
        _heard.putting_off = False
        if _heard.owed:
            _heard.owed = False
            raise KeyboardInterrupt


class _Loaded:
    """Delays signals while modules are imported, which takes at most a few seconds.

    During an import, Python may turn a KeyboardInterrupt into a SyntaxError, and some modules catch all exceptions.
    """

    MENDED = ("polars", "numpy")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python does. Wrap the loader of a Python source file."""
        found = (
            each.find_spec(name, path, target)
            for each in list(sys.meta_path)
            if not isinstance(each, _Loaded)
        )
        spec = next((each for each in found if each is not None), None)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            load = spec.loader.exec_module

            def load_and_mend(module: ModuleType) -> None:
                with _put_off():
                    load(module)
                    if name in self.MENDED:
                        self._mend()

            spec.loader.exec_module = load_and_mend  # type: ignore[method-assign]
        return spec

    def _mend(self) -> None:
        # polars installs its own handler, so install ours again. With the handler of polars, a second Ctrl-C would
        # truncate a Parquet file.
        with suppress(ValueError):  # raised outside the main thread
            if signal.getsignal(signal.SIGINT) is _heard:
                signal.signal(signal.SIGINT, _heard)
        found = [sys.modules[each] for each in self.MENDED if each in sys.modules]
        if len(found) == len(self.MENDED) and hasattr(found[0], "Series"):
            polars, numpy = found
            # Convert a first array here, while signals are delayed. polars executes Python code for its first array. A
            # KeyboardInterrupt in this code would cause a panic in Rust.
            with suppress(Exception):  # another thread is still loading them
                polars.Series(numpy.zeros(1))


@contextmanager
def obeyed() -> Iterator[None]:
    """Treat the three signals like Ctrl-C while the block runs. A signal that is ignored (`nohup`) stays ignored."""
    before: dict[signal.Signals, Any] = {}
    _heard.count, _heard.holding, _heard.owed = 0, False, False
    # Leave out SIGHUP on Windows, which does not have it.
    for each in filter(None, (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None))):
        found = signal.getsignal(each)
        if found is not signal.SIG_IGN:
            before[each] = found
            signal.signal(each, _heard)
    sys.meta_path.insert(0, _Loaded())
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Loaded)]
        for each, handler in before.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def over() -> None:
    """Ignore SIGTERM and SIGHUP from now on, because the command's result is final."""
    for each in filter(None, (signal.SIGTERM, getattr(signal, "SIGHUP", None))):
        with suppress(ValueError):  # raised outside the main thread
            signal.signal(each, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Ignore the first and the second signal while the block runs. The third signal raises KeyboardInterrupt.

    Signals are counted from the beginning of the command. This block is for writing the record of a session that has
    finished.
    """
    _heard.holding = True
    try:
        yield
    finally:
        _heard.holding = False
