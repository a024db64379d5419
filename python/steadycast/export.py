"""Exports a run's tables for other programs, as CSV or as the classic traces of Multi-Evalvid-RA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadycast import record
from steadycast.errors import UserError
from steadycast.files import folder as folder_of
from steadycast.files import whole
from steadycast.folder import Folder
from steadycast.hints import named
from steadycast.lazy_import import pl

_ANOTHER = "make room, or give another -o DIR"
# The exported traces do not count the bytes of UDP and IP headers.
_HEADERS_BYTES = 28


def csv(folder: Folder, out: Path) -> list[Path]:
    """Write each table as CSV with its own columns, except for packets. Add control.csv.

    Times are in seconds from the start of the run.

    control.csv has a row for each step of each controller: t, ctrl, node, r (B/s), p, rtt (s), state, extra.
    packets.csv exists if packets were recorded: t, dir, flow, node, seq, stream, size, frame, ftype, q, ecn, owd (s).
    There, dir is s (sent) or r (received).
    """
    written = []
    folder_of(out, _ANOTHER)
    for name, table in _tables(folder):
        path = out / f"{name}.csv"
        with whole(path, _ANOTHER) as new:
            table.write_csv(new)
        written.append(path)
    return written


def _tables(folder: Folder) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the name and the content of each file that `csv` writes. Only one table is in memory at a time."""
    for name in dict.fromkeys(column.table for column in record.COLUMNS):
        if not folder.has(name):
            continue
        table = folder.table(name)
        yield name, packets(table) if name == "packets" else table
        if name == "decisions":
            yield "control", control(folder, table)


def packets(table: pl.DataFrame) -> pl.DataFrame:
    """Return the packet table in the columns of packets.csv (see `csv`)."""
    return table.select(
        pl.col("t_s").alias("t"),
        "dir",
        "flow",
        "node",
        "seq",
        "stream" if "stream" in table.columns else pl.lit(None, pl.String).alias("stream"),
        pl.col("size_bytes").alias("size"),
        "frame",
        "ftype",
        "q",
        "ecn",
        (pl.col("owd_ms") / 1000).round(9).alias("owd"),
    )


def control(folder: Folder, table: pl.DataFrame) -> pl.DataFrame:
    """Return the decisions in the columns of control.csv (see `csv`)."""
    names = {f["name"]: str(f.get("controller")) for f in folder.summary["flows"]}
    return table.select(
        pl.col("t_s").alias("t"),
        pl.col("flow").replace_strict(names, default="", return_dtype=pl.String).alias("ctrl"),
        "node",
        (pl.col("target_bps") / 8).alias("r"),
        pl.col("loss").alias("p"),
        (pl.col("rtt_ms") / 1000).round(9).alias("rtt"),
        pl.col("limit").alias("state"),
        pl.concat_str(pl.col("rule"), pl.col("by"), separator="; by ", ignore_nulls=True).alias("extra"),
    )


def need_videos(folder: Folder) -> list[dict[str, Any]]:
    """Return the video flows whose packets are recorded.

    Raises:
        UserError: there is no table of packets, or it has no packets of a video.

    """
    table = folder.table("packets")
    videos = [
        f for f in folder.summary["flows"] if f.get("kind") == "video" and (table["flow"] == f["name"]).any()
    ]
    if not videos:
        again = named("--set record.packets=all", 'set={"record.packets": "all"}')
        raise UserError(
            str(folder.path / "packets.parquet"),
            "no packets of a video were recorded",
            f"run again with {again}",
        )
    return videos


def classic(folder: Folder, out: Path) -> list[Path]:
    """Write the traces of Multi-Evalvid-RA: sd_be_0 for the sender, and rd_be_N for receiver N, counted from 0.

    The traces of the first video flow are in ``out``. The traces of each further flow are in a subfolder with the
    flow's name.

    A sender line is `time id packet udp payload quantizer type`, and a receiver line is `time id packet udp payload`. A
    packet has the same number in both traces. The payload is the IP size minus 28 bytes. Frame types are 1 (I), 2 (P)
    and 3 (B).
    """
    videos = need_videos(folder)
    table = folder.table("packets")
    types = {"H": 0, "I": 1, "P": 2, "B": 3}
    written = []
    for place, flow in enumerate(videos):
        target = out if place == 0 else out / str(flow["name"])
        folder_of(target, _ANOTHER)
        mine = table.filter(pl.col("flow") == flow["name"]).sort("t_s", maintain_order=True)
        if "stream" in mine.columns:
            # Leave out audio and parity packets, because they have their own sequence numbers.
            mine = mine.filter(~pl.col("stream").is_in(["audio", "parity"]).fill_null(value=False))
        number = pl.col("seq").cast(pl.String)
        time = pl.col("t_s").map_elements(lambda t: f"{t:.6f}", return_dtype=pl.String)
        payload = (pl.col("size_bytes") - _HEADERS_BYTES).cast(pl.String)
        sent = mine.filter(pl.col("dir") == "s").select(
            pl.concat_str(
                time,
                pl.lit("id"),
                number,
                pl.lit("udp"),
                payload,
                pl.col("q").cast(pl.String),
                pl.col("ftype").replace_strict(types, default=0, return_dtype=pl.Int64).cast(pl.String),
                separator=" ",
            )
        )
        written.append(_lines(target / "sd_be_0", sent))
        for n, receiver in enumerate(flow.get("receivers") or []):
            got = mine.filter((pl.col("dir") == "r") & (pl.col("node") == receiver["name"])).select(
                pl.concat_str(time, pl.lit("id"), number, pl.lit("udp"), payload, separator=" ")
            )
            written.append(_lines(target / f"rd_be_{n}", got))
    return written


def _lines(path: Path, frame: pl.DataFrame) -> Path:
    lines = frame.to_series().to_list()
    with whole(path, _ANOTHER) as new:
        new.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path
