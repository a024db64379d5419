//! The controlling ICE end's checks (RFC 8445, sections 7 and 8).

use crate::tunnel::{Output, TunnelParameters};
use crate::{Credentials, Role};
use is::stun::{StunMessage, StunPacket};
use is::{Candidate, IceAgent, IceAgentEvent, IceCreds, Protocol};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;
use steadycast_units::Time;

/// Maximum number of transmissions of a check. The timeouts double from 250 ms to 3 s, so an address is given up after
/// 31 s. This is later than the end of consent (30 s, RFC 7675).
const MAX_TRANSMISSIONS: usize = 13;

/// The ICE agent of the end that made the offer. All its candidates are known from the start.
pub(crate) struct Controlling {
    agent: IceAgent,
    /// Time of the next check.
    pub(crate) wake: Time,
}

impl Controlling {
    /// Returns `None` if this end did not make the offer.
    pub(crate) fn new(ends: &TunnelParameters) -> Option<Self> {
        let Role::Offerer { candidates, .. } = &ends.role else { return None };
        let creds = |of: &Credentials| IceCreds { ufrag: of.ufrag.clone(), pass: of.password.clone() };
        let mut agent = IceAgent::new(creds(&ends.own));
        agent.set_controlling(true);
        agent.set_max_stun_retransmits(MAX_TRANSMISSIONS);
        agent.set_remote_credentials(creds(&ends.peer));
        // Invalid candidates are left out. Without valid ones, the tunnel ends by its timeout.
        if let Ok(own) = Candidate::host(ends.local, "udp") {
            agent.add_local_candidate(own);
        }
        for address in candidates {
            if let Ok(candidate) = Candidate::host(*address, "udp") {
                agent.add_remote_candidate(candidate);
            }
        }
        Some(Self { agent, wake: Time::ZERO })
    }

    pub(crate) fn on_wake(&mut self, now: Instant) {
        self.agent.handle_timeout(now);
    }

    /// Handles a STUN message to the local address. Returns whether it is a response, or `None` if it is not authentic.
    pub(crate) fn on_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        local: SocketAddr,
        message: StunMessage<'_>,
    ) -> Option<bool> {
        let is_response = message.is_successful_binding_response();
        // The ICE library requires these attributes, whose absence is the peer's error.
        let is_complete = if message.is_binding_request() {
            message.prio().is_some() && message.split_username().is_some()
        } else {
            !is_response || message.mapped_address().is_some()
        };
        if !is_complete {
            return None;
        }
        let packet = StunPacket { proto: Protocol::Udp, source: from, destination: local, message };
        let is_authentic = self.agent.handle_packet(now, packet);
        // After a response, a candidate pair can perhaps be nominated.
        self.agent.handle_timeout(now);
        is_authentic.then_some(is_response)
    }

    /// Appends the datagrams to send. Returns the address that was nominated now.
    pub(crate) fn drain(&mut self, out: &mut VecDeque<Output>) -> Option<SocketAddr> {
        let mut nominated = None;
        while let Some(event) = self.agent.poll_event() {
            if let IceAgentEvent::NominatedSend { destination, .. } = event {
                nominated = Some(destination);
            }
        }
        while let Some(transmit) = self.agent.poll_transmit() {
            out.push_back(Output::Send(transmit.destination, transmit.contents.to_vec()));
        }
        nominated
    }

    /// Returns the time of the next check; `None` means now.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        self.agent.poll_timeout()
    }
}
