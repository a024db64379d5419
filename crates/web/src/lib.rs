//! A web browser as the other end of a live sender: the answer to what it offers, and the way to it.
//!
//! Both are pure: [`agree`] turns an offer's text into what is agreed on, and a [`Tunnel`] is told the time and what
//! arrived. Neither opens a socket or asks the clock. The cryptography draws its own secrets from the system.

mod answer;
mod certificate;
pub mod lines;
mod tunnel;

// Named for its feature alone.
use num_traits as _;

pub use answer::{Agreed, Feedback, Own, Refusal, Stream, agree};
pub use certificate::{Certificate, Fingerprint};
pub use dimpl::SrtpProfile;
pub use tunnel::{Ends, Keys, Output, PATIENCE, Protocol, QUIET, SILENCE, State, Tunnel};

/// User name and password of one end in ICE (RFC 8445, section 5.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `a=ice-ufrag`.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub password: String,
}

impl Credentials {
    /// Of random bytes: 64 bits of a name, 128 of a password.
    pub fn of(random: &[u8; 24]) -> Self {
        let (ufrag, password) = random.split_at(8);
        Self { ufrag: lines::hex(ufrag), password: lines::hex(password) }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, …)", self.ufrag)
    }
}
