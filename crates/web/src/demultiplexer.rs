//! Demultiplexing of a UDP port that several browsers share.
//!
//! A STUN request names its session by the ICE user name (RFC 8445, section 7.2.2), and if its integrity is valid,
//! binds its source address to the session. DTLS, RTP and RTCP are attributed by the source address alone, and never
//! bind one.

use crate::tunnel::is_authentic_check;
use crate::{Credentials, Protocol};
use is::stun::StunMessage;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use steadycast_units::{Span, Time};

/// Time without a valid check after which an address may be bound to another session.
///
/// It exceeds the interval of a browser's checks: 2.5 s in Chromium, 5 s in Firefox, 4 to 6 s in RFC 7675, section 5.1.
/// A check with a forged source can therefore not take over an active browser's address.
///
/// A NAT may assign a dead browser's port to a new browser. The new browser gets the address, because it repeats its
/// checks for longer than this time.
const ADDRESS_HOLD: Span = Span::secs(10);
/// Maximum number of addresses per session. The address with the oldest check is released first.
const MAX_ADDRESSES: usize = 4;

/// Why a datagram was attributed to no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// A STUN request with an unknown user name.
    UnknownUser,
    /// A STUN request for a known session, with an invalid MESSAGE-INTEGRITY or a wrong ICE user name of the browser.
    FailedIntegrity,
    /// A valid STUN request from an address at which another session is active.
    ForeignAddress,
    /// A datagram other than a STUN request, from an address that is not bound to a session.
    UnknownAddress,
    /// A malformed STUN message, or a datagram of a protocol other than STUN, DTLS, RTP and RTCP.
    OtherProtocol,
    /// The session's queue is full, because it has not read the previous datagrams yet.
    FullQueue,
}

impl DropReason {
    /// All reasons in the order in which they are listed.
    pub const ALL: [Self; 6] = [
        Self::UnknownUser,
        Self::FailedIntegrity,
        Self::ForeignAddress,
        Self::UnknownAddress,
        Self::OtherProtocol,
        Self::FullQueue,
    ];

    /// Returns the reason's name in `/api/viewers`.
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

/// A session: where its datagrams go, the credentials of the browser's checks, and the addresses bound to it.
struct Entry<T> {
    place: T,
    own: Credentials,
    peer_ufrag: String,
    addresses: Vec<SocketAddr>,
}

/// The binding of an address to the session with this user name.
struct Binding {
    ufrag: String,
    /// Arrival time of the last valid check.
    checked: Time,
}

/// Assigns a port's datagrams to sessions. `T` is where a session's datagrams go.
///
/// Its size depends only on the number of sessions: a datagram without a valid check just changes counters.
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
    /// Adds a session with this end's credentials, which must be unique, and the browser's user name.
    ///
    /// `place` says where the session's datagrams go.
    pub fn add(&mut self, own: Credentials, peer_ufrag: String, place: T) {
        self.remove(&own.ufrag);
        let ufrag = own.ufrag.clone();
        self.sessions.insert(ufrag, Entry { place, own, peer_ufrag, addresses: Vec::new() });
    }

    /// Removes this end's session with this user name, and its bindings.
    pub fn remove(&mut self, ufrag: &str) {
        for address in self.sessions.remove(ufrag).into_iter().flat_map(|entry| entry.addresses) {
            self.bindings.remove(&address);
        }
    }

    /// Returns the `place` that [`Demultiplexer::add`] stored for the datagram's session.
    ///
    /// # Errors
    /// The datagram belongs to no session. The caller counts the reason with [`Demultiplexer::count`].
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

    /// Binds the source address of a valid check to its session, whose user name is returned.
    fn checked(&mut self, now: Time, from: SocketAddr, message: &StunMessage<'_>) -> Result<String, DropReason> {
        let named = message.split_username().and_then(|(ufrag, _)| self.sessions.get(ufrag));
        let entry = named.ok_or(DropReason::UnknownUser)?;
        if !is_authentic_check(message, &entry.own, &entry.peer_ufrag) {
            return Err(DropReason::FailedIntegrity);
        }
        let ufrag = entry.own.ufrag.clone();
        let former = self.bindings.get(&from).filter(|binding| binding.ufrag != ufrag);
        // A forged source address must not divert an active browser's packets.
        if former.is_some_and(|binding| now.since(binding.checked) < ADDRESS_HOLD) {
            return Err(DropReason::ForeignAddress);
        }
        self.bind(now, from, &ufrag);
        Ok(ufrag)
    }

    /// Binds an address, and releases it from another session.
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
            // This is never the new address, whose check is the latest.
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

    /// Datagrams that were not delivered, by reason.
    pub fn dropped(&self) -> [(DropReason, u64); DropReason::ALL.len()] {
        DropReason::ALL.map(|reason| (reason, self.dropped.get(reason as usize).copied().unwrap_or(0)))
    }

    /// Returns the number of bound addresses.
    pub fn bound(&self) -> usize {
        self.bindings.len()
    }
}
