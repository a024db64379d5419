use super::Settings;
use super::message::Message;
use crate::{Arrival, Due, ReceiverHalf, Reply, Slot, View, Wake, tfrc};
use steadycast_units::{Stamp, Time};

/// The part of the controller at the receiver. It answers each sender report, or each packet, without delay.
#[derive(Default)]
pub(super) struct Receiver {
    per_packet: bool,
    counts: bool,
    /// Since when an answer is due.
    answer: Option<Time>,
    /// Whether sender reports or packets trigger answers. Otherwise RTCP's timer does.
    asked: bool,
    newest: Option<Stamp>,
    view: View,
}

impl Receiver {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { per_packet: settings.per_packet, counts: settings.counts, ..Self::default() }
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        if self.per_packet {
            self.newest = Some(tfrc::echo(arrival.sent));
            (self.answer, self.asked) = (Some(arrival.at), true);
        }
    }

    fn on_sender_report(&mut self, now: Time) {
        if !self.per_packet {
            (self.answer, self.asked) = (Some(now), true);
        }
    }

    fn due(&self) -> Due {
        match self.answer {
            Some(at) => Due::At(Wake { at, why: "answer" }),
            None if self.asked => Due::Hold,
            // No sender report or packet has triggered an answer yet. The sender may be another program that rarely
            // sends reports, so use RTCP's timer until then.
            None => Due::Rtcp,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        self.answer = None;
        let expected = u32::try_from(slot.expected).unwrap_or(u32::MAX);
        let lost = u32::try_from(slot.lost.max(0)).unwrap_or(u32::MAX).min(expected);
        if expected > 0 {
            self.view.loss = Some(f64::from(lost) / f64::from(expected));
        }
        match self.newest.take() {
            Some(stamp) => Reply::Body(Message::Ack(stamp).body()),
            None if self.counts => {
                let expected = expected.min((1 << 24) - 1);
                Reply::Body(Message::Counts { expected, received: expected.saturating_sub(lost) }.body())
            }
            None => Reply::Plain,
        }
    }

    fn view(&self) -> View {
        self.view
    }
}
