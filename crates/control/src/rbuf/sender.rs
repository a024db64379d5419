use super::message::FeedbackReport;
use super::{ALPHA_SRTT, EXTENSION, GAMMA_OVER, GAMMA_OVER_FAST, GAMMA_UNDER, GAMMA_UNDER_FAST, HORIZON, STEP, Train};
use crate::entry::{Mode, Setup, Values};
use crate::equation::{LossRate, throughput};
use crate::fields::ABSURD_RTT;
use crate::{Decision, Departing, Limit, Notice, Report, SenderHalf, Sent, Wake, Why, tfrc};
use steadycast_units::{Bytes, Rate, Span, Stamp, Time};

const LEAST_RTT: Span = Span::millis(1);
/// Number of round trips without a report during which the rate is kept. The next report is due in the first of them.
const HELD_ROUNDS: u64 = 2;

/// The state of the receiver's buffer, from its fill level (equation 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Underflow,
    Stable,
    Overflow,
}

/// How `rbuf-type1` uses ΔB, the change of the fill level.
#[derive(Clone, Copy, Debug)]
struct Trend {
    /// Whether ΔB has the signs that section 4.4 prints (paper mode). These signs contradict section 3.2.
    printed: bool,
    predictive: bool,
}

#[derive(Default)]
pub(super) struct Sender {
    train: Train,
    low: f64,
    margin: f64,
    by_latency: Option<f64>,
    trend: Option<Trend>,
    /// Whether equation 15 adds one packet per second. Otherwise it adds one packet per round trip.
    adds_rate: bool,
    capped: bool,
    least: Rate,
    most: Rate,
    /// The send rate T, in bytes per second.
    rate: f64,
    /// Moving average of ΔB, in bytes. It averages over the time between two sent packets, but over at least one round
    /// trip.
    change: f64,
    srtt: Option<Span>,
    last_echo: Option<Stamp>,
    /// When the rate is next reduced if no feedback arrives until then.
    silence: Option<Time>,
    loss: Option<LossRate>,
    limit: Limit,
    rule: &'static str,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values, first_type: bool) -> Self {
        let train = Train::new(setup.packet);
        let most = train.rate(values.span("ipd_min")).min(setup.cap);
        let least = train.rate(values.span("ipd_max")).max(setup.floor).min(most);
        let trend = first_type.then(|| Trend {
            printed: values.mode() == Mode::Paper,
            predictive: values.choice("stable") == "predictive",
        });
        Self {
            low: values.number("b_l"),
            margin: values.number("margin"),
            by_latency: (values.choice("margin_mode") == "latency").then(|| values.number("k_lat")),
            trend,
            adds_rate: values.choice("added") == "rate",
            capped: values.choice("cc_cap") == "tfrc",
            rate: train.rate(values.span("ipd_start")).clamp(least, most).as_bytes_per_s(),
            least,
            most,
            train,
            rule: "first delay",
            ..Self::default()
        }
    }

    /// Updates the smoothed round-trip time (equation 17). Returns its old value, and its change in seconds.
    fn smooth_rtt(&mut self, sample: Span) -> (Span, f64) {
        let old = self.srtt.unwrap_or(sample);
        let new = Span::from_secs_f64(ALPHA_SRTT * old.as_secs_f64() + (1.0 - ALPHA_SRTT) * sample.as_secs_f64());
        self.srtt = Some(new);
        (old, new.as_secs_f64() - old.as_secs_f64())
    }

    /// Returns the fill levels that separate the three states, in bytes (equation 10).
    fn bounds(&self, full: f64, rtt: f64) -> (f64, f64) {
        let margin = match self.by_latency {
            Some(rounds) => rounds * self.rate * rtt,
            None => self.margin * full,
        };
        (self.low * full, (full - margin).max(self.low * full))
    }

    fn update(&mut self, found: &FeedbackReport, rtt: Span, growth: f64) {
        let (full, level) = (found.buffer.size.as_f64(), found.buffer.level.as_f64());
        let rtt = rtt.max(LEAST_RTT).as_secs_f64();
        let (low, high) = self.bounds(full, rtt);
        let change = f64::from(found.change);
        // Average ΔB over several round trips. At a low rate, the level falls in each round trip that has no packet,
        // although it is stable on average.
        let packet = self.train.packet.as_f64();
        let rounds = (packet / (self.rate * rtt)).max(1.0);
        self.change += (change - self.change) / rounds;
        let state = if level < low {
            State::Underflow
        } else if level >= high {
            State::Overflow
        } else {
            State::Stable
        };
        // In the state `Stable`, the data of the next round trip is spread over this time.
        let round = (rtt + growth).max(LEAST_RTT.as_secs_f64());
        (self.rate, self.rule) = match (state, self.trend) {
            (State::Underflow, trend) => {
                let fast = trend.filter(|t| if t.printed { change > 0.0 } else { change < 0.0 });
                (self.rate * fast.map_or(GAMMA_UNDER, |_| GAMMA_UNDER_FAST), "underflow")
            }
            (State::Overflow, trend) => {
                let fast = trend.filter(|t| if t.printed { change < 0.0 } else { change > 0.0 });
                (self.rate * fast.map_or(GAMMA_OVER, |_| GAMMA_OVER_FAST), "overflow")
            }
            (State::Stable, Some(t)) if t.predictive => {
                let then = level + HORIZON * self.change;
                if self.change > 0.0 && then >= high {
                    (self.rate * GAMMA_OVER_FAST, "stable: filling")
                } else if self.change < 0.0 && then < low {
                    (self.rate * GAMMA_UNDER, "stable: emptying")
                } else if self.change > 0.0 {
                    (self.rate * rtt / round, "stable: rising")
                } else {
                    let amount = self.rate * rtt;
                    ((amount + packet.min(STEP / rounds * amount)) / round, "stable")
                }
            }
            (State::Stable, _) if self.adds_rate => (self.rate * rtt / round + packet, "stable"),
            (State::Stable, _) => ((self.rate * rtt + packet) / round, "stable"),
        };
        self.bound();
    }

    /// Limits the rate to the range that the delay between packets allows. If `capped` is set, also limits it to the
    /// rate that a TCP would get.
    fn bound(&mut self) {
        let share = self.loss.zip(self.srtt).filter(|_| self.capped);
        let share = share.map(|(p, rtt)| throughput(self.train.packet, rtt, p));
        let most = share.map_or(self.most, |x| x.min(self.most));
        let (least, most) = (self.least.as_bytes_per_s(), most.max(self.least).as_bytes_per_s());
        self.limit = match self.rate {
            r if r >= most && share.is_none_or(|x| x >= self.most) => Limit::Cap,
            r if r <= least => Limit::Floor,
            _ => Limit::Network,
        };
        self.rate = self.rate.clamp(least, most);
    }

    fn round(&self) -> Span {
        self.srtt.unwrap_or(ABSURD_RTT).max(LEAST_RTT)
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_report(&mut self, report: &Report<'_>) {
        let Some(found) = report.body.and_then(FeedbackReport::parse) else { return };
        // `age` is in units of 2⁻¹⁸ s. An echo from the future wraps around to an age of hours.
        let units = Stamp::of(report.at).0.wrapping_sub(found.echo.0);
        let age = Span::from_secs_f64(f64::from(units) / f64::from(1 << 18));
        // Ignore a report that claims to have been held longer than its echo is old.
        if age < found.delay || age > ABSURD_RTT {
            return;
        }
        // Take no new round-trip sample from an echo that was already used.
        let (rtt, growth) = match self.srtt {
            Some(old) if self.last_echo == Some(found.echo) => (old, 0.0),
            _ => self.smooth_rtt(age.saturating_sub(found.delay)),
        };
        self.last_echo = Some(found.echo);
        self.silence = Some(report.at + self.round() * HELD_ROUNDS);
        self.loss = found.loss.and_then(|p| LossRate::new(f64::from(p)));
        if found.buffer.size == Bytes::ZERO {
            self.rule = "no buffer told: first delay";
            self.bound();
        } else {
            self.update(&found, rtt, growth);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.silence.is_some_and(|at| at <= now) {
            self.rate *= GAMMA_OVER;
            self.rule = "no report";
            self.bound();
            let done = self.rate <= self.least.as_bytes_per_s();
            // Stop the timer at the lowest rate, because the rate can't fall further.
            self.silence = (!done).then(|| now + self.round());
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.silence.map(|at| Wake { at, why: "no report" })
    }

    fn decision(&self) -> Decision {
        // Round the rate to one that a delay of whole nanoseconds produces.
        let delay = self.train.delay(Rate::from_bytes_per_s(self.rate));
        let rate = self.train.rate(delay).clamp(self.least, self.most);
        let loss = self.loss.map(LossRate::get);
        let why = Why { loss, rtt: self.srtt, ..Why::rule(self.rule) };
        Decision { target: rate, pacing: rate, window: None, limit: self.limit, why }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        Notice::new(EXTENSION, &tfrc::rtt_notice(self.srtt))
    }
}
