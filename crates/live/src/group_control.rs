//! A live encoder's rate control: quantizer and picture size per group of pictures.

use steadycast_media::{Scale, bucket};
use steadycast_units::{Bytes, Rate, Span};

/// Parameters of a live encoder's rate control.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Pictures per second, as a fraction.
    pub fps: (u32, u32),
    /// Pictures from one I frame to the next.
    pub gop: u32,
    /// The finest and the coarsest quantizer.
    pub quantizers: (u8, u8),
    /// The relation between quantizer and step size.
    pub scale: Scale,
    /// Picture widths and heights, in decreasing order from the source's size. Smaller sizes are for rates that are too
    /// low for the coarsest quantizer.
    pub sizes: Vec<(u32, u32)>,
    /// Whether frames are sent when they arrive, as from a camera.
    pub own_pace: bool,
    /// Overhead per packet in bytes beyond the payload.
    pub overhead: u64,
}

impl Steering {
    /// Returns a picture's sampling time, counted from the first picture.
    pub(crate) fn time(&self, picture: u32) -> Span {
        let (per, of) = self.fps;
        Span::nanos((u128::from(picture) * 1_000_000_000 * u128::from(of) / u128::from(per.max(1))) as u64)
    }
}

/// The bucket's size in groups of pictures (Evalvid-RA).
const BUCKET_GROUPS: f64 = 1.5;

/// A picture's bytes grow with its samples to the power of this exponent. The first value is for a smaller size, the
/// second value for a larger size.
///
/// The exponents of FFmpeg's test pattern are 0.6 to 1. The values are chosen to overestimate the bytes.
const BYTES_BY_SAMPLES_EXPONENTS: (f64, f64) = (0.7, 1.0);

/// Pictures get smaller if they need more than the largest step size times this factor. At the new size, they must need
/// at most the largest step size divided by this factor.
pub(crate) const DOWNSIZE_MARGIN: f64 = 1.1;

/// Conditions for larger pictures, each a factor and a duration. During this time, the larger size must need at most
/// the largest step size divided by the factor.
///
/// With the second condition, pictures grow sooner if the rate is high.
const UPSIZE_MARGINS: [(f64, Span); 2] = [(1.5, Span::secs(5)), (4.0, Span::secs(1))];

/// The result of the last group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LastGroup {
    /// The group was coded in full.
    Whole,
    /// The group ended early, so its size is not evaluated.
    Cut,
    /// The group outgrew the rate, and should have had this quantizer.
    Outgrown(f64),
}

/// Chooses each group's quantizer and picture size by Evalvid-RA's leaky bucket.
#[derive(Clone, Debug)]
pub(crate) struct GroupControl {
    pub(crate) steering: Steering,
    /// The present group's quantizer, before rounding.
    pub(crate) quantizer: f64,
    /// The leaky bucket's level.
    fill: f64,
    /// The bytes of the present group, including packet headers.
    sent: Bytes,
    /// Packet headers in `sent`.
    headers: Bytes,
    /// The present size, as an index of [`Steering::sizes`].
    pub(crate) size: usize,
    begun: bool,
    /// For each condition of [`UPSIZE_MARGINS`], the time since which a larger size has fitted.
    fits_since: [Option<Span>; 2],
    /// Whether the encoder limits the stream: finest quantizer, full size, below the budget.
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

    pub(crate) fn time(&self, picture: u32) -> Span {
        self.steering.time(picture)
    }

    /// Counts a coded frame with `headers` bytes of packet headers.
    pub(crate) fn add(&mut self, size: Bytes, headers: Bytes) {
        self.sent += size;
        self.headers += headers;
    }

    pub(crate) fn reset(&mut self) {
        (self.sent, self.headers) = (Bytes::ZERO, Bytes::ZERO);
    }

    pub(crate) fn rounded(&self) -> u8 {
        libm::round(self.quantizer) as u8
    }

    /// Returns the first group's quantizer, estimated from the rate per sample.
    fn first_quantizer(&self, rate: Rate) -> f64 {
        let per_second = self.samples(0) * f64::from(self.steering.fps.0) / f64::from(self.steering.fps.1);
        let share = per_second / rate.as_bps_f64().max(1.0);
        match self.steering.scale {
            // Quantizer 9 is assumed to need 0.1 bits per sample. The factor 1.5 is a margin.
            Scale::Linear => 0.9 * share * 1.5,
            // QP 28, or 36 on scales to 63, is assumed to need 0.1 bits per sample. The summand 0.5 is a margin.
            Scale::Logarithmic(steps) => {
                let alike = if steps == 6 { 28.0 } else { 36.0 };
                alike + f64::from(steps) * (libm::log2(0.1 * share) + 0.5)
            }
        }
    }

    pub(crate) fn limits(&self) -> (f64, f64) {
        (f64::from(self.steering.quantizers.0), f64::from(self.steering.quantizers.1))
    }

    /// Returns the luma samples of a picture.
    fn samples(&self, size: usize) -> f64 {
        self.steering.sizes.get(size).map_or(0.0, |(width, height)| f64::from(*width) * f64::from(*height))
    }

    /// Returns the quantizer with `factor` times the step size.
    pub(crate) fn scaled(&self, quantizer: f64, factor: f64) -> f64 {
        match self.steering.scale {
            Scale::Linear => quantizer * factor,
            Scale::Logarithmic(steps) => quantizer + f64::from(steps) * libm::log2(factor),
        }
    }

    /// Returns the quantizer at which a group of `open` bytes would have `wanted` bytes. The `headers` bytes do not
    /// depend on the quantizer.
    pub(crate) fn needed(&self, open: f64, wanted: f64, headers: f64) -> f64 {
        // At least a tenth of `wanted` is for payload, so that the factor stays finite.
        let room = (wanted - headers).max(0.1 * wanted).max(1.0);
        self.scaled(self.quantizer, (open - headers).max(1.0) / room)
    }

    /// Sets the quantizer and the picture size of the group that begins at `at`. `budget` is the byte budget of
    /// the last group.
    pub(crate) fn steer(&mut self, at: Span, budget: f64, rate: Rate, last: LastGroup) {
        let (low, high) = self.limits();
        let needed = if self.begun {
            match last {
                LastGroup::Outgrown(needed) => {
                    self.quantizer = needed;
                    Some(needed)
                }
                // The bytes of a partial group do not show how many bytes a whole group needs.
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

    /// Advances the bucket by one group's bytes. Returns the quantizer that would have met the group's byte target.
    fn advance(&mut self, budget: f64, low: f64) -> f64 {
        let open = self.sent.as_f64().max(1.0);
        let (fill, wanted) = bucket(self.fill, BUCKET_GROUPS, budget, open, open);
        let needed = self.needed(open, wanted, self.headers.as_f64());
        self.fill = fill;
        // While groups are within 5 % of their budget, the quantizer stays the same, so that it does not oscillate.
        if (open / budget - 1.0).abs() > 0.05 {
            self.quantizer = self.scaled(self.quantizer, open / wanted);
        }
        self.limited = self.quantizer <= low && open < 0.95 * budget && self.size == 0;
        needed
    }

    /// Makes pictures smaller if the quantizer is too coarse. Makes them larger if a larger size has fitted for long
    /// enough.
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
            // The old fill belongs to the old size, so the bucket restarts half full.
            (self.quantizer, self.size, self.fill) = (there[to], to, 0.5);
            self.fits_since = [None; 2];
        }
    }
}

/// Returns a group's byte budget: `whole` minus the backlog, but at least half of `whole`. `whole` is what the rate
/// sends during the group.
pub(crate) fn room(whole: Bytes, backlog: Bytes) -> f64 {
    whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2)).as_f64().max(1.0)
}
