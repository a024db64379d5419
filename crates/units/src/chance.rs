use crate::Span;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The seed of a scenario. Each part draws from its own generator, so an additional part does not change other parts'
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the generator of the part `name`, for example `"link.bottleneck.forward.loss"`.
    pub fn part(self, name: &str) -> Chance {
        Chance(Xoshiro256PlusPlus::seed_from_u64(self.derive(name).0))
    }
    /// Returns the seed of the part `name`.
    #[must_use]
    pub fn derive(self, name: &str) -> Self {
        // FNV-1a; with few names, a collision is unlikely.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }
}

/// A seeded random generator (xoshiro256++), the same on every machine.
#[derive(Clone, Debug)]
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// Draws from the uniform distribution in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Draws from the uniform distribution in (0, 1], so that a logarithm is finite.
    pub fn unit_open(&mut self) -> f64 {
        1.0 - self.unit()
    }
    /// Returns true with probability `p`.
    pub fn happens(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
    /// Draws from the uniform distribution in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
    /// Draws a span from the uniform distribution in [low, high).
    pub fn span_between(&mut self, low: Span, high: Span) -> Span {
        low + high.saturating_sub(low).scale(self.unit())
    }
    /// Draws from the exponential distribution with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit_open())
    }
    /// Draws from the Pareto distribution: density ∝ x^−(shape+1) above mean·(shape−1)/shape, shape > 1.
    pub fn pareto(&mut self, mean: f64, shape: f64) -> f64 {
        let scale = mean * (shape - 1.0) / shape;
        scale / libm::pow(self.unit_open(), 1.0 / shape)
    }
    /// Draws 32 uniform bits.
    pub fn bits32(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }
    /// Draws 64 uniform bits.
    pub fn bits64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
