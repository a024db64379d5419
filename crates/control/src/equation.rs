//! Equations for the throughput of a TCP connection.

use steadycast_units::{Bytes, Rate, Span};

/// A loss rate or loss event rate p with 0 < p ≤ 1. If there is no loss, use `Option::None`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LossRate(f64);

impl LossRate {
    /// A rate of 1: every packet is lost.
    pub const ONE: Self = Self(1.0);
    /// Smallest rate that [`loss_for`] returns, 10⁻⁸.
    pub const LEAST: Self = Self(1e-8);

    /// Creates the rate `p`. Returns `None` unless 0 < p ≤ 1.
    pub fn new(p: f64) -> Option<Self> {
        (p > 0.0 && p <= 1.0).then_some(Self(p))
    }
    /// Creates the rate of one loss per `interval` packets. An interval below one packet, or NaN, counts as one packet.
    pub fn one_in(interval: f64) -> Self {
        // `max` also replaces NaN by 1. The lower bound keeps the rate above zero.
        Self((1.0 / interval.max(1.0)).max(1e-300))
    }
    /// Returns the rate as a number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

const LEAST_RTT: Span = Span::millis(1);

/// Computes the simplified throughput equation of RFC 5348 (section 8.1) and RFC 4654 (equation 1). It is
/// [`throughput_full`] with t_RTO = 4 R and b = 1, but without the minimum.
///
/// ```text
///                        s
///  X = ───────────────────────────────────────────
///         ⎛   ____        ____                  ⎞
///       R ⎜  ╱2 p        ╱3 p                   ⎟
///         ⎜ ╱ ───  + 12 ╱ ───  · p · (1 + 32 p²)⎟
///         ⎝╲╱  3      ╲╱   8                    ⎠
/// ```
///
/// `s` = `packet`, `R` = `rtt` (at least 1 ms), `p` = `loss`.
pub fn throughput(packet: Bytes, rtt: Span, loss: LossRate) -> Rate {
    Rate::from_bytes_per_s(packet.as_f64() / (seconds(rtt) * simple(loss.0)))
}

/// Returns the denominator of [`throughput`] without the factor R.
fn simple(p: f64) -> f64 {
    (2.0 * p / 3.0).sqrt() + 12.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p)
}

/// Computes the full throughput equation by Padhye (RFC 5348, section 3.1).
///
/// ```text
///                                 s
///  X = ────────────────────────────────────────────────────────────
///           _____              ⎛       _____⎞
///          ╱2 b p              ⎜      ╱3 b p⎟
///       R ╱ ─────  + t_RTO min ⎜1, 3 ╱ ─────⎟ · p · (1 + 32 p²)
///        ╲╱   3                ⎝   ╲╱    8  ⎠
/// ```
///
/// `rto` is t_RTO, the retransmission timeout of TCP. `per_ack` is b, the number of packets per acknowledgment, which
/// is at least 1. With t_RTO = 4 R and b = 1, the result equals [`throughput`] for p up to 8/27.
pub fn throughput_full(packet: Bytes, rtt: Span, loss: LossRate, rto: Span, per_ack: f64) -> Rate {
    Rate::from_bytes_per_s(packet.as_f64() / time_per_packet(loss, seconds(rtt), rto.as_secs_f64(), per_ack))
}

/// Returns the denominator of [`throughput_full`] in seconds per packet. `rtt` and `rto` are in seconds.
pub fn time_per_packet(loss: LossRate, rtt: f64, rto: f64, per_ack: f64) -> f64 {
    let (p, b) = (loss.0, per_ack.max(1.0));
    let windows = rtt * (2.0 * b * p / 3.0).sqrt();
    windows + rto * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p)
}

/// Computes the rank by which PGMCC compares paths. A path with a larger rank has a lower TCP rate. Only ratios of
/// ranks have a meaning.
///
/// ```text
///            ___
///  M = R · ╲╱ p  · (1 + 9 p (1 + 32 p²))
/// ```
///
/// Source: draft-ietf-rmt-bb-pgmcc. The rank is the denominator of [`throughput`] times √(3/2).
pub fn rank(rtt: Span, loss: LossRate) -> f64 {
    let p = loss.0;
    seconds(rtt) * p.sqrt() * (1.0 + 9.0 * p * (1.0 + 32.0 * p * p))
}

/// Inverts [`throughput`]. Returns the loss event rate at which the throughput is `rate`. The result is limited to
/// 10⁻⁸…1 (RFC 5348, section 6.3.1).
pub fn loss_for(rate: Rate, packet: Bytes, rtt: Span) -> LossRate {
    // Search by bisection on a logarithmic scale. The target is f(p) = s / (R X), which is infinite at a rate of zero.
    let wanted = packet.as_f64().max(1.0) / (seconds(rtt) * rate.as_bytes_per_s());
    let (mut low, mut high) = (LossRate::LEAST.0, 1.0);
    if wanted <= simple(low) {
        return LossRate(low);
    }
    if wanted >= simple(high) {
        return LossRate::ONE;
    }
    // Halve 60 times, because this exceeds the precision of an `f64`.
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if simple(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    LossRate((low * high).sqrt())
}

/// Returns the initial window of TCP, min(4 s, max(2 s, 4380 bytes)), where s is `packet` (RFC 5348, section 4.2).
pub(crate) fn initial_window(packet: Bytes) -> Bytes {
    let s = packet.get();
    Bytes::new((4 * s).min((2 * s).max(4_380)))
}

/// Computes the first loss interval by the square-root formula (RFC 4654, section 5.6). The result is in packets and at
/// least 1.
///
/// ```text
///        ⎛     X R    ⎞ 2
///  l₀ =  ⎜ ────────── ⎟
///        ⎝ √(3/2) · s ⎠
/// ```
pub fn first_interval_sqrt(rate: Rate, packet: Bytes, rtt: Span) -> f64 {
    let packets = rate.as_bytes_per_s() * rtt.as_secs_f64() / packet.as_f64();
    (packets * packets / 1.5).max(1.0)
}

fn seconds(rtt: Span) -> f64 {
    rtt.max(LEAST_RTT).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Bytes = Bytes::new(1000);

    fn p(p: f64) -> LossRate {
        LossRate::new(p).unwrap()
    }

    fn kbps(rate: Rate) -> f64 {
        rate.as_bps_f64() / 1e3
    }

    #[track_caller]
    fn close(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want} ± {within}");
    }

    #[test]
    fn the_simple_equation_has_its_published_values() {
        for (loss, want) in [(0.02, 348.80), (0.04, 211.55), (0.06, 148.60), (0.08, 110.42)] {
            close(kbps(throughput(S, Span::millis(168), p(loss))), want, 0.005);
        }
        close(kbps(throughput(S, Span::millis(100), p(0.01))), 898.66, 0.005);
        let percent = [(0.0005, 7270.0), (0.0008, 5732.0), (0.0012, 4664.0), (0.0015, 4160.0)];
        for (loss, want) in percent {
            close(kbps(throughput(S, Span::millis(60), p(loss))), want, 0.5);
        }
        for (loss, want) in [(0.05, 491.5), (0.08, 309.2), (0.12, 182.9), (0.15, 126.9)] {
            close(kbps(throughput(S, Span::millis(60), p(loss))), want, 0.05);
        }
    }

    #[test]
    fn the_full_equation_parts_from_the_simple_one_at_eight_twenty_sevenths() {
        // Use a large packet, so that rounding to whole bits per second does not affect the ratios.
        let (r, s) = (Span::millis(100), Bytes::new(10_000_000));
        let both = |loss: f64| throughput_full(s, r, p(loss), r * 4, 1.0).ratio(throughput(s, r, p(loss)));
        for loss in [1e-4, 0.01, 0.1, 0.296] {
            close(both(loss), 1.0, 1e-6);
        }
        assert!(both(0.31) > 1.01 && both(0.31) < 1.05, "{}", both(0.31));
        // This was computed by hand for p = 1. The factor of the time-out term is 3 √(3/8) = 1.8371 in the simple
        // equation, and 1 in the full equation. The other term, √(2/3), is small in comparison.
        close(both(1.0), (0.816_496_58 + 12.0 * 33.0 * 0.612_372_44) / (0.816_496_58 + 4.0 * 33.0), 1e-5);
    }

    #[test]
    fn delayed_acknowledgments_cost_the_square_root_of_two_at_small_loss() {
        let r = Span::millis(100);
        let ratio = throughput_full(S, r, p(1e-6), r * 4, 1.0).ratio(throughput_full(S, r, p(1e-6), r * 4, 2.0));
        close(ratio, 2f64.sqrt(), 1e-3);
    }

    #[test]
    fn at_small_loss_both_equations_are_mathis_s_square_root_law() {
        // Mathis, Semke, Mahdavi, Ott (1997): X = √(3/2) s / (R √p). It is valid for a TCP that acknowledges every
        // packet.
        let mathis = |r: Span, loss: f64| 1.5f64.sqrt() * 8.0 / (r.as_secs_f64() * loss.sqrt());
        let r = Span::millis(168);
        close(mathis(r, 0.02), 412.39, 0.01);
        close(mathis(r, 1e-6) / kbps(throughput(S, r, p(1e-6))), 1.0, 1e-3);
        close(mathis(r, 1e-6) / kbps(throughput_full(S, r, p(1e-6), r * 4, 1.0)), 1.0, 1e-3);
    }

    #[test]
    fn the_rank_exceeds_the_square_root_by_its_published_factors() {
        let r = Span::millis(80);
        for (loss, want) in [(0.01, 1.09), (0.05, 1.49), (0.10, 2.19)] {
            close(rank(r, p(loss)) / (0.08 * f64::sqrt(loss)), want, 0.005);
        }
        // The product of rank and throughput is constant, because both use the same function of p.
        let product = |loss: f64| rank(r, p(loss)) * throughput(S, r, p(loss)).as_bytes_per_s();
        close(product(0.2) / product(0.001), 1.0, 1e-4);
    }

    #[test]
    fn the_first_interval_has_its_published_values() {
        close(1.0 / loss_for(Rate::mbps(1), S, Span::millis(100)).get(), 120.36, 0.005);
        close(first_interval_sqrt(Rate::mbps(1), S, Span::millis(100)), 104.17, 0.005);
        close(first_interval_sqrt(Rate::kbps(50), S, Span::millis(100)), 1.0, 0.0);
    }

    #[test]
    fn a_rate_beyond_the_equation_gives_the_nearer_end() {
        assert_eq!(loss_for(Rate::ZERO, S, Span::millis(100)), LossRate::ONE);
        assert_eq!(loss_for(Rate::bps(1), S, Span::millis(100)), LossRate::ONE);
        assert_eq!(loss_for(Rate::MAX, S, Span::millis(100)), LossRate::LEAST);
        assert_eq!(loss_for(Rate::MAX, Bytes::ZERO, Span::ZERO), LossRate::LEAST);
    }

    #[test]
    fn only_shares_of_packets_are_loss_rates() {
        for wrong in [0.0, -0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(LossRate::new(wrong), None, "{wrong}");
        }
        assert_eq!(LossRate::one_in(100.0).get(), 0.01);
        assert_eq!(LossRate::one_in(0.5), LossRate::ONE);
        assert_eq!(LossRate::one_in(f64::NAN), LossRate::ONE);
        assert!(LossRate::one_in(f64::INFINITY).get() > 0.0);
    }

    proptest! {
        #[test]
        fn the_inverse_finds_the_loss_that_made_the_rate(
            exponent in -7.5f64..0.0, ms in 1u64..2_000, size in 200u64..1_500,
        ) {
            let loss = libm::exp10(exponent);
            let (r, s) = (Span::millis(ms), Bytes::new(size));
            // Skip cases with a loss above 0.3 and long round trips. There, the rate is a few bits per second, so
            // rounding dominates.
            let rate = throughput(s, r, p(loss));
            prop_assume!(rate > Rate::kbps(1));
            let found = loss_for(rate, s, r).get();
            prop_assert!((found / loss - 1.0).abs() < 2e-3, "{} for {}", found, loss);
        }

        #[test]
        fn more_loss_or_a_longer_round_trip_is_never_faster(a in 1e-6f64..1.0, b in 1e-6f64..1.0, ms in 1u64..1_000) {
            let (less, more) = (a.min(b), a.max(b));
            let (r, longer) = (Span::millis(ms), Span::millis(ms + 1));
            for f in [|r, l| throughput(S, r, l), |r, l| throughput_full(S, r, l, r * 4, 1.0)] {
                prop_assert!(f(r, p(less)) >= f(r, p(more)));
                prop_assert!(f(r, p(less)) >= f(longer, p(less)));
            }
        }
    }
}
