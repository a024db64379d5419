/// A window in whole segments, as in Linux: acknowledged segments accumulate until the window grows by one
/// (`tcp_cong_avoid_ai`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    counted: f64,
}

impl Whole {
    /// Returns the window after `acked` more segments, with an increase of one per `price` acknowledged segments.
    pub(crate) fn grow(&mut self, cwnd: f64, acked: f64, price: f64) -> f64 {
        // The casts are safe: windows are below 2³², and a larger price is never reached in a run.
        let (mut cwnd, price) = (f64::from(cwnd as u32), f64::from(price as u32).max(1.0));
        // If `price` has fallen below what has accumulated, the window grows by one and the rest is discarded, as in
        // Linux.
        if self.counted >= price {
            self.counted = 0.0;
            cwnd += 1.0;
        }
        self.counted += acked;
        if self.counted >= price {
            let more = (self.counted / price).trunc();
            self.counted -= more * price;
            cwnd += more;
        }
        cwnd
    }
}
