"""Signals that end a command: Ctrl-C, SIGTERM (`kill`, `docker stop`, systemd) and SIGHUP (a terminal that closes)."""

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
    """The first one is a KeyboardInterrupt, the second changes nothing, the third is a KeyboardInterrupt again.

    So what the first one began (the record's writing) is not cut off by the impatience, or the habit, of sending two.
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
        with suppress(OSError):
            print("steadycast: ending; once more to abort", file=sys.stderr)


_heard = _Heard()


@contextmanager
def _put_off() -> Iterator[None]:
    """Let the first signal, if it comes in the block, interrupt when the block is over."""
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
    """Puts off signals while a module is loaded, and mends what polars and NumPy do to a Ctrl-C once they are.

    A KeyboardInterrupt in the middle of an import does not always arrive as one. Python turns it into a SyntaxError
    where it compiles a module with a letter's name in a string, and some modules catch whatever an import of theirs
    raises. So the import ends first. That takes less than a second, or some seconds where nothing is compiled yet.

    While it is loaded, polars puts a handler of its own before ours. With that one each Ctrl-C during a write of
    Parquet raises KeyboardInterrupt, the second one, too, and cuts the record off. So ours is set again.

    The first array that polars is given has it run NumPy's code in Python. A KeyboardInterrupt there is a panic of
    Rust. So polars is given one while signals are put off.
    """

    MENDED = ("polars", "numpy")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python does, and add to its loading if it comes from a file of Python's."""
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
        with suppress(ValueError):  # this is not the main thread
            if signal.getsignal(signal.SIGINT) is _heard:
                signal.signal(signal.SIGINT, _heard)
        found = [sys.modules[each] for each in self.MENDED if each in sys.modules]
        if len(found) == len(self.MENDED) and hasattr(found[0], "Series"):
            polars, numpy = found
            with suppress(Exception):  # another thread is still loading one of them
                polars.Series(numpy.zeros(1))


@contextmanager
def obeyed() -> Iterator[None]:
    """Have the three signals end what runs in the block as Ctrl-C does. A signal that is ignored (`nohup`) stays so."""
    before: dict[signal.Signals, Any] = {}
    _heard.count, _heard.holding, _heard.owed = 0, False, False
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
    """Ignore SIGTERM and SIGHUP from now on: what the command came to is decided, and only the interpreter ends."""
    for each in filter(None, (signal.SIGTERM, getattr(signal, "SIGHUP", None))):
        with suppress(ValueError):  # this is not the main thread
            signal.signal(each, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Keep the first two signals from cutting off what the block does: the session is over, its record is written."""
    _heard.holding = True
    try:
        yield
    finally:
        _heard.holding = False
