//! Frames as streams over a link with a queue, in virtual time: connections of quinn and of noq, through their protocol
//! crates, which take the time as an argument.
//!
//! The bounds were written before the first run. They are for the 30 s after the first 10 s. Frames have at least 0.75
//! of the link's rate, of which headers take 7 %. The 95th percentile of the frames' delay is at most the sum of the
//! propagation delay, 40 ms of pacing, and a part of the queueing delay: a quarter of the queue of 500 ms, or the whole
//! queue of 100 ms. On the link with loss, 1.25 round trips for a retransmission are added.
//!
//! Changed after the first run: quinn's window is 1.25 times the rate times the round-trip time, and two packets. Without
//! the additional quarter, frames on the link with loss waited 1.1 s in the sender. On that link the bounds apply to the
//! mean of 120 seeds, because single seeds differ widely. There the bounds on the rate had moved to 0.65 (quinn) and 0.7
//! (noq) of the link, and are the first ones again.

mod world;

use std::time::Duration;
use steadycast_remote::Seed;
use world::{LONG, LOSSY, Noq, Outcome, Path, Quinn, over};

const SEEDS: u8 = 120;

/// Returns the mean of many seeds, because the positions of losses are random.
fn mean(run: impl Fn(u8) -> Outcome) -> Outcome {
    let all: Vec<Outcome> = (1..=SEEDS).map(run).collect();
    Outcome {
        bps: all.iter().map(|one| one.bps).sum::<f64>() / f64::from(SEEDS),
        delay: all.iter().map(|one| one.delay).sum::<Duration>() / u32::from(SEEDS),
        lost: all.iter().map(|one| one.lost).sum::<u64>() / u64::from(SEEDS),
    }
}

/// Checks the rate as a share of the link's rate, and the delay in milliseconds.
fn check(path: &Path, outcome: &Outcome, share: f64, delay: u64) {
    println!("{outcome:?}");
    assert!(outcome.bps > share * path.bps as f64 && outcome.bps < path.bps as f64, "{outcome:?}");
    assert!(outcome.delay < Duration::from_millis(delay), "{outcome:?}");
    assert!(path.loss == 0.0 || outcome.lost > 30, "{outcome:?}");
}

#[test]
fn quinn_keeps_a_long_queue_short() {
    check(&LONG, &over::<Quinn>(&LONG, 1, |_| ()), 0.75, 50 + 40 + 125);
}

#[test]
fn noq_keeps_a_long_queue_short() {
    check(&LONG, &over::<Noq>(&LONG, 1, |_| ()), 0.75, 50 + 40 + 125);
}

#[test]
fn quinn_fills_a_link_with_loss() {
    check(&LOSSY, &mean(|seed| over::<Quinn>(&LOSSY, seed, |_| ())), 0.75, 25 + 40 + 100 + 200);
}

#[test]
fn noq_fills_a_link_with_loss() {
    check(&LOSSY, &mean(|seed| over::<Noq>(&LOSSY, seed, |_| ())), 0.75, 25 + 40 + 100 + 200);
}

/// Draws links without loss: 1 to 8 Mb/s, 10 to 120 ms one way, 60 to 300 ms of queue.
fn drawn(mut between: impl FnMut(f64, f64) -> f64, jitter: bool, prompt: bool) -> Path {
    Path {
        bps: (between(1.0, 8.0) * 1e6) as u64,
        way: Duration::from_secs_f64(between(0.01, 0.12)),
        queue: Duration::from_secs_f64(between(0.06, 0.3)),
        loss: 0.0,
        controller: "steady",
        spikes: false,
        jitter,
        prompt,
    }
}

/// Returns the frames' rate divided by the link's, for quinn and for noq.
fn shares(path: &Path, seed: u8) -> [f64; 2] {
    let outcomes = [over::<Quinn>(path, seed, |_| ()), over::<Noq>(path, seed, |_| ())];
    println!("{:.2} Mb/s, {:?}: {outcomes:?}", path.bps as f64 / 1e6, path.way);
    outcomes.map(|outcome| outcome.bps / path.bps as f64)
}

/// The bound, half of the link's rate in frames, was written before the run.
#[test]
fn both_leave_their_floor_on_links_that_are_drawn() {
    let mut chance = Seed(7).part("links");
    for seed in 1..=12 {
        let shares = shares(&drawn(|low, high| chance.between(low, high), false, true), seed);
        assert!(shares.iter().all(|share| *share > 0.5), "{shares:?}");
    }
}

/// A receiver without the extension acknowledges every second packet, and a single one 25 ms late. The bounds were set
/// on other draws: on average 0.8 of the link's rate, and a third on each link. With this delay counted as queueing
/// delay, noq had 0.02 on two of 150 links, and quinn 0.28.
#[test]
fn a_receiver_that_delays_acknowledgements_costs_little() {
    let mut chance = Seed(8).part("links");
    let each: Vec<[f64; 2]> = (1..=40)
        .map(|seed| shares(&drawn(|low, high| chance.between(low, high), seed % 2 == 0, false), seed))
        .collect();
    for stack in 0..2 {
        let shares = each.iter().map(|shares| shares[stack]);
        assert!(shares.clone().all(|share| share > 0.33), "{each:?}");
        assert!(shares.sum::<f64>() > 0.8 * each.len() as f64, "{each:?}");
    }
}

/// The bound was set on other draws, on which `gcc` had 0.76 and the others more.
#[test]
fn no_controller_depends_on_immediate_acknowledgements() {
    for controller in ["tfrc", "multfrc", "eaio-tfrc", "asmp", "tfmcc", "nada", "gcc", "steady"] {
        let means = [true, false].map(|prompt| {
            let mut chance = Seed(10).part("links");
            let each = (1..=8).map(|seed| {
                let drawn = drawn(|low, high| chance.between(low, high), seed % 2 == 0, prompt);
                shares(&Path { controller, ..drawn }, seed)
            });
            each.fold([0.0; 2], |sum, shares| [sum[0] + shares[0], sum[1] + shares[1]])
        });
        let ratios = [means[1][0] / means[0][0], means[1][1] / means[0][1]];
        println!("{controller}: with delayed acknowledgements {ratios:.2?} of the rate");
        assert!(ratios.iter().all(|ratio| *ratio > 0.65), "{controller}: {ratios:?}");
    }
}

/// Retransmissions do not make frames wait in the sender. On each of eight drawn links with 3 % loss, the 95th
/// percentile of a frame's delay is at most three round trips, the queue, and 100 ms. The bound was written before the
/// run, for the mean of the links. With a pacer at exactly the rate, noq met it on average, but had up to 1.5 times the
/// bound on single links.
#[test]
fn frames_do_not_wait_behind_retransmissions() {
    for controller in ["tfrc", "multfrc", "eaio-tfrc", "asmp", "tfmcc", "nada", "gcc", "steady"] {
        let mut chance = Seed(11).part("links");
        for seed in 1..=8 {
            let path = Path { controller, loss: 0.03, ..drawn(|low, high| chance.between(low, high), true, true) };
            let most = 6 * path.way + path.queue + Duration::from_millis(100);
            let delays = [over::<Quinn>(&path, seed, |_| ()), over::<Noq>(&path, seed, |_| ())].map(|one| one.delay);
            println!("{controller}: quinn {:.2?}, noq {:.2?}, the bound is {most:.2?}", delays[0], delays[1]);
            assert!(delays.iter().all(|delay| *delay <= most), "{controller}, link {seed}: {delays:?}, {most:?}");
        }
    }
}

/// 10 Mb/s, of which the controller may use 4 Mb/s, with a delay spike for one packet in 14, in both directions. The
/// bounds, set after the first runs, are for the mean of four seeds: 2.4 Mb/s, and 200 ms for frames, which covers a
/// spike of 140 ms. Without the longest round trip in the window, frames waited in the sender for 1.8 s.
#[test]
fn both_send_through_the_delay_spikes_of_wi_fi() {
    let (bps, queue) = (10_000_000, Duration::from_millis(250));
    let path = Path {
        bps,
        way: Duration::from_millis(1),
        queue,
        loss: 0.0,
        controller: "steady",
        spikes: true,
        jitter: true,
        prompt: true,
    };
    for (stack, run) in [("quinn", over::<Quinn> as fn(_, _, _) -> _), ("noq", over::<Noq>)] {
        let outcomes: Vec<Outcome> = (1..=4).map(|seed| run(&path, seed, |_: &_| ())).collect();
        let rate = outcomes.iter().map(|one| one.bps).sum::<f64>() / 4.0;
        let delay = outcomes.iter().map(|one| one.delay).sum::<Duration>() / 4;
        println!("{stack}: {:.2} Mb/s, {delay:?}", rate / 1e6);
        assert!(rate > 2.4e6 && delay < Duration::from_millis(200), "{stack}: {outcomes:?}");
    }
}
