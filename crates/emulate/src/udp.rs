//! Video and plain-traffic endpoints on UDP sockets in the namespaces of their hosts.

use crate::relay::{MembershipChange, RelayHandle};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use steadycast_endpoints::{Agent, AgentIx, Arriving, Body, Out, PacketRow, Rows};
use steadycast_link::Ecn;
use steadycast_live::{Datagram, End, Outbox, ReceivedSymbols, SentSymbols, Which};
use steadycast_scenario::NodeIx;
use steadycast_session::{Media, Protected, Protection, Received, Receiver, Sender};
use steadycast_units::{Bytes, Chance, Span, Time};
use steadycast_wire::parity::ParityHeader;
use steadycast_wire::rtcp::Compound;
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::{IP_UDP_OVERHEAD, is_rtcp};

/// The bytes of the payload: four zeros, the packet's number, and its send time. The zeros distinguish the payload from
/// RTCP.
pub(crate) const PLAIN_PAYLOAD: usize = 20;

/// The number of packets that are kept for parity in addition to those that the session still needs, because send
/// jitter may delay parity.
const JITTER_MARGIN: u64 = 256;

/// Maximum number of successive calls of an agent before other agents are served.
const MAX_CALLS: usize = 1_000;

/// A session's sent packets. A receiver looks up the frame fragment of a datagram here, because the datagram does not
/// contain its number.
#[derive(Default)]
pub(crate) struct Sent {
    streams: BTreeMap<u32, Stream>,
}

/// The packets with one SSRC.
#[derive(Default)]
struct Stream {
    packets: VecDeque<(Media, Time)>,
    first: u64,
    parity: bool,
}

/// Maximum number of stored packets. With more packets, 16-bit sequence numbers would be ambiguous.
const MAX_STORED_PACKETS: usize = 1 << 16;

impl Sent {
    fn add(&mut self, now: Time, media: &Media, parity: bool) {
        let stream = self.streams.entry(media.header.ssrc).or_default();
        stream.parity = parity;
        stream.add(now, media);
    }

    /// Returns the latest packet with this header, its send time, and whether it is parity.
    fn find(&self, header: &RtpHeader) -> Option<(&Media, Time, bool)> {
        let stream = self.streams.get(&header.ssrc)?;
        let (media, at) = stream.numbered(header.seq)?;
        // The header of a packet recovered from parity has no `send_time`.
        let sent = RtpHeader { send_time: header.send_time.and(media.header.send_time), ..media.header };
        (sent == *header).then_some((media, *at, stream.parity))
    }

    /// Returns the header of the source's latest packet with this sequence number, without its extension.
    fn bare(&self, ssrc: u32, number: u16) -> Option<RtpHeader> {
        let (media, _) = self.streams.get(&ssrc)?.numbered(number)?;
        Some(RtpHeader { send_time: None, ..media.header })
    }
}

impl Stream {
    fn add(&mut self, now: Time, media: &Media) {
        if self.packets.is_empty() {
            self.first = media.seq;
        }
        debug_assert_eq!(self.first + self.packets.len() as u64, media.seq, "a stream's numbers have no gaps");
        if self.packets.len() == MAX_STORED_PACKETS {
            self.packets.pop_front();
            self.first += 1;
        }
        self.packets.push_back((*media, now));
    }

    fn numbered(&self, number: u16) -> Option<&(Media, Time)> {
        let last = self.first + (self.packets.len() as u64).checked_sub(1)?;
        // The 16-bit distance resolves the wrap of the numbers.
        let back = (last as u16).wrapping_sub(number);
        self.packets.get(last.checked_sub(u64::from(back))?.checked_sub(self.first)? as usize)
    }
}

/// An endpoint without its agent.
pub(crate) struct Hosted {
    pub(crate) ix: AgentIx,
    /// Index among the sessions of all flows.
    pub(crate) session: usize,
    pub(crate) host: NodeIx,
    /// When the endpoint starts (`true`) and stops (`false`).
    pub(crate) plan: VecDeque<(Time, bool)>,
    /// The destination of RTCP; `None` for the peer or the group.
    pub(crate) reports_to: Option<SocketAddr>,
    /// The group that the endpoint joins and leaves itself.
    pub(crate) member_of: Option<u32>,
    /// Maximum send jitter. Packets are held for a random time, uniform between 0 and this.
    pub(crate) jitter: Span,
    pub(crate) chance: Chance,
}

pub(crate) struct UdpEnd {
    pub(crate) agent: Agent,
    pub(crate) hosted: Hosted,
    pub(crate) log: Option<Rows<PacketRow>>,
    /// The packets that the endpoint's session has sent.
    sent: Rc<RefCell<Sent>>,
    relay: RelayHandle,
    held: VecDeque<(Time, Ecn, Body)>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
    leaves: bool,
    zeros: Vec<u8>,
    /// The number of packets of media or plain traffic.
    pub(crate) received_packets: u64,
    /// The symbols of sent packets, from which parity is computed.
    kept: SentSymbols,
    /// The symbols of received packets, from which lost packets are recovered.
    received_symbols: ReceivedSymbols,
}

impl UdpEnd {
    pub(crate) fn new(
        agent: Agent,
        hosted: Hosted,
        log: Option<Rows<PacketRow>>,
        sent: Rc<RefCell<Sent>>,
        relay: RelayHandle,
    ) -> Self {
        let (held, outgoing, zeros) = (VecDeque::new(), Vec::new(), Vec::new());
        let (kept, received_symbols) = (SentSymbols::default(), ReceivedSymbols::default());
        Self {
            agent,
            hosted,
            log,
            sent,
            relay,
            held,
            outgoing,
            leaves: false,
            zeros,
            received_packets: 0,
            kept,
            received_symbols,
        }
    }

    /// Ends the run for the agent, which then sends nothing new.
    pub(crate) fn finish(&mut self, now: Time, out: &mut Outbox) {
        self.agent.finish(now, &mut Out { packets: &mut self.outgoing });
        self.settle(now, out);
    }

    fn change_membership(&self, join: bool) {
        if let Some(group) = self.hosted.member_of {
            self.relay.change_membership(MembershipChange { group, host: self.hosted.host, join });
        }
    }

    /// Sends or holds the agent's packets.
    fn settle(&mut self, now: Time, out: &mut Outbox) {
        for (size, ecn, body) in std::mem::take(&mut self.outgoing) {
            if let Some(log) = &mut self.log {
                log.extend(PacketRow::of(now, size, &body, ecn, None));
            }
            match &body {
                Body::Rtp(media) => self.sent.borrow_mut().add(now, media, false),
                Body::Parity(parity) => self.sent.borrow_mut().add(now, &parity.0, true),
                _ => {}
            }
            if self.hosted.jitter.is_zero() {
                self.send(now, size, ecn, &body, out);
            } else {
                // As in the simulation, all held packets leave together.
                let until = match self.held.back() {
                    Some((until, _, _)) => *until,
                    None => now + self.hosted.chance.span_between(Span::ZERO, self.hosted.jitter),
                };
                self.held.push_back((until, ecn, body));
            }
        }
        while let Some((_, ecn, body)) = self.held.pop_front_if(|(until, ..)| *until <= now) {
            let size = match (&body, &self.agent) {
                (Body::Rtp(media), _) => media.size,
                (Body::Parity(parity), _) => parity.0.size,
                (_, Agent::PlainSource(source)) => source.packet(),
                _ => Bytes::ZERO,
            };
            self.send(now, size, ecn, &body, out);
        }
        let first = self.first_kept().unwrap_or(u64::MAX);
        self.kept.forget_before(first.saturating_sub(JITTER_MARGIN));
        // The BYE has been sent by now.
        if self.leaves && !self.agent.leaving() {
            self.leaves = false;
            self.change_membership(false);
        }
    }

    /// Returns the extended sequence number of the first packet that may still be retransmitted or protected.
    fn first_kept(&self) -> Option<u64> {
        let Agent::VideoSource(source) = &self.agent else { return None };
        source.session().and_then(Sender::first_kept)
    }

    fn send(&mut self, now: Time, size: Bytes, ecn: Ecn, body: &Body, out: &mut Outbox) {
        match body {
            Body::Rtp(media) => {
                let keeps = media.is_video() && self.first_kept().is_some();
                let len = media.payload_len();
                if self.zeros.len() < len {
                    self.zeros.resize(len, 0);
                }
                out.push_as(ecn, Which::Rtp, None, |bytes| {
                    let start = bytes.len();
                    media.encode(&self.zeros[..len], bytes);
                    if keeps {
                        self.kept.keep(media.seq, &bytes[start..]);
                    }
                });
            }
            Body::Parity(parity) => {
                let (media, protection) = &**parity;
                let mut payload = Vec::with_capacity(media.payload_len());
                if self.kept.write(protection, &mut payload) {
                    debug_assert_eq!(payload.len(), media.payload_len());
                    out.push_as(ecn, Which::Rtp, None, |bytes| media.encode(&payload, bytes));
                }
            }
            Body::Rtcp { bytes, .. } => {
                out.push(Which::Rtcp, self.hosted.reports_to, |to| to.extend_from_slice(bytes));
            }
            Body::Plain(number) => out.push(Which::Rtp, None, |bytes| {
                let start = bytes.len();
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(&now.as_nanos().to_be_bytes());
                bytes.resize(start + (size.get() as usize).saturating_sub(IP_UDP_OVERHEAD).max(PLAIN_PAYLOAD), 0);
            }),
            Body::Tcp(..) | Body::TcpAck(..) | Body::Raw(_) => {}
        }
    }

    /// Returns the packet and its send time.
    fn read(&self, which: Which, bytes: &[u8]) -> Option<(Body, Option<Time>)> {
        if matches!(self.agent, Agent::PlainSink(_)) {
            let number = u64::from_be_bytes(bytes.get(4..12)?.try_into().ok()?);
            let sent = u64::from_be_bytes(bytes.get(12..20)?.try_into().ok()?);
            return Some((Body::Plain(number), Some(Time::from_nanos(sent))));
        }
        if which == Which::Rtcp || is_rtcp(bytes) {
            let parsed = Compound::parse(bytes).ok()?;
            return Some((Body::Rtcp { bytes: Arc::from(bytes), parsed: Arc::new(parsed) }, None));
        }
        let (header, _, payload) = RtpHeader::parse(bytes).ok()?;
        let sent = self.sent.borrow();
        let (media, at, parity) = sent.find(&header)?;
        let body = if parity {
            let (header, _) = ParityHeader::parse(payload).ok()?;
            // Recovery works on bytes here, so it needs no description of the packets.
            Body::Parity(Box::new((*media, Protection { header, packets: Arc::from([]) })))
        } else {
            Body::Rtp(Box::new(*media))
        };
        Some((body, Some(at)))
    }

    /// Passes a datagram to the agent. For a video receiver, lost packets are recovered from parity.
    fn deliver(&mut self, now: Time, arriving: &Arriving<'_>, bytes: &[u8]) {
        let out = &mut Out { packets: &mut self.outgoing };
        let Agent::VideoSink(sink) = &mut self.agent else { return self.agent.on_packet(now, arriving, out) };
        // Only parity needs bytes.
        let source = sink.session().filter(|session| session.has_parity()).and_then(Receiver::source);
        match (arriving.body, source) {
            (Body::Rtp(media), Some(_)) if media.repairs.is_none() => {
                if let Received::New(_) = sink.on_media(now, arriving, media, out) {
                    self.received_symbols.on_packet(media.header.ssrc, media.header.seq, bytes);
                }
            }
            (Body::Rtp(media), Some(ssrc)) => {
                let number = media.repairs.unwrap_or_default() as u16;
                if let Received::Repaired(_) = sink.on_media(now, arriving, media, out)
                    && let Some(original) = self.sent.borrow().bare(ssrc, number)
                {
                    let mut whole = Vec::new();
                    // Payloads are zeros, so the header determines the original's bytes.
                    original.encode(&[], &vec![0; original.payload_len.into()], &mut whole);
                    self.received_symbols.on_packet(ssrc, number, &whole);
                }
            }
            (Body::Parity(parity), Some(_)) => {
                let received = sink.on_parity(now, arriving, &parity.0, &parity.1, out);
                let payload = RtpHeader::parse(bytes).map(|(_, _, payload)| payload).unwrap_or_default();
                if let (Received::New(_), Ok((header, symbol))) = (received, ParityHeader::parse(payload)) {
                    self.received_symbols.on_parity(&header, symbol);
                }
            }
            _ => return self.agent.on_packet(now, arriving, out),
        }
        let computable = sink.take_computable();
        for (counted, bytes) in self.received_symbols.recover_packets(&computable) {
            let Ok((header, _, _)) = RtpHeader::parse(&bytes) else { continue };
            let sent = self.sent.borrow();
            if let Some((media, ..)) = sent.find(&header) {
                let (seq, fragment, marker) = (media.seq, media.fragment, media.header.marker);
                sink.on_recovered_as(now, counted, &Protected { seq, fragment, marker });
            }
        }
    }
}

/// Returns a sender's identity, which is its host.
fn sender(address: SocketAddr) -> AgentIx {
    match address.ip() {
        IpAddr::V4(v4) => AgentIx(u32::from(v4)),
        // Hosts have IPv4 addresses only.
        IpAddr::V6(_) => AgentIx(u32::MAX),
    }
}

impl End for UdpEnd {
    fn wake(&self) -> Time {
        let plan = self.hosted.plan.front().map_or(Time::NEVER, |(at, _)| *at);
        let held = self.held.front().map_or(Time::NEVER, |(at, ..)| *at);
        self.agent.wake().min(plan).min(held)
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        while let Some((_, start)) = self.hosted.plan.pop_front_if(|(at, _)| *at <= now) {
            let packets = &mut Out { packets: &mut self.outgoing };
            if start {
                self.agent.start(now, packets);
                self.change_membership(true);
            } else {
                self.agent.stop(now, packets);
                // The host stays in the group until the BYE is sent, which a large group delays.
                self.leaves = self.hosted.member_of.is_some();
            }
        }
        // A plain source sends one packet per call. An agent whose timer does not advance must not block the loop.
        for _ in 0..MAX_CALLS {
            if self.agent.wake() > now {
                break;
            }
            self.agent.on_wake(now, &mut Out { packets: &mut self.outgoing });
        }
        self.settle(now, out);
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let Some((body, sent)) = self.read(datagram.which, datagram.bytes) else { return };
        self.received_packets += u64::from(!matches!(body, Body::Rtcp { .. }));
        let ecn = datagram.meta.ecn;
        let size = Bytes::new((datagram.bytes.len() + IP_UDP_OVERHEAD) as u64);
        // RTCP carries no send time.
        let sent = sent.unwrap_or(now);
        if let Some(log) = &mut self.log {
            log.extend(PacketRow::of(now, size, &body, ecn, Some(now.since(sent))));
        }
        let arriving = Arriving { from: sender(datagram.meta.from), size, sent, ecn, body: &body };
        self.deliver(now, &arriving, datagram.bytes);
        self.settle(now, out);
    }
}
