//! Fields that the messages of several controllers have, in network byte order: 32-bit words, what stands in them, and
//! what can't be true.

use crate::{Body, Notice};
use steadycast_units::{Rate, Span};

/// A round-trip time above this is no measurement.
pub(crate) const ABSURD_RTT: Span = Span::secs(60);
/// More than any network carries (10 Tb/s): such a rate is no measurement.
pub(crate) const ABSURD_BYTES_PER_S: f32 = 1.25e12;

impl Notice {
    /// Extension element `id` with these words.
    pub(crate) fn of_words<const N: usize>(id: u8, words: [u32; N]) -> Self {
        Self::new(id, words.map(u32::to_be_bytes).as_flattened())
    }
}

impl Body {
    /// A body of these words.
    pub(crate) fn of_words(subtype: u8, words: impl IntoIterator<Item = u32>) -> Self {
        Self { subtype, bytes: words.into_iter().flat_map(u32::to_be_bytes).collect() }
    }
}

/// The first `N` words; `None` where there are fewer.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let bytes = bytes.get(..4 * N)?;
    Some(std::array::from_fn(|n| {
        u32::from_be_bytes([bytes[4 * n], bytes[4 * n + 1], bytes[4 * n + 2], bytes[4 * n + 3]])
    }))
}

/// The bits of those flags that are set.
pub(crate) fn flags<const N: usize>(all: [(bool, u8); N]) -> u8 {
    all.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
}

/// A span in whole microseconds, at most what 32 bits hold.
pub(crate) fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}

/// The span of [`micros`].
pub(crate) fn span(micros: u32) -> Span {
    Span::micros(u64::from(micros))
}

/// The bits of a number in single precision.
pub(crate) fn single(number: f64) -> u32 {
    (number as f32).to_bits()
}

/// The number of [`single`], where it is finite and not negative.
pub(crate) fn amount(bits: u32) -> Option<f64> {
    let number = f64::from(f32::from_bits(bits));
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// The number of [`single`], where it is from 0 to 1.
pub(crate) fn share(bits: u32) -> Option<f64> {
    amount(bits).filter(|share| *share <= 1.0)
}

/// A rate in 24 bits, in units of 100 bit/s: at most 1.6 Gb/s.
pub(crate) fn units(rate: Rate) -> u32 {
    (rate.as_bps() / UNIT_BPS).min(u64::from(UNITS)) as u32
}

/// The rate of [`units`]; the upper eight bits belong to something else.
pub(crate) fn of_units(word: u32) -> Rate {
    Rate::bps(u64::from(word & UNITS) * UNIT_BPS)
}

const UNIT_BPS: u64 = 100;
const UNITS: u32 = (1 << 24) - 1;
