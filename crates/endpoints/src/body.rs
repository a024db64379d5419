//! The packets that agents exchange.

use std::sync::Arc;
use steadycast_link::Ecn;
use steadycast_session::{Media, Protection};
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtcp::Compound;

/// The index of an agent. An agent is one end of a flow, on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentIx(pub u32);

/// The content of a packet.
#[derive(Clone, Debug)]
pub enum Body {
    /// A packet of plain traffic, with the packet's number in the flow. The payload is not used.
    Plain(u64),
    /// A TCP segment with the number of its transfer. A late segment of an earlier transfer belongs to another
    /// connection.
    Tcp(u32, steadycast_tcp::Segment),
    /// A TCP acknowledgment with the number of its transfer.
    TcpAck(u32, steadycast_tcp::Ack),
    /// An RTP packet with the session's header. The encoded header and payload have the size of the packet. The content
    /// is boxed because it is larger than any other content.
    Rtp(Box<Media>),
    /// An RTP packet with parity, and the description of the packets that it covers. Simulated packets have no bytes
    /// from which the description could be read. Over sockets the bytes contain it, and [`Protection::packets`] is
    /// empty on arrival.
    Parity(Box<(Media, Protection)>),
    /// An RTCP compound, as bytes and parsed. The members of a group share the parsed form.
    Rtcp {
        /// The datagram.
        bytes: Arc<[u8]>,
        /// The parsed compound.
        parsed: Arc<Compound>,
    },
    /// A whole IP datagram of a host that does not run Steadycast.
    Raw(Vec<u8>),
}

/// A packet that has reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// The agent that sent the packet.
    pub from: AgentIx,
    /// The packet's IP size.
    pub size: Bytes,
    /// The time at which the packet was sent.
    pub sent: Time,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The packet's content.
    pub body: &'a Body,
}
