//! Rate control by the receiver's buffer: the paper's formulas, its three states, and a simulated buffer.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::{Loss, Path, Plan, World, assert_snapshot, assert_within, s};
use proptest::prelude::*;
use std::fmt::Write as _;
use steadycast_control::equation::{LossRate, throughput};
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{
    Arrival, Body, BufferLevel, Departing, Due, FrameEdge, Limit, Mode, ReceiverHalf, ReceiverId, Reply, Report,
    SenderHalf, Slot,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Stamp, Time};

const R: Span = Span::millis(25);
const FULL: u32 = 16_384;

fn text(t: &str) -> Given {
    Given::Text(t.into())
}

/// The delays between packets range from 1 ms to 10 s, because the paper's maximum of 20 ms, with 5 ms to send a
/// packet, would force 40 packets per second.
fn plan(name: &'static str) -> Plan {
    let plan = Plan::new(name, Path::clean(R));
    if name == "no-control" { plan } else { plan.set("ipd_max", text("10s")).set("cc_cap", text("none")) }
}

fn report(level: u32, change: i32, echo: Stamp, held_us: u32, p: Option<f32>) -> Body {
    let mut words = vec![level, FULL, change.cast_unsigned(), echo.0, held_us];
    words.extend(p.map(f32::to_bits));
    Body { subtype: 1, bytes: words.into_iter().flat_map(u32::to_be_bytes).collect() }
}

/// A sender half with generated reports, one round apart.
struct Bench {
    half: Box<dyn SenderHalf>,
    now: Time,
}

impl Bench {
    fn of(plan: &Plan) -> Self {
        let chosen = Chosen::shared(plan.controller, plan.mode, &plan.params).unwrap();
        Self { half: chosen.sender(&plan.setup(ReceiverId(1), "sender")), now: s(10.0) }
    }

    fn new(name: &'static str) -> Self {
        Self::of(&plan(name))
    }

    fn hear(&mut self, body: &Body) {
        let (at, from) = (self.now, ReceiverId(9));
        self.half.on_report(&Report {
            at,
            from,
            rtt: None,
            reception: None,
            body: Some(body),
            members: 1,
            packets: &[],
        });
    }

    fn round(&mut self, level: u32, change: i32, rtt: Span) -> f64 {
        let before = self.bps();
        self.now += rtt;
        let echo = Stamp::of(self.now.before(rtt));
        self.hear(&report(level, change, echo, 0, None));
        self.bps() / before
    }

    fn bps(&self) -> f64 {
        self.half.decision().target.as_bps_f64()
    }
}

#[test]
fn each_state_has_its_factor_and_type_two_does_not_look_at_the_change() {
    let (low, middle, high) = (FULL / 10, FULL / 2, FULL - FULL / 20);
    for (name, mode, level, change, want) in [
        ("rbuf-type1", Mode::Repaired, low, -100, 1.3),
        ("rbuf-type1", Mode::Repaired, low, 100, 1.2),
        ("rbuf-type1", Mode::Repaired, high, 100, 0.8),
        ("rbuf-type1", Mode::Repaired, high, -100, 0.9),
        ("rbuf-type1", Mode::Paper, low, -100, 1.2),
        ("rbuf-type1", Mode::Paper, low, 100, 1.3),
        ("rbuf-type1", Mode::Paper, high, 100, 0.9),
        ("rbuf-type1", Mode::Paper, high, -100, 0.8),
        ("rbuf-type2", Mode::Repaired, low, -100, 1.2),
        ("rbuf-type2", Mode::Repaired, high, 100, 0.9),
    ] {
        let plan = Plan { mode, ..plan(name) };
        let mut bench = Bench::of(&plan);
        bench.round(middle, 0, R);
        assert_within(bench.round(level, change, R), want, 1e-5);
    }
}

#[test]
fn the_bounds_of_the_states_are_a_fifth_and_nine_tenths() {
    let mut bench = Bench::new("rbuf-type2");
    let rule = |bench: &mut Bench, level| {
        bench.round(level, 0, R);
        bench.half.decision().why.rule
    };
    assert_eq!(rule(&mut bench, FULL / 5), "underflow");
    assert_eq!(rule(&mut bench, FULL / 5 + 1), "stable");
    assert_eq!(rule(&mut bench, FULL * 9 / 10), "stable");
    // B = B_H belongs to overflow.
    assert_eq!(rule(&mut bench, FULL * 9 / 10 + 1), "overflow");
}

#[test]
fn by_latency_the_margin_is_what_can_still_arrive() {
    let plan = plan("rbuf-type2").set("margin_mode", text("latency")).set("k_lat", Given::Number(4.0));
    let mut bench = Bench::of(&plan);
    bench.round(FULL / 2, 0, R);
    let arrives = (bench.bps() / 8.0 * R.as_secs_f64() * 4.0) as u32;
    bench.round(FULL - arrives - 50, 0, R);
    assert_eq!(bench.half.decision().why.rule, "stable");
    let arrives = (bench.bps() / 8.0 * R.as_secs_f64() * 4.0) as u32;
    bench.round(FULL - arrives + 50, 0, R);
    assert_eq!(bench.half.decision().why.rule, "overflow");
}

#[test]
fn stable_type_two_adds_a_packet_per_round_and_yields_to_a_growing_round_trip() {
    let mut bench = Bench::new("rbuf-type2");
    bench.round(FULL / 2, 0, R);
    let before = bench.bps();
    // T + S/rtt, with no change of the round trip.
    bench.round(FULL / 2, 0, R);
    assert_within(bench.bps() - before, 8000.0 / 0.025, 2e-3);
    // Round trips of 25 ms and then 65 ms: the smoothed one grows by 5 ms.
    let before = bench.bps() / 8.0;
    bench.round(FULL / 2, 0, Span::millis(65));
    assert_within(bench.bps() / 8.0, (before * 0.025 + 1000.0) / 0.030, 2e-3);
    assert_within(bench.half.decision().why.rtt.unwrap().as_millis_f64(), 30.0, 1e-3);
}

#[test]
fn the_one_of_equation_fifteen_may_be_a_packet_per_second() {
    let mut bench = Bench::of(&plan("rbuf-type2").set("added", text("rate")));
    bench.round(FULL / 2, 0, R);
    let before = bench.bps();
    bench.round(FULL / 2, 0, R);
    assert_within(bench.bps() - before, 8000.0, 0.05);
}

#[test]
fn stable_type_one_foresees_where_the_level_goes() {
    // Packets are so small that a round has ten of them, so that the change of the level in a round is not only due to
    // a single packet.
    let small =
        |name| Plan { packet: Bytes::new(100), ..plan(name).set("ipd_start", text("1ms")).set("ipd_min", text("0ms")) };
    let mut bench = Bench::of(&small("rbuf-type1"));
    let middle = FULL / 2;
    bench.round(middle, 0, R);
    // In eight rounds a change of +900 B leads to overflow, and of −900 B to underflow.
    assert_within(bench.round(middle, 900, R), 0.8, 1e-5);
    assert_within(bench.round(middle, -900, R), 1.2, 1e-5);
    // If the level rises slowly, the rate is kept. Otherwise it grows by at most a twentieth per round.
    assert_within(bench.round(middle, 100, R), 1.0, 1e-4);
    assert_within(bench.round(middle, 0, R), 1.05, 1e-4);
    assert_within(bench.round(middle, -100, R), 1.05, 1e-4);
    let mut literal = Bench::of(&small("rbuf-type1").set("stable", text("literal")));
    bench.round(middle, 0, R);
    let before = literal.bps();
    literal.round(middle, 900, R);
    assert_within(literal.bps() - before, 800.0 / 0.025, 2e-3);
}

#[test]
fn the_rate_is_what_a_delay_of_one_to_twenty_milliseconds_can_make() {
    let plan = Plan::new("rbuf-type2", Path::clean(R));
    let mut bench = Bench::of(&plan);
    // 1000 B in 5 + 20 ms.
    assert_within(bench.bps(), 320_000.0, 1e-5);
    for _ in 0..60 {
        bench.round(0, 0, R);
    }
    assert_within(bench.bps(), 8000.0 / 0.006, 1e-5);
    assert_eq!(bench.half.decision().limit, Limit::Cap);
    for _ in 0..60 {
        bench.round(FULL, 0, R);
    }
    assert_within(bench.bps(), 320_000.0, 1e-5);
    assert_eq!(bench.half.decision().limit, Limit::Floor);
}

#[test]
fn without_a_report_the_rate_is_held_for_a_round_and_then_falls_as_in_overflow() {
    let mut bench = Bench::new("rbuf-type1");
    for _ in 0..20 {
        bench.round(FULL / 4, 0, R);
    }
    let (held, last) = (bench.bps(), bench.now);
    for n in 0..5 {
        let wake = bench.half.wake().unwrap();
        assert_within(wake.at.since(last).as_millis_f64(), 25.0 * (2.0 + f64::from(n)), 1e-3);
        bench.half.on_timer(wake.at);
        assert_within(bench.bps(), held * libm::pow(0.9, f64::from(n) + 1.0), 1e-4);
    }
}

#[test]
fn with_a_cap_the_rate_stays_at_tcp_s_share() {
    let plan = plan("rbuf-type1").set("cc_cap", text("tfrc"));
    let mut bench = Bench::of(&plan);
    let p = 0.08f32;
    for _ in 0..40 {
        bench.now += R;
        let body = report(0, 0, Stamp::of(bench.now.before(R)), 0, Some(p));
        bench.hear(&body);
    }
    let share = throughput(Bytes::new(1000), R, LossRate::new(f64::from(p)).unwrap());
    assert_within(bench.bps(), share.as_bps_f64(), 1e-3);
    assert_eq!(bench.half.decision().limit, Limit::Network);
}

#[test]
fn what_is_not_a_report_changes_nothing() {
    let fresh = || {
        let mut bench = Bench::new("rbuf-type1");
        bench.round(FULL / 2, 0, R);
        bench.now += R;
        bench
    };
    let echo = Stamp::of(s(10.025));
    let good = report(FULL, 10, echo, 0, None);
    let before = fresh().half.decision();
    let mut bad = vec![
        Body { subtype: 2, ..good.clone() },
        Body { subtype: 1, bytes: good.bytes[..19].to_vec() },
        report(FULL + 1, 0, echo, 0, None),
        report(FULL, i32::try_from(FULL).unwrap() + 1, echo, 0, None),
        report(FULL, 0, echo, 26_000, None),
        report(FULL, 0, Stamp::of(s(11.0)), 0, None),
    ];
    bad.extend([f32::NAN, f32::INFINITY, -0.1, 1.1].map(|p| report(FULL, 0, echo, 0, Some(p))));
    for body in &bad {
        let mut bench = fresh();
        bench.hear(body);
        assert!(bench.half.decision() == before, "{body:?}");
    }
    let mut bench = fresh();
    bench.hear(&good);
    assert!(bench.half.decision() != before);
}

/// A receiver's buffer. Packets fill it, and a constant rate drains it once it is a fifth full.
struct Play {
    size: f64,
    level: f64,
    playing: bool,
    consume: f64,
    seen: usize,
    /// The number of times that the buffer ran empty, and the number of packets that did not fit.
    empty: u32,
    dropped: u32,
    /// The level in each millisecond, as a share.
    shares: Vec<f64>,
}

impl Play {
    fn new(size: f64, consume: f64) -> Self {
        Self { size, level: 0.0, playing: false, consume, seen: 0, empty: 0, dropped: 0, shares: Vec::new() }
    }

    fn step(&mut self, world: &mut World, to: Time) {
        while world.now < to {
            world.run_for(Span::millis(1));
            for _ in self.seen..world.delivered.len() {
                if self.level + world.packet.as_f64() > self.size {
                    self.dropped += 1;
                } else {
                    self.level += world.packet.as_f64();
                }
            }
            self.seen = world.delivered.len();
            self.playing |= self.level >= 0.2 * self.size;
            if self.playing {
                self.level -= self.consume / 1e3;
                if self.level <= 0.0 {
                    (self.level, self.playing) = (0.0, false);
                    self.empty += 1;
                }
            }
            self.shares.push(self.level / self.size);
            let level = Bytes::new(self.level as u64);
            world.members[0].buffer = Some(BufferLevel { level, size: Bytes::new(self.size as u64) });
        }
    }
}

/// The times at which the controller reports overflow.
fn entries(world: &World, from: Time) -> usize {
    let rules: Vec<_> =
        world.decisions.iter().filter(|d| d.at >= from).map(|d| d.decision.why.rule == "overflow").collect();
    rules.windows(2).filter(|w| !w[0] && w[1]).count()
}

fn run(plan: Plan, size: f64, consume: f64, seconds: f64) -> (World, Play) {
    let mut world = plan.build();
    let mut play = Play::new(size, consume);
    play.step(&mut world, s(seconds));
    (world, play)
}

#[test]
fn type_one_never_enters_overflow_where_type_two_does_again_and_again() {
    // The two rates that the paper measured: 10.7 packets per second at most, 1.56 consumed.
    let entered = |name| {
        let plan = Plan { cap: Rate::bps(85_600), ..plan(name) };
        let (world, play) = run(plan, 16_384.0, 1_560.0, 40.0);
        assert_eq!(play.empty, 0, "{name}");
        (entries(&world, s(0.0)), play.dropped)
    };
    let (first, second) = (entered("rbuf-type1"), entered("rbuf-type2"));
    assert_eq!(first, (0, 0));
    // A packet lasts 0.64 s, after which the next one enters.
    assert!((30..80).contains(&second.0) && (20..80).contains(&second.1), "{second:?}");
}

#[test]
fn with_twenty_packets_a_second_to_play_type_one_stays_within_its_bounds_and_type_two_at_the_upper_one() {
    for (name, least, most) in [("rbuf-type1", 0.97, 1.0), ("rbuf-type2", 0.01, 0.5)] {
        let (_, play) = run(plan(name), 32_768.0, 20_000.0, 60.0);
        let late = &play.shares[10_000..];
        let inside = late.iter().filter(|x| (0.2..0.9).contains(*x)).count() as f64 / late.len() as f64;
        assert!((least..=most).contains(&inside), "{name}: {inside}");
        assert!(late.iter().all(|x| *x >= 0.2), "{name}");
        assert_eq!(play.empty, 0, "{name}");
    }
}

#[test]
fn no_control_sends_at_the_least_delay_whatever_the_buffer_says() {
    let (world, play) = run(plan("no-control"), 16_384.0, 20_000.0, 10.0);
    assert_within(world.sent_rate(s(1.0), s(10.0)).as_bps_f64(), 8000.0 / 0.006, 1e-3);
    assert!(play.dropped > 1000, "{}", play.dropped);
    assert_eq!(world.decisions.len(), 1);
}

#[test]
fn reports_come_once_per_smoothed_round_trip() {
    let (world, _) = run(plan("rbuf-type1"), 16_384.0, 20_000.0, 20.0);
    let times: Vec<Time> = world.reports.iter().map(|r| r.0).filter(|t| *t > s(5.0)).collect();
    let mean = times[times.len() - 1].since(times[0]).as_millis_f64() / (times.len() - 1) as f64;
    assert_within(mean, 25.0, 0.05);
}

#[test]
fn without_a_buffer_at_the_receiver_the_first_delay_stays() {
    let mut world = plan("rbuf-type1").build();
    world.run_until(s(5.0));
    assert_eq!(world.sender.decision().why.rule, "no buffer told: first delay");
    assert_within(world.target().as_bps_f64(), 320_000.0, 1e-5);
}

/// Runs a controller with a buffer, on a path of 25 ms without loss.
fn table(name: &'static str) -> String {
    let mut table = String::from(
        "buffer    played     rate      spread  level  in bounds  overflow  empty  dropped\n\
         -------  --------  ---------  ------  -----  ---------  --------  -----  -------\n",
    );
    for (kib, kbps) in [(8, 64), (16, 16), (16, 64), (16, 320), (32, 64), (32, 800)] {
        let (size, rate) = (f64::from(kib) * 1024.0, Rate::kbps(kbps));
        let (world, play) = run(plan(name), size, rate.as_bytes_per_s(), 60.0);
        let (from, to) = (s(10.0), s(60.0));
        let mean = world.mean_target(from, to);
        let tenths: Vec<f64> = (100..600).map(|n| world.decided(s(f64::from(n) / 10.0)).target.ratio(mean)).collect();
        let spread = (tenths.iter().map(|x| (x - 1.0) * (x - 1.0)).sum::<f64>() / 500.0).sqrt();
        let late = &play.shares[10_000..];
        let inside = late.iter().filter(|x| (0.2..0.9).contains(*x)).count() as f64 / late.len() as f64;
        writeln!(
            table,
            "{kib:>3} KiB  {:>8}  {:>4} kb/s  {:>6.3}  {:>5.2}  {:>9.3}  {:>8}  {:>5}  {:>7}",
            rate.to_string(),
            world.received_rate(0, from, to).as_bps() / 1000,
            spread,
            late.iter().sum::<f64>() / late.len() as f64,
            inside,
            entries(&world, s(0.0)),
            play.empty,
            play.dropped,
        )
        .unwrap();
        assert!(play.empty == 0, "{name} {kib} {rate}");
    }
    table
}

#[test]
fn each_has_its_own_table_of_a_buffer() {
    let page = include_str!("../../../../docs/controllers/rbuf.md");
    let tables = ["rbuf-type1", "rbuf-type2", "no-control"].map(|name| {
        let table = table(name);
        assert_snapshot(&format!("{name}.txt"), &table);
        table
    });
    for table in &tables {
        assert!(page.contains(table), "the page shows another table:\n{table}");
    }
    assert!(tables[0] != tables[1] && tables[1] != tables[2] && tables[0] != tables[2]);
}

#[derive(Clone, Debug)]
enum Op {
    Report { level: u32, change: i32, age_ms: u64, held_us: u32, p: Option<f32> },
    Garbage(u8, Vec<u8>),
    Timer,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..=FULL, -20_000i32..20_000, 0u64..3_000, 0u32..500_000, proptest::option::of(0.0f32..1.0))
            .prop_map(|(level, change, age_ms, held_us, p)| Op::Report { level, change, age_ms, held_us, p }),
        1 => (0u8..3, prop::collection::vec(any::<u8>(), 0..28)).prop_map(|(n, bytes)| Op::Garbage(n, bytes)),
        2 => Just(Op::Timer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_a_sender_hears_its_rate_stays_within_its_bounds(
        ops in prop::collection::vec((op(), 0u64..2_000), 1..100), first in any::<bool>(), paper in any::<bool>(),
    ) {
        let name = if first { "rbuf-type1" } else { "rbuf-type2" };
        let mut plan = Plan::new(name, Path::clean(R)).set("ipd_max", text("2s"));
        plan.mode = if paper { Mode::Paper } else { Mode::Repaired };
        (plan.floor, plan.cap) = (Rate::kbps(6), Rate::kbps(900));
        let mut bench = Bench::of(&plan);
        for (op, ms) in ops {
            bench.now += Span::millis(ms);
            let before = bench.half.decision();
            match &op {
                Op::Report { level, change, age_ms, held_us, p } => {
                    let echo = Stamp::of(bench.now.before(Span::millis(*age_ms)));
                    bench.hear(&report(*level, *change, echo, *held_us, *p));
                }
                Op::Garbage(subtype, bytes) => bench.hear(&Body { subtype: *subtype, bytes: bytes.clone() }),
                Op::Timer => bench.half.on_timer(bench.now),
            }
            for _ in 0..100 {
                match bench.half.wake() {
                    Some(wake) if wake.at <= bench.now => bench.half.on_timer(bench.now),
                    _ => break,
                }
            }
            prop_assert!(bench.half.wake().is_none_or(|w| w.at > bench.now));
            let decision = bench.half.decision();
            prop_assert!((Rate::kbps(6)..=Rate::kbps(900)).contains(&decision.target), "{:?}", decision);
            prop_assert_eq!(decision.target, decision.pacing);
            if matches!(op, Op::Timer) {
                prop_assert!(decision.target <= before.target);
            }
            let (size, edge) = (Bytes::new(1000), FrameEdge::default());
            let notice = bench.half.notice(&Departing { at: bench.now, seq: 1, size, edge });
            prop_assert_eq!((notice.id(), notice.bytes().len()), (7, 3));
        }
    }

    #[test]
    fn whatever_a_receiver_hears_its_reports_are_sound(
        ops in prop::collection::vec(
            (any::<u64>(), 0u64..400, any::<i64>(), prop::collection::vec(any::<u8>(), 0..5), any::<u32>(),
            1u32..1 << 30),
            1..60,
        ),
        capped in any::<bool>(),
    ) {
        let plan = plan("rbuf-type1");
        let given = [("cc_cap".to_owned(), text(if capped { "tfrc" } else { "none" }))];
        let chosen = Chosen::shared("rbuf-type1", Mode::Repaired, &given).unwrap();
        let mut half: Box<dyn ReceiverHalf> = chosen.receiver(&plan.setup(ReceiverId(9), "receiver"));
        let mut now = Time::ZERO;
        for (seq, ms, sent, notice, level, size) in ops {
            now += Span::millis(ms);
            let buffer = BufferLevel { level: Bytes::new(u64::from(level)), size: Bytes::new(u64::from(size)) };
            half.on_arrival(&Arrival {
                at: now, seq, size: Bytes::new(1000), sent: PeerTime::from_nanos(sent),
                sampled: PeerTime::from_nanos(sent),
                edge: FrameEdge::default(), ecn: Ecn::NotEct, notice: &notice, buffer: Some(buffer),
            });
            let mut reports = 0;
            while let Due::At(wake) = half.due() {
                if wake.at > now {
                    break;
                }
                reports += 1;
                prop_assert!(reports < 3, "reports without end: {:?}", wake);
                let slot = Slot { now, expected: 1, lost: 0, members: 2, interval: Span::secs(1), rtcp_share: 0.0 };
                let Reply::Body(body) = half.report(&slot) else { continue };
                prop_assert_eq!((body.subtype, body.bytes.len()), (1, if capped { 24 } else { 20 }));
                let word = |n: usize| u32::from_be_bytes(body.bytes[4 * n..4 * n + 4].try_into().unwrap_or_default());
                prop_assert!(word(0) <= word(1));
            }
        }
    }

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(
        seed in any::<u64>(), loss in 0.0f64..0.5, back in 0.0f64..0.5, ms in 2u64..400, kbps in 50u64..2_000,
        first in any::<bool>(),
    ) {
        let mut path = Path::clean(Span::millis(ms)).bottleneck(Rate::kbps(kbps), 30).losing(Loss::Bernoulli(loss));
        path.back_loss = Loss::Bernoulli(back);
        path.late = Some((17, Span::millis(ms / 2)));
        let mut plan = Plan::new(if first { "rbuf-type1" } else { "rbuf-type2" }, path);
        plan.seed = Seed(seed);
        (plan.floor, plan.cap) = (Rate::kbps(8), Rate::kbps(700));
        let (world, _) = run(plan, 32_768.0, 20_000.0, 10.0);
        prop_assert!(world.decisions.len() > 3);
        for d in &world.decisions {
            prop_assert!((Rate::kbps(8)..=Rate::kbps(700)).contains(&d.decision.target));
        }
    }
}
