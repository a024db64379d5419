#![allow(
    clippy::disallowed_methods,
    reason = "a live session's seed, and the key of the numbers of its peers' addresses, must differ from run to run"
)]

use crate::LiveError;
use aes::Aes128;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use std::sync::LazyLock;
use steadycast_units::Seed;

fn none(error: getrandom::Error) -> LiveError {
    let remedy = "a Linux kernel from 3.17 on has them (`getrandom`)";
    LiveError::new("no random numbers for a session", error, remedy)
}

/// Returns a random seed for the SSRC, the first sequence number and the RTCP intervals.
///
/// # Errors
/// The system provides no random numbers.
pub(crate) fn seed() -> Result<Seed, LiveError> {
    getrandom::u64().map(Seed).map_err(none)
}

/// Returns random bytes for a secret.
///
/// # Errors
/// The system provides no random numbers.
pub(crate) fn secret<const N: usize>() -> Result<[u8; N], LiveError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map(|()| bytes).map_err(none)
}

/// Returns a pseudo-random number that is the same for the same bytes. Because of a secret key, nobody can construct
/// bytes that collide.
pub(crate) fn number(bytes: [u8; 16]) -> u64 {
    static KEY: LazyLock<[u8; 16]> = LazyLock::new(|| {
        // If there are no random numbers, a key of zero does no harm, because no session can start then.
        let half = || seed().map_or(0, |seed| seed.0).to_be_bytes();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&half());
        key[8..].copy_from_slice(&half());
        key
    });
    // The first block of the key stream is AES(key, bytes).
    let mut out = [0; 8];
    Ctr128BE::<Aes128>::new(&(*KEY).into(), &bytes.into()).apply_keystream(&mut out);
    u64::from_be_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_have_different_seeds() {
        assert_ne!(seed().unwrap().0, seed().unwrap().0);
    }
}
