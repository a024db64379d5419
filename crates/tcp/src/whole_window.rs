/// A congestion window that grows in whole segments, as in Linux (`tcp_cong_avoid_ai`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WholeWindow {
    pending: f64,
}

impl WholeWindow {
    /// Returns the window after `acked` more segments were acknowledged. It grows by one segment for every
    /// `acks_per_segment` acknowledged segments.
    pub(crate) fn grow(&mut self, cwnd: f64, acked: f64, acks_per_segment: f64) -> f64 {
        // The conversion to `u32` is safe. Windows are below 2³², and so is `acks_per_segment` in practice.
        let (mut cwnd, acks_per_segment) = (f64::from(cwnd as u32), f64::from(acks_per_segment as u32).max(1.0));
        // If `acks_per_segment` has become smaller, `pending` may be enough for several segments. Grow by only one
        // segment for it, and discard the rest of `pending`, as Linux does.
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
