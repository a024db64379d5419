//! Finds the session of each datagram on a UDP port that several browsers share.
//!
//! A STUN request contains the ICE user name of its session (RFC 8445, section 7.2.2). If the request is valid, its
//! source address is bound to this session. For DTLS, RTP and RTCP, the session is found by the source address alone.
//! These protocols never bind an address.

use crate::tunnel::is_authentic_check;
use crate::{Credentials, Protocol};
use is::stun::StunMessage;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use steadycast_units::{Span, Time};

/// If no valid check has arrived from an address for this time, another session may bind the address.
///
/// The time exceeds the interval of a browser's checks. The interval is 2.5 s in Chromium, 5 s in Firefox, and 4 to 6 s
/// in RFC 7675, section 5.1. Therefore a check with a forged source can't take over the address of an active browser.
///
/// When a browser has left, a NAT may assign its port to a new browser. The new browser also gets the address, because
/// it repeats its checks for longer than this time.
const ADDRESS_HOLD: Span = Span::secs(10);
/// Maximum number of addresses per session. If there are more, the address with the oldest check is released.
const MAX_ADDRESSES: usize = 4;

/// Why a datagram was not assigned to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The datagram is a STUN request with an unknown user name.
    UnknownUser,
    /// The datagram is a STUN request for a known session. Its MESSAGE-INTEGRITY is invalid, or the browser's ICE user
    /// name in it is wrong.
    FailedIntegrity,
    /// The datagram is a valid STUN request, but another session is active at its source address.
    ForeignAddress,
    /// The datagram is not a STUN request, and its source address is not bound to a session.
    UnknownAddress,
    /// The datagram is a malformed STUN message, or uses a protocol other than STUN, DTLS, RTP and RTCP.
    OtherProtocol,
    /// The session's queue is full, because the session has not read the previous datagrams yet.
    FullQueue,
}

impl DropReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::UnknownUser,
        Self::FailedIntegrity,
        Self::ForeignAddress,
        Self::UnknownAddress,
        Self::OtherProtocol,
        Self::FullQueue,
    ];

    /// Returns the reason's name in the output of `/api/viewers`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownUser => "unknown_user",
            Self::FailedIntegrity => "failed_integrity",
            Self::ForeignAddress => "foreign_address",
            Self::UnknownAddress => "unknown_address",
            Self::OtherProtocol => "other_protocol",
            Self::FullQueue => "full_queue",
        }
    }
}

/// A session: the destination of its datagrams, the credentials that the browser's checks must have, and the addresses
/// that are bound to it.
struct Entry<T> {
    place: T,
    own: Credentials,
    peer_ufrag: String,
    addresses: Vec<SocketAddr>,
}

/// The session to which an address is bound. `ufrag` is the user name of the session.
struct Binding {
    ufrag: String,
    /// When the last valid check arrived from the address.
    checked: Time,
}

/// Assigns the datagrams of a port to sessions. A value of the type `T` is the destination of a session's datagrams.
///
/// The memory use depends only on the number of sessions. A datagram without a valid check only changes counters.
pub struct Demultiplexer<T> {
    sessions: BTreeMap<String, Entry<T>>,
    bindings: BTreeMap<SocketAddr, Binding>,
    dropped: [u64; DropReason::ALL.len()],
}

impl<T> Default for Demultiplexer<T> {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), bindings: BTreeMap::new(), dropped: [0; DropReason::ALL.len()] }
    }
}

impl<T> Demultiplexer<T> {
    /// Adds a session. `own` are the credentials of this end, which must be unique. `peer_ufrag` is the browser's user
    /// name.
    ///
    /// `place` is the destination of the session's datagrams.
    pub fn add(&mut self, own: Credentials, peer_ufrag: String, place: T) {
        self.remove(&own.ufrag);
        let ufrag = own.ufrag.clone();
        self.sessions.insert(ufrag, Entry { place, own, peer_ufrag, addresses: Vec::new() });
    }

    /// Removes a session and its bindings. `ufrag` is the user name of this end.
    pub fn remove(&mut self, ufrag: &str) {
        for address in self.sessions.remove(ufrag).into_iter().flat_map(|entry| entry.addresses) {
            self.bindings.remove(&address);
        }
    }

    /// Returns the `place` that was passed to [`Demultiplexer::add`] for the datagram's session.
    ///
    /// # Errors
    /// Returns the reason if the datagram belongs to no session. The caller then calls [`Demultiplexer::count`].
    pub fn route(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Result<&T, DropReason> {
        let ufrag = match Protocol::of(datagram) {
            Protocol::Other => return Err(DropReason::OtherProtocol),
            Protocol::Dtls | Protocol::Rtp => None,
            Protocol::Stun => {
                let message = StunMessage::parse(datagram).map_err(|_| DropReason::OtherProtocol)?;
                if message.is_binding_request() { Some(self.checked(now, from, &message)?) } else { None }
            }
        };
        let bound = || self.bindings.get(&from).map(|binding| binding.ufrag.clone());
        let ufrag = ufrag.or_else(bound).ok_or(DropReason::UnknownAddress)?;
        self.sessions.get(&ufrag).map(|entry| &entry.place).ok_or(DropReason::UnknownAddress)
    }

    /// Authenticates a check and binds its source address to its session. Returns the user name of the session.
    fn checked(&mut self, now: Time, from: SocketAddr, message: &StunMessage<'_>) -> Result<String, DropReason> {
        let named = message.split_username().and_then(|(ufrag, _)| self.sessions.get(ufrag));
        let entry = named.ok_or(DropReason::UnknownUser)?;
        if !is_authentic_check(message, &entry.own, &entry.peer_ufrag) {
            return Err(DropReason::FailedIntegrity);
        }
        let ufrag = entry.own.ufrag.clone();
        let former = self.bindings.get(&from).filter(|binding| binding.ufrag != ufrag);
        // Reject the check if another session was active here recently. A forged source address must not divert the
        // packets of an active browser.
        if former.is_some_and(|binding| now.since(binding.checked) < ADDRESS_HOLD) {
            return Err(DropReason::ForeignAddress);
        }
        self.bind(now, from, &ufrag);
        Ok(ufrag)
    }

    /// Binds an address to a session. The address is released from the session to which it was bound before.
    fn bind(&mut self, now: Time, from: SocketAddr, ufrag: &str) {
        let binding = Binding { ufrag: ufrag.to_owned(), checked: now };
        let former = self.bindings.insert(from, binding).map(|former| former.ufrag);
        if former.as_deref() == Some(ufrag) {
            return;
        }
        if let Some(entry) = former.and_then(|former| self.sessions.get_mut(&former)) {
            entry.addresses.retain(|address| *address != from);
        }
        let Some(entry) = self.sessions.get_mut(ufrag) else { return };
        entry.addresses.push(from);
        if entry.addresses.len() > MAX_ADDRESSES {
            let checked = |address: &SocketAddr| self.bindings.get(address).map(|binding| binding.checked);
            // The oldest address is never the new address, whose check is the latest.
            if let Some(oldest) = entry.addresses.iter().copied().min_by_key(checked) {
                entry.addresses.retain(|address| *address != oldest);
                self.bindings.remove(&oldest);
            }
        }
    }

    /// Counts a datagram that was not delivered.
    pub fn count(&mut self, reason: DropReason) {
        if let Some(count) = self.dropped.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// Returns how many datagrams were not delivered, for each reason.
    pub fn dropped(&self) -> [(DropReason, u64); DropReason::ALL.len()] {
        DropReason::ALL.map(|reason| (reason, self.dropped.get(reason as usize).copied().unwrap_or(0)))
    }

    /// Returns the number of bound addresses.
    pub fn bound(&self) -> usize {
        self.bindings.len()
    }
}
