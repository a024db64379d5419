use super::{Config, Profile};
use crate::asmp::suppress;
use steadycast_units::{Chance, Rate, Span};

/// Draws the random delay after which a receiver reports in a round that lasts `t`. The limiting receiver does not use
/// it.
///
/// ```text
///              ⎛   ⎛        ln u ⎞     ⎞
///  t₀  =  max  ⎜ T ⎜ 1  +  ───── ⎟ , 0 ⎟       u uniform in (0, 1]
///              ⎝   ⎝        ln N ⎠     ⎠
/// ```
///
/// T is `t`, and N is `config.receivers` (RFC 4654, section 4.5).
///
/// The profiles `sigcomm2001` and `norm` return ζ ρ T + (1 − ζ) t₀, where ρ is [`bias`]. ζ is 1/3 in `sigcomm2001` and
/// 1/4 in `norm`. `norm` draws t₀ with [`suppress::timer`].
pub(super) fn draw(config: &Config, t: Span, bias: Option<f64>, chance: &mut Chance) -> Span {
    let (zeta, plain) = match config.profile {
        Profile::Rfc4654 => return at(t, chance.unit_open(), config.receivers),
        Profile::Sigcomm2001 => (1.0 / 3.0, at(t, chance.unit_open(), config.receivers)),
        Profile::Norm => (0.25, suppress::timer(t, config.receivers as u32, chance)),
    };
    t.scale(zeta * bias.unwrap_or(1.0).clamp(0.0, 1.0)) + plain.scale(1.0 - zeta)
}

fn at(t: Span, u: f64, n: f64) -> Span {
    // Replace a negative time by zero. The time is negative if u is below 1/N.
    t.scale((1.0 + libm::log(u) / libm::log(n)).max(0.0))
}

/// Computes the bias ρ of a receiver's timer. `own` is the rate that the receiver requests. `received` is its receive
/// rate, and `x` is the send rate.
///
/// In slow start, ρ is `received` / `x`. Afterwards ρ rises linearly from 0 at `own` = 0.5 `x` to 1 at `own` = 0.9 `x`.
pub(super) fn bias(slow_start: bool, own: Rate, received: Rate, x: Rate) -> f64 {
    if slow_start { received.ratio(x) } else { (own.ratio(x).clamp(0.5, 0.9) - 0.5) / 0.4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_timer_is_the_round_and_one_in_n_is_at_once() {
        let t = Span::secs(3);
        assert_eq!(at(t, 1.0, 10_000.0), t);
        assert!(at(t, 1e-4, 10_000.0) <= Span::nanos(1));
        assert_eq!(at(t, 1e-9, 10_000.0), Span::ZERO);
        let middle = at(t, 0.01, 10_000.0).as_secs_f64();
        assert!((middle - 1.5).abs() < 1e-9, "{middle}");
    }

    #[test]
    fn the_bias_is_clipped_outside_slow_start_only() {
        let bias = |slow, own, received| bias(slow, Rate::kbps(own), Rate::kbps(received), Rate::kbps(1000));
        assert_eq!([bias(false, 400, 0), bias(false, 500, 0), bias(false, 2_000, 0)], [0.0, 0.0, 1.0]);
        assert!((bias(false, 700, 0) - 0.5).abs() < 1e-12);
        assert!((bias(true, 2_000, 300) - 0.3).abs() < 1e-12);
    }
}
