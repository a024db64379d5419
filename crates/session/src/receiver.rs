use crate::participant::Participant;
use crate::sender::{CLOCK_RATE, app};
use crate::{Identity, Output, RtcpSettings};
use steadycast_control::{
    Announcement, Arrival, Body, BufferLevel, Due, FrameEdge, Overheard, ReceiverHalf, ReceiverId, Reply, Slot, View,
    Wake,
};
use steadycast_rtcp::{Arrived, Origin, Reception};
use steadycast_units::{Bytes, Chance, PeerTime, Span, Time};
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::RtpHeader;

/// What a datagram on the RTP port turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet that had not come before, with its extended sequence number.
    New(u64),
    /// It had come before.
    Duplicate,
    /// Not of this stream.
    Stray,
}

/// The receiving end of a session.
pub struct Receiver {
    half: Box<dyn ReceiverHalf>,
    participant: Participant,
    app: [u8; 4],
    stream: Option<Stream>,
    /// The last regular report's counters: a half wants signed, full-precision losses.
    prior: (u64, u64),
    leaving: bool,
    gone: bool,
    unreadable: u64,
}

struct Stream {
    ssrc: u32,
    reception: Reception,
    sent: Option<PeerTime>,
    timestamp: u32,
    ticks: i64,
    after_marker: bool,
}

impl Receiver {
    /// A receiver that joins now. `chance` draws RTCP's intervals.
    pub fn new(
        identity: Identity,
        rtcp: RtcpSettings,
        app: [u8; 4],
        half: Box<dyn ReceiverHalf>,
        chance: Chance,
        now: Time,
    ) -> Self {
        let participant = Participant::new(identity, rtcp, chance, now);
        Self { half, participant, app, stream: None, prior: (0, 0), leaving: false, gone: false, unreadable: 0 }
    }

    /// The receiver half's own view, for the record.
    pub fn view(&self) -> View {
        self.half.view()
    }

    /// Interarrival jitter (RFC 3550, A.8).
    pub fn jitter(&self) -> Span {
        self.stream.as_ref().map_or(Span::ZERO, |s| s.reception.jitter())
    }

    /// Packets that were expected, from the first that came to the newest.
    pub fn expected(&self) -> u64 {
        self.stream.as_ref().map_or(0, |s| s.reception.expected())
    }

    /// Distinct packets that came.
    pub fn received(&self) -> u64 {
        self.stream.as_ref().map_or(0, |s| s.reception.received().saturating_sub(s.reception.duplicates()))
    }

    /// Datagrams that could not be read.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// A datagram has arrived on the RTP port; `overhead` are its IP and UDP headers. Returns what it was, its header and its
    /// payload. Poll afterwards.
    pub fn on_rtp<'a>(
        &mut self,
        now: Time,
        from: Origin,
        datagram: &'a [u8],
        ce: bool,
        buffer: Option<BufferLevel>,
    ) -> Option<(Received, RtpHeader, &'a [u8])> {
        let Ok((header, extensions, payload)) = RtpHeader::parse(datagram) else {
            self.unreadable += 1;
            return None;
        };
        let size = Bytes::new((datagram.len() + steadycast_wire::IP_UDP_OVERHEAD) as u64);
        let notice = extensions.into_iter().next().map_or(&[][..], |(_, bytes)| bytes);
        Some((self.on_media(now, from, &header, notice, size, ce, buffer), header, payload))
    }

    /// An RTP packet has arrived, already taken apart. Poll afterwards.
    #[allow(clippy::too_many_arguments, reason = "the parts of one datagram; the simulator calls it for every packet")]
    pub fn on_media(
        &mut self,
        now: Time,
        from: Origin,
        header: &RtpHeader,
        notice: &[u8],
        size: Bytes,
        ce: bool,
        buffer: Option<BufferLevel>,
    ) -> Received {
        if self.gone {
            return Received::Stray;
        }
        let stream = self.stream.get_or_insert_with(|| Stream::new(header));
        if stream.ssrc != header.ssrc {
            return Received::Stray;
        }
        let (arrived, valid) =
            (stream.reception.on_rtp(now, header.seq, header.timestamp), stream.reception.is_valid());
        let seq = match arrived {
            Arrived::New(seq) => seq,
            Arrived::Restarted(seq) => {
                self.prior = (0, 0);
                seq
            }
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Probation | Arrived::Stray => return Received::Stray,
        };
        self.participant.members.on_rtp(now, header.ssrc, from, valid);
        let seq = u64::try_from(seq).unwrap_or(0);
        // Without a send-time extension (a standard sender) the media clock is the next best.
        let sampled = stream.sampled(header.timestamp);
        let sent = header.send_time.map_or(sampled, |stamp| stamp.peer(stream.sent));
        stream.sent = Some(sent);
        let edge = FrameEdge { first: stream.after_marker, last: header.marker };
        stream.after_marker = header.marker;
        self.half.on_arrival(&Arrival { at: now, seq, size, sent, sampled, edge, ce, notice, buffer });
        Received::New(seq)
    }

    /// A datagram has arrived on the RTCP port. Poll afterwards.
    pub fn on_rtcp(&mut self, now: Time, from: Origin, datagram: &[u8]) {
        match Compound::parse(datagram) {
            Ok(compound) => self.on_compound(now, from, &compound, datagram.len()),
            Err(_) => self.unreadable += 1,
        }
    }

    /// A compound of `len` bytes has arrived, already parsed: a group's members share the work in the simulator.
    pub fn on_compound(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) {
        if self.gone {
            return;
        }
        self.participant.learn(now, from, compound);
        self.participant.count(now, len);
        for packet in &compound.packets {
            match packet {
                Packet::SenderReport { ssrc, ntp, .. } => {
                    if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == *ssrc) {
                        stream.reception.on_sr(now, *ntp);
                    }
                }
                Packet::App { ssrc, subtype, name, data } if *name == self.app => {
                    let body = Body { subtype: *subtype, bytes: data.clone() };
                    if self.stream.as_ref().is_some_and(|s| s.ssrc == *ssrc) {
                        self.half.on_announce(&Announcement { at: now, body: &body });
                    } else if *ssrc != self.participant.identity.ssrc {
                        self.half.on_overheard(&Overheard { at: now, from: ReceiverId(*ssrc), body: &body });
                    }
                }
                Packet::Bye { ssrcs, .. } => {
                    for ssrc in ssrcs {
                        self.participant.heard_bye(now, from, *ssrc, len);
                    }
                }
                _ => {}
            }
        }
    }

    /// Leaves the session: the next polls give the last words. Poll afterwards.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether it has left.
    pub const fn gone(&self) -> bool {
        self.gone
    }

    /// What to do now. To be called until it says [`Output::Wait`], after every other call and when the time has come.
    pub fn poll(&mut self, now: Time) -> Output {
        if self.gone {
            return Output::Wait(None);
        }
        if self.leaving {
            self.gone = true;
            return Output::Rtcp(self.last_words(now));
        }
        if let Some(wake) = self.half.wake()
            && wake.at <= now
        {
            self.half.on_timer(now);
        }
        // A half that is clocked by itself sends regular packets with a bandwidth of their own; RTCP's timer then rests.
        match self.half.due() {
            Due::At(wake) if wake.at <= now => {
                if let Some(bytes) = self.report(now) {
                    return Output::Rtcp(bytes);
                }
            }
            Due::Rtcp if self.participant.rtcp_due(now) => {
                if let Some(bytes) = self.report(now) {
                    return Output::Rtcp(bytes);
                }
            }
            _ => {}
        }
        let due = match self.half.due() {
            Due::Rtcp => Some(self.participant.wake()),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        let soonest = [due, self.half.wake()].into_iter().flatten().min_by_key(|w| w.at);
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    fn report(&mut self, now: Time) -> Option<Vec<u8>> {
        let (expected, received) = (self.expected(), self.stream.as_ref().map_or(0, |s| s.reception.received()));
        let slot = Slot {
            now,
            expected: expected - self.prior.0.min(expected),
            lost: (expected as i64 - self.prior.0 as i64) - (received as i64 - self.prior.1 as i64),
            members: self.participant.census().members,
            interval: self.participant.interval(),
            rtcp_share: self.participant.share(now),
        };
        let reply = self.half.report(&slot);
        if reply == Reply::Suppress {
            return None;
        }
        self.prior = (expected, received);
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.receiver_report(now), self.participant.sdes()];
        if let Reply::Body(body) = reply {
            packets.push(app(ssrc, self.app, body));
        }
        Some(self.participant.encode(now, &Compound { packets }))
    }

    fn receiver_report(&mut self, now: Time) -> Packet {
        let block = self.stream.as_mut().and_then(|s| s.reception.report_block(now));
        Packet::ReceiverReport { ssrc: self.participant.identity.ssrc, blocks: block.into_iter().collect() }
    }

    fn last_words(&mut self, now: Time) -> Vec<u8> {
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.receiver_report(now), self.participant.sdes()];
        if let Some(body) = self.half.leave(now) {
            packets.push(app(ssrc, self.app, body));
        }
        packets.push(Packet::Bye { ssrcs: vec![ssrc], reason: String::new() });
        self.participant.encode(now, &Compound { packets })
    }
}

impl Stream {
    fn new(header: &RtpHeader) -> Self {
        Self {
            ssrc: header.ssrc,
            reception: Reception::trusting(header.ssrc, CLOCK_RATE),
            sent: None,
            timestamp: header.timestamp,
            ticks: 0,
            after_marker: true,
        }
    }

    /// The media clock at this timestamp, on the sender's clock: it counts from the first packet that came.
    fn sampled(&mut self, timestamp: u32) -> PeerTime {
        let ahead = timestamp.wrapping_sub(self.timestamp) as i32;
        let ticks = self.ticks + i64::from(ahead);
        if ahead > 0 {
            (self.timestamp, self.ticks) = (timestamp, ticks);
        }
        PeerTime::from_nanos(ticks * 1_000_000_000 / i64::from(CLOCK_RATE))
    }
}
