//! The claims about `pgmcc`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::proof::{any_path, both_halves_stand, table, world_stands};
use harness::{Loss, Path, Plan, Source, World, assert_between, assert_snapshot, assert_within, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{
    Arrival, Body, Departing, Due, FrameEdge, Limit, Mode, Overheard, ReceiverHalf, ReceiverId, Reply, Report,
    SenderHalf, Sent, Slot, Window,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Stamp, Time};

const R: Span = Span::millis(100);
const S: Bytes = Bytes::new(1000);
const REPORT: u8 = 1;
const ACK: u8 = 2;
const LEAVE: u8 = 3;

/// Builds a report from its format, independent of the implementation.
fn body(subtype: u8, lead: u64, bitmap: u32, loss: f32, echo: Stamp) -> Body {
    let words = [lead as u32, bitmap, loss.to_bits(), echo.0];
    Body { subtype, bytes: words.into_iter().flat_map(u32::to_be_bytes).collect() }
}

/// A sender half with hand-written events.
struct Bench {
    half: Box<dyn SenderHalf>,
    seq: u64,
}

impl Bench {
    fn with(params: &[(&str, Given)]) -> Self {
        let mut plan = Plan::new("pgmcc", Path::clean(R));
        plan.params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let chosen = Chosen::shared("pgmcc", plan.mode, &plan.params).unwrap();
        Self { half: chosen.sender(&plan.setup(ReceiverId(1), "sender")), seq: 0 }
    }
    /// Sends a packet and delivers a report that makes receiver 9 the acker.
    fn started() -> Self {
        let mut bench = Self::with(&[]);
        bench.send(0.0);
        bench.hear(0.1, 9, REPORT, 0, 0, 0.0);
        bench
    }
    fn free(&self) -> u32 {
        match self.half.decision().window {
            Some(Window::Packets(free)) => free,
            other => panic!("{other:?}"),
        }
    }
    fn send(&mut self, at: f64) -> u64 {
        let edge = FrameEdge::default();
        let _ = self.half.notice(&Departing { at: s(at), seq: self.seq, size: S, edge });
        self.half.on_sent(&Sent { at: s(at), left: s(at), seq: self.seq, size: S, data_limited: false, number: 0 });
        self.seq += 1;
        self.seq - 1
    }
    /// Sends until the window is closed. Returns the number of packets.
    fn fill(&mut self, at: f64) -> u32 {
        let n = self.free();
        for _ in 0..n {
            self.send(at);
        }
        n
    }
    fn hear(&mut self, at: f64, from: u32, subtype: u8, lead: u64, bitmap: u32, loss: f32) {
        self.hear_after(at, R, from, subtype, lead, bitmap, loss);
    }
    #[allow(clippy::too_many_arguments, reason = "a report's fields")]
    fn hear_after(&mut self, at: f64, rtt: Span, from: u32, subtype: u8, lead: u64, bitmap: u32, loss: f32) {
        let body = body(subtype, lead, bitmap, loss, Stamp::of(s(at).before(rtt)));
        let from = ReceiverId(from);
        self.half.on_report(&Report {
            at: s(at),
            from,
            rtt: None,
            reception: None,
            body: Some(&body),
            members: 3,
            packets: &[],
        });
    }
    /// Acknowledges every packet in flight, one by one.
    fn ack_all(&mut self, at: f64, from: u64, to: u64) {
        for lead in from..to {
            self.hear(at, 9, ACK, lead, u32::MAX, 0.01);
        }
    }
    fn acker(&self) -> Option<u32> {
        self.half.decision().why.by.map(|id| id.0)
    }
    fn flags(&mut self) -> (u32, u8) {
        let notice = self.half.notice(&Departing { at: s(0.0), seq: self.seq, size: S, edge: FrameEdge::default() });
        assert_eq!((notice.id(), notice.bytes().len()), (5, 5));
        (u32::from_be_bytes(notice.bytes()[..4].try_into().unwrap()), notice.bytes()[4])
    }
}

#[test]
fn without_an_acker_everybody_is_asked_and_the_first_answer_wins() {
    let mut bench = Bench::with(&[]);
    assert_eq!(bench.flags(), (0, 1));
    assert_eq!(bench.fill(0.0), 1);
    bench.hear(0.1, 9, REPORT, 0, 0, 0.0);
    assert_eq!(bench.acker(), Some(9));
    assert_eq!(bench.flags(), (9, 2));
    // There was no acker for the first packet, so no acknowledgment is expected.
    assert_eq!(bench.free(), 1);
    bench.hear(0.11, 8, REPORT, 0, 0, 0.0);
    assert_eq!(bench.acker(), Some(9));
}

#[test]
fn the_window_doubles_to_ssthresh_and_then_gains_a_packet_per_round_trip() {
    let mut bench = Bench::started();
    let mut windows = Vec::new();
    let mut acked = 1;
    for round in 0..8 {
        let at = 0.2 + 0.1 * f64::from(round);
        windows.push(bench.fill(at - 0.1));
        let to = bench.seq;
        bench.ack_all(at, acked, to);
        acked = to;
    }
    // 1, 2, 4, then one more per round trip: W grows by 1/W per acknowledgment, a little less than 1.
    assert_eq!(windows, [1, 2, 4, 4, 5, 6, 7, 8]);
}

#[test]
fn a_loss_halves_the_window_once_per_round_trip() {
    let mut bench = Bench::started();
    let mut acked = 1;
    for round in 0..10 {
        bench.fill(0.1 + 0.1 * f64::from(round));
        let to = bench.seq;
        bench.ack_all(0.2 + 0.1 * f64::from(round), acked, to);
        acked = to;
    }
    let first = bench.seq;
    let window = bench.fill(1.2);
    assert!((9..=11).contains(&window), "{window}");
    // The first packet is missing, until the bitmap no longer covers it.
    bench.hear(1.3, 9, ACK, first + 1, 0b01, 0.01);
    bench.hear(1.3, 9, ACK, first + 2, 0b011, 0.01);
    assert_ne!(bench.half.decision().why.rule, "loss: halved");
    bench.hear(1.3, 9, ACK, first + 3, 0b0111, 0.01);
    assert_eq!(bench.half.decision().why.rule, "loss: halved");
    // Another loss of the same window has no effect, and the window does not grow in between.
    for later in 5..u64::from(window) {
        bench.hear(1.31, 9, ACK, first + later, (1 << (later - 4)) - 1, 0.01);
    }
    assert_eq!(bench.free(), window / 2 + u32::from(window % 2 == 1 && bench.free() > window / 2));
    let next = bench.seq;
    bench.fill(1.32);
    let before = bench.free();
    assert_eq!(before, 0);
    bench.hear(1.42, 9, ACK, next, u32::MAX, 0.01);
    assert_eq!(bench.half.decision().why.rule, "a packet per round trip");
}

#[test]
fn a_silent_acker_times_out_and_after_two_times_is_replaced() {
    let mut bench = Bench::started();
    bench.fill(0.1);
    bench.ack_all(0.2, 1, 2);
    bench.fill(0.2);
    let timer = bench.half.wake().unwrap().at;
    assert!((s(0.39)..s(0.55)).contains(&timer), "{timer}");
    bench.half.on_timer(timer);
    // One packet again; the next timeout takes twice as long.
    assert_eq!((bench.free(), bench.acker()), (1, Some(9)));
    let sent = bench.send(1.0);
    let again = bench.half.wake().unwrap().at;
    assert_within(again.since(s(1.0)).as_secs_f64(), 2.0 * timer.since(s(0.2)).as_secs_f64(), 0.01);
    bench.half.on_timer(again);
    assert_eq!((bench.free(), bench.acker()), (1, None));
    assert_eq!(bench.flags(), (0, 1));
    // The receiver that answers is the next acker.
    bench.send(3.0);
    bench.hear(3.1, 7, REPORT, sent + 1, 0, 0.5);
    assert_eq!((bench.acker(), bench.free()), (Some(7), 1));
}

#[test]
fn a_receiver_takes_over_when_its_throughput_is_below_three_quarters_of_the_acker_s() {
    // With equal loss M is proportional to the round-trip time, so 4/3 is the limit.
    for (ms, takes) in [(100, false), (130, false), (136, true)] {
        let mut bench = Bench::started();
        bench.send(0.1);
        bench.hear(0.2, 9, ACK, 1, u32::MAX, 0.01);
        bench.hear_after(0.25, Span::millis(ms), 8, REPORT, 1, 0, 0.01);
        assert_eq!(bench.acker(), Some(if takes { 8 } else { 9 }), "{ms} ms");
    }
    // A receiver without loss never takes over, at any round-trip time. Against an acker without loss any loss does.
    let mut bench = Bench::started();
    bench.hear_after(2.0, Span::secs(1), 8, REPORT, 0, 0, 0.0);
    assert_eq!(bench.acker(), Some(9));
    bench.hear_after(2.0, Span::millis(10), 7, REPORT, 0, 0, 0.001);
    assert_eq!(bench.acker(), Some(7));
    // With the square root alone, a difference in loss has less weight.
    for (rank, takes) in [("full", true), ("sqrt", false)] {
        let mut bench = Bench::with(&[("rank", Given::Text(rank.into()))]);
        bench.send(0.0);
        bench.hear(0.1, 9, REPORT, 0, 0, 0.05);
        bench.hear(0.1, 8, REPORT, 0, 0, 0.08);
        assert_eq!(bench.acker(), Some(if takes { 8 } else { 9 }), "{rank}");
    }
}

#[test]
fn an_acker_that_leaves_says_so_and_the_window_opens_for_a_question() {
    let mut bench = Bench::started();
    bench.fill(0.1);
    assert_eq!(bench.free(), 0);
    bench.hear(0.2, 9, LEAVE, 1, 0, 0.01);
    assert_eq!(bench.acker(), None);
    assert!(bench.free() >= 1);
    assert_eq!(bench.flags(), (0, 1));
}

#[test]
fn acknowledgments_may_come_out_of_order_while_the_acker_changes() {
    let mut bench = Bench::started();
    let mut acked = 1;
    for round in 0..6 {
        bench.fill(0.1 + 0.1 * f64::from(round));
        let to = bench.seq;
        bench.ack_all(0.2 + 0.1 * f64::from(round), acked, to);
        acked = to;
    }
    let first = bench.seq;
    let n = u64::from(bench.fill(0.9));
    bench.hear_after(1.0, R * 2, 8, REPORT, first, 0, 0.02);
    assert_eq!(bench.acker(), Some(8));
    // The old acker still acknowledges the packets that name it, newest first.
    for lead in (first..first + n).rev() {
        bench.hear(1.05, 9, ACK, lead, 1, 0.01);
    }
    // All packets have arrived: nothing was lost, although some were reordered.
    assert!(bench.free() >= u32::try_from(n).unwrap() / 2, "{} of {n}", bench.free());
    assert_eq!(bench.acker(), Some(8));
}

#[test]
fn a_receiver_that_joined_after_the_sequence_number_s_wrap_is_understood() {
    let mut bench = Bench::with(&[]);
    bench.seq = 65_530;
    for round in 0..12 {
        let at = 0.1 * f64::from(round);
        let from = bench.seq;
        bench.fill(at);
        if round == 0 {
            bench.hear(0.1, 9, REPORT, 65_530, 0, 0.0);
        }
        for lead in from..bench.seq {
            // The receiver only knows the low 16 bits.
            bench.hear(at + 0.1, 9, ACK, lead & 0xffff, u32::MAX, 0.01);
        }
    }
    assert!(bench.seq > 65_536 + 20 && bench.free() > 5, "{} {}", bench.seq, bench.free());
}

/// Returns the packets per second at i.i.d. loss and a round-trip time of 100 ms.
fn speed(loss: f64) -> (f64, usize) {
    let mut plan = Plan::new("pgmcc", Path::clean(R).losing(Loss::Bernoulli(loss)));
    plan.cap = Rate::mbps(1_000);
    let mut world = plan.build();
    world.run_until(s(400.0));
    let stalls = world.decisions.iter().filter(|d| d.decision.why.rule == "time-out").count();
    (world.sent_rate(s(20.0), s(400.0)).as_bps_f64() / 8_000.0, stalls)
}

#[test]
fn at_random_loss_it_is_as_fast_as_tcp_s_square_root_law_and_does_not_stall() {
    // √(3/2) / (R √p) is 387, 122 and 71 packets per second. At 3 % the window is mostly below ssthresh and doubles.
    for (loss, low, high, most) in [(0.001, 330.0, 430.0, 0), (0.01, 105.0, 140.0, 2), (0.03, 64.0, 112.0, 8)] {
        let (packets, stalls) = speed(loss);
        assert!((low..high).contains(&packets), "{packets} at {loss}");
        assert!(stalls <= most, "{stalls} time-outs at {loss}");
    }
}

#[test]
fn in_flight_is_never_more_than_the_window_when_a_packet_leaves() {
    let mut world = Plan::new("pgmcc", Path::clean(R).bottleneck(Rate::mbps(1), 12)).build();
    world.run_until(s(60.0));
    // The promise is checked for every packet. It has a margin for packets whose loss is not detected yet.
    let within = world.sender.checks()[0];
    assert_eq!((within.promise.id, within.broken), ("pgmcc.within-window", 0));
    assert_eq!(within.checked, world.sent.len() as u64);
    let used = world.received_rate(0, s(20.0), s(60.0)).ratio(Rate::mbps(1));
    assert!((0.85..=1.001).contains(&used), "{used}");
    let loss = world.loss(0, s(20.0), s(59.0));
    assert!((0.0005..0.02).contains(&loss), "{loss}");
}

#[test]
fn the_loss_filter_forgets_in_131_packets() {
    let plan = Plan::new("pgmcc", Path::clean(R));
    let mut half = Chosen::shared("pgmcc", Mode::Repaired, &[]).unwrap().receiver(&plan.setup(ReceiverId(9), "r"));
    let mut arrive = |seq: u64| {
        let sent = PeerTime::from_nanos(seq as i64 * 1_000_000);
        let at = Time::ZERO + Span::millis(seq);
        let edge = FrameEdge::default();
        half.on_arrival(&Arrival {
            at,
            seq,
            size: S,
            sent,
            sampled: sent,
            edge,
            ecn: Ecn::NotEct,
            notice: &[],
            buffer: None,
        });
        half.view().loss.unwrap_or_default()
    };
    arrive(0);
    let a: f64 = 500.0 / 65_536.0;
    assert_within(arrive(2), a * (1.0 - a), 1e-9);
    let mut last = 0.0;
    for seq in 3..134 {
        last = arrive(seq);
    }
    assert_within(last, a * libm::exp(-1.0), 0.02);
}

#[test]
fn the_acker_answers_each_packet_others_only_what_they_miss() {
    let plan = Plan::new("pgmcc", Path::clean(R));
    for (me, want) in [(9, vec![2, 2, 2, 2, 2]), (8, vec![1])] {
        let mut half: Box<dyn ReceiverHalf> =
            Chosen::shared("pgmcc", Mode::Repaired, &[]).unwrap().receiver(&plan.setup(ReceiverId(me), "r"));
        let mut seen = Vec::new();
        let mut bitmaps = Vec::new();
        for seq in [10, 11, 13, 14, 15] {
            let at = Time::ZERO + Span::millis(seq * 10);
            let sent = PeerTime::from_nanos(at.as_nanos() as i64);
            let edge = FrameEdge::default();
            let notice = [0, 0, 0, 9, 2];
            half.on_arrival(&Arrival {
                at,
                seq,
                size: S,
                sent,
                sampled: sent,
                edge,
                ecn: Ecn::NotEct,
                notice: &notice,
                buffer: None,
            });
            while let Due::At(wake) = half.due() {
                if wake.at > at {
                    break;
                }
                let slot = Slot { now: at, expected: 1, lost: 0, members: 2, interval: R, rtcp_share: 0.0 };
                let Reply::Body(body) = half.report(&slot) else { continue };
                seen.push(body.subtype);
                bitmaps.push(u32::from_be_bytes(body.bytes[4..8].try_into().unwrap()));
            }
        }
        assert_eq!(seen, want);
        if me == 9 {
            assert_eq!(bitmaps, [0b1, 0b11, 0b1101, 0b1_1011, 0b11_0111]);
        } else {
            assert_eq!(bitmaps, [0]);
        }
    }
}

/// A receiver in a group misses packet 1 at 1 ms. Returns its reports in the next two seconds.
fn missed(mode: Mode, then: impl Fn(&mut dyn ReceiverHalf, Time)) -> Vec<Time> {
    let plan = Plan { receivers: 3, ..Plan::new("pgmcc", Path::clean(R)) };
    let mut half = Chosen::shared("pgmcc", mode, &[]).unwrap().receiver(&plan.setup(ReceiverId(8), "r"));
    let mut said = Vec::new();
    for ms in 0..2_000 {
        let at = Time::ZERO + Span::millis(ms);
        if ms == 0 || ms == 2 {
            half.on_arrival(&packet(ms, at, &[0, 0, 0, 9, 2]));
        }
        if ms == 3 {
            then(half.as_mut(), at);
        }
        while let Due::At(wake) = half.due() {
            if wake.at > at {
                break;
            }
            let slot = Slot { now: at, expected: 1, lost: 0, members: 3, interval: R, rtcp_share: 0.0 };
            if half.report(&slot) != Reply::Suppress {
                said.push(at);
            }
        }
    }
    said
}

fn packet(seq: u64, at: Time, notice: &[u8]) -> Arrival<'_> {
    let sent = PeerTime::from_nanos(at.as_nanos() as i64);
    let edge = FrameEdge::default();
    Arrival { at, seq, size: S, sent, sampled: sent, edge, ecn: Ecn::NotEct, notice, buffer: None }
}

#[test]
fn a_missing_packet_is_told_after_a_random_time_unless_a_loss_as_large_is_heard_first() {
    let alone = missed(Mode::Repaired, |_, _| {});
    assert_eq!(alone.len(), 1);
    assert!((s(0.002)..=s(0.502)).contains(&alone[0]), "{:?}", alone[0]);
    assert_eq!(missed(Mode::Paper, |_, _| {}), [s(0.002)], "ASMP's paper assumes no suppression");

    let overheard = |loss: f32| {
        let report = body(REPORT, 1, 0, loss, Stamp::of(s(0.0)));
        missed(Mode::Repaired, |half, at| half.on_overheard(&Overheard { at, from: ReceiverId(7), body: &report }))
    };
    let confirmed = |loss: f32| {
        let notice = [&[0, 0, 0, 9, 2, 77][..], &loss.to_be_bytes()].concat();
        missed(Mode::Repaired, |half, at| half.on_arrival(&packet(3, at, &notice)))
    };
    // The receiver's own loss is 500/65536 (0.0076), one packet after the loss.
    assert_eq!((overheard(0.02).len(), confirmed(0.02).len()), (0, 0));
    assert_eq!((overheard(0.005).len(), confirmed(0.005).len()), (1, 1));
}

#[test]
fn a_group_s_reports_are_confirmed_in_the_next_packet_and_on_paper_not() {
    for (mode, length) in [(Mode::Repaired, 10), (Mode::Paper, 5)] {
        let plan = Plan { receivers: 3, mode, ..Plan::new("pgmcc", Path::clean(R)) };
        let half = Chosen::shared("pgmcc", mode, &[]).unwrap().sender(&plan.setup(ReceiverId(1), "sender"));
        let mut bench = Bench { half, seq: 0 };
        bench.send(0.0);
        for (from, loss) in [(9, 0.0), (8, 0.25), (7, 0.125)] {
            bench.hear(0.1, from, REPORT, 0, 0, loss);
        }
        let departing = Departing { at: s(0.1), seq: 1, size: S, edge: FrameEdge::default() };
        let notice = bench.half.notice(&departing);
        assert_eq!(notice.bytes().len(), length);
        if mode == Mode::Repaired {
            assert_eq!(notice.bytes()[5..], [0, 0x3e, 0x80, 0, 0], "one confirmation, of the largest loss");
            bench.hear(0.2, 7, REPORT, 0, 0, 0.125);
            assert_eq!(bench.half.notice(&departing).bytes()[5..], [1, 0x3e, 0, 0, 0]);
        }
    }
}

#[test]
fn reports_of_missing_packets_do_not_grow_with_the_group() {
    let naks = |mode: Mode, receivers: usize| {
        let mut plan = Plan { receivers, mode, ..Plan::new("pgmcc", Path::clean(Span::millis(50))) };
        plan.path.loss = vec![Loss::Bernoulli(0.01); receivers];
        let mut world = plan.build();
        world.run_until(s(6.0));
        world.reports.iter().filter(|r| r.2.as_ref().is_some_and(|b| b.subtype == REPORT)).count() as f64 / 6.0
    };
    let (few, many) = (naks(Mode::Repaired, 8), naks(Mode::Repaired, 80));
    assert!((1.0..25.0).contains(&few) && (3.0..50.0).contains(&many), "{few} and {many} per second");
    let (few, many) = (naks(Mode::Paper, 8), naks(Mode::Paper, 80));
    assert!((5.0..50.0).contains(&few) && (75.0..600.0).contains(&many), "on paper {few} and {many} per second");
}

fn group(receivers: usize, path: Path) -> World {
    let mut plan = Plan::new("pgmcc", path);
    plan.receivers = receivers;
    plan.build()
}

#[test]
fn in_a_group_the_worst_receiver_is_the_acker_and_few_answer_a_question() {
    let mut path = Path::clean(R);
    path.loss = [0.001, 0.001, 0.03, 0.001].map(Loss::Bernoulli).to_vec();
    path.overhear = Some(Span::millis(20));
    let mut world = group(4, path);
    world.run_until(s(60.0));
    let worst = world.members[2].id;
    let by: Vec<_> = world.decisions.iter().filter(|d| d.at > s(20.0)).map(|d| d.decision.why.by).collect();
    let share = by.iter().filter(|id| **id == Some(worst)).count() as f64 / by.len() as f64;
    assert!(share > 0.9, "{share}");
    assert_between(world.sent_rate(s(20.0), s(60.0)), Rate::kbps(500), Rate::kbps(950));

    // All fifty receivers are asked by the first packet, which names no acker, and one or a few answer.
    let mut path = Path::clean(R);
    path.overhear = Some(Span::millis(5));
    let mut world = group(50, path);
    world.run_until(s(0.3));
    let answers = world.reports.iter().filter(|r| r.2.as_ref().is_some_and(|b| b.subtype == REPORT)).count();
    assert!((1..=12).contains(&answers), "{answers}");
}

#[test]
fn the_worst_receiver_s_going_frees_the_others_within_seconds() {
    for silently in [false, true] {
        let mut path = Path::clean(R).bottleneck(Rate::mbps(2), 30);
        path.loss = vec![Loss::None, Loss::Bernoulli(0.05)];
        let mut world = group(2, path);
        world.run_until(s(30.0));
        let before = world.sent_rate(s(10.0), s(30.0));
        assert_between(before, Rate::kbps(350), Rate::kbps(850));
        world.leave(1, silently);
        world.run_until(s(60.0));
        assert_between(world.sent_rate(s(45.0), s(60.0)), Rate::kbps(1_600), Rate::kbps(2_050));
    }
}

#[test]
fn an_application_that_sends_little_does_not_open_the_window_and_on_paper_does() {
    for (mode, low, high) in [(Mode::Repaired, 100, 700), (Mode::Paper, 2_000, 100_000)] {
        let mut plan = Plan::new("pgmcc", Path::clean(R));
        (plan.mode, plan.source) = (mode, Source::Rate(Rate::kbps(200)));
        let mut world = plan.build();
        world.run_until(s(60.0));
        assert_between(world.sent_rate(s(30.0), s(60.0)), Rate::kbps(190), Rate::kbps(210));
        assert_between(world.target(), Rate::kbps(low), Rate::kbps(high));
    }
}

#[test]
fn silence_lets_the_rate_fall_to_the_floor_and_feedback_lifts_it_again() {
    let mut world = Plan::new("pgmcc", Path::clean(R).bottleneck(Rate::mbps(1), 20)).build();
    world.run_until(s(20.0));
    world.path.back_loss = Loss::All;
    world.run_for(Span::secs(3));
    assert!(world.target() <= Rate::kbps(40), "{}", world.target());
    world.run_for(Span::secs(200));
    assert_eq!((world.target(), world.sender.decision().limit), (Rate::kbps(1), Limit::Floor));
    world.path.back_loss = Loss::None;
    world.run_for(Span::secs(100));
    assert_between(world.target(), Rate::kbps(600), Rate::kbps(1_400));
}

#[test]
fn the_clocks_of_the_ends_do_not_matter() {
    let run = |sender: Span, receiver: Span| {
        let mut plan = Plan::new("pgmcc", Path::clean(R).bottleneck(Rate::mbps(1), 30));
        (plan.sender_ahead, plan.receivers_ahead) = (sender, receiver);
        let mut world = plan.build();
        world.run_until(s(30.0));
        world.sent
    };
    let same = run(Span::ZERO, Span::ZERO);
    assert!(same.len() > 1_000);
    assert!(run(Span::ZERO, Span::secs(3_600)) == same);
    // The send-time stamp wraps after 16384 s.
    assert!(run(Span::secs(16_370), Span::secs(60)).len().abs_diff(same.len()) < 20);
}

#[test]
fn what_is_not_a_report_changes_nothing() {
    let good = body(ACK, 1, 1, 0.01, Stamp::of(s(0.1)));
    let mut bad = vec![
        Body { subtype: 0, ..good.clone() },
        Body { subtype: 4, ..good.clone() },
        Body { subtype: ACK, bytes: good.bytes[..12].to_vec() },
        Body { subtype: ACK, bytes: [&good.bytes[..], &[0; 4]].concat() },
    ];
    bad.extend([f32::NAN, -0.1, 1.5, f32::INFINITY].map(|loss| body(ACK, 1, 1, loss, Stamp::of(s(0.1)))));
    for wrong in bad {
        let mut bench = Bench::started();
        bench.send(0.1);
        let before = (bench.half.decision(), bench.half.wake());
        let from = ReceiverId(9);
        let report =
            Report { at: s(0.2), from, rtt: None, reception: None, body: Some(&wrong), members: 2, packets: &[] };
        bench.half.on_report(&report);
        assert!((bench.half.decision(), bench.half.wake()) == before, "{wrong:?}");
    }
}

#[test]
fn alone_on_a_link_it_fills_what_its_queue_allows() {
    let note: fn(&World) -> String = |world| {
        let stalls = world.decisions.iter().filter(|d| d.decision.why.rule == "time-out").count();
        format!("{stalls}")
    };
    let lossy = [(1_000, 160), (2_000, 50)];
    let table = table("pgmcc", &[], &lossy, (20.0, 80.0), ("stalls", note), |used, loss, rtt| {
        assert!((0.2..=1.001).contains(&used), "{rtt}: {used}");
        assert!(loss < 0.06, "{rtt}: {loss}");
    });
    assert_snapshot("pgmcc.txt", &table);
    let page = include_str!("../../../../docs/controllers/pgmcc.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

both_halves_stand!("pgmcc", 5);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path()) {
        world_stands("pgmcc", &path, 3.0)?;
    }
}

/// After an outage, the first report elects an acker. If its first acknowledgement is lost, the next packet is sent
/// after the time-out of a new acker, at most 3 s, and not after the doubled time-outs of the acker before.
#[test]
fn a_new_acker_does_not_inherit_the_time_outs_of_the_acker_before() {
    let mut bench = Bench::started();
    bench.send(0.2);
    let mut now = s(0.2);
    while now < s(40.0) {
        match bench.half.wake() {
            Some(wake) if wake.at < s(40.0) => now = wake.at,
            _ => break,
        }
        bench.half.on_timer(now);
        if bench.free() > 0 {
            bench.send(now.since(Time::ZERO).as_secs_f64());
        }
    }
    bench.hear(40.0, 10, REPORT, 0, 0, 0.01);
    bench.send(40.0);
    let wake = bench.half.wake().unwrap().at;
    assert!(wake <= s(43.1), "{:?}", wake.since(s(40.0)));
}
