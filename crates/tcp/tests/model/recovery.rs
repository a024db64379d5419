use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Preset};
use steadycast_units::{Bytes, Rate, Span};

const ALL: [Congestion; 4] = [Congestion::Reno, Congestion::NewReno, Congestion::Sack, Congestion::Cubic];

/// 100 ms of round trip, and a link on which 20 segments take 2 ms.
fn long_and_fast() -> Path {
    Path::new(Rate::mbps(100), Span::millis(50), 1000)
}

fn finite(congestion: Congestion, segments: u64) -> Config {
    Config { bytes: Some(Bytes::new(segments * 1000)), ..Config::new(Preset::Ns2, congestion) }
}

#[test]
fn one_loss_is_repaired_without_a_timeout_in_every_variant() {
    for congestion in ALL {
        let path = Path { drop: vec![(150, 1)], ..long_and_fast() };
        let mut run = Run::new(&finite(congestion, 400), &path);
        run.until(at(60.0));
        assert!(run.sender.completed().is_some(), "{congestion:?}");
        assert_eq!(run.sender.timeouts(), 0, "{congestion:?}");
        assert_eq!(run.sender.retransmitted(), 1, "{congestion:?}");
        assert_eq!(run.sender.fast_recoveries(), 1, "{congestion:?}");
        assert_eq!(run.receiver.duplicates(), 0, "{congestion:?}");
    }
}

/// Round trips from the first repair until everything that was lost is acknowledged.
fn repair_round_trips(congestion: Congestion, lost: &[u32]) -> (f64, u64) {
    let path = Path { drop: lost.iter().map(|n| (*n, 1)).collect(), ..long_and_fast() };
    let config = Config { impatient: false, ..finite(congestion, 600) };
    let mut run = Run::new(&config, &path);
    run.until(at(60.0));
    let first = run.sent.iter().find(|d| d.segment.retransmission).expect("a repair").at;
    let last = *lost.last().expect("losses");
    let healed = run.acks.iter().find(|(_, ack)| ack.next > last).expect("healed").0;
    (healed.since(first).as_secs_f64() / 0.1, run.sender.timeouts())
}

#[test]
fn newreno_takes_a_round_trip_per_loss_and_sack_takes_one() {
    // 191 is the first of a burst of 20: the other 19 tell of the losses within one round trip.
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
        assert!(run.sender.completed().is_some());
        run.sender.timeouts()
    };
    assert_eq!(timeouts(Congestion::Reno), 1);
    assert_eq!(timeouts(Congestion::NewReno), 0);
    assert_eq!(timeouts(Congestion::Sack), 0);
}
