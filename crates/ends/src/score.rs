//! The viewing score: one number from 1 to 5 for what a viewer saw. It is not an ITU MOS; docs/viewing-score.md has its
//! formula.

use crate::Freezes;
use steadycast_units::Span;

/// Freezes count in windows of this time, of which the mean is taken.
const WINDOW: Span = Span::secs(60);

/// `1 + (Q − 1) · S`: the quality of coding `Q` by G.1070 for the media's rate and the frames shown per second, times
/// what freezes leave of it, `S`, by P.1203.3's formula for stalls. `None` where nothing was shown.
pub(crate) fn viewing_score(media_bps: f64, shown_fps: f64, freezes: &Freezes) -> Option<f64> {
    let shown = freezes.shown.as_secs_f64();
    (shown > 0.0 && shown_fps > 0.0).then(|| 1.0 + (coding(media_bps / 1e3, shown_fps) - 1.0) * smooth(freezes))
}

/// G.1070's video quality without loss, which shows as freezes here, with its provisional coefficients for H.264 in
/// VGA: 1 to 5.
fn coding(kbps: f64, fps: f64) -> f64 {
    let best_fps = (5.517 + 1.29e-2 * kbps).clamp(1.0, 30.0);
    let best = 3.459 - 3.459 / (1.0 + libm::pow(kbps / 178.53, 1.02));
    let width = 1.15 + 3.55e-4 * kbps;
    let apart = libm::log(fps) - libm::log(best_fps);
    1.0 + best * libm::exp(-apart * apart / (2.0 * width * width))
}

/// What freezes leave of the quality, 0 to 1 (ITU-T P.1203.3, equation 29), the mean over windows.
fn smooth(freezes: &Freezes) -> f64 {
    let windows = freezes.shown.as_nanos().div_ceil(WINDOW.as_nanos()).max(1);
    let length = freezes.shown / windows;
    let within = |window: u64| {
        let (from, to) = (length * window, length * (window + 1));
        let stalls: Vec<(f64, f64)> = freezes
            .each
            .iter()
            .filter(|(at, _)| *at >= from && (*at < to || window + 1 == windows))
            .map(|(at, lasts)| (at.saturating_sub(from).as_secs_f64(), lasts.as_secs_f64()))
            .collect();
        left(&stalls, length.as_secs_f64())
    };
    (0..windows).map(within).sum::<f64>() / windows as f64
}

/// The formula, of stalls that begin at a time and last, in `total` seconds.
fn left(stalls: &[(f64, f64)], total: f64) -> f64 {
    let (Some((first, _)), Some((last, _))) = (stalls.first(), stalls.last()) else { return 1.0 };
    const C: f64 = 0.484_128_79;
    let weight = |x: f64| C + (1.0 - C) * libm::exp2(-x / 10.0);
    let weighed: f64 = stalls.iter().map(|(at, lasts)| lasts * weight(total - at)).sum();
    let count = stalls.len() as f64;
    let apart = if stalls.len() > 1 { (last - first) / (count - 1.0) } else { 0.0 };
    libm::exp(-count / 9.351_586_84)
        * libm::exp(-(weighed / total) / 0.918_908_15)
        * libm::exp(-(apart / total) / 11.056_755_8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 0.002, "{value} instead of {expected}");
    }

    #[test]
    fn coding_is_as_g_1070_has_it() {
        near(coding(500.0, 15.0), 3.526);
        near(coding(1_000.0, 25.0), 3.890);
    }

    #[test]
    fn stalls_evenly_spread_over_half_a_minute_leave_what_p_1203_says() {
        for (count, lasts, expected) in [(1, 0.5, 0.888), (3, 0.5, 0.678), (5, 0.4, 0.547), (10, 0.3, 0.315)] {
            let stalls: Vec<(f64, f64)> =
                (0..count).map(|n| (30.0 * (n as f64 + 0.5) / f64::from(count), lasts)).collect();
            let got = left(&stalls, 30.0);
            assert!((got - expected).abs() < 0.005, "{count} stalls: {got} instead of {expected}");
        }
        near(left(&[], 30.0), 1.0);
    }

    #[test]
    fn each_freeze_lowers_the_score_and_none_leaves_the_coding_s() {
        let played = |every: u64| {
            let slots = (0..3_000u64).map(|n| (n == 0 || n % every >= 10, Span::millis(40)));
            viewing_score(800_000.0, 25.0, &Freezes::of(slots)).expect("pictures were shown")
        };
        let scores = [played(u64::MAX), played(2_000), played(500), played(100)];
        assert!(scores.windows(2).all(|w| w[0] > w[1]), "{scores:?}");
        near(scores[0], coding(800.0, 25.0) - 0.0);
        assert!(viewing_score(1e6, 25.0, &Freezes::default()).is_none());
    }
}
