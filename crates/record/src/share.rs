//! Max–min fair shares of links, at one time and over time. A claim is a flow or another user of links.

use steadycast_units::{Rate, Span, Steps, Time};

/// The rate that a claim could use at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The claim is not present. It uses nothing and has no share.
    Absent,
    /// The claim could use this rate at most.
    AtMost(Rate),
    /// The claim could use any rate.
    All,
}

/// Claims on links. Each claim, for example a flow, uses a list of links.
pub struct Claims {
    /// The links that each claim uses, as indices into `links`.
    ways: Vec<Vec<u32>>,
    /// The numbers of all links that are used, in ascending order.
    links: Vec<u32>,
    /// The claims that use each link, as indices into `ways`.
    users: Vec<Vec<u32>>,
}

/// The part of a link's rate that is not assigned to claims yet.
struct Remaining {
    /// The unassigned rate in bit/s. `None` if the link is unlimited.
    rate: Option<u64>,
    open: u64,
}

impl Remaining {
    /// Returns the rate that each claim gets if the unassigned rate is divided equally among the claims that have no
    /// share yet.
    fn level(&self) -> Option<u64> {
        self.rate.filter(|_| self.open > 0).map(|rate| rate / self.open)
    }
}

impl Claims {
    /// Creates the claims. `ways[n]` lists the numbers of the links that claim `n` uses.
    pub fn new(ways: &[Vec<u32>]) -> Self {
        let mut links: Vec<u32> = ways.iter().flatten().copied().collect();
        links.sort_unstable();
        links.dedup();
        let mut users = vec![Vec::new(); links.len()];
        let mut own = Vec::with_capacity(ways.len());
        for (n, way) in ways.iter().enumerate() {
            // Add each link only once, even if claim `n` uses it twice.
            let mut places: Vec<u32> =
                way.iter().filter_map(|l| links.binary_search(l).ok()).map(|p| p as u32).collect();
            places.sort_unstable();
            places.dedup();
            places.iter().for_each(|place| users[*place as usize].push(n as u32));
            own.push(places);
        }
        Self { ways: own, links, users }
    }

    /// Returns the numbers of all links that claims use, in ascending order.
    pub fn links(&self) -> &[u32] {
        &self.links
    }

    /// Returns the max–min fair rate of each claim. All rates grow evenly. The rate of a claim stops growing if it
    /// meets the claim's demand, or if a link of the claim is full. `capacity` has the rate of each link in
    /// [`Claims::links`], or `None` for an unlimited link. The result is `None` for a claim that is absent or that
    /// nothing limits.
    pub fn fair(&self, demands: &[Demand], capacity: &[Option<Rate>]) -> Vec<Option<Rate>> {
        let mut shares: Vec<Option<Rate>> = vec![None; self.ways.len()];
        let present = |n: &u32| demands[*n as usize] != Demand::Absent;
        let open = |users: &Vec<u32>| users.iter().filter(|n| present(n)).count() as u64;
        let left =
            |(rate, users): (&Option<Rate>, &Vec<u32>)| Remaining { rate: rate.map(Rate::as_bps), open: open(users) };
        let mut left: Vec<Remaining> = capacity.iter().zip(&self.users).map(left).collect();
        let mut waiting: Vec<u32> = (0..self.ways.len() as u32).filter(present).collect();
        while !waiting.is_empty() {
            // Find the smallest equal share, because the link with this share is the next bottleneck.
            let level = left.iter().filter_map(Remaining::level).min();
            let satisfied = |n: &u32| match demands[*n as usize] {
                Demand::AtMost(rate) if level.is_none_or(|level| rate.as_bps() <= level) => Some(rate),
                _ => None,
            };
            let full = |n: &u32| {
                let stops = |place: &u32| left[*place as usize].level() == level;
                let share = level.filter(|_| self.ways[*n as usize].iter().any(stops))?;
                Some(Rate::bps(share))
            };
            let mut stopped: Vec<(u32, Rate)> = waiting.iter().filter_map(|n| Some((*n, satisfied(n)?))).collect();
            // Satisfy small demands first, because what they leave raises the shares of other claims. Assign the shares
            // of full links only if there is no such demand.
            if stopped.is_empty() {
                stopped = waiting.iter().filter_map(|n| Some((*n, full(n)?))).collect();
            }
            // Stop if nothing limits the remaining claims.
            if stopped.is_empty() {
                break;
            }
            for (n, share) in stopped {
                shares[n as usize] = Some(share);
                for place in &self.ways[n as usize] {
                    let link = &mut left[*place as usize];
                    link.rate = link.rate.map(|rate| rate.saturating_sub(share.as_bps()));
                    link.open -= 1;
                }
            }
            waiting.retain(|n| shares[*n as usize].is_none());
        }
        shares
    }

    /// Returns for each claim whether it competes. A claim competes if it uses a link together with another claim, and
    /// if the `shares` of the claims on this link fill the link.
    fn compete(&self, demands: &[Demand], capacity: &[Option<Rate>], shares: &[Option<Rate>]) -> Vec<bool> {
        let mut compete = vec![false; self.ways.len()];
        for (users, capacity) in self.users.iter().zip(capacity) {
            let present = || users.iter().map(|n| *n as usize).filter(|n| demands[*n] != Demand::Absent);
            let load: u64 = present().filter_map(|n| shares[n]).map(Rate::as_bps).sum();
            // Allow 1 bit/s per claim, because the integer division leaves less than this unassigned.
            let is_full = capacity.is_some_and(|capacity| load + present().count() as u64 >= capacity.as_bps());
            if is_full && present().count() > 1 {
                present().for_each(|n| compete[n] = true);
            }
        }
        compete
    }
}

/// The links that a claim uses over time.
pub type Path = Steps<Vec<u32>>;

/// Claims whose links change over time.
pub struct ChangingClaims(Steps<Claims>);

impl ChangingClaims {
    /// Creates the claims. `paths[n]` lists the links that claim `n` uses.
    pub fn new(paths: &[&Path]) -> Self {
        let claims = |at: Time| Claims::new(&paths.iter().map(|path| path.at(at).clone()).collect::<Vec<_>>());
        let mut changes: Vec<Time> = paths.iter().flat_map(|path| path.iter()).map(|(at, _)| at).collect();
        changes.sort_unstable();
        changes.dedup();
        let mut steps = Steps::constant(claims(Time::ZERO));
        for at in changes.into_iter().filter(|at| *at > Time::ZERO) {
            steps.then(at, claims(at));
        }
        Self(steps)
    }

    /// Returns the times at which the links of a claim change, in ascending order.
    pub fn changes(&self) -> impl Iterator<Item = Time> {
        self.0.iter().map(|(at, _)| at)
    }

    /// Returns the numbers of all links that claims use at some time, in ascending order.
    pub fn links(&self) -> Vec<u32> {
        let mut links: Vec<u32> = self.0.iter().flat_map(|(_, claims)| &claims.links).copied().collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Returns the number of claims.
    fn count(&self) -> usize {
        self.0.at(Time::ZERO).ways.len()
    }

    /// Returns the mean shares of each claim over time. `edges` is a list of times in ascending order. Nothing changes
    /// between two successive edges. `demand` returns the demand of a claim in such a period, and `capacity` returns
    /// the capacity of a link in it. `from` has the time from which each claim counts.
    pub fn over_time(
        &self,
        edges: &[Time],
        from: &[Time],
        demand: impl FnMut(usize, Time, Time) -> Demand,
        capacity: impl FnMut(u32, Time, Time) -> Option<Rate>,
    ) -> Vec<Shares> {
        let mut means: Vec<(Mean, Mean)> = (0..self.count()).map(|_| Default::default()).collect();
        let mut contested: Vec<Vec<(Time, Time)>> = vec![Vec::new(); self.count()];
        self.each_period(edges, demand, capacity, |(begin, end), n, share, competes| {
            if begin < from[n] {
                return;
            }
            means[n].0.add(share, end.since(begin));
            if !competes {
                return;
            }
            means[n].1.add(share, end.since(begin));
            // Join the period to the previous one if they are adjacent.
            match contested[n].last_mut() {
                Some((_, until)) if *until == begin => *until = end,
                _ => contested[n].push((begin, end)),
            }
        });
        let share = |((there, competing), times): ((Mean, Mean), Vec<(Time, Time)>)| Shares {
            there: there.rate(),
            time_there: there.span,
            competing: competing.rate(),
            time_competing: competing.span,
            times,
        };
        means.into_iter().zip(contested).map(share).collect()
    }

    /// Returns the mean share of each claim in each interval of length `interval`. The mean is over the time in which
    /// the claim is present. It is `None` if the claim is absent or unlimited in the interval. The other arguments are
    /// the same as in [`ChangingClaims::over_time`].
    pub fn by_interval(
        &self,
        edges: &[Time],
        interval: Span,
        demand: impl FnMut(usize, Time, Time) -> Demand,
        capacity: impl FnMut(u32, Time, Time) -> Option<Rate>,
    ) -> Vec<Vec<Option<Rate>>> {
        let length = interval.as_nanos().max(1);
        let count = edges.last().map_or(0, |end| end.as_nanos().div_ceil(length));
        let mut means: Vec<Vec<Mean>> =
            (0..self.count()).map(|_| (0..count).map(|_| Mean::default()).collect()).collect();
        self.each_period(edges, demand, capacity, |(begin, end), n, share, _| {
            for place in begin.as_nanos() / length..end.as_nanos().div_ceil(length) {
                let first = begin.as_nanos().max(place * length);
                let last = end.as_nanos().min((place + 1) * length);
                means[n][place as usize].add(share, Span::nanos(last - first));
            }
        });
        means.into_iter().map(|each| each.iter().map(Mean::rate).collect()).collect()
    }

    /// Calls `visit` for each claim that is present in a period. A period is the time between two successive `edges`.
    /// The arguments of `visit` are the period, the number of the claim, its share, and whether it competes.
    fn each_period(
        &self,
        edges: &[Time],
        mut demand: impl FnMut(usize, Time, Time) -> Demand,
        mut capacity: impl FnMut(u32, Time, Time) -> Option<Rate>,
        mut visit: impl FnMut((Time, Time), usize, Option<Rate>, bool),
    ) {
        let mut last = (None, Vec::new(), Vec::new());
        let (mut shares, mut compete) = (Vec::new(), Vec::new());
        for (begin, end) in edges.iter().zip(edges.iter().skip(1)).map(|(begin, end)| (*begin, *end)) {
            let claims = self.0.at(begin);
            let demands: Vec<Demand> = (0..self.count()).map(|n| demand(n, begin, end)).collect();
            let rates: Vec<Option<Rate>> = claims.links.iter().map(|link| capacity(*link, begin, end)).collect();
            let now = (Some(self.0.next_change(begin)), demands, rates);
            // Compute the shares only if something has changed, because this takes long in large networks.
            if now != last {
                shares = claims.fair(&now.1, &now.2);
                compete = claims.compete(&now.1, &now.2, &shares);
                last = now;
            }
            for n in (0..self.count()).filter(|n| last.1[*n] != Demand::Absent) {
                visit((begin, end), n, shares[n], compete[n]);
            }
        }
    }
}

/// The mean max–min shares of a claim.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// The mean share while the claim is present. `None` if the claim is never present, or if its share is unlimited at
    /// some time.
    pub there: Option<Rate>,
    /// How long the claim is present.
    pub time_there: Span,
    /// The mean share while the claim competes. `None` if the claim never competes, or if its share is unlimited while
    /// it competes.
    pub competing: Option<Rate>,
    /// How long the claim competes. A claim competes if it uses a link together with another claim, and if the fair
    /// shares fill this link.
    pub time_competing: Span,
    /// The periods in which the claim competes, in ascending order.
    pub times: Vec<(Time, Time)>,
}

#[derive(Default)]
struct Mean {
    /// The integral of the share over time, in bit/s times nanoseconds.
    sum: u128,
    span: Span,
    unlimited: bool,
}

impl Mean {
    fn add(&mut self, rate: Option<Rate>, span: Span) {
        self.span += span;
        match rate {
            Some(rate) => self.sum += u128::from(rate.as_bps()) * u128::from(span.as_nanos()),
            None => self.unlimited = true,
        }
    }

    fn rate(&self) -> Option<Rate> {
        let mean = self.sum.checked_div(u128::from(self.span.as_nanos()))?;
        (!self.unlimited).then(|| Rate::bps(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

/// Returns Jain's fairness index, (Σx)² / (n·Σx²). It is 1 if all rates are equal, and 1/n if a single flow has all the
/// rate. Returns `None` if all rates are zero or if there are fewer than two flows.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (rates.len() > 1 && squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn jain_is_one_for_equals_and_a_half_for_all_or_nothing() {
        assert_eq!(jain(&[1.0, 1.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[1.0]), None);
    }

    const ALL: Demand = Demand::All;

    #[test]
    fn what_one_leaves_goes_to_the_others() {
        let claims = Claims::new(&[vec![0], vec![0, 1], vec![1], vec![1]]);
        let capacity = [Some(Rate::mbps(4)), Some(Rate::mbps(10))];
        let wanted = [ALL, ALL, Demand::AtMost(Rate::mbps(1)), ALL];
        let mbps = |shares: Vec<Option<Rate>>| shares.iter().map(|s| s.map(Rate::as_bps)).collect::<Vec<_>>();
        let expected = [Some(2_000_000), Some(2_000_000), Some(1_000_000), Some(7_000_000)];
        assert_eq!(mbps(claims.fair(&wanted, &capacity)), expected);
        assert_eq!(mbps(Claims::new(&[vec![9]]).fair(&[ALL], &[None])), [None]);
    }

    fn always(ways: &[Vec<u32>]) -> ChangingClaims {
        let paths: Vec<Path> = ways.iter().cloned().map(Path::constant).collect();
        ChangingClaims::new(&paths.iter().collect::<Vec<_>>())
    }

    /// A random case. It has up to six claims on up to four links. The demands and the rates change each second, for up
    /// to five seconds.
    #[derive(Clone, Debug)]
    struct World {
        ways: Vec<Vec<u32>>,
        seconds: Vec<(Vec<Demand>, Vec<Rate>)>,
    }

    impl World {
        /// Returns the fair rates of the claims in each second.
        fn fair_by_second(&self, claims: &Claims) -> Vec<Vec<Option<Rate>>> {
            let fair = |(demands, rates): &(Vec<Demand>, Vec<Rate>)| {
                let capacity: Vec<_> = claims.links().iter().map(|link| Some(rates[*link as usize])).collect();
                claims.fair(demands, &capacity)
            };
            self.seconds.iter().map(fair).collect()
        }
    }

    fn world() -> impl Strategy<Value = World> {
        let rate = || (0..1_000_u64).prop_map(Rate::kbps);
        let demand = prop_oneof![
            1 => Just(Demand::Absent),
            2 => rate().prop_map(Demand::AtMost),
            3 => Just(Demand::All)
        ];
        let way = prop::collection::btree_set(0..4_u32, 1..4).prop_map(|way| way.into_iter().collect::<Vec<_>>());
        prop::collection::vec(way, 1..7).prop_flat_map(move |ways| {
            let second = (prop::collection::vec(demand.clone(), ways.len()), prop::collection::vec(rate(), 4));
            prop::collection::vec(second, 1..6).prop_map(move |seconds| World { ways: ways.clone(), seconds })
        })
    }

    /// Computes the fair rates directly by their definition. In each round, every claim that can still grow gets one
    /// more step.
    fn filled(ways: &[Vec<u32>], demands: &[Demand], rates: &[Rate], step: u64) -> Vec<u64> {
        let mut shares = vec![0; ways.len()];
        let mut stopped: Vec<bool> = demands.iter().map(|demand| *demand == Demand::Absent).collect();
        while stopped.contains(&false) {
            for n in (0..ways.len()).filter(|n| !stopped[*n]) {
                shares[n] += step;
            }
            let load =
                |link: u32| -> u64 { (0..ways.len()).filter(|n| ways[*n].contains(&link)).map(|n| shares[n]).sum() };
            let over: Vec<bool> = rates.iter().enumerate().map(|(l, rate)| load(l as u32) > rate.as_bps()).collect();
            let stops = |n: usize| {
                matches!(demands[n], Demand::AtMost(most) if shares[n] > most.as_bps())
                    || ways[n].iter().any(|link| over[*link as usize])
            };
            let full: Vec<usize> = (0..ways.len()).filter(|n| !stopped[*n] && stops(*n)).collect();
            for n in full {
                (shares[n], stopped[n]) = (shares[n] - step, true);
            }
        }
        shares
    }

    proptest! {
        #[test]
        fn shares_are_those_of_filling_all_up_step_by_step(world in world()) {
            let claims = Claims::new(&world.ways);
            let (demands, rates) = &world.seconds[0];
            let capacity: Vec<_> = claims.links().iter().map(|link| Some(rates[*link as usize])).collect();
            let shares = claims.fair(demands, &capacity);
            // Allow a tolerance. A claim may get up to one step too little, which the other claims then get in
            // addition.
            let (step, all) = (500, world.ways.len() as u64);
            for (n, slow) in filled(&world.ways, demands, rates, step).into_iter().enumerate() {
                match shares[n] {
                    None => prop_assert_eq!(demands[n], Demand::Absent),
                    Some(share) => {
                        let apart = share.as_bps().abs_diff(slow);
                        prop_assert!(apart <= step * all * all, "{n}: {share} {slow}");
                    }
                }
            }
        }

        #[test]
        fn no_link_carries_more_than_it_can_and_a_link_that_holds_somebody_back_is_full(world in world()) {
            let claims = Claims::new(&world.ways);
            let (demands, rates) = &world.seconds[0];
            let capacity: Vec<_> = claims.links().iter().map(|link| Some(rates[*link as usize])).collect();
            let shares: Vec<u64> =
                claims.fair(demands, &capacity).iter().map(|share| share.map_or(0, Rate::as_bps)).collect();
            let users = |link: u32| -> Vec<usize> {
                (0..world.ways.len()).filter(|n| world.ways[*n].contains(&link)).collect()
            };
            let load = |link: u32| users(link).iter().map(|n| shares[*n]).sum::<u64>();
            let spare = world.ways.len() as u64;
            for (link, rate) in (0..).zip(rates) {
                prop_assert!(load(link) <= rate.as_bps());
            }
            for (n, way) in world.ways.iter().enumerate() {
                let enough = match demands[n] {
                    Demand::Absent => true,
                    Demand::AtMost(most) => {
                        prop_assert!(shares[n] <= most.as_bps());
                        shares[n] == most.as_bps()
                    }
                    Demand::All => false,
                };
                // A claim that gets less than its demand must use a full link on which no other claim has a larger
                // share.
                let bottleneck = way.iter().any(|link| {
                    load(*link) + spare > rates[*link as usize].as_bps()
                        && users(*link).iter().all(|other| shares[*other] <= shares[n] + spare)
                });
                prop_assert!(enough || bottleneck, "{n}: {shares:?}");
            }
        }

        #[test]
        fn over_time_each_second_counts_for_those_who_are_there(world in world()) {
            let claims = Claims::new(&world.ways);
            let edges: Vec<Time> = (0..=world.seconds.len() as u64).map(|s| Time::ZERO + Span::secs(s)).collect();
            let second = |at: Time| at.as_secs_f64() as usize;
            let from = vec![Time::ZERO; world.ways.len()];
            let means = always(&world.ways).over_time(
                &edges,
                &from,
                |n, at, _| world.seconds[second(at)].0[n],
                |link, at, _| Some(world.seconds[second(at)].1[link as usize]),
            );
            let each = world.fair_by_second(&claims);
            let apart = |mean: Option<Rate>, seconds: &[u64]| {
                let sum = seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64;
                (mean.map_or(0.0, Rate::as_bps_f64) - sum).abs()
            };
            for (n, share) in means.iter().enumerate() {
                let there: Vec<u64> = each.iter().filter_map(|shares| shares[n]).map(Rate::as_bps).collect();
                prop_assert_eq!(share.there.is_none(), there.is_empty());
                prop_assert!(apart(share.there, &there) <= 1.0, "{:?}", share);
                // By definition, a claim competes if another claim is present on one of its links, and if the shares of
                // all claims on this link fill it.
                let competes = |second: usize| {
                    let (demands, rates) = &world.seconds[second];
                    demands[n] != Demand::Absent && world.ways[n].iter().any(|link| {
                        let users: Vec<_> = (0..demands.len())
                            .filter(|m| world.ways[*m].contains(link) && demands[*m] != Demand::Absent)
                            .collect();
                        let load: u64 = users.iter().filter_map(|m| each[second][*m]).map(Rate::as_bps).sum();
                        users.len() > 1 && load + users.len() as u64 >= rates[*link as usize].as_bps()
                    })
                };
                let contested: Vec<u64> = (0..each.len()).filter(|second| competes(*second))
                    .filter_map(|second| each[second][n]).map(Rate::as_bps).collect();
                prop_assert_eq!(share.time_competing, Span::secs(contested.len() as u64));
                prop_assert!(apart(share.competing, &contested) <= 1.0, "{:?}", share);
                let told: Span = share.times.iter().map(|(begin, end)| end.since(*begin)).sum();
                prop_assert_eq!(told, share.time_competing);
            }
        }

        #[test]
        fn an_interval_has_the_mean_of_the_parts_that_a_claim_is_present(world in world(), millis in 100..3_000_u64) {
            let claims = Claims::new(&world.ways);
            let edges: Vec<Time> = (0..=world.seconds.len() as u64).map(|n| Time::ZERO + Span::secs(n)).collect();
            let second = |at: Time| at.as_secs_f64() as usize;
            let told = always(&world.ways).by_interval(
                &edges,
                Span::millis(millis),
                |n, at, _| world.seconds[second(at)].0[n],
                |link, at, _| Some(world.seconds[second(at)].1[link as usize]),
            );
            let each = world.fair_by_second(&claims);
            for (n, intervals) in told.iter().enumerate() {
                prop_assert_eq!(intervals.len() as u64, (world.seconds.len() as u64 * 1_000).div_ceil(millis));
                for (place, share) in (0..).zip(intervals) {
                    // Compute the expected result millisecond by millisecond.
                    let inside = place * millis..(place + 1) * millis;
                    let shares = inside.filter_map(|at| each.get(at as usize / 1_000)?[n]);
                    let parts: Vec<f64> = shares.map(Rate::as_bps_f64).collect();
                    prop_assert_eq!(share.is_none(), parts.is_empty());
                    let mean = parts.iter().sum::<f64>() / parts.len().max(1) as f64;
                    prop_assert!((share.map_or(0.0, Rate::as_bps_f64) - mean).abs() <= 1.0, "{share:?} {mean}");
                }
            }
        }

        #[test]
        fn equals_have_equal_shares_and_what_takes_its_demand_has_all_of_its_share(
            rate in 1..1_000_u64, flows in 1..6_usize, taken in 0..1_000_u64,
        ) {
            let ways = vec![vec![0]; flows + 1];
            let (claims, rate, taken) = (Claims::new(&ways), Rate::kbps(rate), Rate::kbps(taken));
            let mut demands = vec![ALL; flows];
            demands.push(Demand::AtMost(taken));
            let shares = claims.fair(&demands, &[Some(rate)]);
            prop_assert!(shares[..flows].iter().all(|share| *share == shares[0]));
            if taken.as_bps() * (flows as u64 + 1) <= rate.as_bps() {
                prop_assert_eq!(shares[flows], Some(taken));
            }
            let sum: u64 = shares.iter().flatten().map(|share| share.as_bps()).sum();
            prop_assert!(rate.as_bps() - sum <= flows as u64, "{sum} of {rate}");
        }
    }
}
