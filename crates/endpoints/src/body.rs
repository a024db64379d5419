//! The packets that agents exchange.

use std::sync::Arc;
use steadycast_link::Ecn;
use steadycast_session::{Media, Protection};
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtcp::Compound;

/// The index of an agent, one end of a flow on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentIx(pub u32);

/// The content of a packet.
#[derive(Clone, Debug)]
pub enum Body {
    /// A packet of plain traffic, with its number in the flow.
    Plain(u64),
    /// A TCP segment with its transfer's number, which identifies the connection.
    Tcp(u32, steadycast_tcp::Segment),
    /// A TCP acknowledgment with its transfer's number.
    TcpAck(u32, steadycast_tcp::Ack),
    /// An RTP packet, boxed because of its size.
    Rtp(Box<Media>),
    /// A parity packet, and the packets that it protects. Over sockets, [`Protection::packets`] is empty on arrival,
    /// because the receiver reads the packets' headers from recovered bytes.
    Parity(Box<(Media, Protection)>),
    /// An RTCP compound. A group's members share the parsed form.
    Rtcp {
        /// The datagram.
        bytes: Arc<[u8]>,
        /// The parsed compound.
        parsed: Arc<Compound>,
    },
    /// A whole IP datagram of a host without Steadycast.
    Raw(Vec<u8>),
}

/// A packet that has reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// The sending agent.
    pub from: AgentIx,
    /// The IP size.
    pub size: Bytes,
    /// The time of departure.
    pub sent: Time,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The content.
    pub body: &'a Body,
}
