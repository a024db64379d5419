//! `asmp`: its expected values, its invariants, and results in a small world.

#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::group;

use group::{Clock, PACKET, Path, World, between};
use proptest::prelude::*;
use std::fmt::Write;
use std::sync::Arc;
use steadycast_control::equation::{LossRate, throughput_full};
use steadycast_control::registry::{Chosen, Factory, Given};
use steadycast_control::{
    Announcement, Arrival, Body, Departing, Due, FrameEdge, Leave, Limit, Mode, Overheard, ReceiverHalf, ReceiverId,
    Reception, Reply, Report, SenderHalf, Sent, Setup, Slot,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};

fn text(t: &str) -> Given {
    Given::Text(t.into())
}

fn factory(mode: Mode, given: &[(&str, Given)]) -> Arc<dyn Factory> {
    let given: Vec<_> = given.iter().map(|(n, g)| ((*n).to_owned(), g.clone())).collect();
    Chosen::shared("asmp", mode, &given).unwrap()
}

fn setup(packet: u64) -> Setup {
    Setup {
        packet: Bytes::new(packet),
        session_bandwidth: Rate::mbps(2),
        group: true,
        id: ReceiverId(7),
        ..Setup::unicast(Rate::kbps(10), Rate::mbps(20), Seed(3).part("half"))
    }
}

fn sec(s: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(s + 100.0)
}

/// Builds a report in its wire format.
fn claim(rate: Rate, loss: f32, rtt: Span, flags: u8) -> Body {
    let mut bytes = Vec::new();
    bytes.extend((rate.as_bytes_per_s() as f32).to_be_bytes());
    bytes.extend(loss.to_be_bytes());
    bytes.extend(((rtt.as_nanos() / 1_000) as u32).to_be_bytes());
    bytes.extend([flags, 0, 0, 0]);
    Body { subtype: 1, bytes }
}

fn claimed(reply: Reply) -> Rate {
    let Reply::Body(body) = reply else { panic!("{reply:?}") };
    Rate::from_bytes_per_s(f64::from(f32::from_be_bytes(body.bytes[..4].try_into().unwrap())))
}

fn announcement(rate: Rate, rtts: &[(u32, Span)]) -> Body {
    let mut bytes = Vec::new();
    bytes.extend((rate.as_bytes_per_s() as f32).to_be_bytes());
    bytes.extend([rtts.len() as u8, 0, 0, 0]);
    for (id, rtt) in rtts {
        bytes.extend(id.to_be_bytes());
        bytes.extend(((rtt.as_nanos() / 1_000) as u32).to_be_bytes());
    }
    Body { subtype: 2, bytes }
}

/// A receiver with hand-written arrivals: 100 packets per second, one report per second.
struct Bench {
    half: Box<dyn ReceiverHalf>,
    now: f64,
    packet: u64,
    seq: u64,
    delay_ms: f64,
    /// The rate in the notices, which stands for the send rate.
    told: Option<Rate>,
}

impl Bench {
    fn new(mode: Mode, packet: u64, rtt: Span, rate: Rate, given: &[(&str, Given)]) -> Self {
        let half = factory(mode, given).receiver(&setup(packet));
        let mut bench = Self { half, now: 0.0, packet, seq: 0, delay_ms: 20.0, told: None };
        bench.second(0.0);
        let body = announcement(rate, &[(3, Span::secs(3)), (7, rtt)]);
        bench.half.on_announce(&Announcement { at: sec(bench.now), body: &body });
        bench
    }

    /// Delivers packets for a second, with a delay that grows by `growth_ms`.
    fn second(&mut self, growth_ms: f64) {
        let notice = self.told.map(|rate| ((rate.as_bps() / 100) as u32).to_be_bytes());
        let notice = notice.as_ref().map_or(&[][..], |word| &word[1..]);
        for _ in 0..100 {
            self.now += 0.01;
            self.seq += 1;
            self.delay_ms += growth_ms / 100.0;
            let sent = PeerTime::from_nanos(((self.now + 100.0) * 1e9 - self.delay_ms * 1e6) as i64);
            self.half.on_arrival(&Arrival {
                at: sec(self.now),
                seq: self.seq,
                size: Bytes::new(self.packet),
                sent,
                sampled: sent,
                edge: FrameEdge { first: true, last: true },
                ecn: Ecn::NotEct,
                notice,
                buffer: None,
            });
        }
    }

    fn report(&mut self, lost: i64) -> Rate {
        claimed(self.half.report(&Slot {
            now: sec(self.now),
            expected: 100,
            lost,
            members: 2,
            interval: Span::secs(1),
            rtcp_share: 0.0,
        }))
    }

    fn next(&mut self, lost: i64, growth_ms: f64) -> Rate {
        self.second(growth_ms);
        self.report(lost)
    }
}

const NO_RAMP: fn() -> (&'static str, Given) = || ("start", text("none"));

#[test]
fn without_loss_a_report_adds_gamma_times_a_packet_per_round_trip() {
    let kbps = |rate: Rate| rate.as_bps_f64() / 1e3;
    for (packet, rtt, whole) in [(1018, 40, 203.6), (1000, 100, 80.0)] {
        let bench = |smooth| {
            let rate = Rate::mbps(1);
            let given = [NO_RAMP(), ("smooth", Given::Switch(smooth))];
            let mut bench = Bench::new(Mode::Repaired, packet, Span::millis(rtt), rate, &given);
            let first = bench.report(0);
            // The sender follows the report, so the send rate limits nothing.
            bench.told = Some(first);
            let unloaded = bench.next(0, 0.0);
            bench.told = Some(unloaded);
            let congested = bench.next(0, 30.0);
            (kbps(first - rate), kbps(unloaded - first), kbps(congested - unloaded))
        };
        let (first, second, _) = bench(false);
        between(first, whole - 0.1, whole + 0.1);
        between(second, whole - 0.1, whole + 0.1);
        let (first, unloaded, congested) = bench(true);
        between(first, 0.9 * whole - 0.1, 0.9 * whole + 0.1);
        between(unloaded, 0.9 * whole - 0.1, 0.9 * whole + 0.1);
        // The growing delay has lengthened the round trip, so P/RTT is smaller by then.
        let rtt = rtt as f64;
        between(congested, 0.2 * whole * rtt / (rtt + 16.0), 0.2 * whole * rtt / (rtt + 11.0));
    }
}

#[test]
fn with_loss_the_equation_decides_and_decreases_are_damped_only_as_printed() {
    let rtt = Span::millis(100);
    let fair = throughput_full(PACKET, rtt, LossRate::new(0.05).unwrap(), rtt * 4, 1.0).as_bps_f64();
    let down = |mode| {
        // The only interval had losses, so the fraction is known exactly.
        let given = [NO_RAMP(), ("initial_rate", text("800kbps")), ("loss_mode", text("fraction"))];
        let mut bench = Bench::new(mode, 1000, rtt, Rate::kbps(800), &given);
        bench.second(20.0);
        bench.report(5).as_bps_f64()
    };
    // The state is congested, because the delay has grown by 20 ms in the second. The mean of the packets lengthens the
    // round trip.
    let repaired = down(Mode::Repaired);
    between(repaired, 0.9 * 0.85 * fair + 0.1 * 800e3, 0.9 * fair + 0.1 * 800e3);
    let printed = down(Mode::Paper);
    // In paper mode the round-trip time grows in proportion to the delay, which doubles at most.
    between(printed, 0.2 * 0.5 * fair + 0.8 * 800e3, 0.2 * fair + 0.8 * 800e3);
    assert!(printed > repaired + 200e3, "the printed form takes a fifth of the step only: {printed} and {repaired}");
}

#[test]
fn little_loss_lets_the_rate_jump_only_as_printed() {
    let rtt = Span::millis(40);
    let up = |mode| {
        let given = [NO_RAMP(), ("initial_rate", text("800kbps"))];
        let mut bench = Bench::new(mode, 1000, rtt, Rate::kbps(800), &given);
        for _ in 0..7 {
            bench.next(0, 0.0);
        }
        let before = bench.next(0, 0.0);
        (bench.next(1, 0.0) - before).as_bps_f64()
    };
    between(up(Mode::Repaired), 0.0, PACKET.per(rtt).as_bps_f64() * 1.001);
    between(up(Mode::Paper), 2.0 * PACKET.per(rtt).as_bps_f64(), 20e6);
}

#[test]
fn an_idle_receiver_stays_a_packet_per_round_trip_above_what_is_sent() {
    let rtt = Span::millis(100);
    for (mode, low, high) in [(Mode::Repaired, 876e3, 881e3), (Mode::Paper, 1_456e3, 3_752e3)] {
        let given = [NO_RAMP(), ("initial_rate", text("800kbps"))];
        let mut bench = Bench::new(mode, 1000, rtt, Rate::kbps(800), &given);
        let mut rate = bench.report(0);
        for _ in 0..40 {
            rate = bench.next(0, 0.0);
        }
        // In paper mode a constant delay can be in either state: 41 reports of 0.2 to 0.9 packets per round trip each.
        between(rate.as_bps_f64(), low, high);
    }
}

#[test]
fn before_its_round_trip_is_known_a_receiver_only_doubles_what_arrives_or_says_no_rate() {
    let replies = replies_without_a_round_trip(&[]);
    // The start phase requests at most twice the receive rate of 80 kb/s, plus a packet.
    for reply in &replies[..2] {
        between(claimed(reply.clone()).as_bps_f64(), 80e3, 170e3);
    }
    let replies = replies_without_a_round_trip(&[NO_RAMP()]);
    assert_eq!(replies[..2], [Reply::Plain, Reply::Plain]);
    // The sender sends neither announcements nor notices: the rate starts from the receive rate, at the assumed 500 ms.
    between(claimed(replies[2].clone()).as_bps_f64(), 80e3, 170e3);
    // Without arrivals there is no rate to report.
    assert_eq!(replies[3], Reply::Plain);
}

/// Reports after each of three seconds with ten packets, and after one second without.
fn replies_without_a_round_trip(given: &[(&str, Given)]) -> Vec<Reply> {
    let mut half = factory(Mode::Repaired, given).receiver(&setup(1000));
    let (mut bench, slot) =
        (0, |now| Slot { now, expected: 10, lost: 0, members: 2, interval: Span::secs(1), rtcp_share: 0.0 });
    let mut replies = Vec::new();
    for second in 0..3 {
        for _ in 0..10 {
            bench += 1;
            let at = sec(f64::from(bench) * 0.1);
            half.on_arrival(&Arrival {
                at,
                seq: bench as u64,
                size: PACKET,
                sent: PeerTime::from_nanos(at.as_nanos() as i64),
                sampled: PeerTime::from_nanos(at.as_nanos() as i64),
                edge: FrameEdge::default(),
                ecn: Ecn::NotEct,
                notice: &[0, 0, 0],
                buffer: None,
            });
        }
        replies.push(half.report(&slot(sec(f64::from(second + 1)))));
    }
    replies.push(half.report(&Slot { expected: 0, ..slot(sec(4.0)) }));
    replies
}

/// A report interval of 20 ms contains one frame or none. The receive rate has to be measured over a longer time, or
/// the rate of an encoder-limited source oscillates.
#[test]
fn frames_far_apart_neither_cut_the_rate_nor_let_it_count_up() {
    let mut half = factory(Mode::Repaired, &[]).receiver(&setup(1000));
    let rtt = announcement(Rate::kbps(400), &[(7, Span::millis(20))]);
    let (mut seq, mut told, mut rates) = (0, Rate::kbps(400), Vec::new());
    for step in 0..1_500u32 {
        let now = sec(f64::from(step) * 0.02);
        if step % 50 == 0 {
            half.on_announce(&Announcement { at: now, body: &rtt });
        }
        // 25 frames a second, of twelve packets or of one: 384 kb/s in total.
        let packets = if step % 2 == 1 {
            0
        } else if step % 24 == 0 {
            12
        } else {
            1
        };
        for n in 0..packets {
            seq += 1;
            let units = told.as_bps() / 100;
            half.on_arrival(&Arrival {
                at: now,
                seq,
                size: PACKET,
                sent: PeerTime::from_nanos(now.as_nanos() as i64),
                sampled: PeerTime::from_nanos(now.as_nanos() as i64),
                edge: FrameEdge { first: n == 0, last: n + 1 == packets },
                ecn: Ecn::NotEct,
                notice: &[(units >> 16) as u8, (units >> 8) as u8, units as u8],
                buffer: None,
            });
        }
        let reply = half.report(&Slot {
            now: now + Span::millis(1),
            expected: packets,
            lost: 0,
            members: 2,
            interval: Span::millis(20),
            rtcp_share: 0.0,
        });
        if let Reply::Body(_) = reply {
            told = claimed(reply);
            rates.push((now, told.as_bps_f64()));
        }
    }
    // Twice the higher of the rates over a second and over a quarter of a second, plus a packet per round trip.
    for (_, rate) in rates.iter().filter(|(at, _)| *at > sec(3.0)) {
        between(*rate, 384e3, 1_700e3);
    }
}

fn sender(mode: Mode, given: &[(&str, Given)]) -> Box<dyn SenderHalf> {
    factory(mode, given).sender(&setup(1000))
}

fn tell(sender: &mut dyn SenderHalf, at: f64, from: u32, body: Option<&Body>) {
    let reception =
        Reception { expected: 100, lost: 0, fraction: 0.0, highest: (at * 100.0) as u64, jitter: Span::ZERO };
    sender.on_report(&Report {
        at: sec(at),
        from: ReceiverId(from),
        rtt: Some(Span::millis(u64::from(from))),
        reception: Some(reception),
        body,
        members: 3,
        packets: &[],
    });
}

fn advance(sender: &mut dyn SenderHalf, to: f64) {
    for _ in 0..1_000 {
        match sender.wake() {
            Some(wake) if wake.at <= sec(to) => sender.on_timer(wake.at),
            _ => return,
        }
    }
    panic!("wakes without end");
}

#[test]
fn the_least_rate_counts_and_the_one_behind_it_is_named() {
    let mut sender = sender(Mode::Repaired, &[]);
    assert_eq!(sender.decision().target, Rate::kbps(150));
    assert_eq!(sender.decision().limit, Limit::Start);
    for (from, rate) in [(1, 900), (2, 400), (3, 700)] {
        tell(sender.as_mut(), 1.0, from, Some(&claim(Rate::kbps(rate), 0.02, Span::millis(80), 0)));
    }
    let decision = sender.decision();
    assert_eq!((decision.target, decision.pacing), (Rate::kbps(400), Rate::kbps(400)));
    assert_eq!((decision.limit, decision.why.by), (Limit::Network, Some(ReceiverId(2))));
    assert_eq!(decision.why.rtt, Some(Span::millis(80)));
    // The lowest receiver's new report is higher, so the next lowest counts immediately.
    tell(sender.as_mut(), 2.0, 2, Some(&claim(Rate::kbps(2_000), 0.0, Span::millis(80), 0)));
    assert_eq!(sender.decision().why.by, Some(ReceiverId(3)));
    sender.on_leave(sec(2.5), ReceiverId(3), Leave::Silent);
    assert_eq!((sender.decision().target, sender.decision().why.by), (Rate::kbps(900), Some(ReceiverId(1))));
}

#[test]
fn a_receiver_that_dies_at_the_minimum_is_gone_after_five_intervals() {
    let mut sender = sender(Mode::Repaired, &[]);
    for second in 0..20 {
        let at = f64::from(second);
        tell(sender.as_mut(), at, 1, Some(&claim(Rate::kbps(900), 0.0, Span::millis(80), 0)));
        if second < 5 {
            tell(sender.as_mut(), at, 2, Some(&claim(Rate::kbps(300), 0.0, Span::millis(80), 0)));
        }
        advance(sender.as_mut(), at + 0.9);
        // The last report was at 4 s, with one report per second.
        assert_eq!(sender.decision().target, Rate::kbps(if second < 9 { 300 } else { 900 }), "second {second}");
    }
}

#[test]
fn silence_of_everybody_halves_the_rate_every_interval_down_to_the_floor_except_as_printed() {
    for (mode, after) in [(Mode::Repaired, 10), (Mode::Paper, 800)] {
        let mut sender = sender(mode, &[]);
        for second in 0..5 {
            tell(sender.as_mut(), f64::from(second), 1, Some(&claim(Rate::kbps(800), 0.0, Span::millis(80), 0)));
        }
        advance(sender.as_mut(), 8.9);
        assert_eq!(sender.decision().target, Rate::kbps(800), "still alive");
        advance(sender.as_mut(), 9.1);
        let expected = if mode == Mode::Repaired { 400 } else { 800 };
        assert_eq!(sender.decision().target, Rate::kbps(expected));
        advance(sender.as_mut(), 60.0);
        assert_eq!(sender.decision().target, Rate::kbps(after));
        tell(sender.as_mut(), 61.0, 1, Some(&claim(Rate::kbps(100), 0.0, Span::millis(80), 0)));
        assert_eq!(sender.decision().target, Rate::kbps(100));
    }
}

#[test]
fn after_the_last_leave_the_rate_is_held_for_four_intervals() {
    let mut sender = sender(Mode::Repaired, &[]);
    tell(sender.as_mut(), 0.0, 1, Some(&claim(Rate::kbps(800), 0.0, Span::millis(80), 0)));
    sender.on_leave(sec(0.5), ReceiverId(1), Leave::Silent);
    advance(sender.as_mut(), 3.9);
    assert_eq!(sender.decision().target, Rate::kbps(800));
    advance(sender.as_mut(), 5.5);
    assert_eq!(sender.decision().target, Rate::kbps(200));
}

#[test]
fn after_the_last_bye_the_rate_is_halved_at_once_and_nobody_says_that_the_network_limits() {
    let mut sender = sender(Mode::Repaired, &[]);
    for id in [1, 2] {
        tell(sender.as_mut(), 0.0, id, Some(&claim(Rate::kbps(800), 0.0, Span::millis(80), 0)));
    }
    sender.on_leave(sec(0.5), ReceiverId(1), Leave::Bye);
    advance(sender.as_mut(), 0.6);
    assert_eq!((sender.decision().target, sender.decision().limit), (Rate::kbps(800), Limit::Network));
    sender.on_leave(sec(0.6), ReceiverId(2), Leave::Bye);
    advance(sender.as_mut(), 0.7);
    let decision = sender.decision();
    assert_eq!((decision.target, decision.limit), (Rate::kbps(400), Limit::Start));
    assert_eq!(decision.why.rule, "no receiver left");
    advance(sender.as_mut(), 3.7);
    assert!((Rate::kbps(50)..=Rate::kbps(100)).contains(&sender.decision().target), "{}", sender.decision().target);
    tell(sender.as_mut(), 4.0, 3, Some(&claim(Rate::kbps(700), 0.0, Span::millis(80), 0)));
    assert_eq!((sender.decision().target, sender.decision().limit), (Rate::kbps(700), Limit::Network));
}

#[test]
fn reports_without_a_rate_that_show_no_progress_are_silence() {
    let mut sender = sender(Mode::Repaired, &[]);
    tell(sender.as_mut(), 0.0, 1, Some(&claim(Rate::kbps(800), 0.0, Span::millis(80), 0)));
    for tenth in 0..100 {
        let at = f64::from(tenth) / 10.0;
        let reception = Reception { expected: 0, lost: 0, fraction: 0.0, highest: 0, jitter: Span::ZERO };
        let (from, rtt) = (ReceiverId(1), Some(Span::millis(50)));
        sender.on_report(&Report {
            at: sec(at),
            from,
            rtt,
            reception: Some(reception),
            body: None,
            members: 2,
            packets: &[],
        });
        advance(sender.as_mut(), at);
    }
    assert!(sender.decision().target <= Rate::kbps(50), "{}", sender.decision().target);
}

#[test]
fn an_announcement_has_thirty_one_round_trips_of_those_never_told_and_then_of_those_who_waited_longest() {
    let mut sender = sender(Mode::Repaired, &[]);
    for from in 1..=40 {
        tell(sender.as_mut(), f64::from(from) / 100.0, from, None);
    }
    // The newer measurement keeps its position. Otherwise, a receiver that reports often would never get its
    // announcement.
    tell(sender.as_mut(), 1.0, 1, None);
    let listed = |body: &Body| {
        assert_eq!(body.subtype, 2);
        assert_eq!(body.bytes.len(), 8 + 8 * usize::from(body.bytes[4]));
        let ids = body.bytes[8..].chunks(8).map(|e| u32::from_be_bytes(e[..4].try_into().unwrap()));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(listed(&sender.announce(sec(2.0)).unwrap()), (1..=31).collect::<Vec<_>>());
    // Receiver 5 has had its announcement, 41 is new.
    tell(sender.as_mut(), 2.1, 5, None);
    tell(sender.as_mut(), 2.2, 41, None);
    assert_eq!(listed(&sender.announce(sec(3.0)).unwrap()), (32..=41).chain([5]).collect::<Vec<_>>());
    assert_eq!(listed(&sender.announce(sec(4.0)).unwrap()), [0; 0]);
}

#[test]
fn one_liar_of_forty_five_drags_the_group_down_unless_the_lowest_are_skipped() {
    for (agg, low, high) in [("min", 10e3, 10e3), ("quantile", 800e3, 800e3)] {
        let mut sender = sender(Mode::Repaired, &[("agg", text(agg))]);
        for from in 1..=44 {
            tell(sender.as_mut(), 1.0, from, Some(&claim(Rate::kbps(800), 0.0, Span::millis(80), 0)));
        }
        tell(sender.as_mut(), 1.0, 45, Some(&claim(Rate::bps(8), 0.0, Span::millis(80), 0)));
        between(sender.decision().target.as_bps_f64(), low, high);
    }
}

#[test]
fn the_notice_goes_with_the_first_packet_of_a_frame() {
    let mut sender = sender(Mode::Repaired, &[]);
    let edge = |first| Departing { at: sec(0.0), seq: 1, size: PACKET, edge: FrameEdge { first, last: false } };
    assert!(sender.notice(&edge(false)).is_empty());
    let notice = sender.notice(&edge(true));
    assert_eq!((notice.id(), notice.bytes()), (6, &[0, 0x05, 0xdc][..]));
}

fn world(seed: u64, mode: Mode, given: &[(&str, Given)]) -> World {
    World::new("asmp", mode, given, seed)
}

#[test]
fn a_lossy_path_is_used_like_tcp_would() {
    for (loss, ms) in [(0.01, 50), (0.03, 50), (0.03, 25)] {
        let mut world = world(1, Mode::Repaired, &[]);
        let path = world.path(Path::ideal().loss(loss).delay(Span::millis(ms)));
        world.join(path, Clock::default());
        world.run(Span::secs(200));
        let rtt = Span::millis(2 * ms);
        let fair = throughput_full(PACKET, rtt, LossRate::new(loss).unwrap(), rtt * 4, 1.0).as_bps_f64();
        between(world.mean(50, 200) / fair, 0.75, 1.35);
    }
}

#[test]
fn the_start_phase_reaches_a_megabit_in_seconds_where_steps_take_half_a_minute() {
    let mut reached = Vec::new();
    for start in ["ramp", "none"] {
        let mut world = world(2, Mode::Repaired, &[("start", text(start))]);
        let path = world.path(Path::ideal().rate(Rate::mbps(2)).delay(Span::millis(50)));
        world.join_many(3, path);
        world.run(Span::secs(60));
        let at = world.rates.iter().find(|(_, rate)| *rate >= Rate::mbps(1)).map(|(at, _)| at.as_secs_f64()).unwrap();
        reached.push(at);
        between(world.mean(40, 60), 0.9e6, 2.1e6);
    }
    between(reached[0], 1.0, 7.0);
    between(reached[1], 10.0, 40.0);
}

#[test]
fn a_late_slow_receiver_sets_the_rate_until_it_leaves() {
    for seed in 1..=3 {
        let mut world = world(seed, Mode::Repaired, &[]).limits(Rate::kbps(10), Rate::mbps(2));
        let (fast, slow) =
            (world.path(Path::ideal().loss(0.005)), world.path(Path::ideal().rate(Rate::kbps(300)).queue(20)));
        world.join_many(4, fast);
        world.run(Span::secs(50));
        let late = world.join(slow, Clock::default());
        world.run(Span::secs(50));
        world.leave(late);
        world.run(Span::secs(50));
        let before = world.mean(30, 50);
        between(before, 900e3, 2_000e3);
        between(world.mean(65, 100), 150e3, 330e3);
        // The recovery is gradual: within 3 s of the leave the rate rises by a few packets per round trip, and after 30
        // s the recovery is complete.
        between(world.mean(100, 103), 200e3, 900e3);
        between(world.mean(130, 150) / before, 0.75, 1.3);
    }
}

#[test]
fn a_dead_minimum_receiver_is_forgotten_within_two_time_outs() {
    let mut world = world(5, Mode::Repaired, &[]).limits(Rate::kbps(10), Rate::mbps(2));
    let (fast, slow) = (world.path(Path::ideal()), world.path(Path::ideal().rate(Rate::kbps(200)).queue(20)));
    world.join_many(3, fast);
    let dying = world.join(slow, Clock::default());
    world.run(Span::secs(60));
    between(world.mean(40, 60), 80e3, 230e3);
    world.die(dying);
    world.run(Span::secs(10));
    assert_ne!(world.sender.decision().why.by, Some(world.id(dying)));
    world.run(Span::secs(30));
    between(world.mean(95, 100), 500e3, 2_000e3);
}

#[test]
fn clocks_an_hour_apart_and_drifting_change_the_throughput_by_less_than_five_percent() {
    let mean = |offset_s, ppm| {
        let mut sum = 0.0;
        for seed in 1..=4 {
            let mut world = world(seed, Mode::Repaired, &[]).limits(Rate::kbps(10), Rate::mbps(4));
            let path = world.path(Path::ideal().loss(0.01).delay(Span::millis(40)));
            for _ in 0..2 {
                world.join(path, Clock { offset_s, ppm });
            }
            world.run(Span::secs(300));
            sum += world.mean(30, 300);
        }
        sum / 4.0
    };
    let reference = mean(0, 0.0);
    for (offset_s, ppm) in [(3_600, 0.0), (-3_600, 0.0), (0, 100.0), (0, -100.0), (3_600, -100.0)] {
        between(mean(offset_s, ppm) / reference, 0.95, 1.05);
    }
}

#[test]
fn as_printed_a_drift_of_a_hundred_parts_per_million_decides_how_fast_the_rate_climbs() {
    let climbed = |mode, ppm| {
        let mut world = world(1, mode, &[NO_RAMP()]);
        let path = world.path(Path::ideal());
        world.join(path, Clock { offset_s: -CLOCKS_START, ppm });
        world.run(Span::secs(60));
        world.mean(50, 60)
    };
    // A fast clock looks like a growing queue, and reduces each step to a fifth. A slow clock reduces it to nine
    // tenths.
    between(climbed(Mode::Paper, -100.0) / climbed(Mode::Paper, 100.0), 3.0, 5.0);
    between(climbed(Mode::Repaired, -100.0) / climbed(Mode::Repaired, 100.0), 0.9, 1.1);
}

/// The world's clocks start late. A receiver whose clock is this far behind shows the sender's own time.
const CLOCKS_START: i64 = 20_000;

/// Checks `asmp.a-packet-per-report` (outside the start phase at most one packet per round trip more per report) and
/// `asmp.least-counts` (the rate is the minimum of the live receivers' rates). They are checked for every report of a
/// run with losses, a bottleneck and a leave.
#[test]
fn invariants_hold_at_every_report() {
    for seed in 1..=3 {
        let mut world = world(seed, Mode::Repaired, &[]);
        let lossy = world.path(Path::ideal().loss(0.02));
        let narrow = world.path(Path::ideal().rate(Rate::kbps(1500)).queue(30));
        world.join_many(3, lossy);
        world.join_many(3, narrow);
        world.run(Span::secs(60));
        world.leave(0);
        let left_at = world.now;
        world.run(Span::secs(60));
        let mut last: Vec<Option<(Time, Rate, bool)>> = vec![None; 6];
        let (mut checked, mut least_checked) = (0, 0);
        for step in &world.steps {
            let Some(body) = &step.body else { continue };
            let rate = claimed(Reply::Body(body.clone()));
            let rtt = Span::micros(u64::from(u32::from_be_bytes(body.bytes[8..12].try_into().unwrap())));
            let start = body.bytes[12] & 8 != 0;
            if let (Some((_, old, _)), false) = (last[step.from], start) {
                let most = old.as_bps_f64() + PACKET.per(rtt).as_bps_f64();
                assert!(rate.as_bps_f64() <= most * 1.000_01 + 10.0, "{rate} after {old}, {rtt}");
                checked += 1;
            }
            last[step.from] = Some((step.at, rate, start));
            // No receiver is silent for five intervals, except the one that has left.
            let live = last.iter().enumerate().filter(|(i, _)| *i != 0 || step.at <= left_at);
            let least = live.filter_map(|(_, l)| l.map(|(_, r, _)| r)).min().unwrap();
            assert!(step.rate.as_bps_f64() <= least.as_bps_f64() * 1.001 + 100.0, "{} above {least}", step.rate);
            assert!(step.rate.as_bps_f64() >= least.as_bps_f64() * 0.999 - 100.0, "{} below {least}", step.rate);
            least_checked += 1;
        }
        assert!(checked > 300 && least_checked > 400, "{checked} {least_checked}");
    }
}

#[test]
fn large_groups_of_equal_receivers_send_a_few_reports_per_round() {
    let mut world = world(3, Mode::Repaired, &[("t_suspend", text("500ms")), ("t_random", text("2s"))]);
    world.overhear = true;
    let path = world.path(Path::ideal().rate(Rate::mbps(1)).queue(30));
    let members = world.join_many(100, path);
    world.run(Span::secs(30));
    let before: u64 = members.iter().map(|m| world.reports(*m)).sum();
    world.run(Span::secs(60));
    let after: u64 = members.iter().map(|m| world.reports(*m)).sum();
    // There are 30 rounds of 2 s. Without suppression each of the hundred receivers would report in each.
    let per_round = (after - before) as f64 / 30.0;
    between(per_round, 1.0, 12.0);
    between(world.mean(30, 90), 350e3, 1_100e3);
}

#[test]
fn without_suppression_each_of_a_large_group_reports_at_its_turn_of_rtcp() {
    let count = |suppress: &'static str| {
        let params = [("suppress", text(suppress)), ("t_suspend", text("500ms")), ("t_random", text("2s"))];
        let mut world = world(3, Mode::Repaired, &params);
        world.overhear = true;
        let path = world.path(Path::ideal().rate(Rate::mbps(1)).queue(30));
        let members = world.join_many(100, path);
        world.run(Span::secs(60));
        members.iter().map(|m| world.reports(*m)).sum::<u64>() as f64
    };
    let (on, off) = (count("on"), count("off"));
    assert!(off > 5.0 * on, "{off} without, {on} with");
    // One report per second each, except in the start phase.
    between(off, 2_500.0, 7_500.0);
}

#[test]
fn the_lowest_receiver_is_never_silenced_by_higher_ones() {
    let mut world = world(4, Mode::Repaired, &[("t_suspend", text("500ms")), ("t_random", text("2s"))]);
    world.overhear = true;
    let (fast, slow) = (world.path(Path::ideal()), world.path(Path::ideal().rate(Rate::kbps(300)).queue(20)));
    world.join_many(60, fast);
    let slow = world.join(slow, Clock::default());
    world.run(Span::secs(120));
    // Sixty rounds with a report in nearly each: only rates within 2 % of a receiver's own suppress its report.
    between(world.reports(slow) as f64, 40.0, 70.0);
    between(world.mean(60, 120), 120e3, 330e3);
}

#[test]
fn half_of_the_reports_lost_never_lets_the_rate_run_away() {
    for seed in 1..=3 {
        let mut world = world(seed, Mode::Repaired, &[]);
        world.back_loss = 0.5;
        let path = world.path(Path::ideal().rate(Rate::mbps(1)).queue(30));
        world.join_many(3, path);
        world.run(Span::secs(120));
        between(world.mean(30, 120), 500e3, 1_150e3);
    }
}

#[test]
fn reports_keep_a_round_trip_apart_where_rtcp_would_allow_fifty_a_second() {
    // The queue of 50 packets makes round trips of 40 to 450 ms. "interval" keeps one second, as in paper mode.
    for (spacing, low, high) in [("rtt", 60.0 / 0.45, 60.0 / 0.06), ("interval", 50.0, 70.0)] {
        let mut world = world(1, Mode::Repaired, &[("spacing", text(spacing))]);
        world.least = Span::millis(20);
        world.sr_every = Span::millis(100);
        let path = world.path(Path::ideal().rate(Rate::mbps(1)).queue(50));
        let only = world.join(path, Clock::default());
        world.run(Span::secs(20));
        let before = world.reports(only);
        assert!(world.rates.iter().any(|(at, rate)| *at < Time::ZERO + Span::secs(3) && *rate > Rate::kbps(800)));
        world.run(Span::secs(60));
        between((world.reports(only) - before) as f64, low, high);
        between(world.mean(20, 80), 600e3, 1_050e3);
    }
}

/// The mean rate after half a minute for each bottleneck and random loss, in repaired and in paper mode. A change of
/// behaviour shows as a diff here.
#[test]
fn table_of_rates_on_one_path() {
    let mut table = String::from("kb/s            loss 0 %   0.1 %     1 %     5 %\n");
    for (mode, name) in [(Mode::Repaired, "repaired"), (Mode::Paper, "paper")] {
        for (rate, queue) in [(500, 20), (2_000, 50), (8_000, 50)] {
            write!(table, "{name:9}{rate:5} ").unwrap();
            for loss in [0.0, 0.001, 0.01, 0.05] {
                let mut world = world(1, mode, &[]);
                let path = world.path(Path::ideal().rate(Rate::kbps(rate)).queue(queue).loss(loss));
                // Synchronous clocks, as in the paper's simulations.
                world.join(path, Clock { offset_s: -CLOCKS_START, ppm: 0.0 });
                world.run(Span::secs(150));
                write!(table, "{:8.0}", world.mean(30, 150) / 1e3).unwrap();
            }
            table.push('\n');
        }
    }
    let known = include_str!("asmp_table.txt");
    assert!(table == known, "now:\n{table}\nwas:\n{known}");
}

#[derive(Clone, Debug)]
enum Act {
    Packet { skip: u8, notice: Vec<u8>, delay: i32, ce: bool, first: bool },
    Announce { subtype: u8, bytes: Vec<u8> },
    Heard { subtype: u8, bytes: Vec<u8> },
    Slot { expected: u16, lost: i16, members: u32, interval: u32, share: f64 },
    Leave(u8),
    Report { from: u8, rtt: Option<u32>, subtype: u8, bytes: Vec<u8>, highest: u64, reception: bool, members: u32 },
    Echo { from: u8 },
    Wait(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => (0u8..4, prop::collection::vec(any::<u8>(), 0..6), any::<i32>(), any::<bool>(), any::<bool>())
            .prop_map(|(skip, notice, delay, ce, first)| Act::Packet { skip, notice, delay, ce, first }),
        1 => (0u8..4, bytes()).prop_map(|(subtype, bytes)| Act::Announce { subtype, bytes }),
        1 => (0u8..4, bytes()).prop_map(|(subtype, bytes)| Act::Heard { subtype, bytes }),
        2 => (any::<u16>(), any::<i16>(), any::<u32>(), any::<u32>(), 0.0f64..1.0)
            .prop_map(|(expected, lost, members, interval, share)| {
                Act::Slot { expected, lost, members, interval, share }
            }),
        1 => any::<u8>().prop_map(Act::Leave),
        3 => (any::<u8>(), any::<Option<u32>>(), 0u8..4, bytes(), any::<u64>(), any::<bool>(), any::<u32>()).prop_map(
            |(from, rtt, subtype, bytes, highest, reception, members)|
                Act::Report { from, rtt, subtype, bytes, highest, reception, members }
        ),
        2 => any::<u8>().prop_map(|from| Act::Echo { from }),
        2 => any::<u32>().prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// For any inputs in any order the rates stay within their limits, nothing panics, the wake times advance, and
    /// missing feedback ends at the floor.
    #[test]
    fn any_order_of_operations_keeps_the_limits(
        acts in prop::collection::vec(act(), 1..120), paper in any::<bool>(), events in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mode = if paper { Mode::Paper } else { Mode::Repaired };
        let factory = factory(mode, &[("loss_mode", text(if events { "event" } else { "fraction" }))]);
        let mut setup = setup(1000);
        setup.chance = Seed(seed).part("fuzz");
        let (mut sender, mut receiver) = (factory.sender(&setup), factory.receiver(&setup));
        let (mut now, mut seq, mut last) = (sec(0.0), 0u64, None);
        for act in acts {
            let hears = matches!(act, Act::Packet { .. } | Act::Announce { .. });
            let before = (hears && receiver.is_patient()).then(|| (receiver.due(), receiver.wake()));
            match act {
                Act::Packet { skip, notice, delay, ce, first } => {
                    seq += 1 + u64::from(skip);
                    now += Span::millis(5);
                    let edge = FrameEdge { first, last: false };
                    sender.on_sent(&Sent { at: now, left: now, seq, size: PACKET, data_limited: ce, number: 0 });
                    let own = sender.notice(&Departing { at: now, seq, size: PACKET, edge });
                    let sent = PeerTime::from_nanos(now.as_nanos() as i64 - i64::from(delay));
                    receiver.on_arrival(&Arrival {
                        at: now, seq, size: PACKET, sent, sampled: sent, edge,
                        ecn: if ce { Ecn::Ce } else { Ecn::NotEct },
                        notice: if skip == 0 { own.bytes() } else { &notice }, buffer: None,
                    });
                }
                Act::Announce { subtype, bytes } => {
                    let body = sender.announce(now).filter(|_| subtype == 0).unwrap_or(Body { subtype, bytes });
                    receiver.on_announce(&Announcement { at: now, body: &body });
                }
                Act::Heard { subtype, bytes } => {
                    let body = last.clone().filter(|_| subtype == 0).unwrap_or(Body { subtype, bytes });
                    receiver.on_overheard(&Overheard { at: now, from: ReceiverId(9), body: &body });
                }
                Act::Slot { expected, lost, members, interval, share } => {
                    let reply = receiver.report(&Slot {
                        now, expected: u64::from(expected), lost: i64::from(lost), members,
                        interval: Span::micros(u64::from(interval)), rtcp_share: share,
                    });
                    if let Reply::Body(body) = reply {
                        let rate = claimed(Reply::Body(body.clone()));
                        prop_assert!(rate >= Rate::bps(9_990) && rate <= Rate::bps(20_010_000), "{}", rate);
                        last = Some(body);
                    }
                }
                Act::Leave(from) => sender.on_leave(now, ReceiverId(u32::from(from)), Leave::Silent),
                Act::Report { from, rtt, subtype, bytes, highest, reception, members } => {
                    let body = Body { subtype, bytes };
                    let reception =
                        reception
                            .then_some(Reception { expected: 5, lost: 1, fraction: 0.2, highest, jitter: Span::ZERO });
                    let rtt = rtt.map(|r| Span::micros(u64::from(r)));
                    let (from, body) = (ReceiverId(u32::from(from)), Some(&body));
                    sender.on_report(&Report { at: now, from, rtt, reception, body, members, packets: &[] });
                }
                Act::Echo { from } => {
                    let from = ReceiverId(u32::from(from));
                    let body = last.as_ref();
                    let (rtt, reception, packets) = (None, None, &[]);
                    sender.on_report(&Report { at: now, from, rtt, reception, body, members: 2, packets });
                }
                Act::Wait(us) => {
                    now += Span::micros(u64::from(us) / 100);
                    for _ in 0..100 {
                        match sender.wake() {
                            Some(wake) if wake.at <= now => sender.on_timer(wake.at),
                            _ => break,
                        }
                    }
                    sender.on_timer(now);
                    prop_assert!(sender.wake().is_none_or(|w| w.at > now), "a wake that is never over");
                }
            }
            if let Some(before) = before {
                prop_assert_eq!((receiver.due(), receiver.wake()), before, "a patient one wants no other time");
            }
            let decision = sender.decision();
            prop_assert!(decision.target >= Rate::kbps(10) && decision.target <= Rate::mbps(20));
            prop_assert_eq!(decision.target, decision.pacing);
            if let Due::At(wake) = receiver.due() {
                prop_assert!(wake.at >= sec(0.0));
            }
            let view = receiver.view();
            prop_assert!(view.loss.is_none_or(|l| (0.0..=1.0).contains(&l)));
            prop_assert!(view.rtt.is_none_or(|r| r >= Span::millis(1) && r <= Span::secs(10)));
        }
        if !paper {
            sender.on_sent(&Sent { at: now, left: now, seq, size: PACKET, data_limited: false, number: 0 });
            for _ in 0..400 {
                now += Span::secs(3_600);
                sender.on_timer(now);
            }
            prop_assert_eq!(sender.decision().target, Rate::kbps(10));
        }
    }
}
