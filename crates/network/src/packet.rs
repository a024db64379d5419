//! What travels: one body in a pool, however many copies of it are on their way.

use crate::net::PathIx;
use steadycast_ends::{AgentIx, Arriving, Body};
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Time};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To this agent, on this path.
    One {
        /// The agent.
        agent: AgentIx,
        /// The links on the way to it.
        path: PathIx,
    },
    /// To all members of this group but the one that sent it.
    Group(u32),
}

/// What is known of a packet besides its body.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Where it goes.
    pub to: To,
    /// The agent that sent it.
    pub from: AgentIx,
    /// IP size.
    pub size: Bytes,
    /// When it left its agent.
    pub sent: Time,
    /// Its ECN field as it was sent.
    pub ecn: Ecn,
}

/// A packet: what the network knows of it, and what it carries.
#[derive(Clone, Debug)]
pub struct Packet {
    /// What the network knows of it.
    pub head: Head,
    /// What it carries.
    pub body: Body,
}

impl Packet {
    /// The packet as it reaches an agent, with the ECN field that it has by then.
    #[inline]
    pub fn arriving(&self, ecn: Ecn) -> Arriving<'_> {
        let Head { from, size, sent, .. } = self.head;
        Arriving { from, size, sent, ecn, body: &self.body }
    }

    /// A number that tells flows apart, for queues that do: who sent it, or what a datagram's headers say.
    pub(crate) fn flow(&self) -> u64 {
        match &self.body {
            Body::Raw(bytes) => datagram_flow(bytes),
            _ => u64::from(self.head.from.0),
        }
    }
}

/// Addresses, protocol and ports of an IPv4 datagram, mixed (FNV-1a). Fragments beyond the first show no ports: none
/// has any here.
fn datagram_flow(bytes: &[u8]) -> u64 {
    let header = 4 * usize::from(bytes.first().map_or(0, |b| b & 15));
    let protocol = bytes.get(9).copied().unwrap_or_default();
    let whole = bytes.get(6..8).is_some_and(|b| b[0] & 0x3f == 0 && b[1] == 0);
    let ports = matches!(protocol, 6 | 17 | 33 | 132 | 136) && whole;
    let ports = if ports { bytes.get(header..header + 4) } else { None };
    let addresses = bytes.get(12..20).unwrap_or_default();
    let all = addresses.iter().chain(ports.unwrap_or_default()).chain([&protocol]);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A packet's place in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketIx(pub(crate) u32);

/// Packets that are on their way, each with the number of its copies. Places are used again, so that the pool is as
/// large as the most packets that were ever under way at once.
pub(crate) struct Pool {
    /// Each with the number of its copies; a free one with the place of the next free one instead.
    packets: Vec<(u32, Packet)>,
    /// The first free place, or [`NONE`].
    free: u32,
}

/// No place.
const NONE: u32 = u32::MAX;

impl Default for Pool {
    fn default() -> Self {
        Self { packets: Vec::new(), free: NONE }
    }
}

impl Pool {
    /// Takes a packet in, with one copy.
    ///
    /// The body is made where it is to stand: made before, it would be put together in memory, read back at once and
    /// written again.
    #[inline(always)]
    pub(crate) fn put(&mut self, head: Head, body: impl FnOnce() -> Body) -> PacketIx {
        let ix = self.free;
        let Some((copies, packet)) = self.packets.get_mut(ix as usize) else {
            self.packets.push((1, Packet { head, body: body() }));
            return PacketIx(self.packets.len() as u32 - 1);
        };
        self.free = std::mem::replace(copies, 1);
        packet.head = head;
        // What owns no memory needs not be dropped.
        if let Body::Tcp(..) | Body::TcpAck(..) | Body::Plain(..) = packet.body {
            std::mem::forget(std::mem::replace(&mut packet.body, body()));
        } else {
            packet.body = body();
        }
        PacketIx(ix)
    }

    /// Where the next packet will be.
    pub(crate) fn next(&self) -> PacketIx {
        PacketIx(self.free.min(self.packets.len() as u32))
    }

    pub(crate) fn get(&self, ix: PacketIx) -> &Packet {
        &self.packets[ix.0 as usize].1
    }

    /// Adds `more` copies.
    #[inline]
    pub(crate) fn copy(&mut self, ix: PacketIx, more: u32) {
        self.packets[ix.0 as usize].0 += more;
    }

    /// One copy less; without any the place is free.
    #[inline]
    pub(crate) fn release(&mut self, ix: PacketIx) {
        self.release_all(ix, 1);
    }

    /// Takes `less` copies away.
    #[inline]
    pub(crate) fn release_all(&mut self, ix: PacketIx, less: u32) {
        let copies = &mut self.packets[ix.0 as usize].0;
        *copies -= less;
        if *copies == 0 {
            *copies = std::mem::replace(&mut self.free, ix.0);
        }
    }
}
