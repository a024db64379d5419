//! Encodes and decodes 32-bit fields in network byte order, and checks their values.

use crate::{Body, Notice};
use steadycast_units::{Rate, Span};

pub(crate) const ABSURD_RTT: Span = Span::secs(60);
/// Maximum valid rate in bytes per second. It equals 10 Tb/s.
pub(crate) const ABSURD_BYTES_PER_S: f32 = 1.25e12;

impl Notice {
    pub(crate) fn of_words<const N: usize>(id: u8, words: [u32; N]) -> Self {
        Self::new(id, words.map(u32::to_be_bytes).as_flattened())
    }
}

impl Body {
    pub(crate) fn of_words(subtype: u8, words: impl IntoIterator<Item = u32>) -> Self {
        Self { subtype, bytes: words.into_iter().flat_map(u32::to_be_bytes).collect() }
    }
}

/// Parses the first `N` 32-bit words. Returns `None` if there are fewer words.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let bytes = bytes.get(..4 * N)?;
    Some(std::array::from_fn(|n| {
        u32::from_be_bytes([bytes[4 * n], bytes[4 * n + 1], bytes[4 * n + 2], bytes[4 * n + 3]])
    }))
}

/// Combines flags: returns the bits of all flags that are set.
pub(crate) fn flags<const N: usize>(all: [(bool, u8); N]) -> u8 {
    all.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
}

/// Encodes a duration in µs. Durations above 71 minutes do not fit into 32 bits, and are encoded as the maximum.
pub(crate) fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}

pub(crate) fn span(micros: u32) -> Span {
    Span::micros(u64::from(micros))
}

pub(crate) fn single(number: f64) -> u32 {
    (number as f32).to_bits()
}

/// Decodes a float. Returns `None` unless it is finite and not negative.
pub(crate) fn amount(bits: u32) -> Option<f64> {
    let number = f64::from(f32::from_bits(bits));
    // Reject NaN and infinity, because they would spread through all later computations.
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Decodes a float. Returns `None` unless it is from 0 to 1.
pub(crate) fn share(bits: u32) -> Option<f64> {
    amount(bits).filter(|share| *share <= 1.0)
}

/// Encodes a rate in 24 bits, in units of 100 bit/s. Rates above 1.6 Gb/s are encoded as 1.6 Gb/s.
pub(crate) fn units(rate: Rate) -> u32 {
    (rate.as_bps() / UNIT_BPS).min(u64::from(UNITS)) as u32
}

/// Decodes a rate from the low 24 bits. The other bits belong to another field.
pub(crate) fn of_units(word: u32) -> Rate {
    Rate::bps(u64::from(word & UNITS) * UNIT_BPS)
}

const UNIT_BPS: u64 = 100;
const UNITS: u32 = (1 << 24) - 1;
