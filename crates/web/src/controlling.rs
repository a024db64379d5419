//! The connectivity checks of the controlling ICE agent (RFC 8445, sections 7 and 8).

use crate::tunnel::{Output, TunnelParameters};
use crate::{Credentials, Role};
use is::stun::{StunMessage, StunPacket};
use is::{Candidate, IceAgent, IceAgentEvent, IceCreds, Protocol};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;
use steadycast_units::Time;

/// Maximum number of times that a check is sent. The timeouts double from 250 ms to 3 s, so an address is abandoned
/// after 31 s. This is later than the end of consent, which is after 30 s (RFC 7675).
const MAX_TRANSMISSIONS: usize = 13;

/// The ICE agent of the end that made the offer. It knows all candidates from the start.
pub(crate) struct Controlling {
    agent: IceAgent,
    /// When the next check is due.
    pub(crate) wake: Time,
}

impl Controlling {
    /// Creates the agent. Returns `None` if this end did not make the offer.
    pub(crate) fn new(ends: &TunnelParameters) -> Option<Self> {
        let Role::Offerer { candidates, .. } = &ends.role else { return None };
        let creds = |of: &Credentials| IceCreds { ufrag: of.ufrag.clone(), pass: of.password.clone() };
        let mut agent = IceAgent::new(creds(&ends.own));
        agent.set_controlling(true);
        agent.set_max_stun_retransmits(MAX_TRANSMISSIONS);
        agent.set_remote_credentials(creds(&ends.peer));
        // Leave out invalid candidates. If no candidate is valid, the tunnel's timeout ends it.
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

    /// Handles a STUN message that arrived at the address `local`. Returns `None` if the message is not authentic.
    /// Otherwise returns whether it is a response.
    pub(crate) fn on_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        local: SocketAddr,
        message: StunMessage<'_>,
    ) -> Option<bool> {
        let is_response = message.is_successful_binding_response();
        // Ignore a message without these attributes, because the ICE library requires them. The peer should have sent
        // them.
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
        // Let the agent act after each message, because a response may allow it to nominate a candidate pair.
        self.agent.handle_timeout(now);
        is_authentic.then_some(is_response)
    }

    /// Appends the datagrams that are to be sent. Returns the address if the agent has just nominated one.
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

    /// Returns when the next check is due. `None` means that it is due now.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        self.agent.poll_timeout()
    }
}
