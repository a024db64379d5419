//! The packets that arrived only as repairs.

use crate::Rows;
use std::collections::BTreeMap;
use steadycast_record::row;
use steadycast_units::Time;

/// Maximum number of packets in [`Repaired::newest`]. The originals of older packets are no longer expected.
const MAX_TRACKED_REPAIRS: usize = 4_096;

/// The packets that have arrived as repairs, but whose originals have not arrived.
#[derive(Debug, Default)]
pub struct Repaired {
    /// The newest packets, by the session's extended sequence number.
    newest: BTreeMap<u64, RepairedRow>,
    /// The SSRC that these sequence numbers belong to.
    source: Option<u32>,
    older: Rows<RepairedRow>,
    before: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RepairedRow {
    at: Time,
    frame: u32,
}

row!(RepairedRow { at, frame });

impl Repaired {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.before + self.newest.len()
    }

    /// Returns whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the arrival time and frame of each packet, in no particular order. Rows that were moved to a store are
    /// missing until `StoredRows::recall` reads them back.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Time, u32)> + '_ {
        self.older.iter().chain(self.newest.values()).map(|row| (row.at, row.frame))
    }

    pub(super) fn rows(&mut self) -> &mut Rows<RepairedRow> {
        &mut self.older
    }

    pub(super) fn insert(&mut self, number: u64, at: Time, frame: u32) {
        self.newest.insert(number, RepairedRow { at, frame });
        if self.newest.len() > MAX_TRACKED_REPAIRS
            && let Some((_, oldest)) = self.newest.pop_first()
        {
            self.settle(oldest);
        }
    }

    /// Removes a packet whose original has arrived. Returns whether the packet was present.
    pub(super) fn remove(&mut self, source: u32, number: u64) -> bool {
        if self.source.replace(source) != Some(source) {
            self.restart();
        }
        self.newest.remove(&number).is_some()
    }

    /// Begins a new range of sequence numbers. The packets so far can no longer be removed.
    pub(super) fn restart(&mut self) {
        for row in std::mem::take(&mut self.newest).into_values() {
            self.settle(row);
        }
    }

    fn settle(&mut self, row: RepairedRow) {
        self.older.push(row);
        self.before += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_any_number_of_repaired_packets_the_newest_are_known_by_their_numbers_and_all_are_counted() {
        let mut repaired = Repaired::default();
        repaired.remove(1, 0);
        for n in 0..10_000 {
            repaired.insert(n, Time::from_nanos(n), n as u32);
            assert!(repaired.newest.len() <= MAX_TRACKED_REPAIRS && repaired.len() == n as usize + 1);
        }
        assert!(repaired.remove(1, 9_000) && !repaired.remove(1, 9_000) && !repaired.remove(1, 100));
        assert_eq!((repaired.len(), repaired.iter().count()), (9_999, 9_999));
        // The packets of another source have other sequence numbers, so this packet is not found.
        assert!(!repaired.remove(2, 9_001));
        assert_eq!((repaired.len(), repaired.iter().count()), (9_999, 9_999));
        let mut frames: Vec<u32> = repaired.iter().map(|(_, frame)| frame).collect();
        frames.sort_unstable();
        assert_eq!(frames, (0..10_000).filter(|n| *n != 9_000).collect::<Vec<u32>>());
    }
}
