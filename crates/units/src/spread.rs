use crate::Span;

/// A histogram of spans with logarithmic classes. Percentiles are accurate to 0.8 %. Below 66 µs, they are less
/// accurate, because each class is 1.024 µs wide there.
///
/// The histogram must be small, because a run can have 100,000 receivers with one histogram each.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Number of spans of zero length. They have their own counter, because most packets do not wait.
    zeros: u64,
    /// The dense form: the counts of consecutive classes. The first count belongs to the class `first`.
    classes: Vec<u32>,
    first: usize,
    /// The sparse form: pairs of class and count in ascending order. It is used for a few classes that are far apart.
    few: Vec<(u16, u32)>,
    sum_ns: u128,
    max: Span,
}

const SUB_BITS: u32 = 6;

/// Maximum number of classes in the sparse form.
const FEW: usize = 128;
/// The dense form is always kept while its list of consecutive classes is at most this long. The list includes classes
/// without a count.
const CLOSE: usize = 128;

impl Spread {
    /// Counts a span.
    #[inline]
    pub fn add(&mut self, span: Span) {
        if span.is_zero() {
            self.zeros += 1;
            return;
        }
        let class = Self::class(span.as_nanos());
        // If the class is below `first`, the subtraction wraps, so that the index is beyond the end.
        match self.classes.get_mut(class.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => self.count_in(class, 1),
        }
        self.sum_ns += u128::from(span.as_nanos());
        self.max = self.max.max(span);
    }

    #[cold]
    fn count_in(&mut self, class: usize, n: u32) {
        if self.few.is_empty() {
            if let Some(count) = self.classes.get_mut(class.wrapping_sub(self.first)) {
                *count += n;
                return;
            }
            let (seen, end) = (self.iter().count() + 1, self.first + self.classes.len());
            let apart = end.max(class + 1) - self.first.min(class);
            // Keep the dense form if it is empty, short or at least half full. Also keep it if `few` can't store all
            // classes.
            if self.classes.is_empty() || seen > FEW || apart <= CLOSE || 2 * seen >= apart {
                return *self.place(class) += n;
            }
            self.few = self.iter().map(|(class, count)| (class as u16, count)).collect();
            self.classes = Vec::new();
        }
        match self.few.binary_search_by_key(&class, |(class, _)| usize::from(*class)) {
            Ok(place) => self.few[place].1 += n,
            Err(place) if self.few.len() < FEW => {
                // Grow in small steps. Doubling would waste memory with 100,000 receivers.
                if self.few.len() == self.few.capacity() {
                    self.few.reserve_exact(self.few.len() / 8 + 1);
                }
                self.few.insert(place, (class as u16, n));
            }
            Err(_) => {
                for (class, count) in std::mem::take(&mut self.few) {
                    *self.place(usize::from(class)) += count;
                }
                *self.place(class) += n;
            }
        }
    }

    fn place(&mut self, class: usize) -> &mut u32 {
        if self.classes.is_empty() {
            self.first = class;
        }
        if class < self.first {
            self.classes.splice(..0, std::iter::repeat_n(0, self.first - class));
            self.first = class;
        }
        let place = class - self.first;
        if place >= self.classes.len() {
            self.classes.resize(place + 1, 0);
        }
        &mut self.classes[place]
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> + '_ {
        let few = self.few.iter().map(|(class, count)| (usize::from(*class), *count));
        let all = self.classes.iter().enumerate().map(|(place, count)| (self.first + place, *count));
        few.chain(all).filter(|(_, count)| *count > 0)
    }

    /// Counts `n` spans of zero length.
    pub fn add_zeros(&mut self, n: u64) {
        self.zeros += n;
    }

    /// Returns the number of spans.
    pub fn count(&self) -> u64 {
        self.zeros + self.iter().map(|(_, n)| u64::from(n)).sum::<u64>()
    }

    /// Returns the mean. Returns `None` if there are no spans.
    pub fn mean(&self) -> Option<Span> {
        let mean = self.sum_ns.checked_div(u128::from(self.count()))?;
        Some(Span::nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Returns the longest span. Returns `None` if there are no spans.
    pub fn max(&self) -> Option<Span> {
        (self.count() > 0).then_some(self.max)
    }

    /// Returns the `q`-quantile, where `q` is from 0 to 1. Returns `None` if there are no spans.
    pub fn quantile(&self, q: f64) -> Option<Span> {
        let count = self.count();
        // Use the nearest rank, but at least 1.
        let rank = ((count as f64 * q).ceil() as u64).clamp(1, count.max(1));
        let mut seen = self.zeros;
        if seen >= rank {
            return Some(Span::ZERO);
        }
        for (class, count) in self.iter() {
            seen += u64::from(count);
            if seen >= rank {
                // Limit the result, because the middle of a class can exceed the longest span.
                return Some(Span::nanos(Self::middle(class)).min(self.max));
            }
        }
        None
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (class, count) in other.iter() {
            self.count_in(class, count);
        }
        self.zeros += other.zeros;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
    }

    /// Returns a histogram of the spans that were added since `earlier`. `earlier` must be an earlier copy of this
    /// histogram.
    ///
    /// The exact maximum of the added spans is unknown if it does not exceed the maximum of `earlier`. Then the middle
    /// of its class is used.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut fresh = Self {
            // If `earlier` is not an earlier copy, its values may be larger. The result is then 0.
            zeros: self.zeros - earlier.zeros.min(self.zeros),
            sum_ns: self.sum_ns - earlier.sum_ns.min(self.sum_ns),
            max: self.max,
            ..Self::default()
        };
        let mut before = earlier.iter().peekable();
        for (class, count) in self.iter() {
            while before.next_if(|(earlier, _)| *earlier < class).is_some() {}
            let known = before.next_if(|(earlier, _)| *earlier == class).map_or(0, |(_, count)| count);
            if count > known {
                fresh.count_in(class, count - known);
            }
        }
        if self.max == earlier.max {
            let last = fresh.iter().next_back();
            fresh.max = last.map_or(Span::ZERO, |(class, _)| Span::nanos(Self::middle(class)).min(self.max));
        }
        fresh
    }

    /// Returns the class of a span. Up to 128 units of 1.024 µs, each class is one unit wide. Above that, there are 64
    /// classes per octave.
    fn class(ns: u64) -> usize {
        let units = ns >> 10;
        let octave = (64 - units.leading_zeros()).saturating_sub(SUB_BITS + 1);
        ((u64::from(octave) << SUB_BITS) + (units >> octave)) as usize
    }

    fn middle(class: usize) -> u64 {
        let class = class as u64;
        if class == 0 {
            return 0; // Waits shorter than one unit count as zero, because most short waits are in this class.
        }
        if class < 2 << SUB_BITS {
            return (class << 10) + 512;
        }
        let octave = (class >> SUB_BITS) - 1;
        let units = (class - (octave << SUB_BITS)) << octave;
        (units << 10) + (512 << octave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quantile_is_right_to_one_percent(mut ns in prop::collection::vec(100_000u64..100_000_000_000, 1..200), q in 0.0f64..1.0) {
            let mut spread = Spread::default();
            ns.iter().for_each(|n| spread.add(Span::nanos(*n)));
            ns.sort_unstable();
            let rank = ((ns.len() as f64 * q).ceil() as usize).clamp(1, ns.len());
            let (exact, told) = (ns[rank - 1] as f64, spread.quantile(q).map_or(0.0, |s| s.as_nanos() as f64));
            prop_assert!((told / exact - 1.0).abs() < 0.01, "{told} {exact}");
        }
    }

    proptest! {
        #[test]
        fn what_came_since_a_copy_is_what_was_added(
            before in prop::collection::vec(0u64..1_000_000_000, 0..50), after in prop::collection::vec(0u64..1_000_000_000, 0..50),
        ) {
            let mut all = Spread::default();
            before.iter().for_each(|n| all.add(Span::nanos(*n)));
            let copy = all.clone();
            let mut fresh = Spread::default();
            for n in &after {
                all.add(Span::nanos(*n));
                fresh.add(Span::nanos(*n));
            }
            let since = all.since(&copy);
            prop_assert_eq!((since.count(), since.mean()), (fresh.count(), fresh.mean()));
            let near = |a: Option<Span>, b: Option<Span>| match (a, b) {
                (Some(a), Some(b)) => a.as_secs_f64() >= b.as_secs_f64() * 0.985 - 2e-6 && a.as_secs_f64() <= b.as_secs_f64() * 1.015 + 2e-6,
                (a, b) => a == b,
            };
            prop_assert!(near(since.max(), fresh.max()), "{:?} {:?}", since.max(), fresh.max());
            prop_assert!(near(since.quantile(0.9), fresh.quantile(0.9)));
        }
    }

    proptest! {
        #[test]
        fn counts_do_not_depend_on_the_order(mut ns in prop::collection::vec(0u64..1_000_000_000, 1..50), q in 0.0f64..1.0) {
            let of = |ns: &[u64]| {
                let mut spread = Spread::default();
                ns.iter().for_each(|n| spread.add(Span::nanos(*n)));
                (spread.count(), spread.mean(), spread.quantile(q), spread.max())
            };
            let told = of(&ns);
            ns.sort_unstable();
            prop_assert_eq!(told, of(&ns));
            ns.reverse();
            prop_assert_eq!(told, of(&ns));
        }
    }

    #[test]
    fn few_classes_far_apart_take_little_and_turn_into_many_without_a_loss() {
        let (mut spread, mut all) = (Spread::default(), Vec::new());
        for n in 0..400u64 {
            let ns = 20_000 + n * 7_919 % 397 * 50_000;
            spread.add(Span::nanos(ns));
            all.push(ns);
            if n == 20 {
                assert!((1..32).contains(&spread.few.capacity()) && spread.classes.is_empty(), "{spread:?}");
            }
        }
        assert!(spread.few.is_empty());
        assert_eq!((spread.count(), spread.mean()), (400, Some(Span::nanos(all.iter().sum::<u64>() / 400))));
        all.sort_unstable();
        let (exact, told) = (all[199] as f64, spread.quantile(0.5).map_or(0.0, |span| span.as_nanos() as f64));
        assert!((told / exact - 1.0).abs() < 0.01, "{told} {exact}");
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Spread::default().quantile(0.5), None);
        assert_eq!(Spread::default().mean(), None);
    }
}
