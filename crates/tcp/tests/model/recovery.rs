use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Preset};
use steadycast_units::{Bytes, Rate, Span};

const ALL: [Congestion; 4] = [Congestion::Reno, Congestion::NewReno, Congestion::Sack, Congestion::Cubic];

/// Returns a path with an RTT of 100 ms and a link on which 20 segments take 2 ms.
fn long_and_fast() -> Path {
    Path::new(Rate::mbps(100), Span::millis(50), 1000)
}

fn finite(congestion: Congestion, segments: u64) -> Config {
    let config = Config::new(Preset::Ns2, congestion);
    let sack = config.sack || congestion == Congestion::Cubic;
    Config { bytes: Some(Bytes::new(segments * 1000)), sack, ..config }
}

#[test]
fn one_loss_is_repaired_without_a_timeout_in_every_variant() {
    for congestion in ALL {
        let path = Path { drop: vec![(150, 1)], ..long_and_fast() };
        let mut run = Run::new(&finite(congestion, 400), &path);
        run.until(at(60.0));
        assert!(run.sender.completed.is_some(), "{congestion:?}");
        assert_eq!(run.sender.timeouts, 0, "{congestion:?}");
        assert_eq!(run.sender.retransmitted, 1, "{congestion:?}");
        assert_eq!(run.sender.fast_recoveries(), 1, "{congestion:?}");
        assert_eq!(run.receiver.duplicates(), 0, "{congestion:?}");
    }
}

/// Returns the round trips from the first retransmission until all lost segments are acknowledged.
fn repair_round_trips(congestion: Congestion, lost: &[u32]) -> (f64, u64) {
    let path = Path { drop: lost.iter().map(|n| (*n, 1)).collect(), ..long_and_fast() };
    let config = Config { impatient: false, ..finite(congestion, 600) };
    let mut run = Run::new(&config, &path);
    run.until(at(60.0));
    let first = run.sent.iter().find(|d| d.segment.retransmission).expect("a repair").at;
    let last = *lost.last().expect("losses");
    let healed = run.acks.iter().find(|(_, ack)| ack.next > last).expect("healed").0;
    (healed.since(first).as_secs_f64() / 0.1, run.sender.timeouts)
}

#[test]
fn newreno_takes_a_round_trip_per_loss_and_sack_takes_one() {
    // 191 is the first of a burst of 20: the other 19 reveal the losses within one round trip.
    for k in 1..=5u32 {
        let lost: Vec<u32> = (0..k).map(|i| 191 + 2 * i).collect();
        let (newreno, timeouts) = repair_round_trips(Congestion::NewReno, &lost);
        assert_eq!(timeouts, 0);
        assert_between(newreno, f64::from(k) - 0.05, f64::from(k) + 0.1);
        let (sack, timeouts) = repair_round_trips(Congestion::Sack, &lost);
        assert_eq!(timeouts, 0);
        assert_between(sack, 0.95, 1.15);
    }
}

#[test]
fn reno_times_out_on_many_losses_in_a_window_where_newreno_and_sack_do_not() {
    let path = Path { drop: vec![(200, 1), (203, 1), (206, 1), (209, 1)], ..long_and_fast() };
    let timeouts = |congestion| {
        let mut run = Run::new(&Config { impatient: false, ..finite(congestion, 600) }, &path);
        run.until(at(60.0));
        assert!(run.sender.completed.is_some());
        run.sender.timeouts
    };
    assert_eq!(timeouts(Congestion::Reno), 1);
    assert_eq!(timeouts(Congestion::NewReno), 0);
    assert_eq!(timeouts(Congestion::Sack), 0);
}

#[test]
fn a_segment_that_two_others_overtake_is_not_sent_again_and_one_that_four_overtake_is() {
    for congestion in ALL {
        let config = Config { window: 60, ..finite(congestion, 1000) };
        let one = config.packet.at(Rate::mbps(2));
        for (overtaken, repeated) in [(1, 0), (2, 0), (4, 1)] {
            let by = Span::nanos(one.as_nanos() * overtaken + one.as_nanos() / 2);
            let late = vec![(300, by), (450, by), (700, by)];
            let path = Path { late, ..Path::new(Rate::mbps(2), Span::millis(20), 1000) };
            let mut run = Run::new(&config, &path);
            run.until(at(60.0));
            assert!(run.sender.completed.is_some());
            if congestion == Congestion::NewReno && repeated > 0 {
                // Each acknowledgment after the false alarm is below `recover`, so each looks like a further loss.
                assert_between(run.sender.retransmitted as f64, 60.0, 180.0);
            } else {
                assert_eq!(run.sender.retransmitted, 3 * repeated, "{congestion:?}, {overtaken} overtake");
            }
            assert_eq!(run.receiver.duplicates(), run.sender.retransmitted);
        }
    }
}

#[test]
fn limited_transmit_saves_a_small_window_from_a_timeout() {
    // Four segments are in flight and one is lost. Two duplicates arrive, each lets a new segment out, and these
    // cause the third duplicate.
    for congestion in ALL {
        let config = Config { window: 8, initial_ssthresh: Some(3), ..finite(congestion, 60) };
        let mut run = Run::new(&config, &Path { drop: vec![(4, 1)], ..long_and_fast() });
        run.until(at(60.0));
        assert!(run.sender.completed.is_some());
        assert_eq!((run.sender.retransmitted, run.sender.timeouts), (1, 0), "{congestion:?}");
    }
}

#[test]
fn marks_reduce_the_window_once_per_round_trip_and_lose_nothing() {
    for congestion in ALL {
        let config = Config { ecn: true, window: 64, ..Config::new(Preset::Ns2, congestion) };
        let mut run = Run::new(&config, &Path { mark: 1.0, ..long_and_fast() });
        run.until(at(20.0));
        assert_between(run.sender.marks_answered as f64, 90.0, 202.0);
        assert_between(run.sender.cwnd, 1.0, 2.0);
        assert_eq!((run.sender.retransmitted, run.sender.timeouts), (0, 0));

        let mut run = Run::new(&config, &Path { mark: 0.01, ..long_and_fast() });
        run.until(at(200.0));
        let sparse = run.receiver.distinct_segments as f64 / 200.0;
        // sqrt(3/2p)/RTT with CUBIC's and the others' reductions.
        assert_between(sparse, 95.0, 200.0);
        assert_eq!(run.sender.retransmitted, 0);
    }
}

#[test]
fn without_ecn_a_mark_changes_nothing() {
    let config = Config { window: 64, ..finite(Congestion::NewReno, 500) };
    let end = |mark| {
        let mut run = Run::new(&config, &Path { mark, ..long_and_fast() });
        run.until(at(60.0));
        run.sender.completed
    };
    assert_eq!(end(1.0), end(0.0));
}

#[test]
fn a_finite_transfer_ends_with_its_last_byte() {
    let config = Config { bytes: Some(Bytes::new(10_500)), ..Config::new(Preset::Ns2, Congestion::NewReno) };
    let mut run = Run::new(&config, &long_and_fast());
    run.until(at(60.0));
    // The SYN, ten full segments, one of 500 B.
    assert_eq!(run.receiver.distinct_segments, 12);
    assert_eq!(run.receiver.distinct, Bytes::new(40 + 10 * 1040 + 540));
    assert_eq!(run.sender.wake(), None);
    // One round trip to open, then 2, 4 and 5 segments.
    assert_between(run.sender.completed.expect("done").as_secs_f64(), 0.4, 0.402);
}

#[test]
fn an_empty_transfer_is_done_at_once() {
    let config = Config { bytes: Some(Bytes::ZERO), ..Config::new(Preset::Ns2, Congestion::NewReno) };
    let mut run = Run::new(&config, &long_and_fast());
    run.until(at(1.0));
    assert_eq!((run.sender.sent, run.sender.completed), (0, Some(at(0.0))));
}

#[test]
fn proportional_reduction_keeps_sending_where_the_plain_pipe_falls_silent() {
    // 1.04 ms per segment; 77 fill the path.
    let path = Path { drop: vec![(1500, 1)], ..Path::new(Rate::mbps(8), Span::millis(40), 1000) };
    let recovery = |proportional_reduction, congestion| {
        let config =
            Config { proportional_reduction, window: 400, initial_ssthresh: Some(80), ..finite(congestion, 3000) };
        let mut run = Run::new(&config, &path);
        run.until(at(60.0));
        assert_eq!((run.sender.retransmitted, run.sender.timeouts), (1, 0));
        let repair = run.sent.iter().position(|d| d.segment.retransmission).expect("a repair");
        let gaps = run.sent[repair..repair + 60].windows(2).map(|pair| pair[1].at.since(pair[0].at));
        let begun = run.sent[repair].at;
        let before = run.windows.iter().rev().find(|w| w.0 < begun).expect("before").1;
        let after = run.windows.iter().find(|w| w.0 > begun + Span::millis(150)).expect("after").1;
        (gaps.max().expect("gaps").as_millis_f64() / 1.04, before, after / before)
    };
    for (congestion, share) in [(Congestion::Sack, 0.5), (Congestion::Cubic, 0.7)] {
        let (silence, before, end) = recovery(false, congestion);
        assert_between(silence, before * (1.0 - share) - 4.0, before * (1.0 - share) + 1.0);
        assert_between(end, share - 0.01, share + 0.03);
        let (silence, _, end) = recovery(true, congestion);
        assert_between(silence, 1.0, 3.1);
        assert_between(end, share - 0.01, share + 0.03);
    }
}
