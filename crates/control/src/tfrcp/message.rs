use crate::Body;
use crate::fields::words;
use steadycast_units::Stamp;

/// APP subtype of a message with packet counts.
const COUNTS: u8 = 1;
/// APP subtype of an acknowledgment.
const ACK: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Numbers of packets since the previous report.
    ///
    /// ```text
    ///   0          4          8
    ///   ├──────────┼──────────┤
    ///   │ expected │ received │   u32, big-endian
    /// ```
    Counts { expected: u32, received: u32 },
    /// The send time of the acknowledged packet (u32, big-endian).
    Ack(Stamp),
}

impl Message {
    /// Parses a message. Returns `None` if its length or content is invalid.
    pub(super) fn parse(body: &Body) -> Option<Self> {
        match (body.subtype, body.bytes.len()) {
            (COUNTS, 8) => {
                let [expected, received] = words(&body.bytes)?;
                // Reject higher counts, because a session can't send more packets between two reports.
                (received <= expected && expected < 1 << 24).then_some(Self::Counts { expected, received })
            }
            (ACK, 4) => words(&body.bytes).map(|[stamp]| Self::Ack(Stamp(stamp))),
            _ => None,
        }
    }

    pub(super) fn body(self) -> Body {
        match self {
            Self::Counts { expected, received } => Body::of_words(COUNTS, [expected, received]),
            Self::Ack(stamp) => Body::of_words(ACK, [stamp.0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(subtype in 0u8..4, bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some(Message::Counts { expected, received }) = Message::parse(&Body { subtype, bytes }) {
                prop_assert!(received <= expected);
            }
        }

        #[test]
        fn a_message_reads_back(expected in 0u32..1 << 24, part in 0.0f64..1.0, stamp: u32) {
            let received = (f64::from(expected) * part) as u32;
            for message in [Message::Counts { expected, received }, Message::Ack(Stamp(stamp))] {
                prop_assert_eq!(Message::parse(&message.body()), Some(message));
            }
        }
    }
}
