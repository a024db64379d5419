use crate::{Body, Check, Notice, ReceiverId};
use std::borrow::Cow;
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Time};
use steadycast_words::words;

/// When to be called again, and why: every wait can explain itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Not before this.
    pub at: Time,
    /// What it is for, in two or three words.
    pub why: &'static str,
}

/// Where a packet stands in its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEdge {
    /// Whether it is the first packet of its frame.
    pub first: bool,
    /// Whether it is the last packet of its frame (RTP marker).
    pub last: bool,
}

/// One of the streams that a session sends side by side, each with an SSRC and sequence numbers of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The pictures.
    #[default]
    Media,
    /// Lost packets of the media, sent again (RFC 4588).
    Repair,
    /// Parity, from which lost packets of the media are computed.
    Parity,
    /// Packets without content, which a probe needs where no media waits.
    Padding,
}

/// A packet that is about to leave, for [`SenderHalf::notice`].
#[derive(Clone, Copy, Debug)]
pub struct Departing {
    /// When it leaves, or has left ([`Sent::left`]).
    pub at: Time,
    /// Extended sequence number.
    pub seq: u64,
    /// IP size, with a notice as long as that of the packet before.
    pub size: Bytes,
    /// Where it stands in its frame.
    pub edge: FrameEdge,
}

/// A packet of the media that has left.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Now.
    pub at: Time,
    /// When it left: before `at` where the session learns of a packet only with the feedback about it. From here on a
    /// half counts delays and rates; what it waits for it counts from `at`.
    pub left: Time,
    /// Its place among all packets that the session has sent, of all its streams, from 0 on. [`PacketReport::number`]
    /// names it.
    pub number: u64,
    /// Extended sequence number.
    pub seq: u64,
    /// IP size.
    pub size: Bytes,
    /// Whether nothing waits behind it: the application, not the controller, limits the rate (RFC 5348, 8.2.1).
    pub data_limited: bool,
}

/// A packet of another stream than the media that has left.
#[derive(Clone, Copy, Debug)]
pub struct ExtraSent {
    /// Now.
    pub at: Time,
    /// As [`Sent::left`].
    pub left: Time,
    /// As [`Sent::number`].
    pub number: u64,
    /// Its stream; never [`Stream::Media`].
    pub stream: Stream,
    /// IP size.
    pub size: Bytes,
}

/// What waits at the sender, for [`SenderHalf::on_queue`].
#[derive(Clone, Copy, Debug)]
pub struct MediaQueue {
    /// Now.
    pub at: Time,
    /// Bytes of frames that wait in the pacer, without headers.
    pub waiting: Bytes,
    /// How long the oldest of them has waited.
    pub age: Span,
    /// Size of the frame that has just come in, without headers; `None` when the queue has only become shorter.
    pub frame: Option<Bytes>,
}

/// What per-packet feedback tells of one packet (RFC 8888, or transport-wide feedback), joined with what the sender
/// knows of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketReport {
    /// As [`Sent::number`].
    pub number: u64,
    /// When it left.
    pub sent: Time,
    /// IP size.
    pub size: Bytes,
    /// Its stream.
    pub stream: Stream,
    /// How it arrived; `None` when it had not when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

/// How a packet arrived, as per-packet feedback tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketArrival {
    /// When, on the receiver's clock; `None` where the feedback could not tell.
    pub at: Option<PeerTime>,
    /// Its ECN field on arrival; `None` where the format has no room for it.
    pub ecn: Option<Ecn>,
}

/// Packets that a half asks for to find out what the path carries: the session sends them at a rate of their own, from
/// what waits, and then from padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Tells this probe from others of the same half.
    pub id: u32,
    /// The rate at which its packets leave.
    pub rate: Rate,
    /// The least number of packets. The probe ends once it has sent these and `bytes`.
    pub packets: u32,
    /// The least number of IP bytes.
    pub bytes: Bytes,
    /// Whether its packets are part of the pacing rate: after it nothing leaves until they would have left at that
    /// rate.
    pub within: bool,
}

/// What an RTCP report block says of the interval since the last one from the same receiver (RFC 3550, 6.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reception {
    /// Packets that were expected in the interval.
    pub expected: u64,
    /// Of these, how many are missing. Negative with duplicates.
    pub lost: i64,
    /// The fraction lost as the block itself has it, in 1/256.
    pub fraction: f64,
    /// Highest extended sequence number received.
    pub highest: u64,
    /// Interarrival jitter (RFC 3550, A.8).
    pub jitter: Span,
}

/// A report that has reached the sender, joined with what the sender itself knows.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// When it arrived, on the sender's clock.
    pub at: Time,
    /// The receiver that sent it.
    pub from: ReceiverId,
    /// Round-trip time by LSR and DLSR, where the report block carries them (RFC 3550, 6.4.1): the sender's own
    /// measurement.
    pub rtt: Option<Span>,
    /// The report block about our stream, where there is one.
    pub reception: Option<Reception>,
    /// The controller's own report, where there is one.
    pub body: Option<&'a Body>,
    /// What it tells of single packets, in the order in which they were sent; empty where the feedback tells nothing of
    /// them. A missing packet may stand in several reports; one that has arrived stands in one.
    pub packets: &'a [PacketReport],
    /// Receivers that are in the session now, this one included.
    pub members: u32,
}

/// What may leave before the next report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// This many packets.
    Packets(u32),
    /// This many IP bytes. A packet may leave while any are left, also a larger one.
    Bytes(Bytes),
}

impl Window {
    /// Whether nothing may leave.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Packets(0) | Self::Bytes(Bytes::ZERO))
    }
}

words! {
    /// What limits the rate just now; the record adds up the time spent in each.
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
    /// What limits a rate from `floor` to `cap`; at `start` the network's share is not known yet.
    pub(crate) fn between<R: PartialOrd>(rate: R, floor: R, cap: R, start: bool) -> Self {
        match rate {
            rate if rate >= cap => Self::Cap,
            _ if start => Self::Start,
            rate if rate <= floor => Self::Floor,
            _ => Self::Network,
        }
    }
}

/// Why the rate is what it is: the rule that set it and what went into it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// The rule, for example `"throughput equation"` or `"no feedback: halved"`.
    pub rule: Cow<'static, str>,
    /// The loss (event) rate that went into it.
    pub loss: Option<f64>,
    /// The round-trip time that went into it.
    pub rtt: Option<Span>,
    /// The receiver that set it.
    pub by: Option<ReceiverId>,
}

impl Why {
    /// A rule that needs no numbers.
    pub const fn rule(rule: &'static str) -> Self {
        Self { rule: Cow::Borrowed(rule), loss: None, rtt: None, by: None }
    }
}

/// What a sender half wants, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The rate for the encoder, as a rate of IP packets; the session takes the headers off.
    pub target: Rate,
    /// The rate at which the pacer lets packets go.
    pub pacing: Rate,
    /// What may leave, for controllers with a window; `None` for those without.
    pub window: Option<Window>,
    /// What limits the rate.
    pub limit: Limit,
    /// The rule behind it.
    pub why: Why,
}

/// What a sender can afford until a time. A frame that does not fit is not sent, nor any after it until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// IP bytes of media, from when an allowance with this end was first given.
    pub bytes: Bytes,
    /// Its end; another end is another allowance.
    pub until: Time,
}

/// How a receiver has gone, for [`SenderHalf::on_leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It has not been heard for five report intervals, or is not to be heard. It may still be there.
    Silent,
    /// It has said BYE. A half whose silence begins late need not wait for it (`asmp` and `lda-plus` halve at the last
    /// BYE).
    Bye,
}

/// Names, in a layer's [`SenderHalf`], the field with the half that it stands around.
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
/// A layer around a half names it by [`around!`](crate::around), and writes only the methods
/// that it changes: each default below passes on to the half within. A half that stands alone leaves the two as they
/// are.
pub trait SenderHalf: Send {
    /// The half that this one stands around.
    fn inner(&self) -> Option<&dyn SenderHalf> {
        None
    }

    /// As [`SenderHalf::inner`].
    fn inner_mut(&mut self) -> Option<&mut dyn SenderHalf> {
        None
    }

    /// A packet of the media has left.
    fn on_sent(&mut self, sent: &Sent);

    /// A packet of another stream has left: a repair, parity or padding. It is part of the rate that was decided.
    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        if let Some(half) = self.inner_mut() {
            half.on_extra_sent(sent);
        }
    }

    /// A frame has come into the pacer's queue, or one has left it.
    fn on_queue(&mut self, queue: &MediaQueue) {
        if let Some(half) = self.inner_mut() {
            half.on_queue(queue);
        }
    }

    /// Reports may come as far apart as this, however short the round trip is: a lack of them for this long is no
    /// silence yet. A half that never hears of it counts in round trips.
    fn on_feedback_interval(&mut self, interval: Span) {
        if let Some(half) = self.inner_mut() {
            half.on_feedback_interval(interval);
        }
    }

    /// The fates of these packets are unknown, and no feedback need ever tell them: it has told of later packets and
    /// not of these, or the session has said that it covers none of them. They are neither lost nor in flight. Their
    /// bytes count as received, since a received rate without them would be that of a part of what was sent. The report
    /// that the silence was found in follows; it or a later one may still tell a fate.
    fn on_unknown(&mut self, packets: &[PacketReport]) {
        if let Some(half) = self.inner_mut() {
            half.on_unknown(packets);
        }
    }

    /// A report has arrived. Its body comes from the network: a half checks lengths and ignores what can't be true. A
    /// packet that later ones have overtaken is lost, unless [`SenderHalf::on_unknown`] has named it and no report has
    /// told since that it is missing.
    fn on_report(&mut self, report: &Report<'_>);

    /// A receiver has gone.
    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        if let Some(half) = self.inner_mut() {
            half.on_leave(at, receiver, how);
        }
    }

    /// The time of [`SenderHalf::wake`] has come.
    fn on_timer(&mut self, now: Time) {
        if let Some(half) = self.inner_mut() {
            half.on_timer(now);
        }
    }

    /// When this half next wants [`SenderHalf::on_timer`]. A time that is past means at once.
    fn wake(&self) -> Option<Wake> {
        self.inner()?.wake()
    }

    /// What it wants: a pure getter.
    fn decision(&self) -> Decision;

    /// What it can afford, where the rate alone does not say it: a pure getter. Frames beyond it are skipped.
    fn allowance(&self) -> Option<Allowance> {
        self.inner()?.allowance()
    }

    /// The probe that it wants sent now: a pure getter. The session sends each probe once, by its `id`, from the next
    /// packet that leaves on. Which packets are of it the half counts itself, in [`SenderHalf::on_sent`] and
    /// [`SenderHalf::on_extra_sent`].
    fn probe(&self) -> Option<Probe> {
        self.inner()?.probe()
    }

    /// When it wants a sender report to leave. A half that says [`Due::At`] moves on in [`SenderHalf::announce`], which
    /// each sender report calls.
    fn due(&self) -> Due {
        self.inner().map_or(Due::Rtcp, |half| half.due())
    }

    /// What goes forward with this packet.
    fn notice(&mut self, packet: &Departing) -> Notice {
        self.inner_mut().map_or(Notice::NONE, |half| half.notice(packet))
    }

    /// The promises that it has kept an eye on. A look is cheap, once per report at most, and finds out by other means
    /// than those that keep the promise.
    fn checks(&self) -> &[Check] {
        self.inner().map_or(&[], |half| half.checks())
    }

    /// What goes to the whole group beside the sender report that is about to leave.
    fn announce(&mut self, now: Time) -> Option<Body> {
        self.inner_mut()?.announce(now)
    }
}

/// How full the play-out buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLevel {
    /// What is in it.
    pub level: Bytes,
    /// What fits.
    pub size: Bytes,
}

/// A packet that has reached the receiver, duplicates excluded.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When, on the receiver's clock.
    pub at: Time,
    /// Extended sequence number.
    pub seq: u64,
    /// IP size.
    pub size: Bytes,
    /// When it was sent, on the sender's clock (send-time extension).
    pub sent: PeerTime,
    /// When its frame was sampled, on the sender's media clock (RTP timestamp).
    pub sampled: PeerTime,
    /// Where it stands in its frame.
    pub edge: FrameEdge,
    /// Its ECN field on arrival.
    pub ecn: Ecn,
    /// What the sender half sent along; empty when nothing.
    pub notice: &'a [u8],
    /// The play-out buffer, where the session has one.
    pub buffer: Option<BufferLevel>,
}

/// A packet of another stream than the media that has reached the receiver, for [`ReceiverHalf::on_extra`].
#[derive(Clone, Copy, Debug)]
pub struct ExtraArrival {
    /// When, on the receiver's clock.
    pub at: Time,
    /// Its stream; never [`Stream::Media`].
    pub stream: Stream,
    /// IP size.
    pub size: Bytes,
    /// When it was sent itself, on the sender's clock: not the packet that it repairs.
    pub sent: PeerTime,
    /// Its ECN field on arrival.
    pub ecn: Ecn,
    /// Packets of its stream that are missing right before it.
    pub missing: u64,
}

/// Another member's report, overheard in a group.
#[derive(Clone, Copy, Debug)]
pub struct Overheard<'a> {
    /// When.
    pub at: Time,
    /// The member that sent it.
    pub from: ReceiverId,
    /// Its content.
    pub body: &'a Body,
}

/// What a sender half announced to the group.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// When it arrived.
    pub at: Time,
    /// Its content.
    pub body: &'a Body,
}

/// When a half wants to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Whenever RTCP's own timer says so (RFC 3550, 6.3): the session keeps the 5 %.
    Rtcp,
    /// At this time, as a regular RTCP packet with its own bandwidth. A time that is past means at once.
    At(Wake),
    /// Not until something else happens.
    Hold,
}

/// An opportunity to report: what the session knows about the interval since this receiver's last report.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Now.
    pub now: Time,
    /// Packets expected since the last report.
    pub expected: u64,
    /// Of these, how many are missing; late and duplicate ones can make it negative.
    pub lost: i64,
    /// Members of the session.
    pub members: u32,
    /// The deterministic RTCP interval Td (RFC 3550, 6.3.1).
    pub interval: Span,
    /// The measured share of RTCP in the session bandwidth over the last intervals.
    pub rtcp_share: f64,
}

/// What a receiver half answers to a [`Slot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Report block and this body.
    Body(Body),
    /// Report block alone.
    Plain,
    /// No report: another member has said it.
    Suppress,
}

/// A receiver half's own view, for the record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// The rate that it asks for.
    pub rate: Option<Rate>,
    /// Its loss (event) rate.
    pub loss: Option<f64>,
    /// Its round-trip time.
    pub rtt: Option<Span>,
    /// Its state in a word, where the controller has states.
    pub state: Option<&'static str>,
}

/// The receiving half of a controller.
pub trait ReceiverHalf: Send {
    /// A packet has arrived.
    fn on_arrival(&mut self, arrival: &Arrival<'_>);

    /// A packet of another stream has arrived: a repair, parity or padding. Its bytes count as received. What it
    /// repairs stays lost to this half: [`ReceiverHalf::on_arrival`] is never told of it.
    fn on_extra(&mut self, _extra: &ExtraArrival) {}

    /// Another member's report was heard.
    fn on_overheard(&mut self, _heard: &Overheard<'_>) {}

    /// The sender half has announced something to the group.
    fn on_announce(&mut self, _announced: &Announcement<'_>) {}

    /// A sender report about the stream has arrived.
    fn on_sender_report(&mut self, _now: Time) {}

    /// How full the play-out buffer is now, where the session has one: told before each opportunity to report.
    fn on_buffer(&mut self, _now: Time, _buffer: BufferLevel) {}

    /// The time of [`ReceiverHalf::wake`] has come.
    fn on_timer(&mut self, _now: Time) {}

    /// When this half next wants [`ReceiverHalf::on_timer`].
    fn wake(&self) -> Option<Wake> {
        None
    }

    /// When it wants to report.
    fn due(&self) -> Due {
        Due::Rtcp
    }

    /// Whether an arrival, an announcement and a sender report leave [`ReceiverHalf::due`] and [`ReceiverHalf::wake`]
    /// alone: it may then be told of them later, with their own times, as long as that is before any other call. A
    /// simulation of a large group does so.
    fn is_patient(&self) -> bool {
        false
    }

    /// Its report, now. Called when it is due.
    fn report(&mut self, slot: &Slot) -> Reply;

    /// The receiver goes by another identifier from now on: its old one collided with somebody else's (RFC 3550, 8.2).
    fn on_renamed(&mut self, _id: ReceiverId) {}

    /// The receiver is about to leave: what its last report says, if anything.
    fn leave(&mut self, _now: Time) -> Option<Body> {
        None
    }

    /// See [`SenderHalf::checks`].
    fn checks(&self) -> &[Check] {
        &[]
    }

    /// The rate that its path could carry for it, by its own loss and round-trip time and whatever is sent now: a pure
    /// getter. `Rate::MAX`: nothing that it has seen bounds it. `None`: it does not know yet, or the controller's
    /// receivers never do.
    fn acceptable(&self) -> Option<Rate> {
        None
    }

    /// Its own view, for the record: a pure getter.
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
