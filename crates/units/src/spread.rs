use crate::Span;

/// How spans are distributed: counts in logarithmic classes of which each is at most 1/64 (1.6 %) wide, so that a percentile is
/// right to 0.8 %. It grows with the longest span seen; 10,000 receivers' delays fit into memory.
///
/// By hand because the usual crate keeps three significant digits at 100 kB each.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// How many were zero, which is what most packets wait.
    zeros: u64,
    /// Counts of the classes from `first` on: those before hold nothing.
    classes: Vec<u32>,
    first: usize,
    sum_ns: u128,
    max: Span,
}

const SUB_BITS: u32 = 6;

impl Spread {
    /// Counts one span.
    #[inline]
    pub fn add(&mut self, span: Span) {
        if span.is_zero() {
            self.zeros += 1;
            return;
        }
        let class = Self::class(span.as_nanos());
        match self.classes.get_mut(class.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => *self.place(class) += 1,
        }
        self.sum_ns += u128::from(span.as_nanos());
        self.max = self.max.max(span);
    }

    /// Counts `n` spans of zero length.
    pub fn add_zeros(&mut self, n: u64) {
        self.zeros += n;
    }

    /// Makes room for a class.
    #[cold]
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

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.zeros + self.classes.iter().map(|n| u64::from(*n)).sum::<u64>()
    }

    /// Their mean; `None` when there are none.
    pub fn mean(&self) -> Option<Span> {
        let mean = self.sum_ns.checked_div(u128::from(self.count()))?;
        Some(Span::nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The longest; `None` when there are none.
    pub fn max(&self) -> Option<Span> {
        (self.count() > 0).then_some(self.max)
    }

    /// The span below which a share `q` (0…1) of them lies; `None` when there are none.
    pub fn quantile(&self, q: f64) -> Option<Span> {
        let count = self.count();
        let rank = ((count as f64 * q).ceil() as u64).clamp(1, count.max(1));
        let mut seen = self.zeros;
        if seen >= rank {
            return Some(Span::ZERO);
        }
        for (class, count) in self.classes.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(Span::nanos(Self::middle(self.first + class)).min(self.max));
            }
        }
        None
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        for (class, count) in other.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            *self.place(other.first + class) += count;
        }
        self.zeros += other.zeros;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
    }

    /// What was counted since `earlier`, which was a copy of this one. The longest of it is known to its class only when the longest of
    /// all was there before.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut fresh = self.clone();
        fresh.zeros -= earlier.zeros.min(fresh.zeros);
        fresh.sum_ns -= earlier.sum_ns.min(fresh.sum_ns);
        for (class, count) in earlier.classes.iter().enumerate() {
            if let Some(place) = (earlier.first + class).checked_sub(fresh.first).and_then(|p| fresh.classes.get_mut(p))
            {
                *place -= (*count).min(*place);
            }
        }
        if self.max == earlier.max {
            let last = fresh.classes.iter().rposition(|count| *count > 0);
            fresh.max = last.map_or(Span::ZERO, |c| Span::nanos(Self::middle(fresh.first + c)).min(self.max));
        }
        fresh
    }

    /// In units of 1.024 µs: linear up to 64 units, then 64 classes per octave.
    fn class(ns: u64) -> usize {
        let units = ns >> 10;
        let octave = (64 - units.leading_zeros()).saturating_sub(SUB_BITS + 1);
        ((u64::from(octave) << SUB_BITS) + (units >> octave)) as usize
    }

    fn middle(class: usize) -> u64 {
        let class = class as u64;
        if class == 0 {
            return 0; // mostly "not at all"
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
    fn nothing_has_no_quantile() {
        assert_eq!(Spread::default().quantile(0.5), None);
        assert_eq!(Spread::default().mean(), None);
    }
}
