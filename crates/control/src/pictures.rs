//! The video's properties as a controller sees them: groups of pictures (GOPs) and quantizers.

use steadycast_units::{Rate, Span};

/// A quantizer and the rates that it leads to. The rates include packet headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The quantizer. A larger value means lower quality.
    pub quantizer: u8,
    /// The mean rate over the whole video.
    pub rate: Rate,
    /// The mean rate over the largest GOP.
    pub peak: Rate,
}

/// The frame interval, GOP duration and quantizers of a flow's video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pictures {
    /// The frame interval.
    pub frame: Span,
    /// The GOP's duration. The quantizer changes only between GOPs.
    pub group: Span,
    /// All quantizers, ascending and never empty. A larger one usually has a lower rate.
    pub rungs: Vec<Rung>,
}

impl Pictures {
    /// Returns a substitute for the video of the MPEG-TFRCP paper. It has GOPs of 30 frames, 29.97 frames per second,
    /// and the quantizers 2, 4 … 62.
    ///
    /// The paper prints 5.25 Mb/s for quantizer 12. The exponent was fitted to the paper's other rates.
    ///
    /// ```text
    ///  rate(Q) = 5.25 Mb/s · (12/Q)^0.9
    /// ```
    pub fn stand_in() -> Self {
        let rate = |q: u8| Rate::from_bps_f64(5.25e6 * libm::pow(12.0 / f64::from(q), 0.9));
        let rungs = (1..=31).map(|n| 2 * n).map(|q| Rung { quantizer: q, rate: rate(q), peak: rate(q) }).collect();
        let second = 1_000_000_000u64;
        Self { frame: Span::nanos(second * 100 / 2997), group: Span::nanos(second * 3000 / 2997), rungs }
    }

    /// Returns the lowest mean rate of all quantizers.
    pub fn lowest(&self) -> Rate {
        self.rungs.iter().map(|r| r.rate).min().unwrap_or(Rate::ZERO)
    }

    /// Returns the highest mean rate of all quantizers.
    pub fn highest(&self) -> Rate {
        self.rungs.iter().map(|r| r.rate).max().unwrap_or(Rate::MAX)
    }

    /// Returns the index of the best quantizer whose mean rate is at most `rate`. If there is none, returns the index
    /// of the quantizer with the lowest rate.
    pub fn within(&self, rate: Rate) -> usize {
        let cheapest = (0..self.rungs.len()).min_by_key(|i| self.rungs[*i].rate).unwrap_or(0);
        // Quantizers ascend and quality falls with them, so the first quantizer that fits is the best.
        self.rungs.iter().position(|r| r.rate <= rate).unwrap_or(cheapest)
    }

    /// Returns the index of the first quantizer that is at least `wanted`. If there is none, returns the last index.
    pub fn at_least(&self, wanted: f64) -> usize {
        let place = self.rungs.iter().position(|r| f64::from(r.quantizer) >= wanted);
        place.unwrap_or(self.rungs.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_in_costs_what_the_paper_prints_at_twelve_and_falls() {
        let map = Pictures::stand_in();
        let at = |q: u8| map.rungs.iter().find(|r| r.quantizer == q).map(|r| r.rate);
        assert_eq!(at(12), Some(Rate::kbps(5250)));
        assert_eq!(at(60).map(|r| r.as_bps() / 1_000), Some(1233));
        assert!(map.rungs.windows(2).all(|w| w[0].rate > w[1].rate && w[0].quantizer < w[1].quantizer));
        assert_eq!((map.lowest(), map.highest()), (map.rungs[30].rate, map.rungs[0].rate));
        assert_eq!(map.group.as_nanos(), 1_001_001_001);
    }

    #[test]
    fn the_best_quantizer_within_a_rate_is_found_and_below_all_of_them_the_cheapest() {
        let map = Pictures::stand_in();
        assert_eq!(map.rungs[map.within(Rate::kbps(5250))].quantizer, 12);
        assert_eq!(map.rungs[map.within(Rate::kbps(5249))].quantizer, 14);
        assert_eq!(map.rungs[map.within(Rate::kbps(1))].quantizer, 62);
        assert_eq!(map.rungs[map.at_least(60.0)].quantizer, 60);
        assert_eq!(map.rungs[map.at_least(58.5)].quantizer, 60);
        assert_eq!(map.rungs[map.at_least(99.0)].quantizer, 62);
        assert_eq!(map.rungs[map.at_least(-3.0)].quantizer, 2);
    }
}
