"""A sweep's folder: rows are appended to files in parts/, and joined in results.parquet."""

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
    """A file of rows, each a line of JSON, to which only this process appends.

    Rows are synced to disk within a second. Truncated lines are ignored.
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
            # Without new rows there is no file.
            if self._file is None:
                self._folder.mkdir(exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o666)
            left = memoryview(line)
            while left:
                # A write may accept only part of the bytes.
                left = left[os.write(self._file, left) :]
            if time.monotonic() - self._synced > _SYNC_S:
                # At intervals, because it waits for the disk.
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise UnwrittenError.of(self._path, error, _ROOM) from error

    def count(self) -> int:
        """Count the rows, which may include one whose `append` was interrupted after the write."""
        try:
            return self._path.read_bytes().count(b"\n")
        except FileNotFoundError:  # there is none yet
            return 0


def finished(folders: Iterable[Path]) -> set[str]:
    """Return the keys of the complete runs."""
    keys: set[str] = set()
    for folder in folders:
        old = _results(folder)
        if old is not None:
            keys.update(old.filter(old["complete"])["key"])
        keys.update(row["key"] for row in rows(folder) if row["complete"])
    return keys


def rows(folder: Path) -> Iterator[Row]:
    """Yield the rows in a folder's parts."""
    for path in sorted((folder / PARTS).glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                with suppress(ValueError):  # truncated by a killed process or a full disk
                    yield json.loads(line)


def join(folder: Path, plan: Plan, others: Iterable[Path] = ()) -> pl.DataFrame:
    """Write results.parquet from its old rows, from the parts, and from other folders; return the table."""
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
    # The other columns are numbers.
    kinds: dict[str, Any] = dict.fromkeys(("key", "error", "record_sha256"), pl.String)
    kinds |= {"complete": pl.Boolean, "cpu_s": pl.Float64}
    kinds = dict.fromkeys((name for row in content for name in row), pl.Float64) | kinds
    new = pl.DataFrame(content, schema=kinds, strict=False)
    by_key = pl.concat([new, *old], how="diagonal") if old else new
    # A complete row precedes a failed one, and a newer row an older one.
    by_key = by_key.sort(pl.col("complete").not_(), maintain_order=True).unique("key", keep="first")
    # Points with the same resolved scenario have the same key, and share one run.
    heads: dict[str, Any] = {**dict.fromkeys(plan.axes, pl.String), "seed": pl.Int64, "key": pl.String}
    table = pl.DataFrame(runs, schema=heads, orient="row").join(by_key, on="key", maintain_order="left")
    fixed = [*plan.axes, *RESERVED]
    table = table.select(*fixed, *sorted(set(table.columns) - set(fixed)))
    # Written by `write_bytes`, because its errors state the reason, unlike the errors of polars.
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
    except Exception as error:  # polars has a dozen types for a damaged file
        problem = f"damaged ({str(error).splitlines()[0][:100]})"
        raise UserError(str(path), problem, "move it away: its runs are done again") from error
    return table
