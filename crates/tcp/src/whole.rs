/// Linux's window is a whole number: what is acknowledged adds up until it is worth a segment (`tcp_cong_avoid_ai`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    counted: f64,
}

impl Whole {
    /// The window after `acked` more segments, with one more for every `price`.
    pub(crate) fn grow(&mut self, cwnd: f64, acked: f64, price: f64) -> f64 {
        let price = price.trunc().max(1.0);
        let mut cwnd = cwnd.trunc();
        // A price that has fallen is paid once, and what was too much is gone.
        if self.counted >= price {
            self.counted = 0.0;
            cwnd += 1.0;
        }
        self.counted += acked;
        let more = (self.counted / price).trunc();
        self.counted -= more * price;
        cwnd + more
    }
}
