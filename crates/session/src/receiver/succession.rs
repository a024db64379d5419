//! Which source is followed when several send media, and from where on it counts anew.
//!
//! RFC 3550 leaves this to the receiver: a source that is new is a new member (section 6.2.1), one that is silent for
//! five reporting intervals has left (6.3.5), and one SSRC at two addresses is a conflict (8.2). A sender that was
//! started again, or changes its SSRC with each group of pictures, comes from the address of the one before, which is
//! silent then. A stranger comes from elsewhere, and has to wait until the source has left by RFC 3550; two sources of
//! one host both speak, and neither takes the other's place.

use super::{Receiver, Stream, Totals};
use crate::UnusedReason;
use crate::sender::CLOCK_RATE;
use steadycast_rtcp::{Arrived, Origin, Reception};
use steadycast_units::{Span, Time};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::seq::{MAX_MISORDER, MIN_SEQUENTIAL};

/// A source that the description names is followed to another one of its address after this silence; and any other of
/// which not enough is known.
const RENAMED: Span = Span::millis(500);
/// A shorter silence says nothing: packets may overtake each other in that time.
const QUIET: Span = Span::millis(50);
/// No silence within a stream of pictures needs a longer wait than this.
const LONGEST: Span = Span::secs(5);
/// Another source of which nothing has come for this time is not told of.
const PASSED: Span = Span::secs(3);
/// Time stamps that step this far from the time that passed are another run's.
const FAR: Span = Span::secs(5);

/// Another source that sends media here.
pub(super) struct Other {
    from: Origin,
    reception: Reception,
    /// When it was heard first and last.
    began: Time,
    heard: Time,
}

impl Other {
    fn new(now: Time, from: Origin, header: &RtpHeader) -> Self {
        let reception = Reception::trusting(header.ssrc, CLOCK_RATE);
        let mut other = Self { from, reception, began: now, heard: now };
        other.hear(now, header);
        other
    }

    fn hear(&mut self, now: Time, header: &RtpHeader) {
        self.reception.on_rtp(now, header.seq, header.timestamp);
        self.heard = now;
    }

    /// Whether its numbers are those of a stream: they may be out of order, but not far from each other.
    fn is_stream(&self) -> bool {
        self.reception.received() - self.reception.duplicates() >= u64::from(MIN_SEQUENTIAL)
    }

    /// As [`Other::is_stream`], this packet included.
    fn is_stream_with(&self, now: Time, header: &RtpHeader) -> bool {
        let mut reception = self.reception.clone();
        reception.on_rtp(now, header.seq, header.timestamp);
        Self { reception, ..*self }.is_stream()
    }
}

/// A source that sends media here and is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The source.
    pub ssrc: u32,
    /// Where it sends from.
    pub from: Origin,
    /// How long the one that is followed has to be silent from now on for this one to take its place.
    pub after: Span,
}

impl Receiver {
    /// The source that is heard beside the one that is followed, if there is any.
    pub fn waiting(&self, now: Time) -> Option<Waiting> {
        let (stream, other) = (self.stream.as_ref()?, self.other.as_ref()?);
        let ssrc = other.reception.ssrc();
        let passed = now.since(other.heard) > PASSED || ssrc == stream.ssrc;
        let after = self.patience_for(stream, other.from).saturating_sub(now.since(stream.heard.max(self.resumed)));
        (!passed).then_some(Waiting { ssrc, from: other.from, after })
    }

    /// For how long neither media nor RTCP of the source that it follows has come, nor media of one that could take its
    /// place, once that is five reporting intervals and `least`: it has left, and its BYE was lost or never sent (RFC
    /// 3550, sections 6.2.1 and 6.3.5). A time in which the driver's own clock stood still does not count.
    pub fn source_left(&self, now: Time, least: Span) -> Option<Span> {
        let other = self.other.as_ref().filter(|other| other.is_stream()).map(|other| other.heard);
        let silence = now.since(self.stream.as_ref()?.spoke.max(other.unwrap_or(Time::ZERO)).max(self.resumed));
        (silence >= least.max(self.participant.member_timeout())).then_some(silence)
    }

    /// Which run of the stream's numbers it is, and with which number it began: each source begins another one, and so
    /// does one that starts again. To the controller and to whoever takes the packets, numbers go on from run to run.
    pub const fn run(&self) -> (u32, u64) {
        self.run
    }

    /// Whether a packet that it took for another stream's may turn out to be of this one: it is worth to keep it for
    /// [`Receiver::begin_run`].
    pub fn may_follow(&self, from: Origin, header: &RtpHeader) -> bool {
        let beside = || self.other.as_ref().is_some_and(|other| other.reception.ssrc() == header.ssrc);
        self.stream.as_ref().is_some_and(|stream| stream.from == from && (stream.ssrc == header.ssrc || beside()))
    }

    /// Whether with this packet another run begins, of another source or of one that starts again.
    pub fn begins_run(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        self.stream.is_some() && !self.goes_on(now, header) && self.is_next(now, from, header)
    }

    /// Another run begins with this packet, which came before the one of which [`Receiver::begins_run`] was true: it is
    /// to be told next.
    pub fn begin_run(&mut self, now: Time, from: Origin, header: &RtpHeader) {
        let number = i64::from(header.seq);
        // To the controller it is one stream: neither another SSRC nor other numbers are a loss.
        let next = self.stream.as_ref().map_or(number, Stream::next);
        if let Some(old) = &self.stream {
            self.past = self.past + Totals::of(&old.reception);
        }
        match &mut self.stream {
            Some(stream) if stream.ssrc == header.ssrc => stream.restart(now, header, next - number),
            _ => self.begin_source(Stream::new(now, from, header, next - number), now),
        }
        self.run = (self.run.0 + 1, u64::try_from(next).unwrap_or(0));
        self.other = None;
        if let Some(repair) = &mut self.repair {
            repair.requester.restart();
        }
        if let Some(parity) = &mut self.parity {
            parity.restart();
        }
        if let Some(reporter) = &mut self.reporter {
            reporter.restart();
        }
    }

    fn begin_source(&mut self, stream: Stream, now: Time) {
        let pace = self.stream.as_ref().and_then(|old| old.pace);
        let old = self.stream.replace(Stream { pace, ..stream });
        if old.is_some_and(|old| self.named == Some(old.ssrc)) {
            self.named = None;
        }
        if let Some(repair) = &mut self.repair {
            repair.associated = !repair.of_any;
        }
        if let Some(parity) = &mut self.parity {
            parity.associated = !parity.of_any;
        }
        self.participant.on_source(now, true);
    }

    /// Whether a packet goes on in the stream that is followed.
    pub(super) fn goes_on(&self, now: Time, header: &RtpHeader) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.ssrc == header.ssrc && !stream.is_far(now, header))
    }

    /// Whether the packet's source is the one to follow from now on.
    pub(super) fn follow(&mut self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        if !self.takes_type(header) {
            return false;
        }
        if self.is_next(now, from, header) {
            self.begin_run(now, from, header);
            return true;
        }
        if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == header.ssrc && s.from == from) {
            stream.reception.hold(now, header.seq);
        }
        match &mut self.other {
            Some(other) if (other.reception.ssrc(), other.from) == (header.ssrc, from) => other.hear(now, header),
            // One that goes on is not displaced by packets that somebody makes up.
            Some(other) if other.is_stream() && now.since(other.heard) < RENAMED => {}
            _ => self.other = Some(Other::new(now, from, header)),
        }
        false
    }

    /// Whether a source of this payload type may be followed.
    fn takes_type(&self, header: &RtpHeader) -> bool {
        self.payload_types.is_none_or(|described| described.contains(header.payload_type))
    }

    /// Why a packet's source is not followed.
    pub(super) fn why_not_followed(&self, from: Origin, header: &RtpHeader) -> UnusedReason {
        let repairs = self.repair.as_ref().map(|repair| repair.settings.payload_type);
        match &self.stream {
            _ if repairs == Some(header.payload_type) => UnusedReason::UnaskedRepair,
            _ if !self.takes_type(header) => UnusedReason::UnknownPayloadType,
            Some(stream) if stream.ssrc != header.ssrc => UnusedReason::OtherSource,
            Some(stream) if stream.from != from => UnusedReason::OtherAddress,
            _ => UnusedReason::FarNumber,
        }
    }

    /// Whether a source takes the followed one's place with this packet: the first that is heard; the one that the
    /// description names; and another one, or the same from other numbers on, when it has said BYE, never came to a
    /// second packet, or is silent.
    fn is_next(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        let Some(old) = &self.stream else { return true };
        if !self.takes_type(header) {
            return false;
        }
        let again = old.ssrc == header.ssrc;
        if again && old.from != from {
            return false;
        }
        let ended = old.ended && (old.heir.is_none_or(|heir| heir == header.ssrc) || self.source_ended());
        let [old_named, new_named] = [old.ssrc, header.ssrc].map(|ssrc| self.named == Some(ssrc));
        let silent = now.since(old.heard.max(self.resumed));
        // Its first packet may have been overtaken by others of its own, too.
        let known = self.other.as_ref().filter(|other| other.reception.ssrc() == header.ssrc && other.from == from);
        let known = known.filter(|other| other.is_stream_with(now, header) && !(again && old.reception.holds()));
        let fleeting = old.reception.received() < 2 && !old_named && (!again || known.is_some());
        let proven = || known.is_some_and(|other| now.since(other.began) >= QUIET);
        let silent = silent > self.participant.member_timeout() || silent > self.patience_for(old, from) && proven();
        !again && (new_named || ended) || fleeting || silent
    }

    /// How long a source has to be silent for one at this address to take its place.
    fn patience_for(&self, old: &Stream, from: Origin) -> Span {
        if old.from != from {
            return self.participant.member_timeout();
        }
        let least = if old.pace.is_none() || self.named == Some(old.ssrc) { RENAMED } else { QUIET };
        (old.pace.unwrap_or(least) * 2).clamp(least, LONGEST)
    }
}

impl Stream {
    /// Whether a packet of its source is far from all that came of it: it is made up, or of another run.
    fn is_far(&self, now: Time, header: &RtpHeader) -> bool {
        let off = self.reception.highest().map_or(0, |highest| header.seq.wrapping_sub(highest as u16) as i16);
        let arrived = || self.reception.clone().on_rtp(now, header.seq, header.timestamp);
        off.unsigned_abs() >= MAX_MISORDER && matches!(arrived(), Arrived::Restarted(_) | Arrived::Stray)
    }

    /// Begins to count anew. The media's clock goes on by the time that passed, where the time stamps do not go with
    /// those before.
    fn restart(&mut self, now: Time, header: &RtpHeader, ahead: i64) {
        (self.reception, self.ahead) = (Reception::trusting(header.ssrc, CLOCK_RATE), ahead);
        self.frame = (header.timestamp, now);
        let ticks = |span: Span| (span.as_nanos() / 100_000 * 9) as i64;
        let (passed, step) = (ticks(now.since(self.heard)), header.timestamp.wrapping_sub(self.timestamp) as i32);
        if (i64::from(step) - passed).abs() > ticks(FAR) {
            (self.timestamp, self.ticks) = (header.timestamp, self.ticks.saturating_add(passed));
        }
    }
}
