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
                let rate = run.sender.sent() as f64 / 1500.0;
                let b = if delayed_ack { 2.0 } else { 1.0 };
                assert_between(rate / equation(loss, 0.1001, 0.2, b), 0.85, 1.15);
            }
        }
    }
}
