//! What this law must not take for something else.
use super::signals::{Burst, Loss, Signals};
use super::verdict::{Backoff, Chance, Follows, Memory, Press};
use super::{Config, PARAMS};
use crate::entry::{Mode, Setup, Values};
use crate::half::{PacketArrival, PacketReport, Stream};
use steadycast_units::{Bytes, PeerTime, Rate, Seed, Span, Time};

fn config() -> Config {
    let setup = Setup::unicast(Rate::kbps(1), Rate::mbps(50), Seed(1).part("steady"));
    Config::new(&setup, &Values::resolve(PARAMS, Mode::Repaired, &[]).unwrap())
}

/// A value within ±1 that looks random, and has no mean.
fn noise(n: usize) -> f64 {
    f64::from(u32::try_from(n * 7_919 % 201).unwrap()) / 100.0 - 1.0
}

/// Rows whose sent rate swings by `swing`, each 100 ms, of which `arrives` makes what arrives.
fn follows(swing: f64, arrives: impl Fn(f64, usize) -> f64) -> Follows {
    let mut follows = Follows::default();
    for n in 0..60 {
        let sent = 1e6 * (1.0 + swing * f64::from(u32::try_from(n % 6).unwrap()));
        follows.see(0.1 * f64::from(u32::try_from(n).unwrap()), sent, arrives(sent, n), &config());
    }
    follows
}

#[test]
fn a_queue_of_its_own_is_one_where_what_arrives_does_not_follow_what_is_sent() {
    let own = |_: f64, n: usize| 1e6 * (1.0 + 0.1 * noise(n));
    assert!(follows(0.15, own).is_own(&config()));
    for others in [0.7e6, 1e6, 3e6] {
        let shared = |sent: f64, n: usize| 2e6 * sent / (sent + others) * (1.0 + 0.1 * noise(n));
        assert!(!follows(0.15, shared).is_own(&config()), "beside {others} bit/s");
    }
}

#[test]
fn a_rate_that_hardly_changed_tells_nothing_of_whose_queue_it_is() {
    assert!(!follows(0.01, |_, _| 1e6).is_own(&config()));
    let mut few = Follows::default();
    (0..7).for_each(|n| few.see(f64::from(n), 1e6 * f64::from(1 + n % 3), 1e6, &config()));
    assert!(!few.is_own(&config()));
    few.see(7.0, 2e6, 1e6, &config());
    assert!(!few.is_own(&config()), "rows a second apart fade");
}

#[test]
fn losses_at_any_queue_are_taken_for_chance_and_losses_at_the_highest_for_congestion() {
    let after = |rank: fn(usize) -> f64| {
        let mut chance = Chance::new();
        let see = |n: usize| {
            let at = f64::from(u32::try_from(n).unwrap());
            chance.see(at, &Loss { sent: at, q: 0.03, rank: rank(n) }, 0.002, &config())
        };
        (0..40).map(see).filter(|congested| *congested).count()
    };
    assert_eq!(after(|n| 0.5 + 0.5 * noise(n)), 0);
    let at_the_top = after(|_| 0.95);
    assert!((30..40).contains(&at_the_top), "{at_the_top} of 40");
}

#[test]
fn the_highest_rate_is_remembered_for_a_minute_and_not_for_ten() {
    let mut memory = Memory(4e6);
    (0..600).for_each(|_| memory.see(0.0, 0.1, &config()));
    assert!((memory.0 / 2e6 - 1.0).abs() < 0.01, "{}", memory.0);
    (0..5_400).for_each(|_| memory.see(0.0, 0.1, &config()));
    assert!(memory.0 < 5e3, "{}", memory.0);
}

#[test]
fn the_first_queue_after_a_switch_is_its_own_and_says_nothing_of_others() {
    let mut press = Press::new();
    press.see(4.0, &config());
    assert!((press.mean - 1.0).abs() < 1e-9);
    press.see(4.0, &config());
    assert!((press.mean - 1.75).abs() < 1e-9, "{}", press.mean);
}

#[test]
fn only_competing_again_soon_makes_the_stay_longer_and_a_proof_takes_that_back() {
    let (config, mut backoff) = (config(), Backoff::new());
    backoff.enter(10.0, 0.05, &config);
    assert!(backoff.may_leave(11.1, &config));
    backoff.left = Some(20.0);
    backoff.enter(25.0, 0.05, &config);
    assert_eq!(backoff.stays(), 1);
    assert!(!backoff.may_leave(33.9, &config) && backoff.may_leave(34.1, &config));
    backoff.left = Some(40.0);
    backoff.enter(60.0, 0.05, &config);
    assert_eq!(backoff.stays(), 1, "twenty seconds later is another competition");
    backoff.clear();
    assert!(backoff.may_leave(61.1, &config));
}

/// What is seen of a burst of 20 packets, at 2.5 Mb/s, at a path of 1 Mb/s and 20 ms: the queue of the last one, and the received rate.
fn burst(told: Option<Burst>) -> (f64, f64) {
    let (mut signals, size, mut free) = (Signals::new(), Bytes::new(1_000), 0.0_f64);
    let mut hear = |signals: &mut Signals, number: u64, sent: f64| {
        let at = Time::ZERO + Span::from_secs_f64(sent);
        signals.on_sent(at, number, size.get(), told);
        free = free.max(sent + 0.02) + 0.008;
        let arrived = PacketArrival { at: Some(PeerTime::from_nanos((free * 1e9) as i64)), ecn: None };
        let report = PacketReport { number, sent: at, size, stream: Stream::Media, arrived: Some(arrived) };
        signals.hear(Time::ZERO + Span::from_secs_f64(free + 0.02), None, &[report], (1e6, 20));
    };
    (0..10).for_each(|n| hear(&mut signals, n, 0.02 * n as f64));
    (0..20).for_each(|n| hear(&mut signals, 10 + n, 1.0 + 0.0032 * n as f64));
    (signals.q, signals.carries(0.15, 1e6).unwrap())
}

#[test]
fn the_queue_that_a_sources_own_burst_makes_is_not_taken_for_others() {
    let told = Burst { rate: 1e6, pacing: 1.25, most: 0.25 };
    let (plain, _) = burst(None);
    assert!((0.085..0.095).contains(&plain), "19 packets wait 4.8 ms each: {plain}");
    let (less, carries) = burst(Some(told));
    // The packets are 61 ms early by the pacing rate, which makes 76 ms at 1 Mb/s.
    assert!((0.014..0.016).contains(&less), "{less}");
    assert!((0.9e6..1.3e6).contains(&carries), "{carries}");
}

#[test]
fn a_burst_at_a_path_that_carries_half_the_rate_is_still_a_queue() {
    let told = Burst { rate: 2e6, pacing: 1.25, most: 0.25 };
    let (less, _) = burst(Some(told));
    assert!((0.07..0.095).contains(&less), "2.5 Mb/s is no burst at 2 Mb/s: {less}");
}
