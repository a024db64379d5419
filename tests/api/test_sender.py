"""A Python program sends its packets with `steadycast.MediaSender`, or with `steadycast.Remote` and its own pacer."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

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


def nack(missing: list[int]) -> bytes:
    entries = b"".join(struct.pack("!HH", seq, 0) for seq in missing)
    return struct.pack("!BBHII", 0x81, 205, 2 + len(missing), 2, 1) + entries


def test_a_sender_fills_a_link_that_loses_packets_and_repairs_them_within_its_rate() -> None:
    sender = sc.MediaSender(floor_bps=100e3, cap_bps=10e6)
    audio, video = sender.add_audio(2, 40e3), sender.add_video(1)
    link = Link()
    recorder = sc.TransportFeedbackRecorder(3, 2e6)
    arriving: deque[tuple[float, sc.Departure]] = deque()
    returning: deque[tuple[float, bytes]] = deque()
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
            arrives = link.offer(now_s, packet.size_bytes)
            if arrives is not None:
                arriving.append((arrives, packet))
                continue
            lost += 1
            if packet.stream == video:
                # The receiver detects the loss when the next packet arrives.
                returning.append((now_s + QUEUE_S + 2 * WAY_S, nack([packet.seq])))
        while arriving and arriving[0][0] <= now_s:
            at_s, packet = arriving.popleft()
            carried += packet.size_bytes
            # Receivers do not report retransmissions.
            if packet.kind == "media":
                recorder.on_packet(at_s, 1, packet.number & 0xFFFF, packet.size_bytes)
        is_due = recorder.due_s is not None and recorder.due_s <= now_s
        reports = recorder.report(now_s)
        assert bool(reports) == is_due
        returning += [(now_s + WAY_S, report) for report in reports]
        for due in [each for each in returning if each[0] <= now_s]:
            returning.remove(due)
            assert sender.on_rtcp(now_s, due[1])
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
    # The newest packet of a feedback was sent 25 ms before. Every tenth newest packet is lost, and the packet before it
    # is then the newest one that arrived. That packet waited 10 ms longer for the feedback, and these 10 ms must not
    # count as round-trip time.
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


def test_a_stream_that_was_not_added_and_an_ssrc_that_is_taken_are_told_with_a_remedy() -> None:
    sender = sc.MediaSender(floor_bps=1e5, cap_bps=4e6)
    video = sender.add_video(7)
    adds: list[Callable[[], object]] = [
        lambda: sender.add_video(7),
        lambda: sender.add_audio(7, 5e4),
        lambda: sender.add_parity(7, 5e4),
    ]
    for add in adds:
        with pytest.raises(sc.UserError, match=f"ssrc: stream {video} has the SSRC 7"):
            add()
    calls: list[Callable[[int], object]] = [
        lambda stream: sender.encoder(0.0, stream),
        lambda stream: sender.frame(0.0, stream, "key"),
        lambda stream: sender.push(0.0, stream, 1, 1000, 1),
        lambda stream: sender.resend(0.0, stream, 1),
        lambda stream: sender.request_key_frame(stream),
    ]
    for call in calls:
        call(video)
        with pytest.raises(sc.UserError, match="stream: 3 is none of the 1 streams"):
            call(3)
    assert [sender.add_video(0), sender.add_video(0)] == [1, 2]


@pytest.mark.parametrize(
    ("controller", "more", "said"),
    [
        ("stedy", {}, 'did you mean "steady"'),
        ("steady", {"parameters": {"nothing": 1.0}}, "nothing"),
        ("steady", {"feedback": "remb"}, "rfc8888"),
        ("steady", {"cap_bps": float("nan")}, "cap_bps: NaN is no rate"),
        ("steady", {"max_backlog_s": -1.0}, "max_backlog_s: -1 is not valid; give a finite"),
        ("steady", {"credit_s": float("inf")}, "credit_s: inf is not valid; give a finite"),
    ],
)
def test_what_can_t_be_made_is_told_with_a_remedy(
    controller: str, more: dict[str, object], said: str
) -> None:
    given = {"floor_bps": 1e5, "cap_bps": 1e6, **more}
    with pytest.raises(sc.UserError, match=said):
        sc.MediaSender(controller, **given)  # type: ignore[arg-type]


def test_a_stream_that_could_never_be_sent_is_refused() -> None:
    sender = sc.MediaSender(floor_bps=1e5, cap_bps=1e6)
    adds: list[tuple[Callable[[], object], str]] = [
        (lambda: sender.add_audio(1, 2e6), "rate: 2Mbps is above the cap, 1Mbps"),
        (lambda: sender.add_parity(1, 2e6), "rate: 2Mbps is above the cap, 1Mbps"),
        (lambda: sender.add_video(1, least_bps=3e5, most_bps=2e5), "least: 300kbps is above the stream"),
        (lambda: sender.add_video(1, least_bps=2e6), "least: 2Mbps is above the cap"),
        (lambda: sender.add_video(1, most_bps=0.0), "most: a maximum of 0"),
    ]
    for add, said in adds:
        with pytest.raises(sc.UserError, match=said):
            add()
    assert sender.add_video(1) == 0


def test_a_recorder_without_a_bandwidth_is_refused() -> None:
    with pytest.raises(sc.UserError, match="bandwidth_bps: NaN is no rate"):
        sc.TransportFeedbackRecorder(1, float("nan"))


def test_a_recorder_whose_clock_is_set_back_goes_on_reporting() -> None:
    def reports(set_back_s: float) -> list[bytes]:
        recorder, made = sc.TransportFeedbackRecorder(3, 2e6), []
        for number in range(400):
            now_s = 100 + number / 100 - (set_back_s if number >= 200 else 0)
            recorder.on_packet(now_s, 1, number, 1200)
            if recorder.due_s is not None and recorder.due_s <= now_s + 0.01:
                made += recorder.report(max(now_s, recorder.due_s))
        return made

    # The recorder continues at the latest time, so only the interval in which the clock was set back is lost.
    steady, *others = [reports(set_back_s) for set_back_s in (0.0, 1.5, 15.0, 99.0)]
    assert len(steady) > 50
    for other in others:
        assert len(steady) - 3 <= len(other) <= len(steady)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    remote = sc.Remote(floor_bps=100e3, cap_bps=1e6)
    sender = sc.MediaSender(floor_bps=100e3, cap_bps=1e6)
    with pytest.raises(sc.UserError, match="give a finite number of seconds"):
        remote.sent(seconds, 1000)
    with pytest.raises(sc.UserError, match="give a finite number of seconds"):
        remote.timer(seconds)
    with pytest.raises(sc.UserError, match="give a finite number of seconds"):
        sender.poll(seconds)


def test_a_controller_that_measures_with_probes_asks_for_them() -> None:
    remote = sc.Remote("gcc", floor_bps=100e3, cap_bps=4e6, probes=True)
    remote.sent(0.0, 1200)
    remote.feedback(0.05, [(0, 0.02)])
    probe = remote.probe()
    assert probe is not None
    assert probe.rate_bps > remote.decision.pacing_bps
    assert probe.packets >= 2


def test_a_controller_that_lacks_what_it_needs_says_how_it_works() -> None:
    with pytest.raises(sc.UserError, match="set its parameter probes to false"):
        sc.Remote("gcc", floor_bps=100e3, cap_bps=4e6)
    with pytest.raises(sc.UserError, match="not only that of an acknowledgment"):
        sc.Remote("lda-plus", floor_bps=100e3, cap_bps=4e6, acknowledged=True)
    with pytest.raises(sc.UserError, match="cap: it is 0"):
        sc.Remote(floor_bps=0.0, cap_bps=0.0)


def rates_around_a_silence(controller: str) -> tuple[float, float]:
    """Return the target rate after 10 s with feedback, and the rate after another 25 s without feedback."""
    remote = sc.Remote(controller, floor_bps=100e3, cap_bps=4e6, probes=True)
    in_flight: list[tuple[int, float]] = []
    before_bps, send_s = 0.0, 0.0
    for ms in range(0, 35_000, 5):
        now_s = ms / 1000
        if remote.wake_s is not None and remote.wake_s <= now_s:
            remote.timer(now_s)
        decision = remote.decision
        if send_s <= now_s and (decision.window_bytes is None or decision.window_bytes >= 1200):
            in_flight.append((remote.sent(now_s, 1200), now_s + 0.02))
            send_s = now_s + 1200 * 8 / decision.pacing_bps
        if now_s < 10.0 and ms % 50 == 0:
            remote.feedback(now_s, [(number, at) for number, at in in_flight if at < now_s - 0.02])
            in_flight = [(number, at) for number, at in in_flight if at >= now_s - 0.02]
            before_bps = remote.decision.target_bps
    return before_bps, remote.decision.target_bps


def test_without_feedback_the_rate_falls_except_with_the_controllers_that_the_page_names() -> None:
    page = Path(__file__).parents[2] / "docs" / "embedding-reference.md"
    keep = re.search(r"seconds\. (`[^.]*) keep their rate", page.read_text())
    assert keep is not None
    constant = set()
    for controller in sc.controllers():
        before_bps, after_bps = rates_around_a_silence(controller.name)
        if after_bps > 0.95 * before_bps:
            constant.add(controller.name)
    assert constant == set(re.findall(r"`([^`]*)`", keep[1]))


@pytest.mark.parametrize("start_s", [0.0, 1.7e9, 3.9e9])
@pytest.mark.parametrize("controller", ["gcc", "steady", "tfrc"])
def test_something_is_due_at_the_time_that_is_told(start_s: float, controller: str) -> None:
    remote = sc.Remote(controller, floor_bps=100e3, cap_bps=4e6, probes=controller == "gcc")
    remote.sent(start_s, 1200)
    waits = 0
    for _ in range(50):
        wake_s = remote.wake_s
        if wake_s is None:
            break
        remote.timer(wake_s)
        assert remote.wake_s != wake_s
        waits += 1
    assert waits > 0
    recorder = sc.TransportFeedbackRecorder(1, 1e6)
    recorder.on_packet(start_s, 5, 7, 1200)
    assert recorder.due_s is not None
    assert recorder.report(recorder.due_s)
