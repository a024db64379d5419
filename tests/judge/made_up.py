"""A cell that was never run: the relay's record of streams that are known exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from steadycast.judge import pair as pairs
from steadycast.judge.score import Cell
from steadycast.toml import document

from .test_pair import GOOD

LEAD_S, SECONDS = 2.0, 20.0
BEGAN = 1000.0
"""Start of the cell on the monotonic clock in seconds."""
CAPACITY = 4e6
SIZE = 1200
HEAD_BYTES = 7


def head(first: bytes) -> int:
    """Return the column `head` of a payload that begins with these bytes."""
    return int.from_bytes(first[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0"))


def offers(seconds: float, per_s: float, size: int = SIZE, start: float = 0.0) -> Iterator[dict[str, Any]]:
    """Datagrams at equal intervals, each with a delay of 20 ms."""
    for n in range(int(seconds * per_s)):
        at = start + n / per_s
        yield {"sent_s": at, "arrived_s": at + 0.02, "bytes": size}


def video(
    fps: int = 25, per_frame: int = 4, lost: Callable[[int, int], bool] = lambda frame, part: False
) -> Iterator[dict[str, Any]]:
    """An RTP stream with the packets of consecutive frames. Some packets are lost."""
    for n in range(int((LEAD_S + SECONDS) * fps)):
        for part in range(per_frame):
            at = n / fps + part * 1e-4
            yield {
                "sent_s": at,
                "arrived_s": None if lost(n, part) else at + 0.02,
                "bytes": SIZE + part,
                "ssrc": 1,
                "pt": 96,
                "seq": (65500 + n * per_frame + part) % 65536,
                "rtp_ts": (2**32 - 90000 + n * 90000 // fps) % 2**32,
                "head": head(b"\x65" if n % fps == 0 else b"\x41"),
            }


def repaired(packets: list[dict[str, Any]], late_s: float = 0.06) -> list[dict[str, Any]]:
    """Retransmissions of all lost packets: their sequence number and their payload (RFC 4588)."""
    lost = [p for p in packets if p["arrived_s"] is None]
    return [
        {
            **p,
            "sent_s": p["sent_s"] + late_s,
            "arrived_s": p["sent_s"] + late_s + 0.02,
            "bytes": p["bytes"] + 2,
            "ssrc": 2,
            "pt": 97,
            "seq": n % 65536,
            "head": head(p["seq"].to_bytes(2)),
        }
        for n, p in enumerate(lost)
    ]


SCENARIO: dict[str, Any] = {
    "link": [
        {"name": "bottleneck", "between": ["left", "right"], "rate": "4Mbps", "delay": "19ms"},
        {"name": "access-sender", "between": ["sender", "left"], "delay": "0ns"},
        {"name": "access-receiver", "between": ["receiver", "right"], "delay": "1ms"},
    ],
    "flow": [],
    "event": [],
}


def cell(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    scenario: dict[str, Any] | None = None,
    capacity: Callable[[float], float] = lambda t: CAPACITY,
    tcp_bps: float | None = None,
    **more: Any,
) -> Cell:
    """Write a cell from the datagrams offered to the network. A row without RTP fields is not RTP."""
    table = {**SCENARIO, **(scenario or {})}
    if tcp_bps is not None:
        table["flow"] = [{"name": "beside1", "to": ["beside1-to"]}]
    (folder / "scenario.toml").write_text(document(table))
    (folder / "crew.jsonl").write_text(json.dumps({"t": 0.1, "what": "begins", "monotonic_s": BEGAN}) + "\n")
    blank = {
        "copy": 0,
        "from": "sender",
        "to": "receiver",
        "protocol": 17,
        "from_port": 6004,
        "to_port": 5004,
    }
    none = dict.fromkeys(("ssrc", "pt", "seq", "rtp_ts", "head"))
    order = sorted(rows, key=lambda row: row["sent_s"])
    pl.DataFrame(
        [{"number": n, **blank, **none, **row} for n, row in enumerate(order)], infer_schema_length=None
    ).write_parquet(folder / "wire.parquet")
    seconds = [float(t) for t in range(int(LEAD_S + SECONDS))]
    pl.DataFrame(
        {
            "t_s": seconds,
            "link": "bottleneck",
            "direction": "forward",
            "throughput_bps": [capacity(t) / 2 for t in seconds],
            "capacity_bps": [capacity(t) for t in seconds],
            "utilisation_frac": [0.5 if capacity(t) else None for t in seconds],
        }
    ).write_parquet(folder / "links.parquet")
    pl.DataFrame(
        {"t_s": seconds, "node": "beside1-to", "throughput_bps": [tcp_bps or 0.0] * len(seconds)}
    ).write_parquet(folder / "rates.parquet")
    made = pairs.of({**GOOD, "lead": f"{LEAD_S:g}s", "seconds": f"{SECONDS:g}s", **more}, "", "pair")
    return Cell(folder, made)
