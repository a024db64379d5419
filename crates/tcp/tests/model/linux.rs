//! The behaviour of the preset `Linux`, as in a kernel.

use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Preset};
use steadycast_units::{Rate, Span};

/// 4 Mb/s, 40 ms and a queue of 50 segments.
fn run(change: impl Fn(&mut Config)) -> Run {
    let mut config = Config::new(Preset::Linux, Congestion::Reno);
    change(&mut config);
    let mut run = Run::new(&config, &Path::new(Rate::mbps(4), Span::millis(20), 50));
    run.until(at(40.0));
    run
}

/// Returns the segments of each unit that left from second 5 on: those with the same departure.
fn bursts(run: &Run) -> Vec<usize> {
    let sent: Vec<_> = run.sent.iter().filter(|d| d.at > at(5.0)).collect();
    sent.chunk_by(|a, b| a.at == b.at).map(<[_]>::len).collect()
}

fn share(of: &[usize], length: usize) -> f64 {
    of.iter().filter(|n| **n == length).count() as f64 / of.len() as f64
}

#[test]
fn new_segments_leave_in_pairs_and_now_and_then_alone() {
    let with = bursts(&run(|_| ()));
    assert_between(share(&with, 2), 0.75, 0.95);
    assert_between(share(&with, 1), 0.04, 0.20);
}

#[test]
fn the_end_of_a_unit_is_marked_and_acknowledged_at_once() {
    let run = run(|_| ());
    let pushed = run.sent.iter().filter(|d| d.segment.push).count() as f64;
    assert_between(pushed / run.sent.len() as f64, 0.40, 0.50);
    let single = |run: &Run| {
        let steps = run.acks.windows(2).filter(|w| w[0].0 > at(5.0) && w[1].1.sacks[0].is_empty());
        let steps: Vec<usize> = steps.map(|w| (w[1].1.next - w[0].1.next) as usize).collect();
        share(&steps, 1)
    };
    let without = self::run(|config| config.offload = false);
    assert_between(single(&run), 0.012, 0.10);
    assert_between(single(&without), 0.0, 0.01);
    assert!(without.sent.iter().all(|d| !d.segment.push));
}

#[test]
fn units_grow_with_the_rate_and_on_short_ways() {
    let longest = |rate, delay| {
        let config = Config { initial_ssthresh: Some(2000), ..Config::new(Preset::Linux, Congestion::Reno) };
        let mut run = Run::new(&config, &Path::new(rate, delay, 10_000));
        run.until(at(3.0));
        let mut length = 0;
        let units = run.sent.iter().filter(|d| d.at > at(2.0)).map(|d| {
            length = if d.segment.push { 0 } else { length + 1 };
            length + 1
        });
        units.max().unwrap_or(0)
    };
    assert_between(f64::from(longest(Rate::mbps(4), Span::millis(20))), 2.0, 3.0);
    assert_between(f64::from(longest(Rate::mbps(400), Span::millis(20))), 20.0, 60.0);
}

#[test]
fn the_window_is_a_whole_number_and_grows_by_one_for_each_window_acknowledged() {
    for congestion in [Congestion::Reno, Congestion::Cubic] {
        let run = run(|config| config.congestion = congestion);
        assert!(run.windows.iter().all(|(_, cwnd, _)| cwnd.fract() == 0.0), "{congestion}");
    }
    let run = run(|_| ());
    let late: Vec<_> = run.windows.iter().filter(|(t, cwnd, ssthresh)| *t > at(5.0) && cwnd >= ssthresh).collect();
    assert!(late.windows(2).all(|w| w[1].1 - w[0].1 <= 1.0));
}
