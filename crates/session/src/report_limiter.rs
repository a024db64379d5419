//! Limits the rate of reports from each address, so that a flood of reports from one address does not affect other
//! addresses.

use std::collections::{BTreeMap, BTreeSet};
use steadycast_rtcp::Origin;
use steadycast_units::{Bytes, Rate, Span, Time};

/// The size of the smallest useful compound.
const MIN_COMPOUND_SIZE: Bytes = Bytes::new(64);
/// Size of a token bucket, as the time that it takes to fill.
const BURST: Span = Span::secs(3);
/// Maximum number of buckets. If there are more, the bucket that was used least recently is removed.
const MAX_BUCKETS: usize = 4_096;

/// Which bucket a report belongs to. For a proven receiver this is its address and its SSRC. Otherwise it is only the
/// address, because SSRCs may be forged.
type BucketKey = (Origin, Option<u32>);

/// Token buckets, one per address or proven receiver. Each is filled at the rate at which a whole group may report.
/// Each media packet adds a token as well, because receivers may acknowledge every packet.
pub(crate) struct ReportLimiter {
    per_second: f64,
    buckets: BTreeMap<BucketKey, Bucket>,
    by_age: BTreeSet<(Time, BucketKey)>,
}

struct Bucket {
    tokens: f64,
    at: Time,
    packets: u32,
}

impl ReportLimiter {
    pub(crate) fn new(session_bandwidth: Rate) -> Self {
        let per_second = session_bandwidth.scale(0.05).ratio(MIN_COMPOUND_SIZE.per(Span::secs(1)));
        Self { per_second, buckets: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    fn most(&self) -> f64 {
        self.per_second * BURST.as_secs_f64()
    }

    /// Returns whether a report is accepted. `packets` is the total number of media packets sent so far.
    pub(crate) fn admits(&mut self, now: Time, from: BucketKey, packets: u32) -> bool {
        if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(&from) {
            let oldest = self.by_age.pop_first();
            oldest.and_then(|(_, oldest)| self.buckets.remove(&oldest));
        }
        let most = self.most();
        let bucket = self.buckets.entry(from).or_insert(Bucket { tokens: most, at: now, packets });
        self.by_age.remove(&(bucket.at, from));
        let filled = now.since(bucket.at).as_secs_f64() * self.per_second;
        let answers = f64::from(packets.wrapping_sub(bucket.packets));
        bucket.tokens = (bucket.tokens + filled + answers).min(most);
        (bucket.at, bucket.packets) = (now, packets);
        self.by_age.insert((now, from));
        let admits = bucket.tokens >= 1.0;
        if admits {
            bucket.tokens -= 1.0;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Seed;

    /// Sends `per_second` reports per second for 10 s, together with `packets` media packets per second. Returns the
    /// number of reports that are accepted in the last five seconds.
    fn heard(per_second: u64, packets: u32) -> u64 {
        let mut gate = ReportLimiter::new(Rate::mbps(2));
        let all = (0..10 * per_second).filter(|n| {
            let at = Time::ZERO + Span::nanos(n * 1_000_000_000 / per_second);
            let sent = (n * u64::from(packets) / per_second) as u32;
            gate.admits(at, (Origin(7), None), sent) && n / per_second >= 5
        });
        all.count() as u64
    }

    #[test]
    fn a_flood_gets_the_share_of_a_group_and_an_acknowledgment_of_each_packet_is_heard() {
        // RTCP's share of 2 Mb/s is 100 kb/s. This is enough for 195 reports of 64 bytes per second.
        let flood = heard(20_000, 0);
        assert!((970..=985).contains(&flood), "{flood}");
        assert_eq!(heard(150, 0), 750);
        assert_eq!(heard(2_500, 2_500), 12_500);
        let beside = heard(20_000, 2_500);
        assert!((13_400..=13_500).contains(&beside), "{beside}");
    }

    #[test]
    fn a_flood_from_elsewhere_costs_nobody_else_a_report_and_the_table_is_bounded() {
        let mut gate = ReportLimiter::new(Rate::mbps(2));
        let mut chance = Seed(1).part("operations");
        let (mut now, mut good) = (Time::ZERO, 0);
        for n in 0..200_000_u32 {
            now += Span::micros(u64::from(chance.bits32() % 200));
            gate.admits(now, (Origin(u64::from(chance.bits32() % 100_000) + 10), None), n);
            if n % 100 == 0 {
                good += u32::from(gate.admits(now, (Origin(1), Some(5)), n));
            }
            assert!(gate.buckets.len() <= MAX_BUCKETS && gate.by_age.len() == gate.buckets.len());
        }
        assert_eq!(good, 2_000);
        assert!(gate.buckets.values().all(|b| (0.0..=gate.most()).contains(&b.tokens)));
    }
}
