"""A Python program sends its packets with `steadycast.MediaSender`, or with `steadycast.Remote` and its own pacer."""

from __future__ import annotations

import struct
from collections import deque

import pytest
import steadycast as sc

LINK_BPS = 2e6
QUEUE_S = 0.1
WAY_S = 0.025


class Link:
    """A link of 2 Mb/s with a queue of 100 ms that loses every 100th packet."""

    def __init__(self) -> None:
        self.free_s = 0.0
        self.count = 0

    def offer(self, now_s: float, size_bytes: int) -> float | None:
        """Return the time at which a packet arrives, or `None` if it is lost."""
        self.count += 1
        if self.free_s - now_s > QUEUE_S:
            return None
        self.free_s = max(self.free_s, now_s) + size_bytes * 8 / LINK_BPS
        return None if self.count % 100 == 99 else self.free_s + WAY_S


def transport_wide(fates: dict[int, float | None]) -> bytes:
    """Return transport-wide feedback about packets by their numbers, in a receiver's format with one-bit chunks."""
    first, last = min(fates), max(fates)
    arrived = [(n, at) for n, at in sorted(fates.items()) if at is not None]
    if not arrived:
        return b""
    reference = int(arrived[0][1] / 0.064)
    symbols = [2 if fates.get(n) is not None else 0 for n in range(first, last + 1)]
    chunks = b"".join(
        struct.pack("!H", 0xC000 | sum(s << (12 - 2 * i) for i, s in enumerate(symbols[at : at + 7])))
        for at in range(0, len(symbols), 7)
    )
    deltas, before = b"", reference * 256
    for _, at in arrived:
        ticks = int(at / 0.00025)
        deltas += struct.pack("!h", ticks - before)
        before = ticks
    head = struct.pack("!IIHHI", 2, 1, first & 0xFFFF, len(symbols), (reference & 0xFFFFFF) << 8)
    body = head + chunks + deltas
    body += bytes(-len(body) % 4)
    return struct.pack("!BBH", 0x8F, 205, len(body) // 4) + body


def nack(missing: list[int]) -> bytes:
    entries = b"".join(struct.pack("!HH", seq, 0) for seq in missing)
    return struct.pack("!BBHII", 0x81, 205, 2 + len(missing), 2, 1) + entries


def test_a_sender_fills_a_link_that_loses_packets_and_repairs_them_within_its_rate() -> None:
    sender = sc.MediaSender(floor_bps=100e3, cap_bps=10e6)
    audio, video = sender.add_audio(2, 40e3), sender.add_video(1)
    link = Link()
    sent: deque[tuple[float, sc.Departure, float | None]] = deque()
    carried, lost, seqs = 0, 0, [0, 0]
    for ms in range(30_000):
        now_s = ms / 1000
        if ms % 20 == 0:
            sender.push(now_s, audio, 0, 100, seqs[0] & 0xFFFF)
            seqs[0] += 1
            plan = sender.encoder(now_s, video)
            if not plan.skip and sender.frame(now_s, video, "key" if plan.key_frame else "reference"):
                size = int(plan.rate_bps / 8 * 0.02)
                count = -(-size // 1200)
                for n in range(count):
                    seq = seqs[1] & 0xFFFF
                    seqs[1] += 1
                    sender.push(now_s, video, 7, size // count, seq, first=n == 0, last=n + 1 == count)
        for packet in sender.poll(now_s):
            assert packet.kind in ("media", "repair")
            sent.append((now_s, packet, link.offer(now_s, packet.size_bytes)))
        if ms % 50 == 49:
            fates: dict[int, float | None] = {}
            missing = []
            while sent and (sent[0][2] or sent[0][0] + 0.15) + WAY_S <= now_s:
                _, packet, arrives = sent.popleft()
                # Receivers leave retransmissions out.
                fates[packet.number] = arrives if packet.kind == "media" else None
                carried += packet.size_bytes if arrives else 0
                if arrives is None:
                    lost += 1
                    missing += [packet.seq] if packet.stream == video else []
            if any(at is not None for at in fates.values()):
                assert sender.on_rtcp(now_s, transport_wide(fates))
            if missing:
                assert sender.on_rtcp(now_s, nack(missing))
    # The bounds are those of the Rust library's example: 1 to 2 Mb/s on a link of 2 Mb/s.
    assert 1e6 < carried * 8 / 30 < 2e6
    assert lost * 0.5 < sender.retransmissions <= lost
    assert sender.decision.limit == "network"
    assert sender.decision.why


def test_a_controller_alone_answers_what_the_kit_s_does() -> None:
    remote = sc.Remote("tfrc", floor_bps=100e3, cap_bps=4e6)
    fates: list[tuple[int, float | None]] = []
    rtts = []
    for n in range(500):
        now_s = n * 0.01
        number = remote.sent(now_s, 1200, first=True, last=True)
        fates.append((number, None if n % 50 == 49 else now_s + 0.02))
        if len(fates) == 5:
            rtts.append(remote.feedback(now_s + 0.025, fates))
            fates = []
        if remote.wake_s is not None and remote.wake_s <= now_s:
            remote.timer(now_s)
    assert remote.number(499) == 499
    # The newest packet in a feedback was sent 25 ms before. Every tenth one is lost, and the packet before it is
    # used. That packet waited 10 ms longer for the feedback, and these 10 ms must not count as round-trip time.
    assert rtts == pytest.approx([0.025] * 100, abs=1e-6)
    decision = remote.decision
    assert 100e3 <= decision.target_bps <= 4e6
    assert decision.window_bytes is None
    assert "why=" in repr(decision)


def test_frames_that_do_not_fit_are_skipped_and_come_back_to_the_caller() -> None:
    sender = sc.MediaSender("fixed", floor_bps=1e3, cap_bps=4e6, parameters={"rate": "100kbps"})
    video = sender.add_video(1)
    for seq in range(40):
        if sender.frame(0.0, video, "reference"):
            sender.push(0.0, video, seq, 1000, seq)
    assert sender.skipped_frames > 20
    assert sender.encoder(0.0, video).skip
    assert sender.frame(0.1, video, "key")
    assert sender.push(0.1, video, 99, 1000, 99)
    first = sender.poll(0.1)
    assert [packet.id for packet in first] == [99]
    dropped = sender.take_dropped()
    assert dropped == [(video, seq) for seq in range(len(dropped))]
    assert len(dropped) > 5
    assert sender.take_dropped() == []


def test_names_of_the_program_s_own_find_packets() -> None:
    sender = sc.MediaSender(floor_bps=1e5, cap_bps=4e6, feedback="joined")
    video = sender.add_video(1)
    sender.push(0.0, video, 5, 1000, 5)
    (packet,) = sender.poll(0.0)
    sender.sent_as(packet.number, own=77)
    assert sender.number(own=77) == packet.number == 0
    assert sender.number(own=78) is None
    assert sender.wake_s is not None
    assert repr(sender).startswith("MediaSender(backlog_bytes=0, Decision(target_bps=")
    with pytest.raises(sc.UserError, match="one of transport"):
        sender.sent_as(0)


@pytest.mark.parametrize(
    ("controller", "more", "said"),
    [
        ("stedy", {}, 'did you mean "steady"'),
        ("steady", {"parameters": {"nothing": 1.0}}, "nothing"),
        ("steady", {"feedback": "remb"}, "rfc8888"),
        ("steady", {"cap_bps": float("nan")}, "no rate"),
    ],
)
def test_what_can_t_be_made_is_told_with_a_remedy(
    controller: str, more: dict[str, object], said: str
) -> None:
    given = {"floor_bps": 1e5, "cap_bps": 1e6, **more}
    with pytest.raises(sc.UserError, match=said):
        sc.MediaSender(controller, **given)  # type: ignore[arg-type]
