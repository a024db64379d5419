use crate::fields::{micros, span, words};
use crate::{Body, BufferLevel};
use steadycast_units::{Bytes, Span, Stamp};

const REPORT: u8 = 1;
const BYTES: usize = 20;
const BYTES_WITH_LOSS: usize = 24;

/// A report: 20 bytes, big-endian. If the sender uses the loss event rate, 4 more bytes follow.
///
/// ```text
///   0        4         8        12       16         20      24
///   ├────────┼─────────┼────────┼────────┼──────────┼───────┤
///   │ B      │ B_full  │ ΔB     │ echo   │ t_delay  │ p     │
///   │ u32 B  │ u32 B   │ i32 B  │ stamp  │ u32 µs   │ f32   │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FeedbackReport {
    /// The buffer's fill level and size. The size is zero if the receiver has no buffer.
    pub(super) buffer: BufferLevel,
    /// Change of the fill level since the last report, in bytes.
    pub(super) change: i32,
    /// The stamp that the newest arrived packet carried.
    pub(super) echo: Stamp,
    /// Time from the arrival of this newest packet until the report was sent.
    pub(super) delay: Span,
    /// The loss event rate, or zero if no packet was lost. `None` if the sender does not use the rate.
    pub(super) loss: Option<f32>,
}

impl FeedbackReport {
    /// Parses a report. Returns `None` if its length or its content is invalid.
    pub(super) fn parse(body: &Body) -> Option<Self> {
        if body.subtype != REPORT || !(body.bytes.len() == BYTES || body.bytes.len() == BYTES_WITH_LOSS) {
            return None;
        }
        let [level, size, change, echo, delay] = words(&body.bytes)?;
        let [level, size] = [level, size].map(|bytes| Bytes::new(u64::from(bytes)));
        let change = change.cast_signed();
        let loss = words(&body.bytes).map(|[.., p]: [u32; 6]| f32::from_bits(p));
        // Reject values that contradict each other.
        let sane = level <= size
            && u64::from(change.unsigned_abs()) <= size.get()
            && loss.is_none_or(|p| (0.0..=1.0).contains(&p));
        sane.then_some(Self {
            buffer: BufferLevel { level, size },
            change,
            echo: Stamp(echo),
            delay: span(delay),
            loss,
        })
    }

    pub(super) fn body(&self) -> Body {
        let bytes = |b: Bytes| u32::try_from(b.get()).unwrap_or(u32::MAX);
        let BufferLevel { level, size } = self.buffer;
        let words = [bytes(level), bytes(size), self.change.cast_unsigned(), self.echo.0, micros(self.delay)];
        Body::of_words(REPORT, words.into_iter().chain(self.loss.map(f32::to_bits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(subtype in 0u8..3, bytes in prop::collection::vec(any::<u8>(), 0..28)) {
            if let Some(found) = FeedbackReport::parse(&Body { subtype, bytes }) {
                prop_assert!(found.buffer.level <= found.buffer.size);
            }
        }

        #[test]
        fn a_report_reads_back(
            size in 1u32..1 << 30, part in 0.0f64..1.0, stamp: u32, held in 0u32..1 << 30, p in 0.0f32..1.0,
        ) {
            let level = (f64::from(size) * part) as u32;
            for loss in [None, Some(p)] {
                let found = FeedbackReport {
                    buffer: BufferLevel { level: Bytes::new(u64::from(level)), size: Bytes::new(u64::from(size)) },
                    change: -(level.cast_signed()),
                    echo: Stamp(stamp),
                    delay: Span::micros(u64::from(held)),
                    loss,
                };
                prop_assert_eq!(FeedbackReport::parse(&found.body()), Some(found));
            }
        }
    }
}
