use super::{Config, Profile, Q_OTHER};
use steadycast_units::{Offset, OneWay, Span, Stamp, Time};

const LEAST: Span = Span::millis(1);
const MOST: Span = Span::secs(60);

/// The round-trip time of a receiver. It is R_max until the first sample. Samples are smoothed, and one-way delays
/// adjust the result between two samples.
///
/// ```text
///  R_sample = arrival_i − ts'_r                                          an echo of the receiver's time stamp
///  R        = q R + (1 − q) R_sample                                     q = 0.9 at the limiting receiver, else 0.5
///  R'       = R_sample + (arrival_j − ts_j) − (arrival_i − ts_i)         with each packet j until the next sample
/// ```
///
/// Source: RFC 4654, sections 4.3.2 and 4.3.3. The third line corrects the sign of the RFC's D_r, so that R' equals
/// R_sample for j = i.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Span>,
    least: Option<Span>,
    sample: Option<(Span, OneWay)>,
    /// R'. `None` until a packet arrives after the sample.
    current: Option<Span>,
    /// Slow moving average of the delay variation, in seconds (2001 paper).
    drifted: f64,
}

impl RoundTrip {
    /// Adjusts the round-trip time with the one-way delay of a packet that has no echo.
    pub(super) fn on_packet(&mut self, way: OneWay, config: &Config) {
        let (Some((sample, reference)), Some(smoothed)) = (self.sample, self.smoothed) else { return };
        let variation = way.variation_since(reference);
        self.current = Some(if config.profile == Profile::Sigcomm2001 {
            self.drifted += 0.005 * (variation.as_secs_f64() - self.drifted);
            moved(smoothed, Offset::from_secs_f64(self.drifted))
        } else {
            moved(sample, variation)
        });
    }

    /// Measures the round-trip time with an echo. Returns true for the first measurement.
    pub(super) fn on_echo(&mut self, echo: Stamp, way: OneWay, at: Time, is_clr: bool, config: &Config) -> bool {
        let Some(sample) = elapsed(echo, at) else { return false };
        let q = if is_clr { config.q_clr } else { Q_OTHER };
        let first = self.smoothed.is_none();
        self.smoothed = Some(self.smoothed.map_or(sample, |old| old.scale(q) + sample.scale(1.0 - q)));
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.sample = Some((sample, way));
        // Later delay variations are relative to this new sample.
        self.current = None;
        self.drifted = 0.0;
        first
    }

    pub(super) const fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    pub(super) const fn least(&self) -> Option<Span> {
        self.least
    }

    /// Returns the round-trip time. Returns `r_max` before the first sample.
    pub(super) fn get(&self, r_max: Span) -> Span {
        self.current.or(self.smoothed).unwrap_or(r_max).max(LEAST)
    }
}

/// Returns the time since `stamp` on this end's clock, but at least 1 ms. Returns `None` if it exceeds [`MOST`].
pub(super) fn elapsed(stamp: Stamp, now: Time) -> Option<Span> {
    // Treat a stamp that is slightly in the future as now, because it may have been rounded up.
    let ahead = stamp.0.wrapping_sub(Stamp::of(now).0);
    let span = if ahead < 1 << 18 { Span::ZERO } else { now.since(stamp.own(now)) };
    (span <= MOST).then(|| span.max(LEAST))
}

fn moved(span: Span, by: Offset) -> Span {
    span.moved(by).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Mode, Values};
    use steadycast_units::PeerTime;

    fn config(profile: Profile) -> Config {
        let config = Config::new(&Values::resolve(super::super::PARAMS, Mode::Repaired, &[]).unwrap());
        Config { profile, ..config }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::secs(1_000) + Span::millis(ms)
    }

    fn way(ms: i64) -> OneWay {
        OneWay::between(PeerTime::from_nanos(at(0).as_nanos() as i64 - 5_000_000_000_000), at(ms as u64))
    }

    fn near(span: Span, ms: f64) -> bool {
        (span.as_millis_f64() - ms).abs() < 0.02
    }

    #[test]
    fn the_first_sample_counts_whole_and_later_ones_by_their_weight() {
        let config = config(Profile::Rfc4654);
        for (is_clr, second) in [(true, 90.0 + 5.0), (false, 50.0 + 25.0)] {
            let mut rtt = RoundTrip::default();
            assert_eq!(rtt.get(Span::millis(500)), Span::millis(500));
            assert!(rtt.on_echo(Stamp::of(at(0)), way(40), at(100), is_clr, &config));
            assert!(near(rtt.get(Span::millis(500)), 100.0));
            assert!(!rtt.on_echo(Stamp::of(at(200)), way(40), at(250), is_clr, &config));
            assert!(near(rtt.get(Span::millis(500)), second), "{}", rtt.get(Span::ZERO));
        }
    }

    #[test]
    fn between_samples_the_way_moves_the_last_one_and_leaves_no_trace() {
        let config = config(Profile::Rfc4654);
        let mut rtt = RoundTrip::default();
        rtt.on_echo(Stamp::of(at(0)), way(40), at(100), true, &config);
        rtt.on_packet(way(70), &config);
        assert!(near(rtt.get(Span::ZERO), 130.0));
        rtt.on_packet(way(20), &config);
        assert!(near(rtt.get(Span::ZERO), 80.0));
        rtt.on_echo(Stamp::of(at(200)), way(40), at(300), true, &config);
        assert!(near(rtt.get(Span::ZERO), 100.0));
    }

    #[test]
    fn the_paper_of_2001_moves_it_slowly() {
        let config = config(Profile::Sigcomm2001);
        let mut rtt = RoundTrip::default();
        rtt.on_echo(Stamp::of(at(0)), way(40), at(100), true, &config);
        rtt.on_packet(way(140), &config);
        assert!(near(rtt.get(Span::ZERO), 100.5), "{}", rtt.get(Span::ZERO));
    }

    #[test]
    fn an_echo_from_nowhere_is_no_sample() {
        let config = config(Profile::Rfc4654);
        let mut rtt = RoundTrip::default();
        rtt.on_echo(Stamp(Stamp::of(at(0)).0.wrapping_sub(100 << 18)), way(0), at(0), true, &config);
        assert!(!rtt.is_known());
        // The stamp was rounded up by half a unit. The measured time is therefore zero, and must count as a
        // millisecond.
        rtt.on_echo(Stamp(Stamp::of(at(0)).0.wrapping_add(1)), way(0), at(0), true, &config);
        assert_eq!(rtt.get(Span::ZERO), LEAST);
    }
}
