//! The rate control of a live encoder. It chooses the quantizer and the picture size of each group of pictures.

use steadycast_media::{Scale, bucket};
use steadycast_units::{Bytes, Rate, Span};

/// Parameters of the rate control of a live encoder.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Pictures per second, as a fraction.
    pub fps: (u32, u32),
    /// Number of pictures from one I frame to the next.
    pub gop: u32,
    /// The finest and the coarsest quantizer.
    pub quantizers: (u8, u8),
    /// How the step size depends on the quantizer.
    pub scale: Scale,
    /// Picture sizes as width and height, from the source's size downwards. The smaller sizes are for rates that are
    /// too low for the coarsest quantizer.
    pub sizes: Vec<(u32, u32)>,
    /// Whether the source sets the pace itself, like a camera. Frames are then sent as they arrive.
    pub own_pace: bool,
    /// Bytes that a packet has in addition to the payload.
    pub overhead: u64,
}

impl Steering {
    /// Returns when a picture is sampled, counted from the first picture.
    pub(crate) fn time(&self, picture: u32) -> Span {
        let (per, of) = self.fps;
        Span::nanos((u128::from(picture) * 1_000_000_000 * u128::from(of) / u128::from(per.max(1))) as u64)
    }
}

/// Size of the leaky bucket, in groups of pictures (Evalvid-RA).
const BUCKET_GROUPS: f64 = 1.5;

/// Exponents by which the bytes of a picture grow with the number of its samples. The first exponent is for a change to
/// a smaller size. The second exponent is for a change to a larger size.
///
/// Both exponents are chosen to overestimate the bytes. In FFmpeg's test pattern, the exponents are 0.6 to 1.
const BYTES_BY_SAMPLES_EXPONENTS: (f64, f64) = (0.7, 1.0);

/// The margin `m` of the step size at which pictures become smaller. Let `s` be the largest step size. Pictures become
/// smaller if they would need a step size above `s · m`. Their new size is the largest one at which they need at most
/// `s / m`, or the smallest size if there is none.
pub(crate) const DOWNSIZE_MARGIN: f64 = 1.1;

/// The conditions under which pictures become larger. Each condition has a margin `m` and a duration. Let `s` be the
/// largest step size. A condition is met if pictures of the larger size need at most the step size `s / m` for the
/// whole duration.
///
/// The second condition lets pictures grow sooner if the rate is high.
const UPSIZE_MARGINS: [(f64, Span); 2] = [(1.5, Span::secs(5)), (4.0, Span::secs(1))];

/// How the last group of pictures ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LastGroup {
    /// All pictures of the group were encoded.
    Whole,
    /// The group ended early. Its size is not evaluated.
    Cut,
    /// The group exceeded the rate. It should have had this quantizer.
    Outgrown(f64),
}

/// Chooses the quantizer and the picture size of each group by the leaky bucket of Evalvid-RA.
#[derive(Clone, Debug)]
pub(crate) struct GroupControl {
    pub(crate) steering: Steering,
    /// Quantizer of the present group, before rounding.
    pub(crate) quantizer: f64,
    /// Level of the leaky bucket.
    fill: f64,
    /// Size of the present group in bytes, including packet headers.
    sent: Bytes,
    /// Bytes of packet headers in `sent`.
    headers: Bytes,
    /// Picture size at present, as an index of [`Steering::sizes`].
    pub(crate) size: usize,
    begun: bool,
    /// For each condition of [`UPSIZE_MARGINS`], since when a larger size has met it.
    fits_since: [Option<Span>; 2],
    /// Whether the encoder limits the stream. The quantizer is then the finest, the size is the source's size, and the
    /// frames are below the budget.
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

    /// Adds an encoded frame of `size` bytes, of which `headers` bytes are packet headers.
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

    /// Returns the quantizer of the first group. It is estimated from the rate per sample.
    fn first_quantizer(&self, rate: Rate) -> f64 {
        let per_second = self.samples(0) * f64::from(self.steering.fps.0) / f64::from(self.steering.fps.1);
        let share = per_second / rate.as_bps_f64().max(1.0);
        match self.steering.scale {
            // Assume that quantizer 9 needs 0.1 bits per sample. The factor 1.5 is a margin.
            Scale::Linear => 0.9 * share * 1.5,
            // Assume that 0.1 bits per sample are needed at QP 28, or at QP 36 on scales that end at 63. The summand
            // 0.5 is a margin.
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

    /// Returns the quantizer whose step size is `factor` times as large.
    pub(crate) fn scaled(&self, quantizer: f64, factor: f64) -> f64 {
        match self.steering.scale {
            Scale::Linear => quantizer * factor,
            Scale::Logarithmic(steps) => quantizer + f64::from(steps) * libm::log2(factor),
        }
    }

    /// Returns the quantizer at which a group of `open` bytes would have `wanted` bytes. Of the group's bytes,
    /// `headers` bytes do not depend on the quantizer.
    pub(crate) fn needed(&self, open: f64, wanted: f64, headers: f64) -> f64 {
        // Leave at least a tenth of `wanted` to the payload, so that the factor stays finite.
        let room = (wanted - headers).max(0.1 * wanted).max(1.0);
        self.scaled(self.quantizer, (open - headers).max(1.0) / room)
    }

    /// Sets the quantizer and the picture size of the group that begins at `at`. `budget` is how many bytes the last
    /// group was allowed to have.
    pub(crate) fn steer(&mut self, at: Span, budget: f64, rate: Rate, last: LastGroup) {
        let (low, high) = self.limits();
        let needed = if self.begun {
            match last {
                LastGroup::Outgrown(needed) => {
                    self.quantizer = needed;
                    Some(needed)
                }
                // The bytes of a part of a group do not show how many bytes a whole group needs.
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

    /// Adds the bytes of the last group to the bucket. Returns the quantizer with which this group would have had the
    /// right size.
    fn advance(&mut self, budget: f64, low: f64) -> f64 {
        let open = self.sent.as_f64().max(1.0);
        let (fill, wanted) = bucket(self.fill, BUCKET_GROUPS, budget, open, open);
        let needed = self.needed(open, wanted, self.headers.as_f64());
        self.fill = fill;
        // Keep the quantizer while groups are within 5 % of their budget, so that it does not oscillate.
        if (open / budget - 1.0).abs() > 0.05 {
            self.quantizer = self.scaled(self.quantizer, open / wanted);
        }
        self.limited = self.quantizer <= low && open < 0.95 * budget && self.size == 0;
        needed
    }

    /// Makes pictures smaller if the quantizer that they need is too coarse. Makes pictures larger if a larger size has
    /// met its condition for long enough.
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
            // Restart with a bucket that is half full, because its level belongs to the old size.
            (self.quantizer, self.size, self.fill) = (there[to], to, 0.5);
            self.fits_since = [None; 2];
        }
    }
}

/// Returns how many bytes a group may have. This is `whole` minus the backlog, but at least half of `whole`. `whole` is
/// what the rate can send in the duration of the group.
pub(crate) fn room(whole: Bytes, backlog: Bytes) -> f64 {
    whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2)).as_f64().max(1.0)
}
