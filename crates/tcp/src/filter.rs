use std::collections::VecDeque;
use steadycast_units::Time;

/// Computes the maximum of a value over the last `length` rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaxFilter {
    /// Values that are or may become the maximum, each with its round. The values are in descending order.
    candidates: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    pub(crate) fn add(&mut self, round: u64, length: u64, value: f64) {
        // An older value that is not larger can't become the maximum again.
        while self.candidates.back().is_some_and(|(_, old)| *old <= value) {
            self.candidates.pop_back();
        }
        self.candidates.push_back((round, value));
        while self.candidates.front().is_some_and(|(at, _)| at + length < round + 1) {
            self.candidates.pop_front();
        }
    }

    pub(crate) fn get(&self) -> f64 {
        self.candidates.front().map_or(0.0, |(_, value)| *value)
    }
}

/// Measures ACK aggregation: how many more segments are acknowledged than the bandwidth explains (the draft's
/// extra_acked).
#[derive(Clone, Debug, Default)]
pub(crate) struct AckAggregation {
    since: Time,
    delivered: f64,
    most: MaxFilter,
}

impl AckAggregation {
    pub(crate) fn restart(&mut self, now: Time) {
        (self.since, self.delivered) = (now, 0.0);
    }

    /// Processes `fresh` newly acknowledged segments. [`AckAggregation::extra`] then returns the maximum over the last
    /// `length` rounds.
    pub(crate) fn on_ack(&mut self, now: Time, bw: f64, fresh: u32, cwnd: f64, round: u64, length: u64) {
        let mut expected = bw * now.since(self.since).as_secs_f64();
        // If the bandwidth explains all acknowledged segments, start a new measuring interval.
        if self.delivered <= expected {
            self.restart(now);
            expected = 0.0;
        }
        self.delivered += f64::from(fresh);
        self.most.add(round, length, (self.delivered - expected).clamp(0.0, cwnd));
    }

    pub(crate) fn extra(&self) -> f64 {
        self.most.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_largest_of_the_last_rounds_is_kept(values in prop::collection::vec((0u64..3, 0u32..50), 1..60)) {
            let (mut filter, mut round, mut all) = (MaxFilter::default(), 0, vec![]);
            for (step, value) in values {
                round += step;
                filter.add(round, 3, f64::from(value));
                all.push((round, value));
                let expected = all.iter().filter(|(at, _)| at + 3 > round).map(|(_, v)| *v).max();
                prop_assert_eq!(filter.get(), f64::from(expected.unwrap_or(0)));
            }
        }
    }
}
