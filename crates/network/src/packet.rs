//! Packets in a pool. Each packet has one body, and a count of its copies in flight.

use crate::net::PathIx;
use steadycast_endpoints::{AgentIx, Arriving, Body};
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Time};

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One agent, on this path.
    One {
        /// The agent that receives the packet.
        agent: AgentIx,
        /// The path to the agent.
        path: PathIx,
    },
    /// All members of this group except the sender.
    Group(u32),
}

/// A packet's header fields.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The packet's destination.
    pub to: To,
    /// The agent that sends the packet.
    pub from: AgentIx,
    /// The size of the IP packet.
    pub size: Bytes,
    /// The time at which the agent sent the packet.
    pub sent: Time,
    /// The packet's ECN field when it was sent.
    pub ecn: Ecn,
}

/// A packet: header and body.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The packet's header fields.
    pub head: Head,
    /// The packet's body.
    pub body: Body,
}

impl Packet {
    /// Returns the packet as an agent receives it. `ecn` is its ECN field on arrival.
    #[inline]
    pub fn arriving(&self, ecn: Ecn) -> Arriving<'_> {
        let Head { from, size, sent, .. } = self.head;
        Arriving { from, size, sent, ecn, body: &self.body }
    }

    /// Returns the flow number for fair queueing: the sending agent, or a hash of a datagram's addresses and ports.
    pub(crate) fn flow(&self) -> u64 {
        match &self.body {
            Body::Raw(bytes) => datagram_flow(bytes),
            _ => u64::from(self.head.from.0),
        }
    }
}

/// Hashes addresses, protocol and ports of an IPv4 datagram (FNV-1a). The ports of a fragmented datagram are ignored,
/// because only its first fragment has them.
fn datagram_flow(bytes: &[u8]) -> u64 {
    let header = 4 * usize::from(bytes.first().map_or(0, |b| b & 15));
    let protocol = bytes.get(9).copied().unwrap_or_default();
    // Neither the more-fragments flag nor a fragment offset is set (RFC 791, section 3.1).
    let whole = bytes.get(6..8).is_some_and(|b| b[0] & 0x3f == 0 && b[1] == 0);
    // TCP, UDP, DCCP, SCTP and UDP-Lite have both ports in their first four bytes.
    let ports = matches!(protocol, 6 | 17 | 33 | 132 | 136) && whole;
    let ports = if ports { bytes.get(header..header + 4) } else { None };
    let addresses = bytes.get(12..20).unwrap_or_default();
    let all = addresses.iter().chain(ports.unwrap_or_default()).chain([&protocol]);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A packet's index in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketIx(pub(crate) u32);

/// The packets in flight, each with the number of its copies. Slots are reused, so the pool is as large as the largest
/// number of packets that were in flight at the same time.
pub(crate) struct Pool {
    /// The packets with the numbers of their copies. A free slot has the index of the next free slot instead.
    packets: Vec<(u32, Packet)>,
    /// The first free slot, or [`NONE`].
    free: u32,
}

/// The index that stands for "no slot".
const NONE: u32 = u32::MAX;

impl Default for Pool {
    fn default() -> Self {
        Self { packets: Vec::new(), free: NONE }
    }
}

impl Pool {
    /// Adds a packet with one copy.
    ///
    /// The body is constructed directly in its slot. If it were constructed before, it would be written to the stack,
    /// read back and written again.
    #[inline(always)]
    pub(crate) fn put(&mut self, head: Head, body: impl FnOnce() -> Body) -> PacketIx {
        let ix = self.free;
        let Some((copies, packet)) = self.packets.get_mut(ix as usize) else {
            self.packets.push((1, Packet { head, body: body() }));
            return PacketIx(self.packets.len() as u32 - 1);
        };
        self.free = std::mem::replace(copies, 1);
        packet.head = head;
        // A body without heap memory needs no drop.
        if let Body::Tcp(..) | Body::TcpAck(..) | Body::Plain(..) = packet.body {
            std::mem::forget(std::mem::replace(&mut packet.body, body()));
        } else {
            packet.body = body();
        }
        PacketIx(ix)
    }

    /// Returns the index that the next packet will have.
    pub(crate) fn next(&self) -> PacketIx {
        PacketIx(self.free.min(self.packets.len() as u32))
    }

    pub(crate) fn get(&self, ix: PacketIx) -> &Packet {
        &self.packets[ix.0 as usize].1
    }

    /// Adds `more` copies of a packet.
    #[inline]
    pub(crate) fn copy(&mut self, ix: PacketIx, more: u32) {
        self.packets[ix.0 as usize].0 += more;
    }

    /// Removes one copy. Without copies, the slot becomes free.
    #[inline]
    pub(crate) fn release(&mut self, ix: PacketIx) {
        self.release_copies(ix, 1);
    }

    #[inline]
    pub(crate) fn release_copies(&mut self, ix: PacketIx, less: u32) {
        let copies = &mut self.packets[ix.0 as usize].0;
        *copies -= less;
        if *copies == 0 {
            *copies = std::mem::replace(&mut self.free, ix.0);
        }
    }
}
