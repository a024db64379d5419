//! The path that a call shows: capacity where packets waited for each other, queue, losses; or why it can't be known.
//!
//! A packet that left before the one ahead of it was through waited behind it, and the time between their arrivals is
//! what the bottleneck needed for it. Trains of such packets show the capacity whatever the sender did (Dovrolis,
//! Ramanathan, Moore: Packet-dispersion techniques and a capacity-estimation methodology, ToN 12(6), 2004), unless
//! others' packets stand between them.

use crate::batches;
use crate::call::Call;
use crate::clock;
use crate::delay_steps::{Axis, lasting_steps};
use crate::evidence::{Fate, Unknown};
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};

/// The length of a bin, in seconds.
pub(crate) const BIN_S: f64 = 0.5;
/// Seconds of trains without which a bin is unknown.
const LEAST_TRAINS_S: f64 = 0.010;
/// A train has this many packets and seconds, or more where arrivals are jittered.
const LEAST_PACKETS: usize = 4;
const LEAST_S: f64 = 0.004;
const LEAST_JITTERED_S: f64 = 0.020;
/// Half of the time, in seconds, over which the least delay counts as that of an empty queue.
const BASE_S: usize = 15;
/// Seconds over which it is judged whether others shared the queue.
const WINDOW_S: f64 = 5.0;
/// A mean rate of this share of the highest mode is a queue of one's own.
const ALONE: f64 = 0.9;
/// Drifts above this are no clock's.
const MOST_DRIFT: f64 = 1e-3;
/// Where more packets than this share have unknown arrivals, trains and queues are not those of all packets.
const MOST_UNKNOWN: f64 = 0.1;
/// Below this share of the bins a path is not known.
const LEAST_KNOWN: f64 = 0.4;

/// A rate, with what it can be within: from the 5th to the 95th percentile of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The lower end.
    pub low: Rate,
    /// The estimate.
    pub rate: Rate,
    /// The upper end.
    pub high: Rate,
}

/// Half a second of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// What left.
    pub sent: Rate,
    /// What arrived, by when it left.
    pub arrived: Rate,
    /// Packets that left and whose fate is known.
    pub packets: u32,
    /// Of these, how many did not arrive; `None` where a part of the record is missing, so that losses are unknown.
    pub lost: Option<u32>,
    /// Mean and longest delay above that of an empty queue; `None` where nothing arrived.
    pub delay: Option<(Span, Span)>,
    /// The path's capacity; `None` where its packets did not wait.
    pub capacity: Option<Band>,
    /// A rate that went through without the queue growing.
    pub at_least: Option<Rate>,
}

/// Whose the queue was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call's own.
    Alone,
    /// The call's own, and delays vary behind it.
    Jittered,
    /// Others' packets were between its own, or the capacity changed faster than trains can tell.
    Shared,
    /// Too few packets waited to tell.
    Unseen,
}

/// How much the queue held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The most that was seen in it.
    pub holds: Bytes,
    /// Whether losses show that no more fits.
    pub full: bool,
}

/// Losses that no full queue explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Their share of the packets.
    pub chance: f64,
    /// How many in a row, as a mean.
    pub run: f64,
}

/// What a call shows of its path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// When the first bin begins.
    pub begin: Time,
    /// One after the other, of half a second each.
    pub bins: Vec<Bin>,
    /// The delay above that of an empty queue which 95 % of the packets that arrived kept.
    pub delay: Option<Span>,
    /// How far delays vary behind the queue, as the median; nothing where the verdict is not that they do.
    pub jitter: Span,
    /// Whose the queue was.
    pub verdict: Verdict,
    /// The capacity and the call's share of it, where the queue was shared and packets of the call followed each other.
    pub shared: Option<(Rate, Rate)>,
    /// The share of the bins in which something was sent whose capacity is known.
    pub known: f64,
    /// How much faster the receiver's clock runs than the sender's; `None` where that was not found.
    pub drift: Option<f64>,
    /// What the queue held.
    pub queue: Queue,
    /// Losses by chance.
    pub losses: Losses,
    /// Seconds at which the delay of an empty queue changed.
    pub routes: Vec<u32>,
    /// The share of the packets that arrived more than three places late.
    pub late: f64,
    /// Why the path is not known; empty where it is.
    pub refusals: Vec<String>,
}

/// When a packet left the path, on the sender's clock as if an empty queue took no time.
#[derive(Clone, Copy, PartialEq)]
enum Exit {
    /// In seconds.
    At(f64),
    /// In seconds, of a packet whose departure is unknown: it has no delay, and shows what others waited for.
    Undated(f64),
    /// It was lost.
    Lost,
    /// It arrived, and its times are not both known.
    Untimed,
    /// Nothing shows whether it arrived: it is in no count, and ends a train.
    Unknown,
    /// As [`Exit::Unknown`]; packets that arrived are known, so that the others are more often lost than these.
    LostOrUnread,
    /// As [`Exit::LostOrUnread`], where any packet may be one of these.
    LostOrDropped,
}

/// A packet with its times in seconds; the delay is above that of an empty queue.
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

    /// Whether it may have stood in the queue at an unknown time.
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

/// A packet that waited behind the one before: when it was through, its bytes, and its seconds at the bottleneck.
#[derive(Clone, Copy)]
struct Pair {
    at: f64,
    size: f64,
    took: f64,
}

impl Path {
    /// The path that a call shows; with `beside` somebody has named the others in its queue, and where they are seen
    /// the capacity is the rate at which its own packets follow each other.
    pub fn of(call: &Call, beside: bool) -> Self {
        let begin = call.packets.first().map_or(Time::from_nanos(0), |packet| packet.departure.near());
        let (mut points, drift, routes) = placed(call, begin, beside);
        points.sort_by(|a, b| a.left.total_cmp(&b.left));
        let (left_every, every) = (call.every.0.as_secs_f64(), call.every.1.as_secs_f64());
        let margin = (1.5 * left_every.max(every)).max(if left_every.max(every) > 0.5e-3 { 1.5e-3 } else { 0.5e-3 });
        let trains = trains(&points, margin);
        let windows = windows(&trains, every);
        let (mut verdict, mut shared) = judged(&windows);
        if verdict == Verdict::Alone && waited(&points, &trains, margin) {
            verdict = Verdict::Shared;
        }
        let unknown = points.iter().filter(|point| point.is_unknown()).count() as f64 / points.len().max(1) as f64;
        if unknown > MOST_UNKNOWN {
            // Unseen packets of its own look like others'.
            (verdict, shared) = (Verdict::Unseen, None);
        }
        let changed = level_change(&points).filter(|_| verdict == Verdict::Shared && !beside);
        if changed.is_some() {
            (verdict, shared) = (Verdict::Unseen, None);
        }
        let batch = batch(&points);
        if batch.is_some() {
            // The times between arrivals are those of the batches.
            (verdict, shared) = (Verdict::Unseen, None);
        }
        let least = if verdict == Verdict::Jittered { LEAST_JITTERED_S } else { LEAST_S };
        let seconds = points.last().map_or(0.0, |point| point.left);
        let mut bins = vec![Bin::default(); (seconds / BIN_S) as usize + 1];
        fill(&mut bins, &points);
        let named = beside && verdict == Verdict::Shared;
        if named {
            between_others(&mut bins, &windows);
        } else if verdict != Verdict::Shared && unknown <= MOST_UNKNOWN && batch.is_none() && changed.is_none() {
            capacities(&mut bins, &trains, least, every, verdict == Verdict::Jittered);
        }
        let active = bins.iter().filter(|bin| bin.packets > 0).count();
        let known = bins.iter().filter(|bin| bin.capacity.is_some()).count() as f64 / active.max(1) as f64;
        let (mut queue, losses, managed) = queue(&points, &bins);
        // A TCP fills a queue to its end, and loses packets there: what it held is what it holds.
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
            shared,
            known,
            drift,
            queue,
            losses,
            routes,
            late: late(&points),
            refusals: Vec::new(),
        };
        let refused = Refused { managed, named, unknown, batch, changed };
        path.refusals = path.refused(&refused);
        path
    }

    fn refused(&self, found: &Refused) -> Vec<String> {
        let &Refused { managed, named, unknown, batch, changed } = found;
        let mut all = Vec::new();
        // Each of the first three leaves nothing to say of trains.
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
        } else if let Some((second, by)) = changed {
            all.push(format!(
                "from {second} s on the least delay was {:+.0} ms for good: the route changed, a clock was set, or \
                 others' packets stayed in the queue",
                by * 1e3
            ));
        } else if self.drift.is_none() && !named {
            all.push(
                "the delay grew or fell all the time: others filled the queue or left it, or the two clocks drift \
                 apart by more than 1000 ppm"
                    .to_owned(),
            );
        } else if self.late > 0.01 {
            all.push(format!(
                "{:.1} % of its packets arrived more than three places late: several ways, or a link that reorders",
                self.late * 100.0
            ));
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
        if let Some(delay) = managed {
            all.push(format!(
                "packets were lost when the queue took about {:.0} ms, and it was never full: a managed queue, which \
                 is not modelled",
                delay * 1e3
            ));
        }
        all
    }
}

/// What else keeps the path from being known.
struct Refused {
    managed: Option<f64>,
    named: bool,
    unknown: f64,
    batch: Option<f64>,
    changed: Option<(usize, f64)>,
}

/// The second from which on the least delay is another, by more than 3 ms, and by how much: for eight seconds on either
/// side at least three have nearly the same.
fn level_change(points: &[Point]) -> Option<(usize, f64)> {
    const SIDE_S: usize = 8;
    const LEVEL_S: f64 = 2e-3;
    const LEAST_CHANGE_S: f64 = 3e-3;
    let seconds = points.last().map_or(0, |point| point.left as usize) + 1;
    let mut least = vec![f64::INFINITY; seconds];
    for point in points {
        if let Some(delay) = point.delay() {
            let second = &mut least[(point.left as usize).min(seconds - 1)];
            *second = second.min(delay);
        }
    }
    let level = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        (sorted[2] - sorted[0] < LEVEL_S).then_some(sorted[0])
    };
    (SIDE_S..seconds.saturating_sub(SIDE_S - 1)).find_map(|k| {
        let by = level(&least[k..k + SIDE_S])? - level(&least[k - SIDE_S..k])?;
        (by.abs() > LEAST_CHANGE_S).then_some((k, by))
    })
}

/// How long packets waited for those that arrived together with them, if that is longer than times may be coarse.
fn batch(points: &[Point]) -> Option<f64> {
    let nanos = |seconds: f64| (seconds * 1e9) as i64;
    let times: Vec<(i64, i64)> = points
        .iter()
        .filter_map(|point| point.delay().map(|delay| (nanos(point.left + delay), nanos(point.left))))
        .collect();
    batches::held(&times).filter(|held| *held > clock::COARSEST.as_nanos() as i64).map(|held| held as f64 * 1e-9)
}

/// The packets on one clock; the drift that was taken out, `None` where more was seen than any
/// clock's, and where the route changed.
fn placed(call: &Call, begin: Time, beside: bool) -> (Vec<Point>, Option<f64>, Vec<u32>) {
    let mut raw: Vec<Point> = call
        .packets
        .iter()
        .map(|packet| {
            let arrived = packet.arrival.known().map(|at| at.as_nanos() as f64 * 1e-9);
            let exit = match (packet.fate, arrived) {
                (_, Some(at)) if packet.departure.known().is_some() => Exit::At(at),
                (_, Some(at)) => Exit::Undated(at),
                (Fate::Lost(_), _) => Exit::Lost,
                (Fate::Arrived(_), _) => Exit::Untimed,
                (Fate::Unknown(Unknown::LostOrUnread), _) => Exit::LostOrUnread,
                (Fate::Unknown(Unknown::LostOrDropped), _) => Exit::LostOrDropped,
                (Fate::Unknown(_), _) => Exit::Unknown,
            };
            let left = packet.departure.near().since(begin).as_secs_f64();
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
    if !steps.is_empty() {
        for point in &mut raw {
            let moved = steps.iter().filter(|step| step.0 <= point.left).map(|step| step.1).sum();
            point.arrives_earlier(moved);
        }
        delays = delays_of(&raw);
    }
    let drift = drift(&delays, resolution);
    // A queue that others fill grows faster than clocks drift apart.
    let Some(slope) = drift.or(beside.then_some(0.0)) else {
        // Without a line below them delays are those above the least of all.
        let least = delays.iter().map(|one| one.1).min_by(f64::total_cmp).unwrap_or(0.0);
        raw.iter_mut().for_each(|point| point.arrives_earlier(least));
        return (raw, None, steps.iter().map(|step| step.0.round() as u32).collect());
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
            // Without an empty queue's delay nothing is known of when it was through.
            None if point.out().is_some() => point.exit = Exit::Untimed,
            None => {}
        }
    }
    let mut changes: Vec<u32> = steps.iter().map(|step| step.0.round() as u32).chain(routes).collect();
    changes.sort_unstable();
    changes.dedup();
    (raw, drift, changes)
}

/// The least delay around a second, on the same route; `None` where none is known.
fn floor(least: &[f64], routes: &[u32], second: usize) -> Option<f64> {
    let from = routes.iter().rev().find(|at| **at as usize <= second).map_or(0, |at| *at as usize);
    let to = routes.iter().find(|at| **at as usize > second).map_or(least.len(), |at| *at as usize);
    let from = from.max(second.saturating_sub(BASE_S));
    let to = to.min(second + BASE_S + 1);
    least[from..to].iter().copied().filter(|delay| delay.is_finite()).min_by(f64::total_cmp)
}

/// Seconds at which the least delay steps by more than 3 ms, and is level for five seconds on either side: no queue
/// that stands is.
fn routes(least: &[f64]) -> Vec<u32> {
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

/// The drift of the receiver's clock against the sender's: the slope of the line below all delays that is nearest to
/// them (Moon, Skelly, Towsley, INFOCOM 1999). 0 where delays don't touch such a line often enough to tell; `None` for
/// more than any clock's. `every` is the resolution of the delays.
fn drift(delays: &[(f64, f64)], every: f64) -> Option<f64> {
    let mut sorted = delays.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for &point in &sorted {
        while let [.., a, b] = hull[..] {
            if (b.0 - a.0) * (point.1 - a.1) > (b.1 - a.1) * (point.0 - a.0) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Some(0.0) };
    let mean = sorted.iter().map(|point| point.0).sum::<f64>() / sorted.len() as f64;
    let edge = hull.windows(2).find(|edge| edge[0].0 <= mean && mean <= edge[1].0);
    let slope = edge.map_or(0.0, |edge| (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0).max(1e-9));
    let touches = edge.is_some_and(|edge| touches(&sorted, edge[0], slope, every));
    // Corners at the ends stand on whatever came first and last: a line needs one between them on either side.
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

/// Whether delays come close to a line in a tenth of the seconds, three at least, over more than half of the call: a
/// queue that grows does not grow by a straight line for so long.
fn touches(delays: &[(f64, f64)], point: (f64, f64), slope: f64, every: f64) -> bool {
    const CLOSE_S: f64 = 0.5e-3;
    let close = delays.iter().filter(|one| one.1 - point.1 - slope * (one.0 - point.0) <= CLOSE_S + every);
    let seconds: BTreeSet<i64> = close.map(|one| one.0 as i64).collect();
    let span = delays.last().zip(delays.first()).map_or(0.0, |(last, first)| last.0 - first.0);
    let reach = seconds.last().zip(seconds.first()).map_or(0, |(last, first)| last - first);
    seconds.len() as f64 >= (span / 10.0).max(3.0) && reach as f64 > span / 2.0
}

/// Trains: packets that waited behind each other; a loss, or one that overtakes, ends a train.
fn trains(points: &[Point], margin: f64) -> Vec<Vec<Pair>> {
    let mut all = Vec::new();
    let mut train: Vec<Pair> = Vec::new();
    let mut before: Option<f64> = None;
    for point in points {
        let pair = before.zip(point.out()).filter(|(ahead, out)| point.left + margin < *ahead && out >= ahead);
        match pair {
            // Others waited for it, and whether it waited is unknown.
            _ if matches!(point.exit, Exit::Undated(_)) => {}
            Some((ahead, out)) => train.push(Pair { at: out, size: point.size, took: out - ahead }),
            None => all.push(std::mem::take(&mut train)),
        }
        // Where it stands among the others is a guess.
        before = match point.exit {
            Exit::Undated(out) => Some(before.map_or(out, |ahead| ahead.max(out))),
            _ => point.out(),
        };
    }
    all.push(train);
    all.retain(|train| train.len() + 1 >= LEAST_PACKETS && train.iter().map(|pair| pair.took).sum::<f64>() >= LEAST_S);
    all
}

/// What trains showed within a few seconds.
struct Window {
    /// Which one it is.
    place: usize,
    verdict: Verdict,
    mode: f64,
    mean: f64,
    /// How many pairs have the mode's rate.
    at_mode: usize,
}

/// Judges each [`WINDOW_S`] by the rates of its large packets, or of so many together that the clock tells them.
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
    let sum = groups.iter().fold((0.0, 0.0), |sum, group| (sum.0 + group.size, sum.1 + group.took));
    let mean = sum.0 * 8.0 / sum.1;
    let mode = mode(&groups.iter().map(|group| group.size * 8.0 / group.took).collect::<Vec<_>>());
    // Others' packets make a pair take longer. What takes less than its bytes at the capacity was moved behind it.
    let short = pairs.iter().filter(|pair| pair.took + every < pair.size * 8.0 / (1.15 * mode)).count();
    let at_mode = pairs.iter().filter(|pair| (pair.size * 8.0 / pair.took / mode - 1.0).abs() < 0.1).count();
    let verdict = if short * 10 > pairs.len() {
        Verdict::Jittered
    } else if mean >= ALONE * mode {
        Verdict::Alone
    } else {
        Verdict::Shared
    };
    Window { place, verdict, mode, mean, at_mode }
}

/// The highest rate around which (a tenth below or above) a twentieth of all is: the peak of a kernel of 5 % there.
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
    let peak = (0..cells).rev().find(|&k| {
        let next = density.get(k + 1).copied().unwrap_or(0.0);
        let before = if k == 0 { 0.0 } else { density[k - 1] };
        density[k] >= next && density[k] > before && around(k, 10, &|_| 1.0) >= needed
    });
    let best = || (0..cells).max_by(|a, b| density[*a].total_cmp(&density[*b])).unwrap_or(0);
    libm::exp(low + (peak.unwrap_or_else(best) as f64 + 0.5) * STEP)
}

/// The whole call's verdict. Up to a quarter of the windows may hold a step of the capacity, which looks like sharing.
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

/// Whether a tenth of the packets that found the queue without any of their own waited all the same, by 3 ms: behind
/// others', which a burst of one's own keeps out of its trains.
fn waited(points: &[Point], trains: &[Vec<Pair>], margin: f64) -> bool {
    // What a byte takes, by the train before.
    let byte: Vec<(f64, f64)> = trains
        .iter()
        .map(|train| {
            let sum = train.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.size, sum.1 + pair.took));
            (train[0].at, sum.1 / sum.0)
        })
        .collect();
    let (mut idle, mut late) = (0, 0);
    for pair in points.windows(2) {
        let [before, point] = pair else { continue };
        let (Some(ahead), Some(delay)) = (before.out(), point.delay()) else { continue };
        if ahead + margin < point.left {
            idle += 1;
            let train = byte.partition_point(|one| one.0 < point.left).saturating_sub(1);
            late += usize::from(byte.get(train).is_some_and(|one| delay - point.size * one.1 > 3e-3));
        }
    }
    idle >= 20 && late * 10 > idle
}

/// What one bin's packets add up to.
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

/// What was sent, lost and delayed in each bin, and the rates that went through without waiting.
///
/// Losses are unknown in bins with packets that may be unread, and in all where more than half have such packets or any
/// packet may be one: in the others, too, fewer are known to be lost than were.
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
        while first < i && point.left - points[first + 1].left >= 0.05 {
            bytes -= points[first].size;
            lost -= u32::from(points[first].exit == Exit::Lost);
            first += 1;
        }
        let span = point.left - points[first].left;
        let grew = points[first].delay().zip(point.delay()).is_some_and(|(a, b)| b - a > 2e-3);
        if lost == 0 && (0.05..0.5).contains(&span) && !grew && point.delay().is_some() {
            let rate = Rate::from_bps_f64((bytes - points[first].size) * 8.0 / span);
            let bin = &mut bins[of(point.left)];
            bin.at_least = bin.at_least.max(Some(rate));
        }
    }
}

/// The capacity of each bin by its trains, with its band by those of its neighbours too.
fn capacities(bins: &mut [Bin], trains: &[Vec<Pair>], least: f64, every: f64, jittered: bool) {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new(); bins.len()];
    for train in trains.iter().filter(|train| train.iter().map(|pair| pair.took).sum::<f64>() >= least) {
        let place = |pair: &Pair| ((pair.at.max(0.0) / BIN_S) as usize).min(bins.len() - 1);
        for part in train.chunk_by(|a, b| place(a) == place(b)) {
            let sum = part.iter().fold((0.0, 0.0), |(size, took), pair| (size + pair.size, took + pair.took));
            pieces[place(&part[0])].push(sum);
        }
    }
    // What varies behind the queue and keeps the order makes all trains longer, by as much as it varies at most.
    let (start, unsure) = if jittered { (0.0, jitter(trains)) } else { start(&pieces, every) };
    let mut chance = Seed(1).part("bands");
    for (k, bin) in bins.iter_mut().enumerate() {
        let took: f64 = pieces[k].iter().map(|piece| piece.1).sum();
        if took < LEAST_TRAINS_S {
            continue;
        }
        let near: Vec<(f64, f64)> = pieces[k.saturating_sub(1)..(k + 2).min(pieces.len())].concat();
        let n = pieces[k].len() as f64;
        let right = 1.0 - start * n / took;
        let rate = pieces[k].iter().map(|piece| piece.0).sum::<f64>() * 8.0 / (took * right);
        let (low, high) = resampled(&near, &mut chance);
        let blur = ((every + 1.645 * unsure * n) / took).min(0.5);
        bin.capacity = Some(Band {
            low: Rate::from_bps_f64((low / right).min(rate) * (1.0 - blur)),
            rate: Rate::from_bps_f64(rate),
            high: Rate::from_bps_f64((high / right).max(rate) * (1.0 + blur)),
        });
    }
}

/// The capacity of each bin as the mode of its window, to the width of the mode's kernel.
fn between_others(bins: &mut [Bin], windows: &[Window]) {
    const BINS: usize = (WINDOW_S / BIN_S) as usize;
    for window in windows.iter().filter(|window| window.at_mode >= 20) {
        for bin in bins.iter_mut().skip(window.place * BINS).take(BINS) {
            let at = |share: f64| Rate::from_bps_f64(window.mode * share);
            bin.capacity = Some(Band { low: at(0.95), rate: at(1.0), high: at(1.05) });
        }
    }
}

/// How many seconds all trains are too long by, and the standard deviation of that.
///
/// Frames that leave by a clock meet the steps of the receiver's clock at one phase: rounding the first arrival of each
/// train errs by the same time, which no mean over trains takes away and no bootstrap sees. It shows in the trains'
/// lengths: in a bin with capacity C each takes its bytes over C, and that time. Least squares over all bins, with the
/// rounding's own variance (a step squared over 12) as what is known before. Rounding the last arrival has as
/// much; what of that the trains' scatter does not have is common to them, and unknown.
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
    // Trains of one size end at one phase: together they say as much as one.
    let again = n / sizes.len().max(1) as f64;
    let before = every * every / 12.0;
    if n < 2.0 || before <= 0.0 {
        return (0.0, before.sqrt());
    }
    let noise = square / n;
    let (along, weight) = (along / again, weight / again + noise / before);
    let ends = (before - noise).max(0.0);
    if weight > 0.0 { (along / weight, (noise / weight + ends).sqrt()) } else { (0.0, 0.0) }
}

/// The median difference, in seconds, of a packet's time from what its train's rate gives it.
fn jitter(trains: &[Vec<Pair>]) -> f64 {
    let mut all = Vec::new();
    for train in trains {
        let (size, took) = train.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.size, sum.1 + pair.took));
        all.extend(train.iter().map(|pair| (pair.took - pair.size * took / size).abs()));
    }
    steadycast_record::median(&all).unwrap_or(0.0)
}

/// The 5th and the 95th percentile of the rate of as many pieces, drawn anew.
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

/// A loss with the queue just before it, in seconds and in bytes.
struct Loss {
    delay: f64,
    held: f64,
    run: usize,
}

/// What the queue held and which losses it does not explain; the delay at which a managed queue drops, if it is one.
fn queue(points: &[Point], bins: &[Bin]) -> (Queue, Losses, Option<f64>) {
    let capacity = nearest(bins);
    let held = |left: f64, delay: f64| capacity[((left / BIN_S) as usize).min(capacity.len() - 1)] / 8.0 * delay;
    let mut all: Vec<(f64, f64)> = Vec::new();
    let mut losses: Vec<Loss> = Vec::new();
    let (mut last, mut running) = ((0.0, 0.0), false);
    for point in points {
        match (point.exit, point.delay()) {
            (_, Some(delay)) => {
                last = (delay.max(0.0), held(point.left, delay.max(0.0)));
                all.push(last);
                running = false;
            }
            (Exit::Lost, None) if running => {
                if let Some(loss) = losses.last_mut() {
                    loss.run += 1;
                }
            }
            (Exit::Lost, None) => {
                losses.push(Loss { delay: last.0, held: last.1, run: 1 });
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
    // Losses by chance come at any depth; those of a full queue where it is deepest, three of them or more.
    let base = below as f64 / (all.len() - high).max(1) as f64;
    let full = at_high >= 3 && at_high * 2 > deep && at_high as f64 / high.max(1) as f64 > (5.0 * base).max(0.01);
    // Where the queue is short, no full one explains a loss.
    let short = |held: f64| held < 0.3 * most;
    let chance = losses.iter().filter(|loss| short(loss.held));
    let (events, lost) = chance.fold((0, 0), |(events, lost), loss| (events + 1, lost + loss.run));
    let total = (lost + all.iter().filter(|one| short(one.1)).count()).max(1);
    let run = if events == 0 { 1.0 } else { lost as f64 / f64::from(events) };
    let found = Losses { chance: lost as f64 / total as f64, run };
    let managed = if full { None } else { managed(&losses, &all) };
    (Queue { holds: Bytes::new(most as u64), full }, found, managed)
}

/// The median delay at losses, where they come with the queue though it was never full: where more of them than chance
/// allows (three standard deviations) stand above one of the quartiles of all delays.
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

/// Each bin's capacity in bit/s; of unknown ones the nearest known one's, or what was sent at most.
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

/// The share of the packets that arrived after more than three that had left later.
fn late(points: &[Point]) -> f64 {
    let arrived: Vec<f64> = points.iter().filter_map(|point| point.delay().and(point.out())).collect();
    let behind = |i: usize| arrived[i + 1..(i + 65).min(arrived.len())].iter().filter(|at| **at < arrived[i]).count();
    let late = (0..arrived.len()).filter(|i| behind(*i) > 3).count();
    late as f64 / arrived.len().max(1) as f64
}
