//! Estimates the network path from a call: capacity, queue and losses. If a value is unknown, gives the reason.
//!
//! If two packets wait behind each other at the bottleneck, the time between their arrivals is the second packet's
//! service time. A sequence of such packets is called a train. Trains show the capacity at any sending rate (Dovrolis,
//! Ramanathan, Moore: Packet-dispersion techniques and a capacity-estimation methodology, ToN 12(6), 2004). If cross
//! traffic is between the packets, trains show only the call's share of the capacity.

use crate::batches;
use crate::call::{Call, Fate, Unknown};
use crate::clock;
use crate::delay_steps::{Axis, MOST_DRIFT, edge_at, lasting_steps, lower_hull};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};

/// Length of a bin in seconds.
pub(crate) const BIN_S: f64 = 0.5;
/// Minimum total duration of the trains in a bin, in seconds. With less, the capacity of the bin is unknown.
const LEAST_TRAINS_S: f64 = 0.010;
/// Minimum number of packets in a train.
const LEAST_PACKETS: usize = 4;
/// Minimum duration of a train in seconds, if there is no jitter behind the queue.
const LEAST_S: f64 = 0.004;
/// Minimum duration of a train in seconds, if there is jitter behind the queue.
const LEAST_JITTERED_S: f64 = 0.020;
/// Half of the length, in seconds, of the window over which the minimum delay is taken. This minimum is the delay of an
/// empty queue.
const BASE_S: usize = 15;
/// Length of the windows that are searched for cross traffic, in seconds.
const WINDOW_S: f64 = 5.0;
/// Minimum time between two steps of the delay, in seconds. Steps that are closer together can't be distinguished from
/// cross traffic.
const LEVEL_S: f64 = 0.5;
/// Minimum number of delay steps for which [`too_many`] checks intervals and sizes. The checks are needed because
/// several steps may be found as a single step with the sum of their sizes, if they are small or close together.
const SEVERAL_STEPS: usize = 3;
/// Minimum mean time between steps of the delay, in seconds. It applies from [`SEVERAL_STEPS`] steps on.
const LEAST_BETWEEN_STEPS_S: f64 = 4.0;
/// Minimum size of a step of the delay, in seconds. It applies from [`SEVERAL_STEPS`] steps on.
const LEAST_OF_SEVERAL_S: f64 = 0.05;
/// The capacity from trains during which the delay stepped is used only if it differs from the capacity of other trains
/// by at most this fraction.
const NEAR: f64 = 0.1;
/// A window of the call, or a part of it, has no cross traffic if the mean rate of the trains is at least this fraction
/// of the [`mode`] of their rates.
const ALONE: f64 = 0.9;
/// [`mark_shared`] marks a window of the call only if the mean rate of its trains is below this fraction of the
/// [`mode`] of their rates. The longest service times are left out ([`without_steps`]). The fraction is lower than
/// [`ALONE`], because a step of the delay may lower the mean slightly.
const SHARED_PART: f64 = 0.8;
/// Maximum share of packets with unknown arrivals. With more, trains and queues are not analysed.
const MOST_UNKNOWN: f64 = 0.1;
/// Minimum share of bins whose capacity is known. With fewer, the path's capacity counts as unknown.
const LEAST_KNOWN: f64 = 0.4;

/// A rate with its confidence interval. The interval is from the 5th to the 95th percentile of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The lower end of the confidence interval.
    pub low: Rate,
    /// The estimated rate.
    pub rate: Rate,
    /// The upper end of the confidence interval.
    pub high: Rate,
}

/// Values for half a second of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// The rate at which packets left.
    pub sent: Rate,
    /// Rate of the packets that left in this bin, without the packets that were lost.
    pub arrived: Rate,
    /// Number of packets that left in this bin and whose fate is known.
    pub packets: u32,
    /// How many of these `packets` were lost. It is `None` if a part of the recording is missing.
    pub lost: Option<u32>,
    /// How many of the lost packets were lost at random (see [`Losses`]).
    pub lost_by_chance: u32,
    /// Mean and longest queueing delay. It is `None` if no packet with known times arrived.
    pub delay: Option<(Span, Span)>,
    /// Capacity of the path. It is `None` if packets did not wait for each other.
    pub capacity: Option<Band>,
    /// Highest rate at which the queue did not grow. It is a lower bound of the capacity.
    pub at_least: Option<Rate>,
    /// Two rates that are set if cross traffic or fast changes of the capacity are detected in the five seconds around
    /// this bin. The first is the rate of packets of the call that followed each other directly. The second is the
    /// call's share of the first rate. The capacity is then unknown.
    pub shared: Option<(Rate, Rate)>,
}

/// Which traffic was in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Only the call's packets were in the queue.
    Alone,
    /// Only the call's packets were in the queue. Delays vary behind the queue.
    Jittered,
    /// Cross traffic was in the queue, or the capacity changed too fast to be measured.
    Shared,
    /// It is unknown which traffic was in the queue, because the minimum delay changed. The cause may be cross traffic,
    /// a change of route, or a clock that was set.
    Changing,
    /// It is unknown which traffic was in the queue. Too few packets waited, or their times do not show what they
    /// waited for.
    Unseen,
}

/// The size of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Largest backlog in the queue.
    pub holds: Bytes,
    /// Whether losses show that the queue was full. If so, `holds` is the queue's limit.
    pub full: bool,
}

/// Random losses: losses that are not explained by a full queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Share of packets that were lost at random.
    pub chance: f64,
    /// The mean length of a loss burst, in packets.
    pub run: f64,
}

/// The path of a call, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Beginning of the first of `bins`.
    pub begin: Time,
    /// Values for each half second of the call.
    pub bins: Vec<Bin>,
    /// 95th percentile of the queueing delays. It is `None` if no delay is known.
    pub delay: Option<Span>,
    /// Median jitter behind the queue. It is 0 unless `verdict` is [`Verdict::Jittered`].
    pub jitter: Span,
    /// Which traffic was in the queue.
    pub verdict: Verdict,
    /// Sizes of the steps that were removed from the delays. If the call was not alone in the queue, other traffic may
    /// have caused them, and then the delays are too short.
    pub removed_steps: Vec<Span>,
    /// Capacity and the call's share of it. It is set if there was cross traffic, and packets of the call nevertheless
    /// followed each other directly.
    pub shared: Option<(Rate, Rate)>,
    /// Number of bins with a known capacity, as a share of the bins with packets.
    pub known: f64,
    /// Drift of the receiver's clock as a fraction. It is positive if this clock is faster than the sender's. It is
    /// `None` if the drift is unknown.
    pub drift: Option<f64>,
    /// Size of the queue, and whether it was full.
    pub queue: Queue,
    /// Losses that a full queue does not explain.
    pub losses: Losses,
    /// When the delay of an empty queue changed, in seconds since `begin`. The route changed, or a clock was set.
    pub routes: Vec<u32>,
    /// Share of packets that arrived after more than three packets that left later.
    pub late: f64,
    /// Why the path is unknown. It is empty if the path is known.
    pub refusals: Vec<String>,
}

/// When a packet left the bottleneck queue. The delay of an empty queue is subtracted, and the time is on the sender's
/// clock.
#[derive(Clone, Copy, PartialEq)]
enum Exit {
    /// The exit time in seconds.
    At(f64),
    /// The exit time in seconds of a packet whose departure from the sender is unknown. It is kept because other
    /// packets may have waited for this packet.
    Undated(f64),
    Lost,
    /// The packet arrived, but its exit time is unknown.
    Untimed,
    /// It is unknown whether the packet arrived, so the packet is not counted.
    Unknown,
    /// The packet was lost, or the recording is unreadable or has a gap there.
    LostOrUnread,
    /// The packet was lost on the path, or dropped by the capturing program.
    LostOrDropped,
}

/// A packet: its departure in seconds, its size in bytes, and its exit from the bottleneck queue.
#[derive(Clone, Copy)]
struct Point {
    left: f64,
    size: f64,
    exit: Exit,
}

impl Point {
    fn out(&self) -> Option<f64> {
        match self.exit {
            Exit::At(at) | Exit::Undated(at) => Some(at),
            _ => None,
        }
    }

    /// Whether it is unknown when this packet left the queue, or whether it left the queue at all.
    fn is_unknown(&self) -> bool {
        matches!(self.exit, Exit::Untimed | Exit::Unknown | Exit::LostOrUnread | Exit::LostOrDropped)
    }

    fn arrives_earlier(&mut self, by: f64) {
        if let Exit::At(at) | Exit::Undated(at) = &mut self.exit {
            *at -= by;
        }
    }

    fn delay(&self) -> Option<f64> {
        match self.exit {
            Exit::At(at) => Some(at - self.left),
            _ => None,
        }
    }
}

/// A packet that waited behind the previous packet: its exit time in seconds, its size in bytes, and its service time
/// in seconds.
#[derive(Clone, Copy)]
struct Pair {
    at: f64,
    size: f64,
    took: f64,
}

impl Path {
    /// Estimates the path of a call.
    ///
    /// `beside` means that the caller knows of cross traffic. Then the capacity is the rate at which packets of the
    /// call directly followed each other.
    pub fn of(call: &Call, beside: bool) -> Self {
        let begin = call.packets.first().map_or(Time::from_nanos(0), |packet| packet.left);
        let Placed { mut points, drift, routes, moved } = Placed::of(call, begin, beside);
        points.sort_by(|a, b| a.left.total_cmp(&b.left));
        let (left_every, every) = (call.every.0.as_secs_f64(), call.every.1.as_secs_f64());
        let margin = (1.5 * left_every.max(every)).max(if left_every.max(every) > 0.5e-3 { 1.5e-3 } else { 0.5e-3 });
        let trains = trains(&points, None, margin);
        let windows = windows(&trains, every);
        let (mut verdict, mut shared) = judged(&windows);
        if verdict == Verdict::Alone && waited(&points, None, &trains, margin) {
            verdict = Verdict::Shared;
        }
        let unknown = points.iter().filter(|point| point.is_unknown()).count() as f64 / points.len().max(1) as f64;
        if unknown > MOST_UNKNOWN {
            // Packets of the call that are missing in the recording look like cross traffic, so there is no verdict.
            (verdict, shared) = (Verdict::Unseen, None);
        }
        let levels = levels(&points);
        let between_steps = self::trains(&points, Some(&levels), margin);
        let survives = || is_shared_between_steps(&points, &levels, between_steps.clone(), margin, every);
        if verdict == Verdict::Shared && !beside && !survives() {
            (verdict, shared) = (Verdict::Changing, None);
        }
        let seconds = points.last().map_or(0.0, |point| point.left);
        let removed: Vec<f64> =
            call.clock_steps.iter().map(|by| by.as_secs_f64()).chain(moved.iter().map(|by| by.abs())).collect();
        let steps = too_many(&removed, seconds);
        // If there is cross traffic, its bursts may have been mistaken for steps. So ignore the number of steps.
        let steps = steps.filter(|_| verdict != Verdict::Shared && !beside);
        if steps.is_some() {
            (verdict, shared) = (Verdict::Changing, None);
        }
        let batch = batch(&points);
        if batch.is_some() {
            // The times between arrivals are the times between batches, not service times. So the trains are useless.
            (verdict, shared) = (Verdict::Unseen, None);
        }
        let least = if verdict == Verdict::Jittered { LEAST_JITTERED_S } else { LEAST_S };
        let mut bins = vec![Bin::default(); (seconds / BIN_S) as usize + 1];
        fill(&mut bins, &points);
        let named = beside && verdict == Verdict::Shared;
        if named {
            between_others(&mut bins, &windows);
        } else if !matches!(verdict, Verdict::Shared | Verdict::Changing) && unknown <= MOST_UNKNOWN && batch.is_none()
        {
            let of = |trains: &[Vec<Pair>]| capacities(bins.len(), trains, least, every, verdict == Verdict::Jittered);
            let (safe, all) = (of(&between_steps), of(&trains));
            for (k, bin) in bins.iter_mut().enumerate() {
                // `safe` leaves out trains during which the delay stepped, but `all` includes them. So use `all` only
                // if it is near the known values of `safe`.
                bin.capacity = safe[k].or(all[k].filter(|band| is_near(&safe, k, band)));
            }
            mark_shared(&mut bins, &windows, &self::windows(&without_steps(trains.clone()), every));
        }
        let active: Vec<&Bin> = bins.iter().filter(|bin| bin.packets > 0).collect();
        let known = active.iter().filter(|bin| bin.capacity.is_some()).count() as f64 / active.len().max(1) as f64;
        let (mut queue, losses, managed) =
            queue(&points, &mut bins, !matches!(verdict, Verdict::Shared | Verdict::Changing));
        // Cross traffic that the caller knows of (`beside`) is assumed to be TCP, which fills the queue to its limit.
        queue.full |= named;
        let managed = managed.filter(|_| !named);
        let mut delays: Vec<f64> = points.iter().filter_map(|point| Some(point.delay()?.max(0.0))).collect();
        delays.sort_by(f64::total_cmp);
        let jitter = if verdict == Verdict::Jittered { jitter(&trains) } else { 0.0 };
        let mut path = Self {
            begin,
            bins,
            delay: delays.get(delays.len() * 95 / 100).map(|delay| Span::from_secs_f64(*delay)),
            jitter: Span::from_secs_f64(jitter),
            verdict,
            removed_steps: removed.into_iter().map(Span::from_secs_f64).collect(),
            shared,
            known,
            drift,
            queue,
            losses,
            routes,
            late: late(&points),
            refusals: Vec::new(),
        };
        let refused = Refused { managed, named, unknown, batch, steps };
        path.refusals = path.refused(&refused);
        path
    }

    fn refused(&self, found: &Refused) -> Vec<String> {
        let &Refused { managed, named, unknown, batch, steps } = found;
        let mut all = Vec::new();
        // Give only the first reason, because each of these reasons alone makes the trains useless.
        if unknown > MOST_UNKNOWN {
            all.push(format!(
                "of {:.0} % of its packets it is not known when they arrived: what they waited for, or others for \
                 them, can't be told",
                unknown * 100.0
            ));
        } else if let Some(batch) = batch {
            all.push(format!(
                "its packets arrived in batches of up to {:.0} ms: what they waited for, or others for them, can't be \
                 told",
                batch * 1e3
            ));
        } else if let Some(steps) = steps {
            all.push(format!(
                "the delay stepped {steps} times, as when a clock is set or the route changes again and again: the \
                 errors of the steps add up in its delays"
            ));
        } else if self.drift.is_none() && !named {
            all.push(
                "the least delay grew or fell during the call: a queue filled and never drained, others filled it or \
                 left it, the route changed or a clock was set again and again, or the two clocks drift apart by more \
                 than 1000 ppm; delays count from the least of the call"
                    .to_owned(),
            );
        } else if self.late > 0.01 {
            all.push(format!(
                "{:.1} % of its packets arrived more than three places late: several ways, or a link that reorders",
                self.late * 100.0
            ));
        } else if self.verdict == Verdict::Changing {
            all.push(
                "the least delay changed, and between its changes its packets waited for nobody else's: others filled \
                 the queue or left it, the link slowed down, the route changed, or a clock was set; the delays contain \
                 these changes"
                    .to_owned(),
            );
        } else if self.verdict == Verdict::Shared && !named {
            all.push(
                "others' packets stood before or between its own, or the capacity or the delays behind it changed as \
                 fast: its trains show its share, not the path"
                    .to_owned(),
            );
        } else if self.known < LEAST_KNOWN {
            all.push(format!(
                "its packets waited for each other in {:.0} % of its half seconds alone: where they don't, nothing \
                 shows the capacity",
                self.known * 100.0
            ));
        } else if self.verdict == Verdict::Unseen {
            all.push("too few of its packets waited to tell whether others shared the queue".to_owned());
        }
        let is_sent = |bin: &&Bin| bin.packets > 0;
        if self.bins.iter().filter(is_sent).all(|bin| bin.lost.is_none()) {
            all.push(
                "a part of the record is missing, so that losses are unknown, and with them the queue's end".to_owned(),
            );
        }
        if let Some(delay) = managed.filter(|_| self.bins.iter().any(|bin| bin.shared.is_some())) {
            all.push(format!(
                "packets were lost when the queue took about {:.0} ms, and other traffic was in the queue for a part \
                 of the call: whether the queue was full is unknown",
                delay * 1e3
            ));
        } else if let Some(delay) = managed {
            all.push(format!(
                "packets were lost when the queue took about {:.0} ms, and it was never full: a managed queue, which \
                 is not modelled",
                delay * 1e3
            ));
        }
        all
    }
}

struct Refused {
    managed: Option<f64>,
    named: bool,
    unknown: f64,
    batch: Option<f64>,
    /// Number of delay steps, if there are too many to trust the delays.
    steps: Option<usize>,
}

/// Whether there is cross traffic even without the longest service times. They are left out because a step of the
/// path's delay causes one long service time, which must not be mistaken for cross traffic.
///
/// `levels` are the delays that were subtracted when `trains` were found.
fn is_shared_between_steps(points: &[Point], levels: &[f64], trains: Vec<Vec<Pair>>, margin: f64, every: f64) -> bool {
    let trains = without_steps(trains);
    judged(&windows(&trains, every)).0 == Verdict::Shared || waited(points, Some(levels), &trains, margin)
}

/// Removes the longest service time in each interval of [`LEVEL_S`]. A step of the delay may have caused it.
fn without_steps(mut trains: Vec<Vec<Pair>>) -> Vec<Vec<Pair>> {
    let longest = longest(&trains);
    for pair in trains.iter_mut().flatten().filter(|pair| longest.get(&level_of(pair)) == Some(&pair.took)) {
        (pair.size, pair.took) = (0.0, 0.0);
    }
    trains
}

fn level_of(pair: &Pair) -> i64 {
    (pair.at / LEVEL_S) as i64
}

/// Returns for each interval of [`LEVEL_S`] the longest service time in seconds. The key is the interval's index.
fn longest(trains: &[Vec<Pair>]) -> BTreeMap<i64, f64> {
    let mut longest: BTreeMap<i64, f64> = BTreeMap::new();
    for pair in trains.iter().flatten() {
        let most = longest.entry(level_of(pair)).or_insert(pair.took);
        *most = most.max(pair.took);
    }
    longest
}

/// Returns for each packet the larger of two delays, in seconds. The first is the minimum delay within [`LEVEL_S`]
/// before the packet, and the second is the minimum delay within [`LEVEL_S`] after it.
///
/// Near a step of the delay, this is the larger of the minimum delays before and after the step.
fn levels(points: &[Point]) -> Vec<f64> {
    let least_before = |points: &mut dyn Iterator<Item = (f64, Option<f64>)>| -> Vec<f64> {
        let mut near: VecDeque<(f64, f64)> = VecDeque::new();
        let mut least = 0.0;
        points
            .map(|(at, delay)| {
                if let Some(delay) = delay {
                    // Remove earlier packets whose delay is not shorter, so that the front is always the minimum.
                    while near.back().is_some_and(|last| last.1 >= delay) {
                        near.pop_back();
                    }
                    near.push_back((at, delay));
                }
                while near.front().is_some_and(|first| (at - first.0).abs() > LEVEL_S) {
                    near.pop_front();
                }
                least = near.front().map_or(least, |first| first.1);
                least
            })
            .collect()
    };
    let of = |point: &Point| (point.left, point.delay());
    let before = least_before(&mut points.iter().map(of));
    let behind = least_before(&mut points.iter().rev().map(of));
    before.iter().zip(behind.iter().rev()).map(|(before, behind)| before.max(*behind)).collect()
}

/// Returns how long packets are held until they are delivered in a batch, in seconds. Returns `None` if this time is at
/// most [`clock::COARSEST`].
fn batch(points: &[Point]) -> Option<f64> {
    let nanos = |seconds: f64| (seconds * 1e9) as i64;
    let times: Vec<(i64, i64)> = points
        .iter()
        .filter_map(|point| point.delay().map(|delay| (nanos(point.left + delay), nanos(point.left))))
        .collect();
    batches::held(&times).filter(|held| *held > clock::COARSEST.as_nanos() as i64).map(|held| held as f64 * 1e-9)
}

/// Returns the number of delay steps if they make the delays unreliable, and `None` otherwise. The delays are
/// unreliable if there are at least [`SEVERAL_STEPS`] steps, and if the steps are frequent or at least one of them is
/// small. `steps` are the sizes of the steps in seconds, and `seconds` is the call's duration.
fn too_many(steps: &[f64], seconds: f64) -> Option<usize> {
    // Allow for an error of 10 %, because the size of a step is not exact.
    let is_short = steps.iter().any(|by| *by < LEAST_OF_SEVERAL_S * 0.9);
    let is_often = steps.len() as f64 * LEAST_BETWEEN_STEPS_S > seconds;
    (steps.len() >= SEVERAL_STEPS && (is_often || is_short)).then_some(steps.len())
}

struct Placed {
    points: Vec<Point>,
    /// Clock drift. It is `None` if the slope of the delays is too large for a clock.
    drift: Option<f64>,
    /// When the delay without a queue changed, in seconds since the beginning of the call. The route changed, or a
    /// clock was set.
    routes: Vec<u32>,
    /// Sizes of the steps that were removed from the delays, in seconds.
    moved: Vec<f64>,
}

impl Placed {
    fn of(call: &Call, begin: Time, beside: bool) -> Self {
        let mut raw: Vec<Point> = call
            .packets
            .iter()
            .map(|packet| {
                let arrived = packet.arrived.map(|at| at.as_nanos() as f64 * 1e-9);
                let exit = match (packet.fate, arrived) {
                    (_, Some(at)) if packet.is_left_known => Exit::At(at),
                    (_, Some(at)) => Exit::Undated(at),
                    (Fate::Lost, _) => Exit::Lost,
                    (Fate::Arrived { .. }, _) => Exit::Untimed,
                    (Fate::Unknown(Unknown::LostOrUnread), _) => Exit::LostOrUnread,
                    (Fate::Unknown(Unknown::LostOrDropped), _) => Exit::LostOrDropped,
                    (Fate::Unknown(Unknown::NoEvidence), _) => Exit::Unknown,
                };
                let left = packet.left.since(begin).as_secs_f64();
                Point { left, size: packet.size.get() as f64, exit }
            })
            .collect();
        let resolution = call.every.0.as_secs_f64() + call.every.1.as_secs_f64();
        let delays_of = |raw: &[Point]| -> Vec<(f64, f64)> {
            raw.iter().filter_map(|point| Some((point.left, point.delay()?))).collect()
        };
        let mut delays = delays_of(&raw);
        let steps: Vec<(f64, f64)> = lasting_steps(&delays, Axis::Departures, resolution)
            .iter()
            .map(|step| (delays[step.index].0, step.seconds))
            .collect();
        let moved = steps.iter().map(|step| step.1).collect();
        if !steps.is_empty() {
            for point in &mut raw {
                let moved = steps.iter().filter(|step| step.0 <= point.left).map(|step| step.1).sum();
                point.arrives_earlier(moved);
            }
            delays = delays_of(&raw);
        }
        let drift = drift(&delays, resolution);
        // If `drift` is `None`, the delays have a slope that is too large for a clock. If the caller knows of cross
        // traffic (`beside`), a growing queue explains the slope, so assume a drift of 0.
        let Some(slope) = drift.or(beside.then_some(0.0)) else {
            // Without a plausible drift, the delay of an empty queue can't be followed over time. So make all delays
            // relative to the minimum delay of the call.
            let least = delays.iter().map(|one| one.1).min_by(f64::total_cmp).unwrap_or(0.0);
            raw.iter_mut().for_each(|point| point.arrives_earlier(least));
            let routes = steps.iter().map(|step| step.0.round() as u32).collect();
            return Self { points: raw, drift: None, routes, moved };
        };
        for point in &mut raw {
            point.arrives_earlier(slope * point.left);
        }
        let seconds = raw.last().map_or(0, |one| one.left as usize) + 1;
        let mut least = vec![f64::INFINITY; seconds];
        for point in &raw {
            if let Some(delay) = point.delay() {
                let second = &mut least[(point.left as usize).min(seconds - 1)];
                *second = second.min(delay);
            }
        }
        let routes = routes(&least);
        let base: Vec<Option<f64>> = (0..seconds).map(|k| floor(&least, &routes, k)).collect();
        for point in &mut raw {
            match base.get(point.left as usize).copied().flatten() {
                Some(floor) => point.arrives_earlier(floor),
                // The exit time can't be computed without the delay of an empty queue, so it is unknown.
                None if point.out().is_some() => point.exit = Exit::Untimed,
                None => {}
            }
        }
        let mut changes: Vec<u32> = steps.iter().map(|step| step.0.round() as u32).chain(routes).collect();
        changes.sort_unstable();
        changes.dedup();
        Self { points: raw, drift, routes: changes, moved }
    }
}

/// Returns the delay of an empty queue in one second of the call. This is the minimum delay within [`BASE_S`] seconds,
/// as long as the route is the same.
fn floor(least: &[f64], routes: &[u32], second: usize) -> Option<f64> {
    let from = routes.iter().rev().find(|at| **at as usize <= second).map_or(0, |at| *at as usize);
    let to = routes.iter().find(|at| **at as usize > second).map_or(least.len(), |at| *at as usize);
    let from = from.max(second.saturating_sub(BASE_S));
    let to = to.min(second + BASE_S + 1);
    least[from..to].iter().copied().filter(|delay| delay.is_finite()).min_by(f64::total_cmp)
}

/// Returns the seconds at which the minimum delay changes by more than 3 ms. The minimum delay has to be nearly
/// constant (within 1 ms) for five seconds before the change and after it.
fn routes(least: &[f64]) -> Vec<u32> {
    // Require a variation of less than 1 ms, because a standing queue varies more within five seconds.
    let level = |part: &[f64]| {
        let low = part.iter().copied().fold(f64::INFINITY, f64::min);
        let high = part.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (high - low < 1e-3).then_some(low)
    };
    let mut found: Vec<u32> = Vec::new();
    for k in 5..least.len().saturating_sub(4) {
        let step = level(&least[k - 5..k]).zip(level(&least[k..k + 5])).map(|(a, b)| (b - a).abs());
        if step.is_some_and(|step| step > 3e-3) {
            found.push(k as u32);
        }
    }
    found
}

/// Estimates the drift of the receiver's clock against the sender's clock. The drift is the slope of the nearest line
/// below all delays (Moon, Skelly, Towsley, INFOCOM 1999). `every` is the resolution of the delays in seconds.
///
/// Returns 0 if too few delays touch the line. If the slope of the line is too large for a clock, returns `None`, or 0
/// if the delays span less than 10 s.
fn drift(delays: &[(f64, f64)], every: f64) -> Option<f64> {
    let mut sorted = delays.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let hull = lower_hull(sorted.iter().copied());
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Some(0.0) };
    let mean = sorted.iter().map(|point| point.0).sum::<f64>() / sorted.len() as f64;
    let edge = edge_at(&hull, mean);
    let slope = edge.map_or(0.0, |edge| edge.1);
    let touches = edge.is_some_and(|(point, slope)| touches(&sorted, point, slope, every));
    // Ignore corners near both ends. The first and the last packet are always corners, even if they waited in the
    // queue.
    let span = last.0 - first.0;
    let inner: Vec<f64> = hull
        .iter()
        .map(|point| point.0)
        .filter(|at| *at > first.0 + 0.05 * span && *at < last.0 - 0.05 * span)
        .collect();
    let wide = inner.first().zip(inner.last()).is_some_and(|(a, b)| b - a > span / 2.0);
    if slope.abs() > MOST_DRIFT {
        return (span < 10.0).then_some(0.0);
    }
    Some(if wide && inner.len() >= 3 || touches { slope } else { 0.0 })
}

/// Whether delays touch the line through `point` in enough seconds of the call. If so, the slope of the line is clock
/// drift, because a queue does not grow linearly for so long.
fn touches(delays: &[(f64, f64)], point: (f64, f64), slope: f64, every: f64) -> bool {
    const CLOSE_S: f64 = 0.5e-3;
    let close = delays.iter().filter(|one| one.1 - point.1 - slope * (one.0 - point.0) <= CLOSE_S + every);
    let seconds: BTreeSet<i64> = close.map(|one| one.0 as i64).collect();
    let span = delays.last().zip(delays.first()).map_or(0.0, |(last, first)| last.0 - first.0);
    let reach = seconds.last().zip(seconds.first()).map_or(0, |(last, first)| last - first);
    seconds.len() as f64 >= (span / 10.0).max(3.0) && reach as f64 > span / 2.0
}

/// Finds trains, which are sequences of packets that waited behind each other. A lost packet or an overtaking packet
/// ends a train. `levels` has a delay in seconds for each packet, which is subtracted.
fn trains(points: &[Point], levels: Option<&[f64]>, margin: f64) -> Vec<Vec<Pair>> {
    let mut all = Vec::new();
    let mut train: Vec<Pair> = Vec::new();
    let mut before: Option<f64> = None;
    for (i, point) in points.iter().enumerate() {
        // Add a margin that covers the resolution of the times.
        let waits = point.left + margin + level_before(levels, i);
        let pair = before.zip(point.out()).filter(|(ahead, out)| waits < *ahead && out >= ahead);
        match pair {
            // It is unknown whether this packet waited. Do not end the train, because later packets may have waited for
            // it.
            _ if matches!(point.exit, Exit::Undated(_)) => {}
            Some((ahead, out)) => train.push(Pair { at: out, size: point.size, took: out - ahead }),
            None => all.push(std::mem::take(&mut train)),
        }
        // Because the departure of an `Undated` packet is unknown, it may have left the queue before the previous
        // packet. So take the later exit time of the two.
        before = match point.exit {
            Exit::Undated(out) => Some(before.map_or(out, |ahead| ahead.max(out))),
            _ => point.out(),
        };
    }
    all.push(train);
    all.retain(|train| train.len() + 1 >= LEAST_PACKETS && train.iter().map(|pair| pair.took).sum::<f64>() >= LEAST_S);
    all
}

fn level_before(levels: Option<&[f64]>, i: usize) -> f64 {
    levels.and_then(|levels| levels.get(i.checked_sub(1)?)).copied().unwrap_or(0.0)
}

/// A part of the call that lasts [`WINDOW_S`] seconds, and what its trains show about cross traffic.
struct Window {
    /// Index of the window in the call.
    place: usize,
    verdict: Verdict,
    /// Whether a single change of the capacity also explains the verdict [`Verdict::Shared`].
    is_step: bool,
    mode: f64,
    mean: f64,
    /// Number of pairs whose rate is within 10 % of the mode.
    at_mode: usize,
}

/// Judges for each window of [`WINDOW_S`] whether there is cross traffic. Successive large packets are combined until
/// their service time is long compared to the clock's resolution.
fn windows(trains: &[Vec<Pair>], every: f64) -> Vec<Window> {
    let mut all: BTreeMap<usize, (Vec<Pair>, Vec<Pair>)> = BTreeMap::new();
    for train in trains {
        let (mut size, mut took) = (0.0, 0.0);
        for pair in train {
            if pair.size <= 800.0 {
                (size, took) = (0.0, 0.0);
                continue;
            }
            let (groups, pairs) = all.entry((pair.at / WINDOW_S) as usize).or_default();
            pairs.push(*pair);
            (size, took) = (size + pair.size, took + pair.took);
            if took >= 12.0 * every && took > 0.0 {
                groups.push(Pair { at: pair.at, size, took });
                (size, took) = (0.0, 0.0);
            }
        }
    }
    let enough = all.iter().filter(|(_, (groups, _))| groups.len() >= 20);
    enough.map(|(place, (groups, pairs))| window(*place, groups, pairs, every)).collect()
}

fn window(place: usize, groups: &[Pair], pairs: &[Pair], every: f64) -> Window {
    let (mean, mode) = mean_and_mode(groups);
    // Cross traffic only makes service times longer. Jitter behind the queue also makes the measured times shorter than
    // the service time, so many short times mean jitter.
    let short = pairs.iter().filter(|pair| pair.took + every < pair.size * 8.0 / (1.15 * mode)).count();
    let at_mode = pairs.iter().filter(|pair| (pair.size * 8.0 / pair.took / mode - 1.0).abs() < 0.1).count();
    let verdict = if short * 10 > pairs.len() {
        Verdict::Jittered
    } else if mean >= ALONE * mode {
        Verdict::Alone
    } else {
        Verdict::Shared
    };
    let is_step = verdict == Verdict::Shared && is_step(groups);
    Window { place, verdict, is_step, mode, mean, at_mode }
}

fn mean_and_mode(groups: &[Pair]) -> (f64, f64) {
    let sum = groups.iter().fold((0.0, 0.0), |sum, group| (sum.0 + group.size, sum.1 + group.took));
    (sum.0 * 8.0 / sum.1, mode(&groups.iter().map(|group| group.size * 8.0 / group.took).collect::<Vec<_>>()))
}

/// Whether a single change of the capacity explains the rates. Splits the groups at the moment at which two constant
/// rates fit best. Both parts then have to look like rates without cross traffic.
fn is_step(groups: &[Pair]) -> bool {
    /// Minimum number of groups in a part. Fewer groups do not show cross traffic.
    const LEAST_GROUPS: usize = 5;
    let logs: Vec<f64> = groups.iter().map(|group| libm::log(group.size / group.took)).collect();
    let (total, n) = (logs.iter().sum::<f64>(), logs.len());
    let mut before = 0.0;
    let mut best = (f64::NEG_INFINITY, 0);
    for (k, log) in logs.iter().enumerate().take(n.saturating_sub(1)) {
        before += log;
        // Sum of squares between the two parts. It is largest where two constant rates fit best.
        let (left, right) = ((k + 1) as f64, (n - k - 1) as f64);
        let between = before * before / left + (total - before) * (total - before) / right;
        if between > best.0 {
            best = (between, k + 1);
        }
    }
    let (before, after) = groups.split_at(best.1);
    [before, after].into_iter().all(|part| {
        part.len() < LEAST_GROUPS || {
            let (mean, mode) = mean_and_mode(part);
            mean >= ALONE * mode
        }
    })
}

/// Returns the highest rate at which the density of the rates has a peak. The density is estimated with a kernel that
/// is 5 % wide. At least a twentieth of the rates has to be within 10 % of the peak.
fn mode(rates: &[f64]) -> f64 {
    const STEP: f64 = 0.01;
    let logs: Vec<f64> = rates.iter().map(|rate| libm::log(*rate)).collect();
    let (low, high) = logs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(*x), h.max(*x)));
    let cells = ((high - low) / STEP).min(4000.0) as usize + 1;
    let mut counts = vec![0.0; cells];
    for log in &logs {
        counts[(((log - low) / STEP) as usize).min(cells - 1)] += 1.0;
    }
    let around = |k: usize, reach: usize, weight: &dyn Fn(f64) -> f64| -> f64 {
        let cells = k.saturating_sub(reach)..(k + reach + 1).min(cells);
        cells.map(|j| counts[j] * weight((j as f64 - k as f64) * STEP)).sum()
    };
    let bell = |x: f64| {
        let wide = 1.0 + x * x / (0.05 * 0.05);
        1.0 / (wide * wide)
    };
    let density: Vec<f64> = (0..cells).map(|k| around(k, 15, &bell)).collect();
    let needed = (logs.len() as f64 * 0.05).max(3.0);
    // Of all peaks, take the one at the highest rate, because packets have this rate if no cross traffic is between
    // them.
    let peak = (0..cells).rev().find(|&k| {
        let next = density.get(k + 1).copied().unwrap_or(0.0);
        let before = if k == 0 { 0.0 } else { density[k - 1] };
        density[k] >= next && density[k] > before && around(k, 10, &|_| 1.0) >= needed
    });
    let best = || (0..cells).max_by(|a, b| density[*a].total_cmp(&density[*b])).unwrap_or(0);
    libm::exp(low + (peak.unwrap_or_else(best) as f64 + 0.5) * STEP)
}

/// Returns the verdict on the whole call. For [`Verdict::Shared`], also returns the capacity and the call's share.
///
/// Cross traffic in up to a quarter of the windows is ignored, because a change of the capacity may look like cross
/// traffic.
fn judged(windows: &[Window]) -> (Verdict, Option<(Rate, Rate)>) {
    let count = |of: Verdict| windows.iter().filter(|window| window.verdict == of).count();
    let verdict = if windows.is_empty() {
        Verdict::Unseen
    } else if count(Verdict::Shared) * 4 > windows.len() {
        Verdict::Shared
    } else if count(Verdict::Jittered) * 4 > windows.len() {
        Verdict::Jittered
    } else {
        Verdict::Alone
    };
    let of = |part: fn(&Window) -> f64| {
        let all: Vec<f64> = windows.iter().filter(|w| w.verdict == Verdict::Shared).map(part).collect();
        steadycast_record::median(&all).map(Rate::from_bps_f64)
    };
    let shared = of(|w| w.mode).zip(of(|w| w.mean)).filter(|_| verdict == Verdict::Shared);
    (verdict, shared)
}

/// Whether many packets waited for more than 3 ms although no earlier packet of the call was in the queue. These
/// packets waited for cross traffic.
///
/// This finds cross traffic that trains do not show because each train leaves as one burst. `levels` are as in
/// [`trains`].
fn waited(points: &[Point], levels: Option<&[f64]>, trains: &[Vec<Pair>], margin: f64) -> bool {
    // For each train: exit time of its first pair, and its service time per byte.
    let byte: Vec<(f64, f64)> = trains
        .iter()
        .map(|train| {
            let sum = train.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.size, sum.1 + pair.took));
            (train[0].at, sum.1 / sum.0.max(1.0))
        })
        .collect();
    let (mut idle, mut late) = (0, 0);
    for (i, pair) in points.windows(2).enumerate() {
        let [before, point] = pair else { continue };
        let (Some(ahead), Some(delay)) = (before.out(), point.delay()) else { continue };
        let delay = delay - levels.map_or(0.0, |levels| levels[i + 1]);
        if ahead + margin < point.left {
            idle += 1;
            let train = byte.partition_point(|one| one.0 < point.left).saturating_sub(1);
            late += usize::from(byte.get(train).is_some_and(|one| delay - point.size * one.1 > 3e-3));
        }
    }
    idle >= 20 && late * 10 > idle
}

/// Sums over the packets of a bin. `sent`, `known` and `arrived` are in bytes. `delay` and `longest` are in seconds,
/// and `longest` is a maximum. `timed` and `unread` are numbers of packets.
#[derive(Clone, Copy, Default)]
struct Sums {
    sent: f64,
    known: f64,
    arrived: f64,
    delay: f64,
    longest: f64,
    timed: u32,
    unread: u32,
}

/// Sets the rates, losses and delays of each bin, and the highest rate at which the queue did not grow.
///
/// If packets of a bin may be missing only in the recording, the losses of this bin are unknown. If this is so in more
/// than half of the bins, losses are unknown in all bins.
fn fill(bins: &mut [Bin], points: &[Point]) {
    let mut sums = vec![Sums::default(); bins.len()];
    let mut lost_in = vec![0; bins.len()];
    let of = |at: f64| (at / BIN_S) as usize;
    for point in points {
        let sum = &mut sums[of(point.left)];
        sum.sent += point.size;
        match point.exit {
            Exit::LostOrUnread | Exit::LostOrDropped => sum.unread += 1,
            Exit::Unknown => {}
            exit => {
                bins[of(point.left)].packets += 1;
                sum.known += point.size;
                lost_in[of(point.left)] += u32::from(exit == Exit::Lost);
                sum.arrived += if exit == Exit::Lost { 0.0 } else { point.size };
            }
        }
        if let Some(delay) = point.delay() {
            let delay = delay.max(0.0);
            sum.delay += delay;
            sum.longest = sum.longest.max(delay);
            sum.timed += 1;
        }
    }
    let count = |of: fn(&Sums) -> bool| sums.iter().filter(|sum| of(sum)).count();
    // Losses are unknown in all bins if the capturing program may have dropped packets, because it may have dropped
    // them in any bin. They are also unknown if most of the bins have packets that may be unread.
    let all_unknown = points.iter().any(|point| point.exit == Exit::LostOrDropped)
        || count(|sum| sum.unread > 0) * 2 > count(|sum| sum.sent > 0.0);
    for ((bin, sum), lost) in bins.iter_mut().zip(sums).zip(lost_in) {
        bin.sent = Rate::from_bps_f64(sum.sent * 8.0 / BIN_S);
        let share = if sum.known > 0.0 { sum.arrived / sum.known } else { 0.0 };
        bin.arrived = Rate::from_bps_f64(sum.sent * share * 8.0 / BIN_S);
        bin.lost = (!all_unknown && sum.unread == 0).then_some(lost);
        bin.delay = (sum.timed > 0)
            .then(|| (Span::from_secs_f64(sum.delay / f64::from(sum.timed)), Span::from_secs_f64(sum.longest)));
    }
    let (mut first, mut bytes, mut lost) = (0, 0.0, 0_u32);
    for (i, point) in points.iter().enumerate() {
        bytes += point.size;
        lost += u32::from(point.exit == Exit::Lost);
        // Advance `first` to the start of the shortest window that lasts at least 50 ms and ends with this packet.
        while first < i && point.left - points[first + 1].left >= 0.05 {
            bytes -= points[first].size;
            lost -= u32::from(points[first].exit == Exit::Lost);
            first += 1;
        }
        let span = point.left - points[first].left;
        // If there was no loss and the queue did not grow, the path carried this rate.
        let grew = points[first].delay().zip(point.delay()).is_some_and(|(a, b)| b - a > 2e-3);
        if lost == 0 && (0.05..0.5).contains(&span) && !grew && point.delay().is_some() {
            // Do not count the first packet, because it only begins the window.
            let rate = Rate::from_bps_f64((bytes - points[first].size) * 8.0 / span);
            let bin = &mut bins[of(point.left)];
            bin.at_least = bin.at_least.max(Some(rate));
        }
    }
}

/// Estimates the capacity of each bin. The confidence interval is computed from the bin and the two bins beside it.
fn capacities(bins: usize, trains: &[Vec<Pair>], least: f64, every: f64, jittered: bool) -> Vec<Option<Band>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new(); bins];
    for train in trains.iter().filter(|train| train.iter().map(|pair| pair.took).sum::<f64>() >= least) {
        let place = |pair: &Pair| ((pair.at.max(0.0) / BIN_S) as usize).min(bins - 1);
        for part in train.chunk_by(|a, b| place(a) == place(b)) {
            let sum = part.iter().fold((0.0, 0.0), |(size, took), pair| (size + pair.size, took + pair.took));
            pieces[place(&part[0])].push(sum);
        }
    }
    // With jitter behind the queue, the duration of a train has an error. The error is at most the jitter, because
    // packets keep their order.
    let (start, unsure) = if jittered { (0.0, jitter(trains)) } else { start(&pieces, every) };
    let mut chance = Seed(1).part("bands");
    let mut capacity = |k: usize| {
        let took: f64 = pieces[k].iter().map(|piece| piece.1).sum();
        if took < LEAST_TRAINS_S {
            return None;
        }
        // Compute the confidence interval from this bin and the two bins beside it, because a single bin often has too
        // few trains for a bootstrap.
        let near: Vec<(f64, f64)> = pieces[k.saturating_sub(1)..(k + 2).min(pieces.len())].concat();
        let n = pieces[k].len() as f64;
        let right = 1.0 - start * n / took;
        let rate = pieces[k].iter().map(|piece| piece.0).sum::<f64>() * 8.0 / (took * right);
        let (low, high) = resampled(&near, &mut chance);
        let blur = ((every + 1.645 * unsure * n) / took).min(0.5);
        Some(Band {
            low: Rate::from_bps_f64((low / right).min(rate) * (1.0 - blur)),
            rate: Rate::from_bps_f64(rate),
            high: Rate::from_bps_f64((high / right).max(rate) * (1.0 + blur)),
        })
    };
    (0..bins).map(&mut capacity).collect()
}

fn is_near(known: &[Option<Band>], bin: usize, band: &Band) -> bool {
    let rate = band.rate.as_bps_f64();
    let before = known[..bin].iter().rev().find_map(|one| *one);
    let behind = known[bin..].iter().find_map(|one| *one);
    before.into_iter().chain(behind).any(|one| (rate / one.rate.as_bps_f64() - 1.0).abs() <= NEAR)
}

/// Sets the capacity of each bin to the mode of the rates in its window. The confidence interval is ±5 %, which is the
/// width of the kernel in [`mode`].
fn between_others(bins: &mut [Bin], windows: &[Window]) {
    const BINS: usize = (WINDOW_S / BIN_S) as usize;
    for window in windows.iter().filter(|window| window.at_mode >= 20) {
        for bin in bins.iter_mut().skip(window.place * BINS).take(BINS) {
            let at = |share: f64| Rate::from_bps_f64(window.mode * share);
            bin.capacity = Some(Band { low: at(0.95), rate: at(1.0), high: at(1.05) });
        }
    }
}

/// Marks the bins in windows that have cross traffic. There, trains show only the call's share of the capacity.
///
/// `windows` and `checked` are the same windows of the call, but `checked` was computed without the longest service
/// times (see [`without_steps`]). A window is marked only if both show cross traffic.
fn mark_shared(bins: &mut [Bin], windows: &[Window], checked: &[Window]) {
    const BINS: usize = (WINDOW_S / BIN_S) as usize;
    let is_shared = |window: &&Window| window.verdict == Verdict::Shared && !window.is_step;
    for window in windows.iter().filter(is_shared) {
        let is_clear = |one: &Window| one.place == window.place && one.mean < SHARED_PART * one.mode;
        if !checked.iter().filter(is_shared).any(is_clear) {
            continue;
        }
        for bin in bins.iter_mut().skip(window.place * BINS).take(BINS) {
            bin.shared = Some((Rate::from_bps_f64(window.mode), Rate::from_bps_f64(window.mean)));
            bin.capacity = None;
        }
    }
}

/// Estimates the mean rounding error of the trains' durations. Returns this estimate and its standard deviation, in
/// seconds.
///
/// Arrival times are rounded to ticks of `every` seconds. If frames leave at constant intervals, all trains begin at
/// the same phase of a tick. Then their rounding errors do not average to zero.
///
/// The error is fitted by least squares to `duration = bytes / capacity + error`. The prior of the error has mean 0 and
/// variance `every`² / 12.
fn start(pieces: &[Vec<(f64, f64)>], every: f64) -> (f64, f64) {
    let (mut along, mut weight, mut square, mut n) = (0.0, 0.0, 0.0, 0.0);
    let mut sizes = BTreeSet::new();
    for bin in pieces.iter().filter(|bin| bin.len() >= 2) {
        let sum = bin.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
        for (size, took) in bin {
            let rest = took - size * sum.1 / sum.0;
            let share = 1.0 - bin.len() as f64 * size / sum.0;
            along += rest * share;
            weight += share * share;
            square += rest * rest;
            n += 1.0;
            sizes.insert(*size as u64);
        }
    }
    // All trains begin at the same phase of a tick. Trains of the same size then end at the same phase too, and have
    // the same error. So each size counts as only one observation.
    let again = n / sizes.len().max(1) as f64;
    let before = every * every / 12.0;
    if n < 2.0 || before <= 0.0 {
        return (0.0, before.sqrt());
    }
    let noise = square / n;
    let (along, weight) = (along / again, weight / again + noise / before);
    // `before` is the variance of the rounding error of the trains' last arrivals. Add the part that `noise` does not
    // include.
    let ends = (before - noise).max(0.0);
    if weight > 0.0 { (along / weight, (noise / weight + ends).sqrt()) } else { (0.0, 0.0) }
}

/// Returns the median jitter of the service times, in seconds. A packet's jitter is the difference between its service
/// time and the time that it would need at the train's mean rate.
fn jitter(trains: &[Vec<Pair>]) -> f64 {
    let mut all = Vec::new();
    for train in trains {
        let (size, took) = train.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.size, sum.1 + pair.took));
        all.extend(train.iter().map(|pair| (pair.took - pair.size * took / size).abs()));
    }
    steadycast_record::median(&all).unwrap_or(0.0)
}

/// Returns the 5th and the 95th percentile of the rate in bootstrap samples, in bit/s.
fn resampled(pieces: &[(f64, f64)], chance: &mut Chance) -> (f64, f64) {
    const DRAWS: usize = 100;
    let mut rates: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let draw = (0..pieces.len())
                .map(|_| pieces[((chance.unit() * pieces.len() as f64) as usize).min(pieces.len() - 1)]);
            let (size, took) = draw.fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
            size * 8.0 / took.max(1e-9)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    (rates[DRAWS / 20], rates[DRAWS - 1 - DRAWS / 20])
}

/// A burst of successive losses.
struct Loss {
    /// Queueing delay before the burst, in seconds.
    delay: f64,
    /// Bytes in the queue before the burst.
    held: f64,
    /// For each lost packet: the index of its bin, and the bytes in the queue with the packet (0 if it was empty).
    packets: Vec<(usize, f64)>,
}

/// Returns for each packet how many bytes of the call are in the queue when the packet leaves the sender. The packet
/// itself is included.
fn backlogs(points: &[Point]) -> Vec<f64> {
    let mut queued: VecDeque<(f64, f64)> = VecDeque::new();
    let (mut bytes, mut last) = (0.0, 0.0);
    let held = points.iter().map(|point| {
        while queued.front().is_some_and(|first| first.0 <= point.left) {
            bytes -= queued.pop_front().map_or(0.0, |first| first.1);
        }
        last = point.out().unwrap_or(last);
        // If the exit time is unknown, assume that the packet leaves the queue together with the previous packet.
        let size = if point.exit == Exit::Lost { 0.0 } else { point.size };
        queued.push_back((last, size));
        bytes += size;
        bytes
    });
    held.collect()
}

/// Estimates the queue's size and the random losses, also those of each bin. If the queue is managed, also returns the
/// delay at which it drops packets.
///
/// `is_alone` is whether only the call's packets were in the queue, except in bins that are marked as shared.
fn queue(points: &[Point], bins: &mut [Bin], is_alone: bool) -> (Queue, Losses, Option<f64>) {
    let capacity = nearest(bins);
    let place = |left: f64| ((left / BIN_S) as usize).min(capacity.len() - 1);
    let held = |left: f64, delay: f64| capacity[place(left)] / 8.0 * delay;
    let own = backlogs(points);
    // If only the call's packets were in the queue, count their bytes. Unlike delay times capacity, this is right even
    // if the capacity changed while the packets waited.
    let is_own = |left: f64| is_alone && bins.get((left / BIN_S) as usize).is_some_and(|bin| bin.shared.is_none());
    let mut all: Vec<(f64, f64)> = Vec::new();
    let mut losses: Vec<Loss> = Vec::new();
    let (mut last, mut running) = ((0.0, 0.0), false);
    for (point, own) in points.iter().zip(own) {
        // During a burst, the queue drains. Cross traffic may fill it again. An empty queue has room for each packet.
        let with_own = if own > 0.0 { own + point.size } else { 0.0 };
        let lost = (place(point.left), if is_own(point.left) { with_own } else { last.1 });
        match (point.exit, point.delay()) {
            (_, Some(delay)) => {
                let delay = delay.max(0.0);
                last = (delay, if is_own(point.left) { own } else { held(point.left, delay) });
                all.push(last);
                running = false;
            }
            (Exit::Lost, None) if running => {
                if let Some(loss) = losses.last_mut() {
                    loss.packets.push(lost);
                }
            }
            (Exit::Lost, None) => {
                losses.push(Loss { delay: last.0, held: last.1, packets: vec![lost] });
                running = true;
            }
            (_, None) => running = false,
        }
    }
    let most = all.iter().map(|one| one.1).fold(0.0, f64::max);
    let high = all.iter().filter(|one| one.1 >= 0.8 * most).count();
    let at_high = losses.iter().filter(|loss| loss.held >= 0.8 * most).count();
    let below = losses.len() - at_high;
    let deep = losses.iter().filter(|loss| loss.held >= 0.3 * most).count();
    // A full queue loses packets only when its size is near the maximum. Random losses occur at any size. Fewer than
    // three losses near the maximum may be random.
    let base = below as f64 / (all.len() - high).max(1) as f64;
    let full = at_high >= 3 && at_high * 2 > deep && at_high as f64 / high.max(1) as f64 > (5.0 * base).max(0.01);
    let managed = if full { None } else { managed(&losses, &all) };
    // If losses depend on the queue, only losses of a short queue are random. Otherwise losses are random at any length
    // at which the queue is known to have room, which it has below the largest backlog.
    let share = if full || managed.is_some() || !is_alone { 0.3 } else { 0.8 };
    let has_room = |held: f64| held < share * most;
    let (mut events, mut lost) = (0, 0);
    for loss in &losses {
        let before = lost;
        for (bin, _) in loss.packets.iter().filter(|packet| has_room(packet.1.min(loss.held))) {
            bins[*bin].lost_by_chance += 1;
            lost += 1;
        }
        events += u32::from(lost > before);
    }
    let total = (lost + all.iter().filter(|one| has_room(one.1)).count()).max(1);
    let run = if events == 0 { 1.0 } else { lost as f64 / f64::from(events) };
    // After a lost packet, the queue is shorter than after one that arrived. So packets with room may seem to be lost
    // more often than packets are lost at all.
    let all_lost: usize = losses.iter().map(|loss| loss.packets.len()).sum();
    let share_lost = all_lost as f64 / (all_lost + all.len()).max(1) as f64;
    let found = Losses { chance: (lost as f64 / total as f64).min(share_lost), run };
    (Queue { holds: Bytes::new(most as u64), full }, found, managed)
}

/// Returns the median delay at losses if the queue is managed. It is managed if losses are more frequent at long
/// delays.
///
/// For each quartile of the delays, counts the losses at longer delays. One of these numbers has to exceed its expected
/// value by more than three standard deviations. The expected value assumes that losses do not depend on the delay.
fn managed(losses: &[Loss], all: &[(f64, f64)]) -> Option<f64> {
    let at: Vec<f64> = losses.iter().map(|loss| loss.delay).collect();
    let mut delays: Vec<f64> = all.iter().map(|one| one.0).collect();
    delays.sort_by(f64::total_cmp);
    let n = losses.len() as f64;
    let with_queue = [0.25, 0.5, 0.75].into_iter().any(|share| {
        let quantile = delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(0.0);
        let above = at.iter().filter(|delay| **delay > quantile).count() as f64;
        above > (1.0 - share) * n + 3.0 * (n * share * (1.0 - share)).sqrt()
    });
    steadycast_record::median(&at).filter(|_| losses.len() >= 5 && with_queue)
}

/// Returns the capacity of each bin in bit/s. If it is unknown, takes the capacity of the nearest bin. If no capacity
/// is known, takes the highest rate that arrived.
fn nearest(bins: &[Bin]) -> Vec<f64> {
    let most = bins.iter().map(|bin| bin.arrived.as_bps_f64()).fold(0.0, f64::max);
    let known: Vec<(usize, f64)> =
        bins.iter().enumerate().filter_map(|(k, bin)| Some((k, bin.capacity?.rate.as_bps_f64()))).collect();
    let at = |k: usize| {
        let after = known.partition_point(|one| one.0 < k);
        let around = [after.checked_sub(1), Some(after)].into_iter().flatten().filter_map(|i| known.get(i));
        around.min_by_key(|one| one.0.abs_diff(k)).map_or(most, |one| one.1)
    };
    (0..bins.len()).map(at).collect()
}

fn late(points: &[Point]) -> f64 {
    let arrived: Vec<f64> = points.iter().filter_map(|point| point.delay().and(point.out())).collect();
    // Compare with the next 64 packets only, so that the run time is linear in the number of packets.
    let behind = |i: usize| arrived[i + 1..(i + 65).min(arrived.len())].iter().filter(|at| **at < arrived[i]).count();
    let late = (0..arrived.len()).filter(|i| behind(*i) > 3).count();
    late as f64 / arrived.len().max(1) as f64
}
