//! Loss repair: retransmission (RFC 4588) on generic NACKs (RFC 4585, section 6.2.1), and parity packets (FEC).
//!
//! A [`NackRequester`] at the receiver schedules NACKs. A
//! [`RetransmissionCache`](steadycast_sender::RetransmissionCache) at the sender selects what to retransmit.

mod blocks;
mod nack_requester;
mod parity_requester;
mod streams;

pub(crate) use blocks::{Blocks, Need, Parity, ParityRequestContext, Solver};
pub use blocks::{PARITY_MORE, ParitySettings, Protected, Protection, Recovered};
pub(crate) use nack_requester::NackRequester;
pub(crate) use parity_requester::{Group, MAX_REQUESTING_MEMBERS, ParityRequester};
pub(crate) use streams::{NextParity, RepairStreams};

use std::collections::BTreeMap;
use steadycast_units::{Span, Time, sums};

/// The receivers' announced play-out delays, by SSRC, with their expiry times.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedPlayouts(BTreeMap<u32, (Span, Time)>);

impl AnnouncedPlayouts {
    /// Stores the play-out delay `waits` that the receiver `who` announced.
    pub(crate) fn announce(&mut self, now: Time, who: u32, waits: Span, until: Time) {
        self.0.retain(|_, (_, until)| now < *until);
        self.0.insert(who, (waits, until));
    }

    /// Returns the longest valid delay, so that no receiver can shorten another's.
    pub(crate) fn longest(&self, now: Time) -> Option<Span> {
        self.0.values().filter(|(_, until)| now < *until).map(|(waits, _)| *waits).max()
    }
}

/// Counts of a receiver's requests and of their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of RTCP packets with a NACK or a parity request.
    pub nacks: u64,
    /// Number of requested packets, counted with each request.
    pub asked: u64,
    /// Number of lost packets that arrived as retransmissions.
    pub repaired: u64,
}

sums!(Requests { nacks, asked, repaired });
