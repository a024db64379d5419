//! The receivers that a sender has heard of.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::Time;

/// One that has reported.
pub(crate) struct Peer {
    pub(crate) from: Origin,
    /// It has sent a report of the controller's own.
    ours: bool,
    heard: Time,
    /// Its last block: what the next one is counted from.
    pub(crate) highest: Option<u32>,
    pub(crate) cumulative: i32,
}

/// All that report, up to a bound: whoever makes SSRCs up gets no more memory than that. The one that was heard longest ago makes room;
/// should it be a true one, it is taken in again with its next report.
#[derive(Default)]
pub(crate) struct Peers {
    table: BTreeMap<u32, Peer>,
    /// By when they were heard: those that send standard reports alone, and those that have sent one of the controller's own.
    by_age: [BTreeSet<(Time, u32)>; 2],
}

impl Peers {
    /// More than the largest groups that Steadycast is made for.
    pub(crate) const MOST: usize = 1 << 17;

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whom a newcomer displaces, if anybody.
    pub(crate) fn make_room_for(&mut self, ssrc: u32) -> Option<u32> {
        if self.table.len() < Self::MOST || self.table.contains_key(&ssrc) {
            return None;
        }
        self.pop_oldest()
    }

    /// A report has arrived; `ours`: with the controller's own.
    pub(crate) fn hear(&mut self, now: Time, from: Origin, ssrc: u32, ours: bool) -> &mut Peer {
        let new = Peer { from, ours, heard: now, highest: None, cumulative: 0 };
        let peer = self.table.entry(ssrc).or_insert(new);
        self.by_age[usize::from(peer.ours)].remove(&(peer.heard, ssrc));
        (peer.heard, peer.ours) = (now, peer.ours || ours);
        self.by_age[usize::from(peer.ours)].insert((now, ssrc));
        peer
    }

    pub(crate) fn get(&self, ssrc: u32) -> Option<&Peer> {
        self.table.get(&ssrc)
    }

    pub(crate) fn remove(&mut self, ssrc: u32) {
        if let Some(peer) = self.table.remove(&ssrc) {
            self.by_age[usize::from(peer.ours)].remove(&(peer.heard, ssrc));
        }
    }

    /// Takes out one that was heard before its limit, as long as there is one.
    pub(crate) fn pop_silent(&mut self, ours: Time, standard: Time) -> Option<u32> {
        let mut kinds = self.by_age.iter_mut().zip([standard, ours]);
        let (_, ssrc) = kinds.find_map(|(kind, limit)| {
            kind.first().is_some_and(|(heard, _)| *heard < limit).then(|| kind.pop_first()).flatten()
        })?;
        self.table.remove(&ssrc);
        Some(ssrc)
    }

    fn pop_oldest(&mut self) -> Option<u32> {
        let [standard, ours] = &mut self.by_age;
        let first = if ours.first().is_none_or(|o| standard.first().is_some_and(|s| s < o)) { standard } else { ours };
        let (_, ssrc) = first.pop_first()?;
        self.table.remove(&ssrc);
        Some(ssrc)
    }
}
