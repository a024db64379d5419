use super::message::FeedbackReport;
use crate::loss::{LossHistory, LossSettings, ReceivedPacket};
use crate::{Arrival, BufferLevel, Due, ReceiverHalf, Reply, Slot, View, Wake, tfrc};
use steadycast_units::{Bytes, Rate, Span, Stamp, Time};

const FIRST_ROUND: Span = Span::millis(50);
/// The minimum report interval.
const LEAST_ROUND: Span = Span::millis(1);

#[derive(Default)]
pub(super) struct Receiver {
    buffer: BufferLevel,
    said: Option<Bytes>,
    newest: Option<(u64, Stamp, Time)>,
    rtt: Option<Span>,
    /// When the last report was sent. Before the first report: when the first packet arrived.
    last: Option<Time>,
    spoke: bool,
    /// The loss history. `None` unless the sender limits its rate to the rate that a TCP would get.
    loss: Option<LossHistory>,
    since: Time,
    bytes: Bytes,
    view: View,
}

impl Receiver {
    pub(super) fn new(capped: bool) -> Self {
        Self { loss: capped.then(|| LossHistory::new(LossSettings::default())), ..Self::default() }
    }

    fn take(&mut self, buffer: BufferLevel) {
        // Limit the level to the buffer's size, because the sender rejects a report with a higher level.
        self.buffer = BufferLevel { level: buffer.level.min(buffer.size), ..buffer };
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        if let Some(rtt) = tfrc::read_rtt_notice(arrival.notice) {
            self.rtt = Some(rtt);
        }
        if let Some(buffer) = arrival.buffer {
            self.take(buffer);
        }
        if self.newest.is_none_or(|(seq, ..)| seq < arrival.seq) {
            self.newest = Some((arrival.seq, tfrc::echo(arrival.sent), arrival.at));
        }
        if let Some(history) = &mut self.loss {
            let rtt = self.rtt.unwrap_or(FIRST_ROUND);
            let received = ReceivedPacket { seq: arrival.seq, at: arrival.at, ce: arrival.ecn.is_ce(), rtt };
            // The path's rate is not known. So use the number of packets so far as the first loss interval.
            history.on_packet(&received, || arrival.seq as f64);
        }
        self.bytes += arrival.size;
        if self.last.is_none() {
            (self.last, self.since) = (Some(arrival.at), arrival.at);
        }
    }

    fn on_buffer(&mut self, _: Time, buffer: BufferLevel) {
        self.take(buffer);
    }

    fn due(&self) -> Due {
        // Send the first report at once, so that the sender can measure a round-trip time.
        let round = if self.spoke { self.rtt.unwrap_or(FIRST_ROUND).max(LEAST_ROUND) } else { Span::ZERO };
        self.last.map_or(Due::Hold, |last| Due::At(Wake { at: last + round, why: "buffer report" }))
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let Some((_, echo, arrived)) = self.newest else { return Reply::Plain };
        (self.last, self.spoke) = (Some(slot.now), true);
        let bytes = |b: Bytes| i32::try_from(b.get()).unwrap_or(i32::MAX);
        let level = self.buffer.level;
        let change = bytes(level).saturating_sub(bytes(self.said.unwrap_or(level)));
        self.said = Some(level);
        let loss = self.loss.as_ref().map(|h| h.rate().map_or(0.0, |p| p.get() as f32));
        let span = slot.now.since(self.since);
        self.view = View {
            rate: Some(if span.is_zero() { Rate::ZERO } else { self.bytes.per(span) }),
            loss: self.loss.as_ref().and_then(|h| h.rate()).map(|p| p.get()),
            rtt: self.rtt,
            state: None,
        };
        (self.bytes, self.since) = (Bytes::ZERO, slot.now);
        let finding = FeedbackReport { buffer: self.buffer, change, echo, delay: slot.now.since(arrived), loss };
        Reply::Body(finding.body())
    }

    fn view(&self) -> View {
        self.view
    }
}
