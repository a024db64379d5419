"""A video beside one TCP, simulated or emulated. Runs are parallel, and results are cached by their inputs."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from steadycast.emulate import emulate
from steadycast.media.cache import folder as cache_folder
from steadycast.media.cache import key as cache_key
from steadycast.media.cache import write as cache_write
from steadycast.progress import Progress, Silent

from papers.engine.runs import Job, key_of, processes

if TYPE_CHECKING:
    from steadycast.result import Run

FORMAT = 1
"""Raised when `Seen` gets other content: what was kept before then doesn't count."""

MAX_ATTEMPTS = 4
"""So often is a run made that says of itself that it is not trustworthy."""


@dataclass(frozen=True)
class Film:
    """The video that FFmpeg sends as plain RTP instead of the scenario's video."""

    path: Path
    program: str
    """FFmpeg's version."""
    clip: Path | None
    """What it was made of, where its pictures are to be measured."""


@cache
def _source(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Work:
    """One run in one world."""

    job: Job
    emulated: bool
    film: Film | None = None

    @property
    def place(self) -> Path:
        """The file of its cached result."""
        facts: dict[str, object] = {"format": FORMAT, "run": key_of(self.job)}
        if self.emulated:
            facts["emulated"] = _source(Path(inspect.getfile(emulate)))
        if self.film is not None:
            by = _source(Path(__file__).with_name("plain.py"))
            facts["film"] = [self.film.path.name, self.film.program, self.film.clip is not None, by]
        return cache_folder() / "fair" / f"{cache_key(facts)}.json"


@dataclass(frozen=True)
class Seen:
    """The data of a run for the tables."""

    jain: float
    video_bps: float
    tcp_bps: float
    fair_bps: float
    """Each one's fair share."""
    loss: float
    """Share of the video's packets that never came."""
    tcp_again: float | None
    """Share of TCP's packets that were sent again."""
    to_1mbps: float | None
    cov: float | None
    frames_damaged: float | None
    """Share of frames that did not come whole and in time."""
    psnr: float | None
    bins: Sequence[float] = field(repr=False)
    """The video's throughput, second by second."""
    losses: Sequence[float] = field(repr=False)
    trusted: bool = True
    tries: int = 1


@contextmanager
def results(work: Iterable[Work], at_once: int, progress: Progress) -> Iterator[Mapping[Work, Future[Seen]]]:
    """Start all runs that are not cached, in this order; their results are available as they end."""
    found: dict[Work, Future[Seen]] = {}
    # Each runs in a separate process, which takes two minutes of processor time in an hour.
    with processes(at_once) as pool:
        for each in dict.fromkeys(work):
            found[each] = _known(each) or pool.submit(_run, each)
        _count(found.values(), progress)
        yield found


def _known(work: Work) -> Future[Seen] | None:
    try:
        seen = Seen(**json.loads(work.place.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    known: Future[Seen] = Future()
    known.set_result(seen)
    return known


def _count(futures: Iterable[Future[Seen]], progress: Progress) -> None:
    """Tell the progress how many of the runs that are to be made are finished."""
    waiting = [future for future in futures if not future.done()]
    done: list[Future[Seen]] = []

    def one_more(future: Future[Seen]) -> None:
        done.append(future)
        progress("runs", len(done), len(waiting))

    for future in waiting:
        future.add_done_callback(one_more)


def _run(work: Work) -> Seen:
    """Run it in a separate process; repeat a run that is not trustworthy."""
    from validation import plain

    for tries in range(1, MAX_ATTEMPTS + 1):
        seen = ours(work) if work.film is None else plain.run(work.job, work.film)
        seen = replace(seen, tries=tries)
        if seen.trusted:
            cache_write(work.place, partial(_fill, json.dumps(asdict(seen), allow_nan=False).encode()))
            break
    return seen


def _fill(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def ours(work: Work) -> Seen:
    """Run with a video flow of ours."""
    import steadycast

    job = work.job
    how: Any = {"seed": job.seed, "set": job.sets, "quality": job.pixels, "progress": Silent()}
    done = emulate(job.scenario, **how).run if work.emulated else steadycast.run(job.scenario, **how)
    video, tcp = done.summary["flows"][:2]
    viewer = video["receivers"][0]
    bins, losses = seconds(done, viewer["name"])
    return Seen(
        jain=done.summary["fairness"]["jain"],
        video_bps=video["throughput_bps"],
        tcp_bps=tcp["throughput_bps"],
        fair_bps=video["fair_share_bps"],
        loss=viewer["loss_frac"],
        tcp_again=sent_again(tcp),
        to_1mbps=video["ramp_s"]["1Mbps"],
        cov=video["rate_cov"],
        frames_damaged=damaged(viewer),
        psnr=psnr(viewer),
        bins=bins,
        losses=losses,
        trusted=trusted(done),
    )


def sent_again(tcp: Mapping[str, Any]) -> float | None:
    """Share of a TCP's packets that were sent again."""
    sent = tcp["sent_packets"]
    return tcp["retransmitted_packets"] / sent if sent else None


def damaged(viewer: Mapping[str, Any]) -> float | None:
    """Share of frames that did not come whole and in time."""
    frames = viewer["frames"]
    return 1 - frames["ok"] / frames["sent"] if frames else None


def psnr(viewer: Mapping[str, Any]) -> float | None:
    """Luma PSNR against the clip."""
    measured: float | None = (viewer.get("psnr_db") or {}).get("raw", {}).get("y")
    return measured


def trusted(done: Run) -> bool:
    """Whether the run says of itself that it is."""
    return bool(done.summary.get("emulation", {}).get("trustworthy", True))


def seconds(done: Run, node: str) -> tuple[list[float], list[float]]:
    """Return a receiver's throughput and loss, second by second."""
    rates = done.rates.to_polars()
    rates = rates.filter(rates["node"] == node)
    return rates["throughput_bps"].to_list(), rates["loss_frac"].fill_null(0.0).to_list()
