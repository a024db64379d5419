//! The messages of `steady`'s halves where receivers run the law: in groups, and with `at = "receiver"`.
//!
//! ```text
//! notice, on every packet:  flags u8 │ rate u24 (100 bit/s) │ limiting u32 [│ told u32 │ RTT u32 µs]
//! report (APP "STDY" 1):  rate f32 B/s │ loss f32 │ queue u32 µs │ RTT u32 µs │ echo u32 │ rule u8 │ flags u8 │ 0 0
//! ```
//!
//! The echo is the send time of the newest packet in units of 2⁻¹⁸ s, plus the time since it arrived. Fields are in
//! network byte order. A message that is too short or has an impossible number is ignored.

use crate::fields::{self, amount, flags, micros, share, single, span, words};
use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span, Stamp};

/// A receiver objects to the sent rate if it asks for less than this share of it. Both halves use this value, so that a
/// receiver reports early only if its sender would follow.
pub(super) const OBJECTION_SHARE: f64 = 0.95;

/// The id of the header extension element.
pub(super) const NOTICE_ID: u8 = 9;
const REPORT: u8 = 1;

const FRAMES: u8 = 1;
const HAS_LIMITING: u8 = 2;

const FREE: u8 = 1;
const START: u8 = 2;
const HAS_RTT: u8 = 4;

/// The sender's notice, which travels with each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SenderNotice {
    /// The rate that is sent.
    pub(super) rate: Rate,
    /// Whether the source has frames, whose packets may be sent in bursts.
    pub(super) frames: bool,
    /// The limiting receiver, whose rate is sent.
    pub(super) limiting: Option<ReceiverId>,
    /// A receiver and its round-trip time, which only the sender can measure.
    pub(super) measured_rtt: Option<(ReceiverId, Span)>,
}

impl SenderNotice {
    pub(super) fn notice(&self) -> Notice {
        let flags = flags([(self.frames, FRAMES), (self.limiting.is_some(), HAS_LIMITING)]);
        let rate = u32::from(flags) << 24 | fields::units(self.rate);
        let limiting = self.limiting.unwrap_or_default().0;
        match self.measured_rtt {
            None => Notice::of_words(NOTICE_ID, [rate, limiting]),
            Some((id, rtt)) => Notice::of_words(NOTICE_ID, [rate, limiting, id.0, micros(rtt)]),
        }
    }

    pub(super) fn read(notice: &[u8]) -> Option<Self> {
        let [rate, limiting] = words(notice)?;
        let [flags, ..] = rate.to_be_bytes();
        Some(Self {
            rate: fields::of_units(rate),
            frames: flags & FRAMES != 0,
            limiting: (flags & HAS_LIMITING != 0).then_some(ReceiverId(limiting)),
            measured_rtt: words(notice).map(|[_, _, id, rtt]| (ReceiverId(id), span(rtt))),
        })
    }
}

/// The report of one receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReceiverReport {
    /// The rate that its law asks for.
    pub(super) rate: Rate,
    /// The share of packets that were lost in the last second.
    pub(super) loss: f64,
    /// The queueing delay on the receiver's path.
    pub(super) queue: Span,
    /// The round-trip time that its law uses.
    pub(super) rtt: Span,
    /// The send time of its newest packet, plus the time since that packet arrived.
    pub(super) echo: Stamp,
    /// The rule that set the rate.
    pub(super) rule: &'static str,
    /// Whether only the sent rate limits the law's rate. The receiver then does not object to a higher sent rate.
    pub(super) free: bool,
    /// Whether the receiver's law is in START.
    pub(super) start: bool,
    /// Whether the sender has sent this receiver its round-trip time.
    pub(super) has_rtt: bool,
}

impl ReceiverReport {
    pub(super) fn body(&self) -> Body {
        let rule = RULES.iter().position(|rule| *rule == self.rule).unwrap_or(0);
        let flags = flags([(self.free, FREE), (self.start, START), (self.has_rtt, HAS_RTT)]);
        let words = [
            single(self.rate.as_bytes_per_s()),
            single(self.loss),
            micros(self.queue),
            micros(self.rtt),
            self.echo.0,
            u32::from_be_bytes([u8::try_from(rule).unwrap_or(0), flags, 0, 0]),
        ];
        Body::of_words(REPORT, words)
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        let [rate, loss, queue, rtt, echo, rest] = words(&body.bytes).filter(|_| body.subtype == REPORT)?;
        let [rule, flags, ..] = rest.to_be_bytes();
        Some(Self {
            rate: Rate::from_bytes_per_s(amount(rate)?),
            loss: share(loss)?,
            queue: span(queue),
            rtt: span(rtt),
            echo: Stamp(echo),
            rule: RULES.get(usize::from(rule)).copied().unwrap_or(RULES[0]),
            free: flags & FREE != 0,
            start: flags & START != 0,
            has_rtt: flags & HAS_RTT != 0,
        })
    }
}

/// The rules of the laws, by their number in a report. The first one stands for every rule that this version does not
/// know.
pub(super) const RULES: &[&str] = &[
    "a receiver's rule",
    "start: first packets",
    "start: up",
    "delay: the start found a queue",
    "delay: wait",
    "delay: drained",
    "delay: policed",
    "delay: marked",
    "delay: down",
    "delay: over target",
    "delay: up",
    "delay: queue is empty",
    "delay: a queue of its own",
    "compete: loss in the start",
    "compete: pushed down, with losses",
    "compete: lost, with a queue",
    "compete: lost again, in a standing queue",
    "compete: yielded, and still a queue",
    "compete: up",
    "compete: loss",
    "compete: drain",
    "l4s: up",
    "l4s: loss",
    "l4s: marks",
    "compete: little of a queue that stands",
    "delay: lost in its own queue",
    "delay: a longer path",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of a report.
    const LEN: usize = 24;

    #[test]
    fn every_rule_of_the_laws_has_a_number() {
        let sources =
            [include_str!("law.rs"), include_str!("delay.rs"), include_str!("compete.rs"), include_str!("scalable.rs")];
        let mut seen = 0;
        for source in sources {
            let names = source
                .split('"')
                .filter(|text| ["start: ", "delay: ", "compete: ", "l4s: "].iter().any(|mode| text.starts_with(mode)));
            for name in names {
                assert!(RULES.contains(&name), "{name}");
                seen += 1;
            }
        }
        assert!((RULES.len() - 1..2 * RULES.len()).contains(&seen), "{seen} rules for {} numbers", RULES.len());
    }

    #[test]
    fn a_message_of_one_half_is_read_by_the_other() {
        let report = ReceiverReport {
            rate: Rate::kbps(1_000),
            loss: 0.25,
            queue: Span::micros(4_321),
            rtt: Span::millis(41),
            echo: Stamp(0xdead_beef),
            rule: "compete: drain",
            free: true,
            start: false,
            has_rtt: true,
        };
        let body = report.body();
        assert_eq!((body.bytes.len(), ReceiverReport::read(&body)), (LEN, Some(report)));
        for measured_rtt in [None, Some((ReceiverId(7), Span::millis(40)))] {
            let notice =
                SenderNotice { rate: Rate::kbps(1_234), frames: true, limiting: Some(ReceiverId(9)), measured_rtt };
            assert_eq!(SenderNotice::read(notice.notice().bytes()), Some(notice));
        }
        let minimal = SenderNotice { rate: Rate::ZERO, frames: false, limiting: None, measured_rtt: None };
        assert_eq!(SenderNotice::read(minimal.notice().bytes()), Some(minimal));
    }

    #[test]
    fn a_report_that_is_short_of_another_kind_or_no_number_is_none() {
        let good = ReceiverReport::read(&Body { subtype: REPORT, bytes: vec![0; LEN] });
        assert!(good.is_some());
        assert_eq!(ReceiverReport::read(&Body { subtype: 2, bytes: vec![0; LEN] }), None);
        assert_eq!(ReceiverReport::read(&Body { subtype: REPORT, bytes: vec![0; LEN - 1] }), None);
        for (place, number) in [(0, f32::NAN), (0, -1.0), (0, f32::INFINITY), (4, 1.1), (4, f32::NAN)] {
            let mut bytes = vec![0; LEN];
            bytes[place..place + 4].copy_from_slice(&number.to_be_bytes());
            assert_eq!(ReceiverReport::read(&Body { subtype: REPORT, bytes }), None, "{number} at {place}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_that_is_written_the_same_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..40), subtype in 0u8..4,
        ) {
            if let Some(report) = ReceiverReport::read(&Body { subtype, bytes: bytes.clone() }) {
                let again = ReceiverReport::read(&report.body());
                // The wire format has single precision: 24 bits.
                let rate = again.map_or(Rate::ZERO, |again| again.rate);
                let wanted = report.rate.as_bps_f64();
                prop_assert!((rate.as_bps_f64() - wanted).abs() <= 1e-6 * wanted + 8.0);
                prop_assert_eq!(again, Some(ReceiverReport { rate, ..report }));
            }
            if let Some(notice) = SenderNotice::read(&bytes) {
                prop_assert_eq!(SenderNotice::read(notice.notice().bytes()), Some(notice));
            }
        }
    }
}
