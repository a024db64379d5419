use super::Config;
use super::constants::INITIAL_RTT;
use super::delay::CLOCK_STEP;
use steadycast_units::{Offset, OneWay, Span, Time};

const LEAST: Span = Span::millis(1);
const MOST: Span = Span::secs(10);
/// Weight of a new packet in the mean one-way delay.
const PACKET: f64 = 1.0 / 16.0;
/// Weight of a new packet in the mean of recent one-way delays.
const RECENT: f64 = 1.0 / 4.0;

#[derive(Clone, Copy, Debug)]
struct Anchor {
    rtt: Span,
    reference: OneWay,
    at: Time,
}

/// Estimates the round-trip time at a receiver. The sender measures and announces it. Between announcements, the
/// receiver adjusts it by the change of the one-way delay.
///
/// ```text
///  additive:        t_inst = RTT + (T_oneway − T_ref)          the clocks' offset cancels; at least half the least RTT
///  multiplicative:  t_inst = (1 + a) T_oneway,  a = RTT / T_ref − 1; before the first announcement, a = 1
///
///  t_RTT = β t_inst + (1 − β) t_RTT                            once per report, within 1 ms … 10 s
/// ```
///
/// `RTT` is the last announced round-trip time. `T_oneway` is the mean one-way delay, with weight 1/16 per packet.
///
/// In the multiplicative form, `T_ref` is the value of `T_oneway` when the announcement of `RTT` arrived.
///
/// The sender measures `RTT` by a report of the receiver. The measurement begins at the last announcement before this
/// report. In the additive form, `T_ref` is the mean one-way delay when that announcement arrived. In this mean, each
/// packet has weight 1/4.
///
/// Source: ASMP, equations 6–11.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    additive: bool,
    beta: f64,
    initial: Span,
    one_way: Option<OneWay>,
    recent: Option<OneWay>,
    /// Mean one-way delay at the last announcement, and when that announcement arrived.
    announced: Option<(OneWay, Time)>,
    /// Mean one-way delay at the last announcement before this receiver's last report, and when that announcement
    /// arrived.
    answered: Option<(OneWay, Time)>,
    anchor: Option<Anchor>,
    /// Smallest round-trip time that was announced. The estimate is at least half of it.
    least: Span,
    smoothed: Option<Span>,
}

impl RoundTrip {
    pub(super) fn new(config: &Config) -> Self {
        Self { additive: config.repaired, beta: config.beta, initial: INITIAL_RTT, least: MOST, ..Self::default() }
    }

    pub(super) fn on_packet(&mut self, sample: OneWay) {
        let Some(mean) = self.one_way else {
            (self.one_way, self.recent) = (Some(sample), Some(sample));
            return;
        };
        if self.additive && sample.variation_since(mean).abs() > CLOCK_STEP {
            // The receiver's clock was set, so take the current estimate and the new delay as the reference.
            if let Some(anchor) = &mut self.anchor {
                anchor.rtt = anchor.rtt.moved(mean.variation_since(anchor.reference));
                anchor.reference = sample;
            }
            (self.one_way, self.recent) = (Some(sample), Some(sample));
            (self.announced, self.answered) = (None, None);
        } else {
            self.one_way = Some(mean.towards(sample, PACKET));
            self.recent = self.recent.map(|recent| recent.towards(sample, RECENT));
        }
    }

    /// Processes an announcement. `rtt` is the round-trip time that the sender has measured, if it has measured one.
    pub(super) fn on_announced(&mut self, rtt: Option<Span>, at: Time) {
        let now = if self.additive { self.recent } else { self.one_way }.map(|way| (way, at));
        // Before this receiver has sent a report, the current announcement is the best reference.
        let answered = if self.additive { self.answered.or(now) } else { now };
        if let (Some(rtt), Some((reference, at))) = (rtt, answered) {
            let rtt = rtt.clamp(LEAST, MOST);
            self.least = self.least.min(rtt);
            self.anchor = Some(Anchor { rtt, reference, at });
        }
        self.announced = now;
    }

    pub(super) fn on_report(&mut self) {
        // The sender will measure the round-trip time from the last announcement to this report. So use the delay at
        // that announcement as the reference.
        self.answered = self.announced.or(self.answered);
    }

    pub(super) const fn is_told(&self) -> bool {
        self.announced.is_some()
    }

    pub(super) const fn is_known(&self) -> bool {
        self.anchor.is_some()
    }

    /// Updates the estimate when a report is due. `drift` is the clock drift, in seconds per second.
    pub(super) fn step(&mut self, now: Time, drift: f64) -> Span {
        let Some(inst) = self.instant(now, drift) else { return self.get() };
        let inst = inst.clamp(LEAST, MOST);
        let smoothed = match self.smoothed {
            None => inst,
            Some(old) => inst.scale(self.beta) + old.scale(1.0 - self.beta),
        };
        self.smoothed = Some(smoothed.clamp(LEAST, MOST));
        self.get()
    }

    /// Returns the smoothed round-trip time. Before the first measurement, returns the assumed round-trip time.
    pub(super) fn get(&self) -> Span {
        self.smoothed.unwrap_or(self.initial)
    }

    fn instant(&self, now: Time, drift: f64) -> Option<Span> {
        let one_way = self.one_way?;
        if self.additive {
            let anchor = self.anchor?;
            let drifted = Offset::from_secs_f64(drift * now.since(anchor.at).as_secs_f64());
            // Limit the result from below, because it could be close to zero after a queue has drained.
            return Some(anchor.rtt.moved(one_way.variation_since(anchor.reference) - drifted).max(self.least / 2));
        }
        // Paper mode treats the difference between two clocks as a delay. This is wrong if the clocks have an offset.
        let delay = one_way.assuming_one_clock().as_secs_f64();
        let a = self
            .anchor
            .map_or(1.0, |anchor| anchor.rtt.as_secs_f64() / anchor.reference.assuming_one_clock().as_secs_f64() - 1.0);
        Some(Span::from_secs_f64((1.0 + a) * delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Mode, Values};
    use steadycast_units::PeerTime;

    fn round_trip(mode: Mode) -> RoundTrip {
        RoundTrip::new(&Config::new(&Values::resolve(super::super::PARAMS, mode, &[]).unwrap()))
    }

    /// Adds a hundred packets that have a delay of `delay` ms. The sender's clock is behind by `offset_s` seconds.
    fn feed(rtt: &mut RoundTrip, delay: u64, offset_s: i64) {
        for k in 0..100 {
            let at = Time::ZERO + Span::secs(5_000) + Span::millis(20 * k);
            let sent = at.before(Span::millis(delay)).as_nanos() as i64 - offset_s * 1_000_000_000;
            rtt.on_packet(OneWay::between(PeerTime::from_nanos(sent), at));
        }
    }

    #[test]
    fn a_longer_way_lengthens_the_round_trip_by_as_much_whatever_the_clocks_say() {
        for offset in [-3_600, 0, 3_600] {
            let mut rtt = round_trip(Mode::Repaired);
            assert_eq!(rtt.step(Time::ZERO, 0.0), Span::millis(500));
            feed(&mut rtt, 30, offset);
            rtt.on_announced(Some(Span::millis(50)), Time::ZERO);
            assert_eq!(rtt.step(Time::ZERO, 0.0), Span::millis(50));
            feed(&mut rtt, 50, offset);
            let once = rtt.step(Time::ZERO, 0.0).as_millis_f64();
            assert!((once - 60.0).abs() < 0.1, "{once}: half of the way from 50 to 70");
            for _ in 0..20 {
                rtt.step(Time::ZERO, 0.0);
            }
            assert!((rtt.get().as_millis_f64() - 70.0).abs() < 0.1, "{}", rtt.get());
        }
    }

    #[test]
    fn as_printed_the_way_is_scaled_and_an_hour_between_the_clocks_freezes_it() {
        let longer = |offset| {
            let mut rtt = round_trip(Mode::Paper);
            feed(&mut rtt, 30, offset);
            rtt.on_announced(Some(Span::millis(50)), Time::ZERO);
            feed(&mut rtt, 60, offset);
            for _ in 0..20 {
                rtt.step(Time::ZERO, 0.0);
            }
            rtt.get().as_millis_f64()
        };
        assert!((longer(0) - 100.0).abs() < 0.5, "{}", longer(0));
        assert!((longer(3_600) - 50.0).abs() < 0.5, "{}", longer(3_600));
    }

    #[test]
    fn before_the_first_announcement_the_printed_form_doubles_the_way() {
        let mut rtt = round_trip(Mode::Paper);
        feed(&mut rtt, 30, 0);
        assert!((rtt.step(Time::ZERO, 0.0).as_millis_f64() - 60.0).abs() < 0.1);
    }

    #[test]
    fn a_clock_that_is_set_leaves_the_round_trip_where_it_was() {
        let mut rtt = round_trip(Mode::Repaired);
        feed(&mut rtt, 30, 0);
        rtt.on_announced(Some(Span::millis(50)), Time::ZERO);
        rtt.step(Time::ZERO, 0.0);
        feed(&mut rtt, 30, 40);
        assert!((rtt.step(Time::ZERO, 0.0).as_millis_f64() - 50.0).abs() < 0.1);
    }

    #[test]
    fn a_queue_that_drains_makes_no_path_shorter_than_half_the_least_announced() {
        let mut rtt = round_trip(Mode::Repaired);
        feed(&mut rtt, 500, 0);
        rtt.on_announced(Some(Span::millis(60)), Time::ZERO);
        rtt.step(Time::ZERO, 0.0);
        feed(&mut rtt, 100, 0);
        assert_eq!(rtt.instant(Time::ZERO, 0.0), Some(Span::millis(30)));
    }

    #[test]
    fn nonsense_stays_within_its_bounds() {
        let mut rtt = round_trip(Mode::Repaired);
        feed(&mut rtt, 30, 0);
        rtt.on_announced(Some(Span::MAX), Time::ZERO);
        assert_eq!(rtt.step(Time::NEVER, 1.0), MOST / 2);
        rtt.on_announced(Some(Span::ZERO), Time::ZERO);
        assert!(rtt.step(Time::NEVER, -1e9) <= MOST);
    }
}
