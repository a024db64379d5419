use crate::{Body, Check, Notice, ReceiverId};
use std::borrow::Cow;
use steadycast_settings::words;
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Time};

/// A timer that a controller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Earliest time at which the timer may be handled.
    pub at: Time,
    /// Reason for the timer, in two or three words.
    pub why: &'static str,
}

/// Whether a packet is at the beginning or at the end of its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEdge {
    /// Whether the packet is the first of its frame.
    pub first: bool,
    /// Whether the packet is the last of its frame. The RTP marker bit says so.
    pub last: bool,
}

/// A stream of a session. Each stream has its own SSRC and its own sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The video.
    #[default]
    Media,
    /// Retransmissions of lost media packets (RFC 4588).
    Repair,
    /// Parity packets. A receiver can compute lost media packets from them.
    Parity,
    /// Packets without content. They fill a probe if no media is queued.
    Padding,
    /// The audio of the session.
    Audio,
}

/// A packet that is about to be sent. It is given to [`SenderHalf::notice`].
#[derive(Clone, Copy, Debug)]
pub struct Departing {
    /// Send time. It may be in the past, like [`Sent::left`].
    pub at: Time,
    /// Extended RTP sequence number.
    pub seq: u64,
    /// Expected size including the IP header. It is exact if [`SenderHalf::notice`] returns a header extension that is
    /// as long as for the previous packet.
    pub size: Bytes,
    /// Position of the packet in its frame.
    pub edge: FrameEdge,
}

/// A media packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The current time.
    pub at: Time,
    /// When the packet was sent. This is before `at` if the session learns of the packet only from its feedback.
    pub left: Time,
    /// Number of the packet, counted from 0 over all streams of the session.
    pub number: u64,
    /// Extended RTP sequence number.
    pub seq: u64,
    /// Size including the IP header.
    pub size: Bytes,
    /// Whether the pacer's queue is empty after this packet. The application then limits the rate (RFC 5348, section
    /// 8.2.1).
    pub data_limited: bool,
}

/// A packet that was sent in another stream than [`Stream::Media`].
#[derive(Clone, Copy, Debug)]
pub struct ExtraSent {
    /// The current time.
    pub at: Time,
    /// When the packet was sent.
    pub left: Time,
    /// Number of the packet, counted from 0 over all streams of the session.
    pub number: u64,
    /// Stream of the packet. It is never [`Stream::Media`].
    pub stream: Stream,
    /// Size including the IP header.
    pub size: Bytes,
}

/// State of the pacer's queue. It is given to [`SenderHalf::on_queue`].
#[derive(Clone, Copy, Debug)]
pub struct MediaQueue {
    /// The current time.
    pub at: Time,
    /// Bytes of all frames in the queue, without headers.
    pub waiting: Bytes,
    /// Time for which the oldest frame has been in the queue.
    pub age: Span,
    /// Size of the frame that was just queued, without headers. It is `None` if the queue only became shorter.
    pub frame: Option<Bytes>,
}

/// Feedback on one sent packet (RFC 8888 or transport-wide feedback).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketReport {
    /// Number of the packet, as in [`Sent::number`].
    pub number: u64,
    /// When the packet was sent.
    pub sent: Time,
    /// Size of the packet, including the IP header.
    pub size: Bytes,
    /// Stream of the packet.
    pub stream: Stream,
    /// Arrival of the packet. It is `None` if the packet had not arrived when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

/// Arrival of one packet, as per-packet feedback describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketArrival {
    /// Arrival time on the receiver's clock. It is `None` if the feedback does not contain it.
    pub at: Option<PeerTime>,
    /// ECN field on arrival. It is `None` if the feedback does not contain it.
    pub ecn: Option<Ecn>,
}

/// A burst of packets that measures the capacity of the path. It consists of queued media, followed by padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Identifier of the probe. It is unique within the controller that requests the probe.
    pub id: u32,
    /// Rate at which the packets of the probe are sent.
    pub rate: Rate,
    /// Minimum number of packets. The probe ends when it has this number of packets and `bytes` bytes.
    pub packets: u32,
    /// Minimum number of bytes, including IP headers.
    pub bytes: Bytes,
    /// Whether the packets count against the pacing rate. If so, the pacer pauses after the probe until the average
    /// rate is back at the pacing rate.
    pub within: bool,
}

/// An RTCP report block (RFC 3550, section 6.4). It is about the interval since the receiver's previous report block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reception {
    /// Number of packets expected in the interval.
    pub expected: u64,
    /// Number of packets lost in the interval. Duplicates may make it negative.
    pub lost: i64,
    /// Fraction of packets lost, in steps of 1/256.
    pub fraction: f64,
    /// Highest extended sequence number that was received.
    pub highest: u64,
    /// Interarrival jitter (RFC 3550, appendix A.8).
    pub jitter: Span,
}

/// A report that has arrived at the sender.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Arrival time on the sender's clock.
    pub at: Time,
    /// The receiver that has sent the report.
    pub from: ReceiverId,
    /// Round-trip time, computed from LSR and DLSR (RFC 3550, section 6.4.1). It is `None` if the report block has
    /// none.
    pub rtt: Option<Span>,
    /// Report block on this sender's stream, if the report has one.
    pub reception: Option<Reception>,
    /// Message that the controller's receiver part has written, if the report has one.
    pub body: Option<&'a Body>,
    /// Per-packet feedback in the order in which packets were sent. It is empty if the report has none. An arrival is
    /// reported once. A missing packet may be reported several times.
    pub packets: &'a [PacketReport],
    /// Number of receivers in the session, including this one.
    pub members: u32,
}

/// How much may still be sent before the next report arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A number of packets.
    Packets(u32),
    /// A number of bytes, including IP headers. The last packet may exceed this number.
    Bytes(Bytes),
}

impl Window {
    /// A window that never limits the sender. With a window, a session reads the decision after each packet.
    pub const UNLIMITED: Self = Self::Packets(u32::MAX);

    /// Returns whether the window is zero, so that nothing may be sent.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Packets(0) | Self::Bytes(Bytes::ZERO))
    }
}

words! {
    /// What currently limits the rate.
    #[derive(Default)]
    pub enum Limit {
        /// The start phase. It is not yet known which rate the network allows.
        #[default]
        Start = "start",
        /// The network limits the rate, because of loss, delay or the receivers' reports.
        Network = "network",
        /// The upper limit that the session was given.
        Cap = "cap",
        /// The lower limit that the session was given.
        Floor = "floor",
    }
}

impl Limit {
    /// Returns what limits `rate`. `start` is whether the controller is in its start phase.
    pub(crate) fn between<R: PartialOrd>(rate: R, floor: R, cap: R, start: bool) -> Self {
        match rate {
            // Check the cap first, because a start phase whose rate has reached the cap is limited by the cap.
            rate if rate >= cap => Self::Cap,
            _ if start => Self::Start,
            rate if rate <= floor => Self::Floor,
            _ => Self::Network,
        }
    }
}

/// Explains which rule has set a rate, and from which inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// Name of the rule, for example `"throughput equation"` or `"no feedback: halved"`.
    pub rule: Cow<'static, str>,
    /// Loss rate or loss event rate that the rule used.
    pub loss: Option<f64>,
    /// Round-trip time that the rule used.
    pub rtt: Option<Span>,
    /// Receiver whose report the rule used.
    pub by: Option<ReceiverId>,
}

impl Why {
    /// Creates an explanation with a rule but without inputs.
    pub const fn rule(rule: &'static str) -> Self {
        Self { rule: Cow::Borrowed(rule), loss: None, rtt: None, by: None }
    }
}

/// What the sender part of a controller decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Target rate of the encoder. It includes IP headers.
    pub target: Rate,
    /// Rate at which the pacer sends.
    pub pacing: Rate,
    /// How much may still be sent before the next report arrives. It is `None` if the controller has no window.
    pub window: Option<Window>,
    /// What limits the rate.
    pub limit: Limit,
    /// The rule that has set the target, and its inputs.
    pub why: Why,
}

/// How many bytes may be sent until a time. If a frame does not fit, this frame and all later frames until then are
/// skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Budget for media in bytes, including IP headers. It begins when [`SenderHalf::allowance`] first returns this
    /// `until`.
    pub bytes: Bytes,
    /// When the budget ends. Another `until` begins a new budget.
    pub until: Time,
}

/// Why a receiver has left. It is given to [`SenderHalf::on_leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The receiver has sent no report for five report intervals, or is excluded. It may still receive packets.
    Silent,
    /// The receiver has sent a BYE. So the controller does not have to wait until its timer for silent receivers
    /// expires.
    Bye,
}

/// Implements [`SenderHalf::inner`] and [`SenderHalf::inner_mut`] for a wrapper. The argument is the field with the
/// wrapped sender part.
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

/// The sender part of a controller. The session calls it with all events at the sender.
///
/// A type may wrap another sender part to change some of its methods. It uses [`around!`](crate::around) and implements
/// only these methods. The default of each other method calls the wrapped sender part.
pub trait SenderHalf: Send {
    /// Returns the wrapped sender part, or `None` if there is none.
    fn inner(&self) -> Option<&dyn SenderHalf> {
        None
    }

    /// Returns the wrapped sender part mutably, or `None` if there is none.
    fn inner_mut(&mut self) -> Option<&mut dyn SenderHalf> {
        None
    }

    /// Is called when a media packet was sent.
    fn on_sent(&mut self, sent: &Sent);

    /// Is called when a packet of another stream was sent. Its bytes count towards the decided rate.
    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        if let Some(half) = self.inner_mut() {
            half.on_extra_sent(sent);
        }
    }

    /// Is called when a frame has entered or left the pacer's queue.
    fn on_queue(&mut self, queue: &MediaQueue) {
        if let Some(half) = self.inner_mut() {
            half.on_queue(queue);
        }
    }

    /// Sets the longest interval between two reports. If there is no report for longer than this, feedback is missing.
    /// Before the first call, the controller waits for a number of round trips instead.
    fn on_feedback_interval(&mut self, interval: Span) {
        if let Some(half) = self.inner_mut() {
            half.on_feedback_interval(interval);
        }
    }

    /// Is called with packets whose fates are unknown. Either feedback has skipped them, or they are audio packets that
    /// have not arrived. They are not in flight any more, and count as received until a later report has their fates. A
    /// packet may be in several calls.
    ///
    /// This method is called before [`SenderHalf::on_report`] with the report that skips the packets.
    fn on_unknown(&mut self, packets: &[PacketReport]) {
        if let Some(half) = self.inner_mut() {
            half.on_unknown(packets);
        }
    }

    /// Processes a report. The implementation has to check the lengths in the body, and to ignore impossible values.
    fn on_report(&mut self, report: &Report<'_>);

    /// Is called when a receiver has left.
    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        if let Some(half) = self.inner_mut() {
            half.on_leave(at, receiver, how);
        }
    }

    /// Is called when the timer that [`SenderHalf::wake`] requested has expired.
    fn on_timer(&mut self, now: Time) {
        if let Some(half) = self.inner_mut() {
            half.on_timer(now);
        }
    }

    /// Returns when [`SenderHalf::on_timer`] has to be called next. A time in the past means now.
    fn wake(&self) -> Option<Wake> {
        self.inner()?.wake()
    }

    /// Returns the current decision. This method changes no state.
    fn decision(&self) -> Decision;

    /// Returns the byte budget, or `None` if there is none. Frames that exceed it are skipped. This method changes no
    /// state.
    fn allowance(&self) -> Option<Allowance> {
        self.inner()?.allowance()
    }

    /// Returns the probe that should be sent now, or `None` if there is none. The session sends the probe of each `id`
    /// once. It sends none unless [`Setup::probes`](crate::Setup::probes) is set. This method changes no state.
    fn probe(&self) -> Option<Probe> {
        self.inner()?.probe()
    }

    /// Returns when a sender report is due. [`SenderHalf::announce`] is called for each sender report.
    fn due(&self) -> Due {
        self.inner().map_or(Due::Rtcp, |half| half.due())
    }

    /// Returns the header extension that is sent with this packet.
    fn notice(&mut self, packet: &Departing) -> Notice {
        self.inner_mut().map_or(Notice::NONE, |half| half.notice(packet))
    }

    /// Returns the results of the checks that this controller makes while it runs.
    fn checks(&self) -> &[Check] {
        self.inner().map_or(&[], |half| half.checks())
    }

    /// Returns the message to all receivers that is sent with the next sender report, if there is one.
    fn announce(&mut self, now: Time) -> Option<Body> {
        self.inner_mut()?.announce(now)
    }
}

/// Fill level of the play-out buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLevel {
    /// Number of bytes in the buffer.
    pub level: Bytes,
    /// Capacity of the buffer in bytes.
    pub size: Bytes,
}

/// A packet that has arrived at the receiver. Duplicates are not included.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Arrival time on the receiver's clock.
    pub at: Time,
    /// Extended RTP sequence number.
    pub seq: u64,
    /// Size including the IP header.
    pub size: Bytes,
    /// Send time on the sender's clock, from the send-time header extension.
    pub sent: PeerTime,
    /// When the packet's frame was sampled, on the sender's media clock. The RTP timestamp says so.
    pub sampled: PeerTime,
    /// Position of the packet in its frame.
    pub edge: FrameEdge,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Header extension that the controller's sender part has written. It is empty if there is none.
    pub notice: &'a [u8],
    /// Fill level of the play-out buffer, if the session has such a buffer.
    pub buffer: Option<BufferLevel>,
}

/// A packet that has arrived in another stream than [`Stream::Media`]. It is given to [`ReceiverHalf::on_extra`].
#[derive(Clone, Copy, Debug)]
pub struct ExtraArrival {
    /// Arrival time on the receiver's clock.
    pub at: Time,
    /// Stream of the packet. It is never [`Stream::Media`].
    pub stream: Stream,
    /// Size including the IP header.
    pub size: Bytes,
    /// Send time of the packet on the sender's clock.
    pub sent: PeerTime,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Number of packets that are missing in this stream directly before this packet.
    pub missing: u64,
}

/// A report of another receiver that has arrived by multicast.
#[derive(Clone, Copy, Debug)]
pub struct Overheard<'a> {
    /// Arrival time of the report.
    pub at: Time,
    /// The receiver that has sent the report.
    pub from: ReceiverId,
    /// Message that the other receiver's controller has written.
    pub body: &'a Body,
}

/// A message from the sender part of the controller to all receivers.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Arrival time of the message.
    pub at: Time,
    /// Content of the message.
    pub body: &'a Body,
}

/// When the next report is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// When RTCP's timer expires (RFC 3550, section 6.3). Reports then stay within RTCP's 5 % of the session bandwidth.
    Rtcp,
    /// At this time, without RTCP's limit of 5 %. A time in the past means now.
    At(Wake),
    /// No report is due until the controller's state changes.
    Hold,
}

/// An opportunity to send a report, with the values that a report needs.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The current time.
    pub now: Time,
    /// Number of packets expected since the last report.
    pub expected: u64,
    /// Number of packets that are missing since the last report. Late packets and duplicates may make it negative.
    pub lost: i64,
    /// Number of members in the session.
    pub members: u32,
    /// RTCP's interval without randomization, called Td (RFC 3550, section 6.3.1).
    pub interval: Span,
    /// Measured share of RTCP in the session bandwidth, from 0 to 1.
    pub rtcp_share: f64,
}

/// What the receiver part of a controller does with a [`Slot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send a report block together with this message.
    Body(Body),
    /// Send only a report block.
    Plain,
    /// Send no report, because another member's report is enough.
    Suppress,
}

/// State of the receiver part of a controller. It is recorded with a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Rate that the receiver part requests.
    pub rate: Option<Rate>,
    /// Loss rate or loss event rate that the receiver part measures.
    pub loss: Option<f64>,
    /// Round-trip time that the receiver part uses.
    pub rtt: Option<Span>,
    /// Name of the current state. It is `None` if the controller has no states.
    pub state: Option<&'static str>,
}

/// The receiver part of a controller. The session calls it with all events at the receiver.
pub trait ReceiverHalf: Send {
    /// Is called when a media packet has arrived.
    fn on_arrival(&mut self, arrival: &Arrival<'_>);

    /// Is called when a packet of another stream has arrived. Its bytes count as received. If it restores a media
    /// packet, that media packet still counts as lost.
    fn on_extra(&mut self, _extra: &ExtraArrival) {}

    /// Processes a report of another receiver.
    fn on_overheard(&mut self, _heard: &Overheard<'_>) {}

    /// Processes a message from the sender part to all receivers.
    fn on_announce(&mut self, _announced: &Announcement<'_>) {}

    /// Is called when a sender report on the stream has arrived.
    fn on_sender_report(&mut self, _now: Time) {}

    /// Is called before each [`Slot`] with the fill level of the play-out buffer.
    fn on_buffer(&mut self, _now: Time, _buffer: BufferLevel) {}

    /// Is called when the timer that [`ReceiverHalf::wake`] requested has expired.
    fn on_timer(&mut self, _now: Time) {}

    /// Returns when [`ReceiverHalf::on_timer`] has to be called next.
    fn wake(&self) -> Option<Wake> {
        None
    }

    /// Returns when the next report is due.
    fn due(&self) -> Due {
        Due::Rtcp
    }

    /// Returns whether `due` and `wake` never change because of arrivals, announcements and sender reports. If so, the
    /// session may deliver these events later in batches, with their original times. It delivers them before any other
    /// call.
    fn is_patient(&self) -> bool {
        false
    }

    /// Writes the report that is due now.
    fn report(&mut self, slot: &Slot) -> Reply;

    /// Sets a new identifier after an SSRC collision (RFC 3550, section 8.2).
    fn on_renamed(&mut self, _id: ReceiverId) {}

    /// Returns the message for the last report before the receiver leaves, if there is one.
    fn leave(&mut self, _now: Time) -> Option<Body> {
        None
    }

    /// Returns the results of the checks that this controller makes while it runs.
    fn checks(&self) -> &[Check] {
        &[]
    }

    /// Returns the rate that this receiver's loss and round-trip time allow. Returns `Rate::MAX` if no limit was
    /// observed, and `None` if the rate is unknown. This method changes no state.
    fn acceptable(&self) -> Option<Rate> {
        None
    }

    /// Returns the state that is recorded with a run. This method changes no state.
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
