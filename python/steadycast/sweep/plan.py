"""The plan of a sweep: points (changes to a scenario), each with several seeds. A run's key is a hash of its inputs."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from steadycast import toml
from steadycast.builtin import FOLDER, scenario_at
from steadycast.controller import words
from steadycast.core import core
from steadycast.errors import Problems, UserError
from steadycast.files import readable
from steadycast.folder import read_json, write_json
from steadycast.hints import named
from steadycast.loading import all_texts, load
from steadycast.networks import expanded
from steadycast.scenario import Scenario

FORMAT = 1
NAME = "plan.json"
RESERVED = ("seed", "key", "complete", "error", "record_sha256", "cpu_s")
"""Columns of the results whose names can't be axes."""
_KEYS = {"scenario": "name", "file": "file", "base_sha256": "base", "program": "program", "pixels": "pixels"}
_LISTS = {"set": "sets", "axes": "axes"}
"""Keys of plan.json whose values are lists. Each key is mapped to the attribute of `Plan` that has the same list."""
_REMEDY = "give another -o DIR, or --force to begin anew"


@dataclass(frozen=True)
class Point:
    """One combination of values, one for each axis. It has a hash of the resulting scenario."""

    values: tuple[str, ...]
    """The values as the user wrote them, in the order of the axes."""
    key: str
    """SHA-256 hash of the scenario, the program and all files that the scenario refers to.

    The scenario is resolved, and its seed is left out. The hash also depends on whether pictures are measured.
    """
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    key: str
    sets: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Base:
    """The scenario that is varied, and changes that all runs have in common."""

    scenario: str | Scenario
    """Path of the scenario file as the user gave it, or the scenario object."""
    text: str
    """Content of the file (TOML), or of the object (JSON)."""
    sets: tuple[str, ...]
    origin: Path = Path()
    """Folder of the files that a scenario object refers to."""

    @classmethod
    def of(cls, scenario: str | Path | Scenario, sets: Sequence[str]) -> Self:
        """Read the text of a scenario. It is read once for all runs."""
        if not isinstance(scenario, str | Path):
            return cls(scenario, scenario.to_json(), tuple(sets))
        path = scenario_at(Path(scenario))
        with readable(path, "give a scenario file, with the right to read it"):
            return cls(str(path), path.read_text(encoding="utf-8"), tuple(sets))

    @property
    def name(self) -> str:
        """Name of the scenario in the sweep's folder."""
        return Path(self.scenario).name if isinstance(self.scenario, str) else "scenario"

    @property
    def folder(self) -> Path:
        """Folder of the files that the scenario refers to."""
        return Path(self.scenario).parent if isinstance(self.scenario, str) else self.origin

    def load(self, *more: str) -> core.Scenario:
        """Read and check the scenario with the changes in `sets` and ``more``."""
        return load(self.scenario, [*self.sets, *more], self.text, self.origin)


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, as plan.json contains them."""

    name: str
    file: str
    """Path of the scenario file as the user gave it. The commands in the report contain it."""
    base: str
    """SHA-256 hash of the scenario that is varied, and of the changes that all runs have in common."""
    sets: tuple[str, ...]
    program: str
    """Version of the program, and a hash of the core's sources."""
    pixels: bool
    axes: tuple[str, ...]
    points: tuple[Point, ...]
    equal: tuple[tuple[str, str, str], ...] = ()
    """Values that are left out because their scenarios are the same as for another value.

    Each entry is the axis, the value that is left out, and the other value.
    """

    @classmethod
    def of(
        cls,
        base: Base,
        axes: Sequence[str],
        rows: Sequence[tuple[str, ...]],
        seeds: Sequence[int] | None,
        *,
        pixels: bool,
        file: str,
        options: Mapping[str, str],
    ) -> tuple[Self, list[core.Scenario]]:
        """Plan a sweep. Return the plan, and the scenarios of the points that are valid.

        Without ``seeds``, the seed of the scenario is used. If a value is invalid in all combinations, an error is
        raised. If only some combinations are invalid, their runs fail. ``options`` are the command-line options of the
        axes, for messages.
        """
        made_by = program()
        keys, scenarios, wrong = [], [], {}
        whole = hashlib.sha256(repr((base.text, base.sets)).encode()).hexdigest()
        for values in rows:
            try:
                loaded = base.load(*_sets(axes, values))
            except UserError as error:
                wrong[values] = error
                key = _hash(whole, made_by, *axes, *values, str(error))
            else:
                scenarios.append(loaded)
                key = point_key(loaded, base.folder, pixels=pixels)
            keys.append(key)
        if wrong:
            _blame(axes, rows, wrong, options)
        equal = _equal(axes, dict(zip(rows, keys, strict=True)))
        left_out = {(axes.index(path), value) for path, value, _ in equal}
        kept = [n for n, values in enumerate(rows) if not left_out & set(enumerate(values))]
        rows, keys = [rows[n] for n in kept], [keys[n] for n in kept]
        given = tuple(dict.fromkeys(seeds if seeds is not None else (scenarios[0].seed,)))
        points = (Point(values, key, given) for values, key in zip(rows, keys, strict=True))
        plan = cls(base.name, file, whole, base.sets, made_by, pixels, tuple(axes), tuple(points), equal)
        return plan, scenarios

    def notes(self) -> list[str]:
        """Return a sentence for each value that was left out."""
        return [
            f"{path}: {value} is the same as {other}, and is left out." for path, value, other in self.equal
        ]

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the plan in a folder. Return `None` if there is none."""
        path = folder / NAME
        if not path.exists():
            return None
        told = read_json(path, _REMEDY)
        if told.get("format") != FORMAT:
            raise UserError(
                str(path), f"format {told.get('format')} is not one that this program reads", _REMEDY
            )
        try:
            points = tuple(Point(tuple(p["values"]), p["key"], tuple(p["seeds"])) for p in told["points"])
            given: dict[str, Any] = {name: told[key] for key, name in _KEYS.items()}
            given |= {name: tuple(told[key]) for key, name in _LISTS.items()}
            return cls(**given, points=points)
        except (KeyError, TypeError) as error:
            raise UserError(str(path), f"damaged: {error} is missing or wrong", _REMEDY) from error

    def write(self, folder: Path) -> None:
        """Write plan.json."""
        told = {key: getattr(self, name) for key, name in (_KEYS | _LISTS).items()}
        points = [asdict(point) for point in self.points]
        write_json(folder / NAME, {"format": FORMAT, **told, "points": points})

    def joined(self, more: Plan, place: str) -> Plan:
        """Return this plan together with the points and the seeds of another plan."""

        def refuse(problem: str) -> UserError:
            return UserError(place, problem, _REMEDY)

        if self.program != more.program:
            raise refuse(f"it holds runs of {self.program}, this is {more.program}")
        if self.name != more.name:
            raise refuse(f"it holds a sweep of {self.name}, not of {more.name}")
        if self.base != more.base:
            raise refuse(f"{self.name} or its --set was another when its runs were made")
        if self.axes != more.axes:
            raise refuse(
                f"it varies {', '.join(self.axes) or 'nothing'}, not {', '.join(more.axes) or 'nothing'}"
            )
        if self.pixels != more.pixels:
            raise refuse(f"its runs were made {'with' if self.pixels else 'without'} --pixels")
        points = {point.values: point for point in self.points}
        for point in more.points:
            known = points.get(point.values)
            if known is not None and known.key != point.key:
                raise refuse("a file that its scenario names (a controller, a clip, a trace) has changed")
            seeds = sorted({*point.seeds, *(known.seeds if known else ())})
            points[point.values] = Point(point.values, point.key, tuple(seeds))
        return replace(more, points=tuple(points.values()))

    def runs(self) -> Iterator[tuple[Point, int, Task]]:
        """Yield the point, the seed and the task of each run.

        All points of a seed come before the next seed. So an interrupted sweep has about the same number of runs at
        each point.
        """
        for seed in sorted({seed for point in self.points for seed in point.seeds}):
            for point in self.points:
                if seed in point.seeds:
                    sets = (*_sets(self.axes, point.values), f"seed={seed}")
                    yield point, seed, Task(run_key(point.key, seed), sets, seed)

    def axis_of(self, baseline: str) -> tuple[int, str]:
        """Return the index of the axis to which a baseline belongs, and the value of the baseline."""
        path, _, value = baseline.partition("=")
        place = named("--baseline", "baseline")
        if path not in self.axes:
            remedy = (
                f"there are: {', '.join(self.axes)}" if self.axes else f"vary it by {named('--over', 'over')}"
            )
            raise UserError(f"{place} {baseline}", "this is not an axis of the sweep", remedy)
        axis = self.axes.index(path)
        known = list(dict.fromkeys(point.values[axis] for point in self.points))
        if value not in known:
            raise UserError(f"{place} {baseline}", "no run has this value", f"there are: {', '.join(known)}")
        return axis, value

    def commands(self, point: Point) -> list[list[str]]:
        """Return the commands that repeat the runs of a point and write all tables.

        There is one command for each range of consecutive seeds.
        """
        words = ["steadycast", "run", self.file]
        for change in (*self.sets, *_sets(self.axes, point.values)):
            words += ["--set", change]
        # Group consecutive seeds: for them, the difference between seed and index is constant.
        rows = itertools.groupby(enumerate(sorted(point.seeds)), key=lambda each: each[1] - each[0])
        ranges = [[seed for _, seed in row] for _, row in rows]
        return [
            [*words, *(("--seed", str(row[0])) if len(row) == 1 else ("--seeds", f"{row[0]}-{row[-1]}"))]
            for row in ranges
        ]


def grid(
    over: Iterable[tuple[str, Sequence[str]]],
    table: tuple[Sequence[str], Sequence[tuple[str, ...]]] = ((), ((),)),
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the axes, and all combinations of their values. Table rows are combined with the other axes."""
    over = list(over)
    axes = [*table[0], *(path for path, _ in over)]
    for place, path in enumerate(axes):
        if path in axes[:place]:
            raise UserError(f"--over {path}", "this path is given twice", "give all its values in one option")
        if path in RESERVED:
            remedy = (
                named("give --seeds A-B", "give seeds=range(…)")
                if path == "seed"
                else "name a key of the scenario"
            )
            raise UserError(f"--over {path}", "this can't be varied so", remedy)
    for path, values in over:
        if not values:
            raise UserError(f"--over {path}", "it has no value", f"write --over {path}=V1,V2")
    crossed = itertools.product(table[1], *(dict.fromkeys(values) for _, values in over))
    return axes, list(dict.fromkeys((*row, *values) for row, *values in crossed))


def values(path: str, given: Iterable[str]) -> list[str]:
    """Return the values of an axis. A set of networks is replaced by its networks."""
    return [value for each in given for value in (expanded(each) if path == "network" else [each])]


def axis(text: str) -> tuple[str, list[str]]:
    """Parse PATH=V1,V2. A comma inside of quotes or brackets does not separate values."""
    path, equals, values = text.partition("=")
    if not (path.strip() and equals and values.strip()):
        remedy = "write for example --over flow.video.controller=asmp,tfrc"
        raise UserError(f"--over {text}", "this is not PATH=V1,V2", remedy)
    parts, depth, quote = [""], 0, ""
    for letter in values:
        if letter == "," and depth == 0 and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        parts[-1] += letter
    if "" in map(str.strip, parts):
        raise UserError(
            f"--over {text}", "a value between two commas is missing", "take one of the commas away"
        )
    parts = [part.strip() for part in parts]
    for part in parts:
        if part.startswith("["):
            try:
                toml.read(f"list = {part}")
            except tomllib.TOMLDecodeError as error:
                remedy = f"write several values without brackets, as {path.strip()}={part.strip('[]')}"
                raise UserError(f"--over {text}", "this list is not one of TOML", remedy) from error
    return path.strip(), parts


def table(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """Read a CSV file. Its header contains paths, and its rows are points."""
    remedy = "write a line of paths, and a line of values for each point"
    try:
        with (
            readable(f"--with {path}", "name a CSV file"),
            # Read as utf-8-sig, which skips the byte order mark that spreadsheet programs write.
            path.open(encoding="utf-8-sig", newline="") as file,
        ):
            content = file.readlines()
            head = content[0] if content else ""
            # Find out what separates the columns. Paths contain none of these characters.
            divider = next((each for each in ";\t" if each in head and "," not in head), ",")
            rows = csv.reader(content, delimiter=divider)
            lines = [[cell.strip() for cell in row] for row in rows if any(row)]
    except csv.Error as error:
        raise UserError(f"--with {path}", f"is not CSV ({error})", remedy) from error
    twice = [head for n, head in enumerate(lines[0] if lines else []) if head in lines[0][:n]]
    if twice:
        raise UserError(f"--with {path}: {twice[0]}", "two columns have this path", "take one of them away")
    if len(lines) < 2 or "" in lines[0]:
        raise UserError(f"--with {path}", "it has no points" if len(lines) < 2 else "a head is empty", remedy)
    for number, row in enumerate(lines[1:], 1):
        place = f"--with {path}: row {number}"
        if len(row) != len(lines[0]):
            problem = (
                f"it has another number of values ({len(row)}) than the head has paths ({len(lines[0])})"
            )
            raise UserError(place, problem, remedy)
        if "" in row:
            raise UserError(place, f"the value of {lines[0][row.index('')]} is empty", "write a value there")
    return lines[0], list(dict.fromkeys(map(tuple, lines[1:])))


def shard(text: str) -> tuple[int, int]:
    """Parse I/N, which means part I of N. I is counted from 0."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if found is None or int(found[1]) >= int(found[2]):
        remedy = "write 0/4 to 3/4 for four parts"
        raise UserError(f"--shard {text}", "this is not I/N with I from 0 to N - 1", remedy)
    return int(found[1]), int(found[2])


def _sets(axes: Sequence[str], values: Sequence[str]) -> list[str]:
    return [f"{path}={value}" for path, value in zip(axes, values, strict=True)]


def _equal(axes: Sequence[str], keys: Mapping[tuple[str, ...], str]) -> tuple[tuple[str, str, str], ...]:
    """Return the values of axes that make no difference, as tuples of an axis, its value and an earlier value.

    A value makes no difference if its scenarios are always the same as those of the earlier value.
    """
    found = []
    for place, path in enumerate(axes):
        values = list(dict.fromkeys(row[place] for row in keys))
        for n, value in enumerate(values):
            for other in values[:n]:
                mine = [row for row in keys if row[place] == value]
                theirs = [(*row[:place], other, *row[place + 1 :]) for row in mine]
                if all(keys[row] == keys.get(same) for row, same in zip(mine, theirs, strict=True)):
                    found.append((path, value, other))
                    break
    return tuple(found)


def _blame(
    axes: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    wrong: Mapping[tuple[str, ...], UserError],
    options: Mapping[str, str],
) -> None:
    """Raise the error of a value that is invalid in all combinations.

    ``options`` are the command-line options of the axes.
    """
    if len(wrong) == len(rows):
        error = next(iter(wrong.values()))
        for path in axes:
            if _is_at(error, path):
                raise UserError(options[path], error.problem, error.remedy)
        raise _placed(error, options)
    found = []
    for place, path in enumerate(axes):
        for value in dict.fromkeys(row[place] for row in wrong):
            concerned = [row for row in rows if row[place] == value]
            if all(row in wrong for row in concerned):
                error = wrong[concerned[0]]
                where = "" if _is_at(error, path) else f": {_placed(error, options).place}"
                found.append(
                    (where, UserError(f"{options[path]}={value}{where}", error.problem, error.remedy))
                )
    # Prefer an error in the value itself, which has an empty `where`. It is more precise than an error at another key.
    if found:
        raise min(found, key=lambda each: bool(each[0]))[1]


def _placed(error: UserError, options: Mapping[str, str]) -> UserError:
    """Return the error with the command-line option of the sweep as its place.

    The core reports ``--set`` as the place of every change.
    """
    if not isinstance(error, Problems):
        return error

    def placed(problem: Mapping[str, Any]) -> Mapping[str, Any]:
        paths = [path for path in options if f"{path}.".startswith(f"{problem['key']}.")]
        if problem["file"] != "--set" or not paths:
            return problem
        return {**problem, "file": options[paths[0]], "key": ""}

    return Problems([placed(problem) for problem in error.problems])


def _is_at(error: UserError, path: str) -> bool:
    """Whether the error is a single mistake in the value that `--set` gives to this path.

    The error may also refer to a table that contains the path.
    """
    changed, _, key = error.place.partition("--set: ")
    return not changed and "\n" not in str(error) and bool(key) and f"{path}.".startswith(f"{key}.")


def program() -> str:
    """Return the version of the program, and a hash of the core's sources."""
    made_of = hashlib.sha256(repr(core.sources()).encode()).hexdigest()
    return f"steadycast {core.__version__} (sources {made_of[:16]})"


def point_key(loaded: core.Scenario, folder: Path, *, pixels: bool) -> str:
    """Return a hash of everything that the runs of a scenario depend on. The seed is left out."""
    return _hash(program(), str(pixels), *_contents(loaded, folder))


def run_key(point: str, seed: int) -> str:
    """Return a hash of everything that a run depends on."""
    return _hash(point, str(seed))


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _contents(loaded: core.Scenario, folder: Path) -> list[str]:
    """Return the resolved scenario without its seed, and a hash of each file that it refers to."""
    resolved = tomllib.loads(loaded.toml())
    resolved.pop("seed", None)
    # Remove absolute paths, so that the sweep has the same keys on another machine.
    told = json.dumps(resolved, sort_keys=True, default=str)
    for place in (folder, FOLDER):
        told = told.replace(f"{place.resolve()}/", "")
    return [told, *sorted(_content(file) for file in files(loaded, folder))]


def files(loaded: core.Scenario, folder: Path) -> set[Path]:
    """Return all files that a scenario refers to."""
    found: set[Path] = set()
    for _, value in all_texts(tomllib.loads(loaded.toml())):
        # A controller is either FILE.py:Class or exec:PROGRAM ARGUMENTS.
        program = value.startswith("exec:")
        for name in words(value) if program else [re.sub(r"(?<=\.py):\w+$", "", value)]:
            if program or "/" in name or "." in name:
                # Look for the file in the scenario's folder first, and then in the current folder.
                found.update([path for path in (folder / name, Path(name)) if path.is_file()][:1])
    return found


def networks(base: Base, sets: Iterable[str]) -> set[Path]:
    """Return the network files whose paths occur in a scenario or in a change to it."""
    read = tomllib.loads if isinstance(base.scenario, str) else json.loads
    changes = (change.partition("=") for change in (*base.sets, *sets))
    named = {
        read(base.text).get("network") or "",
        *(v.strip("\"'") for path, _, v in changes if path == "network"),
    }
    # Cut off a suffix that adds competing traffic, as in net.toml+cubic.
    files = {name[: name.rindex(".toml") + 5] for name in named if ".toml" in name}
    return {path for name in files for path in (base.folder / name, Path(name)) if path.is_file()}


def _content(path: Path) -> str:
    known = path.stat()
    return _content_of(path, known.st_mtime_ns, known.st_size)


@cache
def _content_of(path: Path, changed_ns: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
