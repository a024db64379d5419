use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Hystart, Preset, SendLimit};
use steadycast_units::{Bytes, Rate, Span};

fn wide() -> Path {
    Path::new(Rate::bps(10_000_000_000), Span::millis(50), 100_000)
}

#[test]
fn a_full_window_carries_window_per_round_trip() {
    for (window, delay) in [(20, 50), (20, 100), (50, 50)] {
        let config = Config { window, ..Config::new(Preset::Ns2, Congestion::NewReno) };
        let mut run = Run::new(&config, &Path::new(Rate::mbps(100), Span::millis(delay), 1000));
        run.until(at(100.0));
        let before = run.receiver.distinct_segments;
        run.until(at(200.0));
        let rate = (run.receiver.distinct_segments - before) as f64 / 100.0;
        let rtt = 2.0 * delay as f64 / 1e3 + 1040.0 * 8.0 / 100e6;
        assert_between(rate * rtt / f64::from(window), 0.99, 1.01);
        assert_eq!(run.last_limit, Some(SendLimit::ReceiverWindow));
        assert_between(run.sender.cwnd, f64::from(window), f64::from(window));
    }
}

#[test]
fn slow_start_doubles_per_round_trip_from_the_initial_window() {
    for congestion in [Congestion::Reno, Congestion::NewReno, Congestion::Sack, Congestion::Cubic] {
        let config = Config { window: 4000, ..Config::new(Preset::Ns2, congestion) };
        let mut run = Run::new(&config, &wide());
        run.until(at(1.09));
        // The SYN is sent in the first round, and the initial window in the second one.
        for (round, expected) in (0..11).zip([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]) {
            let in_round = |d: f64| (d / 0.1) as u32 == round;
            let sent = run.sent.iter().filter(|d| in_round(d.at.as_secs_f64())).count();
            assert_eq!(sent, expected, "{congestion:?}, round {round}");
        }
    }
}

#[test]
fn congestion_avoidance_of_reno_grows_by_one_per_round_trip_and_halves_at_a_loss() {
    let config = Config { window: 1000, initial_ssthresh: Some(20), ..Config::new(Preset::Ns2, Congestion::NewReno) };
    let mut run = Run::new(&config, &Path { drop: vec![(2000, 1)], ..wide() });
    run.until(at(15.0));
    let before = run.windows.iter().rev().find(|(_, cwnd, ssthresh)| cwnd > ssthresh && *ssthresh == 20.0);
    let (lost_at, before, _) = *before.expect("congestion avoidance");
    let halved = run.windows.iter().find(|(at, _, _)| *at > lost_at).expect("later").1;
    assert_between(halved / before, 0.499, 0.501);
    let end = run.sender.cwnd;
    let round_trips = (15.0 - lost_at.as_secs_f64()) / 0.1;
    assert_between((end - halved) / (round_trips - 1.0), 0.95, 1.02);
}

/// Causes a loss at about `w_max` segments. Returns the window before, and (seconds since the epoch, cwnd)
/// afterwards.
fn cubic_after_loss(round_trip: Span, threshold: u32, drop: u32) -> (f64, Vec<(f64, f64)>) {
    let config = Config {
        window: 100_000,
        initial_ssthresh: Some(threshold),
        tick: Span::ZERO,
        ..Config::new(Preset::Ns2, Congestion::Cubic)
    };
    let path = Path { drop: vec![(drop, 1)], delay: round_trip / 2, ..wide() };
    let mut run = Run::new(&config, &path);
    run.until(at(round_trip.as_secs_f64() * 250.0));
    let cut = run.windows.windows(2).position(|pair| pair[1].1 < pair[0].1).expect("a reduction");
    let before = run.windows[cut].1;
    // The epoch starts with the first growth.
    let epoch = run.windows[cut + 1..].windows(2).position(|pair| pair[1].1 > pair[0].1).expect("growth") + cut + 2;
    let start = run.windows[epoch].0;
    let after = run.windows[epoch..].iter().map(|(at, cwnd, _)| (at.since(start).as_secs_f64(), *cwnd)).collect();
    (before, after)
}

#[test]
fn cubic_follows_the_curve_of_its_rfc_on_both_sides_of_the_plateau() {
    let (w_max, after) = cubic_after_loss(Span::millis(100), 400, 8000);
    let k = libm::cbrt(w_max * 0.3 / 0.4);
    assert_between(k, 6.0, 8.0);
    let mut below = 0;
    let mut above = 0;
    for (t, cwnd) in after.iter().filter(|(t, _)| *t > 0.3 && *t < 12.0) {
        let curve = 0.4 * (t - k) * (t - k) * (t - k) + w_max;
        assert_between(cwnd / curve, 0.99, 1.01);
        below += u32::from(*t < k);
        above += u32::from(*t > k);
    }
    assert!(below > 1000 && above > 1000);
}

#[test]
fn cubic_on_a_short_path_grows_like_reno() {
    let (before, after) = cubic_after_loss(Span::millis(10), 40, 2000);
    let window_at = |t: f64| after.iter().rev().find(|(at, _)| *at <= t).expect("a window").1;
    // Up to the window before the loss, the window grows by 0.529 segments per round trip.
    let rounds = (before * 0.3 / 0.529) * 0.8;
    let grown = window_at(rounds * 0.01) - window_at(0.0);
    assert_between(grown / rounds, 0.50, 0.54);
    // Beyond it, the window grows by one segment per round trip.
    let from = before * 0.3 / 0.529 * 1.3;
    let grown = window_at((from + 50.0) * 0.01) - window_at(from * 0.01);
    assert_between(grown / 50.0, 0.95, 1.05);
}

#[test]
fn cubic_reduces_by_three_tenths_and_aims_lower_at_a_second_loss_on_the_way_up() {
    let config = Config { window: 100_000, initial_ssthresh: Some(400), ..Config::new(Preset::Ns2, Congestion::Cubic) };
    let mut run = Run::new(&config, &Path { drop: vec![(8000, 1), (12_000, 1)], ..wide() });
    run.until(at(25.0));
    let cuts: Vec<(f64, f64)> = run.windows.windows(2).filter(|p| p[1].1 < p[0].1).map(|p| (p[0].1, p[1].1)).collect();
    assert_eq!(cuts.len(), 2);
    for (before, after) in &cuts {
        assert_between(after / before, 0.699, 0.701);
    }
    assert!(cuts[1].0 < cuts[0].0);
    // The slowest growth marks the plateau. Without fast convergence it would be at the window before the second loss.
    let later: Vec<f64> = run.windows.iter().filter(|(t, _, _)| *t > at(5.0)).map(|w| w.1).step_by(500).collect();
    let slowest = later.windows(2).min_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0]))).expect("growth")[0];
    assert_between(slowest / cuts[1].0, 0.82, 0.88);
}

#[test]
fn hystart_leaves_slow_start_before_a_deep_buffer_overflows() {
    let run = |hystart, delayed_ack| {
        // RFC 9438 afterwards, because Linux's formula grows by 5 % per round trip until a loss, and has one within
        // these seconds.
        let linux = Config::new(Preset::Linux, Congestion::Cubic);
        let config = Config { hystart, delayed_ack, whole_window: false, ..linux };
        let mut run = Run::new(&config, &Path::new(Rate::mbps(20), Span::millis(40), 1000));
        run.until(at(4.0));
        let left = run.windows.iter().find(|(_, cwnd, ssthresh)| cwnd >= ssthresh).map(|w| w.1);
        assert!(run.queue_drops > 0 || run.max_queue < Span::millis(600));
        (run.queue_drops, left)
    };
    let product = 20e6 * 0.08 / 8.0 / 1500.0; // 133 segments
    for delayed_ack in [false, true] {
        let (drops, _) = run(Hystart::Off, delayed_ack);
        assert!(drops > 100, "slow start alone overflows: {drops}");
        // RFC 9406 continues for five rounds at a quarter of the growth before it leaves slow start.
        for (hystart, low, high) in [(Hystart::Classic, 0.5, 3.0), (Hystart::PlusPlus, 2.0, 8.0)] {
            let (drops, left) = run(hystart, delayed_ack);
            assert_eq!(drops, 0, "{hystart:?}");
            assert_between(left.expect("left slow start") / product, low, high);
        }
    }
}

#[test]
fn an_application_that_offers_less_than_the_window_gets_its_rate_and_raises_no_window_that_it_does_not_use() {
    for (preset, most) in [(Preset::Ns2, 200.0), (Preset::Linux, 24.0)] {
        let config = Config {
            bytes: Some(Bytes::ZERO),
            window: 200,
            initial_ssthresh: None,
            ..Config::new(preset, Congestion::NewReno)
        };
        let mut run = Run::new(&config, &Path::new(Rate::mbps(100), Span::millis(50), 1000));
        for step in 1..=300 {
            run.offer(1);
            run.now = at(f64::from(step) * 0.02);
            run.until(run.now);
        }
        // Fifty segments per second, about five in flight. Without window validation each acknowledgment would open
        // the window further.
        assert_between(run.receiver.distinct_segments as f64, 290.0, 301.0);
        assert_between(run.sender.cwnd, most / 3.0, most);
        assert_eq!(run.sender.retransmitted, 0);
    }
}

#[test]
fn cubics_curve_does_not_run_on_while_nothing_is_sent() {
    for preset in [Preset::Ns2, Preset::Linux] {
        let config = Config {
            window: 100_000,
            bytes: Some(Bytes::ZERO),
            initial_ssthresh: Some(100),
            hystart: Hystart::Off,
            ..Config::new(preset, Congestion::Cubic)
        };
        let mut run = Run::new(&config, &Path { drop: vec![(1000, 1)], ..wide() });
        run.offer(1500);
        run.until(at(60.0));
        assert!(run.sender.completed.is_some());
        // After the idle time slow start leads back to the old window; from there the curve is as flat as before.
        let before = run.sender.ssthresh;
        run.now = at(90.0);
        run.offer(4000);
        let reached = loop {
            run.until(run.now + Span::millis(100));
            if run.sender.cwnd >= before {
                break run.sender.cwnd;
            }
            assert!(run.now < at(95.0), "{preset}: {}", run.sender.cwnd);
        };
        run.until(run.now + Span::millis(400));
        // Four round trips: a curve 30 s after the loss would grow by half in each.
        assert_between(run.sender.cwnd / reached, 1.0, 1.5);
    }
}

#[test]
fn a_pause_longer_than_the_timeout_restarts_the_window_and_a_shorter_one_does_not() {
    for (preset, restart) in [(Preset::Ns2, 1), (Preset::Linux, 10)] {
        for (pause, restarts) in [(0.02, false), (5.0, true)] {
            let config = Config { bytes: Some(Bytes::ZERO), ..Config::new(preset, Congestion::NewReno) };
            let mut run = Run::new(&config, &Path::new(Rate::mbps(100), Span::millis(50), 1000));
            run.offer(200);
            run.until(at(60.0));
            let (done, before) = (run.sender.completed.expect("all of it"), run.sender.cwnd);
            assert!(before >= 20.0);
            run.now = done + Span::from_secs_f64(pause);
            let sent = run.sender.sent;
            run.offer(100);
            assert_eq!(run.sender.completed, None);
            let burst = run.sender.sent - sent;
            let expected = if restarts { restart } else { 100.min(before as u64) };
            assert_eq!(burst, expected, "{preset}, {pause} s");
            let end = run.now + Span::secs(60);
            run.until(end);
            assert_eq!(run.receiver.distinct_segments, 301);
        }
    }
}
