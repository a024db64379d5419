//! The claims about when RTCP is sent.
use proptest::prelude::*;
use steadycast_rtcp::interval::COMPENSATION;
use steadycast_rtcp::{Census, Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const GROUP: Census = Census { members: 46, senders: 1, we_sent: false };
const PAIR: Census = Census { members: 2, senders: 1, we_sent: false };

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

fn assert_between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not in {low}..={high}");
}

fn inputs() -> IntervalInputs {
    IntervalInputs {
        members: 46,
        senders: 1,
        rtcp_bw: Rate::kbps(8),
        we_sent: false,
        avg_size: 100.0,
        initial: false,
        t_min: Span::ZERO,
    }
}

fn avpf(t_rr_interval: Span) -> TimerConfig {
    TimerConfig::new(Profile::Avpf { t_rr_interval }, Rate::mbps(1))
}

/// Runs a timer until it does not rearm. Returns its last answer and the time.
fn run(timer: &mut Timer, census: &Census) -> (Expiry, Time) {
    for _ in 0..100 {
        let now = timer.next();
        match timer.on_expiry(now, census) {
            Expiry::Rearm => assert!(timer.next() > now),
            expiry => return (expiry, now),
        }
    }
    panic!("rearmed a hundred times");
}

#[test]
fn the_divisor_is_1_21828() {
    assert!((COMPENSATION - 1.21828).abs() < 2e-6, "{COMPENSATION}");
}

#[test]
fn receivers_share_three_quarters_and_senders_one() {
    // 45 receivers of 100 bytes at 750 B/s, one sender at 250 B/s.
    assert_eq!(inputs().deterministic(), Span::secs(6));
    let sender = IntervalInputs { we_sent: true, ..inputs() };
    assert_eq!(sender.deterministic(), Span::millis(400));
    // Above a quarter all members share the whole bandwidth: 46 of 100 bytes at 1000 B/s.
    let many = IntervalInputs { senders: 12, ..inputs() };
    assert_eq!(many.deterministic(), Span::millis(4600));
    // Exactly a quarter is not above it: 11 of 100 bytes at 250 B/s.
    let quarter = IntervalInputs { members: 44, senders: 11, we_sent: true, ..inputs() };
    assert_eq!(quarter.deterministic(), Span::millis(4400));
}

#[test]
fn the_minimum_counts_half_before_the_first_report() {
    let pair = IntervalInputs { members: 2, t_min: Span::secs(5), ..inputs() };
    assert_eq!(pair.deterministic(), Span::secs(5));
    assert_eq!(IntervalInputs { initial: true, ..pair }.deterministic(), Span::millis(2500));
}

#[test]
fn without_bandwidth_nothing_is_ever_sent() {
    let mute = IntervalInputs { rtcp_bw: Rate::ZERO, ..inputs() };
    assert!(mute.deterministic() > Span::secs(3_000_000_000));
}

#[test]
fn however_much_bandwidth_there_is_time_goes_on_between_two_reports() {
    for rate in [Rate::mbps(10_000), Rate::MAX] {
        let config = TimerConfig::new(Profile::Avpf { t_rr_interval: Span::ZERO }, rate).point_to_point();
        let mut timer = Timer::new(config, Seed(1).part("fast"), Time::ZERO);
        for _ in 0..100 {
            let (expiry, now) = run(&mut timer, &PAIR);
            assert_eq!(expiry, Expiry::Send);
            // 1 ms · U(0.5, 1.5) / 1.21828
            assert_between(timer.next().since(now).as_millis_f64(), 0.41, 1.24);
        }
    }
}

#[test]
fn without_reconsideration_the_mean_interval_is_0_8208_of_the_deterministic_one() {
    let mut chance = Seed(1).part("interval");
    let n = 20_000;
    let mean = (0..n).map(|_| inputs().randomised(&mut chance).ratio(Span::secs(6))).sum::<f64>() / f64::from(n);
    // Standard error: 0.2887 · 0.8208 / √n = 0.0017.
    assert_between(mean, 0.8208 - 0.006, 0.8208 + 0.006);
}

#[test]
fn with_reconsideration_the_mean_interval_is_the_deterministic_one() {
    let config = TimerConfig::new(Profile::Rfc3550, Rate::kbps(160)).with_t_min(Span::ZERO);
    let config = TimerConfig { first_size: Bytes::new(100), ..config };
    let mut timer = Timer::new(config, Seed(2).part("timer"), Time::ZERO);
    run(&mut timer, &GROUP);
    let n = 20_000;
    let (mut before, mut sum) = (None, 0.0);
    for _ in 0..=n {
        let (expiry, now) = run(&mut timer, &GROUP);
        assert_eq!(expiry, Expiry::Send);
        timer.on_rtcp(Bytes::new(100));
        sum += before.map_or(0.0, |before| now.since(before).ratio(Span::secs(6)));
        before = Some(now);
    }
    assert_between(sum / f64::from(n), 0.99, 1.01);
}

#[test]
fn the_first_report_of_rfc_3550_comes_after_1_to_3_seconds_and_of_asmp_after_a_fifth_of_that() {
    for (profile, scale) in [(Profile::Rfc3550, 1.0), (Profile::Asmp, 0.2)] {
        for seed in 0..100 {
            let timer = Timer::new(TimerConfig::new(profile, Rate::mbps(4)), Seed(seed).part("first"), Time::ZERO);
            // 2.5 s · U(0.5, 1.5) / 1.21828
            assert_between(timer.next().as_secs_f64(), 1.02603 * scale, 3.07812 * scale);
        }
    }
}

#[test]
fn reports_of_a_small_asmp_group_are_one_second_apart_on_average() {
    let mut timer = Timer::new(TimerConfig::new(Profile::Asmp, Rate::mbps(4)), Seed(3).part("asmp"), Time::ZERO);
    let (_, first) = run(&mut timer, &GROUP);
    let last = (0..2000).map(|_| run(&mut timer, &GROUP).1).last().unwrap();
    assert_between(last.since(first).as_secs_f64() / 2000.0, 0.97, 1.03);
}

#[test]
fn a_join_burst_of_a_hundred_is_spread_by_reconsideration() {
    // All members join at time 0 and receive each other's packets immediately. Without the sender's share, 100
    // receivers with packets of 112 bytes have 1500 B/s.
    let all = Census { members: 101, senders: 1, we_sent: false };
    let td = 100.0 * 112.0 / 1500.0;
    let config = TimerConfig::new(Profile::Rfc3550, Rate::kbps(320));
    let firsts = (0..100).map(|seed| {
        let mut timer = Timer::new(config, Seed(seed).part("join"), Time::ZERO);
        run(&mut timer, &all).1.as_secs_f64()
    });
    let firsts: Vec<f64> = firsts.collect();
    // Without reconsideration all would report within 3.1 s: the shortest interval of the whole group is 0.41 Td.
    assert!(firsts.iter().all(|&first| first > td * 0.41));
    assert_between(firsts.iter().sum::<f64>() / 100.0, 0.85 * td, 1.2 * td);
}

#[test]
fn departures_bring_the_next_report_forward_in_proportion() {
    let large = Census { members: 1001, senders: 1, we_sent: false };
    let half = Census { members: 501, ..large };
    let mut timer = Timer::new(TimerConfig::new(Profile::Rfc3550, Rate::kbps(160)), Seed(4).part("leave"), Time::ZERO);
    let (_, sent) = run(&mut timer, &large);
    let due = timer.next();
    let now = sent + due.since(sent) / 4;
    timer.on_departures(now, &half);
    let share = 501.0 / 1001.0;
    assert_between(timer.next().since(now).ratio(due.since(now)), share - 1e-6, share + 1e-6);
    // Nothing changes if the number of members has stayed the same or has grown.
    let due = timer.next();
    timer.on_departures(now, &half);
    timer.on_departures(now, &large);
    assert_eq!(timer.next(), due);
}

#[test]
fn a_reduced_minimum_is_360_seconds_per_kilobit() {
    let config = TimerConfig::new(Profile::Rfc3550, Rate::mbps(1)).with_reduced_minimum(Rate::mbps(1));
    assert_eq!(config.t_min, Span::millis(360));
    let slow = TimerConfig::new(Profile::Rfc3550, Rate::kbps(64)).with_reduced_minimum(Rate::kbps(64));
    assert_eq!(slow.t_min, Span::secs(5));
    // The others do not know our reduced minimum, so the timeout is computed from the full minimum.
    let timer = Timer::new(config, Seed(1).part("reduced"), Time::ZERO);
    assert_eq!(timer.member_timeout(&PAIR), Span::secs(25));
}

#[test]
fn the_mean_size_moves_by_a_sixteenth_with_every_packet() {
    let config = TimerConfig { first_size: Bytes::new(100), ..TimerConfig::new(Profile::Rfc3550, Rate::mbps(1)) };
    let mut timer = Timer::new(config, Seed(1).part("size"), Time::ZERO);
    timer.on_rtcp(Bytes::new(260));
    assert!((timer.inputs(&PAIR).avg_size - 110.0).abs() < 1e-9);
}

#[test]
fn a_bye_goes_at_once_in_groups_of_up_to_fifty() {
    for (members, at_once) in [(50, true), (51, false)] {
        let census = Census { members, senders: 1, we_sent: false };
        let mut timer = Timer::new(TimerConfig::new(Profile::Rfc3550, Rate::mbps(1)), Seed(5).part("bye"), Time::ZERO);
        run(&mut timer, &census);
        let leave = timer.leave(at(60_000), Bytes::new(100), false, &census);
        assert_eq!(leave == Leave::Now, at_once, "{members}: {leave:?}");
    }
}

#[test]
fn who_never_spoke_leaves_without_a_word() {
    let mut timer = Timer::new(TimerConfig::new(Profile::Rfc3550, Rate::mbps(1)), Seed(5).part("bye"), Time::ZERO);
    assert_eq!(timer.leave(at(10), Bytes::new(100), false, &GROUP), Leave::Silently);
    assert_eq!(timer.next(), Time::NEVER);
    let mut timer = Timer::new(TimerConfig::new(Profile::Rfc3550, Rate::mbps(1)), Seed(5).part("bye"), Time::ZERO);
    assert_eq!(timer.leave(at(10), Bytes::new(100), true, &GROUP), Leave::Now);
}

#[test]
fn a_bye_storm_of_a_thousand_is_spread_over_their_share_of_the_bandwidth() {
    // 1000 BYEs of 100 bytes at 1500 B/s (receivers' share of 2000 B/s) take 66.7 s: the group must not flood the
    // source.
    let all = Census { members: 1001, senders: 1, we_sent: false };
    let config = TimerConfig::new(Profile::Rfc3550, Rate::kbps(320));
    let mut timers: Vec<Timer> = (0..1000)
        .map(|seed| {
            let mut timer = Timer::new(config, Seed(seed).part("storm"), Time::ZERO);
            run(&mut timer, &Census::alone());
            assert_eq!(timer.leave(at(20_000), Bytes::new(100), false, &all), Leave::AtExpiry);
            timer
        })
        .collect();
    let mut sent = Vec::new();
    while sent.len() < 1000 {
        let next = (0..timers.len()).min_by_key(|&i| (timers[i].next(), i)).unwrap();
        let now = timers[next].next();
        match timers[next].on_expiry(now, &all) {
            Expiry::Rearm => {}
            Expiry::SendBye => {
                sent.push(now.since(at(20_000)).as_secs_f64());
                timers.swap_remove(next);
                timers.iter_mut().for_each(|timer| timer.on_bye(now, Bytes::new(100), &all));
            }
            other => panic!("{other:?}"),
        }
        if timers.is_empty() {
            break;
        }
    }
    assert_eq!(sent.len(), 1000);
    assert!(sent[0] >= 1.0, "the first after {} s", sent[0]);
    let (half, whole) = (sent[499], sent[999]);
    assert_between(half, 20.0, 50.0);
    assert_between(whole, 50.0, 120.0);
}

#[test]
fn avpf_waits_a_second_in_groups_and_not_at_all_between_two() {
    for seed in 0..50 {
        let group = Timer::new(avpf(Span::ZERO), Seed(seed).part("avpf"), Time::ZERO);
        assert_between(group.next().as_secs_f64(), 0.5 / 1.21829, 1.5 / 1.21828);
        let pair = Timer::new(avpf(Span::ZERO).point_to_point(), Seed(seed).part("avpf"), Time::ZERO);
        // 112 bytes at three quarters of 50 kbit/s: 24 ms.
        assert_between(pair.next().as_secs_f64(), 0.009, 0.030);
    }
}

#[test]
fn after_its_first_report_an_avpf_group_has_no_minimum() {
    let mut timer = Timer::new(avpf(Span::ZERO), Seed(6).part("avpf"), Time::ZERO);
    let (_, first) = run(&mut timer, &PAIR);
    let last = (0..500).map(|_| run(&mut timer, &PAIR).1).last().unwrap();
    // Half of the members send, so both share all: 2 · 112 bytes at 6250 B/s, 35.84 ms.
    assert_between(last.since(first).as_secs_f64() / 500.0, 0.0345, 0.0372);
}

#[test]
fn t_rr_interval_spaces_full_reports_and_suppresses_the_others() {
    let spacing = Span::secs(2);
    let mut timer = Timer::new(avpf(spacing), Seed(7).part("avpf"), Time::ZERO);
    let (mut full, mut suppressed, mut before) = (Vec::new(), 0, None);
    while full.len() < 300 {
        match run(&mut timer, &PAIR) {
            (Expiry::Send, now) => {
                full.extend(before.replace(now).map(|before: Time| now.since(before).ratio(spacing)));
            }
            (Expiry::Suppress, _) => suppressed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(full.iter().all(|&gap| (0.49..1.55).contains(&gap)));
    // At each of dozens of deadlines, the timer draws the required spacing again. The first draw that is shorter than
    // the time since the last report lets the report pass, so the mean spacing is short.
    assert_between(full.iter().sum::<f64>() / 300.0, 0.5, 0.75);
    assert!(suppressed > 5_000, "{suppressed}");
    assert_eq!(timer.member_timeout(&PAIR), Span::secs(10));
}

/// A timer that skips suppressed reports expires a few times per report instead of once per interval of the bandwidth,
/// and its reports are as far apart.
#[test]
fn a_timer_that_skips_suppressed_reports_sends_as_many_with_few_expiries() {
    for (rate, t_rr_ms, seed) in [(1, 1_000, 1), (8, 1_000, 2), (1, 5_000, 3), (20, 500, 4)] {
        let run = |skips_suppressed: bool| {
            let profile = Profile::Avpf { t_rr_interval: Span::millis(t_rr_ms) };
            let config = TimerConfig { skips_suppressed, ..TimerConfig::new(profile, Rate::mbps(rate)) };
            let mut timer = Timer::new(config.point_to_point(), Seed(seed).part("timer"), at(0));
            let (mut sent, mut expiries) = (0, 0);
            while timer.next() < at(400 * t_rr_ms) {
                expiries += 1;
                sent += u32::from(timer.on_expiry(timer.next(), &PAIR) == Expiry::Send);
            }
            (f64::from(sent), expiries)
        };
        let ((all, ticks), (few, wakes)) = (run(false), run(true));
        assert!((few / all - 1.0).abs() < 0.1, "{rate} Mb/s: {few} of {all} reports");
        assert!(wakes * 2 < ticks, "{rate} Mb/s: {wakes} of {ticks} expiries");
    }
}

#[test]
fn feedback_that_waits_overrides_the_suppression() {
    let mut timer = Timer::new(avpf(Span::secs(100)).point_to_point(), Seed(8).part("avpf"), Time::ZERO);
    assert_eq!(run(&mut timer, &PAIR).0, Expiry::Send);
    assert_eq!(run(&mut timer, &PAIR).0, Expiry::Suppress);
    let now = timer.next().before(Span::millis(2));
    assert!(timer.request_early(now, Span::secs(1)));
    assert_eq!(timer.next(), now);
    assert_eq!(timer.on_expiry(now, &PAIR), Expiry::SendFeedback);
    // A second request in the same cycle has to wait for the regular packet, or is refused.
    let due = timer.next();
    assert!(!timer.request_early(now, Span::ZERO));
    assert!(timer.request_early(now, Span::secs(1)));
    assert!(timer.request_early(now, Span::ZERO), "the regular packet carries it");
    assert_eq!(timer.next(), due);
    let (expiry, now) = run(&mut timer, &PAIR);
    assert_eq!(expiry, Expiry::SendFeedback);
    assert!(timer.clone().request_early(now, Span::ZERO), "the regular packet allows early feedback again");
    assert_eq!(run(&mut timer, &PAIR).0, Expiry::Suppress);
}

#[test]
fn early_feedback_in_a_group_is_dithered_over_half_an_interval_and_skips_one_report() {
    let mut latest: f64 = 0.0;
    for seed in 0..200 {
        let mut timer = Timer::new(avpf(Span::ZERO), Seed(seed).part("early"), Time::ZERO);
        let (_, tp) = run(&mut timer, &GROUP);
        let t_rr = timer.next().since(tp);
        assert!(timer.request_early(tp, Span::secs(9)));
        let early = timer.next();
        let share = early.since(tp).ratio(t_rr);
        assert!(share < 0.5);
        latest = latest.max(share);
        assert_eq!(timer.on_expiry(early, &GROUP), Expiry::SendFeedback);
        assert_eq!(timer.next(), tp + t_rr * 2);
    }
    assert_between(latest, 0.45, 0.5);
}

#[test]
fn feedback_shortly_before_a_report_goes_with_it() {
    let mut timer = Timer::new(avpf(Span::ZERO), Seed(9).part("early"), Time::ZERO);
    run(&mut timer, &GROUP);
    let due = timer.next();
    assert!(timer.request_early(due.before(Span::micros(10)), Span::ZERO));
    assert_eq!(timer.next(), due);
}

#[test]
fn overheard_feedback_that_says_it_all_cancels_ours_and_costs_nothing() {
    let mut timer = Timer::new(avpf(Span::ZERO), Seed(10).part("early"), Time::ZERO);
    let (_, tp) = run(&mut timer, &GROUP);
    let due = timer.next();
    assert!(timer.request_early(tp, Span::secs(9)));
    assert!(timer.next() < due);
    timer.cancel_early();
    assert_eq!(timer.next(), due);
    assert!(timer.request_early(tp, Span::ZERO), "an early packet is still allowed");
}

#[test]
fn without_avpf_feedback_waits_for_the_regular_report() {
    let mut timer = Timer::new(TimerConfig::new(Profile::Asmp, Rate::mbps(1)), Seed(11).part("early"), Time::ZERO);
    let due = timer.next();
    assert!(timer.request_early(at(1), Span::secs(1)));
    assert_eq!(timer.next(), due);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_the_timer_wakes_in_the_future(
        seed: u64, profile in 0..3, pair: bool, spacing in 0u64..3000,
        events in prop::collection::vec((0u8..6, 1u32..300, 40u64..1200), 1..150),
    ) {
        let profile = match profile {
            0 => Profile::Rfc3550,
            1 => Profile::Asmp,
            _ => Profile::Avpf { t_rr_interval: Span::millis(spacing) },
        };
        let config = TimerConfig::new(profile, Rate::mbps(1));
        let config = if pair { config.point_to_point() } else { config };
        let mut timer = Timer::new(config, Seed(seed).part("fuzz"), Time::ZERO);
        let (mut now, mut census, mut leaving) = (Time::ZERO, PAIR, false);
        for (event, members, size) in events {
            let size = Bytes::new(size);
            match event {
                0 if !leaving => {
                    leaving = timer.leave(now, size, false, &census) != Leave::Now;
                    if !leaving {
                        return Ok(());
                    }
                }
                1 => timer.on_rtcp(size),
                2 => census.members = census.members.max(members),
                3 => {
                    census.members = census.members.min(members);
                    timer.on_bye(now, size, &census);
                }
                4 => {
                    timer.request_early(now, Span::millis(size.get()));
                }
                _ => {}
            }
            if timer.next() == Time::NEVER {
                return Ok(());
            }
            // A departure can make a report due immediately, never in the past.
            prop_assert!(timer.next() >= now);
            now = timer.next();
            timer.on_expiry(now, &census);
            prop_assert!(timer.next() > now || timer.next() == Time::NEVER);
        }
    }
}
