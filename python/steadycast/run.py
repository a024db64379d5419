"""Runs a scenario: media first, then the simulated world, then what each viewer saw."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast import controller
from steadycast.controller import named
from steadycast.errors import UnwrittenError, UserError
from steadycast.files import scenario_at
from steadycast.folder import (
    FORMAT,
    SOMETIMES,
    TABLES,
    Draft,
    Folder,
    Json,
    aggregate,
    free_or_force,
    judge,
)
from steadycast.progress import Progress, Silent, shown
from steadycast.workers import LostError, Workers, cores

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import polars as pl

    from steadycast import _core
    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable
    from steadycast.report.canvas import Drawing
    from steadycast.scenario import Scenario
    from steadycast.viewing import Record

Sets = Mapping[str, object] | Sequence[str]


@dataclass(frozen=True, eq=False)
class Columns:
    """One table of a record."""

    _columns: Sequence[tuple[str, str, Any]] = field(repr=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's stream interface, for any program that reads Arrow without a copy."""
        return self.to_polars().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> pl.DataFrame:
        """Return it as a polars frame; what is absent is null."""
        import numpy as np
        import polars as pl

        series = []
        for name, kind, content in self._columns:
            if kind == "text":
                codes, texts = content
                places = np.frombuffer(codes, dtype="<u4").astype(np.int64)
                places[places == 0xFFFF_FFFF] = len(texts)
                series.append(pl.Series(name, [*texts, None], dtype=pl.String).gather(places))
            elif kind == "absent":
                rows, dtype = content
                series.append(pl.Series(name, [], dtype=getattr(pl, dtype)).extend_constant(None, rows))
            elif kind in ("i64", "i64 or none"):
                whole = pl.Series(name, np.frombuffer(content, dtype="<i8"))
                series.append(whole if kind == "i64" else whole.replace(-1, None))
            else:
                real = pl.Series(name, np.frombuffer(content, dtype="<f8")).fill_nan(None)
                series.append(real if kind == "f64" else real.cast(getattr(pl, kind)))
        return pl.DataFrame(series)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run and its record."""

    summary: Json
    """What summary.json holds."""
    cost: Json
    """What cost.json holds: processor time, time and memory."""
    tables: dict[str, pl.DataFrame | Columns]
    """The tables of the record, by their names."""
    scenario: str
    """The scenario with all defaults, as TOML."""
    folder: Path | None = None
    """Where it was written."""
    captures: dict[str, Path] = field(default_factory=dict)
    """Links that were captured, and their pcapng files."""
    film: tuple[Json, bytes] | None = None
    """What the film of the worst ten seconds shows, and the film, in WebM; `None` where none was made."""
    _scratch: TemporaryDirectory[str] | None = None
    """Keeps files of a run without a folder as long as the run itself."""

    def table(self, name: str) -> Columns | Frame:
        """Return a table by its name: rates, decisions, frames, missing, links, tcp, moves, packets."""
        if name not in self.tables:
            raise KeyError(f"no table {name!r}: there are {', '.join(self.tables)}")
        found = self.tables[name]
        return found if isinstance(found, Columns) else Frame(found)

    @property
    def rates(self) -> Columns | Frame:
        """Throughput, loss and delay per interval."""
        return self.table("rates")

    @property
    def frames(self) -> Columns | Frame:
        """What became of each frame at each receiver."""
        return self.table("frames")

    @property
    def decisions(self) -> Columns | Frame:
        """What the controllers decided, and why."""
        return self.table("decisions")

    @property
    def links(self) -> Columns | Frame:
        """Load, queue and drops of each link per interval."""
        return self.table("links")

    @property
    def tcp(self) -> Columns | Frame:
        """Window, threshold and RTT of each TCP per interval."""
        return self.table("tcp")

    @property
    def moves(self) -> Columns | Frame:
        """Which receiver of a simulcast went from which group to which, when and why."""
        return self.table("moves")

    @property
    def packets(self) -> Columns | Frame:
        """Packets one by one, of the flows that the scenario records."""
        return self.table("packets")

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write the run folder; returns where it is.

        Raises:
            UserError: the folder exists and ``force`` is not given, or can't be written.

        """
        with Draft(path, force=force) as draft:
            for name, file in self.captures.items():
                draft.copy(f"pcap/{name}.pcapng", file)
            self.fill(draft)
            return draft.finish(self.summary)

    def report(self) -> Path:
        """Write report.html and return its path: in the run's folder, or one that goes with this object."""
        from tempfile import TemporaryDirectory

        from steadycast.report import write_report

        if self.folder is not None:
            return write_report(self.folder)
        scratch = self._scratch
        if scratch is None:
            scratch = TemporaryDirectory(prefix="steadycast-")
            object.__setattr__(self, "_scratch", scratch)
        return write_report(self.save(Path(scratch.name) / "run", force=True))

    def plot(self, name: str = "rates") -> Drawing:
        """Draw a figure of the report: rates, delay, mos, quality, why, queue or tcp. A notebook shows it.

        Raises:
            UserError: there is no such figure, or the run has nothing that it could show.

        """
        from steadycast.report.figures import drawing

        return drawing(self.held(), name)

    def held(self) -> Folder:
        """Return this run as what reports and figures read, without writing it anywhere."""
        return Held(self.folder or Path(str(self.summary["scenario"]["name"])), self.summary, self)

    def fill(self, draft: Draft) -> None:
        """Write what stands beside the summary into a folder that is being made."""
        self.fill_tables(draft)
        self.fill_rest(draft)

    def fill_rest(self, draft: Draft) -> None:
        """Write what stands beside the summary and the tables: cost and film."""
        draft.json("cost.json", self.cost)
        if self.film is not None:
            draft.film(*self.film)

    def fill_tables(self, draft: Draft) -> None:
        """Write the scenario and the tables alone: what figures are drawn from."""
        draft.text("scenario.toml", self.scenario)
        for name, table in self.tables.items():
            frame = table.to_polars() if isinstance(table, Columns) else table
            if frame.height or name not in SOMETIMES:
                draft.table(name, frame)

    def __repr__(self) -> str:
        """Show the flows as a small table, in plain text."""
        caption, rows = self._flows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([f"Run of {caption}", *lines])

    def _repr_html_(self) -> str:
        """Show the flows as a small table above their rates, in a notebook."""
        from base64 import b64encode
        from html import escape

        from steadycast.report.canvas import drawn
        from steadycast.report.figures import draw_rates

        caption, (heads, *rows) = self._flows()
        head = "".join(f"<th>{each}</th>" for each in heads)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        table = f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"
        figure = drawn(lambda: draw_rates(self.held()))
        if figure is None:
            return table
        # As a picture, so that what is named in one figure is not found in another of the same notebook.
        code = b64encode(figure._repr_svg_().encode()).decode()
        return f'{table}<img alt="throughput over time" src="data:image/svg+xml;base64,{code}">'

    def _flows(self) -> tuple[str, list[tuple[str, ...]]]:
        from steadycast import record
        from steadycast.report import say
        from steadycast.report.answer import title
        from steadycast.report.terminal import heading

        columns = record.table("terminal")
        heads = ("flow", *(heading(column) for column in columns))
        rows = [
            (title(flow), *(say.how(column.figure)(column.of_flow(flow)) for column in columns))
            for flow in self.summary["flows"]
        ]
        caption = str(self.summary["scenario"]["name"]) + (
            "" if self.summary["complete"] else " (interrupted)"
        )
        return caption, [heads, *rows]


def moved(run: Run, folder: Path) -> Run:
    """Return a run as it stands in another folder than the one that it was written to."""
    captures = {name: folder / "pcap" / path.name for name, path in run.captures.items()}
    return replace(run, folder=folder, captures=captures)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table that is a polars frame already."""

    _frame: pl.DataFrame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's stream interface, for any program that reads Arrow without a copy."""
        return self._frame.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> pl.DataFrame:
        """Return it."""
        return self._frame


@dataclass(frozen=True, eq=False)
class Held(Folder):
    """A run in memory, read as one in a folder."""

    run: Run
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def scenario_text(self) -> str:
        """The resolved scenario, as TOML."""
        return self.run.scenario

    @property
    def film(self) -> tuple[Json, bytes] | None:
        """What the film of the worst ten seconds shows, and the film."""
        return self.run.film

    def has(self, name: str) -> bool:
        """Whether there is a table that a folder would have."""
        return name in self.run.tables and (name not in SOMETIMES or self.table(name).height > 0)

    def table(self, name: str) -> pl.DataFrame:
        """Table of the record."""
        if name not in self._read:
            self._read[name] = self.run.table(name).to_polars()
        return self._read[name]


def run(
    scenario: str | Path | Scenario,
    *,
    seed: int | None = None,
    set: Sets = (),
    sets: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
    vmaf: bool = False,
    controllers: Mapping[str, type] | None = None,
    film: bool = False,
    recorded: Callable[[Folder], None] | None = None,
) -> Run:
    """Run a scenario, and measure what each viewer saw.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: instead of the scenario's own.
        set: changes to it, as ``{"flow.video.controller": "tfrc"}`` or ``["flow.video.controller=tfrc"]``.
        sets: the same; the two are added.
        out: where to write the run folder; without it nothing is written.
        force: replace a folder that is there.
        progress: told how far it is; by default a bar, where somebody looks.
        quality: decode and measure the pictures.
        vmaf: measure VMAF as well, by the FFmpeg of `imageio-ffmpeg`.
        controllers: classes that steer video flows, by the flows' names, instead of what the scenario says.
        film: film the ten seconds in which a viewer missed most, for the report; only with ``quality``.
        recorded: with ``out``, called when the tables are written, before the film, with the folder in the making.

    Raises:
        UserError: the scenario, a clip or a controller is wrong; it says where, and what to do.
        MissingError: VMAF was asked for, and there is no program that measures it.
        KeyboardInterrupt: somebody pressed Ctrl-C; with ``out``, what there is stands in ``out``.part.

    """
    if out is not None:
        free_or_force(Path(out), force=force)
    if vmaf:
        from steadycast.media.vmaf import need

        need()
    classes = dict(controllers or {})
    changes = [*_texts(set), *_texts(sets), *named(classes)]
    if seed is not None:
        changes.append(f"seed={seed}")
    with ExitStack() as stack:
        told = progress or stack.enter_context(shown())
        runner = _Runner(scenario, changes, told, quality, vmaf, classes)
        runner.film, runner.recorded = film, recorded
        return runner.go(out, force)


def run_seeds(
    scenario: str | Path | Scenario,
    *,
    seeds: Iterable[int],
    set: Sets = (),
    sets: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
    vmaf: bool = False,
    controllers: Mapping[str, type] | None = None,
) -> Json:
    """Run a scenario once per seed, and return the summary in which each number has become its spread.

    Writes ``out/seed-N`` for each, and ``out/seeds.json``; all stand in ``out``.part until the last is done. The runs
    go in parallel, one per processor, in processes of their own; with ``controllers``, and on Windows, one after the
    other in this one.

    Raises:
        UserError: as `run`.

    """
    given = seeds_of(seeds)
    loaded = load(scenario, [*_texts(set), *_texts(sets), *named(controllers or {}), f"seed={given[0]}"])
    common: dict[str, Any] = {"set": set, "sets": sets, "quality": quality, "vmaf": vmaf}
    with ExitStack() as stack:
        told = progress or stack.enter_context(shown())
        processes = min(cores(), len(given))
        alone = bool(controllers) or processes < 2 or os.name != "posix"
        draft = None
        if out is not None:
            draft = stack.enter_context(Draft(out, force=force, mark="seeds.json"))
        if not alone:
            prepare([loaded], told)
        if draft is not None:
            draft.begin()
            stack.enter_context(_seeds_kept(draft))
        place = draft.part if draft is not None else None
        if alone:
            summaries = [
                run(
                    scenario,
                    seed=seed,
                    out=_seed_folder(place, seed),
                    progress=told,
                    controllers=controllers,
                    **common,
                ).summary
                for seed in given
            ]
        else:
            summaries = _in_parallel(_Seeds(scenario, place, common), given, processes, told)
        joined = aggregate(summaries)
        if draft is not None:
            draft.finish(joined)
        return joined


@contextmanager
def _seeds_kept(draft: Draft) -> Iterator[None]:
    """Leave what there is of several seeds when the block ends early; nothing, where no seed has anything."""
    try:
        yield
    except BaseException:
        if not any(draft.part.glob("seed-*")):
            draft.discard()
        raise


def seeds_of(given: Iterable[int]) -> list[int]:
    """Return the seeds.

    Raises:
        UserError: they are none.

    """
    if isinstance(given, int | str) or not isinstance(given, Iterable):
        remedy = "give several, as range(1, 11); one stands in a list"
        raise UserError(f"seeds {given!r}", f"it is a {type(given).__name__}", remedy)
    # One that is named twice is still one sample.
    if not (seeds := list(dict.fromkeys(given))):
        raise UserError("seeds", "there are none", "give at least one")
    return seeds


@dataclass(frozen=True)
class _Seeds:
    """What the processes of `run_seeds` are told."""

    scenario: str | Path | Scenario
    place: Path | None
    common: dict[str, Any]


def _seed_folder(place: Path | None, seed: int) -> Path | None:
    return place / f"seed-{seed}" if place is not None else None


def _in_parallel(what: _Seeds, seeds: Sequence[int], processes: int, progress: Progress) -> list[Json]:
    done: dict[int, Json] = {}
    progress("seeds", 0, len(seeds))
    with Workers("steadycast.run:seed_worker", what, processes, gently=True) as workers:
        for index, outcome in workers.do(seeds):
            if isinstance(outcome, LostError):
                remedy = "see whether the machine has memory left, and run it again"
                raise UserError(f"seed {seeds[index]}", str(outcome), remedy)
            if isinstance(outcome, Exception):
                raise outcome
            done[index] = outcome
            progress("seeds", len(done), len(seeds))
    return [done[index] for index in range(len(seeds))]


def seed_worker(what: _Seeds) -> Callable[[int], Json]:
    """Return what runs one seed in a process of `run_seeds`."""

    def one(seed: int) -> Json:
        place = _seed_folder(what.place, seed)
        return run(what.scenario, seed=seed, out=place, progress=Silent(), **what.common).summary

    return one


def prepare(scenarios: Iterable[_core.Scenario], progress: Progress) -> list[Path]:
    """Encode each ladder that is needed once, before several processes want it at the same time.

    Returns their files in the cache.

    Raises:
        UserError: a clip is missing, damaged or of another kind.

    """
    ready: dict[str, Path | None] = {}
    for loaded in scenarios:
        for video in loaded.videos():
            facts = media_facts(video)
            if video.get("sequence", video["media"]) in ("clip", "synthetic") and facts not in ready:
                from steadycast.media.prepare import media_of

                ready[facts] = getattr(media_of(video, loaded.seed, progress), "place", None)
    return [path for path in ready.values() if path is not None]


def media_facts(video: Mapping[str, Any]) -> str:
    """Say what a flow's media depend on, besides the seed."""
    return repr({k: v for k, v in video.items() if k not in ("flow", "controller", "playout_s", "receivers")})


def _texts(sets: Sets) -> list[str]:
    if isinstance(sets, Mapping):
        return [f"{path}={_literal(value)}" for path, value in sets.items()]
    if isinstance(sets, str) or not isinstance(sets, Iterable):
        raise UserError(f"set={sets!r}", "it is no list of changes", 'give a dict: {"duration": "6s"}')
    texts = list(sets)
    for each in texts:
        if not isinstance(each, str):
            raise UserError(
                f"set: {each!r}",
                f"it is a {type(each).__name__}",
                'write "PATH=VALUE", or give a dict: {"duration": "6s"}',
            )
    return texts


def _literal(value: object) -> str:
    """Value as TOML has it; texts go as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{k} = {_quoted(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_quoted(v) for v in value)}]"
    return str(value)


def _quoted(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else _literal(value)


_LEAST_BPS = 4_000.0
"""What a session sends at the least: a packet of 1500 B each 3 s. Who asks for no more means another unit."""


@contextmanager
def _one_process() -> Iterator[None]:
    """End copies of this process that a user's controller has forked and let return: each would go on as this one."""
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            os._exit(0)


class _Runner:
    """One run, step by step."""

    film = False
    recorded: Callable[[Folder], None] | None = None
    folder: Path | None = None
    """Where the files are that the scenario names; `None` is beside its own."""

    def __init__(
        self,
        scenario: str | Path | Scenario,
        sets: Sequence[str],
        progress: Progress,
        quality: bool,
        vmaf: bool,
        classes: Mapping[str, type],
    ) -> None:
        from steadycast import _core

        self.core = _core
        self.progress = progress
        self.quality = quality
        self.vmaf = vmaf
        self.loaded = self._load(scenario, sets)
        self.where = str(scenario) if isinstance(scenario, str | Path) else "scenario"
        folder = self.folder or (Path(scenario).parent if isinstance(scenario, str | Path) else Path())
        videos = self.loaded.videos()
        for flow in classes:
            if all(v["flow"] != flow for v in videos):
                there = ", ".join(v["flow"] for v in videos) or "none"
                raise UserError(
                    f"controllers[{flow!r}]", "there is no such video flow", f"there are: {there}"
                )
        self.classes = {
            v["flow"]: controller.checked(classes.get(v["flow"]) or controller.load(v["controller"], folder))
            for v in videos
            if v["flow"] in classes or ":" in v["controller"]
        }
        self.media: dict[str, Ladder | FrameTable] = {}

    def _load(self, scenario: str | Path | Scenario, sets: Sequence[str]) -> _core.Scenario:
        return load(scenario, sets)

    def go(self, out: Path | str | None, force: bool) -> Run:
        """Run it, and write its folder while it goes on, if there is to be one."""
        from tempfile import TemporaryDirectory

        if out is not None:
            # The folder is this run's before anything is encoded or simulated.
            with Draft(out, force=force) as draft:
                simulation, media_s = self._prepared()
                draft.begin()
                done = self._go(simulation, media_s, draft.part / "pcap", draft)
                place = draft.finish(done.summary)
            return moved(done, place)
        simulation, media_s = self._prepared()
        if not self.loaded.captured():
            return self._go(simulation, media_s, None, None)
        scratch = TemporaryDirectory(prefix="steadycast-")
        return replace(self._go(simulation, media_s, Path(scratch.name), None), _scratch=scratch)

    def _prepared(self) -> tuple[_core.Simulation | _core.Emulation, float]:
        """Return the world, ready to run, and how long its media took in seconds."""
        began = time.perf_counter()
        simulation = self._build(self._ladders())
        return simulation, time.perf_counter() - began

    def _need_flows(self, remedy: str = "write at least one [[flow]]") -> None:
        if not self.loaded.flows:
            raise UserError(f"{self.where}: flow", "there is none, so nothing would happen", remedy)

    def _build(self, ladders: dict[str, dict[str, object]]) -> _core.Simulation | _core.Emulation:
        self._need_flows()
        try:
            return self.core.Simulation(self.loaded, ladders, self.classes)
        except ValueError as error:
            key, _, what = str(error).partition(": ")
            raise UserError(f"{self.where}: {key}", what, "change it in the scenario, or by --set") from None

    def _go(
        self,
        simulation: _core.Simulation | _core.Emulation,
        media_s: float,
        pcap: Path | None,
        draft: Draft | None,
    ) -> Run:
        captures: dict[str, Path] = {}
        try:
            if pcap is not None and self.loaded.captured():
                pcap.mkdir(exist_ok=True)
                captures = {name: pcap / f"{name}.pcapng" for name in self.loaded.captured()}
                simulation.capture(pcap)
            cpu, wall = time.thread_time(), time.perf_counter()
            with _one_process():
                complete = simulation.run(self._simulated)
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        except RuntimeError as error:
            if len(error.args) == 3:
                if draft is not None:
                    draft.discard()
                raise UserError(*error.args) from None
            raise
        except OSError as error:
            place = (pcap or Path()) / str(error.filename or "")
            raise UnwrittenError.of(place, error, "make room, or capture less") from None
        except KeyboardInterrupt:
            if draft is not None:
                partial = self._record(simulation, complete=False)
                partial.fill(draft)
                draft.progress(partial.summary)
            raise
        done = self._record(simulation, complete=complete)
        began = time.perf_counter()
        try:
            seen = self._measure(done.summary, done.tables) if self.quality else None
        except KeyboardInterrupt:
            if draft is not None:
                done.fill(draft)
                draft.progress(done.summary)
            raise
        if draft is not None:
            done.fill_tables(draft)
            if self.recorded is not None:
                self.recorded(Folder(draft.part, done.summary))
        try:
            if self.film and seen is not None:
                done = replace(done, film=self._film(done.summary, seen))
        except KeyboardInterrupt:
            if draft is not None:
                done.fill_rest(draft)
                draft.progress(done.summary)
            raise
        expectations = [{"that": t, "min": lo, "max": hi} for t, lo, hi in self.loaded.expectations()]
        done.summary["expect"] = judge(done.summary, expectations, place=self.where)
        done.cost.update(
            format=FORMAT,
            cpu_s=cpu,
            wall_s=wall,
            media_s=media_s,
            quality_s=time.perf_counter() - began,
            packet_hops=simulation.hops,
            peak_memory_bytes=_peak_memory(),
        )
        if draft is not None:
            done.fill_rest(draft)
        return replace(done, captures=captures)

    def _record(self, simulation: _core.Simulation | _core.Emulation, *, complete: bool) -> Run:
        summary: Json = json.loads(simulation.summary(complete))
        summary["scenario"]["sha256"] = self.loaded.sha256
        summary["program"] = {"version": self.core.__version__, "commit": commit()}
        tables = self._tables(simulation)
        summary["warnings"] = [
            *self.loaded.warnings(),
            *summary["warnings"],
            *self._media_warnings(),
            *self._class_warnings(tables["decisions"]),
        ]
        return Run(_ordered(summary), {}, tables, self.loaded.toml())

    def _tables(self, simulation: _core.Simulation | _core.Emulation) -> dict[str, pl.DataFrame | Columns]:
        tables: dict[str, pl.DataFrame | Columns] = {
            name: Columns(simulation.table(name)) for name in (*TABLES, "missing")
        }
        tables["frames"] = unscored(simulation.table("frames"))
        return tables

    doing = "simulating"
    """What its progress is called."""

    def _simulated(self, done: float, of: float) -> None:
        self.progress(self.doing, round(done * 10), round(of * 10))

    def _ladders(self) -> dict[str, dict[str, object]]:
        videos = self.loaded.videos()
        if all(v["media"] == "greedy" for v in videos):
            return {}
        from steadycast.media.ladder import Ladder

        ladders: dict[str, dict[str, object]] = {}
        for video in videos:
            media = self._media_of(video)
            if media is None:
                continue
            self.media[video["flow"]] = media
            table = media.table if isinstance(media, Ladder) else media
            ladders[video["flow"]] = {
                "fps": (table.fps.numerator, table.fps.denominator),
                "gop": table.gop,
                "doubling": media.codec.doubling if isinstance(media, Ladder) else None,
                "qs": bytes(table.qs),
                "kinds": table.kinds,
                "display": table.display,
                "sizes": table.sizes,
            }
        return ladders

    def _media_of(self, video: Mapping[str, Any]) -> Ladder | FrameTable | None:
        from steadycast.media.prepare import media_of

        return media_of(video, self.loaded.seed, self.progress)

    def _media_warnings(self) -> list[str]:
        from steadycast.media.table import FrameTable

        warnings = []
        for video in self.loaded.videos():
            if video["media"] == "synthetic":
                warnings.append(f"flow.{video['flow']}: the clip is synthetic")
            media = self.media.get(video["flow"])
            if media is not None and not isinstance(media, FrameTable):
                warnings += [f"flow.{video['flow']}: {warning}" for warning in media.warnings]
        return warnings

    def _class_warnings(self, decisions: pl.DataFrame | Columns) -> list[str]:
        """Say which classes never asked for a rate at which anything can be sent: they meant another unit."""
        if not self.classes:
            return []
        frame = decisions.to_polars() if isinstance(decisions, Columns) else decisions
        warnings = []
        for flow, each in self.classes.items():
            # A receiver's rows say what it saw.
            decided = frame.filter((frame["flow"] == flow) & frame["limit"].is_not_null())
            most = decided["target_bps"].max()
            if isinstance(most, float) and most <= _LEAST_BPS:
                warnings.append(
                    f"flow.{flow}: {each.__qualname__} never asked for more than {most:g} b/s; a rate is in bits per "
                    "second: 2.5 Mb/s is 2.5e6"
                )
        return warnings

    def _measure(self, summary: Json, tables: dict[str, pl.DataFrame | Columns]) -> Record | None:
        """Measure what the viewers saw; return the record with it, or `None` where nothing has pictures."""
        from steadycast.media.table import FrameTable

        ladders = {f: m for f, m in self.media.items() if not isinstance(m, FrameTable)}
        if not ladders:
            return None
        from steadycast.viewing import FRAMES, MISSING, Record, Rows

        told: dict[str, Columns] = {}
        for name in ("frames", "missing"):
            table = tables[name]
            assert isinstance(table, Columns)
            told[name] = table
        frames = Rows.of_core(told["frames"]._columns, FRAMES)
        missing = Rows.of_core(told["missing"]._columns, MISSING)
        record = Record(self.loaded.videos(), ladders, frames, missing, summary["from_s"])
        scored = record.measure(summary["flows"], self.progress, vmaf=self.vmaf)
        columns = [column for column in told["frames"]._columns if column[1] != "absent"]
        for name, dtype in scores():
            columns.append((name, dtype, getattr(scored, name).tobytes()))
        tables["frames"] = Columns(columns)
        return replace(record, frames=frames.plus("psnr_y_db", scored.psnr_y_db))

    def _film(self, summary: Json, seen: Record) -> tuple[Json, bytes] | None:
        from steadycast.film import worst_seconds

        return worst_seconds(seen, summary["flows"], lambda done, of: self.progress("filming", done, of))


def scores() -> list[tuple[str, str]]:
    """Return the columns of the table of frames that take pixels, with their types."""
    from steadycast import record

    return [
        (name, "Int64" if name == "mos" else "Float64") for name in record.columns("frames", measured=True)
    ]


def unscored(columns: Sequence[tuple[str, str, Any]]) -> Columns:
    """Add the columns of what has not been measured, and leave out what a live receiver can't know: nulls."""
    unknown = ("q", "clip_frame")
    columns = [(name, "i64 or none" if name in unknown else kind, content) for name, kind, content in columns]
    rows = len(next(content for name, _, content in columns if name == "frame")) // 8
    return Columns([*columns, *((name, "absent", (rows, dtype)) for name, dtype in scores())])


def _ordered(summary: Json) -> Json:
    """Keys in the order in which the contract shows them."""
    first = [
        "format",
        "scenario",
        "program",
        "world",
        "complete",
        "warnings",
        "from_s",
        "to_s",
        "record_sha256",
    ]
    return {k: summary[k] for k in [*first, *(k for k in summary if k not in first)]}


def load(
    scenario: str | Path | Scenario,
    sets: Sequence[str] = (),
    text: str | None = None,
    origin: Path = Path(),
) -> _core.Scenario:
    """Read and check a scenario: the core's `Scenario`; ``text`` is what its file holds, if that is known.

    Files that an object names are looked for from ``origin`` on.

    Raises:
        UserError: all that is wrong with it, a line each.

    """
    from steadycast import _core
    from steadycast.scenario import Scenario

    if isinstance(scenario, str) and "\n" in scenario:
        raise UserError(
            "scenario", "it is a scenario's text, not the name of a file", "save it, and give the file's name"
        )
    if not isinstance(scenario, str | Path | Scenario):
        remedy = "give a file's name, or a steadycast.scenario.Scenario"
        raise UserError("scenario", f"it is a {type(scenario).__name__}", remedy)
    try:
        if isinstance(scenario, str | Path):
            place = scenario_at(Path(scenario)) if text is None else scenario
            return _core.Scenario(str(place), list(sets), text)
        return _core.Scenario(str(origin / "scenario"), list(sets), scenario.to_json(), True)
    except ValueError as error:
        raise Problems(error.args[0]) from None


class Problems(UserError):  # noqa: N818  (as the core calls it)
    """All that is wrong with a scenario."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(_place(first), first["what"], first["remedy"])

    def __str__(self) -> str:
        return "\n".join(f"{_place(p)}: {p['what']}; {p['remedy']}" for p in self.problems)

    def __reduce__(self) -> tuple[type[Problems], tuple[list[Mapping[str, Any]]]]:
        return Problems, (self.problems,)


def _place(problem: Mapping[str, Any]) -> str:
    line = f":{problem['line']}" if problem["line"] is not None else ""
    key = f": {problem['key']}" if problem["key"] else ""
    return f"{problem['file']}{line}{key}"


@cache
def commit() -> str | None:
    """Commit of the checkout that this program runs from; `None` when it does not."""
    here = Path(__file__).resolve().parent
    if not (here.parent.parent / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _peak_memory() -> int:
    if os.name != "posix":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
