//! Tests of the control laws of `steady`: they must tell similar situations apart, and keep the rate within bounds.
use super::compete::CompeteLaw;
use super::delay::DelayLaw;
use super::law::{Law, Mode as Rules};
use super::law_input::{LawInput, Transition};
use super::packet::Loss;
use super::scalable::ScalableLaw;
use super::signals::{Burst, FeedbackSummary, Signals};
use super::trains::{Train, TrainMonitor, TrainSchedule};
use super::verdict::{LossClassifier, OwnQueue, PeakRate, RateResponse};
use super::{Config, PARAMS};
use crate::entry::{Mode, Setup, Values};
use crate::equation::{LossRate, throughput_full};
use crate::half::{PacketArrival, PacketReport, Stream};
use crate::promise::Check;
use steadycast_units::{Bytes, PeerTime, Rate, Seed, Span, Time};

fn config() -> Config {
    let setup = Setup::unicast(Rate::kbps(1), Rate::mbps(50), Seed(1).part("steady"));
    Config::new(&setup, &Values::resolve(PARAMS, Mode::Repaired, &[]).unwrap())
}

/// Returns a pseudo-random value within ±1 whose mean is 0.
fn noise(n: usize) -> f64 {
    f64::from(u32::try_from(n * 7_919 % 201).unwrap()) / 100.0 - 1.0
}

/// Returns a [`RateResponse`] after 60 observations, one every 100 ms. In each group of six observations, the sent rate
/// rises from 1 Mb/s in steps of the fraction `swing`. `arrives` returns the receive rate of an observation.
fn follows(swing: f64, arrives: impl Fn(f64, usize) -> f64) -> RateResponse {
    let mut follows = RateResponse::default();
    for n in 0..60 {
        let sent = 1e6 * (1.0 + swing * f64::from(u32::try_from(n % 6).unwrap()));
        follows.add(0.1 * f64::from(u32::try_from(n).unwrap()), sent, arrives(sent, n));
    }
    follows
}

fn is_own(follows: &RateResponse) -> bool {
    follows.shows_own_queue()
}

#[test]
fn a_queue_has_little_of_a_flow_where_what_arrives_follows_nearly_all_that_is_sent() {
    for link in [2e6, 5e6, 20e6] {
        let has_little = |share: f64| {
            let others = link * (1.0 - share);
            let shared = |sent: f64, n: usize| link * sent / (sent + others) * (1.0 + 0.02 * noise(n));
            let scale = share * link / 1e6;
            follows(0.15, |sent, n| shared(sent * scale, n)).shows_small_share()
        };
        assert!([0.01, 0.05, 0.1].into_iter().all(has_little), "on {link} bit/s");
        assert!(![0.25, 0.33, 0.5, 1.0].into_iter().any(has_little), "on {link} bit/s");
    }
    let opposed = follows(0.15, |sent, n| sent * sent / 1e6 * (1.0 + 0.1 * noise(n)));
    assert!(!opposed.shows_small_share(), "others that give way when more is sent");
}

#[test]
fn a_queue_of_its_own_is_one_where_what_arrives_does_not_follow_what_is_sent() {
    let own = |_: f64, n: usize| 1e6 * (1.0 + 0.1 * noise(n));
    assert!(is_own(&follows(0.15, own)));
    for others in [0.7e6, 1e6, 3e6] {
        let shared = |sent: f64, n: usize| 2e6 * sent / (sent + others) * (1.0 + 0.1 * noise(n));
        assert!(!is_own(&follows(0.15, shared)), "beside {others} bit/s");
    }
}

#[test]
fn a_rate_that_hardly_changed_tells_nothing_of_whose_queue_it_is() {
    assert!(!is_own(&follows(0.01, |_, _| 1e6)));
    let mut few = RateResponse::default();
    (0..7).for_each(|n| few.add(f64::from(n), 1e6 * f64::from(1 + n % 3), 1e6));
    assert!(!is_own(&few));
    few.add(7.0, 2e6, 1e6);
    assert!(!is_own(&few), "rows a second apart fade");
}

#[test]
fn losses_at_any_queue_are_taken_for_chance_and_losses_at_the_highest_for_congestion() {
    let after = |rank: fn(usize) -> f64| {
        let mut losses = LossClassifier::new();
        let see = |n: usize| {
            let at = f64::from(u32::try_from(n).unwrap());
            losses.on_loss(at, &Loss { sent: at, q: 0.03, rank: rank(n) }, 0.002)
        };
        (0..40).map(see).filter(|congested| *congested).count()
    };
    assert_eq!(after(|n| 0.5 + 0.5 * noise(n)), 0);
    let at_the_top = after(|_| 0.95);
    assert!((30..40).contains(&at_the_top), "{at_the_top} of 40");
}

#[test]
fn the_highest_rate_is_remembered_for_a_minute_and_not_for_ten() {
    let mut memory = PeakRate(4e6);
    (0..600).for_each(|_| memory.update(0.0, 0.1, false));
    assert!((memory.0 / 2e6 - 1.0).abs() < 0.01, "{}", memory.0);
    (0..5_400).for_each(|_| memory.update(0.0, 0.1, false));
    assert!(memory.0 < 5e3, "{}", memory.0);
}

/// Returns the last packet's queueing delay and the path rate after a burst of 20 packets. The burst is sent at 2.5
/// Mb/s over a path of 1 Mb/s and 20 ms.
fn burst(bursts: Option<Burst>) -> (f64, f64) {
    let (mut signals, size, mut free) = (Signals::new(), Bytes::new(1_000), 0.0_f64);
    let mut hear = |signals: &mut Signals, number: u64, sent: f64| {
        let at = Time::ZERO + Span::from_secs_f64(sent);
        signals.on_sent(at, number, size.get(), bursts);
        free = free.max(sent + 0.02) + 0.008;
        let arrived = PacketArrival { at: Some(PeerTime::from_nanos((free * 1e9) as i64)), ecn: None };
        let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
        signals.on_feedback(Time::ZERO + Span::from_secs_f64(free + 0.02), None, &[report], (1e6, 20));
    };
    (0..10).for_each(|n| hear(&mut signals, n, 0.02 * n as f64));
    (0..20).for_each(|n| hear(&mut signals, 10 + n, 1.0 + 0.0032 * n as f64));
    (signals.q, signals.path_rate(0.15, 1e6).unwrap())
}

#[test]
fn the_queue_that_a_sources_own_burst_makes_is_not_taken_for_others() {
    let bursts = Burst { rate: 1e6, pacing: 1.25, max_queue: 0.25 };
    let (plain, _) = burst(None);
    assert!((0.085..0.095).contains(&plain), "19 packets wait 4.8 ms each: {plain}");
    let (less, carries) = burst(Some(bursts));
    // At the pacing rate of 1.25 Mb/s the packets would be 6.4 ms apart, but they are sent 3.2 ms apart. The last of 20
    // is therefore 61 ms early. At 1 Mb/s, this causes 61 ms × 1.25 = 76 ms of queueing delay. So only 15 of the 91 ms
    // are attributed to the path.
    assert!((0.014..0.016).contains(&less), "{less}");
    assert!((0.9e6..1.3e6).contains(&carries), "{carries}");
}

#[test]
fn a_burst_at_a_path_that_carries_half_the_rate_is_still_a_queue() {
    let bursts = Burst { rate: 2e6, pacing: 1.25, max_queue: 0.25 };
    let (less, _) = burst(Some(bursts));
    assert!((0.07..0.095).contains(&less), "2.5 Mb/s is no burst at 2 Mb/s: {less}");
}

/// The one-way delay of reports, in seconds.
const BACK: f64 = 0.02;

/// Returns the queueing delay of a TCP flow whose window varies. The delay is a triangle wave with a period of 1 s: its
/// maximum `most` is at each whole second, and half a second later it is lower by the share `depth`.
fn tcp_queue(at: f64, most: f64, depth: f64) -> f64 {
    most * (1.0 - depth * (1.0 - 2.0 * (at.rem_euclid(1.0) - 0.5).abs()))
}

/// Sends packets of 1000 B under the control of a [`Law`], and reports each packet separately. A test sets the delay of
/// each packet.
struct LawDriver {
    law: Law,
    now: f64,
    number: u64,
    /// The send time of each packet, in seconds, and the law's rule after the report on this packet. If the packet was
    /// lost, it is the rule after the packet was sent.
    rules: Vec<(f64, &'static str)>,
}

impl LawDriver {
    fn new(cap: Rate) -> Self {
        Self::with(cap, |config| config)
    }

    fn with(cap: Rate, change: impl Fn(Config) -> Config) -> Self {
        let setup = Setup { packet: Bytes::new(1_000), ..Setup::unicast(Rate::kbps(1), cap, Seed(1).part("steady")) };
        let config = change(Config::new(&setup, &Values::resolve(PARAMS, Mode::Repaired, &[]).unwrap()));
        Self { law: Law::new(&setup, config), now: 0.0, number: 0, rules: Vec::new() }
    }

    /// Creates a driver whose source sends frames. Packets of 1 Mb/s were sent for three seconds over an empty path
    /// with a delay of 20 ms. Then the law's mode is set to `mode`.
    fn of_frames(cap: Rate, mode: Rules) -> Self {
        let mut driver = Self::new(cap);
        driver.law.set_frames();
        driver.run(3.0, Some(1e6), |_, _, _| Some(0.02));
        (driver.law.mode, driver.law.rate) = (mode, 1e6);
        driver
    }

    /// Sends until `end`, at the law's rate or at the given one. `delay` returns a packet's one-way delay, in seconds,
    /// from its time, its number and the law. It returns `None` if the packet is lost.
    fn run(&mut self, end: f64, rate: Option<f64>, mut delay: impl FnMut(f64, u64, &Law) -> Option<f64>) {
        while self.now < end {
            let (at, size) = (Time::ZERO + Span::from_secs_f64(self.now), Bytes::new(1_000));
            self.law.on_sent(at, self.number, size.get(), None, 0.0);
            if let Some(delay) = delay(self.now, self.number, &self.law) {
                let came = Time::ZERO + Span::from_secs_f64(self.now + delay);
                let arrived = PacketArrival { at: Some(PeerTime::from_nanos(came.as_nanos() as i64)), ecn: None };
                let report =
                    PacketReport { number: self.number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
                self.law.on_feedback(came + Span::from_secs_f64(BACK), None, &[report]);
            }
            self.rules.push((self.now, self.law.rule));
            self.number += 1;
            self.now += 8_000.0 / rate.unwrap_or(self.law.rate);
        }
    }

    fn stood(&self, from: f64, rule: &str) -> usize {
        self.rules.iter().filter(|(at, stood)| *at >= from && stood.starts_with(rule)).count()
    }
}

#[test]
fn a_rate_above_twice_what_arrives_breaks_the_promise_and_one_below_keeps_it() {
    let mut driver = LawDriver::new(Rate::mbps(1));
    driver.run(10.0, None, |_, _, _| Some(0.02));
    // The receive rate is 1 Mb/s, the session's cap. The promise allows twice this rate plus four packets per round
    // trip.
    let most = 2e6 + 4.0 * 8_000.0 / driver.law.signals.rtt();
    for (rate, broken) in [(1e6, 0), (0.9 * most, 0), (1.1 * most, 1), (50e6, 1)] {
        (driver.law.mode, driver.law.rate) = (Rules::Compete, rate);
        driver.law.checks[1] = Check::new(&super::TWICE);
        driver.law.check_promises(driver.now, (Rules::Compete, rate));
        assert_eq!((driver.law.checks[1].checked, driver.law.checks[1].broken), (1, broken), "{rate}");
    }
}

#[test]
fn in_compete_the_rate_keeps_its_promise_on_a_path_that_stops_now_and_then() {
    let (mut chance, mut checked) = (Seed(16).part("stops"), 0);
    for n in 0..60 {
        let mut driver = LawDriver::with(Rate::mbps(50), |config| Config { frames: n % 2 == 0, ..config });
        let base = chance.between(0.005, 0.08);
        let queue = chance.between(0.05, 1.0);
        let (mut rate, mut changes, mut free) = (2e6, 0.0, 0.0_f64);
        for second in 1..=30_i32 {
            driver.run(f64::from(second), None, |at, _, _| {
                while changes <= at {
                    // The path stands still for a while, or carries another rate.
                    let length = chance.between(0.05, 1.0);
                    if chance.unit() < 0.3 {
                        free = free.max(changes) + length;
                    } else {
                        rate = 1e6 * chance.between(0.2, 10.0);
                    }
                    changes += length;
                }
                if free - at > queue {
                    return None;
                }
                free = free.max(at) + 8_000.0 / rate;
                Some(base + free - at)
            });
            driver.law.mode = Rules::Compete;
        }
        let check = driver.law.checks[1];
        assert_eq!(check.broken, 0, "path {n}, {} checks", check.checked);
        checked += check.checked;
    }
    assert!(checked > 1_000, "{checked}");
}

/// Whether a packet is lost. On average one of `each` packets is lost, at irregular distances.
fn chance_loss(number: u64, each: u64) -> bool {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).is_multiple_of(each)
}

#[test]
fn the_ranks_of_losses_by_chance_have_no_bias_and_those_at_the_top_of_a_queue_are_near_one() {
    let ranks = |lost: fn(u64, f64) -> bool| {
        let (mut signals, mut found) = (Signals::new(), Vec::new());
        for number in 0..20_000u64 {
            let sent = 0.004 * number as f64;
            // The queueing delay is a sawtooth with a period of a third of a second, as TCP makes it.
            let queue = 0.03 * (sent * 3.0).fract();
            let at = Time::ZERO + Span::from_secs_f64(sent);
            signals.on_sent(at, number, 1_000, None);
            if lost(number, queue) {
                continue;
            }
            let came = at + Span::from_secs_f64(0.02 + queue);
            let arrived = PacketArrival { at: Some(PeerTime::from_nanos(came.as_nanos() as i64)), ecn: None };
            let report = PacketReport {
                number,
                sent: at,
                size: Bytes::new(1_000),
                stream: Stream::Media,
                arrived: Some(arrived),
            };
            let feedback = signals.on_feedback(came, None, &[report], (2e6, 20));
            found.extend(feedback.loss.filter(|_| sent > 5.0).map(|loss| loss.rank));
        }
        found.iter().sum::<f64>() / found.len() as f64
    };
    let by_chance = ranks(|number, _| chance_loss(number, 50));
    assert!((0.45..0.55).contains(&by_chance), "{by_chance}");
    let at_the_top = ranks(|number, queue| queue > 0.028 && number.is_multiple_of(3));
    assert!((0.9..1.0).contains(&at_the_top), "{at_the_top}");
}

/// Returns a law's input at `now`.
fn step<'a>(signals: &'a Signals, feedback: &'a FeedbackSummary, now: f64, rate: f64) -> LawInput<'a> {
    LawInput { now, dt: 0.1, rate, rtt: signals.rtt(), signals, feedback, loss: None, mark: false, share: None }
}

#[test]
fn a_window_over_a_round_trip_that_a_drain_made_short_gives_no_more_than_what_arrives_and_a_fifth() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(1e6), |_, _, _| Some(0.02));
    let (signals, feedback, config) = (&driver.law.signals, FeedbackSummary::default(), config());
    let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
    // 4 Mb/s over 200 ms are a window that would give 20 Mb/s over 40 ms.
    compete.left = true;
    compete.begin(2.9, 4e6, 0.2);
    compete.restore = 0.0;
    let after = compete.update(&step(signals, &feedback, 3.0, 1e6), &mut losses, 0.003, &config);
    let Transition::Stay(rate, _) = after else { panic!("{after:?}") };
    let most = 1.2e6 + 2.0 * 8_000.0 / signals.rtt();
    assert!((1.2e6..=most + 1e4).contains(&rate), "{rate}");
}

#[test]
fn a_window_of_which_a_source_uses_little_stops_at_six_times_what_is_used_whatever_the_source() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(12.0, Some(3e5), |_, _, _| Some(0.05));
    let (signals, feedback) = (&driver.law.signals, FeedbackSummary::default());
    let after_a_minute = |frames| {
        let config = Config { frames, cap: 1e12, ..config() };
        let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
        compete.left = true;
        compete.begin(12.0, 3e5, signals.rtt());
        let mut rate = 0.0;
        for n in 1..600_u32 {
            let step = step(signals, &feedback, 12.0 + 0.1 * f64::from(n), 3e5);
            if let Transition::Stay(now, _) = compete.update(&step, &mut losses, 0.003, &config) {
                rate = now;
            }
        }
        rate
    };
    let most = 6.0 * 1.2 * 3.6e5;
    for rate in [after_a_minute(true), after_a_minute(false)] {
        assert!((3e5..most).contains(&rate), "{rate}");
    }
}

#[test]
fn at_the_sessions_cap_the_window_does_not_grow_so_that_the_next_loss_lowers_the_rate() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(1e6), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, 0.06, 0.25) }));
    let (signals, feedback, config) =
        (&driver.law.signals, FeedbackSummary::default(), Config { cap: 1e6, ..config() });
    for first in [true, false] {
        let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
        compete.left = !first;
        compete.begin(3.0, 1e6, signals.rtt());
        compete.update_high_queue(signals.q, 0.1);
        let mut step = |now, loss| {
            // With a share of 0.4, the queue counts as shared. A loss then causes no drain, so the window alone sets
            // the rate.
            let step = LawInput { loss, share: Some(0.4), ..step(signals, &feedback, now, 1e6) };
            match compete.update(&step, &mut losses, 0.003, &config) {
                Transition::Stay(rate, _) => rate,
                other => panic!("{other:?}"),
            }
        };
        let before = (1..1_200).map(|n| step(3.0 + 0.1 * f64::from(n), None)).fold(0.0, f64::max);
        assert!((0.99e6..1.01e6).contains(&before), "{before}");
        let after = step(123.0, Some(Loss { sent: 122.9, q: 0.06, rank: 0.9 }));
        assert!((0.69e6..0.71e6).contains(&after), "{after}");
    }
}

#[test]
fn the_base_delay_is_kept_for_minutes_while_competing_and_for_seconds_otherwise() {
    for (mode, least, most) in [(Rules::Delay, 0.0, 0.001), (Rules::Compete, 0.099, 0.101)] {
        let mut driver = LawDriver::new(Rate::mbps(1));
        driver.run(5.0, Some(1e6), |_, _, _| Some(0.02));
        for second in 5..60 {
            // The mode is fixed, independent of the law's decisions.
            driver.law.mode = mode;
            driver.run(f64::from(second), Some(1e6), |_, _, _| Some(0.12));
            driver.law.mode = mode;
        }
        driver.law.mode = mode;
        driver.run(59.009, Some(1e6), |_, _, _| Some(0.12));
        let q = driver.law.signals.q;
        assert!((least..=most).contains(&q), "{mode:?}: {q}");
    }
}

#[test]
fn frames_leave_hardly_faster_than_the_rate_where_the_queue_is_kept_empty_and_a_quarter_faster_beside_a_tcp() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    for (mode, times) in [(Rules::Start, 1.25), (Rules::Delay, 1.1), (Rules::Compete, 1.25)] {
        driver.law.mode = mode;
        assert_eq!(driver.law.pacing(), times, "{mode:?}");
    }
}

#[test]
fn the_queue_of_somebodys_start_is_no_verdict_and_one_that_a_yield_leaves_is() {
    for (lasts, competes) in [(0.5, false), (4.0, true)] {
        let mut driver = LawDriver::new(Rate::mbps(4));
        driver.run(10.0, None, |_, _, _| Some(0.02));
        driver
            .run(16.0, None, |at, _, _| Some(if at < 10.0 + lasts { 0.02 + tcp_queue(at, 0.04, 0.25) } else { 0.02 }));
        assert_eq!(driver.stood(10.0, "compete: yielded") > 0, competes, "a queue of {lasts} s");
        assert_eq!(driver.stood(10.0, "compete") > 0, competes, "a queue of {lasts} s");
    }
}

#[test]
fn a_queue_that_stays_below_what_the_target_is_after_a_yield_is_somebody_elses_all_the_same() {
    // At 400 kb/s the target is 26 ms. After a cut of the rate it is 34 ms.
    for (waits, competes) in [(0.020, false), (0.028, true), (0.030, true), (0.032, true)] {
        let mut driver = LawDriver::new(Rate::kbps(400));
        driver.run(20.0, None, |at, _, _| Some(if (5.0..5.5).contains(&at) { 0.25 } else { 0.15 }));
        assert_eq!((driver.law.mode, driver.law.rate), (Rules::Delay, 400e3));
        driver.run(30.0, None, |at, _, _| Some(0.15 + tcp_queue(at, (0.01 * (at - 20.0)).min(waits), 0.08)));
        assert_eq!(driver.stood(20.0, "compete: yielded") > 0, competes, "{waits} s");
    }
}

#[test]
fn a_delay_that_no_yield_changes_is_the_paths_and_one_that_varies_is_somebody_elses() {
    for seed in 0..12 {
        let mut draws = Seed(seed).part("another path");
        let cap = 0.5e6 * libm::pow(12.0, draws.unit());
        let (base, more) = (draws.between(0.005, 0.1), draws.between(0.005, 0.15));
        let silence = draws.between(0.0, 0.5) * f64::from(u8::from(seed % 2 == 0));
        let about = format!("seed {seed}: {cap:.0} bit/s, {more:.3} s more than {base:.3}, {silence:.3} s without any");
        let mut driver = LawDriver::new(Rate::from_bps_f64(cap));
        driver.run(20.0, None, |at, _, _| Some(base + if (5.0..5.5).contains(&at) { 0.1 } else { 0.0 }));
        // Packets sent in the silence wait until its end, and then drain at ten times the rate.
        let ends = 20.0 + silence;
        let waits = |at: f64| (ends + 0.1 * (at - 20.0) - at).max(0.0);
        driver.run(23.5 + silence, None, |at, _, _| Some(base + more + waits(at)));
        assert_eq!(driver.stood(20.0, "compete"), 0, "{about}");
        assert!(driver.law.rate > 0.8 * cap, "{about}: {:.0} after 3.5 s", driver.law.rate);
        let mut driver = LawDriver::new(Rate::from_bps_f64(cap));
        driver.run(20.0, None, |at, _, _| Some(base + if (5.0..5.5).contains(&at) { 0.1 } else { 0.0 }));
        let least = 1.5 * driver.law.delay.target_now(20.0, 0.3 * cap, &driver.law.config);
        driver.run(26.0, None, |at, _, _| Some(base + tcp_queue(at, more.max(least), 0.25)));
        assert_eq!(driver.stood(20.0, "delay: a longer path"), 0, "{about}, by somebody");
        assert!(driver.stood(20.0, "compete: yielded") > 0, "{about}, by somebody");
    }
}

#[test]
fn the_scale_that_a_mark_halved_comes_back_over_minutes() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
    let (signals, feedback, config) = (&driver.law.signals, FeedbackSummary::default(), config());
    let (mut delay, mut losses) = (DelayLaw::new(), LossClassifier::new());
    delay.begin(2.0, 4e6);
    let at_1_mbps = |delay: &DelayLaw| delay.target(1e6, &config);
    let whole = at_1_mbps(&delay);
    let marked = LawInput { mark: true, ..step(signals, &feedback, 3.0, 4e6) };
    delay.update(&marked, &mut losses, true, &config);
    let half = at_1_mbps(&delay);
    let mut after = |seconds: u32| {
        for n in 0..10 * seconds {
            delay.update(&step(signals, &feedback, 3.0 + 0.1 * f64::from(n), 4e6), &mut losses, true, &config);
        }
        at_1_mbps(&delay)
    };
    assert!((0.5..0.6).contains(&(half / whole)), "{half} of {whole}");
    let soon = after(12);
    assert!((half..1.15 * half).contains(&soon), "12 s later {soon} of {half}");
    let late = after(100);
    assert!((0.99 * whole..=whole).contains(&late), "two minutes later {late} of {whole}");
}

#[test]
fn the_competing_window_has_segments_of_1500_bytes_whatever_the_packets_are() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(8e6), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, 0.1, 0.25) }));
    let (signals, feedback) = (&driver.law.signals, FeedbackSummary::default());
    let rates = [300, 1_000, 1_500].map(|packet| {
        let setup =
            Setup { packet: Bytes::new(packet), ..Setup::unicast(Rate::kbps(1), Rate::mbps(50), Seed(1).part("")) };
        let config = Config::new(&setup, &Values::resolve(PARAMS, Mode::Repaired, &[]).unwrap());
        let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
        compete.left = true;
        compete.begin(3.0, 1e6, signals.rtt());
        let grown = (0..20).map(|n| {
            let step = step(signals, &feedback, 3.0 + 0.1 * f64::from(n), 1e6);
            compete.update(&step, &mut losses, 0.003, &config)
        });
        match grown.last() {
            Some(Transition::Stay(rate, _)) => rate,
            other => panic!("{other:?}"),
        }
    });
    assert!((1.1e6..8e6).contains(&rates[0]), "{rates:?}");
    assert!(rates.iter().all(|rate| (rate / rates[0] - 1.0).abs() < 1e-9), "{rates:?}");
}

/// Returns whether losses are attributed to a policer after a minute, the number of trials, the rate in bit/s, and
/// whether the policer began COMPETE. `lost` returns whether a packet is lost, from its time and number.
fn tried(mut lost: impl FnMut(f64, u64) -> bool) -> (bool, usize, f64, bool) {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(60.0, None, |now, number, _| (!lost(now, number)).then_some(0.02));
    let is_cut = |rule: &str| ["delay: policed", "delay: losses in a short queue"].contains(&rule);
    let begins = driver.rules.windows(2).filter(|two| is_cut(two[1].1) && two[0].1 != two[1].1).count();
    let competes = driver.stood(0.0, "compete: policed") > 0;
    (driver.law.losses.is_policed(driver.now), begins, driver.law.rate, competes)
}

/// Returns whether a packet that is sent at `now` is dropped by a policer of `rate`, in bit/s. The policer's token
/// bucket holds 100 ms. `full` is the time at which the bucket is full again.
fn is_policed(full: &mut f64, now: f64, rate: f64) -> bool {
    let next = full.max(now) + 8_000.0 / rate;
    let drops = next - now > 0.1;
    if !drops {
        *full = next;
    }
    drops
}

#[test]
fn losses_that_end_where_less_is_sent_are_a_policers() {
    for rate in [300e3, 1e6, 2.5e6] {
        let mut full = 0.0;
        let (policed, _, sent, competes) = tried(|now, _| is_policed(&mut full, now, rate));
        assert!(policed, "{rate}");
        assert!((0.5 * rate..1.3 * rate).contains(&sent), "{rate}: {sent}");
        // COMPETE needs 600 kb/s, because its smallest window is two segments per round trip of 40 ms.
        assert_eq!(competes, rate > 600e3, "{rate}");
    }
}

#[test]
fn behind_a_policer_compete_begins_only_if_the_path_carries_a_window_of_two_segments() {
    // COMPETE needs 600 kb/s, because its smallest window is two segments per round trip of 40 ms. Rates near that
    // limit are left out, because what arrives in half a second is up to a fifth more than the policer's rate.
    for (rate, competes) in [(450e3, false), (520e3, false), (680e3, true), (750e3, true)] {
        let mut full = 0.0;
        let (policed, _, _, competed) = tried(|now, _| is_policed(&mut full, now, rate));
        assert!(policed, "{rate}");
        assert_eq!(competed, competes, "{rate}");
    }
}

/// Sends for a minute through a policer of 2.5 Mb/s. Each 50th packet arrives `late` seconds late, so that later
/// packets overtake it. Returns whether a policer was found, and whether it began COMPETE.
fn policed_with_late_packets(late: f64) -> (bool, bool) {
    let mut driver = LawDriver::new(Rate::mbps(4));
    let (mut full, mut held, mut policed) = (0.0, Vec::<(Time, PacketReport)>::new(), false);
    while driver.now < 60.0 {
        let (now, number, size) = (driver.now, driver.number, Bytes::new(1_000));
        let sent = Time::ZERO + Span::from_secs_f64(now);
        driver.law.on_sent(sent, number, size.get(), None, 0.0);
        if !is_policed(&mut full, now, 2.5e6) {
            let delay = if number.is_multiple_of(50) { 0.02 + late } else { 0.02 };
            let came = sent + Span::from_secs_f64(delay);
            let arrived = Some(PacketArrival { at: Some(PeerTime::from_nanos(came.as_nanos() as i64)), ecn: None });
            let report = PacketReport { number, sent, size, stream: Stream::Media, arrived };
            held.push((came + Span::from_secs_f64(BACK), report));
        }
        driver.number += 1;
        driver.now += 8_000.0 / driver.law.rate;
        held.sort_by_key(|(at, _)| *at);
        let now = Time::ZERO + Span::from_secs_f64(driver.now);
        for (at, report) in held.extract_if(.., |(at, _)| *at <= now) {
            driver.law.on_feedback(at, None, &[report]);
            driver.rules.push((driver.now, driver.law.rule));
        }
        policed |= driver.law.losses.is_policed(driver.now);
    }
    (policed, driver.stood(0.0, "compete: policed") > 0)
}

#[test]
fn behind_a_policer_compete_begins_on_a_path_that_keeps_the_order_of_packets_and_not_on_one_that_reorders_them() {
    assert_eq!(policed_with_late_packets(0.0), (true, true));
    assert_eq!(policed_with_late_packets(0.03), (true, false));
}

#[test]
fn cuts_do_not_wait_while_more_is_sent_than_the_path_carries() {
    for part in [0.1, 0.2, 0.4] {
        let mut driver = LawDriver::new(Rate::mbps(4));
        let mut sent = 0.0_f64;
        driver.run(11.0, None, |now, _, _| {
            let rate = if now < 10.0 { 3e6 } else { part * 3e6 };
            sent = sent.max(now) + 8_000.0 / rate;
            Some(0.02 + sent - now)
        });
        let cuts: Vec<f64> =
            driver.rules.iter().filter(|(at, rule)| *at > 10.0 && *rule == "delay: down").map(|(at, _)| *at).collect();
        // If cuts waited, there would be a round trip and two reports between two cuts, which is more than 0.09 s.
        assert!(cuts.windows(2).any(|two| two[1] - two[0] < 0.05), "{part}: {cuts:?}");
    }
}

#[test]
fn losses_that_come_whatever_is_sent_are_tried_again_ever_later_and_are_by_chance() {
    for each in [50, 20, 12, 8] {
        let (policed, tried, sent, _) = tried(|_, number| chance_loss(number, each));
        assert!(!policed, "1 of {each}");
        // The first finding takes one or two trials. The next ones are 10 s and 30 s later.
        assert!((3 * usize::from(each < 20)..=4).contains(&tried), "1 of {each}: {tried}");
        assert!(sent > 3.4e6, "1 of {each}: {sent}");
    }
}

#[test]
fn packets_that_come_late_are_lost_until_it_is_known_how_late_they_come() {
    for late in [4, 10, 25] {
        let mut signals = Signals::new();
        let at = |packets: u64| Time::ZERO + Span::from_secs_f64(0.0024 * packets as f64);
        let (mut lost, mut came_late, mut last) = (0, 0, 0);
        for number in 0..2_000u64 {
            signals.on_sent(at(number), number, 1_000, None);
            // Each tenth packet arrives `late` packets late.
            let arrives = [(!number.is_multiple_of(10)).then_some(number), number.checked_sub(late)];
            let turn = |n: &u64| *n == number || n.is_multiple_of(10);
            for n in arrives.into_iter().flatten().filter(turn) {
                let came = PeerTime::from_nanos(at(number + 8).as_nanos() as i64);
                let arrived = Some(PacketArrival { at: Some(came), ecn: None });
                let size = Bytes::new(1_000);
                let report = PacketReport { number: n, sent: at(n), size, stream: Stream::Media, arrived };
                let round = Some(Span::millis(40));
                let feedback = signals.on_feedback(at(number + 16), round, &[report], (3e6, 20));
                (lost, came_late) = (lost + feedback.lost, came_late + feedback.spurious);
                last = if feedback.lost > 0 { number } else { last };
            }
        }
        assert!((1..=u32::try_from(late).unwrap() / 10 + 2).contains(&lost) && last < 100, "{late}: {lost}, {last}");
        assert_eq!(lost, came_late, "{late}");
        assert!(signals.loss_shares(at(2_000).as_secs_f64(), 10.0).lost < 1e-9, "{late}");
    }
}

#[test]
fn a_packet_that_others_overtook_shows_no_silence_of_the_path_and_a_pause_of_all_packets_does() {
    let at = |packets: u64| Time::ZERO + Span::from_secs_f64(0.0024 * packets as f64);
    // Returns whether a silence of the path is detected. Packets are sent every 2.4 ms, and `delay` returns how many of
    // these intervals a packet takes. Each report contains the arrivals of ten intervals, in the order of packet
    // numbers.
    let shows_silence = |delay: &dyn Fn(u64) -> u64| {
        let mut signals = Signals::new();
        let mut has_silence = false;
        for number in 0..500u64 {
            signals.on_sent(at(number), number, 1_000, None);
            if !number.is_multiple_of(10) {
                continue;
            }
            let arrives = |n: &u64| (number.saturating_sub(10)..number).contains(&(n + delay(*n)));
            let report = |n: u64| {
                let came = PeerTime::from_nanos(at(n + delay(n)).as_nanos() as i64);
                let arrived = Some(PacketArrival { at: Some(came), ecn: None });
                PacketReport { number: n, sent: at(n), size: Bytes::new(1_000), stream: Stream::Media, arrived }
            };
            let reports: Vec<_> = (0..number).filter(arrives).map(report).collect();
            signals.on_feedback(at(number + 8), Some(Span::millis(40)), &reports, (3e6, 20));
            has_silence |= signals.time_since_silence().is_some();
        }
        has_silence
    };
    for late in [20, 25, 40, 80] {
        assert!(!shows_silence(&|n| 8 + if n.is_multiple_of(10) { late } else { 0 }), "each tenth, {late} late");
        assert!(!shows_silence(&|n| 8 + if n % 3 == 1 { late } else { 0 }), "each third, {late} late");
        assert!(shows_silence(&|n| 8 + if n > 250 { late } else { 0 }), "all, {late} late");
    }
}

#[test]
fn what_chance_hardly_ever_loses_is_more_than_chance() {
    // The exact probabilities at a loss rate of a tenth, for comparison with Chernoff's bound: P(X ≥ 8 of 12) = 3.4e-6,
    // P(X ≥ 5 of 12) = 4.3e-3, P(X ≥ 150 of 1000) = 3e-7, P(X ≥ 115 of 1000) = 0.065.
    for (packets, lost, more) in
        [(12, 8.0, true), (12, 5.0, false), (1_000, 150.0, true), (1_000, 115.0, false), (2, 2.0, false)]
    {
        assert_eq!(LossClassifier::is_more(packets, lost / f64::from(packets), 0.1), more, "{lost} of {packets}");
    }
    assert!(!LossClassifier::is_more(1_000, 0.0, 0.1) && !LossClassifier::is_more(0, 0.0, 0.1));
}

#[test]
fn where_renos_growth_rules_the_window_stays_within_tcps_equation_with_its_time_outs() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(4e6), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, 0.1, 0.25) }));
    let (signals, config) = (&driver.law.signals, config());
    let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
    compete.left = true;
    compete.begin(3.0, 4e6, signals.rtt());
    let mut rates = Vec::new();
    for n in 0..1_200u32 {
        let feedback = FeedbackSummary { arrived: 9, lost: 1, loss_runs: 1, ..FeedbackSummary::default() };
        let now = 3.0 + 0.1 * f64::from(n);
        let loss = n.is_multiple_of(10).then_some(Loss { sent: now, q: 0.01, rank: 0.9 });
        let step = LawInput { loss, ..step(signals, &feedback, now, 1e6) };
        let (Transition::Stay(rate, _) | Transition::Switch(rate, _)) =
            compete.update(&step, &mut losses, 0.003, &config);
        rates.push(rate);
    }
    let late = rates[600..].iter().fold(0.0, |most: f64, rate| most.max(*rate));
    let rtt = Span::from_secs_f64(signals.rtt());
    let p = LossRate::new(0.1).unwrap();
    let fair = throughput_full(Bytes::new(1_500), rtt, p, (rtt * 4).max(Span::millis(200)), 1.0).as_bps_f64();
    // The window is never smaller than two segments.
    let most = (1.3 * fair).max(1.05 * 2.0 * 12_000.0 / signals.rtt());
    assert!((0.2 * fair..=most).contains(&late), "{late} of {fair}");
}

/// Simulates 100 s of COMPETE at a loss rate of 1 %. Returns the highest rate of the last 40 s, divided by the rate of
/// TCP's equation at a loss rate of `multiple` percent.
fn of_equation(is_policed: bool, multiple: f64) -> f64 {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
    let (signals, config) = (&driver.law.signals, config());
    let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
    compete.left = true;
    compete.begin(3.0, 1e6, signals.rtt());
    if is_policed {
        losses.set_policed(3.0, 4e6);
    }
    let mut highest = 0.0_f64;
    for n in 0..1_000u32 {
        let feedback = FeedbackSummary { arrived: 99, lost: 1, loss_runs: 1, ..FeedbackSummary::default() };
        let now = 3.0 + 0.1 * f64::from(n);
        // A cut each second keeps the window in the Reno-friendly region.
        let loss = n.is_multiple_of(10).then_some(Loss { sent: now, q: 0.0, rank: 0.5 });
        let step = LawInput { loss, ..step(signals, &feedback, now, 1e6) };
        let (Transition::Stay(rate, _) | Transition::Switch(rate, _)) =
            compete.update(&step, &mut losses, 0.003, &config);
        highest = if n > 600 { highest.max(rate) } else { highest };
    }
    let rtt = Span::from_secs_f64(signals.rtt());
    let loss = LossRate::new(multiple * 0.01).unwrap();
    let equation = throughput_full(Bytes::new(1_500), rtt, loss, (rtt * 4).max(Span::millis(200)), 1.0).as_bps_f64();
    highest / equation
}

#[test]
fn behind_a_policer_tcps_equation_is_computed_for_three_times_the_measured_loss_rate() {
    // COMPETE allows 1.25 times the rate of the equation.
    let (alone, policed) = (of_equation(false, 1.0), of_equation(true, 3.0));
    assert!((1.2..1.3).contains(&alone) && (1.2..1.3).contains(&policed), "{alone} {policed}");
}

#[test]
fn a_silence_of_the_path_costs_the_window_the_same_at_any_number_of_lost_packets() {
    let mut driver = LawDriver::new(Rate::mbps(50));
    driver.run(3.0, Some(4e6), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, 0.1, 0.25) }));
    let (signals, config) = (&driver.law.signals, config());
    // Returns the mean rate in the 5 s after a report of `lost` lost packets, in `loss_runs` runs of consecutive
    // losses.
    let after = |lost: u32, loss_runs: u32| {
        let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
        compete.left = true;
        compete.begin(3.0, 4e6, signals.rtt());
        let mut sum = 0.0;
        for n in 0..150u32 {
            let now = 3.0 + 0.1 * f64::from(n);
            // A single loss each second keeps the window in the Reno-friendly region.
            let is_silent = n == 100;
            let (lost, loss_runs) = if is_silent { (lost, loss_runs) } else { (n % 10 / 9, n % 10 / 9) };
            let feedback = FeedbackSummary { arrived: 40, lost, loss_runs, ..FeedbackSummary::default() };
            let loss = (lost > 0).then_some(Loss { sent: now, q: 0.1, rank: 0.9 });
            let step = LawInput { loss, ..step(signals, &feedback, now, 4e6) };
            let (Transition::Stay(rate, _) | Transition::Switch(rate, _)) =
                compete.update(&step, &mut losses, 0.003, &config);
            sum += if n > 100 { rate / 49.0 } else { 0.0 };
        }
        sum
    };
    let few = after(3, 1);
    for lost in [4, 10, 40, 150, 400] {
        let many = after(lost, 1);
        assert!((0.97 * few..=1.03 * few).contains(&many), "{lost}: {many} of {few}");
    }
    // If the same packets are lost one by one, each of them counts as a loss caused by a queue.
    let single = after(400, 400);
    assert!(single < 0.5 * few, "{single} of {few}");
}

/// Returns the delay of a packet that is sent at `at` to a machine that stalls for 50 ms every 5 s. A packet that
/// arrives in a stall is received at its end.
fn stalls(at: f64) -> f64 {
    let came = at + 0.02;
    let into = came.rem_euclid(5.0);
    if into < 0.05 { 0.02 + 0.05 - into } else { 0.02 }
}

#[test]
fn a_machine_that_stalls_for_50_ms_is_nobody_in_the_queue_and_costs_little() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(60.0, None, |at, _, _| Some(stalls(at)));
    assert_eq!(driver.stood(1.0, "compete"), 0);
    let mean = {
        let late = driver.rules.iter().filter(|(at, _)| *at >= 10.0).count();
        late as f64 * 8_000.0 / 50.0
    };
    assert!((3.6e6..=4.0e6).contains(&mean), "{mean}");
}

#[test]
fn a_start_that_silence_made_slow_goes_on_when_somebody_is_heard() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    (0..4).for_each(|_| driver.law.on_feedback_timeout());
    assert!(driver.law.rate < 20e3, "{}", driver.law.rate);
    driver.run(5.0, None, |_, _, _| Some(0.02));
    assert!((3.9e6..=4e6).contains(&driver.law.rate), "{} by {}", driver.law.rate, driver.law.rule);
}

#[test]
fn one_late_packet_of_a_still_picture_does_not_take_the_start_for_a_slow_path() {
    for (late, pause) in [4, 6, 10, 20, 30].into_iter().flat_map(|late| [0.4, 1.0, 2.5].map(|pause| (late, pause))) {
        let mut driver = LawDriver::new(Rate::mbps(4));
        driver.law.set_frames();
        driver.run(3.0, None, |_, _, _| Some(0.02));
        assert_eq!((driver.law.mode, driver.law.rate), (Rules::Start, 4e6));
        // A picture that does not move needs a packet each 33 ms.
        let still = 8_000.0 / 0.033;
        driver.run(3.0 + pause, Some(still), |_, _, _| Some(0.02));
        let number = driver.number;
        let is_late = |sent: u64| if sent == number { 0.02 + 0.001 * f64::from(late) } else { 0.02 };
        driver.run(3.2 + pause, Some(still), |_, sent, _| Some(is_late(sent)));
        let (rate, rule) = (driver.law.rate, driver.law.rule);
        assert!(rate > 2e6, "{late} ms late after {pause} s: {rate} bit/s by {rule:?}");
    }
}

#[test]
fn more_that_arrives_while_less_is_sent_is_somebody_who_gives_way_and_no_queue_of_its_own() {
    let gives_way = follows(0.15, |sent, n| 2e12 / sent * (1.0 + 0.1 * noise(n)));
    assert!(!is_own(&gives_way) && gives_way.is_shared(5.9) == Some(true));
    let own = follows(0.15, |_, n| 1e6 * (1.0 + 0.1 * noise(n)));
    assert!(is_own(&own) && own.is_shared(5.9) == Some(false));
    let long_ago = (own.is_shared(20.0), gives_way.is_shared(20.0));
    assert_eq!(long_ago, (None, None), "what was seen long ago tells nothing of now");
}

#[test]
fn marks_of_packets_that_were_in_flight_at_a_cut_do_not_cut_again() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
    let (signals, config) = (&driver.law.signals, Config { l4s: true, ..config() });
    let marked = FeedbackSummary { arrived: 5, marked: 5, ..FeedbackSummary::default() };
    let at = |now: f64, mark: bool| LawInput { mark, ..step(signals, &marked, now, 4e6) };
    let mut scalable = ScalableLaw::default();
    assert!(scalable.rules(&at(3.0, true), false, &config));
    let mut rate = |now, mark| match scalable.update(&at(now, mark), &mut LossClassifier::new(), &config) {
        Transition::Stay(rate, _) => rate,
        other => panic!("{other:?}"),
    };
    let first = rate(3.0, true);
    assert!((1.5e6..3e6).contains(&first), "{first}");
    let later = rate(3.0 + 2.0 * signals.rtt(), false);
    assert!((later - first).abs() < 1.0, "{later} after {first}");
    assert!(rate(3.0 + 4.0 * signals.rtt(), true) < 0.8 * first);
}

#[test]
fn the_scalable_window_grows_by_the_unmarked_share_of_a_report() {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
    let (signals, config) = (&driver.law.signals, Config { l4s: true, ..config() });
    let growth = |marked: u32| {
        let first = FeedbackSummary { arrived: 10, marked: 10, ..FeedbackSummary::default() };
        let later = FeedbackSummary { arrived: 10, marked, ..FeedbackSummary::default() };
        let mut scalable = ScalableLaw::default();
        assert!(scalable.rules(&LawInput { mark: true, ..step(signals, &first, 3.0, 4e6) }, false, &config));
        let mut rate = |feedback, now, mark| {
            let input = LawInput { mark, ..step(signals, feedback, now, 4e6) };
            match scalable.update(&input, &mut LossClassifier::new(), &config) {
                Transition::Stay(rate, _) => rate,
                other => panic!("{other:?}"),
            }
        };
        let cut = rate(&first, 3.0, true);
        rate(&later, 3.01, true) - cut
    };
    let whole = growth(0);
    assert!(whole > 0.0);
    for marked in 1..=10 {
        let share = growth(marked) / whole;
        assert!((share - (1.0 - f64::from(marked) / 10.0)).abs() < 0.01, "{marked} of 10: {share}");
    }
}

#[test]
fn eight_round_trips_without_a_mark_end_the_scalable_law_and_a_later_mark_finds_alpha_decayed() {
    for rtt in [0.005, 0.040, 0.2] {
        let mut driver = LawDriver::new(Rate::mbps(4));
        driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
        let (signals, config) = (&driver.law.signals, Config { l4s: true, ..config() });
        let marked = FeedbackSummary { arrived: 5, marked: 5, ..FeedbackSummary::default() };
        let unmarked = FeedbackSummary { arrived: 5, ..FeedbackSummary::default() };
        let at = |feedback, now: f64| LawInput { rtt, mark: true, ..step(signals, feedback, now, 4e6) };
        let mut scalable = ScalableLaw::default();
        let cut = |scalable: &mut ScalableLaw, now| match scalable.update(
            &at(&marked, now),
            &mut LossClassifier::new(),
            &config,
        ) {
            Transition::Stay(rate, _) => 1.0 - rate / 4e6,
            other => panic!("{other:?}"),
        };
        assert!(scalable.rules(&at(&marked, 3.0), false, &config));
        // The first window corresponds to the receive rate of 4 Mb/s. The first mark halves it.
        assert!((0.45..0.55).contains(&cut(&mut scalable, 3.0)));
        let round = f64::max(rtt, 0.025);
        assert!(scalable.rules(&at(&unmarked, 3.0 + 7.9 * round), false, &config));
        assert!(!scalable.rules(&at(&unmarked, 3.0 + 8.1 * round), false, &config));
        // Alpha decays by 1/16 per round trip. After 40 round trips, 0.076 of it is left. A mark cuts the window by
        // half of alpha.
        assert!(scalable.rules(&at(&marked, 3.0 + 40.0 * round), false, &config));
        let later = cut(&mut scalable, 3.0 + 40.0 * round);
        assert!((0.02..0.06).contains(&later), "{later}");
    }
}

/// Returns the queueing delay measured for a source of frames that sends this many times its rate of 40 kb/s for 10 s,
/// over a path with 100 ms of queue.
fn seen_of(times: f64) -> f64 {
    let mut signals = Signals::new();
    let at = |s: f64| Time::ZERO + Span::from_secs_f64(s);
    for n in 0..1_000u64 {
        let sent = 0.2 * n as f64 / times;
        if sent > 10.0 {
            break;
        }
        let size = Bytes::new(1_000);
        signals.on_sent(at(sent), n, size.get(), Some(Burst { rate: 40e3, pacing: 1.25, max_queue: 0.25 }));
        let came = sent + 0.02 + if n == 0 { 0.0 } else { 0.1 };
        let arrived = PacketArrival { at: Some(PeerTime::from_nanos((came * 1e9) as i64)), ecn: None };
        let report = PacketReport { number: n, sent: at(sent), size, stream: Stream::Media, arrived: Some(arrived) };
        signals.on_feedback(at(came + 0.02), None, &[report], (40e3, 20));
    }
    signals.q
}

#[test]
fn a_source_that_sends_more_than_it_was_told_for_long_makes_no_burst_and_sees_the_queue() {
    for times in [0.9, 2.5] {
        let seen = seen_of(times);
        assert!((0.099..0.101).contains(&seen), "{times}: {seen}");
    }
}

#[test]
fn alone_a_queue_that_comes_and_goes_is_nobody_elses() {
    for link in [0.5e6, 2e6] {
        let (mut driver, mut queue, mut last) = (LawDriver::new(Rate::mbps(4)), 0.0f64, 0.0);
        driver.run(60.0, None, |at, _, _| {
            queue = (queue - (at - last)).max(0.0) + 8_000.0 / link;
            last = at;
            Some(0.02 + queue)
        });
        assert_eq!(driver.stood(0.0, "compete"), 0, "alone at {link} bit/s");
        assert!(driver.stood(10.0, "delay: down") > 0, "alone at {link} bit/s its queue comes and goes");
    }
}

#[test]
fn a_queue_that_was_ones_own_is_so_for_two_minutes_and_not_where_it_gives_less_than_half() {
    let own = OwnQueue::new(100.0, 1e6);
    for (now, rate, holds) in [(100.1, 1e6, true), (219.0, 0.6e6, true), (221.0, 1e6, false), (110.0, 0.4e6, false)] {
        assert_eq!(own.holds(now, rate), holds, "{rate} bit/s at {now} s");
    }
    assert!(!OwnQueue::default().holds(0.1, 1e6), "before any verdict");
}

#[test]
fn the_target_is_a_packet_of_its_own_less_what_codel_leaves_alone_and_where_it_was_pushed_down_no_longer_one() {
    let (mut delay, config) = (DelayLaw::new(), Config { bits: 9_600.0, ..config() });
    delay.set_own_queue(10.0, 400e3);
    let least = |now: f64, rate: f64| delay.target_now(now, rate, &config) - delay.target(rate, &config);
    assert!(least(11.0, 400e3).abs() < 1e-9, "the target is more than that while nothing was dropped");
    let marked = |mut delay: DelayLaw| {
        let mut driver = LawDriver::new(Rate::mbps(4));
        driver.run(3.0, Some(4e6), |_, _, _| Some(0.02));
        let (signals, feedback, mut losses) = (&driver.law.signals, FeedbackSummary::default(), LossClassifier::new());
        for n in 0..6 {
            let step = LawInput { mark: true, ..step(signals, &feedback, 11.0 + f64::from(n), 400e3) };
            delay.update(&step, &mut losses, true, &config);
        }
        delay
    };
    let delay = marked(delay);
    let now = delay.target_now(20.0, 400e3, &config);
    assert!((now - 0.019).abs() < 1e-9, "{now}");
    let lower = delay.target_now(20.0, 250e3, &config);
    assert!((lower - 0.0334).abs() < 1e-9, "{lower}: its own queue");
    assert!((delay.target_now(200.0, 400e3, &config) - 0.019).abs() < 1e-9, "two minutes later");
    let pushed = delay.target_now(200.0, 250e3, &config);
    assert!((pushed - 0.019).abs() < 1e-9, "{pushed}: somebody else may be there");
}

/// Returns a driver whose law is in COMPETE from 3 s on. `queue` returns the queueing delay of a packet in seconds,
/// from its time and number. It returns `None` if the packet is lost.
fn competes(end: f64, queue: impl Fn(f64, u64) -> Option<f64>) -> LawDriver {
    let mut driver = LawDriver::new(Rate::mbps(4));
    driver.run(3.0, Some(1e6), |_, _, _| Some(0.02));
    (driver.law.mode, driver.law.rule) = (Rules::Compete, "compete: up");
    driver.run(end, None, |at, number, _| queue(at, number).map(|queue| 0.02 + queue));
    driver
}

/// Returns the times after 3 s at which the law changes to a rule whose name starts with `rule`.
fn begins(driver: &LawDriver, rule: &str) -> Vec<f64> {
    let pairs = driver.rules.windows(2).filter(|pair| pair[1].0 > 3.0);
    pairs.filter(|pair| !pair[0].1.starts_with(rule) && pair[1].1.starts_with(rule)).map(|pair| pair[1].0).collect()
}

#[test]
fn a_queue_that_has_gone_and_that_nobody_lost_in_is_left_and_one_that_stands_is_not() {
    let gone = competes(12.0, |at, _| Some(if at < 6.0 { 0.1 } else { 0.0 }));
    let left = begins(&gone, "delay: queue is empty");
    // Until 6 s the receive rate follows the sent rate, which shows a shared queue. COMPETE ends once this finding is
    // outdated, which takes at most 4 s.
    assert!((6.1..10.5).contains(left.first().unwrap_or(&0.0)), "{left:?}");
    let stands = competes(12.0, |_, _| Some(0.1));
    assert!(begins(&stands, "delay: queue is empty").is_empty());
}

#[test]
fn the_window_that_a_queue_of_its_own_has_ended_is_taken_up_again_within_seconds_and_not_later() {
    let carries = |later: f64, rtt: f64| {
        let (mut compete, mut signals, feedback) = (CompeteLaw::new(), Signals::new(), FeedbackSummary::default());
        (compete.left, signals.base_rtt) = (true, rtt);
        // A phase at 4 Mb/s with a round-trip time of 100 ms ends in an unshared queue. The next phase begins at 400
        // kb/s.
        compete.begin(3.0, 4e6, 0.1);
        compete.end_in_own_queue(4.0, 4e6);
        compete.begin(4.0 + later, 4e5, rtt);
        let step = LawInput { dt: 0.0, ..step(&signals, &feedback, 4.0 + later, 4e5) };
        match compete.update(&step, &mut LossClassifier::new(), 0.003, &config()) {
            Transition::Stay(rate, _) => rate,
            other => panic!("{other:?}"),
        }
    };
    // After one second CUBIC's window is near its plateau, 4 Mb/s / `PLATEAU_SHARE` = 4.7 Mb/s. The cut to `CUBIC_BETA`
    // of that leaves 3.3 Mb/s.
    assert!((3.1e6..=3.4e6).contains(&carries(1.0, 0.1)), "{}: cut by what showed the mistake", carries(1.0, 0.1));
    assert!((2.5e6..=4e6).contains(&carries(1.0, 0.02)), "{}: no more than it carried", carries(1.0, 0.02));
    assert!(carries(12.0, 0.1) < 1e6, "{}", carries(12.0, 0.1));
}

#[test]
fn frames_that_use_half_of_what_they_may_keep_it_and_those_that_use_a_tenth_come_to_six_times_what_they_use() {
    let mut driver = LawDriver::of_frames(Rate::mbps(1), Rules::Delay);
    for n in 0..270 {
        let used = 0.5 * driver.law.rate;
        driver.run(3.0 + 0.1 * f64::from(n), Some(used), |_, _, _| Some(0.02));
    }
    assert!((0.95e6..=1e6).contains(&driver.law.rate), "{}", driver.law.rate);
    let mut driver = LawDriver::of_frames(Rate::mbps(50), Rules::Delay);
    driver.run(30.0, Some(1e5), |_, _, _| Some(0.02));
    assert!((5.5e5..=6.5e5).contains(&driver.law.rate), "{}", driver.law.rate);
}

#[test]
fn while_competing_small_frames_after_a_large_one_take_the_rate_no_lower_than_what_is_sent_in_the_mean() {
    let mut driver = LawDriver::of_frames(Rate::mbps(50), Rules::Compete);
    for n in 0..10 {
        let begin = 3.0 + 0.4 * f64::from(n);
        // A key frame is sent, and then frames at a tenth of its rate.
        let after = [(0.1, 2.5e6), (0.4, 2.5e5)].map(|(end, rate)| {
            driver.run(begin + end, Some(rate), |_, _, _| Some(0.08));
            driver.law.rate
        });
        // The mean sent rate is 0.81 Mb/s.
        assert!(n < 2 || after[1] > 0.8e6, "{after:?}");
    }
    assert_eq!(driver.law.mode, Rules::Compete);
}

#[test]
fn marks_in_a_queue_that_stands_tell_of_others_as_losses_do_and_marks_at_the_target_do_not() {
    let goes = |queue: f64| {
        let mut driver = LawDriver::new(Rate::mbps(50));
        driver.run(3.0, Some(4e6), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, queue, 0.25) }));
        let (signals, feedback, config) = (&driver.law.signals, FeedbackSummary::default(), config());
        let (mut delay, mut losses) = (DelayLaw::new(), LossClassifier::new());
        delay.begin(1.0, 4e6);
        (0..6).any(|n| {
            let step = LawInput { mark: true, ..step(signals, &feedback, 3.0 + 0.1 * f64::from(n), 4e6) };
            matches!(
                delay.update(&step, &mut losses, true, &config),
                Transition::Switch(_, "compete: lost again, in a standing queue")
            )
        })
    };
    assert!(goes(0.012) && !goes(0.004));
}

#[test]
fn a_loss_at_the_top_of_a_queue_lowers_the_target_of_every_source_in_any_queue() {
    for (frames, own) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut driver = LawDriver::new(Rate::mbps(50));
        driver.run(3.0, Some(8e5), |at, _, _| Some(if at < 2.9 { 0.02 } else { 0.03 }));
        let (signals, feedback, config) =
            (&driver.law.signals, FeedbackSummary::default(), Config { frames, ..config() });
        let (mut delay, mut losses) = (DelayLaw::new(), LossClassifier::new());
        delay.begin(1.0, 1e6);
        if own {
            delay.set_own_queue(1.0, 1e6);
        }
        (0..8).for_each(|n| {
            let _ = losses.on_loss(1.0 + 0.1 * f64::from(n), &Loss { sent: 0.9, q: 0.01, rank: 1.0 }, 0.0);
        });
        let before = delay.target(1e6, &config);
        let loss = Some(Loss { sent: 2.95, q: 0.01, rank: 1.0 });
        let turn = delay.update(&LawInput { loss, ..step(signals, &feedback, 3.0, 1e6) }, &mut losses, true, &config);
        assert!(delay.target(1e6, &config) < before, "{frames} {own}");
        // The rate is set to the receive rate only if the source has frames and the queue is the flow's own.
        match turn {
            Transition::Stay(rate, "delay: lost in its own queue") => {
                assert!(frames && own && (7e5..9e5).contains(&rate), "{frames} {own} {rate}");
            }
            turn => assert!(!(frames && own) && matches!(turn, Transition::Stay(..)), "{frames} {own} {turn:?}"),
        }
    }
}

#[test]
fn in_a_queue_of_its_own_the_bursts_of_frames_are_a_queue() {
    let queue = |own: bool| {
        let mut driver = LawDriver::of_frames(Rate::mbps(50), Rules::Delay);
        if own {
            driver.law.set_own_queue(driver.now);
        }
        // Ten packets are sent back to back. Each waits for those before it.
        for n in 0..10u32 {
            let at = Time::ZERO + Span::from_secs_f64(driver.now);
            let came = at + Span::from_secs_f64(0.02 + 0.008 * f64::from(n));
            driver.law.on_sent(at, driver.number, 1_000, Some(1.1), 1e6);
            let arrived = PacketArrival { at: Some(PeerTime::from_nanos(came.as_nanos() as i64)), ecn: None };
            let (number, size) = (driver.number, Bytes::new(1_000));
            let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
            driver.law.signals.on_feedback(came, None, &[report], (1e6, 20));
            driver.number += 1;
        }
        driver.law.signals.q
    };
    assert!(queue(false) < 0.02 && queue(true) > 0.06, "{} {}", queue(false), queue(true));
}

/// Sends packets at 1 Mb/s, and returns the flow's share of the queue as trains measure it. The first four of each 50
/// packets are a train. They arrive `apart` seconds apart, all other packets 8 ms apart. `waits` is the queueing delay,
/// in seconds. Reports resolve arrival times to 1/1024 s.
fn trains(apart: f64, waits: f64) -> Option<f64> {
    let (mut signals, size) = (Signals::new(), Bytes::new(1_000));
    let (mut sent, mut came) = (0.0_f64, 0.1_f64);
    for number in 0..2_000_u64 {
        let in_train = number % 50 > 0 && number % 50 < 4;
        if !in_train {
            // After a train, the pacer waits for the transmission time of the whole train.
            sent += if number % 50 == 4 { 0.032 } else { 0.008 };
        }
        // The first packets meet no queue, which gives the base delay.
        let queue = if number < 10 { 0.0 } else { waits };
        came = if in_train { came + apart } else { (sent + 0.1 + queue).max(came) };
        let at = Time::ZERO + Span::from_secs_f64(sent);
        signals.on_sent(at, number, size.get(), None);
        let reported = (came * 1_024.0).floor() / 1_024.0;
        let arrived = PacketArrival { at: Some(PeerTime::from_nanos((reported * 1e9) as i64)), ecn: None };
        let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
        let now = Time::ZERO + Span::from_secs_f64(came + 0.02);
        let feedback = signals.on_feedback(now, None, &[report], (1e6, 20));
        for train in &feedback.trains {
            signals.trains.add(now.as_secs_f64(), train);
        }
    }
    signals.trains.share(came)
}

#[test]
fn trains_tell_a_flows_share_of_the_queue_though_arrivals_are_told_to_a_millisecond() {
    // In a shared queue on links of 2 and of 4 Mb/s, a train arrives at the link's rate.
    for (link, apart) in [(2e6, 0.004), (4e6, 0.002)] {
        let share = trains(apart, 0.05).unwrap();
        assert!((share * link / 1e6 - 1.0).abs() < 0.15, "{share} of {link}");
    }
    // In an unshared queue, at 1 Mb/s, a train arrives at the flow's rate.
    let own = trains(0.008, 0.05);
    assert!((own.unwrap() - 1.0).abs() < 0.1, "{own:?}");
}

#[test]
fn trains_tell_no_share_where_no_queue_stood_before_them() {
    assert_eq!(trains(0.002, 0.0), None);
}

/// Sends packets at 1 Mb/s while the law is in COMPETE. The first four of each 50 packets are sent back to back, and
/// arrive at 2 Mb/s, the rate of a shared link. Returns whether the law requests a train, and the flow's share of the
/// queue as trains measure it.
fn share_by_bursts(sends_probes: bool) -> (bool, Option<f64>) {
    let mut driver = LawDriver::with(Rate::mbps(50), |config| Config { probes: sends_probes, ..config });
    driver.run(3.0, Some(1e6), |_, _, _| Some(0.02));
    let (mut sent, mut came) = (driver.now, 0.0_f64);
    for n in 0..500_u64 {
        let is_back_to_back = n % 50 > 0 && n % 50 < 4;
        if !is_back_to_back {
            sent += if n % 50 == 4 { 0.032 } else { 0.008 };
        }
        // The law requests a train only if the queue is clearly shorter than its recent maximum. So begin with a long
        // queue.
        let waits = if n < 120 { 0.15 } else { 0.05 };
        came = if is_back_to_back { came + 0.004 } else { (sent + 0.02 + waits).max(came) };
        let (at, size, number) = (Time::ZERO + Span::from_secs_f64(sent), Bytes::new(1_000), driver.number + n);
        (driver.law.mode, driver.law.rate) = (Rules::Compete, 1e6);
        driver.law.on_sent(at, number, size.get(), None, 0.0);
        let arrived = PacketArrival { at: Some(PeerTime::from_nanos((came * 1e9) as i64)), ecn: None };
        let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
        driver.law.on_feedback(Time::ZERO + Span::from_secs_f64(came + BACK), None, &[report]);
    }
    driver.law.mode = Rules::Compete;
    (driver.law.train().is_some(), driver.law.signals.trains.share(came))
}

#[test]
fn bursts_count_as_trains_only_if_the_session_sends_the_trains_that_are_requested() {
    let (requests, share) = share_by_bursts(true);
    assert!(requests && share.is_some_and(|share| (0.4..0.6).contains(&share)), "{share:?}");
    assert_eq!(share_by_bursts(false), (false, None));
}

#[test]
fn trains_that_show_a_queue_of_its_own_count_in_a_row_and_one_that_does_not_ends_that() {
    let mut trains = TrainMonitor::default();
    let train = |rate_before, was_queued| Train { bits: 24_000.0, duration: 0.024, rate_before, was_queued };
    for (n, before) in [1e6, 0.95e6, 0.5e6, 1e6].into_iter().enumerate() {
        trains.add(1.0 + n as f64, &train(Some(before), true));
        let own = [1, 2].map(|count| trains.shows_own_queue(count));
        assert_eq!(own, [[true, false], [true, true], [false, false], [true, false]][n], "after train {n}");
    }
    let share = trains.share(6.0).unwrap();
    assert!((0.8..0.9).contains(&share), "{share}");
    trains.add(6.0, &train(None, false));
    assert!(trains.shows_own_queue(1) && !trains.shows_own_queue(2), "one with too little before it says nothing");
    trains.add(6.0, &train(Some(0.9e6), false));
    assert!(trains.shows_own_queue(2), "a flow that gets what a train shows has it to itself, with a queue or without");
    trains.add(6.0, &train(Some(0.5e6), false));
    assert_eq!(trains.share(6.0), Some(share), "less, without a queue, may be all that was sent");
    assert!(!trains.shows_own_queue(1));
    assert_eq!(trains.share(30.0), None, "it is too long ago");
}

#[test]
fn several_trains_leave_while_it_is_in_doubt_whether_the_queue_is_its_own() {
    let mut table = TrainSchedule::default();
    for n in 0..100_u32 {
        let now = 0.1 * f64::from(n);
        table.on_delay(now, (5.0..7.0).contains(&now));
    }
    let count = table.last_request().unwrap_or(0);
    assert!((6..=7).contains(&count), "{count} in two seconds");
}

#[test]
fn a_loss_at_a_queue_raises_a_doubt_that_ends_by_time_or_once_the_queue_is_its_own() {
    let (signals, feedback, config) = (Signals::new(), FeedbackSummary::default(), config());
    let after = |count: u32, q: f64| {
        let (mut delay, mut losses) = (DelayLaw::new(), LossClassifier::new());
        (1..count).for_each(|n| {
            let _ = losses.on_loss(9.0 + 0.1 * f64::from(n), &Loss { sent: 9.0, q, rank: 0.5 }, 0.0);
        });
        let loss = Some(Loss { sent: 9.9, q, rank: 0.5 });
        delay.update(&LawInput { loss, ..step(&signals, &feedback, 10.0, 1e6) }, &mut losses, true, &config);
        delay
    };
    let mut delay = after(1, 0.02);
    assert!(delay.is_queue_in_doubt(10.5, 1e6));
    assert!(!delay.is_queue_in_doubt(10.1 + 2.0, 1e6), "the time is over");
    delay.set_own_queue(10.5, 1e6);
    assert!(!delay.is_queue_in_doubt(10.5, 1e6), "it is its own");
    assert!(!after(1, 0.002).is_queue_in_doubt(10.5, 1e6), "no queue");
    assert!(!after(8, 0.02).is_queue_in_doubt(10.5, 1e6), "losses that come at any queue, as a radio's do");
}

#[test]
fn beside_a_queue_that_has_little_of_a_flow_a_train_tells_whose_it_is_and_one_of_ten_of_its_kind_stays() {
    let goes = |rate: f64, share: Option<f64>, own: bool| {
        let mut driver = LawDriver::new(Rate::mbps(50));
        driver.run(3.0, Some(rate), |at, _, _| Some(if at < 1.0 { 0.02 } else { 0.02 + tcp_queue(at, 0.06, 0.25) }));
        let (signals, feedback, config) = (&driver.law.signals, FeedbackSummary::default(), config());
        let (mut delay, mut losses) = (DelayLaw::new(), LossClassifier::new());
        delay.begin(1.0, rate);
        if own {
            delay.set_own_queue(1.0, rate);
        }
        let step = LawInput { share, ..step(signals, &feedback, 3.0, rate) };
        let turn = delay.update(&step, &mut losses, true, &config);
        (delay.takes_train_request(), matches!(turn, Transition::Switch(_, "compete: little of a queue that stands")))
    };
    assert_eq!(goes(80e3, None, false), (true, false), "half of a packet in 60 ms");
    assert_eq!(goes(80e3, Some(0.09), false), (true, true));
    assert_eq!(goes(80e3, Some(0.11), false), (true, false), "one of nine");
    assert_eq!(goes(80e3, Some(0.09), true), (false, false), "its own queue");
    assert_eq!(goes(400e3, Some(0.09), false), (false, false), "three packets");
}

/// Returns the rate of COMPETE after ten seconds with this share of the queue.
fn competes_with(share: Option<f64>) -> f64 {
    let (signals, feedback, config) = (Signals::new(), FeedbackSummary::default(), config());
    let (mut compete, mut losses) = (CompeteLaw::new(), LossClassifier::new());
    compete.left = true;
    compete.begin(0.0, 1e6, 0.1);
    let mut rate = 0.0;
    for n in 1..100_u32 {
        let step = LawInput { share, ..step(&signals, &feedback, 0.1 * f64::from(n), 1e6) };
        if let Transition::Stay(now, _) = compete.update(&step, &mut losses, 0.003, &config) {
            rate = now;
        }
    }
    rate
}

#[test]
fn above_half_of_a_shared_queue_the_window_does_not_grow_and_in_a_queue_of_its_own_it_does() {
    let plain = competes_with(None);
    assert!(plain > 1.5e6, "{plain}");
    assert!((plain..50e6).contains(&competes_with(Some(0.4))), "less than half: it grows as CUBIC, up to the cap");
    assert!((0.9e6..1.1e6).contains(&competes_with(Some(0.6))), "{}", competes_with(Some(0.6)));
    assert!((competes_with(Some(0.95)) - plain).abs() < 1.0, "its own");
}

/// Returns the numbers in a source file that are not values of constants. Exempt are 0, 1, 2 and a half, the bits of a
/// byte, the nanoseconds of a second, and numbers that keep a divisor above zero.
fn choices(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_constant = |line: &str| ["const ", "pub(super) const "].iter().any(|begin| line.starts_with(begin));
    for line in source.lines().filter(|line| !is_constant(line.trim_start())) {
        let code: String = line.split("//").next().unwrap().split('"').step_by(2).collect();
        let chars: Vec<char> = code.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let begin = at;
            let is_word = |at: usize| chars.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
            let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
            if !is_word(at) {
                at += 1;
                continue;
            }
            let is_number = is_digit(at);
            while is_word(at)
                || is_number && chars[at..].starts_with(&['.']) && is_digit(at + 1)
                || is_number && chars[at..].starts_with(&['-']) && chars[at - 1] == 'e'
            {
                at += 1;
            }
            let (before, text, after) = (&chars[..begin], &chars[begin..at], &chars[at..]);
            let text: String = text.iter().filter(|c| **c != '_').collect();
            let is_field = before.ends_with(&['.']) && !before.ends_with(&['.', '.']);
            let Some(number) = text.parse::<f64>().ok().filter(|_| is_number && !is_field) else { continue };
            let byte = number == 8.0 && (after.starts_with(&[' ', '*']) || before.ends_with(&['/', ' ']));
            let nanos = number == 1e9 && before.ends_with(&['/', ' ']);
            let above_zero = text.contains("e-") && before.ends_with(&['x', '(']);
            if ![0.0, 0.5, 1.0, 2.0].contains(&number) && !byte && !nanos && !above_zero {
                found.push(text);
            }
        }
    }
    found
}

#[test]
fn a_choice_is_told_from_arithmetic_by_its_form() {
    for (code, wants) in [
        ("let x = 0.7 * self.0 + 3e-3; // 0.9", "0.7 3e-3"),
        ("if (0.92..1.1).contains(&x) && n > 5 && q < 0.02 {", "0.92 1.1 5 0.02"),
        ("(0.5 * q, 8.0 * bytes, SEGMENT / 8.0, nanos / 1e9, p.max(1e-9), 1..=2, a.1.0, f64, u32::MAX, \"0.4\")", ""),
        ("8.0 + x.max(9.0) / 1e8", "8.0 9.0 1e8"),
        ("const MAX_ARRIVALS: usize = 1 << 15;", ""),
        ("    pub(super) const LATER: f64 = 1_000.5;", ""),
        ("let later = 1_000.5;", "1000.5"),
    ] {
        assert_eq!(choices(code).join(" "), wants, "{code}");
    }
}

#[test]
fn every_choice_of_the_laws_is_a_named_constant() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/steady");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        // The parameters, the formats, and tests have numbers of their own.
        if ["mod", "tests"].iter().all(|name| !path.ends_with(format!("{name}.rs"))) {
            let found = choices(&std::fs::read_to_string(&path).unwrap());
            assert!(found.is_empty(), "{}: {found:?}", path.display());
            files += 1;
        }
    }
    assert!(files > 5, "{files}");
}

/// Either the receiver's clock drifts far from the sender's clock, or one of the clocks is set by a minute.
#[test]
fn a_queue_is_measured_however_far_the_clocks_are_apart() {
    for (drift, set) in [(1e-4, 0.0), (-1e-4, 0.0), (0.0, 60.0), (0.0, -60.0)] {
        let (mut signals, size) = (Signals::new(), Bytes::new(1_000));
        let mut hear = |number: u64, sent: f64, queue: f64, set: f64| {
            let at = Time::ZERO + Span::from_secs_f64(sent);
            signals.on_sent(at, number, size.get(), None);
            let came = ((sent + 0.02 + queue) * (1.0 + drift) + set) * 1e9;
            let arrived = PacketArrival { at: Some(PeerTime::from_nanos(came as i64)), ecn: None };
            let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
            signals.on_feedback(at + Span::from_secs_f64(0.04 + queue), None, &[report], (1e6, 20));
            signals.q
        };
        // The drift of 1e-4 moves the clocks apart by 15 s in 150,000 s.
        (0..15_000).for_each(|n| _ = hear(n, 10.0 * n as f64, 0.0, 0.0));
        (0..50).for_each(|n| _ = hear(15_000 + n, 150_000.0 + 0.1 * n as f64, 0.0, set));
        let q = hear(15_050, 150_005.0, 0.1, set);
        assert!((0.095..0.105).contains(&q), "{drift} {set}: {q}");
    }
}
