//! What travels: one body in a pool, however many copies of it are on their way.

use std::sync::Arc;
use steadycast_link::Ecn;
use steadycast_session::Media;
use steadycast_units::{Bytes, Time};
use steadycast_wire::rtcp::Compound;

/// An agent: the end of a flow on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentIx(pub(crate) u32);

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// To this agent, on the way number so-and-so.
    One { agent: AgentIx, route: u32 },
    /// To all members of this group but the one that sent it.
    Group(u32),
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Nothing that anybody looks into; its number in the flow.
    Plain(u64),
    /// With the number of the transfer that it belongs to: what is late from an earlier one is another connection's.
    Tcp(u32, steadycast_tcp::Segment),
    TcpAck(u32, steadycast_tcp::Ack),
    /// RTP: the header as the session made it. Its encoded size is the packet's. Boxed because it is larger than any other body.
    Rtp(Box<Media>),
    /// RTCP, in its bytes. A group's members share the work of parsing them.
    Rtcp {
        bytes: Arc<[u8]>,
        parsed: Arc<Compound>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) to: To,
    pub(crate) from: AgentIx,
    pub(crate) size: Bytes,
    pub(crate) sent: Time,
    pub(crate) ecn: Ecn,
    pub(crate) body: Body,
}

/// A packet's place in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketIx(u32);

/// Packets that are on their way, each with the number of its copies. Places are used again, so that the pool is as large as
/// the most packets that were ever under way at once.
#[derive(Default)]
pub(crate) struct Pool {
    packets: Vec<(u32, Packet)>,
    free: Vec<u32>,
}

impl Pool {
    /// Takes a packet in, with one copy.
    pub(crate) fn put(&mut self, packet: Packet) -> PacketIx {
        match self.free.pop() {
            Some(ix) => {
                self.packets[ix as usize] = (1, packet);
                PacketIx(ix)
            }
            None => {
                self.packets.push((1, packet));
                PacketIx(self.packets.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn get(&self, ix: PacketIx) -> &Packet {
        &self.packets[ix.0 as usize].1
    }

    /// So many copies more.
    #[inline]
    pub(crate) fn copy(&mut self, ix: PacketIx, more: u32) {
        self.packets[ix.0 as usize].0 += more;
    }

    /// One copy less; without any the place is free.
    #[inline]
    pub(crate) fn release(&mut self, ix: PacketIx) {
        let copies = &mut self.packets[ix.0 as usize].0;
        *copies -= 1;
        if *copies == 0 {
            self.free.push(ix.0);
        }
    }
}
