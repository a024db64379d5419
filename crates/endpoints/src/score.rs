//! A score of the video quality that a viewer saw, from 1 to 5. It is not an ITU MOS. The formula is in
//! docs/viewing-score.md.

use steadycast_units::Span;

/// Time for which a picture may be shown after the end of its slot without an effect on the score.
const UNNOTICED_STILL: Span = Span::millis(100);

/// Share of frozen time at which quality falls to 1/e. The value is fitted to P.1203.3 (equation 29). The fitted videos
/// last half a minute and have one to five freezes of 0.4 s or 0.5 s.
const STILL_SHARE_SCALE: f64 = 0.08;

/// Width of G.1070's curve of quality by frame rate (`D_FrV`) at 1 Mb/s.
const FRAME_RATE_WIDTH: f64 = 1.5;

/// Returns the score `1 + (Q − 1) · S`. `Q` is the coding quality (1 to 5), and `S` is the smoothness (0 to 1).
pub(crate) fn combined_score(coding: f64, smooth: f64) -> f64 {
    1.0 + (coding - 1.0) * smooth
}

/// Returns G.1070's video quality (1 to 5) for a bit rate and a frame rate if nothing is lost. The coefficients are
/// G.1070's provisional ones for H.264 at VGA size.
pub(crate) fn coding(kbps: f64, fps: f64) -> f64 {
    // These lines compute G.1070's O_fr (1 to 30 frames per second), I_Ofr and D_FrV.
    let best_fps = (5.517 + 1.29e-2 * kbps).clamp(1.0, 30.0);
    let best = 3.459 - 3.459 / (1.0 + libm::pow(kbps / 178.53, 1.02));
    let width = 1.15 + 3.55e-4 * kbps;
    let apart = libm::log(fps) - libm::log(best_fps);
    1.0 + best * libm::exp(-apart * apart / (2.0 * width * width))
}

/// Returns how smooth a sequence of display slots is, from 0 to 1. Returns `None` if there are no slots. Each slot says
/// whether a new picture appears, and how long the slot lasts.
///
/// The smoothness is a product of two factors. The first factor is G.1070's curve for the number of pictures per slot.
/// The second factor falls with the share of time in which a picture has already been shown for `period` + 100 ms.
/// Neither factor rises if a picture is removed.
pub(crate) fn smooth(slots: impl IntoIterator<Item = (bool, Span)>, period: Span) -> Option<f64> {
    let (mut shown, mut count) = (0_u64, 0_u64);
    let (mut total, mut standing, mut gap) = (Span::ZERO, Span::ZERO, Span::ZERO);
    let beyond = |gap: Span| gap.saturating_sub(period + UNNOTICED_STILL);
    for (new, lasts) in slots {
        if new {
            standing += beyond(std::mem::replace(&mut gap, Span::ZERO));
        }
        (shown, count) = (shown + u64::from(new), count + 1);
        (total, gap) = (total + lasts, gap + lasts);
    }
    standing += beyond(gap);
    if total.is_zero() {
        return None;
    }
    // Return early, because the logarithm below would not be finite.
    if shown == 0 {
        return Some(0.0);
    }
    let fewer = libm::log(shown as f64 / count as f64);
    let rate = libm::exp(-fewer * fewer / (2.0 * FRAME_RATE_WIDTH * FRAME_RATE_WIDTH));
    Some(rate * libm::exp(-standing.as_secs_f64() / total.as_secs_f64() / STILL_SHARE_SCALE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Span = Span::millis(40);

    fn near(value: f64, expected: f64, by: f64) {
        assert!((value - expected).abs() < by, "{value} instead of {expected}");
    }

    /// Returns the smoothness of half a minute at 25 pictures per second. There are `freezes` freezes at equal
    /// distances. Each freeze lasts `slots` slots.
    fn frozen(freezes: usize, slots: usize) -> f64 {
        let every = 750 / freezes.max(1);
        let stands = |n: usize| freezes > 0 && (every / 2..every / 2 + slots - 1).contains(&(n % every));
        smooth((0..750).map(|n| (!stands(n), PERIOD)), PERIOD).expect("there are slots")
    }

    #[test]
    fn coding_is_as_g_1070_has_it() {
        near(coding(500.0, 15.0), 3.526, 0.002);
        near(coding(1_000.0, 25.0), 3.890, 0.002);
    }

    #[test]
    fn a_few_freezes_leave_what_p_1203_leaves_of_half_a_minute() {
        // Each row has the number of freezes, the length of each freeze, and the quality that equation 29 expects. The
        // length is in slots of 40 ms.
        for (freezes, slots, expected) in [(1, 12, 0.888), (3, 12, 0.678), (5, 10, 0.547)] {
            near(frozen(freezes, slots), expected, 0.06);
        }
        near(frozen(0, 1), 1.0, 1e-9);
    }

    #[test]
    fn half_the_pictures_leave_nine_tenths_and_a_fifth_leaves_the_half() {
        let every = |n: u64| smooth((0..1_000).map(|slot| (slot % n == 0, PERIOD)), PERIOD);
        near(every(2).expect("there are slots"), 0.90, 0.01);
        // Each picture is shown for 200 ms. Its own slot of 40 ms and the next 100 ms have no effect. The remaining 60
        // ms are 30 % of the time.
        let alone = libm::exp(-libm::log(5.0) * libm::log(5.0) / (2.0 * FRAME_RATE_WIDTH * FRAME_RATE_WIDTH));
        near(alone, 0.56, 0.01);
        near(every(5).expect("there are slots"), alone * libm::exp(-0.3 / STILL_SHARE_SCALE), 0.01);
    }

    #[test]
    fn nothing_shown_leaves_nothing_and_no_slot_says_nothing() {
        assert_eq!(smooth([(false, PERIOD); 50], PERIOD), Some(0.0));
        assert_eq!(smooth([], PERIOD), None);
        near(combined_score(4.5, 0.0), 1.0, 1e-9);
    }

    proptest! {
        #[test]
        fn dropping_pictures_never_raises_the_score(
            slots in prop::collection::vec((any::<bool>(), any::<bool>(), 1_u64..400), 1..300),
            even in any::<bool>(),
        ) {
            let lasts = |ms: u64| if even { PERIOD } else { Span::millis(ms) };
            let before = smooth(slots.iter().map(|(new, _, ms)| (*new, lasts(*ms))), PERIOD);
            let after = smooth(slots.iter().map(|(new, kept, ms)| (*new && *kept, lasts(*ms))), PERIOD);
            let (before, after) = (before.expect("there are slots"), after.expect("there are slots"));
            prop_assert!(after <= before + 1e-12, "{before} became {after}");
            prop_assert!((0.0..=1.0).contains(&after) && (0.0..=1.0).contains(&before));
        }
    }
}
