use crate::sliding_bitmap::{SlidingBitmap, count_below};
use crate::wire::Block;

/// DupThresh of RFC 6675: a hole is lost when this number of segments above it has arrived.
pub(crate) const DUP_THRESH: u32 = 3;

/// The SACK scoreboard (RFC 6675). It describes the segments from the cumulative acknowledgment to the highest segment
/// sent. A hole is a segment that was sent but has not been SACKed.
///
/// Every hole below the third highest SACKed segment is lost, because all segments have the same size. Holes are
/// retransmitted in ascending order. Therefore `lost_to` and `retransmitted_to` suffice, and no state per segment is
/// needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    una: u32,
    max: u32,
    sacked: SlidingBitmap,
    sacked_count: u32,
    /// One past the highest SACKed segment.
    sacked_to: u32,
    /// Holes below this number are lost.
    pub(crate) lost_to: u32,
    lost_count: u32,
    /// Holes below this number were retransmitted in this recovery.
    retransmitted_to: u32,
    retransmitted_count: u32,
    /// Number of holes whose retransmission was lost.
    lost_retransmissions: u32,
}

impl Scoreboard {
    pub(crate) fn on_sent_to(&mut self, max: u32) {
        self.max = self.max.max(max);
    }

    /// Moves the cumulative acknowledgment to `una`. Returns how many of the newly acknowledged segments were not
    /// SACKed before.
    #[inline]
    pub(crate) fn advance(&mut self, una: u32) -> u32 {
        let all = una - self.una;
        // There is nothing to remove if no segment is SACKed, lost or retransmitted. Skip the slow part then.
        let known = if self.sacked_count > 0 || self.lost_to.max(self.retransmitted_to) > self.una {
            self.remove_below(una)
        } else {
            0
        };
        self.una = una;
        all - known
    }

    /// Removes the segments below `una`. Returns how many of them were SACKed.
    #[inline(never)]
    fn remove_below(&mut self, una: u32) -> u32 {
        self.lost_count -= self.unsacked(self.una, una.min(self.lost_to));
        self.retransmitted_count -= self.unsacked(self.una, una.min(self.retransmitted_to));
        let sacked_to = una.min(self.sacked_to);
        let known = self.sacked.count(self.una, sacked_to);
        self.sacked_count -= known;
        self.sacked.clear_range(self.una, sacked_to);
        known
    }

    /// Processes SACK blocks. Returns how many segments they report for the first time.
    #[inline]
    pub(crate) fn apply_sacks(&mut self, blocks: &[Block; 3]) -> u32 {
        if blocks.iter().all(|block| block.is_empty()) { 0 } else { self.apply_nonempty_sacks(blocks) }
    }

    #[inline(never)]
    fn apply_nonempty_sacks(&mut self, blocks: &[Block; 3]) -> u32 {
        let mut fresh_count = 0;
        for block in blocks {
            // Skip the part below the cumulative acknowledgment, which is old. Also skip the part above the highest
            // segment sent, which is invalid.
            let (start, end) = (block.start.max(self.una), block.end.min(self.max));
            if start >= end {
                continue;
            }
            self.sacked.reserve(self.una, self.max);
            // Visit only the new segments of a block, to keep the cost low.
            let (lost_to, retransmitted_to) = (self.lost_to, self.retransmitted_to);
            let (mut lost, mut retransmitted) = (0, 0);
            let before = fresh_count;
            self.sacked.set_range(start, end, |word, fresh| {
                fresh_count += fresh.count_ones();
                lost += count_below(word, fresh, lost_to);
                retransmitted += count_below(word, fresh, retransmitted_to);
            });
            self.sacked_count += fresh_count - before;
            self.lost_count -= lost;
            self.retransmitted_count -= retransmitted;
            self.sacked_to = self.sacked_to.max(end);
        }
        // Update which holes are lost (RFC 6675, IsLost).
        if fresh_count > 0
            && let Some(limit) = self.sacked.nth_set_from_top(self.una, self.sacked_to, DUP_THRESH)
        {
            self.lose_to(limit);
        }
        fresh_count
    }

    fn lose_to(&mut self, limit: u32) {
        if limit > self.lost_to {
            self.lost_count += self.unsacked(self.lost_to.max(self.una), limit);
            self.lost_to = limit;
        }
    }

    /// Treats all holes below the highest SACKed segment as lost. This is RACK without a reordering window, as in
    /// Linux's recovery.
    pub(crate) fn lose_below_highest_sack(&mut self) {
        if self.sacked_count > 0 {
            self.lose_to(self.sacked_to);
        }
    }

    /// Treats all outstanding segments as lost and not retransmitted. The SACKs are dropped if the receiver has
    /// discarded data (RFC 2018, section 8).
    pub(crate) fn lose_all(&mut self) {
        self.sacked.reserve(self.una, self.max);
        // If the receiver has SACKed `una` but does not acknowledge this segment, it has discarded data.
        if self.sacked_count > 0 && self.sacked.get(self.una) {
            self.sacked.clear_range(self.una, self.sacked_to);
            self.sacked_count = 0;
            self.sacked_to = self.una;
            self.lost_to = self.una;
            self.lost_count = 0;
        }
        self.lose_to(self.max);
        self.reset_retransmitted();
    }

    pub(crate) fn reset_retransmitted(&mut self) {
        self.retransmitted_to = self.una;
        self.retransmitted_count = 0;
        self.lost_retransmissions = 0;
    }

    pub(crate) fn has_arrived(&self, seq: u32) -> bool {
        seq < self.una || (seq < self.sacked_to && self.sacked_count > 0 && self.sacked.get(seq))
    }

    pub(crate) fn highest_arrived(&self) -> u32 {
        self.sacked_to.max(self.una)
    }

    pub(crate) fn set_lost_retransmissions(&mut self, count: usize) {
        self.lost_retransmissions = count as u32;
    }

    /// Returns the lowest lost hole that has not been retransmitted (RFC 6675, NextSeg rule 1).
    pub(crate) fn next_lost(&mut self) -> Option<u32> {
        self.next_hole(self.lost_to)
    }

    /// Returns the lowest hole that has not been retransmitted, even if it is not lost (RFC 6675, NextSeg rule 3).
    pub(crate) fn next_unretransmitted_hole(&mut self) -> Option<u32> {
        self.next_hole(self.sacked_to)
    }

    fn next_hole(&mut self, limit: u32) -> Option<u32> {
        let from = self.retransmitted_to.max(self.una);
        if from >= limit {
            return None;
        }
        if self.sacked_count == 0 { Some(from) } else { self.sacked.first_clear(from, limit) }
    }

    /// Records a retransmission. `seq` is a hole or the first unacknowledged segment.
    pub(crate) fn on_retransmit(&mut self, seq: u32) {
        // Holes are retransmitted in ascending order. Do not count a lower number again.
        if seq >= self.retransmitted_to.max(self.una) {
            self.retransmitted_to = seq + 1;
            self.retransmitted_count += 1;
        }
    }

    pub(crate) fn is_first_lost(&self) -> bool {
        self.lost_to > self.una
    }

    /// Returns the number of segments in flight (RFC 6675, SetPipe).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.max - self.una - self.sacked_count - self.lost_count + self.retransmitted_count - self.lost_retransmissions
    }

    fn unsacked(&self, low: u32, high: u32) -> u32 {
        if low >= high {
            0
        } else if self.sacked_count == 0 {
            high - low
        } else {
            high - low - self.sacked.count(low, high.min(self.sacked_to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simple scoreboard that examines every segment, as RFC 6675 describes it.
    #[derive(Default)]
    struct Plain {
        una: u32,
        max: u32,
        sacked: Vec<bool>,
        retransmitted: Vec<bool>,
        declared: u32,
    }

    impl Plain {
        fn lost(&self, n: u32) -> bool {
            n < self.declared || (n + 1..self.max).filter(|m| self.sacked[*m as usize]).count() >= 3
        }
        fn pipe(&self) -> u32 {
            (self.una..self.max)
                .filter(|n| !self.sacked[*n as usize])
                .map(|n| u32::from(!self.lost(n)) + u32::from(self.retransmitted[n as usize]))
                .sum()
        }
    }

    proptest! {
        #[test]
        fn counts_and_limits_tell_what_a_walk_over_the_board_tells(
            steps in prop::collection::vec((0u8..6, 0u32..60, 1u32..9), 1..120),
        ) {
            let mut board = Scoreboard::default();
            let mut plain = Plain { sacked: vec![false; 8000], retransmitted: vec![false; 8000], ..Plain::default() };
            for (kind, at, len) in steps {
                match kind {
                    0 | 1 => {
                        plain.max += at;
                        board.on_sent_to(plain.max);
                    }
                    2 => {
                        let before = plain.una;
                        plain.una = (plain.una + at / 4).min(plain.max);
                        let fresh = (before..plain.una).filter(|n| !plain.sacked[*n as usize]).count();
                        prop_assert_eq!(board.advance(plain.una) as usize, fresh);
                    }
                    3 => {
                        // The block includes the first unacknowledged segment, so the report is invalid.
                        let block = Block { start: plain.una + at, end: plain.una + at + len };
                        board.apply_sacks(&[block, Block { start: 3, end: 1 }, Block::default()]);
                        for n in block.start..block.end.min(plain.max) {
                            plain.sacked[n as usize] = true;
                        }
                    }
                    4 => {
                        let lost = (plain.una..plain.max)
                            .find(|&n| !plain.sacked[n as usize] && plain.lost(n) && !plain.retransmitted[n as usize]);
                        prop_assert_eq!(board.next_lost(), lost);
                        if let Some(seq) = lost {
                            board.on_retransmit(seq);
                            plain.retransmitted[seq as usize] = true;
                        }
                    }
                    _ => {
                        if plain.una < plain.max && plain.sacked[plain.una as usize] {
                            plain.sacked.fill(false);
                        }
                        board.lose_all();
                        plain.declared = plain.max;
                        plain.retransmitted.fill(false);
                    }
                }
                prop_assert_eq!(board.pipe(), plain.pipe());
                prop_assert_eq!(board.is_first_lost(), plain.una < plain.max && plain.lost(plain.una));
            }
        }
    }
}
