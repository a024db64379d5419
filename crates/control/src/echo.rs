//! A receiver part for external controllers. It reports when the newest packet was sent and what has arrived.

use crate::fields::{amount, micros, single, span, words};
use crate::{Arrival, Body, Due, ReceiverHalf, Reply, Slot, View, Wake};
use steadycast_units::{Bytes, OneWay, PeerTime, Rate, Span, Stamp, Time};

const SUBTYPE: u8 = 1;

/// A report that an [`EchoReceiver`] sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    /// The send time of the newest packet.
    pub sent: Stamp,
    /// Time between the arrival of the newest packet and the report.
    pub held: Span,
    /// Receive rate since the previous report.
    pub received: Rate,
    /// Number of packets expected since the previous report.
    pub expected: u32,
    /// Number of expected packets that are missing.
    pub lost: u32,
    /// One-way delay of the newest packet, minus the smallest one-way delay so far.
    pub queueing: Span,
}

impl Echo {
    /// Parses a report. Returns `None` if its length, its subtype or its content is invalid.
    pub fn parse(body: &Body) -> Option<Self> {
        let whole = body.subtype == SUBTYPE && body.bytes.len() == 24;
        let [sent, held, received, expected, lost, queueing] = words(&body.bytes).filter(|_| whole)?;
        let received = Rate::from_bps_f64(amount(received)?);
        let echo = Self { sent: Stamp(sent), held: span(held), received, expected, lost, queueing: span(queueing) };
        (lost <= expected).then_some(echo)
    }

    fn body(&self) -> Body {
        let received = single(self.received.as_bps_f64());
        let words = [self.sent.0, micros(self.held), received, self.expected, self.lost, micros(self.queueing)];
        Body::of_words(SUBTYPE, words)
    }

    /// Returns the round-trip time. `now` is when the report arrives at the sender.
    pub fn rtt(&self, now: Time) -> Span {
        now.since(self.sent.own(now)).saturating_sub(self.held)
    }
}

/// The receiver part of an external controller. It sends an [`Echo`] at regular intervals.
#[derive(Debug, Default)]
pub struct EchoReceiver {
    every: Span,
    next: Option<Time>,
    newest: Option<(PeerTime, Time)>,
    quickest: Option<OneWay>,
    bytes: Bytes,
    since: Time,
    view: View,
}

impl EchoReceiver {
    /// Creates a receiver part. It sends a report at the first packet, and then at intervals of `every`.
    pub fn new(every: Span) -> Self {
        Self { every, ..Self::default() }
    }
}

impl ReceiverHalf for EchoReceiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let way = OneWay::between(arrival.sent, arrival.at);
        self.quickest = Some(self.quickest.map_or(way, |q| q.min(way)));
        self.bytes += arrival.size;
        // Do not take a reordered packet as the newest packet, because it was sent earlier.
        if self.newest.is_none_or(|(sent, _)| sent <= arrival.sent) {
            self.newest = Some((arrival.sent, arrival.at));
        }
        if self.next.is_none() {
            // Report at once, because this early report gives the sender a round-trip time.
            (self.next, self.since) = (Some(arrival.at), arrival.at);
        }
    }

    fn due(&self) -> Due {
        self.next.map_or(Due::Hold, |at| Due::At(Wake { at, why: "regular report" }))
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        self.next = Some(slot.now + self.every);
        let (Some((sent, arrived)), Some(quickest)) = (self.newest, self.quickest) else { return Reply::Plain };
        let expected = u32::try_from(slot.expected).unwrap_or(u32::MAX);
        // Count a negative loss as 0, because duplicates can make it negative.
        let lost = u32::try_from(slot.lost.max(0)).unwrap_or(u32::MAX).min(expected);
        let span = slot.now.since(self.since);
        let received = if span.is_zero() { Rate::ZERO } else { self.bytes.per(span) };
        let echo = Echo {
            sent: Stamp::of(Time::from_nanos(sent.as_nanos().max(0) as u64)),
            held: slot.now.since(arrived),
            received,
            expected,
            lost,
            queueing: OneWay::between(sent, arrived).variation_since(quickest).later(),
        };
        (self.bytes, self.since) = (Bytes::ZERO, slot.now);
        let loss = (expected > 0).then(|| f64::from(lost) / f64::from(expected));
        self.view = View { rate: Some(received), loss, rtt: None, state: None };
        Reply::Body(echo.body())
    }

    fn view(&self) -> View {
        self.view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(subtype in 0u8..4, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(echo) = Echo::parse(&Body { subtype, bytes }) {
                prop_assert!(echo.lost <= echo.expected);
            }
        }

        #[test]
        fn a_report_reads_back(sent: u32, held in 0u32..1 << 30, rate in 0u32..1 << 24, expected: u32, queueing: u32) {
            let echo = Echo {
                sent: Stamp(sent),
                held: Span::micros(u64::from(held)),
                received: Rate::bps(u64::from(rate)),
                expected,
                lost: expected / 3,
                queueing: Span::micros(u64::from(queueing)),
            };
            prop_assert_eq!(Echo::parse(&echo.body()), Some(echo));
        }
    }
}
