"""The counts in the tables of docs/transports.md, on a made-up run."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from validation import transports
from validation.transports import FIRST, FPS, LAST, Seen

COUNTED = LAST - FIRST


def seen(folder: Path, late: range, lost: range) -> Seen:
    """Make a film whose frames arrive 80 ms after they were taken, or 480 ms if ``late``.

    Those in ``lost`` never arrive.
    """
    places = {f"hash{n}": n for n in range(transports.FRAMES)}
    lines = [
        f"{1000 + n / FPS + (0.48 if n in late else 0.08):.4f} hash{n}\n"
        for n in range(transports.FRAMES)
        if n not in lost
    ]
    (folder / "hashes.txt").write_text("".join([*lines, "1001.0 damaged\n"]))
    (folder / "net").mkdir()
    times = [float(t) for t in range(40)]
    rates = [0.0 if t < 3 else 3e6 for t in times]
    pl.DataFrame(
        {"t_s": times, "direction": "forward", "throughput_bps": [r + 1e6 for r in rates]}
    ).write_parquet(folder / "net" / "links.parquet")
    pl.DataFrame({"t_s": times, "node": "r", "throughput_bps": 1e6}).write_parquet(
        folder / "net" / "rates.parquet"
    )
    (folder / "net" / "summary.json").write_text(json.dumps({"emulation": {"trustworthy": True}}))
    return transports._seen(folder, places, with_tcp=True)


def test_frames_are_whole_by_their_hash_and_in_time_by_the_fastest(tmp_path: Path) -> None:
    told = seen(tmp_path, late=range(300, 325), lost=range(400, 410))
    assert (told.video_bps, told.tcp_bps) == (3e6, 1e6)
    assert told.whole == pytest.approx(1 - 10 / COUNTED)
    assert told.in_time == pytest.approx(1 - 35 / COUNTED)
    # The freezes are one second and ten frames long, plus the interval after each.
    assert told.freezes_per_min == pytest.approx(2 * 60 * FPS / COUNTED)
    assert told.frozen == pytest.approx(37 / COUNTED)


def test_a_screen_on_which_nothing_moves_is_frozen_for_the_whole_time() -> None:
    assert transports.freezes([False] * 50) == [pytest.approx(51 / FPS)]
    assert transports.freezes([True] * 50) == []
    assert transports.freezes([n % 5 == 0 for n in range(50)]) == [pytest.approx(0.2)] * 9 + [
        pytest.approx(0.2)
    ]


def test_a_table_tells_the_mean_the_spread_and_what_is_not_to_be_trusted() -> None:
    one = Seen(2.9e6, 1e6, 0.5, 0.25, 6.0, 0.75, True)
    other = Seen(3.1e6, 1e6, 0.5, 0.75, 6.0, 0.25, False)
    head, _, row = str(transports.rows("beside-tcp", {"srt": [one, other]})).splitlines()
    assert "TCP, Mb/s" in head
    assert row == (
        "| FFmpeg, SRT (latency 300 ms) | 3.00 (2.90…3.10) | 1.00 | 50.0 | 50.0 (25.0…75.0) | 6.0 | 50.0 (25.0…75.0) | "
        "2, 1 on a machine that stalled |"
    )
    assert all("TCP" not in head for head in transports.rows("lossy", {"ours": [one]}).heads)
