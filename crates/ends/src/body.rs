//! What travels between agents.

use std::sync::Arc;
use steadycast_link::Ecn;
use steadycast_session::{Media, Protection};
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtcp::Compound;

/// An agent: the end of a flow on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentIx(pub u32);

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// Nothing that anybody looks into; its number in the flow.
    Plain(u64),
    /// With the number of the transfer that it belongs to: what is late from an earlier one is another connection's.
    Tcp(u32, steadycast_tcp::Segment),
    /// Its acknowledgement, with the same number.
    TcpAck(u32, steadycast_tcp::Ack),
    /// RTP: the header as the session made it. Its encoded size is the packet's. Boxed because it is larger than any
    /// other body.
    Rtp(Box<Media>),
    /// The same with a payload of parity, and what that covers: simulated packets have no bytes to compute it from.
    /// Over sockets the bytes say so, and [`Protection::packets`] is empty where they arrive.
    Parity(Box<(Media, Protection)>),
    /// RTCP, in its bytes. A group's members share the work of parsing them.
    Rtcp {
        /// The datagram.
        bytes: Arc<[u8]>,
        /// What stands in it.
        parsed: Arc<Compound>,
    },
    /// A whole IP datagram, of hosts that are not ours.
    Raw(Vec<u8>),
}

/// A packet that has reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// Who sent it.
    pub from: AgentIx,
    /// IP size.
    pub size: Bytes,
    /// When it left.
    pub sent: Time,
    /// Its ECN field on arrival.
    pub ecn: Ecn,
    /// What it carries.
    pub body: &'a Body,
}
