//! Detects congestion from the one-way delay. Computes means of the delay, and the drift between the clocks.

use super::Config;
use super::constants::LONG_MEAN;
use steadycast_units::{OneWay, Span, Time};

/// If the one-way delay changes by more than this, a clock was set.
pub(super) const CLOCK_STEP: Span = Span::secs(1);

/// Whether the delay shows congestion (ASMP, 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unloaded,
    Congested,
}

/// A running mean of delays, and of the times at which they were measured.
///
/// `A_{k+1} = A_k + (CJ_{k+1} − A_k) / (k+1)` (ASMP, eq. 16 and 17).
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u32,
    delay: f64,
    at: f64,
}

impl Mean {
    fn add(&mut self, delay: f64, at: f64) {
        self.count = self.count.saturating_add(1);
        let share = 1.0 / f64::from(self.count);
        self.delay += (delay - self.delay) * share;
        self.at += (at - self.at) * share;
    }

    fn join(self, other: &Self) -> Self {
        let count = self.count.saturating_add(other.count);
        let share = if count == 0 { 0.0 } else { f64::from(other.count) / f64::from(count) };
        let delay = self.delay + (other.delay - self.delay) * share;
        Self { count, delay, at: self.at + (other.at - self.at) * share }
    }
}

const SLICES: usize = 12;

/// The mean over a sliding window, which consists of twelve slices. If the window is zero, this is the mean over the
/// whole session.
#[derive(Clone, Copy, Debug)]
struct Long {
    slices: [Mean; SLICES],
    newest: usize,
    slice: f64,
    until: f64,
}

impl Long {
    fn new(window: Span) -> Self {
        let slice = if window.is_zero() { f64::INFINITY } else { window.as_secs_f64() / SLICES as f64 };
        Self { slices: [Mean::default(); SLICES], newest: 0, slice, until: slice }
    }

    fn add(&mut self, delay: f64, at: f64) {
        // Stop after `SLICES` steps, because all slices are new then.
        for _ in 0..SLICES {
            if at < self.until {
                break;
            }
            self.newest = (self.newest + 1) % SLICES;
            self.slices[self.newest] = Mean::default();
            self.until += self.slice;
        }
        if at >= self.until {
            self.until = at + self.slice;
        }
        self.slices[self.newest].add(delay, at);
    }

    fn mean(&self) -> Mean {
        self.slices.iter().fold(Mean::default(), Mean::join)
    }
}

const MINIMA: usize = 24;
/// Length of the intervals in which the minimum delay is determined, in seconds.
const MINIMUM_EVERY: f64 = 2.5;
/// Maximum drift of the clocks, in seconds per second. If the delay has a steeper slope, a queue is growing.
const MOST_DRIFT: f64 = 250e-6;
/// Maximum standard error of a slope, in seconds per second. A slope with a larger error is not used.
const SURE_WITHIN: f64 = 15e-6;

/// Estimates the drift of the clocks. The drift is the slope of a regression line through the minimum delays of the
/// last minute.
#[derive(Clone, Copy, Debug)]
struct Trend {
    minima: [(f64, f64); MINIMA],
    known: usize,
    open: Option<(f64, f64)>,
    until: f64,
    slope: f64,
}

impl Trend {
    fn new() -> Self {
        Self { minima: [(0.0, 0.0); MINIMA], known: 0, open: None, until: MINIMUM_EVERY, slope: 0.0 }
    }

    fn add(&mut self, delay: f64, at: f64) {
        if at >= self.until {
            if let Some(minimum) = self.open.take() {
                self.minima.rotate_right(1);
                self.minima[0] = minimum;
                self.known = (self.known + 1).min(MINIMA);
                self.fit();
            }
            self.until = at + MINIMUM_EVERY;
        }
        if self.open.is_none_or(|(_, least)| delay < least) {
            self.open = Some((at, delay));
        }
    }

    /// Updates the slope by least squares. Keeps the old slope if the minima do not fit a line well, or if the line is
    /// steeper than a drift can be.
    fn fit(&mut self) {
        let points = &self.minima[..self.known];
        // With two points, the error of the slope can't be estimated.
        if points.len() < 3 {
            return;
        }
        let n = points.len() as f64;
        let (t, d) = points.iter().fold((0.0, 0.0), |(t, d), p| (t + p.0 / n, d + p.1 / n));
        let (mut tt, mut td, mut dd) = (0.0, 0.0, 0.0);
        for p in points {
            tt += (p.0 - t) * (p.0 - t);
            td += (p.0 - t) * (p.1 - d);
            dd += (p.1 - d) * (p.1 - d);
        }
        let slope = td / tt;
        // The standard error of the slope. The residuals have n − 2 degrees of freedom.
        let deviation = ((dd - slope * td).max(0.0) / (n - 2.0) / tt).sqrt();
        if slope.abs() <= MOST_DRIFT && deviation <= SURE_WITHIN {
            self.slope = slope;
        }
    }

    /// Returns the minimum delay in the last minute. Each delay is extrapolated to the time `at` with the slope.
    fn lowest(&self, at: f64) -> Option<f64> {
        let points = self.minima[..self.known].iter().chain(&self.open);
        points.map(|(t, d)| d + self.slope * (at - t)).reduce(f64::min)
    }
}

/// Decides for one receiver whether there is congestion.
///
/// ```text
///  CJ_k = (A_k − G_k) − (A_0 − G_0)        A: arrival of a frame's first packet, G: when the frame was made or sent
///
///  CONGESTED  ⇔  A_short − A_long > ε      A_short: mean of CJ since the last report, A_long: over the last minute
/// ```
///
/// Lost frames need no special treatment, and the offset between the clocks cancels out. The drift between the clocks
/// does not cancel out. So both means are extrapolated to the same time along the [`Trend`].
///
/// Source: ASMP, 3.7, equations 16–18.
#[derive(Clone, Debug)]
pub(super) struct Indicator {
    anchor: Option<(OneWay, Time)>,
    last: f64,
    short: Mean,
    long: Long,
    trend: Trend,
    state: State,
    drift: bool,
    eps: f64,
    equal_is_congested: bool,
    window: Span,
}

impl Indicator {
    pub(super) fn new(config: &Config) -> Self {
        // In paper mode, equal means count as congestion (equation 18). The paper's text (3.7) contradicts its
        // equation.
        let equal_is_congested = !config.repaired;
        let window = if config.repaired { LONG_MEAN } else { Span::ZERO };
        Self {
            anchor: None,
            last: 0.0,
            short: Mean::default(),
            long: Long::new(window),
            trend: Trend::new(),
            // Before the first frame, both means are equal.
            state: if equal_is_congested { State::Congested } else { State::Unloaded },
            drift: config.repaired,
            eps: config.ci_eps.as_secs_f64(),
            equal_is_congested,
            window,
        }
    }

    pub(super) fn on_frame(&mut self, one_way: OneWay, at: Time) {
        let (first, since) = *self.anchor.get_or_insert((one_way, at));
        let (delay, now) = (one_way.variation_since(first).as_secs_f64(), at.since(since).as_secs_f64());
        // If the delay jumps, a clock was set, so start again. The paper does not have this rule.
        if self.drift && (delay - self.last).abs() > CLOCK_STEP.as_secs_f64() {
            *self = Self { short: Mean::default(), long: Long::new(self.window), trend: Trend::new(), ..*self };
            self.anchor = Some((one_way, at));
            return self.count(0.0, 0.0);
        }
        self.count(delay, now);
    }

    fn count(&mut self, delay: f64, now: f64) {
        self.last = delay;
        self.short.add(delay, now);
        self.long.add(delay, now);
        self.trend.add(delay, now);
    }

    /// Returns the clock drift in seconds per second. Returns 0 if it is not yet known, or if `drift` is off.
    pub(super) fn drift(&self) -> f64 {
        if self.drift { self.trend.slope } else { 0.0 }
    }

    /// Ends a report interval. Returns the state of the network and the mean queueing delay in this interval.
    pub(super) fn judge(&mut self) -> (State, Span) {
        if self.short.count == 0 {
            return (self.state, Span::ZERO);
        }
        let (short, long) = (self.short, self.long.mean());
        let excess = short.delay - long.delay - self.drift() * (short.at - long.at);
        let congested = if self.equal_is_congested { excess >= self.eps } else { excess > self.eps };
        self.state = if congested { State::Congested } else { State::Unloaded };
        let lowest = self.trend.lowest(short.at).unwrap_or(short.delay);
        self.short = Mean::default();
        (self.state, Span::from_secs_f64(short.delay - lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Mode, Values};
    use steadycast_units::PeerTime;

    fn indicator(mode: Mode) -> Indicator {
        Indicator::new(&Config::new(&Values::resolve(super::super::PARAMS, mode, &[]).unwrap()))
    }

    /// Adds a frame every 40 ms, beginning at `from`, for `seconds` seconds. `delay` is called with a frame's time in
    /// seconds, and returns the frame's delay in ms.
    fn feed(indicator: &mut Indicator, from: f64, seconds: f64, delay: impl Fn(f64) -> f64) {
        for k in 0..(seconds / 0.04) as u64 {
            let sent = from + k as f64 * 0.04;
            let sent_at = PeerTime::from_nanos((sent * 1e9) as i64);
            let at = Time::ZERO + Span::from_secs_f64(sent + delay(sent) / 1e3);
            indicator.on_frame(OneWay::between(sent_at, at), at);
        }
    }

    #[test]
    fn a_constant_delay_is_unloaded_repaired_and_congested_as_printed() {
        for (mode, state) in [(Mode::Repaired, State::Unloaded), (Mode::Paper, State::Congested)] {
            let mut indicator = indicator(mode);
            feed(&mut indicator, 0.0, 5.0, |_| 30.0);
            assert_eq!(indicator.judge().0, state);
        }
    }

    #[test]
    fn a_growing_delay_is_congested_and_a_shrinking_one_unloaded() {
        for mode in [Mode::Repaired, Mode::Paper] {
            let mut indicator = indicator(mode);
            feed(&mut indicator, 0.0, 5.0, |_| 30.0);
            indicator.judge();
            feed(&mut indicator, 5.0, 1.0, |t| 30.0 + 40.0 * (t - 5.0));
            let (state, queue) = indicator.judge();
            assert_eq!(state, State::Congested);
            assert!(queue > Span::millis(18) && queue < Span::millis(21), "{queue}");
            feed(&mut indicator, 6.0, 1.0, |_| 29.0);
            assert_eq!(indicator.judge().0, State::Unloaded);
        }
    }

    #[test]
    fn half_a_millisecond_is_no_congestion_and_three_are() {
        for (more, state) in [(0.5, State::Unloaded), (3.0, State::Congested)] {
            let mut indicator = indicator(Mode::Repaired);
            feed(&mut indicator, 0.0, 30.0, |_| 30.0);
            indicator.judge();
            feed(&mut indicator, 30.0, 1.0, |_| 30.0 + more);
            assert_eq!(indicator.judge().0, state, "{more} ms");
        }
    }

    #[test]
    fn a_drift_of_a_hundred_parts_per_million_is_found_and_taken_out() {
        for ppm in [-100.0, 100.0] {
            let mut indicator = indicator(Mode::Repaired);
            // The jitter of up to 2 ms must not count as a queue, because it exists from the first second on.
            let jitter = |t: f64| 2.0 * (t * 7.3).fract();
            feed(&mut indicator, 0.0, 120.0, |t| 30.0 + jitter(t) + t * ppm / 1e3);
            assert!((indicator.drift() * 1e6 - ppm).abs() < 5.0, "{} of {ppm}", indicator.drift() * 1e6);
            indicator.judge();
            feed(&mut indicator, 120.0, 2.0, |t| 30.0 + jitter(t) + t * ppm / 1e3);
            assert_eq!(indicator.judge().0, State::Unloaded);
            feed(&mut indicator, 122.0, 2.0, |t| 34.0 + jitter(t) + t * ppm / 1e3);
            assert_eq!(indicator.judge().0, State::Congested);
        }
    }

    #[test]
    fn as_printed_a_drift_is_congestion_for_ever() {
        let mut indicator = indicator(Mode::Paper);
        for second in 0..600 {
            feed(&mut indicator, f64::from(second), 1.0, |t| 30.0 + t * 0.1);
            if second > 0 {
                assert_eq!(indicator.judge().0, State::Congested, "second {second}");
            }
        }
    }

    #[test]
    fn a_queue_that_fills_in_ten_seconds_is_not_taken_for_drift() {
        let mut indicator = indicator(Mode::Repaired);
        let delay = |t: f64| 30.0 + if t < 50.0 { 0.0 } else { 10.0 * (t - 50.0) };
        feed(&mut indicator, 0.0, 59.0, delay);
        indicator.judge();
        feed(&mut indicator, 59.0, 1.0, delay);
        // The delay grows by 10,000 parts per million, which must not count as drift. The error that remains over the
        // long mean is below a millisecond.
        assert!(indicator.drift().abs() < 25e-6, "{}", indicator.drift());
        assert_eq!(indicator.judge().0, State::Congested);
    }

    #[test]
    fn a_clock_that_is_set_starts_the_means_anew() {
        let mut indicator = indicator(Mode::Repaired);
        feed(&mut indicator, 0.0, 20.0, |_| 30.0);
        indicator.judge();
        feed(&mut indicator, 20.0, 1.0, |_| 3_600_030.0);
        assert_eq!(indicator.judge().0, State::Unloaded);
    }

    #[test]
    fn the_long_mean_forgets_what_is_older_than_its_window() {
        let mut long = Long::new(Span::secs(60));
        for k in 0..1_000 {
            long.add(if k < 500 { 10.0 } else { 0.0 }, f64::from(k) * 0.1);
        }
        // The first 50 s have a delay of 10 ms, and the next 50 s have no delay. The mean is over the last 55 to 65 s.
        // So it includes at most 15 s with a delay.
        let mean = long.mean().delay;
        assert!((0.5..=2.5).contains(&mean), "{mean}");
        for k in 1_000..1_200 {
            long.add(0.0, f64::from(k) * 0.1);
        }
        assert_eq!(long.mean().delay, 0.0);
    }
}
