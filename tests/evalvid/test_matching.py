"""Any packet list in any format: a frame counts as received if all its packets arrived in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steadycast.errors import UserError
from steadycast.evalvid import matching
from steadycast.evalvid.evaluation import frames_of, worst_interval
from steadycast.evalvid.packets import read_packets
from steadycast.media.sender_trace import TracedFrame
from steadycast.media.splice import NEVER
from steadycast.media.table import Kind

from tests.evalvid import traces
from tests.evalvid.traces import Sent

Writer = Callable[[Path, Sequence[Sent]], list[Path]]
SIZE = 100
STEP_US = 1000


def joined(paths: Sequence[Path], **asked: str | int | None) -> matching.Exchange:
    first, *others = (read_packets(path) for path in paths)
    return matching.exchange(first, others[0] if others else None, **asked)  # type: ignore[arg-type]


def frames(counts: Sequence[int], size: int = 1) -> list[TracedFrame]:
    return [TracedFrame(n, Kind.P, size * count, count, n / 25) for n, count in enumerate(counts)]


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[list[int], list[Sent]]:
    """Frames and their packets. Each packet is lost or takes 1 to 400 ms, so that some overtake others."""
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=25))
    delays = draw(
        st.lists(
            st.none() | st.integers(1, 400),
            min_size=sum(counts),
            max_size=sum(counts),
        ).filter(lambda each: any(delay is not None for delay in each))
    )
    packets = [
        Sent(n * STEP_US, None if delay is None else n * STEP_US + delay * 1000 + n % 7, SIZE)
        for n, delay in enumerate(delays)
    ]
    return counts, packets


@pytest.mark.parametrize("writer", traces.WRITERS, ids=lambda each: each.__name__)
@given(exchange=exchanges(), limit_ms=st.none() | st.integers(50, 350))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_received_frames_are_those_all_of_whose_packets_arrived_in_time(
    writer: Writer, exchange: tuple[list[int], list[Sent]], limit_ms: int | None, tmp_path: Path
) -> None:
    counts, packets = exchange
    told = joined(writer(tmp_path, packets))
    # Every packet is accounted for.
    lost = sum(packet.came_us is None for packet in packets)
    assert (len(told.packets), told.lost.total(), len(told.delays_ns)) == (
        len(packets),
        lost,
        len(packets) - lost,
    )
    assert told.unmatched.total() == 0
    assert set(told.lost) <= {
        "dropped at node 2" if writer is traces.ns2 else "dropped at node 1",
        matching.NOT_RECEIVED,
    }
    seen, doubts = frames_of(frames(counts), told, None if limit_ms is None else limit_ms * 1_000_000)
    assert doubts == []
    expected, first = [], 0
    for count in counts:
        mine = packets[first : first + count]
        came = [packet.came_us for packet in mine if packet.came_us is not None]
        late = limit_ms is not None and bool(came) and max(came) - mine[0].at_us > limit_ms * 1000
        expected.append("lost" if len(came) < count else "late" if late else "received")
        first += count
    assert seen.fates == expected


@pytest.mark.parametrize(
    "writer", [traces.sd_rd, traces.tcpdump, traces.pcap, traces.rtp_pcap], ids=lambda w: w.__name__
)
def test_numbers_that_start_again_are_told_apart(writer: Writer, tmp_path: Path) -> None:
    packets = [Sent(n * 100, None if n % 1000 == 17 else n * 100 + 5000, 20) for n in range(70_000)]
    told = joined(writer(tmp_path, packets))
    assert told.lost == {matching.NOT_RECEIVED: 70}
    assert set(told.delays_ns) == {5_000_000}


def test_what_has_no_partner_is_counted_by_its_reason(tmp_path: Path) -> None:
    (tmp_path / "sd").write_text("0.1 id 1 udp 9\n0.2 id 2 udp 9\n0.3 id 2 udp 9\n0.4 id 3 udp 9\n")
    (tmp_path / "rd").write_text("0.2 id 1 udp 9\n0.3 id 1 udp 9\n0.5 id 77 udp 9\n")
    told = joined([tmp_path / "sd", tmp_path / "rd"])
    assert told.unmatched == {"sent again": 1, "received again": 1, "received and never sent": 1}
    assert told.lost == {"not received": 2}
    assert told.delays_ns == [100_000_000]


def test_packets_beyond_the_last_frame_and_frames_without_packets_are_told(tmp_path: Path) -> None:
    packets = [Sent(n * STEP_US, n * STEP_US + 10, 50) for n in range(6)]
    told = joined(traces.sd_rd(tmp_path, packets))
    seen, doubts = frames_of(frames([2, 2]), told)
    assert (seen.beyond, seen.fates) == (2, ["received", "received"])
    assert "2 packets were sent after those of the last frame" in doubts[0]
    seen, doubts = frames_of(frames([2, 2, 3, 1]), told)
    assert (seen.count, seen.fates) == (3, ["received", "received", "lost", "never sent"])
    assert seen.sent_ns[3] == NEVER
    assert "6 packets were sent, and the 4 frames have 8" in doubts[0]
    _, doubts = frames_of(frames([3, 3], size=70), told)
    assert "the packets of 2 frames are smaller than the frames" in doubts[0]


def test_clocks_that_differ_are_refused_where_they_matter_and_can_be_set(tmp_path: Path) -> None:
    packets = [Sent(1_000_000 + n * STEP_US, n * STEP_US + 10_000, 50) for n in range(6)]
    paths = traces.sd_rd(tmp_path, packets)
    assert frames_of(frames([6]), joined(paths))[0].fates == ["received"]
    with pytest.raises(UserError, match=r"the clocks of the two ends differ; .*--clock-offset"):
        frames_of(frames([6]), joined(paths), 50_000_000)
    told = joined(paths, clock_offset_ns=-1_000_000_000)
    assert set(told.delays_ns) == {10_000_000}
    assert frames_of(frames([6]), told, 50_000_000)[0].fates == ["received"]


def test_a_flow_or_receiver_is_named_where_there_are_several(tmp_path: Path) -> None:
    packets = [Sent(n * STEP_US, n * STEP_US + 500, 50) for n in range(6)]
    path = traces.ns2(tmp_path, packets)[0]
    other = path.read_text().replace(" 1 0.0 3.0 ", " 5 0.1 4.0 ").replace(" 2 3 udp", " 2 4 udp")
    other = "".join(
        f"{line.rsplit(' ', 1)[0]} {int(line.split()[-1]) + 5000}\n" for line in other.splitlines()
    )
    both = tmp_path / "both.tr"
    both.write_text(path.read_text() + other)
    with pytest.raises(
        UserError, match=r"it has 2 flows: 0\.0>3\.0 udp fid 1 .*0\.1>4\.0 udp fid 5 .*--flow PART"
    ):
        joined([both])
    assert joined([both], flow="fid 5").lost.total() == 0
    # One flow that is multicast to two receivers. The second receiver lost everything.
    leaf = "".join(
        line.replace(" 2 3 udp", " 2 4 udp") + "\n"
        for line in path.read_text().splitlines()
        if " 2 3 " in line
    )
    both.write_text(path.read_text() + leaf)
    with pytest.raises(UserError, match=r"2 receivers are possible; nodes that receive the flow: 2, 3, 4"):
        joined([both])
    assert len(joined([both], receiver="4").delays_ns) == 6


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "", "it has no packet"),
        ("hello\n", ":1", "of no format that is read"),
        ("0.1 id 1 udp 9\n0.2 id x udp 9\n", ":2", "no line of the form"),
        ("+ 0.1 0 2 udp 9 ------- 1 0.0 3.0 0 1\n+ 0.2 0 2 udp 9\n", ":2", "damaged"),
        ("time,id\n0.1,1\n0.2\n", ":3", "1 columns in place of 2"),
        ("time,id\nsoon,1\n", ":2", "not a time"),
        ("time,id\n0.1,one\n", ":2", "no whole number"),
        ("time,event,id\n0.1,lost?,1\n", ":2", "unknown"),
        ("12:00:00.1 IP (tos 0x0) 1.1.1.1.5 > 1.1.1.2.5: UDP, length 9\n", ":1", "those of a day"),
        ("1700000000.1 IP 1.1.1.1.5 > 1.1.1.2.5: UDP, length 9\n", "", "1 packets without an identification"),
    ],
)
def test_a_damaged_or_unknown_trace_is_refused_with_its_place_and_a_remedy(
    text: str, place: str, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(UserError, match=what) as caught:
        read_packets(path)
    assert caught.value.place == f"{path}{place}"
    assert caught.value.remedy


@given(data=st.binary(max_size=400), cut=st.integers(0, 3000), at=st.integers(0, 3000))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_read_or_refused(data: bytes, cut: int, at: int, tmp_path: Path) -> None:
    packets = [Sent(n * STEP_US, n * STEP_US + 500, 50) for n in range(4)]
    for writer in traces.WRITERS:
        path = writer(tmp_path, packets)[0]
        whole = path.read_bytes()
        path.write_bytes((whole[:at] + data + whole[at:])[:cut])
        try:
            events = read_packets(path).events
        except UserError:
            continue
        assert events


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=60), st.integers(1, 70))
def test_miv_is_the_largest_share_of_worsened_frames_in_an_interval(
    pairs: list[tuple[int, int]], interval: int
) -> None:
    classes, sent = (np.array(each, dtype=np.uint8) for each in zip(*pairs, strict=True))
    worse = [got < was for got, was in pairs]
    length = min(interval, len(pairs))
    shares = [sum(worse[n : n + length]) / length for n in range(len(pairs) - length + 1)]
    assert worst_interval(classes, sent, interval) == (max(shares), shares.index(max(shares)))
