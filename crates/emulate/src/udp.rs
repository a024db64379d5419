//! The ends that are ours, over UDP sockets in the namespaces of their hosts: video and plain traffic.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use steadycast_ends::{Agent, AgentIx, Arriving, Body, Out, PacketRow, Rows};
use steadycast_link::Ecn;
use steadycast_live::{Datagram, End, Outbox, Which};
use steadycast_scenario::NodeIx;
use steadycast_session::Media;
use steadycast_units::{Bytes, Chance, Span, Time};
use steadycast_wire::rtcp::Compound;
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::{IP_UDP_OVERHEAD, is_rtcp};

/// What a plain packet carries: four zeros, so that it is not taken for RTCP, its number, and when it left.
pub(crate) const PLAIN: usize = 20;

/// How often an agent is called at one time.
const CATCH_UP: usize = 1_000;

/// What a session's source has sent: which part of which frame a packet carries does not travel.
#[derive(Default)]
pub(crate) struct Sent {
    streams: BTreeMap<u32, Stream>,
}

/// What it has sent under one SSRC.
#[derive(Default)]
struct Stream {
    packets: VecDeque<(Media, Time)>,
    first: u64,
}

/// What is remembered of it: a packet that is older than this can't be told from a newer one with its number.
const NUMBERS: usize = 1 << 16;

impl Sent {
    fn add(&mut self, now: Time, media: &Media) {
        self.streams.entry(media.header.ssrc).or_default().add(now, media);
    }

    /// The latest packet with this header's number, if it is this packet.
    fn find(&self, header: &RtpHeader) -> Option<&(Media, Time)> {
        self.streams.get(&header.ssrc)?.find(header)
    }
}

impl Stream {
    fn add(&mut self, now: Time, media: &Media) {
        if self.packets.is_empty() {
            self.first = media.seq;
        }
        debug_assert_eq!(self.first + self.packets.len() as u64, media.seq, "a stream's numbers have no gaps");
        if self.packets.len() == NUMBERS {
            self.packets.pop_front();
            self.first += 1;
        }
        self.packets.push_back((*media, now));
    }

    fn find(&self, header: &RtpHeader) -> Option<&(Media, Time)> {
        let last = self.first + (self.packets.len() as u64).checked_sub(1)?;
        let back = (last as u16).wrapping_sub(header.seq);
        let place = last.checked_sub(u64::from(back))?.checked_sub(self.first)?;
        let found = self.packets.get(place as usize)?;
        (found.0.header == *header).then_some(found)
    }
}

/// Something that the network is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Graft {
    pub(crate) group: u32,
    pub(crate) host: NodeIx,
    pub(crate) join: bool,
}

/// What an end needs besides its agent.
pub(crate) struct Hosted {
    pub(crate) ix: AgentIx,
    pub(crate) host: NodeIx,
    /// When it starts (`true`) and stops.
    pub(crate) plan: VecDeque<(Time, bool)>,
    /// What its session has sent so far.
    pub(crate) sent: Rc<RefCell<Sent>>,
    /// Where its RTCP goes; a group's goes to the group.
    pub(crate) reports_to: Option<SocketAddr>,
    /// The group whose member it is, when it is one by its own decision.
    pub(crate) member_of: Option<u32>,
    pub(crate) grafts: Rc<RefCell<Vec<Graft>>>,
    /// Packets are held back for a time uniform in 0 … this.
    pub(crate) jitter: Span,
    pub(crate) chance: Chance,
}

/// An agent on its host.
pub(crate) struct UdpEnd {
    pub(crate) agent: Agent,
    pub(crate) hosted: Hosted,
    /// Its packets, where they are recorded.
    pub(crate) log: Option<Rows<PacketRow>>,
    held: VecDeque<(Time, Ecn, Body)>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
    leaves: bool,
    zeros: Vec<u8>,
    heard: u64,
}

impl UdpEnd {
    pub(crate) fn new(agent: Agent, hosted: Hosted, log: Option<Rows<PacketRow>>) -> Self {
        let (held, outgoing) = (VecDeque::new(), Vec::new());
        Self { agent, hosted, log, held, outgoing, leaves: false, zeros: Vec::new(), heard: 0 }
    }

    /// Packets of media, or of plain traffic, that have come.
    pub(crate) const fn heard(&self) -> u64 {
        self.heard
    }

    /// The run is over: nothing new begins.
    pub(crate) fn finish(&mut self, now: Time, out: &mut Outbox) {
        self.agent.finish(now, &mut Out { packets: &mut self.outgoing });
        self.settle(now, out);
    }

    fn graft(&self, join: bool) {
        if let Some(group) = self.hosted.member_of {
            self.hosted.grafts.borrow_mut().push(Graft { group, host: self.hosted.host, join });
        }
    }

    /// After the agent was called: its packets leave, or are held back.
    fn settle(&mut self, now: Time, out: &mut Outbox) {
        for (size, ecn, body) in std::mem::take(&mut self.outgoing) {
            if let Some(log) = &mut self.log {
                log.extend(PacketRow::of(now, size, &body, ecn, None));
            }
            if let Body::Rtp(media) = &body {
                self.hosted.sent.borrow_mut().add(now, media);
            }
            if self.hosted.jitter.is_zero() {
                self.send(now, size, ecn, &body, out);
            } else {
                // What comes while one is held back leaves with it, as in the simulation.
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
                (_, Agent::PlainSource(source)) => source.packet(),
                _ => Bytes::ZERO,
            };
            self.send(now, size, ecn, &body, out);
        }
        if self.leaves && !self.agent.leaving() {
            self.leaves = false;
            self.graft(false);
        }
    }

    fn send(&mut self, now: Time, size: Bytes, ecn: Ecn, body: &Body, out: &mut Outbox) {
        match body {
            Body::Rtp(media) => {
                let len = media.payload_len();
                if self.zeros.len() < len {
                    self.zeros.resize(len, 0);
                }
                out.push_as(ecn, Which::Rtp, None, |bytes| media.encode(&self.zeros[..len], bytes));
            }
            Body::Rtcp { bytes, .. } => {
                out.push(Which::Rtcp, self.hosted.reports_to, |to| to.extend_from_slice(bytes));
            }
            Body::Plain(number) => out.push(Which::Rtp, None, |bytes| {
                let start = bytes.len();
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(&now.as_nanos().to_be_bytes());
                bytes.resize(start + (size.get() as usize).saturating_sub(IP_UDP_OVERHEAD).max(PLAIN), 0);
            }),
            Body::Parity(_) | Body::Tcp(..) | Body::TcpAck(..) | Body::Raw(_) => {}
        }
    }

    /// The packet that a datagram is, and when it left.
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
        let (header, _, _) = RtpHeader::parse(bytes).ok()?;
        let sent = self.hosted.sent.borrow();
        let (media, at) = sent.find(&header)?;
        Some((Body::Rtp(Box::new(*media)), Some(*at)))
    }
}

/// Who sent a datagram, by its host.
fn sender(address: SocketAddr) -> AgentIx {
    match address.ip() {
        IpAddr::V4(v4) => AgentIx(u32::from(v4)),
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
                self.graft(true);
            } else {
                self.agent.stop(now, packets);
                // Not before its BYE is out, which in a large group waits its turn.
                self.leaves = self.hosted.member_of.is_some();
            }
        }
        // A plain source sends one packet each time.
        for _ in 0..CATCH_UP {
            if self.agent.wake() > now {
                break;
            }
            self.agent.on_wake(now, &mut Out { packets: &mut self.outgoing });
        }
        self.settle(now, out);
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        let Some((body, sent)) = self.read(datagram.which, datagram.bytes) else { return };
        self.heard += u64::from(!matches!(body, Body::Rtcp { .. }));
        let ecn = datagram.meta.ecn;
        let size = Bytes::new((datagram.bytes.len() + IP_UDP_OVERHEAD) as u64);
        let sent = sent.unwrap_or(now);
        if let Some(log) = &mut self.log {
            log.extend(PacketRow::of(now, size, &body, ecn, Some(now.since(sent))));
        }
        let arriving = Arriving { from: sender(datagram.meta.from), size, sent, ecn, body: &body };
        self.agent.on_packet(now, &arriving, &mut Out { packets: &mut self.outgoing });
        self.settle(now, out);
    }
}
