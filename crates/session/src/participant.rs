//! What a sender and a receiver of a session have in common: an identity, and RTCP's timing and members.

use std::collections::VecDeque;
use steadycast_control::Wake;
use steadycast_rtcp::{Census, Expiry, Members, Origin, Profile, Timer, TimerConfig};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, Packet};

/// Who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Synchronisation source.
    pub ssrc: u32,
    /// Canonical name.
    pub cname: String,
}

/// How RTCP is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtcpSettings {
    /// Which rules.
    pub profile: Profile,
    /// The session bandwidth, of which RTCP may take 5 %.
    pub session_bandwidth: Rate,
    /// Least interval; `None`: the profile's own.
    pub t_min: Option<Span>,
    /// Whether there can be more than one receiver.
    pub group: bool,
}

/// Members that are known one by one; of larger groups a sample is kept (RFC 2762), so that many receivers fit one machine.
const MEMBERS: usize = 256;

/// RTCP bytes over the last half minute.
const SHARE_WINDOW: Span = Span::secs(30);

pub(crate) struct Participant {
    pub(crate) identity: Identity,
    pub(crate) members: Members,
    pub(crate) timer: Timer,
    settings: RtcpSettings,
    heard: VecDeque<(Time, u64)>,
    heard_bytes: u64,
    started: Time,
}

impl Participant {
    pub(crate) fn new(identity: Identity, settings: RtcpSettings, chance: Chance, now: Time) -> Self {
        let mut config = TimerConfig::new(settings.profile, settings.session_bandwidth);
        if let Some(t_min) = settings.t_min {
            config = config.with_t_min(t_min);
        }
        if !settings.group {
            // RFC 3550, 6.2: in unicast all may use the reduced minimum.
            config = config.with_reduced_minimum(settings.session_bandwidth).point_to_point();
        }
        Self {
            members: Members::sampled(identity.ssrc, MEMBERS),
            identity,
            timer: Timer::with_config(config, chance, now),
            settings,
            heard: VecDeque::new(),
            heard_bytes: 0,
            started: now,
        }
    }

    pub(crate) fn census(&self) -> Census {
        self.members.census()
    }

    /// The deterministic interval Td (RFC 3550, 6.3.1) for a receiver of this session.
    pub(crate) fn interval(&self) -> Span {
        self.timer.inputs(&self.census()).deterministic()
    }

    /// Whether RTCP's own timer says that a compound goes now.
    pub(crate) fn rtcp_due(&mut self, now: Time) -> bool {
        while self.timer.next() <= now {
            self.expire(now);
            let census = self.census();
            match self.timer.on_expiry(now, &census) {
                Expiry::Send | Expiry::SendFeedback | Expiry::SendBye => return true,
                Expiry::Rearm(_) | Expiry::Suppress => {}
            }
        }
        false
    }

    fn expire(&mut self, now: Time) {
        let census = self.census();
        let member = self.timer.member_timeout(&census);
        let sender = self.timer.sender_timeout();
        if self.members.expire(now, member, sender) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
    }

    /// After how long of silence a member counts as gone.
    pub(crate) fn member_timeout(&self) -> Span {
        self.timer.member_timeout(&self.census())
    }

    pub(crate) fn wake(&self) -> Wake {
        Wake { at: self.timer.next(), why: "RTCP interval" }
    }

    /// A compound was sent or heard: it counts for the mean size and for RTCP's share.
    pub(crate) fn count(&mut self, now: Time, len: usize) {
        let size = (len + IP_UDP_OVERHEAD) as u64;
        self.timer.on_rtcp(Bytes::new(size));
        self.heard.push_back((now, size));
        self.heard_bytes += size;
        while let Some(&(at, size)) = self.heard.front() {
            if now.since(at) <= SHARE_WINDOW {
                break;
            }
            self.heard.pop_front();
            self.heard_bytes -= size;
        }
    }

    /// RTCP's share of the session bandwidth over the last half minute.
    pub(crate) fn share(&self, now: Time) -> f64 {
        let window = now.since(self.started).min(SHARE_WINDOW).max(Span::secs(5));
        Bytes::new(self.heard_bytes).per(window).ratio(self.settings.session_bandwidth)
    }

    /// Members learn of each other from what they send.
    pub(crate) fn learn(&mut self, now: Time, from: Origin, compound: &Compound) {
        for packet in &compound.packets {
            match packet {
                Packet::SenderReport { ssrc, .. } | Packet::ReceiverReport { ssrc, .. } | Packet::App { ssrc, .. } => {
                    self.members.on_rtcp(now, *ssrc, from);
                }
                Packet::Sdes { chunks } => {
                    for (ssrc, cname) in chunks {
                        self.members.on_cname(now, *ssrc, from, cname);
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn heard_bye(&mut self, now: Time, from: Origin, ssrc: u32, len: usize) {
        if self.members.on_bye(now, ssrc, from) {
            let census = self.census();
            self.timer.on_bye(now, Bytes::new((len + IP_UDP_OVERHEAD) as u64), &census);
        }
    }

    pub(crate) fn sdes(&self) -> Packet {
        Packet::Sdes { chunks: vec![(self.identity.ssrc, self.identity.cname.clone())] }
    }

    pub(crate) fn encode(&mut self, now: Time, compound: &Compound) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(compound.encoded_len());
        compound.encode(&mut bytes);
        self.count(now, bytes.len());
        bytes
    }
}
