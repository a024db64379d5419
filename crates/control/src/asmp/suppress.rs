use steadycast_units::{Chance, Span};

/// RTCP's share of the session bandwidth (RFC 3550, section 6.2).
pub(super) const RTCP_SHARE: f64 = 0.05;
const MOST_DOUBLINGS: u32 = 10;

/// Draws a suppression timer for one of `members` receivers, in a round that lasts `round`. Only few timers expire
/// early. These receivers report first and suppress the other reports.
///
/// ```text
///             λ       λ z/T                            T   ⎛         λ     ⎞
///  f(z) = ─────────  e       , 0 ≤ z ≤ T          z = ─ ln ⎜1 + u (e  − 1) ⎟ ,  u uniform in [0, 1)
///            λ                                        λ   ⎝               ⎠
///         T(e − 1)
/// ```
///
/// λ = ln N + 1 (NORM). Source: ASMP, equation 20. The normalizing constant is corrected, because the paper has e^−λ.
pub(crate) fn timer(round: Span, members: u32, chance: &mut Chance) -> Span {
    let lambda = libm::log(f64::from(members.max(1))) + 1.0;
    let share = libm::log1p(chance.unit() * libm::expm1(lambda)) / lambda;
    round.scale(share.clamp(0.0, 1.0))
}

/// Computes the length of suppression rounds. It is T_random, doubled while RTCP exceeds its bandwidth share, and
/// halved again while RTCP uses less than half of its share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    doublings: u32,
}

impl Rounds {
    pub(super) fn next(&mut self, t_random: Span, interval: Span, rtcp_share: f64) -> Span {
        if rtcp_share > RTCP_SHARE {
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
        } else if rtcp_share < RTCP_SHARE / 2.0 {
            self.doublings = self.doublings.saturating_sub(1);
        }
        // A round lasts at least half of `interval`, which is the shortest interval that RTCP draws (RFC 3550, section
        // 6.3.1).
        t_random.max(interval / 2) * (1 << self.doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Seed;

    #[test]
    fn timers_have_the_truncated_exponential_mean_and_distribution() {
        let (round, mut chance) = (Span::secs(5), Seed(1).part("timers"));
        for (members, mean) in [(10, 3.677), (100, 4.1264), (1_000, 4.370), (10_000, 4.511)] {
            let lambda = libm::log(f64::from(members)) + 1.0;
            let by_formula = 5.0 * (libm::exp(lambda) / libm::expm1(lambda) - 1.0 / lambda);
            assert!((by_formula - mean).abs() < 6e-4, "{by_formula}");
            let n = 40_000;
            let mut drawn: Vec<f64> = (0..n).map(|_| timer(round, members, &mut chance).as_secs_f64()).collect();
            drawn.sort_by(f64::total_cmp);
            let sampled = drawn.iter().sum::<f64>() / f64::from(n);
            assert!((sampled - mean).abs() < 0.02, "{sampled} for {members}");
            assert!(drawn[0] >= 0.0 && drawn[drawn.len() - 1] <= 5.0, "the distribution is 1 at T");
            // The limit is the Kolmogorov-Smirnov bound at a significance of 0.1 %.
            for (k, z) in drawn.iter().enumerate() {
                let cdf = libm::expm1(lambda * z / 5.0) / libm::expm1(lambda);
                assert!((cdf - k as f64 / f64::from(n)).abs() < 1.95 / f64::from(n).sqrt(), "at {z}");
            }
        }
    }

    #[test]
    fn equal_members_send_little_more_than_one_message_per_round() {
        let (round, echo) = (5.0, 0.1);
        for members in [10u32, 100, 1_000, 10_000] {
            let mut chance = Seed(7).part("rounds");
            let rounds = 400_000 / members.max(2_000);
            let mut messages = 0;
            for _ in 0..rounds {
                let draws: Vec<f64> = (0..members)
                    .map(|_| timer(Span::from_secs_f64(round), members, &mut chance).as_secs_f64())
                    .collect();
                let first = draws.iter().copied().fold(f64::INFINITY, f64::min);
                messages += draws.iter().filter(|z| **z <= first + echo).count();
            }
            let mean = messages as f64 / f64::from(rounds);
            assert!((1.0..=1.5).contains(&mean), "{mean} messages of {members}");
        }
    }

    #[test]
    fn too_much_rtcp_doubles_the_round_and_little_halves_it_again() {
        let mut rounds = Rounds::default();
        let mut next = |share| rounds.next(Span::secs(5), Span::secs(8), share).as_secs_f64();
        assert_eq!([next(0.01), next(0.06), next(0.06), next(0.04), next(0.02)], [5.0, 10.0, 20.0, 20.0, 10.0]);
        for _ in 0..100 {
            assert!(next(0.5) <= 5.0 * 1024.0);
        }
        assert_eq!(Rounds::default().next(Span::secs(5), Span::secs(60), 0.0), Span::secs(30));
    }
}
