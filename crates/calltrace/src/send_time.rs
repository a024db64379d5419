//! Finds the header extension abs-send-time, and decodes it.
//!
//! The id of the extension is negotiated (RFC 8285, section 5), but few captures contain the negotiation. So the
//! extension is found by its values. They have 24 bits in units of 2⁻¹⁸ s, advance with the capture's clock, and wrap
//! after 64 s.
//!
//! The transmission offset of RFC 5450 has 24 bits too, but its values stay near zero.

use crate::Problem;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time};

/// Extension elements of a packet: id, length in bytes, and value. Only elements of 2 to 4 bytes are included.
pub(crate) type Elements = Vec<(u8, usize, u32)>;
/// Id and length of a header extension.
pub(crate) type Kind = (u8, usize);

/// Time between two send times that are compared. A quarter of the recording is used if it is shorter.
const APART: Span = Span::secs(2);
/// Maximum difference between how far the send times advance and how far the recorded times advance, relative to
/// [`APART`]. A queue that grows or drains causes a difference.
const TOLERANCE: f64 = 0.5;
/// Minimum share of comparisons that have to agree. Some fail because a clock was set.
const AGREEING: f64 = 0.75;
/// Minimum number of packets that have to carry the extension.
const LEAST_PACKETS: usize = 20;
/// Number of bits of a send time that are fractions of a second.
const FRACTION_BITS: u32 = 18;

/// Finds which extension of each stream has the send time. It is abs-send-time (3 bytes), or the send time of this
/// project's own sessions (4 bytes, with a fixed id).
///
/// `packets` has the time, SSRC and extension elements of each packet, in the order of the recording. `named` is the id
/// that the user or a session description specifies.
///
/// # Errors
/// Returns an error if two extensions of a stream behave like abs-send-time, and the other streams do not show which
/// of the two has the send time. Also returns an error if the extension with the id `named` does not behave like
/// abs-send-time in any stream.
pub(crate) fn find<'a>(
    packets: impl Iterator<Item = (Time, u32, &'a Elements)>,
    named: Option<u8>,
) -> Result<BTreeMap<u32, Kind>, Problem> {
    let mut values: BTreeMap<(u32, Kind), Vec<(Time, u32)>> = BTreeMap::new();
    for (at, ssrc, elements) in packets {
        for (id, len, value) in elements {
            let ours = *len == 4 && *id == steadycast_wire::rtp::SEND_TIME_ID;
            if *len == 3 || ours {
                values.entry((ssrc, (*id, *len))).or_default().push((at, *value));
            }
        }
    }
    let mut found: BTreeMap<u32, Vec<Kind>> = BTreeMap::new();
    for ((ssrc, kind), all) in &values {
        if named.is_none_or(|id| id == kind.0) && advances(all, bits(*kind)) {
            found.entry(*ssrc).or_default().push(*kind);
        }
    }
    if let Some(id) = named.filter(|_| found.is_empty()) {
        let what = format!("the header extension {id} does not advance as abs-send-time does");
        let remedy = "give the id that a=extmap of the session description gives it by --send-time-id";
        return Err(Problem::at(0, what, remedy));
    }
    let certain: BTreeSet<Kind> = found.values().filter(|kinds| kinds.len() == 1).map(|kinds| kinds[0]).collect();
    let mut of_stream = BTreeMap::new();
    for (ssrc, kinds) in found {
        // If several extensions fit, use the one that is the only candidate in another stream.
        let decided: Vec<Kind> = kinds.iter().filter(|kind| certain.contains(kind)).copied().collect();
        let [kind] = (if kinds.len() == 1 { &kinds[..] } else { &decided[..] }) else {
            let ids: Vec<String> = kinds.iter().map(|kind| kind.0.to_string()).collect();
            let what = format!("the header extensions {} all advance as abs-send-time does", ids.join(" and "));
            let remedy = "give the id that a=extmap of the session description gives it by --send-time-id";
            return Err(Problem::at(0, what, remedy));
        };
        of_stream.insert(ssrc, *kind);
    }
    // If a stream has too few packets, assume that it uses the same extension as the other streams.
    if let [kind] = certain.into_iter().collect::<Vec<_>>()[..] {
        for ((ssrc, of), _) in values {
            if of == kind {
                of_stream.entry(ssrc).or_insert(kind);
            }
        }
    }
    Ok(of_stream)
}

pub(crate) fn bits(kind: Kind) -> u32 {
    kind.1 as u32 * 8
}

/// Returns the id of abs-send-time if `text` has a session description that specifies it.
pub(crate) fn described(text: &[u8]) -> Option<u8> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| line.starts_with("a=extmap:") && line.contains("abs-send-time"))?;
    line.strip_prefix("a=extmap:")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Whether values advance like the capture's clock. This is checked in the order of the file and in the order of times.
/// The file's order is right if a clock was set back, and the order of times is right if records are out of order.
fn advances(values: &[(Time, u32)], bits: u32) -> bool {
    let (Some(first), Some(last)) = (values.iter().map(|v| v.0).min(), values.iter().map(|v| v.0).max()) else {
        return false;
    };
    let apart = APART.min(Span::nanos(last.since(first).as_nanos() / 4));
    if values.len() < LEAST_PACKETS || apart == Span::ZERO {
        return false;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by_key(|value| value.0);
    advances_in_order(values, apart, bits) || advances_in_order(&sorted, apart, bits)
}

fn advances_in_order(values: &[(Time, u32)], apart: Span, bits: u32) -> bool {
    let (mut agreeing, mut compared, mut later) = (0_usize, 0_usize, 0_usize);
    for (i, (at, value)) in values.iter().enumerate() {
        later = later.max(i);
        // Compare with the next packet that was recorded at least `apart` later. Also stop at a packet with an earlier
        // time, because the clock was set back there.
        while values.get(later).is_some_and(|other| (*at..*at + apart).contains(&other.0)) {
            later += 1;
        }
        let Some((other_at, other)) = values.get(later) else { break };
        let passed = other_at.as_secs_f64() - at.as_secs_f64();
        // Ignore multiples of the wrap, because the values may have wrapped several times.
        let off = libm::remainder(advance(*value, *other, bits) as f64 * 1e-9 - passed, wrap_s(bits));
        compared += 1;
        agreeing += usize::from(off.abs() <= TOLERANCE * apart.as_secs_f64());
    }
    compared >= LEAST_PACKETS / 2 && agreeing as f64 >= AGREEING * compared as f64
}

/// Returns the time after which send times wrap, in seconds.
fn wrap_s(bits: u32) -> f64 {
    libm::exp2(f64::from(bits - FRACTION_BITS))
}

/// Returns the signed distance between a time and the nearest multiple of the wrap, in nanoseconds.
pub(crate) fn to_nearest_wrap(nanos: i64, bits: u32) -> i64 {
    let wrap = (1_i64 << (bits - FRACTION_BITS)) * 1_000_000_000;
    (nanos + wrap / 2).rem_euclid(wrap) - wrap / 2
}

/// Unwraps send times. The recording's times show how often a send time has wrapped.
pub(crate) struct SendTimes {
    bits: u32,
    first: Option<(u32, Time)>,
}

/// Time that is added to all send times, so that none is negative. Packets that were recorded later than the first one
/// may have left before it.
pub(crate) const BEFORE: Span = Span::secs(1);

impl SendTimes {
    pub(crate) fn new(bits: u32) -> Self {
        Self { bits, first: None }
    }

    /// Returns the unwrapped send time. Of the possible times, this is the one nearest to the recorded time `beside`.
    pub(crate) fn unwrap(&mut self, raw: u32, beside: Time) -> Time {
        let (first, anchor) = *self.first.get_or_insert((raw, beside));
        let wrap = 1_i128 << self.bits;
        let gone =
            (i128::from(beside.as_nanos()) - i128::from(anchor.as_nanos())) * (1 << FRACTION_BITS) / 1_000_000_000;
        let raw = (i128::from(raw) - i128::from(first)).rem_euclid(wrap);
        let ticks = raw + (gone - raw + wrap / 2).div_euclid(wrap) * wrap;
        let nanos = i128::from((anchor + BEFORE).as_nanos()) + ticks * 1_000_000_000 / (1 << FRACTION_BITS);
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

/// Returns the signed difference between two send times, in nanoseconds. It is at most half a wrap.
pub(crate) fn advance(from: u32, to: u32, bits: u32) -> i64 {
    let shift = 32 - bits;
    let signed = (to.wrapping_sub(from) << shift) as i32 >> shift;
    i64::from(signed) * 1_000_000_000 / (1 << FRACTION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packets(seconds: u32, send_time: Option<u8>, offset: Option<u8>, wait: u32) -> Vec<(Time, Elements)> {
        let one = |k: u32| {
            let (left, waits) = (u64::from(k) * 8, u64::from(wait * (k % 400) / 400));
            let mut elements = vec![(9, 3, 0x0001_4064), (4, 2, k & 0xffff)];
            elements.extend(send_time.map(|id| (id, 3, ((left * 262_144 / 1000 + 0xff_0000) & 0xff_ffff) as u32)));
            // Add the transmission offset of RFC 5450. It is the time for which the pacer held the packet back, in
            // ticks of 90 kHz.
            elements.extend(offset.map(|id| (id, 3, k % 7 * 450)));
            (Time::from_nanos((left + waits) * 1_000_000), elements)
        };
        (0..seconds * 125).map(one).collect()
    }

    proptest! {
        #[test]
        fn abs_send_time_is_found_by_its_rate_whatever_the_ids_are(
            ids in Just((1..=14_u8).filter(|id| ![4, 9].contains(id)).collect::<Vec<_>>()).prop_shuffle(),
            seconds in 2..200_u32,
            wait in 0..900_u32,
        ) {
            let seen = packets(seconds, Some(ids[0]), Some(ids[1]), if seconds < 8 { wait / 10 } else { wait });
            let all = || seen.iter().map(|one| (one.0, 1, &one.1));
            prop_assert_eq!(find(all(), None), Ok(BTreeMap::from([(1, (ids[0], 3))])));
            prop_assert_eq!(find(all(), Some(ids[0])), Ok(BTreeMap::from([(1, (ids[0], 3))])));
            prop_assert!(find(all(), Some(ids[1])).is_err());
            let without = packets(seconds, None, Some(ids[1]), wait);
            prop_assert_eq!(find(without.iter().map(|one| (one.0, 1, &one.1)), None), Ok(BTreeMap::new()));
        }
    }

    #[test]
    fn two_extensions_that_advance_alike_are_refused_and_a_description_decides() {
        let mut seen = packets(20, Some(3), None, 0);
        for (_, elements) in &mut seen {
            let value = elements[2].2;
            elements.push((5, 3, value.wrapping_add(77) & 0xff_ffff));
        }
        let all = || seen.iter().map(|one| (one.0, 1, &one.1));
        let refused = find(all(), None).unwrap_err();
        assert!(refused.what.contains("3 and 5") && refused.remedy.contains("--send-time-id"), "{refused:?}");
        let text = b"v=0\r\na=extmap:2 urn:ietf:params:rtp-hdrext:toffset\r\n\
                     a=extmap:5/sendonly http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time\r\n";
        assert_eq!(find(all(), described(text)), Ok(BTreeMap::from([(1, (5, 3))])));
        // A second stream has only one of the two extensions.
        let lone = packets(20, Some(5), None, 0);
        let both = seen.iter().map(|one| (one.0, 1, &one.1)).chain(lone.iter().map(|one| (one.0, 2, &one.1)));
        assert_eq!(find(both, None), Ok(BTreeMap::from([(1, (5, 3)), (2, (5, 3))])));
    }

    #[test]
    fn the_way_from_one_send_time_to_the_next_goes_over_the_wrap() {
        assert_eq!(advance(0xff_ffff, 0x3_ffff, 24), 1_000_000_000);
        assert_eq!(advance(0x3_ffff, 0xff_ffff, 24), -1_000_000_000);
    }
}
