//! Decides which source a receiver follows, and detects restarts of this source. RFC 3550 leaves both decisions to the
//! receiver.
//!
//! A new source at the address of the followed source is usually the same sender after a restart or with a new SSRC. It
//! replaces the followed source after a short silence of that source.
//!
//! A new source at another address may be an attacker. It replaces the followed source only after the member time-out
//! (RFC 3550, section 6.3.5).

use super::{Receiver, Stream, Totals};
use crate::UnusedReason;
use crate::sender::CLOCK_RATE;
use steadycast_rtcp::{Arrived, Origin, Reception};
use steadycast_units::{Span, Time};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::seq::{MAX_MISORDER, MIN_SEQUENTIAL};

/// If a session description specifies the followed source, another source at the same address replaces it only after at
/// least this silence. It is also the assumed frame interval while the frame interval is not known.
const SOURCE_CHANGE_SILENCE: Span = Span::millis(500);
/// Minimum silence before another source at the same address replaces the followed source. A shorter silence may be a
/// consequence of reordering.
const MIN_SILENCE: Span = Span::millis(50);
/// Maximum silence that is required before another source at the same address replaces the followed source.
const MAX_SILENCE: Span = Span::secs(5);
/// [`Receiver::waiting`] omits another source if no packet of it has arrived for this time.
const OTHER_SOURCE_LIFETIME: Span = Span::secs(3);
/// If a timestamp advances by this much more than the elapsed time, the source has restarted.
const TIMESTAMP_JUMP: Span = Span::secs(5);

pub(super) struct OtherSource {
    from: Origin,
    reception: Reception,
    began: Time,
    heard: Time,
}

impl OtherSource {
    fn new(now: Time, from: Origin, header: &RtpHeader) -> Self {
        let reception = Reception::new(header.ssrc, CLOCK_RATE);
        let mut other = Self { from, reception, began: now, heard: now };
        other.hear(now, header);
        other
    }

    fn hear(&mut self, now: Time, header: &RtpHeader) {
        self.reception.on_rtp(now, header.seq, header.timestamp);
        self.heard = now;
    }

    /// Returns whether the sequence numbers of the packets belong to one stream. The packets may be out of order.
    fn is_stream(&self) -> bool {
        self.reception.received() - self.reception.duplicates() >= u64::from(MIN_SEQUENTIAL)
    }

    /// Returns whether the sequence numbers belong to one stream if this packet is included.
    fn is_stream_with(&self, now: Time, header: &RtpHeader) -> bool {
        let mut reception = self.reception.clone();
        reception.on_rtp(now, header.seq, header.timestamp);
        Self { reception, ..*self }.is_stream()
    }
}

/// A source that sends to this receiver but is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The source's SSRC.
    pub ssrc: u32,
    /// The source's address.
    pub from: Origin,
    /// This source replaces the followed source if the followed source stays silent for this time from now on.
    pub after: Span,
}

impl Receiver {
    /// Returns the source, if any, that sends to this receiver in addition to the followed source.
    pub fn waiting(&self, now: Time) -> Option<Waiting> {
        let (stream, other) = (self.stream.as_ref()?, self.other.as_ref()?);
        let ssrc = other.reception.ssrc();
        let passed = now.since(other.heard) > OTHER_SOURCE_LIFETIME || ssrc == stream.ssrc;
        let after =
            self.takeover_silence_of(stream, other.from).saturating_sub(now.since(stream.heard.max(self.resumed)));
        (!passed).then_some(Waiting { ssrc, from: other.from, after })
    }

    /// Returns for how long both the followed source and its possible successor have been silent. Returns `None` if
    /// this time is shorter than `least` or than five reporting intervals.
    ///
    /// A source that is silent for such a time has left without a BYE (RFC 3550, section 6.3.5).
    pub fn source_left(&self, now: Time, least: Span) -> Option<Span> {
        let other = self.other.as_ref().filter(|other| other.is_stream()).map(|other| other.heard);
        let silence = now.since(self.stream.as_ref()?.spoke.max(other.unwrap_or(Time::ZERO)).max(self.resumed));
        (silence >= least.max(self.participant.member_timeout())).then_some(silence)
    }

    /// Returns the index of the present run and its first sequence number. A run ends when the source restarts or
    /// another source replaces it. The sequence numbers continue in the next run.
    pub const fn run(&self) -> (u32, u64) {
        self.run
    }

    /// Returns whether a rejected packet may belong to the next run. If it may, keep the packet until the call of
    /// [`Receiver::begin_run`].
    pub fn may_follow(&self, from: Origin, header: &RtpHeader) -> bool {
        let beside = || self.other.as_ref().is_some_and(|other| other.reception.ssrc() == header.ssrc);
        self.stream.as_ref().is_some_and(|stream| stream.from == from && (stream.ssrc == header.ssrc || beside()))
    }

    /// Returns whether a new run begins with this packet, because its source is new or has restarted.
    pub fn begins_run(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        self.stream.is_some() && !self.goes_on(now, header) && self.is_next(now, from, header)
    }

    /// Starts a new run. `header` is the header of its first packet. Pass the run's packets to [`Receiver::on_media`]
    /// afterwards.
    pub fn begin_run(&mut self, now: Time, from: Origin, header: &RtpHeader) {
        let number = i64::from(header.seq);
        // Continue with the next sequence number, so that the controller does not take the change for a loss.
        let next = self.stream.as_ref().map_or(number, Stream::next);
        let replaced = self.stream.is_some();
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
        // Restart the audio only if a source was replaced. The audio of the first source may arrive before its first
        // video packet.
        if let Some(audio) = self.audio.as_mut().filter(|_| replaced) {
            audio.restart();
        }
        if let Some(reporter) = &mut self.reporter {
            reporter.restart();
        }
    }

    fn begin_source(&mut self, stream: Stream, now: Time) {
        let pace = self.stream.as_ref().and_then(|old| old.pace);
        let old = self.stream.replace(Stream { pace, ..stream });
        // Forget the SSRC in the session description once it has been replaced, because its source may have restarted
        // with another SSRC.
        if old.is_some_and(|old| self.named == Some(old.ssrc)) {
            self.named = None;
        }
        if let Some(repair) = &mut self.repair {
            // An SSRC that was learned from packets belongs to the previous media source, so it has to be learned
            // again.
            repair.associated = !repair.any_ssrc;
        }
        if let Some(parity) = &mut self.parity {
            parity.associated = !parity.any_ssrc;
        }
        self.participant.on_source(now, true);
    }

    /// Returns whether a packet continues the followed stream.
    pub(super) fn goes_on(&self, now: Time, header: &RtpHeader) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.ssrc == header.ssrc && !stream.is_far(now, header))
    }

    /// Processes a packet that does not continue the followed stream. Returns whether its source replaces the followed
    /// source with this packet.
    pub(super) fn follow(&mut self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        if !self.takes_type(header) {
            return false;
        }
        if self.is_next(now, from, header) {
            self.begin_run(now, from, header);
            return true;
        }
        if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == header.ssrc && s.from == from) {
            // The packet's number jumps, possibly because of heavy loss. Store the number, because the next packets
            // confirm the jump if their numbers continue from it.
            stream.reception.hold(now, header.seq);
        }
        match &mut self.other {
            Some(other) if (other.reception.ssrc(), other.from) == (header.ssrc, from) => other.hear(now, header),
            // Keep a candidate that is active, so that forged packets cannot displace it.
            Some(other) if other.is_stream() && now.since(other.heard) < SOURCE_CHANGE_SILENCE => {}
            _ => self.other = Some(OtherSource::new(now, from, header)),
        }
        false
    }

    fn takes_type(&self, header: &RtpHeader) -> bool {
        self.payload_types.is_none_or(|described| described.contains(header.payload_type))
    }

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

    /// Returns whether this packet's source replaces the followed source. The first source does, and the source in the
    /// session description does. Any other source does so only if the followed source has sent a BYE, is silent, or has
    /// sent only a single packet.
    fn is_next(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        let Some(old) = &self.stream else { return true };
        if !self.takes_type(header) {
            return false;
        }
        let again = old.ssrc == header.ssrc;
        // If one SSRC is used at two addresses, this is a conflict (RFC 3550, section 8.2) and not a restart.
        if again && old.from != from {
            return false;
        }
        let ended =
            old.ended && (old.successor.is_none_or(|successor| successor == header.ssrc) || self.source_ended());
        let [old_named, new_named] = [old.ssrc, header.ssrc].map(|ssrc| self.named == Some(ssrc));
        let silent = now.since(old.heard.max(self.resumed));
        let known = self.other.as_ref().filter(|other| other.reception.ssrc() == header.ssrc && other.from == from);
        // Require several packets of the new source, because a single packet may be forged or outdated.
        let known = known.filter(|other| other.is_stream_with(now, header) && !(again && old.reception.holds()));
        // The followed source is unproven if only one of its packets has arrived. If the new packet has the same SSRC,
        // also require `known`, because it may belong to the followed source and only be reordered.
        let fleeting = old.reception.received() < 2 && !old_named && (!again || known.is_some());
        let proven = || known.is_some_and(|other| now.since(other.began) >= MIN_SILENCE);
        let silent =
            silent > self.participant.member_timeout() || silent > self.takeover_silence_of(old, from) && proven();
        !again && (new_named || ended) || fleeting || silent
    }

    /// Returns for how long the followed source has to be silent before a source at the address `from` replaces it.
    ///
    /// For the address of the followed source, this is two frame intervals, but at least [`MIN_SILENCE`] and at most
    /// [`MAX_SILENCE`]. The minimum is [`SOURCE_CHANGE_SILENCE`] if the frame interval is unknown or a session
    /// description specifies the followed source. For another address, it is RTCP's member time-out.
    fn takeover_silence_of(&self, old: &Stream, from: Origin) -> Span {
        if old.from != from {
            return self.participant.member_timeout();
        }
        let least =
            if old.pace.is_none() || self.named == Some(old.ssrc) { SOURCE_CHANGE_SILENCE } else { MIN_SILENCE };
        (old.pace.unwrap_or(least) * 2).clamp(least, MAX_SILENCE)
    }
}

impl Stream {
    /// Returns whether the sequence number is forged or belongs to another run.
    fn is_far(&self, now: Time, header: &RtpHeader) -> bool {
        // Compare the numbers first, because cloning the reception for each packet would be too expensive.
        let off = self.reception.highest().map_or(0, |highest| header.seq.wrapping_sub(highest as u16) as i16);
        let arrived = || self.reception.clone().on_rtp(now, header.seq, header.timestamp);
        off.unsigned_abs() >= MAX_MISORDER && matches!(arrived(), Arrived::Restarted(_) | Arrived::Stray)
    }

    /// Resets the reception statistics. If the timestamp jumps by more than [`TIMESTAMP_JUMP`], the media clock ignores
    /// the timestamp and advances by the elapsed time.
    fn restart(&mut self, now: Time, header: &RtpHeader, ahead: i64) {
        (self.reception, self.ahead) = (Reception::new(header.ssrc, CLOCK_RATE), ahead);
        self.frame = (header.timestamp, now);
        // In 100 µs, a clock of 90 kHz advances by 9 ticks.
        let ticks = |span: Span| (span.as_nanos() / 100_000 * 9) as i64;
        let (passed, step) = (ticks(now.since(self.heard)), header.timestamp.wrapping_sub(self.timestamp) as i32);
        if (i64::from(step) - passed).abs() > ticks(TIMESTAMP_JUMP) {
            (self.timestamp, self.ticks) = (header.timestamp, self.ticks.saturating_add(passed));
        }
    }
}
