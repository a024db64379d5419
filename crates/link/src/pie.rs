//! PIE, the proportional integral controller enhanced (RFC 8033).

use crate::queue::{Arrival, Discipline, EnqueueAqm};
use crate::{Drop, Ecn, Limit, LinkProperties};
use steadycast_settings::{Kind, Within, settings};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

settings! {
    /// PIE (RFC 8033, with the constants of its sections 4 and 5).
    #[derive(Copy)]
    Pie {
        /// The maximum length of the queue, in packets, bytes or time.
        limit: Limit = Limit::Packets(1000),
        /// The target of the queueing delay.
        target: Span where (|span: &Span| takes_time(*span)) = Span::millis(15),
        /// The interval between two updates of the drop probability.
        t_update: Span where (|span: &Span| takes_time(*span)) = Span::millis(15),
        /// The gain of the queueing delay: in each update, the drop probability changes by this for each second above
        /// or below `target`.
        alpha: f64 where (GAIN) = 0.125,
        /// The gain of the delay's change: in each update, the drop probability changes by this for each second by
        /// which the queueing delay has grown since the last update.
        beta: f64 where (GAIN) = 1.25,
        /// The time for which the delay of a queue that was empty may exceed the target before packets are dropped.
        max_burst: Span = Span::millis(150),
        /// The mean packet size. While the queue holds at most two packets of this size, none is dropped.
        mean_packet: Bytes where (PACKET) = Bytes::new(1000),
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool = false,
        /// The drop probability above which even ECN-capable packets are dropped.
        mark_ecnth: f64 where (crate::probability) = 0.1,
    }
}

const GAIN: Within<f64> = Within { least: 0.0, most: 100.0, remedy: "from 0 to 100 per second" };
const PACKET: Within<Bytes> =
    Within { least: Bytes::new(1), most: Bytes::new(65_535), remedy: "from \"1B\" to \"65535B\"" };

fn takes_time(span: Span) -> Option<(String, String)> {
    (span < Span::micros(1))
        .then(|| ("the time is too short".into(), "write at least \"1us\", or leave it out for \"15ms\"".into()))
}

impl Kind<LinkProperties> for Pie {}

impl Discipline for Pie {
    fn limit(&self) -> Limit {
        self.limit
    }
    fn on_arrival(&self, _: Option<Rate>, _mtu: Bytes) -> Option<Box<dyn EnqueueAqm>> {
        Some(Box::new(State::new(*self)))
    }
}

/// PIE's state. The names are from RFC 8033, appendix A.
#[derive(Debug)]
struct State {
    pie: Pie,
    drop_prob: f64,
    accu_prob: f64,
    qdelay_old: Span,
    burst_allowance: Span,
    update: Time,
}

impl State {
    fn new(pie: Pie) -> Self {
        let (qdelay_old, burst_allowance) = (Span::ZERO, pie.max_burst);
        Self { pie, drop_prob: 0.0, accu_prob: 0.0, qdelay_old, burst_allowance, update: Time::ZERO + pie.t_update }
    }

    /// Applies the updates that were due since the previous arrival. The queue has only drained since then. The delay
    /// at an update is therefore the time until `free`, when the transmitter becomes free.
    fn catch_up(&mut self, now: Time, free: Time) {
        while self.update <= now {
            // Use the exact delay. RFC 8033, section 5.2, permits different ways to estimate it.
            let qdelay = free.since(self.update);
            self.update(qdelay);
            self.update += self.pie.t_update;
            if self.drop_prob == 0.0 && qdelay.is_zero() && self.qdelay_old.is_zero() {
                // Skip the further updates, because they change nothing.
                let missed = now.since(self.update).as_nanos() / self.pie.t_update.as_nanos();
                self.update += self.pie.t_update * missed;
            }
        }
    }

    /// Updates the drop probability (RFC 8033, sections 4.2, 4.4 and 5.5).
    fn update(&mut self, qdelay: Span) {
        let Pie { target, alpha, beta, .. } = self.pie;
        let seconds = |span: Span| span.as_secs_f64();
        // Section 4.2: the change depends on the deviation of the delay from the target, and on its trend.
        let change = alpha * (seconds(qdelay) - seconds(target)) + beta * (seconds(qdelay) - seconds(self.qdelay_old));
        // Reduce the change while the probability is small. Steps of the same size would cause oscillation under light
        // congestion.
        let scale = match self.drop_prob {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        let mut change = change / scale;
        if self.drop_prob >= 0.1 {
            change = change.min(0.02);
        }
        self.drop_prob += change;
        if qdelay.is_zero() && self.qdelay_old.is_zero() {
            // Section 4.2 requires that both delays are zero. Appendix A only requires that they are below half of
            // `target`.
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        // After a calm time, allow a burst again.
        let calm = |delay: Span| delay < target / 2;
        self.burst_allowance = if self.drop_prob == 0.0 && calm(qdelay) && calm(self.qdelay_old) {
            self.pie.max_burst
        } else {
            self.burst_allowance.saturating_sub(self.pie.t_update)
        };
        self.qdelay_old = qdelay;
    }

    /// Returns whether a packet is dropped early if `waiting` bytes are queued (RFC 8033, sections 4.1 and 5.4).
    fn early(&mut self, waiting: u64, chance: &mut Chance) -> bool {
        let calm = self.qdelay_old < self.pie.target / 2 && self.drop_prob < 0.2;
        if !self.burst_allowance.is_zero() || calm || waiting <= 2 * self.pie.mean_packet.get() {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        // Derandomize the drops: `accu_prob` below 0.85 prevents a drop, and `accu_prob` of 8.5 or more forces one.
        let drops = self.accu_prob >= 8.5 || self.accu_prob >= 0.85 && chance.happens(self.drop_prob);
        if drops {
            self.accu_prob = 0.0;
        }
        drops
    }
}

impl EnqueueAqm for State {
    fn admit(&mut self, packet: &Arrival, chance: &mut Chance) -> Result<Ecn, Drop> {
        self.catch_up(packet.now, packet.free);
        let early = self.early(packet.bytes - packet.on_air, chance);
        // Mark ECN-capable packets while the drop probability is low (RFC 8033, section 5.1).
        let marks = self.pie.ecn && packet.ecn.is_capable() && self.drop_prob <= self.pie.mark_ecnth;
        match (packet.room, early) {
            (false, _) => Err(Drop::Full),
            (true, true) if marks => Ok(Ecn::Ce),
            (true, true) => Err(Drop::Early),
            (true, false) => Ok(packet.ecn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_settings::{Settings, tree};
    use steadycast_units::Seed;

    fn pie() -> Pie {
        let mut out = steadycast_settings::Findings::new("pie.toml");
        Pie::fill(&tree::from_toml("", &mut out), None, &mut out).expect("every key has a default")
    }

    fn at(drop_prob: f64, qdelay_old: Span) -> State {
        State { drop_prob, qdelay_old, burst_allowance: Span::ZERO, ..State::new(pie()) }
    }

    fn near(got: f64, wanted: f64) {
        assert!((got - wanted).abs() < 1e-12, "{got} is not {wanted}");
    }

    #[test]
    fn the_probability_follows_delay_and_its_growth_more_slowly_the_smaller_it_is() {
        let mut state = at(0.0, Span::ZERO);
        // The change is 0.125 · (30 − 15) ms + 1.25 · (30 − 0) ms = 0.039375. It is divided by 2048, because the
        // probability is 0.
        state.update(Span::millis(30));
        near(state.drop_prob, 0.039_375 / 2048.0);
        // The second change is 0.125 · 15 ms. It is divided by 128, because the probability is 1.9e-5.
        state.update(Span::millis(30));
        near(state.drop_prob, 0.039_375 / 2048.0 + 0.001_875 / 128.0);
        for (from, scale) in [(5e-6, 512.0), (5e-4, 32.0), (5e-3, 8.0), (0.05, 2.0), (0.5, 1.0)] {
            let mut state = at(from, Span::millis(30));
            state.update(Span::millis(30));
            near(state.drop_prob, from + 0.001_875 / scale);
        }
    }

    #[test]
    fn one_update_adds_at_most_two_percent_to_a_large_probability_and_an_empty_queue_takes_two_percent_of_it() {
        let mut state = at(0.1, Span::ZERO);
        state.update(Span::millis(100));
        near(state.drop_prob, 0.12);
        // The change is 0.125 · (0 − 15) ms. Afterwards the probability is multiplied by 0.98, because the queue is
        // empty.
        let mut state = at(0.1, Span::ZERO);
        state.update(Span::ZERO);
        near(state.drop_prob, (0.1 - 0.001_875) * 0.98);
    }

    #[test]
    fn a_burst_is_allowed_for_its_time_and_again_once_the_queue_was_calm() {
        let mut state = State::new(pie());
        for n in 1..=10 {
            state.update(Span::millis(30));
            assert_eq!(state.burst_allowance, Span::millis(150 - 15 * n));
        }
        let mut calm = State { drop_prob: 0.0, ..at(0.0, Span::millis(7)) };
        calm.update(Span::millis(7));
        assert_eq!(calm.burst_allowance, Span::millis(150));
    }

    #[test]
    fn drops_are_neither_close_together_nor_far_apart() {
        let mut chance = Seed(1).part("pie");
        let mut state = at(0.05, Span::millis(20));
        let drops: Vec<_> = (0..200_000).filter(|_| state.early(1_000_000, &mut chance)).collect();
        let gaps: Vec<_> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Count the packets after the last drop from 1. A drop is impossible before packet 0.85/p. From this packet on,
        // each packet is dropped with probability p. At packet 8.5/p a drop is certain.
        assert_eq!(gaps.iter().min(), Some(&17), "0.85 / 0.05");
        assert!(gaps.iter().max() <= Some(&170), "8.5 / 0.05");
        let mean = gaps.iter().sum::<i32>() as f64 / gaps.len() as f64;
        assert!((mean - 36.0).abs() < 0.8, "16 packets, then 1/p on average: {mean}");
    }

    #[test]
    fn few_packets_a_calm_queue_and_a_burst_are_let_through() {
        let mut chance = Seed(1).part("pie");
        let dropped = |mut state: State, waiting, chance: &mut Chance| (0..1000).any(|_| state.early(waiting, chance));
        assert!(dropped(at(0.1, Span::millis(20)), 2001, &mut chance));
        assert!(!dropped(at(0.1, Span::millis(20)), 2000, &mut chance), "two mean packets");
        assert!(!dropped(at(0.199, Span::millis(7)), 9000, &mut chance), "below half of the target");
        assert!(dropped(at(0.2, Span::millis(7)), 9000, &mut chance), "unless the probability is high");
        let burst = State { burst_allowance: Span::millis(15), ..at(0.1, Span::millis(20)) };
        assert!(!dropped(burst, 9000, &mut chance));
    }

    #[test]
    fn an_idle_queue_is_made_up_for_at_once() {
        let mut state = at(0.000_5, Span::millis(20));
        let (hour, day) = (Time::ZERO + Span::secs(3600), Time::ZERO + Span::secs(86_400));
        state.catch_up(hour, Time::ZERO);
        assert_eq!((state.drop_prob, state.qdelay_old, state.burst_allowance), (0.0, Span::ZERO, Span::millis(150)));
        state.catch_up(day, Time::ZERO);
        assert!(state.update > day && state.update <= day + Span::millis(15), "{:?}", state.update);
    }
}
