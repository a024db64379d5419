use crate::Span;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The one seed of a scenario. Each part draws from a generator of its own, derived from the seed and the part's name,
/// so that adding a part never changes what another one draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The generator of the part called `name`, for example `"link.bottleneck.forward.loss"`.
    pub fn part(self, name: &str) -> Chance {
        Chance(Xoshiro256PlusPlus::seed_from_u64(self.derive(name).0))
    }
    /// A seed of its own for the part called `name`.
    #[must_use]
    pub fn derive(self, name: &str) -> Self {
        // FNV-1a over the name, started from the seed: names and seeds are few, so a collision is not a worry.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }
}

/// A seeded generator: xoshiro256++, the same draws on every machine.
#[derive(Clone, Debug)]
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Uniform in (0, 1]: safe to take the logarithm of.
    pub fn unit_open(&mut self) -> f64 {
        1.0 - self.unit()
    }
    /// True with probability `p`.
    pub fn happens(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
    /// Uniform in [low, high).
    pub fn span_between(&mut self, low: Span, high: Span) -> Span {
        low + high.saturating_sub(low).scale(self.unit())
    }
    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit_open())
    }
    /// Pareto distributed with the given mean and shape > 1: density ∝ x^−(shape+1) above the scale
    /// mean·(shape−1)/shape.
    pub fn pareto(&mut self, mean: f64, shape: f64) -> f64 {
        let scale = mean * (shape - 1.0) / shape;
        scale / libm::pow(self.unit_open(), 1.0 / shape)
    }
    /// 32 uniform bits: an SSRC, a first sequence number.
    pub fn bits32(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }
    /// 64 uniform bits.
    pub fn bits64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
