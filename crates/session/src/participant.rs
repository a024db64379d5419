//! What a session's sender and receiver share: identity, RTCP timing, member table.

use std::collections::VecDeque;
use steadycast_control::promise::WITHIN_MTU;
use steadycast_control::{Check, Wake};
use steadycast_rtcp::{
    Census, Conflict, Early, Expiry, Leave, Members, Origin, Profile, SourceStatus, Timer, TimerConfig,
};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, GroupSize, Packet, ReportBlock};

/// The identity of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The synchronisation source (RFC 3550, section 3).
    pub ssrc: u32,
    /// The canonical name (RFC 3550, section 6.5.1).
    pub cname: String,
}

/// Settings of RTCP's timing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtcpSettings {
    /// The timing rules.
    pub profile: Profile,
    /// The session bandwidth, of which RTCP may take 5 %.
    pub session_bandwidth: Rate,
    /// The minimum report interval; `None` uses the profile's.
    pub t_min: Option<Span>,
    /// Whether there can be more than one receiver.
    pub group: bool,
    /// Whether receivers report to the sender only, which announces the group's size (RFC 5760, section 7).
    pub summary: bool,
    /// Whether an authenticated end's first packet makes it a member. Browsers begin with a key-frame request and send
    /// no CNAME.
    pub authenticated: bool,
    /// Whether the session runs in real time, not in a simulation. A source then wakes less often
    /// ([`TimerConfig::skips_suppressed`]).
    pub real_time: bool,
    /// The path's MTU.
    pub mtu: Bytes,
}

impl RtcpSettings {
    /// Returns settings for unicast with an MTU of 1500 bytes.
    pub const fn new(profile: Profile, session_bandwidth: Rate) -> Self {
        Self {
            profile,
            session_bandwidth,
            t_min: None,
            group: false,
            summary: false,
            authenticated: false,
            real_time: false,
            mtu: Bytes::new(1500),
        }
    }

    /// Returns the maximum compound size in bytes, without IP and UDP headers.
    fn largest_compound(&self) -> usize {
        (self.mtu.min(MAX_DATAGRAM).get() as usize).saturating_sub(IP_UDP_OVERHEAD)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The maximum IP size of a datagram.
    pub(crate) datagram: Bytes,
    /// The bytes that remain for feedback in a compound after the report and the SDES.
    pub(crate) packets: usize,
}

/// The IP size that every IPv6 path carries (RFC 8200, section 5).
pub(crate) const MAX_DATAGRAM: Bytes = Bytes::new(1280);

/// Maximum size of the member table. Larger groups are sampled (RFC 2762).
const MAX_SAMPLED_MEMBERS: usize = 256;
/// Maximum size of the sender's member table if only the sender gets reports, and of an announced group.
const MAX_MEMBERS: usize = 1 << 17;
/// Maximum compound size in bytes for RTCP's timing: an Ethernet datagram.
const MAX_COUNTED_COMPOUND: u16 = 1_472;
/// The counted size of another member's compound is at most this multiple of this member's longest one.
const MAX_SIZE_RATIO: usize = 4;
/// Maximum number of new members from one compound: its author, and another SSRC of the same host.
const MAX_NEW_MEMBERS: usize = 2;

/// The size of a report, the SDES and a controller's APP packet.
const INITIAL_COMPOUND_SIZE: usize = 84;

/// The time over which the used share of RTCP's bandwidth is measured, in seconds.
const SHARE_WINDOW: u64 = 30;

/// Whether a compound is accepted. This follows from the [`SourceStatus`] of the compound's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Good,
    /// The sender has left, uses another member's SSRC, or is this participant itself (a loop).
    Ignored,
    /// Another participant uses this participant's SSRC, which is then changed.
    Collision,
}

impl Standing {
    pub(crate) const fn of(heard: SourceStatus) -> Self {
        match heard {
            SourceStatus::Conflict(Conflict::WithUs) => Self::Collision,
            SourceStatus::Conflict(_) | SourceStatus::Gone => Self::Ignored,
            _ => Self::Good,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Collision, _) | (_, Self::Collision) => Self::Collision,
            (Self::Ignored, _) | (_, Self::Ignored) => Self::Ignored,
            _ => Self::Good,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    Stays,
    Wanted,
    /// The BYE is delayed (RFC 3550, section 6.3.7).
    Waits,
    Gone,
}

pub(crate) struct Participant {
    pub(crate) identity: Identity,
    pub(crate) members: Members,
    pub(crate) timer: Timer,
    pub(crate) farewell: Farewell,
    settings: RtcpSettings,
    /// Draws a new SSRC after a collision.
    chance: Chance,
    /// An SSRC that was given up after a collision and still needs a BYE.
    given_up: Option<u32>,
    /// A member that has sent nothing needs no BYE.
    has_sent: bool,
    /// The longest sent compound, initially an assumed size.
    longest: usize,
    /// The RTCP bytes received and sent, per second.
    rtcp_bytes: [u32; SHARE_WINDOW as usize],
    /// The newest second in `rtcp_bytes`.
    second: u64,
    started: Time,
    /// Parts of the previous compound that did not fit.
    outbox: VecDeque<Vec<u8>>,
    /// RTCP packets that fit into no datagram.
    refused: u64,
    mtu: Check,
}

impl Participant {
    pub(crate) fn new(identity: Identity, settings: RtcpSettings, source: bool, chance: Chance, now: Time) -> Self {
        let mut config = TimerConfig::new(settings.profile, settings.session_bandwidth);
        // Only a source can skip expiries, because a receiver's feedback waits for them.
        config.skips_suppressed = settings.real_time && source;
        if let Some(t_min) = settings.t_min {
            config = config.with_t_min(t_min);
        }
        if !settings.group {
            // Unicast may use the reduced minimum interval (RFC 3550, section 6.2).
            config = config.with_reduced_minimum(settings.session_bandwidth).point_to_point();
        }
        // The key of the SSRC sampling (RFC 2762) must stay secret. A new SSRC, which is public, is the upper half of
        // the same random number, so the key is the lower half.
        let key = chance.clone().bits64() as u32;
        let capacity = if source && settings.summary { MAX_MEMBERS } else { MAX_SAMPLED_MEMBERS };
        let mut timer = Timer::with_config(config, chance.clone(), now);
        timer.on_source(now, source, &Census::alone());
        Self {
            members: Members::sampled(identity.ssrc, key, capacity).authenticated(settings.authenticated),
            identity,
            chance,
            timer,
            farewell: Farewell::Stays,
            given_up: None,
            has_sent: false,
            longest: INITIAL_COMPOUND_SIZE,
            settings,
            rtcp_bytes: [0; SHARE_WINDOW as usize],
            second: whole_seconds(now),
            started: now,
            outbox: VecDeque::new(),
            refused: 0,
            mtu: Check::new(&WITHIN_MTU),
        }
    }

    pub(crate) const fn is_authenticated(&self) -> bool {
        self.settings.authenticated
    }

    pub(crate) const fn is_group(&self) -> bool {
        self.settings.group
    }

    /// Returns whether the source announces the group's size.
    pub(crate) const fn summary(&self) -> bool {
        self.settings.summary
    }

    /// Applies the group size that the source announced. Other hosts are ignored, because they could silence the group.
    pub(crate) fn on_group_size(&mut self, now: Time, ssrc: u32, from: Origin, group: GroupSize) {
        if !(self.members.contains(ssrc) && self.members.speaks_from(ssrc, from)) {
            return;
        }
        let receivers = group.receivers.min(MAX_MEMBERS as u32);
        // A smaller group advances the next report (reverse reconsideration, RFC 3550, section 6.3.4).
        if self.members.on_group_size(receivers) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
        // The timer counts sizes with IP and UDP headers.
        self.timer.on_told_size(f64::from(group.average.clamp(1, MAX_COUNTED_COMPOUND)) + IP_UDP_OVERHEAD as f64);
    }

    pub(crate) fn group_size(&self) -> GroupSize {
        let average = (self.timer.avg_size() - IP_UDP_OVERHEAD as f64).clamp(0.0, f64::from(u16::MAX));
        // The source itself is not a receiver.
        GroupSize { average: average as u16, receivers: self.members.census().members.saturating_sub(1) }
    }

    pub(crate) fn census(&self) -> Census {
        self.members.census()
    }

    /// Returns a receiver's deterministic interval Td (RFC 3550, section 6.3.1).
    pub(crate) fn interval(&self) -> Span {
        self.timer.inputs(&self.census()).deterministic()
    }

    pub(crate) fn rtcp_due(&mut self, now: Time) -> bool {
        self.expiry(now).is_some()
    }

    /// Returns the compound that is due at RTCP's timer.
    pub(crate) fn expiry(&mut self, now: Time) -> Option<Expiry> {
        while self.timer.next() <= now {
            // Time-outs are checked once per interval (RFC 3550, section 6.3.5).
            self.expire_members(now);
            let census = self.census();
            match self.timer.on_expiry(now, &census) {
                Expiry::Rearm(_) | Expiry::Suppress => {}
                expiry => return Some(expiry),
            }
        }
        None
    }

    /// Requests early feedback. Returns false if it would come after the time `useful`.
    pub(crate) fn request_early(&mut self, now: Time, useful: Span) -> bool {
        self.timer.request_early(now, useful) != Early::TooLate
    }

    /// Like [`Participant::request_early`], for feedback that has already waited at random.
    pub(crate) fn request_dithered(&mut self, now: Time, useful: Span) -> bool {
        self.timer.request_dithered(now, useful) != Early::TooLate
    }

    fn expire_members(&mut self, now: Time) {
        let census = self.census();
        let member = self.timer.member_timeout(&census);
        let sender = self.timer.sender_timeout();
        if self.members.expire(now, member, sender) > 0 {
            let census = self.census();
            self.timer.on_departures(now, &census);
        }
    }

    /// Sets whether there is a source to report on.
    pub(crate) fn on_source(&mut self, now: Time, present: bool) {
        let census = self.census();
        self.timer.on_source(now, present, &census);
    }

    /// Returns the silence after which a member times out.
    pub(crate) fn member_timeout(&self) -> Span {
        self.timer.member_timeout(&self.census())
    }

    pub(crate) fn wake(&self) -> Wake {
        Wake { at: self.timer.next(), why: "RTCP interval" }
    }

    /// Adds a compound to the mean size and to RTCP's share.
    fn count(&mut self, now: Time, len: usize) {
        // A forged large compound must not slow down the group's RTCP.
        let most = if self.settings.group { self.longest * MAX_SIZE_RATIO } else { MAX_COUNTED_COMPOUND.into() };
        self.timer.on_rtcp(Bytes::new((len.min(most) + IP_UDP_OVERHEAD) as u64));
        let second = whole_seconds(now);
        // The skipped seconds still contain the bytes of half a minute ago.
        for past in self.second + 1..=second.min(self.second + SHARE_WINDOW) {
            self.rtcp_bytes[(past % SHARE_WINDOW) as usize] = 0;
        }
        self.second = self.second.max(second);
        let bin = &mut self.rtcp_bytes[(self.second % SHARE_WINDOW) as usize];
        *bin = bin.saturating_add((len + IP_UDP_OVERHEAD) as u32);
    }

    /// Returns RTCP's share of the session bandwidth over the last half minute.
    pub(crate) fn share(&self, now: Time) -> f64 {
        // In a shorter window, a single compound would be a large share.
        let window = now.since(self.started).min(Span::secs(SHARE_WINDOW)).max(Span::secs(5));
        // Seconds without RTCP have not been overwritten in the ring.
        let silent = whole_seconds(now).saturating_sub(self.second).min(SHARE_WINDOW);
        let recent = (0..SHARE_WINDOW - silent).filter_map(|back| self.second.checked_sub(back));
        let bytes = recent.map(|second| u64::from(self.rtcp_bytes[(second % SHARE_WINDOW) as usize])).sum();
        Bytes::new(bytes).per(window).ratio(self.settings.session_bandwidth)
    }

    /// Updates the member table. Returns whether the compound of `len` bytes is used.
    pub(crate) fn learn(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Standing {
        let mut standing = Standing::Good;
        let (mut last, mut new, mut known) = (None, 0, false);
        let mut hear = |ssrc: u32, heard: &mut dyn FnMut(&mut Members) -> SourceStatus| {
            // A source outside of the sample needs no look-up per packet.
            if last == Some((ssrc, SourceStatus::Unsampled)) {
                return;
            }
            let again = last.is_some_and(|(before, _)| before == ssrc);
            if !again && new >= MAX_NEW_MEMBERS && !self.members.contains(ssrc) {
                return;
            }
            let heard = heard(&mut self.members);
            new += usize::from(!again && heard != SourceStatus::Member);
            known |= matches!(heard, SourceStatus::Member | SourceStatus::Joined | SourceStatus::Unsampled);
            standing = standing.and(Standing::of(heard));
            last = Some((ssrc, heard));
        };
        for packet in &compound.packets {
            match packet {
                Packet::SenderReport { ssrc, .. } | Packet::ReceiverReport { ssrc, .. } | Packet::App { ssrc, .. } => {
                    hear(*ssrc, &mut |members| members.on_rtcp(now, *ssrc, from));
                }
                Packet::Sdes { chunks } => {
                    for (ssrc, cname) in chunks {
                        hear(*ssrc, &mut |members| members.on_cname(now, *ssrc, from, cname));
                    }
                }
                _ => {}
            }
        }
        // Non-members must not affect the RTCP interval.
        if known && standing == Standing::Good {
            self.count(now, len);
        }
        standing
    }

    /// Changes the SSRC after a collision; a BYE for the old one follows (RFC 3550, section 8.2).
    pub(crate) fn renew(&mut self) {
        let old = self.identity.ssrc;
        let mut new = self.chance.bits32();
        // A known SSRC would collide again.
        while new == old || self.members.contains(new) {
            new = self.chance.bits32();
        }
        self.identity.ssrc = new;
        self.members.renew(new);
        // A participant that has sent nothing must not send a BYE (RFC 3550, section 6.3.7).
        if self.has_sent || self.members.census().we_sent {
            self.given_up = Some(old);
        }
    }

    /// Returns the rest of a split compound, or the BYE of a former SSRC.
    pub(crate) fn pending_datagram(&mut self, now: Time) -> Option<Vec<u8>> {
        if let Some(rest) = self.outbox.pop_front() {
            return Some(rest);
        }
        let ssrc = self.given_up.take()?;
        // The common CNAME shows receivers that both SSRCs are the same participant.
        let chunks = [ssrc, self.identity.ssrc].map(|of| (of, self.identity.cname.clone()));
        let packets = vec![
            // A compound begins with a report (RFC 3550, section 6.1).
            Packet::ReceiverReport { ssrc, blocks: Vec::new() },
            Packet::Sdes { chunks: chunks.into() },
            Packet::Bye { ssrcs: vec![ssrc], reason: String::new() },
        ];
        Some(self.encode(now, packets))
    }

    pub(crate) fn leave(&mut self) {
        if self.farewell == Farewell::Stays {
            self.farewell = Farewell::Wanted;
        }
    }

    /// Returns whether the BYE is due. In groups of more than fifty members it is delayed (RFC 3550, section 6.3.7).
    /// `sent_rtp` is whether media was sent.
    pub(crate) fn farewell_due(&mut self, now: Time, sent_rtp: bool) -> bool {
        let goes = match self.farewell {
            Farewell::Stays | Farewell::Gone => false,
            Farewell::Waits => self.rtcp_due(now),
            Farewell::Wanted => {
                let ssrc = self.identity.ssrc;
                let packets = vec![
                    Packet::ReceiverReport { ssrc, blocks: Vec::new() },
                    self.sdes(),
                    Packet::Bye { ssrcs: vec![ssrc], reason: String::new() },
                ];
                // The BYE's size replaces the mean size (RFC 3550, section 6.3.7).
                let size = Bytes::new((Compound { packets }.encoded_len() + IP_UDP_OVERHEAD) as u64);
                let census = self.census();
                match self.timer.leave(now, size, self.has_sent || sent_rtp, &census) {
                    Leave::Now => true,
                    Leave::AtExpiry(_) => {
                        self.farewell = Farewell::Waits;
                        false
                    }
                    // A participant that has sent nothing sends no BYE (RFC 3550, section 6.3.7).
                    Leave::Silently => {
                        self.farewell = Farewell::Gone;
                        false
                    }
                }
            }
        };
        if goes {
            self.farewell = Farewell::Gone;
        }
        goes
    }

    pub(crate) fn farewell_wake(&self, now: Time) -> Option<Wake> {
        let at = self.timer.next().max(now + Span::nanos(1));
        (self.farewell == Farewell::Waits).then_some(Wake { at, why: "BYE in its turn" })
    }

    /// Returns the sources that leave with this compound of `len` bytes. Each must report in it from its own address.
    pub(crate) fn read_byes(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) -> Vec<u32> {
        // BYE comes last (RFC 3550, section 6.1).
        let Some(Packet::Bye { .. }) = compound.packets.last() else { return Vec::new() };
        let reporter = |packet: &Packet| match packet {
            Packet::SenderReport { ssrc, .. } | Packet::ReceiverReport { ssrc, .. } => Some(*ssrc),
            _ => None,
        };
        if compound.packets.first().and_then(reporter).is_none() {
            return Vec::new();
        }
        let byes = compound.packets.iter().rev().map_while(|packet| match packet {
            Packet::Bye { ssrcs, .. } => Some(ssrcs),
            _ => None,
        });
        let mut left = Vec::new();
        for ssrc in byes.flatten().copied() {
            let reports = compound.packets.iter().any(|packet| reporter(packet) == Some(ssrc));
            // Otherwise any host could remove a member with a forged BYE.
            if !reports || !self.members.speaks_from(ssrc, from) {
                continue;
            }
            if self.members.on_bye(now, ssrc, from) {
                let census = self.census();
                self.timer.on_bye(now, Bytes::new((len + IP_UDP_OVERHEAD) as u64), &census);
            }
            left.push(ssrc);
        }
        left
    }

    pub(crate) fn sdes(&self) -> Packet {
        Packet::Sdes { chunks: vec![(self.identity.ssrc, self.identity.cname.clone())] }
    }

    /// Returns the room for feedback in a datagram that also contains a report with one block, and the SDES.
    pub(crate) fn room(&self) -> Room {
        let block = ReportBlock::default();
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: vec![block] };
        let most = self.settings.largest_compound();
        // A second block, for audio, may cause a further datagram.
        let packets = most.saturating_sub(report.encoded_len() + self.sdes().encoded_len());
        Room { datagram: Bytes::new((most + IP_UDP_OVERHEAD) as u64), packets }
    }

    /// Encodes `packets`, which begin with a report and the SDES, as a compound.
    ///
    /// Packets that do not fit are sent later ([`Participant::pending_datagram`]), after an empty report and the SDES
    /// (RFC 3550, section 6.1).
    pub(crate) fn encode(&mut self, now: Time, packets: Vec<Packet>) -> Vec<u8> {
        let most = self.settings.largest_compound();
        let mut compound = Compound { packets };
        if compound.encoded_len() <= most {
            return self.written(now, &compound);
        }
        let report = Packet::ReceiverReport { ssrc: self.identity.ssrc, blocks: Vec::new() };
        let head = [report, self.sdes()];
        // The caller's own report and SDES stay in the first datagram.
        let rest = compound.packets.split_off(head.len().min(compound.packets.len()));
        let mut first = None;
        for packet in rest {
            let fits = |compound: &Compound| compound.encoded_len() + packet.encoded_len() <= most;
            if !fits(&compound) {
                let next = Compound { packets: head.to_vec() };
                // The packet is too large even for a datagram with the shortest report.
                if !fits(&next) {
                    self.refused += 1;
                    continue;
                }
                let full = self.written(now, &std::mem::replace(&mut compound, next));
                match first {
                    None => first = Some(full),
                    Some(_) => self.outbox.push_back(full),
                }
            }
            compound.packets.push(packet);
        }
        let last = self.written(now, &compound);
        let Some(first) = first else { return last };
        self.outbox.push_back(last);
        first
    }

    fn written(&mut self, now: Time, compound: &Compound) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(compound.encoded_len());
        compound.encode(&mut bytes);
        self.has_sent = true;
        self.longest = self.longest.max(bytes.len().min(MAX_COUNTED_COMPOUND.into()));
        self.count(now, bytes.len());
        self.check_size(Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64));
        bytes
    }

    /// Returns the total IP size of the queued datagrams.
    pub(crate) fn waiting(&self) -> Bytes {
        self.outbox.iter().map(|bytes| Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64)).sum()
    }

    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn check_size(&mut self, size: Bytes) {
        self.mtu.see(size <= self.settings.mtu);
    }

    /// Returns the check that no RTP or RTCP packet exceeds the path's MTU.
    pub(crate) const fn mtu_check(&self) -> Check {
        self.mtu
    }
}

const fn whole_seconds(at: Time) -> u64 {
    at.as_nanos() / 1_000_000_000
}
