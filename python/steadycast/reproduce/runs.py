"""Runs experiments on all cores, and keeps what they showed by the content of everything it depends on."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

from steadycast.errors import UserError
from steadycast.media.cache import folder as cache_folder
from steadycast.media.cache import key as cache_key
from steadycast.media.cache import write as cache_write
from steadycast.progress import Progress
from steadycast.reproduce import observe
from steadycast.reproduce.experiment import Sets
from steadycast.reproduce.observe import Observed

# Keys of a scenario that change neither packets nor pictures; of [record] only the interval shows.
_IDLE = ("name", "record", "expect")

_RUNS_PER_PROCESS = 25


@dataclass(frozen=True)
class Job:
    """One run: a scenario file, changes to it, a seed."""

    scenario: Path
    sets: tuple[str, ...]
    """PATH=VALUE each."""
    seed: int
    pixels: bool

    @staticmethod
    def of(scenario: Path, sets: Iterable[Sets], seed: int, *, pixels: bool) -> Job:
        """Run with all changes; a later one of the same path counts."""
        from steadycast.run import _texts

        merged: dict[str, object] = {}
        for each in sets:
            merged |= each
        return Job(scenario, tuple(_texts(merged)), seed, pixels)


def run_all(jobs: Sequence[Job], progress: Progress) -> dict[Job, Observed]:
    """Return what each run showed: from the cache, or run now.

    Runs that differ only in their names are one.
    """
    keys = {job: key_of(job) for job in jobs}
    done: dict[str, Observed] = {}
    todo: dict[str, Job] = {}
    for job, key in keys.items():
        if key in done or key in todo:
            continue
        known = _read(key)
        if known is None:
            todo[key] = job
        else:
            done[key] = known
    if todo:
        prepare(todo.values(), progress)
        done |= _spread(todo, progress)
    return {job: done[key] for job, key in keys.items()}


def key_of(job: Job) -> str:
    """Name of a run's result: its resolved scenario, its clips' content, the program that runs it."""
    from steadycast.run import load

    loaded = load(job.scenario, _changes(job))
    clips = [path for video in loaded.videos() if video["media"] == "clip" for path in video["paths"]]
    return cache_key(
        {
            "format": observe.FORMAT,
            "scenario": _without_names(loaded.toml()),
            "clips": [_content(str(path)) for path in clips],
            "pixels": job.pixels,
            "program": _program(video["controller"] for video in loaded.videos()),
        }
    )


def _without_names(toml: str) -> Mapping[str, Any]:
    import tomllib

    told = tomllib.loads(toml)
    interval = told.get("record", {}).get("interval")
    return {**{k: v for k, v in told.items() if k not in _IDLE}, "interval": interval}


@cache
def _content(path: str) -> str:
    import hashlib

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _program(controllers: Iterable[str]) -> list[str]:
    """Hashes of what makes a run: of the core without controllers, of media and pictures, of the controllers in it.

    Stronger than a version or a commit: it also tells a build with changes that nobody has committed.
    """
    from steadycast import _core

    rest, each = _core.sources()
    return [rest, _media(), *(each[name] for name in sorted(set(controllers)))]


@cache
def _media() -> str:
    """Of the Python that runs media and measures pictures, and of the libraries that it does it with."""
    import hashlib

    import av

    here = Path(__file__).resolve().parent.parent
    files = [here / "run.py", here / "viewing.py", here / "reproduce" / "observe.py"]
    files += sorted((here / "media").glob("*.py"))
    digest = hashlib.sha256(repr(sorted(av.library_versions.items())).encode())
    for file in files:
        digest.update(_content(str(file)).encode())
    return digest.hexdigest()


def _changes(job: Job) -> list[str]:
    return [*job.sets, f"seed={job.seed}"]


def _place(key: str) -> Path:
    return cache_folder() / "reproduce" / f"{key}.json.gz"


def _read(key: str) -> Observed | None:
    try:
        content = json.loads(gzip.decompress(_place(key).read_bytes()))
    except (OSError, EOFError, ValueError):
        return None
    return Observed(content) if content.get("format") == observe.FORMAT else None


def prepare(jobs: Iterable[Job], progress: Progress) -> None:
    """Encode every ladder that is needed once, before several processes want it at the same time."""
    from steadycast.media.prepare import media_of
    from steadycast.run import load

    prepared = set()
    for job in jobs:
        if not job.pixels:
            continue
        loaded = load(job.scenario, _changes(job))
        for video in loaded.videos():
            facts = repr({k: v for k, v in video.items() if k not in ("flow", "controller", "playout_s")})
            if video["media"] in ("clip", "synthetic") and facts not in prepared:
                prepared.add(facts)
                media_of(video, loaded.seed, progress)


def _spread(todo: Mapping[str, Job], progress: Progress) -> dict[str, Observed]:
    done: dict[str, Observed] = {}
    # Runs with pictures take longest: they go first, so that no core waits for a last one.
    order = sorted(todo.items(), key=lambda item: not item[1].pixels)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    cores = _cores()
    batch = cores * _RUNS_PER_PROCESS
    progress("runs", 0, len(order))
    # Pictures that a process has decoded stay in its memory: new processes now and then bound that. (The executor's
    # own max_tasks_per_child hangs in Python 3.11 when all processes end at the same time.)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        pool = ProcessPoolExecutor(min(cores, len(part)), mp_context=get_context("spawn"))
        try:
            waiting: dict[Future[bytes], str] = {pool.submit(_work, job): key for key, job in part}
            for future in as_completed(waiting):
                content = future.result()
                cache_write(_place(waiting[future]), partial(_fill, content))
                done[waiting[future]] = Observed(json.loads(gzip.decompress(content)))
                progress("runs", len(done), len(order))
        except BrokenProcessPool:
            raise UserError(
                "reproduce",
                "a process was ended from outside, perhaps for want of memory",
                "run it again: finished runs are kept",
            ) from None
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        pool.shutdown()
    return done


def _fill(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _work(job: Job) -> bytes:
    """One run, in a process of its own."""
    from steadycast.run import run

    done = run(job.scenario, seed=job.seed, set=job.sets, quality=job.pixels)
    # No time of day in it: equal results are equal files.
    return gzip.compress(json.dumps(observe.observe(done), allow_nan=False).encode(), 6, mtime=0)


def _cores() -> int:
    from steadycast.media.ladder import cores

    return cores()
