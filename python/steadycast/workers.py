"""Worker processes for many runs. Each process imports the package once, and ends when its parent process ends.

`multiprocessing` is not used, because it would execute the user's script again in each process.
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
"""A task is given up when it has crashed this number of processes."""
_STILLBORN = 4
"""The work is given up when this number of processes have ended during their start."""
_PATIENCE_S = 5.0
"""How long interrupted processes may take to finish their files, in seconds."""


class LostError(Exception):
    """An error of a task that has crashed its process in every attempt."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"its process ended {_TRIES} times ({self.how})"


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Worker processes that run until a ``with`` block ends.

        with Workers("steadycast.run:seed_worker", setup, 4) as workers:
            for index, outcome in workers.do(tasks): ...

    Args:
        work: MODULE:FUNCTION. It is called once in each process with ``setup``, and returns the function for a task.
        setup: any object that can be pickled.
        processes: the number of processes.
        gently: whether the processes are interrupted at an early end, so that they can finish their files. Otherwise
            they are killed.
        path: a folder of modules outside the package. It is needed if ``work`` is in one of these modules.

    """

    def __init__(
        self, work: str, setup: object, processes: int, *, gently: bool = False, path: str | None = None
    ) -> None:
        if os.name != "posix":
            raise MissingError(
                "several processes", "they work on POSIX systems alone", "run one scenario after the other"
            )
        self._what = (work, setup)
        self._processes = processes
        self._gently = gently
        self._path = path
        self._all: list[_Worker] = []
        self._stillborn = 0

    def __enter__(self) -> Self:
        try:
            for _ in range(self._processes):
                self._all.append(_Worker(self._what, self._path))
        except BaseException:
            self._end(gently=False)
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """End the processes, even if they are executing tasks."""
        self._end(gently=self._gently and error is not None)

    @property
    def pids(self) -> list[int]:
        """Return the process ids."""
        return [worker.process.pid for worker in self._all]

    def do(self, tasks: Sequence[object]) -> Generator[tuple[int, Any], None, None]:
        """Yield the index and the outcome of each task, in the order in which tasks are completed.

        The outcome is a result or an exception. If a process crashes, its task is repeated once. If the task crashes
        again, its outcome is a `LostError`.
        """
        todo = deque(enumerate(tasks))
        deaths: dict[int, int] = {}
        while True:
            for depth in (1, 2):  # a second queued task keeps each worker busy
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
                    # Only the first task has crashed. The other tasks return to the queue in their old order.
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
        self._all.append(_Worker(self._what, self._path))
        return how

    def _end(self, *, gently: bool) -> None:
        for worker in self._all:
            # The process may have ended already.
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
    """A process that executes one task at the same time as the caller.

    If the process fails, the caller has to execute the task. ``work`` is MODULE:FUNCTION. The process calls this
    function with `None`. Its result is the function that executes the task.
    """

    def __init__(self, work: str) -> None:
        self._worker = _Worker((work, None))

    def ask(self, task: object) -> None:
        """Send the task to the process."""
        self._worker.give((0, task))

    def answer(self) -> Any:
        """Return the result of the task.

        Returns `None` if there was no task, or after an exception or a crash.
        """
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
        """End the process, even if it is executing the task."""
        self._worker.process.kill()
        self._worker.process.wait()
        self._worker.channel.close()


class _Worker:
    """A worker process, and the tasks in its queue."""

    def __init__(self, what: tuple[str, object], more: str | None = None) -> None:
        self.channel, theirs = Pipe()
        self.given: deque[tuple[int, object]] = deque()
        self.begun = False
        code = f"from steadycast.workers import serve; serve({theirs.fileno()})"
        home = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), home, more]))
        self.process = subprocess.Popen(
            # Use -P, so that modules in the current folder can't replace other modules.
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[theirs.fileno()],
            # Put the process in its own group, so that it does not get Ctrl-C.
            process_group=0,
            env={"POLARS_MAX_THREADS": "1", **os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self._send(what)

    def give(self, task: tuple[int, object]) -> None:
        self.given.append(task)
        self._send(task)

    def _send(self, what: object) -> None:
        with suppress(OSError):  # if the process has died, the next read fails
            self.channel.send(what)


def serve(number: int) -> None:
    """Execute tasks in a worker process. ``number`` is the file descriptor of the channel from which tasks come."""
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
        # The parent process has ended, or it ends this process.
        os._exit(1)


def _listen(channel: Connection, queue: SimpleQueue[tuple[int, object]]) -> None:
    """Receive tasks while another task is executed. End this process when the parent process ends."""
    try:
        while True:
            queue.put(channel.recv())
    except (EOFError, OSError):
        # Exit immediately, because this also ends a long task of the main thread.
        os._exit(1)


def _done(do: Callable[[object], object], task: object) -> object:
    try:
        return do(task)
    # Return the error. The parent process raises it.
    except Exception as error:
        return error


def _answer(channel: Connection, index: int, outcome: object) -> None:
    import pickle

    try:
        content = pickle.dumps((index, outcome))
        pickle.loads(content)
    except Exception:  # for example, a user's class can't be pickled
        content = pickle.dumps((index, RuntimeError(f"{type(outcome).__name__}: {outcome}")))
    channel.send_bytes(content)
