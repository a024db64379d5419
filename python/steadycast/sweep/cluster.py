"""Runs a sweep on a Dask cluster that exists already. Its workers need no shared disk.

Each worker gets the scenario, its files and the encoded clips once. Only this process writes rows.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from steadycast.builtin import FOLDER
from steadycast.core import core
from steadycast.errors import MissingError, UserError
from steadycast.sweep import plan as planning
from steadycast.sweep.plan import Base, Task

_REACH_S = 10
"""Time limit for the answer of a scheduler, in seconds."""
_CHUNKS = 8
"""The runs of each worker are divided into this number of parts. If a worker is lost, its part is repeated."""
_MOST = 50
"""Maximum number of runs in a part."""


@dataclass(frozen=True)
class Parcel:
    """All data that a worker needs to execute runs of one sweep."""

    base: Base
    pixels: bool
    files: Mapping[str, bytes] = field(repr=False)
    """Contents of files. The keys are paths relative to the scenario's folder."""
    encoded: Mapping[str, bytes] = field(repr=False)
    """Contents of encoded clips. The keys are their names in the cache."""
    key: str = ""
    """SHA-256 hash of the other fields."""


def pack(
    base: Base,
    pixels: bool,
    scenarios: Iterable[core.Scenario],
    encoded: Iterable[Path],
    sets: Iterable[str] = (),
) -> Parcel:
    """Read all files that the scenarios of a sweep refer to.

    ``sets`` are the changes of the runs. A change may refer to a network file.
    """
    files: dict[str, bytes] = {}
    homes = (base.folder.resolve(), Path.cwd())
    named = {path for each in scenarios for path in planning.files(each, base.folder)}
    for path in sorted({path.resolve() for path in named | planning.networks(base, sets)}):
        home = next((each for each in homes if path.is_relative_to(each)), None)
        if home is None and path.is_relative_to(FOLDER.resolve()):
            continue  # workers have the files of built-in networks
        if home is None:
            problem = "it does not lie in the scenario's folder, so a cluster's workers would not find it"
            raise UserError(str(path), problem, "copy it there, or use --shard on a disk that all share")
        files[path.relative_to(home).as_posix()] = path.read_bytes()
    clips = {path.name: path.read_bytes() for path in sorted(encoded)}
    digest = hashlib.sha256(repr((base.text, base.sets, pixels, sorted(files), sorted(clips))).encode())
    for content in files.values():
        digest.update(content)
    return Parcel(base, pixels, files, clips, digest.hexdigest())


class Cluster:
    """Gives access to the workers of a Dask cluster while a block runs.

    Args:
        scheduler: the address of the scheduler (tcp://HOST:PORT), or a `distributed.Client`. The client stays open.
        parcel: the data for the workers.

    """

    def __init__(self, scheduler: object, parcel: Parcel) -> None:
        self._scheduler = scheduler
        self._parcel = parcel
        self._client: Any = None
        self._owned = isinstance(scheduler, str)

    def __enter__(self) -> Self:
        """Connect to the scheduler, and check the versions of its workers."""
        self._client = _reached(self._scheduler) if self._owned else self._scheduler
        try:
            _agreed(self._client)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self._client.close(timeout=2)

    def do(self, tasks: Sequence[Task]) -> Generator[tuple[int, Any], None, None]:
        """Yield the index of each task and its row or exception, in the order in which tasks are completed.

        The tasks are divided into parts. If a worker is lost, another worker repeats its part. If several workers are
        lost while they execute the same part, each run of this part is repeated alone. If several workers are lost
        while they execute a single run, this run has failed.
        """
        from distributed import as_completed

        client = self._client
        parcel = client.scatter(self._parcel, broadcast=True, hash=False)
        share = len(tasks) / max(len(client.scheduler_info()["workers"]), 1) / _CHUNKS
        size = max(1, min(_MOST, round(share)))
        places = list(range(len(tasks)))
        parts = [places[i : i + size] for i in range(0, len(places), size)]

        def given(part: Sequence[int]) -> Any:
            future = client.submit(work, parcel, [tasks[i] for i in part], pure=False)
            waiting[future.key] = part
            return future

        waiting: dict[str, Sequence[int]] = {}
        ending = as_completed([given(part) for part in parts], loop=client.loop)
        try:
            for future in ending:
                part = waiting.pop(future.key)
                if future.status == "finished":
                    yield from zip(part, future.result(), strict=True)
                    continue
                if future.status == "lost":
                    # Wait again, because the scheduler repeats the computation.
                    waiting[future.key] = part
                    ending.add(future)
                    continue
                error = _why(future)
                if isinstance(error, UserError):
                    raise error
                if len(part) == 1:
                    yield part[0], error
                else:
                    ending.update([given([place]) for place in part])
        finally:
            for key in waiting:
                # Suppress errors here, because they would hide the error that ended the loop.
                with suppress(Exception):
                    client.cancel([key])


def work(parcel: Parcel, tasks: Sequence[Task]) -> list[bytes]:
    """Execute runs in a worker. Return their rows as lines of JSON."""
    one = _begun(parcel)
    return [one(task) for task in tasks]


_LOCAL = threading.local()
_UNPACKED: dict[str, Base] = {}
_LOCK = threading.Lock()


def _begun(parcel: Parcel) -> Callable[[Task], bytes]:
    """Return the function that executes runs. Each thread has its own.

    The threads of a worker share the files that were unpacked.
    """
    from steadycast.sweep.work import Setup, begin

    if getattr(_LOCAL, "key", None) != parcel.key:
        with _LOCK:
            if parcel.key not in _UNPACKED:
                _UNPACKED[parcel.key] = _unpacked(parcel)
        _LOCAL.one = begin(Setup(_UNPACKED[parcel.key], parcel.pixels))
        _LOCAL.key = parcel.key
    one: Callable[[Task], bytes] = _LOCAL.one
    return one


def _unpacked(parcel: Parcel) -> Base:
    from distributed import get_worker

    from steadycast.media import cache

    # Unpack into the worker's folder, which Dask removes when the worker ends.
    home = Path(mkdtemp(prefix="steadycast-", dir=get_worker().local_directory))
    for name, content in parcel.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name, content in parcel.encoded.items():
        path = cache.folder() / name
        if not path.exists():
            cache.write(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
    if isinstance(parcel.base.scenario, str):
        return replace(parcel.base, scenario=str(home / Path(parcel.base.scenario).name))
    return replace(parcel.base, origin=home)


def _reached(address: object) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingError.package("--scheduler", "distributed", "steadycast[cluster]") from error
    try:
        return Client(address, timeout=_REACH_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        problem = f"no scheduler answers ({str(error).splitlines()[0][:100] or type(error).__name__})"
        raise UserError(
            f"--scheduler {address}", problem, "start it: dask scheduler, and dask worker HOST:PORT"
        ) from error


def _agreed(client: Any) -> None:
    """Raise an error if a worker has a version that would give different rows."""
    own = versions()
    try:
        told = client.run(versions)
    except ModuleNotFoundError as error:
        problem = f"a worker lacks {error.name}"
        raise UserError(
            "--scheduler", problem, "install the same steadycast on all of its machines"
        ) from error
    if not told:
        raise UserError("--scheduler", "it has no workers", "start some: dask worker HOST:PORT")
    for worker, found in sorted(told.items()):
        if found != own:
            problem = f"{worker} has {', '.join(found)}; here is {', '.join(own)}"
            raise UserError("--scheduler", problem, "install the same versions on all of its machines")


def versions() -> tuple[str, ...]:
    """Return the versions of Steadycast and PyAV, because other versions may produce other results or encoded clips."""
    import av

    libraries = sorted(av.library_versions.items())
    return planning.program(), f"PyAV {av.__version__} ({'.'.join(map(str, dict(libraries)['libavcodec']))})"


def _why(future: Any) -> Exception:
    from distributed import CancelledError, KilledWorker

    from steadycast.workers import LostError

    if future.status == "cancelled":
        return UserError(
            "--scheduler", "the connection is lost", "repeat the command; it makes only the missing runs"
        )
    error = future.exception()
    if isinstance(error, KilledWorker):
        return LostError("its worker was lost")
    if isinstance(error, CancelledError):
        return UserError(
            "--scheduler", "the connection is lost", "repeat the command; it makes only the missing runs"
        )
    return error if isinstance(error, Exception) else RuntimeError(str(error))
