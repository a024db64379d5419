//! The rate control of a live encoder: a quantizer and a picture size for each group of pictures.

use steadycast_media::{Scale, bucket};
use steadycast_units::{Bytes, Rate, Span};

/// Parameters of a live encoder's rate control.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Pictures per second, as a fraction.
    pub fps: (u32, u32),
    /// Number of pictures from one I frame to the next.
    pub gop: u32,
    /// The finest and the coarsest quantizer.
    pub quantizers: (u8, u8),
    /// The relation between quantizer and step size.
    pub scale: Scale,
    /// Widths and heights at which pictures may be coded, the source's size first, then in decreasing order. If there
    /// are several sizes, a smaller one is chosen when the rate is too low for the coarsest quantizer.
    pub sizes: Vec<(u32, u32)>,
    /// Whether the source has its own clock, as a camera has. In that case frames are sent when they arrive.
    pub own_pace: bool,
    /// Overhead per packet in bytes, in addition to the payload.
    pub overhead: u64,
}

impl Steering {
    /// Returns the sampling time of a picture, counted from the first one.
    pub(crate) fn time(&self, picture: u32) -> Span {
        let (per, of) = self.fps;
        Span::nanos((u128::from(picture) * 1_000_000_000 * u128::from(of) / u128::from(per.max(1))) as u64)
    }
}

/// Size of Evalvid-RA's leaky bucket, in groups of pictures.
const BUCKET_GROUPS: f64 = 1.5;

/// Exponents of the relation between samples and bytes of a picture at one quantizer: for a smaller and for a larger
/// size. For FFmpeg's test pattern the exponent is 0.6 to 1 at coarse quantizers. Each direction uses a value from the
/// cautious end of this range.
const BYTES_BY_SAMPLES_EXPONENTS: (f64, f64) = (0.7, 1.0);

/// Margin of the step size for a change to a smaller size. The size is reduced if the needed step size exceeds that of
/// the coarsest quantizer by this factor. At the new size, the needed step size must be below that of the coarsest
/// quantizer by the same factor.
pub(crate) const DOWNSIZE_MARGIN: f64 = 1.1;

/// Margins of the step size for a change to a larger size, each with the time for which the margin must be kept. The
/// second pair applies to a rate far above the need of the present size, for example after a start.
const UPSIZE_MARGINS: [(f64, Span); 2] = [(1.5, Span::secs(5)), (4.0, Span::secs(1))];

/// The result of the last group of pictures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LastGroup {
    /// The group was coded in full.
    Whole,
    /// The group ended early, so its size is not evaluated.
    Cut,
    /// The group outgrew the rate, and should have had this quantizer.
    Outgrown(f64),
}

/// Chooses the quantizer and the size of each group of pictures by the leaky bucket of Evalvid-RA.
#[derive(Clone, Debug)]
pub(crate) struct GroupControl {
    pub(crate) steering: Steering,
    /// The quantizer of the present group of pictures. The encoder receives the rounded value.
    pub(crate) quantizer: f64,
    /// The level of the leaky bucket.
    fill: f64,
    /// Bytes of the present group of pictures, with packet headers.
    sent: Bytes,
    /// Bytes of packet headers in `sent`.
    headers: Bytes,
    /// The present size, as an index of [`Steering::sizes`].
    pub(crate) size: usize,
    /// Whether a group has begun.
    begun: bool,
    /// The time since which a larger size has fitted, for each pair of [`UPSIZE_MARGINS`].
    fits_since: [Option<Span>; 2],
    /// Whether the encoder and not the rate limits the stream: it has the finest quantizer and the full size, and is
    /// below the budget.
    pub(crate) limited: bool,
}

impl GroupControl {
    pub(crate) fn new(steering: Steering) -> Self {
        Self {
            steering,
            quantizer: 0.0,
            fill: 0.5,
            sent: Bytes::ZERO,
            headers: Bytes::ZERO,
            size: 0,
            begun: false,
            fits_since: [None; 2],
            limited: false,
        }
    }

    /// Returns the sampling time of a picture.
    pub(crate) fn time(&self, picture: u32) -> Span {
        self.steering.time(picture)
    }

    /// Counts a coded frame of this size, including packet headers. `headers` bytes of it are packet headers.
    pub(crate) fn add(&mut self, size: Bytes, headers: Bytes) {
        self.sent += size;
        self.headers += headers;
    }

    /// Restarts the counts of the present group.
    pub(crate) fn reset(&mut self) {
        (self.sent, self.headers) = (Bytes::ZERO, Bytes::ZERO);
    }

    /// Returns the quantizer, rounded for the encoder.
    pub(crate) fn rounded(&self) -> u8 {
        libm::round(self.quantizer) as u8
    }

    /// Returns the first quantizer, before anything has been coded. The method assumes a tenth of a bit per sample at
    /// quantizer 9, as is usual for pictures, with a margin towards coarser quantizers.
    fn first_quantizer(&self, rate: Rate) -> f64 {
        let per_second = self.samples(0) * f64::from(self.steering.fps.0) / f64::from(self.steering.fps.1);
        let share = per_second / rate.as_bps_f64().max(1.0);
        match self.steering.scale {
            // `share` is the reciprocal of the bits per sample. At 0.1 bit per sample the quantizer is 9, so their
            // product is 0.9. The margin is a factor of 1.5 here, and half a doubling on the logarithmic scales.
            Scale::Linear => 0.9 * share * 1.5,
            // Quantizer 9 corresponds to QP 28. On scales from 0 to 63, it corresponds to at most 36.
            Scale::Logarithmic(steps) => {
                let alike = if steps == 6 { 28.0 } else { 36.0 };
                alike + f64::from(steps) * (libm::log2(0.1 * share) + 0.5)
            }
        }
    }

    pub(crate) fn limits(&self) -> (f64, f64) {
        (f64::from(self.steering.quantizers.0), f64::from(self.steering.quantizers.1))
    }

    /// Returns the number of luma samples of a picture of this size.
    fn samples(&self, size: usize) -> f64 {
        self.steering.sizes.get(size).map_or(0.0, |(width, height)| f64::from(*width) * f64::from(*height))
    }

    /// Returns the quantizer whose step size is `factor` times that of `quantizer`.
    pub(crate) fn scaled(&self, quantizer: f64, factor: f64) -> f64 {
        match self.steering.scale {
            Scale::Linear => quantizer * factor,
            Scale::Logarithmic(steps) => quantizer + f64::from(steps) * libm::log2(factor),
        }
    }

    /// A group of pictures has `open` bytes at the present quantizer. Returns the quantizer at which it would have had
    /// `wanted` bytes. `headers` of these bytes are packet headers, whose size does not depend on the quantizer.
    pub(crate) fn needed(&self, open: f64, wanted: f64, headers: f64) -> f64 {
        // At least a tenth of the budget is left for payload, so that the factor stays finite.
        let room = (wanted - headers).max(0.1 * wanted).max(1.0);
        self.scaled(self.quantizer, (open - headers).max(1.0) / room)
    }

    /// Advances the leaky bucket by the size of the last group of pictures, and sets the quantizer and size of the next
    /// group, which begins at `at` and has a budget of `budget` bytes. `rate` is the target rate.
    pub(crate) fn steer(&mut self, at: Span, budget: f64, rate: Rate, last: LastGroup) {
        let (low, high) = self.limits();
        let needed = if self.begun {
            match last {
                LastGroup::Outgrown(needed) => {
                    self.quantizer = needed;
                    Some(needed)
                }
                // A group that ended early does not show the size of a whole group, so the quantizer stays.
                LastGroup::Cut => None,
                LastGroup::Whole => Some(self.advance(budget, low)),
            }
        } else {
            self.quantizer = self.first_quantizer(rate);
            Some(self.quantizer)
        };
        self.begun = true;
        if let Some(needed) = needed {
            self.fit(needed, at);
        }
        self.quantizer = self.quantizer.clamp(low, high);
        self.reset();
    }

    /// Advances the leaky bucket by a whole group, and returns the quantizer that the group should have had.
    fn advance(&mut self, budget: f64, low: f64) -> f64 {
        let open = self.sent.as_f64().max(1.0);
        let (fill, wanted) = bucket(self.fill, BUCKET_GROUPS, budget, open, open);
        let needed = self.needed(open, wanted, self.headers.as_f64());
        self.fill = fill;
        // Within 5 % of the budget the quantizer is kept, so that it does not oscillate.
        if (open / budget - 1.0).abs() > 0.05 {
            self.quantizer = self.scaled(self.quantizer, open / wanted);
        }
        // The stream is limited by the encoder and not by the rate: the quantizer is the finest, the size is full, and
        // budget is left.
        self.limited = self.quantizer <= low && open < 0.95 * budget && self.size == 0;
        needed
    }

    /// Changes the picture size if the present size needs too coarse a quantizer, or if a larger size has fitted for
    /// long enough.
    fn fit(&mut self, needed: f64, at: Span) {
        let (_, high) = self.limits();
        let there: Vec<f64> = (0..self.steering.sizes.len().max(1))
            .map(|size| {
                let samples = self.samples(size) / self.samples(self.size).max(1.0);
                self.scaled(
                    needed,
                    libm::pow(
                        samples,
                        if samples < 1.0 { BYTES_BY_SAMPLES_EXPONENTS.0 } else { BYTES_BY_SAMPLES_EXPONENTS.1 },
                    ),
                )
            })
            .collect();
        let last = there.len() - 1;
        let mut to = self.size;
        if needed > self.scaled(high, DOWNSIZE_MARGIN) {
            let fitting = self.scaled(high, 1.0 / DOWNSIZE_MARGIN);
            to = (self.size + 1..=last).find(|size| there[*size] <= fitting).unwrap_or(last);
            self.fits_since = [None; 2];
        } else {
            for (n, (below, wait)) in UPSIZE_MARGINS.into_iter().enumerate() {
                let fitting = self.scaled(high, 1.0 / below);
                let larger = (0..self.size).find(|size| there[*size] <= fitting);
                let since = larger.map(|_| self.fits_since[n].unwrap_or(at));
                self.fits_since[n] = since;
                if since.is_some_and(|since| at.saturating_sub(since) >= wait) {
                    to = larger.map_or(to, |larger| to.min(larger));
                }
            }
        }
        if to != self.size {
            // The bucket's fill belongs to the old size. A half-full bucket is the neutral start.
            (self.quantizer, self.size, self.fill) = (there[to], to, 0.5);
            self.fits_since = [None; 2];
        }
    }
}

/// Byte budget of a group of pictures: the bytes that the rate sends in the group's duration, minus the backlog. The
/// budget is at least half of these bytes.
pub(crate) fn room(whole: Bytes, backlog: Bytes) -> f64 {
    whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2)).as_f64().max(1.0)
}
