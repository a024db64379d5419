use crate::Span;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The seed of a scenario. Each part of the scenario has its own generator. Therefore an additional part does not
/// change the random numbers of other parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the random generator of the part `name`, for example `"link.bottleneck.forward.loss"`.
    pub fn part(self, name: &str) -> Chance {
        Chance(Xoshiro256PlusPlus::seed_from_u64(self.derive(name).0))
    }
    /// Returns the seed of the part `name`.
    #[must_use]
    pub fn derive(self, name: &str) -> Self {
        // Compute the FNV-1a hash. A collision is unlikely, because there are few names.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }
}

/// A random generator with a seed (xoshiro256++). It gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// Returns a uniformly distributed number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Returns a uniformly distributed number in (0, 1]. It is never zero, so its logarithm is finite.
    pub fn unit_open(&mut self) -> f64 {
        1.0 - self.unit()
    }
    /// Returns true with probability `p`.
    pub fn happens(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
    /// Returns a uniformly distributed number in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
    /// Returns a uniformly distributed span in [low, high).
    pub fn span_between(&mut self, low: Span, high: Span) -> Span {
        low + high.saturating_sub(low).scale(self.unit())
    }
    /// Returns an exponentially distributed number with the mean `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit_open())
    }
    /// Returns a number with a Pareto distribution. Its density is proportional to x^−(shape+1) above
    /// mean·(shape−1)/shape. `shape` must be above 1.
    pub fn pareto(&mut self, mean: f64, shape: f64) -> f64 {
        let scale = mean * (shape - 1.0) / shape;
        scale / libm::pow(self.unit_open(), 1.0 / shape)
    }
    /// Returns 32 random bits.
    pub fn bits32(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }
    /// Returns 64 random bits.
    pub fn bits64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
