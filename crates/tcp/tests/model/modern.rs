//! BBR, DCTCP and Prague: states, estimates, and their effect on a path.

use crate::path::{Path, Run, assert_between, at};
use steadycast_tcp::{Config, Congestion, Ecn, Preset};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const RATE: Rate = Rate::mbps(20);
const DELAY: Span = Span::millis(20);
/// The BDP of the path above: 20 Mb/s for 40 ms in segments of 1500 B.
const BDP: f64 = 66.7;

fn config(congestion: Congestion) -> Config {
    Config::new(Preset::Linux, congestion)
}

fn run(congestion: Congestion, path: &Path, seconds: f64) -> Run {
    let mut run = Run::new(&config(congestion), path);
    run.until(at(seconds));
    run
}

/// Returns the changes of state with their times.
fn changes(run: &Run) -> Vec<(f64, &'static str)> {
    let mut all: Vec<(f64, &'static str)> = vec![];
    for (now, state, ..) in &run.states {
        if all.last().is_none_or(|(_, last)| last != state) {
            all.push((now.since(Time::ZERO).as_secs_f64(), state));
        }
    }
    all
}

/// Returns the segments per second that are sent from `from` on.
fn rate(run: &Run, from: f64) -> f64 {
    let sent = run.sent.iter().filter(|d| d.at >= at(from)).count();
    sent as f64 / (run.now.since(at(from)).as_secs_f64())
}

#[test]
fn startup_ends_three_rounds_after_the_rate_stops_growing_and_drain_empties_the_queue() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1] {
        let run = run(congestion, &Path::new(RATE, DELAY, 1000), 3.0);
        let all = changes(&run);
        let names: Vec<_> = all.iter().map(|(_, state)| *state).take(2).collect();
        assert_eq!(names, ["startup", "drain"], "{congestion}");
        // After the handshake 10 segments are sent, and twice as many in each round. The fourth round reaches the
        // path's rate, at most an eighth of a second later. Three rounds without growth follow, of 40 ms and the
        // queue's delay: up to 2.885 windows, 115 ms. 0.2 + 3 × 0.04 … 0.29 + 3 × 0.115.
        assert_between(all[1].0, 0.32, 0.63);
        let before = run.states.iter().filter(|(now, ..)| now.since(Time::ZERO).as_secs_f64() < all[1].0);
        let most = before.map(|s| s.3).max().unwrap_or_default();
        assert_between(f64::from(most), 1.5 * BDP, 3.2 * BDP);
        let after = run.states.iter().find(|s| s.1 != "startup" && s.1 != "drain").expect("Drain ends");
        assert_between(f64::from(after.3), 0.5 * BDP, 1.2 * BDP);
        assert_eq!(run.sender.retransmitted, 0);
    }
}

#[test]
fn the_round_trip_is_probed_every_five_seconds_by_version_3_and_every_ten_by_version_1() {
    for (congestion, interval) in [(Congestion::Bbr, 5.0), (Congestion::Bbr1, 10.0)] {
        let run = run(congestion, &Path::new(RATE, DELAY, 1000), 60.0);
        let probes: Vec<f64> = changes(&run).iter().filter(|(_, s)| *s == "probe-rtt").map(|(t, _)| *t).collect();
        assert_between(probes.len() as f64, (60.0 / interval) * 0.75, 60.0 / interval);
        for pair in probes.windows(2) {
            assert_between(pair[1] - pair[0], interval, interval * 1.15);
        }
        let low = |share: f64| {
            let low = run.states.iter().filter(|s| s.1 == "probe-rtt").map(|s| s.3).min();
            f64::from(low.unwrap_or_default()) / BDP <= share
        };
        // Half the window, or four segments.
        assert!(low(if congestion == Congestion::Bbr { 0.5 } else { 4.0 / BDP }));
    }
}

#[test]
fn version_3_goes_through_its_four_phases_in_their_order() {
    let run = run(Congestion::Bbr, &Path::new(RATE, DELAY, 1000), 30.0);
    let all: Vec<_> = changes(&run).into_iter().map(|(_, state)| state).collect();
    let mut cycles = 0;
    for pair in all.windows(2) {
        let fits = matches!(
            (pair[0], pair[1]),
            ("startup", "drain")
                | ("drain" | "probe-bw-up", "probe-bw-down")
                // If the segments in flight are low already, the phase between ends with the acknowledgment that
                // starts it.
                | ("drain" | "probe-bw-up", "probe-bw-cruise")
                | ("probe-bw-down" | "probe-rtt", "probe-bw-cruise")
                | ("probe-bw-down" | "probe-bw-cruise", "probe-bw-refill")
                | ("probe-bw-refill", "probe-bw-up")
                | (_, "probe-rtt")
        );
        assert!(fits, "{pair:?}");
        cycles += u32::from(pair[1] == "probe-bw-up");
    }
    // One probe every 2 to 3 s, plus its duration.
    assert_between(f64::from(cycles), 7.0, 15.0);
}

/// The queue by the draft's gains, in windows and round trips of the path. A probe lasts three rounds at 1.25 · 0.99
/// of the rate. A round is as long as the round trip of its first packet: 1 + 1.2375 + 1.531 = 3.77 round trips in
/// all, after which 1.2375³ = 1.895 windows are in flight. At 0.9 · 0.99 of the rate the queue then shrinks by 0.109
/// windows per round trip. It holds more than 0.4 windows for 0.495 / 0.2375 + 0.495 / 0.109 = 6.6 round trips per
/// probe, a tenth of the 66 between two probes. ProbeRTT shortens some.
#[test]
fn version_3_keeps_the_queue_above_two_fifths_of_a_window_for_as_long_as_its_gains_say() {
    let run = run(Congestion::Bbr, &Path::new(RATE, DELAY, 1000), 60.0);
    let most = |from: f64, to: f64| {
        let all = run.states.iter().filter(|s| s.0 >= at(from) && s.0 < at(to));
        all.map(|s| f64::from(s.3)).fold(0.0, f64::max) / BDP
    };
    let all = changes(&run);
    let whole = |pair: &&[(f64, &str)]| pair[0].0 > 10.0 && pair[0].1 == "probe-bw-up" && pair[1].1 == "probe-bw-down";
    let probes: Vec<_> = all.windows(2).filter(whole).collect();
    assert_between(probes.len() as f64, 8.0, 20.0);
    for pair in probes {
        let (from, to) = (pair[0].0, pair[1].0);
        assert_between((to - from) / 0.04, 3.77 - 0.1, 3.77 + 0.2);
        assert_between(most(from, to + 0.04), 1.895 - 0.05, 1.895 + 0.1);
    }
    let late = || run.waits.iter().filter(|(t, _)| *t >= at(10.0));
    let above = late().filter(|(_, wait)| wait.as_secs_f64() > 0.4 * 0.04).count() as f64 / late().count() as f64;
    assert_between(above, 0.05, 0.1);
}

#[test]
fn bbr_fills_the_path_alone_and_its_rate_is_that_of_the_path() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1] {
        for mbps in [4, 20] {
            let path = Path::new(Rate::mbps(mbps), DELAY, 1000);
            let run = run(congestion, &path, 40.0);
            let link = mbps as f64 * 1e6 / 12e3;
            assert_between(rate(&run, 10.0) / link, 0.95, 1.005);
        }
    }
}

#[test]
fn version_1_ignores_loss_and_version_3_bears_little_of_it() {
    let path = Path { loss: 0.01, ..Path::new(RATE, DELAY, 1000) };
    let link = 20e6 / 12e3;
    // With 67 segments in flight two losses are more than 2 %, which occurs in every fifth round. Version 3 then
    // reduces its rate, but stays far above Reno's 1.22/√p per round trip, which is 18 % of this path.
    assert_between(rate(&run(Congestion::Bbr, &path, 40.0), 10.0) / link, 0.5, 1.02);
    assert_between(rate(&run(Congestion::Sack, &path, 40.0), 10.0) / link, 0.1, 0.3);
    assert_between(rate(&run(Congestion::Bbr1, &path, 40.0), 10.0) / link, 0.85, 1.02);
    let path = Path { loss: 0.08, ..path };
    let (three, one) =
        (rate(&run(Congestion::Bbr, &path, 40.0), 10.0), rate(&run(Congestion::Bbr1, &path, 40.0), 10.0));
    assert_between(one / link, 0.7, 1.02);
    assert!(three < 0.7 * one, "{three} of {one}");
}

#[test]
fn dctcps_and_pragues_windows_are_two_over_p() {
    // From 25 ms on Prague equals DCTCP at any RTT; its RTT independence is for shorter ones.
    for (congestion, way) in [(Congestion::Dctcp, 15), (Congestion::Prague, 15), (Congestion::Prague, 40)] {
        for p in [0.02, 0.1] {
            let path = Path { mark: p, ..Path::new(Rate::mbps(1000), Span::millis(way), 10_000) };
            // Fractions of a segment, as in the formula: with whole ones a small window is cut by less.
            let config = Config { whole_window: false, ..config(congestion) };
            let mut run = Run::new(&config, &path);
            run.until(at(60.0));
            let late = || run.windows.iter().zip(&run.states).filter(|(w, _)| w.0 >= at(20.0));
            let n = late().count() as f64;
            let alpha = late().map(|(_, s)| s.2).sum::<f64>() / n;
            assert_between(alpha / p, 0.85, 1.15);
            // A segment, or 1 − p, is added per round trip. w·p/2 is subtracted at a mark, which occurs 1/p segments
            // plus a round trip later: x = w·p/2 is at least 1 − p, and at most 1 + 1/2x, which is 1.37.
            let window = late().map(|(w, _)| w.1).sum::<f64>() / n;
            assert_between(window * p / 2.0, 1.0 - p, 1.37);
            assert_eq!(run.sender.retransmitted, 0);
        }
    }
}

#[test]
fn prague_and_dctcp_keep_a_marking_step_filled_and_little_more() {
    for congestion in [Congestion::Dctcp, Congestion::Prague] {
        let path = Path { mark_above: Span::millis(5), ..Path::new(RATE, DELAY, 1000) };
        let run = run(congestion, &path, 60.0);
        assert_between(rate(&run, 20.0) / (20e6 / 12e3), 0.9, 1.005);
        let mut waits: Vec<Span> = run.waits.iter().filter(|(t, _)| *t >= at(20.0)).map(|(_, w)| *w).collect();
        waits.sort_unstable();
        let p99 = waits[waits.len() * 99 / 100].as_secs_f64();
        assert_between(p99, 0.002, 0.012);
        assert_eq!(run.sender.retransmitted, 0);
    }
}

#[test]
fn prague_sends_ect1_and_dctcp_ect0_and_neither_marks_a_repair_as_capable() {
    for (congestion, ecn) in
        [(Congestion::Dctcp, Ecn::Ect0), (Congestion::Prague, Ecn::Ect1), (Congestion::Bbr, Ecn::NotEct)]
    {
        let path = Path { drop: vec![(50, 1)], ..Path::new(RATE, DELAY, 1000) };
        let run = run(congestion, &path, 1.0);
        assert!(run.sent.iter().any(|d| d.segment.retransmission));
        for departure in &run.sent {
            let plain = departure.segment.retransmission || departure.segment.seq == 0;
            assert_eq!(departure.segment.ecn, if plain { Ecn::NotEct } else { ecn }, "{congestion}");
        }
    }
}

#[test]
fn a_loss_halves_prague_and_dctcp_once() {
    for congestion in [Congestion::Dctcp, Congestion::Prague] {
        let path = Path { drop: vec![(3000, 1), (3002, 1)], ..Path::new(Rate::mbps(100), DELAY, 10_000) };
        let mut config = config(congestion);
        config.initial_ssthresh = Some(100);
        let mut run = Run::new(&config, &path);
        run.until(at(4.0));
        let before = run.windows.iter().rev().find(|w| w.2 == 100.0).expect("slow start's threshold").1;
        let after = run.windows.iter().find(|w| w.2 != 100.0).expect("a reduction").2;
        assert_between(after / before, 0.45, 0.55);
        assert_eq!((run.sender.fast_recoveries(), run.sender.timeouts), (1, 0));
    }
}

#[test]
fn a_paced_sender_never_lets_more_than_a_burst_leave_at_once() {
    for (congestion, burst) in [(Congestion::Bbr, 2), (Congestion::Bbr1, 2), (Congestion::Prague, 1)] {
        // From the second window on: the first is paced by the RTT of the handshake.
        let run = run(congestion, &Path::new(Rate::mbps(8), DELAY, 1000), 20.0);
        let mut most = 0;
        let mut at_once = (Time::ZERO, 0);
        for departure in run.sent.iter().filter(|d| d.at > at(5.0)) {
            at_once = if departure.at == at_once.0 { (at_once.0, at_once.1 + 1) } else { (departure.at, 1) };
            most = most.max(at_once.1);
        }
        assert_eq!(most, burst, "{congestion}");
    }
}

#[test]
fn a_lost_tail_and_a_dead_path_are_overcome_by_time_outs() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1, Congestion::Dctcp, Congestion::Prague] {
        // The last three of 400 segments are lost twice.
        let drop = vec![(398, 2), (399, 2), (400, 2)];
        let mut config = config(congestion);
        config.bytes = Some(Bytes::new(400 * 1448));
        let mut run = Run::new(&config, &Path { drop, ..Path::new(RATE, DELAY, 1000) });
        run.until(at(60.0));
        assert!(run.sender.completed.is_some(), "{congestion}: {:?}", run.last_limit);
        assert!(run.sender.timeouts >= 1);
        // A whole window and its retransmissions are lost: 300 to 360, four times each.
        let drop = (300..360).map(|n| (n, 4)).collect();
        let mut run = Run::new(&config, &Path { drop, ..Path::new(RATE, DELAY, 1000) });
        run.until(at(120.0));
        assert!(run.sender.completed.is_some(), "{congestion}: {:?}", run.last_limit);
        assert_eq!(run.receiver.distinct_segments, 401);
    }
}

#[test]
fn after_a_time_out_bbr_comes_back_to_the_paths_rate() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1] {
        // More than a window is lost, so no acknowledgment reveals it.
        let drop = (3000..3200).map(|n| (n, 1)).collect();
        let run = run(congestion, &Path { drop, ..Path::new(RATE, DELAY, 1000) }, 25.0);
        assert!(run.sender.timeouts >= 1, "{congestion}");
        assert_between(rate(&run, 15.0) / (20e6 / 12e3), 0.93, 1.005);
    }
}

#[test]
fn a_reordering_path_costs_bbr_little() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1] {
        // One segment of 97 is overtaken by six and declared lost: a loss rate of 1 % for version 3.
        let late = (100..40_000).step_by(97).map(|n| (n, Span::millis(4))).collect();
        let least = if congestion == Congestion::Bbr { 0.5 } else { 0.85 };
        let run = run(congestion, &Path { late, ..Path::new(RATE, DELAY, 1000) }, 20.0);
        assert_between(rate(&run, 10.0) / (20e6 / 12e3), least, 1.03);
        assert_eq!(run.sender.timeouts, 0);
    }
}

#[test]
fn an_application_that_writes_little_does_not_lower_bbrs_estimate() {
    for congestion in [Congestion::Bbr, Congestion::Bbr1] {
        let mut config = config(congestion);
        config.bytes = Some(Bytes::new(3000 * 1448));
        let mut run = Run::new(&config, &Path::new(RATE, DELAY, 1000));
        run.until(at(10.0));
        let (full, began) = (run.sender.pacing().expect("it paces"), run.now);
        // 4 segments every 100 ms for 3 s: 40 segments per second of 1667.
        for step in 1..=30 {
            run.now = began + Span::millis(100 * step);
            run.offer(4);
            run.until(began + Span::millis(100 * step + 90));
            assert!(run.sender.completed.is_some());
        }
        let low = run.sender.pacing().expect("it paces");
        // Between the lowest and the highest pacing gain of two phases.
        assert_between(low / full, 0.7, 1.45);
    }
}

#[test]
fn the_same_seed_draws_the_same_probes_and_another_one_others() {
    let path = Path::new(RATE, DELAY, 1000);
    let of = |seed| {
        let mut run = Run::new(&Config { draws: Seed(seed), ..config(Congestion::Bbr) }, &path);
        run.until(at(20.0));
        changes(&run)
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}
