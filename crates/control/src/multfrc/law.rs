//! Controls the number of parallel connections. The number falls while the round-trip time shows a queue. Otherwise, it
//! rises.

use crate::entry::{Mode, Values};
use steadycast_units::{Rate, Span, Time};

/// The number of connections rises only if at least this share of the allowed rate was used.
const USED: f64 = 0.9;
const MOST: f64 = 64.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Move {
    /// IIAD: the number of connections rises by an inverse increase, and falls by an additive decrease.
    Iiad,
    /// IIMD: the number of connections rises by an inverse increase, and falls by a multiplicative decrease.
    #[default]
    Iimd,
    Fixed,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Law {
    moves: Move,
    alpha: f64,
    beta: f64,
    gamma: f64,
    period: Span,
    /// Whether R_min is the minimum of all samples. Otherwise, R_min is the minimum of the mean values of all periods.
    of_samples: bool,
    /// Whether the number of connections may rise only if the allowed rate was used.
    used: bool,
    /// Number of connections. It is at least 1.
    pub(super) n: f64,
    next: Option<Time>,
    /// Sum of the round-trip samples in this period, in seconds.
    sum: f64,
    /// Smallest round-trip sample in this period.
    least: Option<Span>,
    /// Number of round-trip samples in this period.
    samples: u32,
    /// R_min of all periods so far.
    base: Option<Span>,
    /// Number of bytes sent in this period.
    sent: f64,
    /// Number of bytes that the rate allowed in this period.
    allowed: f64,
    at: Option<(Time, Rate)>,
}

impl Law {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            moves: match values.choice("law") {
                "iiad" => Move::Iiad,
                "fixed" => Move::Fixed,
                _ => Move::Iimd,
            },
            alpha: values.number("alpha"),
            beta: values.number("beta"),
            gamma: values.number("gamma"),
            period: values.span("period"),
            of_samples: values.choice("rtt_min") == "samples",
            used: values.mode() == Mode::Repaired,
            n: values.number("n"),
            ..Self::default()
        }
    }

    /// Adds a sent packet of `bytes` bytes. `rate` is the allowed rate from now on.
    pub(super) fn on_sent(&mut self, now: Time, bytes: f64, rate: Rate) {
        self.next.get_or_insert(now + self.period);
        self.sent += bytes;
        if let Some((at, rate)) = self.at.replace((now, rate)) {
            self.allowed += rate.as_bytes_per_s() * now.since(at).as_secs_f64();
        }
    }

    pub(super) fn on_sample(&mut self, rtt: Span) {
        self.sum += rtt.as_secs_f64();
        self.samples += 1;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Returns when the current period ends. Returns `None` before the first packet, or if the number of connections is
    /// fixed.
    pub(super) const fn wake(&self) -> Option<Time> {
        match self.moves {
            Move::Fixed => None,
            Move::Iiad | Move::Iimd => self.next,
        }
    }

    /// Ends the current period if it is over. Returns whether the number of connections n has changed.
    ///
    /// A period is congested if R_ave − R_min > γ R_min. R_ave is the mean of the round-trip times in this period.
    /// R_min is the minimum round-trip time over all periods, of their samples or of their mean values.
    ///
    /// ```text
    ///  law      congested      otherwise
    ///  IIAD     n − β          n + α/n
    ///  IIMD     β n + α/n      n + α/n
    /// ```
    ///
    /// The result is limited to at least 1 and at most [`MOST`]. Source: Chen, Zakhor (EAIO-TFRC), equations 1 and 2.
    pub(super) fn on_timer(&mut self, now: Time) -> bool {
        let Some(next) = self.next.filter(|at| *at <= now) else { return false };
        // Do not catch up on further periods that have passed, because there are no samples for them.
        self.next = Some((next + self.period).max(now + Span::nanos(1)));
        let used = self.sent >= USED * self.allowed;
        let mean = (self.samples > 0).then(|| Span::from_secs_f64(self.sum / f64::from(self.samples)));
        let least = if self.of_samples { self.least } else { mean };
        (self.sent, self.allowed, self.sum, self.samples, self.least) = (0.0, 0.0, 0.0, 0, None);
        let (Some(mean), Some(least)) = (mean, least) else { return false };
        // Never forget R_min. A connection can keep a drop-tail queue full for a long time, and the minimum of a recent
        // time would include this queue.
        let base = self.base.map_or(least, |base| base.min(least));
        self.base = Some(base);
        let congested = mean.saturating_sub(base) > base.scale(self.gamma);
        // If the allowed rate was not used, nothing shows that the path could carry more.
        if !congested && self.used && !used {
            return false;
        }
        let up = self.alpha / self.n;
        let moved = match (self.moves, congested) {
            (Move::Fixed, _) => self.n,
            (_, false) => self.n + up,
            (Move::Iiad, true) => self.n - self.beta,
            (Move::Iimd, true) => self.beta * self.n + up,
        };
        let before = self.n;
        self.n = moved.clamp(1.0, MOST);
        self.n != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::entry::Given;

    fn law(name: &str, mode: Mode, given: &[(&str, Given)]) -> Law {
        let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let params = crate::registry::find(name).unwrap().params;
        Law::new(&Values::resolve(params, mode, &given).unwrap())
    }

    /// Simulates period `k`, with a round-trip time of `ms`. Returns n.
    fn period(law: &mut Law, k: u64, ms: u64) -> f64 {
        let start = Time::ZERO + law.period * k;
        law.on_sent(start, 20_000.0, Rate::kbps(8));
        law.on_sample(Span::millis(ms));
        law.on_timer(start + law.period);
        law.n
    }

    /// Simulates a period with a round-trip time of 100 ms, and sets n to `n`. Then simulates a period with a
    /// round-trip time of `ms`. Returns n.
    fn step(name: &str, n: f64, ms: u64) -> f64 {
        let mut law = law(name, Mode::Repaired, &[("alpha", Given::Number(0.25)), ("beta", Given::Number(0.75))]);
        if name == "aio-tfrc" {
            (law.alpha, law.beta, law.gamma) = (1.0, 1.0, 0.25);
        }
        period(&mut law, 0, 100);
        law.n = n;
        period(&mut law, 1, ms)
    }

    #[track_caller]
    fn close(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-6, "{got} is not {want}");
    }

    #[test]
    fn iimd_has_its_published_steps_and_its_fixed_point_at_one() {
        for (n, down) in [(1.0, 1.0), (1.5, 1.291_667), (2.0, 1.625), (4.0, 3.0625)] {
            close(step("eaio-tfrc", n, 151), down);
            close(step("eaio-tfrc", n, 150), n + 0.25 / n);
        }
    }

    #[test]
    fn iiad_takes_one_away_and_adds_one_in_n() {
        for (n, down) in [(1.0, 1.0), (1.5, 1.0), (4.0, 3.0)] {
            close(step("aio-tfrc", n, 126), down);
            close(step("aio-tfrc", n, 125), n + 1.0 / n);
        }
    }

    #[test]
    fn as_printed_with_alpha_and_beta_of_one_the_number_never_falls() {
        let mut law = law("eaio-tfrc", Mode::Paper, &[]);
        let mut last = period(&mut law, 0, 100);
        for k in 1..60 {
            let n = period(&mut law, k, if k % 2 == 0 { 100 } else { 900 });
            close(n, (last + 1.0 / last).min(64.0));
            last = n;
        }
    }

    #[test]
    fn the_number_grows_with_the_root_of_time() {
        // n² = 1 + 2 α t / 20 s. So n is 9 after 3200 s if α is 0.25.
        let mut law = law("eaio-tfrc", Mode::Repaired, &[]);
        let n = (0..160).map(|k| period(&mut law, k, 100)).last().unwrap();
        assert!((8.9..9.2).contains(&n), "{n}");
    }

    #[test]
    fn a_period_without_a_sample_and_a_source_that_sends_too_little_leave_it_where_it_is() {
        let mut law = law("eaio-tfrc", Mode::Repaired, &[]);
        law.on_sent(Time::ZERO, 1000.0, Rate::kbps(8));
        assert!(!law.on_timer(Time::ZERO + Span::secs(20)));
        close(law.n, 1.0);
        let at = Time::ZERO + Span::secs(21);
        law.on_sent(at, 1000.0, Rate::mbps(1));
        law.on_sent(at + Span::secs(10), 1000.0, Rate::mbps(1));
        law.on_sample(Span::millis(100));
        assert!(!law.on_timer(Time::ZERO + Span::secs(40)));
        close(law.n, 1.0);
    }

    #[test]
    fn a_longer_way_counts_as_congestion_for_good() {
        let mut law = law("eaio-tfrc", Mode::Repaired, &[]);
        for k in 0..30 {
            period(&mut law, k, 100);
        }
        let high = law.n;
        for k in 30..90 {
            period(&mut law, k, 200);
        }
        let low = law.n;
        assert!(high > 3.5 && low < 1.2, "{high} {low}");
    }

    #[test]
    fn the_paper_s_minimum_is_of_means_and_never_forgotten() {
        let mut mean = law("aio-tfrc", Mode::Paper, &[]);
        let mut least = law("aio-tfrc", Mode::Repaired, &[]);
        for law in [&mut mean, &mut least] {
            for k in 0..3 {
                law.on_sample(Span::millis(100));
                period(law, k, 200);
            }
        }
        // The mean of 150 ms is not above the minimum of the mean values. But it is above the minimum of the samples.
        assert!(mean.n > 2.0 && least.n == 1.0, "{} {}", mean.n, least.n);
    }
}
