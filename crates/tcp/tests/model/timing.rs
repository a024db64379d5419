use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Ecn, Preset, Receiver, RtoFloor, Segment};
use steadycast_units::{Bytes, Rate, Span, Time};

fn one_hop() -> Path {
    Path::new(Rate::mbps(100), Span::millis(50), 1000)
}

/// Returns the times at which segment `seq` was sent.
fn departures(run: &Run, seq: u32) -> Vec<f64> {
    run.sent.iter().filter(|d| d.segment.seq == seq).map(|d| d.at.as_secs_f64()).collect()
}

#[test]
fn timeouts_back_off_by_two_up_to_the_maximum_and_the_path_recovers() {
    for congestion in [Congestion::NewReno, Congestion::Sack] {
        let config =
            Config { bytes: Some(Bytes::new(100_000)), max_rto: Span::secs(2), ..Config::new(Preset::Ns2, congestion) };
        // The last segment is lost, so no duplicate acknowledgment can reveal it.
        let mut run = Run::new(&config, &Path { drop: vec![(100, 7)], ..one_hop() });
        run.until(at(60.0));
        let at = departures(&run, 100);
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps.len(), 7);
        // The timer restarts with each acknowledgment before the last: the first gap is up to a round trip longer.
        assert_between(gaps[0], 0.2, 0.35);
        for (gap, expected) in gaps[1..].iter().zip([0.4, 0.8, 1.6, 2.0, 2.0, 2.0]) {
            assert_between(*gap / expected, 0.999, 1.001);
        }
        assert_eq!(run.sender.timeouts, 7);
        assert!(run.sender.completed.is_some());
    }
}

#[test]
fn a_lost_first_segment_is_repeated_after_the_initial_timeout_and_the_window_then_opens_by_one() {
    for (preset, wait) in [(Preset::Ns2, 3.0), (Preset::Linux, 1.0)] {
        let config = Config::new(preset, Congestion::NewReno);
        let mut run = Run::new(&config, &Path { drop: vec![(0, 1)], ..one_hop() });
        run.until(at(wait + 0.15));
        assert_eq!(departures(&run, 0), vec![0.0, wait]);
        assert_eq!((run.sender.sent, run.sender.cwnd), (3, 1.0));
    }
}

#[test]
fn the_round_trip_is_measured_in_whole_ticks_where_there_is_a_tick() {
    let measured = |tick, path: &Path| {
        let config = Config { tick, ..Config::new(Preset::Ns2, Congestion::NewReno) };
        let mut run = Run::new(&config, path);
        run.until(at(30.0));
        (run.sender.srtt().expect("a sample"), run.sender.rto())
    };
    let (exact, rto) = measured(Span::ZERO, &one_hop());
    assert_between(exact.as_millis_f64(), 100.08, 100.1);
    assert_between(rto.as_millis_f64(), 200.0, 200.0);
    let (coarse, rto) = measured(Span::millis(100), &one_hop());
    assert_between(coarse.as_millis_f64(), 99.0, 201.0);
    assert_eq!(rto.as_nanos() % 100_000_000, 0);
    // 250 ms: longer than the minimum time-out.
    let (_, rto) = measured(Span::millis(10), &Path { delay: Span::millis(125), ..one_hop() });
    assert_between(rto.as_millis_f64(), 250.0, 320.0);
    assert_eq!(rto.as_nanos() % 10_000_000, 0);
}

#[test]
fn linux_adds_the_minimum_to_the_round_trip_and_the_rfc_takes_the_larger() {
    let rto = |rto_floor| {
        let config = Config { rto_floor, delayed_ack: false, ..Config::new(Preset::Linux, Congestion::NewReno) };
        let mut run = Run::new(&config, &Path::new(Rate::mbps(10), Span::millis(50), 1000));
        run.until(at(0.35));
        run.sender.rto().as_millis_f64()
    };
    assert_between(rto(RtoFloor::Variance), 300.0, 330.0);
    assert_between(rto(RtoFloor::Whole), 200.0, 300.0);
}

fn segment(seq: u32, sent: Time) -> Segment {
    Segment { seq, len: Bytes::new(1040), sent, retransmission: false, cwr: false, push: false, ecn: Ecn::NotEct }
}

#[test]
fn an_acknowledgment_waits_for_a_second_segment_or_the_timer_but_never_beside_a_gap() {
    let config = Config { delayed_ack: true, ..Config::new(Preset::Ns2, Congestion::Sack) };
    let mut receiver = Receiver::new(&config);
    let ms = |n| Time::ZERO + Span::millis(n);
    assert_eq!(receiver.on_segment(ms(0), &segment(0, ms(0))), None);
    assert_eq!(receiver.wake(), Some(ms(100)));
    assert_eq!(receiver.on_timer(ms(99)), None);
    assert_eq!(receiver.on_timer(ms(100)).map(|ack| ack.next), Some(1));
    assert_eq!(receiver.wake(), None);
    assert_eq!(receiver.on_timer(ms(200)), None);
    // Of two segments in order, the second triggers the acknowledgment, which echoes the time stamp of the first.
    assert_eq!(receiver.on_segment(ms(210), &segment(1, ms(201))), None);
    let ack = receiver.on_segment(ms(220), &segment(2, ms(202))).expect("the second");
    assert_eq!((ack.next, ack.echo), (3, ms(201)));
    // A gap, segments beyond it, a duplicate and the end of the gap are acknowledged immediately.
    let blocks = |receiver: &mut Receiver, seq| {
        let ack = receiver.on_segment(ms(230), &segment(seq, ms(225))).expect("at once");
        let blocks: Vec<_> = ack.sacks.iter().filter(|b| !b.is_empty()).map(|b| (b.start, b.end)).collect();
        (ack.next, blocks)
    };
    assert_eq!(blocks(&mut receiver, 4), (3, vec![(4, 5)]));
    assert_eq!(blocks(&mut receiver, 8), (3, vec![(8, 9), (4, 5)]));
    assert_eq!(blocks(&mut receiver, 6), (3, vec![(6, 7), (8, 9), (4, 5)]));
    assert_eq!(blocks(&mut receiver, 10), (3, vec![(10, 11), (6, 7), (8, 9)]));
    assert_eq!(blocks(&mut receiver, 5), (3, vec![(4, 7), (10, 11), (8, 9)]));
    assert_eq!(blocks(&mut receiver, 5), (3, vec![(4, 7), (10, 11), (8, 9)]));
    assert_eq!(blocks(&mut receiver, 3), (7, vec![(10, 11), (8, 9)]));
    assert_eq!(blocks(&mut receiver, 7), (9, vec![(10, 11)]));
    assert_eq!(blocks(&mut receiver, 9), (11, vec![]));
    assert_eq!((receiver.distinct_segments, receiver.duplicates()), (11, 1));
    assert_eq!(receiver.on_segment(ms(240), &segment(11, ms(239))), None);
}

#[test]
fn delayed_acknowledgments_halve_their_number_and_slow_the_growth_of_a_counter_of_acknowledgments() {
    let run = |delayed_ack, byte_counting| {
        let config = Config {
            delayed_ack,
            byte_counting,
            window: 2000,
            initial_ssthresh: Some(10),
            ..Config::new(Preset::Ns2, Congestion::NewReno)
        };
        let mut run = Run::new(&config, &one_hop());
        run.until(at(10.0));
        (run.acks.len() as f64 / run.receiver.distinct_segments as f64, run.sender.cwnd)
    };
    let (each, every) = (run(false, false), run(true, false));
    assert_between(each.0, 0.9, 1.0);
    assert_between(every.0, 0.45, 0.56);
    assert_between(each.1 - 10.0, 90.0, 100.0); // one per round trip
    assert_between(every.1 - 10.0, 42.0, 50.0); // one per two
    assert_between(run(true, true).1 - 10.0, 88.0, 100.0);
}
