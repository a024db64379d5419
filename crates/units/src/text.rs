//! Reads and writes quantities as text, for example `4Mbps`, `10ms`, `1018B` or `64KiB`.

use crate::{Bytes, Rate, Span};
use std::fmt;
use std::str::FromStr;

/// Returns a number and a noun in singular or plural, for example "1 packet" or "2 packets".
pub fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// The error if a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The number can't be parsed.
    #[error("“{text}” has no number that can be read: write digits and a point, for example \"{example}\"")]
    NoNumber {
        /// The text that could not be parsed.
        text: String,
        /// A valid example.
        example: &'static str,
    },
    /// The unit is missing or unknown.
    #[error("“{text}” has no unit of {what}: use {units}, for example \"{example}\"")]
    Unit {
        /// The text that could not be parsed.
        text: String,
        /// The name of the quantity, for example "time".
        what: &'static str,
        /// The valid units.
        units: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// The value is negative, infinite, or too large.
    #[error("“{text}” is out of range: a {what} is at least 0 and below {limit}")]
    Range {
        /// The text whose value is out of range.
        text: String,
        /// The name of the quantity, for example "time".
        what: &'static str,
        /// The exclusive upper limit.
        limit: &'static str,
    },
}

struct Kind {
    what: &'static str,
    units: &'static [(&'static str, f64)],
    list: &'static str,
    example: &'static str,
    limit: &'static str,
    max: f64,
}

const SPAN: Kind = Kind {
    what: "time",
    units: &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)],
    list: "us, ms, s or min",
    example: "10ms",
    limit: "30 days",
    max: 30.0 * 86_400e9,
};
const RATE: Kind = Kind {
    what: "rate",
    // Accept FFmpeg's and iperf3's `4M` for 4 Mbit/s. Their prefixes are also powers of ten.
    units: &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)],
    list: "bps, kbps, Mbps or Gbps (powers of ten)",
    example: "4Mbps",
    limit: "1000 Gbps",
    max: 1e12,
};
const SIZE: Kind = Kind {
    what: "size",
    units: &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 1024.0), ("MiB", 1_048_576.0)],
    list: "B, kB, MB, GB, KiB or MiB",
    example: "1018B",
    limit: "1000 GB",
    max: 1e12,
};

fn parse(text: &str, kind: &Kind) -> Result<u64, QuantityError> {
    let trimmed = text.trim();
    // Treat "e" as part of the number, as in "1e3ms". No unit starts with "e".
    let split =
        trimmed.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e'))).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unread = || QuantityError::NoNumber { text: text.to_owned(), example: kind.example };
    let Ok(number) = number.parse::<f64>() else {
        return Err(unread());
    };
    let factor_of = |unit: &str| kind.units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let Some(factor) = factor_of(unit.trim_start()) else {
        // The number has a decimal comma or separators, as in "1,5Mbps" and "1_000kbps".
        if factor_of(unit.trim_start_matches(|c: char| c.is_ascii_digit() || ".,_' ".contains(c))).is_some() {
            return Err(unread());
        }
        return Err(QuantityError::Unit {
            text: text.to_owned(),
            what: kind.what,
            units: kind.list,
            example: kind.example,
        });
    };
    let value = number * factor;
    // This check also rejects NaN.
    if !(0.0..kind.max).contains(&value) {
        return Err(QuantityError::Range { text: text.to_owned(), what: kind.what, limit: kind.limit });
    }
    // Round to the nearest integer, because 0.1 ms in nanoseconds is not exact in floating point.
    Ok((value + 0.5) as u64)
}

/// Writes a value in the largest unit in which it is a whole number. Zero is written in the smallest unit.
fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let best = units.iter().rev().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    let (name, factor) = best.unwrap_or(&units[0]);
    write!(f, "{}{name}", value / factor)
}

impl FromStr for Span {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &SPAN).map(Self::nanos)
    }
}
impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &RATE).map(Self::bps)
    }
}
impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &SIZE).map(Self::new)
    }
}
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.as_nanos(), &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])
    }
}
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.as_bps(), &[("bps", 1), ("kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)])
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.get(), &[("B", 1), ("kB", 1_000), ("MB", 1_000_000)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_thing_is_no_several() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "packet")), ["0 packets", "1 packet", "2 packets"]);
    }

    #[test]
    fn a_number_with_a_decimal_comma_or_separators_is_no_unknown_unit() {
        for text in ["1_000kbps", "1,5Mbps", "1 000 kbps", "2.5.1M", "Mbps"] {
            let read = text.parse::<Rate>();
            assert!(matches!(read, Err(QuantityError::NoNumber { .. })), "{text}: {read:?}");
        }
        for text in ["4", "4MB/s", "4ms", "4 Mbit"] {
            let read = text.parse::<Rate>();
            assert!(matches!(read, Err(QuantityError::Unit { .. })), "{text}: {read:?}");
        }
    }

    #[test]
    fn prefixes_are_powers_of_ten_and_kib_of_two() {
        assert_eq!("4Mbps".parse(), Ok(Rate::bps(4_000_000)));
        for (prefix, factor) in [("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)] {
            assert_eq!(format!("2.5{prefix}").parse(), Ok(Rate::bps(factor * 5 / 2)));
        }
        assert_eq!("0.5ms".parse(), Ok(Span::micros(500)));
        assert_eq!("64KiB".parse(), Ok(Bytes::new(65_536)));
        assert_eq!("64 kB".parse(), Ok(Bytes::new(64_000)));
    }

    #[test]
    fn a_wrong_text_is_told_what_would_be_right() {
        let wrong = |t: &str| t.parse::<Rate>().unwrap_err().to_string();
        assert!(wrong("4").contains("kbps"));
        assert!(wrong("4 MB/s").contains("Mbps"));
        assert!(wrong("-4Mbps").contains("at least 0"));
        assert!(wrong("fast").contains("\"4Mbps\""));
        assert!(wrong("1e99Gbps").contains("below"));
        assert!(wrong("nanMbps").contains("no number"));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(n in 0u64..1_000_000_000_000) {
            prop_assert_eq!(Rate::bps(n).to_string().parse(), Ok(Rate::bps(n)));
            prop_assert_eq!(Span::nanos(n).to_string().parse(), Ok(Span::nanos(n)));
            prop_assert_eq!(Bytes::new(n).to_string().parse(), Ok(Bytes::new(n)));
        }
        #[test]
        fn parsing_any_text_never_panics(t in ".{0,12}") {
            let _ = (t.parse::<Rate>(), t.parse::<Span>(), t.parse::<Bytes>());
        }
    }
}
