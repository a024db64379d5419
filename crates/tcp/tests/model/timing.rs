use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Preset, Why};
use steadycast_units::{Rate, Span};

#[test]
fn a_full_window_carries_window_per_round_trip() {
    for (window, delay) in [(20, 50), (20, 100), (50, 50)] {
        let config = Config { window, ..Config::new(Preset::Ns2, Congestion::NewReno) };
        let mut run = Run::new(&config, &Path::new(Rate::mbps(100), Span::millis(delay), 1000));
        run.until(at(100.0));
        let before = run.receiver.distinct_segments();
        run.until(at(200.0));
        let rate = (run.receiver.distinct_segments() - before) as f64 / 100.0;
        let rtt = 2.0 * delay as f64 / 1e3 + 1040.0 * 8.0 / 100e6;
        assert_between(rate * rtt / f64::from(window), 0.99, 1.01);
        assert_eq!(run.last_why, Some(Why::ReceiverWindow));
    }
}
