"""Reads and writes run folders."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import shutil
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from steadycast import files, toml
from steadycast.errors import UnwrittenError, UserError, meant, reason
from steadycast.files import readable, whole
from steadycast.files import write_text as write_text
from steadycast.hints import named
from steadycast.lazy_import import pl

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


FORMAT = 1
TABLES = ("rates", "frames", "decisions", "links", "packets", "tcp", "moves", "wire", "audio")
SOMETIMES = ("packets", "missing", "moves", "wire", "audio")
"""Tables that are written only if they have rows."""
MARKS = ("summary.json", "seeds.json")
OTHERS = {
    "path.json": ("call", "report.html"),
    "cases.json": ("test-cases", "report.html"),
    "judge.json": ("judge", "judge.html"),
    "agree.json": ("agree", "agree.png"),
    "reproduction.json": ("reproduce", "reproduction.html"),
    "results.parquet": ("sweep", "sweep.html"),
    "experiment.json": ("experiment", "report.html"),
}
Json = dict[str, Any]


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, eq=False)
class Folder:
    """One run, read from its folder. Tables are loaded when they are needed."""

    path: Path
    summary: Json

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Read a folder's summary."""
        path = Path(path)
        unfinished = path.suffix == ".part"
        writer = Claim.holder(path.with_suffix("") if unfinished else path)
        if writer is not None and (unfinished or not any((path / mark).exists() for mark in MARKS)):
            raise UserError(str(path), f"{writer} is writing there", "wait until it has ended")
        if not path.is_dir():
            part = path.with_name(path.name + ".part")
            if part.is_dir():
                raise UserError(
                    str(path),
                    "this run was interrupted",
                    f"run it again, or read {part}, which is not complete",
                )
            if path.exists():
                raise UserError(
                    str(path), "this is no folder", f"name the run's folder, for example {path.parent}"
                )
            raise UserError(str(path), "no such folder", 'make one with "steadycast run FILE -o DIR"')
        if is_seeds(path) and not (path / "summary.json").exists():
            raise UserError(
                str(path), "this folder holds several seeds", f"name one of them, for example {path}/seed-1"
            )
        for mark, (command, page) in OTHERS.items():
            if (path / mark).exists() and not (path / "summary.json").exists():
                raise UserError(
                    str(path), f"this folder is of steadycast {command}, and no run", f"look at {path / page}"
                )
        summary = read_json(path / "summary.json", "run the scenario again")
        number = summary.get("format")
        if not isinstance(number, int) or number > FORMAT:
            raise UserError(
                str(path / "summary.json"),
                f"format {number} is not one that this program reads (up to {FORMAT})",
                "use the program that wrote it, or run the scenario again",
            )
        if not isinstance(summary.get("flows"), list):
            if summary.get("complete") is False:
                raise UserError(str(path), "this run was interrupted before it had results", "run it again")
            raise UserError(str(path / "summary.json"), "there are no flows in it", "run the scenario again")
        check_summary(summary, path / "summary.json")
        return cls(path, with_scores(summary))

    @property
    def name(self) -> str:
        """The name of the run in tables. It is the name of the folder."""
        return self.path.resolve().name

    @cached_property
    def cost(self) -> Json:
        """The run's processor time, wall-clock time and memory. It is empty if the file cost.json is absent."""
        from steadycast import shape

        path = self.path / "cost.json"
        if not path.exists():
            return {}
        told = read_json(path, "run the scenario again")
        shape.check(told, shape.cost(), path, "run the scenario again")
        return told

    @cached_property
    def scenario_text(self) -> str:
        """The resolved scenario as TOML. It is empty if the file scenario.toml is absent."""
        try:
            return (self.path / "scenario.toml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    @cached_property
    def scenario(self) -> Json:
        """The resolved scenario as plain values. It is empty if it can't be read."""
        try:
            found = toml.read(self.scenario_text)
        except tomllib.TOMLDecodeError:
            return {}
        lists = [found.get(key, []) for key in ("flow", "event", "link")]
        whole = all(isinstance(each, list) and all(isinstance(row, dict) for row in each) for each in lists)
        return found if whole else {}

    @property
    def film(self) -> tuple[Json, bytes] | None:
        """The film of the worst ten seconds: its description, and the WebM file. It is `None` if there is no film."""
        path = self.path / "film.webm"
        if not path.exists():
            return None
        with readable(path, "look at its rights"):
            data = path.read_bytes()
        from steadycast import shape

        remedy = f"remove {path}, then write steadycast report --film {self.path}"
        told = read_json(self.path / "film.json", remedy)
        shape.check(told, shape.FILM, self.path / "film.json", remedy)
        return told, data

    def absent(self) -> list[str]:
        """Return the names of mandatory tables that are missing."""
        return [name for name in TABLES if name not in SOMETIMES and not self.has(name)]

    def has(self, name: str) -> bool:
        """Whether the folder has this table."""
        return (self.path / f"{name}.parquet").exists()

    def table(self, name: str) -> pl.DataFrame:
        """Read the table ``name`` and check its columns."""
        path = self.path / f"{name}.parquet"
        if not path.exists():
            remedy = (
                'put `packets = "all"` into [record] and run again'
                if name == "packets"
                else "run the scenario again"
            )
            raise UserError(str(path), "no such table", remedy)
        from steadycast import shape

        try:
            found = pl.read_parquet(path)
        except Exception as error:
            raise UserError(
                str(path), f"the table is damaged ({reason(error)})", "run the scenario again"
            ) from error
        what = shape.table_problem(name, dict(found.schema)) or shape.value_problem(name, found)
        if what is not None:
            raise UserError(str(path), f"the table is damaged: {what}", "run the scenario again")
        return found


def add_film(folder: Folder, shown: Mapping[str, Any], data: bytes) -> None:
    """Write `film.json` and `film.webm` to a finished folder."""
    write_json(folder.path / "film.json", shown)
    with whole(folder.path / "film.webm", _ROOM) as new:
        new.write_bytes(data)


def is_seeds(path: Path | str) -> bool:
    """Whether a folder contains the runs of one scenario with several seeds."""
    return (Path(path) / "seeds.json").exists()


def check_summary(summary: Json, place: Path, *, several: bool = False) -> None:
    """Check the types of all values in a summary.

    Raises:
        UserError: a value has the wrong type.

    """
    from steadycast import shape

    remedy = "run the seeds again" if several else "run the scenario again"
    shape.check(summary, shape.summary(), place, remedy, several=several)


def read_json(path: Path, remedy: str) -> Json:
    """Read a JSON object from a file."""
    try:
        with readable(path, f"look at its rights, or {remedy}"):
            if not path.exists():
                made = 'make one with "steadycast run FILE -o DIR"'
                raise UserError(str(path), "no such file: this is not a run folder", made)
            if not path.is_file():
                raise UserError(str(path), "this is no regular file", remedy)
            value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}", f"this is not JSON: {error.msg}", remedy) from error
    except (ValueError, RecursionError) as error:
        raise UserError(str(path), f"damaged: {reason(error)}", remedy) from error
    if not isinstance(value, dict):
        raise UserError(str(path), "this is not a JSON object", remedy)
    return value


# ---------------------------------------------------------------- writing


_ROOM = "give a folder that you may write to, with room"


class Claim:
    """A lock on a run folder, so that only one process at a time writes to the folder.

    It is an flock(2) on DIR.lock. The system releases it when the process ends. On Windows, there is no lock.

    Args:
        path: the folder.
        force: existing results are replaced.
        grows: results are added to existing ones.

    """

    _ahead: ClassVar[dict[Path, Claim]] = {}
    """Claims that `first` made, by the path of their lock file.

    The next `Claim` on the same folder takes over the claim.
    """

    def __init__(self, path: Path | str, *, force: bool = False, grows: bool = False) -> None:
        self.path = Path(path)
        self._force = force
        self._grows = grows
        self._lock = _lock_of(self.path)
        self._file: int | None = None
        self._made: list[Path] = []

    def __enter__(self) -> Self:
        if (ahead := self._ahead.pop(self._lock, None)) is not None:
            self._file, self._made = ahead._file, ahead._made
            return self
        return self._taken()

    def _taken(self) -> Self:
        self._look()
        if fcntl is None:
            return self
        self._made = [each for each in self._lock.parents if not each.exists()]
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
        except OSError as error:
            self.__exit__()
            raise UnwrittenError.of(self.path, error, _ROOM) from error
        if self._file is None:
            writer = self.holder(self.path) or "another run"
            raise UserError(
                str(self.path),
                f"{writer} is writing there",
                "wait until it has ended, or give another -o DIR",
            )
        try:
            # Check again, because another process may have finished the folder while this process waited for the lock.
            self._look()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _look(self) -> None:
        if not self._grows:
            free_or_force(self.path, force=self._force)
        elif self.path.exists():
            _ours_or_free(self.path, "give another -o DIR")

    def _locked(self) -> int | None:
        tries = 0
        while True:
            file = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Check that the file still has its name. A lock on an unlinked file does not keep other processes away.
                if _same(file, self._lock):
                    with suppress(OSError):  # ignored, because the number is only shown in messages
                        os.ftruncate(file, 0)
                        os.write(file, f"{os.getpid()}\n".encode())
                    return file
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    return file  # the file system has no locks
                os.close(file)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                if tries == 3:
                    return None
                # Try again, because `holder` takes the lock for a moment. One failure does not prove that there is a
                # writer.
                tries += 1
                time.sleep(0.02)
                continue
            os.close(file)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            # Unlink the file before the release. After the release, it could be the lock of another process.
            self._lock.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None
        for each in self._made:
            with suppress(OSError):  # the folder is not empty
                each.rmdir()

    @classmethod
    @contextmanager
    def first(cls, path: Path) -> Iterator[Path]:
        """Claim `path`, or the first free one of path-2, path-3 and so on, and yield the claimed path."""
        claim = cls._first(path)
        cls._ahead[claim._lock] = claim
        try:
            yield claim.path
        finally:
            if cls._ahead.pop(claim._lock, None) is not None:
                claim.__exit__()

    @classmethod
    def _first(cls, path: Path) -> Self:
        for n in itertools.count(1):
            claim = cls(path if n == 1 else path.with_name(f"{path.name}-{n}"))
            if claim.path.exists():
                continue
            try:
                return claim._taken()
            except UnwrittenError:
                raise
            except UserError:
                continue
        raise AssertionError

    @staticmethod
    def holder(path: Path) -> str | None:
        """Describe the process that writes to a folder. Return `None` if there is no such process."""
        try:
            file = os.open(_lock_of(path), os.O_RDONLY)
        except OSError:
            return None
        if fcntl is None:
            os.close(file)
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            process = os.read(file, 20).decode("ascii", "replace").strip()
            return f"another run (process {process})" if process.isdecimal() else "another run"
        finally:
            os.close(file)
        return None


def _lock_of(path: Path) -> Path:
    whole = path.resolve()
    return whole.parent / f"{whole.name}.lock"


def _same(file: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(file)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


class Draft:
    """An unfinished run folder.

    It is written as DIR.part, and `finish` renames it to DIR. `complete: true` is written last, so that a folder never
    seems complete after a crash. With ``goes_on``, the files of an interrupted run are kept.

        with Draft(out, force=False) as draft:
            draft.table("rates", frame)
            draft.text("scenario.toml", resolved)
            draft.finish(summary)
    """

    def __init__(
        self, path: Path | str, *, force: bool = False, mark: str = "summary.json", goes_on: bool = False
    ) -> None:
        self.path = Path(path)
        self._goes_on = goes_on
        self.mark = mark
        # Resolve a path such as ".", because it has no name of its own.
        named = self.path if self.path.name not in ("", "..") else self.path.resolve()
        self.part = named.parent / f"{named.name}.part"
        self._claim = Claim(path, force=force)
        self._begun = False
        self._summary: Json = {"format": FORMAT, "complete": False}

    def __enter__(self) -> Self:
        self._claim.__enter__()
        try:
            if self.part.exists():
                _ours_or_free(self.part, "move it away, or give another -o DIR")
        except BaseException:
            self._claim.__exit__()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self._claim.__exit__()
        if isinstance(error, KeyboardInterrupt) and self._begun and self.part.exists():
            # Replace the note that a `Draft` inside this folder may have set.
            after = "; repeat the command to continue" if self._goes_on else ""
            error.__notes__ = [f"the partial results are in {self.part}{after}"]

    def begin(self) -> None:
        """Create DIR.part. Remove the files of an interrupted run unless ``goes_on`` is set."""
        if self._begun:
            return
        with files.written(self.part, _ROOM):
            if self.part.exists() and not self._goes_on:
                if any(self.part.iterdir()):
                    print(f"{self.part}: what an interrupted run left there is replaced", file=sys.stderr)
                shutil.rmtree(self.part)
            self.part.mkdir(exist_ok=True)
        self._begun = True
        try:
            write_json(self.part / self.mark, self._summary)
        except UnwrittenError:
            self.discard()
            raise

    def text(self, name: str, content: str) -> None:
        """Write a text file."""
        with self._file(name) as new:
            new.write_text(content, encoding="utf-8")

    def copy(self, name: str, source: Path) -> None:
        """Copy a file to ``name``. Create missing parent folders."""
        with self._file(name) as new:
            shutil.copyfile(source, new)

    def discard(self) -> None:
        """Remove DIR.part."""
        shutil.rmtree(self.part, ignore_errors=True)

    def json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        with self._file(name) as new:
            new.write_text(_json_text(value), encoding="utf-8")

    def film(self, shown: Mapping[str, Any], data: bytes) -> None:
        """Write `film.json` and `film.webm`."""
        self.json("film.json", shown)
        with self._file("film.webm") as new:
            new.write_bytes(data)

    def table(self, name: str, frame: pl.DataFrame) -> None:
        """Write a table as NAME.parquet."""
        with self._file(f"{name}.parquet") as new:
            frame.write_parquet(new)

    @contextmanager
    def _file(self, name: str) -> Iterator[Path]:
        self.begin()
        path = self.part / name
        files.folder(path.parent, _ROOM)
        with whole(path, _ROOM) as new:
            yield new

    def progress(self, summary: Mapping[str, Any]) -> None:
        """Write a partial summary that contains `complete: false`."""
        self._summary = {**summary, "complete": False}
        self.json(self.mark, self._summary)

    def finish(self, summary: Mapping[str, Any]) -> Path:
        """Write the summary, rename DIR.part to DIR, and return the path of the folder.

        If the summary has `complete: false`, DIR.part is not renamed.
        """
        self.progress(summary)
        if not summary.get("complete", True):
            return self.part
        with files.written(self.path, _ROOM):
            replace_folder(self.part, self.path)
        write_json(self.path / self.mark, {**summary, "complete": True})
        return self.path


def free_or_force(path: Path, *, force: bool) -> None:
    """Raise an error if a folder contains files of other origin, or if it has results and `force` is false."""
    if not path.exists():
        return
    need_elsewhere(path)
    if path.is_dir() and any(path.iterdir()) and not force:
        remedy = f"give {_force()} to replace it, or another {_out()}"
        raise UserError(str(path), "this folder exists", remedy)
    _ours_or_free(path, f"{_force()} only replaces those; give another {_out()}")


def _force() -> str:
    return named("--force", "force=True")


def _out() -> str:
    return named("-o DIR", "out=DIR")


def need_elsewhere(path: Path) -> None:
    """Raise an error for the current folder and its parents, because a folder in use can't be renamed."""
    here = Path.cwd()
    if path.resolve() in (here, *here.parents):
        raise UserError(
            str(path), "this is the current folder, or one above it", "name a new folder, as in -o results"
        )


def _ours_or_free(path: Path, remedy: str) -> None:
    if not path.is_dir():
        raise UserError(str(path), "this is a file", "name a folder")
    # Do not accept Parquet files of `OTHERS` as a proof, because a user's own folder may contain such files.
    marks = (*MARKS, "scenario.toml", "experiment.toml", *(mark for mark in OTHERS if mark.endswith(".json")))
    if any(path.iterdir()) and not any((path / mark).exists() for mark in marks):
        raise UserError(str(path), "this folder holds no results of this program", remedy)


def replace_folder(source: Path, target: Path) -> None:
    """Rename `source` to `target`. Remove an older `target` at the end."""
    if target.exists():
        old = target.with_name(f"{target.name}.old-{os.getpid()}")
        target.rename(old)
        source.rename(target)
        shutil.rmtree(old)
    else:
        source.rename(target)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_text(path, _json_text(value))


def _json_text(value: Mapping[str, Any]) -> str:
    # Refuse NaN, because JSON does not have it. A NaN here is a bug.
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


# ---------------------------------------------------------------- several seeds

_SEED_KEYS = ("seed", "record_sha256")


def aggregate(summaries: Sequence[Mapping[str, Any]]) -> Json:
    """Join the summaries of several seeds. Each number becomes an object {"mean", "ci95", "min", "max", "n"}.

    Lists of objects are joined by name or id, and other lists become their union. Null values are left out.
    """
    whole = _join([dict(s) for s in summaries])
    assert isinstance(whole, dict)
    whole["format"] = FORMAT
    whole["complete"] = all(bool(s.get("complete")) for s in summaries)
    whole["expect"] = [_judged(entry) for entry in whole.get("expect") or []]
    return whole


def spread(values: Sequence[float]) -> Json:
    """Return the mean, the half-width of its confidence interval, the minimum, the maximum and the count.

    The interval is the 95 % confidence interval by Student's t distribution. A single value has no interval.
    """
    n = len(values)
    ci = student_t95(n - 1) * statistics.stdev(values) / math.sqrt(n) if n > 1 else None
    return {"mean": statistics.fmean(values), "ci95": ci, "min": min(values), "max": max(values), "n": n}


def with_scores(summary: Json) -> Json:
    """Rename the receivers' scores in a summary of an older version, which calls them `viewing_score`."""
    for flow in summary["flows"]:
        for receiver in flow.get("receivers") or [] if isinstance(flow, dict) else []:
            if isinstance(receiver, dict) and "viewing_score" in receiver and "rate_score" not in receiver:
                by = "picture_score" if receiver.get("viewing_score_by") == "pictures" else "rate_score"
                receiver[by] = receiver["viewing_score"]
    return summary


def is_spread(value: object) -> bool:
    """Whether a value has the form of a result of `spread`."""
    return isinstance(value, dict) and value.keys() == {"mean", "ci95", "min", "max", "n"}


# fmt: off
_T95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
        2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860)
_T99 = (63.6567, 9.9248, 5.8409, 4.6041, 4.0321, 3.7074, 3.4995, 3.3554, 3.2498, 3.1693,
        3.1058, 3.0545, 3.0123, 2.9768, 2.9467, 2.9208, 2.8982, 2.8784, 2.8609, 2.8453)
# fmt: on


def student_t95(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution, which is for a two-sided 95 % interval."""
    return _student_t(freedom, _T95, 1.959964)


def student_t99(freedom: int) -> float:
    """Return the 99.5 % quantile of Student's t distribution, which is for a two-sided 99 % interval."""
    return _student_t(freedom, _T99, 2.575829)


def _student_t(freedom: int, table: Sequence[float], z: float) -> float:
    if freedom < 1:
        return math.inf
    if freedom <= len(table):
        return table[freedom - 1]
    # Use the Cornish-Fisher expansion around the normal quantile. Above 20 degrees of freedom, its error is below 1e-4.
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _join(values: list[Any], key: str = "") -> Any:
    present = [v for v in values if v is not None]
    if not present:
        return None
    first = present[0]
    if key in _SEED_KEYS:
        return values
    if isinstance(first, bool):
        return all(present)
    if isinstance(first, int | float):
        return spread([float(v) for v in present])
    if isinstance(first, dict):
        keys = dict.fromkeys(k for v in present for k in v)
        return {k: _join([v.get(k) for v in present], k) for k in keys}
    if isinstance(first, list):
        rows = [row for v in present for row in v]
        if rows and all(isinstance(row, dict) for row in rows):
            groups: dict[str, list[Any]] = {}
            for row in rows:
                identity = "\0".join(str(row.get(k, "")) for k in ("name", "direction", "id", "that"))
                groups.setdefault(identity, []).append(row)
            return [_join(group) for group in groups.values()]
        return list(dict.fromkeys(rows))
    return first if all(v == first for v in present) else list(dict.fromkeys(present))


def _judged(entry: Mapping[str, Any]) -> Json:
    least, most = _plain(entry.get("min")), _plain(entry.get("max"))
    return {**entry, "min": least, "max": most, "ok": within(entry.get("value"), least, most)}


def _plain(value: Any) -> float | None:
    # In a summary of several seeds, a bound is a spread, although all its values are equal. Use the minimum, because
    # the mean may differ from it by rounding.
    return number(value["min"] if is_spread(value) else value)


# ---------------------------------------------------------------- paths into a summary


def number(value: object) -> float | None:
    """Return a number, or the mean of a spread of values over seeds. Return `None` if the value is neither."""
    if is_spread(value):
        assert isinstance(value, dict)
        value = value["mean"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def within(value: object, least: float | None, most: float | None) -> bool:
    """Whether a number, or the mean of a spread, lies within the given bounds. An absent value does not."""
    x = number(value)
    return x is not None and (least is None or x >= least) and (most is None or x <= most)


def find(summary: Mapping[str, Any], path: str, *, place: str = "summary.json") -> Any:
    """Return the value at a path in the summary, for example `flows.tcp.share_of_fair`.

    Elements of a list are found by name, which may contain dots. A link's name may be followed by a direction, as in
    `links.bottleneck.back.…`. Without a direction, the path refers to the forward direction.
    """
    found, value = _descend(summary, path.split("."))
    if found:
        return value
    here, rest, options = _furthest(summary, path)
    what = f'"{rest}" is not in {here or "the summary"}'
    remedy = meant(rest.split(".")[0], options) if options else f"{here} is a value: end the path there"
    raise UserError(f"{place}: {path}", what, remedy)


def judge(
    summary: Mapping[str, Any], expectations: Sequence[Mapping[str, Any]], *, place: str = "scenario"
) -> list[Json]:
    """Check the expectations. Return each with its value and its result, in the form of `summary["expect"]`."""
    results = []
    for expectation in expectations:
        that = str(expectation["that"])
        least, most = _plain(expectation.get("min")), _plain(expectation.get("max"))
        value = number(find(summary, that, place=place))
        results.append(
            {"that": that, "min": least, "max": most, "value": value, "ok": within(value, least, most)}
        )
    return results


def failed(summary: Mapping[str, Any]) -> bool:
    """Whether an expectation failed."""
    return any(not entry.get("ok") for entry in summary.get("expect") or [])


def _below(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    labelled: dict[str, Any] = {}
    for row in value if isinstance(value, list) else ():
        if isinstance(row, Mapping):
            label = str(row.get("name", row.get("id", row.get("that", ""))))
            if "direction" in row:
                labelled[f"{label}.{row['direction']}"] = row
            if row.get("direction", "forward") == "forward" or label not in labelled:
                labelled[label] = row
    return labelled


def _descend(value: Any, parts: list[str]) -> tuple[bool, Any]:
    if not parts:
        return True, value
    children = _below(value)
    for length in range(len(parts), 0, -1):  # names may contain dots
        label = ".".join(parts[:length])
        if label in children:
            found, result = _descend(children[label], parts[length:])
            if found:
                return True, result
    return False, None


def _furthest(summary: Mapping[str, Any], path: str) -> tuple[str, str, list[str]]:
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found, value = _descend(summary, parts[:length])
        if found:
            return ".".join(parts[:length]), ".".join(parts[length:]), list(_below(value))
    return "", path, list(summary)
