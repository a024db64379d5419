//! Captures of the packets on links, in pcapng files.

use crate::packet::{Packet, To};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use steadycast_capture::{Address, CaptureFile, Flags, Meta, TcpHeader, mark, tcp, udp};
use steadycast_endpoints::Body;
use steadycast_link::{Drop, Ecn, Fate};
use steadycast_scenario::{DirIx, LinkIx, NodeIx, Scenario};
use steadycast_tcp::{Ack, Segment};
use steadycast_units::Time;

const RTP: u16 = 5004;
const RTCP: u16 = 5005;
/// The destination port of plain packets.
const DISCARD: u16 = 9;
/// The destination port of TCP data.
const IPERF: u16 = 5001;
/// The lowest port of an agent. Different ports distinguish the connections between two hosts.
const FIRST_AGENT_PORT: u16 = 10_000;
const IP_TCP_HEADER: u64 = 40;

/// The properties of an agent that determine the headers of its packets.
#[derive(Clone, Copy)]
pub struct AgentInfo {
    /// The agent's node.
    pub node: NodeIx,
    /// The shape of the segments, if the agent is a TCP sender.
    pub tcp: Option<TcpShape>,
}

/// The properties of a TCP sender that determine its sequence numbers and options. They are needed because the model
/// counts segments instead of bytes.
#[derive(Clone, Copy)]
pub struct TcpShape {
    /// The size of a full segment as an IP packet, in bytes.
    pub packet: u64,
    /// The size of the IP and TCP headers of a full segment, in bytes.
    pub header: u64,
    /// Whether segments carry timestamps (RFC 7323).
    pub timestamps: bool,
}

/// The captures of links, with the packets that were offered to them.
pub(crate) struct Captures {
    files: Vec<LinkCapture>,
    agents: Vec<AgentInfo>,
    datagram: Vec<u8>,
    bytes: Vec<u8>,
    failed: Option<(String, io::Error)>,
}

struct LinkCapture {
    name: String,
    /// The two directions of the link.
    links: [u32; 2],
    file: CaptureFile,
}

impl Captures {
    pub(crate) fn new(agents: Vec<AgentInfo>) -> Self {
        Self { files: Vec::new(), agents, datagram: Vec::new(), bytes: Vec::new(), failed: None }
    }

    pub(crate) fn open(
        &mut self,
        scenario: &Scenario,
        link: LinkIx,
        open: &mut impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let spec = &scenario.links[link.0 as usize];
        let (a, b) = (scenario.node_name(spec.a), scenario.node_name(spec.b));
        let directions = [format!("{} {a} to {b}", spec.name), format!("{} {b} to {a}", spec.name)];
        let out = open(&spec.name).map_err(|error| (spec.name.clone(), error))?;
        let links = [DirIx::forward(link).0, DirIx::back(link).0];
        self.add(&spec.name, links, directions, out).map_err(|error| (spec.name.clone(), error))
    }

    fn add(
        &mut self,
        name: &str,
        links: [u32; 2],
        directions: [String; 2],
        out: Box<dyn Write + Send>,
    ) -> io::Result<()> {
        let program = concat!("steadycast ", env!("CARGO_PKG_VERSION"));
        let file = CaptureFile::new(out, program, &directions)?;
        self.files.push(LinkCapture { name: name.to_owned(), links, file });
        Ok(())
    }

    fn datagram(&mut self, packet: &Packet, ecn: Ecn) {
        if let Body::Raw(bytes) = &packet.body {
            self.datagram.clone_from(bytes);
            // Write the present ECN field into the copy, because an earlier link may have changed it.
            mark(&mut self.datagram, ecn);
            return;
        }
        let sender = self.agents[packet.head.from.0 as usize];
        let (to, peer) = match packet.head.to {
            To::One { agent, .. } => {
                let info = self.agents[agent.0 as usize];
                (host_address(info.node), Some((agent, info)))
            }
            To::Group(group) => (group_address(group), None),
        };
        let ports = match &packet.body {
            Body::Plain(_) => (agent_port(packet.head.from.0), DISCARD),
            Body::Tcp(..) => (agent_port(packet.head.from.0), IPERF),
            Body::TcpAck(..) => (IPERF, peer.map_or(FIRST_AGENT_PORT, |(agent, _)| agent_port(agent.0))),
            Body::Rtp(_) | Body::Parity(_) => (RTP, RTP),
            Body::Raw(_) => return,
            Body::Rtcp { .. } => (RTCP, RTCP),
        };
        let meta = Meta {
            from: Address { host: host_address(sender.node), port: ports.0 },
            to: Address { host: to, port: ports.1 },
            ecn: ecn.bits(),
        };
        let size = packet.head.size.get() as usize;
        match &packet.body {
            Body::Plain(_) => {
                self.bytes.clear();
                // Subtract 20 bytes for the IPv4 header and 8 for the UDP header.
                self.bytes.resize(size.saturating_sub(28), 0);
                udp(&meta, &self.bytes, &mut self.datagram);
            }
            Body::Raw(_) => {}
            Body::Rtp(media) => {
                // Fill the payload with zeros, because the model has no media data.
                let payload = vec![0; media.payload_len()];
                self.bytes.clear();
                media.encode(&payload, &mut self.bytes);
                udp(&meta, &self.bytes, &mut self.datagram);
            }
            Body::Parity(parity) => {
                let (media, protection) = &**parity;
                let mut payload = Vec::new();
                protection.header.write(&[], &mut payload);
                payload.resize(usize::from(media.header.payload_len), 0);
                self.bytes.clear();
                media.encode(&payload, &mut self.bytes);
                udp(&meta, &self.bytes, &mut self.datagram);
            }
            Body::Rtcp { bytes, .. } => udp(&meta, bytes, &mut self.datagram),
            Body::Tcp(_, segment) => {
                let header = sender.tcp.map_or_else(TcpHeader::default, |shape| shape.data(segment));
                tcp(&meta, &header, size, &mut self.datagram);
            }
            Body::TcpAck(_, ack) => {
                let shape = peer.and_then(|(_, info)| info.tcp);
                let header = shape.map_or_else(TcpHeader::default, |shape| shape.acknowledgment(ack, size as u64));
                tcp(&meta, &header, size, &mut self.datagram);
            }
        }
    }

    /// Records a packet whose fate is known. `ecn` is the ECN field on arrival at the link.
    pub(crate) fn on_packet(&mut self, link: u32, now: Time, packet: &Packet, ecn: Ecn, fate: Fate) {
        let Some(n) = self.files.iter().position(|tap| tap.links.contains(&link)) else { return };
        // Ignore further packets after an error. `finish` returns the error.
        if self.failed.is_some() {
            return;
        }
        self.datagram(packet, ecn);
        let tap = &mut self.files[n];
        // Record each direction as an interface of its own.
        let interface = u32::from(tap.links[1] == link);
        let comment = match fate {
            Fate::Arrives { ecn: after, .. } if after == ecn => None,
            Fate::Arrives { ecn: Ecn::NotEct, .. } => Some("cleared here: not ECN-capable any more"),
            Fate::Arrives { .. } => Some("marked here: congestion experienced"),
            Fate::Held(_) => None,
            Fate::Dropped(Drop::Full) => Some("dropped: the queue was full"),
            Fate::Dropped(Drop::Early) => Some("dropped: by the queue's discipline, before it was full"),
            Fate::Dropped(Drop::Stale) => Some("dropped: CoDel, after too long a wait"),
            Fate::Dropped(Drop::Policed) => Some("dropped: the policer, beyond its rate"),
            Fate::Dropped(Drop::Lost) => Some("lost on the link"),
            Fate::Dropped(Drop::TooLarge) => Some("dropped: larger than the MTU"),
        };
        if let Err(error) = tap.file.packet(interface, now, &self.datagram, comment) {
            self.failed = Some((tap.name.clone(), error));
        }
    }

    /// Completes the capture files. Returns the first error.
    pub(crate) fn finish(self) -> Result<(), (String, io::Error)> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        for tap in self.files {
            tap.file.finish().map_err(|error| (tap.name, error))?;
        }
        Ok(())
    }
}

impl TcpShape {
    fn payload(self) -> u32 {
        self.packet.saturating_sub(self.header).max(1) as u32
    }

    /// Returns the sequence number of the first byte of `segment`. The SYN has the number 0.
    fn byte(self, segment: u32) -> u32 {
        segment.saturating_sub(1).wrapping_mul(self.payload()).wrapping_add(u32::from(segment > 0))
    }

    fn timestamps(self, value: Time, echo: Time) -> Option<(u32, u32)> {
        self.timestamps.then(|| (millis(value), millis(echo)))
    }

    fn data(self, segment: &Segment) -> TcpHeader {
        let syn = segment.seq == 0;
        TcpHeader {
            seq: self.byte(segment.seq),
            // The data sender acknowledges only the SYN of its peer, because the peer sends no data.
            ack: u32::from(!syn),
            flags: Flags { syn, ack: !syn, ece: false, cwr: segment.cwr, psh: segment.push },
            window: u16::MAX,
            stamps: self.timestamps(segment.sent, Time::ZERO),
            sacks: [(0, 0); 3],
            room: self.header.saturating_sub(IP_TCP_HEADER) as usize,
        }
    }

    fn acknowledgment(self, ack: &Ack, size: u64) -> TcpHeader {
        TcpHeader {
            // The SYN has the number 0. All later segments in this direction have the number 1, because they have no
            // data.
            seq: 1,
            ack: self.byte(ack.next),
            flags: Flags { ack: true, ece: ack.ece, ..Flags::default() },
            window: u16::MAX,
            stamps: self.timestamps(ack.echo, ack.echo),
            sacks: ack.sacks.map(|b| if b.is_empty() { (0, 0) } else { (self.byte(b.start), self.byte(b.end)) }),
            room: size.saturating_sub(IP_TCP_HEADER) as usize,
        }
    }
}

fn millis(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

/// Returns the IPv4 address of a node. Emulations use the same address.
pub fn host_address(node: NodeIx) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 | node.0.wrapping_add(1) & 0x00ff_ffff)
}

/// Returns the multicast address of a group. The address is administratively scoped (RFC 2365).
pub fn group_address(group: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xef00_0000 | group.wrapping_add(1) & 0x00ff_ffff)
}

fn agent_port(agent: u32) -> u16 {
    FIRST_AGENT_PORT + (agent % 50_000) as u16
}
