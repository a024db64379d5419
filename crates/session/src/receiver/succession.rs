//! Selects the source that a receiver follows if several send media, and detects a restarted stream.
//!
//! RFC 3550 leaves this choice to the receiver. In the RFC, a new source is a new member (section 6.2.1), a source that
//! is silent for five reporting intervals has left (6.3.5), and one SSRC at two addresses is a conflict (8.2).
//!
//! A sender that was restarted, or that changes its SSRC with each group of pictures, sends from the address of the
//! previous source, which is silent by then. An attacker sends from another address, and has to wait until the source
//! has left according to RFC 3550. Two active sources on one host do not replace each other.

use super::{Receiver, Stream, Totals};
use crate::UnusedReason;
use crate::sender::CLOCK_RATE;
use steadycast_rtcp::{Arrived, Origin, Reception};
use steadycast_units::{Span, Time};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::seq::{MAX_MISORDER, MIN_SEQUENTIAL};

/// Silence after which a source that the session description names is replaced by another source at its address. The
/// same value applies to other sources if the frame interval is unknown.
const SOURCE_CHANGE_SILENCE: Span = Span::millis(500);
/// Minimum silence before another source at the same address replaces a source. A shorter silence may be due to
/// reordering.
const MIN_SILENCE: Span = Span::millis(50);
/// Maximum silence that is required before another source at the same address replaces a source.
const MAX_SILENCE: Span = Span::secs(5);
/// Time without packets after which [`Receiver::waiting`] no longer returns another source.
const OTHER_SOURCE_LIFETIME: Span = Span::secs(3);
/// If the advance of a timestamp differs from the elapsed time by more than this, the stream was restarted.
const TIMESTAMP_JUMP: Span = Span::secs(5);

/// Another source that sends media to this receiver.
pub(super) struct OtherSource {
    from: Origin,
    reception: Reception,
    /// The arrival time of the source's first packet.
    began: Time,
    /// The arrival time of the source's last packet.
    heard: Time,
}

impl OtherSource {
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

    /// Returns true if the source's sequence numbers form a stream: they may be out of order, but not far apart.
    fn is_stream(&self) -> bool {
        self.reception.received() - self.reception.duplicates() >= u64::from(MIN_SEQUENTIAL)
    }

    /// Returns true if the source's sequence numbers, including that of this packet, form a stream (see
    /// [`OtherSource::is_stream`]).
    fn is_stream_with(&self, now: Time, header: &RtpHeader) -> bool {
        let mut reception = self.reception.clone();
        reception.on_rtp(now, header.seq, header.timestamp);
        Self { reception, ..*self }.is_stream()
    }
}

/// A source that sends media to this receiver and is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The source's SSRC.
    pub ssrc: u32,
    /// The address from which the source sends.
    pub from: Origin,
    /// The time for which the followed source still has to be silent before this one replaces it.
    pub after: Span,
}

impl Receiver {
    /// Returns the source that sends beside the followed one, if there is one.
    pub fn waiting(&self, now: Time) -> Option<Waiting> {
        let (stream, other) = (self.stream.as_ref()?, self.other.as_ref()?);
        let ssrc = other.reception.ssrc();
        let passed = now.since(other.heard) > OTHER_SOURCE_LIFETIME || ssrc == stream.ssrc;
        let after =
            self.takeover_silence_of(stream, other.from).saturating_sub(now.since(stream.heard.max(self.resumed)));
        (!passed).then_some(Waiting { ssrc, from: other.from, after })
    }

    /// Returns for how long neither media nor RTCP of the followed source has arrived, nor media of a source that could
    /// replace it. Returns `None` if the silence is shorter than five reporting intervals or than `least`. After such a
    /// silence the source has left, and its BYE was lost or never sent (RFC 3550, sections 6.2.1 and 6.3.5). Time in
    /// which the driver's clock stood still does not count.
    pub fn source_left(&self, now: Time, least: Span) -> Option<Span> {
        let other = self.other.as_ref().filter(|other| other.is_stream()).map(|other| other.heard);
        let silence = now.since(self.stream.as_ref()?.spoke.max(other.unwrap_or(Time::ZERO)).max(self.resumed));
        (silence >= least.max(self.participant.member_timeout())).then_some(silence)
    }

    /// Returns the index of the present run of sequence numbers, and its first number. A new source or a restart begins
    /// a new run. For the controller and the application, numbers continue from one run to the next.
    pub const fn run(&self) -> (u32, u64) {
        self.run
    }

    /// Returns true if a packet that was not accepted may later turn out to belong to this stream. The packet should
    /// then be kept for [`Receiver::begin_run`].
    pub fn may_follow(&self, from: Origin, header: &RtpHeader) -> bool {
        let beside = || self.other.as_ref().is_some_and(|other| other.reception.ssrc() == header.ssrc);
        self.stream.as_ref().is_some_and(|stream| stream.from == from && (stream.ssrc == header.ssrc || beside()))
    }

    /// Returns true if this packet starts a new run: a new source, or a restart of the current one.
    pub fn begins_run(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        self.stream.is_some() && !self.goes_on(now, header) && self.is_next(now, from, header)
    }

    /// Starts a new run with this packet. The packet arrived before the one for which [`Receiver::begins_run`] returned
    /// true, and that later packet has to be processed next.
    pub fn begin_run(&mut self, now: Time, from: Origin, header: &RtpHeader) {
        let number = i64::from(header.seq);
        // The controller sees one continuous stream, in which a new SSRC or a jump of the sequence numbers is not a
        // loss.
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
        // Audio that arrived before the first packet of the video belongs to the same source.
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
        // The sender of the named source may have been restarted, under an SSRC that the description does not name.
        if old.is_some_and(|old| self.named == Some(old.ssrc)) {
            self.named = None;
        }
        if let Some(repair) = &mut self.repair {
            // A learned SSRC belongs to one media source, and is learned anew for the next one.
            repair.associated = !repair.any_ssrc;
        }
        if let Some(parity) = &mut self.parity {
            parity.associated = !parity.any_ssrc;
        }
        self.participant.on_source(now, true);
    }

    /// Returns true if a packet continues the followed stream.
    pub(super) fn goes_on(&self, now: Time, header: &RtpHeader) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.ssrc == header.ssrc && !stream.is_far(now, header))
    }

    /// Decides whether the packet's source replaces the followed one. If so, starts the new source's run and returns
    /// true.
    pub(super) fn follow(&mut self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        if !self.takes_type(header) {
            return false;
        }
        if self.is_next(now, from, header) {
            self.begin_run(now, from, header);
            return true;
        }
        if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == header.ssrc && s.from == from) {
            // The packet is far ahead of the followed stream. This is possible under heavy loss, so its number is
            // remembered, and further packets that continue from it confirm it.
            stream.reception.hold(now, header.seq);
        }
        match &mut self.other {
            Some(other) if (other.reception.ssrc(), other.from) == (header.ssrc, from) => other.hear(now, header),
            // Forged packets must not displace an active candidate.
            Some(other) if other.is_stream() && now.since(other.heard) < SOURCE_CHANGE_SILENCE => {}
            _ => self.other = Some(OtherSource::new(now, from, header)),
        }
        false
    }

    /// Returns true if a source of this payload type may be followed.
    fn takes_type(&self, header: &RtpHeader) -> bool {
        self.payload_types.is_none_or(|described| described.contains(header.payload_type))
    }

    /// Returns why a packet's source is not followed.
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

    /// Returns true if the source of this packet replaces the followed one. The first source is followed, and the
    /// source that the description names replaces any other. Any other source, or a restart of the followed one, only
    /// replaces a source that has sent BYE, has never sent a second packet, or is silent.
    fn is_next(&self, now: Time, from: Origin, header: &RtpHeader) -> bool {
        let Some(old) = &self.stream else { return true };
        if !self.takes_type(header) {
            return false;
        }
        let again = old.ssrc == header.ssrc;
        // One SSRC at two addresses is a conflict (RFC 3550, section 8.2), not a restart.
        if again && old.from != from {
            return false;
        }
        let ended =
            old.ended && (old.successor.is_none_or(|successor| successor == header.ssrc) || self.source_ended());
        let [old_named, new_named] = [old.ssrc, header.ssrc].map(|ssrc| self.named == Some(ssrc));
        let silent = now.since(old.heard.max(self.resumed));
        // The first packet of the followed source may have been reordered behind later ones, so a packet with another
        // number does not prove a restart.
        let known = self.other.as_ref().filter(|other| other.reception.ssrc() == header.ssrc && other.from == from);
        // A single packet may be forged or outdated, but several consistent packets show a stream. If their numbers may
        // belong to the present stream, there is no restart.
        let known = known.filter(|other| other.is_stream_with(now, header) && !(again && old.reception.holds()));
        // A source of which only a single packet has arrived is unproven, and is replaced without any wait.
        let fleeting = old.reception.received() < 2 && !old_named && (!again || known.is_some());
        let proven = || known.is_some_and(|other| now.since(other.began) >= MIN_SILENCE);
        let silent =
            silent > self.participant.member_timeout() || silent > self.takeover_silence_of(old, from) && proven();
        !again && (new_named || ended) || fleeting || silent
    }

    /// Returns how long a source has to be silent before another source at `from` replaces it. The time is two frame
    /// intervals if both sources have the same address, and otherwise RTCP's member time-out.
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
    /// Returns true if the sequence number is far from all numbers that have arrived. The packet is then forged, or
    /// belongs to another run.
    fn is_far(&self, now: Time, header: &RtpHeader) -> bool {
        // This cheap check comes first, because cloning the reception for each packet would be costly.
        let off = self.reception.highest().map_or(0, |highest| header.seq.wrapping_sub(highest as u16) as i16);
        let arrived = || self.reception.clone().on_rtp(now, header.seq, header.timestamp);
        off.unsigned_abs() >= MAX_MISORDER && matches!(arrived(), Arrived::Restarted(_) | Arrived::Stray)
    }

    /// Restarts the counts. If the timestamps do not continue the previous ones, the media clock advances by the
    /// elapsed time.
    fn restart(&mut self, now: Time, header: &RtpHeader, ahead: i64) {
        (self.reception, self.ahead) = (Reception::trusting(header.ssrc, CLOCK_RATE), ahead);
        self.frame = (header.timestamp, now);
        // A 90 kHz clock advances by 9 ticks in 100 µs.
        let ticks = |span: Span| (span.as_nanos() / 100_000 * 9) as i64;
        let (passed, step) = (ticks(now.since(self.heard)), header.timestamp.wrapping_sub(self.timestamp) as i32);
        if (i64::from(step) - passed).abs() > ticks(TIMESTAMP_JUMP) {
            (self.timestamp, self.ticks) = (header.timestamp, self.ticks.saturating_add(passed));
        }
    }
}
