"""Processes that do many runs each: started once, they import once, and end with the process that started them.

They are plain `python -c` processes and not `multiprocessing`'s, which would run a user's script again in each of
them. What they are given and what they give back goes over a socket pair as pickles.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from steadycast.errors import MissingError

_TRIES = 2
"""How often a task may end its process before it is given up."""
_STILLBORN = 4
"""How many processes may end before they have begun to work."""
_PATIENCE_S = 5.0
"""How long processes that were asked to end may put their files in order."""


class LostError(Exception):
    """What comes of a task that ended its process each time it was tried."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"its process ended {_TRIES} times ({self.how})"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Worker processes for the length of a block.

        with Workers("steadycast.run:seed_worker", setup, 4) as workers:
            for index, outcome in workers.do(tasks): ...

    Args:
        work: MODULE:FUNCTION, called once in each process with ``setup``; it returns what is called with each task.
        setup: anything that can be pickled.
        processes: how many.
        gently: whether they are interrupted at an early end, so that they can put their files in order; otherwise
            they are killed.

    """

    def __init__(self, work: str, setup: object, processes: int, *, gently: bool = False) -> None:
        if os.name != "posix":
            raise MissingError(
                "several processes", "they work on POSIX systems alone", "run one scenario after the other"
            )
        self._what = (work, setup)
        self._processes = processes
        self._gently = gently
        self._all: list[_Worker] = []
        self._stillborn = 0

    def __enter__(self) -> Self:
        try:
            for _ in range(self._processes):
                self._all.append(_Worker(self._what))
        except BaseException:
            self._end(gently=False)
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """End the processes, also in the middle of a task."""
        self._end(gently=self._gently and error is not None)

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes."""
        return [worker.process.pid for worker in self._all]

    def do(self, tasks: Sequence[object]) -> Generator[tuple[int, Any], None, None]:
        """Yield a task's place and what came of it, in the order in which they end; an exception is returned.

        What a process that died was at is done again by another; at the second time it is a `LostError`.
        """
        todo = deque(enumerate(tasks))
        deaths: dict[int, int] = {}
        while True:
            for depth in (1, 2):  # the second waits at the worker, which then has never to wait
                for worker in self._all:
                    if len(worker.given) < depth and len(todo) >= (1 if depth == 1 else self._processes):
                        worker.give(todo.popleft())
            busy = {worker.channel: worker for worker in self._all if worker.given}
            if not busy:
                return
            for channel in wait(list(busy)):
                assert isinstance(channel, Connection)
                worker = busy[channel]
                try:
                    heard = channel.recv()
                except (EOFError, OSError):
                    how = self._buried(worker)
                    first, *others = worker.given
                    todo.extendleft(reversed(others))
                    deaths[first[0]] = deaths.get(first[0], 0) + worker.begun
                    if deaths[first[0]] < _TRIES:
                        todo.appendleft(first)
                    else:
                        yield first[0], LostError(how)
                    continue
                if heard is None:
                    worker.begun = True
                    continue
                index, outcome = heard
                worker.given.popleft()
                yield index, outcome

    def _buried(self, worker: _Worker) -> str:
        code = worker.process.wait()
        worker.channel.close()
        self._all.remove(worker)
        how = f"signal {-code}" if code < 0 else f"code {code}"
        self._stillborn += not worker.begun
        if self._stillborn == _STILLBORN:
            raise MissingError(
                "worker processes",
                f"they end before they work ({how})",
                f"see whether {sys.executable} works",
            )
        self._all.append(_Worker(self._what))
        return how

    def _end(self, *, gently: bool) -> None:
        for worker in self._all:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGINT if gently and worker.begun else signal.SIGKILL)
        for worker in self._all:
            try:
                worker.process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.channel.close()
        self._all.clear()


class Helper:
    """One process that does one task beside this one; where it fails, the caller does the task.

    ``work`` is MODULE:FUNCTION, called once in the process with `None`; it returns what is called with the task.
    """

    def __init__(self, work: str) -> None:
        self._worker = _Worker((work, None))

    def ask(self, task: object) -> None:
        """Give it its task."""
        self._worker.give((0, task))

    def answer(self) -> Any:
        """Wait for what came of the task; `None` where there was none, or it raised, or the process ended."""
        if not self._worker.given:
            return None
        try:
            while (heard := self._worker.channel.recv()) is None:
                pass
        except (EOFError, OSError):
            return None
        outcome = heard[1]
        return None if isinstance(outcome, Exception) else outcome

    def end(self) -> None:
        """End the process, whatever it is at."""
        self._worker.process.kill()
        self._worker.process.wait()
        self._worker.channel.close()


class _Worker:
    """A process, and what it has been given."""

    def __init__(self, what: tuple[str, object]) -> None:
        self.channel, theirs = Pipe()
        self.given: deque[tuple[int, object]] = deque()
        self.begun = False
        code = f"from steadycast.workers import serve; serve({theirs.fileno()})"
        home = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), home]))
        # A group of its own: Ctrl-C in a terminal is the parent's to hear. -P: the current folder shadows nothing.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[theirs.fileno()],
            process_group=0,
            env={"POLARS_MAX_THREADS": "1", **os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self._send(what)

    def give(self, task: tuple[int, object]) -> None:
        self.given.append(task)
        self._send(task)

    def _send(self, what: object) -> None:
        with suppress(OSError):  # it has died, which reading from it will tell
            self.channel.send(what)


def serve(number: int) -> None:
    """Work through what comes over the channel of this number: the whole life of a worker process."""
    channel = Connection(number)
    queue: SimpleQueue[tuple[int, object]] = SimpleQueue()
    try:
        where, setup = channel.recv()
        module, _, name = where.partition(":")
        do = getattr(import_module(module), name)(setup)
        channel.send(None)
        threading.Thread(target=_listen, args=(channel, queue), daemon=True).start()
        while True:
            index, task = queue.get()
            _answer(channel, index, _done(do, task))
    except (KeyboardInterrupt, EOFError, OSError):
        os._exit(1)


def _listen(channel: Connection, queue: SimpleQueue[tuple[int, object]]) -> None:
    """Take tasks in while one is being done; end with the process that gives them, however that ends."""
    try:
        while True:
            queue.put(channel.recv())
    except (EOFError, OSError):
        os._exit(1)


def _done(do: Callable[[object], object], task: object) -> object:
    try:
        return do(task)
    except Exception as error:
        return error


def _answer(channel: Connection, index: int, outcome: object) -> None:
    import pickle

    try:
        content = pickle.dumps((index, outcome))
        pickle.loads(content)
    except Exception:  # an exception of a user's own class, for one
        content = pickle.dumps((index, RuntimeError(f"{type(outcome).__name__}: {outcome}")))
    channel.send_bytes(content)
