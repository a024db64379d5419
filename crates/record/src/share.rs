//! Max–min fair shares over links of constant rate.

use steadycast_units::Rate;

/// What a flow wants, and which links it needs.
pub struct Claim {
    /// `None`: as much as it can get.
    pub demand: Option<Rate>,
    /// Their numbers.
    pub links: Vec<u32>,
}

/// The max–min fair rate of each claim, by filling all up evenly until a link or a demand stops some. `capacity(l)` is
/// a link's rate, `None` when it has no constant one. A claim that nothing limits has no share.
pub fn fair(claims: &[Claim], capacity: impl Fn(u32) -> Option<Rate>) -> Vec<Option<Rate>> {
    let mut links: Vec<u32> = claims.iter().flat_map(|c| c.links.iter().copied()).collect();
    links.sort_unstable();
    links.dedup();
    let mut shares: Vec<Option<f64>> = vec![None; claims.len()];
    loop {
        let open: Vec<usize> = (0..claims.len()).filter(|n| shares[*n].is_none()).collect();
        // The level at which the next link is full, and which that is.
        let full = links.iter().filter_map(|l| {
            let users = open.iter().filter(|n| claims[**n].links.contains(l)).count();
            let taken: f64 = (0..claims.len()).filter(|n| claims[*n].links.contains(l)).filter_map(|n| shares[n]).sum();
            let rest = (capacity(*l)?.as_bps_f64() - taken).max(0.0);
            (users > 0).then(|| (rest / users as f64, *l))
        });
        let full = full.min_by(|a, b| a.0.total_cmp(&b.0));
        let least =
            open.iter().filter_map(|n| Some((claims[*n].demand?.as_bps_f64(), *n))).min_by(|a, b| a.0.total_cmp(&b.0));
        match (full, least) {
            (Some((level, _)), Some((demand, n))) if demand <= level => shares[n] = Some(demand),
            (None, Some((demand, n))) => shares[n] = Some(demand),
            (Some((level, link)), _) => {
                for n in open.iter().filter(|n| claims[**n].links.contains(&link)) {
                    shares[*n] = Some(level);
                }
            }
            (None, None) => return shares.into_iter().map(|s| s.map(Rate::from_bps_f64)).collect(),
        }
    }
}

/// Jain's index of fairness, (Σx)² / (n·Σx²): 1 when all are equal, 1/n when one has all. `None` without traffic, or
/// with fewer than two flows.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (rates.len() > 1 && squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_half_for_all_or_nothing() {
        assert_eq!(jain(&[1.0, 1.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[1.0]), None);
    }

    #[test]
    fn shares_are_max_min_fair() {
        let rates = [Rate::mbps(4), Rate::mbps(10)];
        let claim = |demand, links: &[u32]| Claim { demand, links: links.to_vec() };
        let all = [claim(None, &[0]), claim(None, &[0, 1]), claim(Some(Rate::mbps(1)), &[1]), claim(None, &[1])];
        let mbps: Vec<_> = fair(&all, |l| Some(rates[l as usize])).into_iter().map(|s| s.map(|r| r.as_bps())).collect();
        assert_eq!(mbps, [Some(2_000_000), Some(2_000_000), Some(1_000_000), Some(7_000_000)]);
        assert_eq!(fair(&[claim(None, &[9])], |_| None), [None]);
    }
}
