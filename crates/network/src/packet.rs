//! Packets in a pool, with a count of the copies of each packet.

use crate::net::PathIx;
use steadycast_endpoints::{AgentIx, Arriving, Body};
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Time};

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One agent.
    One {
        /// The agent that receives the packet.
        agent: AgentIx,
        /// The path to the agent.
        path: PathIx,
    },
    /// All members of a group except the sender.
    Group(u32),
}

/// The header fields of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The destination.
    pub to: To,
    /// The sending agent.
    pub from: AgentIx,
    /// The size of the IP packet in bytes.
    pub size: Bytes,
    /// When the packet was sent.
    pub sent: Time,
    /// The ECN field when the packet was sent.
    pub ecn: Ecn,
}

/// A packet, which has a header and a body.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The header.
    pub head: Head,
    /// The body.
    pub body: Body,
}

impl Packet {
    /// Returns the packet in the form in which an agent receives it. `ecn` is the ECN field on arrival.
    #[inline]
    pub fn arriving(&self, ecn: Ecn) -> Arriving<'_> {
        let Head { from, size, sent, .. } = self.head;
        Arriving { from, size, sent: Some(sent), ecn, body: &self.body }
    }

    /// Returns the number of the flow, for fair queueing. It is the sending agent, or for datagrams a hash of addresses
    /// and ports.
    pub(crate) fn flow(&self) -> u64 {
        match &self.body {
            Body::Raw(bytes) => datagram_flow(bytes),
            _ => u64::from(self.head.from.0),
        }
    }
}

/// Returns a hash of the addresses, the protocol and the ports of an IPv4 datagram (FNV-1a). The ports of fragments are
/// left out, because only the first fragment has ports.
fn datagram_flow(bytes: &[u8]) -> u64 {
    let header = 4 * usize::from(bytes.first().map_or(0, |b| b & 15));
    let protocol = bytes.get(9).copied().unwrap_or_default();
    // Whether the datagram is whole. A fragment has an offset, or the flag for more fragments (RFC 791, section 3.1).
    let whole = bytes.get(6..8).is_some_and(|b| b[0] & 0x3f == 0 && b[1] == 0);
    // Hash the ports only of TCP, UDP, DCCP, SCTP and UDP-Lite, because their headers begin with both ports.
    let ports = matches!(protocol, 6 | 17 | 33 | 132 | 136) && whole;
    let ports = if ports { bytes.get(header..header + 4) } else { None };
    let addresses = bytes.get(12..20).unwrap_or_default();
    let all = addresses.iter().chain(ports.unwrap_or_default()).chain([&protocol]);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A packet's index in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketIx(pub(crate) u32);

/// A store of packets, which reuses free slots.
pub(crate) struct Pool {
    /// Each packet, with the number of its copies. In a free slot, the number is the index of the next free slot.
    packets: Vec<(u32, Packet)>,
    /// The index of the first free slot, or [`NONE`].
    free: u32,
}

const NONE: u32 = u32::MAX;

impl Default for Pool {
    fn default() -> Self {
        Self { packets: Vec::new(), free: NONE }
    }
}

impl Pool {
    /// Adds a packet. Builds the body directly in its slot, which avoids a copy on the stack.
    #[inline(always)]
    pub(crate) fn put(&mut self, head: Head, body: impl FnOnce() -> Body) -> PacketIx {
        let ix = self.free;
        let Some((copies, packet)) = self.packets.get_mut(ix as usize) else {
            self.packets.push((1, Packet { head, body: body() }));
            return PacketIx(self.packets.len() as u32 - 1);
        };
        self.free = std::mem::replace(copies, 1);
        packet.head = head;
        // Skip the drop of the old body if it has no heap memory.
        if let Body::Tcp(..) | Body::TcpAck(..) | Body::Plain(..) = packet.body {
            std::mem::forget(std::mem::replace(&mut packet.body, body()));
        } else {
            packet.body = body();
        }
        PacketIx(ix)
    }

    pub(crate) fn next(&self) -> PacketIx {
        PacketIx(self.free.min(self.packets.len() as u32))
    }

    pub(crate) fn get(&self, ix: PacketIx) -> &Packet {
        &self.packets[ix.0 as usize].1
    }

    #[inline]
    pub(crate) fn copy(&mut self, ix: PacketIx, more: u32) {
        self.packets[ix.0 as usize].0 += more;
    }

    /// Removes one copy of a packet. The removal of the last copy frees the slot.
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
