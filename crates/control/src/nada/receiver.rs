use super::Config;
use super::signal::{Packet, Signal};
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, View, Wake};
use steadycast_units::{OneWay, Span, Time};

pub(super) struct Receiver {
    delta: Span,
    signal: Signal,
    last: Option<Time>,
    fresh: bool,
    view: View,
}

impl Receiver {
    pub(super) fn new(config: &Config) -> Self {
        let signal = Signal::new(config);
        Self { delta: config.delta, signal, last: None, fresh: false, view: View::default() }
    }

    fn take(&mut self, packet: &Packet) {
        self.last.get_or_insert(packet.at);
        self.fresh = true;
        self.signal.on_packet(packet);
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.take(&Packet {
            at: arrival.at,
            number: Some(arrival.seq),
            missing: 0,
            size: arrival.size,
            delay: Some(OneWay::between(arrival.sent, arrival.at)),
            marked: arrival.ecn.is_ce(),
        });
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.take(&Packet {
            at: extra.at,
            number: None,
            missing: extra.missing,
            size: extra.size,
            delay: Some(OneWay::between(extra.sent, extra.at)),
            marked: extra.ecn.is_ce(),
        });
    }

    fn due(&self) -> Due {
        match self.last.filter(|_| self.fresh) {
            Some(last) => Due::At(Wake { at: last + self.delta, why: "report interval" }),
            // If no new packet has arrived, send no report. The sender has a timer that detects the missing feedback.
            None => Due::Hold,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        (self.last, self.fresh) = (Some(slot.now), false);
        let message = self.signal.report(slot.now);
        self.view = View {
            rate: Some(message.received),
            loss: Some(self.signal.loss),
            rtt: None,
            state: Some(if message.gradual { "gradual" } else { "ramp-up" }),
        };
        Reply::Body(message.body())
    }

    fn view(&self) -> View {
        self.view
    }
}
