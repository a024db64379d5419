"""Runs experiments and caches their observations under a hash of everything that the result depends on.

Simulations use all cores. A few real-time runs run at the same time, longest first.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import steadycast
from steadycast.core import core
from steadycast.errors import UserError
from steadycast.folder import Json
from steadycast.loading import changes, folder_of, load, place_of
from steadycast.media.cache import folder as cache_folder
from steadycast.media.cache import key as cache_key
from steadycast.media.cache import write as cache_write
from steadycast.media.prepare import prepare
from steadycast.progress import Progress, Silent
from steadycast.rootless import need_rights
from steadycast.workers import LostError, Workers, cores

from papers.engine import frames, observe
from papers.engine.experiment import Sets
from papers.engine.observe import Observed

# Keys of a scenario that change neither packets nor pictures. Of [record], only `interval` and `packets` change the
# result.
_IDLE = ("name", "record", "expect")

_PICTURES_PER_PROCESS = 25
_IDLE_ONLY = 19
"""Nice value of a process that should only get CPU time that no other process wants."""


@dataclass(frozen=True)
class Job:
    """One run: a scenario file, changes to it, a seed, and simulated or emulated."""

    scenario: Path
    sets: tuple[str, ...]
    """The changes to the scenario, each as PATH=VALUE."""
    seed: int
    pixels: bool
    emulated: bool = False
    graded: bool = False
    """Whether opinion scores are also computed against the encoded pictures, and by index."""
    decisions: bool = True
    """Whether each decision of the sender is kept."""

    @staticmethod
    def of(
        scenario: Path,
        sets: Iterable[Sets],
        seed: int,
        *,
        pixels: bool,
        emulated: bool = False,
        graded: bool = False,
        decisions: bool = True,
    ) -> Job:
        """Create a job with all changes applied. If two changes set the same path, the later one counts."""
        merged: dict[str, object] = {}
        for each in sets:
            merged |= each
        return Job(scenario, tuple(changes(merged)), seed, pixels, emulated, graded, decisions)

    def load(self) -> core.Scenario:
        """Load and check the job's scenario, with its changes."""
        return load(self.scenario, [*self.sets, f"seed={self.seed}"])


def run_all(jobs: Sequence[Job], progress: Progress, at_once: int = 4) -> dict[Job, Observed]:
    """Return the observation of each run, from the cache or from a new run.

    Jobs that differ only in the names of their scenarios are run once. At most `at_once` real-time runs are made at the
    same time.

    Raises:
        MissingError: the right to emulate is missing.

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
        timed = {key: job for key, job in todo.items() if job.emulated}
        if timed:
            need_rights()
        prepare([job.load() for job in todo.values()], progress)
        virtual = {key: job for key, job in todo.items() if not job.emulated}
        if not timed:
            done |= _spread(virtual, progress)
        else:
            # Real-time runs leave the processor idle most of the time, so the simulations run at the same time.
            with futures.ThreadPoolExecutor(1) as beside:
                simulated = beside.submit(_spread, virtual, Silent(), _IDLE_ONLY)
                done |= _real_time(timed, at_once, progress)
                done |= simulated.result()
    return {job: done[key] for job, key in keys.items()}


def key_of(job: Job) -> str:
    """Return the cache key of a run.

    It is a hash of the resolved scenario, the content of its clips, and the program that runs it.
    """
    loaded = job.load()
    clips = [path for video in loaded.videos() if video["media"] == "clip" for path in video["paths"]]
    return cache_key(
        {
            "format": observe.FORMAT,
            "scenario": _without_names(loaded.toml()),
            "clips": [_content(str(path)) for path in clips],
            "pixels": job.pixels,
            "world": "emulated" if job.emulated else "simulated",
            "program": _program(video["controller"] for video in loaded.videos()),
            **({} if job.decisions else {"decisions": False}),
            **({"graded": _content(str(frames.__file__))} if job.graded else {}),
        }
    )


def _without_names(toml: str) -> Mapping[str, Any]:
    import tomllib

    table = tomllib.loads(toml)
    record = {k: table.get("record", {}).get(k) for k in ("interval", "packets")}
    flows = [{**flow, "params": _in_use(flow)} for flow in table["flow"]]
    return {**{k: v for k, v in table.items() if k not in _IDLE}, "flow": flows, "recorded": record}


def _in_use(flow: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of the flow's own controller. Parameters of other controllers have no effect."""
    return {k: v for k, v in flow.get("params", {}).items() if k == flow.get("controller")}


@cache
def _content(path: str) -> str:
    import hashlib

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _program(controllers: Iterable[str]) -> list[str]:
    """Return hashes of the code that determines the result of a run.

    One hash is of the core without controllers, one of media and pictures, and one of each controller in the run. A
    hash of the code also detects uncommitted changes, which a version or a commit id does not.
    """
    rest, each = core.sources()
    return [rest, _media(), *(each[name] for name in sorted(set(controllers)))]


@cache
def _media() -> str:
    """Return a hash of the Python code that prepares media and measures pictures, and of its libraries' versions."""
    import hashlib

    import av

    here = Path(steadycast.__file__).resolve().parent
    files = [here / name for name in ("run.py", "run_pipeline.py", "emulate.py", "viewing.py")]
    files += [Path(observe.__file__).resolve(), *sorted((here / "media").glob("*.py"))]
    digest = hashlib.sha256(repr(sorted(av.library_versions.items())).encode())
    for file in files:
        digest.update(_content(str(file)).encode())
    return digest.hexdigest()


def _place(key: str) -> Path:
    return cache_folder() / "reproduce" / f"{key}.json.gz"


def _read(key: str) -> Observed | None:
    try:
        content = json.loads(gzip.decompress(_place(key).read_bytes()))
    except (OSError, EOFError, ValueError):
        return None
    return Observed(content) if content.get("format") == observe.FORMAT else None


def _spread(todo: Mapping[str, Job], progress: Progress, nice: int = 0) -> dict[str, Observed]:
    done: dict[str, Observed] = {}
    free = cores()
    progress("runs", 0, len(todo))
    # Runs with pictures take longest, so they start first. Decoded pictures stay in the memory of the process that
    # decoded them, so the processes are replaced from time to time.
    for pixels in (True, False):
        order = [key for key, job in todo.items() if job.pixels is pixels]
        batch = free * _PICTURES_PER_PROCESS if pixels else max(1, len(order))
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            with workers(min(free, len(part)), nice) as pool:
                for index, outcome in pool.do([todo[key] for key in part]):
                    content = _content_of(outcome)
                    _keep(part[index], content)
                    done[part[index]] = _observed(content)
                    progress("runs", len(done), len(todo))
    return done


def workers(count: int, nice: int = 0) -> Workers:
    """Return processes that execute jobs; if the call is interrupted, its processes end as well."""
    return Workers("papers.engine.runs:begin", nice, count, gently=True, path=str(Path(__file__).parents[2]))


def begin(nice: int) -> Callable[[Job], bytes]:
    """Set the nice value of this process, and return the function that executes a job."""
    os.nice(nice)
    return _work


def _content_of(outcome: Any) -> bytes:
    """Return the content of an observation, or raise the exception that a worker process returned instead.

    Raises:
        UserError: the process of the job ended more than once.

    """
    if isinstance(outcome, LostError):
        raise UserError("the runs", str(outcome), "run it again: finished runs are kept")
    if isinstance(outcome, BaseException):
        raise outcome
    return bytes(outcome)


def _keep(key: str, content: bytes) -> None:
    cache_write(_place(key), lambda file: file.write(content))


def _observed(content: bytes) -> Observed:
    return Observed(json.loads(gzip.decompress(content)))


def _work(job: Job) -> bytes:
    """Execute one run in a separate process."""
    from steadycast.emulate import emulate
    from steadycast.run_pipeline import Keep, Plan, Ready, conduct

    grades: dict[str, Json] = {}
    if job.emulated:
        done = emulate(
            job.scenario,
            seed=job.seed,
            set=job.sets,
            quality=job.pixels,
            progress=Silent(),
            approximate=True,
        ).run
    else:
        plan = Plan.of(job.load(), place_of(job.scenario), folder_of(job.scenario))
        ready = Ready.of(plan, Silent())
        done = conduct(ready, Silent(), Keep(quality=job.pixels))
        if job.graded:
            # The ladders hold the pictures and scores that the run has measured, so they are not decoded again.
            grades = frames.graded(done, ready.ladders)
    seen = observe.observe(done, decisions=job.decisions)
    for name, each in grades.items():
        seen["flows"][name]["graded"] = each
    # The file has no time stamp, so that equal results are equal files.
    return gzip.compress(json.dumps(seen, allow_nan=False).encode(), 6, mtime=0)


# ---------------------------------------------------------------- in real time


def _real_time(todo: Mapping[str, Job], at_once: int, progress: Progress) -> dict[str, Observed]:
    """Execute real-time runs. Runs that were not trustworthy are repeated once, after all other runs.

    If the second run is not trustworthy either, it is reported but not cached, so the next call measures it again.
    """
    done = _timed(todo, at_once, progress)
    late = {key: todo[key] for key, seen in done.items() if not seen.trustworthy}
    return done | _timed(late, at_once, progress) if late else done


_AROUND_S = 3.0
"""The time in seconds that a run takes, beyond its duration, to start, create namespaces and write its record."""


def _timed(todo: Mapping[str, Job], at_once: int, progress: Progress) -> dict[str, Observed]:
    lengths = {key: job.load().duration_s + _AROUND_S for key, job in todo.items()}
    # The longest runs begin first, which shortens the time until the last one ends.
    order = sorted(todo, key=lambda key: -lengths[key])
    whole = makespan([lengths[key] for key in order], at_once)
    what = f"{len(todo)} runs in real time"
    done: dict[str, Observed] = {}
    began = time.monotonic()
    progress(what, 0, round(whole))
    with workers(min(at_once, len(todo))) as pool:
        for index, outcome in pool.do([todo[key] for key in order]):
            content = _content_of(outcome)
            done[order[index]] = _observed(content)
            if done[order[index]].trustworthy:
                _keep(order[index], content)
            progress(what, min(round(time.monotonic() - began), round(whole)), round(whole))
    return done


def makespan(lengths: Iterable[float], at_once: int) -> float:
    """Return the total duration of the runs if each starts as soon as one of `at_once` slots is free."""
    places = [0.0] * at_once
    for length in lengths:
        heapq.heapreplace(places, places[0] + length)
    return max(places)
