/// A window in whole segments, as in Linux: acknowledged segments accumulate until the window grows by one
/// (`tcp_cong_avoid_ai`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WholeWindow {
    pending: f64,
}

impl WholeWindow {
    /// Returns the window after `acked` more segments. It grows by one segment per `acks_per_segment` acknowledged
    /// segments.
    pub(crate) fn grow(&mut self, cwnd: f64, acked: f64, acks_per_segment: f64) -> f64 {
        // The casts are safe: windows are below 2³², and no run reaches a larger `acks_per_segment`.
        let (mut cwnd, acks_per_segment) = (f64::from(cwnd as u32), f64::from(acks_per_segment as u32).max(1.0));
        // If the accumulated number already exceeds `acks_per_segment`, which may have fallen, the window grows by one
        // and the rest is discarded, as in Linux.
        if self.pending >= acks_per_segment {
            self.pending = 0.0;
            cwnd += 1.0;
        }
        self.pending += acked;
        if self.pending >= acks_per_segment {
            let more = (self.pending / acks_per_segment).trunc();
            self.pending -= more * acks_per_segment;
            cwnd += more;
        }
        cwnd
    }
}
