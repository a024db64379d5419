//! Loss repair: retransmission (RFC 4588) on generic NACKs (RFC 4585, section 6.2.1), and parity packets (FEC).
//!
//! At the receiver, a [`NackRequester`] schedules NACKs. At the sender, a
//! [`RetransmissionCache`](steadycast_sender::RetransmissionCache) decides which packets are retransmitted.

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

/// The play-out delays that receivers have announced, with the times at which the announcements expire. The key is the
/// receiver's SSRC.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedPlayouts(BTreeMap<u32, (Span, Time)>);

impl AnnouncedPlayouts {
    /// Stores the play-out delay `waits` that the receiver `who` announced.
    pub(crate) fn announce(&mut self, now: Time, who: u32, waits: Span, until: Time) {
        self.0.retain(|_, (_, until)| now < *until);
        self.0.insert(who, (waits, until));
    }

    /// Returns the longest play-out delay that has not expired. The longest one is used, so that no receiver can
    /// shorten the delay of another receiver.
    pub(crate) fn longest(&self, now: Time) -> Option<Span> {
        self.0.values().filter(|(_, until)| now < *until).map(|(waits, _)| *waits).max()
    }
}

/// Numbers of a receiver's requests and of their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of RTCP packets that contained a NACK or a parity request.
    pub nacks: u64,
    /// Number of requested packets. A packet that is requested several times is counted each time.
    pub asked: u64,
    /// Number of lost packets that arrived as retransmissions.
    pub repaired: u64,
}

sums!(Requests { nacks, asked, repaired });
