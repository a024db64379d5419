//! A web browser or a WHIP server as the other end of a live sender or receiver.
//!
//! Everything is sans-IO, except that the cryptographic libraries take random numbers from the system. [`agree`] and
//! [`agree_to_receive`] negotiate an offer. [`propose`] is the offer to a server, and [`NegotiatedParameters::accept`]
//! reads its answer. A [`Tunnel`] is the ICE and DTLS connection, and a [`Demultiplexer`] attributes a shared port's
//! datagrams to tunnels.

mod answer;
mod certificate;
mod controlling;
mod demultiplexer;
pub mod lines;
mod offer;
mod transport;
mod tunnel;

// Only listed to select its features.
use num_traits as _;

pub use answer::{
    Feedback, LocalParameters, LocalSources, NegotiatedAudio, NegotiatedParameters, NegotiationError, Role, Stream,
    agree, agree_to_receive,
};
pub use certificate::{Certificate, Fingerprint};
pub use demultiplexer::{Demultiplexer, DropReason};
pub use dimpl::SrtpProfile;
pub use offer::propose;
pub use tunnel::{
    CONNECT_TIMEOUT, CONSENT_TIMEOUT, Keys, MIN_SILENCE, Output, Protocol, State, Tunnel, TunnelParameters,
};

/// The ICE user name and password of an end (RFC 8445, section 5.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `a=ice-ufrag`.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub password: String,
}

impl Credentials {
    /// Creates credentials from random bytes: 64 bits for the user name, 128 for the password.
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
