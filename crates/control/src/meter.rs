use steadycast_units::{Bytes, Rate, Span, Time};

const SLICES: usize = 8;

/// Bytes that arrived in one slice of the window. The first packet of the slice is not counted.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    since: Time,
    bytes: u64,
}

/// Measures the receive rate over a sliding window, which consists of eight slices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    slices: [Slice; SLICES],
    known: usize,
    last: Time,
}

impl Meter {
    /// Adds a packet that arrived at `at`. `over` is the longest window that [`Meter::rate`] is called with.
    pub(crate) fn add(&mut self, size: Bytes, at: Time, over: Span) {
        self.last = at;
        if self.known > 0 {
            self.slices[0].bytes += size.get();
            if at.since(self.slices[0].since) < over / SLICES as u64 {
                return;
            }
        }
        self.slices.rotate_right(1);
        // Do not count the packet that begins a slice, because n packets have n − 1 intervals between them.
        self.slices[0] = Slice { since: at, bytes: 0 };
        self.known = (self.known + 1).min(SLICES);
    }

    /// Returns the rate over the last `over`, or since the first packet if that is later. Returns `None` before the
    /// second packet, and after a silence of length `over`.
    pub(crate) fn rate(&self, now: Time, over: Span) -> Option<Rate> {
        let from = now.before(over);
        let (mut bytes, mut since) = (0, None);
        for (i, slice) in self.slices[..self.known].iter().enumerate() {
            // Stop after the first slice that begins before the window. This slice still counts.
            if i > 0 && slice.since < from && since.is_some_and(|s| s <= from) {
                break;
            }
            bytes += slice.bytes;
            since = Some(slice.since);
        }
        // If no packet arrives for longer than a slice, count the time beyond the slice, so that the rate falls.
        let silence = now.since(self.last).saturating_sub(over / SLICES as u64);
        let span = self.last.since(since?) + silence;
        (bytes > 0 && now.since(self.last) < over).then(|| Bytes::new(bytes).per(span.max(Span::micros(100))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    #[test]
    fn a_steady_stream_is_measured_exactly_from_two_packets_on() {
        for gap in [3, 10, 50, 100] {
            let (mut meter, over) = (Meter::default(), Span::millis(300));
            meter.add(Bytes::new(1000), ms(1_000), over);
            assert_eq!(meter.rate(ms(1_000), over), None);
            for k in 1..200 {
                let at = ms(1_000 + k * gap);
                meter.add(Bytes::new(1000), at, over);
                let got = meter.rate(at, over).unwrap().as_bps_f64() * gap as f64 / 8e6;
                assert!((got - 1.0).abs() < 1e-6, "{got} after {k} packets of {gap} ms");
            }
        }
    }

    #[test]
    fn a_change_shows_in_full_after_the_window_and_a_slice() {
        let (mut meter, over) = (Meter::default(), Span::millis(160));
        for k in 0..100 {
            meter.add(Bytes::new(1000), ms(k * 2), over);
        }
        for k in 1..=20 {
            meter.add(Bytes::new(1000), ms(200 + k * 10), over);
        }
        let got = meter.rate(ms(400), over).unwrap().as_bps_f64() / 800e3;
        assert!((got - 1.0).abs() < 1e-6, "{got}");
        let halfway = {
            let mut meter = Meter::default();
            (0..100).for_each(|k| meter.add(Bytes::new(1000), ms(k * 2), over));
            (1..=8).for_each(|k| meter.add(Bytes::new(1000), ms(198 + k * 10), over));
            meter.rate(ms(278), over).unwrap().as_bps_f64() / 800e3
        };
        assert!((2.4..=3.6).contains(&halfway), "{halfway}: between 1 and 5");
    }

    #[test]
    fn silence_lowers_the_rate_and_ends_it() {
        let (mut meter, over) = (Meter::default(), Span::millis(300));
        for k in 0..100 {
            meter.add(Bytes::new(1000), ms(k * 10), over);
        }
        let rate = |at: u64| meter.rate(ms(at), over).map(|r| r.as_bps_f64() / 800e3);
        assert!(rate(990).is_some_and(|r| (0.999..=1.001).contains(&r)));
        assert!(rate(1_190).is_some_and(|r| (0.3..=0.7).contains(&r)), "{:?}", rate(1_190));
        assert_eq!(rate(1_300), None);
    }
}
