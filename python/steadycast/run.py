"""Runs a scenario: media first, then the simulated world, then what each viewer saw."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadycast.errors import UserError
from steadycast.folder import FORMAT, TABLES, Draft, Json, aggregate, free_or_force, judge, write_json
from steadycast.progress import Progress, Silent

if TYPE_CHECKING:
    import polars as pl

    from steadycast.media.ladder import Ladder
    from steadycast.media.table import FrameTable
    from steadycast.scenario import Scenario

Sets = Mapping[str, object] | Sequence[str]


@dataclass(frozen=True, eq=False)
class Columns:
    """One table of a record."""

    _columns: Sequence[tuple[str, str, Any]]

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
            elif kind == "f64":
                series.append(pl.Series(name, np.frombuffer(content, dtype="<f8")).fill_nan(None))
            else:
                series.append(pl.Series(name, np.frombuffer(content, dtype="<i8")))
        return pl.DataFrame(series)


@dataclass(frozen=True, eq=False)
class Run:
    """A run and its record."""

    summary: Json
    cost: Json
    tables: dict[str, pl.DataFrame | Columns]
    scenario: str
    """The scenario with all defaults, as TOML."""
    folder: Path | None = None
    captures: dict[str, bytes] = field(default_factory=dict)

    def table(self, name: str) -> Columns | Frame:
        """Return a table by its name: rates, decisions, frames, missing, links, tcp, packets."""
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
    def packets(self) -> Columns | Frame:
        """Packets one by one, of the flows that the scenario records."""
        return self.table("packets")

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write the run folder; returns where it is.

        Raises:
            UserError: the folder exists and ``force`` is not given, or can't be written.

        """
        with Draft(path, force=force) as draft:
            draft.text("scenario.toml", self.scenario)
            draft.json("cost.json", self.cost)
            for name, table in self.tables.items():
                frame = table.to_polars() if isinstance(table, Columns) else table
                if name in TABLES or frame.height:
                    if name == "packets" and not frame.height:
                        continue
                    draft.table(name, frame)
            return draft.finish(self.summary)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table that is a polars frame already."""

    _frame: pl.DataFrame

    def to_polars(self) -> pl.DataFrame:
        """Return it."""
        return self._frame


def run(
    scenario: str | Path | Scenario,
    *,
    seed: int | None = None,
    set: Sets = (),  # noqa: A002  (the command line's word)
    sets: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
) -> Run:
    """Run a scenario, and measure what each viewer saw.

    Args:
        scenario: a file, or a `steadycast.scenario.Scenario`.
        seed: instead of the scenario's own.
        set: changes to it, as ``{"flow.video.controller": "tfrc"}`` or ``["flow.video.controller=tfrc"]``.
        sets: the same; the two are added.
        out: where to write the run folder; without it nothing is written.
        force: replace a folder that is there.
        progress: told how far it is.
        quality: decode and measure the pictures.

    Raises:
        UserError: the scenario, a clip or a controller is wrong; it says where, and what to do.

    """
    if out is not None:
        free_or_force(Path(out), force=force)
    changes = [*_texts(set), *_texts(sets)]
    if seed is not None:
        changes.append(f"seed={seed}")
    done = _Runner(scenario, changes, progress or Silent(), quality).go()
    if out is None:
        return done
    return Run(done.summary, done.cost, done.tables, done.scenario, done.save(out, force=force))


def run_seeds(
    scenario: str | Path | Scenario,
    *,
    seeds: Iterable[int],
    set: Sets = (),  # noqa: A002
    sets: Sets = (),
    out: Path | str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    quality: bool = True,
) -> Json:
    """Run a scenario once per seed, and return the summary in which each number has become its spread.

    Writes ``out/seed-N`` for each, and ``out/seeds.json``.

    Raises:
        UserError: as `run`.

    """
    place = Path(out) if out is not None else None
    if place is not None:
        free_or_force(place, force=force)
        if force and place.exists():
            import shutil

            shutil.rmtree(place)
    summaries = []
    for seed in seeds:
        each = place / f"seed-{seed}" if place is not None else None
        done = run(
            scenario, seed=seed, set=set, sets=sets, out=each, force=force, progress=progress, quality=quality
        )
        summaries.append(done.summary)
    joined = aggregate(summaries)
    if place is not None:
        write_json(place / "seeds.json", joined)
    return joined


def _texts(sets: Sets) -> list[str]:
    if isinstance(sets, Mapping):
        return [f"{path}={_literal(value)}" for path, value in sets.items()]
    return list(sets)


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


class _Runner:
    """One run, step by step."""

    def __init__(
        self, scenario: str | Path | Scenario, sets: Sequence[str], progress: Progress, quality: bool
    ) -> None:
        from steadycast import _core

        self.core = _core
        self.progress = progress
        self.quality = quality
        self.loaded = load(scenario, sets)
        self.where = str(scenario) if isinstance(scenario, str | Path) else "scenario"
        self.folder = Path(scenario).parent if isinstance(scenario, str | Path) else Path()
        self.media: dict[str, Ladder | FrameTable] = {}

    def go(self) -> Run:
        began = time.perf_counter()
        ladders = self._ladders()
        prepared = time.perf_counter()
        controllers = {
            v["flow"]: load_class(v["controller"], self.folder)
            for v in self.loaded.videos()
            if ":" in v["controller"]
        }
        try:
            simulation = self.core.Simulation(self.loaded, ladders, controllers)
        except ValueError as error:
            key, _, what = str(error).partition(": ")
            raise UserError(f"{self.where}: {key}", what, "change it in the scenario, or by --set") from None
        cpu = time.thread_time()
        wall = time.perf_counter()
        try:
            complete = simulation.run(self._simulated)
        except RuntimeError as error:
            if len(error.args) == 3:
                place, problem, remedy = error.args
                raise UserError(place, problem, remedy) from None
            raise
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        summary: Json = json.loads(simulation.summary(complete))
        tables: dict[str, pl.DataFrame | Columns] = {
            name: Columns(simulation.table(name)) for name in (*TABLES, "missing")
        }
        simulated = time.perf_counter()
        summary["scenario"]["sha256"] = self.loaded.sha256
        summary["program"] = {"version": self.core.__version__, "commit": commit()}
        summary["warnings"] = [*self.loaded.warnings(), *summary["warnings"], *self._media_warnings()]
        if self.quality:
            self._measure(summary, tables)
        measured = time.perf_counter()
        expectations = [{"that": t, "min": lo, "max": hi} for t, lo, hi in self.loaded.expectations()]
        summary["expect"] = judge(summary, expectations, place=self.where)
        cost: Json = {
            "format": FORMAT,
            "cpu_s": cpu,
            "wall_s": wall,
            "media_s": prepared - began,
            "tables_s": simulated - wall - prepared if False else 0.0,
            "quality_s": measured - simulated,
            "packet_hops": simulation.hops,
            "peak_memory_bytes": _peak_memory(),
        }
        del cost["tables_s"]
        return Run(_ordered(summary), cost, tables, self.loaded.toml())

    def _simulated(self, done: float, of: float) -> None:
        self.progress("simulating", round(done * 10), round(of * 10))

    def _ladders(self) -> dict[str, dict[str, object]]:
        videos = self.loaded.videos()
        if all(v["media"] == "greedy" for v in videos):
            return {}
        from steadycast.media.ladder import Ladder
        from steadycast.media.prepare import media_of

        ladders: dict[str, dict[str, object]] = {}
        for video in videos:
            media = media_of(video, self.loaded.seed, self.progress)
            if media is None:
                continue
            self.media[video["flow"]] = media
            table = media.table if isinstance(media, Ladder) else media
            ladders[video["flow"]] = {
                "fps": (table.fps.numerator, table.fps.denominator),
                "gop": table.gop,
                "logarithmic": video["codec"] == "h264" and video["media"] in ("clip", "synthetic"),
                "qs": bytes(table.qs),
                "kinds": table.kinds,
                "display": table.display,
                "sizes": table.sizes,
            }
        return ladders

    def _media_warnings(self) -> list[str]:
        return [
            f"flow.{v['flow']}: the clip is synthetic"
            for v in self.loaded.videos()
            if v["media"] == "synthetic"
        ]

    def _measure(self, summary: Json, tables: dict[str, pl.DataFrame | Columns]) -> None:
        from steadycast.media.table import FrameTable

        flows = {f: m for f, m in self.media.items() if not isinstance(m, FrameTable)}
        if not flows:
            return
        from steadycast.viewing import measure_flow

        frames, missing = tables["frames"], tables["missing"]
        assert isinstance(frames, Columns)
        assert isinstance(missing, Columns)
        table, holes = frames.to_polars(), missing.to_polars()
        playouts = {v["flow"]: v["playout_s"] for v in self.loaded.videos()}
        parts = []
        for flow in summary["flows"]:
            ladder = flows.get(flow["name"])
            if ladder is not None:
                limit, begin = playouts[flow["name"]], summary["from_s"]
                parts.append(measure_flow(flow, ladder, table, holes, limit, self.progress, begin))
        import polars as pl

        scored = pl.concat(parts) if parts else None
        if scored is not None:
            tables["frames"] = table.join(
                scored, on=["flow", "node", "frame"], how="left", maintain_order="left"
            )


def _ordered(summary: Json) -> Json:
    """Keys in the order in which the contract shows them."""
    first = ["format", "scenario", "program", "world", "complete", "warnings", "from_s", "to_s", "record_sha256"]
    return {k: summary[k] for k in [*first, *(k for k in summary if k not in first)]}


def load(scenario: str | Path | Scenario, sets: Sequence[str] = ()) -> Any:
    """Read and check a scenario: the core's `Scenario`.

    Raises:
        UserError: all that is wrong with it, a line each.

    """
    from steadycast import _core

    try:
        if isinstance(scenario, str | Path):
            return _core.Scenario(str(scenario), list(sets))
        return _core.Scenario("scenario", list(sets), scenario.to_json(), True)
    except ValueError as error:
        raise Problems(error.args[0]) from None


class Problems(UserError):
    """All that is wrong with a scenario."""

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(_place(first), first["what"], first["remedy"])

    def __str__(self) -> str:
        return "\n".join(f"{_place(p)}: {p['what']}; {p['remedy']}" for p in self.problems)


def _place(problem: Mapping[str, Any]) -> str:
    line = f":{problem['line']}" if problem["line"] is not None else ""
    key = f": {problem['key']}" if problem["key"] else ""
    return f"{problem['file']}{line}{key}"


def load_class(name: str, folder: Path) -> type:
    """Class of a controller that is written as ``file.py:Class``; the file's path is relative to ``folder``.

    Raises:
        UserError: there is no such file or class, or the file can't be run.

    """
    import runpy
    import traceback

    file, _, wanted = name.rpartition(":")
    path = folder / file
    if not path.is_file():
        path = Path(file)
    if not path.is_file():
        raise UserError(name, "no such file", 'write "file.py:Class", with the path relative to the scenario')
    try:
        module = runpy.run_path(str(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}", f"not Python: {error.msg}", "mend the file") from None
    except Exception as error:  # whatever the user's file raises is the user's to see
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise UserError(f"{path}:{line}", f"{type(error).__name__}: {error}", "mend the file") from None
    found = module.get(wanted)
    if not isinstance(found, type):
        classes = [k for k, v in module.items() if isinstance(v, type) and v.__module__ == "<run_path>"]
        remedy = f"there are: {', '.join(classes)}" if classes else "define one"
        raise UserError(str(path), f'no class "{wanted}"', remedy)
    return found


@cache
def commit() -> str | None:
    """Commit of the checkout that this program runs from; `None` when it does not."""
    here = Path(__file__).resolve().parent
    if not (here.parent.parent / ".git").exists():
        return None
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"],  # noqa: S607
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
