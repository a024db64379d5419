use super::message::Message;
use super::{FIRST_QUANTIZER, Law, PACE, QUANTIZER_STEP, RTO_MIN, SR_FRAMES, Settings, Variant};
use crate::entry::{Setup, Values};
use crate::equation::{LossRate, throughput_full};
use crate::fields::ABSURD_RTT;
use crate::pictures::Pictures;
use crate::{Allowance, Body, Decision, Due, Limit, Report, SenderHalf, Sent, Wake, Why};
use std::borrow::Cow;
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Stamp, Time};

/// An interval ends this much before the next group of pictures, so that the encoder gets the new rate in time.
const EARLY: Span = Span::micros(1);
const LEAST_RTT: Span = Span::millis(1);
/// The rate must exceed the rate of a quantizer's largest group by this factor, to allow for rounding errors.
const ROUNDING: f64 = 1.001;
/// The minimum rate is one packet per this time.
const LONGEST_GAP: Span = Span::secs(64);

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    mean: Span,
    deviation: Span,
}

impl Smoothed {
    fn with(before: Option<Self>, sample: Span) -> Self {
        let Some(Self { mean, deviation }) = before else { return Self { mean: sample, deviation: sample / 2 } };
        let (old, new) = (mean.as_secs_f64(), sample.as_secs_f64());
        let off = (new - old).abs();
        Self {
            mean: Span::from_secs_f64(old + (new - old) / 8.0),
            deviation: Span::from_secs_f64(deviation.as_secs_f64() * 0.75 + off / 4.0),
        }
    }
}

/// Returns the age of an echoed time stamp. A stamp from the future gets an age of hours, and the caller discards
/// it.
fn age(stamp: Stamp, now: Time) -> Span {
    // The difference is in units of 2⁻¹⁸ s.
    let units = Stamp::of(now).0.wrapping_sub(stamp.0);
    Span::from_secs_f64(f64::from(units) / f64::from(1 << 18))
}

/// Numbers of packets, according to the reports.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    expected: u64,
    lost: i64,
}

impl Counts {
    fn add(&mut self, expected: u64, lost: i64) {
        self.expected = self.expected.saturating_add(expected);
        self.lost = self.lost.saturating_add(lost);
    }

    /// Returns the fraction of lost packets. Late packets reduce it, but not below zero. Returns `None` if no packet
    /// was expected or none was lost.
    fn fraction(&self) -> Option<LossRate> {
        // Return early if no packet was expected, because 0/0 is NaN, which `min` would turn into 1.
        let of = (self.expected > 0).then_some(self.expected as f64)?;
        LossRate::new((self.lost as f64 / of).min(1.0))
    }
}

pub(super) struct Sender {
    settings: Settings,
    variant: Variant,
    by_interval: bool,
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    map: Arc<Pictures>,
    /// Whether the source sends frames. Otherwise it always has data to send.
    pictured: bool,
    start: Option<Time>,
    /// Number of groups of pictures, or of frames, between `start` and `ends`.
    units: u64,
    began: Time,
    ends: Time,
    rate: Rate,
    rung: usize,
    /// Whether the rate is exactly the rate of the quantizer `rung`.
    on_rung: bool,
    rtt: Option<Smoothed>,
    interval: Counts,
    session: Counts,
    heard: bool,
    /// When the rate is halved unless a report arrives before.
    silence: Time,
    next_sr: Time,
    limit: Limit,
    why: Why,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values, variant: Variant) -> Self {
        let settings = Settings::read(values);
        let map = setup.pictures.clone().unwrap_or_else(|| Arc::new(Pictures::stand_in()));
        let pictured = setup.pictures.is_some();
        let cap = setup.cap.min(map.highest().max(map.rungs.iter().map(|r| r.peak).max().unwrap_or(Rate::ZERO)));
        // Ignore a minimum rate that equals the lowest quantizer's rate. It comes from the encoder, and not from a
        // user. The encoder can skip frames, so the rate may fall below it.
        let own = setup.packet.per(LONGEST_GAP);
        let floor = if setup.floor == map.lowest() { own } else { setup.floor.max(own) }.min(cap);
        let steps = variant.law == Law::Quantizer;
        let highest = !steps && values.choice("r0") == "highest";
        let rung = if highest { map.within(cap) } else { map.at_least(FIRST_QUANTIZER) };
        let rate = if highest { cap } else { map.rungs[rung].rate.clamp(floor, cap) };
        Self {
            settings,
            variant,
            by_interval: variant.cumulative && values.choice("cl_branch") == "interval",
            packet: setup.packet,
            floor,
            cap,
            pictured,
            start: None,
            units: 0,
            began: Time::ZERO,
            ends: Time::ZERO,
            rate,
            rung,
            on_rung: true,
            rtt: None,
            interval: Counts::default(),
            session: Counts::default(),
            heard: false,
            silence: Time::NEVER,
            next_sr: Time::ZERO,
            limit: Limit::Start,
            why: Why::rule("first rate"),
            map,
        }
    }

    fn unit(&self) -> Span {
        let unit = if self.settings.by_frame { self.map.frame } else { self.map.group };
        unit.max(LEAST_RTT)
    }

    fn sr_period(&self) -> Span {
        self.map.frame.max(LEAST_RTT).scale(SR_FRAMES)
    }

    fn srtt(&self) -> Option<Span> {
        self.rtt.map(|r| r.mean.max(LEAST_RTT))
    }

    /// Begins the next interval. It lasts for k round trips, rounded up to whole groups of pictures or frames.
    fn begin(&mut self, now: Time) {
        let Some(start) = self.start else { return };
        let unit = self.unit();
        let wanted = match self.srtt() {
            Some(rtt) => rtt.scale(self.settings.k),
            None => self.map.group,
        };
        let length = wanted.as_nanos().div_ceil(unit.as_nanos()).max(1);
        // Skip the intervals that have already passed, if this call is late.
        let behind = now.since(start).as_nanos() / unit.as_nanos();
        self.began = start + unit * self.units;
        self.units = self.units.max(behind) + length;
        self.ends = start + unit * self.units;
        (self.interval, self.heard) = (Counts::default(), false);
    }

    fn end(&mut self, now: Time) {
        match self.srtt() {
            Some(rtt) if self.heard => self.decide(rtt),
            // Keep the rate if no report has arrived in this interval. The paper assumes that no report is lost.
            Some(_) => {}
            None => self.decide_without_rtt(),
        }
        self.begin(now);
    }

    /// Halves the rate after a loss. Used until the round-trip time is known, because the equation needs it.
    fn decide_without_rtt(&mut self) {
        if let Some(p) = self.interval.fraction() {
            self.set(self.rate.scale(0.5), Limit::Network);
            self.why = Why { loss: Some(p.get()), ..Why::rule("loss, no round trip: halved") };
        }
    }

    fn decide(&mut self, rtt: Span) {
        let fraction = if self.variant.cumulative { self.session.fraction() } else { self.interval.fraction() };
        let lossy = if self.by_interval { self.interval.fraction().is_some() } else { fraction.is_some() };
        let rule = match fraction.filter(|_| lossy) {
            Some(p) => {
                let deviation = self.rtt.map_or(Span::ZERO, |r| r.deviation);
                let rto = (rtt + deviation * 4).max(RTO_MIN);
                self.set(throughput_full(self.packet, rtt, p, rto, 1.0), Limit::Network);
                "throughput equation".into()
            }
            None => self.rise(rtt),
        };
        self.why = Why { rule, loss: fraction.map(LossRate::get), rtt: Some(rtt), by: None };
    }

    fn rise(&mut self, rtt: Span) -> Cow<'static, str> {
        let limit = if self.session.fraction().is_some() { Limit::Network } else { Limit::Start };
        match self.variant.law {
            Law::Double => {
                self.set(self.rate.scale(2.0), limit);
                "no loss: doubled".into()
            }
            Law::Additive => {
                let seconds = rtt.as_secs_f64();
                let step = self.packet.as_f64() * self.ends.since(self.began).as_secs_f64() / (seconds * seconds);
                self.set(Rate::from_bytes_per_s(self.rate.as_bytes_per_s() + step), limit);
                "no loss: a packet per round trip".into()
            }
            Law::Quantizer => {
                let now = f64::from(self.map.rungs[self.rung].quantizer);
                let better = self.map.at_least(now - QUANTIZER_STEP);
                // Take at least the next better quantizer. The source's quantizers may be further apart than the step.
                self.rung = if better == self.rung { self.rung.saturating_sub(1) } else { better };
                let rung = self.map.rungs[self.rung];
                self.set_exactly(rung.rate, limit);
                self.on_rung = true;
                Cow::Owned(format!("no loss: quantizer {}", rung.quantizer))
            }
        }
    }

    fn set(&mut self, rate: Rate, limit: Limit) {
        self.set_exactly(rate, limit);
        self.rung = self.map.within(self.rate);
        self.on_rung = false;
    }

    fn set_exactly(&mut self, rate: Rate, limit: Limit) {
        self.rate = rate.clamp(self.floor, self.cap);
        let start = limit == Limit::Start && self.rate > self.floor;
        self.limit = Limit::between(self.rate, self.floor, self.cap, start);
    }

    fn patience(&self) -> Span {
        (self.srtt().unwrap_or_default() * 4).max(self.sr_period() * 4)
    }

    fn count(&mut self, report: &Report<'_>, message: Option<Message>) {
        let counts = match message {
            Some(Message::Counts { expected, received }) if self.settings.counts => {
                Some((u64::from(expected), i64::from(expected) - i64::from(received)))
            }
            // Use the cumulative counters, which remain correct if a report is lost.
            _ => report.reception.map(|r| (r.expected, r.lost)),
        };
        if let Some((expected, lost)) = counts {
            // Limit the number of lost packets, because more packets can't be lost than were expected.
            let lost = lost.min(i64::try_from(expected).unwrap_or(i64::MAX));
            self.interval.add(expected, lost);
            self.session.add(expected, lost);
            self.heard = true;
            self.silence = report.at + self.patience();
        }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_report(&mut self, report: &Report<'_>) {
        let message = report.body.and_then(Message::parse);
        let sample = match message {
            Some(Message::Ack(stamp)) => Some(age(stamp, report.at)),
            _ => report.rtt,
        };
        if let Some(sample) = sample.filter(|s| *s <= ABSURD_RTT) {
            self.rtt = Some(Smoothed::with(self.rtt, sample));
        }
        self.count(report, message);
    }

    fn on_timer(&mut self, now: Time) {
        if self.start.is_none() {
            (self.start, self.silence, self.next_sr) = (Some(now), now + self.patience(), now + self.sr_period());
            self.begin(now);
        }
        if self.silence <= now {
            self.set(self.rate.scale(0.5), Limit::Network);
            self.why = Why { rtt: self.srtt(), ..Why::rule("no report: halved") };
            self.silence = now + self.patience();
        }
        if self.ends.before(EARLY) <= now {
            self.end(now + EARLY);
        }
    }

    fn wake(&self) -> Option<Wake> {
        if self.start.is_none() {
            return Some(Wake { at: Time::ZERO, why: "start" });
        }
        let interval = Wake { at: self.ends.before(EARLY), why: "control interval" };
        let silence = Wake { at: self.silence, why: "no report" };
        Some(if silence.at < interval.at { silence } else { interval })
    }

    fn due(&self) -> Due {
        match self.start {
            Some(_) if !self.settings.per_packet => Due::At(Wake { at: self.next_sr, why: "sender report" }),
            _ => Due::Rtcp,
        }
    }

    fn announce(&mut self, now: Time) -> Option<Body> {
        let period = self.sr_period();
        let late = now.since(self.next_sr).as_nanos() / period.as_nanos();
        if self.next_sr <= now {
            self.next_sr += period * (late + 1);
        }
        None
    }

    fn decision(&self) -> Decision {
        // Leave room for the largest group of pictures at this quantizer. Its rate may exceed the quantizer's mean
        // rate.
        let target =
            if self.on_rung { self.rate.max(self.map.rungs[self.rung].peak.scale(ROUNDING)) } else { self.rate };
        let target = target.min(self.cap);
        let pacing = if self.pictured { target.max(self.map.lowest()).scale(PACE) } else { target };
        Decision { target, pacing, window: None, limit: self.limit, why: self.why.clone() }
    }

    /// Returns the byte budget of the interval if the rate is below the rate of the lowest quality. Frames that do not
    /// fit into the budget are skipped.
    fn allowance(&self) -> Option<Allowance> {
        let short = self.pictured && self.rate < self.map.lowest();
        short.then(|| Allowance { bytes: self.rate.over(self.ends.since(self.began)), until: self.ends })
    }
}
