"""Where a capture was made, as its packets show it, and the reasons of its refusals.

Each call has known losses and delays. Sender reports and the receiver's answers (LSR and DLSR) show the place.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from steadycast import call
from steadycast.errors import UserError

from tests.face.test_call_captures import (
    LINKS,
    VIDEO,
    Sent,
    Way,
    feedback,
    framed,
    ip,
    mac,
    rtp,
    sums,
    written,
)

SECONDS = 12
EVERY_S = 0.1
"""Interval of the transport-wide feedback."""
HELD_S = 0.25
"""Time from the arrival of a sender report to the receiver report that answers it (DLSR)."""
NTP_S = 3_900_000_000
PLAIN = Way(side="sender", reports="absent", stamps="none")
"""A plain call without reports and without abs-send-time."""
PATHS = [(0.4e6, 0.0, 0.03), (1e6, 0.05, 0.03), (3e6, 0.02, 0.08)]
"""Rate in bit/s, share of packets lost, and one-way delay in seconds."""


def sent_over(
    rate_bps: float, loss: float, one_way_s: float, link_bps: float | None = None, seed: int = 1
) -> list[Sent]:
    """Return the packets of a video that sends 25 pictures a second, on a path that loses packets by chance.

    The delay is constant. If there is a link, it queues the packets of a picture.
    """
    chance = random.Random(seed)
    parts = max(2, round(rate_bps / 25 / 8000))
    payload = round(rate_bps / 25 / 8 / parts)
    free = 0.0
    sent: list[Sent] = []
    for k, n in itertools.product(range(SECONDS * 25), range(parts)):
        left = k / 25 + n * 0.001
        free = max(free, left) + (payload * 8 / link_bps if link_bps else 0)
        arrived = None if chance.random() < loss else (free if link_bps else left) + one_way_s
        number = len(sent) & 0xFFFF
        sent.append(Sent(left, arrived, VIDEO, number, k * 3600, n == parts - 1, number, 0, payload))
    return sent


def rtcp(sent: list[Sent], one_way_s: float, is_complete: bool) -> Iterator[tuple[float, bool, bytes]]:
    """Yield the departures of RTCP packets, whether they are the receiver's, and their bytes.

    If ``is_complete``, transport-wide feedback lists each packet. Otherwise there are only sums.
    """
    for t in range(SECONDS):
        ntp = (NTP_S + t) << 32 | 0x1234_5678
        yield t + 0.5, False, struct.pack("!BBHIQIII", 0x80, 200, 6, VIDEO, ntp, t * 90_000, 0, 0)
        past = [one for one in sent if one.left < t + 0.5]
        report = sums(sum(one.arrived is None for one in past), past[-1].seq)
        answer = report[:-8] + struct.pack("!II", ntp >> 16 & 0xFFFF_FFFF, int(HELD_S * 65_536))
        yield t + 0.5 + one_way_s + HELD_S, True, answer
    if is_complete:
        groups = itertools.groupby(sent, key=lambda one: int(one.left / EVERY_S))
        for count, (k, part) in enumerate(groups):
            yield (k + 1) * EVERY_S + one_way_s + 0.02, True, feedback(list(part), count, Way())


def captured(
    place: Path, sent: list[Sent], way: Way, one_way_s: float, before_s: float, is_complete: bool = True
) -> Path:
    """Write a capture that was made ``before_s`` seconds (one way) before the receiver."""
    place.mkdir(exist_ok=True)
    return written(place, way, recorded(sent, way, one_way_s, before_s, is_complete))


def with_clock_set(found: list[tuple[float, bytes]], at_s: float, by_s: float) -> list[tuple[float, bytes]]:
    """Return the records of a capture whose clock was set at a time, both in seconds."""
    return [(at + by_s * (at > at_s), frame) for at, frame in found]


def between(payload: bytes, source: tuple[int, int], target: tuple[int, int]) -> bytes:
    """Return the frame of a UDP datagram between two endpoints: the address's last byte, and the port."""
    udp = struct.pack("!HHHH", source[1], target[1], 8 + len(payload), 0) + payload
    hosts = bytes([192, 0, 2, source[0], 198, 51, 100, target[0]])
    return mac(0x800) + struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + hosts + udp


def plain_call(place: Path, rate_bps: float, other: bytes) -> Path:
    """Write a capture of plain RTP at the sender, without reports, and with another frame in it."""
    frame = framed(PLAIN)
    sent = sent_over(rate_bps, 0.0, 0.03)
    found = [(one.left, frame(ip(rtp(one, PLAIN), False, PLAIN, 40_000, 9)[0])) for one in sent]
    return written(place, PLAIN, sorted([*found, (1.0001, other)]))


QUERY = bytes.fromhex("0100000100000000000003777777076578616d706c6503636f6d0000010001")
NTP = bytes.fromhex("0006ec00000000000000000000000000") + bytes(31)
CALL, OTHERS = ((1, 40_000), (9, 50_000)), ((77, 49_152), (53, 53))
"""The endpoints of the call, and of other traffic."""


@pytest.mark.parametrize("ends", [CALL, OTHERS], ids=["the call's endpoints", "others"])
@pytest.mark.parametrize("rate_bps", [0.3e6, 2e6])
def test_dns_and_ntp_beside_plain_rtp_are_no_sign_of_encryption(
    tmp_path: Path, rate_bps: float, ends: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    # The first byte of DNS is a part of a random identifier; that of NTP is 35 in a client's request of version 4.
    # RFC 7983 gives DTLS the first bytes 20 to 63.
    chance = random.Random(rate_bps)
    firsts = [20, 22, 23, 63, chance.randint(20, 63)]
    payloads = [bytes([first, chance.randrange(256)]) + QUERY for first in firsts] + [b"\x23" + NTP]
    for payload in payloads:
        file = plain_call(tmp_path, rate_bps, between(payload, *ends))
        with pytest.raises(UserError, match="no reports of the receiver") as told:
            call.read(file, controllers=[])
        assert "SRTCP" not in told.value.problem, payload[:2].hex()
        assert "both directions" in told.value.remedy


@pytest.mark.parametrize("is_back", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize(("kind", "version"), [(22, 0xFEFD), (22, 0xFEFF), (23, 0xFEFD)])
def test_a_dtls_record_between_the_endpoints_of_a_call_shows_encryption(
    tmp_path: Path, kind: int, version: int, is_back: bool
) -> None:
    # The record layer of DTLS 1.2: type, version, epoch, sequence number, length (RFC 6347, section 4.1).
    record = struct.pack("!BHHHIH", kind, version, 0, 0, 0, 40) + bytes(40)
    (one, one_port), (other, other_port) = CALL
    frame = between(record, (one, one_port), (other, other_port))
    if is_back:
        back = struct.pack("!HHHH", other_port, one_port, 8 + len(record), 0) + record
        frame = frame[:26] + bytes([198, 51, 100, other, 192, 0, 2, one]) + back
    with pytest.raises(UserError, match="SRTCP hides"):
        call.read(plain_call(tmp_path, 1e6, frame), controllers=[])


@pytest.mark.parametrize(
    ("head", "name", "remedy"),
    [
        (b"RTCStatsDump", "rtcstats dump", "chrome://webrtc-internals"),
        (b"#!rtpplay1.0", "rtpdump", "the capture that it was made from"),
        (b"snoop\0\0\0", "snoop", "editcap"),
    ],
)
@pytest.mark.parametrize("size", [0, 300])
def test_the_remedy_for_a_foreign_file_is_one_that_can_be_followed(
    tmp_path: Path, head: bytes, name: str, remedy: str, size: int
) -> None:
    file = tmp_path / "file"
    tail = {b"#": b" 192.0.2.1/5004\n", b"R": b'\n{"fileFormat":3}\n'}.get(head[:1], b"\0\0\0\2")
    file.write_bytes(head + tail + random.Random(size).randbytes(size))
    with pytest.raises(UserError, match=name) as told:
        call.read(file)
    assert remedy in told.value.remedy
    # editcap converts neither of the other two.
    assert ("editcap" in told.value.remedy) == (remedy == "editcap")


FED = Way(reports="feedback", stamps="none")
"""Packets with transport-wide numbers and without abs-send-time."""


@pytest.mark.parametrize(("rate_bps", "loss", "one_way_s"), PATHS)
@pytest.mark.parametrize("link_bps", [None, 8e6])
def test_a_capture_that_its_reports_show_at_the_receiver_lacks_departures_and_no_reports(
    tmp_path: Path, rate_bps: float, loss: float, one_way_s: float, link_bps: float | None
) -> None:
    sent = sent_over(rate_bps, loss, one_way_s, link_bps)
    file = captured(tmp_path, sent, FED, one_way_s, 0.0)
    with pytest.raises(UserError, match=r"nothing in it says when packets left") as told:
        call.read(file, controllers=[])
    assert "no header extension advances as abs-send-time does" in told.value.problem
    assert "reports" not in told.value.problem
    assert told.value.remedy


def test_a_capture_without_a_queue_whose_reports_do_not_show_its_place_is_refused(tmp_path: Path) -> None:
    sent = sent_over(1e6, 0.05, 0.03)
    frame = framed(FED)
    found = [(one.left, frame(ip(rtp(one, FED), False, FED, 40_000, 9)[0])) for one in sent]
    back = [(at + 0.03, packet) for at, is_back, packet in rtcp(sent, 0.03, True) if is_back]
    found += [(at, frame(ip(packet, True, FED, 40_000, 9)[0])) for at, packet in back]
    with pytest.raises(UserError, match="may have been made where packets arrived") as told:
        call.read(written(tmp_path, FED, sorted(found)), controllers=[])
    assert "--side sender" in told.value.remedy


def recorded(
    sent: list[Sent], way: Way, one_way_s: float, before_s: float, is_complete: bool, dlsr: int | None = None
) -> list[tuple[float, bytes]]:
    """Return the records of `captured`. ``dlsr`` replaces the DLSR of all receiver reports."""
    frame = framed(way)
    at_sender = before_s == one_way_s
    found: list[tuple[float, bytes]] = []
    for ident, one in enumerate(sent):
        at = one.left if at_sender else None if one.arrived is None else one.arrived - before_s
        if at is not None:
            found.append((at, frame(ip(rtp(one, way), False, way, 40_000, ident)[0])))
    for at, is_back, packet in rtcp(sent, one_way_s, is_complete):
        if dlsr is not None and packet[1] == 201:
            packet = packet[:-4] + struct.pack("!I", dlsr)
        seen = at + (before_s if is_back else one_way_s - before_s)
        found.append((seen, frame(ip(packet, is_back, way, 40_000, 9)[0])))
    return sorted(found)


SETS_S = [0.02, 0.05, 0.2, 0.24, -0.03, -0.06, -0.2, 0.9, 3.0, -3.0]
"""Seconds by which a capture's clock is set."""


@pytest.mark.parametrize("at_s", [3.0, 3.6, 6.7])
@pytest.mark.parametrize("by_s", SETS_S)
@pytest.mark.parametrize("stamps", ["all", "none"])
def test_a_sender_s_capture_whose_clock_was_set_is_not_the_receiver_s(
    tmp_path: Path, stamps: str, by_s: float, at_s: float
) -> None:
    # A receiver report is 0.31 s after its sender report, with 0.25 s of it in the receiver. Each clock step is
    # somewhere within this time, or between two such pairs.
    for is_complete, link_bps in itertools.product((True, False), (None, 1.5e6)):
        way = Way(side="sender", reports="feedback" if is_complete else "sums", stamps=stamps)
        sent = sent_over(1e6, 0.02, 0.03, link_bps)
        found = with_clock_set(recorded(sent, way, 0.03, 0.03, is_complete), at_s, by_s)
        place = tmp_path / f"{is_complete}-{link_bps}"
        place.mkdir()
        file = written(place, way, found)
        if not is_complete:
            with pytest.raises(
                UserError, match=r"nothing in it says (when they arrived|both when)|agree to a milli"
            ) as told:
                call.read(file, controllers=[])
            assert told.value.remedy
            continue
        read = call.read(file, controllers=[])["seen"]
        assert read["lost_frac"] == pytest.approx(
            sum(one.arrived is None for one in sent) / len(sent), abs=0.002
        )
        assert not any("arrivals are the record's own" in note for note in read["notes"])
        # Some steps below 50 ms stay in the delays.
        assert (read["delay_p95_ms"] > 10) == (link_bps is not None) or abs(by_s) < 0.05


@pytest.mark.parametrize("reports", ["feedback", "sums"])
@pytest.mark.parametrize("stamps", ["all", "none"])
@pytest.mark.parametrize("link_bps", [None, 1.5e6])
def test_receiver_reports_without_a_dlsr_show_no_place(
    tmp_path: Path, link_bps: float | None, stamps: str, reports: str
) -> None:
    way = Way(side="receiver", reports=reports, stamps=stamps)
    sent = sent_over(1e6, 0.02, 0.03, link_bps)
    file = written(tmp_path, way, recorded(sent, way, 0.03, 0.0, reports == "feedback", 0))
    if stamps == "all" and (link_bps is not None or reports == "feedback"):
        notes = call.read(file, controllers=[])["seen"]["notes"]
        assert not any("before the receiver" in note for note in notes)
        if reports == "sums":
            assert any("nothing in the capture shows where it was made" in note for note in notes)
            at_receiver = call.read(file, controllers=[], side="receiver")["seen"]["notes"]
            assert not any("where it was made" in note for note in at_receiver)
    else:
        with pytest.raises(UserError) as told:
            call.read(file, controllers=[])
        assert "before the receiver" not in told.value.problem
        # Where an option decides, the remedy names it.
        if stamps == "all" or reports == "feedback":
            assert "--side" in told.value.remedy


def test_reports_that_show_a_distance_to_the_receiver_show_that_packets_did_not_arrive_here(
    tmp_path: Path,
) -> None:
    sent = sent_over(1e6, 0.05, 0.03)
    file = written(tmp_path, FED, recorded(sent, FED, 0.03, 0.03, True))
    read = call.read(file, controllers=[])["seen"]
    assert read["lost_frac"] == pytest.approx(sum(one.arrived is None for one in sent) / len(sent), abs=0.002)
    assert any("packets left as captured" in note for note in read["notes"])


ORDER = "the first recording was made at the receiver, or the second one at the sender"


@pytest.mark.parametrize(("rate_bps", "loss", "one_way_s"), PATHS)
@pytest.mark.parametrize("is_complete", [True, False], ids=["feedback", "sums"])
def test_the_files_of_two_ends_are_read_in_their_order_and_refused_in_the_other_one(
    tmp_path: Path, rate_bps: float, loss: float, one_way_s: float, is_complete: bool
) -> None:
    sent = sent_over(rate_bps, loss, one_way_s, 1.5 * rate_bps)
    way = FED if is_complete else PLAIN
    there = captured(tmp_path / "sender", sent, way, one_way_s, one_way_s, is_complete)
    here = captured(tmp_path / "receiver", sent, way, one_way_s, 0.0, is_complete)
    seen = call.read(there, other=here, controllers=[])["seen"]
    lost = sum(one.arrived is None for one in sent) / len(sent)
    assert seen["packets"] == len(sent)
    assert seen["lost_frac"] == pytest.approx(lost, abs=0.002)
    with pytest.raises(UserError, match=ORDER) as told:
        call.read(here, other=there, controllers=[])
    assert "give the sender's file first" in told.value.remedy
    assert "--other-end" in told.value.remedy


@pytest.mark.parametrize(("rate_bps", "loss", "one_way_s"), PATHS[:2])
def test_a_cooked_capture_of_packets_that_left_is_not_the_receiver_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate_bps: float, loss: float, one_way_s: float
) -> None:
    way = Way(reports="absent", stamps="none", link="sll")
    source = bytes([192, 0, 2, 1])

    def cooked(packet: bytes) -> bytes:
        # In a cooked capture, packet type 4 means that the capturing host sent the packet.
        return struct.pack("!HHH8sH", 4 * (packet[12:16] == source), 1, 6, bytes(8), 0x800) + packet

    sent = sent_over(rate_bps, loss, one_way_s, 1.5 * rate_bps)
    here = captured(tmp_path / "receiver", sent, way, one_way_s, 0.0, False)
    monkeypatch.setitem(LINKS, "sll", (113, cooked))
    there = captured(tmp_path / "sender", sent, way, one_way_s, one_way_s, False)
    assert call.read(there, other=here, controllers=[])["seen"]["packets"] == len(sent)
    with pytest.raises(UserError, match=ORDER):
        call.read(here, other=there, controllers=[])


@pytest.mark.parametrize("one_way_s", [0.0002, 0.0005, 0.0009, 0.0015])
@pytest.mark.parametrize("is_complete", [True, False], ids=["feedback", "sums"])
def test_the_files_of_two_ends_in_one_local_network_are_read_in_their_order(
    tmp_path: Path, one_way_s: float, is_complete: bool
) -> None:
    # The sender is near the receiver, so its reports return within 2 ms too.
    sent = sent_over(1e6, 0.02, one_way_s, 1.5e6)
    way = FED if is_complete else PLAIN
    there = captured(tmp_path / "sender", sent, way, one_way_s, one_way_s, is_complete)
    here = captured(tmp_path / "receiver", sent, way, one_way_s, 0.0, is_complete)
    seen = call.read(there, other=here, controllers=[])["seen"]
    assert seen["packets"] == len(sent)
    assert seen["lost_frac"] == pytest.approx(sum(one.arrived is None for one in sent) / len(sent), abs=0.002)


@pytest.mark.parametrize("seed", range(4))
def test_pictures_that_an_interruption_lost_are_counted_at_both_ends(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    begin, end, one_way_s = chance.uniform(3, 5), chance.uniform(6, 9), 0.03
    sent = [
        replace(one, arrived=None) if begin < one.left < end else one
        for one in sent_over(chance.choice([0.3e6, 1e6]), 0.0, one_way_s)
    ]
    way = Way(side="receiver", reports="feedback")
    ends = {"sender": one_way_s, "receiver": 0.0}
    seen = {
        side: call.read(captured(tmp_path / side, sent, way, one_way_s, before_s))["seen"]
        for side, before_s in ends.items()
    }
    for each in seen.values():
        # The last reports are missing, so the last pictures may be unknown.
        assert each["frames"]["all"] == pytest.approx(SECONDS * 25, abs=2)
        assert each["frames"]["unsent_s"] == 0
        assert each["lost_frac"] == pytest.approx((end - begin) / SECONDS, abs=0.03)


@pytest.mark.parametrize("is_one_host", [True, False])
@pytest.mark.parametrize("place", ["sender", "receiver"])
def test_stun_shows_the_end_of_a_capture_also_if_both_ends_have_one_address(
    tmp_path: Path, place: str, is_one_host: bool
) -> None:
    one_way_s = 0.03
    ends = ((1, 40_000), (1 if is_one_host else 9, 50_000))
    found: list[tuple[float, bytes]] = []

    def record(left: float, is_back: bool, payload: bytes) -> None:
        is_here = is_back == (place == "receiver")
        frame = between(payload, *(ends[::-1] if is_back else ends))
        hosts = bytes([192, 0, 2, frame[29], 192, 0, 2, frame[33]])
        frame = frame[:26] + hosts + frame[34:]
        found.append((left + (0.0 if is_here else one_way_s), frame))

    for one in sent_over(1e6, 0.0, one_way_s):
        record(one.left, False, rtp(one, Way()))
    for t, is_back in itertools.product(range(SECONDS), (False, True)):
        # An end asks, and the other end answers half a millisecond after the request arrived.
        for kind, answers, at in ((1, False, t + 0.4), (0x101, True, t + 0.4 + one_way_s + 0.0005)):
            stun = struct.pack("!HHI", kind, 0, 0x2112A442) + bytes([t, is_back, *bytes(10)])
            record(at, is_back != answers, stun)
    file = written(tmp_path, Way(), sorted(found))
    if place == "receiver":
        notes = call.read(file)["seen"]["notes"]
        assert not any("nothing in the capture shows where it was made" in note for note in notes)
        return
    with pytest.raises(UserError, match="it was recorded where packets left"):
        call.read(file)


@pytest.mark.parametrize("link_bps", [2.05e6, 2.1e6, 2.3e6])
def test_the_known_part_of_the_capacity_counts_only_half_seconds_with_packets(
    tmp_path: Path, link_bps: float
) -> None:
    one_way_s = 0.03
    sent = sent_over(2e6, 0.0, one_way_s, link_bps=link_bps)
    way = Way(side="sender", reports="feedback")
    # The reports end before the packets, so nothing shows whether the last packets arrived.
    end = SECONDS - 0.4
    found = [
        one
        for one in recorded(sent, way, one_way_s, one_way_s, is_complete=True)
        if one[0] < end or len(one[1]) > 600
    ]
    read = call.read(written(tmp_path, way, found))
    active = [each for each in read["bins"] if each["packets"]]
    assert any(each["capacity_bps"] for each in read["bins"] if not each["packets"])
    known = sum(each["capacity_bps"] is not None for each in active)
    assert read["path"]["known_frac"] == pytest.approx(known / len(active))
