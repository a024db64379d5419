use crate::equation::LossRate;

/// Weights of the report intervals, newest first (ASMP, equation 3).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// The loss rate over the last eight report intervals.
///
/// ```text
///      Σ wᵢ lᵢ
///  l = ───────     i = 0 (newest) … k−1, k = min(8, intervals so far)
///       Σ wᵢ
/// ```
///
/// Source: ASMP, equations 2 and 3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    newest_first: [f32; 8],
    known: usize,
}

impl Losses {
    /// Adds a report interval. An interval without expected packets is ignored.
    pub(super) fn push(&mut self, expected: u64, lost: u64) {
        // Avoid 0/0, which is NaN.
        if expected == 0 {
            return;
        }
        self.newest_first.rotate_right(1);
        self.newest_first[0] = (lost as f64 / expected as f64).min(1.0) as f32;
        self.known = (self.known + 1).min(WEIGHTS.len());
    }

    /// Returns the smoothed loss rate. Returns `None` if there was no loss.
    pub(super) fn rate(&self) -> Option<LossRate> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (l, w) in self.newest_first[..self.known].iter().zip(WEIGHTS) {
            sum += f64::from(*l) * w;
            weights += w;
        }
        LossRate::new(if weights > 0.0 { sum / weights } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interval_counts_alone_and_eight_later_it_is_forgotten() {
        let mut losses = Losses::default();
        losses.push(0, 0);
        assert_eq!(losses.rate(), None);
        losses.push(200, 20);
        assert!((losses.rate().unwrap().get() - 0.1).abs() < 1e-8);
        for i in 1..8 {
            losses.push(100, 0);
            let sum: f64 = WEIGHTS[..=i].iter().sum();
            assert!((losses.rate().unwrap().get() - 0.1 * WEIGHTS[i] / sum).abs() < 1e-8, "{i} clean intervals");
        }
        losses.push(100, 0);
        assert_eq!(losses.rate(), None);
    }

    #[test]
    fn steady_loss_is_its_own_mean() {
        let mut losses = Losses::default();
        for _ in 0..20 {
            losses.push(100, 1);
        }
        assert!((losses.rate().unwrap().get() - 0.01).abs() < 1e-8);
    }
}
