//! The packets that agents exchange.

use std::sync::Arc;
use steadycast_link::Ecn;
use steadycast_session::{Media, Protection};
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtcp::Compound;

/// The index of an agent. An agent is one end of a flow on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentIx(pub u32);

/// The content of a packet.
#[derive(Clone, Debug)]
pub enum Body {
    /// A packet of plain traffic. The value is the packet's number in the flow.
    Plain(u64),
    /// A TCP segment. The first value is the number of the transfer, which identifies the connection.
    Tcp(u32, steadycast_tcp::Segment),
    /// A TCP acknowledgment. The first value is the number of the transfer.
    TcpAck(u32, steadycast_tcp::Ack),
    /// An RTP packet, boxed because of its size.
    Rtp(Box<Media>),
    /// A parity packet and a list of the packets that it protects. If the packet arrived on a socket,
    /// [`Protection::packets`] is empty, because the receiver reads the packets' headers from recovered bytes.
    Parity(Box<(Media, Protection)>),
    /// An RTCP compound. All members of a group share the parsed form.
    Rtcp {
        /// The datagram.
        bytes: Arc<[u8]>,
        /// The parsed compound.
        parsed: Arc<Compound>,
    },
    /// A complete IP datagram from a host that does not run Steadycast.
    Raw(Vec<u8>),
}

/// A packet that has reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// The sending agent.
    pub from: AgentIx,
    /// Size of the IP packet.
    pub size: Bytes,
    /// When the packet was sent. `None` if the packet does not say so, for example in packets of
    /// other programs.
    pub sent: Option<Time>,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The content.
    pub body: &'a Body,
}
