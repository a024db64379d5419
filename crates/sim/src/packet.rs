//! What travels: one body in a pool, however many copies of it are on their way.

use crate::net::Place;
use steadycast_ends::{AgentIx, Arriving, Body};
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Time};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// To this agent, on this way.
    One { agent: AgentIx, way: Place },
    /// To all members of this group but the one that sent it.
    Group(u32),
}

/// What is known of a packet besides its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) to: To,
    pub(crate) from: AgentIx,
    pub(crate) size: Bytes,
    pub(crate) sent: Time,
    pub(crate) ecn: Ecn,
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) head: Head,
    pub(crate) body: Body,
}

impl Packet {
    /// As it reaches an agent.
    #[inline]
    pub(crate) fn arriving(&self, ecn: Ecn) -> Arriving<'_> {
        let Head { from, size, sent, .. } = self.head;
        Arriving { from, size, sent, ecn, body: &self.body }
    }
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
    ///
    /// The body is made where it is to stand: made before, it would be put together in memory, read back at once and written again.
    #[inline(always)]
    pub(crate) fn put(&mut self, head: Head, body: impl FnOnce() -> Body) -> PacketIx {
        let Some(ix) = self.free.pop() else {
            self.packets.push((1, Packet { head, body: body() }));
            return PacketIx(self.packets.len() as u32 - 1);
        };
        let (copies, packet) = &mut self.packets[ix as usize];
        (*copies, packet.head) = (1, head);
        drop(std::mem::replace(&mut packet.body, body()));
        PacketIx(ix)
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
        self.release_all(ix, 1);
    }

    /// So many copies less.
    #[inline]
    pub(crate) fn release_all(&mut self, ix: PacketIx, less: u32) {
        let copies = &mut self.packets[ix.0 as usize].0;
        *copies -= less;
        if *copies == 0 {
            self.free.push(ix.0);
        }
    }
}
