"""Play-out buffers, skipped frames, and the rates of the MPEG-TFRCP paper, in the whole program."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import steadycast as sc
from steadycast.media.map001 import map001

PAPERS = Path(__file__).resolve().parents[2] / "papers/scenarios"


def test_the_frames_of_paper_001_carry_its_rates_in_packets_of_1000_bytes() -> None:
    table = map001()
    rates = dict(zip(table.qs, table.mean_rates_bps() / 0.948, strict=True))
    assert table.qs == list(range(2, 63, 2))
    assert rates[12] == pytest.approx(5.25e6, rel=1e-4)
    assert rates[60] == pytest.approx(5.25e6 * (12 / 60) ** 0.9, rel=1e-3)
    assert table.sizes[5][0] == pytest.approx(3 * table.sizes[5][1], rel=1e-3)
    even = map001(Fraction(25), gop=12, intra=1.0)
    assert len(set(even.sizes[0].tolist())) == 1


def test_what_the_rate_can_not_afford_is_skipped_and_counted() -> None:
    run = sc.run(
        PAPERS / "m-b.toml",
        set=["duration=40s", "flow.video.emit=burst", "flow.video.map001.intra=3"],
        quality=False,
    )
    video = run.summary["flows"][0]
    frames = video["receivers"][0]["frames"]
    skipped = video["skipped_frames"]
    assert 0 < skipped < frames["sent"]
    assert frames["lost"] >= skipped
    targets = run.rates.to_polars()["target_bps"].drop_nulls()
    assert targets.min() < 1.1e6, "no second was below the worst picture's rate"


def test_a_buffer_fills_and_empties_within_its_bounds() -> None:
    run = sc.run(PAPERS / "h-l.toml", set=["duration=20s"], quality=False)
    receiver = run.summary["flows"][0]["receivers"][0]
    # Play-out starts at a fifth of the buffer, and the first delay is an estimate.
    assert receiver["buffer_underflows"] <= 1
    assert receiver["buffer_overflows"] == 0
    level = run.rates.to_polars()["buffer_bytes"].drop_nulls()
    assert 0.2 * 16_384 < level.tail(100).min() <= level.max() <= 16_384


def test_without_control_a_buffer_overflows_and_what_did_not_fit_is_counted() -> None:
    changes = ["duration=20s", "flow.video.controller=no-control"]
    run = sc.run(PAPERS / "h-l.toml", set=changes, quality=False)
    flow = run.summary["flows"][0]
    fits = 64e3 / flow["receivers"][0]["throughput_bps"]
    dropped = flow["receivers"][0]["buffer_overflows"] / flow["sent_packets"]
    assert dropped == pytest.approx(1 - fits, abs=0.05)
