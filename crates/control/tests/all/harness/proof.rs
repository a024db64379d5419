//! The common tests of all controllers: a table of results on an ideal link, and random sequences of operations.

use super::bench::{Bench, Link, Marking};
use super::{Loss, Path, Plan, World, s};
use proptest::prelude::*;
use std::fmt::Write;
use steadycast_control::registry::{Chosen, Given, find};
use steadycast_control::{
    Announcement, Arrival, Body, Departing, Due, ExtraSent, FrameEdge, Leave, MediaQueue, Mode, PacketArrival,
    PacketReport, ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Slot, Stream, Window,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};

const S: Bytes = Bytes::new(1000);

/// Declares two tests with random inputs: of the sender half, and of the receiver half as one of several members.
#[allow(unused_macros, reason = "each test file uses its part")]
macro_rules! both_halves_stand {
    ($controller:literal, $members:literal) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(96))]

            #[test]
            fn whatever_a_sender_hears_its_rate_stays_within_its_bounds(
                ops in prop::collection::vec((harness::proof::op(), 0u64..2_000), 1..120), paper in any::<bool>(),
            ) {
                harness::proof::sender_stands($controller, &[], if paper { Mode::Paper } else { Mode::Repaired }, ops)?;
            }

            #[test]
            fn whatever_a_receiver_hears_its_reports_are_sound(all in harness::proof::arrivals($members)) {
                harness::proof::receiver_stands($controller, &[], all)?;
            }
        }
    };
}
#[allow(unused_imports, reason = "each test file uses its part")]
pub(crate) use both_halves_stand;

/// A receiver half that gets packets of 1000 B, with times in milliseconds.
pub struct Hearing(pub Box<dyn ReceiverHalf>);

impl Hearing {
    /// Delivers a packet.
    pub fn packet(&mut self, ms: u64, last: bool, ecn: Ecn) {
        self.0.on_arrival(&Arrival {
            at: Time::ZERO + Span::millis(ms),
            seq: ms,
            size: S,
            sent: PeerTime::from_nanos(0),
            sampled: PeerTime::from_nanos(0),
            edge: FrameEdge { first: false, last },
            ecn,
            notice: &[],
            buffer: None,
        });
    }

    /// Returns the time of the next report; `None` if there is nothing to report.
    pub fn due(&self) -> Option<u64> {
        match self.0.due() {
            Due::At(wake) => Some(wake.at.since(Time::ZERO).as_nanos() / 1_000_000),
            _ => None,
        }
    }

    /// Requests a report.
    pub fn report(&mut self, ms: u64) -> Reply {
        let now = Time::ZERO + Span::millis(ms);
        self.0.report(&Slot { now, expected: 1, lost: 0, members: 2, interval: Span::secs(1), rtcp_share: 0.0 })
    }
}

/// A flow's decisions do not depend on the offset of its receiver's clock.
pub fn clocks_need_not_agree(mut plan: Plan, link: &Link) {
    let mut run = |ahead: Span| {
        plan.receivers_ahead = ahead;
        let mut bench = Bench::new(link.clone(), std::slice::from_ref(&plan));
        bench.run_until(s(20.0));
        bench.flows[0].decisions.iter().map(|d| (d.at, d.decision.target)).collect::<Vec<_>>()
    };
    assert_eq!(run(Span::ZERO), run(Span::secs(7_777)));
}

/// Runs a controller alone for each capacity and round-trip time, with a queue of one bandwidth-delay product (at least
/// ten packets). Returns the utilization, the target, the queueing delay and the loss between `from` and `to` seconds.
/// `note` adds a column. The `lossy` links lose each packet with probability 0.03.
pub fn table(
    controller: &'static str,
    params: &[(&str, Given)],
    lossy: &[(u64, u64)],
    (from, to): (f64, f64),
    (head, note): (&str, fn(&World) -> String),
    check: fn(f64, f64, Span),
) -> String {
    let mut table = format!("capacity    RTT     queue  random   used   target   queue p95   loss     {head}\n");
    let line = "-".repeat(head.len());
    writeln!(table, "--------  -------  ------  ------  -----  -------  ----------  -------  {line}").unwrap();
    let clean = [(500, 40), (500, 200), (2_000, 20), (2_000, 100), (8_000, 40)];
    let all = clean.iter().map(|row| (*row, 0.0)).chain(lossy.iter().map(|row| (*row, 0.03)));
    for ((kbps, ms), random) in all {
        let (rate, rtt) = (Rate::kbps(kbps), Span::millis(ms));
        let queue = usize::try_from(rate.over(rtt).get() / S.get()).unwrap().max(10);
        let mut plan = Plan::new(controller, Path::clean(rtt).bottleneck(rate, queue).losing(Loss::Bernoulli(random)));
        plan.params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let mut world = plan.build();
        world.run_until(s(to));
        let used = world.received_rate(0, s(from), s(to)).ratio(rate);
        let loss = world.loss(0, s(from), s(to - 1.0));
        let p95 = world.queue_delay(0, 0.95, s(from), s(to));
        writeln!(
            table,
            "{:>8}  {:>7}  {:>5}p  {:>5}%  {:>5.3}  {:>7.3}  {:>7.1} ms  {:>6.3}%  {:>w$}",
            rate.to_string(),
            rtt.to_string(),
            queue,
            random * 100.0,
            used,
            world.mean_target(s(from), s(to)).ratio(rate),
            p95.as_millis_f64(),
            loss * 100.0,
            note(&world),
            w = head.len(),
        )
        .unwrap();
        assert!(p95 <= S.at(rate) * (queue as u64 + 1), "{rate} {rtt}: {p95}");
        check(used, loss, rtt);
    }
    table
}

/// An operation on a sender half.
#[derive(Clone, Debug)]
pub enum Op {
    Sent(bool),
    /// A report with a generated body of the controller.
    Report(Vec<u8>, u8, Option<u64>, i64),
    /// Returns a report with the body of the controller's receiver half.
    Real(u64),
    Timer,
    Leave,
}

/// A strategy for all operations; bodies have any length and content.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<bool>().prop_map(Op::Sent),
        3 => (prop::collection::vec(any::<u8>(), 0..60), 0u8..4, prop::option::of(0u64..3_000), -5i64..200)
            .prop_map(|(bytes, subtype, rtt, lost)| Op::Report(bytes, subtype, rtt, lost)),
        4 => (0u64..40).prop_map(Op::Real),
        2 => Just(Op::Timer),
        1 => Just(Op::Leave),
    ]
}

/// Applies operations to a sender half in any order, including reports of its own receiver half. The rates stay within
/// their limits, the wake times are in the future, and the notices are short.
pub fn sender_stands(
    name: &'static str,
    params: &[(&str, &str)],
    mode: Mode,
    ops: Vec<(Op, u64)>,
) -> Result<(), TestCaseError> {
    let mut plan = Plan::new(name, Path::clean(Span::millis(100)));
    (plan.mode, plan.floor, plan.cap) = (mode, Rate::kbps(10), Rate::mbps(50));
    let chosen = Chosen::shared(name, mode, &words(params)).unwrap();
    let mut sender = chosen.sender(&plan.setup(ReceiverId(1), "sender"));
    let mut receiver = chosen.receiver(&plan.setup(ReceiverId(9), "receiver"));
    let mut now = Time::ZERO + Span::secs(16_380);
    let mut seq = 0u64;
    for (op, ms) in ops {
        now += Span::millis(ms);
        match op.clone() {
            Op::Sent(data_limited) => {
                let edge = FrameEdge::default();
                let notice = sender.notice(&Departing { at: now, seq, size: S, edge });
                prop_assert!(notice.bytes().len() <= 24);
                prop_assert!(notice.is_empty() || notice.id() == find(name).unwrap().extension);
                sender.on_sent(&Sent { at: now, left: now, seq, size: S, data_limited, number: 0 });
                if seq % 7 != 3 {
                    let sent = PeerTime::from_nanos(now.as_nanos() as i64);
                    receiver.on_arrival(&Arrival {
                        at: now + Span::millis(50),
                        seq,
                        size: S,
                        sent,
                        sampled: sent,
                        edge,
                        ecn: Ecn::NotEct,
                        notice: notice.bytes(),
                        buffer: None,
                    });
                }
                seq += 1;
            }
            Op::Timer => sender.on_timer(now),
            Op::Leave => sender.on_leave(now, ReceiverId(9), Leave::Silent),
            Op::Report(bytes, subtype, rtt, lost) => {
                let body = Body { subtype, bytes };
                report(&mut *sender, now, Some(&body), rtt.map(Span::millis), lost);
            }
            Op::Real(expected) => {
                let lost = (expected / 9) as i64;
                let reply = receiver.report(&slot(now + Span::millis(50), expected, lost));
                if let Reply::Body(body) = reply {
                    report(&mut *sender, now + Span::millis(100), Some(&body), Some(Span::millis(100)), lost);
                } else if reply == Reply::Plain {
                    report(&mut *sender, now + Span::millis(100), None, Some(Span::millis(100)), lost);
                }
                now += Span::millis(100);
            }
        }
        for _ in 0..600 {
            match sender.wake() {
                Some(wake) if wake.at <= now => sender.on_timer(now),
                _ => break,
            }
        }
        prop_assert!(sender.wake().is_none_or(|w| w.at > now), "{:?} after {:?}", sender.wake(), op);
        let decision = sender.decision();
        prop_assert!((Rate::kbps(10)..=Rate::mbps(50)).contains(&decision.target), "{:?} after {:?}", decision, op);
        prop_assert!(decision.pacing > Rate::ZERO, "{:?}", decision);
        prop_assert!(decision.why.loss.is_none_or(|p| (0.0..=1.0).contains(&p)), "{:?}", decision);
    }
    // After missing feedback the rate has fallen, or was at its minimum.
    let before = sender.decision().target;
    for _ in 0..400 {
        if sender.decision().window.is_none_or(|w| !w.is_closed()) {
            let at = now;
            let _ = sender.notice(&Departing { at, seq, size: S, edge: FrameEdge::default() });
            sender.on_sent(&Sent { at, left: at, seq, size: S, data_limited: false, number: 0 });
            seq += 1;
        }
        now += Span::millis(500);
        while let Some(wake) = sender.wake().filter(|w| w.at <= now) {
            sender.on_timer(wake.at);
        }
    }
    let after = sender.decision().target;
    prop_assert!(after <= before.scale(0.6).max(Rate::kbps(10)), "silence left {} at {}", before, after);
    Ok(())
}

fn words(params: &[(&str, &str)]) -> Vec<(String, Given)> {
    params.iter().map(|(name, word)| ((*name).to_owned(), Given::Text((*word).to_owned()))).collect()
}

fn report(
    sender: &mut dyn steadycast_control::SenderHalf,
    at: Time,
    body: Option<&Body>,
    rtt: Option<Span>,
    lost: i64,
) {
    let reception = Reception { expected: 40, lost, fraction: 0.0, highest: 1_000, jitter: Span::ZERO };
    sender.on_report(&Report {
        at,
        from: ReceiverId(9),
        rtt,
        reception: Some(reception),
        body,
        members: 2,
        packets: &[],
    });
}

fn slot(now: Time, expected: u64, lost: i64) -> Slot {
    Slot { now, expected, lost, members: 2, interval: Span::secs(1), rtcp_share: 0.0 }
}

/// Delivers anything to a receiver half. It requests a finite number of reports, its reports have whole words, and
/// deliveries do not change the times of a half that is patient.
pub fn receiver_stands(
    name: &'static str,
    params: &[(&str, &str)],
    ops: Vec<(u64, u64, Vec<u8>, i64)>,
) -> Result<(), TestCaseError> {
    let plan = Plan::new(name, Path::clean(Span::millis(100)));
    let chosen = Chosen::shared(name, Mode::Repaired, &words(params)).unwrap();
    let mut half: Box<dyn ReceiverHalf> = chosen.receiver(&plan.setup(ReceiverId(9), "receiver"));
    let (mut now, mut seq) = (Time::ZERO, 0u64);
    for (jump, micros, notice, sent) in ops {
        now += Span::micros(micros);
        seq = seq.saturating_add(jump);
        let before = half.is_patient().then(|| (half.due(), half.wake()));
        half.on_arrival(&Arrival {
            at: now,
            seq,
            size: S,
            sent: PeerTime::from_nanos(sent),
            sampled: PeerTime::from_nanos(sent),
            edge: FrameEdge::default(),
            ecn: if jump % 11 == 3 { Ecn::Ce } else { Ecn::NotEct },
            notice: &notice,
            buffer: None,
        });
        if let Some(before) = before {
            half.on_sender_report(now);
            half.on_announce(&Announcement { at: now, body: &Body { subtype: jump as u8, bytes: notice } });
            prop_assert_eq!((half.due(), half.wake()), before, "it is no patient one");
        }
        let mut reports = 0;
        loop {
            match half.due() {
                Due::At(wake) if wake.at <= now => {}
                Due::Rtcp if reports == 0 => {}
                _ => break,
            }
            reports += 1;
            prop_assert!(reports < 200, "reports without end");
            if let Reply::Body(body) = half.report(&slot(now, jump.min(1 << 40), (jump.min(1 << 40)) as i64)) {
                prop_assert!(body.bytes.len() % 4 == 0 && body.bytes.len() <= 1_200, "{:?}", body);
            }
        }
        prop_assert!(half.view().loss.is_none_or(|p| (0.0..=1.0).contains(&p)));
    }
    Ok(())
}

/// A strategy for the inputs of [`receiver_stands`]: any steps of the sequence number, times in microseconds, notices
/// and stamps.
pub fn arrivals(notice: usize) -> impl Strategy<Value = Vec<(u64, u64, Vec<u8>, i64)>> {
    let jump = prop_oneof![8 => 0u64..4, 1 => any::<u64>()];
    let bytes = prop_oneof![
        6 => prop::collection::vec(any::<u8>(), notice),
        1 => prop::collection::vec(any::<u8>(), 0..24),
    ];
    prop::collection::vec((jump, 0u64..400_000, bytes, any::<i64>()), 1..200)
}

/// On any path the loop stays within its bounds and does not deadlock.
#[derive(Clone, Debug)]
pub struct AnyPath {
    pub seed: u64,
    pub loss: f64,
    pub back: f64,
    pub ms: u64,
    pub kbps: u64,
    pub limit: usize,
}

pub fn any_path() -> impl Strategy<Value = AnyPath> {
    (any::<u64>(), 0.0f64..0.5, 0.0f64..0.5, 2u64..400, 50u64..5_000, 1usize..60)
        .prop_map(|(seed, loss, back, ms, kbps, limit)| AnyPath { seed, loss, back, ms, kbps, limit })
}

pub fn world_stands(name: &'static str, path: &AnyPath, most: f64) -> Result<(), TestCaseError> {
    let mut way = Path::clean(Span::millis(path.ms))
        .bottleneck(Rate::kbps(path.kbps), path.limit)
        .losing(Loss::Bernoulli(path.loss));
    way.back_loss = Loss::Bernoulli(path.back);
    way.late = Some((17, Span::millis(path.ms / 2)));
    let mut plan = Plan::new(name, way);
    plan.seed = Seed(path.seed);
    (plan.floor, plan.cap) = (Rate::kbps(8), Rate::mbps(10));
    let mut world = plan.build();
    world.run_until(s(20.0));
    for d in &world.decisions {
        prop_assert!((Rate::kbps(8)..=Rate::mbps(10)).contains(&d.decision.target));
    }
    let sent = world.sent_rate(s(10.0), s(20.0));
    prop_assert!(sent <= Rate::kbps(path.kbps).scale(most) + Rate::kbps(20), "{} on {} kb/s", sent, path.kbps);
    prop_assert!(!world.sent.is_empty());
    Ok(())
}

/// Runs a video flow with per-packet feedback alone for each link and its configuration. Returns the utilization, the
/// target, and the queueing delay, loss and marks between `from` and `to` seconds. A row has kb/s, the round-trip time
/// in ms, the ECN field and the marking. `cap` computes the session's cap from the capacity.
pub fn bench_table(
    controller: &'static str,
    params: &[(&str, Given)],
    rows: &[(u64, u64, Ecn, Marking)],
    cap: fn(Rate) -> Rate,
    (from, to): (f64, f64),
    check: fn(f64, f64, Span),
) -> String {
    let mut table = String::from(
        "capacity    RTT     ECN    marking        used   target   queue p50   queue p95   loss     marked\n\
         --------  -------  ------  ------------  -----  -------  ----------  ----------  -------  -------\n",
    );
    for (kbps, ms, ecn, marking) in rows.iter().copied() {
        let (rate, rtt) = (Rate::kbps(kbps), Span::millis(ms));
        let mut plan = Plan::new(controller, Path::clean(rtt));
        plan.params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        (plan.ecn, plan.cap) = (ecn, cap(rate));
        let mut bench = Bench::new(Link::new(rate, rtt).marking(marking), &[plan]);
        bench.run_until(s(to));
        let (from, last, to) = (s(from), s(to - 1.0), s(to));
        let (used, loss) = (bench.used(0, from, to), bench.loss(0, from, last));
        let (p50, p95) = (bench.queue_delay(0, 0.5, from, to), bench.queue_delay(0, 0.95, from, to));
        let mark = match marking {
            Marking::Never => "-".to_owned(),
            Marking::Step(at) => format!("step {at}"),
            Marking::Ramp(low, high) => format!("{low}…{high}"),
            Marking::Random(p) => format!("{} %", p * 100.0),
        };
        let ecn = match ecn {
            Ecn::NotEct => "-",
            Ecn::Ect0 => "ECT(0)",
            Ecn::Ect1 => "ECT(1)",
            Ecn::Ce => "CE",
        };
        writeln!(
            table,
            "{:>8}  {:>7}  {ecn:<6}  {mark:<12}  {used:>5.3}  {:>7.3}  {:>7.1} ms  {:>7.1} ms  {:>6.3}%  {:>6.2}%",
            rate.to_string(),
            rtt.to_string(),
            bench.mean_target(0, from, to).ratio(rate),
            p50.as_millis_f64(),
            p95.as_millis_f64(),
            loss * 100.0,
            bench.marked(0, from, last) * 100.0,
        )
        .unwrap();
        check(used, loss, p95);
    }
    table
}

/// An operation on a sender half with per-packet feedback.
#[derive(Clone, Debug)]
pub enum PacketOp {
    /// A frame of this many bytes is queued.
    Frame(u64),
    /// A packet of the media or padding is sent.
    Sent(u64, bool),
    /// A report about the last packets: for each whether it has arrived and was marked, and their delay.
    Report(Vec<(bool, bool)>, u64),
    /// A report about packets that may never have been sent, with any times.
    Odd(Vec<(u64, bool, i64)>),
    /// A report of the half's own receiver half.
    Real,
    Timer,
}

pub fn packet_op() -> impl Strategy<Value = PacketOp> {
    prop_oneof![
        3 => (0u64..100_000).prop_map(PacketOp::Frame),
        8 => (40u64..1_500, any::<bool>()).prop_map(|(size, media)| PacketOp::Sent(size, media)),
        4 => (prop::collection::vec((prop::bool::weighted(0.9), prop::bool::weighted(0.2)), 0..20), 0u64..2_000)
            .prop_map(|(fates, ms)| PacketOp::Report(fates, ms)),
        1 => prop::collection::vec((0u64..400, any::<bool>(), any::<i64>()), 0..20).prop_map(PacketOp::Odd),
        3 => Just(PacketOp::Real),
        1 => Just(PacketOp::Timer),
    ]
}

/// Applies operations to a sender half with per-packet feedback in any order. The rates stay within their limits, the
/// wake times are in the future, the window stays finite, and missing feedback lowers the rate.
pub fn packets_stand(
    name: &'static str,
    params: &[(&str, Given)],
    mode: Mode,
    ecn: Ecn,
    ops: Vec<(PacketOp, u64)>,
) -> Result<(), TestCaseError> {
    let (floor, cap) = (Rate::kbps(10), Rate::mbps(50));
    let mut plan = Plan::new(name, Path::clean(Span::millis(100)));
    (plan.mode, plan.floor, plan.cap, plan.ecn) = (mode, floor, cap, ecn);
    plan.params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let chosen = Chosen::shared(name, mode, &plan.params).unwrap();
    let mut sender = chosen.sender(&plan.setup(ReceiverId(1), "sender"));
    let mut receiver = chosen.receiver(&plan.setup(ReceiverId(9), "receiver"));
    let mut now = Time::ZERO;
    let mut sent: Vec<PacketReport> = Vec::new();
    let peer = |at: Time| PeerTime::from_nanos(at.as_nanos() as i64 - 5_000_000_000);
    let hear = |sender: &mut dyn SenderHalf, at: Time, packets: &[PacketReport], body: Option<&Body>| {
        let (from, rtt, reception) = (ReceiverId(9), Some(Span::millis(60)), None);
        sender.on_report(&Report { at, from, rtt, reception, body, packets, members: 2 });
    };
    for (op, ms) in ops {
        now += Span::millis(ms);
        match op.clone() {
            PacketOp::Frame(bytes) => {
                let (waiting, frame) = (Bytes::new(bytes), Some(Bytes::new(bytes)));
                sender.on_queue(&MediaQueue { at: now, waiting, age: Span::millis(bytes / 100), frame });
            }
            PacketOp::Sent(bytes, media) => {
                let (number, size) = (sent.len() as u64, Bytes::new(bytes));
                let mut stream = Stream::Padding;
                if media {
                    stream = Stream::Media;
                    let edge = FrameEdge::default();
                    let notice = sender.notice(&Departing { at: now, seq: number, size, edge });
                    sender.on_sent(&Sent {
                        at: now,
                        left: now,
                        number,
                        seq: number,
                        size,
                        data_limited: bytes % 3 == 0,
                    });
                    if bytes % 7 != 3 {
                        receiver.on_arrival(&Arrival {
                            at: now + Span::millis(50),
                            seq: number,
                            size,
                            sent: peer(now),
                            sampled: peer(now),
                            edge,
                            ecn,
                            notice: notice.bytes(),
                            buffer: None,
                        });
                    }
                } else {
                    sender.on_extra_sent(&ExtraSent { at: now, left: now, number, stream, size });
                }
                sent.push(PacketReport { number, sent: now, size, stream, arrived: None });
            }
            PacketOp::Report(fates, delay) => {
                let from = sent.len().saturating_sub(fates.len());
                let told = fates.iter().zip(&sent[from..]).map(|((arrived, marked), packet)| {
                    let at = Some(peer(packet.sent + Span::millis(delay)));
                    let ecn = Some(if *marked { Ecn::Ce } else { ecn });
                    PacketReport { arrived: arrived.then_some(PacketArrival { at, ecn }), ..*packet }
                });
                let told: Vec<_> = told.collect();
                hear(&mut *sender, now, &told, None);
            }
            PacketOp::Odd(told) => {
                let told: Vec<_> = told
                    .into_iter()
                    .map(|(number, timed, at)| {
                        let at = timed.then_some(PeerTime::from_nanos(at));
                        let arrived = Some(PacketArrival { at, ecn: None });
                        let (sent, size) = (Time::from_nanos(number << 40), Bytes::new(number));
                        PacketReport { number, sent, size, stream: Stream::Repair, arrived }
                    })
                    .collect();
                hear(&mut *sender, now, &told, None);
            }
            PacketOp::Real => {
                if let Reply::Body(body) = receiver.report(&slot(now + Span::millis(50), 10, 1)) {
                    hear(&mut *sender, now, &[], Some(&body));
                }
            }
            PacketOp::Timer => sender.on_timer(now),
        }
        for _ in 0..600 {
            match sender.wake() {
                Some(wake) if wake.at <= now => sender.on_timer(now),
                _ => break,
            }
        }
        prop_assert!(sender.wake().is_none_or(|w| w.at > now), "{:?} after {:?}", sender.wake(), op);
        let decision = sender.decision();
        prop_assert!((floor..=cap).contains(&decision.target), "{:?} after {:?}", decision, op);
        prop_assert!(decision.pacing > Rate::ZERO && decision.pacing < Rate::mbps(1_000), "{:?}", decision);
        if let Some(Window::Bytes(bytes)) = decision.window {
            prop_assert!(bytes < Bytes::new(1_000_000_000), "{:?}", decision);
        }
        prop_assert!(decision.why.loss.is_none_or(|p| (0.0..=1.0).contains(&p)), "{:?}", decision);
    }
    let before = sender.decision().target;
    for _ in 0..200 {
        let number = sent.len() as u64;
        if sender.decision().window.is_none_or(|w| !w.is_closed()) {
            let _ = sender.notice(&Departing { at: now, seq: number, size: S, edge: FrameEdge::default() });
            sender.on_sent(&Sent { at: now, left: now, number, seq: number, size: S, data_limited: false });
            let (sent_at, stream, arrived) = (now, Stream::Media, None);
            sent.push(PacketReport { number, sent: sent_at, size: S, stream, arrived });
        }
        now += Span::millis(500);
        while let Some(wake) = sender.wake().filter(|w| w.at <= now) {
            sender.on_timer(wake.at);
        }
    }
    let after = sender.decision().target;
    prop_assert!(after <= before.scale(0.6).max(floor), "silence left {} at {}", before, after);
    Ok(())
}

/// On any path a flow with per-packet feedback stays within its limits, and neither floods the path nor deadlocks.
pub fn bench_stands(
    name: &'static str,
    params: &[(&str, Given)],
    path: &AnyPath,
    ecn: Ecn,
) -> Result<(), TestCaseError> {
    let capacity = Rate::kbps(path.kbps);
    let limit = Bytes::new(1_000 * (path.limit as u64 + 2));
    let mut link = Link::new(capacity, Span::millis(path.ms)).limit(limit).losing(path.loss);
    (link.back_loss, link.marking) = (path.back, Marking::Step(Span::millis(5)));
    let mut plan = Plan::new(name, Path::clean(Span::ZERO));
    plan.params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    (plan.seed, plan.floor, plan.cap, plan.ecn) = (Seed(path.seed), Rate::kbps(8), Rate::mbps(10), ecn);
    let mut bench = Bench::new(link, &[plan]);
    bench.flows[0].noise = 0.3;
    bench.run_until(s(20.0));
    for d in &bench.flows[0].decisions {
        prop_assert!((Rate::kbps(8)..=Rate::mbps(10)).contains(&d.decision.target));
    }
    let late = bench.flows[0].packets.iter().filter(|p| p.sent > s(15.0)).count();
    prop_assert!(late > 10, "{} packets in the last 5 s", late);
    let sent: Bytes = bench.flows[0].packets.iter().filter(|p| p.sent > s(10.0)).map(|p| p.size).sum();
    let sent = sent.per(Span::secs(10));
    prop_assert!(sent <= capacity.scale(3.0) + Rate::kbps(100), "{} on {}", sent, capacity);
    Ok(())
}
