"""The checks of docs/queues.md."""

from __future__ import annotations

from typing import Any

import pytest

from validation import l4s, queues


def summary(**link: float) -> dict[str, Any]:
    """Four Mb/s of a classic and one Mb/s of a scalable TCP."""
    bottleneck = {"name": "bottleneck", "direction": "forward", "offered_packets": 1000, **link}
    tcp = {"srtt_ms": {"p50": 55.0}, "cwnd_packets": {"mean": 40.0}}
    return {
        "flows": [
            {"name": "classic1", "throughput_bps": 4e6, **tcp},
            {"name": "scalable1", "throughput_bps": 1e6, **tcp},
        ],
        "links": [{**bottleneck, "direction": "back"}, bottleneck],
    }


def test_marks_are_those_of_l4s_packets_and_drops_those_of_classic_ones() -> None:
    seen = summary(marked_packets=20, dropped_packets=8)
    assert queues.signals(seen) == pytest.approx((0.1, 0.01))
    assert queues.coupling(seen) == pytest.approx(0.5)
    assert queues.window_times_coupled_marks(seen) == pytest.approx(4.0)
    assert queues.ratio(seen) == pytest.approx(0.25)
    assert queues.srtt("classic", 40.0)(seen) == pytest.approx(15.0)


def test_every_seed_has_to_keep_a_bound() -> None:
    pie = next(check for check in queues.CHECKS if check.queue == "PIE")
    runs = [
        {"links": [{"name": "bottleneck", "direction": "forward", "queue_ms": {"p50": p50}}]}
        for p50 in (15.0, 21.0)
    ]
    line = str(queues.checks_table([pie], [runs])).splitlines()[-1]
    assert line.endswith("| 10.0 ms … 20.0 ms | 18.0 ms | 15.0 ms … 21.0 ms | [1 of 2] |")
    assert queues.checks_table([pie], [runs[:1]]).rows[-1][-1] == "holds"


def test_the_set_ups_run_and_pie_holds_its_delay() -> None:
    pie = next(check for check in queues.CHECKS if check.queue == "PIE")
    dual = next(check for check in queues.CHECKS if check.queue == "DualPI2")
    short = {**dual.sets, "duration": "25s"}
    [[first], [second]] = queues.run([pie.sets, short], 1)
    assert pie.least <= pie.of(first) <= pie.most
    assert 0.3 < dual.of(second) < 3.0


def test_what_differs_from_the_published_rates_is_told() -> None:
    found = {
        (rtt, others): [{"flows": [{"name": "scream1", "throughput_bps": 50e6}]}]
        for rtt in queues.RTTS_MS
        for others in range(5)
    }
    rows = {tuple(row[:3]): row[3:] for row in queues.scream_table("g", found)}
    assert rows["g", "25", "0"] == ["50", "78", "no"]
    assert rows["g", "25", "1"] == ["50", "60", "yes"]
    assert len(rows) == 5 * len(queues.RTTS_MS)


def test_a_published_row_is_a_run_of_two_tcps_with_its_queue_and_round_trips() -> None:
    assert {row[1] for row in l4s.rows()} == set(l4s.QUEUES)
    # FQ-CoDel offers each half of the link (RFC 8290, 4.2), which windows of 10 and 20 ms fill but for CoDel's drops;
    # what one leaves is the other's, and both have the link's 10 Mb/s at most.
    shares = l4s.one(["10", "fq_codel", "cubic", "20", "", "prague", "10", ""], 1)
    assert min(shares) >= 0.95 * 5.0, shares
    assert sum(shares) <= 10.0, shares
