//! Video endpoints on UDP sockets, which encode and parse packets as bytes.

use crate::audio::AudioIntake;
use crate::browser::BrowserConnection;
use crate::jitter_buffer::REORDER_WAIT;
use crate::net::origin;
use crate::peers::OwnStream;
use crate::unused::foreign;
use crate::{AudioQueue, Datagram, End, Meta, Outbox, Peers, ReceivedSymbols, SentSymbols, Srtp, Unused, Which};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use steadycast_control::{Notice, Stream};
use steadycast_endpoints::{AgentIx, Arriving, Body, Out, VideoSink, VideoSource};
use steadycast_link::Ecn;
use steadycast_session::{
    Fragment, HeaderIds, Media, OperatorControls, Origin, Protected, Protection, Received, Receiver, Sender,
    TRANSPORT_NUMBER_ID, UnusedReason, Waiting,
};
use steadycast_units::{Bytes, OneWay, PeerTime, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::parity::ParityHeader;
use steadycast_wire::rtcp::Compound;
use steadycast_wire::rtp::{RtpHeader, TransportNumber};
use steadycast_wire::rtx;

/// A source of payload bytes for a sender's packets.
pub trait Payloads: Send {
    /// Appends the payload of the packet `media` to `out`. The payload has `media.header.payload_len` bytes.
    fn write(&mut self, media: &Media, out: &mut Vec<u8>);
}

/// Payloads of zero bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroPayloads;

impl Payloads for ZeroPayloads {
    fn write(&mut self, media: &Media, out: &mut Vec<u8>) {
        out.resize(out.len() + usize::from(media.header.payload_len), 0);
    }
}

/// A consumer of the payloads that a receiver has accepted.
pub trait Consumer: Send {
    /// Processes a new packet. `seq` is its extended sequence number.
    fn take(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]);

    /// Returns `Some` if a key frame is needed. The value is true before the first frame, and false later.
    fn lacks_key_frame(&self) -> Option<bool> {
        None
    }

    /// Returns the presentation time of an RTP timestamp, in ticks of 1/90000 s since the first frame. Returns `None`
    /// before the first frame.
    fn ticks_of(&self, _timestamp: u32) -> Option<i64> {
        None
    }

    /// Processes a packet that was retransmitted, or recovered from parity. `header` and `payload` are those of the
    /// original packet.
    fn take_repaired(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        self.take(now, seq, header, payload);
    }

    /// Handles the start of a new stream, at the extended sequence number `seq`. Either the SSRC is new, or the source
    /// has restarted its sequence numbers.
    fn restart(&mut self, _seq: u64) {}

    /// Returns the time at which the caller has to call [`Consumer::on_wake`].
    fn wake(&self) -> Time {
        Time::NEVER
    }

    /// Handles the timer of [`Consumer::wake`].
    fn on_wake(&mut self, _now: Time) {}

    /// Announces that no more packets follow.
    fn end(&mut self) {}

    /// Returns the counts of unused packets, by reason.
    fn unused(&self) -> Unused {
        Unused::default()
    }
}

/// A consumer that discards all payloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Consumer for Discard {
    fn take(&mut self, _: Time, _: u64, _: &RtpHeader, _: &[u8]) {}
}

/// A video sender on its sockets.
pub struct SocketSource {
    /// The sender.
    pub source: VideoSource,
    payloads: Box<dyn Payloads>,
    /// The audio payloads, if the session has audio.
    pub audio: Option<AudioQueue>,
    /// The peers that send reports. `None` if the caller does not need a list of them.
    pub peers: Option<Peers>,
    /// The RTP packets that a retransmission or parity may still need, as symbols for the parity computation.
    kept: SentSymbols,
    /// The SRTP context. Without it, packets are sent in the clear and incoming reports are not authenticated.
    pub srtp: Option<Srtp>,
    /// The operator's exclusions and rate limits.
    pub orders: Option<OperatorControls>,
    /// The ICE and DTLS connection to a browser.
    pub(crate) browser: Option<BrowserConnection>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
    ended: bool,
}

impl SocketSource {
    /// Creates the endpoint of the sender `source`.
    pub fn new(source: VideoSource, payloads: Box<dyn Payloads>) -> Self {
        Self {
            source,
            payloads,
            audio: None,
            peers: None,
            kept: SentSymbols::default(),
            srtp: None,
            orders: None,
            browser: None,
            outgoing: Vec::new(),
            ended: false,
        }
    }

    /// Starts the session if its transport is connected.
    pub fn start(&mut self, now: Time, out: &mut Outbox) {
        if self.is_open() {
            self.with(out, |source, o| source.start(now, o));
        }
    }

    /// Ends the session with a BYE.
    pub fn stop(&mut self, now: Time, out: &mut Outbox) {
        if self.is_open() {
            self.with(out, |source, o| source.stop(now, o));
        }
        self.ended = true;
        self.close(now, out);
    }

    /// Closes the browser's connection after the BYE.
    fn close(&mut self, now: Time, out: &mut Outbox) {
        // Keep the connection open until the source has sent the BYE. The source's timer is set until then.
        let said = self.ended && !(self.is_open() && self.source.wake() < Time::NEVER);
        if let Some(browser) = self.browser.as_mut().filter(|_| said) {
            browser.tunnel.close(now);
            browser.drain(now, out);
        }
    }

    /// Returns whether media may be sent. A browser can receive media only while its connection is established.
    fn is_open(&self) -> bool {
        self.browser.as_ref().is_none_or(BrowserConnection::is_open)
    }

    /// Sends the pending packets of the browser's connection. Starts the session once the DTLS handshake has provided
    /// SRTP keys.
    fn drain(&mut self, now: Time, out: &mut Outbox) {
        if let Some(srtp) = self.browser.as_mut().and_then(|browser| browser.drain(now, out)) {
            self.srtp = Some(srtp);
            self.start(now, out);
        }
    }

    fn with(&mut self, out: &mut Outbox, what: impl FnOnce(&mut VideoSource, &mut Out<'_>)) {
        what(&mut self.source, &mut Out { packets: &mut self.outgoing });
        let first_kept = self.source.session().and_then(Sender::first_kept);
        let audio_ssrc = self.source.session().and_then(Sender::audio_ssrc);
        for (_, ecn, body) in self.outgoing.drain(..) {
            match body {
                Body::Rtp(media) if media.stream == Stream::Audio => {
                    push_media(out, ecn, Which::Audio, &mut self.srtp, |bytes| {
                        media.encode_header(bytes);
                        if let Some(audio) = &self.audio {
                            audio.write(media.fragment.frame, bytes);
                        }
                    });
                }
                Body::Rtp(media) => {
                    push_media(out, ecn, Which::Rtp, &mut self.srtp, |bytes| {
                        let start = bytes.len();
                        media.encode_header(bytes);
                        let payload = bytes.len();
                        match media.repairs {
                            // Take the payload of a retransmission from the stored packets, because `payloads` may no
                            // longer have it.
                            Some(original) => bytes.extend_from_slice(self.kept.payload(original)),
                            None => self.payloads.write(&media, bytes),
                        }
                        debug_assert_eq!(bytes.len() - payload, media.payload_len());
                        // Store the packet only if it may be repaired later. Store it before encryption, because parity
                        // protects the unencrypted packet.
                        if media.repairs.is_none() && first_kept.is_some() {
                            self.kept.keep(media.seq, &bytes[start..]);
                        }
                    });
                }
                Body::Rtcp { bytes, parsed } => {
                    let of_audio = audio_ssrc.is_some() && parsed.sender() == audio_ssrc;
                    let which = if of_audio { Which::AudioRtcp } else { Which::Rtcp };
                    out.push(which, None, |all| protected(&bytes, &mut self.srtp, all));
                }
                Body::Parity(parity) => {
                    let (media, protection) = &*parity;
                    let mut payload = Vec::with_capacity(media.payload_len());
                    if !self.kept.write(protection, &mut payload) {
                        // Skip this parity packet, because a packet that it protects is not stored. Parity that is
                        // computed from other bytes would corrupt frames.
                        debug_assert!(false, "parity of what is not kept");
                        continue;
                    }
                    debug_assert_eq!(payload.len(), media.payload_len());
                    push_media(out, ecn, Which::Rtp, &mut self.srtp, |bytes| media.encode(&payload, bytes));
                }
                Body::Plain(_) | Body::Tcp(..) | Body::TcpAck(..) | Body::Raw(_) => {}
            }
        }
        // Drop the stored packets that will not be repaired any more. If the session repairs no packets, drop all.
        self.kept.forget_before(first_kept.unwrap_or(u64::MAX));
    }
}

impl End for SocketSource {
    fn wake(&self) -> Time {
        let browser_wake = self.browser.as_ref().map_or(Time::NEVER, |browser| browser.tunnel.wake());
        if self.is_open() { browser_wake.min(self.source.wake()) } else { browser_wake }
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        if let Some(browser) = &mut self.browser {
            browser.tunnel.on_wake(now);
            self.drain(now, out);
        }
        if self.is_open() {
            self.with(out, |source, o| source.on_wake(now, o));
        }
        self.close(now, out);
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let mut from = datagram.meta.from;
        if let Some(browser) = &mut self.browser {
            let known = browser.sort(now, from, datagram.bytes);
            self.drain(now, out);
            // Ignore RTCP that arrives before the keys are known, because it can't be authenticated.
            match known.filter(|_| self.is_open()) {
                Some(known) => from = known,
                None => return,
            }
        }
        if datagram.which != Which::Rtcp {
            return;
        }
        let mut opened;
        let bytes = match &mut self.srtp {
            None => datagram.bytes,
            Some(srtp) => match srtp.open_rtcp(datagram.bytes) {
                Some(bytes) => {
                    opened = bytes.to_vec();
                    if let Some(browser) = &mut self.browser {
                        browser.unify_reports(&mut opened);
                    }
                    &opened
                }
                None => return,
            },
        };
        let mine = self.source.session().map_or(0, Sender::ssrc);
        if let Some(browser) = &mut self.browser {
            browser.tunnel.on_authenticated(now, datagram.meta.from);
        }
        // Add the sender of this feedback to the list of peers only if the session accepts the feedback.
        let refused = self.source.feedback().refused;
        self.with(out, |source, o| source.on_rtcp(now, address(from), bytes, o));
        let own = OwnStream { ssrc: mine, packets: self.source.sent_packets, bytes: self.source.sent_bytes };
        if let Some(peers) = self.peers.as_mut().filter(|_| self.source.feedback().refused == refused) {
            peers.on_rtcp(now, own, from, bytes);
        }
    }

    fn on_clock_gap(&mut self, now: Time) {
        if let Some(orders) = &self.orders {
            orders.on_clock_gap(now);
        }
    }

    fn done(&self) -> bool {
        self.ended && (self.source.wake() == Time::NEVER || !self.is_open())
    }
}

/// A video receiver on its sockets.
pub struct SocketSink {
    /// The receiver.
    pub sink: VideoSink,
    consumer: Box<dyn Consumer>,
    clocks: SourceClock,
    /// The SRTP context. Without it, packets are sent in the clear and incoming packets are not authenticated.
    pub srtp: Option<Srtp>,
    /// The header extension id of the transport-wide sequence number, from 1 to 14.
    pub number_id: u8,
    /// The payload type of retransmissions, and the payload type of the original packets (RFC 4588).
    pub rtx: Option<(u8, u8)>,
    /// The payload type of parity packets, and the received packets from which lost packets can be computed.
    pub parity: Option<(u8, ReceivedSymbols)>,
    /// The consumer of the source's audio. `None` if the source sends no audio.
    pub(crate) audio: Option<AudioIntake>,
    /// Whether to send RTCP key frame requests. Set it only if the source can answer them.
    pub requests_key_frames: bool,
    /// The last result of [`Consumer::lacks_key_frame`].
    lacks: Option<bool>,
    reports: Reports,
    /// The ICE and DTLS connection to a publishing browser.
    pub(crate) browser: Option<BrowserConnection>,
    /// Source addresses whose packets are discarded (RFC 4570).
    pub excluded: Vec<IpAddr>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
    ended: bool,
    unused: Unused,
    /// When the first packet arrived.
    first: Option<Time>,
    /// When the latest packet arrived. Retransmitted and recovered packets count too.
    last: Option<Time>,
    from: Option<SocketAddr>,
    /// The address from which the BYE of the source arrived.
    ended_by: Option<SocketAddr>,
    /// Unused packets that may turn out to be the first packets of a new stream.
    held: RunCandidates,
    /// The number of the stream whose packets are delivered, as in [`Receiver::run`].
    run: u32,
    /// The address of another source, whose packets are ignored.
    other_source: Option<SocketAddr>,
}

/// A packet that was not used, with the reason. It belongs to no stream that the session follows.
type UnattributedPacket = (Time, Meta, RtpHeader, Vec<u8>, UnusedReason);

#[derive(Default)]
struct RunCandidates(VecDeque<UnattributedPacket>);

impl RunCandidates {
    /// Maximum number of held packets. It is enough for 5 s at 10 Mb/s, in packets of 1200 bytes.
    const MOST: usize = 5_000;
    /// Maximum time for which each packet is held.
    const LONGEST: Span = Span::secs(5);

    fn keep(&mut self, packet: UnattributedPacket) {
        let now = packet.0;
        // Drop the oldest packets if the list is full, and drop packets older than `LONGEST`. A new stream starts with
        // recent packets.
        while self.0.front().is_some_and(|first| self.0.len() >= Self::MOST || now.since(first.0) > Self::LONGEST) {
            self.0.pop_front();
        }
        self.0.push_back(packet);
    }

    /// Drops packets older than [`REORDER_WAIT`]. Keeps newer packets, because they may have overtaken the first packet
    /// of a new stream.
    fn forget(&mut self, now: Time) {
        while self.0.front().is_some_and(|first| now.since(first.0) > REORDER_WAIT) {
            self.0.pop_front();
        }
    }

    /// Removes all packets from the list. Returns those that belong to the stream of `header`, sorted by sequence
    /// number.
    fn of_run(&mut self, header: &RtpHeader) -> Vec<UnattributedPacket> {
        // Sort by the signed distance from `header`, so that a wrap of the sequence number does not change the order.
        let ahead = |it: &RtpHeader| it.seq.wrapping_sub(header.seq) as i16;
        let near = |it: &RtpHeader| it.ssrc == header.ssrc && usize::from(ahead(it).unsigned_abs()) <= Self::MOST;
        let mut run: Vec<UnattributedPacket> = self.0.drain(..).filter(|(_, _, it, ..)| near(it)).collect();
        run.sort_by_key(|(_, _, it, ..)| ahead(it));
        run
    }
}

/// The minimum one-way delay and the media clock of a source. If the SSRC changes or the source restarts, the minimum
/// is measured anew, and the media clock continues one step after the last frame.
#[derive(Clone, Copy, Default)]
struct SourceClock {
    ssrc: Option<u32>,
    /// The number of the stream, as in [`Receiver::run`].
    run: u32,
    min_delay: Option<OneWay>,
    sent: Option<PeerTime>,
    media: Option<MediaClock>,
}

impl SourceClock {
    /// Returns this clock if `ssrc` and `run` are unchanged, otherwise a new clock.
    fn of(mut self, ssrc: u32, run: u32) -> Self {
        // Use a new clock for another source, because its send times and timestamps have an unrelated offset.
        if (self.ssrc, self.run) != (Some(ssrc), run) {
            let media = self.media.map(MediaClock::restarted);
            self = Self { ssrc: Some(ssrc), run, media, ..Self::default() };
        }
        self
    }

    /// Returns a packet's send time on the local clock. The offset between the two clocks is unknown, so the packet
    /// with the minimum one-way delay is assumed to have no delay. Returns `None` if the packet contains no send time.
    fn send_time(&mut self, now: Time, header: &RtpHeader) -> Option<Time> {
        let sent = header.send_time?.peer(self.sent);
        self.sent = Some(sent);
        let one_way = OneWay::between(sent, now);
        let min_delay = self.min_delay.map_or(one_way, |min_delay| min_delay.min(one_way));
        self.min_delay = Some(min_delay);
        // If the delay rises by more than a minute, the sender's clock was set. Measure the minimum again.
        let delay = one_way.variation_since(min_delay).later();
        if delay > Span::secs(60) {
            self.min_delay = None;
        }
        Some(now.before(delay))
    }
}

/// Converts RTP timestamps to steps of the media clock, counted from the first packet.
#[derive(Clone, Copy)]
struct MediaClock {
    step: Span,
    /// The newest timestamp, and its distance in ticks from the first timestamp of the first source.
    newest: Option<(u32, i64)>,
    /// This source's first timestamp, in ticks after the first timestamp of the first source.
    from: i64,
}

impl MediaClock {
    const fn new(step: Span) -> Self {
        Self { step, newest: None, from: 0 }
    }

    /// Returns the clock of the next source. Its first frame comes one step after the last frame of this source.
    fn restarted(self) -> Self {
        let step = (self.step.as_nanos() * 9 / 100_000) as i64;
        Self { newest: None, from: self.newest.map_or(self.from, |(_, ticks)| ticks + step), ..self }
    }

    fn step_of(&mut self, timestamp: u32) -> u32 {
        // Take the distance as a signed 32-bit number. It is then correct across a wrap, and negative for a reordered
        // packet.
        let (newest, ticks) = *self.newest.get_or_insert((timestamp, self.from));
        let ahead = i64::from(timestamp.wrapping_sub(newest) as i32);
        if ahead > 0 {
            self.newest = Some((timestamp, ticks + ahead));
        }
        // Convert ticks to nanoseconds. The RTP clock of video has 90,000 ticks per second.
        let at = Span::nanos((ticks + ahead).max(0) as u64 * 100_000 / 9);
        (at.as_nanos() / self.step.as_nanos().max(1)) as u32
    }
}

/// A parsed media packet with its arrival time.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    at: Time,
    header: RtpHeader,
    notice: Notice,
    transport: Option<u16>,
    payload: &'a [u8],
}

impl Arrival<'_> {
    /// Returns the packet as the session reads it. It has no message of the controller and no place in a frame.
    fn media(&self, stream: Stream, datagram: &Datagram<'_>) -> Media {
        Media {
            header: self.header,
            notice: Notice::NONE,
            fragment: Fragment::default(),
            number: 0,
            transport: self.transport,
            ids: HeaderIds::default(),
            stream,
            seq: self.header.seq.into(),
            repairs: None,
            size: Bytes::new((datagram.bytes.len() + IP_UDP_OVERHEAD) as u64),
            ecn: datagram.meta.ecn,
        }
    }
}

/// Returns the arrival of a packet that came from the address `from`. `sent` is the packet's send time.
fn arriving(media: &Media, from: SocketAddr, sent: Option<Time>) -> Arriving<'static> {
    Arriving { from: address(from), size: media.size, sent, ecn: media.ecn, body: &Body::Plain(0) }
}

/// The destination of a receiver's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// All members of the group.
    Group,
    /// No address, because there is no bandwidth for reports (RFC 3556, section 2).
    Nowhere,
    /// The connection to the browser. Reports are sent only while it is established.
    Connection,
    /// The address from which the sender's reports arrive. Before the first report, the address is derived from the
    /// media: the same port if `mux` is set, otherwise the next port.
    Sender {
        /// The sender's RTCP address, once it is known.
        known: Option<SocketAddr>,
        /// Whether RTP and RTCP share a port.
        mux: bool,
        /// Whether a report of the media's source has arrived from this address.
        heard: bool,
    },
}

impl Reports {
    /// Derives the address from a media packet that arrived from `from`. `anew` states whether the source has changed.
    fn on_media(&mut self, from: SocketAddr, anew: bool) {
        let Self::Sender { known, mux, heard } = self else { return };
        // After a change of the source, the confirmed address is no longer valid, because it belongs to the previous
        // source.
        *heard &= !anew;
        if !*heard {
            let port = if *mux { from.port() } else { from.port().saturating_add(1) };
            *known = Some(SocketAddr::new(from.ip(), port));
        }
    }

    /// Sets the address to `from`, from which a report has arrived. `of_source` states whether the report is from the
    /// media's source. It is `None` before the first media packet, and the address then stays unconfirmed.
    fn on_report(&mut self, from: SocketAddr, of_source: Option<bool>) {
        let Self::Sender { known, heard, .. } = self else { return };
        if of_source != Some(false) {
            (*known, *heard) = (Some(from), of_source == Some(true));
        }
    }
}

impl SocketSink {
    /// Creates a receiver's endpoint, which passes media payloads to `consumer`.
    pub fn new(sink: VideoSink, consumer: Box<dyn Consumer>, reports: Reports) -> Self {
        Self {
            sink,
            consumer,
            clocks: SourceClock::default(),
            srtp: None,
            number_id: TRANSPORT_NUMBER_ID,
            rtx: None,
            parity: None,
            audio: None,
            requests_key_frames: false,
            lacks: None,
            reports,
            browser: None,
            excluded: Vec::new(),
            outgoing: Vec::new(),
            ended: false,
            unused: Unused::default(),
            first: None,
            last: None,
            from: None,
            ended_by: None,
            held: RunCandidates::default(),
            run: 0,
            other_source: None,
        }
    }

    /// If the consumer's need for a key frame has changed, informs the session.
    fn update_key_frame_need(&mut self, now: Time, out: &mut Outbox) {
        let lacks = self.consumer.lacks_key_frame();
        if self.requests_key_frames && lacks != self.lacks {
            self.lacks = lacks;
            self.with(out, |sink, o| sink.lacks_key_frame(now, lacks, o));
        }
    }

    /// Sets how frames are numbered: by the media clock, in steps of `step`.
    #[must_use]
    pub fn timing(self, step: Span) -> Self {
        let clocks = SourceClock { media: Some(MediaClock::new(step)), ..self.clocks };
        Self { clocks, ..self }
    }

    /// Returns how many times the source changed or restarted.
    pub fn restarts(&self) -> u32 {
        self.sink.session().map_or(0, |session| session.run().0.saturating_sub(1))
    }

    /// Returns the counts of unused packets, by reason.
    pub fn unused(&self) -> Unused {
        self.unused.clone().with(&self.consumer.unused())
    }

    /// Returns the arrival time of the last media packet.
    pub const fn last_media(&self) -> Option<Time> {
        self.last
    }

    /// Returns the arrival time of the first media packet.
    pub const fn first_media(&self) -> Option<Time> {
        self.first
    }

    /// Returns the source address of the media.
    pub const fn media_from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Returns a source whose packets are ignored, and its address. Returns `None` if there is no such source.
    pub fn waiting(&self, now: Time) -> Option<(Waiting, SocketAddr)> {
        self.sink.session()?.waiting(now).zip(self.other_source)
    }

    /// Returns the address from which the BYE of the source arrived. Returns `None` while the source is active.
    pub fn ended_by(&self) -> Option<SocketAddr> {
        self.ended_by.filter(|_| self.source_ended())
    }

    fn source_ended(&self) -> bool {
        self.sink.session().is_some_and(Receiver::source_ended)
    }

    /// Returns the address to which reports are sent. Returns `None` if the address is unknown, if reports go to the
    /// whole group or through a browser's connection, or if no reports are sent.
    pub const fn reports_to(&self) -> Option<SocketAddr> {
        match self.reports {
            Reports::Sender { known, .. } => known,
            Reports::Group | Reports::Nowhere | Reports::Connection => None,
        }
    }

    /// Returns whether packets may be exchanged. With a browser, this is possible only while the connection is
    /// established.
    fn is_open(&self) -> bool {
        self.browser.as_ref().is_none_or(BrowserConnection::is_open)
    }

    /// Sends the pending packets of the browser's connection. Stores the SRTP keys once the DTLS handshake has provided
    /// them.
    fn drain(&mut self, now: Time, out: &mut Outbox) {
        let srtp = self.browser.as_mut().and_then(|browser| browser.drain(now, out));
        self.srtp = srtp.or(self.srtp.take());
    }

    /// Closes the browser's connection after the BYE.
    fn hang_up(&mut self, now: Time, out: &mut Outbox) {
        let is_left = self.ended && !self.sink.leaving();
        if let Some(browser) = self.browser.as_mut().filter(|_| is_left) {
            browser.tunnel.close(now);
            browser.drain(now, out);
        }
    }

    /// Joins the session.
    pub fn join(&mut self, now: Time) {
        self.sink.join(now);
    }

    /// Leaves the session with a BYE.
    pub fn leave(&mut self, now: Time, out: &mut Outbox) {
        self.with(out, |sink, o| sink.leave(now, o));
        self.ended = true;
        self.hang_up(now, out);
    }

    /// Announces to the consumer that no more packets follow.
    pub fn close(&mut self) {
        self.consumer.end();
        if let Some(audio) = &mut self.audio {
            audio.end();
        }
        self.align_audio();
    }

    fn with<T>(&mut self, out: &mut Outbox, what: impl FnOnce(&mut VideoSink, &mut Out<'_>) -> T) -> T {
        let result = what(&mut self.sink, &mut Out { packets: &mut self.outgoing });
        self.send(out);
        result
    }

    fn send(&mut self, out: &mut Outbox) {
        let is_open = self.is_open();
        for (_, _, body) in self.outgoing.drain(..) {
            let Body::Rtcp { bytes, .. } = body else { continue };
            let to = match self.reports {
                Reports::Group => None,
                Reports::Connection if is_open => None,
                // Undo the session's count of this report, because it can't be sent without an address.
                Reports::Nowhere | Reports::Connection | Reports::Sender { known: None, .. } => {
                    self.sink.rtcp_packets -= 1;
                    continue;
                }
                Reports::Sender { known, .. } => known,
            };
            out.push(Which::Rtcp, to, |all| protected(&bytes, &mut self.srtp, all));
        }
    }

    fn read<'a>(&self, at: Time, bytes: &'a [u8]) -> Option<Arrival<'a>> {
        let (header, extensions, payload) = RtpHeader::parse(bytes).ok()?;
        let fits = |(id, bytes): &(u8, &[u8])| (1..=14).contains(id) && bytes.len() <= Notice::MOST;
        let (mut notice, mut transport) = (Notice::NONE, None);
        for (id, bytes) in extensions {
            match TransportNumber::read(bytes).filter(|_| id == self.number_id) {
                Some(number) => transport = Some(number.seq),
                // Take the first header extension that is not a `TransportNumber` as the `Notice`.
                None if notice.is_empty() && fits(&(id, bytes)) => notice = Notice::new(id, bytes),
                None => {}
            }
        }
        Some(Arrival { at, header, notice, transport, payload })
    }

    fn on_rtp(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let Some(arrival) = self.read(now, datagram.bytes) else {
            return self.unused.add(UnusedReason::Malformed);
        };
        let header = arrival.header;
        // Recognize retransmissions and parity by the payload type, because their SSRCs may not be announced.
        if let Some((_, apt)) = self.rtx.filter(|(rtx, _)| *rtx == header.payload_type) {
            return self.on_repair(now, datagram, &arrival, apt, out);
        }
        if self.parity.as_ref().is_some_and(|(parity, _)| *parity == header.payload_type) {
            return self.on_parity(now, datagram, &arrival, out);
        }
        if self.audio.as_ref().is_some_and(|audio| audio.payload_type == header.payload_type) {
            return self.on_audio(now, datagram, &arrival, out);
        }
        let from = datagram.meta.from;
        let origin = Origin(address(from).0.into());
        let begins = |session: &Receiver| session.begins_run(now, origin, &header);
        // If this packet starts a new stream, handle the held packets of the stream first, because they arrived
        // earlier.
        if !self.held.0.is_empty() && self.sink.session().is_some_and(begins) {
            self.take_held(now, datagram.meta, &header, out);
        }
        if let Received::Unused(reason) = self.take_media(now, datagram, &arrival, out) {
            self.refuse(now, datagram, &header, reason);
        }
    }

    /// Holds an unused packet if the session may follow its stream later.
    fn refuse(&mut self, now: Time, datagram: &Datagram<'_>, header: &RtpHeader, reason: UnusedReason) {
        let from = datagram.meta.from;
        let Some(session) = self.sink.session() else { return };
        if session.may_follow(Origin(address(from).0.into()), header) {
            self.held.keep((now, datagram.meta, *header, datagram.bytes.to_vec(), reason));
        }
        if session.waiting(now).is_some_and(|other| other.ssrc == header.ssrc) {
            self.other_source = Some(from);
        }
    }

    fn count(&mut self, received: Received, header: &RtpHeader) {
        match received {
            Received::Unused(reason) => self.unused.add_of_type(reason, header.payload_type),
            Received::Duplicate => self.unused.add(UnusedReason::Duplicate),
            Received::New(_) | Received::Repaired(_) | Received::Audio(_) => {}
        }
    }

    /// Starts a new stream at the lowest sequence number among the held packets and the present packet. Then handles
    /// the held packets in order.
    fn take_held(&mut self, now: Time, meta: Meta, header: &RtpHeader, out: &mut Outbox) {
        let held = self.held.of_run(header);
        let Some((_, of_first, first, ..)) = held.first() else { return };
        let is_lowest = (header.seq.wrapping_sub(first.seq) as i16) < 0;
        let (meta, first) = if is_lowest { (meta, header) } else { (*of_first, first) };
        self.sink.begin_run(now, address(meta.from), first);
        for (at, meta, _, bytes, reason) in held {
            // Take back the count of the held packet, because the session counts it again below.
            self.unused.counts.take_back(reason);
            let datagram = Datagram { which: Which::Rtp, bytes: &bytes, meta };
            if let Some(arrival) = self.read(at, &bytes) {
                self.take_media(now, &datagram, &arrival, out);
            }
        }
    }

    /// Passes a media packet to the session. If the packet is new, passes it to the consumer as well.
    fn take_media(&mut self, now: Time, datagram: &Datagram<'_>, arrival: &Arrival<'_>, out: &mut Outbox) -> Received {
        let (from, Arrival { at, header, notice, payload, .. }) = (datagram.meta.from, *arrival);
        // Work on a copy, so that packets of other sources do not change the clocks. It is stored below if the packet
        // is new.
        let mut clocks = self.clocks.of(header.ssrc, self.run);
        let frame = clocks.media.as_mut().map_or(0, |clock| clock.step_of(header.timestamp));
        let fragment = Fragment { frame, ..Fragment::default() };
        let media = Media { notice, fragment, ..arrival.media(Stream::Media, datagram) };
        let arriving = arriving(&media, from, clocks.send_time(now, &header));
        let received = self.sink.on_media(now, &arriving, &media, &mut Out { packets: &mut self.outgoing });
        self.count(received, &header);
        if let Received::New(_) = received {
            // Set the address for reports before `send`, which may emit the first report.
            self.reports.on_media(from, self.clocks.ssrc.is_some_and(|before| before != header.ssrc));
        }
        self.send(out);
        if let Received::New(seq) = received {
            let (run, first) = self.sink.session().map_or((self.run, 0), Receiver::run);
            if std::mem::replace(&mut self.run, run) != run {
                self.consumer.restart(first);
                if let Some(audio) = self.audio.as_mut().filter(|_| self.first.is_some()) {
                    audio.restart();
                }
            }
            self.held.forget(now);
            self.clocks = SourceClock { run, ..clocks };
            self.first.get_or_insert(now);
            (self.last, self.from) = (Some(now), Some(from));
            self.consumer.take(at, seq, &header, payload);
            if let Some((_, symbols)) = &mut self.parity {
                symbols.on_packet(header.ssrc, header.seq, datagram.bytes);
            }
            self.recover_packets(now);
            self.update_key_frame_need(now, out);
        }
        received
    }

    fn on_audio(&mut self, now: Time, datagram: &Datagram<'_>, arrival: &Arrival<'_>, out: &mut Outbox) {
        let Arrival { at, header, payload, .. } = *arrival;
        let media = arrival.media(Stream::Audio, datagram);
        // Work on a copy, so that audio does not change the video's clocks.
        let mut clocks = self.clocks;
        let arriving = arriving(&media, datagram.meta.from, clocks.send_time(now, &header));
        let received = self.with(out, |sink, o| sink.on_media(now, &arriving, &media, o));
        self.count(received, &header);
        if let (Received::Audio(seq), Some(audio)) = (received, &mut self.audio) {
            audio.take(at, seq, header.timestamp, payload);
        }
        self.align_audio();
    }

    /// Moves audio packets to the caller's queue once their presentation times are known.
    fn align_audio(&mut self) {
        let (Some(audio), Some(session)) = (&mut self.audio, self.sink.session()) else { return };
        audio.align(|timestamp| self.consumer.ticks_of(session.video_timestamp(timestamp)?));
    }

    fn on_parity(&mut self, now: Time, datagram: &Datagram<'_>, arrival: &Arrival<'_>, out: &mut Outbox) {
        let Arrival { header, payload, .. } = *arrival;
        let Ok((parity_header, symbol)) = ParityHeader::parse(payload) else {
            return self.unused.add(UnusedReason::Malformed);
        };
        let media = arrival.media(Stream::Parity, datagram);
        let mut clocks = self.clocks;
        let arriving = arriving(&media, datagram.meta.from, clocks.send_time(now, &header));
        let protection = Protection { header: parity_header, packets: Arc::from([]) };
        let received = self.with(out, |sink, o| sink.on_parity(now, &arriving, &media, &protection, o));
        self.count(received, &header);
        if let (Received::New(_), Some((_, symbols))) = (received, &mut self.parity) {
            symbols.on_parity(&parity_header, symbol);
        }
        self.recover_packets(now);
        self.update_key_frame_need(now, out);
    }

    /// Recovers lost packets from parity, and passes them to the consumer.
    fn recover_packets(&mut self, now: Time) {
        let Some((_, symbols)) = &mut self.parity else { return };
        let computable = self.sink.take_computable();
        if computable.is_empty() {
            return;
        }
        for (seq, bytes) in symbols.recover_packets(&computable) {
            let Ok((header, _, payload)) = RtpHeader::parse(&bytes) else { continue };
            let frame = self.clocks.media.as_mut().map_or(0, |clock| clock.step_of(header.timestamp));
            let fragment = Fragment { frame, offset: 0, len: payload.len() as u16 };
            self.sink.on_recovered(now, seq, &Protected { seq, fragment, marker: header.marker });
            self.last = Some(now);
            self.consumer.take_repaired(now, seq, &header, payload);
        }
    }

    /// Handles a retransmission in RTX format (RFC 4588). Passes the original packet to the consumer.
    fn on_repair(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        retransmission: &Arrival<'_>,
        apt: u8,
        out: &mut Outbox,
    ) {
        let Arrival { header, payload, notice, .. } = *retransmission;
        // A padding packet that probes for bandwidth has no original sequence number. Report it as padding.
        let Some((number, payload)) = payload.split_first_chunk::<{ rtx::OSN }>() else {
            self.unused.add(UnusedReason::NoPayload);
            return self.report_padding(now, datagram, retransmission, out);
        };
        let number = u16::from_be_bytes(*number);
        // Work on a copy, so that a late packet does not change the clocks.
        let mut clocks = self.clocks;
        let frame = clocks.media.as_mut().map_or(0, |clock| clock.step_of(header.timestamp));
        let fragment = Fragment { frame, ..Fragment::default() };
        let repairs = Some(u64::from(number));
        let media = Media { notice, fragment, repairs, ..retransmission.media(Stream::Repair, datagram) };
        let arriving = arriving(&media, datagram.meta.from, clocks.send_time(now, &header));
        let received = self.with(out, |sink, o| sink.on_media(now, &arriving, &media, o));
        self.count(received, &header);
        if let Received::Unused(_) = received {
            return self.report_padding(now, datagram, retransmission, out);
        }
        if let Received::Repaired(seq) = received {
            let ssrc = self.clocks.ssrc.unwrap_or(header.ssrc);
            let payload_len = payload.len() as u16;
            let original = RtpHeader { payload_type: apt, seq: number, ssrc, send_time: None, payload_len, ..header };
            self.last = Some(now);
            self.consumer.take_repaired(now, seq, &original, payload);
            if let Some((_, symbols)) = &mut self.parity {
                let mut bytes = Vec::new();
                original.encode(&[], payload, &mut bytes);
                symbols.on_packet(ssrc, number, &bytes);
            }
            self.recover_packets(now);
            self.update_key_frame_need(now, out);
        }
    }

    /// Includes a browser's probing packet in the feedback. Without this, the browser would count the packet as lost.
    fn report_padding(&mut self, now: Time, datagram: &Datagram<'_>, arrival: &Arrival<'_>, out: &mut Outbox) {
        if self.browser.is_none() {
            return;
        }
        let Arrival { header, transport, .. } = *arrival;
        let size = Bytes::new((datagram.bytes.len() + IP_UDP_OVERHEAD) as u64);
        self.with(out, |sink, o| sink.on_padding(now, &header, transport, size, datagram.meta.ecn, o));
    }

    fn on_rtcp(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let Ok(compound) = Compound::parse(datagram.bytes) else {
            return self.unused.add(UnusedReason::Malformed);
        };
        let origin = Origin(address(datagram.meta.from).0.into());
        if self.sink.session().is_none_or(|session| session.ignores_rtcp(origin)) {
            self.unused.add(UnusedReason::OtherReport);
        }
        let (from, len) = (address(datagram.meta.from), datagram.bytes.len());
        if let Some(ssrc) = compound.sender() {
            let of_source =
                self.sink.session().and_then(|session| session.is_source(ssrc, host(datagram.meta.from.ip())));
            self.reports.on_report(datagram.meta.from, of_source);
        }
        let ended = self.source_ended();
        self.with(out, |sink, o| sink.on_rtcp(now, from, &compound, len, o));
        // Store the address only for the BYE that ended the stream. A later BYE of another sender must not replace it.
        if !ended && self.source_ended() {
            self.ended_by = Some(datagram.meta.from);
        }
    }
}

impl End for SocketSink {
    fn wake(&self) -> Time {
        let browser_wake = self.browser.as_ref().map_or(Time::NEVER, |browser| browser.tunnel.wake());
        self.sink.wake().min(self.consumer.wake()).min(browser_wake)
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        if let Some(browser) = &mut self.browser {
            browser.tunnel.on_wake(now);
            self.drain(now, out);
        }
        if self.consumer.wake() <= now {
            self.consumer.on_wake(now);
            self.update_key_frame_need(now, out);
        }
        self.with(out, |sink, o| sink.on_wake(now, o));
        self.hang_up(now, out);
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let (at, mut datagram) = (datagram.meta.from, *datagram);
        if let Some(browser) = &mut self.browser {
            let known = browser.sort(now, at, datagram.bytes);
            self.drain(now, out);
            // Ignore packets that arrive before the keys are known, because they can't be authenticated.
            match known.filter(|_| self.is_open()) {
                Some(known) => datagram.meta.from = known,
                None => return,
            }
        }
        let datagram = &datagram;
        // Compare the canonical form, because an IPv4 address may arrive in IPv6-mapped form.
        let excluded = self.excluded.contains(&datagram.meta.from.ip().to_canonical());
        let excluded = excluded.then_some(UnusedReason::ExcludedSource);
        if let Some(reason) = excluded.or_else(|| foreign(datagram.bytes)) {
            return self.unused.add(reason);
        }
        let opened;
        let datagram = match &mut self.srtp {
            None => datagram,
            Some(srtp) => {
                let bytes = match datagram.which {
                    Which::Rtp | Which::Audio => srtp.open_rtp(now, datagram.bytes),
                    Which::Rtcp | Which::AudioRtcp => srtp.open_rtcp(datagram.bytes),
                };
                let Some(bytes) = bytes else {
                    return self.unused.add(UnusedReason::FailedAuthentication);
                };
                opened = bytes.to_vec();
                if let Some(browser) = &mut self.browser {
                    browser.tunnel.on_authenticated(now, at);
                }
                &Datagram { bytes: &opened, ..*datagram }
            }
        };
        match datagram.which {
            Which::Rtp | Which::Audio => self.on_rtp(now, datagram, out),
            Which::Rtcp | Which::AudioRtcp => self.on_rtcp(now, datagram, out),
        }
    }

    fn on_clock_gap(&mut self, now: Time) {
        self.sink.on_clock_gap(now);
    }

    fn done(&self) -> bool {
        self.ended && (!self.sink.leaving() || !self.is_open())
    }
}

/// Appends the datagram of an RTP packet that `write` writes. Encrypts it if there is an SRTP context.
fn push_media(out: &mut Outbox, ecn: Ecn, which: Which, srtp: &mut Option<Srtp>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push_as(ecn, which, None, |bytes| {
        let start = bytes.len();
        write(bytes);
        if let Some(srtp) = srtp {
            srtp.protect_rtp(bytes, start);
        }
    });
}

/// Appends an RTCP compound to `out`. Encrypts it if there is an SRTP context.
fn protected(compound: &[u8], srtp: &mut Option<Srtp>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(compound);
    if let Some(srtp) = srtp {
        srtp.protect_rtcp(out, start);
    }
}

/// Returns the number that identifies a host in the session.
pub(crate) fn host(of: IpAddr) -> Origin {
    Origin(address(SocketAddr::new(of, 0)).0.into())
}

/// Returns the number that identifies an address in the session's member table. The port does not count.
fn address(from: SocketAddr) -> AgentIx {
    let folded = origin(from.ip()).0;
    AgentIx((folded ^ folded >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};
    use steadycast_units::Stamp;

    #[test]
    fn ipv6_origins_cannot_be_chosen_to_collide() {
        let known: Ipv6Addr = "2001:db8::1".parse().unwrap();
        // A hash without a key, which only combines the two halves of the address, would be unsafe. An attacker could
        // construct `chosen` so that it collides with `known`.
        let spread = |upper: u64| upper.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (upper, bits) = (0x2001_0db8_bad0_0000, known.to_bits());
        let lower = spread(upper) ^ spread((bits >> 64) as u64) ^ bits as u64;
        let chosen = Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower));
        let at = |ip: Ipv6Addr, port| address(SocketAddr::new(IpAddr::V6(ip), port));
        assert_ne!(origin(IpAddr::V6(chosen)), origin(IpAddr::V6(known)));
        assert_ne!(at(chosen, 5_004), at(known, 5_004));
        assert_eq!(at(known, 5_004), at(known, 5_005));
        // IPv4 addresses map to themselves, even in IPv4-mapped form.
        for ip in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(origin(ip.parse().unwrap()), Origin(0x0a00_0001));
        }
    }

    #[test]
    fn frames_count_in_steps_of_the_medias_clock_across_its_wrap() {
        let mut clock = MediaClock::new(Span::millis(10));
        let first = u32::MAX - 3_600;
        let steps = [0, 3_600, 7_200, 3_600, 10_799, 10_800].map(|ticks| clock.step_of(first.wrapping_add(ticks)));
        assert_eq!(steps, [0, 4, 8, 4, 11, 12]);
        assert_eq!(clock.step_of(first.wrapping_sub(90_000)), 0, "before the first");
    }

    #[test]
    fn the_times_of_two_sources_are_not_compared() {
        let header = |ssrc, ms: u64, timestamp| RtpHeader {
            payload_type: 96,
            marker: true,
            seq: 0,
            timestamp,
            ssrc,
            send_time: Some(Stamp::of(Time::ZERO + Span::millis(ms))),
            payload_len: 2,
        };
        let at = |ms| Time::ZERO + Span::millis(ms);
        let mut clocks = SourceClock { media: Some(MediaClock::new(Span::millis(10))), ..SourceClock::default() };
        let mut delays = Vec::new();
        let mut steps = Vec::new();
        // The clock of the second source is ten seconds behind the clock of the first. From each source, one packet is
        // 30 ms late.
        for (ssrc, sent, arrival, stamp) in [
            (1, 20_000, 1_000, 0),
            (1, 20_040, 1_070, 3_600),
            (2, 10_080, 1_080, 4_000_000),
            (2, 10_120, 1_150, 4_003_600),
        ] {
            clocks = clocks.of(ssrc, ssrc);
            let left = clocks.send_time(at(arrival), &header(ssrc, sent, stamp)).unwrap();
            // Round to milliseconds, because send times are rounded down to 4 µs.
            delays.push(at(arrival).since(left).as_millis_f64().round());
            steps.push(clocks.media.as_mut().map(|clock| clock.step_of(stamp)));
        }
        assert_eq!(delays, [0.0, 30.0, 0.0, 30.0]);
        let unstamped = RtpHeader { send_time: None, ..header(2, 0, 4_007_200) };
        assert_eq!(clocks.send_time(at(1_200), &unstamped), None);
        assert_eq!(steps, [0, 4, 5, 9].map(Some));
    }
}
