/// A bitmap with one bit for each segment of a sliding window. Its words form a ring. Bits outside the window are
/// clear.
#[derive(Clone, Debug)]
pub(crate) struct SlidingBitmap {
    words: Vec<u64>,
}

impl Default for SlidingBitmap {
    fn default() -> Self {
        Self { words: vec![0; 4] }
    }
}

/// Returns a mask of the bits of word `word` that belong to `low..high`.
fn mask(word: u32, low: u32, high: u32) -> u64 {
    let first = word << 6;
    let from = low.saturating_sub(first).min(63);
    let mut mask = u64::MAX << from;
    let up_to = high - first;
    // Skip this step if the range includes the highest bit, because a shift by 64 bits would overflow.
    if up_to < 64 {
        mask &= (1 << up_to) - 1;
    }
    mask
}

impl SlidingBitmap {
    fn at(&self, word: u32) -> usize {
        // The mask gives the position in the ring, because the number of words is a power of two.
        word as usize & (self.words.len() - 1)
    }

    /// Enlarges the ring if it is too short for the window `low..high`.
    pub(crate) fn reserve(&mut self, low: u32, high: u32) {
        let need = ((high >> 6) - (low >> 6) + 1) as usize;
        if need <= self.words.len() {
            return;
        }
        let mut words = vec![0; need.next_power_of_two()];
        let ring = words.len() - 1;
        let last = (low >> 6) + self.words.len() as u32 - 1;
        // Copy each word to its new position, because the position depends on the length of the ring.
        for word in low >> 6..=last {
            words[word as usize & ring] = self.words[self.at(word)];
        }
        self.words = words;
    }

    pub(crate) fn get(&self, n: u32) -> bool {
        self.words[self.at(n >> 6)] >> (n & 63) & 1 == 1
    }

    pub(crate) fn set(&mut self, n: u32) {
        let at = self.at(n >> 6);
        self.words[at] |= 1 << (n & 63);
    }

    /// Sets the bits `low..high`. Calls `fresh` for each word that changes, with the word's number and its newly set
    /// bits.
    pub(crate) fn set_range(&mut self, low: u32, high: u32, mut fresh: impl FnMut(u32, u64)) {
        if low >= high {
            return;
        }
        for word in low >> 6..=(high - 1) >> 6 {
            let at = self.at(word);
            let new = mask(word, low, high) & !self.words[at];
            if new != 0 {
                self.words[at] |= new;
                fresh(word, new);
            }
        }
    }

    pub(crate) fn clear_range(&mut self, low: u32, high: u32) {
        if low >= high {
            return;
        }
        for word in low >> 6..=(high - 1) >> 6 {
            let at = self.at(word);
            self.words[at] &= !mask(word, low, high);
        }
    }

    pub(crate) fn count(&self, low: u32, high: u32) -> u32 {
        if low >= high {
            return 0;
        }
        (low >> 6..=(high - 1) >> 6).map(|w| (self.words[self.at(w)] & mask(w, low, high)).count_ones()).sum()
    }

    pub(crate) fn first_clear(&self, low: u32, high: u32) -> Option<u32> {
        if low >= high {
            return None;
        }
        (low >> 6..=(high - 1) >> 6).find_map(|w| {
            let clear = !self.words[self.at(w)] & mask(w, low, high);
            (clear != 0).then(|| (w << 6) + clear.trailing_zeros())
        })
    }

    pub(crate) fn last_clear(&self, low: u32, high: u32) -> Option<u32> {
        if low >= high {
            return None;
        }
        (low >> 6..=(high - 1) >> 6).rev().find_map(|w| {
            let clear = !self.words[self.at(w)] & mask(w, low, high);
            (clear != 0).then(|| (w << 6) + 63 - clear.leading_zeros())
        })
    }

    /// Returns the position of the `n`th set bit in `low..high`, counted from the top. `n` is at least 1.
    pub(crate) fn nth_set_from_top(&self, low: u32, high: u32, mut n: u32) -> Option<u32> {
        if low >= high {
            return None;
        }
        for w in (low >> 6..=(high - 1) >> 6).rev() {
            let mut set = self.words[self.at(w)] & mask(w, low, high);
            let here = set.count_ones();
            if here < n {
                n -= here;
                continue;
            }
            // Clear the n − 1 highest bits, so that the highest remaining bit is the result.
            while n > 1 {
                set &= !(1 << (63 - set.leading_zeros()));
                n -= 1;
            }
            return Some((w << 6) + 63 - set.leading_zeros());
        }
        None
    }
}

/// Returns how many of the bits in `set` stand for segments below `limit`. `set` is the word of the bitmap with the
/// index `word`.
pub(crate) fn count_below(word: u32, set: u64, limit: u32) -> u32 {
    let first = word << 6;
    if limit <= first {
        0
    } else if limit - first >= 64 {
        set.count_ones()
    } else {
        (set & ((1 << (limit - first)) - 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_ring_of_bits_is_a_set_of_numbers(
            base in 0u32..1000,
            steps in prop::collection::vec((0u32..400, 0u32..80, 0u32..30), 1..40),
        ) {
            let mut bits = SlidingBitmap::default();
            let mut set = BTreeSet::new();
            let mut low = base;
            let mut high = base;
            for (from, len, slide) in steps {
                let (start, end) = (low + from, low + from + len);
                high = high.max(end);
                bits.reserve(low, high);
                let mut fresh = 0;
                let split = low + 100;
                let mut fresh_below = 0;
                bits.set_range(start, end, |w, new| {
                    fresh += new.count_ones();
                    fresh_below += count_below(w, new, split);
                });
                let new: Vec<u32> = (start..end).filter(|n| set.insert(*n)).collect();
                prop_assert_eq!(fresh as usize, new.len());
                prop_assert_eq!(fresh_below as usize, new.iter().filter(|n| **n < split).count());
                prop_assert_eq!(bits.count(low, high) as usize, set.len());
                prop_assert_eq!(bits.first_clear(low, high), (low..high).find(|n| !set.contains(n)));
                prop_assert_eq!(bits.last_clear(low, high), (low..high).rev().find(|n| !set.contains(n)));
                prop_assert_eq!(bits.nth_set_from_top(low, high, 3), set.iter().rev().nth(2).copied());
                prop_assert!((low..high).all(|n| bits.get(n) == set.contains(&n)));
                bits.clear_range(low, low + slide);
                low += slide;
                high = high.max(low);
                set.retain(|n| *n >= low);
            }
        }
    }
}
