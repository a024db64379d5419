//! Invalid input from the network or from a faulty product neither stops a controller nor takes its rate out of its
//! bounds.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use steadycast_control::registry::ALL;
use steadycast_remote::{
    Bounds, Bytes, Ecn, FrameEdge, MediaQueue, Need, Packet, PacketArrival, PacketResult, PeerTime, Rate, Remote, Span,
    Stream, Time,
};

/// A packet, with its arrival time and mark.
type Word = (Result<u16, u64>, Option<(Option<i64>, u8)>);

#[derive(Clone, Debug)]
enum Op {
    /// Advances the time by this many milliseconds, or to any time.
    On(u64),
    To(u64),
    Sent(u64, bool),
    Padding(u64),
    Uncovered(u64),
    /// A packet counted back from the newest one, or any number.
    Forget(Result<u16, u64>),
    Queued(u64, u64),
    /// Packets counted back from the newest one, or any numbers, with their arrival times.
    Told(Vec<Word>),
    Timer,
}

fn op() -> impl Strategy<Value = Op> {
    // Half of the arrivals are possible in a network.
    let at = prop_oneof![(0..100_000_000_000_i64), any::<i64>(), Just(i64::MAX), Just(i64::MIN)];
    let number =
        prop_oneof![4 => (0..100_u16).prop_map(Ok), 1 => any::<u16>().prop_map(Ok), 1 => any::<u64>().prop_map(Err)];
    let fates = vec((number.clone(), option::of((option::of(at), any::<u8>()))), 0..40);
    prop_oneof![
        10 => (0..200_u64).prop_map(Op::On),
        1 => any::<u64>().prop_map(Op::To),
        20 => (0..1_500_u64, any::<bool>()).prop_map(|(size, last)| Op::Sent(size, last)),
        2 => (0..1_500_u64).prop_map(Op::Padding),
        2 => (0..1_500_u64).prop_map(Op::Uncovered),
        2 => number.clone().prop_map(Op::Forget),
        2 => (any::<u64>(), any::<u64>()).prop_map(|(waiting, age)| Op::Queued(waiting, age)),
        10 => fates.prop_map(Op::Told),
        5 => Just(Op::Timer),
    ]
}

fn remote(name: &str) -> (Remote, Bounds) {
    let mut bounds = Bounds::new(Rate::kbps(50), Rate::mbps(20));
    bounds.offers = vec![Need::Probes];
    (Remote::new(name, &[], &bounds).unwrap(), bounds)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_feedback_stops_a_controller_or_takes_it_out_of_its_bounds(ops in vec(op(), 1..120)) {
        for controller in ALL {
            let (mut remote, bounds) = remote(controller.name);
            let mut now = Time::ZERO;
            let mut newest = 0_u64;
            for op in &ops {
                match op {
                    Op::On(ms) => now += Span::millis(*ms),
                    Op::To(at) => now = Time::from_nanos(*at),
                    Op::Sent(size, last) => {
                        let edge = FrameEdge { first: !last, last: *last };
                        newest = remote.sent(now, &Packet { size: Bytes::new(*size), edge, data_limited: *last });
                    }
                    Op::Padding(size) => newest = remote.sent_extra(now, Stream::Padding, Bytes::new(*size)),
                    Op::Uncovered(size) => newest = remote.sent_uncovered(now, Stream::Repair, Bytes::new(*size)),
                    Op::Forget(number) => {
                        remote.forget(number.map_or_else(|any| any, |back| newest.saturating_sub(u64::from(back))));
                    }
                    Op::Queued(waiting, age) => remote.queued(&MediaQueue {
                        at: now,
                        waiting: Bytes::new(*waiting),
                        age: Span::nanos(*age),
                        frame: None,
                    }),
                    Op::Told(fates) => {
                        let all = fates.iter().map(|(number, arrived)| PacketResult {
                            number: number.map_or_else(|any| any, |back| newest.saturating_sub(u64::from(back))),
                            arrived: arrived.map(|(at, ecn)| PacketArrival {
                                at: at.map(PeerTime::from_nanos),
                                ecn: Some(Ecn::from_bits(ecn)),
                            }),
                        });
                        remote.feedback(now, all);
                    }
                    Op::Timer => remote.timer(now),
                }
                let decision = remote.decision();
                let in_bounds = (bounds.floor..=bounds.cap).contains(&decision.target);
                prop_assert!(in_bounds, "{}: {decision:?}", controller.name);
            }
        }
    }
}

/// Sends `packets`, one every 10 ms, with feedback about each after 50 ms that `lies` may change. Returns the final
/// target.
fn driven(name: &str, packets: u64, lies: impl Fn(u64, PacketResult) -> Vec<PacketResult>) -> Rate {
    let (mut remote, bounds) = remote(name);
    let mut calls = 0_u32;
    for n in 0..packets {
        let now = Time::ZERO + Span::millis(10) * (n + 10);
        while remote.wake().is_some_and(|wake| wake.at <= now) {
            remote.timer(now);
            calls += 1;
        }
        let number = remote.sent(now, &Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false });
        assert_eq!((number, remote.number(n as u16)), (n, Some(n)));
        if let Some(told) = n.checked_sub(5) {
            let at = PeerTime::from_nanos(((told + 10) * 10_000_000 + 25_000_000) as i64);
            remote.feedback(now, lies(told, PacketResult::at(told, at)));
        }
    }
    assert!(u64::from(calls) < packets * 4, "{name} wakes {calls} times for {packets} packets");
    remote.decision().target
}

#[test]
fn what_is_told_twice_or_was_never_sent_changes_nothing() {
    for name in ["tfrc", "asmp", "gcc", "scream", "nada"] {
        let honest = driven(name, 2_000, |_, fate| vec![fate]);
        let twice = driven(name, 2_000, |told, fate| {
            let never = [PacketResult::at(u64::MAX, PeerTime::from_nanos(0)), PacketResult::missing(told + 70_000)];
            let again = PacketResult::at(told.saturating_sub(3), PeerTime::from_nanos(i64::MAX));
            [vec![fate, again, fate], never.to_vec()].concat()
        });
        assert_eq!(honest, twice, "{name}");
    }
}

#[test]
fn numbers_of_16_bits_name_the_newest_packet_beyond_their_wrap() {
    let (mut remote, bounds) = remote("tfrc");
    assert_eq!(remote.number(0), None);
    let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };
    let last = (0..70_000_u64).map(|n| remote.sent(Time::ZERO + Span::millis(n), &packet)).last();
    assert_eq!(last, Some(69_999));
    assert_eq!(remote.number(69_999_u64 as u16), Some(69_999));
    assert_eq!(remote.number(65_535), Some(65_535));
    assert_eq!(remote.number(60_000), Some(60_000));
    // One packet was forgotten, and one is not sent yet.
    assert_eq!((remote.number(50_000), remote.number(70_000_u64 as u16)), (None, None));
}

#[test]
fn a_receiver_clock_that_is_set_back_or_forward_is_followed_within_a_report() {
    for shift in [-3_600_000_000_000_i64, 3_600_000_000_000] {
        for name in ["tfrc", "asmp"] {
            let honest = driven(name, 3_000, |_, fate| vec![fate]);
            let shifted = driven(name, 3_000, |told, fate| {
                let Some(PacketArrival { at: Some(at), .. }) = fate.arrived else { return vec![fate] };
                let at = at.as_nanos() + if told > 1_000 { shift } else { 0 };
                vec![PacketResult::at(told, PeerTime::from_nanos(at))]
            });
            let ratio = shifted.ratio(honest);
            assert!((0.5..=2.0).contains(&ratio), "{name}, {shift}: {shifted} instead of {honest}");
        }
    }
}

#[test]
fn silence_lowers_the_rate() {
    for controller in ALL.iter().filter(|c| !["fixed", "rbuf-type1", "rbuf-type2", "no-control"].contains(&c.name)) {
        let (mut remote, bounds) = remote(controller.name);
        let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };
        let mut before = Rate::ZERO;
        for n in 0..6_000_u64 {
            let now = Time::ZERO + Span::millis(10) * n;
            if remote.wake().is_some_and(|wake| wake.at <= now) {
                remote.timer(now);
            }
            let number = remote.sent(now, &packet);
            if n < 2_000 {
                remote.feedback(now, [PacketResult::at(number, PeerTime::from_nanos(now.as_nanos() as i64))]);
                before = remote.decision().target;
            }
        }
        let after = remote.decision();
        let closed = after.window.is_some_and(|window| window.is_closed());
        assert!(after.target < before.scale(0.6) || closed, "{}: {before} and {after:?}", controller.name);
    }
}

#[test]
fn bounds_that_no_rate_can_keep_are_refused_with_a_remedy() {
    let refused = |bounds: &Bounds, name: &str| Remote::new(name, &[], bounds).unwrap_err().to_string();
    let crossed = Bounds::new(Rate::mbps(2), Rate::mbps(1));
    assert!(refused(&crossed, "tfrc").contains("above the cap"));
    let plain = Bounds::new(Rate::kbps(50), Rate::mbps(1));
    assert!(refused(&plain, "gcc").contains("it needs probes"), "{}", refused(&plain, "gcc"));
    for (name, refuses) in [("scream", true), ("pgmcc", true), ("lda-plus", true), ("steady", false), ("tfrc", false)] {
        let mut late = Bounds::new(Rate::kbps(50), Rate::mbps(1));
        late.feedback.late = true;
        let made = Remote::new(name, &[], &late).map_err(|problem| problem.to_string());
        assert_eq!(made.is_err(), refuses, "{made:?}");
        assert!(made.is_ok() || made.unwrap_err().contains("told of with their feedback alone"), "{name}");
    }
    for (name, ms, refuses) in
        [("pgmcc", 250, true), ("pgmcc", 100, false), ("scream", 250, false), ("lda-plus", 250, false)]
    {
        let mut rare = Bounds::new(Rate::kbps(50), Rate::mbps(1));
        rare.feedback.interval = Span::millis(ms);
        let made = Remote::new(name, &[], &rare).map_err(|problem| problem.to_string());
        assert_eq!(made.is_err(), refuses, "{made:?}");
        assert!(made.is_ok() || made.unwrap_err().contains("feedback comes every 250"), "{name}");
    }
    let mut empty = plain;
    empty.packet = Bytes::ZERO;
    assert!(refused(&empty, "tfrc").contains("packet: it has no size"));
}

#[test]
fn a_packet_that_is_told_with_its_feedback_counts_from_when_it_left() {
    let rtt = |late: bool| {
        let (mut remote, bounds) = remote("tfrc");
        let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };
        // 60 ms there, 20 ms back, and a report on each fifth packet.
        for n in 0..1_000_u64 {
            let left = |n: u64| Time::ZERO + Span::millis(10) * (n + 10);
            if !late {
                remote.sent(left(n), &packet);
            }
            let Some(told) = n.checked_sub(8).filter(|told| told % 5 == 4) else { continue };
            if late {
                (told - 4..=told).for_each(|n| _ = remote.sent(left(n), &packet));
            }
            let at = |n: u64| PeerTime::from_nanos((left(n) + Span::millis(60)).as_nanos() as i64);
            remote.feedback(left(n), (told - 4..=told).map(|n| PacketResult::at(n, at(n))));
        }
        remote.decision().why.rtt
    };
    for rtt in [rtt(false), rtt(true)] {
        assert!(rtt.is_some_and(|rtt| rtt >= Span::millis(79) && rtt <= Span::millis(85)), "{rtt:?}");
    }
}

#[test]
fn feedback_that_is_rarer_than_round_trips_is_no_silence() {
    for controller in ["tfrc", "asmp", "multfrc"] {
        let (mut remote, bounds) = remote(controller);
        let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };
        let mut least = Rate::MAX;
        // 2 ms of round trip, and feedback each 100 ms.
        for ms in 0..20_000_u64 {
            let now = Time::ZERO + Span::millis(ms);
            if remote.wake().is_some_and(|wake| wake.at <= now) {
                remote.timer(now);
            }
            if ms % 2 == 0 {
                remote.sent(now, &packet);
            }
            if ms % 100 == 99 {
                let last = ms / 2;
                let at = |n: u64| PeerTime::from_nanos((n * 2_000_000 + 1_000_000) as i64);
                remote.feedback(now + Span::millis(1), (last - 49..=last).map(|n| PacketResult::at(n, at(n))));
            }
            if ms > 5_000 {
                least = least.min(remote.decision().target);
            }
        }
        // It sends 4.8 Mb/s without any loss.
        assert!(least > Rate::mbps(4), "{controller}: {least}");
    }
}
