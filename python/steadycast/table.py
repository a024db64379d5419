"""A table of a record. It contains columns in the core's format, and converts them to a data frame when needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from steadycast.errors import MissingError
from steadycast.lazy_import import pl

Column = tuple[str, str, Any]
"""A column in the core's format (`_core.Simulation.table`): its name, its kind and its content."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """One table of a record."""

    columns: Sequence[Column]
    """The columns.

    If the kind of a column is "absent", its content is the number of rows and the type of the values.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the table by the C stream interface of Arrow. No data are copied."""
        return self.frame.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame. Values that are absent are NaN or None.

        Raises:
            MissingError: pandas is not installed.

        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingError.package("to_pandas", "pandas", "pandas") from error
        return pd.DataFrame({column.name: column.to_numpy() for column in self.frame})

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The table as a polars frame. The frame is kept after its first use."""
        return self.to_polars()

    def to_polars(self) -> pl.DataFrame:
        """Return the table as a polars frame. Values that are absent are null."""
        import numpy as np

        series = []
        for name, kind, content in self.columns:
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

    def __len__(self) -> int:
        _, kind, content = self.columns[0]
        if kind == "absent":
            return int(content[0])
        return len(content[0]) // 4 if kind == "text" else len(content) // 8

    def __repr__(self) -> str:
        return repr(self.frame)

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


def scores() -> list[tuple[str, str]]:
    """Return the columns of the table `frames` that are measured on decoded pictures, and their types."""
    from steadycast import record

    return [
        (name, "Int64" if name == "mos" else "Float64") for name in record.columns("frames", measured=True)
    ]


def partly(columns: Sequence[Column], names: Sequence[str] = ()) -> Table:
    """Return a table whose integers may be null.

    If ``names`` is given, only the columns in ``names`` may have nulls.
    """
    absent = {name for name, kind, _ in columns if kind == "i64" and (not names or name in names)}
    return Table(
        [(name, "i64 or none" if name in absent else kind, content) for name, kind, content in columns]
    )


def unscored(columns: Sequence[Column]) -> Table:
    """Return a table of frames with additional columns for the measured quality, which are all null.

    Nulls are also allowed in columns that a live receiver does not know.
    """
    rows = len(next(content for name, _, content in columns if name == "frame")) // 8
    known = partly(columns, ("q", "clip_frame")).columns
    return Table([*known, *((name, "absent", (rows, dtype)) for name, dtype in scores())])


def scored(table: Table, measured: Any) -> Table:
    """Return the table with the arrays in ``measured`` instead of the null columns for the measured quality."""
    known = [column for column in table.columns if column[1] != "absent"]
    kinds = ((name, "f64" if dtype == "Float64" else dtype) for name, dtype in scores())
    return Table([*known, *((name, kind, getattr(measured, name).tobytes()) for name, kind in kinds)])
