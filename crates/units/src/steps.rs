use crate::Time;

/// A value that changes at times which are known in advance.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps<T> {
    first: T,
    later: Vec<(Time, T)>,
}

impl<T> Steps<T> {
    /// Creates a value that never changes.
    pub const fn constant(value: T) -> Self {
        Self { first: value, later: Vec::new() }
    }
    /// Returns the value if it never changes.
    pub fn as_constant(&self) -> Option<&T> {
        self.later.is_empty().then_some(&self.first)
    }
    /// Sets the value from `at` until the next step. A step at the same time is replaced.
    pub fn then(&mut self, at: Time, value: T) {
        let place = self.later.partition_point(|(t, _)| *t < at);
        match self.later.get_mut(place).filter(|(t, _)| *t == at) {
            Some((_, old)) => *old = value,
            None if at == Time::ZERO => self.first = value,
            None => self.later.insert(place, (at, value)),
        }
    }
    /// Returns the value at `now`.
    pub fn at(&self, now: Time) -> &T {
        let place = self.later.partition_point(|(t, _)| *t <= now);
        place.checked_sub(1).map_or(&self.first, |i| &self.later[i].1)
    }
    /// Returns the time of the first change after `now`. Returns [`Time::NEVER`] if there is none.
    pub fn next_change(&self, now: Time) -> Time {
        let place = self.later.partition_point(|(t, _)| *t <= now);
        self.later.get(place).map_or(Time::NEVER, |(t, _)| *t)
    }
    /// Returns the steps with other values, at the same times.
    pub fn map<U>(&self, mut value: impl FnMut(&T) -> U) -> Steps<U> {
        Steps { first: value(&self.first), later: self.later.iter().map(|(at, v)| (*at, value(v))).collect() }
    }
    /// Returns each value with the time from which it applies.
    pub fn iter(&self) -> impl Iterator<Item = (Time, &T)> {
        std::iter::once((Time::ZERO, &self.first)).chain(self.later.iter().map(|(t, v)| (*t, v)))
    }
}
