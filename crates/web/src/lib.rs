//! WebRTC with a web browser or a WHIP server at the other end.
//!
//! The crate does no input or output itself. Only its cryptographic libraries call the system, to get random numbers.
//! [`agree`] and [`agree_to_receive`] negotiate an offer. [`propose`] makes the offer to a server, and
//! [`NegotiatedParameters::accept`] reads the server's answer. A [`Tunnel`] is the ICE and DTLS connection. A
//! [`Demultiplexer`] assigns the datagrams of a shared port to tunnels.

mod answer;
mod certificate;
mod controlling;
mod demultiplexer;
pub mod lines;
mod offer;
mod transport;
mod tunnel;

// This dependency is not used directly. It is listed only to select its features.
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
    CONNECT_TIMEOUT, CONSENT_TIMEOUT, EndCause, Keys, MIN_SILENCE, Output, Protocol, State, Tunnel, TunnelParameters,
};

/// The ICE user name and the ICE password of an end (RFC 8445, section 5.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name (`a=ice-ufrag`).
    pub ufrag: String,
    /// The password (`a=ice-pwd`).
    pub password: String,
}

impl Credentials {
    /// Creates credentials from random bytes. The user name gets 64 bits, and the password gets 128 bits.
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
