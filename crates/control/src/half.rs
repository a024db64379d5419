use crate::{Body, Check, Notice, ReceiverId};
use std::borrow::Cow;
use steadycast_settings::words;
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Time};

/// A requested timer: the earliest time of the next call, and the reason for it.
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
    /// The send time, which may be in the past as in [`Sent::left`].
    pub at: Time,
    /// The extended sequence number.
    pub seq: u64,
    /// The IP size. It assumes a notice as long as that of the previous packet, because this packet's notice is not
    /// known yet.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
}

/// A media packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The current time.
    pub at: Time,
    /// The send time. It is earlier than `at` if the session learns about a packet only from its feedback. A half
    /// computes delays and rates from this time, and starts its timers at `at`.
    pub left: Time,
    /// The packet's number among all packets that the session has sent on all streams, from 0. [`PacketReport::number`]
    /// refers to it.
    pub number: u64,
    /// The extended sequence number.
    pub seq: u64,
    /// The IP size.
    pub size: Bytes,
    /// Whether the pacer's queue is empty after this packet. The application, not the controller, then limits the rate
    /// (RFC 5348, section 8.2.1).
    pub data_limited: bool,
}

/// A sent packet of a stream other than the media.
#[derive(Clone, Copy, Debug)]
pub struct ExtraSent {
    /// The current time.
    pub at: Time,
    /// The send time, as in [`Sent::left`].
    pub left: Time,
    /// The packet's number, as in [`Sent::number`].
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

/// The per-packet feedback about one packet (RFC 8888, or transport-wide feedback), joined with what the sender has
/// stored about this packet.
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

/// A burst that a half requests to measure the path's capacity. The session sends its packets at the probe's rate:
/// queued media first, then padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The identifier of the probe, unique within its half.
    pub id: u32,
    /// The rate at which the packets are sent.
    pub rate: Rate,
    /// The minimum number of packets. The probe ends once this number of packets and `bytes` are sent.
    pub packets: u32,
    /// The minimum number of IP bytes.
    pub bytes: Bytes,
    /// Whether the packets count against the pacing rate. If so, the pacer sends nothing after the probe until the
    /// average is back at the pacing rate.
    pub within: bool,
}

/// The contents of an RTCP report block, for the interval since the same receiver's previous report block (RFC 3550,
/// section 6.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reception {
    /// The number of packets that were expected in the interval.
    pub expected: u64,
    /// The number of packets of the interval that are missing; negative with duplicates.
    pub lost: i64,
    /// The fraction lost, in steps of 1/256 as in the report block.
    pub fraction: f64,
    /// The highest extended sequence number received.
    pub highest: u64,
    /// The interarrival jitter (RFC 3550, appendix A.8).
    pub jitter: Span,
}

/// A report that has reached the sender, joined with the sender's own data about the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The arrival time, on the sender's clock.
    pub at: Time,
    /// The receiver that sent the report.
    pub from: ReceiverId,
    /// The round-trip time from LSR and DLSR, measured by the sender, if the report block carries them (RFC 3550,
    /// section 6.4.1).
    pub rtt: Option<Span>,
    /// The report block about this sender's stream, if there is one.
    pub reception: Option<Reception>,
    /// The controller's own report, if there is one.
    pub body: Option<&'a Body>,
    /// The per-packet feedback in the order of sending; empty if the feedback format has none. A missing packet may be
    /// in several reports, but a packet that has arrived is in one only.
    pub packets: &'a [PacketReport],
    /// The number of receivers in the session now, this one included.
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
    /// The current limit of the rate. The record of a run contains the total time for which each limit applied.
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
    /// Returns what limits a rate between `floor` and `cap`. If `start` is set, the network's share is not known yet.
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

/// The explanation of a rate: the rule that set it and its inputs.
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

/// The output of a sender half, with its explanation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The target rate for the encoder, as a rate of IP packets; the session subtracts the headers.
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

/// The bytes that a sender may send until a time. If a frame does not fit, it is skipped, and so are all later frames
/// until this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The budget in IP bytes of media. It starts when an allowance with this value of `until` is first returned.
    pub bytes: Bytes,
    /// The end of the allowance. An allowance with a different end is a new one, with its own budget.
    pub until: Time,
}

/// The reason why a receiver is gone, for [`SenderHalf::on_leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The receiver has been silent for five report intervals, or is excluded. It may still receive.
    Silent,
    /// The receiver has sent a BYE. A half then need not wait until its silence timer expires: `asmp` and `lda-plus`
    /// halve at the last BYE.
    Bye,
}

/// Implements [`SenderHalf::inner`] and [`SenderHalf::inner_mut`] of a layer by the field that contains the wrapped
/// half.
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
/// A layer that wraps a half names it with [`around!`](crate::around) and implements only the methods that it changes:
/// each default below forwards to the wrapped half. A half that wraps none leaves `inner` and `inner_mut` as they are.
pub trait SenderHalf: Send {
    /// Returns the half that this one wraps.
    fn inner(&self) -> Option<&dyn SenderHalf> {
        None
    }

    /// Returns the half that this one wraps, mutably.
    fn inner_mut(&mut self) -> Option<&mut dyn SenderHalf> {
        None
    }

    /// Records that a media packet was sent.
    fn on_sent(&mut self, sent: &Sent);

    /// Records that a packet of another stream was sent: audio, a retransmission, parity or padding. It counts against
    /// the decided rate.
    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        if let Some(half) = self.inner_mut() {
            half.on_extra_sent(sent);
        }
    }

    /// Records that a frame has entered the pacer's queue, or has left it.
    fn on_queue(&mut self, queue: &MediaQueue) {
        if let Some(half) = self.inner_mut() {
            half.on_queue(queue);
        }
    }

    /// Sets the longest interval between two reports, which may exceed the round-trip time. A lack of reports for a
    /// shorter time does not count as missing feedback. Until this is called, a half uses round trips instead.
    fn on_feedback_interval(&mut self, interval: Span) {
        if let Some(half) = self.inner_mut() {
            half.on_feedback_interval(interval);
        }
    }

    /// Records packets whose fates are unknown and may stay unknown. Either feedback has covered later packets but not
    /// these, or the session gets no feedback about them. The packets are neither lost nor in flight. Their bytes count
    /// as received, because a received rate without them would cover only a part of what was sent. The report that
    /// revealed the gap is delivered next. This report or a later one may still carry the fates.
    fn on_unknown(&mut self, packets: &[PacketReport]) {
        if let Some(half) = self.inner_mut() {
            half.on_unknown(packets);
        }
    }

    /// Processes a report. Its body comes from the network: a half checks its lengths and ignores impossible values. A
    /// packet that later packets have overtaken is lost. A packet that [`SenderHalf::on_unknown`] has named is lost
    /// only if a later report says that it is missing.
    fn on_report(&mut self, report: &Report<'_>);

    /// Records that a receiver is gone.
    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        if let Some(half) = self.inner_mut() {
            half.on_leave(at, receiver, how);
        }
    }

    /// Handles the timer of [`SenderHalf::wake`].
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

    /// Returns the byte budget, for controllers that limit bytes and not only the rate. Frames that exceed the budget
    /// are skipped. The call changes no state.
    fn allowance(&self) -> Option<Allowance> {
        self.inner()?.allowance()
    }

    /// Returns the probe to be sent now. The call changes no state. A session that sends probes
    /// ([`Setup::probes`](crate::Setup::probes)) starts a probe with its next packet, and sends each `id` only once.
    /// The half itself counts the probe's packets, in [`SenderHalf::on_sent`] and [`SenderHalf::on_extra_sent`].
    fn probe(&self) -> Option<Probe> {
        self.inner()?.probe()
    }

    /// Returns when a sender report is due. A half that returns [`Due::At`] schedules the next one in
    /// [`SenderHalf::announce`], which is called for each sender report.
    fn due(&self) -> Due {
        self.inner().map_or(Due::Rtcp, |half| half.due())
    }

    /// Returns the header extension that is sent with this packet.
    fn notice(&mut self, packet: &Departing) -> Notice {
        self.inner_mut().map_or(Notice::NONE, |half| half.notice(packet))
    }

    /// Returns the results of the promises that the half checks. A check is cheap, runs at most once per report, and
    /// does not use the mechanism that keeps the promise.
    fn checks(&self) -> &[Check] {
        self.inner().map_or(&[], |half| half.checks())
    }

    /// Returns the message to the whole group that is sent together with the next sender report.
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

/// A packet that has reached the receiver, duplicates excluded.
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
    /// The header extension of the sender half; empty if there is none.
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
    /// The packet's send time, on the sender's clock. For a retransmission this is not the send time of the original.
    pub sent: PeerTime,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The number of packets that are missing in the stream right before this packet.
    pub missing: u64,
}

/// Another member's report that arrived by multicast.
#[derive(Clone, Copy, Debug)]
pub struct Overheard<'a> {
    /// The arrival time of the report.
    pub at: Time,
    /// The member that sent the report.
    pub from: ReceiverId,
    /// The content of the report.
    pub body: &'a Body,
}

/// An announcement of the sender half to the group.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// The arrival time of the announcement.
    pub at: Time,
    /// The content of the announcement.
    pub body: &'a Body,
}

/// The time at which a half wants to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At the expiry of RTCP's own timer (RFC 3550, section 6.3): the session enforces the 5 % share.
    Rtcp,
    /// At this time, as a regular RTCP packet outside RTCP's 5 %. A time in the past means now.
    At(Wake),
    /// No report until the half's state changes.
    Hold,
}

/// An opportunity to report, with the session's counts since this receiver's last report.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The current time.
    pub now: Time,
    /// The number of packets expected since the last report.
    pub expected: u64,
    /// The number of these packets that are missing; negative with late and duplicate packets.
    pub lost: i64,
    /// The number of session members.
    pub members: u32,
    /// The deterministic RTCP interval Td (RFC 3550, section 6.3.1).
    pub interval: Span,
    /// The measured share of RTCP in the session bandwidth over the last intervals, from 0 to 1.
    pub rtcp_share: f64,
}

/// The answer of a receiver half to a [`Slot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send a report block and this body.
    Body(Body),
    /// Send a report block alone.
    Plain,
    /// Send no report, because another member's report made it redundant.
    Suppress,
}

/// The internal state of a receiver half, as it is written to the record of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// The rate that the half requests.
    pub rate: Option<Rate>,
    /// The loss (event) rate that the half measures.
    pub loss: Option<f64>,
    /// The round-trip time that the half uses.
    pub rtt: Option<Span>,
    /// The state's name, if the controller has states.
    pub state: Option<&'static str>,
}

/// The receiving half of a controller.
pub trait ReceiverHalf: Send {
    /// Records the arrival of a media packet.
    fn on_arrival(&mut self, arrival: &Arrival<'_>);

    /// Records the arrival of a packet of another stream: a retransmission, parity or padding. Its bytes count as
    /// received. A media packet that is restored in this way stays lost to this half: [`ReceiverHalf::on_arrival`] is
    /// not called for it.
    fn on_extra(&mut self, _extra: &ExtraArrival) {}

    /// Processes another member's report.
    fn on_overheard(&mut self, _heard: &Overheard<'_>) {}

    /// Processes an announcement of the sender half to the group.
    fn on_announce(&mut self, _announced: &Announcement<'_>) {}

    /// Records the arrival of a sender report about the stream.
    fn on_sender_report(&mut self, _now: Time) {}

    /// Reports the fill level of the play-out buffer, if the session has one. It is called before each opportunity to
    /// report.
    fn on_buffer(&mut self, _now: Time, _buffer: BufferLevel) {}

    /// Handles the timer of [`ReceiverHalf::wake`].
    fn on_timer(&mut self, _now: Time) {}

    /// Returns the time of the next [`ReceiverHalf::on_timer`].
    fn wake(&self) -> Option<Wake> {
        None
    }

    /// Returns when the half wants to report.
    fn due(&self) -> Due {
        Due::Rtcp
    }

    /// Returns whether arrivals, announcements and sender reports never change [`ReceiverHalf::due`] and
    /// [`ReceiverHalf::wake`]. If so, the session may deliver these events late, with their own times, but before any
    /// other call. The simulation of a large group delivers them in batches.
    fn is_patient(&self) -> bool {
        false
    }

    /// Writes the half's report. The session calls this when a report is due.
    fn report(&mut self, slot: &Slot) -> Reply;

    /// Sets the receiver's new identifier after an SSRC collision (RFC 3550, section 8.2).
    fn on_renamed(&mut self, _id: ReceiverId) {}

    /// Returns the content of the last report before the receiver leaves, if any.
    fn leave(&mut self, _now: Time) -> Option<Body> {
        None
    }

    /// Returns the results of the promises that the half checks; see [`SenderHalf::checks`].
    fn checks(&self) -> &[Check] {
        &[]
    }

    /// Returns the rate that this receiver's path could carry by its own loss and round-trip time, independent of the
    /// current send rate. The call changes no state. `Rate::MAX` means that no limit was observed. `None` means that
    /// the rate is not known yet, or that the controller's receivers never compute one.
    fn acceptable(&self) -> Option<Rate> {
        None
    }

    /// Returns the half's internal state for the record of a run. The call changes no state.
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
