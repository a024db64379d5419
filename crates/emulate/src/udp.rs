//! Endpoints of video and plain traffic, on UDP sockets in the network namespaces of their hosts.

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

/// Size of the payload in a packet of plain traffic, in bytes: four zeros, the packet's number, and its send time. The
/// zeros distinguish the packet from RTCP.
pub(crate) const PLAIN_PAYLOAD: usize = 20;

/// Number of additional packets that are kept for computing parity. They are needed because send jitter may delay
/// parity.
const JITTER_MARGIN: u64 = 256;

/// Maximum number of consecutive calls of one agent before other agents are served.
const MAX_CALLS: usize = 1_000;

/// The packets that a session has sent. A datagram does not contain the frame fragment that it stands for, so a
/// receiver looks the fragment up here.
#[derive(Default)]
pub(crate) struct Sent {
    streams: BTreeMap<u32, Stream>,
}

/// The packets that have the same SSRC.
#[derive(Default)]
struct Stream {
    packets: VecDeque<(Media, Time)>,
    first: u64,
    parity: bool,
}

/// Maximum number of stored packets. With more of them, 16-bit sequence numbers would be ambiguous.
const MAX_STORED_PACKETS: usize = 1 << 16;

impl Sent {
    fn add(&mut self, now: Time, media: &Media, parity: bool) {
        let stream = self.streams.entry(media.header.ssrc).or_default();
        stream.parity = parity;
        stream.add(now, media);
    }

    /// Returns the latest packet that has this header. Also returns its send time, and whether it is parity.
    fn find(&self, header: &RtpHeader) -> Option<(&Media, Time, bool)> {
        let stream = self.streams.get(&header.ssrc)?;
        let (media, at) = stream.numbered(header.seq)?;
        // Ignore `send_time` if the header has none, because a packet that was recovered from parity lacks it.
        let sent = RtpHeader { send_time: header.send_time.and(media.header.send_time), ..media.header };
        (sent == *header).then_some((media, *at, stream.parity))
    }

    /// Returns the header of the latest packet with this SSRC and sequence number. The header extension is left out.
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
        // Compute the distance in 16 bits, so that the result is right when the numbers wrap.
        let back = (last as u16).wrapping_sub(number);
        self.packets.get(last.checked_sub(u64::from(back))?.checked_sub(self.first)? as usize)
    }
}

/// The properties of an endpoint, apart from its agent.
pub(crate) struct Hosted {
    pub(crate) ix: AgentIx,
    /// Index of the session among the sessions of all flows.
    pub(crate) session: usize,
    pub(crate) host: NodeIx,
    /// When the endpoint starts (`true`) and when it stops (`false`).
    pub(crate) plan: VecDeque<(Time, bool)>,
    /// Where RTCP is sent to. `None` means that it is sent to the peer or to the group.
    pub(crate) reports_to: Option<SocketAddr>,
    /// The group that the endpoint joins when it starts and leaves when it stops.
    pub(crate) member_of: Option<u32>,
    /// Maximum send jitter. A packet is held for a random time between 0 and this time, with uniform distribution.
    pub(crate) jitter: Span,
    pub(crate) chance: Chance,
}

pub(crate) struct UdpEnd {
    pub(crate) agent: Agent,
    pub(crate) hosted: Hosted,
    pub(crate) log: Option<Rows<PacketRow>>,
    /// The packets that the sender of this session has sent. All endpoints of the session share them.
    sent: Rc<RefCell<Sent>>,
    relay: RelayHandle,
    held: VecDeque<(Time, Ecn, Body)>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
    leaves: bool,
    zeros: Vec<u8>,
    /// Number of packets of media or plain traffic that were received.
    pub(crate) received_packets: u64,
    /// Contents of sent packets. Parity is computed from them.
    kept: SentSymbols,
    /// Contents of received packets. Lost packets are recovered from them.
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

    /// Tells the agent that the run ends. The agent then sends no new data.
    pub(crate) fn finish(&mut self, now: Time, out: &mut Outbox) {
        self.agent.finish(now, &mut Out { packets: &mut self.outgoing });
        self.settle(now, out);
    }

    fn change_membership(&self, join: bool) {
        if let Some(group) = self.hosted.member_of {
            self.relay.change_membership(MembershipChange { group, host: self.hosted.host, join });
        }
    }

    /// Sends the packets that the agent has produced, or holds them to emulate send jitter.
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
                // Let all held packets leave together, as in the simulation.
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
        // Leave the group now, if the agent has sent its BYE.
        if self.leaves && !self.agent.leaving() {
            self.leaves = false;
            self.change_membership(false);
        }
    }

    /// Returns the extended sequence number of the first packet that may still be retransmitted or protected by parity.
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

    /// Parses a datagram. Returns the packet, and its send time if it is known.
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
            // Leave the list of protected packets empty, because the emulation recovers packets from their bytes.
            Body::Parity(Box::new((*media, Protection { header, packets: Arc::from([]) })))
        } else {
            Body::Rtp(Box::new(*media))
        };
        Some((body, Some(at)))
    }

    /// Passes a datagram to the agent. If the agent is a video receiver, also recovers lost packets from parity.
    fn deliver(&mut self, now: Time, arriving: &Arriving<'_>, bytes: &[u8]) {
        let out = &mut Out { packets: &mut self.outgoing };
        let Agent::VideoSink(sink) = &mut self.agent else { return self.agent.on_packet(now, arriving, out) };
        // Keep the packet's bytes only if the session has parity, because only parity needs them.
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
                    // Rebuild the bytes of the original packet from its header. This is possible because payloads are
                    // zeros.
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
                sink.on_recovered(now, counted, &Protected { seq, fragment, marker });
            }
        }
    }
}

/// Returns a number that identifies a sender: the address of its host.
fn sender(address: SocketAddr) -> AgentIx {
    match address.ip() {
        IpAddr::V4(v4) => AgentIx(u32::from(v4)),
        // This does not happen, because hosts have only IPv4 addresses.
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
                // Stay in the group until the BYE is sent. In a large group, it is sent with a delay.
                self.leaves = self.hosted.member_of.is_some();
            }
        }
        // Repeat the call, because a plain source sends only one packet per call. Limit the number of calls, so that an
        // agent whose timer does not advance can't block the loop.
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
        if let Some(log) = &mut self.log {
            log.extend(PacketRow::of(now, size, &body, ecn, sent.map(|sent| now.since(sent))));
        }
        let arriving = Arriving { from: sender(datagram.meta.from), size, sent, ecn, body: &body };
        self.deliver(now, &arriving, datagram.bytes);
        self.settle(now, out);
    }
}
