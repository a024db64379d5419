//! Finds lasting steps of the delay. A lasting step occurs if one of the two clocks was set, or if the route changed.
//!
//! If a queue grows suddenly, it drains again. After a lasting step, in contrast, even the minimum delay stays changed.
//! The search chooses the steps whose removal makes the queueing delay, summed over the recording, as small as
//! possible.

/// Minimum size of a step in seconds. Twice the resolution of the delays is added to it.
const LEAST_STEP_S: f64 = 3e-3;
/// A step has to exceed the [`USUAL_PERCENT`]th percentile of the delay's changes between packets by this factor.
const OVER_USUAL: f64 = 1.25;
const USUAL_PERCENT: usize = 98;
/// Number of packets on each side of a step that are compared. All of them have to show the step, because a single late
/// packet is no step.
const PACKETS_BESIDE: usize = 3;
/// Largest plausible decrease of the queueing delay between two packets, in seconds. It is used if the packets'
/// departures are unknown.
const LONGEST_DRAIN_S: f64 = 0.04;
/// Length of a [`Cell`], in seconds.
const CELL_S: f64 = 0.25;
/// Minimum ratio of a step's size to the change of the delay between the packets before and after the step. The queue
/// causes the rest of this change.
const LEAST_OF_CHANGE: f64 = 0.5;
/// A step is evaluated over this time before it and after it, in seconds.
const SIDE_S: f64 = 60.0;
/// A step is chosen only if it reduces the queueing delay, integrated over time ([`standing`]), by more than its size
/// multiplied by this time, in seconds.
const LEAST_GAIN_S: f64 = 0.6;
/// The size of a step is computed from the minimum delays in this time before it and after it, in seconds.
const EXACT_SIDE_S: f64 = 10.0;
/// Maximum drift between two clocks, in seconds per second. If the delay has a larger slope, the queue grows.
pub(crate) const MOST_DRIFT: f64 = 1e-3;
/// Maximum number of changes of the delay that are examined as possible steps.
const MOST_CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DelayStep {
    /// Index of the first packet after the step. Packets are in the order of the `points` given to [`lasting_steps`].
    pub(crate) index: usize,
    /// Increase of the delay at the step, in seconds. It is negative if the delay decreases.
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy)]
struct Candidate {
    index: usize,
    /// Change of the delay since the previous packet, in seconds. It includes the change of the queue.
    change: f64,
    /// Smallest and largest plausible size of the step, in seconds.
    range: (f64, f64),
    /// Size of the step in seconds. It is `None` if the candidate is currently not chosen as a step.
    step: Option<f64>,
}

/// A part of the recording, at most [`CELL_S`] long. Candidates are at the boundaries of cells. `least` is the minimum
/// delay in the cell.
struct Cell {
    at: f64,
    lasts: f64,
    least: f64,
    segment: usize,
}

/// Which clock the times of the points are from. That clock has no steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The sender's clock.
    Departures,
    /// The receiver's clock.
    Arrivals,
}

/// Finds lasting steps. Each of `points` is a time on the clock `axis` and a delay, in seconds. The points are in the
/// order of their times. `resolution` is the resolution of the delays in seconds.
pub(crate) fn lasting_steps(points: &[(f64, f64)], axis: Axis, resolution: f64) -> Vec<DelayStep> {
    let mut candidates = candidates(points, axis, resolution);
    if candidates.is_empty() {
        return Vec::new();
    }
    let cells = cells(points, &candidates);
    // Each round makes the change that shortens the delays most. A step up and the step back down have to be tried
    // together, because neither of them shortens the delays alone.
    loop {
        let mut best: Option<(f64, Vec<Candidate>)> = None;
        for which in moves(&candidates) {
            let Some(other) = toggled(&cells, &candidates, &which) else { continue };
            let gain = gain(&cells, &candidates, &other, &which);
            if gain > best.as_ref().map_or(1e-9, |best| best.0) {
                best = Some((gain, other));
            }
        }
        let Some((_, better)) = best else { break };
        candidates = better;
    }
    // Compute the sizes twice, because the size of a step depends on the sizes of the steps beside it.
    for i in (0..candidates.len()).chain(0..candidates.len()) {
        candidates[i].step = candidates[i].step.map(|_| exact(&cells, &candidates, i));
    }
    if is_drift(&cells, &candidates) {
        return Vec::new();
    }
    let step = |one: &Candidate| one.step.map(|seconds| DelayStep { index: one.index, seconds });
    candidates.iter().filter_map(step).collect()
}

/// Returns the sets of candidates that are toggled together. Each candidate is toggled alone, and together with the
/// next candidate of the opposite sign.
fn moves(candidates: &[Candidate]) -> Vec<Vec<usize>> {
    let returns = |i: usize| {
        let is_back = |j: &usize| candidates[i].change * candidates[*j].change < 0.0;
        (i + 1..candidates.len()).find(is_back).map(|next| vec![i, next])
    };
    (0..candidates.len()).map(|i| vec![i]).chain((0..candidates.len()).filter_map(returns)).collect()
}

/// Finds changes of the delay that are larger than usual and that last for a few packets.
fn candidates(points: &[(f64, f64)], axis: Axis, resolution: f64) -> Vec<Candidate> {
    let least = |part: &[(f64, f64)]| part.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let most = |part: &[(f64, f64)]| part.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let n = PACKETS_BESIDE;
    let mut changes = Vec::new();
    for k in n..points.len().saturating_sub(n) {
        let (before, after) = (&points[k - n..k], &points[k..k + n]);
        let passed = points[k].0 - points[k - 1].0;
        let up = least(after) - most(before);
        // If the rise is mostly gone after a few packets, it was a single late packet.
        let up = if up >= (points[k].1 - points[k - 1].1) / 2.0 { up } else { 0.0 };
        // If the delay falls faster than time passes, it can't be a queue that drains. If the fall lasts, it is not a
        // single late packet.
        let (fall, lasts) = (points[k - 1].1 - points[k].1, least(before) - most(after));
        let down = if fall > passed + resolution && lasts >= fall / 2.0 { lasts } else { 0.0 };
        changes.push((k, up, down));
    }
    let usual = |values: &mut dyn Iterator<Item = f64>| {
        let mut sorted: Vec<f64> = values.map(|value| value.max(0.0)).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() * USUAL_PERCENT / 100).copied().unwrap_or(0.0)
    };
    let floor = LEAST_STEP_S + 2.0 * resolution;
    let growth = usual(&mut points.windows(2).map(|two| two[1].1 - two[0].1));
    let (up, down) = (usual(&mut changes.iter().map(|one| one.1)), usual(&mut changes.iter().map(|one| one.2)));
    let is_long = |&(_, rises, falls): &(usize, f64, f64)| {
        rises > floor.max(OVER_USUAL * up) || falls > floor.max(OVER_USUAL * down)
    };
    let mut found: Vec<(usize, f64, f64)> = changes.into_iter().filter(is_long).collect();
    found.sort_by(|a, b| b.1.max(b.2).total_cmp(&a.1.max(a.2)));
    found.truncate(MOST_CANDIDATES);
    found.sort_by_key(|one| one.0);
    let candidate = |(index, ..): (usize, f64, f64)| {
        let (before, after) = (points[index - 1], points[index]);
        let change = after.1 - before.1;
        let drained = if axis == Axis::Departures { after.0 - before.0 } else { LONGEST_DRAIN_S };
        let range = (change - growth, change + drained);
        Candidate { index, change, range, step: None }
    };
    found.into_iter().map(candidate).collect()
}

fn cells(points: &[(f64, f64)], candidates: &[Candidate]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut segment = 0;
    for (k, &(left, delay)) in points.iter().enumerate() {
        while candidates.get(segment).is_some_and(|one| one.index <= k) {
            segment += 1;
        }
        match cells.last_mut().filter(|cell| cell.segment == segment && left - cell.at < CELL_S) {
            Some(cell) => cell.least = cell.least.min(delay),
            None => {
                if let Some(last) = cells.last_mut() {
                    last.lasts = (left - last.at).min(CELL_S);
                }
                cells.push(Cell { at: left, lasts: CELL_S / 10.0, least: delay, segment });
            }
        }
    }
    cells
}

/// Returns a copy of `candidates` in which each candidate with an index in `which` is toggled: it becomes a step, or it
/// is no longer a step if it was one. Returns `None` if the queue would explain most of the delay's change at any step.
fn toggled(cells: &[Cell], candidates: &[Candidate], which: &[usize]) -> Option<Vec<Candidate>> {
    let mut other = candidates.to_vec();
    for &i in which {
        other[i].step = if other[i].step.is_none() { Some(exact(cells, &other, i)) } else { None };
    }
    // If the queue explains most of a change, the change is no step.
    let is_plausible = |one: &Candidate| one.step.is_none_or(|size| size / one.change >= LEAST_OF_CHANGE);
    other.iter().all(is_plausible).then_some(other)
}

/// Returns by how much `other` explains the delays better than `candidates`. `other` is a copy of `candidates` in which
/// each candidate with an index in `which` is toggled.
///
/// The result is the decrease of [`standing`], plus the decrease of the price of steps. The price of each step in
/// `which` is its size times [`LEAST_GAIN_S`]. It prevents steps that have no effect.
fn gain(cells: &[Cell], candidates: &[Candidate], other: &[Candidate], which: &[usize]) -> f64 {
    let (Some(&first), Some(&last)) = (which.first(), which.last()) else { return 0.0 };
    let at = |i: usize| cells.get(start_of(cells, i + 1)).map_or(0.0, |cell| cell.at);
    let from = cells.partition_point(|cell| cell.at < at(first) - SIDE_S);
    let to = cells.partition_point(|cell| cell.at <= at(last) + SIDE_S);
    let cost = |all: &[Candidate]| {
        let price: f64 = which.iter().filter_map(|&i| all[i].step).map(|size| LEAST_GAIN_S * size.abs()).sum();
        standing(&cells[from..to], all) + price
    };
    cost(candidates) - cost(other)
}

fn start_of(cells: &[Cell], segment: usize) -> usize {
    cells.partition_point(|cell| cell.segment < segment)
}

/// Subtracts the chosen steps from the delays. Returns the queueing delay that remains, integrated over time, in
/// seconds squared.
///
/// The queueing delay is the distance to a line below all minimum delays. The slope of this line is the clock drift.
fn standing(cells: &[Cell], candidates: &[Candidate]) -> f64 {
    let mut offset = 0.0;
    let mut next = 0;
    let points: Vec<(f64, f64, f64)> = cells
        .iter()
        .map(|cell| {
            while next < cell.segment {
                offset += candidates[next].step.unwrap_or(0.0);
                next += 1;
            }
            (cell.at, cell.least - offset, cell.lasts)
        })
        .collect();
    let line = line_below(&points);
    points.iter().map(|(at, delay, lasts)| (delay - line(*at)) * lasts).sum()
}

/// Whether the delay grows faster than [`MOST_DRIFT`] in nearly all segments between the steps, or falls faster in
/// nearly all of them. If so, clock drift or other flows explain the steps, and the steps are not trusted.
fn is_drift(cells: &[Cell], candidates: &[Candidate]) -> bool {
    const SEVERAL: usize = 3;
    const NEARLY_ALL: f64 = 0.8;
    let steps: Vec<usize> = candidates
        .iter()
        .enumerate()
        .filter(|(_, one)| one.step.is_some())
        .map(|(i, _)| start_of(cells, i + 1))
        .collect();
    if steps.len() < SEVERAL {
        return false;
    }
    let starts = [0].into_iter().chain(steps.iter().copied());
    let slopes: Vec<f64> = starts
        .zip(steps.iter().copied().chain([cells.len()]))
        .map(|(from, to)| {
            let points: Vec<(f64, f64, f64)> =
                cells[from..to].iter().map(|cell| (cell.at, cell.least, cell.lasts)).collect();
            slope_below(&points).1
        })
        .collect();
    let grow = slopes.iter().filter(|slope| **slope > MOST_DRIFT).count();
    let fall = slopes.iter().filter(|slope| **slope < -MOST_DRIFT).count();
    grow.max(fall) as f64 >= NEARLY_ALL * slopes.len() as f64
}

/// Returns the nearest line below all points. Its slope is limited to the maximum drift between clocks.
fn line_below(points: &[(f64, f64, f64)]) -> impl Fn(f64) -> f64 + use<> {
    let (hull, slope) = slope_below(points);
    let slope = slope.clamp(-MOST_DRIFT, MOST_DRIFT);
    let base = hull.iter().map(|point| point.1 - slope * point.0).fold(f64::INFINITY, f64::min);
    move |at| base + slope * at
}

/// Returns the lower convex hull of the points, and the slope of the hull at the middle of the points (Moon, Skelly,
/// Towsley, INFOCOM 1999).
fn slope_below(points: &[(f64, f64, f64)]) -> (Vec<(f64, f64)>, f64) {
    let hull = lower_hull(points.iter().map(|point| (point.0, point.1)));
    let weight: f64 = points.iter().map(|point| point.2).sum();
    let middle = points.iter().map(|point| point.0 * point.2).sum::<f64>() / weight.max(1e-12);
    let slope = edge_at(&hull, middle).map_or(0.0, |edge| edge.1);
    (hull, slope)
}

/// Returns the lower convex hull of the points, from left to right. The points are in the order of their first values.
pub(crate) fn lower_hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..] {
            // Keep `b`, because the hull turns upwards there.
            if (b.0 - a.0) * (point.1 - a.1) > (b.1 - a.1) * (point.0 - a.0) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Returns the edge of a hull at `at`: its left end, and its slope.
pub(crate) fn edge_at(hull: &[(f64, f64)], at: f64) -> Option<((f64, f64), f64)> {
    let edge = hull.windows(2).find(|edge| edge[0].0 <= at && at <= edge[1].0)?;
    Some((edge[0], (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0).max(1e-9)))
}

/// Returns the size of step `i` in seconds. This is the minimum delay after the step minus the minimum delay before it,
/// without the effect of the other chosen steps. If this size is outside of the candidate's `range`, returns the
/// candidate's `change`.
fn exact(cells: &[Cell], candidates: &[Candidate], i: usize) -> f64 {
    let one = &candidates[i];
    let middle = start_of(cells, i + 1);
    let Some(at) = cells.get(middle).map(|cell| cell.at) else { return one.change };
    let from = cells.partition_point(|cell| cell.at < at - EXACT_SIDE_S);
    let to = cells.partition_point(|cell| cell.at <= at + EXACT_SIDE_S);
    // Sums the sizes of the chosen steps in a range of candidates, in seconds.
    let others =
        |segments: std::ops::Range<usize>| -> f64 { candidates[segments].iter().filter_map(|other| other.step).sum() };
    let before = cells[from..middle].iter().map(|cell| cell.least + others(cell.segment..i));
    let after = cells[middle..to].iter().map(|cell| cell.least - others(i + 1..cell.segment));
    let moved = after.min_by(f64::total_cmp).zip(before.min_by(f64::total_cmp)).map(|(a, b)| a - b);
    moved.filter(|moved| (one.range.0..=one.range.1).contains(moved)).unwrap_or(one.change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Creates a call with 200 packets per second. The queue grows and drains, and the delay has steps. Each step is a
    /// time and a size in seconds.
    fn call(seconds: f64, period: f64, top: f64, drift: f64, steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut chance = 1_u64;
        let mut unit = || {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 11) as f64 / (1_u64 << 53) as f64
        };
        let count = (seconds * 200.0) as usize;
        (0..count)
            .map(|k| {
                let left = k as f64 * 0.005;
                let queue = (((left / period).fract() - 0.5).abs() * 4.0 - 1.0).max(0.0) * top + unit() * 1e-3;
                let moved: f64 = steps.iter().filter(|step| step.0 <= left).map(|step| step.1).sum();
                (left, 0.02 + queue + drift * left + moved)
            })
            .collect()
    }

    /// Generates the size of a step in seconds, and the slope of the queue in seconds per second. Smaller steps and
    /// steeper queues are not generated. They are missed in up to a third of the calls, because the queue's own changes
    /// between two packets are as large.
    fn single() -> impl Strategy<Value = (f64, f64)> {
        prop_oneof![(0.015..0.02_f64, 0.0..0.3_f64), (0.02..0.9_f64, 0.0..0.5_f64)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn a_step_is_found_with_its_place_and_size(
            (size, steepness) in single(),
            is_back: bool,
            at in 3.0..36.0_f64,
            period in 2.0..7.0_f64,
            drift in -3e-4..3e-4_f64,
        ) {
            let size = if is_back { -size } else { size };
            let top = steepness * period / 4.0;
            let found = lasting_steps(&call(40.0, period, top, drift, &[(at, size)]), Axis::Departures, 0.0);
            prop_assert_eq!(found.len(), 1, "{:?}", found);
            prop_assert!((found[0].index as f64 * 0.005 - at).abs() <= 0.006, "{:?}", found);
            prop_assert!((found[0].seconds - size).abs() <= 0.008, "{:?}", found);
        }

        #[test]
        fn steps_that_follow_each_other_are_found(
            // Steps that are smaller or follow each other sooner are not generated. A single step with the sum of their
            // sizes may be found instead.
            size in prop_oneof![0.03..0.3_f64, -0.3..-0.03_f64],
            every in 3.0..20.0_f64,
            alternates: bool,
            period in 2.0..7.0_f64,
            steepness in 0.0..0.6_f64,
        ) {
            let top = steepness * period / 4.0;
            let count = (36.0 / every) as usize;
            let steps: Vec<(f64, f64)> = (1..=count)
                .map(|k| (k as f64 * every, if alternates && k % 2 == 0 { -size } else { size }))
                .collect();
            let found = lasting_steps(&call(40.0, period, top, 0.0, &steps), Axis::Departures, 0.0);
            prop_assert_eq!(found.len(), count, "{:?}", found);
            for (step, truth) in found.iter().zip(&steps) {
                prop_assert!((step.index as f64 * 0.005 - truth.0).abs() <= 0.006, "{:?}", found);
                prop_assert!((step.seconds - truth.1).abs() <= 0.008, "{:?}", found);
            }
        }

        #[test]
        fn a_queue_a_stall_and_late_packets_are_no_steps(
            period in 2.0..20.0_f64,
            top in 0.0..0.5_f64,
            drift in -9e-4..9e-4_f64,
            stall in 0.0..1.0_f64,
            late in prop::collection::vec(0..7999_usize, 0..40),
        ) {
            let mut points = call(40.0, period, top, drift, &[]);
            for point in &mut points {
                point.1 += (stall - (point.0 - 15.0)).max(0.0) * f64::from(u8::from(point.0 >= 15.0));
            }
            for place in late {
                points[place].1 += 0.08;
            }
            prop_assert_eq!(lasting_steps(&points, Axis::Departures, 0.0), Vec::new());
        }
    }
}
