#![allow(
    clippy::disallowed_methods,
    reason = "a live session's seed is the one number that must differ from run to run"
)]

use crate::LiveError;
use steadycast_units::Seed;

/// A seed from the system's random numbers: of it a session makes its SSRC, its first sequence number and RTCP's intervals.
///
/// # Errors
/// The system has none to give.
pub(crate) fn seed() -> Result<Seed, LiveError> {
    getrandom::u64().map(Seed).map_err(LiveError::Entropy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_have_different_seeds() {
        assert_ne!(seed().unwrap().0, seed().unwrap().0);
    }
}
