/// Linux's window is a whole number: what is acknowledged adds up until it is worth a segment (`tcp_cong_avoid_ai`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    counted: f64,
}

impl Whole {
    /// The window after `acked` more segments, with one more for every `price`.
    pub(crate) fn grow(&mut self, cwnd: f64, acked: f64, price: f64) -> f64 {
        // Windows are below 2³², and what costs more than that is not paid in any run.
        let (mut cwnd, price) = (f64::from(cwnd as u32), f64::from(price as u32).max(1.0));
        // A price that has fallen is paid once, and what was too much is gone.
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
