use crate::{Body, Check, Notice, ReceiverId};
use std::borrow::Cow;
use steadycast_settings::words;
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Time};

/// A requested timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The earliest time of the call.
    pub at: Time,
    /// The reason, in two or three words.
    pub why: &'static str,
}

/// The position of a packet in its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEdge {
    /// Whether the packet is the first of its frame.
    pub first: bool,
    /// Whether the packet is the last of its frame (RTP marker).
    pub last: bool,
}

/// The streams of a session. Each has its own SSRC and sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The video.
    #[default]
    Media,
    /// Retransmissions of lost media packets (RFC 4588).
    Repair,
    /// Parity packets, from which a receiver computes lost media packets.
    Parity,
    /// Packets without content, which fill a probe when no media is queued.
    Padding,
    /// The audio of the session.
    Audio,
}

/// A packet that is about to be sent, for [`SenderHalf::notice`].
#[derive(Clone, Copy, Debug)]
pub struct Departing {
    /// The send time; may be in the past, as in [`Sent::left`].
    pub at: Time,
    /// The extended sequence number.
    pub seq: u64,
    /// The expected IP size. It is exact if [`SenderHalf::notice`] returns a header extension of the same length as for
    /// the previous packet.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
}

/// A media packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The current time.
    pub at: Time,
    /// The send time. It is before `at` if the session learns of the packet only from its feedback.
    pub left: Time,
    /// The packet's number among all packets of all streams of the session, from 0.
    pub number: u64,
    /// The extended sequence number.
    pub seq: u64,
    /// The IP size.
    pub size: Bytes,
    /// Whether the pacer's queue is empty after this packet (RFC 5348, section 8.2.1).
    pub data_limited: bool,
}

/// A sent packet of a stream other than the media.
#[derive(Clone, Copy, Debug)]
pub struct ExtraSent {
    /// The current time.
    pub at: Time,
    /// The send time.
    pub left: Time,
    /// The packet's number among all packets of all streams of the session, from 0.
    pub number: u64,
    /// The packet's stream; never [`Stream::Media`].
    pub stream: Stream,
    /// The IP size.
    pub size: Bytes,
}

/// The state of the pacer's queue, for [`SenderHalf::on_queue`].
#[derive(Clone, Copy, Debug)]
pub struct MediaQueue {
    /// The current time.
    pub at: Time,
    /// Bytes of the frames in the pacer, without headers.
    pub waiting: Bytes,
    /// The time that the oldest queued frame has waited.
    pub age: Span,
    /// The size of the frame that was just queued, without headers; `None` if the queue has only become shorter.
    pub frame: Option<Bytes>,
}

/// The per-packet feedback about one sent packet (RFC 8888 or transport-wide feedback).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketReport {
    /// The packet's number, as in [`Sent::number`].
    pub number: u64,
    /// The packet's send time.
    pub sent: Time,
    /// The packet's IP size.
    pub size: Bytes,
    /// The packet's stream.
    pub stream: Stream,
    /// The arrival; `None` if the packet had not arrived when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

/// The arrival of a packet, from per-packet feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketArrival {
    /// The arrival time on the receiver's clock; `None` if the feedback does not carry it.
    pub at: Option<PeerTime>,
    /// The ECN field on arrival; `None` if the format does not carry it.
    pub ecn: Option<Ecn>,
}

/// A burst of packets that measures the path's capacity: queued media first, then padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The identifier, unique within its half.
    pub id: u32,
    /// The rate at which the packets are sent.
    pub rate: Rate,
    /// The minimum number of packets. The probe ends when both minimums are reached.
    pub packets: u32,
    /// The minimum number of IP bytes.
    pub bytes: Bytes,
    /// Whether the packets count against the pacing rate. If so, the pacer pauses after the probe until its average
    /// rate is back at the pacing rate.
    pub within: bool,
}

/// An RTCP report block, for the interval since the receiver's previous block (RFC 3550, section 6.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reception {
    /// The number of packets expected in the interval.
    pub expected: u64,
    /// The number of missing packets; negative with duplicates.
    pub lost: i64,
    /// The fraction lost, in steps of 1/256.
    pub fraction: f64,
    /// The highest extended sequence number received.
    pub highest: u64,
    /// The interarrival jitter (RFC 3550, appendix A.8).
    pub jitter: Span,
}

/// A report that has reached the sender.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The arrival time, on the sender's clock.
    pub at: Time,
    /// The receiver that sent the report.
    pub from: ReceiverId,
    /// The round-trip time from LSR and DLSR; `None` if the block has none (RFC 3550, section 6.4.1).
    pub rtt: Option<Span>,
    /// The report block about this sender's stream, if there is one.
    pub reception: Option<Reception>,
    /// The controller's own report, if there is one.
    pub body: Option<&'a Body>,
    /// The per-packet feedback in sending order; empty if the format has none. An arrival is reported once; a missing
    /// packet may be reported repeatedly.
    pub packets: &'a [PacketReport],
    /// The current number of receivers in the session, including this one.
    pub members: u32,
}

/// The amount that may be sent before the next report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A number of packets.
    Packets(u32),
    /// A number of IP bytes. The last packet may exceed this number.
    Bytes(Bytes),
}

impl Window {
    /// Returns whether nothing may be sent.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Packets(0) | Self::Bytes(Bytes::ZERO))
    }
}

words! {
    /// The current limit of the rate.
    #[derive(Default)]
    pub enum Limit {
        /// The start phase: the network's share is not known yet.
        #[default]
        Start = "start",
        /// The network: loss, delay or what the receivers report.
        Network = "network",
        /// The upper limit that the session was given.
        Cap = "cap",
        /// The lower limit that the session was given.
        Floor = "floor",
    }
}

impl Limit {
    /// Returns the limit of `rate`. `start` is set in a start phase.
    pub(crate) fn between<R: PartialOrd>(rate: R, floor: R, cap: R, start: bool) -> Self {
        match rate {
            // The cap comes first, because a start phase at the cap is limited by the cap.
            rate if rate >= cap => Self::Cap,
            _ if start => Self::Start,
            rate if rate <= floor => Self::Floor,
            _ => Self::Network,
        }
    }
}

/// The rule that set a rate, and its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// The rule, for example `"throughput equation"` or `"no feedback: halved"`.
    pub rule: Cow<'static, str>,
    /// The loss (event) rate that the rule used.
    pub loss: Option<f64>,
    /// The round-trip time that the rule used.
    pub rtt: Option<Span>,
    /// The receiver whose report the rule used.
    pub by: Option<ReceiverId>,
}

impl Why {
    /// Creates an explanation that has no numbers.
    pub const fn rule(rule: &'static str) -> Self {
        Self { rule: Cow::Borrowed(rule), loss: None, rtt: None, by: None }
    }
}

/// The output of a sender half.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The encoder's target, as a rate of IP packets including headers.
    pub target: Rate,
    /// The pacing rate.
    pub pacing: Rate,
    /// The send window; `None` for controllers without one.
    pub window: Option<Window>,
    /// The limit that determines the rate.
    pub limit: Limit,
    /// The rule that set the target, with its inputs.
    pub why: Why,
}

/// The bytes that may be sent until a time. If a frame does not fit, it and all frames until then are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The budget in IP bytes of media, from the first call of [`SenderHalf::allowance`] that returns this `until`.
    pub bytes: Bytes,
    /// The end of the allowance. A different `until` starts a new budget.
    pub until: Time,
}

/// The reason why a receiver is gone, for [`SenderHalf::on_leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The receiver has been silent for five report intervals, or is excluded. It may still receive.
    Silent,
    /// The receiver has sent a BYE, so a half need not wait for its silence timer.
    Bye,
}

/// Implements [`SenderHalf::inner`] and [`SenderHalf::inner_mut`] with the field that holds the wrapped half.
#[macro_export]
macro_rules! around {
    ($half:ident) => {
        fn inner(&self) -> Option<&dyn $crate::SenderHalf> {
            Some(&*self.$half)
        }
        fn inner_mut(&mut self) -> Option<&mut dyn $crate::SenderHalf> {
            Some(&mut *self.$half)
        }
    };
}

/// The sending half of a controller.
///
/// A layer uses [`around!`](crate::around) and implements the methods that it changes; each default forwards to the
/// wrapped half.
pub trait SenderHalf: Send {
    /// Returns the wrapped half; `None` if there is none.
    fn inner(&self) -> Option<&dyn SenderHalf> {
        None
    }

    /// Returns the wrapped half mutably; `None` if there is none.
    fn inner_mut(&mut self) -> Option<&mut dyn SenderHalf> {
        None
    }

    /// Records that a media packet was sent.
    fn on_sent(&mut self, sent: &Sent);

    /// Records that a packet of another stream was sent. The packet counts against the decided rate.
    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        if let Some(half) = self.inner_mut() {
            half.on_extra_sent(sent);
        }
    }

    /// Records that a frame has entered or left the pacer's queue.
    fn on_queue(&mut self, queue: &MediaQueue) {
        if let Some(half) = self.inner_mut() {
            half.on_queue(queue);
        }
    }

    /// Sets the longest interval between two reports; a longer silence means that feedback is missing. Before the first
    /// call, a half waits for a number of round trips.
    fn on_feedback_interval(&mut self, interval: Span) {
        if let Some(half) = self.inner_mut() {
            half.on_feedback_interval(interval);
        }
    }

    /// Records packets whose fates are unknown: feedback has skipped them, or they are sound that has not arrived.
    /// They leave the packets in flight and count as received until a later report carries their fates. A packet may be
    /// recorded repeatedly.
    ///
    /// This call comes before [`SenderHalf::on_report`] with the report that skips them.
    fn on_unknown(&mut self, packets: &[PacketReport]) {
        if let Some(half) = self.inner_mut() {
            half.on_unknown(packets);
        }
    }

    /// Processes a report. A half must check the body's lengths and ignore impossible values.
    fn on_report(&mut self, report: &Report<'_>);

    /// Records that a receiver is gone.
    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        if let Some(half) = self.inner_mut() {
            half.on_leave(at, receiver, how);
        }
    }

    /// Handles the expiry of the timer of [`SenderHalf::wake`].
    fn on_timer(&mut self, now: Time) {
        if let Some(half) = self.inner_mut() {
            half.on_timer(now);
        }
    }

    /// Returns the time of the next [`SenderHalf::on_timer`]. A time in the past means now.
    fn wake(&self) -> Option<Wake> {
        self.inner()?.wake()
    }

    /// Returns the current decision. The call changes no state.
    fn decision(&self) -> Decision;

    /// Returns the byte budget; `None` without one. Frames that exceed it are skipped. The call changes no state.
    fn allowance(&self) -> Option<Allowance> {
        self.inner()?.allowance()
    }

    /// Returns the probe to send now; `None` without one. The session sends each `id` once, if it sends probes
    /// ([`Setup::probes`](crate::Setup::probes)). The call changes no state.
    fn probe(&self) -> Option<Probe> {
        self.inner()?.probe()
    }

    /// Returns when a sender report is due. [`SenderHalf::announce`] is called with each sender report.
    fn due(&self) -> Due {
        self.inner().map_or(Due::Rtcp, |half| half.due())
    }

    /// Returns the header extension that is sent with this packet.
    fn notice(&mut self, packet: &Departing) -> Notice {
        self.inner_mut().map_or(Notice::NONE, |half| half.notice(packet))
    }

    /// Returns the results of the half's run-time checks.
    fn checks(&self) -> &[Check] {
        self.inner().map_or(&[], |half| half.checks())
    }

    /// Returns the message to the whole group for the next sender report, if any.
    fn announce(&mut self, now: Time) -> Option<Body> {
        self.inner_mut()?.announce(now)
    }
}

/// The fill level of the play-out buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLevel {
    /// The bytes in the buffer.
    pub level: Bytes,
    /// The capacity in bytes.
    pub size: Bytes,
}

/// A packet that has reached the receiver; never a duplicate.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The arrival time, on the receiver's clock.
    pub at: Time,
    /// The extended sequence number.
    pub seq: u64,
    /// The IP size.
    pub size: Bytes,
    /// The send time, on the sender's clock (send-time extension).
    pub sent: PeerTime,
    /// The sampling time of the packet's frame, on the sender's media clock (RTP timestamp).
    pub sampled: PeerTime,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The header extension from the sender half; empty if there is none.
    pub notice: &'a [u8],
    /// The fill level of the play-out buffer, if the session has one.
    pub buffer: Option<BufferLevel>,
}

/// A received packet of a stream other than the media, for [`ReceiverHalf::on_extra`].
#[derive(Clone, Copy, Debug)]
pub struct ExtraArrival {
    /// The arrival time, on the receiver's clock.
    pub at: Time,
    /// The packet's stream; never [`Stream::Media`].
    pub stream: Stream,
    /// The IP size.
    pub size: Bytes,
    /// The send time of this packet, on the sender's clock.
    pub sent: PeerTime,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The number of packets missing in the stream right before this one.
    pub missing: u64,
}

/// A report of another member, received by multicast.
#[derive(Clone, Copy, Debug)]
pub struct Overheard<'a> {
    /// The arrival time of the report.
    pub at: Time,
    /// The member that sent the report.
    pub from: ReceiverId,
    /// The content of the report.
    pub body: &'a Body,
}

/// A message of the sender half to the group.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// The arrival time.
    pub at: Time,
    /// The content.
    pub body: &'a Body,
}

/// The time of the next report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// When RTCP's timer expires (RFC 3550, section 6.3), within the 5 % share.
    Rtcp,
    /// At this time, outside RTCP's 5 %. A time in the past means now.
    At(Wake),
    /// No report until the half's state changes.
    Hold,
}

/// An opportunity to report.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The current time.
    pub now: Time,
    /// The number of packets expected since the last report.
    pub expected: u64,
    /// The number of expected packets that are missing; negative with late and duplicate packets.
    pub lost: i64,
    /// The number of session members.
    pub members: u32,
    /// The deterministic RTCP interval Td (RFC 3550, section 6.3.1).
    pub interval: Span,
    /// The measured share of RTCP in the session bandwidth, from 0 to 1.
    pub rtcp_share: f64,
}

/// The answer of a receiver half to a [`Slot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send a report block and this body.
    Body(Body),
    /// Send a report block alone.
    Plain,
    /// Send no report, because another member's report is enough.
    Suppress,
}

/// The internal state of a receiver half, for the record of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// The rate that the half requests.
    pub rate: Option<Rate>,
    /// The loss (event) rate that the half measures.
    pub loss: Option<f64>,
    /// The round-trip time that the half uses.
    pub rtt: Option<Span>,
    /// The state's name; `None` if the controller has no states.
    pub state: Option<&'static str>,
}

/// The receiving half of a controller.
pub trait ReceiverHalf: Send {
    /// Records the arrival of a media packet.
    fn on_arrival(&mut self, arrival: &Arrival<'_>);

    /// Records a packet of another stream. The packet's bytes count as received, but a media packet that it restores
    /// still counts as lost.
    fn on_extra(&mut self, _extra: &ExtraArrival) {}

    /// Processes another member's report.
    fn on_overheard(&mut self, _heard: &Overheard<'_>) {}

    /// Processes an announcement of the sender half to the group.
    fn on_announce(&mut self, _announced: &Announcement<'_>) {}

    /// Records the arrival of a sender report about the stream.
    fn on_sender_report(&mut self, _now: Time) {}

    /// Reports the fill level of the play-out buffer before each [`Slot`].
    fn on_buffer(&mut self, _now: Time, _buffer: BufferLevel) {}

    /// Handles the expiry of the timer of [`ReceiverHalf::wake`].
    fn on_timer(&mut self, _now: Time) {}

    /// Returns the time of the next [`ReceiverHalf::on_timer`].
    fn wake(&self) -> Option<Wake> {
        None
    }

    /// Returns when the half wants to report.
    fn due(&self) -> Due {
        Due::Rtcp
    }

    /// Returns whether arrivals, announcements and sender reports never change `due` and `wake`. The session may then
    /// deliver them late in batches, with their own times, before any other call.
    fn is_patient(&self) -> bool {
        false
    }

    /// Writes the report that is due.
    fn report(&mut self, slot: &Slot) -> Reply;

    /// Sets the new identifier after an SSRC collision (RFC 3550, section 8.2).
    fn on_renamed(&mut self, _id: ReceiverId) {}

    /// Returns the content of the last report before the receiver leaves, if any.
    fn leave(&mut self, _now: Time) -> Option<Body> {
        None
    }

    /// Returns the results of the half's run-time checks.
    fn checks(&self) -> &[Check] {
        &[]
    }

    /// Returns the rate that this receiver's loss and round-trip time allow. `Rate::MAX` means that no limit was
    /// observed, `None` that the rate is unknown. The call changes no state.
    fn acceptable(&self) -> Option<Rate> {
        None
    }

    /// Returns the internal state for the record of a run. The call changes no state.
    fn view(&self) -> View {
        View::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_limits_before_the_start_the_start_before_the_floor_and_between_them_the_network_does() {
        let limit = |rate, start| Limit::between(rate, 1.0, 3.0, start);
        assert_eq!([1.0, 2.0, 3.0].map(|rate| limit(rate, true)), [Limit::Start, Limit::Start, Limit::Cap]);
        assert_eq!([1.0, 2.0, 3.0].map(|rate| limit(rate, false)), [Limit::Floor, Limit::Network, Limit::Cap]);
        assert_eq!(Limit::between(2, 2, 2, false), Limit::Cap);
    }
}
