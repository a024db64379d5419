use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Preset};
use steadycast_units::{Rate, Span};

/// Segments per second by the full equation of Padhye and others (SIGCOMM 1998), with `b` segments per acknowledgment:
///
/// ```text
///                              1
/// ─────────────────────────────────────────────────────────────────────
/// R sqrt(2bp/3) + t_RTO min(1, 3 sqrt(3bp/8)) p (1 + 32 p²)
/// ```
fn equation(p: f64, rtt: f64, rto: f64, b: f64) -> f64 {
    1.0 / (rtt * (2.0 * b * p / 3.0).sqrt()
        + rto * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p))
}

#[test]
fn throughput_under_random_loss_is_within_15_percent_of_the_equation() {
    for congestion in [Congestion::Reno, Congestion::NewReno, Congestion::Sack] {
        for delayed_ack in [false, true] {
            for loss in [0.001, 0.01, 0.03] {
                let config = Config { window: 1000, delayed_ack, ..Config::new(Preset::Ns2, congestion) };
                let path = Path { loss, ..Path::new(Rate::mbps(100), Span::millis(50), 1000) };
                let mut run = Run::new(&config, &path).untraced();
                run.until(at(1500.0));
                let rate = run.sender.sent as f64 / 1500.0;
                let b = if delayed_ack { 2.0 } else { 1.0 };
                assert_between(rate / equation(loss, 0.1001, 0.2, b), 0.85, 1.15);
            }
        }
    }
}

/// The results of ns-2.35 (Debian's `ns`, one FTP over one link of 10 Mb/s, defaults except the window).
struct Ns2 {
    congestion: Congestion,
    /// The queue in segments, loss probability, one-way delay and window.
    link: (usize, f64, u64, u32),
    /// The acknowledged segments per second.
    rate: f64,
    /// The retransmitted segments and the time-outs.
    counts: Option<(u64, u64)>,
}

#[test]
fn on_a_drop_tail_link_the_ns2_preset_counts_what_ns2_counts() {
    use Congestion::{NewReno, Reno, Sack};
    let cases = [
        (Reno, 10, 994.0, Some((82, 1))),
        (Reno, 50, 1182.3, Some((221, 1))),
        (Reno, 200, 1186.9, Some((398, 1))),
        (NewReno, 10, 986.9, Some((83, 1))),
        (NewReno, 50, 1183.4, Some((228, 1))),
        (NewReno, 200, 1186.9, Some((398, 1))),
        // ns-2's SACK retransmits each hole below a block immediately, and two holes per partial acknowledgment,
        // unlike RFC 6675.
        (Sack, 10, 998.3, None),
        (Sack, 50, 1188.1, None),
        (Sack, 200, 1191.6, None),
    ];
    for (congestion, buffer, rate, counts) in cases {
        compare(&Ns2 { congestion, link: (buffer, 0.0, 22, 400), rate, counts }, 60.0, &[1], 0.01);
    }
}

#[test]
fn on_a_lossy_link_the_ns2_preset_is_within_four_percent_of_ns2() {
    use Congestion::{NewReno, Reno, Sack};
    // Means of three seeds of 2000 s.
    let cases = [(Reno, [391.3, 105.7, 52.7]), (NewReno, [400.7, 116.0, 60.0]), (Sack, [401.0, 116.0, 59.0])];
    for (congestion, rates) in cases {
        for (loss, rate) in [0.001, 0.01, 0.03].into_iter().zip(rates) {
            compare(&Ns2 { congestion, link: (1000, loss, 50, 100), rate, counts: None }, 1000.0, &[1, 2], 0.04);
        }
    }
}

fn compare(ns2: &Ns2, seconds: f64, seeds: &[u64], tolerance: f64) {
    let (buffer, loss, delay, window) = ns2.link;
    let config = Config { window, ..Config::new(Preset::Ns2, ns2.congestion) };
    let mut mean = 0.0;
    for &seed in seeds {
        let path = Path { loss, seed, ..Path::new(Rate::mbps(10), Span::millis(delay), buffer) };
        let mut run = Run::new(&config, &path).untraced();
        run.until(at(seconds));
        mean += f64::from(run.sender.acknowledged()) / seconds / seeds.len() as f64;
        if let Some((repeated, timeouts)) = ns2.counts {
            assert_between(run.sender.retransmitted as f64, repeated as f64 - 1.0, repeated as f64 + 1.0);
            assert_eq!(run.sender.timeouts, timeouts);
        }
    }
    assert_between(mean / ns2.rate, 1.0 - tolerance, 1.0 + tolerance);
}
