"""The folder of a sweep. Rows are appended to files in parts/. Later they are joined in results.parquet."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from steadycast.errors import UnwrittenError, UserError
from steadycast.files import whole
from steadycast.lazy_import import pl
from steadycast.sweep.plan import RESERVED, Plan

RESULTS = "results.parquet"
PARTS = "parts"
_SYNC_S = 1.0
_ROOM = "make room, and repeat the command to continue"
Row = dict[str, Any]


class Part:
    """A file to which only this process appends rows. Each row is a line of JSON.

    While rows are appended, they are synced to the disk about once per second. Lines that are truncated are ignored
    when the file is read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / PARTS
        self._path = self._folder / f"{time.time_ns():x}-{os.getpid()}.jsonl"
        self._file: int | None = None
        self._synced = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def append(self, line: bytes) -> None:
        """Append a row."""
        try:
            # Open the file with the first row, so that there is no file without rows.
            if self._file is None:
                self._folder.mkdir(exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o666)
            left = memoryview(line)
            while left:
                # Write in a loop, because a write may accept only a part of the bytes.
                left = left[os.write(self._file, left) :]
            if time.monotonic() - self._synced > _SYNC_S:
                # Sync only at intervals, because a sync waits for the disk.
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise UnwrittenError.of(self._path, error, _ROOM) from error

    def count(self) -> int:
        """Return the number of rows.

        It includes a row that was written although its `append` was interrupted.
        """
        try:
            return self._path.read_bytes().count(b"\n")
        except FileNotFoundError:  # no row was written yet
            return 0


def finished(folders: Iterable[Path]) -> set[str]:
    """Return the keys of all runs that are complete."""
    keys: set[str] = set()
    for folder in folders:
        old = _results(folder)
        if old is not None:
            keys.update(old.filter(old["complete"])["key"])
        keys.update(row["key"] for row in rows(folder) if row["complete"])
    return keys


def rows(folder: Path) -> Iterator[Row]:
    """Yield all rows in the parts of a folder."""
    for path in sorted((folder / PARTS).glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                with suppress(ValueError):  # a killed process or a full disk has truncated the line
                    yield json.loads(line)


def join(folder: Path, plan: Plan, others: Iterable[Path] = ()) -> pl.DataFrame:
    """Write results.parquet, and return its table.

    The rows come from the old results.parquet, from the parts, and from other folders.
    """
    runs = [(*point.values, seed, task.key) for point, seed, task in plan.runs()]
    planned = {key for *_, key in runs}
    found: dict[str, Row] = {}
    old: list[pl.DataFrame] = []
    for each in (folder, *others):
        table = _results(each)
        if table is not None:
            old.append(table.drop(*plan.axes, "seed", strict=False))
        for row in rows(each):
            if row["key"] in planned and not found.get(row["key"], {}).get("complete"):
                found[row["key"]] = row
    measured = [name for name in RESERVED if name != "seed"]
    content = [{name: row.get(name) for name in measured} | row.get("figures", {}) for row in found.values()]
    # All columns other than these are numbers.
    kinds: dict[str, Any] = dict.fromkeys(("key", "error", "record_sha256"), pl.String)
    kinds |= {"complete": pl.Boolean, "cpu_s": pl.Float64}
    kinds = dict.fromkeys((name for row in content for name in row), pl.Float64) | kinds
    new = pl.DataFrame(content, schema=kinds, strict=False)
    by_key = pl.concat([new, *old], how="diagonal") if old else new
    # Prefer a complete row to a failed row, and then a newer row to an older row.
    by_key = by_key.sort(pl.col("complete").not_(), maintain_order=True).unique("key", keep="first")
    # Points whose resolved scenarios are equal have the same key, so they share one run.
    heads: dict[str, Any] = {**dict.fromkeys(plan.axes, pl.String), "seed": pl.Int64, "key": pl.String}
    table = pl.DataFrame(runs, schema=heads, orient="row").join(by_key, on="key", maintain_order="left")
    fixed = [*plan.axes, *RESERVED]
    table = table.select(*fixed, *sorted(set(table.columns) - set(fixed)))
    # Write with `write_bytes`. Its errors contain the reason, which errors of polars do not.
    packed = io.BytesIO()
    table.write_parquet(packed)
    with whole(folder / RESULTS, _ROOM) as path:
        path.write_bytes(packed.getbuffer())
    for path in (folder / PARTS).glob("*.jsonl"):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / PARTS).rmdir()
    return table


def _results(folder: Path) -> pl.DataFrame | None:
    path = folder / RESULTS
    if not path.exists():
        return None
    try:
        table = pl.read_parquet(path)
        table["key"], table["complete"]
    except Exception as error:  # polars raises many types of errors for a damaged file
        problem = f"damaged ({str(error).splitlines()[0][:100]})"
        raise UserError(str(path), problem, "move it away: its runs are done again") from error
    return table
