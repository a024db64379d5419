/// The gain g of alpha (RFC 8257, section 4.2).
const ALPHA_GAIN: f64 = 1.0 / 16.0;

/// DCTCP's estimate alpha of the fraction of marked segments (RFC 8257, section 3.3).
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    pub(crate) alpha: f64,
    acked: u32,
    marked: u32,
    /// The segment whose acknowledgment ends the observation window.
    window_end: u32,
    /// The segment whose acknowledgment permits the next reduction.
    cut_end: u32,
}

impl Dctcp {
    pub(crate) fn new() -> Self {
        Self { alpha: 1.0, acked: 0, marked: 0, window_end: 0, cut_end: 0 }
    }

    /// Processes an acknowledgment of `fresh` segments. `marked` of these segments were marked. `max` is one past the
    /// highest segment sent. If the window has to be reduced, returns the factor by which the caller multiplies it.
    pub(crate) fn on_ack(&mut self, una: u32, max: u32, fresh: u32, marked: u32) -> Option<f64> {
        self.acked += fresh;
        self.marked += marked.min(fresh);
        // Update alpha once per window of data.
        if una > self.window_end {
            if self.acked > 0 {
                let part = f64::from(self.marked) / f64::from(self.acked);
                self.alpha += ALPHA_GAIN * (part - self.alpha);
            }
            (self.acked, self.marked, self.window_end) = (0, 0, max);
        }
        (marked > 0 && una > self.cut_end).then(|| {
            self.cut_end = max;
            1.0 - self.alpha / 2.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_the_marked_part_smoothed_by_a_sixteenth_and_a_window_is_cut_once() {
        let mut dctcp = Dctcp::new();
        // In the first window, all 10 segments are unmarked.
        assert_eq!(dctcp.on_ack(11, 21, 10, 0), None);
        assert_eq!(dctcp.alpha, 15.0 / 16.0);
        assert_eq!(dctcp.on_ack(16, 26, 5, 1), Some(1.0 - 15.0 / 32.0));
        assert_eq!(dctcp.on_ack(20, 30, 4, 1), None, "the same window");
        assert_eq!(dctcp.on_ack(22, 32, 2, 0), None);
        // In this round, 2 of 11 segments were marked.
        let alpha = 15.0 / 16.0 + (2.0 / 11.0 - 15.0 / 16.0) / 16.0;
        assert!((dctcp.alpha - alpha).abs() < 1e-12);
        assert_eq!(dctcp.on_ack(27, 37, 5, 5), Some(1.0 - dctcp.alpha / 2.0));
    }
}
