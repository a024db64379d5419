"""Reads and writes files of frame sizes.

The formats are Evalvid-RA's multi-rate traces, multi-rate traces as CSV, and EvalVid's single-rate sender traces.
"""

import csv
import io
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from steadycast.media.clip import parse_fps
from steadycast.media.sender_trace import TraceError as TraceError
from steadycast.media.sender_trace import is_single_rate, rate_of, read_sender_trace, text_of
from steadycast.media.table import F64, U8, U32, FrameTable, Kind, coding_order

_QS = list(range(2, 32))
_CSV = ["frame", "type", "q", "size"]
_PSNR = "psnr_y_db"
"""Name of an optional fifth column. The column is ignored when a file is read."""
_FRAGMENT_BYTES = 1000
"""Payload of a packet in bytes, written into the column "largest fragment". It is the default of ns-2.

The column is ignored when a file is read.
"""
_COLUMNS = 4 + len(_QS) - 1
_LARGEST = (1 << 31) - 1
_ONLY_Q = 1
"""Quantizer number of a single-rate trace, whose real quantizer is unknown. No encoder uses this number."""


@dataclass
class _Row:
    line: int
    kind: Kind
    sizes: list[int]


def read_trace(path: str | Path, fps: str | int | float | Fraction = 25) -> FrameTable:
    """Read a trace in one of three formats.

    ``fps`` is the frame rate of files that contain no times, such as CSV.
    """
    path = Path(path)
    text = text_of(path)
    if is_single_rate(text):
        return _single_rate(path, text, fps)
    return _csv(path, text, fps) if "," in text.strip().splitlines()[0] else _evalvid(path, text)


def written(path: Path, table: FrameTable, psnr_y_db: F64) -> str:
    """Return the text of a trace file that contains ``table`` in coding order.

    The format is CSV if the suffix of ``path`` is `.csv`, and otherwise Evalvid-RA's format. ``psnr_y_db`` has a row
    per quantizer and a column per frame in display order. Evalvid-RA's format does not contain it.
    """
    if path.suffix.lower() == ".csv":
        lines = [",".join([*_CSV, _PSNR])]
        for frame, kind in enumerate(table.kinds):
            for row, q in enumerate(table.qs):
                psnr = psnr_y_db[row, table.display[frame]]
                lines.append(f"{frame},{Kind(kind).name},{q},{table.sizes[row, frame]},{psnr:.4f}")
    elif table.qs == _QS:
        step = round(1_000_000 / table.fps)
        lines = []
        for kind, (first, *others) in zip(table.kinds, table.sizes.T.tolist(), strict=True):
            lines.append(" ".join(map(str, [step, first, kind + 1, _FRAGMENT_BYTES, *others])))
    else:
        problem = f"Evalvid-RA's form has quantizers 2…31, not {table.qs[0]}…{table.qs[-1]}"
        raise TraceError(str(path), problem, "end the file's name in .csv")
    return "".join(f"{line}\n" for line in lines)


def _single_rate(path: Path, text: str, fps: str | int | float | Fraction) -> FrameTable:
    frames = read_sender_trace(path, text)
    rows = [_Row(frame.line, frame.kind, [frame.size_bytes]) for frame in frames]
    return _table(path, rows, [_ONLY_Q], rate_of(frames, fps, str(path)))


def _evalvid(path: Path, text: str) -> FrameTable:
    """Read a trace in the format of Evalvid-RA.

    The columns of a line are: µs between frames, size at quantizer 2, type, largest fragment, sizes at quantizers 3…31.
    The types are 0 (header), 1 (I), 2 (P) and 3 (B). The bytes of a header belong to the I frame that follows it.
    """
    rows: list[_Row] = []
    times: list[int] = []
    header: list[int] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        values = _whole_numbers(place, line.split())
        if len(values) != _COLUMNS:
            raise TraceError(
                place,
                f"{len(values)} columns in place of {_COLUMNS}",
                "a line is: µs, size at q 2, type 0…3, largest fragment, sizes at q 3…31",
            )
        time, first, kind, _, *others = values
        sizes = [first, *others]
        if kind == 0:
            header = sizes
            continue
        if kind > 3:
            raise TraceError(place, f"type {kind} is unknown", "types are 0 header, 1 I, 2 P, 3 B")
        if header is not None:
            if kind != 1:
                raise TraceError(place, "a header is not followed by an I frame", "put it before the I frame")
            sizes = [size + extra for size, extra in zip(sizes, header, strict=True)]
            header = None
        rows.append(_Row(number, Kind(kind - 1), sizes))
        times.append(time)
    if not rows:
        raise TraceError(str(path), "the trace holds no frame", "name a trace with at least one frame")
    # Use the median, because it is not affected by a few irregular intervals.
    step = int(np.median(times))
    if step <= 0:
        raise TraceError(
            f"{path}:{rows[0].line}", "the time between frames is zero", "the first column is in µs"
        )
    fps = parse_fps(Fraction(1_000_000, step), Fraction(25), str(path))
    return _table(path, rows, _QS, fps)


def _csv(path: Path, text: str, fps: str | int | float | Fraction) -> FrameTable:
    """Read CSV in the form ``frame,type,q,size``.

    There is one line for each frame and quantizer. The type is I, P or B.
    """
    reader = csv.reader(io.StringIO(text))
    try:
        head = [name.strip().lower() for name in next(reader)]
        if head not in (_CSV, [*_CSV, _PSNR]):
            raise TraceError(
                f"{path}:1", f"the columns are {', '.join(head)}", "they must be frame,type,q,size"
            )
        kinds: dict[int, tuple[Kind, int]] = {}
        sizes: dict[tuple[int, int], int] = {}
        for fields in reader:
            place = f"{path}:{reader.line_num}"
            if not fields:
                continue
            if len(fields) != len(head):
                problem = f"{len(fields)} fields in place of {len(head)}"
                raise TraceError(place, problem, f"a line is {','.join(head)}")
            letter = fields[1].strip().upper()
            frame, q, size = _whole_numbers(place, [fields[0], fields[2], fields[3]])
            if letter not in Kind.__members__:
                raise TraceError(place, f"type {letter!r} is unknown", "types are I, P and B")
            if not 1 <= q <= 63:
                raise TraceError(place, f"there is no quantizer {q}", "quantizers go from 1 to 63")
            kind = Kind[letter]
            if kinds.setdefault(frame, (kind, reader.line_num))[0] != kind:
                raise TraceError(
                    place,
                    f"frame {frame} changes its type",
                    f"line {kinds[frame][1]} says {kinds[frame][0].name}",
                )
            if (frame, q) in sizes:
                raise TraceError(place, f"frame {frame} at q {q} stands twice", "remove one of the lines")
            sizes[frame, q] = size
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}", str(error), "save the file as plain CSV") from error
    if not kinds:
        raise TraceError(str(path), "the trace holds no frame", "add lines frame,type,q,size")
    start = min(kinds)
    qs = sorted({q for _, q in sizes})
    rows = []
    for frame in range(start, start + len(kinds)):
        if frame not in kinds:
            raise TraceError(str(path), f"frame {frame} is missing", "number the frames without a gap")
        kind, line = kinds[frame]
        for q in qs:
            if (frame, q) not in sizes:
                raise TraceError(
                    f"{path}:{line}",
                    f"frame {frame} has no size at q {q}",
                    "give every frame at every quantizer",
                )
        rows.append(_Row(line, kind, [sizes[frame, q] for q in qs]))
    return _table(path, rows, qs, parse_fps(fps, Fraction(25)))


def _whole_numbers(place: str, words: list[str]) -> list[int]:
    values = []
    for word in words:
        word = word.strip()
        if not (word.isascii() and word.isdecimal()) or len(word) > 10 or int(word) > _LARGEST:
            raise TraceError(
                place, f"{word[:40]!r} is not a count", f"write a whole number from 0 to {_LARGEST}"
            )
        values.append(int(word))
    return values


def _table(path: Path, rows: list[_Row], qs: list[int], fps: Fraction) -> FrameTable:
    opens = [index for index, row in enumerate(rows) if row.kind == Kind.I]
    if not opens or opens[0] != 0:
        raise TraceError(f"{path}:{rows[0].line}", "the first frame is not an I frame", "start at an I frame")
    gop = opens[1] if len(opens) > 1 else len(rows)
    for number, index in enumerate(opens):
        if index != number * gop:
            raise TraceError(
                f"{path}:{rows[index].line}",
                f"an I frame after {index - opens[number - 1]} frames, where the first group has {gop}",
                "encode with a fixed group of pictures and without scene cuts",
            )
    if len(rows) > len(opens) * gop:
        raise TraceError(
            f"{path}:{rows[len(opens) * gop].line}",
            f"an I frame is missing after {gop} frames",
            "encode with a fixed group of pictures",
        )
    order, display = _orders(np.array([row.kind for row in rows], dtype=np.uint8), gop)
    for row in rows:
        if 0 in row.sizes:
            raise TraceError(
                f"{path}:{row.line}", "a frame of 0 bytes", "every frame needs at least one byte"
            )
    sizes = np.array([row.sizes for row in rows], dtype=np.uint32).T[:, order]
    kinds = np.array([rows[index].kind for index in order], dtype=np.uint8)
    return FrameTable(
        fps, gop, kinds, qs, np.ascontiguousarray(sizes), display, f"{path.name} (trace, no pixels)"
    )


def _orders(kinds: U8, gop: int) -> tuple[U32, U32]:
    """Return the row numbers of a trace in coding order, and the display position of each of these frames.

    If the second frame is a B frame, the rows are in display order. Otherwise they are in coding order, and each B
    frame follows both of its reference frames.
    """
    in_display_order = len(kinds) > 1 and kinds[1] == Kind.B
    order = np.arange(len(kinds), dtype=np.uint32)
    display = np.empty(len(kinds), dtype=np.uint32)
    for first in range(0, len(kinds), gop):
        last = min(first + gop, len(kinds))
        if in_display_order:
            _, coded = coding_order("".join(Kind(kind).name for kind in kinds[first:last]))
            order[first:last] = display[first:last] = first + coded
        else:
            held: int | None = None
            slot = first
            for place in range(first, last):
                if kinds[place] == Kind.B:
                    display[place], slot = slot, slot + 1
                    continue
                # In coding order, B frames follow a reference frame. They are displayed before this reference frame.
                if held is not None:
                    display[held], slot = slot, slot + 1
                held = place
            if held is not None:
                display[held] = slot
    return order, display
