//! DualPI2, an AQM with two coupled queues (RFC 9332, appendix A).

use crate::managed::{CongestionSignals, DequeueAqm, Managed, Waiting};
use crate::queue::Discipline;
use crate::{Drop, Limit, LinkProperties};
use std::collections::VecDeque;
use steadycast_settings::{Kind, Within, settings};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

settings! {
    /// DualPI2 (RFC 9332, with the constants of its appendix A.1). Packets with ECT(1) or CE wait in the L4S queue, all
    /// others in the Classic queue; Classic packets that can't be marked are dropped. The limit is for both queues
    /// together.
    #[derive(Copy)]
    DualPi2 {
        /// The maximum length of the queue, in packets, bytes or time.
        limit: Limit = Limit::Time(Span::millis(250)),
        /// The target of the queueing delay.
        target: Span where (|span: &Span| takes_time(*span)) = Span::millis(15),
        /// The interval between two updates of the base probability p'.
        t_update: Span where (|span: &Span| takes_time(*span)) = Span::millis(15),
        /// The gain of the queueing delay: in each update, p' changes by this for each second above or below `target`.
        alpha: f64 where (GAIN) = 0.15,
        /// The gain of the delay's change: in each update, p' changes by this for each second by which the queueing
        /// delay has grown since the last update.
        beta: f64 where (GAIN) = 3.0,
        /// The coupling factor: the probability of a mark is at least `k` p' for L4S packets, and the probability of a
        /// mark or drop is p'² for Classic packets.
        k: f64 where (COUPLING) = 2.0,
        /// The sojourn time above which packets in the L4S queue are marked, whatever p' is.
        min_th: Span = Span::micros(800),
        /// The time over which the probability of this mark rises, from 0 at `min_th` to 1 at `min_th` + `range`; with
        /// "0s" it rises in one step.
        range: Span = Span::micros(400),
        /// The minimum number of packets that an arriving packet must find in the L4S queue to be marked by `min_th`.
        th_len: u32 = 1,
        /// The share of the link's rate for the Classic queue while both queues hold packets (weighted round robin).
        classic_share: f64 where (SHARE) = 0.0625,
    }
}

const GAIN: Within<f64> = Within { least: 0.0, most: 100.0, remedy: "from 0 to 100 per second" };
const COUPLING: Within<f64> = Within { least: 0.01, most: 100.0, remedy: "from 0.01 to 100" };
const SHARE: Within<f64> = Within { least: 0.001, most: 0.999, remedy: "from 0.001 to 0.999" };

fn takes_time(span: Span) -> Option<(String, String)> {
    (span < Span::millis(1)).then(|| ("takes too little time".into(), "at least \"1ms\"; without it \"15ms\"".into()))
}

impl Kind<LinkProperties> for DualPi2 {}

impl Discipline for DualPi2 {
    fn limit(&self) -> Limit {
        self.limit
    }
    fn on_departure(&self, rate: Option<Rate>, mtu: Bytes, _: Chance) -> Option<Managed> {
        Some(Managed::new(Box::new(State::new(*self, mtu)), self.limit.on(rate, mtu)))
    }
}

#[derive(Debug, Default)]
struct Lane {
    /// The packets in the queue. The flag says whether a packet may be marked because of its sojourn time.
    waiting: VecDeque<(Waiting, bool)>,
    /// Sum of the likelihoods of signals (marks or drops), minus the number of signals that have occurred (`count` of
    /// RFC 9332's `recur`).
    count: f64,
}

impl Lane {
    /// Returns whether a signal occurs. Without randomness, n calls return about n · `likelihood` signals (RFC 9332,
    /// appendix A.1).
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let happens = self.count > 1.0;
        if happens {
            self.count -= 1.0;
        }
        happens
    }

    fn sojourn(&self, now: Time) -> Span {
        self.waiting.front().map_or(Span::ZERO, |(head, _)| now.since(head.since))
    }
}

/// DualPI2's state. The names are from RFC 9332, appendix A.
#[derive(Debug)]
struct State {
    dual: DualPi2,
    /// The base probability p'.
    base_probability: f64,
    prev_q: Span,
    next_update: Time,
    l4s: Lane,
    classic: Lane,
    /// Bytes by which the Classic queue is behind its share. If positive, the Classic queue is served next.
    credit: f64,
    mtu: Bytes,
}

impl State {
    fn new(dual: DualPi2, mtu: Bytes) -> Self {
        let next_update = Time::ZERO + dual.t_update;
        let (l4s, classic) = (Lane::default(), Lane::default());
        let mut state =
            Self { dual, base_probability: 0.0, prev_q: Span::ZERO, next_update, l4s, classic, credit: 0.0, mtu };
        state.reset_scheduler();
        state
    }

    /// Resets the credit, so that the L4S queue is served first until the Classic queue's credit is positive.
    fn reset_scheduler(&mut self) {
        self.credit = -self.mtu.as_f64() * (1.0 - self.dual.classic_share);
    }

    /// Applies the updates that were due until `now`. The queues do not change between these updates.
    fn catch_up(&mut self, now: Time) {
        let DualPi2 { target, t_update, alpha, .. } = self.dual;
        let empty = self.l4s.waiting.is_empty() && self.classic.waiting.is_empty();
        while self.next_update <= now {
            if empty && self.prev_q.is_zero() {
                // Skip ahead, because each further update of empty queues subtracts the same amount.
                let missed = now.since(self.next_update).as_nanos() / t_update.as_nanos() + 1;
                self.base_probability = (self.base_probability - alpha * target.as_secs_f64() * missed as f64).max(0.0);
                self.next_update += t_update * missed;
                return;
            }
            self.update_base_probability(
                self.classic.sojourn(self.next_update).max(self.l4s.sojourn(self.next_update)),
            );
            self.next_update += t_update;
        }
    }

    /// Updates the base probability p' for the queuing delay `q` (RFC 9332, appendix A.1).
    fn update_base_probability(&mut self, q: Span) {
        let DualPi2 { target, alpha, beta, .. } = self.dual;
        let seconds = |span: Span| span.as_secs_f64();
        let change = alpha * (seconds(q) - seconds(target)) + beta * (seconds(q) - seconds(self.prev_q));
        self.base_probability = (self.base_probability + change).clamp(0.0, 1.0);
        self.prev_q = q;
    }

    /// Returns the probability of a mark that depends on the sojourn time in the L4S queue (`laqm` in RFC 9332).
    fn native_mark_probability(&self, sojourn: Span) -> f64 {
        let DualPi2 { min_th, range, .. } = self.dual;
        if sojourn >= min_th + range {
            1.0
        } else if sojourn > min_th {
            sojourn.saturating_sub(min_th).as_secs_f64() / range.as_secs_f64()
        } else {
            0.0
        }
    }

    /// Returns p_C and p_CL. p_C is the probability that a Classic packet is dropped or marked. p_CL is the probability
    /// of a coupled mark for an L4S packet.
    fn probabilities(&self) -> (f64, f64) {
        (self.base_probability * self.base_probability, (self.dual.k * self.base_probability).min(1.0))
    }

    /// Removes the head of the L4S queue and returns it. Returns `None` if the packet is dropped.
    fn dequeue_l4s(&mut self, now: Time, out: &mut CongestionSignals<'_>) -> Option<Waiting> {
        let (mut head, by_wait) = self.l4s.waiting.pop_front()?;
        let (p_c, p_cl) = self.probabilities();
        // Take the larger of the L4S queue's own probability and the coupled probability (RFC 9332, section 2.4).
        let marks = if p_cl < 1.0 {
            let native = if by_wait { self.native_mark_probability(now.since(head.since)) } else { 0.0 };
            self.l4s.recur(native.max(p_cl))
        } else {
            // The link is overloaded. Drop L4S packets with the same probability as Classic packets.
            if self.l4s.recur(p_c) {
                out.drop(&head, Drop::Early);
                return None;
            }
            self.l4s.recur(p_cl)
        };
        if marks {
            out.mark(&mut head);
        }
        Some(head)
    }

    /// Removes the head of the Classic queue and returns it. Returns `None` if the packet is dropped.
    fn dequeue_classic(&mut self, out: &mut CongestionSignals<'_>) -> Option<Waiting> {
        let (mut head, _) = self.classic.waiting.pop_front()?;
        let (p_c, _) = self.probabilities();
        if self.classic.recur(p_c) {
            // From this p_C on, the coupled probability is 1 and the link is overloaded. Drop even ECN-capable packets
            // then, because ECN can't be relied on.
            let most = (1.0 / (self.dual.k * self.dual.k)).min(1.0);
            if !head.ecn.is_capable() || p_c >= most {
                out.drop(&head, Drop::Early);
                return None;
            }
            out.mark(&mut head);
        }
        Some(head)
    }
}

impl DequeueAqm for State {
    fn enqueue(&mut self, packet: Waiting, _: u64, _: bool) {
        self.catch_up(packet.since);
        // ECT(1) and CE have the low bit set, so both go to the L4S queue (RFC 9331, section 5.1).
        if packet.ecn.bits() & 1 == 1 {
            // Decide by the queue's length at arrival whether the sojourn time may cause a mark. At departure, the last
            // packet of a burst would find an empty queue.
            let by_wait = self.l4s.waiting.len() >= self.dual.th_len as usize;
            self.l4s.waiting.push_back((packet, by_wait));
        } else {
            self.classic.waiting.push_back((packet, false));
        }
    }

    fn dequeue(&mut self, now: Time, out: &mut CongestionSignals<'_>) -> Option<Waiting> {
        self.catch_up(now);
        let share = self.dual.classic_share;
        loop {
            let (l4s, classic) = (!self.l4s.waiting.is_empty(), !self.classic.waiting.is_empty());
            if !l4s && !classic {
                self.reset_scheduler();
                return None;
            }
            let both = if l4s && classic { 1.0 } else { 0.0 };
            let is_l4s = l4s && (!classic || self.credit <= 0.0);
            let head = if is_l4s { self.dequeue_l4s(now, out) } else { self.dequeue_classic(out) };
            if let Some(head) = head {
                // Change the credit only while both queues have packets, as in weighted round robin.
                self.credit += both * head.size.as_f64() * if is_l4s { share } else { share - 1.0 };
                return Some(head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_settings::{Findings, Settings, tree};

    fn state() -> State {
        let mut out = Findings::new("dualpi2.toml");
        let dual = DualPi2::fill(&tree::from_toml("", &mut out), None, &mut out).expect("every key has a default");
        State::new(dual, Bytes::new(1500))
    }

    fn near(got: f64, wanted: f64) {
        assert!((got - wanted).abs() < 1e-12, "{got} is not {wanted}");
    }

    #[test]
    fn the_base_probability_follows_the_delay_and_its_growth() {
        let mut state = state();
        for (q, wanted) in [(30, 0.092_25), (30, 0.094_5), (25, 0.081), (15, 0.051)] {
            state.update_base_probability(Span::millis(q));
            near(state.base_probability, wanted);
        }
        let (p_c, p_cl) = state.probabilities();
        near(p_c, 0.051 * 0.051);
        near(p_cl, 2.0 * p_c.sqrt());
    }

    #[test]
    fn it_stays_between_0_and_1_and_an_empty_queue_takes_it_back_at_once_or_step_by_step() {
        let mut state = state();
        state.update_base_probability(Span::secs(1));
        near(state.base_probability, 1.0);
        near(state.probabilities().1, 1.0);
        let mut one_by_one = super::tests::state();
        for state in [&mut state, &mut one_by_one] {
            (state.base_probability, state.prev_q) = (0.1, Span::ZERO);
        }
        state.catch_up(Time::ZERO + Span::millis(157));
        (1..=157).for_each(|ms| one_by_one.catch_up(Time::ZERO + Span::millis(ms)));
        // Each of the ten updates subtracts 0.15 · 15 ms.
        near(state.base_probability, 0.1 - 10.0 * 0.002_25);
        near(one_by_one.base_probability, state.base_probability);
        assert_eq!((state.next_update, one_by_one.next_update), (Time::ZERO + Span::millis(165), state.next_update));
        state.catch_up(Time::ZERO + Span::secs(86_400 * 365));
        near(state.base_probability, 0.0);
    }

    #[test]
    fn the_ramp_rises_from_its_threshold_over_its_range_and_is_a_step_without_one() {
        let mut state = state();
        for (us, wanted) in
            [(0, 0.0), (800, 0.0), (900, 0.25), (1_000, 0.5), (1_199, 0.997_5), (1_200, 1.0), (9_000, 1.0)]
        {
            near(state.native_mark_probability(Span::micros(us)), wanted);
        }
        (state.dual.min_th, state.dual.range) = (Span::millis(1), Span::ZERO);
        near(state.native_mark_probability(Span::micros(999)), 0.0);
        near(state.native_mark_probability(Span::micros(1_000)), 1.0);
    }

    #[test]
    fn what_is_likely_happens_as_often_without_chance() {
        for likelihood in [0.01, 0.25, 0.3, 0.999, 1.0] {
            let mut lane = Lane::default();
            let times = (0..10_000).filter(|_| lane.recur(likelihood)).count() as f64;
            assert!((times - 10_000.0 * likelihood).abs() <= 1.0, "{times} for {likelihood}");
        }
    }
}
